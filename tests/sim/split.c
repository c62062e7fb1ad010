/* Worlds of hosts and a unit on the messaging layer, in virtual time from one seed. Hosts send
 * frames to each other through the unit, by every mode, model and owner of pools; channels are
 * slow, short and uneven, users stop and go, send mode loses, and ends die and come back.
 *
 * What is checked: a frame arrives at its destination once, unchanged, in the order of its sender;
 * on acknowledged channels nothing is missing between two deaths; no write leaves its pool; no
 * write finds no receive. HEDDLE_SEED=n runs one world. */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cable/splitnet.h"
#include "wire/be.h"

#define HOSTS    4u
#define WORLDS   150u
#define TURNS    4000u
#define MIN      24u
#define PATIENCE 2000u
#define LONGEST  1024u

struct world {
	struct prng prng;
	struct splitnet nets[HOSTS];
	struct split_config config[HOSTS][2];
	uint64_t sent[HOSTS][HOSTS];    /* number of the next frame, by sender and receiver */
	uint64_t awaited[HOSTS][HOSTS]; /* the next that may arrive */
	bool gap[HOSTS][HOSTS];  /* some may be missing before it: an end died, or send mode */
	uint32_t blocked[HOSTS]; /* refusals in a row */
	uint64_t delivered, deaths, refused, dropped;
};

static struct world world;

static void fill(uint8_t *frame, uint32_t bytes, uint32_t from, uint32_t to, uint64_t number)
{
	be32_store(frame, from);
	be32_store(frame + 4, to);
	be64_store(frame + 8, number);
	for (uint32_t i = 16; i < bytes; i++)
		frame[i] = (uint8_t)(number * 7 + from * 3 + i);
}

static uint32_t index_of(const struct splitnet_end *end)
{
	return (uint32_t)(end->net - world.nets);
}

/* The unit passes a frame on, as the switch of heddle tap does. */
static bool forward(struct splitnet_end *end, const uint8_t *frame, uint32_t bytes)
{
	assert(bytes >= MIN);
	uint32_t to = be32_load(frame + 4);
	assert(be32_load(frame) == index_of(end) && to < HOSTS);
	struct splitnet_end *out = &world.nets[to].end[SPLIT_UNIT];
	if (out->split.state == SPLIT_FAILED || out->dead)
		return true; /* the destination has gone */
	uint8_t *place = split_take(&out->split);
	if (place == NULL) {
		/* Two ends that wait for each other would wait for ever: as the unit of heddle tap,
		 * this one has patience, but not without end. */
		if (++world.blocked[to] < PATIENCE)
			return false;
		world.gap[index_of(end)][to] = true;
		world.dropped++;
		return true;
	}
	world.blocked[to] = 0;
	memcpy(place, frame, bytes);
	split_send(&out->split, bytes);
	return true;
}

/* A host gets a frame. */
static bool arrive(struct splitnet_end *end, const uint8_t *frame, uint32_t bytes)
{
	static uint8_t want[LONGEST];
	uint32_t from = be32_load(frame), to = index_of(end);
	uint64_t number = be64_load(frame + 8);
	assert(from < HOSTS && be32_load(frame + 4) == to);
	assert(number < world.sent[from][to]);
	assert(number >= world.awaited[from][to]); /* once, and in order */
	if (number != world.awaited[from][to])
		assert(world.gap[from][to]);
	fill(want, bytes, from, to, number);
	assert(memcmp(want, frame, bytes) == 0);
	world.awaited[from][to] = number + 1;
	world.delivered++;
	return true;
}

static void connect_host(uint32_t host)
{
	struct splitnet *net = &world.nets[host];
	splitnet_open(net, prng_next(&world.prng), world.config[host]);
	net->depth = 1 + (uint32_t)prng_below(&world.prng, 40);
	net->delay_ns[0] = prng_below(&world.prng, 20000);
	net->delay_ns[1] = prng_below(&world.prng, 20000);
	net->jitter_ns = prng_below(&world.prng, 10000) + 1;
	net->end[SPLIT_UNIT].take = forward;
	net->end[SPLIT_HOST].take = arrive;
	net->end[SPLIT_HOST].block_permille = (uint32_t)prng_below(&world.prng, 400);
	if (world.config[host][0].mode == SPLIT_SEND)
		net->loss_permille = (uint32_t)prng_below(&world.prng, 50);
}

/* Frames of and to @host may be missing from now on. */
static void allow_gaps(uint32_t host)
{
	for (uint32_t i = 0; i < HOSTS; i++)
		world.gap[host][i] = world.gap[i][host] = true;
}

static void make_world(uint64_t seed)
{
	memset(&world, 0, sizeof(world));
	prng_seed(&world.prng, seed);
	for (uint32_t h = 0; h < HOSTS; h++) {
		bool sends = prng_chance(&world.prng, 200);
		enum split_model model =
		        (enum split_model)prng_below(&world.prng, SPLIT_MODEL_COUNT);
		bool host_owns = prng_chance(&world.prng, 750);
		bool unit_owns = prng_chance(&world.prng, 750);
		bool by_message = prng_chance(&world.prng, 250);
		for (unsigned i = 0; i < 2; i++) {
			struct split_config *config = &world.config[h][i];
			*config = splitnet_config(i, sends ? SPLIT_SEND : SPLIT_RDMA, model,
			                          host_owns, unit_owns, LONGEST);
			config->slots = 1 + (uint32_t)prng_below(&world.prng, 32);
			config->plans[0].elements = 1 + (uint32_t)prng_below(&world.prng, 32);
			config->plans[1].elements = 1 + (uint32_t)prng_below(&world.prng, 32);
			config->by_message = by_message;
		}
		connect_host(h);
		if (sends)
			allow_gaps(h);
	}
}

/* One end dies; the other notices, and they connect again. */
static void kill_one(uint32_t host)
{
	struct splitnet *net = &world.nets[host];
	net->end[prng_below(&world.prng, 2)].dead = true;
	for (unsigned i = 0; i < 50 && splitnet_step(net); i++)
		splitnet_pump(net);
	world.refused += net->refused;
	net->event_count = 0;
	splitnet_close(net);
	allow_gaps(host);
	world.deaths++;
	connect_host(host);
}

static void send_some(uint32_t host)
{
	struct split *split = &world.nets[host].end[SPLIT_HOST].split;
	uint32_t to = (uint32_t)prng_below(&world.prng, HOSTS);
	uint32_t bytes = MIN + (uint32_t)prng_below(&world.prng, LONGEST - MIN + 1);
	uint8_t *frame = split_take(split);
	if (frame == NULL)
		return;
	fill(frame, bytes, host, to, world.sent[host][to]++);
	split_send(split, bytes);
}

static void run_world(uint64_t seed)
{
	make_world(seed);
	bool deadly = prng_chance(&world.prng, 500);
	for (unsigned turn = 0; turn < TURNS; turn++) {
		uint32_t host = (uint32_t)prng_below(&world.prng, HOSTS);
		struct splitnet *net = &world.nets[host];
		if (prng_chance(&world.prng, 500))
			send_some(host);
		splitnet_pump(net);
		if (!splitnet_step(net))
			net->now_ns += 1000;
		if (deadly && prng_chance(&world.prng, 2))
			kill_one(host);
	}
	/* Let everything arrive. */
	for (unsigned turn = 0; turn < 20 * TURNS; turn++) {
		struct splitnet *net = &world.nets[turn % HOSTS];
		net->end[SPLIT_HOST].block_permille = 0;
		splitnet_pump(net);
		if (!splitnet_step(net))
			net->now_ns += 1000000;
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		assert(world.nets[h].not_ready == 0);
		world.refused += world.nets[h].refused;
		for (unsigned i = 0; i < 2; i++)
			assert(world.nets[h].end[i].split.state != SPLIT_FAILED);
		for (uint32_t to = 0; to < HOSTS; to++)
			assert(world.gap[h][to] || world.awaited[h][to] == world.sent[h][to]);
		world.nets[h].event_count = 0;
		splitnet_close(&world.nets[h]);
	}
	assert(world.refused == 0);
}

static uint64_t current;

static void tell_seed(int number)
{
	(void)number;
	fprintf(stderr, "HEDDLE_SEED=%llu\n", (unsigned long long)current);
}

int main(void)
{
	signal(SIGABRT, tell_seed);
	const char *given = getenv("HEDDLE_SEED");
	uint64_t first = given != NULL ? strtoull(given, NULL, 10) : 1, delivered = 0, deaths = 0,
	         dropped = 0;
	uint64_t last = given != NULL ? first : WORLDS;
	for (uint64_t seed = first; seed <= last; seed++) {
		current = seed;
		run_world(seed);
		delivered += world.delivered;
		deaths += world.deaths;
		dropped += world.dropped;
	}
	printf("%llu frames arrived, %llu were dropped at hosts that took none, %llu ends died\n",
	       (unsigned long long)delivered, (unsigned long long)dropped,
	       (unsigned long long)deaths);
	return 0;
}
