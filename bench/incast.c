/* Many senders and one receiver over a network that loses packets: how much of the receiver's line
 * is left for data, and how evenly it is shared. In the simulator, so the figures are those of the
 * protocol, not of this machine. The reference for each figure is the line itself: 100 %. */
#include "crowd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull

static void row(const struct crowd_config *config)
{
	static const char *const kinds[] = {"write", "send", "read"};
	struct crowd_result r;
	if (!crowd_run(config, &r)) {
		fprintf(stderr, "incast: no memory\n");
		exit(1);
	}
	printf("%-5s %3u  %2" PRIu64
	       " Gb/s %4u %5u KB %4s %3u | %6.1f %%  %5.3f  %5.2f %7.0f KB %6" PRIu64 " %7" PRIu64
	       " %6" PRIu64 " %5" PRIu64 " %4" PRIu64 "\n",
	       kinds[config->kind], config->flows, config->bandwidth_bps / 1000000000, config->mtu,
	       config->buffer_bytes / 1000, config->marks ? "ECN" : "-", config->loss_permille,
	       r.goodput * 100, r.fairness, r.slowest, r.queue / 1000, r.dropped, r.marked,
	       r.retries, r.timeouts, r.failed + r.wrong);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	uint64_t duration_ns = (argc > 1 ? strtoull(argv[1], NULL, 10) : 50) * MS;
	uint32_t only = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
	printf("what flows  line    MTU   buffer  ECN loss | goodput   Jain   least    queue  "
	       "drops   marks  retries  t/o fail\n");
	for (int kind = CROWD_WRITE; kind <= CROWD_READ; kind++) {
		for (uint32_t flows = 1; flows <= 32; flows = flows == 1   ? 2
		                                              : flows == 2 ? 32
		                                                           : 64) {
			for (uint32_t i = 0; i < 16; i++) {
				bool marks = i < 8, wide = i & 1, large = i & 2, deep = i & 4;
				if ((!marks && flows != 32) || (only != 0 && only != flows))
					continue;
				struct crowd_config config = {
				        .seed = 1 + i,
				        .kind = (enum crowd_kind)kind,
				        .flows = flows,
				        .mtu = large ? 4096 : 1024,
				        .message_bytes = 1u << 20,
				        .depth = 2,
				        .bandwidth_bps = wide ? 25000000000ull : 10000000000ull,
				        .round_trip_ns = 10000,
				        .buffer_bytes = deep ? 1000000 : 200000,
				        .mark_bytes = deep ? 200000 : 80000,
				        .marks = marks,
				        .duration_ns = duration_ns};
				row(&config);
			}
		}
	}
	return 0;
}
