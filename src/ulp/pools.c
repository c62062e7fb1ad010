/* Pools that the user of a connection chooses: those at the beginning, more of them, and those that
 * are withdrawn or given back while the connection goes on. */
#include "ulp/internal.h"

_Static_assert(HDL_PUSH_MAX_POOLS == SPLIT_MAX_PLANS &&
                       HDL_PUSH_MAX_ELEMENT_BYTES == SPLIT_MAX_ELEMENT_BYTES,
               "the limits of the messaging layer");

static bool pools_fits(const struct hdl_push_pool *pool)
{
	return pool->elements > 0 && pool->elements <= HDL_PUSH_MAX_RECEIVE &&
	       pool->element_bytes > 0 && pool->element_bytes <= HDL_PUSH_MAX_ELEMENT_BYTES;
}

bool terms_leave_room(const struct hdl_push_terms *terms)
{
	return terms->header_bytes == 0 || terms->header_bytes < terms->frame_bytes;
}

bool pools_possible(const struct hdl_push_terms *terms)
{
	uint32_t elements = 0;
	bool any_frame = terms->pool_count == 0;
	if (terms->pool_count > HDL_PUSH_MAX_POOLS || !terms_leave_room(terms))
		return false;
	for (uint32_t i = 0; i < terms->pool_count; i++) {
		const struct hdl_push_pool *pool = &terms->pools[i];
		if (!pools_fits(pool) || (pool->by_address && terms->pool_count > 1))
			return false;
		elements += pool->elements;
		any_frame |= pool->port == 0 && pool->source == 0 &&
		             pool->element_bytes >= terms->frame_bytes;
	}
	return any_frame && elements <= HDL_PUSH_MAX_RECEIVE;
}

struct split_plan pools_plan(const struct hdl_push_pool *pool)
{
	return (struct split_plan){.elements = pool->elements,
	                           .element_bytes = pool->element_bytes,
	                           .port = pool->port,
	                           .source = pool->source,
	                           .by_address = pool->by_address};
}

int hdl_push_offer(struct hdl_push *push, const struct hdl_push_pool *pool)
{
	struct hdl_push_pool_state first;
	if (push->stage != STAGE_OPEN)
		return -HDL_EINVAL;
	size_t count = hdl_push_pools(push, true, &first, 1);
	if (!pools_fits(pool) || !split_receives_in_pools(push->split) ||
	    (count > 0 && (pool->by_address || first.pool.by_address)))
		return -HDL_EINVAL;
	struct split_plan plan = pools_plan(pool);
	return split_offer(push->split, &plan) ? 0 : -HDL_ENOMEM;
}

int hdl_push_flush(struct hdl_push *push, uint32_t index)
{
	if (push->stage != STAGE_OPEN)
		return -HDL_EINVAL;
	/* What the other end reads from is where frames leave from, and what was never offered
	 * cannot be withdrawn. */
	const struct split_side *side = &push->split->mine;
	for (uint32_t i = 0; i < side->open_count; i++) {
		const struct split_pool *pool = &side->pools[side->open[i]];
		if (pool->at.index == index && (pool->source || pool->local))
			return -HDL_EINVAL;
	}
	return split_flush(push->split, index) ? 0 : -HDL_EINVAL;
}

int hdl_push_return(struct hdl_push *push, uint32_t index)
{
	if (push->stage != STAGE_OPEN)
		return -HDL_EINVAL;
	return split_return(push->split, index) ? 0 : -HDL_EINVAL;
}

static struct hdl_push_pool_state pools_state(const struct split_side *side,
                                              const struct split_pool *pool, bool own)
{
	uint64_t context = pool->at.context;
	return (struct hdl_push_pool_state){
	        .pool = {.elements = pool->at.elements,
	                 .element_bytes = pool->at.element_bytes,
	                 .port = (uint16_t)(context >> 32),
	                 .source = (uint32_t)context,
	                 .by_address = (pool->flags & PUSH_POOL_BY_ADDRESS) != 0},
	        .index = pool->at.index,
	        .free = split_pool_free(side, pool, own),
	        .flushing = pool->returning ||
	                    (pool->state != SPLIT_POOL_OPEN && pool->state != SPLIT_POOL_NEW),
	        .readable = (pool->flags & PUSH_POOL_READABLE) != 0};
}

size_t hdl_push_pools(const struct hdl_push *push, bool own, struct hdl_push_pool_state *list,
                      size_t max)
{
	size_t count = 0;
	if (push->stage != STAGE_OPEN && push->stage != STAGE_CLOSING)
		return 0;
	const struct split_side *side = own ? &push->split->mine : &push->split->theirs;
	for (uint32_t i = 0; i < side->open_count; i++) {
		const struct split_pool *pool = &side->pools[side->open[i]];
		if (pool->local) /* never offered: what is read goes there */
			continue;
		if (count < max)
			list[count] = pools_state(side, pool, own);
		count++;
	}
	return count;
}

bool hdl_push_indicated(const struct hdl_push *push, struct hdl_push_indication *at)
{
	struct push_indication indication;
	if (push->split == NULL || !split_delivering(push->split, &indication))
		return false;
	*at = (struct hdl_push_indication){indication.pool, indication.element, indication.bytes};
	return true;
}
