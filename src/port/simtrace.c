/* Trace records of the simulated network: their hash and their text; see simtrace.h. */
#include "port/simtrace.h"

#include "base/crc.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#define FNV_PRIME 0x100000001b3u

uint64_t sim_fold(uint64_t hash, uint64_t value)
{
	/* Byte by byte, lowest first: the same number on a machine of either byte order. */
	for (unsigned shift = 0; shift < 64; shift += 8)
		hash = (hash ^ (uint8_t)(value >> shift)) * FNV_PRIME;
	return hash;
}

uint64_t sim_fold_trace(uint64_t hash, const struct sim_trace *record)
{
	hash = sim_fold(hash, record->time_ns);
	hash = sim_fold(hash, (uint64_t)record->kind);
	hash = sim_fold(hash, (uint64_t)record->from << 32 | record->to);
	hash = sim_fold(hash, record->number);
	hash = sim_fold(hash, record->value);
	hash = sim_fold(hash, record->bytes);
	return sim_fold(hash, record->digest);
}

uint64_t sim_digest(const void *data, size_t bytes)
{
	return (uint64_t)crc32_ieee(0, data, bytes) << 32 | crc32c(0, data, bytes);
}

const char *sim_kind_name(enum sim_kind kind)
{
	static const char *const names[SIM_KINDS] = {
	        [SIM_SENT] = "sent",
	        [SIM_DUPLICATED] = "duplicated",
	        [SIM_DELIVERED] = "delivered",
	        [SIM_LOST] = "lost",
	        [SIM_CUT] = "cut",
	        [SIM_QUEUE_FULL] = "queue-full",
	        [SIM_POOL_EMPTY] = "pool-empty",
	        [SIM_SENDER_DEAD] = "sender-dead",
	        [SIM_RECEIVER_DEAD] = "receiver-dead",
	        [SIM_UNATTENDED] = "unattended",
	        [SIM_DELAYED] = "delayed",
	        [SIM_FLIPPED] = "flipped",
	        [SIM_TRUNCATED] = "truncated",
	        [SIM_MARKED] = "marked",
	        [SIM_HELD] = "held",
	        [SIM_CALLED] = "called",
	        [SIM_CALL_DROPPED] = "call-dropped",
	        [SIM_STALLED] = "stalled",
	        [SIM_WOKEN] = "woken",
	        [SIM_KILLED] = "killed",
	        [SIM_PARTITIONED] = "partitioned",
	        [SIM_HEALED] = "healed",
	        [SIM_LINK_SET] = "link-set",
	        [SIM_NOTED] = "noted",
	};

	assert(kind < SIM_KINDS);
	return names[kind];
}

char *sim_trace_format(const struct sim_trace *record, char *line, size_t line_bytes)
{
	char hosts[32] = "-";

	if (record->from != SIM_NO_HOST)
		snprintf(hosts, sizeof(hosts), "%" PRIu32 ">%" PRIu32, record->from, record->to);
	else if (record->to != SIM_NO_HOST)
		snprintf(hosts, sizeof(hosts), "%" PRIu32, record->to);
	snprintf(line, line_bytes,
	         "%" PRIu64 ".%09" PRIu64 " %-13s %-7s #%" PRIu64 " value %" PRIu64
	         " bytes %" PRIu32 " digest %016" PRIx64,
	         record->time_ns / 1000000000u, record->time_ns % 1000000000u,
	         sim_kind_name(record->kind), hosts, record->number, record->value, record->bytes,
	         record->digest);
	return line;
}
