/* A program that knows nothing of Heddle, built with the stock headers and library, and two
 * addresses of each of two nodes (MISSION SN3): its connection has a path along one line and an
 * alternate path along the other. The line is cut, and messages go on along the other one; it is
 * mended and given as the alternate path, and the other one is cut. Then the program migrates by
 * itself. Each end is told by events, every byte is looked at, and the lines' own figures say where
 * the bytes were. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "net.h"

#define MESSAGE_BYTES (64u << 10)
#define ROUND         64u /* messages there and back, one after the other */
#define WAIT_S        40.0
#define TIMEOUT       18 /* a second: a path is not lost because a process waits for a processor, */
#define RETRIES       2  /* and so often again */

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory; /* what is sent, then what is received */
	bool first;
	int talk;
	uint32_t number;
	uint32_t sent, received; /* completions */
};

/* The port whose table has the address of this end on @line, and where. */
static void find_gid(const struct end *end, unsigned line, uint8_t *port, uint8_t *index)
{
	struct ibv_gid_entry entries[64];
	uint8_t own[16];
	net_gid(line, end->first, own);
	ssize_t count = ibv_query_gid_table(end->context, entries, 64, 0);
	CHECK(count > 0);
	for (ssize_t i = 0; i < count; i++)
		if (memcmp(entries[i].gid.raw, own, 16) == 0) {
			*port = (uint8_t)entries[i].port_num;
			*index = (uint8_t)entries[i].gid_index;
			return;
		}
	net_check(false, "the address is in the table", __LINE__);
}

static struct ibv_ah_attr along(const struct end *end, unsigned line)
{
	struct ibv_ah_attr ah = {.is_global = 1, .grh.hop_limit = 64};
	find_gid(end, line, &ah.port_num, &ah.grh.sgid_index);
	net_gid(line, !end->first, ah.grh.dgid.raw);
	return ah;
}

static void open_end(struct end *end)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list != NULL && list[0] != NULL);
	end->context = ibv_open_device(list[0]);
	CHECK(end->context != NULL);
	ibv_free_device_list(list);
	end->memory = calloc(2, MESSAGE_BYTES);
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, 16, NULL, NULL, 0);
	CHECK(end->pd != NULL && end->cq != NULL);
	end->mr =
	        ibv_reg_mr(end->pd, end->memory, (size_t)2 * MESSAGE_BYTES, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_init_attr init = {.send_cq = end->cq,
	                                .recv_cq = end->cq,
	                                .qp_type = IBV_QPT_RC,
	                                .sq_sig_all = 1,
	                                .cap = {4, 4, 1, 1, 0}};
	end->qp = ibv_create_qp(end->pd, &init);
	CHECK(end->mr != NULL && end->qp != NULL);
}

static void post_receive(struct end *end)
{
	struct ibv_sge piece = {(uint64_t)(uintptr_t)(end->memory + MESSAGE_BYTES), MESSAGE_BYTES,
	                        end->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &piece, .num_sge = 1}, *bad;
	CHECK(ibv_post_recv(end->qp, &wr, &bad) == 0);
}

static void connect_end(struct end *end, unsigned line)
{
	uint32_t peer;
	struct ibv_ah_attr path = along(end, line);
	CHECK(net_exchange(end->talk, &end->qp->qp_num, &peer, sizeof(peer)));
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = path.port_num};
	CHECK(ibv_modify_qp(end->qp, &attr,
	                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
	      0);
	post_receive(end);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
	                            .ah_attr = path,
	                            .path_mtu = IBV_MTU_4096,
	                            .dest_qp_num = peer,
	                            .max_dest_rd_atomic = 1,
	                            .min_rnr_timer = 1};
	CHECK(ibv_modify_qp(end->qp, &attr,
	                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	                            IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
	                            .timeout = TIMEOUT,
	                            .retry_cnt = RETRIES,
	                            .rnr_retry = 7,
	                            .max_rd_atomic = 1};
	CHECK(ibv_modify_qp(end->qp, &attr,
	                    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	char byte = 0;
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
}

static void fill(uint8_t *to, uint32_t seed)
{
	for (uint32_t i = 0; i < MESSAGE_BYTES; i += 4) {
		uint32_t word = seed * 0x85ebca6bu + i;
		memcpy(to + i, &word, 4);
	}
}

static void post_send(struct end *end)
{
	struct ibv_sge piece = {(uint64_t)(uintptr_t)end->memory, MESSAGE_BYTES, end->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	CHECK(ibv_post_send(end->qp, &wr, &bad) == 0);
}

/* Wait until so many messages were sent and received in all. */
static void await(struct end *end, uint32_t sent, uint32_t received)
{
	double until = net_now_s() + WAIT_S;
	while (end->sent < sent || end->received < received) {
		struct ibv_wc wc;
		int count = ibv_poll_cq(end->cq, 1, &wc);
		CHECK(count >= 0 && net_now_s() < until);
		if (count == 0)
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
		CHECK(wc.status == IBV_WC_SUCCESS);
		CHECK(wc.opcode != IBV_WC_RECV || wc.byte_len == MESSAGE_BYTES);
		*(wc.opcode == IBV_WC_RECV ? &end->received : &end->sent) += 1;
	}
}

static void must_be_right(struct end *end, uint32_t seed)
{
	static uint8_t wanted[MESSAGE_BYTES];
	fill(wanted, seed);
	CHECK(memcmp(wanted, end->memory + MESSAGE_BYTES, MESSAGE_BYTES) == 0);
	memset(end->memory + MESSAGE_BYTES, 0, MESSAGE_BYTES);
}

/* A round of messages there and back. Odd numbers are those of the second's. */
static void round_trips(struct end *end)
{
	for (unsigned i = 0; i < ROUND; i++) {
		uint32_t number = end->number++;
		fill(end->memory, 2 * number + !end->first);
		if (end->first)
			post_send(end);
		await(end, number + end->first, number + 1);
		must_be_right(end, 2 * number + end->first);
		post_receive(end);
		if (!end->first)
			post_send(end);
		await(end, number + 1, number + 1);
	}
}

static struct ibv_qp_attr query(struct end *end)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(end->qp, &attr, IBV_QP_PATH_MIG_STATE | IBV_QP_AV, &init) == 0);
	return attr;
}

/* Give the path along @line as the alternate one, and arm it. Both ends are when one message has
 * gone each way. */
static void arm(struct end *end, unsigned line)
{
	char byte = 0;
	struct ibv_qp_attr attr = {.alt_ah_attr = along(end, line),
	                           .alt_timeout = TIMEOUT,
	                           .path_mig_state = IBV_MIG_REARM};
	attr.alt_port_num = attr.alt_ah_attr.port_num;
	CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE) == 0);
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
	round_trips(end);
	CHECK(query(end).path_mig_state == IBV_MIG_ARMED);
	CHECK(net_exchange(end->talk, &byte, &byte,
	                   1)); /* neither changes over before both have seen that */
}

/* The next event is @type, of our queue pair. */
static void must_hear(struct end *end, enum ibv_event_type type)
{
	struct ibv_async_event event;
	struct pollfd readable = {.fd = end->context->async_fd, .events = POLLIN};
	CHECK(poll(&readable, 1, (int)(WAIT_S * 1000)) == 1);
	CHECK(ibv_get_async_event(end->context, &event) == 0);
	CHECK(event.event_type == type && event.element.qp == end->qp);
	ibv_ack_async_event(&event);
}

/* Round trips, which must be on @line alone. */
static void must_use(struct end *end, unsigned line, const char *what)
{
	uint64_t before[NET_LINES], sent[NET_LINES];
	double began = net_now_s();
	for (unsigned i = 0; i < NET_LINES; i++)
		before[i] = net_sent(i);
	round_trips(end);
	for (unsigned i = 0; i < NET_LINES; i++)
		sent[i] = net_sent(i) - before[i];
	if (end->first)
		printf("%-28s line %u: %llu bytes, the other: %llu; %.3f s\n", what, line,
		       (unsigned long long)sent[line], (unsigned long long)sent[!line],
		       net_now_s() - began);
	CHECK(sent[line] >= ROUND * MESSAGE_BYTES);
	CHECK(sent[!line] < ROUND * MESSAGE_BYTES / 4); /* what was not answered was sent again */
}

/* The way is along @line now, says the queue pair, and it has no other. */
static void must_be_along(struct end *end, unsigned line)
{
	struct ibv_qp_attr attr = query(end);
	struct ibv_ah_attr path = along(end, line);
	CHECK(attr.path_mig_state == IBV_MIG_MIGRATED);
	CHECK(attr.ah_attr.grh.sgid_index == path.grh.sgid_index);
	CHECK(attr.ah_attr.port_num == path.port_num && attr.port_num == path.port_num);
	CHECK(memcmp(attr.ah_attr.grh.dgid.raw, path.grh.dgid.raw, 16) == 0);
}

/* @line is cut while messages are on it. */
static void lose(struct end *end, unsigned line)
{
	char byte = 0;
	must_use(end, line, "before");
	if (end->first)
		net_cut(line);
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
	must_use(end, !line, "cut");
	must_hear(end, IBV_EVENT_PATH_MIG);
	must_be_along(end, !line);
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
	if (end->first)
		net_mend(line);
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
	must_use(end, !line, "mended");
	arm(end, line);
}

/* The first changes over because it wants to. */
static void change(struct end *end, unsigned line)
{
	char byte = 0;
	struct ibv_qp_attr attr = {.path_mig_state = IBV_MIG_MIGRATED};
	if (end->first)
		CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_PATH_MIG_STATE) == 0);
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
	must_use(end, line, "by hand");
	must_hear(end, IBV_EVENT_PATH_MIG);
	must_be_along(end, line);
}

int main(void)
{
	struct end end = {0};
	setvbuf(stdout, NULL, _IOLBF, 0);
	end.first = net_begin(&end.talk);
	open_end(&end);
	connect_end(&end, 0);
	arm(&end, 1);
	lose(&end, 0);
	lose(&end, 1);
	change(&end, 1);
	CHECK(ibv_destroy_qp(end.qp) == 0 && ibv_dereg_mr(end.mr) == 0);
	CHECK(ibv_destroy_cq(end.cq) == 0 && ibv_dealloc_pd(end.pd) == 0);
	CHECK(ibv_close_device(end.context) == 0);
	free(end.memory);
	return 0;
}
