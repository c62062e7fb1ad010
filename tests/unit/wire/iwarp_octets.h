/* What the iWARP tests share: octets written as hexadecimal text, and cmocka. */
#ifndef TEST_IWARP_OCTETS_H
#define TEST_IWARP_OCTETS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* @hex (spaces allowed) as octets in @out, which is large enough. Returns how many. */
static inline size_t octets(const char *hex, uint8_t *out)
{
	size_t digits = 0;
	for (; *hex != '\0'; hex++) {
		if (*hex == ' ')
			continue;
		uint8_t v = (uint8_t)(*hex <= '9' ? *hex - '0' : *hex - 'a' + 10);
		if (digits % 2 == 0)
			out[digits / 2] = (uint8_t)(v << 4);
		else
			out[digits / 2] = (uint8_t)(out[digits / 2] | v);
		digits++;
	}
	return digits / 2;
}

/* A copy that ends where it must not be read beyond, so that the address sanitizer sees one octet
 * too many. */
static inline uint8_t *exact_copy(const uint8_t *data, size_t bytes)
{
	uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
	assert_non_null(copy);
	if (bytes > 0)
		memcpy(copy, data, bytes);
	return copy;
}

#endif
