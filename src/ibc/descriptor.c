/* A descriptor for poll(2) that tells of packets: see heddle/ibc.h. */
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "ibc/gate.h"
#include "port/bell.h"

/* The descriptor also tells of the agent, which may be another one by now. */
static void descriptor_watch(struct client *client)
{
	struct epoll_event interest = {.events = EPOLLIN};
	member_hear(&client->member);
	if (client->watched == client->member.agents && client->watches)
		return;
	client->watched = client->member.agents;
	client->watches =
	        client->member.agent >= 0 &&
	        epoll_ctl(client->epoll, EPOLL_CTL_ADD, client->member.agent, &interest) == 0;
}

/* Make the descriptor readable while there are packets, and only then. */
void client_settle_descriptor(struct client *client)
{
	for (;;) {
		descriptor_watch(client);
		bool ready = client->signalled > 0 || client->kept_count > 0;
		if (ready && !client->rung)
			bell_ring(client->member.rope);
		client->rung = ready;
		if (ready)
			return;
		bell_hear(client->member.bell);
		if (member_arm(&client->member, client_blocked(client)))
			return;
		client_drive(client); /* something came while we armed */
	}
}

IBC_API int IBC_Descriptor(void)
{
	struct client *client = client_enter();
	if (client == NULL)
		return -1;
	if (client->epoll < 0) {
		struct epoll_event interest = {.events = EPOLLIN};
		client->epoll = fd_aside(epoll_create1(EPOLL_CLOEXEC));
		if (client->epoll >= 0 &&
		    epoll_ctl(client->epoll, EPOLL_CTL_ADD, client->member.bell, &interest) != 0) {
			close(client->epoll);
			client->epoll = -1;
		}
		client->has_descriptor = client->epoll >= 0;
	}
	if (client->has_descriptor)
		client_drive(client);
	int descriptor = client->epoll;
	client_exit(client);
	return descriptor;
}
