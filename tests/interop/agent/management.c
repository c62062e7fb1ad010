/* What the agent does with management datagrams by itself.
 *
 * Who was connected across the wire hears of the end, though datagrams get lost and processes are
 * killed: the agent repeats the DREQ that a process left with it until it is answered, and not for
 * ever (IBTA volume 1, 12.9.7). A request that comes a moment before somebody listens is heard, one
 * that nobody listens for is refused.
 *
 * Processes here are children that open an adapter; this process is their peer, with an address of
 * its own, and hears what comes there. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmpeer.h"
#include "end.h"
#include "port/agentmsg.h"

#define WAIT_MS    20000
#define QUIET_MS   2500 /* more than two repetitions take */
#define NUMBERS    16u
#define SLOT_SHIFT 22u
#define THEIRS     0x1234u /* our number for each connection */
#define SPACE      0x106u  /* RDMA_PS_TCP */
#define PORT       7471u

/* What came about each connection, by the low bits of the process's number for it. */
static struct {
	unsigned dreqs;
	struct udp_address from;
	struct ib_cm_message last;
} heard[NUMBERS];

static unsigned rejections;
static struct ib_cm_rej rejection; /* the last one */

static struct cm_peer peer;
static char here[32]; /* where children are who are asked */
static struct udp_address there;

static void take(const struct ib_cm_message *message, const struct udp_address *from)
{
	if (message->kind == IB_CM_REJ) {
		rejections++;
		rejection = message->u.rej;
		return;
	}
	assert_int_equal(message->kind, IB_CM_DREQ);
	assert_int_equal(message->u.dreq.remote_id, THEIRS);
	uint32_t number = message->u.dreq.local_id & ((1u << SLOT_SHIFT) - 1);
	assert_true(number < NUMBERS);
	heard[number].dreqs++;
	heard[number].from = *from;
	heard[number].last = *message;
}

/* Hear until *@counter is @count, for @ms at most. */
static bool hear_until(const unsigned *counter, unsigned count, int ms)
{
	struct ib_cm_message message;
	struct udp_address from;
	double until = now_ms() + ms;
	while (*counter < count) {
		if (!cm_peer_hear(&peer, &message, &from, until - now_ms()))
			return false;
		take(&message, &from);
	}
	return true;
}

static bool hear(uint32_t number, unsigned count, int ms)
{
	return hear_until(&heard[number].dreqs, count, ms);
}

static void answer(uint32_t number)
{
	const struct ib_cm_message *dreq = &heard[number].last;
	struct ib_cm_message drep = {.kind = IB_CM_DREP, .transaction_id = dreq->transaction_id};
	drep.u.drep.local_id = THEIRS;
	drep.u.drep.remote_id = dreq->u.dreq.local_id;
	cm_peer_say(&peer, &drep, &heard[number].from);
}

/* Ask whoever is at @to for the service at @port. */
static void request(const struct udp_address *to, uint16_t port)
{
	static uint64_t exchanges;
	struct ib_cm_message req = {.kind = IB_CM_REQ, .transaction_id = ++exchanges};
	req.u.req.local_id = THEIRS;
	req.u.req.service_id = ib_cm_service(SPACE, port);
	cm_peer_say(&peer, &req, to);
}

/* --- the processes --- */

struct word {
	uint32_t how, number;
};

/* Other things that it can be told to do, at port @number. */
enum { BIND = 100, LISTEN, UNBIND };
/* Or to wait until another agent is there, and leave the DREQ @number with it. */
enum { RENEW = 200 };
/* Or to say the DREQ or the REJ @number, its last word about it, and to end at once: in either of
 * two ways. */
enum { LEAVE = 300, LEAVE_UNCLOSED, REFUSE_AND_LEAVE };

static atomic_uint agents; /* that a child was told of */

static struct hdl_adapter *adapter; /* a child's */

/* A child refuses requests with a reason of its own. */
static void hear_request(void *context, const struct hdl_cm_msg *msg)
{
	struct ib_cm_message message, no;
	struct hdl_cm_msg out = {.gid = msg->gid, .on_wire = HDL_CM_ON_WIRE, .length = MAD_BYTES};
	(void)context;
	if (msg->kind == HDL_CM_AGENT)
		agents++;
	if (msg->kind != HDL_CM_MAD || ib_cm_decode(&message, msg->data, msg->length) != IB_CM_OK ||
	    message.kind != IB_CM_REQ || !ib_cm_refuse(&message, IB_CM_CONSUMER, &no))
		return;
	ib_cm_encode(&no, out.data);
	MUST(hdl_cm_send(adapter, &out));
}

/* Who asked hears once it was said, and neither waits for more. */
static void leave(int talk, const struct word *word, const struct hdl_limits *limits)
{
	struct ib_cm_message message = {.kind = IB_CM_DREQ, .transaction_id = word->number};
	struct hdl_cm_msg msg = {.on_wire = HDL_CM_LAST_WORD, .length = MAD_BYTES};
	message.u.dreq.local_id = (uint32_t)limits->slot << SLOT_SHIFT | word->number;
	message.u.dreq.remote_id = THEIRS;
	if (word->how == REFUSE_AND_LEAVE)
		message = (struct ib_cm_message){.kind = IB_CM_REJ,
		                                 .u.rej = {.remote_id = THEIRS,
		                                           .about = IB_CM_ABOUT_REQ,
		                                           .reason = IB_CM_CONSUMER}};
	ib_cm_encode(&message, msg.data);
	memcpy(msg.gid.raw, peer.address.gid, 16);
	MUST(hdl_cm_send(adapter, &msg));
	MUST(write(talk, "", 1) == 1 ? 0 : -HDL_EIO);
	if (word->how != LEAVE) {
		__fpurge(stdout); /* what our parent has not written yet */
		exit(0);
	}
	hdl_close(adapter);
	_exit(0);
}

static void obey(const struct word *word, const struct hdl_limits *limits)
{
	struct ib_cm_message dreq = {.kind = IB_CM_DREQ, .transaction_id = word->number};
	struct hdl_cm_msg msg = {.on_wire = word->how, .length = MAD_BYTES};
	uint16_t port = (uint16_t)word->number;
	switch (word->how) {
	case BIND:
		MUST(hdl_cm_bind(adapter, SPACE, NULL, &port, HDL_CM_DEAF));
		break;
	case LISTEN:
		MUST(hdl_cm_listen(adapter, SPACE, NULL, port, 0));
		break;
	case UNBIND:
		MUST(hdl_cm_unbind(adapter, SPACE, NULL, port, 0));
		break;
	case RENEW:
		for (double until = now_ms() + WAIT_MS; agents == 0 && now_ms() < until;)
			usleep(1000);
		MUST(agents == 1 ? 0 : -HDL_EAGAIN);
		msg.on_wire = HDL_CM_WHEN_GONE;
		/* fall through */
	default:
		dreq.u.dreq.local_id = (uint32_t)limits->slot << SLOT_SHIFT | word->number;
		dreq.u.dreq.remote_id = THEIRS;
		ib_cm_encode(&dreq, msg.data);
		memcpy(msg.gid.raw, peer.address.gid, 16);
		MUST(hdl_cm_send(adapter, &msg));
		break;
	}
}

static void live(int talk, const char *node, const char *address)
{
	struct hdl_open_attr attr = {.on_node = true, .node = node};
	struct hdl_limits limits;
	struct word word;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("HEDDLE_LOCAL", "off", 1);
	if (address != NULL)
		setenv("HEDDLE_ADDR", address, 1);
	MUST(hdl_open(&attr, &adapter));
	MUST(hdl_adapter_query(adapter, &limits));
	MUST(hdl_cm_receive(adapter, hear_request, NULL));
	while (read(talk, &word, sizeof(word)) == sizeof(word)) {
		if (word.how >= LEAVE)
			leave(talk, &word, &limits);
		obey(&word, &limits);
		/* It is with the agent when this has come back. */
		uint16_t lid;
		struct hdl_gid gid = limits.gid;
		MUST(hdl_node_find(adapter, &gid, &lid));
		if (write(talk, "", 1) != 1)
			break;
	}
	_exit(0);
}

static struct child start(const char *node)
{
	return child_start(live, node, NULL);
}

static void tell(const struct child *child, uint32_t how, uint32_t number)
{
	struct word word = {how, number};
	struct pollfd readable = {.fd = child->talk, .events = POLLIN};
	char done;
	assert_int_equal(write(child->talk, &word, sizeof(word)), sizeof(word));
	assert_true(poll(&readable, 1, WAIT_MS) > 0);
	assert_int_equal(read(child->talk, &done, 1), 1);
}

/* --- the tests --- */

enum {
	UNANSWERED = 1,
	KILLED,
	SAID,
	ANSWERED,
	LAST,
	LAST_SAID,
	ELSEWHERE,
	RENAMED,
	RENEWED,
	LEFT,
	LEFT_UNCLOSED
};

/* Begins here, and is looked at in the end: nobody answers. */
static void test_nobody_answers(void **state)
{
	(void)state;
	struct child child = start("goodbye-unanswered");
	tell(&child, HDL_CM_WHEN_GONE, UNANSWERED);
	child_kill(&child);
	assert_true(hear(UNANSWERED, 1, WAIT_MS));
}

static void test_killed(void **state)
{
	(void)state;
	struct child child = start("goodbye-killed");
	tell(&child, HDL_CM_WHEN_GONE, KILLED);
	assert_false(hear(KILLED, 1, 100));
	child_kill(&child);
	assert_true(hear(KILLED, 3, WAIT_MS)); /* the first two were lost */
	answer(KILLED);
	assert_false(hear(KILLED, 4, QUIET_MS));
}

/* The process says it itself, and is killed before it can repeat it. */
static void test_said_then_killed(void **state)
{
	(void)state;
	struct child child = start("goodbye-said");
	tell(&child, HDL_CM_WHEN_GONE, SAID);
	tell(&child, HDL_CM_WHEN_GONE, ANSWERED);
	tell(&child, HDL_CM_ON_WIRE, SAID);
	tell(&child, HDL_CM_ON_WIRE, ANSWERED);
	assert_true(hear(ANSWERED, 1, WAIT_MS));
	answer(ANSWERED);
	assert_true(hear(SAID, 1, WAIT_MS));
	assert_false(
	        hear(SAID, 2, QUIET_MS)); /* as long as it lives, repeating is its own affair */
	child_kill(&child);
	assert_true(hear(SAID, 2, WAIT_MS));
	answer(SAID);
	assert_false(hear(SAID, 3, QUIET_MS));
	assert_int_equal(heard[ANSWERED].dreqs, 1);
}

/* The process lives on, and has forgotten the connection. */
static void test_last_word(void **state)
{
	(void)state;
	struct child child = start("goodbye-last");
	tell(&child, HDL_CM_LAST_WORD, LAST);
	assert_true(hear(LAST, 2, WAIT_MS));
	answer(LAST);
	tell(&child, HDL_CM_WHEN_GONE, LAST_SAID);
	tell(&child, HDL_CM_ON_WIRE, LAST_SAID);
	tell(&child, HDL_CM_LAST_WORD, LAST_SAID);
	assert_true(hear(LAST_SAID, 1, WAIT_MS));
	answer(LAST_SAID);
	assert_false(hear(LAST_SAID, 2, QUIET_MS));
	assert_int_equal(heard[LAST].dreqs, 2);
	child_kill(&child);
	assert_false(hear(LAST_SAID, 2, QUIET_MS));
	assert_int_equal(heard[LAST].dreqs, 2);
}

/* A node that is there only for its disconnect notices keeps nobody from its address, and
 * its name from no other address. */
static void test_newcomers(void **state)
{
	(void)state;
	char address[2][32];
	for (int i = 0; i < 2; i++)
		snprintf(address[i], sizeof(address[i]), "127.%d.%d.%d", 78 + i,
		         getpid() >> 8 & 255, getpid() & 255);
	struct child child = child_start(live, "goodbye-before", address[0]);
	tell(&child, HDL_CM_WHEN_GONE, ELSEWHERE);
	child_kill(&child);
	assert_true(hear(ELSEWHERE, 2, WAIT_MS));
	struct child other = child_start(live, "goodbye-after", address[0]);
	tell(&other, HDL_CM_WHEN_GONE, RENAMED);
	child_kill(&other);
	assert_true(hear(RENAMED, 2, WAIT_MS));
	other = child_start(live, "goodbye-after", address[1]);
	tell(&other, HDL_CM_ON_WIRE, RENAMED);
	child_kill(&other);
	unsigned before = heard[ELSEWHERE].dreqs;
	assert_false(hear(ELSEWHERE, before + 1, QUIET_MS));
}

/* Another agent knows nothing of what was left with the one before; who left it hears so. */
static void test_agent_killed(void **state)
{
	(void)state;
	struct child child = start("goodbye-agent");
	tell(&child, HDL_CM_WHEN_GONE, RENEWED);
	kill_agent();
	tell(&child, RENEW, RENEWED);
	child_kill(&child);
	assert_true(hear(RENEWED, 1, WAIT_MS));
	answer(RENEWED);
}

/* It ends in order, and has said its last word to an agent that dies before it reads it. */
static void test_agent_killed_with_the_last_word(void **state)
{
	static const struct word ways[] = {
	        {LEAVE, LEFT}, {LEAVE_UNCLOSED, LEFT_UNCLOSED}, {REFUSE_AND_LEAVE, 0}};
	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		struct child child = start("goodbye-lost");
		int status;
		tell(&child, HDL_CM_ON_WIRE, ANSWERED); /* it is there */
		rejections = 0;
		kill(agent_pid(), SIGSTOP);
		tell(&child, ways[i].how, ways[i].number);
		kill_agent();
		if (ways[i].how == REFUSE_AND_LEAVE) {
			assert_true(hear_until(&rejections, 1, WAIT_MS));
			assert_int_equal(rejection.reason, IB_CM_CONSUMER);
		} else {
			assert_true(hear(ways[i].number, 1, WAIT_MS));
			answer(ways[i].number);
		}
		assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
		assert_int_equal(status, 0);
		close(child.talk);
	}
}

/* Who ends does not wait where nothing went wrong; and not for ever for a peer that does not
 * answer. */
static void test_leaving_is_quick(void **state)
{
	(void)state;
	double best = WAIT_MS;
	for (int turn = 0; turn < 5; turn++) {
		bool answers = turn < 4; /* what is not answered is repeated */
		struct child child = start("goodbye-quick");
		tell(&child, HDL_CM_ON_WIRE, ANSWERED); /* it is there */
		double begin = now_ms();
		tell(&child, LEAVE, LEFT);
		assert_true(hear(LEFT, heard[LEFT].dreqs + 1, WAIT_MS));
		if (answers)
			answer(LEFT);
		assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
		double took = now_ms() - begin;
		assert_true(took < WAIT_MS);
		best = answers && took < best ? took : best;
		close(child.talk);
	}
	print_message("%.1f ms\n", best);
	assert_true(best < 500);
}

static void test_nobody_listens(void **state)
{
	(void)state;
	struct child child = child_start(live, "management", here);
	tell(&child, BIND, PORT);
	rejections = 0;
	request(&there, PORT + 1); /* that nobody has, */
	assert_true(hear_until(&rejections, 1, WAIT_MS));
	assert_int_equal(rejection.reason, IB_CM_INVALID_SERVICE_ID);
	request(&there, PORT); /* and one that somebody has, who does not listen */
	assert_true(hear_until(&rejections, 2, WAIT_MS));
	assert_int_equal(rejection.reason, IB_CM_INVALID_SERVICE_ID);
	assert_int_equal(rejection.remote_id, THEIRS);

	/* There is room for so many, the others are refused at once; all are, in the end. */
	for (unsigned i = 0; i < 2 * AGENT_MAX_EARLY; i++)
		request(&there, PORT);
	assert_true(hear_until(&rejections, 2 + 2 * AGENT_MAX_EARLY, WAIT_MS));
	child_kill(&child);
}

/* The request is first. How soon the other is there on a busy machine is not for us to say: in one
 * of several turns it is. */
static void test_early(void **state)
{
	(void)state;
	struct child child = child_start(live, "management", here);
	bool was_heard = false;
	for (int turn = 0; turn < 20 && !was_heard; turn++) {
		rejections = 0;
		tell(&child, BIND, PORT);
		request(&there, PORT);
		tell(&child, LISTEN, PORT);
		assert_true(hear_until(&rejections, 1, WAIT_MS));
		was_heard = rejection.reason == IB_CM_CONSUMER;
		tell(&child, UNBIND, PORT);
	}
	assert_true(was_heard);
	assert_false(hear_until(&rejections, 2, 500)); /* once */
	child_kill(&child);
}

static void test_not_for_ever(void **state)
{
	(void)state;
	assert_true(hear(UNANSWERED, 1 + IB_CM_MAX_RETRIES, 2 * WAIT_MS));
	assert_false(hear(UNANSWERED, 2 + IB_CM_MAX_RETRIES, QUIET_MS));
}

static int begin(void **state)
{
	(void)state;
	snprintf(here, sizeof(here), "127.80.%d.%d", getpid() >> 8 & 255, getpid() & 255);
	assert_true(udp_address_parse(here, &there));
	char own[32];
	snprintf(own, sizeof(own), "127.77.%d.%d", getpid() >> 8 & 255, getpid() & 255);
	unsetenv("HEDDLE_ADDR");
	return cm_peer_open(&peer, own) ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	cm_peer_close(&peer);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_nobody_answers),
	        cmocka_unit_test(test_killed),
	        cmocka_unit_test(test_said_then_killed),
	        cmocka_unit_test(test_last_word),
	        cmocka_unit_test(test_newcomers),
	        cmocka_unit_test(test_nobody_listens),
	        cmocka_unit_test(test_early),
	        cmocka_unit_test(test_not_for_ever),
	        cmocka_unit_test(test_agent_killed),
	        cmocka_unit_test(test_agent_killed_with_the_last_word),
	        cmocka_unit_test(test_leaving_is_quick),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
