/* IP9: UDP port 9899 of an address, shared by processes that have SCTP ports of their own: several
 * listen, connect from one address to another and within one, see one of them die, and go on when
 * the node agent, which steers the packets, is killed. Run with a HEDDLE_DIR of its own. */
#include "end.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "port/agentmsg.h"
#include "port/rundir.h"
#include "port/unixsock.h"

#define SERVERS 3u
#define ROUNDS  8u
#define HERE    "127.0.99.1"
#define THERE   "127.0.99.2"

static const struct hdl_gid here = {
        .raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [14] = 99, [15] = 1}};
static const struct hdl_gid there = {
        .raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [14] = 99, [15] = 2}};
static const struct hdl_conn_param on_sctp = {.service = HDL_CONN_RDMA_SCTP, .ird = 8, .ord = 8};

/* A process that serves what it is asked for. */
struct server {
	pid_t pid;
	int talk;
	uint16_t port;
};

static struct server servers[SERVERS];
static struct end me;

/* --- the servers --- */

static struct hdl_listener *serve_listen(struct end *e, uint16_t *port)
{
	struct hdl_listener *listener;
	assert_int_equal(hdl_listener_bind(e->adapter, &there, port, NULL, &listener), 0);
	assert_int_equal(hdl_listener_serve(listener, HDL_CONN_RDMA_SCTP), 0);
	assert_int_equal(hdl_listener_listen(listener, 4), 0);
	return listener;
}

/* Take a message, and send it back; as often as the parent wants: it closes the pipe at last. */
static void serve_echo(struct end *e)
{
	for (unsigned i = 0;; i++) {
		struct hdl_wc wc;
		uint64_t until = end_now_ms() + 120000;
		while (hdl_cq_poll(e->cq, &wc, 1) == 0 && end_now_ms() < until)
			usleep(200);
		if (wc.status != HDL_WC_SUCCESS)
			return;
		if (wc.opcode != HDL_WC_RECV)
			continue;
		end_send(e, 1000 + i, wc.wr_id * 4096, wc.byte_len);
		end_receive(e, wc.wr_id, wc.wr_id * 4096, 4096);
	}
}

/* Each accepts one connection of a stranger, after (@to != 0) connecting to that server itself. */
static void serve(int talk, uint16_t to)
{
	struct end e, other;
	uint16_t port = 0;
	char word = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("HEDDLE_ADDR", THERE, 1);
	setenv("HEDDLE_NODE", "there", 1);
	end_open_on(&e, HDL_QP_RC, true);
	struct hdl_listener *listener = serve_listen(&e, &port);
	for (unsigned i = 0; i < 16; i++)
		end_receive(&e, i, i * 4096, 4096);
	assert_int_equal(write(talk, &port, sizeof(port)), sizeof(port));
	if (to != 0) { /* from the same address, and the same UDP port */
		end_open_on(&other, HDL_QP_RC, true);
		end_receive(&other, 1, 0, 100);
		assert_int_equal(hdl_conn_connect(other.qp, NULL, &there, &there, to, &on_sctp,
		                                  NULL, &other.conn),
		                 0);
		end_event(&other, HDL_CONN_ESTABLISHED);
		end_send(&other, 2, 4096, 50);
		assert_int_equal(end_wc(&other).status, HDL_WC_SUCCESS);
		assert_int_equal(end_wc(&other).status, HDL_WC_SUCCESS);
		assert_int_equal(hdl_conn_disconnect(other.conn), 0);
		end_event(&other, HDL_CONN_CLOSED);
		end_close(&other);
		assert_int_equal(write(talk, &word, 1), 1);
	}
	struct hdl_conn_event event;
	assert_int_equal(hdl_conn_event_get(e.adapter, &event, 60000), 0);
	assert_int_equal(event.type, HDL_CONN_REQUEST);
	e.conn = event.conn;
	assert_int_equal(hdl_conn_accept(e.conn, e.qp, &on_sctp, NULL), 0);
	/* Without the listener, its port is still that of the connection. */
	end_event(&e, HDL_CONN_ESTABLISHED);
	assert_int_equal(hdl_listener_close(listener), 0);
	serve_echo(&e);
	_exit(0);
}

static void start_server(struct server *server, uint16_t to)
{
	int talk[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, talk), 0);
	server->pid = fork();
	assert_true(server->pid >= 0);
	if (server->pid == 0) {
		close(talk[0]);
		serve(talk[1], to);
	}
	close(talk[1]);
	server->talk = talk[0];
	assert_int_equal(read(server->talk, &server->port, sizeof(server->port)),
	                 sizeof(server->port));
}

static void stop_server(const struct server *server)
{
	kill(server->pid, SIGKILL);
	waitpid(server->pid, NULL, 0);
	close(server->talk);
}

/* --- the client: one connection to each --- */

static struct hdl_qp *qps[SERVERS];
static struct hdl_conn *conns[SERVERS];

static void choose(unsigned i)
{
	me.qp = qps[i];
	me.conn = conns[i];
}

static void connect_to(unsigned i)
{
	qps[i] = end_qp(&me, HDL_QP_RC);
	assert_int_equal(hdl_conn_connect(qps[i], NULL, &here, &there, servers[i].port, &on_sctp,
	                                  NULL, &conns[i]),
	                 0);
	end_event(&me, HDL_CONN_ESTABLISHED);
	choose(i);
}

/* A message there and back. */
static void exchange(unsigned i, uint8_t seed)
{
	const uint32_t length = 3000;
	uint8_t *sent = me.memory, *came = me.memory + 65536;
	choose(i);
	for (uint32_t n = 0; n < length; n++)
		sent[n] = (uint8_t)(n * 3 + seed);
	memset(came, 0, length);
	end_receive(&me, 1, 65536, length);
	end_send(&me, 2, 0, length);
	for (unsigned n = 0; n < 2; n++)
		assert_int_equal(end_wc(&me).status, HDL_WC_SUCCESS);
	assert_memory_equal(sent, came, length);
}

static void leave(unsigned i)
{
	assert_int_equal(hdl_conn_destroy(conns[i]), 0);
	assert_int_equal(hdl_qp_destroy(qps[i]), 0);
}

/* Who has UDP port 9899, as the kernel lists it: sockets on our two addresses alone. */
static unsigned sockets_on_9899(unsigned *elsewhere)
{
	FILE *file = fopen("/proc/net/udp", "r");
	char line[256];
	unsigned count = 0, address, port;
	assert_non_null(file);
	*elsewhere = 0;
	while (fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, " %*u: %x:%x", &address, &port) == 2 && port == 9899) {
			count += address == 0x0163007f || address == 0x0263007f;
			*elsewhere += address == 0;
		}
	fclose(file);
	return count;
}

static pid_t agent_now(void)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	pid_t pid = 0;
	uid_t uid;
	assert_int_equal(rundir_open(directory, NULL), 0);
	rundir_file(directory, AGENT_SOCKET, path, sizeof(path));
	int sock = unixsock_connect(path);
	if (sock >= 0) {
		unixsock_peer(sock, &pid, &uid);
		close(sock);
	}
	return pid;
}

static void ip9_one_udp_port_for_all(void **state)
{
	(void)state;
	unsigned elsewhere;
	start_server(&servers[0], 0);
	start_server(&servers[1], servers[0].port);
	char word;
	assert_int_equal(read(servers[1].talk, &word, 1), 1); /* it has talked to the first */
	stop_server(&servers[0]);                             /* which served one connection */
	start_server(&servers[0], 0);
	start_server(&servers[2], 0);
	setenv("HEDDLE_ADDR", HERE, 1);
	setenv("HEDDLE_NODE", "here", 1);
	end_open_on(&me, HDL_QP_RC, true);
	struct hdl_qp *spare = me.qp;
	for (unsigned i = 0; i < SERVERS; i++)
		connect_to(i);
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned i = 0; i < SERVERS; i++)
			exchange(i, (uint8_t)(round * 8 + i));
	/* The agent's own socket and one per process, on two addresses. */
	assert_true(sockets_on_9899(&elsewhere) >= 2 + SERVERS + 1);
	assert_int_equal(elsewhere, 0);

	/* A port that nobody has is refused at once. */
	struct hdl_conn *conn;
	uint64_t begun = end_now_ms();
	assert_int_equal(hdl_conn_connect(spare, NULL, &here, &there, 7, &on_sctp, NULL, &conn), 0);
	assert_int_equal(end_event(&me, HDL_CONN_FAILED).error, -HDL_ECONNREFUSED);
	assert_true(end_now_ms() - begun < 4000);
	assert_int_equal(hdl_conn_destroy(conn), 0);

	/* One dies: what we ask it for comes back from the agent, and we know. */
	stop_server(&servers[1]);
	begun = end_now_ms();
	choose(1);
	end_send(&me, 9, 0, 100);
	end_event(&me, HDL_CONN_CLOSED);
	assert_true(end_now_ms() - begun < 4000);
	struct hdl_wc wc;
	while (hdl_cq_poll(me.cq, &wc, 1) == 1)
		;
	leave(1);
	exchange(0, 77);

	/* The agent dies. The others take the sockets of the next one, and lose nothing. */
	pid_t before = agent_now();
	assert_true(before > 0);
	kill(before, SIGKILL);
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned i = 0; i < SERVERS; i += 2)
			exchange(i, (uint8_t)(100 + round * 8 + i));
	pid_t after = 0;
	for (uint64_t until = end_now_ms() + END_WAIT_MS;
	     (after == 0 || after == before) && end_now_ms() < until; usleep(1000))
		after = agent_now();
	assert_true(after > 0 && after != before);
	for (unsigned i = 0; i < SERVERS; i += 2)
		exchange(i, (uint8_t)(30 + i));
	start_server(&servers[1], 0); /* and newcomers find their way */
	connect_to(1);
	exchange(1, 55);
	for (unsigned i = 0; i < SERVERS; i++) {
		leave(i);
		stop_server(&servers[i]);
	}
	me.qp = spare;
	me.conn = NULL;
	end_close(&me);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ip9_one_udp_port_for_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
