/* Any bytes as a command to a switch, and as its answer. A command has an answer that decodes, or a
 * NACK; only the right key changes a port. What decodes is encoded to the same bytes again. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "fabric/vswitch_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t key[IBC_KEY_BYTES] = "the right key...";

static void answer_again(const uint8_t *data, size_t size)
{
	struct ibc_config_answer answer;
	uint8_t bytes[IBC_CONFIG_MAX_BYTES];
	if (!ibc_config_decode_answer(&answer, data, size))
		return;
	assert(ibc_config_encode_answer(&answer, bytes, sizeof(bytes)) == size);
	assert(memcmp(bytes, data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct vswitch_configured configured;
	static struct vswitch_counters counters;
	struct vswitch vswitch;
	uint8_t bytes[IBC_MAX_BYTES];
	if (size < 4 || size > IBC_MAX_PAYLOAD)
		return 0;
	answer_again(data + 4, size - 4);
	vswitch_init(&vswitch, data[0], data[0] & 1);
	for (uint8_t i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
		if (data[1] >> i % 8 & 1)
			vswitch_set_nic_port(&vswitch, i, data[2], i);
	vswitch.states[40] = data[2] & 1 ? VSWITCH_PORT_UP : VSWITCH_PORT_ABSENT;
	struct vswitch_owner owner = {
	        .vswitch = &vswitch, .counters = &counters, .key = data[0] & 2 ? key : NULL};
	struct ibc_packet packet = {.type = 1 + data[3] % (IBC_TYPE_COUNT - 1),
	                            .dest_apid = VSWITCH_APID_CONFIG,
	                            .source_apid = data[2] % 64,
	                            .route = {.pointer = 2, .hops = 1, .ports = {data[1] % 63}},
	                            .payload = data + 4,
	                            .payload_bytes = (uint16_t)(size - 4)};
	packet.reason = packet.type == IBC_TYPE_NACK ? IBC_REASON_LOOP : IBC_REASON_NONE;
	vswitch_configure(&owner, &packet, data[2] % IBC_END_OF_ROUTE, &configured);
	if (configured.set_port) {
		assert(owner.key != NULL && memcmp(packet.payload, key, IBC_KEY_BYTES) == 0);
		assert(vswitch_is_hardware(configured.port));
		assert(vswitch.states[configured.port] != VSWITCH_PORT_ABSENT);
	}
	if (configured.answered)
		assert(ibc_encode(&configured.answer, bytes, sizeof(bytes)) > 0);
	if (configured.answered && configured.answer.type != IBC_TYPE_NACK &&
	    data[4 + IBC_KEY_BYTES] != IBC_CONFIG_ECHO) {
		struct ibc_config_answer answer;
		assert(ibc_config_decode_answer(&answer, configured.answer.payload,
		                                configured.answer.payload_bytes));
	}
	return 0;
}
