/* What is kept of connections that have ended: the sums of their counters, and the last of them one
 * by one, so that a counter which ended a connection can still be read. */
#ifndef TAP_ENDED_H
#define TAP_ENDED_H

#include <stdint.h>

#include <jansson.h>

#define ENDED_LAST 16u

struct ended {
	uint64_t connections;
	json_t *sums; /* of all numbers in the rows, by their names */
	json_t *last; /* rows, the oldest first */
};

/* A connection has ended: @row describes it, with its numbers and "counters", and is taken over. */
void ended_add(struct ended *ended, json_t *row, const char *why);
/* The same for one that comes again and again: it takes the place of the row with the same "name"
 * and reason, and "times" says how many there were. */
void ended_repeat(struct ended *ended, json_t *row, const char *why);
/* Number, sums and rows, as JSON. */
json_t *ended_json(const struct ended *ended);
void ended_free(struct ended *ended);

#endif
