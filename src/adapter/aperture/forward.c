/* Apertures of a program that is not trusted, on other machines: its frames travel through a
 * forwarder of the agent's (agent/forward.h), which has the sockets. Out-of-band packets go through
 * the agent itself, as those on lanes do (managed.c). See aperture.h. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "base/mac.h"
#include "port/forward.h"

#define FORWARD_BATCH 64u /* frames in a turn */

struct ap_path apertures_forward_path_of(const struct apertures *apertures, uint32_t which,
                                         const uint8_t host[16])
{
	struct ap_path path = {.route = APERTURE_ROUTE_FORWARD + which,
	                       .frame_bytes = apertures->udp_mtu + CI_EXTRA_BYTES,
	                       .managed = true,
	                       .replays = true,
	                       .idle_ns = APERTURE_UDP_IDLE};
	memcpy(path.host, host, sizeof(path.host));
	path.has_link = which < apertures->adapter->net.address_count &&
	                apertures->adapter->net.addresses[which].frames &&
	                mac_from_gid(host, path.link);
	apertures_mark_cluster(apertures, &path);
	return path;
}

bool apertures_forward_path(const struct apertures *apertures, const struct hdl_gid *host,
                            struct ap_path *path)
{
	const struct hdl_adapter *adapter = apertures->adapter;
	struct hdl_gid gid = wire_address(adapter, host);
	struct udp_address to = {0};
	memcpy(to.gid, gid.raw, sizeof(to.gid));
	for (uint32_t i = 0; i < adapter->net.address_count && apertures->forward.sock >= 0; i++)
		if (udp_address_reaches(&adapter->net.addresses[i], &to)) {
			*path = apertures_forward_path_of(apertures, i, to.gid);
			return true;
		}
	return false;
}

void apertures_forward_send(const struct apertures *apertures, const struct ap_path *path,
                            const uint8_t *frame, size_t bytes)
{
	struct forward_header header = {.which = path->route - APERTURE_ROUTE_FORWARD};
	struct iovec parts[2] = {{&header, sizeof(header)}, {(void *)(uintptr_t)frame, bytes}};
	struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};
	memcpy(header.host, path->host, sizeof(header.host));
	/* What finds no room is repeated like what the network loses. */
	if (apertures->forward.sock >= 0)
		(void)sendmsg(apertures->forward.sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The forwarder has gone. The next connection asks for another. */
static void forward_lost(struct apertures *apertures)
{
	int sock = apertures->forward.sock;
	apertures->forward.sock = -1;
	(void)port_show(&apertures->forward.port, -1);
	close(sock);
	for (uint32_t i = 0; i < UDP_MAX_ADDRESSES; i++)
		(void)ap_carrier_down(&apertures->node, APERTURE_ROUTE_FORWARD + i);
}

static unsigned forward_receive(struct net_port *port)
{
	struct aperture_forward *forward =
	        (struct aperture_forward *)(void *)((char *)port -
	                                            offsetof(struct aperture_forward, port));
	struct apertures *apertures = forward->apertures;
	struct iovec parts[2] = {{&forward->header, sizeof(forward->header)},
	                         {forward->frame, sizeof(forward->frame)}};
	unsigned frames = 0;
	while (forward->sock >= 0 && frames < FORWARD_BATCH && !apertures_are_stalled(apertures)) {
		struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};
		ssize_t got = recvmsg(forward->sock, &msg, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		apertures->node.now_ns = clock_read(&apertures->adapter->clock);
		if (got <= 0) {
			forward_lost(apertures);
			break;
		}
		frames++;
		if (got <= (ssize_t)sizeof(forward->header) || (msg.msg_flags & MSG_TRUNC) != 0)
			continue;
		struct ap_path from = apertures_forward_path_of(apertures, forward->header.which,
		                                                forward->header.host);
		apertures_take(apertures, forward->frame, (size_t)got - sizeof(forward->header),
		               &from);
	}
	if (ap_waits(&apertures->node))
		apertures_run(apertures);
	return frames;
}

static void forward_end(struct net_port *port)
{
	(void)port; /* apertures_forward_end() */
}

static const struct net_port_ops forward_ops = {
        .name = "apertures by a forwarder", .receive = forward_receive, .end = forward_end};

void apertures_forward_opened(struct apertures *apertures, int sock)
{
	struct aperture_forward *forward = &apertures->forward;
	int before = forward->sock;
	forward->sock = sock;
	if (forward->apertures != NULL) {
		(void)port_show(&forward->port, sock);
		if (before >= 0)
			close(before);
		return;
	}
	port_init(&forward->port, &forward_ops, sock);
	if (ports_add(apertures->adapter, &forward->port, NULL) != 0) {
		close(sock);
		forward->sock = -1;
		return;
	}
	forward->apertures = apertures;
}

void apertures_forward_end(struct apertures *apertures)
{
	if (apertures->forward.sock >= 0)
		close(apertures->forward.sock);
	apertures->forward.sock = -1;
}
