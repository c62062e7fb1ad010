/* Ethernet frames by packet sockets. See ether.h. */
#include "port/ether.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if_arp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mac.h"

static const struct {
	uint16_t port, type;
} services[] = {{UDP_ROCE_PORT, ETHER_ROCE}, {4793, ETHER_CELLS}, {18490, ETHER_CI}};
#define SERVICES (sizeof(services) / sizeof(services[0]))

uint16_t ether_type(uint16_t port)
{
	for (unsigned i = 0; i < SERVICES; i++)
		if (services[i].port == port)
			return services[i].type;
	return 0;
}

uint16_t ether_port(uint16_t type)
{
	for (unsigned i = 0; i < SERVICES; i++)
		if (services[i].type == type)
			return services[i].port;
	return 0;
}

/* --- interfaces --- */

/* Ask about @request->ifr_name. 0 or -errno. */
static int ether_ask(unsigned long what, struct ifreq *request)
{
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int result = sock < 0 || ioctl(sock, what, request) != 0 ? -errno : 0;
	if (sock >= 0)
		close(sock);
	return result;
}

/* The MAC address of the interface @name. */
static int ether_mac(const char *name, uint8_t mac[MAC_BYTES])
{
	struct ifreq request = {0};
	strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
	int result = ether_ask(SIOCGIFHWADDR, &request);
	if (result != 0)
		return result;
	/* An address of all zeroes is that of an interface without one, such as the loopback. */
	memcpy(mac, request.ifr_hwaddr.sa_data, MAC_BYTES);
	static const uint8_t none[MAC_BYTES];
	return request.ifr_hwaddr.sa_family == ARPHRD_ETHER && memcmp(mac, none, sizeof(none)) != 0
	               ? 0
	               : -ENOTSUP;
}

int ether_find(const char *name, struct udp_address *out)
{
	uint8_t mac[MAC_BYTES];
	uint32_t index = strlen(name) < IF_NAMESIZE ? if_nametoindex(name) : 0;
	if (index == 0)
		return -ENODEV;
	int result = ether_mac(name, mac);
	if (result != 0)
		return result;
	*out = (struct udp_address){.scope = index, .frames = true};
	mac_to_gid(mac, out->gid);
	return 0;
}

int ether_interface(const struct udp_address *address, char name[IF_NAMESIZE], unsigned *mtu)
{
	struct ifreq request = {0};
	uint8_t own[MAC_BYTES], has[MAC_BYTES];
	*mtu = 0;
	if (!mac_from_gid(address->gid, own) || if_indextoname(address->scope, name) == NULL ||
	    ether_mac(name, has) != 0 || memcmp(own, has, sizeof(own)) != 0)
		return -EADDRNOTAVAIL;
	strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
	if (ether_ask(SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0)
		*mtu = (unsigned)request.ifr_mtu;
	return 0;
}

/* --- filters --- */

void ether_filter(const struct udp_address *address, struct sock_filter out[ETHER_FILTER])
{
	uint8_t mac[MAC_BYTES] = {0};
	(void)mac_from_gid(address->gid, mac);
	uint32_t high =
	        (uint32_t)mac[0] << 24 | (uint32_t)mac[1] << 16 | (uint32_t)mac[2] << 8 | mac[3];
	uint32_t low = (uint32_t)mac[4] << 8 | mac[5];
	const struct sock_filter filter[ETHER_FILTER] = {
	        BPF_STMT(BPF_LD | BPF_B | BPF_ABS,
	                 (uint32_t)(SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
	        BPF_STMT(BPF_RET | BPF_K, 0),
	        /* Where no interface has the VLAN, the kernel drops the tag, and says that the
	         * frame is somebody else's. */
	        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_HOST, 1, 0),
	        BPF_STMT(BPF_RET | BPF_K, 0),
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)SKF_LL_OFF),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 1, 0),
	        BPF_STMT(BPF_RET | BPF_K, 0),
	        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, (uint32_t)SKF_LL_OFF + 4),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low, 1, 0),
	        BPF_STMT(BPF_RET | BPF_K, 0),
	};
	memcpy(out, filter, sizeof(filter));
}

static int ether_set_filter(int sock, const struct sock_filter *filter, unsigned count)
{
	struct sock_fprog program = {.len = (unsigned short)count,
	                             .filter = (struct sock_filter *)(uintptr_t)filter};
	return setsockopt(sock, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0
	               ? 0
	               : -errno;
}

int ether_lock_filter(int sock)
{
	int on = 1;
	return setsockopt(sock, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof(on)) == 0 ? 0 : -errno;
}

/* --- sockets --- */

socklen_t ether_name_of(const struct udp_address *address, uint16_t port, union udp_name *name)
{
	name->ll = (struct sockaddr_ll){.sll_family = AF_PACKET,
	                                .sll_protocol = htons(ether_type(port)),
	                                .sll_ifindex = (int)address->scope,
	                                .sll_halen = MAC_BYTES};
	(void)mac_from_gid(address->gid, name->ll.sll_addr);
	return sizeof(name->ll);
}

void ether_address_of(const union udp_name *name, struct udp_address *address, uint16_t *port)
{
	address->frames = true;
	address->scope = (uint32_t)name->ll.sll_ifindex;
	mac_to_gid(name->ll.sll_addr, address->gid);
	*port = ether_port(ntohs(name->ll.sll_protocol));
}

int ether_open(const struct udp_address *address, uint16_t port, const struct sock_filter *filter,
               unsigned count)
{
	union udp_name name;
	socklen_t bytes = ether_name_of(address, port, &name);
	/* Without a protocol, nothing arrives before there is a filter. */
	int sock = fd_aside(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (sock < 0)
		return -errno;
	udp_set_buffers(sock);
	int result = ether_set_filter(sock, filter, count);
	if (result == 0 && bind(sock, &name.any, bytes) != 0)
		result = -errno;
	if (result == 0)
		return sock;
	close(sock);
	return result;
}
