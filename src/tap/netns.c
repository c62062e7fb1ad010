/* Make descriptors in the namespaces of another process. A child enters them, because a process
 * with threads cannot enter a user namespace, and passes the descriptors back; the rest of Heddle
 * stays outside. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

static void netns_child(int sock, pid_t pid, int (*make)(void *, int *, char *), void *context)
{
	char why[LAN_WHY_BYTES] = "";
	int fds[UNIXSOCK_MAX_FDS], count = 0;
	if (netns_enter(pid, "user", CLONE_NEWUSER, why) &&
	    netns_enter(pid, "net", CLONE_NEWNET, why))
		count = make(context, fds, why);
	unixsock_hand_over(sock, why, sizeof(why), fds, count);
	_exit(0);
}

int netns_make(pid_t pid, int (*make)(void *context, int *fds, char *why), void *context, int *fds,
               char *why)
{
	if (pid == 0)
		return make(context, fds, why);
	int socks[2], count = 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) != 0) {
		snprintf(why, LAN_WHY_BYTES, "%s", strerror(errno));
		return 0;
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
	return got > 0 ? count : 0;
}

ino_t netns_of(pid_t pid)
{
	char path[64];
	struct stat space;
	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
	return stat(path, &space) == 0 ? space.st_ino : 0;
}

int netns_hold(ino_t space, pid_t first)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	int fd = -1;
	pid_t pid = first;
	/* Nobody can be in it whose process ends between the two calls: the pidfd tells. */
	while (fd < 0 && folder != NULL) {
		if (pid != 0 && netns_of(pid) == space)
			fd = (int)syscall(SYS_pidfd_open, pid, 0);
		if ((entry = readdir(folder)) == NULL)
			break;
		pid = (pid_t)atoi(entry->d_name);
		if (pid == getpid())
			pid = 0;
	}
	if (folder != NULL)
		closedir(folder);
	return fd;
}
