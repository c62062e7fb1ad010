/* What a process holds, so that a test can see whether it grows: descriptors, mappings of files of
 * ours, and address space.
 *
 * Address space is counted in bytes and not in mappings, because the kernel joins neighbours to one
 * and splits one in two. The program's break is left out: it is the memory of malloc(). What glibc
 * keeps for later is not there to be counted: see holdings_exact(). */
#ifndef AGENT_HOLDINGS_H
#define AGENT_HOLDINGS_H

#include <stdbool.h>

struct holdings {
	int files, shared;
	long mapped_kib; /* 0 under a sanitizer, which keeps what was freed */
};

/* First thing in main(): start the program again with a glibc that keeps no stack of a thread that
 * was joined, has one arena, and returns large blocks when they are freed. Otherwise what a process
 * has mapped depends on how many of its threads were ever alive, or allocated, at a time. */
void holdings_exact(char **argv);

/* Remember by name what this process holds. The least of @ms counts: what belongs to somebody who
 * has ended may be on its way out. */
void holdings_take(struct holdings *before, int ms);

/* Does this process hold what it did @before? What is on its way out or in has @ms for that. If
 * it holds less by then, @before was too much, and is corrected. False: it holds more; what has
 * come is printed by name. */
bool holdings_same(struct holdings *before, struct holdings *now, int ms);

#endif
