/* The engine of an adapter: everything that does not need the operating system. It has no clock, no
 * lock, no memory of its own and no thread. The adapter calls engine_run() and engine_tick() from
 * whichever thread drives it, one thread at a time, and supplies callbacks for everything outside.
 * The simulator runs the same object code.
 *
 *   posters --pending--> engine_run(): links in -> responder; active -> requester; answers out
 *   time ------------->  engine_tick(): timers
 *
 * The meaning of every operation is implemented in one place: sg.h moves bytes between checked
 * lists; op.h consumes receives, executes atomics and binds, completes and flushes. The transports
 * only decide when, in what order and in which frames or packets: local/tx.c and local/rx.c for the
 * same-host path, the files in ib/ for the wire. */
#ifndef TRANSPORT_NODE_H
#define TRANSPORT_NODE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <heddle/limits.h>
#include <heddle/types.h>

#include "base/counter.h"
#include "base/mpsc.h"
#include "base/ring.h"
#include "base/timer.h"
#include "memory/tpt.h"
#include "transport/copy.h"
#include "transport/path.h"
#include "transport/qp.h"
#include "wire/dscp.h"

#define ENGINE_RX_BATCH 64u /* frames taken from one link before the next link gets its turn */
/* Requests executed on one queue pair before the next one gets its turn. */
#define ENGINE_TX_BATCH 64u
#define ENGINE_CHUNK_BYTES \
	(1u << 20) /* bytes moved inside one guard: bounds how long deregistration waits */
/* Bytes that one queue pair moves per turn when we copy them ourselves: bounds how long a thread
 * that posts to another queue pair waits. */
#define ENGINE_TURN_BYTES (1u << 20)
#define ENGINE_QPN_BITS   24u
#define ENGINE_MAX_PORTS  32u              /* networks that an adapter is on at the same time */
#define ENGINE_LANES_PORT ENGINE_MAX_PORTS /* the port of paths through lanes (PATH_LANE) */
/* Runs in which the normal class has work and comes before bulk data, until bulk data comes first
 * once. */
#define ENGINE_BULK_EVERY 8u
/* Completions that pollers may take on the fast path (local_short_poll()) before all other work
 * gets a turn. */
#define ENGINE_SHORT_POLLS 16u

/* One peer: a pair of lanes, and the parts of its tables that we may read. */
struct link {
	bool up;
	/* How many peers have had this number: datagrams addressed to an earlier one are
	 * dropped. */
	uint32_t epoch;
	bool dirty; /* something has been published since the doorbell was last checked */
	uint32_t dirty_next;
	struct ring_tx tx;
	struct ring_rx rx;
	struct tpt_view peer_table;
	const struct qp_public *peer_qps;
	uint32_t peer_qp_mask;
	/* The id that both ends use: queue pairs connected through this link publish it. */
	uint32_t id;
	/* Ours; the peer waits for it to be left before it reuses memory. */
	struct tpt_guard *guard;
	struct peer_memory memory;
	/* enum lanes_reach: can the peer access our memory directly? */
	const _Atomic uint32_t *peer_reach;
	struct hdl_gid gid;
};

/* What the engine reports to the adapter. The callbacks must not call back into the engine. */
struct engine_sink {
	void (*cq_event)(void *context, struct cq *cq);
	/* @object: the struct qp, cq or srq concerned, depending on @type; NULL for
	 * HDL_EVENT_MEMORY_GONE, which has a key. */
	void (*event)(void *context, enum hdl_event_type type, enum hdl_detail detail, void *object,
	              struct hdl_key key);
	/* Why @qp failed: the status of a failed request, or an event. NULL: the adapter does not
	 * want to know. */
	void (*fault)(void *context, const struct qp *qp, struct qp_fault fault);
	/* Return once every guard that was inside our table has left it. The engine holds no guard
	 * of ours during the call. */
	void (*quiesce)(void *context);
	/* A request of @qp failed because the peer had no receive for it and the RNR retries ran
	 * out. NULL: the adapter does not want to know. */
	void (*not_ready)(void *context, const struct qp *qp);
	/* Wake the peer of a link: it asked to be woken. */
	void (*bell)(void *context, uint32_t link);
	/* CI packets came on @link; the peer may change them. May send frames. NULL: dropped. */
	void (*ci)(void *context, uint32_t link, const uint8_t *frame, size_t bytes);
	/* An InfiniBand packet came in a frame on @link; the peer may change it. NULL: dropped. */
	void (*packet)(void *context, uint32_t link, const uint8_t *packet, size_t bytes);
	/* The peer of @link has gone. NULL: the adapter does not want to know. */
	void (*link_down)(void *context, uint32_t link);
	void *context;
};

enum engine_counter {
	ENGINE_FRAMES_IN,
	ENGINE_FRAMES_OUT,
	ENGINE_BYTES_SENT,
	ENGINE_BYTES_RECEIVED,
	ENGINE_BYTES_WRITTEN,
	ENGINE_BYTES_READ,
	ENGINE_ATOMICS,
	ENGINE_RNR_SENT,
	ENGINE_RETRIES,
	ENGINE_TIMEOUTS,
	ENGINE_REPEATED, /* messages that had already been received */
	ENGINE_DROPPED,  /* no such queue pair, or it was not ready */
	ENGINE_DROPPED_QKEY,
	ENGINE_DROPPED_NO_RECV,
	ENGINE_BAD_FRAMES, /* malformed frames: the peer is broken or hostile */
	ENGINE_MEMORY_GONE,
	ENGINE_PACKETS_IN,
	ENGINE_PACKETS_OUT,
	ENGINE_BAD_PACKETS,   /* damaged, or nothing that a conforming sender sends */
	ENGINE_SEQUENCE_NAKS, /* sent: an earlier packet was lost */
	/* Packets repeated before the timeout, because answers usually come sooner than that. */
	ENGINE_PROBES,
	ENGINE_CNP_SENT,
	ENGINE_CNP_RECEIVED,
	ENGINE_CNP_UNPROVED, /* CNPs received that anybody could have sent */
	/* Unreliable writes whose key was not checked: too many keys were wrong. */
	ENGINE_DROPPED_KEYS,
	ENGINE_DROPPED_TOO_LONG, /* unreliable messages longer than the receive */
	ENGINE_COUNTER_COUNT
};

/* Our own table needs no guard: the thread that drives the engine has it to itself. */
struct engine {
	struct tpt *tpt;
	struct group *groups; /* HDL_MAX_GROUPS entries (multicast.h) */
	struct link *links;   /* link_count entries, in the adapter's memory */
	uint32_t link_count;
	struct qp **qps; /* by qpn & qp_mask */
	/* XRC shared receive queues, by number & qp_mask; a slot is used here or in qps, not
	 * both. */
	struct srq **srqs;
	struct qp **eecs;       /* end-to-end contexts, likewise by number */
	struct raw_entry *raws; /* HDL_MAX_RAW entries (raw.h) */
	uint32_t raw_count;
	struct qp *eec_list; /* all end-to-end contexts, linked by rd_next */
	struct qp_public *qps_public;
	uint32_t qp_mask;
	struct mpsc pending;
	/* Queue pairs with work, in turn order, and queue pairs that owe their peer an answer; one
	 * list per class of service. */
	struct engine_turns {
		struct qp *active, **active_end;
		struct qp *owing;
		bool answers_first; /* requests took all the room the last time */
	} turns[SERVICE_CLASSES];
	uint32_t bulk_behind; /* runs in a row in which bulk data came after the normal class */
	struct qp *held;      /* queue pairs whose answer must wait (engine_hold()) */
	uint64_t held_ns;     /* when the first of them is due */
	struct qp *timers_wanted;
	/* An application thread drives us now and will call again: some answers may wait. */
	bool by_application;
	/* Answers on a wire may wait too: the thread that drives us calls again very soon. */
	bool delay_acks;
	/* All answers may wait: the thread that drives us calls again immediately. */
	bool no_answers;
	/* No fast path is taken (engine_fast()). Set once, before anything runs; always set where
	 * there is a capture. */
	bool general_only;
	uint32_t short_polls; /* how many of ENGINE_SHORT_POLLS are left */
	uint32_t turn_bytes;  /* ENGINE_TURN_BYTES */
	uint32_t dirty_links; /* first link of the list through dirty_next; LINK_NONE: empty */
	struct timer_wheel wheel;
	uint64_t now_ns;
	struct own_memory own;
	struct engine_sink sink;
	/* What sends packets (path.h), by port: carrier_count entries. NULL: the port carries no
	 * packets. The last entry is not a network: it puts packets into lanes. */
	const struct carrier *carriers[ENGINE_MAX_PORTS + 1];
	uint32_t carrier_count;
	uint8_t last_port; /* that of the last packet */
	/* A carrier supports multicast groups, which may have members on the network too. */
	bool groups_on_wire;
	uint8_t group_gid; /* our source address for packets to these groups: an index into gids */
	struct hdl_gid gid;
	/* All of our GIDs, which are the source addresses that datagrams may use, and the port of
	 * each. */
	const struct hdl_gid *gids;
	const uint8_t *gid_ports, *cell_ports;
	uint16_t lid; /* the first of 2^lmc LIDs; 0: none */
	uint16_t lmc;
	struct counter *counters; /* ENGINE_COUNTER_COUNT entries */
	struct capture *capture;  /* NULL: nothing is recorded (capture.h) */
	/* Memory for FPDUs on their way (iwarp.h); NULL: connections have only their own. */
	struct iwarp_pool *iwarp_pool;
};

/* Handle the work that is waiting now: frames received, requests posted. Returns how much was done.
 */
unsigned engine_run(struct engine *engine);
/* Execute what has been posted to @qp, and leave everything else to the next engine_run(). */
void engine_post(struct engine *engine, struct qp *qp);
/* Ring the doorbells of sleeping peers that we have sent something to. engine_run() and
 * engine_post() do so themselves. */
void engine_ring_bells(struct engine *engine);
/* May requests and frames take a fast path? Every fast path asks this, and nothing else switches
 * one off. False where a capture has to see each request, or where the general path is wanted
 * (adapter_env.no_fast_path, HEDDLE_FAST=off): it handles every case, and whatever a fast path
 * does, it does too. */
static inline bool engine_fast(const struct engine *engine)
{
	return !engine->general_only;
}
/* Is there a network that carries packets? */
static inline bool engine_has_network(const struct engine *engine)
{
	for (uint32_t i = 0; i < engine->carrier_count; i++)
		if (engine->carriers[i] != NULL && engine->carriers[i]->reserve != NULL)
			return true;
	return false;
}
/* A link with a frame for local_short_poll(), or LINK_NONE. */
static inline uint32_t engine_waiting(const struct engine *engine)
{
	for (uint32_t i = 0; engine->short_polls > 0 && i < engine->link_count; i++)
		if (engine->links[i].up && ring_waits(&engine->links[i].rx))
			return i;
	return LINK_NONE;
}
/* Advance the clock and run expired timers. Returns how many expired. */
unsigned engine_tick(struct engine *engine, uint64_t now_ns);
/* When engine_tick() must be called next; UINT64_MAX: not before something else happens. */
uint64_t engine_next_tick(const struct engine *engine);
/* Is there nothing for engine_run() to do? (Looks at the lanes and at pending.) */
bool engine_idle(const struct engine *engine);
/* Is there something that engine_run() could not finish and the next call may? A lane was full, or
 * an answer may wait. */
bool engine_stuck(const struct engine *engine);

/* Set up the lists of queue pairs that want a turn. */
void engine_begin_turns(struct engine *engine);
/* Are there queue pairs with work? */
static inline bool engine_is_active(const struct engine *engine)
{
	return engine->turns[SERVICE_NORMAL].active != NULL ||
	       engine->turns[SERVICE_URGENT].active != NULL ||
	       engine->turns[SERVICE_BULK].active != NULL;
}
/* Are there queue pairs that owe an answer? */
static inline bool engine_is_owing(const struct engine *engine)
{
	return engine->turns[SERVICE_NORMAL].owing != NULL ||
	       engine->turns[SERVICE_URGENT].owing != NULL ||
	       engine->turns[SERVICE_BULK].owing != NULL;
}
/* Add @qp to the queue pairs with work. Driver only. */
void engine_activate(struct engine *engine, struct qp *qp);
/* Add @qp to the queue pairs that owe an answer. Driver only. */
static inline void engine_owe(struct engine *engine, struct qp *qp)
{
	if (qp->is_owing)
		return;
	qp->is_owing = true;
	qp->owing_next = engine->turns[qp->service].owing;
	engine->turns[qp->service].owing = qp;
}
/* The answer that @qp owes on a wire must wait until @ns. Until then it does not make the engine
 * stuck. engine_owe() still works as usual. */
void engine_hold(struct engine *engine, struct qp *qp, uint64_t ns);
/* Give @qp the turns of the class of service @service from now on. Driver only. */
void engine_serve(struct engine *engine, struct qp *qp, uint8_t service);
/* @qp, in state RESET, is about to be freed: drop every reference to it. */
void engine_forget(struct engine *engine, struct qp *qp);
struct qp *engine_find_qp(const struct engine *engine, uint32_t qpn);
/* From now on the XRC shared receive queue @srq, whose number, pd, domain and cq are set, accepts
 * messages; engine_forget_srq() ends that. */
void engine_add_srq(struct engine *engine, struct srq *srq);
void engine_forget_srq(struct engine *engine, struct srq *srq);

/* The peer of link @index is gone: its queue pairs fail. */
void engine_link_down(struct engine *engine, uint32_t index);

/* Move @qp to @state, with everything that follows from it (flush, events, published facts). Driver
 * only. */
void qp_enter(struct engine *engine, struct qp *qp, enum hdl_qp_state state);
/* Reset the requester and responder to their initial state. */
void qp_restart(struct qp *qp);

/* Cancel the timer of @qp, whether it runs or is only requested. */
void engine_drop_timer(struct engine *engine, struct qp *qp);
/* Request a timer for @qp that expires @ns after the next engine_tick(). It replaces a running one.
 */
void engine_want_timer(struct engine *engine, struct qp *qp, uint64_t ns);
/* Reserve a frame of @bytes on @link. The caller fills it and calls engine_publish(). NULL: no
 * room, try again later. */
static inline void *engine_reserve(struct engine *engine, uint32_t link, size_t bytes)
{
	assert(link < engine->link_count);
	return ring_reserve(&engine->links[link].tx, bytes);
}
/* Wake the peer of link @index if it sleeps: something was published to it directly, not through
 * engine_publish(). */
static inline void engine_ring_bell(struct engine *engine, uint32_t index)
{
	if (ring_take_armed(&engine->links[index].tx))
		engine->sink.bell(engine->sink.context, index);
}
/* Publish the reserved frame. The peer's doorbell is checked at the end of the turn. */
static inline void engine_publish(struct engine *engine, uint32_t index)
{
	struct link *link = &engine->links[index];
	ring_publish(&link->tx);
	counter_add(&engine->counters[ENGINE_FRAMES_OUT], 1);
	if (link->dirty)
		return;
	link->dirty = true;
	link->dirty_next = engine->dirty_links;
	engine->dirty_links = index;
}

#endif
