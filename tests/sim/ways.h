/* Two hosts with two lines between them: the rig of the scenarios about paths. Host A sends
 * numbered messages to host B, which checks that each of them arrives once, in order and whole. A
 * line can be cut while they do. */
#ifndef SIM_WAYS_H
#define SIM_WAYS_H

#include <stdbool.h>
#include <stdint.h>

enum ways_use { WAYS_FIRST_ONLY, WAYS_MIGRATE, WAYS_STRIPE };
enum ways_kind { WAYS_SEND, WAYS_WRITE, WAYS_READ };

struct ways_config {
	uint64_t seed;
	enum ways_use use;
	enum ways_kind kind;
	uint32_t mtu, message_bytes, depth;
	uint64_t bandwidth_bps; /* of each line */
	uint64_t delay_ns[2];   /* one way */
	uint32_t buffer_bytes;
	uint32_t loss_permille;
	uint64_t duration_ns;
	uint64_t cut_ns[2], mended_ns[2]; /* when each line is cut; 0: never */
	uint64_t from_ns;                 /* goodput is measured from here on */
	uint8_t timeout, retry_cnt;
};

struct ways_result {
	double goodput;    /* bytes a second that arrived */
	uint64_t messages; /* that arrived */
	uint64_t failed; /* requests that did not succeed, messages that were wrong, doubled or out
	                    of order */
	uint64_t migrated;   /* events, at both ends */
	uint64_t longest_ns; /* without a message that arrived */
	uint64_t hash;
};

/* False: there was no memory. */
bool ways_run(const struct ways_config *config, struct ways_result *result);

#endif
