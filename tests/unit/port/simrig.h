/* A small network for tests: hosts that remember what came, in order. */
#ifndef UNIT_PORT_SIMRIG_H
#define UNIT_PORT_SIMRIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "port/simnet.h"

#include <string.h>

#define RIG_HOSTS        4u
#define RIG_EVENTS       16u
#define RIG_PACKETS      64u
#define RIG_PACKET_BYTES 1000u
#define RIG_MAX_SEEN     32768u
#define RIG_MAX_RUN      1000000u

struct seen {
	uint64_t time_ns;
	uint32_t host, from;
	uint32_t bytes;
	uint32_t tag; /* the first four bytes, or 0 */
};

struct rig {
	struct sim *sim;
	struct seen seen[RIG_MAX_SEEN];
	uint32_t seen_count;
	uint32_t deaths;
};

static inline void rig_saw(struct rig *rig, uint32_t host, uint32_t from, size_t bytes,
                           uint32_t tag)
{
	assert_true(rig->seen_count < RIG_MAX_SEEN);
	rig->seen[rig->seen_count++] =
	        (struct seen){sim_now_ns(rig->sim), host, from, (uint32_t)bytes, tag};
}

static inline void rig_receive(void *context, struct sim *sim, uint32_t host, uint32_t from,
                               const void *packet, size_t bytes)
{
	uint32_t tag = 0;

	(void)sim;
	if (bytes >= sizeof(tag))
		memcpy(&tag, packet, sizeof(tag));
	rig_saw(context, host, from, bytes, tag);
}

static inline void rig_died(void *context, struct sim *sim, uint32_t host)
{
	(void)sim;
	(void)host;
	((struct rig *)context)->deaths++;
}

/* A call that is remembered like a packet of host SIM_NO_HOST, with its argument as tag. */
static inline void rig_call(struct sim *sim, void *context, uint64_t arg)
{
	(void)sim;
	rig_saw(context, SIM_NO_HOST, SIM_NO_HOST, 0, (uint32_t)arg);
}

static inline void rig_open(struct rig *rig, uint64_t seed)
{
	struct sim_config config = {seed, RIG_HOSTS, RIG_EVENTS, RIG_PACKETS, RIG_PACKET_BYTES};
	struct sim_host_ops ops = {rig_receive, rig_died};

	memset(rig, 0, sizeof(*rig));
	assert_int_equal(sim_create(&config, &rig->sim), 0);
	for (uint32_t host = 0; host < RIG_HOSTS; host++)
		sim_host_attach(rig->sim, host, &ops, rig);
}

static inline void rig_send(struct rig *rig, uint32_t from, uint32_t to, uint32_t tag)
{
	assert_int_equal(sim_send(rig->sim, from, to, &tag, sizeof(tag)), 0);
}

static inline void rig_link(struct rig *rig, struct sim_link link)
{
	assert_int_equal(sim_link_set_all(rig->sim, &link), 0);
}

static inline void rig_run(struct rig *rig)
{
	assert_int_equal(sim_run(rig->sim, SIM_FOREVER, RIG_MAX_RUN), SIM_STOP_IDLE);
}

static inline uint64_t rig_count(const struct rig *rig, enum sim_kind kind)
{
	return sim_count(rig->sim, kind);
}

#endif
