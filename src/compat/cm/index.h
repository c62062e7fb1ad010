/* Finds identifiers of connections by the numbers in messages, at a cost that does not depend on
 * how many there are. Keys that peers choose are mixed with a secret, so that nobody can make them
 * collide. */
#ifndef COMPAT_CMINDEX_H
#define COMPAT_CMINDEX_H

#include <stdint.h>

#define CM_INDEX_BUCKETS 4096u

enum cm_index {
	CM_BY_NUMBER, /* our number */
	CM_BY_PEER,   /* the sender of a request, and its number: cm_peer_key() */
	CM_BY_QP,     /* across the wire, the peer's device and queue pair: cm_qp_key() */
	CM_BY_PORT,   /* listeners: cm_port_key() */
	CM_INDICES
};

struct cm_id;

/* Part of an identifier, one per index. */
struct cm_index_link {
	struct cm_id *next, **from; /* NULL from: not in the index */
	uint64_t key;
};

/* Let @id be found by @key, and no longer by its former key. */
void cm_index_enter(struct cm_id *id, enum cm_index which, uint64_t key);
void cm_index_leave(struct cm_id *id, enum cm_index which);
/* The first with @key, and the next one; NULL: none. Different identifiers may have the same key,
 * so check them. */
struct cm_id *cm_index_find(enum cm_index which, uint64_t key);
struct cm_id *cm_index_next(const struct cm_id *id, enum cm_index which);

/* @peer: 16 bytes that identify a node, its GID or a substitute. */
uint64_t cm_peer_key(const uint8_t peer[16], uint32_t number);
uint64_t cm_qp_key(uint64_t guid, uint32_t qpn);
uint64_t cm_port_key(uint16_t space, uint16_t port);

#endif
