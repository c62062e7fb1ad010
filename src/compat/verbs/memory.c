/* Protection domains, regions and windows. */
#include "compat/compat.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

/* Flags that say how memory is used, not who may access it: hints. */
#define HINTS (IBV_ACCESS_HUGETLB | (unsigned)IBV_ACCESS_OPTIONAL_RANGE)

static const struct {
	unsigned ibv;
	uint32_t hdl;
} rights[] = {
        {IBV_ACCESS_LOCAL_WRITE, HDL_ACCESS_LOCAL_WRITE},
        {IBV_ACCESS_REMOTE_WRITE, HDL_ACCESS_REMOTE_WRITE},
        {IBV_ACCESS_REMOTE_READ, HDL_ACCESS_REMOTE_READ},
        {IBV_ACCESS_REMOTE_ATOMIC, HDL_ACCESS_REMOTE_ATOMIC},
        {IBV_ACCESS_MW_BIND, HDL_ACCESS_BIND},
        {IBV_ACCESS_ZERO_BASED, HDL_ACCESS_ZERO_BASED},
};

#define RIGHTS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED)

uint32_t compat_access(unsigned flags)
{
	uint32_t access = 0;
	for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
		if (flags & rights[i].ibv)
			access |= rights[i].hdl;
	return access;
}

unsigned compat_access_back(uint32_t access)
{
	unsigned flags = 0;
	for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
		if (access & rights[i].hdl)
			flags |= rights[i].ibv;
	return flags;
}

/* --- protection domains --- */

void compat_pd_use(struct ibv_pd *pd)
{
	atomic_fetch_add(&compat_pd(pd)->users, 1);
}

void compat_pd_leave(struct ibv_pd *pd)
{
	uint32_t users = atomic_fetch_sub(&compat_pd(pd)->users, 1);
	assert(users > 0); /* pairs with compat_pd_use() */
	(void)users;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	if (!compat_live(OBJECT_CONTEXT, context))
		return compat_fail(EINVAL);
	struct compat_pd *pd = calloc(1, sizeof(*pd));
	if (pd == NULL)
		return compat_fail(ENOMEM);
	pd->ibv.context = context;
	int error = -hdl_pd_create(compat_context(context)->adapter, &pd->hdl);
	if (error != 0) {
		free(pd);
		return compat_fail(error);
	}
	pd->ibv.handle = compat_live_add(&pd->live, OBJECT_PD, &pd->ibv);
	return &pd->ibv;
}

int compat_end_in_pd(struct live *live, struct ibv_context *context, struct ibv_pd *pd,
                     int (*destroy)(void *below), void *below)
{
	bool inherited = compat_inherited(context);
	int error = compat_live_end(live, inherited ? 0 : -destroy(below));
	if (error == 0 && !inherited)
		compat_pd_leave(pd);
	return error;
}

static int end_pd(struct compat_pd *pd)
{
	if (compat_inherited(pd->ibv.context))
		return 0;
	if (atomic_load(&pd->users) > 0)
		return EBUSY;
	if (pd->of == NULL)
		return -hdl_pd_destroy(pd->hdl);
	compat_pd_leave(&pd->of->ibv);
	if (pd->td != NULL)
		atomic_fetch_sub(&pd->td->users, 1);
	return 0;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct live *live = compat_live_take(OBJECT_PD, ibv);
	if (live == NULL)
		return compat_error(EINVAL);
	int error = compat_live_end(live, end_pd(compat_pd(ibv)));
	if (error == 0)
		free(compat_pd(ibv));
	return error;
}

/* A thread domain is a promise that only one thread at a time uses the objects created with it.
 * Nothing here needs the promise: an uncontended lock costs a few nanoseconds, and the adapter's
 * own thread takes it from time to time in any case. */
struct ibv_td *compat_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	if (!compat_live(OBJECT_CONTEXT, context) || attr == NULL || attr->comp_mask != 0)
		return compat_fail(EINVAL);
	struct compat_td *td = calloc(1, sizeof(*td));
	if (td == NULL)
		return compat_fail(ENOMEM);
	td->ibv.context = context;
	compat_live_add(&td->live, OBJECT_TD, &td->ibv);
	return &td->ibv;
}

int compat_dealloc_td(struct ibv_td *ibv)
{
	struct compat_td *td = (struct compat_td *)ibv;
	struct live *live = compat_live_take(OBJECT_TD, ibv);
	if (live == NULL)
		return compat_error(EINVAL);
	bool busy = !compat_inherited(ibv->context) && atomic_load(&td->users) > 0;
	int error = compat_live_end(live, busy ? EBUSY : 0);
	if (error == 0)
		free(td);
	return error;
}

/* The program's own allocators are for queues that hardware reads; here they would never be
 * called. */
struct ibv_pd *compat_alloc_parent_domain(struct ibv_context *context,
                                          struct ibv_parent_domain_init_attr *attr)
{
	if (attr == NULL || !compat_live(OBJECT_PD, attr->pd) ||
	    (attr->td != NULL && !compat_live(OBJECT_TD, attr->td)) ||
	    attr->pd->context != context || compat_pd(attr->pd)->of != NULL)
		return compat_fail(EINVAL);
	if (attr->comp_mask & ~(uint32_t)IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		return compat_fail(EOPNOTSUPP);
	struct compat_pd *pd = calloc(1, sizeof(*pd));
	if (pd == NULL)
		return compat_fail(ENOMEM);
	pd->ibv.context = context;
	pd->of = compat_pd(attr->pd);
	pd->hdl = pd->of->hdl;
	pd->td = (struct compat_td *)attr->td;
	compat_pd_use(attr->pd);
	if (pd->td != NULL)
		atomic_fetch_add(&pd->td->users, 1);
	pd->ibv.handle = compat_live_add(&pd->live, OBJECT_PD, &pd->ibv);
	return &pd->ibv;
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	(void)context, (void)handle;
	return compat_fail(EOPNOTSUPP);
}

/* Imports always fail, so there is nothing to undo. */
void ibv_unimport_pd(struct ibv_pd *pd)
{
	(void)pd;
}

/* --- regions --- */

static int judge_access(unsigned flags)
{
	if (flags & IBV_ACCESS_ON_DEMAND)
		return EOPNOTSUPP;
	return flags & ~(RIGHTS | HINTS) ? EINVAL : 0;
}

/* A region whose first byte has the address @iova instead of its own: heddle.h offers that for page
 * lists only. */
static int register_pages(struct hdl_pd *pd, void *addr, size_t length, uint64_t iova,
                          uint32_t access, struct hdl_mr **out)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = (uint64_t)(uintptr_t)addr;
	if (length == 0 || length > UINT64_MAX - start - page || length > UINT64_MAX - iova)
		return EINVAL;
	uint64_t offset = start % page;
	uint64_t count = (offset + length + page - 1) / page;
	if (count > UINT32_MAX)
		return ENOMEM;
	uint64_t *pages = malloc(count * sizeof(*pages));
	if (pages == NULL)
		return ENOMEM;
	for (uint64_t i = 0; i < count; i++)
		pages[i] = start - offset + i * page;
	struct hdl_register reg = {.pages = pages,
	                           .num_pages = (uint32_t)count,
	                           .page_shift = (uint8_t)__builtin_ctzll(page),
	                           .first_offset = offset,
	                           .length = length,
	                           .iova = iova,
	                           .access = access};
	int error = -hdl_mr_register_pages(pd, &reg, out);
	free(pages);
	return error;
}

static int register_memory(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                           unsigned flags, struct hdl_mr **out)
{
	int error = judge_access(flags);
	if (error != 0)
		return error;
	/* An owner may always read its own memory; verbs have no flag for this. */
	uint32_t access = compat_access(flags) | HDL_ACCESS_LOCAL_READ;
	if (flags & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	if (iova == 0)
		access |= HDL_ACCESS_ZERO_BASED;
	/* No address in a region of length 0 is ever used. */
	if (length == 0 || iova == 0 || iova == (uint64_t)(uintptr_t)addr)
		return -hdl_mr_register(compat_pd(pd)->hdl, addr, length, access, out);
	return register_pages(compat_pd(pd)->hdl, addr, length, iova, access, out);
}

static void name_region(struct compat_mr *mr, struct ibv_pd *pd, void *addr, size_t length)
{
	compat_pd_use(pd);
	if (mr->ibv.pd != NULL)
		compat_pd_leave(mr->ibv.pd);
	mr->ibv.pd = pd;
	mr->ibv.addr = addr;
	mr->ibv.length = length;
	mr->ibv.lkey = mr->ibv.rkey = hdl_mr_key(mr->hdl).v;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned int access)
{
	if (!compat_live(OBJECT_PD, pd))
		return compat_fail(EINVAL);
	struct compat_mr *mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return compat_fail(ENOMEM);
	mr->ibv.context = pd->context;
	mr->access = access;
	int error = register_memory(pd, addr, length, iova, access, &mr->hdl);
	if (error != 0) {
		free(mr);
		return compat_fail(error);
	}
	name_region(mr, pd, addr, length);
	mr->ibv.handle = compat_live_add(&mr->live, OBJECT_MR, &mr->ibv);
	return &mr->ibv;
}

/* It contains every address, and only requests of the program itself may use its key. The remote
 * key grants nothing, but no other object has it. */
struct ibv_mr *compat_alloc_null_mr(struct ibv_pd *pd)
{
	if (!compat_live(OBJECT_PD, pd))
		return compat_fail(EINVAL);
	struct compat_mr *mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return compat_fail(ENOMEM);
	mr->ibv.context = pd->context;
	mr->is_null = true;
	int error = -hdl_mr_alloc_null(compat_pd(pd)->hdl, &mr->hdl);
	if (error != 0) {
		free(mr);
		return compat_fail(error);
	}
	name_region(mr, pd, NULL, SIZE_MAX);
	mr->ibv.handle = compat_live_add(&mr->live, OBJECT_MR, &mr->ibv);
	return &mr->ibv;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uint64_t)(uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                               int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access)
{
	(void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
	return compat_fail(EOPNOTSUPP);
}

/* A region keeps its keys if Heddle can change it in place. Otherwise (the old or the new region
 * has another iova than its address) a new one is registered before the old one is deregistered,
 * and the keys change, which ibv_rereg_mr(3) allows. Either way, a call that fails leaves the
 * region as it was. */
static int change_region(struct compat_mr *mr, struct ibv_pd *pd, void *addr, size_t length,
                         unsigned flags)
{
	int error = judge_access(flags);
	if (error != 0)
		return error;
	error = -hdl_mr_reregister(mr->hdl, compat_pd(pd)->hdl, addr, length,
	                           compat_access(flags) | HDL_ACCESS_LOCAL_READ);
	if (error != HDL_ENOTSUP)
		return error;
	struct hdl_mr *fresh;
	error = register_memory(pd, addr, length, (uint64_t)(uintptr_t)addr, flags, &fresh);
	if (error != 0)
		return error;
	error = -hdl_mr_deregister(mr->hdl);
	if (error != 0)
		hdl_mr_deregister(fresh);
	else
		mr->hdl = fresh;
	return error;
}

int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t length,
                 int access)
{
	struct compat_mr *mr = compat_mr(ibv);
	if (!compat_live(OBJECT_MR, ibv) || mr->is_null || flags == 0 ||
	    (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
	    ((flags & IBV_REREG_MR_CHANGE_PD) && !compat_live(OBJECT_PD, pd))) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (!(flags & IBV_REREG_MR_CHANGE_PD))
		pd = ibv->pd;
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		addr = ibv->addr;
		length = ibv->length;
	}
	unsigned rights_asked = flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned)access : mr->access;
	int error = change_region(mr, pd, addr, length, rights_asked);
	if (error != 0) {
		errno = error;
		return IBV_REREG_MR_ERR_INPUT;
	}
	mr->access = rights_asked;
	name_region(mr, pd, addr, length);
	return 0;
}

static int end_mr(void *below)
{
	return hdl_mr_deregister(below);
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct live *live = compat_live_take(OBJECT_MR, ibv);
	if (live == NULL)
		return compat_error(EINVAL);
	int error = compat_end_in_pd(live, ibv->context, ibv->pd, end_mr, compat_mr(ibv)->hdl);
	if (error == 0)
		free(compat_mr(ibv));
	return error;
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	(void)pd, (void)handle;
	return compat_fail(EOPNOTSUPP);
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	(void)mr;
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	(void)context, (void)handle;
	return compat_fail(EOPNOTSUPP);
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	(void)dm;
}

/* Fork needs no precautions (ibv_is_fork_initialized()). */
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);
COMPAT_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

COMPAT_EXPORT int ibv_dofork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

/* --- windows --- */

struct ibv_mw *compat_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	if (!compat_live(OBJECT_PD, pd) || (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2))
		return compat_fail(EINVAL);
	struct compat_mw *mw = calloc(1, sizeof(*mw));
	if (mw == NULL)
		return compat_fail(ENOMEM);
	mw->ibv.context = pd->context;
	mw->ibv.pd = pd;
	mw->ibv.type = type;
	int error = -hdl_mw_alloc(compat_pd(pd)->hdl,
	                          type == IBV_MW_TYPE_1 ? HDL_MW_TYPE_1 : HDL_MW_TYPE_2, &mw->hdl);
	if (error != 0) {
		free(mw);
		return compat_fail(error);
	}
	mw->ibv.rkey = hdl_mw_key(mw->hdl).v;
	compat_pd_use(pd);
	mw->ibv.handle = compat_live_add(&mw->live, OBJECT_MW, &mw->ibv);
	return &mw->ibv;
}

static int end_mw(void *below)
{
	return hdl_mw_free(below);
}

int compat_dealloc_mw(struct ibv_mw *ibv)
{
	struct live *live = compat_live_take(OBJECT_MW, ibv);
	if (live == NULL)
		return compat_error(EINVAL);
	int error = compat_end_in_pd(live, ibv->context, ibv->pd, end_mw, compat_mw(ibv)->hdl);
	if (error == 0)
		free(compat_mw(ibv));
	return error;
}

/* ibv_bind_mw(): a type 1 window, for which the adapter picks the new key: the next instance. */
int compat_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {.wr_id = bind->wr_id,
	                         .opcode = IBV_WR_BIND_MW,
	                         .send_flags = bind->send_flags,
	                         .bind_mw = {.mw = mw,
	                                     .rkey = ibv_inc_rkey(mw->rkey),
	                                     .bind_info = bind->bind_info}};
	struct ibv_send_wr *bad;
	int error = compat_post_send(qp, &wr, &bad);
	if (error == 0)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}
