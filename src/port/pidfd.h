/* Processes by descriptor. A process number means a different process in every PID namespace, and
 * each container has its own namespace. A descriptor means the same process everywhere, and tells
 * which number that process has here, if any. */
#ifndef PORT_PIDFD_H
#define PORT_PIDFD_H

#include <stdbool.h>
#include <sys/types.h>

/* A descriptor (close-on-exec) of the process at the other end of the Unix socket @sock, whose
 * number here is @pid, or 0 if it has none. -1: the kernel is too old, or denies it. */
int pidfd_of_peer(int sock, pid_t pid);

/* The number of the process in our own PID namespace; 0: none, or unknown. */
pid_t pidfd_number(int pidfd);

/* Has the process ended? */
bool pidfd_ended(int pidfd);

#endif
