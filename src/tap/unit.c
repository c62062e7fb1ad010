/* An I/O unit: hosts on one side, a LAN on the other, and a switch in the middle (SPLIT section
 * III). Frames go where the destination address is; groups go to all that want them; nobody uses an
 * address that is not his. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tap/unit.h"

static struct unit_host *unit_host_of(struct unit *unit, uint32_t port)
{
	assert(port > MACS_LAN && port <= HDL_PUSH_MAX_LINKS);
	return &unit->hosts[port - 1];
}

/* How long frames of the LAN may be. */
uint32_t unit_mtu(const struct tap *tap)
{
	if (tap->lan.watch >= 0 && tap->lan.link.mtu != 0)
		return tap->lan.link.mtu;
	return tap->options->has_mtu ? tap->options->mtu : HDL_PUSH_MAX_MTU;
}

/* --- frames --- */

static void unit_count(struct unit_host *host, uint32_t bytes)
{
	host->statistics[HDL_PUSH_STAT_TX_FRAMES]++;
	host->statistics[HDL_PUSH_STAT_TX_BYTES] += bytes - LAN_HEADER_BYTES;
}

/* May a frame be lost because this host has no room? It may when the host had its chance. */
static bool unit_gave_up(struct unit *unit, struct unit_host *host)
{
	if (host->blocked_ns == 0)
		host->blocked_ns = unit->now_ns;
	return unit->now_ns - host->blocked_ns > TAP_PATIENCE_NS;
}

/* Copy a frame to a host. False: it has no room now, and is to be waited for. */
static bool unit_to_host(struct unit *unit, struct unit_host *host, const uint8_t *frame,
                         uint32_t bytes, bool wait)
{
	bool fits =
	        bytes < hdl_push_agreed(host->push)->frame_bytes &&
	        ((host->offloads & HDL_PUSH_OFFLOAD_CHECKSUM) != 0 || !lan_needs_offload(frame));
	uint8_t *to = fits ? hdl_push_take(host->push) : NULL;
	if (to == NULL) {
		if (fits && !unit_gave_up(unit, host) && wait)
			return false;
		host->statistics[HDL_PUSH_STAT_TX_DROPPED]++;
		return true;
	}
	host->blocked_ns = 0;
	memcpy(to, frame, bytes);
	hdl_push_send(host->push, bytes);
	unit_count(host, bytes);
	return true;
}

/* Does the host want frames to this group? */
static bool unit_wants(const struct unit_host *host, const uint8_t mac[LAN_MAC_BYTES])
{
	static const uint8_t broadcast[LAN_MAC_BYTES] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	if ((host->filter & (HDL_PUSH_FILTER_PROMISCUOUS | HDL_PUSH_FILTER_ALL_MULTICAST)) != 0 ||
	    memcmp(mac, broadcast, LAN_MAC_BYTES) == 0)
		return true;
	for (uint32_t i = 0; i < host->multicast_count; i++)
		if (memcmp(host->multicast[i], mac, LAN_MAC_BYTES) == 0)
			return true;
	return false;
}

/* Forward a frame that came from @from. False: its destination has no room; try again. */
static bool unit_forward(struct tap *tap, uint32_t from, const uint8_t *frame, uint32_t bytes)
{
	struct unit *unit = unit_of(tap);
	const uint8_t *to = frame + LAN_HEADER_BYTES;
	bool group = macs_is_group(to);
	uint32_t port = group ? MACS_NONE : macs_find(&unit->macs, to, unit_seconds(unit));
	if (port != MACS_NONE && port != MACS_LAN)
		return port == from ||
		       unit_to_host(unit, unit_host_of(unit, port), frame, bytes, true);
	/* The LAN first: if it has no room, nobody has got the frame yet. */
	if (from != MACS_LAN && !lan_write(&tap->lan, frame, bytes))
		return false;
	for (uint32_t i = 0; i < HDL_PUSH_MAX_LINKS; i++) {
		struct unit_host *host = &unit->hosts[i];
		if (host->push == NULL || !host->up || i + 1 == from)
			continue;
		if (group ? unit_wants(host, to)
		          : (host->filter & HDL_PUSH_FILTER_PROMISCUOUS) != 0)
			unit_to_host(unit, host, frame, bytes, false);
	}
	return true;
}

/* Is @mac an address of the host? */
static bool unit_is_from(struct tap *tap, const struct unit_host *host, const uint8_t *mac)
{
	struct unit *unit = unit_of(tap);
	return memcmp(mac, host->mac, LAN_MAC_BYTES) == 0 ||
	       (tap->options->rights.macs > 1 &&
	        macs_use(&unit->macs, mac, unit_port_of(unit, host), unit_seconds(unit)));
}

/* A frame of a host. */
static bool unit_deliver(void *context, struct hdl_push *push, const uint8_t *frame, uint32_t bytes)
{
	struct tap *tap = context;
	struct unit *unit = unit_of(tap);
	struct unit_host *host = *hdl_push_user(push);
	if (host == NULL || bytes < LAN_HEADER_BYTES + 14)
		return true;
	host->heard_ns = unit->now_ns;
	if (!host->up || !unit_is_from(tap, host, frame + LAN_HEADER_BYTES + LAN_MAC_BYTES)) {
		host->statistics[HDL_PUSH_STAT_FORGED]++;
		return true;
	}
	if (lan_is_too_long(frame, bytes, unit_mtu(tap))) {
		host->too_long++;
		return true;
	}
	if (!unit_forward(tap, unit_port_of(unit, host), frame, bytes))
		return false;
	host->statistics[HDL_PUSH_STAT_RX_FRAMES]++;
	host->statistics[HDL_PUSH_STAT_RX_BYTES] += bytes - LAN_HEADER_BYTES;
	return true;
}

/* May the LAN use this source address? Learn it. */
static bool unit_learn(struct unit *unit, const uint8_t *frame)
{
	if (macs_learn(&unit->macs, frame + LAN_HEADER_BYTES + LAN_MAC_BYTES, unit_seconds(unit)))
		return true;
	unit->lan_forged++;
	return false;
}

/* With one host, most frames of the LAN are for it: they are read to where they leave from. Returns
 * 1: a frame was read; 0: none is there; -1: there is no room. */
static int unit_read_direct(struct tap *tap, struct unit_host *host)
{
	struct unit *unit = unit_of(tap);
	uint32_t capacity = hdl_push_agreed(host->push)->frame_bytes;
	uint8_t *frame = capacity > LAN_MAX_FRAME ? hdl_push_take(host->push) : NULL;
	if (frame == NULL)
		return -1;
	ssize_t got = lan_read(&tap->lan, frame, capacity);
	const uint8_t *to = frame + LAN_HEADER_BYTES;
	bool good = got > 0 && (size_t)got < capacity && unit_learn(unit, frame);
	bool wanted = good &&
	              (memcmp(to, host->mac, LAN_MAC_BYTES) == 0 ||
	               macs_find(&unit->macs, to, unit_seconds(unit)) == unit_port_of(unit, host) ||
	               (host->filter & HDL_PUSH_FILTER_PROMISCUOUS) != 0 ||
	               (macs_is_group(to) && unit_wants(host, to)));
	host->blocked_ns = 0;
	if (wanted &&
	    ((host->offloads & HDL_PUSH_OFFLOAD_CHECKSUM) != 0 || !lan_needs_offload(frame))) {
		hdl_push_send(host->push, (uint32_t)got);
		unit_count(host, (uint32_t)got);
	} else {
		hdl_push_untake(host->push);
	}
	return got > 0;
}

static struct unit_host *unit_only_host(struct unit *unit)
{
	for (uint32_t i = 0; i < HDL_PUSH_MAX_LINKS && unit->host_count == 1; i++)
		if (unit->hosts[i].push != NULL)
			return unit->hosts[i].up ? &unit->hosts[i] : NULL;
	return NULL;
}

/* Tell hosts about the LAN what they do not know yet, and ask the silent ones whether they are
 * there. */
static void unit_tell(struct tap *tap)
{
	struct unit *unit = unit_of(tap);
	bool link = lan_is_up(&tap->lan);
	uint32_t mtu = unit_mtu(tap);
	static const struct hdl_push_cfg alive = {.item = HDL_PUSH_CFG_LINK};
	struct hdl_push_cfg news[] = {
	        {.item = HDL_PUSH_CFG_LINK, .code = 1, .has_value = true, .up = link},
	        {.item = HDL_PUSH_CFG_MTU, .code = 1, .has_value = true, .mtu = (uint16_t)mtu}};
	for (uint32_t i = 0; i < HDL_PUSH_MAX_LINKS; i++) {
		struct unit_host *host = &unit->hosts[i];
		if (host->push == NULL)
			continue;
		if (unit->now_ns - host->heard_ns >= TAP_QUIET_NS &&
		    hdl_push_configure(host->push, &alive, UNIT_ALIVE))
			host->heard_ns = unit->now_ns;
		if (!host->up)
			continue;
		if (host->told_link != link && hdl_push_configure(host->push, &news[0], UNIT_TOLD))
			host->told_link = link;
		if (host->told_mtu != mtu && hdl_push_configure(host->push, &news[1], UNIT_TOLD))
			host->told_mtu = mtu;
	}
}

/* Does the LAN leave work to us that some host cannot do? Other kinds are told to do it. */
static bool unit_cuts(const struct tap *tap)
{
	const struct lan_kind *kind = tap->lan.kind;
	const struct unit *unit = tap->state;
	return kind->set_offloads == NULL && (kind->offloads & ~unit->offloads) != 0;
}

/* Read a frame of the LAN to where it leaves from, or to unit->frame or unit->whole. Returns its
 * bytes if it is to be forwarded; 0: it needs nothing more; -1: there is none, or no room. */
static ssize_t unit_read(struct tap *tap)
{
	struct unit *unit = unit_of(tap);
	bool cuts = unit_cuts(tap);
	struct unit_host *only = cuts ? NULL : unit_only_host(unit);
	int direct = only != NULL ? unit_read_direct(tap, only) : -1;
	if (direct < 0 && only != NULL &&
	    hdl_push_agreed(only->push)->frame_bytes > LAN_MAX_FRAME && !unit_gave_up(unit, only))
		return -1; /* leave frames where they are */
	uint8_t *to = cuts ? unit->whole : unit->frame;
	ssize_t got = direct < 0 ? lan_read(&tap->lan, to, sizeof(unit->frame)) : direct;
	if (got <= 0) {
		tap->lan_ready = false;
		return -1;
	}
	if (direct > 0 || !unit_learn(unit, to))
		return 0;
	if (!cuts)
		return got;
	if (segments_needed(to, unit->offloads)) {
		unit->cutting = segments_begin(&unit->segments, to, (size_t)got);
		tap->lan.dropped += !unit->cutting;
		return 0;
	}
	memcpy(unit->frame, to, (size_t)got);
	return got;
}

/* The next frame of the LAN, to unit->frame; as unit_read(). */
static ssize_t unit_next(struct tap *tap)
{
	struct unit *unit = unit_of(tap);
	if (!unit->cutting)
		return tap->lan_ready ? unit_read(tap) : -1;
	ssize_t got = (ssize_t)segments_next(&unit->segments, unit->frame);
	unit->cutting = got > 0;
	return got;
}

static int unit_turn(struct tap *tap)
{
	struct unit *unit = unit_of(tap);
	int moved = 0;
	unit->now_ns = clock_now_ns();
	unit_tell(tap);
	if (unit->pending > 0 &&
	    unit_forward(tap, MACS_LAN, unit->frame, (uint32_t)unit->pending)) {
		unit->pending = 0;
		moved++;
	}
	while (unit->pending == 0 && moved < (int)TAP_BUDGET) {
		ssize_t got = unit_next(tap);
		if (got < 0)
			break;
		moved++;
		if (got > 0 && !unit_forward(tap, MACS_LAN, unit->frame, (uint32_t)got))
			unit->pending = (size_t)got;
	}
	return moved;
}

static uint64_t unit_deadline(const struct tap *tap)
{
	const struct unit *unit = tap->state;
	uint64_t first = UINT64_MAX;
	for (uint32_t i = 0; i < HDL_PUSH_MAX_LINKS; i++) {
		const struct unit_host *host = &unit->hosts[i];
		uint64_t at = host->blocked_ns + TAP_PATIENCE_NS + 1000;
		if (host->push != NULL && host->blocked_ns != 0 && at > unit->now_ns && at < first)
			first = at;
		if (host->push != NULL && host->heard_ns + TAP_QUIET_NS < first)
			first = host->heard_ns + TAP_QUIET_NS;
	}
	return first;
}

static bool unit_begin(struct tap *tap)
{
	struct unit *unit = calloc(1, sizeof(*unit));
	if (unit == NULL)
		return false;
	tap->state = unit;
	unit->now_ns = clock_now_ns();
	unit->offloads = UINT32_MAX;
	unit_agree_offloads(tap, NULL);
	return true;
}

static json_t *unit_ask(struct tap *tap, int client, const char *what, const json_t *question)
{
	(void)client;
	(void)question;
	if (strcmp(what, "down") == 0) {
		tap_stop();
		return json_object();
	}
	if (strcmp(what, "stat") == 0)
		return unit_stat(tap);
	return tap_error(strcmp(what, "mac") == 0 ? "a unit has no address of its own; name a host"
	                                          : "an unknown question");
}

static void unit_end(struct tap *tap)
{
	free(tap->state);
	tap->state = NULL;
}

static const struct hdl_push_ops unit_ops = {.accept = unit_accept,
                                             .opened = unit_opened,
                                             .closed = unit_closed,
                                             .deliver = unit_deliver,
                                             .configure = unit_configure,
                                             .configured = unit_configured};

const struct tap_role tap_unit = {.ops = &unit_ops,
                                  .begin = unit_begin,
                                  .turn = unit_turn,
                                  .deadline = unit_deadline,
                                  .ask = unit_ask,
                                  .end = unit_end};
