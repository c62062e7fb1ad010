/* The directory of a user's agent. */
#include "port/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Is @path a directory of this user that no other user can enter? -EACCES: it belongs to another
 * user. */
static int rundir_judge(const char *path)
{
	struct stat st;
	if (lstat(path, &st) != 0)
		return -errno;
	if (st.st_uid != geteuid())
		return -EACCES;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if ((st.st_mode & 077) != 0)
		return -EPERM;
	return faccessat(AT_FDCWD, path, R_OK | W_OK | X_OK, AT_EACCESS) == 0 || errno != EACCES
	               ? 0
	               : -EPERM;
}

static int rundir_make(const char *path)
{
	int result = rundir_judge(path);
	if (result != -ENOENT)
		return result;
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return -errno;
	return rundir_judge(path);
}

/* The default places, best first, as the text before and after the uid. Any user can create a
 * directory with our name in the first three. */
static const char *const places[][2] = {{"/tmp/heddle-", ""},
                                        {"/dev/shm/heddle-", ""},
                                        {"/var/tmp/heddle-", ""},
                                        {"/run/user/", "/heddle"}};
#define PLACES (sizeof(places) / sizeof(places[0]))

/* The number of user @uid outside of our user namespace. */
static unsigned outside(unsigned uid)
{
	unsigned inside, other, count, found = uid;
	FILE *map = fopen("/proc/self/uid_map", "re");
	while (map != NULL && fscanf(map, "%u %u %u", &inside, &other, &count) == 3)
		if (uid >= inside && uid - inside < count)
			found = other + (uid - inside);
	if (map != NULL)
		fclose(map);
	return found;
}

static void name(char path[RUNDIR_MAX], size_t place)
{
	unsigned uid = geteuid(), other = outside(uid);
	if (other == uid)
		snprintf(path, RUNDIR_MAX, "%s%u%s", places[place][0], uid, places[place][1]);
	else
		snprintf(path, RUNDIR_MAX, "%s%u-%u%s", places[place][0], other, uid,
		         places[place][1]);
}

/* The first place with a directory of ours: all programs of the user find the same one, whatever
 * other users do in the meantime. (They cannot remove it, because these directories are sticky.)
 * PLACES: there is none. A directory that the user must repair counts as well. */
static size_t first_of_ours(char path[RUNDIR_MAX])
{
	for (size_t i = 0; i < PLACES; i++) {
		name(path, i);
		int result = rundir_judge(path);
		if (result == 0 || result == -EPERM || result == -ENOTDIR)
			return i;
	}
	return PLACES;
}

/* Find or create the directory in the first usable place. */
static int choose(char path[RUNDIR_MAX], char *passed)
{
	char first[RUNDIR_MAX];
	int result, first_result = 0;
	size_t place = first_of_ours(path);
	for (size_t i = 0; place == PLACES && i < PLACES; i++) {
		name(path, i);
		result = rundir_make(path);
		if (i == 0) {
			memcpy(first, path, sizeof(first));
			first_result = result;
		}
		/* Two programs that start at the same time both use the better place, no matter
		 * which of them created it. */
		if (result == 0 || result == -EPERM || result == -ENOTDIR)
			place = first_of_ours(path);
	}
	if (place == PLACES) { /* report the problem with the place that is tried first */
		memcpy(path, first, sizeof(first));
		return first_result;
	}
	for (size_t i = place; i-- > 0;) {
		name(first, i);
		if (passed != NULL && rundir_judge(first) == -EACCES)
			memcpy(passed, first, sizeof(first));
	}
	return rundir_make(path);
}

int rundir_open(char path[RUNDIR_MAX], char *passed)
{
	const char *given = secure_getenv("HEDDLE_DIR"),
	           *runtime = secure_getenv("XDG_RUNTIME_DIR");
	int length;
	if (passed != NULL)
		passed[0] = '\0';
	if (given != NULL && given[0] != '\0')
		length = snprintf(path, RUNDIR_MAX, "%s", given);
	else if (runtime != NULL && runtime[0] == '/' && access(runtime, W_OK) == 0)
		length = snprintf(path, RUNDIR_MAX, "%s/heddle", runtime);
	else
		return choose(path, passed);
	if (path[0] != '/')
		return -EINVAL;
	if (length < 0 || length >= RUNDIR_MAX)
		return -ENAMETOOLONG;
	return rundir_make(path);
}

const char *rundir_advice(int error)
{
	switch (-error) {
	case EPERM:
		return "its mode must be 0700, which lets you do everything and others nothing; "
		       "\"chmod 700\" it or remove it, or set HEDDLE_DIR to a directory of your "
		       "own with mode 0700";
	case EINVAL:
		return "HEDDLE_DIR must be an absolute path (\"$PWD/...\"), because all programs "
		       "that belong together must mean the same directory";
	case EACCES:
		return "it belongs to another user, or cannot be reached; set HEDDLE_DIR to a "
		       "directory of your own with mode 0700 (\"mktemp -d\" makes one) for all "
		       "programs that belong together";
	case ENOTDIR:
		return "it is not a directory (a symbolic link will not do); remove it, or set "
		       "HEDDLE_DIR to a directory of your own with mode 0700";
	case ENAMETOOLONG:
		return "a socket's path must be short; set HEDDLE_DIR to a shorter one";
	case ENOSPC:
	case EDQUOT:
		return "the file system is full; make room, or set HEDDLE_DIR to a directory of "
		       "your own on another one";
	case EBUSY:
		return "a process holds the file agent.lock there and does not listen; end it "
		       "(\"fuser\" names it), or set HEDDLE_DIR to a directory of your own with "
		       "mode 0700";
	case EAGAIN:
		return "the limit of processes is reached; end some, or raise \"ulimit -u\"";
	case EMFILE:
	case ENFILE:
	case ENOMEM:
		return "the machine is out of files or memory; end some programs, then try again";
	default:
		return "set HEDDLE_DIR to a directory of your own with mode 0700 that can be "
		       "written to";
	}
}

void rundir_file(const char *directory, const char *name, char *out, size_t bytes)
{
	snprintf(out, bytes, "%s/%s", directory, name);
}
