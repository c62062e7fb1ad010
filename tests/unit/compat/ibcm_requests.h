/* Two ends of communication management: the requests that tests begin with. */
#ifndef TESTS_IBCM_REQUESTS_H
#define TESTS_IBCM_REQUESTS_H

#include "compat/cm/ibcm.h"

#define ACTIVE_ID  0x00400001u
#define PASSIVE_ID 0x00800002u
#define GUID       0x0200000000000001ull
#define MS         1000000ull

static inline struct ib_cm_message request(void)
{
	struct ib_cm_message req = {.kind = IB_CM_REQ, .transaction_id = 77};
	req.u.req.local_id = ACTIVE_ID;
	req.u.req.ca_guid = GUID;
	req.u.req.qpn = 0x11;
	req.u.req.remote_response_timeout = IB_CM_RESPONSE_TIMEOUT;
	req.u.req.local_response_timeout = IB_CM_RESPONSE_TIMEOUT;
	req.u.req.max_retries = IB_CM_MAX_RETRIES;
	req.u.req.primary.ack_timeout = 17;
	return req;
}

static inline struct ib_cm_message sidr_request(void)
{
	struct ib_cm_message req = {.kind = IB_CM_SIDR_REQ, .transaction_id = 77};
	req.u.sidr_req.request_id = ACTIVE_ID;
	return req;
}

#endif
