/* Queue pairs: create, modify, query, destroy. */
#include "compat/compat.h"

#include <stdlib.h>
#include <string.h>

static int type_of(enum ibv_qp_type type, uint32_t *to)
{
	switch (type) {
	case IBV_QPT_RC:
		*to = HDL_QP_RC;
		return 0;
	case IBV_QPT_UC:
		*to = HDL_QP_UC;
		return 0;
	case IBV_QPT_UD:
		*to = HDL_QP_UD;
		return 0;
	case IBV_QPT_XRC_SEND:
		*to = HDL_QP_XRC_INI;
		return 0;
	case IBV_QPT_XRC_RECV:
		*to = HDL_QP_XRC_TGT;
		return 0;
	default:
		return compat_refuse(EOPNOTSUPP,
		                     "ibv_create_qp: qp_type is %d; there are RC, UC, UD "
		                     "and XRC",
		                     (int)type);
	}
}

static void cap_back(const struct hdl_qp_cap *from, struct ibv_qp_cap *to)
{
	*to = (struct ibv_qp_cap){.max_send_wr = from->max_send_wr,
	                          .max_recv_wr = from->max_recv_wr,
	                          .max_send_sge = from->max_send_sge,
	                          .max_recv_sge = from->max_recv_sge,
	                          .max_inline_data = from->max_inline};
}

static bool takes_receives(const struct ibv_qp_init_attr_ex *attr)
{
	return attr->qp_type != IBV_QPT_XRC_SEND && attr->qp_type != IBV_QPT_XRC_RECV;
}

static int verbs_qp_judge_init(const struct ibv_qp_init_attr_ex *attr)
{
	bool target = attr->qp_type == IBV_QPT_XRC_RECV;
	uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
	                 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if (target)
		known |= IBV_QP_INIT_ATTR_XRCD;
	bool with_pd = (attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0;
	if (target ? !(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) ||
	                     !compat_live(OBJECT_XRCD, attr->xrcd)
	           : !with_pd || !compat_live(OBJECT_PD, attr->pd))
		return compat_refuse(EINVAL, "ibv_create_qp: it needs %s",
		                     target ? "an XRC domain" : "a protection domain");
	if (with_pd && !compat_live(OBJECT_PD, attr->pd))
		return compat_refuse(EINVAL, "ibv_create_qp: there is no such protection domain");
	if ((attr->comp_mask & ~known) != 0 ||
	    ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags != 0))
		return compat_refuse(EOPNOTSUPP,
		                     "ibv_create_qp_ex: comp_mask 0x%x has bits not offered "
		                     "(0x%x), or create_flags are not 0",
		                     attr->comp_mask, attr->comp_mask & ~known);
	if ((!target && !compat_live(OBJECT_CQ, attr->send_cq)) ||
	    (takes_receives(attr) && !compat_live(OBJECT_CQ, attr->recv_cq)))
		return compat_refuse(EINVAL, "ibv_create_qp: a completion queue is missing");
	if (takes_receives(attr) && attr->srq != NULL && !compat_live(OBJECT_SRQ, attr->srq))
		return compat_refuse(EINVAL,
		                     "ibv_create_qp: there is no such shared receive queue");
	return 0;
}

/* Create the queue pair below; its real limits go back into @attr. */
static int make_below(struct compat_qp *qp, struct ibv_qp_init_attr_ex *attr)
{
	bool target = attr->qp_type == IBV_QPT_XRC_RECV, receives = takes_receives(attr);
	struct hdl_qp_init_attr init = {
	        .send_cq = target ? NULL : compat_cq(attr->send_cq)->hdl,
	        .recv_cq = receives ? compat_cq(attr->recv_cq)->hdl : NULL,
	        .srq = receives && attr->srq != NULL ? compat_srq(attr->srq)->hdl : NULL,
	        .context = qp,
	        .cap = {.max_send_wr = attr->cap.max_send_wr,
	                .max_recv_wr = attr->srq != NULL ? 0 : attr->cap.max_recv_wr,
	                .max_send_sge = attr->cap.max_send_sge,
	                .max_recv_sge = attr->srq != NULL ? 0 : attr->cap.max_recv_sge,
	                .max_inline = attr->cap.max_inline_data},
	        .signal_all = attr->sq_sig_all != 0,
	};
	int error = type_of(attr->qp_type, &init.type);
	if (error != 0)
		return error;
	init.iwarp = init.type == HDL_QP_RC &&
	             compat_device_of(attr->pd->context)->ibv.transport_type == IBV_TRANSPORT_IWARP;
	if (target) {
		init.xrcd = compat_xrcd_use(attr->xrcd);
		error = -hdl_qp_create(NULL, &init, &qp->hdl);
		if (error == 0 && (error = compat_share_qp(qp->hdl, init.xrcd)) != 0)
			hdl_qp_destroy(qp->hdl);
		if (error != 0)
			compat_xrcd_leave(attr->xrcd);
		else
			qp->xrcd = attr->xrcd;
	} else {
		error = -hdl_qp_create(compat_pd(attr->pd)->hdl, &init, &qp->hdl);
	}
	if (error == 0)
		cap_back(&init.cap, &attr->cap);
	return error;
}

static int end_qp(void *below)
{
	return hdl_qp_destroy(below);
}

/* Destroy what is below @qp, which the program has not seen. */
static void drop_below(struct compat_qp *qp)
{
	if (qp->xrcd == NULL) {
		hdl_qp_destroy(qp->hdl);
		return;
	}
	compat_unshare_qp(qp->hdl);
	compat_xrcd_leave(qp->xrcd);
}

/* Fill in what the program sees of @qp; its context, its type and the objects it uses are set
 * already. */
static struct ibv_qp *verbs_qp_show(struct compat_qp *qp)
{
	struct ibv_qp *ibv = &qp->ibv.qp_base;
	ibv->qp_num = ibv->handle = hdl_qp_number(qp->hdl);
	ibv->state = IBV_QPS_RESET;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	qp->target = (struct target){.below = qp->hdl,
	                             .context = compat_context(ibv->context),
	                             .kind = TARGET_QP,
	                             .seen = ibv};
	compat_target_add(&qp->target);
	compat_live_add(&qp->live, OBJECT_QP, ibv);
	return ibv;
}

struct ibv_qp *compat_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	int error = verbs_qp_judge_init(attr);
	if (error != 0)
		return compat_fail(error);
	struct compat_qp *qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return compat_fail(ENOMEM);
	struct ibv_qp *ibv = &qp->ibv.qp_base;
	error = make_below(qp, attr);
	if (error == 0 && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) {
		ibv->qp_type = attr->qp_type;
		error = compat_builder_create(qp, attr->send_ops_flags);
		if (error != 0)
			drop_below(qp);
	}
	if (error != 0) {
		free(qp);
		return compat_fail(error);
	}
	memcpy(&qp->init, attr,
	       sizeof(qp->init)); /* the first members of both structures are the same */
	ibv->context = context;
	ibv->qp_context = attr->qp_context;
	ibv->qp_type = attr->qp_type;
	/* For a target this is only what the program passed, which it can read back; requests are
	 * checked against the target's domain. */
	if (attr->comp_mask & IBV_QP_INIT_ATTR_PD)
		ibv->pd = attr->pd;
	if (qp->xrcd == NULL) {
		ibv->send_cq = attr->send_cq;
		compat_pd_use(ibv->pd);
	}
	if (takes_receives(attr)) {
		ibv->recv_cq = attr->recv_cq;
		ibv->srq = attr->srq;
	}
	return verbs_qp_show(qp);
}

struct ibv_qp *compat_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	const uint32_t needed =
	        IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED)
		return compat_fail(EOPNOTSUPP);
	if ((attr->comp_mask & needed) != needed || !compat_live(OBJECT_XRCD, attr->xrcd) ||
	    attr->qp_type != IBV_QPT_XRC_RECV)
		return compat_fail(EINVAL);
	struct compat_qp *qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return compat_fail(ENOMEM);
	qp->xrcd = attr->xrcd;
	qp->hdl = compat_shared_qp(attr->qp_num, compat_xrcd_use(attr->xrcd));
	if (qp->hdl == NULL) {
		compat_xrcd_leave(attr->xrcd);
		free(qp);
		return compat_fail(EINVAL);
	}
	struct ibv_qp *ibv = &qp->ibv.qp_base;
	qp->init.qp_type = ibv->qp_type = attr->qp_type;
	ibv->context = context;
	if (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		qp->init.qp_context = ibv->qp_context = attr->qp_context;
	return verbs_qp_show(qp);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex all = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
	if (!compat_live(OBJECT_PD, pd))
		return compat_fail(EINVAL);
	/* Not sizeof(*attr): the larger structure continues in its padding. */
	memcpy(&all, attr, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
	struct ibv_qp *qp = compat_create_qp_ex(pd->context, &all);
	if (qp != NULL)
		attr->cap = all.cap;
	return qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
	struct compat_qp *qp = compat_qp(ibv);
	return qp->builder != NULL ? &qp->ibv : NULL;
}

/* After a program resets or destroys a queue pair, it no longer knows the wr_ids. Drivers of
 * hardware drop the completions, too. */
static void forget_completions(struct ibv_qp *qp)
{
	if (compat_inherited(qp->context))
		return;
	if (qp->send_cq != NULL)
		hdl_cq_discard(compat_cq(qp->send_cq)->hdl, qp->qp_num);
	if (qp->recv_cq != NULL && qp->recv_cq != qp->send_cq)
		hdl_cq_discard(compat_cq(qp->recv_cq)->hdl, qp->qp_num);
}

/* Attributes that the kernel silently drops, because an XRC queue pair does not use them: an
 * initiator answers nothing, a target requests nothing. Programs pass all attributes of a
 * connection to both. */
static int drop_unused(enum ibv_qp_type type, int mask)
{
	if (type == IBV_QPT_XRC_SEND)
		return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (type == IBV_QPT_XRC_RECV)
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	return mask;
}

/* What was posted goes out, then the connection ends. One to a peer on this machine is no stream:
 * it goes on until rdma_cm ends it, which comes next. */
static int finish_stream(struct compat_qp *qp)
{
	int error = -hdl_qp_finish(qp->hdl);
	return error == HDL_ENOTSUP ? 0 : error;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct compat_qp *qp = compat_qp(ibv);
	struct hdl_qp_attr below;
	uint32_t below_mask;
	int before = errno;
	if (!compat_live(OBJECT_QP, ibv))
		return compat_error(EINVAL);
	mask = drop_unused(ibv->qp_type, mask);
	int error = compat_qp_attr(compat_device_of(ibv->context), attr, mask, &below, &below_mask);
	if (error != 0)
		return compat_error(error);
	/* Set before the send queue can drain: does the program want that event? */
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		qp->target.drained_ok = attr->en_sqd_async_notify != 0;
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_SQD &&
	    compat_device_of(ibv->context)->sqd_closes)
		error = finish_stream(qp);
	else
		error = -hdl_qp_modify(qp->hdl, &below, below_mask);
	if (error == HDL_EPERM) /* no such transition: EINVAL, as in ibv_modify_qp(3) */
		error = EINVAL;
	if (error != 0)
		return compat_error(error);
	if (mask & IBV_QP_STATE)
		ibv->state = attr->qp_state;
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET)
		forget_completions(ibv);
	/* A kernel's call that succeeds does not change errno, and librdmacm makes this call
	 * between a failure of its own and its return. */
	errno = before;
	return 0;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init)
{
	struct compat_qp *qp = compat_qp(ibv);
	struct hdl_qp_attr below;
	struct hdl_qp_init_attr below_init;
	if (!compat_live(OBJECT_QP, ibv))
		return compat_error(EINVAL);
	int error = -hdl_qp_query(qp->hdl, &below, &below_init);
	if (error != 0)
		return compat_error(error);
	compat_qp_attr_back(compat_device_of(ibv->context), &below, attr);
	attr->en_sqd_async_notify = qp->target.drained_ok;
	cap_back(&below_init.cap, &attr->cap);
	/* The mask is the least that is wanted, but programs expect their copy of the state to
	 * change only if they asked for it. */
	if (mask & IBV_QP_STATE)
		ibv->state = attr->qp_state;
	if (init != NULL) {
		*init = qp->init;
		init->cap = attr->cap;
	}
	return 0;
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0; /* the order is not guaranteed */
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct compat_qp *qp = compat_qp(ibv);
	struct live *live = compat_live_take(OBJECT_QP, ibv);
	if (live == NULL)
		return compat_error(EINVAL);
	int error = compat_live_end(
	        live,
	        -compat_target_end(&qp->target, qp->xrcd != NULL ? compat_unshare_qp : end_qp));
	if (error != 0)
		return error;
	if (!compat_inherited(ibv->context)) {
		if (qp->xrcd != NULL)
			compat_xrcd_leave(qp->xrcd);
		else
			compat_pd_leave(ibv->pd);
	}
	forget_completions(ibv);
	compat_builder_destroy(qp);
	pthread_cond_destroy(&ibv->cond);
	pthread_mutex_destroy(&ibv->mutex);
	free(qp);
	return 0;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp, (void)ece;
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp, (void)ece;
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

/* The GID identifies the group; the LID adds nothing. */
int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct hdl_gid below;
	(void)lid;
	if (!compat_live(OBJECT_QP, qp))
		return compat_error(EINVAL);
	memcpy(below.raw, gid->raw, sizeof(below.raw));
	return compat_error(-hdl_qp_attach(compat_qp(qp)->hdl, &below));
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct hdl_gid below;
	(void)lid;
	if (!compat_live(OBJECT_QP, qp))
		return compat_error(EINVAL);
	if (compat_inherited(qp->context))
		return 0;
	memcpy(below.raw, gid->raw, sizeof(below.raw));
	return compat_error(-hdl_qp_detach(compat_qp(qp)->hdl, &below));
}
