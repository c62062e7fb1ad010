/* iWARP: what is to be sent. FPDUs are built whole, with their CRC, in chunks of memory, and the
 * stream takes them from there. In the same way messages, each behind its length in two octets. The
 * chunks are shared by all connections, so that an idle one has none. Peers that do not read may
 * hold all of them; then a connection builds short FPDUs in its own small chunk, so that it goes
 * on, if slowly.
 *
 * The payload of long FPDUs of requests stays where it is: the program may not touch it until the
 * request is over. The chunk has the octets around it, and loans that say what belongs between
 * them.
 *
 *   chunk   | header | trailer | header | trailer |     ...     | loan 1 | loan 0 |
 *                    ^ loan 0           ^ loan 1
 *
 * Answers to reads are copied: their memory may change at any time. */
#include <assert.h>
#include <string.h>

#include "base/crc.h"
#include "transport/iwarp/iwarp.h"
#include "wire/be.h"

#define FPDU_OVERHEAD (MPA_LENGTH_BYTES + 3u + MPA_CRC_BYTES) /* with the longest pad */
#define SMALL_PIECE   256u /* shorter payloads are not worth an FPDU of a longer message */
#define LOAN_ALIGN    _Alignof(struct iwarp_loan)

void iwarp_pool_init(struct iwarp_pool *pool, struct iwarp_chunk *chunks, size_t count,
                     uint8_t *memory)
{
	*pool = (struct iwarp_pool){.count = count};
	for (size_t i = count; i-- > 0;) {
		chunks[i] = (struct iwarp_chunk){.next = pool->free,
		                                 .bytes = memory + i * IWARP_CHUNK_BYTES,
		                                 .capacity = IWARP_CHUNK_BYTES};
		pool->free = &chunks[i];
	}
}

static void chunk_clear(struct iwarp_chunk *chunk)
{
	chunk->next = NULL;
	chunk->begin = chunk->end = 0;
	chunk->loans = chunk->repaid = chunk->part = 0;
}

/* Loan @i of @chunk. */
static struct iwarp_loan *loan_of(const struct iwarp_chunk *chunk, uint32_t i)
{
	uintptr_t end = (uintptr_t)(chunk->bytes + chunk->capacity) & ~(uintptr_t)(LOAN_ALIGN - 1);
	return (struct iwarp_loan *)end - (i + 1);
}

/* Octets that fit into what is left of @chunk, beside @more loans. */
static uint32_t chunk_room(const struct iwarp_chunk *chunk, size_t more)
{
	size_t loans = chunk->loans + more;
	size_t used =
	        chunk->end + (loans > 0 ? loans * sizeof(struct iwarp_loan) + LOAN_ALIGN - 1 : 0);
	return used < chunk->capacity ? (uint32_t)(chunk->capacity - used) : 0;
}

/* The next run of @chunk; its length 0: none. */
static struct stream_run chunk_next(const struct iwarp_chunk *chunk, uint32_t begin,
                                    uint32_t repaid, uint32_t part)
{
	uint32_t end = chunk->end;
	if (repaid < chunk->loans) {
		const struct iwarp_loan *loan = loan_of(chunk, repaid);
		if (begin == loan->at)
			return (struct stream_run){(uint8_t *)(uintptr_t)loan->run.addr + part,
			                           (size_t)loan->run.length - part};
		end = loan->at;
	}
	return (struct stream_run){chunk->bytes + begin, end - begin};
}

/* Take up to @bytes off the beginning of @chunk. Returns how many; 0: it is empty. */
static size_t chunk_taken(struct iwarp *iwarp, struct iwarp_chunk *chunk, size_t bytes)
{
	struct stream_run run = chunk_next(chunk, chunk->begin, chunk->repaid, chunk->part);
	uint32_t some = (uint32_t)(run.length < bytes ? run.length : bytes);
	if (chunk->repaid == chunk->loans || chunk->begin < loan_of(chunk, chunk->repaid)->at) {
		chunk->begin += some;
		return some;
	}
	iwarp->lent -= some;
	chunk->part += some;
	if (some == run.length) {
		chunk->repaid++;
		chunk->part = 0;
	}
	return some;
}

static bool chunk_is_empty(const struct iwarp_chunk *chunk)
{
	return chunk->begin == chunk->end && chunk->repaid == chunk->loans;
}

struct iwarp_chunk *iwarp_chunk_take(struct iwarp *iwarp)
{
	struct iwarp_pool *pool = iwarp->engine->iwarp_pool;
	struct iwarp_chunk *chunk = pool != NULL ? pool->free : NULL;
	if (chunk == NULL)
		return NULL;
	pool->free = chunk->next;
	chunk_clear(chunk);
	return chunk;
}

/* The last one that was used is the next: it is in the cache. */
void iwarp_chunk_give(struct iwarp *iwarp, struct iwarp_chunk *chunk)
{
	struct iwarp_pool *pool = iwarp->engine->iwarp_pool;
	chunk->next = pool->free;
	pool->free = chunk;
	struct iwarp *waiting = pool->waiting;
	pool->waiting = NULL;
	while (waiting != NULL) {
		struct iwarp *next = waiting->hold_next;
		waiting->hold_waits = false;
		iwarp_wake(waiting);
		waiting = next;
	}
}

static void out_append(struct iwarp *iwarp, struct iwarp_chunk *chunk)
{
	chunk_clear(chunk);
	if (iwarp->out == NULL)
		iwarp->out = chunk;
	else
		iwarp->out_end->next = chunk;
	iwarp->out_end = chunk;
}

/* The first chunk has been sent, or is dropped. */
static void out_release(struct iwarp *iwarp)
{
	struct iwarp_chunk *chunk = iwarp->out;
	iwarp->out = chunk->next;
	while (chunk_taken(iwarp, chunk, UINT32_MAX) > 0)
		;
	if (chunk == &iwarp->own_chunk) {
		iwarp->own_used = false;
	} else if (chunk != &iwarp->last_chunk) {
		iwarp->out_chunks--;
		iwarp->engine->iwarp_pool->sending--;
		iwarp_chunk_give(iwarp, chunk);
	}
}

/* Octets of ULPDU that fit into what is left of @chunk, wherever the markers fall. */
static uint32_t ulpdu_room(const struct iwarp *iwarp, const struct iwarp_chunk *chunk)
{
	uint32_t room = chunk_room(chunk, 0);
	uint32_t overhead = iwarp->window != NULL ? IWARP_MESSAGE_PREFIX
	                    : iwarp->terms.plain  ? 0
	                                          : FPDU_OVERHEAD;
	if (iwarp->sender.markers)
		overhead += MPA_MARKER_BYTES * (room / MPA_MARKER_INTERVAL + 2);
	return room > overhead ? room - overhead : 0;
}

/* May FPDUs be added to the last chunk? */
static struct iwarp_chunk *out_open(const struct iwarp *iwarp)
{
	return iwarp->out != NULL && iwarp->out_end != &iwarp->last_chunk ? iwarp->out_end : NULL;
}

static bool own_is_free(const struct iwarp *iwarp)
{
	return !iwarp->own_used;
}

static void out_use_own(struct iwarp *iwarp)
{
	iwarp->own_used = true;
	out_append(iwarp, &iwarp->own_chunk);
}

/* How many chunks connections of the class of @iwarp and those above may fill. */
static size_t out_share(const struct iwarp *iwarp)
{
	size_t all = iwarp->engine->iwarp_pool->count - 1, quarter = all / 4;
	uint8_t service = iwarp->qp != NULL ? iwarp->qp->service : SERVICE_NORMAL;
	return service == SERVICE_URGENT   ? all
	       : service == SERVICE_NORMAL ? all - quarter
	                                   : all - 2 * quarter;
}

/* A shared chunk to fill; NULL: none, now. */
static struct iwarp_chunk *out_take(struct iwarp *iwarp)
{
	struct iwarp_pool *pool = iwarp->engine->iwarp_pool;
	if (iwarp->out_chunks == IWARP_OUT_CHUNKS || pool->sending >= out_share(iwarp))
		return NULL;
	struct iwarp_chunk *chunk = iwarp_chunk_take(iwarp);
	if (chunk != NULL) {
		iwarp->out_chunks++;
		pool->sending++;
	}
	return chunk;
}

bool iwarp_out_room(struct iwarp *iwarp, size_t header_bytes, uint32_t wanted, uint32_t *payload)
{
	uint32_t header = (uint32_t)header_bytes, most = iwarp->max_ulpdu - header;
	if (wanted > most)
		wanted = most;
	if (iwarp->sender.markers && wanted > IWARP_MARKED_BYTES)
		wanted = IWARP_MARKED_BYTES;
	*payload = wanted;
	const struct iwarp_chunk *last = out_open(iwarp);
	if (iwarp->last_used || !iwarp_align_room(iwarp))
		return false;
	if (last != NULL && ulpdu_room(iwarp, last) >= header + wanted)
		return true;
	if (iwarp->out == NULL && ulpdu_room(iwarp, &iwarp->own_chunk) >= header + wanted) {
		out_use_own(iwarp);
		return true;
	}
	struct iwarp_chunk *more = out_take(iwarp);
	if (more != NULL) {
		out_append(iwarp, more);
		return true;
	}
	/* A part of it, where there is room for one. */
	if ((last == NULL || ulpdu_room(iwarp, last) < header + SMALL_PIECE) && own_is_free(iwarp))
		out_use_own(iwarp);
	last = out_open(iwarp);
	uint32_t room = last != NULL ? ulpdu_room(iwarp, last) : 0;
	if (room < header + (wanted < SMALL_PIECE ? wanted : SMALL_PIECE))
		return false;
	*payload = wanted < room - header ? wanted : room - header;
	if (*payload < wanted) /* the last segment alone may need a pad */
		*payload -= (MPA_LENGTH_BYTES + header + *payload) & 3;
	return true;
}

static bool put_marked(struct iwarp *iwarp, const uint8_t *header, size_t header_bytes,
                       uint32_t offset, uint32_t bytes, iwarp_fill fill, void *context)
{
	struct iwarp_chunk *chunk = iwarp->out_end;
	uint8_t payload[IWARP_MARKED_BYTES];
	uint32_t sum = 0;
	assert(bytes <= sizeof(payload));
	if (bytes > 0 && !fill(context, offset, payload, bytes, &sum))
		return false;
	struct mpa_piece pieces[] = {{header, header_bytes}, {payload, bytes}};
	size_t length = mpa_fpdu_encode(&iwarp->sender, pieces, 2, chunk->bytes + chunk->end,
	                                chunk_room(chunk, 0));
	assert(length > 0); /* pairs with ulpdu_room() */
	chunk->end += (uint32_t)length;
	return true;
}

static bool put_message(struct iwarp *iwarp, const uint8_t *header, size_t header_bytes,
                        uint32_t offset, uint32_t bytes, iwarp_fill fill, void *context)
{
	struct iwarp_chunk *chunk = iwarp->out_end;
	uint8_t *record = chunk->bytes + chunk->end, *ulpdu = record + IWARP_MESSAGE_PREFIX;
	size_t length = DDP_SCTP_SSN_BYTES + header_bytes + bytes;
	uint32_t sum = 0;
	assert(header_bytes <= RDMAP_MAX_HEADER_BYTES);
	assert(ulpdu_room(iwarp, chunk) >= header_bytes + bytes); /* pairs with iwarp_out_room() */
	memcpy(ulpdu, header, header_bytes);
	if (bytes > 0 && !fill(context, offset, ulpdu + header_bytes, bytes, &sum))
		return false;
	be16_store(record, (uint16_t)length);
	be16_store(record + 2, (uint16_t)iwarp->window->next_out++);
	chunk->end += (uint32_t)(2 + length);
	iwarp->sender.position += 2 + length;
	return true;
}

bool iwarp_out_put(struct iwarp *iwarp, const struct rdmap_segment *segment, uint32_t offset,
                   uint32_t bytes, iwarp_fill fill, void *context)
{
	struct iwarp_chunk *chunk = iwarp->out_end;
	uint8_t header[RDMAP_MAX_HEADER_BYTES];
	size_t header_bytes = rdmap_encode(segment, header, sizeof(header));
	assert(header_bytes > 0);
	iwarp_align_put(iwarp, header_bytes + bytes);
	if (iwarp->window != NULL)
		return put_message(iwarp, header, header_bytes, offset, bytes, fill, context);
	if (iwarp->sender.markers)
		return put_marked(iwarp, header, header_bytes, offset, bytes, fill, context);
	uint8_t *fpdu = chunk->bytes + chunk->end, *ulpdu = mpa_fpdu_ulpdu(fpdu);
	assert(ulpdu_room(iwarp, chunk) >= header_bytes + bytes); /* pairs with iwarp_out_room() */
	uint32_t sum = mpa_fpdu_open(&iwarp->sender, fpdu, header_bytes + bytes);
	memcpy(ulpdu, header, header_bytes);
	if (iwarp->sender.crc)
		sum = crc32c(sum, ulpdu, header_bytes);
	if (bytes > 0 && !fill(context, offset, ulpdu + header_bytes, bytes, &sum))
		return false;
	chunk->end += (uint32_t)mpa_fpdu_seal(&iwarp->sender, fpdu, header_bytes + bytes, sum);
	return true;
}

bool iwarp_out_plain(struct iwarp *iwarp, uint32_t offset, uint32_t bytes, iwarp_fill fill,
                     void *context)
{
	struct iwarp_chunk *chunk = iwarp->out_end;
	uint32_t sum = 0;
	assert(bytes <= chunk_room(chunk, 0)); /* pairs with iwarp_out_room() */
	if (!fill(context, offset, chunk->bytes + chunk->end, bytes, &sum))
		return false;
	chunk->end += bytes;
	iwarp->sender.position += bytes;
	return true;
}

bool iwarp_out_empty(struct iwarp *iwarp)
{
	uint32_t none;
	if (!iwarp_out_room(iwarp, 0, 0, &none))
		return false;
	struct iwarp_chunk *chunk = iwarp->out_end;
	chunk->end += (uint32_t)mpa_fpdu_encode(&iwarp->sender, NULL, 0, chunk->bytes + chunk->end,
	                                        chunk_room(chunk, 0));
	return true;
}

void iwarp_out_last(struct iwarp *iwarp, const struct rdmap_terminate *terminate)
{
	const struct rdmap_segment segment = {
	        .opcode = RDMAP_TERMINATE, .msn = 1, .u.terminate = *terminate};
	assert(!iwarp->last_used);
	iwarp->last_used = true;
	out_append(iwarp, &iwarp->last_chunk);
	iwarp_out_put(iwarp, &segment, 0, 0, NULL, NULL);
}

void iwarp_out_drop(struct iwarp *iwarp)
{
	iwarp->cut_begin = iwarp->cut_end;
	while (iwarp->out != NULL)
		out_release(iwarp);
}

size_t iwarp_message_offer(const struct iwarp *iwarp, const uint8_t **message)
{
	const struct iwarp_chunk *chunk = iwarp->out;
	while (chunk != NULL && chunk->end == chunk->begin)
		chunk = chunk->next;
	if (chunk == NULL)
		return 0;
	*message = chunk->bytes + chunk->begin + 2;
	return be16_load(chunk->bytes + chunk->begin);
}

void iwarp_message_taken(struct iwarp *iwarp)
{
	const uint8_t *message;
	iwarp_taken(iwarp, 2 + iwarp_message_offer(iwarp, &message));
}

uint16_t iwarp_message_ssn(const struct iwarp *iwarp)
{
	return (uint16_t)iwarp->window->next_out;
}

size_t iwarp_offer(void *context, struct stream_run *runs, size_t max)
{
	struct iwarp *iwarp = context;
	size_t count = 0;
	if (!iwarp->may_send)
		return 0;
	for (const struct iwarp_chunk *at = iwarp->out; at != NULL; at = at->next) {
		uint32_t begin = at->begin, repaid = at->repaid, part = at->part;
		while (count < max && (begin < at->end || repaid < at->loans)) {
			struct stream_run run = chunk_next(at, begin, repaid, part);
			bool lent = repaid < at->loans && begin == loan_of(at, repaid)->at;
			repaid += lent;
			part = 0;
			begin += lent ? 0 : (uint32_t)run.length;
			runs[count++] = run;
		}
	}
	return iwarp_align_offer(iwarp, runs, count);
}

void iwarp_taken(void *context, size_t bytes)
{
	struct iwarp *iwarp = context;
	iwarp->taken += bytes;
	iwarp_align_taken(iwarp);
	while (iwarp->out != NULL) {
		size_t some = bytes > 0 ? chunk_taken(iwarp, iwarp->out, bytes) : 0;
		bytes -= some;
		if (chunk_is_empty(iwarp->out))
			out_release(iwarp);
		else if (some == 0)
			break;
	}
	assert(bytes == 0);
	struct qp *qp = iwarp->qp;
	if (qp == NULL)
		return;
	iwarp_sent(iwarp);
	/* There is room again. */
	if (qp->next != wq_tail(&qp->sq))
		engine_activate(iwarp->engine, qp);
	if (iwarp_owes(qp))
		engine_owe(iwarp->engine, qp);
	iwarp_decide(iwarp);
}

/* --- memory of requests --- */

uint32_t iwarp_part(const struct iwarp *iwarp, uint32_t offset, uint32_t left)
{
	bool begins = offset == 0 && left >= IWARP_LONG_BYTES;
	return begins && iwarp->max_ulpdu >= IWARP_LONG_BYTES && iwarp_out_lends(iwarp)
	               ? IWARP_FIRST_BYTES
	               : left;
}

bool iwarp_out_lends(const struct iwarp *iwarp)
{
	return iwarp->window == NULL && !iwarp->sender.markers && !iwarp->terms.aligned;
}

bool iwarp_out_lend_room(struct iwarp *iwarp, size_t header_bytes, size_t runs)
{
	size_t need = header_bytes + FPDU_OVERHEAD;
	const struct iwarp_chunk *last = out_open(iwarp);
	if (iwarp->last_used || iwarp->lent >= IWARP_LENT_MOST)
		return false;
	if (last != NULL && chunk_room(last, runs) >= need)
		return true;
	struct iwarp_chunk *more = iwarp->out != NULL ? out_take(iwarp) : NULL;
	if (more != NULL)
		out_append(iwarp, more);
	else if (own_is_free(iwarp))
		out_use_own(iwarp);
	else
		return false;
	return true;
}

bool iwarp_out_sum(const struct iwarp *iwarp, const struct span *run, uint32_t *sum)
{
	const uint8_t *bytes = (const uint8_t *)(uintptr_t)run->addr;
	if (iwarp->engine->own.crc32c != NULL)
		return iwarp->engine->own.crc32c(bytes, (size_t)run->length, sum);
	*sum = crc32c(*sum, bytes, (size_t)run->length);
	return true;
}

bool iwarp_out_lend(struct iwarp *iwarp, const struct rdmap_segment *segment,
                    const struct span *runs, size_t count, uint32_t index)
{
	struct iwarp_chunk *chunk = iwarp->out_end;
	uint8_t *fpdu = chunk->bytes + chunk->end, *ulpdu = mpa_fpdu_ulpdu(fpdu);
	size_t header_bytes =
	        rdmap_encode(segment, ulpdu, chunk_room(chunk, count) - MPA_LENGTH_BYTES);
	size_t bytes = 0;
	assert(header_bytes > 0 && iwarp_out_lends(iwarp));
	for (size_t i = 0; i < count; i++)
		bytes += (size_t)runs[i].length;
	uint32_t sum = mpa_fpdu_open(&iwarp->sender, fpdu, header_bytes + bytes);
	if (iwarp->sender.crc) {
		sum = crc32c(sum, ulpdu, header_bytes);
		for (size_t i = 0; i < count; i++)
			if (!iwarp_out_sum(iwarp, &runs[i], &sum))
				return false;
	}
	uint8_t *tail = ulpdu + header_bytes;
	uint32_t from = chunk->end, at = (uint32_t)(tail - chunk->bytes);
	chunk->end =
	        at + (uint32_t)mpa_fpdu_seal_at(&iwarp->sender, tail, header_bytes + bytes, sum);
	for (size_t i = 0; i < count; i++)
		*loan_of(chunk, chunk->loans++) = (struct iwarp_loan){.run = runs[i],
		                                                      .at = at,
		                                                      .fpdu_from = from,
		                                                      .fpdu_end = chunk->end,
		                                                      .index = index};
	iwarp->lent += (uint32_t)bytes;
	assert((uintptr_t)(chunk->bytes + chunk->end) <=
	       (uintptr_t)loan_of(chunk, chunk->loans - 1)); /* pairs with iwarp_out_lend_room() */
	return true;
}

/* Drop what is behind @chunk. */
static void out_cut_behind(struct iwarp *iwarp, struct iwarp_chunk *chunk)
{
	struct iwarp_chunk *first = iwarp->out;
	iwarp->out = chunk->next;
	iwarp_out_drop(iwarp);
	chunk->next = NULL;
	iwarp->out = first;
	iwarp->out_end = chunk;
}

/* The rest of the FPDU that @chunk, the first one, begins with, as a copy in a chunk of its own.
 * False: there is no chunk, or the memory is gone. */
static bool out_copy_begun(struct iwarp *iwarp, struct iwarp_chunk *chunk)
{
	uint32_t fpdu_end = loan_of(chunk, chunk->repaid)->fpdu_end, bytes = 0;
	const struct copy_ops *copy = &iwarp->engine->own.ops;
	struct iwarp_chunk *spare = out_take(iwarp);
	if (spare == NULL)
		return false;
	bool good = true;
	while (good && chunk->begin < fpdu_end) {
		struct stream_run run = chunk_next(chunk, chunk->begin, chunk->repaid, chunk->part);
		if (run.bytes == chunk->bytes + chunk->begin &&
		    run.length > fpdu_end - chunk->begin)
			run.length = fpdu_end - chunk->begin;
		struct span from = {(uint64_t)(uintptr_t)run.bytes, run.length};
		struct span to = {(uint64_t)(uintptr_t)(spare->bytes + bytes), run.length};
		good = copy->copy(copy->context, MOVE_BOTH_OWN, &to, 1, &from, 1) == MOVE_OK;
		bytes += (uint32_t)run.length;
		chunk_taken(iwarp, chunk, run.length);
	}
	out_release(iwarp);
	out_append(iwarp, spare);
	spare->end = bytes;
	return good;
}

void iwarp_out_recall(struct iwarp *iwarp)
{
	struct iwarp_chunk *chunk = iwarp->out;
	while (chunk != NULL && chunk->repaid == chunk->loans)
		chunk = chunk->next;
	if (chunk == NULL)
		return;
	out_cut_behind(iwarp, chunk);
	if (chunk->begin > loan_of(chunk, chunk->repaid)->fpdu_from) {
		iwarp->cut = !out_copy_begun(iwarp, chunk);
		if (iwarp->cut)
			iwarp_out_drop(iwarp);
		return;
	}
	uint32_t end = loan_of(chunk, chunk->repaid)->fpdu_from;
	for (uint32_t i = chunk->repaid; i < chunk->loans; i++)
		iwarp->lent -= (uint32_t)loan_of(chunk, i)->run.length;
	chunk->loans = chunk->repaid;
	chunk->end = end;
	if (iwarp->out == chunk && chunk_is_empty(chunk))
		out_release(iwarp);
}

bool iwarp_out_gone(const struct iwarp *iwarp, uint32_t *index)
{
	for (const struct iwarp_chunk *at = iwarp->out; at != NULL; at = at->next)
		for (uint32_t i = at->repaid; i < at->loans; i++) {
			const struct iwarp_loan *loan = loan_of(at, i);
			*index = loan->index;
			if (!iwarp_out_sum(iwarp, &loan->run, &(uint32_t){0}))
				return true;
		}
	return false;
}
