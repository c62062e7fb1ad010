/* iWARP on SCTP: whole segments that come in any order (RFC 5043). Each has a number. Its body is
 * placed at once, where its header says; nothing else happens before its turn, when all before it
 * have come:
 *
 *            expected
 *               |         . missing   P placed   S stashed
 *   ... done |  .  P  P  .  S  P  .  .  |        at most IWARP_EARLY
 *
 * What waits are headers: a Send behind one that is missing is in its receive, an RDMA Write in its
 * memory, a Read Request in the read resource queue. A Send for which no receive is posted yet goes
 * into a stash, if there is room, because what has to come before it may be behind it. When the
 * turn of a segment comes, it is judged like one of a byte stream, so both give the same results in
 * any legal order. */
#include <assert.h>
#include <string.h>

#include "transport/iwarp/iwarp.h"
#include "transport/op.h"
#include "wire/be.h"

void iwarp_window_begin(struct iwarp *iwarp)
{
	struct iwarp_window *window = iwarp->window;
	struct qp *qp = iwarp->qp;
	assert(!iwarp->terms.crc && !iwarp->terms.markers_out && iwarp->terms.rtr == 0);
	window->expected = window->next_out = iwarp->terms.first_ssn;
	window->early_count = window->stash_used = window->stash_count = 0;
	window->stash = NULL;
	window->held_back = window->next_waits = false;
	for (unsigned i = 0; i < IWARP_EARLY; i++)
		window->early[i].state = IWARP_EARLY_NONE;
	if (qp->kept != NULL) {
		qp->behind = (struct wqe_recv *)(void *)window->behind;
		qp->behind_room = IWARP_BEHIND;
		qp->behind_first = qp->behind_count = 0;
	}
}

/* One segment less is in the stash. */
static void unstash(struct iwarp *iwarp)
{
	struct iwarp_window *window = iwarp->window;
	if (--window->stash_count > 0)
		return;
	iwarp_chunk_give(iwarp, window->stash);
	window->stash = NULL;
	window->stash_used = 0;
}

void iwarp_window_drop(struct iwarp *iwarp)
{
	struct iwarp_window *window = iwarp->window;
	if (window == NULL)
		return;
	while (window->stash_count > 0)
		unstash(iwarp);
	for (unsigned i = 0; window->early_count > 0 && i < IWARP_EARLY; i++) {
		window->early_count -= window->early[i].state != IWARP_EARLY_NONE;
		window->early[i].state = IWARP_EARLY_NONE;
	}
}

bool iwarp_window_between(const struct iwarp *iwarp)
{
	return iwarp->window == NULL || iwarp->window->early_count == 0;
}

static struct iwarp_early *early_of(struct iwarp_window *window, uint32_t number)
{
	return &window->early[number % IWARP_EARLY];
}

/* The segment @early is the one that the functions of request.c are about. */
static void segment_choose(struct iwarp *iwarp, const struct iwarp_early *early, uint32_t number)
{
	iwarp_rx_reset(iwarp);
	iwarp->number = number;
	iwarp->head = early->head;
	iwarp->ulpdu_bytes = early->ulpdu_bytes;
	iwarp->whole = iwarp->segment_known = true;
}

/* --- turns --- */

/* It is the turn of @early. False: it waits for a receive. */
static bool segment_deliver(struct iwarp *iwarp, struct iwarp_early *early)
{
	struct iwarp_window *window = iwarp->window;
	segment_choose(iwarp, early, window->expected);
	iwarp_judge(iwarp);
	if (iwarp->needs_receive && !iwarp_await_receive(iwarp, 0))
		return false;
	if (iwarp->fault == RDMAP_ERROR_COUNT && early->state == IWARP_EARLY_STASHED)
		iwarp_place_bytes(iwarp, 0, window->stash->bytes + early->stash_at,
		                  (uint32_t)iwarp->segment.payload_bytes);
	else if (iwarp->fault == RDMAP_ERROR_COUNT) {
		iwarp->fault = early->fault;
		iwarp->refused = early->refused;
		iwarp->result = early->result;
	}
	iwarp->place = IWARP_PLACE_WASTE;
	if (early->state == IWARP_EARLY_STASHED)
		unstash(iwarp);
	early->state = IWARP_EARLY_NONE;
	iwarp->receive_at = iwarp->look_at = 0; /* it goes on */
	iwarp_deliver(iwarp);
	window->expected++;
	if (window->held_back)
		iwarp_wake(iwarp);
	window->held_back = window->next_waits = false;
	return true;
}

/* Those that waited for the ones before them. */
static void segments_go_on(struct iwarp *iwarp)
{
	struct iwarp_window *window = iwarp->window;
	while (window->early_count > 0 && iwarp_listens(iwarp)) {
		struct iwarp_early *early = early_of(window, window->expected);
		if (early->state == IWARP_EARLY_NONE)
			break;
		if (!segment_deliver(iwarp, early))
			return;
		/* Unless the queue pair has failed, which drops all of them. */
		window->early_count -= window->early_count > 0;
	}
	iwarp_decide(iwarp);
}

bool iwarp_message_resume(struct iwarp *iwarp)
{
	if (iwarp->qp != NULL)
		segments_go_on(iwarp);
	return !iwarp->deaf;
}

/* --- arrival --- */

/* Keep the body of a Send that has no receive yet. False: it has to wait. */
static bool segment_stash(struct iwarp *iwarp, struct iwarp_early *early, const uint8_t *body)
{
	struct iwarp_window *window = iwarp->window;
	uint32_t bytes = (uint32_t)iwarp->segment.payload_bytes;
	if (window->stash == NULL)
		window->stash = iwarp_chunk_take(iwarp);
	if (window->stash == NULL || bytes > window->stash->capacity - window->stash_used)
		return false;
	memcpy(window->stash->bytes + window->stash_used, body, bytes);
	early->stash_at = window->stash_used;
	early->state = IWARP_EARLY_STASHED;
	window->stash_used += bytes;
	window->stash_count++;
	return true;
}

/* Place the body of the segment that has come. False: it has to wait. */
static bool segment_place(struct iwarp *iwarp, struct iwarp_early *early, const uint8_t *body)
{
	iwarp_judge_early(iwarp);
	if (iwarp->place == IWARP_PLACE_RECEIVE) {
		uint32_t ahead = iwarp->segment.msn - iwarp->expected_send;
		bool next = iwarp->number == iwarp->window->expected;
		if (!op_hold_receive(iwarp->engine, iwarp->qp, ahead) &&
		    (next || !segment_stash(iwarp, early, body))) {
			iwarp->window->next_waits = next;
			return iwarp_await_receive(iwarp, ahead);
		}
	}
	early->state = early->state == IWARP_EARLY_NONE ? IWARP_EARLY_PLACED : early->state;
	if (early->state == IWARP_EARLY_PLACED && iwarp->place != IWARP_PLACE_WASTE)
		iwarp_place_bytes(iwarp, 0, body, (uint32_t)iwarp->segment.payload_bytes);
	if (iwarp->segment.opcode == RDMAP_WRITE && iwarp->fault == RDMAP_ERROR_COUNT &&
	    iwarp->refused == IWARP_REFUSED_NONE)
		iwarp_touch(iwarp);
	early->fault = iwarp->fault;
	early->refused = iwarp->refused;
	early->result = iwarp->result;
	return true;
}

/* A message that no peer may send. Nothing of its number is to be believed, so it cannot wait for
 * its turn. */
static bool segment_bad(struct iwarp *iwarp, enum hdl_detail detail, bool *open)
{
	counter_add(&iwarp->engine->counters[ENGINE_BAD_PACKETS], 1);
	iwarp_rx_reset(iwarp);
	iwarp_refuse(iwarp, RDMAP_ERROR_RDMAP_STREAM_FAILED, detail, false);
	*open = false;
	return true;
}

bool iwarp_message(struct iwarp *iwarp, const uint8_t *message, size_t bytes, bool *open)
{
	struct iwarp_window *window = iwarp->window;
	*open = !iwarp->deaf;
	if (iwarp->deaf || iwarp->qp == NULL)
		return true;
	if (!iwarp_listens(iwarp))
		return false;
	segments_go_on(iwarp);
	*open = !iwarp->deaf;
	if (iwarp->deaf)
		return true;
	if (bytes < DDP_SCTP_SSN_BYTES || bytes - DDP_SCTP_SSN_BYTES > MPA_MAX_ULPDU_BYTES)
		return segment_bad(iwarp, HDL_DETAIL_NONE, open);
	const uint8_t *segment = message + DDP_SCTP_SSN_BYTES;
	uint16_t ahead = (uint16_t)(be16_load(message) - window->expected);
	uint32_t number = window->expected + ahead;
	/* RFC 5043: neither a number that came before, nor one that is far off. Table D of MEMMGT
	 * figure 18B drops what is outside the window, because TCP sends it again. SCTP delivers a
	 * message once: nothing that is dropped comes again, so the stream ends. */
	if (ahead >= IWARP_EARLY || early_of(window, number)->state != IWARP_EARLY_NONE)
		return segment_bad(iwarp, HDL_DETAIL_OUT_OF_WINDOW, open);
	/* The one whose turn it is waits for a receive: nothing else could change that. */
	if (early_of(window, window->expected)->state != IWARP_EARLY_NONE ||
	    (window->next_waits && ahead > 0)) {
		window->held_back = true;
		return false;
	}
	bytes -= DDP_SCTP_SSN_BYTES;
	size_t head = rdmap_head_bytes(segment, bytes, bytes);
	struct iwarp_early *now = &window->now;
	*now = (struct iwarp_early){.ulpdu_bytes = (uint16_t)bytes};
	memcpy(now->head, segment, head < bytes ? head : bytes);
	segment_choose(iwarp, now, number);
	window->held_back = !segment_place(iwarp, now, segment + head);
	if (window->held_back)
		return false;
	/* The usual one is the next, and leaves no trace. */
	if (number != window->expected || !segment_deliver(iwarp, now)) {
		*early_of(window, number) = *now;
		window->early_count++;
	}
	segments_go_on(iwarp);
	*open = !iwarp->deaf;
	return true;
}
