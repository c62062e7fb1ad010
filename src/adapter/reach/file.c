/* Which file is behind memory of this process, and how can a peer open it? Only files that live in
 * memory count. A page of any other file may have to come from a disk, a network or a program that
 * does not answer, and the thread that copies would wait for it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "adapter/reach/segment.h"
#include "base/cancel.h"
#include "base/fd.h"

#define PAGEMAP_SHARED (1ull << 61) /* a page of a file or of shared memory (pagemap.rst) */

bool file_in_memory(int fd, uint64_t *dev, uint64_t *inode)
{
	struct statfs fs;
	struct stat st;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || fstatfs(fd, &fs) != 0)
		return false;
	*dev = st.st_dev;
	*inode = st.st_ino;
	return fs.f_type == TMPFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC || fs.f_type == RAMFS_MAGIC;
}

int file_pagemap(void)
{
	return fd_aside(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
}

/* A quick negative answer for most memory: private pages are not marked in the page map. */
static bool may_be_shared(int pagemap, uint64_t addr)
{
	uint64_t entry = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
	return pread(pagemap, &entry, sizeof(entry), (off_t)(addr / page * sizeof(entry))) ==
	               sizeof(entry) &&
	       (entry & PAGEMAP_SHARED) != 0;
}

/* One line of /proc/self/maps. */
struct line {
	uint64_t low, high, offset, dev, inode;
	bool shared, writable;
	const char *path;
};

static bool file_parse(char *text, struct line *out)
{
	char *at = text;
	out->low = strtoull(at, &at, 16);
	if (*at != '-')
		return false;
	out->high = strtoull(at + 1, &at, 16);
	if (*at != ' ' || strlen(at) < 6)
		return false;
	out->writable = at[2] == 'w';
	out->shared = at[4] == 's';
	out->offset = strtoull(at + 5, &at, 16);
	unsigned major = (unsigned)strtoul(at, &at, 16);
	if (*at != ':')
		return false;
	unsigned minor = (unsigned)strtoul(at + 1, &at, 16);
	out->dev = makedev(major, minor);
	out->inode = strtoull(at, &at, 10);
	at += strspn(at, " ");
	at[strcspn(at, "\n")] = '\0';
	out->path = at;
	return true;
}

/* Does the mapping @next continue where @found ends, in the same file? */
static bool file_goes_on(const struct segment *found, const struct segment *next)
{
	return next->length != 0 && next->dev == found->dev && next->inode == found->inode &&
	       next->addr == found->addr + found->length &&
	       next->offset == found->offset + found->length;
}

static bool covers(const struct segment *found, uint64_t addr, uint64_t length)
{
	return found->length != 0 && addr >= found->addr && addr - found->addr < found->length &&
	       length <= found->length - (addr - found->addr) && found->length <= SEGMENT_MAX_BYTES;
}

/* struct procmap_query of <linux/fs.h>, since Linux 6.11. */
struct map_query {
	uint64_t size, flags, addr;
	uint64_t low, high, vma_flags, page_bytes, offset, inode;
	uint32_t dev_major, dev_minor, name_bytes, build_id_bytes;
	uint64_t name, build_id;
};
#define MAP_QUERY        _IOWR('f', 17, struct map_query)
#define MAP_QUERY_WRITES 0x02u
#define MAP_QUERY_SHARED 0x08u

/* The shared file mapping that contains @addr; its length is 0 if there is none. False: the kernel
 * does not support the query. */
static bool ask_mapping(int maps, uint64_t addr, struct segment *found, char *name, size_t room)
{
	struct map_query query = {.size = sizeof(query),
	                          .addr = addr,
	                          .name_bytes = (uint32_t)room,
	                          .name = (uint64_t)(uintptr_t)name};
	*found = (struct segment){.fd = -1};
	if (name != NULL)
		name[0] = '\0';
	int result = ioctl(maps, MAP_QUERY, &query);
	if (result != 0 && errno == ENAMETOOLONG) { /* the file cannot be found by name */
		query.name_bytes = 0;
		query.name = 0;
		result = ioctl(maps, MAP_QUERY, &query);
	}
	if (result != 0)
		return errno == ENOENT;
	if ((query.vma_flags & MAP_QUERY_SHARED) != 0 && query.inode != 0)
		*found = (struct segment){.addr = query.low,
		                          .length = query.high - query.low,
		                          .offset = query.offset,
		                          .dev = makedev(query.dev_major, query.dev_minor),
		                          .inode = query.inode,
		                          .fd = -1,
		                          .writable = (query.vma_flags & MAP_QUERY_WRITES) != 0};
	return true;
}

/* Like file_mapping(). *known: the kernel supports the query. */
static bool query_mapping(uint64_t addr, uint64_t length, struct segment *found, char **path,
                          bool *known)
{
	char name[PATH_MAX];
	struct segment next;
	int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	*known = maps >= 0 && ask_mapping(maps, addr, found, name, sizeof(name));
	*path = NULL;
	while (*known && found->length != 0 && found->addr > 0 &&
	       ask_mapping(maps, found->addr - 1, &next, NULL, 0) && file_goes_on(&next, found)) {
		next.length += found->length;
		next.writable |= found->writable;
		*found = next;
	}
	while (*known && found->length != 0 &&
	       ask_mapping(maps, found->addr + found->length, &next, NULL, 0) &&
	       file_goes_on(found, &next)) {
		found->length += next.length;
		found->writable |= next.writable;
	}
	if (maps >= 0)
		close(maps);
	if (!*known || !covers(found, addr, length))
		return false;
	*path = strdup(name);
	return true;
}

/* The same by reading the list, which takes time in proportion to the number of mappings. */
bool file_listed_mapping(uint64_t addr, uint64_t length, struct segment *found, char **path)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char *text = NULL;
	size_t room = 0;
	struct line line;
	*found = (struct segment){.fd = -1};
	*path = NULL;
	while (maps != NULL && getline(&text, &room, maps) > 0 && file_parse(text, &line)) {
		struct segment next = {.fd = -1};
		if (line.shared && line.inode != 0)
			next = (struct segment){.addr = line.low,
			                        .length = line.high - line.low,
			                        .offset = line.offset,
			                        .dev = line.dev,
			                        .inode = line.inode,
			                        .fd = -1,
			                        .writable = line.writable};
		if (found->length != 0 && file_goes_on(found, &next)) {
			found->length += next.length;
			found->writable |= next.writable;
			continue;
		}
		if (found->length != 0 && found->addr + found->length > addr)
			break;
		free(*path);
		*path = NULL;
		found->length = 0;
		if (line.low > addr)
			break;
		if (next.length == 0)
			continue;
		*found = next;
		*path = strdup(line.path);
	}
	free(text);
	if (maps != NULL)
		fclose(maps);
	if (covers(found, addr, length))
		return true;
	free(*path);
	*path = NULL;
	return false;
}

bool file_mapping(uint64_t addr, uint64_t length, struct segment *found, char **path)
{
	bool known, there = query_mapping(addr, length, found, path, &known);
	return known ? there : file_listed_mapping(addr, length, found, path);
}

/* Is @fd the file, open for what peers will do? */
static bool file_fits(int fd, const struct segment *s)
{
	uint64_t dev, inode;
	int mode = fcntl(fd, F_GETFL);
	if (mode < 0 || (mode & O_PATH) != 0 || !file_in_memory(fd, &dev, &inode))
		return false;
	mode &= O_ACCMODE;
	return dev == s->dev && inode == s->inode &&
	       (mode == O_RDWR || (mode == O_RDONLY && !s->writable));
}

static int open_by_path(const char *path, const struct segment *s)
{
	struct stat st;
	/* Check first: opening anything but a regular file may have side effects. */
	if (path == NULL || path[0] != '/' || stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
	    st.st_ino != s->inode)
		return -1;
	int fd = open(path, (s->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd >= 0 && !file_fits(fd, s)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* --- the program's descriptors --- */

/* The memory files that the descriptors referred to at the last scan, by inode. A descriptor that
 * has been closed or reused since then is detected when it is tried. */
struct led {
	uint64_t dev, inode;
	int fd;
};
pthread_mutex_t descriptors_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct led *led;
	size_t count, room;
} descriptors;

static int by_inode(const void *a, const void *b)
{
	const struct led *one = a, *other = b;
	return one->inode != other->inode
	               ? (one->inode > other->inode) - (one->inode < other->inode)
	               : (one->fd > other->fd) - (one->fd < other->fd);
}

/* Our own descriptor for the file that @theirs referred to; -1: it no longer does. */
static int take_descriptor(int theirs, const struct segment *s)
{
	if (!file_fits(theirs, s))
		return -1;
	int fd = fcntl(theirs, F_DUPFD_CLOEXEC, 3);
	if (fd >= 0 && !file_fits(fd, s)) { /* closed and reused in between */
		close(fd);
		fd = -1;
	}
	return fd;
}

/* With the lock. */
static int try_known(const struct segment *s)
{
	size_t low = 0, high = descriptors.count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (descriptors.led[middle].inode < s->inode)
			low = middle + 1;
		else
			high = middle;
	}
	int fd = -1;
	for (; fd < 0 && low < descriptors.count && descriptors.led[low].inode == s->inode; low++)
		if (descriptors.led[low].dev == s->dev)
			fd = take_descriptor(descriptors.led[low].fd, s);
	return fd;
}

/* With the lock. */
static void note(int fd)
{
	struct led led = {.fd = fd};
	if (!file_in_memory(fd, &led.dev, &led.inode))
		return;
	if (descriptors.count == descriptors.room) {
		size_t room = descriptors.room != 0 ? 2 * descriptors.room : 64;
		struct led *more = realloc(descriptors.led, room * sizeof(*more));
		if (more == NULL)
			return;
		descriptors.led = more;
		descriptors.room = room;
	}
	descriptors.led[descriptors.count++] = led;
}

static void look_through(void)
{
	DIR *list = opendir("/proc/self/fd");
	struct dirent *entry;
	descriptors.count = 0;
	while (list != NULL && (entry = readdir(list)) != NULL)
		if (entry->d_name[0] != '.')
			note(atoi(entry->d_name));
	if (list != NULL)
		closedir(list);
	if (descriptors.count != 0)
		qsort(descriptors.led, descriptors.count, sizeof(descriptors.led[0]), by_inode);
}

/* Our own descriptor for the file, found among the descriptors of the program. They are scanned
 * only if the last scan does not help, so that many files that were opened before the first of them
 * is registered take one scan. */
static int open_by_descriptor(const struct segment *s)
{
	pthread_mutex_lock(&descriptors_lock);
	int fd = try_known(s);
	if (fd < 0) {
		look_through();
		fd = try_known(s);
	}
	pthread_mutex_unlock(&descriptors_lock);
	return fd;
}

bool file_behind(int pagemap, uint64_t addr, uint64_t length, struct segment *found)
{
	char *path = NULL;
	int saved = errno, cancel = cancel_forbid();
	bool ok = may_be_shared(pagemap, addr);
	if (ok && !mem_behind(addr, length, found)) {
		ok = file_mapping(addr, length, found, &path);
		if (ok)
			found->fd = open_by_path(path, found);
		if (ok && found->fd < 0)
			found->fd = open_by_descriptor(found);
		ok = ok && found->fd >= 0;
		free(path);
	}
	cancel_restore(cancel);
	errno = saved;
	return ok;
}
