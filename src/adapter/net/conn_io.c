/* The bytes of a connection, in and out, and in captures. conn.c decides what becomes of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"
#include "base/log.h"
#include "port/tcp.h"

/* --- captures --- */

static void conn_watch(void *context, const struct iovec *parts, size_t bytes, bool inbound)
{
	for (; bytes > 0; parts++) {
		size_t some = parts->iov_len < bytes ? parts->iov_len : bytes;
		capture_stream_put(context, inbound, parts->iov_base, some);
		bytes -= some;
	}
}

void conn_record(struct hdl_conn *conn, bool initiated)
{
	struct engine *engine = &conn->port->port.adapter->engine;
	struct capture_end own = {.port = conn->own_port}, peer = {.port = conn->peer_port};
	if (engine->capture == NULL || conn->capture != NULL)
		return;
	conn->capture = malloc(sizeof(*conn->capture));
	if (conn->capture == NULL) {
		log_error("no memory to record a connection: it is missing in the capture");
		return;
	}
	memcpy(own.gid, conn->own.gid, sizeof(own.gid));
	memcpy(peer.gid, conn->peer.gid, sizeof(peer.gid));
	capture_stream_begin(conn->capture, engine, &own, &peer, initiated,
	                     initiated ? conn->traffic_class : conn->peer_class);
	conn->flow.watch = conn_watch;
	conn->flow.watch_context = conn->capture;
}

void conn_record_end(struct hdl_conn *conn, bool inbound, bool broken)
{
	if (conn->capture != NULL)
		capture_stream_end(conn->capture, inbound, broken);
}

/* --- receive --- */

/* Nothing that comes counts: read until the peer ends its direction. */
static unsigned conn_discard(struct hdl_conn *conn)
{
	struct iovec part = {conn->port->staging, TCP_STAGING_BYTES};
	for (unsigned calls = 0; calls < TCP_TURN_CALLS; calls++) {
		ssize_t got = tcp_receive(conn->flow.sock, &part, 1);
		if (got == -EAGAIN)
			return calls;
		if (got <= 0) {
			conn->in_over = true;
			conn->broken = conn->broken || got < 0;
			conn_record_end(conn, true, got < 0);
			return calls + 1;
		}
		if (conn->flow.watch != NULL)
			conn->flow.watch(conn->flow.watch_context, &part, (size_t)got, true);
	}
	conn->more = true;
	return TCP_TURN_CALLS;
}

void conn_ended(struct hdl_conn *conn, enum stream_end why)
{
	conn->in_over = true;
	conn_record_end(conn, true, why == STREAM_BROKEN);
	if (why == STREAM_BROKEN)
		conn->broken = true;
	conn->flow.ops->ended(conn->flow.context, why);
}

/* Is there nothing more to read for the transport? */
static bool conn_is_deaf(const struct hdl_conn *conn)
{
	if (conn->state == CONN_UP)
		return iwarp_is_deaf(&conn->iwarp);
	return conn->setup->state == MPA_SETUP_REJECTED;
}

unsigned conn_receive(struct hdl_conn *conn)
{
	size_t bytes = 0;
	unsigned did = 0;
	if (conn->sctp != NULL)
		return sctp_conn_receive(conn);
	conn->more = false;
	if (conn->in_over || conn->state == CONN_OVER || conn->state == CONN_CONNECTING)
		return 0;
	if (conn_is_deaf(conn)) {
		did = conn_discard(conn);
	} else {
		enum tcp_flow_result result = tcp_flow_in(&conn->flow, conn->port->staging, &bytes);
		conn->in_held = result == TCP_FLOW_HELD;
		switch (result) {
		case TCP_FLOW_MORE:
			conn->more = true;
			break;
		case TCP_FLOW_REFUSED:
			conn->more = true; /* the rest is discarded */
			break;
		case TCP_FLOW_CLOSED: /* a call to send may have been told that it broke */
			conn_ended(conn, conn->broken ? STREAM_BROKEN : STREAM_CLOSED);
			did = 1;
			break;
		case TCP_FLOW_BROKEN:
			conn_ended(conn, STREAM_BROKEN);
			did = 1;
			break;
		case TCP_FLOW_FAULT:
			if (conn->state == CONN_UP)
				iwarp_gone(&conn->iwarp);
			conn->more = true;
			break;
		case TCP_FLOW_IDLE: /* but the end is behind it, and the epoll has spoken of that */
			conn->more = conn->hung_up && bytes > 0;
			break;
		default:
			break;
		}
		did += bytes > 0;
	}
	if (bytes > 0) {
		tcp_port_heat(conn->port, conn);
		if (conn->quiet && conn->state == CONN_UP) {
			conn->quiet = false;
			tcp_port_wake(conn->port, conn);
		}
	}
	if (conn->more || conn->in_over)
		tcp_port_wake(conn->port, conn);
	return did;
}

/* --- send --- */

void conn_send(struct hdl_conn *conn)
{
	size_t bytes;
	if (conn->sctp != NULL) {
		sctp_conn_send(conn);
		return;
	}
	if (conn->flow.sock < 0 || conn->state == CONN_CONNECTING || conn->out_held ||
	    conn->out_over || conn->broken || conn->quiet)
		return;
	conn->out_more = false;
	switch (tcp_flow_out(&conn->flow, &bytes)) {
	case TCP_FLOW_MORE:
		conn->out_more = true;
		tcp_port_wake(conn->port, conn);
		break;
	case TCP_FLOW_HELD:
		conn->out_held = true; /* until the epoll says otherwise */
		break;
	case TCP_FLOW_FAULT: /* memory of a request is gone: the transport resets the stream */
		if (conn->state == CONN_UP) {
			iwarp_source_gone(&conn->iwarp);
			break;
		}
		conn->broken = true;
		break;
	case TCP_FLOW_BROKEN:
		conn->broken = true; /* the next turn of the connection deals with it */
		break;
	default:
		break;
	}
	if (bytes > 0) /* there may be an answer soon */
		tcp_port_heat(conn->port, conn);
}

bool conn_offers(struct hdl_conn *conn)
{
	struct stream_run run;
	return !conn->broken && iwarp_stream.offer(&conn->iwarp, &run, 1) > 0;
}

bool conn_is_quiet(const struct hdl_conn *conn)
{
	return conn->state == CONN_UP && conn->sctp == NULL && !conn->in_held && !conn->in_over &&
	       !conn->more && !conn->out_more && !conn->broken &&
	       iwarp_ending(&conn->iwarp) == IWARP_GOES_ON && iwarp_qp(&conn->iwarp) != NULL;
}
