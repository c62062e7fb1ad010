/* What the three kinds of trackers share: states, twins, runs of changed bytes. */
#include "adapter/track/track.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <heddle/error.h>

#include "base/clock.h"

/* The ranges, for fault handlers: they take no mutex. A handler counts itself while it looks, so
 * that a range is not freed under it. */
static _Atomic(struct track *) ranges[TRACK_MAX];
static _Atomic uint32_t range_end;
static _Atomic uint32_t lookers;

void track_lock(struct track *track, void *mask)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, mask);
	lock_take(&track->lock);
}

void track_unlock(struct track *track, const void *mask)
{
	lock_drop(&track->lock);
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}

static unsigned char *track_alias_at(const struct track *track, uint64_t page)
{
	return track->alias + page * TRACK_PAGE;
}

static unsigned char *track_twin_at(const struct track *track, uint64_t page)
{
	return track->twins + page * TRACK_PAGE;
}

/* --- opening and closing --- */

static bool range_enter(struct track *track)
{
	if (track->ops == &track_uffd)
		return true; /* it has a list of its own */
	for (uint32_t i = 0; i < TRACK_MAX; i++) {
		struct track *none = NULL;
		if (!atomic_compare_exchange_strong(&ranges[i], &none, track))
			continue;
		uint32_t end = atomic_load(&range_end);
		while (end < i + 1 && !atomic_compare_exchange_weak(&range_end, &end, i + 1))
			;
		return true;
	}
	return false;
}

static void range_leave(struct track *track)
{
	if (track->ops == &track_uffd)
		return;
	for (uint32_t i = 0; i < TRACK_MAX; i++)
		if (atomic_load(&ranges[i]) == track)
			atomic_store(&ranges[i], NULL);
	for (unsigned spins = 0; atomic_load(&lookers) > 0; spins++)
		lock_relax(spins);
}

void track_reset_states(struct track *track)
{
	memset(track->states, track->lazy ? TRACK_ABSENT : TRACK_CLEAN, track->pages);
	track->dirty_count = 0;
}

/* Take the view away; addresses of the caller's, which never become free, not even for a moment,
 * get @rights to zeroes. False: it is still there, as no mapping is left to replace it. */
static bool track_hide_view(struct track *track, int rights)
{
	if (track->view == NULL)
		return true;
	if (!track->fixed)
		return munmap(track->view, track->bytes) == 0;
	return mmap(track->view, track->bytes, rights,
	            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void track_free(struct track *track, int rights)
{
	track_pages_give(track, track_hide_view(track, rights));
	free(track->states);
	free(track->dirty);
	free(track);
}

/* The memory of a range, whose view is @at, if not NULL; -HDL_ENOMEM. */
static int track_allocate(struct track *track, void *at)
{
	track->states = calloc(track->pages, sizeof(*track->states));
	track->dirty = calloc(2 * track->pages, sizeof(*track->dirty));
	if (track->states == NULL || track->dirty == NULL)
		return -HDL_ENOMEM;
	int result = track_pages_take(track, at);
	if (result == 0)
		track_reset_states(track);
	return result;
}

/* The program may be using the view: who answers faults is there before the first. */
static int track_begin(struct track *track)
{
	if (track->lazy && !track_fetch_begin())
		return -HDL_ENOMEM;
	int result = range_enter(track) ? track->ops->begin(track) : -HDL_ENOMEM;
	if (result != 0) {
		range_leave(track);
		if (track->lazy)
			track_fetch_end(track);
	}
	return result;
}

static int track_try(enum track_kind kind, uint64_t bytes, const struct track_source *source,
                     void *at, struct track **out)
{
	static const struct track_ops *const kinds[TRACK_KINDS] = {[TRACK_UFFD] = &track_uffd,
	                                                           [TRACK_PROTECT] = &track_protect,
	                                                           [TRACK_COMPARE] =
	                                                                   &track_compare};
	struct track *track = calloc(1, sizeof(*track));
	if (track == NULL)
		return -HDL_ENOMEM;
	track->ops = kinds[kind];
	track->bytes = bytes;
	track->pages = bytes / TRACK_PAGE;
	track->grain = 1;
	track->fixed = at != NULL;
	if (source != NULL)
		track->source = *source;
	track->lazy = source != NULL && kind != TRACK_COMPARE;
	int result = track_allocate(track, at);
	if (result == 0)
		result = track_begin(track);
	if (result == 0)
		*out = track;
	else
		track_free(track, PROT_READ | PROT_WRITE);
	return result;
}

int track_open_at(enum track_kind kind, uint64_t bytes, const struct track_source *source, void *at,
                  struct track **out)
{
	int result = -HDL_EIO;
	if (bytes == 0 || bytes % TRACK_PAGE != 0 || bytes > TRACK_MAX_BYTES ||
	    (unsigned)kind >= TRACK_KINDS || (kind == TRACK_COMPARE && bytes > TRACK_COMPARE_BYTES))
		return -HDL_EINVAL;
	if (kind != TRACK_ANY)
		return track_try(kind, bytes, source, at, out);
	for (kind = TRACK_UFFD; kind < TRACK_KINDS && result == -HDL_EIO; kind++)
		if (kind != TRACK_COMPARE || bytes <= TRACK_COMPARE_BYTES)
			result = track_try(kind, bytes, source, at, out);
	return result;
}

int track_open(enum track_kind kind, uint64_t bytes, const struct track_source *source,
               struct track **out)
{
	return track_open_at(kind, bytes, source, NULL, out);
}

void track_close(struct track *track)
{
	if (track->lazy)
		track_fetch_end(track);
	range_leave(track);
	track->ops->end(track);
	track_free(track, PROT_NONE);
}

void track_watch(struct track *track, void (*stirred)(void *context), void *context)
{
	sigset_t mask;
	track_lock(track, &mask);
	track->stirred_context = context;
	track->stirred = stirred;
	track_unlock(track, &mask);
}

/* --- faults --- */

void track_stored(struct track *track, uint64_t page)
{
	assert(track->states[page] == TRACK_CLEAN);
	memcpy(track_twin_at(track, page), track_alias_at(track, page), TRACK_PAGE);
	track->states[page] = TRACK_DIRTY;
	track->dirty[track->dirty_count++] = (uint32_t)page;
	track_stir(track);
}

void track_stir(struct track *track)
{
	if (track->stirred != NULL)
		track->stirred(track->stirred_context);
}

void track_want(struct track *track, uint64_t page)
{
	if (track->states[page] == TRACK_ABSENT)
		track->states[page] = TRACK_FETCHING;
	track_fetch(track);
}

void track_wake(struct track *track)
{
	atomic_fetch_add(&track->fetched, 1);
	syscall(SYS_futex, &track->fetched, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Wait in a fault handler until @page is known. */
static bool await_page(struct track *track, uint64_t page, uint64_t until_ns)
{
	uint64_t until = clock_now_ns() + 2 * TRACK_FETCH_NS;
	if (until_ns < until)
		until = until_ns;
	for (;;) {
		uint32_t seen = atomic_load(&track->fetched);
		sigset_t mask;
		track_lock(track, &mask);
		bool known = track->states[page] >= TRACK_CLEAN;
		if (!known)
			track_want(track, page);
		track_unlock(track, &mask);
		if (known)
			return true;
		uint64_t now = clock_now_ns();
		if (now >= until)
			return false;
		struct timespec nap = {.tv_nsec = until - now < 100000000 ? (long)(until - now)
		                                                          : 100000000};
		syscall(SYS_futex, &track->fetched, FUTEX_WAIT_PRIVATE, seen, &nap, NULL, 0);
	}
}

static bool fault_in(struct track *track, uintptr_t address, bool may_wait)
{
	uint64_t page = (address - (uintptr_t)track->view) / TRACK_PAGE;
	sigset_t mask;
	bool resolved = true;
	atomic_fetch_add_explicit(&track->faults, 1, memory_order_relaxed);
	track_lock(track, &mask);
	uint8_t before = track->states[page];
	if (before == TRACK_CLEAN) {
		track_stored(track, page);
		resolved = track->ops->open(track, page, 1);
	}
	track_unlock(track, &mask);
	if (before >= TRACK_CLEAN)
		return resolved; /* DIRTY: another thread was faster */
	return may_wait && await_page(track, page, UINT64_MAX);
}

bool track_fault(uintptr_t address, bool may_wait)
{
	bool resolved = false;
	int saved = errno;
	atomic_fetch_add(&lookers, 1);
	uint32_t end = atomic_load(&range_end);
	for (uint32_t i = 0; i < end; i++) {
		struct track *track = atomic_load(&ranges[i]);
		if (track == NULL || track->ops != &track_protect ||
		    address - (uintptr_t)track->view >= track->bytes)
			continue;
		resolved = fault_in(track, address, may_wait);
		break;
	}
	atomic_fetch_sub(&lookers, 1);
	errno = saved;
	return resolved;
}

void track_in_child(void)
{
	for (uint32_t i = 0; i < TRACK_MAX; i++)
		atomic_store(&ranges[i], NULL);
	atomic_store(&lookers, 0);
	track_pages_in_child();
	track_fetch_in_child();
	track_uffd_in_child();
}

/* --- collecting --- */

struct taken {
	uint64_t page, count;
	unsigned char now[TRACK_BATCH * TRACK_PAGE];
	unsigned char twin[TRACK_BATCH * TRACK_PAGE]; /* as the peer knows them */
};

/* Take the next pages that follow each other out of the list of dirty ones. */
static bool track_take_pages(struct track *track, uint64_t *next, uint64_t end, struct taken *taken)
{
	sigset_t mask;
	if (*next >= end)
		return false;
	track_lock(track, &mask);
	taken->page = track->dirty[*next];
	taken->count = 0;
	while (*next < end && taken->count < TRACK_BATCH &&
	       track->dirty[*next] == taken->page + taken->count) {
		(*next)++;
		taken->count++;
	}
	memset(track->states + taken->page, TRACK_CLEAN, taken->count);
	atomic_store(&track->fresh, true);
	track_stir(track);
	/* First nobody can store any more; then the copy has every store that has happened. */
	if (!track->ops->protect(track, taken->page, taken->count))
		for (uint64_t i = 0; i < taken->count; i++) {
			/* They stay writable, and are looked at again the next time. */
			track->states[taken->page + i] = TRACK_DIRTY;
			track->dirty[track->dirty_count++] = (uint32_t)(taken->page + i);
		}
	size_t bytes = taken->count * TRACK_PAGE;
	memcpy(taken->now, track_alias_at(track, taken->page), bytes);
	memcpy(taken->twin, track_twin_at(track, taken->page), bytes);
	if (track->states[taken->page] == TRACK_DIRTY)
		memcpy(track_twin_at(track, taken->page), taken->now, bytes);
	track_unlock(track, &mask);
	return true;
}

/* The peer does not have all of @taken yet: its twin says what it has. */
static void track_give_back(struct track *track, const struct taken *taken)
{
	sigset_t mask;
	track_lock(track, &mask);
	for (uint64_t i = 0; i < taken->count; i++) {
		const unsigned char *now = taken->now + i * TRACK_PAGE,
		                    *has = taken->twin + i * TRACK_PAGE;
		uint64_t page = taken->page + i;
		unsigned char *twin = track_twin_at(track, page);
		if (memcmp(now, has, TRACK_PAGE) == 0)
			continue;
		if (track->states[page] == TRACK_CLEAN) {
			track_stored(track, page);
			track->ops->open(track, page, 1);
		}
		/* Other bytes of the twin may have come from the peer meanwhile. */
		for (uint64_t k = 0; k < TRACK_PAGE; k++)
			if (now[k] != has[k])
				twin[k] = has[k];
	}
	track_unlock(track, &mask);
}

/* The next run of changed bytes from *@at on; false: none. */
static bool track_next_run(const struct taken *taken, bool words, uint64_t *at, uint64_t *bytes)
{
	uint64_t all = taken->count * TRACK_PAGE, start = *at, same = 0;
	while (start < all && taken->now[start] == taken->twin[start])
		start++;
	if (words) {
		*at = start & ~(uint64_t)(TRACK_GAP - 1);
		*bytes = TRACK_GAP;
		return start < all;
	}
	uint64_t end = start;
	for (uint64_t i = start; i < all && same < TRACK_GAP; i++) {
		same = taken->now[i] == taken->twin[i] ? same + 1 : 0;
		if (same == 0)
			end = i + 1;
	}
	*at = start;
	*bytes = end - start;
	return start < all;
}

int track_collect(struct track *track,
                  int (*sink)(void *context, uint64_t offset, const void *data, uint64_t bytes),
                  void *context)
{
	struct taken *taken = malloc(sizeof(*taken));
	sigset_t mask;
	int result = 0;
	if (taken == NULL)
		return -HDL_ENOMEM;
	track_lock(track, &mask);
	uint64_t next = 0, end = track->dirty_count;
	track_unlock(track, &mask);
	while (result >= 0 && track_take_pages(track, &next, end, taken)) {
		uint64_t at = 0, bytes;
		while (result >= 0 && track_next_run(taken, track->words, &at, &bytes)) {
			result = sink(context, taken->page * TRACK_PAGE + at, taken->now + at,
			              bytes);
			if (result >= 0)
				memcpy(taken->twin + at, taken->now + at, bytes);
			at += bytes;
		}
		if (result < 0)
			track_give_back(track, taken);
	}
	/* What was not taken, and what has been stored meanwhile. */
	track_lock(track, &mask);
	track->dirty_count -= next;
	memmove(track->dirty, track->dirty + next, track->dirty_count * sizeof(*track->dirty));
	track_unlock(track, &mask);
	free(taken);
	return result < 0 ? result : 0;
}

bool track_is_dirty(struct track *track)
{
	sigset_t mask;
	track_lock(track, &mask);
	bool dirty = track->dirty_count > 0;
	track_unlock(track, &mask);
	return dirty;
}

bool track_is_calm(struct track *track)
{
	bool expires = track->lazy && atomic_load(&track->fresh);
	return track->ops != &track_compare && !expires && !track_is_dirty(track);
}

/* --- the peer's bytes --- */

/* Put the peer's word into a page that the application may be storing to: bytes that differ from
 * the twin are the application's. */
static void place_word(_Atomic uint64_t *word, uint64_t twin, uint64_t theirs)
{
	uint64_t now = atomic_load_explicit(word, memory_order_relaxed), merged;
	do {
		merged = now;
		for (unsigned shift = 0; shift < 64; shift += 8) {
			uint64_t byte = 0xffull << shift;
			if (((now ^ twin) & byte) == 0)
				merged = (merged & ~byte) | (theirs & byte);
		}
	} while (!atomic_compare_exchange_weak(word, &now, merged));
}

static void place_dirty(struct track *track, uint64_t page, uint64_t from,
                        const unsigned char *data, uint64_t bytes)
{
	unsigned char *alias = track_alias_at(track, page), *twin = track_twin_at(track, page);
	for (uint64_t word = from & ~7ull; word < from + bytes; word += 8) {
		uint64_t before, after;
		memcpy(&before, twin + word, 8);
		after = before;
		for (uint64_t i = word < from ? from : word; i < word + 8 && i < from + bytes; i++)
			memcpy((unsigned char *)&after + (i - word), data + (i - from), 1);
		place_word((_Atomic uint64_t *)(void *)(alias + word), before, after);
		memcpy(twin + word, &after, 8);
	}
}

void track_place(struct track *track, uint64_t offset, const void *data, uint64_t bytes)
{
	const unsigned char *from = data;
	if (offset > track->bytes || bytes > track->bytes - offset)
		return;
	while (bytes > 0) {
		uint64_t page = offset / TRACK_PAGE, at = offset % TRACK_PAGE;
		uint64_t piece = bytes < TRACK_PAGE - at ? bytes : TRACK_PAGE - at;
		sigset_t mask;
		track_lock(track, &mask);
		uint8_t state = track->states[page];
		if (state == TRACK_DIRTY) {
			place_dirty(track, page, at, from, piece);
		} else if (state == TRACK_CLEAN || piece == TRACK_PAGE) {
			memcpy(track_alias_at(track, page) + at, from, piece);
			if (state != TRACK_CLEAN) {
				atomic_store(&track->fresh, true);
				track_stir(track);
				track->states[page] = TRACK_CLEAN;
				track->ops->show(track, page, 1);
			}
		}
		track_unlock(track, &mask);
		from += piece;
		offset += piece;
		bytes -= piece;
	}
	track_wake(track);
}

int track_prepare(struct track *track, uint64_t offset, uint64_t bytes, bool write,
                  uint64_t until_ns)
{
	if (offset > track->bytes || bytes > track->bytes - offset)
		return -HDL_EINVAL;
	for (uint64_t page = offset / TRACK_PAGE; page * TRACK_PAGE < offset + bytes; page++) {
		sigset_t mask;
		if (track->lazy && !await_page(track, page, until_ns))
			return -HDL_ETIMEDOUT;
		track_lock(track, &mask);
		if (write && track->states[page] == TRACK_CLEAN) {
			track_stored(track, page);
			track->ops->open(track, page, 1);
		}
		track_unlock(track, &mask);
		/* The kernel must find the pages in the view: it cannot resolve what is ours. */
		volatile unsigned char *byte = track->view + page * TRACK_PAGE;
		(void)*byte;
	}
	return 0;
}

void track_forget(struct track *track)
{
	sigset_t mask;
	track_lock(track, &mask);
	track->orphaned = false;
	track->ops->reset(track);
	track_unlock(track, &mask);
}

void track_expire(struct track *track)
{
	sigset_t mask;
	if (!track->lazy || track->orphaned || !atomic_exchange(&track->fresh, false))
		return;
	track_lock(track, &mask);
	for (uint64_t page = 0, count; page < track->pages; page += count + 1) {
		count = 0;
		while (page + count < track->pages && track->states[page + count] == TRACK_CLEAN)
			count++;
		if (count > 0 && track->ops->hide(track, page, count))
			memset(track->states + page, TRACK_ABSENT, count);
	}
	track_unlock(track, &mask);
}

void track_orphan(struct track *track)
{
	sigset_t mask;
	track_lock(track, &mask);
	track->orphaned = true;
	for (uint64_t page = 0; page < track->pages; page++)
		if (track->states[page] < TRACK_CLEAN) {
			track->states[page] = TRACK_CLEAN;
			memset(track_alias_at(track, page), 0, TRACK_PAGE);
			track->ops->show(track, page, 1);
		}
	track_unlock(track, &mask);
	track_wake(track);
}
