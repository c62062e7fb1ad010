/* The bodies of CI packets, and data that becomes one write; see ci.h. */
#include <string.h>

#include "wire/be.h"
#include "wire/ci.h"

/* enum hdl_aperture_type, enum hdl_aperture_check_bit and HDL_APERTURE_MIN_BITS and _MAX_BITS of
 * aperture.h, which this layer may not include; a unit test compares them. */
#define MIN_BITS  10u
#define MAX_BITS  30u
#define MAX_TYPE  1u
#define ALL_CHECK 0x3fu

enum ci_verdict ci_get_offer(const struct ci_packet *packet, struct ci_offer *offer)
{
	const uint8_t *at = packet->data;
	struct ci_offer got = {.index = be32_load(at),
	                       .nonce = be64_load(at + 4),
	                       .sequence = be32_load(at + 12),
	                       .bits = at[16],
	                       .type = at[17],
	                       .checks = at[18],
	                       .nonce_every = be32_load(at + 20),
	                       .nonce_step = be16_load(at + 24),
	                       .port = be16_load(at + 26),
	                       .first = be32_load(at + 28),
	                       .length = be32_load(at + 32)};
	if (got.type > MAX_TYPE || (got.checks & ~ALL_CHECK) != 0 || at[19] != 0)
		return CI_WRONG_BODY;
	if (got.bits != 0 && (got.bits < MIN_BITS || got.bits > MAX_BITS))
		return CI_WRONG_BODY;
	uint32_t size = got.bits != 0 ? 1u << got.bits : 0;
	if (got.first > size || got.length > size - got.first)
		return CI_WRONG_BODY;
	*offer = got;
	return CI_OK;
}

void ci_set_offer(const struct ci_offer *offer, uint8_t body[CI_OFFER_BYTES])
{
	be32_store(body, offer->index);
	be64_store(body + 4, offer->nonce);
	be32_store(body + 12, offer->sequence);
	body[16] = offer->bits;
	body[17] = offer->type;
	body[18] = offer->checks;
	body[19] = 0;
	be32_store(body + 20, offer->nonce_every);
	be16_store(body + 24, offer->nonce_step);
	be16_store(body + 26, offer->port);
	be32_store(body + 28, offer->first);
	be32_store(body + 32, offer->length);
}

enum ci_verdict ci_get_read(const struct ci_packet *packet, struct ci_read *read)
{
	read->token = be32_load(packet->data);
	if (packet->kind != CI_READ)
		return CI_OK;
	read->bytes = be32_load(packet->data + 4);
	return read->bytes > 0 && read->bytes <= CI_MAX_READ ? CI_OK : CI_WRONG_BODY;
}

void ci_set_read(const struct ci_read *read, uint8_t body[8])
{
	be32_store(body, read->token);
	be32_store(body + 4, read->bytes);
}

struct ci_note ci_get_note(const struct ci_packet *packet)
{
	const uint8_t *at = packet->data;
	switch (packet->kind) {
	case CI_REJECT:
		return (struct ci_note){.reason = be16_load(at)};
	case CI_CLOSE:
		return (struct ci_note){.number = be32_load(at), .reason = be16_load(at + 4)};
	case CI_ERROR:
		return (struct ci_note){.reason = be16_load(at),
		                        .element = be16_load(at + 2),
		                        .number = be32_load(at + 4)};
	case CI_ALIVE:
		return (struct ci_note){.number = be32_load(at), .index = be32_load(at + 4)};
	default:
		return (struct ci_note){.number = be32_load(at)};
	}
}

uint64_t ci_get_ticket(const struct ci_packet *packet)
{
	return packet->bytes == CI_TICKET_BYTES ? be64_load(packet->data + 4) : 0;
}

void ci_set_ticket(uint64_t ticket, uint8_t body[CI_TICKET_BYTES])
{
	be16_store(body, CI_REASON_TICKET);
	be16_store(body + 2, 0);
	be64_store(body + 4, ticket);
}

uint32_t ci_set_note(uint8_t kind, const struct ci_note *note, uint8_t body[8])
{
	switch (kind) {
	case CI_REJECT:
		be16_store(body, note->reason);
		be16_store(body + 2, 0);
		return 4;
	case CI_CLOSE:
		be32_store(body, note->number);
		be16_store(body + 4, note->reason);
		be16_store(body + 6, 0);
		return 8;
	case CI_ERROR:
		be16_store(body, note->reason);
		be16_store(body + 2, note->element);
		be32_store(body + 4, note->number);
		return 8;
	case CI_ALIVE:
		be32_store(body, note->number);
		be32_store(body + 4, note->index);
		return 8;
	default:
		be32_store(body, note->number);
		return 4;
	}
}

struct ci_status ci_get_status(const struct ci_packet *packet)
{
	const uint8_t *at = packet->data;
	struct ci_status status = {0};
	if (packet->kind == CI_STATUS) {
		status.index = be32_load(at);
		status.nonce = be64_load(at + 4);
		status.token = be32_load(at + 12);
		return status;
	}
	status.token = be32_load(at);
	for (uint32_t i = 0; i < CI_STATUSES; i++)
		status.values[i] = be32_load(at + CI_TOKEN_BYTES + 4 * (size_t)i);
	return status;
}

uint32_t ci_set_status(uint8_t kind, const struct ci_status *status,
                       uint8_t body[CI_STATUSACK_BYTES])
{
	if (kind == CI_STATUS) {
		be32_store(body, status->index);
		be64_store(body + 4, status->nonce);
		be32_store(body + 12, status->token);
		return CI_STATUS_BYTES;
	}
	be32_store(body, status->token);
	for (uint32_t i = 0; i < CI_STATUSES; i++)
		be32_store(body + CI_TOKEN_BYTES + 4 * (size_t)i, status->values[i]);
	return CI_STATUSACK_BYTES;
}

bool ci_join(struct ci_burst *burst, const struct ci_packet *packet)
{
	if (burst->count == 0) {
		burst->index = packet->index;
		burst->offset = packet->offset;
		burst->bytes = 0;
	} else if (burst->count == CI_MAX_PIECES || packet->index != burst->index ||
	           (uint64_t)burst->offset + burst->bytes != packet->offset ||
	           packet->bytes > UINT32_MAX - burst->bytes) {
		return false;
	}
	burst->pieces[burst->count].data = packet->data;
	burst->pieces[burst->count].bytes = packet->bytes;
	burst->count++;
	burst->bytes += packet->bytes;
	return true;
}

void ci_written(struct ci_burst *burst, uint32_t bytes)
{
	uint32_t done = 0;
	burst->offset += bytes;
	burst->bytes -= bytes;
	while (done < burst->count && bytes >= burst->pieces[done].bytes)
		bytes -= burst->pieces[done++].bytes;
	burst->count -= done;
	memmove(burst->pieces, burst->pieces + done, burst->count * sizeof(burst->pieces[0]));
	if (burst->count > 0 && bytes > 0) {
		burst->pieces[0].data += bytes;
		burst->pieces[0].bytes -= bytes;
	}
}
