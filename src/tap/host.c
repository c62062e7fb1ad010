/* A host: an interface whose frames go to a unit. It connects, tells the unit its address, and
 * passes frames; when the connection ends, the interface loses its carrier and the host tries
 * again. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "tap/tap.h"
#include "wire/be.h"

#define HOST_REFUSED                                                                           \
	"the unit refuses the MAC address: another host has it, or its LAN, or this host may " \
	"not have it"

enum host_token {
	TOKEN_INIT = 1,
	TOKEN_LINK,   /* the last question before frames pass */
	TOKEN_MAC,    /* the user has asked for the address, */
	TOKEN_FOLLOW, /* or the interface has it; */
	TOKEN_MORE,   /* somebody behind the interface has it */
	TOKEN_STATISTICS,
	TOKEN_TOLD,
	TOKEN_ALIVE
};

struct host {
	struct hdl_push *push;
	bool up;             /* the unit has agreed: frames pass */
	bool waits;          /* a frame is in the slot, until the unit knows its source address */
	uint8_t *wait_frame; /* it, */
	uint32_t wait_bytes; /* and its length */
	uint8_t mac[LAN_MAC_BYTES];         /* what the unit knows, */
	uint8_t wanted[LAN_MAC_BYTES];      /* what it was asked to know instead, */
	bool wants;                         /* and has not answered yet, */
	uint8_t refused_mac[LAN_MAC_BYTES]; /* and what it has refused */
	uint64_t refused_ns;                /* when that was; 0: nothing */
	bool denied;                        /* it has refused the address of this connection, */
	uint32_t denials;                   /* and of so many in a row, */
	uint8_t denied_mac[LAN_MAC_BYTES];  /* of which this was the last */
	bool learned;        /* the address is that of the one at the other end of a socket, */
	uint32_t learned_of; /* which was this one (lan.peers) */
	struct macs behind;  /* who else is behind the interface, and known to the unit: port 1 */
	uint64_t next_ns;
	uint32_t offloads;
	bool link;                  /* the unit has its LAN */
	uint32_t lan_mtu;           /* what the LAN takes; 0: unknown */
	uint32_t told_mtu;          /* what the unit knows of our interface, */
	struct hdl_push_cfg filter; /* and which frames it wants */
	bool filter_known, groups_changed;
	uint64_t groups_ns; /* when to look at the groups again */
	uint64_t heard_ns;  /* the last sign of life of the unit */
	bool heard, asked;  /* there was one since; it was asked for one */
	uint64_t connections, refused, too_long;
	int asker; /* who waits for an answer of the unit */
	char why[160];
};

static struct host *host_of(struct tap *tap)
{
	return tap->state;
}

/* Where the unit is: an address, or the name of a node of this agent. */
static bool host_find(const char *name, struct hdl_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct hdl_process *list;
	size_t count;
	bool found = false;
	if (inet_pton(AF_INET6, name, gid->raw) == 1)
		return true;
	memcpy(gid->raw, mapped, sizeof(mapped));
	if (inet_pton(AF_INET, name, gid->raw + 12) == 1)
		return true;
	if (hdl_observe(&list, &count) != 0)
		return false;
	for (size_t i = 0; i < count && !found; i++) {
		found = strcmp(list[i].node, strcmp(name, "localhost") == 0 ? "" : name) == 0;
		if (found)
			*gid = list[i].gid;
	}
	hdl_observe_free(list, count);
	return found;
}

static void host_connect(struct tap *tap)
{
	struct host *host = host_of(tap);
	struct hdl_gid gid;
	host->next_ns = clock_now_ns() + TAP_RETRY_NS;
	if (!host_find(tap->options->node, &gid)) {
		snprintf(host->why, sizeof(host->why), "there is no node '%.64s'",
		         tap->options->node);
		return;
	}
	int error = hdl_push_connect(tap->port, &gid, tap->options->service, tap->options->name,
	                             &tap->options->terms, &host->push);
	if (error != 0)
		snprintf(host->why, sizeof(host->why), "%s", hdl_strerror(error));
}

/* The MTU of our interface. */
static uint32_t host_mtu(const struct tap *tap)
{
	uint32_t mtu = tap->lan.link.mtu != 0 ? tap->lan.link.mtu : tap->options->mtu;
	return mtu < HDL_PUSH_MAX_MTU ? mtu : HDL_PUSH_MAX_MTU;
}

/* The cable: the unit, and its LAN. */
static void host_carry(struct tap *tap)
{
	const struct host *host = tap->state;
	if (tap->lan.kind->carrier != NULL && tap->lan.fd >= 0)
		tap->lan.kind->carrier(&tap->lan, host->up && host->link);
}

/* What the kernel knows about the interface of its address; at the other end of a socket nobody
 * says, but frames have sources. */
static bool host_sees_mac(const struct tap *tap)
{
	return tap->lan.watch >= 0 && tap->lan.link.there;
}

static void host_own_mac(const struct tap *tap, uint8_t mac[LAN_MAC_BYTES])
{
	const struct host *host = tap->state;
	const uint8_t *own = host_sees_mac(tap) ? tap->lan.link.mac
	                     : host->learned    ? host->mac
	                                        : tap->lan.mac;
	memcpy(mac, own, LAN_MAC_BYTES);
}

static void host_opened(void *context, struct hdl_push *push)
{
	struct tap *tap = context;
	struct host *host = host_of(tap);
	struct hdl_push_cfg request = {.item = HDL_PUSH_CFG_INIT,
	                               .code = 1,
	                               .has_value = true,
	                               .mtu = (uint16_t)host_mtu(tap),
	                               .version = 1};
	request.offloads =
	        tap->options->offloads ? tap->lan.kind->offloads : HDL_PUSH_OFFLOAD_HEADER;
	host_own_mac(tap, request.mac);
	hdl_push_configure(push, &request, TOKEN_INIT);
	memcpy(host->mac, request.mac, sizeof(host->mac));
	memset(&host->behind, 0, sizeof(host->behind));
	host->wants = host->denied = false;
	host->refused_ns = 0;
}

/* The question of @asker is answered, one way or the other. */
static void host_answer(struct tap *tap, json_t *answer)
{
	struct host *host = host_of(tap);
	if (host->asker >= 0)
		tap_reply(tap, host->asker, answer);
	else
		json_decref(answer);
	host->asker = -1;
}

/* How long to wait before the next attempt. A unit that refuses the address will most likely refuse
 * it again. */
static uint64_t host_pause(uint32_t denials)
{
	uint32_t doublings = denials < TAP_MAX_DOUBLINGS ? denials : TAP_MAX_DOUBLINGS;
	return denials == 0 ? TAP_RETRY_NS : TAP_AGAIN_NS / 2 << doublings;
}

/* Has the interface another address than the one that the unit has refused? */
static bool host_has_changed(const struct tap *tap)
{
	const struct host *host = tap->state;
	uint8_t own[LAN_MAC_BYTES];
	host_own_mac(tap, own);
	return host->denials != 0 && memcmp(own, host->denied_mac, LAN_MAC_BYTES) != 0;
}

static void host_closed(void *context, struct hdl_push *push, const char *why)
{
	struct tap *tap = context;
	struct host *host = host_of(tap);
	if (host->up)
		log_info("tap %s: the connection to %s has ended: %s", tap->options->name,
		         tap->options->node, why);
	snprintf(host->why, sizeof(host->why), "%s%s", why,
	         strstr(why, "version") != NULL        ? "; install the same Heddle at both ends"
	         : strstr(why, "HEDDLE_LOCAL") != NULL ? "; set it at both, or at none"
	                                               : "");
	if (host->up)
		ended_add(&tap->ended, json_pack("{s:o}", "counters", tap_counters(push)), why);
	host->push = NULL;
	host->up = host->waits = false;
	host_carry(tap);
	host->denials = host->denied ? host->denials + 1 : 0;
	host->denied = false;
	host->next_ns = clock_now_ns() + host_pause(host->denials);
	host_answer(tap, tap_error("the connection has ended"));
}

static bool host_deliver(void *context, struct hdl_push *push, const uint8_t *frame, uint32_t bytes)
{
	struct tap *tap = context;
	(void)push;
	host_of(tap)->heard = true;
	return bytes < LAN_HEADER_BYTES + 14 || lan_write(&tap->lan, frame, bytes);
}

/* The unit asks, or tells. */
static void host_configure(void *context, struct hdl_push *push, const struct hdl_push_cfg *request,
                           struct hdl_push_cfg *reply)
{
	struct tap *tap = context;
	struct host *host = host_of(tap);
	(void)push;
	host->heard = true;
	if (request->code == 1) {
		if (request->item == HDL_PUSH_CFG_OFFLOADS) {
			host->offloads = request->offloads;
			if (tap->lan.kind->set_offloads != NULL)
				tap->lan.kind->set_offloads(&tap->lan, host->offloads);
		} else if (request->item == HDL_PUSH_CFG_LINK) {
			host->link = request->up;
			host_carry(tap);
		} else if (request->item == HDL_PUSH_CFG_MTU) {
			host->lan_mtu = request->mtu;
		} else {
			reply->code = HDL_PUSH_CFG_READ_ONLY;
		}
		return;
	}
	reply->has_value = true;
	memcpy(reply->mac, host->mac, sizeof(reply->mac));
	reply->mtu = (uint16_t)host_mtu(tap);
	reply->offloads = host->offloads;
	reply->up = host->up;
	reply->version = 1;
}

static void host_initialised(struct tap *tap, const struct hdl_push_cfg *reply)
{
	struct host *host = host_of(tap);
	host->denied = reply != NULL && reply->code == HDL_PUSH_CFG_REFUSED;
	if (reply == NULL || reply->code != HDL_PUSH_CFG_OK || !reply->has_value) {
		memcpy(host->denied_mac, host->mac, LAN_MAC_BYTES);
		hdl_push_break(host->push, host->denied ? HOST_REFUSED
		                                        : "the unit does not answer as it should");
		return;
	}
	host->offloads = reply->offloads;
	if (tap->lan.kind->set_offloads != NULL)
		tap->lan.kind->set_offloads(&tap->lan, host->offloads);
	host->lan_mtu = reply->mtu;
	host->told_mtu = host_mtu(tap);
	host->filter_known = host->asked = false;
	host->groups_changed = host->heard = true;
	static const struct hdl_push_cfg link = {.item = HDL_PUSH_CFG_LINK};
	if (!hdl_push_configure(host->push, &link, TOKEN_LINK))
		hdl_push_break(host->push, "a question could not be asked");
}

/* The unit has told whether its LAN has a link: that was all. */
static void host_begins(struct tap *tap, bool link)
{
	struct host *host = host_of(tap);
	host->up = true;
	host->link = link;
	host_carry(tap);
	host->connections++;
	host->why[0] = '\0';
}

/* Ask the unit to know us by @mac, or as one more with TOKEN_MORE. One question at a time. */
static bool host_tell_mac(struct host *host, const uint8_t mac[LAN_MAC_BYTES], uint64_t token)
{
	struct hdl_push_cfg request = {.item = token == TOKEN_MORE ? HDL_PUSH_CFG_MORE_MAC
	                                                           : HDL_PUSH_CFG_MAC,
	                               .code = 1,
	                               .has_value = true};
	memcpy(request.mac, mac, sizeof(request.mac));
	if (host->wants || !hdl_push_configure(host->push, &request, token))
		return false;
	memcpy(host->wanted, mac, sizeof(host->wanted));
	host->wants = true;
	return true;
}

/* Has the unit refused this address just now? */
static bool host_was_refused(const struct host *host, const uint8_t mac[LAN_MAC_BYTES])
{
	return host->refused_ns != 0 && memcmp(host->refused_mac, mac, LAN_MAC_BYTES) == 0 &&
	       clock_now_ns() - host->refused_ns < TAP_AGAIN_NS;
}

enum host_source { SOURCE_OURS, SOURCE_ASK, SOURCE_FOREIGN };

/* Whose address is the source of a frame? Ours is that of the interface. Whoever else puts frames
 * into it may use their own only if the user has said that there is a bridge. */
static enum host_source host_judge(struct tap *tap, const uint8_t mac[LAN_MAC_BYTES],
                                   uint64_t *token)
{
	struct host *host = host_of(tap);
	uint32_t now_s = (uint32_t)(clock_now_ns() / 1000000000ull);
	*token = TOKEN_FOLLOW;
	if (memcmp(mac, host->mac, LAN_MAC_BYTES) == 0)
		return SOURCE_OURS;
	if (tap->options->bridge && macs_use_recent(&host->behind, mac, 1, now_s))
		return SOURCE_OURS;
	if (host_was_refused(host, mac))
		return SOURCE_FOREIGN;
	if (tap->lan.watch >= 0) { /* it may have changed, and nobody has told us yet */
		lan_news(&tap->lan);
		if (memcmp(mac, tap->lan.link.mac, LAN_MAC_BYTES) == 0)
			return SOURCE_ASK;
	} else if (!tap->options->has_mac && host->learned_of != tap->lan.peers) {
		return SOURCE_ASK;
	}
	*token = TOKEN_MORE;
	return tap->options->bridge ? SOURCE_ASK : SOURCE_FOREIGN;
}

/* Send the frame in the slot if its source is ours, or ask the unit first. */
static void host_check_source(struct tap *tap, uint8_t *frame, uint32_t bytes)
{
	struct host *host = host_of(tap);
	const uint8_t *from = frame + LAN_HEADER_BYTES + LAN_MAC_BYTES;
	uint64_t token;
	enum host_source source = host_judge(tap, from, &token);
	host->waits = source == SOURCE_ASK && (host->wants || host_tell_mac(host, from, token));
	if (host->waits) {
		host->wait_frame = frame;
		host->wait_bytes = bytes;
	} else if (source == SOURCE_OURS) {
		hdl_push_send(host->push, bytes);
	} else {
		hdl_push_untake(host->push);
		host->refused++;
	}
}

/* The unit has answered about host->wanted, or gives no answer. */
static void host_told_mac(struct tap *tap, uint64_t token, bool agreed)
{
	struct host *host = host_of(tap);
	host->wants = false;
	if (!agreed) {
		memcpy(host->refused_mac, host->wanted, LAN_MAC_BYTES);
		host->refused_ns = clock_now_ns();
	} else if (token == TOKEN_MORE) {
		uint32_t now_s = (uint32_t)(clock_now_ns() / 1000000000ull);
		macs_claim(&host->behind, host->wanted, 1, now_s);
		macs_use(&host->behind, host->wanted, 1, now_s);
	} else {
		memcpy(host->mac, host->wanted, sizeof(host->mac));
		host->learned = !host_sees_mac(tap);
		host->learned_of = tap->lan.peers;
	}
	if (token == TOKEN_FOLLOW && !agreed && host->why[0] == '\0')
		log_warn("tap %s: " HOST_REFUSED, tap->options->name);
	if (token == TOKEN_FOLLOW)
		snprintf(host->why, sizeof(host->why), "%s", agreed ? "" : HOST_REFUSED);
	if (host->waits)
		host_check_source(tap, host->wait_frame, host->wait_bytes);
}

static void host_configured(void *context, struct hdl_push *push, uint64_t token,
                            const struct hdl_push_cfg *reply)
{
	struct tap *tap = context;
	struct host *host = host_of(tap);
	bool agreed = reply != NULL && reply->code == HDL_PUSH_CFG_OK;
	host->heard |= reply != NULL;
	if (token == TOKEN_ALIVE) {
		host->asked = false;
		if (reply == NULL)
			hdl_push_break(push, "the unit is silent");
	} else if (token == TOKEN_INIT) {
		host_initialised(tap, reply);
	} else if (token == TOKEN_LINK) {
		if (agreed && reply->has_value)
			host_begins(tap, reply->up);
		else
			hdl_push_break(push, "the unit does not tell about its link");
	} else if (token == TOKEN_TOLD) {
		if (!agreed)
			log_warn("tap %s: the LAN of %s takes frames of up to %u bytes",
			         tap->options->name, tap->options->node, host->lan_mtu);
	} else if (token == TOKEN_STATISTICS) {
		json_t *answer = tap->role->ask(tap, -1, "local", NULL);
		if (agreed && reply->has_value) {
			static const char *const names[HDL_PUSH_STAT_COUNT] = {
			        "rx_frames", "rx_bytes", "tx_frames",
			        "tx_bytes",  "dropped",  "forged"};
			json_t *unit = json_object();
			for (unsigned i = 0; i < HDL_PUSH_STAT_COUNT; i++)
				json_object_set_new(unit, names[i],
				                    json_integer((json_int_t)reply->statistics[i]));
			json_object_set_new(answer, "unit_counters", unit);
		}
		host_answer(tap, answer);
	} else {
		host_told_mac(tap, token, agreed);
		if (token != TOKEN_MAC)
			return;
		if (agreed && tap->lan.kind->set_mac != NULL) {
			lan_news(&tap->lan); /* what is older than our change */
			agreed = tap->lan.kind->set_mac(&tap->lan, host->mac);
		}
		host_answer(tap, agreed ? json_pack("{s:o}", "mac", tap_mac_json(host->mac))
		                        : tap_error("the unit refuses the address: another host "
		                                    "or its LAN has it, it is not one of a "
		                                    "station, or this host may not have it"));
	}
}

static bool host_begin(struct tap *tap)
{
	struct host *host = calloc(1, sizeof(*host));
	if (host == NULL)
		return false;
	host->asker = -1;
	tap->state = host;
	snprintf(host->why, sizeof(host->why), "the unit has not answered yet");
	if (tap->lan.kind->carrier != NULL)
		tap->lan.kind->carrier(&tap->lan, false);
	return true;
}

/* Which groups the interface wants. */
static void host_filter(struct tap *tap, struct hdl_push_cfg *filter)
{
	struct lan *lan = &tap->lan;
	int count = link_read_groups(lan->groups, lan->link.index, filter->multicast,
	                             HDL_PUSH_CFG_MAX_MULTICAST);
	if (lan->link.promiscuous)
		filter->filter |= HDL_PUSH_FILTER_PROMISCUOUS;
	if (lan->link.all_multicast || count < 0 || count > (int)HDL_PUSH_CFG_MAX_MULTICAST)
		filter->filter |= HDL_PUSH_FILTER_ALL_MULTICAST;
	else
		filter->multicast_count = (uint32_t)count;
}

/* Nobody says that the machine of the unit has lost its power. */
static void host_check(struct host *host, uint64_t now)
{
	static const struct hdl_push_cfg question = {.item = HDL_PUSH_CFG_LINK};
	if (host->heard)
		host->heard_ns = now;
	host->heard = false;
	if (!host->asked && now - host->heard_ns >= TAP_QUIET_NS)
		host->asked = hdl_push_configure(host->push, &question, TOKEN_ALIVE);
}

/* Tell the unit about our interface what it does not know yet. */
static void host_tell(struct tap *tap)
{
	struct host *host = host_of(tap);
	uint64_t now = clock_now_ns();
	host_check(host, now);
	struct hdl_push_cfg mtu = {.item = HDL_PUSH_CFG_MTU,
	                           .code = 1,
	                           .has_value = true,
	                           .mtu = (uint16_t)host_mtu(tap)};
	if (host->told_mtu != mtu.mtu && hdl_push_configure(host->push, &mtu, TOKEN_TOLD))
		host->told_mtu = mtu.mtu;
	const struct link_state *link = &tap->lan.link;
	if (host_sees_mac(tap) && memcmp(link->mac, host->mac, LAN_MAC_BYTES) != 0 &&
	    !host_was_refused(host, link->mac))
		host_tell_mac(host, link->mac, TOKEN_FOLLOW);
	host->groups_changed |=
	        link->promiscuous != ((host->filter.filter & HDL_PUSH_FILTER_PROMISCUOUS) != 0);
	if (tap->lan.groups < 0 || (!host->groups_changed && now < host->groups_ns))
		return;
	struct hdl_push_cfg filter = {.item = HDL_PUSH_CFG_FILTER, .code = 1, .has_value = true};
	host_filter(tap, &filter);
	bool same = host->filter_known && filter.filter == host->filter.filter &&
	            filter.multicast_count == host->filter.multicast_count &&
	            memcmp(filter.multicast, host->filter.multicast,
	                   filter.multicast_count * sizeof(filter.multicast[0])) == 0;
	if (!same && !hdl_push_configure(host->push, &filter, TOKEN_TOLD))
		return;
	host->filter = filter;
	host->filter_known = true;
	host->groups_changed = false;
	host->groups_ns = now + TAP_GROUPS_NS;
}

/* Who joins a group says so to the network, by IGMP or, in a header of options, MLD. */
static bool host_joins(const uint8_t *ether)
{
	uint16_t type = be16_load(ether + 12);
	return macs_is_group(ether) &&
	       ((type == 0x0800 && ether[14 + 9] == 2) || (type == 0x86dd && ether[14 + 6] == 0));
}

/* A frame of our interface, of @bytes, is in the slot. */
static void host_send(struct tap *tap, uint8_t *frame, uint32_t bytes, uint32_t capacity)
{
	struct host *host = host_of(tap);
	const uint8_t *to = frame + LAN_HEADER_BYTES;
	host->groups_changed |= bytes > LAN_HEADER_BYTES + 34 && host_joins(to);
	/* One byte more than any frame: it was cut. */
	if (bytes == capacity || lan_is_too_long(frame, bytes, host->lan_mtu)) {
		hdl_push_untake(host->push);
		host->too_long++;
	} else {
		host_check_source(tap, frame, bytes);
	}
}

static int host_turn(struct tap *tap)
{
	struct host *host = host_of(tap);
	uint32_t capacity;
	int moved = 0;
	if (host->push == NULL && host_has_changed(tap)) {
		host->denials = 0;
		host->next_ns = 0;
	}
	if (host->push == NULL && clock_now_ns() >= host->next_ns)
		host_connect(tap);
	if (!host->up)
		return 0;
	host_tell(tap);
	capacity = hdl_push_agreed(host->push)->frame_bytes;
	while (tap->lan_ready && !host->waits && moved < (int)TAP_BUDGET) {
		uint8_t *frame = hdl_push_take(host->push);
		if (frame == NULL)
			break;
		ssize_t got = lan_read(&tap->lan, frame, capacity);
		if (got <= 0) {
			hdl_push_untake(host->push);
			tap->lan_ready = false;
			break;
		}
		moved++;
		host_send(tap, frame, (uint32_t)got, capacity);
	}
	return moved;
}

static uint64_t host_deadline(const struct tap *tap)
{
	const struct host *host = tap->state;
	if (host->push == NULL)
		return host->next_ns;
	if (!host->up)
		return UINT64_MAX;
	uint64_t quiet_ns = host->asked ? UINT64_MAX : host->heard_ns + TAP_QUIET_NS;
	return tap->lan.groups >= 0 && host->groups_ns < quiet_ns ? host->groups_ns : quiet_ns;
}

static const char *host_waits_for(const struct tap *tap)
{
	const struct host *host = tap->state;
	if (!host->up)
		return host->why;
	return host->link ? NULL : "the LAN of its unit has no link";
}

static json_t *host_stat(struct tap *tap)
{
	static const char *const modes[] = {"rdma", "send"};
	static const char *const models[] = {"push-push", "push-pull", "pull-pull"};
	struct host *host = host_of(tap);
	json_t *answer =
	        json_pack("{s:s,s:s,s:s,s:b,s:I,s:I,s:I,s:o,s:o}", "name", tap->options->name,
	                  "role", "host", "unit", tap->options->node, "up", host->up, "connections",
	                  (json_int_t)host->connections, "refused_frames",
	                  (json_int_t)host->refused, "offloads", (json_int_t)host->offloads, "mac",
	                  tap_mac_json(host->mac), "interface", tap_lan_json(&tap->lan));
	json_object_set_new(answer, "mtu", json_integer((json_int_t)host_mtu(tap)));
	json_object_set_new(answer, "lan_mtu", json_integer((json_int_t)host->lan_mtu));
	json_object_set_new(answer, "too_long", json_integer((json_int_t)host->too_long));
	json_object_set_new(answer, "link", json_boolean(host->up && host->link));
	json_object_set_new(answer, "mode", json_string(modes[tap->options->terms.mode]));
	json_object_set_new(answer, "model", json_string(models[tap->options->terms.model]));
	if (host->up) {
		json_object_set_new(answer, "channel", json_string(tap_way(host->push)));
		json_object_set_new(answer, "counters", tap_counters(host->push));
	}
	json_object_set_new(answer, "ended", ended_json(&tap->ended));
	if (host->why[0] != '\0')
		json_object_set_new(answer, "why", json_string(host->why));
	else if (!host->link)
		json_object_set_new(answer, "why", json_string("the LAN of the unit has no link"));
	return answer;
}

static json_t *host_ask(struct tap *tap, int client, const char *what, const json_t *question)
{
	struct host *host = host_of(tap);
	uint8_t mac[LAN_MAC_BYTES];
	if (strcmp(what, "local") == 0)
		return host_stat(tap);
	if (strcmp(what, "down") == 0) {
		tap_stop();
		return json_object();
	}
	if (strcmp(what, "mac") == 0) {
		const char *text = json_string_value(json_object_get(question, "mac"));
		if (text == NULL)
			return json_pack("{s:o}", "mac", tap_mac_json(host->mac));
		if (!tap_parse_mac(text, mac))
			return tap_error(
			        "not a MAC address of a station, such as 02:00:00:00:00:01");
		if (!host->up || host->asker >= 0 || !host_tell_mac(host, mac, TOKEN_MAC))
			return tap_error(host->up ? "busy; try again"
			                          : "there is no connection to the unit");
		host->asker = client;
		return NULL;
	}
	if (strcmp(what, "stat") != 0)
		return tap_error("an unknown question");
	struct hdl_push_cfg request = {.item = HDL_PUSH_CFG_STATISTICS};
	if (!host->up || host->asker >= 0 ||
	    !hdl_push_configure(host->push, &request, TOKEN_STATISTICS))
		return host_stat(tap);
	host->asker = client;
	return NULL;
}

static void host_end(struct tap *tap)
{
	free(tap->state);
	tap->state = NULL;
}

static const struct hdl_push_ops host_ops = {.opened = host_opened,
                                             .closed = host_closed,
                                             .deliver = host_deliver,
                                             .configure = host_configure,
                                             .configured = host_configured};

const struct tap_role tap_host = {.ops = &host_ops,
                                  .begin = host_begin,
                                  .waits_for = host_waits_for,
                                  .turn = host_turn,
                                  .deadline = host_deadline,
                                  .ask = host_ask,
                                  .end = host_end};
