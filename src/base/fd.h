/* Our file descriptors in somebody else's process. */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The first number that is out of the way; the limit of many processes is 1024. */
#define FD_ASIDE 640

/* close() for a thread that holds a lock, and so must not be cancelled in it (base/cancel.h). */
static inline void fd_close(int fd)
{
	syscall(SYS_close, fd);
}

/* Move @fd, which nobody else knows of yet, to a number that the program does not expect for
 * itself. Some programs rely on low numbers, the only ones that select(2) supports, and some on
 * very low ones (netcat: 16). @fd stays where it is if no high number is available. */
static inline int fd_aside(int fd)
{
	int high = fd >= 0 && fd < FD_ASIDE ? fcntl(fd, F_DUPFD_CLOEXEC, FD_ASIDE) : -1;
	if (high < 0)
		return fd;
	fd_close(fd);
	return high;
}

#endif
