/* The byte streams of the 'streams' worlds, and what the lines of messages of the 'messages' worlds
 * (world_messages.c) have in common with them. Each connection gets one, agrees on iWARP with MPA
 * Request and Reply, and runs on it. What one end offers arrives at the other in order and once, as
 * over TCP; but in any pieces, after any time, and only so much is on its way. A stream may stall,
 * break after any byte, lose a bit to damage that TCP did not see, be closed in order, or lose one
 * of its ends.
 *
 *   end --offer(), taken()--> line --want(), arrived() or iwarp_feed()--> other end
 *
 * An end has a turn when its engine wakes the owner of the stream, when bytes come, or when there
 * is room again; otherwise it is left alone. A wake-up that is missing shows as a stream that is
 * stuck. */
#include "world_streams.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define STREAM_LINE       65536u
#define STREAM_PRIVATE    64u
#define STREAM_SETUP_NS   400000000u
#define STREAM_STALL_NS   200000u
#define STREAM_SILENCE_NS 50000u /* after which a responder may send, if it has heard nothing */

bool end_lives(const struct byte_end *end)
{
	return end->host->adapter != NULL && end->phase != END_CLOSED;
}

/* --- turns --- */

static void end_turn(struct sim *sim, void *context, uint64_t arg);
static void line_end(struct byte_end *end, bool broken);
static void end_close(struct byte_end *end);

static void end_schedule(struct byte_end *end, uint64_t delay_ns)
{
	struct world *w = end->stream->world;
	uint64_t arg = (uint64_t)end->stream->index << 1 | (end == &end->stream->ends[1]);
	if (end->scheduled || !end_lives(end))
		return;
	end->scheduled = sim_at_host(w->sim, end->host->index, world_now(w) + delay_ns, end_turn, w,
	                             arg) == 0;
	if (!end->scheduled)
		world_fail(w, "no room for a turn of a stream");
}

void end_soon(struct byte_end *end)
{
	struct world *w = end->stream->world;
	end_schedule(end, world_draw(w, w->pause_ns));
}

static struct byte_end *end_of(struct world *w, uint64_t arg)
{
	struct byte_stream *stream = w->byte_streams;
	while (stream && stream->index != arg >> 1)
		stream = stream->next;
	return &stream->ends[arg & 1];
}

static void end_awaited(struct sim *sim, void *context, uint64_t arg)
{
	struct byte_end *end = end_of(context, arg);
	(void)sim;
	end->awaited_ns = 0;
	end_soon(end);
}

void end_await(struct byte_end *end, uint64_t at_ns)
{
	struct world *w = end->stream->world;
	uint64_t arg = (uint64_t)end->stream->index << 1 | (end == &end->stream->ends[1]);
	if ((end->awaited_ns != 0 && end->awaited_ns <= at_ns) || !end_lives(end))
		return;
	end->awaited_ns = at_ns;
	if (sim_at_host(w->sim, end->host->index, at_ns, end_awaited, w, arg) != 0)
		world_fail(w, "no room for a message that arrives later");
}

/* The engine says that there may be something new. */
static void end_wake(void *context, struct iwarp *iwarp)
{
	(void)iwarp;
	end_soon(context);
}

static const struct stream_ops *end_ops(struct byte_end *end, void **context)
{
	*context = end->phase == END_SETUP ? (void *)&end->setup : (void *)&end->iwarp;
	return end->phase == END_SETUP ? &mpa_setup_stream : &iwarp_stream;
}

/* --- beginning --- */

static uint8_t private_octet(const struct byte_end *end, size_t i)
{
	return (uint8_t)(end->stream->index * 7 + (end == &end->stream->ends[0]) + 3 * i);
}

static void private_fill(const struct byte_end *end, uint8_t *out, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		out[i] = private_octet(end, i);
}

static void private_check(struct byte_end *end)
{
	const struct mpa_connect *peer = &end->setup.peer;
	for (size_t i = 0; i < peer->private_bytes; i++)
		if (peer->private_data[i] != private_octet(other_end(end), i))
			world_fail(end->stream->world, "private data: octet %zu is wrong", i);
}

static void draw_offer(struct byte_end *end, struct mpa_offer *offer)
{
	struct world *w = end->stream->world;
	const struct wqp *peer = other_end(end)->qp;
	uint32_t reads =
	        peer->rd_atomic > end->qp->rd_atomic ? peer->rd_atomic : end->qp->rd_atomic;
	offer->markers = world_chance(w, 300);
	offer->crc = world_has(w, FAULT_DAMAGE) || world_chance(w, 700);
	offer->max_ird = (uint16_t)reads;
	offer->max_ord = (uint16_t)end->qp->rd_atomic;
	/* A read as the first message needs somebody who answers reads. */
	offer->rtr = peer->rd_atomic > 0 && end->qp->rd_atomic > 0 && world_chance(w, 500)
	                     ? MPA_RTR_READ
	                     : MPA_RTR_SEND | MPA_RTR_WRITE;
}

static void begin_setup(struct byte_end *end, bool initiator)
{
	struct world *w = end->stream->world;
	uint64_t deadline = world_now(w) + STREAM_SETUP_NS;
	uint8_t text[STREAM_PRIVATE];
	struct mpa_wish wish = {.session = w->messages};
	if (!initiator) {
		mpa_setup_await(&end->setup, deadline);
		end->setup.session = w->messages;
		return;
	}
	wish.revision = world_chance(w, 300) ? 1 : 2;
	wish.peer_to_peer = wish.revision == 2 && !w->messages && world_chance(w, 600);
	draw_offer(end, &wish.offer);
	wish.offer.rtr = MPA_RTR_ALL; /* the responder chooses */
	uint32_t bytes = world_draw(w, STREAM_PRIVATE + 1);
	private_fill(end, text, bytes);
	if (!mpa_setup_request(&end->setup, &wish, text, bytes, deadline))
		world_fail(w, "an MPA Request with %u bytes of private data is refused", bytes);
}

static void answer_setup(struct byte_end *end)
{
	struct world *w = end->stream->world;
	uint8_t text[STREAM_PRIVATE];
	struct mpa_offer offer;
	uint32_t bytes = world_draw(w, STREAM_PRIVATE + 1);
	private_check(end);
	private_fill(end, text, bytes);
	draw_offer(end, &offer);
	if (!mpa_setup_accept(&end->setup, &offer, text, bytes, world_now(w) + STREAM_SETUP_NS))
		world_fail(w, "an MPA Reply with %u bytes of private data is refused", bytes);
}

/* A responder that has heard nothing may send after a while, once its Reply has arrived. */
static void end_break_silence(struct sim *sim, void *context, uint64_t arg)
{
	struct world *w = context;
	struct byte_end *end = end_of(w, arg);
	if (!end_lives(end) || end->phase != END_RUNS)
		return;
	if (other_end(end)->phase == END_SETUP) {
		sim_at_host(sim, end->host->index, world_now(w) + STREAM_SILENCE_NS,
		            end_break_silence, w, arg);
		return;
	}
	adapter_lock(end->host->adapter);
	iwarp_may_send(&end->iwarp);
	adapter_unlock(end->host->adapter);
}

/* Both ends have agreed, as this one knows. */
static void begin_running(struct byte_end *end)
{
	struct world *w = end->stream->world;
	struct hdl_adapter *adapter = end->host->adapter;
	const struct mpa_agreement *a = &end->setup.agreement;
	struct iwarp_terms terms = {.crc = a->crc,
	                            .markers_out = a->send_markers,
	                            .markers_in = a->receive_markers,
	                            .initiator = end->setup.initiator,
	                            .rtr = a->peer_to_peer ? a->rtr : 0,
	                            .ird = a->ird,
	                            .ord = a->ord};
	static const uint32_t segments[] = {256, 536, 1448, 8948, 65483};
	terms.segment = segments[world_draw(w, sizeof(segments) / sizeof(segments[0]))];
	if (w->messages) {
		terms.window = end->window;
		terms.first_ssn = 1;
	}
	if (end->setup.initiator)
		private_check(end);
	if (!other_end(end)->host->adapter) { /* the queue pair cannot even name it any more */
		line_end(end, true);
		end_close(end);
		return;
	}
	conn_side_ready(w, end->qp);
	if (wqp_state(end->qp) != HDL_QPS_RTS)
		return;
	end->phase = END_RUNS;
	adapter_lock(adapter);
	iwarp_begin(&adapter->engine, &end->qp->qp->qp, &end->iwarp, &terms,
	            &(struct iwarp_owner){end_wake, end});
	adapter_unlock(adapter);
	world_say(w, "stream %u: end %u runs, CRC %u, markers %u out %u in, RTR %u, segment %u",
	          end->stream->index, end == &end->stream->ends[1], terms.crc, terms.markers_out,
	          terms.markers_in, terms.rtr, terms.segment);
	if (!terms.initiator && !w->messages)
		sim_at_host(w->sim, end->host->index, world_now(w) + STREAM_SILENCE_NS,
		            end_break_silence, w,
		            (uint64_t)end->stream->index << 1 | (end == &end->stream->ends[1]));
	end_soon(end);
}

/* --- ending --- */

/* The end is no more. The caller holds the lock of a running one. */
static void end_close(struct byte_end *end)
{
	if (end->phase == END_RUNS)
		iwarp_out_drop(&end->iwarp);
	end->phase = END_CLOSED; /* what it has sent may still be on its way */
}

/* Only @keep of what is on its way is left. */
static void line_keep(struct byte_end *end, size_t keep)
{
	if (end->stream->world->messages)
		messages_cut(end, keep);
	else
		end->line.count = keep;
}

/* What @end has sent ends here, in order or broken: then some of it is lost. */
static void line_end(struct byte_end *end, bool broken)
{
	struct world *w = end->stream->world;
	if (end->line.reset || (end->line.fin && !broken))
		return;
	end->line.fin = true;
	end->line.reset = broken;
	if (broken && end->line.count > 0)
		line_keep(end, world_draw(w, (uint32_t)end->line.count + 1));
	end_soon(other_end(end));
}

static void stream_break(struct byte_stream *stream)
{
	for (int i = 0; i < 2; i++)
		line_end(&stream->ends[i], true);
}

void stream_was_cut(struct byte_end *end)
{
	world_say(end->stream->world, "stream %u breaks after %lu bytes or messages",
	          end->stream->index, (unsigned long)end->line.passed);
	line_keep(end, 0);
	stream_break(end->stream);
}

/* What becomes of the stream by the will of this end. */
static void end_decide(struct byte_end *end)
{
	struct stream_run run;
	void *context;
	if (end->phase == END_SETUP && mpa_setup_over(&end->setup) &&
	    end->setup.state != MPA_SETUP_AGREED) {
		line_end(end, end->setup.state == MPA_SETUP_FAILED);
		end_close(end);
	}
	if (end->phase != END_RUNS || iwarp_ending(&end->iwarp) == IWARP_GOES_ON)
		return;
	const struct stream_ops *ops = end_ops(end, &context);
	if (iwarp_ending(&end->iwarp) == IWARP_ABORT) {
		line_end(end, true);
		end_close(end);
	} else if (ops->offer(context, &run, 1) == 0) {
		line_end(end, false);
		if (end->told || end->iwarp.qp == NULL)
			end_close(end);
	}
}

/* --- moving bytes --- */

static size_t draw_amount(struct world *w, size_t most)
{
	size_t bound = world_chance(w, 300) ? 16 : w->piece_bytes;
	size_t amount = 1 + world_draw(w, bound);
	return amount < most ? amount : most;
}

/* One bit of the last @bytes in the line of @end. */
static void line_damage(struct byte_end *end, size_t bytes)
{
	struct world *w = end->stream->world;
	uint8_t *at = end->line.bytes + end->line.count - bytes;
	end->line.damage = false;
	at[world_draw(w, bytes)] ^= (uint8_t)(1u << world_draw(w, 8));
	w->tally.faults[__builtin_ctz(FAULT_DAMAGE)]++;
	end->stream->conn->damaged[end->stream->epoch] = true;
	world_say(w, "stream %u is damaged", end->stream->index);
}

static size_t end_send(struct byte_end *end)
{
	struct world *w = end->stream->world;
	struct byte_end *other = other_end(end);
	void *context;
	if (end->phase == END_CLOSED || end->line.fin)
		return 0;
	if (w->messages)
		return messages_send(end);
	const struct stream_ops *ops = end_ops(end, &context);
	size_t most = draw_amount(w, w->line_bytes - end->line.count);
	size_t bytes = stream_drain(ops, context, end->line.bytes + end->line.count, most);
	end->line.count += bytes;
	if (bytes > 0 && end->line.damage && end->phase == END_RUNS && end->iwarp.terms.crc)
		line_damage(end, bytes);
	if (!end_lives(other)) /* nobody takes it */
		end->line.count = 0;
	if (bytes > 0)
		end_soon(other);
	return bytes;
}

/* As recvmsg() does it: bytes that find no memory are not consumed. */
static size_t end_read(struct byte_end *end, const uint8_t *bytes, size_t count)
{
	size_t done = 0;
	while (done < count && end->open) {
		struct stream_run runs[STREAM_MAX_RUNS];
		struct iovec to[STREAM_MAX_RUNS];
		struct iovec from = {(void *)(uintptr_t)(bytes + done), count - done};
		size_t number = iwarp_stream.want(&end->iwarp, runs, STREAM_MAX_RUNS), room = 0;
		for (size_t i = 0; i < number; i++) {
			to[i] = (struct iovec){runs[i].bytes, runs[i].length};
			room += runs[i].length;
		}
		if (room == 0)
			break;
		if (from.iov_len > room)
			from.iov_len = room;
		ssize_t written = process_vm_writev(getpid(), &from, 1, to, number, 0);
		if (written > 0) {
			end->open = iwarp_stream.arrived(&end->iwarp, (size_t)written);
			done += (size_t)written;
		} else {
			iwarp_gone(&end->iwarp);
		}
	}
	return done;
}

static size_t end_feed(struct byte_end *end, const uint8_t *bytes, size_t count)
{
	struct world *w = end->stream->world;
	void *context;
	const struct stream_ops *ops = end_ops(end, &context);
	if (end->phase == END_RUNS && world_chance(w, 500))
		return iwarp_feed(&end->iwarp, bytes, count, &end->open);
	if (end->phase == END_RUNS && world_has(w, FAULT_UNMAP))
		return end_read(end, bytes, count);
	return stream_feed(ops, context, bytes, count, &end->open);
}

/* Take some of what comes. */
static size_t end_receive(struct byte_end *end)
{
	struct world *w = end->stream->world;
	struct byte_end *from = other_end(end);
	size_t most = from->line.count, fed;
	if (w->messages)
		return messages_receive(end);
	if (most > from->line.cut_at - from->line.passed)
		most = (size_t)(from->line.cut_at - from->line.passed);
	if (most == 0 || end->told)
		return 0;
	size_t some = draw_amount(w, most);
	fed = end->open && end->phase != END_CLOSED ? end_feed(end, from->line.bytes, some) : some;
	from->line.count -= fed;
	from->line.passed += fed;
	memmove(from->line.bytes, from->line.bytes + fed, from->line.count);
	if (fed > 0)
		end_soon(from);
	if (from->line.passed == from->line.cut_at)
		stream_was_cut(from);
	return fed;
}

static void end_tell(struct byte_end *end)
{
	struct byte_end *from = other_end(end);
	void *context;
	if (end->told || from->line.count > 0 || !from->line.fin || end->phase == END_CLOSED)
		return;
	const struct stream_ops *ops = end_ops(end, &context);
	end->told = true;
	ops->ended(context, from->line.reset ? STREAM_BROKEN : STREAM_CLOSED);
	end_soon(end);
}

/* An agreement is reached in the middle of a turn. */
static void end_setup_step(struct byte_end *end)
{
	if (end->phase != END_SETUP)
		return;
	mpa_setup_expire(&end->setup, world_now(end->stream->world));
	if (end->setup.state == MPA_SETUP_ASKED)
		answer_setup(end);
	if (end->setup.state == MPA_SETUP_AGREED)
		begin_running(end);
}

static void end_turn(struct sim *sim, void *context, uint64_t arg)
{
	struct world *w = context;
	struct byte_end *end = end_of(w, arg);
	(void)sim;
	end->scheduled = false;
	if (!end_lives(end) || w->run->failed)
		return;
	if (world_now(w) < end->stalled_ns) {
		end_schedule(end, end->stalled_ns - world_now(w));
		return;
	}
	adapter_lock(end->host->adapter);
	size_t moved = end_send(end);
	adapter_unlock(end->host->adapter);
	end_setup_step(end);
	adapter_lock(end->host->adapter);
	moved += end_receive(end);
	adapter_unlock(end->host->adapter);
	end_setup_step(end);
	adapter_lock(end->host->adapter);
	end_tell(end);
	end_decide(end);
	adapter_unlock(end->host->adapter);
	sim_note(w->sim, end->host->index, 0x20000 + arg, moved);
	w->arrivals += moved > 0;
	if (moved > 0)
		end_soon(end);
}

/* --- what the world does --- */

void streams_draw(struct world *w)
{
	w->faults &= ~(uint32_t)(FAULT_RETRY | FAULT_LATE);
	if (world_chance(w, 250))
		w->faults |= FAULT_CUT;
	if (world_chance(w, w->messages ? 350 : 150))
		w->faults |= FAULT_DAMAGE;
	if (world_chance(w, 200))
		w->faults |= FAULT_CLOSE;
	if (w->messages)
		messages_draw(w);
	w->line_bytes = world_chance(w, 300) ? 1 + world_draw(w, 600) : STREAM_LINE;
	w->piece_bytes = world_chance(w, 300) ? 1 + world_draw(w, 100) : STREAM_LINE;
	if (w->large) {
		w->line_bytes = STREAM_LINE;
		w->piece_bytes = STREAM_LINE;
	}
	w->pause_ns = 1 + world_draw(w, world_chance(w, 500) ? 1000 : 10000);
	world_say(w, "streams: %u bytes on their way, calls of %u, every %lu ns", w->line_bytes,
	          w->piece_bytes, (unsigned long)w->pause_ns);
}

void streams_host_opened(struct world *w, struct host *host)
{
	struct stream_host *own = calloc(1, sizeof(*own));
	if (!own)
		abort();
	own->count = 1 + world_draw(w, STREAM_CHUNKS);
	own->memory = malloc(own->count * IWARP_CHUNK_BYTES);
	if (!own->memory)
		abort();
	iwarp_pool_init(&own->pool, own->chunks, own->count, own->memory);
	host->streams = own;
	host->adapter->engine.iwarp_pool = &own->pool;
}

bool streams_host_closing(struct world *w, struct host *host)
{
	uint32_t count = 0;
	if (!host->streams)
		return true;
	for (struct byte_stream *s = w->byte_streams; s; s = s->next)
		for (int i = 0; i < 2; i++)
			if (s->ends[i].host == host && s->ends[i].phase != END_CLOSED) {
				adapter_lock(host->adapter);
				end_close(&s->ends[i]);
				adapter_unlock(host->adapter);
			}
	for (const struct iwarp_chunk *at = host->streams->pool.free; at; at = at->next)
		count++;
	if (count != host->streams->count)
		world_fail(w, "host %u: %u of %u chunks are missing", host->index,
		           host->streams->count - count, host->streams->count);
	return count == host->streams->count;
}

/* The kernel closes what the process leaves behind; with a reset if it had not read everything. */
void streams_host_died(struct world *w, const struct host *host)
{
	for (struct byte_stream *s = w->byte_streams; s; s = s->next)
		for (int i = 0; i < 2; i++) {
			struct byte_end *end = &s->ends[i];
			if (end->host != host || end->phase == END_CLOSED)
				continue;
			line_end(end, other_end(end)->line.count > 0 || world_chance(w, 500));
			end->phase = END_CLOSED;
			line_keep(other_end(end), 0);
		}
}

void world_streams_connect(struct world *w, struct conn *conn)
{
	struct byte_stream *stream = calloc(1, sizeof(*stream));
	uint32_t initiator = world_draw(w, 2);
	if (!stream)
		abort();
	stream->world = w;
	stream->conn = conn;
	stream->epoch = conn->epoch;
	stream->index = w->byte_stream_count++;
	stream->next = w->byte_streams;
	w->byte_streams = stream;
	conn->bytes = stream;
	for (uint32_t i = 0; i < 2; i++) {
		struct byte_end *end = &stream->ends[i];
		end->stream = stream;
		end->qp = conn->side[i];
		end->host = conn->side[i]->host;
		end->open = true;
		end->line.cut_at = UINT64_MAX;
		if (w->messages)
			messages_begin(end);
		else if (!(end->line.bytes = malloc(w->line_bytes)))
			abort();
	}
	for (uint32_t i = 0; i < 2; i++) {
		begin_setup(&stream->ends[i], i == initiator);
		end_soon(&stream->ends[i]);
	}
	world_say(w, "stream %u: connection %u, epoch %u", stream->index,
	          (unsigned)(conn - w->conns), conn->epoch);
	if (world_has(w, FAULT_CUT) && !w->settling && world_chance(w, 300)) {
		wqp_disturb(conn->side[0], REASON_PEER);
		stream->ends[world_draw(w, 2)].line.cut_at = world_draw(w, w->messages ? 12 : 300);
		w->tally.faults[__builtin_ctz(FAULT_CUT)]++;
	}
}

void streams_left(struct world *w, const struct wqp *qp)
{
	(void)w;
	struct byte_stream *stream = qp->conn ? qp->conn->bytes : NULL;
	if (!stream || stream->ends[qp->side].qp != qp)
		return;
	struct byte_end *end = &stream->ends[qp->side];
	if (end->phase == END_SETUP) {
		line_end(end, true);
		end_close(end);
	} else {
		end_soon(end);
	}
}

void streams_fault(struct world *w, const struct host *host)
{
	struct wqp *qp = wqp_pick(w, host);
	struct byte_stream *stream = qp && qp->conn ? qp->conn->bytes : NULL;
	if (!stream || stream->ends[qp->side].qp != qp)
		return;
	struct byte_end *end = &stream->ends[qp->side];
	uint32_t fault = (uint32_t)FAULT_CUT << world_draw(w, 3);
	if (world_chance(w, 300)) {
		end->stalled_ns = world_now(w) + world_draw(w, STREAM_STALL_NS);
		return;
	}
	if (!world_has(w, fault) || !end_lives(end))
		return;
	wqp_disturb(qp, REASON_PEER);
	if (fault == FAULT_CUT) {
		w->tally.faults[__builtin_ctz(fault)]++;
		if (world_chance(w, 300))
			stream_break(stream);
		else
			end->line.cut_at =
			        end->line.passed + world_draw(w, w->messages ? 40 : 3000);
	} else if (fault == FAULT_DAMAGE) {
		end->line.damage = true;
	} else if (end->phase == END_RUNS) {
		w->tally.faults[__builtin_ctz(fault)]++;
		world_say(w, "stream %u: end %u closes", stream->index, qp->side);
		adapter_lock(host->adapter);
		iwarp_close(&end->iwarp);
		adapter_unlock(host->adapter);
	}
}

/* A length that was damaged, or a line that is about to be cut, may make an end wait for ever. */
void streams_heal(struct world *w)
{
	for (struct byte_stream *s = w->byte_streams; s; s = s->next) {
		bool doomed = s->conn->damaged[s->epoch];
		for (int i = 0; i < 2; i++) {
			doomed = doomed || s->ends[i].line.cut_at != UINT64_MAX;
			s->ends[i].line.damage = false;
			s->ends[i].stalled_ns = 0;
		}
		if (doomed)
			stream_break(s);
	}
}

bool streams_down(const struct conn *conn)
{
	return !conn->bytes || conn->bytes->ends[0].phase == END_CLOSED ||
	       conn->bytes->ends[1].phase == END_CLOSED;
}

static bool end_is_busy(struct byte_end *end)
{
	struct stream_run run;
	void *context;
	if (!end_lives(end))
		return false;
	const struct stream_ops *ops = end_ops(end, &context);
	bool waits = end->phase == END_RUNS && !iwarp_window_between(&end->iwarp);
	return end->phase == END_SETUP || end->line.count > 0 || waits ||
	       (!end->line.fin && ops->offer(context, &run, 1) > 0);
}

bool streams_busy(struct world *w)
{
	for (struct byte_stream *s = w->byte_streams; s; s = s->next) {
		struct byte_end *one = &s->ends[0], *two = &s->ends[1];
		if (s->conn->bytes != s || one->line.fin || two->line.fin || !end_lives(one) ||
		    !end_lives(two))
			continue;
		if (end_is_busy(one) || end_is_busy(two))
			return true;
	}
	return false;
}

void streams_say(struct world *w, const struct conn *conn)
{
	const struct byte_stream *s = conn ? conn->bytes : NULL;
	for (int i = 0; s && i < 2; i++) {
		const struct byte_end *end = &s->ends[i];
		world_say(w,
		          "stream %u, end %d: phase %u, setup %u, open %u, told %u, scheduled %u, "
		          "%zu bytes in its line, %lu passed%s%s",
		          s->index, i, end->phase, end->setup.state, end->open, end->told,
		          end->scheduled, end->line.count, (unsigned long)end->line.passed,
		          end->line.fin ? ", FIN" : "", end->line.reset ? ", RST" : "");
		if (end->phase == END_RUNS)
			world_say(w,
			          "  ending %u, deaf %u, may send %u, place %u, needs receive %u, "
			          "waits for a chunk %u, %u chunks out, closing %u",
			          end->iwarp.ending, end->iwarp.deaf, end->iwarp.may_send,
			          end->iwarp.place, end->iwarp.needs_receive, end->iwarp.hold_waits,
			          end->iwarp.out_chunks, end->iwarp.closing);
	}
}

void streams_free(struct world *w)
{
	while (w->byte_streams) {
		struct byte_stream *stream = w->byte_streams;
		w->byte_streams = stream->next;
		for (int i = 0; i < 2; i++) {
			messages_end(&stream->ends[i]);
			free(stream->ends[i].line.bytes);
		}
		free(stream);
	}
	for (uint32_t i = 0; i < w->host_count; i++) {
		if (w->hosts[i].streams)
			free(w->hosts[i].streams->memory);
		free(w->hosts[i].streams);
	}
}
