/* Kill -9 at any moment, with apertures and circular queues (AP3, AP7 to AP9): a process keeps a
 * port, and one peer after the other connects to it, maps its memory, stores, reads, raises events
 * or streams bytes, and is killed, now and then the node agent with it. The keeper has to learn of
 * it within a second, keep its own memory and grow by nothing: after each round it holds what it
 * held when everything that is made once had been made. In the end the agent holds nothing any
 * more.
 *
 *   aperture_kill ROUNDS [SEED]     HEDDLE_LOCAL=off: over UDP; then only peers are killed */
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

#include <heddle/aperture.h>
#include <heddle/cqueue.h>

#include "base/prng.h"
#include "end.h"
#include "holdings.h"

#define QUEUE       65536u
#define BITS        18u
#define LIMIT_MS    1000  /* on a machine that has nothing else to do ... */
#define SLACK_MS    4000  /* ... and on one that is loaded */
#define WARM        2     /* peers of each kind until everything that is made once has been made */
#define SHORTEST_US 60000 /* long enough for a peer to come, on an idle machine */
#define TRIES       100   /* not every peer comes before it is killed */
#define QUIET_MS    500   /* the death of a peer has been dealt with */
#define EARLY_MS    100   /* a CONNECT of a dead peer has come by then, if it ever comes */

enum kind { STORES, STREAM, KINDS };

/* What the keeper is told before a round; after it, one byte: its peer is dead. */
struct order {
	enum { WARM_UP, REMEMBER, JUDGE } what; /* nobody comes; it may not hold more than then */
	uint64_t seed;
};

/* Where the keeper is, then what it says after each round. */
struct place {
	struct hdl_gid gid;
	uint16_t port;
};
struct report {
	double failed_ms; /* 0: nobody came */
	struct holdings holds;
	bool grew;
	uint32_t reason;
};

struct side {
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	struct hdl_eventq *events;
	struct hdl_aperture *aperture;
};

static void side_open(struct side *side)
{
	struct hdl_open_attr open = {.on_node = true};
	MUST(hdl_open(&open, &side->adapter));
	MUST(hdl_port_open(side->adapter, NULL, &side->port));
	MUST(hdl_eventq_open(side->port, NULL, &side->events));
}

static void side_take(struct side *side)
{
	struct hdl_aperture_attr attr = {.length = hdl_cqueue_length(QUEUE), .port = side->port};
	MUST(hdl_aperture_open(side->adapter, &attr, &side->aperture));
}

static bool is_open(const struct side *side)
{
	return hdl_aperture_state(side->aperture) == HDL_APERTURE_OPEN;
}

static void drain_events(struct side *side)
{
	struct hdl_port_event events[16];
	while (hdl_eventq_take(side->events, events, 16) == 16)
		;
}

/* Stores and reads of every kind, until the other end is gone. */
static void store_about(struct side *side, struct prng *prng)
{
	unsigned char data[512];
	void *map = NULL;
	uint64_t length = 0;
	/* Larger than what the peer offers, or smaller: tracked pages. */
	MUST(hdl_aperture_map(side->aperture, prng_chance(prng, 500) ? BITS : BITS - 2, &map,
	                      &length));
	volatile unsigned char *range = map;
	while (is_open(side)) {
		uint64_t at = prng_below(prng, length / 2);
		switch (prng_below(prng, 6)) {
		case 0:
			(void)hdl_aperture_store(side->aperture, at, data, sizeof(data), 0);
			break;
		case 1:
			(void)hdl_aperture_event(side->aperture, at, data, 8, 0);
			break;
		case 2:
			(void)hdl_aperture_read(side->aperture, at, data, sizeof(data), 300);
			break;
		case 3:
			(void)hdl_aperture_flush(side->aperture, HDL_FLUSH_PLACED, 300);
			break;
		case 4:
			(void)hdl_aperture_check(side->aperture);
			break;
		default:
			range[at] = (unsigned char)(range[at] + 1);
		}
		drain_events(side);
	}
}

/* Bytes both ways. */
static void stream_about(struct side *side, struct prng *prng)
{
	struct hdl_cqueue *queue;
	unsigned char data[4096];
	if (hdl_cqueue_open(side->aperture, QUEUE, side->events, &queue) != 0)
		return; /* the other end has gone meanwhile */
	while (is_open(side)) {
		(void)hdl_cqueue_write(queue, data, prng_below(prng, sizeof(data)) + 1, 1);
		(void)hdl_cqueue_read(queue, data, sizeof(data), 1);
	}
	MUST(hdl_cqueue_close(queue));
}

static void work(struct side *side, uint64_t seed)
{
	struct prng prng;
	prng_seed(&prng, seed);
	if (seed % KINDS == STORES)
		store_about(side, &prng);
	else
		stream_about(side, &prng);
}

/* --- the peers --- */

static void visit(const struct place *place, uint64_t seed)
{
	struct side side = {0};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	side_open(&side);
	side_take(&side);
	/* The agent may be dead. */
	while (hdl_aperture_connect(side.aperture, &place->gid, place->port, 500) != 0)
		usleep(1000);
	work(&side, seed);
	_exit(0);
}

/* --- the keeper --- */

/* Accept a peer, unless it dies before it comes. */
static bool keeper_accepts(struct side *side, int fd)
{
	double dead = 0;
	while (hdl_aperture_accept(side->aperture, side->port, 0, NULL, 5) != 0) {
		struct pollfd news = {.fd = fd, .events = POLLIN};
		if (dead == 0 && poll(&news, 1, 0) > 0)
			dead = now_ms();
		if (dead != 0 && now_ms() - dead > EARLY_MS)
			return false;
	}
	return true;
}

/* Receive a peer, and stay until it is gone. */
static void keeper_round(struct side *side, int fd, uint64_t seed, struct report *report)
{
	char dead;
	side_take(side);
	if (keeper_accepts(side, fd)) {
		work(side, seed);
		report->failed_ms = now_ms();
		report->reason = hdl_aperture_reason(side->aperture);
	}
	MUST(hdl_aperture_close(side->aperture, 0));
	MUST(hdl_aperture_free(side->aperture));
	drain_events(side);
	MUST(read(fd, &dead, 1) == 1 ? 0 : -HDL_EIO);
}

static void keep(int fd)
{
	struct side side = {0};
	struct hdl_limits limits;
	struct place place = {0};
	struct order order;
	struct holdings before = {0};
	side_open(&side);
	/* The first wait gives the queue a descriptor that it keeps. Later ones are by chance. */
	MUST(hdl_eventq_wait(side.events, 0) == -HDL_EAGAIN ? 0 : -HDL_EIO);
	MUST(hdl_adapter_query(side.adapter, &limits));
	place.gid = limits.gid;
	place.port = hdl_port_number(side.port);
	MUST(write(fd, &place, sizeof(place)) == sizeof(place) ? 0 : -HDL_EIO);
	while (read(fd, &order, sizeof(order)) == sizeof(order)) {
		struct report report = {0};
		if (order.what == REMEMBER)
			holdings_take(&before, QUIET_MS);
		else
			keeper_round(&side, fd, order.seed, &report);
		/* The error may be faster than the news of the death, and than a new agent. */
		if (order.what == JUDGE)
			report.grew = !holdings_same(&before, &report.holds, SLACK_MS);
		MUST(write(fd, &report, sizeof(report)) == sizeof(report) ? 0 : -HDL_EIO);
	}
	MUST(hdl_eventq_close(side.events));
	MUST(hdl_port_close(side.port));
	MUST(hdl_close(side.adapter));
	_exit(0);
}

/* Longest life of a peer: as long as it takes on this machine, now, for two of three to come. */
static uint32_t longest_us = SHORTEST_US;

static void longest_adapt(bool came)
{
	longest_us = came ? longest_us / 5 * 4 : longest_us / 2 * 3;
	longest_us = longest_us < SHORTEST_US ? SHORTEST_US : longest_us;
	longest_us = longest_us > LIMIT_MS * 1000 ? LIMIT_MS * 1000 : longest_us;
}

/* How long the keeper took to notice; below 0: it failed. @agent: kill the node agent, too. */
static double aperture_round(struct prng *prng, int keeper, const struct place *place, bool agent,
                             const struct order *order, struct report *report)
{
	if (write(keeper, order, sizeof(*order)) != sizeof(*order))
		return -1;
	pid_t victim = fork();
	if (victim == 0)
		visit(place, order->seed);
	/* The beginning has the most moments that differ. */
	usleep((useconds_t)prng_below(prng, prng_chance(prng, 400) ? longest_us / 8 : longest_us));
	if (agent)
		kill_agent();
	double when = now_ms();
	kill(victim, SIGKILL);
	waitpid(victim, NULL, 0);
	struct pollfd news = {.fd = keeper, .events = POLLIN};
	if (write(keeper, "d", 1) != 1 || poll(&news, 1, 20000) <= 0 ||
	    read(keeper, report, sizeof(*report)) != sizeof(*report))
		return -2;
	longest_adapt(report->failed_ms != 0);
	return report->failed_ms > when ? report->failed_ms - when : 0;
}

/* Rounds until everything has been made that is made once: what each kind of peer needs, and the
 * thread that finds the next agent when one has died. The last peers were introduced by that next
 * one. */
static bool warm_up(struct prng *prng, int keeper, const struct place *place, bool agents)
{
	int met[KINDS] = {0};
	for (int i = 0; i < TRIES && (met[STORES] < WARM || met[STREAM] < WARM); i++) {
		struct report report;
		struct order order = {.seed = 2 * (prng_next(prng) / 2) + (uint64_t)i % KINDS};
		if (aperture_round(prng, keeper, place, agents && i == 0, &order, &report) < 0)
			return false;
		met[i % KINDS] += i > 0 && report.failed_ms != 0;
	}
	struct order order = {.what = REMEMBER};
	struct report report;
	return met[STORES] >= WARM && met[STREAM] >= WARM &&
	       write(keeper, &order, sizeof(order)) == sizeof(order) &&
	       read(keeper, &report, sizeof(report)) == sizeof(report);
}

int main(int argc, char **argv)
{
	struct prng prng;
	const char *local = getenv("HEDDLE_LOCAL");
	bool lanes = local == NULL || strcmp(local, "off") != 0;
	int rounds = argc > 1 ? atoi(argv[1]) : 30, pair[2], met = 0, late = 0, status = 1;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	struct report last = {0};
	struct place place;
	double worst = 0, sum = 0;
	holdings_exact(argv);
	signal(SIGPIPE, SIG_IGN);
	prng_seed(&prng, seed);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return 1;
	pid_t keeper = fork();
	if (keeper == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		keep(pair[1]);
	}
	close(pair[1]);
	if (read(pair[0], &place, sizeof(place)) != sizeof(place))
		return 1;
	if (!warm_up(&prng, pair[0], &place, lanes)) {
		printf("seed %llu: the first peers did not come\n", (unsigned long long)seed);
		return 1;
	}
	for (int i = 0; i < rounds; i++) {
		struct order order = {.seed = prng_next(&prng), .what = JUDGE};
		double took = aperture_round(&prng, pair[0], &place,
		                             lanes && prng_chance(&prng, 100), &order, &last);
		if (took < 0 || took > SLACK_MS) {
			printf("round %d of seed %llu: the keeper %s (%.0f ms, %s)\n", i,
			       (unsigned long long)seed, took < 0 ? "failed" : "noticed too late",
			       took, hdl_aperture_reason_str(last.reason));
			return 1;
		}
		if (last.grew) {
			printf("in round %d of seed %llu\n", i, (unsigned long long)seed);
			return 1;
		}
		late += took > LIMIT_MS;
		met += last.failed_ms != 0;
		worst = took > worst ? took : worst;
		sum += took;
	}
	close(pair[0]);
	waitpid(keeper, &status, 0);
	printf("%d rounds, %d met: noticed after %.1f ms on average, %.1f ms at worst; %d files, "
	       "%d mappings of ours, %ld KiB mapped\n",
	       rounds, met, sum / rounds, worst, last.holds.files, last.holds.shared,
	       last.holds.mapped_kib);
	if (status != 0)
		printf("the keeper ended with status %#x\n", (unsigned)status);
	if (late * 10 > rounds)
		printf("%d of %d rounds took more than a second\n", late, rounds);
	return status != 0 || late * 10 > rounds || met * 4 < rounds || !agent_is_empty(2);
}
