/* How the queue pairs of one kind move their data. The engine knows a transport by this table
 * alone, so a new one is a new folder and one more table.
 *
 *   local_transport        lanes between processes of one host        local/local.c
 *   ib_transport           InfiniBand packets on a network            ib/ib.c
 *   rd_transport           reliable datagrams, which borrow ...       ib/rd.c
 *   rd_context_transport   ... an end-to-end context                  ib/rd.c
 *   raw_transport          IPv6 frames                                ib/raw.c
 *   datagram_transport     unreliable datagrams; each chooses lanes   datagram.c
 *                          or network by itself
 *
 * Every function is called by the thread that drives the engine. A NULL entry means that there is
 * nothing to do, unless it says otherwise. */
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
	/* The requests in the send queue are lent by other queue pairs, which complete and flush
	 * them. */
	bool borrows_requests;
	/* Never NULL. Execute what can be executed of the send queue. True if anything was done. */
	bool (*run)(struct engine *engine, struct qp *qp);
	/* The application has just posted to @qp and had its turn: send what goes along with it. */
	void (*posted)(struct engine *engine, struct qp *qp);
	/* Is an answer still owed to the peer? NULL: yes. */
	bool (*owes)(const struct qp *qp);
	/* May the answer wait for the next call? Asked once; true at most once per answer. */
	bool (*may_wait)(const struct engine *engine, struct qp *qp);
	/* Never NULL where engine_owe() is used. Send the answers that are owed. */
	enum settled (*answer)(struct engine *engine, struct qp *qp);
	/* Never NULL where timers are used. The timer of @qp has expired. */
	void (*timeout)(struct engine *engine, struct qp *qp);
	/* The process at the other end of the link has gone. */
	void (*peer_gone)(struct engine *engine, struct qp *qp);
	/* RTR and RTS have been entered from INIT and RTR: the attributes say where to begin. */
	void (*begin_responder)(struct qp *qp);
	void (*begin_requester)(struct qp *qp);
	/* @qp is about to enter @state, RESET or ERR: answers that are owed are sent now or never.
	 */
	void (*leaving)(struct engine *engine, struct qp *qp, enum hdl_qp_state state);
	/* @qp has entered RESET, SQE or ERR, and peers can see that it has. */
	void (*left)(struct engine *engine, struct qp *qp, enum hdl_qp_state state);
};

#endif
