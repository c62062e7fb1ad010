/* Apertures: what time does to a connection, and ALIVE, which asks whether the peer lives. See
 * ap.h. */
#include <stddef.h>

#include "transport/aperture/ap.h"

static uint64_t ap_wait_ns(const struct ap_conn *conn)
{
	uint64_t wait;
	switch (conn->state) {
	case HDL_APERTURE_CONNECTING:
		wait = AP_CONNECT_FIRST_NS << (conn->tries < 8 ? conn->tries : 8);
		return wait < AP_CONNECT_MOST_NS ? wait : AP_CONNECT_MOST_NS;
	case HDL_APERTURE_OPEN:
	case HDL_APERTURE_CLOSING:
		wait = window_pace_wait_ns(&conn->window, conn->node->now_ns);
		if (conn->out->sequenced && conn->cursor != conn->next && wait > 0)
			return wait;
		if (ap_unanswered(conn))
			return window_wait_ns(&conn->window, AP_TIMEOUT_NS);
		if (conn->state == HDL_APERTURE_CLOSING)
			return AP_CLOSE_NS;
		return conn->path.idle_ns != 0 ? conn->path.idle_ns : UINT64_MAX;
	default:
		return UINT64_MAX;
	}
}

void ap_set_timer(struct ap_conn *conn)
{
	struct ap_node *node = conn->node;
	uint64_t wait = ap_wait_ns(conn);
	conn->timer_ns = wait;
	if (wait == UINT64_MAX) {
		timer_stop(&node->wheel, &conn->timer);
		return;
	}
	if (ap_unanswered(conn) && !conn->awaiting) {
		conn->awaiting = true;
		conn->heard_ns = node->now_ns;
	}
	timer_start(&node->wheel, &conn->timer, node->now_ns + wait);
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
	} else if (ap_unanswered(conn)) {
		/* Data does not say who sent it: for a process that has ended, its agent can answer
		 * ALIVE alone. */
		ap_send_alive(conn);
		ap_sent_timeout(conn);
	} else if (conn->cursor != conn->next) {
		ap_activate(conn); /* the pace allows the next packet */
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
