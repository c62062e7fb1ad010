/* A packet socket on an interface that exists: the LAN of a unit as root sees it, or an ordinary
 * user in a namespace of his own. It is promiscuous, because the hosts have addresses of their own.
 * What the machine itself sends through the interface is not seen, and neither is what we send. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <heddle/push.h>

#include "port/unixsock.h"
#include "tap/lan.h"

#define PACKET_BUFFER_BYTES (4 << 20) /* as much of it as the kernel gives */
#define PACKET_MAX_SKIPPED  4096u     /* frames in a row that are not for us */
#define VLAN_TAG_BYTES      4u

/* Bind the socket to the interface with this name, and see all frames of it. */
static bool packet_bind(int fd, const char *name, uint32_t *index)
{
	struct ifreq request = {0};
	memcpy(request.ifr_name, name, strnlen(name, IFNAMSIZ - 1));
	if (ioctl(fd, SIOCGIFINDEX, &request) != 0)
		return false;
	struct sockaddr_ll address = {.sll_family = AF_PACKET,
	                              .sll_protocol = htons(ETH_P_ALL),
	                              .sll_ifindex = request.ifr_ifindex};
	struct packet_mreq promiscuous = {.mr_ifindex = request.ifr_ifindex,
	                                  .mr_type = PACKET_MR_PROMISC};
	*index = (uint32_t)request.ifr_ifindex;
	return bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	       setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous,
	                  sizeof(promiscuous)) == 0;
}

static int packet_make(void *context, int *fds, char *why)
{
	struct lan *lan = context;
	uint32_t index;
	/* Without a protocol it hears nothing until it is bound. */
	int one = 1, size = PACKET_BUFFER_BYTES;
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		snprintf(why, LAN_WHY_BYTES,
		         "a packet socket: %s; it needs CAP_NET_RAW, or a namespace of your own "
		         "(--netns)",
		         strerror(errno));
		return 0;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one));
	if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) != 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &one, sizeof(one)) != 0 ||
	    !packet_bind(fd, lan->where, &index)) {
		snprintf(why, LAN_WHY_BYTES, "interface %s: %s; `ip link' lists those that exist",
		         lan->where, strerror(errno));
		close(fd);
		return 0;
	}
	fds[0] = fd;
	fds[1] = link_open();
	if (fds[1] >= 0)
		return 2;
	snprintf(why, LAN_WHY_BYTES, "a netlink socket: %s", strerror(errno));
	close(fd);
	return 0;
}

static bool packet_open(struct lan *lan)
{
	int fds[UNIXSOCK_MAX_FDS];
	if (netns_make(lan->netns, packet_make, lan, fds, lan->why) != 2)
		return false;
	lan->fd = fds[0];
	lan->watch = fds[1];
	link_ask(lan->watch, lan->where);
	link_read(lan->watch, lan->where, &lan->link);
	lan->bound = lan->link.index;
	return true;
}

/* The interface has gone, come back, or another one has its name. */
static void packet_changed(struct lan *lan)
{
	if (!lan->link.there)
		lan->bound = 0;
	else if (lan->bound != lan->link.index && !packet_bind(lan->fd, lan->where, &lan->bound))
		lan->bound = 0;
}

/* The kernel takes a tag out of a frame and tells it apart: put it back. @got has @capacity, and
 * the tag fits. */
static ssize_t packet_insert_tag(uint8_t *frame, ssize_t got, const struct tpacket_auxdata *told)
{
	struct virtio_net_hdr header;
	uint8_t *type = frame + LAN_HEADER_BYTES + 2 * ETH_ALEN;
	bool known = (told->tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
	uint16_t tag[2] = {htons(known ? told->tp_vlan_tpid : ETH_P_8021Q),
	                   htons(told->tp_vlan_tci)};
	memmove(type + VLAN_TAG_BYTES, type, (size_t)got - LAN_HEADER_BYTES - 2 * ETH_ALEN);
	memcpy(type, tag, sizeof(tag));
	memcpy(&header, frame, sizeof(header));
	if ((header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0)
		header.csum_start = (uint16_t)(header.csum_start + VLAN_TAG_BYTES);
	if (header.gso_type != VIRTIO_NET_HDR_GSO_NONE)
		header.hdr_len = (uint16_t)(header.hdr_len + VLAN_TAG_BYTES);
	memcpy(frame, &header, sizeof(header));
	return got + (ssize_t)VLAN_TAG_BYTES;
}

static const struct tpacket_auxdata *packet_told(struct msghdr *msg)
{
	for (struct cmsghdr *at = CMSG_FIRSTHDR(msg); at != NULL; at = CMSG_NXTHDR(msg, at))
		if (at->cmsg_level == SOL_PACKET && at->cmsg_type == PACKET_AUXDATA)
			return (const void *)CMSG_DATA(at);
	return NULL;
}

static ssize_t packet_read(struct lan *lan, uint8_t *frame, size_t capacity)
{
	for (unsigned i = 0; i < PACKET_MAX_SKIPPED; i++) {
		_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
		struct sockaddr_ll from = {0};
		struct iovec piece = {frame, capacity - VLAN_TAG_BYTES};
		struct msghdr msg = {.msg_name = &from,
		                     .msg_namelen = sizeof(from),
		                     .msg_iov = &piece,
		                     .msg_iovlen = 1,
		                     .msg_control = control,
		                     .msg_controllen = sizeof(control)};
		ssize_t got = recvmsg(lan->fd, &msg, MSG_TRUNC);
		if (got < 0 && errno == EINVAL) {
			lan->dropped++; /* a kind of segments that the header cannot describe */
			continue;
		}
		if (got < 0) /* or its interface is down, or gone: the watch tells */
			return 0;
		if (from.sll_pkttype == PACKET_OUTGOING ||
		    (size_t)got < LAN_HEADER_BYTES + ETH_HLEN)
			continue;
		if ((size_t)got > capacity - VLAN_TAG_BYTES) {
			lan->dropped++;
			continue;
		}
		const struct tpacket_auxdata *told = packet_told(&msg);
		if (told != NULL && (told->tp_status & TP_STATUS_VLAN_VALID) != 0)
			return packet_insert_tag(frame, got, told);
		return got;
	}
	return 0;
}

static bool packet_write(struct lan *lan, const uint8_t *frame, size_t bytes)
{
	if (send(lan->fd, frame, bytes, MSG_NOSIGNAL) >= 0)
		return true;
	if (errno == EAGAIN)
		return false;
	lan->dropped++; /* longer than its MTU, its queue is full, or it is down or gone */
	return true;
}

const struct lan_kind lan_packet = {.name = "packet",
                                    .offloads = HDL_PUSH_OFFLOAD_ALL,
                                    .open = packet_open,
                                    .close = lan_close_fd,
                                    .read = packet_read,
                                    .write = packet_write,
                                    .changed = packet_changed};
