/* The wire ports: adapters that reach each other by packets alone, which are sealed and checked as
 * in RoCEv2, without a socket. 'wire' and 'wire-self' carry them in order through a short queue;
 * 'wire-lossy' through a simulated network that delays, loses, duplicates, reorders and damages
 * them. Time is virtual. */
#include <pthread.h>
#include <stdlib.h>

#include "adapter/adapter.h"
#include "cable/cable.h"
#include "port/simnet.h"

#include "port_wire.h"

#define QUEUE_PACKETS 64u
#define LOSSY_PACKETS 512u
#define LOSSY_SEED    4791u
#define MAX_CABLES    16u /* adapters that one test opens */
#define EVERY_EVENT   UINT64_MAX

struct queued {
	size_t bytes;
	uint8_t data[CABLE_BYTES];
};

/* Senders insert packets while they hold their drive locks, so a thread that holds @lock must not
 * wait for a drive lock. */
struct network {
	pthread_mutex_t lock;
	pthread_mutex_t turn; /* held by the thread that delivers, to keep the order */
	struct sim *sim;      /* in front of the queue; NULL: none */
	uint32_t head, tail;
	struct queued queue[QUEUE_PACKETS + LOSSY_PACKETS];
	struct cable *cables[MAX_CABLES];
	uint32_t cable_count;
};

static uint64_t virtual_now(void *context)
{
	return ((struct world *)context)->virtual_ns;
}

static void enqueue(struct network *net, const void *data, size_t bytes)
{
	struct queued *at = &net->queue[net->tail++ % COUNT(net->queue)];
	at->bytes = bytes;
	memcpy(at->data, data, bytes);
}

static void out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct network *net = context;
	uint8_t data[CABLE_BYTES];
	size_t all = cable_pack(data, path, payload, bytes);
	pthread_mutex_lock(&net->lock);
	if (net->sim != NULL)
		sim_send(net->sim, 0, 1, data, all);
	else
		enqueue(net, data, all);
	pthread_mutex_unlock(&net->lock);
}

static bool room(void *context)
{
	struct network *net = context;
	pthread_mutex_lock(&net->lock);
	/* A packet may be duplicated on the way. */
	bool free = net->sim != NULL ? sim_in_flight(net->sim) + 2 < LOSSY_PACKETS
	                             : net->tail - net->head < QUEUE_PACKETS;
	pthread_mutex_unlock(&net->lock);
	return free;
}

/* Called inside sim_run(), with the lock. */
static void arrive(void *context, struct sim *sim, uint32_t host, uint32_t from, const void *packet,
                   size_t bytes)
{
	(void)sim;
	(void)host;
	(void)from;
	enqueue(context, packet, bytes);
}

static struct sim *make_sim(struct network *net)
{
	struct sim_config config = {.seed = LOSSY_SEED,
	                            .host_count = 2,
	                            .event_capacity = 4,
	                            .packet_capacity = LOSSY_PACKETS,
	                            .packet_bytes = CABLE_BYTES};
	struct sim_link link = {.delay_min_ns = 500,
	                        .delay_max_ns = 3000,
	                        .loss_permille = 20,
	                        .duplicate_permille = 20,
	                        .reorder_permille = 20,
	                        .reorder_ns = 8000,
	                        .flip_permille = 10,
	                        .flip_bits_max = 3};
	struct sim_host_ops ops = {.receive = arrive};
	struct sim *sim;
	assert_int_equal(sim_create(&config, &sim), 0);
	assert_int_equal(sim_link_set_all(sim, &link), 0);
	sim_host_attach(sim, 1, &ops, net);
	return sim;
}

static struct network *net_of(struct world *w)
{
	if (w->net == NULL) {
		struct network *net = calloc(1, sizeof(*net));
		assert_non_null(net);
		pthread_mutex_init(&net->lock, NULL);
		pthread_mutex_init(&net->turn, NULL);
		net->sim = w->port->lossy ? make_sim(net) : NULL;
		w->net = net;
	}
	return w->net;
}

int wire_open(struct world *w, struct hdl_adapter **out_adapter, const struct hdl_open_attr *attr)
{
	struct network *net = net_of(w);
	struct hdl_open_attr wanted = *attr;
	struct cable *cable = malloc(sizeof(*cable));
	assert_non_null(cable);
	assert_true(net->cable_count < MAX_CABLES);
	net->cables[net->cable_count++] = cable;
	cable_init(cable, out, room, net);
	wanted.no_thread = true;
	struct adapter_env env = {.clock = {virtual_now, w},
	                          .carrier = &cable->carrier,
	                          .cells = w->port->cells,
	                          .no_fast_path = conform_general()};
	return adapter_open(&wanted, &env, out_adapter);
}

/* An adapter is found by its address. */
int wire_join(struct world *w, struct hdl_adapter *a, struct hdl_adapter *b)
{
	(void)w;
	(void)a;
	(void)b;
	return 0;
}

static bool is_multicast(const uint8_t *gid)
{
	return gid[0] == 0xff || (roce_gid_is_ipv4(gid) && gid[12] >> 4 == 0xe);
}

static void deliver(struct world *w, const struct queued *packet)
{
	const struct side *sides[] = {&w->a, &w->b};
	const uint8_t *payload;
	struct path came;
	size_t bytes;
	if (!cable_unpack(packet->data, packet->bytes, &came, &payload, &bytes))
		return;
	for (size_t i = 0; i < COUNT(sides); i++) {
		struct hdl_adapter *adapter = sides[i]->adapter;
		if (adapter == NULL || (i == 1 && adapter == w->a.adapter))
			continue;
		if (is_multicast(came.ip.dgid) || memcmp(sides[i]->gid.raw, came.ip.dgid, 16) == 0)
			adapter_take(adapter, &came, false, payload, bytes);
	}
}

unsigned wire_carry(struct world *w)
{
	struct network *net = w->net;
	static _Thread_local struct queued packet;
	unsigned count = 0;
	if (pthread_mutex_trylock(&net->turn) != 0)
		return 0;
	for (;; count++) {
		pthread_mutex_lock(&net->lock);
		if (net->sim != NULL && net->head == net->tail)
			sim_run(net->sim, w->virtual_ns, EVERY_EVENT);
		bool some = net->head != net->tail;
		if (some) {
			const struct queued *at = &net->queue[net->head++ % COUNT(net->queue)];
			packet.bytes = at->bytes;
			memcpy(packet.data, at->data, at->bytes);
		}
		pthread_mutex_unlock(&net->lock);
		if (!some)
			break;
		deliver(w, &packet);
	}
	pthread_mutex_unlock(&net->turn);
	return count;
}

bool wire_is_busy(struct world *w)
{
	struct network *net = w->net;
	pthread_mutex_lock(&net->lock);
	bool busy = net->head != net->tail || (net->sim != NULL && sim_in_flight(net->sim) > 0);
	pthread_mutex_unlock(&net->lock);
	return busy;
}

void wire_end(struct world *w)
{
	struct network *net = w->net;
	for (uint32_t i = 0; i < net->cable_count; i++)
		free(net->cables[i]);
	sim_destroy(net->sim);
	pthread_mutex_destroy(&net->lock);
	pthread_mutex_destroy(&net->turn);
	free(net);
}
