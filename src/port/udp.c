/* UDP sockets that carry RoCEv2. See udp.h. */
#include "port/udp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mac.h"
#include "base/prng.h"
#include "port/ether.h"

#define PORT_TRIES 64

static const uint8_t ipv4_prefix[12] = {[10] = 0xff, [11] = 0xff};

bool udp_address_is_ipv4(const struct udp_address *address)
{
	return memcmp(address->gid, ipv4_prefix, sizeof(ipv4_prefix)) == 0;
}

bool udp_address_is_group(const struct udp_address *address)
{
	return udp_address_is_ipv4(address) ? (address->gid[12] & 0xf0) == 0xe0
	                                    : address->gid[0] == 0xff;
}

bool udp_address_is_loopback(const struct udp_address *address)
{
	static const uint8_t six[16] = {[15] = 1};
	return udp_address_is_ipv4(address) ? address->gid[12] == 127
	                                    : memcmp(address->gid, six, sizeof(six)) == 0;
}

bool udp_address_reaches(const struct udp_address *own, const struct udp_address *to)
{
	uint8_t mac[MAC_BYTES];
	if (own->frames)
		return mac_from_gid(to->gid, mac);
	return udp_address_is_ipv4(own) == udp_address_is_ipv4(to);
}

bool udp_address_equal(const struct udp_address *a, const struct udp_address *b)
{
	return memcmp(a->gid, b->gid, sizeof(a->gid)) == 0 && a->scope == b->scope &&
	       a->frames == b->frames;
}

static bool udp_is_link_local(const struct udp_address *address)
{
	return address->gid[0] == 0xfe && (address->gid[1] & 0xc0) == 0x80;
}

/* The interface after '%', by name or number; 0: there is none. */
static uint32_t scope_of(const char *text)
{
	char *end;
	uint32_t index = if_nametoindex(text);
	if (index != 0)
		return index;
	unsigned long number = strtoul(text, &end, 10);
	return *text != '\0' && *end == '\0' && number <= UINT32_MAX ? (uint32_t)number : 0;
}

bool udp_address_parse(const char *text, struct udp_address *out)
{
	static const uint8_t none[16], broadcast[4] = {255, 255, 255, 255};
	char plain[UDP_ADDRESS_TEXT];
	*out = (struct udp_address){0};
	if (inet_pton(AF_INET, text, out->gid + sizeof(ipv4_prefix)) == 1) {
		memcpy(out->gid, ipv4_prefix, sizeof(ipv4_prefix));
		return memcmp(out->gid + 12, none, 4) != 0 &&
		       memcmp(out->gid + 12, broadcast, 4) != 0 && !udp_address_is_group(out);
	}
	if (snprintf(plain, sizeof(plain), "%s", text) >= (int)sizeof(plain))
		return false;
	char *percent = strchr(plain, '%');
	if (percent != NULL)
		*percent++ = '\0';
	if (inet_pton(AF_INET6, plain, out->gid) != 1)
		return false;
	if (percent != NULL)
		out->scope = scope_of(percent);
	return memcmp(out->gid, none, sizeof(none)) != 0 && !udp_address_is_group(out) &&
	       udp_is_link_local(out) == (out->scope != 0);
}

unsigned udp_addresses_parse(const char *text, struct udp_address out[UDP_MAX_ADDRESSES])
{
	char one[UDP_ADDRESS_TEXT];
	for (unsigned count = 0; count < UDP_MAX_ADDRESSES; count++) {
		size_t length = strcspn(text, ",");
		if (length >= sizeof(one))
			return 0;
		memcpy(one, text, length);
		one[length] = '\0';
		if (!udp_address_parse(one, &out[count]))
			return 0;
		for (unsigned i = 0; i < count; i++)
			if (udp_address_equal(&out[i], &out[count]))
				return 0;
		if (text[length] == '\0')
			return count + 1;
		text += length + 1;
	}
	return 0;
}

void udp_address_print(const struct udp_address *address, char text[UDP_ADDRESS_TEXT])
{
	char name[IF_NAMESIZE];
	if (udp_address_is_ipv4(address)) {
		inet_ntop(AF_INET, address->gid + sizeof(ipv4_prefix), text, UDP_ADDRESS_TEXT);
		return;
	}
	if (address->frames && if_indextoname(address->scope, name) != NULL) {
		snprintf(text, UDP_ADDRESS_TEXT, "interface %s", name);
		return;
	}
	inet_ntop(AF_INET6, address->gid, text, INET6_ADDRSTRLEN);
	if (address->scope != 0 && if_indextoname(address->scope, name) != NULL) {
		size_t length = strlen(text);
		snprintf(text + length, UDP_ADDRESS_TEXT - length, "%%%s", name);
	}
}

socklen_t udp_name_of(const struct udp_address *address, uint16_t port, union udp_name *name)
{
	if (address->frames)
		return ether_name_of(address, port, name);
	if (udp_address_is_ipv4(address)) {
		name->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
		memcpy(&name->v4.sin_addr, address->gid + sizeof(ipv4_prefix), 4);
		return sizeof(name->v4);
	}
	name->v6 = (struct sockaddr_in6){
	        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_scope_id = address->scope};
	memcpy(&name->v6.sin6_addr, address->gid, 16);
	return sizeof(name->v6);
}

void udp_address_of(const union udp_name *name, struct udp_address *address, uint16_t *port)
{
	*address = (struct udp_address){0};
	if (name->any.sa_family == AF_PACKET) {
		ether_address_of(name, address, port);
		return;
	}
	if (name->any.sa_family == AF_INET) {
		memcpy(address->gid, ipv4_prefix, sizeof(ipv4_prefix));
		memcpy(address->gid + sizeof(ipv4_prefix), &name->v4.sin_addr, 4);
		*port = ntohs(name->v4.sin_port);
		return;
	}
	memcpy(address->gid, &name->v6.sin6_addr, 16);
	address->scope = name->v6.sin6_scope_id;
	*port = ntohs(name->v6.sin6_port);
}

static bool udp_has_address(const struct ifaddrs *at, const struct udp_address *address)
{
	struct udp_address its;
	uint16_t port;
	if (at->ifa_addr == NULL || (at->ifa_flags & IFF_UP) == 0)
		return false;
	if (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6)
		return false;
	udp_address_of((const union udp_name *)(const void *)at->ifa_addr, &its, &port);
	/* All of 127.0.0.0/8 is this machine, although only one of its addresses is listed. */
	if (udp_address_is_ipv4(address) && address->gid[12] == 127)
		return udp_address_is_ipv4(&its) && its.gid[12] == 127;
	return memcmp(its.gid, address->gid, sizeof(its.gid)) == 0 &&
	       (address->scope == 0 || its.scope == address->scope);
}

static unsigned mtu_of(const char *name)
{
	struct ifreq request = {0};
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
	int result = sock >= 0 ? ioctl(sock, SIOCGIFMTU, &request) : -1;
	if (sock >= 0)
		close(sock);
	return result == 0 && request.ifr_mtu > 0 ? (unsigned)request.ifr_mtu : 0;
}

void udp_network(uint64_t network[2])
{
	struct stat st;
	network[0] = network[1] = 0;
	if (stat("/proc/self/ns/net", &st) != 0)
		return;
	network[0] = st.st_dev;
	network[1] = st.st_ino;
}

int udp_interface(const struct udp_address *address, char name[IF_NAMESIZE], unsigned *mtu)
{
	struct ifaddrs *list;
	int result = -EADDRNOTAVAIL;
	if (address->frames)
		return ether_interface(address, name, mtu);
	if (getifaddrs(&list) != 0)
		return -errno;
	for (const struct ifaddrs *at = list; at != NULL && result != 0; at = at->ifa_next)
		if (udp_has_address(at, address)) {
			snprintf(name, IF_NAMESIZE, "%s", at->ifa_name);
			result = 0;
		}
	freeifaddrs(list);
	*mtu = result == 0 ? mtu_of(name) : 0;
	return result;
}

/* --- opening --- */

static bool option(int sock, int level, int name, int value)
{
	return setsockopt(sock, level, name, &value, sizeof(value)) == 0;
}

/* Exceed the system limit if we have the privilege, else use the limit. */
static void set_buffer(int sock, int forced, int asked, int bytes)
{
	if (!option(sock, SOL_SOCKET, forced, bytes))
		option(sock, SOL_SOCKET, asked, bytes);
}

void udp_set_buffers(int sock)
{
	set_buffer(sock, SO_SNDBUFFORCE, SO_SNDBUF, UDP_BUFFER_BYTES);
	set_buffer(sock, SO_RCVBUFFORCE, SO_RCVBUF, UDP_BUFFER_BYTES);
}

/* Options that the ICRC depends on must succeed; the others are optional. */
static bool set_options(int sock, bool ipv4)
{
	option(sock, IPPROTO_UDP, UDP_GRO, 1);
	set_buffer(sock, SO_SNDBUFFORCE, SO_SNDBUF, UDP_BUFFER_BYTES);
	if (ipv4) {
		option(sock, IPPROTO_IP, IP_RECVTTL, 1);
		option(sock, IPPROTO_IP, IP_RECVTOS, 1);
		option(sock, IPPROTO_IP, IP_TOS, UDP_ECT);
		option(sock, IPPROTO_IP, IP_TTL, UDP_HOP_LIMIT);
		return option(sock, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	}
	/* Some senders, such as Linux's rdma_rxe, send no UDP checksum: the ICRC covers more than
	 * it would. */
	option(sock, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
	option(sock, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
	option(sock, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	option(sock, IPPROTO_IPV6, IPV6_TCLASS, UDP_ECT);
	option(sock, IPPROTO_IPV6, IPV6_UNICAST_HOPS, UDP_HOP_LIMIT);
	return option(sock, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) &&
	       option(sock, IPPROTO_IPV6, IPV6_V6ONLY, 1);
}

static int new_socket(const struct udp_address *address)
{
	bool ipv4 = udp_address_is_ipv4(address);
	int sock = fd_aside(
	        socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (sock < 0)
		return -errno;
	if (set_options(sock, ipv4))
		return sock;
	int error = errno;
	close(sock);
	return -error;
}

static int udp_bind_to(int sock, const struct udp_address *address, uint16_t port)
{
	union udp_name name;
	socklen_t bytes = udp_name_of(address, port, &name);
	return bind(sock, &name.any, bytes) == 0 ? 0 : -errno;
}

static int open_at(const struct udp_address *address, uint16_t port, bool shared)
{
	int sock = new_socket(address);
	if (sock < 0)
		return sock;
	set_buffer(sock, SO_RCVBUFFORCE, SO_RCVBUF, UDP_BUFFER_BYTES);
	int result = shared && !option(sock, SOL_SOCKET, SO_REUSEPORT, 1)
	                     ? -errno
	                     : udp_bind_to(sock, address, port);
	if (result == 0)
		return sock;
	close(sock);
	return result;
}

int udp_open_plain(const struct udp_address *address, uint16_t *port)
{
	union udp_name name;
	socklen_t bytes = udp_name_of(address, *port, &name);
	int sock =
	        fd_aside(socket(name.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (sock < 0)
		return -errno;
	socklen_t bound = sizeof(name);
	struct udp_address own;
	if (bind(sock, &name.any, bytes) != 0 || getsockname(sock, &name.any, &bound) != 0) {
		int error = errno;
		fd_close(sock);
		return -error;
	}
	udp_address_of(&name, &own, port);
	return sock;
}

int udp_open(const struct udp_address *address, uint16_t port)
{
	return open_at(address, port, false);
}

int udp_open_shared(const struct udp_address *address, uint16_t port)
{
	return open_at(address, port, true);
}

bool udp_has_route(const struct udp_address *address)
{
	union udp_name name;
	socklen_t bytes = udp_name_of(address, UDP_ROCE_PORT, &name);
	int sock = socket(name.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool leads = sock < 0 || connect(sock, &name.any, bytes) == 0 || errno != ENETUNREACH;
	if (sock >= 0)
		close(sock);
	return leads;
}

int udp_open_sender(const struct udp_address *address, uint16_t *port)
{
	struct prng prng;
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog filter = {.len = 1, .filter = &nothing};
	int result = -EADDRINUSE, sock = new_socket(address);
	if (sock < 0)
		return sock;
	prng_seed_from_os(&prng);
	setsockopt(sock, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter));
	for (int tries = 0; tries < PORT_TRIES && result == -EADDRINUSE; tries++) {
		*port = (uint16_t)(UDP_FIRST_SOURCE_PORT + prng_below(&prng, UDP_SOURCE_PORTS));
		result = udp_bind_to(sock, address, *port);
	}
	if (result == 0)
		return sock;
	close(sock);
	return result;
}

/* IPv6 identifies interfaces by number. */
static unsigned interface_index(const struct udp_address *address)
{
	char name[IF_NAMESIZE];
	unsigned mtu;
	return udp_interface(address, name, &mtu) == 0 ? if_nametoindex(name) : 0;
}

int udp_send_to_groups(int sock, const struct udp_address *address, bool loop)
{
	bool done;
	if (udp_address_is_ipv4(address)) {
		struct ip_mreqn by = {0};
		memcpy(&by.imr_address, address->gid + sizeof(ipv4_prefix), 4);
		done = setsockopt(sock, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof(by)) == 0 &&
		       option(sock, IPPROTO_IP, IP_MULTICAST_TTL, UDP_HOP_LIMIT) &&
		       option(sock, IPPROTO_IP, IP_MULTICAST_LOOP, loop);
	} else {
		done = option(sock, IPPROTO_IPV6, IPV6_MULTICAST_IF,
		              (int)interface_index(address)) &&
		       option(sock, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, UDP_HOP_LIMIT) &&
		       option(sock, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, loop);
	}
	return done ? 0 : -errno;
}

bool udp_set_hops(int sock, const struct udp_address *address, uint8_t hops)
{
	return udp_address_is_ipv4(address) ? option(sock, IPPROTO_IP, IP_TTL, hops)
	                                    : option(sock, IPPROTO_IPV6, IPV6_UNICAST_HOPS, hops);
}

bool udp_set_class(int sock, const struct udp_address *address, uint8_t tos, int priority)
{
	/* Setting IPv4's sets the priority, too, to one that RFC 2474 has made meaningless. */
	return (udp_address_is_ipv4(address) ? option(sock, IPPROTO_IP, IP_TOS, tos)
	                                     : option(sock, IPPROTO_IPV6, IPV6_TCLASS, tos)) &&
	       option(sock, SOL_SOCKET, SO_PRIORITY, priority);
}

static bool port_udp_join(int sock, const struct udp_address *address,
                          const struct udp_address *group)
{
	if (udp_address_is_ipv4(address)) {
		struct ip_mreqn membership = {0};
		memcpy(&membership.imr_multiaddr, group->gid + sizeof(ipv4_prefix), 4);
		memcpy(&membership.imr_address, address->gid + sizeof(ipv4_prefix), 4);
		return setsockopt(sock, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership,
		                  sizeof(membership)) == 0;
	}
	struct ipv6_mreq membership = {.ipv6mr_interface = interface_index(address)};
	memcpy(&membership.ipv6mr_multiaddr, group->gid, 16);
	return setsockopt(sock, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &membership,
	                  sizeof(membership)) == 0;
}

int udp_open_group(const struct udp_address *address, const struct udp_address *group,
                   uint16_t port)
{
	/* Bound to the group address, so that the socket receives nothing else. Each socket that
	 * shares the port gets a copy of group packets. */
	struct udp_address name = *group;
	bool ipv4 = udp_address_is_ipv4(group);
	int sock = new_socket(group), result = 0;
	if (sock < 0)
		return sock;
	set_buffer(sock, SO_RCVBUFFORCE, SO_RCVBUF, UDP_BUFFER_BYTES);
	if (!ipv4)
		name.scope = interface_index(address); /* a link-local group needs one */
	if (!option(sock, SOL_SOCKET, SO_REUSEADDR, 1))
		result = -errno;
	/* Do not receive groups that other programs on this machine have joined on other
	 * interfaces. */
	if (result == 0 && !(ipv4 ? option(sock, IPPROTO_IP, IP_MULTICAST_ALL, 0)
	                          : option(sock, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0)))
		result = -errno;
	if (result == 0)
		result = udp_bind_to(sock, &name, port);
	if (result == 0 && !port_udp_join(sock, address, group))
		result = -errno;
	if (result == 0)
		return sock;
	close(sock);
	return result;
}

void udp_drain(int sock)
{
	char byte;
	/* As many as the buffer can hold: a sender must not keep us in this loop. */
	for (int i = 0; i < UDP_BUFFER_BYTES / 256; i++)
		if (recv(sock, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) < 0)
			return;
}

/* Direct system calls that never block. The C library's wrappers are cancellation points, and the
 * preparations for that measurably add to the time per packet. */
static int send_message(int sock, struct msghdr *msg)
{
	return (int)syscall(SYS_sendmsg, sock, msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int send_messages(int sock, struct mmsghdr *headers, unsigned count)
{
	return (int)syscall(SYS_sendmmsg, sock, headers, count, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static ssize_t udp_receive_message(int sock, struct msghdr *msg)
{
	return syscall(SYS_recvmsg, sock, msg, MSG_DONTWAIT);
}

static int receive_messages(int sock, struct mmsghdr *headers, unsigned count)
{
	return (int)syscall(SYS_recvmmsg, sock, headers, count, MSG_DONTWAIT, NULL);
}

/* --- sending --- */

struct outgoing {
	union udp_name name;
	struct iovec part;
	union {
		struct cmsghdr header;
		uint8_t room[CMSG_SPACE(sizeof(uint16_t)) + 2 * CMSG_SPACE(sizeof(int))];
	} control;
};

static struct cmsghdr *add_control(struct msghdr *msg, struct cmsghdr *at, int level, int type,
                                   const void *value, size_t bytes)
{
	at->cmsg_level = level;
	at->cmsg_type = type;
	at->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(at), value, bytes);
	msg->msg_controllen += CMSG_SPACE(bytes);
	return (struct cmsghdr *)(void *)((uint8_t *)at + CMSG_SPACE(bytes));
}

static void prepare(const struct udp_train *train, struct outgoing *out, struct msghdr *msg)
{
	bool ipv4 = udp_address_is_ipv4(&train->to);
	out->part = (struct iovec){(void *)(uintptr_t)train->data, train->bytes};
	*msg = (struct msghdr){
	        .msg_name = &out->name,
	        .msg_namelen = udp_name_of(
	                &train->to, train->port != 0 ? train->port : UDP_ROCE_PORT, &out->name),
	        .msg_iov = &out->part,
	        .msg_iovlen = 1,
	        .msg_control = &out->control};
	struct cmsghdr *at = &out->control.header;
	if (train->packets > 1) {
		uint16_t bytes = (uint16_t)train->packet_bytes;
		at = add_control(msg, at, IPPROTO_UDP, UDP_SEGMENT, &bytes, sizeof(bytes));
	}
	/* The socket already has these two defaults, and each control message costs time. */
	if (train->tos != UDP_ECT && !train->has_tos) {
		int tos = train->tos;
		at = ipv4 ? add_control(msg, at, IPPROTO_IP, IP_TOS, &tos, sizeof(tos))
		          : add_control(msg, at, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos));
	}
	if (train->hop_limit != 0) {
		int hops = train->hop_limit;
		at = ipv4 ? add_control(msg, at, IPPROTO_IP, IP_TTL, &hops, sizeof(hops))
		          : add_control(msg, at, IPPROTO_IPV6, IPV6_HOPLIMIT, &hops, sizeof(hops));
	}
	if (msg->msg_controllen == 0)
		msg->msg_control = NULL;
}

unsigned udp_send(int sock, const struct udp_train *trains, unsigned count, int *error)
{
	struct mmsghdr headers[UDP_MAX_TRAINS];
	struct outgoing out[UDP_MAX_TRAINS];
	unsigned sent = 0;
	*error = 0;
	while (sent < count) {
		unsigned batch = count - sent < UDP_MAX_TRAINS ? count - sent : UDP_MAX_TRAINS;
		for (unsigned i = 0; i < batch; i++)
			prepare(&trains[sent + i], &out[i], &headers[i].msg_hdr);
		int done;
		if (batch == 1)
			done = send_message(sock, &headers[0].msg_hdr) < 0 ? -1 : 1;
		else
			done = send_messages(sock, headers, batch);
		if (done > 0) {
			sent += (unsigned)done;
		} else if (errno != EINTR) {
			*error = errno == EWOULDBLOCK || errno == ENOBUFS ? EAGAIN : errno;
			break;
		}
	}
	return sent;
}

/* --- receiving --- */

int udp_receiver_begin(struct udp_receiver *receiver)
{
	receiver->room = mmap(NULL, UDP_BATCH * UDP_RECEIVE_BYTES, PROT_READ | PROT_WRITE,
	                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (receiver->room == MAP_FAILED) {
		receiver->room = NULL;
		return -errno;
	}
	receiver->batch = 1;
	receiver->streak = false;
	for (unsigned i = 0; i < UDP_BATCH; i++) {
		receiver->parts[i] = (struct iovec){receiver->room + (size_t)i * UDP_RECEIVE_BYTES,
		                                    UDP_RECEIVE_BYTES};
		receiver->headers[i].msg_hdr =
		        (struct msghdr){.msg_name = &receiver->names[i],
		                        .msg_iov = &receiver->parts[i],
		                        .msg_iovlen = 1,
		                        .msg_control = &receiver->controls[i]};
	}
	return 0;
}

void udp_receiver_end(struct udp_receiver *receiver)
{
	if (receiver->room != NULL)
		munmap(receiver->room, UDP_BATCH * UDP_RECEIVE_BYTES);
	receiver->room = NULL;
}

/* Read the control messages of a datagram. */
static void read_controls(struct msghdr *msg, struct udp_came *came)
{
	for (struct cmsghdr *at = CMSG_FIRSTHDR(msg); at != NULL; at = CMSG_NXTHDR(msg, at)) {
		int value = 0;
		if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TOS) {
			came->tos = *CMSG_DATA(at);
			continue;
		}
		memcpy(&value, CMSG_DATA(at), sizeof(value));
		if (at->cmsg_level == IPPROTO_UDP && at->cmsg_type == UDP_GRO && value > 0)
			came->packet_bytes = (uint32_t)value;
		else if (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_TCLASS)
			came->tos = (uint8_t)value;
		else if ((at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TTL) ||
		         (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_HOPLIMIT))
			came->hop_limit = (uint8_t)value;
	}
}

static void read_one(struct mmsghdr *header, const uint8_t *data, struct udp_came *came)
{
	came->data = data;
	came->bytes = came->packet_bytes = header->msg_len;
	came->tos = came->hop_limit = 0;
	udp_address_of(header->msg_hdr.msg_name, &came->from, &came->from_port);
	read_controls(&header->msg_hdr, came);
}

int udp_receive(struct udp_receiver *receiver, int sock, struct udp_came came[UDP_BATCH])
{
	struct mmsghdr *headers = receiver->headers;
	for (unsigned i = 0; i < receiver->batch; i++) {
		headers[i].msg_hdr.msg_namelen = sizeof(receiver->names[i]);
		headers[i].msg_hdr.msg_controllen = sizeof(receiver->controls[i]);
	}
	int got;
	if (receiver->batch == 1) {
		ssize_t bytes = udp_receive_message(sock, &headers[0].msg_hdr);
		headers[0].msg_len = bytes > 0 ? (unsigned)bytes : 0;
		got = bytes < 0 ? -1 : 1;
	} else {
		got = receive_messages(sock, headers, receiver->batch);
	}
	if (got < 0) {
		receiver->batch = 1;
		receiver->streak = false;
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	}
	for (int i = 0; i < got; i++)
		read_one(&headers[i], receiver->parts[i].iov_base, &came[i]);
	/* A request and its answer need only one packet at a time. The batch grows when packets
	 * follow each other, unless they are so long that the first would have left the processor's
	 * cache by the time it is processed. */
	unsigned most = !receiver->streak || came[0].bytes > UDP_RECEIVE_BYTES / 4 ? 1 : UDP_BATCH;
	receiver->streak = true;
	if ((unsigned)got < receiver->batch)
		receiver->batch = got > 0 ? (unsigned)got : 1;
	else
		receiver->batch = receiver->batch < UDP_BATCH / 2 ? 2 * receiver->batch : UDP_BATCH;
	if (receiver->batch > most)
		receiver->batch = most;
	return got;
}
