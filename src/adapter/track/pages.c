/* The memory of tracked ranges. A process may have 65,530 mappings (vm.max_map_count) and many more
 * ranges, so those of one size share a slab: a memory file, its alias and its twins, one mapping
 * each. The first slab of a size has one room, each of the next twice as many as the one before.
 * The view of a range is a mapping of its own; but the kernel joins it with that of the range
 * beside it if their rooms are side by side as well, which rooms and addresses taken one after the
 * other are. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <heddle/error.h>

#include "adapter/track/track.h"
#include "base/bitmap.h"
#include "base/fd.h"
#include "base/memfile.h"

#define PAGES_CLASSES    19u           /* 2^0 to 2^18 pages: up to TRACK_MAX_BYTES */
#define PAGES_ODD        PAGES_CLASSES /* other sizes: one room to a slab */
#define PAGES_SLAB_BYTES (256ull << 20)
_Static_assert(TRACK_MAX_BYTES >> 12 == 1u << (PAGES_CLASSES - 1), "the largest class");

struct track_slab {
	struct track_slab *next; /* of the same size */
	unsigned char *alias, *twins;
	uint64_t bytes; /* of a room */
	uint32_t rooms, used, from;
	uint32_t size; /* which list it is in */
	int fd;
	struct bitmap map; /* of used rooms */
	uint64_t words[];
};

static pthread_mutex_t pages_lock = PTHREAD_MUTEX_INITIALIZER;
static struct track_slab *slabs[PAGES_CLASSES + 1];

void track_pages_in_child(void)
{
	pthread_mutex_init(&pages_lock, NULL);
	for (uint32_t size = 0; size <= PAGES_ODD; size++) {
		for (struct track_slab *slab = slabs[size]; slab != NULL; slab = slab->next)
			close(slab->fd);
		slabs[size] = NULL;
	}
}

static uint32_t pages_size(uint64_t bytes)
{
	uint64_t pages = bytes / TRACK_PAGE;
	return (pages & (pages - 1)) == 0 ? (uint32_t)__builtin_ctzll(pages) : PAGES_ODD;
}

static void slab_free(struct track_slab *slab)
{
	uint64_t bytes = slab->rooms * slab->bytes;
	if (slab->alias != NULL)
		munmap(slab->alias, bytes);
	if (slab->twins != NULL)
		munmap(slab->twins, bytes);
	if (slab->fd >= 0)
		close(slab->fd);
	free(slab);
}

static unsigned char *slab_map(const struct track_slab *slab, int flags, int fd)
{
	void *map = mmap(NULL, slab->rooms * slab->bytes, PROT_READ | PROT_WRITE,
	                 flags | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED)
		return NULL;
	/* A program that locks all of its memory does not mean every room of a slab. */
	munlock(map, slab->rooms * slab->bytes);
	return map;
}

static struct track_slab *slab_make(uint32_t size, uint64_t bytes, uint32_t rooms)
{
	struct track_slab *slab =
	        calloc(1, sizeof(*slab) + BITMAP_WORDS(rooms) * sizeof(slab->words[0]));
	if (slab == NULL)
		return NULL;
	slab->bytes = bytes;
	slab->rooms = rooms;
	slab->size = size;
	bitmap_init(&slab->map, slab->words, rooms);
	slab->fd = fd_aside(memfile_make("heddle-tracked", rooms * bytes));
	if (slab->fd >= 0)
		slab->alias = slab_map(slab, MAP_SHARED, slab->fd);
	if (slab->alias != NULL)
		slab->twins = slab_map(slab, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	if (slab->twins == NULL) {
		slab_free(slab);
		return NULL;
	}
	madvise(slab->alias, rooms * bytes, MADV_DONTFORK);
	return slab;
}

/* One with a free room. With the lock. */
static struct track_slab *slab_find(uint32_t size, uint64_t bytes)
{
	uint64_t rooms = 1;
	for (struct track_slab *at = slabs[size]; at != NULL && size != PAGES_ODD; at = at->next) {
		if (at->used < at->rooms)
			return at;
		rooms = 2ull * at->rooms > rooms ? 2ull * at->rooms : rooms;
	}
	if (rooms * bytes > PAGES_SLAB_BYTES)
		rooms = bytes < PAGES_SLAB_BYTES ? PAGES_SLAB_BYTES / bytes : 1;
	struct track_slab *slab = slab_make(size, bytes, (uint32_t)rooms);
	if (slab == NULL)
		return NULL;
	slab->next = slabs[size];
	slabs[size] = slab;
	return slab;
}

int track_pages_take(struct track *track, void *at)
{
	pthread_mutex_lock(&pages_lock);
	struct track_slab *slab = slab_find(pages_size(track->bytes), track->bytes);
	if (slab == NULL) {
		pthread_mutex_unlock(&pages_lock);
		return -HDL_ENOMEM;
	}
	size_t room = bitmap_find_clear(&slab->map, slab->from);
	bitmap_set(&slab->map, room);
	slab->from = (uint32_t)((room + 1) % slab->rooms);
	slab->used++;
	pthread_mutex_unlock(&pages_lock);
	track->slab = slab;
	track->alias = slab->alias + room * slab->bytes;
	track->twins = slab->twins + room * slab->bytes;
	void *view = mmap(at, track->bytes, PROT_READ | PROT_WRITE,
	                  MAP_SHARED | MAP_NORESERVE | (at != NULL ? MAP_FIXED : 0), slab->fd,
	                  (off_t)(room * slab->bytes));
	if (view == MAP_FAILED)
		return -HDL_ENOMEM;
	madvise(view, track->bytes, MADV_DONTFORK);
	track->view = view;
	return 0;
}

bool track_pages_clear(struct track *track, uint64_t page, uint64_t count)
{
	const struct track_slab *slab = track->slab;
	/* madvise() refuses to do this by a mapping that is locked. */
	return fallocate(slab->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	                 track->alias - slab->alias + (off_t)(page * TRACK_PAGE),
	                 (off_t)(count * TRACK_PAGE)) == 0;
}

void track_pages_give(struct track *track, bool whole)
{
	struct track_slab *slab = track->slab;
	if (slab == NULL)
		return;
	pthread_mutex_lock(&pages_lock);
	bool last = slab->used == 1 && whole;
	if (!last) /* the next one finds zeroes */
		whole = track_pages_clear(track, 0, track->pages) && whole;
	if (!last)
		madvise(track->twins, slab->bytes, MADV_DONTNEED);
	track->slab = NULL;
	if (!whole && !last) { /* the room is lost, and with it the slab */
		pthread_mutex_unlock(&pages_lock);
		return;
	}
	bitmap_clear(&slab->map, (size_t)(track->alias - slab->alias) / slab->bytes);
	slab->used--;
	if (last) {
		struct track_slab **at = &slabs[slab->size];
		while (*at != slab)
			at = &(*at)->next;
		*at = slab->next;
		slab_free(slab);
	}
	pthread_mutex_unlock(&pages_lock);
}
