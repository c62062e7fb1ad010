/* Memory that peers can map, for programs that ask for it: one sealed memory file per allocation,
 * mapped shared. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <heddle/heddle.h>

#include "adapter/reach/segment.h"
#include "base/memfile.h"

struct block {
	struct block *next;
	struct segment segment;
};

pthread_mutex_t mem_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;

/* A new file of @length bytes, mapped at any address. */
static bool mem_make(struct segment *s, uint64_t length)
{
	void *memory = MAP_FAILED;
	*s = (struct segment){.length = length, .writable = true};
	s->fd = memfile_make("heddle-memory", length);
	if (s->fd >= 0 && memfile_seal(s->fd) && file_in_memory(s->fd, &s->dev, &s->inode))
		memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
	if (memory == MAP_FAILED) {
		if (s->fd >= 0)
			close(s->fd);
		return false;
	}
	s->addr = (uint64_t)(uintptr_t)memory;
	return true;
}

int hdl_mem_alloc(size_t length, void **out)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	if (out == NULL || length == 0 || length > SEGMENT_MAX_BYTES)
		return -HDL_EINVAL;
	length = (length + page - 1) & ~(page - 1);
	struct block *block = calloc(1, sizeof(*block));
	if (block == NULL)
		return -HDL_ENOMEM;
	if (!mem_make(&block->segment, length)) {
		free(block);
		return -HDL_ENOMEM;
	}
	void *memory = (void *)(uintptr_t)block->segment.addr;
	pthread_mutex_lock(&mem_lock);
	block->next = blocks;
	blocks = block;
	pthread_mutex_unlock(&mem_lock);
	*out = memory;
	return 0;
}

int hdl_mem_free(void *memory)
{
	uint64_t addr = (uint64_t)(uintptr_t)memory;
	pthread_mutex_lock(&mem_lock);
	struct block **at = &blocks;
	while (*at != NULL && (*at)->segment.addr != addr)
		at = &(*at)->next;
	struct block *block = *at;
	if (block != NULL)
		*at = block->next;
	pthread_mutex_unlock(&mem_lock);
	if (block == NULL)
		return -HDL_EINVAL;
	munmap(memory, block->segment.length);
	close(block->segment.fd);
	free(block);
	return 0;
}

int mem_renew(void *memory)
{
	struct segment fresh;
	int result = -HDL_EINVAL;
	pthread_mutex_lock(&mem_lock);
	struct block *block = blocks;
	while (block != NULL && block->segment.addr != (uint64_t)(uintptr_t)memory)
		block = block->next;
	if (block != NULL) {
		struct segment *s = &block->segment;
		result = -HDL_ENOMEM;
		if (mem_make(&fresh, s->length)) {
			void *copy = (void *)(uintptr_t)fresh.addr;
			memcpy(copy, memory, s->length);
			/* Moves the new mapping over the old one, in one step. */
			if (mremap(copy, s->length, s->length, MREMAP_MAYMOVE | MREMAP_FIXED,
			           memory) == memory) {
				close(s->fd);
				fresh.addr = s->addr;
				*s = fresh;
				result = 0;
			} else {
				munmap(copy, s->length);
				close(fresh.fd);
			}
		}
	}
	pthread_mutex_unlock(&mem_lock);
	return result;
}

bool mem_behind(uint64_t addr, uint64_t length, struct segment *found)
{
	bool ok = false;
	pthread_mutex_lock(&mem_lock);
	for (const struct block *at = blocks; at != NULL && !ok; at = at->next) {
		const struct segment *s = &at->segment;
		if (addr < s->addr || addr - s->addr >= s->length ||
		    length > s->length - (addr - s->addr))
			continue;
		*found = *s;
		found->fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 3);
		ok = found->fd >= 0;
	}
	pthread_mutex_unlock(&mem_lock);
	return ok;
}
