/* Where apertures keep what may have to be sent again. Each has room for HDL_APERTURE_KEPT packets:
 * address space, of which only what is used costs memory. A process may have 65,530 mappings
 * (vm.max_map_count) and HDL_MAX_APERTURES apertures, so many of these rooms share a mapping: the
 * first has one, each of the next twice as many as the one before. See aperture.h. */
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"

#define KEPT_ROOM_BYTES (HDL_APERTURE_KEPT_BYTES + HDL_APERTURE_KEPT * sizeof(struct ap_kept))
#define KEPT_MOST_ROOMS 256u /* in one mapping */
_Static_assert(KEPT_ROOM_BYTES % 4096 == 0, "rooms consist of whole pages");

/* One mapping. Those with a free room are in a list; new rooms come from its first. */
struct kept_slab {
	struct kept_slab *next;
	uint8_t *block;
	uint32_t rooms, used;
	struct bitmap map; /* of used rooms */
	uint64_t words[BITMAP_WORDS(KEPT_MOST_ROOMS)];
};

static struct kept_slab *kept_add_slab(struct apertures *apertures)
{
	uint32_t rooms = apertures->kept_rooms == 0 ? 1 : 2 * apertures->kept_rooms;
	struct kept_slab *slab = calloc(1, sizeof(*slab));
	if (slab == NULL)
		return NULL;
	slab->rooms = rooms < KEPT_MOST_ROOMS ? rooms : KEPT_MOST_ROOMS;
	slab->block = mmap(NULL, slab->rooms * KEPT_ROOM_BYTES, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (slab->block == MAP_FAILED) {
		free(slab);
		return NULL;
	}
	apertures->kept_rooms = slab->rooms;
	bitmap_init(&slab->map, slab->words, slab->rooms);
	slab->next = apertures->kept_slabs;
	apertures->kept_slabs = slab;
	return slab;
}

bool aperture_take_kept(struct apertures *apertures, struct hdl_aperture *aperture)
{
	struct kept_slab *slab = apertures->kept_slabs;
	if (slab == NULL)
		slab = kept_add_slab(apertures);
	if (slab == NULL)
		return false;
	size_t room = bitmap_find_clear(&slab->map, 0);
	assert(room != BITMAP_NONE);
	bitmap_set(&slab->map, room);
	if (++slab->used == slab->rooms)
		apertures->kept_slabs = slab->next;
	aperture->kept_slab = slab;
	aperture->conn.bytes = slab->block + room * KEPT_ROOM_BYTES;
	aperture->conn.kept =
	        (struct ap_kept *)(void *)(aperture->conn.bytes + HDL_APERTURE_KEPT_BYTES);
	return true;
}

void aperture_give_kept(struct apertures *apertures, struct hdl_aperture *aperture)
{
	struct kept_slab *slab = aperture->kept_slab, **at = &apertures->kept_slabs;
	if (slab == NULL)
		return;
	size_t offset = (size_t)(aperture->conn.bytes - slab->block);
	aperture->kept_slab = NULL;
	aperture->conn.kept = NULL;
	bitmap_clear(&slab->map, offset / KEPT_ROOM_BYTES);
	if (slab->used-- == slab->rooms) { /* it was full */
		slab->next = apertures->kept_slabs;
		apertures->kept_slabs = slab;
	}
	if (slab->used > 0) {
		madvise(aperture->conn.bytes, KEPT_ROOM_BYTES, MADV_DONTNEED);
		return;
	}
	while (*at != slab)
		at = &(*at)->next;
	*at = slab->next;
	munmap(slab->block, slab->rooms * KEPT_ROOM_BYTES);
	apertures->kept_rooms = slab->rooms / 2; /* the next one is as large */
	free(slab);
}
