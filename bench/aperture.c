/* Apertures between two processes, through the public calls, beside their floors and peers, from
 * one run:
 *
 *   a mapped store           one way, beside a bare cache line
 *   store and flush on UDP   until it is in place, beside a datagram there and one back
 *   a circular queue         8-byte records per second, beside UCX, a pipe and a Unix socket
 *   set-up                   connect and close per second, beside TCP connect, accept and close
 *   lookup                   of the outgoing table, from 2^10 to 2^20 entries, beside plain loads
 *                            and cache misses
 *
 * What a fault of a tracked page and a wake-up cost is in cqueue.c. Prints figures, never fails a
 * build.
 *
 *   bench-aperture [DIVISOR]     of everything only a DIVISOR-th, to see whether it works */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/aperture.h>
#include <heddle/cqueue.h>

#include "base/clock.h"
#include "figures.h"
#include "memory/outgoing.h"
#include "must.h"

#define TURNS   7
#define TRIPS   (100000u / divisor)
#define FLUSHES (5000u / divisor)
#define RECORDS (3000000u / divisor)
#define SLOW    (300000u / divisor)
#define SETUPS  (2000u / divisor)
#define OFFERS  32u
#define QUEUE   65536u
#define WAIT    20000
#define LOOKS   (2000000u / divisor)

static size_t processors[2];
static uint32_t divisor = 1;

/* What the two processes share besides apertures. */
static struct common {
	struct hdl_gid gid;
	uint16_t port;
	_Atomic uint32_t ready, stop;
	_Alignas(64) _Atomic uint64_t ping;
	_Alignas(64) _Atomic uint64_t pong;
} * common;

struct side {
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	struct hdl_eventq *events;
	struct hdl_aperture *aperture;
	_Atomic uint64_t *in, *out;
};

/* --- two ends --- */

static void side_open(struct side *side)
{
	struct hdl_open_attr open = {.on_node = true};
	must(hdl_open(&open, &side->adapter), "hdl_open");
	must(hdl_port_open(side->adapter, NULL, &side->port), "hdl_port_open");
	must(hdl_eventq_open(side->port, NULL, &side->events), "hdl_eventq_open");
	struct hdl_aperture_attr attr = {.length = hdl_cqueue_length(QUEUE), .port = side->port};
	must(hdl_aperture_open(side->adapter, &attr, &side->aperture), "hdl_aperture_open");
	side->in = hdl_aperture_memory(side->aperture, NULL);
}

/* The child says where it is, and accepts. */
static void side_meet(struct side *side, bool child)
{
	if (child) {
		struct hdl_limits limits;
		must(hdl_adapter_query(side->adapter, &limits), "hdl_adapter_query");
		common->gid = limits.gid;
		common->port = hdl_port_number(side->port);
		atomic_store(&common->ready, 1);
		must(hdl_aperture_accept(side->aperture, side->port, 0, NULL, WAIT), "accept");
		return;
	}
	while (atomic_load(&common->ready) == 0)
		usleep(1000);
	must(hdl_aperture_connect(side->aperture, &common->gid, common->port, WAIT), "connect");
}

static void side_map(struct side *side)
{
	void *map;
	must(hdl_aperture_map(side->aperture, 17, &map, NULL), "hdl_aperture_map");
	side->out = map;
}

/* Start the other process; true: this is it. */
static bool split(pid_t *child)
{
	memset(common, 0, sizeof(*common));
	fflush(stdout);
	*child = fork();
	figures_pin(processors[*child == 0]);
	return *child == 0;
}

/* --- a mapped store --- */

static void answer(_Atomic uint64_t *in, _Atomic uint64_t *out)
{
	for (uint64_t i = 1; i <= TRIPS; i++) {
		uint32_t spins = 0;
		while (atomic_load_explicit(in, memory_order_acquire) != i)
			figures_spin(&spins);
		atomic_store_explicit(out, i, memory_order_release);
	}
}

/* One way, in nanoseconds. */
static double ask(_Atomic uint64_t *in, _Atomic uint64_t *out)
{
	uint64_t begin = 0;
	for (uint64_t i = 1; i <= TRIPS; i++) {
		if (i == TRIPS / 10)
			begin = clock_now_ns();
		atomic_store_explicit(out, i, memory_order_release);
		uint32_t spins = 0;
		while (atomic_load_explicit(in, memory_order_acquire) != i)
			figures_spin(&spins);
	}
	return (double)(clock_now_ns() - begin) / (TRIPS - TRIPS / 10.0) / 2;
}

static void bench_store(void)
{
	struct side side = {0};
	double bare[TURNS], mapped[TURNS];
	pid_t child;
	bool is_child = split(&child);
	side_open(&side);
	side_meet(&side, is_child);
	side_map(&side);
	for (int i = 0; i < TURNS; i++) {
		/* In turns, each from zero again: both have left the turn before. */
		uint32_t turn = (uint32_t)i * 2 + 2;
		atomic_store(side.in, 0);
		atomic_store(is_child ? &common->ping : &common->pong, 0);
		atomic_fetch_add(&common->stop, 1);
		uint32_t spins = 0;
		while (atomic_load(&common->stop) < turn)
			figures_spin(&spins);
		if (is_child) {
			answer(&common->ping, &common->pong);
			answer(side.in, side.out);
		} else {
			bare[i] = ask(&common->pong, &common->ping);
			mapped[i] = ask(side.in, side.out);
		}
	}
	if (is_child)
		_exit(0);
	figures_report("floor: a cache line, one way", bare, TURNS, "ns");
	figures_report("a store to a mapped aperture, one way", mapped, TURNS, "ns");
	waitpid(child, NULL, 0);
}

/* --- store and flush over UDP --- */

static int udp_socket(uint16_t *port)
{
	struct sockaddr_in name = {.sin_family = AF_INET,
	                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(name);
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	if (sock < 0 || bind(sock, (struct sockaddr *)&name, length) != 0 ||
	    getsockname(sock, (struct sockaddr *)&name, &length) != 0)
		exit(1);
	*port = name.sin_port;
	return sock;
}

static void echo_datagrams(int sock, uint16_t to)
{
	struct sockaddr_in name = {
	        .sin_family = AF_INET, .sin_port = to, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char data[64];
	uint32_t spins = 0;
	for (uint32_t i = 0; i < FLUSHES; figures_spin(&spins)) {
		ssize_t got = recv(sock, data, sizeof(data), 0);
		if (got > 0 && sendto(sock, data, (size_t)got, 0, (struct sockaddr *)&name,
		                      sizeof(name)) == got)
			i++;
	}
}

/* There and back, in microseconds. */
static double datagram_trips(int sock, uint16_t to)
{
	struct sockaddr_in name = {
	        .sin_family = AF_INET, .sin_port = to, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char data[40] = "", in[64]; /* as long as a CI packet with 8 bytes */
	uint64_t begin = clock_now_ns();
	for (uint32_t i = 0; i < FLUSHES; i++) {
		if (sendto(sock, data, sizeof(data), 0, (struct sockaddr *)&name, sizeof(name)) < 0)
			exit(1);
		uint32_t spins = 0;
		while (recv(sock, in, sizeof(in), 0) < 0)
			figures_spin(&spins);
	}
	return (double)(clock_now_ns() - begin) / FLUSHES / 1000;
}

static double flush_trips(struct side *side)
{
	uint64_t begin = clock_now_ns();
	for (uint64_t i = 0; i < FLUSHES; i++) {
		must(hdl_aperture_store(side->aperture, 0, &i, 8, WAIT), "hdl_aperture_store");
		must(hdl_aperture_flush(side->aperture, HDL_FLUSH_PLACED, WAIT),
		     "hdl_aperture_flush");
	}
	return (double)(clock_now_ns() - begin) / FLUSHES / 1000;
}

static void bench_flush(void)
{
	struct side side = {0};
	double raw[TURNS], flush[TURNS];
	uint16_t ports[2];
	int socks[2] = {udp_socket(&ports[0]), udp_socket(&ports[1])};
	pid_t child;
	setenv("HEDDLE_LOCAL", "off", 1);
	bool is_child = split(&child);
	side_open(&side);
	side_meet(&side, is_child);
	for (uint32_t i = 0; i < TURNS; i++)
		if (is_child) {
			echo_datagrams(socks[1], ports[0]);
			while (atomic_load(&common->stop) <= i)
				(void)hdl_progress(side.adapter);
		} else {
			raw[i] = datagram_trips(socks[0], ports[1]);
			flush[i] = flush_trips(&side);
			atomic_store(&common->stop, i + 1);
		}
	if (is_child)
		_exit(0);
	figures_report("floor: a UDP datagram there and back", raw, TURNS, "us");
	figures_report("store and flush over UDP, in place", flush, TURNS, "us");
	waitpid(child, NULL, 0);
	unsetenv("HEDDLE_LOCAL");
	close(socks[0]);
	close(socks[1]);
}

/* --- a circular queue --- */

static double kernel_rate(bool unix_socket)
{
	int ends[2];
	if ((unix_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) != 0)
		exit(1);
	pid_t child = fork();
	if (child == 0) {
		figures_pin(processors[1]);
		char data[4096];
		uint64_t got = 0;
		while (got < SLOW * 8ull) {
			ssize_t bytes = read(ends[0], data, sizeof(data));
			got += bytes > 0 ? (uint64_t)bytes : 0;
		}
		_exit(0);
	}
	uint64_t begin = clock_now_ns();
	for (uint64_t i = 0; i < SLOW; i++)
		if (write(ends[1], &i, 8) != 8)
			exit(1);
	waitpid(child, NULL, 0);
	double rate = SLOW * 1000.0 / (double)(clock_now_ns() - begin);
	close(ends[0]);
	close(ends[1]);
	return rate;
}

static bool has_program(const char *name)
{
	char command[128];
	snprintf(command, sizeof(command), "command -v %s >/dev/null", name);
	return system(command) == 0;
}

/* UCX on shared memory, messages of 8 bytes; 0: it printed no figure. Its two ends would inherit
 * our one processor, and each would wait for the other to give it up. */
static double ucx_rate(int turn)
{
	char command[512], line[512];
	double rate = 0;
	snprintf(command, sizeof(command),
	         "export UCX_TLS=posix,cma,self UCX_LOG_LEVEL=error; "
	         "timeout 60 taskset -c %zu ucx_perftest -p %d >/dev/null 2>&1 & sleep 1; "
	         "timeout 60 taskset -c %zu ucx_perftest 127.0.0.1 -p %d -t tag_bw -s 8 -n %u -f "
	         "2>&1; wait",
	         processors[1], 23000 + turn, processors[0], 23000 + turn, 1000000u / divisor);
	FILE *out = popen(command, "r");
	while (out != NULL && fgets(line, sizeof(line), out) != NULL) {
		double iterations, overhead, latency, all, bw, mean_bw, messages, mean;
		char *at = strrchr(line, ']');
		if (sscanf(at != NULL ? at + 1 : line, "%lf %lf %lf %lf %lf %lf %lf %lf",
		           &iterations, &overhead, &latency, &all, &bw, &mean_bw, &messages,
		           &mean) == 8)
			rate = mean / 1e6;
	}
	if (out != NULL)
		pclose(out);
	return rate;
}

static void read_records(struct hdl_cqueue *queue)
{
	static uint64_t data[512];
	uint32_t spins = 0;
	for (uint64_t got = 0; got < RECORDS * 8ull; figures_spin(&spins)) {
		int64_t bytes = hdl_cqueue_read(queue, data, sizeof(data), 0);
		got += bytes > 0 ? (uint64_t)bytes : 0;
	}
}

static double write_records(struct hdl_cqueue *queue)
{
	uint64_t begin = clock_now_ns();
	uint32_t spins = 0;
	for (uint64_t i = 0; i < RECORDS; i++)
		while (hdl_cqueue_write(queue, &i, 8, 0) != 8)
			figures_spin(&spins);
	while (atomic_load(&common->ping) == 0)
		figures_spin(&spins);
	return RECORDS * 1000.0 / (double)(clock_now_ns() - begin);
}

static void bench_queue(void)
{
	struct side side = {0};
	struct hdl_cqueue *queue;
	double ring[TURNS], pipes[TURNS], sockets[TURNS], ucx[TURNS];
	pid_t child;
	bool is_child = split(&child), has_ucx = has_program("ucx_perftest"), says_ucx = has_ucx;
	side_open(&side);
	side_meet(&side, is_child);
	must(hdl_cqueue_open(side.aperture, QUEUE, side.events, &queue), "hdl_cqueue_open");
	for (int i = 0; i < TURNS; i++)
		if (is_child) {
			read_records(queue);
			atomic_store(&common->ping, 1);
			while (atomic_load(&common->ping) != 0)
				usleep(1000); /* the peers have their turn */
		} else {
			ring[i] = write_records(queue);
			pipes[i] = kernel_rate(false);
			sockets[i] = kernel_rate(true);
			ucx[i] = says_ucx ? ucx_rate(i) : 0;
			says_ucx = ucx[i] > 0;
			atomic_store(&common->ping, 0);
		}
	if (is_child)
		_exit(0);
	figures_report("circular queue, records of 8 bytes", ring, TURNS, "M/s");
	if (says_ucx)
		figures_report("UCX shared memory, tag_bw, 8 bytes", ucx, TURNS, "M/s");
	else
		printf("UCX: ucx_perftest %s\n",
		       has_ucx ? "printed no figure, or took longer than a minute" : "is not here");
	figures_report("pipe, 8 bytes", pipes, TURNS, "M/s");
	figures_report("Unix socket, 8 bytes", sockets, TURNS, "M/s");
	waitpid(child, NULL, 0);
}

/* --- set-up --- */

/* Offer apertures again as soon as they are closed. */
static void offer_always(struct side *side)
{
	static unsigned char memory[OFFERS][4096];
	struct hdl_aperture *offers[OFFERS];
	struct hdl_port_rule rule = {.action = HDL_RULE_ACCEPT};
	must(hdl_port_rules(side->port, &rule, 1), "hdl_port_rules");
	for (uint32_t i = 0; i < OFFERS; i++) {
		struct hdl_aperture_attr attr = {.memory = memory[i], .length = sizeof(memory[i])};
		must(hdl_aperture_open(side->adapter, &attr, &offers[i]), "hdl_aperture_open");
		must(hdl_port_offer(side->port, offers[i], NULL), "hdl_port_offer");
	}
	struct hdl_limits limits;
	must(hdl_adapter_query(side->adapter, &limits), "hdl_adapter_query");
	common->gid = limits.gid;
	common->port = hdl_port_number(side->port);
	atomic_store(&common->ready, 1);
	for (uint32_t i = 0; atomic_load(&common->stop) == 0; i = (i + 1) % OFFERS) {
		(void)hdl_progress(side->adapter);
		if (hdl_aperture_state(offers[i]) == HDL_APERTURE_CLOSED)
			must(hdl_port_offer(side->port, offers[i], NULL), "hdl_port_offer");
	}
}

/* *refused: how often no aperture was offered at the moment. Only that counts, and it takes time
 * like everything else; any other refusal would be measured as a connection. */
static double setup_rate(struct side *side, uint64_t *refused)
{
	uint64_t begin = clock_now_ns();
	for (uint32_t i = 0; i < SETUPS;) {
		int result = hdl_aperture_connect(side->aperture, &common->gid, common->port, WAIT);
		if (result == -HDL_ECONNREFUSED &&
		    hdl_aperture_reason(side->aperture) == HDL_REASON_BUSY) {
			++*refused;
			continue;
		}
		must(result, "hdl_aperture_connect");
		must(hdl_aperture_close(side->aperture, 0), "hdl_aperture_close");
		i++;
	}
	return SETUPS * 1e6 / (double)(clock_now_ns() - begin);
}

static void accept_always(int listener)
{
	for (uint32_t i = 0; i < TURNS * SETUPS; i++) {
		int sock = accept(listener, NULL, NULL);
		if (sock >= 0)
			close(sock);
	}
	_exit(0);
}

static double tcp_rate(const struct sockaddr_in *name)
{
	/* No TIME-WAIT: the ports would run out. */
	struct linger linger = {.l_onoff = 1};
	uint64_t begin = clock_now_ns();
	for (uint32_t i = 0; i < SETUPS; i++) {
		int sock = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(sock, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
		if (connect(sock, (const struct sockaddr *)name, sizeof(*name)) != 0)
			exit(1);
		close(sock);
	}
	return SETUPS * 1e6 / (double)(clock_now_ns() - begin);
}

static void bench_setup(void)
{
	struct sockaddr_in name = {.sin_family = AF_INET,
	                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(name);
	struct side side = {0};
	double ours[TURNS], tcp[TURNS];
	uint64_t refused = 0;
	static unsigned char memory[4096];
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	pid_t child, accepts;
	if (listener < 0 || bind(listener, (struct sockaddr *)&name, length) != 0 ||
	    listen(listener, 128) != 0 ||
	    getsockname(listener, (struct sockaddr *)&name, &length) != 0)
		exit(1);
	if (split(&child)) {
		side_open(&side);
		offer_always(&side);
		_exit(0);
	}
	accepts = fork();
	if (accepts == 0) {
		figures_pin(processors[1]);
		accept_always(listener);
	}
	struct hdl_open_attr open = {.on_node = true};
	struct hdl_aperture_attr attr = {.memory = memory, .length = sizeof(memory)};
	must(hdl_open(&open, &side.adapter), "hdl_open");
	must(hdl_aperture_open(side.adapter, &attr, &side.aperture), "hdl_aperture_open");
	while (atomic_load(&common->ready) == 0)
		usleep(1000);
	(void)setup_rate(&side, &refused); /* they are introduced */
	refused = 0;
	for (int i = 0; i < TURNS; i++) {
		kill(child, SIGCONT);
		ours[i] = setup_rate(&side, &refused);
		kill(child, SIGSTOP); /* it polls, and TCP wants its processor */
		tcp[i] = tcp_rate(&name);
	}
	kill(child, SIGKILL);
	figures_report("apertures, connect and close", ours, TURNS, "k/s");
	printf("refused, because nothing was offered at the moment: %.1f of 100\n",
	       100.0 * (double)refused / (double)(refused + TURNS * SETUPS));
	figures_report("TCP, connect, accept and close", tcp, TURNS, "k/s");
	waitpid(child, NULL, 0);
	waitpid(accepts, NULL, 0);
	close(listener);
}

/* --- lookup --- */

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Nanoseconds per lookup among @among of the entries; the address of one depends on the answer of
 * the one before, so that lookups do not overlap. */
static double look_up(struct outgoing_table *table, uint64_t first, uint32_t among)
{
	uint64_t offset = 0, state = 88172645463325252ull, sum = 0;
	uint64_t begin = clock_now_ns();
	for (uint32_t i = 0; i < LOOKS; i++) {
		uint64_t at = (next_random(&state) + sum) % among;
		const struct outgoing *entry =
		        outgoing_find(table, first + (at << 10) + (i & 1023), &offset);
		sum = entry != NULL ? entry->bits & 1u : 1; /* 0 */
	}
	return (double)(clock_now_ns() - begin) / LOOKS;
}

/* The same with a plain load instead of the lookup. */
static double load_plain(const uint64_t *words, uint32_t among)
{
	uint64_t state = 88172645463325252ull, sum = 0;
	uint64_t begin = clock_now_ns();
	for (uint32_t i = 0; i < LOOKS; i++) {
		uint64_t at = (next_random(&state) + sum) % among;
		sum = *(const volatile uint64_t *)&words[at * 8] & 1u; /* 0; one line for each */
	}
	return (double)(clock_now_ns() - begin) / LOOKS;
}

static void bench_lookup(void)
{
	const uint32_t most = 1u << 20, hot = 64;
	struct outgoing_config config = {
	        .origin = 1ull << 44, .part_bits = 36, .groups = {{.bits = 10, .count = most}}};
	uint64_t *words = calloc(most, 64);
	struct outgoing_table *table = aligned_alloc(64, sizeof(*table));
	void *store = mmap(NULL, outgoing_bytes(&config), PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (words == NULL || table == NULL || store == MAP_FAILED)
		return;
	for (size_t i = 0; i < (size_t)most * 8; i += 8)
		words[i] = 2; /* touched */
	outgoing_init(table, &config, store);
	uint32_t made = 0;
	for (uint32_t count = 1u << 10; count <= most; count <<= 5) {
		double hit[TURNS], miss[TURNS], load[TURNS], cold[TURNS];
		char what[64];
		for (; made < count; made++)
			(void)outgoing_take(table, 10, 0, 10); /* one beside the other */
		for (int i = 0; i < TURNS; i++) {
			load[i] = load_plain(words, hot);
			hit[i] = look_up(table, config.origin, hot);
			cold[i] = load_plain(words, count);
			miss[i] = look_up(table, config.origin, count);
		}
		snprintf(what, sizeof(what), "floor: a plain load, of %u lines", hot);
		figures_report(what, load, TURNS, "ns");
		snprintf(what, sizeof(what), "lookup that hits, %u entries", count);
		figures_report(what, hit, TURNS, "ns");
		snprintf(what, sizeof(what), "floor: a plain load, of %u lines", count);
		figures_report(what, cold, TURNS, "ns");
		snprintf(what, sizeof(what), "lookup of any of %u entries", count);
		figures_report(what, miss, TURNS, "ns");
	}
	munmap(store, outgoing_bytes(&config));
	free(table);
	free(words);
}

int main(int argc, char **argv)
{
	char folder[] = "/tmp/heddle-bench-XXXXXX";
	if (argc > 1 && atoi(argv[1]) > 0 && atoi(argv[1]) <= 1000)
		divisor = (uint32_t)atoi(argv[1]);
	if (!figures_two_processors(processors)) {
		printf("skipped: needs two processors\n");
		return 0;
	}
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	if (common == MAP_FAILED || mkdtemp(folder) == NULL) {
		perror("bench-aperture");
		return 1;
	}
	setenv("HEDDLE_DIR", folder,
	       1); /* an agent of its own, which leaves and takes its files along */
	signal(SIGPIPE, SIG_IGN);
	pid_t child;
	/* Each in a process of its own, so that adapters do not add up. */
	void (*const benches[])(void) = {bench_store, bench_flush, bench_queue, bench_setup,
	                                 bench_lookup};
	for (size_t i = 0; i < sizeof(benches) / sizeof(benches[0]); i++) {
		child = fork();
		if (child == 0) {
			benches[i]();
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
	for (int i = 0; i < 100 && rmdir(folder) != 0; i++)
		usleep(100000);
	return 0;
}
