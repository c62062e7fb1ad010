/* The split driver: frames between a host and an I/O unit, each of which pushes into memory that
 * the other one has offered. `heddle tap' is such a pair, with network interfaces. Here both ends
 * are in one process, and take turns; a real end waits for the descriptors of its port
 * (hdl_epoll_wait()) whenever hdl_push_run() has returned 0. */
#include <heddle/push.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES 1514u

struct end {
	const char *name;
	struct hdl_adapter *adapter;
	struct hdl_push_port *port;
	struct hdl_push *push; /* NULL: not connected */
	unsigned received;
};

static void must(int result)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s\n", hdl_strerror(result));
	exit(1);
}

/* The unit offers two pools: one for frames to the port of a server, and one for all others. */
static const char *accept_host(void *context, const char *name, struct hdl_push_terms *terms)
{
	(void)context;
	printf("unit: %s connects\n", name);
	terms->pool_count = 2;
	terms->pools[0] = (struct hdl_push_pool){.elements = 64, .element_bytes = FRAME_BYTES};
	terms->pools[1] =
	        (struct hdl_push_pool){.elements = 64, .element_bytes = FRAME_BYTES, .port = 80};
	return NULL; /* or a sentence that says why not */
}

static void opened(void *context, struct hdl_push *push)
{
	((struct end *)context)->push = push;
}

static void closed(void *context, struct hdl_push *push, const char *why)
{
	struct end *end = context;
	(void)push;
	printf("%s: %s\n", end->name, why);
	end->push = NULL;
}

/* A frame, where the other end has written it. */
static bool deliver(void *context, struct hdl_push *push, const uint8_t *frame, uint32_t bytes)
{
	struct end *end = context;
	struct hdl_push_indication at = {0};
	hdl_push_indicated(push, &at);
	printf("%s: %u bytes in element %u of pool %u: \"%s\"\n", end->name, bytes, at.element,
	       at.pool, (const char *)frame + 14);
	end->received++;
	return true; /* false: not now; call hdl_push_deliver() later */
}

/* The other end asks for an item of configuration, or sets it. */
static void configure(void *context, struct hdl_push *push, const struct hdl_push_cfg *request,
                      struct hdl_push_cfg *reply)
{
	(void)context;
	(void)push;
	reply->has_value = request->code == 0; /* a get */
	reply->mtu = 1500;
}

static void configured(void *context, struct hdl_push *push, uint64_t token,
                       const struct hdl_push_cfg *reply)
{
	(void)push;
	(void)token;
	if (reply != NULL && reply->code == HDL_PUSH_CFG_OK)
		printf("%s: the MTU is %u\n", ((struct end *)context)->name, reply->mtu);
}

static const struct hdl_push_ops ops = {accept_host, opened,    closed,
                                        deliver,     configure, configured};

static struct end host = {.name = "host"}, unit = {.name = "unit"};

static void turn(void)
{
	hdl_push_run(host.port);
	hdl_push_run(unit.port);
}

/* The frame is put where it leaves from; one write brings it to the other end. */
static void send_text(const struct end *from, const char *text)
{
	uint8_t *frame;
	while ((frame = hdl_push_take(from->push)) == NULL)
		turn(); /* no element is free at the other end */
	memset(frame, 0, 60);
	snprintf((char *)frame + 14, 46, "%s", text);
	hdl_push_send(from->push, 60);
}

static void open_end(struct end *end, uint16_t service)
{
	struct hdl_open_attr attr = {.on_node = true};
	int fds[HDL_PUSH_FDS];
	must(hdl_open(&attr, &end->adapter));
	must(hdl_push_open(end->adapter, service, &ops, end, fds, &end->port));
}

static void close_end(struct end *end)
{
	hdl_push_shut(end->port);
	hdl_close(end->adapter);
	hdl_push_free(end->port);
}

int main(void)
{
	struct hdl_push_terms terms = {
	        .host_owns = true, .unit_owns = true, .frame_bytes = FRAME_BYTES};
	const struct hdl_push_cfg mtu = {.item = HDL_PUSH_CFG_MTU};
	struct hdl_limits limits;
	struct hdl_push *push;
	open_end(&host, 0);
	open_end(&unit, HDL_PUSH_SERVICE);
	must(hdl_adapter_query(unit.adapter, &limits));
	must(hdl_push_connect(host.port, &limits.gid, HDL_PUSH_SERVICE, "example", &terms, &push));
	while (host.push == NULL || unit.push == NULL)
		turn();
	hdl_push_configure(host.push, &mtu, 0);
	send_text(&host, "to the unit");
	send_text(&unit, "to the host");
	while (host.received < 1 || unit.received < 1)
		turn();
	hdl_push_close(host.push); /* gives back all pools first */
	while (host.push != NULL || unit.push != NULL)
		turn();
	close_end(&host);
	close_end(&unit);
	return 0;
}
