/* heddled: the node agent as a program. Started by the first program that needs it; leaves when
 * nobody has been here for a while. The lock in its directory is held as long as it lives, so there
 * is never a second one, and one that was killed leaves nothing that stops the next. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/wire.h"
#include "base/clock.h"
#include "port/rundir.h"
#include "port/unixsock.h"

#define MAX_EVENTS 64
#define LOCK_TRIES 100

/* Who holds the lock and does not listen is about to, or about to be gone: so long, and no longer.
 */
#define OFFICE_WAIT_NS 5000000000u

struct options {
	bool foreground;
	int idle_seconds;
	int ready_fd;
};

static volatile sig_atomic_t stopping;

static void on_stop(int number)
{
	(void)number;
	stopping = 1;
}

static error_t heddled_parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'f':
		options->foreground = true;
		return 0;
	case 'i':
		options->idle_seconds = atoi(arg);
		return 0;
	case 'r':
		options->ready_fd = atoi(arg);
		return 0;
	case ARGP_KEY_ARG:
		argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Say that the agent is there (or that another one is), by closing the descriptor that the starter
 * waits on. */
static void ready(const struct options *options)
{
	if (options->ready_fd >= 0)
		close(options->ready_fd);
}

/* Say why there will be no agent: to the starter, who shows it to the user, or on standard error.
 */
static int heddled_give_up(const struct options *options, const char *where, int error)
{
	int out = options->ready_fd >= 0 ? options->ready_fd : STDERR_FILENO;
	dprintf(out, "%s%s: %s; %s%s", options->ready_fd >= 0 ? "" : "heddled: ", where,
	        strerror(-error), rundir_advice(error), options->ready_fd >= 0 ? "" : "\n");
	return 1;
}

/* Nothing of the program that happened to start us is ours: neither its open files (a port that it
 * listens on would stay taken when it ends), nor the signals that one of its threads blocks, nor
 * its limits on files. */
static void shed_starter(const struct options *options)
{
	static const int limits[] = {RLIMIT_NOFILE, RLIMIT_FSIZE};
	unsigned keep = options->ready_fd >= 3 ? (unsigned)options->ready_fd : 2;
	if (keep > 3)
		close_range(3, keep - 1, 0);
	close_range(keep + 1, ~0u, 0);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct rlimit limit;
		if (getrlimit((__rlimit_resource_t)limits[i], &limit) != 0)
			continue;
		limit.rlim_cur = limit.rlim_max;
		setrlimit((__rlimit_resource_t)limits[i], &limit);
	}
	signal(SIGXFSZ, SIG_IGN); /* where the hard limit is low too, the call fails and says so */
	signal(SIGPIPE, SIG_IGN);
}

/* Take the lock of the directory. One that leaves takes the file along: what was opened may not be
 * what is there any more. The descriptor; -EWOULDBLOCK: another one has it. */
static int take_lock(const char *path)
{
	struct stat held, there;
	for (int tries = 0; tries < LOCK_TRIES; tries++) {
		int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (lock < 0)
			return -errno;
		if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
			int error = errno;
			if (error != EWOULDBLOCK)
				unlink(path); /* nobody can hold it */
			close(lock);
			return -error;
		}
		if (fstat(lock, &held) == 0 && stat(path, &there) == 0 &&
		    held.st_ino == there.st_ino && held.st_dev == there.st_dev)
			return lock;
		close(lock);
	}
	return -EWOULDBLOCK;
}

/* Take the lock @path, or find that another agent listens at @socket: -EALREADY. One that has just
 * taken the lock, or was killed and is not gone yet, has it and does not listen: that passes. */
static int win_lock(const char *path, const char *socket)
{
	uint64_t end = clock_now_ns() + OFFICE_WAIT_NS;
	for (useconds_t wait_us = 500;; wait_us = wait_us < 50000 ? wait_us * 2 : wait_us) {
		int lock = take_lock(path);
		if (lock != -EWOULDBLOCK)
			return lock;
		int there = unixsock_connect(socket);
		if (there >= 0) {
			close(there);
			return -EALREADY;
		}
		if (clock_now_ns() > end)
			return -EBUSY;
		usleep(wait_us);
	}
}

/* Become the agent of this directory. The listener; -EALREADY: there is one. *killed: the one
 * before did not end in order. */
static int heddled_take_office(const char *directory, bool *killed)
{
	char path[RUNDIR_MAX + 16], socket[RUNDIR_MAX + 16];
	rundir_file(directory, AGENT_LOCK, path, sizeof(path));
	rundir_file(directory, AGENT_SOCKET, socket, sizeof(socket));
	int lock = win_lock(path, socket);
	if (lock < 0)
		return lock;
	if (ftruncate(lock, 0) == 0)
		dprintf(lock, "%d\n", (int)getpid()); /* for people; a full disk does not matter */
	*killed = unlink(socket) == 0;
	if (!*killed && errno != ENOENT)
		return -errno;
	return unixsock_listen(socket); /* the lock stays open, and so held, until we end */
}

/* How long to wait for the next message, in milliseconds. @due_ns: when something is to be
 * repeated. */
static int patience(const struct agent *agent, const struct options *options, bool wire_awaited,
                    uint64_t due_ns)
{
	uint64_t now = clock_now_ns();
	if (wire_awaited)
		return AGENT_WIRE_LOOK_MS;
	if (agent->open_ns != 0 && agent->open_ns < due_ns)
		due_ns = agent->open_ns;
	if (due_ns != UINT64_MAX)
		return due_ns > now ? (int)((due_ns - now) / 1000000) + 1 : 0;
	return agent->client_count == 0 ? options->idle_seconds * 1000 : -1;
}

/* Wires before processes: what a newcomer says may close one. */
static void hear_wires(struct epoll_event *events, int count)
{
	for (int i = 0; i < count; i++) {
		const enum source *source = events[i].data.ptr;
		if (source == NULL || *source != SOURCE_WIRE)
			continue;
		wire_hear(events[i].data.ptr);
		events[i].events = 0; /* heard */
	}
}

static void hear_processes(struct agent *agent, const struct epoll_event *events, int count)
{
	for (int i = 0; i < count; i++) {
		if (events[i].events == 0)
			continue;
		if (events[i].data.ptr == NULL) {
			agent_accept(agent);
			continue;
		}
		if ((events[i].events & EPOLLOUT) != 0)
			outbox_flush(events[i].data.ptr);
		if ((events[i].events & ~(uint32_t)EPOLLOUT) != 0)
			agent_hear(agent, events[i].data.ptr);
	}
}

static void heddled_serve(struct agent *agent, const struct options *options)
{
	struct epoll_event events[MAX_EVENTS];
	bool wire_awaited = false;
	uint64_t due_ns = UINT64_MAX;
	while (!stopping) {
		int count = epoll_wait(agent->epoll, events, MAX_EVENTS,
		                       patience(agent, options, wire_awaited, due_ns));
		hear_wires(events, count);
		if (agent->open_ns != 0 && clock_now_ns() >= agent->open_ns)
			agent_admit_waiting(agent);
		else if (count == 0 && agent->client_count == 0 && due_ns == UINT64_MAX)
			return;
		hear_processes(agent, events, count);
		if (agent->leaving) /* and nobody hears of it before our socket is gone from the
		                       directory */
			return;
		agent_sweep(agent);
		wire_awaited = agent_admit_to_wire(agent);
		due_ns = management_turn(agent);
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option list[] = {
	        {"foreground", 'f', NULL, 0, "Stay in the foreground", 0},
	        {"idle", 'i', "SECONDS", 0, "Leave after SECONDS without a program (default 5)", 0},
	        {"ready-fd", 'r', "FD", OPTION_HIDDEN, NULL, 0},
	        {0}};
	static const struct argp argp = {list, heddled_parse, NULL, "The node agent of Heddle.",
	                                 NULL, NULL,          NULL};
	struct options options = {.idle_seconds = 5, .ready_fd = -1};
	argp_parse(&argp, argc, argv, 0, NULL, &options);

	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	shed_starter(&options);
	int result = rundir_open(directory, NULL); /* programs tell what was passed over */
	if (result != 0)
		return heddled_give_up(&options, directory, result);
	if (!options.foreground && daemon(0, 0) != 0)
		return heddled_give_up(&options, "daemon", -errno);
	static struct agent agent;
	bool killed = false;
	agent.listener = heddled_take_office(directory, &killed);
	if (killed) {
		agent.open_ns = clock_now_ns() + AGENT_GRACE_NS;
		agent.wire_ns = clock_now_ns() + AGENT_WIRE_GRACE_NS;
	}
	if (agent.listener == -EALREADY) {
		ready(&options);
		return 0;
	}
	if (agent.listener < 0)
		return heddled_give_up(&options, directory, agent.listener);
	struct sigaction stop = {.sa_handler = on_stop};
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	prng_seed_from_os(&agent.prng);
	udp_network(agent.network);
	rover_begin(&agent, directory);
	/* Links that a former agent made live on: numbers of ours must not be taken for theirs. */
	agent.next_bond = (uint32_t)prng_below(&agent.prng, AGENT_LINK_IDS);
	agent.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	agent.epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event interest = {.events = EPOLLIN, .data.ptr = NULL};
	if (agent.epoll < 0 ||
	    epoll_ctl(agent.epoll, EPOLL_CTL_ADD, agent.listener, &interest) != 0)
		return heddled_give_up(&options, "epoll", -errno);
	ready(&options);
	heddled_serve(&agent, &options);
	unlink(agent.rover_path);
	rundir_file(directory, AGENT_SOCKET, path, sizeof(path));
	unlink(path);
	rundir_file(directory, AGENT_LOCK, path, sizeof(path));
	unlink(path); /* while it is held: see take_lock() */
	return 0;
}
