/* Completion queues: one for many queue pairs. The driver of the adapter pushes, one at a time; any number of threads poll
 * under poll_lock. A push into a full queue is an overrun: nothing is overwritten, the queue says so for ever. */
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

/* Completions are written and read field by field, each in one instruction of its own size: a wider load of what several
 * smaller stores wrote a moment ago would have to wait for all of them, and compilers like to make such loads. */
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

/* The rest of cq_push() for a queue with a channel: tell of the completion stored before @tail, which solicits an event or not. */
unsigned cq_push_notify(struct cq *cq, bool solicited, uint32_t tail);

/* By the driver only. @solicited: the sender asked for an event. Returns enum cq_pushed bits. */
static inline unsigned cq_push(struct cq *cq, const struct hdl_wc *wc, bool solicited)
{
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	uint32_t head =
	        atomic_load_explicit(&cq->head, memory_order_acquire); /* C1 pairs with C2 */
	if (tail - head >= cq->depth)
		return atomic_exchange_explicit(&cq->overrun, true, memory_order_relaxed)
		               ? 0
		               : CQ_OVERRUN;
	volatile struct hdl_wc *slot = &cq->ring[tail & cq->mask];
	CQ_COPY(slot, wc);
	if (cq->notifies)
		return cq_push_notify(cq, solicited || wc->status != HDL_WC_SUCCESS, tail + 1);
	atomic_store_explicit(&cq->tail, tail + 1, memory_order_release); /* C3 pairs with C4 */
	return CQ_STORED;
}

/* Up to @max completions, oldest first. */
int cq_poll(struct cq *cq, struct hdl_wc *wc, int max);

/* The number of the next completion that is pushed. By the driver. */
static inline uint32_t cq_next(const struct cq *cq)
{
	return atomic_load_explicit(&cq->tail, memory_order_relaxed);
}

/* Has the completion @number been taken? One that is pushed next has not. However long ago it was: the numbers of those that have not been
 * taken lie between head and tail, and no others. */
static inline bool cq_taken(const struct cq *cq, uint32_t number)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_acquire);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_acquire);
	return number - head > tail - head;
}

static inline bool cq_empty(const struct cq *cq)
{
	return atomic_load_explicit(&cq->tail, memory_order_seq_cst) ==
	       atomic_load_explicit(&cq->head, memory_order_relaxed);
}

/* The next completion raises an event, once; arming for any is stronger than arming for solicited ones. */
void cq_arm(struct cq *cq, bool solicited_only);

/* Copy the content into @memory, laid out for @depth, and use that from now on. Pushing and polling must be locked out by
 * the caller. False, and nothing changed, when more than @depth are held. */
bool cq_move(struct cq *cq, void *memory, uint32_t depth);

/* Take out the completions of the queue pair @qpn, the others stay in order, with numbers that are not smaller. Pushing and polling must be locked out by the
 * caller. Returns how many there were. */
uint32_t cq_discard(struct cq *cq, uint32_t qpn);

/* How many completions of the queue pair @qpn are held. Pushing and polling must be locked out by the caller. */
uint32_t cq_count(const struct cq *cq, uint32_t qpn);

#endif
