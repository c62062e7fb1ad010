/* Which keys a table gives: none that a peer could guess, and none again before all others of its index. */
#include "table.h"

/* Whoever has seen keys cannot tell the next one: indices do not follow each other, instances use all their bits. */
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

/* A key that has become stale stays so for as long as eight bits allow, whether its index is registered anew or bound again. */
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
	        cmocka_unit_test(a_key_comes_again_after_255_others),
	        cmocka_unit_test(each_index_has_an_order_of_its_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
