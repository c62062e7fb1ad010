/* Reliable datagrams (IBTA volume 1 section 9.7.8; seed 003, "end-to-end contexts"): what is theirs
 * alone.
 *
 * A context is a struct qp of the type QP_TYPE_EEC without queues: PSNs, window, timer, retries,
 * read resources and the answers that are owed are its own, and the requester and responder of a
 * reliable connection (ib/ib.h) run on it. Its send queue has one element, which is lent to it:
 * the work request of the datagram queue pair whose turn it is. So one message is in flight a
 * context.
 *
 *   queue pair --+                                                        +--> queue pair
 *   queue pair --+--> rd.first .. (in turn) --> lent element --> ib/tx.c  |    by QPN, Q_Key
 *   queue pair --+                 PSNs, retries  ... wire ...  ib/request.c --> receive
 *
 * A queue pair's own requests are executed in order, one at a time, whichever contexts they go
 * through. What fails is the message: its completion says why, the queue pair's next one has its
 * turn, and the context tells the other side with a RESYNC which PSN comes next. Only a peer that
 * does not answer, or not in sense, fails the context, and with it every message that waits for
 * it.
 *
 * The receive that a message fills in parts is taken out of its queue and kept by the context:
 * other contexts deliver to the same queue pair meanwhile. */
#ifndef TRANSPORT_RD_H
#define TRANSPORT_RD_H

#include <stdbool.h>
#include <stdint.h>

#include "queue/wqe.h"
#include "transport/engine.h"
#include "wire/ib_packet.h"

struct rd {
	/* Requester. */
	struct qp *first, **end; /* queue pairs that wait for their turn, through rd_next */
	uint32_t source;         /* number of the queue pair whose message was sent last */
	bool resync_due;
	struct wqe_send resync;
	/* Responder. */
	uint32_t peer; /* number of the queue pair that the message comes from */
	bool refused;  /* the message is dead: until a RESYNC comes, its NAK is all there is to say
	                */
	uint8_t syndrome; /* this one, */
	uint32_t psn;     /* about this PSN */
};

/* @context, whose number, domain, ib and rd are set, can be found from now on, in the state RESET;
 * or not any more. */
void rd_add_context(struct engine *engine, struct qp *context);
void rd_forget_context(struct engine *engine, struct qp *context);
struct qp *rd_find_context(const struct engine *engine, uint32_t number);
/* Move @context to @state, with all that follows. */
void rd_enter(struct engine *engine, struct qp *context, enum hdl_qp_state state);

/* Of datagram queue pairs, and of contexts. */
extern const struct transport rd_transport, rd_context_transport;
/* The message that @context was sending is over, perhaps: its queue pair has it back. */
void rd_reap(struct engine *engine, struct qp *context);
/* What a packet of a context has besides. */
void rd_put_request(const struct qp *context, const struct wqe_send *wqe, struct ib_packet *packet);
void rd_put_response(const struct qp *context, struct ib_packet *packet);

/* A request came: is it a RESYNC, or of a message that was refused before? Then this was all. */
bool rd_takes_itself(struct engine *engine, struct qp *context, const struct ib_packet *packet);
/* As ib_run_request(), for the queue pair that @packet names. */
bool rd_request(struct engine *engine, struct qp *context, const struct ib_packet *packet,
                uint32_t *span);
/* The NAK that was just made due is the end of the message, and not of the context. */
void rd_refused(struct engine *engine, struct qp *context);

#endif
