/* The forwarder as a process (heddled --forward). See forward.h. It waits without a limit, never
 * blocks on what it sends, and keeps nothing: what finds no room is lost, and its sender repeats
 * it. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/forward.h"
#include "port/refused.h"
#include "port/unixsock.h"

#define FORWARDER_BATCH 64u /* records of the program in a turn */

static struct {
	struct forward_table table;
	uint32_t count; /* of the sockets */
	struct udp_address addresses[UDP_MAX_ADDRESSES];
	struct udp_receiver receivers[UDP_MAX_ADDRESSES];
	struct forward_header header; /* of the record */
	uint8_t frame[CI_MAX_FRAME];
	uint8_t divided[CI_MAX_FRAME];
} forwarder;

/* Take what the agent has sent. False: it has gone. */
static bool forwarder_hear_agent(void)
{
	struct forward_msg msg;
	int fds[UNIXSOCK_MAX_FDS], fd_count;
	ssize_t got;
	while ((got = unixsock_receive(FORWARD_AGENT, &msg, sizeof(msg), fds, &fd_count)) > 0) {
		for (int i = 0; i < fd_count; i++)
			close(fds[i]);
		if (got == (ssize_t)sizeof(msg) && msg.kind == FORWARD_ENTRY)
			forward_set(&forwarder.table, &msg.entry);
	}
	return got == -EAGAIN || got == -EINTR;
}

/* @msg lacks only the data. */
static void forwarder_tell_agent(struct forward_msg *msg, const uint8_t *data, size_t bytes)
{
	if (bytes > sizeof(msg->data))
		return;
	msg->length = (uint32_t)bytes;
	memcpy(msg->data, data, bytes);
	(void)unixsock_send_now(FORWARD_AGENT, msg, sizeof(*msg));
}

/* --- to other machines --- */

static void forwarder_send(const struct forward_header *header, const uint8_t *frame, size_t bytes)
{
	union udp_name name;
	if (header->which >= forwarder.count)
		return;
	struct udp_address to = forwarder.addresses[header->which]; /* scope and kind */
	memcpy(to.gid, header->host, sizeof(to.gid));
	if (!udp_address_reaches(&forwarder.addresses[header->which], &to))
		return;
	socklen_t length = udp_name_of(&to, CI_UDP_PORT, &name);
	struct forward_msg msg = {.kind = FORWARD_RETURNED, .which = header->which};
	/* The error may be that of an earlier frame, which came back: then it is told once. */
	for (unsigned tries = 0; tries < 2; tries++) {
		if (sendto(FORWARD_SOCKETS + (int)header->which, frame, bytes,
		           MSG_DONTWAIT | MSG_NOSIGNAL, &name.any, length) >= 0)
			return;
		msg.error = errno;
	}
	if (msg.error == EAGAIN || msg.error == ENOBUFS || msg.error == ENOMEM ||
	    msg.error == ECONNREFUSED)
		return; /* repeated like what the network loses */
	memcpy(msg.host, header->host, sizeof(msg.host));
	forwarder_tell_agent(&msg, frame, bytes < REFUSED_BYTES ? bytes : REFUSED_BYTES);
}

/* False: the program or the agent has gone. */
static bool forwarder_hear_program(void)
{
	struct iovec parts[2] = {{&forwarder.header, sizeof(forwarder.header)},
	                         {forwarder.frame, sizeof(forwarder.frame)}};
	for (unsigned i = 0; i < FORWARDER_BATCH; i++) {
		struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};
		ssize_t got = recvmsg(FORWARD_PROGRAM, &msg, MSG_DONTWAIT);
		if (got < 0)
			return errno == EAGAIN || errno == EINTR;
		if (got == 0)
			return false;
		/* The agent told us of the connection before the program heard of it. */
		if (!forwarder_hear_agent())
			return false;
		if ((msg.msg_flags & MSG_TRUNC) != 0 || got <= (ssize_t)sizeof(forwarder.header))
			continue;
		size_t bytes = (size_t)got - sizeof(forwarder.header);
		if (forward_may_send(&forwarder.table, forwarder.header.host, forwarder.frame,
		                     bytes))
			forwarder_send(&forwarder.header, forwarder.frame, bytes);
	}
	return true;
}

/* --- from other machines --- */

static void forwarder_pass_control(void *context, const uint8_t *frame, size_t bytes)
{
	const struct forward_header *from = context;
	struct forward_msg msg = {.kind = FORWARD_CAME, .which = from->which};
	memcpy(msg.host, from->host, sizeof(msg.host));
	forwarder_tell_agent(&msg, frame, bytes);
}

static void forwarder_take_frame(struct forward_header *from, const uint8_t *frame, size_t bytes)
{
	size_t left = forward_divide(frame, bytes < CI_MAX_FRAME ? bytes : CI_MAX_FRAME,
	                             forwarder.divided, forwarder_pass_control, from);
	struct iovec parts[2] = {{from, sizeof(*from)}, {forwarder.divided, left}};
	struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};
	if (left > 0)
		(void)sendmsg(FORWARD_PROGRAM, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void forwarder_hear_socket(uint32_t which)
{
	struct udp_came came[UDP_BATCH];
	struct refused refused;
	int sock = FORWARD_SOCKETS + (int)which;
	int count = udp_receive(&forwarder.receivers[which], sock, came);
	for (unsigned i = 0; count <= 0 && i < UDP_BATCH && refused_next(sock, &refused); i++) {
		struct forward_msg msg = {
		        .kind = FORWARD_RETURNED, .which = which, .error = refused.error};
		memcpy(msg.host, refused.to.gid, sizeof(msg.host));
		if (refused.bytes > 0 && refused.port == CI_UDP_PORT)
			forwarder_tell_agent(&msg, refused.data, refused.bytes);
	}
	for (int i = 0; i < count; i++) {
		struct forward_header from = {.which = which};
		memcpy(from.host, came[i].from.gid, sizeof(from.host));
		if (came[i].from_port != CI_UDP_PORT)
			continue;
		for (uint32_t at = 0; at < came[i].bytes; at += came[i].packet_bytes) {
			uint32_t rest = came[i].bytes - at;
			forwarder_take_frame(&from, came[i].data + at,
			                     rest < came[i].packet_bytes ? rest
			                                                 : came[i].packet_bytes);
		}
	}
}

/* --- */

static bool forwarder_begin(void)
{
	struct forward_msg msg;
	/* The program has the same user, and must not get at our descriptors. */
	prctl(PR_SET_DUMPABLE, 0);
	if (recv(FORWARD_AGENT, &msg, sizeof(msg), 0) != (ssize_t)sizeof(msg) ||
	    msg.kind != FORWARD_BEGIN || msg.count > UDP_MAX_ADDRESSES)
		return false;
	forwarder.count = msg.count;
	memcpy(forwarder.addresses, msg.addresses, sizeof(forwarder.addresses));
	for (uint32_t i = 0; i < forwarder.count; i++)
		if (udp_receiver_begin(&forwarder.receivers[i]) != 0)
			return false;
	return true;
}

int forwarder_run(void)
{
	struct pollfd list[FORWARD_SOCKETS - FORWARD_AGENT + UDP_MAX_ADDRESSES];
	if (!forwarder_begin())
		return 1;
	nfds_t count = 2 + forwarder.count;
	for (nfds_t i = 0; i < count; i++)
		list[i] = (struct pollfd){.fd = FORWARD_AGENT + (int)i, .events = POLLIN};
	for (;;) {
		if (poll(list, count, -1) < 0 && errno != EINTR)
			return 1;
		if (list[0].revents != 0 && !forwarder_hear_agent())
			return 0;
		if (list[1].revents != 0 && !forwarder_hear_program())
			return 0;
		for (uint32_t i = 0; i < forwarder.count; i++)
			if (list[2 + i].revents != 0)
				forwarder_hear_socket(i);
	}
}
