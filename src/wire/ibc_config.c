/* Commands to a switch and its answers; see ibc_config.h. */
#include "wire/ibc_config.h"

#include <string.h>

#include "wire/be.h"

#define PLAIN_BIT 1u

/* Length of a record of each operation. */
static const uint8_t record_bytes[IBC_CONFIG_OPERATION_COUNT] = {
        [IBC_CONFIG_PORTS] = 2,         [IBC_CONFIG_SET_PORT] = 2,     [IBC_CONFIG_COUNTERS] = 8,
        [IBC_CONFIG_PORT_COUNTERS] = 8, [IBC_CONFIG_APPLICATIONS] = 1, [IBC_CONFIG_NICS] = 10,
        [IBC_CONFIG_TRACE] = 1,
};

static bool config_judge(const struct ibc_config_command *command)
{
	bool has_port = command->operation == IBC_CONFIG_SET_PORT ||
	                command->operation == IBC_CONFIG_PORT_COUNTERS;
	bool has_state = command->operation == IBC_CONFIG_SET_PORT;
	if (command->operation < IBC_CONFIG_ECHO ||
	    command->operation >= IBC_CONFIG_OPERATION_COUNT)
		return false;
	if (has_port ? command->port > 63 : command->port != 0)
		return false;
	if (has_state ? command->state != IBC_PORT_DOWN && command->state != IBC_PORT_UP
	              : command->state != 0)
		return false;
	return command->operation == IBC_CONFIG_ECHO || command->data_bytes == 0;
}

size_t ibc_config_encode(const struct ibc_config_command *command, uint8_t *out, size_t capacity)
{
	size_t bytes = IBC_CONFIG_COMMAND_BYTES + (size_t)command->data_bytes;
	if (!config_judge(command) || bytes > capacity || bytes > IBC_MAX_PAYLOAD)
		return 0;
	memcpy(out, command->key, IBC_KEY_BYTES);
	out[16] = (uint8_t)command->operation;
	out[17] = command->port;
	out[18] = (uint8_t)command->state;
	out[19] = 0;
	if (command->data_bytes > 0)
		memcpy(out + IBC_CONFIG_COMMAND_BYTES, command->data, command->data_bytes);
	return bytes;
}

bool ibc_config_decode(struct ibc_config_command *command, const uint8_t *in, size_t bytes)
{
	if (bytes < IBC_CONFIG_COMMAND_BYTES || bytes > IBC_MAX_PAYLOAD || in[19] != 0)
		return false;
	struct ibc_config_command found = {.operation = in[16],
	                                   .port = in[17],
	                                   .state = in[18],
	                                   .data = in + IBC_CONFIG_COMMAND_BYTES,
	                                   .data_bytes =
	                                           (uint16_t)(bytes - IBC_CONFIG_COMMAND_BYTES)};
	memcpy(found.key, in, IBC_KEY_BYTES);
	if (!config_judge(&found))
		return false;
	*command = found;
	return true;
}

static bool config_record_judge(enum ibc_config_operation operation,
                                const struct ibc_config_record *record)
{
	switch (operation) {
	case IBC_CONFIG_PORTS:
	case IBC_CONFIG_SET_PORT:
		return record->port < IBC_CONFIG_PORTS_KNOWN &&
		       (record->state == IBC_PORT_DOWN || record->state == IBC_PORT_UP);
	case IBC_CONFIG_NICS:
		return record->port < IBC_CONFIG_PORTS_KNOWN;
	case IBC_CONFIG_APPLICATIONS:
		return record->port >= IBC_CONFIG_PORTS_KNOWN && record->port <= 63;
	case IBC_CONFIG_TRACE:
		return record->port < IBC_END_OF_ROUTE;
	default:
		return true;
	}
}

static bool config_answer_judge(const struct ibc_config_answer *answer)
{
	if (answer->operation <= IBC_CONFIG_ECHO ||
	    answer->operation >= IBC_CONFIG_OPERATION_COUNT ||
	    answer->arrival >= IBC_END_OF_ROUTE || answer->count > IBC_CONFIG_MAX_RECORDS)
		return false;
	for (unsigned i = 0; i < answer->count; i++)
		if (!config_record_judge(answer->operation, &answer->records[i]))
			return false;
	return true;
}

static void config_record_put(enum ibc_config_operation operation,
                              const struct ibc_config_record *record, uint8_t *out)
{
	switch (operation) {
	case IBC_CONFIG_PORTS:
	case IBC_CONFIG_SET_PORT:
		out[0] = record->port;
		out[1] = (uint8_t)record->state;
		break;
	case IBC_CONFIG_NICS:
		out[0] = record->port;
		out[1] = record->nic_port;
		be64_store(out + 2, record->number);
		break;
	case IBC_CONFIG_COUNTERS:
	case IBC_CONFIG_PORT_COUNTERS:
		be64_store(out, record->number);
		break;
	default:
		out[0] = record->port;
		break;
	}
}

static struct ibc_config_record config_record_get(enum ibc_config_operation operation,
                                                  const uint8_t *in)
{
	switch (operation) {
	case IBC_CONFIG_PORTS:
	case IBC_CONFIG_SET_PORT:
		return (struct ibc_config_record){.port = in[0], .state = in[1]};
	case IBC_CONFIG_NICS:
		return (struct ibc_config_record){
		        .port = in[0], .nic_port = in[1], .number = be64_load(in + 2)};
	case IBC_CONFIG_COUNTERS:
	case IBC_CONFIG_PORT_COUNTERS:
		return (struct ibc_config_record){.number = be64_load(in)};
	default:
		return (struct ibc_config_record){.port = in[0]};
	}
}

size_t ibc_config_encode_answer(const struct ibc_config_answer *answer, uint8_t *out,
                                size_t capacity)
{
	if (!config_answer_judge(answer))
		return 0;
	size_t each = record_bytes[answer->operation];
	size_t bytes = IBC_CONFIG_ANSWER_BYTES + each * answer->count;
	if (bytes > capacity)
		return 0;
	out[0] = (uint8_t)answer->operation;
	out[1] = answer->plain ? PLAIN_BIT : 0;
	out[2] = answer->arrival;
	out[3] = answer->count;
	be64_store(out + 4, answer->node);
	for (unsigned i = 0; i < answer->count; i++)
		config_record_put(answer->operation, &answer->records[i],
		                  out + IBC_CONFIG_ANSWER_BYTES + each * i);
	return bytes;
}

bool ibc_config_decode_answer(struct ibc_config_answer *answer, const uint8_t *in, size_t bytes)
{
	struct ibc_config_answer found;
	if (bytes < IBC_CONFIG_ANSWER_BYTES || in[0] >= IBC_CONFIG_OPERATION_COUNT ||
	    (in[1] & ~PLAIN_BIT) != 0 || in[3] > IBC_CONFIG_MAX_RECORDS)
		return false;
	found.operation = in[0];
	found.plain = in[1] & PLAIN_BIT;
	found.arrival = in[2];
	found.count = in[3];
	found.node = be64_load(in + 4);
	size_t each = record_bytes[found.operation];
	if (bytes != IBC_CONFIG_ANSWER_BYTES + each * found.count ||
	    (each == 0 && found.count > 0)) /* records of no bytes */
		return false;
	for (unsigned i = 0; i < found.count; i++)
		found.records[i] =
		        config_record_get(found.operation, in + IBC_CONFIG_ANSWER_BYTES + each * i);
	if (!config_answer_judge(&found))
		return false;
	*answer = found;
	return true;
}
