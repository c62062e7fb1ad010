/* What the files of a unit share: unit.c moves frames, unit_hosts.c keeps its hosts. */
#ifndef TAP_UNIT_H
#define TAP_UNIT_H

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
	bool denied;                   /* its first one: it has never been up */
	uint8_t denied_mac[LAN_MAC_BYTES];
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

static inline struct unit *unit_of(struct tap *tap)
{
	return tap->state;
}

static inline uint32_t unit_port_of(const struct unit *unit, const struct unit_host *host)
{
	return (uint32_t)(host - unit->hosts) + 1;
}

static inline uint32_t unit_seconds(const struct unit *unit)
{
	return (uint32_t)(unit->now_ns / 1000000000ull);
}

/* How long frames of the LAN may be. */
uint32_t unit_mtu(const struct tap *tap);

/* --- unit_hosts.c --- */

const char *unit_accept(void *context, const char *name, struct hdl_push_terms *terms);
void unit_opened(void *context, struct hdl_push *push);
void unit_closed(void *context, struct hdl_push *push, const char *why);
void unit_configure(void *context, struct hdl_push *push, const struct hdl_push_cfg *request,
                    struct hdl_push_cfg *reply);
void unit_configured(void *context, struct hdl_push *push, uint64_t token,
                     const struct hdl_push_cfg *reply);
/* The offloads that every host and the LAN have: tell whoever has others, but not @except. */
void unit_agree_offloads(struct tap *tap, struct unit_host *except);
json_t *unit_stat(struct tap *tap);

#endif
