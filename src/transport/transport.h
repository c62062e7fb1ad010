/* How queue pairs of one kind move their data. The engine knows a transport only through this
 * table, so adding a transport means adding a folder and a table.
 *
 *   local_transport        lanes between processes of one host        local/local.c
 *   ib_transport           InfiniBand packets on a network            ib/ib.c
 *   rd_transport           reliable datagrams, which borrow ...       ib/rd.c
 *   rd_context_transport   ... an end-to-end context                  ib/rd.c
 *   iwarp_transport        iWARP on byte streams                      iwarp/iwarp.c
 *   cells_transport        cells on a network                         cell/cells.c
 *   raw_transport          IPv6 frames                                ib/raw.c
 *   udp_transport          plain UDP                                  udp.c
 *   datagram_transport     unreliable datagrams; each chooses lanes   datagram.c
 *                          or network by itself
 *
 * The thread that drives the engine calls every function. A NULL entry means that there is nothing
 * to do, unless its comment says otherwise. */
#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

#include <stdbool.h>

#include <heddle/types.h>

struct engine;
struct qp;

enum settled {
	SETTLED,   /* everything that was owed has been sent */
	UNSETTLED, /* there was no room: try again in the next turn */
	DEFERRED,  /* the transport calls engine_owe() when it is time */
};

struct transport {
	const char *name;
	/* The requests in the send queue belong to other queue pairs, which complete and flush
	 * them. */
	bool borrows_requests;
	/* Never NULL. Execute as much of the send queue as possible. True if anything was done. */
	bool (*run)(struct engine *engine, struct qp *qp);
	/* The application has just posted to @qp, and run() has been called: send what travels with
	 * its message. */
	void (*posted)(struct engine *engine, struct qp *qp);
	/* Does it still owe the peer an answer? NULL: always. */
	bool (*owes)(const struct qp *qp);
	/* May the answer wait for the next call? Returns true at most once per answer. */
	bool (*may_wait)(const struct engine *engine, struct qp *qp);
	/* Never NULL if engine_owe() is used. Send the answers that are owed. */
	enum settled (*answer)(struct engine *engine, struct qp *qp);
	/* Never NULL if timers are used. The timer of @qp has expired. */
	void (*timeout)(struct engine *engine, struct qp *qp);
	/* The process at the other end of the link has gone. */
	void (*peer_gone)(struct engine *engine, struct qp *qp);
	/* @qp has entered RTR from INIT, or RTS from RTR: start from the PSNs and limits in its
	 * attributes. */
	void (*begin_responder)(struct qp *qp);
	void (*begin_requester)(struct qp *qp);
	/* @qp is about to enter @state, RESET or ERR: this is the last chance to send owed answers.
	 */
	void (*leaving)(struct engine *engine, struct qp *qp, enum hdl_qp_state state);
	/* @qp has entered RESET, SQE or ERR, and peers can see that it has. */
	void (*left)(struct engine *engine, struct qp *qp, enum hdl_qp_state state);
};

#endif
