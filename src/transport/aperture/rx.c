/* Apertures: packets that come in. Each is judged by its row (memory/incoming.h); data that follows
 * other data becomes one write with it; a write that stalls goes on in the next turn. See ap.h. */
#include <string.h>

#include "transport/aperture/ap.h"

static const uint8_t ap_verdict_counters[INCOMING_VERDICT_COUNT] = {
        [INCOMING_NO_ENTRY] = HDL_APERTURE_COUNTER_NO_ENTRY,
        [INCOMING_NOT_VALID] = HDL_APERTURE_COUNTER_NOT_VALID,
        [INCOMING_NONCE] = HDL_APERTURE_COUNTER_BAD_NONCE,
        [INCOMING_LINK] = HDL_APERTURE_COUNTER_BAD_LINK,
        [INCOMING_SOURCE] = HDL_APERTURE_COUNTER_BAD_SOURCE,
        [INCOMING_DUPLICATE] = HDL_APERTURE_COUNTER_DUPLICATES,
        [INCOMING_GAP] = HDL_APERTURE_COUNTER_BAD_SEQUENCE,
        [INCOMING_UNNUMBERED] = HDL_APERTURE_COUNTER_BAD_SEQUENCE,
        [INCOMING_EXTENT] = HDL_APERTURE_COUNTER_BAD_EXTENT,
        [INCOMING_ACCESS] = HDL_APERTURE_COUNTER_BAD_ACCESS,
        [INCOMING_MEMORY] = HDL_APERTURE_COUNTER_BAD_ACCESS,
};

static const uint8_t ap_codec_counters[CI_VERDICT_COUNT] = {
        [CI_TOO_SHORT] = HDL_APERTURE_COUNTER_BAD_FRAMES,
        [CI_WRONG_KIND] = HDL_APERTURE_COUNTER_BAD_FRAMES,
        [CI_WRONG_FLAGS] = HDL_APERTURE_COUNTER_BAD_FRAMES,
        [CI_WRONG_LENGTH] = HDL_APERTURE_COUNTER_BAD_FRAMES,
        [CI_WRONG_CHECKSUM] = HDL_APERTURE_COUNTER_BAD_CHECKSUM,
        [CI_WRONG_CRC] = HDL_APERTURE_COUNTER_BAD_CRC,
};

/* --- writing --- */

/* An access that was refused, or memory that has gone: the sender learns it. */
static void ap_refuse(struct ap_conn *conn, enum incoming_verdict verdict)
{
	struct ci_note note = {.reason = verdict == INCOMING_EXTENT   ? HDL_REASON_EXTENT
	                                 : verdict == INCOMING_ACCESS ? HDL_REASON_ACCESS
	                                                              : HDL_REASON_MEMORY,
	                       .element = CI_RECEIVER,
	                       .number = conn->in->expected};
	ap_count(conn->node, ap_verdict_counters[verdict], 1);
	if (conn->state == HDL_APERTURE_OPEN) {
		(void)ap_send_note(conn, CI_ERROR, &note);
		ap_activate(conn);
	}
}

/* Copy @bytes between @own and the memory of @conn at @offset, which has been checked. */
static bool ap_copy(const struct ap_conn *conn, bool write, uint64_t offset, const uint8_t *own,
                    uint64_t bytes)
{
	const struct ap_node *node = conn->node;
	while (bytes > 0) {
		struct tpt_grant grant;
		uint64_t length = bytes, covered;
		struct span at, buffer = {(uint64_t)(uintptr_t)own, 0};
		uint8_t access = write ? HDL_ACCESS_REMOTE_WRITE : HDL_ACCESS_REMOTE_READ;
		if (incoming_extent(&node->tpt->view, conn->in, node->pd, access, offset, &length,
		                    &grant) != INCOMING_OK ||
		    tpt_spans(&node->tpt->view, &grant, 0, length, &at, 1, &covered) != 1)
			return false;
		buffer.length = at.length = covered;
		const struct copy_ops *ops = &node->own->ops;
		if (ops->copy(ops->context, MOVE_BOTH_OWN, write ? &at : &buffer, 1,
		              write ? &buffer : &at, 1) != MOVE_OK)
			return false;
		offset += covered;
		own += covered;
		bytes -= covered;
	}
	return true;
}

/* Write what has been joined, as much as the turn allows. False: it stalls. */
static bool ap_write(struct ap_node *node)
{
	struct ci_burst *burst = &node->burst;
	bool some = burst->count > 0;
	if (some)
		ap_count(node, HDL_APERTURE_COUNTER_WRITES, 1);
	while (burst->count > 0) {
		uint32_t bytes = burst->pieces[0].bytes;
		if (node->write_budget != 0 && node->write_left == 0) {
			ap_count(node, HDL_APERTURE_COUNTER_STALLS, 1);
			return false;
		}
		if (node->write_budget != 0 && bytes > node->write_left)
			bytes = node->write_left;
		if (!ap_copy(node->burst_conn, true, burst->offset, burst->pieces[0].data, bytes)) {
			ap_refuse(node->burst_conn, INCOMING_MEMORY);
			burst->count = burst->bytes = 0;
			return true;
		}
		node->write_left -= node->write_budget != 0 ? bytes : 0;
		ap_count(node, HDL_APERTURE_COUNTER_BYTES_IN, bytes);
		ci_written(burst, bytes); /* goes on at base + offset + bytes */
	}
	if (some && node->sink->placed != NULL)
		node->sink->placed(node->context, node->burst_conn);
	return true;
}

void ap_drop_burst(struct ap_conn *conn)
{
	if (conn->node->burst_conn == conn)
		conn->node->burst.count = conn->node->burst.bytes = 0;
}

/* --- one packet --- */

enum ap_taken {
	AP_TAKEN,
	AP_KEPT_BACK, /* not now: its number is not accepted */
	AP_STALLED    /* the write before it stalls; it has not been looked at */
};

static enum incoming_verdict ap_check_extent(const struct ap_conn *conn, uint8_t access,
                                             const struct ci_packet *packet, uint64_t length)
{
	struct tpt_grant grant;
	uint64_t part = length;
	return incoming_extent(&conn->node->tpt->view, conn->in, conn->node->pd, access,
	                       packet->offset, &part, &grant);
}

static enum ap_taken ap_take_data(struct ap_conn *conn, const struct ci_packet *packet)
{
	struct ap_node *node = conn->node;
	enum incoming_verdict verdict =
	        ap_check_extent(conn, HDL_ACCESS_REMOTE_WRITE, packet, packet->bytes);
	if (verdict != INCOMING_OK) {
		ap_refuse(conn, verdict);
		return AP_TAKEN; /* it counts, or the connection would stand still */
	}
	if (node->burst_conn == conn && ci_join(&node->burst, packet))
		return AP_TAKEN;
	if (!ap_write(node))
		return AP_STALLED;
	node->burst_conn = conn;
	(void)ci_join(&node->burst, packet); /* into an empty one */
	return AP_TAKEN;
}

static enum ap_taken ap_take_event(struct ap_conn *conn, const struct ci_packet *packet)
{
	struct ap_node *node = conn->node;
	struct ap_event event = {.kind = CI_EVENT,
	                         .index = conn->own.index,
	                         .offset = packet->offset,
	                         .bytes = packet->bytes,
	                         .conn = conn};
	/* An ordering point: what came before is in place. */
	if (!ap_write(node))
		return AP_STALLED;
	memcpy(event.data, packet->data, packet->bytes);
	memcpy(event.source, conn->path.host, 16);
	enum ap_delivered result = conn->port != NULL
	                                   ? node->sink->event(node->context, conn->port, &event)
	                                   : AP_NO_QUEUE;
	if (result == AP_FULL) {
		ap_count(node, HDL_APERTURE_COUNTER_STALLS, 1);
		return AP_KEPT_BACK;
	}
	if (result == AP_PLACED) {
		ap_count(node, HDL_APERTURE_COUNTER_EVENTS_IN, 1);
	} else if (conn->state == HDL_APERTURE_OPEN) {
		struct ci_note note = {.reason = HDL_REASON_NO_PORT,
		                       .element = CI_RECEIVER,
		                       .number = conn->in->expected};
		(void)ap_send_note(conn, CI_ERROR, &note);
		ap_activate(conn);
	}
	return AP_TAKEN;
}

static enum ap_taken ap_take_read(struct ap_conn *conn, const struct ci_packet *packet)
{
	struct ap_node *node = conn->node;
	uint8_t body[CI_MAX_DATA];
	struct ci_read read;
	if (ci_get_read(packet, &read) != CI_OK) {
		ap_count(node, HDL_APERTURE_COUNTER_BAD_FRAMES, 1);
		return AP_TAKEN;
	}
	if (!ap_write(node))
		return AP_STALLED;
	enum incoming_verdict verdict =
	        ap_check_extent(conn, HDL_ACCESS_REMOTE_READ, packet, read.bytes);
	if (verdict != INCOMING_OK) {
		ap_refuse(conn, verdict);
		return AP_TAKEN;
	}
	/* All responses or none: each has the token in front. */
	uint32_t piece = ap_piece(conn) - CI_TOKEN_BYTES, next = conn->next, head = conn->head;
	for (uint32_t done = 0; done < read.bytes;) {
		uint32_t count = read.bytes - done < piece ? read.bytes - done : piece;
		memcpy(body, packet->data, CI_TOKEN_BYTES);
		if (!ap_copy(conn, false, (uint64_t)packet->offset + done, body + CI_TOKEN_BYTES,
		             count)) {
			ap_refuse(conn, INCOMING_MEMORY);
			break;
		}
		if (!ap_put(conn, CI_RESPONSE, (uint64_t)packet->offset + done, body,
		            CI_TOKEN_BYTES + count)) {
			conn->next = conn->out->sequence = conn->in->next = next;
			conn->head = head;
			return AP_KEPT_BACK;
		}
		done += count;
	}
	ap_count(node, HDL_APERTURE_COUNTER_READS_SERVED, 1);
	return AP_TAKEN;
}

static void ap_take_response(struct ap_conn *conn, const struct ci_packet *packet)
{
	struct ci_read read;
	(void)ci_get_read(packet, &read);
	conn->node->sink->response(conn->node->context, conn, read.token, packet->offset,
	                           packet->data + CI_TOKEN_BYTES, packet->bytes - CI_TOKEN_BYTES);
}

static enum ap_taken ap_take_accepted(struct ap_conn *conn, const struct ci_packet *packet)
{
	switch (packet->kind) {
	case CI_DATA:
		/* A store to an aperture for events is an event, whatever the packet says. */
		if (conn->own.type == HDL_APERTURE_DATA)
			return ap_take_data(conn, packet);
		if (packet->bytes <= CI_EVENT_BYTES)
			return ap_take_event(conn, packet);
		ap_refuse(conn, INCOMING_ACCESS);
		return AP_TAKEN;
	case CI_EVENT:
		return ap_take_event(conn, packet);
	case CI_READ:
		return ap_take_read(conn, packet);
	default:
		ap_take_response(conn, packet);
		return AP_TAKEN;
	}
}

/* An agent found no process behind the index that we sent ALIVE to. It does not know our nonce, but
 * repeats the one of ALIVE, which only the two ends and the carrier have seen. */
static bool ap_is_from_agent(const struct ap_conn *conn, const struct ci_packet *packet,
                             const struct ap_path *from)
{
	return packet->kind == CI_ERROR && ci_get_note(packet).element == CI_AGENT &&
	       conn->state >= HDL_APERTURE_CONNECTING && packet->nonce == conn->out->nonce.first &&
	       memcmp(from->host, conn->path.host, 16) == 0;
}

static enum incoming_verdict ap_judge(const struct ap_conn *conn, const struct ci_packet *packet,
                                      const struct ap_path *from)
{
	struct incoming_request req = {.nonce = packet->nonce,
	                               .sequence = packet->sequence,
	                               .sequenced = (packet->flags & CI_SEQUENCED) != 0,
	                               .control = packet->kind >= CI_CONNECT,
	                               .source.has_link = from->has_link};
	if (conn == NULL)
		return INCOMING_NO_ENTRY;
	memcpy(req.source.host, from->host, 16);
	/* Data does not say it; its host said it when it connected. */
	if ((conn->in->checks & HDL_CHECK_CLUSTER) != 0)
		req.source.cluster = from->cluster_known || !conn->in->connected ||
		                                     memcmp(conn->path.host, from->host, 16) != 0
		                             ? from->cluster
		                             : conn->path.cluster;
	memcpy(req.source.link, from->link, sizeof(req.source.link));
	enum incoming_verdict verdict = incoming_judge(conn->in, conn->user, &conn->roll, &req);
	if (verdict == INCOMING_NONCE && ap_is_from_agent(conn, packet, from))
		return INCOMING_OK;
	/* A program that is not trusted has no destinations but those of its connections, however
	 * few checks an entry makes. */
	if (from->managed && packet->kind < CI_CONNECT && verdict != INCOMING_LINK &&
	    (!conn->in->connected || !ap_same_path(&conn->path, from) ||
	     memcmp(conn->path.host, from->host, sizeof(from->host)) != 0))
		return INCOMING_SOURCE;
	/* The peer, and no other process of its host. */
	if (verdict != INCOMING_NO_ENTRY && verdict != INCOMING_NOT_VALID &&
	    verdict != INCOMING_NONCE && (conn->in->checks & HDL_CHECK_SOURCE) != 0 &&
	    !conn->own_source && conn->in->connected && !ap_same_path(&conn->path, from))
		return INCOMING_SOURCE;
	return verdict;
}

/* Where an end is not trusted, what sets up or ends connections comes through the agent, and no
 * data does. ALIVEACK comes both ways. */
static bool ap_came_its_way(const struct ci_packet *packet, const struct ap_path *from)
{
	if (!from->managed)
		return !from->by_agent;
	return from->by_agent ? packet->kind >= CI_CONNECT : !ci_is_out_of_band(packet);
}

/* While data is unanswered, only its answers are signs of life: an end that is closing takes no
 * more data, and still sends ALIVE and answers to ours; and what the peer sends may arrive where
 * what we send does not. One that keeps data back answers the data. */
static bool ap_is_beside_data(const struct ap_conn *conn, const struct ci_packet *packet)
{
	if (!ap_unanswered(conn))
		return false;
	if (packet->kind == CI_ALIVEACK)
		return (packet->flags & CI_ASK) != 0 && ci_get_note(packet).number == conn->una;
	return packet->kind < CI_CONNECT || packet->kind == CI_ALIVE;
}

/* The connection that @packet is addressed to; NULL: none. */
static struct ap_conn *ap_addressed(const struct ap_node *node, const struct ci_packet *packet)
{
	uint32_t row = ci_row(packet->index);
	bool ours = ci_slot(packet->index) == node->slot && row < node->row_count;
	return ours ? node->conns[row] : NULL;
}

static enum ap_taken ap_take_packet(struct ap_node *node, const struct ci_packet *packet,
                                    const struct ap_path *from)
{
	if (!ap_came_its_way(packet, from)) {
		ap_count(node, HDL_APERTURE_COUNTER_WRONG_WAY, 1);
		return AP_TAKEN;
	}
	if (packet->kind == CI_CONNECT || packet->kind == CI_STATUS) {
		ap_hear_port(node, packet, from);
		return AP_TAKEN;
	}
	struct ap_conn *conn = ap_addressed(node, packet);
	enum incoming_verdict verdict = ap_judge(conn, packet, from);
	bool known =
	        verdict == INCOMING_OK || verdict == INCOMING_DUPLICATE || verdict == INCOMING_GAP;
	if (verdict != INCOMING_OK)
		ap_count(node, ap_verdict_counters[verdict], 1);
	if (!known)
		return AP_TAKEN; /* silence */
	if (!ap_is_beside_data(conn, packet)) {
		conn->heard_ns = node->now_ns;
		conn->awaiting = false;
	}
	conn->unsent = false;
	if (packet->kind >= CI_CONNECT) {
		if (packet->kind == CI_CLOSE && !ap_write(node))
			return AP_STALLED;
		ap_hear_control(conn, packet, from);
		return AP_TAKEN;
	}
	enum ap_taken taken = AP_TAKEN;
	if (verdict == INCOMING_OK) {
		taken = ap_take_accepted(conn, packet);
		if (taken == AP_STALLED)
			return taken;
		conn->held = taken == AP_KEPT_BACK;
		if (taken == AP_TAKEN) {
			conn->gap_told = false;
			if ((conn->in->checks & HDL_CHECK_SEQUENCE) != 0)
				incoming_accept(conn->in, &conn->roll);
		}
	} else if (verdict == INCOMING_GAP && !conn->gap_told && !conn->held) {
		conn->gap_due = HDL_REASON_SEQUENCE;
		ap_activate(conn);
	}
	if ((packet->flags & CI_ASK) != 0) {
		conn->ack_due = true;
		ap_activate(conn);
	}
	return taken;
}

/* The carrier has damaged data: @packet is its header. The sender learns it at once if it is the
 * peer, and once until the next packet is accepted; nobody else gets an answer. It is no sign of
 * life, and nothing else follows from it. Out-of-band packets are repeated by the end that waits
 * for an answer; an ERROR for an ERROR would never end. */
static void ap_take_damaged(struct ap_node *node, const struct ci_packet *packet,
                            const struct ap_path *from)
{
	struct ap_conn *conn = ap_addressed(node, packet);
	if (packet->kind >= CI_CONNECT || !ap_came_its_way(packet, from))
		return;
	enum incoming_verdict verdict = ap_judge(conn, packet, from);
	if ((verdict != INCOMING_OK && verdict != INCOMING_GAP) ||
	    conn->state != HDL_APERTURE_OPEN || !ap_same_path(&conn->path, from) ||
	    memcmp(conn->path.host, from->host, 16) != 0)
		return;
	if (conn->gap_due != HDL_REASON_NONE || conn->gap_told || conn->held)
		return;
	conn->gap_due = HDL_REASON_DAMAGED;
	ap_activate(conn);
}

/* --- frames --- */

static bool ap_is_elsewhere(const struct ap_node *node, const struct ci_packet *packet)
{
	return packet->cluster != 0 && node->lid != 0 &&
	       packet->cluster >> node->lid_bits != node->lid >> node->lid_bits;
}

/* Packets out of node->reader until its frame ends or a write stalls. */
static void ap_take_packets(struct ap_node *node)
{
	struct ci_packet packet;
	for (;;) {
		struct ci_reader before = node->reader;
		enum ci_verdict verdict = ci_next(&node->reader, &packet);
		if (verdict != CI_OK) {
			if (verdict != CI_END)
				ap_count(node, ap_codec_counters[verdict], 1);
			if (verdict == CI_WRONG_CRC && !ap_is_elsewhere(node, &packet))
				ap_take_damaged(node, &packet, &node->from);
			/* If the write stalls, this is not looked at again. */
			node->reader.at = node->reader.bytes;
			break;
		}
		ap_count(node, HDL_APERTURE_COUNTER_PACKETS_IN, 1);
		if (ap_is_elsewhere(node, &packet)) {
			ap_count(node, HDL_APERTURE_COUNTER_WRONG_CLUSTER, 1);
			continue;
		}
		if (ap_take_packet(node, &packet, &node->from) == AP_STALLED) {
			node->counters[HDL_APERTURE_COUNTER_PACKETS_IN]--;
			node->reader = before;
			node->stalled = true;
			return;
		}
	}
	node->stalled = !ap_write(node);
}

void ap_take(struct ap_node *node, const uint8_t *frame, size_t bytes, const struct ap_path *from)
{
	ap_count(node, HDL_APERTURE_COUNTER_FRAMES_IN, 1);
	if (bytes > CI_MAX_FRAME) {
		ap_count(node, HDL_APERTURE_COUNTER_BAD_FRAMES, 1);
		return;
	}
	ci_open(&node->reader, frame, bytes);
	node->from = *from;
	ap_take_packets(node);
	if (!node->stalled)
		return;
	/* The carrier's memory is not ours to keep. */
	memcpy(node->held, frame, bytes);
	for (uint32_t i = 0; i < node->burst.count; i++)
		node->burst.pieces[i].data = node->held + (node->burst.pieces[i].data - frame);
	node->reader.in = node->held;
}

void ap_turn(struct ap_node *node)
{
	node->write_left = node->write_budget;
	if (!node->stalled || !ap_write(node))
		return;
	node->stalled = false;
	ap_take_packets(node);
}
