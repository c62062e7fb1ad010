/* Networks of virtual switches for the tests of IBC: topology files, and a port process for each
 * node or switch. */
#ifndef INTEROP_IBC_NET_H
#define INTEROP_IBC_NET_H

#include <stdint.h>
#include <sys/types.h>

#define NET_FILE_BYTES 64

/* Another test of this machine may use UDP ports 7101 to 7106: every process has its own. */
uint16_t net_udp_port(unsigned port);
/* Write a topology file, in which our own UDP ports stand for those; @file becomes its path. */
void net_write(char file[NET_FILE_BYTES], const char *nodes, const char *links);
/* Start the port process of the node or switch @name of @file. */
pid_t net_start(const char *file, const char *name);
/* End it with @signal, and wait for that. Returns its status. */
int net_end(pid_t pid, int signal);

#endif
