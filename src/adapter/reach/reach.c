/* Memory that peers can map: the side that maps it. The owner is not trusted: its table is copied
 * word by word, and only the copy is checked. A descriptor is opened only if it refers to a regular
 * file that lives in memory, is the file that the table names, and is open in the owner for the
 * access that we need. Every copy survives a truncated file (fault.c). */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapter/reach/segment.h"
#include "base/cancel.h"
#include "base/lock.h"
#include "base/memfile.h"
#include "port/pidfd.h"

struct reach *reach_make(pid_t pid, int pidfd, const struct segment_table *table, bool kernel)
{
	struct reach *reach = calloc(1, sizeof(*reach));
	if (reach != NULL)
		*reach = (struct reach){
		        .table = table, .pid = pid, .pidfd = pidfd, .task = pid, .kernel = kernel};
	return reach;
}

void reach_prefer(struct reach *reach, pid_t thread)
{
	/* Without a pidfd we could not tell whether the process of that thread still exists. */
	reach->task = thread > 0 && reach->pidfd >= 0 ? thread : reach->pid;
	reach->checked_ns = 0;
}

bool reach_check(struct reach *reach, uint64_t now_ns)
{
	char path[64];
	if (now_ns - reach->checked_ns < REACH_BELIEF_NS)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)reach->pid, (int)reach->task);
	if (reach->task != reach->pid && access(path, F_OK) != 0)
		reach->task = reach->pid;
	/* Checked last: while the process exists, no other process has the number by which the
	 * thread was found. */
	if (reach->pidfd >= 0 && pidfd_ended(reach->pidfd))
		return false;
	reach->checked_ns = now_ns;
	return true;
}

static void unmap(struct reach *reach, struct reached *at)
{
	if (at->base == NULL)
		return;
	munmap(at->base, at->segment.length);
	at->base = NULL;
	reach->mapped--;
}

void reach_end(struct reach *reach)
{
	for (uint32_t i = 0; reach != NULL && i < SEGMENT_MAX; i++)
		unmap(reach, &reach->at[i]);
	free(reach);
}

/* Could this be a valid segment? */
static bool makes_sense(const struct segment *s)
{
	const uint64_t in_page = 4095;
	return s->generation != 0 && s->length != 0 && s->length <= SEGMENT_MAX_BYTES &&
	       s->addr <= UINT64_MAX - s->length && s->offset <= INT64_MAX - s->length &&
	       ((s->addr | s->length | s->offset) & in_page) == 0 && s->fd >= 0;
}

/* Copy the whole table. V2 pairs with V1 in segment.c: a reader that sees a word of a change also
 * sees that the version changed. */
static bool read_table(const struct segment_table *table, struct segment out[SEGMENT_MAX],
                       uint64_t *version)
{
	for (unsigned tries = 0; tries < REACH_READ_TRIES; tries++) {
		uint64_t words[SEGMENT_WORDS];
		*version = atomic_load_explicit(&table->version, memory_order_acquire);
		for (uint32_t i = 0; i < SEGMENT_MAX; i++) {
			for (unsigned w = 0; w < SEGMENT_WORDS; w++)
				words[w] = atomic_load_explicit(&table->slots[i].words[w],
				                                memory_order_acquire);
			memcpy(&out[i], words, sizeof(words));
		}
		if ((*version & 1) == 0 &&
		    atomic_load_explicit(&table->version, memory_order_relaxed) == *version)
			return true;
		lock_relax(tries);
	}
	return false;
}

/* Update our copies, and unmap segments that are gone or have changed. */
static bool refresh(struct reach *reach)
{
	struct segment now[SEGMENT_MAX];
	uint64_t version;
	if (!read_table(reach->table, now, &version))
		return false;
	reach->count = 0;
	for (uint32_t i = 0; i < SEGMENT_MAX; i++) {
		struct reached *at = &reach->at[i];
		if (memcmp(&at->segment, &now[i], sizeof(now[i])) != 0) {
			unmap(reach, at);
			*at = (struct reached){0};
			if (makes_sense(&now[i]))
				at->segment = now[i];
		}
		if (at->segment.generation != 0)
			reach->count = i + 1;
	}
	reach->version = version;
	return true;
}

/* Open the owner's descriptor here. -1: it is not the expected file. */
static int open_segment(pid_t pid, const struct segment *s)
{
	char path[64];
	struct stat link;
	uint64_t dev = 0, inode = 0;
	mode_t rights = s->writable ? S_IRUSR | S_IWUSR : S_IRUSR;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)s->fd);
	/* The mode of the link shows the access mode of the descriptor. */
	if (lstat(path, &link) != 0 || (link.st_mode & rights) != rights)
		return -1;
	/* O_PATH does not open the file: opening can have side effects, for example on a device. */
	int held = open(path, O_PATH | O_CLOEXEC);
	if (held < 0)
		return -1;
	int fd = -1;
	if (file_in_memory(held, &dev, &inode) && dev == s->dev && inode == s->inode) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", held);
		fd = open(path,
		          (s->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	}
	close(held);
	return fd;
}

static bool reach_holds(const struct segment *s, uint64_t addr, uint64_t length)
{
	return addr >= s->addr && addr - s->addr <= s->length &&
	       length <= s->length - (addr - s->addr);
}

int reach_open(struct reach *reach, uint64_t addr, uint64_t length, uint64_t *offset)
{
	struct stat st;
	if (length == 0 || !refresh(reach))
		return -1;
	for (uint32_t i = 0; i < reach->count; i++) {
		const struct segment *s = &reach->at[i].segment;
		if (s->generation == 0 || !s->writable || !reach_holds(s, addr, length))
			continue;
		int fd = open_segment(reach->pid, s);
		/* Its size may never change: no load or store may die of it. */
		if (fd >= 0 && fstat(fd, &st) == 0 && memfile_is_sealed(fd, (uint64_t)st.st_size) &&
		    s->offset + (addr - s->addr) <= (uint64_t)st.st_size &&
		    length <= (uint64_t)st.st_size - (s->offset + (addr - s->addr))) {
			*offset = s->offset + (addr - s->addr);
			return fd;
		}
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return -1;
}

int reach_open_aperture(struct reach *reach, uint32_t aperture, uint64_t length)
{
	uint64_t offset;
	if (aperture == 0 || !refresh(reach))
		return -1;
	for (uint32_t i = 0; i < reach->count; i++) {
		const struct segment *s = &reach->at[i].segment;
		if (s->generation == 0 || s->aperture != aperture || s->offset != 0 ||
		    s->length != length)
			continue;
		return reach_open(reach, s->addr, length, &offset);
	}
	return -1;
}

/* Make room for one more mapping. */
static void evict(struct reach *reach)
{
	struct reached *oldest = NULL;
	for (uint32_t i = 0; i < SEGMENT_MAX; i++) {
		struct reached *at = &reach->at[i];
		if (at->base != NULL && (oldest == NULL || at->used < oldest->used))
			oldest = at;
	}
	if (oldest != NULL)
		unmap(reach, oldest);
}

static void map(struct reach *reach, struct reached *at)
{
	const struct segment *s = &at->segment;
	struct stat st;
	int fd = open_segment(reach->pid, s);
	void *base = MAP_FAILED;
	if (fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size > s->offset) {
		if (reach->mapped >= REACH_MAX_MAPPED)
			evict(reach);
		base = mmap(NULL, s->length, s->writable ? PROT_READ | PROT_WRITE : PROT_READ,
		            MAP_SHARED | MAP_NORESERVE, fd, (off_t)s->offset);
	}
	if (fd >= 0)
		close(fd);
	at->failed = base == MAP_FAILED;
	if (at->failed)
		return;
	madvise(base, s->length, MADV_DONTFORK); /* a child of fork() must not access it */
	at->base = base;
	reach->mapped++;
}

/* The segment that was used last does not match. */
__attribute__((noinline)) static void *find_slowly(struct reach *reach, uint64_t version,
                                                   uint64_t addr, uint64_t length)
{
	reach->at[reach->last].used = ++reach->clock;
	if (version != reach->version && !refresh(reach))
		return NULL;
	for (uint32_t i = 0; i < reach->count; i++) {
		struct reached *at = &reach->at[i];
		if (at->segment.generation == 0 || !reach_holds(&at->segment, addr, length))
			continue;
		if (at->base == NULL && !at->failed) {
			int cancel = cancel_forbid();
			map(reach, at);
			cancel_restore(cancel);
		}
		if (at->base == NULL)
			return NULL;
		at->used = ++reach->clock;
		reach->last = i;
		return at->base + (addr - at->segment.addr);
	}
	return NULL;
}

void *reach_find(void *context, uint64_t addr, uint64_t length)
{
	struct reach *reach = context;
	const struct reached *at = &reach->at[reach->last];
	uint64_t version = atomic_load_explicit(&reach->table->version, memory_order_acquire);
	if (version == reach->version && reach->count == 0)
		return NULL; /* it shares nothing, like most peers */
	if (version == reach->version && at->base != NULL &&
	    reach_holds(&at->segment, addr, length))
		return at->base + (addr - at->segment.addr);
	return find_slowly(reach, version, addr, length);
}

bool reach_find_all(struct reach *reach, const struct span *runs, size_t count, struct span *out)
{
	uint64_t version = 0;
	for (size_t i = 0; i < count; i++) {
		void *here = reach_find(reach, runs[i].addr, runs[i].length);
		/* If the table changed in between, earlier results may have been unmapped. */
		if (here == NULL || (i > 0 && reach->version != version))
			return false;
		version = reach->version;
		out[i] = (struct span){(uint64_t)(uintptr_t)here, runs[i].length};
	}
	return true;
}
