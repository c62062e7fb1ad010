/* Plain UDP on a queue pair. See udp.h. */
#include "transport/udp.h"

#include <errno.h>
#include <string.h>

#include "queue/qp_state.h"
#include "transport/engine.h"
#include "transport/op.h"
#include "transport/qp.h"
#include "transport/request.h"
#include "transport/transport.h"
#include "wire/ib_headers.h"

#define UDP_NEXT_HEADER 17u

static enum step udp_execute(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct udp_service *service = qp->udp;
	enum step step = request_own(engine, qp, wqe);
	if (step != STEP_BY_TARGET)
		return step;
	if (wqe->opcode != HDL_OP_SEND || wqe->u.ud.qpn == 0 || wqe->u.ud.qpn > UINT16_MAX) {
		request_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_TYPE);
		return STEP_NEXT;
	}
	if (!request_gather(engine, qp, wqe, 0, service->room, wqe->length))
		return STEP_NEXT;
	int result = service->send(service->context, wqe->u.ud.dgid, (uint16_t)wqe->u.ud.qpn,
	                           service->room, wqe->length);
	if (result == -EAGAIN)
		return STEP_NO_ROOM;
	/* One that cannot leave is lost, like one that is lost on its way. */
	counter_add(&engine->counters[result == 0 ? ENGINE_BYTES_SENT : ENGINE_DROPPED],
	            result == 0 ? wqe->length : 1);
	qp->sent_messages++;
	request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	return STEP_NEXT;
}

static bool udp_run(struct engine *engine, struct qp *qp)
{
	return request_run(engine, qp, udp_execute);
}

static void udp_left(struct engine *engine, struct qp *qp, enum hdl_qp_state state)
{
	struct udp_service *service = qp->udp;
	(void)engine;
	if (state != HDL_QPS_RESET || service == NULL)
		return;
	qp->udp = NULL;
	qp->transport = service->before;
	service->release(service->context);
}

const struct transport udp_transport = {
        .name = "UDP",
        .run = udp_run,
        .timeout = request_timeout,
        .left = udp_left,
};

void udp_service_begin(struct qp *qp, struct udp_service *service)
{
	service->before = qp->transport;
	qp->udp = service;
	qp->transport = &udp_transport;
	qp->link = LINK_NONE;
	qp->max_message = HDL_MAX_UDP;
}

void udp_service_take(struct engine *engine, struct qp *qp, const uint8_t from[16], uint16_t port,
                      const uint8_t to[16], uint8_t *bytes, uint32_t length)
{
	uint8_t grh[HDL_GRH_BYTES];
	struct ib_grh header = {.payload_bytes = (uint16_t)length, .next_header = UDP_NEXT_HEADER};
	memcpy(header.sgid, from, sizeof(header.sgid));
	memcpy(header.dgid, to, sizeof(header.dgid));
	ib_grh_encode(&header, grh);
	const struct op_message message = {.bytes = bytes,
	                                   .length = length,
	                                   .grh = grh,
	                                   .src_qpn = port,
	                                   .wc_flags = HDL_WC_GRH,
	                                   .wc_opcode = HDL_WC_RECV};
	if (qp_may_receive(qp_state(qp)))
		op_receive_datagram(engine, qp, &message);
}
