/* Doorbells. See bell.h. */
#include "port/bell.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <linux/magic.h>

#include "base/cancel.h"
#include "base/fd.h"

#define BELL_BYTES \
	4096 /* of a pipe: the minimum, because there is a limit for all pipes of a user */

bool bell_make(int ends[2])
{
	ends[0] = ends[1] = -1;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return false;
	fcntl(ends[1], F_SETPIPE_SZ, BELL_BYTES);
	ends[0] = fd_aside(ends[0]);
	ends[1] = fd_aside(ends[1]);
	return true;
}

static _Atomic bool bare; /* our bells have no reader but their owner */

/* Reopen the pipe behind @fd. */
static int open_anew(int fd)
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

int bell_lend(int out)
{
	int fd = open_anew(out);
	return fd >= 0 ? fd : fcntl(out, F_DUPFD_CLOEXEC, FD_ASIDE);
}

int bell_take(int fd)
{
	struct statfs fs;
	int flags = fcntl(fd, F_GETFL), own = -1;
	/* Only an anonymous pipe: opening anything else may have side effects, or block. */
	if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && (flags & O_PATH) == 0 &&
	    fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC) {
		own = open_anew(fd);
		if (own < 0 && (flags & O_NONBLOCK) != 0) {
			if ((flags & O_ACCMODE) == O_WRONLY)
				atomic_store(&bare, true);
			return fd_aside(fd);
		}
	}
	if (fd >= 0)
		close(fd);
	return fd_aside(own);
}

/* Not write(): the thread may hold a lock (base/cancel.h). */
static long write_byte(int out)
{
	return syscall(SYS_write, out, "", 1);
}

/* Ring without killing the program when there is no reader. */
static void ring_quietly(int out)
{
	sigset_t pipe_signal, before, pending;
	sigemptyset(&pipe_signal);
	sigaddset(&pipe_signal, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
	if (write_byte(out) < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE)) {
		int cancel = cancel_forbid();
		sigtimedwait(&pipe_signal, NULL, &(struct timespec){0});
		cancel_restore(cancel);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void bell_ring(int out)
{
	if (atomic_load_explicit(&bare, memory_order_relaxed)) {
		ring_quietly(out);
		return;
	}
	long done = write_byte(out);
	(void)done; /* EAGAIN: the pipe is full, so the bell is already ringing */
}

void bell_hear(int in)
{
	char rung[256];
	long got = syscall(SYS_read, in, rung, sizeof(rung)); /* as above */
	(void)got; /* EAGAIN: another thread was faster */
}
