/* Many hosts and one, on one line: the rig of the scenarios that measure how connections share a
 * network. Each sender has a connection to the receiver, host 0, and keeps long messages going;
 * whoever sends, the data goes into the receiver's ingress (simnet.h). Also used by
 * bench/incast.c. */
#ifndef SIM_CROWD_H
#define SIM_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#define CROWD_MAX_FLOWS 63u

enum crowd_kind { CROWD_WRITE, CROWD_SEND, CROWD_READ };

struct crowd_config {
	uint64_t seed;
	enum crowd_kind kind; /* CROWD_READ: the receiver reads from each of the others */
	uint32_t flows;
	uint32_t mtu;
	uint32_t message_bytes;
	uint32_t depth; /* messages a flow keeps posted */
	uint64_t bandwidth_bps;
	uint64_t round_trip_ns; /* without queueing */
	uint32_t buffer_bytes, mark_bytes;
	bool marks;             /* ECN; else there is loss only */
	uint32_t loss_permille; /* besides what the buffer drops */
	uint64_t duration_ns;
	uint64_t late_ns; /* the flows begin one after another, so far apart */
	uint64_t from_ns; /* what is before is not measured */
};

struct crowd_result {
	double goodput;   /* of what the line can carry as payload */
	double fairness;  /* Jain's index over the flows' bytes: 1 is equal */
	double slowest;   /* the share of the slowest flow, 1 being an equal one */
	double queue;     /* what waited on average in the ingress, bytes */
	uint64_t dropped; /* packets, by the ingress */
	uint64_t marked;
	uint64_t retries, timeouts; /* of all requesters */
	uint64_t failed;            /* requests that did not succeed */
	uint64_t wrong;             /* messages whose bytes were not what was sent */
	uint64_t hash;
};

/* False: there was no memory. */
bool crowd_run(const struct crowd_config *config, struct crowd_result *result);

#endif
