/* See splitnet.h. */
#include "cable/splitnet.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/be.h"
#include "wire/push.h"

/* Frames carry their number; the rest follows from it. */
static void splitnet_fill(uint8_t *frame, uint32_t bytes, uint64_t number)
{
	for (uint32_t i = 0; i < bytes; i++)
		frame[i] = (uint8_t)(number * 31 + i);
	if (bytes >= 8)
		be64_store(frame, number);
}

static void splitnet_check(struct splitnet_end *end, const uint8_t *frame, uint32_t bytes)
{
	static uint8_t want[1 << 20];
	uint64_t number = end->expected;
	if (end->split.config.mode == SPLIT_SEND && bytes >= 8) { /* some may be lost */
		number = be64_load(frame);
		assert(number >= end->expected && number < end->peer->sent);
	}
	assert(bytes <= sizeof(want));
	splitnet_fill(want, bytes, number);
	if (memcmp(want, frame, bytes) != 0) {
		fprintf(stderr, "%s: frame %llu is not what was sent\n", end->name,
		        (unsigned long long)number);
		abort();
	}
	end->expected = number + 1;
}

static bool splitnet_deliver(void *user, const uint8_t *frame, uint32_t bytes)
{
	struct splitnet_end *end = user;
	if (end->blocked ||
	    (end->block_permille > 0 && prng_chance(&end->net->prng, end->block_permille)))
		return false;
	if (end->take != NULL) {
		if (!end->take(end, frame, bytes))
			return false;
	} else {
		end->check(end, frame, bytes);
	}
	end->delivered++;
	end->delivered_bytes += bytes;
	end->last_frame_ns = end->net->now_ns;
	return true;
}

static void splitnet_configure(void *user, const struct push_cfg *request, struct push_cfg *reply)
{
	struct splitnet_end *end = user;
	if (end->knows_nothing)
		return;
	if (request->code == 1) {
		reply->code =
		        request->item == PUSH_CFG_STATISTICS ? PUSH_CFG_READ_ONLY : PUSH_CFG_OK;
		return;
	}
	*reply = (struct push_cfg){
	        .item = request->item, .has_value = true, .mtu = 1500, .up = true};
	reply->statistics[PUSH_STAT_RX_FRAMES] = end->delivered;
}

static void splitnet_configured(void *user, uint64_t token, const struct push_cfg *reply)
{
	struct splitnet_end *end = user;
	(void)token;
	if (reply != NULL) {
		end->configured++;
		end->last_answer = *reply;
	} else {
		end->unanswered++;
	}
}

static const struct split_user splitnet_user = {splitnet_deliver, splitnet_configure,
                                                splitnet_configured};

static struct splitnet_event *splitnet_add(struct splitnet *net, uint64_t at_ns,
                                           struct splitnet_end *from)
{
	assert(net->event_count < SPLITNET_EVENTS);
	struct splitnet_event *event = &net->events[net->event_count++];
	*event = (struct splitnet_event){
	        .at_ns = at_ns, .sequence = net->sequence++, .from = from, .good = true};
	return event;
}

static uint64_t splitnet_later(struct splitnet *net, unsigned channel)
{
	return net->now_ns + net->delay_ns[channel] +
	       (net->jitter_ns > 0 ? prng_below(&net->prng, net->jitter_ns) : 0);
}

static bool splitnet_post(void *binding, const struct split_op *op, uint64_t id)
{
	struct splitnet_end *end = binding;
	struct splitnet *net = end->net;
	if (end->in_flight[op->channel] == net->depth)
		return false;
	end->in_flight[op->channel]++;
	uint64_t at = splitnet_later(net, op->channel);
	if (at < end->last_arrival_ns[op->channel])
		at = end->last_arrival_ns[op->channel];
	end->last_arrival_ns[op->channel] = at;
	struct splitnet_event *event = splitnet_add(net, at, end);
	event->op = *op;
	event->id = id;
	return true;
}

static bool splitnet_offer(void *binding, uint32_t index, uint32_t elements, uint32_t element_bytes,
                           bool readable, struct split_memory *memory)
{
	struct splitnet_end *end = binding;
	for (uint32_t i = 0; i < SPLIT_MAX_POOLS; i++) {
		struct splitnet_region *region = &end->regions[i];
		if (region->used)
			continue;
		*region = (struct splitnet_region){.used = true,
		                                   .readable = readable,
		                                   .index = index,
		                                   .handle = ++end->next_handle,
		                                   .host = memory->host,
		                                   .bytes = (size_t)elements * element_bytes};
		if (region->host == NULL) {
			region->allocated = true;
			region->host = calloc(elements, element_bytes);
		}
		if (!readable)
			end->indications += elements;
		*memory = (struct split_memory){region->host, (uintptr_t)region->host,
		                                region->handle};
		return true;
	}
	return false;
}

static void splitnet_withdraw(void *binding, uint32_t index)
{
	struct splitnet_end *end = binding;
	for (uint32_t i = 0; i < SPLIT_MAX_POOLS; i++) {
		struct splitnet_region *region = &end->regions[i];
		if (!region->used || region->index != index)
			continue;
		if (region->allocated)
			free(region->host);
		*region = (struct splitnet_region){0};
		return;
	}
	assert(false); /* withdrawn twice */
}

static void splitnet_release(void *binding, uint32_t receive)
{
	struct splitnet_end *end = binding;
	unsigned channel = end->split.config.one_channel ? SPLIT_CONTROL : SPLIT_DATA;
	assert(end->receive_busy[channel][receive]);
	end->receive_busy[channel][receive] = false;
}

static const struct split_channel splitnet_channel = {splitnet_post, splitnet_offer,
                                                      splitnet_withdraw, splitnet_release};

/* The protection table of an adapter. */
static uint8_t *splitnet_reach(struct splitnet_end *end, const struct split_op *op, bool read)
{
	for (uint32_t i = 0; i < SPLIT_MAX_POOLS; i++) {
		struct splitnet_region *region = &end->regions[i];
		uint64_t base = (uintptr_t)region->host;
		if (!region->used || region->handle != op->handle || region->readable != read)
			continue;
		if (op->address < base || op->address - base > region->bytes ||
		    op->bytes > region->bytes - (op->address - base))
			break;
		return region->host + (op->address - base);
	}
	end->net->refused++;
	return NULL;
}

/* What begins a transaction has a context that nothing before it had. Replies repeat theirs, in
 * send mode the numbers of frames are contexts, and a question about the configuration that is
 * repeated has the one it had. */
static void splitnet_check_context(struct splitnet_end *from, const struct split_op *op)
{
	const uint8_t *message = op->local;
	uint16_t function = be16_load(message);
	uint64_t *last = &from->last_context[op->channel], context = be64_load(message + 4);
	if (function == PUSH_FLUSH_REPLY || function == PUSH_CFG_REPLY ||
	    function == PUSH_CFG_REQUEST || function == PUSH_SEND_DATA ||
	    (function == PUSH_POOL_GET && from->split.config.credits))
		return;
	assert(context >= *last);
	*last = context + 1;
}

/* A send arrives. False: there is no receive. */
static bool splitnet_take(struct splitnet_end *to, const struct split_op *op)
{
	uint32_t receives = to->split.config.one_channel ? 2 * SPLIT_RECEIVES : SPLIT_RECEIVES;
	for (uint32_t i = 0; i < receives; i++) {
		if (to->receive_busy[op->channel][i])
			continue;
		uint8_t *buffer = to->receives[op->channel][i];
		assert(op->bytes <= PUSH_MAX_BYTES);
		memcpy(buffer, op->local, op->bytes);
		to->receive_busy[op->channel][i] =
		        split_received(&to->split, op->channel, buffer, op->bytes, i);
		return true;
	}
	return false;
}

/* Returns whether the operation succeeds; *again: the peer had no receive. */
static bool splitnet_execute(struct splitnet *net, struct splitnet_event *event, bool *again)
{
	struct splitnet_end *to = event->from->peer;
	const struct split_op *op = &event->op;
	bool lossy = event->from->split.config.mode == SPLIT_SEND;
	if (event->from->dead)
		return false;
	if (to->dead)
		return lossy;
	if (op->kind == SPLIT_OP_SEND) {
		if (lossy && prng_chance(&net->prng, net->loss_permille)) {
			net->lost++;
			return true;
		}
		*again = !splitnet_take(to, op);
		if (!*again)
			splitnet_check_context(event->from, op);
		net->overrun += *again;
		*again &= !lossy;
		return true;
	}
	uint8_t *memory = splitnet_reach(to, op, op->kind == SPLIT_OP_READ);
	if (memory == NULL)
		return false;
	if (op->kind == SPLIT_OP_READ) {
		memcpy(op->local, memory, op->bytes);
		return true;
	}
	memcpy(memory, op->local, op->bytes);
	if (op->has_immediate) {
		if (to->indications == 0)
			net->not_ready++;
		split_indicated(&to->split, op->immediate);
	}
	return true;
}

static uint32_t splitnet_first(const struct splitnet *net)
{
	uint32_t first = 0;
	for (uint32_t i = 1; i < net->event_count; i++) {
		const struct splitnet_event *a = &net->events[i], *b = &net->events[first];
		if (a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->sequence < b->sequence))
			first = i;
	}
	return first;
}

bool splitnet_step(struct splitnet *net)
{
	if (net->event_count == 0)
		return false;
	uint32_t first = splitnet_first(net);
	struct splitnet_event event = net->events[first];
	net->events[first] = net->events[--net->event_count];
	net->now_ns = event.at_ns > net->now_ns ? event.at_ns : net->now_ns;
	if (event.completion) {
		event.from->in_flight[event.op.channel]--;
		split_done(&event.from->split, event.id, event.good);
		return true;
	}
	bool again = false, good = splitnet_execute(net, &event, &again);
	struct splitnet_event *next = splitnet_add(
	        net, net->now_ns + (again ? 1000 : net->delay_ns[event.op.channel]), event.from);
	uint64_t at = next->at_ns, sequence = next->sequence;
	*next = event;
	next->at_ns = at;
	next->sequence = again ? event.sequence : sequence;
	next->completion = !again;
	next->good = good;
	/* What is behind an operation that waits for a receive waits, too. */
	for (uint32_t i = 0; again && i < net->event_count; i++) {
		struct splitnet_event *other = &net->events[i];
		if (other->from == event.from && other->op.channel == event.op.channel &&
		    !other->completion && other->at_ns < at)
			other->at_ns = at;
	}
	if (again && event.from->last_arrival_ns[event.op.channel] < at)
		event.from->last_arrival_ns[event.op.channel] = at;
	return true;
}

void splitnet_pump(struct splitnet *net)
{
	for (unsigned i = 0; i < 2; i++)
		if (!net->end[i].dead)
			split_pump(&net->end[i].split, net->now_ns);
}

void splitnet_run(struct splitnet *net, uint64_t until_ns)
{
	splitnet_pump(net);
	while (net->now_ns < until_ns) {
		uint64_t deadline = UINT64_MAX;
		for (unsigned i = 0; i < 2; i++) {
			uint64_t at = split_deadline(&net->end[i].split);
			if (!net->end[i].dead && net->end[i].split.state != SPLIT_FAILED &&
			    at < deadline)
				deadline = at;
		}
		uint64_t next =
		        net->event_count > 0 ? net->events[splitnet_first(net)].at_ns : UINT64_MAX;
		if (deadline < next) {
			if (deadline > until_ns)
				break;
			net->now_ns = deadline > net->now_ns ? deadline : net->now_ns + 1;
		} else if (next > until_ns) {
			break;
		} else {
			splitnet_step(net);
		}
		splitnet_pump(net);
	}
}

bool splitnet_send(struct splitnet_end *end, uint32_t bytes)
{
	uint8_t *frame = split_take(&end->split);
	if (frame == NULL)
		return false;
	splitnet_fill(frame, bytes, end->sent++);
	split_send(&end->split, bytes);
	return true;
}

struct split_config splitnet_config(enum split_role role, enum split_mode mode,
                                    enum split_model model, bool host_owns, bool unit_owns,
                                    uint32_t frame_bytes)
{
	struct split_config config = {.role = role,
	                              .mode = mode,
	                              .model = model,
	                              .own_pools = role == SPLIT_HOST ? host_owns : unit_owns,
	                              .peer_owns_pools = role == SPLIT_HOST ? unit_owns : host_owns,
	                              .credits = true,
	                              .frame_bytes = frame_bytes,
	                              .slots = 16,
	                              .plans = {{.elements = 16, .element_bytes = 256},
	                                        {.elements = 8, .element_bytes = frame_bytes}},
	                              .plan_count = 2,
	                              .max_pools = 3};
	return config;
}

void splitnet_open(struct splitnet *net, uint64_t seed, const struct split_config config[2])
{
	memset(net, 0, sizeof(*net));
	prng_seed(&net->prng, seed);
	net->depth = 16;
	net->delay_ns[0] = net->delay_ns[1] = 1000;
	net->now_ns = 1;
	for (unsigned i = 0; i < 2; i++) {
		struct splitnet_end *end = &net->end[i];
		end->net = net;
		end->peer = &net->end[1 - i];
		end->name = i == SPLIT_HOST ? "host" : "unit";
		end->check = splitnet_check;
		end->memory_bytes = split_memory_bytes(&config[i]);
		assert(end->memory_bytes > 0);
		end->memory = malloc(end->memory_bytes);
		bool good = split_init(&end->split, &config[i], &splitnet_channel, end,
		                       &splitnet_user, end, end->memory, net->now_ns);
		assert(good);
	}
}

void splitnet_close(struct splitnet *net)
{
	for (unsigned i = 0; i < 2; i++) {
		split_end(&net->end[i].split);
		for (uint32_t r = 0; r < SPLIT_MAX_POOLS; r++)
			assert(!net->end[i].regions[r].used);
		free(net->end[i].memory);
	}
}
