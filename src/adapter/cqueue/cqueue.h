/* Circular queues over anything that stores and wakes (queue/cring.h). */
#ifndef ADAPTER_CQUEUE_H
#define ADAPTER_CQUEUE_H

#include <pthread.h>

#include <heddle/cqueue.h>

#include "queue/cring.h"

#define CQUEUE_NAP_NS 1000000u /* a carrier without room is tried again after this time */

/* How stores reach the peer, and how it is woken. */
struct cqueue_carrier {
	/* As struct cring_stores. Not called where the peer's block is mapped. */
	bool (*store)(void *context, uint64_t offset, const void *data, uint64_t bytes);
	/* The same with the drive lock, from cqueue_placed(). */
	bool (*store_locked)(void *context, uint64_t offset, const void *data, uint64_t bytes);
	/* Raise a data event at the peer's port, behind all stores. False: not now. */
	bool (*wake)(void *context);
	/* Is the connection open? */
	bool (*alive)(void *context);
	void (*end)(void *context);
	void *context;
	/* Something may happen without an event: the peer may store to our block itself though we
	 * do not map its block, or the end of the connection is announced at another port. Calls
	 * that wait then look every CQUEUE_NAP_NS. */
	bool silent;
};

struct hdl_cqueue {
	uint32_t magic;
	struct hdl_adapter *adapter;
	struct hdl_eventq *events; /* NULL: nobody waits */
	struct cring ring;
	struct cqueue_carrier carrier;
	bool finished;
	_Atomic bool owes_wake; /* the peer is to be woken, and the carrier had no room */
	/* Where the peer's block is not mapped, our adapter places its stores and looks at these:
	 * the IRQ bits of this end, and what the peer's pointers were when they were set. */
	_Atomic bool wants_data, wants_room;
	_Atomic uint64_t seen_wrptr, seen_end, seen_rdptr;
	/* Threads that wait, one to read and one to write. The first takes events for both: */
	pthread_mutex_t lock;
	pthread_cond_t looked;
	bool leads;     /* one sleeps on the event queue; the other waits for it */
	uint64_t looks; /* changes whenever events were taken */
};

/* @own, @bytes: our block, zeroed, and the length of each direction. @peer: the peer's block, or
 * NULL: through @carrier. */
int cqueue_open(struct hdl_adapter *adapter, struct cring_block *own, uint64_t bytes,
                struct cring_block *peer, const struct cqueue_carrier *carrier,
                struct hdl_eventq *events, struct hdl_cqueue **out);
/* A store of the peer was placed in our block (figure 8, step 3: the card looks at IRQ). With the
 * drive lock. @port: of the queue's events. False: the peer has to be answered, and the carrier had
 * no room; call again. */
bool cqueue_placed(struct hdl_cqueue *queue, uint16_t port, uint32_t index);

#endif
