/* The two checksums of an InfiniBand packet.
 *
 * The invariant CRC (IBTA volume 1 section 7.8.1; annex A17 for RoCEv2) covers what no switch or
 * router changes: it is a CRC-32 over the packet from its first header up to the ICRC, with every
 * bit that may change on the way taken as 1:
 *
 * 	LRH, local packet       VL
 * 	LRH, global packet      all of it
 * 	GRH                     traffic class, flow label, hop limit
 * 	BTH                     the byte resv8a (FECN, BECN and six reserved bits)
 * 	RoCEv2                  eight bytes of ones instead of an LRH, then
 * 	  IPv4                  type of service, time to live, header checksum
 * 	  IPv6                  traffic class, flow label, hop limit
 * 	  UDP                   checksum
 *
 * It is computed in two steps, so that a sender need not have all headers in one buffer: a seed
 * over what precedes the BTH, then the BTH and what follows. Headers and payload may come in
 * pieces: continue with crc32_ieee().
 *
 * The variant CRC (section 7.8.2) is a CRC-16 over everything before it.
 *
 * Both are on the wire with their least significant byte first: the first bit sent is the highest
 * power of x. */
#ifndef WIRE_ICRC_H
#define WIRE_ICRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Seeds. Each function takes headers as they are on the wire: IB_LRH_BYTES; IB_GRH_BYTES, without
 * the LRH; an IPv4 header without options and UDP, 28 bytes; an IPv6 header and UDP, 48 bytes. */
uint32_t icrc_seed_lrh(const uint8_t *lrh);
uint32_t icrc_seed_grh(const uint8_t *grh);
uint32_t icrc_seed_ipv4(const uint8_t *ip_and_udp);
uint32_t icrc_seed_ipv6(const uint8_t *ip_and_udp);

/* How an IPv4 identification other than 0 changes the seed: exclusive or. */
uint32_t icrc_seed_ip_id(uint16_t id);

/* Continue @seed over @bytes from the BTH on, at least IB_BTH_BYTES. Over the whole packet up to
 * the ICRC this gives the ICRC. */
uint32_t icrc_transport(uint32_t seed, const uint8_t *bth, size_t bytes);

void icrc_put(uint8_t *at, uint32_t icrc);
uint32_t icrc_get(const uint8_t *at);
void vcrc_put(uint8_t *at, uint16_t vcrc);
uint16_t vcrc_get(const uint8_t *at);

#define ICRC_MAX_BYTES_BEHIND_ID \
	65533u /* more than an IPv4 datagram can hold; beyond it there is no solution */

/* Which IPv4 identification explains the ICRC of a packet whose IPv4 header was not seen?
 * @with_zero is the ICRC computed with identification 0, @received the one in the packet,
 * @bytes_behind the number of bytes between the identification and the ICRC. True: *id is the only
 * value that explains it. False: none does, and the packet is damaged; *id is untouched. A damaged
 * packet passes by chance once in 65536 times; with a known identification it is once in 2^32. */
bool icrc_solve_ip_id(uint32_t with_zero, uint32_t received, size_t bytes_behind, uint16_t *id);

#endif
