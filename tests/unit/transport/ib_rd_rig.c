/* Reliable datagrams on the rig; see ib_rd_rig.h. */
#include "ib_rd_rig.h"

#define ALL (HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)

struct rd_rig rd;

struct hdl_qp *rd_qp(struct rig *rig, struct hdl_rdd *rdd, struct hdl_srq *srq)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RD,
	                                .send_cq = rig->scq,
	                                .recv_cq = rig->rcq,
	                                .rdd = rdd,
	                                .srq = srq,
	                                .cap = {8, 8, 4, 4, 64}};
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                           .port_num = 1,
	                           .qkey = RD_QKEY,
	                           .access = ALL,
	                           .min_rnr_timer = 1};
	assert_int_equal(hdl_qp_create(rig->pd, &init, &qp), 0);
	assert_int_equal(hdl_qp_modify(qp, &attr,
	                               HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT |
	                                       HDL_QP_QKEY | HDL_QP_ACCESS | HDL_QP_MIN_RNR_TIMER),
	                 0);
	attr.state = HDL_QPS_RTR;
	assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE), 0);
	attr.state = HDL_QPS_RTS;
	assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE), 0);
	return qp;
}

void rd_ready(struct rig *rig, uint8_t retries)
{
	struct hdl_qp_attr attr = {
	        .state = HDL_QPS_INIT,
	        .port_num = 1,
	        .ah = {.dgid = rig->peer, .port_num = 1, .is_global = true, .hop_limit = 64},
	        .path_mtu = 256,
	        .dest_qpn = RD_PEER_EEC,
	        .rq_psn = RIG_RQ_PSN,
	        .sq_psn = RIG_SQ_PSN,
	        .max_dest_rd_atomic = 1,
	        .max_rd_atomic = 1,
	        .timeout = 10,
	        .retry_cnt = retries,
	        .rnr_retry = retries};
	assert_int_equal(
	        hdl_eec_modify(rd.eec, &attr, HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT), 0);
	attr.state = HDL_QPS_RTR;
	assert_int_equal(hdl_eec_modify(rd.eec, &attr,
	                                HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU |
	                                        HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                                        HDL_QP_MAX_DEST_RD_ATOMIC),
	                 0);
	attr.state = HDL_QPS_RTS;
	assert_int_equal(hdl_eec_modify(rd.eec, &attr,
	                                HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT |
	                                        HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
	                                        HDL_QP_MAX_RD_ATOMIC),
	                 0);
}

int rd_setup(void **state)
{
	rig_setup(state);
	struct rig *rig = *state;
	assert_int_equal(hdl_rdd_open(rig->adapter, &rd.rdd), 0);
	assert_int_equal(hdl_eec_create(rd.rdd, &rd.eec), 0);
	rd_ready(rig, 2);
	rig->qp = rd_qp(rig, rd.rdd, NULL);
	for (unsigned i = 0; i < RD_OTHERS; i++)
		rd.more[i] = rd_qp(rig, rd.rdd, NULL);
	return 0;
}

int rd_teardown(void **state)
{
	struct rig *rig = *state;
	for (unsigned i = 0; i < RD_OTHERS; i++)
		if (rd.more[i] != NULL)
			assert_int_equal(hdl_qp_destroy(rd.more[i]), 0);
	if (rig->qp != NULL)
		assert_int_equal(hdl_qp_destroy(rig->qp), 0);
	rig->qp = NULL;
	if (rd.eec != NULL)
		assert_int_equal(hdl_eec_destroy(rd.eec), 0);
	assert_int_equal(hdl_rdd_close(rd.rdd), 0);
	return rig_teardown(state);
}

struct ib_packet rd_packet(const struct hdl_qp *qp, uint8_t opcode, uint32_t psn)
{
	struct ib_packet packet = {0};
	packet.bth.opcode = (uint8_t)(IB_RD + opcode);
	packet.bth.migreq = true;
	packet.bth.ack_request = true;
	packet.bth.pkey = 0xffff;
	packet.bth.dest_qp = hdl_qp_number(qp);
	packet.bth.psn = psn;
	packet.rdeth.ee_context = hdl_eec_number(rd.eec);
	packet.deth.qkey = RD_QKEY;
	packet.deth.src_qp = RIG_PEER_QPN;
	return packet;
}

const struct ib_packet *rd_expect(struct rig *rig, uint8_t opcode, uint32_t psn)
{
	const struct ib_packet *packet = rig_expect(rig, (uint8_t)(IB_RD + opcode), psn);
	assert_int_equal(packet->rdeth.ee_context, RD_PEER_EEC);
	return packet;
}

enum hdl_qp_state rd_state(void)
{
	struct hdl_qp_attr attr;
	assert_int_equal(hdl_eec_query(rd.eec, &attr), 0);
	return attr.state;
}
