/* The memory of the world: blocks with shadows, who may change which range of them at the moment,
 * and the comparison of every byte. */
#include "world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "place.h"

#define PICK_TRIES  6
#define SMALL_PAGES 8u
#define PAGE_SPREAD 12u

/* Some pages of the block in any order; those left out, and what lies before and behind, are
 * guards. */
static void draw_pages(struct world *w, struct root *root, uint32_t block_pages)
{
	uint32_t order[WORLD_MAX_PAGES];
	for (uint32_t i = 0; i < block_pages; i++) {
		uint32_t j = world_draw(w, i + 1);
		order[i] = order[j];
		order[j] = i;
	}
	root->page_count = block_pages - 1 - world_draw(w, 2);
	memcpy(root->pages, order, root->page_count * sizeof(order[0]));
	root->first = world_draw(w, WORLD_PAGE);
	root->length = root->page_count * WORLD_PAGE - root->first - world_draw(w, WORLD_PAGE / 2);
}

struct root *root_make(struct world *w, struct host *host, bool atomic)
{
	if (w->root_count == WORLD_MAX_ROOTS)
		return NULL;
	struct root *root = &w->roots[w->root_count];
	uint32_t pages = atomic ? 4 : SMALL_PAGES + world_draw(w, PAGE_SPREAD);
	bool paged = world_chance(w, 400);
	if (w->large && !atomic)
		pages = paged ? WORLD_MAX_PAGES : 2 * WORLD_LARGE / WORLD_PAGE;
	*root = (struct root){.host = host, .bytes = pages * WORLD_PAGE, .atomic = atomic};
	/* Without packets nobody must notice where a block lies. */
	root->memory =
	        place_take(w->wire || w->streams ? w->root_count : PLACE_ANYWHERE, root->bytes);
	root->shadow = malloc(root->bytes);
	if (!root->memory || !root->shadow) {
		world_fail(w, "no memory for a block");
		return NULL;
	}
	w->root_count++;
	if (paged) {
		draw_pages(w, root, pages);
	} else {
		root->first = world_draw(w, WORLD_PAGE + 1);
		root->length = root->bytes - root->first - world_draw(w, WORLD_PAGE + 1);
	}
	if (atomic) { /* logical words are words */
		root->first &= ~7u;
		root->length &= ~7u;
	}
	prng_fill(&w->prng, root->shadow, root->bytes);
	memcpy(root->memory, root->shadow, root->bytes);
	return root;
}

/* How far the root's bytes from @at on lie together, and where. */
static uint32_t run_at(const struct root *root, uint32_t at, uint32_t *where)
{
	if (root->page_count == 0) {
		*where = root->first + at;
		return root->length - at;
	}
	uint32_t from = root->first + at;
	*where = root->pages[from / WORLD_PAGE] * WORLD_PAGE + from % WORLD_PAGE;
	return WORLD_PAGE - from % WORLD_PAGE;
}

/* The logical place of byte @where of the block; false for a guard. */
static bool logical_of(const struct root *root, uint32_t where, uint32_t *at)
{
	uint32_t from = where;
	if (root->page_count > 0) {
		uint32_t i = 0;
		while (i < root->page_count && root->pages[i] != where / WORLD_PAGE)
			i++;
		if (i == root->page_count)
			return false;
		from = i * WORLD_PAGE + where % WORLD_PAGE;
	}
	*at = from - root->first;
	return from >= root->first && *at < root->length;
}

void root_out(const struct root *root, const uint8_t *block, uint32_t at, void *out, uint32_t bytes)
{
	uint8_t *to = out;
	while (bytes > 0) {
		uint32_t where, run = run_at(root, at, &where);
		if (run > bytes)
			run = bytes;
		memcpy(to, block + where, run);
		to += run;
		at += run;
		bytes -= run;
	}
}

void root_in(struct root *root, uint8_t *block, uint32_t at, const void *in, uint32_t bytes)
{
	const uint8_t *from = in;
	while (bytes > 0) {
		uint32_t where, run = run_at(root, at, &where);
		if (run > bytes)
			run = bytes;
		memcpy(block + where, from, run);
		from += run;
		at += run;
		bytes -= run;
	}
}

bool root_is_free(const struct root *root, uint32_t at, uint32_t bytes, bool write)
{
	for (const struct claim *c = root->claims; c; c = c->next)
		if ((write || c->write) && at < c->at + c->bytes && c->at < at + bytes)
			return false;
	return true;
}

bool root_pick(struct world *w, const struct opening *opening, uint32_t bytes, bool write,
               uint32_t *at)
{
	if (bytes > opening->length)
		return false;
	for (int i = 0; i < PICK_TRIES; i++) {
		*at = opening->at + world_draw(w, opening->length - bytes + 1);
		/* The edges are where bounds go wrong. */
		if (i == 0 && world_chance(w, 100))
			*at = opening->at + (world_chance(w, 500) ? opening->length - bytes : 0);
		if (root_is_free(opening->root, *at, bytes, write))
			return true;
	}
	return false;
}

struct claim *claim_add(struct request *r, struct opening *via, uint32_t at, uint32_t bytes,
                        uint32_t data_at, bool write)
{
	r->generations[r->claim_count] = via->generation;
	struct claim *claim = &r->claims[r->claim_count++];
	*claim = (struct claim){.next = via->root->claims,
	                        .request = r,
	                        .via = via,
	                        .root = via->root,
	                        .at = at,
	                        .bytes = bytes,
	                        .data_at = data_at,
	                        .write = write};
	via->root->claims = claim;
	return claim;
}

void claim_release(struct claim *claim)
{
	if (!claim->root)
		return;
	for (struct claim **at = &claim->root->claims; *at; at = &(*at)->next) {
		if (*at == claim) {
			*at = claim->next;
			break;
		}
	}
	claim->root = NULL;
}

bool claim_is_placed(const struct claim *claim)
{
	if (claim->settled)
		return claim->was_placed;
	const struct request *r = claim->request;
	if (!claim->root || claim->root->gone)
		return true; /* there is nothing to look at any more */
	for (uint32_t i = 0; i < claim->bytes; i++) {
		uint8_t byte;
		root_out(claim->root, claim->root->memory, claim->at + i, &byte, 1);
		if (byte != r->data[claim->data_at + i])
			return false;
	}
	return true;
}

bool claim_is_untouched(const struct claim *claim)
{
	for (uint32_t i = 0; claim->root && !claim->root->gone && i < claim->bytes; i++) {
		uint8_t is, was;
		root_out(claim->root, claim->root->memory, claim->at + i, &is, 1);
		root_out(claim->root, claim->root->shadow, claim->at + i, &was, 1);
		if (is != was)
			return false;
	}
	return true;
}

/* May byte @i of the claim be @byte now? */
static bool claim_explains(const struct claim *claim, uint32_t i, uint8_t byte)
{
	const struct request *r = claim->request;
	/* On a stream, bytes may be placed before their CRC is known. */
	bool damaged = r->qp && r->qp->conn && r->qp->conn->damaged[r->epoch];
	return claim->write && (!r->data || damaged || r->data[claim->data_at + i] == byte);
}

void claim_settle(struct world *w, struct claim *claim)
{
	struct root *root = claim->root;
	if (!root)
		return;
	const struct request *r = claim->request;
	claim->was_placed = !claim->write || !r->data || claim_is_placed(claim);
	for (uint32_t i = 0; claim->write && !root->gone && i < claim->bytes; i++) {
		uint8_t is, was;
		root_out(root, root->memory, claim->at + i, &is, 1);
		root_out(root, root->shadow, claim->at + i, &was, 1);
		if (is != was && !claim_explains(claim, i, is))
			world_fail(w,
			           "request %u: byte %u of the %u at %u is 0x%02x, neither the old "
			           "0x%02x nor the new 0x%02x",
			           r->id, i, claim->bytes, claim->at, is, was,
			           r->data ? r->data[claim->data_at + i] : 0);
		root_in(root, root->shadow, claim->at + i, &is, 1);
	}
	claim_release(claim);
	claim->settled = true;
}

void opening_settle(struct world *w, struct opening *opening)
{
	struct claim *next;
	for (struct claim *c = opening->root ? opening->root->claims : NULL; c; c = next) {
		next = c->next;
		if (c->via == opening)
			claim_settle(w, c);
	}
}

void root_settle(struct world *w, struct root *root)
{
	while (root->claims)
		claim_settle(w, root->claims);
}

/* One byte differs from its shadow: is a request in flight that may have brought it? */
static bool byte_explained(const struct root *root, uint32_t where)
{
	uint32_t at;
	if (!logical_of(root, where, &at))
		return false;
	if (root->atomic && at < WORLD_MAX_WORDS * 8)
		return true; /* atomics_check() looks at them */
	for (const struct claim *c = root->claims; c; c = c->next)
		if (at >= c->at && at - c->at < c->bytes &&
		    claim_explains(c, at - c->at, root->memory[where]))
			return true;
	return false;
}

static void sweep_page(struct world *w, const struct root *root, uint32_t page)
{
	for (uint32_t where = page; where < page + WORLD_PAGE; where++) {
		if (root->memory[where] == root->shadow[where] || byte_explained(root, where))
			continue;
		uint32_t at = 0;
		bool inside = logical_of(root, where, &at);
		world_fail(w,
		           "memory of host %u, block %u: byte %u of the block (%s %u) is 0x%02x, "
		           "must be "
		           "0x%02x",
		           root->host->index, (unsigned)(root - w->roots), where,
		           inside ? "byte of the region:" : "a guard byte,", at,
		           root->memory[where], root->shadow[where]);
		return;
	}
}

void world_sweep(struct world *w)
{
	for (uint32_t i = 0; i < w->root_count; i++) {
		const struct root *root = &w->roots[i];
		if (root->gone)
			continue;
		for (uint32_t page = 0; page < root->bytes; page += WORLD_PAGE)
			if (memcmp(root->memory + page, root->shadow + page, WORLD_PAGE) != 0)
				sweep_page(w, root, page);
	}
}

/* The addresses stay taken, so that no other mapping can come to lie there: what the registration
 * still names is nothing, for certain. */
void root_unmap(struct world *w, struct root *root)
{
	root->gone = true;
	if (mmap(root->memory, root->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
	         0) == MAP_FAILED)
		world_fail(w, "cannot unmap a block");
}

void world_free_roots(struct world *w)
{
	for (uint32_t i = 0; i < w->root_count; i++) {
		place_give(w->roots[i].memory, w->roots[i].bytes);
		free(w->roots[i].shadow);
	}
}
