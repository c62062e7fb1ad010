/* End-to-end contexts of reliable datagrams, and their domains. */
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "queue/qp_state.h"
#include "queue/wqe.h"

/* --- domains --- */

int hdl_rdd_open(struct hdl_adapter *adapter, struct hdl_rdd **out)
{
	if (out == NULL)
		return -HDL_EINVAL;
	struct hdl_rdd *rdd = calloc(1, sizeof(*rdd));
	if (rdd == NULL)
		return -HDL_ENOMEM;
	int result = hdl_pd_create(adapter, &rdd->pd);
	if (result != 0) {
		free(rdd);
		return result;
	}
	rdd->magic = MAGIC_RDD;
	*out = rdd;
	return 0;
}

int hdl_rdd_close(struct hdl_rdd *rdd)
{
	if (rdd == NULL || rdd->magic != MAGIC_RDD)
		return -HDL_EINVAL;
	if (atomic_load(&rdd->users) > 0)
		return -HDL_EBUSY;
	int result = hdl_pd_destroy(rdd->pd);
	if (result != 0)
		return result;
	rdd->magic = 0;
	free(rdd);
	return 0;
}

/* --- contexts --- */

static void free_eec(struct hdl_eec *eec)
{
	free(eec->qp.reads.entries);
	free(eec->qp.kept);
	free(eec);
}

int hdl_eec_create(struct hdl_rdd *rdd, struct hdl_eec **out)
{
	if (rdd == NULL || rdd->magic != MAGIC_RDD || out == NULL)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = rdd->pd->adapter;
	struct hdl_eec *eec = aligned_alloc(64, (sizeof(*eec) + 63) & ~(size_t)63);
	if (eec == NULL)
		return -HDL_ENOMEM;
	memset(eec, 0, sizeof(*eec));
	eec->qp.kept = malloc(wqe_recv_stride(HDL_MAX_SGE));
	if (eec->qp.kept == NULL) {
		free_eec(eec);
		return -HDL_ENOMEM;
	}
	eec->magic = MAGIC_EEC;
	eec->rdd = rdd;
	eec->qp.rdd = rdd->pd->number;
	eec->qp.ib = &eec->ib;
	eec->ib.rd = &eec->rd;
	mpsc_node_init(&eec->qp.pending);
	timer_node_init(&eec->qp.timer);
	adapter_lock(adapter);
	int result = adapter_take_number(adapter, &eec->qp.qpn);
	if (result == 0)
		rd_add_context(&adapter->engine, &eec->qp);
	adapter_unlock(adapter);
	if (result != 0) {
		free_eec(eec);
		return result;
	}
	atomic_fetch_add(&rdd->users, 1);
	*out = eec;
	return 0;
}

int hdl_eec_destroy(struct hdl_eec *eec)
{
	if (eec == NULL || eec->magic != MAGIC_EEC)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = eec->rdd->pd->adapter;
	adapter_lock(adapter);
	rd_enter(&adapter->engine, &eec->qp, HDL_QPS_RESET);
	rd_forget_context(&adapter->engine, &eec->qp);
	adapter_free_number(adapter, eec->qp.qpn);
	adapter_unlock(adapter);
	atomic_fetch_sub(&eec->rdd->users, 1);
	eec->magic = 0;
	free_eec(eec);
	return 0;
}

/* Only one message is in flight, so at most one read is. */
static bool values_fit(const struct hdl_qp_attr *attr, uint32_t mask)
{
	return qp_values_fit(attr, mask) &&
	       !((mask & HDL_QP_MAX_RD_ATOMIC) && attr->max_rd_atomic > 1) &&
	       !((mask & HDL_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > 1);
}

/* With the drive lock. */
static int rd_context_modify(struct hdl_eec *eec, const struct hdl_qp_attr *attr, uint32_t mask)
{
	const struct hdl_adapter *adapter = eec->rdd->pd->adapter;
	enum hdl_qp_state from = qp_state(&eec->qp);
	enum hdl_qp_state to = mask & HDL_QP_STATE ? (enum hdl_qp_state)attr->state : from;
	if (to > HDL_QPS_ERR)
		return -HDL_EINVAL;
	if ((mask & HDL_QP_CUR_STATE) && attr->cur_state != from)
		return -HDL_EPERM;
	switch (qp_judge_context(from, to, mask)) {
	case QP_MODIFY_OK:
		break;
	case QP_MODIFY_NO_TRANSITION:
		return -HDL_EPERM;
	default:
		return -HDL_EINVAL;
	}
	if (!values_fit(attr, mask))
		return -HDL_EINVAL;
	if (mask & HDL_QP_AV) {
		struct hdl_gid gid = adapter_address(&attr->ah);
		uint32_t dest = mask & HDL_QP_DEST_QPN ? attr->dest_qpn : eec->qp.attr.dest_qpn;
		bool on_wire = wire_reaches(adapter, &gid);
		/* Where the node exists, but not the process, nothing will be answered. */
		if (!on_wire && adapter_find_link(adapter, &gid, dest) == LINK_NONE &&
		    !adapter_knows_node(adapter, &gid))
			return -HDL_EHOSTUNREACH;
		if (attr->path_mtu > net_mtu(adapter)) {
			why_too_large("an end-to-end context", attr->path_mtu, net_mtu(adapter));
			return -HDL_EINVAL;
		}
		if (qp_make_reads(&eec->qp, attr->max_dest_rd_atomic) != 0)
			return -HDL_ENOMEM;
		eec->ib.path = on_wire ? wire_path(adapter, &attr->ah, eec->qp.qpn, dest)
		                       : packets_path(adapter, &attr->ah, dest);
		eec->ib.mtu = attr->path_mtu;
		engine_serve(&eec->rdd->pd->adapter->engine, &eec->qp,
		             service_class(attr->ah.traffic_class));
	}
	qp_take_values(&eec->qp.attr, attr, mask);
	if (to == HDL_QPS_RESET)
		eec->qp.attr = (struct hdl_qp_attr){0};
	rd_enter(&eec->rdd->pd->adapter->engine, &eec->qp, to);
	return 0;
}

int hdl_eec_modify(struct hdl_eec *eec, const struct hdl_qp_attr *attr, uint32_t mask)
{
	if (eec == NULL || eec->magic != MAGIC_EEC || attr == NULL ||
	    (mask & ~(uint32_t)HDL_QP_ATTR_ALL))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = eec->rdd->pd->adapter;
	struct hdl_gid to = adapter_address(&attr->ah);
	bool connects = (mask & HDL_QP_AV) && (mask & HDL_QP_DEST_QPN) && !wire_only(adapter);
	if ((mask & HDL_QP_AV) && net_has_packets(&adapter->net))
		agent_locate(adapter, &to);
	if (connects && agent_reach(adapter, &to, attr->dest_qpn) == -HDL_EACCES)
		return -HDL_EACCES;
	adapter_lock(adapter);
	int result = rd_context_modify(eec, attr, mask);
	adapter_unlock(adapter);
	return result;
}

int hdl_eec_query(struct hdl_eec *eec, struct hdl_qp_attr *attr)
{
	if (eec == NULL || eec->magic != MAGIC_EEC || attr == NULL)
		return -HDL_EINVAL;
	adapter_lock(eec->rdd->pd->adapter);
	*attr = eec->qp.attr;
	attr->state = attr->cur_state = qp_state(&eec->qp);
	adapter_unlock(eec->rdd->pd->adapter);
	return 0;
}

uint32_t hdl_eec_number(const struct hdl_eec *eec)
{
	return eec->qp.qpn;
}
