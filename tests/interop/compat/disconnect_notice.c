/* One end of a connection over UDP ends in order in the moment in which its node agent is killed:
 * the other end hears of it all the same, through stock librdmacm. Each end is a process of its
 * own. The one that leaves stops its agent, which then reads nothing, says what it has to say,
 * kills the agent and ends. And one that is killed says nothing, but its agent speaks for it. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <rdma/rdma_cma.h>

/* Less than a request takes to be given up, and far more than an agent takes to be started on a
 * busy machine. */
#define LIMIT_MS 30000
#define PORT     7171

static struct rdma_event_channel *channel; /* an end's */
static char directories[2][32] = {"/tmp/heddle-leave-XXXXXX", "/tmp/heddle-leave-XXXXXX"};

/* What the one that leaves does before it ends. */
enum way { DISCONNECT_AND_DESTROY, DISCONNECT, DESTROY, NOTHING, REJECT, KILLED };

struct row {
	const char *name;
	enum way way;
	bool server_leaves;
	bool one_agent; /* which is that of both */
};

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "process %d: %s: %m\n", (int)getpid(), what);
	_exit(3);
}
#define NEED(ok) need(ok, #ok)

static struct rdma_cm_event *next_event(void)
{
	struct rdma_cm_event *event;
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
	NEED(poll(&ready, 1, LIMIT_MS) == 1);
	NEED(rdma_get_cm_event(channel, &event) == 0);
	return event;
}

static struct rdma_cm_id *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event();
	struct rdma_cm_id *id = event->id;
	if (event->event != type)
		fprintf(stderr, "%s (%d) in place of %s\n", rdma_event_str(event->event),
		        event->status, rdma_event_str(type));
	NEED(event->event == type);
	rdma_ack_cm_event(event);
	return id;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	NEED(rdma_create_qp(id, NULL, &attr) == 0);
}

/* Of the node: it is on the wire there, and that is its first GID. */
static struct in_addr own_address(void)
{
	int count;
	union ibv_gid gid;
	struct in_addr address;
	struct ibv_context **contexts = rdma_get_devices(&count);
	NEED(contexts != NULL && count > 0 && ibv_query_gid(contexts[0], 1, 0, &gid) == 0);
	rdma_free_devices(contexts);
	memcpy(&address, gid.raw + 12, sizeof(address));
	return address;
}

/* The request of the other, who hears over @talk where we listen. */
static struct rdma_cm_id *await_request(int talk)
{
	struct rdma_cm_id *listener;
	struct sockaddr_in here = {
	        .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr = own_address()};
	NEED(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
	NEED(rdma_bind_addr(listener, (struct sockaddr *)&here) == 0);
	NEED(rdma_listen(listener, 1) == 0);
	NEED(write(talk, &here, sizeof(here)) == sizeof(here));
	return expect(RDMA_CM_EVENT_CONNECT_REQUEST);
}

static void request(int talk)
{
	struct rdma_cm_id *id;
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct sockaddr_in there;
	NEED(read(talk, &there, sizeof(there)) == sizeof(there));
	NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	NEED(rdma_resolve_addr(id, NULL, (struct sockaddr *)&there, LIMIT_MS) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(rdma_resolve_route(id, LIMIT_MS) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(id);
	NEED(rdma_connect(id, &param) == 0);
}

/* Connected, on both sides: the agents have nothing more to do. */
static struct rdma_cm_id *connect_end(bool serves, int talk)
{
	struct rdma_conn_param param = {.rnr_retry_count = 7};
	char byte;
	if (serves) {
		struct rdma_cm_id *id = await_request(talk);
		make_qp(id);
		NEED(rdma_accept(id, &param) == 0);
	} else {
		request(talk);
	}
	struct rdma_cm_id *id = expect(RDMA_CM_EVENT_ESTABLISHED);
	NEED(write(talk, "", 1) == 1);
	NEED(read(talk, &byte, 1) == 1);
	return id;
}

static pid_t agent_of(const char *directory)
{
	char path[128];
	int pid = 0;
	snprintf(path, sizeof(path), "%s/agent.lock", directory);
	FILE *lock = fopen(path, "re");
	if (lock == NULL)
		return 0;
	if (fscanf(lock, "%d", &pid) != 1 || pid <= 1)
		pid = 0;
	fclose(lock);
	return pid;
}

static void leave(const struct row *row, const char *directory, int talk)
{
	channel = rdma_create_event_channel();
	NEED(channel != NULL);
	struct rdma_cm_id *id =
	        row->way == REJECT ? await_request(talk) : connect_end(row->server_leaves, talk);
	if (row->way == KILLED)
		raise(SIGKILL);
	pid_t agent = agent_of(directory);
	NEED(agent != 0 && kill(agent, SIGSTOP) == 0);
	if (row->way == REJECT)
		NEED(rdma_reject(id, NULL, 0) == 0);
	if (row->way == DISCONNECT_AND_DESTROY || row->way == DISCONNECT)
		NEED(rdma_disconnect(id) == 0);
	if (row->way == DISCONNECT_AND_DESTROY || row->way == DESTROY) {
		rdma_destroy_qp(id);
		NEED(rdma_destroy_id(id) == 0);
	}
	kill(agent, SIGKILL);
	__fpurge(stdout); /* what our parent has not written yet */
	exit(0);
}

static void stay(const struct row *row, int talk)
{
	channel = rdma_create_event_channel();
	NEED(channel != NULL);
	if (row->way == REJECT) {
		request(talk);
		expect(RDMA_CM_EVENT_REJECTED);
	} else {
		connect_end(!row->server_leaves, talk);
		expect(RDMA_CM_EVENT_DISCONNECTED);
	}
	_exit(0);
}

static pid_t start(const struct row *row, int own, int talk)
{
	const char *directory = directories[row->one_agent ? 0 : own];
	char node[16];
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(4 * LIMIT_MS / 1000);
	snprintf(node, sizeof(node), "leave-%d", own);
	setenv("HEDDLE_NODE", node, 1);
	setenv("HEDDLE_DIR", directory, 1);
	unsetenv("HEDDLE_ADDR");
	setenv("HEDDLE_LOCAL", "off", 1);
	if (own == 0)
		stay(row, talk);
	leave(row, directory, talk);
	_exit(3);
}

static void test_other_end_hears(void **state)
{
	static const struct row rows[] = {
	        {"client disconnects, destroys", DISCONNECT_AND_DESTROY, false, false},
	        {"client disconnects", DISCONNECT, false, false},
	        {"client destroys", DESTROY, false, false},
	        {"client ends", NOTHING, false, false},
	        {"client disconnects, destroys; one agent", DISCONNECT_AND_DESTROY, false, true},
	        {"client ends; one agent", NOTHING, false, true},
	        {"server disconnects, destroys", DISCONNECT_AND_DESTROY, true, false},
	        {"server ends", NOTHING, true, false},
	        {"server rejects", REJECT, true, false},
	        {"client is killed, not its agent", KILLED, false, false},
	        {"server is killed, not its agent", KILLED, true, false},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int talk[2], status[2];
		pid_t pids[2];
		print_message("%s\n", rows[i].name);
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk), 0);
		for (int own = 0; own < 2; own++)
			pids[own] = start(&rows[i], own, talk[own]);
		close(talk[0]);
		close(talk[1]);
		for (int own = 1; own >= 0; own--)
			assert_int_equal(waitpid(pids[own], &status[own], 0), pids[own]);
		assert_int_equal(status[1], rows[i].way == KILLED ? SIGKILL : 0);
		assert_int_equal(status[0], 0);
	}
}

static int begin(void **state)
{
	(void)state;
	return mkdtemp(directories[0]) != NULL && mkdtemp(directories[1]) != NULL ? 0 : -1;
}

static int end(void **state)
{
	static const char *const files[] = {"agent.lock", "agent.sock"};
	(void)state;
	for (int i = 0; i < 2; i++) {
		char path[128];
		pid_t agent = agent_of(directories[i]);
		if (agent != 0)
			kill(agent, SIGKILL);
		for (int j = 0; j < 2; j++) {
			snprintf(path, sizeof(path), "%s/%s", directories[i], files[j]);
			unlink(path);
		}
		rmdir(directories[i]);
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_other_end_hears)};
	return cmocka_run_group_tests(tests, begin, end);
}
