/* Addresses of connections: how IP addresses, GIDs and LIDs map to each other, and librdmacm's
 * queries about a route.
 *
 * Connections use the first device that the program sees. On heddle0, IP addresses are GIDs. On
 * heddle_ib0, which is on no IP network of the host, each address of the host stands for its one
 * GID, as an IPoIB address would. */
#include <assert.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <string.h>

#include "compat/cm/cm.h"

#define HOP_LIMIT    64
#define PACKET_LIFE  18 /* 4.096 us * 2^18, about a second */
#define RNR_TIMER    0  /* 655 ms, as long as Linux's rdma_cm waits for late receives */
#define RATE_100_GBS 16

static const struct sockaddr_in *cm_addr_as_in(const struct sockaddr_in6 *address)
{
	return (const struct sockaddr_in *)(const void *)address;
}

/* IPv4 addresses are mapped into IPv6 (IBTA annex A17). */
static bool to_gid(const struct sockaddr_in6 *address, struct hdl_gid *gid)
{
	*gid = (struct hdl_gid){.raw = {[10] = 0xff, [11] = 0xff}};
	if (address->sin6_family == AF_INET)
		memcpy(gid->raw + 12, &cm_addr_as_in(address)->sin_addr, 4);
	else if (address->sin6_family == AF_INET6)
		memcpy(gid->raw, &address->sin6_addr, 16);
	else
		return false;
	return true;
}

bool cm_is_any(const struct sockaddr_in6 *address)
{
	if (address->sin6_family == AF_INET)
		return cm_addr_as_in(address)->sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&address->sin6_addr);
}

/* The port is at the same place in both families. */
in_port_t *cm_port_of(struct sockaddr_in6 *address)
{
	return &address->sin6_port;
}

/* The device that connections use. */
static const struct compat_device *device(void)
{
	return compat_device(0);
}

const struct cm_manager *cm_wire_manager(void)
{
	return device() != NULL ? device()->manager : NULL;
}

unsigned cm_room(unsigned room)
{
	return device() != NULL && device()->private_room != 0 ? device()->private_room : room;
}

bool cm_ends_qps(void)
{
	return device() != NULL && device()->sqd_closes;
}

static bool first_gid(struct hdl_gid *gid)
{
	union ibv_gid first;
	if (device() == NULL || !compat_gid(device(), 0, &first))
		return false;
	memcpy(gid->raw, first.raw, 16);
	return true;
}

static int index_of(const struct hdl_gid *gid)
{
	union ibv_gid own;
	for (unsigned i = 0; i < COMPAT_GIDS; i++)
		if (compat_gid(device(), i, &own) && memcmp(own.raw, gid->raw, 16) == 0)
			return (int)i;
	return -1;
}

/* In 127.0.0.0/8, or ::1? */
static bool is_loopback(const struct hdl_gid *gid)
{
	static const uint8_t prefix[13] = {[10] = 0xff, [11] = 0xff, [12] = 127},
	                     one[16] = {[15] = 1};
	return memcmp(gid->raw, prefix, sizeof(prefix)) == 0 || memcmp(gid->raw, one, 16) == 0;
}

static bool is_of_host(const struct hdl_gid *gid)
{
	struct ifaddrs *list;
	bool found = is_loopback(gid);
	if (found || getifaddrs(&list) != 0)
		return found;
	for (struct ifaddrs *at = list; at != NULL && !found; at = at->ifa_next) {
		struct hdl_gid own;
		found = at->ifa_addr != NULL &&
		        to_gid((struct sockaddr_in6 *)(void *)at->ifa_addr, &own) &&
		        memcmp(own.raw, gid->raw, 16) == 0;
	}
	freeifaddrs(list);
	return found;
}

/* The LID if @gid is in 127.72.0.0/16, where every node has an address of its own; else 0. */
static uint16_t lid_of_loopback(const struct hdl_gid *gid)
{
	static const uint8_t prefix[14] = {
	        [10] = 0xff, [11] = 0xff, [12] = CM_NODES >> 24, [13] = CM_NODES >> 16 & 0xff};
	if (memcmp(gid->raw, prefix, sizeof(prefix)) != 0)
		return 0;
	return (uint16_t)(gid->raw[14] << 8 | gid->raw[15]);
}

static struct hdl_limits identity(void)
{
	struct hdl_limits limits = {0};
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter != NULL)
		hdl_adapter_query(adapter, &limits);
	return limits;
}

uint16_t cm_own_lid(void)
{
	return device() != NULL && device()->has_lid ? identity().lid : 0;
}

in_addr_t cm_node_address(void)
{
	uint16_t lid = identity().lid;
	return lid != 0 ? CM_NODES | lid : 0;
}

/* On a node that has a name, the addresses of the host stand for that node's first address. */
bool cm_local_gid(const struct sockaddr_in6 *address, struct hdl_gid *gid)
{
	if (device() == NULL || !to_gid(address, gid))
		return false;
	if (index_of(gid) >= 0)
		return true;
	uint16_t lid = lid_of_loopback(gid);
	if (lid != 0 && lid != identity().lid)
		return false; /* of another node */
	if (identity().wire != HDL_WIRE_NONE && !is_loopback(gid))
		return false; /* it may also be an address of another machine on the wire */
	return is_of_host(gid) && first_gid(gid);
}

bool cm_addr_may_be_of_another(const struct sockaddr_in6 *address, struct hdl_gid *exact)
{
	static const struct hdl_gid
	        any = {0},
	        any4 = {.raw = {[10] = 0xff, [11] = 0xff}}, here = {.raw = {[15] = 1}},
	        here4 = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
	const struct hdl_gid *const ours[] = {&any, &any4, &here, &here4};
	struct hdl_gid first;
	if (device() == NULL || !to_gid(address, exact) || index_of(exact) >= 0)
		return false;
	for (unsigned i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (memcmp(exact->raw, ours[i]->raw, 16) == 0)
			return false;
	return cm_local_gid(address, &first);
}

bool cm_may_be_from(const struct sockaddr_in6 *address, const struct hdl_gid *sender)
{
	struct hdl_gid gid;
	return !to_gid(address, &gid) || !is_loopback(&gid) || lid_of_loopback(&gid) != 0 ||
	       index_of(sender) >= 0;
}

void cm_show_node(struct sockaddr_in6 *address)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct hdl_gid gid;
	if (address->sin6_family != AF_INET || identity().wire == HDL_WIRE_NONE ||
	    !to_gid(address, &gid) || !is_loopback(&gid) || lid_of_loopback(&gid) != 0)
		return;
	in_addr_t own = htonl(cm_node_address());
	if (first_gid(&gid) && memcmp(gid.raw, mapped, sizeof(mapped)) == 0)
		memcpy(&own, gid.raw + 12, 4);
	((struct sockaddr_in *)(void *)address)->sin_addr.s_addr = own;
}

/* The source for reaching others: an address of the node itself, in the family of the
 * destination. */
static bool cm_addr_own_source(struct cm_id *id)
{
	in_port_t port = *cm_port_of(&id->src);
	struct hdl_gid first;
	if (!first_gid(&first))
		return false;
	if (id->dst.sin6_family == AF_INET) {
		struct sockaddr_in *src = (struct sockaddr_in *)(void *)&id->src;
		id->src = (struct sockaddr_in6){.sin6_family = AF_INET};
		src->sin_addr.s_addr = htonl(cm_node_address());
	} else {
		id->src = (struct sockaddr_in6){.sin6_family = AF_INET6,
		                                .sin6_scope_id = id->dst.sin6_scope_id};
		memcpy(&id->src.sin6_addr, first.raw, 16);
	}
	*cm_port_of(&id->src) = port;
	return cm_local_gid(&id->src, &id->sgid);
}

uint32_t cm_family_of(const struct sockaddr_in6 *address)
{
	return address->sin6_family == AF_INET ? HDL_CM_IPV4 : HDL_CM_IPV6;
}

static bool cm_addr_is_link_local(const struct sockaddr_in6 *address)
{
	return address->sin6_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr);
}

static bool is_ipv4(const struct hdl_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	return memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
}

/* Are @own, an address of the host, and @other on one network? */
static bool on_one_network(const struct hdl_gid *own, const struct hdl_gid *other)
{
	struct ifaddrs *list;
	bool found = false;
	if (getifaddrs(&list) != 0)
		return false;
	for (struct ifaddrs *at = list; at != NULL && !found; at = at->ifa_next) {
		struct hdl_gid its, mask;
		if (at->ifa_addr == NULL || at->ifa_netmask == NULL ||
		    !to_gid((struct sockaddr_in6 *)(void *)at->ifa_addr, &its) ||
		    !to_gid((struct sockaddr_in6 *)(void *)at->ifa_netmask, &mask) ||
		    memcmp(its.raw, own->raw, 16) != 0)
			continue;
		found = true;
		for (unsigned i = 0; i < 16; i++)
			found &= ((own->raw[i] ^ other->raw[i]) & mask.raw[i]) == 0;
	}
	freeifaddrs(list);
	return found;
}

/* The source for packets to @to: an address of a wire (no other works), on the same network if
 * there is one, or else the first of the family. */
static bool wire_gid(const struct hdl_gid *to, struct hdl_gid *out)
{
	struct hdl_limits limits = identity();
	struct hdl_gid gid;
	bool found = false, several = (limits.wire_gids & (limits.wire_gids - 1)) != 0;
	for (uint32_t i = 0; i < limits.gid_count; i++) {
		if (!(limits.wire_gids >> i & 1) || hdl_gid_query(compat_adapter(), i, &gid) != 0 ||
		    is_ipv4(&gid) != is_ipv4(to))
			continue;
		bool near = several && on_one_network(&gid, to);
		if (near || !found)
			*out = gid;
		found = true;
		if (near)
			break;
	}
	return found;
}

static bool is_wire(const struct hdl_gid *gid)
{
	struct hdl_limits limits = identity();
	struct hdl_gid own;
	for (uint32_t i = 0; i < limits.gid_count; i++)
		if ((limits.wire_gids >> i & 1) && hdl_gid_query(compat_adapter(), i, &own) == 0 &&
		    memcmp(own.raw, gid->raw, 16) == 0)
			return true;
	return false;
}

static bool wire_source(struct cm_id *id)
{
	struct hdl_gid to, own;
	in_port_t port = *cm_port_of(&id->src);
	if (!to_gid(&id->dst, &to))
		return false;
	if (id->has_device)
		return is_wire(&id->sgid) && is_ipv4(&id->sgid) == is_ipv4(&to);
	if (!wire_gid(&to, &own))
		return false;
	id->src = (struct sockaddr_in6){.sin6_family = id->dst.sin6_family};
	if (id->dst.sin6_family == AF_INET) {
		memcpy(&((struct sockaddr_in *)(void *)&id->src)->sin_addr, own.raw + 12, 4);
	} else {
		memcpy(&id->src.sin6_addr, own.raw, 16);
		id->src.sin6_scope_id = id->dst.sin6_scope_id;
	}
	*cm_port_of(&id->src) = port;
	id->sgid = own;
	id->has_device = true;
	return true;
}

void cm_cross(struct cm_id *id)
{
	assert(device() != NULL && device()->manager != NULL); /* cm_route() has checked */
	cm_use(id, device()->manager);
}

/* All peers, this process included, are reached over the wire. An address of a family that the wire
 * does not have stands for a node: ours, or the one that has it as its link-local address
 * (cm_seek()). */
static int route_all_across(struct cm_id *id, bool *elsewhere)
{
	struct hdl_gid first;
	bool ours = cm_local_gid(&id->dst, &id->dgid) && id->node_lid == 0, chosen = id->has_device;
	if (id->node_lid != 0)
		to_gid(&id->dst, &id->dgid);
	cm_cross(id);
	/* An identifier bound to an address of the host that is not on the wire sends from one that
	 * is; the program still sees the address that it chose. */
	bool ipv4 = id->dst.sin6_family == AF_INET;
	struct hdl_gid to, own;
	if (id->has_device && id->src.sin6_family == id->dst.sin6_family &&
	    !(is_wire(&id->sgid) && is_ipv4(&id->sgid) == ipv4)) {
		if (to_gid(&id->dst, &to) && wire_gid(&to, &own))
			id->sgid = own;
		else
			id->has_device = false;
	}
	if (wire_source(id)) {
		if (ours && !is_wire(&id->dgid)) /* an address of the host: it means us */
			id->dgid = id->sgid;
		/* The listener is on this node: it sees us as it does on the same-host path. */
		if (ours && !chosen && id->manager->tells_addresses && to_gid(&id->dst, &to) &&
		    !is_wire(&to)) {
			in_port_t port = *cm_port_of(&id->src);
			id->src = id->dst;
			*cm_port_of(&id->src) = port;
		}
		return 0;
	}
	if (id->has_device || !first_gid(&first))
		return EHOSTUNREACH;
	if (!ours && !cm_addr_is_link_local(&id->dst))
		return EHOSTUNREACH;
	if (ours)
		id->dgid = first;
	in_port_t port = *cm_port_of(&id->src);
	id->src = id->dst;
	if (!ours)
		memcpy(&id->src.sin6_addr, first.raw, 16);
	*cm_port_of(&id->src) = port;
	id->sgid = first;
	id->has_device = true;
	*elsewhere = !ours;
	return 0;
}

void cm_lid_address(uint16_t lid, struct hdl_gid *gid)
{
	*gid = (struct hdl_gid){.raw = {[10] = 0xff,
	                                [11] = 0xff,
	                                [12] = CM_NODES >> 24,
	                                [13] = CM_NODES >> 16 & 0xff,
	                                [14] = (uint8_t)(lid >> 8),
	                                [15] = (uint8_t)lid}};
}

int cm_route(struct cm_id *id, bool *elsewhere)
{
	bool crosses = device() != NULL && device()->manager != NULL;
	uint16_t wire = crosses ? identity().wire : HDL_WIRE_NONE;
	*elsewhere = id->may_cross = false;
	cm_use(id, &cm_local);
	if (device() == NULL)
		return ENODEV;
	bool group = cm_is_multicast(&id->dst);
	if (wire == HDL_WIRE_ALL && !group)
		return route_all_across(id, elsewhere);
	bool local = !group && id->node_lid == 0 && cm_local_gid(&id->dst, &id->dgid);
	uint16_t lid = local ? identity().lid : id->node_lid;
	if (group)
		cm_multicast_gid(&id->dst, &id->dgid);
	else if (id->node_lid != 0)
		to_gid(&id->dst, &id->dgid);
	else if (!local)
		lid = lid_of_loopback(&id->dgid);
	*elsewhere = !group && !local && id->node_lid == 0;
	bool link_local = cm_addr_is_link_local(&id->dst);
	if (*elsewhere && wire == HDL_WIRE_OTHERS && lid == 0 && !link_local && wire_source(id)) {
		id->may_cross = true;
		return 0;
	}
	/* Other nodes are known by their link-local addresses and by those in 127.72.0.0/16. */
	if (!group && lid == 0 && !link_local)
		return EHOSTUNREACH;
	id->dlid = cm_own_lid() != 0 ? lid : 0;
	if (id->has_device)
		return 0;
	if (local) {
		in_port_t port = *cm_port_of(&id->src);
		id->src = id->dst;
		*cm_port_of(&id->src) = port;
		id->sgid = id->dgid;
	} else if (!cm_addr_own_source(id)) {
		return ENODEV;
	}
	id->has_device = true;
	return 0;
}

/* Do packets to the peer have a global route? On Ethernet, and where its LID is not known. */
static bool is_global(const struct cm_id *id)
{
	return id->dlid == 0;
}

void cm_query_route(const struct cm_id *id, struct rdma_ucm_query_route_resp *resp)
{
	memset(resp, 0, sizeof(*resp));
	resp->ibdev_index = UINT32_MAX;
	resp->src_addr = id->src;
	resp->dst_addr = id->dst;
	if (!id->has_device || device() == NULL)
		return;
	resp->node_guid = compat_guid(device());
	resp->port_num = COMPAT_PORT;
	resp->num_paths = id->has_path;
	struct ib_user_path_rec *path = &resp->ib_route[0];
	memcpy(path->sgid, id->sgid.raw, 16);
	memcpy(path->dgid, id->dgid.raw, 16);
	path->pkey = htons(COMPAT_PKEY);
	path->reversible = 1;
	path->hop_limit = is_global(id) ? HOP_LIMIT : 0;
	path->traffic_class = id->tos;
	path->dlid = htons(id->dlid);
	path->slid = htons(cm_own_lid());
	path->numb_path = 1;
	path->mtu_selector = path->rate_selector = path->packet_life_time_selector = 2;
	path->mtu = (uint8_t)compat_active_mtu(compat_adapter());
	path->rate = RATE_100_GBS;
	path->packet_life_time = PACKET_LIFE;
}

void cm_ah_attr(const struct cm_id *id, struct ib_uverbs_ah_attr *attr)
{
	int index = index_of(&id->sgid);
	*attr = (struct ib_uverbs_ah_attr){.dlid = id->dlid,
	                                   .grh = {.sgid_index = (uint8_t)(index < 0 ? 0 : index),
	                                           .hop_limit = HOP_LIMIT,
	                                           .traffic_class = id->tos},
	                                   .is_global = is_global(id),
	                                   .port_num = COMPAT_PORT};
	memcpy(attr->grh.dgid, id->dgid.raw, 16);
}

uint8_t cm_ack_timeout(const struct cm_id *id)
{
	return id->ack_timeout != 0 ? id->ack_timeout & 31 : id->manager->ack_timeout;
}

int cm_init_qp_attr(const struct cm_id *id, uint32_t state, struct ib_uverbs_qp_attr *attr)
{
	*attr = (struct ib_uverbs_qp_attr){.qp_state = state, .port_num = COMPAT_PORT};
	/* An XRC queue pair has only half of the attributes of a reliable connection. */
	bool asks = id->qp_type == IBV_QPT_RC || id->qp_type == IBV_QPT_XRC_SEND;
	bool answers = id->qp_type == IBV_QPT_RC || id->qp_type == IBV_QPT_XRC_RECV;
	if (!id->has_device)
		return EINVAL;
	if (id->manager->init_qp_attr != NULL)
		return id->manager->init_qp_attr(id, state, attr);
	if (state == IBV_QPS_INIT) {
		attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
		if (id->qp_type == IBV_QPT_UD) {
			attr->qp_attr_mask |= IBV_QP_QKEY;
			attr->qkey = CM_UDP_QKEY;
			return 0;
		}
		attr->qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
		attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		if (answers && id->responder_resources > 0)
			attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
		return 0;
	}
	if (id->qp_type == IBV_QPT_UD || id->state < CM_REQ_RECEIVED)
		return EINVAL;
	if (state == IBV_QPS_RTR) {
		attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		                     IBV_QP_RQ_PSN;
		if (answers)
			attr->qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		cm_ah_attr(id, &attr->ah_attr);
		attr->path_mtu =
		        id->mtu != 0 ? id->mtu : (uint8_t)compat_active_mtu(compat_adapter());
		attr->dest_qp_num = id->qpn;
		attr->rq_psn = id->own_psn;
		attr->max_dest_rd_atomic = id->responder_resources;
		attr->min_rnr_timer = RNR_TIMER;
		return 0;
	}
	if (state != IBV_QPS_RTS)
		return EINVAL;
	attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (asks || answers)
		attr->qp_attr_mask |= IBV_QP_TIMEOUT;
	if (asks)
		attr->qp_attr_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	attr->sq_psn = id->psn;
	attr->timeout = cm_ack_timeout(id);
	attr->retry_cnt = id->retry_count;
	attr->rnr_retry = id->rnr_retry_count;
	attr->max_rd_atomic = id->initiator_depth;
	return 0;
}
