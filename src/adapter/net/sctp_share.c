/* SCTP of a process on a node: UDP port 9899 belongs to the node's agent, which hands one socket
 * per address to each process, with the packets to the SCTP ports that it holds (agent/sctp.c).
 * A program without a node has the sockets to itself (sctp_port.c).
 *
 * Ports are asked for, and given back, in calls of the program, before or after they take the drive
 * lock: the answer of the agent comes to the adapter's thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"
#include "base/fd.h"
#include "base/log.h"

#define SHARE_ROUNDS 4u /* of a call that finds its port taken by another thread */

bool sctp_share_is_on(const struct hdl_adapter *adapter)
{
	return adapter->agent.on_node && adapter->drive.has_thread;
}

/* --- sockets --- */

static struct sctp_end *share_end(const struct sctp_port *sctp, const struct udp_address *address)
{
	for (uint32_t i = 0; i < sctp->end_count; i++)
		if (udp_address_equal(&sctp->ends[i]->own, address))
			return sctp->ends[i];
	return NULL;
}

/* A socket of the agent for @address. With the drive lock. */
static void share_take_socket(struct tcp_port *port, const struct udp_address *address, int sock)
{
	struct sctp_port *sctp = port->sctp;
	struct sctp_end *end = share_end(sctp, address);
	if (end == NULL && sctp_port_add(port, address, sock, &end) == 0) {
		if (!sctp_end_share(end))
			sctp_end_replace(end, -1);
	} else if (end != NULL && end->ports != NULL && end->fd < 0) { /* of another agent */
		sctp_end_replace(end, sock);
		(void)tcp_port_watch_end(port, end);
	} else if (end != NULL) {
		close(sock);
	}
}

void sctp_share_opened(struct hdl_adapter *adapter, const struct agent_msg *msg, int *fds,
                       int fd_count)
{
	adapter_lock(adapter);
	struct tcp_port *port = tcp_port_find(adapter);
	for (int i = 0; port != NULL && port->sctp != NULL && i < fd_count &&
	                i < (int)msg->u.sctp.wire_count && i < (int)UDP_MAX_ADDRESSES;
	     i++) {
		share_take_socket(port, &msg->u.sctp.wires[i], fd_aside(fds[i]));
		fds[i] = -1;
	}
	adapter_unlock(adapter);
}

/* With the drive lock: the agent has ended, and its sockets with it. */
void sctp_share_detach(struct hdl_adapter *adapter)
{
	struct tcp_port *port = tcp_port_find(adapter);
	for (uint32_t i = 0; port != NULL && port->sctp != NULL && i < port->sctp->end_count; i++)
		if (port->sctp->ends[i]->ports != NULL && port->sctp->ends[i]->fd >= 0) {
			tcp_port_unwatch_end(port, port->sctp->ends[i]);
			sctp_end_replace(port->sctp->ends[i], -1);
		}
}

/* --- ports --- */

static int share_ask(struct hdl_adapter *adapter, uint32_t kind, const uint8_t *gid, uint16_t *port,
                     uint16_t count)
{
	struct agent_msg msg = {.kind = kind, .u.sctp = {.count = count}};
	if (gid != NULL)
		memcpy(msg.u.sctp.gid, gid, sizeof(msg.u.sctp.gid));
	msg.u.sctp.port = port != NULL ? *port : 0;
	int result = agent_ask(adapter, &msg, &msg.u.sctp.token);
	if (result == 0 && port != NULL)
		*port = msg.u.sctp.port;
	return result;
}

/* Tell the ends that @held are ours, or are not any more. */
static void share_show(const struct sctp_port *sctp, const struct sctp_held *held, bool ours)
{
	for (uint32_t i = 0; i < sctp->end_count; i++)
		if (sctp->ends[i]->ports != NULL &&
		    (held->count == AGENT_SCTP_BLOCK ||
		     udp_address_equal(&held->own, &sctp->ends[i]->own)))
			sctp_end_hold(sctp->ends[i], held->first, held->count, ours);
}

/* Remember ports that the agent has granted. With the drive lock. */
static struct sctp_held *share_note(struct sctp_port *sctp, const struct udp_address *own,
                                    uint16_t first, uint16_t count)
{
	struct sctp_held *held = calloc(1, sizeof(*held));
	if (held == NULL)
		return NULL;
	*held = (struct sctp_held){.first = first, .count = count, .next = sctp->held};
	if (own != NULL)
		held->own = *own;
	sctp->held = held;
	share_show(sctp, held, true);
	return held;
}

/* The port of a block that nobody uses; with the drive lock. */
static struct sctp_held *share_free(const struct sctp_port *sctp, uint16_t *port)
{
	for (struct sctp_held *at = sctp->held; at != NULL; at = at->next)
		if (at->count == AGENT_SCTP_BLOCK && ~at->used != 0) {
			*port = (uint16_t)(at->first + __builtin_ctzll(~at->used));
			return at;
		}
	return NULL;
}

struct sctp_held *sctp_share_take(struct tcp_port *port, uint16_t *number)
{
	struct sctp_held *held = share_free(port->sctp, number);
	if (held != NULL)
		held->used |= 1ull << (*number - held->first);
	return held;
}

struct sctp_held *sctp_share_use(struct tcp_port *port, const struct udp_address *own,
                                 uint16_t number)
{
	struct sctp_held *at = port->sctp->held;
	while (at != NULL &&
	       (at->count != 1 || at->first != number || !udp_address_equal(&at->own, own)))
		at = at->next;
	if (at != NULL)
		at->users++;
	return at;
}

void sctp_share_drop(struct sctp_held *held, uint16_t number)
{
	if (held == NULL)
		return;
	if (held->count == AGENT_SCTP_BLOCK)
		held->used &= ~(1ull << (number - held->first));
	else
		held->users--;
}

void sctp_share_forget(struct sctp_port *sctp)
{
	while (sctp->held != NULL) {
		struct sctp_held *held = sctp->held;
		sctp->held = held->next;
		free(held);
	}
}

/* The first port that nobody uses any more, taken out of the list. */
static struct sctp_held *share_idle(struct hdl_adapter *adapter)
{
	struct sctp_held *found = NULL;
	adapter_lock(adapter);
	struct tcp_port *port = tcp_port_find(adapter);
	struct sctp_held **at = port != NULL && port->sctp != NULL ? &port->sctp->held : NULL;
	while (at != NULL && *at != NULL && ((*at)->count != 1 || (*at)->users > 0))
		at = &(*at)->next;
	if (at != NULL && *at != NULL) {
		found = *at;
		*at = found->next;
		share_show(port->sctp, found, false);
	}
	adapter_unlock(adapter);
	return found;
}

void sctp_share_tidy(struct hdl_adapter *adapter)
{
	struct sctp_held *held;
	while (sctp_share_is_on(adapter) && (held = share_idle(adapter)) != NULL) {
		struct agent_msg msg = {.kind = AGENT_SCTP_UNBIND,
		                        .u.sctp = {.port = held->first, .count = held->count}};
		memcpy(msg.u.sctp.gid, held->own.gid, sizeof(msg.u.sctp.gid));
		(void)agent_tell(adapter, &msg);
		free(held);
	}
}

/* --- calls --- */

/* Make sure that there are sockets. 0 or an error. */
static int share_open(struct hdl_adapter *adapter)
{
	adapter_lock(adapter);
	struct tcp_port *port = tcp_port_of(adapter);
	struct sctp_port *sctp = port != NULL ? sctp_port_of(port) : NULL;
	bool open = sctp != NULL && sctp->end_count > 0;
	adapter_unlock(adapter);
	if (sctp == NULL)
		return -ENOMEM;
	return open ? 0 : share_ask(adapter, AGENT_SCTP_OPEN, NULL, NULL, 1);
}

/* Does another listener of this adapter, or a connection of one, still have the port? */
static bool share_again(struct hdl_adapter *adapter, const struct udp_address *own, uint16_t number)
{
	adapter_lock(adapter);
	struct tcp_port *port = tcp_port_find(adapter);
	bool has = port != NULL && port->sctp != NULL && sctp_share_use(port, own, number) != NULL;
	adapter_unlock(adapter);
	return has;
}

int sctp_share_bind(struct hdl_adapter *adapter, const struct udp_address *own, uint16_t number)
{
	if (!sctp_share_is_on(adapter))
		return 0;
	int result = share_open(adapter);
	if (result != 0 || share_again(adapter, own, number))
		return result;
	result = share_ask(adapter, AGENT_SCTP_BIND, own->gid, &number, 1);
	if (result != 0)
		return result;
	adapter_lock(adapter);
	struct tcp_port *port = tcp_port_find(adapter);
	struct sctp_held *held = share_note(port->sctp, own, number, 1);
	if (held != NULL)
		held->users = 1;
	adapter_unlock(adapter);
	return held != NULL ? 0 : -ENOMEM;
}

void sctp_share_unbind(struct tcp_port *port, const struct udp_address *own, uint16_t number)
{
	struct sctp_held *held = port->sctp != NULL ? sctp_share_use(port, own, number) : NULL;
	if (held != NULL)
		held->users -= 2; /* the one that looked, too */
}

int sctp_share_ready(struct hdl_adapter *adapter)
{
	uint16_t port = 0;
	if (!sctp_share_is_on(adapter))
		return 0;
	int result = share_open(adapter);
	/* Somebody else has UDP port 9899: connect from another. */
	if (result != 0)
		return result == -EADDRINUSE ? 0 : result;
	for (unsigned round = 0; round < SHARE_ROUNDS; round++) {
		adapter_lock(adapter);
		const struct sctp_port *sctp = tcp_port_find(adapter)->sctp;
		bool has = share_free(sctp, &port) != NULL || sctp->ends[0]->ports == NULL;
		adapter_unlock(adapter);
		if (has)
			return 0;
		port = 0;
		result = share_ask(adapter, AGENT_SCTP_BIND, NULL, &port, AGENT_SCTP_BLOCK);
		if (result != 0)
			return result;
		adapter_lock(adapter);
		share_note(tcp_port_find(adapter)->sctp, NULL, port, AGENT_SCTP_BLOCK);
		adapter_unlock(adapter);
	}
	return -EAGAIN;
}

/* --- another agent --- */

static bool share_lacks_sockets(struct hdl_adapter *adapter)
{
	adapter_lock(adapter);
	const struct tcp_port *port = tcp_port_find(adapter);
	bool lacks = false;
	for (uint32_t i = 0; port != NULL && port->sctp != NULL && i < port->sctp->end_count; i++)
		lacks = lacks ||
		        (port->sctp->ends[i]->ports != NULL && port->sctp->ends[i]->fd < 0);
	adapter_unlock(adapter);
	return lacks;
}

/* The ports that we hold, number @n of them. False: there are fewer. */
static bool share_nth(struct hdl_adapter *adapter, unsigned n, struct sctp_held *out)
{
	adapter_lock(adapter);
	const struct tcp_port *port = tcp_port_find(adapter);
	const struct sctp_held *at = port != NULL && port->sctp != NULL ? port->sctp->held : NULL;
	for (; at != NULL && n > 0; n--)
		at = at->next;
	if (at != NULL)
		*out = *at;
	adapter_unlock(adapter);
	return at != NULL;
}

void sctp_share_again(struct hdl_adapter *adapter)
{
	const struct timespec pause = {.tv_nsec = AGENT_SOCKET_RETRY_NS};
	struct sctp_held held;
	int result = 0;
	if (!share_lacks_sockets(adapter))
		return;
	for (unsigned tries = 0; tries < AGENT_SOCKET_TRIES; tries++) {
		result = share_ask(adapter, AGENT_SCTP_OPEN, NULL, NULL, 1);
		if (result != -EADDRINUSE)
			break;
		nanosleep(&pause, NULL);
	}
	for (unsigned n = 0; result == 0 && share_nth(adapter, n, &held); n++)
		result = share_ask(adapter, AGENT_SCTP_BIND, held.own.gid, &held.first, held.count);
	if (result != 0)
		log_error("UDP port %u, for SCTP, cannot be shared with the new node agent (%s): "
		          "connections over SCTP end",
		          SCTP_UDP_PORT, strerror(-result));
}
