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

static bool map_fetch(void *context, uint64_t offset, void *to, uint64_t bytes)
{
	return hdl_aperture_read(context, offset, to, bytes, 2000) == 0;
}

static int map_put(void *context, uint64_t offset, const void *data, uint64_t bytes)
{
	const uint8_t *from = data;
	/* A run may be longer than what is kept at a time. */
	for (uint64_t done = 0; done < bytes;) {
		uint64_t part = bytes - done < CI_MAX_DATA ? bytes - done : CI_MAX_DATA;
		int result = aperture_put(context, offset + done, from + done, part);
		if (result != 0)
			return result;
		done += part;
	}
	return 0;
}

/* The mapped range; NULL: none. */
static unsigned char *aperture_view(const struct hdl_aperture *aperture, uint64_t *bytes)
{
	uint64_t length = aperture->track != NULL ? aperture->track->bytes : aperture->shared_bytes;
	if (bytes != NULL)
		*bytes = length;
	return aperture->track != NULL ? aperture->track->view : aperture->shared;
}

void aperture_enter_mapped(struct hdl_aperture *aperture, uint8_t bits)
{
	struct hdl_adapter *adapter = aperture->adapter;
	struct apertures *apertures = adapter->apertures;
	adapter_lock(adapter);
	aperture->entry = outgoing_take(&apertures->out, bits, HDL_APERTURE_DATA, 0);
	if (aperture->entry != NULL)
		ap_use(&aperture->conn, aperture->entry);
	aperture->collect_ns = clock_read(&adapter->clock) + COLLECT_NS;
	aperture->mapped_next = apertures->mapped;
	apertures->mapped = aperture;
	apertures_run(apertures);
	adapter_unlock(adapter);
	adapter_nudge(adapter); /* a thread that sleeps does not know the timer */
}

int hdl_aperture_map(struct hdl_aperture *aperture, uint8_t bits, void **out, uint64_t *length)
{
	if (!is_aperture(aperture) || out == NULL || aperture->is_ip ||
	    bits < HDL_APERTURE_MIN_BITS || bits > HDL_APERTURE_MAX_BITS)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	const struct track_source source = {.fetch = map_fetch, .context = aperture};
	uint64_t size = 1ull << bits;
	uint64_t pages = (size + TRACK_PAGE - 1) / TRACK_PAGE * TRACK_PAGE;
	if (aperture->track == NULL && aperture->shared == NULL) {
		adapter_lock(adapter);
		void *same = aperture_map_same(aperture, pages);
		adapter_unlock(adapter);
		if (same != NULL)
			aperture_enter_mapped(aperture, bits);
	}
	if (aperture->track == NULL && aperture->shared == NULL) {
		int result = track_open(TRACK_ANY, pages, &source, &aperture->track);
		if (result != 0)
			return result;
		aperture_enter_mapped(aperture, bits);
	}
	*out = aperture_view(aperture, NULL);
	if (length != NULL)
		*length = size;
	return 0;
}

struct hdl_aperture *hdl_aperture_find(struct hdl_adapter *adapter, const void *address,
                                       uint64_t *offset)
{
	struct hdl_aperture *found = NULL;
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || adapter->apertures == NULL)
		return NULL;
	adapter_lock(adapter);
	for (struct hdl_aperture *at = adapter->apertures->mapped; at != NULL && found == NULL;
	     at = at->mapped_next) {
		uint64_t bytes;
		const unsigned char *view = aperture_view(at, &bytes), *byte = address;
		if (byte >= view && (uint64_t)(byte - view) < bytes) {
			found = at;
			if (offset != NULL)
				*offset = (uint64_t)(byte - view);
		}
	}
	adapter_unlock(adapter);
	return found;
}

int aperture_collect(struct hdl_aperture *aperture)
{
	if (aperture->track == NULL || aperture->conn.state != HDL_APERTURE_OPEN)
		return 0;
	return track_collect(aperture->track, map_put, aperture);
}

/* A load is as fresh as HDL_APERTURE_AGE_NS: pages that are older are fetched again. */
static void aperture_age(struct hdl_aperture *aperture, uint64_t now_ns)
{
	if (aperture->track == NULL || aperture->conn.state != HDL_APERTURE_OPEN ||
	    now_ns < aperture->expire_ns)
		return;
	aperture->expire_ns = now_ns + HDL_APERTURE_AGE_NS - HDL_APERTURE_LAG_NS;
	track_expire(aperture->track);
}

/* The range was the pages of a peer of this machine, and the next peer is elsewhere: the same
 * addresses are tracked pages from now on. */
static void aperture_map_tracked(struct hdl_aperture *aperture)
{
	const struct track_source source = {.fetch = map_fetch, .context = aperture};
	int result = track_open_at(TRACK_ANY, aperture->shared_bytes, &source, aperture->shared,
	                           &aperture->track);
	if (result == 0)
		aperture->shared = NULL;
	else
		log_error("a mapped aperture leads nowhere: %s", hdl_strerror(-result));
}

void aperture_map_opened(struct hdl_aperture *aperture)
{
	if (aperture->track != NULL)
		track_forget(aperture->track); /* what was there before was of nobody, or another */
	else if (aperture->shared != NULL &&
	         aperture_map_same(aperture, aperture->shared_bytes) == NULL)
		aperture_map_tracked(aperture);
}

uint64_t apertures_collect_due(struct apertures *apertures, uint64_t now_ns)
{
	uint64_t next = UINT64_MAX;
	for (struct hdl_aperture *at = apertures->mapped; at != NULL; at = at->mapped_next) {
		if (now_ns >= at->collect_ns) {
			at->collect_ns = now_ns + COLLECT_NS;
			aperture_age(at, now_ns);
			if (aperture_collect(at) == 0 && at->conn.is_active)
				(void)ap_run(&apertures->node);
		}
		next = at->collect_ns < next ? at->collect_ns : next;
	}
	return next;
}

void aperture_map_lost(struct hdl_aperture *aperture)
{
	if (aperture->track != NULL)
		track_orphan(aperture->track);
	else if (aperture->shared != NULL)
		shared_unmap(aperture->shared, aperture->shared_bytes);
}

/* With the drive lock. */
void aperture_unmap(struct hdl_aperture *aperture)
{
	struct hdl_aperture **at = &aperture->adapter->apertures->mapped;
	if (aperture->track == NULL && aperture->shared == NULL)
		return;
	while (*at != aperture)
		at = &(*at)->mapped_next;
	*at = aperture->mapped_next;
	if (aperture->track != NULL)
		track_close(aperture->track);
	else
		munmap(aperture->shared, aperture->shared_bytes);
	aperture->track = NULL;
	aperture->shared = NULL;
	if (aperture->entry == NULL)
		return;
	ap_use(&aperture->conn, NULL);
	outgoing_give(&aperture->adapter->apertures->out, aperture->entry);
	aperture->entry = NULL;
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
	(void)timeout_ms; /* TRACK_FETCH_NS is the limit of absent pages */
	if (!is_aperture(aperture) || aperture_view(aperture, NULL) == NULL)
		return -HDL_EINVAL;
	if (aperture->track == NULL)
		return offset <= aperture->shared_bytes && length <= aperture->shared_bytes - offset
		               ? 0
		               : -HDL_EINVAL;
	return track_prepare(aperture->track, offset, length, write) ? 0 : -HDL_EINVAL;
}
