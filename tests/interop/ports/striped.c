/* A connection over two addresses of each of two nodes, on sockets (MISSION SN3): its bytes are on
 * both lines, it goes on with either of them when the other is cut, and is on both again when that
 * is mended. Every byte is looked at. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <heddle/heddle.h>

#include "net.h"

#define MESSAGE_BYTES (256u << 10)
#define DEPTH         8u
#define ROUND         64u /* messages, 16 MiB */
#define GOOD_ROUNDS   3u
#define STRIPE        256u
#define MTU           4096u
#define WAIT_S        40.0
#define ACCESS        0x1fu

/* What the other one does next. */
enum task { TASK_TAKE, TASK_END };

struct end {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_qp *qp;
	struct hdl_mr *mr;
	uint8_t *memory;
	bool first;
	int talk;
	struct card {
		uint32_t qpn;
		struct hdl_key key;
		uint64_t addr;
	} mine, peer;
	uint32_t number; /* of the next message */
};

static void fill(uint8_t *to, uint32_t number)
{
	for (uint32_t i = 0; i < MESSAGE_BYTES; i += 4) {
		uint32_t word = number * 0x9e3779b1u + i;
		memcpy(to + i, &word, 4);
	}
}

static bool is_right(const uint8_t *at, uint32_t number)
{
	for (uint32_t i = 0; i < MESSAGE_BYTES; i += 4) {
		uint32_t word;
		memcpy(&word, at + i, 4);
		if (word != number * 0x9e3779b1u + i)
			return false;
	}
	return true;
}

/* Which of our addresses is that on @line? */
static uint8_t index_of(const struct end *end, unsigned line)
{
	struct hdl_gid own, gid;
	struct hdl_limits limits;
	uint8_t index = 0;
	net_gid(line, end->first, own.raw);
	while (hdl_gid_query(end->adapter, index, &gid) == 0 && memcmp(&gid, &own, 16) != 0)
		index++;
	CHECK(hdl_adapter_query(end->adapter, &limits) == 0);
	CHECK(limits.wire_gids >> index & 1);
	return index;
}

static struct hdl_ah_attr along(const struct end *end, unsigned line)
{
	struct hdl_ah_attr ah = {.port_num = 1, .is_global = true, .hop_limit = 64};
	ah.sgid_index = index_of(end, line);
	net_gid(line, !end->first, ah.dgid.raw);
	return ah;
}

static void post_receive(struct end *end, uint32_t slot)
{
	struct hdl_sge piece = {(uint64_t)(uintptr_t)(end->memory + slot * MESSAGE_BYTES),
	                        MESSAGE_BYTES, hdl_mr_key(end->mr)};
	struct hdl_recv_wr wr = {.wr_id = slot, .sg_list = &piece, .num_sge = 1};
	CHECK(hdl_post_recv(end->qp, &wr, NULL) == 0);
}

static void open_end(struct end *end)
{
	struct hdl_open_attr attr = {.on_node = true};
	CHECK(hdl_open(&attr, &end->adapter) == 0);
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC, .cap = {DEPTH, DEPTH, 1, 1, 0}};
	end->memory = calloc(DEPTH, MESSAGE_BYTES);
	CHECK(end->memory != NULL && hdl_pd_create(end->adapter, &end->pd) == 0);
	CHECK(hdl_cq_create(end->adapter, 4 * DEPTH, NULL, NULL, &end->cq) == 0);
	init.send_cq = init.recv_cq = end->cq;
	CHECK(hdl_qp_create(end->pd, &init, &end->qp) == 0);
	CHECK(hdl_mr_register(end->pd, end->memory, DEPTH * MESSAGE_BYTES, ACCESS, &end->mr) == 0);
	end->mine = (struct card){hdl_qp_number(end->qp), hdl_mr_key(end->mr),
	                          (uint64_t)(uintptr_t)end->memory};
	CHECK(net_exchange(end->talk, &end->mine, &end->peer, sizeof(end->mine)));
}

static void connect_end(struct end *end)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT, .port_num = 1, .access = 0x1c};
	CHECK(hdl_qp_modify(end->qp, &attr,
	                    HDL_QP_STATE | HDL_QP_PORT | HDL_QP_ACCESS | HDL_QP_PKEY_INDEX) == 0);
	for (uint32_t i = 0; !end->first && i < DEPTH; i++)
		post_receive(end, i);
	attr = (struct hdl_qp_attr){.state = HDL_QPS_RTR,
	                            .path_mtu = MTU,
	                            .dest_qpn = end->peer.qpn,
	                            .ah = along(end, 0),
	                            .alt_ah = along(end, 1),
	                            .alt_port_num = 1,
	                            .alt_timeout = 16,
	                            .max_dest_rd_atomic = 4,
	                            .min_rnr_timer = 1,
	                            .stripe = STRIPE};
	CHECK(hdl_qp_modify(end->qp, &attr,
	                    HDL_QP_STATE | HDL_QP_AV | HDL_QP_ALT_PATH | HDL_QP_STRIPE |
	                            HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                            HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER) == 0);
	attr = (struct hdl_qp_attr){.state = HDL_QPS_RTS,
	                            .timeout = 16,
	                            .retry_cnt = 7,
	                            .rnr_retry = 7,
	                            .max_rd_atomic = 4};
	CHECK(hdl_qp_modify(end->qp, &attr,
	                    HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                            HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC) == 0);
	char byte = 0;
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
}

static struct hdl_wc next_completion(struct end *end)
{
	struct hdl_wc wc;
	double until = net_now_s() + WAIT_S;
	int count;
	while ((count = hdl_cq_poll(end->cq, &wc, 1)) == 0)
		CHECK(net_now_s() < until);
	CHECK(count == 1);
	if (wc.status != HDL_WC_SUCCESS)
		fprintf(stderr, "status %u\n", wc.status);
	CHECK(wc.status == HDL_WC_SUCCESS);
	return wc;
}

static void post(struct end *end, uint32_t opcode, uint32_t slot)
{
	struct hdl_sge piece = {(uint64_t)(uintptr_t)(end->memory + slot * MESSAGE_BYTES),
	                        MESSAGE_BYTES, hdl_mr_key(end->mr)};
	struct hdl_send_wr wr = {.wr_id = slot,
	                         .sg_list = &piece,
	                         .num_sge = 1,
	                         .opcode = opcode,
	                         .flags = HDL_SEND_SIGNALED,
	                         .u.rdma = {end->peer.addr + slot * MESSAGE_BYTES, end->peer.key}};
	if (opcode == HDL_OP_READ)
		memset(end->memory + slot * MESSAGE_BYTES, 0xee, MESSAGE_BYTES);
	CHECK(hdl_post_send(end->qp, &wr, NULL) == 0);
}

/* A round of sends, several at a time; the other one looks at them. */
static void send_round(struct end *end)
{
	uint32_t task = TASK_TAKE;
	CHECK(send(end->talk, &task, sizeof(task), MSG_NOSIGNAL) == sizeof(task));
	for (uint32_t posted = 0, done = 0; done < ROUND;) {
		if (posted < ROUND && posted - done < DEPTH) {
			uint32_t slot = posted++ % DEPTH;
			fill(end->memory + slot * MESSAGE_BYTES, end->number++);
			post(end, HDL_OP_SEND, slot);
			continue;
		}
		next_completion(end);
		done++;
	}
	uint32_t taken;
	CHECK(recv(end->talk, &taken, sizeof(taken), MSG_WAITALL) == sizeof(taken));
	CHECK(taken == end->number);
}

/* The same by reads, of the messages that lie there since the last round. */
static void read_round(struct end *end)
{
	for (uint32_t i = 0; i < ROUND; i++) {
		uint32_t slot = i % DEPTH;
		post(end, HDL_OP_READ, slot);
		CHECK(next_completion(end).wr_id == slot);
		CHECK(is_right(end->memory + slot * MESSAGE_BYTES, end->number - DEPTH + slot));
	}
}

static void take_round(struct end *end)
{
	for (uint32_t i = 0; i < ROUND; i++) {
		struct hdl_wc wc = next_completion(end);
		CHECK(wc.wr_id == i % DEPTH && wc.byte_len == MESSAGE_BYTES);
		CHECK(is_right(end->memory + wc.wr_id * MESSAGE_BYTES, end->number++));
		/* The last ones stay to be read. */
		post_receive(end, (uint32_t)wc.wr_id);
	}
	CHECK(send(end->talk, &end->number, 4, MSG_NOSIGNAL) == 4);
}

/* What of a round's bytes went along each line, in percent. */
struct share {
	uint64_t percent[NET_LINES];
	double rate;
};

static struct share measure(struct end *end, void (*round)(struct end *end),
                            uint64_t (*count)(unsigned line))
{
	uint64_t before[NET_LINES];
	struct share share;
	for (unsigned line = 0; line < NET_LINES; line++)
		before[line] = count(line);
	double began = net_now_s();
	round(end);
	share.rate = ROUND * MESSAGE_BYTES / (net_now_s() - began);
	for (unsigned line = 0; line < NET_LINES; line++)
		share.percent[line] = (count(line) - before[line]) * 100 / (ROUND * MESSAGE_BYTES);
	return share;
}

static void print(const char *what, const struct share *share)
{
	printf("%-24s %3u %% + %3u %%  %5.0f MB/s\n", what, (unsigned)share->percent[0],
	       (unsigned)share->percent[1], share->rate / 1e6);
}

/* Rounds until both lines carry their part: a line that was down is tried again from time to time.
 * Not in one round alone, in which all may have changed over from the one to the other. */
static void await_both(struct end *end, const char *what, void (*round)(struct end *end),
                       uint64_t (*count)(unsigned line))
{
	struct share share;
	double until = net_now_s() + WAIT_S;
	for (unsigned good = 0; good < GOOD_ROUNDS;) {
		share = measure(end, round, count);
		good = share.percent[0] >= 20 && share.percent[1] >= 20 ? good + 1 : 0;
		CHECK(net_now_s() < until);
	}
	print(what, &share);
}

static void lead(struct end *end)
{
	await_both(end, "sends", send_round, net_sent);
	await_both(end, "reads", read_round, net_received);
	for (unsigned line = 0; line < NET_LINES; line++) {
		net_cut(line);
		struct share share = measure(end, send_round, net_sent);
		print("sends, one is cut", &share);
		CHECK(share.percent[line] < 10 && share.percent[!line] >= 100);
		share = measure(end, read_round, net_received);
		print("reads, one is cut", &share);
		CHECK(share.percent[line] < 10 && share.percent[!line] >= 100);
		net_mend(line);
		/* Either kind of work finds out for itself. */
		if (line == 0)
			await_both(end, "sends, it is mended", send_round, net_sent);
		await_both(end, "reads, it is mended", read_round, net_received);
	}
	uint32_t task = TASK_END;
	CHECK(send(end->talk, &task, sizeof(task), MSG_NOSIGNAL) == sizeof(task));
}

static void follow(struct end *end)
{
	uint32_t task;
	while (recv(end->talk, &task, sizeof(task), MSG_WAITALL) == sizeof(task) &&
	       task == TASK_TAKE)
		take_round(end);
}

int main(void)
{
	struct end end = {0};
	setvbuf(stdout, NULL, _IOLBF, 0);
	end.first = net_begin(&end.talk);
	open_end(&end);
	connect_end(&end);
	if (end.first)
		lead(&end);
	else
		follow(&end);
	CHECK(hdl_qp_destroy(end.qp) == 0 && hdl_mr_deregister(end.mr) == 0);
	CHECK(hdl_cq_destroy(end.cq) == 0 && hdl_pd_destroy(end.pd) == 0);
	CHECK(hdl_close(end.adapter) == 0);
	free(end.memory);
	return 0;
}
