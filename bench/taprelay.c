/* A cable between two TAP interfaces in two namespaces: one process that shuttles frames, with a
 * delay and losses on request.
 *
 *   taprelay PID:NAME PID:NAME [DELAY_US [LOSS_PERMILLE [MTU [OFFLOADS]]]]
 *
 * Without a delay it is the floor for anything that carries frames between two interfaces; with one
 * it is the link that the models of the split driver are measured on. With OFFLOADS 0, frames are
 * whole: no segments of 64 KiB. Prints an empty line when it
 * is ready, and the processor time it used when it is told to end. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "base/prng.h"
#include "tap/lan.h"

#define SLOTS 4096u
#define SPIN  30000u /* nanoseconds: a delay that is nearly over is waited for on the processor */

struct relay_frame {
	uint64_t due_ns;
	size_t bytes;
	uint8_t *data;
};

struct relay_way {
	struct lan *from, *to;
	struct relay_frame slots[SLOTS];
	uint32_t head, tail;
};

static volatile sig_atomic_t relay_over;

static void relay_stop(int number)
{
	(void)number;
	relay_over = 1;
}

static bool relay_open(struct lan *lan, const char *text, uint16_t mtu, bool offloads)
{
	char *colon = strchr(text, ':'), name[64];
	if (colon == NULL)
		return false;
	snprintf(name, sizeof(name), "tap%s", colon);
	if (!lan_parse(lan, name))
		return false;
	lan->netns = (pid_t)atoi(text);
	lan->mtu = mtu;
	if (!lan_open(lan)) {
		fprintf(stderr, "taprelay: %s\n", lan->why);
		return false;
	}
	lan->kind->set_offloads(lan, offloads ? lan->kind->offloads : 0);
	return true;
}

static void relay_read(struct relay_way *way, uint64_t delay_ns, uint32_t loss, struct prng *prng)
{
	for (unsigned i = 0; i < 64 && way->tail - way->head < SLOTS; i++) {
		struct relay_frame *frame = &way->slots[way->tail % SLOTS];
		if (frame->data == NULL)
			frame->data = malloc(LAN_MAX_FRAME + 1);
		ssize_t got = lan_read(way->from, frame->data, LAN_MAX_FRAME + 1);
		if (got <= 0)
			return;
		if (loss > 0 && prng_chance(prng, loss))
			continue;
		frame->bytes = (size_t)got;
		frame->due_ns = delay_ns > 0 ? clock_now_ns() + delay_ns : 0;
		way->tail++;
	}
}

/* Write what is due. Returns when the next one is. */
static uint64_t relay_write(struct relay_way *way, uint64_t now)
{
	while (way->head != way->tail) {
		struct relay_frame *frame = &way->slots[way->head % SLOTS];
		if (frame->due_ns > now)
			return frame->due_ns;
		lan_write(way->to, frame->data, frame->bytes);
		way->head++;
	}
	return UINT64_MAX;
}

int main(int argc, char **argv)
{
	static struct lan ends[2];
	static struct relay_way ways[2];
	struct sigaction stop = {.sa_handler = relay_stop};
	uint64_t delay_ns = argc > 3 ? strtoull(argv[3], NULL, 10) * 1000 : 0;
	uint32_t loss = argc > 4 ? (uint32_t)atoi(argv[4]) : 0;
	uint16_t mtu = argc > 5 ? (uint16_t)atoi(argv[5]) : 1500;
	bool offloads = argc <= 6 || atoi(argv[6]) != 0;
	struct prng prng;
	if (argc < 3 || !relay_open(&ends[0], argv[1], mtu, offloads) ||
	    !relay_open(&ends[1], argv[2], mtu, offloads)) {
		fprintf(stderr, "usage: taprelay PID:NAME PID:NAME [DELAY_US [LOSS_PERMILLE [MTU "
		                "[OFFLOADS]]]]\n");
		return 64;
	}
	prng_seed(&prng, 1);
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	for (unsigned i = 0; i < 2; i++) {
		ways[i].from = &ends[i];
		ways[i].to = &ends[1 - i];
	}
	puts("");
	fflush(stdout);
	while (!relay_over) {
		uint64_t next = UINT64_MAX, now = clock_now_ns();
		for (unsigned i = 0; i < 2; i++) {
			uint64_t due = relay_write(&ways[i], now);
			next = due < next ? due : next;
		}
		struct pollfd fds[2] = {{ends[0].fd, POLLIN, 0}, {ends[1].fd, POLLIN, 0}};
		uint64_t left = next == UINT64_MAX ? 1000000000ull : next > now ? next - now : 0;
		struct timespec wait = {0};
		if (left > SPIN) {
			left = next == UINT64_MAX ? left : left - SPIN;
			wait = (struct timespec){(time_t)(left / 1000000000),
			                         (long)(left % 1000000000)};
		}
		if (ppoll(fds, 2, &wait, NULL) <= 0)
			continue;
		for (unsigned i = 0; i < 2; i++) {
			relay_read(&ways[i], delay_ns, loss, &prng);
			if (delay_ns == 0)
				relay_write(&ways[i], UINT64_MAX - 1);
		}
	}
	struct rusage used;
	getrusage(RUSAGE_SELF, &used);
	printf("%.3f\n", (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	                         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
	for (unsigned i = 0; i < 2; i++) {
		ends[i].kind->forget(&ends[i]);
		lan_close(&ends[i]);
	}
	return 0;
}
