/* A protection table in plain memory, and short ways to fill it. Addresses are made-up numbers: the
 * table never follows them. */
#ifndef TESTS_MEMORY_TABLE_H
#define TESTS_MEMORY_TABLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <heddle/error.h>

#include "memory/tpt.h"

#define PD       7u
#define OTHER_PD 8u
#define QPN      0x1234u
#define HOST     0x700000000000u
#define IOVA     0x10000u

#define RW_LOCAL  (HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE)
#define RW_REMOTE (HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE)

struct table {
	struct tpt tpt;
	void *slots, *arena, *private_memory;
};

static inline void *table_memory(size_t bytes)
{
	bytes = (bytes + 64) / 64 * 64;
	void *memory = aligned_alloc(64, bytes);
	assert_non_null(memory);
	memset(memory, 0, bytes);
	return memory;
}

static inline struct table *table_open(uint32_t capacity, uint64_t arena_words)
{
	const struct tpt_config config = {capacity, arena_words};
	struct tpt_bytes bytes = tpt_bytes(&config);
	struct table *table = table_memory(sizeof *table);
	table->slots = table_memory(bytes.slots);
	table->arena = table_memory(bytes.arena);
	table->private_memory = table_memory(bytes.private_bytes);
	tpt_init(&table->tpt, &config, table->slots, table->arena, table->private_memory, 1);
	return table;
}

static inline void table_close(struct table *table)
{
	free(table->private_memory);
	free(table->arena);
	free(table->slots);
	free(table);
}

static inline struct hdl_key make_run(struct tpt *tpt, uint32_t access, uint64_t length)
{
	const struct tpt_region region = {
	        .pd = PD, .access = access, .iova = IOVA, .host = HOST, .length = length};
	struct hdl_key key;
	assert_int_equal(tpt_insert_run(tpt, &region, &key), 0);
	return key;
}

static inline struct hdl_key make_window(struct tpt *tpt)
{
	struct hdl_key key;
	assert_int_equal(tpt_insert_empty(tpt, PD, TPT_WINDOW, 0, &key), 0);
	return key;
}

/* A window bound to the whole of @region for one queue pair. */
static inline struct hdl_key make_bound(struct tpt *tpt, struct hdl_key region, uint32_t access,
                                        uint64_t length)
{
	struct tpt_bind bind = {.key = make_window(tpt),
	                        .region = region,
	                        .pd = PD,
	                        .qpn = QPN,
	                        .access = access,
	                        .addr = IOVA,
	                        .length = length};
	assert_int_equal(tpt_bind(tpt, &bind), HDL_DETAIL_NONE);
	return bind.key;
}

static inline struct hdl_key key_other_instance(struct hdl_key key)
{
	key.v ^= 1;
	return key;
}

static inline void remove_entry(struct tpt *tpt, struct hdl_key key)
{
	assert_int_equal(tpt_retire(tpt, key), HDL_DETAIL_NONE);
	tpt_free(tpt, key);
}

static inline enum hdl_detail check(struct tpt *tpt, const struct tpt_request *req)
{
	struct tpt_grant grant;
	return tpt_check(&tpt->view, req, &grant);
}

#endif
