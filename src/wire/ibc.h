/* IBC packets: source-routed messages between applications, NICs and switches (VSWITCH paragraphs
 * 18 to 30 and 38 to 40). VSWITCH names the fields but gives no layout; this one is defined in
 * heddle-ibc(7). All numbers are big-endian.
 *
 *    0  version (4 bits, 1), message type (4 bits)
 *    1  direction (1 bit, 1: reverse), 0, pointer (6 bits)
 *    2  hops: ports in the route, without the end mark; 0 to 62
 *    3  reason of a NACK; of every other type 0
 *    4  source APID
 *    5  destination APID
 *    6  payload length in bytes (2 bytes)
 *    8  destination node identifier (8)
 *   16  GUID of the NIC through which the packet was first sent (8)
 *   24  transaction number (4)
 *   28  header check (4): CRC-32C of bytes 0 to 27 and of the route
 *   32  route: hops ports, the end mark 63, zeroes to a multiple of 4
 *   ..  payload, zeroes to a multiple of 4
 *   ..  CRC-32C (4) of byte 0, of bytes 2 to 27 and of the payload: what no switch changes
 *
 * A hop overwrites the port that it used with the port of arrival, moves the pointer and recomputes
 * the header check. The CRC at the end is end-to-end: only the sender computes it.
 *
 * The pointer counts from 1. In both directions it names the next port to use. Forward, the
 * position behind the last port is the end of the route; in reverse, 0 is the end. */
#ifndef WIRE_IBC_H
#define WIRE_IBC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IBC_VERSION      1u
#define IBC_HEADER_BYTES 32u
#define IBC_CRC_BYTES    4u
#define IBC_END_OF_ROUTE 63u
#define IBC_MAX_HOPS     62u
#define IBC_MAX_PAYLOAD  4096u
#define IBC_MAX_BYTES    (IBC_HEADER_BYTES + 64u + IBC_MAX_PAYLOAD + IBC_CRC_BYTES)
#define IBC_KEY_BYTES    16u /* the right to configure a switch */

enum ibc_type {
	IBC_TYPE_READ_REQUEST = 1,
	IBC_TYPE_WRITE_REQUEST,        /* the recipient acknowledges it */
	IBC_TYPE_WRITE_REQUEST_NO_ACK, /* the recipient does not */
	IBC_TYPE_READ_RESPONSE,
	IBC_TYPE_WRITE_RESPONSE,
	IBC_TYPE_NACK,
	IBC_TYPE_COUNT
};

/* Why a packet was rejected (VSWITCH paragraph 24, action 4; block 220). */
enum ibc_reason {
	IBC_REASON_NONE,
	IBC_REASON_NO_APPLICATION, /* no application is registered with the destination APID */
	IBC_REASON_NO_PORT,        /* the route names a port that does not exist */
	IBC_REASON_PORT_DOWN,
	IBC_REASON_POINTER,  /* not within the route */
	IBC_REASON_TOO_LONG, /* the route, or the packet for the link that it should take */
	IBC_REASON_LOOP,     /* the next port is the one through which the packet came */
	IBC_REASON_NOT_ALLOWED,
	IBC_REASON_NO_RECEIVE, /* the application did not accept the packet in time */
	IBC_REASON_COUNT
};

struct ibc_route {
	bool reverse;
	uint8_t pointer;
	uint8_t hops;
	uint8_t ports[IBC_MAX_HOPS];
};

struct ibc_packet {
	enum ibc_type type;
	enum ibc_reason reason;
	uint8_t source_apid;
	uint8_t dest_apid;
	uint64_t dest_node;
	uint64_t guid;
	uint32_t transaction;
	struct ibc_route route;
	const uint8_t *payload; /* when decoded: within the packet */
	uint16_t payload_bytes;
};

enum ibc_verdict {
	IBC_OK,
	IBC_TOO_SHORT,
	IBC_WRONG_LENGTH, /* the lengths in the header do not match that of the packet */
	IBC_WRONG_VERSION,
	IBC_WRONG_TYPE,
	IBC_WRONG_REASON,  /* a NACK without one, or another type with one */
	IBC_WRONG_ROUTE,   /* a port above 62, no end mark, or padding that is not 0 */
	IBC_TOO_MANY_HOPS, /* this and the next: ibc_salvage() tells what a NACK needs */
	IBC_WRONG_POINTER,
	IBC_WRONG_APID,
	IBC_WRONG_CHECK, /* the header is damaged */
	IBC_WRONG_CRC,   /* the packet is damaged */
	IBC_VERDICT_COUNT
};

/* Length of @packet in bytes once encoded. */
size_t ibc_bytes(const struct ibc_packet *packet);
/* Write @packet to @out. Returns its length; 0: @capacity is too small, or a field is out of range.
 */
size_t ibc_encode(const struct ibc_packet *packet, uint8_t *out, size_t capacity);
/* Check and decode the @bytes at @in. *packet only changes on IBC_OK. */
enum ibc_verdict ibc_decode(struct ibc_packet *packet, const uint8_t *in, size_t bytes);
/* As ibc_decode(), without the end-to-end CRC: what a hop needs to know. */
enum ibc_verdict ibc_decode_header(struct ibc_packet *packet, const uint8_t *in, size_t bytes);
/* The verdict of ibc_decode_header() alone. */
enum ibc_verdict ibc_judge_header(const uint8_t *in, size_t bytes);
/* The header at @in is intact, but ibc_judge_header() found IBC_TOO_MANY_HOPS or IBC_WRONG_POINTER.
 * *packet becomes what a NACK needs: without payload, and its route is the part that has been used,
 * at its end. False: that part is not a route. */
bool ibc_salvage(struct ibc_packet *packet, const uint8_t *in);
/* In the packet at @bytes, which ibc_judge_header() accepted: the port that the pointer names
 * becomes @port, and the pointer @pointer. */
void ibc_replace_port(uint8_t *bytes, uint8_t port, uint8_t pointer);
/* @route differs from that of the packet at @bytes only in its ports and pointer: write it there.
 */
void ibc_rewrite(uint8_t *bytes, const struct ibc_route *route);

static inline bool ibc_is_reverse(const uint8_t *bytes)
{
	return (bytes[1] & 0x80) != 0;
}
static inline uint8_t ibc_pointer(const uint8_t *bytes)
{
	return bytes[1] & 0x3f;
}
/* Is the pointer at the end of the route (VSWITCH block 212)? */
static inline bool ibc_at_end(const struct ibc_route *route)
{
	return route->reverse ? route->pointer == 0 : route->pointer == route->hops + 1u;
}
/* The same route in the other direction, starting where the packet is now: the port that was used
 * last is the next. */
static inline struct ibc_route ibc_turn_around(const struct ibc_route *route)
{
	struct ibc_route back = *route;
	back.reverse = !route->reverse;
	back.pointer = (uint8_t)(route->reverse ? route->pointer + 1u : route->pointer - 1u);
	return back;
}

#endif
