/* Trace records: every field counts in the hash, every kind has a name, the line fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/crc.h"
#include "port/simtrace.h"

#include <string.h>

static void x4_hash_is_fnv_1a(void **state)
{
	(void)state;
	/* FNV-1a of eight zero bytes, then of the bytes of "foobar" with two zeros: computed byte
	 * by byte elsewhere. */
	assert_true(sim_fold(SIM_FOLD_START, 0) == 0xa8c7f832281a39c5u);
	assert_true(sim_fold(SIM_FOLD_START, 0x7261626f6f66u) == 0x74c8e7eb4f245c28u);
}

static void x4_every_field_changes_the_hash(void **state)
{
	const struct sim_trace same = {.kind = SIM_SENT};
	const struct sim_trace others[] = {
	        {.kind = SIM_SENT, .time_ns = 1}, {.kind = SIM_LOST},
	        {.kind = SIM_SENT, .from = 1},    {.kind = SIM_SENT, .to = 1},
	        {.kind = SIM_SENT, .number = 1},  {.kind = SIM_SENT, .value = 1},
	        {.kind = SIM_SENT, .bytes = 1},   {.kind = SIM_SENT, .digest = 1},
	};

	(void)state;
	uint64_t hash = sim_fold_trace(SIM_FOLD_START, &same);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		uint64_t other = sim_fold_trace(SIM_FOLD_START, &others[i]);
		assert_true(other != hash);
		for (size_t j = 0; j < i; j++)
			assert_true(other != sim_fold_trace(SIM_FOLD_START, &others[j]));
	}
}

static void put_crc(uint8_t *packet, size_t body_bytes, uint32_t crc)
{
	for (unsigned i = 0; i < 4; i++)
		packet[body_bytes + i] = (uint8_t)(crc >> 8 * i);
}

/* A packet that ends in its own CRC leaves the same remainder whatever it holds. */
static void x4_digest_tells_packets_with_their_own_crc_apart(void **state)
{
	uint8_t a[36] = {1}, b[36] = {2};

	(void)state;
	put_crc(a, 32, crc32_ieee(0, a, 32));
	put_crc(b, 32, crc32_ieee(0, b, 32));
	assert_int_equal(crc32_ieee(0, a, 36), crc32_ieee(0, b, 36));
	assert_true(sim_digest(a, 36) != sim_digest(b, 36));
	put_crc(a, 32, crc32c(0, a, 32));
	put_crc(b, 32, crc32c(0, b, 32));
	assert_int_equal(crc32c(0, a, 36), crc32c(0, b, 36));
	assert_true(sim_digest(a, 36) != sim_digest(b, 36));
}

static void every_kind_has_a_name(void **state)
{
	(void)state;
	for (int kind = 0; kind < SIM_KINDS; kind++) {
		assert_non_null(sim_kind_name((enum sim_kind)kind));
		for (int other = 0; other < kind; other++)
			assert_string_not_equal(sim_kind_name((enum sim_kind)kind),
			                        sim_kind_name((enum sim_kind)other));
	}
}

static void longest_line_fits(void **state)
{
	struct sim_trace record = {.time_ns = UINT64_MAX,
	                           .kind = SIM_RECEIVER_DEAD,
	                           .from = UINT32_MAX - 1,
	                           .to = UINT32_MAX - 1,
	                           .number = UINT64_MAX,
	                           .value = UINT64_MAX,
	                           .bytes = UINT32_MAX,
	                           .digest = 0x123456789abcdef0u};
	char line[SIM_TRACE_LINE_BYTES];

	(void)state;
	sim_trace_format(&record, line, sizeof(line));
	assert_non_null(strstr(line, "receiver-dead"));
	assert_string_equal(line + strlen(line) - 16, "123456789abcdef0");
	record.from = SIM_NO_HOST;
	record.to = 5;
	record.time_ns = 1000000002;
	assert_string_equal(sim_trace_format(&record, line, 28), "1.000000002 receiver-dead 5");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(x4_hash_is_fnv_1a),
	        cmocka_unit_test(x4_every_field_changes_the_hash),
	        cmocka_unit_test(x4_digest_tells_packets_with_their_own_crc_apart),
	        cmocka_unit_test(every_kind_has_a_name),
	        cmocka_unit_test(longest_line_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
