/* Links over Ethernet frames, by a packet socket on an interface of this machine (also a TAP
 * device). Only frames of our EtherType are heard, and only from the configured station, if one is
 * configured. Needs the right to open packet sockets (CAP_NET_RAW). */
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "vport/port.h"

#define ETHERTYPE_LINK 0x88b5 /* IEEE 802: local experimental EtherType 1 */

static int ethernet_open(struct port *port, const char **why)
{
	struct ifreq request = {0};
	struct sockaddr_ll address = {.sll_family = AF_PACKET,
	                              .sll_protocol = htons(ETHERTYPE_LINK)};
	memcpy(request.ifr_name, port_own_end(port)->interface, TOPOLOGY_INTERFACE_BYTES);
	int sock = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	*why = "packet sockets need CAP_NET_RAW, and the interface must exist";
	if (sock < 0)
		return -errno;
	if (ioctl(sock, SIOCGIFHWADDR, &request) == 0) {
		memcpy(port->own_mac, request.ifr_hwaddr.sa_data, sizeof(port->own_mac));
		if (ioctl(sock, SIOCGIFINDEX, &request) == 0) {
			address.sll_ifindex = port->interface = request.ifr_ifindex;
			if (bind(sock, (struct sockaddr *)&address, sizeof(address)) == 0) {
				port->fd = sock;
				port_watch(port, sock);
				return 0;
			}
		}
	}
	int error = errno;
	close(sock);
	return -error;
}

static void ethernet_close(struct port *port)
{
	port_unwatch(port, port->fd);
	close(port->fd);
	port->fd = -1;
}

static bool ethernet_hear(struct port *port)
{
	uint8_t frame[sizeof(struct ether_header) + LINK_MAX_BYTES + 64];
	const struct topology_end *other = port_other_end(port);
	bool any = false;
	for (unsigned i = 0; i < 64; i++) {
		struct sockaddr_ll from;
		socklen_t length = sizeof(from);
		ssize_t got = recvfrom(port->fd, frame, sizeof(frame), MSG_TRUNC,
		                       (struct sockaddr *)&from, &length);
		if (got < 0)
			return any;
		any = true;
		if (from.sll_pkttype == PACKET_OUTGOING || (size_t)got > sizeof(frame) ||
		    (size_t)got < sizeof(struct ether_header) ||
		    (other->has_mac && memcmp(frame + ETH_ALEN, other->mac, ETH_ALEN) != 0))
			continue;
		port_frame(port, frame + sizeof(struct ether_header),
		           (size_t)got - sizeof(struct ether_header));
	}
	return any;
}

static enum port_sent ethernet_send(struct port *port, const uint8_t header[LINK_HEADER_BYTES],
                                    const uint8_t *packet, size_t bytes)
{
	const struct topology_end *other = port_other_end(port);
	struct ether_header ethernet = {.ether_type = htons(ETHERTYPE_LINK)};
	if (other->has_mac)
		memcpy(ethernet.ether_dhost, other->mac, ETH_ALEN);
	else
		memset(ethernet.ether_dhost, 0xff, ETH_ALEN);
	memcpy(ethernet.ether_shost, port->own_mac, ETH_ALEN);
	struct iovec parts[3] = {{&ethernet, sizeof(ethernet)},
	                         {(void *)(uintptr_t)header, LINK_HEADER_BYTES},
	                         {(void *)(uintptr_t)packet, bytes}};
	struct sockaddr_ll to = {
	        .sll_family = AF_PACKET, .sll_ifindex = port->interface, .sll_halen = ETH_ALEN};
	memcpy(to.sll_addr, ethernet.ether_dhost, ETH_ALEN);
	struct msghdr msg = {.msg_name = &to,
	                     .msg_namelen = sizeof(to),
	                     .msg_iov = parts,
	                     .msg_iovlen = bytes > 0 ? 3 : 2};
	if (sendmsg(port->fd, &msg, MSG_NOSIGNAL) >= 0)
		return PORT_SENT;
	return errno == EMSGSIZE ? PORT_TOO_LONG : PORT_FULL; /* than the MTU of the interface */
}

const struct port_kind port_ethernet = {.name = "ethernet",
                                        .open = ethernet_open,
                                        .close = ethernet_close,
                                        .hear = ethernet_hear,
                                        .send = ethernet_send};
