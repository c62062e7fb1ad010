/* What CfgUtilRequest and CfgUtilReply of the split driver carry (SPLIT section IV.B.3). SPLIT says
 * what they are for; the layout is defined in heddle-push(7).
 *
 *   0  item (2)
 *   2  request: 0 get, 1 set; reply: status (2)
 *   4  the value, by item; of a get, and of a reply to a set or of a failed one, nothing
 *
 *      INIT        MAC address (6), MTU (2), offloads (4), version (2), 0 (2)
 *      MAC         address (6)
 *      MTU         bytes (2)
 *      LINK        1 up, 0 down (1)
 *      FILTER      flags (4), multicast addresses (6 each), up to 64
 *      OFFLOADS    offloads (4)
 *      STATISTICS  counters (8 each), in the order of enum push_statistic
 *      MORE_MAC    one more address (6); can only be set */
#ifndef WIRE_PUSH_CFG_H
#define WIRE_PUSH_CFG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PUSH_CFG_HEADER_BYTES  4u
#define PUSH_CFG_MAX_MULTICAST 64u
#define PUSH_MAC_BYTES         6u
#define PUSH_MIN_MTU           68u
#define PUSH_MAX_MTU           9000u

enum push_cfg_item {
	PUSH_CFG_INIT = 1,
	PUSH_CFG_MAC,
	PUSH_CFG_MTU,
	PUSH_CFG_LINK,
	PUSH_CFG_FILTER,
	PUSH_CFG_OFFLOADS,
	PUSH_CFG_STATISTICS,
	PUSH_CFG_MORE_MAC,
	PUSH_CFG_ITEM_COUNT
};

enum push_cfg_status {
	PUSH_CFG_OK,
	PUSH_CFG_UNKNOWN, /* no such item */
	PUSH_CFG_MALFORMED,
	PUSH_CFG_REFUSED, /* a value that is out of range, or that somebody else has */
	PUSH_CFG_READ_ONLY,
	PUSH_CFG_STATUS_COUNT
};

enum push_offload {
	PUSH_OFFLOAD_HEADER = 1,   /* each frame begins with a virtio_net_hdr of 10 bytes */
	PUSH_OFFLOAD_CHECKSUM = 2, /* its checksum may be left to the receiver */
	PUSH_OFFLOAD_TSO4 = 4,     /* it may be a TCP segment of up to 64 KiB, */
	PUSH_OFFLOAD_TSO6 = 8,
	PUSH_OFFLOAD_ECN = 16
};
#define PUSH_OFFLOAD_ALL 31u

enum push_filter_flag { PUSH_FILTER_PROMISCUOUS = 1, PUSH_FILTER_ALL_MULTICAST = 2 };

enum push_statistic {
	PUSH_STAT_RX_FRAMES, /* from the host, as the unit sees it */
	PUSH_STAT_RX_BYTES,
	PUSH_STAT_TX_FRAMES, /* to the host */
	PUSH_STAT_TX_BYTES,
	PUSH_STAT_TX_DROPPED, /* the host had no room for too long */
	PUSH_STAT_FORGED,     /* source addresses that are not the host's */
	PUSH_STAT_COUNT
};

struct push_cfg {
	uint16_t item;
	uint16_t code; /* a request: 1 to set; a reply: enum push_cfg_status */
	bool has_value;
	uint8_t mac[PUSH_MAC_BYTES];
	uint16_t mtu;
	uint16_t version;
	uint32_t offloads;
	bool up;
	uint32_t filter;
	uint32_t multicast_count;
	uint8_t multicast[PUSH_CFG_MAX_MULTICAST][PUSH_MAC_BYTES];
	uint64_t statistics[PUSH_STAT_COUNT];
};

/* Decode the @bytes at @in. PUSH_CFG_UNKNOWN: cfg->item alone is set. PUSH_CFG_MALFORMED: so is
 * cfg->item, and cfg->code of an item that is known, if they are there. */
enum push_cfg_status push_cfg_decode(struct push_cfg *cfg, const uint8_t *in, size_t bytes);
/* Returns the length; 0: it does not fit. */
size_t push_cfg_put(const struct push_cfg *cfg, uint8_t *out, size_t capacity);

#endif
