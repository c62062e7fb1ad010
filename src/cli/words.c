/* Words of the command line that are like another one. */
#include "cli/words.h"

#include <stdio.h>
#include <string.h>

#define WORD_BYTES 16u /* longer words are not judged: no command is as long */

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* How many letters must be changed, added, dropped or exchanged with the next one to make @b of @a
 * (optimal string alignment). */
static unsigned word_distance(const char *a, const char *b)
{
	unsigned rows[3][WORD_BYTES + 1], *before = rows[0], *last = rows[1], *row = rows[2];
	size_t length = strlen(b);
	for (unsigned j = 0; j <= length; j++)
		last[j] = j;
	for (unsigned i = 1; a[i - 1] != '\0'; i++) {
		row[0] = i;
		for (unsigned j = 1; j <= length; j++) {
			unsigned changed = last[j - 1] + (a[i - 1] != b[j - 1]);
			row[j] = least(changed, least(last[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], before[j - 2] + 1);
		}
		unsigned *free = before;
		before = last;
		last = row;
		row = free;
	}
	return last[length];
}

const char *word_like(const char *given, word_at *word, size_t count)
{
	const char *best = NULL;
	unsigned most = strlen(given) < 4 ? 1 : 2;
	for (size_t i = 0; strlen(given) <= WORD_BYTES && i < count; i++) {
		unsigned distance = word_distance(given, word(i));
		if (distance <= most) {
			best = word(i);
			most = distance - (distance > 0); /* the first of equals */
		}
	}
	return best;
}

void word_suggest(const char *given, word_at *word, size_t count)
{
	const char *like = word_like(given, word, count);
	if (like != NULL)
		fprintf(stderr, "Did you mean '%s'?\n", like);
}
