/* Protection domains, regions and windows. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "adapter/adapter.h"
#include "adapter/reach/rights.h"

#define NULL_PAGE_SHIFT 16u /* page size of a region without memory */

#define REMOTE_RIGHTS (HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)
#define WINDOW_RIGHTS (REMOTE_RIGHTS | HDL_ACCESS_ONE_TOUCH | HDL_ACCESS_ZERO_BASED)

int hdl_pd_create(struct hdl_adapter *adapter, struct hdl_pd **out)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || out == NULL)
		return -HDL_EINVAL;
	struct hdl_pd *pd = calloc(1, sizeof(*pd));
	if (pd == NULL)
		return -HDL_ENOMEM;
	adapter_lock(adapter);
	size_t number = bitmap_find_clear(&adapter->objects.pd_map, adapter->objects.pd_rover);
	if (number != BITMAP_NONE) {
		bitmap_set(&adapter->objects.pd_map, number);
		adapter->objects.pd_rover = (uint32_t)(number + 1) % HDL_MAX_PD;
	}
	adapter_unlock(adapter);
	if (number == BITMAP_NONE) {
		free(pd);
		return why_not(-HDL_ENOMEM, "cannot create a protection domain: all %u are in use",
		               HDL_MAX_PD);
	}
	pd->magic = MAGIC_PD;
	pd->number = (uint32_t)number;
	pd->adapter = adapter;
	atomic_fetch_add(&adapter->objects.count, 1);
	*out = pd;
	return 0;
}

int hdl_pd_destroy(struct hdl_pd *pd)
{
	if (pd == NULL || pd->magic != MAGIC_PD)
		return -HDL_EINVAL;
	if (atomic_load(&pd->users) > 0)
		return -HDL_EBUSY;
	adapter_lock(pd->adapter);
	bitmap_clear(&pd->adapter->objects.pd_map, pd->number);
	adapter_unlock(pd->adapter);
	atomic_fetch_sub(&pd->adapter->objects.count, 1);
	pd->magic = 0;
	free(pd);
	return 0;
}

/* --- regions --- */

/* Are the rights consistent? A peer must not have a right that the owner's own adapter does not
 * have. */
static bool rights_fit(uint32_t access)
{
	if ((access & ~HDL_ACCESS_ALL) != 0)
		return false;
	if ((access & (HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)) != 0 &&
	    (access & HDL_ACCESS_LOCAL_WRITE) == 0)
		return false;
	return true;
}

static bool needs_write(uint32_t access)
{
	return (access &
	        (HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)) != 0;
}

static struct hdl_mr *new_mr(struct hdl_pd *pd)
{
	struct hdl_mr *mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return NULL;
	mr->magic = MAGIC_MR;
	mr->pd = pd;
	atomic_fetch_add(&pd->users, 1);
	return mr;
}

static int mr_made(struct hdl_mr *mr, int result, struct hdl_mr **out)
{
	if (result != 0) {
		uint32_t most = mr->pd->adapter->objects.max_mr;
		atomic_fetch_sub(&mr->pd->users, 1);
		free(mr);
		return why_not(result,
		               "cannot register memory: all %u regions and windows are in use, or "
		               "memory is short",
		               most);
	}
	*out = mr;
	return 0;
}

/* Can peers map the memory that is about to be registered? Only peers in other processes
 * benefit. */
static bool may_map(struct hdl_adapter *adapter, uint64_t host, uint64_t length,
                    struct segment *found)
{
	unmapped_settle(adapter);
	if (length == 0 || adapter->peers.segments.pagemap < 0)
		return false;
	adapter_lock(adapter);
	bool wanted = segment_wanted(&adapter->peers.segments, host, length);
	adapter_unlock(adapter);
	if (!wanted || !file_behind(adapter->peers.segments.pagemap, host, length, found))
		return false;
	unmapped_watch(adapter);
	rights_watch();
	return true;
}

int hdl_mr_register(struct hdl_pd *pd, void *addr, size_t length, uint32_t access,
                    struct hdl_mr **out)
{
	uint64_t host = (uint64_t)(uintptr_t)addr;
	if (pd == NULL || pd->magic != MAGIC_PD || out == NULL)
		return -HDL_EINVAL;
	if (length > HDL_MAX_MR_LENGTH || length > UINT64_MAX - host)
		return why_not(-HDL_EINVAL, "cannot register memory: %zu bytes at %p cannot be one",
		               length, addr);
	if (!rights_fit(access))
		return why_not(-HDL_EINVAL,
		               "cannot register memory: the rights 0x%x contradict each other; "
		               "REMOTE_WRITE and "
		               "REMOTE_ATOMIC need LOCAL_WRITE",
		               access);
	int result = fault_install();
	if (result == 0)
		result = fault_probe(host, length, needs_write(access));
	if (result != 0)
		return why_not(result, "cannot register memory: %zu bytes at %p, to be read%s",
		               length, addr, needs_write(access) ? " and written" : "");
	struct hdl_mr *mr = new_mr(pd);
	if (mr == NULL)
		return -HDL_ENOMEM;
	struct tpt_region region = {.pd = pd->number,
	                            .access = access,
	                            .iova = access & HDL_ACCESS_ZERO_BASED ? 0 : host,
	                            .host = host,
	                            .length = length};
	mr->probed = access;
	struct segment found;
	bool shared = may_map(pd->adapter, host, length, &found);
	adapter_lock(pd->adapter);
	if (length != 0)
		mr->segment = segment_take(&pd->adapter->peers.segments, host, length,
		                           shared ? &found : NULL);
	result = tpt_insert_run(&pd->adapter->tpt, &region, &mr->key);
	if (result != 0)
		segment_give(&pd->adapter->peers.segments, mr->segment);
	adapter_unlock(pd->adapter);
	return mr_made(mr, result, out);
}

/* Is every page that @reg names mapped with the rights? */
static int probe_pages(const struct hdl_register *reg)
{
	uint64_t left = reg->length, offset = reg->first_offset;
	uint64_t page_bytes = (uint64_t)1 << reg->page_shift;
	for (uint32_t i = 0; i < reg->num_pages && left > 0; i++, offset = 0) {
		uint64_t bytes = page_bytes - offset < left ? page_bytes - offset : left;
		if (fault_probe(reg->pages[i] + offset, bytes, needs_write(reg->access)) != 0)
			return -HDL_EFAULT;
		left -= bytes;
	}
	return left == 0 ? 0 : -HDL_EINVAL;
}

static bool list_fits(const struct hdl_register *reg)
{
	return reg != NULL && reg->pages != NULL && reg->num_pages != 0 &&
	       reg->page_shift >= TPT_MIN_PAGE_SHIFT && reg->page_shift <= TPT_MAX_PAGE_SHIFT &&
	       reg->first_offset < (uint64_t)1 << reg->page_shift && reg->length != 0 &&
	       reg->length <= HDL_MAX_MR_LENGTH && rights_fit(reg->access);
}

int hdl_mr_register_pages(struct hdl_pd *pd, const struct hdl_register *reg, struct hdl_mr **out)
{
	if (pd == NULL || pd->magic != MAGIC_PD || out == NULL)
		return -HDL_EINVAL;
	if (!list_fits(reg))
		return why_not(-HDL_EINVAL, "cannot register memory: page list, page size, offset, "
		                            "length and rights do not fit each other");
	int result = fault_install();
	if (result == 0)
		result = probe_pages(reg);
	if (result != 0)
		return result;
	struct hdl_mr *mr = new_mr(pd);
	if (mr == NULL)
		return -HDL_ENOMEM;
	mr->probed = reg->access;
	unmapped_settle(pd->adapter);
	adapter_lock(pd->adapter);
	result = tpt_insert_pages(&pd->adapter->tpt, pd->number, TPT_REGION, 0, reg, &mr->key);
	adapter_unlock(pd->adapter);
	return mr_made(mr, result, out);
}

int hdl_mr_alloc(struct hdl_pd *pd, uint32_t max_pages, struct hdl_mr **out)
{
	if (pd == NULL || pd->magic != MAGIC_PD || out == NULL)
		return -HDL_EINVAL;
	if (max_pages == 0 || max_pages > HDL_MAX_REGISTER_PAGES)
		return why_not(-HDL_EINVAL,
		               "cannot create a region of %u pages; 1 to %u can be had", max_pages,
		               HDL_MAX_REGISTER_PAGES);
	struct hdl_mr *mr = new_mr(pd);
	if (mr == NULL)
		return -HDL_ENOMEM;
	mr->max_pages = max_pages;
	adapter_lock(pd->adapter);
	int result =
	        tpt_insert_empty(&pd->adapter->tpt, pd->number, TPT_REGION, max_pages, &mr->key);
	adapter_unlock(pd->adapter);
	return mr_made(mr, result, out);
}

/* Two pages for regions without memory, created by the first such region and kept: a read-only page
 * of zeroes, and a page that is written but never read. NULL: no memory. */
static void *null_pages(void)
{
	static _Atomic(void *) pages;
	const size_t page_bytes = (size_t)1 << NULL_PAGE_SHIFT;
	void *there = atomic_load(&pages);
	if (there != NULL)
		return there;
	void *made = mmap(NULL, 2 * page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED)
		return NULL;
	if (mprotect((char *)made + page_bytes, page_bytes, PROT_READ | PROT_WRITE) == 0 &&
	    atomic_compare_exchange_strong(&pages, &there, made))
		return made;
	munmap(made, 2 * page_bytes); /* another thread was faster, or there is no memory */
	return there;
}

int hdl_mr_alloc_null(struct hdl_pd *pd, struct hdl_mr **out)
{
	if (pd == NULL || pd->magic != MAGIC_PD || out == NULL)
		return -HDL_EINVAL;
	void *pages = null_pages();
	int result = pages != NULL ? fault_install() : -HDL_ENOMEM;
	if (result != 0)
		return result;
	struct hdl_mr *mr = new_mr(pd);
	if (mr == NULL)
		return -HDL_ENOMEM;
	mr->probed = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE;
	adapter_lock(pd->adapter);
	result = tpt_insert_null(&pd->adapter->tpt, pd->number, (uint64_t)(uintptr_t)pages,
	                         NULL_PAGE_SHIFT, &mr->key);
	adapter_unlock(pd->adapter);
	return mr_made(mr, result, out);
}

int hdl_mr_share(struct hdl_mr *mr, struct hdl_pd *pd, uint32_t access, struct hdl_mr **out)
{
	if (mr == NULL || mr->magic != MAGIC_MR || pd == NULL || pd->magic != MAGIC_PD ||
	    pd->adapter != mr->pd->adapter || out == NULL || !rights_fit(access))
		return -HDL_EINVAL;
	if (needs_write(access) && !needs_write(mr->probed))
		return -HDL_EACCES;
	struct hdl_mr *twin = new_mr(pd);
	if (twin == NULL)
		return -HDL_ENOMEM;
	twin->probed = mr->probed;
	adapter_lock(pd->adapter);
	int result = tpt_insert_shared(&pd->adapter->tpt, mr->key, pd->number, access, &twin->key);
	if (result == 0)
		twin->segment = segment_share(&pd->adapter->peers.segments, mr->segment);
	adapter_unlock(pd->adapter);
	return mr_made(twin, result, out);
}

/* Remove an entry: invalidate it, wait for its users, free it. With the drive lock. */
static int remove_entry(struct hdl_adapter *adapter, struct hdl_key key)
{
	if (tpt_retire(&adapter->tpt, key) != HDL_DETAIL_NONE)
		return -HDL_EBUSY;
	adapter_quiesce(adapter);
	tpt_free(&adapter->tpt, key);
	return 0;
}

int hdl_mr_deregister(struct hdl_mr *mr)
{
	if (mr == NULL || mr->magic != MAGIC_MR)
		return -HDL_EINVAL;
	adapter_lock(mr->pd->adapter);
	int result = remove_entry(mr->pd->adapter, mr->key);
	if (result == 0)
		segment_give(&mr->pd->adapter->peers.segments, mr->segment);
	adapter_unlock(mr->pd->adapter);
	if (result != 0)
		return result;
	atomic_fetch_sub(&mr->pd->users, 1);
	mr->magic = 0;
	free(mr);
	return 0;
}

struct hdl_key hdl_mr_key(const struct hdl_mr *mr)
{
	return tpt_current(&mr->pd->adapter->tpt, mr->key);
}

/* The next key of the entry of @key. Those that were drawn before may still be on their way to the
 * table, so it goes on from the last one, *drawn, and not from what is there now. With the drive
 * lock. */
static struct hdl_key draw_key(const struct tpt *tpt, struct hdl_key key, struct hdl_key *drawn)
{
	*drawn = tpt_fresh(tpt, drawn->v != 0 ? *drawn : tpt_current(tpt, key));
	return *drawn;
}

struct hdl_key hdl_mr_draw_key(struct hdl_mr *mr)
{
	if (mr == NULL || mr->magic != MAGIC_MR || mr->max_pages == 0)
		return (struct hdl_key){0};
	struct hdl_adapter *adapter = mr->pd->adapter;
	adapter_lock(adapter);
	struct hdl_key key = draw_key(&adapter->tpt, mr->key, &mr->drawn);
	adapter_unlock(adapter);
	return key;
}

int hdl_mr_reregister(struct hdl_mr *mr, struct hdl_pd *pd, void *addr, size_t length,
                      uint32_t access)
{
	uint64_t host = (uint64_t)(uintptr_t)addr;
	if (mr == NULL || mr->magic != MAGIC_MR || pd == NULL || pd->magic != MAGIC_PD ||
	    pd->adapter != mr->pd->adapter || length > HDL_MAX_MR_LENGTH ||
	    length > UINT64_MAX - host || !rights_fit(access))
		return -HDL_EINVAL;
	int result = fault_install();
	if (result == 0)
		result = fault_probe(host, length, needs_write(access));
	if (result != 0)
		return result;
	struct tpt_region region = {.pd = pd->number,
	                            .access = access,
	                            .iova = access & HDL_ACCESS_ZERO_BASED ? 0 : host,
	                            .host = host,
	                            .length = length};
	struct hdl_adapter *adapter = pd->adapter;
	struct segment found;
	bool shared = may_map(adapter, host, length, &found);
	adapter_lock(adapter);
	struct segment_ref former = mr->segment;
	struct segment_ref now = {0};
	if (length != 0)
		now = segment_take(&adapter->peers.segments, host, length, shared ? &found : NULL);
	result = tpt_replace_run(&adapter->tpt, mr->key, &region);
	if (result == 0)
		adapter_quiesce(adapter);
	mr->segment = result == 0 ? now : former;
	segment_give(&adapter->peers.segments, result == 0 ? former : now);
	adapter_unlock(adapter);
	if (result != 0)
		return result;
	atomic_fetch_add(&pd->users, 1);
	atomic_fetch_sub(&mr->pd->users, 1);
	mr->pd = pd;
	mr->probed = access;
	return 0;
}

static void tell_gone(void *context, struct hdl_key key)
{
	adapter_event(context, HDL_EVENT_MEMORY_GONE, HDL_DETAIL_GONE, NULL, key);
}

int hdl_segment_update(struct hdl_adapter *adapter, const void *addr, size_t length)
{
	uint64_t host = (uint64_t)(uintptr_t)addr;
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || length > UINT64_MAX - host)
		return -HDL_EINVAL;
	adapter_lock(adapter);
	uint32_t count = tpt_segment_gone(&adapter->tpt, host, length, tell_gone, adapter);
	adapter_quiesce(adapter);
	segment_forget(&adapter->peers.segments, host, length);
	adapter_unlock(adapter);
	return (int)count;
}

/* --- windows --- */

int hdl_mw_alloc(struct hdl_pd *pd, uint32_t type, struct hdl_mw **out)
{
	if (pd == NULL || pd->magic != MAGIC_PD || out == NULL ||
	    (type != HDL_MW_TYPE_1 && type != HDL_MW_TYPE_2))
		return -HDL_EINVAL;
	struct hdl_mw *mw = calloc(1, sizeof(*mw));
	if (mw == NULL)
		return -HDL_ENOMEM;
	adapter_lock(pd->adapter);
	int result = tpt_insert_empty(&pd->adapter->tpt, pd->number, TPT_WINDOW, 0, &mw->key);
	adapter_unlock(pd->adapter);
	if (result != 0) {
		free(mw);
		return why_not(result,
		               "cannot create a window: all %u regions and windows are in use",
		               pd->adapter->objects.max_mr);
	}
	mw->magic = MAGIC_MW;
	mw->type = type;
	mw->pd = pd;
	atomic_fetch_add(&pd->users, 1);
	*out = mw;
	return 0;
}

/* The error code for a refused bind. */
static int bind_error(enum hdl_detail detail)
{
	switch (detail) {
	case HDL_DETAIL_NONE:
		return 0;
	case HDL_DETAIL_ACCESS:
	case HDL_DETAIL_BIND:
		return -HDL_EACCES;
	case HDL_DETAIL_NOT_VALID:
	case HDL_DETAIL_INSTANCE:
	case HDL_DETAIL_TOUCHED:
	case HDL_DETAIL_GONE:
		return -HDL_ESTALE;
	default:
		return -HDL_EINVAL;
	}
}

int hdl_mw_bind(struct hdl_mw *mw, const struct hdl_bind *bind, struct hdl_key *key)
{
	if (mw == NULL || mw->magic != MAGIC_MW || mw->type != HDL_MW_TYPE_1 || bind == NULL ||
	    (bind->access & ~(uint32_t)WINDOW_RIGHTS) != 0)
		return -HDL_EINVAL;
	if (bind->mr == NULL)
		return bind->length == 0 ? hdl_mw_unbind(mw) : -HDL_EINVAL;
	if (bind->mr->magic != MAGIC_MR || bind->mr->pd->adapter != mw->pd->adapter)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = mw->pd->adapter;
	adapter_lock(adapter);
	struct tpt_bind request = {.key = draw_key(&adapter->tpt, mw->key, &mw->drawn),
	                           .region = tpt_current(&adapter->tpt, bind->mr->key),
	                           .pd = mw->pd->number,
	                           .access = bind->access,
	                           .addr = bind->addr,
	                           .length = bind->length,
	                           .rebind = true};
	enum hdl_detail detail = tpt_bind(&adapter->tpt, &request);
	if (detail == HDL_DETAIL_NONE)
		adapter_quiesce(adapter);
	else
		tpt_count(&adapter->tpt, detail);
	adapter_unlock(adapter);
	if (detail == HDL_DETAIL_NONE && key != NULL)
		*key = request.key;
	return bind_error(detail);
}

int hdl_mw_unbind(struct hdl_mw *mw)
{
	if (mw == NULL || mw->magic != MAGIC_MW)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = mw->pd->adapter;
	adapter_lock(adapter);
	/* 0 stands for the owner, which may unbind it from any queue pair. */
	tpt_invalidate(&adapter->tpt, mw->key, mw->pd->number, 0, false);
	adapter_quiesce(adapter);
	adapter_unlock(adapter);
	return 0;
}

int hdl_mw_free(struct hdl_mw *mw)
{
	if (mw == NULL || mw->magic != MAGIC_MW)
		return -HDL_EINVAL;
	adapter_lock(mw->pd->adapter);
	int result = remove_entry(mw->pd->adapter, mw->key);
	adapter_unlock(mw->pd->adapter);
	if (result != 0)
		return result;
	atomic_fetch_sub(&mw->pd->users, 1);
	mw->magic = 0;
	free(mw);
	return 0;
}

struct hdl_key hdl_mw_key(const struct hdl_mw *mw)
{
	return tpt_current(&mw->pd->adapter->tpt, mw->key);
}

struct hdl_key hdl_mw_draw_key(struct hdl_mw *mw)
{
	if (mw == NULL || mw->magic != MAGIC_MW)
		return (struct hdl_key){0};
	struct hdl_adapter *adapter = mw->pd->adapter;
	adapter_lock(adapter);
	struct hdl_key key = draw_key(&adapter->tpt, mw->key, &mw->drawn);
	adapter_unlock(adapter);
	return key;
}
