/* IBC between two clients of one node, each polling on a processor of its own: one way of a packet
 * with 8 bytes of payload, beside a bare cache line (the floor) and a datagram through a Unix
 * socket; then packets per second one way, beside the same socket. Floor, IBC and sockets take
 * turns, so that all see the same noise. */
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "figures.h"
#include "heddle/ibc.h"

#define TURNS   9u
#define TRIPS   20000u
#define STREAM  200000u
#define WINDOW  128u
#define PAYLOAD 8u

enum { HERE = 40, THERE = 41 };

/* What the two processes share. */
static struct shared {
	_Alignas(64) _Atomic uint32_t there;
	_Alignas(64) _Atomic uint32_t back;
	_Alignas(64) _Atomic bool ready;
	_Alignas(64) _Atomic int mode; /* what the other process does now */
	_Alignas(64) _Atomic uint64_t received;
} * shared;

enum { IDLE, ECHO_LINE, ECHO_IBC, COUNT_IBC, ECHO_SOCKET, COUNT_SOCKET };

static int sockets[2];
static IBC_HANDLE handle;

static void must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void send_one(unsigned to)
{
	static const char payload[PAYLOAD] = "payload";
	must(IBC_Send(IBC_WRITE_REQUEST_NO_ACK, NULL, 0, to, payload, PAYLOAD, NULL,
	              IBC_PORT_ROUTE) == 0,
	     "IBC_Send");
}

static int receive_one(void)
{
	static const struct timespec now = {0, 0};
	char room[IBC_LIMIT_PAYLOAD];
	return IBC_RecvWait(handle, &now, room, NULL, NULL, NULL) == IBC_RECVDONE;
}

/* --- the other process --- */

static void other(void)
{
	char room[64];
	uint32_t line = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	figures_pin(1);
	must(IBC_Init(THERE, NULL, NULL, NULL) == 0 && IBC_RecvPost(&handle) == 0, "IBC_Init");
	shared->ready = true;
	for (;;) {
		switch (atomic_load_explicit(&shared->mode, memory_order_relaxed)) {
		case ECHO_LINE:
			if (atomic_load_explicit(&shared->there, memory_order_acquire) != line) {
				line = shared->there;
				atomic_store_explicit(&shared->back, line, memory_order_release);
			}
			break;
		case ECHO_IBC:
			if (receive_one())
				send_one(HERE);
			break;
		case COUNT_IBC:
			if (receive_one())
				atomic_fetch_add_explicit(&shared->received, 1,
				                          memory_order_relaxed);
			break;
		case ECHO_SOCKET:
			if (recv(sockets[1], room, sizeof(room), MSG_DONTWAIT) > 0)
				must(send(sockets[1], room, PAYLOAD, 0) > 0, "send");
			break;
		case COUNT_SOCKET:
			if (recv(sockets[1], room, sizeof(room), MSG_DONTWAIT) > 0)
				atomic_fetch_add_explicit(&shared->received, 1,
				                          memory_order_relaxed);
			break;
		default:
			usleep(100);
		}
	}
}

/* --- this one --- */

static double line_trip(void)
{
	uint32_t next = shared->back;
	shared->mode = ECHO_LINE;
	uint64_t begin = clock_now_ns();
	for (unsigned i = 0; i < TRIPS; i++) {
		atomic_store_explicit(&shared->there, ++next, memory_order_release);
		while (atomic_load_explicit(&shared->back, memory_order_acquire) != next)
			;
	}
	return (double)(clock_now_ns() - begin) / TRIPS / 2;
}

static double ibc_trip(void)
{
	shared->mode = ECHO_IBC;
	uint64_t begin = clock_now_ns();
	for (unsigned i = 0; i < TRIPS; i++) {
		send_one(THERE);
		while (!receive_one())
			;
	}
	return (double)(clock_now_ns() - begin) / TRIPS / 2;
}

static double socket_trip(void)
{
	char room[64];
	shared->mode = ECHO_SOCKET;
	uint64_t begin = clock_now_ns();
	for (unsigned i = 0; i < TRIPS; i++) {
		must(send(sockets[0], "payload", PAYLOAD, 0) > 0, "send");
		while (recv(sockets[0], room, sizeof(room), MSG_DONTWAIT) < 0)
			;
	}
	return (double)(clock_now_ns() - begin) / TRIPS / 2;
}

/* Keep at most WINDOW in flight, so that nobody waits for room. */
static double stream(int mode)
{
	shared->received = 0;
	shared->mode = mode;
	uint64_t begin = clock_now_ns();
	for (uint64_t i = 0; i < STREAM; i++) {
		while (i - atomic_load_explicit(&shared->received, memory_order_relaxed) >= WINDOW)
			;
		if (mode == COUNT_IBC)
			send_one(THERE);
		else
			must(send(sockets[0], "payload", PAYLOAD, 0) > 0, "send");
	}
	while (shared->received < STREAM)
		;
	return (double)STREAM * 1e3 / (double)(clock_now_ns() - begin);
}

int main(void)
{
	double line[TURNS], ibc[TURNS], unix_socket[TURNS], rate[TURNS], unix_rate[TURNS];
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	must(shared != MAP_FAILED, "mmap");
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0, "socketpair");
	pid_t pid = fork();
	if (pid == 0)
		other();
	figures_pin(0);
	must(IBC_Init(HERE, NULL, NULL, NULL) == 0 && IBC_RecvPost(&handle) == 0, "IBC_Init");
	while (!shared->ready)
		usleep(1000);
	for (unsigned i = 0; i < TURNS; i++) {
		line[i] = line_trip();
		ibc[i] = ibc_trip();
		unix_socket[i] = socket_trip();
		rate[i] = stream(COUNT_IBC);
		unix_rate[i] = stream(COUNT_SOCKET);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	figures_report("cache line, one way (the floor)", line, TURNS, "ns");
	figures_report("IBC packet between clients, one way", ibc, TURNS, "ns");
	figures_report("Unix datagram, one way", unix_socket, TURNS, "ns");
	figures_report("IBC packets, one way", rate, TURNS, "M/s");
	figures_report("Unix datagrams, one way", unix_rate, TURNS, "M/s");
	return IBC_Finish();
}
