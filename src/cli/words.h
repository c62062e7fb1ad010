/* Words of the command line that are like another one: "did you mean". */
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include <stddef.h>

/* The word number @index of a list. Words have 16 letters at most. */
typedef const char *word_at(size_t index);

/* The word that @given was probably meant to be; NULL: none is near. */
const char *word_like(const char *given, word_at *word, size_t count);
/* Ask for it on standard error, if there is one. */
void word_suggest(const char *given, word_at *word, size_t count);

#endif
