/* 'vswitch': a random network of virtual switches, sometimes of hundreds, carries requests along
 * routes of every kind: shortest ways, random walks with loops, ways that lead nowhere; some
 * clients forge their APID. Links lose, damage, duplicate and reorder packets, links are cut and
 * healed, switches and clients die; and again without faults. Meanwhile one application discovers
 * the network. switching_check.c judges. */
#include "switching.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "fabric/topology_map.h"
#include "guard.h"
#include "wire/be.h"

#define HEADER_BYTES  7u /* node (2), port (1), CRC-32C of these (4) */
#define TIMEOUT_NS    200000000u
#define SPREAD_NS     20000000u /* requests and faults begin in this time */
#define PROBE_NS      50000000u
#define PROBE_TRIES   6u
#define MAX_EVENTS    4000000u
#define MANY_SWITCHES 400u
#define FIRST_PROBE   0x80000000u

static void come(struct switching_world *world, uint32_t node, uint8_t inport, const void *bytes,
                 size_t length);

/* The packet leaves @node by @port. What the link is told about itself is protected: a switch does
 * not get the packets of another. */
static void leave(struct switching_world *world, uint32_t node, uint8_t port, const uint8_t *bytes,
                  size_t length)
{
	uint8_t frame[HEADER_BYTES + IBC_MAX_BYTES];
	uint32_t other;
	uint8_t other_port;
	if (!switches_beyond(&world->switches, node, port, &other, &other_port))
		return;
	be16_store(frame, (uint16_t)other);
	frame[2] = other_port;
	be32_store(frame + 3, crc32c(0, frame, 3));
	memcpy(frame + HEADER_BYTES, bytes, length);
	if (sim_send(world->sim, node % world->host_count, other % world->host_count, frame,
	             HEADER_BYTES + length) != 0)
		scenario_fail(world->run, "a packet of %zu bytes was refused", length);
}

static void receive(void *context, struct sim *sim, uint32_t host, uint32_t from,
                    const void *packet, size_t bytes)
{
	struct switching_world *world = context;
	const uint8_t *frame = packet;
	(void)sim;
	(void)host;
	(void)from;
	if (bytes < HEADER_BYTES || be32_load(frame + 3) != crc32c(0, frame, 3))
		return;
	uint32_t node = be16_load(frame);
	/* A port that is down hears nothing. */
	if (world->switches.at[node].states[frame[2]] == VSWITCH_PORT_UP)
		come(world, node, frame[2], frame + HEADER_BYTES, bytes - HEADER_BYTES);
}

/* --- applications --- */

/* An application sends @packet: out of @out_port, or by the route if that is -1. */
static void send_from(struct switching_world *world, uint32_t node, uint8_t apid, int out_port,
                      const struct ibc_packet *packet)
{
	uint8_t bytes[IBC_MAX_BYTES];
	size_t length = ibc_encode(packet, bytes, sizeof(bytes));
	if (length == 0)
		scenario_fail(world->run, "a packet cannot be encoded");
	else if (out_port < 0)
		come(world, node, apid, bytes, length);
	else if (!world->switches.dead[node])
		leave(world, node, (uint8_t)out_port, bytes, length);
}

static void probe(struct sim *sim, void *context, uint64_t arg)
{
	struct switching_world *world = context;
	struct discovery_packet out;
	(void)arg;
	while (discovery_next(&world->discovery, sim_now_ns(sim), &out))
		send_from(world, 0, SWITCHING_MANAGER_APID,
		          out.out_port == DISCOVERY_OWN_SWITCH ? -1 : out.out_port, &out.packet);
	uint64_t next_ns = discovery_deadline_ns(&world->discovery);
	if (next_ns != UINT64_MAX && sim_at(sim, next_ns, probe, world, 0) != 0)
		scenario_fail(world->run, "no room for a timer");
}

/* An answer to discovery: the next probes follow when the packet has been dealt with. */
static void manager_hears(struct switching_world *world, const struct ibc_packet *packet)
{
	discovery_receive(&world->discovery, packet);
	if (sim_at(world->sim, sim_now_ns(world->sim), probe, world, 0) != 0)
		scenario_fail(world->run, "no room for a timer");
}

/* The application of the request that came answers it the way it came. */
static void answer(struct switching_world *world, uint32_t node, uint8_t inport, uint8_t apid,
                   bool by_route, const struct ibc_packet *packet)
{
	bool read = packet->type == IBC_TYPE_READ_REQUEST;
	struct ibc_packet out = {.type = read ? IBC_TYPE_READ_RESPONSE : IBC_TYPE_WRITE_RESPONSE,
	                         .source_apid = apid,
	                         .dest_apid = packet->source_apid,
	                         .guid = packet->guid,
	                         .transaction = packet->transaction,
	                         .route = ibc_turn_around(&packet->route),
	                         .payload = packet->payload,
	                         .payload_bytes = packet->payload_bytes};
	bool direct = !by_route && vswitch_is_hardware(inport);
	send_from(world, node, apid, direct ? inport : -1, &out);
}

static void deliver(struct switching_world *world, uint32_t node, uint8_t inport, uint8_t apid,
                    bool by_route, const struct ibc_packet *packet)
{
	if (node == 0 && apid == SWITCHING_MANAGER_APID && packet->transaction >= FIRST_PROBE) {
		manager_hears(world, packet);
		return;
	}
	switching_check_delivery(world, node, inport, apid, packet);
	if ((packet->type == IBC_TYPE_READ_REQUEST || packet->type == IBC_TYPE_WRITE_REQUEST) &&
	    !world->run->failed)
		answer(world, node, inport, apid, by_route, packet);
}

/* A packet comes to @node through @inport. */
static void come(struct switching_world *world, uint32_t node, uint8_t inport, const void *bytes,
                 size_t length)
{
	struct switches_out out;
	struct ibc_packet packet;
	switches_take(&world->switches, node, inport, bytes, length, &out);
	bool rejected = out.decision.action == VSWITCH_REJECT;
	bool was_nack = ((const uint8_t *)bytes)[0] == (IBC_VERSION << 4 | IBC_TYPE_NACK);
	world->rejected += rejected && !was_nack;
	world->nacks += rejected && out.fate != SWITCHES_DROPPED;
	if (rejected && was_nack && out.fate != SWITCHES_DROPPED)
		scenario_fail(world->run, "a NACK was answered");
	if (out.fate == SWITCHES_LEAVES)
		leave(world, node, out.port, out.bytes, out.length);
	if (out.fate != SWITCHES_DELIVERED)
		return;
	if (ibc_decode(&packet, out.bytes, out.length) != IBC_OK) {
		scenario_fail(world->run, "a packet was delivered damaged");
		return;
	}
	/* The switch used a port of the route, instead of delivering at its end. */
	bool by_route = out.decision.action == VSWITCH_DELIVER &&
	                ((const uint8_t *)bytes)[1] != out.bytes[1];
	for (uint64_t left = out.applications; left != 0; left &= left - 1)
		deliver(world, node, inport, (uint8_t)__builtin_ctzll(left), by_route, &packet);
}

/* --- requests --- */

/* A walk through the network, now and then back or to nowhere. */
static void draw_walk(struct switching_world *world, uint32_t node, uint8_t inport,
                      struct ibc_route *route, uint32_t hops)
{
	for (uint32_t i = 0; i < hops; i++) {
		uint8_t port = 0, other_port;
		uint32_t other;
		for (unsigned tries = 0; tries < 64; tries++) {
			port = (uint8_t)prng_below(&world->prng, VSWITCH_HARDWARE_PORTS);
			if ((switches_beyond(&world->switches, node, port, &other, &other_port) &&
			     port != inport) ||
			    prng_chance(&world->prng, 2))
				break;
		}
		route->ports[route->hops++] = port;
		if (switches_beyond(&world->switches, node, port, &other, &other_port)) {
			node = other;
			inport = other_port;
		}
	}
}

static void draw_route(struct switching_world *world, struct switching_request *request)
{
	const struct switching_client *from = &world->clients[request->client];
	const struct switching_client *to =
	        &world->clients[prng_below(&world->prng, world->client_count)];
	struct topology_path path;
	struct ibc_route *route = &request->route;
	request->dest_apid = to->apid;
	request->out_port = -1;
	switch (prng_below(&world->prng, 8)) {
	case 0: /* anything */
		route->hops = (uint8_t)prng_below(&world->prng, IBC_MAX_HOPS + 1);
		for (unsigned i = 0; i < route->hops; i++)
			route->ports[i] = (uint8_t)prng_below(&world->prng, IBC_END_OF_ROUTE);
		break;
	case 1:
	case 2:
		draw_walk(world, from->node, from->apid, route,
		          (uint32_t)prng_below(&world->prng, IBC_MAX_HOPS + 1));
		break;
	default:
		if (to->node == from->node ||
		    !topology_route(&world->topology, from->node, to->node, &path))
			break;                        /* to the own node */
		if (prng_chance(&world->prng, 500)) { /* the application names the port */
			request->out_port = path.out_port;
		} else if (path.hops < IBC_MAX_HOPS) {
			route->ports[route->hops++] = path.out_port;
		}
		memcpy(route->ports + route->hops, path.ports, path.hops);
		route->hops = (uint8_t)(route->hops + path.hops);
		if (route->hops < IBC_MAX_HOPS && prng_chance(&world->prng, 200))
			route->ports[route->hops++] = to->apid; /* the route ends in it */
		break;
	}
	if (prng_chance(&world->prng, 50))
		request->dest_apid = (uint8_t)(32 + prng_below(&world->prng, 31));
}

static void time_out(struct sim *sim, void *context, uint64_t number)
{
	struct switching_world *world = context;
	struct switching_request *request = &world->requests[number];
	(void)sim;
	if (request->end != SWITCHING_OPEN)
		return;
	request->end = SWITCHING_TIMEOUT;
	switching_check_end(world, request);
}

static void send_request(struct sim *sim, void *context, uint64_t number)
{
	struct switching_world *world = context;
	struct switching_request *request = &world->requests[number];
	const struct switching_client *client = &world->clients[request->client];
	struct ibc_packet packet = {.type = request->type,
	                            .source_apid = request->source_apid,
	                            .dest_apid = request->dest_apid,
	                            .transaction = (uint32_t)number,
	                            .route = request->route,
	                            .payload = request->payload,
	                            .payload_bytes = request->payload_bytes};
	if (sim_at(sim, sim_now_ns(sim) + TIMEOUT_NS, time_out, world, number) != 0)
		scenario_fail(world->run, "no room for a timer");
	if (client->alive)
		send_from(world, client->node, client->apid, request->out_port, &packet);
}

static void draw_requests(struct switching_world *world)
{
	world->request_count = 1 + (uint32_t)prng_below(&world->prng, SWITCHING_MAX_REQUESTS);
	for (uint32_t i = 0; i < world->request_count; i++) {
		struct switching_request *request = &world->requests[i];
		request->client = (uint32_t)prng_below(&world->prng, world->client_count);
		request->type =
		        (enum ibc_type)(IBC_TYPE_READ_REQUEST + prng_below(&world->prng, 3));
		request->payload_bytes =
		        (uint16_t)prng_below(&world->prng, SWITCHING_PAYLOAD_BYTES + 1);
		prng_fill(&world->prng, request->payload, request->payload_bytes);
		request->route.pointer = 1;
		draw_route(world, request);
		request->source_apid = world->clients[request->client].apid;
		if (prng_chance(&world->prng, 50)) /* it forges where it comes from */
			request->source_apid = (uint8_t)(32 + prng_below(&world->prng, 31));
		const struct switching_client *client = &world->clients[request->client];
		request->walk = switching_follow(&world->topology, client->node, client->apid,
		                                 request->out_port, &request->route);
		if (sim_at(world->sim, prng_below(&world->prng, SPREAD_NS), send_request, world,
		           i) != 0)
			scenario_fail(world->run, "no room for a timer");
	}
}

/* --- the network --- */

static void add_link(struct switching_world *world, uint32_t a, uint32_t b)
{
	struct topology *topology = &world->topology;
	uint8_t pa = (uint8_t)prng_below(&world->prng, VSWITCH_HARDWARE_PORTS);
	uint8_t pb = (uint8_t)prng_below(&world->prng, VSWITCH_HARDWARE_PORTS);
	unsigned end;
	if ((a == b && pa == pb) || topology_link_at(topology, a, pa, &end) >= 0 ||
	    topology_link_at(topology, b, pb, &end) >= 0)
		return;
	topology->links[topology->link_count++] = (struct topology_link){
	        .ends = {{.node = (uint16_t)a, .port = pa}, {.node = (uint16_t)b, .port = pb}}};
}

/* A tree, most of the time, and links between any two. */
static void draw_topology(struct switching_world *world)
{
	struct topology *topology = &world->topology;
	uint64_t most = prng_chance(&world->prng, 200) ? MANY_SWITCHES : 40;
	topology->node_count = 2 + (uint32_t)prng_below(&world->prng, most);
	for (uint32_t i = 0; i < topology->node_count; i++) {
		struct topology_node *node = &topology->nodes[i];
		node->id = 1000 + i;
		node->plain = i > 0 && prng_chance(&world->prng, 600);
		node->ports = UINT16_MAX;
		node->has_key = true; /* the key is all zeroes */
		for (uint8_t port = 0; port < VSWITCH_HARDWARE_PORTS; port++)
			node->nic_ports[port] = (struct vswitch_nic_port){
			        .guid = node->plain ? node->id : 1 + 4 * i + port / 4u,
			        .number = node->plain ? port : port % 4u};
	}
	for (uint32_t i = 1; i < topology->node_count; i++)
		if (!prng_chance(&world->prng, 20))
			add_link(world, i, (uint32_t)prng_below(&world->prng, i));
	uint64_t more = prng_below(&world->prng, 2 * topology->node_count);
	for (uint64_t i = 0; i < more; i++)
		add_link(world, (uint32_t)prng_below(&world->prng, topology->node_count),
		         (uint32_t)prng_below(&world->prng, topology->node_count));
	switches_init(&world->switches, topology);
}

static void draw_clients(struct switching_world *world)
{
	uint32_t wanted = 2 + (uint32_t)prng_below(&world->prng, SWITCHING_MAX_CLIENTS - 1);
	for (uint32_t i = 0; i < wanted; i++) {
		uint32_t node = (uint32_t)prng_below(&world->prng, world->topology.node_count);
		uint8_t apid = (uint8_t)(VSWITCH_GENERAL_FIRST + prng_below(&world->prng, 31));
		if (world->topology.nodes[node].plain)
			node = 0;
		if (world->switches.at[node].states[apid] == VSWITCH_PORT_UP)
			continue;
		world->switches.at[node].states[apid] = VSWITCH_PORT_UP;
		world->clients[world->client_count++] =
		        (struct switching_client){.node = node, .apid = apid, .alive = true};
	}
	world->switches.at[0].states[SWITCHING_MANAGER_APID] = VSWITCH_PORT_UP;
}

/* A link is cut or healed, a switch or a client dies: which one is drawn when it happens. */
static void fault(struct sim *sim, void *context, uint64_t arg)
{
	struct switching_world *world = context;
	uint32_t link, node;
	(void)sim;
	switch (arg % 4) {
	case 0:
	case 1:
		if (world->topology.link_count == 0)
			return;
		link = (uint32_t)prng_below(&world->prng, world->topology.link_count);
		switches_set_link(&world->switches, link, arg % 4 == 1);
		break;
	case 2: /* any but the one that discovers */
		node = 1 + (uint32_t)prng_below(&world->prng, world->topology.node_count - 1);
		world->switches.dead[node] = true;
		break;
	default: {
		struct switching_client *client =
		        &world->clients[prng_below(&world->prng, world->client_count)];
		client->alive = false;
		world->switches.at[client->node].states[client->apid] = VSWITCH_PORT_ABSENT;
		break;
	}
	}
}

static void draw_faults(struct switching_world *world)
{
	uint64_t faults = world->faultless ? 0 : prng_below(&world->prng, 12);
	for (uint64_t i = 0; i < faults; i++)
		if (sim_at(world->sim, prng_below(&world->prng, 2 * SPREAD_NS), fault, world,
		           prng_next(&world->prng)) != 0)
			scenario_fail(world->run, "no room for a timer");
	for (uint32_t from = 0; from < world->host_count; from++)
		for (uint32_t to = 0; to < world->host_count; to++) {
			struct sim_link link = {.delay_min_ns = 100,
			                        .delay_max_ns =
			                                100 + prng_below(&world->prng, 20000)};
			if (!world->faultless && prng_chance(&world->prng, 300)) {
				link.loss_permille = (uint32_t)prng_below(&world->prng, 100);
				link.duplicate_permille = (uint32_t)prng_below(&world->prng, 50);
				link.flip_permille = (uint32_t)prng_below(&world->prng, 100);
				link.flip_bits_max = 3;
				link.truncate_permille = (uint32_t)prng_below(&world->prng, 20);
				link.reorder_permille = (uint32_t)prng_below(&world->prng, 100);
				link.reorder_ns = 50000;
			}
			if (sim_link_set(world->sim, from, to, &link) != 0)
				scenario_fail(world->run, "a link is not valid");
		}
}

static void judge(struct switching_world *world)
{
	uint32_t ends[SWITCHING_ENDS] = {0};
	for (uint32_t i = 0; i < world->request_count; i++) {
		ends[world->requests[i].end]++;
		if (world->requests[i].end == SWITCHING_OPEN)
			scenario_fail(world->run, "request %u has no end", i);
	}
	if (world->nacks > world->rejected)
		scenario_fail(world->run, "more NACKs than packets that were rejected");
	switching_check_map(world);
	if (world->run->trace)
		printf("  %u nodes, %u links, map %u and %u; %u responses, %u NACKs, %u "
		       "time-outs\n",
		       world->topology.node_count, world->topology.link_count,
		       world->map.node_count, world->map.link_count, ends[SWITCHING_RESPONSE],
		       ends[SWITCHING_NACK], ends[SWITCHING_TIMEOUT]);
}

static void play_half(struct scenario_run *run, bool faultless)
{
	struct switching_world *world = calloc(1, sizeof(*world));
	if (world == NULL) {
		scenario_fail(run, "no memory");
		return;
	}
	world->run = run;
	world->faultless = faultless;
	prng_seed(&world->prng, run->seed * 2 + faultless);
	draw_topology(world);
	draw_clients(world);
	world->host_count = world->topology.node_count < SIM_MAX_HOSTS ? world->topology.node_count
	                                                               : SIM_MAX_HOSTS;
	struct sim_config config = {.seed = prng_next(&world->prng),
	                            .host_count = world->host_count,
	                            .event_capacity = 8192,
	                            .packet_capacity = 8192,
	                            .packet_bytes = HEADER_BYTES + IBC_MAX_BYTES};
	int error = sim_create(&config, &world->sim);
	if (error != 0) {
		scenario_fail(run, "sim_create: %d", error);
	} else {
		struct sim_host_ops ops = {.receive = receive};
		struct discovery_config probing = {.source_apid = SWITCHING_MANAGER_APID,
		                                   .transaction = FIRST_PROBE,
		                                   .tries = PROBE_TRIES,
		                                   .timeout_ns = PROBE_NS,
		                                   .key_count = 1};
		sim_set_trace(world->sim, scenario_print, run);
		for (uint32_t host = 0; host < world->host_count; host++)
			sim_host_attach(world->sim, host, &ops, world);
		draw_faults(world);
		draw_requests(world);
		discovery_begin(&world->discovery, &world->map, &probing);
		sim_at(world->sim, prng_below(&world->prng, SPREAD_NS), probe, world, 0);
		if (guard_sim_run(world->sim, SIM_FOREVER, MAX_EVENTS) != SIM_STOP_IDLE)
			scenario_fail(run, "not at rest after %u events", MAX_EVENTS);
		judge(world);
		run->hash = sim_fold(run->hash, sim_hash(world->sim));
	}
	sim_destroy(world->sim);
	free(world);
}

static void run_switching(struct scenario_run *run)
{
	run->hash = SIM_FOLD_START;
	play_half(run, false);
	play_half(run, true);
}

extern const struct scenario scenario_switching;
const struct scenario scenario_switching = {
        .name = "vswitch",
        .purpose = "packets follow their routes, ways back lead back, every request ends",
        .run = run_switching,
        .test_seeds = 100,
        .twice = 5,
};
