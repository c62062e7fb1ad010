/* The responder of an iWARP connection: where the segments of the peer go, and when. */
#include "iwarp_rig.h"

#include <stdlib.h>
#include <sys/mman.h>

static struct iw_rig rig;
static struct iw_segment got;
static uint8_t fpdu[MPA_MAX_FPDU_BYTES], data[70000];
#define SIDE (&rig.sides[0])

static void begin(bool crc, bool srq)
{
	iw_open(&rig, &(struct iw_options){.terms = {.crc = crc}, .srq = srq}, 1);
}

/* Each kind of message on queue 0, and what its completion says. */
static void rfc5040_5_messages(void **state)
{
	(void)state;
	for (unsigned srq = 0; srq < 2; srq++) {
		begin(true, srq);
		uint32_t msn = 1;
		struct hdl_mr *mr;
		assert_int_equal(hdl_mr_alloc(SIDE->pd, 1, &mr), 0);
		for (unsigned i = 0; i < 4; i++) {
			static const enum rdmap_opcode opcodes[] = {
			        RDMAP_SEND, RDMAP_SEND_SE, RDMAP_IMMEDIATE, RDMAP_IMMEDIATE_SE};
			struct rdmap_segment s = {.opcode = opcodes[i],
			                          .last = true,
			                          .msn = msn++,
			                          .u.immediate = 0x0102030400000000};
			iw_recv(SIDE, i, 1000 * i, 1000);
			iw_put(&rig, &s, data, i < 2 ? 700 : 0);
			struct hdl_wc wc = iw_completion(SIDE->rcq, i, HDL_WC_SUCCESS);
			assert_int_equal(wc.byte_len, i < 2 ? 700 : 0);
			assert_int_equal(wc.opcode, i < 2 ? HDL_WC_RECV : HDL_WC_RECV_WRITE_IMM);
			assert_int_equal(wc.flags, i < 2 ? 0 : HDL_WC_WITH_IMM);
			if (i >= 2)
				assert_int_equal(wc.imm, 0x04030201);
			else
				assert_memory_equal(SIDE->mem + 1000 * i, data, 700);
		}
		assert_int_equal(hdl_mr_deregister(mr), 0);
		iw_close(&rig);
	}
}

/* No receive: nothing is taken until there is one; the message is not lost. */
static void no_receive_holds_the_peer_back(void **state)
{
	(void)state;
	for (unsigned way = 0; way < 8; way++) {
		begin(way & 1, way & 2);
		rig.by_feed = way & 4;
		struct rdmap_segment s = {.opcode = RDMAP_SEND, .last = true, .msn = 1};
		size_t bytes = iw_fpdu(&rig, &s, data, 300, fpdu);
		size_t taken = iw_put_bytes(&rig, fpdu, bytes, 0);
		assert_true(taken <
		            bytes); /* data read ahead is left whole, else the header is taken */
		iw_pass(&rig, IWARP_RECEIVE_WAIT_NS / 2, false);
		assert_int_equal(iw_put_bytes(&rig, fpdu + taken, bytes - taken, 0), 0);
		unsigned wakes = SIDE->wakes;
		iw_recv(SIDE, 1, 0, 300);
		iw_pass(&rig, 2 * IWARP_RECEIVE_LOOK_MAX_NS, false);
		assert_true(SIDE->wakes > wakes); /* the owner is told */
		assert_int_equal(iw_put_bytes(&rig, fpdu + taken, bytes - taken, 0), bytes - taken);
		iw_completion(SIDE->rcq, 1, HDL_WC_SUCCESS);
		assert_memory_equal(SIDE->mem, data, 300);
		/* The time begins anew for the next message. */
		iw_pass(&rig, IWARP_RECEIVE_WAIT_NS, false);
		assert_int_equal(iw_state(SIDE), HDL_QPS_RTS);
		iw_close(&rig);
	}
}

static void rfc5041_7_2_no_receive_for_too_long(void **state)
{
	(void)state;
	for (unsigned way = 0; way < 4; way++) {
		begin(true, way & 2);
		rig.by_feed = way & 1;
		struct rdmap_segment s = {.opcode = RDMAP_SEND, .last = true, .msn = 1};
		iw_put_bytes(&rig, fpdu, iw_fpdu(&rig, &s, data, 300, fpdu), 0);
		iw_pass(&rig, IWARP_RECEIVE_WAIT_NS - IWARP_RECEIVE_LOOK_MAX_NS, false);
		assert_int_equal(iw_state(SIDE), HDL_QPS_RTS);
		iw_pass(&rig, 3 * IWARP_RECEIVE_LOOK_MAX_NS, false);
		iw_event(SIDE, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_LIMIT);
		iw_expect_terminate(&rig, RDMAP_ERROR_DDP_NO_BUFFER);
		iw_close(&rig);
	}
}

/* Where a body goes before its CRC is known: a damaged one leaves no trace but in memory that
 * nobody may look at yet. */
static void rfc5044_a_placement_before_the_crc(void **state)
{
	(void)state;
	struct stream_run run;
	begin(true, false);
	struct rdmap_segment s = {
	        .opcode = RDMAP_WRITE, .stag = iw_key(SIDE).v, .to = iw_address(SIDE, 0)};
	/* The first segment of a write is held back, in a chunk; the next goes where it belongs. */
	for (unsigned i = 0; i < 2; i++) {
		size_t bytes = iw_fpdu(&rig, &s, data, 800, fpdu);
		iw_put_bytes(&rig, fpdu, 16, 0);
		assert_int_equal(iwarp_stream.want(&SIDE->iwarp, &run, 1), 1);
		assert_int_equal(run.length, 800);
		if (i == 0)
			assert_ptr_equal(run.bytes, SIDE->iwarp.hold->bytes);
		else
			assert_ptr_equal(run.bytes, SIDE->mem + 800);
		iw_put_bytes(&rig, fpdu + 16, bytes - 16, 0);
		assert_memory_equal(SIDE->mem + 800 * i, data, 800);
		s.to += 800;
	}
	/* Same message, another place: held back again. */
	s.to += 8;
	size_t bytes = iw_fpdu(&rig, &s, data, 800, fpdu);
	iw_put_bytes(&rig, fpdu, bytes - 1, 0);
	assert_memory_not_equal(SIDE->mem + 1608, data, 800);
	iw_put_bytes(&rig, fpdu + bytes - 1, 1, 0);
	assert_memory_equal(SIDE->mem + 1608, data, 800);
	iw_close(&rig);
}

/* Chunks are bounded. A write that is to be held back waits for one, and who has one goes on. */
static void held_back_segments_share_chunks(void **state)
{
	(void)state;
	begin(true, false);
	struct iwarp_chunk *all = SIDE->pool.free;
	SIDE->pool.free = NULL;
	struct rdmap_segment s = {.opcode = RDMAP_WRITE,
	                          .last = true,
	                          .stag = iw_key(SIDE).v,
	                          .to = iw_address(SIDE, 0)};
	size_t bytes = iw_fpdu(&rig, &s, data, 800, fpdu);
	size_t taken = iw_put_bytes(&rig, fpdu, bytes, 0);
	assert_int_equal(taken, 16);
	assert_int_equal(iw_put_bytes(&rig, fpdu + taken, bytes - taken, 0), 0);
	/* So does a write of another connection that shares them. */
	struct iw_side *other = &rig.sides[1];
	static uint8_t second[MPA_MAX_FPDU_BYTES];
	other->adapter->engine.iwarp_pool = &SIDE->pool;
	s.stag = iw_key(other).v;
	s.to = iw_address(other, 0);
	size_t length = iw_fpdu(&rig, &s, data, 800, second);
	adapter_lock(other->adapter);
	assert_int_equal(stream_feed(&iwarp_stream, &other->iwarp, second, length, &other->open),
	                 16);
	adapter_unlock(other->adapter);
	unsigned wakes = SIDE->wakes, others = other->wakes;
	adapter_lock(SIDE->adapter);
	SIDE->pool.free = all->next;
	iwarp_chunk_give(&SIDE->iwarp, all);
	adapter_unlock(SIDE->adapter);
	assert_int_equal(SIDE->wakes, wakes + 1);
	assert_int_equal(other->wakes, others + 1);
	/* Part of it, and then nothing any more. */
	iw_put_bytes(&rig, fpdu + taken, 100, 0);
	iw_pass(&rig, IWARP_STALL_NS - 1000000, false);
	assert_int_equal(iw_state(SIDE), HDL_QPS_RTS);
	iw_pass(&rig, 2000000, false);
	iw_expect_terminate(&rig, RDMAP_ERROR_MPA_CATASTROPHIC);
	iw_close(&rig);
}

static void rfc7306_5_masked_atomics(void **state)
{
	(void)state;
	static const struct {
		struct rdmap_atomic_request r;
		uint64_t before, after;
	} rows[] = {
	        {{.operation = RDMAP_FETCH_ADD, .data = 5}, 7, 12},
	        {{.operation = RDMAP_FETCH_ADD, .data = 1, .mask = 1ull << 63}, UINT64_MAX, 0},
	        /* two fields of 32 bits */
	        {{.operation = RDMAP_FETCH_ADD,
	          .data = 0x0000000100000001,
	          .mask = 0x8000000080000000},
	         0x00000005ffffffff,
	         0x0000000600000000},
	        {{.operation = RDMAP_SWAP, .data = 0x1122334455667788, .mask = 0xff00ff00ff00ff00},
	         0,
	         0x1100330055007700},
	        {{.operation = RDMAP_COMPARE_SWAP,
	          .data = 0xaaaa,
	          .mask = UINT64_MAX,
	          .compare = 3,
	          .compare_mask = UINT64_MAX},
	         3,
	         0xaaaa},
	        {{.operation = RDMAP_COMPARE_SWAP,
	          .data = 0xaaaa,
	          .mask = UINT64_MAX,
	          .compare = 3,
	          .compare_mask = UINT64_MAX},
	         4,
	         4},
	        {{.operation = RDMAP_COMPARE_SWAP,
	          .data = 0xaaaa,
	          .mask = 0xff,
	          .compare = 3,
	          .compare_mask = 0xf},
	         0x1233,
	         0x12aa},
	        {{.operation = RDMAP_COMPARE_SWAP,
	          .data = 0xaaaa,
	          .mask = 0xff,
	          .compare = 3,
	          .compare_mask = 0xf},
	         0x1234,
	         0x1234},
	};
	begin(true, false);
	uint64_t *word = (uint64_t *)(void *)(SIDE->mem + 64);
	for (unsigned i = 0; i < IW_COUNT(rows); i++) {
		*word = rows[i].before;
		struct rdmap_segment s = {
		        .opcode = RDMAP_ATOMIC_REQUEST, .msn = i + 1, .u.atomic = rows[i].r};
		s.u.atomic.id = 900 + i;
		s.u.atomic.stag = iw_key(SIDE).v;
		s.u.atomic.to = iw_address(SIDE, 64);
		iw_put(&rig, &s, NULL, 0);
		assert_true(iw_look(&rig, &got));
		assert_int_equal(got.s.opcode, RDMAP_ATOMIC_RESPONSE);
		assert_int_equal(got.s.msn, i + 1);
		assert_int_equal(got.s.u.atomic_response.id, 900 + i);
		assert_int_equal(got.s.u.atomic_response.original, rows[i].before);
		assert_int_equal(*word, rows[i].after);
	}
	iw_close(&rig);
}

/* The answer to a read is what the memory holds when it is copied, and its CRC is right whatever
 * the application does to it meanwhile; memory that is no longer granted ends it. */
static void rfc5040_5_reads_of_changing_memory(void **state)
{
	(void)state;
	begin(true, false);
	struct rdmap_segment s = {.opcode = RDMAP_READ_REQUEST,
	                          .msn = 1,
	                          .u.read = {.sink_stag = 0x99,
	                                     .sink_to = 1ull << 40,
	                                     .bytes = 200000,
	                                     .source_stag = iw_key(SIDE).v,
	                                     .source_to = iw_address(SIDE, 0)}};
	iw_put(&rig, &s, NULL, 0);
	uint32_t done = 0;
	while (done < 200000) {
		SIDE->mem[done + 10]++; /* FPDUs in chunks are copies: iw_look() checks the CRC */
		assert_true(iw_look(&rig, &got));
		assert_int_equal(got.s.opcode, RDMAP_READ_RESPONSE);
		assert_int_equal(got.s.stag, 0x99);
		assert_int_equal(got.s.to, (1ull << 40) + done);
		done += got.bytes;
		assert_int_equal(got.s.last, done == 200000);
	}
	/* Its key is taken back in the middle. */
	struct hdl_mr *mr;
	assert_int_equal(hdl_mr_register(SIDE->pd, data, sizeof(data),
	                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_REMOTE_READ, &mr),
	                 0);
	for (unsigned i = 0; i < IW_CHUNKS; i++) { /* more than the chunks hold at a time */
		s.msn++;
		s.u.read.bytes = sizeof(data);
		s.u.read.source_stag = hdl_mr_key(mr).v;
		s.u.read.source_to = (uint64_t)(uintptr_t)data;
		if (i < 4)
			iw_put(&rig, &s, NULL, 0);
	}
	assert_true(iw_look(&rig, &got));
	assert_int_equal(hdl_mr_deregister(mr), 0);
	while (iw_look(&rig, &got) && got.s.opcode == RDMAP_READ_RESPONSE)
		;
	assert_int_equal(got.s.opcode, RDMAP_TERMINATE);
	const struct rdmap_terminate *t = &got.s.u.terminate;
	assert_int_equal(rdmap_error_find(t->layer, t->etype, t->code),
	                 RDMAP_ERROR_RDMAP_INVALID_STAG);
	assert_int_equal(t->rdmap_header_bytes,
	                 RDMAP_READ_REQUEST_BYTES); /* the request, as it came */
	assert_int_equal(t->segment_bytes, DDP_UNTAGGED_BYTES + RDMAP_READ_REQUEST_BYTES);
	iw_close(&rig);
}

/* Memory behind a key is gone: nobody crashes, and the right one is told. */
static void memory_that_is_gone(void **state)
{
	(void)state;
	for (unsigned way = 0; way < 6; way++) {
		begin(true, false);
		rig.by_feed = true;
		uint8_t *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct hdl_mr *mr;
		assert_int_equal(hdl_mr_register(SIDE->pd, page, 8192,
		                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
		                                         HDL_ACCESS_REMOTE_WRITE |
		                                         HDL_ACCESS_REMOTE_READ,
		                                 &mr),
		                 0);
		struct hdl_sge list = {
		        .addr = (uint64_t)(uintptr_t)page, .length = 8192, .key = hdl_mr_key(mr)};
		struct rdmap_segment s = {.opcode = RDMAP_WRITE,
		                          .last = true,
		                          .stag = hdl_mr_key(mr).v,
		                          .to = list.addr};
		size_t payload = 6000;
		if (way == 1) {
			struct hdl_recv_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1};
			assert_int_equal(hdl_post_recv(SIDE->qp, &wr, NULL), 0);
			s = (struct rdmap_segment){.opcode = RDMAP_SEND, .last = true, .msn = 1};
		} else if (way == 2) {
			struct hdl_send_wr wr = {
			        .wr_id = 2, .opcode = HDL_OP_READ, .sg_list = &list, .num_sge = 1};
			iw_post(SIDE, wr);
			assert_true(iw_look(&rig, &got));
			s = (struct rdmap_segment){.opcode = RDMAP_READ_RESPONSE,
			                           .stag = got.s.u.read.sink_stag};
		} else if (way == 3) {
			s = (struct rdmap_segment){.opcode = RDMAP_READ_REQUEST,
			                           .msn = 1,
			                           .u.read = {.bytes = 8192,
			                                      .source_stag = hdl_mr_key(mr).v,
			                                      .source_to = list.addr}};
			payload = 0;
		}
		assert_int_equal(munmap(page + 4096, 4096), 0);
		if (way == 4) {
			struct hdl_send_wr wr = {
			        .wr_id = 3, .opcode = HDL_OP_SEND, .sg_list = &list, .num_sge = 1};
			iw_post(SIDE, wr);
			iw_drive(&rig);
			iw_completion(SIDE->scq, 3, HDL_WC_LOC_ACCESS_ERR);
		} else {
			size_t bytes = iw_fpdu(&rig, &s, data, payload, fpdu);
			iw_put_bytes(&rig, fpdu, bytes, way == 5 ? 1000 : 0);
		}
		struct hdl_event event;
		assert_int_equal(hdl_event_get(SIDE->adapter, &event, 0), 0);
		assert_int_equal(event.type, HDL_EVENT_MEMORY_GONE);
		assert_int_equal(event.u.key.v, hdl_mr_key(mr).v);
		if (way == 1)
			iw_completion(SIDE->rcq, 1, HDL_WC_LOC_ACCESS_ERR);
		else if (way == 2)
			iw_completion(SIDE->scq, 2, HDL_WC_LOC_ACCESS_ERR);
		else if (way != 4)
			iw_event(SIDE, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_GONE);
		bool own = way == 1 || way == 2 || way == 4;
		iw_expect_terminate(&rig, own ? RDMAP_ERROR_RDMAP_CATASTROPHIC
		                              : RDMAP_ERROR_RDMAP_STREAM_FAILED);
		assert_int_equal(hdl_mr_deregister(mr), 0);
		assert_int_equal(munmap(page, 4096), 0);
		iw_close(&rig);
	}
}

/* A piece without bytes is not the one that is gone. */
static void the_right_memory_is_blamed(void **state)
{
	(void)state;
	begin(true, false);
	uint8_t *page =
	        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct hdl_event event;
	struct hdl_mr *mr;
	assert_int_equal(hdl_mr_register(SIDE->pd, page, 4096,
	                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE, &mr),
	                 0);
	struct hdl_sge list[2] = {
	        iw_piece(SIDE, 0, 0),
	        {.addr = (uint64_t)(uintptr_t)page, .length = 4096, .key = hdl_mr_key(mr)}};
	struct hdl_recv_wr wr = {.wr_id = 1, .sg_list = list, .num_sge = 2};
	assert_int_equal(hdl_post_recv(SIDE->qp, &wr, NULL), 0);
	hdl_segment_update(SIDE->adapter, page, 4096);
	iw_put(&rig, &(struct rdmap_segment){.opcode = RDMAP_SEND, .last = true, .msn = 1}, data,
	       100);
	iw_completion(SIDE->rcq, 1, HDL_WC_LOC_ACCESS_ERR);
	while (hdl_event_get(SIDE->adapter, &event, 0) == 0)
		assert_false(event.type == HDL_EVENT_MEMORY_GONE &&
		             event.u.key.v == iw_key(SIDE).v);
	assert_int_equal(hdl_mr_deregister(mr), 0);
	assert_int_equal(munmap(page, 4096), 0);
	iw_close(&rig);
}

/* A turn that only builds an answer did something, so that whoever drives goes on at once, and one
 * that finds no room did not. */
static void a_turn_that_answers_did_something(void **state)
{
	(void)state;
	begin(true, false);
	struct rdmap_segment s = {.opcode = RDMAP_READ_REQUEST,
	                          .last = true,
	                          .msn = 1,
	                          .u.read = {.sink_stag = 7,
	                                     .bytes = IW_BYTES,
	                                     .source_stag = iw_key(SIDE).v,
	                                     .source_to = iw_address(SIDE, 0)}};
	iw_put(&rig, &s, NULL, 0);
	unsigned turns = 0;
	for (; iwarp_owes(&SIDE->qp->qp); turns++) {
		struct stream_run runs[STREAM_MAX_RUNS];
		size_t bytes = 0;
		uint64_t before = SIDE->iwarp.sender.position;
		assert_int_equal(hdl_progress(SIDE->adapter), 0); /* every chunk is full */
		adapter_lock(SIDE->adapter);
		for (size_t i = iwarp_stream.offer(&SIDE->iwarp, runs, STREAM_MAX_RUNS); i-- > 0;)
			bytes += runs[i].length;
		iwarp_stream.taken(&SIDE->iwarp, bytes);
		adapter_unlock(SIDE->adapter);
		assert_true(hdl_progress(SIDE->adapter) > 0);
		assert_true(SIDE->iwarp.sender.position > before);
	}
	assert_true(turns > 0);
	iw_close(&rig);
}

/* One-touch memory is over with its message (MEMMGT figure 18B, table D). */
static void memmgt_18b_one_touch(void **state)
{
	(void)state;
	begin(true, false);
	struct hdl_mr *mr;
	assert_int_equal(hdl_mr_register(SIDE->pd, SIDE->mem, 4096,
	                                 HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_WRITE |
	                                         HDL_ACCESS_ONE_TOUCH,
	                                 &mr),
	                 0);
	struct rdmap_segment s = {
	        .opcode = RDMAP_WRITE, .stag = hdl_mr_key(mr).v, .to = iw_address(SIDE, 0)};
	iw_put(&rig, &s, data, 100);
	s.to += 100;
	s.last = true;
	iw_put(&rig, &s, data + 100, 100);
	assert_true(SIDE->open);
	assert_memory_equal(SIDE->mem, data, 200);
	/* That the entry is over is nobody's business but its owner's, who asked for it. */
	iw_expect_silence(&rig);
	iw_no_event(SIDE);
	iw_put(&rig, &s, data, 100);
	iw_expect_terminate(&rig, RDMAP_ERROR_DDP_INVALID_STAG);
	assert_int_equal(hdl_mr_deregister(mr), 0);
	iw_close(&rig);
}

/* However its segments divide a message, it uses up the memory that they touched: the octets may
 * come before the Last bit, and under more than one tag. A message without octets touches nothing
 * (RFC 5041 section 5.1 (f)). */
static void memmgt_18b_the_end_brings_no_octets(void **state)
{
	enum { A, B, KEYS };
	static const struct {
		struct {
			uint8_t key;
			bool last;
			uint16_t bytes;
		} segments[4];
		uint8_t count;
		bool over[KEYS];
	} rows[] = {
	        {{{A, true, 0}}, 1, {false, false}},
	        {{{A, false, 0}, {A, true, 0}}, 2, {false, false}},
	        {{{A, false, 100}}, 1, {false, false}},
	        {{{A, false, 100}, {A, true, 0}}, 2, {true, false}},
	        {{{A, false, 0}, {A, false, 100}, {A, false, 0}, {A, true, 0}}, 4, {true, false}},
	        {{{A, false, 100}, {B, true, 0}}, 2, {true, false}},
	        {{{A, false, 100}, {B, true, 100}}, 2, {true, true}},
	        {{{A, false, 100}, {B, false, 100}}, 2, {true, false}},
	        {{{A, false, 0}, {B, true, 100}}, 2, {false, true}},
	};
	(void)state;
	for (size_t way = 0; way < 2 * IW_COUNT(rows); way++) {
		size_t row = way / 2;
		struct hdl_mr *mr[KEYS];
		uint64_t to = 0;
		begin(way % 2, false);
		for (unsigned k = 0; k < KEYS; k++)
			assert_int_equal(hdl_mr_register(SIDE->pd, SIDE->mem, 4096,
			                                 HDL_ACCESS_LOCAL_WRITE |
			                                         HDL_ACCESS_REMOTE_WRITE |
			                                         HDL_ACCESS_ONE_TOUCH,
			                                 &mr[k]),
			                 0);
		for (unsigned i = 0; i < rows[row].count; i++) {
			uint16_t bytes = rows[row].segments[i].bytes;
			iw_put(&rig,
			       &(struct rdmap_segment){
			               .opcode = RDMAP_WRITE,
			               .last = rows[row].segments[i].last,
			               .stag = hdl_mr_key(mr[rows[row].segments[i].key]).v,
			               .to = iw_address(SIDE, to)},
			       data + to, bytes);
			to += bytes;
		}
		assert_true(SIDE->open);
		assert_memory_equal(SIDE->mem, data, to);
		for (unsigned k = 0; k < KEYS; k++) {
			struct tpt_entry entry;
			assert_true(tpt_read(&SIDE->adapter->engine.tpt->view, hdl_mr_key(mr[k]),
			                     &entry));
			assert_int_equal((entry.flags & TPT_VALID) == 0, rows[row].over[k]);
		}
		/* And to the peer: a second message through the key is refused. */
		for (unsigned k = 0; k < KEYS && SIDE->open; k++) {
			if (!rows[row].over[k])
				continue;
			iw_put(&rig,
			       &(struct rdmap_segment){.opcode = RDMAP_WRITE,
			                               .last = true,
			                               .stag = hdl_mr_key(mr[k]).v,
			                               .to = iw_address(SIDE, 1000)},
			       data + 1, 8);
			iw_expect_terminate(&rig, RDMAP_ERROR_DDP_INVALID_STAG);
			assert_memory_not_equal(SIDE->mem + 1000, data + 1, 8);
		}
		for (unsigned k = 0; k < KEYS; k++)
			assert_int_equal(hdl_mr_deregister(mr[k]), 0);
		iw_close(&rig);
	}
}

int main(void)
{
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 5 + i / 256 + 3);
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc5040_5_messages),
	        cmocka_unit_test(no_receive_holds_the_peer_back),
	        cmocka_unit_test(rfc5041_7_2_no_receive_for_too_long),
	        cmocka_unit_test(rfc5044_a_placement_before_the_crc),
	        cmocka_unit_test(held_back_segments_share_chunks),
	        cmocka_unit_test(rfc7306_5_masked_atomics),
	        cmocka_unit_test(rfc5040_5_reads_of_changing_memory),
	        cmocka_unit_test(memory_that_is_gone),
	        cmocka_unit_test(the_right_memory_is_blamed),
	        cmocka_unit_test(a_turn_that_answers_did_something),
	        cmocka_unit_test(memmgt_18b_one_touch),
	        cmocka_unit_test(memmgt_18b_the_end_brings_no_octets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
