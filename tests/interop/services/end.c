/* One end of the service tests. See end.h. */
#include "end.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const struct hdl_gid end_loopback = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};

uint64_t end_now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

struct hdl_qp *end_qp(struct end *e, uint32_t type)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = type,
	                                .send_cq = e->cq,
	                                .recv_cq = e->cq,
	                                .register_on_send = type == HDL_QP_RC,
	                                .cap = {.max_send_wr = 64,
	                                        .max_recv_wr = END_RECVS,
	                                        .max_send_sge = 4,
	                                        .max_recv_sge = 4}};
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT, .port_num = 1, .qkey = 1};
	int mask = HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT;
	mask |= type == HDL_QP_UD ? HDL_QP_QKEY : HDL_QP_ACCESS;
	if (type != HDL_QP_UD)
		attr.access =
		        HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC;
	assert_int_equal(hdl_qp_create(e->pd, &init, &qp), 0);
	assert_int_equal(hdl_qp_modify(qp, &attr, (uint32_t)mask), 0);
	return qp;
}

void end_open(struct end *e, uint32_t type)
{
	end_open_on(e, type, false);
}

void end_open_on(struct end *e, uint32_t type, bool on_node)
{
	const struct hdl_open_attr attr = {.max_mr = 64, .max_qp = 64, .on_node = on_node};
	*e = (struct end){.memory = calloc(1, END_BYTES)};
	assert_non_null(e->memory);
	assert_int_equal(hdl_open(&attr, &e->adapter), 0);
	assert_int_equal(hdl_pd_create(e->adapter, &e->pd), 0);
	assert_int_equal(hdl_cq_create(e->adapter, 256, NULL, NULL, &e->cq), 0);
	assert_int_equal(hdl_mr_register(e->pd, e->memory, END_BYTES,
	                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                                         HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
	                                         HDL_ACCESS_REMOTE_ATOMIC,
	                                 &e->mr),
	                 0);
	e->qp = end_qp(e, type);
}

void end_close(struct end *e)
{
	if (e->conn != NULL)
		assert_int_equal(hdl_conn_destroy(e->conn), 0);
	assert_int_equal(hdl_qp_destroy(e->qp), 0);
	assert_int_equal(hdl_mr_deregister(e->mr), 0);
	assert_int_equal(hdl_cq_destroy(e->cq), 0);
	assert_int_equal(hdl_pd_destroy(e->pd), 0);
	assert_int_equal(hdl_close(e->adapter), 0);
	free(e->memory);
}

void end_receive(struct end *e, uint64_t id, size_t offset, uint32_t length)
{
	const struct hdl_recv_wr *bad;
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e->memory + offset, length, hdl_mr_key(e->mr)};
	struct hdl_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
	assert_int_equal(hdl_post_recv(e->qp, &wr, &bad), 0);
}

void end_send(struct end *e, uint64_t id, size_t offset, uint32_t length)
{
	const struct hdl_send_wr *bad;
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e->memory + offset, length, hdl_mr_key(e->mr)};
	struct hdl_send_wr wr = {.wr_id = id,
	                         .opcode = HDL_OP_SEND,
	                         .flags = HDL_SEND_SIGNALED,
	                         .sg_list = &sge,
	                         .num_sge = 1};
	assert_int_equal(hdl_post_send(e->qp, &wr, &bad), 0);
}

struct hdl_wc end_wc(struct end *e)
{
	struct hdl_wc wc;
	uint64_t until = end_now_ms() + END_WAIT_MS;
	int got;
	while ((got = hdl_cq_poll(e->cq, &wc, 1)) == 0 && end_now_ms() < until)
		;
	assert_int_equal(got, 1);
	return wc;
}

struct hdl_conn_event end_event(struct end *e, enum hdl_conn_event_type type)
{
	struct hdl_conn_event event;
	assert_int_equal(hdl_conn_event_get(e->adapter, &event, END_WAIT_MS), 0);
	assert_int_equal(event.type, type);
	return event;
}

/* --- programs --- */

void program_need(const char *name)
{
	char command[200];
	snprintf(command, sizeof(command), "command -v %s >/dev/null", name);
	if (system(command) != 0) {
		print_message("skipped: there is no %s\n", name);
		skip();
	}
}

struct program program_start(const char *const *argv)
{
	int in[2], out[2];
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	struct program p = {.pid = fork(), .in = in[1], .out = out[0]};
	assert_true(p.pid >= 0);
	if (p.pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execvp(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	return p;
}

size_t program_read(struct program *p, uint8_t *to, size_t max)
{
	size_t got = 0;
	struct pollfd wait = {.fd = p->out, .events = POLLIN};
	while (got < max && poll(&wait, 1, END_WAIT_MS) == 1) {
		ssize_t some = read(p->out, to + got, max - got);
		if (some <= 0)
			break;
		got += (size_t)some;
	}
	return got;
}

int program_end(struct program *p)
{
	int status = -1;
	uint64_t until = end_now_ms() + END_WAIT_MS;
	if (p->in >= 0)
		close(p->in);
	while (waitpid(p->pid, &status, WNOHANG) == 0) {
		if (end_now_ms() > until)
			kill(p->pid, SIGKILL);
		usleep(1000);
	}
	close(p->out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

uint16_t free_port(int type)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(address);
	int sock = socket(AF_INET, type, 0);
	assert_true(sock >= 0);
	assert_int_equal(bind(sock, (struct sockaddr *)&address, bytes), 0);
	assert_int_equal(getsockname(sock, (struct sockaddr *)&address, &bytes), 0);
	close(sock);
	return ntohs(address.sin_port);
}
