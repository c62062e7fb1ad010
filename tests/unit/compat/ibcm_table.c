/* Every message in every state (IBTA volume 1, 12.9.5 to 12.9.8): what it does when it comes from
 * the peer, and that it does nothing when it comes from somebody who lacks one of the numbers that
 * only the peer was told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compat/cm/ibcm.h"
#include "ibcm_requests.h"

#define ACTIVE_QPN  0x11u /* as in request() */
#define PASSIVE_QPN 0x22u
#define STRANGER    0x00c00003u
#define KINDS       (IB_CM_KIND_END - IB_CM_REQ)

/* The states of cm/ibcm.h, from the side that asked or that was asked. */
enum place {
	REQ_SENT,
	REP_RECEIVED,
	ESTABLISHED_ACTIVE,
	DREQ_SENT,
	TIMEWAIT,
	REQ_RECEIVED,
	REP_SENT,
	ESTABLISHED_PASSIVE,
	SIDR_SENT,
	SIDR_RECEIVED,
	PLACES
};

static const char *const place_names[PLACES] = {
        "REQ_SENT",     "REP_RECEIVED", "ESTABLISHED (asked for)", "DREQ_SENT", "TIMEWAIT",
        "REQ_RECEIVED", "REP_SENT",     "ESTABLISHED (asked of)",  "SIDR_SENT", "SIDR_RECEIVED"};

static bool is_active(enum place place)
{
	return place < REQ_RECEIVED || place == SIDR_SENT;
}

static struct ib_cm_message said(struct ibcm_out *out)
{
	struct ib_cm_message message;
	assert_true(out->any);
	assert_int_equal(ib_cm_decode(&message, out->mad, MAD_BYTES), IB_CM_OK);
	*out = (struct ibcm_out){0};
	return message;
}

/* The end that is to hear. */
static struct ibcm at(enum place place)
{
	struct ibcm active = {0}, passive = {0};
	struct ibcm_out out = {0};
	struct ib_cm_message req = place >= SIDR_SENT ? sidr_request() : request(), rep = {0};
	ibcm_ask(&active, &req, 0, &out);
	ibcm_asked(&passive, &req, PASSIVE_ID);
	if (place == REQ_SENT || place == SIDR_SENT)
		return active;
	if (place == REQ_RECEIVED || place == SIDR_RECEIVED)
		return passive;
	rep.u.rep.qpn = PASSIVE_QPN;
	assert_true(ibcm_reply(&passive, &rep, 0, &out));
	if (place == REP_SENT)
		return passive;
	rep = said(&out);
	assert_int_equal(ibcm_receive(&active, &rep, 0, &out), IBCM_REPLIED);
	if (place == REP_RECEIVED)
		return active;
	assert_true(ibcm_confirm(&active, &out));
	rep = said(&out);
	assert_int_equal(ibcm_receive(&passive, &rep, 0, &out), IBCM_CONNECTED);
	if (place == ESTABLISHED_PASSIVE)
		return passive;
	if (place == ESTABLISHED_ACTIVE)
		return active;
	assert_true(ibcm_disconnect(&active, 0, &out));
	if (place == DREQ_SENT)
		return active;
	rep = said(&out);
	assert_int_equal(ibcm_receive(&passive, &rep, 0, &out), IBCM_DISCONNECTED);
	rep = said(&out);
	assert_int_equal(ibcm_receive(&active, &rep, 0, &out), IBCM_DISCONNECTED);
	return active;
}

/* A message of the peer's to the end at @place, with every number right. */
static struct ib_cm_message from_peer(enum place place, enum ib_cm_kind kind)
{
	bool to_active = is_active(place);
	struct ib_cm_message message = {.kind = kind, .transaction_id = request().transaction_id};
	if (kind == IB_CM_REQ)
		return request();
	if (kind == IB_CM_SIDR_REQ)
		return sidr_request();
	if (kind == IB_CM_SIDR_REP) {
		message.u.sidr_rep.request_id = ACTIVE_ID;
		return message;
	}
	message.u.rtu.local_id = to_active ? PASSIVE_ID : ACTIVE_ID;
	message.u.rtu.remote_id = to_active ? ACTIVE_ID : PASSIVE_ID;
	if (kind == IB_CM_REP)
		message.u.rep.qpn = PASSIVE_QPN;
	if (kind == IB_CM_DREQ) {
		message.u.dreq.remote_qpn = to_active ? ACTIVE_QPN : PASSIVE_QPN;
		message.transaction_id = 5;
	}
	if (kind == IB_CM_LAP) {
		message.u.lap.remote_qpn = to_active ? ACTIVE_QPN : PASSIVE_QPN;
		message.transaction_id = 6;
	}
	if (kind == IB_CM_DREP)
		message.transaction_id = ~request().transaction_id;
	if (kind == IB_CM_REJ)
		message.u.rej.reason = IB_CM_CONSUMER;
	if (kind == IB_CM_REJ || kind == IB_CM_MRA)
		message.u.rej.about = place == REQ_SENT ? IB_CM_ABOUT_REQ : IB_CM_ABOUT_REP;
	return message;
}

/* What comes of it: an event, an answer, both, or nothing. An MRA only gives the peer more time. */
struct outcome {
	enum ibcm_event event;
	int answer; /* enum ib_cm_kind; 0: none */
};

#define NOT                     \
	{                       \
		IBCM_NOTHING, 0 \
	}
#define SAY(what)                          \
	{                                  \
		IBCM_NOTHING, IB_CM_##what \
	}
#define NEWS(what)             \
	{                      \
		IBCM_##what, 0 \
	}

/* clang-format off */
static const struct outcome table[PLACES][KINDS] = {
/*                        REQ        MRA  REJ                 REP             RTU              DREQ
 *                                   DREP                 SIDR_REQ  SIDR_REP       LAP       APR */
[REQ_SENT] =            { NOT,       NOT, NEWS(REJECTED),     NEWS(REPLIED),  NOT,             NOT,                              NOT,                 NOT,      NOT,           NOT,      NOT },
[REP_RECEIVED] =        { NOT,       NOT, NEWS(REJECTED),     SAY(MRA),       NOT,             NOT,                              NOT,                 NOT,      NOT,           NOT,      NOT },
[ESTABLISHED_ACTIVE] =  { NOT,       NOT, NEWS(DISCONNECTED), SAY(RTU),       NOT,             {IBCM_DISCONNECTED, IB_CM_DREP},  NOT,                 NOT,      NOT,           SAY(APR), NOT },
[DREQ_SENT] =           { NOT,       NOT, NEWS(DISCONNECTED), NOT,            NOT,             {IBCM_DISCONNECTED, IB_CM_DREP},  NEWS(DISCONNECTED),  NOT,      NOT,           NOT,      NOT },
[TIMEWAIT] =            { NOT,       NOT, NOT,                NOT,            NOT,             SAY(DREP),                        NOT,                 NOT,      NOT,           NOT,      NOT },
[REQ_RECEIVED] =        { SAY(MRA),  NOT, NEWS(REJECTED),     NOT,            NOT,             NOT,                              NOT,                 NOT,      NOT,           NOT,      NOT },
[REP_SENT] =            { SAY(REP),  NOT, NEWS(REJECTED),     NOT,            NEWS(CONNECTED), {IBCM_DISCONNECTED, IB_CM_DREP},  NOT,                 NOT,      NOT,           NOT,      NOT },
[ESTABLISHED_PASSIVE] = { NOT,       NOT, NOT,                NOT,            NOT,             {IBCM_DISCONNECTED, IB_CM_DREP},  NOT,                 NOT,      NOT,           SAY(APR), NOT },
[SIDR_SENT] =           { NOT,       NOT, NOT,                NOT,            NOT,             NOT,                              NOT,                 NOT,      NEWS(REPLIED), NOT,      NOT },
[SIDR_RECEIVED] =       { NOT,       NOT, NOT,                NOT,            NOT,             NOT,                              NOT,                 NOT,      NOT,           NOT,      NOT },
};
/* clang-format on */

static struct outcome hear(struct ibcm *end, const struct ib_cm_message *message)
{
	struct ibcm_out out = {0};
	struct outcome outcome = {ibcm_receive(end, message, 10 * MS, &out), 0};
	if (out.any)
		outcome.answer = (int)said(&out).kind;
	return outcome;
}

static void every_message_in_every_state(void **state)
{
	(void)state;
	for (enum place place = 0; place < PLACES; place++)
		for (int kind = IB_CM_REQ; kind < IB_CM_KIND_END; kind++) {
			struct ibcm end = at(place), before = end;
			struct ib_cm_message message = from_peer(place, (enum ib_cm_kind)kind);
			const struct outcome *want = &table[place][kind - IB_CM_REQ];
			struct outcome got = hear(&end, &message);
			if (got.event != want->event || got.answer != want->answer)
				fail_msg("%s, message %#x: event %d, answer %#x; not %d, %#x",
				         place_names[place], (unsigned)kind, (int)got.event,
				         (unsigned)got.answer, (int)want->event,
				         (unsigned)want->answer);
			if (want->event == IBCM_NOTHING && kind != IB_CM_MRA)
				assert_memory_equal(&end, &before, sizeof(end));
		}
}

/* How a stranger's message differs from the peer's. */
enum forgery { NO_NUMBER, WRONG_NUMBER, WRONG_EXCHANGE, WRONG_QPN, GAVE_UP, FORGERIES };

/* False: this kind of message has no such field, or it means nothing there. */
static bool forge(struct ib_cm_message *message, enum place place, enum forgery how)
{
	enum ib_cm_kind kind = message->kind;
	bool numbered = kind != IB_CM_REQ && kind != IB_CM_SIDR_REQ && kind != IB_CM_SIDR_REP;
	switch (how) {
	case NO_NUMBER: /* before a REP the peer may have none */
		message->u.rtu.local_id = 0;
		return numbered && place != REQ_SENT;
	case WRONG_NUMBER:
		message->u.rtu.local_id = STRANGER;
		return numbered && place != REQ_SENT;
	case WRONG_EXCHANGE: /* a DREQ and a LAP begin one */
		message->transaction_id ^= 1ull << 40;
		return kind != IB_CM_DREQ && kind != IB_CM_LAP;
	case WRONG_QPN:
		if (kind == IB_CM_DREQ)
			message->u.dreq.remote_qpn ^= 1;
		else
			message->u.lap.remote_qpn ^= 1;
		return kind == IB_CM_DREQ || kind == IB_CM_LAP;
	default: /* a peer that gave up its request does not know our number; but then it is not
	            connected */
		message->u.rej.remote_id = 0;
		message->u.rej.reason = IB_CM_TIMEOUT;
		return kind == IB_CM_REJ && place != REQ_SENT && place != REQ_RECEIVED &&
		       place != REP_SENT;
	}
}

static void nothing_happens_without_the_numbers(void **state)
{
	unsigned tried = 0;
	(void)state;
	for (enum place place = 0; place < PLACES; place++)
		for (int kind = IB_CM_REQ; kind < IB_CM_KIND_END; kind++)
			for (enum forgery how = 0; how < FORGERIES; how++) {
				struct ibcm end = at(place), before = end;
				struct ib_cm_message message =
				        from_peer(place, (enum ib_cm_kind)kind);
				if (!forge(&message, place, how))
					continue;
				struct outcome got = hear(&end, &message);
				if (got.event != IBCM_NOTHING || got.answer != 0 ||
				    memcmp(&end, &before, sizeof(end)) != 0)
					fail_msg("%s believed a forged message %#x (forgery %d)",
					         place_names[place], (unsigned)kind, (int)how);
				tried++;
			}
	assert_true(tried > 200);
}

/* What a request draws from us when nobody is at the address that it came from: the reply, its
 * repetitions and that it is given up. */
static void a_forged_request_draws_little(void **state)
{
	struct ibcm end = at(REP_SENT);
	unsigned sent = 1;
	(void)state;
	for (unsigned turns = 0; end.state == IBCM_REP_SENT && turns < 100; turns++) {
		struct ibcm_out out = {0};
		ibcm_expire(&end, end.due_ns, &out);
		sent += out.any;
	}
	assert_int_equal(end.state, IBCM_OVER);
	assert_int_equal(sent, 1 + IBCM_UNPROVEN_REPEATS + 1);
	end = at(REP_SENT); /* the program ends it: said once */
	struct ibcm_out out = {0};
	ibcm_part(&end, &out);
	assert_int_equal(said(&out).kind, IB_CM_REJ);
	end = at(REP_SENT); /* or disconnects */
	assert_true(ibcm_disconnect(&end, 0, &out));
	for (sent = 1; end.state == IBCM_DREQ_SENT; sent += out.any) {
		out.any = false;
		ibcm_expire(&end, end.due_ns, &out);
	}
	assert_true(sent <= 1 + IBCM_UNPROVEN_REPEATS);
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(every_message_in_every_state),
	        cmocka_unit_test(nothing_happens_without_the_numbers),
	        cmocka_unit_test(a_forged_request_draws_little),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
