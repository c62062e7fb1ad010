/* The network of the 'wire' worlds: adapters that know each other by address and reach each other
 * by packets, sealed as RoCEv2's are, through a network that delays, loses, doubles, reorders,
 * damages and cuts, each world in its own way. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define SPARE_PACKETS    8u  /* room in the network that is not offered: packets are doubled */
#define PATIENT_PERMILLE 25u /* with more loss than this a request may run out of retries */

/* In a striped world each host is two of the simulator's, one a line; what a packet's source port
 * says is which line it takes. A partition is of the first line alone. */
static uint32_t line_of(const struct world *w, const struct path *path)
{
	return w->striped && (path->ip.src_port & IB_ALTERNATE_PORT) != 0 ? WORLD_MAX_HOSTS : 0;
}

int wire_stall(struct world *w, uint32_t index, uint64_t until_ns)
{
	int error = sim_stall(w->sim, index, until_ns);
	return error == 0 && w->striped ? sim_stall(w->sim, index + WORLD_MAX_HOSTS, until_ns)
	                                : error;
}

void wire_wake(struct world *w, uint32_t index)
{
	sim_wake(w->sim, index);
	if (w->striped)
		sim_wake(w->sim, index + WORLD_MAX_HOSTS);
}

void wire_kill(struct world *w, uint32_t index)
{
	sim_kill(w->sim, index, SIM_DEATH_PROCESS);
	if (w->striped)
		sim_kill(w->sim, index + WORLD_MAX_HOSTS, SIM_DEATH_PROCESS);
}

uint32_t wire_stripe(const struct world *w, const struct conn *conn, struct hdl_qp_attr *attr)
{
	if (!w->striped)
		return 0;
	attr->stripe = (uint16_t)(16u << conn->psn[0] % 5); /* at both ends alike */
	attr->alt_ah = attr->ah;
	attr->alt_port_num = 1;
	return HDL_QP_ALT_PATH | HDL_QP_STRIPE;
}

/* --- what the network is like --- */

static uint32_t draw_rate(struct world *w, uint32_t most)
{
	uint32_t rate = world_draw(w, most + 1);
	return world_chance(w, 300) ? 0 : rate;
}

/* Nothing goes wrong; little; much; or one thing, often. */
static void draw_faults(struct world *w, struct sim_link *link)
{
	uint32_t *const rates[] = {&link->loss_permille, &link->duplicate_permille,
	                           &link->reorder_permille, &link->flip_permille,
	                           &link->truncate_permille};
	static const uint32_t little[] = {8, 20, 30, 4, 4}, much[] = {200, 100, 200, 50, 20};
	uint32_t kind = world_draw(w, 10);
	link->reorder_ns = 1 + world_draw(w, 60000);
	link->flip_bits_max = 1 + world_draw(w, 8);
	for (uint32_t i = 0; i < 5 && kind >= 2 && kind < 8; i++)
		*rates[i] = draw_rate(w, kind < 5 ? little[i] : much[i]);
	if (kind >= 8) {
		uint32_t which = world_draw(w, 5);
		*rates[which] = world_draw(w, 300);
	}
	if (link->loss_permille + link->flip_permille + link->truncate_permille >
	            PATIENT_PERMILLE ||
	    link->reorder_permille > PATIENT_PERMILLE)
		w->loses = true;
}

void wire_draw(struct world *w)
{
	struct sim_link *link = &w->link;
	link->delay_min_ns = world_draw(w, 5000);
	link->delay_max_ns =
	        link->delay_min_ns + world_draw(w, world_chance(w, 500) ? 1000 : 20000);
	draw_faults(w, link);
	if (world_chance(w, 200)) { /* a narrow link with a short queue in front of it */
		link->bandwidth_bps = 1000000000ull * (1 + world_draw(w, 20));
		link->queue_bytes = 20000 + world_draw(w, 200000);
		w->loses = true;
	}
	w->busy_permille = world_chance(w, 300) ? world_draw(w, 200) : 0;
	w->marked_permille = world_chance(w, 200) ? world_draw(w, 500) : 0;
	/* A sender of IPv4 does not tell the identification of its packets, so one damaged packet
	 * in 65,536 looks whole. */
	w->ipv4 = link->flip_permille == 0 && link->truncate_permille == 0 && world_chance(w, 400);
	if (world_chance(w, 300))
		w->faults |= FAULT_PARTITION;
	sim_link_set_all(w->sim, link);
	world_say(w,
	          "network: delay %lu to %lu ns, loss %u, double %u, late %u, flip %u, cut off %u, "
	          "%lu bit/s%s",
	          (unsigned long)link->delay_min_ns, (unsigned long)link->delay_max_ns,
	          link->loss_permille, link->duplicate_permille, link->reorder_permille,
	          link->flip_permille, link->truncate_permille, (unsigned long)link->bandwidth_bps,
	          w->ipv4 ? ", IPv4" : "");
}

void wire_heal(struct world *w)
{
	static const struct sim_link healthy = {.delay_min_ns = 1000, .delay_max_ns = 2000};
	sim_heal(w->sim);
	w->busy_permille = 0;
	if (w->loses || world_chance(w, 500))
		sim_link_set_all(w->sim, &healthy);
}

void wire_partition(struct world *w, struct host *host)
{
	uint64_t everybody = (1ull << w->host_count) - 1, alone = 1ull << host->index;
	bool harmless = !world_has(w, FAULT_RETRY); /* nobody may run out of retries */
	uint64_t ns = 1 + world_draw(w, !harmless && world_chance(w, 500) ? 4000000 : 300000);
	if (everybody == alone || (harmless && w->partitions > 0) ||
	    sim_partition(w->sim, alone, everybody & ~alone, world_now(w), world_now(w) + ns) != 0)
		return; /* there are enough of them */
	w->partitions++;
	world_say(w, "host %u is cut off for %lu ns", host->index, (unsigned long)ns);
}

/* --- packets --- */

static void say_packet(struct world *w, const struct host *host, const char *what,
                       const uint8_t *payload, size_t bytes)
{
	struct ib_packet p;
	if (!w->run->trace)
		return;
	if (bytes < IB_ICRC_BYTES ||
	    ib_transport_decode(&p, payload, bytes - IB_ICRC_BYTES) != IB_OK) {
		world_say(w, "    host %u %s something damaged", host->index, what);
		return;
	}
	world_say(w, "    host %u %s %s for 0x%06x, PSN 0x%06x, %zu bytes%s, AETH 0x%02x %u",
	          host->index, what, p.op->name, p.bth.dest_qp, p.bth.psn, p.payload_bytes,
	          p.bth.ack_request ? ", AckReq" : "",
	          p.headers & IB_HAS_AETH ? p.aeth.syndrome : 0,
	          p.headers & IB_HAS_AETH ? p.aeth.msn : 0);
}

static void out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct host *from = context;
	struct world *w = from->world;
	uint8_t data[CABLE_BYTES];
	struct path marked = *path;
	if (world_chance(w, w->marked_permille))
		marked.ip.traffic_class |= 3; /* congestion experienced */
	size_t all = cable_pack(data, &marked, payload, bytes);
	say_packet(w, from, "sends", payload, bytes);
	for (uint32_t i = 0; i < w->host_count; i++)
		if (w->hosts[i].adapter && memcmp(w->hosts[i].gid.raw, path->ip.dgid, 16) == 0)
			sim_send(w->sim, from->index + line_of(w, path), i + line_of(w, path), data,
			         all);
}

static bool room(void *context)
{
	struct host *host = context;
	struct world *w = host->world;
	return sim_in_flight(w->sim) + SPARE_PACKETS < WORLD_PACKETS &&
	       !world_chance(w, w->busy_permille);
}

static void arrive(void *context, struct sim *sim, uint32_t index, uint32_t from,
                   const void *packet, size_t bytes)
{
	struct world *w = context;
	struct host *host = &w->hosts[index % WORLD_MAX_HOSTS];
	const uint8_t *payload;
	struct path came;
	size_t payload_bytes;
	(void)sim;
	(void)from;
	if (!host->adapter || !cable_unpack(packet, bytes, &came, &payload, &payload_bytes))
		return;
	w->arrivals++;
	say_packet(w, host, "gets", payload, payload_bytes);
	adapter_take(host->adapter, &came, (came.ip.traffic_class & 3) == 3, payload,
	             payload_bytes);
}

/* --- hosts --- */

const struct carrier *wire_attach(struct world *w, struct host *host, struct hdl_open_attr *attr)
{
	struct sim_host_ops ops = {.receive = arrive};
	host->world = w;
	host->cable = malloc(sizeof(*host->cable));
	if (!host->cable)
		abort();
	cable_init(host->cable, out, room, host);
	sim_host_attach(w->sim, host->index, &ops, w);
	if (w->striped)
		sim_host_attach(w->sim, host->index + WORLD_MAX_HOSTS, &ops, w);
	if (w->ipv4)
		roce_gid_from_ipv4(attr->gid.raw, 0x0a000001 + host->index);
	return &host->cable->carrier;
}
