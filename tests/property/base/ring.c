/* The lane against a queue of copies: random record sizes, random turns of producer and consumer,
 * every ring size that is small enough to wrap often. The model also knows exactly when the ring
 * must have room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "base/ring.h"

#define MAX_SLOTS 128u
#define STEPS     200000

static _Alignas(64) unsigned char memory[sizeof(struct ring_shared) + MAX_SLOTS * RING_SLOT_BYTES];

/* At most a record a slot is in the ring. Each knows its own seed, so the model keeps no bytes. */
struct record {
	uint64_t seed;
	size_t bytes;
	uint32_t slots; /* with the pad before it */
};

struct model {
	struct record records[MAX_SLOTS];
	size_t first, count;
	uint64_t used;     /* slots between the producer's position and the last told head */
	uint64_t position; /* the producer's */
	uint64_t untold;   /* slots released and not told */
};

static uint32_t slots_of(size_t bytes)
{
	return (uint32_t)((bytes + 8 + 63) / 64);
}

static uint32_t pad_for(const struct model *model, uint32_t slot_count, uint32_t slots)
{
	uint32_t left = slot_count - (uint32_t)(model->position % slot_count);
	return slots > left ? left : 0;
}

static void push(struct model *model, struct ring_tx *tx, struct prng *prng, size_t bytes)
{
	uint32_t slots = slots_of(bytes), pad = pad_for(model, tx->slot_count, slots);
	void *to = ring_reserve(tx, bytes);
	/* One slot is kept free: no more, no less. */
	assert_int_equal(to != NULL, model->used + pad + slots + 1 <= tx->slot_count);
	if (to == NULL)
		return;
	uint64_t seed = prng_next(prng);
	struct prng content;
	prng_seed(&content, seed);
	prng_fill(&content, to, bytes);
	ring_publish(tx);
	model->records[(model->first + model->count++) % MAX_SLOTS] =
	        (struct record){.seed = seed, .bytes = bytes, .slots = pad + slots};
	model->position += pad + slots;
	model->used += pad + slots;
}

static void pop(struct model *model, struct ring_rx *rx)
{
	static unsigned char expected[MAX_SLOTS * RING_SLOT_BYTES];
	size_t bytes = 0;
	const void *from = ring_peek(rx, &bytes);
	assert_false(rx->broken);
	assert_int_equal(from != NULL, model->count != 0);
	if (from == NULL) { /* then it has told everything */
		model->used -= model->untold;
		model->untold = 0;
		return;
	}
	const struct record *record = &model->records[model->first];
	struct prng content;
	assert_int_equal(bytes, record->bytes);
	prng_seed(&content, record->seed);
	prng_fill(&content, expected, bytes);
	assert_memory_equal(from, expected, bytes);
	ring_release(rx);
	model->untold += record->slots;
	if (model->untold >= rx->slot_count / 4) {
		model->used -= model->untold;
		model->untold = 0;
	}
	model->first = (model->first + 1) % MAX_SLOTS;
	model->count--;
}

static void like_a_queue_of_copies(void **state)
{
	(void)state;
	for (uint32_t slot_count = RING_MIN_SLOTS; slot_count <= MAX_SLOTS; slot_count *= 2) {
		struct ring_tx tx;
		struct ring_rx rx;
		struct prng prng;
		struct model model = {0};
		size_t most = ring_max_record(slot_count);
		prng_seed(&prng, slot_count);
		memset(memory, 0xa5, sizeof(memory));
		ring_format(memory, slot_count);
		ring_tx_attach(&tx, memory, slot_count);
		ring_rx_attach(&rx, memory, slot_count);
		unsigned full = 0, empty = 0;
		for (int step = 0; step < STEPS; step++) {
			/* Long turns of one side, so that the ring is often full and often empty.
			 */
			uint32_t keen = step / 64 % 2 ? 750 : 250;
			if (prng_chance(&prng, keen)) {
				size_t bound = prng_chance(&prng, 700) ? 120 : most;
				size_t bytes = prng_chance(&prng, 50)
				                       ? most
				                       : 1 + prng_below(&prng, bound);
				size_t before = model.count;
				push(&model, &tx, &prng, bytes);
				full += model.count == before;
			} else {
				empty += model.count == 0;
				pop(&model, &rx);
			}
		}
		assert_true(full > STEPS / 100 && empty > STEPS / 100);
		assert_int_equal(tx.position, model.position);
		assert_true(tx.position > 1000 * (uint64_t)slot_count);
	}
}

int main(void)
{
	const struct CMUnitTest all[] = {cmocka_unit_test(like_a_queue_of_copies)};
	return cmocka_run_group_tests(all, NULL, NULL);
}
