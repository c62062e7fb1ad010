/* Commands to a switch itself, and its answers: the payload of packets to APID 31 and back
 * (heddle-ibc(7)). All numbers are big-endian.
 *
 * A command is the payload of a read request or of a write request:
 *
 *    0  key (16): the right to configure this switch
 *   16  operation (1)
 *   17  port (1) of IBC_CONFIG_SET_PORT and IBC_CONFIG_PORT_COUNTERS, else 0
 *   18  state (1) of IBC_CONFIG_SET_PORT, else 0
 *   19  0 (1)
 *   20  of IBC_CONFIG_ECHO any data, else nothing
 *
 * IBC_CONFIG_ECHO needs no right, as it tells and changes nothing: its answer is the command with
 * a key of zeroes. Every other answer begins with
 *
 *    0  operation (1)
 *    1  bit 0: a plain switch, without applications (1)
 *    2  the port through which the command came (1)
 *    3  records that follow (1)
 *    4  node identifier (8)
 *   12  the records
 *
 * and has these records:
 *
 *   IBC_CONFIG_PORTS          port (1), state (1): every hardware port
 *   IBC_CONFIG_NICS           port (1), port of the NIC (1), GUID (8): every hardware port
 *   IBC_CONFIG_APPLICATIONS   APID (1): every application port in use
 *   IBC_CONFIG_COUNTERS       number (8): of the switch, in the order of enum ibc_counter
 *   IBC_CONFIG_PORT_COUNTERS  number (8): of the port, in the order of enum ibc_port_counter
 *   IBC_CONFIG_TRACE          port (1): the ports of arrival of each hop, in the order of the route
 *   IBC_CONFIG_SET_PORT       port (1), state (1): the state that the port now has
 *
 * The answer is a read response; to IBC_CONFIG_SET_PORT it is a write response. */
#ifndef WIRE_IBC_CONFIG_H
#define WIRE_IBC_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/ibc.h"

#define IBC_CONFIG_COMMAND_BYTES 20u
#define IBC_CONFIG_ANSWER_BYTES  12u /* without records */
#define IBC_CONFIG_MAX_RECORDS   64u
#define IBC_CONFIG_MAX_BYTES     (IBC_CONFIG_ANSWER_BYTES + 64u * 10u)
#define IBC_CONFIG_PORTS_KNOWN   16u /* hardware ports of a switch */

enum ibc_config_operation {
	IBC_CONFIG_ECHO = 1,
	IBC_CONFIG_PORTS,
	IBC_CONFIG_SET_PORT,
	IBC_CONFIG_COUNTERS,
	IBC_CONFIG_PORT_COUNTERS,
	IBC_CONFIG_APPLICATIONS,
	IBC_CONFIG_NICS,
	IBC_CONFIG_TRACE,
	IBC_CONFIG_OPERATION_COUNT
};

enum ibc_port_state { IBC_PORT_ABSENT, IBC_PORT_DOWN, IBC_PORT_UP, IBC_PORT_STATE_COUNT };

/* What a switch counts: packets. */
enum ibc_counter {
	IBC_COUNTER_FORWARDED, /* out of a hardware port */
	IBC_COUNTER_DELIVERED, /* to at least one application */
	IBC_COUNTER_CONSUMED,  /* by the switch: commands */
	IBC_COUNTER_DAMAGED,   /* dropped: not an IBC packet, or not an intact one */
	IBC_COUNTER_REJECTED,  /* the first of one per reason; the one for IBC_REASON_NONE is all */
	IBC_COUNTER_UNCAPTURED = IBC_COUNTER_REJECTED + IBC_REASON_COUNT, /* not in the capture */
	IBC_COUNTER_COUNT
};

/* What it counts per hardware port. */
enum ibc_port_counter {
	IBC_PORT_COUNTER_IN, /* packets that came */
	IBC_PORT_COUNTER_IN_BYTES,
	IBC_PORT_COUNTER_OUT, /* packets that left */
	IBC_PORT_COUNTER_OUT_BYTES,
	IBC_PORT_COUNTER_DAMAGED, /* came, but were dropped */
	IBC_PORT_COUNTER_LOST,    /* did not come: gaps in the sequence of the link */
	IBC_PORT_COUNTER_DROPPED, /* could not leave: the link did not take them */
	IBC_PORT_COUNTER_DOWNS,   /* how often the port went down */
	IBC_PORT_COUNTER_COUNT
};

struct ibc_config_command {
	uint8_t key[IBC_KEY_BYTES];
	enum ibc_config_operation operation;
	uint8_t port;
	enum ibc_port_state state;
	const uint8_t *data; /* of IBC_CONFIG_ECHO; when decoded: within the payload */
	uint16_t data_bytes;
};

/* One record; which fields it has depends on the operation. */
struct ibc_config_record {
	uint8_t port; /* or APID */
	uint8_t nic_port;
	enum ibc_port_state state;
	uint64_t number; /* or GUID */
};

struct ibc_config_answer {
	enum ibc_config_operation operation; /* not IBC_CONFIG_ECHO */
	bool plain;
	uint8_t arrival;
	uint8_t count;
	uint64_t node;
	struct ibc_config_record records[IBC_CONFIG_MAX_RECORDS];
};

/* Write the payload of @command or @answer to @out. Returns its length; 0: @capacity is too small,
 * or a field is out of range. */
size_t ibc_config_encode(const struct ibc_config_command *command, uint8_t *out, size_t capacity);
size_t ibc_config_encode_answer(const struct ibc_config_answer *answer, uint8_t *out,
                                size_t capacity);
/* Decode the @bytes at @in. False: it is not a command or answer, and *command or *answer has not
 * changed. */
bool ibc_config_decode(struct ibc_config_command *command, const uint8_t *in, size_t bytes);
bool ibc_config_decode_answer(struct ibc_config_answer *answer, const uint8_t *in, size_t bytes);

#endif
