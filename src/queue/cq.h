/* Completion queues: one for many queue pairs. The driver of the adapter pushes, one at a time; any
 * number of threads poll under poll_lock. A push into a full queue is an overrun: nothing is
 * overwritten, the queue says so for ever. A driver that polls an empty queue itself takes what it
 * pushes meanwhile at once (cq_wait()): such a completion never lies in the ring, and has the
 * number of one that was taken. */
#ifndef QUEUE_CQ_H
#define QUEUE_CQ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <heddle/types.h>

#include "base/lock.h"

enum cq_armed { CQ_NOT_ARMED, CQ_ARMED_SOLICITED, CQ_ARMED_ANY };

struct cq {
	struct hdl_wc *ring;
	uint32_t mask;
	uint32_t depth;
	bool notifies; /* has a channel: arming is possible */
	_Atomic bool overrun;
	struct lock poll_lock;
	_Alignas(64) _Atomic uint32_t tail;
	_Atomic uint32_t armed; /* enum cq_armed */
	uint32_t waits;         /* for so many the driver waits itself, */
	struct hdl_wc *at;      /* and wants the next one here. Both are the driver's */
	/* The driver's: one more than the number of the last solicited completion; and what the
	 * last event found. */
	uint32_t solicited, event_head, event_tail, event_solicited;
	_Alignas(64) _Atomic uint32_t head;
};

/* What a push did, any of these. */
enum cq_pushed {
	CQ_STORED = 1 << 0,
	CQ_EVENT = 1 << 1,  /* the queue was armed: raise its event */
	CQ_OVERRUN = 1 << 2 /* the first completion that was lost */
};

size_t cq_bytes(uint32_t depth);
void cq_init(struct cq *cq, void *memory, uint32_t depth, bool notifies);

/* Completions are written and read field by field, each in one instruction of its own size: a wider
 * load of what several smaller stores wrote a moment ago would have to wait for all of them, and
 * compilers like to make such loads. */
#define CQ_COPY(to, from)                                      \
	do {                                                   \
		(to)->wr_id = (from)->wr_id;                   \
		(to)->status = (from)->status;                 \
		(to)->opcode = (from)->opcode;                 \
		(to)->vendor_err = (from)->vendor_err;         \
		(to)->byte_len = (from)->byte_len;             \
		(to)->imm = (from)->imm;                       \
		(to)->qpn = (from)->qpn;                       \
		(to)->src_qpn = (from)->src_qpn;               \
		(to)->flags = (from)->flags;                   \
		(to)->pkey_index = (from)->pkey_index;         \
		(to)->slid = (from)->slid;                     \
		(to)->sl = (from)->sl;                         \
		(to)->dlid_path_bits = (from)->dlid_path_bits; \
	} while (0)

/* Where the next completion goes. By the driver only, who fills it and calls cq_placed(). NULL:
 * there is no room, cq_overrun(). */
static inline struct hdl_wc *cq_place(struct cq *cq)
{
	if (cq->waits > 0)
		return cq->at;
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	uint32_t head =
	        atomic_load_explicit(&cq->head, memory_order_acquire); /* C1 pairs with C2 */
	return tail - head < cq->depth ? &cq->ring[tail & cq->mask] : NULL;
}

/* A completion was lost. */
static inline unsigned cq_overrun(struct cq *cq)
{
	return atomic_exchange_explicit(&cq->overrun, true, memory_order_relaxed) ? 0 : CQ_OVERRUN;
}

/* The rest of cq_placed() for a queue with a channel: tell of the completion stored before @tail,
 * which solicits an event or not. */
unsigned cq_push_notify(struct cq *cq, bool solicited, uint32_t tail);

/* What lies where cq_place() said is a completion. @solicited: the sender asked for an event, or it
 * is an error. Returns enum cq_pushed bits. */
static inline unsigned cq_placed(struct cq *cq, bool solicited)
{
	if (cq->waits > 0) {
		cq->waits--;
		cq->at++;
		return CQ_STORED;
	}
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed) + 1;
	if (cq->notifies)
		return cq_push_notify(cq, solicited, tail);
	atomic_store_explicit(&cq->tail, tail, memory_order_release); /* C3 pairs with C4 */
	return CQ_STORED;
}

/* By the driver only. @solicited: the sender asked for an event. Returns enum cq_pushed bits. */
static inline unsigned cq_push(struct cq *cq, const struct hdl_wc *wc, bool solicited)
{
	volatile struct hdl_wc *slot = cq_place(cq);
	if (slot == NULL)
		return cq_overrun(cq);
	CQ_COPY(slot, wc);
	return cq_placed(cq, solicited || wc->status != HDL_WC_SUCCESS);
}

static inline bool cq_empty(const struct cq *cq)
{
	return atomic_load_explicit(&cq->tail, memory_order_seq_cst) ==
	       atomic_load_explicit(&cq->head, memory_order_relaxed);
}

/* The driver waits itself for the next @max completions, and wants them at @wc, until cq_waited().
 * False: something is there already, or somebody wants an event of what comes next. (What others
 * poll meanwhile is an empty queue, for only the driver pushes.) */
static inline bool cq_wait(struct cq *cq, struct hdl_wc *wc, int max)
{
	if (!cq_empty(cq) || max <= 0 ||
	    atomic_load_explicit(&cq->armed, memory_order_relaxed) != CQ_NOT_ARMED)
		return false;
	cq->at = wc;
	cq->waits = (uint32_t)max;
	return true;
}

/* How many of the @max came. */
static inline int cq_waited(struct cq *cq, int max)
{
	int came = max - (int)cq->waits;
	cq->waits = 0;
	return came;
}

/* Up to @max completions, oldest first. */
int cq_poll(struct cq *cq, struct hdl_wc *wc, int max);

/* The number of the next completion that is pushed. By the driver. */
static inline uint32_t cq_next(const struct cq *cq)
{
	return atomic_load_explicit(&cq->tail, memory_order_relaxed) - (cq->waits > 0);
}

/* Has the completion @number been taken? One that is pushed next has not. However long ago it was:
 * the numbers of those that have not been taken lie between head and tail, and no others. */
static inline bool cq_taken(const struct cq *cq, uint32_t number)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_acquire);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_acquire);
	return number - head > tail - head;
}

/* The next completion raises an event, once; arming for any is stronger than arming for solicited
 * ones. */
void cq_arm(struct cq *cq, bool solicited_only);

/* Does the queue hold a completion of the kind that it is armed for, and is that news? It is not
 * while nothing has come and nothing was taken since the last event. By the driver. */
bool cq_arm_is_due(const struct cq *cq);

/* The queue raises its event: it is not armed any more. False: it was not. By the driver. */
bool cq_raise(struct cq *cq);

/* Nobody wants an event any more. Did somebody? */
static inline bool cq_disarm(struct cq *cq)
{
	return atomic_exchange_explicit(&cq->armed, CQ_NOT_ARMED, memory_order_acq_rel) !=
	       CQ_NOT_ARMED;
}

/* Copy the content into @memory, laid out for @depth, and use that from now on. Pushing and polling
 * must be locked out by the caller. False, and nothing changed, when more than @depth are held. */
bool cq_move(struct cq *cq, void *memory, uint32_t depth);

/* Take out the completions of the queue pair @qpn, the others stay in order, with numbers that are
 * not smaller. Pushing and polling must be locked out by the caller. Returns how many there were.
 */
uint32_t cq_discard(struct cq *cq, uint32_t qpn);

/* How many completions of the queue pair @qpn are held. Pushing and polling must be locked out by
 * the caller. */
uint32_t cq_count(const struct cq *cq, uint32_t qpn);

#endif
