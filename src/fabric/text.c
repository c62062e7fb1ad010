/* Text without stdio: see text.h. */
#include "fabric/text.h"

#include <assert.h>
#include <string.h>

struct text text_begin(char *out, size_t capacity)
{
	assert(capacity > 0);
	out[0] = '\0';
	return (struct text){.out = out, .capacity = capacity};
}

void text_add_bytes(struct text *text, const char *bytes, size_t count)
{
	if (text->length < text->capacity) {
		size_t room = text->capacity - text->length - 1;
		size_t copied = count < room ? count : room;
		memcpy(text->out + text->length, bytes, copied);
		text->out[text->length + copied] = '\0';
	}
	text->length += count;
}

void text_add(struct text *text, const char *string)
{
	text_add_bytes(text, string, strlen(string));
}

void text_add_number(struct text *text, uint64_t number)
{
	char digits[20];
	size_t at = sizeof(digits);
	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number != 0);
	text_add_bytes(text, digits + at, sizeof(digits) - at);
}

void text_add_hex(struct text *text, uint64_t number, unsigned digits)
{
	assert(digits <= 16);
	for (unsigned i = digits; i-- > 0;)
		text_add_bytes(text, &"0123456789abcdef"[number >> 4 * i & 15], 1);
}
