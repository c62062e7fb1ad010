/* Extended reliable connections (IBTA annex A14): what is specific to them. */
#ifndef TRANSPORT_XRC_H
#define TRANSPORT_XRC_H

#include <stdbool.h>
#include <stdint.h>

#include "queue/wqe.h"
#include "transport/engine.h"

/* Responder: every request to an XRC target names a shared receive queue of its domain (@number),
 * which provides the receives, their completion queue and the protection domain. False: there is no
 * such queue, or the rest of a message names another. */
bool xrc_choose(struct engine *engine, struct qp *qp, uint32_t number);
/* Requester: the facts of the target, with the protection domain of the shared receive queue that
 * @wqe names. */
enum xrc_target {
	XRC_READY,
	XRC_NOT_READY, /* or @qp is not an initiator */
	XRC_NO_QUEUE   /* the target will refuse */
};
enum xrc_target xrc_facts(const struct link *link, const struct qp *qp, const struct wqe_send *wqe,
                          struct qp_facts *facts);

#endif
