/* See model.h. Written from the words of tpt.h and the figures, to be read, not to be fast. */
#include "model.h"

#include <string.h>

#include <heddle/error.h>

typedef unsigned __int128 wide;

#define TOP ((wide)1 << 64)

static const uint32_t remote_writes = HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC;

uint32_t model_taken(const struct model *m)
{
	uint32_t count = 0;
	for (uint32_t i = 1; i <= MODEL_CAPACITY; i++)
		count += m->entries[i].taken;
	return count;
}

struct model_entry *model_entry(struct model *m, struct hdl_key key)
{
	uint32_t index = key.v / 256;
	return index <= MODEL_CAPACITY ? &m->entries[index] : NULL;
}

uint32_t model_windows(const struct model *m, const struct model_entry *e)
{
	uint32_t count = 0;
	for (uint32_t i = 1; i <= MODEL_CAPACITY; i++) {
		const struct model_entry *w = &m->entries[i];
		count += w->taken && w->type == TPT_WINDOW && w->valid &&
		         &m->entries[w->region] == e;
	}
	return count;
}

uint64_t model_host(const struct model *m, const struct model_entry *e, uint64_t at)
{
	if (e->type == TPT_WINDOW)
		return model_host(m, &m->entries[e->region], e->offset + at);
	if (e->page_bytes == 0)
		return e->host + at;
	at += e->first_offset;
	return e->pages[at / e->page_bytes] + at % e->page_bytes;
}

enum hdl_detail model_check(struct model *m, const struct tpt_request *req, uint64_t *offset)
{
	const struct model_entry *e = model_entry(m, req->key);
	if (e != NULL && e->taken && !e->valid && e->used && e->instance == req->key.v % 256)
		return HDL_DETAIL_TOUCHED;
	if (e == NULL || !e->taken || !e->valid)
		return HDL_DETAIL_NOT_VALID;
	if (e->gone)
		return HDL_DETAIL_GONE;
	bool fits = req->side == TPT_LOCAL  ? e->type == TPT_REGION
	            : req->side == TPT_TASK ? e->type == TPT_ISCSI
	            : req->side == TPT_CI   ? e->type == TPT_APERTURE
	                                    : e->type == TPT_WINDOW ||
	                                            (e->type == TPT_REGION && !req->windows_only);
	if (!fits)
		return HDL_DETAIL_TYPE;
	if (e->pd != req->pd)
		return HDL_DETAIL_PD;
	if (e->qpn != 0 && e->qpn != req->qpn)
		return HDL_DETAIL_QP;
	if (e->instance != req->key.v % 256)
		return HDL_DETAIL_INSTANCE;
	wide first = e->type == TPT_ISCSI ? 0 : e->base;
	wide end = first + e->length;
	if (req->addr < first || (wide)req->addr + req->length > end)
		return HDL_DETAIL_BOUNDS;
	for (uint32_t bit = 1; bit <= HDL_ACCESS_ZERO_BASED; bit *= 2) {
		if ((req->access & bit) && !(e->access & bit))
			return HDL_DETAIL_ACCESS;
	}
	*offset = (uint64_t)(req->addr - first);
	return HDL_DETAIL_NONE;
}

static bool rights_agree(uint32_t access, uint8_t type)
{
	if (access > HDL_ACCESS_ALL)
		return false;
	return type != TPT_REGION || !(access & remote_writes) || (access & HDL_ACCESS_LOCAL_WRITE);
}

static bool addresses_wrap(uint32_t access, uint64_t iova, uint64_t length)
{
	wide first = access & HDL_ACCESS_ZERO_BASED ? 0 : iova;
	return first + length >= TOP;
}

int model_refuse_run(const struct tpt_region *region)
{
	bool fine = rights_agree(region->access, region->type) &&
	            (wide)region->host + region->length < TOP &&
	            !addresses_wrap(region->access, region->iova, region->length);
	return fine ? 0 : -HDL_EINVAL;
}

/* How many pages the bytes touch; one where there are none. */
static wide pages_touched(const struct hdl_register *reg)
{
	wide page = (wide)1 << reg->page_shift;
	wide count = ((wide)reg->first_offset + reg->length + page - 1) / page;
	return count == 0 ? 1 : count;
}

static bool list_fits(const struct hdl_register *reg)
{
	if (reg->page_shift < 12 || reg->page_shift > 28 || reg->num_pages == 0)
		return false;
	wide page = (wide)1 << reg->page_shift;
	if (reg->first_offset >= page || pages_touched(reg) > reg->num_pages)
		return false;
	for (uint32_t i = 0; i < pages_touched(reg); i++) {
		if (reg->pages[i] % page != 0 || reg->pages[i] + page >= TOP)
			return false;
	}
	return true;
}

int model_refuse_pages(enum tpt_type type, uint64_t cookie, const struct hdl_register *reg)
{
	(void)cookie;
	if (type == TPT_WINDOW || !rights_agree(reg->access, (uint8_t)type) || !list_fits(reg))
		return -HDL_EINVAL;
	if (type == TPT_REGION && addresses_wrap(reg->access, reg->iova, reg->length))
		return -HDL_EINVAL;
	return 0;
}

int model_refuse_shared(struct model *m, struct hdl_key of, uint32_t access)
{
	const struct model_entry *e = model_entry(m, of);
	if (e == NULL || !e->taken || !e->valid || e->gone || e->instance != of.v % 256)
		return -HDL_ESTALE;
	if (e->type != TPT_REGION || e->room != 0 || !rights_agree(access, TPT_REGION))
		return -HDL_EINVAL;
	uint32_t reads = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_REMOTE_READ;
	if ((access & reads) && !(e->access & reads))
		return -HDL_EACCES;
	if ((access & (remote_writes | HDL_ACCESS_LOCAL_WRITE)) &&
	    !(e->access & HDL_ACCESS_LOCAL_WRITE))
		return -HDL_EACCES;
	return 0;
}

struct model_entry *model_take(struct model *m, struct hdl_key key, uint32_t pd, uint8_t type)
{
	struct model_entry *e = model_entry(m, key);
	memset(e, 0, sizeof *e);
	e->taken = true;
	e->instance = (uint8_t)key.v;
	e->pd = pd;
	e->type = type;
	return e;
}

static uint64_t first_address(uint32_t access, uint64_t iova)
{
	return access & HDL_ACCESS_ZERO_BASED ? 0 : iova;
}

void model_set_run(struct model_entry *e, const struct tpt_region *region)
{
	e->valid = true;
	e->access = region->access;
	e->base = first_address(region->access, region->iova);
	e->length = region->length;
	e->host = region->host;
	e->page_bytes = 0;
}

void model_set_pages(struct model_entry *e, uint64_t cookie, const struct hdl_register *reg)
{
	e->valid = true;
	e->gone = false;
	e->touched = false;
	e->used = false;
	e->access = reg->access;
	e->base = e->type == TPT_ISCSI ? cookie : first_address(reg->access, reg->iova);
	e->length = reg->length;
	e->page_bytes = (uint64_t)1 << reg->page_shift;
	e->first_offset = reg->first_offset;
	memcpy(e->pages, reg->pages, (size_t)pages_touched(reg) * sizeof e->pages[0]);
}

void model_set_shared(struct model_entry *e, const struct model_entry *of, uint32_t access)
{
	e->valid = true;
	e->access = access;
	e->base = first_address(access, of->base);
	e->length = of->length;
	e->host = of->host;
	e->page_bytes = of->page_bytes;
	e->first_offset = of->first_offset;
	memcpy(e->pages, of->pages, sizeof e->pages);
}

enum hdl_detail model_register(struct model *m, struct hdl_key key, uint32_t pd,
                               const struct hdl_register *reg)
{
	struct model_entry *e = model_entry(m, key);
	if (e == NULL || !e->taken || e->retired)
		return HDL_DETAIL_NOT_VALID;
	if (e->room == 0)
		return HDL_DETAIL_TYPE;
	if (e->pd != pd)
		return HDL_DETAIL_PD;
	if (e->valid)
		return HDL_DETAIL_ALREADY;
	if (model_windows(m, e) != 0)
		return HDL_DETAIL_BUSY;
	if (!list_fits(reg) || pages_touched(reg) > e->room)
		return HDL_DETAIL_PAGES;
	if (e->type == TPT_REGION && addresses_wrap(reg->access, reg->iova, reg->length))
		return HDL_DETAIL_BOUNDS;
	if (!rights_agree(reg->access, e->type))
		return HDL_DETAIL_ACCESS;
	model_set_pages(e, reg->iova, reg);
	e->instance = (uint8_t)key.v;
	return HDL_DETAIL_NONE;
}

enum hdl_detail model_bind(struct model *m, const struct tpt_bind *bind)
{
	struct model_entry *e = model_entry(m, bind->key);
	if (e == NULL || !e->taken || e->retired)
		return HDL_DETAIL_NOT_VALID;
	if (e->type != TPT_WINDOW)
		return HDL_DETAIL_TYPE;
	if (e->pd != bind->pd)
		return HDL_DETAIL_PD;
	if (e->valid && !bind->rebind)
		return HDL_DETAIL_ALREADY;
	uint32_t allowed = remote_writes | HDL_ACCESS_REMOTE_READ | HDL_ACCESS_ONE_TOUCH |
	                   HDL_ACCESS_ZERO_BASED;
	if ((bind->access | allowed) != allowed)
		return HDL_DETAIL_ACCESS;
	uint32_t needs = 0;
	if (bind->access & HDL_ACCESS_REMOTE_READ)
		needs |= HDL_ACCESS_LOCAL_READ;
	if (bind->access & HDL_ACCESS_REMOTE_WRITE)
		needs |= HDL_ACCESS_LOCAL_WRITE;
	if (bind->access & HDL_ACCESS_REMOTE_ATOMIC)
		needs |= HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE;
	const struct tpt_request req = {.key = bind->region,
	                                .side = TPT_LOCAL,
	                                .access = (uint8_t)needs,
	                                .pd = bind->pd,
	                                .addr = bind->addr,
	                                .length = bind->length};
	uint64_t offset;
	enum hdl_detail verdict = model_check(m, &req, &offset);
	if (verdict != HDL_DETAIL_NONE)
		return verdict;
	if (!(model_entry(m, bind->region)->access & HDL_ACCESS_BIND))
		return HDL_DETAIL_BIND;
	e->valid = true;
	e->gone = false;
	e->touched = false;
	e->used = false;
	e->instance = (uint8_t)bind->key.v;
	e->qpn = bind->qpn;
	e->access = bind->access;
	e->base = first_address(bind->access, bind->addr);
	e->length = bind->length;
	e->region = bind->region.v / 256;
	e->offset = offset;
	return HDL_DETAIL_NONE;
}

enum hdl_detail model_invalidate(struct model *m, struct hdl_key key, uint32_t pd, uint32_t qpn,
                                 bool exact)
{
	struct model_entry *e = model_entry(m, key);
	bool request = qpn != 0;
	if (e == NULL || !e->taken || !e->valid)
		return HDL_DETAIL_NOT_VALID;
	if (e->type == TPT_REGION && e->room == 0)
		return HDL_DETAIL_TYPE;
	if (request && (e->type == TPT_ISCSI || e->type == TPT_APERTURE ||
	                (e->type == TPT_WINDOW && e->qpn == 0)))
		return HDL_DETAIL_TYPE;
	if (e->pd != pd)
		return HDL_DETAIL_PD;
	if (request && e->type == TPT_WINDOW && e->qpn != qpn)
		return HDL_DETAIL_QP;
	if (exact && e->instance != key.v % 256)
		return HDL_DETAIL_INSTANCE;
	if (model_windows(m, e) != 0)
		return HDL_DETAIL_BUSY;
	e->valid = false;
	return HDL_DETAIL_NONE;
}

enum hdl_detail model_retire(struct model *m, struct hdl_key key)
{
	struct model_entry *e = model_entry(m, key);
	if (e == NULL || !e->taken || e->retired)
		return HDL_DETAIL_NOT_VALID;
	if (model_windows(m, e) != 0)
		return HDL_DETAIL_BUSY;
	e->valid = false;
	e->used = false;
	e->retired = true;
	return HDL_DETAIL_NONE;
}

void model_free(struct model *m, struct hdl_key key)
{
	struct model_entry *e = model_entry(m, key);
	e->taken = false;
	e->retired = false;
}

/* Is @a before @b in the circle of 2^32 numbers? */
static bool before(uint32_t a, uint32_t b)
{
	uint64_t ahead = ((uint64_t)b + ((uint64_t)1 << 32) - a) % ((uint64_t)1 << 32);
	return ahead > 0 && ahead < (uint64_t)1 << 31;
}

enum tpt_action model_touch(struct model *m, struct hdl_key key, const struct tpt_segment *segment)
{
	struct model_entry *e = model_entry(m, key);
	if (!segment->last)
		return TPT_PLACE;
	if (e == NULL || !e->taken || !e->valid || e->gone || e->instance != key.v % 256)
		return TPT_TERMINATE;
	if (!(e->access & HDL_ACCESS_ONE_TOUCH))
		return TPT_PLACE;
	if (e->touched) {
		e->valid = false;
		e->used = true;
		return TPT_TERMINATE;
	}
	if ((uint64_t)segment->sn ==
	    ((uint64_t)segment->next_sn + 0xffffffff) % ((uint64_t)1 << 32)) {
		e->valid = false;
		e->used = true;
		return TPT_PLACE_INVALIDATE;
	}
	if (before(segment->sn, segment->next_sn) || !before(segment->sn, segment->window_end))
		return TPT_DROP;
	e->touched = true;
	e->sn = segment->sn;
	return TPT_PLACE_TOUCHED;
}

bool model_line_up(struct model *m, struct hdl_key key, uint32_t next_sn)
{
	struct model_entry *e = model_entry(m, key);
	if (e == NULL || !e->taken || !e->valid || e->gone || e->instance != key.v % 256)
		return false;
	if (!e->touched || !before(e->sn, next_sn))
		return false;
	e->valid = false;
	e->used = true;
	return true;
}

/* Does one run of the entry's bytes share any with the range? Empty ranges share none. */
static bool share(wide a, wide a_length, wide b, wide b_length)
{
	wide first = a > b ? a : b;
	wide end = a + a_length < b + b_length ? a + a_length : b + b_length;
	return first < end;
}

static bool touches(const struct model_entry *e, uint64_t host, uint64_t length)
{
	if (e->page_bytes == 0)
		return share(e->host, e->length, host, length);
	for (uint64_t done = 0; done < e->length;) {
		uint64_t at = e->first_offset + done;
		uint64_t part = e->page_bytes - at % e->page_bytes;
		if (part > e->length - done)
			part = e->length - done;
		if (share((wide)e->pages[at / e->page_bytes] + at % e->page_bytes, part, host,
		          length))
			return true;
		done += part;
	}
	return false;
}

uint32_t model_segment_gone(struct model *m, uint64_t host, uint64_t length)
{
	bool hit[MODEL_CAPACITY + 1] = {false};
	uint32_t count = 0;
	for (uint32_t i = 1; i <= MODEL_CAPACITY; i++) {
		const struct model_entry *e = &m->entries[i];
		hit[i] = e->taken && e->type != TPT_WINDOW && touches(e, host, length);
	}
	for (uint32_t i = 1; i <= MODEL_CAPACITY; i++) {
		struct model_entry *e = &m->entries[i];
		if (!e->taken || !e->valid || e->gone ||
		    !hit[e->type == TPT_WINDOW ? e->region : i])
			continue;
		e->gone = true;
		count++;
	}
	return count;
}
