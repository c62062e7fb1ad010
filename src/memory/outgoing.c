/* The outgoing aperture table; see outgoing.h. */
#include "memory/outgoing.h"

#include <assert.h>
#include <string.h>

bool outgoing_fits(const struct outgoing_config *config)
{
	for (unsigned i = 0; i < OUTGOING_MAX_GROUPS; i++) {
		const struct outgoing_group *group = &config->groups[i];
		if (group->count == 0)
			continue;
		if (group->bits < HDL_APERTURE_MIN_BITS || group->bits > HDL_APERTURE_MAX_BITS ||
		    group->bits > config->part_bits ||
		    group->count > (uint64_t)1 << (config->part_bits - group->bits))
			return false;
	}
	return config->part_bits <= 58;
}

size_t outgoing_bytes(const struct outgoing_config *config)
{
	size_t entries = 0;
	for (unsigned i = 0; i < OUTGOING_MAX_GROUPS; i++)
		entries += config->groups[i].count;
	return entries * sizeof(struct outgoing);
}

void outgoing_init(struct outgoing_table *table, const struct outgoing_config *config, void *memory)
{
	assert(outgoing_fits(config));
	struct outgoing *store = memory;
	*table = (struct outgoing_table){.origin = config->origin, .part_bits = config->part_bits};
	for (unsigned i = 0; i < OUTGOING_MAX_GROUPS; i++) {
		if (config->groups[i].count == 0)
			continue;
		table->bits[i] = config->groups[i].bits;
		table->types[i] = config->groups[i].type;
		table->counts[i] = config->groups[i].count;
		table->stores[i] = store;
		store += config->groups[i].count;
	}
	for (unsigned i = 0; i < OUTGOING_SETS; i++)
		for (unsigned way = 0; way < OUTGOING_WAYS; way++)
			table->sets[i].bases[way] = OUTGOING_NO_BASE;
}

/* A zeroed entry has no bits: the store need not be initialized. */
static bool outgoing_is_free(const struct outgoing *entry)
{
	return entry->bits == 0;
}

static uint64_t outgoing_base_of(const struct outgoing_table *table, unsigned group, uint32_t slot)
{
	return table->origin + ((uint64_t)group << table->part_bits) +
	       ((uint64_t)slot << table->bits[group]);
}

static struct outgoing *outgoing_occupy(struct outgoing_table *table, unsigned group, uint32_t slot)
{
	struct outgoing *entry = &table->stores[group][slot];
	*entry = (struct outgoing){.base = outgoing_base_of(table, group, slot),
	                           .bits = table->bits[group],
	                           .type = table->types[group]};
	return entry;
}

static struct outgoing_set *outgoing_set_of(struct outgoing_table *table, uint64_t base,
                                            uint8_t bits)
{
	uint64_t number = base >> bits;
	return &table->sets[(number ^ number >> 6 ^ bits) % OUTGOING_SETS];
}

struct outgoing *outgoing_take(struct outgoing_table *table, uint8_t bits, uint8_t type,
                               uint8_t align_bits)
{
	for (unsigned group = 0; group < OUTGOING_MAX_GROUPS; group++) {
		if (table->bits[group] != bits || bits == 0 || table->types[group] != type)
			continue;
		uint32_t step = align_bits > bits ? 1u << (align_bits - bits) : 1u;
		uint32_t count = table->counts[group];
		uint32_t slot = table->next[group] / step * step;
		for (uint32_t tries = 0; tries <= count / step; tries++, slot += step) {
			if (slot >= count)
				slot = 0;
			if (!outgoing_is_free(&table->stores[group][slot]))
				continue;
			table->next[group] = slot + step;
			return outgoing_occupy(table, group, slot);
		}
	}
	return NULL;
}

/* Where @address is; false: in no aperture that could exist. */
static bool outgoing_locate(const struct outgoing_table *table, uint64_t address, unsigned *group,
                            uint32_t *slot)
{
	uint64_t at = address - table->origin; /* huge below the origin */
	uint64_t part = at >> table->part_bits;
	if (part >= OUTGOING_MAX_GROUPS || table->bits[part] == 0)
		return false;
	uint64_t number = (at & (((uint64_t)1 << table->part_bits) - 1)) >> table->bits[part];
	if (number >= table->counts[part])
		return false;
	*group = (unsigned)part;
	*slot = (uint32_t)number;
	return true;
}

struct outgoing *outgoing_take_at(struct outgoing_table *table, uint64_t base)
{
	unsigned group;
	uint32_t slot;
	if (!outgoing_locate(table, base, &group, &slot) ||
	    outgoing_base_of(table, group, slot) != base ||
	    !outgoing_is_free(&table->stores[group][slot]))
		return NULL;
	return outgoing_occupy(table, group, slot);
}

void outgoing_give(struct outgoing_table *table, struct outgoing *entry)
{
	struct outgoing_set *set = outgoing_set_of(table, entry->base, entry->bits);
	assert(!outgoing_is_free(entry));
	for (unsigned way = 0; way < OUTGOING_WAYS; way++)
		if (set->bases[way] == entry->base)
			set->bases[way] = OUTGOING_NO_BASE;
	memset(entry, 0, sizeof(*entry));
}

/* The second level: the store. The entry becomes the most recent of its set. */
static struct outgoing *outgoing_fetch(struct outgoing_table *table, uint64_t address,
                                       struct outgoing_set *set)
{
	unsigned group;
	uint32_t slot;
	table->misses++;
	if (!outgoing_locate(table, address, &group, &slot) ||
	    outgoing_is_free(&table->stores[group][slot]))
		return NULL;
	struct outgoing *entry = &table->stores[group][slot];
	unsigned way = OUTGOING_WAYS - 1;
	memmove(set->bases + 1, set->bases, way * sizeof(set->bases[0]));
	memmove(set->entries + 1, set->entries, way * sizeof(struct outgoing *));
	set->bases[0] = entry->base;
	set->entries[0] = entry;
	return entry;
}

struct outgoing *outgoing_find(struct outgoing_table *table, uint64_t address, uint64_t *offset)
{
	uint64_t at = address - table->origin, part = at >> table->part_bits;
	if (part >= OUTGOING_MAX_GROUPS || table->bits[part] == 0)
		return NULL;
	/* The base is cut out relative to the origin, which need not be a multiple of the size. */
	uint8_t bits = table->bits[part];
	*offset = at & (((uint64_t)1 << bits) - 1);
	uint64_t base = address - *offset;
	struct outgoing_set *set = outgoing_set_of(table, base, bits);
	for (unsigned way = 0; way < OUTGOING_WAYS; way++) {
		if (set->bases[way] != base)
			continue;
		struct outgoing *found = set->entries[way];
		table->hits++;
		if (way > 0) { /* one place forward: the last is the one used longest ago */
			set->bases[way] = set->bases[way - 1];
			set->entries[way] = set->entries[way - 1];
			set->bases[way - 1] = base;
			set->entries[way - 1] = found;
		}
		return found;
	}
	return outgoing_fetch(table, address, set);
}
