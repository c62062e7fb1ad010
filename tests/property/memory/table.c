/* A million random registrations, binds, invalidations, touches, removals and accesses, with
 * addresses and lengths that wrap: the protection table must say exactly what the model says, and
 * lead to exactly the bytes the model leads to. The seed may be given as the first argument.
 * MISSION IP2 to IP5, SN8, SN9. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <heddle/error.h>

#include "base/bitmap.h"
#include "base/prng.h"
#include "memory/judge.h"
#include "memory/tpt.h"
#include "model.h"

#define STEPS       1000000u
#define ARENA_WORDS 8192u

static uint64_t seed = 1;

struct world {
	struct tpt tpt;
	struct model model;
	struct prng prng;
	uint64_t pages[MODEL_MAX_PAGES + 8];
	/* What came up: everything must, else the generator is lame. */
	uint64_t seen[HDL_DETAIL_COUNT], acted[TPT_DROP + 1];
	uint64_t full, said_yes, short_ways, lined_up, gone;
};

static uint64_t below(struct world *w, uint64_t bound)
{
	return prng_below(&w->prng, bound);
}

static bool chance(struct world *w, uint32_t permille)
{
	return prng_chance(&w->prng, permille);
}

/* A number as a peer would pick it: small, near a power of two, near the top, or anything. */
static uint64_t wild(struct world *w)
{
	switch (below(w, 5)) {
	case 0:
		return below(w, 16);
	case 1:
		return UINT64_MAX - below(w, 16);
	case 2:
		return ((uint64_t)1 << below(w, 64)) + below(w, 5) - 2;
	case 3:
		return below(w, 0x10000);
	default:
		return prng_next(&w->prng);
	}
}

static void agree(struct world *w, enum hdl_detail verdict, enum hdl_detail expect)
{
	assert_int_equal(verdict, expect);
	w->seen[expect]++;
}

static struct hdl_key some_key(struct world *w)
{
	struct hdl_key key = {(uint32_t)(1 + below(w, MODEL_CAPACITY)) << 8};
	key.v |= model_entry(&w->model, key)->instance;
	if (chance(w, 60))
		key.v ^= 1u << below(w, 8);
	if (chance(w, 10))
		key.v = (uint32_t)wild(w);
	return key;
}

/* A key with a good chance of fitting: of the type, and valid if @valid. */
static struct hdl_key key_of_type(struct world *w, uint8_t type, bool valid)
{
	struct hdl_key key = some_key(w);
	for (int tries = 0; tries < 20; tries++) {
		const struct model_entry *e = model_entry(&w->model, key);
		if (e != NULL && e->taken && !e->retired && e->type == type && (!valid || e->valid))
			break;
		key = some_key(w);
	}
	return key;
}

static uint32_t some_pd(struct world *w)
{
	return chance(w, 950) ? 1 : 2;
}

static uint32_t some_qpn(struct world *w)
{
	return (uint32_t)below(w, 3);
}

static uint32_t some_access(struct world *w)
{
	uint32_t access = (uint32_t)below(w, 256);
	if (chance(w, 700))
		access |= HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_BIND;
	if (chance(w, 700))
		access &= ~(uint32_t)HDL_ACCESS_ZERO_BASED;
	return chance(w, 10) ? access | (uint32_t)wild(w) : access;
}

static struct hdl_register some_list(struct world *w)
{
	uint8_t shift = (uint8_t)(12 + below(w, 17));
	if (chance(w, 20))
		shift = (uint8_t)below(w, 70);
	uint32_t count = (uint32_t)(1 + below(w, chance(w, 950) ? 20 : MODEL_MAX_PAGES));
	for (uint32_t i = 0; i < count; i++) {
		w->pages[i] = below(w, 64) << (shift % 64);
		if (chance(w, 1))
			w->pages[i] = wild(w);
	}
	uint64_t page = (uint64_t)1 << (shift % 64);
	struct hdl_register reg = {.pages = w->pages,
	                           .num_pages = chance(w, 990) ? count : 0,
	                           .page_shift = shift,
	                           .first_offset = chance(w, 980) ? below(w, page) : wild(w),
	                           .iova = wild(w),
	                           .access = some_access(w)};
	uint64_t room = count * page - reg.first_offset;
	reg.length = chance(w, 950) && room != 0 ? below(w, room) : wild(w);
	if (chance(w, 100))
		reg.length = room;
	return reg;
}

static void took(struct world *w, struct hdl_key key)
{
	const struct model_entry *e = model_entry(&w->model, key);
	assert_non_null(e);
	assert_true(key.v >> 8 != 0 && !e->taken && e->instance != (uint8_t)key.v);
}

/* Units of the arena that a table for @pages takes. */
static size_t units_for(uint32_t pages)
{
	size_t units = 0;
	for (uint32_t done = 0; done < pages; done += TPT_FANOUT)
		units += ((pages - done < TPT_FANOUT ? pages - done : TPT_FANOUT) + 7) / 8;
	return units + (pages > TPT_FANOUT ? 1 : 0); /* the root of a first-order table */
}

/* No room is an answer only where there is none: no free entry, or no run of free units for one of
 * its tables. */
static void expect_full(struct world *w, uint32_t pages)
{
	w->full++;
	if (model_taken(&w->model) == MODEL_CAPACITY)
		return;
	assert_true(pages != 0);
	const struct bitmap *map = &w->tpt.arena.map;
	size_t longest = 0, run = 0;
	for (size_t i = 0; i < map->bits; i++) {
		run = bitmap_test(map, i) ? 0 : run + 1;
		longest = run > longest ? run : longest;
	}
	size_t needed = units_for(pages);
	assert_true(longest < needed);
}

static void step_insert_run(struct world *w)
{
	const struct tpt_region region = {some_pd(w), some_access(w),
	                                  wild(w),    wild(w),
	                                  wild(w),    chance(w, 200) ? TPT_APERTURE : TPT_REGION};
	struct hdl_key key;
	int error = tpt_insert_run(&w->tpt, &region, &key);
	if (error == -HDL_ENOMEM) {
		expect_full(w, 0);
		return;
	}
	assert_int_equal(error, model_refuse_run(&region));
	if (error == 0) {
		took(w, key);
		model_set_run(model_take(&w->model, key, region.pd, region.type), &region);
	}
}

static void step_insert_pages(struct world *w)
{
	const struct hdl_register reg = some_list(w);
	enum tpt_type type = chance(w, 700) ? TPT_REGION : chance(w, 900) ? TPT_ISCSI : TPT_WINDOW;
	uint64_t cookie = wild(w);
	uint32_t pd = some_pd(w);
	struct hdl_key key;
	int error = tpt_insert_pages(&w->tpt, pd, type, cookie, &reg, &key);
	int refuse = model_refuse_pages(type, cookie, &reg);
	if (error == -HDL_ENOMEM) {
		assert_int_equal(refuse, 0);
		uint64_t last = reg.first_offset + (reg.length != 0 ? reg.length - 1 : 0);
		expect_full(w, (uint32_t)(last >> reg.page_shift) + 1);
		return;
	}
	assert_int_equal(error, refuse);
	if (error == 0) {
		took(w, key);
		model_set_pages(model_take(&w->model, key, pd, (uint8_t)type), cookie, &reg);
	}
}

static void step_insert_empty(struct world *w)
{
	enum tpt_type type = chance(w, 600) ? TPT_WINDOW : chance(w, 800) ? TPT_REGION : TPT_ISCSI;
	uint32_t room = type == TPT_WINDOW
	                        ? 0
	                        : (uint32_t)(1 + below(w, chance(w, 950) ? 20 : MODEL_MAX_PAGES));
	bool wrong = chance(w, 20);
	if (wrong)
		room = type == TPT_WINDOW ? 5 : 0;
	uint32_t pd = some_pd(w);
	struct hdl_key key;
	int error = tpt_insert_empty(&w->tpt, pd, type, room, &key);
	if (error == -HDL_ENOMEM) {
		assert_false(wrong);
		expect_full(w, room);
		return;
	}
	assert_int_equal(error, wrong ? -HDL_EINVAL : 0);
	if (error == 0) {
		took(w, key);
		model_take(&w->model, key, pd, (uint8_t)type)->room = room;
	}
}

static void step_insert_shared(struct world *w)
{
	struct hdl_key of = key_of_type(w, TPT_REGION, true), key;
	uint32_t access = some_access(w), pd = some_pd(w);
	int refuse = model_refuse_shared(&w->model, of, access);
	int error = tpt_insert_shared(&w->tpt, of, pd, access, &key);
	if (error == -HDL_ENOMEM) {
		assert_int_equal(refuse, 0);
		expect_full(w, 0);
		return;
	}
	assert_int_equal(error, refuse);
	if (error == 0) {
		took(w, key);
		model_set_shared(model_take(&w->model, key, pd, TPT_REGION),
		                 model_entry(&w->model, of), access);
	}
}

static void step_register(struct world *w)
{
	struct hdl_key key = key_of_type(w, chance(w, 700) ? TPT_REGION : TPT_ISCSI, false);
	key.v = (key.v & ~0xffu) | (uint32_t)below(w, 256);
	const struct hdl_register reg = some_list(w);
	uint32_t pd = some_pd(w);
	agree(w, tpt_register(&w->tpt, key, pd, &reg), model_register(&w->model, key, pd, &reg));
}

static void step_bind(struct world *w)
{
	struct tpt_bind bind = {.key = key_of_type(w, TPT_WINDOW, false),
	                        .region = key_of_type(w, TPT_REGION, true),
	                        .pd = some_pd(w),
	                        .qpn = some_qpn(w),
	                        .access = some_access(w),
	                        .rebind = chance(w, 700)};
	if (chance(w, 950))
		bind.access &= HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
		               HDL_ACCESS_REMOTE_ATOMIC | HDL_ACCESS_ONE_TOUCH |
		               HDL_ACCESS_ZERO_BASED;
	bind.key.v = (bind.key.v & ~0xffu) | (uint32_t)below(w, 256);
	const struct model_entry *region = model_entry(&w->model, bind.region);
	uint64_t offset = region != NULL && chance(w, 900) ? below(w, region->length | 1) : wild(w);
	bind.addr = (region != NULL ? region->base : 0) + offset;
	bind.length = region != NULL && chance(w, 900) ? region->length - offset : wild(w);
	agree(w, tpt_bind(&w->tpt, &bind), model_bind(&w->model, &bind));
}

static void step_invalidate(struct world *w)
{
	struct hdl_key key = some_key(w);
	uint32_t pd = some_pd(w), qpn = some_qpn(w);
	bool exact = chance(w, 700);
	agree(w, tpt_invalidate(&w->tpt, key, pd, qpn, exact),
	      model_invalidate(&w->model, key, pd, qpn, exact));
}

static void step_remove(struct world *w)
{
	struct hdl_key key = some_key(w);
	struct model_entry *e = model_entry(&w->model, key);
	if (e != NULL && e->retired) { /* some stay retired for a while */
		tpt_free(&w->tpt, key);
		model_free(&w->model, key);
	} else {
		agree(w, tpt_retire(&w->tpt, key), model_retire(&w->model, key));
	}
}

static void step_touch(struct world *w)
{
	struct hdl_key key = key_of_type(w, chance(w, 500) ? TPT_WINDOW : TPT_REGION, true);
	uint32_t next = (uint32_t)wild(w);
	const struct tpt_segment segment = {.last = chance(w, 800),
	                                    .sn = next + (uint32_t)below(w, 40) - 10,
	                                    .next_sn = next,
	                                    .window_end = next + (uint32_t)below(w, 30)};
	enum tpt_action action = model_touch(&w->model, key, &segment);
	assert_int_equal(tpt_touch(&w->tpt, key, &segment), action);
	w->acted[action]++;
	const struct model_entry *e = model_entry(&w->model, key);
	if (e != NULL && chance(w, 700)) {
		next = chance(w, 800) ? e->sn + (uint32_t)below(w, 5) - 2 : (uint32_t)wild(w);
		bool lined_up = model_line_up(&w->model, key, next);
		assert_int_equal(tpt_line_up(&w->tpt, key, next), lined_up);
		w->lined_up += lined_up;
	}
}

static void count_key(void *context, struct hdl_key key)
{
	uint32_t *count = context;
	*count += 1;
	assert_true(key.v >> 8 != 0);
}

static void step_gone(struct world *w)
{
	uint64_t host = wild(w), length = chance(w, 900) ? below(w, 64) : wild(w);
	struct hdl_key key = some_key(w);
	const struct model_entry *e = model_entry(&w->model, key);
	if (e != NULL && e->taken && e->length != 0 && (e->type != TPT_WINDOW || e->valid) &&
	    chance(w, 700))
		host = model_host(&w->model, e, below(w, e->length)) - below(w, 70);
	uint32_t told = 0;
	uint32_t count = tpt_segment_gone(&w->tpt, host, length, count_key, &told);
	assert_int_equal(count, told);
	assert_int_equal(count, model_segment_gone(&w->model, host, length));
	w->gone += count;
}

/* The bytes behind a grant are those of the model, asked for one by one and all at once. */
static void compare_bytes(struct world *w, const struct tpt_grant *grant,
                          const struct model_entry *e)
{
	struct span runs[4];
	uint64_t covered;
	const uint64_t places[] = {0, grant->length - 1, below(w, grant->length)};
	for (int i = 0; i < 3; i++) {
		uint64_t at = model_host(&w->model, e, grant->offset + places[i]);
		assert_int_equal(tpt_spans(&w->tpt.view, grant, places[i], 1, runs, 1, &covered),
		                 1);
		assert_true(covered == 1 && runs[0].length == 1 && runs[0].addr == at);
	}
	size_t count = tpt_spans(&w->tpt.view, grant, places[2], UINT64_MAX, runs, 4, &covered);
	uint64_t done = 0;
	for (size_t i = 0; i < count; i++) {
		uint64_t first = grant->offset + places[2] + done;
		uint64_t last = runs[i].length - 1;
		assert_true(runs[i].addr == model_host(&w->model, e, first));
		assert_true(runs[i].addr + last == model_host(&w->model, e, first + last));
		done += runs[i].length;
	}
	assert_true(done == covered && (covered == grant->length - places[2] || count == 4));
}

/* The bytes of a message that came in by one of the short ways. */
static void compare_run(struct world *w, const struct model_entry *e, uint64_t host,
                        uint64_t offset, uint64_t length)
{
	if (length == 0)
		return;
	const uint64_t places[] = {0, length - 1, below(w, length)};
	for (int i = 0; i < 3; i++)
		assert_true(host + places[i] == model_host(&w->model, e, offset + places[i]));
}

/* The short ways of judge.h grant nothing that the full check refuses, nothing that is for one
 * message, and lead to the same bytes. What lies in one run they know, the peer's table like our
 * own, and once more for as long as the entry stays as it is. */
static void compare_short_ways(struct world *w, const struct tpt_request *req,
                               const struct model_entry *e, enum hdl_detail verdict,
                               uint64_t offset)
{
	uint64_t own = 0, peer = 0, again = 0;
	struct tpt_memo memo = {0};
	bool granted = tpt_own_run(&w->tpt, req, &own);
	assert_int_equal(tpt_peer_run(&w->tpt.view, req, &peer, &memo), granted);
	if (verdict != HDL_DETAIL_NONE || (e->access & HDL_ACCESS_ONE_TOUCH)) {
		assert_false(granted);
		return;
	}
	const struct model_entry *of = e->type == TPT_WINDOW ? &w->model.entries[e->region] : e;
	if (of->page_bytes == 0)
		assert_true(granted);
	if (!granted)
		return;
	w->short_ways++;
	assert_true(own == peer);
	compare_run(w, e, own, offset, req->length);
	uint64_t at = below(w, e->length | 1), length = below(w, (e->length - at) | 1);
	assert_true(
	        tpt_peer_run_again(&w->tpt.view, &memo, req->addr - offset + at, length, &again));
	compare_run(w, e, again, at, length);
	length = e->length - at + 1 + below(w, 3); /* beyond the end, or before the beginning */
	assert_false(
	        tpt_peer_run_again(&w->tpt.view, &memo, req->addr - offset + at, length, &again));
	if (req->addr != offset)
		assert_false(
		        tpt_peer_run_again(&w->tpt.view, &memo, req->addr - offset - 1, 0, &again));
}

static void step_access(struct world *w)
{
	struct tpt_request req = {.key = key_of_type(w, (uint8_t)below(w, 4), chance(w, 800)),
	                          .side = (uint8_t)below(w, 4),
	                          .windows_only = chance(w, 100),
	                          .access = (uint8_t)(1u << below(w, 5)),
	                          .pd = some_pd(w),
	                          .qpn = chance(w, 950) ? 1 : 2};
	const struct model_entry *e = model_entry(&w->model, req.key);
	if (e != NULL && chance(w, 900)) {
		req.side = e->type == TPT_APERTURE                   ? TPT_CI
		           : e->type == TPT_ISCSI                    ? TPT_TASK
		           : e->type == TPT_WINDOW || chance(w, 500) ? TPT_REMOTE
		                                                     : TPT_LOCAL;
		req.pd = e->pd;
	}
	if (chance(w, 100))
		req.access = (uint8_t)below(w, 256);
	uint64_t base = e != NULL && e->type != TPT_ISCSI ? e->base : 0;
	uint64_t length = e != NULL ? e->length : 0;
	uint64_t offset = chance(w, 800) ? below(w, length | 1) : chance(w, 500) ? length : wild(w);
	req.addr = base + offset;
	req.length = chance(w, 500)   ? length - offset
	             : chance(w, 700) ? below(w, (length - offset) | 1)
	                              : length - offset + below(w, 3) - 1;
	if (chance(w, 100))
		req.length = wild(w);
	struct tpt_grant grant;
	uint64_t expect = 0;
	enum hdl_detail verdict = model_check(&w->model, &req, &expect);
	agree(w, tpt_check(&w->tpt.view, &req, &grant), verdict);
	compare_short_ways(w, &req, e, verdict, expect);
	if (verdict != HDL_DETAIL_NONE)
		return;
	assert_true(grant.offset == expect && grant.length == req.length &&
	            grant.index == req.key.v >> 8);
	if (req.length != 0) {
		w->said_yes++;
		compare_bytes(w, &grant, e);
	}
}

static const struct {
	void (*run)(struct world *w);
	uint32_t weight;
} steps[] = {
        {step_access, 430},  {step_bind, 90},    {step_insert_run, 60},    {step_insert_pages, 60},
        {step_register, 60}, {step_remove, 150}, {step_insert_empty, 50},  {step_invalidate, 40},
        {step_touch, 40},    {step_gone, 5},     {step_insert_shared, 15},
};

static void step(struct world *w)
{
	uint64_t draw = below(w, 1000);
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		if (draw < steps[i].weight) {
			steps[i].run(w);
			return;
		}
		draw -= steps[i].weight;
	}
	fail();
}

static void remove_all(struct world *w)
{
	/* Windows first, or their regions are busy. */
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t i = 1; i <= MODEL_CAPACITY; i++) {
			struct hdl_key key = {i << 8};
			const struct model_entry *e = &w->model.entries[i];
			if (!e->taken || (pass == 0 && e->type != TPT_WINDOW))
				continue;
			if (!e->retired)
				assert_int_equal(tpt_retire(&w->tpt, key), HDL_DETAIL_NONE);
			tpt_free(&w->tpt, key);
			model_free(&w->model, key);
		}
	}
	assert_int_equal(bitmap_count(&w->tpt.arena.map), 0);
}

static void *zeroed(size_t bytes)
{
	void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
	assert_non_null(memory);
	return memset(memory, 0, (bytes + 63) / 64 * 64);
}

static void a_million_steps_as_the_model(void **state)
{
	(void)state;
	const struct tpt_config config = {MODEL_CAPACITY, ARENA_WORDS};
	struct tpt_bytes bytes = tpt_bytes(&config);
	void *slots = zeroed(bytes.slots), *arena = zeroed(bytes.arena),
	     *rest = zeroed(bytes.private_bytes);
	struct world *w = zeroed(sizeof *w);
	tpt_init(&w->tpt, &config, slots, arena, rest, seed);
	/* The model takes the index from the key, so names are not hidden here
	 * (tests/unit/memory/keys.c looks at that). */
	w->tpt.view.mul = w->tpt.hide = 1;
	w->tpt.view.tag_bits = 0;
	prng_seed(&w->prng, seed + 1);
	print_message("seed %llu\n", (unsigned long long)seed);
	for (uint32_t i = 0; i < STEPS; i++) {
		step(w);
		if (i % 100000 == 99999)
			remove_all(w);
	}
	/* A generator that never gets anywhere proves nothing. */
	static const enum hdl_detail must[] = {
	        HDL_DETAIL_NONE,    HDL_DETAIL_NOT_VALID, HDL_DETAIL_TYPE,   HDL_DETAIL_PD,
	        HDL_DETAIL_QP,      HDL_DETAIL_INSTANCE,  HDL_DETAIL_BOUNDS, HDL_DETAIL_ACCESS,
	        HDL_DETAIL_BIND,    HDL_DETAIL_GONE,      HDL_DETAIL_BUSY,   HDL_DETAIL_PAGES,
	        HDL_DETAIL_ALREADY, HDL_DETAIL_TOUCHED};
	for (size_t i = 0; i < sizeof must / sizeof must[0]; i++)
		assert_true(w->seen[must[i]] > STEPS / 1000);
	for (int i = 0; i <= TPT_DROP; i++)
		assert_true(w->acted[i] > STEPS / 10000);
	assert_true(w->said_yes > STEPS / 20 && w->short_ways > STEPS / 100 && w->full > 1000 &&
	            w->lined_up > 20 && w->gone > 1000);
	free(w);
	free(rest);
	free(arena);
	free(slots);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_million_steps_as_the_model)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
