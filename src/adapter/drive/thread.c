/* The adapter's own thread. It does what no application thread does at the moment (drive.c), and
 * is in one of these states:
 *
 *                  the application calls, nothing is left
 *      DRIVING ---------------------------------------------> WATCHING
 *       ^  ^ \ <---------------- a millisecond later -----------'
 *       |  |  \
 *       |  |   \ the application does not call, nothing is left: every lane and port is armed
 *       |  |    \
 *       |  |     +--> SLEEPING   packets wake it anyway, so calls need not
 *       |  +----------- a bell, a packet, a timer; a call that leaves work behind
 *       |        |
 *       |        +--> ARMED      the next call of the application wakes it, so that it watches
 *       +-------------- the same, or any call of the application
 *
 * DRIVING takes turns, one thread_drive() each. WATCHING looks once per millisecond whether the
 * application still calls, and at the timers. The thread itself goes into every state but DRIVING,
 * under the drive lock; a thread that wakes it moves it to DRIVING (thread_wake()). */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"
#include "base/log.h"
#include "base/thread.h"
#include "port/bell.h"

#define DRIVEN_LOOKS 200u /* one pause instruction each: several microseconds */

/* What the thread remembers between turns. */
struct thread {
	struct hdl_adapter *adapter;
	uint32_t activity; /* drive.activity when it last looked, */
	uint32_t drives;   /* and drive.drives */
	unsigned awake;    /* turns in a row without sleep */
	bool prompt;       /* it has short time slices */
};

/* One turn: what was done, and what the application did meanwhile. */
struct turn {
	unsigned did;
	uint64_t now_ns;
	bool called;      /* the application called since the last turn, */
	bool interrupted; /* and during this one */
	bool cq_armed;    /* it waits for an event of a completion queue */
	bool owes;        /* an answer is held back: a delayed ACK */
};

void adapter_nudge(struct hdl_adapter *adapter)
{
	uint64_t one = 1;
	long done = syscall(SYS_write, adapter->drive.nudge, &one, sizeof(one)); /* base/cancel.h */
	(void)done; /* EAGAIN: the counter is at its maximum, so the thread wakes anyway */
}

void thread_wake(struct hdl_adapter *adapter, uint32_t least)
{
	uint32_t state = atomic_load_explicit(&adapter->drive.state, memory_order_relaxed);
	while (state >= least) {
		if (atomic_compare_exchange_weak_explicit(&adapter->drive.state, &state,
		                                          THREAD_DRIVING, memory_order_relaxed,
		                                          memory_order_relaxed)) {
			adapter_nudge(adapter);
			return;
		}
	}
}

void adapter_hand_bell(struct hdl_adapter *adapter, enum bell_holder holder)
{
	bool watch = holder == BELL_THREAD;
	struct epoll_event interest = {.events = watch ? EPOLLIN : 0, .data.u64 = EPOLL_BELL};
	if (watch != (adapter->drive.bell_holder == BELL_THREAD) &&
	    epoll_ctl(adapter->drive.epoll, EPOLL_CTL_MOD, adapter->drive.bell, &interest) != 0 &&
	    watch)
		holder = BELL_NOBODY; /* the thread tries again in its next turn */
	adapter->drive.bell_holder = holder;
}

/* --- waking up --- */

static void drain_nudge(struct hdl_adapter *adapter)
{
	uint64_t count;
	ssize_t got = read(adapter->drive.nudge, &count, sizeof(count));
	(void)got; /* EAGAIN: another thread was faster */
}

/* The bell rang: some lane is no longer armed. */
static void bell_rang(struct hdl_adapter *adapter)
{
	bell_hear(adapter->drive.bell);
	adapter_lock(adapter);
	adapter->drive.lanes_armed = false;
	adapter_unlock(adapter);
}

/* Sleep until something happens, or for @ns (UINT64_MAX: forever), and handle it. */
static void thread_sleep(struct hdl_adapter *adapter, uint64_t ns)
{
	struct timespec timeout = {.tv_sec = (time_t)(ns / 1000000000u),
	                           .tv_nsec = (long)(ns % 1000000000u)};
	struct pollfd pollfd = {.fd = adapter->drive.epoll, .events = POLLIN};
	if (ppoll(&pollfd, 1, ns == UINT64_MAX ? NULL : &timeout, NULL) <= 0)
		return;
	struct epoll_event events[16];
	int count = epoll_wait(adapter->drive.epoll, events, 16, 0);
	for (int i = 0; i < count; i++) {
		uint64_t which = events[i].data.u64;
		if (which == EPOLL_BELL) {
			bell_rang(adapter);
		} else if (which == EPOLL_NUDGE) {
			drain_nudge(adapter);
		} else if (which == EPOLL_AGENT) {
			agent_listen(adapter);
		} else if (which >= EPOLL_PORT && which < EPOLL_PORT + ENGINE_MAX_PORTS) {
			port_woke(adapter, which - EPOLL_PORT); /* the next turn receives */
		} else if (which >= EPOLL_HEAR && which < EPOLL_HEAR + ENGINE_MAX_PORTS) {
			port_heard(adapter, which - EPOLL_HEAR);
		} else {
			peers_died(adapter, (uint32_t)(which - EPOLL_PEER));
		}
	}
}

/* --- one turn --- */

/* Is the application driving? It has driven the adapter since the last turn, and it holds the lock
 * now or takes it again while we look. */
static bool is_driven(struct thread *thread)
{
	const struct drive *drive = &thread->adapter->drive;
	uint32_t now = atomic_load_explicit(&drive->drives, memory_order_relaxed);
	bool driven = now != thread->drives &&
	              atomic_load_explicit(&drive->armed_cqs, memory_order_relaxed) == 0;
	thread->drives = now;
	for (unsigned looks = 0; driven && looks < DRIVEN_LOOKS; looks++) {
		if (lock_held(&drive->lock) ||
		    atomic_load_explicit(&drive->drives, memory_order_relaxed) != now)
			return true;
		__builtin_ia32_pause();
	}
	return false;
}

/* Drive once. With the drive lock; @before: drive.activity before the thread waited for it. */
static struct turn thread_drive(struct thread *thread, uint32_t before)
{
	struct hdl_adapter *adapter = thread->adapter;
	struct drive *drive = &adapter->drive;
	struct turn turn = {0};
	uint64_t packets = net_received(&adapter->net);
	/* Delayed ACK: the application is active, but watches its memory instead of polling. It may
	 * send a reply to what it sees there now. */
	bool delay = before != thread->activity &&
	             atomic_load_explicit(&drive->armed_cqs, memory_order_relaxed) == 0;
	adapter->engine.delay_acks = delay;
	turn.did = adapter_drive_timed(adapter, &turn.now_ns);
	adapter->engine.delay_acks = false;
	turn.owes = delay && turn.did > 0 && engine_is_owing(&adapter->engine);
	recorder_flush(adapter);
	uint32_t activity = atomic_load_explicit(&drive->activity, memory_order_relaxed);
	turn.called = activity != thread->activity;
	turn.interrupted = activity != before;
	turn.cq_armed = atomic_load_explicit(&drive->armed_cqs, memory_order_relaxed) > 0;
	thread->activity = activity;
	if (drive->bell_holder == BELL_NOBODY)
		adapter_hand_bell(adapter, BELL_THREAD);
	if (turn.called && !turn.cq_armed && drive->lanes_fenced)
		adapter_ask_fences(adapter, false);
	if (adapter->net.port_count > 0) {
		uint64_t all = net_received(&adapter->net);
		busy_poll_took(&drive->busy_poll, turn.now_ns, all - packets, all);
	}
	return turn;
}

/* What comes after @turn. With the drive lock. */
static enum thread_state thread_next(struct hdl_adapter *adapter, const struct turn *turn)
{
	struct drive *drive = &adapter->drive;
	/* The application called during our turn, and would have to wait for us again: its next
	 * call does the remaining work. */
	bool theirs = turn->interrupted && !turn->cq_armed && !drive->busy_poll.wake_on_packet;
	bool rest = turn->did == 0 &&
	            (turn->called || !busy_poll_stay(&drive->busy_poll, turn->now_ns));
	if (!theirs && !rest)
		return THREAD_DRIVING;
	if (turn->called)
		return THREAD_WATCHING;
	/* While an application thread has the bell, nothing that arrives wakes this thread: the
	 * call that gives it back must. */
	return drive->busy_poll.wake_on_packet && drive->bell_holder != BELL_WAITER
	               ? THREAD_SLEEPING
	               : THREAD_ARMED;
}

/* How long a pause after @turn may be, as far as timers and peers go. With the drive lock. */
static uint64_t pause_limit(const struct hdl_adapter *adapter, const struct turn *turn)
{
	uint64_t next = adapter_next_tick(adapter);
	uint64_t ns = next == UINT64_MAX    ? UINT64_MAX
	              : next > turn->now_ns ? next - turn->now_ns
	                                    : 1;
	/* A peer makes room when it runs. If it never does, the operating system reports its
	 * death. */
	return adapter_is_stuck(adapter) && ns > ADAPTER_STUCK_NS ? ADAPTER_STUCK_NS : ns;
}

/* Prepare to watch. Returns for how long. With the drive lock. */
static uint64_t prepare_watch(struct hdl_adapter *adapter, const struct turn *turn)
{
	uint64_t ns = pause_limit(adapter, turn);
	if (turn->cq_armed) {
		adapter_arm(adapter);
		if (!engine_idle(&adapter->engine))
			return 0;
	} else if (adapter->drive.busy_poll.wake_on_packet) {
		ports_arm(adapter, adapter->drive.bell_holder != BELL_WAITER);
	}
	return ns < ADAPTER_WATCH_NS ? ns : ADAPTER_WATCH_NS;
}

/* Prepare to sleep. Returns for how long. With the drive lock. */
static uint64_t prepare_sleep(struct hdl_adapter *adapter, const struct turn *turn)
{
	uint64_t ns = pause_limit(adapter, turn);
	adapter_arm(adapter);
	return engine_idle(&adapter->engine) ? ns : 0; /* something came before it was armed */
}

/* Whoever drops a lock is the first to find it free. While packets keep coming, the thread would
 * take it again and again, and the program's calls would wait until the last packet: they go
 * first. */
static void thread_give_way(const struct drive *drive)
{
	for (unsigned yields = 0; yields < ADAPTER_GIVE_WAY &&
	                          atomic_load_explicit(&drive->wanted, memory_order_relaxed) > 0;
	     yields++)
		sched_yield();
}

/* One turn. Returns for how long the thread may pause. */
static uint64_t thread_turn(struct thread *thread)
{
	struct hdl_adapter *adapter = thread->adapter;
	struct drive *drive = &adapter->drive;
	uint64_t pause_ns = 0;
	/* The lock is held while bytes are copied and packets are sent. Waiting for it would occupy
	 * a processor, and then take over the application's turn. When the application does not
	 * hold the lock, for example because it only polls now and then, we do the work. */
	if (!drive->busy_poll.wake_on_packet && is_driven(thread)) {
		busy_poll_leave(&drive->busy_poll);
		thread->activity = atomic_load_explicit(&drive->activity, memory_order_relaxed);
		return ADAPTER_WATCH_NS;
	}
	uint32_t before = atomic_load_explicit(&drive->activity, memory_order_relaxed);
	thread_give_way(drive);
	adapter_lock(adapter);
	struct turn turn = thread_drive(thread, before);
	enum thread_state state = thread_next(adapter, &turn);
	if (state != THREAD_DRIVING) {
		atomic_store_explicit(&drive->state, state, memory_order_relaxed);
		pause_ns = state == THREAD_WATCHING ? prepare_watch(adapter, &turn)
		                                    : prepare_sleep(adapter, &turn);
		drive->wakes_ns =
		        pause_ns < UINT64_MAX - turn.now_ns ? turn.now_ns + pause_ns : UINT64_MAX;
	}
	lock_drop(&drive->lock); /* not adapter_unlock(): this is the thread that it would wake */
	/* Sleep instead of spinning: the application may want the processor that we run on. */
	return turn.owes && pause_ns < ADAPTER_DELAYED_ACK_NS ? ADAPTER_DELAYED_ACK_NS : pause_ns;
}

/* --- the thread --- */

/* Ask the scheduler for short time slices that start soon (since Linux 6.12; older kernels ignore
 * it), or for normal ones. Short slices are for the time in which packets wake the thread while the
 * application spins. Each slice preempts another thread, so they are not used longer than that. */
static void be_prompt(bool prompt)
{
	/* The first version of struct sched_attr. The kernel header that defines it conflicts with
	 * that of the C library. */
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {.size = sizeof(attr)};
	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) != 0 ||
	    (attr.policy != SCHED_OTHER && attr.policy != SCHED_BATCH))
		return;
	attr.runtime = prompt ? ADAPTER_SLICE_NS : 0;
	long done = syscall(SYS_sched_setattr, 0, &attr, 0);
	(void)done; /* on failure the thread runs like any other */
}

static void *thread_main(void *context)
{
	struct thread thread = {.adapter = context};
	struct hdl_adapter *adapter = context;
	struct drive *drive = &adapter->drive;
	prctl(PR_SET_TIMERSLACK,
	      ADAPTER_DELAYED_ACK_NS / 10); /* we sleep for less than the default slack */
	thread.activity = atomic_load_explicit(&drive->activity, memory_order_relaxed);
	thread.drives = atomic_load_explicit(&drive->drives, memory_order_relaxed);
	atomic_store_explicit(&adapter->peers.tables.header->thread, (uint32_t)gettid(),
	                      memory_order_relaxed);
	for (unsigned turns = 1; !atomic_load_explicit(&drive->quitting, memory_order_acquire);
	     turns++) {
		uint64_t pause_ns = thread_turn(&thread);
		if (atomic_load_explicit(&adapter->net.handler_due, memory_order_relaxed) &&
		    atomic_exchange_explicit(&adapter->net.handler_due, false,
		                             memory_order_acquire))
			conn_call_handler(adapter);
		if (drive->busy_poll.wake_on_packet != thread.prompt)
			be_prompt(thread.prompt = !thread.prompt);
		thread.awake = pause_ns == 0 ? thread.awake + 1 : 0;
		if (thread.awake == ADAPTER_AWAKE_TURNS) {
			adapter_lock(adapter);
			ports_unwatch(adapter);
			adapter_unlock(adapter);
		}
		/* Even under load we must notice that peers die and that the agent sends
		 * messages. */
		if (pause_ns > 0 || turns % ADAPTER_TICK_EVERY == 0)
			thread_sleep(adapter, pause_ns);
		atomic_store_explicit(&drive->state, THREAD_DRIVING, memory_order_relaxed);
	}
	atomic_store_explicit(&adapter->peers.tables.header->thread, 0, memory_order_relaxed);
	return NULL;
}

int adapter_start_thread(struct hdl_adapter *adapter)
{
	/* Signals that the thread raises itself are delivered to it: fault.c needs them. */
	int error = thread_start(&adapter->drive.thread, thread_main, adapter);
	if (error != 0) {
		errno = error;
		log_error("cannot start the adapter's thread: %m; end some programs, or raise "
		          "\"ulimit -u\" or \"ulimit -v\"");
		return -HDL_EIO;
	}
	adapter->drive.has_thread = true;
	return 0;
}

void adapter_stop_thread(struct hdl_adapter *adapter)
{
	if (!adapter->drive.has_thread)
		return;
	atomic_store_explicit(&adapter->drive.quitting, true, memory_order_release);
	adapter_nudge(adapter);
	pthread_join(adapter->drive.thread, NULL);
	adapter->drive.has_thread = false;
}
