/* The requester of an iWARP connection: octets on the wire, when requests are over (RFC 5040
 * section 5), and what becomes of them when the peer terminates. */
#include "iwarp_rig.h"

#include <stdlib.h>

#include "unit/wire/iwarp_octets.h"
#include "wire/be.h"

static struct iw_rig rig;
static struct iw_segment got;
#define SIDE (&rig.sides[0])

static int setup(void **state)
{
	(void)state;
	iw_open(&rig, &(struct iw_options){.terms = {.crc = true}}, 1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	iw_close(&rig);
	return 0;
}

/* Everything that was sent, as octets. */
static void expect_octets(const char *hex)
{
	uint8_t want[512], out[512];
	size_t bytes = octets(hex, want);
	iw_drive(&rig);
	adapter_lock(SIDE->adapter);
	size_t count = stream_drain(&iwarp_stream, &SIDE->iwarp, out, sizeof(out));
	adapter_unlock(SIDE->adapter);
	assert_int_equal(count, bytes);
	assert_memory_equal(out, want, bytes);
	iw_drive(&rig);
}

/* Octets that Linux 6.1 siw accepted, or sent itself (tests/unit/wire/mpa_fpdu.c). */
static void rfc5040_4_octets_on_the_wire(void **state)
{
	(void)state;
	static const uint8_t data[16] = {0, 0, 0,    0,    0, 0, 0x10, 0,
	                                 0, 0, 0x12, 0x34, 0, 0, 0,    0x64};
	memcpy(SIDE->mem, data, 16);
	iw_send(SIDE, 1, 0, 16);
	expect_octets("0022 4143 00000000 00000000 00000001 00000000"
	              "00000000 00001000 00001234 00000064 2c483c56");
}

static void rfc5040_4_each_kind_of_message(void **state)
{
	(void)state;
	struct hdl_sge list = iw_piece(SIDE, 0, 8);
	static const struct {
		uint32_t opcode, flags;
		enum rdmap_opcode want;
	} rows[] = {
	        {HDL_OP_SEND, 0, RDMAP_SEND},
	        {HDL_OP_SEND, HDL_SEND_SOLICITED, RDMAP_SEND_SE},
	        {HDL_OP_SEND_INVALIDATE, 0, RDMAP_SEND_INVALIDATE},
	        {HDL_OP_SEND_INVALIDATE, HDL_SEND_SOLICITED, RDMAP_SEND_SE_INVALIDATE},
	};
	for (unsigned i = 0; i < IW_COUNT(rows); i++) {
		iw_post(SIDE, (struct hdl_send_wr){.wr_id = i,
		                                   .opcode = rows[i].opcode,
		                                   .flags = rows[i].flags,
		                                   .sg_list = &list,
		                                   .num_sge = 1,
		                                   .imm = 0xabcd});
		assert_true(iw_look(&rig, &got));
		assert_int_equal(got.s.opcode, rows[i].want);
		assert_int_equal(got.s.msn, i + 1);
		assert_int_equal(got.s.invalidate_stag, i >= 2 ? 0xabcd : 0);
		assert_true(got.s.last);
		assert_int_equal(got.bytes, 8);
		iw_completion(SIDE->scq, i, HDL_WC_SUCCESS);
	}
	/* Immediate data: a Write, then a message of its own with the next MSN. */
	struct hdl_send_wr wr = {
	        .opcode = HDL_OP_WRITE_IMM, .sg_list = &list, .num_sge = 1, .imm = 0x04030201};
	wr.u.rdma.addr = 0x1122334455667788;
	wr.u.rdma.key = (struct hdl_key){IW_PEER_KEY};
	iw_post(SIDE, wr);
	assert_true(iw_look(&rig, &got));
	assert_int_equal(got.s.opcode, RDMAP_WRITE);
	assert_int_equal(got.s.to, 0x1122334455667788);
	assert_int_equal(got.s.stag, IW_PEER_KEY);
	assert_true(iw_look(&rig, &got));
	assert_int_equal(got.s.opcode, RDMAP_IMMEDIATE);
	assert_int_equal(got.s.msn, 5);
	assert_int_equal(got.s.u.immediate, 0x0102030400000000);
	/* There is no Send with immediate data. */
	iw_completion(SIDE->scq, 0, HDL_WC_SUCCESS);
	wr.opcode = HDL_OP_SEND_IMM;
	wr.wr_id = 9;
	iw_post(SIDE, wr);
	iw_drive(&rig);
	iw_completion(SIDE->scq, 9, HDL_WC_LOC_QP_OP_ERR);
	iw_expect_terminate(&rig, RDMAP_ERROR_RDMAP_CATASTROPHIC);
}

/* A request is over once the stream has its last octet, not earlier. */
static void rfc5040_5_5_over_when_the_memory_is_free(void **state)
{
	(void)state;
	struct stream_run runs[STREAM_MAX_RUNS];
	iw_send(SIDE, 1, 0, 100);
	iw_send(SIDE, 2, 0, 100);
	iw_drive(&rig);
	adapter_lock(SIDE->adapter);
	assert_int_equal(iwarp_stream.offer(&SIDE->iwarp, runs, STREAM_MAX_RUNS), 1);
	size_t each = runs[0].length / 2;
	iwarp_stream.taken(&SIDE->iwarp, each - 1);
	adapter_unlock(SIDE->adapter);
	iw_no_completion(SIDE->scq);
	adapter_lock(SIDE->adapter);
	iwarp_stream.taken(&SIDE->iwarp, 1);
	adapter_unlock(SIDE->adapter);
	iw_completion(SIDE->scq, 1, HDL_WC_SUCCESS);
	iw_no_completion(SIDE->scq);
	adapter_lock(SIDE->adapter);
	iwarp_stream.taken(&SIDE->iwarp, each);
	adapter_unlock(SIDE->adapter);
	iw_completion(SIDE->scq, 2, HDL_WC_SUCCESS);
}

/* Reads up to ORD; the next waits for an answer, and a fenced request for all of them. */
static void rfc5040_5_reads_and_fences(void **state)
{
	(void)state;
	const struct hdl_key key = {IW_PEER_KEY};
	for (unsigned i = 0; i < 5; i++)
		iw_rdma(SIDE, i, HDL_OP_READ, 100 * i, 50, 0x1000 + i, key);
	struct hdl_sge list = iw_piece(SIDE, 0, 8);
	iw_post(SIDE, (struct hdl_send_wr){.wr_id = 5,
	                                   .opcode = HDL_OP_SEND,
	                                   .flags = HDL_SEND_FENCE,
	                                   .sg_list = &list,
	                                   .num_sge = 1});
	uint32_t stags[5];
	for (unsigned i = 0; i < 4; i++) {
		assert_true(iw_look(&rig, &got));
		assert_int_equal(got.s.opcode, RDMAP_READ_REQUEST);
		assert_int_equal(got.s.msn, i + 1);
		assert_int_equal(got.s.u.read.bytes, 50);
		assert_int_equal(got.s.u.read.source_to, 0x1000 + i);
		assert_int_equal(got.s.u.read.source_stag, IW_PEER_KEY);
		stags[i] = got.s.u.read.sink_stag;
	}
	iw_expect_silence(&rig);
	uint8_t data[50];
	for (unsigned i = 0; i < 5; i++) {
		memset(data, 0x50 + (int)i, sizeof(data));
		struct rdmap_segment s = {.opcode = RDMAP_READ_RESPONSE, .stag = stags[i]};
		iw_put(&rig, &s, data, 20); /* in two segments */
		iw_no_completion(SIDE->scq);
		s.to = 20;
		s.last = true;
		iw_put(&rig, &s, data, 30);
		iw_completion(SIDE->scq, i, HDL_WC_SUCCESS);
		assert_memory_equal(SIDE->mem + 100 * i, data, 50);
		if (i == 0) {
			assert_true(iw_look(&rig, &got));
			assert_int_equal(got.s.msn, 5);
			stags[4] = got.s.u.read.sink_stag;
		}
		if (i < 4)
			iw_expect_silence(&rig);
	}
	assert_true(iw_look(&rig, &got));
	assert_int_equal(got.s.opcode, RDMAP_SEND);
	iw_completion(SIDE->scq, 5, HDL_WC_SUCCESS);
}

/* A Terminate from the peer: the read that it quotes has the status; what is before and behind it
 * is flushed. */
static void rfc5040_4_8_terminate_quotes_a_read(void **state)
{
	(void)state;
	static const struct {
		enum rdmap_error error;
		uint32_t status, detail;
	} rows[] = {
	        {RDMAP_ERROR_RDMAP_INVALID_STAG, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_NOT_VALID},
	        {RDMAP_ERROR_RDMAP_BOUNDS, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_BOUNDS},
	        {RDMAP_ERROR_RDMAP_ACCESS, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_ACCESS},
	        {RDMAP_ERROR_RDMAP_STAG_STREAM, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_PD},
	        {RDMAP_ERROR_RDMAP_STREAM_FAILED, HDL_WC_REM_OP_ERR, HDL_DETAIL_NONE},
	        {RDMAP_ERROR_DDP_NO_BUFFER, HDL_WC_REM_INV_REQ_ERR, HDL_DETAIL_LIMIT},
	};
	iw_close(&rig);
	for (unsigned i = 0; i < IW_COUNT(rows); i++) {
		iw_open(&rig, &(struct iw_options){.terms = {.crc = true}}, 1);
		for (unsigned r = 0; r < 3; r++)
			iw_rdma(SIDE, r, HDL_OP_READ, 0, 50, 0x1000, (struct hdl_key){IW_PEER_KEY});
		iw_send(SIDE, 3, 0, 8);
		static struct iw_segment second;
		assert_true(iw_look(&rig, &got));
		assert_true(iw_look(&rig, &second));
		while (iw_look(&rig, &got))
			;
		struct rdmap_segment s = {.opcode = RDMAP_TERMINATE, .msn = 1};
		rdmap_terminate_make(rows[i].error, second.head,
		                     DDP_UNTAGGED_BYTES + RDMAP_READ_REQUEST_BYTES, &s.u.terminate);
		iw_put(&rig, &s, NULL, 0);
		iw_completion(SIDE->scq, 0, HDL_WC_WR_FLUSH_ERR);
		struct hdl_wc wc = iw_completion(SIDE->scq, 1, rows[i].status);
		assert_int_equal(wc.vendor_err, rows[i].detail);
		iw_completion(SIDE->scq, 2, HDL_WC_WR_FLUSH_ERR);
		iw_completion(SIDE->scq, 3, HDL_WC_WR_FLUSH_ERR);
		iw_no_event(SIDE);
		iw_expect_silence(&rig);
		assert_int_equal(iw_state(SIDE), HDL_QPS_ERR);
		assert_int_equal(iwarp_ending(&SIDE->iwarp), IWARP_FIN);
		if (i + 1 < IW_COUNT(rows))
			iw_close(&rig);
	}
}

/* Linux's siw (6.1) quotes the length of a read where its MSN belongs. The sink tag is the one that
 * we sent, and names the read, also where the length is the MSN of another. */
static void siw_quotes_a_read_by_its_sink_tag(void **state)
{
	(void)state;
	static const uint32_t lengths[] = {50, 3};
	iw_close(&rig);
	for (unsigned i = 0; i < IW_COUNT(lengths); i++) {
		iw_open(&rig, &(struct iw_options){.terms = {.crc = true}}, 1);
		for (unsigned r = 0; r < 3; r++)
			iw_rdma(SIDE, r, HDL_OP_READ, 0, lengths[i], 0x1000,
			        (struct hdl_key){IW_PEER_KEY});
		static struct iw_segment second;
		assert_true(iw_look(&rig, &got));
		assert_true(iw_look(&rig, &second));
		be32_store(second.head + 10, lengths[i]);
		struct rdmap_segment s = {.opcode = RDMAP_TERMINATE, .msn = 1};
		rdmap_terminate_make(RDMAP_ERROR_RDMAP_INVALID_STAG, second.head,
		                     DDP_UNTAGGED_BYTES + RDMAP_READ_REQUEST_BYTES, &s.u.terminate);
		iw_put(&rig, &s, NULL, 0);
		iw_completion(SIDE->scq, 0, HDL_WC_WR_FLUSH_ERR);
		iw_completion(SIDE->scq, 1, HDL_WC_REM_ACCESS_ERR);
		iw_completion(SIDE->scq, 2, HDL_WC_WR_FLUSH_ERR);
		iw_no_event(SIDE);
		if (i + 1 < IW_COUNT(lengths))
			iw_close(&rig);
	}
}

/* What one offer hands out is sent by one call, so TCP cuts it after every segment. */
static unsigned take_aligned(uint32_t segment)
{
	struct stream_run runs[STREAM_MAX_RUNS];
	static uint8_t bytes[1u << 19];
	unsigned offers = 0;
	for (size_t count; (count = iwarp_stream.offer(&SIDE->iwarp, runs, IW_COUNT(runs))) > 0;) {
		size_t all = 0, at = 0;
		for (size_t i = 0; i < count; all += runs[i++].length)
			memcpy(bytes + all, runs[i].bytes, runs[i].length);
		while (at < all) {
			size_t fpdu = mpa_fpdu_bytes(&(struct mpa_sender){.crc = true},
			                             be16_load(bytes + at));
			assert_int_equal(at / segment, (at + fpdu - 1) / segment);
			at += fpdu;
		}
		assert_int_equal(at, all);
		iwarp_stream.taken(&SIDE->iwarp, all);
		offers++;
	}
	return offers;
}

/* RFC 5044 section 5: for a peer that needs it, no TCP segment ends within an FPDU, whatever the
 * lengths. A long message needs no more calls than without. */
static void rfc5044_5_fpdus_fall_on_segments(void **state)
{
	(void)state;
	enum { SEGMENT = 1448 };
	iw_close(&rig);
	iw_open(&rig,
	        &(struct iw_options){.terms = {.crc = true, .segment = SEGMENT, .aligned = true}},
	        1);
	for (uint32_t length = 0; length < 400; length++) {
		iw_rdma(SIDE, length, HDL_OP_WRITE, 0, length % 7 == 6 ? 2003 : length, 0x1000,
		        (struct hdl_key){IW_PEER_KEY});
		if (length % 20 != 19)
			continue;
		for (unsigned turn = 0; turn < 8; turn++) {
			iw_drive(&rig);
			take_aligned(SEGMENT);
		}
		for (uint32_t i = length - 19; i <= length; i++)
			iw_completion(SIDE->scq, i, HDL_WC_SUCCESS);
	}
	iw_rdma(SIDE, 1, HDL_OP_WRITE, 0, 30 * 1424, 0x1000, (struct hdl_key){IW_PEER_KEY});
	iw_drive(&rig);
	assert_true(take_aligned(SEGMENT) <= 3);
	iw_completion(SIDE->scq, 1, HDL_WC_SUCCESS);
}

/* A Terminate about something that is over, or about nothing that we know: an event names it. */
static void rfc5040_4_8_terminate_about_others(void **state)
{
	(void)state;
	iw_close(&rig);
	for (unsigned i = 0; i < 5; i++) {
		iw_open(&rig, &(struct iw_options){.terms = {.crc = true}}, 1);
		iw_rdma(SIDE, 1, HDL_OP_WRITE, 0, 50, 0x1000, (struct hdl_key){IW_PEER_KEY});
		assert_true(iw_look(&rig, &got));
		iw_completion(SIDE->scq, 1, HDL_WC_SUCCESS);
		iw_rdma(SIDE, 2, HDL_OP_READ, 0, 50, 0x1000, (struct hdl_key){IW_PEER_KEY});
		iw_drive(&rig);
		struct rdmap_segment s = {.opcode = RDMAP_TERMINATE, .msn = 1};
		uint8_t nonsense[RDMAP_MAX_HEADER_BYTES];
		memset(nonsense, 0x41, sizeof(nonsense));
		if (i == 0)
			rdmap_terminate_make(RDMAP_ERROR_DDP_BOUNDS, got.head, 64, &s.u.terminate);
		else if (i == 1)
			rdmap_terminate_make(RDMAP_ERROR_MPA_CRC, NULL, 0, &s.u.terminate);
		else if (i == 2) /* quotes what cannot be */
			rdmap_terminate_make(RDMAP_ERROR_RDMAP_ACCESS, nonsense, 94,
			                     &s.u.terminate);
		else if (i == 3) /* a read that does not exist */
			s.u.terminate = (struct rdmap_terminate){
			        .etype = 1,
			        .has_length = true,
			        .segment_bytes = 46,
			        .ddp_header =
			                (const uint8_t *)"\x41\x41\0\0\0\0\0\0\0\1\0\0\0\x77\0\0"
			                                 "\0",
			        .ddp_header_bytes = 18};
		else /* no such code */
			s.u.terminate = (struct rdmap_terminate){.layer = 9, .etype = 9, .code = 9};
		iw_put(&rig, &s, NULL, 0);
		static const uint32_t details[] = {HDL_DETAIL_BOUNDS, HDL_DETAIL_NONE,
		                                   HDL_DETAIL_ACCESS, HDL_DETAIL_NOT_VALID,
		                                   HDL_DETAIL_NONE};
		iw_event(SIDE, HDL_EVENT_QP_FATAL, details[i]);
		iw_completion(SIDE->scq, 2, HDL_WC_WR_FLUSH_ERR);
		iw_no_event(SIDE);
		iw_expect_silence(&rig);
		if (i < 4)
			iw_close(&rig);
	}
}

/* Local failures: the request has the status, the peer a Terminate. */
static void rfc5040_7_local_failures(void **state)
{
	(void)state;
	struct hdl_sge bad = {.addr = 0x1000, .length = 8, .key = {0x77}};
	iw_close(&rig);
	for (unsigned i = 0; i < 2; i++) {
		iw_open(&rig, &(struct iw_options){.terms = {.crc = true}}, 1);
		struct hdl_send_wr wr = {.wr_id = 1,
		                         .opcode = i == 0 ? HDL_OP_SEND : HDL_OP_READ,
		                         .sg_list = &bad,
		                         .num_sge = 1};
		iw_post(SIDE, wr);
		iw_drive(&rig);
		iw_completion(SIDE->scq, 1, HDL_WC_LOC_PROT_ERR);
		iw_expect_terminate(&rig, RDMAP_ERROR_RDMAP_CATASTROPHIC);
		if (i == 0)
			iw_close(&rig);
	}
}

/* MEMMGT figure 11, option 2: a registration by work request that fails terminates the stream. */
static void memmgt_11_failed_registration_terminates(void **state)
{
	(void)state;
	iw_close(&rig);
	struct iw_options o = {.terms = {.crc = true},
	                       .register_on_send = true,
	                       .register_error = HDL_REGISTER_ERROR_TERMINATE};
	iw_open(&rig, &o, 1);
	struct hdl_mr *mr;
	uint64_t page = (uint64_t)(uintptr_t)SIDE->mem;
	assert_int_equal(hdl_mr_alloc(SIDE->pd, 1, &mr), 0);
	struct hdl_send_wr wr = {.wr_id = 1, .opcode = HDL_OP_REGISTER};
	wr.reg.mr = mr;
	wr.reg.key = hdl_mr_key(mr);
	wr.reg.reg = (struct hdl_register){
	        .pages = &page, .num_pages = 1, .page_shift = 12, .length = 8192};
	iw_post(SIDE, wr);
	iw_drive(&rig);
	iw_completion(SIDE->scq, 1, HDL_WC_MEM_MGT_ERR);
	iw_expect_terminate(&rig, RDMAP_ERROR_RDMAP_CATASTROPHIC);
	assert_int_equal(hdl_mr_deregister(mr), 0);
}

/* Close in order: what was posted goes out and is answered, then comes FIN. */
static void rfc5040_5_close_in_order(void **state)
{
	(void)state;
	iw_rdma(SIDE, 1, HDL_OP_READ, 0, 50, 0x1000, (struct hdl_key){IW_PEER_KEY});
	iw_send(SIDE, 2, 0, 8);
	adapter_lock(SIDE->adapter);
	iwarp_close(&SIDE->iwarp);
	adapter_unlock(SIDE->adapter);
	assert_true(iw_look(&rig, &got));
	struct rdmap_segment s = {
	        .opcode = RDMAP_READ_RESPONSE, .last = true, .stag = got.s.u.read.sink_stag};
	assert_true(iw_look(&rig, &got));
	assert_int_equal(got.s.opcode, RDMAP_SEND);
	assert_int_equal(iwarp_ending(&SIDE->iwarp), IWARP_GOES_ON);
	uint8_t data[50] = {0};
	iw_put(&rig, &s, data, 50);
	iw_completion(SIDE->scq, 1, HDL_WC_SUCCESS);
	iw_completion(SIDE->scq, 2, HDL_WC_SUCCESS);
	assert_int_equal(iwarp_ending(&SIDE->iwarp), IWARP_FIN);
	assert_int_equal(iw_state(SIDE), HDL_QPS_SQD);
	iw_expect_silence(&rig);
	/* With the peer's FIN the connection is over: what still waits for a message is flushed. */
	iw_recv(SIDE, 3, 0, 100);
	adapter_lock(SIDE->adapter);
	iwarp_stream.ended(&SIDE->iwarp, STREAM_CLOSED);
	adapter_unlock(SIDE->adapter);
	iw_drive(&rig);
	assert_int_equal(iw_state(SIDE), HDL_QPS_ERR);
	iw_completion(SIDE->rcq, 3, HDL_WC_WR_FLUSH_ERR);
}

/* What is wrong with a message that comes after our FIN cannot be told any more, but it counts. */
static void rfc5040_5_an_error_after_close(void **state)
{
	(void)state;
	adapter_lock(SIDE->adapter);
	iwarp_close(&SIDE->iwarp);
	adapter_unlock(SIDE->adapter);
	assert_int_equal(iwarp_ending(&SIDE->iwarp), IWARP_FIN);
	iw_recv(SIDE, 1, 0, 100);
	iw_recv(SIDE, 2, 100, 100);
	iw_put(&rig, &(struct rdmap_segment){.opcode = RDMAP_SEND, .last = true, .msn = 1}, "good",
	       4);
	iw_completion(SIDE->rcq, 1, HDL_WC_SUCCESS);
	iw_put(&rig, &(struct rdmap_segment){.opcode = RDMAP_SEND, .last = true, .msn = 7}, "bad",
	       3);
	iw_event(SIDE, HDL_EVENT_QP_REQUEST_ERR, HDL_DETAIL_OUT_OF_WINDOW);
	assert_int_equal(iw_state(SIDE), HDL_QPS_ERR);
	assert_int_equal(iwarp_ending(&SIDE->iwarp), IWARP_ABORT);
	iw_completion(SIDE->rcq, 2, HDL_WC_WR_FLUSH_ERR);
	iw_expect_silence(&rig);
}

/* A delay begins when it is executed, however long ago the engine last looked at the clock. */
static void a_delay_is_not_short(void **state)
{
	(void)state;
	struct hdl_send_wr wr = {.wr_id = 1, .opcode = HDL_OP_DELAY};
	wr.u.delay.ns = 100000;
	iw_drive(&rig);
	rig.now_ns += 80000;
	iw_post(SIDE, wr);
	iw_pass(&rig, 90000, false);
	iw_no_completion(SIDE->scq);
	iw_pass(&rig, 40000, false);
	iw_completion(SIDE->scq, 1, HDL_WC_SUCCESS);
}

/* What is to be sent never takes the last chunk: two ends that both wait for one to receive into,
 * and so do not read, would wait for ever. */
static void a_chunk_is_left_for_receiving(void **state)
{
	(void)state;
	static uint8_t fpdu[MPA_MAX_FPDU_BYTES], data[1000];
	struct iwarp_chunk *rest = SIDE->pool.free->next->next;
	SIDE->pool.free->next->next = NULL; /* two are there */
	SIDE->pool.count = 2;
	for (unsigned i = 0; i < 4; i++)
		iw_send(SIDE, i, 0, 100000);
	iw_drive(&rig);
	assert_int_equal(SIDE->iwarp.out_chunks, 1);
	assert_int_equal(SIDE->pool.sending, 1);
	struct rdmap_segment s = {.opcode = RDMAP_WRITE,
	                          .last = true,
	                          .stag = iw_key(SIDE).v,
	                          .to = iw_address(SIDE, 200000)};
	memset(data, 0x5a, sizeof(data));
	size_t bytes = iw_fpdu(&rig, &s, data, sizeof(data), fpdu);
	assert_int_equal(iw_put_bytes(&rig, fpdu, bytes, 100), bytes);
	assert_memory_equal(SIDE->mem + 200000, data, sizeof(data));
	adapter_lock(SIDE->adapter);
	iwarp_out_drop(&SIDE->iwarp);
	adapter_unlock(SIDE->adapter);
	assert_int_equal(SIDE->pool.sending, 0);
	SIDE->pool.free->next->next = rest;
	SIDE->pool.count = IW_CHUNKS;
}

/* The connection goes on, if slowly, while others have all the chunks. */
static void bounded_memory_for_what_is_sent(void **state)
{
	(void)state;
	struct iwarp_chunk *all = SIDE->pool.free;
	SIDE->pool.free = NULL;
	iw_rdma(SIDE, 1, HDL_OP_WRITE, 0, 100000, 0x1000, (struct hdl_key){IW_PEER_KEY});
	uint64_t next = 0x1000;
	while (next < 0x1000 + 100000) {
		assert_true(iw_look(&rig, &got));
		assert_int_equal(got.s.to, next);
		assert_memory_equal(got.payload, SIDE->mem + next - 0x1000, got.bytes);
		next += got.bytes;
		assert_int_equal(got.s.last, next == 0x1000 + 100000);
	}
	iw_completion(SIDE->scq, 1, HDL_WC_SUCCESS);
	SIDE->pool.free = all;
	assert_true(sizeof(struct iwarp) <= 4096); /* what an idle connection costs */
}

/* Connections without a class leave a part of the shared chunks to urgent ones, and bulk ones leave
 * a part to both. Rows: how many others have filled, and whether a connection gets one more. */
static void classes_leave_chunks_to_those_above(void **state)
{
	(void)state;
	static const struct {
		size_t filled;
		bool gets[SERVICE_CLASSES];
	} rows[] = {
	        {2, {[SERVICE_URGENT] = true, [SERVICE_NORMAL] = true, [SERVICE_BULK] = true}},
	        {3, {[SERVICE_URGENT] = true, [SERVICE_NORMAL] = true}},
	        {4, {[SERVICE_URGENT] = true}},
	        {5, {false}},
	};
	for (unsigned i = 0; i < IW_COUNT(rows); i++) {
		for (uint8_t class = 0; class < SERVICE_CLASSES; class ++) {
			adapter_lock(SIDE->adapter);
			engine_serve(&SIDE->adapter->engine, &SIDE->qp->qp, class);
			adapter_unlock(SIDE->adapter);
			SIDE->pool.sending = rows[i].filled;
			iw_send(SIDE, 1, 0, 2 * IWARP_OWN_BYTES); /* its own chunk is too small */
			iw_drive(&rig);
			assert_int_equal(SIDE->iwarp.out_chunks, rows[i].gets[class]);
			SIDE->pool.sending -= rows[i].filled;
			teardown(state);
			setup(state);
		}
	}
}

/* A responder is silent until it has heard the initiator, or is told that it may speak. */
static void rfc6581_the_responder_waits(void **state)
{
	(void)state;
	struct iw_side *other = &rig.sides[1];
	struct stream_run run;
	iw_send(other, 1, 0, 8);
	iw_drive(&rig);
	adapter_lock(other->adapter);
	assert_int_equal(iwarp_stream.offer(&other->iwarp, &run, 1), 0);
	unsigned wakes = other->wakes;
	iwarp_may_send(&other->iwarp);
	assert_int_equal(other->wakes, wakes + 1);
	assert_int_equal(iwarp_stream.offer(&other->iwarp, &run, 1), 1);
	adapter_unlock(other->adapter);
}

#define RIGGED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(rfc5040_4_octets_on_the_wire),
	        RIGGED(rfc5040_4_each_kind_of_message),
	        RIGGED(rfc5040_5_5_over_when_the_memory_is_free),
	        RIGGED(rfc5040_5_reads_and_fences),
	        RIGGED(rfc5040_4_8_terminate_quotes_a_read),
	        RIGGED(siw_quotes_a_read_by_its_sink_tag),
	        RIGGED(rfc5044_5_fpdus_fall_on_segments),
	        RIGGED(rfc5040_4_8_terminate_about_others),
	        RIGGED(rfc5040_7_local_failures),
	        RIGGED(memmgt_11_failed_registration_terminates),
	        RIGGED(rfc5040_5_close_in_order),
	        RIGGED(rfc5040_5_an_error_after_close),
	        RIGGED(a_delay_is_not_short),
	        RIGGED(a_chunk_is_left_for_receiving),
	        RIGGED(bounded_memory_for_what_is_sent),
	        RIGGED(classes_leave_chunks_to_those_above),
	        RIGGED(rfc6581_the_responder_waits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
