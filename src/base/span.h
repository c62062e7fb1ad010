/* A run of bytes in some process's address space. Addresses are numbers, not pointers: the process
 * may be another one. */
#ifndef BASE_SPAN_H
#define BASE_SPAN_H

#include <stdint.h>

struct span {
	uint64_t addr;
	uint64_t length;
};

#endif
