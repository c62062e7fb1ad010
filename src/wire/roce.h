/* RoCEv2 (IBTA volume 1 annex A17): InfiniBand transport in UDP, over IPv4 and IPv6.
 *
 * 	IPv4 or IPv6   UDP   BTH  ETH...  payload  pad  ICRC
 *
 * An end is named by its GID. An IPv4 address has the form ::ffff:a.b.c.d, which determines whether
 * a path is IPv4 or IPv6.
 *
 * There are two views. A datagram is all of the above, as in captures and on raw ports. A UDP
 * payload is BTH to ICRC, as a socket sees it. The ICRC still covers the IP and UDP headers, so the
 * path must match the headers that the host writes. */
#ifndef WIRE_ROCE_H
#define WIRE_ROCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/ib_packet.h"

#define ROCE_UDP_PORT 4791u

struct roce_path {
	uint8_t sgid[IB_GID_BYTES];
	uint8_t dgid[IB_GID_BYTES];
	uint16_t src_port;
	uint16_t ip_id;     /* IPv4 */
	bool dont_fragment; /* IPv4: set by every known sender, as the annex requires */
	/* Compute it, else send 0. IPv6 receivers may require it (RFC 8200 section 8.1). */
	bool udp_checksum;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint32_t flow_label; /* IPv6 */
};

/* Is this the GID of an IPv4 address? */
bool roce_gid_is_ipv4(const uint8_t *gid);
/* Make such a GID; @addr is in host byte order. */
void roce_gid_from_ipv4(uint8_t *gid, uint32_t addr);

/* The ICRC seed (see icrc.h) for a UDP payload of @udp_payload_bytes, ICRC included, sent along
 * @path. */
uint32_t roce_icrc_seed(const struct roce_path *path, size_t udp_payload_bytes);

/* Append the ICRC, IB_ICRC_BYTES, to @bytes of a packet, starting with the BTH, that goes along
 * @path. */
void roce_udp_seal(const struct roce_path *path, uint8_t *packet, size_t bytes);

/* Write the UDP payload of @packet. Returns the bytes; 0: @capacity is too small or the packet is
 * impossible. */
size_t roce_udp_encode(const struct roce_path *path, const struct ib_packet *packet, uint8_t *out,
                       size_t capacity);

/* Decode a UDP payload that came along @path: GIDs and source port are those of its sender, the
 * rest is as senders set it. If @path is IPv4, any identification that explains the ICRC is
 * accepted (see icrc_solve_ip_id()) and stored in path->ip_id, which is tried first: pass the value
 * of the last packet of the flow, or 0. */
enum ib_verdict roce_udp_decode(struct roce_path *path, struct ib_packet *packet, const uint8_t *in,
                                size_t bytes);

/* The same for a caller that already has the seed for path->ip_id, which need not be computed for
 * each packet of a flow. */
enum ib_verdict roce_udp_decode_seeded(struct roce_path *path, uint32_t seed,
                                       struct ib_packet *packet, const uint8_t *in, size_t bytes);

/* RoCE version 1 (IBTA annex A16): an Ethernet frame with Ethertype 0x8915.
 *
 * 	GRH  BTH  ETH...  payload  pad  ICRC
 *
 * Write what is behind the Ethernet header. Returns the bytes; 0: as roce_udp_encode(). */
size_t roce_frame_encode(const struct roce_path *path, const struct ib_packet *packet, uint8_t *out,
                         size_t capacity);
/* Decode it. @bytes may be more than it uses (Ethernet pads short frames). Fills in *path. */
enum ib_verdict roce_frame_decode(struct roce_path *path, struct ib_packet *packet,
                                  const uint8_t *in, size_t bytes);

/* Write the datagram. Returns the bytes; 0: @capacity is too small, the packet is impossible, or
 * only one end is IPv4. */
size_t roce_encode(const struct roce_path *path, const struct ib_packet *packet, uint8_t *out,
                   size_t capacity);

/* Decode a datagram. @bytes may be more than it uses (Ethernet pads short frames). Fills in *path;
 * path->udp_checksum tells whether there was one. */
enum ib_verdict roce_decode(struct roce_path *path, struct ib_packet *packet, const uint8_t *in,
                            size_t bytes);

#endif
