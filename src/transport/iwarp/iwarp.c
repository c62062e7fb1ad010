/* iWARP as the engine and the owner of the stream see it: its tables, its beginning, its timer. */
#include "transport/iwarp/iwarp.h"

#include <assert.h>

#include "queue/qp_state.h"
#include "transport/op.h"

const struct stream_ops iwarp_stream = {.offer = iwarp_offer,
                                        .taken = iwarp_taken,
                                        .want = iwarp_want,
                                        .arrived = iwarp_arrived,
                                        .ended = iwarp_ended};

/* Messages are numbered from 1 (RFC 5041 section 5.1). The queue holds what the two ends agreed. */
static void begin_reads(struct qp *qp)
{
	const struct iwarp *iwarp = qp->iwarp;
	uint32_t depth = qp->reads.depth;
	if (depth > iwarp->terms.ird)
		depth = iwarp->terms.ird;
	if (qp->reads.entries != NULL)
		read_queue_init(&qp->reads, qp->reads.entries, depth, 1);
}

static void iwarp_begin_responder(struct qp *qp)
{
	begin_reads(qp);
	iwarp_wake(qp->iwarp);
}

/* RFC 6581 section 9: the initiator shows that it is ready, so that the responder may send. */
static void begin_ready(struct iwarp *iwarp)
{
	uint32_t none;
	bool fits = iwarp_out_room(iwarp, RDMAP_MAX_HEADER_BYTES, 0, &none);
	assert(fits);
	if (iwarp->terms.rtr & MPA_RTR_SEND) {
		iwarp_out_empty(iwarp);
	} else if (iwarp->terms.rtr & MPA_RTR_WRITE) {
		const struct rdmap_segment segment = {.opcode = RDMAP_WRITE, .last = true};
		iwarp_out_put(iwarp, &segment, 0, 0, NULL, NULL);
	} else {
		const struct rdmap_segment segment = {.opcode = RDMAP_READ_REQUEST,
		                                      .msn = iwarp->read_msn++,
		                                      .u.read.sink_stag = IWARP_READY_STAG};
		iwarp_out_put(iwarp, &segment, 0, 0, NULL, NULL);
		iwarp->ready_read = true;
	}
	iwarp_wake(iwarp);
}

/* The longest segment that fits. */
static uint32_t iwarp_max_ulpdu(const struct iwarp_terms *terms)
{
	uint32_t segment = terms->segment < IWARP_MIN_SEGMENT ? IWARP_MIN_SEGMENT : terms->segment;
	if (terms->plain)
		return MPA_MAX_ULPDU_BYTES;
	if (terms->window == NULL)
		return (uint32_t)mpa_mulpdu(segment, terms->markers_out);
	if (segment > MPA_MAX_ULPDU_BYTES)
		segment = MPA_MAX_ULPDU_BYTES;
	return segment - DDP_SCTP_SSN_BYTES;
}

void iwarp_begin(struct engine *engine, struct qp *qp, struct iwarp *iwarp,
                 const struct iwarp_terms *terms, const struct iwarp_owner *owner)
{
	assert(engine->iwarp_pool != NULL);
	*iwarp = (struct iwarp){.engine = engine,
	                        .qp = qp,
	                        .before = qp->transport,
	                        .terms = *terms,
	                        .owner = *owner,
	                        /* Messages of a session have numbers: its answer is the first. */
	                        .may_send =
	                                terms->initiator || terms->window != NULL || terms->plain,
	                        .sender = {.markers = terms->markers_out, .crc = terms->crc},
	                        .window = terms->window,
	                        .max_ulpdu = iwarp_max_ulpdu(terms),
	                        .send_msn = 1,
	                        .read_msn = 1,
	                        .result_msn = 1,
	                        .expected_send = 1,
	                        .expected_read = 1,
	                        .expected_result = 1,
	                        .answered = 1,
	                        .tell = wq_head(&qp->sq),
	                        .oldest = wq_head(&qp->sq)};
	iwarp->own_chunk =
	        (struct iwarp_chunk){.bytes = iwarp->own, .capacity = sizeof(iwarp->own)};
	iwarp->last_chunk =
	        (struct iwarp_chunk){.bytes = iwarp->last, .capacity = sizeof(iwarp->last)};
	mpa_stream_init(&iwarp->in, terms->markers_in, terms->crc);
	iwarp->head = iwarp->in.head;
	iwarp_rx_reset(iwarp);
	qp->iwarp = iwarp;
	if (terms->window != NULL)
		iwarp_window_begin(iwarp);
	qp->transport = &iwarp_transport;
	qp->link = LINK_NONE;
	begin_reads(qp);
	if (terms->initiator && terms->rtr != 0)
		begin_ready(iwarp);
	engine_activate(engine, qp);
}

void iwarp_may_send(struct iwarp *iwarp)
{
	iwarp->may_send = true;
	if (iwarp->out != NULL)
		iwarp_wake(iwarp);
}

/* --- the timer --- */

static void timer_sooner(uint64_t *first, uint64_t at)
{
	if (at != 0 && at < *first)
		*first = at;
}

/* One timer for all that a connection waits for. */
void iwarp_set_timer(struct iwarp *iwarp)
{
	uint64_t first = UINT64_MAX, now = iwarp->engine->now_ns;
	if (iwarp->delay_begins)
		first = now;
	timer_sooner(&first, iwarp->delay_at);
	timer_sooner(&first, iwarp->receive_at);
	timer_sooner(&first, iwarp->look_at);
	timer_sooner(&first, iwarp->stall_at);
	if (first != UINT64_MAX)
		engine_want_timer(iwarp->engine, iwarp->qp, first > now ? first - now : 0);
}

/* engine.now_ns is the time of the last tick. A delay must not be shorter than it says, so it
 * begins with the next one. */
void iwarp_delay(struct iwarp *iwarp, uint64_t ns)
{
	iwarp->delay_ns = ns;
	iwarp->delay_begins = true;
	iwarp_set_timer(iwarp);
}

static void delay_begin(struct iwarp *iwarp)
{
	uint64_t now = iwarp->engine->now_ns, ns = iwarp->delay_ns;
	iwarp->delay_begins = false;
	iwarp->delay_at = ns < UINT64_MAX - 1 - now ? now + ns + 1 : UINT64_MAX;
}

static bool timer_is_due(const struct iwarp *iwarp, uint64_t *at)
{
	if (*at == 0 || iwarp->engine->now_ns < *at)
		return false;
	*at = 0;
	return true;
}

static void iwarp_timeout(struct engine *engine, struct qp *qp)
{
	struct iwarp *iwarp = qp->iwarp;
	if (iwarp == NULL)
		return;
	if (iwarp->delay_begins)
		delay_begin(iwarp);
	if (timer_is_due(iwarp, &iwarp->delay_at))
		request_timeout(engine, qp);
	bool late = timer_is_due(iwarp, &iwarp->receive_at);
	if ((timer_is_due(iwarp, &iwarp->look_at) || late) &&
	    op_hold_receive(engine, qp, iwarp->wants)) {
		iwarp_wake(iwarp);
	} else if (late) {
		/* RFC 5041 section 7.2: no buffer for the message. */
		iwarp->segment_known = true;
		iwarp_refuse(iwarp, RDMAP_ERROR_DDP_NO_BUFFER, HDL_DETAIL_LIMIT, false);
	} else if (iwarp->receive_at != 0 && iwarp->look_at == 0) {
		iwarp_wake(iwarp);
	}
	if (iwarp->end_due && iwarp->look_at == 0)
		iwarp_plain_end(iwarp);
	if (timer_is_due(iwarp, &iwarp->stall_at))
		iwarp_refuse(iwarp, RDMAP_ERROR_MPA_CATASTROPHIC, HDL_DETAIL_NONE, false);
	iwarp_set_timer(iwarp);
}

const struct transport iwarp_transport = {
        .name = "iWARP",
        .run = iwarp_run,
        .owes = iwarp_owes,
        .answer = iwarp_answer,
        .timeout = iwarp_timeout,
        .begin_responder = iwarp_begin_responder,
        .leaving = iwarp_leaving,
        .left = iwarp_left,
};
