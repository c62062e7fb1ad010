/* Datagrams that came back; see refused.h. */
#include "port/refused.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* Needs struct timespec. */
#include <linux/errqueue.h>

void refused_watch(int sock, const struct udp_address *address)
{
	int on = 1;
	bool ipv4 = udp_address_is_ipv4(address);
	(void)setsockopt(sock, ipv4 ? SOL_IP : SOL_IPV6, ipv4 ? IP_RECVERR : IPV6_RECVERR, &on,
	                 sizeof(on));
}

bool refused_next(int sock, struct refused *out)
{
	uint8_t control[256];
	union udp_name name;
	struct iovec part = {out->data, sizeof(out->data)};
	struct msghdr msg = {.msg_name = &name,
	                     .msg_namelen = sizeof(name),
	                     .msg_iov = &part,
	                     .msg_iovlen = 1,
	                     .msg_control = control,
	                     .msg_controllen = sizeof(control)};
	ssize_t got = recvmsg(sock, &msg, MSG_ERRQUEUE | MSG_DONTWAIT);
	if (got < 0)
		return false;
	out->bytes = 0;
	out->error = 0;
	udp_address_of(&name, &out->to, &out->port);
	for (struct cmsghdr *at = CMSG_FIRSTHDR(&msg); at != NULL; at = CMSG_NXTHDR(&msg, at)) {
		struct sock_extended_err error;
		if ((at->cmsg_level != SOL_IP || at->cmsg_type != IP_RECVERR) &&
		    (at->cmsg_level != SOL_IPV6 || at->cmsg_type != IPV6_RECVERR))
			continue;
		memcpy(&error, CMSG_DATA(at), sizeof(error));
		if (error.ee_origin != SO_EE_ORIGIN_ICMP && error.ee_origin != SO_EE_ORIGIN_ICMP6)
			continue; /* what the system finds itself, sendto() returns */
		out->error = (int)error.ee_errno;
		out->bytes = (size_t)got;
	}
	return true;
}
