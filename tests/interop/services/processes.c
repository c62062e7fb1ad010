/* SN2, MEMMGT figure 5: process A of host node 1 has queue pairs 4, 7 and 6. They are connected to
 * queue pairs 2 and 5 of processes C and D, both of node 3, and 9 of process E of node 2. A node is
 * an address of the loopback here. What one process sends arrives at the process of its own queue
 * pair, and nowhere else. */
#include "end.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 30u
#define BYTES  1000u

static const struct process {
	char name;
	uint8_t node;
} others[] = {{'C', 3}, {'D', 3}, {'E', 2}};
#define OTHERS (sizeof(others) / sizeof(others[0]))

static struct hdl_gid node_address(uint8_t node)
{
	return (struct hdl_gid){.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = node}};
}

/* Does the memory hold message @round from @name to @to? */
static bool holds(const uint8_t *memory, char name, char to, unsigned round)
{
	bool good = memory[0] == name && memory[1] == to && memory[2] == round;
	for (unsigned i = 3; i < BYTES; i++)
		good = good && memory[i] == (uint8_t)((uint8_t)name + i);
	return good;
}

static void write_message(uint8_t *memory, char name, char to, unsigned round)
{
	memory[0] = (uint8_t)name;
	memory[1] = (uint8_t)to;
	memory[2] = (uint8_t)round;
	for (unsigned i = 3; i < BYTES; i++)
		memory[i] = (uint8_t)((uint8_t)name + i);
}

/* C, D or E: a message to A, and what comes is A's answer, round by round. */
static void play(const struct process *self, int talk)
{
	const struct hdl_conn_param param = {.ird = 1, .ord = 1};
	struct hdl_gid own = node_address(self->node);
	struct hdl_listener *listener;
	struct end e;
	uint16_t port = 0;
	char over;
	end_open(&e, HDL_QP_RC);
	assert_int_equal(hdl_listener_bind(e.adapter, &own, &port, NULL, &listener), 0);
	assert_int_equal(hdl_listener_listen(listener, 4), 0);
	assert_int_equal(write(talk, &port, sizeof(port)), sizeof(port));
	struct hdl_conn_event event = end_event(&e, HDL_CONN_REQUEST);
	e.conn = event.conn;
	end_receive(&e, 0, 0, BYTES);
	assert_int_equal(hdl_conn_accept(e.conn, e.qp, &param, NULL), 0);
	end_event(&e, HDL_CONN_ESTABLISHED);
	for (unsigned round = 0; round < ROUNDS; round++) {
		write_message(e.memory + BYTES, self->name, 'A', round);
		end_send(&e, 1, BYTES, BYTES);
		for (unsigned n = 0; n < 2; n++)
			assert_int_equal(end_wc(&e).status, HDL_WC_SUCCESS);
		assert_true(holds(e.memory, 'A', self->name, round));
		memset(e.memory, 0, BYTES);
		if (round + 1 < ROUNDS)
			end_receive(&e, 0, 0, BYTES);
	}
	assert_int_equal(write(talk, "", 1), 1);
	assert_int_equal(read(talk, &over, 1), 0); /* A has ended */
	struct hdl_wc wc;
	assert_int_equal(hdl_cq_poll(e.cq, &wc, 1), 0);
	assert_int_equal(hdl_listener_close(listener), 0);
	end_close(&e);
}

/* A answers each message on the queue pair through which it came. */
static void answer(struct end *a, struct hdl_qp *const *qps, const uint32_t *numbers)
{
	unsigned rounds[OTHERS] = {0}, sent = 0;
	while (sent < OTHERS * ROUNDS) {
		struct hdl_wc wc = end_wc(a);
		unsigned who = 0;
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		while (who < OTHERS && numbers[who] != wc.qpn)
			who++;
		assert_true(who < OTHERS);
		if (wc.opcode != HDL_WC_RECV) {
			sent++;
			continue;
		}
		uint8_t *in = a->memory + (size_t)who * 4096, *out = in + 2048;
		assert_true(holds(in, others[who].name, 'A', rounds[who]));
		memset(in, 0, BYTES);
		a->qp = qps[who];
		if (rounds[who] + 1 < ROUNDS)
			end_receive(a, who, (size_t)who * 4096, BYTES);
		write_message(out, 'A', others[who].name, rounds[who]++);
		end_send(a, who, (size_t)who * 4096 + 2048, BYTES);
	}
}

static void sn2_fig5_each_message_arrives_at_its_process(void **state)
{
	const struct hdl_conn_param param = {.ird = 1, .ord = 1};
	struct hdl_qp *qps[OTHERS];
	struct hdl_conn *conns[OTHERS];
	uint32_t numbers[OTHERS];
	pid_t children[OTHERS];
	int talks[OTHERS];
	struct end a;
	(void)state;
	for (unsigned i = 0; i < OTHERS; i++) {
		int talk[2];
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk), 0);
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] == 0) {
			close(talk[0]);
			for (unsigned k = 0; k < i; k++)
				close(talks[k]);
			play(&others[i], talk[1]);
			_exit(0);
		}
		close(talk[1]);
		talks[i] = talk[0];
	}
	end_open(&a, HDL_QP_RC);
	struct hdl_qp *first = a.qp;
	struct hdl_gid own = node_address(1);
	for (unsigned i = 0; i < OTHERS; i++) {
		struct hdl_gid to = node_address(others[i].node);
		uint16_t port;
		assert_int_equal(read(talks[i], &port, sizeof(port)), sizeof(port));
		a.qp = qps[i] = i == 0 ? first : end_qp(&a, HDL_QP_RC);
		numbers[i] = hdl_qp_number(a.qp);
		end_receive(&a, i, (size_t)i * 4096, BYTES);
		assert_int_equal(
		        hdl_conn_connect(a.qp, NULL, &own, &to, port, &param, NULL, &conns[i]), 0);
		end_event(&a, HDL_CONN_ESTABLISHED);
	}
	answer(&a, qps, numbers);
	for (unsigned i = 0; i < OTHERS; i++) {
		char done;
		assert_int_equal(read(talks[i], &done, 1), 1);
	}
	for (unsigned i = 0; i < OTHERS; i++)
		close(talks[i]);
	for (unsigned i = 0; i < OTHERS; i++) {
		int status;
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
		if (i > 0) {
			assert_int_equal(hdl_conn_destroy(conns[i]), 0);
			assert_int_equal(hdl_qp_destroy(qps[i]), 0);
		}
	}
	a.qp = first;
	a.conn = conns[0];
	end_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sn2_fig5_each_message_arrives_at_its_process),
	};
	return cmocka_run_group_tests_name("services-processes", tests, NULL, NULL);
}
