/* Looking at virtual switches from outside. See observe.h. */
#include "ibc/observe.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memfile.h"
#include "port/agentstart.h"
#include "port/rundir.h"
#include "port/unixsock.h"

#define ANSWER_MS 2000

/* Show the member of @msg, with its board @fd. */
static void show_member(const struct agent_vs_member *msg, int fd,
                        void (*visit)(const struct observed_member *member, void *context),
                        void *context)
{
	struct observed_member member = {.pid = msg->pid,
	                                 .number = msg->member,
	                                 .ports = (msg->flags & AGENT_VS_PORTS) != 0,
	                                 .apids = msg->apids};
	memcpy(member.node, msg->node, sizeof(member.node) - 1);
	memcpy(member.program, msg->program, sizeof(member.program) - 1);
	void *board = memfile_is_sealed(fd, sizeof(struct board))
	                      ? mmap(NULL, sizeof(struct board), PROT_READ, MAP_SHARED, fd, 0)
	                      : MAP_FAILED;
	if (board == MAP_FAILED)
		return;
	member.board = board;
	visit(&member, context);
	munmap(board, sizeof(struct board));
}

int ibc_observe(void (*visit)(const struct observed_member *member, void *context), void *context)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	struct agent_msg msg = {.version = AGENT_VERSION, .kind = AGENT_VS_OBSERVE};
	int result = rundir_open(directory, NULL);
	if (result != 0)
		return result;
	rundir_file(directory, AGENT_SOCKET, path, sizeof(path));
	int sock = unixsock_connect(path);
	if (sock < 0)
		return sock == -ENOENT || sock == -ECONNREFUSED ? 0 : sock;
	if (!agentstart_is_ours(sock) || unixsock_send(sock, &msg, sizeof(msg), NULL, 0) != 0) {
		close(sock);
		return -EACCES;
	}
	for (;;) {
		int fds[UNIXSOCK_MAX_FDS], count = 0;
		struct pollfd answer = {.fd = sock, .events = POLLIN};
		int ready = poll(&answer, 1, ANSWER_MS);
		if (ready < 0 && errno == EINTR)
			continue;
		ssize_t got = ready > 0 ? unixsock_receive(sock, &msg, sizeof(msg), fds, &count)
		                        : -ETIMEDOUT;
		bool good = got == (ssize_t)sizeof(msg) && msg.version == AGENT_VERSION;
		if (good && msg.kind == AGENT_VS_MEMBER && count == 1)
			show_member(&msg.u.vs_member, fds[0], visit, context);
		for (int i = 0; i < count; i++)
			close(fds[i]);
		if (good && msg.kind == AGENT_VS_MEMBER)
			continue;
		close(sock);
		return good && msg.kind == AGENT_END ? 0 : got < 0 ? (int)got : -EPROTO;
	}
}
