/* Completion queues: one for many queue pairs. The driver of the adapter pushes, one at a time; any number of threads poll
 * under poll_lock. A push into a full queue is an overrun: nothing is overwritten, the queue says so for ever. */
#ifndef QUEUE_CQ_H
#define QUEUE_CQ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* Completions are written and read by words, each in one instruction: a load of what several smaller stores wrote a moment
 * ago would have to wait for all of them. */
_Static_assert(sizeof(struct hdl_wc) == 6 * sizeof(uint64_t), "six words");

static inline void cq_store(struct hdl_wc *to, const struct hdl_wc *from)
{
	_Atomic uint64_t *words = (_Atomic uint64_t *)(void *)to;
	const uint64_t values[6] = {
	        from->wr_id,
	        (uint64_t)from->opcode << 32 | from->status,
	        (uint64_t)from->byte_len << 32 | from->vendor_err,
	        (uint64_t)from->qpn << 32 | from->imm,
	        (uint64_t)from->flags << 32 | from->src_qpn,
	        (uint64_t)from->dlid_path_bits << 40 | (uint64_t)from->sl << 32 |
	                (uint64_t)from->slid << 16 | from->pkey_index,
	};
	for (int i = 0; i < 6; i++)
		atomic_store_explicit(&words[i], values[i], memory_order_relaxed);
}

static inline void cq_load(struct hdl_wc *to, const struct hdl_wc *from)
{
	const _Atomic uint64_t *words = (const _Atomic uint64_t *)(const void *)from;
	for (int i = 0; i < 6; i++) {
		uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);
		memcpy((unsigned char *)to + 8 * i, &word, 8);
	}
}

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
	cq_store(&cq->ring[tail & cq->mask], wc);
	if (cq->notifies)
		return cq_push_notify(cq, solicited || wc->status != HDL_WC_SUCCESS, tail + 1);
	atomic_store_explicit(&cq->tail, tail + 1, memory_order_release); /* C3 pairs with C4 */
	return CQ_STORED;
}

/* Up to @max completions, oldest first. */
int cq_poll(struct cq *cq, struct hdl_wc *wc, int max);

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

/* Take out the completions of the queue pair @qpn, the others stay in order. Pushing and polling must be locked out by the
 * caller. Returns how many there were. */
uint32_t cq_discard(struct cq *cq, uint32_t qpn);

#endif
