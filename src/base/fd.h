/* Descriptors of ours in a process that is not. */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <fcntl.h>
#include <unistd.h>

#define FD_ASIDE 640 /* the first number that is out of the way; many processes may have 1024 */

/* Give @fd, of which nobody knows yet, a number that the program does not expect for itself: some
 * count on low ones, which are all that select(2) knows, and some on very low ones (netcat: 16).
 * Where there is none it keeps the one it has. */
static inline int fd_aside(int fd)
{
	int high = fd >= 0 && fd < FD_ASIDE ? fcntl(fd, F_DUPFD_CLOEXEC, FD_ASIDE) : -1;
	if (high < 0)
		return fd;
	close(fd);
	return high;
}

#endif
