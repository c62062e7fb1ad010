/* Memory that the program unmaps while it is registered, and peers have it mapped. A peer that
 * copies without the kernel would go on to use the old pages. So the kernel tells us (segment.h), a
 * thread of its own hears it, and the peers are left with the way through the kernel, which reaches
 * what is in our address space at that moment, or nothing.
 *
 * A thread of its own, because what unmaps waits until the event has been read: that may be any
 * thread of the program, a handler of the program that runs in the adapter's thread, or one that
 * holds the drive lock. So the thread goes on reading while the drive lock is held. */
#ifndef ADAPTER_UNMAPPED_H
#define ADAPTER_UNMAPPED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/span.h"

struct hdl_adapter;

#define UNMAPPED_RANGES 16u /* that wait; more become one that spans them all */

struct unmapped {
	pthread_mutex_t lock; /* held for moments; nobody who holds it waits for another lock */
	struct span ranges[UNMAPPED_RANGES]; /* read, and not acted on yet */
	uint32_t count;
	pthread_t thread;
	_Atomic bool runs;
	int quit; /* an eventfd that ends the thread */
};

void unmapped_begin(struct hdl_adapter *adapter);
/* Memory that peers can map is about to be registered: watch it, if the kernel can. */
void unmapped_watch(struct hdl_adapter *adapter);
/* Memory is about to be registered: act on what was unmapped before this call. */
void unmapped_settle(struct hdl_adapter *adapter);
void unmapped_end(struct hdl_adapter *adapter);
/* In a child of fork(). */
void unmapped_forget(struct hdl_adapter *adapter);

#endif
