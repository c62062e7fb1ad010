/* Apertures: what time does to a connection, and ALIVE, which asks whether the peer lives. See
 * ap.h. */
#include <stddef.h>

#include "transport/aperture/ap.h"

/* What @conn waits for, and for how long; *since: see struct ap_conn. */
static enum ap_timer ap_waits_for(const struct ap_conn *conn, uint64_t *wait_ns, uint64_t *since)
{
	switch (conn->state) {
	case HDL_APERTURE_CONNECTING:
		*wait_ns = AP_CONNECT_FIRST_NS << (conn->tries < 8 ? conn->tries : 8);
		if (*wait_ns > AP_CONNECT_MOST_NS)
			*wait_ns = AP_CONNECT_MOST_NS;
		*since = conn->tries;
		return AP_TIMER_CONNECT;
	case HDL_APERTURE_OPEN:
	case HDL_APERTURE_CLOSING:
		*wait_ns = window_pace_wait_ns(&conn->window, conn->node->now_ns);
		*since = conn->node->now_ns;
		if (conn->out->sequenced && conn->cursor != conn->next && *wait_ns > 0)
			return AP_TIMER_PACE;
		*wait_ns = window_wait_ns(&conn->window, AP_TIMEOUT_NS);
		/* What is sent puts it off, as an answer may come to that alone, but not for
		 * ever. */
		*since = (uint64_t)conn->una << 32 | conn->sent;
		if (ap_unanswered(conn))
			return AP_TIMER_DATA;
		*wait_ns = AP_CLOSE_NS;
		*since = conn->tries;
		if (conn->state == HDL_APERTURE_CLOSING)
			return AP_TIMER_CLOSE;
		*wait_ns = conn->path.idle_ns;
		*since = conn->heard_ns;
		return *wait_ns != 0 ? AP_TIMER_IDLE : AP_TIMER_NONE;
	default:
		return AP_TIMER_NONE;
	}
}

void ap_set_timer(struct ap_conn *conn)
{
	struct ap_node *node = conn->node;
	uint64_t wait_ns, since;
	enum ap_timer timer_of = ap_waits_for(conn, &wait_ns, &since);
	if (timer_of == AP_TIMER_NONE) {
		timer_stop(&node->wheel, &conn->timer);
		return;
	}
	if (ap_unanswered(conn) && !conn->awaiting) {
		conn->awaiting = true;
		conn->heard_ns = node->now_ns;
	}
	bool runs = timer_running(&conn->timer) && conn->timer_of == timer_of;
	if (runs && conn->timer_since == since)
		return;
	if (timer_of == AP_TIMER_DATA) {
		if (!runs || conn->timer_since >> 32 != since >> 32)
			conn->timer_first_ns = node->now_ns;
		uint64_t waited_ns = node->now_ns - conn->timer_first_ns;
		uint64_t left_ns = waited_ns < AP_TIMEOUT_NS ? AP_TIMEOUT_NS - waited_ns : 0;
		wait_ns = wait_ns < left_ns ? wait_ns : left_ns;
	}
	conn->timer_of = (uint8_t)timer_of;
	conn->timer_since = since;
	conn->timer_ns = wait_ns;
	timer_start(&node->wheel, &conn->timer, node->now_ns + wait_ns);
}

static void ap_send_alive(struct ap_conn *conn)
{
	struct ci_note note = {.number = conn->next, .index = conn->own.index};
	(void)ap_send_note(conn, CI_ALIVE, &note);
	ap_activate(conn);
}

void ap_ask_alive(struct ap_conn *conn)
{
	uint64_t now = conn->node->now_ns;
	if (conn->awaiting && now - conn->heard_ns > AP_SILENT_NS) {
		ap_give_up(conn, CI_SENDER, HDL_REASON_SILENT);
		return;
	}
	if (!conn->awaiting)
		conn->heard_ns = now;
	conn->awaiting = true;
	ap_send_alive(conn);
}

static void ap_expire_open(struct ap_conn *conn)
{
	struct ap_node *node = conn->node;
	if (conn->awaiting && node->now_ns - conn->heard_ns > AP_SILENT_NS) {
		ap_give_up(conn, CI_SENDER, HDL_REASON_SILENT);
	} else if (conn->timer_of == AP_TIMER_PACE) {
		ap_activate(conn);
	} else if (ap_unanswered(conn)) {
		/* Data does not say who sent it: for a process that has ended, its agent can answer
		 * ALIVE alone. */
		ap_send_alive(conn);
		ap_sent_timeout(conn);
	} else if (conn->state == HDL_APERTURE_CLOSING) {
		if (++conn->tries > AP_CLOSE_TRIES)
			ap_enter(conn, HDL_APERTURE_CLOSED, HDL_REASON_SILENT, CI_CLOSE);
		else
			ap_send_close(conn, true);
	} else {
		ap_ask_alive(conn);
	}
}

static void ap_expire(struct ap_conn *conn)
{
	switch (conn->state) {
	case HDL_APERTURE_CONNECTING:
		if (conn->node->now_ns - conn->began_ns > AP_CONNECT_NS) {
			ap_give_up(conn, CI_SENDER, HDL_REASON_SILENT);
			break;
		}
		conn->tries++;
		ap_send_connect(conn);
		break;
	case HDL_APERTURE_OPEN:
	case HDL_APERTURE_CLOSING:
		ap_expire_open(conn);
		break;
	default:
		break;
	}
}

unsigned ap_tick(struct ap_node *node, uint64_t now_ns)
{
	unsigned count = 0;
	node->now_ns = now_ns;
	struct timer_node *list = timer_advance(&node->wheel, now_ns), *next;
	for (; list != NULL; list = next, count++) {
		next = list->next;
		ap_expire((struct ap_conn *)((char *)list - offsetof(struct ap_conn, timer)));
	}
	return count;
}

uint64_t ap_next_tick(const struct ap_node *node)
{
	return timer_next_ns(&node->wheel);
}
