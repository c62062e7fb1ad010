/* Which file is behind memory of this process, and how may a peer open it? Only files that live in memory count: a page of
 * another may have to come from a disk, a network or a program that does not answer, and the thread that copies would wait
 * for it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "adapter/segment.h"
#include "base/fd.h"

#define PAGEMAP_SHARED (1ull << 61) /* the page is a file's, or of shared memory (pagemap.rst) */

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

/* A cheap no for most memory: private pages are not marked in the page map. */
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

static bool parse(char *text, struct line *out)
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

/* The mapping around the range, as one although advice or rights may have cut it into several. *path is its file's, to be
 * freed, or NULL. */
static bool find_mapping(uint64_t addr, uint64_t length, struct segment *found, char **path)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char *text = NULL;
	size_t room = 0;
	struct line line;
	*found = (struct segment){.fd = -1};
	*path = NULL;
	while (maps != NULL && getline(&text, &room, maps) > 0 && parse(text, &line)) {
		bool goes_on = found->length != 0 && line.shared && line.dev == found->dev &&
		               line.inode == found->inode &&
		               line.low == found->addr + found->length &&
		               line.offset == found->offset + found->length;
		if (goes_on) {
			found->length = line.high - found->addr;
			found->writable |= line.writable;
			continue;
		}
		if (found->length != 0 && found->addr + found->length > addr)
			break;
		free(*path);
		*path = NULL;
		found->length = 0;
		if (line.low > addr)
			break;
		if (!line.shared || line.inode == 0)
			continue;
		*found = (struct segment){.addr = line.low,
		                          .length = line.high - line.low,
		                          .offset = line.offset,
		                          .dev = line.dev,
		                          .inode = line.inode,
		                          .fd = -1,
		                          .writable = line.writable};
		*path = strdup(line.path);
	}
	free(text);
	if (maps != NULL)
		fclose(maps);
	return found->length != 0 && addr >= found->addr && addr - found->addr < found->length &&
	       length <= found->length - (addr - found->addr) && found->length <= SEGMENT_MAX_BYTES;
}

/* Is @fd the file, open for what peers will do? */
static bool fits(int fd, const struct segment *s)
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
	/* Looked at first: opening what is not a regular file may do something. */
	if (path == NULL || path[0] != '/' || stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
	    st.st_ino != s->inode)
		return -1;
	int fd = open(path, (s->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd >= 0 && !fits(fd, s)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* A descriptor of ours for the file, from those that the program has. */
static int open_by_descriptor(const struct segment *s)
{
	DIR *list = opendir("/proc/self/fd");
	struct dirent *entry;
	int fd = -1;
	while (list != NULL && fd < 0 && (entry = readdir(list)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		int theirs = atoi(entry->d_name);
		if (!fits(theirs, s))
			continue;
		fd = fcntl(theirs, F_DUPFD_CLOEXEC, 3);
		if (fd >= 0 && !fits(fd, s)) { /* closed and opened anew in between */
			close(fd);
			fd = -1;
		}
	}
	if (list != NULL)
		closedir(list);
	return fd;
}

bool file_behind(int pagemap, uint64_t addr, uint64_t length, struct segment *found)
{
	char *path = NULL;
	int saved = errno;
	bool ok = may_be_shared(pagemap, addr);
	if (ok && !mem_behind(addr, length, found)) {
		ok = find_mapping(addr, length, found, &path);
		if (ok)
			found->fd = open_by_path(path, found);
		if (ok && found->fd < 0)
			found->fd = open_by_descriptor(found);
		ok = ok && found->fd >= 0;
		free(path);
	}
	errno = saved;
	return ok;
}
