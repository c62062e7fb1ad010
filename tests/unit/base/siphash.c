/* SipHash-2-4 against the values of its authors' paper and reference implementation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/siphash.h"

/* Key 00 01 .. 0f, input 00 01 .. of each length. */
static void reference_values(void **state)
{
	static const struct {
		size_t bytes;
		uint64_t digest;
	} cases[] = {
	        {0, 0x726fdb47dd0e0e31ull}, {1, 0x74f839c593dc67fdull},  {7, 0xab0200f58b01d137ull},
	        {8, 0x93f5f5799a932462ull}, {15, 0xa129ca6149be45e5ull},
	};
	const uint64_t key[2] = {0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull};
	unsigned char input[16];
	(void)state;
	for (unsigned i = 0; i < sizeof(input); i++)
		input[i] = (unsigned char)i;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(siphash(key, input, cases[i].bytes), cases[i].digest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(reference_values)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
