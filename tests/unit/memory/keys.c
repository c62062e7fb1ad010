/* Which keys a table gives: none that a peer could guess, and none again before all others of its
 * index. */
#include "table.h"

/* Whoever has seen keys cannot tell the next one: indices do not follow each other, instances use
 * all their bits. */
static void keys_are_not_guessable(void **state)
{
	(void)state;
	struct table *table = table_open(100000, 64);
	uint32_t followed = 0, before = 0;
	uint32_t instances[256] = {0};
	for (int i = 0; i < 25600; i++) {
		struct hdl_key key = make_run(&table->tpt, RW_LOCAL, 1);
		uint32_t index = key.v >> TPT_INSTANCE_BITS;
		followed += index == before + 1 || index + 1 == before;
		before = index;
		instances[key.v & 0xff]++;
	}
	assert_true(followed < 200);  /* about 1 in 1000 */
	for (int i = 1; i < 256; i++) /* 0 is what an unused slot has, so it is not the next one */
		assert_in_range(instances[i], 50, 170);
	table_close(table);

	/* The seed decides; another one gives other keys. */
	struct hdl_key first[2], again;
	for (int i = 0; i < 2; i++) {
		struct table *other = table_open(100000, 64);
		prng_seed(&other->tpt.prng, (uint64_t)i);
		first[i] = make_run(&other->tpt, RW_LOCAL, 1);
		again = tpt_fresh(&other->tpt, first[i]);
		assert_int_equal(again.v >> TPT_INSTANCE_BITS, first[i].v >> TPT_INSTANCE_BITS);
		assert_int_not_equal(again.v, first[i].v);
		assert_int_equal(tpt_current(&other->tpt, again).v, first[i].v);
		table_close(other);
	}
	assert_int_not_equal(first[0].v, first[1].v);
}

/* However large the table is and however few of its slots are used: the keys lie anywhere in the 24
 * bits above the instance, a stranger hits no more of them than there are, and one that leads to
 * the right slot with a wrong tag opens nothing. */
static void keys_lie_anywhere(void **state)
{
	(void)state;
	static const uint32_t capacities[] = {100, 65536, 1000000};
	enum { COUNT_OF = 64, BUCKETS = 64 };
	for (size_t c = 0; c < 3; c++) {
		struct table *table = table_open(capacities[c], 64);
		struct tpt *tpt = &table->tpt;
		uint32_t used = 0, hits = 0, with_slot = 0;
		bool buckets[BUCKETS] = {false};
		struct tpt_entry entry;
		for (int i = 0; i < COUNT_OF; i++)
			buckets[make_run(tpt, RW_LOCAL, 1).v >> 26] = true;
		for (int i = 0; i < BUCKETS; i++)
			used += buckets[i];
		assert_true(used > BUCKETS / 3); /* 41 by chance */
		for (uint32_t name = 0; name <= TPT_NAME_MASK; name++) {
			struct hdl_key key = {name << TPT_INSTANCE_BITS};
			uint32_t index = tpt_index(&tpt->view, key);
			with_slot += index > 0 && index < tpt->view.capacity &&
			             tpt_read_slot(&tpt->view, index, &entry) && entry.flags != 0;
			hits += tpt_read(&tpt->view, key, &entry) && entry.flags != 0;
		}
		assert_int_equal(hits, COUNT_OF);
		assert_int_equal(with_slot, COUNT_OF << tpt->view.tag_bits);
		table_close(table);
	}
	/* A zeroed key opens nothing, whatever the secrets. */
	for (uint32_t i = 0; i < 1000; i++) {
		struct table *table = table_open(200, 64);
		struct tpt tpt;
		const struct tpt_config config = {.capacity = 200, .arena_words = 64};
		tpt_init(&tpt, &config, table->slots, table->arena, table->private_memory, i);
		assert_int_equal(tpt_index(&tpt.view, (struct hdl_key){0}), 0);
		for (uint32_t k = 0; k < 200; k++)
			assert_true(make_run(&tpt, RW_LOCAL, 1).v > 0xff);
		table_close(table);
	}
}

/* A key that has become stale stays so for as long as eight bits allow, whether its index is
 * registered anew or bound again. */
static void a_key_comes_again_after_255_others(void **state)
{
	(void)state;
	uint32_t keys[512], counted = 0;
	struct table *table = table_open(1, 64); /* one index */
	struct tpt *tpt = &table->tpt;
	for (uint32_t i = 0; i < 512; i++) {
		struct hdl_key key = make_run(tpt, RW_LOCAL, 1);
		for (uint32_t j = i < 255 ? 0 : i - 255; j < i; j++)
			assert_int_not_equal(keys[j], key.v);
		if (i >= 256)
			assert_int_equal(keys[i - 256], key.v);
		counted += i > 0 && key.v == keys[i - 1] + 1;
		keys[i] = key.v;
		struct hdl_key bound = tpt_fresh(tpt, key);
		remove_entry(tpt, key);
		assert_int_equal(tpt_fresh(tpt, key).v, bound.v); /* the next to be given */
	}
	assert_true(counted < 32); /* 2 of 512 by chance */
	table_close(table);
}

/* Whoever knows the order of one index knows neither that of another nor that of another table. */
static void each_index_has_an_order_of_its_own(void **state)
{
	(void)state;
	enum { ROUNDS = 256 };
	struct table *tables[2] = {table_open(ROUNDS, 64), table_open(ROUNDS, 64)};
	uint32_t as_neighbour = 0, as_other_table = 0;
	tables[1]->tpt.secret ^= 1ull << 40;
	for (uint32_t i = 1; i < ROUNDS; i++) {
		uint8_t after[2][2];
		for (uint32_t j = 0; j < 4; j++)
			after[j / 2][j % 2] =
			        (uint8_t)tpt_fresh(
			                &tables[j / 2]->tpt,
			                (struct hdl_key){(i + j % 2) << TPT_INSTANCE_BITS})
			                .v;
		as_neighbour += after[0][0] == after[0][1];
		as_other_table += after[0][0] == after[1][0];
	}
	assert_true(as_neighbour < 16); /* 1 of 256 by chance */
	assert_true(as_other_table < 16);
	table_close(tables[0]);
	table_close(tables[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(keys_are_not_guessable),
	        cmocka_unit_test(keys_lie_anywhere),
	        cmocka_unit_test(a_key_comes_again_after_255_others),
	        cmocka_unit_test(each_index_has_an_order_of_its_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
