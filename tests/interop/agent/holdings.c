/* See holdings.h. */
#include "holdings.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "end.h"

#define TUNABLES                                                     \
	"glibc.pthread.stack_cache_size=0:glibc.malloc.arena_max=1:" \
	"glibc.malloc.mmap_threshold=131072"
#define FILES_MAX 1024
#define LINES_MAX 512

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool counts_bytes = false;
#else
static const bool counts_bytes = true;
#endif

/* What was there at the beginning, for the message alone. */
static char known_files[FILES_MAX][64];
static char known_lines[LINES_MAX][256];

void holdings_exact(char **argv)
{
	const char *set = getenv("GLIBC_TUNABLES");
	if (set != NULL && strcmp(set, TUNABLES) == 0)
		return;
	setenv("GLIBC_TUNABLES", TUNABLES, 1);
	execv("/proc/self/exe", argv);
	perror("execv");
	_exit(3);
}

/* --- descriptors --- */

static bool file_name(int fd, char name[64])
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t length = readlink(path, name, 63);
	name[length > 0 ? length : 0] = '\0';
	return length > 0;
}

static void remember_files(void)
{
	for (int fd = 0; fd < FILES_MAX; fd++)
		file_name(fd, known_files[fd]);
}

static void print_new_files(void)
{
	char name[64];
	for (int fd = 0; fd < FILES_MAX; fd++)
		if (file_name(fd, name) && strcmp(name, known_files[fd]) != 0)
			printf("  descriptor %d -> %s\n", fd, name);
}

/* --- mappings --- */

static bool is_counted(const char *line, unsigned long *bytes)
{
	unsigned long from, to;
	if (sscanf(line, "%lx-%lx", &from, &to) != 2)
		return false;
	*bytes = to - from;
	return strstr(line, "[heap]") == NULL && strstr(line, "[stack]") == NULL;
}

/* Call @take for each line of what is mapped. */
static void each_line(void (*take)(const char *line, void *context), void *context)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
		take(line, context);
	if (maps != NULL)
		fclose(maps);
}

static void add_bytes(const char *line, void *context)
{
	unsigned long bytes, *sum = context;
	if (is_counted(line, &bytes))
		*sum += bytes;
}

static void remember_line(const char *line, void *context)
{
	int *count = context;
	if (*count < LINES_MAX)
		snprintf(known_lines[(*count)++], sizeof(known_lines[0]), "%s", line);
}

static void print_new_line(const char *line, void *context)
{
	unsigned long bytes;
	(void)context;
	for (int i = 0; i < LINES_MAX; i++)
		if (strncmp(line, known_lines[i], sizeof(known_lines[0]) - 1) == 0)
			return;
	if (is_counted(line, &bytes))
		printf("  %lu KiB: %s", bytes >> 10, line);
}

/* --- both --- */

static struct holdings holdings_now(void)
{
	unsigned long bytes = 0;
	if (counts_bytes)
		each_line(add_bytes, &bytes);
	return (struct holdings){.files = count_files(getpid()),
	                         .shared = count_mappings("memfd:heddle"),
	                         .mapped_kib = (long)(bytes >> 10)};
}

static void holdings_least(struct holdings *least, const struct holdings *now)
{
	least->files = now->files < least->files ? now->files : least->files;
	least->shared = now->shared < least->shared ? now->shared : least->shared;
	least->mapped_kib =
	        now->mapped_kib < least->mapped_kib ? now->mapped_kib : least->mapped_kib;
}

void holdings_take(struct holdings *before, int ms)
{
	int lines = 0;
	*before = holdings_now();
	for (double until = now_ms() + ms; now_ms() < until; usleep(1000)) {
		struct holdings now = holdings_now();
		holdings_least(before, &now);
	}
	remember_files();
	each_line(remember_line, &lines);
}

static bool same(const struct holdings *a, const struct holdings *b)
{
	return a->files == b->files && a->shared == b->shared && a->mapped_kib == b->mapped_kib;
}

bool holdings_same(struct holdings *before, struct holdings *now, int ms)
{
	double until = now_ms() + ms;
	while (*now = holdings_now(), !same(now, before) && now_ms() < until)
		usleep(1000);
	bool grew = now->files > before->files || now->shared > before->shared ||
	            now->mapped_kib > before->mapped_kib;
	if (grew) {
		printf("the keeper grew from %d descriptors, %d mappings of ours and %ld KiB "
		       "mapped to %d, %d and %ld KiB:\n",
		       before->files, before->shared, before->mapped_kib, now->files, now->shared,
		       now->mapped_kib);
		print_new_files();
		each_line(print_new_line, NULL);
		fflush(stdout);
	} else {
		holdings_least(before, now);
	}
	return !grew;
}
