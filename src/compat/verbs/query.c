/* Attributes of the device and its port, GIDs, P_Keys. */
#include "compat/compat.h"

#include <arpa/inet.h>
#include <endian.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define VENDOR_ID  0x024844u /* a locally administered OUI, which nobody owns */
#define PAGE_SIZES 0xfffff000u

#define MAX_COUNTERS 128u

static int to_int(uint64_t value)
{
	return value > INT_MAX ? INT_MAX : (int)value;
}

static void fill_device(const struct compat_device *device, const struct hdl_limits *limits,
                        struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){
	        .node_guid = compat_guid(device),
	        .sys_image_guid = htobe64(limits->guid),
	        .max_mr_size = limits->max_mr_length,
	        .page_size_cap = PAGE_SIZES,
	        .vendor_id = VENDOR_ID,
	        .vendor_part_id = 1,
	        .max_qp = to_int(limits->max_qp),
	        .max_qp_wr = to_int(limits->max_qp_wr),
	        .device_cap_flags = IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_CURR_QP_STATE_MOD |
	                            IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
	                            IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW |
	                            IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
	                            IBV_DEVICE_XRC,
	        .max_sge = to_int(limits->max_sge),
	        .max_sge_rd = to_int(limits->max_sge),
	        .max_cq = to_int(limits->max_cq),
	        .max_cqe = to_int(limits->max_cqe),
	        .max_mr = to_int(limits->max_mr),
	        .max_pd = to_int(limits->max_pd),
	        .max_qp_rd_atom = to_int(limits->max_rd_atomic),
	        .max_res_rd_atom = to_int((uint64_t)limits->max_rd_atomic * limits->max_qp),
	        .max_qp_init_rd_atom = to_int(limits->max_rd_atomic),
	        .atomic_cap = IBV_ATOMIC_HCA,
	        .max_mw = to_int(limits->max_mr),
	        .max_mcast_grp = to_int(limits->max_groups),
	        .max_mcast_qp_attach = to_int(limits->max_group_members),
	        .max_total_mcast_qp_attach =
	                to_int((uint64_t)limits->max_groups * limits->max_group_members),
	        .max_ah = to_int(limits->max_ah),
	        .max_srq = to_int(limits->max_srq),
	        .max_srq_wr = to_int(limits->max_srq_wr),
	        .max_srq_sge = to_int(limits->max_sge),
	        .max_pkeys = 1,
	        .phys_port_cnt = COMPAT_PORT,
	};
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", HEDDLE_VERSION);
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct hdl_limits limits;
	int error = -hdl_adapter_query(compat_context(context)->adapter, &limits);
	if (error == 0)
		fill_device(compat_device_of(context), &limits, attr);
	return error;
}

int compat_query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t length)
{
	if ((input != NULL && input->comp_mask != 0) || length < sizeof(attr->orig_attr))
		return EINVAL;
	struct ibv_device_attr_ex all = {.phys_port_cnt_ex = COMPAT_PORT};
	int error = ibv_query_device(context, &all.orig_attr);
	if (error != 0)
		return error;
	memset(attr, 0, length); /* fields of newer programs stay zero */
	memcpy(attr, &all, length < sizeof(all) ? length : sizeof(all));
	return 0;
}

enum ibv_mtu compat_active_mtu(struct hdl_adapter *adapter)
{
	struct hdl_limits limits;
	enum ibv_mtu mtu = IBV_MTU_256;
	if (hdl_adapter_query(adapter, &limits) != 0)
		return mtu;
	while (mtu < IBV_MTU_4096 && 256u << (mtu + 1 - IBV_MTU_256) <= limits.mtu)
		mtu++;
	return mtu;
}

/* How many datagrams arrived with a Q_Key other than their queue pair's. As a port counter it stops
 * at 16 bits (IBTA 14.2.5.6). */
static uint32_t wrong_qkeys(struct hdl_adapter *adapter)
{
	struct hdl_counter list[MAX_COUNTERS];
	size_t count = hdl_counters(adapter, list, MAX_COUNTERS);
	for (size_t i = 0; i < count && i < MAX_COUNTERS; i++)
		if (strcmp(list[i].name, "dropped_qkey") == 0)
			return list[i].value < UINT16_MAX ? (uint32_t)list[i].value : UINT16_MAX;
	return 0;
}

static int fill_port(struct ibv_context *context, struct ibv_port_attr *attr)
{
	const struct compat_device *device = compat_device_of(context);
	struct hdl_limits limits;
	int error = -hdl_adapter_query(compat_context(context)->adapter, &limits);
	if (error != 0)
		return error;
	*attr = (struct ibv_port_attr){
	        .state = IBV_PORT_ACTIVE,
	        .max_mtu = IBV_MTU_4096,
	        .active_mtu = compat_active_mtu(compat_context(context)->adapter),
	        .gid_tbl_len = COMPAT_GIDS,
	        .port_cap_flags = device->port_cap_flags,
	        .max_msg_sz = (uint32_t)limits.max_message,
	        .pkey_tbl_len = 1,
	        .qkey_viol_cntr = wrong_qkeys(compat_context(context)->adapter),
	        .max_vl_num = 1,
	        .active_width = 2,  /* 4x, */
	        .active_speed = 32, /* 25 Gb/s per lane, together 100 Gb/s */
	        .phys_state = 5,    /* link up */
	        .link_layer = device->link_layer,
	        .flags = device->port_flags,
	};
	if (device->has_lid) {
		attr->lid = limits.lid;
		attr->lmc = (uint8_t)limits.lmc;
		attr->sm_lid = limits.sm_lid;
	}
	return 0;
}

int compat_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                      size_t length)
{
	struct ibv_port_attr all;
	if (port != COMPAT_PORT)
		return EINVAL;
	int error = fill_port(context, &all);
	if (error != 0)
		return error;
	memset(attr, 0, length);
	memcpy(attr, &all, length < sizeof(all) ? length : sizeof(all));
	return 0;
}

/* For programs built before struct ibv_port_attr got its last fields: they pass the shorter
 * structure. */
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return compat_query_port(context, port, (struct ibv_port_attr *)attr,
	                         offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* --- GIDs --- */

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	if (port != COMPAT_PORT || index < 0 || (unsigned)index >= COMPAT_GIDS) {
		errno = EINVAL;
		return -1;
	}
	compat_gid(compat_device_of(context), (unsigned)index, gid); /* zero where there is none */
	return 0;
}

/* Fill in an entry of the GID table for a caller whose structure may have another size. */
static bool fill_entry(const struct compat_device *device, uint32_t index, void *to, size_t size)
{
	struct ibv_gid_entry entry = {
	        .gid_index = index, .port_num = COMPAT_PORT, .gid_type = device->gid_type};
	if (!compat_gid(device, index, &entry.gid))
		return false;
	char interface[IF_NAMESIZE];
	if (compat_interface(device, index, interface))
		entry.ndev_ifindex = if_nametoindex(interface);
	memset(to, 0, size);
	memcpy(to, &entry, size < sizeof(entry) ? size : sizeof(entry));
	return true;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	if (flags != 0)
		return EOPNOTSUPP;
	if (port != COMPAT_PORT || index >= COMPAT_GIDS)
		return EINVAL;
	return fill_entry(compat_device_of(context), index, entry, size) ? 0 : ENODATA;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
                             uint32_t flags, size_t size)
{
	ssize_t count = 0;
	union ibv_gid gid;
	const struct compat_device *device = compat_device_of(context);
	if (flags != 0)
		return -EOPNOTSUPP;
	if (size == 0)
		return -EINVAL;
	for (uint32_t i = 0; i < COMPAT_GIDS && compat_gid(device, i, &gid); i++, count++)
		if (i >= max || !fill_entry(device, i, (char *)entries + i * size, size))
			return -EINVAL;
	return count;
}

/* For the libraries beside libibverbs, which share an enumeration of their own. */
int compat_gid_type(const struct compat_device *device, uint8_t port, unsigned index, int *type)
{
	if (port != COMPAT_PORT || index >= COMPAT_GIDS) {
		errno = EINVAL;
		return -1;
	}
	*type = device->sysfs_gid_type;
	return 0;
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
                                uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	(void)context, (void)attr, (void)mac, (void)vid;
	errno = EOPNOTSUPP;
	return -EOPNOTSUPP;
}

/* --- P_Keys --- */

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	(void)context;
	if (port != COMPAT_PORT || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htons(COMPAT_PKEY);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	(void)context;
	if (port == COMPAT_PORT && ntohs(pkey) == COMPAT_PKEY)
		return 0;
	errno = EINVAL;
	return -1;
}
