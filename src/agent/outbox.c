/* What is said to a process. One that is not scheduled for a while, or is asked for hundreds of
 * connections at once, does not read as fast as others write: what finds no room in its socket
 * waits here, in order. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/agent.h"
#include "port/unixsock.h"

struct letter {
	struct letter *next;
	int fds[UNIXSOCK_MAX_FDS];
	int fd_count;
	struct agent_msg msg;
};

static void burn(struct letter *letter)
{
	for (int i = 0; i < letter->fd_count; i++)
		close(letter->fds[i]);
	free(letter);
}

/* Shall we be woken when there is room in the socket? */
static void outbox_watch(struct client *client, bool room)
{
	struct epoll_event interest = {.events = EPOLLIN | (room ? EPOLLOUT : 0),
	                               .data.ptr = client};
	if (epoll_ctl(client->epoll, EPOLL_CTL_MOD, client->sock, &interest) != 0)
		client->dead = true;
}

/* Keep a copy, with descriptors of its own. False: there is no room. */
static bool outbox_keep(struct client *client, const struct agent_msg *msg, const int *fds,
                        int fd_count)
{
	struct letter *letter =
	        client->letter_count < AGENT_MAX_LETTERS ? malloc(sizeof(*letter)) : NULL;
	if (letter == NULL)
		return false;
	letter->next = NULL;
	letter->msg = *msg;
	for (letter->fd_count = 0; letter->fd_count < fd_count; letter->fd_count++) {
		int fd = fcntl(fds[letter->fd_count], F_DUPFD_CLOEXEC, 0);
		if (fd < 0) {
			burn(letter);
			return false;
		}
		letter->fds[letter->fd_count] = fd;
	}
	if (client->letters == NULL)
		client->letters_end = &client->letters;
	*client->letters_end = letter;
	client->letters_end = &letter->next;
	if (client->letter_count++ == 0)
		outbox_watch(client, true);
	return true;
}

bool outbox_send(struct client *client, struct agent_msg *msg, const int *fds, int fd_count)
{
	if (client->dead)
		return false;
	msg->version = AGENT_VERSION;
	int result = client->letters != NULL
	                     ? -EAGAIN
	                     : unixsock_send(client->sock, msg, sizeof(*msg), fds, fd_count);
	return result == 0 || (result == -EAGAIN && outbox_keep(client, msg, fds, fd_count));
}

void outbox_flush(struct client *client)
{
	while (client->letters != NULL && !client->dead) {
		struct letter *letter = client->letters;
		int result = unixsock_send(client->sock, &letter->msg, sizeof(letter->msg),
		                           letter->fds, letter->fd_count);
		if (result == -EAGAIN)
			return;
		client->dead = result != 0;
		client->letters = letter->next;
		client->letter_count--;
		burn(letter);
	}
	if (!client->dead)
		outbox_watch(client, false);
}

void outbox_clear(struct client *client)
{
	while (client->letters != NULL) {
		struct letter *letter = client->letters;
		client->letters = letter->next;
		burn(letter);
	}
}
