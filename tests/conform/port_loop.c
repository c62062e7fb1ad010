/* The loop ports: two adapters of one process joined by lanes in private memory, and one adapter that talks to itself.
 * Without threads the world's time is virtual and the fixture drives both sides. */
#include "adapter/adapter.h"

#include "conform.h"

static uint64_t virtual_now(void *context)
{
	return ((struct world *)context)->virtual_ns;
}

static int loop_open(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr,
                     bool by_target)
{
	struct hdl_open_attr wanted = *attr;
	wanted.no_thread = !w->port->threaded;
	struct adapter_env env = {.clock = w->port->threaded ? clock_real()
	                                                     : (struct clock){virtual_now, w},
	                          .by_target = by_target};
	return adapter_open(&wanted, &env, out);
}

static int open_direct(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr)
{
	return loop_open(w, out, attr, false);
}

static int open_by_target(struct world *w, struct hdl_adapter **out,
                          const struct hdl_open_attr *attr)
{
	return loop_open(w, out, attr, true);
}

static int loop_join(struct world *w, struct hdl_adapter *a, struct hdl_adapter *b)
{
	(void)w;
	return hdl_join(a, b);
}

/* Known to the node agent: the same two adapters as two processes would have them, with lanes and tables in shared memory
 * and the kernel's copy between them. */
static int open_on_node(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr)
{
	struct hdl_open_attr wanted = *attr;
	(void)w;
	wanted.on_node = true;
	return hdl_open(&wanted, out);
}

static int node_join(struct world *w, struct hdl_adapter *a, struct hdl_adapter *b)
{
	(void)w;
	(void)a;
	(void)b; /* the agent introduces them when a queue pair is connected */
	return 0;
}

#define PORT(port_name, open_function, alone, with_threads)                        \
	{                                                                          \
		.name = port_name, .one_adapter = alone, .threaded = with_threads, \
		.open = open_function, .join = loop_join, .kill = adapter_kill     \
	}

const struct port ports[] = {
        PORT("loop-direct", open_direct, false, false),
        PORT("loop-direct-threads", open_direct, false, true),
        PORT("loop-by-target", open_by_target, false, false),
        PORT("loop-by-target-threads", open_by_target, false, true),
        PORT("self", open_direct, true, false),
        PORT("self-threads", open_direct, true, true),
        PORT("self-by-target", open_by_target, true, false),
        {.name = "node",
         .one_address = true,
         .threaded = true,
         .open = open_on_node,
         .join = node_join,
         .kill = adapter_kill},
};
const size_t port_count = COUNT(ports);
