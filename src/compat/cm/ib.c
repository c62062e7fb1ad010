/* Addresses of InfiniBand (AF_IB), and the commands that take them beside those of IP. Such an
 * address is a GID and a service. Inside it is kept as an IPv6 address with a port, because
 * services here are IP ports (IBTA annex A11): a prefix, the port space, the port. */
#include <endian.h>
#include <string.h>

#include <infiniband/ib.h>
#include <infiniband/sa.h>

#include "compat/cm/cm.h"

#define IP_SERVICE      0x0000000001000000ull
#define IP_SERVICE_MASK 0xffffffffff000000ull

int cm_address_in(const void *from, size_t size, struct sockaddr_in6 *to, uint16_t *space)
{
	struct sockaddr_ib ib;
	sa_family_t family;
	memset(to, 0, sizeof(*to));
	*space = 0;
	if (size < sizeof(family))
		return 0; /* no address */
	memcpy(&family, from, sizeof(family));
	if (family == AF_INET || family == AF_INET6) {
		memcpy(to, from,
		       family == AF_INET ? sizeof(struct sockaddr_in)
		                         : sizeof(struct sockaddr_in6));
		return 0;
	}
	if (family != AF_IB || size < sizeof(ib))
		return EAFNOSUPPORT;
	memcpy(&ib, from, sizeof(ib));
	uint64_t service = be64toh(ib.sib_sid);
	if (service != 0 && (service & IP_SERVICE_MASK) != IP_SERVICE)
		return EADDRNOTAVAIL;
	to->sin6_family = AF_INET6;
	memcpy(&to->sin6_addr, &ib.sib_addr, 16);
	to->sin6_port = htons((uint16_t)service);
	*space = service != 0 ? (uint16_t)(service >> 16) : RDMA_PS_IB;
	return 0;
}

static struct sockaddr_ib ib_address(const struct cm_id *id, const void *gid, in_port_t port)
{
	struct sockaddr_ib ib = {.sib_family = AF_IB,
	                         .sib_pkey = htons(COMPAT_PKEY),
	                         .sib_sid = htobe64((uint64_t)id->space << 16 | ntohs(port)),
	                         .sib_sid_mask = htobe64(UINT64_MAX)};
	memcpy(&ib.sib_addr, gid, 16);
	return ib;
}

/* The address in the form that the program used. Returns its size; 0: there is none. */
static uint16_t address_out(const struct cm_id *id, const struct sockaddr_in6 *from, void *to)
{
	if (from->sin6_family == 0)
		return 0;
	if (id->is_ib) {
		struct sockaddr_ib ib = ib_address(id, &from->sin6_addr, from->sin6_port);
		memcpy(to, &ib, sizeof(ib));
		return sizeof(ib);
	}
	uint16_t size = from->sin6_family == AF_INET ? sizeof(struct sockaddr_in)
	                                             : sizeof(struct sockaddr_in6);
	memcpy(to, from, size);
	return size;
}

void cm_query_addr(const struct cm_id *id, bool as_gids, struct rdma_ucm_query_addr_resp *resp)
{
	struct rdma_ucm_query_route_resp route;
	cm_query_route(id, &route);
	*resp = (struct rdma_ucm_query_addr_resp){.node_guid = route.node_guid,
	                                          .port_num = route.port_num,
	                                          .pkey = htons(COMPAT_PKEY),
	                                          .ibdev_index = UINT32_MAX};
	if (!as_gids) {
		resp->src_size = address_out(id, &id->src, &resp->src_addr);
		resp->dst_size = address_out(id, &id->dst, &resp->dst_addr);
		return;
	}
	struct sockaddr_ib src = ib_address(id, id->sgid.raw, id->src.sin6_port);
	struct sockaddr_ib dst = ib_address(id, id->dgid.raw, id->dst.sin6_port);
	memcpy(&resp->src_addr, &src, sizeof(src));
	memcpy(&resp->dst_addr, &dst, sizeof(dst));
	resp->src_size = resp->dst_size = sizeof(src);
}

/* The path as a PathRecord of the subnet administrator (IBTA section 15.2.5.16). */
void cm_query_path(const struct cm_id *id, struct cm_path_resp *resp)
{
	struct rdma_ucm_query_route_resp route;
	cm_query_route(id, &route);
	*resp = (struct cm_path_resp){.num_paths = route.num_paths};
	if (route.num_paths == 0)
		return;
	const struct ib_user_path_rec *from = &route.ib_route[0];
	struct ibv_path_record record = {
	        .dlid = from->dlid,
	        .slid = from->slid,
	        .flowlabel_hoplimit = htobe32(from->hop_limit),
	        .tclass = from->traffic_class,
	        .reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1,
	        .pkey = from->pkey,
	        .mtu = (uint8_t)((unsigned)from->mtu_selector << 6 | from->mtu),
	        .rate = (uint8_t)(from->rate_selector << 6 | from->rate),
	        .packetlifetime =
	                (uint8_t)(from->packet_life_time_selector << 6 | from->packet_life_time)};
	memcpy(record.dgid.raw, from->dgid, 16);
	memcpy(record.sgid.raw, from->sgid, 16);
	resp->path.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
	_Static_assert(sizeof(record) == sizeof(resp->path.path_rec), "same size");
	memcpy(resp->path.path_rec, &record, sizeof(record));
}
