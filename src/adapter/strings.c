/* Codes in words. */
#include <heddle/heddle.h>

#include "adapter/adapter.h"

const char *hdl_strerror(int error)
{
#define CASE(name, text) \
	case HDL_##name: \
		return text;
	switch (error < 0 ? -error : error) {
	case 0:
		return "success";
		HDL_ERRORS(CASE)
	default:
		return "not an error of Heddle";
	}
#undef CASE
}

static const char *pick(const char *const *names, uint32_t count, uint32_t index)
{
	return index < count && names[index] != NULL ? names[index] : "unknown";
}

const char *hdl_wc_status_str(uint32_t status)
{
	static const char *const names[HDL_WC_STATUS_COUNT] = {
	        [HDL_WC_SUCCESS] = "success",
	        [HDL_WC_LOC_LEN_ERR] = "local length error: the receive buffer is too small",
	        [HDL_WC_LOC_QP_OP_ERR] = "local queue pair operation error",
	        [HDL_WC_LOC_EEC_OP_ERR] = "local end-to-end context operation error",
	        [HDL_WC_LOC_PROT_ERR] =
	                "local protection error: a piece of the list failed a check",
	        [HDL_WC_WR_FLUSH_ERR] = "flushed: the queue pair is in an error state",
	        [HDL_WC_MEM_MGT_ERR] =
	                "memory management error: bind, register or invalidate refused",
	        [HDL_WC_LOC_ACCESS_ERR] = "local access error: registered memory has gone",
	        [HDL_WC_BAD_RESP_ERR] = "bad response",
	        [HDL_WC_REM_INV_RD_REQ_ERR] = "remote invalid reliable datagram request",
	        [HDL_WC_REM_ABORT_ERR] = "the sender gave the message up",
	        [HDL_WC_INV_EECN_ERR] = "no such end-to-end context",
	        [HDL_WC_INV_EEC_STATE_ERR] = "the end-to-end context is not ready to send",
	        [HDL_WC_REM_INV_REQ_ERR] = "remote invalid request error",
	        [HDL_WC_REM_ACCESS_ERR] = "remote access error: the peer's checks said no",
	        [HDL_WC_REM_OP_ERR] = "remote operation error: the peer could not do it",
	        [HDL_WC_RETRY_EXC_ERR] = "retries exceeded: the peer does not answer",
	        [HDL_WC_RNR_RETRY_EXC_ERR] =
	                "receiver-not-ready retries exceeded: no receive was posted",
	        [HDL_WC_FATAL_ERR] = "fatal error",
	};
	return pick(names, HDL_WC_STATUS_COUNT, status);
}

const char *hdl_detail_str(uint32_t detail)
{
	static const char *const names[HDL_DETAIL_COUNT] = {
	        [HDL_DETAIL_NONE] = "no check said no",
	        [HDL_DETAIL_NOT_VALID] = "the key is not valid",
	        [HDL_DETAIL_TYPE] = "the key is of a kind that cannot be used here",
	        [HDL_DETAIL_PD] = "the key belongs to another protection domain",
	        [HDL_DETAIL_QP] = "the window is bound for another queue pair",
	        [HDL_DETAIL_INSTANCE] = "the key's instance is stale",
	        [HDL_DETAIL_BOUNDS] = "outside the range of the key",
	        [HDL_DETAIL_ACCESS] = "the key does not grant the right",
	        [HDL_DETAIL_BIND] = "the region does not allow windows",
	        [HDL_DETAIL_TOUCHED] = "the one-touch key was used before",
	        [HDL_DETAIL_OUT_OF_WINDOW] = "outside the sequence window",
	        [HDL_DETAIL_GONE] = "the memory behind the key was unmapped",
	        [HDL_DETAIL_MISALIGNED] = "an atomic needs 8 aligned bytes",
	        [HDL_DETAIL_BUSY] = "windows are bound to the region",
	        [HDL_DETAIL_PAGES] = "the page list does not fit",
	        [HDL_DETAIL_LIMIT] = "a limit was reached",
	};
	return pick(names, HDL_DETAIL_COUNT, detail);
}

const char *hdl_event_str(uint32_t type)
{
	static const char *const names[HDL_EVENT_TYPE_COUNT] = {
	        [HDL_EVENT_CQ_OVERRUN] = "completion queue overrun",
	        [HDL_EVENT_QP_FATAL] = "queue pair failed",
	        [HDL_EVENT_QP_REQUEST_ERR] = "the peer's request was invalid",
	        [HDL_EVENT_QP_ACCESS_ERR] = "the peer's request was refused",
	        [HDL_EVENT_COMM_EST] = "communication established",
	        [HDL_EVENT_SQ_DRAINED] = "send queue drained",
	        [HDL_EVENT_QP_LAST_WQE] = "last shared receive taken",
	        [HDL_EVENT_SRQ_LIMIT] = "shared receive queue below its limit",
	        [HDL_EVENT_SRQ_ERR] = "shared receive queue error",
	        [HDL_EVENT_MEMORY_GONE] = "registered memory has gone",
	        [HDL_EVENT_PEER_GONE] = "the peer has gone",
	        [HDL_EVENT_AGENT_CHANGED] = "another node agent took over",
	        [HDL_EVENT_PATH_MIG] = "the path was changed",
	        [HDL_EVENT_PATH_MIG_ERR] = "the peer's change of path was refused",
	        [HDL_EVENT_LOST] = "events were lost",
	};
	return pick(names, HDL_EVENT_TYPE_COUNT, type);
}
