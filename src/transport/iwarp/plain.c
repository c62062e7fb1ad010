/* Plain TCP on a queue pair (MEMMGT figure 10: traditional TCP): no MPA, no messages. Sends are
 * bytes out. What arrives fills the oldest receive, which completes with the bytes that have come,
 * as a recv() would return; one with no bytes is the end of the stream. Without a receive, TCP
 * holds the peer back for as long as it takes. */
#include <assert.h>

#include "transport/iwarp/iwarp.h"
#include "transport/op.h"

/* The receive cannot take what comes. */
static void plain_refused(struct iwarp *iwarp, const struct sg_result *result)
{
	op_refuse_part(iwarp->engine, iwarp->qp, result);
	qp_enter(iwarp->engine, iwarp->qp, HDL_QPS_ERR);
}

/* The program has ended the connection and has no receive for what still comes: it is discarded, so
 * that the end of the peer is seen. */
static bool plain_discards(struct iwarp *iwarp)
{
	return iwarp_listens(iwarp) && iwarp->ending == IWARP_FIN &&
	       !op_hold_receive(iwarp->engine, iwarp->qp, 0);
}

/* *to: the oldest receive, of @room bytes. False: there is none, or it was refused. */
static bool plain_receive(struct iwarp *iwarp, struct sg *to, uint32_t *room)
{
	if (!iwarp_listens(iwarp) || !iwarp_await_receive(iwarp, 0))
		return false;
	uint64_t bytes = op_receive_room(iwarp->qp);
	*room = bytes < HDL_MAX_MESSAGE ? (uint32_t)bytes : HDL_MAX_MESSAGE;
	if (*room > 0)
		return op_receive_list(iwarp->engine, iwarp->qp, 0, 0, *room, to) == OP_RECEIVED;
	plain_refused(iwarp, NULL); /* an empty one would look like the end of the stream */
	return false;
}

static void plain_complete(struct iwarp *iwarp, uint32_t bytes)
{
	const struct op_message message = {.length = bytes, .wc_opcode = HDL_WC_RECV};
	enum hdl_detail detail;
	struct hdl_key key;
	counter_add(&iwarp->engine->counters[ENGINE_BYTES_RECEIVED], bytes);
	op_receive(iwarp->engine, iwarp->qp, &message, &detail, &key);
}

size_t iwarp_plain_want(struct iwarp *iwarp, struct stream_run *runs, size_t max)
{
	struct sg to;
	struct span spans[STREAM_MAX_RUNS];
	uint32_t room;
	uint64_t covered;
	struct sg_result result = {.at_target = true};
	if (plain_discards(iwarp)) {
		runs[0] = (struct stream_run){iwarp->waste, sizeof(iwarp->waste)};
		return 1;
	}
	if (!plain_receive(iwarp, &to, &room))
		return 0;
	size_t count = sg_runs(&to, room, spans, max, &covered, &result.detail);
	for (size_t i = 0; i < count; i++)
		runs[i] = (struct stream_run){(uint8_t *)(uintptr_t)spans[i].addr,
		                              (size_t)spans[i].length};
	if (count == 0) {
		result.key = to.pieces[to.index].key;
		plain_refused(iwarp, &result);
	}
	return count;
}

bool iwarp_plain_arrived(struct iwarp *iwarp, size_t bytes)
{
	if (!iwarp->deaf && bytes > 0 && !plain_discards(iwarp))
		plain_complete(iwarp, (uint32_t)bytes);
	return !iwarp->deaf;
}

size_t iwarp_plain_feed(struct iwarp *iwarp, const uint8_t *bytes, size_t length, bool *open)
{
	struct sg to, from;
	struct hdl_sge plain;
	size_t fed = 0;
	uint32_t room;
	*open = !iwarp->deaf;
	if (plain_discards(iwarp))
		return length;
	while (fed < length && plain_receive(iwarp, &to, &room)) {
		uint32_t some = length - fed < room ? (uint32_t)(length - fed) : room;
		from = sg_plain(&plain, bytes + fed, some);
		struct sg_result result =
		        sg_move(&iwarp->engine->own.ops, MOVE_BOTH_OWN, &to, &from, some);
		if (result.detail != HDL_DETAIL_NONE) {
			plain_refused(iwarp, &result);
			break;
		}
		plain_complete(iwarp, some);
		fed += some;
	}
	*open = !iwarp->deaf;
	return fed;
}

void iwarp_plain_gone(struct iwarp *iwarp)
{
	struct sg to;
	uint32_t room;
	if (!plain_receive(iwarp, &to, &room))
		return;
	plain_refused(iwarp, &(struct sg_result){.detail = HDL_DETAIL_GONE,
	                                         .at_target = true,
	                                         .key = to.pieces[0].key});
}

/* Tell the program that nothing comes any more, as soon as it has a receive for it. */
void iwarp_plain_end(struct iwarp *iwarp)
{
	if (!iwarp->end_due || !iwarp_listens(iwarp) || !iwarp_await_receive(iwarp, 0))
		return;
	iwarp->end_due = false;
	plain_complete(iwarp, 0);
}
