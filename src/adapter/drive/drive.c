/* Which thread drives the adapter. An application thread that posts or polls drives it itself: no
 * hand-over, no system call. When no application thread does, the adapter's own thread takes over:
 *
 *   watching   the application was active recently: check once per millisecond whether it still
 *              is, and check the timers
 *   asleep     every lane is armed; the next frame rings the bell, a timer expires, or a call
 *              wakes it
 *
 * So an idle program uses no processor time, a polling program loses none, and a program that
 * computes still answers its peers. An application thread that waits for completions waits for the
 * bell itself (wait.c); during that time the adapter's thread does not. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/barrier.h"
#include "base/log.h"
#include "port/bell.h"
#include "transport/local/local.h"

#define DRIVEN_LOOKS 200u /* one pause instruction each: several microseconds */

void adapter_nudge(struct hdl_adapter *adapter)
{
	uint64_t one = 1;
	long done = syscall(SYS_write, adapter->drive.nudge, &one, sizeof(one)); /* base/cancel.h */
	(void)done; /* EAGAIN: the counter is at its maximum, so the thread wakes anyway */
}

static void drain(int fd)
{
	uint64_t count;
	ssize_t got = read(fd, &count, sizeof(count));
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

void adapter_watch_bell(struct hdl_adapter *adapter, bool watch)
{
	struct epoll_event interest = {.events = watch ? EPOLLIN : 0, .data.u64 = EPOLL_BELL};
	if (adapter->drive.bell_watched != watch &&
	    epoll_ctl(adapter->drive.epoll, EPOLL_CTL_MOD, adapter->drive.bell, &interest) == 0)
		adapter->drive.bell_watched = watch;
}

/* Sleep until something happens, or for @ns (UINT64_MAX: forever), and handle it. */
static void wait_bell(struct hdl_adapter *adapter, uint64_t ns)
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
			drain(adapter->drive.nudge);
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

static unsigned drive_locked(struct hdl_adapter *adapter)
{
	unsigned did = net_look(&adapter->net) + engine_run(&adapter->engine);
	uint32_t drives = atomic_load_explicit(&adapter->drive.drives, memory_order_relaxed) + 1;
	atomic_store_explicit(&adapter->drive.drives, drives, memory_order_relaxed);
	if (drives % ADAPTER_TICK_EVERY == 0) {
		uint64_t now = clock_read(&adapter->clock);
		did += engine_tick(&adapter->engine, now) + net_tick(&adapter->net, now);
		ports_unwatch(adapter);
	}
	return did;
}

/* Drive everything, timers included. Received packets come first: after a pause, an answer that is
 * already waiting must not be treated as missing. The clock is read after that: a new timer starts
 * now, not when we began to wait for the lock. */
static unsigned drive_timed(struct hdl_adapter *adapter, uint64_t *now)
{
	if (adapter->net.port_count > 0) /* answers are timed when they are received */
		adapter->engine.now_ns = clock_read(&adapter->clock);
	unsigned did = net_receive(&adapter->net) + engine_run(&adapter->engine);
	*now = clock_read(&adapter->clock);
	unsigned expired = engine_tick(&adapter->engine, *now) + net_tick(&adapter->net, *now);
	return did + expired + (expired > 0 ? engine_run(&adapter->engine) : 0);
}

bool adapter_is_stuck(const struct hdl_adapter *adapter)
{
	return engine_stuck(&adapter->engine) || net_blocked(&adapter->net);
}

void adapter_catch_up(struct hdl_adapter *adapter)
{
	net_receive(&adapter->net);
	engine_run(&adapter->engine);
}

/* When timers must be looked at next; UINT64_MAX: not before something else happens. */
static uint64_t next_tick(const struct hdl_adapter *adapter)
{
	uint64_t next = engine_next_tick(&adapter->engine), port = net_next_tick(&adapter->net);
	return port < next ? port : next;
}

void adapter_lock(struct hdl_adapter *adapter)
{
	lock_take(&adapter->drive.lock);
}

void adapter_unlock(struct hdl_adapter *adapter)
{
	/* The thread went to sleep before it could know of this timer, or of work that could not be
	 * finished. (It sets asleep while it holds the lock.) A caller that touched it may have
	 * been preempted since then, for longer than the thread watches. */
	bool news = atomic_load_explicit(&adapter->drive.asleep, memory_order_relaxed) &&
	            (next_tick(adapter) < adapter->drive.wakes_ns || adapter_is_stuck(adapter));
	lock_drop(&adapter->drive.lock);
	if (news && atomic_exchange_explicit(&adapter->drive.asleep, false, memory_order_relaxed))
		adapter_nudge(adapter);
}

/* Few programs have anything to log here, and those only once. */
static inline void say_what_is_due(struct hdl_adapter *adapter)
{
	if (atomic_load_explicit(&adapter->objects.not_ready_qpn, memory_order_relaxed) != 0)
		adapter_say_not_ready(adapter);
}

unsigned adapter_drive(struct hdl_adapter *adapter)
{
	if (!lock_try(&adapter->drive.lock))
		return 0;
	unsigned did = drive_locked(adapter);
	adapter_unlock(adapter);
	say_what_is_due(adapter);
	return did;
}

/* Drive on behalf of the application, which is going to call again. */
static void poll_locked(struct hdl_adapter *adapter)
{
	adapter->engine.by_application = true;
	drive_locked(adapter);
	adapter->engine.by_application = false;
}

void adapter_poll(struct hdl_adapter *adapter)
{
	if (!lock_try(&adapter->drive.lock))
		return;
	poll_locked(adapter);
	adapter_unlock(adapter);
	say_what_is_due(adapter);
}

int adapter_poll_cq(struct hdl_adapter *adapter, struct cq *cq, struct hdl_wc *wc, int max)
{
	struct engine *engine = &adapter->engine;
	int got = 0;
	if (!lock_try(&adapter->drive.lock))
		return 0;
	uint32_t link = engine_waiting(engine);
	if (link != LINK_NONE && cq_wait(cq, wc, max)) {
		local_short_poll(engine, link);
		got = cq_waited(cq, max);
	}
	if (got == 0 || engine_is_active(engine)) /* queue pairs that waited for an acknowledgement
	                                             continue */
		poll_locked(adapter);
	adapter_unlock(adapter);
	say_what_is_due(adapter);
	return got;
}

/* Either the thread that drives now picks up the work, or it has dropped the lock and we take it.
 * The thread that posts waits for one of the two, so the thread that drives need not check again
 * after it drops the lock. */
void adapter_doorbell(struct hdl_adapter *adapter, struct qp *qp)
{
	if (lock_try(&adapter->drive.lock)) {
		engine_post(&adapter->engine, qp);
		adapter_unlock(adapter);
		return;
	}
	mpsc_push(&adapter->engine.pending, &qp->pending);
	for (unsigned spins = 0; mpsc_queued(&qp->pending); spins++) {
		if (lock_try(&adapter->drive.lock)) {
			drive_locked(adapter);
			adapter_unlock(adapter);
			return;
		}
		lock_relax(spins);
	}
}

const struct hdl_send_wr *adapter_express(struct hdl_adapter *adapter, struct qp *qp,
                                          const struct hdl_send_wr *wr)
{
	/* Most requests that cannot use the fast path are detected without the lock. */
	if (!engine_fast(&adapter->engine) || qp->type != HDL_QP_RC || qp->link == LINK_NONE ||
	    !lock_try_for(&adapter->drive.lock, qp))
		return wr;
	if (lock_is_free(&qp->sq.post_lock)) {
		const struct hdl_send_wr *from;
		unsigned left = ENGINE_TX_BATCH; /* then other queue pairs have their turn */
		do {
			from = wr;
			wr = from->opcode == HDL_OP_SEND || from->opcode == HDL_OP_SEND_IMM
			             ? local_short_send(&adapter->engine, qp, from)
			             : local_express(&adapter->engine, qp, from);
		} while (wr != from && wr != NULL && --left > 0);
	}
	adapter_unlock(adapter);
	return wr;
}

void adapter_lock_sends(struct hdl_adapter *adapter, struct qp *qp)
{
	lock_take(&qp->sq.post_lock);
	for (unsigned spins = 0; lock_is_for(&adapter->drive.lock, qp); spins++)
		lock_relax(spins);
}

/* Set whether producers execute a barrier with each frame. With the drive lock. */
static void ask_fences(struct hdl_adapter *adapter, bool fence)
{
	for (uint32_t i = 0; i < adapter->engine.link_count; i++)
		if (adapter->peers.links[i].up)
			ring_ask_fence(&adapter->peers.links[i].rx, fence);
	adapter->drive.lanes_fenced = fence;
}

void adapter_arm(struct hdl_adapter *adapter)
{
	ports_arm(adapter, !adapter->drive.bell_taken);
	if (adapter->drive.lanes_armed)
		return;
	for (uint32_t i = 0; i < adapter->engine.link_count; i++)
		if (adapter->peers.links[i].up)
			ring_arm(&adapter->peers.links[i].rx);
	adapter->drive.lanes_armed = true;
	/* We arm the lanes frequently: from now on producers execute the barrier. */
	if (adapter->drive.barrier && !adapter->drive.lanes_fenced) {
		ask_fences(adapter, true);
		barrier_everyone();
	}
}

int hdl_progress(struct hdl_adapter *adapter)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return -HDL_EINVAL;
	adapter_touch(adapter);
	lock_take(&adapter->drive.lock);
	uint64_t now;
	unsigned did = drive_timed(adapter, &now);
	recorder_flush(adapter);
	adapter_unlock(adapter);
	return did > INT_MAX ? INT_MAX : (int)did;
}

/* Is the application driving? It has driven the adapter since the last turn, when the count was
 * *drives, and it holds the lock now or takes it again while we look. */
static bool is_driven(const struct hdl_adapter *adapter, uint32_t *drives)
{
	uint32_t now = atomic_load_explicit(&adapter->drive.drives, memory_order_relaxed);
	bool driven = now != *drives &&
	              atomic_load_explicit(&adapter->drive.armed_cqs, memory_order_relaxed) == 0;
	*drives = now;
	for (unsigned looks = 0; driven && looks < DRIVEN_LOOKS; looks++) {
		if (lock_held(&adapter->drive.lock) ||
		    atomic_load_explicit(&adapter->drive.drives, memory_order_relaxed) != now)
			return true;
		__builtin_ia32_pause();
	}
	return false;
}

/* One turn of the thread. Returns for how long it may sleep. */
static uint64_t thread_turn(struct hdl_adapter *adapter, uint32_t *last_activity,
                            uint32_t *last_drives)
{
	uint64_t now, sleep_ns = 0;
	/* The lock is held while bytes are copied and packets are sent. Waiting for it would occupy
	 * a processor, and then take over the application's turn. When the application does not
	 * hold the lock, for example because it only polls now and then, we do the work. */
	if (!adapter->drive.busy_poll.eager && is_driven(adapter, last_drives)) {
		busy_poll_leave(&adapter->drive.busy_poll);
		*last_activity =
		        atomic_load_explicit(&adapter->drive.activity, memory_order_relaxed);
		return ADAPTER_WATCH_NS;
	}
	uint32_t before = atomic_load_explicit(&adapter->drive.activity, memory_order_relaxed);
	lock_take(&adapter->drive.lock);
	uint64_t packets = net_received(&adapter->net);
	/* Delayed ACK: the application is active, but watches its memory instead of polling. It may
	 * send a reply to what it sees there now. */
	adapter->engine.patient =
	        before != *last_activity &&
	        atomic_load_explicit(&adapter->drive.armed_cqs, memory_order_relaxed) == 0;
	unsigned did = drive_timed(adapter, &now);
	bool patient = adapter->engine.patient && did > 0 && engine_is_owing(&adapter->engine);
	adapter->engine.patient = false;
	recorder_flush(adapter);
	uint32_t activity = atomic_load_explicit(&adapter->drive.activity, memory_order_relaxed);
	bool watching = activity != *last_activity;
	bool armed = atomic_load_explicit(&adapter->drive.armed_cqs, memory_order_relaxed) > 0;
	*last_activity = activity;
	if (!adapter->drive.bell_taken)
		adapter_watch_bell(adapter, true);
	if (watching && !armed && adapter->drive.lanes_fenced)
		ask_fences(adapter, false);
	if (adapter->net.port_count > 0) {
		uint64_t all = net_received(&adapter->net);
		busy_poll_took(&adapter->drive.busy_poll, now, all - packets, all);
	}
	/* The application called during our turn, and would have to wait for us again: its next
	 * call does the remaining work. */
	bool theirs = activity != before && !armed && !adapter->drive.busy_poll.eager;
	if (theirs || (did == 0 && (watching || !busy_poll_stay(&adapter->drive.busy_poll, now)))) {
		uint64_t next = next_tick(adapter);
		sleep_ns = next == UINT64_MAX ? UINT64_MAX : next > now ? next - now : 1;
		if (watching && sleep_ns > ADAPTER_WATCH_NS)
			sleep_ns = ADAPTER_WATCH_NS;
		/* A peer makes room when it runs. If it never does, the operating system reports
		 * its death. */
		if (adapter_is_stuck(adapter) && sleep_ns > ADAPTER_STUCK_NS)
			sleep_ns = ADAPTER_STUCK_NS;
		if (!watching || armed) {
			if (!watching) {
				atomic_store_explicit(&adapter->drive.asleep, true,
				                      memory_order_relaxed);
				/* While an application thread has the bell, nothing that arrives
				 * wakes this thread: the call that gives it back must. */
				atomic_store_explicit(&adapter->drive.drowsy,
				                      !adapter->drive.busy_poll.eager ||
				                              adapter->drive.bell_taken,
				                      memory_order_relaxed);
			}
			adapter_arm(adapter);
			if (!engine_idle(&adapter->engine))
				sleep_ns = 0;
		} else if (adapter->drive.busy_poll.eager) {
			ports_arm(adapter, !adapter->drive.bell_taken);
		}
		adapter->drive.wakes_ns = sleep_ns < UINT64_MAX - now ? now + sleep_ns : UINT64_MAX;
	}
	lock_drop(&adapter->drive.lock); /* not adapter_unlock(): this is the thread that it would
	                                    wake */
	/* Sleep instead of spinning: the application may want the processor that we run on. */
	return patient && sleep_ns < ADAPTER_PATIENCE_NS ? ADAPTER_PATIENCE_NS : sleep_ns;
}

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
	struct hdl_adapter *adapter = context;
	prctl(PR_SET_TIMERSLACK,
	      ADAPTER_PATIENCE_NS / 10); /* we sleep for less than the default slack */
	uint32_t last_activity =
	        atomic_load_explicit(&adapter->drive.activity, memory_order_relaxed);
	uint32_t last_drives = atomic_load_explicit(&adapter->drive.drives, memory_order_relaxed);
	unsigned awake = 0; /* turns in a row without sleep */
	bool prompt = false;
	atomic_store_explicit(&adapter->peers.tables.header->thread, (uint32_t)gettid(),
	                      memory_order_relaxed);
	for (unsigned turns = 1;
	     !atomic_load_explicit(&adapter->drive.quitting, memory_order_acquire); turns++) {
		uint64_t sleep_ns = thread_turn(adapter, &last_activity, &last_drives);
		if (adapter->drive.busy_poll.eager != prompt)
			be_prompt(prompt = !prompt);
		awake = sleep_ns == 0 ? awake + 1 : 0;
		if (awake == ADAPTER_AWAKE_TURNS) {
			adapter_lock(adapter);
			ports_unwatch(adapter);
			adapter_unlock(adapter);
		}
		/* Even under load we must notice that peers die and that the agent sends
		 * messages. */
		if (sleep_ns > 0 || turns % ADAPTER_TICK_EVERY == 0)
			wait_bell(adapter, sleep_ns);
		atomic_store_explicit(&adapter->drive.asleep, false, memory_order_relaxed);
	}
	atomic_store_explicit(&adapter->peers.tables.header->thread, 0, memory_order_relaxed);
	return NULL;
}

int adapter_start_thread(struct hdl_adapter *adapter)
{
	/* Signals belong to the program and go to its threads, except for those that a thread
	 * raises itself: fault.c needs them. */
	sigset_t program, before;
	sigfillset(&program);
	sigdelset(&program, SIGSEGV);
	sigdelset(&program, SIGBUS);
	sigdelset(&program, SIGFPE);
	sigdelset(&program, SIGILL);
	pthread_sigmask(SIG_SETMASK, &program, &before);
	int error = pthread_create(&adapter->drive.thread, NULL, thread_main, adapter);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
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
