/* Kill -9 at any moment: two processes talk with every kind of operation, registering memory
 * meanwhile; one of them is killed (now and then the node agent with it), and the other must learn
 * of it by an error completion within a second, leave in order, and the next pair must work. One
 * process, the keeper, outlives many of its peers and may not grow by it: after each it holds what
 * it held when everything that is made once had been made. In the end the agent holds nothing any
 * more. Usage: kill ROUNDS [SEED]. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prng.h"
#include "end.h"
#include "holdings.h"

#define ROOM           (1u << 20)
#define LIMIT_MS       1000
#define IN_FLIGHT      8
#define AGENT_PERMILLE 100 /* the agent is killed, too */
#define KEEPER_WARM_UP 4 /* peers of the keeper until everything that is made once has been made */
#define QUIET_MS       500 /* the death of a peer has been dealt with */
#define KEEPER_TRIES   100 /* not every peer is there before it is killed */

static uint32_t some_length(struct prng *prng)
{
	return (uint32_t)prng_below(prng, prng_chance(prng, 300) ? ROOM / 4 : 64) + 1;
}

/* One request of any kind and size. */
static void post(struct end *end, struct prng *prng)
{
	static const uint32_t opcodes[] = {HDL_OP_SEND, HDL_OP_WRITE, HDL_OP_READ, HDL_OP_FETCH_ADD,
	                                   HDL_OP_WRITE_IMM};
	int result = end_try(end, opcodes[prng_below(prng, 5)], some_length(prng));
	if (result != -HDL_ENOSPC)
		MUST(result);
}

/* Register and deregister while the other is at work. */
static void churn(struct end *end, struct prng *prng)
{
	struct hdl_mr *mr;
	if (!prng_chance(prng, 50))
		return;
	MUST(hdl_mr_register(end->pd, end->room, some_length(prng), 0x1f, &mr));
	MUST(hdl_mr_deregister(mr));
}

/* Talk until the other end is gone. */
static void talk(struct end *end, uint64_t seed)
{
	struct prng prng;
	prng_seed(&prng, seed);
	for (bool failed = false; !failed;) {
		struct hdl_wc wc[16];
		churn(end, &prng);
		post(end, &prng);
		int count = hdl_cq_poll(end->cq, wc, 16);
		MUST(count);
		for (int i = 0; i < count; i++) {
			failed = failed || wc[i].status != HDL_WC_SUCCESS;
			if (wc[i].status == HDL_WC_SUCCESS && wc[i].opcode >= HDL_WC_RECV)
				end_post_receive(end);
		}
	}
}

static void live(int in, int out, uint64_t seed)
{
	struct end end;
	end_open(&end, ROOM, IN_FLIGHT);
	if (!end_meet(&end, in, out))
		_exit(0); /* killed before it could say who it is: there is nothing to survive */
	end_connect(&end);
	talk(&end, seed);
	end_close(&end);
	_exit(0);
}

static pid_t start(int in, int out, int other_in, int other_out, uint64_t seed)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(other_in);
	close(other_out);
	live(in, out, seed);
	return 0;
}

/* Wait, kill @victim, and perhaps the agent. Returns when. */
static double strike(struct prng *prng, pid_t victim, uint32_t agent_permille)
{
	/* The beginning has the most moments that differ: opening, registering, being introduced.
	 */
	usleep((useconds_t)prng_below(prng, prng_chance(prng, 400) ? 4000 : 30000));
	bool agent_too = prng_chance(prng, agent_permille), agent_first = prng_chance(prng, 500);
	if (agent_too && agent_first)
		kill_agent();
	double when = now_ms();
	kill(victim, SIGKILL);
	if (agent_too && !agent_first)
		kill_agent();
	waitpid(victim, NULL, 0);
	return when;
}

/* --- a survivor of its own for the round --- */

/* How long the survivor took to leave after the kill; below 0: it did not, or not in order. */
static double pair_round(struct prng *prng)
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
	double begin = strike(prng, victim, AGENT_PERMILLE);
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

/* --- the keeper --- */

struct keeper {
	pid_t pid;
	int fd;
};

/* What the keeper is told before a round. */
struct order {
	enum { WARM_UP, REMEMBER, JUDGE } what; /* nobody comes; it may not hold more than then */
	struct card card;
};

/* What the keeper says after a round, and what it holds by then. */
struct report {
	double failed_ms;
	bool met, grew;
	struct holdings holds;
};

/* Make a queue pair for each card that comes, and talk until its owner is dead. The adapter stays.
 */
static void keep(int fd)
{
	struct end end;
	struct order order;
	struct holdings before = {0};
	end_open(&end, ROOM, IN_FLIGHT);
	MUST(write(fd, &end.mine, sizeof(end.mine)) == sizeof(end.mine) ? 0 : -HDL_EIO);
	while (read(fd, &order, sizeof(order)) == sizeof(order)) {
		struct report report = {0};
		if (order.what == REMEMBER) {
			holdings_take(&before, QUIET_MS);
			MUST(write(fd, &report, sizeof(report)) == sizeof(report) ? 0 : -HDL_EIO);
			continue;
		}
		end.peer = order.card;
		/* It may die while we connect: then our queue pair is in error already, and cannot
		 * be made ready to send. */
		int result = end_try_connect(&end);
		struct hdl_qp_attr now;
		if (result == 0)
			talk(&end, order.card.qpn);
		else if (hdl_qp_query(end.qp, &now, NULL) != 0 || now.state != HDL_QPS_ERR)
			MUST(result);
		report.failed_ms = now_ms();
		report.met = result == 0;
		struct hdl_qp_attr reset = {.state = HDL_QPS_RESET};
		struct hdl_wc wc;
		MUST(hdl_qp_modify(end.qp, &reset, HDL_QP_STATE));
		while (hdl_cq_poll(end.cq, &wc, 1) > 0)
			;
		/* The error may be faster than the news of the death, and than a new agent. */
		if (order.what == JUDGE)
			report.grew = !holdings_same(&before, &report.holds, LIMIT_MS);
		MUST(write(fd, &report, sizeof(report)) == sizeof(report) ? 0 : -HDL_EIO);
	}
	end_close(&end);
	_exit(0);
}

static struct keeper start_keeper(struct card *card)
{
	int pair[2];
	struct keeper keeper = {-1, -1};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return keeper;
	keeper.pid = fork();
	if (keeper.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		keep(pair[1]);
	}
	close(pair[1]);
	keeper.fd = pair[0];
	if (read(keeper.fd, card, sizeof(*card)) != sizeof(*card))
		keeper.fd = -1;
	return keeper;
}

/* A victim that connects to the keeper. */
static double keeper_round(struct prng *prng, const struct keeper *keeper, const struct card *card,
                           uint32_t agent_permille, int what, struct report *report)
{
	int pair[2];
	struct order order = {.what = what};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return -1;
	pid_t victim = fork();
	if (victim == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		live(pair[1], pair[1], prng_next(prng));
	}
	close(pair[1]);
	bool met = read(pair[0], &order.card, sizeof(order.card)) == sizeof(order.card) &&
	           write(keeper->fd, &order, sizeof(order)) == sizeof(order) &&
	           write(pair[0], card, sizeof(*card)) == sizeof(*card);
	double begin = strike(prng, victim, agent_permille);
	close(pair[0]);
	struct pollfd news = {.fd = keeper->fd, .events = POLLIN};
	if (!met || poll(&news, 1, 2 * LIMIT_MS) <= 0 ||
	    read(keeper->fd, report, sizeof(*report)) != sizeof(*report))
		return -2;
	/* It may have had trouble before: the victim died while the one was being introduced to the
	 * other. */
	return report->failed_ms > begin ? report->failed_ms - begin : 0;
}

/* Rounds until everything has been made that is made once: what a peer needs, and the thread that
 * finds the next agent when one has died. The last peers were introduced by that next one. */
static bool warm_up(struct prng *prng, const struct keeper *keeper, const struct card *card)
{
	int met = 0;
	for (int i = 0; i < KEEPER_TRIES && met < KEEPER_WARM_UP; i++) {
		struct report report;
		if (keeper_round(prng, keeper, card, i == 0 ? 1000 : 0, WARM_UP, &report) < 0)
			return false;
		met += i > 0 && report.met;
	}
	struct order order = {.what = REMEMBER};
	struct report report;
	return met >= KEEPER_WARM_UP && write(keeper->fd, &order, sizeof(order)) == sizeof(order) &&
	       read(keeper->fd, &report, sizeof(report)) == sizeof(report);
}

int main(int argc, char **argv)
{
	struct prng prng;
	int rounds = argc > 1 ? atoi(argv[1]) : 50;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	double worst = 0, sum = 0;
	struct report last = {0};
	struct card card;
	holdings_exact(argv);
	signal(SIGPIPE, SIG_IGN); /* the other end of a pipe may be dead */
	prng_seed(&prng, seed);
	struct keeper keeper = start_keeper(&card);
	if (!warm_up(&prng, &keeper, &card)) {
		printf("seed %llu: the first peers did not come\n", (unsigned long long)seed);
		return 1;
	}
	for (int i = 0; i < rounds; i++) {
		bool keeps = prng_chance(&prng, 300);
		double took =
		        keeps ? keeper_round(&prng, &keeper, &card, AGENT_PERMILLE, JUDGE, &last)
		              : pair_round(&prng);
		if (took < 0 || took > LIMIT_MS) {
			printf("round %d of seed %llu: the %s %s (%.0f)\n", i,
			       (unsigned long long)seed, keeps ? "keeper" : "survivor",
			       took > -2 ? "was still there after a second" : "failed", took);
			return 1;
		}
		if (keeps && last.grew) {
			printf("in round %d of seed %llu\n", i, (unsigned long long)seed);
			return 1;
		}
		worst = took > worst ? took : worst;
		sum += took;
	}
	int status = 1;
	close(keeper.fd);
	waitpid(keeper.pid, &status, 0);
	printf("%d rounds: survivors left after %.1f ms on average, %.1f ms at worst; %d files, "
	       "%d mappings of ours, %ld KiB mapped\n",
	       rounds, sum / rounds, worst, last.holds.files, last.holds.shared,
	       last.holds.mapped_kib);
	if (status != 0)
		printf("the keeper ended with status %#x\n", (unsigned)status);
	return status != 0 || !agent_is_empty(0);
}
