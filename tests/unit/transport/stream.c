/* The contract of byte streams (transport/stream.h), with a small protocol on both ends: records of
 * a 2-byte length and so many bytes, each placed where the receiver says before it arrives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cable/stream.h"

#define RECORDS   64u
#define MAX_BYTES 3000u

/* One end: sends the records of @out, receives into @in. */
struct end {
	struct {
		uint8_t header[2];
		uint8_t bytes[MAX_BYTES];
		size_t length;
	} out[RECORDS], in[RECORDS];
	size_t send, sent;       /* records given to offer(), and how far the first is taken */
	size_t received, filled; /* records complete, and bytes of the next one, header included */
	size_t hold;             /* want() says no while this many records are complete */
	enum stream_end why;
	unsigned wrong_takes;
	size_t offered;
};

static size_t offer(void *context, struct stream_run *runs, size_t max)
{
	struct end *end = context;
	size_t count = 0, skip = end->sent;
	end->offered = 0;
	for (size_t i = end->send; i < RECORDS && count + 2 <= max; i++, skip = 0) {
		size_t length = end->out[i].length;
		if (skip < 2)
			runs[count++] = (struct stream_run){end->out[i].header + skip, 2 - skip};
		size_t from = skip < 2 ? 0 : skip - 2;
		if (from < length)
			runs[count++] =
			        (struct stream_run){end->out[i].bytes + from, length - from};
		end->offered += length + 2 - skip;
	}
	return count;
}

static void taken(void *context, size_t bytes)
{
	struct end *end = context;
	end->wrong_takes += bytes > end->offered;
	for (end->sent += bytes; end->send < RECORDS && end->sent >= end->out[end->send].length + 2;
	     end->send++)
		end->sent -= end->out[end->send].length + 2;
}

static size_t want(void *context, struct stream_run *runs, size_t max)
{
	struct end *end = context;
	assert_true(max >= 1);
	if (end->received == RECORDS || end->received == end->hold)
		return 0;
	typeof(&end->in[0]) record = &end->in[end->received];
	if (end->filled < 2)
		runs[0] = (struct stream_run){record->header + end->filled, 2 - end->filled};
	else
		runs[0] = (struct stream_run){record->bytes + end->filled - 2,
		                              record->length + 2 - end->filled};
	return 1;
}

static bool arrived(void *context, size_t bytes)
{
	struct end *end = context;
	typeof(&end->in[0]) record = &end->in[end->received];
	end->filled += bytes;
	if (end->filled == 2) {
		record->length = (size_t)record->header[0] << 8 | record->header[1];
		if (record->length > MAX_BYTES)
			return false;
	}
	if (end->filled >= 2 && end->filled == record->length + 2) {
		end->received++;
		end->filled = 0;
	}
	return true;
}

static void ended(void *context, enum stream_end why)
{
	((struct end *)context)->why = why;
}

static const struct stream_ops ops = {offer, taken, want, arrived, ended};

static struct end *new_end(struct prng *prng)
{
	struct end *end = calloc(1, sizeof(*end));
	assert_non_null(end);
	end->hold = SIZE_MAX;
	for (unsigned i = 0; i < RECORDS; i++) {
		end->out[i].length = i == 0 ? 0 : (size_t)prng_below(prng, MAX_BYTES + 1);
		end->out[i].header[0] = (uint8_t)(end->out[i].length >> 8);
		end->out[i].header[1] = (uint8_t)end->out[i].length;
		for (size_t k = 0; k < end->out[i].length; k++)
			end->out[i].bytes[k] = (uint8_t)prng_next(prng);
	}
	return end;
}

static void expect_same(const struct end *from, const struct end *to, size_t count)
{
	assert_true(to->received >= count);
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(to->in[i].length, from->out[i].length);
		assert_memory_equal(to->in[i].bytes, from->out[i].bytes, from->out[i].length);
	}
}

/* Bytes in any pieces give the same result. */
static void test_any_pieces(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct prng prng;
		prng_seed(&prng, seed);
		struct end *a = new_end(&prng), *b = new_end(&prng);
		struct stream_cable cable;
		stream_cable_init(&cable, &prng, &ops, a, &ops, b);
		stream_cable_run(&cable, 64);
		expect_same(a, b, RECORDS);
		expect_same(b, a, RECORDS);
		assert_int_equal(a->wrong_takes + b->wrong_takes, 0);
		free(a);
		free(b);
	}
}

/* Who wants nothing holds the peer back, and nothing is lost when it goes on. */
static void test_held_back(void **state)
{
	(void)state;
	struct prng prng;
	prng_seed(&prng, 7);
	struct end *a = new_end(&prng), *b = new_end(&prng);
	struct stream_cable cable;
	b->hold = 3;
	stream_cable_init(&cable, &prng, &ops, a, &ops, b);
	stream_cable_run(&cable, 64);
	assert_int_equal(b->received, 3);
	assert_true(a->send < RECORDS);
	b->hold = SIZE_MAX;
	stream_cable_run(&cable, 64);
	expect_same(a, b, RECORDS);
	free(a);
	free(b);
}

/* What makes no sense closes the stream: nothing more is read. */
static void test_refused(void **state)
{
	(void)state;
	struct prng prng;
	prng_seed(&prng, 8);
	struct end *a = new_end(&prng), *b = new_end(&prng);
	struct stream_cable cable;
	a->out[5].header[0] = 0xff;
	stream_cable_init(&cable, &prng, &ops, a, &ops, b);
	stream_cable_run(&cable, 64);
	assert_int_equal(b->received, 5);
	assert_false(cable.ends[1].open);
	expect_same(a, b, 5);
	expect_same(b, a, RECORDS);
	free(a);
	free(b);
}

/* A line that is cut at any byte tells both ends, and what came before stands. */
static void test_cut(void **state)
{
	(void)state;
	for (uint64_t at = 0; at < 200; at++) {
		struct prng prng;
		prng_seed(&prng, 9 + at);
		struct end *a = new_end(&prng), *b = new_end(&prng);
		struct stream_cable cable;
		stream_cable_init(&cable, &prng, &ops, a, &ops, b);
		cable.lines[0].cut_at = at * 37;
		stream_cable_run(&cable, 64);
		assert_int_equal(a->why, STREAM_BROKEN);
		assert_int_equal(b->why, STREAM_BROKEN);
		assert_int_equal(cable.lines[0].passed, at * 37);
		expect_same(a, b, b->received);
		free(a);
		free(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_any_pieces),
	        cmocka_unit_test(test_held_back),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
