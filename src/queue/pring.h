/* The pointer ring of APERTURE figure 8: a queue between a writer and a reader that need not share
 * coherent memory. Each has a control block of its own, and a copy of what the other one tells it:
 *
 *       the reader's memory (60)                          the writer's (61, "NIC")
 *
 *    +0    WRPTR'   (63b)  <------ the writer's copy ------  WRPTR  (63a)   +64
 *    +64   RDPTR    (62a)  ------- the reader's copy ----->  RDPTR' (62b)   +0
 *    +72   IRQ      (65a)  ------- the reader's copy ----->  IRQ'   (65b)   +8
 *    +76   ROOM'           <------ the writer's copy ------  ROOM           +72
 *    +8    END'            <------ the writer's copy ------  END            +80
 *          queue 59        <------ what is queued ---------
 *
 *   written by the reader: RDPTR, RDPTR', IRQ; it sets IRQ', and clears ROOM' when it interrupts
 *   written by the writer: WRPTR, WRPTR', ROOM, the queue; it sets ROOM', and clears IRQ' when it
 *   interrupts
 *
 * IRQ asks for an interrupt when there is something to read. ROOM is its counterpart, for a writer
 * that waits for room; a writer that keeps back or counts what finds no room does not use it. The
 * reader looks at ROOM' whenever it has read, so it lies in the cache line of RDPTR. END is the
 * last WRPTR plus one, once the writer has finished; 0: it goes on.
 *
 * Pointers count units (events, words or bytes) since the beginning. They never wrap; a unit's
 * place is the pointer modulo the length of the queue, which is a power of two. The difference of
 * WRPTR and RDPTR is what is queued.
 *
 * Each side works with a private copy of its own pointer and of the last good one of the other.
 * What the other side tells is judged from one load: a pointer that goes back was overtaken and
 * is ignored (copies may lag, and a carrier may deliver them late); one that claims more than can
 * be true is counted and ignored. So a hostile peer can stop its own queue, and nothing else. */
#ifndef QUEUE_PRING_H
#define QUEUE_PRING_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pring_reader_block {
	_Alignas(64) _Atomic uint64_t wrptr_copy;
	_Atomic uint64_t end_copy;
	_Alignas(64) _Atomic uint64_t rdptr;
	_Atomic uint32_t irq;
	_Atomic uint32_t room_copy;
};
_Static_assert(sizeof(struct pring_reader_block) == 128, "see the drawing");
_Static_assert(offsetof(struct pring_reader_block, room_copy) == 76, "see the drawing");
_Static_assert(offsetof(struct pring_reader_block, end_copy) == 8, "see the drawing");
_Static_assert(offsetof(struct pring_reader_block, rdptr) == 64, "see the drawing");
_Static_assert(offsetof(struct pring_reader_block, irq) == 72, "see the drawing");

struct pring_writer_block {
	_Alignas(64) _Atomic uint64_t rdptr_copy;
	_Atomic uint32_t irq_copy;
	_Alignas(64) _Atomic uint64_t wrptr;
	_Atomic uint32_t room;
	_Atomic uint64_t end;
};
_Static_assert(sizeof(struct pring_writer_block) == 128, "see the drawing");
_Static_assert(offsetof(struct pring_writer_block, irq_copy) == 8, "see the drawing");
_Static_assert(offsetof(struct pring_writer_block, wrptr) == 64, "see the drawing");
_Static_assert(offsetof(struct pring_writer_block, room) == 72, "see the drawing");
_Static_assert(offsetof(struct pring_writer_block, end) == 80, "see the drawing");

enum pring_verdict {
	PRING_SAME,
	PRING_NEW,
	PRING_STALE, /* older than what is known */
	PRING_WILD   /* claims units that cannot be there */
};

/* Judge the pointer @told, of which *@known was the last good value. It can be ahead of that by
 * @most at most. */
static inline enum pring_verdict pring_judge(uint64_t *known, uint64_t most, uint64_t told)
{
	uint64_t ahead = told - *known;
	if (ahead == 0)
		return PRING_SAME;
	if (ahead <= most) {
		*known = told;
		return PRING_NEW;
	}
	return told < *known ? PRING_STALE : PRING_WILD;
}

struct pring_writer {
	struct pring_writer_block *block; /* its own: WRPTR, and what the reader tells */
	uint64_t units;                   /* the length of the queue */
	uint64_t wrptr;
	uint64_t rdptr;     /* the last good RDPTR' */
	uint64_t published; /* WRPTR as the reader was told */
	uint64_t wild;      /* pointers that were ignored */
};

struct pring_reader {
	struct pring_reader_block *block; /* its own: RDPTR, IRQ, and what the writer tells */
	uint64_t units;
	uint64_t rdptr;
	uint64_t wrptr;     /* the last good WRPTR' */
	uint64_t published; /* RDPTR as the writer was told */
	uint64_t wild;
};

static inline void pring_writer_init(struct pring_writer *w, struct pring_writer_block *block,
                                     uint64_t units)
{
	assert(units > 0 && (units & (units - 1)) == 0);
	*w = (struct pring_writer){.block = block, .units = units};
}

static inline void pring_reader_init(struct pring_reader *r, struct pring_reader_block *block,
                                     uint64_t units)
{
	assert(units > 0 && (units & (units - 1)) == 0);
	*r = (struct pring_reader){.block = block, .units = units};
}

/* Look at RDPTR' again (step 1). Returns the units that can be written now. */
static inline uint64_t pring_look_room(struct pring_writer *w)
{
	/* P1 pairs with P4: what the reader has read may be overwritten. */
	uint64_t told = atomic_load_explicit(&w->block->rdptr_copy, memory_order_acquire);
	w->wild += pring_judge(&w->rdptr, w->wrptr - w->rdptr, told) == PRING_WILD;
	return w->units - (w->wrptr - w->rdptr);
}

/* Is there room for @wanted units? Looks at RDPTR' only if it must. */
static inline bool pring_has_room(struct pring_writer *w, uint64_t wanted)
{
	return w->units - (w->wrptr - w->rdptr) >= wanted || pring_look_room(w) >= wanted;
}

/* Look at WRPTR' again (step 4). Returns the units that can be read now. */
static inline uint64_t pring_look_filled(struct pring_reader *r)
{
	/* P2 pairs with P3: what the writer has written can be read. */
	uint64_t told = atomic_load_explicit(&r->block->wrptr_copy, memory_order_acquire);
	r->wild += pring_judge(&r->wrptr, r->rdptr + r->units - r->wrptr, told) == PRING_WILD;
	return r->wrptr - r->rdptr;
}

static inline bool pring_has_filled(struct pring_reader *r, uint64_t wanted)
{
	return r->wrptr - r->rdptr >= wanted || pring_look_filled(r) >= wanted;
}

/* Step 3, where the reader's block is mapped: tell it what has been written. */
static inline void pring_tell_written(struct pring_writer *w, struct pring_reader_block *peer)
{
	w->published = w->wrptr;
	atomic_store_explicit(&w->block->wrptr, w->wrptr, memory_order_relaxed);
	atomic_store_explicit(&peer->wrptr_copy, w->wrptr, memory_order_release); /* P3 */
}

/* Step 6, where the writer's block is mapped. */
static inline void pring_tell_read(struct pring_reader *r, struct pring_writer_block *peer)
{
	r->published = r->rdptr;
	atomic_store_explicit(&r->block->rdptr, r->rdptr, memory_order_relaxed);
	atomic_store_explicit(&peer->rdptr_copy, r->rdptr, memory_order_release); /* P4 */
}

/* Step 7, where the writer's block is mapped: the reader wants an interrupt. It must look for
 * units once more before it sleeps. */
static inline void pring_arm(struct pring_reader *r, struct pring_writer_block *peer)
{
	atomic_store_explicit(&r->block->irq, 1, memory_order_relaxed);
	atomic_store_explicit(&peer->irq_copy, 1, memory_order_relaxed);
	/* P5 pairs with P6: either the writer sees IRQ', or we see WRPTR'. */
	atomic_thread_fence(memory_order_seq_cst);
}

/* The reader runs again. The writer may have interrupted meanwhile. */
static inline void pring_disarm(struct pring_reader *r, struct pring_writer_block *peer)
{
	if (atomic_load_explicit(&r->block->irq, memory_order_relaxed) == 0)
		return;
	atomic_store_explicit(&r->block->irq, 0, memory_order_relaxed);
	atomic_store_explicit(&peer->irq_copy, 0, memory_order_relaxed);
}

/* Does the reader want an interrupt? Taken once per arming; call after pring_tell_written(). */
static inline bool pring_take_irq(struct pring_writer *w)
{
	atomic_thread_fence(memory_order_seq_cst); /* P6 */
	return atomic_load_explicit(&w->block->irq_copy, memory_order_relaxed) != 0 &&
	       atomic_exchange_explicit(&w->block->irq_copy, 0, memory_order_acq_rel) != 0;
}

/* The counterparts of the three above, for a writer that waits for room. */
static inline void pring_arm_room(struct pring_writer *w, struct pring_reader_block *peer)
{
	atomic_store_explicit(&w->block->room, 1, memory_order_relaxed);
	atomic_store_explicit(&peer->room_copy, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* P7 pairs with P8 */
}

static inline void pring_disarm_room(struct pring_writer *w, struct pring_reader_block *peer)
{
	if (atomic_load_explicit(&w->block->room, memory_order_relaxed) == 0)
		return;
	atomic_store_explicit(&w->block->room, 0, memory_order_relaxed);
	atomic_store_explicit(&peer->room_copy, 0, memory_order_relaxed);
}

/* Does the writer wait for room? Call after storing RDPTR. */
static inline bool pring_wants_room(const struct pring_reader *r)
{
	atomic_thread_fence(memory_order_seq_cst); /* P8 */
	return atomic_load_explicit(&r->block->room_copy, memory_order_relaxed) != 0;
}

static inline bool pring_take_room(struct pring_reader *r)
{
	atomic_thread_fence(memory_order_seq_cst); /* P8 */
	return atomic_load_explicit(&r->block->room_copy, memory_order_relaxed) != 0 &&
	       atomic_exchange_explicit(&r->block->room_copy, 0, memory_order_acq_rel) != 0;
}

/* Will nothing follow what has been read? */
static inline bool pring_has_ended(const struct pring_reader *r)
{
	return atomic_load_explicit(&r->block->end_copy, memory_order_acquire) == r->rdptr + 1;
}

#endif
