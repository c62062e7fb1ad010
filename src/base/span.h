/* A run of bytes in the address space of some process. Addresses are numbers, not pointers: it may
 * be another process. */
#ifndef BASE_SPAN_H
#define BASE_SPAN_H

#include <stdint.h>

struct span {
	uint64_t addr;
	uint64_t length;
};

#endif
