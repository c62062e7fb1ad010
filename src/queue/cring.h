/* A circular queue of bytes between two applications over apertures (APERTURE columns 14 and 15),
 * one in each direction. Each side offers the other one block of memory as its incoming aperture:
 *
 *   0      reader's control block of the bytes that come in: the peer writes WRPTR', ROOM'
 *   128    writer's control block of the bytes that go out: the peer writes RDPTR', IRQ'
 *   256    the bytes that come in; the peer writes them, at CRING_DATA + pointer modulo length
 *
 * So data and WRPTR go out, and RDPTR comes back. Where the peer's block is mapped, these are plain
 * stores; elsewhere they are stores through an aperture, which arrive in order: the bytes before
 * the pointer that covers them.
 *
 * Pointers may lag: the reader tells of what it has read in batches of a quarter of the queue. But
 * a queue in which there is room never stands still. A writer that knows of no room looks at the
 * reader's own RDPTR, if it maps the block; else it sets ROOM' once behind the bytes that fill the
 * queue, and the reader, or its adapter if the reader makes no call, answers with RDPTR' as soon
 * as anything has been read. */
#ifndef QUEUE_CRING_H
#define QUEUE_CRING_H

#include "queue/pring.h"

#define CRING_DATA      256u
#define CRING_MIN_BYTES 1024u
#define CRING_MAX_BYTES (1u << 30)
#define CRING_PIECE     32768u /* bytes of one store through an aperture */

struct cring_block {
	struct pring_reader_block in;
	struct pring_writer_block out;
	unsigned char bytes[];
};
_Static_assert(sizeof(struct cring_block) == CRING_DATA, "see the drawing");

/* How stores reach a peer whose block is not mapped: @bytes of @data at @offset of the peer's
 * block, after all earlier stores. False: not now; the same store is tried again later. */
struct cring_stores {
	bool (*store)(void *context, uint64_t offset, const void *data, uint64_t bytes);
	void *context;
};

struct cring {
	struct cring_block *own;
	struct cring_block *peer; /* NULL: through stores */
	struct cring_stores stores;
	struct pring_reader in;
	struct pring_writer out;
	uint64_t asked; /* WRPTR when room was asked for last, by a store */
};

/* @in_bytes and @out_bytes: the lengths of the two queues, powers of two within the limits. @own is
 * zeroed. */
void cring_init(struct cring *ring, struct cring_block *own, uint64_t in_bytes, uint64_t out_bytes,
                struct cring_block *peer, const struct cring_stores *stores);
size_t cring_block_bytes(uint64_t in_bytes);

/* Write up to @bytes; returns how many found room. They are in the peer's memory, or on their way,
 * but the peer learns of them with cring_publish(). */
uint64_t cring_write(struct cring *ring, const void *data, uint64_t bytes);
/* Tell the peer what has been written. True: it waits for data; the caller sends it an event. */
bool cring_publish(struct cring *ring);
/* Nothing follows what has been written. True: all of it, and this, has been told; false: the
 * carrier has no room now. *@wakes: the peer waits for data. */
bool cring_finish(struct cring *ring, bool *wakes);
/* Read up to @max bytes; returns how many there were. */
uint64_t cring_read(struct cring *ring, void *to, uint64_t max);
/* Tell the peer what has been read, if that is due: in batches of a quarter of the queue, or with
 * @now, or because it waits. True: it waits for room; the caller sends it an event. */
bool cring_release(struct cring *ring, bool now);
/* A store of a peer whose block is not mapped has been placed in ours: if it asks for room, tell it
 * what has been read. Any thread; @stores are its own. False: they have no room now; call again. */
bool cring_answer(struct cring *ring, const struct cring_stores *stores);
/* Look for room beyond what the reader has told, or ask it. Returns the bytes that can be written.
 * cring_write() does not: it would take the reader's cache line with every byte that was read. */
uint64_t cring_look_room(struct cring *ring);

/* Ask the peer for an event when there is data, or room. False: there is already. Only where its
 * block is mapped: elsewhere the adapter that places a store raises the event. */
bool cring_arm_data(struct cring *ring);
bool cring_arm_room(struct cring *ring);
void cring_disarm(struct cring *ring);

/* Bytes that can be read and written now. */
static inline uint64_t cring_readable(struct cring *ring)
{
	return pring_look_filled(&ring->in);
}
static inline uint64_t cring_writable(struct cring *ring)
{
	return pring_look_room(&ring->out);
}

#endif
