/* The states of a queue pair (IBTA volume 1 section 10.3): every transition of every type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "queue/qp_state.h"

#define STATES 7

/* One row a state to come from, one letter a state to go to (RESET INIT RTR RTS SQD SQE ERR): y
 * yes, u only unreliable types, - no. Written out from the specification's figure, not from the
 * code. */
static const char *const diagram[STATES] = {
        [HDL_QPS_RESET] = "yy-----", [HDL_QPS_INIT] = "yyy---y", [HDL_QPS_RTR] = "y--y--y",
        [HDL_QPS_RTS] = "y--yy-y",   [HDL_QPS_SQD] = "y--yy-y",  [HDL_QPS_SQE] = "y--u--y",
        [HDL_QPS_ERR] = "y-----y",
};

static uint32_t needed(enum hdl_qp_type type, int from, int to)
{
	if (from == HDL_QPS_RESET && to == HDL_QPS_INIT)
		return HDL_QP_PKEY_INDEX | HDL_QP_PORT |
		       (type == HDL_QP_RAW                       ? 0u
		        : type == HDL_QP_UD || type == HDL_QP_RD ? (uint32_t)HDL_QP_QKEY
		                                                 : (uint32_t)HDL_QP_ACCESS);
	if (type == HDL_QP_RD ||
	    type == HDL_QP_RAW) /* the way is its contexts', or each datagram's */
		return 0;
	bool reliable = type != HDL_QP_UC && type != HDL_QP_UD;
	bool responds = reliable && type != HDL_QP_XRC_INI;
	bool requests = reliable && type != HDL_QP_XRC_TGT;
	if (from == HDL_QPS_INIT && to == HDL_QPS_RTR && type != HDL_QP_UD)
		return HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
		       (responds ? HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER : 0u);
	if (from == HDL_QPS_RTR && to == HDL_QPS_RTS)
		return HDL_QP_SQ_PSN | (reliable ? (uint32_t)HDL_QP_TIMEOUT : 0u) |
		       (requests ? HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC : 0u);
	return 0;
}

static void every_transition_of_every_type(void **state)
{
	(void)state;
	for (int type = HDL_QP_RC; type <= HDL_QP_RAW; type++)
		for (int from = 0; from < STATES; from++)
			for (int to = 0; to < STATES; to++) {
				char letter = diagram[from][to];
				bool exists =
				        letter == 'y' ||
				        (letter == 'u' && (type == HDL_QP_UC || type == HDL_QP_UD ||
				                           type == HDL_QP_RAW));
				enum qp_verdict verdict =
				        qp_judge((enum hdl_qp_type)type, (enum hdl_qp_state)from,
				                 (enum hdl_qp_state)to,
				                 needed((enum hdl_qp_type)type, from, to));
				assert_int_equal(verdict == QP_MODIFY_OK, exists);
				if (!exists)
					assert_int_equal(verdict, QP_MODIFY_NO_TRANSITION);
			}
}

static void each_needed_attribute_is_missed(void **state)
{
	(void)state;
	for (int type = HDL_QP_RC; type <= HDL_QP_RAW; type++)
		for (int from = HDL_QPS_RESET; from <= HDL_QPS_RTR; from++) {
			uint32_t mask = needed((enum hdl_qp_type)type, from, from + 1);
			for (uint32_t bit = 1; bit < HDL_QP_ATTR_ALL; bit <<= 1)
				if (mask & bit)
					assert_int_equal(qp_judge((enum hdl_qp_type)type,
					                          (enum hdl_qp_state)from,
					                          (enum hdl_qp_state)(from + 1),
					                          mask & ~bit),
					                 QP_MODIFY_MISSING);
		}
}

static void what_does_not_belong_is_refused(void **state)
{
	(void)state;
	assert_int_equal(qp_judge(HDL_QP_RC, HDL_QPS_RTS, HDL_QPS_ERR, HDL_QP_ACCESS),
	                 QP_MODIFY_NOT_ALLOWED);
	assert_int_equal(qp_judge(HDL_QP_RC, HDL_QPS_RTS, HDL_QPS_RTS, HDL_QP_DEST_QPN),
	                 QP_MODIFY_NOT_ALLOWED);
	assert_int_equal(qp_judge(HDL_QP_UD, HDL_QPS_RTS, HDL_QPS_RTS, HDL_QP_ACCESS),
	                 QP_MODIFY_NOT_ALLOWED);
	assert_int_equal(
	        qp_judge(HDL_QP_UC, HDL_QPS_RTR, HDL_QPS_RTS, HDL_QP_SQ_PSN | HDL_QP_TIMEOUT),
	        QP_MODIFY_NOT_ALLOWED);
	assert_int_equal(qp_judge(HDL_QP_UC, HDL_QPS_SQE, HDL_QPS_RTS, HDL_QP_QKEY),
	                 QP_MODIFY_NOT_ALLOWED);
	assert_int_equal(qp_judge(HDL_QP_RC, HDL_QPS_SQD, HDL_QPS_SQD, HDL_QP_AV | HDL_QP_TIMEOUT),
	                 QP_MODIFY_OK);
	/* A path to migrate to: all connected types, from RTR on; its state from RTS on. */
	static const uint32_t moves = HDL_QP_ALT_PATH | HDL_QP_PATH_MIG_STATE;
	for (int type = HDL_QP_RC; type <= HDL_QP_XRC_TGT; type++) {
		enum hdl_qp_type t = (enum hdl_qp_type)type;
		enum qp_verdict good = type != HDL_QP_UD ? QP_MODIFY_OK : QP_MODIFY_NOT_ALLOWED;
		uint32_t rtr = needed(t, HDL_QPS_INIT, HDL_QPS_RTR),
		         rts = needed(t, HDL_QPS_RTR, HDL_QPS_RTS);
		assert_int_equal(qp_judge(t, HDL_QPS_INIT, HDL_QPS_INIT, HDL_QP_ALT_PATH),
		                 QP_MODIFY_NOT_ALLOWED);
		assert_int_equal(qp_judge(t, HDL_QPS_INIT, HDL_QPS_RTR, rtr | HDL_QP_ALT_PATH),
		                 good);
		assert_int_equal(qp_judge(t, HDL_QPS_INIT, HDL_QPS_RTR, rtr | moves),
		                 QP_MODIFY_NOT_ALLOWED);
		assert_int_equal(qp_judge(t, HDL_QPS_RTR, HDL_QPS_RTS, rts | moves), good);
		assert_int_equal(qp_judge(t, HDL_QPS_RTS, HDL_QPS_RTS, moves), good);
		assert_int_equal(qp_judge(t, HDL_QPS_SQD, HDL_QPS_RTS, moves), good);
		assert_int_equal(qp_judge(t, HDL_QPS_SQD, HDL_QPS_SQD, moves), good);
		assert_int_equal(qp_judge(t, HDL_QPS_RTS, HDL_QPS_SQD, moves),
		                 QP_MODIFY_NOT_ALLOWED);
	}
	/* Each end of XRC has the attributes of its half. */
	assert_int_equal(qp_judge(HDL_QP_XRC_INI, HDL_QPS_RTS, HDL_QPS_RTS, HDL_QP_MIN_RNR_TIMER),
	                 QP_MODIFY_NOT_ALLOWED);
	assert_int_equal(qp_judge(HDL_QP_XRC_TGT, HDL_QPS_RTS, HDL_QPS_RTS, HDL_QP_MIN_RNR_TIMER),
	                 QP_MODIFY_OK);
	assert_int_equal(qp_judge(HDL_QP_XRC_INI, HDL_QPS_SQD, HDL_QPS_SQD, HDL_QP_RETRY_CNT),
	                 QP_MODIFY_OK);
	assert_int_equal(qp_judge(HDL_QP_XRC_TGT, HDL_QPS_SQD, HDL_QPS_SQD, HDL_QP_RETRY_CNT),
	                 QP_MODIFY_NOT_ALLOWED);
}

/* A context has the half of RC that the queue pairs of RD have not, and no send queue to drain. */
static void contexts(void **state)
{
	(void)state;
	const uint32_t init = HDL_QP_PKEY_INDEX | HDL_QP_PORT;
	const uint32_t rtr = HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                     HDL_QP_MAX_DEST_RD_ATOMIC;
	const uint32_t rts = HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
	                     HDL_QP_MAX_RD_ATOMIC;
	static const char *const own[STATES] = {
	        [HDL_QPS_RESET] = "yy-----", [HDL_QPS_INIT] = "yyy---y", [HDL_QPS_RTR] = "y--y--y",
	        [HDL_QPS_RTS] = "y--y--y",   [HDL_QPS_SQD] = "y-----y",  [HDL_QPS_SQE] = "y-----y",
	        [HDL_QPS_ERR] = "y-----y",
	};
	const uint32_t need[STATES] = {init, rtr, rts};
	for (int from = 0; from < STATES; from++)
		for (int to = 0; to < STATES; to++) {
			uint32_t mask = to == from + 1 && to <= HDL_QPS_RTS ? need[from] : 0;
			enum qp_verdict verdict = qp_judge_context((enum hdl_qp_state)from,
			                                           (enum hdl_qp_state)to, mask);
			assert_int_equal(verdict, own[from][to] == 'y' ? QP_MODIFY_OK
			                                               : QP_MODIFY_NO_TRANSITION);
			for (uint32_t bit = 1; bit < HDL_QP_ATTR_ALL; bit <<= 1)
				if (mask & bit)
					assert_int_equal(qp_judge_context((enum hdl_qp_state)from,
					                                  (enum hdl_qp_state)to,
					                                  mask & ~bit),
					                 QP_MODIFY_MISSING);
		}
	assert_int_equal(qp_judge_context(HDL_QPS_RTS, HDL_QPS_RTS, HDL_QP_QKEY),
	                 QP_MODIFY_NOT_ALLOWED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_transition_of_every_type),
	        cmocka_unit_test(each_needed_attribute_is_missed),
	        cmocka_unit_test(what_does_not_belong_is_refused),
	        cmocka_unit_test(contexts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
