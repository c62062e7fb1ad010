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

/* By the driver only. @solicited: the sender asked for an event. Returns enum cq_pushed bits. */
unsigned cq_push(struct cq *cq, const struct hdl_wc *wc, bool solicited);

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

#endif
