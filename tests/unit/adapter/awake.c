/* Nobody falls silent. Two adapters on UDP sockets of the loopback, which lose packets, each with
 * its thread; and two programs that poll, sleep on the descriptor of their channel, look now and
 * then without waiting, or wait in hdl_channel_get(), as chance has it. Whoever drives when the
 * thread goes to sleep: timers run, the sockets are read, and every message is answered in the end.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter/adapter.h"
#include "adapter/net/udp.h"

#define ROUNDS    2000
#define LOSS      40     /* packets in a thousand */
#define BYTES     20000u /* of the longest message */
#define RECEIVES  4u
#define SILENT_NS 20000000000u /* nothing for so long: somebody sleeps who should not */

struct side {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_channel *channel;
	struct hdl_cq *cq;
	struct hdl_qp *qp;
	struct hdl_mr *mr;
	uint8_t mem[2 * BYTES];
	struct prng prng, losing; /* the program's; with the drive lock */
	struct udp_address address;
	unsigned sent, received;
};

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pause_ns(uint64_t ns)
{
	struct timespec time = {.tv_nsec = (long)ns};
	nanosleep(&time, NULL);
}

static void lossy_take(void *context, const struct path *came, bool congested,
                       const struct ib_packet *packet)
{
	struct side *side = context;
	if (!prng_chance(&side->losing, LOSS))
		ib_take(&side->adapter->engine, came, congested, packet);
}

/* An address of this process's own: others may run this test at the same time. */
static struct udp_address own_address(unsigned which)
{
	struct udp_address address = {.gid = {[10] = 0xff, [11] = 0xff, [12] = 127}};
	unsigned pid = (unsigned)getpid();
	address.gid[13] = (uint8_t)(194 + which);
	address.gid[14] = (uint8_t)(pid >> 8);
	address.gid[15] = (uint8_t)pid;
	return address;
}

static void open_side(struct side *side, unsigned which)
{
	prng_seed(&side->prng, which + 1);
	prng_seed(&side->losing, which + 11);
	side->sent = side->received = 0;
	side->address = own_address(which);
	struct hdl_open_attr attr = {.max_qp = 64, .max_mr = 64, .capture = ""};
	memcpy(attr.gid.raw, side->address.gid, 16);
	assert_int_equal(hdl_open(&attr, &side->adapter), 0);
	struct agent_msg welcome = {
	        .u.welcome = {.wire_mtu = 1024, .wire_count = 1, .wires = {side->address}}};
	int sock = udp_open(&side->address, UDP_ROCE_PORT);
	assert_true(sock >= 0);
	assert_int_equal(net_attach(side->adapter, &welcome, &sock), 0);
	adapter_lock(side->adapter);
	struct udp_wire *wire = udp_wire_of(side->adapter->net.ports[0]);
	wire->slot_shift = 24; /* all of them are ours */
	wire->take = lossy_take;
	wire->take_context = side;
	adapter_unlock(side->adapter);
	assert_int_equal(hdl_pd_create(side->adapter, &side->pd), 0);
	assert_int_equal(hdl_channel_create(side->adapter, &side->channel), 0);
	assert_int_equal(hdl_cq_create(side->adapter, 64, side->channel, NULL, &side->cq), 0);
	assert_int_equal(hdl_mr_register(side->pd, side->mem, sizeof(side->mem),
	                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE, &side->mr),
	                 0);
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = side->cq,
	                                .recv_cq = side->cq,
	                                .cap = {16, 16, 1, 1, 0}};
	assert_int_equal(hdl_qp_create(side->pd, &init, &side->qp), 0);
}

static void connect_to(struct side *side, const struct side *other)
{
	struct hdl_qp_attr attr = {
	        .state = HDL_QPS_INIT,
	        .port_num = 1,
	        .ah = {.port_num = 1, .is_global = true, .hop_limit = 64},
	        .path_mtu = 1024,
	        .dest_qpn = hdl_qp_number(other->qp),
	        .min_rnr_timer = 1,
	        .timeout = 16,
	        .retry_cnt = 7,
	        .rnr_retry = 7,
	};
	memcpy(attr.ah.dgid.raw, other->address.gid, 16);
	assert_int_equal(
	        hdl_qp_modify(side->qp, &attr,
	                      HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS),
	        0);
	attr.state = HDL_QPS_RTR;
	assert_int_equal(hdl_qp_modify(side->qp, &attr,
	                               HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU |
	                                       HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                                       HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER),
	                 0);
	attr.state = HDL_QPS_RTS;
	assert_int_equal(hdl_qp_modify(side->qp, &attr,
	                               HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT |
	                                       HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
	                                       HDL_QP_MAX_RD_ATOMIC),
	                 0);
}

static void close_side(struct side *side)
{
	assert_int_equal(hdl_qp_destroy(side->qp), 0);
	assert_int_equal(hdl_mr_deregister(side->mr), 0);
	assert_int_equal(hdl_cq_destroy(side->cq), 0);
	assert_int_equal(hdl_channel_destroy(side->channel), 0);
	assert_int_equal(hdl_pd_destroy(side->pd), 0);
	assert_int_equal(hdl_close(side->adapter), 0);
}

static int open_both(void **state)
{
	struct side *sides = calloc(2, sizeof(*sides));
	assert_non_null(sides);
	setenv("HEDDLE_LOCAL", "off", 1);
	for (unsigned i = 0; i < 2; i++)
		open_side(&sides[i], i);
	for (unsigned i = 0; i < 2; i++)
		connect_to(&sides[i], &sides[1 - i]);
	*state = sides;
	return 0;
}

static int close_both(void **state)
{
	struct side *sides = *state;
	for (unsigned i = 0; i < 2; i++)
		close_side(&sides[i]);
	free(sides);
	return 0;
}

/* --- programs --- */

static void post_receive(struct side *side)
{
	struct hdl_sge sge = {
	        .addr = (uintptr_t)side->mem + BYTES, .length = BYTES, .key = hdl_mr_key(side->mr)};
	struct hdl_recv_wr wr = {.sg_list = &sge, .num_sge = 1};
	assert_int_equal(hdl_post_recv(side->qp, &wr, NULL), 0);
}

static void post_message(struct side *side)
{
	struct hdl_sge sge = {.addr = (uintptr_t)side->mem,
	                      .length = prng_chance(&side->prng, 700)
	                                        ? 8
	                                        : 1 + (uint32_t)prng_below(&side->prng, BYTES),
	                      .key = hdl_mr_key(side->mr)};
	struct hdl_send_wr wr = {
	        .sg_list = &sge, .num_sge = 1, .opcode = HDL_OP_SEND, .flags = HDL_SEND_SIGNALED};
	assert_int_equal(hdl_post_send(side->qp, &wr, NULL), 0);
}

static bool take_completion(struct side *side)
{
	struct hdl_wc wc;
	int got = hdl_cq_poll(side->cq, &wc, 1);
	assert_in_range(got, 0, 1);
	if (got == 0)
		return false;
	if (wc.status != HDL_WC_SUCCESS) {
		printf("a completion failed: %d\n", (int)wc.status);
		abort(); /* in whichever thread */
	}
	if (wc.opcode == HDL_WC_RECV)
		side->received++;
	else
		side->sent++;
	return true;
}

/* Nothing is there: come back when there may be. */
static void wait_somehow(struct side *side)
{
	struct hdl_cq *cq;
	struct pollfd fd = {.fd = hdl_channel_fd(side->channel), .events = POLLIN};
	int result = -HDL_EAGAIN;
	uint64_t how = prng_below(&side->prng, 5), give_up = now_ns() + SILENT_NS;
	if (how == 0) {
		sched_yield();
		return;
	}
	assert_int_equal(hdl_cq_arm(side->cq, false), 0);
	if (how == 1 || take_completion(side)) /* whoever looks after arming misses nothing; */
		return;
	while (result == -HDL_EAGAIN) {
		if (now_ns() > give_up) {
			printf("silence: %u sent, %u received\n", side->sent, side->received);
			abort();
		}
		if (how == 2)
			result = hdl_channel_get(side->channel, &cq, NULL, 1000);
		else if (how == 3 && poll(&fd, 1, 1000) >= 0)
			result = hdl_channel_get(side->channel, &cq, NULL, 0);
		else if (how == 4) { /* drives, and says nothing to the thread */
			pause_ns(prng_below(&side->prng, 1000000));
			result = hdl_channel_get(side->channel, &cq, NULL, 0);
		}
	}
	assert_int_equal(result, 0);
	assert_int_equal(hdl_cq_ack(cq, 1), 0);
}

/* Until @sent and @received have completed. */
static void await(struct side *side, unsigned sent, unsigned received)
{
	uint64_t give_up = now_ns() + SILENT_NS;
	while ((int)(side->sent - sent) < 0 || (int)(side->received - received) < 0) {
		if (take_completion(side)) {
			give_up = now_ns() + SILENT_NS;
			continue;
		}
		if (now_ns() > give_up) {
			printf("silence: %u sent, %u received\n", side->sent, side->received);
			abort();
		}
		wait_somehow(side);
	}
}

static void *echo(void *context)
{
	struct side *side = context;
	for (unsigned i = 0; i < ROUNDS; i++) {
		await(side, i, i + 1);
		post_receive(side);
		if (prng_chance(&side->prng, 300)) /* and the thread goes to sleep meanwhile */
			pause_ns(prng_below(&side->prng, 5000000));
		post_message(side);
	}
	await(side, ROUNDS, ROUNDS);
	return NULL;
}

static void every_message_is_answered(void **state)
{
	struct side *sides = *state;
	pthread_t thread;
	for (unsigned i = 0; i < 2 * RECEIVES; i++)
		post_receive(&sides[i % 2]);
	assert_int_equal(pthread_create(&thread, NULL, echo, &sides[1]), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		post_message(&sides[0]);
		await(&sides[0], i + 1, i + 1);
		post_receive(&sides[0]);
		if (prng_chance(&sides[0].prng, 300))
			pause_ns(prng_below(&sides[0].prng, 5000000));
	}
	pthread_join(thread, NULL);
}

/* --- the thread sleeps --- */

static void let_it_sleep(struct hdl_adapter *adapter)
{
	uint64_t give_up = now_ns() + SILENT_NS;
	while (atomic_load(&adapter->drive.state) < THREAD_SLEEPING) {
		assert_true(now_ns() < give_up);
		pause_ns(1000000);
	}
}

/* A caller wants a timer and starts it, too, before it lets go of the lock. */
static void a_timer_that_was_started_is_heard_of(void **state)
{
	struct side *sides = *state;
	struct hdl_adapter *adapter = sides[0].adapter;
	struct qp *qp = &sides[0].qp->qp;
	let_it_sleep(adapter);
	lock_take(&adapter->drive.lock);
	qp->waiting = true; /* as for a receiver that is not ready: over when the time is */
	engine_want_timer(&adapter->engine, qp, 2000000);
	adapter->drive.drives = ADAPTER_TICK_EVERY - 1;
	lock_drop(&adapter->drive.lock);
	adapter_drive(adapter); /* starts it */
	uint64_t give_up = now_ns() + SILENT_NS;
	for (bool waiting = true; waiting;) {
		assert_true(now_ns() < give_up);
		pause_ns(1000000);
		lock_take(&adapter->drive.lock);
		waiting = qp->waiting;
		lock_drop(&adapter->drive.lock);
	}
}

static void await_nothing_owed(struct hdl_adapter *adapter)
{
	uint64_t give_up = now_ns() + SILENT_NS;
	for (bool owing = true; owing;) {
		assert_true(now_ns() < give_up);
		pause_ns(1000000);
		lock_take(&adapter->drive.lock);
		owing = engine_is_owing(&adapter->engine);
		lock_drop(&adapter->drive.lock);
	}
}

/* A caller leaves something undone, and does not call again. */
static void what_is_left_is_finished(void **state)
{
	struct side *sides = *state;
	struct hdl_adapter *adapter = sides[0].adapter;
	let_it_sleep(adapter);
	adapter_lock(adapter);
	engine_owe(&adapter->engine, &sides[0].qp->qp);
	adapter_unlock(adapter);
	await_nothing_owed(adapter);
}

/* A thread that takes the bell and finds something that it cannot finish repeats that itself: the
 * adapter's thread goes on sleeping. Once the waiter is away, the thread is woken for it. */
static void a_waiter_repeats_what_is_left(void **state)
{
	struct side *sides = *state;
	struct hdl_adapter *adapter = sides[0].adapter;
	let_it_sleep(adapter);
	adapter_lock(adapter);
	uint32_t asleep = atomic_load(&adapter->drive.state);
	assert_true(asleep >= THREAD_SLEEPING);
	engine_owe(&adapter->engine, &sides[0].qp->qp);
	assert_true(adapter_is_stuck(adapter));
	adapter_unlock_to_wait(adapter);
	assert_int_equal(atomic_load(&adapter->drive.state), asleep);
	adapter_lock(adapter);
	assert_true(adapter_is_stuck(adapter));
	adapter_unlock(adapter);
	await_nothing_owed(adapter);
	/* hdl_poll() does so: it answers before it sleeps. */
	const struct timespec moment = {.tv_nsec = 1};
	adapter_lock(adapter);
	engine_owe(&adapter->engine, &sides[0].qp->qp);
	adapter_unlock_to_wait(adapter);
	assert_int_equal(hdl_poll(adapter, NULL, 0, &moment, NULL), 0);
	lock_take(&adapter->drive.lock);
	assert_false(engine_is_owing(&adapter->engine));
	lock_drop(&adapter->drive.lock);
}

/* Packets wake the thread, which therefore does not ask callers to; but not while an application
 * thread waits for them. That one returns to work of its own: the next packet wakes the thread,
 * whether it went to sleep before the wait or during it. */
static void the_thread_takes_over_from_a_waiter(void **state)
{
	struct side *sides = *state;
	struct hdl_adapter *adapter = sides[1].adapter;
	const struct timespec until_it_sleeps = {.tv_nsec = 100000000}, moment = {.tv_nsec = 1};
	adapter_stop_thread(adapter); /* it alone uses busy_poll */
	adapter->drive.busy_poll.wake_on_packet = true;
	adapter->drive.busy_poll.window_ns = UINT64_MAX; /* and it stays so */
	atomic_store(&adapter->drive.quitting, false);
	assert_int_equal(adapter_start_thread(adapter), 0);
	for (unsigned round = 0; round < 2; round++) {
		post_receive(&sides[1]);
		hdl_progress(adapter); /* the thread watches for a moment before it sleeps again */
		if (round == 0)
			let_it_sleep(adapter);
		assert_int_equal(
		        hdl_poll(adapter, NULL, 0, round == 0 ? &moment : &until_it_sleeps, NULL),
		        0);
		post_message(&sides[0]);
		await(&sides[0], round + 1, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(a_timer_that_was_started_is_heard_of, open_both,
	                                        close_both),
	        cmocka_unit_test_setup_teardown(what_is_left_is_finished, open_both, close_both),
	        cmocka_unit_test_setup_teardown(a_waiter_repeats_what_is_left, open_both,
	                                        close_both),
	        cmocka_unit_test_setup_teardown(the_thread_takes_over_from_a_waiter, open_both,
	                                        close_both),
	        cmocka_unit_test_setup_teardown(every_message_is_answered, open_both, close_both),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
