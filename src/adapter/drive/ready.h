/* Queues that have something for the application, and the descriptor that says so: what completion
 * channels and event sets are made of. A wait costs the same however many queues there are. */
#ifndef ADAPTER_READY_H
#define ADAPTER_READY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

struct hdl_adapter;

/* In each queue; under the lock of its list. */
struct ready_node {
	struct ready_node *next;
	bool queued;
};

struct ready_list {
	struct lock lock;
	int fd;          /* readable while there are queues in the list */
	bool signalled;  /* it is */
	uint32_t takers; /* threads that take without looking at the descriptor */
	struct ready_node *first, **end;
};

/* Make @fd, an eventfd, readable or not. */
void ready_signal(int fd, bool readable);

/* False and errno: no descriptor. */
bool ready_init(struct ready_list *list);
void ready_end(struct ready_list *list);

/* All with the lock of the list. */
/* @node has something; it may be in the list already. */
void ready_add(struct ready_list *list, struct ready_node *node);
/* Take @node out; it may not be in the list. */
void ready_remove(struct ready_list *list, struct ready_node *node);
/* Make the descriptor tell whether there are queues in the list. */
void ready_sync(struct hdl_adapter *adapter, struct ready_list *list);
/* The same after ready_add() by the thread that drives: a thread that drives in order to find
 * something finds it without the descriptor. */
void ready_announce(struct hdl_adapter *adapter, struct ready_list *list);

/* Drive, and call @take with the lock of the list until it returns true, or @timeout_ms (0: do not
 * wait; -1: forever) have passed. A cancellation point while it sleeps. Returns 0, -HDL_EAGAIN, or
 * -HDL_EINTR: a signal arrived. */
int ready_wait(struct hdl_adapter *adapter, struct ready_list *list, int timeout_ms,
               bool (*take)(struct ready_list *list, void *context), void *context);

#endif
