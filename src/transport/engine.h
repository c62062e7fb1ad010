/* The engine of an adapter: everything that happens without the operating system. It has no clock,
 * no lock, no memory of its own and no thread: the adapter calls engine_run() and engine_tick()
 * from whichever thread drives it, one at a time, and supplies what reaches outside as functions.
 * The same object code runs in the simulator.
 *
 *   posters --pending--> engine_run(): links in -> responder; active -> requester; answers out
 *   time ------------->  engine_tick(): timers
 *
 * Semantics live in one place each (DESIGN rule 6): sg.h moves bytes between checked lists, op.h
 * consumes receives, executes atomics and binds, completes and flushes. local/tx.c and local/rx.c
 * only decide when, in what order and in which frames, for the same-host path; ib_*.c in which
 * packets, for the wire. */
#ifndef TRANSPORT_NODE_H
#define TRANSPORT_NODE_H

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

#define ENGINE_RX_BATCH 64u /* frames taken from one link before the next has its turn */
#define ENGINE_TX_BATCH 64u /* requests executed of one queue pair before the next has its turn */
#define ENGINE_CHUNK_BYTES \
	(1u << 20) /* bytes moved within one guard: bounds what deregistration waits for */
/* Bytes that a queue pair moves in its turn, by ourselves: bounds how long a thread that posts to
 * another one waits. */
#define ENGINE_TURN_BYTES (1u << 20)
#define ENGINE_QPN_BITS   24u
/* Completions that pollers may have on the shortest way (local_short_poll()) before everybody else
 * has a turn. */
#define ENGINE_SHORT_POLLS 16u

/* One peer: a pair of lanes, and what we may read of its tables. */
struct link {
	bool up;
	uint32_t epoch; /* how often this number was given to a peer: datagrams for a former one
	                   vanish */
	bool dirty;     /* something was published since the bell was last looked at */
	uint32_t dirty_next;
	struct ring_tx tx;
	struct ring_rx rx;
	struct tpt_view peer_table;
	const struct qp_public *peer_qps;
	uint32_t peer_qp_mask;
	uint32_t id; /* what both ends call it: queue pairs connected through it publish this */
	struct tpt_guard *guard; /* ours; the peer waits for it before it reuses memory */
	struct peer_memory memory;
	const _Atomic uint32_t *peer_reach; /* enum lanes_reach: does the peer reach our memory? */
	struct hdl_gid gid;
};

/* What the engine tells the adapter. The functions must not call back into the engine. */
struct engine_sink {
	void (*cq_event)(void *context, struct cq *cq);
	/* @object: the struct qp, cq or srq concerned, by type; NULL for HDL_EVENT_MEMORY_GONE,
	 * which has a key. */
	void (*event)(void *context, enum hdl_event_type type, enum hdl_detail detail, void *object,
	              struct hdl_key key);
	/* Why @qp failed: the status of a request that did, or an event. NULL: the adapter does not
	 * want to know. */
	void (*fault)(void *context, const struct qp *qp, struct qp_fault fault);
	/* Return when every guard that is inside our table has left it. No guard of ours is held
	 * meanwhile. */
	void (*quiesce)(void *context);
	/* A request of @qp failed because the peer had no receive for it, as often as the queue
	 * pair may try. NULL: no matter. */
	void (*not_ready)(void *context, const struct qp *qp);
	/* Wake the peer of a link: it asked for it. */
	void (*bell)(void *context, uint32_t link);
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
	ENGINE_REPEATED, /* messages that had come before */
	ENGINE_DROPPED,  /* no such queue pair, or not ready */
	ENGINE_DROPPED_QKEY,
	ENGINE_DROPPED_NO_RECV,
	ENGINE_BAD_FRAMES, /* frames that make no sense: the peer is broken or hostile */
	ENGINE_MEMORY_GONE,
	ENGINE_PACKETS_IN,
	ENGINE_PACKETS_OUT,
	ENGINE_BAD_PACKETS,   /* damaged, or nothing that a sender in its senses sends */
	ENGINE_SEQUENCE_NAKS, /* sent: something before it was lost */
	ENGINE_PROBES, /* sent again before the timeout, because answers come sooner than that */
	ENGINE_CNP_SENT,
	ENGINE_CNP_RECEIVED,
	ENGINE_CNP_UNPROVED, /* of these, those that anybody could have sent */
	ENGINE_DROPPED_KEYS, /* unreliable writes whose key was not judged: too many were wrong */
	ENGINE_DROPPED_TOO_LONG, /* unreliable messages that were longer than the receive */
	ENGINE_COUNTER_COUNT
};

/* Our own table needs no guard: whoever drives the engine is alone with it. */
struct engine {
	struct tpt *tpt;
	struct group *groups; /* HDL_MAX_GROUPS of them (multicast.h) */
	struct link *links;   /* link_count of them, the adapter's memory */
	uint32_t link_count;
	struct qp **qps;        /* by qpn & qp_mask */
	struct srq **srqs;      /* of XRC, by number & qp_mask; a place is used here or in qps */
	struct qp **eecs;       /* end-to-end contexts, the same, */
	struct raw_entry *raws; /* HDL_MAX_RAW of them (raw.h) */
	uint32_t raw_count;
	struct qp *eec_list; /* and all of them, through rd_next */
	struct qp_public *qps_public;
	uint32_t qp_mask;
	struct mpsc pending;
	struct qp *active; /* those with work, in turn */
	struct qp **active_end;
	struct qp *owing; /* those that owe their peer an answer, */
	struct qp *held;  /* and those that do, but not before: */
	uint64_t held_ns; /* the first of them */
	struct qp *timers_wanted;
	bool by_application; /* whose thread drives us now, and will call again: some answers may
	                        wait */
	bool patient;        /* so may those on a wire: whoever drives us comes again in a moment */
	bool no_answers;     /* all of them may: it will call again at once */
	uint32_t short_polls; /* of ENGINE_SHORT_POLLS, are left */
	uint32_t turn_bytes;  /* ENGINE_TURN_BYTES */
	uint32_t dirty_links; /* first of the list through dirty_next; LINK_NONE */
	struct timer_wheel wheel;
	uint64_t now_ns;
	struct own_memory own;
	struct engine_sink sink;
	const struct carrier *carrier; /* of packets (path.h); NULL: no network is open */
	bool groups_on_wire;     /* it knows groups, whose members may be there as well as here */
	struct hdl_gid wire_gid; /* where they come from */
	struct hdl_gid gid;
	const struct hdl_gid *gids; /* all of them: those that datagrams may come from */
	uint16_t lid;               /* the first of 2 to the lmc; 0: none */
	uint16_t lmc;
	struct counter *counters; /* ENGINE_COUNTER_COUNT of them */
	struct capture *capture;  /* NULL: nothing is recorded (capture.h) */
};

/* Work that is waiting now: frames that came, requests that were posted. Returns how much was done.
 */
unsigned engine_run(struct engine *engine);
/* @qp was posted to: execute that, and leave the rest for the next engine_run(). */
void engine_post(struct engine *engine, struct qp *qp);
/* Wake the peers that sleep and were sent something. Both of the above do so. */
void engine_ring_bells(struct engine *engine);
/* A link that has something for local_short_poll(), or LINK_NONE. */
static inline uint32_t engine_waiting(const struct engine *engine)
{
	for (uint32_t i = 0; engine->short_polls > 0 && i < engine->link_count; i++)
		if (engine->links[i].up && ring_waits(&engine->links[i].rx))
			return i;
	return LINK_NONE;
}
/* Timers, with the time. Returns how many ran out. */
unsigned engine_tick(struct engine *engine, uint64_t now_ns);
/* When engine_tick() must be called next; UINT64_MAX: not before something else happens. */
uint64_t engine_next_tick(const struct engine *engine);
/* Is nothing waiting that an engine_run() would see to? (Lanes, pending.) */
bool engine_idle(const struct engine *engine);
/* Is there something that an engine_run() could not finish, and the next one may? A lane was full,
 * or an answer may wait. */
bool engine_stuck(const struct engine *engine);

/* Put @qp among those with work. By the driver. */
void engine_activate(struct engine *engine, struct qp *qp);
/* Put @qp among those that owe an answer. By the driver. */
static inline void engine_owe(struct engine *engine, struct qp *qp)
{
	if (qp->is_owing)
		return;
	qp->is_owing = true;
	qp->owing_next = engine->owing;
	engine->owing = qp;
}
/* What @qp, on a wire, owes has to wait until @ns. Until then it is not stuck; engine_owe() is
 * tried as ever. */
void engine_hold(struct engine *engine, struct qp *qp, uint64_t ns);
/* @qp, in the state RESET, is about to be freed: nothing here refers to it any more. */
void engine_forget(struct engine *engine, struct qp *qp);
struct qp *engine_find_qp(const struct engine *engine, uint32_t qpn);
/* The XRC shared receive queue @srq, with its number, pd, domain and cq set, can be sent to from
 * now on; or not any more. */
void engine_add_srq(struct engine *engine, struct srq *srq);
void engine_forget_srq(struct engine *engine, struct srq *srq);

/* The peer of link @index is gone: its queue pairs fail. */
void engine_link_down(struct engine *engine, uint32_t index);

/* Move @qp to @state, with all that follows (flush, events, published facts). By the driver. */
void qp_enter(struct engine *engine, struct qp *qp, enum hdl_qp_state state);
/* Set the requester and responder to their beginning. */
void qp_restart(struct qp *qp);

/* Forget the timer of @qp, wherever it is. */
void engine_drop_timer(struct engine *engine, struct qp *qp);
/* Ask for @qp's timer in @ns from the next engine_tick() on; it replaces a running one. */
void engine_want_timer(struct engine *engine, struct qp *qp, uint64_t ns);
/* A frame of @bytes for @link, to be filled and published by engine_publish(); NULL: no room, try
 * again. */
static inline void *engine_reserve(struct engine *engine, uint32_t link, size_t bytes)
{
	return ring_reserve(&engine->links[link].tx, bytes);
}
/* Wake the peer of link @index if it sleeps: something was published to it alone, not by
 * engine_publish(). */
static inline void engine_ring_bell(struct engine *engine, uint32_t index)
{
	if (ring_take_armed(&engine->links[index].tx))
		engine->sink.bell(engine->sink.context, index);
}
/* The peers' bells are looked at at the end of the turn. */
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
