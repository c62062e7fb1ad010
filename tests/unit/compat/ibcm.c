/* Both ends of communication management on virtual time: clause by clause, and then thousands of connections over a network that
 * loses, repeats and reorders, from a seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/prng.h"
#include "compat/ibcm.h"

#define ACTIVE_ID  0x00400001u
#define PASSIVE_ID 0x00800002u
#define GUID       0x0200000000000001ull
#define MS         1000000ull
#define FOREVER    (3600ull * 1000 * MS)

/* --- one step at a time --- */

static struct ib_cm_message request(void)
{
	struct ib_cm_message req = {.kind = IB_CM_REQ, .transaction_id = 77};
	req.u.req.local_id = ACTIVE_ID;
	req.u.req.ca_guid = GUID;
	req.u.req.qpn = 0x11;
	req.u.req.remote_response_timeout = IB_CM_RESPONSE_TIMEOUT;
	req.u.req.local_response_timeout = IB_CM_RESPONSE_TIMEOUT;
	req.u.req.max_retries = IB_CM_MAX_RETRIES;
	req.u.req.primary.ack_timeout = 17;
	return req;
}

static struct ib_cm_message sidr_request(void)
{
	struct ib_cm_message req = {.kind = IB_CM_SIDR_REQ, .transaction_id = 77};
	req.u.sidr_req.request_id = ACTIVE_ID;
	return req;
}

static struct ib_cm_message heard(struct ibcm_out *out)
{
	struct ib_cm_message message;
	assert_true(out->any);
	assert_int_equal(ib_cm_decode(&message, out->mad, MAD_BYTES), IB_CM_OK);
	out->any = false;
	return message;
}

/* An active and a passive end that have come as far as @state of the active one. */
static void up_to(enum ibcm_state state, struct ibcm *active, struct ibcm *passive)
{
	struct ibcm_out out = {0};
	struct ib_cm_message message = request(), rep = {0};
	ibcm_ask(active, &message, 0, &out);
	message = heard(&out);
	ibcm_asked(passive, &message, PASSIVE_ID);
	if (state == IBCM_REQ_SENT)
		return;
	rep.u.rep.qpn = 0x22;
	assert_true(ibcm_reply(passive, &rep, 0, &out));
	message = heard(&out);
	assert_int_equal(ibcm_hear(active, &message, 0, &out), IBCM_REPLIED);
	if (state == IBCM_REP_RECEIVED)
		return;
	assert_true(ibcm_confirm(active, &out));
	message = heard(&out);
	assert_int_equal(ibcm_hear(passive, &message, 0, &out), IBCM_CONNECTED);
	assert_int_equal(active->state, IBCM_ESTABLISHED);
	assert_int_equal(passive->state, IBCM_ESTABLISHED);
	assert_int_equal(active->due_ns, 0);
	assert_int_equal(passive->due_ns, 0);
}

static void ibta_12_9_a_connection(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	struct ib_cm_message message;
	(void)state;
	up_to(IBCM_ESTABLISHED, &active, &passive);
	assert_int_equal(active.remote_id, PASSIVE_ID);
	assert_int_equal(active.remote_qpn, 0x22);
	assert_int_equal(passive.remote_qpn, 0x11);
	assert_true(ibcm_disconnect(&passive, 0, &out));
	assert_false(ibcm_disconnect(&passive, 0, &out)); /* once */
	message = heard(&out);
	assert_int_equal(message.u.dreq.remote_qpn, 0x11);
	assert_int_equal(ibcm_hear(&active, &message, 0, &out), IBCM_DISCONNECTED);
	message = heard(&out);
	assert_int_equal(message.kind, IB_CM_DREP);
	assert_int_equal(ibcm_hear(&passive, &message, 0, &out), IBCM_DISCONNECTED);
	assert_int_equal(ibcm_expire(&passive, passive.due_ns - 1, &out), IBCM_NOTHING);
	assert_int_equal(ibcm_expire(&passive, passive.due_ns, &out), IBCM_EXITED);
	assert_int_equal(ibcm_expire(&active, active.due_ns, &out), IBCM_EXITED);
	assert_int_equal(active.state, IBCM_OVER);
	assert_int_equal(passive.state, IBCM_OVER);
	assert_false(out.any);
}

static void ibta_12_9_8_requests_are_repeated_and_given_up(void **state)
{
	struct ibcm active;
	struct ibcm_out out = {0};
	struct ib_cm_message req = request(), sidr = sidr_request();
	(void)state;
	for (int datagram = 0; datagram < 2; datagram++) {
		unsigned sent = 1;
		ibcm_ask(&active, datagram ? &sidr : &req, 5, &out);
		uint8_t first[MAD_BYTES];
		memcpy(first, out.mad, MAD_BYTES);
		enum ibcm_event event = IBCM_NOTHING;
		while (event == IBCM_NOTHING) {
			out.any = false;
			assert_true(active.due_ns != 0);
			event = ibcm_expire(&active, active.due_ns, &out);
			if (!out.any)
				continue;
			sent++;
			assert_memory_equal(out.mad, first,
			                    MAD_BYTES); /* the same, TransactionID too */
		}
		assert_int_equal(event, IBCM_UNREACHABLE);
		assert_int_equal(sent, 1 + IB_CM_MAX_RETRIES);
		assert_int_equal(active.state, IBCM_OVER);
		assert_int_equal(active.due_ns, 0);
	}
}

static void ibta_12_9_8_a_reply_is_repeated_and_given_up(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	struct ib_cm_message message, rep = {0};
	unsigned sent = 0;
	enum ibcm_event event = IBCM_NOTHING;
	(void)state;
	up_to(IBCM_REQ_SENT, &active, &passive);
	assert_true(ibcm_reply(&passive, &rep, 0, &out));
	while (event == IBCM_NOTHING) {
		message = heard(&out);
		assert_int_equal(message.kind, IB_CM_REP);
		sent++;
		event = ibcm_expire(&passive, passive.due_ns, &out);
	}
	assert_int_equal(event, IBCM_UNREACHABLE);
	assert_int_equal(sent, 1 + IB_CM_MAX_RETRIES);
	message = heard(&out); /* the peer may think that it is connected */
	assert_int_equal(message.kind, IB_CM_REJ);
	assert_int_equal(message.u.rej.reason, IB_CM_TIMEOUT);
	up_to(IBCM_ESTABLISHED, &active, &passive);
	assert_int_equal(ibcm_hear(&active, &message, 0, &out), IBCM_DISCONNECTED);
}

static void ibta_12_6_6_mra_gives_time(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	struct ib_cm_message message = request();
	(void)state;
	up_to(IBCM_REQ_SENT, &active, &passive);
	assert_int_equal(ibcm_hear(&passive, &message, 0, &out), IBCM_NOTHING);
	message = heard(&out);
	assert_int_equal(message.kind, IB_CM_MRA);
	uint64_t before = active.due_ns;
	assert_int_equal(ibcm_hear(&active, &message, 0, &out), IBCM_NOTHING);
	assert_int_equal(active.due_ns - before, ib_cm_time_ns(IBCM_SERVICE_TIMEOUT));
	assert_int_equal(ibcm_expire(&active, before, &out), IBCM_NOTHING);
	assert_false(out.any);
	message.u.mra.about = IB_CM_ABOUT_REP; /* not what we asked */
	before = active.due_ns;
	ibcm_hear(&active, &message, 99, &out);
	assert_int_equal(active.due_ns, before);
}

static void duplicates_are_answered_and_change_nothing(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	struct ib_cm_message req = request(), rep = {0}, rtu, message;
	(void)state;
	up_to(IBCM_REQ_SENT, &active, &passive);
	ibcm_reply(&passive, &rep, 0, &out);
	rep = heard(&out);
	assert_true(ibcm_is_of(&passive, &req));
	assert_int_equal(ibcm_hear(&passive, &req, 0, &out), IBCM_NOTHING);
	message = heard(&out); /* a REQ is answered with the REP again */
	assert_int_equal(message.kind, IB_CM_REP);
	assert_int_equal(ibcm_hear(&active, &rep, 0, &out), IBCM_REPLIED);
	assert_int_equal(ibcm_hear(&active, &rep, 0, &out), IBCM_NOTHING);
	assert_false(out.any); /* the program has not made up its mind */
	ibcm_confirm(&active, &out);
	rtu = heard(&out);
	assert_int_equal(ibcm_hear(&active, &rep, 0, &out), IBCM_NOTHING);
	message = heard(&out); /* a REP with the RTU */
	assert_int_equal(message.kind, IB_CM_RTU);
	assert_int_equal(ibcm_hear(&passive, &rtu, 0, &out), IBCM_CONNECTED);
	assert_int_equal(ibcm_hear(&passive, &rtu, 0, &out), IBCM_NOTHING);
	assert_int_equal(ibcm_hear(&passive, &req, 0, &out), IBCM_NOTHING);
	assert_false(out.any);
	ibcm_disconnect(&active, 0, &out);
	struct ib_cm_message dreq = heard(&out);
	assert_int_equal(ibcm_hear(&passive, &dreq, 0, &out), IBCM_DISCONNECTED);
	heard(&out);
	assert_int_equal(ibcm_hear(&passive, &dreq, 0, &out), IBCM_NOTHING);
	message = heard(&out); /* a DREQ with a DREP, however late */
	assert_int_equal(message.kind, IB_CM_DREP);
	ibcm_expire(&passive, passive.due_ns, &out);
	assert_int_equal(ibcm_hear(&passive, &dreq, 0, &out), IBCM_NOTHING);
	heard(&out);
	assert_int_equal(ibcm_hear(&active, &message, 0, &out), IBCM_DISCONNECTED);
	assert_int_equal(ibcm_hear(&active, &message, 0, &out), IBCM_NOTHING);
}

static void refusals(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	struct ib_cm_message message, req = request(), sidr = sidr_request();
	uint8_t why[IB_CM_REJ_PRIVATE_BYTES] = "no";
	(void)state;
	up_to(IBCM_REQ_SENT, &active, &passive);
	assert_true(ibcm_reject(&passive, IB_CM_CONSUMER, why, &out));
	message = heard(&out);
	assert_int_equal(message.u.rej.about, IB_CM_ABOUT_REQ);
	assert_string_equal((const char *)message.u.rej.private_data, "no");
	assert_int_equal(ibcm_hear(&passive, &req, 0, &out), IBCM_NOTHING);
	message = heard(&out); /* again: it was lost */
	assert_int_equal(message.kind, IB_CM_REJ);
	assert_int_equal(ibcm_hear(&active, &message, 0, &out), IBCM_REJECTED);
	assert_int_equal(ibcm_hear(&active, &message, 0, &out), IBCM_NOTHING);

	up_to(IBCM_REP_RECEIVED, &active, &passive);
	assert_true(ibcm_reject(&active, IB_CM_CONSUMER, NULL, &out));
	message = heard(&out);
	assert_int_equal(message.u.rej.about, IB_CM_ABOUT_REP);
	assert_int_equal(ibcm_hear(&passive, &message, 0, &out), IBCM_REJECTED);

	up_to(IBCM_REQ_SENT, &active, &passive); /* nobody is there: no number of its own */
	assert_true(ib_cm_refuse(&req, IB_CM_INVALID_SERVICE_ID, &message));
	assert_int_equal(ibcm_hear(&active, &message, 0, &out), IBCM_REJECTED);

	up_to(IBCM_REQ_SENT, &active, &passive); /* the active side gives up */
	ibcm_part(&active, GUID, &out);
	message = heard(&out);
	assert_int_equal(message.u.rej.reason, IB_CM_TIMEOUT);
	assert_int_equal(message.u.rej.info_bytes, 8);
	assert_int_equal(message.u.rej.info[0], GUID >> 56);
	assert_int_equal(ibcm_hear(&passive, &message, 0, &out), IBCM_REJECTED);

	ibcm_asked(&passive, &sidr, PASSIVE_ID);
	assert_true(ibcm_reject(&passive, IB_CM_SIDR_REJECT, NULL, &out));
	message = heard(&out);
	assert_int_equal(message.kind, IB_CM_SIDR_REP);
	assert_int_equal(message.u.sidr_rep.status, IB_CM_SIDR_REJECT);
	ibcm_ask(&active, &sidr, 0, &out);
	assert_int_equal(ibcm_hear(&active, &message, 0, &out), IBCM_REPLIED);
	assert_int_equal(ibcm_hear(&active, &message, 0, &out), IBCM_NOTHING);
}

/* The fields hold up to two hours, and a peer that says so would keep what its connection takes as long. */
static void long_times_are_not_believed(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	struct ib_cm_message req = request(), rep = {0}, mra = {.kind = IB_CM_MRA};
	(void)state;
	req.u.req.local_response_timeout = req.u.req.primary.ack_timeout = 31;
	ibcm_asked(&passive, &req, PASSIVE_ID);
	assert_true(ibcm_reply(&passive, &rep, 0, &out));
	assert_int_equal(passive.due_ns, 2 * ib_cm_time_ns(IBCM_LONGEST_TIMEOUT));
	assert_true(ibcm_disconnect(&passive, 0, &out));
	while (passive.state != IBCM_TIMEWAIT)
		ibcm_expire(&passive, passive.due_ns, &out);
	uint64_t before = passive.due_ns;
	assert_int_equal(ibcm_expire(&passive, before, &out), IBCM_EXITED);
	assert_true(before <=
	            (2 * (1 + IB_CM_MAX_RETRIES) + 1) * ib_cm_time_ns(IBCM_LONGEST_TIMEOUT));

	up_to(IBCM_REQ_SENT, &active, &passive);
	mra.u.mra.local_id = PASSIVE_ID;
	mra.u.mra.remote_id = ACTIVE_ID;
	mra.u.mra.service_timeout = 31;
	before = active.due_ns;
	ibcm_hear(&active, &mra, 0, &out);
	assert_int_equal(active.due_ns - before, ib_cm_time_ns(IBCM_SERVICE_TIMEOUT));
}

/* Who forgets a connection says so to whoever repeats it until it is answered; and says the same if it was said before. */
static void the_last_word(void **state)
{
	struct ibcm active, passive;
	struct ib_cm_message first, again;
	(void)state;
	for (int disconnected = 0; disconnected < 2; disconnected++) {
		struct ibcm_out out = {0};
		up_to(IBCM_ESTABLISHED, &active, &passive);
		if (disconnected) {
			assert_true(ibcm_disconnect(&active, 0, &out));
			assert_false(out.last); /* it is repeated here */
			first = heard(&out);
		}
		ibcm_part(&active, GUID, &out);
		assert_true(out.last);
		again = heard(&out);
		assert_int_equal(again.kind, IB_CM_DREQ);
		if (disconnected)
			assert_int_equal(again.transaction_id, first.transaction_id);
		assert_int_equal(active.state, IBCM_OVER);
		ibcm_part(&active, GUID, &out);
		assert_false(out.any);
		ibcm_hear(&passive, &again, 0, &out);
		assert_int_equal(heard(&out).kind, IB_CM_DREP);
	}
	struct ibcm_out out = {0};
	up_to(IBCM_REQ_SENT, &active, &passive);
	ibcm_part(&active, GUID, &out);
	assert_false(out.last); /* a REJ is said once */
}

static void strangers_are_not_heard(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	(void)state;
	up_to(IBCM_ESTABLISHED, &active, &passive);
	for (int kind = IB_CM_REQ; kind < IB_CM_KIND_END; kind++) {
		struct ib_cm_message message = {.kind = (enum ib_cm_kind)kind, .transaction_id = 1};
		message.u.rtu.local_id = PASSIVE_ID + 1;
		message.u.rtu.remote_id = ACTIVE_ID;
		assert_int_equal(ibcm_hear(&active, &message, 0, &out), IBCM_NOTHING);
		assert_false(out.any);
		assert_int_equal(active.state, IBCM_ESTABLISHED);
	}
	/* A DREQ for another queue pair (12.9.8.3.2). */
	struct ib_cm_message dreq = {.kind = IB_CM_DREQ};
	dreq.u.dreq.local_id = PASSIVE_ID;
	dreq.u.dreq.remote_qpn = 0x12;
	assert_int_equal(ibcm_hear(&active, &dreq, 0, &out), IBCM_NOTHING);
	dreq.u.dreq.remote_qpn = 0x11;
	assert_int_equal(ibcm_hear(&active, &dreq, 0, &out), IBCM_DISCONNECTED);
}

static void ibta_12_8_other_paths_are_declined(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	struct ib_cm_message lap = {.kind = IB_CM_LAP, .transaction_id = 5};
	(void)state;
	up_to(IBCM_ESTABLISHED, &active, &passive);
	lap.u.lap.local_id = PASSIVE_ID;
	ibcm_hear(&active, &lap, 0, &out);
	lap = heard(&out);
	assert_int_equal(lap.kind, IB_CM_APR);
	assert_int_equal(lap.u.apr.status, 2);
	assert_int_equal(lap.transaction_id, 5);
}

static void data_may_come_before_the_rtu(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	struct ib_cm_message rep = {0}, message;
	(void)state;
	up_to(IBCM_REQ_SENT, &active, &passive);
	ibcm_reply(&passive, &rep, 0, &out);
	message = heard(&out);
	ibcm_hear(&active, &message, 0, &out);
	ibcm_confirm(&active, &out);
	message = heard(&out);
	assert_int_equal(ibcm_established(&passive), IBCM_CONNECTED);
	assert_int_equal(ibcm_established(&passive), IBCM_NOTHING);
	assert_int_equal(ibcm_hear(&passive, &message, 0, &out), IBCM_NOTHING);
	assert_int_equal(passive.state, IBCM_ESTABLISHED);
}

/* --- a bad network --- */

#define IN_FLIGHT 256u
#define SEEDS     20000u

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
	happens(world, who, ibcm_hear(end, &message, world->now_ns, &out));
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
	WANT(world->ends[0].state == IBCM_OVER);
	WANT(world->ends[1].state == (world->there ? IBCM_OVER : IBCM_IDLE));
	if (world->loss == 100) {
		WANT(active[IBCM_UNREACHABLE] == 1);
		WANT(world->sent == 1 + IB_CM_MAX_RETRIES);
		return;
	}
	WANT(active[IBCM_UNREACHABLE] + passive[IBCM_UNREACHABLE] == 0);
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
	case ACTIVE_REJECTS: /* where the REJ is lost its repetition is asked for by that of the REP */
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
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ibta_12_9_a_connection),
	        cmocka_unit_test(ibta_12_9_8_requests_are_repeated_and_given_up),
	        cmocka_unit_test(ibta_12_9_8_a_reply_is_repeated_and_given_up),
	        cmocka_unit_test(ibta_12_6_6_mra_gives_time),
	        cmocka_unit_test(duplicates_are_answered_and_change_nothing),
	        cmocka_unit_test(refusals),
	        cmocka_unit_test(long_times_are_not_believed),
	        cmocka_unit_test(the_last_word),
	        cmocka_unit_test(strangers_are_not_heard),
	        cmocka_unit_test(ibta_12_8_other_paths_are_declined),
	        cmocka_unit_test(data_may_come_before_the_rtu),
	        cmocka_unit_test(any_network_ends_in_agreement),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
