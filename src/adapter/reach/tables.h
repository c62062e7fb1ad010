/* The tables that an adapter shares read-only with its peers: one block of memory, in a memory file
 * so that a descriptor can refer to it. Only the owner writes to it, and readers trust nothing in
 * it.
 *
 *   0        header: how to see whether the owner's memory can be reached, the counters for
 *            onlookers
 *   4096     segments: registered memory that peers can map (segment.h)
 *   8192     protection table entries
 *   ...      translation tables
 *   ...      facts of the queue pairs */
#ifndef ADAPTER_TABLES_H
#define ADAPTER_TABLES_H

#include <stddef.h>
#include <stdint.h>

#include "adapter/reach/segment.h"
#include "memory/tpt.h"
#include "port/agentmsg.h"
#include "transport/engine.h"
#include "transport/qp.h"

#define TABLES_HEADER_BYTES  4096u
#define TABLES_SEGMENT_BYTES 4096u

struct tables_header {
	uint64_t probe_addr; /* in the owner's memory: eight bytes that hold probe_value */
	uint64_t probe_value;
	uint64_t key_mul; /* how the keys of the table are read (memory/tpt.h) */
	uint64_t barrier; /* 1: the owner pays for barriers (base/barrier.h) */
	struct counter counters[ENGINE_COUNTER_COUNT];
	_Atomic uint32_t
	        thread; /* the number of a thread of the owner that sleeps most of the time; 0:
	                   none */
	/* For onlookers, who read the owner's memory (observe.c): what the protection table has
	 * refused, HDL_DETAIL_COUNT words; and TABLES_WQ_LAYOUT of the owner, whose queues are read
	 * only where it is the reader's too. */
	uint64_t refusals_addr;
	uint64_t wq_layout;
	/* Likewise its struct apertures, and how that is laid out (aperture/observe.c); 0: it has
	 * none. */
	_Atomic uint64_t apertures_addr;
	uint64_t apertures_layout;
};
#define TABLES_WQ_LAYOUT \
	(sizeof(struct wq) << 32 | offsetof(struct wq, tail) << 16 | offsetof(struct wq, head))
_Static_assert(sizeof(struct tables_header) <= TABLES_HEADER_BYTES, "see the drawing");
_Static_assert(sizeof(struct segment_table) <= TABLES_SEGMENT_BYTES, "see the drawing");

/* Where things are in a block of the sizes given. */
struct tables {
	int fd;      /* -1: not in a file */
	bool closed; /* no descriptor allows writing, not even this one */
	void *block;
	struct agent_sizes sizes;
	struct tables_header *header;
	struct segment_table *segments;
	struct tpt_slot *slots;
	uint64_t *arena;
	struct qp_public *qps;
};

/* Create the owner's tables, for @entries of the protection table and 2^@qp_bits queue pairs.
 * Returns 0 or -HDL_ENOMEM. */
int tables_make(struct tables *tables, uint32_t entries, uint32_t qp_bits, uint64_t arena_words);
/* A read-only descriptor for peers, or -1. */
int tables_reader_fd(const struct tables *tables);
/* Map a peer's tables; the caller keeps @fd. Returns 0; -HDL_EINVAL: the sizes do not match the
 * file or our limits; -HDL_ENOMEM. */
int tables_map(struct tables *tables, int fd, const struct agent_sizes *sizes);
void tables_unmap(struct tables *tables);

#endif
