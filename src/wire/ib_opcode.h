/* What each BTH opcode means (IBTA volume 1 section 9.2, annex A14 for XRC, annex A17 for the
 * congestion notification): one table, which both encoding and decoding of packets use. */
#ifndef WIRE_IB_OPCODE_H
#define WIRE_IB_OPCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The upper three bits of an opcode. */
enum ib_transport {
	IB_RC = 0x00,
	IB_UC = 0x20,
	IB_RD = 0x40,
	IB_UD = 0x60,
	IB_CONGESTION = 0x80,
	IB_XRC = 0xa0
};

/* The lower five bits: add the transport. Not every transport has all of them. */
enum {
	IB_OP_SEND_FIRST = 0x00,
	IB_OP_SEND_MIDDLE = 0x01,
	IB_OP_SEND_LAST = 0x02,
	IB_OP_SEND_LAST_IMM = 0x03,
	IB_OP_SEND_ONLY = 0x04,
	IB_OP_SEND_ONLY_IMM = 0x05,
	IB_OP_WRITE_FIRST = 0x06,
	IB_OP_WRITE_MIDDLE = 0x07,
	IB_OP_WRITE_LAST = 0x08,
	IB_OP_WRITE_LAST_IMM = 0x09,
	IB_OP_WRITE_ONLY = 0x0a,
	IB_OP_WRITE_ONLY_IMM = 0x0b,
	IB_OP_READ_REQUEST = 0x0c,
	IB_OP_READ_RESPONSE_FIRST = 0x0d,
	IB_OP_READ_RESPONSE_MIDDLE = 0x0e,
	IB_OP_READ_RESPONSE_LAST = 0x0f,
	IB_OP_READ_RESPONSE_ONLY = 0x10,
	IB_OP_ACK = 0x11,
	IB_OP_ATOMIC_ACK = 0x12,
	IB_OP_COMPARE_SWAP = 0x13,
	IB_OP_FETCH_ADD = 0x14,
	IB_OP_RESYNC = 0x15, /* RD only */
	IB_OP_SEND_LAST_INV = 0x16,
	IB_OP_SEND_ONLY_INV = 0x17,
	IB_OPCODE_CNP = 0x81
};

/* The operation that a packet belongs to. */
enum ib_operation {
	IB_SEND,
	IB_WRITE,
	IB_READ_REQUEST,
	IB_READ_RESPONSE,
	IB_ACK,
	IB_ATOMIC_ACK,
	IB_COMPARE_SWAP,
	IB_FETCH_ADD,
	IB_RESYNC,
	IB_CNP
};

enum ib_role { IB_REQUEST, IB_RESPONSE, IB_NOTICE };

enum ib_part { IB_FIRST, IB_MIDDLE, IB_LAST, IB_ONLY };

/* Headers of a packet, in their order on the wire. */
enum ib_header {
	IB_HAS_LRH = 1u << 0,
	IB_HAS_RWH = 1u << 1,
	IB_HAS_GRH = 1u << 2,
	IB_HAS_BTH = 1u << 3,
	IB_HAS_RDETH = 1u << 4,
	IB_HAS_DETH = 1u << 5,
	IB_HAS_XRCETH = 1u << 6,
	IB_HAS_RETH = 1u << 7,
	IB_HAS_ATOMICETH = 1u << 8,
	IB_HAS_AETH = 1u << 9,
	IB_HAS_ATOMICACK = 1u << 10,
	IB_HAS_IMMDT = 1u << 11,
	IB_HAS_IETH = 1u << 12,
	IB_HAS_CNP = 1u << 13
};

struct ib_opcode {
	const char *name;
	uint32_t headers;      /* of enum ib_header: those behind the BTH */
	uint16_t header_bytes; /* of these; the BTH is not included */
	uint8_t transport;     /* enum ib_transport */
	uint8_t operation;     /* enum ib_operation */
	uint8_t role;          /* enum ib_role */
	uint8_t part;          /* enum ib_part */
	bool payload;          /* may carry a payload; false: the packet ends with its headers */
};

#define IB_MAX_HEADER_BYTES \
	64u /* BTH and the most that can follow it: XRCETH or RDETH and DETH, and AtomicETH, \
	       rounded up */

/* The table row of @opcode; NULL for a reserved or manufacturer-defined opcode. */
const struct ib_opcode *ib_opcode(uint8_t opcode);

/* May a packet of this kind carry @payload_bytes if packets carry at most @mtu_bytes? First and
 * middle packets are full, and the last of several is not empty (section 9.7.4 for requests, 9.7.5
 * for read responses). */
bool ib_payload_fits(const struct ib_opcode *op, size_t payload_bytes, size_t mtu_bytes);

#endif
