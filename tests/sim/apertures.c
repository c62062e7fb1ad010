/* 'apertures': two to four hosts connect, store, raise events, read, close and connect again, by
 * rules or by decision, with numbers and without, with nonces that roll; writes stall, event queues
 * are full, carriers have no room. The network loses, duplicates, reorders, damages and cuts; hosts
 * stall and die. Somebody replays old frames, also from other hosts. apertures_check.c judges after
 * every step. */
#include "apertures.h"
#include "guard.h"

#include <stdlib.h>
#include <string.h>

#define SPREAD_NS  400000000ull
#define QUIET_NS   40000000000ull
#define MAX_EVENTS 2000000u

static void apertures_pump(struct apertures_host *host);

static bool apertures_chance(struct apertures_world *world, uint32_t permille)
{
	return prng_chance(&world->prng, permille);
}

static uint32_t apertures_below(struct apertures_world *world, uint32_t bound)
{
	return (uint32_t)prng_below(&world->prng, bound);
}

static struct apertures_end *apertures_end_of(struct ap_conn *conn)
{
	return conn->owner;
}

static struct ap_path apertures_path(struct apertures_world *world, uint32_t to)
{
	struct ap_path path = {
	        .route = to + 1, .idle_ns = 400000000, .frame_bytes = 700, .replays = true};
	(void)world;
	path.host[0] = 0xfd;
	path.host[15] = (uint8_t)to;
	return path;
}

/* --- the sink --- */

static uint8_t *apertures_reserve(void *context, const struct ap_path *path, size_t bytes)
{
	struct apertures_host *host = context;
	(void)path;
	if (bytes > sizeof(host->out) ||
	    apertures_chance(host->world, host->world->no_room_permille))
		return NULL;
	return host->out;
}

static void apertures_commit(void *context, const struct ap_path *path, size_t bytes)
{
	struct apertures_host *host = context;
	struct apertures_world *world = host->world;
	uint32_t to = path->route - 1;
	apertures_check_sent(host, bytes);
	if (apertures_chance(world, 200)) {
		uint32_t i = world->replay_count < APERTURES_REPLAYS
		                     ? world->replay_count++
		                     : apertures_below(world, APERTURES_REPLAYS);
		world->replays[i].from = host->number;
		world->replays[i].to = to;
		world->replays[i].bytes = (uint32_t)bytes;
		memcpy(world->replays[i].frame, host->out, bytes);
	}
	if (sim_send(world->sim, host->number, to, host->out, bytes) != 0)
		scenario_fail(world->run, "a frame of %zu bytes was refused", bytes);
}

static void apertures_changed(void *context, struct ap_conn *conn)
{
	struct apertures_host *host = context;
	struct apertures_end *end = apertures_end_of(conn);
	sim_note(host->world->sim, host->number, conn->row, conn->state);
	if (conn->state == HDL_APERTURE_OPEN && end->out == NULL)
		apertures_check_opened(end);
}

static enum ap_delivered apertures_event(void *context, struct ap_port *port,
                                         const struct ap_event *event)
{
	struct apertures_host *host = context;
	struct apertures_world *world = host->world;
	(void)port;
	if (event->kind == CI_ALIVEACK)
		apertures_check_answer(apertures_end_of(event->conn));
	if (event->kind != CI_EVENT)
		return AP_PLACED;
	if (apertures_chance(world, world->full_permille))
		return AP_FULL;
	/* An ordering point: everything before it is in place. The number of the event itself is
	 * accepted after this call. */
	apertures_check_memory(host);
	apertures_end_of(event->conn)->events_taken++;
	world->events++;
	return AP_PLACED;
}

static void apertures_response(void *context, struct ap_conn *conn, uint32_t token, uint64_t offset,
                               const uint8_t *data, uint32_t bytes)
{
	struct apertures_host *host = context;
	struct apertures_end *end = apertures_end_of(conn);
	if (token != end->token)
		return; /* given up, or of another one */
	if (offset != end->read_offset + end->read_got || bytes > end->read_bytes - end->read_got) {
		scenario_fail(host->world->run, "a response has the wrong place");
		return;
	}
	if (memcmp(data, end->read_model + offset, bytes) != 0)
		scenario_fail(host->world->run, "host %u read what nobody stored", host->number);
	end->read_got += bytes;
	if (end->read_got == end->read_bytes) {
		end->token = 0;
		host->world->reads++;
	}
}

static void apertures_status(void *context, struct ap_conn *conn, const struct ci_status *status)
{
	(void)context;
	(void)conn;
	(void)status;
}

static const struct ap_sink apertures_sink = {.reserve = apertures_reserve,
                                              .commit = apertures_commit,
                                              .changed = apertures_changed,
                                              .event = apertures_event,
                                              .response = apertures_response,
                                              .status = apertures_status};

static enum move_result apertures_copy(void *context, enum move_side side, const struct span *to,
                                       size_t to_count, const struct span *from, size_t from_count)
{
	(void)context;
	(void)side;
	(void)to_count;
	(void)from_count;
	memcpy((void *)(uintptr_t)to->addr, (const void *)(uintptr_t)from->addr, to->length);
	return MOVE_OK;
}
static const struct own_memory apertures_own = {.ops.copy = apertures_copy};

/* --- hosts --- */

static void apertures_wake(struct sim *sim, void *context, uint64_t arg)
{
	struct apertures_host *host = context;
	(void)sim;
	(void)arg;
	host->wakes_ns = UINT64_MAX;
	apertures_pump(host);
}

/* Run what can be run, take what waits, and sleep until the next timer. */
static void apertures_pump(struct apertures_host *host)
{
	struct apertures_world *world = host->world;
	uint64_t now = sim_now_ns(world->sim);
	if (host->dead || world->run->failed)
		return;
	ap_tick(&host->node, now);
	ap_turn(&host->node); /* may go on with a frame */
	(void)ap_run(&host->node);
	apertures_check_learn(host);
	while (host->pending_count > 0 && ap_may_take(&host->node)) {
		struct ap_path from = apertures_path(world, host->pending[0].from);
		uint8_t frame[APERTURES_MAX_FRAME];
		uint32_t bytes = host->pending[0].bytes;
		memcpy(frame, host->pending[0].frame, bytes);
		memmove(host->pending, host->pending + 1,
		        --host->pending_count * sizeof(host->pending[0]));
		ap_take(&host->node, frame, bytes, &from);
		apertures_check_learn(host);
		memset(frame, 0xee, sizeof(frame)); /* the carrier's memory is reused */
	}
	(void)ap_run(&host->node);
	apertures_check_learn(host);
	apertures_check_memory(host);
	uint64_t next = ap_next_tick(&host->node);
	if (host->node.stalled || host->node.active != NULL || host->pending_count > 0)
		next = now + 2000;
	if (next <= now)
		next = now + 1000;
	if (next < host->wakes_ns && next < SIM_MAX_TIME_NS) {
		host->wakes_ns = next;
		if (sim_at_host(world->sim, host->number, next, apertures_wake, host, 0) != 0)
			scenario_fail(world->run, "no room for a timer");
	}
}

static void apertures_receive(void *context, struct sim *sim, uint32_t number, uint32_t from,
                              const void *packet, size_t bytes)
{
	struct apertures_host *host = context;
	(void)sim;
	(void)number;
	if (host->pending_count == APERTURES_PENDING || bytes > APERTURES_MAX_FRAME)
		return; /* lost */
	host->pending[host->pending_count].from = from;
	host->pending[host->pending_count].bytes = (uint32_t)bytes;
	memcpy(host->pending[host->pending_count].frame, packet, bytes);
	host->pending_count++;
	apertures_pump(host);
}

static void apertures_died(void *context, struct sim *sim, uint32_t number)
{
	struct apertures_host *host = context;
	(void)sim;
	(void)number;
	host->dead = true;
}

/* --- what applications do --- */

/* New numbers; often just below the wrap of the sequence number. */
static void apertures_arm(struct apertures_end *end)
{
	struct apertures_world *world = end->host->world;
	uint32_t first = (uint32_t)prng_next(&world->prng);
	if (apertures_chance(world, 500))
		first = UINT32_MAX - apertures_below(world, 20);
	ap_arm(&end->conn, prng_next(&world->prng) | 1, first);
	apertures_check_begin(end);
}

static void apertures_connect(struct apertures_end *end)
{
	struct apertures_world *world = end->host->world;
	uint32_t to = apertures_below(world, world->host_count);
	if (to == end->host->number)
		to = (to + 1) % world->host_count;
	struct ap_path path = apertures_path(world, to);
	apertures_arm(end);
	ap_connect(&end->conn, &path, apertures_chance(world, 950) ? APERTURES_PORT : 99);
}

static void apertures_begin_end(struct apertures_end *end)
{
	struct apertures_world *world = end->host->world;
	struct ap_port *port = &end->host->port;
	struct ap_waiting *waiting = ap_waiting_find(port, 0);
	if (waiting != NULL && apertures_chance(world, 700)) {
		if (apertures_chance(world, 100)) {
			ap_reject(&end->host->node, port, waiting, HDL_REASON_DECLINED);
			return;
		}
		apertures_arm(end);
		(void)ap_accept(port, waiting, &end->conn);
	} else if (apertures_chance(world, 400)) {
		apertures_arm(end);
		ap_offer(port, &end->conn);
	} else {
		apertures_connect(end);
	}
}

static void apertures_store(struct apertures_end *end)
{
	struct apertures_world *world = end->host->world;
	uint8_t data[3000];
	bool event = apertures_chance(world, 150);
	uint32_t bytes =
	        event ? apertures_below(world, CI_EVENT_BYTES + 1)
	              : 1 + apertures_below(world, apertures_chance(world, 900) ? 64 : 2999);
	uint32_t offset = apertures_below(world, APERTURES_SIZE - (event ? 0 : bytes));
	if (end->out == NULL || world->packet_count + 16 > APERTURES_PACKETS ||
	    world->byte_count + sizeof(data) > APERTURES_BYTES)
		return;
	for (uint32_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)prng_next(&world->prng);
	uint8_t kind = event ? CI_EVENT : CI_DATA;
	if (ap_put(&end->conn, kind, offset, data, bytes))
		apertures_check_put(end, kind, offset, data, bytes, ap_piece(&end->conn));
}

static void apertures_read(struct apertures_end *end)
{
	struct apertures_world *world = end->host->world;
	uint8_t body[8];
	struct ci_read read = {.token = (uint32_t)prng_next(&world->prng) | 1};
	/* Without numbers, responses get lost. */
	if (end->out == NULL || !end->conn.out->sequenced ||
	    (end->conn.in->checks & HDL_CHECK_SEQUENCE) == 0 ||
	    world->packet_count + 16 > APERTURES_PACKETS)
		return;
	read.bytes = 1 + apertures_below(world, 1500);
	end->read_offset = apertures_below(world, APERTURES_SIZE - read.bytes);
	ci_set_read(&read, body);
	apertures_check_model(end, end->read_model);
	if (!ap_put(&end->conn, CI_READ, end->read_offset, body, sizeof(body)))
		return;
	apertures_check_put(end, CI_READ, end->read_offset, body, sizeof(body), 8);
	end->token = read.token;
	end->read_bytes = read.bytes;
	end->read_got = 0;
}

static void apertures_act(struct sim *sim, void *context, uint64_t arg)
{
	struct apertures_world *world = context;
	struct apertures_host *host = &world->hosts[arg % world->host_count];
	struct apertures_end *end = &host->ends[apertures_below(world, APERTURES_ENDS)];
	(void)sim;
	if (host->dead || world->run->failed || sim_is_stalled(world->sim, host->number))
		return;
	host->node.now_ns = sim_now_ns(world->sim);
	switch (end->conn.state) {
	case HDL_APERTURE_CLOSED:
	case HDL_APERTURE_FAILED:
		if (!world->healed)
			apertures_begin_end(end);
		break;
	case HDL_APERTURE_OFFERED:
	case HDL_APERTURE_CONNECTING:
		if (apertures_chance(world, 50))
			ap_close(&end->conn, false);
		break;
	case HDL_APERTURE_OPEN:
		if (apertures_chance(world, 60))
			ap_close(&end->conn, apertures_chance(world, 200));
		else if (apertures_chance(world, 80))
			apertures_read(end);
		else
			for (uint32_t n = 1 + apertures_below(world, 8); n > 0; n--)
				apertures_store(end);
		break;
	default:
		break;
	}
	apertures_pump(host);
}

/* Send an old frame again: as it was, or from another host. */
static void apertures_replay(struct sim *sim, void *context, uint64_t arg)
{
	struct apertures_world *world = context;
	(void)arg;
	if (world->replay_count == 0 || world->run->failed)
		return;
	uint32_t i = apertures_below(world, world->replay_count);
	uint32_t from = world->replays[i].from;
	if (apertures_chance(world, 500)) {
		from = apertures_below(world, world->host_count);
		world->forged += from != world->replays[i].from;
	}
	world->replayed++;
	if (!sim_is_dead(sim, from) && from != world->replays[i].to)
		(void)sim_send(sim, from, world->replays[i].to, world->replays[i].frame,
		               world->replays[i].bytes);
}

static void apertures_kill(struct sim *sim, void *context, uint64_t arg)
{
	(void)context;
	sim_kill(sim, (uint32_t)arg, SIM_DEATH_PROCESS);
}

static void apertures_stall(struct sim *sim, void *context, uint64_t arg)
{
	struct apertures_world *world = context;
	uint32_t host = (uint32_t)arg % world->host_count;
	if (!sim_is_dead(sim, host))
		(void)sim_stall(sim, host, sim_now_ns(sim) + apertures_below(world, 100000000));
}

/* --- the world --- */

static void apertures_make_end(struct apertures_host *host, struct apertures_end *end)
{
	struct apertures_world *world = host->world;
	struct ap_conn *conn = &end->conn;
	uint8_t checks = HDL_CHECK_DEFAULT;
	if (apertures_chance(world, 150))
		checks &= (uint8_t)~HDL_CHECK_SEQUENCE;
	end->host = host;
	end->bytes = malloc(HDL_APERTURE_KEPT_BYTES);
	end->possible = calloc(APERTURES_SIZE, sizeof(*end->possible));
	conn->owner = end;
	conn->kept = end->kept;
	conn->bytes = end->bytes;
	if (end->bytes == NULL || end->possible == NULL || !ap_open(&host->node, conn)) {
		scenario_fail(world->run, "no memory");
		return;
	}
	conn->port = &host->port;
	conn->in->bits = APERTURES_BITS;
	conn->in->checks = checks;
	conn->own = (struct ci_offer){
	        .bits = APERTURES_BITS, .checks = checks, .length = APERTURES_SIZE};
	if ((checks & HDL_CHECK_SEQUENCE) != 0 && apertures_chance(world, 400)) {
		conn->own.nonce_every = 1 + apertures_below(world, 20);
		conn->own.nonce_step = (uint16_t)(1 + apertures_below(world, 1000));
	}
	struct tpt_region region = {.type = TPT_APERTURE,
	                            .pd = 1,
	                            .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	                            .host = (uint64_t)(uintptr_t)end->memory,
	                            .length = APERTURES_SIZE};
	if (tpt_insert_run(&host->tpt, &region, &conn->in->key) != 0)
		scenario_fail(world->run, "no entry");
}

static void *apertures_block(size_t bytes)
{
	bytes = (bytes + 127) / 64 * 64;
	void *block = aligned_alloc(64, bytes);
	if (block != NULL)
		memset(block, 0, bytes);
	return block;
}

static void apertures_make_host(struct apertures_world *world, uint32_t number, void *blocks[3])
{
	struct apertures_host *host = &world->hosts[number];
	const struct tpt_config config = {APERTURES_ENDS, 64};
	const struct sim_host_ops ops = {.receive = apertures_receive, .died = apertures_died};
	struct tpt_bytes bytes = tpt_bytes(&config);
	blocks[0] = apertures_block(bytes.slots);
	blocks[1] = apertures_block(bytes.arena);
	blocks[2] = apertures_block(bytes.private_bytes);
	host->world = world;
	host->number = number;
	host->wakes_ns = UINT64_MAX;
	tpt_init(&host->tpt, &config, blocks[0], blocks[1], blocks[2], prng_next(&world->prng));
	ap_node_init(&host->node, host->rows, host->users, host->conns, host->map, APERTURES_ROWS,
	             0);
	host->node.tpt = &host->tpt;
	host->node.pd = 1;
	host->node.secret[0] = prng_next(&world->prng);
	host->node.secret[1] = prng_next(&world->prng);
	host->node.own = &apertures_own;
	host->node.slot = number + 1;
	host->node.sink = &apertures_sink;
	host->node.context = host;
	host->node.write_budget =
	        apertures_chance(world, 500) ? 1 + apertures_below(world, 300) : 0;
	ap_port_open(&host->node, &host->port, APERTURES_PORT);
	host->port.signals = HDL_SIGNAL_ALL;
	if (apertures_chance(world, 700)) {
		host->port.rule_count = 1;
		host->port.rules[0].action =
		        apertures_chance(world, 800) ? HDL_RULE_ACCEPT : HDL_RULE_ASK;
	}
	sim_host_attach(world->sim, number, &ops, host);
	for (uint32_t i = 0; i < APERTURES_ENDS; i++) {
		apertures_make_end(host, &host->ends[i]);
		apertures_arm(&host->ends[i]);
	}
}

static void apertures_schedule(struct apertures_world *world)
{
	struct sim *sim = world->sim;
	uint64_t at = 0;
	for (uint32_t i = 0; i < 900; i++) {
		at += prng_below(&world->prng, 2 * SPREAD_NS / 900);
		(void)sim_at(sim, at, apertures_act, world, prng_next(&world->prng) % 64);
		if (apertures_chance(world, 200))
			(void)sim_at(sim, at, apertures_replay, world, 0);
	}
	if (!world->faults)
		return;
	struct sim_link link = {.delay_min_ns = 5000,
	                        .delay_max_ns = 50000 + apertures_below(world, 2000000),
	                        .loss_permille = apertures_below(world, 60),
	                        .duplicate_permille = apertures_below(world, 60),
	                        .reorder_permille = apertures_below(world, 60),
	                        .reorder_ns = 1 + apertures_below(world, 5000000),
	                        .flip_permille = apertures_below(world, 20),
	                        .flip_bits_max = 5,
	                        .truncate_permille = apertures_below(world, 10)};
	(void)sim_link_set_all(sim, &link);
	if (apertures_chance(world, 300))
		(void)sim_partition(sim, 1, 2, at / 4, at / 4 + apertures_below(world, 300000000));
	for (uint32_t n = apertures_below(world, 4); n > 0; n--)
		(void)sim_at(sim, prng_below(&world->prng, at), apertures_stall, world,
		             prng_next(&world->prng) % 64);
	if (apertures_chance(world, 250))
		(void)sim_at(sim, prng_below(&world->prng, at), apertures_kill, world,
		             apertures_below(world, world->host_count));
}

/* What has come up, in all runs that are counted. */
struct apertures_seen {
	uint64_t opened, events, reads, forged, errors[CI_ELEMENT_COUNT];
	uint64_t counters[HDL_APERTURE_COUNTER_COUNT];
};

static void apertures_count(const struct apertures_world *world, struct apertures_seen *seen)
{
	seen->opened += world->opened;
	seen->events += world->events;
	seen->reads += world->reads;
	seen->forged += world->forged;
	for (uint32_t i = 0; i < CI_ELEMENT_COUNT; i++)
		seen->errors[i] += world->errors[i];
	for (uint32_t h = 0; h < world->host_count; h++)
		for (uint32_t i = 0; i < HDL_APERTURE_COUNTER_COUNT; i++)
			seen->counters[i] += world->hosts[h].node.counters[i];
}

static void apertures_play(struct scenario_run *run, struct apertures_seen *seen)
{
	struct apertures_world *world = calloc(1, sizeof(*world));
	void *blocks[APERTURES_HOSTS][3] = {{NULL}};
	struct sim_config config = {.seed = run->seed,
	                            .host_count = APERTURES_HOSTS,
	                            .event_capacity = 8192,
	                            .packet_capacity = 4096,
	                            .packet_bytes = APERTURES_MAX_FRAME};
	world->run = run;
	world->bytes = malloc(APERTURES_BYTES);
	prng_seed(&world->prng, run->seed ^ 0xa9e2704e5ull);
	world->host_count = 2 + apertures_below(world, APERTURES_HOSTS - 1);
	world->hosts = calloc(world->host_count, sizeof(*world->hosts));
	world->faults = apertures_chance(world, 800);
	world->full_permille = apertures_below(world, 400);
	world->no_room_permille = apertures_below(world, 100);
	if (sim_create(&config, &world->sim) != 0) {
		scenario_fail(run, "no network");
		return;
	}
	if (run->trace)
		sim_set_trace(world->sim, scenario_print, run);
	for (uint32_t i = 0; i < world->host_count; i++)
		apertures_make_host(world, i, blocks[i]);
	apertures_schedule(world);
	(void)guard_sim_run(world->sim, SPREAD_NS, MAX_EVENTS);
	/* All faults are over; what is open must come to an end. */
	struct sim_link perfect = {.delay_min_ns = 5000, .delay_max_ns = 20000};
	world->healed = true;
	world->full_permille = world->no_room_permille = 0;
	sim_heal(world->sim);
	(void)sim_link_set_all(world->sim, &perfect);
	if (guard_sim_run(world->sim, SPREAD_NS + QUIET_NS, MAX_EVENTS) == SIM_STOP_EVENTS)
		scenario_fail(run, "it does not become quiet");
	if (!run->failed)
		apertures_check_end(world);
	if (seen != NULL)
		apertures_count(world, seen);
	for (uint32_t i = 0; i < world->host_count; i++) {
		for (uint32_t e = 0; e < APERTURES_ENDS; e++) {
			free(world->hosts[i].ends[e].bytes);
			free(world->hosts[i].ends[e].possible);
		}
		for (unsigned b = 0; b < 3; b++)
			free(blocks[i][b]);
	}
	run->hash = sim_hash(world->sim);
	sim_destroy(world->sim);
	free(world->hosts);
	free(world->bytes);
	free(world);
}

static void apertures_run(struct scenario_run *run)
{
	apertures_play(run, NULL);
}

const struct scenario scenario_apertures = {
        .name = "apertures",
        .purpose = "apertures connect, store, signal, read and close; both memories are modelled",
        .run = apertures_run,
        .test_seeds = 150,
        .twice = 20,
};

/* The worlds are of use only if everything comes up in them. */
static void apertures_coverage_run(struct scenario_run *run)
{
	static const uint8_t needed[] = {
	        HDL_APERTURE_COUNTER_REPEATED,     HDL_APERTURE_COUNTER_DUPLICATES,
	        HDL_APERTURE_COUNTER_STALLS,       HDL_APERTURE_COUNTER_BAD_FRAMES,
	        HDL_APERTURE_COUNTER_BAD_CHECKSUM, HDL_APERTURE_COUNTER_BAD_CRC,
	        HDL_APERTURE_COUNTER_NOT_VALID,    HDL_APERTURE_COUNTER_BAD_SEQUENCE,
	        HDL_APERTURE_COUNTER_BAD_NONCE,    HDL_APERTURE_COUNTER_BAD_SOURCE,
	        HDL_APERTURE_COUNTER_REJECTS,      HDL_APERTURE_COUNTER_ERRORS_IN,
	        HDL_APERTURE_COUNTER_FAILED,       HDL_APERTURE_COUNTER_READS_SERVED,
	};
	struct apertures_seen seen = {0};
	uint64_t first = run->seed, hash = 0;
	for (uint64_t i = 0; i < 25 && !run->failed; i++) {
		run->seed = first * 1000 + i;
		apertures_play(run, &seen);
		hash = hash * 31 + run->hash;
	}
	run->seed = first;
	run->hash = hash;
	for (size_t i = 0; i < sizeof(needed) && !run->failed; i++)
		if (seen.counters[needed[i]] == 0)
			scenario_fail(run, "counter %u stayed at zero", needed[i]);
	if (seen.opened < 200 || seen.events < 200 || seen.reads < 50 || seen.forged < 100)
		scenario_fail(run, "too little: %llu opened, %llu events, %llu reads, %llu forged",
		              (unsigned long long)seen.opened, (unsigned long long)seen.events,
		              (unsigned long long)seen.reads, (unsigned long long)seen.forged);
	/* There is no agent here. */
	if (seen.errors[CI_RECEIVER] == 0 || seen.errors[CI_CARRIER] < 10 ||
	    seen.errors[CI_SENDER] == 0)
		scenario_fail(run, "errors: %llu of receivers, %llu of carriers, %llu of senders",
		              (unsigned long long)seen.errors[CI_RECEIVER],
		              (unsigned long long)seen.errors[CI_CARRIER],
		              (unsigned long long)seen.errors[CI_SENDER]);
	if (seen.counters[HDL_APERTURE_COUNTER_WRITES] >=
	    seen.counters[HDL_APERTURE_COUNTER_PACKETS_IN])
		scenario_fail(run, "nothing was joined");
}

const struct scenario scenario_apertures_coverage = {
        .name = "apertures-coverage",
        .purpose = "everything comes up in the worlds of apertures",
        .run = apertures_coverage_run,
        .test_seeds = 1,
        .twice = 0,
};
