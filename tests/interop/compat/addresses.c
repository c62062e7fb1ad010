/* The addresses of a connection through stock librdmacm, on the same-host path and over UDP: both
 * ends see those that the program used, whatever address packets leave from. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <rdma/rdma_cma.h>

#define WAIT_MS 10000
#define OTHER   0x7f000063u /* 127.0.0.99 */
/* 127.72.0.0/16, where every node has an address that others can use. */
#define LOOPBACK_OF_NODES 0x7f48u

static struct rdma_event_channel *here, *there;

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel,
                                        enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
	assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	assert_int_equal(event->event, type);
	return event;
}

static struct rdma_cm_id *expect_event(struct rdma_event_channel *channel,
                                       enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event(channel, type);
	struct rdma_cm_id *id = event->id;
	assert_int_equal(rdma_ack_cm_event(event), 0);
	return id;
}

static struct sockaddr_in at(in_addr_t address, in_port_t port)
{
	return (struct sockaddr_in){
	        .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(address)};
}

static in_addr_t address_of(const struct sockaddr *address)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
	assert_int_equal(in->sin_family, AF_INET);
	return ntohl(in->sin_addr.s_addr);
}

static bool over_udp(void)
{
	const char *local = getenv("HEDDLE_LOCAL");
	return local != NULL && strcmp(local, "off") == 0;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
}

/* From @from (0: the program does not say) to a listener at @to. @shown: what the client is called.
 */
static void connect_from(in_addr_t from, in_addr_t to, in_addr_t shown)
{
	struct sockaddr_in server = at(to, 0), source = at(from, 0);
	struct rdma_conn_param param = {.retry_count = 7};
	struct rdma_cm_id *listener, *active, *passive;
	assert_int_equal(rdma_create_id(there, &listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&server), 0);
	assert_int_equal(rdma_listen(listener, 1), 0);
	in_addr_t named = address_of(rdma_get_local_addr(listener));
	if (over_udp())
		assert_int_equal(named >> 16, LOOPBACK_OF_NODES);
	else
		assert_int_equal(named, to);
	server = at(to, rdma_get_src_port(listener));
	assert_int_equal(rdma_create_id(here, &active, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(active, from != 0 ? (struct sockaddr *)&source : NULL,
	                                   (struct sockaddr *)&server, 1000),
	                 0);
	expect_event(here, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(address_of(rdma_get_local_addr(active)), shown);
	assert_int_equal(rdma_resolve_route(active, 1000), 0);
	expect_event(here, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(active);
	assert_int_equal(rdma_connect(active, &param), 0);
	passive = expect_event(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(address_of(rdma_get_peer_addr(passive)), shown);
	assert_int_equal(address_of(rdma_get_local_addr(passive)), to);
	assert_int_equal(rdma_get_dst_port(passive), rdma_get_src_port(active));
	make_qp(passive);
	assert_int_equal(rdma_accept(passive, &param), 0);
	expect_event(here, RDMA_CM_EVENT_ESTABLISHED);
	expect_event(there, RDMA_CM_EVENT_ESTABLISHED);
	rdma_destroy_qp(active);
	rdma_destroy_qp(passive);
	rdma_destroy_id(active);
	rdma_destroy_id(passive);
	rdma_destroy_id(listener);
}

static void clients_of_the_loopback_are_there(void **state)
{
	(void)state;
	connect_from(0, INADDR_LOOPBACK, INADDR_LOOPBACK);
}

/* One that a peer elsewhere can use as well: a program may pass it on. */
static void a_source_in_the_loopback_is_that_of_the_node(void **state)
{
	(void)state;
	if (!over_udp())
		connect_from(OTHER, INADDR_LOOPBACK, OTHER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(clients_of_the_loopback_are_there),
	        cmocka_unit_test(a_source_in_the_loopback_is_that_of_the_node),
	};
	here = rdma_create_event_channel();
	there = rdma_create_event_channel();
	if (here == NULL || there == NULL)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
