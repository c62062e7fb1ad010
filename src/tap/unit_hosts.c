/* The hosts of a unit: who they are, which addresses they have, what they have configured, and what
 * is shown of them. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "tap/unit.h"

/* All ends of one Ethernet must be able to finish what others leave undone: the offloads in use are
 * those that every host and the LAN have. Tell whoever has others. */
void unit_agree_offloads(struct tap *tap, struct unit_host *except)
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

const char *unit_accept(void *context, const char *name, struct hdl_push_terms *terms)
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

void unit_opened(void *context, struct hdl_push *push)
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

static json_t *unit_host_json(const struct unit *unit, const struct unit_host *host)
{
	const uint64_t *values = host->statistics;
	return json_pack(
	        "{s:s,s:b,s:o,s:o,s:I,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:i,s:I,s:b,s:b,s:i}", "name",
	        hdl_push_name(host->push), "up", host->up, "mac", tap_mac_json(host->mac), "macs",
	        unit_macs_json(unit, host), "refused_macs", (json_int_t)host->refused_macs,
	        "channel", tap_way(host->push), "rx_frames",
	        (json_int_t)values[HDL_PUSH_STAT_RX_FRAMES], "rx_bytes",
	        (json_int_t)values[HDL_PUSH_STAT_RX_BYTES], "tx_frames",
	        (json_int_t)values[HDL_PUSH_STAT_TX_FRAMES], "tx_bytes",
	        (json_int_t)values[HDL_PUSH_STAT_TX_BYTES], "dropped",
	        (json_int_t)values[HDL_PUSH_STAT_TX_DROPPED], "forged",
	        (json_int_t)values[HDL_PUSH_STAT_FORGED], "counters", tap_counters(host->push),
	        "mtu", (int)host->mtu, "too_long", (json_int_t)host->too_long, "promiscuous",
	        (host->filter & HDL_PUSH_FILTER_PROMISCUOUS) != 0, "all_multicast",
	        (host->filter & HDL_PUSH_FILTER_ALL_MULTICAST) != 0, "groups",
	        (int)host->multicast_count);
}

void unit_closed(void *context, struct hdl_push *push, const char *why)
{
	struct tap *tap = context;
	struct unit *unit = unit_of(tap);
	struct unit_host *host = *hdl_push_user(push);
	if (host == NULL)
		return;
	char reason[128];
	bool denied = host->denied && !host->up;
	if (denied) {
		const uint8_t *mac = host->denied_mac;
		snprintf(reason, sizeof(reason),
		         "%02x:%02x:%02x:%02x:%02x:%02x refused: another host has it, or the LAN, "
		         "or this host may not have it",
		         mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
		why = reason;
	}
	log_info("tap %s: host %s has gone: %s", tap->options->name, hdl_push_name(push), why);
	if (denied)
		ended_repeat(&tap->ended, unit_host_json(unit, host), why);
	else
		ended_add(&tap->ended, unit_host_json(unit, host), why);
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
		host->denied = true;
		memcpy(host->denied_mac, request->mac, LAN_MAC_BYTES);
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

void unit_configure(void *context, struct hdl_push *push, const struct hdl_push_cfg *request,
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

void unit_configured(void *context, struct hdl_push *push, uint64_t token,
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

json_t *unit_stat(struct tap *tap)
{
	struct unit *unit = unit_of(tap);
	json_t *hosts = json_array();
	for (uint32_t i = 0; i < HDL_PUSH_MAX_LINKS; i++) {
		struct unit_host *host = &unit->hosts[i];
		if (host->push == NULL)
			continue;
		json_array_append_new(hosts, unit_host_json(unit, host));
	}
	return json_pack("{s:s,s:s,s:b,s:i,s:I,s:I,s:I,s:I,s:o,s:o,s:o}", "name",
	                 tap->options->name, "role", "unit", "up", true, "mtu", (int)unit_mtu(tap),
	                 "accepted", (json_int_t)unit->accepted, "refused",
	                 (json_int_t)unit->refused, "lan_forged", (json_int_t)unit->lan_forged,
	                 "offloads", (json_int_t)unit->offloads, "interface",
	                 tap_lan_json(&tap->lan), "hosts", hosts, "ended", ended_json(&tap->ended));
}
