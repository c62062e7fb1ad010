/* The port 'tcp': as 'stream', but each connection is a TCP socket on the loopback and a connection
 * of the adapter (adapter/net/conn.c). Only the set-up is left out: the queue pairs are connected
 * already. Time is virtual, and what the kernel carries arrives soon. */
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"
#include "port/tcp.h"

#include "port_wire.h"

#define TCP_IRD 8u

#define TCP_QUIET    3u /* looks in a row that find nothing */
#define TCP_ADAPTERS 64u

/* The adapters of the world; those that were killed are NULL. */
struct tcp_net {
	pthread_mutex_t turn;
	struct hdl_adapter *adapters[TCP_ADAPTERS];
	size_t count;
};

static struct world *tcp_world; /* adapters are killed without saying in which */

static uint64_t tcp_now(void *context)
{
	return ((struct world *)context)->virtual_ns;
}

int tcp_open(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr)
{
	struct hdl_open_attr wanted = *attr;
	struct adapter_env env = {.clock = {tcp_now, w}};
	tcp_world = w;
	if (w->net == NULL) {
		w->net = calloc(1, sizeof(struct tcp_net));
		assert_non_null(w->net);
		pthread_mutex_init(&((struct tcp_net *)w->net)->turn, NULL);
	}
	struct tcp_net *net = w->net;
	wanted.no_thread = true;
	int result = adapter_open(&wanted, &env, out);
	assert_true(net->count < TCP_ADAPTERS);
	if (result == 0)
		net->adapters[net->count++] = *out;
	return result;
}

/* Let every adapter take what has arrived, until nothing comes any more. */
unsigned tcp_carry(struct world *w)
{
	struct tcp_net *net = w->net;
	unsigned did = 0;
	if (pthread_mutex_trylock(&net->turn) != 0)
		return 0;
	for (unsigned quiet = 0; quiet < TCP_QUIET;) {
		unsigned some = 0;
		for (size_t i = 0; i < net->count; i++)
			if (net->adapters[i] != NULL)
				some += (unsigned)hdl_progress(net->adapters[i]) > 0;
		quiet = some > 0 ? 0 : quiet + 1;
		did += some;
	}
	pthread_mutex_unlock(&net->turn);
	return did;
}

void tcp_kill(struct hdl_adapter *adapter)
{
	struct tcp_net *net = tcp_world->net;
	for (size_t i = 0; i < net->count; i++)
		if (net->adapters[i] == adapter)
			net->adapters[i] = NULL;
	adapter_kill(adapter);
}

void tcp_end(struct world *w)
{
	struct tcp_net *net = w->net;
	pthread_mutex_destroy(&net->turn);
	free(net);
}

/* The two ends of one TCP connection. */
static void tcp_pair(int socks[2])
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(own);
	int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socks[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listening, (struct sockaddr *)&own, sizeof(own)), 0);
	assert_int_equal(listen(listening, 1), 0);
	assert_int_equal(getsockname(listening, (struct sockaddr *)&own, &bytes), 0);
	assert_int_equal(connect(socks[0], (struct sockaddr *)&own, sizeof(own)), 0);
	socks[1] = accept(listening, NULL, NULL);
	assert_true(socks[1] >= 0);
	close(listening);
	assert_int_equal(tcp_adopt(socks[0]), 0);
	assert_int_equal(tcp_adopt(socks[1]), 0);
}

static void tcp_begin(struct hdl_qp *qp, int sock)
{
	struct hdl_adapter *adapter = qp->pd->adapter;
	const struct iwarp_terms terms = {.crc = true,
	                                  .initiator = true,
	                                  .ird = TCP_IRD,
	                                  .ord = TCP_IRD,
	                                  .segment = tcp_segment(sock)};
	adapter_lock(adapter);
	struct tcp_port *port = tcp_port_of(adapter);
	assert_non_null(port);
	struct hdl_conn *conn = conn_new(port, sock);
	assert_non_null(conn);
	const struct iwarp_owner owner = conn_owner(conn);
	conn->orphan = true; /* no program has it: it ends with its queue pair */
	iwarp_begin(&adapter->engine, &qp->qp, &conn->iwarp, &terms, &owner);
	conn_up(conn);
	assert_int_equal(tcp_port_watch(port, sock, conn, NULL), 0);
	adapter_unlock(adapter);
}

void tcp_attach(struct world *w, struct hdl_qp *qa, struct hdl_qp *qb)
{
	int socks[2];
	(void)w;
	tcp_pair(socks);
	tcp_begin(qa, socks[0]);
	tcp_begin(qb, socks[1]);
}
