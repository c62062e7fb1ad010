/* What the machine can do at best, from the same run: the time for a cache line to get from one
 * process to another, and the speed of memcpy() and process_vm_writev() for the same sizes. A
 * helper process is the other side. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/perf.h"

#define TURNS     20000u
#define WARM_UP   2000u
#define MIN_TURNS 50u
/* On a busy machine a turn takes milliseconds: stop after this time. */
#define TURNS_NS   500000000u
#define WARM_UP_NS 100000000u /* the part of it that is not counted */
#define OVER       UINT32_MAX /* the turn that ends the helper */
#define FLOOR_NS   20000000u  /* how long to repeat each of the other measurements */
#define MIN_COPIES 8u

/* Memory that both processes map. */
struct table {
	_Alignas(64) _Atomic uint32_t ping;
	_Alignas(64) _Atomic uint32_t pong;
	_Alignas(64) uint8_t *memory; /* in the helper */
	int sock;                     /* in the parent */
};

/* Wait for the next turn after @last. Both processes may have to share a processor for a while. */
static inline uint32_t perf_floor_await(const _Atomic uint32_t *line, uint32_t last)
{
	unsigned looks = 0;
	uint32_t turn;
	while ((turn = atomic_load_explicit(line, memory_order_acquire)) == last)
		if (++looks % (16 * PERF_IDLE) == 0)
			sched_yield();
	return turn;
}

static void help(struct table *table, int sock, uint8_t *memory)
{
	char byte;
	table->memory = memory;
	if (write(sock, "", 1) != 1)
		_exit(1);
	while (read(sock, &byte, 1) == 1)
		for (uint32_t turn = 0; turn != OVER;) {
			turn = perf_floor_await(&table->ping, turn);
			atomic_store_explicit(&table->pong, turn, memory_order_release);
		}
	_exit(0);
}

bool floor_open(struct perf_floor *floor)
{
	int pair[2];
	char byte;
	floor->pid = -1;
	struct table *table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE,
	                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint8_t *memory = mmap(NULL, PERF_MAX_SIZE, PROT_READ | PROT_WRITE,
	                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (table == MAP_FAILED || memory == MAP_FAILED ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return false;
	floor->shared = table;
	floor->pid = fork();
	if (floor->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		help(table, pair[1], memory);
	}
	close(pair[1]);
	munmap(memory, PERF_MAX_SIZE);
	table->sock = pair[0];
	return floor->pid > 0 && read(pair[0], &byte, 1) == 1;
}

void floor_close(struct perf_floor *floor)
{
	struct table *table = floor->shared;
	if (floor->pid <= 0)
		return;
	close(table->sock);
	kill(floor->pid, SIGKILL);
	waitpid(floor->pid, NULL, 0);
	floor->pid = -1;
}

/* There and back, after the turn @last. */
static inline void take_turn(struct table *table, uint32_t turn, uint32_t last)
{
	atomic_store_explicit(&table->ping, turn, memory_order_release);
	perf_floor_await(&table->pong, last);
}

double floor_cache_line(struct perf_floor *floor)
{
	static struct histogram histogram;
	struct table *table = floor->shared;
	uint32_t turn = 0, counted = 0;
	if (floor->pid <= 0)
		return 0;
	atomic_store(&table->ping, 0);
	atomic_store(&table->pong, 0);
	if (write(table->sock, "", 1) != 1)
		return 0;
	histogram_init(&histogram);
	uint64_t begin = perf_now_ns(), start = begin;
	while (counted < TURNS && (counted < MIN_TURNS || start - begin < TURNS_NS)) {
		start = perf_now_ns();
		take_turn(table, turn + 1, turn);
		if (++turn > WARM_UP || start - begin > WARM_UP_NS) {
			histogram_record(&histogram, (perf_now_ns() - start) / 2);
			counted++;
		}
	}
	take_turn(table, OVER, turn);
	return (double)histogram_percentile(&histogram, 50);
}

static bool copy_to_helper(const struct perf_floor *floor, uint8_t *from, size_t bytes)
{
	struct iovec here = {from, bytes}, there = {((struct table *)floor->shared)->memory, bytes};
	return process_vm_writev(floor->pid, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

double floor_process_vm(struct perf_floor *floor, size_t bytes)
{
	uint8_t *from = malloc(bytes);
	double ns = 0;
	bool ok = from != NULL && floor->pid > 0;
	if (ok) {
		memset(from, 1, bytes);
		ok = copy_to_helper(floor, from, bytes); /* so that the pages exist */
	}
	if (ok) {
		uint64_t start = perf_now_ns(), count = 0;
		while (ok && (count < MIN_COPIES || perf_now_ns() - start < FLOOR_NS)) {
			ok = copy_to_helper(floor, from, bytes);
			count++;
		}
		ns = (double)(perf_now_ns() - start) / (double)count;
	}
	free(from);
	return ok ? ns : 0;
}

double floor_memcpy(size_t bytes)
{
	uint8_t *from = malloc(bytes), *to = malloc(bytes);
	double ns = 0;
	if (from != NULL && to != NULL) {
		memset(from, 1, bytes);
		memset(to, 2, bytes);
		uint64_t start = perf_now_ns(), count = 0;
		while (count < MIN_COPIES || perf_now_ns() - start < FLOOR_NS) {
			memcpy(to, from, bytes);
			/* Otherwise the compiler may drop copies that the next turn overwrites. */
			__asm__ volatile("" : : "r"(to) : "memory");
			count++;
		}
		ns = (double)(perf_now_ns() - start) / (double)count;
	}
	free(from);
	free(to);
	return ns;
}
