/* Completion queues: one for many queue pairs. Only the driver of the adapter pushes; any number of
 * threads poll under poll_lock. A push into a full queue is an overrun: nothing is overwritten, and
 * the queue stays marked as overrun. A driver that polls an empty queue itself gets the completions
 * that it pushes meanwhile directly (cq_wait()): such a completion never enters the ring, and has
 * the number of one that has been taken. */
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
	bool notifies; /* has a channel: it can be armed */
	_Atomic bool overrun;
	struct lock poll_lock;
	_Alignas(64) _Atomic uint32_t tail;
	_Atomic uint32_t armed; /* enum cq_armed */
	uint32_t waits;         /* completions that the driver itself waits for */
	struct hdl_wc *at;      /* where it wants the next one. Both belong to the driver */
	/* Owned by the driver: one more than the number of the last solicited completion, and the
	 * state of the queue at the last event. */
	uint32_t solicited, event_head, event_tail, event_solicited;
	_Alignas(64) _Atomic uint32_t head;
};

/* What a push did: any of these bits. */
enum cq_pushed {
	CQ_STORED = 1 << 0,
	CQ_EVENT = 1 << 1,  /* the queue was armed: raise its event */
	CQ_OVERRUN = 1 << 2 /* the first completion that has been lost */
};

size_t cq_bytes(uint32_t depth);
void cq_init(struct cq *cq, void *memory, uint32_t depth, bool notifies);

/* Completions are written and read field by field, each in one instruction of its own size. A wider
 * load of what several smaller stores have just written would stall until all of them have retired,
 * and compilers like to generate such loads. */
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

/* Where the next completion goes. Only the driver calls this; it fills the place and calls
 * cq_placed(). NULL: there is no room; call cq_overrun(). */
static inline struct hdl_wc *cq_place(struct cq *cq)
{
	if (cq->waits > 0)
		return cq->at;
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	uint32_t head =
	        atomic_load_explicit(&cq->head, memory_order_acquire); /* C1 pairs with C2 */
	return tail - head < cq->depth ? &cq->ring[tail & cq->mask] : NULL;
}

/* A completion has been lost. */
static inline unsigned cq_overrun(struct cq *cq)
{
	return atomic_exchange_explicit(&cq->overrun, true, memory_order_relaxed) ? 0 : CQ_OVERRUN;
}

/* The rest of cq_placed() for a queue with a channel: report the completion before @tail, which
 * does or does not solicit an event. */
unsigned cq_push_notify(struct cq *cq, bool solicited, uint32_t tail);

/* The place that cq_place() returned now holds a completion. @solicited: the sender asked for an
 * event, or it is an error. Returns enum cq_pushed bits. */
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

/* Driver only. @solicited: the sender asked for an event. Returns enum cq_pushed bits. */
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

/* The driver itself waits for the next @max completions and wants them at @wc, until cq_waited().
 * False: the queue is not empty, or somebody wants an event for the next completion. (Threads that
 * poll meanwhile find an empty queue, because only the driver pushes.) */
static inline bool cq_wait(struct cq *cq, struct hdl_wc *wc, int max)
{
	if (!cq_empty(cq) || max <= 0 ||
	    atomic_load_explicit(&cq->armed, memory_order_relaxed) != CQ_NOT_ARMED)
		return false;
	cq->at = wc;
	cq->waits = (uint32_t)max;
	return true;
}

/* How many of the @max completions have come. */
static inline int cq_waited(struct cq *cq, int max)
{
	int came = max - (int)cq->waits;
	cq->waits = 0;
	return came;
}

/* Up to @max completions, oldest first. */
int cq_poll(struct cq *cq, struct hdl_wc *wc, int max);

/* The number of the next completion that is pushed. Driver only. */
static inline uint32_t cq_next(const struct cq *cq)
{
	return atomic_load_explicit(&cq->tail, memory_order_relaxed) - (cq->waits > 0);
}

/* Has the completion @number been taken? The one that is pushed next has not. The answer is right
 * however long ago it was pushed: exactly the numbers between head and tail have not been taken. */
static inline bool cq_taken(const struct cq *cq, uint32_t number)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_acquire);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_acquire);
	return number - head > tail - head;
}

/* The next completion raises an event, once. Arming for any completion is stronger than arming for
 * solicited ones. */
void cq_arm(struct cq *cq, bool solicited_only);

/* Does the queue hold a completion of the kind that it is armed for, and is that news? It is not if
 * no completion has come and none has been taken since the last event. Driver only. */
bool cq_arm_is_due(const struct cq *cq);

/* Raise the event of the queue, which disarms it. False: it was not armed. Driver only. */
bool cq_raise(struct cq *cq);

/* Disarm the queue. Was it armed? */
static inline bool cq_disarm(struct cq *cq)
{
	return atomic_exchange_explicit(&cq->armed, CQ_NOT_ARMED, memory_order_acq_rel) !=
	       CQ_NOT_ARMED;
}

/* Copy the content into @memory, laid out for @depth, and use that from now on. The caller must
 * lock out pushing and polling. False, with nothing changed, if the queue holds more than @depth.
 */
bool cq_move(struct cq *cq, void *memory, uint32_t depth);

/* Remove the completions of queue pair @qpn. The others stay in order, and their numbers do not
 * become smaller. The caller must lock out pushing and polling. Returns how many were removed. */
uint32_t cq_discard(struct cq *cq, uint32_t qpn);

/* How many completions of queue pair @qpn the queue holds. The caller must lock out pushing and
 * polling. */
uint32_t cq_count(const struct cq *cq, uint32_t qpn);

#endif
