/* See cm/index.h. Called with the lock of cm.h. */
#include "compat/cm/index.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/prng.h"
#include "compat/cm/cm.h"

static struct cm_id *buckets[CM_INDICES][CM_INDEX_BUCKETS];
static uint64_t secret;

/* The last steps of splitmix64, twice: every bit of the key and of the secret affects every bit of
 * the result. */
static uint64_t mix(uint64_t value)
{
	for (unsigned i = 0; i < 2; i++) {
		value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
		value = (value ^ value >> 27) * 0x94d049bb133111ebu;
		value = (value ^ value >> 31) + secret;
	}
	return value;
}

static struct cm_id **cm_index_bucket_of(enum cm_index which, uint64_t key)
{
	return &buckets[which][mix(key ^ secret) % CM_INDEX_BUCKETS];
}

void cm_index_leave(struct cm_id *id, enum cm_index which)
{
	struct cm_index_link *link = &id->links[which];
	if (link->from == NULL)
		return;
	assert(*link->from == id); /* pairs with cm_index_enter() */
	*link->from = link->next;
	if (link->next != NULL)
		link->next->links[which].from = link->from;
	*link = (struct cm_index_link){0};
}

void cm_index_enter(struct cm_id *id, enum cm_index which, uint64_t key)
{
	while (secret == 0)
		secret = prng_secret();
	cm_index_leave(id, which);
	struct cm_index_link *link = &id->links[which];
	struct cm_id **first = cm_index_bucket_of(which, key);
	*link = (struct cm_index_link){.next = *first, .from = first, .key = key};
	if (link->next != NULL)
		link->next->links[which].from = &link->next;
	*first = id;
}

static struct cm_id *with_key(struct cm_id *id, enum cm_index which, uint64_t key)
{
	while (id != NULL && id->links[which].key != key)
		id = id->links[which].next;
	return id;
}

struct cm_id *cm_index_find(enum cm_index which, uint64_t key)
{
	return with_key(*cm_index_bucket_of(which, key), which, key);
}

struct cm_id *cm_index_next(const struct cm_id *id, enum cm_index which)
{
	return with_key(id->links[which].next, which, id->links[which].key);
}

uint64_t cm_peer_key(const uint8_t peer[16], uint32_t number)
{
	uint64_t halves[2];
	memcpy(halves, peer, sizeof(halves));
	return mix(mix(halves[0]) ^ halves[1]) + number;
}

uint64_t cm_qp_key(uint64_t guid, uint32_t qpn)
{
	return mix(guid) + qpn;
}

uint64_t cm_port_key(uint16_t space, uint16_t port)
{
	return (uint64_t)space << 16 | port;
}
