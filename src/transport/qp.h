/* A queue pair as the transports see it: queues, attributes, and the state of requester and
 * responder. Who drives the adapter owns all of it, except the post side of the queues. */
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

/* What peers may know of a queue pair: two words, the first with a version that changes with every
 * change, so a reader who sees the same first word before and after the second has a consistent
 * pair; and how far it has come.
 *   word 0:   version (16) | dest qpn (24) | type (8) | state (8) | access (8)
 *   word 1:   windows_only (1 bit, 63) | id of the connection's link (31) | protection domain (32);
 *             of an XRC target the XRC domain: the protection domain is that of the shared
 *             receive queue that a request names
 *   executed: 0, or 1 << 32 | MSN of the last message executed. The answer that says so may come
 *             later: a requester that cannot wait for it, or whose peer has died, looks here. */
struct qp_public {
	_Alignas(64) _Atomic uint64_t words[3];
	_Atomic uint64_t executed;
	/* For onlookers (hdl_observe()), no transport reads it. Written when something fails: */
	_Atomic uint64_t fault; /* event's detail (8) | event + 1 (8) | detail (8) | status (8) */
	/* Where the owner's queues are, a struct wq each, in its own memory: 0: it has none. So an
	 * onlooker sees how full they are, and posting and completing cost nothing for it. */
#define QP_RQ_SHARED 1u /* in rq_addr: it is a shared receive queue */
	_Atomic uint64_t sq_addr, rq_addr;
};
_Static_assert(sizeof(struct qp_public) == 64, "one line per queue pair");

#define QP_EXECUTED(msn) (1ull << 32 | (uint32_t)(msn))

/* XRC shared receive queues have numbers, and facts, from the same table: this type, as destination
 * their XRC domain and as link their whole number. */
#define QP_TYPE_SRQ 0x40u

/* An end-to-end context is a queue pair without queues (rd.h); nobody sees this type. */
#define QP_TYPE_EEC 0x20u

struct qp_facts {
	uint8_t state, type, access;
	bool windows_only;
	uint32_t dest_qpn, link, pd;
	uint32_t rq_psn; /* the number that the first message must have */
	uint64_t word;   /* the first word as it was read: to see later whether anything changed */
};

void qp_publish(struct qp_public *pub, const struct qp_facts *facts);
/* False when the owner changed it all the time we looked: take it for not ready. */
bool qp_read_facts(const struct qp_public *pub, struct qp_facts *facts);

/* The last error of a queue pair: how a request of its own failed, and the event that was raised.
 * One may be without the other. */
struct qp_fault {
	uint8_t status; /* enum hdl_wc_status; HDL_WC_SUCCESS: no request failed */
	uint8_t detail; /* enum hdl_detail, */
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
	_Atomic uint32_t limit; /* an event when fewer are left; 0: not armed */
	/* XRC: */
	uint32_t number; /* 0: not XRC */
	uint32_t xrcd;
	struct cq *cq;
};

#define LINK_NONE UINT32_MAX
#define LINK_WIRE (UINT32_MAX - 1) /* of a datagram alone: it goes over a network */

struct ib;
struct transport;

/* Where the last short write or read went that was done without the peer, and what of it was judged
 * then. */
struct qp_target {
	uint64_t facts;       /* the first word of the peer's, */
	uint8_t access;       /* and what it allowed; 0: nothing is known */
	struct tpt_memo memo; /* the entry */
};

/* What the same-host path alone needs of a queue pair (local/local.h). */
struct qp_local {
	/* Requester. */
	uint32_t next_read;     /* next number in the peer's read resource queue */
	uint32_t value_reads;   /* of qp.reads_open, reads whose data comes through the lane */
	uint64_t sent_position; /* of the lane, behind the last message sent */
	struct qp_target target;
	/* Responder. */
	uint32_t expected_msn;
	bool answer_due;
	bool answer_new; /* an ACK that became due in this turn: it may go with a message of ours */
	uint8_t answer;  /* enum answer */
	uint8_t answer_detail;
	uint32_t answer_msn;
	uint32_t answer_count; /* messages that the ACK that is due is for */
	/* A message that comes in parts: which one, and how much of it is there. */
	uint32_t part_msn, part_offset;
	uint32_t results_due; /* atomics that are done and not answered; the oldest: result_read */
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
	uint32_t pd;
	const struct transport *transport; /* never NULL (transport.h) */
	uint32_t link; /* which peer; LINK_NONE before RTR, and where no lanes lead to it */
	struct ib *ib; /* of a connection on a network; the adapter's memory */
	uint32_t max_message;
	struct hdl_qp_attr attr;
	struct hdl_qp_cap cap;
	struct qp_public *pub;

	struct wq sq;
	struct wq rq;
	struct srq *srq; /* instead of rq; of an XRC target the one that the last message named, as
	                    are pd and recv_cq */
	struct cq *send_cq;
	struct cq *recv_cq;

	/* Work is waiting: pushed by posters (pending), kept by the driver (active). */
	struct mpsc_node pending;
	struct qp *active_next;
	bool is_active;

	/* Requester. sq.head <= next <= sq.tail */
	uint32_t next;       /* next element to execute */
	uint32_t next_msn;   /* next message sequence number to give */
	uint32_t unanswered; /* elements in WQE_SENT */
	uint32_t reads_open; /* of these, reads and atomics */
	bool waiting;        /* for a timer: RNR, delay, or a peer that is not ready */
	bool draining;       /* SQD, but something is unanswered */
	bool answered;       /* since the timer was last looked at */
	bool timer_wanted;   /* a timer shall be started as soon as the time is known */
	uint8_t retries_left;
	uint8_t rnr_left;
	uint64_t timer_ns; /* for how long */
	struct timer_node timer;
	struct qp *timer_next;

	struct qp_local local;

	/* REGISTER: page lists of posted requests, a ring in post order. */
	uint64_t *lists;
	uint32_t lists_size;
	uint32_t lists_tail; /* posters', under sq.post_lock */
	_Atomic uint32_t lists_head;

	/* Responder. */
	struct qp *owing_next;
	bool is_owing;
	bool held; /* engine_hold(): until held_ns */
	uint64_t held_ns;
	struct qp *held_next;
	bool nak_sent;    /* until the expected message comes, others are dropped */
	bool established; /* COMM_EST was raised */
	bool close_due;   /* the peer has to be told that the connection failed here */
	uint8_t close_event;
	uint8_t close_detail;
	struct hdl_key close_key;
	bool close_imm; /* because of a write with immediate data */
	/* The receive that a message in parts fills stays the oldest, or, from a shared queue, is
	 * taken out and kept here. */
	struct wqe_recv *kept; /* room for one; NULL without a shared queue, or lent by a context */
	bool keeps;
	struct read_queue reads;

	uint64_t sent_messages, received_messages;
	uint32_t xrcd; /* of an XRC target */
	struct capture_qp
	        *capture; /* where engine.capture is and it sends; else NULL (capture.h) */

	/* Reliable datagrams (rd.h). */
	uint32_t rdd;       /* domain of a queue pair or context */
	struct qp *context; /* where the message at next is, or waits for its turn; NULL: nowhere */
	struct qp *rd_next; /* behind this one, of those that wait; of a context, the next of all */
};

/* Are its messages numbered, answered and repeated? */
static inline bool qp_reliable(const struct qp *qp)
{
	const uint64_t reliable = 1ull << HDL_QP_RC | 1ull << HDL_QP_XRC_INI |
	                          1ull << HDL_QP_XRC_TGT | 1ull << QP_TYPE_EEC;
	return (reliable >> qp->type & 1) != 0;
}

/* Is a message that it cannot take lost, and nothing else? Anybody can send one that is too long.
 */
static inline bool qp_drops(const struct qp *qp)
{
	return qp->type == HDL_QP_UC || qp->type == HDL_QP_UD || qp->type == HDL_QP_RAW;
}

/* Does it take its receives from queues that others use too? */
static inline bool qp_shares(const struct qp *qp)
{
	return qp->srq != NULL || qp->type == HDL_QP_XRC_TGT;
}

/* What the queue pair at the other end must be. */
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
