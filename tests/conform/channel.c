/* Completion channels: one file descriptor for many completion queues, one event per arming of a
 * queue. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "conform.h"

static bool readable(int fd)
{
	struct pollfd one = {.fd = fd, .events = POLLIN};
	return poll(&one, 1, 0) == 1;
}

/* The event for @cq arrives. Waits as applications do, for the file descriptor. */
static void expect_channel(struct world *w, struct hdl_channel *channel, struct hdl_cq *cq,
                           void *context)
{
	uint64_t start = world_now(w);
	while (!readable(hdl_channel_fd(channel))) {
		if (world_expired(w, start))
			fail_msg("no completion event");
		world_pump(w);
	}
	struct hdl_cq *which;
	void *what;
	assert_int_equal(hdl_channel_get(channel, &which, &what, 0), 0);
	assert_ptr_equal(which, cq);
	assert_ptr_equal(what, context);
	assert_int_equal(hdl_cq_ack(which, 1), 0);
}

static void expect_quiet(struct world *w, struct hdl_channel *channel)
{
	struct hdl_cq *cq;
	void *context;
	world_settle(w);
	assert_false(readable(hdl_channel_fd(channel)));
	assert_int_equal(hdl_channel_get(channel, &cq, &context, 0), -HDL_EAGAIN);
}

/* A pair whose receives at b report to @channel. */
struct armed {
	struct hdl_qp *qa, *qb;
	struct hdl_channel *channel;
	struct hdl_cq *cq;
	int context;
};

static void make_armed(struct world *w, struct armed *x)
{
	x->channel = make_channel(&w->b);
	x->cq = make_cq(&w->b, 64, x->channel, &x->context);
	x->qa = make_qp(&w->a, NULL);
	x->qb = make_qp(&w->b, &(struct qp_options){.rcq = x->cq});
	connect_pair(w, NULL, x->qa, x->qb);
}

static void send_one(struct world *w, struct armed *x, uint32_t flags)
{
	post_recv(x->qb, 1, &w->b, 0, 0);
	post_send(x->qa, (struct hdl_send_wr){.wr_id = 2,
	                                      .opcode = HDL_OP_SEND,
	                                      .flags = HDL_SEND_SIGNALED | flags});
	expect_sent(w, w->a.scq, x->qa, 2, HDL_WC_SEND, 0);
}

static void one_event_each_time_it_is_armed(void **state)
{
	struct world *w = *state;
	struct armed x;
	make_armed(w, &x);
	send_one(w, &x, 0); /* not armed */
	expect_quiet(w, x.channel);
	expect_received(w, x.cq, x.qb, x.qa, 1, 0);
	assert_int_equal(hdl_cq_arm(x.cq, false), 0);
	expect_quiet(w, x.channel);
	for (int round = 0; round < 5; round++) {
		send_one(w, &x, 0);
		send_one(w, &x, 0);
		expect_channel(w, x.channel, x.cq, &x.context);
		expect_quiet(w, x.channel); /* two completions, one event */
		expect_received(w, x.cq, x.qb, x.qa, 1, 0);
		expect_received(w, x.cq, x.qb, x.qa, 1, 0);
		assert_int_equal(hdl_cq_arm(x.cq, false), 0);
		assert_int_equal(hdl_cq_arm(x.cq, false),
		                 0); /* twice has the same effect as once */
	}
}

/* Completions that are in a queue when it is armed raise the event, so that a program may poll, arm
 * and wait. */
static void arming_a_queue_with_completions_raises_the_event(void **state)
{
	struct world *w = *state;
	struct armed x;
	make_armed(w, &x);
	for (int round = 0; round < 3; round++) {
		send_one(w, &x, 0);
		send_one(w, &x, 0);
		expect_quiet(w, x.channel);
		assert_int_equal(hdl_cq_arm(x.cq, false), 0);
		expect_channel(w, x.channel, x.cq, &x.context);
		expect_quiet(w, x.channel);
		/* That event has been raised: programs arm before they poll, and do not expect
		 * another event for what they then poll. */
		assert_int_equal(hdl_cq_arm(x.cq, false), 0);
		expect_quiet(w, x.channel);
		/* The first of two has been polled: the other one counts. */
		expect_received(w, x.cq, x.qb, x.qa, 1, 0);
		assert_int_equal(hdl_cq_arm(x.cq, false), 0);
		expect_channel(w, x.channel, x.cq, &x.context);
		expect_received(w, x.cq, x.qb, x.qa, 1, 0);
		/* The event disarmed the queue. */
		send_one(w, &x, 0);
		expect_quiet(w, x.channel);
		expect_received(w, x.cq, x.qb, x.qa, 1, 0);
	}
}

/* However often a program arms without taking the event, there is only one. And the queue is armed
 * for what comes next. */
static void arming_again_and_again_raises_one_event(void **state)
{
	struct world *w = *state;
	struct armed x;
	make_armed(w, &x);
	send_one(w, &x, 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(hdl_cq_arm(x.cq, i % 2 == 1), 0);
	expect_channel(w, x.channel, x.cq, &x.context);
	expect_quiet(w, x.channel);
	expect_received(w, x.cq, x.qb, x.qa, 1, 0);
	send_one(w, &x, 0);
	expect_channel(w, x.channel, x.cq, &x.context);
	expect_received(w, x.cq, x.qb, x.qa, 1, 0);
	expect_quiet(w, x.channel);
}

static void arming_for_solicited_looks_for_solicited(void **state)
{
	struct world *w = *state;
	struct armed x;
	make_armed(w, &x);
	send_one(w, &x, HDL_SEND_SOLICITED);
	send_one(w, &x, 0);
	assert_int_equal(hdl_cq_arm(x.cq, true), 0);
	expect_channel(w, x.channel, x.cq, &x.context);
	expect_received(w, x.cq, x.qb, x.qa, 1, 0);
	/* The solicited completion is gone, and the other one does not count. */
	assert_int_equal(hdl_cq_arm(x.cq, true), 0);
	expect_quiet(w, x.channel);
	assert_int_equal(hdl_cq_arm(x.cq, false), 0);
	expect_channel(w, x.channel, x.cq, &x.context);
	expect_received(w, x.cq, x.qb, x.qa, 1, 0);
	/* Failed requests count as solicited. */
	post_recv(x.qb, 1, &w->b, 0, 0);
	qp_go(x.qb, HDL_QPS_ERR);
	world_settle(w);
	assert_int_equal(hdl_cq_arm(x.cq, true), 0);
	expect_channel(w, x.channel, x.cq, &x.context);
	expect_flushed(w, x.cq, x.qb, 1);
}

/* Poll until @cq is empty. */
static void empty(struct armed *x)
{
	struct hdl_wc wc;
	while (hdl_cq_poll(x->cq, &wc, 1) == 1)
		;
}

static void armed_for_solicited_only(void **state)
{
	struct world *w = *state;
	struct armed x;
	make_armed(w, &x);
	assert_int_equal(hdl_cq_arm(x.cq, true), 0);
	send_one(w, &x, 0);
	expect_quiet(w, x.channel);
	send_one(w, &x, HDL_SEND_SOLICITED);
	expect_channel(w, x.channel, x.cq, &x.context);
	send_one(w, &x, HDL_SEND_SOLICITED);
	expect_quiet(w, x.channel); /* not armed again */
	empty(&x);
	/* Arming for any is stronger than arming for solicited ones. */
	assert_int_equal(hdl_cq_arm(x.cq, false), 0);
	assert_int_equal(hdl_cq_arm(x.cq, true), 0);
	send_one(w, &x, 0);
	expect_channel(w, x.channel, x.cq, &x.context);
	empty(&x);
	assert_int_equal(hdl_cq_arm(x.cq, true), 0);
	assert_int_equal(hdl_cq_arm(x.cq, false), 0);
	send_one(w, &x, 0);
	expect_channel(w, x.channel, x.cq, &x.context);
	empty(&x);
	/* A write with immediate data can be solicited as well. */
	assert_int_equal(hdl_cq_arm(x.cq, true), 0);
	post_recv(x.qb, 1, &w->b, 0, 0);
	post_send(x.qa,
	          (struct hdl_send_wr){.opcode = HDL_OP_WRITE_IMM, .flags = HDL_SEND_SOLICITED});
	expect_channel(w, x.channel, x.cq, &x.context);
}

static void failed_completions_count_as_solicited(void **state)
{
	struct world *w = *state;
	struct armed x;
	make_armed(w, &x);
	post_recv(x.qb, 1, &w->b, 0, 0);
	assert_int_equal(hdl_cq_arm(x.cq, true), 0);
	qp_go(x.qb, HDL_QPS_ERR);
	expect_channel(w, x.channel, x.cq, &x.context);
	expect_flushed(w, x.cq, x.qb, 1);
}

static void two_queues_on_one_channel(void **state)
{
	struct world *w = *state;
	struct hdl_channel *channel = make_channel(&w->b);
	struct hdl_qp *qa[2], *qb[2];
	struct hdl_cq *cq[2];
	int context[2];
	for (int i = 0; i < 2; i++) {
		cq[i] = make_cq(&w->b, 16, channel, &context[i]);
		qa[i] = make_qp(&w->a, NULL);
		qb[i] = make_qp(&w->b, &(struct qp_options){.rcq = cq[i]});
		connect_pair(w, NULL, qa[i], qb[i]);
		post_recv(qb[i], 1, &w->b, 0, 0);
		assert_int_equal(hdl_cq_arm(cq[i], false), 0);
	}
	/* The events come in the order of the completions. */
	for (int i = 1; i >= 0; i--) {
		post_data(qa[i], 2, HDL_OP_SEND, &w->a, 0, 0);
		expect_sent(w, w->a.scq, qa[i], 2, HDL_WC_SEND, 0);
	}
	for (int i = 1; i >= 0; i--)
		expect_channel(w, channel, cq[i], &context[i]);
	expect_quiet(w, channel);
	assert_int_equal(hdl_channel_destroy(channel), -HDL_EBUSY);
}

/* A queue whose event was not taken can be destroyed; its event goes with it. */
static void destroying_a_queue_takes_its_events_along(void **state)
{
	struct world *w = *state;
	struct armed x;
	make_armed(w, &x);
	assert_int_equal(hdl_cq_arm(x.cq, false), 0);
	send_one(w, &x, 0);
	world_settle(w);
	assert_true(readable(hdl_channel_fd(x.channel)));
	drop_qp(w, x.qb);
	forget_object(w, x.cq);
	assert_int_equal(hdl_cq_destroy(x.cq), 0);
	expect_quiet(w, x.channel);
}

static void acknowledging(void **state)
{
	struct world *w = *state;
	struct armed x;
	struct hdl_cq *cq;
	make_armed(w, &x);
	assert_int_equal(hdl_cq_ack(x.cq, 1), -HDL_EINVAL);
	assert_int_equal(hdl_cq_ack(x.cq, 0), 0);
	assert_int_equal(hdl_cq_ack(w->b.rcq, 0), -HDL_EINVAL);
	assert_int_equal(hdl_cq_arm(w->b.rcq, false), -HDL_EINVAL);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(hdl_cq_arm(x.cq, false), 0);
		send_one(w, &x, 0);
		world_settle(w);
		assert_int_equal(hdl_channel_get(x.channel, &cq, NULL, -1), 0);
	}
	assert_int_equal(hdl_cq_ack(x.cq, 4), -HDL_EINVAL);
	assert_int_equal(hdl_cq_ack(x.cq, 3), 0);
	assert_int_equal(hdl_cq_ack(x.cq, 1), -HDL_EINVAL);
}

static void *ack_later(void *context)
{
	struct timespec moment = {.tv_nsec = 20000000};
	nanosleep(&moment, NULL);
	hdl_cq_ack(context, 1);
	return NULL;
}

/* hdl_cq_destroy() waits until every event that was taken has been acknowledged. */
static void destroy_waits_for_the_acknowledgement(void **state)
{
	struct world *w = *state;
	struct armed x;
	struct hdl_cq *cq;
	struct timespec before, after;
	pthread_t thread;
	make_armed(w, &x);
	assert_int_equal(hdl_cq_arm(x.cq, false), 0);
	send_one(w, &x, 0);
	world_settle(w);
	assert_int_equal(hdl_channel_get(x.channel, &cq, NULL, -1), 0);
	drop_qp(w, x.qb);
	forget_object(w, x.cq);
	clock_gettime(CLOCK_MONOTONIC, &before);
	assert_int_equal(pthread_create(&thread, NULL, ack_later, x.cq), 0);
	assert_int_equal(hdl_cq_destroy(x.cq), 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	pthread_join(thread, NULL);
	int64_t ns = (after.tv_sec - before.tv_sec) * 1000000000 + (after.tv_nsec - before.tv_nsec);
	assert_true(ns >= 19000000);
}

/* An application that sleeps in epoll is woken, also by timers and by peers. Needs the adapter's
 * thread. */
static void epoll_wakes_a_sleeper(void **state)
{
	struct world *w = *state;
	struct armed x;
	if (!w->port->threaded)
		skip();
	make_armed(w, &x);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN};
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, hdl_channel_fd(x.channel), &event), 0);
	for (uint32_t round = 0; round < 20; round++) {
		struct hdl_cq *cq;
		assert_int_equal(hdl_cq_arm(x.cq, false), 0);
		post_recv(x.qb, round, &w->b, 0, 0);
		/* Some time after everything has gone to sleep. */
		post_send(x.qa, (struct hdl_send_wr){.opcode = HDL_OP_DELAY,
		                                     .u.delay = {2000000 + round * 400000}});
		post_data(x.qa, round, HDL_OP_SEND, &w->a, 0, 0);
		int ready;
		do
			ready = epoll_wait(epoll, &event, 1, 60000);
		while (ready < 0 && errno == EINTR); /* a debugger, a suspended machine */
		assert_int_equal(ready, 1);
		assert_int_equal(hdl_channel_get(x.channel, &cq, NULL, 0), 0);
		assert_int_equal(hdl_cq_ack(cq, 1), 0);
		struct hdl_wc wc;
		assert_int_equal(hdl_cq_poll(x.cq, &wc, 1), 1);
		assert_int_equal(wc.wr_id, round);
		expect_sent(w, w->a.scq, x.qa, round, HDL_WC_SEND, 0);
	}
	close(epoll);
}

/* The same through hdl_poll() and hdl_epoll_wait(), which drive the adapter in the caller's thread;
 * in turn with the system's own waits, which the adapter's thread must end. */
static void waiting_beside_other_descriptors(void **state)
{
	struct world *w = *state;
	struct armed x;
	static const struct timespec at_once, patience = {.tv_sec = 60};
	if (!w->port->threaded)
		skip();
	make_armed(w, &x);
	int epoll = epoll_create1(EPOLL_CLOEXEC), ends[2];
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, hdl_channel_fd(x.channel), &event), 0);
	struct pollfd fds[] = {{.fd = hdl_channel_fd(x.channel), .events = POLLIN},
	                       {.fd = ends[0], .events = POLLIN}};
	assert_int_equal(hdl_poll(w->b.adapter, fds, 2, &at_once, NULL), 0);
	assert_int_equal(hdl_epoll_wait(w->b.adapter, epoll, &event, 1, &at_once, NULL), 0);
	for (uint32_t round = 0; round < 18; round++) {
		struct hdl_cq *cq;
		assert_int_equal(hdl_cq_arm(x.cq, false), 0);
		post_recv(x.qb, round, &w->b, 0, 0);
		post_send(x.qa, (struct hdl_send_wr){.opcode = HDL_OP_DELAY,
		                                     .u.delay = {round * 400000}});
		post_data(x.qa, round, HDL_OP_SEND, &w->a, 0, 0);
		int ready;
		do
			ready = round % 3 == 0   ? hdl_poll(w->b.adapter, fds, 2, &patience, NULL)
			        : round % 3 == 1 ? hdl_epoll_wait(w->b.adapter, epoll, &event, 1,
			                                          &patience, NULL)
			                         : poll(fds, 2, 60000);
		while (ready == -HDL_EINTR || (ready == -1 && errno == EINTR));
		assert_int_equal(ready, 1);
		if (round % 3 == 0) {
			assert_int_equal(fds[0].revents, POLLIN);
			assert_int_equal(fds[1].revents, 0);
		}
		assert_int_equal(hdl_channel_get(x.channel, &cq, NULL, 0), 0);
		assert_int_equal(hdl_cq_ack(cq, 1), 0);
		expect_received(w, x.cq, x.qb, x.qa, round, 0);
		expect_sent(w, w->a.scq, x.qa, round, HDL_WC_SEND, 0);
	}
	assert_int_equal(write(ends[1], "", 1), 1);
	assert_int_equal(hdl_poll(w->b.adapter, fds, 2, NULL, NULL), 1);
	assert_int_equal(fds[1].revents, POLLIN);
	close(ends[0]);
	close(ends[1]);
	close(epoll);
}

static void waiting_has_an_end(void **state)
{
	struct world *w = *state;
	struct hdl_channel *channel = make_channel(&w->b);
	struct hdl_cq *cq;
	struct hdl_event event;
	struct timespec before, after;
	clock_gettime(CLOCK_MONOTONIC, &before);
	assert_int_equal(hdl_channel_get(channel, &cq, NULL, 15), -HDL_EAGAIN);
	assert_int_equal(hdl_event_get(w->b.adapter, &event, 15), -HDL_EAGAIN);
	struct pollfd fd = {.fd = hdl_channel_fd(channel), .events = POLLIN};
	assert_int_equal(
	        hdl_poll(w->b.adapter, &fd, 1, &(struct timespec){.tv_nsec = 15000000}, NULL), 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	int64_t ns = (after.tv_sec - before.tv_sec) * 1000000000 + (after.tv_nsec - before.tv_nsec);
	assert_true(ns >= 44000000);
}

/* The descriptor for asynchronous events is readable exactly while one is pending. */
static void event_descriptor(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_event event;
	make_pair(w, NULL, &qa, &qb);
	assert_false(readable(hdl_event_fd(w->a.adapter)));
	qp_go(qa, HDL_QPS_SQD);
	world_settle(w);
	assert_true(readable(hdl_event_fd(w->a.adapter)));
	assert_int_equal(hdl_event_get(w->a.adapter, &event, -1), 0);
	assert_int_equal(event.type, HDL_EVENT_SQ_DRAINED);
	assert_false(readable(hdl_event_fd(w->a.adapter)));
	/* Events of an object that is destroyed go with it. */
	qp_go(qa, HDL_QPS_RTS);
	qp_go(qa, HDL_QPS_SQD);
	world_settle(w);
	drop_qp(w, qa);
	assert_false(readable(hdl_event_fd(w->a.adapter)));
	assert_int_equal(hdl_event_get(w->a.adapter, &event, 0), -HDL_EAGAIN);
}

/* More events than are kept: the oldest stay, and the number of lost ones is reported. */
static void lost_events_are_counted(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_event event;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < HDL_MAX_EVENTS + 7; i++) {
		qp_go(qa, HDL_QPS_SQD);
		qp_go(qa, HDL_QPS_RTS);
	}
	world_settle(w);
	for (uint32_t i = 0; i < HDL_MAX_EVENTS; i++) {
		assert_int_equal(hdl_event_get(w->a.adapter, &event, 0), 0);
		assert_int_equal(event.type, HDL_EVENT_SQ_DRAINED);
	}
	assert_int_equal(hdl_event_get(w->a.adapter, &event, 0), 0);
	assert_int_equal(event.type, HDL_EVENT_LOST);
	assert_int_equal(event.u.count, 7);
	assert_int_equal(hdl_event_get(w->a.adapter, &event, 0), -HDL_EAGAIN);
	assert_false(readable(hdl_event_fd(w->a.adapter)));
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(one_event_each_time_it_is_armed),
        BEHAVIOUR(arming_a_queue_with_completions_raises_the_event),
        BEHAVIOUR(arming_again_and_again_raises_one_event),
        BEHAVIOUR(arming_for_solicited_looks_for_solicited),
        BEHAVIOUR(armed_for_solicited_only),
        BEHAVIOUR(failed_completions_count_as_solicited),
        BEHAVIOUR(two_queues_on_one_channel),
        BEHAVIOUR(destroying_a_queue_takes_its_events_along),
        BEHAVIOUR(acknowledging),
        BEHAVIOUR(destroy_waits_for_the_acknowledgement),
        BEHAVIOUR(epoll_wakes_a_sleeper),
        BEHAVIOUR(waiting_beside_other_descriptors),
        BEHAVIOUR(waiting_has_an_end),
        BEHAVIOUR(event_descriptor),
        BEHAVIOUR(lost_events_are_counted),
};
THEME(channel_theme, tests);
