/* See rights.h. */
#include "tap/rights.h"

#include <stddef.h>
#include <string.h>

bool rights_add(struct rights *rights, const char *name, const uint8_t mac[6])
{
	size_t length = strlen(name);
	if (rights->count == RIGHTS_MAX_RULES || length >= RIGHTS_NAME_BYTES)
		return false;
	struct rights_rule *rule = &rights->rules[rights->count++];
	memcpy(rule->name, name, length + 1);
	memcpy(rule->mac, mac, sizeof(rule->mac));
	return true;
}

bool rights_allow(const struct rights *rights, const char *name, const uint8_t mac[6])
{
	bool named = false, listed = false;
	for (uint32_t i = 0; i < rights->count; i++) {
		const struct rights_rule *rule = &rights->rules[i];
		bool ours = rule->name[0] != '\0' && strcmp(rule->name, name) == 0;
		bool same = memcmp(rule->mac, mac, sizeof(rule->mac)) == 0;
		if (same && !ours)
			return false;
		named |= ours;
		listed |= same;
	}
	return !named || listed;
}

bool rights_may_change(const struct rights_changes *changes, uint64_t now_ns)
{
	return changes->until_ns <= now_ns + (RIGHTS_MAX_CHANGES - 1) * RIGHTS_CHANGE_NS;
}

/* Each change is remembered for RIGHTS_CHANGE_NS, one after the other. */
void rights_changed(struct rights_changes *changes, uint64_t now_ns)
{
	if (changes->until_ns < now_ns)
		changes->until_ns = now_ns;
	changes->until_ns += RIGHTS_CHANGE_NS;
}
