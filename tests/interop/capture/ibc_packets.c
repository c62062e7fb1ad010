/* Writes a capture of IBC packets as they travel over UDP links, in frames (IPv4, UDP): one packet
 * of every type, every command to a switch with its answer, routes of 0 and of 62 hops, a
 * keep-alive. With a second argument: the same, then one packet with a damaged header and one with
 * a damaged payload. Prints a line per packet: what it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/vswitch_config.h"
#include "port/pcapng.h"
#include "wire/be.h"
#include "wire/ibc.h"
#include "wire/ip_headers.h"

#define LINK_HEADER_BYTES 12u

static struct pcapng file;
static uint32_t sequence;

/* The @bytes at @packet in a frame of a link; none: a keep-alive. */
static void put_frame(const uint8_t *packet, size_t bytes, const char *what)
{
	static uint8_t out[IPV4_BYTES + UDP_BYTES + LINK_HEADER_BYTES + IBC_MAX_BYTES];
	uint16_t udp_bytes = (uint16_t)(UDP_BYTES + LINK_HEADER_BYTES + bytes);
	struct ipv4_header ip = {.total_bytes = (uint16_t)(IPV4_BYTES + udp_bytes),
	                         .ttl = 64,
	                         .protocol = IP_PROTO_UDP,
	                         .src = 0x7f000001,
	                         .dst = 0x7f000001};
	struct udp_header udp = {.src_port = 17000, .dst_port = 17001, .length_bytes = udp_bytes};
	uint8_t *frame = out + IPV4_BYTES + UDP_BYTES;
	ipv4_encode(&ip, out);
	udp_encode(&udp, out + IPV4_BYTES);
	memcpy(frame, "HV", 2);
	frame[2] = bytes > 0 ? 1 : 2;
	frame[3] = 1;
	be32_store(frame + 4, sequence++);
	be16_store(frame + 8, (uint16_t)bytes);
	be16_store(frame + 10, 0);
	if (bytes > 0)
		memcpy(frame + LINK_HEADER_BYTES, packet, bytes);
	struct pcapng_packet record = {.time_ns = 1700000000000000000ull + sequence * 1000ull,
	                               .bytes = out,
	                               .captured = IPV4_BYTES + udp_bytes,
	                               .length = IPV4_BYTES + udp_bytes,
	                               .direction = PCAPNG_OUTBOUND};
	pcapng_put(&file, &record);
	puts(what);
}

static size_t encode(const struct ibc_packet *packet, uint8_t *bytes)
{
	size_t length = ibc_encode(packet, bytes, IBC_MAX_BYTES);
	if (length == 0)
		abort();
	return length;
}

static void put(const struct ibc_packet *packet, const char *what)
{
	uint8_t bytes[IBC_MAX_BYTES];
	put_frame(bytes, encode(packet, bytes), what);
}

/* The packet that heddle-ibc(7) shows, of @type. */
static struct ibc_packet sample(enum ibc_type type)
{
	return (struct ibc_packet){.type = type,
	                           .reason = type == IBC_TYPE_NACK ? IBC_REASON_PORT_DOWN
	                                                           : IBC_REASON_NONE,
	                           .source_apid = 33,
	                           .dest_apid = 40,
	                           .dest_node = 104,
	                           .guid = 1,
	                           .transaction = 7,
	                           .route = {.pointer = 1, .hops = 2, .ports = {3, 2}},
	                           .payload = (const uint8_t *)"hello",
	                           .payload_bytes = 5};
}

static void put_types(void)
{
	static const char *const names[IBC_TYPE_COUNT] = {
	        [IBC_TYPE_READ_REQUEST] = "read request",
	        [IBC_TYPE_WRITE_REQUEST] = "write request",
	        [IBC_TYPE_WRITE_REQUEST_NO_ACK] = "write request without acknowledgement",
	        [IBC_TYPE_READ_RESPONSE] = "read response",
	        [IBC_TYPE_WRITE_RESPONSE] = "write response",
	        [IBC_TYPE_NACK] = "NACK: port down"};
	for (unsigned type = IBC_TYPE_READ_REQUEST; type < IBC_TYPE_COUNT; type++) {
		struct ibc_packet packet = sample(type);
		put(&packet, names[type]);
	}
	struct ibc_packet packet = sample(IBC_TYPE_READ_REQUEST);
	packet.payload_bytes = 0;
	packet.route.hops = 0;
	put(&packet, "read request");
	packet.route.hops = IBC_MAX_HOPS;
	packet.route.reverse = true;
	packet.route.pointer = 0;
	put(&packet, "read request");
}

/* Every command, to a node with two ports and an application, and what the node answers. */
static void put_commands(void)
{
	static const char *const names[IBC_CONFIG_OPERATION_COUNT] = {
	        [IBC_CONFIG_ECHO] = "echo",
	        [IBC_CONFIG_PORTS] = "read ports",
	        [IBC_CONFIG_SET_PORT] = "set port",
	        [IBC_CONFIG_COUNTERS] = "read counters",
	        [IBC_CONFIG_PORT_COUNTERS] = "read port counters",
	        [IBC_CONFIG_APPLICATIONS] = "read applications",
	        [IBC_CONFIG_NICS] = "read NICs",
	        [IBC_CONFIG_TRACE] = "trace"};
	static const uint8_t key[IBC_KEY_BYTES] = {1, 2, 3};
	static struct vswitch_configured configured;
	static struct vswitch_counters counters;
	struct vswitch vswitch;
	struct vswitch_owner owner = {.vswitch = &vswitch, .counters = &counters, .key = key};
	vswitch_init(&vswitch, 104, false);
	vswitch_set_nic_port(&vswitch, 0, 2, 0);
	vswitch_set_nic_port(&vswitch, 1, 2, 1);
	vswitch.states[40] = VSWITCH_PORT_UP;
	for (unsigned i = IBC_CONFIG_ECHO; i < IBC_CONFIG_OPERATION_COUNT; i++) {
		struct ibc_config_command command = {.operation = i};
		uint8_t payload[64];
		char what[96];
		memcpy(command.key, key, sizeof(key));
		if (i == IBC_CONFIG_ECHO) {
			command.data = (const uint8_t *)"data";
			command.data_bytes = 4;
		}
		command.state = i == IBC_CONFIG_SET_PORT ? IBC_PORT_UP : IBC_PORT_ABSENT;
		struct ibc_packet packet = sample(IBC_TYPE_READ_REQUEST);
		packet.dest_apid = VSWITCH_APID_CONFIG;
		packet.route.pointer = 3;
		packet.payload = payload;
		packet.payload_bytes =
		        (uint16_t)ibc_config_encode(&command, payload, sizeof(payload));
		snprintf(what, sizeof(what), "read request, %s", names[i]);
		put(&packet, what);
		vswitch_configure(&owner, &packet, 0, &configured);
		if (!configured.answered)
			abort();
		snprintf(what, sizeof(what), "%s response, %s",
		         i == IBC_CONFIG_SET_PORT ? "write" : "read", names[i]);
		put(&configured.answer, what);
	}
}

static void put_damaged(void)
{
	struct ibc_packet packet = sample(IBC_TYPE_WRITE_REQUEST);
	uint8_t bytes[IBC_MAX_BYTES];
	size_t length = encode(&packet, bytes);
	bytes[4] ^= 1;
	put_frame(bytes, length, "damaged");
	bytes[4] ^= 1;
	bytes[36] ^= 1;
	put_frame(bytes, length, "damaged");
}

int main(int argc, char **argv)
{
	if (argc < 2 || pcapng_prepare(argv[1]) != 0 ||
	    pcapng_open(&file, argv[1], PCAPNG_RAW, "ibc", "IBC packets on a UDP link") != 0)
		return 1;
	put_types();
	put_commands();
	put_frame(NULL, 0, "keep-alive");
	if (argc > 2)
		put_damaged();
	pcapng_close(&file, 1700000001000000000ull);
	return 0;
}
