/* What a switch does with a packet that it consumes (VSWITCH paragraph 24, action 3): a command of
 * a manager that holds the right, the key that the owner of the node sets. Pure: the answer comes
 * out, and a port that is to go up or down; the caller sends the one and does the other. */
#ifndef FABRIC_VSWITCH_CONFIG_H
#define FABRIC_VSWITCH_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/vswitch.h"
#include "wire/ibc_config.h"

struct vswitch_counters {
	uint64_t packets[IBC_COUNTER_COUNT];
	uint64_t ports[VSWITCH_HARDWARE_PORTS][IBC_PORT_COUNTER_COUNT];
};

/* Count what became of a packet. Its caller counts damage and what the links do. */
void vswitch_count(struct vswitch_counters *counters, const struct vswitch_result *result);

struct vswitch_owner {
	const struct vswitch *vswitch;
	struct vswitch_counters *counters;
	const uint8_t *key; /* IBC_KEY_BYTES; NULL: nobody has the right */
};

struct vswitch_configured {
	bool set_port; /* to do: the hardware port .port is to go .up or down */
	bool answered; /* .answer is to go out of the port through which the command came */
	bool up;
	uint8_t port;
	struct ibc_packet answer; /* its payload is in .payload */
	uint8_t payload[IBC_MAX_PAYLOAD];
};

/* Carry out the command in @packet, which vswitch_forward() said to VSWITCH_CONSUME and which came
 * through @inport. One that is refused counts as rejected, too, so that an attempt to guess the key
 * shows. */
void vswitch_configure(const struct vswitch_owner *owner, const struct ibc_packet *packet,
                       uint8_t inport, struct vswitch_configured *configured);

#endif
