/* As much of IPv4 (RFC 791), IPv6 (RFC 8200), UDP (RFC 768) and TCP (RFC 9293) as RoCEv2 and
 * captures of iWARP need: headers without options or extensions, and whole datagrams only. Used for
 * captures, raw ports and tests: with a socket, the host writes and reads these headers. */
#ifndef WIRE_IP_HEADERS_H
#define WIRE_IP_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IPV4_BYTES   20u
#define IPV6_BYTES   40u
#define UDP_BYTES    8u
#define TCP_BYTES    20u
#define IP_PROTO_TCP 6u
#define IP_PROTO_UDP 17u

enum ip_verdict {
	IP_OK,
	IP_TRUNCATED, /* shorter than its headers say */
	IP_BAD_VERSION,
	IP_OPTIONS, /* IPv4 options, or a next header that is not UDP */
	IP_BAD_CHECKSUM,
	IP_FRAGMENT,
	IP_BAD_LENGTH /* the lengths of the headers contradict each other */
};

struct ipv4_header {
	uint8_t tos;
	uint16_t total_bytes;
	uint16_t id;
	bool dont_fragment;
	uint8_t ttl;
	uint8_t protocol;
	uint32_t src;
	uint32_t dst;
};

struct ipv6_header {
	uint8_t traffic_class;
	uint32_t flow_label; /* 20 bits */
	uint16_t payload_bytes;
	uint8_t next_header;
	uint8_t hop_limit;
	uint8_t src[16];
	uint8_t dst[16];
};

struct udp_header {
	uint16_t src_port;
	uint16_t dst_port;
	uint16_t length_bytes; /* header and payload */
	uint16_t checksum;     /* 0: none */
};

enum tcp_flags { TCP_FIN = 0x01, TCP_SYN = 0x02, TCP_RST = 0x04, TCP_PSH = 0x08, TCP_ACK = 0x10 };

struct tcp_header {
	uint16_t src_port;
	uint16_t dst_port;
	uint32_t seq;
	uint32_t ack;
	uint8_t flags; /* enum tcp_flags */
	uint16_t window;
	uint16_t checksum;
};

/* Encoding writes the fixed size and computes the IPv4 checksum. */
void ipv4_encode(const struct ipv4_header *h, uint8_t *out);
void ipv6_encode(const struct ipv6_header *h, uint8_t *out);
void udp_encode(const struct udp_header *h, uint8_t *out);
void tcp_encode(const struct tcp_header *h, uint8_t *out);

/* Decoding checks: @bytes are available, of which the datagram may use fewer. On IP_OK the header
 * is filled in and the whole datagram is within @bytes. */
enum ip_verdict ipv4_decode(struct ipv4_header *h, const uint8_t *in, size_t bytes);
enum ip_verdict ipv6_decode(struct ipv6_header *h, const uint8_t *in, size_t bytes);
/* @bytes: exactly what the IP header said. */
enum ip_verdict udp_decode(struct udp_header *h, const uint8_t *in, size_t bytes);

/* The UDP checksum over the pseudo header and @udp, whose own checksum field counts as 0; never 0
 * (RFC 768). */
uint16_t udp_checksum_ipv4(const struct ipv4_header *ip, const uint8_t *udp, size_t bytes);
uint16_t udp_checksum_ipv6(const struct ipv6_header *ip, const uint8_t *udp, size_t bytes);
/* The same of a TCP segment. */
uint16_t tcp_checksum_ipv4(const struct ipv4_header *ip, const uint8_t *tcp, size_t bytes);
uint16_t tcp_checksum_ipv6(const struct ipv6_header *ip, const uint8_t *tcp, size_t bytes);

#endif
