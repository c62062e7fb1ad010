/* Reliable datagrams (IBTA volume 1 section 9.7.8; SAN, "end-to-end contexts"): what is specific to
 * them.
 *
 * A context is a struct qp of type QP_TYPE_EEC without queues. It has PSNs, window, timer, retries,
 * read resources and owed answers of its own, and the requester and responder of a reliable
 * connection (ib/ib.h) run on it. Its send queue has one element, which is lent to it: the work
 * request of the datagram queue pair whose turn it is. So one message per context is in flight.
 *
 *   queue pair --+                                                        +--> queue pair
 *   queue pair --+--> rd.first .. (in turn) --> lent element --> ib/tx.c  |    by QPN, Q_Key
 *   queue pair --+                 PSNs, retries  ... wire ...  ib/request.c --> receive
 *
 * The requests of a queue pair are executed in order, one at a time, whichever contexts they use. A
 * failure only affects the message: its completion says why, the next message of the queue pair
 * gets its turn, and the context tells the other side with a RESYNC which PSN comes next. Only a
 * peer that does not answer, or not correctly, fails the context, and with it every message that
 * waits for it.
 *
 * The receive that a message fills in parts is taken out of its queue and kept by the context,
 * because other contexts deliver to the same queue pair meanwhile. */
#ifndef TRANSPORT_RD_H
#define TRANSPORT_RD_H

#include <stdbool.h>
#include <stdint.h>

#include "queue/wqe.h"
#include "transport/engine.h"
#include "wire/ib_packet.h"

struct rd {
	/* Requester. */
	struct qp *first, **end; /* queue pairs that wait for their turn, linked by rd_next */
	uint32_t source;         /* number of the queue pair whose message was sent last */
	bool resync_due;
	struct wqe_send resync;
	/* Responder. */
	uint32_t peer; /* number of the queue pair that the message comes from */
	/* The message has failed: until a RESYNC comes, every packet is answered with this
	 * NAK. */
	bool refused;
	uint8_t syndrome;
	uint32_t psn; /* about this PSN */
};

/* Add @context, whose number, domain, ib and rd are set, in state RESET, so that it can be found;
 * or remove it. */
void rd_add_context(struct engine *engine, struct qp *context);
void rd_forget_context(struct engine *engine, struct qp *context);
struct qp *rd_find_context(const struct engine *engine, uint32_t number);
/* Move @context to @state, with everything that follows from it. */
void rd_enter(struct engine *engine, struct qp *context, enum hdl_qp_state state);

/* For datagram queue pairs, and for contexts. */
extern const struct transport rd_transport, rd_context_transport;
/* If the message that @context was sending is finished, return it to its queue pair. */
void rd_reap(struct engine *engine, struct qp *context);
/* Fill the additional headers of a context's packet. */
void rd_put_request(const struct qp *context, const struct wqe_send *wqe, struct ib_packet *packet);
void rd_put_response(const struct qp *context, struct ib_packet *packet);

/* A request came. True: it was a RESYNC, or belonged to a message that has been refused, and has
 * been handled. */
bool rd_takes_itself(struct engine *engine, struct qp *context, const struct ib_packet *packet);
/* As ib_run_request(), for the queue pair that @packet names. */
bool rd_request(struct engine *engine, struct qp *context, const struct ib_packet *packet,
                uint32_t *span);
/* The NAK that has just become due ends the message, but not the context. */
void rd_refused(struct engine *engine, struct qp *context);

#endif
