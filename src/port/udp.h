/* UDP sockets that carry RoCEv2: opened so that the headers which the host writes are known to the
 * sender, and used in batches.
 *
 * The ICRC of RoCEv2 covers the IP header, which a socket neither writes nor sees. So sockets are
 * unconnected and forbid fragments: then every datagram has IPv4 identification 0, and the packets
 * of one train (UDP_SEGMENT: one call, many datagrams of one length) have 0, 1, 2 and so on.
 *
 * Addresses are GIDs: IPv6 as it is, IPv4 as ::ffff:a.b.c.d. */
#ifndef PORT_UDP_H
#define PORT_UDP_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define UDP_ROCE_PORT       4791u
#define UDP_MAX_PACKETS     64u     /* of a train: what every kernel that knows UDP_SEGMENT takes */
#define UDP_MAX_TRAIN_BYTES 65000u  /* with its headers below what IPv4 can say */
#define UDP_MAX_TRAINS      32u     /* of one call */
#define UDP_BATCH           16u     /* datagrams, or trains that came joined, of one call */
#define UDP_RECEIVE_BYTES   65536u  /* the most that one of them can be */
#define UDP_BUFFER_BYTES    8388608 /* asked of the kernel, which may give less */
#define UDP_HOP_LIMIT       64u     /* where the path says none */
#define UDP_ECT             2u      /* ECN: the sender listens to congestion (RFC 3168: ECT(0)) */
#define UDP_CE              3u      /* and this is congestion */
#define UDP_ADDRESS_TEXT    64u
#define UDP_MAX_ADDRESSES   2u /* that a node is on at a time */

/* Source ports for senders: RFC 7348 and annex A17 agree on the dynamic range, so that routers
 * spread flows by them. */
#define UDP_FIRST_SOURCE_PORT 0xc000u
#define UDP_SOURCE_PORTS      0x4000u

struct udp_address {
	uint8_t gid[16];
	uint32_t scope; /* IPv6 link-local: the interface */
};

/* The traffic class of a sender that listens to congestion, unless @tos says something about that
 * itself. */
static inline uint8_t udp_ect(uint8_t tos)
{
	return (tos & 3) == 0 ? (uint8_t)(tos | UDP_ECT) : tos;
}

/* Read "192.0.2.1", "2001:db8::1" or "fe80::1%eth0". False: this is no address of one host. */
bool udp_address_parse(const char *text, struct udp_address *out);
/* Read one, or several different ones with commas between them. Returns how many; 0: one of them is
 * none, or they are too many. */
unsigned udp_addresses_parse(const char *text, struct udp_address out[UDP_MAX_ADDRESSES]);
void udp_address_print(const struct udp_address *address, char text[UDP_ADDRESS_TEXT]);
bool udp_address_is_ipv4(const struct udp_address *address);
bool udp_address_is_group(const struct udp_address *address);
bool udp_address_is_loopback(const struct udp_address *address);
bool udp_address_equal(const struct udp_address *a, const struct udp_address *b);

/* The network namespace of this process: two numbers that no other one has meanwhile. Zeros: nobody
 * can tell. */
void udp_network(uint64_t network[2]);

/* The interface that has @address. *mtu: 0 where it cannot be told. 0; -EADDRNOTAVAIL; other errors
 * of getifaddrs(). */
int udp_interface(const struct udp_address *address, char name[IF_NAMESIZE], unsigned *mtu);

/* A socket on @address, @port (0: some port of the dynamic range), that nobody else can share. The
 * descriptor, non-blocking and close-on-exec, or -errno. */
int udp_open(const struct udp_address *address, uint16_t port);
/* The same for a socket that joins those of this user that share the port already; see steer.h. */
int udp_open_shared(const struct udp_address *address, uint16_t port);
/* Can packets to @address leave? Not while its interface is down. */
bool udp_has_route(const struct udp_address *address);
/* For sending alone: nothing is ever queued there. *port: what was found. */
int udp_open_sender(const struct udp_address *address, uint16_t *port);
/* A socket that gets what is sent to @group on the interface that has @address; others may have it
 * too. */
int udp_open_group(const struct udp_address *address, const struct udp_address *group,
                   uint16_t port);
/* From @sock, which is on @address, groups are sent to by the interface of that address. @loop:
 * members on this machine get it too. 0 or -errno. */
int udp_send_to_groups(int sock, const struct udp_address *address, bool loop);
/* What is sent from @sock, but to groups, may pass so many hops; before that UDP_HOP_LIMIT. */
bool udp_set_hops(int sock, const struct udp_address *address, uint8_t hops);
/* Throw away what waits. */
void udp_drain(int sock);

/* --- sending --- */

/* Packets to one place, one behind the other in memory; all have @packet_bytes, the last may have
 * fewer. */
struct udp_train {
	struct udp_address to;
	uint8_t tos, hop_limit; /* traffic class; 0: as many hops as the socket has by itself */
	uint16_t packets;
	uint32_t packet_bytes, bytes;
	const uint8_t *data;
};

/* Send in order to UDP_ROCE_PORT. Returns how many went; fewer than @count: *error says why the
 * next one did not. EAGAIN: no room now. EIO, EINVAL: if it has several packets, perhaps they can
 * be sent one by one (and then with identification 0). EMSGSIZE: longer than the path takes. */
unsigned udp_send(int sock, const struct udp_train *trains, unsigned count, int *error);

/* --- receiving --- */

/* One datagram, or several of one sender that were joined on the way: all have @packet_bytes, the
 * last may have fewer. */
struct udp_came {
	struct udp_address from;
	uint16_t from_port;
	uint8_t tos, hop_limit;
	uint32_t packet_bytes, bytes;
	const uint8_t *data; /* until the next call */
};

union udp_name {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* Room for a batch. */
struct udp_receiver {
	uint8_t *room;
	unsigned batch; /* asked for next: more while they come in numbers */
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
/* What waits, at most UDP_BATCH. Returns the number, 0: nothing, or -errno. */
int udp_receive(struct udp_receiver *receiver, int sock, struct udp_came came[UDP_BATCH]);

#endif
