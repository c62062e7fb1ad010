/* Every bit of every message of communication management: it comes back as it went in, or it is
 * reserved and comes back as zero, and exactly so many are reserved as the tables of IBTA volume
 * 1, 12.6 say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/prng.h"
#include "wire/ib_cm.h"

#define ROUNDS 20000u

static const struct {
	enum ib_cm_kind kind;
	unsigned reserved_bits;
} rows[] = {
        {IB_CM_REQ, 87}, {IB_CM_MRA, 9},  {IB_CM_REJ, 7},       {IB_CM_REP, 28},
        {IB_CM_RTU, 0},  {IB_CM_DREQ, 8}, {IB_CM_DREP, 0},      {IB_CM_SIDR_REQ, 16},
        {IB_CM_LAP, 79}, {IB_CM_APR, 16}, {IB_CM_SIDR_REP, 24},
};
#define KINDS (sizeof(rows) / sizeof(rows[0]))

static void header_of(enum ib_cm_kind kind, uint8_t *mad)
{
	struct ib_cm_message message = {.kind = kind};
	ib_cm_encode(&message, mad);
}

static void each_bit_has_one_place(void **state)
{
	(void)state;
	for (size_t row = 0; row < KINDS; row++) {
		unsigned reserved = 0;
		for (unsigned bit = 0; bit < (MAD_BYTES - MAD_HEADER_BYTES) * 8; bit++) {
			struct ib_cm_message message;
			uint8_t mad[MAD_BYTES], none[MAD_BYTES], out[MAD_BYTES];
			header_of(rows[row].kind, none);
			memcpy(mad, none, sizeof(mad));
			mad[MAD_HEADER_BYTES + bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
			assert_int_equal(ib_cm_decode(&message, mad, sizeof(mad)), IB_CM_OK);
			ib_cm_encode(&message, out);
			if (memcmp(out, none, sizeof(out)) == 0)
				reserved++;
			else
				assert_memory_equal(out, mad, sizeof(out));
		}
		assert_int_equal(reserved, rows[row].reserved_bits);
	}
}

static void any_bytes_decode_to_what_encodes_to_them(void **state)
{
	struct prng prng;
	(void)state;
	prng_seed(&prng, 12);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct ib_cm_message message, again;
		uint8_t mad[MAD_BYTES], out[MAD_BYTES];
		header_of(rows[round % KINDS].kind, mad);
		prng_fill(&prng, mad + 8, 8);
		prng_fill(&prng, mad + MAD_HEADER_BYTES, MAD_BYTES - MAD_HEADER_BYTES);
		assert_int_equal(ib_cm_decode(&message, mad, sizeof(mad)), IB_CM_OK);
		ib_cm_encode(&message, out);
		assert_int_equal(ib_cm_decode(&again, out, sizeof(out)), IB_CM_OK);
		assert_memory_equal(&message, &again, sizeof(message));
		for (unsigned i = 0; i < MAD_BYTES; i++) /* nothing but reserved bits is lost */
			assert_int_equal(out[i] & ~mad[i], 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_bit_has_one_place),
	        cmocka_unit_test(any_bytes_decode_to_what_encodes_to_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
