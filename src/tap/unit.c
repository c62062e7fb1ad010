/* An I/O unit: hosts on one side, a LAN on the other, and a switch in the middle (SPLIT section
 * III). Frames go where the destination address is; groups go to all that want them; nobody uses an
 * address that is not his. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "tap/segment.h"
#include "tap/tap.h"

enum unit_token { UNIT_TOLD, UNIT_ALIVE };

/* One host. Its port is its place in the table plus 1; port 0 is the LAN. */
struct unit_host {
	struct hdl_push *push;
	bool up; /* it has told its address */
	uint8_t mac[LAN_MAC_BYTES];
	uint32_t offloads, filter, multicast_count, mtu;
	bool told_link;                /* whether it believes that the LAN is there, */
	uint32_t told_mtu;             /* and how long frames of the LAN may be */
	uint64_t too_long;             /* frames that were longer */
	uint64_t heard_ns;             /* the last sign of life, or when it was asked for one */
	struct rights_changes changes; /* of its address, */
	uint64_t refused_macs;         /* and addresses that it may not have */
	uint8_t multicast[HDL_PUSH_CFG_MAX_MULTICAST][LAN_MAC_BYTES];
	uint64_t blocked_ns; /* since when it takes no frames; 0: it does */
	uint64_t statistics[HDL_PUSH_STAT_COUNT];
};

struct unit {
	struct unit_host hosts[HDL_PUSH_MAX_LINKS];
	uint32_t host_count;
	struct macs macs;
	uint32_t offloads;
	uint64_t now_ns, accepted, refused, lan_forged;
	size_t pending; /* bytes of a frame of the LAN that waits for its host */
	bool cutting;   /* a frame of the LAN is being cut into plain ones */
	struct segments segments;
	uint8_t frame[LAN_MAX_FRAME + 1], whole[LAN_MAX_FRAME + 1];
};

static struct unit *unit_of(struct tap *tap)
{
	return tap->state;
}

static struct unit_host *unit_host_of(struct unit *unit, uint32_t port)
{
	assert(port > MACS_LAN && port <= HDL_PUSH_MAX_LINKS);
	return &unit->hosts[port - 1];
}

static uint32_t unit_port_of(const struct unit *unit, const struct unit_host *host)
{
	return (uint32_t)(host - unit->hosts) + 1;
}

static uint32_t unit_seconds(const struct unit *unit)
{
	return (uint32_t)(unit->now_ns / 1000000000ull);
}

/* How long frames of the LAN may be. */
static uint32_t unit_mtu(const struct tap *tap)
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

/* --- hosts --- */

/* All ends of one Ethernet must be able to finish what others leave undone: the offloads in use are
 * those that every host and the LAN have. Tell whoever has others. */
static void unit_agree_offloads(struct tap *tap, struct unit_host *except)
{
	struct unit *unit = unit_of(tap);
	uint32_t common =
	        tap->options->offloads ? tap->lan.kind->offloads : HDL_PUSH_OFFLOAD_HEADER;
	for (uint32_t i = 0; i < HDL_PUSH_MAX_LINKS; i++)
		if (unit->hosts[i].push != NULL && unit->hosts[i].up)
			common &= unit->hosts[i].offloads;
	if (common == unit->offloads)
		return;
	unit->offloads = common;
	if (tap->lan.kind->set_offloads != NULL)
		tap->lan.kind->set_offloads(&tap->lan, common);
	struct hdl_push_cfg tell = {
	        .item = HDL_PUSH_CFG_OFFLOADS, .code = 1, .has_value = true, .offloads = common};
	for (uint32_t i = 0; i < HDL_PUSH_MAX_LINKS; i++)
		if (unit->hosts[i].push != NULL && unit->hosts[i].up && &unit->hosts[i] != except)
			hdl_push_configure(unit->hosts[i].push, &tell, UNIT_TOLD);
}

static const char *unit_accept(void *context, const char *name, struct hdl_push_terms *terms)
{
	struct tap *tap = context;
	struct unit *unit = unit_of(tap);
	(void)name;
	if (terms->header_bytes != LAN_HEADER_BYTES || terms->frame_bytes < 128) {
		unit->refused++;
		return "frames of another form";
	}
	if (terms->frame_bytes > LAN_MAX_FRAME + 4096)
		terms->frame_bytes = LAN_MAX_FRAME + 4096;
	return NULL;
}

static void unit_opened(void *context, struct hdl_push *push)
{
	struct unit *unit = unit_of(context);
	struct unit_host *host = unit->hosts;
	while (host->push != NULL)
		host++;
	assert(host < unit->hosts + HDL_PUSH_MAX_LINKS); /* the port has no more connections */
	unit->now_ns = clock_now_ns();
	*host = (struct unit_host){
	        .push = push, .filter = HDL_PUSH_FILTER_ALL_MULTICAST, .heard_ns = unit->now_ns};
	*hdl_push_user(push) = host;
	unit->host_count++;
	unit->accepted++;
}

static void unit_closed(void *context, struct hdl_push *push, const char *why)
{
	struct tap *tap = context;
	struct unit *unit = unit_of(tap);
	struct unit_host *host = *hdl_push_user(push);
	if (host == NULL)
		return;
	log_info("tap %s: host %s has gone: %s", tap->options->name, hdl_push_name(push), why);
	macs_leave(&unit->macs, unit_port_of(unit, host));
	host->push = NULL;
	unit->host_count--;
	unit_agree_offloads(tap, NULL);
}

/* May this host have @mac? The unit's own interface is on the LAN, too. */
static bool unit_allows(const struct tap *tap, const struct unit_host *host, const uint8_t *mac)
{
	const struct link_state *link = &tap->lan.link;
	if (tap->lan.watch >= 0 && link->there && memcmp(mac, link->mac, LAN_MAC_BYTES) == 0)
		return false;
	return rights_allow(&tap->options->rights, hdl_push_name(host->push), mac);
}

/* The host wants to be known by @mac, in place of what it has. If it may not, it keeps that. */
static bool unit_set_mac(struct tap *tap, struct unit_host *host, const uint8_t *mac)
{
	struct unit *unit = unit_of(tap);
	uint32_t port = unit_port_of(unit, host);
	if (memcmp(mac, host->mac, LAN_MAC_BYTES) == 0 && host->up)
		return true;
	if (!unit_allows(tap, host, mac) || !rights_may_change(&host->changes, unit->now_ns) ||
	    !macs_replace(&unit->macs, host->mac, mac, port, unit_seconds(unit))) {
		host->refused_macs++;
		return false;
	}
	if (host->up) /* the first address is no change */
		rights_changed(&host->changes, unit->now_ns);
	memcpy(host->mac, mac, LAN_MAC_BYTES);
	return true;
}

/* There is one more behind the host. */
static bool unit_add_mac(struct tap *tap, struct unit_host *host, const uint8_t *mac)
{
	struct unit *unit = unit_of(tap);
	uint32_t port = unit_port_of(unit, host), now_s = unit_seconds(unit);
	if (host->up && macs_use(&unit->macs, mac, port, now_s))
		return true;
	bool room = macs_list(&unit->macs, port, NULL, 0) < tap->options->rights.macs ||
	            macs_retire(&unit->macs, port, host->mac, now_s);
	if (host->up && room && unit_allows(tap, host, mac) &&
	    macs_claim(&unit->macs, mac, port, now_s))
		return true;
	host->refused_macs++;
	return false;
}

/* The interface of the host has this MTU. A TAP follows, unless the user has said what its MTU is;
 * other interfaces belong to somebody else. */
static bool unit_take_mtu(struct tap *tap, struct unit_host *host, uint32_t mtu)
{
	struct lan *lan = &tap->lan;
	if (mtu < HDL_PUSH_MIN_MTU || mtu > HDL_PUSH_MAX_MTU)
		return false;
	host->mtu = mtu;
	if (mtu > unit_mtu(tap) && !tap->options->has_mtu && lan->kind->set_mtu != NULL &&
	    lan->kind->set_mtu(lan, mtu))
		lan_news(lan);
	return mtu <= unit_mtu(tap);
}

static void unit_initialise(struct tap *tap, struct unit_host *host,
                            const struct hdl_push_cfg *request, struct hdl_push_cfg *reply)
{
	struct unit *unit = unit_of(tap);
	static const uint8_t none[LAN_MAC_BYTES];
	/* A host whose interface is a socket learns its address from its first frame. */
	if (memcmp(request->mac, none, LAN_MAC_BYTES) != 0 &&
	    !unit_set_mac(tap, host, request->mac)) {
		reply->code = HDL_PUSH_CFG_REFUSED;
		return;
	}
	host->up = true;
	host->offloads = request->offloads | HDL_PUSH_OFFLOAD_HEADER;
	host->told_link = true; /* what it believes at first */
	unit_agree_offloads(tap, host);
	unit_take_mtu(tap, host, request->mtu); /* if not, it learns what is possible */
	host->told_mtu = unit_mtu(tap);
	reply->has_value = true;
	memcpy(reply->mac, host->mac, LAN_MAC_BYTES);
	reply->mtu = (uint16_t)unit_mtu(tap);
	reply->offloads = unit->offloads;
	reply->version = 1;
}

static void unit_configure(void *context, struct hdl_push *push, const struct hdl_push_cfg *request,
                           struct hdl_push_cfg *reply)
{
	struct tap *tap = context;
	struct unit *unit = unit_of(tap);
	struct unit_host *host = *hdl_push_user(push);
	unit->now_ns = host->heard_ns = clock_now_ns();
	if (request->code == 0 && request->item == HDL_PUSH_CFG_MORE_MAC) {
		reply->code = HDL_PUSH_CFG_MALFORMED; /* it can only be set */
		return;
	}
	if (request->code == 0) {
		reply->has_value = true;
		memcpy(reply->mac, host->mac, LAN_MAC_BYTES);
		reply->mtu = (uint16_t)unit_mtu(tap);
		reply->up = lan_is_up(&tap->lan);
		reply->offloads = unit->offloads;
		reply->filter = host->filter;
		reply->multicast_count = host->multicast_count;
		memcpy(reply->multicast, host->multicast, sizeof(reply->multicast));
		memcpy(reply->statistics, host->statistics, sizeof(reply->statistics));
		return;
	}
	switch (request->item) {
	case HDL_PUSH_CFG_INIT:
		unit_initialise(tap, host, request, reply);
		break;
	case HDL_PUSH_CFG_MAC:
		if (!unit_set_mac(tap, host, request->mac))
			reply->code = HDL_PUSH_CFG_REFUSED;
		break;
	case HDL_PUSH_CFG_MORE_MAC:
		if (!unit_add_mac(tap, host, request->mac))
			reply->code = HDL_PUSH_CFG_REFUSED;
		break;
	case HDL_PUSH_CFG_MTU:
		if (!unit_take_mtu(tap, host, request->mtu))
			reply->code = HDL_PUSH_CFG_REFUSED;
		break;
	case HDL_PUSH_CFG_FILTER:
		host->filter = request->filter;
		host->multicast_count = request->multicast_count;
		memcpy(host->multicast, request->multicast, sizeof(host->multicast));
		break;
	case HDL_PUSH_CFG_OFFLOADS:
		host->offloads = request->offloads | HDL_PUSH_OFFLOAD_HEADER;
		unit_agree_offloads(tap, NULL);
		break;
	default:
		reply->code = HDL_PUSH_CFG_READ_ONLY;
	}
}

static void unit_configured(void *context, struct hdl_push *push, uint64_t token,
                            const struct hdl_push_cfg *reply)
{
	struct tap *tap = context;
	if (token == UNIT_ALIVE) {
		if (reply == NULL)
			hdl_push_break(push, "the host is silent");
		return;
	}
	if (reply == NULL || reply->code != HDL_PUSH_CFG_OK)
		log_warn("tap %s: host %s does not take its configuration", tap->options->name,
		         hdl_push_name(push));
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

/* All addresses of a host, its own first. */
static json_t *unit_macs_json(const struct unit *unit, const struct unit_host *host)
{
	uint8_t macs[RIGHTS_MAX_MACS][LAN_MAC_BYTES];
	uint32_t count = macs_list(&unit->macs, unit_port_of(unit, host), macs, RIGHTS_MAX_MACS);
	json_t *list = json_array();
	for (unsigned own = 2; own-- > 0;)
		for (uint32_t i = 0; i < count; i++)
			if ((memcmp(macs[i], host->mac, LAN_MAC_BYTES) == 0) == (own == 1))
				json_array_append_new(list, tap_mac_json(macs[i]));
	return list;
}

static json_t *unit_stat(struct tap *tap)
{
	struct unit *unit = unit_of(tap);
	json_t *hosts = json_array();
	for (uint32_t i = 0; i < HDL_PUSH_MAX_LINKS; i++) {
		struct unit_host *host = &unit->hosts[i];
		if (host->push == NULL)
			continue;
		const uint64_t *values = host->statistics;
		json_t *row = json_pack(
		        "{s:s,s:b,s:o,s:o,s:I,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:i,s:I,s:b,s:b,s:i}",
		        "name", hdl_push_name(host->push), "up", host->up, "mac",
		        tap_mac_json(host->mac), "macs", unit_macs_json(unit, host), "refused_macs",
		        (json_int_t)host->refused_macs, "channel", tap_way(host->push), "rx_frames",
		        (json_int_t)values[HDL_PUSH_STAT_RX_FRAMES], "rx_bytes",
		        (json_int_t)values[HDL_PUSH_STAT_RX_BYTES], "tx_frames",
		        (json_int_t)values[HDL_PUSH_STAT_TX_FRAMES], "tx_bytes",
		        (json_int_t)values[HDL_PUSH_STAT_TX_BYTES], "dropped",
		        (json_int_t)values[HDL_PUSH_STAT_TX_DROPPED], "forged",
		        (json_int_t)values[HDL_PUSH_STAT_FORGED], "counters",
		        tap_counters(host->push), "mtu", (int)host->mtu, "too_long",
		        (json_int_t)host->too_long, "promiscuous",
		        (host->filter & HDL_PUSH_FILTER_PROMISCUOUS) != 0, "all_multicast",
		        (host->filter & HDL_PUSH_FILTER_ALL_MULTICAST) != 0, "groups",
		        (int)host->multicast_count);
		json_array_append_new(hosts, row);
	}
	return json_pack("{s:s,s:s,s:b,s:i,s:I,s:I,s:I,s:I,s:o,s:o}", "name", tap->options->name,
	                 "role", "unit", "up", true, "mtu", (int)unit_mtu(tap), "accepted",
	                 (json_int_t)unit->accepted, "refused", (json_int_t)unit->refused,
	                 "lan_forged", (json_int_t)unit->lan_forged, "offloads",
	                 (json_int_t)unit->offloads, "interface", tap_lan_json(&tap->lan), "hosts",
	                 hosts);
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
