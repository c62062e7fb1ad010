/* The lines of the 'messages' worlds: what SCTP makes of a network (RFC 5043). Messages arrive
 * whole and once, but in any order: each takes its own time, and one that is lost arrives when it
 * has been sent again, while others pass it. Only so many are on their way behind one that is
 * missing.
 *
 * A line that is damaged has a peer that breaks the rules: a number comes twice, or is far off.
 *
 *   end --iwarp_message_offer(), taken()--> line --iwarp_message()--> other end
 *
 * A message that the other end cannot take yet stays in the line; so does one that comes before the
 * session of that end is established. */
#include "world_streams.h"

#include <stdlib.h>
#include <string.h>

#include "wire/be.h"

#define LINE_MESSAGES 400u /* on their way, at most */
#define LINE_AHEAD    900u /* numbers from the oldest that is missing on; < IWARP_EARLY */
#define TURN_MESSAGES 24u  /* moved in one turn, at most */

void messages_draw(struct world *w)
{
	static const uint32_t delays[] = {1, 2000, 20000, 100000};
	w->line_messages = world_chance(w, 300) ? 1 + world_draw(w, 8) : LINE_MESSAGES;
	w->message_delay_ns = delays[world_draw(w, 4)];
	w->message_loss =
	        world_chance(w, 400) ? 0 : 1 + world_draw(w, world_chance(w, 300) ? 300 : 60);
	world_say(w, "messages: %u on their way, up to %u ns each, %u of 1000 lost",
	          w->line_messages, w->message_delay_ns, w->message_loss);
}

void messages_begin(struct byte_end *end)
{
	end->line.messages = calloc(LINE_MESSAGES, sizeof(*end->line.messages));
	end->window = malloc(sizeof(*end->window));
	if (!end->line.messages || !end->window)
		abort();
}

static void message_drop(struct byte_end *end, size_t at)
{
	free(end->line.messages[at].bytes);
	end->line.count--;
	memmove(&end->line.messages[at], &end->line.messages[at + 1],
	        (end->line.count - at) * sizeof(*end->line.messages));
}

void messages_cut(struct byte_end *end, size_t keep)
{
	while (end->line.count > keep)
		message_drop(end, world_draw(end->stream->world, (uint32_t)end->line.count));
}

void messages_end(struct byte_end *end)
{
	while (end->line.count > 0 && end->line.messages)
		message_drop(end, end->line.count - 1);
	free(end->line.messages);
	free(end->window);
}

/* --- sending --- */

/* Put a message on the line of @end. It may get lost, and be sent again. */
static void message_put(struct byte_end *end, uint32_t ppid, const uint8_t *bytes, size_t length)
{
	struct world *w = end->stream->world;
	struct line_message *m = &end->line.messages[end->line.count++];
	uint64_t delay = world_draw(w, w->message_delay_ns);
	if (world_chance(w, w->message_loss))
		delay += 10000 + world_draw(w, 300000);
	*m = (struct line_message){.bytes = malloc(length ? length : 1),
	                           .length = length,
	                           .ppid = ppid,
	                           .number = end->line.next++,
	                           .ready_ns = world_now(w) + delay};
	if (!m->bytes)
		abort();
	memcpy(m->bytes, bytes, length);
}

/* A number twice, or one that is far off. */
static void message_damage(struct byte_end *end)
{
	struct world *w = end->stream->world;
	struct line_message *m = &end->line.messages[end->line.count - 1];
	bool twice = end->line.count < w->line_messages && world_chance(w, 500);
	end->line.damage = false;
	if (twice)
		message_put(end, m->ppid, m->bytes, m->length);
	else
		be16_store(m->bytes, (uint16_t)(be16_load(m->bytes) + IWARP_EARLY +
		                                world_draw(w, 0x10000 - 2 * IWARP_EARLY)));
	m = &end->line.messages[end->line.count - 1];
	end->line.wrong = be16_load(m->bytes) + 1u;
	end->line.wrong_due = !twice;
	w->tally.messages[twice ? MESSAGE_TWICE : MESSAGE_FAR_OFF]++;
	w->tally.faults[__builtin_ctz(FAULT_DAMAGE)]++;
	end->stream->conn->damaged[end->stream->epoch] = true;
	world_say(w, "stream %u: a number is wrong", end->stream->index);
}

/* Is there room behind the oldest that is missing? */
static bool line_has_room(const struct byte_end *end)
{
	return end->line.count < end->stream->world->line_messages &&
	       (end->line.count == 0 || end->line.next - end->line.messages[0].number < LINE_AHEAD);
}

/* The next message that @end offers; 0: none. */
static size_t message_offered(struct byte_end *end, const uint8_t **bytes)
{
	struct stream_run run;
	if (end->phase == END_RUNS)
		return iwarp_message_offer(&end->iwarp, bytes);
	if (mpa_setup_stream.offer(&end->setup, &run, 1) == 0)
		return 0;
	*bytes = run.bytes;
	return run.length;
}

size_t messages_send(struct byte_end *end)
{
	struct world *w = end->stream->world;
	size_t most = 1 + world_draw(w, TURN_MESSAGES), sent = 0, length;
	const uint8_t *bytes;
	while (sent < most && line_has_room(end) && (length = message_offered(end, &bytes)) > 0) {
		if (end->phase == END_RUNS) {
			message_put(end, DDP_SCTP_PPID_SEGMENT, bytes, length);
			iwarp_message_taken(&end->iwarp);
			if (end->line.damage)
				message_damage(end);
		} else {
			message_put(end, DDP_SCTP_PPID_CONTROL, bytes, length);
			mpa_setup_stream.taken(&end->setup, length);
		}
		sent++;
	}
	if (!end_lives(other_end(end))) /* nobody takes it */
		messages_cut(end, 0);
	if (sent > 0)
		end_soon(other_end(end));
	return sent;
}

/* --- receiving --- */

/* May @m be passed to @end now? */
static bool message_fits(const struct byte_end *end, const struct line_message *m)
{
	return end->phase != END_SETUP || m->ppid == DDP_SCTP_PPID_CONTROL;
}

/* One of those that may arrive now, any of them; count: none. */
static size_t message_choose(const struct byte_end *end, const struct byte_end *from)
{
	struct world *w = end->stream->world;
	size_t begin = from->line.count > 0 ? world_draw(w, (uint32_t)from->line.count) : 0;
	for (size_t i = 0; i < from->line.count; i++) {
		size_t at = (begin + i) % from->line.count;
		const struct line_message *m = &from->line.messages[at];
		if (message_fits(end, m) && m->ready_ns <= world_now(w))
			return at;
	}
	return from->line.count;
}

/* The end has a turn when the next message arrives. */
static void message_await(struct byte_end *end, const struct byte_end *from)
{
	uint64_t now = world_now(end->stream->world), next = UINT64_MAX;
	for (size_t i = 0; i < from->line.count; i++) {
		const struct line_message *m = &from->line.messages[i];
		if (message_fits(end, m) && m->ready_ns > now && m->ready_ns < next)
			next = m->ready_ns;
	}
	if (next != UINT64_MAX)
		end_await(end, next);
}

/* Is @stag the key of memory that is touched once? */
static bool is_one_touch(const struct world *w, uint32_t stag)
{
	for (uint32_t i = 0; i < w->opening_count; i++)
		if (w->openings[i].key.v == stag &&
		    (w->openings[i].access & HDL_ACCESS_ONE_TOUCH) != 0)
			return true;
	return false;
}

/* Count what comes before its turn. */
static void message_tally(struct byte_end *end, const struct line_message *m)
{
	struct world *w = end->stream->world;
	struct rdmap_segment segment;
	size_t bytes = m->length - DDP_SCTP_SSN_BYTES;
	const uint8_t *ulpdu = m->bytes + DDP_SCTP_SSN_BYTES;
	if (be16_load(m->bytes) == (uint16_t)end->window->expected ||
	    rdmap_parse(ulpdu, bytes, &segment) != RDMAP_OK)
		return;
	switch (segment.opcode) {
	case RDMAP_WRITE:
		w->tally.messages[MESSAGE_EARLY_WRITE]++;
		w->tally.messages[MESSAGE_EARLY_LAST] += segment.last;
		w->tally.messages[MESSAGE_EARLY_TOUCH] +=
		        segment.last && is_one_touch(w, segment.stag);
		break;
	case RDMAP_READ_REQUEST:
		w->tally.messages[MESSAGE_EARLY_REQUEST]++;
		break;
	case RDMAP_READ_RESPONSE:
		w->tally.messages[MESSAGE_EARLY_RESPONSE]++;
		break;
	case RDMAP_ATOMIC_REQUEST:
	case RDMAP_ATOMIC_RESPONSE:
		w->tally.messages[MESSAGE_EARLY_ATOMIC]++;
		break;
	default:
		w->tally.messages[MESSAGE_EARLY_SEND]++;
		break;
	}
}

/* A segment for an end that runs. False: it has to wait. */
static bool segment_pass(struct byte_end *end, const struct line_message *m)
{
	struct byte_end *from = other_end(end);
	bool wrong = from->line.wrong == be16_load(m->bytes) + 1u && !iwarp_is_deaf(&end->iwarp);
	message_tally(end, m);
	if (!iwarp_message(&end->iwarp, m->bytes, m->length, &end->open))
		return false;
	if (wrong && from->line.wrong_due && end->open)
		world_fail(end->stream->world,
		           "stream %u: a segment with the wrong number %u is taken",
		           end->stream->index, be16_load(m->bytes));
	from->line.wrong_due = from->line.wrong_due || wrong;
	return true;
}

/* False: it has to wait. */
static bool message_pass(struct byte_end *end, const struct line_message *m)
{
	if (!end->open || end->phase == END_CLOSED)
		return true;
	if (end->phase == END_RUNS)
		return segment_pass(end, m);
	end->open = mpa_setup_message(&end->setup, m->bytes, m->length);
	return true;
}

/* Pass one message to @end. False: none can be. */
static bool message_take(struct byte_end *end, struct byte_end *from)
{
	size_t at = message_choose(end, from);
	if (at == from->line.count)
		return false;
	/* One that has to wait may wait for the oldest. */
	if (!message_pass(end, &from->line.messages[at])) {
		if (at == 0 || from->line.messages[0].ready_ns > world_now(end->stream->world) ||
		    !message_pass(end, &from->line.messages[0]))
			return false;
		at = 0;
	}
	message_drop(from, at);
	return true;
}

size_t messages_receive(struct byte_end *end)
{
	struct byte_end *from = other_end(end);
	size_t most = 1 + world_draw(end->stream->world, TURN_MESSAGES), moved = 0;
	if (end->phase == END_RUNS)
		end->open = iwarp_message_resume(&end->iwarp);
	while (moved < most && from->line.count > 0 && !end->told && message_take(end, from)) {
		moved++;
		if (++from->line.passed == from->line.cut_at) {
			stream_was_cut(from);
			return moved;
		}
		if (end->phase == END_SETUP) /* what follows is for the queue pair */
			break;
	}
	if (moved > 0)
		end_soon(from);
	/* What comes before the end of a broken one counts if it can be taken: nothing will change
	 * that. */
	if (moved == 0 && from->line.reset && message_choose(end, from) < from->line.count)
		messages_cut(from, 0);
	message_await(end, from);
	return moved;
}
