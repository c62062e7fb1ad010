/* SCTP packets. See sctp_packet.h. */
#include "port/sctp_packet.h"

#include <string.h>

#include "base/crc.h"

#define TAG_AT      4u
#define CHECKSUM_AT 8u
#define TAG_BYTES   4u
#define REFLECTED   1u /* T: the verification tag is the one that came */

enum {
	CHUNK_ABORT = 6,
	CHUNK_SHUTDOWN_ACK = 8,
	CHUNK_ERROR = 9,
	CHUNK_COOKIE_ACK = 11,
	CHUNK_SHUTDOWN_COMPLETE = 14
};

/* The checksum of @packet, with its own field taken as zero. */
static uint32_t packet_sum(const uint8_t *packet, size_t bytes)
{
	static const uint8_t zero[4];
	uint32_t sum = crc32c(0, packet, CHECKSUM_AT);
	sum = crc32c(sum, zero, sizeof(zero));
	return crc32c(sum, packet + SCTP_HEADER_BYTES, bytes - SCTP_HEADER_BYTES);
}

/* RFC 9260 appendix A: the checksum goes out with its lowest octet first. */
void sctp_packet_seal(uint8_t *packet, size_t bytes)
{
	uint32_t sum = packet_sum(packet, bytes);
	for (unsigned i = 0; i < 4; i++)
		packet[CHECKSUM_AT + i] = (uint8_t)(sum >> 8 * i);
}

bool sctp_packet_is_sound(const uint8_t *packet, size_t bytes)
{
	uint32_t sum = 0;
	if (bytes < SCTP_HEADER_BYTES + SCTP_CHUNK_BYTES)
		return false;
	for (unsigned i = 0; i < 4; i++)
		sum |= (uint32_t)packet[CHECKSUM_AT + i] << 8 * i;
	return sum == packet_sum(packet, bytes);
}

/* Is there an ABORT among the chunks from @at on? */
static bool packet_aborts(const uint8_t *packet, size_t bytes)
{
	size_t at = SCTP_HEADER_BYTES;
	while (bytes - at >= SCTP_CHUNK_BYTES) {
		size_t length = (size_t)packet[at + 2] << 8 | packet[at + 3];
		if (packet[at] == CHUNK_ABORT)
			return true;
		length = (length + 3) & ~(size_t)3;
		if (length < SCTP_CHUNK_BYTES || length > bytes - at)
			return false;
		at += length;
	}
	return false;
}

size_t sctp_packet_refuse(const uint8_t *packet, size_t bytes, uint8_t out[SCTP_ANSWER_BYTES])
{
	uint8_t first = packet[SCTP_HEADER_BYTES];
	const uint8_t *tag = packet + TAG_AT;
	uint8_t flags = REFLECTED;
	if (packet_aborts(packet, bytes) || first == CHUNK_SHUTDOWN_COMPLETE ||
	    first == CHUNK_COOKIE_ACK || first == CHUNK_ERROR)
		return 0;
	if (first == SCTP_CHUNK_INIT) { /* which names the tag that it wants to see */
		if (bytes < SCTP_HEADER_BYTES + SCTP_CHUNK_BYTES + TAG_BYTES)
			return 0;
		tag = packet + SCTP_HEADER_BYTES + SCTP_CHUNK_BYTES;
		flags = 0;
	}
	memset(out, 0, SCTP_ANSWER_BYTES);
	memcpy(out, packet + 2, 2);
	memcpy(out + 2, packet, 2);
	memcpy(out + TAG_AT, tag, TAG_BYTES);
	out[SCTP_HEADER_BYTES] =
	        first == CHUNK_SHUTDOWN_ACK ? CHUNK_SHUTDOWN_COMPLETE : CHUNK_ABORT;
	out[SCTP_HEADER_BYTES + 1] = flags;
	out[SCTP_HEADER_BYTES + 3] = SCTP_CHUNK_BYTES;
	sctp_packet_seal(out, SCTP_ANSWER_BYTES);
	return SCTP_ANSWER_BYTES;
}
