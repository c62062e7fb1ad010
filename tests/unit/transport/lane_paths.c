/* The fast path does what the general path does. Two rigs get the same requests and the same
 * frames, drawn at random; one of them may take fast paths, the other may not. Whenever both have
 * nothing left to do, they must have completed the same requests in the same way, sent the same
 * messages, acknowledged and refused the same, and hold the same memory. */
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "lane_rig.h"
#include "transport/local/local.h"
#include "transport/op.h"

#define WORLDS       1500u
#define ROUNDS       60u
#define MAX_SENDS    20u
#define LOG_ENTRIES  512u
#define RECV_AT      (LANE_BYTES / 2) /* receives fill the upper half; sends leave the lower */
#define LONG_BYTES   5000u            /* more than a frame carries */
#define MAX_COMPLETE 8

/* What a rig did since both were last compared. */
struct record {
	struct hdl_wc wcs[2][LOG_ENTRIES]; /* of the send queue, of the receive queue */
	uint32_t wc_count[2];
	struct lane_message *messages;
	uint32_t message_count;
	uint32_t acknowledged; /* the last message that an ACK named */
	struct hdl_event events[LOG_ENTRIES];
	uint32_t event_count;
};

struct pair {
	struct lane_rig rig[2]; /* with fast paths, without */
	struct record record[2];
	struct prng prng;
	uint64_t next_id;
	uint64_t seed;
};

static uint32_t below(struct pair *pair, uint32_t bound)
{
	return (uint32_t)prng_below(&pair->prng, bound);
}

static bool chance(struct pair *pair, uint32_t permille)
{
	return prng_chance(&pair->prng, permille);
}

/* --- what comes out --- */

static void note_completions(struct pair *pair, int side, bool receives, int max)
{
	struct record *record = &pair->record[side];
	struct hdl_cq *cq = receives ? pair->rig[side].rcq : pair->rig[side].scq;
	uint32_t *count = &record->wc_count[receives];
	assert_true(*count + (uint32_t)max <= LOG_ENTRIES);
	memset(&record->wcs[receives][*count], 0, (size_t)max * sizeof(struct hdl_wc));
	int got = hdl_cq_poll(cq, &record->wcs[receives][*count], max);
	assert_true(got >= 0);
	*count += (uint32_t)got;
}

static void note_messages(struct pair *pair, int side)
{
	struct record *record = &pair->record[side];
	struct frame_answer answer;
	assert_true(record->message_count < LOG_ENTRIES);
	while (lane_look(&pair->rig[side], &record->messages[record->message_count])) {
		const struct lane_message *m = &record->messages[record->message_count];
		if ((m->frame.flags & FRAME_ACKS) != 0)
			record->acknowledged = m->frame.ack;
		if (m->frame.kind == FRAME_ANSWER) {
			memcpy(&answer, m->body, sizeof(answer));
			record->acknowledged =
			        answer.answer == ANSWER_ACK ? m->frame.msn : m->frame.msn - 1;
			/* How many ACKs there are, and which messages carry them, is not the
			 * same. */
			if (answer.answer == ANSWER_ACK)
				continue;
		}
		record->message_count++;
		assert_true(record->message_count < LOG_ENTRIES);
	}
}

/* Let both finish what they have. */
static void settle(struct pair *pair)
{
	for (int side = 0; side < 2; side++) {
		struct record *record = &pair->record[side];
		lane_run(&pair->rig[side]);
		for (int receives = 0; receives < 2; receives++) {
			uint32_t before;
			do {
				before = record->wc_count[receives];
				note_completions(pair, side, receives, MAX_COMPLETE);
			} while (record->wc_count[receives] != before);
		}
		lane_run(&pair->rig[side]);
		note_messages(pair, side);
		while (record->event_count < LOG_ENTRIES &&
		       hdl_event_get(pair->rig[side].adapter, &record->events[record->event_count],
		                     0) == 0)
			record->event_count++;
	}
}

/* --- comparing --- */

#define SAME(pair, a, b, what)                                                                  \
	do {                                                                                    \
		unsigned long long fast = (unsigned long long)(a),                              \
		                   general = (unsigned long long)(b);                           \
		if (fast != general)                                                            \
			fail_msg("seed %llu: %s is %llu by the fast path, %llu by the general " \
			         "one",                                                         \
			         (unsigned long long)(pair)->seed, what, fast, general);        \
	} while (0)

static void same_completions(struct pair *pair)
{
	for (int which = 0; which < 2; which++) {
		const struct record *f = &pair->record[0], *g = &pair->record[1];
		SAME(pair, f->wc_count[which], g->wc_count[which], "the number of completions");
		for (uint32_t i = 0; i < f->wc_count[which]; i++) {
			const struct hdl_wc *a = &f->wcs[which][i], *b = &g->wcs[which][i];
			SAME(pair, a->wr_id, b->wr_id, "wr_id");
			SAME(pair, a->status, b->status, "status");
			SAME(pair, a->vendor_err, b->vendor_err, "vendor_err");
			SAME(pair, a->opcode, b->opcode, "opcode");
			SAME(pair, a->byte_len, b->byte_len, "byte_len");
			SAME(pair, a->imm, b->imm, "imm");
			SAME(pair, a->src_qpn, b->src_qpn, "src_qpn");
			SAME(pair, a->flags, b->flags, "flags");
		}
	}
}

/* The pieces of what goes by reference lie at other addresses. */
static bool names_memory(const struct frame *frame)
{
	return (frame->flags & FRAME_BY_REFERENCE) != 0 || frame->kind == FRAME_READ ||
	       frame->kind == FRAME_ATOMIC || frame->kind == FRAME_CLOSE;
}

static void same_messages(struct pair *pair)
{
	const struct record *f = &pair->record[0], *g = &pair->record[1];
	SAME(pair, f->message_count, g->message_count, "the number of messages");
	for (uint32_t i = 0; i < f->message_count; i++) {
		const struct lane_message *a = &f->messages[i], *b = &g->messages[i];
		SAME(pair, a->frame.kind, b->frame.kind, "kind");
		SAME(pair, a->frame.flags & ~FRAME_ACKS, b->frame.flags & ~FRAME_ACKS,
		     "the flags of a frame");
		SAME(pair, a->frame.num_sge, b->frame.num_sge, "num_sge");
		SAME(pair, a->frame.to_qpn, hdl_qp_number(pair->rig[0].peer_qp), "to_qpn");
		SAME(pair, b->frame.to_qpn, hdl_qp_number(pair->rig[1].peer_qp), "to_qpn");
		SAME(pair, a->frame.length, b->frame.length, "length");
		SAME(pair, a->frame.offset, b->frame.offset, "offset");
		SAME(pair, a->bytes, b->bytes, "the length of a body");
		if (a->frame.kind == FRAME_CLOSE)
			continue;
		SAME(pair, a->frame.msn, b->frame.msn, "msn");
		SAME(pair, a->frame.imm, b->frame.imm, "imm of a frame");
		/* A write begins with the address that it is for. */
		size_t skip = a->frame.kind == FRAME_WRITE ? sizeof(struct frame_target) : 0;
		if (!names_memory(&a->frame) &&
		    memcmp(a->body + skip, b->body + skip, a->bytes - skip) != 0)
			fail_msg("seed %llu: message %u has other data",
			         (unsigned long long)pair->seed, a->frame.msn);
	}
	SAME(pair, f->acknowledged, g->acknowledged, "the last ACK");
}

static void same_state(struct pair *pair)
{
	static const uint8_t counters[] = {
	        ENGINE_BYTES_SENT, ENGINE_BYTES_RECEIVED, ENGINE_BYTES_WRITTEN, ENGINE_BYTES_READ,
	        ENGINE_ATOMICS,    ENGINE_RNR_SENT,       ENGINE_RETRIES,       ENGINE_TIMEOUTS,
	        ENGINE_REPEATED,   ENGINE_DROPPED,        ENGINE_BAD_FRAMES,    ENGINE_MEMORY_GONE};
	struct engine *ef = &pair->rig[0].adapter->engine, *eg = &pair->rig[1].adapter->engine;
	const struct qp *f = &pair->rig[0].qp->qp, *g = &pair->rig[1].qp->qp;
	for (size_t i = 0; i < LANE_COUNT(counters); i++)
		SAME(pair, counter_read(&ef->counters[counters[i]]),
		     counter_read(&eg->counters[counters[i]]), counter_name(counters[i]));
	SAME(pair, qp_state(f), qp_state(g), "the state");
	SAME(pair, f->next_msn, g->next_msn, "next_msn");
	SAME(pair, f->local.expected_msn, g->local.expected_msn, "expected_msn");
	SAME(pair, f->sent_messages, g->sent_messages, "sent_messages");
	SAME(pair, f->received_messages, g->received_messages, "received_messages");
	SAME(pair, f->unanswered, g->unanswered, "unanswered");
	SAME(pair, f->reads_open, g->reads_open, "reads_open");
	SAME(pair, f->retries_left, g->retries_left, "retries_left");
	SAME(pair, f->rnr_left, g->rnr_left, "rnr_left");
	SAME(pair, f->nak_sent, g->nak_sent, "nak_sent");
	SAME(pair, f->waiting, g->waiting, "waiting");
	SAME(pair, wq_held(&f->sq), wq_held(&g->sq), "the depth of the send queue");
	SAME(pair, wq_held(&f->rq), wq_held(&g->rq), "the depth of the receive queue");
	SAME(pair, atomic_load(&f->pub->executed), atomic_load(&g->pub->executed), "executed");
	if (memcmp(pair->rig[0].mem, pair->rig[1].mem, LANE_BYTES) != 0 ||
	    memcmp(pair->rig[0].peer_mem, pair->rig[1].peer_mem, LANE_BYTES) != 0)
		fail_msg("seed %llu: memory is not the same", (unsigned long long)pair->seed);
}

static void same_events(struct pair *pair)
{
	const struct record *f = &pair->record[0], *g = &pair->record[1];
	SAME(pair, f->event_count, g->event_count, "the number of events");
	for (uint32_t i = 0; i < f->event_count; i++) {
		SAME(pair, f->events[i].type, g->events[i].type, "the type of an event");
		SAME(pair, f->events[i].detail, g->events[i].detail, "the detail of an event");
	}
}

static void compare(struct pair *pair)
{
	settle(pair);
	same_completions(pair);
	same_messages(pair);
	same_events(pair);
	same_state(pair);
	for (int side = 0; side < 2; side++) {
		struct record *record = &pair->record[side];
		record->wc_count[0] = record->wc_count[1] = 0;
		record->message_count = record->event_count = 0;
	}
}

/* --- what goes in, to both --- */

static uint32_t draw_length(struct pair *pair)
{
	static const uint32_t most[] = {1, 16, 64, 128, 300, FRAME_MAX_DATA, LONG_BYTES};
	uint32_t bound = most[below(pair, LANE_COUNT(most))];
	return chance(pair, 200) ? bound : below(pair, bound + 1);
}

static uint32_t draw_opcode(struct pair *pair)
{
	static const uint8_t opcodes[] = {HDL_OP_SEND,      HDL_OP_SEND,     HDL_OP_SEND_IMM,
	                                  HDL_OP_WRITE,     HDL_OP_READ,     HDL_OP_WRITE_IMM,
	                                  HDL_OP_FETCH_ADD, HDL_OP_SEND_IMM, HDL_OP_SEND};
	return chance(pair, 600) ? HDL_OP_SEND : opcodes[below(pair, LANE_COUNT(opcodes))];
}

/* One request of a list; the addresses in it are offsets until a rig posts it. */
struct drawn {
	struct hdl_send_wr wr;
	struct hdl_sge pieces[2];
	uint32_t remote;
	bool bad_key, bad_remote_key;
};

static void draw_request(struct pair *pair, struct drawn *d)
{
	uint32_t opcode = draw_opcode(pair);
	uint32_t length = opcode == HDL_OP_FETCH_ADD ? 8 : draw_length(pair);
	bool inlined = opcode != HDL_OP_READ && opcode != HDL_OP_FETCH_ADD && chance(pair, 300);
	if (inlined && length > LANE_MAX_INLINE && !chance(pair, 50))
		length %= LANE_MAX_INLINE + 1;
	*d = (struct drawn){.remote = below(pair, LANE_BYTES - LONG_BYTES) & ~7u,
	                    .bad_key = chance(pair, 8),
	                    .bad_remote_key = chance(pair, 8)};
	uint32_t first = chance(pair, 850) ? length : below(pair, length + 1);
	d->pieces[0].length = first;
	d->pieces[0].addr = below(pair, RECV_AT - LONG_BYTES);
	d->pieces[1].length = length - first;
	d->pieces[1].addr = below(pair, RECV_AT - LONG_BYTES);
	d->wr = (struct hdl_send_wr){.wr_id = pair->next_id++,
	                             .opcode = opcode,
	                             .num_sge = first == length ? 1 : 2,
	                             .imm = (uint32_t)prng_next(&pair->prng)};
	d->wr.flags = (chance(pair, 700) ? HDL_SEND_SIGNALED : 0u) |
	              (chance(pair, 200) ? HDL_SEND_SOLICITED : 0u) |
	              (chance(pair, 50) ? HDL_SEND_FENCE : 0u) | (inlined ? HDL_SEND_INLINE : 0u);
	/* What is read must not lie where something is sent from: who is asked first may differ. */
	if (opcode == HDL_OP_READ || opcode == HDL_OP_FETCH_ADD)
		for (int i = 0; i < 2; i++)
			d->pieces[i].addr += RECV_AT;
}

static void complete_request(const struct lane_rig *rig, struct drawn *d)
{
	for (uint32_t i = 0; i < 2; i++) {
		d->pieces[i].addr += (uint64_t)(uintptr_t)rig->mem;
		d->pieces[i].key = hdl_mr_key(rig->mr);
		if (d->bad_key)
			d->pieces[i].key.v ^= 0x155;
	}
	d->wr.sg_list = d->pieces;
	uint64_t addr = (uint64_t)(uintptr_t)rig->peer_mem + d->remote;
	struct hdl_key key = hdl_mr_key(rig->peer_mr);
	if (d->bad_remote_key)
		key.v ^= 0x155;
	if (d->wr.opcode == HDL_OP_FETCH_ADD) {
		d->wr.u.atomic.addr = addr;
		d->wr.u.atomic.key = key;
		d->wr.u.atomic.compare_add = d->wr.imm;
	} else if (d->wr.opcode != HDL_OP_SEND && d->wr.opcode != HDL_OP_SEND_IMM) {
		d->wr.u.rdma.addr = addr;
		d->wr.u.rdma.key = key;
	}
}

static void post_sends(struct pair *pair)
{
	struct drawn drawn[MAX_SENDS], mine[MAX_SENDS];
	uint32_t count = chance(pair, 600) ? 1 : 1 + below(pair, MAX_SENDS);
	int result[2];
	uint64_t stopped_at[2];
	for (uint32_t i = 0; i < count; i++)
		draw_request(pair, &drawn[i]);
	for (int side = 0; side < 2; side++) {
		const struct hdl_send_wr *bad = NULL;
		memcpy(mine, drawn, sizeof(mine));
		for (uint32_t i = 0; i < count; i++) {
			complete_request(&pair->rig[side], &mine[i]);
			mine[i].wr.next = i + 1 < count ? &mine[i + 1].wr : NULL;
		}
		result[side] = hdl_post_send(pair->rig[side].qp, &mine[0].wr, &bad);
		stopped_at[side] = bad != NULL ? bad->wr_id : UINT64_MAX;
	}
	SAME(pair, (unsigned)-result[0], (unsigned)-result[1], "what hdl_post_send() returned");
	SAME(pair, stopped_at[0], stopped_at[1], "where a list stopped");
}

static void post_receives(struct pair *pair)
{
	for (uint32_t count = below(pair, 8); count > 0; count--) {
		uint32_t length = chance(pair, 800) ? LONG_BYTES : draw_length(pair);
		uint32_t first = chance(pair, 850) ? length : below(pair, length + 1);
		size_t at = RECV_AT + below(pair, LANE_BYTES - RECV_AT - 2 * LONG_BYTES);
		bool bad = chance(pair, 8);
		int result[2];
		for (int side = 0; side < 2; side++) {
			struct hdl_sge pieces[2] = {
			        lane_piece(&pair->rig[side], at, first),
			        lane_piece(&pair->rig[side], at + LONG_BYTES, length - first)};
			if (bad)
				pieces[0].key.v ^= 0x155;
			struct hdl_recv_wr wr = {.wr_id = pair->next_id,
			                         .sg_list = pieces,
			                         .num_sge = first == length ? 1 : 2};
			result[side] = hdl_post_recv(pair->rig[side].qp, &wr, NULL);
		}
		pair->next_id++;
		SAME(pair, (unsigned)-result[0], (unsigned)-result[1],
		     "what hdl_post_recv() returned");
	}
}

static void put(struct pair *pair, struct frame frame, const void *body, size_t bytes)
{
	for (int side = 0; side < 2; side++) {
		struct frame like = lane_frame(&pair->rig[side], frame.kind, frame.msn);
		frame.to_qpn = like.to_qpn;
		frame.from_qpn = like.from_qpn;
		lane_put(&pair->rig[side], &frame, body, bytes);
	}
}

/* A message that is in flight, or about. */
static uint32_t draw_answered(struct pair *pair)
{
	const struct qp *qp = &pair->rig[0].qp->qp;
	uint32_t msn = qp->next_msn - 1;
	if (qp->unanswered > 0)
		msn -= below(pair, qp->unanswered);
	return chance(pair, 30) ? msn + below(pair, 5) - 2 : msn;
}

static void put_message(struct pair *pair, uint32_t msn, bool damaged)
{
	static uint8_t data[FRAME_MAX_DATA];
	struct frame frame = {.kind = FRAME_SEND, .msn = msn, .length = draw_length(pair)};
	frame.length %= FRAME_MAX_DATA + 1;
	prng_fill(&pair->prng, data, frame.length);
	frame.flags = (uint8_t)((chance(pair, 300) ? FRAME_IMM : 0) |
	                        (chance(pair, 300) ? FRAME_SOLICITED : 0) |
	                        (chance(pair, 300) ? FRAME_ACKS : 0));
	frame.imm = (uint32_t)prng_next(&pair->prng);
	frame.ack = draw_answered(pair);
	size_t bytes = frame.length;
	if (damaged) {
		switch (below(pair, 6)) {
		case 0:
			frame.kind = (uint8_t)below(pair, FRAME_KIND_COUNT + 2);
			break;
		case 1:
			frame.length = (uint32_t)prng_next(&pair->prng);
			break;
		case 2:
			frame.flags ^= FRAME_MORE;
			break;
		case 3:
			frame.offset = below(pair, 9);
			break;
		case 4:
			frame.num_sge = (uint8_t)prng_next(&pair->prng);
			break;
		default:
			bytes = below(pair, FRAME_MAX_DATA);
		}
	}
	put(pair, frame, data, bytes);
}

/* Several messages in one frame. Returns how many. */
static uint32_t put_shared(struct pair *pair, uint32_t msn)
{
	uint8_t body[FRAME_BURST_BYTES] = {0};
	size_t at = 0;
	uint32_t count = 0, wanted = 2 + below(pair, 8);
	for (; count < wanted; count++) {
		struct frame_item item = {.length = (uint16_t)(1 + below(pair, FRAME_BURST_ITEM)),
		                          .flags = chance(pair, 300) ? FRAME_IMM : 0,
		                          .imm = (uint32_t)prng_next(&pair->prng)};
		if (at + sizeof(item) + item.length + 8 > sizeof(body))
			break;
		memcpy(body + at, &item, sizeof(item));
		at += sizeof(item);
		prng_fill(&pair->prng, body + at, item.length);
		at += (item.length + 7u) & ~(size_t)7;
	}
	struct frame frame = {.kind = FRAME_BURST, .num_sge = (uint8_t)count, .msn = msn};
	if (chance(pair, 300))
		frame.flags = FRAME_ACKS;
	frame.ack = draw_answered(pair);
	if (chance(pair, 20))
		at -= below(pair, at < 64 ? (uint32_t)at + 1 : 64); /* cut off */
	put(pair, frame, body, at);
	return count;
}

static void put_answer(struct pair *pair)
{
	struct frame frame = {.kind = FRAME_ANSWER, .msn = draw_answered(pair)};
	struct frame_answer answer = {.answer = ANSWER_ACK};
	if (chance(pair, 100))
		answer.answer = chance(pair, 500) ? ANSWER_RNR : ANSWER_SEQUENCE;
	if (chance(pair, 8))
		answer.answer = below(pair, ANSWER_COUNT + 1);
	answer.detail = answer.answer == ANSWER_RNR ? 1 : 0;
	put(pair, frame, &answer, sizeof(answer));
}

static void put_frames(struct pair *pair)
{
	uint32_t msn = pair->rig[0].qp->qp.local.expected_msn;
	for (uint32_t count = below(pair, 6); count > 0; count--) {
		if (chance(pair, 30))
			msn += below(pair, 5) - 2;
		if (chance(pair, 400))
			put_answer(pair);
		else if (chance(pair, 250))
			msn += put_shared(pair, msn);
		else
			put_message(pair, msn++, chance(pair, 30));
	}
}

static void poll(struct pair *pair, bool receives)
{
	int max = 1 + (int)below(pair, 4);
	for (int side = 0; side < 2; side++)
		note_completions(pair, side, receives, max);
}

/* A message comes, the program polls it and answers; its answer carries the ACK. */
static void ping_pong(struct pair *pair)
{
	if (op_has_receive(&pair->rig[0].qp->qp))
		put_message(pair, pair->rig[0].qp->qp.local.expected_msn, false);
	poll(pair, true);
	post_sends(pair);
	compare(pair);
}

static void play(struct pair *pair, uint64_t seed)
{
	pair->seed = seed;
	pair->next_id = 1;
	prng_seed(&pair->prng, seed);
	for (int side = 0; side < 2; side++) {
		struct lane_message *messages = pair->record[side].messages;
		memset(&pair->record[side], 0, sizeof(pair->record[side]));
		pair->record[side].messages = messages;
		lane_open(&pair->rig[side], side == 1);
	}
	uint32_t limit = ROUNDS;
	for (uint32_t round = 0; round < limit; round++) {
		post_receives(pair);
		compare(pair);
		if (chance(pair, 400)) {
			ping_pong(pair);
			continue;
		}
		if (chance(pair, 700))
			post_sends(pair);
		put_frames(pair);
		for (uint32_t polls = below(pair, 4); polls > 0; polls--)
			poll(pair, chance(pair, 700));
		compare(pair);
		uint64_t ns = chance(pair, 100) ? 5000000 : below(pair, 100000);
		for (int side = 0; side < 2; side++)
			lane_pass(&pair->rig[side], ns);
		compare(pair);
		/* After a failure a few rounds more: everything is flushed. */
		if (lane_state(&pair->rig[0]) == HDL_QPS_ERR && limit > round + 3)
			limit = round + 3;
	}
	for (int side = 0; side < 2; side++)
		lane_close(&pair->rig[side]);
}

static void both_paths_do_the_same(void **state)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	(void)state;
	assert_non_null(pair);
	for (int side = 0; side < 2; side++) {
		pair->record[side].messages = calloc(LOG_ENTRIES, sizeof(struct lane_message));
		assert_non_null(pair->record[side].messages);
	}
	for (uint64_t seed = 1; seed <= WORLDS; seed++)
		play(pair, seed);
	for (int side = 0; side < 2; side++)
		free(pair->record[side].messages);
	free(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(both_paths_do_the_same),
	};
	return cmocka_run_group_tests_name("lane_paths", tests, NULL, NULL);
}
