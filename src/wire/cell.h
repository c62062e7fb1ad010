/* Cells: the packets of a virtual interface, cut into pieces of at most 256 bytes of data (SPLIT
 * section IV.A and figure 8). SPLIT names the fields of the MAC header and the parts of a cell but
 * gives no layout; this one is defined in heddle-push(7). All numbers are big-endian.
 *
 *    0  destination MAC address (6)
 *    6  source MAC address (6)
 *   12  version (4 bits, 1), operation (4 bits)
 *   13  flags
 *   14  payload length (2): bytes of data in this cell, 0 to 256
 *   16  0 (1), destination queue pair (3)
 *   20  0 (1), source queue pair (3)
 *   24  0 (1), packet sequence number (3)
 *   28  cell sequence number (4): 0 in the first cell of a packet
 *   32  first cell of a write or of a read request only: virtual address (8), memory handle (4)
 *   ..  read request only: the length to be read (4)
 *   ..  data
 *   ..  last cell, with flag IMMEDIATE only: immediate data (4)
 *   ..  last cell only: CRC of the packet (4)
 *   ..  CRC of the cell (4): CRC-32C of everything before it
 *
 * The CRC of the packet is the CRC-32C of what all its cells have between the MAC header and the
 * CRCs, in the order of the cells. Only the data of one packet at a time travels on a queue pair,
 * so that the place of a cell's data follows from its number: 256 bytes times it. */
#ifndef WIRE_CELL_H
#define WIRE_CELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CELL_UDP_PORT      4793u   /* several cells in a datagram */
#define CELL_ETHERTYPE     0x88b6u /* several cells in a frame */
#define CELL_VERSION       1u
#define CELL_HEADER_BYTES  32u
#define CELL_DATA_BYTES    256u /* in every cell but the last */
#define CELL_ADDRESS_BYTES 12u  /* virtual address and memory handle */
#define CELL_MAX_BYTES     (CELL_HEADER_BYTES + CELL_ADDRESS_BYTES + CELL_DATA_BYTES + 12u)
#define CELL_MAX_PACKET    (1u << 31) /* bytes of data */
#define CELL_MAC_BYTES     6u

enum cell_operation {
	CELL_SEND = 1,
	CELL_WRITE,
	CELL_READ_REQUEST,
	CELL_READ_RESPONSE,
	CELL_ANSWER, /* acknowledges packets up to its number, or says why that one failed */
	CELL_OPERATION_COUNT
};

enum cell_flags {
	CELL_FIRST = 0x01,
	CELL_LAST = 0x02,
	CELL_IMMEDIATE = 0x04,    /* the packet ends with immediate data; in its last cell */
	CELL_ACKNOWLEDGED = 0x08, /* the sender of the packet waits for an answer; in every cell */
	CELL_SOLICITED = 0x10     /* the receiver is to wake its program; in the last cell */
};

/* A cell, or what all cells of a packet have in common. */
struct cell {
	uint8_t to[CELL_MAC_BYTES], from[CELL_MAC_BYTES];
	uint8_t operation; /* enum cell_operation */
	uint8_t flags;     /* enum cell_flags */
	uint32_t dest_qp, source_qp;
	uint32_t psn;
	uint32_t number;
	uint64_t address; /* of a write or read request: in the first cell */
	uint32_t handle;
	uint32_t read_bytes; /* of a read request */
	uint32_t immediate;  /* with CELL_IMMEDIATE */
	uint32_t packet_crc; /* with CELL_LAST */
	const uint8_t *data; /* when decoded: within the cell */
	uint16_t data_bytes;
};

enum cell_verdict {
	CELL_OK,
	CELL_TOO_SHORT,
	CELL_WRONG_LENGTH, /* the payload length does not match that of the cell */
	CELL_WRONG_CRC,    /* the cell is damaged */
	CELL_WRONG_VERSION,
	CELL_WRONG_OPERATION,
	CELL_WRONG_FLAGS,  /* an unknown one, or one that the operation does not have */
	CELL_WRONG_NUMBER, /* the first cell is not number 0, another one is, or it is too high */
	CELL_WRONG_FIELD,  /* a field that is to be 0, or more data than fits */
	CELL_VERDICT_COUNT
};

/* How long the cell at the beginning of @in is, by its header alone: several cells may follow each
 * other. 0: the header makes no sense, or the cell is longer than @bytes. */
size_t cell_bytes(const uint8_t *in, size_t bytes);

/* Check and decode the @bytes at @in. *cell only changes on CELL_OK. */
enum cell_verdict cell_decode(struct cell *cell, const uint8_t *in, size_t bytes);

/* The MAC address of the port that has the address @gid, so that nobody has to be asked for it: the
 * one that a link-local address was made from; else one that is locally administered, 02:48 and the
 * four bytes of an IPv4 address, or 06 and a hash of any other. */
void cell_mac(const uint8_t gid[16], uint8_t mac[CELL_MAC_BYTES]);

/* How many cells a packet with @data_bytes takes: at least one. */
static inline uint32_t cell_count(uint32_t data_bytes)
{
	return data_bytes == 0 ? 1 : (data_bytes - 1) / CELL_DATA_BYTES + 1;
}

/* --- segmentation --- */

struct cell_cutter {
	struct cell packet; /* without flags FIRST and LAST, number and data */
	uint32_t data_bytes;
	uint32_t next; /* the number of the next cell */
	uint32_t crc;
};

/* Cut a packet like @packet, with @data_bytes of data (at most CELL_MAX_PACKET), into cells. */
void cell_cut(struct cell_cutter *cutter, const struct cell *packet, uint32_t data_bytes);
/* The number of bytes of data that the next cell takes, and their offset in the packet. */
uint32_t cell_cut_data(const struct cell_cutter *cutter, uint64_t *offset);
/* Write the next cell, with the data at @data, to @out, which has room for CELL_MAX_BYTES. Returns
 * its length; 0: the packet is complete. */
size_t cell_cut_next(struct cell_cutter *cutter, const uint8_t *data, uint8_t *out);

/* --- reassembly --- */

/* What arrives on one queue pair from one sender. All zeroes: nothing yet. */
struct cell_assembly {
	bool open; /* a packet has begun: */
	struct cell first;
	uint32_t next; /* the number of the cell that continues it */
	uint64_t bytes;
	uint32_t crc;
};

enum cell_step {
	CELL_PLACE, /* the data belongs at *offset of the packet, which goes on */
	CELL_WHOLE, /* the same, and the packet is complete */
	CELL_ALONE, /* no packet is open that this cell continues */
	CELL_GAP,   /* it is not the next cell; the packet is given up */
	CELL_OTHER, /* it differs from the first cell in what all cells share; given up */
	CELL_CUT, /* a new packet begins before the open one is complete: that one is given up, and
	               this cell is placed as by CELL_PLACE */
	CELL_CUT_WHOLE, /* the same for a packet of one cell */
	CELL_DAMAGED,   /* all cells are there, but the CRC of the packet is wrong */
	CELL_STEP_COUNT
};

/* @cell, which was decoded, is the next that arrived. A duplicate of the last cell is CELL_GAP or
 * CELL_ALONE. */
enum cell_step cell_assemble(struct cell_assembly *assembly, const struct cell *cell,
                             uint64_t *offset);

#endif
