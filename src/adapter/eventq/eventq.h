/* Event queues of an adapter's ports. The adapter is the deliverer: whoever drives it puts events
 * into the queue of a port (queue/evring.h), under the drive lock. If the application sleeps, the
 * queue joins the list of its set (drive/ready.h), which wakes the thread that waits, and the
 * node agent's own queue gets a message that names the port (oob.h). */
#ifndef ADAPTER_EVENTQ_H
#define ADAPTER_EVENTQ_H

#include <heddle/eventq.h>

#include "adapter/drive/ready.h"
#include "base/lock.h"
#include "queue/evring.h"

struct hdl_eventset {
	uint32_t magic;
	struct hdl_adapter *adapter;
	struct ready_list ready;
	_Atomic uint32_t users;
};

struct hdl_eventq {
	uint32_t magic;
	uint16_t port;
	struct hdl_adapter *adapter;
	void *context;
	void *memory;
	struct hdl_eventset *set; /* the caller's, or own; set under the drive lock and @lock */
	bool own_set;
	bool fd_given; /* the application may sleep on the descriptor of the own set; under @lock */
	uint32_t sleepers;      /* threads in calls that wait for the queue; under @lock */
	struct ready_node node; /* under the lock of set->ready */
	struct lock lock;       /* of the reader, taken after the drive lock */
	struct evring_reader reader;
	struct evring_writer writer; /* under the drive lock, as the rest */
	uint64_t kept, lost;
	uint32_t interrupts;
	_Atomic bool armed; /* counted in drive.armed_cqs */
};

/* The queues of an adapter, by port. */
struct eventqs {
	struct hdl_eventq **by_port; /* 65536, or NULL: none was ever opened */
	uint32_t count;
};

enum eventq_result {
	EVENTQ_PLACED,
	EVENTQ_FULL,     /* keep it back, or call eventq_lose() */
	EVENTQ_TOO_LONG, /* it will never fit */
	EVENTQ_NO_PORT   /* there is no queue */
};

/* hdl_eventq_open() by number; the caller has bound the port. */
int eventq_open(struct hdl_adapter *adapter, uint16_t port, const struct hdl_eventq_attr *attr,
                struct hdl_eventq **out);

/* Deliver @event to @port, with @bytes of @data behind it (@data NULL: none). With the drive lock.
 * The port is filled in. */
enum eventq_result eventq_deliver(struct hdl_adapter *adapter, uint16_t port,
                                  const struct hdl_port_event *event, const void *data,
                                  uint64_t bytes);
/* An event of @port could be neither delivered nor kept back. With the drive lock. */
void eventq_lose(struct hdl_adapter *adapter, uint16_t port);
/* How many events wait at @port, and whether its application sleeps; false: it has no queue. With
 * the drive lock. */
bool eventq_look(struct hdl_adapter *adapter, uint16_t port, uint32_t *events, bool *blocked);
/* Does @queue belong to a set of the caller's? */
bool eventq_in_set(struct hdl_eventq *queue);
/* A thread is going to sleep until @queue, which is in no set of the caller's, has events. Returns
 * the descriptor that tells of it; -HDL_EAGAIN there are events; -HDL_EIO, -HDL_ENOMEM there is
 * none. Where a descriptor was returned, eventq_end_sleep() follows. */
int eventq_begin_sleep(struct hdl_eventq *queue);
void eventq_end_sleep(struct hdl_eventq *queue);
/* The adapter is being closed: its queues are freed. */
void eventqs_end(struct hdl_adapter *adapter);

#endif
