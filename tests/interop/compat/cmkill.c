/* Kill -9 in the middle of rdma_cm: a client connects and disconnects in a loop, one of the two is
 * killed. A client whose server dies must learn of it within a second, whatever it is doing; a
 * server whose client dies serves the next one at once. Compiled with the stock headers, run on
 * ours. Usage: cmkill ROUNDS [SEED]. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#define LIMIT_MS 1000

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	return rdma_create_qp(id, NULL, &attr);
}

static void drop(struct rdma_cm_id *id)
{
	if (id->qp != NULL)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

/* --- the server --- */

static void serve(int port_fd)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct sockaddr_in any = {.sin_family = AF_INET};
	if (channel == NULL || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_bind_addr(listener, (struct sockaddr *)&any) != 0 ||
	    rdma_listen(listener, 64) != 0)
		_exit(3);
	uint16_t port = ntohs(rdma_get_src_port(listener));
	if (write(port_fd, &port, sizeof(port)) != sizeof(port))
		_exit(3);
	for (struct rdma_cm_event *event; rdma_get_cm_event(channel, &event) == 0;) {
		struct rdma_cm_id *id = event->id;
		enum rdma_cm_event_type type = event->event;
		rdma_ack_cm_event(event);
		struct rdma_conn_param param = {.rnr_retry_count = 7};
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			/* The client may be dead by now: then accepting it fails, and it is
			 * forgotten. */
			if (make_qp(id) != 0 || rdma_accept(id, &param) != 0)
				drop(id);
		} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
			rdma_disconnect(id);
		} else if (type != RDMA_CM_EVENT_ESTABLISHED && id != listener) {
			drop(id);
		}
	}
	_exit(3);
}

/* --- the client --- */

/* Connect and disconnect once. False: the server is not there. */
static bool visit(uint16_t port)
{
	struct rdma_cm_id *id;
	struct sockaddr_in there = {.sin_family = AF_INET,
	                            .sin_port = htons(port),
	                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) != 0)
		_exit(3);
	bool ok = rdma_resolve_addr(id, NULL, (struct sockaddr *)&there, 2000) == 0 &&
	          rdma_resolve_route(id, 2000) == 0 && make_qp(id) == 0 &&
	          rdma_connect(id, &param) == 0;
	if (ok)
		ok = rdma_disconnect(id) == 0;
	drop(id);
	return ok;
}

static pid_t start_client(uint16_t port, bool once)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bool ok = visit(port);
	while (ok && !once)
		ok = visit(port);
	_exit(ok || !once ? 0 : 4);
}

static pid_t start_server(uint16_t *port)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		serve(ends[1]);
	}
	close(ends[1]);
	if (read(ends[0], port, sizeof(*port)) != sizeof(*port))
		pid = -1;
	close(ends[0]);
	return pid;
}

/* Wait for @pid for LIMIT_MS from @begin. Its status; -1 when it does not end. */
static int await(pid_t pid, double begin)
{
	int status;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (now_ms() - begin > LIMIT_MS) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			return -1;
		}
		usleep(200);
	}
	return status;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 50;
	srandom(argc > 2 ? (unsigned)atoi(argv[2]) : 1u);
	uint16_t port;
	double worst = 0;
	pid_t server = start_server(&port);
	for (int i = 0; i < rounds && server > 0; i++) {
		bool kill_server = random() % 2 == 0;
		pid_t client = start_client(port, false);
		usleep((useconds_t)(random() % (random() % 3 == 0 ? 40000 : 10000)));
		double begin = now_ms();
		kill(kill_server ? server : client, SIGKILL);
		waitpid(kill_server ? server : client, NULL, 0);
		if (!kill_server) {
			client = start_client(port, true);
			begin = now_ms();
		}
		int status = await(client, begin);
		double took = now_ms() - begin;
		if (status != 0) {
			printf("round %d: the client %s after the %s was killed (status %#x)\n", i,
			       status < 0 ? "was still there a second" : "failed",
			       kill_server ? "server" : "client before it", (unsigned)status);
			return 1;
		}
		worst = took > worst ? took : worst;
		if (kill_server)
			server = start_server(&port);
	}
	if (server <= 0)
		return 1;
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	printf("%d rounds of connecting: clients were done after %.1f ms at worst\n", rounds,
	       worst);
	return 0;
}
