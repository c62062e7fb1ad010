/* Apertures: packets that go out. What was stored is kept in a ring until it is acknowledged;
 * numbers run through it like packets of any reliable protocol. See ap.h. */
#include <assert.h>
#include <string.h>

#include "transport/aperture/ap.h"

/* --- frames --- */

static void ap_flush(struct ap_node *node)
{
	if (!node->writing)
		return;
	node->writing = false;
	ap_count(node, HDL_APERTURE_COUNTER_FRAMES_OUT, 1);
	node->sink->commit(node->context, &node->writer_path, node->writer.used);
}

/* Add @packet to the frame that is being filled, or begin one. */
static bool ap_write_packet(struct ap_node *node, const struct ap_path *path,
                            const struct ci_packet *packet)
{
	bool shares = node->writing && node->writer_path.route == path->route &&
	              node->writer_path.epoch == path->epoch &&
	              node->writer_path.by_agent == path->by_agent &&
	              memcmp(node->writer_path.host, path->host, 16) == 0 &&
	              node->writer_slot == ci_slot(packet->index);
	if (!shares || !ci_put(&node->writer, packet)) {
		ap_flush(node);
		uint8_t *room = node->sink->reserve(node->context, path, path->frame_bytes);
		if (room == NULL)
			return false;
		ci_begin(&node->writer, room, path->frame_bytes);
		bool fits = ci_put(&node->writer, packet);
		assert(fits);
		node->writing = true;
		node->writer_path = *path;
		node->writer_slot = ci_slot(packet->index);
	}
	ap_count(node, HDL_APERTURE_COUNTER_PACKETS_OUT, 1);
	return true;
}

static bool ap_send_by_agent(struct ap_node *node, const struct ap_path *path,
                             const struct ci_packet *packet)
{
	struct ap_path way = *path;
	way.by_agent = true;
	way.frame_bytes = AP_AGENT_BYTES;
	return ap_write_packet(node, &way, packet);
}

bool ap_send(struct ap_node *node, const struct ap_path *path, const struct ci_packet *packet)
{
	if (path->managed && ci_is_out_of_band(packet))
		return ap_send_by_agent(node, path, packet);
	return ap_write_packet(node, path, packet);
}

static bool ap_send_note_by(struct ap_conn *conn, uint8_t kind, uint8_t flags,
                            const struct ci_note *note, bool by_agent)
{
	uint8_t body[8];
	struct ci_packet packet = {.kind = kind,
	                           .flags = flags,
	                           .cluster = conn->out->cluster,
	                           .index = conn->out->index,
	                           .nonce = conn->out->nonce.first,
	                           .offset = kind == CI_ALIVE        ? conn->asks + 1
	                                     : (flags & CI_ASK) != 0 ? conn->alive_number
	                                                             : 0,
	                           .bytes = ci_set_note(kind, note, body),
	                           .data = body};
	if (kind == CI_ERROR)
		ap_count(conn->node, HDL_APERTURE_COUNTER_ERRORS_OUT, 1);
	bool sent = by_agent ? ap_send_by_agent(conn->node, &conn->path, &packet)
	                     : ap_send(conn->node, &conn->path, &packet);
	conn->asks += sent && kind == CI_ALIVE;
	return sent;
}

bool ap_send_note(struct ap_conn *conn, uint8_t kind, const struct ci_note *note)
{
	return ap_send_note_by(conn, kind, 0, note, false);
}

/* --- the ring --- */

void ap_restart(struct ap_conn *conn)
{
	uint32_t room = conn->path.frame_bytes > CI_EXTRA_BYTES
	                        ? conn->path.frame_bytes - CI_EXTRA_BYTES
	                        : 1;
	conn->una = conn->cursor = conn->sent = conn->next = conn->in->next = conn->out->sequence;
	conn->head = conn->tail = 0;
	conn->since_ask = 0;
	conn->tries = 0;
	conn->stuck_ns = 0;
	window_begin(&conn->window, room < WINDOW_FIRST_BYTES ? room : WINDOW_FIRST_BYTES, 0);
}

uint32_t ap_piece(const struct ap_conn *conn)
{
	uint32_t most = conn->path.frame_bytes - CI_EXTRA_BYTES;
	return most < CI_MAX_DATA ? most : CI_MAX_DATA;
}

/* Where @bytes in one piece would begin, free-running; false: no room. */
static bool ap_room(const struct ap_conn *conn, uint32_t head, uint32_t bytes, uint32_t *at)
{
	uint32_t place = head % HDL_APERTURE_KEPT_BYTES;
	*at = place + bytes > HDL_APERTURE_KEPT_BYTES ? head + HDL_APERTURE_KEPT_BYTES - place
	                                              : head;
	return *at + bytes - conn->tail <= HDL_APERTURE_KEPT_BYTES;
}

bool ap_put(struct ap_conn *conn, uint8_t kind, uint64_t offset, const void *data, uint32_t bytes)
{
	const uint8_t *from = data;
	uint32_t piece = kind == CI_DATA ? ap_piece(conn) : bytes;
	uint32_t next = conn->next, head = conn->head, done = 0;
	if (conn->kept == NULL)
		return false;
	do {
		uint32_t count = bytes - done < piece ? bytes - done : piece, at;
		if (next - conn->una >= HDL_APERTURE_KEPT || !ap_room(conn, head, count, &at))
			return false;
		if (count > 0)
			memcpy(conn->bytes + at % HDL_APERTURE_KEPT_BYTES, from + done, count);
		conn->kept[next % HDL_APERTURE_KEPT] = (struct ap_kept){
		        .offset = (uint32_t)(offset + (kind == CI_DATA ? done : 0)),
		        .at = at,
		        .end = at + count,
		        .bytes = (uint16_t)count,
		        .kind = kind};
		head = at + count;
		done += count;
		next++;
	} while (done < bytes);
	conn->next = next;
	conn->head = head;
	conn->out->sequence = conn->in->next = next; /* APERTURE column 18, step 8: written back */
	ap_activate(conn);
	return true;
}

void ap_activate(struct ap_conn *conn)
{
	struct ap_node *node = conn->node;
	if (conn->is_active)
		return;
	conn->is_active = true;
	conn->active_next = NULL;
	*node->active_end = conn;
	node->active_end = &conn->active_next;
}

/* --- sending --- */

static bool ap_may_send(const struct ap_conn *conn)
{
	if (conn->pointed)
		return true;
	return conn->state == HDL_APERTURE_OPEN || conn->state == HDL_APERTURE_CLOSING;
}

/* Should the packet at the cursor ask for an acknowledgement? The last one does, and some before.
 * */
static bool ap_should_ask(struct ap_conn *conn, uint32_t limit)
{
	conn->since_ask++;
	bool last = conn->cursor + 1 == conn->next || conn->cursor + 1 - conn->una >= limit;
	if (!last && conn->since_ask < limit / AP_ASK_PARTS)
		return false;
	conn->since_ask = 0;
	return true;
}

/* Send the packet at the cursor. False: no room in the carrier. */
static bool ap_send_kept(struct ap_conn *conn, bool ask)
{
	struct ap_node *node = conn->node;
	const struct ap_kept *kept = &conn->kept[conn->cursor % HDL_APERTURE_KEPT];
	bool numbered = conn->out->sequenced;
	struct ci_packet packet = {
	        .kind = kept->kind,
	        .flags = (uint8_t)((numbered ? CI_SEQUENCED : 0) | (numbered && ask ? CI_ASK : 0)),
	        .cluster = conn->out->cluster,
	        .index = conn->out->index,
	        .nonce = nonce_at(&conn->out->nonce, conn->cursor),
	        .offset = kept->offset,
	        .sequence = numbered ? conn->cursor : 0,
	        .bytes = kept->bytes,
	        .data = conn->bytes + kept->at % HDL_APERTURE_KEPT_BYTES};
	if (!ap_send(node, &conn->path, &packet))
		return false;
	ap_count(node, HDL_APERTURE_COUNTER_BYTES_OUT, kept->bytes);
	if ((int32_t)(conn->cursor - conn->sent) < 0)
		ap_count(node, HDL_APERTURE_COUNTER_REPEATED, 1);
	else if (ask)
		window_time_sent(&conn->window, conn->cursor, conn->sent, node->now_ns);
	conn->cursor++;
	if ((int32_t)(conn->cursor - conn->sent) > 0)
		conn->sent = conn->cursor;
	return true;
}

/* Forget what has been sent: nobody will ask for it again. */
static void ap_forget(struct ap_conn *conn, uint32_t number)
{
	if (number == conn->una)
		return;
	conn->tail = conn->kept[(number - 1) % HDL_APERTURE_KEPT].end;
	conn->una = number;
	if (conn->out->sequenced)
		nonce_roll(&conn->out->nonce, number);
}

/* Send what the window allows. Returns how many packets; *blocked: the carrier has no room. */
static unsigned ap_run_sends(struct ap_conn *conn, bool *blocked)
{
	unsigned count = 0;
	uint64_t now = conn->node->now_ns;
	if (!ap_may_send(conn))
		return 0;
	while (conn->cursor != conn->next) {
		uint32_t limit =
		        conn->out->sequenced ? window_packets(&conn->window) : HDL_APERTURE_KEPT;
		if (conn->cursor - conn->una >= limit ||
		    (conn->out->sequenced && window_pace_wait_ns(&conn->window, now) > 0))
			break;
		if (!ap_send_kept(conn, ap_should_ask(conn, limit))) {
			*blocked = true;
			break;
		}
		window_pace(&conn->window, now);
		count++;
		if (!conn->out->sequenced)
			ap_forget(conn, conn->cursor);
	}
	return count;
}

static unsigned ap_run_answers(struct ap_conn *conn, bool *blocked)
{
	const struct ci_note note = {.number = conn->in->expected};
	bool damaged = conn->gap_due == HDL_REASON_DAMAGED;
	const struct ci_note gap = {.reason = conn->gap_due,
	                            .element = damaged ? CI_CARRIER : CI_RECEIVER,
	                            .number = conn->in->expected};
	unsigned count = 0;
	if (conn->gap_due != HDL_REASON_NONE) {
		if (ap_send_note(conn, CI_ERROR, &gap)) {
			conn->gap_due = HDL_REASON_NONE;
			conn->ack_due = false;
			conn->gap_told = true;
			count++;
		} else {
			*blocked = true;
		}
	}
	if (conn->ack_due && !*blocked) {
		if (ap_send_note(conn, CI_ALIVEACK, &note)) {
			conn->ack_due = false;
			count++;
		} else {
			*blocked = true;
		}
	}
	if (conn->alive_due && !*blocked) {
		/* It says what it answers, and takes the way that ALIVE came. */
		if (ap_send_note_by(conn, CI_ALIVEACK, CI_ASK, &note, conn->path.managed)) {
			conn->alive_due = false;
			count++;
		} else {
			*blocked = true;
		}
	}
	return count;
}

/* The carrier of @conn has room, or has none. A peer that is stopped does not empty its lane, so
 * even ALIVE may find no room: after AP_SILENT_NS the peer counts as gone. */
static void ap_note_room(struct ap_conn *conn, bool room)
{
	uint64_t now_ns = conn->node->now_ns;
	if (room)
		conn->stuck_ns = 0;
	else if (conn->stuck_ns == 0)
		conn->stuck_ns = now_ns;
	else if (now_ns - conn->stuck_ns > AP_SILENT_NS)
		ap_fail(conn, CI_CARRIER, HDL_REASON_SILENT);
}

unsigned ap_run(struct ap_node *node)
{
	unsigned count = 0;
	struct ap_conn *list = node->active, *next;
	node->active = NULL;
	node->active_end = &node->active;
	for (struct ap_conn *conn = list; conn != NULL; conn = next) {
		bool blocked = false;
		next = conn->active_next;
		conn->is_active = false;
		/* Nothing is acknowledged before it is in place. */
		if (!node->stalled)
			count += ap_run_answers(conn, &blocked);
		if (!blocked)
			count += ap_run_sends(conn, &blocked);
		ap_note_room(conn, !blocked);
		if (blocked || (node->stalled && (conn->gap_due != HDL_REASON_NONE ||
		                                  conn->ack_due || conn->alive_due)))
			ap_activate(conn);
		ap_set_timer(conn);
	}
	ap_flush(node);
	return count;
}

/* --- answers --- */

void ap_acked(struct ap_conn *conn, uint32_t number, bool again)
{
	uint32_t count = number - conn->una;
	if (!conn->out->sequenced || count > conn->sent - conn->una)
		return; /* late, or nonsense */
	conn->tries = 0;
	if (count > 0) {
		ap_forget(conn, number);
		if ((int32_t)(conn->cursor - number) < 0)
			conn->cursor = number;
		window_grow(&conn->window, conn->una, conn->sent, count);
		window_time_answered(&conn->window, conn->una, conn->node->now_ns);
	}
	if (again && conn->cursor != conn->una) {
		window_lost(&conn->window, conn->una, conn->sent);
		conn->window.timing = false;
		conn->cursor = conn->una;
		conn->since_ask = 0;
		timer_stop(&conn->node->wheel, &conn->timer); /* it is sent again: wait again */
	}
	ap_activate(conn);
}

void ap_sent_timeout(struct ap_conn *conn)
{
	/* Data to a process that has gone is dropped in silence; ALIVE is what its agent answers,
	 * if nothing else is in the frame. */
	struct ci_note alive = {.number = conn->next, .index = conn->own.index};
	if (window_overdue(&conn->window, AP_TIMEOUT_NS, conn->timer_ns)) {
		conn->tries++;
		ap_flush(conn->node);
		/* An end that closes takes no data: two of them would keep each other alive. */
		if (conn->state == HDL_APERTURE_OPEN)
			(void)ap_send_note(conn, CI_ALIVE, &alive);
		ap_flush(conn->node);
	}
	window_silent(&conn->window, conn->una);
	conn->window.timing = false;
	conn->cursor = conn->una;
	conn->since_ask = 0;
	ap_activate(conn);
}
