/* UDP sockets that carry RoCEv2. They are opened so that the sender knows the headers that the host
 * writes, and they are used in batches.
 *
 * The ICRC of RoCEv2 covers the IP header, which a socket neither writes nor sees. So sockets are
 * unconnected and forbid fragmentation: then every datagram has IPv4 identification 0, and the
 * packets of one train (UDP_SEGMENT: one call, many datagrams of one length) have 0, 1, 2 and so
 * on.
 *
 * Addresses are GIDs: IPv6 as it is, IPv4 as ::ffff:a.b.c.d. Some stand for an Ethernet interface;
 * sockets there carry frames (ether.h), but sending, receiving and waiting is the same. */
#ifndef PORT_UDP_H
#define PORT_UDP_H

#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define UDP_ROCE_PORT       4791u
#define UDP_MAX_PACKETS     64u     /* per train: what every kernel with UDP_SEGMENT accepts */
#define UDP_MAX_TRAIN_BYTES 65000u  /* with headers within the IPv4 length limit */
#define UDP_MAX_TRAINS      32u     /* per call */
#define UDP_BATCH           16u     /* datagrams, or joined trains, per call */
#define UDP_RECEIVE_BYTES   65536u  /* the maximum length of one of them */
#define UDP_BUFFER_BYTES    8388608 /* requested from the kernel, which may grant less */
#define UDP_HOP_LIMIT       64u     /* if the path gives none */
#define UDP_ECT             2u      /* ECN: the sender reacts to congestion (RFC 3168: ECT(0)) */
#define UDP_CE              3u      /* congestion experienced */
#define UDP_ADDRESS_TEXT    64u
/* Priorities (socket(7), SO_PRIORITY) that need no privilege and that the kernel's default queues
 * put before and behind all others (tc-prio(8)); without one, a socket has priority 0. */
#define UDP_PRIORITY_URGENT 6
#define UDP_PRIORITY_BULK   2
#define UDP_MAX_ADDRESSES   8u /* addresses of a node */

/* Source ports for senders: RFC 7348 and annex A17 agree on the dynamic range, so that routers
 * spread flows by them. */
#define UDP_FIRST_SOURCE_PORT 0xc000u
#define UDP_SOURCE_PORTS      0x4000u

struct udp_address {
	uint8_t gid[16];
	uint32_t scope;  /* IPv6 link-local, and frames: the interface */
	uint32_t frames; /* 1: Ethernet frames on the interface, instead of UDP (ether.h) */
};

/* An address as the calls of the operating system take it. */
union udp_name {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_ll ll;
};

/* The traffic class of a sender that reacts to congestion, unless @tos already contains ECN
 * bits. */
static inline uint8_t udp_ect(uint8_t tos)
{
	return (tos & 3) == 0 ? (uint8_t)(tos | UDP_ECT) : tos;
}

/* Read "192.0.2.1", "2001:db8::1" or "fe80::1%eth0". False: not the address of one host. */
bool udp_address_parse(const char *text, struct udp_address *out);
/* Read one address, or several different ones separated by commas. Returns the number; 0: one of
 * them is invalid, or there are too many. */
unsigned udp_addresses_parse(const char *text, struct udp_address out[UDP_MAX_ADDRESSES]);
void udp_address_print(const struct udp_address *address, char text[UDP_ADDRESS_TEXT]);
bool udp_address_is_ipv4(const struct udp_address *address);
bool udp_address_is_group(const struct udp_address *address);
bool udp_address_is_loopback(const struct udp_address *address);
/* Can a socket on @own send to @to, as far as the kind of address goes? */
bool udp_address_reaches(const struct udp_address *own, const struct udp_address *to);
bool udp_address_equal(const struct udp_address *a, const struct udp_address *b);

/* Write @address and @port to @name. Returns how many bytes of it count. */
socklen_t udp_name_of(const struct udp_address *address, uint16_t port, union udp_name *name);
void udp_address_of(const union udp_name *name, struct udp_address *address, uint16_t *port);

/* The network namespace of this process: two numbers that identify it while it exists. Zeroes:
 * unknown. */
void udp_network(uint64_t network[2]);

/* The interface that has @address. *mtu: 0 if unknown. Returns 0; -EADDRNOTAVAIL; other errors of
 * getifaddrs(). */
int udp_interface(const struct udp_address *address, char name[IF_NAMESIZE], unsigned *mtu);

/* Ask for large buffers. */
void udp_set_buffers(int sock);
/* Open a socket on @address, @port (0: some port of the dynamic range), that no other socket can
 * share. Returns the descriptor, non-blocking and close-on-exec, or -errno. */
int udp_open(const struct udp_address *address, uint16_t port);
/* The same for a socket that joins sockets of this user that already share the port; see
 * steer.h. */
int udp_open_shared(const struct udp_address *address, uint16_t port);
/* Open an ordinary socket on @address, *port (0: any, which is returned): datagrams may be
 * fragmented. Returns the descriptor or -errno. */
int udp_open_plain(const struct udp_address *address, uint16_t *port);
/* Can packets to @address leave? Not while its interface is down. */
bool udp_has_route(const struct udp_address *address);
/* Open a socket only for sending: it never queues received packets. *port: the port that was
 * found. */
int udp_open_sender(const struct udp_address *address, uint16_t *port);
/* Open a socket that receives what is sent to @group on the interface that has @address; other
 * sockets may receive it too. */
int udp_open_group(const struct udp_address *address, const struct udp_address *group,
                   uint16_t port);
/* Send packets to groups from @sock, which is on @address, through the interface of that address.
 * @loop: members on this machine get them too. Returns 0 or -errno. */
int udp_send_to_groups(int sock, const struct udp_address *address, bool loop);
/* Set the hop limit of packets from @sock, except to groups; the default is UDP_HOP_LIMIT. */
bool udp_set_hops(int sock, const struct udp_address *address, uint8_t hops);
/* Set the traffic class of packets from @sock, and their priority where the kernel queues them.
 * False: it has neither. */
bool udp_set_class(int sock, const struct udp_address *address, uint8_t tos, int priority);
/* Discard all received packets. */
void udp_drain(int sock);

/* --- sending --- */

/* Packets to one destination, back to back in memory; all have @packet_bytes, the last may have
 * fewer. */
struct udp_train {
	struct udp_address to;
	uint16_t port;          /* 0: UDP_ROCE_PORT */
	uint8_t tos, hop_limit; /* traffic class; hop limit, 0: that of the socket */
	bool has_tos;           /* the socket has this traffic class (udp_set_class()) */
	uint16_t packets;
	uint32_t packet_bytes, bytes;
	const uint8_t *data;
};

/* Send in order. Returns how many were sent; if fewer than @count, *error says why
 * the next one was not. EAGAIN: no room now. EIO, EINVAL: if the train has several packets, perhaps
 * they can be sent one by one (and then with identification 0). EMSGSIZE: longer than the path
 * allows. */
unsigned udp_send(int sock, const struct udp_train *trains, unsigned count, int *error);

/* --- receiving --- */

/* One datagram, or several from one sender that were joined in transit: all have @packet_bytes, the
 * last may have fewer. */
struct udp_came {
	struct udp_address from;
	uint16_t from_port;
	uint8_t tos, hop_limit;
	uint32_t packet_bytes, bytes;
	const uint8_t *data; /* valid until the next call */
};

/* Buffers for one batch. */
struct udp_receiver {
	uint8_t *room;
	unsigned batch; /* size of the next batch; grows while many packets arrive */
	bool streak;    /* the last call found something */
	struct mmsghdr headers[UDP_BATCH];
	struct iovec parts[UDP_BATCH];
	union udp_name names[UDP_BATCH];
	union {
		struct cmsghdr header;
		uint8_t room[3 * CMSG_SPACE(sizeof(int))];
	} controls[UDP_BATCH];
};

/* 0 or -errno. */
int udp_receiver_begin(struct udp_receiver *receiver);
void udp_receiver_end(struct udp_receiver *receiver);
/* Receive at most UDP_BATCH. Returns the number, 0: nothing, or -errno. */
int udp_receive(struct udp_receiver *receiver, int sock, struct udp_came came[UDP_BATCH]);

#endif
