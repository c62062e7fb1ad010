/* See link.h. */
#include "tap/link.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINK_TEXT_BYTES 65536u /* of /proc/net/dev_mcast that are read */
#define LINK_MAX_READS  64u    /* messages per call */

struct link_request {
	struct nlmsghdr header;
	struct ifinfomsg info;
	struct rtattr attribute;
	char value[LINK_MAX_NAME];
};

int link_open(void)
{
	struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static bool link_send(int fd, uint16_t type, uint32_t index, uint16_t attribute, const void *value,
                      size_t bytes)
{
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	struct link_request request = {
	        .header = {.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST},
	        .info = {.ifi_index = (int)index},
	        .attribute = {.rta_len = (uint16_t)RTA_LENGTH(bytes), .rta_type = attribute}};
	memcpy(request.value, value, bytes);
	request.header.nlmsg_len = (uint32_t)(offsetof(struct link_request, value) + bytes);
	return sendto(fd, &request, request.header.nlmsg_len, MSG_NOSIGNAL,
	              (struct sockaddr *)&kernel, sizeof(kernel)) >= 0;
}

void link_ask(int fd, const char *name)
{
	link_send(fd, RTM_GETLINK, 0, IFLA_IFNAME, name, strnlen(name, LINK_MAX_NAME - 1) + 1);
}

bool link_set_mtu(int fd, uint32_t index, uint32_t mtu)
{
	return link_send(fd, RTM_SETLINK, index, IFLA_MTU, &mtu, sizeof(mtu));
}

static uint32_t link_value(struct rtattr *attribute)
{
	uint32_t value = 0;
	if (RTA_PAYLOAD(attribute) >= sizeof(value))
		memcpy(&value, RTA_DATA(attribute), sizeof(value));
	return value;
}

/* One message of the kernel. */
static void link_take(struct nlmsghdr *header, const char *name, struct link_state *state)
{
	struct ifinfomsg *info = NLMSG_DATA(header);
	uint32_t left = (uint32_t)IFLA_PAYLOAD(header);
	bool ours = false;
	struct link_state now = {.there = header->nlmsg_type == RTM_NEWLINK,
	                         .up = (info->ifi_flags & IFF_UP) != 0,
	                         .carrier = (info->ifi_flags & IFF_LOWER_UP) != 0,
	                         .all_multicast = (info->ifi_flags & IFF_ALLMULTI) != 0,
	                         .index = (uint32_t)info->ifi_index};
	for (struct rtattr *a = IFLA_RTA(info); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == IFLA_IFNAME)
			ours = strncmp(RTA_DATA(a), name, RTA_PAYLOAD(a)) == 0;
		else if (a->rta_type == IFLA_MTU)
			now.mtu = link_value(a);
		else if (a->rta_type == IFLA_PROMISCUITY)
			now.promiscuous = link_value(a) != 0;
		else if (a->rta_type == IFLA_ADDRESS && RTA_PAYLOAD(a) == LINK_MAC_BYTES)
			memcpy(now.mac, RTA_DATA(a), LINK_MAC_BYTES);
	}
	/* Another one may have had the name before, or has got it now. */
	if (ours && (now.there || now.index == state->index))
		*state = now;
	else if (!ours && state->there && now.index == state->index)
		state->there = false; /* it has another name */
}

static bool link_same(const struct link_state *a, const struct link_state *b)
{
	return a->there == b->there && a->up == b->up && a->carrier == b->carrier &&
	       a->promiscuous == b->promiscuous && a->all_multicast == b->all_multicast &&
	       a->index == b->index && a->mtu == b->mtu &&
	       memcmp(a->mac, b->mac, LINK_MAC_BYTES) == 0;
}

bool link_read(int fd, const char *name, struct link_state *state)
{
	static _Alignas(8) char text[32768];
	const struct link_state before = *state;
	for (unsigned i = 0; i < LINK_MAX_READS; i++) {
		ssize_t got = recv(fd, text, sizeof(text), 0);
		if (got < 0 && errno == ENOBUFS)
			link_ask(fd, name); /* some were lost */
		if (got < 0)
			break;
		uint32_t left = (uint32_t)got;
		for (struct nlmsghdr *header = (void *)text; NLMSG_OK(header, left);
		     header = NLMSG_NEXT(header, left))
			if ((header->nlmsg_type == RTM_NEWLINK ||
			     header->nlmsg_type == RTM_DELLINK) &&
			    header->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ifinfomsg)))
				link_take(header, name, state);
	}
	return !link_same(&before, state);
}

int link_open_groups(void)
{
	return open("/proc/self/net/dev_mcast", O_RDONLY | O_CLOEXEC);
}

int link_read_groups(int fd, uint32_t index, uint8_t (*groups)[LINK_MAC_BYTES], uint32_t max)
{
	static char text[LINK_TEXT_BYTES];
	size_t length = 0;
	ssize_t got = 1;
	while (got > 0 && length < sizeof(text) - 1) {
		got = pread(fd, text + length, sizeof(text) - 1 - length, (off_t)length);
		if (got > 0)
			length += (size_t)got;
	}
	if (got != 0)
		return -1; /* it cannot be read, or is too long */
	text[length] = '\0';
	uint32_t count = 0;
	for (char *line = text; line != NULL && *line != '\0';) {
		unsigned at, parts[LINK_MAC_BYTES];
		char *next = strchr(line, '\n');
		if (sscanf(line, "%u %*s %*d %*d %2x%2x%2x%2x%2x%2x", &at, &parts[0], &parts[1],
		           &parts[2], &parts[3], &parts[4], &parts[5]) == 7 &&
		    at == index) {
			for (unsigned i = 0; i < LINK_MAC_BYTES && count < max; i++)
				groups[count][i] = (uint8_t)parts[i];
			count++;
		}
		line = next != NULL ? next + 1 : NULL;
	}
	return (int)count;
}
