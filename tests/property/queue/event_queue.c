/* The event queue against a slow model: random events with and without data, random turns of writer
 * and reader, copies of pointers that lag and arrive late. What is placed comes out once, whole and
 * in order; the writer says "full" exactly when the model does. AP7. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "queue/evring.h"

#define STEPS 200000u

struct placed {
	uint64_t id;
	uint32_t words; /* 0: none */
	uint64_t bytes;
	bool read, taken;
};

struct model {
	uint32_t events, words;
	struct placed *at; /* by number */
	uint64_t count, taken, told_taken;
	uint64_t words_used; /* as the writer knows */
	struct hdl_port_event *copies;
};

static uint64_t own_outstanding(const struct model *m, uint64_t from, uint16_t type)
{
	uint64_t count = 0;
	for (uint64_t i = from; i < m->count; i++)
		count += m->at[i].id >> 60 == type;
	return count < EVRING_OWN_ROOM ? count : EVRING_OWN_ROOM;
}

/* Must an event of @type find room? Ordinary events leave what the classes have not used. Events of
 * a class beyond its own room count as ordinary, but the model only checks cases that are clear. */
static int must_fit(const struct model *m, uint16_t type)
{
	uint64_t used = m->count - m->told_taken, room = m->events - used;
	uint64_t connects = own_outstanding(m, m->told_taken, HDL_PORT_CONNECT);
	uint64_t errors = own_outstanding(m, m->told_taken, HDL_PORT_ERROR);
	if (type == HDL_PORT_CONNECT && connects < EVRING_OWN_ROOM)
		return 1;
	if (type == HDL_PORT_ERROR && errors < EVRING_OWN_ROOM)
		return 1;
	uint64_t kept = 2 * EVRING_OWN_ROOM - connects - errors;
	if (room > 2 * EVRING_OWN_ROOM)
		return 1;
	return room <= kept ? 0 : -1;
}

static void fill(uint64_t id, unsigned char *data, uint64_t bytes)
{
	struct prng prng;
	prng_seed(&prng, id);
	prng_fill(&prng, data, bytes);
}

static void one_put(struct model *m, struct evring_writer *w, struct prng *prng)
{
	static const uint16_t types[] = {HDL_PORT_DATA, HDL_PORT_CONNECT, HDL_PORT_ERROR,
	                                 HDL_PORT_VAR};
	uint16_t type = types[prng_below(prng, 4)];
	unsigned char data[512];
	bool var = type == HDL_PORT_VAR;
	uint64_t bytes = prng_below(prng, sizeof(data));
	uint64_t id = (uint64_t)type << 60 | m->count;
	struct hdl_port_event event = {.type = type, .value = id};
	fill(id, data, bytes);
	uint64_t words = var ? 1 + (bytes + 7) / 8 : 0;
	enum evring_result result = evring_put(w, &event, var ? data : NULL, bytes);
	if (words > m->words) {
		assert_int_equal(result, EVRING_TOO_LONG);
		return;
	}
	int fits = words > m->words - m->words_used ? 0 : must_fit(m, type);
	if (fits >= 0)
		assert_int_equal(result != EVRING_FULL, fits);
	if (result == EVRING_FULL)
		return;
	m->at[m->count++] = (struct placed){.id = id, .words = (uint32_t)words, .bytes = bytes};
	m->words_used += words;
}

static void one_take(struct model *m, struct evring_reader *r, struct prng *prng)
{
	struct hdl_port_event out[8];
	int max = 1 + (int)prng_below(prng, 8), got = evring_take(r, out, max);
	uint64_t left = m->count - m->taken;
	assert_int_equal(got, left < (uint64_t)max ? left : (uint64_t)max);
	for (int i = 0; i < got; i++) {
		struct placed *p = &m->at[m->taken + (uint64_t)i];
		assert_int_equal(out[i].value, p->id);
		assert_int_equal(out[i].words, p->words);
		m->copies[m->taken + (uint64_t)i] = out[i];
	}
	m->taken += (uint64_t)got;
	m->told_taken = atomic_load(&r->block->events_writer.rdptr_copy);
	assert_true(m->told_taken <= m->taken && m->taken - m->told_taken <= m->events / 4);
}

/* Read the data of one of the events that were taken lately. */
static void one_read(struct model *m, struct evring_reader *r, struct prng *prng)
{
	unsigned char got[512], want[512];
	uint64_t bytes = 0;
	if (m->taken == 0)
		return;
	uint64_t back = prng_below(prng, m->taken < 4 ? m->taken : 4);
	uint64_t number = m->taken - 1 - back;
	struct placed *p = &m->at[number];
	enum evring_read result = evring_read(r, &m->copies[number], got, sizeof(got), &bytes);
	if (p->words == 0) {
		assert_int_equal(result, EVRING_NONE);
		return;
	}
	assert_int_equal(result, p->read ? EVRING_GONE : EVRING_READ);
	if (p->read)
		return;
	assert_int_equal(bytes, p->bytes);
	fill(p->id, want, p->bytes);
	assert_memory_equal(got, want, p->bytes);
	for (uint64_t i = number + 1; i-- > 0 && !(m->at[i].words > 0 && m->at[i].read);) {
		m->words_used -= m->at[i].words;
		m->at[i].read = m->at[i].words > 0;
	}
}

static void ap7_against_a_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct prng prng;
		struct evring_writer w;
		struct evring_reader r;
		uint32_t events = 32u << seed % 3, words = 16u << seed % 4;
		struct model m = {.events = events, .words = words};
		void *memory = aligned_alloc(64, evring_bytes(events, words));
		m.at = calloc(STEPS, sizeof(*m.at));
		m.copies = calloc(STEPS, sizeof(*m.copies));
		assert_non_null(memory);
		memset(memory, 0, evring_bytes(events, words));
		prng_seed(&prng, seed);
		evring_writer_init(&w, memory, events, words);
		evring_reader_init(&r, memory, events, words);
		uint64_t bias = 300;
		for (uint32_t step = 0; step < STEPS / 10; step++) {
			if (step % 500 == 0)
				bias = 100 + prng_below(&prng, 800);
			if (prng_below(&prng, 1000) < bias)
				one_put(&m, &w, &prng);
			else if (prng_chance(&prng, 500))
				one_take(&m, &r, &prng);
			else
				one_read(&m, &r, &prng);
		}
		assert_true(m.count > 1000);
		free(memory);
		free(m.at);
		free(m.copies);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(ap7_against_a_model)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
