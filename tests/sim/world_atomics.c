/* The checker, atomics: the values that the requests on a word found must form one sequence from
 * its first value to its last, each request once. Values are random numbers of 64 bits, so there is
 * at most one such sequence. Requests that failed may have been executed or not. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define SEARCH_STEPS 200000u

void atomics_aim(struct world *w, struct request *r, struct root *words)
{
	r->words = words;
	r->compare_add = prng_next(&w->prng);
	r->swap = prng_next(&w->prng);
	if (!r->add && world_chance(w, 600)) /* what is there now, so that some do swap */
		root_out(words, words->memory, r->word * 8, &r->compare_add, 8);
}

struct chain {
	const struct request **ops;
	bool *used;
	uint32_t count;
	uint64_t last; /* what the word holds now */
	uint32_t steps;
};

static uint64_t after(const struct request *r, uint64_t value)
{
	if (r->add)
		return value + r->compare_add;
	return value == r->compare_add ? r->swap : value;
}

/* Can the rest be executed from @value on, so that @last is left? @known: successes that are not
 * used yet. */
static bool explain(struct chain *chain, uint64_t value, uint32_t known)
{
	if (chain->steps++ > SEARCH_STEPS)
		return true; /* too many that failed: no verdict */
	if (known == 0 && value == chain->last)
		return true;
	/* A success that found this value must come now, and one that changes nothing may as well.
	 */
	for (int changing = 0; changing < 2; changing++) {
		for (uint32_t i = 0; i < chain->count; i++) {
			const struct request *r = chain->ops[i];
			if (chain->used[i] || r->state != REQUEST_DONE || r->old != value ||
			    (after(r, value) != value) != changing)
				continue;
			chain->used[i] = true;
			bool found = explain(chain, after(r, value), known - 1);
			chain->used[i] = false;
			return found;
		}
	}
	for (uint32_t i = 0; i < chain->count; i++) {
		const struct request *r = chain->ops[i];
		if (chain->used[i] || r->state == REQUEST_DONE || after(r, value) == value)
			continue;
		chain->used[i] = true;
		bool found = explain(chain, after(r, value), known);
		chain->used[i] = false;
		if (found)
			return true;
	}
	return false;
}

static void check_word(struct world *w, const struct root *root, uint32_t word, struct chain *chain)
{
	uint64_t first;
	uint32_t known = 0;
	chain->count = chain->steps = 0;
	for (uint32_t i = 0; i < w->request_count; i++) {
		const struct request *r = &w->requests[i];
		if (r->words != root || r->word != word || r->bad_remote || r->unexecuted)
			continue;
		known += r->state == REQUEST_DONE;
		chain->used[chain->count] = false;
		chain->ops[chain->count++] = r;
	}
	root_out(root, root->shadow, word * 8, &first, 8);
	root_out(root, root->memory, word * 8, &chain->last, 8);
	if (!explain(chain, first, known))
		world_fail(w,
		           "word %u of host %u: no order of its %u atomics leads from 0x%lx to "
		           "0x%lx with "
		           "the values they found",
		           word, root->host->index, chain->count, (unsigned long)first,
		           (unsigned long)chain->last);
}

void atomics_check(struct world *w)
{
	struct chain chain = {.ops = calloc(WORLD_MAX_REQUESTS, sizeof(*chain.ops)),
	                      .used = calloc(WORLD_MAX_REQUESTS, sizeof(*chain.used))};
	if (!chain.ops || !chain.used)
		abort();
	for (uint32_t i = 0; i < w->root_count; i++) {
		const struct root *root = &w->roots[i];
		if (!root->atomic || root->gone)
			continue;
		for (uint32_t word = 0; word < WORLD_MAX_WORDS; word++)
			check_word(w, root, word, &chain);
	}
	free(chain.ops);
	free(chain.used);
}
