/* The checker of 'apertures': a model of both memories. For each entry of an incoming table, by its
 * nonce, there is a log of every packet that its peer has put for it. After every step the memory
 * behind the entry must be what the packets make of it whose numbers were accepted, byte for byte;
 * without numbers, every byte must be zero or one that was put there. A packet of an earlier
 * connection, of another host or of nobody would show at once. */
#include "apertures.h"

#include <string.h>

static struct apertures_log *apertures_log(struct apertures_world *world, uint64_t nonce,
                                           uint32_t host)
{
	for (uint32_t i = 0; i < world->log_count; i++)
		if (world->logs[i].nonce == nonce && world->logs[i].host == host)
			return &world->logs[i];
	return NULL;
}

void apertures_check_begin(struct apertures_end *end)
{
	memset(end->memory, 0, sizeof(end->memory));
	memset(end->model, 0, sizeof(end->model));
	for (uint32_t i = 0; i < APERTURES_SIZE; i++) {
		memset(end->possible[i], 0, sizeof(end->possible[i]));
		end->possible[i][0] = 1;
	}
	end->in_nonce = end->conn.own.nonce;
	end->out = NULL;
	end->token = 0;
}

void apertures_check_opened(struct apertures_end *end)
{
	struct apertures_world *world = end->host->world;
	struct apertures_log *log = &world->logs[world->log_count];
	if (world->log_count == APERTURES_LOGS)
		return;
	world->log_count++;
	*log = (struct apertures_log){.nonce = end->conn.peer.nonce,
	                              .host = end->conn.path.route - 1,
	                              .first = end->conn.next};
	end->out = log;
	world->opened++;
}

void apertures_check_put(struct apertures_end *end, uint8_t kind, uint32_t offset,
                         const uint8_t *data, uint32_t bytes, uint32_t piece)
{
	struct apertures_world *world = end->host->world;
	struct apertures_log *log = end->out;
	uint32_t done = 0;
	do {
		uint32_t count = kind == CI_DATA && bytes - done > piece ? piece : bytes - done;
		if (world->packet_count == APERTURES_PACKETS ||
		    world->byte_count + count > APERTURES_BYTES) {
			scenario_fail(world->run, "the log is full");
			return;
		}
		struct apertures_packet *packet = &world->packets[world->packet_count++];
		*packet = (struct apertures_packet){.kind = kind,
		                                    .offset = offset + (kind == CI_DATA ? done : 0),
		                                    .bytes = count,
		                                    .at = world->byte_count};
		if (count > 0)
			memcpy(world->bytes + world->byte_count, data + done, count);
		world->byte_count += count;
		if (log->tail != 0)
			world->packets[log->tail - 1].next = world->packet_count;
		else
			log->head = world->packet_count;
		log->tail = world->packet_count;
		log->count++;
		done += count;
	} while (done < bytes);
}

void apertures_check_learn(struct apertures_host *host)
{
	for (uint32_t i = 0; i < APERTURES_ENDS; i++) {
		struct apertures_end *end = &host->ends[i];
		while (end->out != NULL && !host->world->run->failed &&
		       (int32_t)(end->conn.next - end->out->first - end->out->count) > 0)
			apertures_check_put(end, CI_RESPONSE, 0, NULL, 0, 0);
	}
}

static void apertures_apply(const struct apertures_world *world,
                            const struct apertures_packet *packet, uint8_t model[APERTURES_SIZE])
{
	if (packet->kind == CI_DATA && packet->offset < APERTURES_SIZE &&
	    packet->bytes <= APERTURES_SIZE - packet->offset)
		memcpy(model + packet->offset, world->bytes + packet->at, packet->bytes);
}

void apertures_check_model(const struct apertures_end *end, uint8_t model[APERTURES_SIZE])
{
	const struct apertures_world *world = end->host->world;
	memset(model, 0, APERTURES_SIZE);
	for (uint32_t i = end->out->head; i != 0; i = world->packets[i - 1].next)
		apertures_apply(world, &world->packets[i - 1], model);
}

/* With numbers: exactly what was accepted. */
static void apertures_check_numbered(struct apertures_end *end, struct apertures_log *log)
{
	struct apertures_world *world = end->host->world;
	uint32_t accepted = end->conn.in->expected - end->conn.own.sequence;
	while (log->applied_count < accepted) {
		uint32_t next =
		        log->applied != 0 ? world->packets[log->applied - 1].next : log->head;
		if (next == 0) {
			scenario_fail(world->run, "host %u accepted %u packets, %u were put",
			              end->host->number, accepted, log->applied_count);
			return;
		}
		log->applied = next;
		log->applied_count++;
		apertures_apply(world, &world->packets[next - 1], end->model);
	}
}

static void apertures_check_unnumbered(struct apertures_end *end, struct apertures_log *log)
{
	const struct apertures_world *world = end->host->world;
	for (;;) {
		uint32_t next =
		        log->applied != 0 ? world->packets[log->applied - 1].next : log->head;
		if (next == 0)
			break;
		const struct apertures_packet *packet = &world->packets[next - 1];
		log->applied = next;
		for (uint32_t i = 0; packet->kind == CI_DATA && i < packet->bytes; i++) {
			uint8_t value = world->bytes[packet->at + i];
			end->possible[packet->offset + i][value / 8] |= (uint8_t)(1u << value % 8);
		}
	}
	uint64_t writes = end->host->node.counters[HDL_APERTURE_COUNTER_WRITES];
	if (end->looked == writes)
		return; /* nothing was written anywhere */
	end->looked = writes;
	for (uint32_t i = 0; i < APERTURES_SIZE; i++) {
		uint8_t value = end->memory[i];
		if (!(end->possible[i][value / 8] >> value % 8 & 1)) {
			scenario_fail(world->run, "host %u, byte %u: nobody stored %u",
			              end->host->number, i, value);
			return;
		}
	}
}

void apertures_check_memory(struct apertures_host *host)
{
	struct apertures_world *world = host->world;
	for (uint32_t i = 0; i < APERTURES_ENDS && !world->run->failed; i++) {
		struct apertures_end *end = &host->ends[i];
		struct apertures_log *log = apertures_log(world, end->in_nonce, host->number);
		bool numbered = (end->conn.in->checks & HDL_CHECK_SEQUENCE) != 0;
		if (log != NULL && !numbered) {
			apertures_check_unnumbered(end, log);
			continue;
		}
		/* A stalled write is half done. */
		if (host->node.stalled && host->node.burst_conn == &end->conn)
			continue;
		/* Dropped with the connection, half done or not at all: nothing to compare. */
		if (log != NULL && end->conn.in->connected)
			apertures_check_numbered(end, log);
		else if (log != NULL)
			memcpy(end->model, end->memory, APERTURES_SIZE), end->in_nonce = 0;
		uint32_t at = 0;
		if (memcmp(end->memory, end->model, APERTURES_SIZE) == 0)
			continue;
		while (at < APERTURES_SIZE && end->memory[at] == end->model[at])
			at++;
		scenario_fail(world->run,
		              "host %u, end %u, state %u: byte %u is %u, not %u; number %u, "
		              "%u applied",
		              host->number, i, end->conn.state, at, end->memory[at], end->model[at],
		              end->conn.in->expected - end->conn.own.sequence,
		              log != NULL ? log->applied_count : 0);
	}
}

void apertures_check_sent(struct apertures_host *host, size_t bytes)
{
	struct apertures_world *world = host->world;
	struct ci_reader reader;
	struct ci_packet packet;
	ci_open(&reader, host->out, bytes);
	while (ci_next(&reader, &packet) == CI_OK) {
		if (packet.kind != CI_ALIVE && packet.kind != CI_ERROR)
			continue;
		struct ci_note note = ci_get_note(&packet);
		if (packet.kind == CI_ALIVE)
			((struct apertures_end *)host->conns[ci_row(note.index)]->owner)
			        ->questions++;
		else if (note.element >= CI_ELEMENT_COUNT)
			scenario_fail(world->run, "an ERROR of element %u was sent", note.element);
		else
			world->errors[note.element]++;
	}
}

void apertures_check_answer(struct apertures_end *end)
{
	if (++end->answers > end->questions)
		scenario_fail(end->host->world->run, "host %u has more ALIVEACKs than ALIVEs",
		              end->host->number);
}

/* Connections that are open at both ends have nothing left; one whose peer is gone knows it. */
void apertures_check_end(struct apertures_world *world)
{
	for (uint32_t h = 0; h < world->host_count && !world->run->failed; h++) {
		struct apertures_host *host = &world->hosts[h];
		if (host->dead)
			continue;
		apertures_check_memory(host);
		for (uint32_t i = 0; i < APERTURES_ENDS; i++) {
			const struct ap_conn *conn = &host->ends[i].conn;
			if (conn->state == HDL_APERTURE_CONNECTING ||
			    conn->state == HDL_APERTURE_CLOSING)
				scenario_fail(world->run, "host %u: state %u for ever", h,
				              conn->state);
			if (conn->state != HDL_APERTURE_OPEN)
				continue;
			if (!ap_all_acked(conn))
				scenario_fail(world->run, "host %u: %u packets never arrive", h,
				              conn->next - conn->una);
			if (world->hosts[conn->path.route - 1].dead)
				scenario_fail(world->run, "host %u: open to a dead host", h);
		}
	}
}
