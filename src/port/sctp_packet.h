/* SCTP packets (RFC 9260), as far as they concern those who do not speak SCTP: their checksum, and
 * the answer to a packet that belongs to no association. */
#ifndef PORT_SCTP_PACKET_H
#define PORT_SCTP_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCTP_HEADER_BYTES      12u /* ports, verification tag, checksum */
#define SCTP_CHUNK_BYTES       4u  /* type, flags, length */
#define SCTP_ANSWER_BYTES      (SCTP_HEADER_BYTES + SCTP_CHUNK_BYTES)
#define SCTP_CHUNK_INIT        1u
#define SCTP_CHUNK_COOKIE_ECHO 10u
#define SCTP_CHUNK_COOKIE_ACK  11u

/* Write the checksum of @packet, of at least SCTP_HEADER_BYTES. */
void sctp_packet_seal(uint8_t *packet, size_t bytes);
/* Has @packet a header, a chunk and a good checksum? */
bool sctp_packet_is_sound(const uint8_t *packet, size_t bytes);
/* What RFC 9260 section 8.4 answers to a sound @packet for a port that nobody has. Returns
 * SCTP_ANSWER_BYTES, or 0: nothing. */
size_t sctp_packet_refuse(const uint8_t *packet, size_t bytes, uint8_t out[SCTP_ANSWER_BYTES]);

#endif
