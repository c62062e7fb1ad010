/* Which thread drives the adapter. An application thread that posts or polls drives it itself: no
 * hand-over, no system call. When no application thread does, the adapter's own thread takes over
 * (thread.c). So an idle program uses no processor time, a polling program loses none, and a
 * program that computes still answers its peers. An application thread that waits for completions
 * waits for the bell itself (wait.c); during that time the adapter's thread does not. */
#include <limits.h>

#include "adapter/adapter.h"
#include "base/barrier.h"
#include "transport/local/local.h"

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

/* Received packets come first: after a pause, an answer that is already waiting must not be treated
 * as missing. The clock is read after that: a new timer starts now, not when we began to wait for
 * the lock. */
unsigned adapter_drive_timed(struct hdl_adapter *adapter, uint64_t *now)
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

uint64_t adapter_next_tick(const struct hdl_adapter *adapter)
{
	uint64_t next = engine_next_tick(&adapter->engine), port = net_next_tick(&adapter->net);
	return port < next ? port : next;
}

void adapter_lock(struct hdl_adapter *adapter)
{
	struct drive *drive = &adapter->drive;
	if (lock_try(&drive->lock))
		return;
	atomic_fetch_add_explicit(&drive->wanted, 1, memory_order_relaxed);
	lock_take(&drive->lock);
	atomic_fetch_sub_explicit(&drive->wanted, 1, memory_order_relaxed);
}

/* The thread went to sleep before it could know of this timer, or of work that could not be
 * finished. (It holds the lock when it does so.) A caller that touched it may have been preempted
 * since then, for longer than the thread watches. */
static inline void unlock_and_tell(struct hdl_adapter *adapter, bool goes_on)
{
	uint32_t state = atomic_load_explicit(&adapter->drive.state, memory_order_relaxed);
	bool news =
	        state >= THREAD_SLEEPING && (adapter_next_tick(adapter) < adapter->drive.wakes_ns ||
	                                     (!goes_on && adapter_is_stuck(adapter)));
	lock_drop(&adapter->drive.lock);
	if (news)
		thread_wake(adapter, THREAD_SLEEPING);
}

void adapter_unlock(struct hdl_adapter *adapter)
{
	unlock_and_tell(adapter, false);
}

void adapter_unlock_to_wait(struct hdl_adapter *adapter)
{
	unlock_and_tell(adapter, true);
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
		/* Posts in a row may keep the adapter's thread from the lock, and nobody would
		 * receive: a program whose sends complete at once need not poll in between. */
		if (atomic_load_explicit(&adapter->drive.wanted, memory_order_relaxed) > 0)
			drive_locked(adapter);
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

void adapter_ask_fences(struct hdl_adapter *adapter, bool fence)
{
	for (uint32_t i = 0; i < adapter->engine.link_count; i++)
		if (adapter->peers.links[i].up)
			ring_ask_fence(&adapter->peers.links[i].rx, fence);
	adapter->drive.lanes_fenced = fence;
}

void adapter_arm(struct hdl_adapter *adapter)
{
	ports_arm(adapter, adapter->drive.bell_holder != BELL_WAITER);
	if (adapter->drive.lanes_armed)
		return;
	for (uint32_t i = 0; i < adapter->engine.link_count; i++)
		if (adapter->peers.links[i].up)
			ring_arm(&adapter->peers.links[i].rx);
	adapter->drive.lanes_armed = true;
	/* We arm the lanes frequently: from now on producers execute the barrier. */
	if (adapter->drive.barrier && !adapter->drive.lanes_fenced) {
		adapter_ask_fences(adapter, true);
		barrier_everyone();
	}
}

int hdl_progress(struct hdl_adapter *adapter)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return -HDL_EINVAL;
	adapter_touch(adapter);
	adapter_lock(adapter);
	uint64_t now;
	unsigned did = adapter_drive_timed(adapter, &now);
	recorder_flush(adapter);
	adapter_unlock(adapter);
	return did > INT_MAX ? INT_MAX : (int)did;
}
