/* Descriptors: see descriptor.h. */
#include "transport/descriptor.h"

#include <assert.h>
#include <string.h>

#include "transport/op.h"
#include "transport/sg.h"
#include "wire/be.h"
#include "wire/roce.h"

#define CONTROL_BYTES ((uint32_t)sizeof(struct hdl_vi_control))
#define SEGMENT_BYTES ((uint32_t)sizeof(union hdl_vi_segment))
#define IMMEDIATE_AT  ((uint32_t)offsetof(struct hdl_vi_control, immediate))
#define LENGTH_AT     ((uint32_t)offsetof(struct hdl_vi_control, length))
#define STATUS_AT     ((uint32_t)offsetof(struct hdl_vi_control, status))

/* Copy @bytes of the descriptor @piece, from @at on, to or from the plain memory @own. All of
 * @piece is checked. */
static enum hdl_detail descriptor_copy(struct engine *engine, const struct qp *qp,
                                       const struct hdl_sge *piece, uint32_t at, void *own,
                                       uint32_t bytes, bool write_back)
{
	const uint8_t both = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE;
	struct hdl_sge plain_piece;
	struct sg list = sg_own(engine, qp, piece, 1, both), plain;
	plain = sg_plain(&plain_piece, own, bytes);
	sg_skip(&list, at);
	struct sg_result result =
	        sg_move(&engine->own.ops, MOVE_BOTH_OWN, write_back ? &list : &plain,
	                write_back ? &plain : &list, bytes);
	if (result.detail != HDL_DETAIL_NONE)
		tpt_count(engine->tpt, result.detail);
	if (result.detail == HDL_DETAIL_GONE)
		op_memory_gone(engine, piece->key);
	return result.detail;
}

enum hdl_detail descriptor_read(struct engine *engine, const struct qp *qp, uint64_t addr,
                                struct hdl_key handle, struct descriptor *out)
{
	struct hdl_sge piece = {.addr = addr, .length = CONTROL_BYTES, .key = handle};
	if (addr % HDL_VI_ALIGNMENT != 0)
		return HDL_DETAIL_MISALIGNED;
	enum hdl_detail detail =
	        descriptor_copy(engine, qp, &piece, 0, &out->control, CONTROL_BYTES, false);
	if (detail != HDL_DETAIL_NONE)
		return detail;
	/* From here on the copy counts: the program may change the descriptor at any time. */
	uint32_t segments = out->control.segments;
	if (segments > HDL_VI_MAX_SEGMENTS)
		return HDL_DETAIL_LIMIT;
	if (segments == 0)
		return HDL_DETAIL_NONE;
	piece.length += segments * SEGMENT_BYTES;
	return descriptor_copy(engine, qp, &piece, CONTROL_BYTES, out->segments,
	                       segments * SEGMENT_BYTES, false);
}

/* The operation of a descriptor in the send queue; HDL_OP_COUNT: there is none such. */
static uint32_t descriptor_opcode(uint16_t control)
{
	bool immediate = (control & HDL_VI_IMMEDIATE) != 0;
	switch (control & HDL_VI_OP_MASK) {
	case HDL_VI_SENDRECV:
		return immediate ? HDL_OP_SEND_IMM : HDL_OP_SEND;
	case HDL_VI_RDMA_WRITE:
		return immediate ? HDL_OP_WRITE_IMM : HDL_OP_WRITE;
	case HDL_VI_RDMA_READ:
		return immediate ? HDL_OP_COUNT : HDL_OP_READ;
	default:
		return HDL_OP_COUNT;
	}
}

static bool judge_address(const struct descriptor *in, bool addressed, bool receive,
                          struct descriptor_work *out)
{
	const union hdl_vi_segment *first = &in->segments[0];
	if (!addressed) {
		out->send.u.rdma.addr = first->remote.addr;
		out->send.u.rdma.key = first->remote.handle;
		return first->remote.reserved == 0;
	}
	out->to = first->peer;
	return receive || (first->peer.reserved == 0 && first->peer.reserved2 == 0 &&
	                   first->peer.qpn <= 0xffffff);
}

int descriptor_judge(const struct descriptor *in, bool addressed, bool receive,
                     struct descriptor_work *out)
{
	const uint16_t known = HDL_VI_OP_MASK | HDL_VI_IMMEDIATE | HDL_VI_FENCE;
	const struct hdl_vi_control *control = &in->control;
	bool rdma = (control->control & HDL_VI_OP_MASK) != HDL_VI_SENDRECV;
	uint32_t at = addressed || rdma ? 1 : 0;
	uint64_t length = 0;
	memset(&out->send, 0, sizeof(out->send));
	out->send.opcode = descriptor_opcode(control->control);
	if ((control->control & ~known) != 0 || out->send.opcode == HDL_OP_COUNT ||
	    control->reserved != 0 || control->status != 0 || control->segments < at ||
	    control->segments - at > HDL_MAX_SGE ||
	    (receive && control->control != HDL_VI_SENDRECV) || (rdma && addressed))
		return -HDL_EINVAL;
	if (at > 0 && !judge_address(in, addressed, receive, out))
		return -HDL_EINVAL;
	for (uint32_t i = 0; at + i < control->segments; i++) {
		const union hdl_vi_segment *segment = &in->segments[at + i];
		out->pieces[i] = (struct hdl_sge){.addr = segment->data.addr,
		                                  .length = segment->data.length,
		                                  .key = segment->data.handle};
		length += segment->data.length;
	}
	if (!receive && length != control->length)
		return -HDL_EINVAL;
	out->send.sg_list = out->pieces;
	out->send.num_sge = control->segments - at;
	out->send.flags =
	        HDL_SEND_SIGNALED | ((control->control & HDL_VI_FENCE) != 0 ? HDL_SEND_FENCE : 0u);
	out->send.imm = control->immediate;
	return 0;
}

static uint32_t status_error(uint32_t status)
{
	switch (status) {
	case HDL_WC_SUCCESS:
		return 0;
	case HDL_WC_LOC_LEN_ERR:
		return HDL_VI_LENGTH_ERROR;
	case HDL_WC_LOC_QP_OP_ERR:
		return HDL_VI_FORMAT_ERROR;
	case HDL_WC_LOC_PROT_ERR:
	case HDL_WC_LOC_ACCESS_ERR:
	case HDL_WC_MEM_MGT_ERR:
		return HDL_VI_PROTECTION_ERROR;
	case HDL_WC_WR_FLUSH_ERR:
		return HDL_VI_FLUSHED;
	case HDL_WC_REM_ABORT_ERR:
		return HDL_VI_PARTIAL_ERROR;
	case HDL_WC_REM_ACCESS_ERR:
		return HDL_VI_RDMA_PROT_ERROR;
	case HDL_WC_REM_INV_REQ_ERR:
	case HDL_WC_REM_OP_ERR:
	case HDL_WC_RNR_RETRY_EXC_ERR:
		return HDL_VI_REMOTE_DESC_ERROR;
	default:
		return HDL_VI_TRANSPORT_ERROR;
	}
}

uint32_t descriptor_status(const struct hdl_wc *wc)
{
	uint32_t status = HDL_VI_DONE | status_error(wc->status);
	switch (wc->opcode) {
	case HDL_WC_RECV:
		status |= HDL_VI_DONE_RECEIVE;
		break;
	case HDL_WC_RECV_WRITE_IMM:
		status |= HDL_VI_DONE_REMOTE_WRITE;
		break;
	case HDL_WC_WRITE:
		status |= HDL_VI_DONE_RDMA_WRITE;
		break;
	case HDL_WC_READ:
		status |= HDL_VI_DONE_RDMA_READ;
		break;
	default:
		break;
	}
	if (wc->status == HDL_WC_SUCCESS && (wc->flags & HDL_WC_WITH_IMM) != 0)
		status |= HDL_VI_DONE_IMMEDIATE;
	return status;
}

static bool is_receive(const struct hdl_wc *wc)
{
	return wc->opcode == HDL_WC_RECV || wc->opcode == HDL_WC_RECV_WRITE_IMM;
}

/* Take the route header of a datagram off its length, and tell the descriptor @piece who sent it.
 */
static enum hdl_detail descriptor_sender(struct engine *engine, struct qp *qp,
                                         const struct hdl_sge *piece, struct hdl_wc *wc,
                                         const uint8_t *header)
{
	const struct descriptors *all = qp->descriptors;
	uint8_t gid[16];
	/* An IPv4 header takes the second half of the room of the route header (annex A17). */
	if (header[0] >> 4 == 6)
		memcpy(gid, header + 8, sizeof(gid));
	else
		roce_gid_from_ipv4(gid, be32_load(header + 32));
	struct hdl_vi_destination from = {.qpn = wc->src_qpn};
	assert(wc->byte_len >= HDL_GRH_BYTES);
	wc->byte_len -= HDL_GRH_BYTES;
	wc->flags &= ~(uint32_t)HDL_WC_GRH;
	for (uint32_t i = 0; i < all->peer_count; i++)
		if (all->peers[i].qpn == wc->src_qpn &&
		    memcmp(all->peers[i].gid.raw, gid, sizeof(gid)) == 0)
			memcpy(from.mac, all->peers[i].mac, sizeof(from.mac));
	struct hdl_sge whole = *piece;
	whole.length += SEGMENT_BYTES;
	return descriptor_copy(engine, qp, &whole, CONTROL_BYTES, &from, sizeof(from), true);
}

enum hdl_detail descriptor_completed(struct engine *engine, struct qp *qp, struct hdl_wc *wc)
{
	struct descriptors *all = qp->descriptors;
	bool receive = is_receive(wc), good = wc->status == HDL_WC_SUCCESS;
	struct descriptor_ring *ring = receive ? &all->receive : &all->send;
	uint32_t at = atomic_fetch_add_explicit(&ring->done, 1, memory_order_relaxed) & ring->mask;
	struct hdl_sge piece = {
	        .addr = wc->wr_id, .length = CONTROL_BYTES, .key = ring->handles[at]};
	enum hdl_detail detail = HDL_DETAIL_NONE;
	if (receive && good && all->addressed)
		detail = descriptor_sender(engine, qp, &piece, wc,
		                           all->headers + (size_t)at * HDL_GRH_BYTES);
	uint32_t status = descriptor_status(wc), length = good ? wc->byte_len : 0;
	if (detail == HDL_DETAIL_NONE && receive && (status & HDL_VI_DONE_IMMEDIATE) != 0)
		detail = descriptor_copy(engine, qp, &piece, IMMEDIATE_AT, &wc->imm,
		                         sizeof(wc->imm), true);
	if (detail == HDL_DETAIL_NONE)
		detail = descriptor_copy(engine, qp, &piece, LENGTH_AT, &length, sizeof(length),
		                         true);
	/* The status comes last: a thread that sees it sees everything else. Four aligned bytes are
	 * stored at once. */
	atomic_thread_fence(memory_order_release);
	if (detail == HDL_DETAIL_NONE)
		detail = descriptor_copy(engine, qp, &piece, STATUS_AT, &status, sizeof(status),
		                         true);
	return detail;
}
