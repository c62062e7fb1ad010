/* Who runs when nobody calls: an idle program and an idle agent use no processor, and a program
 * that computes without ever calling us still answers its peers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "end.h"

#define ROOM 65536
#define SETTLE_MS \
	100 /* after the last call: the thread watches for a millisecond or two, then sleeps */
#define WATCH_MS    1000
#define RUN_LIMIT   5000000ull /* nanoseconds of processor time in WATCH_MS: half a percent */
#define SWITCHES    10
#define FLAG_OFFSET 4096

/* Who does not answer by itself never does; a busy machine takes its time. */
#define ANSWER_MS 10000

/* --- looking at a process --- */

struct usage {
	unsigned long long run_ns, switches;
};

static bool read_text(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, bytes - 1);
	if (fd >= 0)
		close(fd);
	text[got > 0 ? got : 0] = '\0';
	return got > 0;
}

/* Time on a processor, and how often a thread went to sleep, of all threads of @pid. False: this
 * kernel does not tell. */
static bool look(pid_t pid, struct usage *usage)
{
	char path[320], text[4096];
	*usage = (struct usage){0, 0};
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *tasks = opendir(path);
	if (tasks == NULL)
		return false;
	bool told = true;
	for (struct dirent *at = readdir(tasks); at != NULL; at = readdir(tasks)) {
		unsigned long long run_ns = 0, switches = 0;
		if (at->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, at->d_name);
		told = told && read_text(path, text, sizeof(text)) &&
		       sscanf(text, "%llu", &run_ns) == 1;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, at->d_name);
		const char *line = read_text(path, text, sizeof(text))
		                           ? strstr(text, "\nvoluntary_ctxt_switches:")
		                           : NULL;
		told = told && line != NULL && sscanf(line + 25, "%llu", &switches) == 1;
		usage->run_ns += run_ns;
		usage->switches += switches;
	}
	closedir(tasks);
	return told;
}

/* --- two programs that have talked, and now wait --- */

struct program {
	pid_t pid;
	int fd;
};

static void say(int fd)
{
	MUST(write(fd, "", 1) == 1 ? 0 : -HDL_EIO);
}

static void hear(int fd)
{
	char byte;
	MUST(read(fd, &byte, 1) == 1 ? 0 : -HDL_EIO);
}

static struct program start(void (*body)(struct end *end, int fd))
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct end end;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		end_open(&end, ROOM, 8);
		MUST(end_meet(&end, pair[1], pair[1]) ? 0 : -HDL_EIO);
		end_connect(&end);
		body(&end, pair[1]);
		end_close(&end);
		_exit(0);
	}
	close(pair[1]);
	return (struct program){pid, pair[0]};
}

static void introduce(const struct program *a, const struct program *b)
{
	struct card card;
	assert_int_equal(read(a->fd, &card, sizeof(card)), sizeof(card));
	assert_int_equal(write(b->fd, &card, sizeof(card)), sizeof(card));
	assert_int_equal(read(b->fd, &card, sizeof(card)), sizeof(card));
	assert_int_equal(write(a->fd, &card, sizeof(card)), sizeof(card));
}

static void finish(const struct program *program)
{
	int status;
	assert_int_equal(waitpid(program->pid, &status, 0), program->pid);
	assert_int_equal(status, 0);
	close(program->fd);
}

/* Talk, then sleep in the operating system until told to go. */
static void sleeps(struct end *end, int fd)
{
	end_must(end, HDL_OP_SEND, 64);
	end_must(end, HDL_OP_WRITE, ROOM);
	end_must(end, HDL_OP_FETCH_ADD, 8);
	say(fd);
	hear(fd);
}

/* Talk, then wait for a completion that does not come. */
static void waits_for_completions(struct end *end, int fd)
{
	struct hdl_wc wc;
	end_must(end, HDL_OP_SEND, 64);
	while (hdl_cq_poll(end->cq, &wc, 1) > 0)
		;
	MUST(hdl_cq_arm(end->cq, false));
	say(fd);
	struct pollfd either[2] = {{.fd = fd, .events = POLLIN},
	                           {.fd = hdl_channel_fd(end->channel), .events = POLLIN}};
	while ((either[0].revents & POLLIN) == 0) {
		poll(either, 2, -1);
		struct hdl_cq *cq;
		void *context;
		if ((either[1].revents & POLLIN) != 0 &&
		    hdl_channel_get(end->channel, &cq, &context, 0) == 0) {
			hdl_cq_ack(cq, 1); /* what the other said last */
			MUST(hdl_cq_arm(end->cq, false));
			while (hdl_cq_poll(end->cq, &wc, 1) > 0)
				;
		}
	}
	hear(fd);
}

static void check_idle(void (*body)(struct end *end, int fd))
{
	struct program programs[2] = {start(body), start(body)};
	introduce(&programs[0], &programs[1]);
	hear(programs[0].fd);
	hear(programs[1].fd);
	pid_t pids[3] = {programs[0].pid, programs[1].pid, agent_pid()};
	struct usage before[3], after[3];
	bool told = true;
	usleep(SETTLE_MS * 1000);
	for (int i = 0; i < 3; i++)
		told = look(pids[i], &before[i]) && told;
	usleep(WATCH_MS * 1000);
	for (int i = 0; i < 3; i++)
		told = look(pids[i], &after[i]) && told;
	say(programs[0].fd);
	say(programs[1].fd);
	finish(&programs[0]);
	finish(&programs[1]);
	if (!told) {
		print_message("this kernel does not say how long a thread has run\n");
		skip();
	}
	for (int i = 0; i < 3; i++) {
		unsigned long long ran = after[i].run_ns - before[i].run_ns;
		unsigned long long slept = after[i].switches - before[i].switches;
		print_message("%s: %llu us, %llu switches in %d ms\n", i == 2 ? "agent" : "program",
		              ran / 1000, slept, WATCH_MS);
		assert_true(ran < RUN_LIMIT);
		assert_true(slept < SWITCHES);
	}
}

static void ap7_an_idle_program_uses_no_processor(void **state)
{
	(void)state;
	check_idle(sleeps);
}

static void ap7_nor_does_one_that_waits_for_completions(void **state)
{
	(void)state;
	check_idle(waits_for_completions);
}

/* --- a program that computes --- */

static volatile unsigned long long sum;

/* Compute until a peer's write says that it is enough. Not one call of ours, or of the operating
 * system, in between. */
static void computes(struct end *end, int fd)
{
	volatile unsigned char *flag = end->room + FLAG_OFFSET;
	say(fd);
	for (unsigned long long i = 0; *flag == 0; i++)
		sum += i * i;
	/* What came meanwhile is there at once, in order. */
	struct hdl_wc wc[8];
	MUST(hdl_cq_poll(end->cq, wc, 8) == 3 ? 0 : -HDL_EIO);
	MUST(wc[0].opcode == HDL_WC_RECV && wc[0].byte_len == 64 ? 0 : -HDL_EIO);
	MUST(wc[1].opcode == HDL_WC_RECV && wc[1].byte_len == 50000 ? 0 : -HDL_EIO);
	MUST(wc[2].opcode == HDL_WC_RECV_WRITE_IMM && wc[2].byte_len == 128 ? 0 : -HDL_EIO);
	say(fd);
	hear(fd);
}

static void asks(struct end *end, int fd)
{
	static const struct {
		uint32_t opcode, length;
	} work[] = {{HDL_OP_SEND, 64},     {HDL_OP_SEND, 50000},    {HDL_OP_WRITE_IMM, 128},
	            {HDL_OP_WRITE, 8},     {HDL_OP_READ, 4096},     {HDL_OP_FETCH_ADD, 8},
	            {HDL_OP_FETCH_ADD, 8}, {HDL_OP_COMPARE_SWAP, 8}};
	hear(fd);
	for (size_t i = 0; i < sizeof(work) / sizeof(work[0]); i++) {
		double begin = now_ms();
		end_must(end, work[i].opcode, work[i].length);
		MUST(now_ms() - begin < ANSWER_MS ? 0 : -HDL_ETIMEDOUT);
		memset(end->room, 0, ROOM);
	}
	memset(end->room, 1, ROOM);
	end_must(end, HDL_OP_WRITE, FLAG_OFFSET + 8);
	say(fd);
	hear(fd);
}

static void ap7_a_program_that_computes_still_answers(void **state)
{
	(void)state;
	struct program busy = start(computes), peer = start(asks);
	introduce(&busy, &peer);
	hear(busy.fd);
	say(peer.fd);
	hear(peer.fd);
	hear(busy.fd);
	say(busy.fd);
	say(peer.fd);
	finish(&busy);
	finish(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ap7_an_idle_program_uses_no_processor),
	        cmocka_unit_test(ap7_nor_does_one_that_waits_for_completions),
	        cmocka_unit_test(ap7_a_program_that_computes_still_answers),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
