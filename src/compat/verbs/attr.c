/* Address handles, and the attributes of queue pairs and address handles: between the terms of
 * libibverbs and those of Heddle. */
#include "compat/compat.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

_Static_assert((int)HDL_QPS_RESET == (int)IBV_QPS_RESET && (int)HDL_QPS_INIT == (int)IBV_QPS_INIT &&
                       (int)HDL_QPS_RTR == (int)IBV_QPS_RTR &&
                       (int)HDL_QPS_RTS == (int)IBV_QPS_RTS &&
                       (int)HDL_QPS_SQD == (int)IBV_QPS_SQD &&
                       (int)HDL_QPS_SQE == (int)IBV_QPS_SQE && (int)HDL_QPS_ERR == (int)IBV_QPS_ERR,
               "states have the same numbers");
_Static_assert((int)HDL_MIG_MIGRATED == (int)IBV_MIG_MIGRATED &&
                       (int)HDL_MIG_REARM == (int)IBV_MIG_REARM &&
                       (int)HDL_MIG_ARMED == (int)IBV_MIG_ARMED,
               "so have migration states");

static const struct {
	int ibv;
	uint32_t hdl;
} masks[] = {
        {IBV_QP_STATE, HDL_QP_STATE},
        {IBV_QP_CUR_STATE, HDL_QP_CUR_STATE},
        {IBV_QP_ACCESS_FLAGS, HDL_QP_ACCESS},
        {IBV_QP_PKEY_INDEX, HDL_QP_PKEY_INDEX},
        {IBV_QP_PORT, HDL_QP_PORT},
        {IBV_QP_QKEY, HDL_QP_QKEY},
        {IBV_QP_AV, HDL_QP_AV},
        {IBV_QP_PATH_MTU, HDL_QP_PATH_MTU},
        {IBV_QP_TIMEOUT, HDL_QP_TIMEOUT},
        {IBV_QP_RETRY_CNT, HDL_QP_RETRY_CNT},
        {IBV_QP_RNR_RETRY, HDL_QP_RNR_RETRY},
        {IBV_QP_RQ_PSN, HDL_QP_RQ_PSN},
        {IBV_QP_MAX_QP_RD_ATOMIC, HDL_QP_MAX_RD_ATOMIC},
        {IBV_QP_MIN_RNR_TIMER, HDL_QP_MIN_RNR_TIMER},
        {IBV_QP_SQ_PSN, HDL_QP_SQ_PSN},
        {IBV_QP_MAX_DEST_RD_ATOMIC, HDL_QP_MAX_DEST_RD_ATOMIC},
        {IBV_QP_DEST_QPN, HDL_QP_DEST_QPN},
        {IBV_QP_ALT_PATH, HDL_QP_ALT_PATH},
        {IBV_QP_PATH_MIG_STATE, HDL_QP_PATH_MIG_STATE},
};

int compat_refuse(int error, const char *format, ...)
{
	char text[LOG_LINE_BYTES];
	va_list arguments;
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return error;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log_debug("refused: %s", text);
	return error;
}

/* The LID of the port that a path begins at: only as many bits count as the port has LIDs for, as
 * with other adapters. */
static uint8_t path_bits(const struct compat_device *device, const struct ibv_ah_attr *attr)
{
	struct hdl_limits limits;
	struct hdl_adapter *adapter = device->has_lid ? compat_adapter() : NULL;
	if (adapter == NULL || hdl_adapter_query(adapter, &limits) != 0)
		return 0;
	return (uint8_t)(attr->src_path_bits & ((1u << limits.lmc) - 1));
}

/* A program that was started without the option for it reports only that a call failed. */
static void warn_route_is_needed(const struct compat_device *device)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	if (!atomic_flag_test_and_set(&said))
		log_warn("an address on %s, which is %s, needs a global route (is_global, and a "
		         "GID in grh); give the program the index of a GID, for many -g 0 or -x 0, "
		         "or let it use " HDL_DEVICE_INFINIBAND ", which has LIDs (logged once)",
		         device->ibv.name, device->link_layer_name);
}

int compat_ah_attr(const struct compat_device *device, const struct ibv_ah_attr *from,
                   struct hdl_ah_attr *to)
{
	if (from->port_num != COMPAT_PORT)
		return compat_refuse(EINVAL,
		                     "an address: port_num is %u, but a device has "
		                     "only port 1",
		                     from->port_num);
	if (!from->is_global) {
		/* On Ethernet every packet has a global route (IBTA annex A16). */
		if (!device->has_lid) {
			warn_route_is_needed(device);
			return EINVAL;
		}
		if (from->dlid == 0)
			return compat_refuse(EINVAL, "an address: it has neither a GID "
			                             "(is_global) nor a dlid");
		*to = (struct hdl_ah_attr){.dlid = from->dlid,
		                           .src_path_bits = path_bits(device, from),
		                           .sl = from->sl,
		                           .port_num = from->port_num};
		return 0;
	}
	unsigned sgid = compat_gid_below(device, from->grh.sgid_index);
	if (sgid == UINT_MAX)
		return compat_refuse(EINVAL,
		                     "an address: there is no GID with index %u; see "
		                     "heddle devices",
		                     from->grh.sgid_index);
	/* UCX leaves bits set above the 20 of a flow label; drivers cut them off. */
	*to = (struct hdl_ah_attr){.dlid = from->dlid,
	                           .src_path_bits = path_bits(device, from),
	                           .sgid_index = (uint8_t)sgid,
	                           .sl = from->sl,
	                           .hop_limit = from->grh.hop_limit,
	                           .traffic_class = from->grh.traffic_class,
	                           .port_num = from->port_num,
	                           .is_global = true,
	                           .flow_label = from->grh.flow_label & IB_GRH_FLOWLABEL_MASK};
	memcpy(to->dgid.raw, from->grh.dgid.raw, sizeof(to->dgid.raw));
	return 0;
}

static void ah_attr_back(const struct compat_device *device, const struct hdl_ah_attr *from,
                         struct ibv_ah_attr *to)
{
	unsigned sgid = compat_gid_above(device, from->sgid_index);
	*to = (struct ibv_ah_attr){.grh = {.flow_label = from->flow_label,
	                                   .sgid_index = (uint8_t)(sgid == UINT_MAX ? 0 : sgid),
	                                   .hop_limit = from->hop_limit,
	                                   .traffic_class = from->traffic_class},
	                           .dlid = from->dlid,
	                           .src_path_bits = from->src_path_bits,
	                           .sl = from->sl,
	                           .is_global = from->is_global,
	                           .port_num = from->port_num};
	memcpy(to->grh.dgid.raw, from->dgid.raw, sizeof(to->grh.dgid.raw));
}

/* Attributes that Heddle does not have: values that change nothing are accepted, others are
 * refused. */
static int judge_others(const struct ibv_qp_attr *attr, int mask)
{
	int known = IBV_QP_EN_SQD_ASYNC_NOTIFY;
	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++)
		known |= masks[i].ibv;
	if (mask & (IBV_QP_CAP | IBV_QP_RATE_LIMIT))
		return compat_refuse(EOPNOTSUPP, "ibv_modify_qp: IBV_QP_CAP and IBV_QP_RATE_LIMIT "
		                                 "cannot be changed");
	if (mask & ~known)
		return compat_refuse(EINVAL,
		                     "ibv_modify_qp: the mask has unknown bits, "
		                     "0x%x",
		                     (unsigned)(mask & ~known));
	if ((mask & IBV_QP_PATH_MTU) &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return compat_refuse(EINVAL,
		                     "ibv_modify_qp: path_mtu is %d, which is not one of "
		                     "enum ibv_mtu",
		                     (int)attr->path_mtu);
	return 0;
}

int compat_qp_attr(const struct compat_device *device, const struct ibv_qp_attr *from, int mask,
                   struct hdl_qp_attr *to, uint32_t *to_mask)
{
	int error = judge_others(from, mask);
	if (error != 0)
		return error;
	*to_mask = 0;
	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++)
		if (mask & masks[i].ibv)
			*to_mask |= masks[i].hdl;
	*to = (struct hdl_qp_attr){
	        .state = (uint32_t)from->qp_state,
	        .cur_state = (uint32_t)from->cur_qp_state,
	        .access = compat_access(from->qp_access_flags) &
	                  (HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
	                   HDL_ACCESS_REMOTE_ATOMIC),
	        .qkey = from->qkey,
	        .dest_qpn = from->dest_qp_num,
	        .rq_psn = from->rq_psn & 0xffffffu, /* 24 bits; programs draw them with rand() */
	        .sq_psn = from->sq_psn & 0xffffffu,
	        .pkey_index = from->pkey_index,
	        .port_num = from->port_num,
	        .timeout = from->timeout,
	        .retry_cnt = from->retry_cnt,
	        .rnr_retry = from->rnr_retry,
	        .min_rnr_timer = from->min_rnr_timer,
	        .max_rd_atomic = from->max_rd_atomic,
	        .max_dest_rd_atomic = from->max_dest_rd_atomic,
	        .path_mig_state = (uint8_t)from->path_mig_state,
	        .alt_port_num = from->alt_port_num,
	        .alt_timeout = from->alt_timeout,
	        .alt_pkey_index = from->alt_pkey_index,
	};
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = (uint16_t)(128u << from->path_mtu);
	if (mask & IBV_QP_ALT_PATH)
		error = compat_ah_attr(device, &from->alt_ah_attr, &to->alt_ah);
	if (error != 0)
		return error;
	return mask & IBV_QP_AV ? compat_ah_attr(device, &from->ah_attr, &to->ah) : 0;
}

static enum ibv_mtu mtu_back(uint16_t bytes)
{
	return bytes >= 256 ? (enum ibv_mtu)(__builtin_ctz(bytes) - 7) : (enum ibv_mtu)0;
}

void compat_qp_attr_back(const struct compat_device *device, const struct hdl_qp_attr *from,
                         struct ibv_qp_attr *to)
{
	*to = (struct ibv_qp_attr){
	        .qp_state = (enum ibv_qp_state)from->state,
	        .cur_qp_state = (enum ibv_qp_state)from->cur_state,
	        .path_mtu = mtu_back(from->path_mtu),
	        .path_mig_state = (enum ibv_mig_state)from->path_mig_state,
	        .qkey = from->qkey,
	        .rq_psn = from->rq_psn,
	        .sq_psn = from->sq_psn,
	        .dest_qp_num = from->dest_qpn,
	        .qp_access_flags = compat_access_back(from->access),
	        .pkey_index = from->pkey_index,
	        .sq_draining = from->draining,
	        .max_rd_atomic = from->max_rd_atomic,
	        .max_dest_rd_atomic = from->max_dest_rd_atomic,
	        .min_rnr_timer = from->min_rnr_timer,
	        .port_num = from->port_num,
	        .timeout = from->timeout,
	        .retry_cnt = from->retry_cnt,
	        .rnr_retry = from->rnr_retry,
	        .alt_pkey_index = from->alt_pkey_index,
	        .alt_port_num = from->alt_port_num,
	        .alt_timeout = from->alt_timeout,
	};
	ah_attr_back(device, &from->ah, &to->ah_attr);
	ah_attr_back(device, &from->alt_ah, &to->alt_ah_attr);
}

/* --- address handles --- */

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct hdl_ah_attr below;
	if (!compat_live(OBJECT_PD, pd))
		return compat_fail(EINVAL);
	int error = compat_ah_attr(compat_device_of(pd->context), attr, &below);
	if (error != 0)
		return compat_fail(error);
	struct compat_ah *ah = calloc(1, sizeof(*ah));
	if (ah == NULL)
		return compat_fail(ENOMEM);
	error = -hdl_ah_create(compat_pd(pd)->hdl, &below, &ah->hdl);
	if (error != 0) {
		free(ah);
		return compat_fail(error);
	}
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	compat_pd_use(pd);
	ah->ibv.handle = compat_live_add(&ah->live, OBJECT_AH, &ah->ibv);
	return &ah->ibv;
}

static int end_ah(void *below)
{
	return hdl_ah_destroy(below);
}

int ibv_destroy_ah(struct ibv_ah *ibv)
{
	struct live *live = compat_live_take(OBJECT_AH, ibv);
	if (live == NULL)
		return compat_error(EINVAL);
	int error = compat_end_in_pd(live, ibv->context, ibv->pd, end_ah, compat_ah(ibv)->hdl);
	if (error == 0)
		free(compat_ah(ibv));
	return error;
}

/* The GRH in front of a datagram: its sender, its receiver, its path. Over IPv4 the header takes
 * the second half of the space (IBTA annex A17.4.5.2). */
struct header {
	union ibv_gid sgid, dgid;
	uint32_t flow_label;
	uint8_t traffic_class;
};

static void mapped_gid(union ibv_gid *gid, const uint8_t address[4])
{
	*gid = (union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff}};
	memcpy(gid->raw + 12, address, 4);
}

static void read_header(const struct ibv_grh *grh, struct header *header)
{
	const uint8_t *ipv4 = (const uint8_t *)grh + sizeof(*grh) / 2;
	uint32_t first = ntohl(grh->version_tclass_flow);
	*header = (struct header){.sgid = grh->sgid,
	                          .dgid = grh->dgid,
	                          .flow_label = first & 0xfffffu,
	                          .traffic_class = (uint8_t)(first >> 20)};
	if (first >> 28 == 6 || ipv4[0] >> 4 != 4)
		return;
	header->flow_label = 0;
	header->traffic_class = ipv4[1];
	mapped_gid(&header->sgid, ipv4 + 12);
	mapped_gid(&header->dgid, ipv4 + 16);
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
                        struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	if (port != COMPAT_PORT) {
		errno = EINVAL;
		return -1;
	}
	*attr = (struct ibv_ah_attr){.dlid = wc->slid,
	                             .sl = wc->sl,
	                             .src_path_bits = wc->dlid_path_bits,
	                             .port_num = port};
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	struct header header;
	read_header(grh, &header);
	attr->is_global = 1;
	/* The path back starts at the address at which this message arrived, or, if we no longer
	 * have that, at the first one. */
	union ibv_gid own;
	const struct compat_device *device = compat_device_of(context);
	for (uint8_t i = 0; i < COMPAT_GIDS && compat_gid(device, i, &own); i++)
		if (memcmp(&own, &header.dgid, sizeof(own)) == 0)
			attr->grh.sgid_index = i;
	attr->grh.dgid = header.sgid;
	attr->grh.flow_label = header.flow_label;
	attr->grh.traffic_class = header.traffic_class;
	attr->grh.hop_limit = 0xff;
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
                                     uint8_t port)
{
	struct ibv_ah_attr attr;
	if (!compat_live(OBJECT_PD, pd))
		return compat_fail(EINVAL);
	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0)
		return NULL;
	return ibv_create_ah(pd, &attr);
}
