/* The three models of the split driver (PP7) on a link with delay, in virtual time: exact. For each
 * model and direction: one-way trips per frame, messages and bytes on both channels, latency of one
 * frame, and frames per second with all slots in flight. */
#include <stdio.h>

#include "cable/splitnet.h"

#define FRAMES 2000u
#define BYTES  1500u

static struct splitnet net;

static void open_net(enum split_mode mode, enum split_model model, uint64_t delay_ns)
{
	struct split_config config[2];
	for (unsigned i = 0; i < 2; i++) {
		config[i] = splitnet_config(i, mode, model, true, true, 2048);
		config[i].slots = 64;
		config[i].plans[1].elements = 128;
	}
	splitnet_open(&net, 1, config);
	net.depth = 512;
	net.delay_ns[0] = net.delay_ns[1] = 0;
	splitnet_run(&net, 1000);
	net.delay_ns[0] = net.delay_ns[1] = delay_ns;
}

/* Latency of one frame, in nanoseconds. */
static uint64_t latency(struct splitnet_end *from)
{
	uint64_t start = net.now_ns;
	splitnet_send(from, BYTES);
	splitnet_run(&net, net.now_ns + 1000000000ull);
	return from->peer->last_frame_ns - start;
}

/* Frames per virtual second, as fast as there is room. */
static double rate(struct splitnet_end *from)
{
	uint64_t start = net.now_ns, sent = from->sent;
	while (from->sent < sent + FRAMES || net.event_count > 0) {
		while (from->sent < sent + FRAMES && splitnet_send(from, BYTES))
			;
		splitnet_pump(&net);
		if (!splitnet_step(&net))
			break;
	}
	return FRAMES * 1e9 / (double)(from->peer->last_frame_ns - start + 1);
}

static void print_row(const char *name, enum split_mode mode, enum split_model model)
{
	static const uint64_t delays_us[] = {0, 10, 100, 1000};
	for (unsigned i = 0; i < 2; i++) {
		uint64_t at[4];
		for (unsigned d = 0; d < 4; d++) {
			open_net(mode, model, delays_us[d] * 1000);
			at[d] = latency(&net.end[i]);
			splitnet_close(&net);
		}
		open_net(mode, model, 100000);
		const uint64_t *own = net.end[i].split.counters,
		               *peer = net.end[1 - i].split.counters;
		uint64_t messages = own[SPLIT_TX_MESSAGES] + peer[SPLIT_TX_MESSAGES];
		uint64_t bytes = own[SPLIT_TX_MESSAGE_BYTES] + peer[SPLIT_TX_MESSAGE_BYTES];
		double frames = rate(&net.end[i]);
		messages = own[SPLIT_TX_MESSAGES] + peer[SPLIT_TX_MESSAGES] - messages;
		bytes = own[SPLIT_TX_MESSAGE_BYTES] + peer[SPLIT_TX_MESSAGE_BYTES] - bytes;
		printf("%-10s %-8s %5.0f  %8.2f %10.1f   %5.0f %6.0f %7.0f %8.0f   %9.0f\n", name,
		       i == SPLIT_HOST ? "to unit" : "to host", (double)at[3] / 1e6,
		       (double)messages / FRAMES, (double)bytes / FRAMES, (double)at[0] / 1e3,
		       (double)at[1] / 1e3, (double)at[2] / 1e3, (double)at[3] / 1e3, frames);
		splitnet_close(&net);
	}
}

int main(void)
{
	printf("Frames of %u bytes on a link with delay, in virtual time.\n\n", BYTES);
	printf("                           control messages    latency (us) at a one-way delay "
	       "of   frames/s\n");
	printf("model      way      trips   each      bytes   0 us  10 us  100 us  1000 us   at "
	       "100 "
	       "us\n");
	print_row("push-push", SPLIT_RDMA, SPLIT_PUSH_PUSH);
	print_row("push-pull", SPLIT_RDMA, SPLIT_PUSH_PULL);
	print_row("pull-pull", SPLIT_RDMA, SPLIT_PULL_PULL);
	print_row("send", SPLIT_SEND, SPLIT_PUSH_PUSH);
	return 0;
}
