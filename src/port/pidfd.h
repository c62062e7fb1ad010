/* Processes by descriptor. A number means another process in every PID namespace, and containers
 * have one each; a descriptor means the same one everywhere, and says which number that has here,
 * if any. */
#ifndef PORT_PIDFD_H
#define PORT_PIDFD_H

#include <stdbool.h>
#include <sys/types.h>

/* A descriptor (close-on-exec) of the process at the other end of the Unix socket @sock, whose
 * number here is @pid, or 0 if it has none. -1: the kernel is too old, or does not let us. */
int pidfd_of_peer(int sock, pid_t pid);

/* The number that the process has in our own PID namespace; 0: none, or it cannot be told. */
pid_t pidfd_number(int pidfd);

/* Has the process ended? */
bool pidfd_ended(int pidfd);

#endif
