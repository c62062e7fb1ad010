/* What the responder of a reliable connection refuses, packet by packet (IBTA volume 1
 * section 9.7), and what becomes of the queue pair; and what it does not even answer. */
#include "ib_rig.h"

#define FIRST RIG_RQ_PSN

static void expect_refusal(struct rig *rig, uint32_t psn, uint8_t code, uint32_t event,
                           uint32_t detail)
{
	rig_expect_answer(rig, psn, IB_AETH_NAK, code, -1);
	rig_expect_none(rig);
	assert_int_equal(rig_state(rig), HDL_QPS_ERR);
	rig_expect_event(rig, event, detail);
	rig_no_event(rig);
	/* From now on there is nobody. */
	rig_take_write(rig, psn, 0);
	rig_take_write(rig, psn + 1, 0);
	rig_expect_none(rig);
	assert_true(rig_holds(rig, 0, 0, 0, 16));
}

/* C9-81 to C9-87, table 35: which opcode may follow which. */
static void opcodes_out_of_order(void **state)
{
	static const uint8_t rows[][3] = {
	        {IB_OP_SEND_MIDDLE},
	        {IB_OP_SEND_LAST},
	        {IB_OP_SEND_LAST_IMM},
	        {IB_OP_SEND_LAST_INV},
	        {IB_OP_WRITE_MIDDLE},
	        {IB_OP_WRITE_LAST},
	        {IB_OP_WRITE_LAST_IMM},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_SEND_FIRST},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_SEND_ONLY},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_WRITE_MIDDLE},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_WRITE_LAST},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_WRITE_ONLY},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_READ_REQUEST},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_FETCH_ADD},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_SEND_MIDDLE, 1 + IB_OP_WRITE_LAST},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_SEND_MIDDLE},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_SEND_LAST},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_WRITE_FIRST},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_WRITE_ONLY},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_READ_REQUEST},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_COMPARE_SWAP},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_WRITE_MIDDLE, 1 + IB_OP_SEND_LAST},
	};
	struct rig *rig = *state;
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		uint32_t psn = FIRST;
		rig_qp(rig, NULL);
		rig_recv(rig, 1, 4096, 2000);
		for (uint32_t n = 0; n < 3 && (n == 0 || rows[i][n] != 0); n++) {
			uint8_t opcode = (uint8_t)(n == 0 ? rows[i][0] : rows[i][n] - 1);
			bool whole = opcode == IB_OP_READ_REQUEST || opcode == IB_OP_FETCH_ADD ||
			             opcode == IB_OP_COMPARE_SWAP;
			struct ib_packet packet =
			        rig_rdma(rig, opcode, psn, 8192, 1000, whole ? 0 : 256);
			packet.atomiceth.addr = rig_address(rig, 64);
			packet.atomiceth.rkey = hdl_mr_key(rig->mr).v;
			rig_skip(rig);
			rig_take(rig, &packet);
			psn++;
		}
		expect_refusal(rig, psn - 1, IB_NAK_INVALID_REQUEST, HDL_EVENT_QP_REQUEST_ERR,
		               HDL_DETAIL_NONE);
		struct hdl_wc wc;
		assert_int_equal(hdl_cq_poll(rig->rcq, &wc, 1), 1);
		assert_int_equal(wc.status, HDL_WC_WR_FLUSH_ERR);
	}
}

/* C9-90 and table 36: first and middle packets are full, the last one has something, none has more
 * than the MTU; a write brings what it announced. */
static void payloads_of_the_wrong_length(void **state)
{
	static const struct {
		uint8_t first;
		uint16_t first_bytes;
		uint8_t second; /* 0: none */
		uint16_t second_bytes;
		uint16_t announced;
	} rows[] = {
	        {IB_OP_SEND_FIRST, 255, 0, 0, 0},
	        {IB_OP_SEND_FIRST, 0, 0, 0, 0},
	        {IB_OP_SEND_FIRST, 260, 0, 0, 0},
	        {IB_OP_SEND_ONLY, 257, 0, 0, 0},
	        {IB_OP_SEND_FIRST, 256, IB_OP_SEND_MIDDLE, 255, 0},
	        {IB_OP_SEND_FIRST, 256, IB_OP_SEND_MIDDLE, 257, 0},
	        {IB_OP_SEND_FIRST, 256, IB_OP_SEND_LAST, 0, 0},
	        {IB_OP_SEND_FIRST, 256, IB_OP_SEND_LAST, 257, 0},
	        {IB_OP_WRITE_FIRST, 255, 0, 0, 1000},
	        {IB_OP_WRITE_ONLY, 257, 0, 0, 257},
	        {IB_OP_WRITE_ONLY, 16, 0, 0, 17},
	        {IB_OP_WRITE_ONLY, 16, 0, 0, 15},
	        {IB_OP_WRITE_ONLY, 0, 0, 0, 1},
	        {IB_OP_WRITE_FIRST, 256, IB_OP_WRITE_LAST, 43, 300},
	        {IB_OP_WRITE_FIRST, 256, IB_OP_WRITE_LAST, 45, 300},
	        {IB_OP_WRITE_FIRST, 256, IB_OP_WRITE_MIDDLE, 256, 300},
	};
	struct rig *rig = *state;
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		rig_qp(rig, NULL);
		rig_recv(rig, 1, 4096, 2000);
		struct ib_packet packet = rig_rdma(rig, rows[i].first, FIRST, 8192,
		                                   rows[i].announced, rows[i].first_bytes);
		rig_take(rig, &packet);
		uint32_t psn = FIRST;
		if (rows[i].second != 0) {
			rig_skip(rig);
			packet = rig_data(rig, (uint8_t)(IB_RC + rows[i].second), ++psn,
			                  RIG_RDMA_SEED, rows[i].second_bytes);
			rig_take(rig, &packet);
		}
		expect_refusal(rig, psn, IB_NAK_INVALID_REQUEST, HDL_EVENT_QP_REQUEST_ERR,
		               HDL_DETAIL_NONE);
		struct hdl_wc wc;
		assert_int_equal(hdl_cq_poll(rig->rcq, &wc, 1), 1);
		assert_int_equal(wc.status, HDL_WC_WR_FLUSH_ERR);
		assert_true(rig_holds(rig, 8192 + 300, 0, 8192 + 300, 300));
	}
}

/* C9-96 and following: key, bounds and rights. */
static void memory_that_is_not_granted(void **state)
{
	enum { KEY, BOUNDS, BEFORE, WRAPPED, RIGHTS, KINDS };
	static const uint32_t details[KINDS] = {HDL_DETAIL_INSTANCE, HDL_DETAIL_BOUNDS,
	                                        HDL_DETAIL_BOUNDS, HDL_DETAIL_BOUNDS,
	                                        HDL_DETAIL_ACCESS};
	static const uint8_t opcodes[] = {IB_OP_WRITE_ONLY, IB_OP_WRITE_FIRST, IB_OP_READ_REQUEST,
	                                  IB_OP_FETCH_ADD};
	struct rig *rig = *state;
	struct hdl_mr *local;
	assert_int_equal(hdl_mr_register(rig->pd, rig->mem, RIG_BYTES,
	                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE, &local),
	                 0);
	for (uint32_t i = 0; i < KINDS * COUNT(opcodes); i++) {
		uint32_t kind = i / COUNT(opcodes);
		uint8_t opcode = opcodes[i % COUNT(opcodes)];
		rig_qp(rig, NULL);
		struct ib_packet packet = rig_rdma(rig, opcode, FIRST, 0, 512,
		                                   opcode == IB_OP_WRITE_FIRST  ? 256
		                                   : opcode == IB_OP_WRITE_ONLY ? 200
		                                                                : 0);
		if (opcode == IB_OP_WRITE_ONLY)
			packet.reth.length_bytes = 200;
		if (kind == KEY)
			packet.reth.rkey ^= 1;
		else if (kind == BOUNDS)
			packet.reth.addr +=
			        RIG_BYTES -
			        192; /* nothing of it is placed, not the good part either */
		else if (kind == BEFORE)
			packet.reth.addr -= 8;
		else if (kind == WRAPPED)
			packet.reth.addr = UINT64_MAX - 7;
		else
			packet.reth.rkey = hdl_mr_key(local).v;
		packet.atomiceth.addr = kind == BOUNDS ? packet.reth.addr + 192 : packet.reth.addr;
		packet.atomiceth.rkey = packet.reth.rkey;
		rig_take(rig, &packet);
		expect_refusal(rig, FIRST, IB_NAK_REMOTE_ACCESS_ERROR, HDL_EVENT_QP_ACCESS_ERR,
		               details[kind]);
	}
	for (size_t i = 0; i < RIG_BYTES; i++)
		assert_int_equal(rig->mem[i], rig_byte(0, i));
	assert_int_equal(hdl_mr_deregister(local), 0);
}

/* IP5: a one-touch key is valid for one message, and a read is one when its last response is out,
 * or, if that is full, when no other read goes on where it ended. */
static void a_one_touch_key_opens_once(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t bytes, packets;
		uint8_t answer;
		bool goes_on; /* another read follows, of what comes next */
	} rows[] = {
	        {IB_OP_WRITE_ONLY, 200, 1, IB_OP_ACK, false},
	        {IB_OP_FETCH_ADD, 8, 1, IB_OP_ATOMIC_ACK, false},
	        {IB_OP_READ_REQUEST, 200, 1, IB_OP_READ_RESPONSE_ONLY, false},
	        {IB_OP_READ_REQUEST, 600, 3, IB_OP_READ_RESPONSE_LAST, false},
	        {IB_OP_READ_REQUEST, 512, 2, IB_OP_READ_RESPONSE_LAST, false},
	        {IB_OP_READ_REQUEST, 512, 2, IB_OP_READ_RESPONSE_LAST, true},
	};
	struct rig *rig = *state;
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		struct hdl_mr *once;
		uint32_t psn = FIRST;
		assert_int_equal(
		        hdl_mr_register(rig->pd, rig->mem, RIG_BYTES,
		                        HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
		                                HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
		                                HDL_ACCESS_REMOTE_ATOMIC | HDL_ACCESS_ONE_TOUCH,
		                        &once),
		        0);
		rig_qp(rig, NULL);
		struct ib_packet packet =
		        rig_rdma(rig, rows[i].opcode, psn, 4096, rows[i].bytes,
		                 rows[i].opcode == IB_OP_WRITE_ONLY ? rows[i].bytes : 0);
		packet.reth.rkey = packet.atomiceth.rkey = hdl_mr_key(once).v;
		packet.atomiceth.addr = packet.reth.addr;
		for (unsigned part = 0; part < (rows[i].goes_on ? 2 : 1); part++) {
			const struct ib_packet *answer = NULL, *next;
			packet.bth.psn = psn;
			rig_take(rig, &packet);
			while ((next = rig_look(rig)) != NULL)
				answer = next;
			psn += rows[i].packets;
			assert_non_null(answer);
			assert_int_equal(answer->bth.opcode, IB_RC + rows[i].answer);
			assert_int_equal(answer->bth.psn, psn - 1);
			packet.reth.addr += rows[i].goes_on ? rows[i].bytes : 0;
		}
		packet.bth.psn = psn;
		packet.reth.addr = rig_address(rig, 4096);
		rig_take(rig, &packet);
		expect_refusal(rig, psn, IB_NAK_REMOTE_ACCESS_ERROR, HDL_EVENT_QP_ACCESS_ERR,
		               HDL_DETAIL_TOUCHED);
		assert_int_equal(hdl_mr_deregister(once), 0);
	}
}

static void requests_that_are_refused_as_such(void **state)
{
	struct rig *rig = *state;
	/* An atomic beside its word. */
	rig_qp(rig, NULL);
	rig_take_atomic(rig, FIRST, IB_OP_FETCH_ADD, 65, 1, 0);
	expect_refusal(rig, FIRST, IB_NAK_INVALID_REQUEST, HDL_EVENT_QP_REQUEST_ERR,
	               HDL_DETAIL_MISALIGNED);
	/* One more read than it answers at a time. */
	rig_qp(rig, &(struct rig_options){.max_rd_atomic = 2});
	rig->full = true;
	for (uint32_t n = 0; n < 3; n++) {
		struct ib_packet packet = rig_rdma(rig, IB_OP_READ_REQUEST, FIRST + n, 0, 8, 0);
		rig_take(rig, &packet);
	}
	rig->full = false;
	rig_run(rig);
	/* The last to be said is that: two have been executed, and not three. */
	while (rig->looked_at + 1 < rig->sent_count)
		rig_look(rig);
	rig_expect_answer(rig, FIRST + 2, IB_AETH_NAK, IB_NAK_INVALID_REQUEST, 2);
	struct hdl_event event;
	assert_int_equal(hdl_event_get(rig->adapter, &event, 0), 0);
	assert_int_equal(event.type, HDL_EVENT_QP_REQUEST_ERR);
	assert_int_equal(event.detail, HDL_DETAIL_LIMIT);
	/* A queue pair that grants nothing. */
	static const uint8_t opcodes[] = {IB_OP_WRITE_ONLY, IB_OP_READ_REQUEST, IB_OP_FETCH_ADD};
	for (uint32_t i = 0; i < COUNT(opcodes); i++) {
		rig_qp(rig, &(struct rig_options){.no_access = true});
		struct ib_packet packet = rig_rdma(rig, opcodes[i], FIRST, 0, 8,
		                                   opcodes[i] == IB_OP_WRITE_ONLY ? 8 : 0);
		packet.atomiceth.addr = rig_address(rig, 0);
		packet.atomiceth.rkey = hdl_mr_key(rig->mr).v;
		rig_take(rig, &packet);
		expect_refusal(rig, FIRST, IB_NAK_INVALID_REQUEST, HDL_EVENT_QP_REQUEST_ERR,
		               HDL_DETAIL_NONE);
	}
	/* A receive that is too small: the receiver's completion tells it. */
	rig_qp(rig, NULL);
	rig_recv(rig, 1, 4096, 299);
	rig_take_send(rig, IB_OP_SEND_FIRST, FIRST, 20, 256);
	rig_skip(rig);
	rig_take_send(rig, IB_OP_SEND_LAST, FIRST + 1, 21, 44);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_NAK, IB_NAK_INVALID_REQUEST, -1);
	rig_completion(rig, rig->rcq, 1, HDL_WC_LOC_LEN_ERR);
	assert_int_equal(rig_state(rig), HDL_QPS_ERR);
	assert_true(rig_holds(rig, 4096 + 299, 0, 4096 + 299, 100));
}

/* IBTA section 9.9.6.3. Class J: a SEND whose key cannot be invalidated has arrived; there is no
 * NAK. Class C: a write that brings immediate data and is refused is told by the receive that it
 * would have consumed, where one packet says so. */
static void refusals_that_a_receive_tells(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_recv(rig, 1, 4096, 64);
	rig_recv(rig, 2, 4096, 64);
	struct ib_packet packet = rig_data(rig, IB_RC + IB_OP_SEND_ONLY_INV, FIRST, 20, 16);
	packet.ieth.rkey = hdl_mr_key(rig->mr).v;
	rig_take(rig, &packet);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
	rig_completion(rig, rig->rcq, 1, HDL_WC_MEM_MGT_ERR);
	rig_completion(rig, rig->rcq, 2, HDL_WC_WR_FLUSH_ERR);
	assert_int_equal(rig_state(rig), HDL_QPS_ERR);
	rig_no_event(rig);
	for (uint32_t more = 0; more < 2; more++) {
		rig_qp(rig, NULL);
		rig_recv(rig, 1, 4096, 64);
		rig_recv(rig, 2, 4096, 64);
		packet = rig_rdma(rig, more ? IB_OP_WRITE_FIRST : IB_OP_WRITE_ONLY_IMM, FIRST, 0,
		                  more ? 300 : 16, more ? 256 : 16);
		packet.reth.rkey ^= 1;
		rig_take(rig, &packet);
		rig_expect_answer(rig, FIRST, IB_AETH_NAK, IB_NAK_REMOTE_ACCESS_ERROR, -1);
		if (more)
			rig_expect_event(rig, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_INSTANCE);
		rig_completion(rig, rig->rcq, 1,
		               more ? HDL_WC_WR_FLUSH_ERR : HDL_WC_LOC_ACCESS_ERR);
		rig_completion(rig, rig->rcq, 2, HDL_WC_WR_FLUSH_ERR);
		rig_no_event(rig);
	}
}

/* --- packets that are nobody's --- */

static void strangers_get_no_answer(void **state)
{
	enum { OTHER_SOURCE, OTHER_PKEY, OTHER_NUMBER, UNRELIABLE, DATAGRAM, RESERVED, KINDS };
	struct rig *rig = *state;
	struct hdl_gid elsewhere = {{0xfe, 0x80, [15] = 3}};
	rig_qp(rig, NULL);
	rig_recv(rig, 1, 4096, 64);
	for (uint32_t kind = 0; kind < KINDS; kind++) {
		struct ib_packet packet = rig_rdma(rig, IB_OP_WRITE_ONLY, FIRST, 0, 16, 16);
		if (kind == OTHER_PKEY)
			packet.bth.pkey = 0x1234;
		else if (kind == OTHER_NUMBER)
			packet.bth.dest_qp ^= 0x40;
		else if (kind == UNRELIABLE)
			packet.bth.opcode = IB_UC + IB_OP_WRITE_ONLY;
		else if (kind == DATAGRAM)
			packet.bth.opcode = IB_UD + IB_OP_SEND_ONLY;
		else if (kind == RESERVED)
			packet.bth.opcode = IB_XRC + IB_OP_SEND_ONLY;
		rig_take_from(rig, &packet, kind == OTHER_SOURCE ? &elsewhere : &rig->peer);
		rig_expect_none(rig);
		assert_true(rig_holds(rig, 0, 0, 0, 16));
	}
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	rig_no_event(rig);
	/* A limited member of the partition may talk to a full one; and old senders leave MigReq
	 * clear. */
	struct ib_packet packet = rig_rdma(rig, IB_OP_WRITE_ONLY, FIRST, 0, 16, 16);
	packet.bth.pkey = 0x7fff;
	packet.bth.migreq = false;
	rig_take(rig, &packet);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
}

/* The states in which there is somebody (section 10.3.1). */
static void states_that_answer(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.stay_rtr = true});
	rig_recv(rig, 1, 4096, 64);
	rig_take_send(rig, IB_OP_SEND_ONLY, FIRST, 5, 16);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
	rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS);
	rig_expect_event(rig, HDL_EVENT_COMM_EST, HDL_DETAIL_NONE);
	rig_qp(rig, NULL);
	struct hdl_qp_attr attr = {.state = HDL_QPS_SQD};
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, HDL_QP_STATE), 0);
	rig_run(rig);
	rig_take_write(rig, FIRST, 0);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
	attr.state = HDL_QPS_ERR;
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, HDL_QP_STATE), 0);
	rig_take_write(rig, FIRST + 1, 1024);
	rig_expect_none(rig);
	attr.state = HDL_QPS_RESET;
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, HDL_QP_STATE), 0);
	rig_take_write(rig, FIRST + 1, 1024);
	rig_expect_none(rig);
	assert_true(rig_holds(rig, 1024, 0, 1024, 16));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(opcodes_out_of_order),
	        RIGGED(payloads_of_the_wrong_length),
	        RIGGED(memory_that_is_not_granted),
	        RIGGED(a_one_touch_key_opens_once),
	        RIGGED(requests_that_are_refused_as_such),
	        RIGGED(refusals_that_a_receive_tells),
	        RIGGED(strangers_get_no_answer),
	        RIGGED(states_that_answer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
