/* A hostile process of the same user on the control plane: it hands odd files to the agent, changes
 * the flags of descriptors that it shares, has itself introduced to everybody, parts while it
 * sends, and lies about its threads. Nobody else crashes, and nobody waits longer than LIMIT_MS:
 * neither for the agent nor in a call that posts. (What it may do to shared memory: hostile.c.) */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "end.h"
#include "port/lanes.h"
#include "port/rundir.h"
#include "port/unixsock.h"
#include "transport/local/frame.h"

#define ROOM     (1u << 16)
#define LIMIT_MS 2000 /* on a machine that does much else; most of it takes a millisecond */
#define LIMIT_S  60   /* of the whole test: then something hangs */
#define POSTS    200
#define FLOOD_MS 1500

static const char *now_doing = "beginning";

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", now_doing, what);
	exit(4);
}

static void on_alarm(int number)
{
	(void)number;
	static const char text[] = "something hangs\n";
	ssize_t done = write(STDERR_FILENO, now_doing, strlen(now_doing));
	done = write(STDERR_FILENO, ": ", 2);
	done = write(STDERR_FILENO, text, sizeof(text) - 1);
	(void)done;
	_exit(5);
}

static void say(int fd, const void *data, size_t bytes)
{
	MUST(write(fd, data, bytes) == (ssize_t)bytes ? 0 : -HDL_EIO);
}

static void hear(int fd, void *data, size_t bytes)
{
	MUST(read(fd, data, bytes) == (ssize_t)bytes ? 0 : -HDL_EIO);
}

/* --- the hostile one: it speaks to the agent by itself --- */

struct stranger {
	int sock;
	struct tables tables;
	struct agent_msg welcome;
	void *lanes;
	struct lanes_end end;
	uint32_t link_id;
};

static int connect_agent(void)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	MUST(rundir_open(directory, NULL) == 0 ? 0 : -HDL_EIO);
	rundir_file(directory, AGENT_SOCKET, path, sizeof(path));
	int sock = unixsock_connect(path);
	MUST(sock < 0 ? -HDL_EIO : 0);
	return sock;
}

/* The next message of @kind, and its descriptors. */
static struct agent_msg await_message(int sock, uint32_t kind, int fds[UNIXSOCK_MAX_FDS],
                                      int *fd_count)
{
	struct agent_msg msg;
	for (;;) {
		ssize_t got = unixsock_receive(sock, &msg, sizeof(msg), fds, fd_count);
		if (got <= 0 || msg.kind == kind || msg.kind == AGENT_REFUSED) {
			msg.kind = got <= 0 ? AGENT_REFUSED : msg.kind;
			return msg;
		}
		while (*fd_count > 0)
			close(fds[--*fd_count]);
	}
}

/* Greet with @tables and @bell. Is it let in? */
static bool greet(struct stranger *stranger, const struct agent_sizes *sizes, int tables, int bell)
{
	struct agent_msg msg = {.version = AGENT_VERSION,
	                        .kind = AGENT_HELLO,
	                        .u.hello = {.sizes = *sizes, .slot = -1, .lmc = -1}};
	int fds[UNIXSOCK_MAX_FDS] = {tables, bell}, fd_count;
	strcpy(msg.u.hello.program, "stranger");
	stranger->sock = connect_agent();
	MUST(unixsock_send(stranger->sock, &msg, sizeof(msg), fds, 2) == 0 ? 0 : -HDL_EIO);
	stranger->welcome = await_message(stranger->sock, AGENT_WELCOME, fds, &fd_count);
	return stranger->welcome.kind == AGENT_WELCOME;
}

static void be_decent_stranger(struct stranger *stranger, int bell)
{
	MUST(tables_make(&stranger->tables, 64, 4, 4096));
	if (!greet(stranger, &stranger->tables.sizes, tables_reader_fd(&stranger->tables), bell))
		fail("the agent does not let it in");
}

static void ask_introduction(const struct stranger *stranger, const struct card *to, uint32_t slot,
                             uint32_t token)
{
	struct agent_msg msg = {.version = AGENT_VERSION,
	                        .kind = AGENT_INTRODUCE,
	                        .u.introduce = {.slot = slot, .token = token}};
	memcpy(msg.u.introduce.gid, &to->gid, 16);
	MUST(unixsock_send(stranger->sock, &msg, sizeof(msg), NULL, 0) == 0 ? 0 : -HDL_EIO);
}

/* Be introduced to who has @to, and map the lanes. */
static void meet(struct stranger *stranger, const struct card *to)
{
	int fds[UNIXSOCK_MAX_FDS], fd_count;
	ask_introduction(stranger, to, to->qpn >> (24 - AGENT_SLOT_BITS), 1);
	struct agent_msg msg = await_message(stranger->sock, AGENT_PEER, fds, &fd_count);
	MUST(msg.kind == AGENT_PEER && fd_count >= 3 ? 0 : -HDL_EIO);
	stranger->link_id = msg.u.peer.link_id;
	stranger->lanes = mmap(NULL, lanes_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
	MUST(stranger->lanes == MAP_FAILED ? -HDL_EIO : 0);
	lanes_attach(&stranger->end, stranger->lanes, (int)msg.u.peer.side);
}

static struct card card_of(const struct stranger *stranger)
{
	struct card card = {.qpn = stranger->welcome.u.welcome.slot << (24 - AGENT_SLOT_BITS) | 5};
	memcpy(&card.gid, stranger->welcome.u.welcome.gids[0], 16);
	return card;
}

/* Memory files that are not what the agent and peers take them for. What is let in has itself
 * introduced. */
static void odd_files(int fd, const struct card *victim)
{
	struct stranger stranger;
	struct agent_sizes sizes;
	struct stat st;
	int ends[2];
	MUST(pipe2(ends, O_NONBLOCK) == 0 ? 0 : -HDL_EIO);
	MUST(tables_make(&stranger.tables, 64, 4, 4096));
	sizes = stranger.tables.sizes;
	int open_file = memfd_create("odd", MFD_ALLOW_SEALING), zero = open("/dev/zero", O_RDONLY);
	int huge = memfd_create("odd", MFD_ALLOW_SEALING | MFD_HUGETLB);
	MUST(ftruncate(open_file, (off_t)sizes.block_bytes) == 0 ? 0 : -HDL_EIO);
	if (greet(&stranger, &sizes, open_file, ends[1]))
		fail("tables that can become shorter are let in");
	if (greet(&stranger, &sizes, zero, ends[1]))
		fail("tables that are no memory file are let in");
	/* As long as some huge pages, none of which is there. */
	if (huge >= 0 && fstat(huge, &st) == 0) {
		uint64_t whole = (uint64_t)st.st_blksize,
		         rest = sizes.block_bytes - 8 * sizes.arena_words;
		uint64_t bytes = (rest + whole - 1) / whole * whole + whole;
		sizes.arena_words = (bytes - rest) / 8;
		sizes.block_bytes = bytes;
		if (ftruncate(huge, (off_t)bytes) == 0 &&
		    fcntl(huge, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_GROW | F_SEAL_SHRINK) == 0 &&
		    greet(&stranger, &sizes, huge, ends[1])) {
			meet(&stranger, victim); /* SIGBUS over there, if it is believed */
			usleep(200000);
			fail("tables of huge pages are let in");
		}
	}
	/* Bells that are none: the victim refuses to be introduced, and goes on. */
	int bells[] = {eventfd(0, EFD_NONBLOCK), zero, ends[0], open_file};
	for (size_t i = 0; i < sizeof(bells) / sizeof(bells[0]); i++) {
		be_decent_stranger(&stranger, bells[i]);
		ask_introduction(&stranger, victim, victim->qpn >> (24 - AGENT_SLOT_BITS), 1);
		int fds[UNIXSOCK_MAX_FDS], fd_count;
		if (await_message(stranger.sock, AGENT_GONE, fds, &fd_count).kind != AGENT_GONE)
			fail("the link to a bell that is none was not refused");
	}
	say(fd, "", 1);
	pause();
}

/* Send the first @bytes of a message of @kind. Is it refused as nonsense? */
static bool is_nonsense(int sock, uint32_t kind, size_t bytes)
{
	struct agent_msg msg = {.version = AGENT_VERSION, .kind = kind}, answer;
	int fds[UNIXSOCK_MAX_FDS], fd_count;
	memset(&answer, 0, sizeof(answer));
	MUST(unixsock_send(sock, &msg, bytes, NULL, 0) == 0 ? 0 : -HDL_EIO);
	ssize_t got = unixsock_receive(sock, &answer, sizeof(answer), fds, &fd_count);
	close(sock);
	return got == (ssize_t)sizeof(answer) && answer.kind == AGENT_REFUSED &&
	       answer.u.refused.error == EPROTO;
}

/* Messages that no service of the agent hears. */
static void odd_messages(int fd, const struct card *victim)
{
	(void)victim;
	static const struct {
		uint32_t kind;
		size_t bytes;
	} odd[] = {{0, sizeof(struct agent_msg)},
	           {AGENT_WELCOME, sizeof(struct agent_msg)},
	           {AGENT_KIND_COUNT, sizeof(struct agent_msg)},
	           {UINT32_MAX, sizeof(struct agent_msg)},
	           {AGENT_INTRODUCE, AGENT_MSG_BYTES(introduce) - 1},
	           {AGENT_CM_SEND, AGENT_MSG_BYTES(cm) - 1},
	           {AGENT_GROUP_JOIN, AGENT_MSG_HEADER_BYTES}};
	struct stranger stranger;
	int ends[2];
	MUST(pipe2(ends, O_NONBLOCK) == 0 ? 0 : -HDL_EIO);
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		be_decent_stranger(&stranger, ends[1]);
		if (!is_nonsense(stranger.sock, odd[i].kind, odd[i].bytes))
			fail("a message that no service hears is not refused");
	}
	if (!is_nonsense(connect_agent(), AGENT_CM_BIND, sizeof(struct agent_msg)))
		fail("a process without a name gets a port");
	if (!is_nonsense(connect_agent(), AGENT_HELLO, AGENT_MSG_BYTES(hello) - 1))
		fail("a greeting that is too short is not refused");
	say(fd, "", 1);
	pause();
}

/* A full bell, on which whoever shares its open file waits, rung for each frame. */
static void full_bell(int fd, const struct card *victim)
{
	struct stranger stranger;
	char full[65536] = "";
	int ends[2];
	(void)victim;
	MUST(pipe2(ends, O_NONBLOCK) == 0 ? 0 : -HDL_EIO);
	be_decent_stranger(&stranger, ends[1]);
	meet(&stranger, victim);
	while (write(ends[1], full, sizeof(full)) > 0)
		;
	MUST(fcntl(ends[1], F_SETFL, 0) == 0 ? 0 : -HDL_EIO);
	struct card card = card_of(&stranger);
	say(fd, &card, sizeof(card));
	for (;;)
		ring_arm(&stranger.end.rx);
}

/* Keep the lane full and part from it. */
static void part_while_sending(int fd, const struct card *victim)
{
	struct stranger stranger;
	int ends[2];
	MUST(pipe2(ends, O_NONBLOCK) == 0 ? 0 : -HDL_EIO);
	be_decent_stranger(&stranger, ends[1]);
	meet(&stranger, victim);
	/* Many messages in each, for a queue pair that is not there: it takes longer to look at one
	 * than to send the next. */
	struct ring_tx *tx = &stranger.end.tx;
	struct {
		struct frame frame;
		struct frame_item items[255];
	} burst = {.frame = {.kind = FRAME_BURST, .num_sge = 255, .to_qpn = victim->qpn ^ 0x155}};
	double until = now_ms() + FLOOD_MS;
	struct agent_msg part = {.version = AGENT_VERSION,
	                         .kind = AGENT_PART,
	                         .u.gone = {.link_id = stranger.link_id}};
	say(fd, "", 1);
	for (unsigned sent = 0; now_ms() < until;) {
		void *record = ring_reserve(tx, sizeof(burst));
		if (record == NULL)
			continue;
		memcpy(record, &burst, sizeof(burst));
		ring_publish(tx);
		if (++sent == 50)
			MUST(unixsock_send(stranger.sock, &part, sizeof(part), NULL, 0) == 0
			             ? 0
			             : -HDL_EIO);
	}
	pause();
}

/* To every slot, again and again, and away with it. */
static void introduced_to_everyone(int fd, const struct card *victim)
{
	struct stranger stranger;
	int ends[2], fds[UNIXSOCK_MAX_FDS], fd_count;
	MUST(pipe2(ends, O_NONBLOCK) == 0 ? 0 : -HDL_EIO);
	be_decent_stranger(&stranger, ends[1]);
	say(fd, "", 1);
	for (uint32_t i = 0; i < 4 * AGENT_MAX_SLOTS; i++) {
		ask_introduction(&stranger, victim, i % AGENT_MAX_SLOTS, i + 1);
		struct agent_msg msg;
		ssize_t got = unixsock_receive(stranger.sock, &msg, sizeof(msg), fds, &fd_count);
		MUST(got > 0 ? 0 : -HDL_EIO);
		while (fd_count > 0)
			close(fds[--fd_count]);
		if (msg.kind != AGENT_PEER)
			continue;
		struct agent_msg part = {.version = AGENT_VERSION,
		                         .kind = AGENT_PART,
		                         .u.gone = {.link_id = msg.u.peer.link_id}};
		MUST(unixsock_send(stranger.sock, &part, sizeof(part), NULL, 0) == 0 ? 0
		                                                                     : -HDL_EIO);
	}
	pause();
}

/* The number of a process that has nothing to do with it, for its sleeping thread. That one has
 * memory at the same address. */
static void lying_about_threads(int fd, const struct card *victim)
{
	struct end end;
	(void)victim;
	end_open(&end, ROOM, 8);
	memset(end.room, 0, 64);
	pid_t bystander = fork();
	if (bystander == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
	}
	atomic_store(&end.adapter->peers.tables.header->thread, (uint32_t)bystander);
	say(fd, &end.mine, sizeof(end.mine));
	hear(fd, &end.peer, sizeof(end.peer));
	end_connect(&end);
	say(fd, &bystander, sizeof(bystander));
	pause();
}

/* --- the decent one --- */

static void be_decent(int fd)
{
	struct end end;
	char byte;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	end_open(&end, ROOM, 8);
	MUST(end_meet(&end, fd, fd) ? 0 : -HDL_EIO);
	end_connect(&end);
	ssize_t told = read(fd, &byte, 1); /* RDMA goes on meanwhile */
	(void)told;
	end_close(&end);
	_exit(0);
}

/* --- the victim --- */

static double longest_ms;

static void took(double begin, const char *what)
{
	double ms = now_ms() - begin;
	longest_ms = ms > longest_ms ? ms : longest_ms;
	if (ms > LIMIT_MS)
		fail(what);
}

/* The connection to the decent one is as it was, and others are found. */
static void check_decent(struct end *decent)
{
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_adapter *another;
	for (int i = 0; i < 20; i++) {
		double begin = now_ms();
		if (end_do(decent, HDL_OP_WRITE, 64) != HDL_WC_SUCCESS ||
		    end_do(decent, HDL_OP_READ, 8192) != HDL_WC_SUCCESS)
			fail("the decent peer cannot be reached");
		took(begin, "a request to the decent peer waited");
	}
	double begin = now_ms();
	MUST(hdl_open(&attr, &another));
	took(begin, "the agent kept a newcomer waiting");
	MUST(hdl_close(another));
}

static pid_t start(void (*harm)(int fd, const struct card *victim), const struct card *victim,
                   int *fd)
{
	int pair[2];
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 ? 0 : -HDL_EIO);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		harm(pair[1], victim);
		_exit(0);
	}
	close(pair[1]);
	*fd = pair[0];
	return pid;
}

static void finish(pid_t pid, int fd)
{
	int status;
	pid_t ended = waitpid(pid, &status, WNOHANG);
	if (ended == pid)
		fail("the hostile one has given up"); /* it has said why */
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd);
}

static void with_words_alone(struct end *decent, const char *name,
                             void (*harm)(int fd, const struct card *victim))
{
	char byte;
	int fd;
	now_doing = name;
	pid_t pid = start(harm, &decent->mine, &fd);
	hear(fd, &byte, 1);
	for (double until = now_ms() + FLOOD_MS; now_ms() < until;)
		check_decent(decent);
	finish(pid, fd);
	check_decent(decent);
}

static void with_full_bell(struct end *decent)
{
	struct end end;
	int fd;
	now_doing = "a bell that is full";
	pid_t pid = start(full_bell, &decent->mine, &fd);
	end_open_on(&end, decent->adapter, ROOM, POSTS + 8);
	hear(fd, &end.peer, sizeof(end.peer));
	end_connect(&end);
	for (int i = 0; i < POSTS; i++) {
		double begin = now_ms();
		end_try(&end, HDL_OP_SEND, 8);
		took(begin, "a call that posts waited");
		usleep(100); /* so that the hostile one asks to be rung again */
	}
	check_decent(decent);
	finish(pid, fd);
	check_decent(decent);
	end_close(&end);
}

static void with_liar(struct end *decent)
{
	struct end end;
	pid_t bystander;
	uint64_t seen[8] = {0};
	int fd;
	now_doing = "a thread number that lies";
	pid_t pid = start(lying_about_threads, &decent->mine, &fd);
	end_open_on(&end, decent->adapter, ROOM, 8);
	hear(fd, &end.peer, sizeof(end.peer));
	say(fd, &end.mine, sizeof(end.mine));
	end_connect(&end);
	hear(fd, &bystander, sizeof(bystander));
	memset(end.room, 0x5a, 64);
	if (end_do(&end, HDL_OP_WRITE, 64) != HDL_WC_SUCCESS)
		fail("its memory could not be written to");
	struct iovec here = {seen, sizeof(seen)},
	             there = {(void *)(uintptr_t)end.peer.addr, sizeof(seen)};
	if (process_vm_readv(bystander, &here, 1, &there, 1, 0) == sizeof(seen) && seen[0] != 0)
		fail("another process was written to");
	check_decent(decent);
	finish(pid, fd);
	end_close(&end);
}

int main(void)
{
	struct end decent;
	int pair[2], status = 0;
	signal(SIGPIPE, SIG_IGN);
	signal(SIGALRM, on_alarm);
	alarm(LIMIT_S);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 ? 0 : -HDL_EIO);
	pid_t other = fork();
	if (other == 0) {
		close(pair[0]);
		be_decent(pair[1]);
	}
	close(pair[1]);
	end_open(&decent, ROOM, 8);
	MUST(end_meet(&decent, pair[0], pair[0]) ? 0 : -HDL_EIO);
	end_connect(&decent);
	pid_t agent = agent_pid();
	check_decent(&decent);
	with_words_alone(&decent, "odd files", odd_files);
	with_words_alone(&decent, "messages that no service hears", odd_messages);
	with_full_bell(&decent);
	with_words_alone(&decent, "parting while it sends", part_while_sending);
	with_words_alone(&decent, "introductions to everyone", introduced_to_everyone);
	with_liar(&decent);
	now_doing = "the end";
	if (agent == 0 || agent_pid() != agent)
		fail("the agent is not the one that it was");
	say(pair[0], "", 1);
	waitpid(other, &status, 0);
	end_close(&decent);
	printf("nobody waited longer than %.0f ms (limit %d)\n", longest_ms, LIMIT_MS);
	return status != 0;
}
