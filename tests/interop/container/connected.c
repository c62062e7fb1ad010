/* A connection by rdma_cm that nothing is sent on: who waits for its end hears of it from rdma_cm
 * alone. Compiled with the stock headers, run on ours.
 *
 *   connected listen PORT     says "listening", "connected", "disconnected", and ends
 *   connected connect PORT    says "connected", and stays */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

static void check(int result, const char *what)
{
	if (result == 0)
		return;
	perror(what);
	exit(1);
}

/* The next event, which must be @wanted; the identifier that it is about. */
static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	if (event->event != wanted) {
		fprintf(stderr, "%s in place of %s\n", rdma_event_str(event->event),
		        rdma_event_str(wanted));
		exit(1);
	}
	struct rdma_cm_id *id = event->id;
	rdma_ack_cm_event(event);
	return id;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {.retry_count = 7};
	struct rdma_cm_id *id;
	if (argc != 3 || channel == NULL)
		return 2;
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_port = htons((uint16_t)atoi(argv[2])),
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	check(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(argv[1], "connect") == 0) {
		check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000),
		      "rdma_resolve_addr");
		expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
		check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
		expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
		make_qp(id);
		check(rdma_connect(id, &param), "rdma_connect");
		expect(channel, RDMA_CM_EVENT_ESTABLISHED);
		puts("connected");
		pause();
	}
	check(rdma_bind_addr(id, (struct sockaddr *)&address), "rdma_bind_addr");
	check(rdma_listen(id, 1), "rdma_listen");
	puts("listening");
	id = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	make_qp(id);
	check(rdma_accept(id, &param), "rdma_accept");
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	puts("connected");
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	puts("disconnected");
	return 0;
}
