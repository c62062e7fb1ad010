#include "adapter/reach/shared.h"

#include <sys/mman.h>
#include <unistd.h>

/* Map @fd, which is closed. */
static void *shared_map_file(int fd, uint64_t offset, uint64_t length, void *at)
{
	void *map = mmap(at, length, PROT_READ | PROT_WRITE,
	                 MAP_SHARED | (at != NULL ? MAP_FIXED : 0), fd, (off_t)offset);
	close(fd);
	if (map == MAP_FAILED)
		return NULL;
	madvise(map, length, MADV_DONTFORK); /* a child of fork() has no mapping */
	return map;
}

void *shared_map_aperture(struct reach *reach, uint32_t aperture, uint64_t length, void *at)
{
	int fd = reach_open_aperture(reach, aperture, length);
	return fd < 0 ? NULL : shared_map_file(fd, 0, length, at);
}

void *shared_map(struct reach *reach, uint64_t addr, uint64_t length, void *at)
{
	uint64_t offset, page = (uint64_t)sysconf(_SC_PAGESIZE);
	if (((addr | length | (uint64_t)(uintptr_t)at) & (page - 1)) != 0)
		return NULL;
	int fd = reach_open(reach, addr, length, &offset);
	if (fd < 0)
		return NULL;
	return shared_map_file(fd, offset, length, at);
}

void *shared_unmap(void *at, uint64_t length)
{
	void *map = mmap(at, length, PROT_READ | PROT_WRITE,
	                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at != NULL ? MAP_FIXED : 0),
	                 -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	madvise(map, length, MADV_DONTFORK);
	return map;
}
