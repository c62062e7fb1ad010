/* Multicast groups of identifiers: which GID an IP address stands for, joining and leaving. Joining
 * completes immediately, since nobody has to permit it. Membership itself begins at the event, when
 * librdmacm attaches the identifier's queue pair. */
#include <stdlib.h>
#include <string.h>

#include "compat/cm/cm.h"

#define IPOIB_QKEY 0x0b1bu
/* A LID of the multicast range for a group. Groups are found by GID; programs only print this. */
#define FIRST_MLID 0xc000u
#define MLID_COUNT 0x3fffu

static struct cm_mc *joined[CM_MAX_MULTICAST];

static const struct sockaddr_in *cm_multicast_as_in(const struct sockaddr_in6 *address)
{
	return (const struct sockaddr_in *)(const void *)address;
}

bool cm_is_multicast(const struct sockaddr_in6 *address)
{
	if (address->sin6_family == AF_INET)
		return IN_MULTICAST(ntohl(cm_multicast_as_in(address)->sin_addr.s_addr));
	return address->sin6_family == AF_INET6 && address->sin6_addr.s6_addr[0] == 0xff;
}

/* On Ethernet the GID is the address itself (IBTA annex A17). */
static void ethernet_gid(const struct sockaddr_in6 *address, struct hdl_gid *gid)
{
	*gid = (struct hdl_gid){.raw = {[10] = 0xff, [11] = 0xff}};
	if (address->sin6_family == AF_INET)
		memcpy(gid->raw + 12, &cm_multicast_as_in(address)->sin_addr, 4);
	else
		memcpy(gid->raw, &address->sin6_addr, 16);
}

/* On InfiniBand the GID is made as for IPoIB (RFC 4391 section 4), but with a signature of its own,
 * so that groups of programs and groups of the network stack do not mix. An address that already is
 * such a GID stays as it is. */
static void infiniband_gid(const struct sockaddr_in6 *address, struct hdl_gid *gid)
{
	const uint8_t *from = address->sin6_addr.s6_addr;
	bool is_ipv4 = address->sin6_family == AF_INET;
	*gid = (struct hdl_gid){.raw = {0xff, 0x12, is_ipv4 ? 0x40 : 0x60, 0x01, COMPAT_PKEY >> 8,
	                                COMPAT_PKEY & 0xff}};
	if (is_ipv4) {
		memcpy(gid->raw + 12, &cm_multicast_as_in(address)->sin_addr, 4);
		gid->raw[12] &= 0x0f;
	} else if ((from[1] & 0xf0) == 0x10 && from[2] == 0xa0 && from[3] == 0x1b) {
		memcpy(gid->raw, from, 16);
	} else {
		memcpy(gid->raw + 6, from + 6, 10);
	}
}

void cm_multicast_gid(const struct sockaddr_in6 *address, struct hdl_gid *gid)
{
	if (cm_own_lid() != 0)
		infiniband_gid(address, gid);
	else
		ethernet_gid(address, gid);
}

static uint16_t mlid_of(const struct hdl_gid *gid)
{
	uint32_t hash = 0;
	for (size_t i = 0; i < sizeof(gid->raw); i++)
		hash = hash * 31 + gid->raw[i];
	return (uint16_t)(FIRST_MLID + hash % MLID_COUNT);
}

static void tell(struct cm_mc *mc, const struct hdl_gid *gid)
{
	struct cm_event *event = cm_event_new(mc->id, CM_MULTICAST_JOIN, 0);
	if (event == NULL)
		return;
	event->mc = mc;
	event->resp.uid = mc->uid;
	event->resp.id = mc->handle;
	struct rdma_ucm_ud_param *param = &event->resp.param.ud;
	param->qp_num = 0xffffff;
	param->qkey = mc->id->space == RDMA_PS_IPOIB ? IPOIB_QKEY : CM_UDP_QKEY;
	cm_ah_attr(mc->id, &param->ah_attr);
	param->ah_attr.is_global = 1;
	param->ah_attr.dlid = cm_own_lid() != 0 ? mlid_of(gid) : 0;
	memcpy(param->ah_attr.grh.dgid, gid->raw, 16);
	cm_push(event);
}

int cm_join(struct cm_id *id, const struct sockaddr_in6 *address, bool is_gid, uint64_t uid,
            uint32_t *handle)
{
	uint32_t at = 0;
	struct hdl_gid gid;
	if (!id->has_device || id->qp_type != IBV_QPT_UD || !cm_is_multicast(address))
		return EINVAL;
	while (at < CM_MAX_MULTICAST && joined[at] != NULL)
		at++;
	struct cm_mc *mc = at < CM_MAX_MULTICAST ? calloc(1, sizeof(*mc)) : NULL;
	if (mc == NULL)
		return ENOMEM;
	*mc = (struct cm_mc){.handle = at, .id = id, .uid = uid};
	joined[at] = mc;
	*handle = at;
	if (is_gid)
		memcpy(gid.raw, &address->sin6_addr, 16);
	else
		cm_multicast_gid(address, &gid);
	tell(mc, &gid);
	return 0;
}

static void cm_multicast_end(struct cm_mc *mc)
{
	cm_forget_multicast(mc);
	joined[mc->handle] = NULL;
	free(mc);
}

int cm_leave(uint32_t handle, uint32_t *events_reported)
{
	struct cm_mc *mc = handle < CM_MAX_MULTICAST ? joined[handle] : NULL;
	if (mc == NULL)
		return ENOENT;
	*events_reported = mc->events_reported;
	cm_multicast_end(mc);
	return 0;
}

void cm_leave_all(const struct cm_id *id)
{
	for (uint32_t i = 0; i < CM_MAX_MULTICAST; i++)
		if (joined[i] != NULL && joined[i]->id == id)
			cm_multicast_end(joined[i]);
}
