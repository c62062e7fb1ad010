/* MISSION X1, AP7: programs that sleep. Completion channels and asynchronous events as poll(2),
 * O_NONBLOCK, signals and threads meet them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pair.h"

#define SOON_MS 20000

/* The thread sanitizer delivers signals in its own way, and forbids threads in children. */
#ifdef __SANITIZE_THREAD__
#define UNDER_TSAN true
#else
#define UNDER_TSAN false
#endif

static bool readable(int fd, int timeout_ms)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};
	return poll(&pollfd, 1, timeout_ms) == 1;
}

static void send_some(struct side *side, unsigned flags)
{
	struct ibv_sge sge = pair_sge(side, 0, 16);
	struct ibv_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED | flags};
	pair_send(side, &wr);
}

static void a_channel_wakes_poll(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_cq *cq;
	void *context;
	(void)state;
	for (int round = 0; round < 20; round++) {
		pair_recv(&pair->b, 0, 0, 64);
		assert_int_equal(ibv_req_notify_cq(pair->b.cq, 0), 0);
		assert_false(readable(pair->b.channel->fd, 0));
		send_some(&pair->a, 0);
		assert_true(readable(pair->b.channel->fd, SOON_MS));
		assert_int_equal(ibv_get_cq_event(pair->b.channel, &cq, &context), 0);
		assert_ptr_equal(cq, pair->b.cq);
		assert_ptr_equal(context, &pair->b);
		assert_false(readable(pair->b.channel->fd, 0));
		pair_done(&pair->b);
		pair_done(&pair->a);
	}
	ibv_ack_cq_events(pair->b.cq, 20);
	pair_close(pair);
}

/* What came between the last poll and the arming is not slept through. */
static void arming_tells_what_is_there(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_cq *cq;
	void *context;
	(void)state;
	for (int round = 0; round < 20; round++) {
		pair_recv(&pair->b, 0, 0, 64);
		send_some(&pair->a, 0);
		pair_done(&pair->a); /* so the other side has it */
		assert_false(readable(pair->b.channel->fd, 0));
		assert_int_equal(ibv_req_notify_cq(pair->b.cq, 0), 0);
		assert_true(readable(pair->b.channel->fd, SOON_MS));
		assert_int_equal(ibv_get_cq_event(pair->b.channel, &cq, &context), 0);
		assert_ptr_equal(cq, pair->b.cq);
		/* As ib_send_lat -e does: arm, then poll. That makes no second event. */
		assert_int_equal(ibv_req_notify_cq(pair->b.cq, 0), 0);
		pair_done(&pair->b);
		assert_false(readable(pair->b.channel->fd, 0));
		pair_recv(&pair->b, 0, 0, 64);
		send_some(&pair->a, 0);
		pair_done(&pair->a);
		assert_int_equal(ibv_get_cq_event(pair->b.channel, &cq, &context), 0);
		pair_done(&pair->b);
	}
	ibv_ack_cq_events(pair->b.cq, 40);
	pair_close(pair);
}

static void a_channel_told_not_to_block(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_cq *cq;
	void *context;
	(void)state;
	assert_int_equal(fcntl(pair->b.channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_get_cq_event(pair->b.channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	/* Only solicited messages count when asked so. */
	pair_recv(&pair->b, 0, 0, 64);
	pair_recv(&pair->b, 0, 0, 64);
	assert_int_equal(ibv_req_notify_cq(pair->b.cq, 1), 0);
	send_some(&pair->a, 0);
	pair_done(&pair->a);
	pair_done(&pair->b);
	assert_false(readable(pair->b.channel->fd, 0));
	send_some(&pair->a, IBV_SEND_SOLICITED);
	assert_true(readable(pair->b.channel->fd, SOON_MS));
	assert_int_equal(ibv_get_cq_event(pair->b.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	pair_close(pair);
}

static void *wait_for_event(void *argument)
{
	struct side *side = argument;
	struct ibv_cq *cq;
	void *context;
	if (ibv_get_cq_event(side->channel, &cq, &context) != 0)
		return (void *)(intptr_t)errno;
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void nothing(int number)
{
	(void)number;
}

static void sleep_ms(long ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	nanosleep(&time, NULL);
}

/* A handler interrupts the wait, or with SA_RESTART does not, as it would with a device. */
static void a_signal_while_waiting(void **state)
{
	(void)state;
	if (UNDER_TSAN)
		skip();
	for (int restart = 0; restart < 2; restart++) {
		struct pair *pair = pair_open(NULL);
		struct sigaction action = {.sa_handler = nothing,
		                           .sa_flags = restart ? SA_RESTART : 0};
		pthread_t thread;
		void *error;
		sigaction(SIGUSR1, &action, NULL);
		pair_recv(&pair->b, 0, 0, 64);
		assert_int_equal(ibv_req_notify_cq(pair->b.cq, 0), 0);
		assert_int_equal(pthread_create(&thread, NULL, wait_for_event, &pair->b), 0);
		for (int i = 0; i < 20; i++) { /* it takes a moment to fall asleep */
			pthread_kill(thread, SIGUSR1);
			sleep_ms(5);
		}
		if (restart)
			send_some(&pair->a, 0);
		pthread_join(thread, &error);
		assert_int_equal((intptr_t)error, restart ? 0 : EINTR);
		pair_close(pair);
	}
	signal(SIGUSR1, SIG_DFL);
}

static struct ibv_srq *small_srq(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	return ibv_create_srq(pd, &init);
}

static struct ibv_async_event take_event(struct side *side, enum ibv_event_type type)
{
	struct ibv_async_event event;
	assert_true(readable(side->context->async_fd, SOON_MS));
	assert_int_equal(ibv_get_async_event(side->context, &event), 0);
	assert_string_equal(ibv_event_type_str(event.event_type), ibv_event_type_str(type));
	return event;
}

static void events_go_to_the_context_of_their_object(void **state)
{
	struct pair *pair = pair_open(&(struct pair_how){.srq = small_srq});
	struct ibv_srq_attr limit = {.srq_limit = 2}, now;
	(void)state;
	for (int i = 0; i < 2; i++)
		pair_recv(&pair->b, 0, 0, 64);
	assert_int_equal(ibv_modify_srq(pair->b.qp->srq, &limit, IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_query_srq(pair->b.qp->srq, &now), 0);
	assert_int_equal(now.srq_limit, 2);
	send_some(&pair->a, 0);
	pair_done(&pair->a);
	pair_done(&pair->b);
	struct ibv_async_event event = take_event(&pair->b, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, pair->b.qp->srq);
	ibv_ack_async_event(&event);

	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	assert_int_equal(ibv_modify_qp(pair->b.qp, &error, IBV_QP_STATE), 0);
	event = take_event(&pair->b, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_ptr_equal(event.element.qp, pair->b.qp);
	ibv_ack_async_event(&event);

	assert_false(readable(pair->a.context->async_fd, 0));
	assert_int_equal(fcntl(pair->a.context->async_fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_get_async_event(pair->a.context, &event), -1);
	assert_int_equal(errno, EAGAIN);
	pair_close(pair);
}

/* Who drains a send queue hears of it if it asked to. */
static void drained_if_asked(void **state)
{
	(void)state;
	for (int asked = 0; asked < 2; asked++) {
		struct pair *pair = pair_open(NULL);
		struct ibv_qp_attr drain = {.qp_state = IBV_QPS_SQD,
		                            .en_sqd_async_notify = (uint8_t)asked};
		assert_int_equal(ibv_modify_qp(pair->a.qp, &drain,
		                               IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
		                 0);
		if (asked) {
			struct ibv_async_event event = take_event(&pair->a, IBV_EVENT_SQ_DRAINED);
			assert_ptr_equal(event.element.qp, pair->a.qp);
			ibv_ack_async_event(&event);
		}
		struct ibv_qp_attr back = {.qp_state = IBV_QPS_RTS};
		assert_int_equal(ibv_modify_qp(pair->a.qp, &back, IBV_QP_STATE), 0);
		assert_false(readable(pair->a.context->async_fd, 20));
		pair_close(pair);
	}
}

struct destroyer {
	struct ibv_qp *qp;
	_Atomic bool done;
};

static void *destroy_qp(void *argument)
{
	struct destroyer *destroyer = argument;
	ibv_destroy_qp(destroyer->qp);
	atomic_store(&destroyer->done, true);
	return NULL;
}

/* ibv_get_async_event(3): destroying an object waits until its events are acknowledged. */
static void destroying_waits_for_the_acknowledgement(void **state)
{
	struct pair *pair = pair_open(&(struct pair_how){.srq = small_srq});
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct ibv_srq *srq = pair->b.qp->srq;
	(void)state;
	assert_int_equal(ibv_modify_qp(pair->b.qp, &error, IBV_QP_STATE), 0);
	struct ibv_async_event event = take_event(&pair->b, IBV_EVENT_QP_LAST_WQE_REACHED);
	struct destroyer destroyer = {.qp = pair->b.qp};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, destroy_qp, &destroyer), 0);
	sleep_ms(50);
	assert_false(atomic_load(&destroyer.done));
	ibv_ack_async_event(&event);
	pthread_join(thread, NULL);
	assert_true(atomic_load(&destroyer.done));

	/* Events of an object that has gone are gone too. */
	struct ibv_qp_init_attr init = {.send_cq = pair->b.cq,
	                                .recv_cq = pair->b.cq,
	                                .srq = srq,
	                                .cap = {.max_send_wr = 4, .max_send_sge = 1},
	                                .qp_type = IBV_QPT_RC};
	pair->b.qp = ibv_create_qp(pair->b.pd, &init);
	assert_non_null(pair->b.qp);
	pair_connect(&pair->b, &pair->a);
	assert_int_equal(ibv_modify_qp(pair->b.qp, &error, IBV_QP_STATE), 0);
	assert_true(readable(pair->b.context->async_fd, SOON_MS));
	assert_int_equal(ibv_destroy_qp(pair->b.qp), 0);
	assert_false(readable(pair->b.context->async_fd, 0));
	pair->b.qp = ibv_create_qp(pair->b.pd, &init);
	pair_close(pair);
}

/* Threads that post and poll on queue pairs of their own, in one adapter. */
#define ROUNDS 2000

static void *exchange(void *argument)
{
	struct pair *pair = argument;
	for (int i = 0; i < ROUNDS; i++) {
		pair_recv(&pair->b, 0, 0, 64);
		send_some(&pair->a, 0);
		pair_done(&pair->b);
		pair_done(&pair->a);
	}
	return NULL;
}

static void threads_beside_each_other(void **state)
{
	struct pair *pairs[4];
	pthread_t threads[4];
	(void)state;
	for (size_t i = 0; i < 4; i++) {
		pairs[i] = pair_open(NULL);
		assert_int_equal(pthread_create(&threads[i], NULL, exchange, pairs[i]), 0);
	}
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		pair_close(pairs[i]);
	}
}

/* Nothing in a child may wait for a lock that a thread of the parent held when it was made. */
static void child_of_fork(struct pair *inherited)
{
	struct pair *own = pair_open(NULL);
	exchange(own);
	pair_close(own);
	pair_close(inherited); /* no harm to the parent */
	_exit(0);
}

struct worker {
	struct pair *pair;
	_Atomic bool stop;
};

static void *exchange_until_stopped(void *argument)
{
	struct worker *worker = argument;
	while (!atomic_load(&worker->stop))
		exchange(worker->pair);
	return NULL;
}

/* Children open the device for themselves, while queue pairs of the parent go on. */
static void children_of_fork(void **state)
{
	struct worker worker = {0};
	pthread_t thread;
	(void)state;
	if (UNDER_TSAN)
		skip();
	worker.pair = pair_open(NULL);
	assert_int_equal(pthread_create(&thread, NULL, exchange_until_stopped, &worker), 0);
	for (int i = 0; i < 20; i++) {
		int status = -1;
		pid_t child = fork();
		if (child == 0)
			child_of_fork(worker.pair);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
	atomic_store(&worker.stop, true);
	pthread_join(thread, NULL);
	pair_close(worker.pair);
}

/* After fork() the pages are shared until one of the two writes: what the device writes must be
 * seen by the parent, and by it alone, whoever writes first (ibv_fork_init(3)). */
static void memory_after_fork(void **state)
{
	(void)state;
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	for (int child_writes_first = 0; child_writes_first < 2; child_writes_first++) {
		struct pair *pair = pair_open(NULL);
		memset(pair->a.bytes, 1, PAIR_BYTES);
		memset(pair->b.bytes, 2, PAIR_BYTES);
		int turn[2], back[2], status;
		char byte = 0;
		assert_int_equal(pipe(turn) + pipe(back), 0);
		pid_t child = fork();
		if (child == 0) {
			struct ibv_sge piece = pair_sge(&pair->a, 0, 64);
			struct ibv_send_wr wr = {.sg_list = &piece,
			                         .num_sge = 1,
			                         .opcode = IBV_WR_SEND},
			                   *bad = NULL;
			struct ibv_wc wc;
			bool refused = ibv_post_send(pair->a.qp, &wr, &bad) == EINVAL &&
			               ibv_poll_cq(pair->a.cq, 1, &wc) < 0;
			if (child_writes_first)
				memset(pair->b.bytes, 3, PAIR_BYTES);
			bool told = write(back[1], &byte, 1) == 1 && read(turn[0], &byte, 1) == 1;
			int expected = child_writes_first ? 3 : 2;
			_exit(refused && told && pair->b.bytes[PAIR_BYTES - 1] == expected ? 0 : 1);
		}
		assert_int_equal(read(back[0], &byte, 1), 1);
		struct ibv_sge piece = pair_sge(&pair->a, 0, PAIR_BYTES);
		struct ibv_send_wr wr = {.sg_list = &piece,
		                         .num_sge = 1,
		                         .opcode = IBV_WR_RDMA_WRITE,
		                         .send_flags = IBV_SEND_SIGNALED,
		                         .wr.rdma = {(uintptr_t)pair->b.bytes, pair->b.mr->rkey}};
		pair_send(&pair->a, &wr);
		pair_done(&pair->a);
		assert_int_equal(pair->b.bytes[0], 1);
		assert_int_equal(pair->b.bytes[PAIR_BYTES - 1], 1);
		assert_int_equal(write(turn[1], &byte, 1), 1);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		for (int i = 0; i < 2; i++) {
			close(turn[i]);
			close(back[i]);
		}
		pair_close(pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_channel_wakes_poll),
	        cmocka_unit_test(arming_tells_what_is_there),
	        cmocka_unit_test(a_channel_told_not_to_block),
	        cmocka_unit_test(a_signal_while_waiting),
	        cmocka_unit_test(events_go_to_the_context_of_their_object),
	        cmocka_unit_test(drained_if_asked),
	        cmocka_unit_test(destroying_waits_for_the_acknowledgement),
	        cmocka_unit_test(threads_beside_each_other),
	        cmocka_unit_test(children_of_fork),
	        cmocka_unit_test(memory_after_fork),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
