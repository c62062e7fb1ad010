/* Sockets of the program that connect to nodes. Nodes of one machine have addresses of their own in
 * 127.72.0.0/16 (hdl_gid_query(3)), but the operating system, which knows nothing of nodes, sends
 * everything from 127.0.0.1. That is enough for programs that only exchange data over their
 * sockets. Datagram sockets of librdmacm (rsocket(7)) first send a datagram and are answered over
 * verbs, at the node from whose address the datagram came. */
#include <string.h>

#include "compat/cm/cm.h"

static bool is_node(const struct sockaddr *address, socklen_t bytes)
{
	struct sockaddr_in to;
	if (address == NULL || bytes < (socklen_t)sizeof(to) || address->sa_family != AF_INET)
		return false;
	memcpy(&to, address, sizeof(to));
	return ntohl(to.sin_addr.s_addr) >> 16 == CM_NODES >> 16;
}

static bool is_unbound_datagram(int fd, struct sockaddr_in *from)
{
	int type = 0;
	socklen_t type_bytes = sizeof(type), bytes = sizeof(*from);
	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 && type == SOCK_DGRAM &&
	       getsockname(fd, (struct sockaddr *)(void *)from, &bytes) == 0 &&
	       from->sin_family == AF_INET && from->sin_port == 0;
}

int compat_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
	struct sockaddr_in from;
	if (is_node(address, bytes) && is_unbound_datagram(fd, &from)) {
		from.sin_addr.s_addr = htonl(cm_node_address());
		/* If the bind fails, connect anyway, from the default address. */
		if (from.sin_addr.s_addr != 0)
			bind(fd, (struct sockaddr *)(void *)&from, sizeof(from));
	}
	return connect(fd, address, bytes);
}
