/* Programs that are not trusted, and other machines: the agent's side. It starts their forwarders
 * (forward.h), tells these about connections, and passes out-of-band packets on, in both
 * directions, if they agree with what it holds (managed.h). */
#include "agent/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/forward.h"
#include "agent/managed.h"
#include "base/log.h"
#include "port/unixsock.h"

#define REMOTE_BATCH    64u /* messages of a forwarder in a turn */
#define REMOTE_FIRST_FD 16  /* above those that a forwarder begins with */
#define REMOTE_NONE     UINT32_MAX

/* A forwarder. */
struct remote {
	struct agent_source source; /* first */
	struct client *client;
	int sock, epoll;
	uint32_t behind; /* it has not been told of the entries from here on; REMOTE_NONE: of all */
};

static struct managed_end remote_end(const uint8_t host[16])
{
	struct managed_end end = {.remote = true};
	memcpy(end.host, host, sizeof(end.host));
	return end;
}

/* --- the forwarder --- */

void remote_leave(struct client *client)
{
	struct remote *remote = client->remote;
	if (remote == NULL)
		return;
	client->remote = NULL;
	epoll_ctl(remote->epoll, EPOLL_CTL_DEL, remote->sock, NULL);
	close(remote->sock); /* which ends the forwarder */
	free(remote);
}

/* Start a forwarder with the descriptors @fds. 0 or -errno. */
static int remote_spawn(const struct client *client, const int *fds, int count)
{
	char text[AGENT_NAME_MAX + 32];
	char *argv[] = {(char *)"heddled", (char *)"--forward", text, NULL}, *none[] = {NULL};
	int moved[FORWARD_SOCKETS - FORWARD_AGENT + UDP_MAX_ADDRESSES], result = 0, made = 0;
	posix_spawn_file_actions_t actions;
	pid_t pid;
	snprintf(text, sizeof(text), "%s (%d)", client->program, (int)client->pid);
	posix_spawn_file_actions_init(&actions);
	/* None of them may be in the place of another. */
	for (; made < count && result == 0; made++) {
		moved[made] = fcntl(fds[made], F_DUPFD_CLOEXEC, REMOTE_FIRST_FD);
		result = moved[made] < 0 ? errno
		                         : posix_spawn_file_actions_adddup2(&actions, moved[made],
		                                                            FORWARD_AGENT + made);
	}
	if (result == 0)
		result = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, none);
	posix_spawn_file_actions_destroy(&actions);
	while (made-- > 0)
		if (moved[made] >= 0)
			close(moved[made]);
	return -result;
}

/* Tell the forwarder what is in a place of the book. False: there is no room now. */
static bool remote_tell(const struct remote *remote, uint32_t place)
{
	struct managed_entry *entry = &remote->client->managed->entries[place];
	struct forward_msg msg = {
	        .kind = FORWARD_ENTRY,
	        .entry = {.place = place,
	                  .index = entry->peer_index,
	                  .nonce = entry->peer_nonce,
	                  .open = entry->state == MANAGED_OPEN && entry->peer.remote,
	                  .rolls = entry->peer_rolls}};
	memcpy(msg.entry.host, entry->peer.host, sizeof(msg.entry.host));
	if (!msg.entry.open && !entry->forwarded)
		return true;
	if (unixsock_send_now(remote->sock, &msg, sizeof(msg)) == -EAGAIN)
		return false;
	entry->forwarded = msg.entry.open;
	return true;
}

/* Be called when there is room, or no longer. */
static void remote_watch(struct remote *remote, bool room)
{
	struct epoll_event interest = {.events = EPOLLIN | (room ? EPOLLOUT : 0),
	                               .data.ptr = remote};
	(void)epoll_ctl(remote->epoll, EPOLL_CTL_MOD, remote->sock, &interest);
}

static void remote_catch_up(struct remote *remote)
{
	while (remote->behind < remote->client->managed->top) {
		if (!remote_tell(remote, remote->behind))
			return;
		remote->behind++;
	}
	remote->behind = REMOTE_NONE;
	remote_watch(remote, false);
}

void remote_sync(struct client *client)
{
	struct managed *book = client->managed;
	struct remote *remote = client->remote;
	if (book == NULL || book->changed == NULL || remote == NULL)
		return;
	uint32_t place = (uint32_t)(book->changed - book->entries);
	book->changed = NULL;
	if (place >= remote->behind || remote_tell(remote, place))
		return;
	if (remote->behind == REMOTE_NONE)
		remote_watch(remote, true);
	remote->behind = place;
}

/* Something came from the forwarder: out-of-band packets from other machines. */
static void remote_ready(struct agent_source *source)
{
	struct remote *remote = (struct remote *)(void *)source;
	struct client *client = remote->client;
	struct forward_msg msg;
	int fds[UNIXSOCK_MAX_FDS], fd_count;
	if (remote->behind != REMOTE_NONE)
		remote_catch_up(remote);
	for (unsigned i = 0; i < REMOTE_BATCH; i++) {
		ssize_t got = unixsock_receive(remote->sock, &msg, sizeof(msg), fds, &fd_count);
		if (got == -EAGAIN)
			return;
		if (got != (ssize_t)sizeof(msg) || msg.length > sizeof(msg.data)) {
			log_info("the forwarder of %s (%d) has ended", client->program,
			         (int)client->pid);
			remote_leave(client);
			return;
		}
		if (msg.kind == FORWARD_CAME)
			remote_came(client, msg.which, msg.host, msg.data, msg.length);
		else if (msg.kind == FORWARD_RETURNED)
			ci_returned_to(client, msg.host, msg.error, msg.data, msg.length);
	}
}

static int remote_make(struct agent *agent, struct client *client, const int pair[2])
{
	struct remote *remote = calloc(1, sizeof(*remote));
	struct epoll_event interest = {.events = EPOLLIN, .data.ptr = remote};
	if (remote == NULL)
		return -ENOMEM;
	*remote = (struct remote){.source.ready = remote_ready,
	                          .client = client,
	                          .sock = pair[0],
	                          .epoll = agent->epoll,
	                          .behind = REMOTE_NONE};
	if (epoll_ctl(agent->epoll, EPOLL_CTL_ADD, pair[0], &interest) != 0) {
		int error = errno;
		free(remote);
		return -error;
	}
	client->remote = remote;
	return 0;
}

int remote_open(struct agent *agent, struct client *client, const int *socks,
                const struct udp_address *const *addresses, int count)
{
	int control[2], channel[2], fds[2 + UDP_MAX_ADDRESSES];
	struct forward_msg begin = {.kind = FORWARD_BEGIN, .count = (uint32_t)count};
	remote_leave(client); /* it lost the former one, or the agent was another */
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, control) != 0)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, channel) != 0) {
		int error = errno;
		close(control[0]);
		close(control[1]);
		return -error;
	}
	fds[0] = control[1];
	fds[1] = channel[1];
	for (int i = 0; i < count; i++) {
		fds[2 + i] = socks[i];
		begin.addresses[i] = *addresses[i];
	}
	int result = unixsock_send_now(control[0], &begin, sizeof(begin));
	if (result == 0)
		result = remote_make(agent, client, control);
	if (result == 0)
		result = remote_spawn(client, fds, 2 + count);
	close(control[1]);
	close(channel[1]);
	if (result == 0)
		return channel[0];
	close(channel[0]);
	if (client->remote != NULL)
		remote_leave(client);
	else
		close(control[0]);
	return result;
}

/* --- out-of-band packets --- */

static void remote_refuse(struct client *client, const struct ci_packet *packet, const char *way,
                          enum managed_verdict verdict)
{
	log_info("%s (%d): a packet of kind %u %s another machine %s: dropped", client->program,
	         (int)client->pid, packet->kind, way, managed_verdict_str(verdict));
}

void remote_came(struct client *client, uint32_t which, const uint8_t host[16], const uint8_t *data,
                 size_t bytes)
{
	struct agent_msg out = {.kind = AGENT_CI_CONTROL,
	                        .u.cm = {.options = 1, .slot = which, .length = (uint32_t)bytes}};
	struct managed_end from = remote_end(host);
	struct managed *book = control_book(client);
	struct ci_reader reader;
	struct ci_packet packet;
	enum ci_verdict more;
	if (book == NULL || bytes > sizeof(out.u.cm.data))
		return;
	ci_open(&reader, data, bytes);
	while ((more = ci_next(&reader, &packet)) == CI_OK) {
		enum managed_verdict verdict = managed_gets(book, &from, &packet);
		/* The entry was a former agent's, or is no more. */
		if (verdict == MANAGED_NO_ENTRY)
			ci_is_gone(client->node, which, host, &packet);
		if (verdict != MANAGED_PASS) {
			remote_refuse(client, &packet, "from", verdict);
			return;
		}
		remote_sync(client);
	}
	if (more != CI_END)
		return;
	memcpy(out.u.cm.gid, host, sizeof(out.u.cm.gid));
	memcpy(out.u.cm.data, data, bytes);
	(void)outbox_send(client, &out, NULL, 0); /* what finds no room is repeated */
}

void remote_pass(struct agent *agent, struct client *client, const struct agent_cm *cm)
{
	struct managed_end to = remote_end(cm->gid);
	struct managed *book = ci_is_untrusted(agent, client) ? control_book(client) : NULL;
	struct ci_reader reader;
	struct ci_packet packet;
	enum ci_verdict more;
	if (book == NULL || cm->length > sizeof(cm->data))
		return; /* one that is trusted has sockets */
	ci_open(&reader, cm->data, cm->length);
	while ((more = ci_next(&reader, &packet)) == CI_OK) {
		enum managed_verdict verdict = managed_sends(book, &to, &packet);
		if (verdict != MANAGED_PASS) {
			client->refused++;
			remote_refuse(client, &packet, "to", verdict);
			return;
		}
		remote_sync(client);
	}
	if (more == CI_END && reader.at == cm->length)
		ci_send_to(client->node, cm->slot, cm->gid, cm->data, cm->length);
	else
		client->refused++;
}
