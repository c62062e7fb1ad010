/* Messages to processes. A process that is not scheduled for a while, or is asked for hundreds of
 * connections at once, does not read as fast as others write. Messages that find no room in its
 * socket wait here, in order.
 *
 * So do messages with descriptors, while an earlier one lies unread in the socket. The kernel
 * counts the descriptors of a user in all sockets that nobody has read (RLIMIT_NOFILE, unix(7):
 * ETOOMANYREFS), and beyond the limit no program of that user can pass any. So a process that
 * never reads, one that is stopped, say, has one message with descriptors in its socket at most. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/clock.h"
#include "base/log.h"
#include "port/unixsock.h"

/* How often to try again when the kernel does not tell that there is room: other programs of the
 * user have too many descriptors in flight. */
#define AGAIN_FIRST_NS 1000000u
#define AGAIN_LAST_NS  100000000u

struct queued {
	struct queued *next;
	int fds[UNIXSOCK_MAX_FDS];
	int fd_count;
	struct agent_msg msg;
};

static void outbox_free(struct queued *queued)
{
	for (int i = 0; i < queued->fd_count; i++)
		close(queued->fds[i]);
	free(queued);
}

/* Wake the agent when there is room in the socket, or no longer. */
static void outbox_watch(struct client *client, bool room)
{
	struct epoll_event interest = {.events = EPOLLIN | (room ? EPOLLOUT : 0),
	                               .data.ptr = client};
	if (epoll_ctl(client->agent->epoll, EPOLL_CTL_MOD, client->sock, &interest) != 0)
		client->dead = true;
}

/* Does a message with descriptors lie unread in the socket? */
static bool outbox_has_unread(struct client *client)
{
	int bytes;
	if (client->lent && (ioctl(client->sock, SIOCOUTQ, &bytes) != 0 || bytes == 0))
		client->lent = false;
	return client->lent;
}

/* The socket has room as long as a quarter of its buffer is free. With the smallest buffer, one
 * message takes more than that: it has room when everything has been read, and then epoll tells. */
static void outbox_narrow(struct client *client)
{
	int bytes;
	socklen_t length = sizeof(bytes);
	if (client->buffer_bytes != 0 ||
	    getsockopt(client->sock, SOL_SOCKET, SO_SNDBUF, &bytes, &length) != 0)
		return;
	client->buffer_bytes = bytes / 2; /* the kernel doubles what it is given */
	setsockopt(client->sock, SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int));
}

static void outbox_widen(struct client *client)
{
	if (client->buffer_bytes != 0)
		setsockopt(client->sock, SOL_SOCKET, SO_SNDBUF, &client->buffer_bytes, sizeof(int));
	client->buffer_bytes = 0;
}

/* Try again after a while, because no event will tell when. */
static void outbox_try_later(struct client *client)
{
	struct agent *agent = client->agent;
	client->again_wait_ns = client->again_wait_ns == 0 ? AGAIN_FIRST_NS
	                        : client->again_wait_ns < AGAIN_LAST_NS / 2
	                                ? client->again_wait_ns * 2
	                                : AGAIN_LAST_NS;
	client->again_ns = clock_now_ns() + client->again_wait_ns;
	if (agent->again_ns == 0 || client->again_ns < agent->again_ns)
		agent->again_ns = client->again_ns;
	outbox_watch(client, false);
}

/* Put a message into the socket. -EAGAIN: not now; the outbox is asked again. */
static int outbox_put(struct client *client, const struct agent_msg *msg, const int *fds,
                      int fd_count)
{
	if (fd_count > 0 && outbox_has_unread(client)) {
		outbox_narrow(client);
		return -EAGAIN;
	}
	int result = unixsock_send(client->sock, msg, sizeof(*msg), fds, fd_count);
	if (result == -ETOOMANYREFS) {
		if (!client->agent->jammed)
			unixsock_explain_jam();
		client->agent->jammed = client->jammed = true;
		return -EAGAIN;
	}
	if (fd_count > 0 && result == 0) {
		client->lent = true;
		client->agent->jammed = client->jammed = false;
	}
	return result;
}

/* Queue a copy, with duplicates of the descriptors. */
static int outbox_keep(struct client *client, const struct agent_msg *msg, const int *fds,
                       int fd_count)
{
	if (client->queue_count >= AGENT_MAX_QUEUED)
		return -ENOBUFS;
	struct queued *queued = malloc(sizeof(*queued));
	if (queued == NULL)
		return -ENOMEM;
	queued->next = NULL;
	queued->msg = *msg;
	for (queued->fd_count = 0; queued->fd_count < fd_count; queued->fd_count++) {
		int fd = fcntl(fds[queued->fd_count], F_DUPFD_CLOEXEC, 0);
		if (fd < 0) {
			int error = errno;
			log_error("no descriptor is left to keep a message for process %d, which "
			          "does not read what it was sent: %s; end some programs, or raise "
			          "\"ulimit -n\" and end the agent",
			          (int)client->pid, strerror(error));
			outbox_free(queued);
			return -error;
		}
		queued->fds[queued->fd_count] = fd;
	}
	if (client->queue == NULL)
		client->queue_end = &client->queue;
	*client->queue_end = queued;
	client->queue_end = &queued->next;
	if (client->queue_count++ > 0)
		return 0;
	if (client->jammed)
		outbox_try_later(client);
	else
		outbox_watch(client, true);
	return 0;
}

int outbox_send(struct client *client, struct agent_msg *msg, const int *fds, int fd_count)
{
	if (client->dead)
		return -EPIPE;
	msg->version = AGENT_VERSION;
	int result = client->queue != NULL ? -EAGAIN : outbox_put(client, msg, fds, fd_count);
	return result == -EAGAIN ? outbox_keep(client, msg, fds, fd_count) : result;
}

/* Send what waits, as far as there is room. True: some of it. */
static bool outbox_send_queued(struct client *client)
{
	bool progress = false;
	while (client->queue != NULL && !client->dead) {
		struct queued *queued = client->queue;
		int result = outbox_put(client, &queued->msg, queued->fds, queued->fd_count);
		if (result == -EAGAIN) {
			/* An event without progress comes from a kernel whose account of buffers is
			 * another one: we must not ask without end. */
			if (client->jammed || (client->lent && !progress))
				outbox_try_later(client);
			else
				outbox_watch(client, true);
			return progress;
		}
		progress = true;
		client->again_wait_ns = 0;
		client->dead = result != 0;
		client->queue = queued->next;
		client->queue_count--;
		outbox_free(queued);
	}
	if (!client->dead) {
		outbox_widen(client);
		outbox_watch(client, false);
	}
	return progress;
}

void outbox_flush(struct client *client)
{
	if (outbox_send_queued(client))
		vswitch_told(client);
}

void outbox_clear(struct client *client)
{
	while (client->queue != NULL) {
		struct queued *queued = client->queue;
		client->queue = queued->next;
		outbox_free(queued);
	}
}

static uint64_t outbox_sweep(struct agent *agent, uint64_t now_ns)
{
	if (agent->again_ns == 0)
		return SERVICES_NEVER;
	if (now_ns < agent->again_ns)
		return agent->again_ns;
	agent->again_ns = 0;
	for (struct client *at = agent->clients; at != NULL; at = at->next) {
		if (at->again_ns == 0 || at->dead)
			continue;
		if (at->again_ns <= now_ns) {
			at->again_ns = 0;
			outbox_flush(at);
		}
		if (at->again_ns != 0 && (agent->again_ns == 0 || at->again_ns < agent->again_ns))
			agent->again_ns = at->again_ns;
	}
	return agent->again_ns != 0 ? agent->again_ns : SERVICES_NEVER;
}

const struct agent_service outbox_service = {.name = "outbox", .sweep = outbox_sweep};
