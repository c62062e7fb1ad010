/* Two paths for a program that knows nothing of them (HEDDLE_STRIPE, `heddle run --stripe`): built
 * with the stock headers and library, it connects along the first line, and its bytes are on both.
 * It goes on with either of them when the other is cut, and is on both again when that is mended.
 * Where the other end does not want to, or its agent says nothing, or it is of another build that
 * does not know the question, all is on the first line. Then ib_write_bw does the same. Every byte
 * of the first part is looked at. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "net.h"

#define MESSAGE_BYTES (256u << 10)
#define ROUND         32u /* messages, 8 MiB */
#define GOOD_ROUNDS   3u
#define WAIT_S        40.0

struct card {
	uint32_t qpn, rkey;
	uint64_t addr;
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *memory; /* what is written, then what the peer writes */
	bool first;
	int talk;
	struct card mine, peer;
	uint32_t number; /* of the next round */
};

static void open_end(struct end *end)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list != NULL && list[0] != NULL);
	end->context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	CHECK(end->context != NULL);
	end->memory = calloc(2, MESSAGE_BYTES);
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, 2 * ROUND, NULL, NULL, 0);
	CHECK(end->memory != NULL && end->pd != NULL && end->cq != NULL);
	end->mr = ibv_reg_mr(end->pd, end->memory, (size_t)2 * MESSAGE_BYTES,
	                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
	                             IBV_ACCESS_REMOTE_READ);
	CHECK(end->mr != NULL);
}

static void close_end(struct end *end)
{
	CHECK(ibv_dereg_mr(end->mr) == 0 && ibv_destroy_cq(end->cq) == 0);
	CHECK(ibv_dealloc_pd(end->pd) == 0 && ibv_close_device(end->context) == 0);
	free(end->memory);
}

/* Nothing here speaks of a second path. */
static void connect_end(struct end *end)
{
	struct ibv_qp_init_attr init = {.send_cq = end->cq,
	                                .recv_cq = end->cq,
	                                .qp_type = IBV_QPT_RC,
	                                .sq_sig_all = 1,
	                                .cap = {ROUND, 1, 1, 1, 0}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
	                           .port_num = 1,
	                           .qp_access_flags =
	                                   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	char byte = 0;
	end->qp = ibv_create_qp(end->pd, &init);
	CHECK(end->qp != NULL);
	end->mine = (struct card){end->qp->qp_num, end->mr->rkey,
	                          (uintptr_t)end->memory + MESSAGE_BYTES};
	CHECK(net_exchange(end->talk, &end->mine, &end->peer, sizeof(end->mine)));
	CHECK(ibv_modify_qp(end->qp, &attr,
	                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
	      0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
	                            .ah_attr = {.is_global = 1,
	                                        .port_num = 1,
	                                        .grh = {.sgid_index = 0, .hop_limit = 64}},
	                            .path_mtu = IBV_MTU_1024,
	                            .dest_qp_num = end->peer.qpn,
	                            .max_dest_rd_atomic = 4,
	                            .min_rnr_timer = 1};
	net_gid(0, !end->first, attr.ah_attr.grh.dgid.raw);
	CHECK(ibv_modify_qp(end->qp, &attr,
	                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	                            IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
	                            .timeout = 16,
	                            .retry_cnt = 7,
	                            .rnr_retry = 7,
	                            .max_rd_atomic = 4};
	CHECK(ibv_modify_qp(end->qp, &attr,
	                    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
}

static void await_one(struct end *end)
{
	struct ibv_wc wc;
	int count;
	double until = net_now_s() + WAIT_S;
	while ((count = ibv_poll_cq(end->cq, 1, &wc)) == 0)
		CHECK(net_now_s() < until);
	if (wc.status != IBV_WC_SUCCESS)
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
	CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
}

static void post(struct end *end, enum ibv_wr_opcode opcode)
{
	struct ibv_sge piece = {(uintptr_t)end->memory, MESSAGE_BYTES, end->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &piece,
	                         .num_sge = 1,
	                         .opcode = opcode,
	                         .wr.rdma = {end->peer.addr, end->peer.rkey}},
	                   *bad;
	CHECK(ibv_post_send(end->qp, &wr, &bad) == 0);
}

/* The first writes a message again and again, then reads it back. */
static void round_of_writes(struct end *end)
{
	static uint8_t wanted[MESSAGE_BYTES];
	uint32_t seed = end->number++;
	for (uint32_t i = 0; i < MESSAGE_BYTES; i += 4) {
		uint32_t word = seed * 0x85ebca6bu + i;
		memcpy(wanted + i, &word, 4);
	}
	memcpy(end->memory, wanted, MESSAGE_BYTES);
	for (uint32_t i = 0; i < ROUND; i++)
		post(end, IBV_WR_RDMA_WRITE);
	for (uint32_t i = 0; i < ROUND; i++)
		await_one(end);
	memset(end->memory, 0, MESSAGE_BYTES);
	post(end, IBV_WR_RDMA_READ);
	await_one(end);
	CHECK(memcmp(end->memory, wanted, MESSAGE_BYTES) == 0);
}

/* Which part of a round's bytes leaves by each line, in percent. */
static void measure(struct end *end, uint64_t percent[NET_LINES])
{
	uint64_t before[NET_LINES];
	for (unsigned line = 0; line < NET_LINES; line++)
		before[line] = net_sent(line);
	round_of_writes(end);
	for (unsigned line = 0; line < NET_LINES; line++)
		percent[line] = (net_sent(line) - before[line]) * 100 / (ROUND * MESSAGE_BYTES);
}

static void print(const char *what, const uint64_t percent[NET_LINES])
{
	printf("%-28s %3u %% + %3u %%\n", what, (unsigned)percent[0], (unsigned)percent[1]);
}

static void await_both(struct end *end, const char *what)
{
	uint64_t percent[NET_LINES];
	double until = net_now_s() + WAIT_S;
	for (unsigned good = 0; good < GOOD_ROUNDS;) {
		measure(end, percent);
		good = percent[0] >= 20 && percent[1] >= 20 ? good + 1 : 0;
		CHECK(net_now_s() < until);
	}
	print(what, percent);
}

/* Both want to. */
static void both_lines(struct end *end)
{
	char byte = 0;
	connect_end(end);
	for (unsigned line = 0; end->first && line < NET_LINES; line++) {
		uint64_t percent[NET_LINES];
		await_both(end, "both");
		net_cut(line);
		measure(end, percent);
		print("one is cut", percent);
		CHECK(percent[line] < 10 && percent[!line] >= 100);
		net_mend(line);
		await_both(end, "it is mended");
	}
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
	/* The program cannot give it another second path. */
	struct ibv_qp_attr attr = {.alt_ah_attr = {.is_global = 1, .port_num = 1},
	                           .alt_port_num = 1,
	                           .path_mig_state = IBV_MIG_REARM};
	net_gid(1, !end->first, attr.alt_ah_attr.grh.dgid.raw);
	CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE) != 0);
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
	CHECK(ibv_destroy_qp(end->qp) == 0);
}

/* The other end does not. */
static void one_line(struct end *end, const char *what)
{
	char byte = 0;
	connect_end(end);
	for (unsigned i = 0; end->first && i < GOOD_ROUNDS; i++) {
		uint64_t percent[NET_LINES];
		measure(end, percent);
		print(what, percent);
		CHECK(percent[0] >= 100 && percent[1] < 10);
	}
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
	CHECK(ibv_destroy_qp(end->qp) == 0);
}

static void child_of_own(struct end *end, bool stripes, const char *what,
                         void (*do_it)(struct end *end))
{
	char byte = 0;
	int status;
	/* A process each time: what an adapter is told when it is opened stays. */
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		setenv("HEDDLE_STRIPE", stripes ? "on" : "off", 1);
		open_end(end);
		if (do_it != NULL)
			do_it(end);
		else
			one_line(end, what);
		close_end(end);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
}

/* The agent of the second does not run while the first connects: nothing answers the question. */
static pid_t agent_pid(void)
{
	char path[128];
	int pid = 0;
	snprintf(path, sizeof(path), "%s/agent.lock", getenv("HEDDLE_DIR"));
	FILE *lock = fopen(path, "re");
	CHECK(lock != NULL && fscanf(lock, "%d", &pid) == 1 && pid > 1);
	fclose(lock);
	return pid;
}

static void nobody_answers(struct end *end)
{
	char byte = 0;
	pid_t agent = end->first ? 0 : agent_pid();
	struct end mine = *end;
	if (!end->first) {
		/* It does not ask, either: a stopped agent answers nobody. */
		CHECK(kill(agent, SIGSTOP) == 0);
	}
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
	one_line(&mine, "nobody answers");
	if (!end->first)
		CHECK(kill(agent, SIGCONT) == 0);
}

/* A program of Debian's at both ends. */
static int run(const char *command, const char *words)
{
	char line[512];
	snprintf(line, sizeof(line), "%s run --stripe %s >/dev/null 2>&1", command, words);
	int status = system(line);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void perftest(struct end *end, const char *command)
{
	uint64_t before[NET_LINES], sent[NET_LINES], all = 0;
	char byte = 0;
	bool there = system("command -v ib_write_bw >/dev/null") == 0;
	if (!there) {
		printf("ib_write_bw is not installed\n");
		return;
	}
	for (unsigned line = 0; line < NET_LINES; line++)
		before[line] = net_sent(line);
	if (end->first) {
		double until = net_now_s() + WAIT_S;
		while (run(command, "ib_write_bw -x 0 -n 2000 -F 10.72.0.2") != 0)
			CHECK(net_now_s() < until); /* until the other one listens */
		for (unsigned line = 0; line < NET_LINES; line++)
			all += sent[line] = net_sent(line) - before[line];
		printf("ib_write_bw: %llu + %llu bytes\n", (unsigned long long)sent[0],
		       (unsigned long long)sent[1]);
		CHECK(all >= 2000u << 16);
		CHECK(sent[0] >= all / 5 && sent[1] >= all / 5);
	} else {
		CHECK(run(command, "ib_write_bw -x 0 -n 2000 -F") == 0);
	}
	CHECK(net_exchange(end->talk, &byte, &byte, 1));
}

int main(int argc, char **argv)
{
	struct end end = {0};
	setvbuf(stdout, NULL, _IOLBF, 0);
	end.first = net_begin(&end.talk);
	child_of_own(&end, true, NULL, both_lines);
	child_of_own(&end, end.first, "the other one does not", NULL);
	child_of_own(&end, !end.first, "this one does not", NULL);
	child_of_own(&end, end.first, NULL, nobody_answers);
	if (argc > 1)
		perftest(&end, argv[1]);
	return 0;
}
