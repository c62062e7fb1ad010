/* Commands to a switch: see vswitch_config.h. */
#include "fabric/vswitch_config.h"

#include <assert.h>
#include <string.h>

_Static_assert((int)VSWITCH_PORT_ABSENT == (int)IBC_PORT_ABSENT &&
                       (int)VSWITCH_PORT_DOWN == (int)IBC_PORT_DOWN &&
                       (int)VSWITCH_PORT_UP == (int)IBC_PORT_UP,
               "the states have the same numbers in packets");
_Static_assert(VSWITCH_HARDWARE_PORTS == IBC_CONFIG_PORTS_KNOWN, "");

void vswitch_count(struct vswitch_counters *counters, const struct vswitch_result *result)
{
	switch (result->action) {
	case VSWITCH_TRANSMIT:
		counters->packets[IBC_COUNTER_FORWARDED]++;
		break;
	case VSWITCH_DELIVER:
		counters->packets[IBC_COUNTER_DELIVERED]++;
		break;
	case VSWITCH_CONSUME:
		counters->packets[IBC_COUNTER_CONSUMED]++;
		break;
	default:
		counters->packets[IBC_COUNTER_REJECTED]++;
		counters->packets[IBC_COUNTER_REJECTED + (unsigned)result->reason]++;
		break;
	}
}

/* Compares all bytes, so that the time tells nothing about them. */
static bool key_is_right(const uint8_t *key, const uint8_t *given)
{
	unsigned differences = 0;
	if (key == NULL)
		return false;
	for (unsigned i = 0; i < IBC_KEY_BYTES; i++)
		differences |= (unsigned)(key[i] ^ given[i]);
	return differences == 0;
}

static void config_refuse(const struct vswitch_owner *owner, const struct ibc_packet *packet,
                          enum ibc_reason reason, struct vswitch_configured *configured)
{
	vswitch_count(owner->counters,
	              &(struct vswitch_result){.action = VSWITCH_REJECT, .reason = reason});
	configured->answered = vswitch_nack(packet, reason, &configured->answer);
}

/* The answer in configured->payload, @bytes long. */
static void config_send(const struct ibc_packet *packet, enum ibc_type type, size_t bytes,
                        struct vswitch_configured *configured)
{
	assert(bytes > 0 && bytes <= IBC_MAX_PAYLOAD);
	configured->answered = packet->type != IBC_TYPE_WRITE_REQUEST_NO_ACK;
	configured->answer = (struct ibc_packet){.type = type,
	                                         .source_apid = VSWITCH_APID_CONFIG,
	                                         .dest_apid = packet->source_apid,
	                                         .guid = packet->guid,
	                                         .transaction = packet->transaction,
	                                         .route = ibc_turn_around(&packet->route),
	                                         .payload = configured->payload,
	                                         .payload_bytes = (uint16_t)bytes};
}

static void config_echo(const struct ibc_packet *packet, struct vswitch_configured *configured)
{
	memcpy(configured->payload, packet->payload, packet->payload_bytes);
	memset(configured->payload, 0, IBC_KEY_BYTES);
	config_send(packet, IBC_TYPE_READ_RESPONSE, packet->payload_bytes, configured);
}

static void add_record(struct ibc_config_answer *answer, struct ibc_config_record record)
{
	assert(answer->count < IBC_CONFIG_MAX_RECORDS);
	answer->records[answer->count++] = record;
}

static void add_hardware_ports(struct ibc_config_answer *answer, const struct vswitch *vswitch)
{
	for (uint8_t i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
		if (vswitch->states[i] != VSWITCH_PORT_ABSENT)
			add_record(answer, (struct ibc_config_record){
			                           .port = i,
			                           .state = vswitch->states[i],
			                           .nic_port = vswitch->nic_ports[i].number,
			                           .number = vswitch->nic_ports[i].guid});
}

static void add_applications(struct ibc_config_answer *answer, const struct vswitch *vswitch)
{
	for (uint8_t i = VSWITCH_HARDWARE_PORTS; i < VSWITCH_PORTS && !vswitch->plain; i++)
		if (vswitch->states[i] != VSWITCH_PORT_ABSENT)
			add_record(answer, (struct ibc_config_record){.port = i});
}

static void add_numbers(struct ibc_config_answer *answer, const uint64_t *numbers, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		add_record(answer, (struct ibc_config_record){.number = numbers[i]});
}

/* The ports through which the command came, hop by hop: where the route has been used, it holds
 * them (VSWITCH block 226). */
static void add_trace(struct ibc_config_answer *answer, const struct ibc_route *route)
{
	for (unsigned i = 0; i < route->hops; i++)
		add_record(answer, (struct ibc_config_record){.port = route->ports[i]});
}

static void config_fill(const struct vswitch_owner *owner, const struct ibc_packet *packet,
                        const struct ibc_config_command *command, struct ibc_config_answer *answer)
{
	switch (command->operation) {
	case IBC_CONFIG_PORTS:
	case IBC_CONFIG_NICS:
		add_hardware_ports(answer, owner->vswitch);
		break;
	case IBC_CONFIG_APPLICATIONS:
		add_applications(answer, owner->vswitch);
		break;
	case IBC_CONFIG_COUNTERS:
		add_numbers(answer, owner->counters->packets, IBC_COUNTER_COUNT);
		break;
	case IBC_CONFIG_PORT_COUNTERS:
		add_numbers(answer, owner->counters->ports[command->port], IBC_PORT_COUNTER_COUNT);
		break;
	case IBC_CONFIG_TRACE:
		add_trace(answer, &packet->route);
		break;
	default:
		/* A port that is taken out of service is down; one that is put back is up when its
		 * link is, which is not before both ends have heard each other. */
		add_record(answer,
		           (struct ibc_config_record){
		                   .port = command->port,
		                   .state = command->state == IBC_PORT_DOWN
		                                    ? IBC_PORT_DOWN
		                                    : owner->vswitch->states[command->port]});
		break;
	}
}

/* Which reason forbids @command, which came with the right key? */
static enum ibc_reason config_judge_port(const struct vswitch *vswitch,
                                         const struct ibc_config_command *command)
{
	if (command->operation != IBC_CONFIG_SET_PORT &&
	    command->operation != IBC_CONFIG_PORT_COUNTERS)
		return IBC_REASON_NONE;
	if (!vswitch_is_hardware(command->port))
		return IBC_REASON_NOT_ALLOWED; /* applications come and go by themselves */
	return vswitch->states[command->port] == VSWITCH_PORT_ABSENT ? IBC_REASON_NO_PORT
	                                                             : IBC_REASON_NONE;
}

void vswitch_configure(const struct vswitch_owner *owner, const struct ibc_packet *packet,
                       uint8_t inport, struct vswitch_configured *configured)
{
	assert(inport < IBC_END_OF_ROUTE);
	struct ibc_config_command command;
	configured->set_port = configured->answered = false;
	if (packet->type != IBC_TYPE_READ_REQUEST && packet->type != IBC_TYPE_WRITE_REQUEST &&
	    packet->type != IBC_TYPE_WRITE_REQUEST_NO_ACK)
		return; /* the switch asks nobody: this answers nothing */
	if (!ibc_config_decode(&command, packet->payload, packet->payload_bytes)) {
		config_refuse(owner, packet, IBC_REASON_NOT_ALLOWED, configured);
		return;
	}
	if (command.operation == IBC_CONFIG_ECHO) {
		config_echo(packet, configured);
		return;
	}
	enum ibc_reason reason = key_is_right(owner->key, command.key)
	                                 ? config_judge_port(owner->vswitch, &command)
	                                 : IBC_REASON_NOT_ALLOWED;
	if (reason != IBC_REASON_NONE) {
		config_refuse(owner, packet, reason, configured);
		return;
	}
	struct ibc_config_answer answer = {.operation = command.operation,
	                                   .plain = owner->vswitch->plain,
	                                   .arrival = inport,
	                                   .node = owner->vswitch->node};
	config_fill(owner, packet, &command, &answer);
	configured->set_port = command.operation == IBC_CONFIG_SET_PORT;
	configured->port = command.port;
	configured->up = command.state == IBC_PORT_UP;
	config_send(
	        packet, configured->set_port ? IBC_TYPE_WRITE_RESPONSE : IBC_TYPE_READ_RESPONSE,
	        ibc_config_encode_answer(&answer, configured->payload, sizeof(configured->payload)),
	        configured);
}
