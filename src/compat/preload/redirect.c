/* The program's file and socket calls. Calls on paths that are ours (tree.h) are answered here;
 * waiting goes to wait.c, connecting to socket.c, names of hosts to names.c; all other calls go on
 * to the C library. Files that programs read are real descriptors and streams, of a memory file
 * with the content. Open folders are streams of our own, recognized by their address. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/imports.h"
#include "compat/cm/cm.h"
#include "compat/compat.h"
#include "compat/preload/tree.h"

#define MAX_FOLDERS 16 /* folders of ours that can be open at a time */

/* --- what an answer is --- */

/* 0: the path is the system's. 1: it is ours, and *node says which. -1: it is below one of our
 * folders, but does not exist; errno is set. */
static int preload_redirect_judge(const char *path, const struct tree_node **node)
{
	switch (tree_find(path, node)) {
	case TREE_OURS:
		return 1;
	case TREE_MISSING:
		errno = ENOENT;
		return -1;
	default:
		return 0;
	}
}

/* The same for a path relative to @dir, which may lack the first slash: hwloc opens "/" and starts
 * from there. */
static int judge_at(int dir, const char *path, const struct tree_node **node)
{
	if (path == NULL || path[0] == '/' || dir == AT_FDCWD)
		return preload_redirect_judge(path, node);
	char absolute[TREE_PATH_BYTES];
	if ((strncmp(path, "sys/class/infiniband", 20) != 0 &&
	     strncmp(path, "dev/infiniband", 14) != 0) ||
	    snprintf(absolute, sizeof(absolute), "/%s", path) >= (int)sizeof(absolute))
		return 0;
	struct stat from, root;
	if (fstat(dir, &from) != 0 || stat("/", &root) != 0 || from.st_dev != root.st_dev ||
	    from.st_ino != root.st_ino)
		return 0;
	return preload_redirect_judge(absolute, node);
}

static int open_node(const struct tree_node *node, int flags)
{
	if (node->kind == TREE_DIRECTORY)
		/* A descriptor for a folder, through which nothing can be removed; it does not show
		 * our content. */
		return flags & (O_WRONLY | O_RDWR)
		               ? (errno = EISDIR, -1)
		               : open("/proc/self", O_RDONLY | O_DIRECTORY | (flags & O_CLOEXEC));
	if (flags & O_DIRECTORY) {
		errno = ENOTDIR;
		return -1;
	}
	if (node->kind == TREE_DEVICE && node->argument == TREE_CM)
		return compat_cm_open(flags);
	if (node->kind == TREE_DEVICE)
		return open("/dev/null", flags & (O_ACCMODE | O_CLOEXEC | O_NONBLOCK));
	if (flags & (O_WRONLY | O_RDWR)) {
		errno = EACCES;
		return -1;
	}
	char text[TREE_TEXT_BYTES];
	size_t length = tree_text(node, text, sizeof(text));
	int fd = memfd_create("heddle", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (fd < 0)
		return -1;
	if (write(fd, text, length) != (ssize_t)length || lseek(fd, 0, SEEK_SET) != 0) {
		close(fd);
		errno = EIO;
		return -1;
	}
	return fd;
}

static void stat_node(const struct tree_node *node, struct stat *out)
{
	static const mode_t modes[] = {[TREE_DIRECTORY] = S_IFDIR | 0755,
	                               [TREE_FILE] = S_IFREG | 0444,
	                               [TREE_DEVICE] = S_IFCHR | 0666};
	memset(out, 0, sizeof(*out));
	out->st_mode = modes[node->kind];
	out->st_nlink = 1;
	out->st_size = node->kind == TREE_FILE
	                       ? 4096
	                       : 0; /* as in /sys, whatever the length of the text */
	out->st_blksize = 4096;
	if (node->kind == TREE_DEVICE)
		out->st_rdev = makedev(231, 192); /* the first of the kernel's verbs devices */
}

/* --- descriptors and streams --- */

static mode_t mode_of(int flags, va_list arguments)
{
	return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

static int our_open(const char *path, int flags, ...)
{
	const struct tree_node *node;
	int ours = preload_redirect_judge(path, &node);
	if (ours != 0)
		return ours > 0 ? open_node(node, flags) : -1;
	va_list arguments;
	va_start(arguments, flags);
	mode_t mode = mode_of(flags, arguments);
	va_end(arguments);
	return open(path, flags, mode);
}

static int our_open_2(const char *path, int flags)
{
	return our_open(path, flags, 0);
}

static int our_openat(int dir, const char *path, int flags, ...)
{
	const struct tree_node *node;
	int ours = judge_at(dir, path, &node);
	if (ours != 0)
		return ours > 0 ? open_node(node, flags) : -1;
	va_list arguments;
	va_start(arguments, flags);
	mode_t mode = mode_of(flags, arguments);
	va_end(arguments);
	return openat(dir, path, flags, mode);
}

static int our_openat_2(int dir, const char *path, int flags)
{
	return our_openat(dir, path, flags, 0);
}

static FILE *our_fopen(const char *path, const char *mode)
{
	const struct tree_node *node;
	int ours = preload_redirect_judge(path, &node);
	if (ours == 0)
		return fopen(path, mode);
	if (ours < 0)
		return NULL;
	bool reads = mode[0] == 'r' && strchr(mode, '+') == NULL;
	int fd = open_node(node, (reads ? O_RDONLY : O_RDWR) | (strchr(mode, 'e') ? O_CLOEXEC : 0));
	return fd >= 0 ? fdopen(fd, "r") : NULL;
}

/* --- the descriptors of rdma_cm --- */

static ssize_t our_write(int fd, const void *data, size_t bytes)
{
	return compat_cm_owns(fd) ? compat_cm_write(fd, data, bytes) : write(fd, data, bytes);
}

static int our_close(int fd)
{
	if (compat_cm_owns(fd))
		compat_cm_close(fd);
	compat_wait_closed(fd);
	return close(fd);
}

/* --- what a path is --- */

/* stat(2) or lstat(2), whichever is @call: none of our files is a link. */
static int stat_by(int (*call)(const char *, struct stat *), const char *path, struct stat *out)
{
	const struct tree_node *node;
	int ours = preload_redirect_judge(path, &node);
	if (ours > 0)
		stat_node(node, out);
	return ours == 0 ? call(path, out) : ours > 0 ? 0 : -1;
}

static int our_stat(const char *path, struct stat *out)
{
	return stat_by(stat, path, out);
}

static int our_lstat(const char *path, struct stat *out)
{
	return stat_by(lstat, path, out);
}

/* librdmacm checks that what it has opened is the device, by the kernel's number if the kernel has
 * one. */
static int our_fstat(int fd, struct stat *out)
{
	static const struct tree_node device = {.kind = TREE_DEVICE};
	struct stat real;
	if (!compat_cm_owns(fd))
		return fstat(fd, out);
	stat_node(&device, out);
	if (stat("/dev/infiniband/rdma_cm", &real) == 0)
		out->st_rdev = real.st_rdev;
	return 0;
}

static int our_fxstat(int version, int fd, struct stat *out)
{
	(void)version;
	return our_fstat(fd, out);
}

/* stat() before glibc 2.33. */
static int our_xstat(int version, const char *path, struct stat *out)
{
	(void)version;
	return our_stat(path, out);
}

static int our_lxstat(int version, const char *path, struct stat *out)
{
	(void)version;
	return our_lstat(path, out);
}

static int our_fstatat(int dir, const char *path, struct stat *out, int flags)
{
	const struct tree_node *node;
	int ours = judge_at(dir, path, &node);
	if (ours > 0)
		stat_node(node, out);
	return ours == 0 ? fstatat(dir, path, out, flags) : ours > 0 ? 0 : -1;
}

/* For ls(1). */
static int our_statx(int dir, const char *path, int flags, unsigned mask, struct statx *out)
{
	const struct tree_node *node;
	struct stat found;
	int ours = judge_at(dir, path, &node);
	if (ours <= 0)
		return ours == 0 ? statx(dir, path, flags, mask, out) : -1;
	stat_node(node, &found);
	*out = (struct statx){.stx_mask = STATX_BASIC_STATS,
	                      .stx_blksize = (uint32_t)found.st_blksize,
	                      .stx_nlink = (uint32_t)found.st_nlink,
	                      .stx_mode = (uint16_t)found.st_mode,
	                      .stx_size = (uint64_t)found.st_size,
	                      .stx_rdev_major = major(found.st_rdev),
	                      .stx_rdev_minor = minor(found.st_rdev)};
	return 0;
}

static int access_node(const struct tree_node *node, int mode)
{
	bool allowed = !(mode & X_OK) || node->kind == TREE_DIRECTORY;
	if ((mode & W_OK) && node->kind != TREE_DEVICE)
		allowed = false;
	if (!allowed)
		errno = EACCES;
	return allowed ? 0 : -1;
}

static int our_access(const char *path, int mode)
{
	const struct tree_node *node;
	int ours = preload_redirect_judge(path, &node);
	if (ours == 0)
		return access(path, mode);
	return ours > 0 ? access_node(node, mode) : -1;
}

static int our_faccessat(int dir, const char *path, int mode, int flags)
{
	const struct tree_node *node;
	int ours = judge_at(dir, path, &node);
	if (ours == 0)
		return faccessat(dir, path, mode, flags);
	return ours > 0 ? access_node(node, mode) : -1;
}

/* None of ours is a link. */
static ssize_t our_readlink(const char *path, char *out, size_t size)
{
	const struct tree_node *node;
	int ours = preload_redirect_judge(path, &node);
	if (ours > 0)
		errno = EINVAL;
	return ours == 0 ? readlink(path, out, size) : -1;
}

static ssize_t our_readlink_chk(const char *path, char *out, size_t size, size_t room)
{
	(void)room;
	return our_readlink(path, out, size);
}

static ssize_t our_readlinkat(int dir, const char *path, char *out, size_t size)
{
	const struct tree_node *node;
	int ours = judge_at(dir, path, &node);
	if (ours > 0)
		errno = EINVAL;
	return ours == 0 ? readlinkat(dir, path, out, size) : -1;
}

static char *our_realpath(const char *path, char *out)
{
	const struct tree_node *node;
	int ours = preload_redirect_judge(path, &node);
	if (ours == 0)
		return realpath(path, out);
	if (ours < 0)
		return NULL;
	char whole[TREE_PATH_BYTES];
	tree_path(node, whole);
	return out != NULL ? strcpy(out, whole) : strdup(whole);
}

static char *our_realpath_chk(const char *path, char *out, size_t room)
{
	(void)room;
	return our_realpath(path, out);
}

/* --- folders --- */

struct folder {
	const struct tree_node *node; /* NULL: not in use */
	size_t next;                  /* child, after "." and ".." */
	struct dirent entry;
};

static pthread_mutex_t folders_lock = PTHREAD_MUTEX_INITIALIZER;
static struct folder folders[MAX_FOLDERS];

static struct folder *folder_of(DIR *stream)
{
	uintptr_t at = (uintptr_t)stream, first = (uintptr_t)folders;
	return at >= first && at < first + sizeof(folders) ? (struct folder *)(void *)stream : NULL;
}

static DIR *our_opendir(const char *path)
{
	const struct tree_node *node;
	int ours = preload_redirect_judge(path, &node);
	if (ours == 0)
		return opendir(path);
	if (ours < 0)
		return NULL;
	if (node->kind != TREE_DIRECTORY)
		return compat_fail(ENOTDIR);
	struct folder *found = NULL;
	pthread_mutex_lock(&folders_lock);
	for (size_t i = 0; i < MAX_FOLDERS && found == NULL; i++)
		if (folders[i].node == NULL)
			found = &folders[i];
	if (found != NULL)
		*found = (struct folder){.node = node};
	pthread_mutex_unlock(&folders_lock);
	return found != NULL ? (DIR *)(void *)found : compat_fail(EMFILE);
}

static struct dirent *our_readdir(DIR *stream)
{
	struct folder *folder = folder_of(stream);
	if (folder == NULL)
		return readdir(stream);
	const char *name = folder->next == 0 ? "." : "..";
	enum tree_kind kind = TREE_DIRECTORY;
	if (folder->next >= 2) {
		const struct tree_node *child = tree_child(folder->node, folder->next - 2, &name);
		if (child == NULL)
			return NULL;
		kind = child->kind;
	}
	folder->next++;
	folder->entry.d_ino = 1;
	folder->entry.d_off = (off_t)folder->next;
	folder->entry.d_reclen = sizeof(folder->entry);
	folder->entry.d_type = kind == TREE_DIRECTORY ? DT_DIR
	                       : kind == TREE_FILE    ? DT_REG
	                                              : DT_CHR;
	snprintf(folder->entry.d_name, sizeof(folder->entry.d_name), "%s", name);
	return &folder->entry;
}

static int our_closedir(DIR *stream)
{
	struct folder *folder = folder_of(stream);
	if (folder == NULL)
		return closedir(stream);
	pthread_mutex_lock(&folders_lock);
	folder->node = NULL;
	pthread_mutex_unlock(&folders_lock);
	return 0;
}

/* How a program compares entries; qsort(3) takes another type. */
typedef int (*entry_order)(const struct dirent **, const struct dirent **);

/* For libibumad. */
static int our_scandir(const char *path, struct dirent ***entries,
                       int (*wanted)(const struct dirent *), entry_order order)
{
	const struct tree_node *node;
	struct dirent **list = NULL;
	const struct dirent *entry;
	size_t count = 0;
	if (preload_redirect_judge(path, &node) == 0)
		return scandir(path, entries, wanted, order);
	DIR *stream = our_opendir(path);
	if (stream == NULL)
		return -1;
	while ((entry = our_readdir(stream)) != NULL) {
		if (wanted != NULL && !wanted(entry))
			continue;
		struct dirent **longer = realloc(list, (count + 1) * sizeof(struct dirent *));
		struct dirent *copy = longer != NULL ? malloc(sizeof(*copy)) : NULL;
		list = longer != NULL ? longer : list;
		if (copy == NULL)
			break;
		*copy = *entry;
		list[count++] = copy;
	}
	our_closedir(stream);
	if (entry != NULL || (list == NULL && (list = malloc(sizeof(struct dirent *))) == NULL)) {
		while (count > 0)
			free(list[--count]);
		free(list);
		errno = ENOMEM;
		return -1;
	}
	if (order != NULL && count > 1)
		qsort(list, count, sizeof(struct dirent *), (__compar_fn_t)(void *)order);
	*entries = list;
	return (int)count;
}

static void our_rewinddir(DIR *stream)
{
	struct folder *folder = folder_of(stream);
	if (folder == NULL)
		rewinddir(stream);
	else
		folder->next = 0;
}

static long our_telldir(DIR *stream)
{
	const struct folder *folder = folder_of(stream);
	return folder == NULL ? telldir(stream) : (long)folder->next;
}

static void our_seekdir(DIR *stream, long place)
{
	struct folder *folder = folder_of(stream);
	if (folder == NULL)
		seekdir(stream, place);
	else
		folder->next = (size_t)place;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* programs call it anyway */
static int our_readdir_r(DIR *stream, struct dirent *entry, struct dirent **result)
{
	if (folder_of(stream) == NULL)
		return readdir_r(stream, entry, result);
	const struct dirent *next = our_readdir(stream);
	*result = NULL;
	if (next != NULL) {
		*entry = *next;
		*result = entry;
	}
	return 0;
}
#pragma GCC diagnostic pop

static int our_dirfd(DIR *stream)
{
	if (folder_of(stream) == NULL)
		return dirfd(stream);
	errno = ENOTSUP; /* as dirfd(3) for a stream without a descriptor */
	return -1;
}

/* --- the calls that are redirected --- */

#define CALL(name, call)                     \
	{                                    \
		name, (void (*)(void))(call) \
	}

/* Sorted by name. On 64-bit machines the names with 64 are the same calls. */
static const struct import calls[] = {
        CALL("__fxstat", our_fxstat),
        CALL("__fxstat64", our_fxstat),
        CALL("__lxstat", our_lxstat),
        CALL("__lxstat64", our_lxstat),
        CALL("__open64_2", our_open_2),
        CALL("__open_2", our_open_2),
        CALL("__openat64_2", our_openat_2),
        CALL("__openat_2", our_openat_2),
        CALL("__poll_chk", compat_poll_chk),
        CALL("__ppoll_chk", compat_ppoll_chk),
        CALL("__readlink_chk", our_readlink_chk),
        CALL("__realpath_chk", our_realpath_chk),
        CALL("__xstat", our_xstat),
        CALL("__xstat64", our_xstat),
        CALL("access", our_access),
        CALL("close", our_close),
        CALL("closedir", our_closedir),
        CALL("connect", compat_connect),
        CALL("dirfd", our_dirfd),
        CALL("epoll_ctl", compat_epoll_ctl),
        CALL("epoll_pwait", compat_epoll_pwait),
        CALL("epoll_pwait2", compat_epoll_pwait2),
        CALL("epoll_wait", compat_epoll_wait),
        CALL("faccessat", our_faccessat),
        CALL("fopen", our_fopen),
        CALL("fopen64", our_fopen),
        CALL("fstat", our_fstat),
        CALL("fstat64", our_fstat),
        CALL("fstatat", our_fstatat),
        CALL("fstatat64", our_fstatat),
        CALL("getaddrinfo", compat_getaddrinfo),
        CALL("lstat", our_lstat),
        CALL("lstat64", our_lstat),
        CALL("open", our_open),
        CALL("open64", our_open),
        CALL("openat", our_openat),
        CALL("openat64", our_openat),
        CALL("opendir", our_opendir),
        CALL("poll", compat_poll),
        CALL("ppoll", compat_ppoll),
        CALL("pselect", compat_pselect),
        CALL("readdir", our_readdir),
        CALL("readdir64", our_readdir),
        CALL("readdir64_r", our_readdir_r),
        CALL("readdir_r", our_readdir_r),
        CALL("readlink", our_readlink),
        CALL("readlinkat", our_readlinkat),
        CALL("realpath", our_realpath),
        CALL("rewinddir", our_rewinddir),
        CALL("scandir", our_scandir),
        CALL("scandir64", our_scandir),
        CALL("seekdir", our_seekdir),
        CALL("select", compat_select),
        CALL("stat", our_stat),
        CALL("stat64", our_stat),
        CALL("statx", our_statx),
        CALL("telldir", our_telldir),
        CALL("write", our_write),
};

/* Called at the start for the program itself, and again by ibv_get_device_list() for modules that
 * were loaded since. */
__attribute__((constructor)) void compat_redirect(void)
{
	static struct imports imports = {.list = calls, .count = sizeof(calls) / sizeof(calls[0])};
	imports_patch(&imports);
}

int compat_read_file(const char *path, char *buffer, size_t size)
{
	int fd = our_open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t length = read(fd, buffer, size);
	close(fd);
	return (int)length;
}
