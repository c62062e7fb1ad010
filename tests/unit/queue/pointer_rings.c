/* The pointer ring of APERTURE figure 8, event queues (figure 13) and circular queues on it. AP7,
 * AP8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "queue/cring.h"
#include "queue/evring.h"

/* Rows: what is known, how far ahead it can be, what is told, the verdict, what is known then. */
static void figure_8_pointers_are_judged(void **state)
{
	(void)state;
	static const struct {
		uint64_t known, most, told;
		enum pring_verdict verdict;
		uint64_t then;
	} rows[] = {
	        {0, 0, 0, PRING_SAME, 0},
	        {0, 8, 8, PRING_NEW, 8},
	        {0, 8, 9, PRING_WILD, 0},
	        {5, 8, 13, PRING_NEW, 13},
	        {5, 8, 14, PRING_WILD, 5},
	        {5, 8, 4, PRING_STALE, 5},
	        {5, 8, 0, PRING_STALE, 5},
	        {5, 0, 6, PRING_WILD, 5},
	        {5, 8, UINT64_MAX, PRING_WILD, 5},
	        {5, 8, 5ull << 32, PRING_WILD, 5},
	        {UINT64_MAX, 0, 0, PRING_STALE, UINT64_MAX},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t known = rows[i].known;
		assert_int_equal(pring_judge(&known, rows[i].most, rows[i].told), rows[i].verdict);
		assert_int_equal(known, rows[i].then);
	}
}

#define EVENTS 32u
#define WORDS  16u

struct queue {
	_Alignas(64) unsigned char memory[sizeof(struct evring_block) + EVENTS * 64 + WORDS * 8];
	struct evring_writer w;
	struct evring_reader r;
};

static void make(struct queue *q)
{
	memset(q, 0, sizeof(*q));
	assert_int_equal(evring_bytes(EVENTS, WORDS), sizeof(q->memory));
	evring_writer_init(&q->w, q->memory, EVENTS, WORDS);
	evring_reader_init(&q->r, q->memory, EVENTS, WORDS);
}

static enum evring_result put(struct queue *q, uint16_t type, uint64_t value)
{
	struct hdl_port_event event = {.type = type, .value = value};
	return evring_put(&q->w, &event, NULL, 0);
}

static enum evring_result put_var(struct queue *q, const void *data, uint64_t bytes)
{
	struct hdl_port_event event = {.type = HDL_PORT_VAR};
	return evring_put(&q->w, &event, data, bytes);
}

static void events_come_out_in_order_and_the_pointers_are_mirrored(void **state)
{
	(void)state;
	static struct queue q;
	struct hdl_port_event out[4];
	make(&q);
	for (uint64_t i = 0; i < 1000; i++) {
		assert_int_equal(put(&q, HDL_PORT_DATA, i), EVRING_PLACED);
		assert_int_equal(atomic_load(&q.w.block->events_reader.wrptr_copy), i + 1);
		assert_int_equal(atomic_load(&q.w.block->events_writer.wrptr), i + 1);
		assert_int_equal(evring_take(&q.r, out, 4), 1);
		assert_int_equal(out[0].value, i);
		assert_int_equal(atomic_load(&q.w.block->events_reader.rdptr), i + 1);
		assert_int_equal(atomic_load(&q.w.block->events_writer.rdptr_copy), i + 1);
	}
	assert_int_equal(evring_take(&q.r, out, 4), 0);
}

/* Figure 13: "Var 10" is 10 words, of which the first is the size. */
static void figure_13_var_10(void **state)
{
	(void)state;
	static struct queue q;
	struct hdl_port_event out[4];
	char data[72], got[72];
	uint64_t bytes;
	make(&q);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7);
	put(&q, HDL_PORT_ERROR, 1);
	assert_int_equal(put_var(&q, data, 70), EVRING_PLACED);
	put(&q, HDL_PORT_DATA, 2);
	assert_int_equal(atomic_load(&q.w.block->words_reader.wrptr_copy), 10);
	assert_int_equal(evring_take(&q.r, out, 4), 3);
	assert_int_equal(out[1].type, HDL_PORT_VAR);
	assert_int_equal(out[1].words, 10);
	assert_int_equal(evring_read(&q.r, &out[0], got, sizeof(got), &bytes), EVRING_NONE);
	assert_int_equal(evring_read(&q.r, &out[1], got, 69, &bytes), EVRING_SHORT);
	assert_int_equal(bytes, 70);
	/* The pointers move separately: all events are taken, no words are. */
	assert_int_equal(atomic_load(&q.w.block->events_writer.rdptr_copy), 3);
	assert_int_equal(atomic_load(&q.w.block->words_writer.rdptr_copy), 0);
	assert_int_equal(evring_read(&q.r, &out[1], got, sizeof(got), &bytes), EVRING_READ);
	assert_int_equal(bytes, 70);
	assert_memory_equal(got, data, 70);
	assert_int_equal(atomic_load(&q.w.block->words_writer.rdptr_copy), 10);
	assert_int_equal(evring_read(&q.r, &out[1], got, sizeof(got), &bytes), EVRING_GONE);
}

static void data_that_was_not_read_goes_with_later_data(void **state)
{
	(void)state;
	static struct queue q;
	struct hdl_port_event out[4];
	uint64_t bytes, value = 0;
	make(&q);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(put_var(&q, &i, sizeof(i)), EVRING_PLACED);
	assert_int_equal(evring_take(&q.r, out, 4), 3);
	assert_int_equal(evring_read(&q.r, &out[1], &value, 8, &bytes), EVRING_READ);
	assert_int_equal(value, 1);
	assert_int_equal(evring_read(&q.r, &out[0], &value, 8, &bytes), EVRING_GONE);
	assert_int_equal(evring_read(&q.r, &out[2], &value, 8, &bytes), EVRING_READ);
	assert_int_equal(value, 2);
	/* Empty data has a size, too. */
	assert_int_equal(put_var(&q, "", 0), EVRING_PLACED);
	assert_int_equal(evring_take(&q.r, out, 4), 1);
	assert_int_equal(out[0].words, 1);
	assert_int_equal(evring_read(&q.r, &out[0], NULL, 0, &bytes), EVRING_READ);
	assert_int_equal(bytes, 0);
}

static void a_full_queue_keeps_back_and_overwrites_nothing(void **state)
{
	(void)state;
	static struct queue q;
	struct hdl_port_event out[EVENTS];
	char large[WORDS * 8] = {0};
	make(&q);
	uint64_t ordinary = EVENTS - 2 * EVRING_OWN_ROOM;
	for (uint64_t i = 0; i < ordinary; i++)
		assert_int_equal(put(&q, HDL_PORT_DATA, i), EVRING_PLACED);
	assert_int_equal(put(&q, HDL_PORT_DATA, 99), EVRING_FULL);
	/* CONNECT and ERROR have room of their own, each its own. */
	for (uint64_t i = 0; i < EVRING_OWN_ROOM; i++)
		assert_int_equal(put(&q, HDL_PORT_ERROR, 100 + i), EVRING_PLACED);
	assert_int_equal(put(&q, HDL_PORT_ERROR, 99), EVRING_FULL);
	for (uint64_t i = 0; i < EVRING_OWN_ROOM; i++)
		assert_int_equal(put(&q, HDL_PORT_CONNECT, 200 + i), EVRING_PLACED);
	assert_int_equal(put(&q, HDL_PORT_CONNECT, 99), EVRING_FULL);
	assert_int_equal(evring_take(&q.r, out, EVENTS), EVENTS);
	for (uint64_t i = 0; i < EVENTS; i++)
		assert_int_equal(out[i].value, i < ordinary       ? i
		                               : i < ordinary + 8 ? 100 + i - ordinary
		                                                  : 200 + i - ordinary - 8);
	/* Words: one too many for the room there is, and one that never fits. */
	assert_int_equal(put_var(&q, large, 8 * 8), EVRING_PLACED);
	assert_int_equal(put_var(&q, large, 7 * 8), EVRING_FULL);
	assert_int_equal(put_var(&q, large, 6 * 8), EVRING_PLACED);
	assert_int_equal(put_var(&q, large, WORDS * 8 - 7), EVRING_TOO_LONG);
	assert_int_equal(put_var(&q, large, UINT64_MAX), EVRING_TOO_LONG);
}

/* Events that have room of their own come first: those after them find as much as if they had come
 * last, and a place of their own is free again when its event has been read, not before. */
static void room_of_its_own_does_not_depend_on_the_order(void **state)
{
	(void)state;
	static struct queue q;
	struct hdl_port_event out[EVENTS];
	make(&q);
	for (uint64_t i = 0; i < EVRING_OWN_ROOM; i++)
		assert_int_equal(put(&q, HDL_PORT_CONNECT, i), EVRING_PLACED);
	for (uint64_t i = 0; i < EVRING_OWN_ROOM; i++)
		assert_int_equal(put(&q, HDL_PORT_ERROR, i), EVRING_PLACED);
	for (uint64_t i = 0; i < EVENTS - 2 * EVRING_OWN_ROOM; i++)
		assert_int_equal(put(&q, HDL_PORT_DATA, i), EVRING_PLACED);
	assert_int_equal(put(&q, HDL_PORT_DATA, 99), EVRING_FULL);
	assert_int_equal(put(&q, HDL_PORT_CONNECT, 99), EVRING_FULL);
	assert_int_equal(evring_take(&q.r, out, EVENTS / 4), EVENTS / 4); /* every CONNECT */
	assert_int_equal(put(&q, HDL_PORT_DATA, 99), EVRING_FULL);
	assert_int_equal(put(&q, HDL_PORT_ERROR, 99), EVRING_FULL);
	for (uint64_t i = 0; i < EVRING_OWN_ROOM; i++)
		assert_int_equal(put(&q, HDL_PORT_CONNECT, i), EVRING_PLACED);
	assert_int_equal(put(&q, HDL_PORT_CONNECT, 99), EVRING_FULL);
}

static void what_was_lost_is_counted_and_told(void **state)
{
	(void)state;
	static struct queue q;
	struct hdl_port_event out[EVENTS];
	make(&q);
	while (put(&q, HDL_PORT_DATA, 1) == EVRING_PLACED)
		;
	for (int i = 0; i < 5; i++)
		evring_lose(&q.w);
	assert_int_equal(evring_tell_lost(&q.w), EVRING_FULL);
	assert_true(evring_take(&q.r, out, EVENTS) > 0);
	assert_int_equal(put(&q, HDL_PORT_DATA, 2), EVRING_PLACED);
	assert_int_equal(evring_take(&q.r, out, EVENTS), 2);
	assert_int_equal(out[0].type, HDL_PORT_LOST);
	assert_int_equal(out[0].value, 5);
	assert_int_equal(out[1].value, 2);
}

static void step_7_an_interrupt_per_arming(void **state)
{
	(void)state;
	static struct queue q;
	struct hdl_port_event out[4];
	make(&q);
	assert_true(evring_arm(&q.r));
	assert_int_equal(atomic_load(&q.w.block->events_reader.irq), 1);
	assert_int_equal(atomic_load(&q.w.block->events_writer.irq_copy), 1);
	assert_int_equal(put(&q, HDL_PORT_DATA, 1), EVRING_INTERRUPT);
	assert_int_equal(put(&q, HDL_PORT_DATA, 2), EVRING_PLACED);
	assert_false(evring_arm(&q.r)); /* there are events */
	assert_int_equal(atomic_load(&q.w.block->events_writer.irq_copy), 0);
	assert_int_equal(evring_take(&q.r, out, 4), 2);
	assert_true(evring_arm(&q.r));
	evring_disarm(&q.r);
	assert_int_equal(put(&q, HDL_PORT_DATA, 3), EVRING_PLACED);
}

/* The pointers of a hostile reader: the writer neither overwrites nor stops others. */
static void hostile_pointers_of_a_reader_are_counted(void **state)
{
	(void)state;
	static struct queue q;
	static const uint64_t wild[] = {1ull << 63, UINT64_MAX, 1000, EVENTS};
	make(&q);
	for (int i = 0; i < 5; i++)
		put(&q, HDL_PORT_DATA, (uint64_t)i);
	for (size_t i = 0; i < 4; i++) {
		atomic_store(&q.w.block->events_writer.rdptr_copy, wild[i]);
		assert_int_equal(pring_look_room(&q.w.events), EVENTS - 5);
		assert_int_equal(q.w.events.wild, i + 1);
	}
	atomic_store(&q.w.block->events_writer.rdptr_copy, 3);
	assert_int_equal(pring_look_room(&q.w.events), EVENTS - 2);
	atomic_store(&q.w.block->events_writer.rdptr_copy, 2); /* late, not hostile */
	assert_int_equal(pring_look_room(&q.w.events), EVENTS - 2);
	assert_int_equal(q.w.events.wild, 4);
}

static void hostile_numbers_of_a_writer_are_refused(void **state)
{
	(void)state;
	static struct queue q;
	struct hdl_port_event out[4];
	char got[WORDS * 8];
	uint64_t bytes, size = 1000;
	make(&q);
	put_var(&q, "abc", 3);
	atomic_store(&q.w.block->events_reader.wrptr_copy, EVENTS + 1);
	assert_int_equal(evring_take(&q.r, out, 4), 0);
	assert_int_equal(q.r.events.wild, 1);
	atomic_store(&q.w.block->events_reader.wrptr_copy, 1);
	assert_int_equal(evring_take(&q.r, out, 4), 1);
	struct hdl_port_event more = out[0], far = out[0];
	more.words = WORDS;
	far.var_at = 5;
	assert_int_equal(evring_read(&q.r, &more, got, sizeof(got), &bytes), EVRING_BROKEN);
	assert_int_equal(evring_read(&q.r, &far, got, sizeof(got), &bytes), EVRING_BROKEN);
	memcpy(q.w.block->memory + EVENTS * 64, &size, sizeof(size)); /* the size word */
	assert_int_equal(evring_read(&q.r, &out[0], got, sizeof(got), &bytes), EVRING_BROKEN);
	assert_int_equal(q.r.broken, 3);
	/* The queue goes on, and the words are free again: this takes all that there are. */
	static const char all[(WORDS - 1) * 8] = "def";
	assert_int_equal(put_var(&q, all, sizeof(all)), EVRING_PLACED);
	assert_int_equal(evring_take(&q.r, out, 4), 1);
	assert_int_equal(evring_read(&q.r, &out[0], got, sizeof(got), &bytes), EVRING_READ);
	assert_memory_equal(got, all, sizeof(all));
}

/* --- circular queues --- */

#define RING 1024u

struct pair {
	struct cring_block *block[2];
	struct cring ring[2];
};

/* Stores that a carrier holds: it takes @budget of them. */
struct carrier {
	unsigned char *to;
	unsigned budget, taken;
};

static bool carry(void *context, uint64_t offset, const void *data, uint64_t bytes)
{
	struct carrier *c = context;
	if (c->budget == 0)
		return false;
	c->budget--;
	c->taken++;
	assert_true(offset <= CRING_DATA + RING && bytes <= CRING_DATA + RING - offset);
	memcpy(c->to + offset, data, bytes);
	return true;
}

static struct carrier carriers[2];

static void pair_make(struct pair *p, bool mapped)
{
	for (int i = 0; i < 2; i++) {
		p->block[i] = aligned_alloc(64, cring_block_bytes(RING));
		assert_non_null(p->block[i]);
		memset(p->block[i], 0, cring_block_bytes(RING));
	}
	for (int i = 0; i < 2; i++) {
		struct cring_stores stores = {carry, &carriers[i]};
		carriers[i] =
		        (struct carrier){.to = (unsigned char *)p->block[!i], .budget = UINT32_MAX};
		cring_init(&p->ring[i], p->block[i], RING, RING, mapped ? p->block[!i] : NULL,
		           mapped ? NULL : &stores);
	}
}

static void pair_end(struct pair *p)
{
	free(p->block[0]);
	free(p->block[1]);
}

static void ap8_bytes_go_both_ways_around_the_end(void **state)
{
	(void)state;
	for (int mapped = 0; mapped < 2; mapped++) {
		struct pair p;
		pair_make(&p, mapped != 0);
		for (uint32_t i = 0; i < 5000; i++) {
			unsigned char out[300], in[300];
			uint64_t bytes = 1 + i % 300;
			struct cring *from = &p.ring[i % 2], *to = &p.ring[1 - i % 2];
			memset(out, (int)i, bytes);
			assert_int_equal(cring_write(from, out, bytes), bytes);
			assert_int_equal(cring_read(to, in, sizeof(in)), 0); /* not published */
			cring_publish(from);
			assert_int_equal(cring_read(to, in, sizeof(in)), bytes);
			cring_release(to, false);
			assert_memory_equal(in, out, bytes);
		}
		pair_end(&p);
	}
}

static void ap8_nothing_is_overrun_and_pointers_lag(void **state)
{
	(void)state;
	for (int mapped = 0; mapped < 2; mapped++) {
		struct pair p;
		unsigned char block[RING], got[RING];
		pair_make(&p, mapped != 0);
		memset(block, 'a', sizeof(block));
		assert_int_equal(cring_write(&p.ring[0], block, RING), RING);
		cring_publish(&p.ring[0]);
		memset(block, 'b', sizeof(block));
		assert_int_equal(cring_write(&p.ring[0], block, 1), 0);
		assert_int_equal(cring_read(&p.ring[1], got, 100), 100);
		cring_release(&p.ring[1], false); /* too little to tell */
		assert_int_equal(cring_write(&p.ring[0], block, 1), 0);
		assert_int_equal(cring_read(&p.ring[1], got, RING / 4 - 100), RING / 4 - 100);
		cring_release(&p.ring[1], false);
		assert_int_equal(cring_write(&p.ring[0], block, RING), RING / 4);
		cring_publish(&p.ring[0]);
		assert_int_equal(cring_read(&p.ring[1], got, RING), RING);
		for (uint32_t i = 0; i < RING; i++)
			assert_int_equal(got[i], i < RING * 3 / 4 ? 'a' : 'b');
		pair_end(&p);
	}
}

static void ap8_a_carrier_that_stalls_loses_nothing(void **state)
{
	(void)state;
	struct pair p;
	unsigned char data[8] = "stalled", got[8];
	pair_make(&p, false);
	carriers[0].budget = 0;
	assert_int_equal(cring_write(&p.ring[0], data, 8), 0);
	carriers[0].budget = 1; /* the data, but not the pointer */
	assert_int_equal(cring_write(&p.ring[0], data, 8), 8);
	cring_publish(&p.ring[0]);
	assert_int_equal(cring_read(&p.ring[1], got, 8), 0);
	carriers[0].budget = 1;
	cring_publish(&p.ring[0]);
	assert_int_equal(cring_read(&p.ring[1], got, 8), 8);
	assert_memory_equal(got, data, 8);
	carriers[1].budget = 0;
	cring_release(&p.ring[1], true);
	assert_int_equal(cring_writable(&p.ring[0]), RING - 8);
	carriers[1].budget = 1;
	cring_release(&p.ring[1], true);
	assert_int_equal(cring_writable(&p.ring[0]), RING);
	pair_end(&p);
}

/* A writer without a view of the reader's block asks once; a store answers it, as soon as the
 * carrier takes one, and later reading is told in large steps again. */
static void ap8_a_question_for_room_has_one_answer(void **state)
{
	(void)state;
	struct pair p;
	unsigned char block[RING] = {0};
	pair_make(&p, false);
	const struct cring_stores stores = p.ring[1].stores;
	assert_int_equal(cring_write(&p.ring[0], block, RING), RING);
	cring_publish(&p.ring[0]);
	assert_int_equal(cring_look_room(&p.ring[0]), 0); /* asks */
	assert_int_equal(cring_read(&p.ring[1], block, 1), 1);
	carriers[1].budget = 0;
	cring_release(&p.ring[1], false);
	assert_int_equal(cring_look_room(&p.ring[0]), 0);
	carriers[1].budget = UINT32_MAX;
	assert_true(cring_answer(&p.ring[1], &stores));
	assert_int_equal(carriers[1].taken, 1);
	assert_int_equal(cring_look_room(&p.ring[0]), 1);
	assert_int_equal(cring_read(&p.ring[1], block, 1), 1);
	cring_release(&p.ring[1], false);
	assert_true(cring_answer(&p.ring[1], &stores));
	assert_int_equal(carriers[1].taken, 1);
	pair_end(&p);
}

static void ap8_arming_for_data_and_for_room(void **state)
{
	(void)state;
	struct pair p;
	unsigned char block[RING] = {0};
	pair_make(&p, true);
	assert_true(cring_arm_data(&p.ring[1]));
	cring_write(&p.ring[0], block, 1);
	assert_true(cring_publish(&p.ring[0]));
	cring_write(&p.ring[0], block, 1);
	assert_false(cring_publish(&p.ring[0]));
	assert_false(cring_arm_data(&p.ring[1]));
	assert_false(cring_arm_room(&p.ring[0]));
	cring_disarm(&p.ring[1]);
	cring_disarm(&p.ring[0]);
	cring_write(&p.ring[0], block, RING);
	assert_false(cring_publish(&p.ring[0]));
	assert_true(cring_arm_room(&p.ring[0]));
	cring_read(&p.ring[1], block, 1);
	assert_true(cring_release(&p.ring[1], true));
	assert_false(cring_arm_room(&p.ring[0]));
	pair_end(&p);
}

static void ap8_the_end_follows_the_last_byte(void **state)
{
	(void)state;
	for (int mapped = 0; mapped < 2; mapped++) {
		struct pair p;
		char got[8];
		bool wakes;
		pair_make(&p, mapped != 0);
		assert_false(pring_has_ended(&p.ring[1].in));
		assert_true(cring_arm_data(&p.ring[1]));
		assert_int_equal(cring_write(&p.ring[0], "last", 4), 4);
		assert_true(cring_finish(&p.ring[0], &wakes));
		assert_int_equal(wakes, mapped);
		assert_false(pring_has_ended(&p.ring[1].in)); /* there is something before it */
		assert_int_equal(cring_read(&p.ring[1], got, 8), 4);
		assert_true(pring_has_ended(&p.ring[1].in));
		assert_false(cring_arm_data(&p.ring[1]));
		pair_end(&p);
	}
}

/* Two threads, a queue that is always full or empty: the arming protocol loses no wake-up. */
#define STREAM (4u << 20)

static _Atomic uint32_t wakes[2];

static void nap(int who)
{
	uint32_t spins = 0;
	while (atomic_load(&wakes[who]) == 0)
		if (++spins > 2000000000u)
			abort(); /* a wake-up was lost */
	atomic_store(&wakes[who], 0);
}

static void *stream_writer(void *context)
{
	struct pair *p = context;
	uint32_t sent = 0;
	while (sent < STREAM) {
		unsigned char data[97];
		uint64_t want = STREAM - sent < sizeof(data) ? STREAM - sent : sizeof(data);
		for (uint32_t i = 0; i < want; i++)
			data[i] = (unsigned char)((sent + i) * 31 >> 3);
		uint64_t wrote = cring_write(&p->ring[0], data, want);
		if (cring_publish(&p->ring[0]))
			atomic_store(&wakes[1], 1);
		if (wrote == 0 && cring_arm_room(&p->ring[0]))
			nap(0);
		cring_disarm(&p->ring[0]);
		atomic_store(&wakes[0], 0);
		sent += (uint32_t)wrote;
	}
	return NULL;
}

static void ap8_no_wake_up_is_lost(void **state)
{
	(void)state;
	struct pair p;
	pthread_t thread;
	uint32_t got = 0;
	pair_make(&p, true);
	assert_int_equal(pthread_create(&thread, NULL, stream_writer, &p), 0);
	while (got < STREAM) {
		unsigned char data[61];
		uint64_t bytes = cring_read(&p.ring[1], data, sizeof(data));
		for (uint32_t i = 0; i < bytes; i++)
			if (data[i] != (unsigned char)((got + i) * 31 >> 3))
				fail();
		got += (uint32_t)bytes;
		if (cring_release(&p.ring[1], bytes == 0))
			atomic_store(&wakes[0], 1);
		if (bytes == 0 && cring_arm_data(&p.ring[1]))
			nap(1);
		cring_disarm(&p.ring[1]);
		atomic_store(&wakes[1], 0);
	}
	pthread_join(thread, NULL);
	pair_end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(figure_8_pointers_are_judged),
	        cmocka_unit_test(events_come_out_in_order_and_the_pointers_are_mirrored),
	        cmocka_unit_test(figure_13_var_10),
	        cmocka_unit_test(data_that_was_not_read_goes_with_later_data),
	        cmocka_unit_test(a_full_queue_keeps_back_and_overwrites_nothing),
	        cmocka_unit_test(room_of_its_own_does_not_depend_on_the_order),
	        cmocka_unit_test(what_was_lost_is_counted_and_told),
	        cmocka_unit_test(step_7_an_interrupt_per_arming),
	        cmocka_unit_test(hostile_pointers_of_a_reader_are_counted),
	        cmocka_unit_test(hostile_numbers_of_a_writer_are_refused),
	        cmocka_unit_test(ap8_bytes_go_both_ways_around_the_end),
	        cmocka_unit_test(ap8_nothing_is_overrun_and_pointers_lag),
	        cmocka_unit_test(ap8_a_carrier_that_stalls_loses_nothing),
	        cmocka_unit_test(ap8_a_question_for_room_has_one_answer),
	        cmocka_unit_test(ap8_arming_for_data_and_for_room),
	        cmocka_unit_test(ap8_the_end_follows_the_last_byte),
	        cmocka_unit_test(ap8_no_wake_up_is_lost),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
