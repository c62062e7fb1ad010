/* Thousands of connections over a network that loses, repeats and reorders, from a seed: both ends
 * come to know the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/prng.h"
#include "compat/cm/ibcm.h"
#include "ibcm_requests.h"

#define FOREVER   (3600ull * 1000 * MS)
#define IN_FLIGHT 256u
#define SEEDS     20000u
#define GIVEN_UP  (SEEDS / 200) /* most of them where a fifth of all messages is lost */

enum plan { ACCEPT, PASSIVE_REJECTS, ACTIVE_REJECTS, DATAGRAM, DATAGRAM_REJECTED, PLANS };

struct flight {
	uint64_t at_ns; /* 0: none */
	int to;
	uint8_t mad[MAD_BYTES];
};

struct world {
	uint64_t seed;
	struct prng prng;
	uint64_t now_ns, sent;
	enum plan plan;
	unsigned loss; /* in a hundred */
	struct flight flights[IN_FLIGHT];
	struct ibcm ends[2];
	bool there;         /* the passive end is */
	uint64_t act_ns[2]; /* when the program does the next thing; 0: nothing */
	unsigned seen[2][IBCM_EXITED + 1];
	int leaver;
};

static unsigned given_up; /* by the passive side, of all worlds in which something gets through */

static void fly(struct world *world, int to, struct ibcm_out *out)
{
	if (!out->any)
		return;
	out->any = false;
	world->sent++;
	unsigned copies = prng_below(&world->prng, 100) < world->loss ? 0 : 1;
	if (world->loss < 100 && prng_below(&world->prng, 100) < 10)
		copies++;
	for (unsigned i = 0; i < IN_FLIGHT && copies > 0; i++) {
		struct flight *flight = &world->flights[i];
		if (flight->at_ns != 0)
			continue;
		/* Now and then later than the time that anybody waits. */
		uint64_t delay = 1 + prng_below(&world->prng, 16) == 1 ? 3000 * MS : 20 * MS;
		flight->at_ns = world->now_ns + 1 +
		                prng_below(&world->prng, (uint32_t)(delay / 1000)) * 1000;
		flight->to = to;
		memcpy(flight->mad, out->mad, MAD_BYTES);
		copies--;
	}
	assert_int_equal(copies, 0);
}

static void happens(struct world *world, int who, enum ibcm_event event)
{
	if (event == IBCM_NOTHING)
		return;
	assert_int_equal(++world->seen[who][event], 1); /* nothing twice */
	const unsigned *seen = world->seen[who];
	if (event == IBCM_DISCONNECTED)
		assert_true(who == 0 ? seen[IBCM_REPLIED] : world->there);
	if (event == IBCM_EXITED)
		assert_true(seen[IBCM_DISCONNECTED]);
	if (event == IBCM_CONNECTED)
		assert_int_equal(who, 1);
	if (event == IBCM_REPLIED || event == IBCM_CONNECTED)
		world->act_ns[who] = world->now_ns + 1 + prng_below(&world->prng, 5000) * MS;
}

/* The programs: the passive one answers, the active one confirms, one of them ends it. */
static void act(struct world *world, int who)
{
	struct ibcm *end = &world->ends[who];
	struct ibcm_out out = {0};
	struct ib_cm_message reply = {0};
	world->act_ns[who] = 0;
	if (end->state == IBCM_REQ_RECEIVED) {
		reply.u.rep.qpn = 0x22;
		if (end->datagram) /* not where the QPN of a REP is */
			reply = (struct ib_cm_message){.u.sidr_rep.qpn = 0x22};
		if (world->plan == PASSIVE_REJECTS || world->plan == DATAGRAM_REJECTED)
			assert_true(ibcm_reject(end,
			                        end->datagram ? IB_CM_SIDR_REJECT : IB_CM_CONSUMER,
			                        NULL, &out));
		else
			assert_true(ibcm_reply(end, &reply, world->now_ns, &out));
	} else if (end->state == IBCM_REP_RECEIVED) {
		if (world->plan == ACTIVE_REJECTS)
			assert_true(ibcm_reject(end, IB_CM_CONSUMER, NULL, &out));
		else
			assert_true(ibcm_confirm(end, &out));
		if (world->leaver == 0)
			world->act_ns[0] = world->now_ns + 1 + prng_below(&world->prng, 20000) * MS;
	} else if (end->state == IBCM_ESTABLISHED && world->leaver == who) {
		assert_true(ibcm_disconnect(end, world->now_ns, &out));
	}
	fly(world, !who, &out);
}

static void arrive(struct world *world, struct flight *flight)
{
	struct ibcm_out out = {0};
	struct ib_cm_message message;
	int who = flight->to;
	struct ibcm *end = &world->ends[who];
	assert_int_equal(ib_cm_decode(&message, flight->mad, MAD_BYTES), IB_CM_OK);
	flight->at_ns = 0;
	if (who == 1 && !world->there) {
		if (message.kind != IB_CM_REQ && message.kind != IB_CM_SIDR_REQ)
			return;
		ibcm_asked(end, &message, PASSIVE_ID);
		world->there = true;
		world->act_ns[1] = world->now_ns + 1 + prng_below(&world->prng, 5000) * MS;
		return;
	}
	happens(world, who, ibcm_receive(end, &message, world->now_ns, &out));
	fly(world, !who, &out);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return b != 0 && b < a ? b : a;
}

/* To the next thing that happens. False: nothing does any more. */
static bool step(struct world *world)
{
	uint64_t next = UINT64_MAX;
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		next = earlier(next, world->flights[i].at_ns);
	for (int who = 0; who < 2; who++)
		next = earlier(earlier(next, world->act_ns[who]), world->ends[who].due_ns);
	if (next == UINT64_MAX)
		return false;
	world->now_ns = next;
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		if (world->flights[i].at_ns == next) {
			arrive(world, &world->flights[i]);
			return true;
		}
	for (int who = 0; who < 2; who++) {
		struct ibcm_out out = {0};
		if (world->act_ns[who] == next) {
			act(world, who);
			return true;
		}
		if (world->ends[who].due_ns == next) {
			happens(world, who, ibcm_expire(&world->ends[who], next, &out));
			fly(world, !who, &out);
			return true;
		}
	}
	return true;
}

#define WANT(what)                                                                          \
	do {                                                                                \
		if (!(what))                                                                \
			fail_msg("seed %llu: not " #what, (unsigned long long)world->seed); \
	} while (0)

/* What must have happened, given that something gets through: both programs know the same. */
static void judge(const struct world *world)
{
	const unsigned *active = world->seen[0], *passive = world->seen[1];
	/* A reply to a peer that has proved nothing is repeated a few times only, and says so once
	 * when that was in vain. */
	if (passive[IBCM_UNREACHABLE] != 0 && world->loss != 100) {
		WANT(passive[IBCM_UNREACHABLE] == 1 && passive[IBCM_CONNECTED] == 0);
		WANT(world->ends[1].state == IBCM_OVER);
		given_up++;
		return;
	}
	WANT(world->ends[0].state == IBCM_OVER);
	WANT(world->ends[1].state == (world->there ? IBCM_OVER : IBCM_IDLE));
	if (world->loss == 100) {
		WANT(active[IBCM_UNREACHABLE] == 1);
		/* And that it is given up, which is lost as well. */
		WANT(world->sent == 1 + IB_CM_MAX_RETRIES + (world->plan < DATAGRAM));
		return;
	}
	WANT(active[IBCM_UNREACHABLE] == 0);
	switch (world->plan) {
	case ACCEPT:
		WANT(active[IBCM_REPLIED] == 1);
		WANT(active[IBCM_DISCONNECTED] == 1);
		WANT(passive[IBCM_DISCONNECTED] == 1);
		WANT(active[IBCM_EXITED] == 1);
		WANT(passive[IBCM_EXITED] == 1);
		WANT(active[IBCM_REJECTED] + passive[IBCM_REJECTED] == 0);
		if (world->leaver == 1)
			WANT(passive[IBCM_CONNECTED] == 1);
		break;
	case PASSIVE_REJECTS:
		WANT(active[IBCM_REJECTED] == 1);
		break;
	case ACTIVE_REJECTS: /* where the REJ is lost its repetition is asked for by that of the REP
	                      */
		WANT(active[IBCM_REPLIED] == 1);
		WANT(passive[IBCM_REJECTED] == 1);
		break;
	default:
		WANT(active[IBCM_REPLIED] == 1);
		break;
	}
}

static void any_network_ends_in_agreement(void **state)
{
	static struct world world;
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct ibcm_out out = {0};
		memset(&world, 0, sizeof(world));
		world.seed = seed;
		prng_seed(&world.prng, seed);
		world.now_ns = 1;
		world.plan = (enum plan)(seed % PLANS);
		world.loss = seed % 97 == 0 ? 100 : (unsigned)prng_below(&world.prng, 20);
		world.leaver = (int)prng_below(&world.prng, 2);
		struct ib_cm_message message = world.plan >= DATAGRAM ? sidr_request() : request();
		ibcm_ask(&world.ends[0], &message, world.now_ns, &out);
		fly(&world, 1, &out);
		unsigned steps = 0;
		while (step(&world)) {
			if (world.now_ns > FOREVER || ++steps > 10000)
				fail_msg("seed %llu does not end", (unsigned long long)seed);
		}
		judge(&world);
	}
	print_message("%u of %u were given up\n", given_up, SEEDS);
	assert_true(given_up < GIVEN_UP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(any_network_ends_in_agreement),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
