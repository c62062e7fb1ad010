/* Both ends of communication management on virtual time, clause by clause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compat/cm/ibcm.h"
#include "ibcm_requests.h"

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
	assert_int_equal(ibcm_receive(active, &message, 0, &out), IBCM_REPLIED);
	if (state == IBCM_REP_RECEIVED)
		return;
	assert_true(ibcm_confirm(active, &out));
	message = heard(&out);
	assert_int_equal(ibcm_receive(passive, &message, 0, &out), IBCM_CONNECTED);
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
	assert_int_equal(ibcm_receive(&active, &message, 0, &out), IBCM_DISCONNECTED);
	message = heard(&out);
	assert_int_equal(message.kind, IB_CM_DREP);
	assert_int_equal(ibcm_receive(&passive, &message, 0, &out), IBCM_DISCONNECTED);
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
			if (!out.any || event != IBCM_NOTHING)
				continue;
			sent++;
			assert_memory_equal(out.mad, first,
			                    MAD_BYTES); /* the same, TransactionID too */
		}
		assert_int_equal(event, IBCM_UNREACHABLE);
		assert_int_equal(sent, 1 + IB_CM_MAX_RETRIES);
		assert_int_equal(active.state, IBCM_OVER);
		assert_int_equal(active.due_ns, 0);
		/* There is no word for it where datagrams are concerned. */
		assert_int_equal(out.any, !datagram);
		if (!datagram)
			assert_int_equal(heard(&out).u.rej.reason, IB_CM_TIMEOUT);
	}
}

/* Let time pass until @end, which began at 0, is given up at @at_ns. With @mra the peer asks for
 * more time whenever it can. */
static void expect_given_up(struct ibcm *end, uint64_t at_ns, const struct ib_cm_message *mra)
{
	enum ibcm_event event = IBCM_NOTHING;
	uint64_t now_ns = 0;
	unsigned repeated = 0;
	ibcm_give_up_at(end, at_ns);
	while (event == IBCM_NOTHING) {
		struct ibcm_out out = {0}, none = {0};
		assert_true(end->due_ns > now_ns);
		now_ns = end->due_ns;
		event = ibcm_expire(end, now_ns, &out);
		repeated += event == IBCM_NOTHING && out.any;
		if (mra != NULL)
			ibcm_receive(end, mra, now_ns, &none);
	}
	assert_int_equal(event, IBCM_UNREACHABLE);
	assert_int_equal(now_ns, at_ns);
	assert_true(repeated <= IB_CM_MAX_RETRIES);
	assert_true(repeated > 0 || at_ns < 2000 * MS);
}

/* Not earlier than that, when the tries are used up, nor later, because the peer is alive and says
 * so each time. */
static void given_up_in_time(void **state)
{
	struct ib_cm_message sidr = sidr_request(), rep = {0}, mra = {.kind = IB_CM_MRA};
	(void)state;
	mra.transaction_id = request().transaction_id;
	mra.u.mra.service_timeout = IBCM_SERVICE_TIMEOUT;
	for (uint64_t at_ns = 100 * MS; at_ns <= 100000 * MS; at_ns += 700 * MS)
		for (unsigned alive = 0; alive < 2; alive++) {
			struct ibcm active, passive;
			struct ibcm_out out = {0};
			up_to(IBCM_REQ_SENT, &active, &passive);
			mra.u.mra.local_id = PASSIVE_ID;
			mra.u.mra.about = IB_CM_ABOUT_REQ;
			expect_given_up(&active, at_ns, alive ? &mra : NULL);
			assert_true(ibcm_reply(&passive, &rep, 0, &out));
			mra.u.mra.local_id = ACTIVE_ID;
			mra.u.mra.about = IB_CM_ABOUT_REP;
			expect_given_up(&passive, at_ns, alive ? &mra : NULL);
			ibcm_ask(&active, &sidr, 0, &out);
			expect_given_up(&active, at_ns, alive ? &mra : NULL);
		}
}

/* Who took up the request must not be left with it: neither before it replies nor afterwards. */
static void who_gave_up_says_so(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0}, reply = {0};
	struct ib_cm_message message, rep = {0};
	(void)state;
	for (int replied = 0; replied < 2; replied++) {
		up_to(IBCM_REQ_SENT, &active, &passive);
		ibcm_give_up_at(&active, 5 * MS);
		assert_int_equal(ibcm_expire(&active, 5 * MS, &out), IBCM_UNREACHABLE);
		message = heard(&out);
		if (replied) { /* that was lost */
			assert_true(ibcm_reply(&passive, &rep, 0, &reply));
			message = heard(&reply);
			assert_int_equal(ibcm_receive(&active, &message, 6 * MS, &out),
			                 IBCM_NOTHING);
			message = heard(&out);
		}
		assert_int_equal(message.kind, IB_CM_REJ);
		assert_int_equal(ibcm_receive(&passive, &message, 7 * MS, &out), IBCM_REJECTED);
		assert_int_equal(passive.state, IBCM_OVER);
		assert_int_equal(ibcm_reply(&passive, &rep, 8 * MS, &out), false);
	}
}

/* The end of a connection is repeated as ever, whatever its beginning was given. */
static void an_end_has_its_own_time(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	struct ib_cm_message rep = {0}, message;
	unsigned sent = 1;
	(void)state;
	up_to(IBCM_REQ_SENT, &active, &passive);
	assert_true(ibcm_reply(&passive, &rep, 0, &out));
	ibcm_give_up_at(&passive, 5 * MS);
	assert_true(ibcm_disconnect(&passive, 1 * MS, &out));
	while (ibcm_expire(&passive, passive.due_ns, &out) == IBCM_NOTHING) {
		message = heard(&out);
		assert_int_equal(message.kind, IB_CM_DREQ);
		sent++;
	}
	assert_int_equal(sent, 1 + IBCM_UNPROVEN_REPEATS);
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
	assert_int_equal(sent, 1 + IBCM_UNPROVEN_REPEATS);
	message = heard(&out); /* the peer may think that it is connected */
	assert_int_equal(message.kind, IB_CM_REJ);
	assert_int_equal(message.u.rej.reason, IB_CM_TIMEOUT);
	up_to(IBCM_ESTABLISHED, &active, &passive);
	assert_int_equal(ibcm_receive(&active, &message, 0, &out), IBCM_DISCONNECTED);
}

static void ibta_12_6_6_mra_gives_time(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	struct ib_cm_message message = request();
	(void)state;
	up_to(IBCM_REQ_SENT, &active, &passive);
	assert_int_equal(ibcm_receive(&passive, &message, 0, &out), IBCM_NOTHING);
	message = heard(&out);
	assert_int_equal(message.kind, IB_CM_MRA);
	uint64_t before = active.due_ns;
	assert_int_equal(ibcm_receive(&active, &message, 0, &out), IBCM_NOTHING);
	assert_int_equal(active.due_ns - before, ib_cm_time_ns(IBCM_SERVICE_TIMEOUT));
	assert_int_equal(ibcm_expire(&active, before, &out), IBCM_NOTHING);
	assert_false(out.any);
	message.u.mra.about = IB_CM_ABOUT_REP; /* not what we asked */
	before = active.due_ns;
	ibcm_receive(&active, &message, 99, &out);
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
	assert_int_equal(ibcm_receive(&passive, &req, 0, &out), IBCM_NOTHING);
	message = heard(&out); /* a REQ is answered with the REP again */
	assert_int_equal(message.kind, IB_CM_REP);
	assert_int_equal(ibcm_receive(&active, &rep, 0, &out), IBCM_REPLIED);
	assert_int_equal(ibcm_receive(&active, &rep, 0, &out), IBCM_NOTHING);
	message = heard(&out); /* the program has not made up its mind */
	assert_int_equal(message.kind, IB_CM_MRA);
	assert_int_equal(message.u.mra.about, IB_CM_ABOUT_REP);
	ibcm_confirm(&active, &out);
	rtu = heard(&out);
	assert_int_equal(ibcm_receive(&active, &rep, 0, &out), IBCM_NOTHING);
	message = heard(&out); /* a REP with the RTU */
	assert_int_equal(message.kind, IB_CM_RTU);
	assert_int_equal(ibcm_receive(&passive, &rtu, 0, &out), IBCM_CONNECTED);
	assert_int_equal(ibcm_receive(&passive, &rtu, 0, &out), IBCM_NOTHING);
	assert_int_equal(ibcm_receive(&passive, &req, 0, &out), IBCM_NOTHING);
	assert_false(out.any);
	ibcm_disconnect(&active, 0, &out);
	struct ib_cm_message dreq = heard(&out);
	assert_int_equal(ibcm_receive(&passive, &dreq, 0, &out), IBCM_DISCONNECTED);
	heard(&out);
	assert_int_equal(ibcm_receive(&passive, &dreq, 0, &out), IBCM_NOTHING);
	message = heard(&out); /* a DREQ with a DREP, however late */
	assert_int_equal(message.kind, IB_CM_DREP);
	ibcm_expire(&passive, passive.due_ns, &out);
	assert_int_equal(ibcm_receive(&passive, &dreq, 0, &out), IBCM_NOTHING);
	heard(&out);
	assert_int_equal(ibcm_receive(&active, &message, 0, &out), IBCM_DISCONNECTED);
	assert_int_equal(ibcm_receive(&active, &message, 0, &out), IBCM_NOTHING);
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
	assert_int_equal(ibcm_receive(&passive, &req, 0, &out), IBCM_NOTHING);
	message = heard(&out); /* again: it was lost */
	assert_int_equal(message.kind, IB_CM_REJ);
	assert_int_equal(ibcm_receive(&active, &message, 0, &out), IBCM_REJECTED);
	assert_int_equal(ibcm_receive(&active, &message, 0, &out), IBCM_NOTHING);

	up_to(IBCM_REP_RECEIVED, &active, &passive);
	assert_true(ibcm_reject(&active, IB_CM_CONSUMER, NULL, &out));
	message = heard(&out);
	assert_int_equal(message.u.rej.about, IB_CM_ABOUT_REP);
	assert_int_equal(ibcm_receive(&passive, &message, 0, &out), IBCM_REJECTED);

	up_to(IBCM_REQ_SENT, &active, &passive); /* nobody is there: no number of its own */
	assert_true(ib_cm_refuse(&req, IB_CM_INVALID_SERVICE_ID, &message));
	assert_int_equal(ibcm_receive(&active, &message, 0, &out), IBCM_REJECTED);

	up_to(IBCM_REQ_SENT, &active, &passive); /* the active side gives up */
	ibcm_part(&active, &out);
	message = heard(&out);
	assert_int_equal(message.u.rej.reason, IB_CM_TIMEOUT);
	assert_int_equal(message.u.rej.info_bytes, 8);
	assert_int_equal(message.u.rej.info[0], GUID >> 56);
	assert_int_equal(ibcm_receive(&passive, &message, 0, &out), IBCM_REJECTED);

	ibcm_asked(&passive, &sidr, PASSIVE_ID);
	assert_true(ibcm_reject(&passive, IB_CM_SIDR_REJECT, NULL, &out));
	message = heard(&out);
	assert_int_equal(message.kind, IB_CM_SIDR_REP);
	assert_int_equal(message.u.sidr_rep.status, IB_CM_SIDR_REJECT);
	ibcm_ask(&active, &sidr, 0, &out);
	assert_int_equal(ibcm_receive(&active, &message, 0, &out), IBCM_REPLIED);
	assert_int_equal(ibcm_receive(&active, &message, 0, &out), IBCM_NOTHING);
}

/* The fields hold up to two hours, and a peer that says so would keep what its connection takes as
 * long. */
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
	assert_true(before <= (2 * (1 + (2u << IBCM_UNPROVEN_REPEATS)) + 1) *
	                              ib_cm_time_ns(IBCM_LONGEST_TIMEOUT));

	up_to(IBCM_REQ_SENT, &active, &passive);
	mra.transaction_id = request().transaction_id;
	mra.u.mra.local_id = PASSIVE_ID;
	mra.u.mra.remote_id = ACTIVE_ID;
	mra.u.mra.service_timeout = 31;
	before = active.due_ns;
	ibcm_receive(&active, &mra, 0, &out);
	assert_int_equal(active.due_ns - before, ib_cm_time_ns(IBCM_SERVICE_TIMEOUT));
}

/* Who forgets a connection says so to whoever repeats it until it is answered; and says the same if
 * it was said before. */
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
		ibcm_part(&active, &out);
		assert_true(out.last);
		again = heard(&out);
		assert_int_equal(again.kind, IB_CM_DREQ);
		if (disconnected)
			assert_int_equal(again.transaction_id, first.transaction_id);
		assert_int_equal(active.state, IBCM_OVER);
		ibcm_part(&active, &out);
		assert_false(out.any);
		ibcm_receive(&passive, &again, 0, &out);
		assert_int_equal(heard(&out).kind, IB_CM_DREP);
	}
	struct ibcm_out out = {0};
	up_to(IBCM_REQ_SENT, &active, &passive);
	ibcm_part(&active, &out);
	assert_int_equal(heard(&out).kind, IB_CM_REJ);
	assert_true(out.last); /* nor is a REJ repeated here */
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
		assert_int_equal(ibcm_receive(&active, &message, 0, &out), IBCM_NOTHING);
		assert_false(out.any);
		assert_int_equal(active.state, IBCM_ESTABLISHED);
	}
	/* A DREQ for another queue pair (12.9.8.3.2). */
	struct ib_cm_message dreq = {.kind = IB_CM_DREQ};
	dreq.u.dreq.local_id = PASSIVE_ID;
	dreq.u.dreq.remote_qpn = 0x12;
	assert_int_equal(ibcm_receive(&active, &dreq, 0, &out), IBCM_NOTHING);
	dreq.u.dreq.remote_qpn = 0x11;
	assert_int_equal(ibcm_receive(&active, &dreq, 0, &out), IBCM_DISCONNECTED);
}

static void ibta_12_8_other_paths_are_declined(void **state)
{
	struct ibcm active, passive;
	struct ibcm_out out = {0};
	struct ib_cm_message lap = {.kind = IB_CM_LAP, .transaction_id = 5};
	(void)state;
	up_to(IBCM_ESTABLISHED, &active, &passive);
	lap.u.lap.local_id = PASSIVE_ID;
	lap.u.lap.remote_qpn = 0x11;
	ibcm_receive(&active, &lap, 0, &out);
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
	ibcm_receive(&active, &message, 0, &out);
	ibcm_confirm(&active, &out);
	message = heard(&out);
	assert_int_equal(ibcm_established(&passive), IBCM_CONNECTED);
	assert_int_equal(ibcm_established(&passive), IBCM_NOTHING);
	assert_int_equal(ibcm_receive(&passive, &message, 0, &out), IBCM_NOTHING);
	assert_int_equal(passive.state, IBCM_ESTABLISHED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ibta_12_9_a_connection),
	        cmocka_unit_test(ibta_12_9_8_requests_are_repeated_and_given_up),
	        cmocka_unit_test(ibta_12_9_8_a_reply_is_repeated_and_given_up),
	        cmocka_unit_test(given_up_in_time),
	        cmocka_unit_test(who_gave_up_says_so),
	        cmocka_unit_test(an_end_has_its_own_time),
	        cmocka_unit_test(ibta_12_6_6_mra_gives_time),
	        cmocka_unit_test(duplicates_are_answered_and_change_nothing),
	        cmocka_unit_test(refusals),
	        cmocka_unit_test(long_times_are_not_believed),
	        cmocka_unit_test(the_last_word),
	        cmocka_unit_test(strangers_are_not_heard),
	        cmocka_unit_test(ibta_12_8_other_paths_are_declined),
	        cmocka_unit_test(data_may_come_before_the_rtu),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
