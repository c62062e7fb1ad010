/* Which thread drives an adapter (drive.c), how its own thread sleeps and is woken (thread.c), and
 * what an application waits for (wait.c, event.c). */
#ifndef ADAPTER_DRIVE_H
#define ADAPTER_DRIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <heddle/heddle.h>

#include "adapter/drive/busy_poll.h"
#include "base/lock.h"
#include "transport/engine.h"

#define ADAPTER_TICK_EVERY 64u /* drives between two reads of the clock */
#define ADAPTER_WATCH_NS \
	1000000u /* the thread takes over when the application has not polled for this long */
#define ADAPTER_STUCK_NS       50000u /* who sleeps retries a full lane after this time */
#define ADAPTER_AWAKE_TURNS    1024u  /* thread turns in a row without sleep: packets keep coming */
#define ADAPTER_SLICE_NS       100000u /* the shortest time slice that Linux grants */
#define ADAPTER_DELAYED_ACK_NS 10000u  /* the application may send data with the ACK */
#define ADAPTER_GIVE_WAY       64u     /* yields of the thread to those that wait for the lock */

/* What woke the thread: the data field of its epoll events. */
#define EPOLL_BELL  1ull
#define EPOLL_AGENT 2ull
#define EPOLL_NUDGE 3ull
#define EPOLL_PORT  16ull                           /* plus the number of the port */
#define EPOLL_HEAR  (EPOLL_PORT + ENGINE_MAX_PORTS) /* likewise: port_keep_awake() */
#define EPOLL_PEER  1000ull                         /* plus the number of the link */

/* Asynchronous events that the application has not taken yet. */
struct event_queue {
	struct lock lock; /* protects everything but fd, which never changes */
	int fd;
	uint32_t head, tail; /* free-running */
	uint64_t lost;
	struct hdl_event ring[HDL_MAX_EVENTS];
};

/* What the adapter's thread does (thread.c has the drawing). */
enum thread_state {
	THREAD_DRIVING,
	THREAD_WATCHING, /* pauses for a millisecond at most: the application calls */
	THREAD_SLEEPING, /* until something arrives; a caller that leaves it work must wake it */
	THREAD_ARMED     /* the same, and the next caller wakes it in any case */
};

/* Which thread the bell wakes. */
enum bell_holder {
	BELL_THREAD, /* the adapter's thread, through its epoll */
	BELL_WAITER, /* an application thread that waits (wait.c) */
	BELL_NOBODY  /* no longer a waiter; the adapter's thread takes it in its next turn */
};

struct drive {
	/* The drive lock: its holder owns the engine, the inner state of the queue pairs and the
	 * writing side of the protection table. */
	struct lock lock;
	_Atomic uint32_t drives; /* by the application; written by the holder of the lock */

	/* Set when the adapter is opened, and when its thread starts and ends. */
	bool has_thread;
	bool barrier; /* barrier_everyone() reaches this process: peers that send to us need no
	                 fence */
	pthread_t thread;
	int bell;  /* peers ring it (port/bell.h) */
	int rope;  /* the descriptor by which this process rings it */
	int nudge; /* eventfd: calls of this process wake the thread with it */
	int epoll; /* everything that wakes the thread */

	/* Only the thread uses it. */
	struct busy_poll busy_poll;

	/* Any thread, without a lock. */
	_Atomic bool quitting;
	_Atomic uint32_t state;     /* enum thread_state */
	_Atomic uint32_t activity;  /* changes whenever the application posts or polls */
	_Atomic uint32_t armed_cqs; /* completion queues, and event queues, that are armed */
	_Atomic uint32_t readable;  /* channels whose descriptor is readable */
	_Atomic uint32_t waiters;   /* threads that wait while another thread has the bell */
	_Atomic uint32_t wanted;    /* threads that wait for the drive lock: adapter_lock() */

	/* Under the drive lock. */
	bool lanes_armed;  /* every lane is armed, and the bell has not rung since then */
	bool lanes_fenced; /* producers execute the barrier (base/ring.h) */
	enum bell_holder bell_holder;
	pthread_t bell_waiter; /* BELL_WAITER: this thread */
	uint64_t wakes_ns;     /* when the sleeping thread wakes at the latest */

	struct event_queue events; /* under a lock of its own */
};

/* --- drive.c --- */
/* Drive the adapter unless another thread does. Returns how much was done. */
unsigned adapter_drive(struct hdl_adapter *adapter);
/* Like adapter_drive(), for an application thread that is going to call again. */
void adapter_poll(struct hdl_adapter *adapter);
/* The same for a thread that polls @cq and found it empty. Returns how many completions, up to
 * @max, are already at @wc; usually nothing else was done in that case. */
int adapter_poll_cq(struct hdl_adapter *adapter, struct cq *cq, struct hdl_wc *wc, int max);
/* Receive what has arrived, execute what was posted, send pending answers. With the drive lock. */
void adapter_catch_up(struct hdl_adapter *adapter);
/* @qp has work: make sure that a thread does it. */
void adapter_doorbell(struct hdl_adapter *adapter, struct qp *qp);
/* The fast path: execute the requests from @wr on directly, as long as they are short and nothing
 * is ahead of them. Returns the requests that are left to post. */
const struct hdl_send_wr *adapter_express(struct hdl_adapter *adapter, struct qp *qp,
                                          const struct hdl_send_wr *wr);
/* Take the post_lock of @qp's send queue while no other thread is in adapter_express() for @qp.
 * That function holds only the drive lock. */
void adapter_lock_sends(struct hdl_adapter *adapter, struct qp *qp);
/* Waits for the turn of another thread, not for the end of its work: thread_give_way(). */
void adapter_lock(struct hdl_adapter *adapter);
void adapter_unlock(struct hdl_adapter *adapter);
/* The same for a thread that has the bell and is about to sleep: it repeats itself what could not
 * be finished, so the adapter's thread is not woken for that and does not compete with it. */
void adapter_unlock_to_wait(struct hdl_adapter *adapter);
/* Is there work that the next turn may be able to finish? A lane was full, or the network card.
 * With the drive lock. */
bool adapter_is_stuck(const struct hdl_adapter *adapter);
/* Ask every peer to wake our thread with its next frame. With the drive lock. */
void adapter_arm(struct hdl_adapter *adapter);
/* Set whether producers execute a barrier with each frame. With the drive lock. */
void adapter_ask_fences(struct hdl_adapter *adapter, bool fence);
/* Drive everything, timers included; *now: the time afterwards. Returns how much was done. With the
 * drive lock. */
unsigned adapter_drive_timed(struct hdl_adapter *adapter, uint64_t *now);
/* When timers must be looked at next; UINT64_MAX: not before something else happens. With the drive
 * lock. */
uint64_t adapter_next_tick(const struct hdl_adapter *adapter);

/* --- thread.c --- */
int adapter_start_thread(struct hdl_adapter *adapter);
void adapter_stop_thread(struct hdl_adapter *adapter);
/* Make the thread take a turn, whatever it does. */
void adapter_nudge(struct hdl_adapter *adapter);
/* Wake the thread if its state is @least, THREAD_SLEEPING or THREAD_ARMED, or deeper. */
void thread_wake(struct hdl_adapter *adapter, uint32_t least);
/* From now on the bell wakes @holder. With the drive lock. */
void adapter_hand_bell(struct hdl_adapter *adapter, enum bell_holder holder);

/* --- wait.c --- */
/* Wait in an application thread until @fd is readable, until there may be something to drive, or
 * until clock_now_ns() is @until_ns (UINT64_MAX: never). Called with cancellation forbidden;
 * @cancel, the result of cancel_forbid(), applies while the thread sleeps. Returns 1: @fd is
 * readable; 0: it is not; a negative error: a signal arrived. */
int adapter_wait(struct hdl_adapter *adapter, int fd, uint64_t until_ns, int cancel);

/* --- event.c --- */
int events_init(struct event_queue *events);
void events_end(struct event_queue *events);
void events_push(struct event_queue *events, const struct hdl_event *event);
/* Remove the events of an object that is being destroyed. */
void events_purge(struct event_queue *events, const void *object);
/* The engine's sink for events. */
void adapter_event(void *context, enum hdl_event_type type, enum hdl_detail detail, void *object,
                   struct hdl_key key);
/* The engine's sink for completion events. */
void adapter_cq_event(void *context, struct cq *cq);

/* @cq was armed while it holds completions: raise its event now, unless an event of @cq is still
 * pending. With the drive lock. */
void channel_raise_held(struct hdl_cq *cq);
/* Drop the pending events of @cq. False: some events were taken and not yet acknowledged; try
 * again. */
bool channel_forget(struct hdl_channel *channel, struct hdl_cq *cq);

#endif
