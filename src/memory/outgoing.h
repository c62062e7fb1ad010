/* The outgoing aperture table (APERTURE figures 4, 5 and 10): where a store to a mapped address
 * goes.
 *
 * Apertures of one size and type lie side by side in a group, and each group has a part of the
 * address space of its own, 2^part_bits bytes. So an address tells the size (note 1 of figure 10):
 *
 *      address - origin   | group | slot in the group | offset (10 to 30 bits) |
 *                          `--- part_bits below here ------------------------'
 *
 * A lookup first asks a small associative memory of the most recently used entries, several ways
 * per set; on a miss the entry is read out of the large store, an array per group, and replaces the
 * last one of its set. An entry holds everything that a packet needs; the sequence number is
 * counted up in the store, so the associative memory keeps no copy that could be out of date.
 *
 * The base is the owner's to choose; the rest of an entry may be set by a trusted application
 * (note 3). Our own addresses are those of the adapter (note 4). */
#ifndef MEMORY_OUTGOING_H
#define MEMORY_OUTGOING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <heddle/aperture.h>

#include "memory/nonce.h"

#define OUTGOING_MAX_GROUPS 32u
#define OUTGOING_SETS       64u
#define OUTGOING_WAYS       4u
#define OUTGOING_NO_BASE    UINT64_MAX

/* Which address an entry leads to (note 2 of figure 10). */
enum outgoing_address {
	OUTGOING_NOWHERE,
	OUTGOING_CLUSTER, /* 16 bits, the LID; @cluster */
	OUTGOING_IPV4,    /* @host, as ::ffff:a.b.c.d */
	OUTGOING_IPV6     /* @host */
};

struct outgoing {
	uint64_t base; /* OUTGOING_NO_BASE: the slot is free */
	uint8_t bits;
	uint8_t type;    /* enum hdl_aperture_type */
	uint8_t address; /* enum outgoing_address */
	bool sequenced;  /* packets have numbers */
	uint16_t cluster;
	uint8_t link[6];
	uint8_t host[16];
	uint32_t index;    /* in-index, or for HDL_APERTURE_IP the UDP port */
	uint32_t sequence; /* of the next packet */
	struct nonce nonce;
	uint64_t first, length; /* what the other end grants: offsets outside are not sent */
	void *owner;
};

struct outgoing_group {
	uint8_t bits;
	uint8_t type; /* enum hdl_aperture_type */
	uint32_t count;
};

struct outgoing_config {
	uint64_t origin;
	uint8_t part_bits;
	struct outgoing_group groups[OUTGOING_MAX_GROUPS]; /* count 0: no such group */
};

struct outgoing_table {
	uint64_t origin;
	uint8_t part_bits;
	uint8_t bits[OUTGOING_MAX_GROUPS]; /* 0: no such group */
	uint8_t types[OUTGOING_MAX_GROUPS];
	uint32_t counts[OUTGOING_MAX_GROUPS];
	uint32_t next[OUTGOING_MAX_GROUPS]; /* where to look for a free slot */
	struct outgoing *stores[OUTGOING_MAX_GROUPS];
	/* Most recent first, in each set. */
	struct outgoing_set {
		_Alignas(64) uint64_t bases[OUTGOING_WAYS];
		struct outgoing *entries[OUTGOING_WAYS];
	} sets[OUTGOING_SETS];
	uint64_t hits, misses; /* of the associative memory */
};

/* Memory for the store, zero-filled and only touched where it is used. */
size_t outgoing_bytes(const struct outgoing_config *config);
/* False: a group is larger than its part of the address space, or a size is out of range. */
bool outgoing_fits(const struct outgoing_config *config);
void outgoing_init(struct outgoing_table *table, const struct outgoing_config *config,
                   void *memory);

/* A new entry of the given size and type, whose base is a multiple of 2^@align_bits too; NULL: its
 * group does not exist or is full. Only base, bits and type are set. */
struct outgoing *outgoing_take(struct outgoing_table *table, uint8_t bits, uint8_t type,
                               uint8_t align_bits);
/* The entry with this very base, which is free; NULL: it is not, or there is no such base. */
struct outgoing *outgoing_take_at(struct outgoing_table *table, uint64_t base);
void outgoing_give(struct outgoing_table *table, struct outgoing *entry);

/* The entry whose aperture has @address, and the offset in it; NULL: none. */
struct outgoing *outgoing_find(struct outgoing_table *table, uint64_t address, uint64_t *offset);

#endif
