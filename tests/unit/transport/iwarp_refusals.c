/* What an iWARP engine does not accept: the error tables of RFC 5040 section 7, RFC 5041 section 7
 * and RFC 5044 section 8 as truth tables. Every row comes whole and octet by octet, through
 * stream.h and as data that was read ahead, and has the same result: a Terminate with the code, an
 * event that names the check, and no byte of memory changed. */
#include "iwarp_rig.h"

#include <stdlib.h>

#include "wire/be.h"

#define RECEIVE_BYTES 100u
#define AREA          4096u /* where rows may write, if they may */

static uint8_t shadow[IW_BYTES];
static uint8_t payload_bytes[70000];

struct row {
	const char *clause;
	struct rdmap_segment s;
	/* The address of the memory is added to s.to or the source of a read; so is its key. */
	bool at_memory;
	uint32_t payload;
	int patch_at; /* of the header, -1: none */
	uint8_t patch;
	enum rdmap_error error;
	uint32_t event, detail;
	bool no_crc;   /* only without CRCs: with them the damage is found */
	bool receives; /* the receive completes, with this */
	uint32_t status;
};

#define REQUEST_ERR .event = HDL_EVENT_QP_REQUEST_ERR
#define ACCESS_ERR  .event = HDL_EVENT_QP_ACCESS_ERR
#define SEND(n)     .s = {.opcode = RDMAP_SEND, .last = true, .msn = (n)}
#define NO_PATCH    .patch_at = -1
#define DDP(name)   .error = RDMAP_ERROR_DDP_##name
#define RDMAP(name) .error = RDMAP_ERROR_RDMAP_##name

static const struct row rows[] = {
        {"RFC 5041 7.2: QN 4", SEND(1), .payload = 8, .patch_at = 9, .patch = 4, DDP(INVALID_QN),
         REQUEST_ERR},
        {"RFC 5041 7.2: MSN 0", SEND(0), .payload = 8, NO_PATCH, DDP(MSN_RANGE), REQUEST_ERR,
         .detail = HDL_DETAIL_OUT_OF_WINDOW},
        {"RFC 5041 7.2: MSN ahead", SEND(2), .payload = 8, NO_PATCH, DDP(MSN_RANGE), REQUEST_ERR,
         .detail = HDL_DETAIL_OUT_OF_WINDOW},
        {"RFC 5041 7.2: MSN wrapped", SEND(UINT32_MAX), .payload = 8, NO_PATCH, DDP(MSN_RANGE),
         REQUEST_ERR, .detail = HDL_DETAIL_OUT_OF_WINDOW},
        {"RFC 5041 7.2: MO not 0 at the beginning",
         .s = {.opcode = RDMAP_SEND, .last = true, .msn = 1, .mo = 8}, .payload = 8, NO_PATCH,
         DDP(INVALID_MO), REQUEST_ERR},
        {"RFC 5041 7.2: MO + length wraps",
         .s = {.opcode = RDMAP_SEND, .last = true, .msn = 1, .mo = UINT32_MAX - 3}, .payload = 8,
         NO_PATCH, DDP(MESSAGE_TOO_LONG), REQUEST_ERR},
        {"RFC 5041 7.2: longer than the buffer", SEND(1), .payload = RECEIVE_BYTES + 1, NO_PATCH,
         DDP(MESSAGE_TOO_LONG), REQUEST_ERR, .detail = HDL_DETAIL_BOUNDS, .receives = true,
         .status = HDL_WC_LOC_LEN_ERR},
        {"RFC 5041 7.2: DDP version of an untagged segment", SEND(1), .payload = 8, .patch_at = 0,
         .patch = 0x42, DDP(INVALID_VERSION_UNTAGGED), REQUEST_ERR},
        {"RFC 5041 7.1: DDP version of a tagged segment",
         .s = {.opcode = RDMAP_WRITE, .last = true}, .at_memory = true, .payload = 8, .patch_at = 0,
         .patch = 0xc0, DDP(INVALID_VERSION_TAGGED), REQUEST_ERR},
        {"RFC 5041 7.1: STag that does not exist",
         .s = {.opcode = RDMAP_WRITE, .last = true, .stag = 0x77, .to = 0}, .payload = 8, NO_PATCH,
         DDP(INVALID_STAG), ACCESS_ERR, .detail = HDL_DETAIL_NOT_VALID},
        {"RFC 5041 7.1: STag of an earlier instance",
         .s = {.opcode = RDMAP_WRITE, .last = true, .stag = 1}, .at_memory = true, .payload = 8,
         NO_PATCH, DDP(INVALID_STAG), ACCESS_ERR, .detail = HDL_DETAIL_INSTANCE},
        {"RFC 5041 7.1: past the end of the buffer",
         .s = {.opcode = RDMAP_WRITE, .last = true, .to = IW_BYTES - 7}, .at_memory = true,
         .payload = 8, NO_PATCH, DDP(BOUNDS), ACCESS_ERR, .detail = HDL_DETAIL_BOUNDS},
        {"RFC 5041 7.1: before the buffer",
         .s = {.opcode = RDMAP_WRITE, .last = true, .to = UINT64_MAX}, .at_memory = true,
         .payload = 8, NO_PATCH, DDP(BOUNDS), ACCESS_ERR, .detail = HDL_DETAIL_BOUNDS},
        {"RFC 5041 7.1: TO + length wraps",
         .s = {.opcode = RDMAP_WRITE, .last = true, .to = UINT64_MAX - 3}, .payload = 8, NO_PATCH,
         DDP(WRAP), ACCESS_ERR, .detail = HDL_DETAIL_BOUNDS},
        {"RFC 5040 7.1: RDMAP version", SEND(1), .payload = 8, .patch_at = 1, .patch = 0x83,
         RDMAP(INVALID_VERSION), REQUEST_ERR},
        {"RFC 5040 7.1: opcode 12", SEND(1), .payload = 8, .patch_at = 1, .patch = 0x4c,
         RDMAP(UNEXPECTED_OPCODE), REQUEST_ERR},
        {"RFC 5040 7.1: a Send on queue 1", SEND(1), .payload = 8, .patch_at = 9, .patch = 1,
         RDMAP(UNEXPECTED_OPCODE), REQUEST_ERR},
        {"RFC 5040 7.1: an untagged Write", SEND(1), .payload = 8, .patch_at = 1, .patch = 0x40,
         RDMAP(UNEXPECTED_OPCODE), REQUEST_ERR},
        {"RFC 5040 7.1: a Read Response that nobody requested",
         .s = {.opcode = RDMAP_READ_RESPONSE, .last = true, .stag = 1}, .payload = 8, NO_PATCH,
         DDP(INVALID_STAG), REQUEST_ERR},
        {"RFC 7306: an Atomic Response that nobody requested",
         .s = {.opcode = RDMAP_ATOMIC_RESPONSE, .msn = 1, .u.atomic_response = {.id = 1}}, NO_PATCH,
         RDMAP(UNEXPECTED_OPCODE), REQUEST_ERR},
        {"RFC 5041 7.2: a Read Request with MSN 2", .s = {.opcode = RDMAP_READ_REQUEST, .msn = 2},
         NO_PATCH, DDP(MSN_RANGE), REQUEST_ERR, .detail = HDL_DETAIL_OUT_OF_WINDOW},
        {"RFC 5040 7.1: a read of an STag that does not exist",
         .s = {.opcode = RDMAP_READ_REQUEST, .msn = 1, .u.read = {.bytes = 8, .source_stag = 0x77}},
         NO_PATCH, RDMAP(INVALID_STAG), ACCESS_ERR, .detail = HDL_DETAIL_NOT_VALID},
        {"RFC 5040 7.1: a read past the end",
         .s = {.opcode = RDMAP_READ_REQUEST,
               .msn = 1,
               .u.read = {.bytes = 9, .source_to = IW_BYTES - 8}},
         .at_memory = true, NO_PATCH, RDMAP(BOUNDS), ACCESS_ERR, .detail = HDL_DETAIL_BOUNDS},
        {"RFC 5040 7.1: a read whose range wraps",
         .s = {.opcode = RDMAP_READ_REQUEST,
               .msn = 1,
               .u.read = {.bytes = 9, .source_to = UINT64_MAX - 7}},
         NO_PATCH, RDMAP(TO_WRAP), ACCESS_ERR, .detail = HDL_DETAIL_BOUNDS},
        {"RFC 7306: an atomic on a misaligned word",
         .s = {.opcode = RDMAP_ATOMIC_REQUEST,
               .msn = 1,
               .u.atomic = {.operation = RDMAP_FETCH_ADD, .to = 4}},
         .at_memory = true, NO_PATCH, RDMAP(UNSPECIFIED), REQUEST_ERR,
         .detail = HDL_DETAIL_MISALIGNED},
        {"RFC 7306: an operation that does not exist",
         .s = {.opcode = RDMAP_ATOMIC_REQUEST, .msn = 1}, .patch_at = 21, .patch = 7,
         RDMAP(UNEXPECTED_OPCODE), REQUEST_ERR},
        {"RFC 5040 5.2: an STag that cannot be invalidated",
         .s = {.opcode = RDMAP_SEND_INVALIDATE, .last = true, .msn = 1, .invalidate_stag = 0x77},
         .payload = 8, NO_PATCH, RDMAP(PROTECT_INVALIDATE), .receives = true,
         .status = HDL_WC_MEM_MGT_ERR},
        {"RFC 5041 7.2: a second Terminate queue number",
         .s = {.opcode = RDMAP_TERMINATE, .msn = 2}, NO_PATCH, DDP(MSN_RANGE), REQUEST_ERR,
         .detail = HDL_DETAIL_OUT_OF_WINDOW},
};

/* The FPDU of @row, with a CRC that fits whatever was patched. */
static size_t make(struct iw_rig *rig, const struct row *row, uint8_t *out)
{
	struct iw_side *side = &rig->sides[0];
	struct rdmap_segment s = row->s;
	uint8_t header[RDMAP_MAX_HEADER_BYTES];
	if (row->at_memory) {
		uint64_t base = iw_address(side, 0);
		uint32_t key = iw_key(side).v;
		if (s.opcode == RDMAP_READ_REQUEST) {
			s.u.read.source_to += base;
			s.u.read.source_stag = key;
		} else if (s.opcode == RDMAP_ATOMIC_REQUEST) {
			s.u.atomic.to += base;
			s.u.atomic.stag = key;
		} else {
			s.to += base;
			s.stag ^= key;
		}
	}
	size_t header_bytes = rdmap_encode(&s, header, sizeof(header));
	if (row->patch_at >= 0)
		header[row->patch_at] = row->patch;
	struct mpa_piece pieces[] = {{header, header_bytes}, {payload_bytes, row->payload}};
	return mpa_fpdu_encode(&side->sender, pieces, 2, out, MPA_MAX_FPDU_BYTES);
}

static void each_way(void (*test)(struct iw_rig *rig, size_t piece))
{
	static struct iw_rig rig;
	for (unsigned way = 0; way < 8; way++) {
		struct iw_options o = {.terms = {.crc = (way & 4) == 0}};
		iw_open(&rig, &o, way);
		rig.by_feed = way & 1;
		memcpy(shadow, rig.sides[0].mem, IW_BYTES);
		test(&rig, way & 2 ? 1 : 0);
		iw_close(&rig);
	}
}

static const struct row *row_now;

static void try_row(struct iw_rig *rig, size_t piece)
{
	static uint8_t fpdu[MPA_MAX_FPDU_BYTES];
	struct iw_side *side = &rig->sides[0];
	iw_recv(side, 1, 0, RECEIVE_BYTES);
	iw_send(side, 2, 0, 8); /* the stream has not taken it yet, */
	size_t bytes = make(rig, row_now, fpdu);
	iw_put_bytes(rig, fpdu, bytes, piece);
	assert_false(side->open);
	if (row_now->event != 0)
		iw_event(side, row_now->event, row_now->detail);
	iw_no_event(side);
	iw_completion(side->rcq, 1, row_now->receives ? row_now->status : HDL_WC_WR_FLUSH_ERR);
	iw_completion(side->scq, 2, HDL_WC_WR_FLUSH_ERR); /* so it is flushed */
	iw_expect_terminate(rig, row_now->error);
	if (!row_now->receives)
		assert_memory_equal(side->mem, shadow, IW_BYTES);
	/* What comes now does not count. */
	iw_put_bytes(rig, fpdu, bytes, piece);
	iw_expect_silence(rig);
	iw_no_event(side);
}

static void rfc5040_7_each_error_has_its_terminate(void **state)
{
	(void)state;
	for (size_t i = 0; i < IW_COUNT(rows); i++) {
		print_message("%s\n", rows[i].clause);
		row_now = &rows[i];
		each_way(try_row);
	}
}

/* Of each FPDU every octet damaged, one by one: with CRCs no byte of memory changes and nothing
 * happens but a Terminate. */
static void damage(size_t at, bool by_feed, size_t piece)
{
	static struct iw_rig rig;
	struct iw_options o = {.terms = {.crc = true}};
	static uint8_t fpdu[MPA_MAX_FPDU_BYTES];
	iw_open(&rig, &o, at);
	rig.by_feed = by_feed;
	struct iw_side *side = &rig.sides[0];
	memcpy(shadow, side->mem, IW_BYTES);
	struct rdmap_segment s = {.opcode = RDMAP_WRITE,
	                          .last = true,
	                          .stag = iw_key(side).v,
	                          .to = iw_address(side, 0)};
	size_t bytes = iw_fpdu(&rig, &s, payload_bytes, 40, fpdu);
	fpdu[at % bytes] ^= (uint8_t)(1u << at % 8);
	iw_put_bytes(&rig, fpdu, bytes, piece);
	/* A longer length waits for more. */
	static const uint8_t zeros[70000];
	iw_put_bytes(&rig, zeros, sizeof(zeros), 0);
	assert_memory_equal(side->mem, shadow, IW_BYTES);
	assert_false(side->open);
	iw_expect_terminate(&rig, RDMAP_ERROR_MPA_CRC);
	iw_close(&rig);
}

static void rfc5044_8_any_octet_damaged(void **state)
{
	(void)state;
	for (size_t at = 0; at < 60; at++)
		damage(at, at & 1, at & 2 ? 1 : 0);
}

/* Lengths from 0 to what no header fits into, and the longest. */
static void try_lengths(struct iw_rig *rig, size_t piece)
{
	static uint8_t fpdu[MPA_MAX_FPDU_BYTES];
	struct iw_side *side = &rig->sides[0];
	uint8_t ulpdu[18] = {0x41, 0x43};
	size_t length = (size_t)(uintptr_t)row_now;
	struct mpa_piece one = {ulpdu, length};
	if (length == 0) {
		size_t bytes = mpa_fpdu_encode(&side->sender, &one, 1, fpdu, sizeof(fpdu));
		iw_put_bytes(rig, fpdu, bytes, piece);
		assert_true(side->open); /* a sign of life */
		iw_expect_silence(rig);
		return;
	}
	if (length > 18) { /* longer than any buffer */
		struct rdmap_segment s = {.opcode = RDMAP_SEND, .last = true, .msn = 1};
		iw_recv(side, 1, 0, 100);
		size_t bytes = iw_fpdu(rig, &s, payload_bytes, length - 18, fpdu);
		iw_put_bytes(rig, fpdu, bytes, piece);
		iw_expect_terminate(rig, RDMAP_ERROR_DDP_MESSAGE_TOO_LONG);
		return;
	}
	size_t bytes = mpa_fpdu_encode(&side->sender, &one, 1, fpdu, sizeof(fpdu));
	iw_put_bytes(rig, fpdu, bytes, piece);
	iw_expect_terminate(rig,
	                    length < 18 ? RDMAP_ERROR_DDP_CATASTROPHIC : RDMAP_ERROR_DDP_MSN_RANGE);
	assert_memory_equal(side->mem, shadow, IW_BYTES);
}

static void rfc5041_4_lengths_of_segments(void **state)
{
	(void)state;
	static const size_t lengths[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,
	                                 10, 11, 12, 13, 14, 15, 16, 17, 18, 65535};
	for (size_t i = 0; i < IW_COUNT(lengths); i++) {
		row_now = (const struct row *)(uintptr_t)lengths[i];
		each_way(try_lengths);
	}
}

/* MO goes on where the last segment ended; a message in the middle of which another begins, or that
 * changes its kind, ends the stream. */
static void try_segments(struct iw_rig *rig, size_t piece)
{
	static uint8_t fpdu[MPA_MAX_FPDU_BYTES];
	struct iw_side *side = &rig->sides[0];
	size_t which = (size_t)(uintptr_t)row_now;
	struct rdmap_segment s = {.opcode = RDMAP_SEND, .msn = 1};
	iw_recv(side, 1, 0, 200);
	iw_put_bytes(rig, fpdu, iw_fpdu(rig, &s, payload_bytes, 50, fpdu), piece);
	assert_true(side->open);
	iw_no_completion(side->rcq);
	s.mo = 50;
	s.last = true;
	enum rdmap_error error = RDMAP_ERROR_DDP_INVALID_MO;
	if (which == 0) {
		s.mo = 49;
	} else if (which == 1) {
		s.mo = 51;
	} else if (which == 2) {
		s.msn = 2;
		s.mo = 0;
		error = RDMAP_ERROR_DDP_MSN_RANGE;
	} else if (which == 3) {
		s.opcode = RDMAP_SEND_SE;
		error = RDMAP_ERROR_RDMAP_UNEXPECTED_OPCODE;
	} else if (which == 4) { /* a message without end */
		error = RDMAP_ERROR_DDP_MESSAGE_TOO_LONG;
		s.last = false;
		for (unsigned i = 0; i < 3; i++, s.mo += 50)
			iw_put_bytes(rig, fpdu, iw_fpdu(rig, &s, payload_bytes, 50, fpdu), piece);
	}
	assert_true(side->open);
	iw_put_bytes(rig, fpdu, iw_fpdu(rig, &s, payload_bytes, 50, fpdu), piece);
	iw_expect_terminate(rig, error);
}

static void rfc5041_5_segments_come_in_order(void **state)
{
	(void)state;
	for (size_t which = 0; which < 5; which++) {
		row_now = (const struct row *)(uintptr_t)which;
		each_way(try_segments);
	}
}

/* Responses that are not those of the oldest open read. */
static void try_responses(struct iw_rig *rig, size_t piece)
{
	static uint8_t fpdu[MPA_MAX_FPDU_BYTES];
	static struct iw_segment request;
	struct iw_side *side = &rig->sides[0];
	size_t which = (size_t)(uintptr_t)row_now;
	iw_rdma(side, 1, HDL_OP_READ, AREA, 100, 0x1000, (struct hdl_key){IW_PEER_KEY});
	iw_rdma(side, 2, HDL_OP_READ, 2 * AREA, 100, 0x1000, (struct hdl_key){IW_PEER_KEY});
	assert_true(iw_look(rig, &request));
	assert_int_equal(request.s.u.read.bytes, 100);
	struct rdmap_segment s = {.opcode = RDMAP_READ_RESPONSE,
	                          .last = true,
	                          .stag = request.s.u.read.sink_stag,
	                          .to = request.s.u.read.sink_to};
	uint32_t bytes = 100;
	enum rdmap_error error = RDMAP_ERROR_DDP_BOUNDS;
	if (which == 0) {
		s.stag++; /* the second read before the first */
		error = RDMAP_ERROR_DDP_INVALID_STAG;
	} else if (which == 1) {
		bytes = 101;
	} else if (which == 2) {
		s.to = 1;
		bytes = 99;
	} else if (which == 3) { /* too short */
		bytes = 99;
		error = RDMAP_ERROR_RDMAP_STREAM_FAILED;
	} else if (which == 4) {
		s.opcode = RDMAP_ATOMIC_RESPONSE;
		s.msn = 1;
		bytes = 0;
		error = RDMAP_ERROR_RDMAP_UNEXPECTED_OPCODE;
	} else if (which == 5) { /* a table key instead of what was invented */
		s.stag = iw_key(side).v;
		s.to = iw_address(side, 0);
		error = RDMAP_ERROR_DDP_INVALID_STAG;
	}
	iw_put_bytes(rig, fpdu, iw_fpdu(rig, &s, payload_bytes, bytes, fpdu), piece);
	iw_completion(side->scq, 1, HDL_WC_WR_FLUSH_ERR);
	iw_completion(side->scq, 2, HDL_WC_WR_FLUSH_ERR);
	assert_memory_equal(side->mem, shadow, IW_BYTES);
	iw_expect_terminate(rig, error);
}

static void rfc5040_5_responses_fit_the_oldest_read(void **state)
{
	(void)state;
	for (size_t which = 0; which < 6; which++) {
		row_now = (const struct row *)(uintptr_t)which;
		each_way(try_responses);
	}
}

/* More requests than IRD while the answers cannot be sent. */
static void rfc5040_7_more_reads_than_ird(void **state)
{
	static struct iw_rig rig;
	static uint8_t fpdus[8 * 256];
	(void)state;
	iw_open(&rig, &(struct iw_options){.terms = {.crc = true, .ird = 4}}, 1);
	struct iw_side *side = &rig.sides[0];
	size_t bytes = 0;
	for (uint32_t i = 1; i <= 5; i++) {
		struct rdmap_segment s = {.opcode = RDMAP_READ_REQUEST,
		                          .msn = i,
		                          .u.read = {.sink_stag = i,
		                                     .bytes = 8,
		                                     .source_stag = iw_key(side).v,
		                                     .source_to = iw_address(side, 0)}};
		bytes += iw_fpdu(&rig, &s, NULL, 0, fpdus + bytes);
	}
	iw_put_bytes(&rig, fpdus, bytes, 0);
	iw_event(side, HDL_EVENT_QP_REQUEST_ERR, HDL_DETAIL_LIMIT);
	iw_expect_terminate(&rig, RDMAP_ERROR_DDP_NO_BUFFER);
	iw_close(&rig);
}

/* Who may do nothing to our memory, and whose tags are not ours. */
static void rfc5040_7_rights(void **state)
{
	static struct iw_rig rig;
	(void)state;
	for (unsigned which = 0; which < 4; which++) {
		iw_open(&rig, &(struct iw_options){.terms = {.crc = true}, .no_access = which < 3},
		        1);
		struct iw_side *side = &rig.sides[0];
		struct rdmap_segment s = {.opcode = RDMAP_WRITE,
		                          .last = true,
		                          .stag = iw_key(side).v,
		                          .to = iw_address(side, 0)};
		if (which == 1)
			s = (struct rdmap_segment){.opcode = RDMAP_READ_REQUEST,
			                           .msn = 1,
			                           .u.read = {.bytes = 8,
			                                      .source_stag = iw_key(side).v,
			                                      .source_to = iw_address(side, 0)}};
		if (which == 2)
			s = (struct rdmap_segment){
			        .opcode = RDMAP_ATOMIC_REQUEST,
			        .msn = 1,
			        .u.atomic = {.stag = iw_key(side).v, .to = iw_address(side, 0)}};
		struct hdl_pd *other = NULL;
		struct hdl_mr *mr = NULL;
		if (which == 3) { /* a tag of another protection domain */
			assert_int_equal(hdl_pd_create(side->adapter, &other), 0);
			assert_int_equal(
			        hdl_mr_register(other, side->mem, 4096,
			                        HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_WRITE,
			                        &mr),
			        0);
			s.stag = hdl_mr_key(mr).v;
		}
		iw_put(&rig, &s, payload_bytes, s.opcode == RDMAP_WRITE ? 8 : 0);
		iw_event(side, which == 3 ? HDL_EVENT_QP_ACCESS_ERR : HDL_EVENT_QP_REQUEST_ERR,
		         which == 3 ? HDL_DETAIL_PD : HDL_DETAIL_NONE);
		iw_expect_terminate(&rig, which == 3 ? RDMAP_ERROR_DDP_STAG_STREAM
		                                     : RDMAP_ERROR_RDMAP_ACCESS);
		if (mr != NULL) {
			assert_int_equal(hdl_mr_deregister(mr), 0);
			assert_int_equal(hdl_pd_destroy(other), 0);
		}
		iw_close(&rig);
	}
}

/* The end of the stream: between two FPDUs in order, inside one an error. */
static void rfc5044_8_fin_inside_an_fpdu(void **state)
{
	static struct iw_rig rig;
	static uint8_t fpdu[MPA_MAX_FPDU_BYTES];
	(void)state;
	for (size_t cut = 0; cut <= 32; cut++) {
		iw_open(&rig, &(struct iw_options){.terms = {.crc = true}}, cut);
		struct iw_side *side = &rig.sides[0];
		struct rdmap_segment s = {.opcode = RDMAP_SEND, .last = true, .msn = 1};
		iw_recv(side, 1, 0, 100);
		size_t bytes = iw_fpdu(&rig, &s, payload_bytes, 8, fpdu);
		assert_int_equal(bytes, 32);
		iw_put_bytes(&rig, fpdu, cut, 0);
		adapter_lock(side->adapter);
		iwarp_stream.ended(&side->iwarp, STREAM_CLOSED);
		adapter_unlock(side->adapter);
		iw_drive(&rig);
		bool in_order = cut == 0 || cut == bytes;
		assert_int_equal(iw_state(side), HDL_QPS_ERR);
		assert_int_equal(iwarp_ending(&side->iwarp), in_order ? IWARP_FIN : IWARP_ABORT);
		if (!in_order)
			iw_event(side, HDL_EVENT_QP_FATAL, HDL_DETAIL_NONE);
		iw_completion(side->rcq, 1, cut == bytes ? HDL_WC_SUCCESS : HDL_WC_WR_FLUSH_ERR);
		iw_no_event(side);
		iw_close(&rig);
	}
}

int main(void)
{
	for (size_t i = 0; i < sizeof(payload_bytes); i++)
		payload_bytes[i] = (uint8_t)(i * 3 + 1);
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc5040_7_each_error_has_its_terminate),
	        cmocka_unit_test(rfc5044_8_any_octet_damaged),
	        cmocka_unit_test(rfc5041_4_lengths_of_segments),
	        cmocka_unit_test(rfc5041_5_segments_come_in_order),
	        cmocka_unit_test(rfc5040_5_responses_fit_the_oldest_read),
	        cmocka_unit_test(rfc5040_7_more_reads_than_ird),
	        cmocka_unit_test(rfc5040_7_rights),
	        cmocka_unit_test(rfc5044_8_fin_inside_an_fpdu),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
