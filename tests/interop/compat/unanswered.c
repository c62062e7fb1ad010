/* A server that does not answer, through stock librdmacm: requests are given up at the time that
 * HEDDLE_CM_TIMEOUT_MS says, and are not to be accepted afterwards; one that cannot accept, or is
 * late with its receives. Usage: unanswered [wire]; with it, over UDP in place of the same-host
 * path. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <rdma/rdma_verbs.h>

/* Longer than two repetitions take, on either path: by then the server has said twice that it
 * lives. */
#define LONG_MS  "3500"
#define SHORT_MS "500"
/* Of a receive: more than the tries take that come at once. */
#define LATE_MS 50.0
/* Long before the minute that is waited for when nothing is said, and long after all else on a busy
 * machine. */
#define LIMIT_MS 30000

static bool over_udp;

static double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
	assert_int_equal(poll(&ready, 1, LIMIT_MS), 1);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	return event;
}

static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event(channel);
	struct rdma_cm_id *id = event->id;
	assert_string_equal(rdma_event_str(event->event), rdma_event_str(type));
	assert_int_equal(event->status, type == RDMA_CM_EVENT_UNREACHABLE ? -ETIMEDOUT : 0);
	rdma_ack_cm_event(event);
	return id;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
	        .qp_type = id->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC,
	        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
}

static void end(struct rdma_cm_id *id)
{
	if (id->qp != NULL)
		rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static struct rdma_cm_id *listen_in(struct rdma_event_channel *channel, enum rdma_port_space space)
{
	struct rdma_cm_id *id;
	struct sockaddr_in any = {.sin_family = AF_INET};
	assert_int_equal(rdma_create_id(channel, &id, NULL, space), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(id, 1), 0);
	return id;
}

static struct rdma_cm_id *route_to(struct rdma_event_channel *channel, enum rdma_port_space space,
                                   uint16_t port)
{
	struct rdma_cm_id *id;
	struct sockaddr_in there = {.sin_family = AF_INET,
	                            .sin_port = htons(port),
	                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(rdma_create_id(channel, &id, NULL, space), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&there, 5000), 0);
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(id, 5000), 0);
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(id);
	return id;
}

static void ask(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = {.retry_count = 7};
	assert_int_equal(rdma_connect(id, &param), 0);
}

/* Accept @id, which nobody waits for any more: either that fails, or its connection does, as fast
 * as messages travel. */
static void accept_in_vain(struct rdma_cm_id *id)
{
	make_qp(id);
	if (rdma_accept(id, NULL) != 0) {
		assert_int_equal(errno, ECONNABORTED);
		return;
	}
	struct rdma_cm_event *event = next_event(id->channel);
	assert_ptr_equal(event->id, id);
	assert_string_equal(rdma_event_str(event->event), rdma_event_str(RDMA_CM_EVENT_REJECTED));
	rdma_ack_cm_event(event);
}

/* An identifier for datagrams may ask again, and a late answer to the @first question is none to
 * the second. */
static void ask_again(struct rdma_cm_id *active, struct rdma_cm_id *first,
                      struct rdma_event_channel *there)
{
	ask(active);
	struct rdma_cm_id *second = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	make_qp(first);
	make_qp(second);
	/* Across the wire there is no message that takes a question of datagrams back (IBTA 12.11).
	 */
	assert_int_equal(rdma_accept(first, NULL), over_udp ? 0 : -1);
	assert_int_equal(rdma_accept(second, NULL), 0);
	struct rdma_cm_event *event = next_event(active->channel);
	assert_string_equal(rdma_event_str(event->event),
	                    rdma_event_str(RDMA_CM_EVENT_ESTABLISHED));
	assert_int_equal(event->param.ud.qp_num, second->qp->qp_num);
	rdma_ack_cm_event(event);
	end(second);
}

/* One of each service, at the same time. */
static void a_server_that_never_answers_is_given_up_in_time(void **state)
{
	static const enum rdma_port_space spaces[] = {RDMA_PS_TCP, RDMA_PS_UDP};
	struct rdma_event_channel *here[2], *there[2];
	struct rdma_cm_id *listener[2], *active[2], *passive[2];
	double start[2];
	(void)state;
	setenv("HEDDLE_CM_TIMEOUT_MS", LONG_MS, 1);
	for (int i = 0; i < 2; i++) {
		here[i] = rdma_create_event_channel();
		there[i] = rdma_create_event_channel();
		listener[i] = listen_in(there[i], spaces[i]);
		active[i] = route_to(here[i], spaces[i], ntohs(rdma_get_src_port(listener[i])));
		start[i] = now_ms();
		ask(active[i]);
		passive[i] = expect(there[i], RDMA_CM_EVENT_CONNECT_REQUEST);
	}
	for (int i = 0; i < 2; i++) {
		assert_ptr_equal(expect(here[i], RDMA_CM_EVENT_UNREACHABLE), active[i]);
		assert_true(now_ms() - start[i] >= atoi(LONG_MS));
	}
	unsetenv("HEDDLE_CM_TIMEOUT_MS");
	accept_in_vain(passive[0]);
	ask_again(active[1], passive[1], there[1]);
	for (int i = 0; i < 2; i++) {
		end(passive[i]);
		end(active[i]);
		end(listener[i]);
		rdma_destroy_event_channel(here[i]);
		rdma_destroy_event_channel(there[i]);
	}
}

/* Who cannot accept (here: more private data than there is room for) rejects, and cannot try again.
 */
static void an_accept_that_fails_is_a_rejection(void **state)
{
	static const struct {
		enum rdma_port_space space;
		uint8_t too_much;
		enum rdma_cm_event_type heard;
		int status;
	} rows[] = {{RDMA_PS_TCP, 197, RDMA_CM_EVENT_REJECTED, 28},    /* consumer reject */
	            {RDMA_PS_UDP, 137, RDMA_CM_EVENT_UNREACHABLE, 2}}; /* rejected (IBTA 12.11.2) */
	static const uint8_t data[256];
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rdma_event_channel *here = rdma_create_event_channel();
		struct rdma_event_channel *there = rdma_create_event_channel();
		struct rdma_cm_id *listener = listen_in(there, rows[i].space);
		struct rdma_cm_id *active =
		        route_to(here, rows[i].space, ntohs(rdma_get_src_port(listener)));
		struct rdma_conn_param param = {.private_data = data,
		                                .private_data_len = rows[i].too_much};
		ask(active);
		struct rdma_cm_id *passive = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST);
		make_qp(passive);
		assert_int_equal(rdma_accept(passive, &param), -1);
		assert_int_equal(errno, EINVAL);
		struct rdma_cm_event *event = next_event(here);
		assert_string_equal(rdma_event_str(event->event), rdma_event_str(rows[i].heard));
		assert_int_equal(event->status, rows[i].status);
		rdma_ack_cm_event(event);
		assert_int_equal(rdma_accept(passive, NULL), -1);
		end(passive);
		end(active);
		end(listener);
		rdma_destroy_event_channel(here);
		rdma_destroy_event_channel(there);
	}
}

/* A receive may come late: six retries are four seconds, as with Linux's rdma_cm. */
static void a_message_waits_for_its_receive(void **state)
{
	static char bytes[16] = "before its time";
	struct rdma_event_channel *here = rdma_create_event_channel();
	struct rdma_event_channel *there = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_in(there, RDMA_PS_TCP);
	struct rdma_cm_id *active = route_to(here, RDMA_PS_TCP, ntohs(rdma_get_src_port(listener)));
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 6};
	struct ibv_wc wc;
	(void)state;
	assert_int_equal(rdma_connect(active, &param), 0);
	struct rdma_cm_id *passive = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	make_qp(passive);
	assert_int_equal(rdma_accept(passive, &param), 0);
	expect(here, RDMA_CM_EVENT_ESTABLISHED);
	expect(there, RDMA_CM_EVENT_ESTABLISHED);
	char got[sizeof(bytes)] = "";
	struct ibv_mr *from = rdma_reg_msgs(active, bytes, sizeof(bytes));
	struct ibv_mr *to = rdma_reg_msgs(passive, got, sizeof(got));
	assert_int_equal(
	        rdma_post_send(active, NULL, bytes, sizeof(bytes), from, IBV_SEND_SIGNALED), 0);
	for (double start = now_ms(); now_ms() - start < LATE_MS;)
		assert_int_equal(ibv_poll_cq(active->send_cq, 1, &wc), 0);
	assert_int_equal(rdma_post_recv(passive, NULL, got, sizeof(got), to), 0);
	assert_int_equal(rdma_get_send_comp(active, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(rdma_get_recv_comp(passive, &wc), 1);
	assert_memory_equal(got, bytes, sizeof(bytes));
	rdma_dereg_mr(from);
	rdma_dereg_mr(to);
	end(passive);
	end(active);
	end(listener);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
}

/* The server: is asked, and disconnected; then, after it was stopped, asked without an answer. */
static void serve(int port_fd)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_in(channel, RDMA_PS_TCP);
	uint16_t port = ntohs(rdma_get_src_port(listener));
	assert_int_equal(write(port_fd, &port, sizeof(port)), sizeof(port));
	struct rdma_cm_id *first = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	make_qp(first);
	assert_int_equal(rdma_accept(first, NULL), 0);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(write(port_fd, &port, sizeof(port)), sizeof(port)); /* stop us now */
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(first);
	accept_in_vain(expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST));
}

/* A server that is stopped does not keep a connection from ending, nor does it accept, when it
 * wakes up, who waits no longer. */
static void a_server_that_is_stopped(void **state)
{
	int told[2], status;
	uint16_t port;
	(void)state;
	assert_int_equal(pipe(told), 0);
	/* Before we have opened anything: the two share nothing. */
	pid_t server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(told[1]);
		_exit(0);
	}
	assert_int_equal(read(told[0], &port, sizeof(port)), sizeof(port));
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *first = route_to(channel, RDMA_PS_TCP, port);
	struct rdma_cm_id *second = route_to(channel, RDMA_PS_TCP, port);
	ask(first);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(read(told[0], &port, sizeof(port)), sizeof(port));
	assert_int_equal(kill(server, SIGSTOP), 0);
	assert_int_equal(waitpid(server, &status, WUNTRACED), server);
	assert_true(WIFSTOPPED(status));
	setenv("HEDDLE_CM_TIMEOUT_MS", SHORT_MS, 1);
	if (!over_udp) { /* where a DREQ is repeated as often as ever */
		assert_int_equal(rdma_disconnect(first), 0);
		expect(channel, RDMA_CM_EVENT_DISCONNECTED);
		expect(channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	}
	end(first);
	ask(second);
	expect(channel, RDMA_CM_EVENT_UNREACHABLE);
	end(second); /* nor is there anyone to ask */
	assert_int_equal(kill(server, SIGCONT), 0);
	assert_int_equal(waitpid(server, &status, 0), server);
	assert_int_equal(status, 0);
	rdma_destroy_event_channel(channel);
	unsetenv("HEDDLE_CM_TIMEOUT_MS");
	close(told[0]);
	close(told[1]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_server_that_is_stopped), /* first: it forks */
	        cmocka_unit_test(a_server_that_never_answers_is_given_up_in_time),
	        cmocka_unit_test(an_accept_that_fails_is_a_rejection),
	        cmocka_unit_test(a_message_waits_for_its_receive),
	};
	char node[32];
	over_udp = argc > 1 && strcmp(argv[1], "wire") == 0;
	snprintf(node, sizeof(node), "unanswered-%d", (int)getpid());
	setenv("HEDDLE_NODE", node, 1);
	if (over_udp)
		setenv("HEDDLE_LOCAL", "off", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
