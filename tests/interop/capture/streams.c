/* Every operation of iWARP over real TCP connections on the loopback, recorded by one end or by
 * both, or over SCTP, with a traffic class:
 *
 *   interop-capture-streams FILE one|both|class|answer|sctp|FLAGS
 *
 * FLAGS are those of hdl_conn_param of both ends, as a number; only one end records then. With
 * class and answer, connections are in a traffic class; the end that begins them records, or the
 * one that answers. Prints
 * what a capture must hold of what the recording end does: "OPERATION COUNT BYTES", one per line,
 * and "frames COUNT" for MPA Requests and Replies, or their counterparts on SCTP. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#define BYTES   (1u << 20)
#define WAIT_MS 20000

static const struct hdl_gid addresses[] = {
        {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}}, {.raw = {[15] = 1}}};

struct end {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_qp *qp;
	struct hdl_conn *conn;
	uint8_t *memory;
};

static bool on_sctp, in_class;

static void must(int result, const char *what)
{
	if (result == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hdl_strerror(result));
	exit(1);
}

static void end_open(struct end *e, const char *capture)
{
	const struct hdl_open_attr attr = {.max_mr = 16, .max_qp = 16, .capture = capture};
	*e = (struct end){.memory = malloc(BYTES)};
	must(hdl_open(&attr, &e->adapter), "open");
	must(hdl_pd_create(e->adapter, &e->pd), "domain");
	must(hdl_cq_create(e->adapter, 256, NULL, NULL, &e->cq), "completion queue");
	must(hdl_mr_register(e->pd, e->memory, BYTES,
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                             HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
	                             HDL_ACCESS_REMOTE_ATOMIC,
	                     &e->mr),
	     "region");
	for (size_t i = 0; i < BYTES; i++)
		e->memory[i] = (uint8_t)(i * 7 + i / 256);
}

static void end_qp(struct end *e)
{
	struct hdl_qp_init_attr init = {
	        .type = HDL_QP_RC, .send_cq = e->cq, .recv_cq = e->cq, .cap = {32, 32, 2, 2, 0}};
	const struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                                 .port_num = 1,
	                                 .access = HDL_ACCESS_REMOTE_READ |
	                                           HDL_ACCESS_REMOTE_WRITE |
	                                           HDL_ACCESS_REMOTE_ATOMIC};
	must(hdl_qp_create(e->pd, &init, &e->qp), "queue pair");
	must(hdl_qp_modify(e->qp, &attr,
	                   HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS),
	     "INIT");
}

static struct hdl_conn_event end_event(struct end *e, uint32_t type)
{
	struct hdl_conn_event event;
	must(hdl_conn_event_get(e->adapter, &event, WAIT_MS), "event");
	if (event.type != type) {
		fprintf(stderr, "event %u instead of %u, error %d\n", event.type, type,
		        event.error);
		exit(1);
	}
	return event;
}

static void join(struct end *a, struct end *b, const struct hdl_gid *gid, uint32_t flags)
{
	struct hdl_conn_param param = {.ird = 4, .ord = 4, .flags = flags};
	struct hdl_listener *listener;
	uint16_t port = 0;
	param.private_data = "private";
	param.private_bytes = 7;
	if (on_sctp) {
		param.service = HDL_CONN_RDMA_SCTP;
		param.traffic_class = 0xb8;
	}
	if (in_class)
		param.traffic_class = 0xb8;
	end_qp(a);
	end_qp(b);
	must(hdl_listener_bind(b->adapter, gid, &port, b, &listener), "bind");
	must(hdl_listener_serve(listener, on_sctp ? HDL_CONN_RDMA_SCTP : HDL_CONN_RDMA_TCP),
	     "service");
	must(hdl_listener_listen(listener, 4), "listen");
	must(hdl_conn_connect(a->qp, NULL, NULL, gid, port, &param, a, &a->conn), "connect");
	b->conn = end_event(b, HDL_CONN_REQUEST).conn;
	param.traffic_class = 0; /* as the other end has it */
	must(hdl_conn_accept(b->conn, b->qp, &param, b), "accept");
	end_event(b, HDL_CONN_ESTABLISHED);
	end_event(a, HDL_CONN_ESTABLISHED);
	must(hdl_listener_close(listener), "listener");
}

static void part(struct end *a, struct end *b)
{
	must(hdl_conn_disconnect(a->conn), "disconnect");
	end_event(b, HDL_CONN_CLOSED);
	end_event(a, HDL_CONN_CLOSED);
	must(hdl_conn_destroy(a->conn), "destroy");
	must(hdl_conn_destroy(b->conn), "destroy");
	must(hdl_qp_destroy(a->qp), "queue pair");
	must(hdl_qp_destroy(b->qp), "queue pair");
}

static struct hdl_wc end_wc(struct end *e, uint32_t status)
{
	struct hdl_wc wc;
	while (hdl_cq_poll(e->cq, &wc, 1) == 0)
		;
	if (wc.status != status) {
		fprintf(stderr, "status %u instead of %u\n", wc.status, status);
		exit(1);
	}
	return wc;
}

static void end_receive(struct end *e)
{
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e->memory, BYTES, hdl_mr_key(e->mr)};
	struct hdl_recv_wr wr = {.sg_list = &sge, .num_sge = 1};
	must(hdl_post_recv(e->qp, &wr, NULL), "receive");
}

static void end_post(struct end *e, const struct end *to, uint32_t opcode, uint32_t bytes,
                     uint32_t key_mask)
{
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e->memory, bytes, hdl_mr_key(e->mr)};
	struct hdl_send_wr wr = {.opcode = opcode,
	                         .flags = HDL_SEND_SIGNALED,
	                         .sg_list = &sge,
	                         .num_sge = bytes > 0,
	                         .imm = 0x01020304};
	wr.u.rdma.addr = (uint64_t)(uintptr_t)to->memory;
	wr.u.rdma.key = (struct hdl_key){hdl_mr_key(to->mr).v ^ key_mask};
	if (opcode == HDL_OP_FETCH_ADD || opcode == HDL_OP_COMPARE_SWAP) {
		wr.u.atomic.addr = (uint64_t)(uintptr_t)to->memory;
		wr.u.atomic.key = hdl_mr_key(to->mr);
		wr.u.atomic.compare_add = 1;
	}
	must(hdl_post_send(e->qp, &wr, NULL), "send");
}

static void run(struct end *from, struct end *to, uint32_t opcode, uint32_t bytes)
{
	bool received = opcode == HDL_OP_SEND || opcode == HDL_OP_WRITE_IMM;
	if (received)
		end_receive(to);
	end_post(from, to, opcode, bytes, 0);
	end_wc(from, HDL_WC_SUCCESS);
	if (received)
		end_wc(to, HDL_WC_SUCCESS);
}

static const uint32_t sizes[] = {0, 1, 8, 511, 512, 1448, 4096, 65536, 300001};
#define COUNT (sizeof(sizes) / sizeof(sizes[0]))

/* Every operation, both ways. The last one is refused: it ends the connection with a Terminate. */
static void operations(struct end *a, struct end *b, const struct hdl_gid *gid, uint32_t flags)
{
	join(a, b, gid, flags);
	for (unsigned way = 0; way < 2; way++) {
		struct end *from = way == 0 ? a : b, *to = way == 0 ? b : a;
		for (size_t i = 0; i < COUNT; i++) {
			run(from, to, HDL_OP_SEND, sizes[i]);
			run(from, to, HDL_OP_WRITE, sizes[i]);
			run(from, to, HDL_OP_READ, sizes[i]);
			run(from, to, HDL_OP_WRITE_IMM, sizes[i]);
		}
		run(from, to, HDL_OP_FETCH_ADD, 8);
		run(from, to, HDL_OP_COMPARE_SWAP, 8);
	}
	part(a, b);
	join(a, b, gid, flags);
	end_post(a, b, HDL_OP_READ, 100, 1);
	end_wc(a, HDL_WC_REM_ACCESS_ERR);
	end_event(a, HDL_CONN_CLOSED);
	end_event(b, HDL_CONN_CLOSED);
	must(hdl_conn_destroy(a->conn), "destroy");
	must(hdl_conn_destroy(b->conn), "destroy");
	must(hdl_qp_destroy(a->qp), "queue pair");
	must(hdl_qp_destroy(b->qp), "queue pair");
}

static void end_close(struct end *e)
{
	must(hdl_mr_deregister(e->mr), "region");
	must(hdl_cq_destroy(e->cq), "completion queue");
	must(hdl_pd_destroy(e->pd), "domain");
	must(hdl_close(e->adapter), "close");
	free(e->memory);
}

int main(int argc, char **argv)
{
	struct end a, b;
	assert(argc == 3);
	bool both = strcmp(argv[2], "both") == 0;
	uint32_t flags = (uint32_t)atoi(argv[2]); /* of the words: 0 */
	uint64_t bytes = 0;
	on_sctp = strcmp(argv[2], "sctp") == 0;
	bool answers = strcmp(argv[2], "answer") == 0;
	in_class = answers || strcmp(argv[2], "class") == 0;
	end_open(&a, answers ? NULL : argv[1]);
	end_open(&b, both || answers ? argv[1] : NULL);
	for (unsigned i = 0; i < 2; i++)
		operations(&a, &b, &addresses[i], flags);
	end_close(&a);
	end_close(&b);
	for (size_t i = 0; i < COUNT; i++)
		bytes += sizes[i];
	/* Of two connections by IPv4 and two by IPv6, both ways. */
	printf("frames 8\n");
	printf("Send %zu %llu\n", 4 * COUNT, (unsigned long long)(4 * bytes));
	printf("RDMA-Write %zu %llu\n", 8 * COUNT, (unsigned long long)(8 * bytes));
	printf("Read-Request %zu 0\n", 4 * COUNT + 2);
	printf("Read-Response %zu %llu\n", 4 * COUNT, (unsigned long long)(4 * bytes));
	printf("Immediate %zu 0\n", 4 * COUNT);
	printf("Atomic-Request 8 0\n");
	printf("Atomic-Response 8 0\n");
	printf("Terminate 2 0\n");
	return 0;
}
