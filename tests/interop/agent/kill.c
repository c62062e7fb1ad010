/* Kill -9 at any moment: two processes talk with every kind of operation, one of them is killed (now and then the node agent
 * with it), and the other must learn of it by an error completion within a second, leave in order, and the next pair must
 * work. Usage: kill ROUNDS [SEED]. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <heddle/heddle.h>

#include "base/prng.h"
#include "port/agentmsg.h"
#include "port/rundir.h"

#define ROOM      (1u << 20)
#define LIMIT_MS  1000
#define IN_FLIGHT 8

struct card {
	struct hdl_gid gid;
	uint32_t qpn;
	uint64_t addr;
	struct hdl_key key;
};

static void must(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%d: %s: %s\n", (int)getpid(), what, hdl_strerror(result));
		_exit(3);
	}
}
#define MUST(call) must(call, #call)

static void connect_qp(struct hdl_qp *qp, const struct card *peer)
{
	struct hdl_qp_attr a = {.state = HDL_QPS_INIT, .port_num = 1, .access = 0x1c};
	MUST(hdl_qp_modify(qp, &a, HDL_QP_STATE | HDL_QP_PORT | HDL_QP_ACCESS | HDL_QP_PKEY_INDEX));
	a = (struct hdl_qp_attr){.state = HDL_QPS_RTR,
	                         .path_mtu = 4096,
	                         .dest_qpn = peer->qpn,
	                         .ah = {.dgid = peer->gid, .port_num = 1},
	                         .max_dest_rd_atomic = 4,
	                         .min_rnr_timer = 1};
	/* The peer may have been killed already: then nobody has the number. */
	MUST(hdl_qp_modify(qp, &a,
	                   HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                           HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC |
	                           HDL_QP_MIN_RNR_TIMER));
	a = (struct hdl_qp_attr){.state = HDL_QPS_RTS,
	                         .timeout = 10,
	                         .retry_cnt = 7,
	                         .rnr_retry = 7,
	                         .max_rd_atomic = 4};
	MUST(hdl_qp_modify(qp, &a,
	                   HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                           HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC));
}

/* One request of any kind and size. */
static void post(struct hdl_qp *qp, struct prng *prng, unsigned char *room, struct hdl_key key,
                 const struct card *peer)
{
	static const uint32_t opcodes[] = {HDL_OP_SEND, HDL_OP_WRITE, HDL_OP_READ, HDL_OP_FETCH_ADD,
	                                   HDL_OP_WRITE_IMM};
	uint32_t opcode = opcodes[prng_below(prng, 5)];
	uint32_t length = (uint32_t)prng_below(prng, prng_chance(prng, 300) ? ROOM / 4 : 64) + 1;
	struct hdl_sge piece = {(uint64_t)(uintptr_t)room, opcode == HDL_OP_FETCH_ADD ? 8 : length,
	                        key};
	struct hdl_send_wr wr = {
	        .sg_list = &piece, .num_sge = 1, .opcode = opcode, .flags = HDL_SEND_SIGNALED};
	if (opcode == HDL_OP_FETCH_ADD) {
		wr.u.atomic.addr = peer->addr;
		wr.u.atomic.key = peer->key;
	} else {
		wr.u.rdma.addr = peer->addr;
		wr.u.rdma.key = peer->key;
	}
	int result = hdl_post_send(qp, &wr, NULL);
	if (result != 0 && result != -HDL_ENOSPC)
		MUST(result);
}

/* Talk until the other end is gone. */
static int talk(int in, int out, uint64_t seed)
{
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_qp *qp;
	struct hdl_mr *mr;
	struct hdl_limits limits;
	struct prng prng;
	prng_seed(&prng, seed);
	/* Memory that the peer maps, or memory that the kernel copies. */
	bool mapped = prng_chance(&prng, 500);
	void *memory = mapped ? NULL : calloc(1, ROOM);
	if (mapped)
		MUST(hdl_mem_alloc(ROOM, &memory));
	unsigned char *room = memory;
	MUST(hdl_open(&attr, &adapter));
	MUST(hdl_pd_create(adapter, &pd));
	MUST(hdl_cq_create(adapter, 256, NULL, NULL, &cq));
	struct hdl_qp_init_attr init = {
	        .type = HDL_QP_RC, .send_cq = cq, .recv_cq = cq, .cap = {IN_FLIGHT, 64, 1, 1, 0}};
	MUST(hdl_qp_create(pd, &init, &qp));
	MUST(hdl_mr_register(pd, room, ROOM, 0x1f, &mr));
	MUST(hdl_adapter_query(adapter, &limits));
	struct card mine = {limits.gid, hdl_qp_number(qp), (uint64_t)(uintptr_t)room,
	                    hdl_mr_key(mr)},
	            peer;
	if (write(out, &mine, sizeof(mine)) != sizeof(mine) ||
	    read(in, &peer, sizeof(peer)) != sizeof(peer))
		_exit(0); /* killed before it could say who it is: there is nothing to survive */
	connect_qp(qp, &peer);
	struct hdl_sge piece = {mine.addr, ROOM, mine.key};
	struct hdl_recv_wr recv = {.sg_list = &piece, .num_sge = 1};
	for (int i = 0; i < 32; i++)
		MUST(hdl_post_recv(qp, &recv, NULL));
	bool failed = false;
	while (!failed) {
		struct hdl_wc wc[16];
		post(qp, &prng, room, mine.key, &peer);
		int count = hdl_cq_poll(cq, wc, 16);
		MUST(count);
		for (int i = 0; i < count; i++) {
			failed = failed || wc[i].status != HDL_WC_SUCCESS;
			if (wc[i].status == HDL_WC_SUCCESS && wc[i].opcode >= HDL_WC_RECV)
				hdl_post_recv(qp, &recv, NULL);
		}
	}
	MUST(hdl_qp_destroy(qp));
	MUST(hdl_mr_deregister(mr));
	MUST(hdl_cq_destroy(cq));
	MUST(hdl_pd_destroy(pd));
	MUST(hdl_close(adapter));
	if (mapped)
		MUST(hdl_mem_free(room));
	else
		free(room);
	return 0;
}

static pid_t start(int in, int out, int other_in, int other_out, uint64_t seed)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	close(other_in);
	close(other_out);
	_exit(talk(in, out, seed));
}

static void kill_agent(void)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	int pid = 0;
	if (rundir_open(directory) != 0)
		return;
	rundir_file(directory, AGENT_LOCK, path, sizeof(path));
	FILE *lock = fopen(path, "re");
	if (lock != NULL && fscanf(lock, "%d", &pid) == 1 && pid > 1)
		kill(pid, SIGKILL);
	if (lock != NULL)
		fclose(lock);
}

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* How long the survivor took to leave after the kill; below 0: it did not, or not in order. */
static double one_round(struct prng *prng)
{
	int there[2], back[2];
	if (pipe2(there, O_CLOEXEC) != 0 || pipe2(back, O_CLOEXEC) != 0)
		return -1;
	uint64_t seed = prng_next(prng);
	pid_t survivor = start(there[0], back[1], there[1], back[0], seed);
	pid_t victim = start(back[0], there[1], back[1], there[0], seed + 1);
	close(there[0]);
	close(there[1]);
	close(back[0]);
	close(back[1]);
	usleep((useconds_t)prng_below(prng, 30000));
	if (prng_chance(prng, 200))
		kill_agent();
	double begin = now_ms();
	kill(victim, SIGKILL);
	waitpid(victim, NULL, 0);
	int status = 0;
	while (waitpid(survivor, &status, WNOHANG) == 0) {
		if (now_ms() - begin > LIMIT_MS) {
			kill(survivor, SIGABRT);
			waitpid(survivor, &status, 0);
			return -1;
		}
		usleep(200);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return now_ms() - begin;
	fprintf(stderr, "survivor: %s %d\n", WIFEXITED(status) ? "exit" : "signal",
	        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	return -2;
}

int main(int argc, char **argv)
{
	struct prng prng;
	int rounds = argc > 1 ? atoi(argv[1]) : 50;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	double worst = 0, sum = 0;
	signal(SIGPIPE, SIG_IGN); /* the other end of a pipe may be dead */
	prng_seed(&prng, seed);
	for (int i = 0; i < rounds; i++) {
		double took = one_round(&prng);
		if (took < 0) {
			printf("round %d of seed %llu: the survivor %s\n", i,
			       (unsigned long long)seed,
			       took > -2 ? "was still there after a second" : "failed");
			return 1;
		}
		worst = took > worst ? took : worst;
		sum += took;
	}
	printf("%d rounds: survivors left after %.1f ms on average, %.1f ms at worst\n", rounds,
	       sum / rounds, worst);
	return 0;
}
