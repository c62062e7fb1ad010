/* Two apertures of one process: a store through the mapped range appears in the memory of the
 * other end, and an event tells of it. Two programs on two machines would do the same. */
#include <heddle/aperture.h>
#include <heddle/eventq.h>
#include <stdio.h>
#include <stdlib.h>

#define must(call) must_be((call), #call)
static void must_be(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hdl_strerror(result));
	exit(1);
}

int main(void)
{
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	struct hdl_eventq *events;
	struct hdl_aperture *server, *client;
	struct hdl_limits limits;
	struct hdl_port_event event;
	void *range;
	must(hdl_open(&(struct hdl_open_attr){.on_node = true}, &adapter));
	must(hdl_adapter_query(adapter, &limits));
	must(hdl_port_open(adapter, NULL, &port));
	must(hdl_eventq_open(port, NULL, &events));
	struct hdl_aperture_attr attr = {.length = 4096, .port = port};
	must(hdl_aperture_open(adapter, &attr, &server));
	attr.port = NULL;
	must(hdl_aperture_open(adapter, &attr, &client));
	must(hdl_port_rules(port, &(struct hdl_port_rule){.action = HDL_RULE_ACCEPT}, 1));
	must(hdl_port_offer(port, server, NULL));
	must(hdl_aperture_connect(client, &limits.gid, hdl_port_number(port), 10000));

	must(hdl_aperture_map(client, 12, &range, NULL));
	((volatile char *)range)[100] = 42; /* an ordinary store */
	must(hdl_aperture_event(client, 0, NULL, 0, 10000));
	do
		must(hdl_eventq_wait(events, 10000));
	while (hdl_eventq_take(events, &event, 1) != 1 || event.type != HDL_PORT_DATA);
	const char *memory = hdl_aperture_memory(server, NULL);
	printf("the server's memory: %d\n", memory[100]);
	return memory[100] == 42 ? 0 : 1;
}
