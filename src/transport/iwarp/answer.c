/* iWARP: answers to the peer's reads and atomics, in the order of the requests. A read takes an
 * entry of the read resource queue until its last octet has been copied; more requests than was
 * agreed (IRD) end the connection. The memory that is read may change while it is sent, so it is
 * copied, and the CRC is that of the copy. */
#include "transport/iwarp/iwarp.h"
#include "transport/op.h"
#include "transport/respond.h"

/* read_entry.way: what is owed. */
enum { ANSWER_READ, ANSWER_ATOMIC };

static struct read_entry *answer_entry(const struct qp *qp, uint32_t msn)
{
	return &qp->reads.entries[msn & qp->reads.mask];
}

bool iwarp_owes(const struct qp *qp)
{
	const struct iwarp *iwarp = qp->iwarp;
	return iwarp != NULL && iwarp->answered != iwarp->expected_read;
}

/* The request that @entry holds, as it came: a Terminate quotes it. */
static size_t answer_quote(const struct read_entry *entry, uint8_t *out, size_t out_bytes)
{
	const struct rdmap_segment request = {.opcode = RDMAP_READ_REQUEST,
	                                      .msn = entry->msn,
	                                      .u.read = {.sink_stag = entry->tag,
	                                                 .sink_to = entry->result,
	                                                 .bytes = entry->length,
	                                                 .source_stag = entry->key,
	                                                 .source_to = entry->addr}};
	return rdmap_encode(&request, out, out_bytes);
}

struct answer {
	struct iwarp *iwarp;
	const struct read_entry *entry;
	struct sg_result result;
};

static bool answer_fill(void *context, uint32_t offset, uint8_t *to, uint32_t bytes, uint32_t *sum)
{
	struct answer *answer = context;
	struct engine *engine = answer->iwarp->engine;
	const struct read_entry *entry = answer->entry;
	struct hdl_sge part = {.addr = entry->addr + offset, .length = bytes, .key = {entry->key}};
	struct sg from = respond_range(engine, answer->iwarp->qp, &part, HDL_ACCESS_REMOTE_READ);
	answer->result = sg_gather_sum(engine, &from, to, bytes, sum);
	return answer->result.detail == HDL_DETAIL_NONE;
}

/* The memory was granted when the read came, but no longer is. */
static void answer_refused(struct iwarp *iwarp, const struct answer *answer)
{
	uint8_t request[RDMAP_MAX_HEADER_BYTES];
	size_t bytes = answer_quote(answer->entry, request, sizeof(request));
	enum hdl_detail detail = answer->result.detail;
	if (detail == HDL_DETAIL_GONE)
		op_memory_gone(iwarp->engine, answer->result.key);
	iwarp_refuse_segment(iwarp, iwarp_error_of(detail, false), detail, false, request, bytes);
}

/* Send what is left of a read. False: no room, or the connection has failed. */
static bool answer_read(struct iwarp *iwarp, struct read_entry *entry)
{
	struct answer answer = {.iwarp = iwarp, .entry = entry};
	uint32_t left, count;
	do {
		left = entry->length - entry->offset;
		uint32_t wanted = iwarp_part(iwarp, entry->offset, left);
		if (!iwarp_out_room(iwarp, DDP_TAGGED_BYTES, wanted, &count))
			return false;
		const struct rdmap_segment segment = {.opcode = RDMAP_READ_RESPONSE,
		                                      .last = count == left,
		                                      .stag = entry->tag,
		                                      .to = entry->result + entry->offset};
		if (!iwarp_out_put(iwarp, &segment, entry->offset, count, answer_fill, &answer)) {
			answer_refused(iwarp, &answer);
			return false;
		}
		entry->offset += count;
	} while (count < left);
	if (entry->length > 0)
		respond_touch(iwarp->engine, (struct hdl_key){entry->key}, &respond_whole_message);
	return true;
}

static bool answer_atomic(struct iwarp *iwarp, const struct read_entry *entry)
{
	const struct rdmap_segment segment = {
	        .opcode = RDMAP_ATOMIC_RESPONSE,
	        .msn = iwarp->result_msn,
	        .u.atomic_response = {.id = entry->tag, .original = entry->result}};
	uint32_t none;
	if (!iwarp_out_room(iwarp, DDP_UNTAGGED_BYTES + RDMAP_ATOMIC_RESPONSE_BYTES, 0, &none))
		return false;
	iwarp_out_put(iwarp, &segment, 0, 0, NULL, NULL);
	iwarp->result_msn++;
	return true;
}

enum settled iwarp_answer(struct engine *engine, struct qp *qp)
{
	struct iwarp *iwarp = qp->iwarp;
	bool done = true;
	(void)engine;
	qp->close_due = false; /* the Terminate is on its way */
	if (iwarp == NULL || iwarp->ending != IWARP_GOES_ON)
		return SETTLED;
	uint64_t before = iwarp->sender.position;
	while (done && iwarp->answered != iwarp->expected_read) {
		struct read_entry *entry = answer_entry(qp, iwarp->answered);
		done = entry->way == ANSWER_READ ? answer_read(iwarp, entry)
		                                 : answer_atomic(iwarp, entry);
		if (done) {
			read_queue_finish(&qp->reads, entry, entry->result);
			iwarp->answered++;
		}
	}
	if (iwarp->sender.position != before)
		iwarp_wake(iwarp);
	return done ? SETTLED : DEFERRED; /* iwarp_taken() makes room */
}

/* --- requests --- */

bool iwarp_reserve(struct iwarp *iwarp)
{
	struct read_entry *entry;
	return read_queue_put(&iwarp->qp->reads, iwarp->segment.msn, &entry) == READ_ACCEPTED;
}

/* The entry of the request whose turn it is; NULL: refused. */
static struct read_entry *answer_open(struct iwarp *iwarp, uint32_t right)
{
	struct qp *qp = iwarp->qp;
	if ((qp->attr.access & right) == 0) {
		iwarp_refuse(iwarp, RDMAP_ERROR_RDMAP_ACCESS, HDL_DETAIL_NONE, false);
		return NULL;
	}
	/* On messages it has been reserved when the request came. */
	if (iwarp->window == NULL && !iwarp_reserve(iwarp)) {
		/* RFC 5040 section 7: more requests than IRD find no buffer on queue 1. */
		iwarp_refuse(iwarp, RDMAP_ERROR_DDP_NO_BUFFER, respond_no_room(qp), false);
		return NULL;
	}
	return answer_entry(qp, iwarp->segment.msn);
}

static void answer_owe(struct iwarp *iwarp)
{
	iwarp->expected_read++;
	engine_owe(iwarp->engine, iwarp->qp);
	iwarp_wake(iwarp);
}

static void asked_read(struct iwarp *iwarp)
{
	const struct rdmap_read_request *r = &iwarp->segment.u.read;
	struct hdl_sge whole = {.addr = r->source_to, .length = r->bytes, .key = {r->source_stag}};
	struct sg range;
	struct read_entry *entry = answer_open(iwarp, HDL_ACCESS_REMOTE_READ);
	if (entry == NULL)
		return;
	enum hdl_detail detail = r->bytes == 0 ? HDL_DETAIL_NONE
	                                       : respond_check(iwarp->engine, iwarp->qp, &whole,
	                                                       HDL_ACCESS_REMOTE_READ,
	                                                       &respond_whole_message, &range);
	if (detail != HDL_DETAIL_NONE) {
		iwarp_refuse(iwarp, iwarp_error_of(detail, false), detail, false);
		return;
	}
	entry->way = ANSWER_READ;
	entry->tag = r->sink_stag;
	entry->result = r->sink_to;
	entry->addr = r->source_to;
	entry->key = r->source_stag;
	entry->length = r->bytes;
	answer_owe(iwarp);
}

/* The sum of fields that end, at their highest bits, where @mask has a one: no carry leaves a field
 * (RFC 7306 section 5.2). */
static uint64_t add_fields(uint64_t a, uint64_t b, uint64_t mask)
{
	uint64_t low = (a & ~mask) + (b & ~mask);
	return low ^ ((a ^ b) & mask);
}

/* What the atomic @r makes of @old. */
static uint64_t atomic_new(const struct rdmap_atomic_request *r, uint64_t old)
{
	uint64_t swapped = (old & ~r->mask) | (r->data & r->mask);
	switch (r->operation) {
	case RDMAP_FETCH_ADD:
		return add_fields(old, r->data, r->mask);
	case RDMAP_SWAP:
		return swapped;
	default:
		return ((old ^ r->compare) & r->compare_mask) == 0 ? swapped : old;
	}
}

/* Execute @r on @target: in one go where the memory can, else again until nobody came between. */
static enum hdl_detail atomic_run(struct engine *engine, const struct rdmap_atomic_request *r,
                                  const struct sg *target, uint64_t *old)
{
	const struct copy_ops *copy = &engine->own.ops;
	struct sg at = *target;
	if (r->operation == RDMAP_FETCH_ADD && (r->mask & (UINT64_MAX >> 1)) == 0)
		return op_atomic(copy, MOVE_BOTH_OWN, &at, true, r->data, 0, old);
	if (r->operation == RDMAP_COMPARE_SWAP && r->mask == UINT64_MAX &&
	    r->compare_mask == UINT64_MAX)
		return op_atomic(copy, MOVE_BOTH_OWN, &at, false, r->compare, r->data, old);
	uint64_t seen = 0;
	enum hdl_detail detail = op_atomic(copy, MOVE_BOTH_OWN, &at, true, 0, 0, &seen);
	for (unsigned i = 0; detail == HDL_DETAIL_NONE && i < IWARP_ATOMIC_TRIES; i++) {
		at = *target;
		*old = seen;
		detail = op_atomic(copy, MOVE_BOTH_OWN, &at, false, seen, atomic_new(r, seen),
		                   &seen);
		if (detail != HDL_DETAIL_NONE || seen == *old)
			return detail;
	}
	return detail != HDL_DETAIL_NONE ? detail : HDL_DETAIL_LIMIT;
}

static void asked_atomic(struct iwarp *iwarp)
{
	const struct rdmap_atomic_request *r = &iwarp->segment.u.atomic;
	struct engine *engine = iwarp->engine;
	struct hdl_sge range = {.addr = r->to, .length = 8, .key = {r->stag}};
	struct sg target;
	uint64_t old = 0;
	/* Reads before it see the memory as it was, unless there is no room for their answers: to
	 * wait for room while the peer waits for us would be for ever. */
	if (iwarp_owes(iwarp->qp))
		iwarp_answer(engine, iwarp->qp);
	if (iwarp->deaf)
		return;
	struct read_entry *entry = answer_open(iwarp, HDL_ACCESS_REMOTE_ATOMIC);
	if (entry == NULL)
		return;
	enum hdl_detail detail = respond_check(engine, iwarp->qp, &range, HDL_ACCESS_REMOTE_ATOMIC,
	                                       &respond_whole_message, &target);
	if (detail == HDL_DETAIL_NONE)
		detail = atomic_run(engine, r, &target, &old);
	if (detail != HDL_DETAIL_NONE) {
		if (detail == HDL_DETAIL_GONE)
			op_memory_gone(engine, range.key);
		iwarp_refuse(iwarp, iwarp_error_of(detail, false), detail, false);
		return;
	}
	respond_touch(engine, range.key, &respond_whole_message);
	counter_add(&engine->counters[ENGINE_ATOMICS], 1);
	entry->way = ANSWER_ATOMIC;
	entry->tag = r->id;
	entry->result = old;
	answer_owe(iwarp);
}

void iwarp_asked(struct iwarp *iwarp)
{
	iwarp->write_bytes = 0;
	if (iwarp->segment.opcode == RDMAP_READ_REQUEST)
		asked_read(iwarp);
	else
		asked_atomic(iwarp);
}
