/* Connections on SCTP. See sctp_port.h. */
#include "adapter/net/sctp_port.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"
#include "base/fd.h"
#include "base/log.h"

/* --- UDP sockets --- */

struct sctp_port *sctp_port_of(struct tcp_port *port)
{
	if (port->sctp == NULL)
		port->sctp = calloc(1, sizeof(*port->sctp));
	return port->sctp;
}

int sctp_port_add(struct tcp_port *port, const struct udp_address *address, int sock,
                  struct sctp_end **out)
{
	struct sctp_port *sctp = port->sctp;
	struct sctp_end *end = sctp->end_count < SCTP_MAX_ENDS ? calloc(1, sizeof(*end)) : NULL;
	if (end == NULL) {
		fd_close(sock);
		return -ENOMEM;
	}
	int result = sctp_end_adopt(end, address, sock);
	if (result == 0) {
		if (port->port.adapter->engine.capture != NULL)
			sctp_end_record(end);
		result = tcp_port_watch_end(port, end);
		if (result != 0)
			sctp_end_free(end);
	}
	if (result != 0) {
		free(end);
		return result;
	}
	sctp->ends[sctp->end_count++] = *out = end;
	return 0;
}

int sctp_port_end(struct tcp_port *port, const struct udp_address *address, bool listening,
                  struct sctp_end **out)
{
	struct sctp_port *sctp = sctp_port_of(port);
	bool shares = sctp_share_is_on(port->port.adapter);
	if (sctp == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < sctp->end_count; i++)
		if (udp_address_equal(&sctp->ends[i]->own, address)) {
			*out = sctp->ends[i];
			return listening && (*out)->port != SCTP_UDP_PORT ? -EADDRINUSE : 0;
		}
	/* On a node, the agent would have given it to us. */
	int sock = shares ? -EADDRINUSE : udp_open(address, SCTP_UDP_PORT);
	if (sock == -EADDRINUSE && !listening)
		sock = udp_open(address, 0);
	return sock < 0 ? sock : sctp_port_add(port, address, sock, out);
}

/* --- captures --- */

static void sctp_put_packet(void *context, const struct sctp_end *end, const struct sctp_seen *seen)
{
	struct tcp_port *port = context;
	struct capture_datagram datagram = {.tos = seen->tos,
	                                    .inbound = seen->inbound,
	                                    .operation = "SCTP",
	                                    .data = seen->data,
	                                    .bytes = seen->bytes};
	struct capture_end own = {.port = end->port}, peer = {.port = seen->port};
	memcpy(own.gid, end->own.gid, sizeof(own.gid));
	memcpy(peer.gid, seen->peer.gid, sizeof(peer.gid));
	datagram.from = seen->inbound ? peer : own;
	datagram.to = seen->inbound ? own : peer;
	capture_datagram(&port->port.adapter->engine, &datagram, port->staging, TCP_STAGING_BYTES);
}

static void sctp_port_record(struct tcp_port *port)
{
	for (uint32_t i = 0; i < port->sctp->end_count; i++)
		if (port->sctp->ends[i]->records)
			sctp_end_seen(port->sctp->ends[i], sctp_put_packet, port);
}

void sctp_port_mute(struct tcp_port *port)
{
	if (port->sctp != NULL && port->port.adapter->engine.capture != NULL)
		sctp_port_record(port);
	for (uint32_t i = 0; port->sctp != NULL && i < port->sctp->end_count; i++)
		sctp_end_mute(port->sctp->ends[i]);
}

void sctp_port_end_all(struct tcp_port *port)
{
	for (uint32_t i = 0; port->sctp != NULL && i < port->sctp->end_count; i++) {
		sctp_end_free(port->sctp->ends[i]);
		free(port->sctp->ends[i]);
	}
	if (port->sctp != NULL)
		sctp_share_forget(port->sctp);
	free(port->sctp);
	port->sctp = NULL;
}

static void sctp_port_note(void *context)
{
	struct sctp_port *sctp = context;
	atomic_store(&sctp->news, true);
}

unsigned sctp_port_serve(struct tcp_port *port)
{
	unsigned did = 0;
	if (port->sctp == NULL)
		return 0;
	if (port->port.adapter->engine.capture != NULL)
		sctp_port_record(port);
	if (!atomic_exchange(&port->sctp->news, false))
		return 0;
	for (struct hdl_listener *at = port->listeners; at != NULL; at = at->next)
		if (at->sctp != NULL && atomic_exchange(&at->sctp->news, false))
			sctp_listener_accept(at);
	for (struct hdl_conn *conn = port->conns, *next; conn != NULL; conn = next) {
		next = conn->next;
		if (conn->sctp == NULL || !atomic_exchange(&conn->sctp->sock.news, false))
			continue;
		conn->out_held = false;
		did += conn_service(conn);
	}
	return did;
}

unsigned sctp_port_packets(struct tcp_port *port, struct sctp_end *end)
{
	unsigned did = sctp_end_receive(end, clock_read(&port->port.adapter->clock));
	return did + sctp_port_serve(port);
}

unsigned sctp_port_tick(struct tcp_port *port, uint64_t now_ns)
{
	if (port->sctp == NULL || port->sctp->socks == 0)
		return 0;
	sctp_tick(now_ns);
	tcp_port_at(port, now_ns + SCTP_TICK_NS);
	return sctp_port_serve(port);
}

/* One socket more. */
static void sctp_port_uses(struct tcp_port *port)
{
	port->sctp->socks++;
	tcp_port_at(port, clock_read(&port->port.adapter->clock) + SCTP_TICK_NS);
}

/* --- connections --- */

bool sctp_conn_new(struct hdl_conn *conn)
{
	conn->sctp = calloc(1, sizeof(*conn->sctp));
	if (conn->sctp == NULL)
		return false;
	conn->sctp->terminate = SCTP_NO_CONTROL;
	conn->sctp->kept_end = &conn->sctp->kept;
	return true;
}

int sctp_conn_connect(struct hdl_conn *conn, const struct udp_address *own,
                      const struct udp_address *peer, uint16_t port, uint16_t from_port)
{
	struct sctp_conn *sctp = conn->sctp;
	int result = sctp_port_end(conn->port, own, false, &sctp->end);
	if (result != 0)
		return result;
	conn->own = *own;
	conn->peer = *peer;
	conn->own_port = from_port;
	conn->peer_port = port;
	if (sctp->end->ports != NULL) {
		sctp->held = from_port != 0 ? sctp_share_use(conn->port, own, from_port)
		                            : sctp_share_take(conn->port, &conn->own_port);
		if (sctp->held == NULL)
			return -EADDRINUSE;
	}
	result = sctp_connect(&sctp->sock, sctp->end, peer, SCTP_UDP_PORT, port, &conn->own_port,
	                      DDP_SCTP_ADAPTATION, sctp_port_note, conn->port->sctp);
	if (result == 0) {
		sctp_port_uses(conn->port);
	} else {
		sctp_share_drop(sctp->held, conn->own_port);
		sctp->held = NULL;
	}
	return result;
}

/* RFC 5043 section 11.1: an end that announces another adaptation, or none, is not spoken to. */
static void sctp_say_stranger(const struct hdl_conn *conn)
{
	char text[UDP_ADDRESS_TEXT];
	if (conn->sctp->sock.error != -EPROTO)
		return;
	counter_add(&conn->port->port.adapter->engine.counters[ENGINE_BAD_PACKETS], 1);
	udp_address_print(&conn->peer, text);
	log_warn(
	        "%s, SCTP port %u: the peer does not announce DDP (adaptation indication %u of RFC "
	        "5043); is it a program for RDMA over SCTP?",
	        text, conn->peer_port, DDP_SCTP_ADAPTATION);
}

int sctp_conn_connected(struct hdl_conn *conn)
{
	size_t bytes;
	uint32_t ppid;
	switch (sctp_receive(&conn->sctp->sock, conn->port->staging, TCP_STAGING_BYTES, &bytes,
	                     &ppid)) {
	case SCTP_CAME_UP:
		return 0;
	case SCTP_CAME_NOTHING:
		return -EINPROGRESS;
	case SCTP_CAME_BROKEN:
		sctp_say_stranger(conn);
		return conn->sctp->sock.error;
	default:
		return -ECONNREFUSED;
	}
}

static bool sctp_keep(struct sctp_conn *sctp, uint32_t ppid, const uint8_t *data, size_t bytes)
{
	struct sctp_kept *kept = malloc(sizeof(*kept) + bytes);
	if (kept == NULL)
		return false;
	*kept = (struct sctp_kept){.ppid = ppid, .bytes = bytes};
	memcpy(kept->data, data, bytes);
	*sctp->kept_end = kept;
	sctp->kept_end = &kept->next;
	sctp->kept_count++;
	return true;
}

static void sctp_unkeep(struct sctp_conn *sctp)
{
	struct sctp_kept *kept = sctp->kept;
	sctp->kept = kept->next;
	if (sctp->kept == NULL)
		sctp->kept_end = &sctp->kept;
	sctp->kept_count--;
	free(kept);
}

static void sctp_conn_ended(struct hdl_conn *conn, enum stream_end why)
{
	conn->in_over = true;
	conn->broken = conn->broken || why == STREAM_BROKEN;
	conn->flow.ops->ended(conn->flow.context, why);
}

/* No legal sequence of messages has this one (RFC 5043 section 6.1): the session ends. */
static void sctp_bad_message(struct hdl_conn *conn)
{
	counter_add(&conn->port->port.adapter->engine.counters[ENGINE_BAD_PACKETS], 1);
	sctp_conn_ended(conn, STREAM_BROKEN);
}

/* The peer's last message has number @ssn; those up to @expected have come. */
static void sctp_terminated(struct hdl_conn *conn, uint16_t ssn, uint16_t expected)
{
	if (conn->sctp->terminate != SCTP_NO_CONTROL || (uint16_t)(ssn - expected) >= IWARP_EARLY)
		sctp_bad_message(conn);
	else
		conn->sctp->terminate = ssn;
}

/* A message while the session is being set up. False: it has to wait. */
static bool sctp_setup_message(struct hdl_conn *conn, uint32_t ppid, const uint8_t *data,
                               size_t bytes)
{
	uint16_t ssn = 0;
	bool early = conn->initiator && conn->setup->state == MPA_SETUP_REPLY_DUE;
	/* Segments and a Terminate may overtake the Accept. Nothing else may come before it. */
	if (ppid == DDP_SCTP_PPID_SEGMENT && early && conn->sctp->kept_count < SCTP_EARLY)
		return false;
	if (ppid == DDP_SCTP_PPID_CONTROL && early && ddp_sctp_is_terminate(data, bytes, &ssn) &&
	    ssn != 0) {
		sctp_terminated(conn, ssn, SCTP_FIRST_SSN);
	} else if (ppid == DDP_SCTP_PPID_CONTROL) {
		if (!mpa_setup_message(conn->setup, data, bytes))
			counter_add(&conn->port->port.adapter->engine.counters[ENGINE_BAD_PACKETS],
			            1);
	} else {
		sctp_bad_message(conn);
	}
	return true;
}

/* A message of the session. False: it has to wait. */
static bool sctp_session_message(struct hdl_conn *conn, uint32_t ppid, const uint8_t *data,
                                 size_t bytes)
{
	bool open;
	if (ppid == DDP_SCTP_PPID_SEGMENT)
		return iwarp_message(&conn->iwarp, data, bytes, &open);
	uint16_t ssn;
	if (ppid == DDP_SCTP_PPID_CONTROL && ddp_sctp_is_terminate(data, bytes, &ssn))
		sctp_terminated(conn, ssn, (uint16_t)conn->sctp->window.expected);
	else
		sctp_bad_message(conn);
	return true;
}

static bool sctp_pass(struct hdl_conn *conn, uint32_t ppid, const uint8_t *data, size_t bytes)
{
	return conn->state == CONN_UP ? sctp_session_message(conn, ppid, data, bytes)
	                              : sctp_setup_message(conn, ppid, data, bytes);
}

/* Those that waited. False: one still does, and holds the peer back. */
static bool sctp_pass_kept(struct hdl_conn *conn)
{
	struct sctp_conn *sctp = conn->sctp;
	if (conn->state != CONN_UP)
		return sctp->kept_count < SCTP_EARLY; /* the Accept is behind them */
	iwarp_message_resume(&conn->iwarp);
	while (sctp->kept != NULL && !conn->in_over) {
		const struct sctp_kept *kept = sctp->kept;
		if (!sctp_session_message(conn, kept->ppid, kept->data, kept->bytes))
			return false;
		sctp_unkeep(sctp);
	}
	return true;
}

/* One thing that usrsctp has. False: there is none. */
static bool sctp_take(struct hdl_conn *conn)
{
	uint8_t *staging = conn->port->staging;
	size_t bytes = 0;
	uint32_t ppid = 0;
	switch (sctp_receive(&conn->sctp->sock, staging, TCP_STAGING_BYTES, &bytes, &ppid)) {
	case SCTP_CAME_MESSAGE:
		if (!sctp_pass(conn, ppid, staging, bytes) &&
		    !sctp_keep(conn->sctp, ppid, staging, bytes))
			sctp_conn_ended(conn, STREAM_BROKEN);
		return true;
	case SCTP_CAME_CLOSED:
		sctp_conn_ended(conn, STREAM_CLOSED);
		return true;
	case SCTP_CAME_BROKEN:
		sctp_say_stranger(conn);
		sctp_conn_ended(conn, STREAM_BROKEN);
		return true;
	case SCTP_CAME_UP:
		return true;
	default:
		return false;
	}
}

/* Has everything before the peer's session Terminate come? */
static void sctp_check_terminate(struct hdl_conn *conn)
{
	if (conn->state == CONN_UP && !conn->in_over &&
	    conn->sctp->terminate == (uint16_t)conn->sctp->window.expected)
		sctp_conn_ended(conn, STREAM_CLOSED);
}

unsigned sctp_conn_receive(struct hdl_conn *conn)
{
	unsigned did = 0;
	conn->more = false;
	if (conn->in_over || conn->state == CONN_OVER || conn->state == CONN_CONNECTING)
		return 0;
	uint8_t state = conn->state;
	while (did < SCTP_TURN_MSGS && !conn->in_over && sctp_pass_kept(conn) && sctp_take(conn)) {
		did++;
		if (state == CONN_SETUP && mpa_setup_over(conn->setup))
			break; /* what follows is for the queue pair */
	}
	/* A message that waits holds back what is behind it, also the news that nothing follows. */
	if (conn->sctp->kept != NULL && !conn->in_over && sctp_is_broken(&conn->sctp->sock))
		sctp_conn_ended(conn, STREAM_BROKEN);
	sctp_check_terminate(conn);
	conn->more = did == SCTP_TURN_MSGS;
	if (did > 0)
		tcp_port_wake(conn->port, conn);
	return did;
}

static void sctp_send_setup(struct hdl_conn *conn)
{
	struct stream_run run;
	if (mpa_setup_stream.offer(conn->setup, &run, 1) == 0)
		return;
	int result = sctp_send(&conn->sctp->sock, DDP_SCTP_PPID_CONTROL, run.bytes, run.length);
	if (result == 0)
		mpa_setup_stream.taken(conn->setup, run.length);
	else if (result == -EAGAIN)
		conn->out_held = true;
	else
		conn->broken = true;
}

void sctp_conn_send(struct hdl_conn *conn)
{
	const uint8_t *message;
	size_t bytes;
	if (conn->state == CONN_CONNECTING || conn->state == CONN_OVER || conn->out_held ||
	    conn->out_over || conn->broken)
		return;
	if (conn->state == CONN_SETUP) {
		sctp_send_setup(conn);
		return;
	}
	while ((bytes = iwarp_message_offer(&conn->iwarp, &message)) > 0) {
		int result = sctp_send(&conn->sctp->sock, DDP_SCTP_PPID_SEGMENT, message, bytes);
		conn->out_held = result == -EAGAIN;
		conn->broken = result != 0 && result != -EAGAIN;
		if (result != 0)
			return;
		iwarp_message_taken(&conn->iwarp);
	}
}

void sctp_conn_set_class(struct hdl_conn *conn)
{
	if (conn->traffic_class != 0)
		sctp_set_class(&conn->sctp->sock, conn->traffic_class);
}

/* RFC 5043 section 6.6: a Terminate must not overtake the Accept. */
bool sctp_conn_may_finish(struct hdl_conn *conn)
{
	return !conn->begun || conn->initiator || conn->sctp->window.expected != SCTP_FIRST_SSN ||
	       sctp_is_settled(&conn->sctp->sock);
}

void sctp_conn_finish(struct hdl_conn *conn)
{
	uint8_t control[DDP_SCTP_CONTROL_BYTES];
	if (conn->begun) /* if there is no room for it, the end of the association says the same */
		sctp_send(&conn->sctp->sock, DDP_SCTP_PPID_CONTROL, control,
		          ddp_sctp_terminate_encode(iwarp_message_ssn(&conn->iwarp), control));
	sctp_finish(&conn->sctp->sock);
}

void sctp_conn_close(struct hdl_conn *conn, bool reset)
{
	struct sctp_conn *sctp = conn->sctp;
	if (sctp->sock.so == NULL)
		return;
	sctp_close(&sctp->sock, reset);
	sctp_share_drop(sctp->held, conn->own_port);
	sctp->held = NULL;
	conn->port->sctp->socks--;
	while (sctp->kept != NULL)
		sctp_unkeep(sctp);
}

/* --- listeners --- */

int sctp_listener_begin(struct hdl_listener *listener, int backlog)
{
	struct tcp_port *port = listener->port;
	uint32_t mtu = UINT32_MAX;
	int result = 0;
	for (uint32_t i = 0; result == 0 && i < listener->count; i++) {
		struct sctp_end *end;
		result = sctp_port_end(port, &listener->socks[i].address, true, &end);
		if (result == 0 && end->mtu < mtu)
			mtu = end->mtu;
	}
	struct sctp_sock *sock = result == 0 ? calloc(1, sizeof(*sock)) : NULL;
	if (sock == NULL)
		return result != 0 ? result : -ENOMEM;
	result = sctp_listen(sock, &listener->number, backlog, DDP_SCTP_ADAPTATION, mtu,
	                     sctp_port_note, port->sctp);
	if (result != 0) {
		free(sock);
		return result;
	}
	listener->sctp = sock;
	sctp_port_uses(port);
	return 0;
}

/* Did it come to an address of @listener? usrsctp listens on all that the process has. */
static bool sctp_is_for(const struct hdl_listener *listener, const struct sctp_end *end)
{
	for (uint32_t i = 0; i < listener->count; i++)
		if (udp_address_equal(&listener->socks[i].address, &end->own))
			for (uint32_t n = 0; n < listener->port->sctp->end_count; n++)
				if (listener->port->sctp->ends[n] == end)
					return true;
	return false;
}

void sctp_listener_accept(struct hdl_listener *listener)
{
	struct tcp_port *port = listener->port;
	for (unsigned n = 0; n < TCP_ACCEPTS && !listener->paused; n++) {
		struct hdl_conn *conn = conn_new(port, -1);
		if (conn == NULL)
			return;
		int result = sctp_conn_new(conn) ? sctp_accept(listener->sctp, &conn->sctp->sock,
		                                               &conn->peer_port)
		                                 : -ENOMEM;
		if (result != 0) {
			conn_drop(conn);
			return;
		}
		port->sctp->socks++;
		conn->sctp->end = conn->sctp->sock.path->end;
		conn->own = conn->sctp->end->own;
		conn->peer = conn->sctp->sock.path->peer;
		conn->own_port = listener->number;
		conn->peer_class = conn->sctp->sock.peer_class;
		if (conn->sctp->end->ports != NULL)
			conn->sctp->held = sctp_share_use(port, &conn->own, conn->own_port);
		sctp_set_notify(&conn->sctp->sock, sctp_port_note, port->sctp);
		if (!sctp_is_for(listener, conn->sctp->end)) {
			sctp_conn_close(conn, true);
			conn_drop(conn);
			continue;
		}
		listener_admit(listener, conn);
		atomic_store(&listener->sctp->news, true); /* there may be more */
		atomic_store(&port->sctp->news, true);
	}
}

void sctp_listener_close(struct hdl_listener *listener)
{
	if (listener->sctp == NULL)
		return;
	sctp_close(listener->sctp, true);
	for (uint32_t i = 0; i < listener->count; i++)
		sctp_share_unbind(listener->port, &listener->socks[i].address, listener->number);
	listener->port->sctp->socks--;
	free(listener->sctp);
	listener->sctp = NULL;
}
