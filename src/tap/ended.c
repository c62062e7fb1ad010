/* See ended.h. */
#include "tap/ended.h"

#include <stddef.h>
#include <string.h>

/* Add the numbers of @row to those of @sums, also within "counters". */
static void ended_sum(json_t *sums, json_t *row)
{
	const char *name;
	json_t *value;
	json_object_foreach(row, name, value)
	{
		json_t *sum = json_object_get(sums, name);
		if (json_is_integer(value)) {
			json_int_t now = json_integer_value(sum) + json_integer_value(value);
			json_object_set_new(sums, name, json_integer(now));
		} else if (json_is_object(value)) {
			if (sum == NULL)
				json_object_set_new(sums, name, json_object());
			ended_sum(json_object_get(sums, name), value);
		}
	}
}

void ended_add(struct ended *ended, json_t *row, const char *why)
{
	if (ended->last == NULL) {
		ended->last = json_array();
		ended->sums = json_object();
	}
	ended->connections++;
	ended_sum(ended->sums, row);
	json_object_set_new(row, "why", json_string(why));
	if (json_array_size(ended->last) == ENDED_LAST)
		json_array_remove(ended->last, 0);
	json_array_append_new(ended->last, row);
}

void ended_repeat(struct ended *ended, json_t *row, const char *why)
{
	const char *name = json_string_value(json_object_get(row, "name"));
	json_int_t times = 1;
	for (size_t i = json_array_size(ended->last); i-- > 0 && name != NULL;) {
		const json_t *old = json_array_get(ended->last, i);
		const char *of = json_string_value(json_object_get(old, "name"));
		const char *reason = json_string_value(json_object_get(old, "why"));
		if (of == NULL || strcmp(of, name) != 0 || strcmp(reason, why) != 0)
			continue;
		times += json_integer_value(json_object_get(old, "times"));
		json_array_remove(ended->last, i);
	}
	ended_add(ended, row, why);
	json_object_set_new(row, "times", json_integer(times));
}

json_t *ended_json(const struct ended *ended)
{
	json_t *all = ended->sums != NULL ? json_deep_copy(ended->sums) : json_object();
	json_object_set_new(all, "connections", json_integer((json_int_t)ended->connections));
	json_object_set_new(all, "last",
	                    ended->last != NULL ? json_deep_copy(ended->last) : json_array());
	return all;
}

void ended_free(struct ended *ended)
{
	json_decref(ended->sums);
	json_decref(ended->last);
	ended->sums = ended->last = NULL;
}
