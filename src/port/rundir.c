/* Where the agent of a user is found. */
#include "port/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Is @path a directory of ours that nobody else can enter? */
static int judge(const char *path)
{
	struct stat st;
	if (lstat(path, &st) != 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	return st.st_uid == geteuid() && (st.st_mode & 077) == 0 ? 0 : -EPERM;
}

static int make(const char *path)
{
	int result = judge(path);
	if (result != -ENOENT)
		return result;
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return -errno;
	return judge(path);
}

/* Without a directory that the user was given: /tmp, or where that can only be read, or is not there, /dev/shm. */
static int choose(char path[RUNDIR_MAX])
{
	static const char *const places[] = {"/tmp", "/dev/shm"};
	unsigned user = (unsigned)geteuid();
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		int length = snprintf(path, RUNDIR_MAX, "%s/heddle-%u", places[i], user);
		if (access(access(path, F_OK) == 0 ? path : places[i], W_OK) == 0)
			return length;
	}
	return snprintf(path, RUNDIR_MAX, "%s/heddle-%u", places[0], user);
}

int rundir_open(char path[RUNDIR_MAX])
{
	const char *given = getenv("HEDDLE_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
	int length;
	if (given != NULL && given[0] == '/') {
		length = snprintf(path, RUNDIR_MAX, "%s", given);
	} else if (runtime != NULL && runtime[0] == '/' && access(runtime, W_OK) == 0) {
		length = snprintf(path, RUNDIR_MAX, "%s/heddle", runtime);
	} else {
		length = choose(path);
	}
	if (length < 0 || length >= RUNDIR_MAX)
		return -ENAMETOOLONG;
	return make(path);
}

const char *rundir_advice(int error)
{
	switch (-error) {
	case EPERM:
		return "it belongs to another user or is open to others; remove it, \"chmod 700\" "
		       "it, or set HEDDLE_DIR to a directory of your own";
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
		return "there may be no more processes; end some, or raise \"ulimit -u\"";
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
