/* Messages to processes. A process that is not scheduled for a while, or is asked for hundreds of
 * connections at once, does not read as fast as others write. Messages that find no room in its
 * socket wait here, in order. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/agent.h"
#include "port/unixsock.h"

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
	if (epoll_ctl(client->epoll, EPOLL_CTL_MOD, client->sock, &interest) != 0)
		client->dead = true;
}

/* Queue a copy, with duplicates of the descriptors. False: the queue is full, or no memory or
 * descriptor is left. */
static bool outbox_keep(struct client *client, const struct agent_msg *msg, const int *fds,
                        int fd_count)
{
	struct queued *queued =
	        client->queue_count < AGENT_MAX_QUEUED ? malloc(sizeof(*queued)) : NULL;
	if (queued == NULL)
		return false;
	queued->next = NULL;
	queued->msg = *msg;
	for (queued->fd_count = 0; queued->fd_count < fd_count; queued->fd_count++) {
		int fd = fcntl(fds[queued->fd_count], F_DUPFD_CLOEXEC, 0);
		if (fd < 0) {
			outbox_free(queued);
			return false;
		}
		queued->fds[queued->fd_count] = fd;
	}
	if (client->queue == NULL)
		client->queue_end = &client->queue;
	*client->queue_end = queued;
	client->queue_end = &queued->next;
	if (client->queue_count++ == 0)
		outbox_watch(client, true);
	return true;
}

bool outbox_send(struct client *client, struct agent_msg *msg, const int *fds, int fd_count)
{
	if (client->dead)
		return false;
	msg->version = AGENT_VERSION;
	int result = client->queue != NULL
	                     ? -EAGAIN
	                     : unixsock_send(client->sock, msg, sizeof(*msg), fds, fd_count);
	return result == 0 || (result == -EAGAIN && outbox_keep(client, msg, fds, fd_count));
}

void outbox_flush(struct client *client)
{
	while (client->queue != NULL && !client->dead) {
		struct queued *queued = client->queue;
		int result = unixsock_send(client->sock, &queued->msg, sizeof(queued->msg),
		                           queued->fds, queued->fd_count);
		if (result == -EAGAIN)
			return;
		client->dead = result != 0;
		client->queue = queued->next;
		client->queue_count--;
		outbox_free(queued);
	}
	if (!client->dead)
		outbox_watch(client, false);
}

void outbox_clear(struct client *client)
{
	while (client->queue != NULL) {
		struct queued *queued = client->queue;
		client->queue = queued->next;
		outbox_free(queued);
	}
}
