/* Events, time and hosts of the simulated network; simnet.h says what it does and simstate.h how it
 * is stored. */
#include "port/simnet.h"

#include "port/simstate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The only function that counts, hashes and traces an event. */
void sim_record(struct sim *sim, struct sim_trace happened)
{
	happened.time_ns = sim->now_ns;
	sim->counts[happened.kind]++;
	sim->hash = sim_fold_trace(sim->hash, &happened);
	if (sim->trace)
		sim->trace(sim->trace_context, &happened);
}

void sim_record_packet(struct sim *sim, enum sim_kind kind, const struct sim_packet *packet,
                       uint64_t value)
{
	sim_record(sim, (struct sim_trace){.kind = kind,
	                                   .from = packet->from,
	                                   .to = packet->to,
	                                   .number = packet->number,
	                                   .value = value,
	                                   .bytes = packet->bytes,
	                                   .digest = packet->digest});
}

void sim_record_host(struct sim *sim, enum sim_kind kind, uint32_t host, uint64_t number,
                     uint64_t value)
{
	sim_record(sim, (struct sim_trace){.kind = kind,
	                                   .from = SIM_NO_HOST,
	                                   .to = host,
	                                   .number = number,
	                                   .value = value});
}

int sim_create(const struct sim_config *config, struct sim **out)
{
	if (!sim_in_limits(config->host_count, SIM_MAX_HOSTS) ||
	    !sim_in_limits(config->event_capacity, SIM_MAX_EVENTS) ||
	    !sim_in_limits(config->packet_capacity, SIM_MAX_PACKETS) ||
	    !sim_in_limits(config->packet_bytes, SIM_MAX_PACKET_BYTES))
		return -EINVAL;

	uint32_t node_count = config->event_capacity + config->packet_capacity;
	struct sim *sim = calloc(1, sizeof(*sim));
	if (!sim)
		return -ENOMEM;
	struct sim_heap_entry *entries = calloc(node_count, sizeof(*entries));
	struct sim_event *events = calloc(node_count, sizeof(*events));
	uint32_t *free_nodes = calloc(node_count, sizeof(*free_nodes));
	unsigned char *bytes = calloc(config->packet_capacity, config->packet_bytes);
	uint32_t *free_buffers = calloc(config->packet_capacity, sizeof(*free_buffers));
	sim->links = calloc((size_t)config->host_count * config->host_count, sizeof(*sim->links));
	sim->heap.entries = entries; /* so that sim_destroy() finds each of them */
	sim->nodes = (struct slab){.objects = (unsigned char *)events, .free_list = free_nodes};
	sim->buffers = (struct slab){.objects = bytes, .free_list = free_buffers};
	if (!entries || !events || !free_nodes || !bytes || !free_buffers || !sim->links) {
		sim_destroy(sim);
		return -ENOMEM;
	}

	sim->config = *config;
	sim->hash = SIM_FOLD_START;
	prng_seed(&sim->prng, config->seed);
	sim_heap_init(&sim->heap, entries, node_count);
	slab_init(&sim->nodes, events, sizeof(*events), free_nodes, node_count);
	slab_init(&sim->buffers, bytes, config->packet_bytes, free_buffers,
	          config->packet_capacity);
	for (uint32_t i = 0; i < config->host_count; i++)
		sim->hosts[i].held_first = sim->hosts[i].held_last = SLAB_NONE;
	*out = sim;
	return 0;
}

void sim_destroy(struct sim *sim)
{
	if (!sim)
		return;
	free(sim->heap.entries);
	free(sim->nodes.objects);
	free(sim->nodes.free_list);
	free(sim->buffers.objects);
	free(sim->buffers.free_list);
	free(sim->links);
	free(sim);
}

uint64_t sim_now_ns(const struct sim *sim)
{
	return sim->now_ns;
}

static uint64_t read_clock(void *sim)
{
	return sim_now_ns(sim);
}

struct clock sim_clock(struct sim *sim)
{
	return (struct clock){.now = read_clock, .context = sim};
}

struct prng *sim_prng(struct sim *sim)
{
	return &sim->prng;
}

void sim_set_trace(struct sim *sim, sim_trace_fn *fn, void *context)
{
	sim->trace = fn;
	sim->trace_context = context;
}

uint64_t sim_hash(const struct sim *sim)
{
	return sim->hash;
}

uint64_t sim_count(const struct sim *sim, enum sim_kind kind)
{
	assert(kind < SIM_KINDS);
	return sim->counts[kind];
}

uint32_t sim_in_flight(const struct sim *sim)
{
	return sim->in_flight;
}

void sim_note(struct sim *sim, uint32_t host, uint64_t number, uint64_t value)
{
	sim_record_host(sim, SIM_NOTED, host, number, value);
}

void sim_schedule(struct sim *sim, uint64_t time_ns, const struct sim_event *event)
{
	uint32_t node = slab_take(&sim->nodes);
	assert(node != SLAB_NONE); /* one for every call and every buffer */
	memcpy(slab_at(&sim->nodes, node), event, sizeof(*event));
	bool pushed = sim_heap_push(&sim->heap, time_ns, node);
	assert(pushed); /* as many entries as nodes */
	(void)pushed;
}

static int schedule_call(struct sim *sim, uint64_t time_ns, const struct sim_event *event)
{
	assert(time_ns < SIM_MAX_TIME_NS);
	if (sim->calls_waiting == sim->config.event_capacity)
		return -ENOBUFS;
	sim->calls_waiting++;
	sim_schedule(sim, time_ns > sim->now_ns ? time_ns : sim->now_ns, event);
	return 0;
}

int sim_at(struct sim *sim, uint64_t time_ns, sim_call *fn, void *context, uint64_t arg)
{
	return schedule_call(sim, time_ns,
	                     &(struct sim_event){.kind = SIM_EVENT_CALL,
	                                         .host = SIM_NO_HOST,
	                                         .fn = fn,
	                                         .context = context,
	                                         .arg = arg});
}

int sim_at_host(struct sim *sim, uint32_t host, uint64_t time_ns, sim_call *fn, void *context,
                uint64_t arg)
{
	(void)sim_host_at(sim, host);
	return schedule_call(sim, time_ns,
	                     &(struct sim_event){.kind = SIM_EVENT_CALL,
	                                         .host = host,
	                                         .fn = fn,
	                                         .context = context,
	                                         .arg = arg});
}

void sim_host_attach(struct sim *sim, uint32_t host, const struct sim_host_ops *ops, void *context)
{
	struct sim_host *h = sim_host_at(sim, host);

	h->ops = *ops;
	h->context = context;
}

int sim_stall(struct sim *sim, uint32_t host, uint64_t until_ns)
{
	struct sim_host *h = sim_host_at(sim, host);

	if (h->dead)
		return -ESRCH;
	if (until_ns != SIM_FOREVER) {
		/* The call belongs to no host: a call of the stalled host would wait for itself. */
		int error = schedule_call(sim, until_ns,
		                          &(struct sim_event){.kind = SIM_EVENT_WAKE,
		                                              .host = SIM_NO_HOST,
		                                              .packet.to = host,
		                                              .arg = h->stall_count + 1});
		if (error)
			return error;
	}
	h->stalled = true;
	h->stall_count++;
	sim_record_host(sim, SIM_STALLED, host, 0, until_ns);
	return 0;
}

/* Take the oldest event off the list of what is held for @h; NULL: there is none. */
static struct sim_event *take_held(struct sim *sim, struct sim_host *h, uint32_t *node)
{
	*node = h->held_first;
	if (*node == SLAB_NONE)
		return NULL;
	struct sim_event *event = slab_at(&sim->nodes, *node);
	h->held_first = event->next_held;
	if (h->held_first == SLAB_NONE)
		h->held_last = SLAB_NONE;
	h->held_count--;
	return event;
}

void sim_wake(struct sim *sim, uint32_t host)
{
	struct sim_host *h = sim_host_at(sim, host);
	struct sim_event *event;
	uint32_t node;

	if (!h->stalled)
		return;
	h->stalled = false;
	sim_record_host(sim, SIM_WOKEN, host, 0, h->held_count);
	/* Put them back into the heap at their old times, which are in the past: the main loop runs
	 * them first, in their order. If the host stalls again at the first, the rest is held
	 * again. */
	while ((event = take_held(sim, h, &node))) {
		bool restored = sim_heap_restore(&sim->heap, &event->entry);
		assert(restored);
		(void)restored;
	}
	assert(h->held_count == 0);
}

bool sim_is_stalled(const struct sim *sim, uint32_t host)
{
	assert(host < sim->config.host_count);
	return sim->hosts[host].stalled;
}

void sim_drop(struct sim *sim, enum sim_kind kind, const struct sim_packet *packet)
{
	assert(sim->in_flight > 0);
	sim->in_flight--;
	slab_give(&sim->buffers, packet->buffer);
	sim_record_packet(sim, kind, packet, 0);
}

void sim_kill(struct sim *sim, uint32_t host, enum sim_death death)
{
	struct sim_host *h = sim_host_at(sim, host);
	struct sim_event *held;
	uint32_t node;

	if (h->dead)
		return;
	h->dead = true;
	h->vanished = death == SIM_DEATH_NODE;
	h->stalled = false;
	sim_record_host(sim, SIM_KILLED, host, 0, (uint64_t)death);
	while ((held = take_held(sim, h, &node))) {
		struct sim_event event = *held;
		slab_give(&sim->nodes, node);
		if (event.kind == SIM_EVENT_ARRIVAL) {
			sim_drop(sim, SIM_RECEIVER_DEAD, &event.packet);
		} else {
			sim->calls_waiting--;
			sim_record_host(sim, SIM_CALL_DROPPED, host, 0, event.arg);
		}
	}
	if (h->ops.died)
		h->ops.died(h->context, sim, host);
}

bool sim_is_dead(const struct sim *sim, uint32_t host)
{
	assert(host < sim->config.host_count);
	return sim->hosts[host].dead;
}

/* Keep the event in @node until its host wakes up. */
static void hold(struct sim *sim, uint32_t node, const struct sim_heap_entry *entry)
{
	struct sim_event *event = slab_at(&sim->nodes, node);
	struct sim_host *h = sim_host_at(sim, event->host);

	event->entry = *entry;
	event->was_held = true;
	event->next_held = SLAB_NONE;
	if (h->held_last == SLAB_NONE)
		h->held_first = node;
	else
		((struct sim_event *)slab_at(&sim->nodes, h->held_last))->next_held = node;
	h->held_last = node;
	h->held_count++;
	if (event->kind == SIM_EVENT_ARRIVAL)
		sim_record_packet(sim, SIM_HELD, &event->packet, 0);
	else
		sim_record_host(sim, SIM_HELD, event->host, 0, event->arg);
}

static void arrive(struct sim *sim, const struct sim_packet *packet)
{
	struct sim_host *h = sim_host_at(sim, packet->to);

	if (!h->ops.receive) {
		sim_drop(sim, SIM_UNATTENDED, packet);
		return;
	}
	assert(sim->in_flight > 0);
	sim->in_flight--;
	sim_record_packet(sim, SIM_DELIVERED, packet, 0);
	h->ops.receive(h->context, sim, packet->to, packet->from,
	               slab_at(&sim->buffers, packet->buffer), packet->bytes);
	slab_give(&sim->buffers, packet->buffer);
}

/* Does this packet end at the ingress of the receiver? What was held had already arrived: it is
 * lost only with its receiver. */
static bool stopped_on_the_way(const struct sim *sim, const struct sim_event *event,
                               enum sim_kind *cause)
{
	const struct sim_packet *packet = &event->packet;

	if (sim->hosts[packet->to].dead)
		*cause = SIM_RECEIVER_DEAD;
	else if (event->was_held)
		return false;
	else if (sim->hosts[packet->from].vanished)
		*cause = SIM_SENDER_DEAD;
	else if (sim_is_cut(sim, packet->from, packet->to))
		*cause = SIM_CUT;
	else
		return false;
	return true;
}

static void call(struct sim *sim, const struct sim_event *event)
{
	sim->calls_waiting--;
	if (event->kind == SIM_EVENT_WAKE) {
		struct sim_host *h = sim_host_at(sim, event->packet.to);
		if (h->stalled && h->stall_count == event->arg)
			sim_wake(sim, event->packet.to);
		return;
	}
	if (event->host != SIM_NO_HOST && sim->hosts[event->host].dead) {
		sim_record_host(sim, SIM_CALL_DROPPED, event->host, 0, event->arg);
		return;
	}
	sim_record_host(sim, SIM_CALLED, event->host, 0, event->arg);
	event->fn(sim, event->context, event->arg);
}

uint64_t sim_next_ns(const struct sim *sim)
{
	const struct sim_heap_entry *first = sim_heap_first(&sim->heap);

	return first ? first->time_ns : SIM_FOREVER;
}

bool sim_step(struct sim *sim)
{
	struct sim_heap_entry entry;
	enum sim_kind cause;

	if (!sim_heap_pop(&sim->heap, &entry))
		return false;
	if (entry.time_ns > sim->now_ns) /* the time of a held event is in the past */
		sim->now_ns = entry.time_ns;
	struct sim_event event = *(struct sim_event *)slab_at(&sim->nodes, entry.index);
	bool stopped = event.kind == SIM_EVENT_ARRIVAL && stopped_on_the_way(sim, &event, &cause);
	bool outside = event.kind == SIM_EVENT_ARRIVAL && !event.passed &&
	               sim->hosts[event.host].ingress.bandwidth_bps != 0;
	if (!stopped && !outside && event.host != SIM_NO_HOST && sim->hosts[event.host].stalled) {
		hold(sim, entry.index, &entry);
		return true;
	}
	/* The node is freed before the callback, so that the callback can schedule another call
	 * even if all other nodes are in use. */
	slab_give(&sim->nodes, entry.index);
	if (stopped)
		sim_drop(sim, cause, &event.packet);
	else if (event.kind == SIM_EVENT_ARRIVAL && !event.passed &&
	         !sim_pass_ingress(sim, &event.packet))
		return true;
	else if (event.kind == SIM_EVENT_ARRIVAL)
		arrive(sim, &event.packet);
	else
		call(sim, &event);
	return true;
}

enum sim_stop sim_run(struct sim *sim, uint64_t until_ns, uint64_t max_events)
{
	assert(until_ns < SIM_MAX_TIME_NS || until_ns == SIM_FOREVER);
	while (sim->heap.count > 0 && sim_next_ns(sim) <= until_ns) {
		if (max_events-- == 0)
			return SIM_STOP_EVENTS;
		sim_step(sim);
	}
	if (until_ns != SIM_FOREVER && until_ns > sim->now_ns)
		sim->now_ns = until_ns;
	return sim->heap.count > 0 ? SIM_STOP_TIME : SIM_STOP_IDLE;
}
