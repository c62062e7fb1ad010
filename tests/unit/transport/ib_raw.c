/* Raw datagrams (SAN: "demultiplex incoming IPv6 streams of datagrams based on a next header
 * field as well as the destination IP address"; MISSION SN2): whole IPv6 datagrams, to everybody
 * who is registered for them, with no promise. */
#include "wire/ip_headers.h" /* before the host's: some of its names are macros there */

#include "ib_rig.h"

#include "adapter/adapter.h"

#define TCP 6u

static struct {
	uint8_t frame[HDL_RAW_MTU];
	size_t bytes;
	unsigned count;
	bool full;
} sent;

static bool send_raw(void *context, const uint8_t *frame, size_t bytes)
{
	(void)context;
	if (sent.full)
		return false;
	memcpy(sent.frame, frame, bytes);
	sent.bytes = bytes;
	sent.count++;
	return true;
}

static struct hdl_qp *make_raw(struct rig *rig)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RAW,
	                                .send_cq = rig->scq,
	                                .recv_cq = rig->rcq,
	                                .cap = {8, 8, 4, 4, 64}};
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT, .port_num = 1};
	assert_int_equal(hdl_qp_create(rig->pd, &init, &qp), 0);
	assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT),
	                 0);
	attr.state = HDL_QPS_RTR;
	assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE), 0);
	attr.state = HDL_QPS_RTS;
	assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE), 0);
	return qp;
}

static int setup(void **state)
{
	rig_setup(state);
	struct rig *rig = *state;
	memset(&sent, 0, sizeof(sent));
	rig->cable.carrier.send_raw = send_raw;
	rig->qp = make_raw(rig);
	return 0;
}

/* A datagram of @bytes in all, @payload as its header says. */
static void put_frame(uint8_t *out, const struct hdl_gid *to, uint8_t next_header, size_t bytes,
                      size_t payload)
{
	struct ipv6_header header = {
	        .payload_bytes = (uint16_t)payload, .next_header = next_header, .hop_limit = 64};
	memcpy(header.dst, to->raw, 16);
	for (size_t i = 0; i < bytes; i++)
		out[i] = rig_byte(3, i);
	ipv6_encode(&header, out);
}

static void take(struct rig *rig, const struct hdl_gid *to, uint8_t next_header, size_t bytes)
{
	uint8_t frame[HDL_RAW_MTU];
	put_frame(frame, to, next_header, bytes, bytes - IPV6_BYTES);
	adapter_take_raw(rig->adapter, frame, bytes);
	rig_run(rig);
}

static void recv_at(struct rig *rig, struct hdl_qp *qp, uint64_t wr_id, size_t offset,
                    uint32_t length)
{
	struct hdl_sge piece = {rig_address(rig, offset), length, hdl_mr_key(rig->mr)};
	struct hdl_recv_wr wr = {.wr_id = wr_id, .sg_list = &piece, .num_sge = 1};
	assert_int_equal(hdl_post_recv(qp, &wr, NULL), 0);
}

static void a_datagram_goes_out_as_it_is(void **state)
{
	struct rig *rig = *state;
	put_frame(rig->mem, &rig->peer, TCP, 140, 100);
	rig_send(rig, 1, HDL_OP_SEND, 0, 140);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	assert_int_equal(sent.bytes, 140);
	assert_memory_equal(sent.frame, rig->mem, 140);
	/* The longest; one byte more is refused at once. */
	put_frame(rig->mem, &rig->peer, TCP, HDL_RAW_MTU, HDL_RAW_MTU - IPV6_BYTES);
	rig_send(rig, 2, HDL_OP_SEND, 0, HDL_RAW_MTU);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
	assert_int_equal(sent.bytes, HDL_RAW_MTU);
	struct hdl_sge piece = {rig_address(rig, 0), HDL_RAW_MTU + 1, hdl_mr_key(rig->mr)};
	struct hdl_send_wr wr = {.opcode = HDL_OP_SEND, .sg_list = &piece, .num_sge = 1};
	assert_int_equal(hdl_post_send(rig->qp, &wr, NULL), -HDL_EMSGSIZE);
	wr.opcode = HDL_OP_WRITE;
	assert_int_equal(hdl_post_send(rig->qp, &wr, NULL), -HDL_ENOTSUP);
	/* No room: later. */
	sent.full = true;
	rig_send(rig, 3, HDL_OP_SEND, 0, HDL_RAW_MTU);
	rig_no_completion(rig, rig->scq);
	sent.full = false;
	rig_run(rig);
	rig_completion(rig, rig->scq, 3, HDL_WC_SUCCESS);
	assert_int_equal(sent.count, 3);
}

static void what_is_no_datagram_is_not_sent(void **state)
{
	struct rig *rig = *state;
	static const struct {
		size_t bytes, payload;
		uint8_t version;
	} bad[] = {{140, 99, 6}, {140, 101, 6}, {39, 0, 6}, {140, 100, 4}};
	for (unsigned i = 0; i < COUNT(bad); i++) {
		put_frame(rig->mem, &rig->peer, TCP, bad[i].bytes, bad[i].payload);
		rig->mem[0] = (uint8_t)(bad[i].version << 4);
		rig_send(rig, i, HDL_OP_SEND, 0, (uint32_t)bad[i].bytes);
		rig_completion(rig, rig->scq, i, HDL_WC_LOC_LEN_ERR);
		assert_int_equal(rig_state(rig), HDL_QPS_SQE);
		struct hdl_qp_attr attr = {.state = HDL_QPS_RTS};
		assert_int_equal(hdl_qp_modify(rig->qp, &attr, HDL_QP_STATE), 0);
	}
	assert_int_equal(sent.count, 0);
}

static void datagrams_go_to_all_who_registered(void **state)
{
	struct rig *rig = *state;
	struct hdl_gid group = {{0xff, 2, [15] = 9}};
	struct hdl_qp *other = make_raw(rig);
	assert_int_equal(hdl_raw_attach(rig->qp, TCP, &rig->own), 0);
	assert_int_equal(hdl_raw_attach(rig->qp, TCP, &rig->own), 0); /* once is enough */
	assert_int_equal(hdl_raw_attach(rig->qp, TCP, &group), 0);
	assert_int_equal(hdl_raw_attach(other, TCP, &rig->own), 0);
	assert_int_equal(hdl_raw_attach(other, IP_PROTO_UDP, &rig->own), 0);
	/* By header and address: which of the two queue pairs? */
	const struct {
		const struct hdl_gid *to;
		uint8_t next_header;
		bool first, second;
	} cases[] = {{&rig->own, TCP, true, true},    {&rig->own, IP_PROTO_UDP, false, true},
	             {&group, TCP, true, false},      {&group, IP_PROTO_UDP, false, false},
	             {&rig->peer, TCP, false, false}, {&rig->own, 58, false, false}};
	for (unsigned i = 0; i < COUNT(cases); i++) {
		struct hdl_wc wc[3];
		uint8_t expected[200];
		recv_at(rig, rig->qp, 1, 0, 256);
		recv_at(rig, other, 2, 1024, 256);
		take(rig, cases[i].to, cases[i].next_header, 200);
		put_frame(expected, cases[i].to, cases[i].next_header, 200, 160);
		int count = hdl_cq_poll(rig->rcq, wc, 3);
		assert_int_equal(count, cases[i].first + cases[i].second);
		for (int k = 0; k < count; k++) {
			bool first = wc[k].qpn == hdl_qp_number(rig->qp);
			assert_true(first ? cases[i].first : cases[i].second);
			assert_int_equal(wc[k].status, HDL_WC_SUCCESS);
			assert_int_equal(wc[k].byte_len, 200);
			assert_int_equal(wc[k].flags, 0);
			assert_memory_equal(rig->mem + (first ? 0 : 1024), expected, 200);
		}
		if (!cases[i].first || !cases[i].second)
			continue;
		recv_at(rig, rig->qp, 1, 0, 256);
		recv_at(rig, other, 2, 1024, 256);
	}
	assert_int_equal(hdl_raw_detach(rig->qp, TCP, &rig->own), 0);
	assert_int_equal(hdl_raw_detach(rig->qp, TCP, &rig->own), -HDL_EINVAL);
	assert_int_equal(hdl_qp_destroy(other), 0); /* with its registrations */
	take(rig, &rig->own, TCP, 100);
	rig_no_completion(rig, rig->rcq);
}

static void nothing_is_promised(void **state)
{
	struct rig *rig = *state;
	assert_int_equal(hdl_raw_attach(rig->qp, TCP, &rig->own), 0);
	take(rig, &rig->own, TCP, 100); /* no receive */
	uint8_t frame[100];
	put_frame(frame, &rig->own, TCP, 100, 61); /* ends before it should */
	recv_at(rig, rig->qp, 1, 0, 64);
	adapter_take_raw(rig->adapter, frame, 100);
	adapter_take_raw(rig->adapter, frame, 39);
	frame[0] = 0x45;
	adapter_take_raw(rig->adapter, frame, 100);
	rig_no_completion(rig, rig->rcq);
	put_frame(frame, &rig->own, TCP, 100, 20); /* the rest is padding */
	adapter_take_raw(rig->adapter, frame, 100);
	assert_int_equal(rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS).byte_len, 60);
	recv_at(rig, rig->qp, 2, 0, 64);
	take(rig, &rig->own, TCP, 100); /* too long */
	rig_no_completion(rig, rig->rcq);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	take(rig, &rig->own, TCP, 64);
	assert_int_equal(rig_completion(rig, rig->rcq, 2, HDL_WC_SUCCESS).byte_len, 64);
}

static void limits(void **state)
{
	struct rig *rig = *state;
	for (unsigned i = 0; i < HDL_MAX_RAW; i++) {
		struct hdl_gid gid = {{0xfd, [14] = (uint8_t)(i >> 8), [15] = (uint8_t)i}};
		assert_int_equal(hdl_raw_attach(rig->qp, TCP, &gid), 0);
	}
	assert_int_equal(hdl_raw_attach(rig->qp, 1, &rig->own), -HDL_ENOMEM);
	assert_int_equal(hdl_qp_destroy(rig->qp), 0);
	rig->qp = NULL;
	rig_qp(rig, NULL);
	assert_int_equal(hdl_raw_attach(rig->qp, TCP, &rig->own), -HDL_EINVAL);
	/* A network that carries no raw datagrams. */
	rig->cable.carrier.send_raw = NULL;
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RAW,
	                                .send_cq = rig->scq,
	                                .recv_cq = rig->rcq,
	                                .cap = {8, 8, 4, 4, 64}};
	assert_int_equal(hdl_qp_create(rig->pd, &init, &qp), -HDL_ENOTSUP);
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        WITH(a_datagram_goes_out_as_it_is),
	        WITH(what_is_no_datagram_is_not_sent),
	        WITH(datagrams_go_to_all_who_registered),
	        WITH(nothing_is_promised),
	        WITH(limits),
	};
	return cmocka_run_group_tests_name("raw datagrams", tests, NULL, NULL);
}
