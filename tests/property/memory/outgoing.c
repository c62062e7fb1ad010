/* The lookup of outgoing apertures against a list that is searched from one end to the other:
 * random apertures come and go, and every address leads where the list says, whichever level
 * answers. A store of 2^20 entries; the seed may be given as the first argument. MISSION AP1, AP2.
 * */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "memory/outgoing.h"

#define STEPS   400000u
#define AT_ONCE 700u /* more than the first level holds */

static const struct outgoing_config config = {.origin = 0x123456789000,
                                              .part_bits = 34,
                                              .groups = {[1] = {10, HDL_APERTURE_DATA, 1u << 20},
                                                         [2] = {10, HDL_APERTURE_EVENT, 300},
                                                         [7] = {17, HDL_APERTURE_DATA, 129},
                                                         [30] = {30, HDL_APERTURE_DATA, 16}}};

struct model_entry {
	uint64_t base, size;
	struct outgoing *entry;
};
static struct model_entry model[AT_ONCE];
static unsigned model_count;

static const struct model_entry *model_find(uint64_t address)
{
	for (unsigned i = 0; i < model_count; i++)
		if (address >= model[i].base && address < model[i].base + model[i].size)
			return &model[i];
	return NULL;
}

static void outgoing_add(struct outgoing_table *table, struct prng *prng)
{
	unsigned group = (unsigned)prng_below(prng, OUTGOING_MAX_GROUPS);
	if (config.groups[group].count == 0)
		group = 1;
	uint32_t slot = (uint32_t)prng_below(prng, config.groups[group].count);
	uint8_t bits = config.groups[group].bits;
	uint64_t base =
	        config.origin + ((uint64_t)group << config.part_bits) + ((uint64_t)slot << bits);
	struct outgoing *entry = NULL;
	if (prng_chance(prng, 500))
		entry = outgoing_take(table, bits, config.groups[group].type, 0);
	else if ((entry = outgoing_take_at(table, base)) == NULL)
		assert(model_find(base) != NULL);
	if (entry == NULL)
		return;
	assert(model_find(entry->base) == NULL && entry->bits == bits);
	entry->index = (uint32_t)prng_next(prng);
	model[model_count++] = (struct model_entry){entry->base, (uint64_t)1 << bits, entry};
}

static void outgoing_look(struct outgoing_table *table, struct prng *prng)
{
	uint64_t address = config.origin + prng_below(prng, (uint64_t)33 << config.part_bits);
	if (model_count > 0 && !prng_chance(prng, 100)) {
		/* A few are popular, as they are in programs. */
		unsigned many = prng_chance(prng, 800) && model_count > 20 ? 20 : model_count;
		const struct model_entry *near = &model[prng_below(prng, many)];
		address = near->base + prng_below(prng, near->size + 2) - 1;
	}
	uint64_t offset = 0;
	const struct outgoing *found = outgoing_find(table, address, &offset);
	const struct model_entry *expected = model_find(address);
	assert(found == (expected != NULL ? expected->entry : NULL));
	assert(found == NULL || offset == address - expected->base);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	struct prng prng;
	struct outgoing_table *table = aligned_alloc(64, sizeof(*table));
	void *memory = calloc(1, outgoing_bytes(&config));
	assert(table != NULL && memory != NULL && outgoing_fits(&config));
	outgoing_init(table, &config, memory);
	prng_seed(&prng, seed);
	for (unsigned step = 0; step < STEPS; step++) {
		uint64_t what = prng_below(&prng, 100);
		if (what < 5 && model_count < AT_ONCE) {
			outgoing_add(table, &prng);
		} else if (what < 8 && model_count > 0) {
			unsigned i = (unsigned)prng_below(&prng, model_count);
			outgoing_give(table, model[i].entry);
			model[i] = model[--model_count];
		} else {
			outgoing_look(table, &prng);
		}
	}
	printf("seed %llu: %llu hits, %llu misses, %u apertures\n", (unsigned long long)seed,
	       (unsigned long long)table->hits, (unsigned long long)table->misses, model_count);
	assert(table->hits > STEPS / 4 && table->misses > STEPS / 20 && model_count > 300);
	free(memory);
	free(table);
	return 0;
}
