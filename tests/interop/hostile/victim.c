/* One end of a connection by rdma_cm that others try to disturb. It says what happens to it:
 *
 *   victim [-s SOURCE] PORT ADDRESS    connect there, from SOURCE
 *   victim PORT                        listen, and accept whoever comes
 *
 *   address A          ours, by which a node is known
 *   source A           what the program is bound to after the address was resolved
 *   connected QPN PSN  the queue pair, and the PSN that it expects next
 *   got TEXT           a message came
 *   event NAME STATUS  something happened to the connection
 *
 * Told on its standard input: "say TEXT" sends, "cpu" prints the microseconds of processor that it
 * has used, "end" ends. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define ROOM     64
#define RECEIVES 16

static struct rdma_event_channel *channel;
static struct rdma_cm_id *own; /* the connection */
static struct ibv_mr *mr;
static char rooms[RECEIVES + 1][ROOM];
static uint16_t port;

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	printf("failed %s\n", what);
	fflush(stdout);
	exit(1);
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 8,
	                                        .max_recv_wr = RECEIVES,
	                                        .max_send_sge = 1,
	                                        .max_recv_sge = 1},
	                                .qp_type = IBV_QPT_RC,
	                                .sq_sig_all = 1};
	must(rdma_create_qp(id, NULL, &attr) == 0, "rdma_create_qp");
	mr = rdma_reg_msgs(id, rooms, sizeof(rooms));
	must(mr != NULL, "rdma_reg_msgs");
	for (uintptr_t i = 0; i < RECEIVES; i++)
		must(rdma_post_recv(id, (void *)i, rooms[i], ROOM, mr) == 0, "rdma_post_recv");
}

static void print_address(const char *what, const struct sockaddr *address)
{
	char text[INET_ADDRSTRLEN];
	const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
	inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
	printf("%s %s\n", what, text);
}

static void print_connected(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	must(ibv_query_qp(own->qp, &attr, IBV_QP_RQ_PSN, &init) == 0, "ibv_query_qp");
	printf("connected %#x %#x\n", own->qp->qp_num, attr.rq_psn);
}

static void take_event(void)
{
	struct rdma_cm_event *event;
	struct rdma_conn_param param = {
	        .retry_count = 7, .rnr_retry_count = 7, .responder_resources = 1};
	if (rdma_get_cm_event(channel, &event) != 0)
		return;
	struct rdma_cm_id *id = event->id;
	enum rdma_cm_event_type type = event->event;
	int status = event->status;
	rdma_ack_cm_event(event);
	printf("event %s %d\n", rdma_event_str(type), status);
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		print_address("source", rdma_get_local_addr(id));
		must(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		make_qp(id);
		if (rdma_connect(id, &param) != 0)
			printf("refused %m\n");
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST: /* the first is served; others are accepted, with
	                                       nothing behind it */
		print_address("peer", rdma_get_peer_addr(id));
		if (own == NULL) {
			own = id;
			make_qp(id);
		} else {
			param.qp_num = 0x42;
		}
		must(rdma_accept(id, &param) == 0, "rdma_accept");
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (id == own)
			print_connected();
		break;
	default:
		break;
	}
}

static void take_completions(void)
{
	struct ibv_wc wc;
	while (own != NULL && own->recv_cq != NULL && ibv_poll_cq(own->recv_cq, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS) {
			printf("flushed %s\n", ibv_wc_status_str(wc.status));
			continue;
		}
		printf("got %.*s\n", ROOM, rooms[wc.wr_id]);
		rdma_post_recv(own, (void *)(uintptr_t)wc.wr_id, rooms[wc.wr_id], ROOM, mr);
	}
	while (own != NULL && own->send_cq != NULL && ibv_poll_cq(own->send_cq, 1, &wc) == 1)
		printf("sent %s\n", ibv_wc_status_str(wc.status));
}

static bool obey(void)
{
	char line[256];
	struct rusage usage;
	if (fgets(line, sizeof(line), stdin) == NULL || strcmp(line, "end\n") == 0)
		return false;
	line[strcspn(line, "\n")] = '\0';
	if (strncmp(line, "say ", 4) == 0) {
		snprintf(rooms[RECEIVES], ROOM, "%.60s", line + 4);
		if (rdma_post_send(own, NULL, rooms[RECEIVES], ROOM, mr, 0) != 0)
			printf("sent nothing: %m\n");
	} else if (strcmp(line, "cpu") == 0) {
		getrusage(RUSAGE_SELF, &usage);
		printf("cpu %ld\n", (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000L +
		                            usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	}
	return true;
}

static void begin(const char *source, const char *address)
{
	struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
	struct rdma_cm_id *id;
	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	must(inet_pton(AF_INET, source, &from.sin_addr) == 1, "the source");
	from.sin_port = address == NULL ? htons(port) : 0;
	must(rdma_bind_addr(id, (struct sockaddr *)&from) == 0, "rdma_bind_addr");
	print_address("address", rdma_get_local_addr(id));
	if (address == NULL) {
		must(rdma_listen(id, 1024) == 0, "rdma_listen");
		return;
	}
	own = id;
	to.sin_port = htons(port);
	must(inet_pton(AF_INET, address, &to.sin_addr) == 1, "the address");
	must(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000) == 0, "rdma_resolve_addr");
}

int main(int argc, char **argv)
{
	const char *source = "127.0.0.1";
	int option;
	while ((option = getopt(argc, argv, "s:")) >= 0)
		source = optarg;
	if (optind >= argc)
		return 2;
	prctl(PR_SET_PDEATHSIG, 9);
	port = (uint16_t)atoi(argv[optind]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	channel = rdma_create_event_channel();
	must(channel != NULL, "rdma_create_event_channel");
	begin(source, optind + 1 < argc ? argv[optind + 1] : NULL);
	for (;;) {
		struct pollfd news[2] = {{.fd = channel->fd, .events = POLLIN},
		                         {.fd = 0, .events = POLLIN}};
		if (poll(news, 2, 5) > 0) {
			if (news[0].revents != 0)
				take_event();
			if (news[1].revents != 0 && !obey())
				return 0;
		}
		take_completions();
	}
}
