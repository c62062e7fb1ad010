/* What happens to a packet between two hosts: the links, their faults, and partitions; see
 * simnet.h. */
#include "port/simstate.h"

#include <errno.h>
#include <string.h>

#define BITS_PER_BYTE 8u
#define NS_PER_S      1000000000u

static bool link_is_valid(const struct sim_link *link)
{
	return link->delay_min_ns <= link->delay_max_ns && link->delay_max_ns <= SIM_MAX_DELAY_NS &&
	       (link->bandwidth_bps == 0 || link->bandwidth_bps >= SIM_MIN_BANDWIDTH_BPS) &&
	       link->queue_bytes <= SIM_MAX_QUEUE_BYTES && link->loss_permille <= 1000 &&
	       link->duplicate_permille <= 1000 && link->reorder_permille <= 1000 &&
	       (link->reorder_permille == 0 ||
	        (link->reorder_ns >= 1 && link->reorder_ns <= SIM_MAX_DELAY_NS)) &&
	       link->flip_permille <= 1000 &&
	       (link->flip_permille == 0 || sim_in_limits(link->flip_bits_max, SIM_MAX_FLIPS)) &&
	       link->truncate_permille <= 1000;
}

int sim_link_set(struct sim *sim, uint32_t from, uint32_t to, const struct sim_link *link)
{
	struct sim_wire *l = sim_wire_at(sim, from, to);

	if (!link_is_valid(link))
		return -EINVAL;
	l->attributes = *link;
	sim_record(sim, (struct sim_trace){.kind = SIM_LINK_SET, .from = from, .to = to});
	return 0;
}

int sim_link_set_all(struct sim *sim, const struct sim_link *link)
{
	if (!link_is_valid(link))
		return -EINVAL;
	for (uint32_t i = 0; i < sim->config.host_count * sim->config.host_count; i++)
		sim->links[i].attributes = *link;
	sim_record_host(sim, SIM_LINK_SET, SIM_NO_HOST, 0, 0);
	return 0;
}

const struct sim_link *sim_link_get(const struct sim *sim, uint32_t from, uint32_t to)
{
	return &sim_wire_at(sim, from, to)->attributes;
}

int sim_partition(struct sim *sim, uint64_t set_a, uint64_t set_b, uint64_t start_ns,
                  uint64_t until_ns)
{
	uint64_t all = UINT64_MAX >> (SIM_MAX_HOSTS - sim->config.host_count);

	if (set_a == 0 || set_b == 0 || (set_a & set_b) || ((set_a | set_b) & ~all) ||
	    start_ns >= until_ns)
		return -EINVAL;
	for (uint32_t i = 0; i < SIM_MAX_PARTITIONS; i++) {
		if (sim->partitions[i].until_ns > sim->now_ns)
			continue;
		sim->partitions[i] = (struct sim_cut){set_a, set_b, start_ns, until_ns};
		sim_record_host(sim, SIM_PARTITIONED, SIM_NO_HOST, set_a, set_b);
		return 0;
	}
	return -ENOBUFS;
}

void sim_heal(struct sim *sim)
{
	uint64_t lifted = 0;

	for (uint32_t i = 0; i < SIM_MAX_PARTITIONS; i++) {
		lifted += sim->partitions[i].until_ns > sim->now_ns;
		sim->partitions[i].until_ns = 0;
	}
	sim_record_host(sim, SIM_HEALED, SIM_NO_HOST, 0, lifted);
}

bool sim_is_cut(const struct sim *sim, uint32_t a, uint32_t b)
{
	uint64_t bit_a = 1ull << a, bit_b = 1ull << b;

	assert(a < sim->config.host_count && b < sim->config.host_count);
	for (uint32_t i = 0; i < SIM_MAX_PARTITIONS; i++) {
		const struct sim_cut *p = &sim->partitions[i];
		if (sim->now_ns < p->start_ns || sim->now_ns >= p->until_ns)
			continue;
		if (((p->set_a & bit_a) && (p->set_b & bit_b)) ||
		    ((p->set_a & bit_b) && (p->set_b & bit_a)))
			return true;
	}
	return false;
}

/* Flip @count different bits of @bytes bytes. */
static void flip_bits(struct prng *prng, uint8_t *data, uint32_t bytes, uint32_t count)
{
	uint64_t chosen[SIM_MAX_FLIPS];

	assert(count <= SIM_MAX_FLIPS && count <= (uint64_t)bytes * BITS_PER_BYTE);
	for (uint32_t done = 0; done < count;) {
		uint64_t bit = prng_below(prng, (uint64_t)bytes * BITS_PER_BYTE);
		bool again = false;
		for (uint32_t i = 0; i < done; i++)
			again = again || chosen[i] == bit;
		if (again)
			continue; /* flipped twice it would be intact again */
		chosen[done++] = bit;
		data[bit / BITS_PER_BYTE] ^= (uint8_t)(1u << bit % BITS_PER_BYTE);
	}
}

static void damage(struct sim *sim, const struct sim_link *link, struct sim_packet *packet)
{
	uint8_t *data = slab_at(&sim->buffers, packet->buffer);

	/* An empty packet has nothing to damage. */
	if (packet->bytes > 0 && prng_chance(&sim->prng, link->truncate_permille)) {
		uint32_t whole = packet->bytes;
		packet->bytes = (uint32_t)prng_below(&sim->prng, whole);
		packet->digest = sim_digest(data, packet->bytes);
		sim_record_packet(sim, SIM_TRUNCATED, packet, whole);
	}
	if (packet->bytes > 0 && prng_chance(&sim->prng, link->flip_permille)) {
		uint32_t most = packet->bytes * BITS_PER_BYTE;
		if (most > link->flip_bits_max)
			most = link->flip_bits_max;
		uint32_t count = 1 + (uint32_t)prng_below(&sim->prng, most);
		flip_bits(&sim->prng, data, packet->bytes, count);
		packet->digest = sim_digest(data, packet->bytes);
		sim_record_packet(sim, SIM_FLIPPED, packet, count);
	}
}

/* How long @bytes take on the link, rounded up. No overflow: bytes <= SIM_MAX_QUEUE_BYTES. */
static uint64_t serialise_ns(uint64_t bandwidth_bps, uint64_t bytes)
{
	if (bandwidth_bps == 0)
		return 0;
	uint64_t scaled = bytes * BITS_PER_BYTE * NS_PER_S;
	return scaled / bandwidth_bps + (scaled % bandwidth_bps != 0);
}

int sim_ingress_set(struct sim *sim, uint32_t host, const struct sim_ingress *ingress)
{
	struct sim_host *h = sim_host_at(sim, host);

	if ((ingress->bandwidth_bps != 0 && ingress->bandwidth_bps < SIM_MIN_BANDWIDTH_BPS) ||
	    ingress->queue_bytes > SIM_MAX_QUEUE_BYTES || ingress->mark_bytes > SIM_MAX_QUEUE_BYTES)
		return -EINVAL;
	h->ingress = *ingress;
	sim_record_host(sim, SIM_LINK_SET, host, 0, 0);
	return 0;
}

uint64_t sim_ingress_bytes(const struct sim *sim, uint32_t host)
{
	assert(host < sim->config.host_count);
	const struct sim_host *h = &sim->hosts[host];
	uint64_t ns = h->ingress_free_ns > sim->now_ns ? h->ingress_free_ns - sim->now_ns : 0;

	return ns * (h->ingress.bandwidth_bps / BITS_PER_BYTE) / NS_PER_S;
}

bool sim_pass_ingress(struct sim *sim, const struct sim_packet *packet)
{
	struct sim_host *h = sim_host_at(sim, packet->to);
	const struct sim_ingress *ingress = &h->ingress;
	struct sim_packet own = *packet;

	if (ingress->bandwidth_bps == 0)
		return true;
	uint64_t start_ns = h->ingress_free_ns > sim->now_ns ? h->ingress_free_ns : sim->now_ns;
	uint64_t wait_ns = start_ns - sim->now_ns;
	if (wait_ns > serialise_ns(ingress->bandwidth_bps, ingress->queue_bytes)) {
		sim_drop(sim, SIM_QUEUE_FULL, packet);
		return false;
	}
	uint8_t *data = slab_at(&sim->buffers, own.buffer);
	if (ingress->mark != NULL &&
	    wait_ns > serialise_ns(ingress->bandwidth_bps, ingress->mark_bytes) &&
	    ingress->mark(data, own.bytes)) {
		own.digest = sim_digest(data, own.bytes);
		sim_record_packet(sim, SIM_MARKED, &own, 0);
	}
	h->ingress_free_ns = start_ns + serialise_ns(ingress->bandwidth_bps, own.bytes);
	sim_schedule(
	        sim, h->ingress_free_ns,
	        &(struct sim_event){
	                .kind = SIM_EVENT_ARRIVAL, .host = own.to, .packet = own, .passed = true});
	return false;
}

/* Queue, serialise, damage and delay one copy. */
static void transmit(struct sim *sim, struct sim_packet packet, const void *data)
{
	struct sim_wire *l = sim_wire_at(sim, packet.from, packet.to);
	const struct sim_link *link = &l->attributes;
	bool queues = link->bandwidth_bps != 0 && l->free_ns > sim->now_ns;
	uint64_t start_ns = queues ? l->free_ns : sim->now_ns;

	if (start_ns - sim->now_ns > serialise_ns(link->bandwidth_bps, link->queue_bytes)) {
		sim_record_packet(sim, SIM_QUEUE_FULL, &packet, 0);
		return;
	}
	packet.buffer = slab_take(&sim->buffers);
	if (packet.buffer == SLAB_NONE) {
		sim_record_packet(sim, SIM_POOL_EMPTY, &packet, 0);
		return;
	}
	sim->in_flight++;
	l->free_ns = start_ns + serialise_ns(link->bandwidth_bps, packet.bytes);
	if (packet.bytes > 0)
		memcpy(slab_at(&sim->buffers, packet.buffer), data, packet.bytes);
	damage(sim, link, &packet);

	uint64_t spread_ns = link->delay_max_ns - link->delay_min_ns;
	uint64_t time_ns = l->free_ns + link->delay_min_ns + prng_below(&sim->prng, spread_ns + 1);
	if (time_ns < l->arrival_ns)
		time_ns = l->arrival_ns;
	if (prng_chance(&sim->prng, link->reorder_permille)) {
		uint64_t extra_ns = 1 + prng_below(&sim->prng, link->reorder_ns);
		time_ns += extra_ns;
		sim_record_packet(sim, SIM_DELAYED, &packet, extra_ns);
	} else {
		l->arrival_ns = time_ns;
	}
	sim_schedule(sim, time_ns,
	             &(struct sim_event){
	                     .kind = SIM_EVENT_ARRIVAL, .host = packet.to, .packet = packet});
}

int sim_send(struct sim *sim, uint32_t from, uint32_t to, const void *data, size_t bytes)
{
	const struct sim_link *link = sim_link_get(sim, from, to);

	if (bytes > sim->config.packet_bytes)
		return -EMSGSIZE;
	struct sim_packet packet = {.number = sim->next_number++,
	                            .from = from,
	                            .to = to,
	                            .bytes = (uint32_t)bytes,
	                            .digest = sim_digest(data, bytes)};
	sim_record_packet(sim, SIM_SENT, &packet, 0);
	if (sim->hosts[from].dead) {
		sim_record_packet(sim, SIM_SENDER_DEAD, &packet, 0);
		return 0;
	}
	if (sim_is_cut(sim, from, to)) {
		sim_record_packet(sim, SIM_CUT, &packet, 0);
		return 0;
	}
	if (prng_chance(&sim->prng, link->loss_permille)) {
		sim_record_packet(sim, SIM_LOST, &packet, 0);
		return 0;
	}
	bool twice = prng_chance(&sim->prng, link->duplicate_permille);
	transmit(sim, packet, data);
	if (twice) {
		sim_record_packet(sim, SIM_DUPLICATED, &packet, 0);
		transmit(sim, packet, data);
	}
	return 0;
}
