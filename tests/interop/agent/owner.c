/* The owner of memory and its child. See owner.h. */
#include "owner.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void must(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%d: %s: %s\n", (int)getpid(), what, hdl_strerror(result));
		_exit(3);
	}
}
#define MUST(call) must(call, #call)

static void end_open(struct end *end)
{
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_limits limits;
	*end = (struct end){0};
	MUST(hdl_open(&attr, &end->adapter));
	MUST(hdl_adapter_query(end->adapter, &limits));
	end->gid = limits.gid;
	MUST(hdl_pd_create(end->adapter, &end->pd));
	MUST(hdl_cq_create(end->adapter, 64, NULL, NULL, &end->cq));
}

/* 0, or what is still in use. */
static int end_close(struct end *end)
{
	int result = end->qp != NULL ? hdl_qp_destroy(end->qp) : 0;
	if (result == 0)
		result = hdl_cq_destroy(end->cq);
	if (result == 0)
		result = hdl_pd_destroy(end->pd);
	return result != 0 ? result : hdl_close(end->adapter);
}

struct hdl_qp *new_qp(struct end *end)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = end->cq,
	                                .recv_cq = end->cq,
	                                .cap = {16, 16, 1, 1, 64}};
	MUST(hdl_qp_create(end->pd, &init, &qp));
	return qp;
}

void connect_qp(struct hdl_qp *qp, const struct card *peer)
{
	struct hdl_qp_attr a = {.state = HDL_QPS_INIT, .port_num = 1, .access = 0x1c};
	MUST(hdl_qp_modify(qp, &a, HDL_QP_STATE | HDL_QP_PORT | HDL_QP_ACCESS | HDL_QP_PKEY_INDEX));
	a = (struct hdl_qp_attr){.state = HDL_QPS_RTR,
	                         .path_mtu = 4096,
	                         .dest_qpn = peer->qpn,
	                         .ah = {.dgid = peer->gid, .port_num = 1},
	                         .max_dest_rd_atomic = 4,
	                         .min_rnr_timer = 1};
	MUST(hdl_qp_modify(qp, &a,
	                   HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                           HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC |
	                           HDL_QP_MIN_RNR_TIMER));
	a = (struct hdl_qp_attr){.state = HDL_QPS_RTS,
	                         .timeout = 14,
	                         .retry_cnt = 7,
	                         .rnr_retry = 7,
	                         .max_rd_atomic = 4};
	MUST(hdl_qp_modify(qp, &a,
	                   HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                           HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC));
}

void work(struct end *end, const struct task *task, struct hdl_sge piece, struct outcome *outcome)
{
	struct hdl_send_wr wr = {.sg_list = &piece,
	                         .num_sge = 1,
	                         .opcode = task->opcode,
	                         .flags = HDL_SEND_SIGNALED};
	struct hdl_wc wc;
	int count;
	if (task->opcode == HDL_OP_FETCH_ADD) {
		wr.u.atomic.addr = task->addr;
		wr.u.atomic.key = task->key;
		wr.u.atomic.compare_add = task->value;
	} else {
		wr.u.rdma.addr = task->addr;
		wr.u.rdma.key = task->key;
	}
	MUST(hdl_post_send(end->qp, &wr, NULL));
	while ((count = hdl_cq_poll(end->cq, &wc, 1)) == 0)
		;
	MUST(count);
	outcome->status = wc.status;
	outcome->detail = wc.vendor_err;
	outcome->done += wc.status == HDL_WC_SUCCESS;
}

static bool is_mapped(const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;
	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
		found = found || strstr(line, name) != NULL;
	if (maps != NULL)
		fclose(maps);
	return found;
}

/* The child: do as told. */
static void serve(int sock)
{
	struct end end;
	struct hdl_mr *mr;
	struct task task = {0};
	uint64_t *room = calloc(1, ROOM);
	end_open(&end);
	MUST(hdl_mr_register(end.pd, room, ROOM, RIGHTS, &mr));
	while (read(sock, &task, sizeof(task)) == sizeof(task) && task.order != QUIT) {
		struct outcome outcome = {.card = {.gid = end.gid}};
		struct hdl_sge piece = {(uint64_t)(uintptr_t)room, task.length, hdl_mr_key(mr)};
		if (task.order == CONNECT) {
			if (end.qp != NULL)
				MUST(hdl_qp_destroy(end.qp));
			end.qp = new_qp(&end);
			connect_qp(end.qp, &task.card);
			outcome.card.qpn = hdl_qp_number(end.qp);
		}
		for (uint32_t i = 0;
		     task.order == WORK && i < task.count && outcome.status == HDL_WC_SUCCESS;
		     i++) {
			if (task.opcode == HDL_OP_WRITE)
				for (uint32_t at = 0; at < task.length / 8; at++)
					room[at] = task.value + i;
			work(&end, &task, piece, &outcome);
			outcome.value = room[0];
		}
		outcome.mapped = is_mapped(NAME) || is_mapped("heddle-memory");
		if (write(sock, &outcome, sizeof(outcome)) != sizeof(outcome))
			break;
	}
	MUST(hdl_mr_deregister(mr));
	MUST(end_close(&end));
	free(room);
}

/* --- the owner --- */

void say(const struct owner *o, struct task task)
{
	assert_int_equal(write(o->sock, &task, sizeof(task)), sizeof(task));
}

struct outcome hear(const struct owner *o)
{
	struct outcome outcome;
	assert_int_equal(read(o->sock, &outcome, sizeof(outcome)), sizeof(outcome));
	return outcome;
}

struct outcome tell(const struct owner *o, struct task task)
{
	say(o, task);
	return hear(o);
}

void reconnect(struct owner *o)
{
	if (o->end.qp != NULL)
		assert_int_equal(hdl_qp_destroy(o->end.qp), 0);
	o->end.qp = new_qp(&o->end);
	struct outcome outcome = tell(
	        o, (struct task){.order = CONNECT, .card = {o->end.gid, hdl_qp_number(o->end.qp)}});
	connect_qp(o->end.qp, &outcome.card);
}

int owner_setup(void **state)
{
	struct owner *o = calloc(1, sizeof(*o));
	int socks[2];
	if (o == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) != 0)
		return -1;
	o->child = fork();
	if (o->child == 0) {
		alarm(60);
		close(socks[0]);
		serve(socks[1]);
		_exit(0);
	}
	close(socks[1]);
	o->sock = socks[0];
	end_open(&o->end);
	reconnect(o);
	*state = o;
	return 0;
}

int owner_teardown(void **state)
{
	struct owner *o = *state;
	struct task quit = {.order = QUIT};
	int status = 0;
	ssize_t sent = write(o->sock, &quit, sizeof(quit));
	(void)sent; /* it may have been killed */
	close(o->sock);
	waitpid(o->child, &status, 0);
	bool closed = end_close(&o->end) == 0;
	bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	free(o);
	return closed && (killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) ? 0 : -1;
}
