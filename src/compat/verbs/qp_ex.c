/* The calls of struct ibv_qp_ex: a program builds requests between wr_start and wr_complete, and
 * they are posted together.
 *
 * Requests, scatter/gather entries and inline bytes are in three arrays that grow as needed and are
 * reused, so that building allocates nothing once they are large enough. Arrays move when they
 * grow, so requests hold indices until wr_complete turns these into pointers. wr_complete returns
 * the first error, and in that case nothing is posted (ibv_wr_post(3)). */
#include "compat/compat.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct request {
	struct hdl_send_wr wr;
	size_t first_sge;
	size_t first_byte; /* of inline data, which is one entry */
};

struct builder {
	pthread_mutex_t lock; /* held from wr_start to wr_complete or wr_abort */
	int error;
	uint32_t max_wr, max_sge, max_inline;
	struct request *requests;
	struct hdl_sge *sges;
	unsigned char *bytes;
	size_t request_count, request_room;
	size_t sge_count, sge_room;
	size_t byte_count, byte_room;
};

static struct builder *verbs_qp_ex_of(struct ibv_qp_ex *qp)
{
	return ((struct compat_qp *)qp)->builder;
}

static void verbs_qp_ex_refuse(struct builder *b, int error)
{
	if (b->error == 0)
		b->error = error;
}

/* Make room for @want elements of @size bytes in @array. */
static bool verbs_qp_ex_grow(void *array, size_t *room, size_t want, size_t size)
{
	void *old, *new;
	if (want <= *room)
		return true;
	size_t more = *room * 2 > want ? *room * 2 : want;
	memcpy(&old, array, sizeof(old));
	new = realloc(old, more * size);
	if (new == NULL)
		return false;
	memcpy(array, &new, sizeof(new));
	*room = more;
	assert(want <= *room);
	return true;
}

/* A new request with the wr_id and flags that the program has set; NULL after an error. */
static struct hdl_send_wr *verbs_qp_ex_add(struct ibv_qp_ex *qp, uint32_t opcode)
{
	const unsigned known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
	struct builder *b = verbs_qp_ex_of(qp);
	if (b->error != 0)
		return NULL;
	if (qp->wr_flags & ~known & ~(unsigned)IBV_SEND_INLINE)
		verbs_qp_ex_refuse(b, EINVAL);
	else if (b->request_count == b->max_wr ||
	         !verbs_qp_ex_grow(&b->requests, &b->request_room, b->request_count + 1,
	                           sizeof(*b->requests)))
		verbs_qp_ex_refuse(b, ENOMEM);
	if (b->error != 0)
		return NULL;
	struct request *request = &b->requests[b->request_count++];
	*request = (struct request){.first_sge = b->sge_count, .first_byte = b->byte_count};
	request->wr.wr_id = qp->wr_id;
	request->wr.opcode = opcode;
	request->wr.flags = (qp->wr_flags & IBV_SEND_FENCE ? (uint32_t)HDL_SEND_FENCE : 0u) |
	                    (qp->wr_flags & IBV_SEND_SIGNALED ? (uint32_t)HDL_SEND_SIGNALED : 0u) |
	                    (qp->wr_flags & IBV_SEND_SOLICITED ? (uint32_t)HDL_SEND_SOLICITED : 0u);
	return &request->wr;
}

/* The request that a wr_set_* call refers to; NULL, and an error is noted, when there is none. */
static struct request *last(struct ibv_qp_ex *qp)
{
	struct builder *b = verbs_qp_ex_of(qp);
	if (b->error == 0 && b->request_count == 0)
		verbs_qp_ex_refuse(b, EINVAL);
	return b->error == 0 ? &b->requests[b->request_count - 1] : NULL;
}

/* --- operations --- */

static void wr_send(struct ibv_qp_ex *qp)
{
	verbs_qp_ex_add(qp, HDL_OP_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	struct hdl_send_wr *wr = verbs_qp_ex_add(qp, HDL_OP_SEND_IMM);
	if (wr != NULL)
		wr->imm = imm;
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	struct hdl_send_wr *wr = verbs_qp_ex_add(qp, HDL_OP_SEND_INVALIDATE);
	if (wr != NULL)
		wr->invalidate_key.v = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	struct hdl_send_wr *wr = verbs_qp_ex_add(qp, HDL_OP_INVALIDATE);
	if (wr != NULL)
		wr->invalidate_key.v = rkey;
}

static struct hdl_send_wr *add_rdma(struct ibv_qp_ex *qp, uint32_t opcode, uint32_t rkey,
                                    uint64_t addr)
{
	struct hdl_send_wr *wr = verbs_qp_ex_add(qp, opcode);
	if (wr != NULL) {
		wr->u.rdma.addr = addr;
		wr->u.rdma.key.v = rkey;
	}
	return wr;
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	add_rdma(qp, HDL_OP_READ, rkey, addr);
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	add_rdma(qp, HDL_OP_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct hdl_send_wr *wr = add_rdma(qp, HDL_OP_WRITE_IMM, rkey, addr);
	if (wr != NULL)
		wr->imm = imm;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t compare,
                              uint64_t swap)
{
	struct hdl_send_wr *wr = verbs_qp_ex_add(qp, HDL_OP_COMPARE_SWAP);
	if (wr == NULL)
		return;
	wr->u.atomic.addr = addr;
	wr->u.atomic.key.v = rkey;
	wr->u.atomic.compare_add = compare;
	wr->u.atomic.swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t value)
{
	struct hdl_send_wr *wr = verbs_qp_ex_add(qp, HDL_OP_FETCH_ADD);
	if (wr == NULL)
		return;
	wr->u.atomic.addr = addr;
	wr->u.atomic.key.v = rkey;
	wr->u.atomic.compare_add = value;
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
                       const struct ibv_mw_bind_info *info)
{
	struct hdl_send_wr *wr = verbs_qp_ex_add(qp, HDL_OP_BIND);
	if (wr == NULL)
		return;
	int error = compat_bind(wr, mw, rkey, info);
	if (error != 0)
		verbs_qp_ex_refuse(verbs_qp_ex_of(qp), error);
	else
		mw->rkey = wr->bind.key.v;
}

/* --- what a request works on --- */

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct request *request = last(qp);
	if (request == NULL)
		return;
	request->wr.u.ud.ah = ah != NULL ? compat_ah(ah)->hdl : NULL;
	request->wr.u.ud.qpn = qpn;
	request->wr.u.ud.qkey = qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t number)
{
	struct request *request = last(qp);
	if (request != NULL)
		request->wr.remote_srq = number;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list)
{
	struct builder *b = verbs_qp_ex_of(qp);
	struct request *request = last(qp);
	if (request == NULL)
		return;
	if (count > b->max_sge)
		verbs_qp_ex_refuse(b, EINVAL);
	else if (!verbs_qp_ex_grow(&b->sges, &b->sge_room, b->sge_count + count, sizeof(*b->sges)))
		verbs_qp_ex_refuse(b, ENOMEM);
	if (b->error != 0)
		return;
	for (size_t i = 0; i < count; i++)
		b->sges[b->sge_count + i] = (struct hdl_sge){
		        .addr = list[i].addr, .length = list[i].length, .key = {list[i].lkey}};
	request->first_sge = b->sge_count;
	request->wr.num_sge = (uint32_t)count;
	b->sge_count += count;
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};
	wr_set_sge_list(qp, 1, &sge);
}

/* The bytes are copied now: the program may reuse its buffer before wr_complete. */
static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t count,
                                    const struct ibv_data_buf *list)
{
	struct builder *b = verbs_qp_ex_of(qp);
	struct request *request = last(qp);
	if (request == NULL)
		return;
	size_t length = 0;
	for (size_t i = 0; i < count && length <= b->max_inline; i++)
		length = list[i].length > b->max_inline ? b->max_inline + 1u
		                                        : length + list[i].length;
	if (length > b->max_inline) {
		verbs_qp_ex_refuse(b, EINVAL);
		return;
	}
	if (!verbs_qp_ex_grow(&b->bytes, &b->byte_room, b->byte_count + length, 1) ||
	    !verbs_qp_ex_grow(&b->sges, &b->sge_room, b->sge_count + 1, sizeof(*b->sges))) {
		verbs_qp_ex_refuse(b, ENOMEM);
		return;
	}
	request->first_byte = b->byte_count;
	for (size_t i = 0; i < count; i++) {
		if (list[i].length > 0)
			memcpy(b->bytes + b->byte_count, list[i].addr, list[i].length);
		b->byte_count += list[i].length;
	}
	request->first_sge = b->sge_count;
	request->wr.flags |= HDL_SEND_INLINE;
	request->wr.num_sge = 1;
	b->sges[b->sge_count++] = (struct hdl_sge){.length = (uint32_t)length};
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length)
{
	struct ibv_data_buf buffer = {.addr = addr, .length = length};
	wr_set_inline_data_list(qp, 1, &buffer);
}

/* --- the beginning and the end --- */

static void wr_start(struct ibv_qp_ex *qp)
{
	struct builder *b = verbs_qp_ex_of(qp);
	pthread_mutex_lock(&b->lock);
	b->error = 0;
	b->request_count = b->sge_count = b->byte_count = 0;
}

static void wr_abort(struct ibv_qp_ex *qp)
{
	pthread_mutex_unlock(&verbs_qp_ex_of(qp)->lock);
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	struct builder *b = verbs_qp_ex_of(qp);
	int error = b->error, built = error;
	for (size_t i = 0; error == 0 && i < b->request_count; i++) {
		struct request *request = &b->requests[i];
		/* Pairs with the wr_set_* calls: what the indices name has been filled. */
		assert(request->first_sge + request->wr.num_sge <= b->sge_count &&
		       request->first_byte <= b->byte_count);
		struct hdl_sge *list =
		        request->wr.num_sge > 0 ? &b->sges[request->first_sge] : NULL;
		if (request->wr.flags & HDL_SEND_INLINE)
			list->addr = (uint64_t)(uintptr_t)(b->bytes + request->first_byte);
		request->wr.sg_list = list;
		request->wr.next = i + 1 < b->request_count ? &b->requests[i + 1].wr : NULL;
	}
	if (error == 0 && b->request_count > 0) {
		const struct hdl_send_wr *bad;
		int result = hdl_post_send(((struct compat_qp *)qp)->hdl, &b->requests[0].wr, &bad);
		error = result == -HDL_EMSGSIZE && qp->qp_base.qp_type == IBV_QPT_UD
		                ? EMSGSIZE
		                : compat_post_error(result);
	}
	pthread_mutex_unlock(&b->lock);
	if (built != 0)
		compat_refuse(built,
		              "ibv_wr_complete: queue pair 0x%06x: one of the requests is wrong or "
		              "finds no room, so none is posted: %s",
		              qp->qp_base.qp_num, strerror(built));
	return error;
}

/* --- making --- */

#define SENDS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define UC_OPS                                                                    \
	(SENDS | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV)
#define RC_OPS                                                                   \
	(UC_OPS | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static void verbs_qp_ex_fill_calls(struct ibv_qp_ex *qp, uint64_t ops)
{
#define CALL(bit, call)                  \
	do {                             \
		if (ops & (bit))         \
			qp->call = call; \
	} while (0)
	CALL(IBV_QP_EX_WITH_RDMA_WRITE, wr_rdma_write);
	CALL(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, wr_rdma_write_imm);
	CALL(IBV_QP_EX_WITH_SEND, wr_send);
	CALL(IBV_QP_EX_WITH_SEND_WITH_IMM, wr_send_imm);
	CALL(IBV_QP_EX_WITH_RDMA_READ, wr_rdma_read);
	CALL(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, wr_atomic_cmp_swp);
	CALL(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, wr_atomic_fetch_add);
	CALL(IBV_QP_EX_WITH_LOCAL_INV, wr_local_inv);
	CALL(IBV_QP_EX_WITH_BIND_MW, wr_bind_mw);
	CALL(IBV_QP_EX_WITH_SEND_WITH_INV, wr_send_inv);
#undef CALL
	if (qp->qp_base.qp_type == IBV_QPT_UD)
		qp->wr_set_ud_addr = wr_set_ud_addr;
	if (qp->qp_base.qp_type == IBV_QPT_XRC_SEND)
		qp->wr_set_xrc_srqn = wr_set_xrc_srqn;
	qp->wr_set_sge = wr_set_sge;
	qp->wr_set_sge_list = wr_set_sge_list;
	qp->wr_set_inline_data = wr_set_inline_data;
	qp->wr_set_inline_data_list = wr_set_inline_data_list;
	qp->wr_start = wr_start;
	qp->wr_complete = wr_complete;
	qp->wr_abort = wr_abort;
}

int compat_builder_create(struct compat_qp *qp, uint64_t ops)
{
	static const uint64_t by_type[] = {[IBV_QPT_RC] = RC_OPS,
	                                   [IBV_QPT_UC] = UC_OPS,
	                                   [IBV_QPT_UD] = SENDS,
	                                   [IBV_QPT_XRC_SEND] = RC_OPS,
	                                   [IBV_QPT_XRC_RECV] = 0};
	uint64_t offered = by_type[qp->ibv.qp_base.qp_type];
	struct hdl_qp_attr attr;
	struct hdl_qp_init_attr init;
	if (ops & ~offered)
		return EOPNOTSUPP;
	int error = -hdl_qp_query(qp->hdl, &attr, &init);
	if (error != 0)
		return error;
	qp->builder = calloc(1, sizeof(*qp->builder));
	if (qp->builder == NULL)
		return ENOMEM;
	pthread_mutex_init(&qp->builder->lock, NULL);
	qp->builder->max_wr = init.cap.max_send_wr;
	qp->builder->max_sge = init.cap.max_send_sge;
	qp->builder->max_inline = init.cap.max_inline;
	verbs_qp_ex_fill_calls(&qp->ibv, ops);
	return 0;
}

void compat_builder_destroy(struct compat_qp *qp)
{
	struct builder *b = qp->builder;
	if (b == NULL)
		return;
	pthread_mutex_destroy(&b->lock);
	free(b->requests);
	free(b->sges);
	free(b->bytes);
	free(b);
	qp->builder = NULL;
}
