/* The checker of the 'datagrams' scenario: what must be true of each packet, each completion, and
 * of the end. */
#include "datagrams.h"

#include <string.h>

#include "transport/ib/ib.h"

#define MTU 256u

/* --- packets: one message in flight a context --- */

static struct dg_context *context_to(struct dg *w, struct dg_host *host, uint32_t number)
{
	for (uint32_t i = 0; i < w->host_count; i++)
		if (i != host->index && hdl_eec_number(w->hosts[i].eecs[host->index].eec) == number)
			return &host->eecs[i];
	return NULL;
}

static bool decode(struct ib_packet *p, const uint8_t *payload, size_t bytes)
{
	return bytes >= IB_ICRC_BYTES &&
	       ib_transport_decode(p, payload, bytes - IB_ICRC_BYTES) == IB_OK &&
	       p->op->transport == IB_RD;
}

void dg_check_sent(struct dg *w, struct dg_host *host, const uint8_t *payload, size_t bytes)
{
	struct ib_packet p;
	if (!decode(&p, payload, bytes) || p.op->role != IB_REQUEST)
		return;
	struct dg_context *context = context_to(w, host, p.rdeth.ee_context);
	if (context == NULL) {
		scenario_fail(w->run, "a packet for context 0x%06x, which is none",
		              p.rdeth.ee_context);
		return;
	}
	int32_t ahead = ib_psn_distance(p.bth.psn, context->high);
	bool begins = p.op->part == IB_FIRST || p.op->part == IB_ONLY;
	if (ahead > 0)
		scenario_fail(w->run, "PSN 0x%06x left out 0x%06x", p.bth.psn, context->high);
	if (ahead != 0)
		return; /* again */
	if (begins && context->in_flight && p.op->operation != IB_RESYNC)
		scenario_fail(w->run, "host %u: a message at PSN 0x%06x while another is in flight",
		              host->index, p.bth.psn);
	uint32_t span = 1;
	if (p.op->operation == IB_READ_REQUEST && p.reth.length_bytes > 0)
		span = (p.reth.length_bytes - 1) / MTU + 1;
	context->high = (p.bth.psn + span) & IB_PSN_MASK;
	context->in_flight = true;
}

void dg_check_came(struct dg *w, struct dg_host *host, const struct path *came,
                   const uint8_t *payload, size_t bytes)
{
	struct ib_packet p;
	struct path path = *came;
	if (roce_udp_decode(&path.ip, &p, payload, bytes) != IB_OK || p.op->transport != IB_RD ||
	    p.op->role != IB_RESPONSE)
		return;
	bool yes = (p.headers & IB_HAS_AETH) == 0 || ib_aeth_kind(p.aeth.syndrome) == IB_AETH_ACK;
	for (uint32_t i = 0; i < w->host_count; i++) {
		struct dg_context *context = &host->eecs[i];
		if (context->eec != NULL && hdl_eec_number(context->eec) == p.rdeth.ee_context &&
		    yes && ((p.bth.psn + 1) & IB_PSN_MASK) == context->high)
			context->in_flight = false;
	}
}

/* --- completions --- */

static bool same(const uint8_t *bytes, uint32_t id, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		if (bytes[i] != dg_byte(id, i))
			return false;
	return true;
}

/* May @r end so? */
static bool is_plausible(const struct dg *w, const struct dg_request *r, uint32_t status)
{
	const struct dg_context *context = &r->qp->host->eecs[r->to->host->index];
	static const uint8_t expected[] = {[DG_SEND] = HDL_WC_SUCCESS,
	                                   [DG_SEND_LONG] = HDL_WC_REM_INV_REQ_ERR,
	                                   [DG_SEND_WRONG_KEY] = HDL_WC_REM_INV_RD_REQ_ERR,
	                                   [DG_SEND_NOBODY] = HDL_WC_REM_INV_RD_REQ_ERR,
	                                   [DG_WRITE] = HDL_WC_SUCCESS,
	                                   [DG_WRITE_NO_RIGHT] = HDL_WC_REM_ACCESS_ERR,
	                                   [DG_READ] = HDL_WC_SUCCESS,
	                                   [DG_ADD] = HDL_WC_SUCCESS};
	if (status == expected[r->kind])
		return true;
	switch (status) {
	case HDL_WC_RETRY_EXC_ERR:
		return w->loses;
	case HDL_WC_INV_EEC_STATE_ERR:
		return context->failed || w->loses; /* a RESYNC was not answered */
	case HDL_WC_RNR_RETRY_EXC_ERR:
		return w->rnr_retry != 7 && (r->kind == DG_SEND || r->kind == DG_SEND_LONG);
	case HDL_WC_REM_INV_RD_REQ_ERR: /* its target is another than the one that was there */
		return r->to->disturbed > 0;
	case HDL_WC_WR_FLUSH_ERR:
		return r->qp->disturbed > r->disturbed;
	default:
		return false;
	}
}

/* A message that ended so: who knows whether it was executed? (A refusal for want of a receive that
 * comes late or twice counts like a new one.) */
static bool is_uncertain(const struct dg *w, uint32_t status)
{
	return (status == HDL_WC_RNR_RETRY_EXC_ERR && !w->faultless) ||
	       status == HDL_WC_RETRY_EXC_ERR || status == HDL_WC_WR_FLUSH_ERR ||
	       status == HDL_WC_REM_INV_RD_REQ_ERR;
}

static void check_result(struct dg *w, struct dg_request *r, uint32_t id)
{
	const uint8_t *data = r->qp->host->mem->data[id];
	struct dg_host *peer = r->to->host;
	uint64_t old;
	switch (r->kind) {
	case DG_WRITE:
		if (!same(peer->mem->written[id], id, r->length))
			scenario_fail(w->run, "request %u wrote something else", id);
		break;
	case DG_READ:
		if (!same(data, peer->index, r->length))
			scenario_fail(w->run, "request %u read something else", id);
		break;
	case DG_ADD:
		memcpy(&old, data, sizeof(old));
		if (old >= DG_REQUESTS || peer->seen[old]) {
			scenario_fail(w->run, "request %u: the counter was %lu, again", id,
			              (unsigned long)old);
			break;
		}
		peer->seen[old] = true;
		peer->added++;
		break;
	default:
		break;
	}
}

static void sent(struct dg *w, struct dg_qp *qp, const struct hdl_wc *wc)
{
	uint32_t id = (uint32_t)wc->wr_id;
	struct dg_request *r = &w->requests[id];
	struct dg_context *context = &qp->host->eecs[r->to->host->index];
	if (id >= w->request_count || r->done || r->qp != qp) {
		scenario_fail(w->run, "a completion of request %u, which is none or over", id);
		return;
	}
	r->done = true;
	r->status = wc->status;
	w->answered++;
	if (wc->status == HDL_WC_RETRY_EXC_ERR || wc->status == HDL_WC_INV_EEC_STATE_ERR)
		context->failed = true;
	if (!is_plausible(w, r, wc->status))
		scenario_fail(w->run, "request %u of kind %u: %s", id, r->kind,
		              hdl_wc_status_str(wc->status));
	if (wc->status == HDL_WC_SUCCESS)
		check_result(w, r, id);
	else if (r->kind == DG_ADD && is_uncertain(w, wc->status))
		r->to->host->maybe_added++;
}

static void received(struct dg *w, struct dg_qp *qp, const struct hdl_wc *wc)
{
	uint32_t slot = (uint32_t)wc->wr_id;
	struct dg_recv *recv = &qp->recvs[slot];
	if (slot >= DG_RECVS || !recv->posted) {
		scenario_fail(w->run, "a completion of a receive that is not there");
		return;
	}
	recv->posted = false;
	bool ok =
	        wc->status == HDL_WC_SUCCESS || (wc->status == HDL_WC_LOC_LEN_ERR && w->errors) ||
	        (wc->status == HDL_WC_REM_ABORT_ERR &&
	         (w->disturbances > 0 || w->errors || is_uncertain(w, HDL_WC_RNR_RETRY_EXC_ERR))) ||
	        (wc->status == HDL_WC_LOC_EEC_OP_ERR && w->loses) ||
	        (wc->status == HDL_WC_WR_FLUSH_ERR && qp->disturbed > 0);
	if (!ok)
		scenario_fail(w->run, "a receive ended: %s", hdl_wc_status_str(wc->status));
	if (wc->status != HDL_WC_SUCCESS)
		return;
	uint32_t id = wc->imm;
	struct dg_request *r = &w->requests[id];
	if (id >= w->request_count || r->kind != DG_SEND || r->to != qp ||
	    wc->src_qpn != hdl_qp_number(r->qp->qp) || wc->byte_len != r->length ||
	    wc->eecn != hdl_eec_number(qp->host->eecs[r->qp->host->index].eec)) {
		scenario_fail(w->run, "something came that nobody sent like this, request %u", id);
		return;
	}
	if (!same(qp->host->mem->recv[qp->index][slot], id, r->length))
		scenario_fail(w->run, "request %u was received with other bytes", id);
	if (r->delivered++ != 0)
		scenario_fail(w->run, "request %u was delivered twice", id);
	uint32_t *last = &qp->last[r->qp->host->index][r->qp->index];
	if (r->order <= *last)
		scenario_fail(w->run, "request %u was delivered behind a later one", id);
	*last = r->order;
}

void dg_poll(struct dg *w, struct dg_host *host)
{
	struct hdl_wc wc[16];
	int count;
	if (host->dead)
		return;
	while ((count = hdl_cq_poll(host->cq, wc, 16)) > 0)
		for (int i = 0; i < count; i++) {
			if (wc[i].qpn == hdl_qp_number(host->raw))
				dg_raw_completion(w, host, &wc[i]);
			for (uint32_t q = 0; q < w->qp_count; q++) {
				struct dg_qp *qp = &host->qps[q];
				if (hdl_qp_number(qp->qp) != wc[i].qpn)
					continue;
				sim_note(w->sim, host->index, wc[i].wr_id, wc[i].status);
				if (wc[i].wr_id & DG_RECV_ID)
					received(w, qp, &wc[i]);
				else
					sent(w, qp, &wc[i]);
			}
		}
}

/* --- the end --- */

void dg_bury(struct dg *w, struct dg_host *host)
{
	for (uint32_t i = 0; i < w->request_count; i++) {
		struct dg_request *r = &w->requests[i];
		if (r->done || r->qp->host != host)
			continue;
		r->done = true;
		r->status = HDL_WC_WR_FLUSH_ERR;
		w->answered++;
		if (r->kind == DG_ADD)
			r->to->host->maybe_added++;
	}
}

static void check_request(struct dg *w, uint32_t id)
{
	const struct dg_request *r = &w->requests[id];
	if (!r->done)
		scenario_fail(w->run, "request %u never ended", id);
	else if (r->kind == DG_SEND && r->status == HDL_WC_SUCCESS && r->delivered != 1 &&
	         !r->to->host->dead && r->to->disturbed == 0)
		scenario_fail(w->run, "request %u succeeded and was not received", id);
	else if (r->status != HDL_WC_SUCCESS && !is_uncertain(w, r->status) && r->delivered != 0)
		scenario_fail(w->run, "request %u failed (%s) and was received", id,
		              hdl_wc_status_str(r->status));
}

static void check_host(struct dg *w, struct dg_host *host)
{
	struct hdl_qp_attr attr;
	for (uint32_t i = 0; i < w->qp_count; i++)
		if (hdl_qp_query(host->qps[i].qp, &attr, NULL) != 0 || attr.state != HDL_QPS_RTS)
			scenario_fail(w->run, "a queue pair of host %u is in state %u", host->index,
			              attr.state);
	for (uint32_t i = 0; i < w->host_count; i++) {
		if (host->eecs[i].eec == NULL || hdl_eec_query(host->eecs[i].eec, &attr) != 0)
			continue;
		bool silent = attr.state == HDL_QPS_ERR && w->loses; /* as said above */
		if (attr.state != (host->eecs[i].failed ? HDL_QPS_ERR : HDL_QPS_RTS) && !silent)
			scenario_fail(w->run, "context %u of host %u is in state %u", i,
			              host->index, attr.state);
	}
	uint64_t counter = host->mem->counter;
	if (counter < host->added || counter > host->added + host->maybe_added)
		scenario_fail(w->run, "host %u counted %lu where %u, perhaps %u more, were added",
		              host->index, (unsigned long)counter, host->added, host->maybe_added);
}

void dg_check_end(struct dg *w)
{
	for (uint32_t i = 0; i < w->host_count && !w->run->failed; i++)
		dg_poll(w, &w->hosts[i]);
	for (uint32_t i = 0; i < w->request_count && !w->run->failed; i++)
		check_request(w, i);
	dg_raw_check_end(w);
	for (uint32_t i = 0; i < w->host_count && !w->run->failed; i++)
		if (!w->hosts[i].dead)
			check_host(w, &w->hosts[i]);
}
