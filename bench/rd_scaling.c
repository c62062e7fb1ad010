/* What it takes for every process of a cluster to talk to every process of every other node
 * (docs/STATUS.md SN2; SAN figure 4): M queue pairs and N - 1 end-to-end contexts per node, or M x
 * M x (N - 1) connected queue pairs. Of the first kind all nodes are built, on a network in this
 * process, and exchange messages; of the second kind one node is built. Then what one process keeps
 * for many peers, with each service. Memory is measured, not computed.
 *
 *   rd_scaling [--all]     each process talks to every other one, however long that takes */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "base/clock.h"
#include "cable/cable.h"
#include "figures.h"
#include "must.h"

#define NODES     16u
#define PROCESSES 64u /* per node, each with a queue pair */
#define DEPTH     16u
#define BYTES     64u
#define PACKETS   4096u /* that the network holds in front of a node */
#define LIMIT_NS  3000000000ull
#define QKEY      1u
#define CONNECTED (PROCESSES * PROCESSES * (NODES - 1))
#define PEERS     1000u /* of one process */

struct packet {
	struct path came;
	uint32_t bytes;
	uint8_t data[256];
};

struct node_of {
	struct hdl_gid gid;
	struct cable cable;
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_rdd *rdd;
	struct hdl_qp *qps[PROCESSES];
	struct hdl_eec *eecs[NODES]; /* indexed by the node at the other end */
	uint8_t memory[2][BYTES];
	uint32_t put, taken;
	struct packet arrived[PACKETS];
};

static struct node_of *nodes;
static struct hdl_qp *connected[CONNECTED];
static uint64_t sent, received;

/* --- the network --- */

static void out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	(void)context;
	struct node_of *to = &nodes[path->ip.dgid[15] % NODES];
	if (to->put - to->taken == PACKETS)
		return; /* lost: it is sent again */
	struct packet *packet = &to->arrived[to->put++ % PACKETS];
	packet->came = *path;
	packet->bytes = (uint32_t)bytes;
	memcpy(packet->data, payload, bytes);
}

static void deliver(struct node_of *node)
{
	for (; node->taken != node->put; node->taken++) {
		const struct packet *packet = &node->arrived[node->taken % PACKETS];
		adapter_take(node->adapter, &packet->came, false, packet->data, packet->bytes);
	}
}

/* --- objects --- */

static void open_node(struct node_of *node, uint32_t index, uint32_t max_qp)
{
	struct hdl_open_attr attr = {
	        .max_qp = max_qp, .max_mr = 16, .no_thread = true, .gid = {{0xfd, 1}}};
	attr.gid.raw[15] = (uint8_t)index;
	node->gid = attr.gid;
	cable_init(&node->cable, out, NULL, node);
	struct adapter_env env = {.clock = clock_real(), .carrier = &node->cable.carrier};
	must(adapter_open(&attr, &env, &node->adapter), "open");
	must(hdl_pd_create(node->adapter, &node->pd), "hdl_pd_create");
	must(hdl_cq_create(node->adapter, 4096, NULL, NULL, &node->cq), "hdl_cq_create");
	must(hdl_mr_register(node->pd, node->memory, sizeof(node->memory),
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE, &node->mr),
	     "hdl_mr_register");
}

static struct hdl_qp_attr attributes(const struct hdl_gid *to, uint32_t number)
{
	return (struct hdl_qp_attr){
	        .state = HDL_QPS_INIT,
	        .port_num = 1,
	        .qkey = QKEY,
	        .ah = {.dgid = *to, .port_num = 1, .is_global = true, .hop_limit = 64},
	        .path_mtu = 1024,
	        .dest_qpn = number,
	        .timeout = 16,
	        .retry_cnt = 7,
	        .rnr_retry = 7,
	        .min_rnr_timer = 1,
	        .max_rd_atomic = 1,
	        .max_dest_rd_atomic = 1};
}

#define WAY                                                                             \
	(HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN | \
	 HDL_QP_MAX_DEST_RD_ATOMIC)
#define TIMES                                                                                  \
	(HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY | \
	 HDL_QP_MAX_RD_ATOMIC)
#define BEGIN (HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT)

static struct hdl_qp *make_qp(struct node_of *node, uint32_t type)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = type,
	                                .send_cq = node->cq,
	                                .recv_cq = node->cq,
	                                .rdd = node->rdd,
	                                .cap = {DEPTH, DEPTH, 1, 1, 0}};
	must(hdl_qp_create(node->pd, &init, &qp), "hdl_qp_create");
	return qp;
}

static void make_datagram(struct node_of *node, uint32_t i, uint32_t type)
{
	struct hdl_qp_attr attr = attributes(&node->gid, 0);
	node->qps[i] = make_qp(node, type);
	must(hdl_qp_modify(node->qps[i], &attr, BEGIN | HDL_QP_QKEY), "INIT");
	attr.state = HDL_QPS_RTR;
	must(hdl_qp_modify(node->qps[i], &attr, HDL_QP_STATE), "RTR");
	attr.state = HDL_QPS_RTS;
	must(hdl_qp_modify(node->qps[i], &attr,
	                   HDL_QP_STATE | (type == HDL_QP_UD ? HDL_QP_SQ_PSN : 0)),
	     "RTS");
}

static void ready_context(struct hdl_eec *eec, const struct node_of *to, const struct hdl_eec *peer)
{
	struct hdl_qp_attr attr = attributes(&to->gid, hdl_eec_number(peer));
	must(hdl_eec_modify(eec, &attr, BEGIN), "context INIT");
	attr.state = HDL_QPS_RTR;
	must(hdl_eec_modify(eec, &attr, WAY), "context RTR");
	attr.state = HDL_QPS_RTS;
	must(hdl_eec_modify(eec, &attr, TIMES), "context RTS");
}

static void make_connected(struct node_of *node, uint32_t i)
{
	struct hdl_qp_attr attr = attributes(&nodes[1].gid, 2 + i);
	connected[i] = make_qp(node, HDL_QP_RC);
	must(hdl_qp_modify(connected[i], &attr, BEGIN | HDL_QP_ACCESS), "INIT");
	attr.state = HDL_QPS_RTR;
	must(hdl_qp_modify(connected[i], &attr, WAY | HDL_QP_MIN_RNR_TIMER), "RTR");
	attr.state = HDL_QPS_RTS;
	must(hdl_qp_modify(connected[i], &attr, TIMES), "RTS");
}

/* --- one process and its peers --- */

/* What the process of @node keeps for PEERS peers: one queue pair of @type, and contexts; or a
 * queue pair for each. In KiB. */
static long state_for_peers(struct node_of *node, uint32_t type)
{
	static struct hdl_eec *contexts[PEERS];
	long before = figures_resident_kib();
	if (type == HDL_QP_RC) {
		for (uint32_t i = 0; i < PEERS; i++)
			make_connected(node, i);
		return figures_resident_kib() - before;
	}
	make_datagram(node, 0, type);
	for (uint32_t i = 0; i < PEERS && type == HDL_QP_RD; i++) {
		must(hdl_eec_create(node->rdd, &contexts[i]), "context");
		ready_context(contexts[i], &nodes[1], contexts[i]);
	}
	return figures_resident_kib() - before;
}

static void compare_services(void)
{
	static const uint32_t types[] = {HDL_QP_UD, HDL_QP_RD, HDL_QP_RC};
	long kib[3];
	for (unsigned i = 0; i < 3; i++) {
		struct node_of *node = calloc(1, sizeof(*node));
		must(node != NULL ? 0 : -HDL_ENOMEM, "memory");
		open_node(node, NODES + 1 + i, PEERS + 16);
		must(hdl_rdd_open(node->adapter, &node->rdd), "hdl_rdd_open");
		kib[i] = state_for_peers(node, types[i]);
	}
	printf("one process with %u peers, KiB: %ld unreliable datagrams, %ld reliable datagrams, "
	       "%ld reliable connections\n",
	       PEERS, kib[0], kib[1], kib[2]);
}

/* --- everybody talks to everybody --- */

static void post_receive(struct node_of *node, uint32_t process)
{
	struct hdl_sge piece = {(uintptr_t)node->memory[1], BYTES, hdl_mr_key(node->mr)};
	struct hdl_recv_wr wr = {.wr_id = process, .sg_list = &piece, .num_sge = 1};
	must(hdl_post_recv(node->qps[process], &wr, NULL), "hdl_post_recv");
}

static void post_send(struct node_of *node, uint32_t process, uint32_t to, uint32_t to_process)
{
	struct hdl_sge piece = {(uintptr_t)node->memory[0], BYTES, hdl_mr_key(node->mr)};
	struct hdl_send_wr wr = {
	        .opcode = HDL_OP_SEND,
	        .flags = HDL_SEND_SIGNALED,
	        .sg_list = &piece,
	        .num_sge = 1,
	        .rd = {node->eecs[to], hdl_qp_number(nodes[to].qps[to_process]), QKEY}};
	must(hdl_post_send(node->qps[process], &wr, NULL), "hdl_post_send");
}

static uint64_t poll_node(struct node_of *node)
{
	struct hdl_wc wc[64];
	uint64_t answers = 0;
	int count;
	deliver(node);
	hdl_progress(node->adapter);
	while ((count = hdl_cq_poll(node->cq, wc, 64)) > 0)
		for (int i = 0; i < count; i++) {
			must(wc[i].status == HDL_WC_SUCCESS ? 0 : -HDL_EIO,
			     hdl_wc_status_str(wc[i].status));
			if (wc[i].opcode == HDL_WC_RECV) {
				received++;
				post_receive(node, (uint32_t)wc[i].wr_id);
			} else {
				answers++;
			}
		}
	return answers;
}

/* Each process sends one message to one process of every other node, to a different one in every
 * round. */
static void talk(uint32_t round)
{
	uint64_t open = 0;
	for (uint32_t n = 0; n < NODES; n++)
		for (uint32_t i = 0; i < PROCESSES; i++)
			for (uint32_t to = 0; to < NODES; to++)
				if (to != n) {
					post_send(&nodes[n], i, to, (i + round) % PROCESSES);
					open++;
				}
	sent += open;
	while (open > 0)
		for (uint32_t n = 0; n < NODES; n++)
			open -= poll_node(&nodes[n]);
}

int main(int argc, char **argv)
{
	bool all = argc == 2 && strcmp(argv[1], "--all") == 0;
	struct clock clock = clock_real();
	long before, after;
	nodes = calloc(NODES + 1, sizeof(*nodes));
	if (nodes == NULL)
		return 1;
	for (uint32_t n = 0; n < NODES; n++) {
		open_node(&nodes[n], n, 256);
		must(hdl_rdd_open(nodes[n].adapter, &nodes[n].rdd), "hdl_rdd_open");
	}
	before = figures_resident_kib();
	for (uint32_t n = 0; n < NODES; n++) {
		for (uint32_t i = 0; i < PROCESSES; i++)
			make_datagram(&nodes[n], i, HDL_QP_RD);
		for (uint32_t to = 0; to < NODES; to++)
			if (to != n)
				must(hdl_eec_create(nodes[n].rdd, &nodes[n].eecs[to]), "context");
	}
	for (uint32_t n = 0; n < NODES; n++)
		for (uint32_t to = 0; to < NODES; to++)
			if (to != n)
				ready_context(nodes[n].eecs[to], &nodes[to], nodes[to].eecs[n]);
	after = figures_resident_kib();
	double datagram_kib = (double)(after - before) / NODES;
	struct node_of *alone = &nodes[NODES];
	open_node(alone, NODES, CONNECTED);
	before = figures_resident_kib();
	for (uint32_t i = 0; i < CONNECTED; i++)
		make_connected(alone, i);
	after = figures_resident_kib();
	double connected_kib = (double)(after - before);

	for (uint32_t n = 0; n < NODES; n++)
		for (uint32_t i = 0; i < PROCESSES; i++)
			for (uint32_t k = 0; k < DEPTH; k++)
				post_receive(&nodes[n], i);
	uint64_t start = clock_read(&clock), elapsed = 0;
	uint32_t rounds = 0;
	for (; rounds < PROCESSES && (all || elapsed < LIMIT_NS);
	     elapsed = clock_read(&clock) - start)
		talk(rounds++);

	printf("%u nodes, %u processes per node; every process talks to every process of other "
	       "nodes\n",
	       NODES, PROCESSES);
	printf("%-42s %14s %14s\n", "per node", "reliable", "reliable");
	printf("%-42s %14s %14s\n", "", "datagrams", "connections");
	printf("%-42s %14u %14u\n", "queue pairs", PROCESSES, CONNECTED);
	printf("%-42s %14u %14u\n", "end-to-end contexts", NODES - 1, 0u);
	printf("%-42s %14.0f %14.0f\n", "memory, KiB", datagram_kib, connected_kib);
	printf("%-42s %14.0f %14.0f\n", "all nodes, MiB", datagram_kib * NODES / 1024,
	       connected_kib * NODES / 1024);
	printf("%llu messages in %u rounds, %llu received, %.2f us each, all nodes on one core\n",
	       (unsigned long long)sent, rounds, (unsigned long long)received,
	       (double)elapsed / 1000.0 / (double)sent);
	compare_services();
	return received == sent ? 0 : 1;
}
