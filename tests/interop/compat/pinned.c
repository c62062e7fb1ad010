/* A program that pins a thread to one processor and opens the device there, as poll-mode frameworks
 * do: our threads may run on all processors that the process was started with, and the node agent
 * on all that its user may use. Runs itself once more, started on one processor alone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

static cpu_set_t started, usable, one;
static pid_t opener;
static struct ibv_context *device;

/* All processors that the administrator leaves us. */
static void find_usable(void)
{
	cpu_set_t all;
	memset(&all, 0xff, sizeof(all));
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(usable), &usable), 0);
	assert_int_equal(sched_setaffinity(0, sizeof(started), &started), 0);
}

static void *open_device(void *context)
{
	int count;
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	opener = (pid_t)syscall(SYS_gettid);
	struct ibv_device **list = ibv_get_device_list(&count);
	assert_non_null(list);
	device = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	return context;
}

/* Every thread but the program's own two. */
static unsigned look_at_threads(void)
{
	unsigned count = 0;
	DIR *tasks = opendir("/proc/self/task");
	assert_non_null(tasks);
	for (const struct dirent *at; (at = readdir(tasks)) != NULL;) {
		cpu_set_t set;
		pid_t tid = atoi(at->d_name);
		if (tid == 0 || tid == getpid() || tid == opener)
			continue;
		assert_int_equal(sched_getaffinity(tid, sizeof(set), &set), 0);
		assert_true(CPU_EQUAL(&set, &started));
		count++;
	}
	closedir(tasks);
	return count;
}

static pid_t agent_of(const char *directory)
{
	char path[256];
	int pid = 0;
	snprintf(path, sizeof(path), "%s/agent.lock", directory);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%d", &pid), 1);
	fclose(file);
	return pid;
}

static void threads_and_agent_are_not_pinned(void **state)
{
	(void)state;
	cpu_set_t set;
	pthread_t thread;
	struct rdma_cm_id *id;
	/* The agent leaves when it is idle. */
	const char *name = CPU_COUNT(&started) == 1 ? "pinned.confined" : "pinned.free";
	assert_true(mkdir(name, 0700) == 0 || errno == EEXIST);
	char *path = realpath(name, NULL);
	setenv("HEDDLE_DIR", path, 1);
	assert_int_equal(pthread_create(&thread, NULL, open_device, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_non_null(device);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	assert_non_null(channel);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_true(look_at_threads() >= 2); /* the adapter's, and that of events */
	assert_int_equal(sched_getaffinity(agent_of(path), sizeof(set), &set), 0);
	assert_true(CPU_EQUAL(&set, &usable));
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
	assert_int_equal(ibv_close_device(device), 0);
	free(path);
}

static const char *self;

/* The user has confined the whole process (taskset): then our threads stay there, too. */
static void a_confined_process_stays_confined(void **state)
{
	(void)state;
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		sched_setaffinity(0, sizeof(one), &one);
		execl(self, self, "confined", (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_confined_process_stays_confined),
	        cmocka_unit_test(threads_and_agent_are_not_pinned),
	};
	self = argv[0];
	if (sched_getaffinity(0, sizeof(started), &started) != 0)
		return 1;
	find_usable();
	for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
		if (CPU_ISSET(i, &started))
			CPU_SET(i, &one);
	if (argc > 1)
		return _cmocka_run_group_tests("confined", &tests[1], 1, NULL, NULL);
	if (CPU_COUNT(&started) < 2) {
		printf("there is one processor: nothing to be seen\n");
		return 77;
	}
	return cmocka_run_group_tests_name("pinned", tests, NULL, NULL);
}
