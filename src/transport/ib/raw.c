/* Raw datagrams. See raw.h. */
#include "transport/ib/raw.h"

#include <string.h>

#include <heddle/error.h>

#include "queue/qp_state.h"
#include "transport/op.h"
#include "transport/request.h"
#include "transport/transport.h"
#include "wire/ip_headers.h"

/* --- registrations --- */

static bool ib_raw_is_for(const struct raw_entry *entry, uint8_t next_header, const uint8_t *gid)
{
	return entry->next_header == next_header && memcmp(entry->gid.raw, gid, 16) == 0;
}

static uint32_t ib_raw_find(const struct engine *engine, const struct qp *qp, uint8_t next_header,
                            const struct hdl_gid *gid)
{
	uint32_t i = 0;
	while (i < engine->raw_count && (engine->raws[i].qp != qp ||
	                                 !ib_raw_is_for(&engine->raws[i], next_header, gid->raw)))
		i++;
	return i;
}

int raw_attach(struct engine *engine, struct qp *qp, uint8_t next_header, const struct hdl_gid *gid)
{
	if (ib_raw_find(engine, qp, next_header, gid) != engine->raw_count)
		return 0;
	if (engine->raw_count == HDL_MAX_RAW)
		return -HDL_ENOMEM;
	engine->raws[engine->raw_count++] = (struct raw_entry){qp, *gid, next_header};
	return 0;
}

bool raw_detach(struct engine *engine, const struct qp *qp, uint8_t next_header,
                const struct hdl_gid *gid)
{
	uint32_t at = ib_raw_find(engine, qp, next_header, gid);
	if (at == engine->raw_count)
		return false;
	engine->raws[at] = engine->raws[--engine->raw_count];
	return true;
}

void raw_leave(struct engine *engine, const struct qp *qp)
{
	for (uint32_t i = engine->raw_count; i-- > 0;)
		if (engine->raws[i].qp == qp)
			engine->raws[i] = engine->raws[--engine->raw_count];
}

/* --- in --- */

void raw_take(struct engine *engine, const uint8_t *frame, size_t bytes)
{
	struct ipv6_header header;
	counter_add(&engine->counters[ENGINE_PACKETS_IN], 1);
	if (ipv6_decode(&header, frame, bytes) != IP_OK) {
		counter_add(&engine->counters[ENGINE_BAD_PACKETS], 1);
		return;
	}
	struct op_message message = {.bytes = (void *)(uintptr_t)frame,
	                             .length = IPV6_BYTES + header.payload_bytes,
	                             .wc_opcode = HDL_WC_RECV};
	bool taken = false;
	for (uint32_t i = 0; i < engine->raw_count; i++) {
		const struct raw_entry *entry = &engine->raws[i];
		if (!ib_raw_is_for(entry, header.next_header, header.dst) ||
		    !qp_may_receive(qp_state(entry->qp)))
			continue;
		op_receive_datagram(engine, entry->qp, &message);
		taken = true;
	}
	if (!taken)
		counter_add(&engine->counters[ENGINE_DROPPED], 1);
}

/* --- out --- */

const struct carrier *raw_carrier(const struct engine *engine)
{
	for (uint32_t i = 0; i < engine->carrier_count; i++)
		if (engine->carriers[i] != NULL && engine->carriers[i]->send_raw != NULL)
			return engine->carriers[i];
	return NULL;
}

static enum step ib_raw_send_datagram(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	uint8_t frame[HDL_RAW_MTU];
	struct ipv6_header header;
	if (!request_gather(engine, qp, wqe, 0, frame, wqe->length))
		return STEP_NEXT;
	/* A datagram whose length field is wrong would be a different one when it arrives. */
	if (ipv6_decode(&header, frame, wqe->length) != IP_OK ||
	    IPV6_BYTES + (uint32_t)header.payload_bytes != wqe->length) {
		request_finish(wqe, HDL_WC_LOC_LEN_ERR, HDL_DETAIL_NONE);
		return STEP_NEXT;
	}
	const struct carrier *carrier = raw_carrier(engine);
	if (carrier == NULL || !carrier->send_raw(carrier->context, frame, wqe->length))
		return STEP_NO_ROOM;
	counter_add(&engine->counters[ENGINE_PACKETS_OUT], 1);
	counter_add(&engine->counters[ENGINE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	return STEP_NEXT;
}

static enum step raw_execute(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	enum step step = request_own(engine, qp, wqe);
	return step == STEP_BY_TARGET ? ib_raw_send_datagram(engine, qp, wqe) : step;
}

static bool raw_run(struct engine *engine, struct qp *qp)
{
	return request_run(engine, qp, raw_execute);
}

const struct transport raw_transport = {
        .name = "raw datagrams",
        .run = raw_run,
        .timeout = request_timeout,
};
