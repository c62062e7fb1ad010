/* What happened in a simulated network, one record per event. Every record is folded in order into
 * one 64-bit number: two runs with the same number did the same things at the same times with the
 * same bytes. */
#ifndef PORT_SIMTRACE_H
#define PORT_SIMTRACE_H

#include <stddef.h>
#include <stdint.h>

/* No host: the event belongs to the network as a whole. */
#define SIM_NO_HOST UINT32_MAX

/* Large enough for any line of sim_trace_format(). */
#define SIM_TRACE_LINE_BYTES 160

/* Each copy of a packet ends in exactly one of DELIVERED to UNATTENDED, so that at any time
 *   SENT + DUPLICATED = DELIVERED + LOST + CUT + QUEUE_FULL + POOL_EMPTY + SENDER_DEAD +
 * RECEIVER_DEAD + UNATTENDED
 *                       + sim_in_flight() */
enum sim_kind {
	SIM_SENT,
	SIM_DUPLICATED, /* one more copy */
	SIM_DELIVERED,
	SIM_LOST,
	SIM_CUT,           /* by a partition, when it was sent or while it was in flight */
	SIM_QUEUE_FULL,    /* tail drop: the link's queue */
	SIM_POOL_EMPTY,    /* no packet buffer */
	SIM_SENDER_DEAD,   /* sent by a dead host, or lost together with its sender */
	SIM_RECEIVER_DEAD, /* sent to a dead host */
	SIM_UNATTENDED,    /* to a host without a receive function */
	SIM_DELAYED,       /* value: the extra time that lets others overtake */
	SIM_FLIPPED,       /* value: how many bits */
	SIM_TRUNCATED,     /* value: the length it had */
	SIM_HELD,          /* reached a stalled host: delivered (or called) when it wakes */
	SIM_CALLED,        /* value: the argument of sim_at() */
	SIM_CALL_DROPPED,  /* the host of a sim_at_host() died; value as above */
	SIM_STALLED,       /* value: until when */
	SIM_WOKEN,         /* value: how much was held */
	SIM_KILLED,        /* value: enum sim_death */
	SIM_PARTITIONED,   /* number and value: the two sets */
	SIM_HEALED,        /* value: how many partitions were lifted by hand */
	SIM_LINK_SET,
	SIM_NOTED,  /* sim_note(); number and value are the caller's */
	SIM_MARKED, /* congestion at the ingress queue of its host */
	SIM_KINDS
};

struct sim_trace {
	uint64_t time_ns;
	enum sim_kind kind;
	uint32_t from, to; /* an event of one host names it in @to; else SIM_NO_HOST */
	uint64_t number;   /* of the packet, the first sent being 0; its copies share it */
	uint64_t value;
	uint32_t bytes;
	uint64_t digest; /* sim_digest() of the packet as it is now */
};

/* FNV-1a, 64 bits: start with SIM_FOLD_START. */
#define SIM_FOLD_START 0xcbf29ce484222325u
uint64_t sim_fold(uint64_t hash, uint64_t value);
uint64_t sim_fold_trace(uint64_t hash, const struct sim_trace *record);

/* The bytes of a packet as a number: its CRC-32 and its CRC-32C. Two, because a packet that ends in
 * its own CRC, as those of RoCE and of MPA do, has the same CRC whatever is in it. */
uint64_t sim_digest(const void *data, size_t bytes);

const char *sim_kind_name(enum sim_kind kind);

/* One human-readable line, without a newline; at most @line_bytes including the terminator. Returns
 * @line. */
char *sim_trace_format(const struct sim_trace *record, char *line, size_t line_bytes);

#endif
