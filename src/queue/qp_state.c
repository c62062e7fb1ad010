/* The states of a queue pair. */
#include "queue/qp_state.h"

#include <stddef.h>

/* The attributes that a transition requires, and those that it also allows. */
struct attributes {
	uint32_t need, allow;
};

struct transition {
	uint8_t from, to;
	struct attributes rc, uc, ud, ini, tgt, rd, eec, raw;
};

#define PATH   (HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN)
#define RC_RTR (PATH | HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER)
#define RC_RTS                                                                  \
	(HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY | \
	 HDL_QP_MAX_RD_ATOMIC)
#define TGT_RTS       (HDL_QP_SQ_PSN | HDL_QP_TIMEOUT)
#define ANY_SQD       (HDL_QP_PORT | HDL_QP_AV | HDL_QP_TIMEOUT | HDL_QP_PKEY_INDEX | MOVES)
#define INI_SQD       (ANY_SQD | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC)
#define TGT_SQD       (ANY_SQD | HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER)
#define RC_SQD        (INI_SQD | TGT_SQD)
#define UC_SQD        (HDL_QP_AV | MOVES | HDL_QP_PKEY_INDEX)
#define INIT_C        (HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS)
#define INIT_D        (HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_QKEY)
#define ANY_RTS       (MOVES | HDL_QP_MIN_RNR_TIMER)
#define TO_RTR        (HDL_QP_ACCESS | HDL_QP_PKEY_INDEX | HDL_QP_ALT_PATH)
#define NO_TRANSITION UINT32_MAX
#define ANY_RD        (HDL_QP_ACCESS | HDL_QP_QKEY | HDL_QP_MIN_RNR_TIMER)
#define INIT_E        (HDL_QP_PKEY_INDEX | HDL_QP_PORT)
#define EEC_RTR       (PATH | HDL_QP_MAX_DEST_RD_ATOMIC)
#define MOVES         (HDL_QP_ACCESS | HDL_QP_ALT_PATH | HDL_QP_PATH_MIG_STATE)

/* from, to, then by type: RC, UC, UD, the two ends of XRC, which are the requester's and the
 * responder's half of RC; RD, where the end-to-end context has the attributes of the path and the
 * queue pairs have the rest; and raw datagrams, which need nothing. */
static const struct transition transitions[] = {
        {HDL_QPS_RESET,
         HDL_QPS_INIT,
         {INIT_C, 0},
         {INIT_C, 0},
         {INIT_D, 0},
         {INIT_C, 0},
         {INIT_C, 0},
         {INIT_D, ANY_RD},
         {INIT_E, 0},
         {INIT_E, 0}},
        {HDL_QPS_INIT,
         HDL_QPS_INIT,
         {0, INIT_C},
         {0, INIT_C},
         {0, INIT_D},
         {0, INIT_C},
         {0, INIT_C},
         {0, INIT_D | ANY_RD},
         {0, INIT_E},
         {0, INIT_E}},
        {HDL_QPS_INIT,
         HDL_QPS_RTR,
         {RC_RTR, TO_RTR | HDL_QP_STRIPE},
         {PATH, TO_RTR},
         {0, HDL_QP_PKEY_INDEX | HDL_QP_QKEY},
         {PATH, TO_RTR},
         {RC_RTR, TO_RTR},
         {0, HDL_QP_PKEY_INDEX | ANY_RD},
         {EEC_RTR, HDL_QP_PKEY_INDEX},
         {0, HDL_QP_PKEY_INDEX}},
        {HDL_QPS_RTR,
         HDL_QPS_RTS,
         {RC_RTS, ANY_RTS},
         {HDL_QP_SQ_PSN, MOVES},
         {HDL_QP_SQ_PSN, HDL_QP_QKEY},
         {RC_RTS, MOVES},
         {TGT_RTS, ANY_RTS},
         {0, ANY_RD},
         {RC_RTS, 0},
         {0, 0}},
        {HDL_QPS_RTS,
         HDL_QPS_RTS,
         {0, ANY_RTS},
         {0, MOVES},
         {0, HDL_QP_QKEY},
         {0, MOVES},
         {0, ANY_RTS},
         {0, ANY_RD},
         {0, 0},
         {0, 0}},
        {HDL_QPS_RTS,
         HDL_QPS_SQD,
         {0, 0},
         {0, 0},
         {0, 0},
         {0, 0},
         {0, 0},
         {0, 0},
         {NO_TRANSITION, 0},
         {0, 0}},
        {HDL_QPS_SQD,
         HDL_QPS_RTS,
         {0, ANY_RTS},
         {0, MOVES},
         {0, HDL_QP_QKEY},
         {0, MOVES},
         {0, ANY_RTS},
         {0, ANY_RD},
         {NO_TRANSITION, 0},
         {0, 0}},
        {HDL_QPS_SQD,
         HDL_QPS_SQD,
         {0, RC_SQD},
         {0, UC_SQD},
         {0, HDL_QP_PKEY_INDEX | HDL_QP_QKEY},
         {0, INI_SQD},
         {0, TGT_SQD},
         {0, HDL_QP_PKEY_INDEX | ANY_RD},
         {NO_TRANSITION, 0},
         {0, 0}},
};

static const struct attributes *qp_state_of_type(const struct transition *t, enum hdl_qp_type type)
{
	switch (type) {
	case HDL_QP_RC:
		return &t->rc;
	case HDL_QP_UC:
		return &t->uc;
	case HDL_QP_XRC_INI:
		return &t->ini;
	case HDL_QP_XRC_TGT:
		return &t->tgt;
	case HDL_QP_RD:
		return &t->rd;
	case HDL_QP_RAW:
		return &t->raw;
	default:
		return &t->ud;
	}
}

static enum qp_verdict qp_state_judge(const struct attributes *a, uint32_t mask)
{
	if ((mask & a->need) != a->need)
		return QP_MODIFY_MISSING;
	return (mask & ~(a->need | a->allow)) == 0 ? QP_MODIFY_OK : QP_MODIFY_NOT_ALLOWED;
}

enum qp_verdict qp_judge_context(enum hdl_qp_state from, enum hdl_qp_state to, uint32_t mask)
{
	mask &= ~(uint32_t)(HDL_QP_STATE | HDL_QP_CUR_STATE);
	if (to == HDL_QPS_RESET || (to == HDL_QPS_ERR && from != HDL_QPS_RESET))
		return mask == 0 ? QP_MODIFY_OK : QP_MODIFY_NOT_ALLOWED;
	for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		const struct transition *t = &transitions[i];
		if (t->from == from && t->to == to && t->eec.need != NO_TRANSITION)
			return qp_state_judge(&t->eec, mask);
	}
	return QP_MODIFY_NO_TRANSITION;
}

bool qp_attributes(enum hdl_qp_type type, enum hdl_qp_state from, enum hdl_qp_state to,
                   uint32_t *need, uint32_t *allow)
{
	*need = *allow = 0;
	/* From anywhere to RESET or ERR, without attributes; from RESET only to INIT or RESET
	 * (C10-18). */
	if (to == HDL_QPS_RESET || (to == HDL_QPS_ERR && from != HDL_QPS_RESET))
		return true;
	/* Only unreliable types have the send queue error state. */
	if (from == HDL_QPS_SQE && to == HDL_QPS_RTS &&
	    (type == HDL_QP_UC || type == HDL_QP_UD || type == HDL_QP_RAW)) {
		*allow = type == HDL_QP_UC ? HDL_QP_ACCESS : type == HDL_QP_UD ? HDL_QP_QKEY : 0u;
		return true;
	}
	for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		const struct transition *t = &transitions[i];
		if (t->from != from || t->to != to)
			continue;
		*need = qp_state_of_type(t, type)->need;
		*allow = qp_state_of_type(t, type)->allow;
		return true;
	}
	return false;
}

enum qp_verdict qp_judge(enum hdl_qp_type type, enum hdl_qp_state from, enum hdl_qp_state to,
                         uint32_t mask)
{
	struct attributes attributes;
	if (!qp_attributes(type, from, to, &attributes.need, &attributes.allow))
		return QP_MODIFY_NO_TRANSITION;
	return qp_state_judge(&attributes, mask & ~(uint32_t)(HDL_QP_STATE | HDL_QP_CUR_STATE));
}
