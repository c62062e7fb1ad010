/* The same pages in two processes: an aperture of a peer on this machine, mapped. Loads and stores
 * cost what a cache line costs, and nothing is checked, so only whole pages are mapped, of files
 * whose size cannot change. What the peer revokes (mem_renew()) stays mapped here, and leads
 * nowhere. */
#ifndef ADAPTER_SHARED_H
#define ADAPTER_SHARED_H

#include <stdint.h>

#include "adapter/reach/segment.h"

/* Map @length bytes at @addr of the peer's memory, both multiples of the page size, over the range
 * @at, which the caller has reserved; NULL: anywhere. Returns where they are; NULL: they cannot be
 * mapped. With the drive lock. */
void *shared_map(struct reach *reach, uint64_t addr, uint64_t length, void *at);
/* The same for all @length bytes of an aperture, SEGMENT_APERTURE() of its in-index. */
void *shared_map_aperture(struct reach *reach, uint32_t aperture, uint64_t length, void *at);
/* Replace what is mapped at @at (NULL: anywhere) by zeroed memory of our own: the aperture leads
 * nowhere. */
void *shared_unmap(void *at, uint64_t length);

#endif
