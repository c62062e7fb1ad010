/* The rig of the packet tests. See ib_rig.h. */
#include "ib_rig.h"

#include <stdlib.h>

#include "adapter/adapter.h"

#define STEP_NS     2000u
#define WRITE_BYTES 16u

/* --- the adapter --- */

static uint64_t rig_now(void *context)
{
	return ((struct rig *)context)->now_ns;
}

static void out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct rig *rig = context;
	assert_true(rig->sent_count < RIG_PACKETS);
	struct sent *at = &rig->sent[rig->sent_count++];
	at->path = *path;
	at->bytes = bytes;
	memcpy(at->data, payload, bytes);
	struct roce_path ip = path->ip;
	assert_int_equal(roce_udp_decode(&ip, &at->packet, at->data, bytes), IB_OK);
	assert_memory_equal(path->ip.sgid, rig->own.raw, 16);
	assert_memory_equal(path->ip.dgid, rig->peer.raw, 16);
}

static bool room(void *context)
{
	return !((struct rig *)context)->full;
}

int rig_setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	assert_non_null(rig);
	*state = rig;
	cable_init(&rig->cable, out, room, rig);
	struct hdl_open_attr attr = {
	        .max_qp = 64, .max_mr = 64, .no_thread = true, .gid = {{0xfe, 0x80, [15] = 1}}};
	struct adapter_env env = {
	        .clock = {rig_now, rig}, .seed = 7, .carrier = &rig->cable.carrier};
	rig->own = attr.gid;
	rig->peer = (struct hdl_gid){{0xfe, 0x80, [15] = 2}};
	assert_int_equal(adapter_open(&attr, &env, &rig->adapter), 0);
	assert_int_equal(hdl_pd_create(rig->adapter, &rig->pd), 0);
	assert_int_equal(hdl_cq_create(rig->adapter, 64, NULL, NULL, &rig->scq), 0);
	assert_int_equal(hdl_cq_create(rig->adapter, 64, NULL, NULL, &rig->rcq), 0);
	rig->mem = aligned_alloc(4096, RIG_BYTES);
	assert_non_null(rig->mem);
	for (size_t i = 0; i < RIG_BYTES; i++)
		rig->mem[i] = rig_byte(0, i);
	assert_int_equal(hdl_mr_register(rig->pd, rig->mem, RIG_BYTES,
	                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                                         HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
	                                         HDL_ACCESS_REMOTE_ATOMIC | HDL_ACCESS_BIND,
	                                 &rig->mr),
	                 0);
	return 0;
}

int rig_teardown(void **state)
{
	struct rig *rig = *state;
	if (rig->qp != NULL)
		assert_int_equal(hdl_qp_destroy(rig->qp), 0);
	assert_int_equal(hdl_mr_deregister(rig->mr), 0);
	assert_int_equal(hdl_cq_destroy(rig->scq), 0);
	assert_int_equal(hdl_cq_destroy(rig->rcq), 0);
	assert_int_equal(hdl_pd_destroy(rig->pd), 0);
	assert_int_equal(hdl_close(rig->adapter), 0);
	free(rig->mem);
	free(rig);
	return 0;
}

static uint32_t or_else(uint32_t value, uint32_t otherwise)
{
	return value != 0 ? value : otherwise;
}

static void to_rts(struct rig *rig, const struct rig_options *o, uint32_t type)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_RTS,
	                           .sq_psn = o->psn_given ? o->sq_psn : RIG_SQ_PSN,
	                           .timeout = o->no_timeout ? 0 : (uint8_t)or_else(o->timeout, 10),
	                           .retry_cnt = o->few ? o->retry_cnt : 7,
	                           .rnr_retry = o->few ? o->rnr_retry : 7,
	                           .max_rd_atomic = (uint8_t)or_else(o->max_rd_atomic, 4)};
	uint32_t mask = HDL_QP_STATE | HDL_QP_SQ_PSN;
	if (type == HDL_QP_RC || type == HDL_QP_XRC_INI)
		mask |= HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC;
	if (type == HDL_QP_XRC_TGT)
		mask |= HDL_QP_TIMEOUT;
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, mask), 0);
}

struct hdl_qp *rig_qp(struct rig *rig, const struct rig_options *o)
{
	static const struct rig_options none;
	if (o == NULL)
		o = &none;
	uint32_t type = or_else(o->type, HDL_QP_RC);
	if (rig->qp != NULL)
		assert_int_equal(hdl_qp_destroy(rig->qp), 0);
	struct hdl_qp_init_attr init = {.type = type,
	                                .send_cq = rig->scq,
	                                .recv_cq = rig->rcq,
	                                .srq = o->srq,
	                                .xrcd = o->xrcd,
	                                .cap = {32, 32, 4, 4, 64}};
	assert_int_equal(hdl_qp_create(type == HDL_QP_XRC_TGT ? NULL : rig->pd, &init, &rig->qp),
	                 0);
	bool ud = type == HDL_QP_UD;
	struct hdl_qp_attr attr = {
	        .state = HDL_QPS_INIT,
	        .port_num = 1,
	        .qkey = RIG_QKEY,
	        .access = o->no_access ? 0
	                               : HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
	                                         HDL_ACCESS_REMOTE_ATOMIC,
	        .ah = {.dgid = rig->peer, .port_num = 1, .is_global = true, .hop_limit = 64},
	        .path_mtu = o->mtu != 0 ? o->mtu : 256,
	        .dest_qpn = RIG_PEER_QPN,
	        .rq_psn = o->psn_given ? o->rq_psn : RIG_RQ_PSN,
	        .max_dest_rd_atomic = (uint8_t)or_else(o->max_rd_atomic, 4),
	        .min_rnr_timer = (uint8_t)or_else(o->min_rnr_timer, 1)};
	assert_int_equal(hdl_qp_modify(rig->qp, &attr,
	                               HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT |
	                                       (ud ? HDL_QP_QKEY : HDL_QP_ACCESS)),
	                 0);
	uint32_t mask = HDL_QP_STATE;
	if (!ud)
		mask |= HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN;
	if (type == HDL_QP_RC || type == HDL_QP_XRC_TGT)
		mask |= HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER;
	attr.state = HDL_QPS_RTR;
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, mask), 0);
	if (!o->stay_rtr)
		to_rts(rig, o, type);
	return rig->qp;
}

enum hdl_qp_state rig_state(struct rig *rig)
{
	struct hdl_qp_attr attr;
	assert_int_equal(hdl_qp_query(rig->qp, &attr, NULL), 0);
	return attr.state;
}

/* --- time --- */

void rig_run(struct rig *rig)
{
	int quiet = 0;
	for (int turns = 0; quiet < 3; turns++) {
		assert_true(turns < 10000);
		quiet = hdl_progress(rig->adapter) == 0 ? quiet + 1 : 0;
	}
}

void rig_pass(struct rig *rig, uint64_t ns)
{
	uint64_t end = rig->now_ns + ns, step = ns / 200 > STEP_NS ? ns / 200 : STEP_NS;
	rig_run(rig);
	while (rig->now_ns < end) {
		rig->now_ns += end - rig->now_ns < step ? end - rig->now_ns : step;
		rig_run(rig);
	}
}

uint64_t rig_await(struct rig *rig, uint64_t ns)
{
	uint64_t start = rig->now_ns, step = ns / 500 > STEP_NS ? ns / 500 : STEP_NS;
	rig_run(rig);
	while (rig->looked_at == rig->sent_count) {
		rig->now_ns += step;
		if (rig->now_ns - start > ns)
			fail_msg("no packet within %llu ns", (unsigned long long)ns);
		rig_run(rig);
	}
	return rig->now_ns - start;
}

/* --- packets in --- */

struct ib_packet rig_packet(struct rig *rig, uint8_t opcode, uint32_t psn)
{
	struct ib_packet packet;
	memset(&packet, 0, sizeof(packet));
	packet.bth.opcode = opcode;
	packet.bth.migreq = true;
	packet.bth.pkey = 0xffff;
	packet.bth.dest_qp = hdl_qp_number(rig->qp);
	packet.bth.psn = psn & IB_PSN_MASK;
	return packet;
}

struct ib_packet rig_request(struct rig *rig, uint8_t opcode, uint32_t psn)
{
	struct ib_packet packet = rig_packet(rig, opcode, psn);
	packet.bth.ack_request = true;
	return packet;
}

uint8_t rig_byte(uint32_t seed, size_t at)
{
	return (uint8_t)(seed * 41 + at * 7 + at / 251);
}

static const uint8_t *text(uint32_t seed, size_t at, size_t bytes)
{
	static uint8_t buffer[8192];
	assert_true(bytes <= sizeof(buffer));
	for (size_t i = 0; i < bytes; i++)
		buffer[i] = rig_byte(seed, at + i);
	return buffer;
}

bool rig_holds(const struct rig *rig, size_t offset, uint32_t seed, size_t at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (rig->mem[offset + i] != rig_byte(seed, at + i))
			return false;
	return true;
}

struct ib_packet rig_data(struct rig *rig, uint8_t opcode, uint32_t psn, uint32_t seed,
                          size_t bytes)
{
	struct ib_packet packet = rig_request(rig, opcode, psn);
	packet.payload = text(seed, 0, bytes);
	packet.payload_bytes = bytes;
	return packet;
}

void rig_take_from(struct rig *rig, const struct ib_packet *packet, const struct hdl_gid *from)
{
	uint8_t bytes[CABLE_PACKET_BYTES + 8192];
	struct path came = {
	        .ip = {.src_port = rig->came_port != 0 ? rig->came_port : 50000, .hop_limit = 63}};
	memcpy(came.ip.sgid, from->raw, 16);
	memcpy(came.ip.dgid, rig->own.raw, 16);
	size_t count = roce_udp_encode(&came.ip, packet, bytes, sizeof(bytes));
	assert_true(count > 0);
	adapter_take(rig->adapter, &came, false, bytes, count);
	rig_run(rig);
}

void rig_take(struct rig *rig, const struct ib_packet *packet)
{
	rig_take_from(rig, packet, &rig->peer);
}

void rig_answer(struct rig *rig, uint32_t psn, enum ib_aeth_kind kind, uint8_t value, uint32_t msn)
{
	struct ib_packet packet = rig_packet(rig, IB_RC + IB_OP_ACK, psn);
	packet.aeth.syndrome = ib_aeth_syndrome(kind, value);
	packet.aeth.msn = msn;
	rig_take(rig, &packet);
}

void rig_read_response(struct rig *rig, uint8_t opcode, uint32_t psn, uint32_t seed, size_t at,
                       size_t bytes)
{
	struct ib_packet packet = rig_packet(rig, (uint8_t)(IB_RC + opcode), psn);
	packet.aeth.syndrome = ib_aeth_syndrome(IB_AETH_ACK, IB_AETH_NO_CREDITS);
	packet.payload = text(seed, at, bytes);
	packet.payload_bytes = bytes;
	rig_take(rig, &packet);
}

struct ib_packet rig_rdma(struct rig *rig, uint8_t opcode, uint32_t psn, size_t offset,
                          uint32_t length, size_t payload)
{
	struct ib_packet packet =
	        rig_data(rig, (uint8_t)(IB_RC + opcode), psn, RIG_RDMA_SEED, payload);
	packet.reth.addr = rig_address(rig, offset);
	packet.reth.rkey = hdl_mr_key(rig->mr).v;
	packet.reth.length_bytes = length;
	return packet;
}

void rig_take_write(struct rig *rig, uint32_t psn, size_t offset)
{
	struct ib_packet packet =
	        rig_rdma(rig, IB_OP_WRITE_ONLY, psn, offset, WRITE_BYTES, WRITE_BYTES);
	rig_take(rig, &packet);
}

void rig_take_send(struct rig *rig, uint8_t opcode, uint32_t psn, uint32_t seed, size_t bytes)
{
	struct ib_packet packet = rig_data(rig, (uint8_t)(IB_RC + opcode), psn, seed, bytes);
	rig_take(rig, &packet);
}

void rig_take_atomic(struct rig *rig, uint32_t psn, uint8_t opcode, size_t offset,
                     uint64_t swap_or_add, uint64_t compare)
{
	struct ib_packet packet = rig_packet(rig, (uint8_t)(IB_RC + opcode), psn);
	packet.atomiceth.addr = rig_address(rig, offset);
	packet.atomiceth.rkey = hdl_mr_key(rig->mr).v;
	packet.atomiceth.swap_or_add = swap_or_add;
	packet.atomiceth.compare = compare;
	rig_take(rig, &packet);
}

/* --- packets out --- */

const struct ib_packet *rig_look(struct rig *rig)
{
	return rig->looked_at < rig->sent_count ? &rig->sent[rig->looked_at++].packet : NULL;
}

const struct ib_packet *rig_expect(struct rig *rig, uint8_t opcode, uint32_t psn)
{
	const struct ib_packet *packet = rig_look(rig);
	if (packet == NULL)
		fail_msg("no packet where opcode 0x%02x, PSN %u must come", opcode, psn);
	if (packet->bth.opcode != opcode || packet->bth.psn != (psn & IB_PSN_MASK))
		fail_msg("opcode 0x%02x, PSN %u instead of 0x%02x, %u", packet->bth.opcode,
		         packet->bth.psn, opcode, psn & IB_PSN_MASK);
	assert_int_equal(packet->bth.pkey, 0xffff);
	assert_true(packet->bth.migreq);
	return packet;
}

void rig_expect_answer(struct rig *rig, uint32_t psn, enum ib_aeth_kind kind, int value, int msn)
{
	const struct ib_packet *packet = rig_expect(rig, IB_RC + IB_OP_ACK, psn);
	assert_int_equal(packet->bth.dest_qp, RIG_PEER_QPN);
	if (ib_aeth_kind(packet->aeth.syndrome) != kind ||
	    (value >= 0 && ib_aeth_value(packet->aeth.syndrome) != value))
		fail_msg("syndrome 0x%02x instead of 0x%02x", packet->aeth.syndrome,
		         ib_aeth_syndrome(kind, (uint8_t)value));
	if (msn >= 0)
		assert_int_equal(packet->aeth.msn, msn);
}

void rig_expect_none(struct rig *rig)
{
	const struct ib_packet *packet = rig_look(rig);
	if (packet != NULL)
		fail_msg("opcode 0x%02x, PSN %u (syndrome 0x%02x) where nothing must come",
		         packet->bth.opcode, packet->bth.psn,
		         packet->headers & IB_HAS_AETH ? packet->aeth.syndrome : 0);
}

void rig_skip(struct rig *rig)
{
	rig->looked_at = rig->sent_count;
}

/* --- requests and completions --- */

uint64_t rig_address(const struct rig *rig, size_t offset)
{
	return (uint64_t)(uintptr_t)(rig->mem + offset);
}

void rig_recv(struct rig *rig, uint64_t wr_id, size_t offset, uint32_t length)
{
	struct hdl_sge piece = {rig_address(rig, offset), length, hdl_mr_key(rig->mr)};
	struct hdl_recv_wr wr = {.wr_id = wr_id, .sg_list = &piece, .num_sge = length > 0};
	assert_int_equal(hdl_post_recv(rig->qp, &wr, NULL), 0);
}

void rig_post(struct rig *rig, struct hdl_send_wr wr, size_t offset, uint32_t length)
{
	struct hdl_sge piece = {rig_address(rig, offset), length, hdl_mr_key(rig->mr)};
	wr.sg_list = &piece;
	wr.num_sge = length > 0;
	wr.flags |= HDL_SEND_SIGNALED;
	assert_int_equal(hdl_post_send(rig->qp, &wr, NULL), 0);
	rig_run(rig);
}

void rig_send(struct rig *rig, uint64_t wr_id, uint32_t opcode, size_t offset, uint32_t length)
{
	rig_post(rig, (struct hdl_send_wr){.wr_id = wr_id, .opcode = opcode}, offset, length);
}

void rig_post_rdma(struct rig *rig, uint64_t wr_id, uint32_t opcode, size_t offset, uint32_t length)
{
	struct hdl_send_wr wr = {
	        .wr_id = wr_id, .opcode = opcode, .u.rdma = {RIG_PEER_AT, {RIG_PEER_KEY}}};
	rig_post(rig, wr, offset, length);
}

struct hdl_wc rig_completion(struct rig *rig, struct hdl_cq *cq, uint64_t wr_id, uint32_t status)
{
	struct hdl_wc wc;
	if (hdl_cq_poll(cq, &wc, 1) != 1)
		fail_msg("no completion where %lu must come", (unsigned long)wr_id);
	if (wc.wr_id != wr_id || wc.status != status)
		fail_msg("completion %lu: %s, instead of %lu: %s", (unsigned long)wc.wr_id,
		         hdl_wc_status_str(wc.status), (unsigned long)wr_id,
		         hdl_wc_status_str(status));
	assert_int_equal(wc.qpn, hdl_qp_number(rig->qp));
	return wc;
}

void rig_no_completion(struct rig *rig, struct hdl_cq *cq)
{
	struct hdl_wc wc;
	rig_run(rig);
	if (hdl_cq_poll(cq, &wc, 1) != 0)
		fail_msg("completion %lu: %s", (unsigned long)wc.wr_id,
		         hdl_wc_status_str(wc.status));
}

void rig_expect_event(struct rig *rig, uint32_t type, uint32_t detail)
{
	struct hdl_event event;
	if (hdl_event_get(rig->adapter, &event, 0) != 0)
		fail_msg("no event where this must come: %s", hdl_event_str(type));
	if (event.type != type || event.detail != detail)
		fail_msg("event: %s; %s, instead of %s; %s", hdl_event_str(event.type),
		         hdl_detail_str(event.detail), hdl_event_str(type), hdl_detail_str(detail));
	assert_ptr_equal(event.u.qp, rig->qp);
}

void rig_no_event(struct rig *rig)
{
	struct hdl_event event;
	if (hdl_event_get(rig->adapter, &event, 0) == 0)
		fail_msg("event: %s; %s", hdl_event_str(event.type), hdl_detail_str(event.detail));
}
