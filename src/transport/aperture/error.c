/* Apertures: what disturbs or ends a connection against the will of its owner. ERROR packets say so
 * to the other end; carriers say it to this one. See ap.h. */
#include <string.h>

#include "transport/aperture/ap.h"
#include "wire/be.h"

/* --- the end --- */

void ap_fail(struct ap_conn *conn, uint8_t element, uint8_t reason)
{
	if (!ap_is_connected(conn->state) && conn->state != HDL_APERTURE_CONNECTING)
		return;
	conn->element = element;
	ap_enter(conn,
	         conn->state == HDL_APERTURE_CONNECTING ? HDL_APERTURE_CLOSED : HDL_APERTURE_FAILED,
	         reason, CI_ERROR);
}

void ap_give_up(struct ap_conn *conn, uint8_t element, uint8_t reason)
{
	const struct ci_note note = {
	        .reason = reason, .element = CI_SENDER, .number = conn->in->expected};
	bool open = ap_is_connected(conn->state) || conn->state == HDL_APERTURE_CONNECTING;
	if (open && ap_knows_peer(conn)) {
		(void)ap_send_note(conn, CI_ERROR, &note);
		ap_activate(conn); /* which flushes the frame */
	}
	ap_fail(conn, element, reason);
}

/* --- carriers, agents --- */

/* The connection of the first row from *row on that somebody has; NULL: no more. */
static struct ap_conn *ap_next_conn(const struct ap_node *node, uint32_t *row)
{
	for (; *row < node->row_count; ++*row) {
		if (*row % 64 == 0 && node->row_map.words[*row / 64] == 0)
			*row += 63; /* 64 that nobody has */
		else if (node->conns[*row] != NULL)
			return node->conns[(*row)++];
	}
	return NULL;
}

void ap_route_down(struct ap_node *node, uint32_t route)
{
	struct ap_conn *conn;
	ap_ports_forget(node, route);
	for (uint32_t row = 1; (conn = ap_next_conn(node, &row)) != NULL;)
		if (conn->path.route == route) {
			ap_unpoint(conn);
			ap_fail(conn, CI_CARRIER, HDL_REASON_GONE);
		}
}

void ap_managed_down(struct ap_node *node)
{
	struct ap_conn *conn;
	for (uint32_t row = 1; (conn = ap_next_conn(node, &row)) != NULL;)
		if (conn->path.managed)
			ap_fail(conn, CI_AGENT, HDL_REASON_GONE);
}

/* Does @conn send frames that begin like this? @proof: only its peer can know them. */
static bool ap_sends(const struct ap_conn *conn, const uint8_t *frame, size_t bytes, bool proof)
{
	if (bytes < CI_HEADER_BYTES)
		return false;
	/* Of CONNECT, the nonce that it offers. */
	if (frame[0] == CI_CONNECT)
		return bytes >= CI_HEADER_BYTES + 12 && conn->state == HDL_APERTURE_CONNECTING &&
		       conn->own.nonce == be64_load(frame + CI_HEADER_BYTES + 4);
	if (conn->out->index != be32_load(frame + CI_INDEX_OFFSET))
		return false;
	return proof ? ap_is_connected(conn->state) &&
	                       conn->out->nonce.first == be64_load(frame + 8)
	             : ap_is_connected(conn->state) || conn->pointed;
}

void ap_report(struct ap_conn *conn, uint8_t element, uint8_t reason)
{
	conn->errors++;
	conn->element = element;
	conn->reason = reason;
	if (ap_is_connected(conn->state))
		conn->node->sink->changed(conn->node->context, conn);
	ap_tell(conn, CI_ERROR, reason);
}

/* Can @conn have sent something on @route? */
static bool ap_uses(const struct ap_conn *conn, uint32_t route)
{
	return conn->path.route == route &&
	       (ap_is_connected(conn->state) || conn->state == HDL_APERTURE_CONNECTING ||
	        conn->pointed);
}

bool ap_carrier_down(struct ap_node *node, uint32_t route)
{
	struct ap_conn *conn;
	bool found = false;
	for (uint32_t row = 1; (conn = ap_next_conn(node, &row)) != NULL;) {
		if (!ap_uses(conn, route))
			continue;
		found = true;
		if (conn->pointed) { /* there is no connection that could fail */
			ap_report(conn, CI_CARRIER, HDL_REASON_CARRIER);
			ap_unpoint(conn);
		} else {
			conn->errors++;
			ap_give_up(conn, CI_CARRIER, HDL_REASON_CARRIER);
		}
	}
	return found;
}

/* A frame of @conn did not get there. */
static void ap_lost_frame(struct ap_conn *conn)
{
	if (conn->unsent)
		conn->errors++; /* one event is enough */
	else
		ap_report(conn, CI_CARRIER, HDL_REASON_CARRIER);
	conn->unsent = true;
}

bool ap_returned(struct ap_node *node, const uint8_t host[16], const uint8_t *frame, size_t bytes,
                 bool gone)
{
	struct ap_conn *conn;
	bool found = false;
	for (uint32_t row = 1; (conn = ap_next_conn(node, &row)) != NULL;) {
		if (memcmp(conn->path.host, host, 16) != 0 || !ap_sends(conn, frame, bytes, true))
			continue;
		found = true;
		if (gone)
			ap_fail(conn, CI_CARRIER, HDL_REASON_GONE);
		else
			ap_lost_frame(conn);
	}
	return found;
}

void ap_unsent(struct ap_node *node, uint32_t route, const uint8_t host[16], const uint8_t *frame,
               size_t bytes)
{
	struct ap_conn *conn;
	for (uint32_t row = 1; (conn = ap_next_conn(node, &row)) != NULL;) {
		if (!ap_uses(conn, route) || memcmp(conn->path.host, host, 16) != 0 ||
		    (frame != NULL && !ap_sends(conn, frame, bytes, false)))
			continue;
		ap_lost_frame(conn);
	}
}

/* --- ERROR --- */

/* Has the other end given up? Some of the reasons are no end if a receiver reports them. */
static bool ap_is_end(const struct ci_note *note)
{
	switch (note->reason) {
	case HDL_REASON_GONE:
	case HDL_REASON_CLOSED:
		return true;
	case HDL_REASON_SILENT:
	case HDL_REASON_MEMORY:
	case HDL_REASON_PROTOCOL:
	case HDL_REASON_CARRIER:
		return note->element == CI_SENDER;
	default:
		return false;
	}
}

void ap_hear_error(struct ap_conn *conn, const struct ci_packet *packet)
{
	struct ci_note note = ci_get_note(packet);
	uint8_t element = (uint8_t)note.element, reason = (uint8_t)note.reason;
	ap_count(conn->node, HDL_APERTURE_COUNTER_ERRORS_IN, 1);
	if (!ap_is_connected(conn->state) && conn->state != HDL_APERTURE_CONNECTING)
		return;
	if (note.element >= CI_ELEMENT_COUNT) {
		ap_count(conn->node, HDL_APERTURE_COUNTER_BAD_FRAMES, 1);
		return;
	}
	if (ap_is_end(&note)) {
		ap_fail(conn, element, reason);
		return;
	}
	switch (note.reason) {
	case HDL_REASON_SEQUENCE:
	case HDL_REASON_DAMAGED:
		if (!ap_is_connected(conn->state))
			break;
		if (note.reason == HDL_REASON_DAMAGED && !conn->out->sequenced)
			ap_report(conn, element, reason);
		else
			ap_acked(conn, note.number, true);
		break;
	case HDL_REASON_EXTENT:
	case HDL_REASON_ACCESS:
	case HDL_REASON_MEMORY:
	case HDL_REASON_NO_PORT:
		conn->refused++;
		ap_report(conn, element, reason);
		break;
	default:
		ap_count(conn->node, HDL_APERTURE_COUNTER_BAD_FRAMES, 1);
		break;
	}
}
