/* The floors of the same-host path, between two processes: a cache line there and back, and the
 * kernel's copy alone. */
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "figures.h"

#define ROUNDS 15
#define TRIPS  20000u

struct lines {
	_Alignas(64) _Atomic uint32_t there;
	_Alignas(64) _Atomic uint32_t back;
};

/* The other process: echoes the line until it is killed. */
static void echo(struct lines *lines)
{
	figures_pin(1);
	for (uint32_t next = 1;; next++) {
		while (atomic_load_explicit(&lines->there, memory_order_acquire) != next)
			;
		atomic_store_explicit(&lines->back, next, memory_order_release);
	}
}

static void cache_line(struct lines *lines)
{
	double values[ROUNDS];
	uint32_t next = 0;
	for (int r = 0; r < ROUNDS; r++) {
		uint64_t begin = clock_now_ns();
		for (uint32_t i = 0; i < TRIPS; i++) {
			atomic_store_explicit(&lines->there, ++next, memory_order_release);
			while (atomic_load_explicit(&lines->back, memory_order_acquire) != next)
				;
		}
		values[r] = (double)(clock_now_ns() - begin) / TRIPS / 2000;
	}
	figures_report("cache line, one way", values, ROUNDS, "us");
}

static void kernel_copy(pid_t pid, unsigned char *room, size_t bytes, const char *what)
{
	double values[ROUNDS];
	unsigned count = bytes < 1024 ? 20000 : bytes < 131072 ? 2000 : 200;
	struct iovec iov = {room, bytes};
	for (int r = 0; r < ROUNDS; r++) {
		uint64_t begin = clock_now_ns();
		for (unsigned i = 0; i < count; i++)
			if (process_vm_writev(pid, &iov, 1, &iov, 1, 0) != (ssize_t)bytes)
				return;
		double ns = (double)(clock_now_ns() - begin) / count;
		values[r] = bytes < 1024 ? ns / 1000 : (double)bytes / ns;
	}
	figures_report(what, values, ROUNDS, bytes < 1024 ? "us" : "GB/s");
}

int main(void)
{
	struct lines *lines = mmap(NULL, sizeof(*lines), PROT_READ | PROT_WRITE,
	                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned char *room = aligned_alloc(4096, 1 << 20);
	if (lines == MAP_FAILED || room == NULL)
		return 1;
	memset(room, 1, 1 << 20);
	pid_t pid = fork();
	if (pid == 0) {
		memset(room, 2, 1 << 20); /* so that it has pages of its own */
		echo(lines);
	}
	figures_pin(0);
	cache_line(lines);
	kill(pid, SIGSTOP); /* the kernel's copy does not need the process to run */
	kernel_copy(pid, room, 8, "process_vm_writev, 8 bytes");
	kernel_copy(pid, room, 65536, "process_vm_writev, 64 KiB");
	kernel_copy(pid, room, 1 << 20, "process_vm_writev, 1 MiB");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return 0;
}
