/* fork() in a program that uses Heddle: the child must neither keep the parent alive in the eyes of
 * others, nor disturb it, and it may open the device for itself. Every process that opens an
 * adapter is a child of the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "end.h"

#define ROOM     65536
#define LIMIT_MS 1000

extern char **environ;

/* A program of the test: end A of a connection; the test hears what it says on @fd. */
struct program {
	pid_t pid;
	int fd;
};

static struct program start(void (*body)(int fd))
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		body(pair[1]);
		exit(0);
	}
	close(pair[1]);
	return (struct program){pid, pair[0]};
}

static void say(int fd, uint64_t what)
{
	MUST(write(fd, &what, sizeof(what)) == sizeof(what) ? 0 : -HDL_EIO);
}

/* What the program says next; UINT64_MAX: it has ended, or says nothing for twenty seconds. */
static uint64_t hear(int fd)
{
	uint64_t what;
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	return poll(&ready, 1, 20000) > 0 && read(fd, &what, sizeof(what)) == sizeof(what)
	               ? what
	               : UINT64_MAX;
}

/* Wait until @fd is readable, a millisecond at most; -1: so long. Returns by how many milliseconds
 * we woke too late: others had the processors then, and whoever has to hear of something on this
 * machine waits for them as well. */
static double wait_a_little(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	double begin = now_ms();
	poll(&ready, fd >= 0 ? 1 : 0, 1);
	double took = now_ms() - begin;
	return took > 2 ? took - 1 : 0;
}

static void pass_card(const struct program *from, const struct program *to)
{
	struct card card;
	assert_int_equal(read(from->fd, &card, sizeof(card)), sizeof(card));
	assert_int_equal(write(to->fd, &card, sizeof(card)), sizeof(card));
}

static void introduce(const struct program *a, const struct program *b)
{
	pass_card(a, b);
	pass_card(b, a);
}

static int ended(const struct program *program)
{
	int status;
	assert_int_equal(waitpid(program->pid, &status, 0), program->pid);
	close(program->fd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void join(struct end *end, int fd)
{
	end_open(end, ROOM, 8);
	MUST(end_meet(end, fd, fd) ? 0 : -HDL_EIO);
	end_connect(end);
}

/* --- a peer that waits for the other to fail --- */

static void survivor(int fd)
{
	struct end end;
	struct hdl_wc wc = {0};
	join(&end, fd);
	say(fd, 1);
	struct pollfd told = {.fd = fd, .events = POLLIN};
	while (wc.status == HDL_WC_SUCCESS && poll(&told, 1, 0) == 0)
		if (end_wait(&end, &wc, 20) && wc.status == HDL_WC_SUCCESS)
			end_post_receive(&end);
	if (wc.status == HDL_WC_SUCCESS)
		hear(fd); /* who leaves it unread takes what he said before along */
	say(fd, wc.status == HDL_WC_SUCCESS ? 3 : 2);
	end_close(&end);
}

/* The other end has left in order, which is no failure: the survivor of nothing can go. */
static void dismiss(const struct program *survivor)
{
	say(survivor->fd, 0);
	assert_int_equal(hear(survivor->fd), 1);
	assert_int_equal(hear(survivor->fd), 3);
	assert_int_equal(ended(survivor), 0);
}

/* Is @pid known to the agent? */
static bool is_known(pid_t pid)
{
	struct hdl_process *list;
	size_t count;
	bool found = false;
	if (hdl_observe(&list, &count) != 0)
		return false;
	for (size_t i = 0; i < count; i++)
		found = found || list[i].pid == pid;
	hdl_observe_free(list, count);
	return found;
}

/* Leave a child behind that does nothing but live; tell its number. */
static void parent_of(int fd, pid_t (*divide)(void))
{
	struct end end;
	join(&end, fd);
	end_must(&end, HDL_OP_SEND, 8);
	pid_t child = divide();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, 0);
		alarm(60); /* should the test die */
		for (;;)
			pause();
	}
	say(fd, (uint64_t)child);
	for (;;)
		pause();
}

static void forks(int fd)
{
	parent_of(fd, fork);
}

static void forks_without_handlers(int fd)
{
	parent_of(fd, _Fork);
}

static void parent_dies_child_lives(void (*body)(int fd))
{
	struct program other = start(survivor), parent = start(body);
	introduce(&other, &parent);
	assert_int_equal(hear(other.fd), 1);
	pid_t child = (pid_t)hear(parent.fd);
	assert_true(child > 0);
	assert_true(is_known(parent.pid));
	struct pollfd told = {.fd = other.fd, .events = POLLIN};
	double until = now_ms() + LIMIT_MS;
	kill(parent.pid, SIGKILL);
	assert_int_equal(ended(&parent), 1000 + SIGKILL);
	while (poll(&told, 1, 0) == 0 && now_ms() < until)
		until += wait_a_little(other.fd);
	assert_int_equal(poll(&told, 1, 0), 1);
	assert_int_equal(hear(other.fd), 2);
	while (is_known(parent.pid) && now_ms() < until)
		until += wait_a_little(-1);
	assert_true(now_ms() < until);
	assert_int_equal(kill(child, 0), 0);
	kill(child, SIGKILL);
	assert_int_equal(ended(&other), 0);
}

static void x1_death_is_seen_though_a_child_lives(void **state)
{
	(void)state;
	parent_dies_child_lives(forks);
}

static void x1_death_is_seen_though_a_child_without_handlers_lives(void **state)
{
	(void)state;
	parent_dies_child_lives(forks_without_handlers);
}

/* --- a child that runs another program --- */

/* How many descriptors of process @pid have to do with us: sockets, eventfds, memory files, pidfds.
 */
static int tied(pid_t pid)
{
	char path[64], target[256];
	int found = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	if (dir == NULL)
		return -1;
	for (struct dirent *at = readdir(dir); at != NULL; at = readdir(dir)) {
		ssize_t length = readlinkat(dirfd(dir), at->d_name, target, sizeof(target) - 1);
		target[length > 0 ? length : 0] = '\0';
		found += strstr(target, "socket:") != NULL || strstr(target, "memfd:") != NULL ||
		         strstr(target, "anon_inode:") != NULL;
	}
	closedir(dir);
	return found;
}

static bool runs_sleep(pid_t pid)
{
	char path[64], name[64] = "";
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	FILE *comm = fopen(path, "re");
	if (comm == NULL)
		return false;
	bool yes = fgets(name, sizeof(name), comm) != NULL && strncmp(name, "sleep", 5) == 0;
	fclose(comm);
	return yes;
}

static void executes(int fd)
{
	char sleep_name[] = "sleep", seconds[] = "60";
	char *argv[] = {sleep_name, seconds, NULL};
	struct end end;
	join(&end, fd);
	MUST(tied(getpid()) > 3 ? 0 : -HDL_EIO); /* the test would see them */
	for (int spawned = 0; spawned < 2; spawned++) {
		pid_t child = -1;
		if (spawned) {
			MUST(-posix_spawnp(&child, "sleep", NULL, NULL, argv, environ));
		} else {
			child = fork();
			if (child == 0) {
				execvp("sleep", argv);
				_exit(127);
			}
		}
		for (int i = 0; i < 10000 && !runs_sleep(child); i++)
			usleep(1000);
		say(fd, (uint64_t)tied(child));
		end_must(&end, HDL_OP_SEND, 8);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	end_close(&end);
}

static void x1_another_program_inherits_nothing(void **state)
{
	(void)state;
	struct program other = start(survivor), parent = start(executes);
	introduce(&other, &parent);
	assert_int_equal(hear(parent.fd), 0); /* fork and exec */
	assert_int_equal(hear(parent.fd), 0); /* posix_spawn */
	assert_int_equal(ended(&parent), 0);
	dismiss(&other);
}

/* --- what the child does with what it inherited --- */

static void refuse(int result)
{
	MUST(result == -HDL_EINVAL ? 0 : -HDL_EIO);
}

/* Every call with what is the parent's. Each is refused, and the parent does not notice. */
static void misuse(struct end *end)
{
	struct hdl_wc wc;
	struct hdl_mr *mr;
	struct hdl_pd *pd;
	struct hdl_limits limits;
	struct hdl_qp_attr attr = {.state = HDL_QPS_ERR};
	struct hdl_counter counter;
	for (int i = 0; i < 100; i++) {
		refuse(end_try(end, HDL_OP_SEND, 8));
		refuse(end_try(end, HDL_OP_WRITE, 8));
		refuse(hdl_cq_poll(end->cq, &wc, 1));
		refuse(hdl_cq_arm(end->cq, false));
		refuse(hdl_qp_modify(end->qp, &attr, HDL_QP_STATE));
		refuse(hdl_progress(end->adapter));
	}
	hdl_mr_key(end->mr);
	hdl_counters(end->adapter, &counter, 1);
	refuse(hdl_mr_register(end->pd, end->room, ROOM, 0x1f, &mr));
	refuse(hdl_pd_create(end->adapter, &pd));
	refuse(hdl_adapter_query(end->adapter, &limits));
	refuse(hdl_qp_destroy(end->qp));
	refuse(hdl_mr_deregister(end->mr));
	refuse(hdl_cq_destroy(end->cq));
	refuse(hdl_channel_destroy(end->channel));
	refuse(hdl_pd_destroy(end->pd));
	refuse(hdl_close(end->adapter));
	memset(end->room, 0xee, ROOM); /* its own copy */
}

static void has_children(int fd)
{
	struct end end;
	join(&end, fd);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		if (child == 0) {
			misuse(&end);
			exit(0);
		}
		int status = -1;
		for (uint32_t turn = 0; turn < 50 || waitpid(child, &status, WNOHANG) == 0;
		     turn++) {
			memset(end.room, (int)turn, 4096);
			end_must(&end, HDL_OP_WRITE, 4096);
			memset(end.room, 0, 4096);
			end_must(&end, HDL_OP_READ, 4096);
			MUST(end.room[4095] == (unsigned char)turn ? 0 : -HDL_EIO);
			end_must(&end, HDL_OP_FETCH_ADD, 8);
			end_must(&end, HDL_OP_SEND, 8);
		}
		if (status == -1)
			waitpid(child, &status, 0);
		say(fd, (uint64_t)status);
	}
	end_close(&end);
}

static void x1_a_child_cannot_disturb_its_parent(void **state)
{
	(void)state;
	struct program other = start(survivor), parent = start(has_children);
	introduce(&other, &parent);
	for (int i = 0; i < 20; i++)
		assert_int_equal(hear(parent.fd), 0);
	assert_int_equal(ended(&parent), 0);
	dismiss(&other);
}

/* --- a child that opens the device for itself --- */

static void both_work(int fd)
{
	struct end own, inherited;
	int pair[2];
	join(&inherited, fd);
	end_must(&inherited, HDL_OP_SEND, 8);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 ? 0 : -HDL_EIO);
	pid_t child = fork();
	bool is_child = child == 0;
	/* Parent and child become peers of each other; the parent goes on with its old one too. */
	end_open(&own, ROOM, 8);
	MUST(own.mine.qpn != inherited.mine.qpn ? 0 : -HDL_EIO);
	MUST(end_meet(&own, pair[is_child], pair[is_child]) ? 0 : -HDL_EIO);
	end_connect(&own);
	for (int i = 0; i < 20; i++) {
		end_must(&own, HDL_OP_SEND, 8);
		end_must(&own, HDL_OP_WRITE, ROOM);
		end_must(&own, HDL_OP_FETCH_ADD, 8);
		if (!is_child)
			end_must(&inherited, HDL_OP_WRITE, ROOM);
	}
	say(pair[is_child], 0); /* the other may still be at it */
	hear(pair[is_child]);
	end_close(&own);
	if (is_child)
		exit(0);
	int status;
	waitpid(child, &status, 0);
	say(fd, (uint64_t)status);
	end_close(&inherited);
}

static void x1_a_child_opens_the_device_for_itself(void **state)
{
	(void)state;
	struct program other = start(survivor), parent = start(both_work);
	introduce(&other, &parent);
	assert_int_equal(hear(parent.fd), 0);
	assert_int_equal(ended(&parent), 0);
	dismiss(&other);
}

/* --- fork while other threads are at work --- */

static atomic_bool stop;

static void *opens_and_closes(void *argument)
{
	(void)argument;
	while (!atomic_load(&stop)) {
		struct end end;
		end_open(&end, 4096, 1);
		end_close(&end);
	}
	return NULL;
}

static void *works(void *argument)
{
	while (!atomic_load(&stop))
		end_must(argument, HDL_OP_SEND, 64);
	return NULL;
}

static void forks_amid_threads(int fd)
{
	struct end end;
	pthread_t threads[2];
	join(&end, fd);
	MUST(-pthread_create(&threads[0], NULL, works, &end));
	MUST(-pthread_create(&threads[1], NULL, opens_and_closes, NULL));
	uint64_t bad = 0;
	for (int i = 0; i < 40; i++) {
		pid_t child = fork();
		if (child == 0) {
			struct end own;
			alarm(20);
			end_open(&own, 4096, 1);
			end_close(&own);
			_exit(0); /* a leak checker at exit() would look for the parent's threads */
		}
		int status = 1;
		waitpid(child, &status, 0);
		bad += status != 0;
	}
	atomic_store(&stop, true);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	say(fd, bad);
	end_close(&end);
}

static void x1_fork_at_any_moment(void **state)
{
	(void)state;
	struct program other = start(survivor), parent = start(forks_amid_threads);
	introduce(&other, &parent);
	assert_int_equal(hear(parent.fd), 0);
	assert_int_equal(ended(&parent), 0);
	dismiss(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(x1_death_is_seen_though_a_child_lives),
	        cmocka_unit_test(x1_death_is_seen_though_a_child_without_handlers_lives),
	        cmocka_unit_test(x1_another_program_inherits_nothing),
	        cmocka_unit_test(x1_a_child_cannot_disturb_its_parent),
	        cmocka_unit_test(x1_a_child_opens_the_device_for_itself),
	        cmocka_unit_test(x1_fork_at_any_moment),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
