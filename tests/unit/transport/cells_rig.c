/* See cells_rig.h. */
#include "cells_rig.h"

#include <stdlib.h>

static uint64_t rig_now(void *context)
{
	return ((struct rig *)context)->now_ns;
}

static bool chance(struct rig *rig, uint32_t permille)
{
	return permille > 0 && prng_below(&rig->prng, 1000) < permille;
}

static void enqueue(struct rig *rig, const struct path *path, const uint8_t *cell, size_t bytes)
{
	assert_true(rig->tail - rig->head < RIG_CELLS);
	struct rig_cell *at = &rig->queue[rig->tail++ % RIG_CELLS];
	at->bytes = cable_pack(at->data, path, cell, bytes);
	if (chance(rig, rig->damage))
		at->data[CABLE_PATH_BYTES + prng_below(&rig->prng, bytes)] ^=
		        (uint8_t)(1u << prng_below(&rig->prng, 8));
	if (chance(rig, rig->swap) && rig->tail - rig->head > 1) {
		struct rig_cell *other =
		        &rig->queue[(rig->head + prng_below(&rig->prng, rig->tail - rig->head)) %
		                    RIG_CELLS];
		struct rig_cell now = *at;
		*at = *other;
		*other = now;
	}
}

static void out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct rig *rig = ((struct rig_side *)context)->rig;
	struct cell cell;
	assert_int_equal(cell_decode(&cell, payload, bytes), CELL_OK);
	if (rig->seen != NULL)
		rig->seen(rig, &cell);
	if (rig->cut || chance(rig, rig->loss))
		return;
	enqueue(rig, path, payload, bytes);
	if (chance(rig, rig->twice))
		enqueue(rig, path, payload, bytes);
}

static unsigned carry(struct rig *rig)
{
	static struct rig_cell now;
	unsigned count = 0;
	for (; rig->head != rig->tail && count < 256; count++) {
		const uint8_t *payload;
		struct path came;
		size_t bytes;
		now = rig->queue[rig->head++ % RIG_CELLS];
		assert_true(cable_unpack(now.data, now.bytes, &came, &payload, &bytes));
		int to = memcmp(came.ip.dgid, rig->side[0].gid.raw, 16) == 0 ? 0 : 1;
		adapter_take(rig->side[to].adapter, &came, false, payload, bytes);
	}
	return count;
}

static void side_open(struct rig *rig, int which)
{
	struct rig_side *side = &rig->side[which];
	side->rig = rig;
	side->gid = (struct hdl_gid){{0xfe, 0x80, [15] = (uint8_t)(which + 1)}};
	cable_init(&side->cable, out, NULL, side);
	struct hdl_open_attr attr = {.no_thread = true, .gid = side->gid};
	struct adapter_env env = {.clock = {rig_now, rig},
	                          .seed = (uint64_t)which + 5,
	                          .carrier = &side->cable.carrier,
	                          .cells = true};
	assert_int_equal(adapter_open(&attr, &env, &side->adapter), 0);
	cell_mac(side->gid.raw, side->mac);
	side->block = aligned_alloc(4096, RIG_BYTES + 2 * RIG_EDGE);
	assert_non_null(side->block);
	memset(side->block, RIG_GUARD, RIG_BYTES + 2 * RIG_EDGE);
	side->mem = side->block + RIG_EDGE;
	assert_int_equal(hdl_pd_create(side->adapter, &side->pd), 0);
	assert_int_equal(hdl_cq_create(side->adapter, 4096, NULL, NULL, &side->scq), 0);
	assert_int_equal(hdl_cq_create(side->adapter, 4096, NULL, NULL, &side->rcq), 0);
	assert_int_equal(hdl_mr_register(side->pd, side->mem, RIG_BYTES, 0x1f, &side->mr), 0);
}

int rig_setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	assert_non_null(rig);
	rig->now_ns = 1000000;
	prng_seed(&rig->prng, 7);
	side_open(rig, 0);
	side_open(rig, 1);
	*state = rig;
	return 0;
}

int rig_teardown(void **state)
{
	struct rig *rig = *state;
	for (int i = 0; i < 2; i++) {
		struct rig_side *side = &rig->side[i];
		for (uint32_t at = 0; at < RIG_EDGE; at++)
			assert_true(side->block[at] == RIG_GUARD &&
			            side->mem[RIG_BYTES + at] == RIG_GUARD);
		for (size_t at = 0; i == 0 && at < COUNT(rig->qps); at++)
			rig_drop(rig, rig->qps[at]);
		for (size_t at = 0; i == 0 && at < COUNT(rig->ahs); at++)
			if (rig->ahs[at] != NULL)
				assert_int_equal(hdl_ah_destroy(rig->ahs[at]), 0);
		assert_int_equal(hdl_mr_deregister(side->mr), 0);
		assert_int_equal(hdl_cq_destroy(side->scq), 0);
		assert_int_equal(hdl_cq_destroy(side->rcq), 0);
		assert_int_equal(hdl_pd_destroy(side->pd), 0);
		assert_int_equal(hdl_close(side->adapter), 0);
		free(side->block);
	}
	free(rig);
	return 0;
}

struct hdl_qp *rig_qp(struct rig *rig, int which, uint32_t type, bool acknowledged)
{
	struct rig_side *side = &rig->side[which];
	struct hdl_qp_init_attr init = {.type = type,
	                                .send_cq = side->scq,
	                                .recv_cq = side->rcq,
	                                .signal_all = true,
	                                .acknowledged = acknowledged,
	                                .cap = {512, 512, 2, 2, 0}};
	struct hdl_qp *qp;
	assert_int_equal(hdl_qp_create(side->pd, &init, &qp), 0);
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT, .port_num = 1, .access = 0xc, .qkey = 1};
	assert_int_equal(hdl_qp_modify(qp, &attr,
	                               HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX |
	                                       (type == HDL_QP_UD ? HDL_QP_QKEY : HDL_QP_ACCESS)),
	                 0);
	if (type == HDL_QP_UD) {
		attr.state = HDL_QPS_RTR;
		assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE), 0);
		attr.state = HDL_QPS_RTS;
		attr.sq_psn = 0xfffffe;
		assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE | HDL_QP_SQ_PSN), 0);
	}
	size_t at = 0;
	while (at < COUNT(rig->qps) && rig->qps[at] != NULL)
		at++;
	assert_true(at < COUNT(rig->qps));
	rig->qps[at] = qp;
	return qp;
}

void rig_drop(struct rig *rig, struct hdl_qp *qp)
{
	for (size_t at = 0; qp != NULL && at < COUNT(rig->qps); at++)
		if (rig->qps[at] == qp) {
			assert_int_equal(hdl_qp_destroy(qp), 0);
			rig->qps[at] = NULL;
			return;
		}
}

void rig_pair(struct rig *rig, uint32_t type, struct hdl_qp *qp[2])
{
	bool reliable = type == HDL_QP_RC;
	for (int i = 0; i < 2; i++)
		qp[i] = rig_qp(rig, i, type, false);
	for (int i = 0; i < 2; i++) {
		const struct rig_side *other = &rig->side[1 - i];
		struct hdl_qp_attr attr = {
		        .state = HDL_QPS_RTR,
		        .path_mtu = 256,
		        .dest_qpn = hdl_qp_number(qp[1 - i]),
		        .rq_psn = 0xfffff0u, /* soon to wrap around */
		        .sq_psn = 0xfffff0u,
		        .timeout = 10,
		        .retry_cnt = 7,
		        .rnr_retry = 6,
		        .min_rnr_timer = 10,
		        .max_rd_atomic = 8,
		        .max_dest_rd_atomic = 8,
		        .ah = {.dgid = other->gid, .is_global = true, .port_num = 1}};
		assert_int_equal(hdl_qp_modify(qp[i], &attr,
		                               HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU |
		                                       HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
		                                       (reliable ? HDL_QP_MAX_DEST_RD_ATOMIC |
		                                                           HDL_QP_MIN_RNR_TIMER
		                                                 : 0u)),
		                 0);
		attr.state = HDL_QPS_RTS;
		assert_int_equal(
		        hdl_qp_modify(qp[i], &attr,
		                      HDL_QP_STATE | HDL_QP_SQ_PSN |
		                              (reliable ? HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
		                                                  HDL_QP_RNR_RETRY |
		                                                  HDL_QP_MAX_RD_ATOMIC
		                                        : 0u)),
		        0);
	}
}

void rig_recv(struct rig *rig, int which, struct hdl_qp *qp, uint64_t wr_id, uint32_t offset,
              uint32_t length)
{
	const struct rig_side *side = &rig->side[which];
	struct hdl_sge piece = {(uint64_t)(uintptr_t)(side->mem + offset), length,
	                        hdl_mr_key(side->mr)};
	struct hdl_recv_wr wr = {.wr_id = wr_id, .sg_list = &piece, .num_sge = 1};
	assert_int_equal(hdl_post_recv(qp, &wr, NULL), 0);
}

int rig_post(struct rig *rig, int which, struct hdl_qp *qp, uint32_t opcode, uint32_t offset,
             uint32_t length, uint32_t remote)
{
	const struct rig_side *side = &rig->side[which], *other = &rig->side[1 - which];
	struct hdl_sge piece = {(uint64_t)(uintptr_t)(side->mem + offset), length,
	                        hdl_mr_key(side->mr)};
	struct hdl_send_wr wr = {
	        .sg_list = &piece, .num_sge = 1, .opcode = opcode, .imm = 0x07050100};
	wr.u.rdma.addr = (uint64_t)(uintptr_t)(other->mem + remote);
	wr.u.rdma.key = hdl_mr_key(other->mr);
	return hdl_post_send(qp, &wr, NULL);
}

struct hdl_ah *rig_ah(struct rig *rig, int which)
{
	const struct rig_side *side = &rig->side[which], *other = &rig->side[1 - which];
	struct hdl_ah_attr attr = {.dgid = other->gid, .is_global = true, .port_num = 1};
	struct hdl_ah *ah;
	memcpy(attr.dmac, other->mac, sizeof(attr.dmac));
	assert_int_equal(hdl_ah_create(side->pd, &attr, &ah), 0);
	size_t at = 0;
	while (at < COUNT(rig->ahs) && rig->ahs[at] != NULL)
		at++;
	assert_true(at < COUNT(rig->ahs));
	rig->ahs[at] = ah;
	return ah;
}

int rig_datagram(struct rig *rig, int which, struct hdl_qp *qp, struct hdl_ah *ah, uint32_t qpn,
                 uint32_t offset, uint32_t length)
{
	const struct rig_side *side = &rig->side[which];
	struct hdl_sge piece = {(uint64_t)(uintptr_t)(side->mem + offset), length,
	                        hdl_mr_key(side->mr)};
	struct hdl_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = HDL_OP_SEND};
	wr.u.ud.ah = ah;
	wr.u.ud.qpn = qpn;
	wr.u.ud.qkey = 1;
	return hdl_post_send(qp, &wr, NULL);
}

/* One turn of everything. */
static unsigned rig_turn(struct rig *rig)
{
	unsigned did = (unsigned)hdl_progress(rig->side[0].adapter) +
	               (unsigned)hdl_progress(rig->side[1].adapter) + carry(rig);
	if (did == 0)
		rig->now_ns += 100000;
	return did;
}

void rig_pass(struct rig *rig, uint64_t ns)
{
	for (uint64_t end = rig->now_ns + ns; rig->now_ns < end;)
		rig_turn(rig);
}

bool rig_wait(struct rig *rig, struct hdl_cq *cq, struct hdl_wc *wc)
{
	for (uint64_t end = rig->now_ns + RIG_LIMIT; rig->now_ns < end; rig_turn(rig))
		if (hdl_cq_poll(cq, wc, 1) == 1)
			return true;
	return false;
}

void rig_expect(struct rig *rig, struct hdl_cq *cq, uint32_t status)
{
	struct hdl_wc wc;
	assert_true(rig_wait(rig, cq, &wc));
	if (wc.status != status)
		print_error("%s\n", hdl_wc_status_str(wc.status));
	assert_int_equal(wc.status, status);
}

void rig_forge(struct rig *rig, int which, const struct cell *cell, const uint8_t *data,
               uint32_t bytes)
{
	struct path came = {.kind = PATH_CELL};
	struct cell_cutter cutter;
	uint8_t raw[CELL_MAX_BYTES];
	memcpy(came.ip.sgid, rig->side[1 - which].gid.raw, 16);
	memcpy(came.ip.dgid, rig->side[which].gid.raw, 16);
	cell_cut(&cutter, cell, bytes);
	for (uint32_t at = 0;; at += CELL_DATA_BYTES) {
		size_t length = cell_cut_next(&cutter, data + at, raw);
		if (length == 0)
			break;
		adapter_take(rig->side[which].adapter, &came, false, raw, length);
	}
}

uint64_t rig_count(struct rig *rig, int which, const char *counter)
{
	static struct hdl_counter list[256];
	size_t count = hdl_counters(rig->side[which].adapter, list, COUNT(list));
	for (size_t i = 0; i < count && i < COUNT(list); i++)
		if (strcmp(list[i].name, counter) == 0)
			return list[i].value;
	fail_msg("no counter %s", counter);
	return 0;
}

static uint8_t byte_of(uint32_t at, uint32_t seed)
{
	return (uint8_t)(at * 13 + at / 251 + seed);
}

void rig_fill(struct rig *rig, int which, uint32_t offset, uint32_t bytes, uint32_t seed)
{
	for (uint32_t i = 0; i < bytes; i++)
		rig->side[which].mem[offset + i] = byte_of(i, seed);
}

bool rig_holds(struct rig *rig, int which, uint32_t offset, uint32_t bytes, uint32_t seed)
{
	for (uint32_t i = 0; i < bytes; i++)
		if (rig->side[which].mem[offset + i] != byte_of(i, seed))
			return false;
	return true;
}
