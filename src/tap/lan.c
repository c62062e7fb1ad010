/* What the kinds of LAN have in common, and TAP devices. */
#include "tap/lan.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <heddle/push.h>

#include "port/unixsock.h"

_Static_assert(sizeof(struct virtio_net_hdr) == LAN_HEADER_BYTES, "the header of each frame");

bool lan_parse(struct lan *lan, const char *text)
{
	static const struct lan_kind *const kinds[] = {&lan_tap, &lan_packet, &lan_unix};
	lan->fd = lan->listening = lan->watch = lan->groups = -1;
	for (size_t i = 0; i < 3; i++) {
		size_t length = strlen(kinds[i]->name);
		if (strncmp(text, kinds[i]->name, length) != 0 || text[length] != ':')
			continue;
		const char *where = text + length + 1;
		if (where[0] == '\0' || strlen(where) >= sizeof(lan->where) ||
		    (kinds[i] != &lan_unix && strlen(where) >= IFNAMSIZ)) {
			snprintf(lan->why, sizeof(lan->why), "'%.64s' is not a name that fits",
			         where);
			return false;
		}
		lan->kind = kinds[i];
		snprintf(lan->where, sizeof(lan->where), "%s", where);
		return true;
	}
	snprintf(lan->why, sizeof(lan->why),
	         "'%.64s' is not tap:NAME, packet:INTERFACE or unix:PATH", text);
	return false;
}

bool lan_open(struct lan *lan)
{
	return lan->kind->open(lan);
}

void lan_close(struct lan *lan)
{
	int *const fds[] = {&lan->watch, &lan->groups};
	if (lan->kind != NULL)
		lan->kind->close(lan);
	for (unsigned i = 0; i < 2; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

ssize_t lan_read(struct lan *lan, uint8_t *frame, size_t capacity)
{
	ssize_t got = lan->fd >= 0 ? lan->kind->read(lan, frame, capacity) : 0;
	if (got < 0)
		lan->gone = true;
	if (got > 0) {
		lan->rx_frames++;
		lan->rx_bytes += (uint64_t)got - LAN_HEADER_BYTES;
	}
	return got;
}

bool lan_write(struct lan *lan, const uint8_t *frame, size_t bytes)
{
	if (lan->fd < 0) {
		lan->dropped++; /* nobody is there */
		return true;
	}
	if (!lan->kind->write(lan, frame, bytes))
		return false;
	lan->tx_frames++;
	lan->tx_bytes += bytes - LAN_HEADER_BYTES;
	return true;
}

bool lan_needs_offload(const uint8_t *frame)
{
	struct virtio_net_hdr header;
	memcpy(&header, frame, sizeof(header));
	return (header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0 ||
	       header.gso_type != VIRTIO_NET_HDR_GSO_NONE;
}

bool lan_is_too_long(const uint8_t *frame, size_t bytes, uint32_t mtu)
{
	struct virtio_net_hdr header;
	const uint8_t *start = frame + LAN_HEADER_BYTES;
	size_t length = bytes - LAN_HEADER_BYTES, network = ETH_HLEN;
	memcpy(&header, frame, sizeof(header));
	for (unsigned tags = 0; tags < 2 && length >= network + 4; tags++, network += 4) {
		const uint8_t *type = start + network - 2; /* tags do not count */
		if (!(type[0] == 0x81 && type[1] == 0x00) && !(type[0] == 0x88 && type[1] == 0xa8))
			break;
	}
	if (header.gso_type == VIRTIO_NET_HDR_GSO_NONE)
		return length - network > mtu;
	/* A segment has the headers, up to the end of that of TCP, and gso_size bytes. */
	size_t transport = header.csum_start;
	bool tcp = (header.gso_type & 7) != 5;
	if (transport < network || length < transport + 20)
		return true;
	return transport - network + (tcp ? (size_t)(start[transport + 12] >> 4) * 4 : 8u) +
	               header.gso_size >
	       mtu;
}

void lan_news(struct lan *lan)
{
	if (lan->watch >= 0 && link_read(lan->watch, lan->where, &lan->link) &&
	    lan->kind->changed != NULL)
		lan->kind->changed(lan);
}

bool lan_is_up(const struct lan *lan)
{
	bool known = lan->watch >= 0;
	return lan->fd >= 0 && !lan->gone &&
	       (!known || (lan->link.there && lan->link.up &&
	                   (lan->kind->carrier != NULL || lan->link.carrier)));
}

/* --- TAP --- */

/* Open and set up the device; in the namespace where it is to be. */
static int tap_make(void *context, int *fds, char *why)
{
	struct lan *lan = context;
	struct ifreq request = {0};
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		snprintf(why, LAN_WHY_BYTES, "/dev/net/tun: %s; %s", strerror(errno),
		         errno == ENOENT ? "load the module tun, or give the container the device "
		                           "(--device /dev/net/tun)"
		                         : "it must be readable and writable for this user");
		return 0;
	}
	memcpy(request.ifr_name, lan->where, strnlen(lan->where, IFNAMSIZ - 1));
	request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
	if (ioctl(fd, TUNSETIFF, &request) != 0) {
		snprintf(why, LAN_WHY_BYTES, "interface %s: %s; %s", lan->where, strerror(errno),
		         errno == EPERM
		                 ? "create it in a namespace of your own (--netns PID of a process "
		                   "that was started with `unshare -Urn')"
		         : errno == EBUSY ? "another program holds it: choose another name"
		                          : "there is such an interface of another kind: choose "
		                            "another name");
		close(fd);
		return 0;
	}
	int size = LAN_HEADER_BYTES, one = 1, sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ioctl(fd, TUNSETVNETHDRSZ, &size);
	ioctl(fd, TUNSETPERSIST, (unsigned long)one);
	if (lan->has_mac) {
		memcpy(request.ifr_hwaddr.sa_data, lan->mac, LAN_MAC_BYTES);
		request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
		if (ioctl(sock, SIOCSIFHWADDR, &request) != 0)
			snprintf(why, LAN_WHY_BYTES, "interface %s: MAC address: %s", lan->where,
			         strerror(errno));
	}
	request.ifr_mtu = lan->mtu;
	if (lan->mtu != 0 && ioctl(sock, SIOCSIFMTU, &request) != 0)
		snprintf(why, LAN_WHY_BYTES, "interface %s: MTU %u: %s", lan->where, lan->mtu,
		         strerror(errno));
	if (ioctl(sock, SIOCGIFFLAGS, &request) == 0) {
		request.ifr_flags = (short)(request.ifr_flags | IFF_UP);
		ioctl(sock, SIOCSIFFLAGS, &request);
	}
	close(sock);
	if (why[0] != '\0') {
		ioctl(fd, TUNSETPERSIST, 0ul);
		close(fd);
		return 0;
	}
	fds[0] = fd;
	fds[1] = link_open();
	fds[2] = fds[1] >= 0 ? link_open_groups() : -1;
	return fds[2] >= 0 ? 3 : fds[1] >= 0 ? 2 : 1;
}

static bool tap_open(struct lan *lan)
{
	struct ifreq request = {0};
	int fds[UNIXSOCK_MAX_FDS], count = netns_make(lan->netns, tap_make, lan, fds, lan->why);
	if (count == 0)
		return false;
	lan->fd = fds[0];
	lan->watch = count > 1 ? fds[1] : -1;
	lan->groups = count > 2 ? fds[2] : -1;
	if (lan->watch >= 0)
		link_ask(lan->watch, lan->where);
	lan_news(lan);
	if (ioctl(lan->fd, SIOCGIFHWADDR, &request) == 0)
		memcpy(lan->mac, request.ifr_hwaddr.sa_data, LAN_MAC_BYTES);
	return true;
}

static void tap_changed(struct lan *lan)
{
	lan->gone |= !lan->link.there;
}

static bool tap_set_mtu(struct lan *lan, uint32_t mtu)
{
	return lan->watch >= 0 && link_set_mtu(lan->watch, lan->link.index, mtu);
}

void lan_close_fd(struct lan *lan)
{
	if (lan->fd >= 0)
		close(lan->fd);
	lan->fd = -1;
}

static void tap_forget(struct lan *lan)
{
	if (lan->fd >= 0)
		ioctl(lan->fd, TUNSETPERSIST, 0ul);
}

static ssize_t tap_read(struct lan *lan, uint8_t *frame, size_t capacity)
{
	ssize_t got = read(lan->fd, frame, capacity);
	if (got >= (ssize_t)(LAN_HEADER_BYTES + ETH_HLEN))
		return got;
	/* EIO: the interface is down for now; it is asked again later. */
	return got < 0 && (errno == EBADFD || errno == ENODEV) ? -1 : 0;
}

static bool tap_write(struct lan *lan, const uint8_t *frame, size_t bytes)
{
	if (write(lan->fd, frame, bytes) >= 0)
		return true;
	if (errno == EAGAIN)
		return false;
	lan->dropped++;
	return true;
}

static void tap_carrier(struct lan *lan, bool on)
{
	int value = on;
	ioctl(lan->fd, TUNSETCARRIER, &value);
}

static bool tap_set_mac(struct lan *lan, const uint8_t mac[LAN_MAC_BYTES])
{
	struct ifreq request = {.ifr_hwaddr.sa_family = ARPHRD_ETHER};
	memcpy(request.ifr_hwaddr.sa_data, mac, LAN_MAC_BYTES);
	if (ioctl(lan->fd, SIOCSIFHWADDR, &request) != 0)
		return false;
	memcpy(lan->mac, mac, LAN_MAC_BYTES);
	memcpy(lan->link.mac, mac, LAN_MAC_BYTES); /* the news of it are still to be read */
	return true;
}

static void tap_set_offloads(struct lan *lan, uint32_t offloads)
{
	unsigned long flags = 0;
	if ((offloads & HDL_PUSH_OFFLOAD_CHECKSUM) != 0) {
		flags |= TUN_F_CSUM;
		flags |= (offloads & HDL_PUSH_OFFLOAD_TSO4) != 0 ? TUN_F_TSO4 : 0u;
		flags |= (offloads & HDL_PUSH_OFFLOAD_TSO6) != 0 ? TUN_F_TSO6 : 0u;
		flags |= (offloads & HDL_PUSH_OFFLOAD_ECN) != 0 ? TUN_F_TSO_ECN : 0u;
	}
	ioctl(lan->fd, TUNSETOFFLOAD, flags);
}

const struct lan_kind lan_tap = {.name = "tap",
                                 .offloads = HDL_PUSH_OFFLOAD_ALL,
                                 .open = tap_open,
                                 .close = lan_close_fd,
                                 .read = tap_read,
                                 .write = tap_write,
                                 .changed = tap_changed,
                                 .set_mtu = tap_set_mtu,
                                 .carrier = tap_carrier,
                                 .set_mac = tap_set_mac,
                                 .set_offloads = tap_set_offloads,
                                 .forget = tap_forget};
