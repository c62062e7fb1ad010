/* Why a request was not posted, for HEDDLE_LOG=debug. post.c decides, and returns an error; what it
 * had to go by is looked at again here. See why.c. */
#include <stdio.h>

#include "adapter/adapter.h"
#include "base/log.h"
#include "queue/qp_state.h"
#include "transport/sg.h"

#define WHAT_BYTES 128

static const char *const names[HDL_OP_COUNT] = {
        [HDL_OP_SEND] = "SEND",
        [HDL_OP_SEND_IMM] = "SEND_IMM",
        [HDL_OP_SEND_INVALIDATE] = "SEND_INVALIDATE",
        [HDL_OP_WRITE] = "WRITE",
        [HDL_OP_WRITE_IMM] = "WRITE_IMM",
        [HDL_OP_READ] = "READ",
        [HDL_OP_COMPARE_SWAP] = "COMPARE_SWAP",
        [HDL_OP_FETCH_ADD] = "FETCH_ADD",
        [HDL_OP_BIND] = "BIND",
        [HDL_OP_INVALIDATE] = "INVALIDATE",
        [HDL_OP_REGISTER] = "REGISTER",
        [HDL_OP_REGISTER_SEND] = "REGISTER_SEND",
        [HDL_OP_DELAY] = "DELAY",
};

/* A full queue is how many programs find out that they must poll: one line per queue. */
static bool is_told(_Atomic bool *full, int error)
{
	return error == -HDL_ENOSPC && atomic_exchange_explicit(full, true, memory_order_relaxed);
}

static void list_is_wrong(const char *what, uint32_t num_sge, uint32_t most, bool lacks_list)
{
	if (num_sge > most)
		log_debug("%s: its list has %u entries, and the queue takes %u", what, num_sge,
		          most);
	else if (lacks_list)
		log_debug("%s: num_sge is %u, and sg_list is NULL", what, num_sge);
}

static void too_long(const char *what, const struct hdl_qp *qp, const struct hdl_send_wr *wr,
                     uint64_t length)
{
	if ((wr->flags & HDL_SEND_INLINE) && length > qp->qp.cap.max_inline)
		log_debug("%s: it has %llu bytes of inline data, and max_inline is %u", what,
		          (unsigned long long)length, qp->qp.cap.max_inline);
	else if (length > qp->qp.max_message)
		log_debug("%s: it has %llu bytes, and a message has %llu at most", what,
		          (unsigned long long)length, (unsigned long long)qp->qp.max_message);
	else if (wr->opcode == HDL_OP_REGISTER || wr->opcode == HDL_OP_REGISTER_SEND)
		log_debug("%s: it lists %u pages, and the region has room for %u", what,
		          wr->reg.reg.num_pages, wr->reg.mr->max_pages);
}

static void datagram_is_wrong(const char *what, const struct hdl_qp *qp,
                              const struct hdl_send_wr *wr)
{
	const struct hdl_ah *ah = wr->u.ud.ah;
	if (ah == NULL || ah->magic != MAGIC_AH)
		log_debug("%s: its address handle is NULL, or was destroyed", what);
	else if (ah->pd != qp->pd)
		log_debug("%s: its address handle belongs to another protection domain", what);
	else if (wr->u.ud.qpn > 0xffffff)
		log_debug("%s: there is no queue pair 0x%x: numbers have 24 bits", what,
		          wr->u.ud.qpn);
	else
		log_debug("%s: %s", what,
		          ah->attr.plain ? "its address handle is for plain UDP, and the queue "
		                           "pair is not"
		                         : "the queue pair is for plain UDP, and its address "
		                           "handle is not");
}

static void send_is_wrong(const char *what, const struct hdl_qp *qp, const struct hdl_send_wr *wr,
                          uint64_t length)
{
	const uint32_t known =
	        HDL_SEND_SIGNALED | HDL_SEND_SOLICITED | HDL_SEND_INLINE | HDL_SEND_FENCE;
	if (wr->opcode >= HDL_OP_COUNT || names[wr->opcode] == NULL)
		log_debug("%s: there is no operation %u", what, wr->opcode);
	else if ((wr->flags & ~known) != 0)
		log_debug("%s: the flags 0x%x mean nothing", what, wr->flags & ~known);
	else if (wr->num_sge > 0 && wr->sg_list == NULL)
		list_is_wrong(what, wr->num_sge, UINT32_MAX, true);
	else if ((wr->opcode == HDL_OP_COMPARE_SWAP || wr->opcode == HDL_OP_FETCH_ADD) &&
	         length != 8)
		log_debug("%s: its list has %llu bytes, and an atomic takes 8", what,
		          (unsigned long long)length);
	else if (wr->opcode == HDL_OP_BIND)
		log_debug("%s: the window, the region, the rights (0x%x) or the key is not valid",
		          what, wr->bind.bind.access);
	else if (wr->opcode == HDL_OP_REGISTER || wr->opcode == HDL_OP_REGISTER_SEND)
		log_debug("%s: the region, the list of pages, the rights (0x%x) or the key is not "
		          "valid",
		          what, wr->reg.reg.access);
	else if (wr->flags & HDL_SEND_INLINE)
		log_debug("%s: it sends no data that could be inline", what);
	else if (qp->qp.type == HDL_QP_UD)
		datagram_is_wrong(what, qp, wr);
	else if (qp->qp.type == HDL_QP_RD)
		log_debug("%s: its context is NULL, was destroyed or is of another domain, or "
		          "there is no queue pair 0x%x",
		          what, wr->rd.qpn);
	else
		log_debug("%s: %s", what, hdl_strerror(-HDL_EINVAL));
}

static void unsupported(const char *what, const struct hdl_qp *qp, const struct hdl_send_wr *wr)
{
	if (wr->opcode == HDL_OP_REGISTER && !qp->qp.register_on_send)
		log_debug("%s: the queue pair was created without register_on_send", what);
	else
		log_debug("%s: queue pairs of type %s do not have this operation", what,
		          qp_type_name(qp->qp.type));
}

void why_not_posted(struct hdl_qp *qp, const struct hdl_send_wr *wr, int error)
{
	char what[WHAT_BYTES];
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	if (qp == NULL || qp->magic != MAGIC_QP) {
		log_debug("a send is refused: its queue pair is NULL, or was destroyed");
		return;
	}
	if (wr == NULL || is_told(&qp->full_send, error))
		return;
	bool known = wr->opcode < HDL_OP_COUNT && names[wr->opcode] != NULL;
	snprintf(what, sizeof(what), "queue pair 0x%06x (%s): %s with wr_id 0x%llx is refused",
	         qp->qp.qpn, qp_type_name(qp->qp.type), known ? names[wr->opcode] : "a request",
	         (unsigned long long)wr->wr_id);
	uint32_t most = wr->flags & HDL_SEND_INLINE ? HDL_MAX_SGE : qp->qp.sq.max_sge;
	uint64_t length = wr->num_sge <= most && wr->sg_list != NULL
	                          ? sg_length(wr->sg_list, wr->num_sge)
	                          : 0;
	if (error == -HDL_EPERM)
		log_debug("%s: the queue pair is in %s, and sends go from RTS on", what,
		          qp_state_name(qp_state(&qp->qp)));
	else if (error == -HDL_ENOSPC && qp->qp.sq.depth == 0)
		log_debug("%s: the queue pair was created without a send queue", what);
	else if (error == -HDL_ENOSPC)
		log_debug("%s: all %u elements of the send queue are in use. An element comes back "
		          "when its completion, or one of a later request, has been polled; "
		          "signal a request now and then (logged once per queue)",
		          what, qp->qp.sq.depth);
	else if (error == -HDL_EMSGSIZE && wr->num_sge > most)
		list_is_wrong(what, wr->num_sge, most, false);
	else if (error == -HDL_EMSGSIZE)
		too_long(what, qp, wr, length);
	else if (error == -HDL_ENOTSUP)
		unsupported(what, qp, wr);
	else if (error == -HDL_EINVAL)
		send_is_wrong(what, qp, wr, length);
	else
		log_debug("%s: %s", what, hdl_strerror(error));
}

/* What both kinds of receive queue refuse. @owner: its name. */
static void receive_refused(const char *owner, const struct wq *wq, _Atomic bool *full,
                            const struct hdl_recv_wr *wr, int error)
{
	char what[WHAT_BYTES];
	if (is_told(full, error))
		return;
	snprintf(what, sizeof(what), "%s: a receive with wr_id 0x%llx is refused", owner,
	         (unsigned long long)wr->wr_id);
	if (error == -HDL_ENOSPC && wq->depth == 0)
		log_debug("%s: it was created without a receive queue", what);
	else if (error == -HDL_ENOSPC)
		log_debug("%s: all %u elements of the queue are in use. An element comes back when "
		          "its completion has been polled (logged once per queue)",
		          what, wq->depth);
	else
		list_is_wrong(what, wr->num_sge, wq->max_sge, wr->sg_list == NULL);
}

void why_not_received(struct hdl_qp *qp, const struct hdl_recv_wr *wr, int error)
{
	char owner[WHAT_BYTES / 2];
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	if (qp == NULL || qp->magic != MAGIC_QP) {
		log_debug("a receive is refused: its queue pair is NULL, or was destroyed");
		return;
	}
	snprintf(owner, sizeof(owner), "queue pair 0x%06x (%s)", qp->qp.qpn,
	         qp_type_name(qp->qp.type));
	if (qp->qp.srq != NULL)
		log_debug("%s: a receive is refused: it takes its receives from a shared receive "
		          "queue; post them there",
		          owner);
	else if (error == -HDL_EPERM)
		log_debug("%s: a receive is refused: the queue pair is in RESET, and receives go "
		          "from INIT on",
		          owner);
	else
		receive_refused(owner, &qp->qp.rq, &qp->full_recv, wr, error);
}

void why_not_shared(struct hdl_srq *srq, const struct hdl_recv_wr *wr, int error)
{
	char owner[WHAT_BYTES / 2];
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	if (srq == NULL || srq->magic != MAGIC_SRQ) {
		log_debug("a receive is refused: its shared receive queue is NULL, or was "
		          "destroyed");
		return;
	}
	uint32_t number = hdl_srq_number(srq);
	if (number != 0)
		snprintf(owner, sizeof(owner), "shared receive queue 0x%06x", number);
	else
		snprintf(owner, sizeof(owner), "a shared receive queue");
	receive_refused(owner, &srq->srq.wq, &srq->full, wr, error);
}
