/* Forwarding a 64-byte IBC packet as a pure function (check the header, decide, rewrite), beside a
 * memcpy of the same bytes, which is the floor for anything that touches a packet once. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fabric/vswitch.h"
#include "figures.h"

#define TURNS   15u
#define PACKETS 1000000u
#define BYTES   64u

static uint8_t ring[64][BYTES]; /* fits into the first-level cache */

static double forward_turn(const struct vswitch *vswitch, const uint8_t *fresh)
{
	uint64_t start = clock_now_ns();
	for (unsigned i = 0; i < PACKETS; i++) {
		uint8_t *bytes = ring[i % 64];
		struct vswitch_decision decision;
		memcpy(bytes, fresh, BYTES); /* a new packet */
		if (vswitch_pass(vswitch, bytes, BYTES, 2, &decision) != IBC_OK ||
		    decision.action != VSWITCH_TRANSMIT)
			abort();
		__asm__ volatile("" ::"r"(bytes) : "memory");
	}
	return (double)PACKETS * 1e3 / (double)(clock_now_ns() - start);
}

/* As a process does that keeps the packet decoded. */
static double decode_turn(const struct vswitch *vswitch, const uint8_t *fresh)
{
	uint64_t start = clock_now_ns();
	for (unsigned i = 0; i < PACKETS; i++) {
		uint8_t *bytes = ring[i % 64];
		struct ibc_packet packet;
		memcpy(bytes, fresh, BYTES);
		if (ibc_decode_header(&packet, bytes, BYTES) != IBC_OK)
			abort();
		struct vswitch_result result = vswitch_forward(vswitch, &packet, 2);
		if (result.action != VSWITCH_TRANSMIT)
			abort();
		ibc_rewrite(bytes, &result.route);
		__asm__ volatile("" ::"r"(bytes) : "memory");
	}
	return (double)PACKETS * 1e3 / (double)(clock_now_ns() - start);
}

static double copy_turn(const uint8_t *fresh)
{
	uint64_t start = clock_now_ns();
	for (unsigned i = 0; i < PACKETS; i++) {
		memcpy(ring[i % 64], fresh, BYTES);
		__asm__ volatile("" ::"r"(ring[i % 64]) : "memory");
	}
	return (double)PACKETS * 1e3 / (double)(clock_now_ns() - start);
}

int main(void)
{
	struct vswitch vswitch;
	uint8_t fresh[BYTES];
	double forward[TURNS], decode[TURNS], copy[TURNS];
	struct ibc_packet packet = {.type = IBC_TYPE_WRITE_REQUEST,
	                            .source_apid = 33,
	                            .dest_apid = 40,
	                            .route = {.pointer = 1, .hops = 3, .ports = {3, 2, 5}},
	                            .payload = (const uint8_t *)"0123456789abcdef01234567",
	                            .payload_bytes = 24};
	vswitch_init(&vswitch, 0, true);
	vswitch_set_nic_port(&vswitch, 2, 1, 0);
	vswitch_set_nic_port(&vswitch, 3, 1, 1);
	vswitch.states[2] = vswitch.states[3] = VSWITCH_PORT_UP;
	if (ibc_encode(&packet, fresh, sizeof(fresh)) != BYTES)
		abort();
	figures_pin(0);
	for (unsigned i = 0; i < TURNS; i++) {
		forward[i] = forward_turn(&vswitch, fresh);
		decode[i] = decode_turn(&vswitch, fresh);
		copy[i] = copy_turn(fresh);
	}
	figures_report("memcpy of 64 bytes", copy, TURNS, "M/s");
	figures_report("forward a packet of 64 bytes", forward, TURNS, "M/s");
	figures_report("the same, decoded and encoded", decode, TURNS, "M/s");
	return 0;
}
