/* The contents of the configuration messages; see push_cfg.h. */
#include "wire/push_cfg.h"

#include <string.h>

#include "wire/be.h"

/* Bytes of the value of each item; of a filter, without its addresses. */
static const uint32_t cfg_value_bytes[PUSH_CFG_ITEM_COUNT] = {
        [PUSH_CFG_INIT] = 16,
        [PUSH_CFG_MAC] = 6,
        [PUSH_CFG_MTU] = 2,
        [PUSH_CFG_LINK] = 1,
        [PUSH_CFG_FILTER] = 4,
        [PUSH_CFG_OFFLOADS] = 4,
        [PUSH_CFG_STATISTICS] = 8 * PUSH_STAT_COUNT,
        [PUSH_CFG_MORE_MAC] = 6,
};

static void cfg_decode_value(struct push_cfg *cfg, const uint8_t *at)
{
	switch (cfg->item) {
	case PUSH_CFG_INIT:
		memcpy(cfg->mac, at, PUSH_MAC_BYTES);
		cfg->mtu = be16_load(at + 6);
		cfg->offloads = be32_load(at + 8);
		cfg->version = be16_load(at + 12);
		break;
	case PUSH_CFG_MAC:
	case PUSH_CFG_MORE_MAC:
		memcpy(cfg->mac, at, PUSH_MAC_BYTES);
		break;
	case PUSH_CFG_MTU:
		cfg->mtu = be16_load(at);
		break;
	case PUSH_CFG_LINK:
		cfg->up = at[0] != 0;
		break;
	case PUSH_CFG_FILTER:
		cfg->filter = be32_load(at);
		memcpy(cfg->multicast, at + 4, (size_t)cfg->multicast_count * PUSH_MAC_BYTES);
		break;
	case PUSH_CFG_OFFLOADS:
		cfg->offloads = be32_load(at);
		break;
	default:
		for (uint32_t i = 0; i < PUSH_STAT_COUNT; i++)
			cfg->statistics[i] = be64_load(at + 8 * (size_t)i);
		break;
	}
}

enum push_cfg_status push_cfg_decode(struct push_cfg *cfg, const uint8_t *in, size_t bytes)
{
	*cfg = (struct push_cfg){0};
	if (bytes < PUSH_CFG_HEADER_BYTES)
		return PUSH_CFG_MALFORMED;
	cfg->item = be16_load(in);
	if (cfg->item < PUSH_CFG_INIT || cfg->item >= PUSH_CFG_ITEM_COUNT)
		return PUSH_CFG_UNKNOWN;
	cfg->code = be16_load(in + 2);
	bytes -= PUSH_CFG_HEADER_BYTES;
	if (bytes == 0)
		return PUSH_CFG_OK;
	uint32_t fixed = cfg_value_bytes[cfg->item];
	size_t more = bytes >= fixed ? bytes - fixed : 0;
	if (bytes < fixed || (cfg->item != PUSH_CFG_FILTER && more != 0) ||
	    more % PUSH_MAC_BYTES != 0 || more / PUSH_MAC_BYTES > PUSH_CFG_MAX_MULTICAST)
		return PUSH_CFG_MALFORMED;
	cfg->has_value = true;
	cfg->multicast_count = (uint32_t)(more / PUSH_MAC_BYTES);
	cfg_decode_value(cfg, in + PUSH_CFG_HEADER_BYTES);
	return PUSH_CFG_OK;
}

static void cfg_put_value(const struct push_cfg *cfg, uint8_t *at)
{
	switch (cfg->item) {
	case PUSH_CFG_INIT:
		memcpy(at, cfg->mac, PUSH_MAC_BYTES);
		be16_store(at + 6, cfg->mtu);
		be32_store(at + 8, cfg->offloads);
		be16_store(at + 12, cfg->version);
		be16_store(at + 14, 0);
		break;
	case PUSH_CFG_MAC:
	case PUSH_CFG_MORE_MAC:
		memcpy(at, cfg->mac, PUSH_MAC_BYTES);
		break;
	case PUSH_CFG_MTU:
		be16_store(at, cfg->mtu);
		break;
	case PUSH_CFG_LINK:
		at[0] = cfg->up;
		break;
	case PUSH_CFG_FILTER:
		be32_store(at, cfg->filter);
		memcpy(at + 4, cfg->multicast, (size_t)cfg->multicast_count * PUSH_MAC_BYTES);
		break;
	case PUSH_CFG_OFFLOADS:
		be32_store(at, cfg->offloads);
		break;
	default:
		for (uint32_t i = 0; i < PUSH_STAT_COUNT; i++)
			be64_store(at + 8 * (size_t)i, cfg->statistics[i]);
		break;
	}
}

size_t push_cfg_put(const struct push_cfg *cfg, uint8_t *out, size_t capacity)
{
	bool known = cfg->item >= PUSH_CFG_INIT && cfg->item < PUSH_CFG_ITEM_COUNT;
	size_t value = cfg->has_value && known ? cfg_value_bytes[cfg->item] : 0;
	if (value > 0 && cfg->item == PUSH_CFG_FILTER) {
		if (cfg->multicast_count > PUSH_CFG_MAX_MULTICAST)
			return 0;
		value += (size_t)cfg->multicast_count * PUSH_MAC_BYTES;
	}
	if (PUSH_CFG_HEADER_BYTES + value > capacity)
		return 0;
	be16_store(out, cfg->item);
	be16_store(out + 2, cfg->code);
	if (value > 0)
		cfg_put_value(cfg, out + PUSH_CFG_HEADER_BYTES);
	return PUSH_CFG_HEADER_BYTES + value;
}
