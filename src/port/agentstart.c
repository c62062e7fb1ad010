/* Starting the node agent. See agentstart.h. */
#include "port/agentstart.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/installed.h"
#include "base/log.h"
#include "port/unixsock.h"

/* On a busy machine, what usually takes milliseconds may take seconds. This is longer than one
 * agent waits for another to listen or exit. */
#define START_WAIT_MS 30000

/* Protects the stack of the child that becomes the agent. */
static pthread_mutex_t agentstart_lock = PTHREAD_MUTEX_INITIALIZER;

static void agentstart_before_fork(void)
{
	pthread_mutex_lock(&agentstart_lock);
}

static void agentstart_after_fork(void)
{
	pthread_mutex_unlock(&agentstart_lock);
}

/* Before every other library constructor registers handlers: this lock is then taken after theirs,
 * as agentstart_run() does whose callers hold them. */
__attribute__((constructor(101))) static void agentstart_watch_forks(void)
{
	pthread_atfork(agentstart_before_fork, agentstart_after_fork, agentstart_after_fork);
}

/* Find heddled: named by HEDDLE_AGENT, next to the library, or where it was installed. The caller
 * of a set-uid program must not choose which agent it runs, neither with the environment nor with a
 * link to the program in a directory of the caller. */
static bool find_agent(const void *own, char *path, size_t bytes)
{
	const char *given = secure_getenv("HEDDLE_AGENT");
	if (given != NULL) {
		snprintf(path, bytes, "%s", given);
		return access(path, X_OK) == 0;
	}
	if (getauxval(AT_SECURE) != 0)
		return installed_find(INSTALLED_AGENT, NULL, "heddled", X_OK, path, bytes);
	/* For a program, dladdr() gives the name by which it was called: perhaps a link, or a name
	 * that was found in PATH. */
	Dl_info info;
	char library[PATH_MAX] = "";
	if (dladdr(own, &info) == 0 || info.dli_fname == NULL ||
	    strchr(info.dli_fname, '/') == NULL || realpath(info.dli_fname, library) == NULL) {
		ssize_t length = readlink("/proc/self/exe", library, sizeof(library) - 1);
		library[length > 0 ? length : 0] = '\0';
	}
	return installed_find(INSTALLED_AGENT, library, "heddled", X_OK, path, bytes);
}

struct start {
	const char *path;
	char ready[16];
};

/* In the child, which shares our memory until execve(). */
static int become_agent(void *context)
{
	struct start *start = context;
	char *argv[] = {(char *)(uintptr_t)start->path, (char *)(uintptr_t) "--ready-fd",
	                start->ready, NULL};
	char *nothing[] = {NULL};
	/* A set-uid program may have only one uid by now, so its agent could not tell that the
	 * environment must be ignored. */
	execve(start->path, argv, getauxval(AT_SECURE) != 0 ? nothing : environ);
	_exit(127);
}

/* Wait until the agent closes its end of the pipe: it or another agent is listening. If it writes
 * something before that, it is the reason for a failure. */
static bool await_ready(int ready, const char *path)
{
	char why[512];
	size_t length = 0;
	ssize_t got = 1;
	struct pollfd end = {.fd = ready, .events = POLLIN};
	while (got > 0 && length < sizeof(why) - 1) {
		int news = poll(&end, 1, START_WAIT_MS);
		if (news < 0 && errno == EINTR)
			continue;
		if (news <= 0) {
			log_error("heddled (%s) did not start within %d s; is the machine "
			          "overloaded, or is HEDDLE_AGENT something else?",
			          path, START_WAIT_MS / 1000);
			return false;
		}
		got = read(ready, why + length, sizeof(why) - 1 - length);
		length += got > 0 ? (size_t)got : 0;
	}
	if (length == 0)
		return true;
	why[length] = '\0';
	log_error("the node agent cannot work: %s", why);
	return false;
}

bool agentstart_run(const void *own)
{
	char path[600];
	int ready[2];
	if (!find_agent(own, path, sizeof(path))) {
		log_error("heddled was not found next to the library; install it there, or set "
		          "HEDDLE_AGENT to its path");
		return false;
	}
	if (pipe2(ready, O_CLOEXEC) != 0) {
		log_error("pipe: %m; close some files, or raise \"ulimit -n\"");
		return false;
	}
	struct start start = {.path = path};
	snprintf(start.ready, sizeof(start.ready), "%d", ready[1]);
	fcntl(ready[1], F_SETFD, 0);
	pthread_mutex_lock(&agentstart_lock);
#ifdef __SANITIZE_THREAD__
	/* The thread sanitizer loses track of locks when a child shares our memory. Not fork(): its
	 * handlers may take locks that our caller holds. */
	pid_t pid = _Fork();
	if (pid == 0)
		become_agent(&start);
#else
	static char stack[65536] __attribute__((aligned(16)));
	pid_t pid = clone(become_agent, stack + sizeof(stack), CLONE_VM | CLONE_VFORK, &start);
#endif
	pthread_mutex_unlock(&agentstart_lock);
	close(ready[1]);
	if (pid < 0) {
		log_error("cannot start heddled: %m; end some programs, then try again");
		close(ready[0]);
		return false;
	}
	bool started = await_ready(ready[0], path);
	int status = 0;
	close(ready[0]);
	while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
		;
	/* If the program ignores SIGCHLD there is no status, and it remains 0. */
	if (started && status != 0) {
		log_error("cannot run %s (status %#x); set HEDDLE_AGENT to the heddled of this "
		          "version",
		          path, (unsigned)status);
		started = false;
	}
	return started;
}

bool agentstart_is_ours(int sock)
{
	pid_t pid;
	uid_t uid;
	if (unixsock_peer(sock, &pid, &uid) != 0)
		return false;
	if (uid == geteuid())
		return true;
	log_error("process %d of another user (%u) listens on the socket of the node agent; end "
	          "it, or set HEDDLE_DIR to a directory of your own with mode 0700",
	          (int)pid, (unsigned)uid);
	return false;
}
