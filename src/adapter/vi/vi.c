/* Virtual interfaces: creating and destroying them, their doorbells, and descriptors that are done.
 */
#include "adapter/vi/vi.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "base/clock.h"
#include "queue/wq.h"

#define CHANNEL_BITS  (HDL_VI_ACKNOWLEDGED | HDL_VI_CONNECTED)
#define REMOTE_ACCESS (HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE)

void vis_init(struct vis *vis)
{
	pthread_mutex_init(&vis->lock, NULL);
	clock_cond_init(&vis->changed);
}

void vis_end(struct vis *vis)
{
	pthread_mutex_destroy(&vis->lock);
	pthread_cond_destroy(&vis->changed);
}

static bool is_vi(const struct hdl_vi *vi)
{
	return vi != NULL && vi->magic == MAGIC_VI;
}

static bool is_connected_kind(const struct hdl_vi_attr *attr)
{
	return (attr->channel & HDL_VI_CONNECTED) != 0;
}

/* --- creating --- */

static bool vi_cq_fits(const struct hdl_cq *cq, const struct hdl_adapter *adapter)
{
	return cq == NULL || (cq->magic == MAGIC_CQ && cq->adapter == adapter);
}

static int vi_judge(const struct hdl_pd *pd, const struct hdl_vi_attr *attr)
{
	/* The route header of a datagram takes one piece of each receive. */
	uint32_t pieces = is_connected_kind(attr) ? HDL_MAX_SGE : HDL_MAX_SGE - 1;
	if ((attr->channel & ~(uint32_t)CHANNEL_BITS) != 0 ||
	    (attr->access & ~(uint32_t)REMOTE_ACCESS) != 0 || attr->max_send == 0 ||
	    attr->max_send > HDL_MAX_QP_WR || attr->max_receive == 0 ||
	    attr->max_receive > HDL_MAX_QP_WR || attr->max_segments == 0 ||
	    attr->max_segments > pieces)
		return why_not(
		        -HDL_EINVAL,
		        "cannot create a virtual interface: %u sends, %u receives (1 to %u), "
		        "%u segments (1 to %u), channel 0x%x, access 0x%x",
		        attr->max_send, attr->max_receive, HDL_MAX_QP_WR, attr->max_segments,
		        pieces, attr->channel, attr->access);
	if (!vi_cq_fits(attr->send_cq, pd->adapter) || !vi_cq_fits(attr->receive_cq, pd->adapter))
		return -HDL_EINVAL;
	if (attr->channel == HDL_VI_ACKNOWLEDGED &&
	    !wire_speaks_cells(&pd->adapter->net, attr->packets))
		return why_not(-HDL_ENOTSUP, "cannot create a virtual interface: a channel that is "
		                             "acknowledged but not connected needs cells");
	return 0;
}

/* A ring of handles is twice as long as its queue: a poster may write the next one before it learns
 * that the queue is full. */
static bool make_ring(struct descriptor_ring *ring, uint32_t depth)
{
	uint32_t slots = 2 * wq_slots(depth);
	ring->handles = calloc(slots, sizeof(*ring->handles));
	ring->mask = slots - 1;
	return ring->handles != NULL;
}

static int make_queue(struct hdl_vi *vi, uint32_t queue, struct hdl_cq *given, uint32_t depth)
{
	struct hdl_adapter *adapter = vi->pd->adapter;
	if (given != NULL)
		return 0;
	int result = hdl_channel_create(adapter, &vi->channels[queue]);
	if (result == 0)
		result = hdl_cq_create(adapter, depth, vi->channels[queue], vi, &vi->cqs[queue]);
	return result;
}

/* What only a VI without connection has. */
static int make_datagrams(struct hdl_vi *vi)
{
	size_t bytes = (size_t)(vi->descriptors.receive.mask + 1) * HDL_GRH_BYTES;
	vi->descriptors.addressed = true;
	vi->peers = calloc(HDL_VI_MAX_PEERS, sizeof(*vi->peers));
	vi->ahs = calloc(HDL_VI_MAX_PEERS, sizeof(*vi->ahs));
	vi->descriptors.headers = malloc(bytes);
	vi->descriptors.peers = vi->peers;
	if (vi->peers == NULL || vi->ahs == NULL || vi->descriptors.headers == NULL)
		return -HDL_ENOMEM;
	return hdl_mr_register(vi->pd, vi->descriptors.headers, bytes,
	                       HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE, &vi->headers);
}

static int make_qp(struct hdl_vi *vi)
{
	const struct hdl_vi_attr *attr = &vi->attr;
	bool connected = is_connected_kind(attr);
	struct hdl_qp_init_attr init = {
	        .type = !connected                                   ? HDL_QP_UD
	                : (attr->channel & HDL_VI_ACKNOWLEDGED) != 0 ? HDL_QP_RC
	                                                             : HDL_QP_UC,
	        .send_cq = attr->send_cq != NULL ? attr->send_cq : vi->cqs[HDL_VI_SEND_QUEUE],
	        .recv_cq =
	                attr->receive_cq != NULL ? attr->receive_cq : vi->cqs[HDL_VI_RECEIVE_QUEUE],
	        .signal_all = true,
	        .acknowledged = attr->channel == HDL_VI_ACKNOWLEDGED,
	        .packets = attr->packets,
	        .context = vi,
	        .cap = {.max_send_wr = attr->max_send,
	                .max_recv_wr = attr->max_receive,
	                .max_send_sge = attr->max_segments,
	                .max_recv_sge = attr->max_segments + (connected ? 0 : 1)}};
	int result = hdl_qp_create(vi->pd, &init, &vi->qp);
	if (result != 0)
		return result;
	adapter_lock(vi->pd->adapter);
	vi->qp->qp.descriptors = &vi->descriptors;
	vi->qkey = (uint32_t)prng_next(&vi->pd->adapter->prng) & 0x7fffffff;
	adapter_unlock(vi->pd->adapter);
	return vi_reset(vi);
}

static void free_vi(struct hdl_vi *vi)
{
	for (uint32_t i = 0; vi->ahs != NULL && i < HDL_VI_MAX_PEERS; i++)
		if (vi->ahs[i] != NULL)
			hdl_ah_destroy(vi->ahs[i]);
	if (vi->qp != NULL)
		hdl_qp_destroy(vi->qp);
	for (uint32_t i = 0; i < 2; i++) {
		if (vi->cqs[i] != NULL)
			hdl_cq_destroy(vi->cqs[i]);
		if (vi->channels[i] != NULL)
			hdl_channel_destroy(vi->channels[i]);
		pthread_mutex_destroy(&vi->post_locks[i]);
	}
	if (vi->headers != NULL)
		hdl_mr_deregister(vi->headers);
	free(vi->descriptors.headers);
	free(vi->descriptors.send.handles);
	free(vi->descriptors.receive.handles);
	free(vi->peers);
	free(vi->ahs);
	vi->magic = 0;
	free(vi);
}

int hdl_vi_create(struct hdl_pd *pd, const struct hdl_vi_attr *attr, struct hdl_vi **out)
{
	if (pd == NULL || pd->magic != MAGIC_PD || attr == NULL || out == NULL)
		return -HDL_EINVAL;
	int result = vi_judge(pd, attr);
	if (result != 0)
		return result;
	struct hdl_vi *vi = calloc(1, sizeof(*vi));
	if (vi == NULL)
		return -HDL_ENOMEM;
	vi->magic = MAGIC_VI;
	vi->pd = pd;
	vi->attr = *attr;
	for (uint32_t i = 0; i < 2; i++)
		pthread_mutex_init(&vi->post_locks[i], NULL);
	if (!make_ring(&vi->descriptors.send, attr->max_send) ||
	    !make_ring(&vi->descriptors.receive, attr->max_receive))
		result = -HDL_ENOMEM;
	if (result == 0)
		result = make_queue(vi, HDL_VI_SEND_QUEUE, attr->send_cq, attr->max_send);
	if (result == 0)
		result = make_queue(vi, HDL_VI_RECEIVE_QUEUE, attr->receive_cq, attr->max_receive);
	if (result == 0 && !is_connected_kind(attr))
		result = make_datagrams(vi);
	if (result == 0)
		result = make_qp(vi);
	if (result != 0) {
		free_vi(vi);
		return result;
	}
	struct vis *vis = &pd->adapter->vis;
	pthread_mutex_lock(&vis->lock);
	vi->next = vis->list;
	vis->list = vi;
	pthread_mutex_unlock(&vis->lock);
	*out = vi;
	return 0;
}

int hdl_vi_destroy(struct hdl_vi *vi)
{
	if (!is_vi(vi))
		return -HDL_EINVAL;
	struct vis *vis = &vi->pd->adapter->vis;
	pthread_mutex_lock(&vis->lock);
	bool busy = vi->users > 0;
	if (!busy) {
		struct hdl_vi **at = &vis->list;
		while (*at != vi)
			at = &(*at)->next;
		*at = vi->next;
		vi_part(vi);
	}
	pthread_mutex_unlock(&vis->lock);
	if (busy)
		return -HDL_EBUSY;
	free_vi(vi);
	return 0;
}

uint32_t hdl_vi_number(const struct hdl_vi *vi)
{
	return vi->qp->qp.qpn;
}

int hdl_vi_query(struct hdl_vi *vi, uint32_t *state)
{
	if (!is_vi(vi) || state == NULL)
		return -HDL_EINVAL;
	pthread_mutex_lock(&vi->pd->adapter->vis.lock);
	*state = vi->state;
	/* The queue pair may have failed by itself. */
	if (*state == HDL_VI_READY && qp_state(&vi->qp->qp) != HDL_QPS_RTS)
		*state = HDL_VI_ERROR;
	pthread_mutex_unlock(&vi->pd->adapter->vis.lock);
	return 0;
}

/* --- the states of the queue pair --- */

void vi_fail(struct hdl_vi *vi)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_ERR};
	hdl_qp_modify(vi->qp, &attr, HDL_QP_STATE);
}

/* New, or without connection any more: receives can be posted. Without connection for good, it can
 * send too. */
int vi_reset(struct hdl_vi *vi)
{
	bool connected = is_connected_kind(&vi->attr);
	struct hdl_qp_attr attr = {.state = HDL_QPS_RESET,
	                           .port_num = 1,
	                           .access = vi->attr.access,
	                           .qkey = vi->qkey,
	                           .sq_psn = vi->qkey & 0xffffff};
	int result = hdl_qp_modify(vi->qp, &attr, HDL_QP_STATE);
	if (result != 0)
		return result;
	adapter_lock(vi->pd->adapter);
	assert(vi->descriptors.send.done == vi->descriptors.send.posted &&
	       vi->descriptors.receive.done == vi->descriptors.receive.posted); /* all flushed */
	adapter_unlock(vi->pd->adapter);
	attr.state = HDL_QPS_INIT;
	result = hdl_qp_modify(vi->qp, &attr,
	                       HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT |
	                               (connected ? HDL_QP_ACCESS : HDL_QP_QKEY));
	if (result != 0 || connected) {
		vi->state = HDL_VI_IDLE;
		return result;
	}
	attr.state = HDL_QPS_RTR;
	result = hdl_qp_modify(vi->qp, &attr, HDL_QP_STATE);
	attr.state = HDL_QPS_RTS;
	if (result == 0)
		result = hdl_qp_modify(vi->qp, &attr, HDL_QP_STATE | HDL_QP_SQ_PSN);
	vi->state = HDL_VI_READY;
	return result;
}

int hdl_vi_disconnect(struct hdl_vi *vi)
{
	if (!is_vi(vi))
		return -HDL_EINVAL;
	struct vis *vis = &vi->pd->adapter->vis;
	pthread_mutex_lock(&vi->post_locks[HDL_VI_SEND_QUEUE]);
	pthread_mutex_lock(&vi->post_locks[HDL_VI_RECEIVE_QUEUE]);
	pthread_mutex_lock(&vis->lock);
	int result = is_connected_kind(&vi->attr) &&
	                             (vi->state == HDL_VI_READY || vi->state == HDL_VI_ERROR)
	                     ? 0
	                     : -HDL_EPERM;
	if (result == 0) {
		vi_part(vi);
		vi_fail(vi); /* flushes */
		result = vi_reset(vi);
	}
	pthread_mutex_unlock(&vis->lock);
	pthread_mutex_unlock(&vi->post_locks[HDL_VI_RECEIVE_QUEUE]);
	pthread_mutex_unlock(&vi->post_locks[HDL_VI_SEND_QUEUE]);
	return result;
}

/* --- doorbells --- */

/* The address handle of the destination @to; NULL: nobody was resolved with it. With the lock of
 * the send queue. */
static int vi_route(struct hdl_vi *vi, const struct hdl_vi_destination *to, struct hdl_send_wr *wr)
{
	struct vis *vis = &vi->pd->adapter->vis;
	uint32_t at = 0;
	pthread_mutex_lock(&vis->lock);
	while (at < vi->descriptors.peer_count &&
	       (vi->peers[at].qpn != to->qpn ||
	        memcmp(vi->peers[at].mac, to->mac, sizeof(to->mac)) != 0))
		at++;
	bool known = at < vi->descriptors.peer_count;
	struct hdl_ah_attr attr = {.port_num = 1, .is_global = true};
	if (known) {
		attr.dgid = vi->peers[at].gid;
		memcpy(attr.dmac, vi->peers[at].mac, sizeof(attr.dmac));
		wr->u.ud.qkey = vi->peers[at].qkey;
	}
	pthread_mutex_unlock(&vis->lock);
	if (!known)
		return -HDL_EHOSTUNREACH;
	int result = vi->ahs[at] != NULL ? 0 : hdl_ah_create(vi->pd, &attr, &vi->ahs[at]);
	wr->u.ud.ah = vi->ahs[at];
	wr->u.ud.qpn = to->qpn;
	return result;
}

/* With the lock of the send queue. */
static int ring_send(struct hdl_vi *vi, uint64_t addr, struct descriptor_work *work)
{
	const struct hdl_send_wr *bad;
	if (vi->descriptors.addressed) {
		if (sg_length(work->pieces, work->send.num_sge) > HDL_VI_DATAGRAM)
			return -HDL_EMSGSIZE;
		int result = vi_route(vi, &work->to, &work->send);
		if (result != 0)
			return result;
	}
	work->send.wr_id = addr;
	return hdl_post_send(vi->qp, &work->send, &bad);
}

/* With the lock of the receive queue. */
static int ring_receive(struct hdl_vi *vi, uint64_t addr, struct descriptor_work *work)
{
	struct hdl_sge pieces[HDL_MAX_SGE + 1];
	struct hdl_recv_wr wr = {.wr_id = addr, .sg_list = pieces, .num_sge = work->send.num_sge};
	const struct hdl_recv_wr *bad;
	uint32_t at = 0;
	if (vi->descriptors.addressed) {
		const struct descriptor_ring *ring = &vi->descriptors.receive;
		size_t place = ring->posted & ring->mask;
		pieces[at++] =
		        (struct hdl_sge){.addr = (uint64_t)(uintptr_t)(vi->descriptors.headers +
		                                                       place * HDL_GRH_BYTES),
		                         .length = HDL_GRH_BYTES,
		                         .key = hdl_mr_key(vi->headers)};
		wr.num_sge++;
	}
	memcpy(pieces + at, work->pieces, work->send.num_sge * sizeof(*pieces));
	return hdl_post_recv(vi->qp, &wr, &bad);
}

static int descriptor_error(enum hdl_detail detail)
{
	switch (detail) {
	case HDL_DETAIL_NONE:
		return 0;
	case HDL_DETAIL_MISALIGNED:
		return -HDL_EINVAL;
	case HDL_DETAIL_LIMIT:
		return -HDL_EMSGSIZE;
	default:
		return -HDL_EACCES;
	}
}

int hdl_vi_post(struct hdl_vi *vi, uint32_t queue, const void *descriptor, struct hdl_key handle)
{
	if (!is_vi(vi) || queue > HDL_VI_RECEIVE_QUEUE)
		return -HDL_EINVAL;
	bool receive = queue == HDL_VI_RECEIVE_QUEUE;
	uint64_t addr = (uint64_t)(uintptr_t)descriptor;
	struct hdl_adapter *adapter = vi->pd->adapter;
	struct descriptor read;
	struct descriptor_work work;
	adapter_lock(adapter);
	enum hdl_detail detail =
	        descriptor_read(&adapter->engine, &vi->qp->qp, addr, handle, &read);
	adapter_unlock(adapter);
	int result = descriptor_error(detail);
	if (result == 0)
		result = descriptor_judge(&read, vi->descriptors.addressed, receive, &work);
	if (result == 0 && work.send.num_sge > vi->attr.max_segments)
		result = -HDL_EMSGSIZE;
	if (result != 0)
		return result;
	struct descriptor_ring *ring = receive ? &vi->descriptors.receive : &vi->descriptors.send;
	pthread_mutex_lock(&vi->post_locks[queue]);
	/* First: the descriptor may be done before the call returns. */
	ring->handles[ring->posted & ring->mask] = handle;
	result = receive ? ring_receive(vi, addr, &work) : ring_send(vi, addr, &work);
	if (result == 0)
		ring->posted++;
	pthread_mutex_unlock(&vi->post_locks[queue]);
	return result;
}

/* --- done --- */

#define DONE_SPINS 1000000u

/* Is a descriptor of @queue done that no call has taken? Its completion is there, or a thread that
 * drives the adapter is about to push it. */
static bool is_done(const struct hdl_vi *vi, uint32_t queue)
{
	const struct descriptor_ring *ring =
	        queue == HDL_VI_RECEIVE_QUEUE ? &vi->descriptors.receive : &vi->descriptors.send;
	return atomic_load_explicit(&ring->done, memory_order_acquire) !=
	       atomic_load_explicit(&vi->taken[queue], memory_order_relaxed);
}

int hdl_vi_done(struct hdl_vi *vi, uint32_t queue, void **descriptor)
{
	struct hdl_wc wc;
	if (!is_vi(vi) || queue > HDL_VI_RECEIVE_QUEUE || vi->cqs[queue] == NULL ||
	    descriptor == NULL)
		return -HDL_EINVAL;
	int count = hdl_cq_poll(vi->cqs[queue], &wc, 1);
	/* A program that saw the status gets the descriptor. */
	for (uint32_t spins = 0; count == 0 && is_done(vi, queue) && spins < DONE_SPINS; spins++) {
		lock_relax(spins);
		count = hdl_cq_poll(vi->cqs[queue], &wc, 1);
	}
	if (count > 0)
		atomic_fetch_add_explicit(&vi->taken[queue], 1, memory_order_relaxed);
	if (count <= 0)
		return count < 0 ? count : -HDL_EAGAIN;
	*descriptor = (void *)(uintptr_t)wc.wr_id;
	return 0;
}

int hdl_vi_wait(struct hdl_vi *vi, uint32_t queue, int timeout_ms, void **descriptor)
{
	int result = hdl_vi_done(vi, queue, descriptor);
	uint64_t end = clock_now_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u;
	while (result == -HDL_EAGAIN && timeout_ms != 0) {
		uint64_t now = clock_now_ns();
		if (timeout_ms > 0 && now >= end)
			break;
		struct hdl_cq *cq;
		hdl_cq_arm(vi->cqs[queue], false);
		if ((result = hdl_vi_done(vi, queue, descriptor)) != -HDL_EAGAIN)
			break;
		int left = timeout_ms < 0 ? -1 : (int)((end - now) / 1000000u) + 1;
		if (hdl_channel_get(vi->channels[queue], &cq, NULL, left) == 0)
			hdl_cq_ack(cq, 1);
		result = hdl_vi_done(vi, queue, descriptor);
	}
	return result;
}
