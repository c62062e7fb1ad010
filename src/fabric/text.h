/* Text that is written piece by piece into a buffer, in layers that have no stdio. What no longer
 * fits is counted but not written. */
#ifndef FABRIC_TEXT_H
#define FABRIC_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
	char *out;
	size_t capacity; /* with the final 0 */
	size_t length;   /* of the whole, even if it does not fit */
};

/* Start to write to the @capacity bytes at @out, at least one. */
struct text text_begin(char *out, size_t capacity);
void text_add(struct text *text, const char *string);
void text_add_bytes(struct text *text, const char *bytes, size_t count);
void text_add_number(struct text *text, uint64_t number);
/* Exactly @digits hexadecimal digits, in lower case. */
void text_add_hex(struct text *text, uint64_t number, unsigned digits);
/* Did everything fit? */
static inline bool text_fits(const struct text *text)
{
	return text->length < text->capacity;
}

#endif
