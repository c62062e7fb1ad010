/* Queue pairs: create, modify, query, destroy. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"
#include "port/lanes.h"
#include "queue/qp_state.h"
#include "queue/wqe.h"
#include "transport/capture_iwarp.h"
#include "transport/cell/cells.h"
#include "transport/datagram.h"
#include "transport/ib/ib.h"
#include "transport/ib/raw.h"
#include "transport/iwarp/iwarp.h"
#include "transport/local/local.h"
#include "transport/udp.h"

#define SHUFFLE_ROUNDS 48u
#define SHUFFLE_TRIES  64u

static bool cq_fits(const struct hdl_cq *cq, const struct hdl_adapter *adapter)
{
	return cq != NULL && cq->magic == MAGIC_CQ && cq->adapter == adapter;
}

/* XRC queue pairs have no receive queue. */
static bool has_receives(uint32_t type)
{
	return type != HDL_QP_XRC_INI && type != HDL_QP_XRC_TGT;
}

static int qp_judge_init(const struct hdl_pd *pd, const struct hdl_qp_init_attr *attr)
{
	const struct hdl_qp_cap *cap = &attr->cap;
	if (attr->type < HDL_QP_RC || attr->type > HDL_QP_RAW)
		return why_not(-HDL_ENOTSUP, "cannot create a queue pair: there is no type %u",
		               attr->type);
	if (attr->type == HDL_QP_RAW && raw_carrier(&pd->adapter->engine) == NULL)
		return why_not(-HDL_ENOTSUP,
		               "cannot create a queue pair: raw datagrams need a network address "
		               "(HEDDLE_ADDR)");
	bool cells = wire_speaks_cells(&pd->adapter->net, attr->packets);
	if (attr->packets > HDL_PACKETS_CELLS || (cells && !pd->adapter->net.cells))
		return why_not(-HDL_ENOTSUP,
		               "cannot create a queue pair: its adapter was not opened for cells");
	if (attr->type == HDL_QP_UD && !cells && !net_has(&pd->adapter->net, false))
		return why_not(-HDL_ENOTSUP,
		               "cannot create a queue pair: Ethernet frames carry datagrams as "
		               "cells only");
	if (attr->acknowledged && (attr->type != HDL_QP_UD || !cells))
		return why_not(-HDL_ENOTSUP,
		               "cannot create a queue pair: only datagrams by cells can be "
		               "acknowledged");
	bool sends = attr->type != HDL_QP_XRC_TGT, receives = has_receives(attr->type);
	if ((sends && !cq_fits(attr->send_cq, pd->adapter)) ||
	    (receives && !cq_fits(attr->recv_cq, pd->adapter)))
		return why_not(-HDL_EINVAL,
		               "cannot create a queue pair: the type %s needs%s%s completion "
		               "queues, of its own "
		               "adapter",
		               qp_type_name(attr->type), sends ? " send" : "",
		               receives ? " and receive" : "");
	if (receives && attr->srq != NULL &&
	    (attr->srq->magic != MAGIC_SRQ || attr->srq->pd->adapter != pd->adapter ||
	     attr->srq->srq.number != 0))
		return why_not(-HDL_EINVAL,
		               "cannot create a queue pair: its shared receive queue is of another "
		               "adapter, or for XRC");
	if (attr->type == HDL_QP_RD && (attr->rdd == NULL || attr->rdd->magic != MAGIC_RDD ||
	                                attr->rdd->pd->adapter != pd->adapter))
		return why_not(
		        -HDL_EINVAL,
		        "cannot create a queue pair: RD needs a domain (rdd), of its own adapter");
	if (cap->max_send_wr > HDL_MAX_QP_WR || cap->max_recv_wr > HDL_MAX_QP_WR ||
	    cap->max_send_sge > HDL_MAX_SGE || cap->max_recv_sge > HDL_MAX_SGE ||
	    cap->max_inline > HDL_MAX_INLINE || attr->register_error > HDL_REGISTER_ERROR_TERMINATE)
		return why_not(-HDL_EINVAL,
		               "cannot create a queue pair: %u sends of %u pieces, %u receives of "
		               "%u pieces, %u "
		               "bytes inline; the most are %u of %u, and %u bytes",
		               cap->max_send_wr, cap->max_send_sge, cap->max_recv_wr,
		               cap->max_recv_sge, cap->max_inline, HDL_MAX_QP_WR, HDL_MAX_SGE,
		               HDL_MAX_INLINE);
	return 0;
}

/* Keep only what the type has: XRC queue pairs have no receives, and the target has no sends. */
static struct hdl_qp_init_attr qp_of_type(const struct hdl_qp_init_attr *attr)
{
	struct hdl_qp_init_attr own = *attr;
	if (own.type == HDL_QP_XRC_TGT) {
		own.send_cq = NULL;
		own.cap.max_send_wr = own.cap.max_send_sge = own.cap.max_inline = 0;
	} else {
		own.xrcd = NULL;
	}
	/* As hardware adapters do: programs that request no inline data but send a few bytes inline
	 * are common. */
	if (own.type != HDL_QP_XRC_TGT) {
		uint32_t room = wqe_inline_room(own.cap.max_send_sge, own.cap.max_inline);
		own.cap.max_inline = room < HDL_MAX_INLINE ? room : HDL_MAX_INLINE;
	}
	if (own.type != HDL_QP_RD)
		own.rdd = NULL;
	if (!has_receives(own.type)) {
		own.recv_cq = NULL;
		own.srq = NULL;
		own.cap.max_recv_wr = own.cap.max_recv_sge = 0;
	}
	return own;
}

static void free_capture(struct capture_qp *capture)
{
	if (capture != NULL)
		free(capture->iwarp);
	free(capture);
}

static void free_qp(struct hdl_qp *qp)
{
	free(qp->qp.sq.elements);
	free(qp->qp.rq.elements);
	free(qp->qp.lists);
	free(qp->qp.reads.entries);
	free(qp->qp.kept);
	free_capture(qp->qp.capture);
	wire_disconnect(qp);
	free(qp->qp.cells);
	free(qp);
}

/* Allocate the queues, at least as large as requested: an empty queue still has a slot that is
 * never used. */
static struct hdl_qp *new_qp(const struct hdl_qp_init_attr *attr)
{
	struct hdl_qp *qp = aligned_alloc(64, (sizeof(*qp) + 63) & ~(size_t)63);
	if (qp == NULL)
		return NULL;
	memset(qp, 0, sizeof(*qp));
	const struct hdl_qp_cap *cap = &attr->cap;
	uint32_t send_stride = wqe_send_stride(cap->max_send_sge, cap->max_inline);
	uint32_t recv_stride = wqe_recv_stride(cap->max_recv_sge);
	uint32_t recv_depth = attr->srq != NULL ? 0 : cap->max_recv_wr;
	void *send = malloc(wq_bytes(cap->max_send_wr, send_stride));
	void *recv = malloc(wq_bytes(recv_depth, recv_stride));
	wq_init(&qp->qp.sq, send, cap->max_send_wr, send_stride, cap->max_send_sge);
	wq_init(&qp->qp.rq, recv, recv_depth, recv_stride, cap->max_recv_sge);
	if (attr->register_on_send) {
		qp->qp.lists_size = ADAPTER_LIST_PAGES;
		qp->qp.lists = calloc(ADAPTER_LIST_PAGES, sizeof(uint64_t));
	}
	/* For reliable datagrams, the context keeps it. */
	bool shares =
	        (attr->srq != NULL && attr->type != HDL_QP_RD) || attr->type == HDL_QP_XRC_TGT;
	if (shares)
		qp->qp.kept = malloc(wqe_recv_stride(HDL_MAX_SGE));
	if (send == NULL || recv == NULL || (shares && qp->qp.kept == NULL) ||
	    (attr->register_on_send && qp->qp.lists == NULL)) {
		free_qp(qp);
		return NULL;
	}
	return qp;
}

/* Allocate what capture.h needs per queue pair. */
static bool make_capture(struct qp *qp, bool iwarp)
{
	uint32_t slots = qp->sq.mask + 1;
	qp->capture = calloc(1, capture_qp_bytes(slots));
	if (qp->capture == NULL)
		return false;
	qp->capture->mask = slots - 1;
	if (iwarp)
		qp->capture->iwarp = calloc(1, sizeof(*qp->capture->iwarp));
	return !iwarp || qp->capture->iwarp != NULL;
}

/* The slot of the @turn-th number: a permutation of all 2^@bits slots that depends only on the key
 * (the swap-or-not shuffle of Hoang, Morris and Rogaway, with enough rounds that one number does
 * not reveal the next). */
static uint32_t shuffled(const uint64_t key[2], uint32_t turn, uint32_t bits)
{
	uint32_t mask = (1u << bits) - 1, place = turn & mask;
	for (uint64_t round = 0; round < SHUFFLE_ROUNDS; round++) {
		uint64_t draw = (key[0] + round * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
		uint32_t twin = place ^ ((uint32_t)(draw >> 32) & mask);
		uint64_t pair = key[1] ^ (uint64_t)(twin > place ? twin : place) << 8 ^ round;
		pair = (pair ^ pair >> 30) * 0xbf58476d1ce4e5b9u;
		pair = (pair ^ pair >> 27) * 0x94d049bb133111ebu;
		place = pair >> 63 ? twin : place;
	}
	return place;
}

/* Choose a slot for a number. A slot that was just freed is reused only after all others, so that
 * late packets for it find no queue pair, and other processes cannot predict the next number. If
 * most slots are in use, take the next free one. */
static size_t next_place(struct hdl_adapter *adapter)
{
	while (adapter->objects.qp_key[0] == 0)
		for (unsigned i = 0; i < 2; i++)
			adapter->objects.qp_key[i] = prng_next(&adapter->prng);
	size_t place = 0;
	for (unsigned tries = 0; tries < SHUFFLE_TRIES; tries++) {
		place = shuffled(adapter->objects.qp_key, adapter->objects.qp_turn++,
		                 adapter->objects.qp_bits);
		if (!bitmap_test(&adapter->objects.qp_map, place))
			return place;
	}
	return bitmap_find_clear(&adapter->objects.qp_map, place);
}

int adapter_take_number(struct hdl_adapter *adapter, uint32_t *number)
{
	if (bitmap_count(&adapter->objects.qp_map) > adapter->objects.max_qp)
		return -HDL_ENOMEM;
	size_t index = next_place(adapter);
	if (index == BITMAP_NONE)
		return -HDL_ENOMEM;
	bitmap_set(&adapter->objects.qp_map, index);
	uint32_t high =
	        adapter->agent.on_node
	                ? adapter->slot
	                : (uint32_t)prng_below(&adapter->prng,
	                                       1u << (ENGINE_QPN_BITS - adapter->objects.qp_bits));
	*number = high << adapter->objects.qp_bits | (uint32_t)index;
	if (*number < 2) /* 0 and 1 belong to management */
		*number |= 1u << adapter->objects.qp_bits;
	if (*number ==
	    MULTICAST_QPN) /* and the last to groups; the agent assigns no slot that contains it */
		*number &= ~(1u << adapter->objects.qp_bits);
	return 0;
}

void adapter_free_number(struct hdl_adapter *adapter, uint32_t number)
{
	bitmap_clear(&adapter->objects.qp_map, number & adapter->engine.qp_mask);
}

/* Where onlookers find the queues of @qp; not @shown: no longer. */
static void show_queues(const struct hdl_qp *qp, bool shown)
{
	const struct qp *own = &qp->qp;
	uint64_t sq = own->type == HDL_QP_XRC_TGT ? 0 : (uint64_t)(uintptr_t)&own->sq;
	uint64_t rq = !has_receives(own->type) ? 0
	              : own->srq != NULL       ? (uint64_t)(uintptr_t)&own->srq->wq | QP_RQ_SHARED
	                                       : (uint64_t)(uintptr_t)&own->rq;
	atomic_store_explicit(&own->pub->sq_addr, shown ? sq : 0, memory_order_relaxed);
	atomic_store_explicit(&own->pub->rq_addr, shown ? rq : 0, memory_order_relaxed);
}

/* With the drive lock. */
static int number_qp(struct hdl_adapter *adapter, struct hdl_qp *qp)
{
	int result = adapter_take_number(adapter, &qp->qp.qpn);
	if (result != 0)
		return result;
	uint32_t index = qp->qp.qpn & adapter->engine.qp_mask;
	qp->qp.pub = &adapter->engine.qps_public[index];
	adapter->engine.qps[index] = &qp->qp;
	show_queues(qp, true);
	return 0;
}

/* A connection ends after everything that has happened so far: messages that have arrived count and
 * are acknowledged, and requests that the peer has executed complete. Some of that may have been
 * waiting for a call of the application. */
static void conclude(struct hdl_qp *qp)
{
	adapter_catch_up(qp->pd->adapter);
	if (qp->qp.link != LINK_NONE && qp->qp.unanswered > 0)
		local_look(&qp->pd->adapter->engine, &qp->qp);
}

/* Change the state while posting is locked out: no thread that saw the old state posts into the new
 * one. */
static void enter(struct hdl_qp *qp, enum hdl_qp_state state)
{
	lock_take(&qp->qp.sq.post_lock);
	lock_take(&qp->qp.rq.post_lock);
	qp_enter(&qp->pd->adapter->engine, &qp->qp, state);
	lock_drop(&qp->qp.rq.post_lock);
	lock_drop(&qp->qp.sq.post_lock);
}

int qp_begin_stream(struct hdl_adapter *adapter, struct qp *qp, struct iwarp *iwarp,
                    const struct iwarp_terms *terms, const struct iwarp_owner *owner)
{
	struct hdl_qp *object = (struct hdl_qp *)(void *)qp;
	if (qp_state(qp) != HDL_QPS_INIT || qp->iwarp != NULL || qp->type != HDL_QP_RC)
		return -HDL_EPERM;
	if (qp_make_reads(qp, terms->ird) != 0)
		return -HDL_ENOMEM;
	qp->attr.max_dest_rd_atomic = (uint8_t)terms->ird;
	qp->attr.max_rd_atomic = (uint8_t)terms->ord;
	iwarp_begin(&adapter->engine, qp, iwarp, terms, owner);
	enter(object, HDL_QPS_RTR);
	enter(object, HDL_QPS_RTS);
	return 0;
}

/* Add @sign (1 or -1) to the use counts of the objects that @qp uses. */
static void use(const struct hdl_qp *qp, uint32_t sign)
{
	const struct hdl_qp_init_attr *init = &qp->init;
	atomic_fetch_add(&qp->pd->users, sign);
	if (init->send_cq != NULL)
		atomic_fetch_add(&init->send_cq->users, sign);
	if (init->recv_cq != NULL)
		atomic_fetch_add(&init->recv_cq->users, sign);
	if (init->srq != NULL)
		atomic_fetch_add(&init->srq->users, sign);
	if (init->xrcd != NULL)
		atomic_fetch_add(&init->xrcd->users, sign);
	if (init->rdd != NULL)
		atomic_fetch_add(&init->rdd->users, sign);
}

/* The transport of queue pairs of @type, until wire_connect() selects another one. */
static const struct transport *transport_for(enum hdl_qp_type type)
{
	switch (type) {
	case HDL_QP_UD:
		return &datagram_transport;
	case HDL_QP_RD:
		return &rd_transport;
	case HDL_QP_RAW:
		return &raw_transport;
	default:
		return &local_transport;
	}
}

int hdl_qp_create(struct hdl_pd *pd, struct hdl_qp_init_attr *given, struct hdl_qp **out)
{
	if (given == NULL || out == NULL)
		return -HDL_EINVAL;
	if (given->type == HDL_QP_XRC_TGT) {
		if (pd != NULL || given->xrcd == NULL || given->xrcd->magic != MAGIC_XRCD)
			return -HDL_EINVAL;
		pd = given->xrcd->pd;
	}
	if (pd == NULL || pd->magic != MAGIC_PD)
		return -HDL_EINVAL;
	int result = qp_judge_init(pd, given);
	if (result != 0)
		return result;
	const struct hdl_qp_init_attr own = qp_of_type(given), *attr = &own;
	struct hdl_qp *qp = new_qp(attr);
	if (qp == NULL)
		return why_not(-HDL_ENOMEM, "cannot create a queue pair: no memory for its queues");
	qp->magic = MAGIC_QP;
	qp->pd = pd;
	qp->init = *attr;
	qp->qp.type = (uint8_t)attr->type;
	qp->qp.acknowledged = attr->acknowledged;
	if (attr->type == HDL_QP_UD && wire_speaks_cells(&pd->adapter->net, attr->packets) &&
	    wire_make_cells(qp) != 0) {
		free_qp(qp);
		return -HDL_ENOMEM;
	}
	qp->qp.max_message = qp->qp.cells != NULL       ? CELL_DATA_BYTES
	                     : attr->type == HDL_QP_UD  ? net_mtu(pd->adapter)
	                     : attr->type == HDL_QP_RAW ? HDL_RAW_MTU
	                                                : (uint32_t)HDL_MAX_MESSAGE;
	qp->qp.xrcd = attr->type == HDL_QP_XRC_TGT ? pd->number : 0;
	qp->qp.rdd = own.rdd != NULL ? own.rdd->pd->number : 0;
	qp->qp.signal_all = attr->signal_all;
	qp->qp.register_on_send = attr->register_on_send;
	qp->qp.windows_only = attr->remote_windows_only;
	qp->qp.register_error = (uint8_t)attr->register_error;
	qp->qp.pd = pd->number;
	qp->qp.link = LINK_NONE;
	qp->qp.transport = transport_for(attr->type);
	qp->qp.cap = attr->cap;
	qp->qp.srq = attr->srq != NULL ? &attr->srq->srq : NULL;
	qp->qp.send_cq = attr->send_cq != NULL ? &attr->send_cq->cq : NULL;
	qp->qp.recv_cq = attr->recv_cq != NULL ? &attr->recv_cq->cq : NULL;
	mpsc_node_init(&qp->qp.pending);
	timer_node_init(&qp->qp.timer);
	if (pd->adapter->engine.capture != NULL &&
	    !make_capture(&qp->qp, attr->iwarp && attr->type == HDL_QP_RC)) {
		free_qp(qp);
		return -HDL_ENOMEM;
	}
	adapter_lock(pd->adapter);
	result = number_qp(pd->adapter, qp);
	if (result == 0)
		enter(qp, HDL_QPS_RESET);
	adapter_unlock(pd->adapter);
	if (result != 0) {
		free_qp(qp);
		return why_not(result, "cannot create a queue pair: all %u are in use",
		               pd->adapter->objects.max_qp);
	}
	use(qp, 1);
	given->cap = attr->cap;
	*out = qp;
	return 0;
}

int hdl_qp_destroy(struct hdl_qp *qp)
{
	if (qp == NULL || qp->magic != MAGIC_QP)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = qp->pd->adapter;
	if (qp->groups > 0)
		return -HDL_EBUSY;
	adapter_lock(adapter);
	if (qp->joining != NULL)
		conn_release(qp->joining); /* it fails when its peer has agreed */
	/* Pick up what posting threads left for us, then release everything. */
	conclude(qp);
	enter(qp, HDL_QPS_RESET);
	engine_forget(&adapter->engine, &qp->qp);
	raw_leave(&adapter->engine, &qp->qp);
	show_queues(qp, false);
	qp_publish(qp->qp.pub, &(struct qp_facts){0}); /* no longer visible to peers */
	adapter->engine.qps[qp->qp.qpn & adapter->engine.qp_mask] = NULL;
	adapter_free_number(adapter, qp->qp.qpn);
	adapter_unlock(adapter);
	events_purge(&adapter->drive.events, qp);
	use(qp, (uint32_t)-1);
	qp->magic = 0;
	free_qp(qp);
	return 0;
}

static int count_untaken(struct cq *cq, uint32_t qpn)
{
	if (cq == NULL)
		return 0;
	lock_take(&cq->poll_lock);
	uint32_t count = cq_count(cq, qpn);
	lock_drop(&cq->poll_lock);
	return (int)count;
}

int hdl_qp_untaken(struct hdl_adapter *adapter, uint32_t qpn)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return -HDL_EINVAL;
	int count = 0;
	adapter_lock(adapter);
	adapter_catch_up(adapter);
	const struct qp *qp = adapter->engine.qps[qpn & adapter->engine.qp_mask];
	if (qp != NULL && qp->qpn == qpn) {
		count = count_untaken(qp->send_cq, qpn);
		if (qp->recv_cq != qp->send_cq)
			count += count_untaken(qp->recv_cq, qpn);
	}
	adapter_unlock(adapter);
	return count;
}

/* --- modify --- */

bool qp_values_fit(const struct hdl_qp_attr *a, uint32_t mask)
{
	const uint32_t remote =
	        HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC;
	if ((mask & HDL_QP_ACCESS) && (a->access & ~remote) != 0)
		return false;
	if ((mask & HDL_QP_PORT) && a->port_num != 1)
		return false;
	if ((mask & HDL_QP_PKEY_INDEX) && a->pkey_index != 0)
		return false;
	if ((mask & HDL_QP_PATH_MTU) &&
	    (a->path_mtu < 256 || a->path_mtu > 4096 || (a->path_mtu & (a->path_mtu - 1)) != 0))
		return false;
	if ((mask & HDL_QP_TIMEOUT) && a->timeout > 31)
		return false;
	if ((mask & HDL_QP_RETRY_CNT) && a->retry_cnt > 7)
		return false;
	if ((mask & HDL_QP_RNR_RETRY) && a->rnr_retry > 7)
		return false;
	if ((mask & HDL_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31)
		return false;
	if ((mask & HDL_QP_RQ_PSN) && a->rq_psn > 0xffffff)
		return false;
	if ((mask & HDL_QP_SQ_PSN) && a->sq_psn > 0xffffff)
		return false;
	if ((mask & HDL_QP_DEST_QPN) && a->dest_qpn > 0xffffff)
		return false;
	if ((mask & HDL_QP_MAX_RD_ATOMIC) && a->max_rd_atomic > HDL_MAX_RD_ATOMIC)
		return false;
	if ((mask & HDL_QP_AV) && a->ah.sgid_index >= AGENT_MAX_GIDS)
		return false;
	if ((mask & HDL_QP_ALT_PATH) &&
	    (a->alt_port_num != 1 || a->alt_timeout > 31 || a->alt_pkey_index != 0 ||
	     a->alt_ah.sgid_index >= AGENT_MAX_GIDS))
		return false;
	if ((mask & HDL_QP_PATH_MIG_STATE) && a->path_mig_state > HDL_MIG_REARM)
		return false;
	if ((mask & HDL_QP_STRIPE) && a->stripe != 0 &&
	    (a->stripe < 16 || a->stripe > HDL_MAX_STRIPE || (a->stripe & (a->stripe - 1)) != 0))
		return false;
	return !((mask & HDL_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > HDL_MAX_RD_ATOMIC);
}

void qp_take_values(struct hdl_qp_attr *to, const struct hdl_qp_attr *from, uint32_t mask)
{
#define TAKE(bit, field)                         \
	do {                                     \
		if (mask & (bit))                \
			to->field = from->field; \
	} while (0)
	TAKE(HDL_QP_ACCESS, access);
	TAKE(HDL_QP_PORT, port_num);
	TAKE(HDL_QP_QKEY, qkey);
	TAKE(HDL_QP_AV, ah);
	TAKE(HDL_QP_PATH_MTU, path_mtu);
	TAKE(HDL_QP_TIMEOUT, timeout);
	TAKE(HDL_QP_RETRY_CNT, retry_cnt);
	TAKE(HDL_QP_RNR_RETRY, rnr_retry);
	TAKE(HDL_QP_RQ_PSN, rq_psn);
	TAKE(HDL_QP_MAX_RD_ATOMIC, max_rd_atomic);
	TAKE(HDL_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(HDL_QP_SQ_PSN, sq_psn);
	TAKE(HDL_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(HDL_QP_DEST_QPN, dest_qpn);
	TAKE(HDL_QP_PKEY_INDEX, pkey_index);
	TAKE(HDL_QP_ALT_PATH, alt_ah);
	TAKE(HDL_QP_ALT_PATH, alt_port_num);
	TAKE(HDL_QP_ALT_PATH, alt_timeout);
	TAKE(HDL_QP_ALT_PATH, alt_pkey_index);
	TAKE(HDL_QP_STRIPE, stripe);
#undef TAKE
}

int qp_make_reads(struct qp *qp, uint32_t depth)
{
	struct read_entry *entries = NULL;
	if (depth > 0 && (entries = calloc(read_queue_slots(depth), sizeof(*entries))) == NULL)
		return -HDL_ENOMEM;
	free(qp->reads.entries);
	read_queue_init(&qp->reads, entries, depth, 0);
	return 0;
}

/* With the drive lock. */
static int qp_modify(struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask)
{
	struct hdl_adapter *adapter = qp->pd->adapter;
	enum hdl_qp_state from = qp_state(&qp->qp);
	enum hdl_qp_state to = mask & HDL_QP_STATE ? (enum hdl_qp_state)attr->state : from;
	if (attr->state > HDL_QPS_ERR && (mask & HDL_QP_STATE))
		return -HDL_EINVAL;
	if ((mask & HDL_QP_CUR_STATE) && attr->cur_state != from)
		return -HDL_EPERM;
	switch (qp_judge((enum hdl_qp_type)qp->qp.type, from, to, mask)) {
	case QP_MODIFY_NO_TRANSITION:
		return -HDL_EPERM;
	case QP_MODIFY_MISSING:
	case QP_MODIFY_NOT_ALLOWED:
		return -HDL_EINVAL;
	default:
		break;
	}
	if (!qp_values_fit(attr, mask))
		return -HDL_EINVAL;
	if (to == HDL_QPS_ERR || to == HDL_QPS_RESET)
		conclude(qp);
	if (mask & HDL_QP_AV) {
		if (attr->ah.src_path_bits >> adapter->lmc != 0)
			return -HDL_EINVAL;
		struct hdl_gid to_gid = adapter_address(&attr->ah);
		uint32_t dest = mask & HDL_QP_DEST_QPN ? attr->dest_qpn : qp->qp.attr.dest_qpn;
		uint32_t found =
		        wire_only(adapter) ? LINK_NONE : adapter_find_link(adapter, &to_gid, dest);
		bool on_wire = found == LINK_NONE &&
		               (wire_only(adapter) || wire_reaches(adapter, &to_gid));
		/* The node exists, but the process does not (or has ended): requests will not be
		 * answered. */
		if (found == LINK_NONE && !on_wire && !adapter_knows_node(adapter, &to_gid))
			return -HDL_EHOSTUNREACH;
		int result = on_wire ? wire_connect(qp, attr, mask) : 0;
		if (result != 0)
			return result;
		qp->qp.link = found;
	}
	/* There must be an alternate path that is not in use. The same-host path has no
	 * alternative, so arming has no effect there. */
	if ((mask & HDL_QP_PATH_MIG_STATE) && attr->path_mig_state == HDL_MIG_REARM &&
	    (qp->qp.ib != NULL && qp->qp.ib->stripe != NULL
	             ? true
	             : !(mask & HDL_QP_ALT_PATH) &&
	                       (qp->qp.ib == NULL || !qp->qp.ib->has_alternate)))
		return -HDL_EINVAL;
	/* Both ends agreed on the paths that it uses. */
	if ((mask & HDL_QP_ALT_PATH) && !(mask & HDL_QP_STRIPE) && qp->qp.ib != NULL &&
	    qp->qp.ib->stripe != NULL)
		return -HDL_EINVAL;
	if ((mask & HDL_QP_MAX_DEST_RD_ATOMIC) &&
	    qp_make_reads(&qp->qp, attr->max_dest_rd_atomic) != 0)
		return -HDL_ENOMEM;
	qp_take_values(&qp->qp.attr, attr, mask);
	if (mask & HDL_QP_AV)
		engine_serve(&adapter->engine, &qp->qp, service_class(attr->ah.traffic_class));
	if (mask & (HDL_QP_ALT_PATH | HDL_QP_PATH_MIG_STATE))
		wire_alternate(qp, attr, mask);
	if (to == HDL_QPS_RESET)
		qp->qp.attr = (struct hdl_qp_attr){0};
	enter(qp, to);
	if (to == HDL_QPS_RESET) {
		engine_serve(&adapter->engine, &qp->qp, SERVICE_NORMAL);
		wire_disconnect(qp);
	}
	return 0;
}

/* Is a connection about to begin that is to use two paths if it can, and whose program does not
 * choose them itself? */
static bool wants_stripe(const struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask)
{
	const uint32_t begins = HDL_QP_STATE | HDL_QP_AV | HDL_QP_DEST_QPN | HDL_QP_PATH_MTU;
	return qp->pd->adapter->net.stripes && qp->qp.type == HDL_QP_RC &&
	       (mask & begins) == begins && attr->state == HDL_QPS_RTR &&
	       (mask & (HDL_QP_ALT_PATH | HDL_QP_STRIPE)) == 0;
}

int hdl_qp_modify(struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask)
{
	if (qp == NULL || qp->magic != MAGIC_QP || attr == NULL)
		return -HDL_EINVAL;
	if (mask & ~(uint32_t)HDL_QP_ATTR_ALL) {
		why_not_modified(qp, attr, mask, -HDL_EINVAL);
		return -HDL_EINVAL;
	}
	bool connects =
	        (mask & HDL_QP_AV) && (mask & HDL_QP_DEST_QPN) && !wire_only(qp->pd->adapter);
	struct hdl_gid to = adapter_address(&attr->ah);
	if ((mask & HDL_QP_AV) && net_has_packets(&qp->pd->adapter->net))
		agent_locate(qp->pd->adapter, &to);
	if (connects && agent_reach(qp->pd->adapter, &to, attr->dest_qpn) == -HDL_EACCES) {
		why_not_modified(qp, attr, mask, -HDL_EACCES);
		return -HDL_EACCES;
	}
	struct hdl_qp_attr striped;
	if (wants_stripe(qp, attr, mask) && net_stripe(qp, attr, &striped)) {
		attr = &striped;
		mask |= HDL_QP_ALT_PATH | HDL_QP_STRIPE;
	}
	adapter_lock(qp->pd->adapter);
	int result = qp_modify(qp, attr, mask);
	adapter_unlock(qp->pd->adapter);
	if (result != 0)
		why_not_modified(qp, attr, mask, result);
	else if ((mask & HDL_QP_STATE) && attr->state == HDL_QPS_ERR)
		why_ended(qp);
	/* Also drain the lanes: messages to a former connection must find no queue pair that is
	 * ready. */
	for (uint32_t turns = LANES_SLOTS / ENGINE_RX_BATCH; result == 0 && turns > 0; turns--)
		if (adapter_drive(qp->pd->adapter) == 0)
			break;
	return result;
}

int hdl_qp_query(struct hdl_qp *qp, struct hdl_qp_attr *attr, struct hdl_qp_init_attr *init)
{
	if (qp == NULL || qp->magic != MAGIC_QP || attr == NULL)
		return -HDL_EINVAL;
	adapter_lock(qp->pd->adapter);
	*attr = qp->qp.attr;
	attr->state = attr->cur_state = qp_state(&qp->qp);
	attr->draining = qp->qp.draining;
	if (init != NULL)
		*init = qp->init;
	adapter_unlock(qp->pd->adapter);
	return 0;
}

void qp_begin_udp(struct hdl_qp *qp, struct udp_service *service)
{
	udp_service_begin(&qp->qp, service);
	enter(qp, HDL_QPS_RTR);
	enter(qp, HDL_QPS_RTS);
}

int hdl_qp_finish(struct hdl_qp *qp)
{
	if (qp == NULL || qp->magic != MAGIC_QP)
		return -HDL_EINVAL;
	adapter_lock(qp->pd->adapter);
	bool streams = qp->qp.iwarp != NULL;
	if (streams)
		iwarp_close(qp->qp.iwarp);
	adapter_unlock(qp->pd->adapter);
	return streams ? 0 : -HDL_ENOTSUP;
}

struct hdl_qp *hdl_qp_find(struct hdl_adapter *adapter, uint32_t number)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return NULL;
	adapter_lock(adapter);
	struct qp *qp = engine_find_qp(&adapter->engine, number);
	adapter_unlock(adapter);
	return (struct hdl_qp *)(void *)qp;
}

uint32_t hdl_qp_number(const struct hdl_qp *qp)
{
	return qp->qp.qpn;
}
