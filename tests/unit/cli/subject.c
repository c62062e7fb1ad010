/* A program for others to look at. It fills queues and lets queue pairs fail, prints "ready", and
 * ends when its input does. With an argument it does what is refused instead, one call after the
 * other. Both are for command.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <heddle/heddle.h>

static struct hdl_adapter *adapter;
static struct hdl_pd *pd;
static struct hdl_cq *cq;
static struct hdl_limits limits;
static char memory[4096] __attribute__((aligned(4096)));

static void must(int result)
{
	if (result < 0) {
		fprintf(stderr, "subject: %s\n", hdl_strerror(result));
		exit(EXIT_FAILURE);
	}
}

static struct hdl_qp *make(uint32_t type, struct hdl_srq *srq)
{
	struct hdl_qp_init_attr attr = {
	        .type = type, .send_cq = cq, .recv_cq = cq, .srq = srq, .cap = {16, 16, 1, 1, 0}};
	struct hdl_qp *qp;
	must(hdl_qp_create(pd, &attr, &qp));
	return qp;
}

static struct hdl_qp_attr to_init(void)
{
	return (struct hdl_qp_attr){
	        .state = HDL_QPS_INIT, .port_num = 1, .access = HDL_ACCESS_REMOTE_WRITE};
}

#define INIT_MASK (HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX | HDL_QP_ACCESS)
#define RTR_MASK                                                                        \
	(HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN | \
	 HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER)

static struct hdl_qp_attr to_rtr(uint32_t dest, struct hdl_gid gid)
{
	return (struct hdl_qp_attr){.state = HDL_QPS_RTR,
	                            .ah = {.dgid = gid, .is_global = true, .port_num = 1},
	                            .path_mtu = 1024,
	                            .dest_qpn = dest,
	                            .max_dest_rd_atomic = 1,
	                            .min_rnr_timer = 12};
}

static void connect_to(struct hdl_qp *qp, const struct hdl_qp *peer)
{
	struct hdl_qp_attr attr = to_init();
	must(hdl_qp_modify(qp, &attr, INIT_MASK));
	attr = to_rtr(hdl_qp_number(peer), limits.gid);
	must(hdl_qp_modify(qp, &attr, RTR_MASK));
	attr = (struct hdl_qp_attr){.state = HDL_QPS_RTS,
	                            .timeout = 14,
	                            .retry_cnt = 7,
	                            .rnr_retry = 7,
	                            .max_rd_atomic = 1};
	must(hdl_qp_modify(qp, &attr,
	                   HDL_QP_STATE | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
	                           HDL_QP_SQ_PSN | HDL_QP_MAX_RD_ATOMIC));
}

static void receive(struct hdl_qp *qp, struct hdl_srq *srq, int count)
{
	struct hdl_recv_wr wr = {0};
	const struct hdl_recv_wr *bad;
	for (int i = 0; i < count; i++)
		must(srq != NULL ? hdl_srq_post(srq, &wr, &bad) : hdl_post_recv(qp, &wr, &bad));
}

static void post(struct hdl_qp *qp, struct hdl_send_wr wr)
{
	const struct hdl_send_wr *bad;
	wr.flags = HDL_SEND_SIGNALED;
	must(hdl_post_send(qp, &wr, &bad));
}

/* A queue pair whose first request holds back two others, and its peer with five receives; two with
 * a shared queue of three; two that failed by a write to a key that is none; one in INIT. */
static void be_looked_at(void)
{
	struct hdl_qp *a = make(HDL_QP_RC, NULL), *b = make(HDL_QP_RC, NULL);
	connect_to(a, b);
	connect_to(b, a);
	receive(b, NULL, 5);
	post(a, (struct hdl_send_wr){.opcode = HDL_OP_DELAY, .u.delay = {600000000000ull}});
	post(a, (struct hdl_send_wr){.opcode = HDL_OP_SEND});
	post(a, (struct hdl_send_wr){.opcode = HDL_OP_SEND});

	struct hdl_srq_attr shared = {.max_wr = 8, .max_sge = 1};
	struct hdl_srq *srq;
	must(hdl_srq_create(pd, &shared, NULL, &srq));
	struct hdl_qp *c = make(HDL_QP_RC, srq), *d = make(HDL_QP_RC, srq);
	connect_to(c, d);
	connect_to(d, c);
	receive(NULL, srq, 3);

	struct hdl_qp *g = make(HDL_QP_RC, NULL);
	struct hdl_qp_attr only_init = to_init();
	must(hdl_qp_modify(g, &only_init, INIT_MASK));

	struct hdl_qp *e = make(HDL_QP_RC, NULL), *f = make(HDL_QP_RC, NULL);
	struct hdl_mr *mr;
	must(hdl_mr_register(pd, memory, sizeof(memory), HDL_ACCESS_LOCAL_READ, &mr));
	connect_to(e, f);
	connect_to(f, e);
	struct hdl_sge sge = {(uint64_t)(uintptr_t)memory, 64, hdl_mr_key(mr)};
	post(e, (struct hdl_send_wr){.opcode = HDL_OP_WRITE,
	                             .sg_list = &sge,
	                             .num_sge = 1,
	                             .u.rdma = {sge.addr, {0xabcdef00}}});
	struct hdl_wc wc;
	while (hdl_cq_poll(cq, &wc, 1) == 0)
		usleep(1000);
	struct hdl_qp_attr refused = {0};
	for (int i = 0; refused.state != HDL_QPS_ERR && i < 10000; i++) { /* it hears of it later */
		usleep(1000);
		must(hdl_qp_query(f, &refused, NULL));
	}
	printf("%u %u %u %u %u %u %u %u\n", hdl_qp_number(a), hdl_qp_number(b), hdl_qp_number(c),
	       hdl_qp_number(d), hdl_qp_number(e), hdl_qp_number(f), hdl_qp_number(g), wc.status);
	fflush(stdout);
	while (getchar() != EOF)
		;
}

/* What was refused goes to standard output, one line each; why goes to standard error. */
static void refused(const char *what, int result)
{
	printf("%s: %d\n", what, result);
	fflush(stdout);
}

static struct hdl_srq *make_srq(void)
{
	struct hdl_srq_attr attr = {.max_wr = 2, .max_sge = 1};
	struct hdl_srq *srq;
	must(hdl_srq_create(pd, &attr, NULL, &srq));
	return srq;
}

static void be_refused_receives(struct hdl_qp *qp, struct hdl_qp *shares)
{
	struct hdl_sge list[2] = {{0}};
	struct hdl_recv_wr empty = {.wr_id = 0x61}, two = {.sg_list = list, .num_sge = 2};
	struct hdl_srq *srq = make_srq();
	refused("no-pair", hdl_post_recv(NULL, &empty, NULL));
	refused("in-reset", hdl_post_recv(qp, &empty, NULL));
	refused("shares", hdl_post_recv(shares, &empty, NULL));
	refused("no-shared", hdl_srq_post(NULL, &empty, NULL));
	refused("two-of-one", hdl_srq_post(srq, &two, NULL));
	for (int i = 0; i < 4; i++)
		refused("full", hdl_srq_post(srq, &empty, NULL));
}

/* @qp is connected, and has 16 elements with one entry each. */
static void be_refused_sends(struct hdl_qp *qp)
{
	struct hdl_sge list[2] = {{0}}, nine = {0, 9, {0}}, large = {0, 5000, {0}};
	refused("no-pair", hdl_post_send(NULL, &(struct hdl_send_wr){.wr_id = 1}, NULL));
#define REFUSE(what, ...) refused(what, hdl_post_send(qp, &(struct hdl_send_wr){__VA_ARGS__}, NULL))
	REFUSE("entries", .opcode = HDL_OP_SEND, .sg_list = list, .num_sge = 2);
	REFUSE("no-list", .opcode = HDL_OP_SEND, .num_sge = 1);
	REFUSE("opcode", .opcode = 99);
	REFUSE("flags", .opcode = HDL_OP_SEND, .flags = 1u << 20);
	REFUSE("inline", .opcode = HDL_OP_SEND, .flags = HDL_SEND_INLINE, .sg_list = &large,
	       .num_sge = 1);
	REFUSE("inline-read", .opcode = HDL_OP_READ, .flags = HDL_SEND_INLINE);
	REFUSE("atomic", .opcode = HDL_OP_FETCH_ADD, .sg_list = &nine, .num_sge = 1);
	REFUSE("register", .opcode = HDL_OP_REGISTER);
	REFUSE("window", .opcode = HDL_OP_BIND);
	struct hdl_qp *datagrams = make(HDL_QP_UD, NULL);
	struct hdl_qp_attr attr = to_init();
	must(hdl_qp_modify(datagrams, &attr,
	                   HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX | HDL_QP_QKEY));
	attr.state = HDL_QPS_RTR;
	must(hdl_qp_modify(datagrams, &attr, HDL_QP_STATE));
	attr.state = HDL_QPS_RTS;
	must(hdl_qp_modify(datagrams, &attr, HDL_QP_STATE | HDL_QP_SQ_PSN));
	qp = datagrams;
	REFUSE("handle", .opcode = HDL_OP_SEND);
	REFUSE("read", .opcode = HDL_OP_READ);
	for (int i = 0; i < 18; i++)
		REFUSE("room", .opcode = HDL_OP_DELAY, .u.delay.ns = 3600000000000);
}

static void be_refused(void)
{
	struct hdl_qp *qp = make(HDL_QP_RC, NULL);
	struct hdl_qp_attr attr = to_init();
	refused("missing", hdl_qp_modify(qp, &attr, HDL_QP_STATE | HDL_QP_PORT));
	refused("not-taken", hdl_qp_modify(qp, &attr, INIT_MASK | HDL_QP_SQ_PSN));
	attr.port_num = 2;
	refused("value", hdl_qp_modify(qp, &attr, INIT_MASK));
	attr = (struct hdl_qp_attr){.state = HDL_QPS_RTS};
	refused("transition", hdl_qp_modify(qp, &attr, HDL_QP_STATE));
	attr = to_init();
	attr.cur_state = HDL_QPS_RTS;
	refused("state", hdl_qp_modify(qp, &attr, INIT_MASK | HDL_QP_CUR_STATE));
	be_refused_receives(qp, make(HDL_QP_RC, make_srq()));
	must(hdl_qp_modify(qp, &attr, INIT_MASK));
	refused("in-init",
	        hdl_post_send(qp, &(struct hdl_send_wr){.wr_id = 0x51, .opcode = HDL_OP_SEND},
	                      NULL));
	attr = to_rtr(7, (struct hdl_gid){{0xfe, 0x80, [15] = 0x77}});
	refused("peer", hdl_qp_modify(qp, &attr, RTR_MASK));
	attr = (struct hdl_qp_attr){.state = HDL_QPS_ERR};
	must(hdl_qp_modify(qp, &attr, HDL_QP_STATE));

	struct hdl_qp_init_attr init = {
	        .type = HDL_QP_RC, .send_cq = cq, .recv_cq = cq, .cap = {1u << 20, 1, 1, 1, 0}};
	struct hdl_cq *more;
	struct hdl_mr *mr;
	refused("qp", hdl_qp_create(pd, &init, &qp));
	refused("cq", hdl_cq_create(adapter, 0, NULL, NULL, &more));
	refused("mr", hdl_mr_register(pd, memory, 64, HDL_ACCESS_REMOTE_WRITE, &mr));
	refused("unmapped",
	        hdl_mr_register(pd, (void *)(uintptr_t)4096, 64, HDL_ACCESS_LOCAL_READ, &mr));
	struct hdl_qp *e = make(HDL_QP_RC, NULL), *f = make(HDL_QP_RC, NULL);
	connect_to(e, f);
	connect_to(f, e);
	struct hdl_sge sge = {(uint64_t)(uintptr_t)memory, 64, {0xabcdef00}};
	be_refused_sends(e);
	post(e, (struct hdl_send_wr){.opcode = HDL_OP_SEND, .sg_list = &sge, .num_sge = 1});
	struct hdl_wc wc;
	while (hdl_cq_poll(cq, &wc, 1) == 0)
		usleep(1000);
	refused("send", (int)wc.status);
}

/* Connected with a peer on another machine, which need not answer. */
static void be_far(void)
{
	struct hdl_qp *qp = make(HDL_QP_RC, NULL);
	struct hdl_qp_attr attr = to_init();
	must(hdl_qp_modify(qp, &attr, INIT_MASK));
	attr = to_rtr(7, (struct hdl_gid){{[10] = 0xff, 0xff, 127, 0, 0, 61}});
	must(hdl_qp_modify(qp, &attr, RTR_MASK));
	printf("%u\n", hdl_qp_number(qp));
	fflush(stdout);
	while (getchar() != EOF)
		;
}

/* Packets that the network does not carry. */
static void be_too_large(void)
{
	struct hdl_qp *qp = make(HDL_QP_RC, NULL);
	struct hdl_qp_attr attr = to_init();
	must(hdl_qp_modify(qp, &attr, INIT_MASK));
	attr = to_rtr(hdl_qp_number(qp), limits.gid);
	attr.path_mtu = (uint16_t)(2 * limits.mtu);
	printf("mtu: %u\n", limits.mtu);
	refused("too large", hdl_qp_modify(qp, &attr, RTR_MASK));
	attr.path_mtu = limits.mtu;
	refused("fits", hdl_qp_modify(qp, &attr, RTR_MASK));
}

int main(int argc, char **argv)
{
	struct hdl_open_attr attr = {.on_node = true};
	must(hdl_open(&attr, &adapter));
	must(hdl_adapter_query(adapter, &limits));
	must(hdl_pd_create(adapter, &pd));
	must(hdl_cq_create(adapter, 256, NULL, NULL, &cq));
	if (argc > 1 && strcmp(argv[1], "refused") == 0)
		be_refused();
	else if (argc > 1 && strcmp(argv[1], "too-large") == 0)
		be_too_large();
	else if (argc > 1 && strcmp(argv[1], "far") == 0)
		be_far();
	else
		be_looked_at();
	/* Its objects end with the process; leak checkers need not look for them. */
	fflush(stdout);
	_exit(EXIT_SUCCESS);
}
