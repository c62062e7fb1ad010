/* The one protection table (seed 004 figures 12 to 15 and 18, seed 003 "Remote Memory Protection").
 *
 * Every access to registered memory, local or remote, by whatever path, is judged by tpt_check().
 * An entry is one cache line. The owner (one adapter) changes entries through struct tpt; anyone
 * who maps the table may read it through a struct tpt_view, also another process: nothing in it is
 * a pointer of the reader's.
 *
 *   entries[capacity + 1], 64 bytes each, a sequence lock in each (odd: being changed; bounded
 *   retries, then "not valid") arena[arena_words]: translation tables, 64-bit page addresses and,
 *   in indirect tables, word offsets into the arena
 *
 *   entry --INLINE-->  one contiguous run of the owner's memory; no table at all
 *         --DIRECT-->  [page page page ...]                                        up to 512 pages
 *         --FIRST--->  [table table ...]  --> [page page ...]                      up to 512 x 512
 *         --SECOND-->  [list list ...] --> [table table ...] --> [page page ...]   512 x 512 x 512
 *         --NULL---->  every address: a page of zeroes to read, and one to write to
 *
 * A window has its own entry and uses the table of its region from an offset on, so a check reads
 * one entry.
 *
 * In use: whoever reads or writes memory that a check has granted stands inside a struct tpt_guard
 * from before the check until after the last byte. Who takes a grant away (deregisters, binds
 * again, invalidates) makes the entry say no first, then waits until every guard that was inside
 * has left, and only then reuses the entry or its table. Guards are never held while waiting for
 * anything, so two adapters cannot wait for each other. */
#ifndef MEMORY_TPT_H
#define MEMORY_TPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <heddle/types.h>

#include "base/bitmap.h"
#include "base/lock.h"
#include "base/prng.h"
#include "base/span.h"

#define TPT_MIN_PAGE_SHIFT 12u /* 4 KiB */
#define TPT_MAX_PAGE_SHIFT 28u /* 256 MiB */
#define TPT_FANOUT         512u
#define TPT_MAX_PAGES      (TPT_FANOUT * TPT_FANOUT * TPT_FANOUT)
#define TPT_READ_SPINS     65536u           /* then the writer is taken for dead */
#define TPT_MAX_CAPACITY   ((1u << 24) - 1) /* index 0 is never used: a zeroed key opens nothing */
#define TPT_INSTANCE_BITS  8u
#define TPT_OPEN_STEP      512u /* slots that the table grows by */
#define TPT_MIN_FREE       128u /* the table grows when it has fewer to choose from */
#define TPT_UNIT_WORDS     8u   /* the arena is handed out in units of this many words */

/* Figure 13 "entry type", two bits; 3 is reserved. */
enum tpt_type { TPT_REGION = 0, TPT_WINDOW = 1, TPT_ISCSI = 2 };

/* Figure 13 "ATT control". */
enum tpt_order { TPT_INLINE, TPT_DIRECT, TPT_FIRST, TPT_SECOND, TPT_NULL };

enum tpt_flags {
	TPT_ALLOCATED = 1 << 0, /* the index is taken */
	TPT_VALID = 1 << 1,     /* figure 13 "valid entry" */
	TPT_TOUCHED = 1 << 2,   /* figure 13 "touch access control": touched */
	TPT_GONE = 1 << 3,      /* the memory behind it was unmapped */
	TPT_RETIRED = 1 << 4    /* never valid again before tpt_free() */
};

/* One entry as a reader sees it: a snapshot. */
struct tpt_entry {
	uint32_t seq;     /* sequence lock */
	uint8_t instance; /* low byte of the key */
	uint8_t type;     /* enum tpt_type */
	uint8_t flags;    /* enum tpt_flags */
	uint8_t order;    /* enum tpt_order */
	uint64_t base;    /* first address; TPT_ISCSI: the command's name, addresses count from 0 */
	uint64_t length;
	/* INLINE: @att is the host address of the first byte. NULL: of the page of zeroes, which
	 * the one to write to follows. Else it is the word offset of the table in the arena, and
	 * @att_skip bytes of the table lie before the first byte (first page's offset, window's
	 * offset). */
	uint64_t att;
	uint64_t att_skip;
	uint32_t pd;
	uint32_t qpn;    /* a window bound for one queue pair only, else 0 */
	uint32_t link;   /* window: index of its region; region: number of windows bound */
	uint32_t ddp_sn; /* figure 13 "stored DDP sequence number" */
	uint8_t access;  /* enum hdl_access */
	uint8_t page_shift;
	uint16_t tag; /* the low bits of the key's name, which is the same for each key of the index
	                 (tpt_name()) */
	uint32_t max_pages; /* room kept for HDL_OP_REGISTER; 0: registered by call, and windows */
};
_Static_assert(sizeof(struct tpt_entry) == 64, "one cache line");

/* Where entries live: the same 64 bytes, as words that are only ever read and written whole and
 * atomically. */
struct tpt_slot {
	_Alignas(64) _Atomic uint64_t words[8];
};

/* What a reader needs. Valid in any process that maps the two arrays. */
struct tpt_view {
	const struct tpt_slot *slots;
	/* Words are read once, atomically, and checked: a peer's arena is not trusted. */
	const uint64_t *arena;
	uint32_t capacity; /* slots, one more than tpt_config.capacity */
	uint64_t arena_words;
	/* How a key becomes a name (tpt_name()); the owner's choice. */
	uint32_t mul, tag_bits;
};

/* Keys. The table is dense and its first slots are used first, and a stranger must not be able to
 * tell a key by that: the 24 bits above the instance are a name, multiplied by a secret odd
 * number.
 *
 *   key     hidden name (24) | instance (8)
 *   name    index of the slot (as many bits as the table needs) | tag (the rest, 16 at most)
 *
 * Tags are drawn once per index and stand in the entry, so the check reads no more than that. A
 * key of nothing but zeroes has index 0, which is never used. */
#define TPT_NAME_MASK    0xffffffu
#define TPT_MAX_TAG_BITS 16u
static inline uint32_t tpt_name(const struct tpt_view *view, struct hdl_key key)
{
	/* 24 bits, multiplied in the high part of a word: what is beyond them falls off by itself.
	 */
	return (key.v & ~0xffu) * view->mul >> TPT_INSTANCE_BITS;
}
static inline uint32_t tpt_index(const struct tpt_view *view, struct hdl_key key)
{
	return tpt_name(view, key) >> view->tag_bits;
}
/* Of a table of @capacity slots. */
static inline uint32_t tpt_tag_bits(uint32_t capacity)
{
	uint32_t bits = 0;
	while (bits < TPT_MAX_TAG_BITS && capacity - 1 <= TPT_NAME_MASK >> (bits + 1))
		bits++;
	return bits;
}

struct tpt_config {
	uint32_t capacity;    /* entries, a power of two is not needed */
	uint64_t arena_words; /* for translation tables, rounded down to TPT_UNIT_WORDS */
};

/* Who uses which unit of the arena. */
#define TPT_TABLE_UNITS (TPT_FANOUT / TPT_UNIT_WORDS) /* the largest table */
struct tpt_arena {
	uint64_t *words;
	uint32_t *refs; /* per unit: references to the table whose root starts there */
	struct bitmap map;
	size_t hint[TPT_TABLE_UNITS]; /* [n - 1]: no free run of n units starts before this unit */
};

/* The owner's side. Control calls take the lock themselves; readers never do. */
struct tpt {
	struct tpt_view view;
	struct lock lock;
	struct prng prng; /* keys must not be guessable: which index is next, */
	uint64_t secret;  /* the order of each one's instances, and its tag, */
	uint32_t hide;    /* and how names are hidden: what undoes view.mul */
	/* private: implementation's own */
	struct tpt_slot *slots;
	uint32_t *free_list; /* the free indices below @opened, in no order */
	uint32_t free_count;
	uint32_t opened; /* slots in play: the table grows into its memory step by step */
	struct tpt_arena arena;
	_Atomic uint64_t verdicts[HDL_DETAIL_COUNT];
};

/* How much memory the three parts need: @slots and @arena may be shared with readers,
 * @private_bytes never is. All are zero-filled by the caller, 64-byte aligned, and only touched as
 * far as they are used. */
struct tpt_bytes {
	size_t slots;
	size_t arena;
	size_t private_bytes;
};
struct tpt_bytes tpt_bytes(const struct tpt_config *config);
void tpt_init(struct tpt *tpt, const struct tpt_config *config, void *slots, void *arena,
              void *private_memory, uint64_t random_seed);

/* What an entry of a peer's granted, to ask again in a few instructions: while its word is the
 * same, it is (judge.h). */
struct tpt_memo {
	uint64_t word;
	uint64_t base, length; /* what was granted, of which the request was a part */
	uint64_t host;         /* where base lies */
	struct hdl_key key;
	uint32_t index; /* its slot */
};

/* --- taking part in "in use" --- */

struct tpt_guard {
	_Alignas(64) _Atomic uint64_t seq; /* odd: inside */
};
static inline void tpt_enter(struct tpt_guard *guard)
{
	uint64_t seq = atomic_load_explicit(&guard->seq, memory_order_relaxed);
	/* G1: before any read of an entry; pairs with G2 by way of the entry (S1, S2 in slot.h).
	 * All four are sequentially consistent, so either the reader sees that the entry says no,
	 * or the owner sees the reader inside. */
	atomic_exchange_explicit(&guard->seq, seq + 1, memory_order_seq_cst);
}
static inline void tpt_leave(struct tpt_guard *guard)
{
	uint64_t seq = atomic_load_explicit(&guard->seq, memory_order_relaxed);
	atomic_store_explicit(&guard->seq, seq + 1, memory_order_release); /* G3 */
}
/* G2: after the entry says no. Has the holder of @guard left since? Call with *seen = 0 first,
 * repeat until true. */
static inline bool tpt_left(const struct tpt_guard *guard, uint64_t *seen)
{
	uint64_t seq = atomic_load_explicit(&guard->seq, memory_order_seq_cst);
	if ((seq & 1) == 0 || (*seen != 0 && seq != *seen))
		return true;
	*seen = seq;
	return false;
}

/* --- reading --- */

enum tpt_side {
	TPT_LOCAL,  /* a work request's own piece: figure 15 */
	TPT_REMOTE, /* a peer's request: figure 18 */
	TPT_TASK    /* an iSCSI task tag: figure 17B */
};

struct tpt_request {
	struct hdl_key key;
	uint8_t side;      /* enum tpt_side */
	bool windows_only; /* figure 18 (b): regions cannot be used for remote access */
	uint8_t access;    /* enum hdl_access: every bit must be granted */
	uint32_t pd;
	uint32_t qpn;
	uint64_t addr;
	uint64_t length;
};

/* What was granted: a private copy of the entry and where in it. Meaningless once the guard was
 * left. */
struct tpt_grant {
	struct tpt_entry entry;
	uint32_t index;
	uint8_t access;  /* that was asked for */
	uint64_t offset; /* of the first granted byte from the entry's first */
	uint64_t length;
};

/* A consistent copy of the entry of @key, whatever its instance; or of a slot. False: there is
 * none, or its owner died. */
bool tpt_read(const struct tpt_view *view, struct hdl_key key, struct tpt_entry *entry);
bool tpt_read_slot(const struct tpt_view *view, uint32_t index, struct tpt_entry *entry);

/* May @req touch the memory? HDL_DETAIL_NONE and *grant, or the first check that fails, in the
 * order of the figures: (a) valid (then HDL_DETAIL_GONE), (b) type, (c) domain and queue pair, (d)
 * instance, (e) bounds, (f) access; *grant is then meaningless. A request of length 0 may stand
 * anywhere from the first byte to just behind the last. Pure; the caller stands inside a guard of
 * the table's owner. One-touch is tpt_touch()'s. */
enum hdl_detail tpt_check(const struct tpt_view *view, const struct tpt_request *req,
                          struct tpt_grant *grant);

/* Where the bytes from @skip on of the grant lie in the owner's memory: up to @max runs covering at
 * most @bytes; neighbours are joined. Returns the number of runs, 0 only for no bytes or a broken
 * table; *covered is their sum. */
size_t tpt_spans(const struct tpt_view *view, const struct tpt_grant *grant, uint64_t skip,
                 uint64_t bytes, struct span *out, size_t max, uint64_t *covered);

/* --- changing: the owner only --- */

/* The inserts are control calls: 0; -HDL_EINVAL a range that wraps or ends at 2^64, unknown rights,
 * remote write or atomic on a region without local write, a page list that does not fit;
 * -HDL_ENOMEM the table or the arena is full. With HDL_ACCESS_ZERO_BASED the address given for the
 * first byte is ignored. */

/* A region of one contiguous run at @host. */
struct tpt_region {
	uint32_t pd;
	uint32_t access;
	uint64_t iova; /* address of the first byte as requests name it */
	uint64_t host;
	uint64_t length;
};
int tpt_insert_run(struct tpt *tpt, const struct tpt_region *region, struct hdl_key *key);

/* A region of every address, for its owner's own requests: what is read from it is zeroes, what is
 * written to it is dropped.
 * @host: two pages of 2^@page_shift bytes, of zeroes that stay so and of bytes that anybody may
 * write to. */
int tpt_insert_null(struct tpt *tpt, uint32_t pd, uint64_t host, uint8_t page_shift,
                    struct hdl_key *key);

/* A region, or with @type TPT_ISCSI a task entry named @cookie (addresses count from 0), over a
 * page list. Pages that the length does not reach are ignored. */
int tpt_insert_pages(struct tpt *tpt, uint32_t pd, enum tpt_type type, uint64_t cookie,
                     const struct hdl_register *reg, struct hdl_key *key);

/* An entry that is not valid yet: a window (@max_pages 0), or a region or task entry with room for
 * @max_pages to register by work request. */
int tpt_insert_empty(struct tpt *tpt, uint32_t pd, enum tpt_type type, uint32_t max_pages,
                     struct hdl_key *key);

/* Figure 14: another region over the table (or run) of the valid region @of, at the same addresses
 * or from 0. -HDL_ESTALE @of is not valid or out of date; -HDL_EINVAL not a region, or one
 * registered by work request, whose table changes; -HDL_EACCES writing or reading is asked for and
 * @of cannot itself; -HDL_ENOMEM. */
int tpt_insert_shared(struct tpt *tpt, struct hdl_key of, uint32_t pd, uint32_t access,
                      struct hdl_key *key);

/* The region of @key's index, one run of memory registered by call, becomes @region with the same
 * key. Then wait for the guards before what was behind it is reused. As tpt_insert_run(), and
 * -HDL_ESTALE no such entry or memory that has gone; -HDL_ENOTSUP over a page list or registered by
 * work request; -HDL_EBUSY windows are bound to it. A refusal changes nothing. */
int tpt_replace_run(struct tpt *tpt, struct hdl_key key, const struct tpt_region *region);

/* HDL_OP_REGISTER: the entry of @key's index becomes valid with @key's instance and @reg's pages.
 * No allocation: the room was kept by tpt_insert_empty(). HDL_DETAIL_NOT_VALID no such entry; _TYPE
 * not from tpt_insert_empty(); _PD; _BUSY valid already, or windows are bound to it; _PAGES the
 * list does not fit; _BOUNDS the addresses wrap; _ACCESS the rights are contradictory. For a task
 * entry @reg->iova is the cookie. After an invalidation, wait for the guards first. */
enum hdl_detail tpt_register(struct tpt *tpt, struct hdl_key key, uint32_t pd,
                             const struct hdl_register *reg);

/* Bind the window of @key's index (any instance in @key becomes its new one) to a range of @region,
 * which is checked like figure 15: valid, a region, same domain, instance, bounds, rights, (g)
 * binding allowed. The rights of figure 15 (f) are what the owner itself may do: local read for
 * remote read, local write for remote write, both for atomics.
 * @qpn 0: for every queue pair of the domain. The window is judged first: HDL_DETAIL_NOT_VALID no
 * such entry, _TYPE, _PD, _BUSY it is bound and not @rebind, _ACCESS other rights than REMOTE_*,
 * ONE_TOUCH, ZERO_BASED. A refusal changes nothing. */
struct tpt_bind {
	struct hdl_key key;
	struct hdl_key region;
	uint32_t pd;
	uint32_t qpn;
	uint32_t access;
	uint64_t addr;
	uint64_t length;
	bool rebind;
};
enum hdl_detail tpt_bind(struct tpt *tpt, const struct tpt_bind *bind);

/* Make the entry say no: unbind a window, invalidate a region that was registered by work request,
 * end a task. @pd and
 * @qpn are the asker's; @qpn 0 is the owner itself, not a request; @exact: the instance must match.
 * In this order: HDL_DETAIL_NOT_VALID; _TYPE a region registered by call, which can only be
 * removed, or a request for a task entry or for a window that is open to every queue pair (type 1);
 * _PD; _QP a window bound for another queue pair; _INSTANCE; _BUSY a region with windows bound. */
enum hdl_detail tpt_invalidate(struct tpt *tpt, struct hdl_key key, uint32_t pd, uint32_t qpn,
                               bool exact);

/* Two steps to remove an entry, whatever instance @key has: tpt_retire() makes it say no for good;
 * after every guard has left, tpt_free() gives the index and the translation table back.
 * HDL_DETAIL_NOT_VALID: no such entry, or retired already; HDL_DETAIL_BUSY: windows are bound to
 * it. */
enum hdl_detail tpt_retire(struct tpt *tpt, struct hdl_key key);
void tpt_free(struct tpt *tpt, struct hdl_key key);

/* The current key of an index, whatever instance is asked with. */
struct hdl_key tpt_current(const struct tpt *tpt, struct hdl_key key);
/* A fresh, unguessable instance for the index of @key, different from its current one and the 254
 * before that. */
struct hdl_key tpt_fresh(const struct tpt *tpt, struct hdl_key key);

/* Table D of figure 18B, for a tagged segment that passed tpt_check(). Where the entry was taken
 * away since, a segment with the Last bit gets TPT_TERMINATE: of two messages that race for a
 * one-touch entry, one is refused. */
struct tpt_segment {
	bool last;           /* the DDP Last bit */
	uint32_t sn;         /* sequence number of the segment's last byte */
	uint32_t next_sn;    /* next expected TCP byte, once the segment is counted in */
	uint32_t window_end; /* first byte past the TCP receive window */
};
enum tpt_action {
	TPT_PLACE,            /* place the payload */
	TPT_PLACE_INVALIDATE, /* the entry is no longer valid; place the payload */
	TPT_PLACE_TOUCHED,    /* marked touched, the sequence number is stored; place the payload */
	TPT_TERMINATE,        /* the entry is no longer valid; terminate the stream */
	TPT_DROP              /* drop the segment */
};
enum tpt_action tpt_touch(struct tpt *tpt, struct hdl_key key, const struct tpt_segment *segment);
/* The incoming byte stream is complete up to, not including, @next_sn: a touched entry whose stored
 * sequence number lies before it becomes invalid. True if it did. */
bool tpt_line_up(struct tpt *tpt, struct hdl_key key, uint32_t next_sn);

/* Seed 003 SegmentTableUpdate: every valid region whose memory overlaps the host range, and the
 * windows on it, say HDL_DETAIL_GONE from now on. Calls @each (may be NULL, must not call back)
 * with the key of each. Returns how many. Looks at every entry and every page of every list. */
uint32_t tpt_segment_gone(struct tpt *tpt, uint64_t host, uint64_t length,
                          void (*each)(void *context, struct hdl_key key), void *context);

/* The memory behind @key, or behind the region of the window @key, turned out to be gone: that
 * region and the windows on it say HDL_DETAIL_GONE from now on. True if it was not known before. A
 * key that is out of date changes nothing. */
bool tpt_mark_gone(struct tpt *tpt, struct hdl_key key);

/* Count a verdict that a request ended with. */
static inline void tpt_count(struct tpt *tpt, enum hdl_detail verdict)
{
	atomic_fetch_add_explicit(&tpt->verdicts[verdict], 1, memory_order_relaxed);
}

#endif
