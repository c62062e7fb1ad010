/* The regions and windows of the world: made by call, shared, bound, taken away. */
#include "world.h"

#include <string.h>

#define EVERYTHING                                                                 \
	(HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_READ | \
	 HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)
#define REMOTE (HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)

struct opening *opening_new(struct world *w, struct host *host)
{
	if (w->opening_count == WORLD_MAX_OPENINGS)
		return NULL;
	struct opening *o = &w->openings[w->opening_count++];
	*o = (struct opening){.host = host};
	return o;
}

void opening_log_key(struct world *w, const struct opening *opening)
{
	uint32_t at = w->key_count++ % WORLD_MAX_KEYS;
	w->keys[at].host = opening->host;
	w->keys[at].key = opening->key;
}

bool opening_key_came_back(const struct world *w, const struct request *r)
{
	for (uint32_t i = r->key_mark; i < w->key_count; i++)
		if (w->keys[i % WORLD_MAX_KEYS].host == r->bad_host &&
		    w->keys[i % WORLD_MAX_KEYS].key.v == r->bad_key.v)
			return true;
	return false;
}

uint64_t opening_address(const struct opening *opening, uint32_t at)
{
	return opening->base + (at - opening->at);
}

static uint64_t root_address(const struct root *root)
{
	return (uint64_t)(uintptr_t)root->memory;
}

/* Rights for a region; often all of them, so that most requests find what they need. */
static uint32_t draw_access(struct world *w, const struct root *root)
{
	uint32_t access = EVERYTHING;
	if (!root->atomic && world_chance(w, 300))
		access = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
		         (world_draw(w, 8) * HDL_ACCESS_REMOTE_READ & REMOTE);
	if (world_chance(w, 600))
		access |= HDL_ACCESS_BIND;
	if (world_chance(w, 250))
		access |= HDL_ACCESS_ZERO_BASED;
	if (!root->atomic && !(access & HDL_ACCESS_BIND) &&
	    world_chance(w, w->messages ? 350 : 120)) /* table D */
		access |= HDL_ACCESS_ONE_TOUCH;
	return access;
}

static void fill_list(const struct root *root, struct hdl_register *reg, uint64_t *pages)
{
	for (uint32_t i = 0; i < root->page_count; i++)
		pages[i] = root_address(root) + (uint64_t)root->pages[i] * WORLD_PAGE;
	reg->pages = pages;
	reg->num_pages = root->page_count;
	reg->page_shift = 12;
	reg->first_offset = root->first;
	reg->length = root->length;
}

bool opening_register(struct world *w, struct host *host, struct root *root, uint32_t pd)
{
	struct opening *o = opening_new(w, host);
	if (!o || !root)
		return false;
	uint64_t pages[WORLD_MAX_PAGES];
	o->root = root;
	o->length = root->length;
	o->access = pd < WORLD_MAX_PDS ? EVERYTHING | HDL_ACCESS_BIND : draw_access(w, root);
	o->pd = pd < WORLD_MAX_PDS ? pd : world_draw(w, WORLD_MAX_PDS);
	int error;
	if (root->page_count > 0) {
		struct hdl_register reg = {.iova = prng_next(&w->prng) >> 16 & ~7ull,
		                           .access = o->access};
		fill_list(root, &reg, pages);
		o->kind = OPENING_PAGES;
		o->base = reg.iova;
		error = hdl_mr_register_pages(host->pds[o->pd], &reg, &o->mr);
	} else {
		o->kind = OPENING_RUN;
		o->base = root_address(root) + root->first;
		error = hdl_mr_register(host->pds[o->pd], root->memory + root->first, root->length,
		                        o->access, &o->mr);
	}
	if (o->access & HDL_ACCESS_ZERO_BASED)
		o->base = 0;
	if (error) {
		world_fail(w, "a registration of %u bytes failed: %s", root->length,
		           hdl_strerror(error));
		return false;
	}
	o->state = OPENING_VALID;
	o->key = hdl_mr_key(o->mr);
	opening_log_key(w, o);
	world_say(w, "host %u registers opening %u: %u bytes, access 0x%x, key 0x%x", host->index,
	          (unsigned)(o - w->openings), o->length, o->access, o->key.v);
	return true;
}

void opening_share(struct world *w, struct host *host)
{
	struct opening *of = opening_pick(w, host, WORLD_MAX_PDS, 0, true, NULL);
	if (!of || (of->kind != OPENING_RUN && of->kind != OPENING_PAGES))
		return;
	struct opening *o = opening_new(w, host);
	if (!o)
		return;
	o->root = of->root;
	o->kind = OPENING_SHARED;
	o->length = of->length;
	o->access = draw_access(w, of->root);
	o->pd = world_draw(w, WORLD_MAX_PDS);
	o->base = o->access & HDL_ACCESS_ZERO_BASED ? 0 : of->base;
	int error = hdl_mr_share(of->mr, host->pds[o->pd], o->access, &o->mr);
	if (error) {
		world_fail(w, "sharing a region failed: %s", hdl_strerror(error));
		return;
	}
	o->state = OPENING_VALID;
	o->key = hdl_mr_key(o->mr);
	opening_log_key(w, o);
}

void opening_make_window(struct world *w, struct host *host)
{
	struct opening *o = opening_new(w, host);
	if (!o)
		return;
	o->kind = OPENING_WINDOW;
	o->mw_type = world_chance(w, 500) ? HDL_MW_TYPE_1 : HDL_MW_TYPE_2;
	o->pd = world_draw(w, WORLD_MAX_PDS);
	o->state = OPENING_EMPTY;
	if (hdl_mw_alloc(host->pds[o->pd], o->mw_type, &o->mw))
		world_fail(w, "no window");
	else
		o->key = hdl_mw_key(o->mw);
}

void opening_make_fast(struct world *w, struct host *host)
{
	if (w->large) /* the list would be too long */
		return;
	struct opening *o = opening_new(w, host);
	struct root *root = root_make(w, host, false);
	if (!o || !root)
		return;
	o->kind = OPENING_FAST;
	o->root = root;
	o->pd = world_draw(w, WORLD_MAX_PDS);
	o->state = OPENING_EMPTY;
	if (hdl_mr_alloc(host->pds[o->pd], WORLD_MAX_PAGES, &o->mr))
		world_fail(w, "no region for registration by request");
	else
		o->key = hdl_mr_key(o->mr);
}

/* --- binding and registering --- */

bool opening_plan_bind(struct world *w, struct opening *window, struct wqp *qp,
                       struct opening *after, struct hdl_bind *bind)
{
	struct opening *region =
	        opening_pick(w, window->host, window->pd, HDL_ACCESS_BIND, true, NULL);
	if (!region || region->state != OPENING_VALID)
		return false;
	*after = *window;
	after->root = region->root;
	after->parent = region;
	after->only = qp;
	after->touched = after->gone = false;
	after->access = world_draw(w, 7) * HDL_ACCESS_REMOTE_READ + HDL_ACCESS_REMOTE_READ;
	after->access &= REMOTE;
	if (world_chance(w, 250))
		after->access |= HDL_ACCESS_ZERO_BASED;
	if (world_chance(w, w->messages ? 500 : 200) && !region->root->atomic)
		after->access |= HDL_ACCESS_ONE_TOUCH;
	after->length = 1 + world_draw(w, region->length);
	after->at = region->at + world_draw(w, region->length - after->length + 1);
	bind->mr = region->mr;
	bind->addr = opening_address(region, after->at);
	bind->length = after->length;
	bind->access = after->access;
	after->base = after->access & HDL_ACCESS_ZERO_BASED ? 0 : bind->addr;
	return true;
}

bool opening_plan_register(struct world *w, struct opening *region, struct opening *after,
                           struct hdl_register *reg, uint64_t *pages)
{
	*after = *region;
	if (region->root->page_count == 0) { /* the block as a list of one page after the other */
		uint32_t first = region->root->first / WORLD_PAGE;
		reg->num_pages = region->root->bytes / WORLD_PAGE - first;
		for (uint32_t i = 0; i < reg->num_pages; i++)
			pages[i] = root_address(region->root) + (uint64_t)(first + i) * WORLD_PAGE;
		reg->pages = pages;
		reg->page_shift = 12;
		reg->first_offset = region->root->first % WORLD_PAGE;
		reg->length = region->root->length;
	} else {
		fill_list(region->root, reg, pages);
	}
	after->at = 0;
	after->length = region->root->length;
	after->touched = after->gone = false;
	after->access = draw_access(w, region->root) & ~(uint32_t)HDL_ACCESS_ONE_TOUCH;
	reg->access = after->access;
	reg->iova = prng_next(&w->prng) >> 16 & ~7ull;
	after->base = after->access & HDL_ACCESS_ZERO_BASED ? 0 : reg->iova;
	return true;
}

/* What goes through the former binding ends here. */
static void unbound(struct world *w, struct opening *window)
{
	opening_settle(w, window);
	window->generation++;
	if (window->parent)
		window->parent->windows--;
	window->parent = NULL;
	window->only = NULL;
	window->root = NULL;
	window->state = OPENING_EMPTY;
}

void opening_close(struct world *w, struct opening *o)
{
	if (o->kind == OPENING_WINDOW) {
		if (o->parent)
			unbound(w, o);
		return;
	}
	opening_settle(w, o);
	o->generation++;
	o->state = o->kind == OPENING_FAST ? OPENING_EMPTY : OPENING_DEAD;
}

void opening_bind_call(struct world *w, struct host *host)
{
	struct opening *o = &w->openings[world_draw(w, w->opening_count)];
	struct opening after;
	struct hdl_bind bind = {0};
	if (o->host != host || o->kind != OPENING_WINDOW || o->mw_type != HDL_MW_TYPE_1 ||
	    (o->state != OPENING_EMPTY && o->state != OPENING_VALID))
		return;
	bool bound = o->state == OPENING_VALID;
	if (bound && !world_has(w, FAULT_DEREGISTER) && o->root->claims)
		return; /* nothing is taken away under a request */
	if (bound)
		opening_disturb(w, o);
	if (bound && world_chance(w, 500)) {
		hdl_mw_unbind(o->mw);
		unbound(w, o);
		return;
	}
	if (!opening_plan_bind(w, o, NULL, &after, &bind))
		return;
	int error = hdl_mw_bind(o->mw, &bind, &after.key);
	if (error) {
		if (!after.parent->gone)
			world_fail(w, "a bind of %u bytes was refused: %s", after.length,
			           hdl_strerror(error));
		return;
	}
	if (bound)
		unbound(w, o);
	after.generation = o->generation;
	*o = after;
	o->parent->windows++;
	o->state = OPENING_VALID;
	opening_log_key(w, o);
	world_say(w, "host %u binds opening %u to %u: %u bytes at %u, access 0x%x, key 0x%x",
	          host->index, (unsigned)(o - w->openings), (unsigned)(o->parent - w->openings),
	          o->length, o->at, o->access, o->key.v);
}

/* A region was removed: the windows on it were one-touch windows that have been touched, else it
 * would be busy. A bind that is posted and not executed will fail. */
static void leave_windows(struct world *w, struct opening *region)
{
	for (uint32_t i = 0; i < w->opening_count; i++) {
		struct opening *o = &w->openings[i];
		if (o->kind != OPENING_WINDOW || o->parent != region)
			continue;
		if (o->state == OPENING_VALID && !o->touched)
			world_fail(w, "a region was removed under window %u", i);
		if (o->state == OPENING_VALID)
			opening_close(w, o);
		for (uint32_t n = 0; n < w->request_count; n++)
			if (w->requests[n].object == o && w->requests[n].state == REQUEST_PENDING)
				wqp_disturb(w->requests[n].qp, REASON_MEMORY);
	}
}

void opening_deregister(struct world *w, struct opening *o)
{
	if (o->state == OPENING_POSTED || o->state == OPENING_CLOSING || o->state == OPENING_DEAD)
		return;
	int error;
	if (o->kind == OPENING_WINDOW) {
		error = hdl_mw_free(o->mw);
		opening_close(w, o);
	} else {
		error = hdl_mr_deregister(o->mr);
		if (error == -HDL_EBUSY && o->windows > 0)
			return;
		if (error == 0 && o->windows > 0)
			leave_windows(w, o);
		opening_close(w, o);
	}
	if (error)
		world_fail(w, "opening %u cannot be removed: %s", (unsigned)(o - w->openings),
		           hdl_strerror(error));
	world_say(w, "host %u removes opening %u, key 0x%x", o->host->index,
	          (unsigned)(o - w->openings), o->key.v);
	o->mr = NULL;
	o->mw = NULL;
	o->state = OPENING_DEAD;
}

void opening_disturb(struct world *w, const struct opening *o)
{
	for (const struct claim *c = o->root ? o->root->claims : NULL; c; c = c->next) {
		if (c->via != o)
			continue;
		if (c->request->qp)
			wqp_disturb(c->request->qp, REASON_MEMORY);
		for (uint32_t i = 0; c->request->srq && i < w->qp_count; i++)
			if (w->qps[i].srq == c->request->srq)
				wqp_disturb(&w->qps[i], REASON_MEMORY);
	}
	for (uint32_t i = 0; i < w->request_count; i++)
		if (w->requests[i].object == o && w->requests[i].state == REQUEST_PENDING)
			wqp_disturb(w->requests[i].qp, REASON_MEMORY);
}

/* --- choosing --- */

static bool fits(const struct opening *o, uint32_t pd, uint32_t access, bool local,
                 const struct wqp *target)
{
	if (o->state != OPENING_VALID || o->gone || (pd < WORLD_MAX_PDS && o->pd != pd) ||
	    (o->access & access) != access)
		return false;
	if (local) /* a message that touches a one-touch region takes it from its owner too */
		return o->kind != OPENING_WINDOW && !(o->access & HDL_ACCESS_ONE_TOUCH);
	if (target && target->windows_only && o->kind != OPENING_WINDOW)
		return false;
	if (o->only && o->only != target)
		return false;
	return !(o->access & HDL_ACCESS_ONE_TOUCH) || !o->touched;
}

struct opening *opening_pick(struct world *w, const struct host *host, uint32_t pd, uint32_t access,
                             bool local, const struct wqp *target)
{
	struct opening *found = NULL;
	uint32_t seen = 0;
	bool atomic = !local && (access & HDL_ACCESS_REMOTE_ATOMIC) != 0;
	for (uint32_t i = 0; i < w->opening_count; i++) {
		struct opening *o = &w->openings[i];
		if (o->host != host || !fits(o, pd, access, local, target))
			continue;
		if (access != HDL_ACCESS_BIND && o->root->atomic != atomic)
			continue;
		if (world_draw(w, ++seen) == 0)
			found = o;
	}
	return found;
}

struct opening *opening_pick_stale(struct world *w, const struct host *host)
{
	for (int tries = 0; tries < 8 && w->opening_count > 0; tries++) {
		struct opening *o = &w->openings[world_draw(w, w->opening_count)];
		bool alive = o->host != host || o->generation == 0 ||
		             (o->state != OPENING_EMPTY && o->state != OPENING_DEAD) || !o->length;
		for (uint32_t i = 0; !alive && i < w->opening_count; i++)
			alive = w->openings[i].host == host &&
			        w->openings[i].state != OPENING_DEAD &&
			        w->openings[i].state != OPENING_EMPTY &&
			        w->openings[i].key.v == o->key.v;
		if (!alive)
			return o;
	}
	return NULL;
}
