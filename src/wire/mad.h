/* Management datagrams (IBTA volume 1, 13.4.2): 256 bytes, carried by unreliable datagrams between
 * queue pairs 0 or 1.
 *
 * 	 0                 1                 2                 3
 * 	+-----------------+-----------------+-----------------+-----------------+
 * 	|   BaseVersion   |    MgmtClass    |  ClassVersion   |R|    Method     |
 * 	+-----------------+-----------------+-----------------+-----------------+
 * 	|              Status               |           ClassSpecific           |
 * 	+-----------------------------------+-----------------------------------+
 * 	|                             TransactionID                             |
 * 	|                                                                       |
 * 	+-----------------------------------+-----------------------------------+
 * 	|           AttributeID             |             reserved              |
 * 	+-----------------------------------+-----------------------------------+
 * 	|                           AttributeModifier                           |
 * 	+-----------------------------------------------------------------------+
 * 	|  232 bytes of the class                                               | */
#ifndef WIRE_MAD_H
#define WIRE_MAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAD_BYTES        256u
#define MAD_HEADER_BYTES 24u
#define MAD_BASE_VERSION 1u
#define MAD_CLASS_CM     0x07u
#define MAD_METHOD_SEND  0x03u

/* The queue pair of the management classes other than subnet management. */
#define MAD_GSI_QPN  1u
#define MAD_GSI_QKEY 0x80010000u

struct mad_header {
	uint8_t base_version;
	uint8_t management_class;
	uint8_t class_version;
	uint8_t method; /* including R, the top bit */
	uint16_t status;
	uint16_t class_specific;
	uint64_t transaction_id;
	uint16_t attribute_id;
	uint32_t attribute_modifier;
};

/* Writes MAD_HEADER_BYTES. */
void mad_header_encode(const struct mad_header *header, uint8_t *out);
/* False: @bytes is not one whole datagram, or its base version is unknown. */
bool mad_header_decode(struct mad_header *header, const uint8_t *in, size_t bytes);

#endif
