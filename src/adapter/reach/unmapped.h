/* Memory that the program unmaps while it is registered, and peers have it mapped. A peer that
 * copies without the kernel would go on to use the old pages. So the kernel tells us (segment.h), a
 * thread of its own hears it, and the peers are left with the way through the kernel, which reaches
 * what is in our address space at that moment, or nothing.
 *
 * A thread of its own, because what unmaps waits until the event has been read: that may be any
 * thread of the program, and a handler of the program that runs in the adapter's thread. */
#ifndef ADAPTER_UNMAPPED_H
#define ADAPTER_UNMAPPED_H

#include <pthread.h>
#include <stdbool.h>

struct hdl_adapter;

struct unmapped {
	/* Held while events are read and acted on; taken before the drive lock. */
	pthread_mutex_t lock;
	pthread_t thread;
	bool runs;
	int quit; /* an eventfd that ends the thread */
};

void unmapped_begin(struct hdl_adapter *adapter);
/* Memory that peers can map is about to be registered: watch it, if the kernel can. What was
 * unmapped before this call has been acted on afterwards. */
void unmapped_watch(struct hdl_adapter *adapter);
void unmapped_end(struct hdl_adapter *adapter);
/* In a child of fork(). */
void unmapped_forget(struct hdl_adapter *adapter);

#endif
