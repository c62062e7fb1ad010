/* What iWARP costs in processor time: both ends in one process and one thread, without an adapter's
 * thread, on the loopback, beside a bare TCP connection that is used in the same way. Nobody waits
 * for anybody, so these figures hold on a busy machine, too: compare the least. Prints one line per
 * figure: what, median, minimum, maximum, unit. */
#include <heddle/heddle.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc.h"
#include "figures.h"
#include "must.h"

#define ROUNDS   201
#define SHORTS   200u /* messages of a round */
#define LONGS    32u
#define LIST     32u
#define LONG     65536u
#define TURNS    1000000u /* until something is believed to be wrong */
#define MAX_TEXT 96

static const struct hdl_gid loopback = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};

struct end {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_qp *qp;
	struct hdl_conn *conn;
	uint8_t *memory;
};

static struct end ends[2];
static int bare[2];

static void open_end(struct end *e)
{
	const struct hdl_open_attr attr = {.no_thread = true, .max_qp = 64};
	e->memory = aligned_alloc(4096, LONG);
	must(e->memory != NULL ? 0 : -HDL_ENOMEM, "memory");
	memset(e->memory, 0x5a, LONG);
	must(hdl_open(&attr, &e->adapter), "hdl_open");
	must(hdl_pd_create(e->adapter, &e->pd), "hdl_pd_create");
	must(hdl_cq_create(e->adapter, 256, NULL, NULL, &e->cq), "hdl_cq_create");
	must(hdl_mr_register(e->pd, e->memory, LONG,
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                             HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	                     &e->mr),
	     "hdl_mr_register");
}

static void make_qp(struct end *e)
{
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = e->cq,
	                                .recv_cq = e->cq,
	                                .cap = {.max_send_wr = 64,
	                                        .max_recv_wr = 16,
	                                        .max_send_sge = 1,
	                                        .max_recv_sge = 1}};
	const struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                                 .port_num = 1,
	                                 .access =
	                                         HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE};
	must(hdl_qp_create(e->pd, &init, &e->qp), "hdl_qp_create");
	must(hdl_qp_modify(e->qp, &attr,
	                   HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS),
	     "hdl_qp_modify");
}

/* The next event of end @which; the other one is driven meanwhile. */
static struct hdl_conn_event event_of(unsigned which, uint32_t type)
{
	struct hdl_conn_event event;
	int result = -HDL_EAGAIN;
	for (unsigned i = 0; i < TURNS && result != 0; i++) {
		hdl_progress(ends[!which].adapter);
		hdl_progress(ends[which].adapter);
		result = hdl_conn_event_get(ends[which].adapter, &event, 0);
	}
	must(result, "hdl_conn_event_get");
	must(event.type == type ? 0 : -HDL_EIO, "event");
	return event;
}

static void connect_ends(bool crc)
{
	const struct hdl_conn_param param = {
	        .ird = 4, .ord = 4, .flags = crc ? 0 : HDL_CONN_NO_CRC};
	struct hdl_listener *listener;
	uint16_t port = 0;
	for (unsigned i = 0; i < 2; i++) {
		if (ends[i].conn != NULL) {
			hdl_conn_destroy(ends[i].conn);
			hdl_qp_destroy(ends[i].qp);
		}
		make_qp(&ends[i]);
	}
	must(hdl_listener_bind(ends[1].adapter, &loopback, &port, NULL, &listener), "bind");
	must(hdl_listener_listen(listener, 4), "listen");
	must(hdl_conn_connect(ends[0].qp, NULL, NULL, &loopback, port, &param, NULL, &ends[0].conn),
	     "connect");
	ends[1].conn = event_of(1, HDL_CONN_REQUEST).conn;
	must(hdl_conn_accept(ends[1].conn, ends[1].qp, &param, NULL), "accept");
	event_of(0, HDL_CONN_ESTABLISHED);
	event_of(1, HDL_CONN_ESTABLISHED);
	hdl_listener_close(listener);
}

static void connect_bare(void)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(own);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	bare[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&own, sizeof(own)) != 0 || listen(listener, 1) != 0 ||
	    getsockname(listener, (struct sockaddr *)&own, &bytes) != 0 ||
	    connect(bare[0], (struct sockaddr *)&own, sizeof(own)) != 0)
		must(-HDL_EIO, "TCP");
	bare[1] = accept(listener, NULL, NULL);
	for (unsigned i = 0; i < 2; i++)
		setsockopt(bare[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(listener);
}

/* --- one message --- */

static volatile uint32_t crc_sink;

static void bare_message(uint32_t bytes, bool crc)
{
	if (crc)
		crc_sink = crc32c(0, ends[0].memory, bytes);
	for (uint32_t sent = 0, got = 0; got < bytes;) {
		ssize_t some = sent < bytes ? send(bare[0], ends[0].memory + sent, bytes - sent,
		                                   MSG_DONTWAIT | MSG_NOSIGNAL)
		                            : 0;
		sent += some > 0 ? (uint32_t)some : 0;
		some = recv(bare[1], ends[1].memory + got, bytes - got, MSG_DONTWAIT);
		got += some > 0 ? (uint32_t)some : 0;
	}
	if (crc)
		crc_sink = crc32c(0, ends[1].memory, bytes);
}

static void post(uint32_t opcode, uint32_t bytes, uint32_t count)
{
	struct hdl_sge sge = {(uint64_t)(uintptr_t)ends[0].memory, bytes, hdl_mr_key(ends[0].mr)};
	struct hdl_send_wr list[LIST];
	for (uint32_t i = 0; i < count; i++)
		list[i] = (struct hdl_send_wr){
		        .next = i + 1 < count ? &list[i + 1] : NULL,
		        .sg_list = &sge,
		        .num_sge = 1,
		        .opcode = opcode,
		        .flags = i + 1 == count ? HDL_SEND_SIGNALED : 0,
		        .u.rdma = {(uint64_t)(uintptr_t)ends[1].memory, hdl_mr_key(ends[1].mr)}};
	must(hdl_post_send(ends[0].qp, list, NULL), "hdl_post_send");
}

static void post_receive(uint32_t bytes)
{
	struct hdl_sge sge = {(uint64_t)(uintptr_t)ends[1].memory, bytes, hdl_mr_key(ends[1].mr)};
	struct hdl_recv_wr wr = {.sg_list = &sge, .num_sge = 1};
	must(hdl_post_recv(ends[1].qp, &wr, NULL), "hdl_post_recv");
}

/* Poll end @first, and with @both the other one, until @first has a completion. */
static void await(unsigned first, bool both)
{
	struct hdl_wc wc;
	int got = 0;
	for (unsigned i = 0; i < TURNS && got == 0; i++) {
		if (both)
			got = hdl_cq_poll(ends[!first].cq, &wc, 1);
		must(got == 0 ? 0 : -HDL_EIO, "a completion of the other end");
		got = hdl_cq_poll(ends[first].cq, &wc, 1);
	}
	must(got == 1 && wc.status == HDL_WC_SUCCESS ? 0 : -HDL_EIO, "completion");
}

static void send_message(uint32_t bytes)
{
	post_receive(bytes);
	post(HDL_OP_SEND, bytes, 1);
	if (bytes < 4096) {
		await(0, false);
		await(1, false);
	} else { /* TCP may not take all of it at once */
		struct hdl_wc wc;
		for (unsigned i = 0, done = 0; i < TURNS && done < 2; i++)
			done += (unsigned)(hdl_cq_poll(ends[0].cq, &wc, 1) +
			                   hdl_cq_poll(ends[1].cq, &wc, 1));
	}
}

/* --- figures --- */

static void report(const char *what, uint32_t bytes, double *ns, double scale)
{
	char text[MAX_TEXT];
	snprintf(text, sizeof(text), "%u bytes, %s", bytes, what);
	for (int i = 0; i < ROUNDS; i++)
		ns[i] /= scale;
	figures_report(text, ns, ROUNDS, "us");
}

static void measure(uint32_t bytes, uint32_t count, const char *name)
{
	static double tcp[ROUNDS], floor[ROUNDS], sends[ROUNDS], lists[ROUNDS], reads[ROUNDS];
	char text[MAX_TEXT];
	for (int r = 0; r < ROUNDS; r++) {
		uint64_t begin = clock_now_ns(), end;
		for (uint32_t i = 0; i < count; i++)
			bare_message(bytes, false);
		tcp[r] = (double)((end = clock_now_ns()) - begin);
		for (uint32_t i = 0; i < count; i++)
			bare_message(bytes, true);
		floor[r] = (double)((begin = clock_now_ns()) - end);
		for (uint32_t i = 0; i < count; i++)
			send_message(bytes);
		sends[r] = (double)((end = clock_now_ns()) - begin);
		for (uint32_t i = 0; i < count; i += LIST) { /* writes, and a read that shows that
			                                        they are placed */
			post(HDL_OP_WRITE, bytes, LIST);
			await(0, true);
		}
		post(HDL_OP_READ, 1, 1);
		await(0, true);
		lists[r] = (double)((begin = clock_now_ns()) - end);
		for (uint32_t i = 0; i < count; i++) {
			post(HDL_OP_READ, bytes, 1);
			await(0, true);
		}
		reads[r] = (double)(clock_now_ns() - begin);
	}
	report("bare TCP", bytes, tcp, count * 1e3);
	report("bare TCP, and a CRC pass at each end", bytes, floor, count * 1e3);
	snprintf(text, sizeof(text), "iWARP %s, send", name);
	report(text, bytes, sends, count * 1e3);
	snprintf(text, sizeof(text), "iWARP %s, writes in lists of %u", name, LIST);
	report(text, bytes, lists, count * 1e3);
	snprintf(text, sizeof(text), "iWARP %s, read", name);
	report(text, bytes, reads, count * 1e3);
	printf("least to that of bare TCP: send %.2f, write %.2f, read %.2f\n", sends[0] / tcp[0],
	       lists[0] / tcp[0], reads[0] / tcp[0]);
}

int main(void)
{
	connect_bare();
	for (unsigned i = 0; i < 2; i++)
		open_end(&ends[i]);
	connect_ends(true);
	measure(8, SHORTS / LIST * LIST, "with CRC");
	measure(LONG, LONGS, "with CRC");
	connect_ends(false);
	measure(LONG, LONGS, "without CRC");
	return 0;
}
