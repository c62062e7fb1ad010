/* Criteria of the agent's own queue as words. See oob.h. */
#include "port/oob.h"

#include <stdio.h>
#include <string.h>

const struct oob_word oob_words[OOB_WORDS] = {
        {"blocked", OOB_BLOCKED}, {"errors", OOB_ERRORS}, {"failures", OOB_FAILURES},
        {"nobody", OOB_NOBODY},   {"connect", 1u << 1},   {"accept", 1u << 2},
        {"reject", 1u << 3},      {"close", 1u << 4},     {"alive", 1u << 5},
        {"aliveack", 1u << 6},    {"error", 1u << 7},     {"status", 1u << 8},
        {"data", 1u << 9},        {"var", 1u << 10},
};
static const struct oob_word oob_totals[] = {{"all", OOB_ALL}, {"none", 0}};

static const struct oob_word *oob_word_of(const struct oob_word *words, size_t count,
                                          const char *text, size_t length)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(words[i].word) == length && strncmp(words[i].word, text, length) == 0)
			return &words[i];
	return NULL;
}

const char *oob_parse(const char *text, struct oob_criteria *criteria)
{
	*criteria = (struct oob_criteria){0};
	while (*text != '\0') {
		bool wake = *text == '!';
		text += wake;
		size_t length = strcspn(text, ",");
		const struct oob_word *word = oob_word_of(oob_words, OOB_WORDS, text, length);
		if (word == NULL)
			word = oob_word_of(oob_totals, 2, text, length);
		if (word == NULL)
			return text;
		criteria->events |= word->bits;
		criteria->wakes |= wake ? word->bits : 0;
		text += length;
		text += *text == ',';
	}
	return NULL;
}

static void oob_append(char text[OOB_TEXT], const char *between, bool wake, const char *word)
{
	size_t used = strlen(text);
	snprintf(text + used, OOB_TEXT - used, "%s%s%s", used > 0 ? between : "", wake ? "!" : "",
	         word);
}

void oob_print(const struct oob_criteria *criteria, char text[OOB_TEXT])
{
	bool all = criteria->events == OOB_ALL, all_wake = criteria->wakes == OOB_ALL;
	text[0] = '\0';
	if (all)
		oob_append(text, ",", all_wake, "all");
	for (size_t i = 0; i < OOB_WORDS; i++) {
		bool wake = (criteria->wakes & oob_words[i].bits) != 0;
		if (all ? wake && !all_wake : (criteria->events & oob_words[i].bits) != 0)
			oob_append(text, ",", wake, oob_words[i].word);
	}
	if (text[0] == '\0')
		oob_append(text, ",", false, "none");
}

void oob_list(char text[OOB_TEXT])
{
	text[0] = '\0';
	for (size_t i = 0; i < OOB_WORDS; i++)
		oob_append(text, ", ", false, oob_words[i].word);
	oob_append(text, ", ", false, "all");
	oob_append(text, ", ", false, "none");
}
