/* The clients of the agent: the processes that connect to it, their messages, their end. What the
 * agent does for them is up to its services (service.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/log.h"
#include "port/pidfd.h"
#include "port/unixsock.h"

/* What the agent offers. A process gets its name from the first, so that is the last to let go of
 * one that has gone. */
const struct agent_service *const agent_services[] = {
        &names_service,     &group_service,   &cm_service,     &wire_service,
        &introduce_service, &vswitch_service, &oob_service,    &aperture_service,
        &sctp_service,      &stripe_service,  &outbox_service,
};
const unsigned agent_service_count = sizeof(agent_services) / sizeof(agent_services[0]);

static void hang_up(struct client *client)
{
	client->dead = true;
}

void tell(struct client *client, struct agent_msg *msg, const int *fds, int fd_count)
{
	if (!client->dead && outbox_send(client, msg, fds, fd_count) != 0)
		hang_up(client);
}

void client_refuse(struct client *client, int error, const char *why)
{
	struct agent_msg msg = {.kind = AGENT_REFUSED, .u.refused = {.error = error}};
	snprintf(msg.u.refused.why, sizeof(msg.u.refused.why), "%s", why);
	tell(client, &msg, NULL, 0);
	hang_up(client);
}

void agent_accept(struct agent *agent)
{
	int sock = accept4(agent->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (sock < 0 && (errno == EMFILE || errno == ENFILE) && agent->spare >= 0) {
		/* Out of descriptors: turn the process away, or else the socket would stay readable
		 * and the loop would never sleep. */
		close(agent->spare);
		sock = accept4(agent->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (sock >= 0)
			close(sock);
		agent->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return;
	}
	if (sock < 0)
		return;
	struct client *client = calloc(1, sizeof(*client));
	pid_t pid;
	uid_t uid;
	/* The socket is closed to other users; should one get in all the same, turn it away. */
	if (client == NULL || unixsock_peer(sock, &pid, &uid) != 0 || uid != geteuid()) {
		log_debug("a process of another user was turned away: this agent serves user %u",
		          (unsigned)geteuid());
		free(client);
		close(sock);
		return;
	}
	*client = (struct client){.sock = sock,
	                          .agent = agent,
	                          .pid = pid,
	                          .pidfd = pidfd_of_peer(sock, pid),
	                          .tables = -1,
	                          .bell = -1};
	struct epoll_event interest = {.events = EPOLLIN, .data.ptr = client};
	if (epoll_ctl(agent->epoll, EPOLL_CTL_ADD, sock, &interest) != 0) {
		if (client->pidfd >= 0)
			close(client->pidfd);
		free(client);
		close(sock);
		return;
	}
	if (client->pidfd >= 0)
		epoll_ctl(agent->epoll, EPOLL_CTL_ADD, client->pidfd, &interest);
	client->next = agent->clients;
	agent->clients = client;
	agent->client_count++;
}

static void client_hear(struct agent *agent, struct client *client)
{
	struct agent_request request;
	memset(&request, 0, sizeof(request));
	ssize_t got = unixsock_receive(client->sock, &request.msg, sizeof(request.msg), request.fds,
	                               &request.fd_count);
	if (got == -EAGAIN) {
		/* No message: then the pidfd woke us. The process has ended, and one of its
		 * children holds the socket. */
		if (client->pidfd >= 0 && pidfd_ended(client->pidfd))
			hang_up(client);
		return;
	}
	if (got == -EMFILE) {
		client_refuse(
		        client, EMFILE,
		        "it has no descriptors left; end some programs, or raise \"ulimit -n\" and "
		        "end the agent");
		return;
	}
	if (got <= 0 && got != -EMSGSIZE) {
		hang_up(client);
		return;
	}
	/* A message of another version may be longer than ours. */
	request.bytes = got > 0 ? (size_t)got : 0;
	if (request.bytes < AGENT_MSG_HEADER_BYTES || request.msg.version != AGENT_VERSION)
		client_refuse(
		        client, EPROTONOSUPPORT,
		        "another version of Heddle runs the agent; end its programs, then try "
		        "again");
	else if (!services_hear(&agent->services, agent, client, client->greeted, &request))
		client_refuse(client, EPROTO, "the message is malformed");
	for (int i = 0; i < request.fd_count; i++)
		if (request.fds[i] >= 0)
			close(request.fds[i]);
}

/* Tell every service that @client has gone. What it held is free for those that are heard next. */
static void client_leave(struct agent *agent, struct client *client)
{
	if (!client->left)
		services_leave(&agent->services, agent, client);
	client->left = true;
}

void agent_hear(struct agent *agent, struct client *client)
{
	if (!client->dead)
		client_hear(agent, client);
	if (client->dead)
		client_leave(agent, client);
}

void agent_sweep(struct agent *agent)
{
	for (struct client **at = &agent->clients; *at != NULL;) {
		struct client *client = *at;
		if (!client->dead) {
			at = &client->next;
			continue;
		}
		*at = client->next;
		client_leave(agent, client);
		outbox_clear(client);
		close(client->sock);
		if (client->pidfd >= 0) {
			/* Its peers hold it too, so closing alone would not take it out of the
			 * epoll set. */
			epoll_ctl(agent->epoll, EPOLL_CTL_DEL, client->pidfd, NULL);
			close(client->pidfd);
		}
		if (client->tables >= 0)
			close(client->tables);
		if (client->bell >= 0)
			close(client->bell);
		free(client);
		agent->client_count--;
		at = &agent->clients; /* a service may have found another one dead */
	}
}
