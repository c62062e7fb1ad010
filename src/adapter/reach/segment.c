/* Memory that peers can map: the owner's side. */
#include "adapter/reach/segment.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

/* --- watching for munmap() --- */

int segment_watch(struct segments *segments)
{
	/* Memory is registered for write protection, and nothing is ever protected: so no access
	 * faults, and only the events are left. */
	struct uffdio_api api = {.api = UFFD_API,
	                         .features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |
	                                     UFFD_FEATURE_PAGEFAULT_FLAG_WP |
	                                     UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
	if (segments->watch >= 0)
		return segments->watch;
	int fd = fd_aside(
	        (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) != 0) {
		fd_close(fd);
		fd = -1;
	}
	return segments->watch = fd;
}

void segment_unwatch(struct segments *segments)
{
	if (segments->watch >= 0)
		fd_close(segments->watch);
	segments->watch = -1;
}

/* Where it is now, no segment names it. */
static struct span forget_remapped(int watch, const struct uffd_msg *msg)
{
	struct uffdio_range to = {msg->arg.remap.to, msg->arg.remap.len};
	ioctl(watch, UFFDIO_UNREGISTER, &to);
	return (struct span){msg->arg.remap.from, msg->arg.remap.len};
}

bool segment_hear(int watch, struct span *range)
{
	struct uffd_msg msg;
	while (syscall(SYS_read, watch, &msg, sizeof(msg)) == (long)sizeof(msg)) {
		if (msg.event == UFFD_EVENT_UNMAP)
			*range = (struct span){msg.arg.remove.start,
			                       msg.arg.remove.end - msg.arg.remove.start};
		else if (msg.event == UFFD_EVENT_REMAP)
			*range = forget_remapped(watch, &msg);
		else
			continue;
		return true;
	}
	return false;
}

/* If that fails, another adapter of this process watches the memory, or it is of a kind that cannot
 * be watched. */
static void watch_begin(const struct segments *segments, struct segment_own *own)
{
	struct uffdio_register range = {.range = {own->segment.addr, own->segment.length},
	                                .mode = UFFDIO_REGISTER_MODE_WP};
	if (segments->watch >= 0 && !own->watched)
		own->watched = ioctl(segments->watch, UFFDIO_REGISTER, &range) == 0;
}

/* A child that was made without fork handlers may keep the descriptor, and with it what it watches,
 * for a while: munmap() would wait for somebody to read of it. */
static void watch_end(const struct segments *segments, const struct segment_own *own)
{
	struct uffdio_range range = {own->segment.addr, own->segment.length};
	if (segments->watch >= 0 && own->watched)
		ioctl(segments->watch, UFFDIO_UNREGISTER, &range);
}

/* --- segments --- */

static bool segment_overlap(const struct segment *s, uint64_t addr, uint64_t length)
{
	return s->addr <= addr ? addr - s->addr < s->length : s->addr - addr < length;
}

static bool segment_holds(const struct segment *s, uint64_t addr, uint64_t length)
{
	return addr >= s->addr && addr - s->addr <= s->length &&
	       length <= s->length - (addr - s->addr);
}

/* Do both map every address that they share to the same place in the same file? */
static bool same_file(const struct segment *a, const struct segment *b)
{
	return a->dev == b->dev && a->inode == b->inode &&
	       a->addr - a->offset == b->addr - b->offset && a->writable == b->writable;
}

/* Where the segments of all adapters are, for those who hold no lock. A place is taken from the
 * moment before a segment is shown to peers until the moment after. */
#define LIVES_MAX 1024u
static struct {
	_Atomic uint64_t end; /* 0: free */
	_Atomic uint64_t addr;
} lives[LIVES_MAX];
static _Atomic uint32_t lives_top;     /* one past the last place that was ever taken */
static _Atomic uint32_t lives_nowhere; /* segments without a place: there were too many */

static uint32_t live_begin(const struct segment *s)
{
	for (uint32_t i = 0; i < LIVES_MAX; i++) {
		uint64_t free_place = 0;
		/* All addresses, until the right one is there. */
		if (!atomic_compare_exchange_strong(&lives[i].end, &free_place, UINT64_MAX))
			continue;
		atomic_store(&lives[i].addr, s->addr);
		atomic_store(&lives[i].end, s->addr + s->length);
		uint32_t top = atomic_load(&lives_top);
		while (top < i + 1 && !atomic_compare_exchange_weak(&lives_top, &top, i + 1))
			;
		return i;
	}
	atomic_fetch_add(&lives_nowhere, 1);
	return LIVES_MAX;
}

static void live_end(uint32_t place)
{
	if (place == LIVES_MAX) {
		atomic_fetch_sub(&lives_nowhere, 1);
		return;
	}
	atomic_store(&lives[place].addr, 0);
	atomic_store(&lives[place].end, 0);
}

bool segment_lives(uint64_t addr, uint64_t length)
{
	if (atomic_load(&lives_nowhere) > 0)
		return true;
	uint32_t top = atomic_load(&lives_top);
	for (uint32_t i = 0; i < top; i++) {
		uint64_t begin = atomic_load(&lives[i].addr), end = atomic_load(&lives[i].end);
		if (end != 0 && addr < end && begin < addr + length)
			return true;
	}
	return false;
}

/* Let peers see what slot @index holds now. */
static void segment_publish(struct segments *segments, uint32_t index)
{
	struct segment_table *table = segments->table;
	uint64_t words[SEGMENT_WORDS];
	uint64_t version = atomic_load_explicit(&table->version, memory_order_relaxed);
	memcpy(words, &segments->own[index].segment, sizeof(words));
	/* V1: odd first, even last; pairs with V2 in reach.c. */
	atomic_store_explicit(&table->version, version + 1, memory_order_relaxed);
	for (unsigned i = 0; i < SEGMENT_WORDS; i++)
		atomic_store_explicit(&table->slots[index].words[i], words[i],
		                      memory_order_release);
	atomic_store_explicit(&table->version, version + 2, memory_order_release);
}

/* Close our descriptor, unless the program has closed it and the number has been reused. */
static void close_own(const struct segment *s)
{
	uint64_t dev, inode;
	if (file_in_memory(s->fd, &dev, &inode) && dev == s->dev && inode == s->inode)
		fd_close(s->fd);
}

static void segment_take_out(struct segments *segments, uint32_t index)
{
	struct segment_own gone = segments->own[index];
	segments->own[index] = (struct segment_own){.segment = {.fd = -1}};
	segment_publish(segments, index);
	live_end(gone.live);
	watch_end(segments, &gone);
	close_own(&gone.segment);
}

void segment_forget(struct segments *segments, uint64_t addr, uint64_t length)
{
	for (uint32_t i = 0; i < SEGMENT_MAX; i++)
		if (segments->own[i].birth != 0 &&
		    segment_overlap(&segments->own[i].segment, addr, length))
			segment_take_out(segments, i);
}

bool segment_names(const struct segments *segments, uint64_t addr, uint64_t length)
{
	const struct segment_table *table = segments->table;
	for (uint32_t i = 0; table != NULL && i < SEGMENT_MAX; i++) {
		struct segment s;
		uint64_t words[SEGMENT_WORDS];
		for (unsigned k = 0; k < SEGMENT_WORDS; k++)
			words[k] = atomic_load_explicit(&table->slots[i].words[k],
			                                memory_order_relaxed);
		memcpy(&s, words, sizeof(s));
		if (s.generation != 0 && segment_overlap(&s, addr, length))
			return true;
	}
	return false;
}

/* Extend the segment to cover @found: the mapping has grown. */
static void segment_grow(struct segments *segments, uint32_t index, const struct segment *found)
{
	struct segment *s = &segments->own[index].segment;
	uint64_t end = s->addr + s->length, found_end = found->addr + found->length;
	if (segment_holds(s, found->addr, found->length))
		return;
	if (found->addr < s->addr) {
		s->offset = found->offset;
		s->addr = found->addr;
	}
	s->length = (found_end > end ? found_end : end) - s->addr;
	s->generation = ++segments->last_generation;
	segments->own[index].watched = false; /* not all of it */
	uint32_t former = segments->own[index].live;
	segments->own[index].live = live_begin(s);
	segment_publish(segments, index);
	live_end(former);
}

bool segment_wanted(const struct segments *segments, uint64_t addr, uint64_t length)
{
	bool room = false;
	for (uint32_t i = 0; i < SEGMENT_MAX && !room; i++)
		room = segments->own[i].birth == 0 ||
		       segment_overlap(&segments->own[i].segment, addr, length);
	return room;
}

struct segment_ref segment_take(struct segments *segments, uint64_t addr, uint64_t length,
                                const struct segment *found)
{
	uint32_t room = SEGMENT_MAX, known = SEGMENT_MAX;
	if (found == NULL) {
		segment_forget(segments, addr, length);
		return (struct segment_ref){0};
	}
	for (uint32_t i = 0; i < SEGMENT_MAX; i++) {
		struct segment_own *own = &segments->own[i];
		if (own->birth != 0 && segment_overlap(&own->segment, found->addr, found->length)) {
			if (known == SEGMENT_MAX && same_file(&own->segment, found))
				known = i;
			else
				segment_take_out(segments, i);
		}
		if (own->birth == 0 && room == SEGMENT_MAX)
			room = i;
	}
	if (known < SEGMENT_MAX) {
		fd_close(found->fd);
		segment_grow(segments, known, found);
	} else if (room < SEGMENT_MAX) {
		known = room;
		segments->own[known].segment = *found;
		segments->own[known].segment.generation = ++segments->last_generation;
		segments->own[known].birth = segments->last_generation;
		segments->own[known].watched = false;
		segments->own[known].live = live_begin(found);
		segment_publish(segments, known);
	} else {
		fd_close(found->fd);
		return (struct segment_ref){0};
	}
	watch_begin(segments, &segments->own[known]);
	segments->own[known].regions++;
	return (struct segment_ref){known, segments->own[known].birth};
}

struct segment_ref segment_share(struct segments *segments, struct segment_ref ref)
{
	struct segment_own *own = &segments->own[ref.index];
	if (ref.birth == 0 || own->birth != ref.birth)
		return (struct segment_ref){0};
	own->regions++;
	return ref;
}

void segment_give(struct segments *segments, struct segment_ref ref)
{
	struct segment_own *own = &segments->own[ref.index];
	if (ref.birth != 0 && own->birth == ref.birth && --own->regions == 0)
		segment_take_out(segments, ref.index);
}

void segment_begin(struct segments *segments, struct segment_table *table, bool with_peers)
{
	*segments = (struct segments){
	        .table = table, .pagemap = with_peers ? file_pagemap() : -1, .watch = -1};
}

void segment_close_inherited(struct segments *segments)
{
	for (uint32_t i = 0; i < SEGMENT_MAX; i++)
		if (segments->own[i].birth != 0) {
			live_end(segments->own[i].live);
			close_own(&segments->own[i].segment);
		}
	if (segments->pagemap >= 0)
		fd_close(segments->pagemap);
	segment_unwatch(segments);
	*segments = (struct segments){.pagemap = -1, .watch = -1};
}

void segment_end(struct segments *segments)
{
	if (segments->table == NULL)
		return;
	segment_forget(segments, 0, UINT64_MAX);
	if (segments->pagemap >= 0)
		fd_close(segments->pagemap);
	segments->table = NULL;
}
