/* Connections through stock librdmacm, in one process and with one that dies: what programs on it rely on and the examples do not
 * show. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <rdma/rdma_cma.h>

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
	                            .sin_port = htons(port),
	                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel,
                                        enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
	assert_int_equal(poll(&ready, 1, 10000), 1);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	assert_int_equal(event->event, type);
	return event;
}

static void expect_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	assert_int_equal(rdma_ack_cm_event(next_event(channel, type)), 0);
}

static struct rdma_cm_id *listen_at(struct rdma_event_channel *channel, uint16_t port, int backlog)
{
	struct rdma_cm_id *id;
	struct sockaddr_in address = loopback(port);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
	assert_int_equal(rdma_listen(id, backlog), 0);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	return id;
}

/* An identifier with a route to @port, and a queue pair. */
static struct rdma_cm_id *route_to(struct rdma_event_channel *channel, uint16_t port)
{
	struct rdma_cm_id *id;
	struct sockaddr_in address = loopback(port);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000), 0);
	expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	expect_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
}

static void end(struct rdma_cm_id *id)
{
	if (id->qp != NULL)
		rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void a_port_is_held_once(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	(void)state;
	assert_non_null(channel);
	struct rdma_cm_id *first = listen_at(channel, 0, 1), *second;
	struct sockaddr_in same = loopback(ntohs(rdma_get_src_port(first)));
	assert_int_equal(rdma_create_id(channel, &second, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(second, (struct sockaddr *)&same), -1);
	assert_int_equal(errno, EADDRINUSE);
	end(first);
	assert_int_equal(rdma_bind_addr(second, (struct sockaddr *)&same), 0);
	end(second);
	rdma_destroy_event_channel(channel);
}

static struct rdma_cm_id *bind_any(struct rdma_event_channel *channel, sa_family_t family,
                                   uint16_t port, int only)
{
	struct rdma_cm_id *id;
	struct sockaddr_in6 address = {.sin6_family = family, .sin6_port = htons(port)};
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(
	        rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only)), 0);
	if (rdma_bind_addr(id, (struct sockaddr *)&address) == 0)
		return id;
	end(id);
	return NULL;
}

/* As tgtd does: two listeners, one a family; the port is free when both are gone. */
static void a_port_is_held_once_a_family(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {.retry_count = 7};
	(void)state;
	struct rdma_cm_id *four = bind_any(channel, AF_INET, 0, 1);
	uint16_t port = ntohs(rdma_get_src_port(four));
	assert_null(bind_any(channel, AF_INET6, port, 0)); /* both families */
	assert_null(bind_any(channel, AF_INET, port, 1));
	struct rdma_cm_id *six = bind_any(channel, AF_INET6, port, 1);
	assert_non_null(six);
	assert_int_equal(rdma_listen(four, 1), 0);
	assert_int_equal(rdma_listen(six, 1), 0);
	struct rdma_cm_id *active = route_to(channel, port);
	make_qp(active);
	assert_int_equal(rdma_connect(active, &param), 0);
	struct rdma_cm_event *event = next_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(event->listen_id, four);
	struct rdma_cm_id *passive = event->id;
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_reject(passive, NULL, 0), 0);
	expect_event(channel, RDMA_CM_EVENT_REJECTED);
	end(passive);
	end(active);
	end(four);
	assert_null(bind_any(channel, AF_INET, port, 0));
	end(six);
	four = bind_any(channel, AF_INET, port, 0);
	assert_non_null(four);
	end(four);
	rdma_destroy_event_channel(channel);
}

static void accepted_and_disconnected_in_order(void **state)
{
	struct rdma_event_channel *here = rdma_create_event_channel(),
	                          *there = rdma_create_event_channel();
	struct rdma_conn_param param = {.private_data = "hello",
	                                .private_data_len = 6,
	                                .responder_resources = 3,
	                                .initiator_depth = 2,
	                                .retry_count = 15};
	(void)state;
	struct rdma_cm_id *listener = listen_at(there, 0, 1);
	struct rdma_cm_id *active = route_to(here, ntohs(rdma_get_src_port(listener)));
	make_qp(active);
	assert_int_equal(rdma_connect(active, &param), 0);
	struct rdma_cm_event *event = next_event(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *passive = event->id;
	assert_ptr_equal(event->listen_id, listener);
	assert_memory_equal(event->param.conn.private_data, "hello", 6);
	assert_int_equal(event->param.conn.responder_resources, 2);
	assert_int_equal(event->param.conn.initiator_depth, 3);
	rdma_ack_cm_event(event);
	make_qp(passive);
	assert_int_equal(rdma_accept(passive, &(struct rdma_conn_param){.private_data = "yes",
	                                                                .private_data_len = 4}),
	                 0);
	event = next_event(here, RDMA_CM_EVENT_ESTABLISHED);
	assert_memory_equal(event->param.conn.private_data, "yes", 4);
	rdma_ack_cm_event(event);
	expect_event(there, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(rdma_get_dst_port(passive), rdma_get_src_port(active));
	assert_int_equal(rdma_disconnect(active), 0);
	expect_event(here, RDMA_CM_EVENT_DISCONNECTED);
	expect_event(there, RDMA_CM_EVENT_DISCONNECTED);
	expect_event(here, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	expect_event(there, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	end(active);
	end(passive);
	end(listener);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
}

static void rejected_with_private_data(void **state)
{
	struct rdma_event_channel *here = rdma_create_event_channel(),
	                          *there = rdma_create_event_channel();
	struct rdma_conn_param param = {.retry_count = 7};
	(void)state;
	struct rdma_cm_id *listener = listen_at(there, 0, 1);
	struct rdma_cm_id *active = route_to(here, ntohs(rdma_get_src_port(listener)));
	make_qp(active);
	assert_int_equal(rdma_connect(active, &param), 0);
	struct rdma_cm_event *event = next_event(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *passive = event->id;
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_reject(passive, "no", 3), 0);
	event = next_event(here, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, 28); /* by the consumer: IBTA 12.6.7.2 */
	assert_memory_equal(event->param.conn.private_data, "no", 3);
	rdma_ack_cm_event(event);
	end(passive);
	end(active);
	end(listener);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
}

static void a_full_backlog_rejects(void **state)
{
	struct rdma_event_channel *here = rdma_create_event_channel(),
	                          *there = rdma_create_event_channel();
	struct rdma_conn_param param = {.retry_count = 7};
	(void)state;
	struct rdma_cm_id *listener = listen_at(there, 0, 1);
	struct rdma_cm_id *first = route_to(here, ntohs(rdma_get_src_port(listener)));
	struct rdma_cm_id *second = route_to(here, ntohs(rdma_get_src_port(listener)));
	make_qp(first);
	make_qp(second);
	assert_int_equal(rdma_connect(first, &param), 0);
	assert_int_equal(rdma_connect(second, &param), 0);
	struct rdma_cm_event *event = next_event(here, RDMA_CM_EVENT_REJECTED);
	assert_ptr_equal(event->id, second);
	rdma_ack_cm_event(event);
	end(listener); /* with a request that nobody took */
	event = next_event(here, RDMA_CM_EVENT_REJECTED);
	assert_ptr_equal(event->id, first);
	rdma_ack_cm_event(event);
	end(first);
	end(second);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
}

static void an_empty_channel_does_not_wait_unless_told(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	(void)state;
	assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(rdma_get_cm_event(channel, &event), -1);
	assert_int_equal(errno, EAGAIN);
	rdma_destroy_event_channel(channel);
}

/* The child connects to @port and waits to be killed. */
static void connect_and_wait(uint16_t port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {.retry_count = 7};
	struct rdma_cm_id *id = route_to(channel, port);
	make_qp(id);
	assert_int_equal(rdma_connect(id, &param), 0);
	expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
	pause();
}

static void a_peer_that_dies_is_disconnected(void **state)
{
	(void)state;
	int told[2];
	assert_int_equal(pipe(told), 0);
	/* Before we have opened anything: the two share nothing. */
	pid_t child = fork();
	if (child == 0) {
		uint16_t port = 0;
		if (read(told[0], &port, sizeof(port)) == sizeof(port))
			connect_and_wait(port);
		_exit(1);
	}
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_at(channel, 0, 1);
	uint16_t port = ntohs(rdma_get_src_port(listener));
	assert_int_equal(write(told[1], &port, sizeof(port)), sizeof(port));
	struct rdma_cm_event *event = next_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *passive = event->id;
	rdma_ack_cm_event(event);
	make_qp(passive);
	assert_int_equal(rdma_accept(passive, NULL), 0);
	expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(kill(child, SIGKILL), 0);
	expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(waitpid(child, NULL, 0), child);
	end(passive);
	end(listener);
	rdma_destroy_event_channel(channel);
	close(told[0]);
	close(told[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_peer_that_dies_is_disconnected), /* first: it forks */
	        cmocka_unit_test(a_port_is_held_once),
	        cmocka_unit_test(a_port_is_held_once_a_family),
	        cmocka_unit_test(accepted_and_disconnected_in_order),
	        cmocka_unit_test(rejected_with_private_data),
	        cmocka_unit_test(a_full_backlog_rejects),
	        cmocka_unit_test(an_empty_channel_does_not_wait_unless_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
