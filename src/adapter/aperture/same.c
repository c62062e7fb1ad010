/* The same pages: an aperture between processes of one machine, mapped itself (MISSION AP9).
 *
 *   owner   while connected on a lane: a segment (reach/segment.h) names the memory and the
 *           in-index
 *           closing, connecting again: no segment, then fresh pages (mem_renew()): a peer that
 *           keeps its mapping writes to orphans
 *   peer    hdl_aperture_map(): finds the segment by the in-index that it was offered, and maps it
 *
 * An aperture that is open to everybody who has its nonce (it checks neither connection nor number
 * nor source) has a segment all the time, with a digest of the nonce: hdl_aperture_point() finds
 * it (ADR 200).
 *
 * Only memory that the adapter provided is shared (its file is sealed, and nothing else is in
 * it), and only with both rights: what a page grants cannot be checked. Everything else is
 * tracked. */
#include <string.h>
#include <sys/mman.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/reach/shared.h"

#define SAME_PAGE 4096u
#define SAME_LOOK 512u /* pages that are looked at in one go */

static uint64_t same_round(uint64_t length)
{
	return (length + SAME_PAGE - 1) / SAME_PAGE * SAME_PAGE;
}

static bool same_lane(const struct hdl_aperture *aperture)
{
	/* What a page grants cannot be checked, so both ends are trusted. */
	return aperture->conn.path.route < HDL_MAX_PEERS && !aperture->conn.path.managed;
}

/* May everybody access it who knows the nonce? */
static bool same_is_open(const struct hdl_aperture *aperture)
{
	const uint32_t who = HDL_CHECK_VALID | HDL_CHECK_SEQUENCE | HDL_CHECK_SOURCE |
	                     HDL_CHECK_LINK | HDL_CHECK_CLUSTER;
	return (aperture->conn.in->checks & (who | HDL_CHECK_EXTENT)) == HDL_CHECK_EXTENT;
}

/* What names the memory in a segment; 0: nothing does. */
static uint32_t same_name(const struct hdl_aperture *aperture)
{
	const struct ap_conn *conn = &aperture->conn;
	if (same_is_open(aperture))
		return segment_open_aperture(conn->own.index, incoming_nonce(conn->user));
	bool connects = conn->state == HDL_APERTURE_OPEN || conn->state == HDL_APERTURE_CONNECTING;
	if (!connects || !same_lane(aperture) || conn->in->checks != HDL_CHECK_DEFAULT)
		return 0;
	return SEGMENT_APERTURE(conn->own.index);
}

void aperture_publish(struct hdl_aperture *aperture)
{
	const uint32_t both = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE;
	struct segments *segments = &aperture->adapter->peers.segments;
	struct segment found;
	uint64_t addr = (uint64_t)(uintptr_t)aperture->memory;
	uint64_t length = same_round(aperture->length);
	uint32_t name = same_name(aperture);
	if (name == 0) {
		aperture_conceal(aperture);
		return;
	}
	/* A page grants everything in it: not where less than all is offered. */
	if (!aperture->own_memory || aperture->access != both ||
	    aperture->conn.in->type != HDL_APERTURE_DATA || aperture->segment.birth != 0 ||
	    segments->table == NULL || aperture->adapter->recorder != NULL ||
	    aperture->conn.own.first != 0 || aperture->conn.own.length != aperture->length ||
	    !segment_wanted(segments, addr, length) || !mem_behind(addr, length, &found))
		return;
	found.aperture = name & 0x7fffffffu;
	aperture->segment = segment_take(segments, addr, length, &found);
	aperture->published |= aperture->segment.birth != 0;
}

void aperture_conceal(struct hdl_aperture *aperture)
{
	segment_give(&aperture->adapter->peers.segments, aperture->segment);
	aperture->segment = (struct segment_ref){0};
}

int aperture_revoke(struct hdl_aperture *aperture)
{
	if (!aperture->published)
		return 0;
	aperture_conceal(aperture);
	int result = mem_renew(aperture->memory);
	aperture->published = result != 0;
	return result;
}

/* Has something been stored to one of these pages? Those that were never touched stay so. */
static bool same_is_touched(const unsigned char *at, uint64_t bytes)
{
	static const unsigned char clear[SAME_PAGE];
	unsigned char resident[SAME_LOOK];
	for (uint64_t done = 0; done < bytes; done += SAME_LOOK * SAME_PAGE) {
		uint64_t left = bytes - done, most = SAME_LOOK * SAME_PAGE;
		uint64_t pages = (left < most ? left : most) / SAME_PAGE;
		if (mincore((void *)(uintptr_t)(at + done), pages * SAME_PAGE, resident) != 0)
			return false;
		for (uint64_t i = 0; i < pages; i++)
			if ((resident[i] & 1) != 0 &&
			    memcmp(at + done + i * SAME_PAGE, clear, SAME_PAGE) != 0)
				return true;
	}
	return false;
}

void aperture_look_behind(struct hdl_aperture *aperture)
{
	uint64_t known = same_round(aperture->conn.peer.length);
	if (aperture->shared == NULL || known >= aperture->shared_bytes ||
	    !aperture_can_send(aperture))
		return;
	unsigned char *behind = (unsigned char *)aperture->shared + known;
	uint64_t bytes = aperture->shared_bytes - known;
	if (!same_is_touched(behind, bytes))
		return;
	madvise(behind, bytes, MADV_DONTNEED);
	/* As if the peer had been asked. */
	ap_report(&aperture->conn, CI_RECEIVER, HDL_REASON_EXTENT);
}

void *aperture_share(struct hdl_aperture *aperture)
{
	adapter_lock(aperture->adapter);
	void *view = aperture->shared;
	bool enters = view == NULL && aperture->track == NULL;
	if (enters) {
		aperture_take_entry(aperture, aperture->conn.peer.bits);
		view = aperture_map_same(aperture, same_round(aperture->conn.peer.length));
		aperture->map_bytes = aperture->shared_bytes;
		if (view == NULL)
			aperture_give_entry(aperture);
	}
	adapter_unlock(aperture->adapter);
	if (enters && view != NULL)
		aperture_enter_mapped(aperture);
	return view;
}

void *aperture_map_same(struct hdl_aperture *aperture, uint64_t bytes)
{
	struct hdl_adapter *adapter = aperture->adapter;
	const struct ap_conn *conn = &aperture->conn;
	if ((conn->state != HDL_APERTURE_OPEN && !conn->pointed) || !same_lane(aperture) ||
	    adapter->recorder != NULL || conn->peer.first != 0 || conn->peer.length == 0 ||
	    same_round(conn->peer.length) > bytes)
		return NULL;
	struct reach *reach = adapter->peers.list[conn->path.route].reach;
	if (reach == NULL)
		return NULL;
	uint32_t name = conn->pointed ? segment_open_aperture(conn->peer.index, conn->peer.nonce)
	                              : SEGMENT_APERTURE(conn->peer.index);
	void *room = aperture->shared != NULL ? aperture->shared : aperture_room(aperture);
	/* A range may be larger than what the peer offers: the rest leads nowhere. */
	void *view = shared_unmap(room, bytes);
	if (view == NULL)
		return NULL;
	if (shared_map_aperture(reach, name, same_round(conn->peer.length), view) == NULL) {
		if (room == NULL)
			munmap(view, bytes);
		return NULL;
	}
	aperture->shared = view;
	aperture->shared_bytes = bytes;
	return view;
}
