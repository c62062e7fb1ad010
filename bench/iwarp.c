/* iWARP between two processes on the loopback, beside bare TCP sockets of this program and beside
 * bare TCP with a CRC-32C pass at each end, all in one run: half round trip, throughput and
 * processor time, short writes in lists, and what a connection costs. Prints one line per figure:
 * what, median, minimum, maximum, unit.
 *
 *	bench-iwarp          all of it
 *	bench-iwarp PART     pings, rates-64-with, rates-1024-with, rates-1024-without (the CRC),
 *	                     shorts or connections: for bench/streams
 */
#include <errno.h>
#include <fcntl.h>
#include <heddle/heddle.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc.h"
#include "figures.h"
#include "must.h"

#define ROUNDS   7
#define PINGS    2000u
#define LONG     (1u << 20)
#define WINDOW   16u /* long requests at a time */
#define MOVED    (256u << 20)
#define LIST     32u
#define SHORTS   (LIST * 2000u)
#define MANY     1000u
#define WAIT_MS  20000
#define MAX_TEXT 96

static const struct hdl_gid loopback = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};

/* What the client asks of the server, over the control socket. */
enum ask {
	ASK_PING_TCP,
	ASK_PING_IWARP,
	ASK_TAKE_TCP,
	ASK_TAKE_TCP_CRC,
	ASK_GIVE,
	ASK_TIME,
	ASK_MANY
};
struct order {
	uint32_t ask;
	uint32_t bytes; /* of one message or call */
	uint64_t total;
};

struct end {
	int control, tcp;
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_channel *channel;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_qp *qp;
	struct hdl_conn *conn;
	struct hdl_listener *listener;
	uint8_t *memory;
	uint64_t peer_addr;
	struct hdl_key peer_key;
};

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void whole(int fd, void *data, size_t bytes, bool out)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t some = out ? write(fd, (char *)data + done, bytes - done)
		                   : read(fd, (char *)data + done, bytes - done);
		if (some <= 0)
			fail("control");
		done += (size_t)some;
	}
}

/* --- the ends --- */

static struct hdl_qp *make_qp(struct end *e)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = e->cq,
	                                .recv_cq = e->cq,
	                                .cap = {.max_send_wr = 128,
	                                        .max_recv_wr = 16,
	                                        .max_send_sge = 1,
	                                        .max_recv_sge = 1}};
	const struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                                 .port_num = 1,
	                                 .access =
	                                         HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE};
	must(hdl_qp_create(e->pd, &init, &qp), "hdl_qp_create");
	must(hdl_qp_modify(qp, &attr,
	                   HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS),
	     "hdl_qp_modify");
	return qp;
}

static void open_end(struct end *e)
{
	const struct hdl_open_attr attr = {.max_qp = 4096};
	e->memory = aligned_alloc(4096, LONG);
	if (e->memory == NULL)
		fail("memory");
	memset(e->memory, 0x5a, LONG);
	must(hdl_open(&attr, &e->adapter), "hdl_open");
	must(hdl_pd_create(e->adapter, &e->pd), "hdl_pd_create");
	must(hdl_channel_create(e->adapter, &e->channel), "hdl_channel_create");
	must(hdl_cq_create(e->adapter, 4096, e->channel, NULL, &e->cq), "hdl_cq_create");
	must(hdl_mr_register(e->pd, e->memory, LONG,
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                             HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	                     &e->mr),
	     "hdl_mr_register");
}

static struct hdl_conn_event event_of(struct end *e, enum hdl_conn_event_type type)
{
	struct hdl_conn_event event;
	must(hdl_conn_event_get(e->adapter, &event, WAIT_MS), "hdl_conn_event_get");
	if (event.type != type) {
		fprintf(stderr, "event %u, not %u\n", event.type, (unsigned)type);
		exit(1);
	}
	return event;
}

struct hello {
	uint16_t port, tcp_port;
	uint64_t addr;
	struct hdl_key key;
};

static struct hdl_conn_param param_of(bool crc, bool busy)
{
	uint16_t depth = busy ? 16 : 1;
	return (struct hdl_conn_param){
	        .ird = depth, .ord = depth, .flags = crc ? 0 : HDL_CONN_NO_CRC};
}

static void accept_one(struct end *e, struct hdl_qp *qp, struct hdl_conn **conn, bool crc)
{
	const struct hdl_conn_param param = param_of(crc, qp == e->qp);
	*conn = event_of(e, HDL_CONN_REQUEST).conn;
	must(hdl_conn_accept(*conn, qp, &param, NULL), "hdl_conn_accept");
	event_of(e, HDL_CONN_ESTABLISHED);
}

static void connect_one(struct end *e, struct hdl_qp *qp, struct hdl_conn **conn, uint16_t port,
                        bool crc)
{
	const struct hdl_conn_param param = param_of(crc, qp == e->qp);
	must(hdl_conn_connect(qp, NULL, NULL, &loopback, port, &param, NULL, conn),
	     "hdl_conn_connect");
	event_of(e, HDL_CONN_ESTABLISHED);
}

/* A listening TCP socket of our own; *port: where. */
static int listen_tcp(uint16_t *port)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(own);
	int sock = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(sock, (struct sockaddr *)&own, sizeof(own)) != 0 || listen(sock, 1024) != 0 ||
	    getsockname(sock, (struct sockaddr *)&own, &bytes) != 0)
		fail("listen");
	*port = ntohs(own.sin_port);
	return sock;
}

static int connect_tcp(uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons(port),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int sock = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	if (connect(sock, (struct sockaddr *)&to, sizeof(to)) != 0)
		fail("connect");
	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return sock;
}

/* --- bare TCP --- */

static void tcp_move(int sock, uint8_t *data, size_t bytes, bool out, bool spin)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t some = out ? send(sock, data + done, bytes - done, MSG_NOSIGNAL)
		                   : recv(sock, data + done, bytes - done, spin ? MSG_DONTWAIT : 0);
		if (some < 0 && errno == EAGAIN)
			continue;
		if (some <= 0)
			fail("TCP");
		done += (size_t)some;
	}
}

static volatile uint32_t crc_sink;

static void tcp_stream(struct end *e, const struct order *o, bool out, bool crc)
{
	uint8_t answer = 0;
	for (uint64_t done = 0; done < o->total; done += o->bytes) {
		if (out && crc)
			crc_sink = crc32c(0, e->memory, o->bytes);
		tcp_move(e->tcp, e->memory, o->bytes, out, false);
		if (!out && crc)
			crc_sink = crc32c(0, e->memory, o->bytes);
	}
	tcp_move(e->tcp, &answer, 1, !out, false); /* all of it has been taken */
}

static void tcp_pings(struct end *e, const struct order *o, bool first)
{
	for (uint64_t i = 0; i < o->total; i++) {
		if (first)
			tcp_move(e->tcp, e->memory, o->bytes, true, true);
		tcp_move(e->tcp, e->memory, o->bytes, false, true);
		if (!first)
			tcp_move(e->tcp, e->memory, o->bytes, true, true);
	}
}

/* --- iWARP --- */

static void post_receive(struct end *e)
{
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e->memory, 4096, hdl_mr_key(e->mr)};
	struct hdl_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};
	must(hdl_post_recv(e->qp, &wr, NULL), "hdl_post_recv");
}

static void post(struct end *e, uint32_t opcode, uint32_t bytes, uint32_t count, bool told)
{
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e->memory, bytes, hdl_mr_key(e->mr)};
	struct hdl_send_wr list[LIST];
	for (uint32_t i = 0; i < count; i++)
		list[i] = (struct hdl_send_wr){.wr_id = 2,
		                               .next = i + 1 < count ? &list[i + 1] : NULL,
		                               .sg_list = &sge,
		                               .num_sge = 1,
		                               .opcode = opcode,
		                               .flags = told && i + 1 == count ? HDL_SEND_SIGNALED
		                                                               : 0,
		                               .u.rdma = {e->peer_addr, e->peer_key}};
	must(hdl_post_send(e->qp, list, NULL), "hdl_post_send");
}

/* Sleep until there is a completion, as recv() and send() do. */
static void sleep_for_event(struct end *e)
{
	struct hdl_cq *cq;
	void *context;
	must(hdl_cq_arm(e->cq, false), "hdl_cq_arm");
	must(hdl_channel_get(e->channel, &cq, &context, WAIT_MS), "hdl_channel_get");
	hdl_cq_ack(cq, 1);
}

/* Wait for @count completions. */
static void await(struct end *e, unsigned count, bool sleeps)
{
	struct hdl_wc wc[16];
	while (count > 0) {
		int got = hdl_cq_poll(e->cq, wc, count < 16 ? (int)count : 16);
		must(got < 0 ? got : 0, "hdl_cq_poll");
		if (got == 0 && sleeps)
			sleep_for_event(e);
		for (int i = 0; i < got; i++)
			if (wc[i].status != HDL_WC_SUCCESS) {
				fprintf(stderr, "%s\n", hdl_wc_status_str(wc[i].status));
				exit(1);
			}
		count -= (unsigned)got;
	}
}

static void complete(struct end *e, unsigned count)
{
	await(e, count, false);
}

static void iwarp_pings(struct end *e, const struct order *o, bool first)
{
	post_receive(e);
	for (uint64_t i = 0; i < o->total; i++) {
		if (first)
			post(e, HDL_OP_SEND, o->bytes, 1, true);
		complete(e, first ? 2 : 1); /* a send is over as soon as TCP has taken it */
		if (i + 1 < o->total)
			post_receive(e);
		if (!first) {
			post(e, HDL_OP_SEND, o->bytes, 1, true);
			complete(e, 1);
		}
	}
}

/* Write or read @total bytes, WINDOW requests at a time; a read at the end shows that all is
 * placed. */
static void iwarp_stream(struct end *e, uint32_t opcode, uint32_t bytes, uint64_t total)
{
	unsigned open = 0;
	for (uint64_t done = 0; done < total; done += bytes) {
		if (open == WINDOW) {
			await(e, 1, true);
			open--;
		}
		post(e, opcode, bytes, 1, true);
		open++;
	}
	await(e, open, true);
	post(e, HDL_OP_READ, 1, 1, true);
	await(e, 1, true);
}

/* --- the server --- */

static double used_ns(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return ((double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	        (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)) *
	       1e3;
}

static void serve_many(struct end *e)
{
	static struct hdl_qp *qps[MANY];
	static struct hdl_conn *conns[MANY];
	uint8_t byte;
	uint16_t port;
	int listening = listen_tcp(&port);
	for (uint32_t i = 0; i < MANY; i++)
		qps[i] = make_qp(e);
	whole(e->control, &port, sizeof(port), true);
	for (uint32_t i = 0; i < MANY; i++) {
		int sock = accept(listening, NULL, NULL);
		tcp_move(sock, &byte, 1, false, false);
		tcp_move(sock, &byte, 1, true, false);
		close(sock);
	}
	for (uint32_t i = 0; i < MANY; i++)
		accept_one(e, qps[i], &conns[i], true);
	whole(e->control, &byte, 1, false);
	for (uint32_t i = 0; i < MANY; i++) {
		hdl_conn_destroy(conns[i]);
		hdl_qp_destroy(qps[i]);
	}
}

static void serve(struct end *e)
{
	struct hello hello = {0};
	double used;
	open_end(e);
	int listening = listen_tcp(&hello.tcp_port);
	must(hdl_listener_bind(e->adapter, &loopback, &hello.port, NULL, &e->listener), "bind");
	must(hdl_listener_listen(e->listener, 16), "listen");
	hello.addr = (uint64_t)(uintptr_t)e->memory;
	hello.key = hdl_mr_key(e->mr);
	whole(e->control, &hello, sizeof(hello), true);
	e->tcp = accept(listening, NULL, NULL);
	int one = 1;
	setsockopt(e->tcp, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (struct order o; read(e->control, &o, sizeof(o)) == sizeof(o);) {
		switch (o.ask) {
		case ASK_PING_TCP:
			tcp_pings(e, &o, false);
			break;
		case ASK_PING_IWARP:
			iwarp_pings(e, &o, false);
			break;
		case ASK_TAKE_TCP:
		case ASK_TAKE_TCP_CRC:
			tcp_stream(e, &o, false, o.ask == ASK_TAKE_TCP_CRC);
			break;
		case ASK_GIVE: /* a queue pair; o.bytes: with CRC */
			if (e->conn != NULL) {
				hdl_conn_destroy(e->conn);
				hdl_qp_destroy(e->qp);
			}
			e->qp = make_qp(e);
			accept_one(e, e->qp, &e->conn, o.bytes != 0);
			break;
		case ASK_TIME:
			used = used_ns();
			whole(e->control, &used, sizeof(used), true);
			break;
		default:
			serve_many(e);
			break;
		}
	}
	exit(0);
}

/* --- the client --- */

static void order(struct end *e, enum ask ask, uint32_t bytes, uint64_t total)
{
	struct order o = {(uint32_t)ask, bytes, total};
	whole(e->control, &o, sizeof(o), true);
}

static double used_both(struct end *e)
{
	double theirs;
	order(e, ASK_TIME, 0, 0);
	whole(e->control, &theirs, sizeof(theirs), false);
	return theirs + used_ns();
}

static void renew(struct end *e, uint16_t port, bool crc)
{
	if (e->conn != NULL) {
		hdl_conn_destroy(e->conn);
		hdl_qp_destroy(e->qp);
	}
	e->qp = make_qp(e);
	order(e, ASK_GIVE, crc, 0);
	connect_one(e, e->qp, &e->conn, port, crc);
}

static void ratio(const char *what, const double *a, const double *b)
{
	printf("%s\t%.3f\t%.3f\t%.3f\t\n", what, a[ROUNDS / 2] / b[ROUNDS / 2], a[0] / b[0],
	       a[ROUNDS - 1] / b[ROUNDS - 1]);
}

static void measure_pings(struct end *e)
{
	static double tcp[ROUNDS], iwarp[ROUNDS];
	const struct order o = {.bytes = 8, .total = PINGS};
	for (int r = 0; r < ROUNDS; r++) {
		order(e, ASK_PING_TCP, o.bytes, o.total);
		uint64_t begin = clock_now_ns();
		tcp_pings(e, &o, true);
		tcp[r] = (double)(clock_now_ns() - begin) / PINGS / 2000;
		order(e, ASK_PING_IWARP, o.bytes, o.total);
		begin = clock_now_ns();
		iwarp_pings(e, &o, true);
		iwarp[r] = (double)(clock_now_ns() - begin) / PINGS / 2000;
	}
	figures_report("half round trip of 8 bytes, bare TCP, both ends poll", tcp, ROUNDS, "us");
	figures_report("half round trip of 8 bytes, iWARP with CRC", iwarp, ROUNDS, "us");
	ratio("ratio (at most 1.15 is the aim)", iwarp, tcp);
}

/* What one way of moving MOVED bytes took. */
struct rate {
	double gbs[ROUNDS], cpu[ROUNDS];
};

static void stop_watch(struct end *e, struct rate *rate, int r, uint64_t begin, double used)
{
	rate->gbs[r] = (double)MOVED / (double)(clock_now_ns() - begin);
	rate->cpu[r] = (used_both(e) - used) / 1e6 * (double)(1u << 30) / MOVED;
}

static void report_rate(const char *what, uint32_t bytes, struct rate *rate)
{
	char text[MAX_TEXT];
	snprintf(text, sizeof(text), "%u KiB, %s", bytes >> 10, what);
	figures_report(text, rate->gbs, ROUNDS, "GB/s");
	snprintf(text, sizeof(text), "%u KiB, %s, processor time of both ends", bytes >> 10, what);
	figures_report(text, rate->cpu, ROUNDS, "ms/GiB");
}

static void measure_rates(struct end *e, uint32_t bytes, bool crc)
{
	static struct rate tcp, floor, writes, reads;
	const struct order o = {.bytes = bytes, .total = MOVED};
	const char *how = crc ? "iWARP with CRC" : "iWARP without CRC";
	char text[MAX_TEXT];
	for (int r = 0; r < ROUNDS; r++) {
		for (int with = 0; with < 2; with++) {
			double used = used_both(e);
			uint64_t begin = clock_now_ns();
			order(e, with ? ASK_TAKE_TCP_CRC : ASK_TAKE_TCP, bytes, MOVED);
			tcp_stream(e, &o, true, with != 0);
			stop_watch(e, with ? &floor : &tcp, r, begin, used);
		}
		for (int read = 0; read < 2; read++) {
			double used = used_both(e);
			uint64_t begin = clock_now_ns();
			iwarp_stream(e, read ? HDL_OP_READ : HDL_OP_WRITE, bytes, MOVED);
			stop_watch(e, read ? &reads : &writes, r, begin, used);
		}
	}
	report_rate("bare TCP", bytes, &tcp);
	report_rate("bare TCP and a CRC pass at each end", bytes, &floor);
	snprintf(text, sizeof(text), "%s, writes", how);
	report_rate(text, bytes, &writes);
	snprintf(text, sizeof(text), "%s, reads", how);
	report_rate(text, bytes, &reads);
	ratio("writes to bare TCP", writes.gbs, tcp.gbs);
	ratio("reads to bare TCP", reads.gbs, tcp.gbs);
	ratio("writes to the floor", writes.gbs, floor.gbs);
	ratio("processor time of writes to that of bare TCP", writes.cpu, tcp.cpu);
}

static void measure_shorts(struct end *e)
{
	static double tcp[ROUNDS], iwarp[ROUNDS];
	const struct order o = {.bytes = 8, .total = 8ull * SHORTS};
	for (int r = 0; r < ROUNDS; r++) {
		order(e, ASK_TAKE_TCP, 8, 8ull * SHORTS);
		uint64_t begin = clock_now_ns();
		tcp_stream(e, &o, true, false);
		tcp[r] = (double)SHORTS * 1e3 / (double)(clock_now_ns() - begin);
		begin = clock_now_ns();
		for (uint32_t done = 0; done < SHORTS; done += LIST) {
			post(e, HDL_OP_WRITE, 8, LIST, true);
			complete(e, 1);
		}
		post(e, HDL_OP_READ, 1, 1, true);
		complete(e, 1);
		iwarp[r] = (double)SHORTS * 1e3 / (double)(clock_now_ns() - begin);
	}
	figures_report("8 bytes, bare TCP, one send() and one recv() each", tcp, ROUNDS, "M/s");
	figures_report("8-byte writes in lists of 32, iWARP with CRC", iwarp, ROUNDS, "M/s");
	ratio("ratio (at least 10 is the aim)", iwarp, tcp);
}

static void measure_many(struct end *e, uint16_t port)
{
	static struct hdl_qp *qps[MANY];
	static struct hdl_conn *conns[MANY];
	uint8_t byte = 0;
	uint16_t tcp_port;
	order(e, ASK_MANY, 0, 0);
	whole(e->control, &tcp_port, sizeof(tcp_port), false);
	for (uint32_t i = 0; i < MANY; i++)
		qps[i] = make_qp(e);
	uint64_t begin = clock_now_ns();
	for (uint32_t i = 0; i < MANY; i++) {
		int sock = connect_tcp(tcp_port);
		tcp_move(sock, &byte, 1, true, false);
		tcp_move(sock, &byte, 1, false, false);
		close(sock);
	}
	double tcp_us = (double)(clock_now_ns() - begin) / MANY / 1000;
	long before = figures_resident_kib();
	begin = clock_now_ns();
	for (uint32_t i = 0; i < MANY; i++)
		connect_one(e, qps[i], &conns[i], port, true);
	double us = (double)(clock_now_ns() - begin) / MANY / 1000;
	double each = (double)(figures_resident_kib() - before) / MANY;
	printf("connect, accept, one exchange and close, bare TCP\t%.1f\t%.1f\t%.1f\tus\n", tcp_us,
	       tcp_us, tcp_us);
	printf("connect a queue pair, iWARP\t%.1f\t%.1f\t%.1f\tus\n", us, us, us);
	printf("memory per idle connection, %u of them, queues apart\t%.2f\t%.2f\t%.2f\tKiB\n",
	       MANY, each, each, each);
	whole(e->control, &byte, 1, true);
	for (uint32_t i = 0; i < MANY; i++) {
		hdl_conn_destroy(conns[i]);
		hdl_qp_destroy(qps[i]);
	}
}

/* Is @part to be measured? All are, or the one that the command line names. */
static bool wanted(int argc, char **argv, const char *part)
{
	return argc < 2 || strcmp(argv[1], part) == 0;
}

int main(int argc, char **argv)
{
	static struct end e;
	struct hello hello;
	int control[2];
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0)
		fail("socketpair");
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	close(control[child != 0]);
	e.control = control[child == 0];
	if (child == 0)
		serve(&e);
	open_end(&e);
	whole(e.control, &hello, sizeof(hello), false);
	e.peer_addr = hello.addr;
	e.peer_key = hello.key;
	e.tcp = connect_tcp(hello.tcp_port);
	renew(&e, hello.port, true);
	if (wanted(argc, argv, "pings"))
		measure_pings(&e);
	if (wanted(argc, argv, "rates-64-with"))
		measure_rates(&e, 65536, true);
	if (wanted(argc, argv, "rates-1024-with"))
		measure_rates(&e, LONG, true);
	if (wanted(argc, argv, "shorts"))
		measure_shorts(&e);
	if (wanted(argc, argv, "rates-1024-without")) {
		renew(&e, hello.port, false);
		measure_rates(&e, LONG, false);
	}
	if (wanted(argc, argv, "connections"))
		measure_many(&e, hello.port);
	close(e.control);
	waitpid(child, NULL, 0);
	return 0;
}
