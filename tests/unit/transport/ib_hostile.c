/* Packets of somebody who knows the addresses and the number of a queue pair, and no PSN: what they
 * can do is bounded. */
#include "adapter/adapter.h"
#include "ib_rig.h"
#include "transport/ib/ib.h"
#include "wire/be.h"

#define TRIP_NS 100000u

static struct ib *engine(struct rig *rig)
{
	return rig->qp->qp.ib;
}

static uint64_t counter(struct rig *rig, const char *name)
{
	struct hdl_counter list[64];
	size_t count = hdl_counters(rig->adapter, list, COUNT(list));
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i].name, name) == 0)
			return list[i].value;
	fail_msg("no counter %s", name);
	return 0;
}

static void take_marked(struct rig *rig, const struct ib_packet *packet)
{
	uint8_t bytes[CABLE_PACKET_BYTES + 8192];
	struct path came = {.ip = {.src_port = 50000, .hop_limit = 63}};
	memcpy(came.ip.sgid, rig->peer.raw, 16);
	memcpy(came.ip.dgid, rig->own.raw, 16);
	size_t count = roce_udp_encode(&came.ip, packet, bytes, sizeof(bytes));
	assert_true(count > 0);
	adapter_take(rig->adapter, &came, true, bytes, count);
	rig_run(rig);
}

static void take_cnp(struct rig *rig, uint32_t word)
{
	struct ib_packet packet = rig_packet(rig, IB_OPCODE_CNP, 0);
	packet.bth.becn = true;
	be32_store(packet.cnp.resv128, word);
	rig_take(rig, &packet);
}

/* A round trip of a sender that always has something to send: the window goes out, and is
 * acknowledged. */
static void trip(struct rig *rig)
{
	struct hdl_wc wc;
	while (hdl_cq_poll(rig->scq, &wc, 1) == 1)
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
	struct hdl_sge piece = {rig_address(rig, 0), 60000, hdl_mr_key(rig->mr)};
	struct hdl_send_wr wr = {.opcode = HDL_OP_WRITE,
	                         .flags = HDL_SEND_SIGNALED,
	                         .sg_list = &piece,
	                         .num_sge = 1,
	                         .u.rdma = {RIG_PEER_AT, {RIG_PEER_KEY}}};
	while (ib_psn_distance(engine(rig)->next_psn, engine(rig)->sent_psn) < 1000 &&
	       hdl_post_send(rig->qp, &wr, NULL) == 0)
		rig_run(rig);
	rig->now_ns += TRIP_NS;
	rig_run(rig);
	rig_skip(rig);
	rig->sent_count = rig->looked_at = 0;
	uint32_t last = engine(rig)->sent_psn - 1;
	rig_answer(rig, last & IB_PSN_MASK, IB_AETH_ACK, IB_AETH_NO_CREDITS, 0);
	rig->sent_count = rig->looked_at = 0;
}

static void begin_sending(struct rig *rig)
{
	rig_qp(rig, &(struct rig_options){.timeout = 14});
	for (int i = 0; i < 7; i++)
		trip(rig);
	assert_true(engine(rig)->window.size >> WINDOW_SHIFT >= 256);
}

/* Hundreds of them in a second cost next to nothing; and they are counted. */
static void cnps_without_proof_change_little(void **state)
{
	static const uint32_t words[] = {0, 0x48000000u | 1, 0x48000000u | 0x7fffff, 0x47000000u};
	struct rig *rig = *state;
	for (uint32_t k = 0; k < COUNT(words); k++) {
		begin_sending(rig);
		uint32_t before = engine(rig)->window.size, least = before;
		uint64_t counted = counter(rig, "cnp_unproved");
		for (uint32_t i = 0; i < 10000; i++) { /* a second */
			if (i % 14 == 0)
				take_cnp(rig, words[k]);
			if (engine(rig)->window.size < least)
				least = engine(rig)->window.size;
			if (i % 10 == 0)
				trip(rig);
			else
				rig->now_ns += TRIP_NS / 10;
		}
		assert_true(least >= before / 2);
		assert_int_equal(counter(rig, "cnp_unproved") - counted, 715);
	}
	/* Nor do they when there is nothing in flight: what is not sent cannot have been too much.
	 */
	begin_sending(rig);
	uint32_t quiet = engine(rig)->sent_psn;
	assert_int_equal(
	        hdl_qp_modify(rig->qp, &(struct hdl_qp_attr){.state = HDL_QPS_SQD}, HDL_QP_STATE),
	        0);
	rig_run(rig);
	while (engine(rig)->una_psn != engine(rig)->sent_psn) {
		quiet = engine(rig)->sent_psn;
		rig_answer(rig, (quiet - 1) & IB_PSN_MASK, IB_AETH_ACK, IB_AETH_NO_CREDITS, 0);
		rig->sent_count = rig->looked_at = 0;
	}
	uint32_t before = engine(rig)->window.size;
	for (uint32_t i = 0; i < 1000; i++) {
		take_cnp(rig, 0);
		rig->now_ns += 1000000;
	}
	assert_int_equal(engine(rig)->window.size, before);
}

/* The peer's own, which name a PSN in flight, are obeyed at once, once a round trip. */
static void cnps_with_proof_are_obeyed(void **state)
{
	struct rig *rig = *state;
	begin_sending(rig);
	for (uint32_t i = 0; i < 40; i++) {
		uint32_t before = engine(rig)->window.size;
		take_cnp(rig, 0x48000000u | ((engine(rig)->una_psn - 1) & IB_PSN_MASK));
		uint32_t after = engine(rig)->window.size;
		assert_true(after < before || after < 1u << WINDOW_SHIFT);
		take_cnp(rig, 0x48000000u | ((engine(rig)->una_psn - 1) & IB_PSN_MASK));
		if (engine(rig)->sent_psn != engine(rig)->una_psn)
			assert_int_equal(engine(rig)->window.size, after);
		rig->now_ns += 20 * TRIP_NS;
		trip(rig);
	}
	assert_true(engine(rig)->window.size >> WINDOW_SHIFT < 32);
	assert_int_equal(counter(rig, "cnp_unproved"), 0);
}

/* A mark on a packet that nobody but the peer can have sent is told to it, with the proof; on any
 * other it is not. */
static void marks_on_forged_packets_are_not_told(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_recv(rig, 1, 4096, 64);
	static const int32_t off[] = {-2, -1, 64, 1000, 0x400000};
	for (uint32_t i = 0; i < COUNT(off); i++) {
		struct ib_packet packet = rig_data(rig, IB_RC + IB_OP_SEND_ONLY,
		                                   RIG_RQ_PSN + (uint32_t)off[i], 5, 16);
		take_marked(rig, &packet);
		rig->now_ns += 1000000;
	}
	assert_int_equal(counter(rig, "cnp_sent"), 0);
	rig_skip(rig);
	struct ib_packet packet = rig_data(rig, IB_RC + IB_OP_SEND_ONLY, RIG_RQ_PSN, 5, 16);
	take_marked(rig, &packet);
	const struct ib_packet *cnp = rig_look(rig);
	assert_non_null(cnp);
	assert_int_equal(cnp->bth.opcode, IB_OPCODE_CNP);
	assert_int_equal(be32_load(cnp->cnp.resv128), 0x48000000u | RIG_RQ_PSN);
	for (size_t i = 4; i < sizeof(cnp->cnp.resv128); i++)
		assert_int_equal(cnp->cnp.resv128[i], 0); /* nothing of our memory leaves */
	/* A response that was not asked for takes nothing from the window. */
	begin_sending(rig);
	uint32_t before = engine(rig)->window.size;
	packet = rig_packet(rig, IB_RC + IB_OP_READ_RESPONSE_ONLY, engine(rig)->sent_psn + 5000);
	packet.payload = rig->mem;
	packet.payload_bytes = 256;
	for (uint32_t i = 0; i < 100; i++)
		take_marked(rig, &packet);
	assert_int_equal(engine(rig)->window.size, before);
}

/* Requests and answers of every kind with PSNs that are not due: no byte is placed, nothing
 * completes, nothing fails, and what is said to them is bounded. */
static void a_blind_sweep_does_nothing(void **state)
{
	static const uint8_t opcodes[] = {
	        IB_OP_SEND_ONLY,          IB_OP_SEND_ONLY_IMM, IB_OP_SEND_LAST, IB_OP_WRITE_ONLY,
	        IB_OP_WRITE_ONLY_IMM,     IB_OP_READ_REQUEST,  IB_OP_FETCH_ADD, IB_OP_ACK,
	        IB_OP_READ_RESPONSE_ONLY, IB_OP_ATOMIC_ACK};
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.timeout = 20});
	rig_recv(rig, 1, 4096, 64);
	rig_send(rig, 2, HDL_OP_SEND, 0, 10);
	rig_skip(rig);
	for (uint32_t i = 0; i < 100000; i++) {
		uint32_t psn = i * 167u + 600; /* all over the numbers, but for what is due */
		if (ib_psn_distance(psn, RIG_RQ_PSN) == 0 || ib_psn_distance(psn, RIG_SQ_PSN) == 0)
			continue;
		struct ib_packet packet =
		        rig_rdma(rig, opcodes[i % COUNT(opcodes)], psn, 0, 16, 16);
		packet.atomiceth.addr = rig_address(rig, 0);
		packet.atomiceth.rkey = hdl_mr_key(rig->mr).v;
		packet.atomiceth.swap_or_add = 1;
		packet.aeth.syndrome = ib_aeth_syndrome(i % 3 == 0 ? IB_AETH_ACK : IB_AETH_NAK,
		                                        i % 3 == 1 ? IB_NAK_REMOTE_ACCESS_ERROR
		                                                   : IB_NAK_PSN_SEQUENCE_ERROR);
		if (opcodes[i % COUNT(opcodes)] == IB_OP_ACK ||
		    opcodes[i % COUNT(opcodes)] == IB_OP_ATOMIC_ACK ||
		    opcodes[i % COUNT(opcodes)] == IB_OP_READ_REQUEST ||
		    opcodes[i % COUNT(opcodes)] == IB_OP_FETCH_ADD)
			packet.payload_bytes = 0;
		uint32_t sent = rig->sent_count;
		rig_take(rig, &packet);
		assert_true(rig->sent_count - sent <= 1);
		rig->sent_count = rig->looked_at = 0;
	}
	assert_true(rig_holds(rig, 0, 0, 0, RIG_BYTES));
	rig_no_completion(rig, rig->rcq);
	rig_no_completion(rig, rig->scq);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	rig_no_event(rig);
	/* And the connection goes on. */
	rig_take_send(rig, IB_OP_SEND_ONLY, RIG_RQ_PSN, 5, 16);
	rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS);
	rig_answer(rig, RIG_SQ_PSN, IB_AETH_ACK, IB_AETH_NO_CREDITS, 1);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
}

static void take_uc_write(struct rig *rig, uint32_t psn, uint32_t key)
{
	struct ib_packet packet = rig_data(rig, IB_UC + IB_OP_WRITE_ONLY, psn, 9, 16);
	packet.reth = (struct ib_reth){rig_address(rig, 0), key, 16};
	rig_take(rig, &packet);
}

/* An unreliable connection drops writes with wrong keys in silence. They are counted, and who
 * guesses may try some and then one in a millisecond, while keys that were right before go on to
 * work. */
static void guessing_keys_is_slow(void **state)
{
	struct rig *rig = *state;
	struct hdl_mr *other;
	uint32_t right, psn = RIG_RQ_PSN;
	rig_qp(rig, &(struct rig_options){.type = HDL_QP_UC});
	right = hdl_mr_key(rig->mr).v;
	assert_int_equal(hdl_mr_register(rig->pd, rig->mem, RIG_BYTES,
	                                 HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_WRITE, &other),
	                 0);
	take_uc_write(rig, psn++, right);
	assert_true(rig_holds(rig, 0, 9, 0, 16));
	uint64_t before = counter(rig, "refused_not_valid") + counter(rig, "refused_instance");
	for (uint32_t i = 0; i < 100000; i++) /* a tenth of a second */
		take_uc_write(rig, psn++, 0x9e3779b1u * (i + 1)), rig->now_ns += 1000;
	uint64_t judged =
	        counter(rig, "refused_not_valid") + counter(rig, "refused_instance") - before;
	assert_in_range(judged, IB_WRONG_KEYS, IB_WRONG_KEYS + 101);
	assert_int_equal(counter(rig, "dropped_keys") + judged, 100000);
	/* A key of the peer's that was right before is, and one that was not used yet is when the
	 * guesses are over. */
	take_uc_write(rig, psn++, 0x1234567); /* the last that may be tried now */
	memset(rig->mem, 0, 16);
	take_uc_write(rig, psn++, hdl_mr_key(other).v);
	assert_false(rig_holds(rig, 0, 9, 0, 16));
	take_uc_write(rig, psn++, right);
	assert_true(rig_holds(rig, 0, 9, 0, 16));
	memset(rig->mem, 0, 16);
	rig->now_ns += 1000000;
	take_uc_write(rig, psn++, hdl_mr_key(other).v);
	assert_true(rig_holds(rig, 0, 9, 0, 16));
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	assert_int_equal(hdl_mr_deregister(other), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(cnps_without_proof_change_little),
	        RIGGED(cnps_with_proof_are_obeyed),
	        RIGGED(marks_on_forged_packets_are_not_told),
	        RIGGED(a_blind_sweep_does_nothing),
	        RIGGED(guessing_keys_is_slow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
