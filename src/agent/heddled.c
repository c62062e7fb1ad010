/* heddled: the node agent as a program, and its event loop. The first program that needs it starts
 * it; it exits when it has had no client for a while. It holds the lock in its directory as long as
 * it lives, so there is never a second one, and one that was killed leaves nothing behind that
 * stops the next. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
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
#include "agent/forward.h"
#include "base/clock.h"
#include "port/rundir.h"
#include "port/unixsock.h"

#define MAX_EVENTS 64
#define LOCK_TRIES 100

/* How long to wait for a process that holds the lock and does not listen: it is about to listen or
 * about to end. */
#define LOCK_WAIT_NS 5000000000u

struct options {
	bool foreground;
	int idle_seconds;
	int ready_fd;
	bool forward; /* be a forwarder (forward.h) */
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
	case 'w': /* the argument is for people who look at the list of processes */
		options->forward = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Tell the starter that the agent is ready (or another one is), by closing the descriptor that the
 * starter waits on. */
static void ready(const struct options *options)
{
	if (options->ready_fd >= 0)
		close(options->ready_fd);
}

/* Report why there will be no agent: to the starter, which shows it to the user, or on standard
 * error. */
static int heddled_give_up(const struct options *options, const char *where, int error)
{
	int out = options->ready_fd >= 0 ? options->ready_fd : STDERR_FILENO;
	dprintf(out, "%s%s: %s; %s%s", options->ready_fd >= 0 ? "" : "heddled: ", where,
	        strerror(-error), rundir_advice(error), options->ready_fd >= 0 ? "" : "\n");
	return 1;
}

/* Keep nothing of the program that happened to start the agent: neither its open files (a port that
 * it listens on would stay taken when it ends), nor the signals that one of its threads blocks, nor
 * its limits on files, nor the processor to which one of its threads is pinned, nor its
 * priority. */
static void shed_starter(const struct options *options)
{
	static const int limits[] = {RLIMIT_NOFILE, RLIMIT_FSIZE};
	static const struct sched_param ordinary;
	cpu_set_t all;
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
	memset(&all, 0xff, sizeof(all)); /* the kernel leaves out those that we may not use */
	sched_setaffinity(0, sizeof(all), &all);
	sched_setscheduler(0, SCHED_OTHER, &ordinary);
	signal(SIGXFSZ, SIG_IGN); /* where the hard limit is low too, the call fails and says so */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* forwarders: nobody waits for them */
}

/* Take the lock of the directory. An agent that exits removes the file, so the file that was opened
 * may not be the one that is there now. The descriptor; -EWOULDBLOCK: another agent has it. */
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

/* Take the lock @path, or find that another agent listens at @socket: -EALREADY. An agent that has
 * just taken the lock, or was killed and has not ended yet, holds it and does not listen: wait. */
static int win_lock(const char *path, const char *socket)
{
	uint64_t end = clock_now_ns() + LOCK_WAIT_NS;
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
static int heddled_claim_directory(const char *directory, bool *killed)
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

/* How long to wait for the next event, in milliseconds; -1: for ever. @due_ns: when a service has
 * something to do. */
static int heddled_timeout_ms(const struct agent *agent, const struct options *options,
                              uint64_t due_ns)
{
	uint64_t now = clock_now_ns();
	if (due_ns != SERVICES_NEVER)
		return due_ns > now ? (int)((due_ns - now) / 1000000) + 1 : 0;
	return agent->client_count == 0 ? options->idle_seconds * 1000 : -1;
}

/* The descriptors of services come before those of clients: the message of a client may close
 * them. */
static void hear_services(struct epoll_event *events, int count)
{
	for (int i = 0; i < count; i++) {
		struct agent_source *source = events[i].data.ptr;
		if (source == NULL || source->ready == NULL)
			continue;
		source->ready(source);
		events[i].events = 0; /* done */
	}
}

static void hear_clients(struct agent *agent, const struct epoll_event *events, int count)
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
	uint64_t due_ns = services_sweep(&agent->services, agent, clock_now_ns());
	while (!stopping) {
		int count = epoll_wait(agent->epoll, events, MAX_EVENTS,
		                       heddled_timeout_ms(agent, options, due_ns));
		if (count == 0 && agent->client_count == 0 && due_ns == SERVICES_NEVER)
			return;
		hear_services(events, count);
		hear_clients(agent, events, count);
		if (agent->leaving) /* clients notice only after our socket has been removed */
			return;
		agent_sweep(agent);
		due_ns = services_sweep(&agent->services, agent, clock_now_ns());
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option list[] = {
	        {"foreground", 'f', NULL, 0, "Stay in the foreground", 0},
	        {"idle", 'i', "SECONDS", 0, "Exit after SECONDS without a program (default: 5)", 0},
	        {"ready-fd", 'r', "FD", OPTION_HIDDEN, NULL, 0},
	        {"forward", 'w', "PROGRAM", OPTION_HIDDEN, NULL, 0},
	        {0}};
	static const struct argp argp = {list, heddled_parse, NULL, "The node agent of Heddle.",
	                                 NULL, NULL,          NULL};
	static struct agent agent;
	struct options options = {.idle_seconds = 5, .ready_fd = -1};
	services_begin(&agent.services, agent_services, agent_service_count);
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (options.forward)
		return forwarder_run();

	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	shed_starter(&options);
	int result = rundir_open(directory, NULL); /* programs report what was passed over */
	if (result != 0)
		return heddled_give_up(&options, directory, result);
	if (!options.foreground && daemon(0, 0) != 0)
		return heddled_give_up(&options, "daemon", -errno);
	bool killed = false;
	agent.listener = heddled_claim_directory(directory, &killed);
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
	vswitch_begin(&agent, directory);
	ci_begin_trust(&agent, directory);
	/* Links that a former agent made live on, and must not be confused with ours. */
	agent.next_link = (uint32_t)prng_below(&agent.prng, AGENT_LINK_IDS);
	agent.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	agent.epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event interest = {.events = EPOLLIN, .data.ptr = NULL};
	if (agent.epoll < 0 ||
	    epoll_ctl(agent.epoll, EPOLL_CTL_ADD, agent.listener, &interest) != 0)
		return heddled_give_up(&options, "epoll", -errno);
	ready(&options);
	heddled_serve(&agent, &options);
	unlink(agent.rover_path);
	vswitch_end(&agent);
	rundir_file(directory, AGENT_SOCKET, path, sizeof(path));
	unlink(path);
	rundir_file(directory, AGENT_LOCK, path, sizeof(path));
	unlink(path); /* while it is held: see take_lock() */
	return 0;
}
