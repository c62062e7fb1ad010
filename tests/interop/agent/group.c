/* A multicast group over processes of two nodes: members join, leave, are killed; the node agent is
 * killed too. Who is a member hears every message at most once, and those that are sent after
 * things have settled; who is none hears nothing. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <heddle/heddle.h>

#include "end.h"
#include "port/agentmsg.h"
#include "port/rundir.h"

#define QKEY     5u
#define RECVS    64
#define LIMIT_MS 10000

static const struct hdl_gid group = {{0xff, 0x12, [14] = 0x42, [15] = 0x17}};

/* A process of the test: what it is told, and what it tells. */
struct process {
	pid_t pid;
	int in, out;
};

struct datagrams {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_qp *qp;
	struct hdl_mr *mr;
	unsigned char room[RECVS * 64];
};

static void open_end(struct datagrams *end, const char *node)
{
	struct hdl_open_attr attr = {.on_node = true, .node = node};
	MUST(hdl_open(&attr, &end->adapter));
	MUST(hdl_pd_create(end->adapter, &end->pd));
	MUST(hdl_cq_create(end->adapter, 2 * RECVS, NULL, NULL, &end->cq));
	struct hdl_qp_init_attr init = {.type = HDL_QP_UD,
	                                .send_cq = end->cq,
	                                .recv_cq = end->cq,
	                                .cap = {RECVS, RECVS, 1, 1, 0}};
	MUST(hdl_qp_create(end->pd, &init, &end->qp));
	MUST(hdl_mr_register(end->pd, end->room, sizeof(end->room),
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE, &end->mr));
	struct hdl_qp_attr to = {.state = HDL_QPS_INIT, .port_num = 1, .qkey = QKEY};
	MUST(hdl_qp_modify(end->qp, &to,
	                   HDL_QP_STATE | HDL_QP_PORT | HDL_QP_QKEY | HDL_QP_PKEY_INDEX));
	to.state = HDL_QPS_RTR;
	MUST(hdl_qp_modify(end->qp, &to, HDL_QP_STATE));
	to.state = HDL_QPS_RTS;
	MUST(hdl_qp_modify(end->qp, &to, HDL_QP_STATE | HDL_QP_SQ_PSN));
}

static void post_recv(struct datagrams *end, uint64_t index)
{
	struct hdl_sge piece = {(uint64_t)(uintptr_t)(end->room + 64 * index), 64,
	                        hdl_mr_key(end->mr)};
	struct hdl_recv_wr wr = {.wr_id = index, .sg_list = &piece, .num_sge = 1};
	MUST(hdl_post_recv(end->qp, &wr, NULL));
}

static void say(int out, unsigned char what)
{
	if (write(out, &what, 1) != 1)
		_exit(0);
}

/* Tell what was heard, if there is something. */
static bool tell_next(struct datagrams *end, int out)
{
	static unsigned char last;
	struct hdl_wc wc;
	int count = hdl_cq_poll(end->cq, &wc, 1);
	MUST(count);
	if (count == 0)
		return false;
	unsigned char heard = end->room[64 * wc.wr_id + HDL_GRH_BYTES];
	say(out, heard > last ? heard : 0); /* 0: for the second time */
	last = heard;
	post_recv(end, wc.wr_id);
	return true;
}

/* Tell what is heard, byte for byte; 'L' on the way in: leave. */
static void be_member(const char *node, int in, int out)
{
	static struct datagrams end;
	unsigned char command;
	open_end(&end, node);
	for (uint64_t i = 0; i < RECVS; i++)
		post_recv(&end, i);
	MUST(hdl_qp_attach(end.qp, &group));
	say(out, 0xff);
	for (;;) {
		struct pollfd told = {.fd = in, .events = POLLIN};
		if (poll(&told, 1, 0) == 1) {
			if (read(in, &command, 1) != 1)
				_exit(0);
			MUST(hdl_qp_detach(end.qp, &group));
			while (tell_next(&end, out)) /* it came before */
				;
			say(out, 0xff);
		}
		if (!tell_next(&end, out))
			usleep(200);
	}
}

/* Send what is told. */
static void be_sender(const char *node, int in, int out)
{
	static struct datagrams end;
	struct hdl_ah *ah;
	struct hdl_wc wc;
	struct hdl_ah_attr to = {.dgid = group, .port_num = 1, .is_global = true};
	open_end(&end, node);
	MUST(hdl_ah_create(end.pd, &to, &ah));
	say(out, 0xff);
	while (read(in, end.room, 1) == 1) {
		struct hdl_sge piece = {(uint64_t)(uintptr_t)end.room, 1, hdl_mr_key(end.mr)};
		struct hdl_send_wr wr = {.sg_list = &piece,
		                         .num_sge = 1,
		                         .opcode = HDL_OP_SEND,
		                         .flags = HDL_SEND_SIGNALED,
		                         .u.ud = {.ah = ah, .qpn = 0xffffff, .qkey = QKEY}};
		MUST(hdl_post_send(end.qp, &wr, NULL));
		while (hdl_cq_poll(end.cq, &wc, 1) == 0)
			;
		say(out, wc.status == HDL_WC_SUCCESS ? 0xff : 0);
	}
	_exit(0);
}

/* What the process says next; -1: nothing in @ms. */
static int hear(const struct process *process, int ms)
{
	struct pollfd wait = {.fd = process->out, .events = POLLIN};
	unsigned char what;
	return poll(&wait, 1, ms) == 1 && read(process->out, &what, 1) == 1 ? what : -1;
}

static struct process start(void (*be)(const char *node, int in, int out), const char *node)
{
	int in[2], out[2];
	if (pipe(in) != 0 || pipe(out) != 0)
		exit(1);
	struct process process = {.pid = fork(), .in = in[1], .out = out[0]};
	if (process.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(in[1]);
		close(out[0]);
		be(node, in[0], out[1]);
	}
	close(in[0]);
	close(out[1]);
	if (hear(&process, LIMIT_MS) != 0xff) {
		fprintf(stderr, "a process did not start\n");
		exit(1);
	}
	return process;
}

static void check(const char *what, bool condition)
{
	printf("%s: %s\n", condition ? "ok" : "FAILED", what);
	if (!condition)
		exit(1);
}

/* Send until every one of @members has heard something new. */
static void everyone_hears(const char *what, const struct process *sender,
                           const struct process *const members[], int count)
{
	static unsigned char number;
	bool heard[8] = {false}, twice = false;
	int missing = count;
	for (int tries = 0; missing > 0 && tries < 30; tries++) {
		number++;
		if (write(sender->in, &number, 1) != 1 || hear(sender, LIMIT_MS) != 0xff)
			check("the sender goes on", false);
		for (int i = 0; i < count; i++) {
			/* What is on its way is waited for, so that no member falls behind. */
			int got = hear(members[i], 1000);
			twice = twice || got == 0;
			missing -= got > 0 && !heard[i];
			heard[i] = heard[i] || got > 0;
		}
	}
	check(what, missing == 0 && !twice);
	for (int i = 0; i < count; i++)
		while (hear(members[i], 50) > 0)
			;
}

int main(void)
{
	char directory[] = "/tmp/heddle-group-XXXXXX";
	signal(SIGPIPE, SIG_IGN);
	if (mkdtemp(directory) == NULL || setenv("HEDDLE_DIR", directory, 1) != 0)
		return 1;
	struct process first = start(be_member, "group-a"), second = start(be_member, "group-b");
	struct process sender = start(be_sender, "group-a");
	everyone_hears("members of two nodes hear", &sender,
	               (const struct process *const[]){&first, &second}, 2);
	struct process late = start(be_member, "group-b");
	everyone_hears("one that joins late hears", &sender,
	               (const struct process *const[]){&first, &second, &late}, 3);
	kill(second.pid, SIGKILL);
	waitpid(second.pid, NULL, 0);
	everyone_hears("one that is killed is not waited for", &sender,
	               (const struct process *const[]){&first, &late}, 2);
	kill_agent();
	everyone_hears("an agent that is killed is not missed", &sender,
	               (const struct process *const[]){&first, &late}, 2);
	struct process last = start(be_member, "group-a");
	everyone_hears("the next agent knows the group", &sender,
	               (const struct process *const[]){&first, &late, &last}, 3);
	unsigned char leave = 'L';
	bool leaves = write(late.in, &leave, 1) == 1;
	int last_word;
	do
		last_word = hear(&late, LIMIT_MS); /* what it heard before comes first */
	while (last_word > 0 && last_word != 0xff);
	check("one leaves", leaves && last_word == 0xff);
	everyone_hears("the others hear", &sender, (const struct process *const[]){&first, &last},
	               2);
	check("one that has left hears nothing", hear(&late, 100) == -1);
	struct process *all[] = {&first, &late, &last, &sender};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		kill(all[i]->pid, SIGKILL);
		waitpid(all[i]->pid, NULL, 0);
	}
	kill_agent();
	static const char *const files[] = {AGENT_SOCKET, AGENT_LOCK, AGENT_ROVER};
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char path[RUNDIR_MAX];
		snprintf(path, sizeof(path), "%s/%s", directory, files[i]);
		unlink(path);
	}
	rmdir(directory);
	return 0;
}
