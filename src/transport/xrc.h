/* Extended reliable connections (IBTA annex A14): what is theirs alone. */
#ifndef TRANSPORT_XRC_H
#define TRANSPORT_XRC_H

#include <stdbool.h>
#include <stdint.h>

#include "queue/wqe.h"
#include "transport/engine.h"

/* Responder: every request to an XRC target names (@number) a shared receive queue of its domain:
 * receives, their completion queue and the protection domain are that one's. False: there is none
 * such, or the rest of a message names another. */
bool xrc_choose(struct engine *engine, struct qp *qp, uint32_t number);
/* Requester: the facts of the target, with the protection domain of the shared receive queue that
 * @wqe names. */
enum xrc_target {
	XRC_READY,
	XRC_NOT_READY, /* or @qp is no initiator */
	XRC_NO_QUEUE   /* the target will refuse */
};
enum xrc_target xrc_facts(const struct link *link, const struct qp *qp, const struct wqe_send *wqe,
                          struct qp_facts *facts);

#endif
