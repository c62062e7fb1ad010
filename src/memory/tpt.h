/* The protection table, of which each adapter has exactly one (MEMMGT figures 12 to 15 and 18; SAN
 * "Remote Memory Protection"). Figures cited below are those of MEMMGT.
 *
 * Every access to registered memory, local or remote, by whatever path, is checked by tpt_check().
 * An entry is one cache line. The owner (one adapter) changes entries through struct tpt. Any
 * process that maps the table may read it through a struct tpt_view: the table contains no pointers
 * of the reader's.
 *
 *   entries[capacity + 1]: 64 bytes each, with a sequence lock in each (odd: being changed; bounded
 *   retries, then "not valid")
 *   arena[arena_words]: translation tables, 64-bit page addresses and, in indirect tables, word
 *   offsets into the arena
 *
 *   entry --INLINE-->  one contiguous run of the owner's memory; no table at all
 *         --DIRECT-->  [page page page ...]                                        up to 512 pages
 *         --FIRST--->  [table table ...]  --> [page page ...]                      up to 512 x 512
 *         --SECOND-->  [list list ...] --> [table table ...] --> [page page ...]   512 x 512 x 512
 *         --NULL---->  every address: a page of zeroes to read, and one to write to
 *
 * A window has its own entry and uses the table of its region, starting at an offset, so a check
 * reads one entry.
 *
 * Guards: a thread that reads or writes memory that a check has granted is inside a struct
 * tpt_guard from before the check until after the last byte. A thread that revokes a grant
 * (deregisters, rebinds, invalidates) first makes the entry deny access, then waits until every
 * guard that was inside has left, and only then reuses the entry or its table. Nobody waits for
 * anything while inside a guard, so two adapters cannot wait for each other. */
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
#define TPT_READ_SPINS     65536u           /* then the writer is presumed dead */
#define TPT_MAX_CAPACITY   ((1u << 24) - 1) /* index 0 is never used: a zeroed key grants nothing */
#define TPT_INSTANCE_BITS  8u
#define TPT_OPEN_STEP      512u /* slots that the table grows by */
#define TPT_MIN_FREE       128u /* the table grows when it has fewer free slots to choose from */
#define TPT_UNIT_WORDS     8u   /* the arena is allocated in units of this many words */

/* Figure 13 "entry type", two bits; the fourth is an incoming aperture (incoming.h). */
enum tpt_type { TPT_REGION = 0, TPT_WINDOW = 1, TPT_ISCSI = 2, TPT_APERTURE = 3 };

/* Figure 13 "ATT control". */
enum tpt_order { TPT_INLINE, TPT_DIRECT, TPT_FIRST, TPT_SECOND, TPT_NULL };

enum tpt_flags {
	TPT_ALLOCATED = 1 << 0, /* the index is taken */
	TPT_VALID = 1 << 1,     /* figure 13 "valid entry" */
	/* Figure 13 "touch access control": touched. Not valid, too: its one touch is over. */
	TPT_TOUCHED = 1 << 2,
	TPT_GONE = 1 << 3,    /* the memory behind it has been unmapped: every access is refused */
	TPT_RETIRED = 1 << 4, /* never becomes valid again before tpt_free() */
	TPT_TOLD = 1 << 5     /* region: the owner knows that some of its memory was absent */
};

/* A snapshot of one entry, as a reader sees it. */
struct tpt_entry {
	uint32_t seq;     /* sequence lock */
	uint8_t instance; /* low byte of the key */
	uint8_t type;     /* enum tpt_type */
	uint8_t flags;    /* enum tpt_flags */
	uint8_t order;    /* enum tpt_order */
	uint64_t base;    /* first address; TPT_ISCSI: the cookie, addresses start at 0 */
	uint64_t length;
	/* INLINE: @att is the host address of the first byte. NULL: that of the page of zeroes,
	 * which the page for writing follows. Otherwise @att is the word offset of the table in the
	 * arena, and the first byte lies @att_skip bytes into the table's pages (offset in the
	 * first page, offset of the window). */
	uint64_t att;
	uint64_t att_skip;
	uint32_t pd;
	uint32_t qpn;    /* a window bound for one queue pair only, otherwise 0 */
	uint32_t link;   /* window: index of its region; region: number of windows bound */
	uint32_t ddp_sn; /* figure 13 "stored DDP sequence number" */
	uint8_t access;  /* enum hdl_access */
	uint8_t page_shift;
	/* The low bits of the key's name, which is the same for every key of the index
	 * (tpt_name()). */
	uint16_t tag;
	/* Room reserved for HDL_OP_REGISTER; 0: registered by a call, and windows. */
	uint32_t max_pages;
};
_Static_assert(sizeof(struct tpt_entry) == 64, "one cache line");

/* How entries are stored: the same 64 bytes, as words that are only read and written as a whole and
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
	/* How a key is converted to a name (tpt_name()); chosen by the owner. */
	uint32_t mul, tag_bits;
};

/* Keys. The table is dense and its first slots are used first, and a stranger must not be able to
 * guess a key from that. So the 24 bits above the instance are a name multiplied by a secret odd
 * number.
 *
 *   key     hidden name (24) | instance (8)
 *   name    index of the slot (as many bits as the table needs) | tag (the rest, 16 at most)
 *
 * Each index has one tag, drawn at random and stored in the entry, so the check reads nothing else.
 * A key of all zeroes has index 0, which is never used. */
#define TPT_NAME_MASK    0xffffffu
#define TPT_MAX_TAG_BITS 16u
static inline uint32_t tpt_name(const struct tpt_view *view, struct hdl_key key)
{
	/* 24 bits, multiplied in the high part of a word, so the overflow falls off by itself. */
	return (key.v & ~0xffu) * view->mul >> TPT_INSTANCE_BITS;
}
static inline uint32_t tpt_index(const struct tpt_view *view, struct hdl_key key)
{
	return tpt_name(view, key) >> view->tag_bits;
}
/* For a table of @capacity slots. */
static inline uint32_t tpt_tag_bits(uint32_t capacity)
{
	uint32_t bits = 0;
	while (bits < TPT_MAX_TAG_BITS && capacity - 1 <= TPT_NAME_MASK >> (bits + 1))
		bits++;
	return bits;
}

struct tpt_config {
	uint32_t capacity;    /* entries; need not be a power of two */
	uint64_t arena_words; /* for translation tables, rounded down to TPT_UNIT_WORDS */
};

/* Which units of the arena are in use. */
#define TPT_TABLE_UNITS (TPT_FANOUT / TPT_UNIT_WORDS) /* the largest table */
struct tpt_arena {
	uint64_t *words;
	uint32_t *refs; /* per unit: references to the table whose root starts there */
	struct bitmap map;
	size_t hint[TPT_TABLE_UNITS]; /* [n - 1]: no free run of n units starts before this unit */
};

/* The owner's side. Control calls take the lock themselves; readers never take it. */
struct tpt {
	struct tpt_view view;
	struct lock lock;
	struct prng prng; /* chooses the next index: keys must not be guessable */
	uint64_t secret;  /* determines the order of each index's instances, and its tag */
	uint32_t hide;    /* the inverse of view.mul: turns a name into the hidden one */
	/* Private to the implementation. */
	struct tpt_slot *slots;
	uint32_t *free_list; /* the free indices below @opened, in no order */
	uint32_t free_count;
	uint32_t opened; /* slots in use so far: the table grows into its memory step by step */
	struct tpt_arena arena;
	_Atomic uint64_t verdicts[HDL_DETAIL_COUNT];
};

/* How much memory the three parts need. @slots and @arena may be shared with readers,
 * @private_bytes never is. The caller provides them zero-filled and 64-byte aligned; memory is only
 * touched once it is needed. */
struct tpt_bytes {
	size_t slots;
	size_t arena;
	size_t private_bytes;
};
struct tpt_bytes tpt_bytes(const struct tpt_config *config);
void tpt_init(struct tpt *tpt, const struct tpt_config *config, void *slots, void *arena,
              void *private_memory, uint64_t random_seed);

/* What an entry of a peer's table granted, so that the next check takes a few instructions: while
 * the entry's word is unchanged, the grant holds (judge.h). */
struct tpt_memo {
	uint64_t word;
	uint64_t base, length; /* the whole range granted; the request was part of it */
	uint64_t host;         /* where base is in memory */
	struct hdl_key key;
	uint32_t index; /* its slot */
};

/* --- guards --- */

struct tpt_guard {
	_Alignas(64) _Atomic uint64_t seq; /* odd: inside */
};
static inline void tpt_enter(struct tpt_guard *guard)
{
	uint64_t seq = atomic_load_explicit(&guard->seq, memory_order_relaxed);
	/* G1: before any read of an entry; pairs with G2 through the entry (S1, S2 in slot.h). All
	 * four are sequentially consistent, so either the reader sees that the entry denies access,
	 * or the owner sees the reader inside. */
	atomic_exchange_explicit(&guard->seq, seq + 1, memory_order_seq_cst);
}
static inline void tpt_leave(struct tpt_guard *guard)
{
	uint64_t seq = atomic_load_explicit(&guard->seq, memory_order_relaxed);
	atomic_store_explicit(&guard->seq, seq + 1, memory_order_release); /* G3 */
}
/* G2: after the entry denies access. Has the holder of @guard left since? Call with *seen = 0
 * first, repeat until true. */
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
	TPT_LOCAL,  /* a piece of our own work request: figure 15 */
	TPT_REMOTE, /* a peer's request: figure 18 */
	TPT_TASK,   /* an iSCSI task tag: figure 17B */
	TPT_CI      /* a CI packet: APERTURE column 18 */
};

struct tpt_request {
	struct hdl_key key;
	uint8_t side;      /* enum tpt_side */
	bool windows_only; /* figure 18 (b): regions may not be used for remote access */
	uint8_t access;    /* enum hdl_access: every bit must be granted */
	uint32_t pd;
	uint32_t qpn;
	uint64_t addr;
	uint64_t length;
};

/* What was granted: a private copy of the entry and the range in it. Meaningless once the guard has
 * been left. */
struct tpt_grant {
	struct tpt_entry entry;
	uint32_t index;
	uint8_t access;  /* the access that was requested */
	uint64_t offset; /* of the first granted byte, from the start of the entry */
	uint64_t length;
};

/* Make a consistent copy of the entry of @key, whatever its instance, or of a slot. False: there is
 * none, or its owner died. */
bool tpt_read(const struct tpt_view *view, struct hdl_key key, struct tpt_entry *entry);
bool tpt_read_slot(const struct tpt_view *view, uint32_t index, struct tpt_entry *entry);

/* May @req access the memory? Returns HDL_DETAIL_NONE and fills *grant, or returns the first check
 * that fails, in the order of the figures: (a) valid (HDL_DETAIL_TOUCHED: no longer, because its
 * one touch, with this very key, is over; otherwise HDL_DETAIL_NOT_VALID; then HDL_DETAIL_GONE),
 * (b) type, (c) domain and queue pair, (d) instance, (e) bounds, (f) access; *grant is then
 * meaningless. A request of length 0 may be anywhere from the first byte to just behind the last.
 * Pure; the caller is inside a guard of the table's owner. tpt_touch() handles one-touch. */
enum hdl_detail tpt_check(const struct tpt_view *view, const struct tpt_request *req,
                          struct tpt_grant *grant);

/* Where the bytes of the grant from @skip on are in the owner's memory: up to @max runs that cover
 * at most @bytes; adjacent runs are merged. Returns the number of runs, 0 only for no bytes or a
 * broken table; *covered is the sum of their lengths. */
size_t tpt_spans(const struct tpt_view *view, const struct tpt_grant *grant, uint64_t skip,
                 uint64_t bytes, struct span *out, size_t max, uint64_t *covered);

/* --- changes, by the owner only --- */

/* The insert functions are control calls. They return 0; -HDL_EINVAL: a range that wraps or ends at
 * 2^64, unknown access rights, remote write or atomic on a region without local write, or a page
 * list that does not fit; -HDL_ENOMEM: the table or the arena is full. With HDL_ACCESS_ZERO_BASED
 * the address given for the first byte is ignored. */

/* A region of one contiguous run at @host, or an aperture, whose addresses are offsets of packets:
 * @iova is the first that is granted. */
struct tpt_region {
	uint32_t pd;
	uint32_t access;
	uint64_t iova; /* address of the first byte as used by requests */
	uint64_t host;
	uint64_t length;
	uint8_t type; /* TPT_REGION or TPT_APERTURE */
};
int tpt_insert_run(struct tpt *tpt, const struct tpt_region *region, struct hdl_key *key);

/* A region that covers every address, for the owner's own requests: it reads as zeroes, and what is
 * written to it is discarded. @host: two pages of 2^@page_shift bytes each. The first contains
 * zeroes and stays so; anybody may write to the second. */
int tpt_insert_null(struct tpt *tpt, uint32_t pd, uint64_t host, uint8_t page_shift,
                    struct hdl_key *key);

/* A region, or with @type TPT_ISCSI a task entry named @cookie (addresses start at 0), over a page
 * list. Pages beyond the length are ignored. */
int tpt_insert_pages(struct tpt *tpt, uint32_t pd, enum tpt_type type, uint64_t cookie,
                     const struct hdl_register *reg, struct hdl_key *key);

/* An entry that is not valid yet: a window (@max_pages 0), or a region or task entry with room for
 * @max_pages, to be registered by work request. */
int tpt_insert_empty(struct tpt *tpt, uint32_t pd, enum tpt_type type, uint32_t max_pages,
                     struct hdl_key *key);

/* Figure 14: another region over the table (or run) of the valid region @of, at the same addresses
 * or starting at 0. -HDL_ESTALE: @of is not valid or out of date; -HDL_EINVAL: not a region, or one
 * registered by work request, whose table changes; -HDL_EACCES: read or write access is requested
 * that @of does not have itself; -HDL_ENOMEM. */
int tpt_insert_shared(struct tpt *tpt, struct hdl_key of, uint32_t pd, uint32_t access,
                      struct hdl_key *key);

/* The region or aperture at @key's index, one run of memory registered by a call, becomes @region,
 * which has the same type, and keeps its key. The caller then waits for the guards before it reuses
 * the old memory. Returns as tpt_insert_run(), and -HDL_ESTALE: no such entry, or its memory is
 * gone; -HDL_ENOTSUP: over a page list, of another type, or registered by work request; -HDL_EBUSY:
 * windows are bound to it. A refusal changes nothing. */
int tpt_replace_run(struct tpt *tpt, struct hdl_key key, const struct tpt_region *region);

/* HDL_OP_REGISTER: the entry at @key's index becomes valid with @key's instance and @reg's pages.
 * Does not allocate: tpt_insert_empty() has reserved the room. HDL_DETAIL_NOT_VALID: no such entry;
 * _TYPE: not from tpt_insert_empty(); _PD; _ALREADY: it is valid; _BUSY: windows are bound to it;
 * _PAGES: the list does not fit; _BOUNDS: the addresses wrap; _ACCESS: the access rights are
 * contradictory. For a task entry @reg->iova is the cookie. After an invalidation, wait for the
 * guards first. */
enum hdl_detail tpt_register(struct tpt *tpt, struct hdl_key key, uint32_t pd,
                             const struct hdl_register *reg);

/* Bind the window at @key's index to a range of @region; the instance in @key becomes its new
 * instance. The region is checked as in figure 15: valid, a region, same domain, instance, bounds,
 * access, (g) binding allowed. The access of figure 15 (f) is what the owner itself may do: local
 * read for remote read, local write for remote write, both for atomics. @qpn 0: for every queue
 * pair of the domain. The window is checked first: HDL_DETAIL_NOT_VALID: no such entry; _TYPE; _PD;
 * _ALREADY: it is bound and @rebind is false; _ACCESS: access other than REMOTE_*, ONE_TOUCH,
 * ZERO_BASED. A refusal changes nothing. */
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

/* Make the entry deny access: unbind a window, invalidate a region that was registered by work
 * request, end a task. @pd and @qpn are those of the caller; @qpn 0 means the owner itself, not a
 * request. @exact: the instance must match. Checks, in this order: HDL_DETAIL_NOT_VALID; _TYPE: a
 * region registered by a call, which can only be removed, or a request for a task entry or for a
 * window that is open to every queue pair (type 1); _PD; _QP: a window bound for another queue
 * pair; _INSTANCE; _BUSY: a region with windows bound to it. */
enum hdl_detail tpt_invalidate(struct tpt *tpt, struct hdl_key key, uint32_t pd, uint32_t qpn,
                               bool exact);

/* Removing an entry, whatever instance @key has, takes two steps. tpt_retire() makes it deny access
 * for good; after every guard has left, tpt_free() releases the index and the translation table.
 * HDL_DETAIL_NOT_VALID: no such entry, or already retired; HDL_DETAIL_BUSY: windows are bound to
 * it. */
enum hdl_detail tpt_retire(struct tpt *tpt, struct hdl_key key);
void tpt_free(struct tpt *tpt, struct hdl_key key);

/* The current key of an index, whatever instance @key has. */
struct hdl_key tpt_current(const struct tpt *tpt, struct hdl_key key);
/* The key of the same index that follows @key: its instance is different from that of @key and of
 * the 254 before it. The order is secret, but repeats: who has seen all 256 knows what follows. */
struct hdl_key tpt_fresh(const struct tpt *tpt, struct hdl_key key);

/* Table D of figure 18B, for a tagged segment that passed tpt_check(). If the entry has been
 * revoked since, a segment with the Last bit gets TPT_TERMINATE: of two messages that race for a
 * one-touch entry, one is refused. */
struct tpt_segment {
	bool last;           /* the DDP Last bit */
	uint32_t sn;         /* sequence number of the segment's last byte */
	uint32_t next_sn;    /* next expected TCP byte, with this segment counted */
	uint32_t window_end; /* first byte past the TCP receive window */
};
enum tpt_action {
	TPT_PLACE,            /* place the payload */
	TPT_PLACE_INVALIDATE, /* the entry is no longer valid; place the payload */
	/* Marked as touched, the sequence number is stored; place the payload. */
	TPT_PLACE_TOUCHED,
	TPT_TERMINATE, /* the entry is no longer valid; terminate the stream */
	TPT_DROP       /* drop the segment */
};
enum tpt_action tpt_touch(struct tpt *tpt, struct hdl_key key, const struct tpt_segment *segment);
/* The incoming byte stream is complete up to, but not including, @next_sn: a touched entry whose
 * stored sequence number is before it becomes invalid. True if it did. */
bool tpt_line_up(struct tpt *tpt, struct hdl_key key, uint32_t next_sn);

/* SegmentTableUpdate of SAN: every valid region whose memory overlaps the host range, and the
 * windows on it, return HDL_DETAIL_GONE from now on. Calls @each (may be NULL, must not call back)
 * with the key of each. Returns how many. Scans every entry and every page of every list. */
uint32_t tpt_segment_gone(struct tpt *tpt, uint64_t host, uint64_t length,
                          void (*each)(void *context, struct hdl_key key), void *context);

/* Memory in the host range has been unmapped. Its pages may come back, and the rest is still there,
 * so nothing is refused: an access that finds no page fails. Calls @each, likewise, with the key of
 * each valid region of whose memory this is the first to be known absent. Returns how many. */
uint32_t tpt_segment_absent(struct tpt *tpt, uint64_t host, uint64_t length,
                            void (*each)(void *context, struct hdl_key key), void *context);

/* An access to memory behind @key, or behind the region of the window @key, found no page. True if
 * it is the first of that region. An out-of-date key changes nothing. */
bool tpt_absent(struct tpt *tpt, struct hdl_key key);

/* Count the verdict that a request ended with. */
static inline void tpt_count(struct tpt *tpt, enum hdl_detail verdict)
{
	atomic_fetch_add_explicit(&tpt->verdicts[verdict], 1, memory_order_relaxed);
}

#endif
