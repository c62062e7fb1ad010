/* The life of a connection: TCP connects, MPA negotiates, the queue pair runs on it, both
 * directions end. See tcp_port.h for the states. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"
#include "base/fd.h"
#include "base/log.h"
#include "port/tcp.h"
#include "queue/qp_state.h"
#include "wire/dscp.h"

static uint64_t conn_now(const struct hdl_conn *conn)
{
	return clock_read(&conn->port->port.adapter->clock);
}

static void conn_wait_until(struct hdl_conn *conn, uint64_t ns)
{
	conn->due_ns = ns;
	tcp_port_at(conn->port, ns);
}

struct hdl_conn *conn_new(struct tcp_port *port, int sock)
{
	if (port->conn_count == TCP_MAX_CONNS)
		return NULL;
	struct hdl_conn *conn = calloc(1, sizeof(*conn));
	struct mpa_setup *setup = malloc(sizeof(*setup));
	if (conn == NULL || setup == NULL) {
		free(conn);
		free(setup);
		return NULL;
	}
	conn->magic = MAGIC_CONN;
	conn->port = port;
	conn->setup = setup;
	conn->due_ns = UINT64_MAX;
	conn->silent_ns = UINT64_MAX;
	tcp_flow_init(&conn->flow, sock, &mpa_setup_stream, setup);
	if (sock >= 0)
		tcp_names(sock, &conn->own, &conn->own_port, &conn->peer, &conn->peer_port);
	conn->next = port->conns;
	conn->before = &port->conns;
	if (conn->next != NULL)
		conn->next->before = &conn->next;
	port->conns = conn;
	port->conn_count++;
	return conn;
}

/* --- its queue pair --- */

void conn_claim(struct hdl_conn *conn, struct hdl_qp *qp)
{
	assert(qp->joining == NULL && conn->qp == NULL);
	conn->qpn = qp->qp.qpn;
	conn->qp = qp;
	qp->joining = conn;
}

void conn_release(struct hdl_conn *conn)
{
	if (conn->qp != NULL)
		conn->qp->joining = NULL;
	conn->qp = NULL;
}

/* --- the end --- */

static void conn_unlist(struct hdl_conn *conn)
{
	struct tcp_port *port = conn->port;
	*conn->before = conn->next;
	if (conn->next != NULL)
		conn->next->before = conn->before;
	port->conn_count--;
	if (conn->woken) {
		struct hdl_conn **at = &port->woken;
		while (*at != conn)
			at = &(*at)->woken_next;
		*at = conn->woken_next;
		if (port->woken_end == &conn->woken_next)
			port->woken_end = at;
	}
}

void conn_uncount(struct hdl_conn *conn)
{
	struct hdl_listener *listener = conn->listener;
	if (conn->counted == CONN_NOT_COUNTED)
		return;
	if (conn->counted == CONN_SILENT)
		listener->silent--;
	else
		listener->asked--;
	conn->counted = CONN_NOT_COUNTED;
	conn->listener = NULL;
	if (listener->paused)
		listener_resume(listener, conn_now(conn));
}

/* Nothing refers to it any more, except perhaps a batch of the epoll: the next turn frees it. */
static void conn_bury(struct hdl_conn *conn)
{
	assert(conn->flow.sock < 0);
	conn_release(conn);
	conn_unlist(conn);
	conn_forget_events(conn);
	free(conn->setup);
	conn->setup = NULL;
	free(conn->sctp);
	conn->sctp = NULL;
	free(conn->capture);
	conn->capture = NULL;
	if (conn->held && !conn->orphan) /* in a child of fork() the program still has pointers */
		return;
	conn->magic = 0;
	conn->woken_next = conn->port->dead;
	conn->port->dead = conn;
}

static void conn_bury_if_free(struct hdl_conn *conn)
{
	if (conn->orphan && conn->state == CONN_OVER &&
	    (!conn->begun || iwarp_qp(&conn->iwarp) == NULL))
		conn_bury(conn);
}

static void conn_close_socket(struct hdl_conn *conn, bool reset)
{
	conn_release(conn);
	tcp_port_cool(conn->port, conn);
	conn_record_end(conn, false, reset);
	if (conn->sctp != NULL)
		sctp_conn_close(conn, reset);
	else
		tcp_close(conn->flow.sock, reset); /* which takes it out of the epoll */
	tcp_flow_end(&conn->flow);
	conn->flow.sock = -1;
	conn->state = CONN_OVER;
	conn->due_ns = UINT64_MAX;
}

/* The socket is to be closed, and the program hears of it. */
static void conn_over(struct hdl_conn *conn, enum hdl_conn_event_type type, int error, bool reset)
{
	if (conn->state == CONN_OVER)
		return;
	conn_close_socket(conn, reset);
	struct qp *qp = conn->begun ? iwarp_qp(&conn->iwarp) : NULL;
	if (qp != NULL && qp_state(qp) != HDL_QPS_ERR)
		qp_enter(&conn->port->port.adapter->engine, qp, HDL_QPS_ERR);
	conn_uncount(conn);
	if (conn->held) {
		conn_raise(conn, type, error);
	} else { /* the program has not heard of it, and never will */
		conn_forget_events(conn);
		conn->orphan = true;
	}
	conn_bury_if_free(conn);
}

static void conn_fail(struct hdl_conn *conn, int error)
{
	conn_over(conn, conn->begun ? HDL_CONN_CLOSED : HDL_CONN_FAILED, error, true);
}

void conn_abort(struct hdl_conn *conn, int error)
{
	if (conn->begun && !conn->in_over)
		iwarp_stream.ended(&conn->iwarp, STREAM_BROKEN);
	conn_fail(conn, error);
}

void conn_drop(struct hdl_conn *conn)
{
	if (conn->flow.sock >= 0)
		fd_close(conn->flow.sock);
	if (conn->sctp != NULL)
		sctp_conn_close(conn, true);
	tcp_flow_end(&conn->flow);
	conn->flow.sock = -1;
	conn_bury(conn);
}

void conn_give_back(struct hdl_conn *conn)
{
	epoll_ctl(conn->port->port.fd, EPOLL_CTL_DEL, conn->flow.sock, NULL);
	conn->flow.sock = -1;
	conn_drop(conn);
}

/* --- MPA --- */

static void conn_iwarp_wake(void *context, struct iwarp *iwarp)
{
	struct hdl_conn *conn = context;
	(void)iwarp;
	tcp_port_wake(conn->port, conn);
}

static size_t conn_iwarp_feed(void *context, const uint8_t *bytes, size_t length, bool *open)
{
	return iwarp_feed(context, bytes, length, open);
}

static bool conn_iwarp_is_long(const void *context)
{
	return iwarp_in_long(context, TCP_LONG_BYTES);
}

struct iwarp_owner conn_owner(struct hdl_conn *conn)
{
	return (struct iwarp_owner){conn_iwarp_wake, conn};
}

void conn_up(struct hdl_conn *conn)
{
	conn->begun = true;
	conn->state = CONN_UP;
	conn->due_ns = UINT64_MAX;
	conn->in_held = true; /* there may be something that nobody has read yet */
	tcp_flow_become(&conn->flow, &iwarp_stream, &conn->iwarp, conn_iwarp_feed,
	                conn_iwarp_is_long);
	tcp_port_wake(conn->port, conn);
}

/* The two ends agree: the queue pair gets the stream. */
static void conn_begin(struct hdl_conn *conn)
{
	struct hdl_adapter *adapter = conn->port->port.adapter;
	const struct mpa_agreement *agreed = &conn->setup->agreement;
	struct iwarp_terms terms = {.crc = agreed->crc,
	                            .markers_out = agreed->send_markers,
	                            .markers_in = agreed->receive_markers,
	                            .initiator = conn->initiator,
	                            .rtr = agreed->peer_to_peer ? agreed->rtr : 0,
	                            .ird = agreed->enhanced ? agreed->ird : conn->offer.max_ird,
	                            .ord = agreed->enhanced ? agreed->ord : conn->offer.max_ord,
	                            .segment = conn->sctp != NULL ? sctp_longest(conn->sctp->end)
	                                                          : tcp_segment(conn->flow.sock)};
	/* siw cannot have the trailers of FPDUs divided. It is known by not taking an empty FPDU as
	 * the sign that an initiator is ready. */
	terms.aligned = terms.crc && !terms.markers_out && (terms.rtr & MPA_RTR_SEND) == 0 &&
	                terms.segment > 0 && conn->sctp == NULL;
	if (conn->sctp != NULL) {
		terms.window = &conn->sctp->window;
		terms.first_ssn = SCTP_FIRST_SSN;
	}
	if (conn->service == HDL_CONN_TCP)
		terms = (struct iwarp_terms){.plain = true, .initiator = conn->initiator};
	struct qp *qp = engine_find_qp(&adapter->engine, conn->qpn);
	conn_release(conn);
	const struct iwarp_owner owner = conn_owner(conn);
	int result = qp != NULL ? qp_begin_stream(adapter, qp, &conn->iwarp, &terms, &owner)
	                        : -HDL_EPERM;
	if (result != 0) {
		conn_fail(conn, result);
		return;
	}
	engine_serve(&adapter->engine, qp, service_class(conn->traffic_class));
	conn->ird = terms.ird;
	conn->ord = terms.ord;
	conn->flow.records = terms.aligned;
	conn_up(conn);
	if (!conn->initiator && terms.rtr == 0 && !terms.plain && conn->sctp == NULL) {
		conn->silent_ns = 0;
		conn_wait_until(conn, conn_now(conn) + TCP_SILENCE_LOOK_NS);
	} else if (conn->initiator && (terms.rtr & MPA_RTR_SEND) == 0 && !terms.plain &&
	           conn->sctp == NULL) {
		conn->quiet = true;
		conn->silent_ns = conn_now(conn) + TCP_SILENCE_NS;
		conn_wait_until(conn, conn->silent_ns);
	}
	conn_raise(conn, HDL_CONN_ESTABLISHED, 0);
	if (!conn->initiator) { /* its event has no private data */
		free(conn->setup);
		conn->setup = NULL;
	}
}

/* Our direction ends. */
static void conn_finish(struct hdl_conn *conn)
{
	if (conn->sctp != NULL)
		sctp_conn_finish(conn);
	else
		tcp_finish(conn->flow.sock);
	conn_record_end(conn, false, false);
}

static int setup_error(const struct mpa_setup *setup)
{
	return setup->why == MPA_SETUP_TIMEOUT ? -HDL_ETIMEDOUT : -HDL_EIO;
}

/* A peer's Request is complete: the program has to answer. */
static void conn_asked(struct hdl_conn *conn)
{
	if (conn->reported)
		return;
	conn->reported = true;
	conn->due_ns = UINT64_MAX;
	if (conn->counted == CONN_SILENT) {
		conn->counted = CONN_ASKED;
		conn->listener->silent--;
		conn->listener->asked++;
		listener_check(conn->listener);
	}
	conn_raise(conn, HDL_CONN_REQUEST, 0);
}

/* What has become of the negotiation? */
static void conn_judge_setup(struct hdl_conn *conn)
{
	switch (conn->setup->state) {
	case MPA_SETUP_ASKED:
		conn_asked(conn);
		break;
	case MPA_SETUP_AGREED:
		conn_begin(conn);
		break;
	case MPA_SETUP_REJECTED:
		if (conn->initiator) {
			conn_over(conn, HDL_CONN_REJECTED, -HDL_ECONNREFUSED, false);
		} else if (!conn->out_over) {
			/* The Reply is sent. The peer closes first: siw drops the private data of a
			 * rejection that a FIN follows at once. */
			conn->out_over = true;
			conn_wait_until(conn, conn_now(conn) + TCP_END_NS);
		}
		break;
	case MPA_SETUP_FAILED:
		conn_fail(conn, setup_error(conn->setup));
		break;
	default:
		break;
	}
}

/* --- turns --- */

/* The transport has said that the stream is to end, or it has ended. */
static void conn_end_stream(struct hdl_conn *conn)
{
	enum iwarp_ending ending = iwarp_ending(&conn->iwarp);
	/* What came before it broke still counts: the socket says when it is over. A transport that
	 * reads nothing at the moment has a time limit for that. */
	if ((conn->broken && conn->in_over) || ending == IWARP_ABORT) {
		conn_over(conn, HDL_CONN_CLOSED, -HDL_EIO, true);
		return;
	}
	if (ending != IWARP_FIN)
		return;
	if (conn->due_ns == UINT64_MAX || conn->silent_ns != UINT64_MAX) {
		conn->silent_ns = UINT64_MAX;
		conn->quiet = false;
		conn_wait_until(conn, conn_now(conn) + TCP_END_NS);
	}
	if (!conn->out_over && !conn->quiet && !conn_offers(conn) &&
	    (conn->sctp == NULL || sctp_conn_may_finish(conn))) {
		conn_finish(conn);
		conn->out_over = true;
	}
	if (conn->out_over && conn->in_over)
		conn_over(conn, HDL_CONN_CLOSED, 0, false);
}

bool conn_lingers(const struct hdl_conn *conn)
{
	bool ends = conn->state == CONN_UP && iwarp_ending(&conn->iwarp) == IWARP_FIN;
	/* SCTP lives in this process: nobody else repeats what gets lost. */
	return ends && !conn->broken &&
	       (!conn->out_over || conn->sctp != NULL || tcp_unacknowledged(conn->flow.sock) > 0);
}

static void conn_connected(struct hdl_conn *conn)
{
	int result =
	        conn->sctp != NULL ? sctp_conn_connected(conn) : tcp_connected(conn->flow.sock);
	if (result == -EINPROGRESS)
		return;
	if (result != 0) {
		conn_fail(conn, result == -ECONNREFUSED || result == -ECONNRESET ? -HDL_ECONNREFUSED
		                : result == -ETIMEDOUT                           ? -HDL_ETIMEDOUT
		                : result == -EHOSTUNREACH || result == -ENETUNREACH
		                        ? -HDL_EHOSTUNREACH
		                        : -HDL_EIO);
		return;
	}
	if (conn->sctp == NULL) {
		tcp_names(conn->flow.sock, &conn->own, &conn->own_port, &conn->peer,
		          &conn->peer_port);
		conn_record(conn, true);
	}
	conn->state = CONN_SETUP;
}

static unsigned conn_serve_setup(struct hdl_conn *conn)
{
	unsigned did = 0;
	/* Each step may make the next possible: a Request that has come is not yet answered. */
	conn_send(conn);
	if (conn->broken && !conn->in_over)
		conn_ended(conn, STREAM_BROKEN);
	conn_judge_setup(conn);
	if (conn->state != CONN_SETUP)
		return 1;
	/* What a peer sends on plain TCP is for the queue pair that it does not have yet. */
	did = conn->service != HDL_CONN_TCP ? conn_receive(conn) : 0;
	if (conn->setup->state == MPA_SETUP_REJECTED && conn->in_over) {
		conn_over(conn, HDL_CONN_CLOSED, 0, false);
		return 1;
	}
	conn_judge_setup(conn);
	return did;
}

unsigned conn_service(struct hdl_conn *conn)
{
	unsigned did = 0;
	if (conn->state == CONN_OVER) {
		conn_bury_if_free(conn);
		return 0;
	}
	if (conn->state == CONN_CONNECTING)
		conn_connected(conn);
	if (conn->state == CONN_SETUP)
		did = conn_serve_setup(conn);
	if (conn->state != CONN_UP)
		return did;
	did += conn_receive(conn);
	conn_send(conn);
	conn_end_stream(conn);
	return did;
}

void conn_hung_up(struct hdl_conn *conn)
{
	int error = conn->state == CONN_CONNECTING ? 0 : tcp_connected(conn->flow.sock);
	if (error != 0 && error != -EINPROGRESS)
		conn->broken = true;
}

/* A responder looks whether it may speak. */
static void conn_break_silence(struct hdl_conn *conn, uint64_t now_ns)
{
	if (conn->silent_ns != 0) {
		conn->silent_ns = UINT64_MAX;
		conn->quiet = false;
		iwarp_may_send(&conn->iwarp);
		tcp_port_wake(conn->port, conn);
		return;
	}
	bool acknowledged = tcp_unacknowledged(conn->flow.sock) == 0;
	if (acknowledged)
		conn->silent_ns = now_ns + TCP_SILENCE_NS;
	conn_wait_until(conn, acknowledged ? conn->silent_ns : now_ns + TCP_SILENCE_LOOK_NS);
}

void conn_expire(struct hdl_conn *conn, uint64_t now_ns)
{
	conn->due_ns = UINT64_MAX;
	switch (conn->state) {
	case CONN_CONNECTING:
		conn_fail(conn, -HDL_ETIMEDOUT);
		break;
	case CONN_SETUP:
		mpa_setup_expire(conn->setup, now_ns);
		if (conn->setup->state == MPA_SETUP_REJECTED)
			conn_over(conn, HDL_CONN_CLOSED, 0, true);
		else
			conn_judge_setup(conn);
		break;
	case CONN_UP:
		if (iwarp_ending(&conn->iwarp) != IWARP_GOES_ON)
			conn_abort(conn, -HDL_ETIMEDOUT);
		else
			conn_break_silence(conn, now_ns);
		break;
	default:
		break;
	}
}

bool conn_refuse(struct hdl_conn *conn, const uint8_t *data, size_t bytes)
{
	uint64_t until = conn_now(conn) + TCP_END_NS;
	if (conn->service == HDL_CONN_TCP) /* which knows no other way */
		conn->setup->state = MPA_SETUP_REJECTED;
	else if (!mpa_setup_reject(conn->setup, data, bytes, until))
		return false;
	conn_wait_until(conn, until);
	return true;
}

void conn_orphan(struct hdl_conn *conn)
{
	static const uint8_t no_data;
	conn_forget_events(conn);
	conn->orphan = true;
	if (conn->state == CONN_SETUP && conn->setup->state == MPA_SETUP_ASKED) {
		/* Nobody will answer: say no. */
		conn_uncount(conn);
		conn_refuse(conn, &no_data, 0);
		tcp_port_wake(conn->port, conn);
	} else if (conn->state == CONN_SETUP && conn->setup->state == MPA_SETUP_REJECTED) {
		tcp_port_wake(conn->port, conn);
	} else if (conn->state == CONN_UP) {
		struct qp *qp = iwarp_qp(&conn->iwarp);
		if (qp != NULL && iwarp_ending(&conn->iwarp) == IWARP_GOES_ON &&
		    !iwarp_is_closing(&conn->iwarp))
			qp_enter(&conn->port->port.adapter->engine, qp, HDL_QPS_ERR);
		tcp_port_wake(conn->port, conn);
	} else if (conn->state != CONN_OVER) {
		conn_fail(conn, -HDL_EIO);
		return;
	}
	conn_bury_if_free(conn);
}
