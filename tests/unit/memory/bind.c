/* Windows and registration by work request: figure 15 with its check (g), SAN's BindRKey and
 * UnbindRKey, figure 11, and what an invalidation may and may not do. MISSION SN9, IP3, IP4. */
#include "world.h"

#define LENGTH 0x3000u

static int open_world(void **state)
{
	struct world *w = world_open(100, 4096);
	w->region = make_run(w->tpt, RW_LOCAL | HDL_ACCESS_BIND, LENGTH);
	w->window = make_window(w->tpt);
	*state = w;
	return 0;
}

static struct tpt_bind good_bind(const struct world *w)
{
	return (struct tpt_bind){.key = w->window,
	                         .region = w->region,
	                         .pd = PD,
	                         .qpn = QPN,
	                         .access = RW_REMOTE,
	                         .addr = IOVA,
	                         .length = LENGTH};
}

static struct tpt_request remote_request(struct hdl_key key, uint64_t addr, uint64_t length)
{
	return (struct tpt_request){.key = key,
	                            .side = TPT_REMOTE,
	                            .access = HDL_ACCESS_REMOTE_READ,
	                            .pd = PD,
	                            .qpn = QPN,
	                            .addr = addr,
	                            .length = length};
}

/* Where the first byte of the request lies, and that all of it follows. */
static uint64_t host_of(struct tpt *tpt, const struct tpt_request *req)
{
	struct tpt_grant grant;
	struct span run;
	uint64_t covered;
	assert_int_equal(tpt_check(&tpt->view, req, &grant), HDL_DETAIL_NONE);
	assert_int_equal(tpt_spans(&tpt->view, &grant, 0, UINT64_MAX, &run, 1, &covered), 1);
	assert_int_equal(covered, req->length);
	return run.addr;
}

static void fig15_a_to_g_for_a_bind(void **state)
{
	struct world *w = *state;
	const struct {
		struct hdl_key region;
		uint32_t pd, access;
		uint64_t addr, length;
		enum hdl_detail verdict;
	} rows[] = {
	        {{0}, PD, RW_REMOTE, IOVA, 1, HDL_DETAIL_NOT_VALID},
	        {make_window(w->tpt), PD, RW_REMOTE, IOVA, 1, HDL_DETAIL_NOT_VALID},
	        {make_bound(w->tpt, w->region, 0, 1), PD, RW_REMOTE, IOVA, 1, HDL_DETAIL_TYPE},
	        {key_other_instance(w->region), PD, RW_REMOTE, IOVA, 1, HDL_DETAIL_INSTANCE},
	        {w->region, PD, RW_REMOTE, IOVA - 1, 1, HDL_DETAIL_BOUNDS},
	        {w->region, PD, RW_REMOTE, IOVA + 1, LENGTH, HDL_DETAIL_BOUNDS},
	        {w->region, PD, RW_REMOTE, IOVA + 2, UINT64_MAX - 1, HDL_DETAIL_BOUNDS},
	        {make_run(w->tpt, HDL_ACCESS_LOCAL_READ | HDL_ACCESS_BIND, LENGTH), PD,
	         HDL_ACCESS_REMOTE_WRITE, IOVA, 1, HDL_DETAIL_ACCESS},
	        {make_run(w->tpt, HDL_ACCESS_LOCAL_READ | HDL_ACCESS_BIND, LENGTH), PD,
	         HDL_ACCESS_REMOTE_ATOMIC, IOVA, 1, HDL_DETAIL_ACCESS},
	        {make_run(w->tpt, HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_BIND, LENGTH), PD,
	         HDL_ACCESS_REMOTE_READ, IOVA, 1, HDL_DETAIL_ACCESS},
	        {make_run(w->tpt, RW_LOCAL | RW_REMOTE, LENGTH), PD, RW_REMOTE, IOVA, 1,
	         HDL_DETAIL_BIND},
	        {w->region, PD, RW_REMOTE, IOVA, LENGTH, HDL_DETAIL_NONE},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct tpt_bind bind = good_bind(w);
		bind.region = rows[i].region;
		bind.pd = rows[i].pd;
		bind.access = rows[i].access;
		bind.addr = rows[i].addr;
		bind.length = rows[i].length;
		assert_int_equal(tpt_bind(w->tpt, &bind), rows[i].verdict);
	}
}

static void fig15_c_region_of_another_domain(void **state)
{
	struct world *w = *state;
	const struct tpt_region foreign = {
	        OTHER_PD, RW_LOCAL | HDL_ACCESS_BIND, IOVA, HOST, LENGTH, TPT_REGION};
	struct tpt_bind bind = good_bind(w);
	assert_int_equal(tpt_insert_run(w->tpt, &foreign, &bind.region), 0);
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_PD);
}

static void a_bind_judges_the_window_first(void **state)
{
	struct world *w = *state;
	struct tpt_bind bind = good_bind(w);
	bind.region.v = 0;
	bind.key.v = UINT32_MAX;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NOT_VALID);
	bind.key = w->region;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_TYPE);
	bind.key = w->window;
	bind.pd = OTHER_PD;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_PD);
	bind = good_bind(w);
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_ALREADY);
	bind.rebind = true;
	static const uint32_t refused[] = {HDL_ACCESS_LOCAL_READ, HDL_ACCESS_LOCAL_WRITE,
	                                   HDL_ACCESS_BIND, 0x100, 0x80000000};
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		bind.access = refused[i];
		assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_ACCESS);
	}
	assert_int_equal(tpt_retire(w->tpt, w->window), HDL_DETAIL_NONE);
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NOT_VALID);
}

static void sn9_any_length_any_alignment(void **state)
{
	struct world *w = *state;
	struct tpt_bind bind = good_bind(w);
	bind.rebind = true;
	for (uint64_t offset = 0; offset < LENGTH; offset += 97) {
		for (uint64_t length = 1; length <= LENGTH - offset; length += 1001) {
			bind.key = tpt_fresh(w->tpt, w->window);
			bind.addr = IOVA + offset;
			bind.length = length;
			assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
			struct tpt_request req = remote_request(bind.key, bind.addr, length);
			assert_int_equal(host_of(w->tpt, &req), HOST + offset);
			req.length++;
			assert_int_equal(check(w->tpt, &req), HDL_DETAIL_BOUNDS);
			req.addr--;
			assert_int_equal(check(w->tpt, &req), HDL_DETAIL_BOUNDS);
		}
	}
}

static void sn9_one_key_one_range(void **state)
{
	struct world *w = *state;
	struct tpt_bind bind = good_bind(w);
	bind.length = 16;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
	struct tpt_request former = remote_request(bind.key, IOVA, 16);
	assert_int_equal(check(w->tpt, &former), HDL_DETAIL_NONE);

	bind.rebind = true;
	bind.key = tpt_fresh(w->tpt, bind.key);
	bind.addr = IOVA + 16;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
	assert_int_equal(check(w->tpt, &former), HDL_DETAIL_INSTANCE);
	former.key = bind.key;
	assert_int_equal(check(w->tpt, &former), HDL_DETAIL_BOUNDS);
	former.addr += 16;
	assert_int_equal(check(w->tpt, &former), HDL_DETAIL_NONE);

	/* A bind that is refused changes nothing. */
	bind.key = tpt_fresh(w->tpt, bind.key);
	bind.addr = 0;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_BOUNDS);
	assert_int_equal(check(w->tpt, &former), HDL_DETAIL_NONE);
	assert_int_equal(tpt_current(w->tpt, bind.key).v, former.key.v);
}

static void sn9_every_queue_pair_of_the_domain(void **state)
{
	struct world *w = *state;
	struct tpt_bind bind = good_bind(w);
	bind.qpn = 0;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
	struct tpt_request req = remote_request(bind.key, IOVA, 1);
	for (req.qpn = 1; req.qpn < 10; req.qpn++)
		assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NONE);
}

static void a_window_on_a_zero_based_region(void **state)
{
	struct world *w = *state;
	struct tpt_bind bind = good_bind(w);
	bind.region = make_run(w->tpt, RW_LOCAL | HDL_ACCESS_BIND | HDL_ACCESS_ZERO_BASED, LENGTH);
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_BOUNDS);
	bind.addr = 0x800;
	bind.length = 0x800;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
	struct tpt_request req = remote_request(bind.key, 0x900, 0x700);
	assert_int_equal(host_of(w->tpt, &req), HOST + 0x900);
	bind.access |= HDL_ACCESS_ZERO_BASED;
	bind.rebind = true;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
	req = remote_request(bind.key, 0x100, 0x700);
	assert_int_equal(host_of(w->tpt, &req), HOST + 0x900);
}

/* A region with windows cannot go; each way of taking a window off it counts. */
static void a_region_waits_for_its_windows(void **state)
{
	struct world *w = *state;
	struct tpt_bind bind = good_bind(w);
	struct hdl_key second = make_run(w->tpt, RW_LOCAL | HDL_ACCESS_BIND, LENGTH);
	struct hdl_key other = make_bound(w->tpt, w->region, RW_REMOTE, 1);
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
	assert_int_equal(tpt_retire(w->tpt, w->region), HDL_DETAIL_BUSY);
	bind.rebind = true;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE); /* to the same region */
	bind.region = second;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
	assert_int_equal(tpt_retire(w->tpt, second), HDL_DETAIL_BUSY);
	assert_int_equal(tpt_retire(w->tpt, w->region), HDL_DETAIL_BUSY);
	remove_entry(w->tpt, other);
	remove_entry(w->tpt, w->region);
	assert_int_equal(tpt_invalidate(w->tpt, bind.key, PD, QPN, true), HDL_DETAIL_NONE);
	remove_entry(w->tpt, second);
}

static const uint64_t page_list[] = {HOST + 0x5000, HOST + 0x1000, HOST + 0x3000};

static struct hdl_register good_register(void)
{
	return (struct hdl_register){.pages = page_list,
	                             .num_pages = 3,
	                             .page_shift = 12,
	                             .first_offset = 0x10,
	                             .length = 0x2000,
	                             .iova = IOVA,
	                             .access = RW_LOCAL | RW_REMOTE | HDL_ACCESS_BIND};
}

static struct hdl_key make_empty(struct tpt *tpt)
{
	struct hdl_key key;
	assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, 3, &key), 0);
	return key;
}

static void ip3_register_by_work_request(void **state)
{
	struct world *w = *state;
	struct hdl_key key = make_empty(w->tpt);
	struct hdl_register reg = good_register();
	struct tpt_request req = remote_request(key, IOVA, 0x10);
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NOT_VALID);
	for (int round = 0; round < 3; round++) {
		key = tpt_fresh(w->tpt, key);
		assert_int_equal(tpt_register(w->tpt, key, PD, &reg), HDL_DETAIL_NONE);
		assert_int_equal(check(w->tpt, &req), HDL_DETAIL_INSTANCE);
		req.key = key;
		assert_int_equal(host_of(w->tpt, &req), HOST + 0x5010);
		assert_int_equal(tpt_register(w->tpt, key, PD, &reg), HDL_DETAIL_ALREADY);
		assert_int_equal(tpt_invalidate(w->tpt, key, PD, QPN, true), HDL_DETAIL_NONE);
		assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NOT_VALID);
	}
	remove_entry(w->tpt, key);
}

static void fig11_registrations_that_are_refused(void **state)
{
	struct world *w = *state;
	struct hdl_key key = make_empty(w->tpt);
	static const uint64_t odd[] = {HOST + 0x5008, HOST + 0x1000, HOST + 0x3000};
	static const uint64_t last[] = {HOST, HOST, UINT64_MAX - 0xfff};
	static const uint64_t four[] = {0x1000, 0x2000, 0x3000, 0x4000};
	const struct {
		const uint64_t *pages;
		uint32_t num_pages;
		uint8_t page_shift;
		uint64_t first_offset, length, iova;
		uint32_t access;
		enum hdl_detail verdict;
	} rows[] = {
	        {page_list, 3, 11, 0, 0x1000, IOVA, RW_LOCAL, HDL_DETAIL_PAGES},
	        {page_list, 3, 29, 0, 0x1000, IOVA, RW_LOCAL, HDL_DETAIL_PAGES},
	        {page_list, 3, 255, 0, 0x1000, IOVA, RW_LOCAL, HDL_DETAIL_PAGES},
	        {page_list, 0, 12, 0, 0, IOVA, RW_LOCAL, HDL_DETAIL_PAGES},
	        {page_list, UINT32_MAX, 12, 0, 0, IOVA, RW_LOCAL, HDL_DETAIL_PAGES},
	        {page_list, 3, 12, 0x1000, 0x1000, IOVA, RW_LOCAL, HDL_DETAIL_PAGES},
	        {page_list, 3, 12, UINT64_MAX, 2, IOVA, RW_LOCAL, HDL_DETAIL_PAGES},
	        {page_list, 3, 12, 0, 0x3001, IOVA, RW_LOCAL, HDL_DETAIL_PAGES},
	        {page_list, 3, 12, 1, 0x3000, IOVA, RW_LOCAL, HDL_DETAIL_PAGES},
	        {page_list, 3, 12, 1, UINT64_MAX, IOVA, RW_LOCAL, HDL_DETAIL_PAGES},
	        {page_list, 3, 13, 0, 0x1000, IOVA, RW_LOCAL, HDL_DETAIL_PAGES}, /* not aligned */
	        {odd, 3, 12, 0, 0x3000, IOVA, RW_LOCAL, HDL_DETAIL_PAGES},
	        {last, 3, 12, 0, 0x3000, IOVA, RW_LOCAL, HDL_DETAIL_PAGES}, /* ends at 2^64 */
	        {four, 4, 12, 0, 0x3001, IOVA, RW_LOCAL, HDL_DETAIL_PAGES}, /* room for three */
	        {page_list, 3, 12, 0, 0x3000, UINT64_MAX - 0x2fff, RW_LOCAL, HDL_DETAIL_BOUNDS},
	        {page_list, 3, 12, 0, 1, IOVA, HDL_ACCESS_REMOTE_WRITE, HDL_DETAIL_ACCESS},
	        {page_list, 3, 12, 0, 1, IOVA, RW_LOCAL | 0x100, HDL_DETAIL_ACCESS},
	        {page_list, 3, 12, 0, 0x3000, UINT64_MAX - 0x3000, RW_LOCAL, HDL_DETAIL_NONE},
	        {four, 4, 12, 0, 0x3000, IOVA, RW_LOCAL, HDL_DETAIL_NONE},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const struct hdl_register reg = {
		        rows[i].pages,  rows[i].num_pages, rows[i].page_shift, rows[i].first_offset,
		        rows[i].length, rows[i].iova,      rows[i].access};
		assert_int_equal(tpt_register(w->tpt, key, PD, &reg), rows[i].verdict);
		struct hdl_key called;
		int error = tpt_insert_pages(w->tpt, PD, TPT_REGION, 0, &reg, &called);
		if (rows[i].pages == four) /* registering by call has no such limit */
			assert_int_equal(error, 0);
		else
			assert_int_equal(error,
			                 rows[i].verdict == HDL_DETAIL_NONE ? 0 : -HDL_EINVAL);
		if (error == 0)
			remove_entry(w->tpt, called);
		if (rows[i].verdict == HDL_DETAIL_NONE)
			assert_int_equal(tpt_invalidate(w->tpt, key, PD, 0, false),
			                 HDL_DETAIL_NONE);
	}
	struct hdl_register reg = good_register();
	assert_int_equal(tpt_register(w->tpt, key, OTHER_PD, &reg), HDL_DETAIL_PD);
	assert_int_equal(tpt_register(w->tpt, w->window, PD, &reg), HDL_DETAIL_TYPE);
	assert_int_equal(tpt_register(w->tpt, w->region, PD, &reg), HDL_DETAIL_TYPE);
	assert_int_equal(tpt_retire(w->tpt, key), HDL_DETAIL_NONE);
	assert_int_equal(tpt_register(w->tpt, key, PD, &reg), HDL_DETAIL_NOT_VALID);
	key.v = UINT32_MAX;
	assert_int_equal(tpt_register(w->tpt, key, PD, &reg), HDL_DETAIL_NOT_VALID);
}

static void ip3_who_may_invalidate_what(void **state)
{
	struct world *w = *state;
	struct hdl_key by_request = make_empty(w->tpt), task;
	struct hdl_register reg = good_register();
	assert_int_equal(tpt_register(w->tpt, by_request, PD, &reg), HDL_DETAIL_NONE);
	struct hdl_key type_2 = make_bound(w->tpt, w->region, RW_REMOTE, 1);
	struct tpt_bind bind = good_bind(w);
	bind.qpn = 0;
	assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
	struct hdl_key type_1 = bind.key;
	assert_int_equal(tpt_insert_pages(w->tpt, PD, TPT_ISCSI, 1, &reg, &task), 0);
	const struct {
		struct hdl_key key;
		uint32_t pd, qpn;
		bool exact;
		enum hdl_detail verdict;
	} rows[] = {
	        {{UINT32_MAX}, PD, QPN, true, HDL_DETAIL_NOT_VALID},
	        {{0}, PD, QPN, true, HDL_DETAIL_NOT_VALID},
	        {w->region, PD, QPN, true, HDL_DETAIL_TYPE},
	        {w->region, PD, 0, true, HDL_DETAIL_TYPE}, /* registered by call: only removed */
	        {by_request, OTHER_PD, QPN, true, HDL_DETAIL_PD},
	        {key_other_instance(by_request), PD, QPN, true, HDL_DETAIL_INSTANCE},
	        {by_request, PD, QPN + 1, true, HDL_DETAIL_NONE},
	        {by_request, PD, QPN, true, HDL_DETAIL_NOT_VALID},
	        {type_2, OTHER_PD, QPN, true, HDL_DETAIL_PD},
	        {type_2, PD, QPN + 1, true, HDL_DETAIL_QP},
	        {key_other_instance(type_2), PD, QPN, true, HDL_DETAIL_INSTANCE},
	        {type_2, PD, QPN, true, HDL_DETAIL_NONE},
	        {type_2, PD, QPN, true, HDL_DETAIL_NOT_VALID},
	        {type_1, PD, QPN, true, HDL_DETAIL_TYPE},
	        {type_1, OTHER_PD, 0, false, HDL_DETAIL_PD},
	        {key_other_instance(type_1), PD, 0, false, HDL_DETAIL_NONE}, /* the owner unbinds */
	        {task, PD, QPN, true, HDL_DETAIL_TYPE},
	        {key_other_instance(task), PD, 0, true, HDL_DETAIL_INSTANCE},
	        {task, PD, 0, true, HDL_DETAIL_NONE},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		assert_int_equal(
		        tpt_invalidate(w->tpt, rows[i].key, rows[i].pd, rows[i].qpn, rows[i].exact),
		        rows[i].verdict);
	remove_entry(w->tpt, w->region);
}

static void a_registered_region_with_windows_is_busy(void **state)
{
	struct world *w = *state;
	struct hdl_key key = make_empty(w->tpt);
	struct hdl_register reg = good_register();
	assert_int_equal(tpt_register(w->tpt, key, PD, &reg), HDL_DETAIL_NONE);
	struct hdl_key window = make_bound(w->tpt, key, RW_REMOTE, 0x1800);
	struct tpt_request req = remote_request(window, IOVA + 0xff0, 0x10);
	assert_int_equal(host_of(w->tpt, &req), HOST + 0x1000); /* through the region's table */
	assert_int_equal(tpt_invalidate(w->tpt, key, PD, QPN, true), HDL_DETAIL_BUSY);
	assert_int_equal(tpt_invalidate(w->tpt, window, PD, QPN, true), HDL_DETAIL_NONE);
	assert_int_equal(tpt_invalidate(w->tpt, key, PD, QPN, true), HDL_DETAIL_NONE);
}

/* Figure 17A: a task entry is made by the work request and ends with the response. */
static void fig17a_task_by_work_request(void **state)
{
	struct world *w = *state;
	struct hdl_key key;
	struct hdl_register reg = good_register();
	reg.access = HDL_ACCESS_REMOTE_WRITE;
	reg.iova = UINT64_MAX; /* a name, not an address: it may be anything */
	assert_int_equal(tpt_insert_empty(w->tpt, PD, TPT_ISCSI, 3, &key), 0);
	assert_int_equal(tpt_register(w->tpt, key, PD, &reg), HDL_DETAIL_NONE);
	struct tpt_request req = remote_request(key, 0, 0x2000);
	req.side = TPT_TASK;
	req.access = HDL_ACCESS_REMOTE_WRITE;
	struct tpt_grant grant;
	assert_int_equal(tpt_check(&w->tpt->view, &req, &grant), HDL_DETAIL_NONE);
	assert_true(grant.entry.base == UINT64_MAX);
	req.addr = 1;
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_BOUNDS);
	assert_int_equal(tpt_invalidate(w->tpt, key, PD, 0, true), HDL_DETAIL_NONE);
	assert_int_equal(check(w->tpt, &req), HDL_DETAIL_NOT_VALID);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(fig15_a_to_g_for_a_bind),
	        TEST(fig15_c_region_of_another_domain),
	        TEST(a_bind_judges_the_window_first),
	        TEST(sn9_any_length_any_alignment),
	        TEST(sn9_one_key_one_range),
	        TEST(sn9_every_queue_pair_of_the_domain),
	        TEST(a_window_on_a_zero_based_region),
	        TEST(a_region_waits_for_its_windows),
	        TEST(ip3_register_by_work_request),
	        TEST(fig11_registrations_that_are_refused),
	        TEST(ip3_who_may_invalidate_what),
	        TEST(a_registered_region_with_windows_is_busy),
	        TEST(fig17a_task_by_work_request),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
