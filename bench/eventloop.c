/* Requests and responses of 64 bytes between two event loops, as between a key-value server and its
 * clients: over verbs, with one completion channel per connection, or over TCP. It does not know
 * about Heddle; bench/events runs it.
 *
 *   eventloop server WAY PORT CONNECTIONS
 *   eventloop client WAY PORT CONNECTIONS MILLISECONDS
 *
 * WAY is how to wait for completions: block (in ibv_get_cq_event(), one connection), poll, epoll;
 * or tcp, which waits in epoll. The client prints microseconds per request, requests per second,
 * and its own processor time per request. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

/* None of these calls may fail. */
#define MUST(condition)                                                        \
	do {                                                                   \
		if (!(condition)) {                                            \
			fprintf(stderr, "%d: %s: %m\n", __LINE__, #condition); \
			exit(1);                                               \
		}                                                              \
	} while (0)

#define MOST         1024u
#define BYTES        64u
#define RECEIVES     8u
#define SIGNAL_EVERY 32u /* one in so many sends is signaled, which frees the others' places */
#define SENDS        128u
#define WARM_UP_NS   200000000ull

enum way { BLOCK, POLL, EPOLL, TCP };

struct connection {
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint32_t sends, events;
	int fd; /* of the channel, or the socket */
	char memory[(RECEIVES + 1) * BYTES];
};

static struct connection connections[MOST];
static struct pollfd fds[MOST];
static struct ibv_pd *pd;
static unsigned count, open_count;
static enum way way;
static bool serves, ending;

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double processor_us(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* --- a connection --- */

static void post_receive(struct connection *c, uint64_t which)
{
	struct ibv_sge sge = {
	        .addr = (uintptr_t)c->memory + which * BYTES, .length = BYTES, .lkey = c->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = which, .sg_list = &sge, .num_sge = 1}, *bad;
	MUST(ibv_post_recv(c->id->qp, &wr, &bad) == 0);
}

static void say(struct connection *c, char what)
{
	char *bytes = c->memory + RECEIVES * BYTES;
	bytes[0] = what;
	if (way == TCP) {
		MUST(send(c->fd, bytes, BYTES, MSG_NOSIGNAL) == BYTES);
		return;
	}
	struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = BYTES, .lkey = c->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = RECEIVES,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_INLINE},
	                   *bad;
	if (++c->sends % SIGNAL_EVERY == 0)
		wr.send_flags |= IBV_SEND_SIGNALED;
	MUST(ibv_post_send(c->id->qp, &wr, &bad) == 0);
}

static void equip(struct connection *c)
{
	if (pd == NULL)
		MUST((pd = ibv_alloc_pd(c->id->verbs)) != NULL);
	MUST((c->channel = ibv_create_comp_channel(c->id->verbs)) != NULL);
	MUST((c->cq = ibv_create_cq(c->id->verbs, SENDS + RECEIVES, c, c->channel, 0)) != NULL);
	MUST((c->mr = ibv_reg_mr(pd, c->memory, sizeof(c->memory), IBV_ACCESS_LOCAL_WRITE)) !=
	     NULL);
	struct ibv_qp_init_attr attr = {.send_cq = c->cq,
	                                .recv_cq = c->cq,
	                                .qp_type = IBV_QPT_RC,
	                                .cap = {.max_send_wr = SENDS,
	                                        .max_recv_wr = RECEIVES,
	                                        .max_send_sge = 1,
	                                        .max_recv_sge = 1,
	                                        .max_inline_data = BYTES}};
	MUST(rdma_create_qp(c->id, pd, &attr) == 0);
	for (uint64_t i = 0; i < RECEIVES; i++)
		post_receive(c, i);
	MUST(ibv_req_notify_cq(c->cq, 0) == 0);
	c->fd = c->channel->fd;
	if (way != BLOCK)
		MUST(fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK) == 0);
}

static void connect_all(const char *port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons((uint16_t)atoi(port)),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = {.responder_resources = 1,
	                                .initiator_depth = 1,
	                                .retry_count = 7,
	                                .rnr_retry_count = 7};
	struct rdma_cm_id *listener = NULL;
	int sock = -1, on = 1;
	if (way == TCP && serves) {
		MUST((sock = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
		setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		MUST(bind(sock, (struct sockaddr *)&to, sizeof(to)) == 0 &&
		     listen(sock, MOST) == 0);
	} else if (serves) {
		MUST(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) == 0);
		MUST(rdma_bind_addr(listener, (struct sockaddr *)&to) == 0);
		MUST(rdma_listen(listener, MOST) == 0);
	}
	for (unsigned i = 0; i < count; i++) {
		struct connection *c = &connections[i];
		if (way == TCP) {
			c->fd = serves ? accept(sock, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
			MUST(c->fd >= 0);
			MUST(serves || connect(c->fd, (struct sockaddr *)&to, sizeof(to)) == 0);
			setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		} else if (serves) {
			MUST(rdma_get_request(listener, &c->id) == 0);
			equip(c);
			MUST(rdma_accept(c->id, &param) == 0);
		} else {
			MUST(rdma_create_id(NULL, &c->id, NULL, RDMA_PS_TCP) == 0);
			MUST(rdma_resolve_addr(c->id, NULL, (struct sockaddr *)&to, 2000) == 0);
			MUST(rdma_resolve_route(c->id, 2000) == 0);
			equip(c);
			MUST(rdma_connect(c->id, &param) == 0);
		}
	}
	open_count = count;
}

/* --- what came --- */

/* A message arrived. Its first byte is @what: a request, a response, or the last message. */
static void heard(struct connection *c, char what)
{
	if (what == 'q' || ending)
		open_count--;
	if (what != 'q')
		say(c, ending ? 'q' : what);
}

/* Check @c for messages. */
static void look(struct connection *c)
{
	if (way == TCP) {
		char bytes[BYTES];
		ssize_t got = recv(c->fd, bytes, BYTES, 0);
		if (got == BYTES)
			heard(c, bytes[0]);
		else
			MUST(got == 0);
		return;
	}
	struct ibv_cq *cq;
	void *context;
	struct ibv_wc wc[RECEIVES];
	int got;
	if (ibv_get_cq_event(c->channel, &cq, &context) != 0) {
		MUST(errno == EAGAIN);
		return;
	}
	if (++c->events == 1000) {
		ibv_ack_cq_events(cq, c->events);
		c->events = 0;
	}
	MUST(ibv_req_notify_cq(cq, 0) == 0);
	while ((got = ibv_poll_cq(cq, RECEIVES, wc)) > 0)
		for (int i = 0; i < got; i++) {
			MUST(wc[i].status == IBV_WC_SUCCESS);
			if (wc[i].wr_id == RECEIVES)
				continue;
			char what = c->memory[wc[i].wr_id * BYTES];
			post_receive(c, wc[i].wr_id);
			heard(c, what);
		}
	MUST(got == 0);
}

/* Wait for one turn. Returns the number of connections that may have messages. */
static unsigned turn(int epoll)
{
	struct epoll_event events[64];
	int got;
	switch (way) {
	case BLOCK:
		look(&connections[0]);
		return 1;
	case POLL:
		MUST((got = poll(fds, count, 10000)) > 0);
		for (unsigned i = 0; i < count; i++)
			if (fds[i].revents != 0)
				look(&connections[i]);
		return (unsigned)got;
	default:
		MUST((got = epoll_wait(epoll, events, 64, 10000)) > 0);
		for (int i = 0; i < got; i++)
			look(events[i].data.ptr);
		return (unsigned)got;
	}
}

static void ask(int epoll, uint64_t ns)
{
	for (unsigned i = 0; i < count; i++)
		say(&connections[i], 'a');
	uint64_t start = now_ns(), now;
	while (now_ns() - start < WARM_UP_NS)
		turn(epoll);
	start = now_ns();
	double processor = processor_us(), requests = 0;
	do {
		for (unsigned i = 0; i < 64; i++)
			requests += turn(epoll);
		now = now_ns();
	} while (now - start < ns);
	double us = (double)(now - start) / 1e3;
	printf("us %.3f rate %.0f cpu %.3f\n", us / requests * count, requests / us * 1e6,
	       (processor_us() - processor) / requests);
	ending = true;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"block", "poll", "epoll", "tcp"};
	MUST(argc >= 5);
	serves = strcmp(argv[1], "server") == 0;
	while (strcmp(argv[2], names[way]) != 0)
		MUST(++way <= TCP);
	count = (unsigned)atoi(argv[4]);
	MUST(count > 0 && count <= MOST && (way != BLOCK || count == 1));
	connect_all(argv[3]);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	for (unsigned i = 0; i < count; i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
		fds[i] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
		MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event) == 0);
	}
	if (!serves)
		ask(epoll, (uint64_t)atoi(argv[5]) * 1000000u);
	while (open_count > 0)
		turn(epoll);
	return 0;
}
