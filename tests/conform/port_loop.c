/* The loop ports: two adapters of one process joined by lanes in private memory, and one adapter
 * that talks to itself. Without threads the world's time is virtual and the fixture drives both
 * sides. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/net/cell_port.h"
#include "adapter/net/udp.h"

#include "conform.h"
#include "port_wire.h"

#define LOST_NS 100000000u /* a packet that has not arrived by then never will */

static uint64_t virtual_now(void *context)
{
	return ((struct world *)context)->virtual_ns;
}

bool conform_general(void)
{
	const char *fast = getenv("HEDDLE_FAST");
	return fast != NULL && strcmp(fast, "off") == 0;
}

static int loop_open(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr,
                     struct adapter_env env)
{
	struct hdl_open_attr wanted = *attr;
	wanted.no_thread = !w->port->threaded;
	wanted.capture = getenv("HEDDLE_CAPTURE");
	env.clock = w->port->threaded ? clock_real() : (struct clock){virtual_now, w};
	env.no_fast_path |= conform_general();
	return adapter_open(&wanted, &env, out);
}

static int open_direct(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr)
{
	return loop_open(w, out, attr, (struct adapter_env){0});
}

/* Long requests are executed in many turns. */
static int open_parts(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr)
{
	return loop_open(w, out, attr, (struct adapter_env){.turn_bytes = 3000});
}

/* No fast path is taken. */
static int open_general(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr)
{
	return loop_open(w, out, attr, (struct adapter_env){.no_fast_path = true});
}

static int open_by_target(struct world *w, struct hdl_adapter **out,
                          const struct hdl_open_attr *attr)
{
	return loop_open(w, out, attr, (struct adapter_env){.by_target = true});
}

static int open_by_value(struct world *w, struct hdl_adapter **out,
                         const struct hdl_open_attr *attr)
{
	return loop_open(w, out, attr, (struct adapter_env){.by_value = true});
}

static int loop_join(struct world *w, struct hdl_adapter *a, struct hdl_adapter *b)
{
	(void)w;
	return hdl_join(a, b);
}

/* Registered with the node agent: the same two adapters as two processes would have them, with
 * lanes and tables in shared memory and the kernel's copy between them. */
static int open_on_node(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr)
{
	struct hdl_open_attr wanted = *attr;
	(void)w;
	wanted.on_node = true;
	return hdl_open(&wanted, out);
}

/* Over UDP, each on its own node with a loopback address. Nodes of other agents on this machine
 * with the same name would want the same address. */
static int open_on_udp(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr)
{
	static unsigned opened;
	char node[32];
	snprintf(node, sizeof(node), "conform-%u-%d", opened++ % 3, (int)getpid());
	struct hdl_open_attr wanted = *attr;
	wanted.on_node = true;
	wanted.node = node;
	wanted.cells = w->port->cells;
	setenv("HEDDLE_LOCAL", "off", 1);
	return hdl_open(&wanted, out);
}

/* Packets that were sent and have not arrived. */
static int64_t udp_missing(struct hdl_adapter *adapter)
{
	int64_t missing = 0;
	adapter_lock(adapter);
	for (uint32_t i = 0; i < adapter->net.port_count; i++) {
		struct net_port *port = adapter->net.ports[i];
		const struct udp_wire *wire = udp_wire_of(port);
		const struct cell_port *cells = cell_port_of(port);
		missing += port->ops == &cell_port_ops
		                   ? (int64_t)cells->sent - (int64_t)cells->received
		                   : (int64_t)wire->counts.sent - (int64_t)wire->counts.received;
	}
	adapter_unlock(adapter);
	return missing;
}

/* The kernel usually delivers packets on the same machine immediately, but not if it is busy. */
static bool udp_is_busy(struct world *w)
{
	if (w->a.adapter == NULL || w->b.adapter == NULL)
		return false; /* the counters of an adapter that is gone are not known */
	int64_t missing = udp_missing(w->a.adapter) + udp_missing(w->b.adapter);
	if (missing != w->missing)
		w->missing_ns = world_now(w);
	w->missing = missing;
	if (missing <= 0 || world_now(w) - w->missing_ns > LOST_NS)
		return false;
	struct timespec moment = {.tv_nsec = 20000};
	nanosleep(&moment, NULL);
	return true;
}

/* Connect @qp to @peer of the adapter @to, which makes the agent introduce them. */
static int meet(struct hdl_qp *qp, struct hdl_adapter *to, struct hdl_qp *peer)
{
	struct hdl_limits limits;
	hdl_adapter_query(to, &limits);
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT, .port_num = 1};
	int result = hdl_qp_modify(qp, &attr,
	                           HDL_QP_STATE | HDL_QP_PORT | HDL_QP_ACCESS | HDL_QP_PKEY_INDEX);
	attr = (struct hdl_qp_attr){.state = HDL_QPS_RTR,
	                            .path_mtu = 1024,
	                            .dest_qpn = hdl_qp_number(peer),
	                            .ah = {.dgid = limits.gid, .port_num = 1}};
	return result != 0 ? result
	                   : hdl_qp_modify(qp, &attr,
	                                   HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU |
	                                           HDL_QP_DEST_QPN | HDL_QP_RQ_PSN);
}

/* Processes meet when they first communicate, each in its own time; the behaviours want that to be
 * over before they begin. */
static int node_join(struct world *w, struct hdl_adapter *a, struct hdl_adapter *b)
{
	struct hdl_adapter *adapters[2] = {a, b};
	struct hdl_pd *pds[2];
	struct hdl_cq *cqs[2];
	struct hdl_qp *qps[2];
	int result = 0;
	(void)w;
	for (int i = 0; i < 2; i++) {
		result |= hdl_pd_create(adapters[i], &pds[i]);
		result |= hdl_cq_create(adapters[i], 1, NULL, NULL, &cqs[i]);
		struct hdl_qp_init_attr init = {
		        .type = HDL_QP_UC, .send_cq = cqs[i], .recv_cq = cqs[i]};
		result |= hdl_qp_create(pds[i], &init, &qps[i]);
	}
	if (result == 0)
		result = meet(qps[0], b, qps[1]) | meet(qps[1], a, qps[0]);
	for (int i = 0; i < 2 && result == 0; i++)
		result = hdl_qp_destroy(qps[i]) | hdl_cq_destroy(cqs[i]) | hdl_pd_destroy(pds[i]);
	return result;
}

#define WIRE(port_name, alone, loses, of_cells)                                                \
	{                                                                                      \
		.name = port_name, .one_adapter = alone, .wire = true, .lossy = loses,         \
		.cells = of_cells, .open = wire_open, .join = wire_join, .kill = adapter_kill, \
		.carry = wire_carry, .is_busy = wire_is_busy, .end = wire_end                  \
	}

#define PORT(port_name, open_function, alone, with_threads)                                \
	{                                                                                  \
		.name = port_name, .one_adapter = alone, .threaded = with_threads,         \
		.in_turns = open_function == open_direct || open_function == open_parts || \
		            open_function == open_general,                                 \
		.open = open_function, .join = loop_join, .kill = adapter_kill             \
	}

const struct port ports[] = {
        PORT("loop-direct", open_direct, false, false),
        PORT("loop-direct-threads", open_direct, false, true),
        PORT("loop-parts", open_parts, false, false),
        PORT("loop-general", open_general, false, false),
        PORT("loop-general-threads", open_general, false, true),
        PORT("loop-by-target", open_by_target, false, false),
        PORT("loop-by-target-threads", open_by_target, false, true),
        PORT("loop-by-value", open_by_value, false, false),
        PORT("loop-by-value-threads", open_by_value, false, true),
        PORT("self", open_direct, true, false),
        PORT("self-threads", open_direct, true, true),
        PORT("self-general", open_general, true, false),
        PORT("self-by-target", open_by_target, true, false),
        WIRE("wire", false, false, false),
        WIRE("wire-lossy", false, true, false),
        WIRE("wire-self", true, false, false),
        WIRE("cells", false, false, true),
        WIRE("cells-lossy", false, true, true),
        WIRE("cells-self", true, false, true),
        {.name = "tcp",
         .stream = true,
         .sockets = true,
         .open = tcp_open,
         .join = stream_join,
         .attach = tcp_attach,
         .kill = tcp_kill,
         .carry = tcp_carry,
         .end = tcp_end},
        {.name = "stream",
         .stream = true,
         .open = stream_open,
         .join = stream_join,
         .attach = stream_attach,
         .kill = stream_kill,
         .carry = stream_carry,
         .end = stream_end},
        {.name = "messages",
         .stream = true,
         .messages = true,
         .open = stream_open,
         .join = stream_join,
         .attach = stream_attach,
         .kill = stream_kill,
         .carry = stream_carry,
         .end = stream_end},
        {.name = "node",
         .one_address = true,
         .threaded = true,
         .open = open_on_node,
         .join = node_join,
         .kill = adapter_kill},
        {.name = "udp",
         .wire = true,
         .threaded = true,
         .open = open_on_udp,
         .join = wire_join,
         .kill = adapter_kill,
         .is_busy = udp_is_busy},
        {.name = "udp-cells",
         .wire = true,
         .cells = true,
         .threaded = true,
         .open = open_on_udp,
         .join = wire_join,
         .kill = adapter_kill,
         .is_busy = udp_is_busy},
        {.name = "node-mapped",
         .one_address = true,
         .mapped = true,
         .threaded = true,
         .open = open_on_node,
         .join = node_join,
         .kill = adapter_kill},
};
const size_t port_count = COUNT(ports);
