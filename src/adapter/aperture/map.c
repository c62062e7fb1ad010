/* Mapped ranges: ordinary load and store instructions on the peer's memory (MISSION AP9). The range
 * is tracked pages (track/track.h); what was stored is collected at ordering points and, without
 * any call, in time for HDL_APERTURE_LAG_NS. See aperture.h. */
#include <string.h>
#include <sys/mman.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/reach/shared.h"
#include "adapter/track/track.h"
#include "base/log.h"

#define COLLECT_NS (HDL_APERTURE_LAG_NS / 2)
#define PAGE_BITS  12u
/* Who is pointed at need not answer. */
#define FETCH_MS         2000
#define FETCH_POINTED_MS 400
#define SPACE_BYTES      ((uint64_t)OUTGOING_MAX_GROUPS << APERTURE_PART_BITS)

/* The mapped range; NULL: none. */
static unsigned char *aperture_view(const struct hdl_aperture *aperture, uint64_t *bytes)
{
	uint64_t length = aperture->track != NULL ? aperture->track->bytes : aperture->shared_bytes;
	if (bytes != NULL)
		*bytes = length;
	return aperture->track != NULL ? aperture->track->view : aperture->shared;
}

/* Which aperture an access to byte *@offset of the range of @aperture is for, and where in it
 * (APERTURE column 18, step 3): the address tells, by the table and its cache. A range that is not
 * at the addresses of the table is its aperture's; so is the rest of a page behind a small one, of
 * which the peer says that it is outside. With the lock. */
static struct hdl_aperture *map_translate(struct hdl_aperture *aperture, uint64_t *offset)
{
	struct apertures *apertures = aperture->adapter->apertures;
	uint64_t address = (uint64_t)(uintptr_t)aperture_view(aperture, NULL) + *offset, at;
	if (!aperture->reserved)
		return aperture;
	const struct outgoing *entry = outgoing_find(&apertures->out, address, &at);
	if (entry == NULL || entry->owner == NULL)
		return aperture;
	*offset = at;
	return aperture_of(entry->owner);
}

static bool map_fetch(void *context, uint64_t offset, void *to, uint64_t bytes)
{
	struct hdl_aperture *aperture = context;
	struct hdl_adapter *adapter = aperture->adapter;
	adapter_lock(adapter);
	aperture = map_translate(aperture, &offset);
	bool pointed = aperture->conn.pointed;
	adapter_unlock(adapter);
	return hdl_aperture_read(aperture, offset, to, bytes,
	                         pointed ? FETCH_POINTED_MS : FETCH_MS) == 0;
}

static int map_put(void *context, uint64_t offset, const void *data, uint64_t bytes)
{
	struct hdl_aperture *aperture = map_translate(context, &offset);
	const uint8_t *from = data;
	if (aperture->track->words) { /* an event */
		bool put = !aperture_can_send(aperture) ||
		           ap_put(&aperture->conn, CI_EVENT, offset, data, (uint32_t)bytes);
		return put ? 0 : -HDL_EAGAIN;
	}
	/* A run may be longer than what is kept at a time. */
	for (uint64_t done = 0; done < bytes;) {
		uint64_t part = bytes - done < CI_MAX_DATA ? bytes - done : CI_MAX_DATA;
		int result = aperture_put(aperture, offset + done, from + done, part);
		if (result != 0)
			return result;
		done += part;
	}
	return 0;
}

/* The table of mapped ranges: one part for each size. The addresses are not reserved as a whole:
 * two terabytes would count for those who lock their memory (mlockall(2)). */
static bool apertures_make_out(struct apertures *apertures)
{
	struct outgoing_config config = {.part_bits = APERTURE_PART_BITS};
	unsigned group = 0;
	if (apertures->out_tried)
		return apertures->blocks[APERTURE_OUT] != NULL;
	apertures->out_tried = true;
	for (uint8_t bits = HDL_APERTURE_MIN_BITS; bits <= HDL_APERTURE_MAX_BITS; bits++) {
		uint64_t most = 1ull << (config.part_bits - bits);
		config.groups[group++] = (struct outgoing_group){
		        .bits = bits,
		        .type = HDL_APERTURE_DATA,
		        .count = most > HDL_MAX_APERTURES ? HDL_MAX_APERTURES : (uint32_t)most};
	}
	config.origin = APERTURE_ORIGIN_LEAST +
	                (prng_below(&apertures->adapter->prng, APERTURE_ORIGINS) << 30);
	void *store = aperture_block(apertures, APERTURE_OUT, outgoing_bytes(&config));
	if (store != NULL)
		outgoing_init(&apertures->out, &config, store);
	return store != NULL;
}

static uint64_t map_pages(uint8_t bits)
{
	return ((1ull << bits) + TRACK_PAGE - 1) / TRACK_PAGE * TRACK_PAGE;
}

void aperture_take_entry(struct hdl_aperture *aperture, uint8_t bits)
{
	struct apertures *apertures = aperture->adapter->apertures;
	aperture->entry =
	        apertures_make_out(apertures)
	                ? outgoing_take(&apertures->out, bits, HDL_APERTURE_DATA, PAGE_BITS)
	                : NULL;
	if (aperture->entry == NULL)
		return;
	void *wanted = (void *)(uintptr_t)aperture->entry->base;
	void *room = mmap(wanted, map_pages(bits), PROT_NONE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (room != MAP_FAILED && room != wanted) /* before Linux 4.17 it is but a wish */
		munmap(room, map_pages(bits));
	aperture->reserved = room == wanted;
}

void aperture_give_entry(struct hdl_aperture *aperture)
{
	if (aperture->entry == NULL)
		return;
	if (aperture->reserved)
		munmap((void *)(uintptr_t)aperture->entry->base, map_pages(aperture->entry->bits));
	aperture->reserved = false;
	ap_use(&aperture->conn, NULL);
	outgoing_give(&aperture->adapter->apertures->out, aperture->entry);
	aperture->entry = NULL;
}

void *aperture_room(const struct hdl_aperture *aperture)
{
	return aperture->reserved ? (void *)(uintptr_t)aperture->entry->base : NULL;
}

/* It has to be looked at. Called by fault handlers. */
static void map_stir(void *context)
{
	struct hdl_aperture *aperture = context;
	if (atomic_exchange(&aperture->stirred, true))
		return;
	struct apertures *apertures = aperture->adapter->apertures;
	struct hdl_aperture *first = atomic_load(&apertures->pushed);
	do
		aperture->stirred_next = first;
	while (!atomic_compare_exchange_weak(&apertures->pushed, &first, aperture));
}

/* Those that were pushed, in that order, become the end of the list. With the lock, as what
 * follows. */
static void map_take_pushed(struct apertures *apertures)
{
	struct hdl_aperture *last = atomic_exchange(&apertures->pushed, NULL), *in_order = NULL;
	while (last != NULL) {
		struct hdl_aperture *before = last->stirred_next;
		last->stirred_next = in_order;
		in_order = last;
		last = before;
	}
	struct hdl_aperture **end = &apertures->stirred;
	while (*end != NULL)
		end = &(*end)->stirred_next;
	*end = in_order;
}

/* Is there nothing to look at before it is stirred again? */
static bool map_is_calm(struct hdl_aperture *aperture)
{
	/* What was stored without a peer is forgotten when there is one. */
	return !aperture->controlled && (aperture->track == NULL || !aperture_can_send(aperture) ||
	                                 track_is_calm(aperture->track));
}

void aperture_watch_control(struct hdl_aperture *aperture)
{
	adapter_lock(aperture->adapter);
	aperture->controlled = true;
	if (aperture->track != NULL || aperture->shared != NULL)
		map_stir(aperture);
	adapter_unlock(aperture->adapter);
}

void aperture_enter_mapped(struct hdl_aperture *aperture)
{
	struct hdl_adapter *adapter = aperture->adapter;
	struct apertures *apertures = adapter->apertures;
	adapter_lock(adapter);
	if (aperture->entry != NULL)
		ap_use(&aperture->conn, aperture->entry);
	apertures->elsewhere += aperture_room(aperture) == NULL;
	if (apertures->mapped == NULL)
		apertures->collect_ns = clock_read(&adapter->clock) + COLLECT_NS;
	aperture->mapped_next = apertures->mapped;
	aperture->mapped_at = &apertures->mapped;
	if (aperture->mapped_next != NULL)
		aperture->mapped_next->mapped_at = &aperture->mapped_next;
	apertures->mapped = aperture;
	map_stir(aperture);
	apertures_run(apertures);
	adapter_unlock(adapter);
	adapter_nudge(adapter); /* a thread that sleeps does not know the timer */
}

/* Map the range for the first time. */
static int map_begin(struct hdl_aperture *aperture, uint8_t bits)
{
	struct hdl_adapter *adapter = aperture->adapter;
	const struct track_source source = {.fetch = map_fetch, .context = aperture};
	uint64_t pages = map_pages(bits);
	int result = 0;
	adapter_lock(adapter);
	aperture_follow(aperture);
	aperture_take_entry(aperture, bits);
	void *same = aperture_map_same(aperture, pages);
	void *room = aperture_room(aperture);
	adapter_unlock(adapter);
	/* What was stored to an aperture for events is no memory of the peer's: a load sees it. */
	bool events = aperture->conn.own.type == HDL_APERTURE_EVENT;
	if (same == NULL)
		result = track_open_at(TRACK_ANY, pages, events ? NULL : &source, room,
		                       &aperture->track);
	if (result == 0 && same == NULL) {
		aperture->track->words = events;
		track_watch(aperture->track, map_stir, aperture);
	}
	if (result == 0) {
		aperture->map_bytes = 1ull << bits;
		aperture_enter_mapped(aperture);
		return 0;
	}
	adapter_lock(adapter);
	aperture_give_entry(aperture);
	adapter_unlock(adapter);
	return result;
}

int hdl_aperture_map(struct hdl_aperture *aperture, uint8_t bits, void **out, uint64_t *length)
{
	if (!is_aperture(aperture) || out == NULL || bits < HDL_APERTURE_MIN_BITS ||
	    bits > HDL_APERTURE_MAX_BITS)
		return -HDL_EINVAL;
	if (aperture->is_ip)
		return -HDL_ENOTSUP; /* stores have no beginning and no end, datagrams do */
	if (aperture->track == NULL && aperture->shared == NULL) {
		int result = map_begin(aperture, bits);
		if (result != 0)
			return result;
	}
	*out = aperture_view(aperture, NULL);
	if (length != NULL)
		*length = aperture->map_bytes;
	return 0;
}

/* Ranges that are not at the addresses of the table. */
static struct hdl_aperture *map_find_elsewhere(const struct apertures *apertures,
                                               const unsigned char *byte, uint64_t *offset)
{
	for (struct hdl_aperture *at = apertures->mapped; at != NULL; at = at->mapped_next) {
		uint64_t bytes;
		const unsigned char *view = aperture_view(at, &bytes);
		if (byte >= view && (uint64_t)(byte - view) < bytes) {
			*offset = (uint64_t)(byte - view);
			return at;
		}
	}
	return NULL;
}

struct hdl_aperture *hdl_aperture_find(struct hdl_adapter *adapter, const void *address,
                                       uint64_t *offset)
{
	struct hdl_aperture *found = NULL;
	uint64_t at = 0;
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || adapter->apertures == NULL)
		return NULL;
	adapter_lock(adapter);
	struct apertures *apertures = adapter->apertures;
	const struct outgoing *entry =
	        apertures->blocks[APERTURE_OUT] != NULL
	                ? outgoing_find(&apertures->out, (uint64_t)(uintptr_t)address, &at)
	                : NULL;
	if (entry != NULL && entry->owner != NULL)
		found = aperture_of(entry->owner);
	if (found != NULL && !found->reserved)
		found = NULL; /* something else is there */
	if (found == NULL && apertures->elsewhere > 0)
		found = map_find_elsewhere(apertures, address, &at);
	adapter_unlock(adapter);
	if (found != NULL && offset != NULL)
		*offset = at;
	return found;
}

int aperture_collect(struct hdl_aperture *aperture)
{
	if (aperture->track == NULL || !aperture_can_send(aperture))
		return 0;
	return track_collect(aperture->track, map_put, aperture);
}

/* A load is as fresh as HDL_APERTURE_AGE_NS: pages that are older are fetched again. */
static void aperture_age(struct hdl_aperture *aperture, uint64_t now_ns)
{
	if (aperture->track == NULL || !aperture_can_send(aperture) || now_ns < aperture->expire_ns)
		return;
	aperture->expire_ns = now_ns + HDL_APERTURE_AGE_NS - HDL_APERTURE_LAG_NS;
	track_expire(aperture->track);
}

/* The range was the pages of a peer of this machine, and the next peer is elsewhere: the same
 * addresses are tracked pages from now on. The program may be storing to them at this moment. */
static void aperture_map_tracked(struct hdl_aperture *aperture)
{
	const struct track_source source = {.fetch = map_fetch, .context = aperture};
	int result = track_open_at(TRACK_ANY, aperture->shared_bytes, &source, aperture->shared,
	                           &aperture->track);
	if (result != 0) {
		log_error("a mapped aperture leads nowhere: %s", hdl_strerror(-result));
		return;
	}
	aperture->shared = NULL;
	track_watch(aperture->track, map_stir, aperture);
	map_stir(aperture);
}

void aperture_map_opened(struct hdl_aperture *aperture)
{
	if (aperture->track != NULL) {
		track_forget(aperture->track); /* what was there before was of nobody, or another */
		map_stir(aperture);
	} else if (aperture->shared != NULL &&
	           aperture_map_same(aperture, aperture->shared_bytes) == NULL)
		aperture_map_tracked(aperture);
}

uint64_t apertures_collect_due(struct apertures *apertures, uint64_t now_ns)
{
	if (apertures->mapped == NULL)
		return UINT64_MAX;
	if (now_ns < apertures->collect_ns)
		return apertures->collect_ns;
	apertures->collect_ns = now_ns + COLLECT_NS;
	map_take_pushed(apertures);
	struct hdl_aperture **at = &apertures->stirred;
	for (struct hdl_aperture *aperture; (aperture = *at) != NULL;) {
		aperture_redirect(aperture);
		aperture_age(aperture, now_ns);
		if (aperture_collect(aperture) == 0 && aperture->conn.is_active)
			apertures_send(apertures);
		if (!map_is_calm(aperture)) {
			at = &aperture->stirred_next;
			continue;
		}
		*at = aperture->stirred_next;
		atomic_store(&aperture->stirred, false);
		if (!map_is_calm(aperture)) /* it was stirred at that very moment */
			map_stir(aperture);
	}
	return apertures->collect_ns;
}

void aperture_map_lost(struct hdl_aperture *aperture)
{
	if (aperture->track != NULL)
		track_orphan(aperture->track);
	else if (aperture->shared != NULL)
		shared_unmap(aperture->shared, aperture->shared_bytes);
}

/* The range is no longer looked after. */
static void map_leave(struct hdl_aperture *aperture)
{
	struct apertures *apertures = aperture->adapter->apertures;
	struct hdl_aperture **at = &apertures->stirred;
	*aperture->mapped_at = aperture->mapped_next;
	if (aperture->mapped_next != NULL)
		aperture->mapped_next->mapped_at = aperture->mapped_at;
	apertures->elsewhere -= !aperture->reserved;
	map_take_pushed(apertures);
	while (*at != NULL && *at != aperture)
		at = &(*at)->stirred_next;
	if (*at == aperture)
		*at = aperture->stirred_next;
}

void aperture_unmap(struct hdl_aperture *aperture)
{
	struct hdl_adapter *adapter = aperture->adapter;
	uint64_t bytes;
	adapter_lock(adapter);
	struct track *track = aperture->track;
	unsigned char *view = aperture_view(aperture, &bytes);
	bool ours = track == NULL || track->fixed, reserved = aperture->reserved;
	aperture->track = NULL;
	aperture->shared = NULL;
	adapter_unlock(adapter);
	/* Waits for the thread that fetches pages, which may want the lock. */
	if (track != NULL)
		track_close(track);
	if (view != NULL && !reserved && ours)
		munmap(view, bytes);
	adapter_lock(adapter);
	if (view != NULL)
		map_leave(aperture); /* nothing stirs it any more */
	aperture_give_entry(aperture);
	adapter_unlock(adapter);
}

int hdl_aperture_refresh(struct hdl_aperture *aperture, uint64_t offset, size_t length,
                         int timeout_ms)
{
	uint8_t part[CI_MAX_READ];
	uint64_t until = apertures_until(timeout_ms);
	uint64_t all;
	if (!is_aperture(aperture) || aperture_view(aperture, &all) == NULL || offset > all ||
	    length > all - offset)
		return -HDL_EINVAL;
	if (aperture->track == NULL)
		return 0; /* it is the peer's memory */
	for (size_t done = 0; done < length;) {
		size_t bytes = length - done < sizeof(part) ? length - done : sizeof(part);
		uint64_t now = clock_now_ns();
		int left = timeout_ms < 0 ? -1 : now >= until ? 0 : (int)((until - now) / 1000000u);
		int result = hdl_aperture_read(aperture, offset + done, part, bytes, left);
		if (result != 0)
			return result;
		track_place(aperture->track, offset + done, part, bytes);
		done += bytes;
	}
	return 0;
}

int hdl_aperture_prepare(struct hdl_aperture *aperture, uint64_t offset, size_t length, bool write,
                         int timeout_ms)
{
	uint64_t until = apertures_until(timeout_ms);
	if (!is_aperture(aperture) || aperture_view(aperture, NULL) == NULL)
		return -HDL_EINVAL;
	if (aperture->track == NULL)
		return offset <= aperture->shared_bytes && length <= aperture->shared_bytes - offset
		               ? 0
		               : -HDL_EINVAL;
	return track_prepare(aperture->track, offset, length, write, until);
}
