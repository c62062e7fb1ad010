/* Apertures: what disturbs or ends a connection against the will of its owner: ERROR packets, links
 * and hosts that have gone. See ap.h. */
#include <string.h>

#include "transport/aperture/ap.h"
#include "wire/be.h"

void ap_fail(struct ap_conn *conn, uint8_t reason)
{
	if (conn->state == HDL_APERTURE_CONNECTING)
		ap_enter(conn, HDL_APERTURE_CLOSED, reason, CI_ERROR);
	else if (ap_is_connected(conn->state))
		ap_enter(conn, HDL_APERTURE_FAILED, reason, CI_ERROR);
}

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

void ap_route_down(struct ap_node *node, uint32_t route, uint8_t reason)
{
	struct ap_conn *conn;
	for (uint32_t row = 1; (conn = ap_next_conn(node, &row)) != NULL;)
		if (conn->path.route == route) {
			ap_unpoint(conn);
			ap_fail(conn, reason);
		}
}

void ap_managed_down(struct ap_node *node)
{
	struct ap_conn *conn;
	for (uint32_t row = 1; (conn = ap_next_conn(node, &row)) != NULL;)
		if (conn->path.managed)
			ap_fail(conn, HDL_REASON_GONE);
}

bool ap_unreachable(struct ap_node *node, const uint8_t host[16], const uint8_t *frame,
                    size_t bytes)
{
	struct ap_conn *conn;
	bool found = false;
	if (bytes < CI_HEADER_BYTES)
		return false;
	uint32_t index = be32_load(frame + CI_INDEX_OFFSET);
	/* Of CONNECT, the nonce that it offers. */
	bool connect = frame[0] == CI_CONNECT && bytes >= CI_HEADER_BYTES + 12;
	uint64_t nonce = be64_load(connect ? frame + CI_HEADER_BYTES + 4 : frame + 8);
	for (uint32_t row = 1; (conn = ap_next_conn(node, &row)) != NULL;) {
		bool ours =
		        connect ? conn->state == HDL_APERTURE_CONNECTING && conn->own.nonce == nonce
		                : ap_is_connected(conn->state) && conn->out->index == index &&
		                          conn->out->nonce.first == nonce;
		if (!ours || memcmp(conn->path.host, host, 16) != 0)
			continue;
		found = true;
		ap_fail(conn, HDL_REASON_GONE);
	}
	return found;
}

/* --- ERROR --- */

void ap_hear_error(struct ap_conn *conn, const struct ci_packet *packet)
{
	struct ci_note note = ci_get_note(packet);
	ap_count(conn->node, HDL_APERTURE_COUNTER_ERRORS_IN, 1);
	if (!ap_is_connected(conn->state) && conn->state != HDL_APERTURE_CONNECTING)
		return;
	switch (note.reason) {
	case HDL_REASON_SEQUENCE:
		if (ap_is_connected(conn->state))
			ap_acked(conn, note.number, true);
		break;
	case HDL_REASON_GONE:
	case HDL_REASON_CLOSED:
		ap_fail(conn, (uint8_t)note.reason);
		break;
	case HDL_REASON_EXTENT:
	case HDL_REASON_ACCESS:
	case HDL_REASON_MEMORY:
	case HDL_REASON_NO_PORT:
		conn->errors++;
		conn->reason = (uint8_t)note.reason;
		conn->node->sink->changed(conn->node->context, conn);
		ap_tell(conn, CI_ERROR);
		break;
	default:
		ap_count(conn->node, HDL_APERTURE_COUNTER_BAD_FRAMES, 1);
		break;
	}
}
