/* See end.h. */
#include "end.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "port/agentmsg.h"
#include "port/rundir.h"

#define AGENT_FILES 7 /* standard three, lock, listener, epoll, a spare one */
#define EMPTY_MS    1000

void must(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%d: %s: %s\n", (int)getpid(), what, hdl_strerror(result));
		_exit(3);
	}
}

void end_open(struct end *end, size_t bytes, uint32_t depth)
{
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_adapter *adapter;
	MUST(hdl_open(&attr, &adapter));
	end_open_on(end, adapter, bytes, depth);
	end->borrowed = false;
}

void end_open_on(struct end *end, struct hdl_adapter *adapter, size_t bytes, uint32_t depth)
{
	struct hdl_limits limits;
	*end = (struct end){.adapter = adapter, .borrowed = true, .bytes = bytes};
	unsigned char *block = mmap(NULL, bytes + 2 * END_FENCE, PROT_READ | PROT_WRITE,
	                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(block == MAP_FAILED ? -HDL_ENOMEM : 0);
	end->room = block + END_FENCE;
	memset(block, END_CANARY, END_FENCE);
	memset(end->room + bytes, END_CANARY, END_FENCE);
	MUST(hdl_pd_create(end->adapter, &end->pd));
	MUST(hdl_channel_create(end->adapter, &end->channel));
	MUST(hdl_cq_create(end->adapter, 256, end->channel, NULL, &end->cq));
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = end->cq,
	                                .recv_cq = end->cq,
	                                .cap = {depth, 2 * END_RECEIVES, 1, 1, 0}};
	MUST(hdl_qp_create(end->pd, &init, &end->qp));
	MUST(hdl_mr_register(end->pd, end->room, bytes, 0x1f, &end->mr));
	MUST(hdl_adapter_query(end->adapter, &limits));
	end->mine = (struct card){.gid = limits.gid,
	                          .qpn = hdl_qp_number(end->qp),
	                          .addr = (uint64_t)(uintptr_t)end->room,
	                          .key = hdl_mr_key(end->mr)};
}

bool end_meet(struct end *end, int in, int out)
{
	return write(out, &end->mine, sizeof(end->mine)) == sizeof(end->mine) &&
	       read(in, &end->peer, sizeof(end->peer)) == sizeof(end->peer);
}

int end_try_connect(struct end *end)
{
	struct hdl_qp_attr a = {.state = HDL_QPS_INIT, .port_num = 1, .access = 0x1c};
	int result = hdl_qp_modify(end->qp, &a,
	                           HDL_QP_STATE | HDL_QP_PORT | HDL_QP_ACCESS | HDL_QP_PKEY_INDEX);
	if (result != 0)
		return result;
	for (int i = 0; i < END_RECEIVES; i++)
		end_post_receive(end);
	a = (struct hdl_qp_attr){.state = HDL_QPS_RTR,
	                         .path_mtu = 4096,
	                         .dest_qpn = end->peer.qpn,
	                         .ah = {.dgid = end->peer.gid,
	                                .dlid = end->peer.lid,
	                                .src_path_bits = end->mine.path_bits,
	                                .port_num = 1},
	                         .max_dest_rd_atomic = 4,
	                         .min_rnr_timer = 1};
	result = hdl_qp_modify(end->qp, &a,
	                       HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                               HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC |
	                               HDL_QP_MIN_RNR_TIMER);
	if (result != 0)
		return result;
	a = (struct hdl_qp_attr){.state = HDL_QPS_RTS,
	                         .timeout = 16,
	                         .retry_cnt = 7,
	                         .rnr_retry = 7,
	                         .max_rd_atomic = 4};
	return hdl_qp_modify(end->qp, &a,
	                     HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                             HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC);
}

void end_connect(struct end *end)
{
	MUST(end_try_connect(end));
}

void end_post_receive(struct end *end)
{
	struct hdl_sge piece = {end->mine.addr, (uint32_t)end->bytes, end->mine.key};
	struct hdl_recv_wr recv = {.sg_list = &piece, .num_sge = 1};
	MUST(hdl_post_recv(end->qp, &recv, NULL));
}

int end_try(struct end *end, uint32_t opcode, uint32_t length)
{
	bool atomic = opcode == HDL_OP_FETCH_ADD || opcode == HDL_OP_COMPARE_SWAP;
	struct hdl_sge piece = {end->mine.addr, atomic ? 8 : length, end->mine.key};
	struct hdl_send_wr wr = {
	        .sg_list = &piece, .num_sge = 1, .opcode = opcode, .flags = HDL_SEND_SIGNALED};
	if (atomic) {
		wr.u.atomic.addr = end->peer.addr;
		wr.u.atomic.key = end->peer.key;
		wr.u.atomic.compare_add = 1;
	} else if (opcode != HDL_OP_SEND) {
		wr.u.rdma.addr = end->peer.addr;
		wr.u.rdma.key = end->peer.key;
	}
	return hdl_post_send(end->qp, &wr, NULL);
}

bool end_wait(struct end *end, struct hdl_wc *wc, int ms)
{
	double until = now_ms() + ms;
	int count;
	while ((count = hdl_cq_poll(end->cq, wc, 1)) == 0)
		if (now_ms() > until)
			return false;
	MUST(count);
	return true;
}

int end_do(struct end *end, uint32_t opcode, uint32_t length)
{
	struct hdl_wc wc;
	MUST(end_try(end, opcode, length));
	while (end_wait(end, &wc, 10000)) {
		if (wc.opcode < HDL_WC_RECV || wc.status != HDL_WC_SUCCESS)
			return (int)wc.status;
		end_post_receive(end); /* what the other sent meanwhile */
	}
	return -1;
}

void end_must(struct end *end, uint32_t opcode, uint32_t length)
{
	int status = end_do(end, opcode, length);
	if (status == HDL_WC_SUCCESS)
		return;
	fprintf(stderr, "%d: opcode %u with %u bytes ended with status %d\n", (int)getpid(), opcode,
	        length, status);
	_exit(3);
}

void end_close(struct end *end)
{
	MUST(hdl_qp_destroy(end->qp));
	MUST(hdl_mr_deregister(end->mr));
	MUST(hdl_cq_destroy(end->cq));
	MUST(hdl_channel_destroy(end->channel));
	MUST(hdl_pd_destroy(end->pd));
	if (!end->borrowed)
		MUST(hdl_close(end->adapter));
	munmap(end->room - END_FENCE, end->bytes + 2 * END_FENCE);
}

struct child child_start(void (*live)(int talk, const char *node, const char *address),
                         const char *node, const char *address)
{
	int pair[2];
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 ? 0 : -HDL_EIO,
	     "socketpair");
	struct child child = {.pid = fork(), .talk = pair[0]};
	must(child.pid >= 0 ? 0 : -HDL_EIO, "fork");
	if (child.pid == 0) {
		close(pair[0]);
		live(pair[1], node, address);
		_exit(3);
	}
	close(pair[1]);
	return child;
}

void child_kill(struct child *child)
{
	kill(child->pid, SIGKILL);
	close(child->talk);
	must(waitpid(child->pid, NULL, 0) == child->pid ? 0 : -HDL_EIO, "waitpid");
}

double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

pid_t agent_pid(void)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	int pid = 0;
	if (rundir_open(directory, NULL) != 0)
		return 0;
	rundir_file(directory, AGENT_LOCK, path, sizeof(path));
	FILE *lock = fopen(path, "re");
	if (lock == NULL)
		return 0;
	if (fscanf(lock, "%d", &pid) != 1 || pid <= 1)
		pid = 0;
	fclose(lock);
	return pid;
}

void kill_agent(void)
{
	pid_t pid = agent_pid();
	if (pid != 0)
		kill(pid, SIGKILL);
}

int count_files(pid_t pid)
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	int count = 0;
	while (dir != NULL && readdir(dir) != NULL)
		count++;
	if (dir != NULL)
		closedir(dir);
	return count - 2; /* . and .. */
}

int count_mappings(const char *what)
{
	char line[512];
	int count = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
		count += strstr(line, what) != NULL;
	if (maps != NULL)
		fclose(maps);
	return count;
}

bool agent_is_empty(int more)
{
	pid_t pid = agent_pid();
	int files = 0;
	if (pid == 0)
		return true; /* it has left */
	for (int i = 0; i < EMPTY_MS; i++) {
		files = count_files(pid);
		if (files <= AGENT_FILES + more)
			return true;
		usleep(1000);
	}
	printf("the agent still holds %d files\n", files);
	return false;
}
