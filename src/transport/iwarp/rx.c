/* iWARP: the stream in. Octets arrive in whatever runs the carrier reads, and the result is the
 * same. The head of each segment is collected and judged first; then the body goes to its place,
 * where that may be done before the CRC is known:
 *
 *   Send            into the receive that the message consumes: nobody may look at it yet
 *   Read Response   into the pieces of the oldest open read, where the next octets of it belong
 *   RDMA Write      to where it says, if it continues the message whose CRCs were right, or if
 *                   there are no CRCs; otherwise the segment is held back until its CRC is known,
 *                   so that a damaged header reaches no memory
 *
 * Nothing else happens before the CRC is known: no error counts, nothing completes. */
#include <assert.h>
#include <string.h>

#include "base/crc.h"
#include "queue/qp_state.h"
#include "transport/iwarp/iwarp.h"
#include "transport/op.h"

void iwarp_rx_reset(struct iwarp *iwarp)
{
	if (iwarp->hold != NULL)
		iwarp_chunk_give(iwarp, iwarp->hold);
	iwarp->hold = NULL;
	iwarp->segment_known = false;
	iwarp->needs_receive = false;
	iwarp->place = IWARP_PLACE_WASTE;
	iwarp->fault = RDMAP_ERROR_COUNT;
	iwarp->refused = IWARP_REFUSED_NONE;
	iwarp->whole = false;
	iwarp->stall_at = 0;
}

bool iwarp_listens(const struct iwarp *iwarp)
{
	return !iwarp->deaf && iwarp->qp != NULL && qp_may_receive(qp_state(iwarp->qp));
}

/* There is no receive for the segment: look again from time to time. */
static void rx_look_later(struct iwarp *iwarp)
{
	uint64_t now = iwarp->engine->now_ns;
	if (iwarp->receive_at == 0) {
		counter_add(&iwarp->engine->counters[ENGINE_RNR_SENT], 1);
		/* Plain TCP waits for as long as it takes. */
		iwarp->receive_at = iwarp->terms.plain ? UINT64_MAX : now + IWARP_RECEIVE_WAIT_NS;
		iwarp->look_ns = IWARP_RECEIVE_LOOK_NS;
	} else if (iwarp->look_at != 0) {
		return;
	}
	iwarp->look_at = now + iwarp->look_ns;
	uint64_t most = iwarp->terms.plain ? IWARP_PLAIN_LOOK_MAX_NS : IWARP_RECEIVE_LOOK_MAX_NS;
	iwarp->look_ns = 2 * iwarp->look_ns < most ? 2 * iwarp->look_ns : most;
	iwarp_set_timer(iwarp);
}

bool iwarp_await_receive(struct iwarp *iwarp, uint32_t ahead)
{
	iwarp->wants = ahead;
	if (!op_hold_receive(iwarp->engine, iwarp->qp, ahead)) {
		rx_look_later(iwarp);
		return false;
	}
	iwarp->receive_at = iwarp->look_at = 0;
	return true;
}

/* May the segment go on? Not while it needs a receive and there is none. */
static bool rx_may_go_on(struct iwarp *iwarp)
{
	if (!iwarp->segment_known || !iwarp->needs_receive)
		return true;
	if (!iwarp_await_receive(iwarp, 0))
		return false;
	iwarp->needs_receive = false;
	return true;
}

/* A chunk for a segment that is held back. False: there is none, and the owner is told when there
 * may be. */
static bool rx_hold(struct iwarp *iwarp)
{
	struct iwarp_pool *pool = iwarp->engine->iwarp_pool;
	if (iwarp->hold == NULL)
		iwarp->hold = iwarp_chunk_take(iwarp);
	if (iwarp->hold == NULL && pool != NULL && !iwarp->hold_waits) {
		iwarp->hold_waits = true;
		iwarp->hold_next = pool->waiting;
		pool->waiting = iwarp;
	}
	return iwarp->hold != NULL;
}

/* A chunk that others may want is in use while octets keep coming. */
static void rx_set_stall(struct iwarp *iwarp)
{
	if (iwarp->hold == NULL)
		return;
	bool running = iwarp->stall_at != 0;
	iwarp->stall_at = iwarp->engine->now_ns + IWARP_STALL_NS;
	if (!running)
		iwarp_set_timer(iwarp);
}

/* The next octets of the body, @due at most, as runs of checked memory. 0: refused. */
static size_t rx_runs(struct iwarp *iwarp, size_t due, struct span *spans, size_t max,
                      size_t *bytes)
{
	struct hdl_sge piece;
	struct sg to;
	uint64_t covered;
	enum hdl_detail detail;
	if (!iwarp_place_list(iwarp, iwarp->in.body_bytes, &piece, &to))
		return 0;
	size_t count = sg_runs(&to, due, spans, max, &covered, &detail);
	*bytes = (size_t)covered;
	if (count == 0) {
		struct sg_result result = {.detail = detail, .at_target = true, .key = sg_key(&to)};
		iwarp_place_refused(iwarp, &result);
	}
	return count;
}

/* The next octets of the body, @due at most, as runs of memory. 0: none are wanted now. */
static size_t rx_body(struct iwarp *iwarp, size_t due, struct stream_run *runs, size_t max,
                      size_t *bytes)
{
	struct span spans[STREAM_MAX_RUNS];
	size_t count = 0;
	if (iwarp->place == IWARP_PLACE_HOLD) {
		if (!rx_hold(iwarp))
			return 0;
		runs[0] = (struct stream_run){iwarp->hold->bytes + iwarp->in.body_bytes, due};
		*bytes = due;
		return 1;
	}
	if (iwarp->place != IWARP_PLACE_WASTE)
		count = rx_runs(iwarp, due, spans, max, bytes);
	for (size_t i = 0; i < count; i++)
		runs[i] = (struct stream_run){(uint8_t *)(uintptr_t)spans[i].addr,
		                              (size_t)spans[i].length};
	if (count > 0)
		return count;
	*bytes = due < sizeof(iwarp->waste) ? due : sizeof(iwarp->waste);
	runs[0] = (struct stream_run){iwarp->waste, *bytes};
	return 1;
}

size_t iwarp_want(void *context, struct stream_run *runs, size_t max)
{
	struct iwarp *iwarp = context;
	uint8_t *to;
	size_t bytes;
	if (iwarp->deaf && !iwarp->ended) { /* so that the peer gets to read our Terminate */
		runs[0] = (struct stream_run){iwarp->waste, sizeof(iwarp->waste)};
		return 1;
	}
	if (iwarp->terms.plain)
		return iwarp_plain_want(iwarp, runs, max < STREAM_MAX_RUNS ? max : STREAM_MAX_RUNS);
	if (!iwarp_listens(iwarp) || !rx_may_go_on(iwarp))
		return 0;
	size_t due = mpa_stream_due(&iwarp->in, &to);
	if (to != NULL) {
		runs[0] = (struct stream_run){to, due};
		return 1;
	}
	if (max > STREAM_MAX_RUNS)
		max = STREAM_MAX_RUNS;
	return rx_body(iwarp, due, runs, max, &bytes);
}

/* The head has come as far as it was requested. */
static void rx_head(struct iwarp *iwarp)
{
	struct mpa_receiver *in = &iwarp->in;
	size_t bytes = rdmap_head_bytes(in->head, in->head_bytes, in->ulpdu_bytes);
	if (bytes < in->head_bytes)
		bytes = in->head_bytes;
	mpa_stream_need(in, bytes);
	if (bytes == in->head_bytes && !iwarp->segment_known) {
		iwarp->segment_known = true;
		iwarp->ulpdu_bytes = in->ulpdu_bytes;
		iwarp_judge(iwarp);
	}
}

/* The connection hears that the initiator is there. */
static void rx_heard(struct iwarp *iwarp)
{
	if (!iwarp->may_send)
		iwarp_may_send(iwarp);
}

/* A verdict of MPA about the octets that came last. False: the stream is over. */
static bool rx_verdict(struct iwarp *iwarp, enum mpa_stream_verdict verdict)
{
	switch (verdict) {
	case MPA_STREAM_MORE:
		return true;
	case MPA_STREAM_HEAD:
		rx_head(iwarp);
		return true;
	case MPA_STREAM_ULPDU:
		rx_heard(iwarp);
		if (iwarp->in.ulpdu_bytes > 0) /* else only a sign of life (RFC 6581) */
			iwarp_deliver(iwarp);
		iwarp_rx_reset(iwarp);
		iwarp_decide(iwarp);
		return !iwarp->deaf;
	default:
		counter_add(&iwarp->engine->counters[ENGINE_BAD_PACKETS], 1);
		iwarp->segment_known = false; /* nothing of it is to be believed */
		iwarp_refuse(iwarp, rdmap_error_of_stream(verdict), HDL_DETAIL_NONE, false);
		return false;
	}
}

/* Continue @sum over octets that were placed at @at. False: the memory is gone. */
static bool rx_sum(const struct iwarp *iwarp, const uint8_t *at, size_t bytes, uint32_t *sum)
{
	if (!iwarp->in.crc)
		return true;
	if (iwarp->engine->own.crc32c != NULL)
		return iwarp->engine->own.crc32c(at, bytes, sum);
	*sum = crc32c(*sum, at, bytes);
	return true;
}

/* @bytes of the body are in place: where rx_body() said. Returns how many of them it was about. */
static size_t rx_placed(struct iwarp *iwarp, size_t due, size_t bytes)
{
	struct stream_run runs[STREAM_MAX_RUNS];
	size_t some, done = 0;
	uint32_t sum = mpa_stream_sum(&iwarp->in);
	size_t count = rx_body(iwarp, due, runs, STREAM_MAX_RUNS, &some);
	for (size_t i = 0; i < count && done < bytes; i++) {
		size_t part = runs[i].length < bytes - done ? runs[i].length : bytes - done;
		if (!rx_sum(iwarp, runs[i].bytes, part, &sum)) {
			/* Without its bytes the CRC is never known. The header is to be believed,
			 * or nothing would have been placed. */
			iwarp_gone(iwarp);
			if (iwarp->refused != IWARP_REFUSED_NONE)
				iwarp_deliver(iwarp);
			else
				iwarp_refuse(iwarp, RDMAP_ERROR_RDMAP_CATASTROPHIC, HDL_DETAIL_GONE,
				             false);
			return bytes;
		}
		done += part;
	}
	assert(done > 0);
	mpa_stream_took_body(&iwarp->in, done, sum);
	return done;
}

bool iwarp_arrived(void *context, size_t bytes)
{
	struct iwarp *iwarp = context;
	bool open = !iwarp->deaf;
	if (iwarp->terms.plain)
		return iwarp_plain_arrived(iwarp, bytes);
	while (bytes > 0 && open) {
		uint8_t *to;
		size_t due = mpa_stream_due(&iwarp->in, &to), some;
		if (to == NULL) {
			some = rx_placed(iwarp, due, bytes);
			open = !iwarp->deaf;
		} else {
			some = due < bytes ? due : bytes;
			open = rx_verdict(iwarp, mpa_stream_took(&iwarp->in, some));
		}
		bytes -= some;
	}
	rx_set_stall(iwarp);
	return open;
}

/* --- data that was read ahead --- */

/* A whole FPDU is at @fpdu: its CRC is checked before anything of it is placed. False: it has to
 * wait. */
static bool rx_whole(struct iwarp *iwarp, const uint8_t *fpdu, size_t bytes, bool *open)
{
	struct mpa_receiver *in = &iwarp->in;
	struct mpa_ulpdu ulpdu = {mpa_fpdu_ulpdu((uint8_t *)(uintptr_t)fpdu), 0};
	size_t ulpdu_bytes = (size_t)fpdu[0] << 8 | fpdu[1];
	size_t head = rdmap_head_bytes(ulpdu.data, ulpdu_bytes, ulpdu_bytes);
	memcpy(in->head, ulpdu.data, head);
	in->ulpdu_bytes = iwarp->ulpdu_bytes = (uint16_t)ulpdu_bytes;
	if (ulpdu_bytes > 0) {
		iwarp->whole = iwarp->segment_known = true;
		iwarp_judge(iwarp);
		if (!rx_may_go_on(iwarp)) {
			iwarp_rx_reset(iwarp); /* it comes again */
			return false;
		}
	}
	enum mpa_stream_verdict verdict = mpa_stream_take_whole(in, fpdu, bytes, &ulpdu);
	if (verdict == MPA_STREAM_ULPDU && ulpdu.bytes > head && iwarp->place != IWARP_PLACE_WASTE)
		iwarp_place_bytes(iwarp, 0, ulpdu.data + head, (uint32_t)(ulpdu.bytes - head));
	*open = rx_verdict(iwarp, verdict);
	return true;
}

/* Copy up to @bytes of the body from @from. Returns how many; 0: it has to wait. */
static size_t rx_copy(struct iwarp *iwarp, size_t due, const uint8_t *from, size_t bytes)
{
	uint32_t sum = mpa_stream_sum(&iwarp->in);
	size_t some = due < bytes ? due : bytes;
	if (iwarp->in.crc)
		sum = crc32c(sum, from, some);
	if (iwarp->place == IWARP_PLACE_HOLD) {
		if (!rx_hold(iwarp))
			return 0;
		memcpy(iwarp->hold->bytes + iwarp->in.body_bytes, from, some);
	} else if (iwarp->place != IWARP_PLACE_WASTE) {
		iwarp_place_bytes(iwarp, iwarp->in.body_bytes, from, (uint32_t)some);
	}
	mpa_stream_took_body(&iwarp->in, some, sum);
	return some;
}

size_t iwarp_feed(struct iwarp *iwarp, const uint8_t *bytes, size_t length, bool *open)
{
	size_t fed = 0;
	if (iwarp->terms.plain)
		return iwarp_plain_feed(iwarp, bytes, length, open);
	*open = !iwarp->deaf;
	while (fed < length && *open && iwarp_listens(iwarp)) {
		size_t some = mpa_stream_whole(&iwarp->in, bytes + fed, length - fed);
		uint8_t *to;
		if (some > 0) {
			if (!rx_whole(iwarp, bytes + fed, some, open))
				break;
			fed += some;
			continue;
		}
		if (!rx_may_go_on(iwarp))
			break;
		size_t due = mpa_stream_due(&iwarp->in, &to);
		if (to == NULL) {
			some = rx_copy(iwarp, due, bytes + fed, length - fed);
			if (some == 0)
				break;
		} else {
			some = due < length - fed ? due : length - fed;
			memcpy(to, bytes + fed, some);
			*open = rx_verdict(iwarp, mpa_stream_took(&iwarp->in, some));
		}
		fed += some;
	}
	rx_set_stall(iwarp);
	return fed;
}

void iwarp_gone(struct iwarp *iwarp)
{
	uint32_t left = (uint32_t)mpa_stream_body_left(&iwarp->in), at = iwarp->in.body_bytes;
	if (iwarp->terms.plain) {
		iwarp_plain_gone(iwarp);
		return;
	}
	if (!iwarp_listens(iwarp) || !iwarp->segment_known || iwarp->place == IWARP_PLACE_HOLD)
		return;
	/* Nothing of it is there yet: try to write to all of it, to find out which it is. */
	memset(iwarp->waste, 0, sizeof(iwarp->waste));
	while (left > 0 && iwarp->place != IWARP_PLACE_WASTE) {
		uint32_t some = left < sizeof(iwarp->waste) ? left : (uint32_t)sizeof(iwarp->waste);
		iwarp_place_bytes(iwarp, at, iwarp->waste, some);
		at += some;
		left -= some;
	}
}
