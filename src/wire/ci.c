/* CI packets in frames; see ci.h. */
#include "wire/ci.h"

#include <assert.h>
#include <string.h>

#include "base/crc.h"
#include "wire/be.h"

#define AT_LENGTH   20u
#define AT_CHECKSUM 22u

/* How long the data of each kind is. */
static const struct {
	uint32_t least, most;
} ci_lengths[CI_KIND_COUNT] = {
        [CI_DATA] = {1, CI_MAX_DATA},
        [CI_EVENT] = {0, CI_EVENT_BYTES},
        [CI_READ] = {8, 8},
        [CI_RESPONSE] = {CI_TOKEN_BYTES + 1, CI_MAX_DATA},
        [CI_CONNECT] = {CI_OFFER_BYTES, CI_OFFER_BYTES},
        [CI_ACCEPT] = {CI_OFFER_BYTES, CI_OFFER_BYTES},
        [CI_REJECT] = {4, CI_TICKET_BYTES},
        [CI_CLOSE] = {8, 8},
        [CI_ALIVE] = {8, 8},
        [CI_ALIVEACK] = {4, 4},
        [CI_ERROR] = {8, 8},
        [CI_STATUS] = {CI_STATUS_BYTES, CI_STATUS_BYTES},
        [CI_STATUSACK] = {CI_STATUSACK_BYTES, CI_STATUSACK_BYTES},
};

static bool ci_length_fits(uint8_t kind, uint32_t bytes)
{
	if (kind == CI_REJECT && bytes != 4 && bytes != CI_TICKET_BYTES)
		return false;
	return kind != 0 && kind < CI_KIND_COUNT && bytes >= ci_lengths[kind].least &&
	       bytes <= ci_lengths[kind].most;
}

/* RFC 1071 over an even number of bytes. */
static uint16_t ci_checksum(const uint8_t *at, size_t bytes)
{
	uint32_t sum = 0;
	for (size_t i = 0; i < bytes; i += 2)
		sum += be16_load(at + i);
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* The header with every field in its place, its checksum included. Returns its length. */
static size_t ci_full_header(const struct ci_packet *packet, uint8_t header[28])
{
	size_t bytes = CI_HEADER_BYTES;
	header[0] = packet->kind;
	header[1] = packet->flags;
	be16_store(header + 2, packet->cluster);
	be32_store(header + 4, packet->index);
	be64_store(header + 8, packet->nonce);
	be32_store(header + 16, packet->offset);
	be16_store(header + AT_LENGTH, (uint16_t)packet->bytes);
	be16_store(header + AT_CHECKSUM, 0);
	if ((packet->flags & CI_SEQUENCED) != 0) {
		be32_store(header + CI_HEADER_BYTES, packet->sequence);
		bytes += CI_NUMBER_BYTES;
	}
	be16_store(header + AT_CHECKSUM, ci_checksum(header, bytes));
	return bytes;
}

/* Where the data of @last ended, if that is what a packet may repeat. */
static uint32_t ci_end_of(const struct ci_packet *last)
{
	return last->offset + last->bytes;
}

static uint8_t ci_packing(const struct ci_packet *last, const struct ci_packet *packet)
{
	uint8_t flags = 0;
	if (last->kind == 0)
		return 0;
	if (packet->cluster == last->cluster && packet->index == last->index &&
	    packet->nonce == last->nonce)
		flags |= CI_SAME;
	if (packet->offset == ci_end_of(last))
		flags |= CI_NEXT;
	if ((packet->flags & last->flags & CI_SEQUENCED) != 0 &&
	    packet->sequence == last->sequence + 1)
		flags |= CI_COUNT;
	return flags;
}

static size_t ci_packed_header(uint8_t flags)
{
	return 2u + ((flags & CI_SAME) != 0 ? 0u : 14u) + ((flags & CI_NEXT) != 0 ? 0u : 4u) + 4u +
	       ((flags & CI_SEQUENCED) != 0 && (flags & CI_COUNT) == 0 ? CI_NUMBER_BYTES : 0u);
}

void ci_begin(struct ci_writer *writer, uint8_t *out, size_t capacity)
{
	*writer = (struct ci_writer){.out = out, .capacity = capacity};
}

size_t ci_bytes(const struct ci_writer *writer, const struct ci_packet *packet)
{
	uint8_t flags = packet->flags | ci_packing(&writer->last, packet);
	return ci_packed_header(flags) + packet->bytes + CI_CRC_BYTES;
}

bool ci_put(struct ci_writer *writer, const struct ci_packet *packet)
{
	assert((packet->flags & ~(CI_SEQUENCED | CI_ASK)) == 0);
	if (!ci_length_fits(packet->kind, packet->bytes) ||
	    ci_bytes(writer, packet) > writer->capacity - writer->used)
		return false;
	uint8_t packing = ci_packing(&writer->last, packet), full[28];
	size_t full_bytes = ci_full_header(packet, full);
	uint8_t *at = writer->out + writer->used;
	*at++ = packet->kind;
	*at++ = packet->flags | packing;
	if ((packing & CI_SAME) == 0) {
		memcpy(at, full + 2, 14);
		at += 14;
	}
	if ((packing & CI_NEXT) == 0) {
		memcpy(at, full + 16, 4);
		at += 4;
	}
	memcpy(at, full + AT_LENGTH, 4);
	at += 4;
	if (full_bytes > CI_HEADER_BYTES && (packing & CI_COUNT) == 0) {
		memcpy(at, full + CI_HEADER_BYTES, CI_NUMBER_BYTES);
		at += CI_NUMBER_BYTES;
	}
	if (packet->bytes > 0)
		memcpy(at, packet->data, packet->bytes);
	uint32_t crc = crc32c(crc32c(0, full, full_bytes), at, packet->bytes);
	be32_store(at + packet->bytes, crc);
	writer->used = (size_t)(at - writer->out) + packet->bytes + CI_CRC_BYTES;
	writer->last = *packet;
	writer->last.data = NULL;
	return true;
}

void ci_open(struct ci_reader *reader, const uint8_t *in, size_t bytes)
{
	*reader = (struct ci_reader){.in = in, .bytes = bytes};
}

/* Restore the header of the packet at reader->at, which has as many bytes as its flags say. Returns
 * where its data begins. */
static const uint8_t *ci_restore(const struct ci_reader *reader, struct ci_packet *packet,
                                 uint16_t *checksum)
{
	const uint8_t *at = reader->in + reader->at;
	uint8_t flags = at[1];
	*packet = (struct ci_packet){.kind = at[0], .flags = flags & (uint8_t)~CI_PACKING};
	at += 2;
	packet->cluster = reader->last.cluster;
	packet->index = reader->last.index;
	packet->nonce = reader->last.nonce;
	if ((flags & CI_SAME) == 0) {
		packet->cluster = be16_load(at);
		packet->index = be32_load(at + 2);
		packet->nonce = be64_load(at + 6);
		at += 14;
	}
	packet->offset = ci_end_of(&reader->last);
	if ((flags & CI_NEXT) == 0) {
		packet->offset = be32_load(at);
		at += 4;
	}
	packet->bytes = be16_load(at);
	*checksum = be16_load(at + 2);
	at += 4;
	if ((flags & CI_SEQUENCED) != 0) {
		packet->sequence = reader->last.sequence + 1;
		if ((flags & CI_COUNT) == 0) {
			packet->sequence = be32_load(at);
			at += CI_NUMBER_BYTES;
		}
	}
	packet->data = at;
	return at;
}

enum ci_verdict ci_next(struct ci_reader *reader, struct ci_packet *packet)
{
	size_t left = reader->bytes - reader->at;
	const uint8_t *at = reader->in + reader->at;
	if (left == 0 || at[0] == 0)
		return CI_END;
	if (left < 2)
		return CI_TOO_SHORT;
	if (at[0] >= CI_KIND_COUNT)
		return CI_WRONG_KIND;
	uint8_t flags = at[1];
	if ((flags & ~(CI_SEQUENCED | CI_ASK | CI_PACKING)) != 0 ||
	    (reader->last.kind == 0 && (flags & CI_PACKING) != 0) ||
	    ((flags & CI_COUNT) != 0 && (flags & reader->last.flags & CI_SEQUENCED) == 0))
		return CI_WRONG_FLAGS;
	size_t header = ci_packed_header(flags);
	if (left < header + CI_CRC_BYTES)
		return CI_TOO_SHORT;
	struct ci_packet came;
	uint16_t checksum;
	uint8_t full[28];
	const uint8_t *data = ci_restore(reader, &came, &checksum);
	size_t full_bytes = ci_full_header(&came, full);
	if (be16_load(full + AT_CHECKSUM) != checksum)
		return CI_WRONG_CHECKSUM;
	if (!ci_length_fits(came.kind, came.bytes))
		return CI_WRONG_LENGTH;
	if (left - header - CI_CRC_BYTES < came.bytes)
		return CI_TOO_SHORT;
	uint32_t crc = crc32c(crc32c(0, full, full_bytes), data, came.bytes);
	if (be32_load(data + came.bytes) != crc) {
		*packet = came;
		packet->bytes = 0;
		packet->data = NULL;
		return CI_WRONG_CRC;
	}
	reader->at += header + came.bytes + CI_CRC_BYTES;
	reader->last = *packet = came;
	return CI_OK;
}
