/* The checker of the 'packets' scenario. It knows what was sent and which faults were ordered,
 * hears from the network what it says it did, and sees what the hosts get. Each of the three must
 * agree with the others: no fault without cause, no packet that ends twice or never, no byte that
 * nobody sent. */
#include "packets.h"

#include <inttypes.h>
#include <string.h>

static bool in_set(uint64_t set, uint32_t host)
{
	return set >> host & 1;
}

static bool must_be_cut(const struct world *world, uint32_t a, uint32_t b, uint64_t time_ns)
{
	for (uint32_t i = 0; i < world->fault_count; i++) {
		const struct sim_fault *f = &world->faults[i];
		if (f->kind != SIM_FAULT_PARTITION || time_ns < f->start_ns ||
		    time_ns >= f->until_ns)
			continue;
		if ((in_set(f->set_a, a) && in_set(f->set_b, b)) ||
		    (in_set(f->set_a, b) && in_set(f->set_b, a)))
			return true;
	}
	return false;
}

/* Two events of one nanosecond may come in either order, so on the edge of a stall or a death both
 * answers are right. */
enum answer {
	NO,
	EITHER,
	YES,
};

static enum answer is_dead(const struct world *world, uint32_t host, uint64_t time_ns,
                           enum sim_death *death)
{
	for (uint32_t i = 0; i < world->fault_count; i++) {
		const struct sim_fault *f = &world->faults[i];
		if (f->kind != SIM_FAULT_DEATH || f->host != host || time_ns < f->start_ns)
			continue;
		*death = f->death;
		return time_ns == f->start_ns ? EITHER : YES;
	}
	return NO;
}

/* Of several stalls the one that began last counts: it replaced the end of those before. */
static enum answer is_stalled(const struct world *world, uint32_t host, uint64_t time_ns)
{
	const struct sim_fault *last = NULL;

	for (uint32_t i = 0; i < world->fault_count; i++) {
		const struct sim_fault *f = &world->faults[i];
		if (f->kind != SIM_FAULT_STALL || f->host != host || f->start_ns > time_ns)
			continue;
		if (f->start_ns == time_ns)
			return EITHER;
		if (!last || f->start_ns >= last->start_ns)
			last = f;
	}
	if (!last || time_ns > last->until_ns)
		return NO;
	return time_ns == last->until_ns ? EITHER : YES;
}

static void check(struct world *world, bool good, const struct sim_trace *record, const char *rule)
{
	char line[SIM_TRACE_LINE_BYTES];

	if (!good)
		scenario_fail(world->run, "%s: %s%s", sim_trace_format(record, line, sizeof(line)),
		              rule, world->faultless ? " (in the half without faults)" : "");
}

/* On a link without faults the time of arrival is known but for the spread of the delay. */
static void check_punctual(struct world *world, const struct sent *sent,
                           const struct sim_trace *record)
{
	check(world, record->time_ns >= sent->left_ns + sent->link.delay_min_ns, record,
	      "came early");
	check(world, record->time_ns <= sent->left_ns + sent->link.delay_max_ns, record,
	      "came late");
}

static void note_departure(struct world *world, struct sent *sent)
{
	uint64_t *free_ns = &world->free_ns[sent->from][sent->to];
	uint64_t bps = sent->link.bandwidth_bps;

	if (*free_ns < sent->time_ns)
		*free_ns = sent->time_ns;
	if (bps > 0)
		*free_ns += ((uint64_t)sent->bytes * 8000000000u + bps - 1) / bps;
	sent->left_ns = *free_ns;
}

static void check_delivered(struct world *world, struct sent *sent, const struct sim_trace *record)
{
	uint64_t *last = &world->last_number[record->from][record->to];
	enum sim_death death = SIM_DEATH_PROCESS;

	world->arriving = *record;
	sent->delivered++;
	check(world, is_dead(world, record->to, record->time_ns, &death) != YES, record,
	      "delivered to the dead");
	check(world, is_stalled(world, record->to, record->time_ns) != YES, record,
	      "delivered to a stalled host");
	if (sent->held == 0) { /* what was held had come in before */
		check(world, !must_be_cut(world, record->from, record->to, record->time_ns), record,
		      "delivered across a partition");
		enum answer dead = is_dead(world, record->from, record->time_ns, &death);
		check(world, dead != YES || death == SIM_DEATH_PROCESS, record,
		      "delivered though it vanished with its sender");
	}
	check(world, !must_be_cut(world, record->from, record->to, sent->time_ns), record,
	      "sent across a partition");
	check(world, is_dead(world, record->from, sent->time_ns, &death) != YES, record,
	      "sent by the dead");
	check(world, record->time_ns >= sent->time_ns + sent->link.delay_min_ns, record,
	      "faster than its link");
	if (sent->delayed == 0) {
		check(world, record->number + 1 >= *last, record, "overtook without reordering");
		*last = record->number + 1;
	}
	if (world->faultless)
		check_punctual(world, sent, record);
}

/* A dropped copy must have had a cause that the world gave. */
static void check_dropped(struct world *world, const struct sent *sent,
                          const struct sim_trace *record)
{
	enum sim_death death = SIM_DEATH_PROCESS;
	enum answer dead;

	switch (record->kind) {
	case SIM_LOST:
		check(world, sent->link.loss_permille > 0, record, "lost on a link without loss");
		break;
	case SIM_CUT:
		check(world, must_be_cut(world, record->from, record->to, record->time_ns), record,
		      "cut without a partition");
		break;
	case SIM_QUEUE_FULL:
		check(world, sent->link.bandwidth_bps > 0, record, "no queue on this link");
		break;
	case SIM_POOL_EMPTY:
		/* One that is just being received keeps its buffer; this copy itself counts as in
		 * flight here. */
		check(world, world->in_flight + 1 >= world->packet_capacity, record,
		      "there are buffers");
		break;
	case SIM_SENDER_DEAD:
		dead = is_dead(world, record->from, sent->time_ns, &death);
		if (dead == NO) {
			dead = is_dead(world, record->from, record->time_ns, &death);
			check(world, death == SIM_DEATH_NODE, record,
			      "its sender's death does not matter");
		}
		check(world, dead != NO, record, "its sender is alive");
		break;
	case SIM_RECEIVER_DEAD:
		check(world, is_dead(world, record->to, record->time_ns, &death) != NO, record,
		      "its receiver is alive");
		break;
	default:
		check(world, false, record, "every host is attended");
	}
}

static void check_packet(struct world *world, const struct sim_trace *record)
{
	struct sent *sent = &world->sent[record->number];

	check(world, record->from == sent->from && record->to == sent->to, record, "changed hosts");
	switch (record->kind) {
	case SIM_SENT:
		check(world, record->number + 1 == world->sent_count, record, "numbered wrongly");
		check(world, record->bytes == sent->bytes && record->digest == sent->digest, record,
		      "not what was sent");
		note_departure(world, sent);
		sent->copies = 1;
		world->in_flight++;
		break;
	case SIM_DUPLICATED:
		check(world, sent->link.duplicate_permille > 0, record,
		      "this link does not double");
		check(world, ++sent->copies == 2, record, "doubled more than once");
		world->in_flight++;
		break;
	case SIM_DELAYED:
		check(world, sent->link.reorder_permille > 0, record, "this link does not reorder");
		check(world, record->value >= 1 && record->value <= sent->link.reorder_ns, record,
		      "delayed too much");
		sent->delayed++;
		break;
	case SIM_FLIPPED:
		check(world, sent->link.flip_permille > 0, record, "this link does not flip");
		check(world, record->value >= 1 && record->value <= sent->link.flip_bits_max,
		      record, "flipped too much");
		sent->damaged++;
		break;
	case SIM_TRUNCATED:
		check(world, sent->link.truncate_permille > 0, record,
		      "this link does not cut off");
		check(world, record->bytes < sent->bytes && record->value == sent->bytes, record,
		      "cut off nothing");
		sent->damaged++;
		break;
	case SIM_HELD:
		check(world, is_stalled(world, record->to, record->time_ns) != NO, record,
		      "held for a host that is awake");
		if (sent->held++ == 0)
			check(world, !must_be_cut(world, record->from, record->to, record->time_ns),
			      record, "held across a partition");
		break;
	case SIM_DELIVERED:
	case SIM_LOST:
	case SIM_CUT:
	case SIM_QUEUE_FULL:
	case SIM_POOL_EMPTY:
	case SIM_SENDER_DEAD:
	case SIM_RECEIVER_DEAD:
	case SIM_UNATTENDED:
		check(world, ++sent->ended <= sent->copies, record, "ended twice");
		world->in_flight--;
		if (record->kind == SIM_DELIVERED)
			check_delivered(world, sent, record);
		else
			check_dropped(world, sent, record);
		break;
	default:
		check(world, false, record, "not an event of a packet");
	}
}

void packets_check_trace(void *context, const struct sim_trace *record)
{
	struct world *world = context;

	scenario_print(world->run, record);
	world->counts[record->kind]++;
	if (record->from == SIM_NO_HOST || record->kind == SIM_LINK_SET)
		return;
	if (record->number >= world->sent_count)
		check(world, false, record, "nobody sent it");
	else
		check_packet(world, record);
}

bool packets_check_received(struct world *world, uint32_t host, uint32_t from, const void *packet,
                            size_t bytes)
{
	const struct sim_trace *record = &world->arriving;
	const struct sent *sent = &world->sent[record->number];
	bool good = packets_is_good(packet, bytes);

	if (record->number >= world->sent_count)
		return false;
	check(world, record->to == host && record->from == from && record->bytes == bytes, record,
	      "announced otherwise than received");
	check(world, record->digest == sim_digest(packet, bytes), record,
	      "its record's digest is wrong");
	packets_build(world, (uint32_t)record->number, world->expected);
	bool exact = bytes == sent->bytes && memcmp(packet, world->expected, bytes) == 0;
	if (good && !exact)
		check(world,
		      sent->damaged > 0 && bytes == sent->bytes &&
		              packets_equal(world->expected, packet, bytes),
		      record, "its CRC is good but its bytes are not");
	else if (!good)
		check(world, !exact && sent->damaged > 0, record, "damaged by nobody");
	return good;
}

static void check_counts(struct world *world)
{
	uint64_t ended = 0;

	for (int kind = SIM_DELIVERED; kind <= SIM_UNATTENDED; kind++)
		ended += world->counts[kind];
	if (world->counts[SIM_SENT] + world->counts[SIM_DUPLICATED] != ended)
		scenario_fail(world->run, "%" PRIu64 " copies, %" PRIu64 " ends",
		              world->counts[SIM_SENT] + world->counts[SIM_DUPLICATED], ended);
	if (world->in_flight != 0 || sim_in_flight(world->sim) != 0)
		scenario_fail(world->run, "%u and %u packets in flight at rest", world->in_flight,
		              sim_in_flight(world->sim));
	for (int kind = 0; kind < SIM_KINDS; kind++) {
		if (world->counts[kind] != sim_count(world->sim, (enum sim_kind)kind))
			scenario_fail(world->run, "the counter '%s' is wrong",
			              sim_kind_name((enum sim_kind)kind));
		bool fault = kind != SIM_SENT && kind != SIM_DELIVERED && kind != SIM_CALLED &&
		             kind != SIM_LINK_SET;
		if (world->faultless && fault && world->counts[kind] > 0)
			scenario_fail(world->run, "'%s' in the half without faults",
			              sim_kind_name((enum sim_kind)kind));
	}
}

void packets_check_end(struct world *world)
{
	for (uint32_t number = 0; number < world->sent_count; number++) {
		const struct sent *sent = &world->sent[number];
		if (sent->ended != sent->copies)
			scenario_fail(world->run, "packet %u: %u copies, %u ends", number,
			              sent->copies, sent->ended);
		if (world->faultless && sent->delivered != 1)
			scenario_fail(world->run, "packet %u arrived %u times", number,
			              sent->delivered);
	}
	if (world->counts[SIM_SENT] != world->sent_count)
		scenario_fail(world->run, "%u sent, %" PRIu64 " recorded", world->sent_count,
		              world->counts[SIM_SENT]);
	check_counts(world);
}
