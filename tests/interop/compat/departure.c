/* The news that a peer has left, and what it sent before: a program that looks for completions and
 * events by turns, and ends a connection with all that it has not polled, must get to see what
 * came. The peer is a child that sends messages and disconnects. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define MESSAGES 2
#define PEERS    3
#define WAIT_MS  20000

struct side {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	char room[64];
};

/* Each waits for the port of the one it is to leave. */
static struct {
	pid_t pid;
	int tell;
} peers[PEERS];
static int used;

static struct ibv_qp_init_attr attributes(void)
{
	return (struct ibv_qp_init_attr){
	        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	        .sq_sig_all = 1};
}

/* Child: connect, send, see that it arrived, leave. */
static int send_and_leave(const char *port)
{
	static struct side side;
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr attr = attributes();
	struct ibv_wc wc;
	if (rdma_getaddrinfo("127.0.0.1", port, &hints, &found) != 0 ||
	    rdma_create_ep(&side.id, found, NULL, &attr) != 0)
		return 1;
	side.mr = rdma_reg_msgs(side.id, side.room, sizeof(side.room));
	if (side.mr == NULL || rdma_connect(side.id, NULL) != 0)
		return 2;
	for (int i = 0; i < MESSAGES; i++)
		if (rdma_post_send(side.id, NULL, side.room, 8, side.mr, 0) != 0)
			return 3;
	for (int i = 0; i < MESSAGES; i++)
		if (rdma_get_send_comp(side.id, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
			return 4;
	return rdma_disconnect(side.id) == 0 ? 0 : 5;
}

/* A peer comes, sends and leaves. When this returns the news of it is there. */
static void be_left(struct side *side, bool waits)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE};
	struct rdma_addrinfo *found;
	struct rdma_cm_id *listener;
	struct ibv_qp_init_attr attr = attributes();
	int status;
	char port[8] = "";
	pid_t child = peers[used].pid;
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "0", &hints, &found), 0);
	assert_int_equal(rdma_create_ep(&listener, found, NULL, &attr), 0);
	assert_int_equal(rdma_listen(listener, 1), 0);
	snprintf(port, sizeof(port), "%u", (unsigned)ntohs(rdma_get_src_port(listener)));
	assert_int_equal(write(peers[used++].tell, port, sizeof(port)), sizeof(port));
	struct pollfd asked = {.fd = listener->channel->fd, .events = POLLIN};
	if (poll(&asked, 1, WAIT_MS) == 0) {
		kill(child, SIGKILL); /* or it says where it failed */
		assert_int_equal(waitpid(child, &status, 0), child);
		fail_msg("nobody came: %#x", (unsigned)status);
	}
	assert_int_equal(rdma_get_request(listener, &side->id), 0);
	side->mr = rdma_reg_msgs(side->id, side->room, sizeof(side->room));
	assert_non_null(side->mr);
	for (int i = 0; i < MESSAGES; i++)
		assert_int_equal(rdma_post_recv(side->id, NULL, side->room, 8, side->mr), 0);
	assert_int_equal(rdma_accept(side->id, NULL), 0);
	if (!waits)
		assert_int_equal(fcntl(side->id->channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	struct pollfd ready = {.fd = side->id->channel->fd, .events = POLLIN};
	assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(found);
}

static void expect_nothing_yet(const struct side *side)
{
	struct rdma_cm_event *event;
	assert_int_equal(rdma_get_cm_event(side->id->channel, &event), -1);
	assert_int_equal(errno, EAGAIN);
}

static void expect_departure(const struct side *side)
{
	struct rdma_cm_event *event;
	assert_int_equal(rdma_get_cm_event(side->id->channel, &event), 0);
	assert_int_equal(event->event, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(rdma_ack_cm_event(event), 0);
}

static void take(const struct side *side)
{
	struct ibv_wc wc;
	assert_int_equal(ibv_poll_cq(side->id->recv_cq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 8);
}

static void part(const struct side *side)
{
	rdma_dereg_mr(side->mr);
	rdma_destroy_ep(side->id);
}

static void what_came_before_is_seen_before(void **state)
{
	(void)state;
	struct side side;
	be_left(&side, false);
	/* One who is woken by what is new alone is woken again. */
	int watch = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event edge = {.events = EPOLLIN | EPOLLET};
	assert_int_equal(epoll_ctl(watch, EPOLL_CTL_ADD, side.id->channel->fd, &edge), 0);
	assert_int_equal(epoll_wait(watch, &edge, 1, 0), 1);
	for (int i = 0; i < MESSAGES; i++) {
		expect_nothing_yet(&side);
		assert_int_equal(epoll_wait(watch, &edge, 1, 0), 1);
		take(&side);
	}
	expect_departure(&side);
	close(watch);
	part(&side);
}

static void who_takes_nothing_is_told_when_he_looks_again(void **state)
{
	(void)state;
	struct side side;
	be_left(&side, false);
	expect_nothing_yet(&side);
	expect_departure(&side);
	part(&side);
}

static void who_waits_is_told_at_once(void **state)
{
	(void)state;
	struct side side;
	be_left(&side, true);
	expect_departure(&side);
	for (int i = 0; i < MESSAGES; i++)
		take(&side);
	part(&side);
}

/* Before we have opened anything: the two share nothing. */
static int start_peers(void **state)
{
	(void)state;
	for (int i = 0; i < PEERS; i++) {
		int told[2];
		char port[8];
		if (pipe(told) != 0)
			return -1;
		peers[i].pid = fork();
		if (peers[i].pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			bool asked = read(told[0], port, sizeof(port)) == sizeof(port);
			_exit(asked ? send_and_leave(port) : 9);
		}
		close(told[0]);
		peers[i].tell = told[1];
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[PEERS] = {
	        cmocka_unit_test(what_came_before_is_seen_before),
	        cmocka_unit_test(who_takes_nothing_is_told_when_he_looks_again),
	        cmocka_unit_test(who_waits_is_told_at_once),
	};
	char node[32]; /* of our own: others may be at work on the one without a name, some of them
	                  over UDP */
	snprintf(node, sizeof(node), "leaving-%d", (int)getpid());
	setenv("HEDDLE_NODE", node, 1);
	return cmocka_run_group_tests(tests, start_peers, NULL);
}
