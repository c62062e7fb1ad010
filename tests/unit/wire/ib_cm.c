/* Messages of communication management: those that a Linux kernel (6.1, rdma_rxe) sent, and those
 * that it does not send written out by hand from the tables of IBTA volume 1, 12.6. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ib_sample.h"
#include "wire/ib_cm.h"

#define HEADER(attribute, transaction) "0107020300000000" transaction attribute "000000000000"

/* The datagram that begins with @hex and is zero from there on, which must come out of the encoder
 * again as it is. */
static void from_hex(struct ib_cm_message *message, const char *hex)
{
	uint8_t mad[MAD_BYTES] = {0}, again[MAD_BYTES];
	ib_sample_hex(mad, sizeof(mad), hex);
	assert_int_equal(ib_cm_decode(message, mad, sizeof(mad)), IB_CM_OK);
	memset(again, 0xa5, sizeof(again));
	ib_cm_encode(message, again);
	assert_memory_equal(again, mad, sizeof(mad));
}

static void linux_req(void **state)
{
	static const uint8_t own[16] = {[10] = 0xff, 0xff, 10, 77, 0, 3};
	static const uint8_t other[16] = {[10] = 0xff, 0xff, 10, 77, 0, 1};
	struct ib_cm_message message;
	struct ib_cm_ip ip;
	uint16_t space, port;
	(void)state;
	from_hex(&message,
	         HEADER("0010",
	                "00000002236abb41") "41bb6a23000000000000000001061c06505400fffe770003"
	                                    "00000000000000000000110100000001000000a021d3f9a7"
	                                    "ffff37f0ffffffff00000000000000000000ffff0a4d0003"
	                                    "00000000000000000000ffff0a4d00012e9fc00000400098"
	                                    "000000000000000000000000000000000000000000000000"
	                                    "000000000000000000000000000000000000000000"
	                                    "409b4a0000000000000000000000000a4d0003"
	                                    "0000000000000000000000000a4d0001");
	const struct ib_cm_req *req = &message.u.req;
	assert_int_equal(message.kind, IB_CM_REQ);
	assert_int_equal(message.transaction_id, 0x2236abb41);
	assert_int_equal(req->local_id, 0x41bb6a23);
	assert_true(ib_cm_service_split(req->service_id, &space, &port));
	assert_int_equal(space, 0x106);
	assert_int_equal(port, 7174);
	assert_int_equal(ib_cm_service(space, port), req->service_id);
	assert_int_equal(req->ca_guid, 0x505400fffe770003);
	assert_int_equal(req->qpn, 0x11);
	assert_int_equal(req->responder_resources, 1);
	assert_int_equal(req->initiator_depth, 1);
	assert_int_equal(req->remote_response_timeout, 20);
	assert_int_equal(req->local_response_timeout, 20);
	assert_int_equal(req->transport, IB_CM_RC);
	assert_int_equal(req->psn, 0x21d3f9);
	assert_int_equal(req->retry_count, 7);
	assert_int_equal(req->rnr_retry_count, 7);
	assert_int_equal(req->max_retries, 15);
	assert_int_equal(req->pkey, 0xffff);
	assert_int_equal(req->mtu, 3);
	assert_int_equal(req->primary.local_lid, 0xffff);
	assert_memory_equal(req->primary.local_gid, own, 16);
	assert_memory_equal(req->primary.remote_gid, other, 16);
	assert_int_equal(req->primary.flow_label, 0x2e9fc);
	assert_int_equal(req->primary.hop_limit, 64);
	assert_int_equal(req->primary.ack_timeout, 19);
	assert_true(ib_cm_ip_decode(&ip, req->private_data));
	assert_int_equal(ip.family, 4);
	assert_int_equal(ip.port, 0x9b4a);
	assert_memory_equal(ip.src + 12, own + 12, 4);
	assert_memory_equal(ip.dst + 12, other + 12, 4);
}

static void linux_rep(void **state)
{
	struct ib_cm_message message;
	uint32_t to;
	uint64_t service;
	(void)state;
	from_hex(&message,
	         HEADER("0013",
	                "1122334455667788") "0ca12f7d00004241000000000000110000000000a75cb500"
	                                    "010178e0505400fffe770003");
	const struct ib_cm_rep *rep = &message.u.rep;
	assert_int_equal(message.kind, IB_CM_REP);
	assert_int_equal(rep->local_id, 0x0ca12f7d);
	assert_int_equal(rep->remote_id, 0x4241);
	assert_int_equal(rep->qpn, 0x11);
	assert_int_equal(rep->psn, 0xa75cb5);
	assert_int_equal(rep->responder_resources, 1);
	assert_int_equal(rep->initiator_depth, 1);
	assert_int_equal(rep->target_ack_delay, 15);
	assert_int_equal(rep->rnr_retry_count, 7);
	assert_int_equal(rep->srq, 0);
	assert_int_equal(rep->ca_guid, 0x505400fffe770003);
	assert_true(ib_cm_addressee(&message, &to, &service));
	assert_int_equal(to, 0x4241);
}

static void linux_rtu_drep_rej_sidr_rep(void **state)
{
	struct ib_cm_message message;
	(void)state;
	from_hex(&message, HEADER("0014", "00000002236abb41") "41bb6a2300000777");
	assert_int_equal(message.u.rtu.local_id, 0x41bb6a23);
	assert_int_equal(message.u.rtu.remote_id, 0x777);
	from_hex(&message, HEADER("0016", "1122334455667799") "0ca12f7d00004241");
	assert_int_equal(message.kind, IB_CM_DREP);
	assert_int_equal(message.u.drep.local_id, 0x0ca12f7d);
	from_hex(&message, HEADER("0012", "1122334455667788") "000000000000424100000008");
	assert_int_equal(message.kind, IB_CM_REJ);
	assert_int_equal(message.u.rej.local_id, 0);
	assert_int_equal(message.u.rej.remote_id, 0x4241);
	assert_int_equal(message.u.rej.about, IB_CM_ABOUT_REQ);
	assert_int_equal(message.u.rej.reason, IB_CM_INVALID_SERVICE_ID);
	from_hex(&message, HEADER("0018", "1122334455667788") "00004242000000000000110000000000"
	                                                      "01111c0601234567");
	assert_int_equal(message.kind, IB_CM_SIDR_REP);
	assert_int_equal(message.u.sidr_rep.request_id, 0x4242);
	assert_int_equal(message.u.sidr_rep.status, IB_CM_SIDR_OK);
	assert_int_equal(message.u.sidr_rep.qpn, 0x11);
	assert_int_equal(message.u.sidr_rep.service_id, ib_cm_service(0x111, 7174));
	assert_int_equal(message.u.sidr_rep.qkey, 0x01234567);
}

static void ibta_12_6_6_mra(void **state)
{
	struct ib_cm_message message;
	(void)state;
	from_hex(&message, HEADER("0011", "0000000000000001") "1112131421222324"
	                                                      "40c0ee");
	assert_int_equal(message.kind, IB_CM_MRA);
	assert_int_equal(message.u.mra.local_id, 0x11121314);
	assert_int_equal(message.u.mra.remote_id, 0x21222324);
	assert_int_equal(message.u.mra.about, IB_CM_ABOUT_REP);
	assert_int_equal(message.u.mra.service_timeout, 24);
	assert_int_equal(message.u.mra.private_data[0], 0xee);
}

static void ibta_12_6_10_dreq(void **state)
{
	struct ib_cm_message message;
	(void)state;
	from_hex(&message, HEADER("0015", "0000000000000001") "1112131421222324"
	                                                      "aabbcc00ee");
	assert_int_equal(message.kind, IB_CM_DREQ);
	assert_int_equal(message.u.dreq.remote_qpn, 0xaabbcc);
	assert_int_equal(message.u.dreq.private_data[0], 0xee);
}

static void ibta_12_8_lap_apr(void **state)
{
	static const uint8_t own[16] = {0xfe, 0x80, [15] = 1}, other[16] = {0xfe, 0x80, [15] = 2};
	struct ib_cm_message message;
	(void)state;
	from_hex(&message,
	         HEADER("0019", "0000000000000001") "1112131421222324"
	                                            "00000000aabbcca000000000"
	                                            "01020304fe800000000000000000000000000001"
	                                            "fe800000000000000000000000000002"
	                                            "123450aa40027890ee");
	const struct ib_cm_lap *lap = &message.u.lap;
	assert_int_equal(message.kind, IB_CM_LAP);
	assert_int_equal(lap->remote_qpn, 0xaabbcc);
	assert_int_equal(lap->remote_response_timeout, 20);
	assert_int_equal(lap->alternate.local_lid, 0x102);
	assert_int_equal(lap->alternate.remote_lid, 0x304);
	assert_memory_equal(lap->alternate.local_gid, own, 16);
	assert_memory_equal(lap->alternate.remote_gid, other, 16);
	assert_int_equal(lap->alternate.flow_label, 0x12345);
	assert_int_equal(lap->alternate.traffic_class, 0xaa);
	assert_int_equal(lap->alternate.hop_limit, 0x40);
	assert_int_equal(lap->alternate.packet_rate, 2);
	assert_int_equal(lap->alternate.sl, 7);
	assert_int_equal(lap->alternate.subnet_local, 1);
	assert_int_equal(lap->alternate.ack_timeout, 18);
	assert_int_equal(lap->private_data[0], 0xee);
	from_hex(&message, HEADER("001a", "0000000000000001") "1112131421222324"
	                                                      "05020000a1");
	assert_int_equal(message.kind, IB_CM_APR);
	assert_int_equal(message.u.apr.info_bytes, 5);
	assert_int_equal(message.u.apr.status, 2);
	assert_int_equal(message.u.apr.info[0], 0xa1);
}

static void ibta_12_11_sidr_req(void **state)
{
	struct ib_cm_message message;
	uint32_t to;
	uint64_t service = 0;
	(void)state;
	from_hex(&message, HEADER("0017", "0000000000000001") "11121314ffff0000"
	                                                      "0000000001111c06ee");
	assert_int_equal(message.u.sidr_req.request_id, 0x11121314);
	assert_int_equal(message.u.sidr_req.pkey, 0xffff);
	assert_int_equal(message.u.sidr_req.private_data[0], 0xee);
	assert_false(ib_cm_addressee(&message, &to, &service));
	assert_int_equal(service, 0x01111c06);
}

static void what_is_no_message_is_refused(void **state)
{
	static const struct {
		const char *hex;
		size_t bytes;
		enum ib_cm_verdict verdict;
	} rows[] = {
	        {HEADER("0010", "0000000000000000"), MAD_BYTES, IB_CM_OK},
	        {HEADER("0010", "0000000000000000"), MAD_BYTES - 1, IB_CM_NO_MAD},
	        {HEADER("0010", "0000000000000000"), MAD_BYTES + 1, IB_CM_NO_MAD},
	        {HEADER("0010", "0000000000000000"), 0, IB_CM_NO_MAD},
	        {"02070203", MAD_BYTES, IB_CM_NO_MAD},
	        {"01030203", MAD_BYTES, IB_CM_NO_CM}, /* the subnet's administration */
	        {"01070103", MAD_BYTES, IB_CM_NO_CM},
	        {"01070201", MAD_BYTES, IB_CM_NO_CM}, /* Get: the class has no such method for us */
	        {"01070283", MAD_BYTES, IB_CM_NO_CM},
	        {HEADER("000f", "0000000000000000"), MAD_BYTES, IB_CM_NO_MESSAGE},
	        {HEADER("001b", "0000000000000000"), MAD_BYTES, IB_CM_NO_MESSAGE},
	        {HEADER("0110", "0000000000000000"), MAD_BYTES, IB_CM_NO_MESSAGE},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ib_cm_message message;
		uint8_t mad[MAD_BYTES + 1] = {0};
		ib_sample_hex(mad, sizeof(mad), rows[i].hex);
		assert_int_equal(ib_cm_decode(&message, mad, rows[i].bytes), rows[i].verdict);
	}
}

static void a11_addresses(void **state)
{
	uint8_t bytes[IB_CM_IP_BYTES] = {0}, again[IB_CM_IP_BYTES];
	struct ib_cm_ip ip;
	uint16_t space, port;
	(void)state;
	assert_false(ib_cm_ip_decode(&ip, bytes)); /* no family */
	ib_sample_hex(bytes, sizeof(bytes),
	              "0060abcd"
	              "fd77000000000000000000000000000a"
	              "fd77000000000000000000000000000b");
	assert_true(ib_cm_ip_decode(&ip, bytes));
	assert_int_equal(ip.family, 6);
	assert_int_equal(ip.port, 0xabcd);
	assert_int_equal(ip.src[15], 0xa);
	assert_int_equal(ip.dst[15], 0xb);
	ib_cm_ip_encode(&ip, again);
	assert_memory_equal(again, bytes, sizeof(bytes));
	bytes[0] = 0x10; /* another major version */
	assert_false(ib_cm_ip_decode(&ip, bytes));
	assert_false(ib_cm_service_split(0x2061c06, &space, &port));
	assert_false(ib_cm_service_split(0x1000000001061c06, &space, &port));
}

static void what_nobody_knows_is_refused(void **state)
{
	struct ib_cm_message message = {.kind = IB_CM_REQ, .transaction_id = 7}, answer;
	(void)state;
	message.u.req.local_id = 5;
	assert_true(ib_cm_refuse(&message, IB_CM_INVALID_SERVICE_ID, &answer));
	assert_int_equal(answer.kind, IB_CM_REJ);
	assert_int_equal(answer.transaction_id, 7);
	assert_int_equal(answer.u.rej.remote_id, 5);
	assert_int_equal(answer.u.rej.reason, IB_CM_INVALID_SERVICE_ID);
	message = (struct ib_cm_message){.kind = IB_CM_REP};
	message.u.rep.local_id = 5;
	message.u.rep.remote_id = 6;
	assert_true(ib_cm_refuse(&message, IB_CM_INVALID_SERVICE_ID, &answer));
	assert_int_equal(answer.kind, IB_CM_REJ);
	assert_int_equal(answer.u.rej.local_id, 6);
	assert_int_equal(answer.u.rej.remote_id, 5);
	assert_int_equal(answer.u.rej.about, IB_CM_ABOUT_REP);
	assert_int_equal(answer.u.rej.reason, IB_CM_INVALID_COMM_ID);
	message.kind = IB_CM_DREQ;
	assert_true(ib_cm_refuse(&message, IB_CM_INVALID_SERVICE_ID, &answer));
	assert_int_equal(answer.kind, IB_CM_DREP);
	assert_int_equal(answer.u.drep.remote_id, 5);
	message = (struct ib_cm_message){.kind = IB_CM_SIDR_REQ};
	message.u.sidr_req.request_id = 9;
	assert_true(ib_cm_refuse(&message, IB_CM_INVALID_SERVICE_ID, &answer));
	assert_int_equal(answer.u.sidr_rep.status, IB_CM_SIDR_UNSUPPORTED);
	assert_true(ib_cm_refuse(&message, IB_CM_NO_RESOURCES, &answer));
	assert_int_equal(answer.u.sidr_rep.request_id, 9);
	assert_int_equal(answer.u.sidr_rep.status, IB_CM_SIDR_REJECT);
	static const enum ib_cm_kind silent[] = {IB_CM_MRA, IB_CM_REJ,      IB_CM_RTU, IB_CM_DREP,
	                                         IB_CM_LAP, IB_CM_SIDR_REP, IB_CM_APR};
	for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++) {
		message.kind = silent[i];
		assert_false(ib_cm_refuse(&message, IB_CM_INVALID_SERVICE_ID, &answer));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(linux_req),
	        cmocka_unit_test(linux_rep),
	        cmocka_unit_test(linux_rtu_drep_rej_sidr_rep),
	        cmocka_unit_test(ibta_12_6_6_mra),
	        cmocka_unit_test(ibta_12_6_10_dreq),
	        cmocka_unit_test(ibta_12_8_lap_apr),
	        cmocka_unit_test(ibta_12_11_sidr_req),
	        cmocka_unit_test(what_is_no_message_is_refused),
	        cmocka_unit_test(a11_addresses),
	        cmocka_unit_test(what_nobody_knows_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
