/* Unreliable connections and datagrams, packet by packet (IBTA volume 1 sections 9.8.2 and 9.8.3):
 * nothing is ever answered, what is damaged or incomplete is not delivered, and what is delivered
 * is whole. */
#include "adapter/adapter.h"
#include "ib_rig.h"

#define FIRST RIG_RQ_PSN

static const struct rig_options uc = {.type = HDL_QP_UC};
static const struct rig_options ud = {.type = HDL_QP_UD};

static void take(struct rig *rig, uint8_t opcode, uint32_t psn, uint32_t seed, size_t bytes)
{
	struct ib_packet packet = rig_data(rig, opcode, psn, seed, bytes);
	packet.bth.ack_request = false;
	packet.reth.addr = rig_address(rig, 8192);
	packet.reth.rkey = hdl_mr_key(rig->mr).v;
	packet.reth.length_bytes = 300;
	packet.deth.qkey = RIG_QKEY;
	packet.deth.src_qp = RIG_PEER_QPN;
	rig_take(rig, &packet);
	rig_expect_none(rig);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
}

static void expect_received(struct rig *rig, uint64_t wr_id, size_t offset, uint32_t bytes,
                            uint32_t seed)
{
	struct hdl_wc wc = rig_completion(rig, rig->rcq, wr_id, HDL_WC_SUCCESS);
	assert_int_equal(wc.byte_len, bytes);
	assert_true(rig_holds(rig, offset, seed, 0, bytes < 256 ? bytes : 256));
}

/* --- unreliable connection --- */

static void uc_messages_arrive_in_silence(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &uc);
	rig_recv(rig, 1, 0, 64);
	rig_recv(rig, 2, 1024, 600);
	take(rig, IB_UC + IB_OP_SEND_ONLY, FIRST, 5, 40);
	expect_received(rig, 1, 0, 40, 5);
	take(rig, IB_UC + IB_OP_SEND_FIRST, FIRST + 1, 6, 256);
	take(rig, IB_UC + IB_OP_SEND_MIDDLE, FIRST + 2, 7, 256);
	rig_no_completion(rig, rig->rcq);
	take(rig, IB_UC + IB_OP_SEND_LAST, FIRST + 3, 8, 10);
	expect_received(rig, 2, 1024, 522, 6);
	assert_true(rig_holds(rig, 1280, 7, 0, 256));
	assert_true(rig_holds(rig, 1536, 8, 0, 10));
}

/* C9-170 and following: a message that lacks a packet is dropped, and the next one begins anew. */
static void uc_what_is_incomplete_is_dropped(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &uc);
	rig_recv(rig, 1, 1024, 600);
	take(rig, IB_UC + IB_OP_SEND_FIRST, FIRST, 6, 256);
	take(rig, IB_UC + IB_OP_SEND_LAST, FIRST + 2, 8, 10); /* the middle is lost */
	rig_no_completion(rig, rig->rcq);
	take(rig, IB_UC + IB_OP_SEND_MIDDLE, FIRST + 4, 8, 256); /* a first is lost */
	take(rig, IB_UC + IB_OP_SEND_LAST, FIRST + 5, 8, 10);
	rig_no_completion(rig, rig->rcq);
	take(rig, IB_UC + IB_OP_SEND_FIRST, FIRST + 6, 6, 256); /* a last is lost */
	take(rig, IB_UC + IB_OP_SEND_ONLY, FIRST + 8, 9, 33);
	expect_received(rig, 1, 1024, 33, 9);
	/* The receive was used once. */
	rig_recv(rig, 2, 2048, 64);
	take(rig, IB_UC + IB_OP_SEND_ONLY, FIRST + 9, 4, 20);
	expect_received(rig, 2, 2048, 20, 4);
}

/* A packet that comes twice, or late, is not a new one: a network that doubles and reorders must
 * not deliver twice or out of order. */
static void uc_nothing_twice_or_late(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &uc);
	for (uint32_t i = 0; i < 4; i++)
		rig_recv(rig, i, 1024 * i, 600);
	take(rig, IB_UC + IB_OP_SEND_ONLY, FIRST, 5, 40);
	take(rig, IB_UC + IB_OP_SEND_ONLY, FIRST, 5, 40);
	expect_received(rig, 0, 0, 40, 5);
	rig_no_completion(rig, rig->rcq);
	take(rig, IB_UC + IB_OP_SEND_ONLY, FIRST + 2, 6, 40); /* overtakes its forerunner */
	expect_received(rig, 1, 1024, 40, 6);
	take(rig, IB_UC + IB_OP_SEND_ONLY, FIRST + 1, 7, 40);
	rig_no_completion(rig, rig->rcq);
	take(rig, IB_UC + IB_OP_SEND_FIRST, FIRST + 3, 8, 256);
	take(rig, IB_UC + IB_OP_SEND_FIRST, FIRST + 3, 8,
	     256); /* no harm to the message that it is of */
	take(rig, IB_UC + IB_OP_SEND_ONLY, FIRST + 2, 6, 40);
	take(rig, IB_UC + IB_OP_SEND_LAST, FIRST + 4, 9, 10);
	expect_received(rig, 2, 2048, 266, 8);
}

/* No receive, a key that opens nothing, a wrong length, an opcode that UC does not have: dropped,
 * and nobody is told. */
static void uc_refusals_are_silent(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &uc);
	take(rig, IB_UC + IB_OP_SEND_ONLY, FIRST, 5, 40);
	struct ib_packet packet = rig_data(rig, IB_UC + IB_OP_WRITE_ONLY, FIRST + 1, 5, 16);
	packet.reth = (struct ib_reth){rig_address(rig, 0), hdl_mr_key(rig->mr).v ^ 1, 16};
	rig_take(rig, &packet);
	packet.bth.psn++;
	packet.reth.rkey ^= 1;
	packet.reth.addr += RIG_BYTES - 8;
	rig_take(rig, &packet);
	packet.bth.psn++;
	packet.reth = (struct ib_reth){rig_address(rig, 0), hdl_mr_key(rig->mr).v, 17};
	rig_take(rig, &packet);
	packet = rig_packet(rig, IB_RC + IB_OP_READ_REQUEST, FIRST + 4);
	rig_take(rig, &packet);
	rig_expect_none(rig);
	rig_no_event(rig);
	assert_true(rig_holds(rig, 0, 0, 0, RIG_BYTES));
	/* A write of two packets, the second of which is lost, leaves its first and no word; the
	 * next one arrives. */
	take(rig, IB_UC + IB_OP_WRITE_FIRST, FIRST + 5, 3, 256);
	take(rig, IB_UC + IB_OP_WRITE_FIRST, FIRST + 7, 4, 256);
	take(rig, IB_UC + IB_OP_WRITE_LAST, FIRST + 8, 5, 44);
	assert_true(rig_holds(rig, 8192, 4, 0, 256));
	assert_true(rig_holds(rig, 8192 + 256, 5, 0, 44));
}

/* The sender is done when the last packet has left. */
static void uc_sends_and_forgets(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &uc);
	rig->full = true;
	rig_send(rig, 1, HDL_OP_SEND, 0, 600);
	rig_no_completion(rig, rig->scq);
	rig->full = false;
	rig_run(rig);
	rig_expect(rig, IB_UC + IB_OP_SEND_FIRST, RIG_SQ_PSN);
	rig_expect(rig, IB_UC + IB_OP_SEND_MIDDLE, RIG_SQ_PSN + 1);
	rig_expect(rig, IB_UC + IB_OP_SEND_LAST, RIG_SQ_PSN + 2);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	rig_pass(rig, 10000000000ull);
	rig_expect_none(rig);
}

/* --- datagrams --- */

static void ud_brings_its_route(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &ud);
	rig_recv(rig, 1, 1024, 200);
	take(rig, IB_UD + IB_OP_SEND_ONLY, 77, 5, 50);
	struct hdl_wc wc = rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 90);
	assert_int_equal(wc.src_qpn, RIG_PEER_QPN);
	assert_int_equal(wc.flags, HDL_WC_GRH);
	assert_int_equal(rig->mem[1024] >> 4, 6);
	assert_memory_equal(rig->mem + 1024 + 8, rig->peer.raw, 16);
	assert_memory_equal(rig->mem + 1024 + 24, rig->own.raw, 16);
	assert_true(rig_holds(rig, 1064, 5, 0, 50));
	assert_true(rig_holds(rig, 1114, 0, 1114, 86));
}

static void ud_is_guarded(void **state)
{
	struct rig *rig = *state;
	struct hdl_gid anybody = {{0xfe, 0x80, [15] = 99}};
	rig_qp(rig, &ud);
	rig_recv(rig, 1, 1024, 200);
	struct ib_packet packet = rig_data(rig, IB_UD + IB_OP_SEND_ONLY, 0, 5, 50);
	packet.deth.src_qp = 5;
	packet.deth.qkey = RIG_QKEY + 1;
	rig_take(rig, &packet);
	packet.deth.qkey = RIG_QKEY;
	packet.bth.pkey = 0x1234;
	rig_take(rig, &packet);
	packet.bth.pkey = 0xffff;
	packet.bth.opcode = IB_RC + IB_OP_SEND_ONLY;
	rig_take(rig, &packet);
	rig_no_completion(rig, rig->rcq);
	rig_expect_none(rig);
	packet.bth.opcode = IB_UD + IB_OP_SEND_ONLY_IMM;
	packet.immdt.data = 1;
	rig_take_from(rig, &packet, &anybody); /* from anywhere */
	struct hdl_wc wc = rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS);
	assert_int_equal(wc.src_qpn, 5);
	assert_int_equal(wc.flags, HDL_WC_GRH | HDL_WC_WITH_IMM);
	/* None is there, or one that is too small: lost, and the receive serves the next one. */
	take(rig, IB_UD + IB_OP_SEND_ONLY, 1, 5, 50);
	rig_recv(rig, 2, 2048, 89);
	packet.bth.psn = 2;
	rig_take(rig, &packet);
	rig_no_completion(rig, rig->rcq);
	rig_expect_none(rig);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	assert_true(rig_holds(rig, 2048, 0, 2048, 169));
	take(rig, IB_UD + IB_OP_SEND_ONLY, 3, 6, 49);
	wc = rig_completion(rig, rig->rcq, 2, HDL_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 89);
	assert_true(rig_holds(rig, 2048 + 40, 6, 0, 49));
}

static void ud_sends_one_packet(void **state)
{
	struct rig *rig = *state;
	struct hdl_ah *ah;
	struct hdl_ah_attr to = {.dgid = rig->peer,
	                         .port_num = 1,
	                         .is_global = true,
	                         .hop_limit = 9,
	                         .traffic_class = 0x60,
	                         .flow_label = 0x12345};
	rig_qp(rig, &ud);
	assert_int_equal(hdl_ah_create(rig->pd, &to, &ah), 0);
	static const uint32_t lengths[] = {0, 1, 1000, HDL_UD_MTU};
	for (uint32_t i = 0; i < COUNT(lengths); i++) {
		rig_post(rig,
		         (struct hdl_send_wr){.wr_id = i,
		                              .opcode = i % 2 ? HDL_OP_SEND_IMM : HDL_OP_SEND,
		                              .u.ud = {ah, 0x4321, 0x55}},
		         100, lengths[i]);
		const struct ib_packet *packet = rig_expect(
		        rig, (uint8_t)(IB_UD + (i % 2 ? IB_OP_SEND_ONLY_IMM : IB_OP_SEND_ONLY)),
		        RIG_SQ_PSN + i);
		assert_int_equal(packet->bth.dest_qp, 0x4321);
		assert_false(packet->bth.ack_request);
		assert_int_equal(packet->deth.qkey, 0x55);
		assert_int_equal(packet->deth.src_qp, hdl_qp_number(rig->qp));
		assert_int_equal(packet->payload_bytes, lengths[i]);
		if (lengths[i] > 0)
			assert_memory_equal(packet->payload, rig->mem + 100, lengths[i]);
		const struct path *path = &rig->sent[rig->looked_at - 1].path;
		assert_int_equal(path->ip.hop_limit, 9);
		assert_int_equal(path->ip.traffic_class & ~3, 0x60);
		rig_completion(rig, rig->scq, i, HDL_WC_SUCCESS);
	}
	assert_int_equal(hdl_ah_destroy(ah), 0);
}

/* --- paths of other kinds --- */

/* @packet comes along a path between LIDs, whose bytes look like the peer's addresses. */
static void take_by_lid(struct rig *rig, const struct ib_packet *packet)
{
	uint8_t bytes[CABLE_PACKET_BYTES];
	struct path came = {.ip = {.src_port = 50000, .hop_limit = 63}};
	struct ib_packet decoded;
	memcpy(came.ip.sgid, rig->peer.raw, 16);
	memcpy(came.ip.dgid, rig->own.raw, 16);
	size_t count = roce_udp_encode(&came.ip, packet, bytes, sizeof(bytes));
	assert_int_equal(roce_udp_decode(&came.ip, &decoded, bytes, count), IB_OK);
	came.kind = PATH_LID;
	adapter_lock(rig->adapter);
	ib_take(&rig->adapter->engine, &came, false, &decoded);
	adapter_unlock(rig->adapter);
	rig_run(rig);
}

/* A connection hears its own path alone; a datagram from elsewhere has no IP header to bring. */
static void other_kinds_of_paths(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &uc);
	rig_recv(rig, 1, 0, 64);
	struct ib_packet packet = rig_data(rig, IB_UC + IB_OP_SEND_ONLY, FIRST, 4, 20);
	take_by_lid(rig, &packet);
	rig_no_completion(rig, rig->rcq);
	take(rig, IB_UC + IB_OP_SEND_ONLY, FIRST, 4, 20);
	expect_received(rig, 1, 0, 20, 4);
	rig_qp(rig, &ud);
	rig_recv(rig, 2, 1024, 200);
	packet = rig_data(rig, IB_UD + IB_OP_SEND_ONLY, 0, 5, 50);
	packet.deth = (struct ib_deth){.qkey = RIG_QKEY, .src_qp = RIG_PEER_QPN};
	take_by_lid(rig, &packet);
	struct hdl_wc wc = rig_completion(rig, rig->rcq, 2, HDL_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 90);
	assert_int_equal(wc.flags, 0);
	static const uint8_t nothing[HDL_GRH_BYTES];
	assert_memory_equal(rig->mem + 1024, nothing, sizeof(nothing));
	assert_true(rig_holds(rig, 1064, 5, 0, 50));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(uc_messages_arrive_in_silence),
	        RIGGED(uc_what_is_incomplete_is_dropped),
	        RIGGED(uc_nothing_twice_or_late),
	        RIGGED(uc_refusals_are_silent),
	        RIGGED(uc_sends_and_forgets),
	        RIGGED(ud_brings_its_route),
	        RIGGED(ud_is_guarded),
	        RIGGED(ud_sends_one_packet),
	        RIGGED(other_kinds_of_paths),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
