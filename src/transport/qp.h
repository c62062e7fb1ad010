/* A queue pair as the transports see it: queues, attributes, and the state of requester and
 * responder. The thread that drives the adapter owns all of it, except the post side of the queues.
 */
#ifndef TRANSPORT_QP_H
#define TRANSPORT_QP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <heddle/types.h>

#include "base/mpsc.h"
#include "base/timer.h"
#include "memory/tpt.h"
#include "queue/cq.h"
#include "queue/read_queue.h"
#include "queue/wq.h"

/* What peers may know of a queue pair, and how far it has got. The first word contains a version
 * that every change increments: a reader that sees the same first word before and after reading the
 * others has a consistent set.
 *   word 0:   version (16) | dest qpn (24) | type (8) | state (8) | access (8)
 *   word 1:   windows_only (1 bit, 63) | id of the connection's link (31) | protection domain (32).
 *             An XRC target publishes its XRC domain instead: the protection domain is that of the
 *             shared receive queue that a request names
 *   word 2:   over a network (1 bit, 32; for observers) | PSN that the first message must have (32)
 *   executed: 0, or 1 << 32 | MSN of the last message executed. The acknowledgement may come later:
 *             a requester that cannot wait for it, or whose peer has died, reads this field. */
struct qp_public {
	_Alignas(64) _Atomic uint64_t words[3];
	_Atomic uint64_t executed;
	/* For observers (hdl_observe()); no transport reads it. Written when something fails: */
	_Atomic uint64_t fault; /* event's detail (8) | event + 1 (8) | detail (8) | status (8) */
	/* Where the owner's queues are, one struct wq each, in its own memory; 0: it has none. An
	 * observer reads from them how full they are, at no cost to posting and completing. */
#define QP_RQ_SHARED 1u /* in rq_addr: the queue is a shared receive queue */
	_Atomic uint64_t sq_addr, rq_addr;
};
_Static_assert(sizeof(struct qp_public) == 64, "one line per queue pair");

#define QP_EXECUTED(msn) (1ull << 32 | (uint32_t)(msn))

/* XRC shared receive queues take their numbers and facts from the same table. They publish this
 * type, their XRC domain as destination and their whole number as link. */
#define QP_TYPE_SRQ 0x40u

/* An end-to-end context is a queue pair without queues (rd.h). Peers never see this type. */
#define QP_TYPE_EEC 0x20u

struct qp_facts {
	uint8_t state, type, access;
	bool windows_only, on_wire;
	uint32_t dest_qpn, link, pd;
	uint32_t rq_psn; /* the PSN that the first message must have */
	/* The first word as it was read: tells later whether anything has changed. */
	uint64_t word;
};

void qp_publish(struct qp_public *pub, const struct qp_facts *facts);
/* False if the owner kept changing it while we read: treat the queue pair as not ready. */
bool qp_read_facts(const struct qp_public *pub, struct qp_facts *facts);

/* The last error of a queue pair: how one of its requests failed, and the event that was raised.
 * Either may be absent. */
struct qp_fault {
	uint8_t status; /* enum hdl_wc_status; HDL_WC_SUCCESS: no request failed */
	uint8_t detail; /* enum hdl_detail */
	uint8_t event;  /* enum hdl_event_type + 1; 0: none was raised */
	uint8_t event_detail;
};
struct qp_fault qp_read_fault(const struct qp_public *pub);
void qp_publish_fault(struct qp_public *pub, struct qp_fault fault);

/* A shared receive queue. */
struct wqe_recv;

struct srq {
	struct wq wq;
	uint32_t pd;
	_Atomic uint32_t limit; /* raise an event when fewer receives are left; 0: not armed */
	/* XRC: */
	uint32_t number; /* 0: not XRC */
	uint32_t xrcd;
	struct cq *cq;
};

#define LINK_NONE UINT32_MAX
#define LINK_WIRE (UINT32_MAX - 1) /* only for datagrams: it goes over a network */

struct ib;
struct cells;
struct iwarp;
struct udp_service;
struct descriptors;
struct transport;

/* The target of the last short write or read that was executed without the peer, and what was
 * checked for it. */
struct qp_target {
	uint64_t facts;       /* the peer's first word of facts */
	uint8_t access;       /* the access that it allowed; 0: nothing is cached */
	struct tpt_memo memo; /* the protection table entry */
};

/* What only the same-host path needs of a queue pair (local/local.h). */
struct qp_local {
	/* Requester. */
	uint32_t next_read; /* next number in the peer's read resource queue */
	/* How many of qp.reads_open are reads whose data comes through the lane. */
	uint32_t value_reads;
	uint64_t sent_position; /* position in the lane behind the last message sent */
	struct qp_target target;
	/* Responder. */
	uint32_t expected_msn;
	bool answer_due;
	bool answer_new; /* the ACK became due in this turn: it may travel with a message of ours */
	uint8_t answer;  /* enum answer */
	uint8_t answer_detail;
	uint32_t answer_msn;
	uint32_t answer_count; /* messages that the pending ACK covers */
	/* A message that arrives in parts: its MSN, and how much of it has arrived. */
	uint32_t part_msn, part_offset;
	struct hdl_key part_key; /* of a write */
	/* Finished atomics whose answer has not been sent; the oldest is result_read. */
	uint32_t results_due;
	uint32_t result_read;
};

struct qp {
	uint32_t qpn;
	uint8_t type;          /* enum hdl_qp_type */
	_Atomic uint8_t state; /* enum hdl_qp_state; written by the driver, read by posters */
	bool signal_all;
	bool register_on_send;
	bool windows_only;
	uint8_t register_error; /* enum hdl_register_error */
	uint8_t service;        /* enum service_class: when it has its turns (engine_serve()) */
	uint32_t pd;
	const struct transport *transport; /* never NULL (transport.h) */
	uint32_t link; /* which peer; LINK_NONE before RTR, and if no lanes lead to the peer */
	struct ib *ib; /* only of a connection on a network; the adapter's memory */
	uint32_t max_message;
	struct hdl_qp_attr attr;
	struct hdl_qp_cap cap;
	struct qp_public *pub;

	struct wq sq;
	struct wq rq;
	/* Used instead of rq. For an XRC target: the one that the last message named, as are pd
	 * and recv_cq. */
	struct srq *srq;
	struct cq *send_cq;
	struct cq *recv_cq;

	/* Work is waiting: posters push pending, the driver maintains the active list. */
	struct mpsc_node pending;
	struct qp *active_next;
	bool is_active;

	/* Requester. sq.head <= next <= sq.tail */
	uint32_t next;       /* next element to execute */
	uint32_t next_msn;   /* message sequence number of the next message */
	uint32_t unanswered; /* elements in WQE_SENT */
	uint32_t reads_open; /* how many of these are reads and atomics */
	bool waiting;        /* for a timer: RNR, delay, or a peer that is not ready */
	bool draining;       /* in SQD, but some requests are unanswered */
	bool flushes;        /* in SQD after a failed registration: flush what is posted, too */
	bool answered;       /* an answer has come since the timer was last checked */
	bool timer_wanted;   /* a timer is to be started at the next engine_tick() */
	uint8_t retries_left;
	uint8_t rnr_left;
	uint64_t timer_ns; /* its duration */
	struct timer_node timer;
	struct qp *timer_next;

	struct qp_local local;

	/* REGISTER: page lists of posted requests, a ring in post order. */
	uint64_t *lists;
	uint32_t lists_size;
	uint32_t lists_tail; /* owned by posters, under sq.post_lock */
	_Atomic uint32_t lists_head;

	/* Responder. */
	struct qp *owing_next;
	bool is_owing;
	bool held; /* by engine_hold(), until held_ns */
	uint64_t held_ns;
	struct qp *held_next;
	/* A NAK has been sent: drop other messages until the expected one comes. */
	bool nak_sent;
	bool established; /* COMM_EST has been raised */
	bool close_due;   /* the peer must be told that the connection failed here */
	uint8_t close_event;
	uint8_t close_detail;
	struct hdl_key close_key;
	bool close_imm; /* the failure was caused by a write with immediate data */
	/* The receive that a message in parts fills remains the oldest in its queue. If it came
	 * from a shared queue, it has been taken out and is kept here. */
	struct wqe_recv *kept; /* room for one; NULL without a shared queue, or lent by a context */
	bool keeps;
	/* Those of the messages behind it, oldest first, in a ring: only on a transport on which
	 * several messages arrive at a time, and which lends the room. */
	struct wqe_recv *behind;
	uint32_t behind_room, behind_first, behind_count;
	struct read_queue reads;

	uint64_t sent_messages, received_messages;
	uint32_t xrcd; /* XRC target only */
	/* Set while engine.capture records and this queue pair sends; else NULL (capture.h). */
	struct capture_qp *capture;

	/* Reliable datagrams (rd.h). */
	uint32_t rdd; /* reliable datagram domain of a queue pair or context */
	/* The context where the message at next is sent or waits for its turn; NULL: none. */
	struct qp *context;
	/* The next queue pair that waits for the same context; for a context, the next context. */
	struct qp *rd_next;

	struct cells *cells;     /* only where a network carries cells; the adapter's memory */
	bool acknowledged;       /* HDL_QP_UD on cells: a datagram is done when it is answered */
	struct udp_service *udp; /* only of a queue pair on plain UDP; its owner's memory */
	struct iwarp *iwarp;     /* only of a connection on a byte stream; its owner's memory */
	/* Only of a virtual interface; its owner's memory (descriptor.h). */
	struct descriptors *descriptors;
};

/* Are its messages numbered, acknowledged and retransmitted? */
static inline bool qp_reliable(const struct qp *qp)
{
	const uint64_t reliable = 1ull << HDL_QP_RC | 1ull << HDL_QP_XRC_INI |
	                          1ull << HDL_QP_XRC_TGT | 1ull << QP_TYPE_EEC;
	return (reliable >> qp->type & 1) != 0;
}

/* Is a message that it cannot accept just dropped, with no other effect? Anybody can send one that
 * is too long. */
static inline bool qp_drops(const struct qp *qp)
{
	return qp->type == HDL_QP_UC || qp->type == HDL_QP_UD || qp->type == HDL_QP_RAW;
}

/* Does it take its receives from queues that other queue pairs use too? */
static inline bool qp_shares(const struct qp *qp)
{
	return qp->srq != NULL || qp->type == HDL_QP_XRC_TGT;
}

/* The type that the queue pair at the other end must have. */
static inline uint8_t qp_peer_type(const struct qp *qp)
{
	return qp->type == HDL_QP_XRC_INI   ? HDL_QP_XRC_TGT
	       : qp->type == HDL_QP_XRC_TGT ? HDL_QP_XRC_INI
	                                    : qp->type;
}

static inline enum hdl_qp_state qp_state(const struct qp *qp)
{
	return (enum hdl_qp_state)atomic_load_explicit(&qp->state, memory_order_acquire);
}

#endif
