/* Every check of MEMMGT figures 15 (local), 18 (remote) and 17B (task tags) by itself: a request
 * that passes, and the same request with one thing wrong. MISSION IP4. */
#include "world.h"

#define LENGTH 0x3000u

static int open_world(void **state)
{
	struct world *w = world_open(100, 4096);
	w->region = make_run(w->tpt, RW_LOCAL | RW_REMOTE | HDL_ACCESS_BIND, LENGTH);
	w->window = make_bound(w->tpt, w->region, RW_REMOTE, LENGTH);
	w->stopped = make_window(w->tpt);
	const uint64_t pages[] = {HOST + 0x9000, HOST + 0x2000, HOST};
	const struct hdl_register reg = {
	        .pages = pages,
	        .num_pages = 3,
	        .page_shift = 12,
	        .length = LENGTH,
	        .access = RW_REMOTE,
	};
	assert_int_equal(tpt_insert_pages(w->tpt, PD, TPT_ISCSI, 0xfeedbeef, &reg, &w->task), 0);
	*state = w;
	return 0;
}

static struct tpt_request local_request(const struct world *w)
{
	return (struct tpt_request){.key = w->region,
	                            .side = TPT_LOCAL,
	                            .access = HDL_ACCESS_LOCAL_READ,
	                            .pd = PD,
	                            .qpn = QPN,
	                            .addr = IOVA,
	                            .length = LENGTH};
}

static struct tpt_request remote_request(const struct world *w)
{
	struct tpt_request req = local_request(w);
	req.key = w->window;
	req.side = TPT_REMOTE;
	req.access = HDL_ACCESS_REMOTE_WRITE;
	return req;
}

static struct tpt_request task_request(const struct world *w)
{
	struct tpt_request req = remote_request(w);
	req.key = w->task;
	req.side = TPT_TASK;
	req.addr = 0;
	return req;
}

static void fig15_all_checks_pass(void **state)
{
	struct world *w = *state;
	struct tpt_request req = local_request(w);
	struct tpt_grant grant;
	req.addr = IOVA + 0x123;
	req.length = 0x456;
	assert_int_equal(tpt_check(&w->tpt->view, &req, &grant), HDL_DETAIL_NONE);
	assert_int_equal(grant.index, tpt_index(&w->tpt->view, w->region));
	assert_int_equal(grant.offset, 0x123);
	assert_int_equal(grant.length, 0x456);
	assert_int_equal(grant.entry.att, HOST);
}

static void fig18_all_checks_pass(void **state)
{
	struct tpt_request req = remote_request(*state);
	struct world *w = *state;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NONE);
	req.windows_only = true;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NONE);
	req.windows_only = false;
	req.key = w->region;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NONE);
}

static void fig17b_all_checks_pass(void **state)
{
	struct world *w = *state;
	struct tpt_request req = task_request(w);
	struct tpt_grant grant;
	assert_int_equal(tpt_check(&w->tpt->view, &req, &grant), HDL_DETAIL_NONE);
	assert_int_equal(grant.entry.base, 0xfeedbeef); /* the owner's name for the command */
	struct span runs[4];
	uint64_t covered;
	assert_int_equal(tpt_spans(&w->tpt->view, &grant, 0, UINT64_MAX, runs, 4, &covered), 3);
	assert_int_equal(covered, LENGTH);
	assert_int_equal(runs[1].addr, HOST + 0x2000);
}

typedef struct tpt_request make_request(const struct world *w);

/* (a): an index behind the table, an index never handed out, index 0, an entry that is not valid,
 * one that was freed. */
static void judge_valid(struct world *w, make_request *make)
{
	struct tpt_request req = make(w);
	req.key.v = 101u << TPT_INSTANCE_BITS;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NOT_VALID);
	req.key.v = UINT32_MAX;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NOT_VALID);
	req.key.v = 0;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NOT_VALID);
	req.key = w->stopped;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NOT_VALID);
	remove_entry(w->tpt, w->stopped);
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NOT_VALID);
}

static void fig15_a_valid_entry(void **state)
{
	judge_valid(*state, local_request);
}

static void fig18_a_valid_entry(void **state)
{
	judge_valid(*state, remote_request);
}

static void fig17b_a_valid_entry(void **state)
{
	judge_valid(*state, task_request);
}

static void fig15_b_windows_not_for_local_access(void **state)
{
	struct world *w = *state;
	struct tpt_request req = local_request(w);
	req.key = w->window;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_TYPE);
	req.key = w->task;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_TYPE);
}

static void fig18_b_regions_not_for_remote_access(void **state)
{
	struct world *w = *state;
	struct tpt_request req = remote_request(w);
	req.key = w->region;
	req.windows_only = true;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_TYPE);
	req.windows_only = false;
	req.key = w->task;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_TYPE);
}

static void fig17b_b_only_task_entries(void **state)
{
	struct world *w = *state;
	struct tpt_request req = task_request(w);
	req.key = w->window;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_TYPE);
	req.key = w->region;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_TYPE);
}

static void fig15_17b_18_c_domain(void **state)
{
	struct world *w = *state;
	make_request *const makers[] = {local_request, remote_request, task_request};
	for (size_t i = 0; i < 3; i++) {
		struct tpt_request req = makers[i](w);
		req.pd = OTHER_PD;
		assert_int_equal(check(w->tpt, &req), HDL_DETAIL_PD);
	}
}

static void fig18_c_queue_pair_of_a_type_2_window(void **state)
{
	struct world *w = *state;
	struct tpt_request req = remote_request(w);
	req.qpn = QPN + 1;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_QP);
	req.key = w->region; /* a region is for every queue pair of the domain */
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NONE);
}

static void fig15_17b_18_d_instance(void **state)
{
	struct world *w = *state;
	make_request *const makers[] = {local_request, remote_request, task_request};
	for (size_t i = 0; i < 3; i++) {
		for (uint32_t flip = 1; flip < 256; flip++) {
			struct tpt_request req = makers[i](w);
			req.key.v ^= flip;
			assert_int_equal(check(w->tpt, &req), HDL_DETAIL_INSTANCE);
		}
	}
}

/* Ranges relative to the first byte; the sums of several wrap, or are right only modulo 2^64. */
static void fig15_17b_18_e_bounds(void **state)
{
	static const struct {
		uint64_t offset, length;
		bool inside;
	} rows[] = {
	        {0, LENGTH, true},
	        {0, LENGTH + 1, false},
	        {1, LENGTH - 1, true},
	        {1, LENGTH, false},
	        {LENGTH - 1, 1, true},
	        {LENGTH - 1, 2, false},
	        {0, 0, true},
	        {LENGTH, 0, true},
	        {LENGTH, 1, false},
	        {LENGTH + 1, 0, false},
	        {UINT64_MAX, 0, false}, /* one byte before the first */
	        {UINT64_MAX, 1, false},
	        {UINT64_MAX, 2, false},              /* addr + length lands inside */
	        {0, UINT64_MAX, false},              /* addr + length wraps to just before addr */
	        {1, UINT64_MAX, false},              /* wraps to addr - 1 */
	        {0x1000, UINT64_MAX - 0xfff, false}, /* wraps to the first byte */
	        {UINT64_MAX / 2, UINT64_MAX / 2, false},
	};
	struct world *w = *state;
	make_request *const makers[] = {local_request, remote_request, task_request};
	for (size_t i = 0; i < 3; i++) {
		for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
			struct tpt_request req = makers[i](w);
			req.addr += rows[row].offset;
			req.length = rows[row].length;
			assert_int_equal(check(w->tpt, &req),
			                 rows[row].inside ? HDL_DETAIL_NONE : HDL_DETAIL_BOUNDS);
		}
	}
}

/* A peer may write a range that wraps into its table; addresses before the first byte are not in it
 * even so. */
static void fig18_e_an_entry_that_wraps(void **state)
{
	(void)state;
	const struct tpt_entry entry = {.type = TPT_REGION,
	                                .flags = TPT_ALLOCATED | TPT_VALID,
	                                .pd = PD,
	                                .base = UINT64_MAX - 10,
	                                .length = 100};
	struct tpt_slot slot;
	memcpy(&slot, &entry, sizeof slot);
	const struct tpt_view view = {.slots = &slot, .capacity = 1, .mul = 1};
	struct tpt_request req = {.side = TPT_REMOTE, .pd = PD, .addr = 5, .length = 1};
	struct tpt_grant grant;
	assert_int_equal(tpt_check(&view, &req, &grant), HDL_DETAIL_BOUNDS);
	req.addr = UINT64_MAX - 10;
	assert_int_equal(tpt_check(&view, &req, &grant), HDL_DETAIL_NONE);
}

/* Every set of rights an entry may have against every set that may be asked for: all bits, not any.
 */
static void fig15_18_f_access_all_bits(void **state)
{
	(void)state;
	for (uint32_t has = 0; has < 32; has++) {
		/* Seen by the check alone, so that contradictory rights are tried as well. */
		struct tpt_entry entry = {.type = TPT_REGION,
		                          .flags = TPT_ALLOCATED | TPT_VALID,
		                          .pd = PD,
		                          .access = (uint8_t)has,
		                          .length = 8};
		struct tpt_slot slot;
		memcpy(&slot, &entry, sizeof slot);
		const struct tpt_view view = {.slots = &slot, .capacity = 1, .mul = 1};
		for (uint32_t asked = 0; asked < 32; asked++) {
			struct tpt_request req = {
			        .side = TPT_LOCAL, .pd = PD, .access = (uint8_t)asked, .length = 8};
			struct tpt_grant grant;
			assert_int_equal(tpt_check(&view, &req, &grant),
			                 (asked & ~has) == 0 ? HDL_DETAIL_NONE : HDL_DETAIL_ACCESS);
		}
	}
}

static void fig17b_f_access(void **state)
{
	struct world *w = *state;
	struct tpt_request req = task_request(w);
	req.access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_ATOMIC;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_ACCESS);
}

/* A request wrong in every way: mending the first complaint brings out the next one of the figures'
 * order. */
static void checks_run_in_the_order_of_the_figures(void **state)
{
	struct world *w = *state;
	struct hdl_key good = w->window;
	struct tpt_request req = {.key = {UINT32_MAX},
	                          .side = TPT_TASK,
	                          .access = HDL_ACCESS_REMOTE_ATOMIC,
	                          .pd = OTHER_PD,
	                          .qpn = QPN + 1,
	                          .addr = 0,
	                          .length = UINT64_MAX};
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NOT_VALID);
	req.key = key_other_instance(good);
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_TYPE);
	req.side = TPT_REMOTE;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_PD);
	req.pd = PD;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_QP);
	req.qpn = QPN;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_INSTANCE);
	req.key = good;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_BOUNDS);
	req.addr = IOVA;
	req.length = LENGTH;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_ACCESS);
	req.access = HDL_ACCESS_REMOTE_READ;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NONE);
	assert_int_equal(tpt_segment_gone(w->tpt, HOST, 1, NULL, NULL), 3);
	req.side = TPT_TASK;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_GONE); /* after valid, before type */
}

static void sn9_zero_based(void **state)
{
	struct world *w = *state;
	struct tpt_request req = remote_request(w);
	req.key = make_bound(w->tpt, w->region, RW_REMOTE | HDL_ACCESS_ZERO_BASED, LENGTH);
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_BOUNDS);
	req.addr = 0;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NONE);
	req.addr = 1;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_BOUNDS);
	req.key = make_run(w->tpt, RW_LOCAL | RW_REMOTE | HDL_ACCESS_ZERO_BASED, LENGTH);
	req.length = LENGTH - 1;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NONE);
}

/* A writer that died in the middle of a change must not hold up readers for ever. */
static void a_dead_writer_is_not_waited_for(void **state)
{
	struct world *w = *state;
	struct tpt_request req = local_request(w);
	struct tpt_slot *slot = &w->tpt->slots[tpt_index(&w->tpt->view, w->region)];
	atomic_fetch_add(&slot->words[0], 1);
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NOT_VALID);
	atomic_fetch_add(&slot->words[0], 1);
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NONE);
}

static void verdicts_are_counted(void **state)
{
	struct world *w = *state;
	struct tpt_request req = local_request(w);
	req.pd = OTHER_PD;
	tpt_count(w->tpt, check(w->tpt, &req));
	tpt_count(w->tpt, check(w->tpt, &req));
	assert_int_equal(atomic_load(&w->tpt->verdicts[HDL_DETAIL_PD]), 2);
	assert_int_equal(atomic_load(&w->tpt->verdicts[HDL_DETAIL_NONE]), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(fig15_all_checks_pass),
	        TEST(fig18_all_checks_pass),
	        TEST(fig17b_all_checks_pass),
	        TEST(fig15_a_valid_entry),
	        TEST(fig18_a_valid_entry),
	        TEST(fig17b_a_valid_entry),
	        TEST(fig15_b_windows_not_for_local_access),
	        TEST(fig18_b_regions_not_for_remote_access),
	        TEST(fig17b_b_only_task_entries),
	        TEST(fig15_17b_18_c_domain),
	        TEST(fig18_c_queue_pair_of_a_type_2_window),
	        TEST(fig15_17b_18_d_instance),
	        TEST(fig15_17b_18_e_bounds),
	        cmocka_unit_test(fig15_18_f_access_all_bits),
	        cmocka_unit_test(fig18_e_an_entry_that_wraps),
	        TEST(fig17b_f_access),
	        TEST(checks_run_in_the_order_of_the_figures),
	        TEST(sn9_zero_based),
	        TEST(a_dead_writer_is_not_waited_for),
	        TEST(verdicts_are_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
