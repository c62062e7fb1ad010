/* RoCEv2 (IBTA volume 1 annex A17): InfiniBand transport in UDP, over IPv4 and IPv6.
 *
 *	IPv4 or IPv6   UDP   BTH  ETH...  payload  pad  ICRC
 *
 * An end is named by its GID. An IPv4 address is one of the form ::ffff:a.b.c.d; whether a path is
 *IPv4 or IPv6 follows from that.
 *
 * Two views. A datagram: all of the above, as captures and raw ports have it. A UDP payload: BTH to
 *ICRC, as a socket has it; the ICRC covers the IP and UDP headers all the same, so the path must be
 *the one that the host puts there. */
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
	bool dont_fragment; /* IPv4: set by every known sender, as the annex asks */
	bool udp_checksum;  /* compute it; else 0 is sent. IPv6 receivers may insist (RFC 8200
	                       section 8.1) */
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint32_t flow_label; /* IPv6 */
};

/* Is this the GID of an IPv4 address? */
bool roce_gid_is_ipv4(const uint8_t *gid);
/* Make one: @addr in host order. */
void roce_gid_from_ipv4(uint8_t *gid, uint32_t addr);

/* The ICRC seed (see icrc.h) for a UDP payload of @udp_payload_bytes, ICRC included, sent along
 * @path. */
uint32_t roce_icrc_seed(const struct roce_path *path, size_t udp_payload_bytes);

/* Put the ICRC behind @bytes of a packet, from the BTH on, that goes along @path: IB_ICRC_BYTES
 * more. */
void roce_udp_seal(const struct roce_path *path, uint8_t *packet, size_t bytes);

/* Write the UDP payload of @packet. Returns the bytes; 0: @capacity is too small or the packet
 * cannot be. */
size_t roce_udp_encode(const struct roce_path *path, const struct ib_packet *packet, uint8_t *out,
                       size_t capacity);

/* Take apart a UDP payload that came along @path: the GIDs and source port of its sender, the rest
 * as senders set it. Where @path is IPv4, any identification is taken that explains the ICRC (see
 * icrc_solve_ip_id()) and left in path->ip_id, which is tried first: leave it as the last packet of
 * the flow had it, or 0. */
enum ib_verdict roce_udp_decode(struct roce_path *path, struct ib_packet *packet, const uint8_t *in,
                                size_t bytes);

/* The same for whoever has the seed at hand: that of path->ip_id, which need not be computed for
 * each packet of a flow. */
enum ib_verdict roce_udp_decode_seeded(struct roce_path *path, uint32_t seed,
                                       struct ib_packet *packet, const uint8_t *in, size_t bytes);

/* Write the datagram. Returns the bytes; 0: @capacity is too small, the packet cannot be, or one
 * end is IPv4 and the other is not. */
size_t roce_encode(const struct roce_path *path, const struct ib_packet *packet, uint8_t *out,
                   size_t capacity);

/* Take apart a datagram. @bytes may be more than it uses (Ethernet pads short frames). Fills in
 * *path; path->udp_checksum says whether there was one. */
enum ib_verdict roce_decode(struct roce_path *path, struct ib_packet *packet, const uint8_t *in,
                            size_t bytes);

#endif
