/* Tracked pages: a range of memory that stands for memory of another machine. The tracker knows
 * which bytes the application has stored, so that they can be sent, and fetches pages that are
 * loaded before their content is known.
 *
 *   view      what the application sees: a shared mapping of a memory file, protected
 *   alias     the same file, never protected: what the tracker reads and writes
 *   twins     for each page that is being written: its content as the peer knows it
 *
 * A page is
 *   ABSENT    its content is not known: any access waits until it has been fetched
 *   CLEAN     the peer has the same bytes, as far as we know: a store makes it DIRTY
 *   DIRTY     it has a twin; the bytes that differ have not been sent
 *
 * A store faults once, then costs nothing until the next track_collect(). There are three ways to
 * notice it (enum track_kind), behind one table.
 *
 * Faults are resolved without the drive lock, because its holder may be the thread that faults.
 * What may wait, fetching, is done by a thread of its own, for at most TRACK_FETCH_NS; then the
 * page shows what is known, or zeroes. */
#ifndef ADAPTER_TRACK_H
#define ADAPTER_TRACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

#define TRACK_PAGE          4096u
#define TRACK_MAX           1024u         /* ranges of a process, but for those of TRACK_UFFD */
#define TRACK_MAX_BYTES     (1ull << 30)  /* of one */
#define TRACK_COMPARE_BYTES (1ull << 20)  /* of one that is compared as a whole */
#define TRACK_FETCH_NS      2000000000ull /* how long a load waits for an absent page */
#define TRACK_BATCH         16u           /* pages that are collected at a time */
#define TRACK_GAP           8u            /* runs of changed bytes with a smaller gap are one run */

enum track_kind {
	TRACK_ANY,     /* the first of these that works here */
	TRACK_UFFD,    /* userfaultfd, write-protect mode, user faults only: needs no privilege */
	TRACK_PROTECT, /* mprotect and SIGSEGV: each run of pages is a mapping of its own */
	TRACK_COMPARE, /* no faults: everything has a twin and is compared; small ranges only */
	TRACK_KINDS
};

enum track_state { TRACK_ABSENT, TRACK_FETCHING, TRACK_CLEAN, TRACK_DIRTY };

struct track;
struct track_slab;

/* Read @bytes at @offset of the peer's memory to @to. Called by a thread of its own, without locks;
 * may wait. False: what is known stays. */
struct track_source {
	bool (*fetch)(void *context, uint64_t offset, void *to, uint64_t bytes);
	void *context;
};

/* How a kind works. All but begin() and end() are called with the lock of the range. */
struct track_ops {
	const char *name;
	/* Returns 0 or a negative error: it does not work here. */
	int (*begin)(struct track *track);
	void (*end)(struct track *track);
	/* Stores to these pages, which are CLEAN now, fault. */
	bool (*protect)(struct track *track, uint64_t page, uint64_t count);
	/* Stores to these pages, which are DIRTY now, do not fault. Wakes who waits for them. */
	bool (*open)(struct track *track, uint64_t page, uint64_t count);
	/* Loads from these pages do not fault any more; they are CLEAN. Wakes who waits. */
	bool (*show)(struct track *track, uint64_t page, uint64_t count);
	/* These pages, which are ABSENT now, cannot be loaded. Only where pages may be absent. */
	bool (*hide)(struct track *track, uint64_t page, uint64_t count);
	/* Nothing is known of the memory any more: set all states, and protect what follows from
	 * them. */
	void (*reset)(struct track *track);
};

struct track {
	const struct track_ops *ops;
	struct track_slab *slab; /* pages.c: of alias and twins */
	unsigned char *view, *alias, *twins;
	uint64_t bytes, pages;
	struct track_source source;
	bool fixed;    /* the addresses of the view are the caller's */
	bool lazy;     /* pages may be absent: there is a source, and a load can be noticed */
	bool words;    /* what changed is collected by aligned words of TRACK_GAP bytes */
	bool orphaned; /* there is nobody to fetch from any more */
	/* Signals are blocked while it is held: a fault in a handler of the same thread would wait
	 * for ever. */
	struct lock lock;
	uint8_t *states; /* enum track_state */
	/* The pages that are DIRTY, in the order of their first stores. Twice as long as the range:
	 * while it is collected, a page may be in it again. */
	uint32_t *dirty;
	uint64_t dirty_count;
	uint64_t grain; /* TRACK_PROTECT: pages opened at a time; more when mappings run out */
	_Atomic uint32_t fetched; /* futex: counts pages that have been fetched */
	/* Some page is FETCHING: it is in the list of fetch.c; or it is being closed. */
	_Atomic bool wanted;
	struct track *wanted_next;
	/* Called when there is something to collect or to expire again; may be NULL. From fault
	 * handlers, with the lock: nothing but atomics. Set by track_watch(). */
	void (*stirred)(void *context);
	void *stirred_context;
	_Atomic bool fresh; /* some page became CLEAN since track_expire() */
	_Atomic uint64_t faults, fetches, misses;
};

/* Track @bytes, a multiple of TRACK_PAGE. With @source every page is ABSENT at first, else CLEAN
 * and zero. Returns 0; -HDL_EINVAL; -HDL_ENOMEM, also when TRACK_MAX is reached or no mapping is
 * left; -HDL_EIO this kind does not work here. */
int track_open(enum track_kind kind, uint64_t bytes, const struct track_source *source,
               struct track **out);
/* The same, with the view at @at, in place of @bytes that the caller has mapped there. The
 * addresses stay the caller's and cannot be accessed after track_close(). If the call fails, zeroed
 * memory is there. */
int track_open_at(enum track_kind kind, uint64_t bytes, const struct track_source *source, void *at,
                  struct track **out);
/* Call @stirred from now on. */
void track_watch(struct track *track, void (*stirred)(void *context), void *context);
/* No thread may use the view any more. */
void track_close(struct track *track);

/* Call @sink for every run of bytes that has changed since it was collected last; or, with
 * track->words, for every aligned word of which a byte has. Once @sink
 * returns a negative value it is not called again, that run and the rest stay changed, and the
 * value is returned. One thread at a time. */
int track_collect(struct track *track,
                  int (*sink)(void *context, uint64_t offset, const void *data, uint64_t bytes),
                  void *context);
/* Has anything been stored? Comparing, one cannot know before collecting. */
bool track_is_dirty(struct track *track);
/* Is there nothing to collect and nothing to expire, until it is stirred? Never, if it compares. */
bool track_is_calm(struct track *track);
/* The peer's memory is @data at @offset. Bytes that were stored and not collected stay. ABSENT
 * pages that are not covered as a whole stay absent. */
void track_place(struct track *track, uint64_t offset, const void *data, uint64_t bytes);
/* Open pages for system calls: fetch what is absent and, with @write, make them DIRTY. Waits for
 * each page until @until_ns, and twice TRACK_FETCH_NS at most. Returns 0; -HDL_EINVAL @offset and
 * @bytes exceed the range; -HDL_ETIMEDOUT. */
int track_prepare(struct track *track, uint64_t offset, uint64_t bytes, bool write,
                  uint64_t until_ns);
/* The range stands for other memory from now on: nothing is known of it, and nothing to be sent. */
void track_forget(struct track *track);
/* What was fetched is old: pages that are CLEAN become ABSENT, where loads can be noticed. */
void track_expire(struct track *track);
/* The peer has gone: absent pages show zeroes, and nobody waits for one any more. */
void track_orphan(struct track *track);

/* fault.c has met a fault at @address. Was it a store to, or a load from a tracked page, and may
 * the access be repeated? @may_wait: the thread may wait for an absent page. */
bool track_fault(uintptr_t address, bool may_wait);
/* In a child of fork(): the views are gone, and the threads. */
void track_in_child(void);

/* --- for the kinds --- */
extern const struct track_ops track_uffd, track_protect, track_compare;
/* All pages ABSENT or CLEAN, nothing DIRTY. With the lock. */
void track_reset_states(struct track *track);
/* Wake fault handlers that wait for pages. */
void track_wake(struct track *track);
void track_lock(struct track *track, void *mask);
void track_unlock(struct track *track, const void *mask);
/* A store to @page. With the lock. */
void track_stored(struct track *track, uint64_t page);
/* An access to an ABSENT page: ask for it. With the lock. */
void track_want(struct track *track, uint64_t page);
/* Something became CLEAN or DIRTY. */
void track_stir(struct track *track);
/* pages.c: memory for the range, with the view at @at; NULL: anywhere. Returns 0 or -HDL_ENOMEM.
 * And give it back, but for the view; @whole: nobody can reach it by the view any more. Else it is
 * never used again. */
int track_pages_take(struct track *track, void *at);
void track_pages_give(struct track *track, bool whole);
/* All zeroes, and no page of it in the file, however the program has locked its memory. */
bool track_pages_clear(struct track *track, uint64_t page, uint64_t count);
void track_pages_in_child(void);
/* fetch.c: start the thread that fetches, before anything can be wanted. False: it cannot be
 * started. And end it: nothing of @track is fetched any more. */
bool track_fetch_begin(void);
void track_fetch_end(struct track *track);
/* @track is wanted: fetch what is. */
void track_fetch(struct track *track);
void track_fetch_in_child(void);
void track_uffd_in_child(void);

#endif
