/* Thread cancellation (pthreads(7)) in somebody else's threads.
 *
 * A thread that pthread_cancel(3) was called for ends inside its next cancellation point: read(),
 * write(), open(), close(), poll() and many more. In our code such a thread may hold the drive
 * lock, or may be the only one that hears the bell. If it ended there, no thread would drive the
 * adapter any more. So our calls are cancellation points only where they are documented to wait,
 * and there a cleanup handler undoes what was taken. Everywhere else:
 *
 *   - system calls of the data path are direct (syscall(2)), which also saves the C library's
 *     preparations for cancellation;
 *   - slower code with such calls runs between cancel_forbid() and cancel_restore(). */
#ifndef BASE_CANCEL_H
#define BASE_CANCEL_H

#include <pthread.h>

/* The calling thread cannot be cancelled until cancel_restore() of the result. Calls nest. */
static inline int cancel_forbid(void)
{
	int before;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void cancel_restore(int before)
{
	pthread_setcancelstate(before, NULL);
}

#endif
