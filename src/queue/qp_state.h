/* The states of a queue pair as data: which transitions exist, and which attributes each needs and
 * allows, by type (IBTA volume 1 section 10.3 and table 91). Pure. */
#ifndef QUEUE_QP_STATE_H
#define QUEUE_QP_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include <heddle/types.h>

enum qp_verdict {
	QP_MODIFY_OK,
	QP_MODIFY_NO_TRANSITION,
	QP_MODIFY_MISSING,    /* a required attribute is not in the mask */
	QP_MODIFY_NOT_ALLOWED /* the mask has an attribute that this transition does not accept */
};

/* May a queue pair of @type go from @from to @to with the attributes in @mask (apart from
 * HDL_QP_STATE and HDL_QP_CUR_STATE)? */
enum qp_verdict qp_judge(enum hdl_qp_type type, enum hdl_qp_state from, enum hdl_qp_state to,
                         uint32_t mask);

/* The attributes that this transition requires, and those that it also allows: for reporting why it
 * was refused. False: there is no such transition. */
bool qp_attributes(enum hdl_qp_type type, enum hdl_qp_state from, enum hdl_qp_state to,
                   uint32_t *need, uint32_t *allow);

/* The same as qp_judge() for an end-to-end context, which has no SQD. */
enum qp_verdict qp_judge_context(enum hdl_qp_state from, enum hdl_qp_state to, uint32_t mask);

static inline bool qp_may_receive(enum hdl_qp_state state)
{
	return state == HDL_QPS_RTR || state == HDL_QPS_RTS || state == HDL_QPS_SQD ||
	       state == HDL_QPS_SQE;
}

#endif
