/* The rig of the tests of lanes. See lane_rig.h. */
#include "lane_rig.h"

#include <stdlib.h>
#include <string.h>

#define TO_PEER 1u /* the link between the two; 0 is the one to itself */
#define ACCESS                                                                     \
	(HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_READ | \
	 HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)

static uint64_t lane_now(void *context)
{
	return ((struct lane_rig *)context)->now_ns;
}

static uint8_t *make_memory(struct hdl_pd *pd, struct hdl_mr **mr)
{
	uint8_t *memory = aligned_alloc(4096, LANE_BYTES);
	assert_non_null(memory);
	for (size_t i = 0; i < LANE_BYTES; i++)
		memory[i] = (uint8_t)(i * 7 + i / 251);
	assert_int_equal(hdl_mr_register(pd, memory, LANE_BYTES, ACCESS, mr), 0);
	return memory;
}

static struct hdl_qp *make_qp(struct hdl_pd *pd, struct hdl_cq *scq, struct hdl_cq *rcq)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = scq,
	                                .recv_cq = rcq,
	                                .cap = {LANE_DEPTH, LANE_DEPTH, 2, 2, LANE_MAX_INLINE}};
	assert_int_equal(hdl_qp_create(pd, &init, &qp), 0);
	return qp;
}

static void connect_qp(struct hdl_qp *qp, struct hdl_adapter *to, const struct hdl_qp *peer,
                       uint32_t sq_psn, uint32_t rq_psn)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                           .port_num = 1,
	                           .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
	                                     HDL_ACCESS_REMOTE_ATOMIC,
	                           .path_mtu = 1024,
	                           .dest_qpn = hdl_qp_number(peer),
	                           .ah = {.dgid = to->engine.gid, .port_num = 1},
	                           .rq_psn = rq_psn,
	                           .sq_psn = sq_psn,
	                           .max_rd_atomic = 4,
	                           .max_dest_rd_atomic = 4,
	                           .min_rnr_timer = 1,
	                           .timeout = 10,
	                           .retry_cnt = 7,
	                           .rnr_retry = 6};
	assert_int_equal(
	        hdl_qp_modify(qp, &attr,
	                      HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX | HDL_QP_ACCESS),
	        0);
	attr.state = HDL_QPS_RTR;
	assert_int_equal(hdl_qp_modify(qp, &attr,
	                               HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU |
	                                       HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                                       HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER),
	                 0);
	attr.state = HDL_QPS_RTS;
	assert_int_equal(hdl_qp_modify(qp, &attr,
	                               HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT |
	                                       HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
	                                       HDL_QP_MAX_RD_ATOMIC),
	                 0);
}

void lane_open(struct lane_rig *rig, bool no_fast_path)
{
	memset(rig, 0, sizeof(*rig));
	struct hdl_open_attr attr = {.max_qp = 16, .max_mr = 16, .no_thread = true};
	struct adapter_env env = {
	        .clock = {lane_now, rig}, .seed = 7, .no_fast_path = no_fast_path};
	assert_int_equal(adapter_open(&attr, &env, &rig->adapter), 0);
	env.seed = 8;
	assert_int_equal(adapter_open(&attr, &env, &rig->peer), 0);
	assert_int_equal(hdl_join(rig->adapter, rig->peer), 0);
	assert_int_equal(hdl_pd_create(rig->adapter, &rig->pd), 0);
	assert_int_equal(hdl_pd_create(rig->peer, &rig->peer_pd), 0);
	assert_int_equal(hdl_cq_create(rig->adapter, 4 * LANE_DEPTH, NULL, NULL, &rig->scq), 0);
	assert_int_equal(hdl_cq_create(rig->adapter, 4 * LANE_DEPTH, NULL, NULL, &rig->rcq), 0);
	assert_int_equal(hdl_cq_create(rig->peer, 4 * LANE_DEPTH, NULL, NULL, &rig->peer_cq), 0);
	rig->mem = make_memory(rig->pd, &rig->mr);
	rig->peer_mem = make_memory(rig->peer_pd, &rig->peer_mr);
	rig->qp = make_qp(rig->pd, rig->scq, rig->rcq);
	rig->peer_qp = make_qp(rig->peer_pd, rig->peer_cq, rig->peer_cq);
	connect_qp(rig->qp, rig->peer, rig->peer_qp, LANE_SQ_PSN, LANE_RQ_PSN);
	connect_qp(rig->peer_qp, rig->adapter, rig->qp, LANE_RQ_PSN, LANE_SQ_PSN);
}

void lane_close(struct lane_rig *rig)
{
	struct hdl_event event;
	while (hdl_event_get(rig->adapter, &event, 0) == 0)
		;
	assert_int_equal(hdl_qp_destroy(rig->qp), 0);
	assert_int_equal(hdl_qp_destroy(rig->peer_qp), 0);
	assert_int_equal(hdl_mr_deregister(rig->mr), 0);
	assert_int_equal(hdl_mr_deregister(rig->peer_mr), 0);
	assert_int_equal(hdl_cq_destroy(rig->scq), 0);
	assert_int_equal(hdl_cq_destroy(rig->rcq), 0);
	assert_int_equal(hdl_cq_destroy(rig->peer_cq), 0);
	assert_int_equal(hdl_pd_destroy(rig->pd), 0);
	assert_int_equal(hdl_pd_destroy(rig->peer_pd), 0);
	assert_int_equal(hdl_close(rig->adapter), 0);
	assert_int_equal(hdl_close(rig->peer), 0);
	free(rig->mem);
	free(rig->peer_mem);
}

/* --- frames in --- */

struct frame lane_frame(const struct lane_rig *rig, enum frame_kind kind, uint32_t msn)
{
	return (struct frame){.kind = (uint8_t)kind,
	                      .to_qpn = hdl_qp_number(rig->qp),
	                      .from_qpn = hdl_qp_number(rig->peer_qp),
	                      .msn = msn};
}

void lane_put(struct lane_rig *rig, const struct frame *frame, const void *body, size_t bytes)
{
	struct ring_tx *tx = &rig->peer->peers.links[TO_PEER].tx;
	unsigned char *out = ring_reserve(tx, sizeof(*frame) + bytes);
	assert_non_null(out);
	memcpy(out, frame, sizeof(*frame));
	if (bytes > 0)
		memcpy(out + sizeof(*frame), body, bytes);
	ring_publish(tx);
}

void lane_put_send(struct lane_rig *rig, uint32_t msn, const void *data, uint32_t length)
{
	struct frame frame = lane_frame(rig, FRAME_SEND, msn);
	frame.length = length;
	lane_put(rig, &frame, data, length);
}

void lane_put_answer(struct lane_rig *rig, uint32_t msn, uint32_t answer, uint32_t detail)
{
	struct frame frame = lane_frame(rig, FRAME_ANSWER, msn);
	struct frame_answer body = {.answer = answer, .detail = detail};
	lane_put(rig, &frame, &body, sizeof(body));
}

/* --- frames out --- */

static void next_item(struct lane_rig *rig, struct lane_message *message)
{
	struct frame_item item;
	assert_true(rig->burst_bytes - rig->item_at >= sizeof(item));
	memcpy(&item, rig->burst_body + rig->item_at, sizeof(item));
	rig->item_at += sizeof(item);
	size_t padded = (item.length + 7u) & ~(size_t)7;
	assert_true(rig->burst_bytes - rig->item_at >= padded);
	message->frame = rig->burst;
	message->frame.kind = FRAME_SEND;
	message->frame.num_sge = 0;
	message->frame.flags |= item.flags;
	message->frame.length = item.length;
	message->frame.imm = item.imm;
	message->bytes = item.length;
	memcpy(message->body, rig->burst_body + rig->item_at, item.length);
	rig->item_at += padded;
	rig->burst.msn++;
	rig->burst.flags = 0; /* what it acknowledges belongs to the first */
	rig->items_left--;
}

bool lane_look(struct lane_rig *rig, struct lane_message *message)
{
	struct ring_rx *rx = &rig->peer->peers.links[TO_PEER].rx;
	size_t bytes;
	if (rig->items_left == 0) {
		const unsigned char *record = ring_peek(rx, &bytes);
		if (record == NULL)
			return false;
		assert_true(bytes >= sizeof(struct frame) && bytes <= FRAME_MAX_BYTES);
		memcpy(&message->frame, record, sizeof(message->frame));
		message->bytes = bytes - sizeof(message->frame);
		memcpy(message->body, record + sizeof(message->frame), message->bytes);
		ring_release(rx);
		ring_flush_head(rx);
		if (message->frame.kind != FRAME_BURST)
			return true;
		assert_true(message->bytes <= sizeof(rig->burst_body));
		rig->burst = message->frame;
		rig->items_left = message->frame.num_sge;
		rig->item_at = 0;
		rig->burst_bytes = message->bytes;
		memcpy(rig->burst_body, message->body, message->bytes);
	}
	next_item(rig, message);
	return true;
}

/* --- time --- */

void lane_run(struct lane_rig *rig)
{
	int quiet = 0;
	for (int turns = 0; quiet < 2; turns++) {
		assert_true(turns < 1000);
		quiet = hdl_progress(rig->adapter) == 0 ? quiet + 1 : 0;
	}
}

void lane_pass(struct lane_rig *rig, uint64_t ns)
{
	lane_run(rig);
	rig->now_ns += ns;
	lane_run(rig);
}

/* --- requests --- */

struct hdl_sge lane_piece(const struct lane_rig *rig, size_t offset, uint32_t length)
{
	return (struct hdl_sge){(uint64_t)(uintptr_t)rig->mem + offset, length,
	                        hdl_mr_key(rig->mr)};
}

void lane_recv(struct lane_rig *rig, uint64_t wr_id, size_t offset, uint32_t length)
{
	struct hdl_sge piece = lane_piece(rig, offset, length);
	struct hdl_recv_wr wr = {.wr_id = wr_id, .sg_list = &piece, .num_sge = 1};
	assert_int_equal(hdl_post_recv(rig->qp, &wr, NULL), 0);
}

enum hdl_qp_state lane_state(const struct lane_rig *rig)
{
	return qp_state(&rig->qp->qp);
}
