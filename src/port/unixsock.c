/* Messages with file descriptors over a Unix socket. */
#include "port/unixsock.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define HAND_OVER_NS 5000000000u

union control {
	struct cmsghdr header;
	unsigned char room[CMSG_SPACE(UNIXSOCK_MAX_FDS * sizeof(int))];
};

int unixsock_send(int sock, const void *data, size_t bytes, const int *fds, int fd_count)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
	union control control;
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (fd_count > 0) {
		size_t fd_bytes = (size_t)fd_count * sizeof(int);
		memset(&control, 0, sizeof(control));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(fd_bytes);
		control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(fd_bytes),
		                                  .cmsg_level = SOL_SOCKET,
		                                  .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.header), fds, fd_bytes);
	}
	ssize_t sent;
	do
		sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

void unixsock_explain_jam(void)
{
	struct rlimit limit = {0};
	getrlimit(RLIMIT_NOFILE, &limit);
	log_warn("the kernel passes no more descriptors between programs of user %u: over %llu of "
	         "them, the limit on open files, lie in sockets that nobody reads; end or continue "
	         "programs that are stopped, or raise \"ulimit -n\"",
	         (unsigned)geteuid(), (unsigned long long)limit.rlim_cur);
}

int unixsock_hand_over(int sock, const void *data, size_t bytes, const int *fds, int fd_count)
{
	uint64_t end = clock_now_ns() + HAND_OVER_NS;
	for (useconds_t wait_us = 1000;; wait_us = wait_us < 100000 ? wait_us * 2 : wait_us) {
		int result = unixsock_send(sock, data, bytes, fds, fd_count);
		if (result != -ETOOMANYREFS)
			return result;
		if (clock_now_ns() >= end) {
			unixsock_explain_jam();
			return result;
		}
		usleep(wait_us);
	}
}

int unixsock_send_now(int sock, const void *data, size_t bytes)
{
	ssize_t sent;
	do
		sent = send(sock, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

ssize_t unixsock_receive(int sock, void *data, size_t bytes, int fds[UNIXSOCK_MAX_FDS],
                         int *fd_count)
{
	struct iovec iov = {.iov_base = data, .iov_len = bytes};
	union control control;
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = &control,
	                     .msg_controllen = sizeof(control)};
	ssize_t got;
	*fd_count = 0;
	do
		got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	for (struct cmsghdr *at = CMSG_FIRSTHDR(&msg); at != NULL; at = CMSG_NXTHDR(&msg, at)) {
		if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof(int));
			if (*fd_count < UNIXSOCK_MAX_FDS)
				fds[(*fd_count)++] = fd;
			else
				close(fd);
		}
	}
	if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		while (*fd_count > 0)
			close(fds[--*fd_count]);
		return msg.msg_flags & MSG_TRUNC ? -EMSGSIZE : -EMFILE;
	}
	return got;
}

static int unixsock_address_of(const char *path, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(address->sun_path))
		return -ENAMETOOLONG;
	strcpy(address->sun_path, path);
	return 0;
}

int unixsock_connect(const char *path)
{
	struct sockaddr_un address;
	int result = unixsock_address_of(path, &address);
	if (result != 0)
		return result;
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return -errno;
	do
		result = connect(sock, (struct sockaddr *)&address, sizeof(address));
	while (result != 0 && errno == EINTR);
	if (result == 0)
		return sock;
	result = -errno;
	close(sock);
	return result;
}

int unixsock_listen(const char *path)
{
	struct sockaddr_un address;
	int result = unixsock_address_of(path, &address);
	if (result != 0)
		return result;
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return -errno;
	mode_t mask = umask(0177);
	result = bind(sock, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	                         listen(sock, SOMAXCONN) != 0
	                 ? -errno
	                 : 0;
	umask(mask);
	if (result == 0)
		return sock;
	close(sock);
	return result;
}

int unixsock_peer(int sock, pid_t *pid, uid_t *uid)
{
	struct ucred who;
	socklen_t length = sizeof(who);
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0)
		return -errno;
	*pid = who.pid;
	*uid = who.uid;
	return 0;
}
