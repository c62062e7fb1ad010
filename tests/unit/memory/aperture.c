/* The tables of apertures: the remap example of APERTURE figure 4, sizes told by the base, the two
 * levels of the lookup, and every check of an incoming packet, on and off. */
#include "table.h"

#include "memory/incoming.h"
#include "memory/nonce.h"
#include "memory/outgoing.h"

#define NONCE 0x0123456789abcdefull
#define FIRST 0xfffffff0u

/* --- outgoing --- */

static struct outgoing_table *open_table(const struct outgoing_config *config, void **memory)
{
	struct outgoing_table *table = aligned_alloc(64, sizeof(*table));
	*memory = table_memory(outgoing_bytes(config));
	assert_true(outgoing_fits(config));
	outgoing_init(table, config, *memory);
	return table;
}

/* Group 8 is the part of the address space from 0x80000000 on; its apertures have 1 MiB. The
 * aperture "21" leads to the incoming one whose base is "32". */
static void ap1_remap_example(void **state)
{
	(void)state;
	struct outgoing_config config = {.part_bits = 28,
	                                 .groups[8] = {20, HDL_APERTURE_DATA, 256}};
	struct table *memory = table_open(10, 100);
	struct tpt_region region = {.type = TPT_APERTURE,
	                            .pd = PD,
	                            .access = RW_REMOTE,
	                            .host = 0x83200000,
	                            .length = 1u << 20};
	struct hdl_aperture_fixed in = {.index = 1, .bits = 20, .checks = HDL_CHECK_DEFAULT};
	assert_int_equal(tpt_insert_run(&memory->tpt, &region, &in.key), 0);
	void *store;
	struct outgoing_table *table = open_table(&config, &store);
	struct outgoing *entry = outgoing_take_at(table, 0x82100000);
	assert_non_null(entry);
	entry->owner = &in;
	uint64_t offset, length = 4;
	struct tpt_grant grant;
	const struct outgoing *found = outgoing_find(table, 0x8210beec, &offset);
	assert_ptr_equal(found, entry);
	assert_int_equal(incoming_extent(&memory->tpt.view, found->owner, PD,
	                                 HDL_ACCESS_REMOTE_WRITE, offset, &length, &grant),
	                 INCOMING_OK);
	struct span span;
	uint64_t covered;
	assert_int_equal(tpt_spans(&memory->tpt.view, &grant, 0, length, &span, 1, &covered), 1);
	assert_int_equal(span.addr, 0x8320beec);
	assert_null(outgoing_find(table, 0x8220beec, &offset)); /* free */
	assert_null(outgoing_find(table, 0x7210beec, &offset)); /* no such group */
	assert_null(outgoing_take_at(table, 0x82100000));       /* taken */
	assert_null(outgoing_take_at(table, 0x82100400));       /* no base */
	free(table);
	free(store);
	table_close(memory);
}

static void ap1_base_tells_size_and_type(void **state)
{
	(void)state;
	struct outgoing_config config = {.origin = 0x7f1234560000,
	                                 .part_bits = 32,
	                                 .groups = {{10, HDL_APERTURE_DATA, 64},
	                                            {10, HDL_APERTURE_EVENT, 64},
	                                            {16, HDL_APERTURE_DATA, 16},
	                                            {30, HDL_APERTURE_DATA, 4}}};
	void *store;
	struct outgoing_table *table = open_table(&config, &store);
	static const struct {
		uint8_t bits, type;
		uint64_t base;
	} rows[] = {
	        {10, HDL_APERTURE_DATA, 0x7f1234560000},  {10, HDL_APERTURE_DATA, 0x7f1234560400},
	        {10, HDL_APERTURE_EVENT, 0x7f1334560000}, {16, HDL_APERTURE_DATA, 0x7f1434560000},
	        {30, HDL_APERTURE_DATA, 0x7f1534560000},  {30, HDL_APERTURE_DATA, 0x7f1574560000}};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct outgoing *entry = outgoing_take(table, rows[i].bits, rows[i].type, 0);
		uint64_t offset, last = ((uint64_t)1 << rows[i].bits) - 1;
		assert_non_null(entry);
		assert_int_equal(entry->base, rows[i].base);
		assert_ptr_equal(outgoing_find(table, entry->base + last, &offset), entry);
		assert_int_equal(offset, last);
		assert_true(entry->bits == rows[i].bits && entry->type == rows[i].type);
	}
	assert_null(outgoing_take(table, 11, HDL_APERTURE_DATA, 0));
	assert_null(outgoing_take(table, 16, HDL_APERTURE_EVENT, 0));
	assert_null(outgoing_take(table, 0, HDL_APERTURE_DATA, 0));
	/* The limit of a group; apertures below a page that share no page. */
	uint32_t count = 0;
	const struct outgoing *apart;
	while ((apart = outgoing_take(table, 10, HDL_APERTURE_DATA, 12)) != NULL) {
		assert_int_equal((apart->base - config.origin) % 4096, 0);
		count++;
	}
	assert_int_equal(count, 15);
	static const struct outgoing_config bad[] = {
	        {.part_bits = 28, .groups[0] = {9, 0, 1}},
	        {.part_bits = 28, .groups[0] = {31, 0, 1}},
	        {.part_bits = 28, .groups[0] = {20, 0, 257}},
	        {.part_bits = 59, .groups[0] = {20, 0, 1}}, /* there are not so many addresses */
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(outgoing_fits(&bad[i]));
	config.part_bits = 58;
	assert_true(outgoing_fits(&config));
	free(table);
	free(store);
}

/* A set keeps the most recent entries; the first level never answers for an entry that is gone. */
static void ap2_two_levels(void **state)
{
	(void)state;
	struct outgoing_config config = {.part_bits = 40,
	                                 .groups[0] = {10, HDL_APERTURE_DATA, 1u << 20}};
	void *store;
	struct outgoing_table *table = open_table(&config, &store);
	struct outgoing *entries[1024];
	uint64_t offset;
	for (unsigned i = 0; i < 1024; i++)
		entries[i] = outgoing_take(table, 10, HDL_APERTURE_DATA, 0);
	for (unsigned i = 0; i < 2; i++)
		assert_ptr_equal(outgoing_find(table, entries[5]->base, &offset), entries[5]);
	assert_true(table->hits == 1 && table->misses == 1);
	for (unsigned round = 0; round < 2; round++) /* as many as the first level holds */
		for (unsigned i = 0; i < OUTGOING_SETS * OUTGOING_WAYS; i++)
			outgoing_find(table, entries[i]->base, &offset);
	assert_int_equal(table->misses, OUTGOING_SETS * OUTGOING_WAYS);
	for (unsigned i = 0; i < 1024; i++)
		assert_ptr_equal(outgoing_find(table, entries[i]->base + 7, &offset), entries[i]);
	uint64_t misses = table->misses;
	outgoing_find(table, entries[0]->base, &offset); /* replaced meanwhile */
	assert_int_equal(table->misses, misses + 1);
	uint64_t base = entries[0]->base;
	outgoing_give(table, entries[0]);
	assert_null(outgoing_find(table, base, &offset));
	assert_ptr_equal(outgoing_take_at(table, base), entries[0]);
	assert_int_equal(outgoing_find(table, base, &offset)->sequence, 0);
	free(table);
	free(store);
}

/* --- incoming --- */

static const uint8_t peer[16] = {[10] = 0xff, [11] = 0xff, 10, 1, 2, 3};

/* A row, the page beside it that its application may write, and how its nonce has rolled. */
struct entry {
	struct hdl_aperture_fixed row;
	struct hdl_aperture_user user;
	struct nonce roll;
};

static struct entry entry_of(uint8_t checks)
{
	struct entry entry = {.row = {.index = 1,
	                              .connected = true,
	                              .bits = 12,
	                              .checks = checks,
	                              .link = {2, 0, 0, 0, 0, 1},
	                              .expected = FIRST},
	                      .user.nonce = NONCE};
	nonce_begin(&entry.roll, 0, FIRST, 0, 0);
	memcpy(entry.row.source.raw, peer, 16);
	memset(entry.row.mask.raw, 0xff, 15); /* the last byte does not count */
	return entry;
}

static enum incoming_verdict judged(const struct entry *entry, const struct incoming_request *req)
{
	return incoming_judge(&entry->row, &entry->user, &entry->roll, req);
}

static struct incoming_request good_request(void)
{
	struct incoming_request req = {.nonce = NONCE,
	                               .sequence = FIRST,
	                               .sequenced = true,
	                               .source = {.link = {2, 0, 0, 0, 0, 1}, .has_link = true}};
	memcpy(req.source.host, peer, 16);
	return req;
}

/* One thing wrong at a time: refused with the check, let through without it. */
static void ap5_each_check_on_and_off(void **state)
{
	(void)state;
	static const struct {
		uint8_t check;
		int what;
		enum incoming_verdict verdict;
	} rows[] = {
	        {HDL_CHECK_VALID, 'v', INCOMING_NOT_VALID},
	        {HDL_CHECK_SEQUENCE, '+', INCOMING_GAP},
	        {HDL_CHECK_SEQUENCE, '-', INCOMING_DUPLICATE},
	        {HDL_CHECK_SEQUENCE, 'u', INCOMING_UNNUMBERED},
	        {HDL_CHECK_NONCE, 'n', INCOMING_NONCE},
	        {HDL_CHECK_LINK, 'l', INCOMING_LINK},
	        {HDL_CHECK_LINK, 'L', INCOMING_LINK},
	        {HDL_CHECK_SOURCE, 's', INCOMING_SOURCE},
	        {HDL_CHECK_CLUSTER, 'c', INCOMING_SOURCE},
	};
	const uint8_t all = HDL_CHECK_DEFAULT | HDL_CHECK_LINK | HDL_CHECK_CLUSTER;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (unsigned off = 0; off < 2; off++) {
			struct entry entry = entry_of(off ? all & (uint8_t)~rows[i].check : all);
			struct incoming_request req = good_request();
			entry.row.source_cluster = 0x1234;
			entry.row.cluster_mask = 0xfff0;
			req.source.cluster = 0x1239;
			assert_int_equal(judged(&entry, &req), INCOMING_OK);
			req.source.cluster ^= rows[i].what == 'c' ? 0x8000 : 0;
			entry.row.connected = rows[i].what != 'v';
			req.sequence += rows[i].what == '+' ? 1 : 0;
			req.sequence -= rows[i].what == '-' ? 1 : 0;
			req.sequenced = rows[i].what != 'u';
			req.nonce ^= rows[i].what == 'n' ? 1 : 0;
			req.source.link[5] ^= rows[i].what == 'l' ? 1 : 0;
			req.source.has_link = rows[i].what != 'L';
			req.source.host[3] ^= rows[i].what == 's' ? 1 : 0;
			assert_int_equal(judged(&entry, &req), off ? INCOMING_OK : rows[i].verdict);
		}
	}
	struct entry entry = entry_of(all);
	struct incoming_request req = good_request();
	req.source.host[15] ^= 0x55; /* outside the mask */
	assert_int_equal(judged(&entry, &req), INCOMING_OK);
	assert_int_equal(incoming_judge(NULL, NULL, NULL, &req), INCOMING_NO_ENTRY);
	entry.row.index = 0;
	assert_int_equal(judged(&entry, &req), INCOMING_NO_ENTRY);
}

/* Who sends comes before what is missing: a stranger learns nothing from a number. */
static void ap5_strangers_get_silence(void **state)
{
	(void)state;
	struct entry entry = entry_of(HDL_CHECK_DEFAULT);
	struct incoming_request req = good_request();
	req.sequence += 5;
	req.nonce++;
	assert_int_equal(judged(&entry, &req), INCOMING_NONCE);
	req.nonce--;
	req.source.host[0] = 1;
	assert_int_equal(judged(&entry, &req), INCOMING_SOURCE);
}

static void ap5_stale_nonce_of_an_earlier_connection(void **state)
{
	(void)state;
	struct entry entry = entry_of(HDL_CHECK_DEFAULT);
	struct incoming_request old = good_request();
	entry.user.nonce = NONCE + 12345;
	assert_int_equal(judged(&entry, &old), INCOMING_NONCE);
}

/* An application that stores 0, to get a random nonce next time, opens its entry to nobody. */
static void ap6_nonce_0_lets_nobody_in(void **state)
{
	(void)state;
	struct entry entry = entry_of(HDL_CHECK_DEFAULT);
	struct incoming_request req = good_request();
	entry.user.nonce = req.nonce = 0;
	assert_int_equal(judged(&entry, &req), INCOMING_NONCE);
	req.control = true;
	assert_int_equal(judged(&entry, &req), INCOMING_NONCE);
	entry.row.checks &= (uint8_t)~HDL_CHECK_NONCE;
	assert_int_equal(judged(&entry, &req), INCOMING_OK);
}

/* APERTURE columns 8 and 9: plus 3 after every 4 packets, across the wrap of the number. Packets
 * that are late or early are recognized by the nonce that belongs to their number. */
static void ap5_rolling_nonce(void **state)
{
	(void)state;
	struct entry entry = entry_of(HDL_CHECK_DEFAULT);
	struct nonce sender;
	nonce_begin(&entry.roll, 0, FIRST, 4, 3);
	nonce_begin(&sender, NONCE, FIRST, 4, 3);
	for (uint32_t i = 0; i < 100; i++) {
		struct incoming_request req = good_request();
		req.sequence = FIRST + i;
		req.nonce = nonce_at(&sender, FIRST + i);
		assert_int_equal(req.nonce, NONCE + i / 4 * 3);
		assert_int_equal(judged(&entry, &req), INCOMING_OK);
		struct incoming_request wrong = req;
		wrong.nonce = NONCE + (i / 4 * 3 ^ 1);
		assert_int_equal(judged(&entry, &wrong), INCOMING_NONCE);
		struct incoming_request early = req;
		early.sequence += 9;
		early.nonce = NONCE + (i + 9) / 4 * 3;
		assert_int_equal(judged(&entry, &early), INCOMING_GAP);
		if (i >= 10) {
			struct incoming_request late = req;
			late.sequence -= 10;
			late.nonce = NONCE + (i - 10) / 4 * 3;
			assert_int_equal(judged(&entry, &late), INCOMING_DUPLICATE);
		}
		struct incoming_request control = {
		        .nonce = NONCE, .control = true, .source = req.source};
		assert_int_equal(judged(&entry, &control), INCOMING_OK);
		incoming_accept(&entry.row, &entry.roll);
		if (i % 7 == 0)
			nonce_roll(&sender, FIRST + i + 1);
	}
}

/* Bounds and rights by the protection table, narrowed to any alignment; never address + length. */
static void ap1_narrowing_and_extent(void **state)
{
	(void)state;
	struct table *memory = table_open(10, 100);
	struct tpt_region region = {.type = TPT_APERTURE,
	                            .pd = PD,
	                            .access = HDL_ACCESS_REMOTE_WRITE,
	                            .host = HOST,
	                            .length = 4096};
	struct hdl_aperture_fixed row = entry_of(HDL_CHECK_DEFAULT).row;
	struct tpt_grant grant;
	assert_int_equal(tpt_insert_run(&memory->tpt, &region, &row.key), 0);
	static const struct {
		uint64_t offset, length;
		uint8_t access;
		enum incoming_verdict whole, narrowed;
	} rows[] = {
	        {0, 4096, HDL_ACCESS_REMOTE_WRITE, INCOMING_OK, INCOMING_EXTENT},
	        {101, 50, HDL_ACCESS_REMOTE_WRITE, INCOMING_OK, INCOMING_OK},
	        {100, 50, HDL_ACCESS_REMOTE_WRITE, INCOMING_OK, INCOMING_EXTENT},
	        {101, 51, HDL_ACCESS_REMOTE_WRITE, INCOMING_OK, INCOMING_EXTENT},
	        {4095, 2, HDL_ACCESS_REMOTE_WRITE, INCOMING_EXTENT, INCOMING_EXTENT},
	        {UINT64_MAX, 2, HDL_ACCESS_REMOTE_WRITE, INCOMING_EXTENT, INCOMING_EXTENT},
	        {1, UINT64_MAX, HDL_ACCESS_REMOTE_WRITE, INCOMING_EXTENT, INCOMING_EXTENT},
	        {101, 1, HDL_ACCESS_REMOTE_READ, INCOMING_ACCESS, INCOMING_ACCESS},
	};
	for (unsigned narrowed = 0; narrowed < 2; narrowed++) {
		if (narrowed) {
			region.iova = 101;
			region.host = HOST + 101;
			region.length = 50;
			assert_int_equal(tpt_replace_run(&memory->tpt, row.key, &region), 0);
		}
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			uint64_t length = rows[i].length;
			assert_int_equal(incoming_extent(&memory->tpt.view, &row, PD,
			                                 rows[i].access, rows[i].offset, &length,
			                                 &grant),
			                 narrowed ? rows[i].narrowed : rows[i].whole);
		}
	}
	struct span span;
	uint64_t covered, length = 1;
	assert_int_equal(incoming_extent(&memory->tpt.view, &row, PD, HDL_ACCESS_REMOTE_WRITE, 101,
	                                 &length, &grant),
	                 INCOMING_OK);
	assert_int_equal(tpt_spans(&memory->tpt.view, &grant, 0, 1, &span, 1, &covered), 1);
	assert_int_equal(span.addr, HOST + 101);
	/* An aperture is no region, and a region no aperture. */
	const struct tpt_request remote = {
	        .key = row.key, .side = TPT_REMOTE, .pd = PD, .addr = 101, .length = 1};
	assert_int_equal(tpt_check(&memory->tpt.view, &remote, &grant), HDL_DETAIL_TYPE);
	struct tpt_region plain = {.pd = PD, .access = RW_LOCAL, .host = HOST, .length = 4096};
	assert_int_equal(tpt_replace_run(&memory->tpt, row.key, &plain), -HDL_ENOTSUP);
	struct hdl_key key = row.key;
	assert_int_equal(tpt_insert_run(&memory->tpt, &plain, &row.key), 0);
	length = 1;
	assert_int_equal(incoming_extent(&memory->tpt.view, &row, PD, 0, 0, &length, &grant),
	                 INCOMING_MEMORY);
	assert_int_equal(tpt_invalidate(&memory->tpt, key, PD, QPN, true), HDL_DETAIL_TYPE);
	assert_int_equal(tpt_retire(&memory->tpt, key), HDL_DETAIL_NONE);
	row.key = key;
	assert_int_equal(incoming_extent(&memory->tpt.view, &row, PD, 0, 101, &length, &grant),
	                 INCOMING_MEMORY);
	table_close(memory);
}

/* Without the check, offsets wrap at the size and never leave the aperture. */
static void ap5_extent_off_wraps(void **state)
{
	(void)state;
	struct table *memory = table_open(10, 100);
	struct tpt_region region = {
	        .type = TPT_APERTURE, .pd = PD, .access = RW_REMOTE, .host = HOST, .length = 4096};
	struct hdl_aperture_fixed row = entry_of(HDL_CHECK_DEFAULT & ~HDL_CHECK_EXTENT).row;
	struct tpt_grant grant;
	struct span span;
	uint64_t covered, length = 100;
	assert_int_equal(tpt_insert_run(&memory->tpt, &region, &row.key), 0);
	assert_int_equal(incoming_extent(&memory->tpt.view, &row, PD, HDL_ACCESS_REMOTE_WRITE,
	                                 0xfffffff0, &length, &grant),
	                 INCOMING_OK);
	assert_int_equal(length, 16);
	assert_int_equal(tpt_spans(&memory->tpt.view, &grant, 0, length, &span, 1, &covered), 1);
	assert_true(span.addr == HOST + 4080 && span.length == 16);
	row.bits = 0;
	assert_int_equal(incoming_extent(&memory->tpt.view, &row, PD, 0, 0, &length, &grant),
	                 INCOMING_EXTENT);
	table_close(memory);
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(ap1_remap_example),
	        cmocka_unit_test(ap1_base_tells_size_and_type),
	        cmocka_unit_test(ap2_two_levels),
	        cmocka_unit_test(ap5_each_check_on_and_off),
	        cmocka_unit_test(ap5_strangers_get_silence),
	        cmocka_unit_test(ap5_stale_nonce_of_an_earlier_connection),
	        cmocka_unit_test(ap6_nonce_0_lets_nobody_in),
	        cmocka_unit_test(ap5_rolling_nonce),
	        cmocka_unit_test(ap1_narrowing_and_extent),
	        cmocka_unit_test(ap5_extent_off_wraps),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
