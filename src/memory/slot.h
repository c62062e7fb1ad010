/* How entries are stored in memory: eight words under a sequence lock, whose counter is the low
 * half of word 0.
 *
 *   word 0   seq, instance, type, flags, order      word 4   att_skip
 *   word 1   base                                   word 5   pd, qpn
 *   word 2   length                                 word 6   link, ddp_sn
 *   word 3   att                                    word 7   access, page_shift, tag, max_pages
 *
 * A writer holds the table's lock. A change of several words makes seq odd first; a change of word
 * 0 alone is a single store. @link of a region changes without seq: only the owner uses it, for its
 * own bookkeeping. */
#ifndef MEMORY_SLOT_H
#define MEMORY_SLOT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/lock.h"
#include "memory/tpt.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "seq is the low half of word 0");
_Static_assert(offsetof(struct tpt_entry, seq) == 0, "word 0");
_Static_assert(offsetof(struct tpt_entry, link) == 48, "word 6");
_Static_assert(offsetof(struct tpt_entry, tag) == 58, "word 7, from bit 16 on");

static inline uint64_t slot_word(const struct tpt_entry *entry, unsigned i)
{
	uint64_t word;
	memcpy(&word, (const unsigned char *)entry + sizeof word * i, sizeof word);
	return word;
}

static inline void slot_set_word(struct tpt_entry *entry, unsigned i, uint64_t word)
{
	memcpy((unsigned char *)entry + sizeof word * i, &word, sizeof word);
}

/* S3 pairs with S4: a reader that sees a word of a later change also sees the odd seq before it
 * when it reads seq again. */
static inline void slot_load(const struct tpt_slot *slot, struct tpt_entry *out, unsigned i)
{
	slot_set_word(out, i, atomic_load_explicit(&slot->words[i], memory_order_acquire));
}

/* Copy the entry, unless it is being changed at this moment. Unrolled by hand: at -O2 the compiler
 * keeps a loop, which costs more than the rest of the check. */
static inline bool slot_try_read(const struct tpt_slot *slot, struct tpt_entry *out)
{
	/* S1: sequentially consistent for G1 and G2 in tpt.h. */
	uint64_t head = atomic_load_explicit(&slot->words[0], memory_order_seq_cst);
	slot_set_word(out, 0, head);
	slot_load(slot, out, 1);
	slot_load(slot, out, 2);
	slot_load(slot, out, 3);
	slot_load(slot, out, 4);
	slot_load(slot, out, 5);
	slot_load(slot, out, 6);
	slot_load(slot, out, 7);
	return !(head & 1) && atomic_load_explicit(&slot->words[0], memory_order_relaxed) == head;
}

/* Keep trying. False: the entry has been changing for TPT_READ_SPINS rounds, and the writer is
 * presumed dead. */
bool slot_keep_reading(const struct tpt_slot *slot, struct tpt_entry *out);

static inline bool slot_read(const struct tpt_slot *slot, struct tpt_entry *out)
{
	return slot_try_read(slot, out) || slot_keep_reading(slot, out);
}

/* The owner's copy: nobody else writes while the lock is held. */
static inline struct tpt_entry slot_get(const struct tpt_slot *slot)
{
	struct tpt_entry entry;
	(void)slot_try_read(slot, &entry);
	return entry;
}

/* S4 */
static inline void slot_store(struct tpt_slot *slot, const struct tpt_entry *entry, unsigned i)
{
	atomic_store_explicit(&slot->words[i], slot_word(entry, i), memory_order_release);
}

static inline void slot_put(struct tpt_slot *slot, struct tpt_entry *entry)
{
	entry->seq += 1;
	atomic_store_explicit(&slot->words[0], slot_word(entry, 0), memory_order_relaxed);
	slot_store(slot, entry, 1);
	slot_store(slot, entry, 2);
	slot_store(slot, entry, 3);
	slot_store(slot, entry, 4);
	slot_store(slot, entry, 5);
	slot_store(slot, entry, 6);
	slot_store(slot, entry, 7);
	entry->seq += 1;
	atomic_store_explicit(&slot->words[0], slot_word(entry, 0), memory_order_seq_cst); /* S2 */
}

/* Only word 0 differs: instance, type, flags, order. */
static inline void slot_put_head(struct tpt_slot *slot, struct tpt_entry *entry)
{
	entry->seq += 2;
	atomic_store_explicit(&slot->words[0], slot_word(entry, 0), memory_order_seq_cst); /* S2 */
}

/* Add (1) or remove (-1) a window in the count of its region's slot. */
static inline void slot_add_link(struct tpt_slot *slot, int32_t by)
{
	uint64_t word = atomic_load_explicit(&slot->words[6], memory_order_relaxed);
	uint32_t link = (uint32_t)word;
	assert(by > 0 ? link != UINT32_MAX : link != 0);
	word = (word & ~(uint64_t)UINT32_MAX) | (link + (uint32_t)by);
	atomic_store_explicit(&slot->words[6], word, memory_order_release);
}

/* The slot that @key names, or NULL if there is none. */
static inline struct tpt_slot *slot_of(struct tpt *tpt, struct hdl_key key)
{
	uint32_t name = tpt_name(&tpt->view, key), index = name >> tpt->view.tag_bits;
	if (index >= tpt->view.capacity)
		return NULL;
	uint64_t word = atomic_load_explicit(&tpt->slots[index].words[7], memory_order_relaxed);
	return (uint16_t)(word >> 16) == (uint16_t)name ? &tpt->slots[index] : NULL;
}

/* The key of the slot @index whose entry has @tag. */
static inline struct hdl_key slot_key(const struct tpt *tpt, uint32_t index, uint16_t tag,
                                      uint8_t instance)
{
	uint32_t low = tag & ((1u << tpt->view.tag_bits) - 1);
	uint32_t name = index << tpt->view.tag_bits | low;
	return (struct hdl_key){(name << TPT_INSTANCE_BITS) * tpt->hide | instance};
}

/* Make the entry's memory unreachable through it: it becomes invalid, and a window no longer counts
 * as bound. */
void slot_invalidate(struct tpt *tpt, struct tpt_slot *slot, struct tpt_entry *entry);
/* The same for an entry whose one touch is over: it stays marked as touched, so that tpt_check()
 * can say so. */
void slot_use_up(struct tpt *tpt, struct tpt_slot *slot, struct tpt_entry *entry);

#endif
