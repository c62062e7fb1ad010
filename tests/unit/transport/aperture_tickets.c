/* CONNECT from a network is accepted once, whatever is replayed, at any rate, and without a memory
 * of connections that have ended (AP3): two nodes, packets in and out, and no time passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "transport/aperture/ap.h"

#define FRAMES 64u
#define PORT   7u
#define ENDS   2u

struct rig_node {
	struct ap_node node;
	struct ap_port port;
	struct hdl_aperture_fixed rows[8];
	struct hdl_aperture_user users[8];
	struct ap_conn *conns[8];
	uint64_t map[1];
	struct ap_conn ends[ENDS];
	uint8_t number; /* of the host */
	uint8_t out[2048];
	struct {
		size_t bytes;
		uint8_t frame[2048];
	} sent[FRAMES];
	uint32_t sent_count;
	uint32_t opened;
};

static struct rig_node *a, *b;
static bool network; /* is there one between them? */

static uint8_t *rig_reserve(void *context, const struct ap_path *path, size_t bytes)
{
	struct rig_node *rig = context;
	(void)path;
	assert_true(bytes <= sizeof(rig->out));
	return rig->out;
}
static void rig_commit(void *context, const struct ap_path *path, size_t bytes)
{
	struct rig_node *rig = context;
	(void)path;
	assert_true(rig->sent_count < FRAMES);
	rig->sent[rig->sent_count].bytes = bytes;
	memcpy(rig->sent[rig->sent_count++].frame, rig->out, bytes);
}
static void rig_changed(void *context, struct ap_conn *conn)
{
	struct rig_node *rig = context;
	rig->opened += conn->state == HDL_APERTURE_OPEN;
}
static enum ap_delivered rig_event(void *context, struct ap_port *port,
                                   const struct ap_event *event)
{
	(void)context;
	(void)port;
	(void)event;
	return AP_PLACED;
}
static const struct ap_sink rig_sink = {
        .reserve = rig_reserve, .commit = rig_commit, .changed = rig_changed, .event = rig_event};

static struct ap_path path_to(const struct rig_node *rig)
{
	struct ap_path path = {.route = rig->number, .frame_bytes = 600, .replays = network};
	path.host[0] = 0xfd;
	path.host[15] = rig->number;
	return path;
}

static struct rig_node *rig_make(uint8_t number)
{
	struct rig_node *rig = calloc(1, sizeof(*rig));
	assert_non_null(rig);
	rig->number = number;
	ap_node_init(&rig->node, rig->rows, rig->users, rig->conns, rig->map, 8, 0);
	rig->node.slot = number;
	rig->node.secret[0] = rig->node.secret[1] = number * 0x9e3779b97f4a7c15ull;
	rig->node.sink = &rig_sink;
	rig->node.context = rig;
	ap_port_open(&rig->node, &rig->port, PORT);
	rig->port.rules[0].action = HDL_RULE_ACCEPT;
	rig->port.rule_count = 1;
	for (unsigned i = 0; i < ENDS; i++) {
		assert_true(ap_open(&rig->node, &rig->ends[i]));
		rig->ends[i].in->checks = rig->ends[i].own.checks = HDL_CHECK_DEFAULT;
	}
	return rig;
}

static int rig_begin(void **state)
{
	(void)state;
	network = true;
	a = rig_make(1);
	b = rig_make(2);
	return 0;
}

static int rig_end(void **state)
{
	(void)state;
	free(a);
	free(b);
	return 0;
}

static uint64_t counted(const struct rig_node *rig, enum hdl_aperture_counter counter)
{
	return rig->node.counters[counter];
}

/* What @from has sent arrives at @to. Returns how many frames. */
static uint32_t carry(struct rig_node *from, struct rig_node *to)
{
	struct ap_path path = path_to(from);
	(void)ap_run(&from->node);
	uint32_t count = from->sent_count;
	for (uint32_t i = 0; i < count; i++)
		ap_take(&to->node, from->sent[i].frame, from->sent[i].bytes, &path);
	from->sent_count = 0;
	return count;
}

static void begin_connect(unsigned end, uint64_t nonce)
{
	struct ap_path path = path_to(b);
	ap_arm(&a->ends[end], nonce, 1);
	ap_connect(&a->ends[end], &path, PORT);
	(void)ap_run(&a->node);
}

static void offer(unsigned end, uint64_t nonce)
{
	ap_arm(&b->ends[end], nonce, 1);
	ap_offer(&b->port, &b->ends[end]);
}

/* Both ends close. */
static void end_connection(unsigned end)
{
	ap_close(&a->ends[end], false);
	for (unsigned i = 0; i < 3; i++) {
		(void)carry(a, b);
		(void)carry(b, a);
	}
	assert_int_equal(a->ends[end].state, HDL_APERTURE_CLOSED);
}

/* A link on which nothing comes twice needs no ticket. */
static void ap3_a_lane_connects_in_one_round_trip(void **state)
{
	(void)state;
	network = false;
	for (uint32_t i = 1; i <= 3 * AP_TICKETS; i++) {
		offer(0, i);
		begin_connect(0, i);
		assert_int_equal(carry(a, b), 1);
		assert_int_equal(carry(b, a), 1);
		assert_int_equal(a->ends[0].state, HDL_APERTURE_OPEN);
		end_connection(0);
		assert_int_equal(b->ends[0].state, HDL_APERTURE_CLOSED);
	}
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_REJECTS), 0);
}

/* Every CONNECT is replayed at once, and once more in the end: not one opens anything. */
static void ap3_a_network_connects_once_at_any_rate(void **state)
{
	enum { COUNT = 3 * AP_TICKETS };
	static struct {
		size_t bytes;
		uint8_t frame[128];
	} kept[COUNT];
	const struct ap_path path = path_to(a);
	(void)state;
	for (uint32_t i = 0; i < COUNT; i++) {
		offer(0, i + 1);
		begin_connect(0, i + 1);
		assert_int_equal(carry(a, b), 1);
		assert_int_equal(b->ends[0].state, HDL_APERTURE_OFFERED);
		assert_int_equal(carry(b, a), 1); /* the ticket */
		(void)ap_run(&a->node);
		assert_true(a->sent_count == 1 && a->sent[0].bytes <= sizeof(kept[i].frame));
		kept[i].bytes = a->sent[0].bytes;
		memcpy(kept[i].frame, a->sent[0].frame, kept[i].bytes);
		assert_int_equal(carry(a, b), 1);
		assert_int_equal(b->ends[0].state, HDL_APERTURE_OPEN);
		assert_int_equal(carry(b, a), 1);
		assert_int_equal(a->ends[0].state, HDL_APERTURE_OPEN);
		end_connection(0);
		assert_int_equal(b->ends[0].state, HDL_APERTURE_CLOSED);
		offer(0, 1);
		ap_take(&b->node, kept[i].frame, kept[i].bytes, &path);
		assert_int_equal(b->ends[0].state, HDL_APERTURE_OFFERED);
		ap_withdraw(&b->ends[0]);
		(void)carry(b, a); /* REJECT, which nobody waits for */
		assert_int_equal(a->ends[0].state, HDL_APERTURE_CLOSED);
	}
	assert_int_equal(b->opened, COUNT);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_DUPLICATES), COUNT);
	offer(0, 1);
	for (uint32_t i = 0; i < COUNT; i++) {
		ap_take(&b->node, kept[i].frame, kept[i].bytes, &path);
		(void)carry(b, a);
	}
	assert_int_equal(b->opened, COUNT);
	assert_int_equal(b->ends[0].state, HDL_APERTURE_OFFERED);
}

/* Whoever has seen the packet cannot use it, and who poses as another never gets a ticket. */
static void ap3_a_ticket_is_for_who_asked(void **state)
{
	struct ap_path other = path_to(a);
	(void)state;
	other.host[15] = 9;
	offer(0, 1);
	begin_connect(0, 1);
	(void)carry(a, b);
	(void)carry(b, a);
	(void)ap_run(&a->node);
	ap_take(&b->node, a->sent[0].frame, a->sent[0].bytes, &other);
	assert_int_equal(b->ends[0].state, HDL_APERTURE_OFFERED);
	b->sent_count = 0;
	(void)ap_run(&b->node);
	b->sent_count = 0; /* to the other host */
	assert_int_equal(carry(a, b), 1);
	assert_int_equal(b->ends[0].state, HDL_APERTURE_OPEN);
}

/* A ticket that another offer of its kind made invalid is exchanged, in one more round trip. */
static void ap3_tickets_of_one_kind(void **state)
{
	const struct ap_path path = path_to(a);
	uint64_t digests[2], nonce = 1;
	struct {
		uint8_t host[16];
		uint64_t nonce, index;
	} who = {0};
	(void)state;
	memcpy(who.host, path.host, 16);
	for (unsigned end = 0; end < ENDS; end++) {
		who.index = a->ends[end].own.index = ci_index(a->node.slot, a->ends[end].row);
		do {
			who.nonce = ++nonce;
			digests[end] = siphash(b->node.secret, &who, sizeof(who));
		} while (end == 1 && digests[0] % AP_TICKETS != digests[1] % AP_TICKETS);
		offer(end, end + 1);
		begin_connect(end, nonce);
	}
	(void)carry(a, b);
	(void)carry(b, a); /* both have a ticket */
	(void)carry(a, b);
	assert_int_equal(b->opened, 1);
	(void)carry(b, a);
	(void)carry(a, b);
	assert_int_equal(b->opened, 2);
	(void)carry(b, a);
	for (unsigned end = 0; end < ENDS; end++)
		assert_int_equal(a->ends[end].state, HDL_APERTURE_OPEN);
	assert_int_equal(a->ends[0].tickets + a->ends[1].tickets, 3);
}

/* A port that never has enough. */
static void ap3_tickets_have_a_limit(void **state)
{
	(void)state;
	begin_connect(0, 1);
	for (unsigned i = 0; i <= AP_TICKET_TRIES; i++) {
		assert_int_equal(a->ends[0].state, HDL_APERTURE_CONNECTING);
		(void)carry(a, b);
		b->node.secret[0]++; /* every ticket is wrong */
		(void)carry(b, a);
	}
	assert_int_equal(a->ends[0].state, HDL_APERTURE_CLOSED);
	assert_int_equal(a->ends[0].reason, HDL_REASON_TICKET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(ap3_a_lane_connects_in_one_round_trip, rig_begin,
	                                        rig_end),
	        cmocka_unit_test_setup_teardown(ap3_a_network_connects_once_at_any_rate, rig_begin,
	                                        rig_end),
	        cmocka_unit_test_setup_teardown(ap3_a_ticket_is_for_who_asked, rig_begin, rig_end),
	        cmocka_unit_test_setup_teardown(ap3_tickets_of_one_kind, rig_begin, rig_end),
	        cmocka_unit_test_setup_teardown(ap3_tickets_have_a_limit, rig_begin, rig_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
