/* Reliable datagrams between processes (SN2; SAN figure 4): three nodes of one machine, a process
 * on each with four queue pairs and a context per other node. Each queue pair sends to each queue
 * pair of the others. Then one process is killed: those that send to it are told, and nobody else.
 * Through lanes, and with HEDDLE_LOCAL=off over UDP, with the same results. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "end.h"

#define NODES    3u
#define QPS      4u
#define QKEY     0x2545u
#define MESSAGES (QPS * QPS * (NODES - 1)) /* that a node sends, and receives */
#define BYTES    3000u                     /* of a message: several packets */
#define WAIT_MS  20000

struct rd_card {
	struct hdl_gid gid;
	uint32_t qpns[QPS];
	uint32_t contexts[NODES]; /* the one that leads to a node */
};

struct rd_end {
	uint32_t self;
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_rdd *rdd;
	struct hdl_eec *contexts[NODES];
	struct hdl_qp *qps[QPS];
	struct hdl_mr *mr;
	unsigned char *memory; /* a place per message received, then one per message sent */
	struct rd_card cards[NODES];
};

/* What a message says. */
struct text {
	uint32_t from_node, from_qp, to_node, to_qp;
};

static struct hdl_sge rd_place(const struct rd_end *end, uint32_t index)
{
	return (struct hdl_sge){(uintptr_t)(end->memory + (size_t)index * BYTES), BYTES,
	                        hdl_mr_key(end->mr)};
}

static void rd_open(struct rd_end *end, const char *node)
{
	struct hdl_open_attr attr = {.on_node = true, .node = node};
	struct hdl_limits limits;
	size_t bytes = (size_t)2 * MESSAGES * BYTES;
	end->self = (uint32_t)(node[strlen(node) - 1] - '0');
	MUST(hdl_open(&attr, &end->adapter));
	MUST(hdl_adapter_query(end->adapter, &limits));
	MUST(hdl_pd_create(end->adapter, &end->pd));
	MUST(hdl_cq_create(end->adapter, 4 * MESSAGES, NULL, NULL, &end->cq));
	end->memory = calloc(1, bytes);
	MUST(hdl_mr_register(end->pd, end->memory, bytes,
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE, &end->mr));
	MUST(hdl_rdd_open(end->adapter, &end->rdd));
	struct rd_card *mine = &end->cards[end->self];
	mine->gid = limits.gid;
	/* QPS queue pairs and NODES - 1 contexts reach all others (figure 4). */
	for (uint32_t i = 0; i < NODES; i++) {
		if (i == end->self)
			continue;
		MUST(hdl_eec_create(end->rdd, &end->contexts[i]));
		mine->contexts[i] = hdl_eec_number(end->contexts[i]);
	}
	for (uint32_t i = 0; i < QPS; i++) {
		struct hdl_qp_init_attr init = {.type = HDL_QP_RD,
		                                .rdd = end->rdd,
		                                .send_cq = end->cq,
		                                .recv_cq = end->cq,
		                                .cap = {MESSAGES, MESSAGES, 1, 1, 0}};
		struct hdl_qp_attr qp = {
		        .state = HDL_QPS_INIT, .port_num = 1, .qkey = QKEY, .min_rnr_timer = 1};
		MUST(hdl_qp_create(end->pd, &init, &end->qps[i]));
		MUST(hdl_qp_modify(end->qps[i], &qp,
		                   HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_QKEY |
		                           HDL_QP_ACCESS | HDL_QP_MIN_RNR_TIMER));
		qp.state = HDL_QPS_RTR;
		MUST(hdl_qp_modify(end->qps[i], &qp, HDL_QP_STATE));
		qp.state = HDL_QPS_RTS;
		MUST(hdl_qp_modify(end->qps[i], &qp, HDL_QP_STATE));
		mine->qpns[i] = hdl_qp_number(end->qps[i]);
		for (uint32_t k = 0; k < MESSAGES / QPS; k++) {
			uint32_t index = i * (MESSAGES / QPS) + k;
			struct hdl_sge piece = rd_place(end, index);
			struct hdl_recv_wr wr = {.wr_id = index, .sg_list = &piece, .num_sge = 1};
			MUST(hdl_post_recv(end->qps[i], &wr, NULL));
		}
	}
}

static void rd_connect(const struct rd_end *end, uint32_t node)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                           .port_num = 1,
	                           .ah = {.dgid = end->cards[node].gid,
	                                  .port_num = 1,
	                                  .is_global = true,
	                                  .hop_limit = 64},
	                           .path_mtu = 1024,
	                           .dest_qpn = end->cards[node].contexts[end->self],
	                           .rq_psn = node,
	                           .sq_psn = end->self,
	                           .max_dest_rd_atomic = 1,
	                           .max_rd_atomic = 1,
	                           .timeout = 14, /* 67 ms */
	                           .retry_cnt = 3,
	                           .rnr_retry = 7};
	MUST(hdl_eec_modify(end->contexts[node], &attr,
	                    HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT));
	attr.state = HDL_QPS_RTR;
	MUST(hdl_eec_modify(end->contexts[node], &attr,
	                    HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                            HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC));
	attr.state = HDL_QPS_RTS;
	MUST(hdl_eec_modify(end->contexts[node], &attr,
	                    HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                            HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC));
}

static void rd_send(struct rd_end *end, uint32_t qp, uint32_t node, uint32_t to, uint32_t index)
{
	struct hdl_sge piece = rd_place(end, MESSAGES + index);
	struct text text = {end->self, qp, node, to};
	unsigned char *bytes = end->memory + (size_t)(MESSAGES + index) * BYTES;
	memset(bytes, (int)(index + 1), BYTES);
	memcpy(bytes, &text, sizeof(text));
	struct hdl_send_wr wr = {.wr_id = index,
	                         .opcode = HDL_OP_SEND,
	                         .flags = HDL_SEND_SIGNALED,
	                         .sg_list = &piece,
	                         .num_sge = 1,
	                         .rd = {end->contexts[node], end->cards[node].qpns[to], QKEY}};
	MUST(hdl_post_send(end->qps[qp], &wr, NULL));
}

static struct hdl_wc rd_wait(const struct rd_end *end)
{
	struct hdl_wc wc;
	double until = now_ms() + WAIT_MS;
	int count;
	while ((count = hdl_cq_poll(end->cq, &wc, 1)) == 0)
		if (now_ms() > until)
			_exit(20);
	if (count != 1)
		_exit(21);
	return wc;
}

/* A message came: does it say what its completion says? Each is to come once. */
static void rd_check(const struct rd_end *end, const struct hdl_wc *wc, uint8_t seen[])
{
	const unsigned char *bytes = end->memory + (size_t)wc->wr_id * BYTES;
	struct text text;
	memcpy(&text, bytes, sizeof(text));
	if (wc->byte_len != BYTES || text.from_node >= NODES || text.from_node == end->self ||
	    text.from_qp >= QPS || text.to_node != end->self || text.to_qp >= QPS ||
	    wc->qpn != hdl_qp_number(end->qps[text.to_qp]) ||
	    wc->src_qpn != end->cards[text.from_node].qpns[text.from_qp] ||
	    wc->eecn != hdl_eec_number(end->contexts[text.from_node]))
		_exit(22);
	for (uint32_t i = sizeof(text) + 1; i < BYTES; i++)
		if (bytes[i] != bytes[sizeof(text)])
			_exit(23);
	if (seen[(text.from_node * QPS + text.from_qp) * QPS + text.to_qp]++ != 0)
		_exit(24);
}

static void rd_exchange(struct rd_end *end)
{
	uint8_t seen[NODES * QPS * QPS] = {0};
	uint32_t sent = 0, received = 0, index = 0;
	for (uint32_t node = 0; node < NODES; node++)
		for (uint32_t i = 0; i < QPS * QPS && node != end->self; i++)
			rd_send(end, i / QPS, node, i % QPS, index++);
	while (sent < MESSAGES || received < MESSAGES) {
		struct hdl_wc wc = rd_wait(end);
		if (wc.status != HDL_WC_SUCCESS) {
			fprintf(stderr, "status %u, vendor_err %u\n", wc.status, wc.vendor_err);
			_exit(25);
		}
		if (wc.opcode == HDL_WC_RECV) {
			rd_check(end, &wc, seen);
			received++;
		} else {
			sent++;
		}
	}
}

/* Send to @node; what the completion says. */
static uint32_t rd_try(struct rd_end *end, uint32_t node)
{
	rd_send(end, 0, node, 1, 0);
	for (;;) {
		struct hdl_wc wc = rd_wait(end);
		if (wc.status != HDL_WC_SUCCESS || wc.opcode != HDL_WC_RECV)
			return wc.status;
	}
}

static void rd_hear(int talk, void *to, size_t bytes)
{
	if (recv(talk, to, bytes, MSG_WAITALL) != (ssize_t)bytes)
		_exit(26);
}

static void rd_say(int talk, uint32_t what)
{
	if (write(talk, &what, sizeof(what)) != sizeof(what))
		_exit(27);
}

/* A process: its card, all cards, then a word after each thing that it was told to do. */
static void rd_live(int talk, const char *node, const char *address)
{
	static struct rd_end end;
	struct hdl_qp_attr attr;
	uint32_t what;
	(void)address;
	rd_open(&end, node);
	if (write(talk, &end.cards[end.self], sizeof(end.cards[0])) != sizeof(end.cards[0]))
		_exit(27);
	rd_hear(talk, end.cards, sizeof(end.cards));
	for (uint32_t i = 0; i < NODES; i++)
		if (i != end.self)
			rd_connect(&end, i);
	rd_say(talk, 0);
	rd_hear(talk, &what, sizeof(what));
	rd_exchange(&end);
	rd_say(talk, 0);
	rd_hear(talk, &what, sizeof(what)); /* to whom nothing gets through any more */
	rd_say(talk, rd_try(&end, what));
	MUST(hdl_eec_query(end.contexts[what], &attr));
	rd_say(talk, attr.state);
	rd_hear(talk, &what, sizeof(what)); /* to whom everything does */
	for (uint32_t k = 0; k < 2; k++) {  /* and this is for the other's message */
		struct hdl_sge piece = rd_place(&end, k);
		struct hdl_recv_wr wr = {.wr_id = k, .sg_list = &piece, .num_sge = 1};
		MUST(hdl_post_recv(end.qps[1], &wr, NULL));
	}
	rd_say(talk, rd_try(&end, what));
	rd_hear(talk, &what, sizeof(what));
	for (uint32_t i = 0; i < QPS; i++)
		MUST(hdl_qp_destroy(end.qps[i]));
	for (uint32_t i = 0; i < NODES; i++)
		if (i != end.self)
			MUST(hdl_eec_destroy(end.contexts[i]));
	MUST(hdl_rdd_close(end.rdd));
	MUST(hdl_mr_deregister(end.mr));
	MUST(hdl_cq_destroy(end.cq));
	MUST(hdl_pd_destroy(end.pd));
	MUST(hdl_close(end.adapter));
	_exit(0);
}

static void tell_all(struct child *children, unsigned count, const void *what, size_t bytes)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(write(children[i].talk, what, bytes), bytes);
}

static void expect_words(struct child *children, unsigned count, uint32_t word)
{
	for (unsigned i = 0; i < count; i++) {
		uint32_t said = UINT32_MAX;
		assert_int_equal(recv(children[i].talk, &said, sizeof(said), MSG_WAITALL),
		                 sizeof(said));
		assert_int_equal(said, word);
	}
}

static void sn2_rd_between_processes(void **state)
{
	(void)state;
	struct child children[NODES];
	struct rd_card cards[NODES];
	char names[NODES][32];
	uint32_t go = 0, gone = NODES - 1;
	int status;
	for (unsigned i = 0; i < NODES; i++) {
		snprintf(names[i], sizeof(names[i]), "rd-%d-%u", (int)getpid(), i);
		children[i] = child_start(rd_live, names[i], NULL);
	}
	for (unsigned i = 0; i < NODES; i++)
		assert_int_equal(recv(children[i].talk, &cards[i], sizeof(cards[i]), MSG_WAITALL),
		                 sizeof(cards[i]));
	tell_all(children, NODES, cards, sizeof(cards));
	expect_words(children, NODES, 0);
	tell_all(children, NODES, &go, sizeof(go));
	expect_words(children, NODES, 0);
	/* Whoever sends to one that has gone is told in time, and its context fails; those that the
	 * others have do not. */
	child_kill(&children[gone]);
	tell_all(children, gone, &gone, sizeof(gone));
	for (unsigned i = 0; i < gone; i++) {
		expect_words(&children[i], 1, HDL_WC_RETRY_EXC_ERR);
		expect_words(&children[i], 1, HDL_QPS_ERR);
	}
	for (uint32_t i = 0; i < gone; i++) {
		uint32_t to = !i;
		assert_int_equal(write(children[i].talk, &to, sizeof(to)), sizeof(to));
	}
	expect_words(children, gone, HDL_WC_SUCCESS);
	tell_all(children, gone, &go, sizeof(go));
	for (unsigned i = 0; i < gone; i++) {
		assert_int_equal(waitpid(children[i].pid, &status, 0), children[i].pid);
		assert_int_equal(status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sn2_rd_between_processes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
