/* See net.h. */
#include "net.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 30000

static char directory[32]; /* with one for each of the two in it */
static bool is_first;

static void skip(const char *why)
{
	printf("skipped: %s\n", why);
	_exit(NET_SKIP);
}

double net_now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* End the agents, which take their files along. */
static void clean_up(void)
{
	for (int i = 0; i < 2; i++) {
		char path[64];
		int pid = 0;
		snprintf(path, sizeof(path), "%s/%d/agent.lock", directory, i);
		FILE *lock = fopen(path, "re");
		if (lock != NULL && fscanf(lock, "%d", &pid) == 1 && pid > 1)
			kill(pid, SIGTERM);
		if (lock != NULL)
			fclose(lock);
		*strrchr(path, '/') = '\0';
		for (double until = net_now_s() + 5; rmdir(path) != 0 && net_now_s() < until;)
			poll(NULL, 0, 5);
	}
	rmdir(directory);
}

void net_check(bool holds, const char *what, int line)
{
	if (holds)
		return;
	fprintf(stderr, "FAILED: the %s, line %d: %s\n", is_first ? "first" : "second", line, what);
	_exit(1);
}

static bool put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return done;
}

/* A network of our own: as root, or as root of a world of our own. */
static bool unshare_net(void)
{
	char map[32];
	uid_t uid = geteuid();
	gid_t gid = getegid();
	if (unshare(CLONE_NEWNET) == 0)
		return true;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
		return false;
	snprintf(map, sizeof(map), "0 %u 1", uid);
	bool done = put("/proc/self/setgroups", "deny") && put("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "0 %u 1", gid);
	return done && put("/proc/self/gid_map", map);
}

/* Run ip or tc. */
__attribute__((format(printf, 1, 2))) static bool iproute(const char *format, ...)
{
	char words[160], command[200];
	va_list list;
	va_start(list, format);
	vsnprintf(words, sizeof(words), format, list);
	va_end(list);
	snprintf(command, sizeof(command), "PATH=$PATH:/usr/sbin:/sbin %s", words);
	return system(command) == 0;
}

bool net_shape(unsigned line, const char *bucket)
{
	return iproute("tc qdisc add dev line%u root handle 1: tbf %s", line, bucket) &&
	       iproute("tc qdisc add dev line%u parent 1:1 handle 2: pfifo_fast", line);
}

bool net_narrow(unsigned line, const char *bucket)
{
	return iproute("tc qdisc add dev line%u root tbf %s", line, bucket);
}

void net_cut(unsigned line)
{
	CHECK(iproute("ip link set line%u down", line));
}

void net_mend(unsigned line)
{
	CHECK(iproute("ip link set line%u up", line));
}

/* The figure number @place of the line's interface. /sys shows the interfaces of the world that we
 * come from. */
static uint64_t figure(unsigned line, unsigned place)
{
	char text[512], name[16];
	uint64_t value = 0;
	FILE *file = fopen("/proc/self/net/dev", "re");
	CHECK(file != NULL);
	snprintf(name, sizeof(name), "line%u:", line);
	while (fgets(text, sizeof(text), file) != NULL) {
		char *at = strstr(text, name);
		if (at == NULL)
			continue;
		at += strlen(name);
		for (unsigned i = 0; i <= place; i++)
			value = strtoull(at, &at, 10);
	}
	fclose(file);
	return value;
}

uint64_t net_received(unsigned line)
{
	return figure(line, 0);
}

uint64_t net_sent(unsigned line)
{
	return figure(line, 8);
}

void net_gid(unsigned line, bool first, uint8_t gid[16])
{
	const uint8_t whole[16] = {[10] = 0xff, [11] = 0xff,   [12] = 10,
	                           72,          (uint8_t)line, first ? 1 : 2};
	memcpy(gid, whole, sizeof(whole));
}

bool net_exchange(int talk, const void *mine, void *theirs, uint32_t bytes)
{
	struct pollfd readable = {.fd = talk, .events = POLLIN};
	if (send(talk, mine, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
		return false;
	return poll(&readable, 1, WAIT_MS) > 0 &&
	       recv(talk, theirs, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static void be_on_lines(bool first)
{
	char addresses[64], own[48];
	unsigned host = first ? 1 : 2;
	bool done = iproute("ip link set lo up");
	for (unsigned line = 0; line < NET_LINES; line++)
		done = done &&
		       iproute("ip address add 10.72.%u.%u/24 dev line%u", line, host, line) &&
		       iproute("ip link set line%u mtu 9000 up", line);
	CHECK(done);
	snprintf(addresses, sizeof(addresses), "10.72.0.%u,10.72.1.%u", host, host);
	setenv("HEDDLE_ADDR", addresses, 1);
	snprintf(own, sizeof(own), "%s/%d", directory, !first);
	CHECK(mkdir(own, 0700) == 0);
	setenv("HEDDLE_DIR", own, 1);
}

/* Wait for both. Who fails takes the other one along. */
static int watch(const pid_t ends[2])
{
	int result = 0;
	for (int left = 2; left > 0; left--) {
		int status;
		pid_t pid = wait(&status);
		if (status == 0 || result != 0)
			continue;
		result = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		kill(pid == ends[0] ? ends[1] : ends[0], SIGKILL);
	}
	return result;
}

static bool lay_lines(pid_t second)
{
	for (unsigned line = 0; line < NET_LINES; line++)
		if (!iproute("ip link add line%u type veth peer name line%u netns %d", line, line,
		             (int)second))
			return false;
	return true;
}

/* In one of the two: it has its namespace by now, and *go says whether there are lines. */
static void live(bool first, int talk, int go)
{
	char byte;
	is_first = first;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!first)
		CHECK(unshare(CLONE_NEWNET) == 0 && write(go, "", 1) == 1);
	CHECK(read(go, &byte, 1) == 1);
	be_on_lines(first);
	CHECK(net_exchange(talk, &byte, &byte, 1));
}

bool net_begin(int *talk)
{
	int pair[2], go[2][2];
	pid_t ends[2];
	char byte;
	if (!unshare_net())
		skip("no network namespaces can be made");
	snprintf(directory, sizeof(directory), "/tmp/heddle-ports-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	for (int i = 0; i < 2; i++) {
		CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, go[i]) == 0);
		ends[i] = fork();
		CHECK(ends[i] >= 0);
		if (ends[i] != 0)
			continue;
		*talk = pair[i];
		close(pair[!i]);
		live(i == 0, pair[i], go[i][1]);
		return i == 0;
	}
	close(pair[0]);
	close(pair[1]);
	bool made = read(go[1][0], &byte, 1) == 1 && lay_lines(ends[1]);
	for (int i = 0; made && i < 2; i++)
		CHECK(write(go[i][0], "", 1) == 1);
	for (int i = 0; !made && i < 2; i++)
		kill(ends[i], SIGKILL);
	int result = watch(ends);
	clean_up();
	if (!made)
		skip("no virtual interfaces can be made (iproute2, veth)");
	exit(result);
}
