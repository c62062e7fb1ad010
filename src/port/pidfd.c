/* Processes by descriptor. */
#include "port/pidfd.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* Linux 6.13; the first version of the structure. */
struct info {
	uint64_t mask, cgroup;
	uint32_t pid, tgid, ppid;
	uint32_t ids[9];
};
_Static_assert(sizeof(struct info) == 64, "linux/pidfd.h");
#define GET_INFO _IOWR(0xff, 11, struct info)

int pidfd_of_peer(int sock, pid_t pid)
{
	int pidfd = -1;
	socklen_t length = sizeof(pidfd);
	if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0)
		return pidfd;
	return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

/* Does /proc show the numbers of our PID namespace? If it belongs to another namespace, it does not
 * know us by our number. */
static bool proc_is_ours(void)
{
	char text[32] = "";
	return readlink("/proc/self", text, sizeof(text) - 1) > 0 && atol(text) == (long)getpid();
}

static pid_t number_by_list(int pidfd)
{
	char path[64], line[128];
	long number = 0;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	FILE *list = proc_is_ours() ? fopen(path, "re") : NULL;
	while (list != NULL && fgets(line, sizeof(line), list) != NULL)
		if (sscanf(line, "Pid: %ld", &number) == 1)
			break;
	if (list != NULL)
		fclose(list);
	return number > 0 ? (pid_t)number : 0;
}

pid_t pidfd_number(int pidfd)
{
	struct info info = {0};
	if (ioctl(pidfd, GET_INFO, &info) == 0)
		return (pid_t)info.tgid;
	return errno == ESRCH || errno == EREMOTE ? 0 : number_by_list(pidfd);
}

bool pidfd_ended(int pidfd)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	int cancel = cancel_forbid(), ready = poll(&end, 1, 0);
	cancel_restore(cancel);
	return ready > 0;
}
