/* One-touch entries: table D of MEMMGT figure 18B with all its rows, out of order and across the
 * wrap of sequence numbers. MISSION IP5, SN9 (one-shot keys). */
#include "world.h"

#define LENGTH 0x1000u

static int open_world(void **state)
{
	struct world *w = world_open(5000, 64);
	w->region = make_run(w->tpt, RW_LOCAL | HDL_ACCESS_BIND, LENGTH);
	*state = w;
	return 0;
}

/* A window or a region; @touch: with one-touch access. */
static struct hdl_key make_entry(struct world *w, bool window, bool touch)
{
	uint32_t access = RW_REMOTE | (touch ? HDL_ACCESS_ONE_TOUCH : 0);
	return window ? make_bound(w->tpt, w->region, access, LENGTH)
	              : make_run(w->tpt, access | RW_LOCAL, LENGTH);
}

static enum hdl_detail use(struct world *w, struct hdl_key key)
{
	const struct tpt_request req = {.key = key,
	                                .side = TPT_REMOTE,
	                                .access = HDL_ACCESS_REMOTE_WRITE,
	                                .pd = PD,
	                                .qpn = QPN,
	                                .addr = IOVA,
	                                .length = LENGTH};
	return check(w->tpt, &req);
}

static struct tpt_entry entry_of(struct world *w, struct hdl_key key)
{
	struct tpt_entry entry;
	memcpy(&entry, &w->tpt->slots[tpt_index(&w->tpt->view, key)], sizeof entry);
	return entry;
}

/* The table as it is printed: columns, then the action and what becomes of the entry. The next
 * expected byte is 1000, the window ends before 1500; "touched" came about by a segment that ended
 * with byte 1200. */
static void ip5_table_d(void **state)
{
	struct world *w = *state;
	static const struct {
		bool last, one_touch, touched;
		uint32_t sn;
		enum tpt_action action;
		bool valid, touched_after; /* used up: touched, and no longer valid */
	} rows[] = {
	        {false, false, false, 999, TPT_PLACE, true, false},
	        {false, true, false, 999, TPT_PLACE, true, false},
	        {false, true, false, 1100, TPT_PLACE, true, false},
	        {false, true, true, 1100, TPT_PLACE, true, true},
	        {true, false, false, 999, TPT_PLACE, true, false},
	        {true, false, false, 1100, TPT_PLACE, true, false},
	        {true, false, false, 5000, TPT_PLACE, true, false},
	        {true, true, true, 999, TPT_TERMINATE, false, true},
	        {true, true, true, 1200, TPT_TERMINATE, false, true},
	        {true, true, true, 5000, TPT_TERMINATE, false, true},
	        {true, true, false, 999, TPT_PLACE_INVALIDATE, false, true},
	        {true, true, false, 1000, TPT_PLACE_TOUCHED, true, true},
	        {true, true, false, 1499, TPT_PLACE_TOUCHED, true, true},
	        {true, true, false, 1500, TPT_DROP, true, false},
	        {true, true, false, 998, TPT_DROP, true, false},
	        {true, true, false, 1000u - 0x80000000u, TPT_DROP, true, false},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		for (int window = 0; window < 2; window++) {
			struct hdl_key key = make_entry(w, window, rows[i].one_touch);
			struct tpt_segment segment = {true, 1200, 1000, 1500};
			if (rows[i].touched)
				assert_int_equal(tpt_touch(w->tpt, key, &segment),
				                 TPT_PLACE_TOUCHED);
			segment.last = rows[i].last;
			segment.sn = rows[i].sn;
			assert_int_equal(tpt_touch(w->tpt, key, &segment), rows[i].action);
			assert_int_equal(use(w, key),
			                 rows[i].valid ? HDL_DETAIL_NONE : HDL_DETAIL_TOUCHED);
			struct tpt_entry entry = entry_of(w, key);
			assert_int_equal((entry.flags & TPT_TOUCHED) != 0, rows[i].touched_after);
			if (rows[i].action == TPT_PLACE_TOUCHED)
				assert_int_equal(entry.ddp_sn, rows[i].sn);
		}
	}
}

/* The last three rows against arithmetic that cannot wrap, wherever in the 32-bit circle the stream
 * happens to be. */
static void ip5_sequence_numbers_wrap(void **state)
{
	struct world *w = *state;
	static const uint32_t places[] = {0, 1, 3, 0x7ffffffe, 0x80000001, 0xfffffffd, 0xffffffff};
	struct hdl_key window = make_window(w->tpt);
	for (size_t place = 0; place < sizeof places / sizeof places[0]; place++) {
		for (int64_t size = 0; size < 6; size++) {
			for (int64_t at = -4; at < 9; at++) {
				struct tpt_bind bind = {.key = window,
				                        .region = w->region,
				                        .pd = PD,
				                        .access = HDL_ACCESS_ONE_TOUCH,
				                        .addr = IOVA,
				                        .rebind = true};
				assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
				const struct tpt_segment segment = {
				        true, places[place] + (uint32_t)at, places[place],
				        places[place] + (uint32_t)size};
				enum tpt_action action = at == -1 ? TPT_PLACE_INVALIDATE
				                         : at >= 0 && at < size ? TPT_PLACE_TOUCHED
				                                                : TPT_DROP;
				assert_int_equal(tpt_touch(w->tpt, window, &segment), action);
			}
		}
	}
}

static void ip5_line_up(void **state)
{
	struct world *w = *state;
	static const uint32_t ends[] = {1200, 0, 0xffffffff, 0x7fffffff, 0x80000000};
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		struct hdl_key key = make_entry(w, true, true);
		uint32_t sn = ends[i];
		assert_false(tpt_line_up(w->tpt, key, sn + 1)); /* not touched yet */
		const struct tpt_segment segment = {true, sn, sn - 200, sn + 100};
		assert_int_equal(tpt_touch(w->tpt, key, &segment), TPT_PLACE_TOUCHED);
		assert_false(tpt_line_up(w->tpt, key, sn - 100));
		assert_false(tpt_line_up(w->tpt, key, sn)); /* the last byte is still missing */
		assert_int_equal(use(w, key), HDL_DETAIL_NONE);
		assert_false(tpt_line_up(w->tpt, key_other_instance(key), sn + 1));
		assert_true(tpt_line_up(w->tpt, key, sn + (i % 2 ? 1 : 50)));
		assert_int_equal(use(w, key), HDL_DETAIL_TOUCHED);
		assert_false(tpt_line_up(w->tpt, key, sn + 1));
	}
	assert_false(tpt_line_up(w->tpt, (struct hdl_key){UINT32_MAX}, 0));
}

/* Of two messages that passed the check for the same one-touch key, one is refused; a binding since
 * is not touched. */
static void sn9_one_shot_key_serves_once(void **state)
{
	struct world *w = *state;
	struct hdl_key key = make_entry(w, true, true);
	const struct tpt_segment segment = {true, 999, 1000, 1500};
	assert_int_equal(tpt_retire(w->tpt, w->region), HDL_DETAIL_BUSY);
	assert_int_equal(tpt_touch(w->tpt, key, &segment), TPT_PLACE_INVALIDATE);
	assert_int_equal(tpt_touch(w->tpt, key, &segment), TPT_TERMINATE);
	struct tpt_bind bind = {.key = key_other_instance(key),
	                        .region = w->region,
	                        .pd = PD,
	                        .qpn = QPN,
	                        .access = RW_REMOTE | HDL_ACCESS_ONE_TOUCH,
	                        .addr = IOVA,
	                        .length = LENGTH};
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
	assert_int_equal(tpt_touch(w->tpt, key, &segment), TPT_TERMINATE);
	assert_int_equal(use(w, bind.key), HDL_DETAIL_NONE);
	assert_int_equal(tpt_touch(w->tpt, (struct hdl_key){UINT32_MAX}, &segment), TPT_TERMINATE);
	/* A used key does not keep its region from being removed. */
	assert_int_equal(tpt_touch(w->tpt, bind.key, &segment), TPT_PLACE_INVALIDATE);
	remove_entry(w->tpt, w->region);
}

/* A one-touch region ends for itself; a window on it has an entry of its own and holds the region.
 */
static void a_touched_region_leaves_its_windows(void **state)
{
	struct world *w = *state;
	struct hdl_key region = make_run(
	        w->tpt, RW_LOCAL | RW_REMOTE | HDL_ACCESS_BIND | HDL_ACCESS_ONE_TOUCH, LENGTH);
	struct hdl_key window = make_bound(w->tpt, region, RW_REMOTE, LENGTH);
	const struct tpt_segment segment = {true, 999, 1000, 1500};
	assert_int_equal(tpt_touch(w->tpt, region, &segment), TPT_PLACE_INVALIDATE);
	assert_int_equal(use(w, region), HDL_DETAIL_TOUCHED);
	assert_int_equal(use(w, window), HDL_DETAIL_NONE);
	assert_int_equal(tpt_retire(w->tpt, region), HDL_DETAIL_BUSY);
	/* Memory that goes is noticed for the window all the same. */
	remove_entry(w->tpt, w->region);
	assert_int_equal(tpt_segment_gone(w->tpt, HOST, 1, NULL, NULL), 1);
	assert_int_equal(use(w, region), HDL_DETAIL_TOUCHED);
	assert_int_equal(use(w, window), HDL_DETAIL_GONE);
}

/* "Used before" is said of the key that was used, as long as its entry is not registered, bound or
 * removed. Whoever asks with another instance, or after an invalidation, hears "not valid". */
static void a_used_key_is_told_from_an_invalid_one(void **state)
{
	struct world *w = *state;
	const struct tpt_segment in_order = {true, 999, 1000, 1500};
	const struct tpt_segment early = {true, 1200, 1000, 1500};
	struct hdl_key key = make_entry(w, true, true);
	assert_int_equal(tpt_touch(w->tpt, key, &in_order), TPT_PLACE_INVALIDATE);
	assert_int_equal(use(w, key), HDL_DETAIL_TOUCHED);
	assert_int_equal(use(w, key_other_instance(key)), HDL_DETAIL_NOT_VALID);
	assert_int_equal(tpt_invalidate(w->tpt, key, PD, 0, true), HDL_DETAIL_NOT_VALID);
	struct tpt_bind bind = {.key = key_other_instance(key),
	                        .region = w->region,
	                        .pd = PD,
	                        .access = RW_REMOTE | HDL_ACCESS_ONE_TOUCH,
	                        .addr = IOVA,
	                        .length = LENGTH};
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
	assert_int_equal(use(w, bind.key), HDL_DETAIL_NONE);
	assert_int_equal(use(w, key), HDL_DETAIL_INSTANCE);
	/* Touched, but invalidated before the stream was complete: the touch did not end it. */
	assert_int_equal(tpt_touch(w->tpt, bind.key, &early), TPT_PLACE_TOUCHED);
	assert_int_equal(tpt_invalidate(w->tpt, bind.key, PD, 0, true), HDL_DETAIL_NONE);
	assert_int_equal(use(w, bind.key), HDL_DETAIL_NOT_VALID);
	/* Nor does a region that was used up and then removed leave a trace. */
	struct hdl_key region = make_entry(w, false, true);
	assert_int_equal(tpt_touch(w->tpt, region, &in_order), TPT_PLACE_INVALIDATE);
	assert_int_equal(use(w, region), HDL_DETAIL_TOUCHED);
	assert_int_equal(tpt_retire(w->tpt, region), HDL_DETAIL_NONE);
	assert_int_equal(use(w, region), HDL_DETAIL_NOT_VALID);
	tpt_free(w->tpt, region);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(ip5_table_d),
	        TEST(ip5_sequence_numbers_wrap),
	        TEST(ip5_line_up),
	        TEST(sn9_one_shot_key_serves_once),
	        TEST(a_touched_region_leaves_its_windows),
	        TEST(a_used_key_is_told_from_an_invalid_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
