/* A node with two addresses has two adapters (MISSION SN4): heddle0 and heddle1, each with a GUID
 * and a link of its own. A program that knows nothing of Heddle has a connection through each of
 * them at the same time, and the lines' own figures say where the bytes were. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "net.h"

#define MESSAGE_BYTES (64u << 10)
#define ROUNDS        64u
#define WAIT_S        40.0
#define ADAPTERS      2u

/* What one end says of an adapter to the other. */
struct card {
	__be64 guid, system;
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t addr;
};

struct adapter {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory; /* what is written, then what the peer writes */
	struct card mine, peer;
};

static struct ibv_device *device_named(struct ibv_device **list, const char *name)
{
	while (*list != NULL && strcmp(ibv_get_device_name(*list), name) != 0)
		list++;
	return *list;
}

static void open_adapter(struct adapter *at, const char *name, unsigned line, bool first)
{
	uint8_t own[16];
	struct ibv_device_attr attr;
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list != NULL && device_named(list, name) != NULL);
	at->context = ibv_open_device(device_named(list, name));
	ibv_free_device_list(list);
	CHECK(at->context != NULL && ibv_query_device(at->context, &attr) == 0);
	at->memory = calloc(2, MESSAGE_BYTES);
	at->pd = ibv_alloc_pd(at->context);
	at->cq = ibv_create_cq(at->context, 16, NULL, NULL, 0);
	CHECK(at->pd != NULL && at->cq != NULL && at->memory != NULL);
	at->mr = ibv_reg_mr(at->pd, at->memory, (size_t)2 * MESSAGE_BYTES,
	                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_init_attr init = {.send_cq = at->cq,
	                                .recv_cq = at->cq,
	                                .qp_type = IBV_QPT_RC,
	                                .sq_sig_all = 1,
	                                .cap = {4, 4, 1, 1, 0}};
	at->qp = ibv_create_qp(at->pd, &init);
	CHECK(at->mr != NULL && at->qp != NULL);
	at->mine = (struct card){.guid = attr.node_guid,
	                         .system = attr.sys_image_guid,
	                         .qpn = at->qp->qp_num,
	                         .rkey = at->mr->rkey,
	                         .addr = (uintptr_t)at->memory + MESSAGE_BYTES};
	CHECK(ibv_get_device_guid(at->context->device) == attr.node_guid);
	/* What does not choose an address has that of its adapter. */
	CHECK(ibv_query_gid(at->context, 1, 0, &at->mine.gid) == 0);
	net_gid(line, first, own);
	CHECK(memcmp(own, at->mine.gid.raw, 16) == 0);
}

static void connect_adapter(struct adapter *at)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
	                           .port_num = 1,
	                           .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	CHECK(ibv_modify_qp(at->qp, &attr,
	                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
	      0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
	                            .ah_attr = {.is_global = 1,
	                                        .port_num = 1,
	                                        .grh = {.dgid = at->peer.gid, .hop_limit = 64}},
	                            .path_mtu = IBV_MTU_1024,
	                            .dest_qp_num = at->peer.qpn,
	                            .max_dest_rd_atomic = 1,
	                            .min_rnr_timer = 1};
	CHECK(ibv_modify_qp(at->qp, &attr,
	                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	                            IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
	                            .timeout = 18,
	                            .retry_cnt = 7,
	                            .rnr_retry = 7,
	                            .max_rd_atomic = 1};
	CHECK(ibv_modify_qp(at->qp, &attr,
	                    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void fill(uint8_t *to, uint32_t seed)
{
	for (uint32_t i = 0; i < MESSAGE_BYTES; i += 4) {
		uint32_t word = seed * 0x85ebca6bu + i;
		memcpy(to + i, &word, 4);
	}
}

static void post_write(struct adapter *at)
{
	struct ibv_sge piece = {(uintptr_t)at->memory, MESSAGE_BYTES, at->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &piece,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_RDMA_WRITE,
	                         .wr.rdma = {at->peer.addr, at->peer.rkey}},
	                   *bad;
	CHECK(ibv_post_send(at->qp, &wr, &bad) == 0);
}

static void await_write(struct adapter *at)
{
	struct ibv_wc wc;
	int count;
	double until = net_now_s() + WAIT_S;
	while ((count = ibv_poll_cq(at->cq, 1, &wc)) == 0)
		CHECK(net_now_s() < until);
	CHECK(count == 1 && wc.status == IBV_WC_SUCCESS && wc.qp_num == at->qp->qp_num);
}

/* The number that a seed of this end on adapter @which has in @round; the other end has its own. */
static uint32_t seed_of(bool first, unsigned which, uint32_t round)
{
	return round * 4 + which * 2 + first;
}

static void write_rounds(struct adapter adapters[ADAPTERS], bool first)
{
	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < ADAPTERS; i++) {
			fill(adapters[i].memory, seed_of(first, i, round));
			post_write(&adapters[i]);
		}
		for (unsigned i = 0; i < ADAPTERS; i++)
			await_write(&adapters[i]);
	}
}

static void must_be_right(const struct adapter *at, uint32_t seed)
{
	static uint8_t wanted[MESSAGE_BYTES];
	fill(wanted, seed);
	CHECK(memcmp(wanted, at->memory + MESSAGE_BYTES, MESSAGE_BYTES) == 0);
}

int main(void)
{
	static const char *const names[ADAPTERS] = {"heddle0", "heddle1"};
	struct adapter adapters[ADAPTERS] = {0};
	uint64_t before[NET_LINES];
	int talk;
	char byte = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	bool first = net_begin(&talk);
	for (unsigned i = 0; i < ADAPTERS; i++) {
		open_adapter(&adapters[i], names[i], i, first);
		CHECK(net_exchange(talk, &adapters[i].mine, &adapters[i].peer,
		                   sizeof(adapters[i].mine)));
	}
	/* A GUID belongs to one adapter; those of a node say that they are one system. */
	CHECK(adapters[0].mine.guid != adapters[1].mine.guid);
	CHECK(adapters[0].mine.system == adapters[1].mine.system);
	CHECK(adapters[0].mine.system != adapters[0].peer.system);
	for (unsigned i = 0; i < ADAPTERS; i++)
		for (unsigned k = 0; k < ADAPTERS; k++)
			CHECK(adapters[i].mine.guid != adapters[k].peer.guid);
	for (unsigned i = 0; i < ADAPTERS; i++)
		connect_adapter(&adapters[i]);
	CHECK(net_exchange(talk, &byte, &byte, 1));
	for (unsigned line = 0; line < NET_LINES; line++)
		before[line] = net_sent(line);
	write_rounds(adapters, first);
	for (unsigned line = 0; line < NET_LINES; line++) {
		uint64_t sent = net_sent(line) - before[line];
		printf("%s: %llu bytes\n", names[line], (unsigned long long)sent);
		CHECK(sent >= ROUNDS * MESSAGE_BYTES);
		CHECK(sent < ROUNDS * MESSAGE_BYTES * 3 / 2);
	}
	CHECK(net_exchange(talk, &byte, &byte, 1));
	for (unsigned i = 0; i < ADAPTERS; i++) {
		struct adapter *at = &adapters[i];
		must_be_right(at, seed_of(!first, i, ROUNDS - 1));
		CHECK(ibv_destroy_qp(at->qp) == 0 && ibv_dereg_mr(at->mr) == 0);
		CHECK(ibv_destroy_cq(at->cq) == 0 && ibv_dealloc_pd(at->pd) == 0);
		CHECK(ibv_close_device(at->context) == 0);
		free(at->memory);
	}
	return 0;
}
