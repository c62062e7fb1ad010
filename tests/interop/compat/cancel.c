/* MISSION X1: programs that end their threads with pthread_cancel(3). Our calls are cancellation
 * points only where they wait, and a thread that is cancelled there leaves nothing behind: no lock
 * that it holds, no doorbell that only it would have heard. Whatever it was doing, other threads go
 * on. */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pair.h"

#define LIMIT_S  60 /* of the whole program: a lock that is never dropped stops it */
#define WAIT_MS  20000
#define BYTES    16
#define RECEIVES 32
#define ROUNDS   4

#ifdef __SANITIZE_THREAD__
#define UNDER_TSAN true /* which forbids threads in children */
#else
#define UNDER_TSAN false
#endif

/* --- the other process: sends one message per byte that it is told --- */

static struct pair *pair;
static struct side *side; /* of the pair: the one that is connected with the other process */
static int child;         /* socket to it */

static void sleep_ms(long ms)
{
	struct timespec time = {.tv_nsec = ms * 1000000};
	nanosleep(&time, NULL);
}

static void send_one(void)
{
	struct ibv_sge sge = pair_sge(side, RECEIVES * BYTES, BYTES);
	struct ibv_send_wr wr = {.wr_id = RECEIVES,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED};
	pair_send(side, &wr);
}

struct place {
	uint32_t qpn;
	union ibv_gid gid;
};

static void connect_with(int link)
{
	pair = pair_open(NULL);
	side = &pair->a;
	struct place here = {.qpn = side->qp->qp_num, .gid = side->gid}, there;
	assert_int_equal(write(link, &here, sizeof(here)), sizeof(here));
	assert_int_equal(recv(link, &there, sizeof(there), MSG_WAITALL), sizeof(there));
	struct ibv_qp qp = {.qp_num = there.qpn};
	struct side peer = {.qp = &qp, .gid = there.gid};
	pair_reset(side);
	pair_connect(side, &peer);
	for (uint64_t i = 0; i < RECEIVES; i++)
		pair_recv(side, i, i * BYTES, BYTES);
	char ready = 0;
	assert_int_equal(write(link, &ready, 1), 1); /* the receives are there */
	assert_int_equal(read(link, &ready, 1), 1);
}

static void be_the_child(int link)
{
	char order;
	connect_with(link);
	while (read(link, &order, 1) == 1) {
		send_one();
		while (pair_done(side).opcode == IBV_WC_RECV) /* what the parent sent */
			;
		if (write(link, &order, 1) != 1)
			break;
	}
	_exit(0);
}

/* --- this process --- */

static void order_message(void)
{
	assert_int_equal(write(child, "", 1), 1);
}

/* The child's message has arrived: it was acknowledged. */
static void has_arrived(void)
{
	char done;
	assert_int_equal(recv(child, &done, 1, 0), 1);
}

static unsigned events; /* taken */

static void take_event(void)
{
	struct ibv_cq *cq;
	void *context;
	assert_int_equal(ibv_get_cq_event(side->channel, &cq, &context), 0);
	events++;
}

/* A message comes in while this thread waits for it; all that was left behind is taken as well. */
static void all_is_well(void)
{
	struct pollfd fd = {.fd = side->channel->fd, .events = POLLIN};
	struct ibv_wc wc;
	unsigned received = 0;
	while (poll(&fd, 1, 0) == 1)
		take_event();
	while (ibv_poll_cq(side->cq, 1, &wc) == 1)
		if (wc.opcode == IBV_WC_RECV)
			pair_recv(side, wc.wr_id, wc.wr_id * BYTES, BYTES);
	assert_int_equal(ibv_req_notify_cq(side->cq, 0), 0);
	order_message();
	assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
	has_arrived();
	take_event();
	while (ibv_poll_cq(side->cq, 1, &wc) == 1) {
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		received++;
		pair_recv(side, wc.wr_id, wc.wr_id * BYTES, BYTES);
	}
	assert_int_equal(received, 1);
	send_one();
	assert_int_equal(pair_done(side).opcode, IBV_WC_SEND);
}

/* --- calls that do not wait --- */

static void (*todo)(void);
static bool finished;

/* A thread that has been cancelled, and has not noticed yet. */
static void *cancelled(void *argument)
{
	(void)argument;
	pthread_cancel(pthread_self());
	todo();
	finished = true;
	pthread_testcancel();
	return NULL;
}

static void finishes(void (*what)(void))
{
	pthread_t thread;
	void *end;
	todo = what;
	finished = false;
	assert_int_equal(pthread_create(&thread, NULL, cancelled, NULL), 0);
	assert_int_equal(pthread_join(thread, &end), 0);
	assert_true(finished);
	assert_ptr_equal(end, PTHREAD_CANCELED);
}

/* Posting rings the bell of a peer that sleeps. */
static void a_post_finishes(void **state)
{
	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		sleep_ms(10);
		finishes(send_one);
		assert_int_equal(pair_done(side).opcode, IBV_WC_SEND);
		all_is_well();
	}
}

static void arm(void)
{
	assert_int_equal(ibv_req_notify_cq(side->cq, 0), 0);
}

/* Arming makes the channel's descriptor readable, if the queue holds completions. */
static void arming_finishes(void **state)
{
	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		order_message();
		has_arrived();
		finishes(arm);
		all_is_well();
	}
}

static struct ibv_wc polled;

static void poll_for_it(void)
{
	time_t end = time(NULL) + WAIT_MS / 1000;
	while (ibv_poll_cq(side->cq, 1, &polled) == 0)
		assert_true(time(NULL) <= end);
}

/* Polling takes the message out of the lane, completes it, and raises the event. */
static void polling_finishes(void **state)
{
	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		arm();
		order_message();
		finishes(poll_for_it);
		assert_int_equal(polled.opcode, IBV_WC_RECV);
		pair_recv(side, polled.wr_id, polled.wr_id * BYTES, BYTES);
		has_arrived();
		all_is_well();
	}
}

static int memory; /* the file that make_and_connect() leaves to be closed */

/* Objects of every kind, memory that peers can map among them, and a queue pair that is connected.
 * Not devices and channels: to open and close descriptors is a cancellation point anywhere. */
static void make_and_connect(void)
{
	struct side more = *side;
	int shared = memfd_create("shared", MFD_CLOEXEC);
	assert_int_equal(ftruncate(shared, PAIR_BYTES), 0);
	more.bytes = mmap(NULL, PAIR_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
	assert_ptr_not_equal(more.bytes, MAP_FAILED);
	more.pd = ibv_alloc_pd(side->context);
	more.cq = ibv_create_cq(side->context, PAIR_DEPTH, NULL, NULL, 0);
	more.mr = ibv_reg_mr(more.pd, more.bytes, PAIR_BYTES, IBV_ACCESS_LOCAL_WRITE);
	assert_true(more.pd != NULL && more.cq != NULL && more.mr != NULL);
	struct ibv_qp_init_attr init = {.send_cq = more.cq,
	                                .recv_cq = more.cq,
	                                .cap = {.max_send_wr = 1, .max_send_sge = 1},
	                                .qp_type = IBV_QPT_RC};
	more.qp = ibv_create_qp(more.pd, &init);
	assert_non_null(more.qp);
	pair_connect(&more, &more);
	assert_int_equal(ibv_destroy_qp(more.qp), 0);
	assert_int_equal(ibv_dereg_mr(more.mr), 0);
	assert_int_equal(ibv_destroy_cq(more.cq), 0);
	assert_int_equal(ibv_dealloc_pd(more.pd), 0);
	munmap(more.bytes, PAIR_BYTES);
	memory = shared;
}

static void control_calls_finish(void **state)
{
	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		finishes(make_and_connect);
		close(memory);
		all_is_well();
	}
}

/* --- calls that wait --- */

/* The C library's ppoll(), as libibverbs finds it. Cancels the thread that it wakes. */
static int (*real_ppoll)(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                         const sigset_t *mask);
static _Atomic bool cancels;
static _Thread_local bool waits;

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	int ready = real_ppoll(fds, count, timeout, mask);
	if (cancels && waits)
		pthread_cancel(pthread_self());
	return ready;
}

enum way { POLL, EPOLL, BLOCK, WAYS };

static void close_it(void *argument)
{
	close(*(int *)argument);
}

static void *wait_in_a_way(void *argument)
{
	enum way way = *(enum way *)argument;
	struct pollfd fd = {.fd = side->channel->fd, .events = POLLIN};
	struct epoll_event event = {.events = EPOLLIN};
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fd.fd, &event), 0);
	waits = true;
	pthread_cleanup_push(close_it, &epoll);
	if (way == POLL)
		poll(&fd, 1, WAIT_MS);
	else if (way == EPOLL)
		epoll_wait(epoll, &event, 1, WAIT_MS);
	else
		take_event();
	pthread_testcancel();
	pthread_cleanup_pop(1);
	return NULL;
}

/* Start a thread that waits, have it cancelled while @late or asleep, and go on. */
static void cancel_a_waiter(enum way way, bool late)
{
	pthread_t thread;
	void *end;
	arm();
	cancels = late;
	assert_int_equal(pthread_create(&thread, NULL, wait_in_a_way, &way), 0);
	sleep_ms(10);
	if (late) {
		order_message();
		has_arrived();
	} else {
		pthread_cancel(thread);
	}
	assert_int_equal(pthread_join(thread, &end), 0);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	cancels = false;
	all_is_well();
}

static void a_waiter_is_cancelled_asleep(void **state)
{
	(void)state;
	for (enum way way = POLL; way < WAYS; way++)
		cancel_a_waiter(way, false);
}

/* The peer rang, so the thread woke and is about to do what there is to do. */
static void a_waiter_is_cancelled_as_it_wakes(void **state)
{
	(void)state;
	for (enum way way = POLL; way < WAYS; way++)
		cancel_a_waiter(way, true);
}

static void *wait_when_cancelled(void *argument)
{
	struct pollfd fd = {.fd = side->channel->fd, .events = POLLIN};
	(void)argument;
	pthread_cancel(pthread_self());
	for (time_t end = time(NULL) + WAIT_MS / 1000; time(NULL) < end;)
		poll(&fd, 1, 0);
	return NULL;
}

/* A loop that never sleeps ends, too. */
static void looking_is_a_cancellation_point(void **state)
{
	pthread_t thread;
	void *end;
	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, wait_when_cancelled, NULL), 0);
	assert_int_equal(pthread_join(thread, &end), 0);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	all_is_well();
}

static int begin(void **state)
{
	int link[2];
	(void)state;
	void *found = dlsym(RTLD_NEXT, "ppoll");
	memcpy(&real_ppoll, &found, sizeof(found));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, link) != 0)
		return -1;
	pid_t pid = fork(); /* before there is a device */
	if (pid == 0) {
		close(link[0]);
		be_the_child(link[1]);
	}
	close(link[1]);
	child = link[0];
	connect_with(child);
	return pid < 0;
}

static int finish(void **state)
{
	int status;
	(void)state;
	close(child);
	if (wait(&status) < 0 || status != 0)
		return -1;
	ibv_ack_cq_events(side->cq, events);
	pair_close(pair);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_post_finishes),
	        cmocka_unit_test(arming_finishes),
	        cmocka_unit_test(polling_finishes),
	        cmocka_unit_test(control_calls_finish),
	        cmocka_unit_test(a_waiter_is_cancelled_asleep),
	        cmocka_unit_test(a_waiter_is_cancelled_as_it_wakes),
	        cmocka_unit_test(looking_is_a_cancellation_point),
	};
	if (UNDER_TSAN)
		return 77;
	alarm(LIMIT_S);
	return cmocka_run_group_tests(tests, begin, finish);
}
