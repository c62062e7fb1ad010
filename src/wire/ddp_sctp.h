/* DDP on SCTP (RFC 5043, RFC 6581 section 7). Every SCTP message is sent unordered and begins with
 * a number, DDP-SSN, that counts the messages of its direction from 0 on, modulo 2^16: the receiver
 * places segments as they come and puts them into order itself. The payload protocol identifier
 * says what follows (RFC 5043 sections 5.2.2 and 5.2.3):
 *
 * 	16 DDP segment             | DDP-SSN 16 | DDP segment
 * 	17 session control         | DDP-SSN 16 | function code 16 | [IRD, ORD] | private data
 *
 * An association that speaks it announces the adaptation code below in INIT or INIT-ACK (section
 * 5.1). The messages of session control mean what MPA's frames mean on TCP (mpa_connect.h), so they
 * are read into the same structure: a plain one is revision 1, an enhanced one revision 2. IRD and
 * ORD are in Enhanced Initiate and Enhanced Accept, and in no other (RFC 6581 sections 7 and 9);
 * they count among the 512 octets of private data. A Terminate has no private data. */
#ifndef WIRE_DDP_SCTP_H
#define WIRE_DDP_SCTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/mpa_connect.h"

#define DDP_SCTP_UDP_PORT          9899 /* RFC 6951 */
#define DDP_SCTP_ADAPTATION        1u
#define DDP_SCTP_PPID_SEGMENT      16u
#define DDP_SCTP_PPID_CONTROL      17u
#define DDP_SCTP_SSN_BYTES         2
#define DDP_SCTP_CONTROL_BYTES     4 /* DDP-SSN and function code */
#define DDP_SCTP_CONTROL_MAX_BYTES (DDP_SCTP_CONTROL_BYTES + MPA_MAX_PRIVATE_BYTES)
/* A sender has fewer numbers than this outstanding, or they would be ambiguous. */
#define DDP_SCTP_MAX_AHEAD 0x8000u

enum ddp_sctp_function {
	DDP_SCTP_INITIATE = 0x001,
	DDP_SCTP_ACCEPT = 0x002,
	DDP_SCTP_REJECT = 0x003,
	DDP_SCTP_TERMINATE = 0x004,
	DDP_SCTP_ENHANCED_INITIATE = 0x005,
	DDP_SCTP_ENHANCED_ACCEPT = 0x006,
	DDP_SCTP_ENHANCED_REJECT = 0x007
};

/* Write @c as a message of session control. Returns its length, or 0 if it does not fit into
 * @out_bytes, violates a limit of mpa_connect.h, or asks for markers or CRCs, which SCTP has no use
 * for. */
size_t ddp_sctp_control_encode(uint16_t ssn, const struct mpa_connect *c, uint8_t *out,
                               size_t out_bytes);
/* Read the message of session control at @in, which must be a request or an answer as @due says.
 * MPA_CONNECT_BAD_KEY: it is neither, or is too short. */
enum mpa_connect_verdict ddp_sctp_control_decode(enum mpa_frame due, const uint8_t *in,
                                                 size_t in_bytes, uint16_t *ssn,
                                                 struct mpa_connect *c);
/* The message that ends a session. Returns DDP_SCTP_CONTROL_BYTES. */
size_t ddp_sctp_terminate_encode(uint16_t ssn, uint8_t *out);
/* Is it a message that ends a session? One with private data is not. *ssn: its number. */
bool ddp_sctp_is_terminate(const uint8_t *in, size_t in_bytes, uint16_t *ssn);

#endif
