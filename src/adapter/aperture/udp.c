/* Apertures over UDP, and by Ethernet frames (port/ether.h). The node agent opens one group of
 * sockets per address, on a port of its own, and steers frames by the slot in the first index
 * (port/steer.h); each process gets one socket, and sends from it, so that the source of a frame is
 * an address and CI_UDP_PORT, which no other user of that machine can bind. Frames to ports come to
 * the agent, which passes them on. IP apertures have ordinary sockets of their own. See
 * aperture.h. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/eventq/eventq.h"
#include "base/mac.h"
#include "port/ether.h"
#include "port/refused.h"

static struct ap_path udp_path_of(const struct apertures *apertures, uint32_t which,
                                  const uint8_t host[16])
{
	struct ap_path path = {.route = APERTURE_ROUTE_UDP + which,
	                       .frame_bytes = apertures->udp_mtu + CI_EXTRA_BYTES,
	                       .replays = true,
	                       .idle_ns = APERTURE_UDP_IDLE};
	memcpy(path.host, host, 16);
	path.has_link = apertures->udp[which].address.frames && mac_from_gid(host, path.link);
	apertures_mark_cluster(apertures, &path);
	return path;
}

bool apertures_udp_path(const struct apertures *apertures, const struct hdl_gid *host,
                        struct ap_path *path)
{
	if (apertures->trust == HDL_TRUST_NONE)
		return apertures_forward_path(apertures, host, path);
	struct hdl_gid to = wire_address(apertures->adapter, host);
	struct udp_address address = {0};
	memcpy(address.gid, to.raw, 16);
	for (uint32_t i = 0; i < apertures->udp_count; i++)
		if (apertures->udp[i].sock >= 0 &&
		    udp_address_reaches(&apertures->udp[i].address, &address)) {
			*path = udp_path_of(apertures, i, to.raw);
			return true;
		}
	return false;
}

/* --- sending --- */

/* It concerns one connection if the frame is too large, else everybody who sends to that host. */
static bool udp_is_too_large(const struct aperture_unsent *unsent)
{
	return unsent->error == EMSGSIZE;
}

/* We are inside ap_run() here: what follows from it waits for apertures_udp_unsent(). */
static void udp_keep_unsent(struct aperture_udp *udp, const uint8_t host[16], int error,
                            const uint8_t *frame, size_t bytes)
{
	for (uint32_t i = 0; i < udp->unsent_count; i++)
		if (udp->unsent[i].error == error && memcmp(udp->unsent[i].host, host, 16) == 0 &&
		    !udp_is_too_large(&udp->unsent[i]))
			return;
	if (udp->unsent_count == APERTURE_UNSENT)
		return;
	struct aperture_unsent *last = &udp->unsent[udp->unsent_count++];
	last->error = error;
	memcpy(last->host, host, 16);
	last->bytes = bytes < sizeof(last->frame) ? bytes : sizeof(last->frame);
	memcpy(last->frame, frame, last->bytes);
}

/* Is the interface of frames gone, or its MTU too small now for what is on its way? */
static bool udp_frames_are_over(struct aperture_udp *udp, int error)
{
	char name[IF_NAMESIZE];
	unsigned mtu = 0;
	if (!udp->address.frames)
		return false;
	return net_frames_failed(&udp->address, error, &udp->told) ||
	       (error == EMSGSIZE && ether_interface(&udp->address, name, &mtu) == 0 &&
	        mtu < udp->apertures->udp_mtu + CI_EXTRA_BYTES);
}

bool apertures_udp_unsent(struct apertures *apertures)
{
	bool ended = false;
	for (uint32_t which = 0; which < apertures->udp_count; which++) {
		struct aperture_udp *udp = &apertures->udp[which];
		uint32_t route = APERTURE_ROUTE_UDP + which, count = udp->unsent_count;
		udp->unsent_count = 0;
		for (uint32_t i = 0; i < count; i++) {
			const struct aperture_unsent *unsent = &udp->unsent[i];
			if (udp_frames_are_over(udp, unsent->error))
				ended |= ap_carrier_down(&apertures->node, route);
			else
				ap_unsent(&apertures->node, route, unsent->host,
				          udp_is_too_large(unsent) ? unsent->frame : NULL,
				          unsent->bytes);
		}
	}
	return ended;
}

void apertures_udp_send(struct apertures *apertures, const struct ap_path *path,
                        const uint8_t *frame, size_t bytes)
{
	struct aperture_udp *udp = &apertures->udp[path->route - APERTURE_ROUTE_UDP];
	struct udp_address to = udp->address;
	union udp_name name;
	memcpy(to.gid, path->host, 16);
	socklen_t length = udp_name_of(&to, CI_UDP_PORT, &name);
	int error = 0;
	if (udp->sock < 0)
		return;
	/* The error may be that of an earlier frame, which came back: then the socket reports it
	 * once, and this frame has not been sent. */
	for (unsigned tries = 0; tries < 2; tries++) {
		if (sendto(udp->sock, frame, bytes, MSG_DONTWAIT | MSG_NOSIGNAL, &name.any,
		           length) >= 0)
			return;
		error = errno;
		/* What the kernel has no room for is repeated like what the network loses. */
		if (error == EAGAIN || error == ENOBUFS || error == ENOMEM)
			return;
		udp->error = error;
	}
	if (error != ECONNREFUSED)
		udp_keep_unsent(udp, path->host, error, frame, bytes);
}

/* --- receiving --- */

/* Nobody listens there any more: the last process of that host has ended, and its agent with it.
 * What came back has the beginning of a frame, nonce included. If it is not one of ours, it is one
 * of a process that shares the port: the agent passes it on. */
static void udp_aperture_errors(struct aperture_udp *udp, uint32_t which, int error)
{
	struct refused refused;
	if (udp->address.frames) {
		if (udp_frames_are_over(udp, error))
			(void)ap_carrier_down(&udp->apertures->node, APERTURE_ROUTE_UDP + which);
		return;
	}
	for (unsigned i = 0; i < UDP_BATCH && refused_next(udp->sock, &refused); i++) {
		struct agent_msg msg = {.kind = AGENT_CI_RETURNED,
		                        .u.cm = {.options = (uint32_t)refused.error,
		                                 .length = (uint32_t)refused.bytes}};
		if (refused.bytes == 0 || refused.port != CI_UDP_PORT ||
		    ap_returned(&udp->apertures->node, refused.to.gid, refused.data, refused.bytes,
		                refused.error == ECONNREFUSED))
			continue;
		memcpy(msg.u.cm.gid, refused.to.gid, 16);
		memcpy(msg.u.cm.data, refused.data, refused.bytes);
		(void)agent_tell_now(udp->apertures->adapter, &msg);
	}
}

static unsigned udp_aperture_receive(struct net_port *port)
{
	struct aperture_udp *udp =
	        (struct aperture_udp *)(void *)((char *)port - offsetof(struct aperture_udp, port));
	struct apertures *apertures = udp->apertures;
	struct udp_came came[UDP_BATCH];
	if (udp->sock < 0 || apertures_are_stalled(apertures))
		return 0;
	int count = udp_receive(&udp->receiver, udp->sock, came);
	unsigned frames = 0;
	uint32_t which = (uint32_t)(udp - apertures->udp);
	if (count < 0 || udp->error != 0) {
		int error = udp->error != 0 ? udp->error : -count;
		udp->error = 0;
		apertures->node.now_ns = clock_read(&apertures->adapter->clock);
		udp_aperture_errors(udp, which, error);
	}
	for (int i = 0; i < count; i++) {
		struct ap_path from = udp_path_of(apertures, which, came[i].from.gid);
		if (came[i].from_port != CI_UDP_PORT) {
			ap_count(&apertures->node, HDL_APERTURE_COUNTER_BAD_SOURCE, 1);
			continue;
		}
		apertures->node.now_ns = clock_read(&apertures->adapter->clock);
		for (uint32_t at = 0; at < came[i].bytes; at += came[i].packet_bytes) {
			uint32_t rest = came[i].bytes - at;
			apertures_take(apertures, came[i].data + at,
			               rest < came[i].packet_bytes ? rest : came[i].packet_bytes,
			               &from);
			frames++;
		}
	}
	if (ap_waits(&apertures->node))
		apertures_run(apertures);
	return frames;
}

static void udp_aperture_end(struct net_port *port)
{
	(void)port; /* apertures_udp_end() */
}

static const struct net_port_ops udp_aperture_ops = {
        .name = "apertures on UDP", .receive = udp_aperture_receive, .end = udp_aperture_end};

/* --- sockets --- */

int apertures_open_udp(struct apertures *apertures)
{
	struct agent_msg msg = {.kind = AGENT_CI_OPEN};
	return apertures->adapter->agent.on_node
	               ? agent_ask(apertures->adapter, &msg, &msg.u.cm.token)
	               : 0;
}

void apertures_open_again(struct apertures *apertures)
{
	const struct timespec pause = {.tv_nsec = AGENT_SOCKET_RETRY_NS};
	for (unsigned tries = 0; tries < AGENT_SOCKET_TRIES; tries++) {
		if (apertures_open_udp(apertures) != -HDL_EADDRINUSE)
			return;
		nanosleep(&pause, NULL);
	}
}

void apertures_udp_drop(struct apertures *apertures)
{
	for (uint32_t i = 0; i < apertures->udp_count; i++) {
		int sock = apertures->udp[i].sock;
		apertures->udp[i].sock = -1;
		(void)port_show(&apertures->udp[i].port, -1);
		if (sock >= 0)
			close(sock);
	}
}

static void udp_take_socket(struct apertures *apertures, uint32_t i, int sock)
{
	struct aperture_udp *udp = &apertures->udp[i];
	struct hdl_adapter *adapter = apertures->adapter;
	if (i < apertures->udp_count) { /* another agent */
		int before = udp->sock;
		udp->sock = sock;
		refused_watch(sock, &udp->address);
		(void)port_show(&udp->port, sock);
		if (before >= 0)
			close(before);
		return;
	}
	udp->apertures = apertures;
	udp->sock = sock;
	udp->address = adapter->net.addresses[i];
	refused_watch(sock, &udp->address);
	port_init(&udp->port, &udp_aperture_ops, sock);
	if (udp_receiver_begin(&udp->receiver) != 0 || ports_add(adapter, &udp->port, NULL) != 0) {
		close(sock);
		udp->sock = -1;
		return;
	}
	apertures->udp_count = i + 1;
}

void apertures_udp_opened(struct hdl_adapter *adapter, const struct agent_msg *msg, int *fds,
                          int fd_count)
{
	adapter_lock(adapter);
	struct apertures *apertures = adapter->apertures;
	if (apertures != NULL && msg->u.cm.error == 0) {
		apertures->trust = msg->u.cm.options != 0 ? HDL_TRUST_NONE : HDL_TRUST_USER;
		apertures->udp_mtu = msg->u.cm.slot;
		apertures->node.slot = adapter->slot;
		for (int i = 0; i < fd_count && i < (int)UDP_MAX_ADDRESSES; i++) {
			if (apertures->trust == HDL_TRUST_NONE)
				apertures_forward_opened(apertures, fds[i]);
			else
				udp_take_socket(apertures, (uint32_t)i, fds[i]);
			fds[i] = -1;
		}
	}
	adapter_unlock(adapter);
}

void apertures_udp_frame(struct hdl_adapter *adapter, const struct agent_msg *msg)
{
	adapter_lock(adapter);
	struct apertures *apertures = adapter->apertures;
	bool back = msg->u.cm.options != 0; /* it came back to the agent's socket */
	if (apertures != NULL && back && msg->u.cm.length <= sizeof(msg->u.cm.data)) {
		apertures->node.now_ns = clock_read(&adapter->clock);
		(void)ap_returned(&apertures->node, msg->u.cm.gid, msg->u.cm.data, msg->u.cm.length,
		                  msg->u.cm.options == ECONNREFUSED);
	}
	for (uint32_t i = 0; apertures != NULL && !back && i < apertures->udp_count; i++) {
		if (memcmp(apertures->udp[i].address.gid, msg->u.cm.own, 16) != 0 ||
		    msg->u.cm.length > sizeof(msg->u.cm.data))
			continue;
		struct ap_path from = udp_path_of(apertures, i, msg->u.cm.gid);
		apertures->node.now_ns = clock_read(&adapter->clock);
		apertures_take(apertures, msg->u.cm.data, msg->u.cm.length, &from);
		apertures_run(apertures);
	}
	adapter_unlock(adapter);
}

void apertures_udp_end(struct apertures *apertures)
{
	for (uint32_t i = 0; i < apertures->udp_count; i++) {
		if (apertures->udp[i].sock >= 0)
			close(apertures->udp[i].sock);
		udp_receiver_end(&apertures->udp[i].receiver);
	}
	apertures->udp_count = 0;
	apertures_forward_end(apertures);
}

/* --- IP --- */

int hdl_aperture_open_ip(struct hdl_adapter *adapter, const struct hdl_aperture_attr *attr,
                         uint16_t own, const struct hdl_gid *peer, uint16_t port,
                         struct hdl_aperture **out)
{
	struct hdl_aperture_attr plain = {.port = attr != NULL ? attr->port : NULL,
	                                  .context = attr != NULL ? attr->context : NULL};
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || out == NULL || peer == NULL)
		return -HDL_EINVAL;
	const struct udp_address *from = adapter->net.addresses;
	const struct udp_address *end = from + adapter->net.address_count;
	while (from < end && from->frames)
		from++;
	if (from == end)
		return -HDL_ENOTSUP;
	int result = hdl_aperture_open(adapter, &plain, out);
	if (result != 0)
		return result;
	if (adapter->apertures->trust < HDL_TRUST_USER) {
		(void)hdl_aperture_free(*out);
		return -HDL_EACCES;
	}
	struct hdl_aperture *aperture = *out;
	int sock = udp_open(from, own);
	if (sock < 0) {
		(void)hdl_aperture_free(aperture);
		return sock == -EADDRINUSE ? -HDL_EADDRINUSE : -HDL_EINVAL;
	}
	adapter_lock(adapter);
	aperture->is_ip = true;
	aperture->ip_sock = sock;
	aperture->ip_port = port;
	memcpy(aperture->ip_peer.gid, peer->raw, 16);
	aperture->ip_peer.scope = from->scope;
	aperture->conn.in->type = HDL_APERTURE_IP;
	if (attr != NULL) {
		aperture->conn.in->source = attr->source;
		aperture->conn.in->mask = attr->source_mask;
	}
	aperture->ip_next = adapter->apertures->ips;
	adapter->apertures->ips = aperture;
	(void)port_keep_awake(&adapter->apertures->port, sock);
	adapter_unlock(adapter);
	return 0;
}

int apertures_ip_send(struct hdl_aperture *aperture, const void *data, size_t length)
{
	union udp_name name;
	adapter_lock(aperture->adapter);
	aperture_follow(aperture);
	socklen_t bytes = udp_name_of(&aperture->ip_peer, aperture->ip_port, &name);
	ssize_t sent = sendto(aperture->ip_sock, data, length, MSG_DONTWAIT | MSG_NOSIGNAL,
	                      &name.any, bytes);
	int error = errno;
	adapter_unlock(aperture->adapter);
	if (sent >= 0)
		return 0;
	return error == EAGAIN || error == ENOBUFS ? -HDL_EAGAIN
	       : error == EMSGSIZE                 ? -HDL_EMSGSIZE
	                                           : -HDL_EHOSTUNREACH;
}

void apertures_ip_close(struct hdl_aperture *aperture)
{
	struct hdl_aperture **at = &aperture->adapter->apertures->ips;
	if (aperture->ip_sock < 0)
		return;
	while (*at != NULL && *at != aperture)
		at = &(*at)->ip_next;
	if (*at == aperture)
		*at = aperture->ip_next;
	close(aperture->ip_sock);
	aperture->ip_sock = -1;
}

/* One datagram goes to the variable queue of the port. */
static void ip_deliver(struct apertures *apertures, const struct hdl_aperture *aperture,
                       const struct udp_address *from, uint16_t from_port, const uint8_t *data,
                       size_t bytes)
{
	struct hdl_port_event event = {.type = HDL_PORT_VAR,
	                               .index = aperture->conn.own.index,
	                               .value = bytes,
	                               .source_port = from_port};
	memcpy(event.source.raw, from->gid, 16);
	const struct hdl_aperture_fixed *row = aperture->conn.in;
	if (!incoming_matches(from->gid, row->source.raw, row->mask.raw)) {
		ap_count(&apertures->node, HDL_APERTURE_COUNTER_BAD_SOURCE, 1);
		return;
	}
	if (aperture->port == NULL ||
	    eventq_deliver(apertures->adapter, aperture->port->port.number, &event, data, bytes) !=
	            EVENTQ_PLACED) {
		if (aperture->port != NULL)
			eventq_lose(apertures->adapter, aperture->port->port.number);
		return;
	}
	ap_count(&apertures->node, HDL_APERTURE_COUNTER_EVENTS_IN, 1);
}

unsigned apertures_ip_receive(struct apertures *apertures)
{
	unsigned count = 0;
	uint8_t data[UDP_RECEIVE_BYTES];
	for (struct hdl_aperture *at = apertures->ips; at != NULL; at = at->ip_next) {
		for (unsigned batch = 0; batch < UDP_BATCH; batch++) {
			union udp_name name;
			struct udp_address from = {0};
			uint16_t from_port = 0;
			socklen_t length = sizeof(name);
			ssize_t got = recvfrom(at->ip_sock, data, sizeof(data), MSG_DONTWAIT,
			                       &name.any, &length);
			if (got < 0)
				break;
			udp_address_of(&name, &from, &from_port);
			ip_deliver(apertures, at, &from, from_port, data, (size_t)got);
			count++;
		}
	}
	return count;
}
