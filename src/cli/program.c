/* Checks before a program is run whether something keeps it from finding Heddle: otherwise such a
 * program silently finds no device, or the system's library. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/elf.h"

#define SCRIPT_DEPTH 4u  /* how many interpreters of interpreters Linux follows */
#define LINE_BYTES   256 /* of a script's first line, as Linux reads it */
#define LIBRARY      "libibverbs.so.1"

static void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void warn(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fputs("heddle: warning: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
}

/* The file that execvp() will run, in @out. */
static bool find_program(const char *name, char out[PATH_MAX])
{
	const char *list = secure_getenv("PATH");
	if (strchr(name, '/') != NULL)
		return snprintf(out, PATH_MAX, "%s", name) < PATH_MAX;
	for (const char *at = list != NULL ? list : "/bin:/usr/bin"; at != NULL;) {
		size_t length = strcspn(at, ":");
		struct stat st;
		int written = length == 0
		                      ? snprintf(out, PATH_MAX, "./%s", name)
		                      : snprintf(out, PATH_MAX, "%.*s/%s", (int)length, at, name);
		if (written < PATH_MAX && access(out, X_OK) == 0 && stat(out, &st) == 0 &&
		    S_ISREG(st.st_mode))
			return true;
		at = at[length] == ':' ? at + length + 1 : NULL;
	}
	return false;
}

static bool read_from_file(void *context, void *to, size_t bytes, uint64_t offset)
{
	return pread(*(int *)context, to, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* The interpreter in the first line of a script. */
static bool find_interpreter(int fd, char out[LINE_BYTES])
{
	char line[LINE_BYTES];
	ssize_t got = pread(fd, line, sizeof(line) - 1, 0);
	if (got < 3 || line[0] != '#' || line[1] != '!')
		return false;
	line[got] = '\0';
	char *from = line + 2 + strspn(line + 2, " \t");
	size_t length = strcspn(from, " \t\n");
	memcpy(out, from, length);
	out[length] = '\0';
	return length > 0;
}

/* --- programs that run with other rights than the user's --- */

static bool gains_rights(const char *path, const char **how)
{
	struct stat st;
	struct statvfs mount;
	if (stat(path, &st) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
	    (statvfs(path, &mount) == 0 && (mount.f_flag & ST_NOSUID) != 0))
		return false;
	/* Without the right to execute, the set-gid bit means something else. */
	const mode_t set_gid = S_ISGID | S_IXGRP;
	*how = NULL;
	if ((st.st_mode & S_ISUID) != 0 && st.st_uid != getuid())
		*how = "set-uid";
	else if ((st.st_mode & set_gid) == set_gid && st.st_gid != getgid())
		*how = "set-gid";
	else if (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0)
		*how = "given capabilities by its file";
	return *how != NULL;
}

/* --- DT_RPATH --- */

static bool same_directory(const char *a, const char *b)
{
	struct stat first, second;
	return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

/* One directory of a search path, with $ORIGIN replaced by the directory of the program @path. */
static bool expand(const char *from, size_t length, const char *path, char out[PATH_MAX])
{
	static const char *const words[] = {"$ORIGIN", "${ORIGIN}"};
	char real[PATH_MAX];
	for (size_t i = 0; i < 2; i++) {
		size_t word = strlen(words[i]);
		if (length < word || strncmp(from, words[i], word) != 0)
			continue;
		if (realpath(path, real) == NULL)
			return false;
		*strrchr(real, '/') = '\0';
		return snprintf(out, PATH_MAX, "%s%.*s", real, (int)(length - word), from + word) <
		       PATH_MAX;
	}
	return length < PATH_MAX && snprintf(out, PATH_MAX, "%.*s", (int)length, from) < PATH_MAX;
}

/* Does the search path @list lead to a libibverbs that is not ours? */
static bool leads_elsewhere(const char *list, const char *path, const char *compat,
                            char out[PATH_MAX])
{
	char library[PATH_MAX];
	for (const char *at = list; at != NULL;) {
		size_t length = strcspn(at, ":");
		if (expand(at, length, path, out) && out[0] != '\0' &&
		    snprintf(library, sizeof(library), "%s/" LIBRARY, out) < PATH_MAX &&
		    access(library, R_OK) == 0)
			return !same_directory(out, compat); /* the loader takes the first one */
		at = at[length] == ':' ? at + length + 1 : NULL;
	}
	return false;
}

/* --- */

static void check_rights(const char *path, const char *as)
{
	const char *how;
	if (gains_rights(path, &how))
		warn("%s%s is %s, so the system ignores the library path and it will not find "
		     "Heddle; run a copy of it (cp %s .), which has no such rights",
		     path, as, how, path);
}

/* At most one warning: the first reason is enough. @as: why we look at @path. */
static void check_elf(const char *path, const char *as, int fd, const char *compat, bool preload)
{
	struct elf_source source = {read_from_file, &fd};
	struct elf_facts facts;
	char elsewhere[PATH_MAX];
	const char *how;
	if (elf_read(&source, &facts) == ELF_NOT_ELF)
		return;
	const char *machine = elf_machine_name(facts.machine);
	if (!facts.is_64)
		warn("%s%s is a 32-bit program, which cannot load Heddle; run a 64-bit build of it",
		     path, as);
	else if (!facts.same_machine)
		warn("%s%s is built for another processor (%s), for which there is no Heddle here; "
		     "build it for this machine",
		     path, as, machine != NULL ? machine : "unknown");
	else if (facts.is_static)
		warn("%s%s is linked statically and will not use Heddle; link it with the shared "
		     "libibverbs (without -static)",
		     path, as);
	else if (gains_rights(path, &how))
		check_rights(path, as);
	else if (!preload && facts.rpath[0] != '\0' &&
	         leads_elsewhere(facts.rpath, path, compat, elsewhere))
		warn("%s%s has a DT_RPATH that leads to the " LIBRARY " in %s, which it will use "
		     "instead of Heddle's; run it with heddle run --preload",
		     path, as, elsewhere);
}

void program_warn(const char *name, const char *compat, bool preload)
{
	char path[PATH_MAX], interpreter[LINE_BYTES];
	const char *as = "";
	if (!find_program(name, path))
		return; /* execvp() will report it */
	for (unsigned i = 0; i <= SCRIPT_DEPTH; i++) {
		int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		struct stat st;
		if (fd < 0) { /* set-uid programs can often be run but not read */
			check_rights(path, as);
			return;
		}
		bool regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
		bool script = regular && find_interpreter(fd, interpreter);
		if (regular && !script)
			check_elf(path, as, fd, compat, preload);
		close(fd);
		if (!script)
			return;
		snprintf(path, sizeof(path), "%s", interpreter);
		as = ", which interprets the script,";
	}
}
