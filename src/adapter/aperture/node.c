/* The node of an adapter's apertures: memory, lanes, time, events. See aperture.h. */
#include "adapter/aperture/aperture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "adapter/adapter.h"
#include "adapter/aperture/cluster.h"
#include "adapter/eventq/eventq.h"
#include "base/cancel.h"
#include "base/log.h"
#include "base/mac.h"
#include "transport/capture.h"
#include "transport/local/frame.h"

bool is_aperture(const struct hdl_aperture *aperture)
{
	return aperture != NULL && aperture->magic == MAGIC_APERTURE;
}

bool is_port(const struct hdl_port *port)
{
	return port != NULL && port->magic == MAGIC_PORT;
}

struct hdl_adapter *port_adapter(const struct hdl_port *port)
{
	return port->adapter;
}

/* --- captures --- */

/* A frame of CI packets is sent along @path, or came along it. */
static void aperture_put_capture(struct apertures *apertures, const struct ap_path *path,
                                 const uint8_t *frame, size_t bytes, bool inbound)
{
	struct hdl_adapter *adapter = apertures->adapter;
	struct roce_path ip = {.src_port = CI_UDP_PORT};
	struct hdl_gid own =
	        adapter->agent.on_node ? peers_link_local(adapter->guid) : adapter->engine.gid;
	if (path->route >= APERTURE_ROUTE_UDP) {
		uint32_t which = path->route % APERTURE_ROUTE_UDP;
		memcpy(own.raw, adapter->net.addresses[which].gid, 16);
	}
	uint8_t mac[MAC_BYTES];
	if (path->has_link && mac_from_gid(own.raw, mac)) {
		capture_put_frame(&adapter->engine, inbound ? mac : path->link,
		                  inbound ? path->link : mac, CI_ETHERTYPE, frame, bytes, inbound,
		                  "CI");
		return;
	}
	memcpy(inbound ? ip.dgid : ip.sgid, own.raw, 16);
	memcpy(inbound ? ip.sgid : ip.dgid, path->host, 16);
	capture_put_datagram(&adapter->engine, &ip, CI_UDP_PORT, frame, bytes, inbound, "CI");
}

static void aperture_capture(struct apertures *apertures, const struct ap_path *path,
                             const uint8_t *frame, size_t bytes, bool inbound)
{
	if (__builtin_expect(apertures->adapter->engine.capture != NULL, 0))
		aperture_put_capture(apertures, path, frame, bytes, inbound);
}

/* --- the sink --- */

static uint8_t *aperture_reserve(void *context, const struct ap_path *path, size_t bytes)
{
	struct apertures *apertures = context;
	struct engine *engine = &apertures->adapter->engine;
	if (path->route >= APERTURE_ROUTE_UDP || path->by_agent)
		return apertures->stage;
	/* Is there room? What is reserved here is replaced by commit, which knows the length. */
	if (path->route >= engine->link_count || !engine->links[path->route].up ||
	    engine->links[path->route].epoch != path->epoch ||
	    engine_reserve(engine, path->route, sizeof(struct frame) + bytes) == NULL)
		return NULL;
	return apertures->stage;
}

static void aperture_commit(void *context, const struct ap_path *path, size_t bytes)
{
	struct apertures *apertures = context;
	struct engine *engine = &apertures->adapter->engine;
	if (path->by_agent) {
		apertures_control_send(apertures, path, apertures->stage, bytes);
		return;
	}
	if (path->route >= APERTURE_ROUTE_UDP) {
		aperture_capture(apertures, path, apertures->stage, bytes, false);
		if (path->route >= APERTURE_ROUTE_FORWARD)
			apertures_forward_send(apertures, path, apertures->stage, bytes);
		else
			apertures_udp_send(apertures, path, apertures->stage, bytes);
		return;
	}
	struct frame frame = {.kind = FRAME_CI, .length = (uint32_t)bytes};
	uint8_t *record = engine_reserve(engine, path->route, sizeof(frame) + bytes);
	if (record == NULL)
		return; /* repeated like a packet that got lost */
	memcpy(record, &frame, sizeof(frame));
	memcpy(record + sizeof(frame), apertures->stage, bytes);
	aperture_capture(apertures, path, apertures->stage, bytes, false);
	engine_publish(engine, path->route);
}

static void aperture_changed(void *context, struct ap_conn *conn)
{
	struct hdl_aperture *aperture = aperture_of(conn);
	(void)context;
	/* The other end may look for it as soon as it has heard of us. */
	aperture_publish(aperture);
	if (conn->state == HDL_APERTURE_OPEN)
		aperture_map_opened(aperture);
	if (conn->state == HDL_APERTURE_CLOSED || conn->state == HDL_APERTURE_FAILED)
		aperture_map_lost(aperture);
	else if (conn->state == HDL_APERTURE_OPEN && aperture->entry != NULL)
		ap_use(conn, aperture->entry);
}

static const uint16_t aperture_event_types[CI_KIND_COUNT] = {
        [CI_EVENT] = HDL_PORT_DATA,        [CI_CONNECT] = HDL_PORT_CONNECT,
        [CI_ACCEPT] = HDL_PORT_ACCEPT,     [CI_REJECT] = HDL_PORT_REJECT,
        [CI_CLOSE] = HDL_PORT_CLOSE,       [CI_ALIVE] = HDL_PORT_ALIVE,
        [CI_ALIVEACK] = HDL_PORT_ALIVEACK, [CI_ERROR] = HDL_PORT_ERROR,
        [CI_STATUS] = HDL_PORT_STATUS,
};

/* What packets say is what events say. */
_Static_assert((int)HDL_ELEMENT_RECEIVER == CI_RECEIVER && (int)HDL_ELEMENT_AGENT == CI_AGENT &&
                       (int)HDL_ELEMENT_CARRIER == CI_CARRIER &&
                       (int)HDL_ELEMENT_SENDER == CI_SENDER,
               "elements");

/* Reasons as the calls return them. */
static int32_t aperture_reason_error(uint16_t reason)
{
	switch (reason) {
	case HDL_REASON_NONE:
	case HDL_REASON_CLOSED:
		return 0;
	case HDL_REASON_GONE:
	case HDL_REASON_CARRIER:
		return -HDL_EHOSTUNREACH;
	case HDL_REASON_SILENT:
		return -HDL_ETIMEDOUT;
	case HDL_REASON_EXTENT:
	case HDL_REASON_ACCESS:
		return -HDL_EACCES;
	case HDL_REASON_MEMORY:
		return -HDL_EFAULT;
	case HDL_REASON_PROTOCOL:
		return -HDL_EINVAL;
	case HDL_REASON_DAMAGED:
		return -HDL_EIO;
	default:
		return -HDL_ECONNREFUSED;
	}
}

static enum ap_delivered aperture_event(void *context, struct ap_port *port,
                                        const struct ap_event *event)
{
	struct apertures *apertures = context;
	struct hdl_port_event out = {.type = aperture_event_types[event->kind],
	                             .flags = (uint16_t)event->bytes,
	                             .index = event->index,
	                             .offset = event->offset,
	                             .status = aperture_reason_error(event->reason)};
	memcpy(out.source.raw, event->source, sizeof(out.source.raw));
	if (event->kind == CI_ERROR || event->kind == CI_REJECT || event->kind == CI_CLOSE)
		out.flags = event->reason;
	if (event->kind == CI_CONNECT)
		out.value = event->id;
	else if (event->kind == CI_ERROR)
		out.value = event->element;
	else
		memcpy(&out.value, event->data, sizeof(out.value));
	/* More than a value: the rest follows in the second queue. */
	const void *more = event->bytes > sizeof(out.value) ? event->data : NULL;
	switch (eventq_deliver(apertures->adapter, port->number, &out, more,
	                       more != NULL ? event->bytes : 0)) {
	case EVENTQ_PLACED:
		return AP_PLACED;
	case EVENTQ_FULL:
		if (event->kind != CI_EVENT)
			eventq_lose(apertures->adapter, port->number);
		return AP_FULL;
	default:
		return AP_NO_QUEUE;
	}
}

static void aperture_response(void *context, struct ap_conn *conn, uint32_t token, uint64_t offset,
                              const uint8_t *data, uint32_t bytes)
{
	struct hdl_aperture *aperture = aperture_of(conn);
	(void)context;
	if (aperture->read_to == NULL || token != aperture->read_token ||
	    offset < aperture->read_offset || bytes > aperture->read_bytes - aperture->read_got ||
	    offset - aperture->read_offset != aperture->read_got)
		return; /* given up, or without numbers and out of order */
	memcpy(aperture->read_to + aperture->read_got, data, bytes);
	aperture->read_got += bytes;
}

static void aperture_placed(void *context, struct ap_conn *conn)
{
	struct hdl_aperture *aperture = aperture_of(conn);
	(void)context;
	if (aperture->placed != NULL)
		aperture->placed_again = !aperture->placed(aperture->placed_context);
}

static void aperture_look(void *context, const struct ap_port *port, uint32_t *events,
                          uint32_t *blocked)
{
	const struct apertures *apertures = context;
	bool sleeps = false;
	(void)eventq_look(apertures->adapter, port->number, events, &sleeps);
	*blocked = sleeps;
}

static void aperture_status(void *context, struct ap_conn *conn, const struct ci_status *status)
{
	struct hdl_aperture *aperture = aperture_of(conn);
	(void)context;
	const uint32_t *values = status->values;
	aperture->status = (struct hdl_port_status){.waiting = values[0],
	                                            .offers = values[1],
	                                            .open = values[2],
	                                            .rejected = values[3],
	                                            .events = values[4],
	                                            .blocked = values[5]};
	aperture->status_token = status->token;
}

static const struct ap_sink aperture_sink = {.reserve = aperture_reserve,
                                             .commit = aperture_commit,
                                             .changed = aperture_changed,
                                             .event = aperture_event,
                                             .response = aperture_response,
                                             .placed = aperture_placed,
                                             .look = aperture_look,
                                             .status = aperture_status};

/* --- driving --- */

void apertures_run(struct apertures *apertures)
{
	apertures->node.now_ns = clock_read(&apertures->adapter->clock);
	apertures_send(apertures);
	if (apertures_udp_unsent(apertures))
		apertures_send(apertures); /* connections that ended tell their peers */
	uint64_t next = ap_next_tick(&apertures->node);
	uint64_t collect = apertures_collect_due(apertures, apertures->node.now_ns);
	apertures->port.due_ns = next < collect ? next : collect;
	engine_ring_bells(&apertures->adapter->engine);
}

static unsigned aperture_port_receive(struct net_port *port)
{
	struct apertures *apertures = (struct apertures *)(void *)port;
	unsigned count = apertures->node.write_budget != 0 || apertures_are_stalled(apertures)
	                         ? apertures_turn(apertures)
	                         : 0;
	count += apertures->ips != NULL ? apertures_ip_receive(apertures) : 0;
	if (ap_waits(&apertures->node))
		apertures_run(apertures);
	return count;
}

static unsigned aperture_port_hear(struct net_port *port)
{
	return apertures_ip_receive((struct apertures *)(void *)port);
}

static bool aperture_port_blocked(const struct net_port *port)
{
	const struct apertures *apertures = (const struct apertures *)(const void *)port;
	return ap_waits(&apertures->node) || apertures_are_stalled(apertures);
}

static unsigned aperture_port_tick(struct net_port *port, uint64_t now_ns)
{
	struct apertures *apertures = (struct apertures *)(void *)port;
	unsigned count = ap_tick(&apertures->node, now_ns);
	apertures_run(apertures);
	return count;
}

/* The node is freed by apertures_end(). */
static void aperture_port_end(struct net_port *port)
{
	(void)port;
}

static const struct net_port_ops aperture_port_ops = {.name = "apertures",
                                                      .receive = aperture_port_receive,
                                                      .blocked = aperture_port_blocked,
                                                      .hear = aperture_port_hear,
                                                      .tick = aperture_port_tick,
                                                      .end = aperture_port_end};

struct ap_path apertures_lane_path(const struct hdl_adapter *adapter, uint32_t link)
{
	struct ap_path path = {.route = link,
	                       .epoch = adapter->peers.links[link].epoch,
	                       .frame_bytes = APERTURE_LANE_BYTES,
	                       .managed = adapter->peers.list[link].managed,
	                       .idle_ns = APERTURE_LANE_IDLE};
	/* Links within the process are nobody's introduction. */
	if (adapter->apertures != NULL && adapter->apertures->trust == HDL_TRUST_NONE)
		path.managed = true;
	/* Not what a packet says: who the other end of the lane is. */
	struct hdl_gid host = adapter->peers.links[link].gid;
	if (adapter->agent.on_node)
		host = peers_link_local(adapter->peers.list[link].node_guid);
	memcpy(path.host, host.raw, sizeof(path.host));
	return path;
}

void apertures_take(struct apertures *apertures, const uint8_t *frame, size_t bytes,
                    const struct ap_path *from)
{
	aperture_capture(apertures, from, frame, bytes, true);
	apertures_take_in(apertures, frame, bytes, from);
}

void apertures_lane(struct hdl_adapter *adapter, uint32_t link, const uint8_t *frame, size_t bytes)
{
	struct apertures *apertures = adapter->apertures;
	uint8_t copy[APERTURE_LANE_BYTES];
	if (apertures == NULL || bytes > sizeof(copy))
		return;
	struct ap_path from = apertures_lane_path(adapter, link);
	/* The peer may change the lane at any time. */
	memcpy(copy, frame, bytes);
	apertures->node.now_ns = clock_read(&adapter->clock);
	apertures_take(apertures, copy, bytes, &from);
	if (ap_waits(&apertures->node))
		apertures_run(apertures);
}

void apertures_link_down(struct hdl_adapter *adapter, uint32_t link)
{
	if (adapter->apertures != NULL)
		ap_route_down(&adapter->apertures->node, link);
}

/* --- waiting --- */

uint64_t apertures_until(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : clock_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

static bool aperture_is_done(struct hdl_adapter *adapter, bool (*done)(void *object), void *object)
{
	adapter_lock(adapter);
	bool result = done(object);
	adapter_unlock(adapter);
	return result;
}

int apertures_wait(struct hdl_adapter *adapter, bool (*done)(void *object), void *object,
                   uint64_t until_ns)
{
	for (unsigned turn = 0;; turn++) {
		if (aperture_is_done(adapter, done, object))
			return 0;
		adapter_touch(adapter);
		if (adapter->drive.has_thread && turn < 200)
			adapter_poll(adapter);
		else
			(void)hdl_progress(adapter);
		if (aperture_is_done(adapter, done, object))
			return 0;
		uint64_t now = clock_now_ns();
		if (now >= until_ns)
			return -HDL_EAGAIN;
		if (turn < 200)
			continue;
		uint64_t slice = now + APERTURE_WAIT_NS;
		int cancel = cancel_forbid();
		int woken = adapter_wait(adapter, -1, slice < until_ns ? slice : until_ns, cancel);
		cancel_restore(cancel);
		if (woken < 0)
			return woken;
	}
}

/* --- begin and end --- */

void *aperture_block(struct apertures *apertures, enum aperture_block which, size_t bytes)
{
	void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (block == MAP_FAILED) {
		log_error(
		        "cannot map %zu MiB for the tables of apertures: %m; raise \"ulimit -v\", "
		        "or \"ulimit -l\" after mlockall(MCL_FUTURE)",
		        bytes >> 20);
		return NULL;
	}
	apertures->blocks[which] = block;
	apertures->block_bytes[which] = bytes;
	return block;
}

static void aperture_free_node(struct apertures *apertures)
{
	apertures_drop_held(apertures);
	for (unsigned i = 0; i < APERTURE_BLOCKS; i++)
		if (apertures->blocks[i] != NULL)
			munmap(apertures->blocks[i], apertures->block_bytes[i]);
	pthread_mutex_destroy(&apertures->find_lock);
	free(apertures);
}

static struct apertures *aperture_make_node(struct hdl_adapter *adapter)
{
	struct apertures *apertures = aligned_alloc(64, (sizeof(*apertures) + 63) & ~(size_t)63);
	if (apertures == NULL)
		return NULL;
	memset(apertures, 0, sizeof(*apertures));
	apertures->adapter = adapter;
	apertures->trust = HDL_TRUST_USER;
	apertures->forward.sock = -1;
	apertures->held_end = &apertures->held;
	pthread_mutex_init(&apertures->find_lock, NULL);
	uint32_t rows = HDL_MAX_APERTURES + 1;
	bool controlled = apertures_make_control(apertures, rows);
	struct ap_conn **conns =
	        aperture_block(apertures, APERTURE_CONNS, rows * sizeof(struct ap_conn *));
	uint64_t *map = aperture_block(apertures, APERTURE_MAP, BITMAP_WORDS(rows) * sizeof(*map));
	if (!controlled || conns == NULL || map == NULL) {
		aperture_free_node(apertures);
		return NULL;
	}
	struct ap_node *node = &apertures->node;
	ap_node_init(node, apertures->blocks[APERTURE_ROWS], apertures->blocks[APERTURE_USERS],
	             conns, map, rows, clock_read(&adapter->clock));
	node->tpt = &adapter->tpt;
	node->own = &adapter->engine.own;
	node->slot = adapter->slot;
	node->lid = adapter->lid;
	node->lid_bits = adapter->lmc;
	for (uint32_t i = 0; adapter->cluster != NULL && i < adapter->net.address_count; i++) {
		uint16_t address = cluster_of(adapter->cluster, adapter->net.addresses[i].gid);
		if (address == 0)
			continue;
		node->lid = address;
		node->lid_bits = 0;
		break;
	}
	node->secret[0] = prng_pool_next(&apertures->secrets);
	node->secret[1] = prng_pool_next(&apertures->secrets);
	node->sink = &aperture_sink;
	node->context = apertures;
	port_init(&apertures->port, &aperture_port_ops, -1);
	return apertures;
}

struct apertures *apertures_begin(struct hdl_adapter *adapter)
{
	struct apertures *fresh = NULL;
	adapter_lock(adapter);
	if (adapter->apertures == NULL) {
		fresh = aperture_make_node(adapter);
		if (fresh != NULL && ports_add(adapter, &fresh->port, NULL) != 0) {
			aperture_free_node(fresh);
			fresh = NULL;
		}
		adapter->apertures = fresh;
		if (fresh != NULL)
			apertures_show(fresh);
	}
	struct apertures *apertures = adapter->apertures;
	adapter_unlock(adapter);
	if (fresh != NULL)
		(void)apertures_open_udp(fresh);
	return apertures;
}

void apertures_end(struct hdl_adapter *adapter)
{
	struct apertures *apertures = adapter->apertures;
	if (apertures == NULL)
		return;
	adapter->apertures = NULL;
	apertures_udp_end(apertures);
	aperture_free_node(apertures);
}

uint32_t hdl_aperture_trust(const struct hdl_adapter *adapter)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return HDL_TRUST_USER;
	/* The agent says it when the program first uses apertures, which this is. */
	const struct apertures *apertures =
	        apertures_begin((struct hdl_adapter *)(uintptr_t)adapter);
	return apertures != NULL ? apertures->trust : (uint32_t)HDL_TRUST_USER;
}

const char *aperture_counter_name(size_t counter)
{
#define APERTURE_COUNTER_NAME(name, text) text,
	static const char *const names[] = {HDL_APERTURE_COUNTERS(APERTURE_COUNTER_NAME)};
#undef APERTURE_COUNTER_NAME
	return names[counter];
}

uint64_t aperture_counter(const struct apertures *apertures, size_t counter)
{
	return counter == HDL_APERTURE_COUNTER_LOOKUP_HITS     ? apertures->out.hits
	       : counter == HDL_APERTURE_COUNTER_LOOKUP_MISSES ? apertures->out.misses
	                                                       : apertures->node.counters[counter];
}

size_t hdl_aperture_counters(struct hdl_adapter *adapter, struct hdl_counter *list, size_t max)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return 0;
	adapter_lock(adapter);
	const struct apertures *apertures = adapter->apertures;
	for (size_t i = 0; i < max && i < HDL_APERTURE_COUNTER_COUNT; i++)
		list[i] = (struct hdl_counter){
		        .name = aperture_counter_name(i),
		        .value = apertures != NULL ? aperture_counter(apertures, i) : 0};
	adapter_unlock(adapter);
	return HDL_APERTURE_COUNTER_COUNT;
}
