/* Messages with file descriptors over a Unix socket (SOCK_SEQPACKET, which preserves message
 * boundaries). */
#ifndef PORT_UNIXSOCK_H
#define PORT_UNIXSOCK_H

#include <stddef.h>
#include <sys/types.h>

#define UNIXSOCK_MAX_FDS 16 /* two for each address of a node (agentmsg.h) */

/* Send @bytes and @fd_count descriptors, which the caller keeps. Returns 0; -errno (-EAGAIN: a
 * non-blocking socket is full; -ETOOMANYREFS: too many descriptors of this user are in messages
 * that nobody has read). */
int unixsock_send(int sock, const void *data, size_t bytes, const int *fds, int fd_count);
/* The same, but wait some seconds for other programs of the user to read. If that does not help,
 * the reason is logged. */
int unixsock_hand_over(int sock, const void *data, size_t bytes, const int *fds, int fd_count);
/* Log what -ETOOMANYREFS means, and what to do about it. */
void unixsock_explain_jam(void);
/* The same without descriptors, and without waiting: -EAGAIN if there is no room now. */
int unixsock_send_now(int sock, const void *data, size_t bytes);

/* Receive a message of at most @bytes. Returns its length, 0 at the end, -errno (-EMSGSIZE: it was
 * longer; -EMFILE: there is no room for the descriptors that came along; -EAGAIN). The caller owns
 * the received descriptors, which are close-on-exec; *fd_count is UNIXSOCK_MAX_FDS at most. */
ssize_t unixsock_receive(int sock, void *data, size_t bytes, int fds[UNIXSOCK_MAX_FDS],
                         int *fd_count);

/* Connect to the socket @path. The descriptor, or -errno. */
int unixsock_connect(const char *path);
/* Listen on @path, which must not exist; mode 0600. Returns the descriptor (non-blocking), or
 * -errno. */
int unixsock_listen(const char *path);
/* The process and user at the other end. Returns 0 or -errno. */
int unixsock_peer(int sock, pid_t *pid, uid_t *uid);

#endif
