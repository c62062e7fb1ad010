/* MISSION X1, AP7: programs whose event loops wait for completion channels, in every way that there
 * is to wait for a descriptor. No wake-up is lost, whichever threads wait beside each other;
 * timeouts, signals and other descriptors are as they are without a channel. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pair.h"

#define SILENT_MS   20000 /* then a wake-up was lost */
#define BYTES       16
#define RECEIVES    8
#define SLOW_ROUNDS 4
#define MANY        80 /* descriptors, in one poll */

#ifdef __SANITIZE_THREAD__
#define UNDER_TSAN true /* which forbids threads in children */
#define ROUNDS     60
#else
#define UNDER_TSAN false
#define ROUNDS     300
#endif

enum way {
	BLOCK,
	POLL,
	POLL_MANY,
	PPOLL,
	SELECT,
	LEVEL,
	EDGE,
	ONESHOT,
	DUPLICATE,
	NESTED,
	UNSEEN,
	WAYS
};
static const char *const names[] = {"block", "poll",    "poll many", "ppoll",  "select", "level",
                                    "edge",  "oneshot", "duplicate", "nested", "unseen"};

/* A thread that sends and receives on one side. */
struct waiter {
	struct side *side;
	enum way way;
	bool asks;
	bool slow; /* everybody sleeps before each message */
	uint64_t seed;
	unsigned received, events;
	int epoll, inner, copy, quiet[2];
	pthread_t thread;
};

static uint64_t draw(struct waiter *w)
{
	w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
	return w->seed >> 33;
}

static void fail_now(const struct waiter *w, const char *what)
{
	fprintf(stderr, "%s %s: %s, after %u messages: %s\n", w->asks ? "asks" : "answers",
	        names[w->way], what, w->received, strerror(errno));
	kill(0, SIGABRT); /* in whichever thread; and the process at the other end, which waits */
	abort();
}

static void sleep_us(uint64_t us)
{
	struct timespec time = {.tv_sec = (time_t)(us / 1000000),
	                        .tv_nsec = (long)(us % 1000000) * 1000};
	nanosleep(&time, NULL);
}

/* --- waiting --- */

static void add(int epoll, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.fd = fd};
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
}

static void prepare(struct waiter *w)
{
	int fd = w->side->channel->fd;
	if (w->way != BLOCK)
		assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
	assert_int_equal(pipe(w->quiet), 0);
	w->epoll = epoll_create1(0);
	w->inner = epoll_create1(0);
	w->copy = dup(fd);
	assert_true(w->epoll >= 0 && w->inner >= 0 && w->copy >= 0);
	add(w->epoll, w->quiet[0], EPOLLIN);
	if (w->way == NESTED) {
		add(w->inner, fd, EPOLLIN);
		add(w->epoll, w->inner, EPOLLIN);
	} else {
		add(w->epoll, w->way == DUPLICATE ? w->copy : fd,
		    EPOLLIN | (w->way == EDGE ? EPOLLET : 0) |
		            (w->way == ONESHOT ? EPOLLONESHOT : 0));
	}
	for (uint64_t i = 0; i < RECEIVES; i++)
		pair_recv(w->side, i, i * BYTES, BYTES);
	assert_int_equal(ibv_req_notify_cq(w->side->cq, 0), 0);
}

static void put_away(struct waiter *w)
{
	close(w->epoll);
	close(w->inner);
	close(w->copy);
	close(w->quiet[0]);
	close(w->quiet[1]);
}

/* Until the channel's descriptor is readable. How many descriptors are. */
static int wait_readable(struct waiter *w)
{
	int fd = w->side->channel->fd;
	struct timespec time = {.tv_sec = SILENT_MS / 1000};
	struct timeval short_time = {.tv_sec = SILENT_MS / 1000};
	struct pollfd fds[MANY];
	struct epoll_event event;
	fd_set set;
	int ready = 0;
	for (int i = 0; i < MANY; i++)
		fds[i] = (struct pollfd){.fd = i == MANY - 1 ? fd : w->quiet[0], .events = POLLIN};
	switch (w->way) {
	case POLL:
		return poll(&fds[MANY - 2], 2, SILENT_MS);
	case POLL_MANY:
		return poll(fds, MANY, draw(w) % 2 ? SILENT_MS : -1);
	case PPOLL:
		return ppoll(&fds[MANY - 1], 1, &time, NULL);
	case SELECT:
		FD_ZERO(&set);
		FD_SET(fd, &set);
		FD_SET(w->quiet[0], &set);
		ready = select(FD_SETSIZE, &set, NULL, NULL, &short_time);
		return ready == 1 && !FD_ISSET(fd, &set) ? -1 : ready;
	case UNSEEN: /* by us: a system call of the program's own */
		return (int)syscall(SYS_ppoll, &fds[MANY - 1], 1, &time, NULL, 0);
	case ONESHOT:
		ready = epoll_wait(w->epoll, &event, 1, SILENT_MS);
		if (ready == 1) {
			event = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT,
			                             .data.fd = fd};
			if (epoll_ctl(w->epoll, EPOLL_CTL_MOD, fd, &event) != 0)
				return -1;
		}
		return ready;
	default:
		return epoll_wait(w->epoll, &event, 1, SILENT_MS);
	}
}

/* Take the events that there are; one at least, where the call blocks. */
static void take_events(struct waiter *w)
{
	struct ibv_cq *cq;
	void *context;
	while (ibv_get_cq_event(w->side->channel, &cq, &context) == 0) {
		w->events++;
		if (w->way == BLOCK)
			return;
	}
	if (errno != EAGAIN)
		fail_now(w, "no event");
}

static void poll_all(struct waiter *w)
{
	struct ibv_wc wc;
	int got;
	while ((got = ibv_poll_cq(w->side->cq, 1, &wc)) > 0) {
		if (wc.status != IBV_WC_SUCCESS)
			fail_now(w, ibv_wc_status_str(wc.status));
		if (wc.opcode != IBV_WC_RECV)
			continue;
		pair_recv(w->side, wc.wr_id, wc.wr_id * BYTES, BYTES);
		w->received++;
	}
	if (got < 0)
		fail_now(w, "the queue cannot be polled");
}

static void await(struct waiter *w, unsigned received)
{
	while (w->received < received) {
		if (w->way != BLOCK && wait_readable(w) <= 0)
			fail_now(w, "a wake-up was lost");
		take_events(w);
		/* Both orders are in use: poll and arm, arm and poll. */
		bool first = draw(w) % 2;
		if (first)
			poll_all(w);
		if (ibv_req_notify_cq(w->side->cq, 0) != 0)
			fail_now(w, "the queue cannot be armed");
		if (!first)
			poll_all(w);
	}
}

static void say(struct waiter *w)
{
	struct ibv_sge sge = pair_sge(w->side, RECEIVES * BYTES, BYTES);
	struct ibv_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED};
	/* Now and then so late that everybody sleeps. */
	if (w->slow)
		sleep_us(3000 + draw(w) % 3000);
	else if (draw(w) % 8 == 0)
		sleep_us(draw(w) % (draw(w) % 8 == 0 ? 5000 : 100));
	pair_send(w->side, &wr);
}

static void converse(struct waiter *w, unsigned rounds)
{
	unsigned before = w->received;
	for (unsigned round = 1; round <= rounds; round++) {
		if (w->asks)
			say(w);
		await(w, before + round);
		if (!w->asks)
			say(w);
	}
}

static void *talk(void *argument)
{
	converse(argument, ROUNDS);
	return NULL;
}

static void start(struct waiter *w, struct side *side, int number, bool asks)
{
	/* Each way meets another one in each place. */
	*w = (struct waiter){.side = side,
	                     .way = (enum way)((asks ? number : number * 3 + 1) % WAYS),
	                     .asks = asks,
	                     .seed = (uint64_t)number * 2 + asks};
	prepare(w);
}

static void finish(struct waiter *w)
{
	pthread_join(w->thread, NULL);
	assert_int_equal(w->received, ROUNDS);
	ibv_ack_cq_events(w->side->cq, w->events);
	put_away(w);
}

/* --- two processes --- */

struct place {
	uint32_t qpn;
	union ibv_gid gid;
};

/* Connect both sides of each of @pairs with those of the other process behind @link. */
static void connect_across(struct pair **pairs, int count, int link)
{
	for (int i = 0; i < 2 * count; i++) {
		struct side *side = i % 2 ? &pairs[i / 2]->b : &pairs[i / 2]->a;
		struct place here = {.qpn = side->qp->qp_num, .gid = side->gid}, there;
		assert_int_equal(write(link, &here, sizeof(here)), sizeof(here));
		assert_int_equal(recv(link, &there, sizeof(there), MSG_WAITALL), sizeof(there));
		struct ibv_qp qp = {.qp_num = there.qpn};
		struct side peer = {.qp = &qp, .gid = there.gid};
		pair_reset(side);
		pair_connect(side, &peer);
	}
}

#define PAIRS ((WAYS + 1) / 2)

static void *wait_for_ever(void *argument)
{
	struct pollfd fd = {.fd = *(int *)argument, .events = POLLIN};
	poll(&fd, 1, -1);
	return NULL;
}

/* Whoever waited and is cancelled leaves nothing behind that others miss. */
static void cancel_a_waiter(const struct side *side)
{
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &side->channel->fd), 0);
	sleep_us(5000);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
}

/* One process of two: a thread for each of WAYS connections. */
static void run_one(bool asks, int link)
{
	struct pair *pairs[PAIRS];
	struct waiter waiters[2 * PAIRS];
	char ready = 0;
	for (int i = 0; i < PAIRS; i++)
		pairs[i] = pair_open(NULL);
	connect_across(pairs, PAIRS, link);
	for (int i = 0; i < 2 * PAIRS; i++)
		start(&waiters[i], i % 2 ? &pairs[i / 2]->b : &pairs[i / 2]->a, i, asks);
	assert_int_equal(write(link, &ready, 1), 1); /* the receives are there */
	assert_int_equal(read(link, &ready, 1), 1);
	/* One after the other: nobody else is awake who would find what a waiter misses. */
	for (int i = 0; i < 2 * PAIRS; i++) {
		cancel_a_waiter(waiters[i].side);
		waiters[i].slow = true;
		converse(&waiters[i], SLOW_ROUNDS);
		waiters[i].received = 0;
		waiters[i].slow = false;
	}
	for (int i = 0; i < 2 * PAIRS; i++)
		assert_int_equal(pthread_create(&waiters[i].thread, NULL, talk, &waiters[i]), 0);
	for (int i = 0; i < 2 * PAIRS; i++)
		finish(&waiters[i]);
	assert_int_equal(write(link, &ready, 1), 1); /* nothing is on its way any more */
	assert_int_equal(read(link, &ready, 1), 1);
	for (int i = 0; i < PAIRS; i++)
		pair_close(pairs[i]);
}

/* First of all: the child must be made before there is a device. */
static void no_wake_up_is_lost_between_processes(void **state)
{
	int link[2], status;
	(void)state;
	if (UNDER_TSAN)
		skip();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, link), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		close(link[0]);
		run_one(false, link[1]);
		_exit(0);
	}
	close(link[1]);
	run_one(true, link[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(link[0]);
}

static void no_wake_up_is_lost_in_one_process(void **state)
{
	struct pair *pairs[WAYS];
	struct waiter waiters[WAYS][2];
	(void)state;
	for (int i = 0; i < WAYS; i++) {
		pairs[i] = pair_open(NULL);
		start(&waiters[i][0], &pairs[i]->a, i, true);
		start(&waiters[i][1], &pairs[i]->b, i, false);
	}
	for (int i = 0; i < 2 * WAYS; i++)
		assert_int_equal(pthread_create(&waiters[i / 2][i % 2].thread, NULL, talk,
		                                &waiters[i / 2][i % 2]),
		                 0);
	for (int i = 0; i < WAYS; i++) {
		finish(&waiters[i][0]);
		finish(&waiters[i][1]);
		pair_close(pairs[i]);
	}
}

/* --- several threads on one epoll --- */

#define SHARED_CHANNELS 6
#define SHARED_THREADS  3

static struct waiter shared[SHARED_CHANNELS];
/* EPOLLONESHOT gives a channel to one thread; this says so to the thread sanitizer, which does not
 * know epoll_pwait2(2). */
static pthread_mutex_t shared_locks[SHARED_CHANNELS];
static int shared_epoll;

static void *serve_shared(void *argument)
{
	(void)argument;
	for (;;) {
		struct epoll_event event;
		if (epoll_wait(shared_epoll, &event, 1, SILENT_MS) != 1)
			fail_now(&shared[0], "a wake-up was lost");
		if (event.data.u32 == SHARED_CHANNELS) /* the end, which all are to see */
			return NULL;
		struct waiter *w = &shared[event.data.u32];
		pthread_mutex_t *lock = &shared_locks[event.data.u32];
		assert_int_equal(pthread_mutex_trylock(lock), 0);
		unsigned before = w->received;
		take_events(w);
		assert_int_equal(ibv_req_notify_cq(w->side->cq, 0), 0);
		poll_all(w);
		for (; before < w->received; before++)
			say(w);
		pthread_mutex_unlock(lock);
		event.events = EPOLLIN | EPOLLONESHOT;
		assert_int_equal(
		        epoll_ctl(shared_epoll, EPOLL_CTL_MOD, w->side->channel->fd, &event), 0);
	}
}

static void threads_share_an_epoll(void **state)
{
	struct pair *pairs[SHARED_CHANNELS];
	struct waiter askers[SHARED_CHANNELS];
	pthread_t threads[SHARED_THREADS];
	int stop[2];
	(void)state;
	assert_int_equal(pipe(stop), 0);
	shared_epoll = epoll_create1(0);
	for (uint32_t i = 0; i < SHARED_CHANNELS; i++) {
		pairs[i] = pair_open(NULL);
		start(&askers[i], &pairs[i]->a, (int)i + POLL, true);
		start(&shared[i], &pairs[i]->b, 1, false);
		pthread_mutex_init(&shared_locks[i], NULL);
		struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = i};
		assert_int_equal(
		        epoll_ctl(shared_epoll, EPOLL_CTL_ADD, pairs[i]->b.channel->fd, &event), 0);
	}
	struct epoll_event end = {.events = EPOLLIN, .data.u32 = SHARED_CHANNELS};
	assert_int_equal(epoll_ctl(shared_epoll, EPOLL_CTL_ADD, stop[0], &end), 0);
	for (int i = 0; i < SHARED_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, serve_shared, NULL), 0);
	for (int i = 0; i < SHARED_CHANNELS; i++)
		assert_int_equal(pthread_create(&askers[i].thread, NULL, talk, &askers[i]), 0);
	for (int i = 0; i < SHARED_CHANNELS; i++)
		finish(&askers[i]);
	assert_int_equal(write(stop[1], "", 1), 1);
	for (int i = 0; i < SHARED_THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < SHARED_CHANNELS; i++) {
		ibv_ack_cq_events(shared[i].side->cq, shared[i].events);
		put_away(&shared[i]);
		pair_close(pairs[i]);
	}
	close(shared_epoll);
	close(stop[0]);
	close(stop[1]);
}

/* --- what waiting is besides --- */

static uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

#define PAUSE_US 30000

/* Wait for @w's channel, in its own way, or until PAUSE_US are over (or for no time at all). */
static int wait_a_little(struct waiter *w, bool at_once)
{
	struct pollfd fd = {.fd = w->side->channel->fd, .events = POLLIN};
	int ms = at_once ? 0 : PAUSE_US / 1000;
	struct timespec time = {.tv_nsec = ms * 1000000};
	struct timeval left = {.tv_usec = ms * 1000};
	struct epoll_event event;
	fd_set set;
	int ready;
	switch (w->way) {
	case POLL:
		return poll(&fd, 1, ms);
	case PPOLL:
		return ppoll(&fd, 1, &time, NULL);
	case SELECT:
		FD_ZERO(&set);
		FD_SET(fd.fd, &set);
		ready = select(fd.fd + 1, &set, NULL, NULL, &left);
		assert_int_equal(left.tv_sec, 0);
		assert_int_equal(FD_ISSET(fd.fd, &set) != 0, ready == 1);
		if (ready == 0)
			assert_int_equal(left.tv_usec, 0);
		return ready;
	default:
		return epoll_wait(w->epoll, &event, 1, ms);
	}
}

static void timeouts_are_kept(void **state)
{
	static const enum way ways[] = {POLL, PPOLL, SELECT, LEVEL, EDGE, NESTED};
	struct pair *bystanders = pair_open(NULL);
	struct waiter bystander = {.side = &bystanders->b, .way = POLL},
	              sender = {.side = &bystanders->a};
	(void)state;
	/* Another channel has an event all the while, which nobody takes. */
	prepare(&bystander);
	say(&sender);
	assert_int_equal(wait_readable(&bystander), 1);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		struct pair *pair = pair_open(NULL);
		struct waiter w = {.side = &pair->b, .way = ways[i]};
		prepare(&w);
		uint64_t start_us = now_us();
		assert_int_equal(wait_a_little(&w, true), 0);
		assert_int_equal(wait_a_little(&w, false), 0);
		uint64_t took_us = now_us() - start_us;
		assert_in_range(took_us, PAUSE_US - 1000, 100 * PAUSE_US);
		/* And what is there ends the wait before. */
		struct waiter other = {.side = &pair->a};
		say(&other);
		assert_int_equal(wait_a_little(&w, false), 1);
		take_events(&w);
		assert_int_equal(wait_a_little(&w, true), 0);
		ibv_ack_cq_events(w.side->cq, w.events);
		put_away(&w);
		pair_close(pair);
	}
	put_away(&bystander);
	pair_close(bystanders);
}

/* Another descriptor ends the wait, and is the one that is named. */
static void other_descriptors_count(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct waiter w = {.side = &pair->b, .way = LEVEL};
	struct epoll_event event;
	fd_set in;
	(void)state;
	prepare(&w);
	struct pollfd fds[] = {{.fd = w.side->channel->fd, .events = POLLIN},
	                       {.fd = w.quiet[0], .events = POLLIN},
	                       {.fd = w.quiet[1], .events = POLLIN}};
	assert_int_equal(write(w.quiet[1], "x", 1), 1);
	assert_int_equal(poll(fds, 2, SILENT_MS), 1);
	assert_int_equal(fds[0].revents, 0);
	assert_int_equal(fds[1].revents, POLLIN);
	assert_int_equal(epoll_wait(w.epoll, &event, 1, SILENT_MS), 1);
	assert_int_equal(event.data.fd, w.quiet[0]);
	FD_ZERO(&in);
	FD_SET(fds[0].fd, &in);
	FD_SET(fds[1].fd, &in);
	assert_int_equal(select(FD_SETSIZE, &in, NULL, NULL, NULL), 1);
	assert_false(FD_ISSET(fds[0].fd, &in));
	assert_true(FD_ISSET(fds[1].fd, &in));
	/* Errors are those of the C library's. */
	assert_int_equal(epoll_wait(w.epoll, &event, 0, 0), -1);
	assert_int_equal(errno, EINVAL);
	close(w.quiet[0]);
	assert_int_equal(poll(fds, 3, SILENT_MS), 2);
	assert_int_equal(fds[1].revents, POLLNVAL);
	assert_int_equal(fds[2].revents, POLLERR);
	assert_int_equal(select(FD_SETSIZE, &in, NULL, NULL, NULL), -1);
	assert_int_equal(errno, EBADF);
	w.quiet[0] = dup(w.quiet[1]);
	put_away(&w);
	pair_close(pair);
}

static volatile sig_atomic_t handled;

static void count_signal(int number)
{
	(void)number;
	handled++;
}

static void *signal_later(void *argument)
{
	pthread_t *thread = argument;
	for (int i = 0; i < 50 && !handled; i++) {
		sleep_us(2000);
		pthread_kill(*thread, SIGUSR1);
	}
	return NULL;
}

static void signals_end_a_wait(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct waiter w = {.side = &pair->b, .way = LEVEL};
	struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
	sigset_t blocked, before;
	struct epoll_event event;
	pthread_t self = pthread_self(), thread;
	(void)state;
	if (UNDER_TSAN)
		skip();
	prepare(&w);
	struct pollfd fd = {.fd = w.side->channel->fd, .events = POLLIN};
	sigaction(SIGUSR1, &action, NULL);
	for (int way = 0; way < 2; way++) { /* never restarted (signal(7)) */
		handled = 0;
		assert_int_equal(pthread_create(&thread, NULL, signal_later, &self), 0);
		assert_int_equal(way == 0 ? poll(&fd, 1, SILENT_MS)
		                          : epoll_wait(w.epoll, &event, 1, SILENT_MS),
		                 -1);
		assert_int_equal(errno, EINTR);
		pthread_join(thread, NULL);
	}
	/* One that was blocked until the wait, and is again after it. */
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &blocked, &before);
	for (int way = 0; way < 2; way++) {
		handled = 0;
		raise(SIGUSR1);
		assert_int_equal(way == 0 ? ppoll(&fd, 1, NULL, &before)
		                          : epoll_pwait(w.epoll, &event, 1, SILENT_MS, &before),
		                 -1);
		assert_int_equal(errno, EINTR);
		assert_int_equal(handled, 1);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	signal(SIGUSR1, SIG_DFL);
	put_away(&w);
	pair_close(pair);
}

/* A child may poll what it inherited, and finds what there was; its parent loses nothing by that.
 */
static void a_child_polls_what_it_inherited(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct waiter w = {.side = &pair->b, .way = LEVEL}, other = {.side = &pair->a};
	int status;
	(void)state;
	prepare(&w);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct pollfd fd = {.fd = w.side->channel->fd, .events = POLLIN};
		struct epoll_event event;
		_exit(poll(&fd, 1, 20) != 0 || epoll_wait(w.epoll, &event, 1, 20) != 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	say(&other);
	await(&w, 1);
	ibv_ack_cq_events(w.side->cq, w.events);
	put_away(&w);
	pair_close(pair);
}

int main(void)
{
	setpgid(0, 0); /* fail_now() ends all of us */
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(no_wake_up_is_lost_between_processes),
	        cmocka_unit_test(no_wake_up_is_lost_in_one_process),
	        cmocka_unit_test(threads_share_an_epoll),
	        cmocka_unit_test(timeouts_are_kept),
	        cmocka_unit_test(other_descriptors_count),
	        cmocka_unit_test(signals_end_a_wait),
	        cmocka_unit_test(a_child_polls_what_it_inherited),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
