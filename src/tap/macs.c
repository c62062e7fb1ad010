/* See macs.h. */
#include "tap/macs.h"

#include <stddef.h>
#include <string.h>

static uint32_t macs_hash(const uint8_t mac[6])
{
	uint32_t hash = 2166136261u;
	for (unsigned i = 0; i < 6; i++)
		hash = (hash ^ mac[i]) * 16777619u;
	return hash ^ hash >> 15;
}

static bool macs_is_old(const struct macs_entry *entry, uint32_t now_s)
{
	return entry->port == MACS_LAN && now_s - entry->seen_s > MACS_FORGET_S;
}

static const struct macs_entry *macs_look(const struct macs *macs, const uint8_t mac[6])
{
	uint32_t hash = macs_hash(mac);
	for (uint32_t i = 0; i < MACS_PROBES; i++) {
		const struct macs_entry *entry = &macs->entries[(hash + i) % MACS_MAX];
		if (entry->used && memcmp(entry->mac, mac, 6) == 0)
			return entry;
	}
	return NULL;
}

uint32_t macs_find(const struct macs *macs, const uint8_t mac[6], uint32_t now_s)
{
	const struct macs_entry *entry = macs_look(macs, mac);
	return entry == NULL || macs_is_old(entry, now_s) ? MACS_NONE : entry->port;
}

/* A place for a new address: free, or of an address on the LAN, the one that was silent longest. */
static struct macs_entry *macs_place(struct macs *macs, const uint8_t mac[6])
{
	uint32_t hash = macs_hash(mac);
	struct macs_entry *oldest = NULL;
	for (uint32_t i = 0; i < MACS_PROBES; i++) {
		struct macs_entry *entry = &macs->entries[(hash + i) % MACS_MAX];
		if (!entry->used)
			return entry;
		if (entry->port == MACS_LAN && (oldest == NULL || entry->seen_s < oldest->seen_s))
			oldest = entry;
	}
	macs->evicted += oldest != NULL;
	return oldest;
}

bool macs_claim(struct macs *macs, const uint8_t mac[6], uint32_t port, uint32_t now_s)
{
	uint32_t owner = macs_find(macs, mac, now_s);
	if (owner != MACS_NONE)
		return owner == port;
	static const uint8_t zero[6];
	if (macs_is_group(mac) || memcmp(mac, zero, 6) == 0)
		return false;
	struct macs_entry *old = &macs->entries[0];
	const struct macs_entry *stale = macs_look(macs, mac);
	old = stale != NULL ? &macs->entries[stale - macs->entries] : macs_place(macs, mac);
	if (old == NULL)
		return false;
	*old = (struct macs_entry){.used = true, .port = port, .seen_s = now_s};
	memcpy(old->mac, mac, 6);
	return true;
}

bool macs_replace(struct macs *macs, const uint8_t old[6], const uint8_t mac[6], uint32_t port,
                  uint32_t now_s)
{
	if (!macs_claim(macs, mac, port, now_s))
		return false;
	const struct macs_entry *entry = memcmp(old, mac, 6) != 0 ? macs_look(macs, old) : NULL;
	if (entry != NULL && entry->port == port)
		macs->entries[entry - macs->entries].used = false;
	return true;
}

bool macs_use(struct macs *macs, const uint8_t mac[6], uint32_t port, uint32_t now_s)
{
	const struct macs_entry *entry = macs_look(macs, mac);
	if (entry == NULL || entry->port != port)
		return false;
	macs->entries[entry - macs->entries].seen_s = now_s;
	return true;
}

bool macs_use_recent(struct macs *macs, const uint8_t mac[6], uint32_t port, uint32_t now_s)
{
	const struct macs_entry *entry = macs_look(macs, mac);
	return entry != NULL && now_s - entry->seen_s <= MACS_FORGET_S - MACS_FLIGHT_S &&
	       macs_use(macs, mac, port, now_s);
}

uint32_t macs_list(const struct macs *macs, uint32_t port, uint8_t (*list)[6], uint32_t max)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < MACS_MAX; i++) {
		if (!macs->entries[i].used || macs->entries[i].port != port)
			continue;
		if (count < max)
			memcpy(list[count], macs->entries[i].mac, 6);
		count++;
	}
	return count;
}

bool macs_retire(struct macs *macs, uint32_t port, const uint8_t keep[6], uint32_t now_s)
{
	for (uint32_t i = 0; i < MACS_MAX; i++) {
		struct macs_entry *entry = &macs->entries[i];
		if (!entry->used || entry->port != port || memcmp(entry->mac, keep, 6) == 0 ||
		    now_s - entry->seen_s <= MACS_FORGET_S)
			continue;
		entry->used = false;
		return true;
	}
	return false;
}

void macs_leave(struct macs *macs, uint32_t port)
{
	for (uint32_t i = 0; i < MACS_MAX; i++)
		if (macs->entries[i].port == port)
			macs->entries[i].used = false;
}

bool macs_learn(struct macs *macs, const uint8_t mac[6], uint32_t now_s)
{
	const struct macs_entry *known = macs_look(macs, mac);
	if (known != NULL) {
		if (known->port != MACS_LAN)
			return false;
		macs->entries[known - macs->entries].seen_s = now_s;
		return true;
	}
	struct macs_entry *entry = macs_is_group(mac) ? NULL : macs_place(macs, mac);
	if (entry != NULL) {
		*entry = (struct macs_entry){.used = true, .port = MACS_LAN, .seen_s = now_s};
		memcpy(entry->mac, mac, 6);
	}
	return true;
}
