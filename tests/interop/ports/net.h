/* Two machines that two lines join, as far as they can see: a process each, in network namespaces
 * of their own, with a pair of virtual Ethernet interfaces for each line. On line N the first
 * is 10.72.N.1 and the second 10.72.N.2. Lines can be cut and mended. */
#ifndef PORTS_NET_H
#define PORTS_NET_H

#include <stdbool.h>
#include <stdint.h>

#define NET_LINES 2
#define NET_SKIP  77 /* exit status of a test that cannot run here */

/* Become the two; true: this is the first. *talk is a socket to the other one. Each will be on a
 * node of its own that is on both lines (HEDDLE_ADDR, HEDDLE_DIR). The process that was there
 * before waits until both have ended, and ends with 0 if both did; where this is not possible, with
 * NET_SKIP, and says why. Single-threaded. */
bool net_begin(int *talk);

/* Cut or mend @line, at this end. */
void net_cut(unsigned line);
void net_mend(unsigned line);
/* Let no more leave on @line, at this end, than the token bucket @bucket (tc-tbf(8)) allows: what
 * waits for it is in the kernel's three bands (tc-prio(8)). False: this kernel cannot. */
bool net_shape(unsigned line, const char *bucket);
/* The same with one queue, which drops what does not fit (the limit of @bucket). */
bool net_narrow(unsigned line, const char *bucket);
/* Bytes that have left on @line, and come; headers included. */
uint64_t net_sent(unsigned line);
uint64_t net_received(unsigned line);

/* The address of one of the two on @line, as a GID. */
void net_gid(unsigned line, bool first, uint8_t gid[16]);

/* What one says, the other hears; both at the same time. False: it is gone. */
bool net_exchange(int talk, const void *mine, void *theirs, uint32_t bytes);

/* What is tested does not hold: say so and end the process. */
void net_check(bool holds, const char *what, int line);
#define CHECK(condition) net_check(condition, #condition, __LINE__)

double net_now_s(void);

#endif
