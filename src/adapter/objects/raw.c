/* Raw datagrams: registration and reception. */
#include "transport/ib/raw.h"
#include "adapter/adapter.h"

static bool raw_fits(const struct hdl_qp *qp, const struct hdl_gid *gid)
{
	return qp != NULL && qp->magic == MAGIC_QP && qp->qp.type == HDL_QP_RAW && gid != NULL;
}

int hdl_raw_attach(struct hdl_qp *qp, uint8_t next_header, const struct hdl_gid *gid)
{
	if (!raw_fits(qp, gid))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = qp->pd->adapter;
	adapter_lock(adapter);
	int result = raw_attach(&adapter->engine, &qp->qp, next_header, gid);
	adapter_unlock(adapter);
	return result;
}

int hdl_raw_detach(struct hdl_qp *qp, uint8_t next_header, const struct hdl_gid *gid)
{
	if (!raw_fits(qp, gid))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = qp->pd->adapter;
	adapter_lock(adapter);
	bool was = raw_detach(&adapter->engine, &qp->qp, next_header, gid);
	adapter_unlock(adapter);
	return was ? 0 : -HDL_EINVAL;
}

void adapter_take_raw(struct hdl_adapter *adapter, const uint8_t *frame, size_t bytes)
{
	adapter_lock(adapter);
	raw_take(&adapter->engine, frame, bytes);
	adapter_unlock(adapter);
}
