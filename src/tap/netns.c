/* Make a descriptor in the namespaces of another process. A child enters them, because a process
 * with threads cannot enter a user namespace, and passes the descriptor back; the rest of Heddle
 * stays outside. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "port/unixsock.h"
#include "tap/lan.h"

static bool netns_enter(pid_t pid, const char *kind, int type, char *why)
{
	char path[64];
	struct stat own, other;
	snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
	bool known = stat(path, &own) == 0;
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kind);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		snprintf(
		        why, LAN_WHY_BYTES,
		        "cannot look at the namespaces of process %d: %s; it must run, as the same "
		        "user",
		        (int)pid, strerror(errno));
		return false;
	}
	bool same = known && fstat(fd, &other) == 0 && own.st_ino == other.st_ino;
	bool good = same || setns(fd, type) == 0;
	if (!good)
		snprintf(why, LAN_WHY_BYTES,
		         "cannot enter the %s namespace of process %d: %s; start it with `unshare "
		         "-Urn' as the same user",
		         kind, (int)pid, strerror(errno));
	close(fd);
	return good;
}

static void netns_child(int sock, pid_t pid, int (*make)(void *, char *), void *context)
{
	char why[LAN_WHY_BYTES] = "";
	int fd = -1;
	if (netns_enter(pid, "user", CLONE_NEWUSER, why) &&
	    netns_enter(pid, "net", CLONE_NEWNET, why))
		fd = make(context, why);
	unixsock_send(sock, why, sizeof(why), &fd, fd >= 0 ? 1 : 0);
	_exit(0);
}

int netns_make(pid_t pid, int (*make)(void *context, char *why), void *context, char *why)
{
	if (pid == 0)
		return make(context, why);
	int socks[2], fds[UNIXSOCK_MAX_FDS], count = 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) != 0) {
		snprintf(why, LAN_WHY_BYTES, "%s", strerror(errno));
		return -1;
	}
	pid_t child = fork();
	if (child == 0)
		netns_child(socks[1], pid, make, context);
	close(socks[1]);
	ssize_t got = child > 0 ? unixsock_receive(socks[0], why, LAN_WHY_BYTES, fds, &count) : -1;
	close(socks[0]);
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	if (got <= 0)
		snprintf(why, LAN_WHY_BYTES, "the process in the namespace ended early");
	why[LAN_WHY_BYTES - 1] = '\0';
	return got > 0 && count == 1 ? fds[0] : -1;
}
