/* The same-host path: answers of the responder. Nothing waits for room in the lane: the queue pair
 * keeps an answer until it can be sent, and a later one that says more replaces it. */
#include "transport/local/local.h"

void local_owe(struct engine *engine, struct qp *qp, enum answer answer, uint32_t msn,
               uint32_t detail)
{
	bool more = qp->local.answer_due && qp->local.answer == ANSWER_ACK && answer == ANSWER_ACK;
	qp->local.answer_count = more ? qp->local.answer_count + 1 : 1;
	qp->local.answer_new = !more;
	qp->local.answer_due = true;
	qp->local.answer = (uint8_t)answer;
	qp->local.answer_msn = msn;
	qp->local.answer_detail = (uint8_t)detail;
	engine_owe(engine, qp);
}

bool local_send_answer(struct engine *engine, uint32_t link, uint32_t to_qpn, uint32_t from_qpn,
                       uint32_t msn, struct frame_answer answer)
{
	struct {
		struct frame frame;
		struct frame_answer answer;
	} *out = engine_reserve(engine, link, sizeof(*out));
	if (out == NULL)
		return false;
	out->frame = (struct frame){
	        .kind = FRAME_ANSWER, .to_qpn = to_qpn, .from_qpn = from_qpn, .msn = msn};
	out->answer = answer;
	engine_publish(engine, link);
	return true;
}

bool local_reply(struct engine *engine, struct qp *qp, uint32_t msn, enum answer answer,
                 uint32_t detail, uint64_t value)
{
	return local_send_answer(
	        engine, qp->link, qp->attr.dest_qpn, qp->qpn, msn,
	        (struct frame_answer){.answer = answer, .detail = detail, .value = value});
}

static bool send_close(struct engine *engine, struct qp *qp)
{
	struct frame *out = engine_reserve(engine, qp->link, sizeof(*out));
	if (out == NULL)
		return false;
	*out = (struct frame){.kind = FRAME_CLOSE,
	                      .flags = qp->close_imm ? FRAME_IMM : 0,
	                      .to_qpn = qp->attr.dest_qpn,
	                      .from_qpn = qp->qpn,
	                      .msn = qp->close_key.v,
	                      .length = qp->close_detail,
	                      .imm = qp->close_event};
	engine_publish(engine, qp->link);
	return true;
}

bool local_may_wait(struct qp *qp)
{
	if (!qp->local.answer_new || qp->local.answer != ANSWER_ACK || qp->local.answer_count > 1 ||
	    !qp->local.answer_due || qp->close_due || qp->local.results_due > 0 ||
	    qp->type != HDL_QP_RC)
		return false;
	qp->local.answer_new = false;
	return true;
}

bool local_answer(struct engine *engine, struct qp *qp)
{
	if (qp->link == LINK_NONE || !engine->links[qp->link].up) {
		qp->local.answer_due = qp->close_due = false;
		qp->local.results_due = 0;
		return true;
	}
	/* Atomics first, one by one: each answer carries a value, and a later one would acknowledge
	 * them without it. Reads have numbers between theirs. A peer that wraps its numbers round
	 * unanswered ones gets no answer to those. */
	for (uint32_t looked = 0; qp->local.results_due > 0; looked++) {
		struct read_entry *entry =
		        &qp->reads.entries[qp->local.result_read & qp->reads.mask];
		if (looked > qp->reads.mask) {
			qp->local.results_due = 0;
			break;
		}
		if (entry->owed) {
			if (!(entry->length > 0 ? local_send_read(engine, qp, entry)
			                        : local_reply(engine, qp, entry->tag, ANSWER_VALUE,
			                                      0, entry->result)))
				return false;
			entry->owed = false;
			qp->local.results_due--;
		}
		qp->local.result_read++;
	}
	if (qp->local.answer_due) {
		if (!local_reply(engine, qp, qp->local.answer_msn, qp->local.answer,
		                 qp->local.answer_detail, qp->close_key.v))
			return false;
		qp->local.answer_due = false;
	}
	if (qp->close_due) {
		if (!send_close(engine, qp))
			return false;
		qp->close_due = false;
	}
	return true;
}
