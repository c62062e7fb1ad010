/* The tables that an adapter shares with its peers. */
#include "adapter/reach/tables.h"

#include <fcntl.h>
#include <heddle/heddle.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/memfile.h"

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + 4095) & ~(uint64_t)4095;
}

/* The parts of a block at @base, which may be NULL to learn its size. */
static uint64_t lay_out(struct tables *tables, unsigned char *base)
{
	struct tpt_config config = {.capacity = tables->sizes.table_entries,
	                            .arena_words = tables->sizes.arena_words};
	struct tpt_bytes bytes = tpt_bytes(&config);
	uint64_t slots = TABLES_HEADER_BYTES + TABLES_SEGMENT_BYTES;
	uint64_t arena = slots + round_up(bytes.slots);
	uint64_t qps = arena + round_up(bytes.arena);
	if (base != NULL) {
		tables->header = (struct tables_header *)(void *)base;
		tables->segments = (struct segment_table *)(void *)(base + TABLES_HEADER_BYTES);
		tables->slots = (struct tpt_slot *)(void *)(base + slots);
		tables->arena = (uint64_t *)(void *)(base + arena);
		tables->qps = (struct qp_public *)(void *)(base + qps);
	}
	return qps + round_up(sizeof(struct qp_public) << tables->sizes.qp_bits);
}

int tables_make(struct tables *tables, uint32_t entries, uint32_t qp_bits, uint64_t arena_words)
{
	*tables = (struct tables){.sizes = {.table_entries = entries,
	                                    .qp_bits = qp_bits,
	                                    .arena_words = arena_words}};
	uint64_t bytes = lay_out(tables, NULL);
	tables->sizes.block_bytes = bytes;
	/* Exceeding the limit raises a signal that kills the program, not an error. */
	struct rlimit limit;
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
		log_error("the file size limit is %llu bytes, but the tables need %llu of address "
		          "space: raise \"ulimit -f\"",
		          (unsigned long long)limit.rlim_cur, (unsigned long long)bytes);
		return -HDL_ENOMEM;
	}
	/* Sparse: pages cost memory when they are first written. */
	tables->fd = fd_aside(memfile_make("heddle-tables", bytes));
	tables->block = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                     tables->fd >= 0 ? MAP_SHARED | MAP_NORESERVE
	                                     : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
	                     tables->fd, 0);
	if (tables->block == MAP_FAILED) {
		log_error("cannot map %llu MiB for the tables: %m; raise \"ulimit -v\"",
		          (unsigned long long)bytes >> 20);
		tables->block = NULL;
		tables_unmap(tables);
		return -HDL_ENOMEM;
	}
	if (tables->fd >= 0) {
		tables->closed = memfile_close_to_writers(tables->fd);
		memfile_seal(tables->fd);
	}
	lay_out(tables, tables->block);
	return 0;
}

int tables_reader_fd(const struct tables *tables)
{
	char path[64];
	if (tables->closed)
		return fcntl(tables->fd, F_DUPFD_CLOEXEC, 3);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", tables->fd);
	return tables->fd < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
}

int tables_map(struct tables *tables, int fd, const struct agent_sizes *sizes)
{
	*tables = (struct tables){.fd = -1, .sizes = *sizes};
	if (sizes->table_entries == 0 || sizes->table_entries > HDL_MAX_MR || sizes->qp_bits > 16 ||
	    sizes->arena_words > 1ull << 40 || lay_out(tables, NULL) != sizes->block_bytes ||
	    !memfile_is_sealed(fd, sizes->block_bytes))
		return -HDL_EINVAL;
	void *block = mmap(NULL, sizes->block_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (block == MAP_FAILED) {
		log_error("cannot map %llu MiB for the tables of another process: %m; raise "
		          "\"ulimit -v\"",
		          (unsigned long long)sizes->block_bytes >> 20);
		return -HDL_ENOMEM;
	}
	tables->block = block;
	lay_out(tables, block);
	return 0;
}

void tables_unmap(struct tables *tables)
{
	if (tables->block != NULL)
		munmap(tables->block, tables->sizes.block_bytes);
	if (tables->fd >= 0)
		close(tables->fd);
	*tables = (struct tables){.fd = -1};
}
