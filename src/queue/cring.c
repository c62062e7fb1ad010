#include "queue/cring.h"

#include <string.h>

size_t cring_block_bytes(uint64_t in_bytes)
{
	return sizeof(struct cring_block) + in_bytes;
}

void cring_init(struct cring *ring, struct cring_block *own, uint64_t in_bytes, uint64_t out_bytes,
                struct cring_block *peer, const struct cring_stores *stores)
{
	assert(in_bytes >= CRING_MIN_BYTES && in_bytes <= CRING_MAX_BYTES);
	assert(out_bytes >= CRING_MIN_BYTES && out_bytes <= CRING_MAX_BYTES);
	assert((peer != NULL) != (stores != NULL));
	*ring = (struct cring){.own = own, .peer = peer};
	if (stores != NULL)
		ring->stores = *stores;
	pring_reader_init(&ring->in, &own->in, in_bytes);
	pring_writer_init(&ring->out, &own->out, out_bytes);
}

/* Bytes at the peer, from @at on, not around the end. */
static bool cring_put(struct cring *ring, uint64_t at, const void *data, uint64_t bytes)
{
	uint64_t start = at & (ring->out.units - 1);
	if (ring->peer == NULL)
		return ring->stores.store(ring->stores.context, CRING_DATA + start, data, bytes);
	memcpy(ring->peer->bytes + start, data, bytes);
	return true;
}

uint64_t cring_look_room(struct cring *ring)
{
	struct pring_writer *out = &ring->out;
	uint64_t room = pring_look_room(out);
	/* Where the reader's block is mapped: what it has read and not told (P9 pairs with P10). */
	if (room == 0 && ring->peer != NULL) {
		uint64_t read = atomic_load_explicit(&ring->peer->in.rdptr, memory_order_acquire);
		out->wild += pring_judge(&out->rdptr, out->wrptr - out->rdptr, read) == PRING_WILD;
		room = out->units - (out->wrptr - out->rdptr);
	}
	/* Elsewhere: ask for it, once while the queue is full, and behind the bytes that fill
	 * it. */
	if (room == 0 && ring->peer == NULL && out->published == out->wrptr &&
	    ring->asked != out->wrptr) {
		const uint32_t wanted = 1;
		if (ring->stores.store(ring->stores.context,
		                       offsetof(struct cring_block, in.room_copy), &wanted,
		                       sizeof(wanted)))
			ring->asked = out->wrptr;
	}
	return room;
}

uint64_t cring_write(struct cring *ring, const void *data, uint64_t bytes)
{
	const unsigned char *from = data;
	uint64_t room = ring->out.units - (ring->out.wrptr - ring->out.rdptr), written = 0;
	if (room < bytes)
		room = pring_look_room(&ring->out);
	if (bytes > room)
		bytes = room;
	while (written < bytes) {
		uint64_t to_end = ring->out.units - (ring->out.wrptr & (ring->out.units - 1));
		uint64_t piece = bytes - written < to_end ? bytes - written : to_end;
		if (ring->peer == NULL && piece > CRING_PIECE)
			piece = CRING_PIECE;
		if (!cring_put(ring, ring->out.wrptr, from + written, piece))
			break;
		ring->out.wrptr += piece;
		written += piece;
	}
	return written;
}

/* The pointer @value at @offset of a peer's block that is not mapped. */
static bool cring_store_pointer(struct cring *ring, uint64_t offset, uint64_t value)
{
	return ring->stores.store(ring->stores.context, offset, &value, sizeof(value));
}

bool cring_publish(struct cring *ring)
{
	if (ring->out.published == ring->out.wrptr)
		return false;
	if (ring->peer != NULL) {
		pring_tell_written(&ring->out, &ring->peer->in);
		return pring_take_irq(&ring->out);
	}
	if (cring_store_pointer(ring, offsetof(struct cring_block, in.wrptr_copy), ring->out.wrptr))
		ring->out.published = ring->out.wrptr;
	return false;
}

bool cring_finish(struct cring *ring, bool *wakes)
{
	uint64_t end = ring->out.wrptr + 1;
	*wakes = cring_publish(ring);
	if (ring->out.published != ring->out.wrptr)
		return false;
	if (ring->peer == NULL)
		return cring_store_pointer(ring, offsetof(struct cring_block, in.end_copy), end);
	atomic_store_explicit(&ring->own->out.end, end, memory_order_relaxed);
	atomic_store_explicit(&ring->peer->in.end_copy, end, memory_order_release);
	*wakes |= pring_take_irq(&ring->out);
	return true;
}

uint64_t cring_read(struct cring *ring, void *to, uint64_t max)
{
	unsigned char *out = to;
	uint64_t filled = ring->in.wrptr - ring->in.rdptr;
	if (filled < max)
		filled = pring_look_filled(&ring->in);
	uint64_t bytes = max < filled ? max : filled;
	uint64_t start = ring->in.rdptr & (ring->in.units - 1);
	uint64_t first = bytes < ring->in.units - start ? bytes : ring->in.units - start;
	memcpy(out, ring->own->bytes + start, first);
	memcpy(out + first, ring->own->bytes, bytes - first);
	ring->in.rdptr += bytes;
	atomic_store_explicit(&ring->own->in.rdptr, ring->in.rdptr, memory_order_release); /* P10 */
	return bytes;
}

/* Tell a peer whose block is not mapped what has been read, by @stores. @now: whether it asked for
 * that or not. The reader and the adapter that places the stores may both be here. */
static bool cring_tell_by_store(struct cring_block *own, uint64_t units,
                                const struct cring_stores *stores, bool now)
{
	struct pring_reader_block *in = &own->in;
	for (;;) {
		bool asked = atomic_exchange(&in->room_copy, 0) != 0;
		uint64_t read = atomic_load_explicit(&in->rdptr, memory_order_acquire); /* P10 */
		/* It asked when the queue was full, as far as it knew: that is no news then, and
		 * the question stays. */
		bool news = read != atomic_load(&in->wrptr_copy) - units;
		if (asked && !news) {
			atomic_store(&in->room_copy, 1); /* P7, which the peer cannot make here */
			if (atomic_load(&in->rdptr) == read)
				return true;
			continue;
		}
		if (!asked && !now)
			return true;
		bool told =
		        stores->store(stores->context, offsetof(struct cring_block, out.rdptr_copy),
		                      &read, sizeof(read));
		if (!told && asked)
			atomic_store(&in->room_copy, 1);
		return told;
	}
}

bool cring_release(struct cring *ring, bool now)
{
	uint64_t owed = ring->in.rdptr - ring->in.published;
	if (owed == 0 || (!now && owed < ring->in.units / 4 && !pring_wants_room(&ring->in)))
		return false;
	if (ring->peer != NULL) {
		pring_tell_read(&ring->in, &ring->peer->out);
		return pring_take_room(&ring->in);
	}
	if (cring_tell_by_store(ring->own, ring->in.units, &ring->stores, true))
		ring->in.published = ring->in.rdptr;
	return false;
}

bool cring_answer(struct cring *ring, const struct cring_stores *stores)
{
	if (ring->peer != NULL ||
	    atomic_load_explicit(&ring->own->in.room_copy, memory_order_relaxed) == 0)
		return true;
	return cring_tell_by_store(ring->own, ring->in.units, stores, false);
}

bool cring_arm_data(struct cring *ring)
{
	if (ring->peer != NULL)
		pring_arm(&ring->in, &ring->peer->out);
	return pring_look_filled(&ring->in) == 0 && !pring_has_ended(&ring->in);
}

bool cring_arm_room(struct cring *ring)
{
	if (ring->peer != NULL)
		pring_arm_room(&ring->out, &ring->peer->in);
	return cring_look_room(ring) == 0;
}

void cring_disarm(struct cring *ring)
{
	if (ring->peer == NULL)
		return;
	pring_disarm(&ring->in, &ring->peer->out);
	pring_disarm_room(&ring->out, &ring->peer->in);
}
