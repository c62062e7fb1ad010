/* What messages from other processes do to virtual interfaces and listeners. See vi.h. Everything
 * here happens with vis.lock. */
#include <string.h>

#include "adapter/adapter.h"

void vi_drop_request(struct hdl_vi_listener *listener, uint32_t at)
{
	listener->count--;
	memmove(&listener->requests[at], &listener->requests[at + 1],
	        (listener->count - at) * sizeof(listener->requests[0]));
}

/* Whom @msg came from. */
static struct vi_far vi_sender(const struct hdl_cm_msg *msg)
{
	return (struct vi_far){.on_wire = msg->kind == HDL_CM_MAD,
	                       .guid = msg->guid,
	                       .slot = msg->slot,
	                       .gid = msg->gid,
	                       .own = msg->own};
}

static bool same_far(const struct vi_far *a, const struct vi_far *b)
{
	return a->on_wire == b->on_wire &&
	       (a->on_wire ? memcmp(&a->gid, &b->gid, sizeof(a->gid)) == 0
	                   : a->guid == b->guid && a->slot == b->slot);
}

static bool hear_speaks_cells(const uint8_t *hello)
{
	return (hello[4] & VI_HELLO_CELLS) != 0;
}

bool vi_same_wire(const struct hdl_vi *vi, bool cells, const struct vi_far *from)
{
	const struct net *net = &vi->pd->adapter->net;
	return cells == wire_speaks_cells(net, vi->attr.packets) || (!from->on_wire && !net->only);
}

static void hear_request(struct hdl_vi_listener *listener, const struct ib_cm_message *message,
                         struct vi_far *from)
{
	const struct ib_cm_req *req = &message->u.req;
	struct hdl_adapter *adapter = listener->adapter;
	from->id = req->local_id;
	if (!vi_hello_names(req->private_data, listener)) {
		vi_reject(adapter, from, 0, message->transaction_id, IB_CM_CONSUMER, VI_REJ_NAME);
		return;
	}
	/* What no VI of ours could have is refused now, other things when one accepts. */
	bool cells = hear_speaks_cells(req->private_data);
	if (listener->vi != NULL || req->mtu < 1 || req->mtu > 5 ||
	    (from->on_wire && !net_has(&adapter->net, cells))) {
		vi_reject(adapter, from, 0, message->transaction_id, IB_CM_INVALID_TRANSPORT, 0);
		return;
	}
	for (uint32_t i = 0; i < listener->count; i++)
		if (listener->requests[i].from.id == from->id &&
		    same_far(&listener->requests[i].from, from))
			return; /* again */
	for (const struct hdl_vi *vi = adapter->vis.list; vi != NULL; vi = vi->next)
		if (vi->id != 0 && vi->far.id == from->id && same_far(&vi->far, from))
			return; /* it is being answered */
	if (listener->count == HDL_VI_BACKLOG) {
		vi_reject(adapter, from, 0, message->transaction_id, IB_CM_NO_RESOURCES, 0);
		return;
	}
	from->qpn = req->qpn;
	from->psn = req->psn;
	uint16_t own_mtu = net_mtu(adapter);
	from->mtu = (uint16_t)(128u << req->mtu);
	from->mtu = own_mtu < from->mtu ? own_mtu : from->mtu;
	if (!from->on_wire) /* where its packets come from; the sender of a datagram is that */
		memcpy(from->gid.raw, req->primary.local_gid, IB_GID_BYTES);
	wire_mac(adapter, &from->gid, from->mac);
	listener->requests[listener->count++] =
	        (struct vi_request){.from = *from,
	                            .transaction = message->transaction_id,
	                            .transport = req->transport,
	                            .cells = cells};
}

static void hear_lookup(struct hdl_vi_listener *listener, const struct ib_cm_message *message,
                        const struct vi_far *from)
{
	const struct ib_cm_sidr_req *req = &message->u.sidr_req;
	struct hdl_adapter *adapter = listener->adapter;
	struct ib_cm_message rep = {
	        .kind = IB_CM_SIDR_REP,
	        .transaction_id = message->transaction_id,
	        .u.sidr_rep = {.request_id = req->request_id, .service_id = req->service_id}};
	bool named = vi_hello_names(req->private_data, listener);
	struct descriptor_peer peer = vi_self_decode(adapter, req->private_data + VI_HELLO_BYTES,
	                                             from->on_wire ? &from->gid : NULL);
	if (!named || listener->vi == NULL ||
	    !vi_same_wire(listener->vi, hear_speaks_cells(req->private_data), from) ||
	    !vi_know(listener->vi, &peer)) {
		rep.u.sidr_rep.status = named ? IB_CM_SIDR_REJECT : IB_CM_SIDR_UNSUPPORTED;
	} else {
		rep.u.sidr_rep.qpn = listener->vi->qp->qp.qpn;
		rep.u.sidr_rep.qkey = listener->vi->qkey;
		vi_self_encode(rep.u.sidr_rep.private_data, adapter->guid, rep.u.sidr_rep.qpn,
		               rep.u.sidr_rep.qkey, &adapter->engine.gid);
	}
	vi_tell(adapter, from, &rep);
}

/* The peer has left the connection or the attempt. */
static void hear_end(struct hdl_vi *vi)
{
	if (vi->state == HDL_VI_READY) {
		vi->state = HDL_VI_ERROR;
		vi_fail(vi);
	} else if (vi->state == HDL_VI_CONNECTING || vi->asking) {
		vi->answer = VI_REFUSED;
	}
}

static void hear_reply(struct hdl_vi *vi, const struct ib_cm_message *message,
                       const struct vi_far *from)
{
	const struct ib_cm_rep *rep = &message->u.rep;
	if (vi->state == HDL_VI_READY) { /* the RTU was lost */
		struct ib_cm_message rtu = {.kind = IB_CM_RTU,
		                            .transaction_id = message->transaction_id,
		                            .u.rtu = {.local_id = vi->id, .remote_id = vi->far.id}};
		vi_tell(vi->pd->adapter, &vi->far, &rtu);
		return;
	}
	if (!vi->asking || message->transaction_id != vi->transaction)
		return;
	vi->far = *from;
	vi->far.id = rep->local_id;
	vi->far.qpn = rep->qpn;
	vi->far.psn = rep->psn;
	vi->far.mtu = net_mtu(vi->pd->adapter);
	if (!from->on_wire)
		memcpy(vi->far.gid.raw, rep->private_data, IB_GID_BYTES);
	wire_mac(vi->pd->adapter, &vi->far.gid, vi->far.mac);
	vi->answer = VI_ACCEPTED;
}

static void hear_sidr_reply(struct hdl_vi *vi, const struct ib_cm_message *message,
                            const struct vi_far *from)
{
	const struct ib_cm_sidr_rep *rep = &message->u.sidr_rep;
	if (!vi->asking || message->transaction_id != vi->transaction)
		return;
	vi->answer = rep->status == IB_CM_SIDR_OK            ? VI_ACCEPTED
	             : rep->status == IB_CM_SIDR_UNSUPPORTED ? VI_NOT_THERE
	                                                     : VI_REFUSED;
	vi->found = vi_self_decode(vi->pd->adapter, rep->private_data,
	                           from->on_wire ? &from->gid : NULL);
}

static void hear_reject(struct hdl_vi *vi, const struct ib_cm_message *message)
{
	const struct ib_cm_rej *rej = &message->u.rej;
	if (message->transaction_id != vi->transaction)
		return;
	bool elsewhere = rej->reason == IB_CM_INVALID_SERVICE_ID ||
	                 (rej->reason == IB_CM_CONSUMER && rej->info_bytes > 0 &&
	                  rej->info[0] == VI_REJ_NAME);
	if (vi->asking && elsewhere)
		vi->answer = VI_NOT_THERE;
	else
		hear_end(vi);
}

/* Our own message came back. */
static void hear_returned(struct hdl_vi *vi, const struct hdl_cm_msg *msg)
{
	if (vi->asking)
		vi->answer = msg->error == -HDL_EHOSTUNREACH ? VI_UNREACHABLE : VI_NOT_THERE;
	else
		hear_end(vi);
}

static struct hdl_vi *vi_by_id(const struct hdl_adapter *adapter, uint32_t id)
{
	struct hdl_vi *vi = adapter->vis.list;
	while (vi != NULL && (id == 0 || vi->id != id))
		vi = vi->next;
	return vi;
}

/* A message to the connection of @vi. */
static void hear_connection(struct hdl_vi *vi, const struct ib_cm_message *message,
                            const struct vi_far *from)
{
	struct ib_cm_message drep;
	switch (message->kind) {
	case IB_CM_REP:
		hear_reply(vi, message, from);
		break;
	case IB_CM_SIDR_REP:
		hear_sidr_reply(vi, message, from);
		break;
	case IB_CM_RTU:
		if (vi->offering && same_far(&vi->far, from)) {
			vi->answer = VI_ACCEPTED;
			vi->state = HDL_VI_READY; /* the next message may be a DREQ */
		}
		break;
	case IB_CM_REJ:
		hear_reject(vi, message);
		break;
	case IB_CM_DREQ:
		if (!same_far(&vi->far, from) || message->u.dreq.remote_qpn != vi->qp->qp.qpn)
			break;
		drep = vi_farewell(vi, IB_CM_DREP);
		drep.transaction_id = message->transaction_id;
		if (from->on_wire)
			vi_tell(vi->pd->adapter, from, &drep);
		hear_end(vi);
		break;
	default:
		break;
	}
}

/* A process has ended: so have its connections. */
static void hear_death(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg)
{
	for (struct hdl_vi *vi = adapter->vis.list; vi != NULL; vi = vi->next)
		if (vi->id != 0 && !vi->far.on_wire && vi->far.guid == msg->guid &&
		    vi->far.slot == msg->slot) {
			/* Its death may be heard before its last messages. If it could have
			 * confirmed and sent, the connection has been and is over. */
			if (vi->offering && vi->state == HDL_VI_CONNECTING) {
				vi->state = HDL_VI_READY;
				vi->answer = VI_ACCEPTED;
			}
			hear_end(vi);
		}
	for (struct hdl_vi_listener *at = adapter->vis.listeners; at != NULL; at = at->next)
		for (uint32_t i = at->count; i-- > 0;)
			if (!at->requests[i].from.on_wire &&
			    at->requests[i].from.guid == msg->guid &&
			    at->requests[i].from.slot == msg->slot)
				vi_drop_request(at, i);
}

/* A request has been given up: drop it. False: it was not one of ours. */
static bool hear_withdrawal(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg,
                            const struct ib_cm_message *message)
{
	struct vi_far from = vi_sender(msg);
	if (message->kind != IB_CM_REJ || message->u.rej.remote_id != 0)
		return false;
	for (struct hdl_vi_listener *at = adapter->vis.listeners; at != NULL; at = at->next)
		for (uint32_t i = 0; i < at->count; i++)
			if (at->requests[i].from.id == message->u.rej.local_id &&
			    same_far(&at->requests[i].from, &from)) {
				vi_drop_request(at, i);
				return true;
			}
	return false;
}

static void hear_port(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg,
                      const struct ib_cm_message *message)
{
	struct vi_far from = vi_sender(msg);
	struct hdl_vi_listener *at = adapter->vis.listeners;
	while (at != NULL && at->port != msg->port)
		at = at->next;
	if (at == NULL)
		return;
	if (message->kind == IB_CM_REQ)
		hear_request(at, message, &from);
	else if (message->kind == IB_CM_SIDR_REQ)
		hear_lookup(at, message, &from);
}

/* The connection of ours that @message is about, if any. */
static struct hdl_vi *vi_of(const struct hdl_adapter *adapter, const struct ib_cm_message *message)
{
	uint32_t id;
	uint64_t service;
	return ib_cm_addressee(message, &id, &service) ? vi_by_id(adapter, id) : NULL;
}

static void hear_message(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg,
                         const struct ib_cm_message *message)
{
	struct vi_far from = vi_sender(msg);
	struct hdl_vi *vi;
	if (msg->kind == HDL_CM_RETURNED) {
		uint32_t own = message->kind == IB_CM_REQ        ? message->u.req.local_id
		               : message->kind == IB_CM_SIDR_REQ ? message->u.sidr_req.request_id
		               : message->kind == IB_CM_REP      ? message->u.rep.local_id
		                                                 : 0;
		vi = vi_by_id(adapter, own);
		if (vi != NULL && message->transaction_id == vi->transaction)
			hear_returned(vi, msg);
	} else if ((vi = vi_of(adapter, message)) != NULL) {
		hear_connection(vi, message, &from);
	} else {
		hear_port(adapter, msg, message);
	}
}

bool vi_hear(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg)
{
	struct ib_cm_message message;
	bool taken = false;
	pthread_mutex_lock(&adapter->vis.lock);
	if (msg->kind == HDL_CM_GONE) {
		hear_death(adapter, msg); /* others want to know too */
		pthread_cond_broadcast(&adapter->vis.changed);
	} else if (msg->length == MAD_BYTES &&
	           ib_cm_decode(&message, msg->data, MAD_BYTES) == IB_CM_OK) {
		taken = msg->space == VI_SPACE || vi_of(adapter, &message) != NULL;
		if (hear_withdrawal(adapter, msg, &message))
			taken = true;
		else if (taken)
			hear_message(adapter, msg, &message);
		pthread_cond_broadcast(&adapter->vis.changed);
	}
	pthread_mutex_unlock(&adapter->vis.lock);
	return taken;
}
