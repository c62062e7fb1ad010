/* Any bytes as an IBC packet: what is accepted is encoded to the same bytes again, and a switch
 * makes of it a packet that is accepted. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/crc.h"
#include "fabric/vswitch.h"
#include "wire/be.h"
#include "wire/ibc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void forward(const struct ibc_packet *packet, uint8_t *bytes, size_t size)
{
	struct vswitch vswitch;
	struct ibc_packet again, nack;
	vswitch_init(&vswitch, 0, packet->transaction % 2 == 0);
	for (unsigned i = 0; i < VSWITCH_PORTS; i++)
		vswitch.states[i] = (uint8_t)(packet->guid >> i % 60 & 3) % 3;
	struct vswitch_result result =
	        vswitch_forward(&vswitch, packet, (uint8_t)(packet->dest_node % IBC_END_OF_ROUTE));
	assert(result.action < VSWITCH_ACTION_COUNT);
	if (result.action == VSWITCH_REJECT) {
		uint8_t out[IBC_MAX_BYTES];
		if (vswitch_nack(packet, result.reason, &nack))
			assert(ibc_encode(&nack, out, sizeof(out)) > 0);
		return;
	}
	ibc_rewrite(bytes, &result.route);
	assert(ibc_decode_header(&again, bytes, size) == IBC_OK);
}

/* Where it is, as transit is forwarded: also with a route that is too long, or a pointer anywhere.
 */
static void pass(uint8_t *bytes, size_t size)
{
	struct vswitch vswitch;
	struct vswitch_decision decision;
	struct ibc_packet packet, nack;
	uint8_t out[IBC_MAX_BYTES];
	vswitch_init(&vswitch, 0, false);
	memset(vswitch.states, VSWITCH_PORT_UP, sizeof(vswitch.states));
	if (vswitch_pass(&vswitch, bytes, size, 7, &decision) == IBC_OK &&
	    decision.action == VSWITCH_REJECT &&
	    vswitch_rejected(bytes, size, decision.reason, &packet) &&
	    vswitch_nack(&packet, decision.reason, &nack))
		assert(ibc_encode(&nack, out, sizeof(out)) > 0);
}

/* With checks that are right, so that the rest is reached. */
static void mend(uint8_t *bytes, size_t size)
{
	if (size < 40)
		return;
	size_t route = (bytes[2] + 4u) & ~3u;
	size_t payload = be16_load(bytes + 6), padded = (payload + 3) & ~(size_t)3;
	if (IBC_HEADER_BYTES + route + padded + IBC_CRC_BYTES != size)
		return;
	be32_store(bytes + 28, crc32c(crc32c(0, bytes, 28), bytes + 32, route));
	uint32_t crc = crc32c(crc32c(0, bytes, 1), bytes + 2, 26);
	be32_store(bytes + size - 4, crc32c(crc, bytes + IBC_HEADER_BYTES + route, payload));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t bytes[IBC_MAX_BYTES], again[IBC_MAX_BYTES];
	struct ibc_packet packet;
	if (size > sizeof(bytes))
		return 0;
	ibc_decode(&packet, data, size);
	memcpy(bytes, data, size);
	mend(bytes, size);
	memcpy(again, bytes, size);
	pass(again, size);
	if (ibc_decode(&packet, bytes, size) != IBC_OK)
		return 0;
	assert(ibc_encode(&packet, again, sizeof(again)) == size);
	assert(memcmp(bytes, again, size) == 0);
	forward(&packet, bytes, size);
	return 0;
}
