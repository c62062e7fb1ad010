/* ERROR from every element on the data path (AP3, APERTURE column 13), what is kept back and what
 * is refused, between two nodes: packets in, packets out, and time that passes only where a test
 * says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "transport/aperture/ap.h"

#define SIZE    1024u
#define FRAMES  64u
#define NONCE_A 0x1111222233334444ull
#define NONCE_B 0x5555666677778888ull
#define FIRST   0xfffffffeu /* numbers wrap soon */
#define PORT    7u

struct rig_node {
	struct ap_node node;
	struct ap_port port;
	struct tpt tpt;
	struct hdl_aperture_fixed rows[8];
	struct hdl_aperture_user users[8];
	struct ap_conn *conns[8];
	uint64_t map[1];
	struct ap_conn conn;
	struct ap_kept kept[HDL_APERTURE_KEPT];
	uint8_t bytes[HDL_APERTURE_KEPT_BYTES];
	uint8_t memory[SIZE];
	uint8_t number; /* of the host */
	bool full;      /* the carrier has no room */
	bool no_room;   /* nor has the event queue */
	void *blocks[3];
	/* What it sent, and what its port got. */
	uint8_t out[2048];
	struct {
		size_t bytes;
		bool by_agent;
		uint8_t frame[2048];
	} sent[FRAMES];
	uint32_t sent_count;
	struct ap_event events[FRAMES];
	uint32_t event_count;
	uint32_t changes;        /* how often the sink was told that a connection has changed, */
	bool pointed;            /* and where it led then */
	struct ci_status status; /* the last reply */
	uint32_t replies;
};

static struct rig_node *a, *b;

static uint8_t *rig_reserve(void *context, const struct ap_path *path, size_t bytes)
{
	struct rig_node *rig = context;
	(void)path;
	assert_true(bytes <= sizeof(rig->out));
	return rig->full ? NULL : rig->out;
}
static void rig_commit(void *context, const struct ap_path *path, size_t bytes)
{
	struct rig_node *rig = context;
	assert_true(rig->sent_count < FRAMES);
	rig->sent[rig->sent_count].bytes = bytes;
	rig->sent[rig->sent_count].by_agent = path->by_agent;
	memcpy(rig->sent[rig->sent_count++].frame, rig->out, bytes);
}
static void rig_changed(void *context, struct ap_conn *conn)
{
	struct rig_node *rig = context;
	rig->changes++;
	rig->pointed = conn->pointed;
}
static enum ap_delivered rig_event(void *context, struct ap_port *port,
                                   const struct ap_event *event)
{
	struct rig_node *rig = context;
	(void)port;
	if (rig->no_room && event->kind == CI_EVENT)
		return AP_FULL;
	assert_true(rig->event_count < FRAMES);
	rig->events[rig->event_count++] = *event;
	return AP_PLACED;
}
static void rig_response(void *context, struct ap_conn *conn, uint32_t token, uint64_t offset,
                         const uint8_t *data, uint32_t bytes)
{
	(void)context;
	(void)conn;
	(void)token;
	(void)offset;
	(void)data;
	(void)bytes;
}
static void rig_look(void *context, const struct ap_port *port, uint32_t *events, uint32_t *blocked)
{
	(void)context;
	(void)port;
	*events = 33;
	*blocked = 1;
}
static void rig_status(void *context, struct ap_conn *conn, const struct ci_status *status)
{
	struct rig_node *rig = context;
	(void)conn;
	rig->status = *status;
	rig->replies++;
}
static const struct ap_sink rig_sink = {.reserve = rig_reserve,
                                        .commit = rig_commit,
                                        .changed = rig_changed,
                                        .event = rig_event,
                                        .response = rig_response,
                                        .look = rig_look,
                                        .status = rig_status};

static enum move_result rig_copy(void *context, enum move_side side, const struct span *to,
                                 size_t to_count, const struct span *from, size_t from_count)
{
	(void)context;
	(void)side;
	(void)to_count;
	(void)from_count;
	memcpy((void *)(uintptr_t)to->addr, (const void *)(uintptr_t)from->addr, to->length);
	return MOVE_OK;
}
static const struct own_memory rig_own = {.ops.copy = rig_copy};

static struct ap_path path_to(const struct rig_node *rig)
{
	struct ap_path path = {.route = rig->number, .frame_bytes = 600, .idle_ns = 400000000};
	path.host[0] = 0xfd;
	path.host[15] = rig->number;
	return path;
}

static struct rig_node *rig_make(uint8_t number, uint64_t nonce)
{
	struct rig_node *rig = calloc(1, sizeof(*rig));
	const struct tpt_config config = {8, 64};
	struct tpt_bytes bytes = tpt_bytes(&config);
	const size_t sizes[3] = {bytes.slots, bytes.arena, bytes.private_bytes};
	assert_non_null(rig);
	for (unsigned i = 0; i < 3; i++) {
		rig->blocks[i] = aligned_alloc(64, (sizes[i] + 127) / 64 * 64);
		assert_non_null(rig->blocks[i]);
		memset(rig->blocks[i], 0, (sizes[i] + 127) / 64 * 64);
	}
	rig->number = number;
	tpt_init(&rig->tpt, &config, rig->blocks[0], rig->blocks[1], rig->blocks[2], 1);
	ap_node_init(&rig->node, rig->rows, rig->users, rig->conns, rig->map, 8, 0);
	rig->node.tpt = &rig->tpt;
	rig->node.pd = 1;
	rig->node.own = &rig_own;
	rig->node.slot = number;
	rig->node.sink = &rig_sink;
	rig->node.context = rig;
	ap_port_open(&rig->node, &rig->port, PORT);
	struct tpt_region region = {.type = TPT_APERTURE,
	                            .pd = 1,
	                            .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	                            .host = (uint64_t)(uintptr_t)rig->memory,
	                            .length = SIZE};
	rig->conn.kept = rig->kept;
	rig->conn.bytes = rig->bytes;
	assert_true(ap_open(&rig->node, &rig->conn));
	assert_int_equal(tpt_insert_run(&rig->tpt, &region, &rig->conn.in->key), 0);
	rig->conn.port = &rig->port;
	rig->conn.in->bits = 10;
	rig->conn.in->checks = HDL_CHECK_DEFAULT;
	rig->conn.own = (struct ci_offer){.bits = 10, .checks = HDL_CHECK_DEFAULT, .length = SIZE};
	ap_arm(&rig->conn, nonce, FIRST);
	return rig;
}

static void rig_free(struct rig_node *rig)
{
	for (unsigned i = 0; i < 3; i++)
		free(rig->blocks[i]);
	free(rig);
}

static int rig_begin(void **state)
{
	(void)state;
	a = rig_make(1, NONCE_A);
	b = rig_make(2, NONCE_B);
	return 0;
}

static int rig_end(void **state)
{
	(void)state;
	rig_free(a);
	rig_free(b);
	return 0;
}

static void take(struct rig_node *from, struct rig_node *to, uint32_t which)
{
	struct ap_path path = path_to(from);
	path.managed = to->conn.path.managed;
	path.by_agent = from->sent[which].by_agent;
	ap_take(&to->node, from->sent[which].frame, from->sent[which].bytes, &path);
}

/* Everything that @from has sent arrives at @to, which answers. Returns how many frames. */
static uint32_t carry(struct rig_node *from, struct rig_node *to)
{
	(void)ap_run(&from->node);
	uint32_t count = from->sent_count;
	for (uint32_t i = 0; i < count; i++)
		take(from, to, i);
	from->sent_count = 0;
	(void)ap_run(&to->node);
	return count;
}

static void connect_checked(uint8_t checks, bool managed)
{
	struct ap_path path = path_to(b);
	a->conn.own.checks = b->conn.own.checks = checks;
	a->conn.in->checks = b->conn.in->checks = checks;
	path.managed = managed;
	b->conn.path.managed = managed; /* as carry() says where packets come from */
	ap_connect(&a->conn, &path, PORT);
	(void)carry(a, b);
	struct ap_waiting *waiting = ap_waiting_find(&b->port, 0);
	assert_non_null(waiting);
	assert_true(ap_accept(&b->port, waiting, &b->conn));
	(void)carry(b, a);
	assert_int_equal(a->conn.state, HDL_APERTURE_OPEN);
	assert_int_equal(b->conn.state, HDL_APERTURE_OPEN);
	a->event_count = b->event_count = 0;
}

static uint64_t counted(const struct rig_node *rig, enum hdl_aperture_counter counter)
{
	return rig->node.counters[counter];
}

/* @rig has sent one frame with one packet, an ERROR. */
static struct ci_note only_error(const struct rig_node *rig, uint64_t nonce)
{
	struct ci_reader reader;
	struct ci_packet packet;
	assert_int_equal(rig->sent_count, 1);
	ci_open(&reader, rig->sent[0].frame, rig->sent[0].bytes);
	assert_int_equal(ci_next(&reader, &packet), CI_OK);
	assert_int_equal(packet.kind, CI_ERROR);
	assert_int_equal(packet.nonce, nonce);
	struct ci_note note = ci_get_note(&packet);
	assert_int_equal(ci_next(&reader, &packet), CI_END);
	return note;
}

/* Packets of a frame that follow each other become one write (APERTURE column 18). */
static void ap4_packets_that_follow_each_other_are_one_write(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	assert_true(ap_put(&a->conn, CI_DATA, 10, "one", 3));
	assert_true(ap_put(&a->conn, CI_DATA, 13, "two", 3));
	assert_true(ap_put(&a->conn, CI_DATA, 16, "three", 5));
	assert_true(ap_put(&a->conn, CI_DATA, 22, "apart", 5));
	uint64_t packets = counted(b, HDL_APERTURE_COUNTER_PACKETS_IN);
	assert_int_equal(carry(a, b), 1);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_PACKETS_IN), packets + 4);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_WRITES), 2);
	assert_memory_equal(b->memory + 10, "onetwothree\0apart", 17);
}

/* Three stores in one frame; the data of the second is damaged. */
static void store_and_damage(void)
{
	assert_true(ap_put(&a->conn, CI_DATA, 0, "one", 3));
	assert_true(ap_put(&a->conn, CI_DATA, 100, "two", 3));
	assert_true(ap_put(&a->conn, CI_DATA, 200, "three", 5));
	(void)ap_run(&a->node);
	assert_int_equal(a->sent_count, 1);
	uint8_t *data = memmem(a->sent[0].frame, a->sent[0].bytes, "two", 3);
	assert_non_null(data);
	data[1] ^= 0x40;
}

/* No time passes: the repair takes one round trip. */
static void ap3_damage_is_repaired_at_once(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	store_and_damage();
	assert_int_equal(carry(a, b), 1);
	assert_memory_equal(b->memory, "one", 4);
	assert_int_equal(b->memory[100], 0);
	assert_int_equal(b->memory[200], 0); /* the rest of the frame has no meaning */
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_BAD_CRC), 1);
	struct ci_note note = only_error(b, NONCE_A);
	assert_true(note.element == CI_CARRIER && note.reason == HDL_REASON_DAMAGED &&
	            note.number == FIRST + 1);
	assert_int_equal(carry(b, a), 1);
	assert_int_equal(a->conn.una, FIRST + 1);
	assert_int_equal(carry(a, b), 1);
	assert_memory_equal(b->memory + 100, "two", 3);
	assert_memory_equal(b->memory + 200, "three", 5);
	assert_int_equal(counted(a, HDL_APERTURE_COUNTER_REPEATED), 2);
	/* It is repaired: neither an error nor an event. */
	assert_int_equal(a->conn.errors, 0);
	assert_int_equal(a->event_count, 0);
	(void)carry(b, a);
	assert_true(ap_all_acked(&a->conn));
}

/* The same damaged frame again and again: one ERROR until something is accepted. */
static void ap3_damage_is_told_once(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	store_and_damage();
	for (int i = 0; i < 20; i++)
		take(a, b, 0);
	(void)ap_run(&b->node);
	for (int i = 0; i < 20; i++) {
		take(a, b, 0);
		(void)ap_run(&b->node);
	}
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_BAD_CRC), 40);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_ERRORS_OUT), 1);
	assert_int_equal(b->conn.in->expected, FIRST + 1);
}

/* Where packets have no numbers, what was damaged is lost, and the sender learns it. */
static void ap3_damage_without_numbers_is_an_error(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT & ~HDL_CHECK_SEQUENCE, false);
	store_and_damage();
	(void)carry(a, b);
	assert_int_equal(only_error(b, NONCE_A).reason, HDL_REASON_DAMAGED);
	assert_int_equal(carry(b, a), 1);
	assert_int_equal(a->conn.errors, 1);
	assert_int_equal(a->conn.refused, 0); /* a read asks again */
	assert_int_equal(a->conn.state, HDL_APERTURE_OPEN);
	assert_int_equal(a->conn.reason, HDL_REASON_DAMAGED);
	assert_int_equal(a->event_count, 1);
	assert_true(a->events[0].kind == CI_ERROR && a->events[0].element == CI_CARRIER &&
	            a->events[0].reason == HDL_REASON_DAMAGED);
	/* It is told again after a packet that is whole. */
	store_and_damage();
	(void)carry(a, b);
	(void)carry(b, a);
	assert_int_equal(a->conn.errors, 2);
}

/* Send b a damaged packet like @packet, from @from. */
static void send_damaged(struct ci_packet packet, const struct ap_path *from)
{
	struct ci_writer writer;
	uint8_t frame[200];
	ci_begin(&writer, frame, sizeof(frame));
	assert_true(ci_put(&writer, &packet));
	frame[writer.used - 1] ^= 1; /* of the CRC */
	ap_take(&b->node, frame, writer.used, from);
}

/* No answer for anybody but the peer, nor for out-of-band packets. */
static void ap3_strangers_get_no_answer_for_damage(void **state)
{
	(void)state;
	static const uint8_t body[CI_OFFER_BYTES];
	connect_checked(HDL_CHECK_DEFAULT, false);
	const struct ci_packet good = {.kind = CI_DATA,
	                               .flags = CI_SEQUENCED | CI_ASK,
	                               .index = b->conn.own.index,
	                               .nonce = NONCE_B,
	                               .sequence = FIRST,
	                               .bytes = 4,
	                               .data = body};
	struct ap_path from = path_to(a), stranger = path_to(a), process = path_to(a);
	struct ci_packet packet = good;
	stranger.host[15] = 9;
	process.route = 9;
	b->node.lid = 3;
	send_damaged(good, &stranger);
	send_damaged(good, &process);
	packet.nonce++;
	send_damaged(packet, &from);
	packet = good;
	packet.index++; /* no such entry */
	send_damaged(packet, &from);
	packet.index = ci_index(77, 1); /* another process */
	send_damaged(packet, &from);
	packet = good;
	packet.cluster = 4; /* another host */
	send_damaged(packet, &from);
	packet = good;
	packet.sequence--; /* a duplicate: it is here */
	send_damaged(packet, &from);
	packet = good;
	packet.flags = 0; /* without a number */
	send_damaged(packet, &from);
	static const struct {
		uint8_t kind;
		uint32_t bytes;
	} kinds[] = {{CI_CONNECT, 36}, {CI_ACCEPT, 36}, {CI_REJECT, 4},
	             {CI_CLOSE, 8},    {CI_ALIVE, 8},   {CI_ALIVEACK, 4},
	             {CI_ERROR, 8},    {CI_STATUS, 16}, {CI_STATUSACK, 28}};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		packet = good;
		packet.kind = kinds[i].kind;
		packet.flags = 0;
		packet.bytes = kinds[i].bytes;
		send_damaged(packet, &from);
	}
	/* An open aperture takes data from everybody; answers go to its peer alone. */
	b->conn.in->checks = HDL_CHECK_EXTENT;
	send_damaged(good, &stranger);
	b->conn.in->checks = HDL_CHECK_DEFAULT;
	(void)ap_run(&b->node);
	assert_int_equal(b->sent_count, 0);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_BAD_CRC), 18);
	assert_int_equal(b->conn.state, HDL_APERTURE_OPEN);
	/* And the peer does. */
	send_damaged(good, &from);
	(void)ap_run(&b->node);
	assert_int_equal(only_error(b, NONCE_A).element, CI_CARRIER);
	/* An end that is not open any more says nothing. */
	b->sent_count = 0;
	b->conn.gap_told = false;
	b->conn.in->checks &= (uint8_t)~HDL_CHECK_VALID;
	ap_fail(&b->conn, CI_CARRIER, HDL_REASON_GONE);
	send_damaged(good, &from);
	(void)ap_run(&b->node);
	assert_int_equal(b->sent_count, 0);
}

/* A write that stalls before the damage: it is counted and told once. */
static void ap3_damage_behind_a_stalled_write(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	b->node.write_budget = 1;
	b->node.write_left = 1;
	store_and_damage();
	take(a, b, 0);
	assert_true(b->node.stalled);
	for (int i = 0; i < 5; i++) {
		(void)ap_run(&b->node);
		ap_turn(&b->node);
	}
	assert_false(b->node.stalled);
	(void)ap_run(&b->node);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_BAD_CRC), 1);
	assert_int_equal(only_error(b, NONCE_A).number, FIRST + 1);
}

/* b lives and hears everything, but its answers get lost: it learns when a gives up, from a. */
static void ap3_the_peer_learns_who_gave_up(void **state)
{
	(void)state;
	uint64_t now = 0;
	connect_checked(HDL_CHECK_DEFAULT, false);
	while (a->conn.state == HDL_APERTURE_OPEN && now < 2 * AP_SILENT_NS) {
		now += 100000000;
		ap_tick(&a->node, now);
		b->node.now_ns = now;
		if (a->conn.state == HDL_APERTURE_OPEN)
			(void)carry(a, b);
		b->sent_count = 0;
		assert_int_equal(b->conn.state, HDL_APERTURE_OPEN);
	}
	assert_int_equal(a->conn.state, HDL_APERTURE_FAILED);
	assert_int_equal(a->conn.reason, HDL_REASON_SILENT);
	assert_true(a->event_count == 1 && a->events[0].element == CI_SENDER);
	(void)ap_run(&a->node);
	struct ci_note note = only_error(a, NONCE_B);
	assert_true(note.element == CI_SENDER && note.reason == HDL_REASON_SILENT);
	(void)carry(a, b);
	assert_int_equal(b->conn.state, HDL_APERTURE_FAILED);
	assert_int_equal(b->conn.reason, HDL_REASON_SILENT);
	assert_int_equal(b->event_count, 1);
	assert_true(b->events[0].kind == CI_ERROR && b->events[0].element == CI_SENDER &&
	            b->events[0].reason == HDL_REASON_SILENT);
	/* That is the end of it: no answer, and nothing later. */
	for (int i = 0; i < 100; i++) {
		now += AP_TIMEOUT_NS;
		ap_tick(&a->node, now);
		ap_tick(&b->node, now);
		assert_int_equal(carry(a, b) + carry(b, a), 0);
	}
}

/* From another host or with another nonce it ends nothing; a reason that is none counts. */
static void ap3_giving_up_is_judged(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	static const struct {
		struct ci_note note;
		bool ends;
	} rows[] = {
	        {{.element = CI_SENDER, .reason = HDL_REASON_NONE}, false},
	        {{.element = CI_SENDER, .reason = HDL_REASON_BUSY}, false},
	        {{.element = CI_SENDER, .reason = HDL_REASON_COUNT}, false},
	        {{.element = CI_SENDER, .reason = 256 + HDL_REASON_SILENT}, false},
	        {{.element = CI_ELEMENT_COUNT, .reason = HDL_REASON_GONE}, false},
	        {{.element = CI_RECEIVER, .reason = HDL_REASON_SILENT}, false},
	        {{.element = CI_CARRIER, .reason = HDL_REASON_CARRIER}, false},
	        {{.element = CI_RECEIVER, .reason = HDL_REASON_MEMORY}, false},
	        {{.element = CI_SENDER, .reason = HDL_REASON_MEMORY}, true},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (unsigned wrong = 0; wrong < 3; wrong++) {
			struct ap_path from = path_to(a);
			struct ci_writer writer;
			uint8_t frame[100], body[8];
			struct ci_packet packet = {
			        .kind = CI_ERROR,
			        .index = b->conn.own.index,
			        .nonce = NONCE_B ^ (wrong == 0),
			        .bytes = ci_set_note(CI_ERROR, &rows[i].note, body),
			        .data = body};
			from.host[15] ^= wrong == 1;
			ci_begin(&writer, frame, sizeof(frame));
			assert_true(ci_put(&writer, &packet));
			ap_take(&b->node, frame, writer.used, &from);
			assert_int_equal(b->conn.state, wrong == 2 && rows[i].ends
			                                        ? HDL_APERTURE_FAILED
			                                        : HDL_APERTURE_OPEN);
		}
	}
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_BAD_FRAMES), 7);
	assert_int_equal(b->conn.errors, 1); /* the memory of the receiver */
}

/* The agent of the peer's host says that nobody is there any more. It does not know our nonce; it
 * repeats the peer's, which came with ALIVE. Nobody else ends a connection so, nor in another
 * element's name. */
static void ap3_the_word_of_an_agent_is_judged(void **state)
{
	(void)state;
	static const struct {
		uint64_t nonce;
		uint8_t kind, element, host;
	} rows[] = {
	        {NONCE_A ^ 1, CI_ERROR, CI_AGENT, 0}, {NONCE_A, CI_ERROR, CI_AGENT, 1},
	        {NONCE_A, CI_ERROR, CI_CARRIER, 0},   {NONCE_A, CI_ERROR, CI_SENDER, 0},
	        {NONCE_A, CI_REJECT, CI_AGENT, 0},    {NONCE_A, CI_ERROR, CI_AGENT, 0},
	};
	connect_checked(HDL_CHECK_DEFAULT, false);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ap_path from = path_to(a);
		struct ci_writer writer;
		struct ci_note note = {.element = rows[i].element, .reason = HDL_REASON_GONE};
		uint8_t frame[100], body[8];
		struct ci_packet packet = {.kind = rows[i].kind,
		                           .index = b->conn.own.index,
		                           .nonce = rows[i].nonce,
		                           .bytes = ci_set_note(rows[i].kind, &note, body),
		                           .data = body};
		bool last = i == sizeof(rows) / sizeof(rows[0]) - 1;
		from.host[15] ^= rows[i].host;
		ci_begin(&writer, frame, sizeof(frame));
		assert_true(ci_put(&writer, &packet));
		ap_take(&b->node, frame, writer.used, &from);
		assert_int_equal(b->conn.state, last ? HDL_APERTURE_FAILED : HDL_APERTURE_OPEN);
	}
	assert_int_equal(b->conn.reason, HDL_REASON_GONE);
}

/* ACCEPT of another type: the peer believes that it is connected, and learns better. */
static void ap3_an_accept_of_the_wrong_type(void **state)
{
	(void)state;
	struct ap_path path = path_to(b);
	ap_connect(&a->conn, &path, PORT);
	(void)carry(a, b);
	assert_true(ap_accept(&b->port, ap_waiting_find(&b->port, 0), &b->conn));
	a->conn.own.type = HDL_APERTURE_EVENT;
	(void)carry(b, a);
	assert_int_equal(a->conn.state, HDL_APERTURE_CLOSED);
	(void)carry(a, b);
	assert_int_equal(b->conn.state, HDL_APERTURE_FAILED);
	assert_int_equal(b->conn.reason, HDL_REASON_PROTOCOL);
}

/* A link, a host and an agent that have gone cannot be told anything. */
static void ap3_nobody_is_told_that_it_has_gone(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	ap_route_down(&a->node, 2);
	(void)ap_run(&a->node);
	assert_int_equal(a->conn.state, HDL_APERTURE_FAILED);
	assert_int_equal(a->sent_count, 0);
	assert_true(a->event_count == 1 && a->events[0].element == CI_CARRIER &&
	            a->events[0].reason == HDL_REASON_GONE);
}

/* The interface has gone, or takes only small frames: the connection ends here and there. */
static void ap3_a_carrier_that_is_down(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	assert_false(ap_carrier_down(&a->node, 3));
	assert_true(ap_carrier_down(&a->node, 2));
	assert_false(ap_carrier_down(&a->node, 2));
	assert_int_equal(a->conn.state, HDL_APERTURE_FAILED);
	assert_int_equal(a->conn.errors, 1);
	assert_true(a->event_count == 1 && a->events[0].element == CI_CARRIER &&
	            a->events[0].reason == HDL_REASON_CARRIER);
	(void)carry(a, b);
	assert_int_equal(b->conn.state, HDL_APERTURE_FAILED);
	assert_int_equal(b->conn.reason, HDL_REASON_CARRIER);
	assert_int_equal(b->events[0].element, CI_SENDER);
}

/* A frame that is not sent: an event, one until the peer is heard; every time an error. */
static void ap3_a_frame_that_is_not_sent(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	struct ap_path to = path_to(b), other = path_to(a);
	ap_unsent(&a->node, to.route, other.host, NULL, 0);
	ap_unsent(&a->node, other.route, to.host, NULL, 0);
	assert_int_equal(a->conn.errors, 0);
	for (int i = 0; i < 3; i++)
		ap_unsent(&a->node, to.route, to.host, NULL, 0);
	assert_int_equal(a->conn.errors, 3);
	assert_int_equal(a->conn.state, HDL_APERTURE_OPEN);
	assert_int_equal(a->conn.reason, HDL_REASON_CARRIER);
	assert_true(a->event_count == 1 && a->events[0].element == CI_CARRIER &&
	            a->events[0].reason == HDL_REASON_CARRIER);
	assert_true(ap_put(&a->conn, CI_DATA, 0, "back", 4));
	(void)ap_run(&a->node);
	/* Its own frame, and one of another connection to that host. */
	ap_unsent(&a->node, to.route, to.host, a->sent[0].frame, a->sent[0].bytes);
	assert_int_equal(a->conn.errors, 4);
	uint8_t foreign[2048];
	memcpy(foreign, a->sent[0].frame, a->sent[0].bytes);
	foreign[CI_INDEX_OFFSET + 3]++;
	ap_unsent(&a->node, to.route, to.host, foreign, a->sent[0].bytes);
	ap_unsent(&a->node, to.route, to.host, foreign, 3);
	assert_int_equal(a->conn.errors, 4);
	(void)carry(a, b);
	(void)carry(b, a);
	ap_unsent(&a->node, to.route, to.host, NULL, 0);
	assert_int_equal(a->event_count, 2);
}

/* Where an end is not trusted, ERROR that ends a connection goes through the agent; ERROR that
 * counts data stays with the data. */
static void ap3_errors_on_managed_paths(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, true);
	store_and_damage();
	(void)carry(a, b);
	assert_int_equal(only_error(b, NONCE_A).reason, HDL_REASON_DAMAGED);
	assert_false(b->sent[0].by_agent);
	(void)carry(b, a);
	(void)carry(a, b);
	assert_memory_equal(b->memory + 200, "three", 5);
	(void)carry(b, a);
	ap_give_up(&a->conn, CI_SENDER, HDL_REASON_SILENT);
	(void)ap_run(&a->node);
	assert_int_equal(only_error(a, NONCE_B).element, CI_SENDER);
	assert_true(a->sent[0].by_agent);
	(void)carry(a, b);
	assert_int_equal(b->conn.state, HDL_APERTURE_FAILED);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_WRONG_WAY), 0);
}

/* A peer that is stopped does not empty its lane: when that is full, not even ALIVE can be sent. */
static void ap3_a_carrier_without_room(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	a->full = true;
	a->event_count = 0;
	assert_true(ap_put(&a->conn, CI_DATA, 0, "stuck", 5));
	a->node.now_ns += 1000;
	uint64_t end = a->node.now_ns + AP_SILENT_NS;
	for (; a->node.now_ns < end; (void)ap_tick(&a->node, a->node.now_ns + 100000000)) {
		(void)ap_run(&a->node);
		assert_int_equal(a->conn.state, HDL_APERTURE_OPEN);
	}
	for (int i = 0; i < 20; i++) {
		(void)ap_tick(&a->node, a->node.now_ns + 100000000);
		(void)ap_run(&a->node);
	}
	assert_int_equal(a->conn.state, HDL_APERTURE_FAILED);
	assert_int_equal(a->conn.reason, HDL_REASON_SILENT);
	assert_int_equal(a->event_count, 1);
	assert_int_equal(a->events[0].element, CI_CARRIER);
}

/* A CONNECT that waits is of no use when the link that it came by has gone. */
static void ap3_connects_go_with_their_link(void **state)
{
	(void)state;
	struct ap_path to = path_to(b), from = path_to(a);
	ap_connect(&a->conn, &to, PORT);
	(void)ap_run(&a->node);
	ap_take(&b->node, a->sent[0].frame, a->sent[0].bytes, &from);
	assert_int_equal(b->port.waiting_count, 1);
	ap_route_down(&b->node, from.route + 1);
	assert_int_equal(b->port.waiting_count, 1);
	ap_route_down(&b->node, from.route);
	assert_int_equal(b->port.waiting_count, 0);
	assert_null(ap_waiting_find(&b->port, 0));
}

/* An event that finds its queue full is kept back, with everything behind it: nothing has been
 * lost, and no ERROR says so. */
static void ap3_what_is_kept_back_is_no_gap(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	b->no_room = true;
	assert_true(ap_put(&a->conn, CI_EVENT, 0, "first", 5));
	assert_true(ap_put(&a->conn, CI_EVENT, 8, "second", 6));
	(void)carry(a, b);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_BAD_SEQUENCE), 1);
	store_and_damage();
	take(a, b, 0);
	a->sent_count = 0;
	(void)ap_run(&b->node);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_BAD_CRC), 1);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_ERRORS_OUT), 0);
	assert_int_equal(b->event_count, 0);
	b->no_room = false;
	uint64_t now = a->node.now_ns;
	for (int i = 0; i < 20 && !ap_all_acked(&a->conn); i++) {
		now += AP_TIMEOUT_NS;
		ap_tick(&a->node, now);
		ap_tick(&b->node, now);
		(void)carry(a, b);
		(void)carry(b, a);
	}
	assert_true(ap_all_acked(&a->conn));
	assert_int_equal(b->event_count, 2);
	assert_memory_equal(b->events[0].data, "first", 5);
	assert_memory_equal(b->events[1].data, "second", 6);
	assert_memory_equal(b->memory + 200, "three", 5);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_ERRORS_OUT), 0);
	/* A frame that gets lost is a gap again. */
	assert_true(ap_put(&a->conn, CI_DATA, 0, "lost", 4));
	(void)ap_run(&a->node);
	a->sent_count = 0;
	assert_true(ap_put(&a->conn, CI_DATA, 0, "late", 4));
	(void)carry(a, b);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_ERRORS_OUT), 1);
}

/* REJECT: both ends count it, and the end that asked learns why. */
static void ap3_rejects_are_counted_at_both_ends(void **state)
{
	(void)state;
	struct ap_path path = path_to(b);
	ap_connect(&a->conn, &path, PORT + 1);
	(void)carry(a, b);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_REJECTS), 1);
	assert_int_equal(counted(a, HDL_APERTURE_COUNTER_REJECTS), 0);
	assert_int_equal(b->sent_count, 1);
	take(b, a, 0);
	take(b, a, 0); /* nobody waits for the second */
	assert_int_equal(counted(a, HDL_APERTURE_COUNTER_REJECTS), 1);
	assert_int_equal(a->conn.state, HDL_APERTURE_CLOSED);
	assert_int_equal(a->conn.reason, HDL_REASON_NO_PORT);
	assert_true(a->event_count == 1 && a->events[0].kind == CI_REJECT &&
	            a->events[0].reason == HDL_REASON_NO_PORT);
}

/* An aperture that leads somewhere without a connection: whoever follows it is told when it leads
 * nowhere, or is connected, and only then. */
static void ap3_who_follows_learns_where_it_no_longer_points(void **state)
{
	(void)state;
	struct ap_path path = path_to(b);
	for (unsigned connects = 0; connects < 2; connects++) {
		ap_point(&a->conn, &b->conn.own, &path);
		assert_true(a->conn.pointed);
		a->changes = 0;
		a->pointed = true;
		if (connects)
			ap_connect(&a->conn, &path, PORT);
		else
			ap_close(&a->conn, false);
		assert_false(a->pointed);
		assert_int_equal(a->changes, 1 + connects); /* it connects as well */
	}
	ap_close(&a->conn, false);
	a->changes = 0;
	ap_close(&a->conn, false);
	assert_int_equal(a->changes, 0);
}

/* Where extents are not checked, offsets wrap at the end of the aperture. */
static void ap5_offsets_wrap_where_extents_are_not_checked(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT & ~HDL_CHECK_EXTENT, false);
	assert_true(ap_put(&a->conn, CI_DATA, SIZE - 4, "the end", 7));
	(void)carry(a, b);
	assert_memory_equal(b->memory + SIZE - 4, "the ", 4);
	assert_memory_equal(b->memory, "end", 4);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_BYTES_IN), 7);
}

/* STATUS: what the port is, and what its queue is; its application learns who asked. */
static void ap7_status_tells_of_the_port_and_its_queue(void **state)
{
	(void)state;
	struct ap_path path = path_to(b);
	b->port.signals = HDL_SIGNAL_STATUS;
	b->port.rejected = 5;
	ap_ask_status(&a->conn, &path, PORT, 0x1234);
	(void)carry(a, b);
	assert_true(b->event_count == 1 && b->events[0].kind == CI_STATUS);
	assert_int_equal(b->events[0].index, a->conn.own.index);
	assert_memory_equal(b->events[0].source, path_to(a).host, 16);
	(void)carry(b, a);
	assert_int_equal(a->replies, 1);
	assert_int_equal(a->status.token, 0x1234);
	static const uint32_t values[CI_STATUSES] = {0, 0, 0, 5, 33, 1};
	assert_memory_equal(a->status.values, values, sizeof(values));
	assert_false(a->conn.asks_status);
}

/* Every answer is work that was done: whoever drives the node goes on. */
static void answers_count_as_work(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	assert_int_equal(ap_run(&a->node), 0);
	ap_ask_alive(&a->conn);
	(void)ap_run(&a->node);
	take(a, b, 0);
	assert_int_equal(ap_run(&b->node), 1); /* ALIVEACK */
	a->sent_count = b->sent_count = 0;
	store_and_damage();
	take(a, b, 0);
	assert_int_equal(ap_run(&b->node), 1); /* ERROR */
	take(b, a, 0);
	a->sent_count = 0;
	assert_int_equal(ap_run(&a->node), 2); /* what is missing */
	take(a, b, 0);
	assert_int_equal(ap_run(&b->node), 1); /* ALIVEACK */
	assert_int_equal(ap_run(&b->node), 0);
}

/* The ALIVE at the head of a frame arrives, and the data behind it gets lost. */
static void take_alive(struct rig_node *from, struct rig_node *to, uint32_t which)
{
	struct ap_path path = path_to(from);
	struct ci_reader reader;
	struct ci_writer writer;
	struct ci_packet packet;
	uint8_t frame[200];
	ci_open(&reader, from->sent[which].frame, from->sent[which].bytes);
	if (ci_next(&reader, &packet) != CI_OK || packet.kind != CI_ALIVE)
		return;
	ci_begin(&writer, frame, sizeof(frame));
	assert_true(ci_put(&writer, &packet));
	ap_take(&to->node, frame, writer.used, &path);
}

/* Data gets lost all the time. Neither ALIVE from the peer nor its answers to ours keep the
 * connection: the peer has to answer the data. */
static void ap3_signs_of_life_beside_data(void **state)
{
	(void)state;
	for (unsigned answers = 0; answers < 2; answers++) {
		uint64_t now = a->node.now_ns;
		uint64_t end = now + 2 * AP_SILENT_NS;
		uint32_t heard = 0;
		connect_checked(HDL_CHECK_DEFAULT, false);
		assert_true(ap_put(&a->conn, CI_DATA, 0, "lost", 4));
		for (; a->conn.state == HDL_APERTURE_OPEN && now < end; now += 100000000) {
			ap_tick(&a->node, now);
			(void)ap_run(&a->node);
			b->node.now_ns = now;
			for (uint32_t i = 0; answers && i < a->sent_count; i++)
				take_alive(a, b, i);
			a->sent_count = 0;
			b->conn.awaiting = false;
			if (!answers && now % (2 * AP_TIMEOUT_NS) == 0)
				ap_ask_alive(&b->conn);
			(void)ap_run(&b->node);
			for (uint32_t i = 0; i < b->sent_count; i++, heard++)
				take(b, a, i);
			b->sent_count = 0;
		}
		assert_true(heard > 2);
		assert_int_equal(a->conn.state, HDL_APERTURE_FAILED);
		assert_int_equal(a->conn.reason, HDL_REASON_SILENT);
		rig_end(state);
		rig_begin(state);
	}
}

/* Frames of @from that begin with a packet of @kind. */
static uint32_t sent_kind(const struct rig_node *from, uint8_t kind)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < from->sent_count; i++)
		count += from->sent[i].frame[0] == kind;
	return count;
}

enum noise { NOISE_ALIVE, NOISE_DATA, NOISES };

/* 10 ms pass. Everything that a sends gets lost; b says something every time, and it arrives. */
static void hear_noise(enum noise noise, uint64_t now)
{
	a->node.now_ns = b->node.now_ns = now;
	if (noise == NOISE_ALIVE) {
		b->conn.awaiting = false;
		ap_ask_alive(&b->conn);
	} else {
		b->conn.una = b->conn.next; /* as if it had been acknowledged */
		b->conn.tail = b->conn.head;
		assert_true(ap_put(&b->conn, CI_DATA, 0, "noise", 5));
	}
	(void)ap_run(&b->node);
	for (uint32_t i = 0; i < b->sent_count; i++)
		take(b, a, i);
	b->sent_count = 0;
	ap_tick(&a->node, now);
	(void)ap_run(&a->node);
}

/* A peer that says something all the time, but never acknowledges: data is repeated as if it were
 * silent, and the connection fails after AP_SILENT_NS. */
static void ap3_noise_does_not_put_off_the_end(void **state)
{
	(void)state;
	for (enum noise noise = 0; noise < NOISES; noise++) {
		uint64_t now = a->node.now_ns, begin = now;
		connect_checked(HDL_CHECK_DEFAULT, false);
		assert_true(ap_put(&a->conn, CI_DATA, 0, "lost", 4));
		(void)ap_run(&a->node);
		for (; now < begin + AP_TIMEOUT_NS + 20000000; now += 10000000) {
			hear_noise(noise, now);
			a->sent_count = 0;
		}
		assert_true(counted(a, HDL_APERTURE_COUNTER_REPEATED) > 0);
		for (; now < begin + AP_SILENT_NS - AP_TIMEOUT_NS; now += 10000000) {
			hear_noise(noise, now);
			a->sent_count = 0;
			assert_int_equal(a->conn.state, HDL_APERTURE_OPEN);
		}
		for (; now < begin + AP_SILENT_NS + 2 * AP_TIMEOUT_NS; now += 10000000) {
			hear_noise(noise, now);
			a->sent_count = 0;
		}
		assert_int_equal(a->conn.state, HDL_APERTURE_FAILED);
		assert_int_equal(a->conn.reason, HDL_REASON_SILENT);
		rig_end(state);
		rig_begin(state);
	}
}

/* The same while it closes: CLOSE is repeated, and then the connection is closed without an
 * answer. */
static void ap3_noise_does_not_put_off_close(void **state)
{
	(void)state;
	uint64_t now = a->node.now_ns;
	uint32_t closes = 0;
	connect_checked(HDL_CHECK_DEFAULT, false);
	ap_close(&a->conn, false);
	(void)ap_run(&a->node);
	for (uint64_t end = now + (AP_CLOSE_TRIES + 2) * AP_CLOSE_NS; now < end; now += 10000000) {
		hear_noise(NOISE_ALIVE, now);
		closes += sent_kind(a, CI_CLOSE);
		a->sent_count = 0;
	}
	assert_true(closes > AP_CLOSE_TRIES / 2);
	assert_int_equal(a->conn.state, HDL_APERTURE_CLOSED);
}

/* An end that sends without numbers all the time asks all the same whether somebody is there. */
static void ap3_who_sends_without_numbers_asks_too(void **state)
{
	(void)state;
	uint64_t now = a->node.now_ns, end = now + AP_SILENT_NS + 1000000000;
	connect_checked(HDL_CHECK_DEFAULT & ~HDL_CHECK_SEQUENCE, false);
	uint32_t asked = 0;
	for (; a->conn.state == HDL_APERTURE_OPEN && now < end; now += 10000000) {
		ap_tick(&a->node, now);
		assert_true(ap_put(&a->conn, CI_DATA, 0, "gone", 4));
		(void)ap_run(&a->node);
		asked += sent_kind(a, CI_ALIVE);
		a->sent_count = 0;
	}
	assert_true(asked > 5);
	assert_int_equal(a->conn.state, HDL_APERTURE_FAILED);
	assert_int_equal(a->conn.reason, HDL_REASON_SILENT);
}

/* An end that has closed has said so, and owes nothing else. */
static void ap3_nothing_is_owed_after_the_end(void **state)
{
	(void)state;
	connect_checked(HDL_CHECK_DEFAULT, false);
	store_and_damage();
	take(a, b, 0);
	assert_int_equal(b->conn.gap_due, HDL_REASON_DAMAGED);
	ap_close(&b->conn, true);
	(void)ap_run(&b->node);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_ERRORS_OUT), 0);
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_FRAMES_OUT), 2); /* ACCEPT, CLOSE */
	(void)carry(b, a);
	assert_int_equal(a->conn.state, HDL_APERTURE_CLOSED);
}

/* ACCEPT got lost: CONNECT is repeated, answered again, and the node knows that it has to run. */
static void ap3_accept_is_repeated(void **state)
{
	(void)state;
	struct ap_path path = path_to(b), from = path_to(a);
	ap_connect(&a->conn, &path, PORT);
	(void)ap_run(&a->node);
	take(a, b, 0);
	struct ap_waiting *waiting = ap_waiting_find(&b->port, 0);
	assert_non_null(waiting);
	assert_true(ap_accept(&b->port, waiting, &b->conn));
	for (unsigned i = 0; i < 2; i++) {
		assert_true(ap_waits(&b->node));
		(void)ap_run(&b->node);
		assert_int_equal(b->sent_count, i + 1);
		assert_false(ap_waits(&b->node));
		ap_take(&b->node, a->sent[0].frame, a->sent[0].bytes, &from);
	}
	assert_int_equal(counted(b, HDL_APERTURE_COUNTER_ACCEPTS), 1);
	take(b, a, 1);
	assert_int_equal(a->conn.state, HDL_APERTURE_OPEN);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_begin, rig_end)
int main(void)
{
	const struct CMUnitTest all[] = {
	        TEST(ap4_packets_that_follow_each_other_are_one_write),
	        TEST(ap3_damage_is_repaired_at_once),
	        TEST(ap3_damage_is_told_once),
	        TEST(ap3_damage_without_numbers_is_an_error),
	        TEST(ap3_strangers_get_no_answer_for_damage),
	        TEST(ap3_damage_behind_a_stalled_write),
	        TEST(ap3_the_peer_learns_who_gave_up),
	        TEST(ap3_giving_up_is_judged),
	        TEST(ap3_the_word_of_an_agent_is_judged),
	        TEST(ap3_an_accept_of_the_wrong_type),
	        TEST(ap3_nobody_is_told_that_it_has_gone),
	        TEST(ap3_a_carrier_that_is_down),
	        TEST(ap3_a_frame_that_is_not_sent),
	        TEST(ap3_errors_on_managed_paths),
	        TEST(ap3_a_carrier_without_room),
	        TEST(ap3_connects_go_with_their_link),
	        TEST(ap3_what_is_kept_back_is_no_gap),
	        TEST(ap3_rejects_are_counted_at_both_ends),
	        TEST(ap3_who_follows_learns_where_it_no_longer_points),
	        TEST(ap5_offsets_wrap_where_extents_are_not_checked),
	        TEST(ap7_status_tells_of_the_port_and_its_queue),
	        TEST(answers_count_as_work),
	        TEST(ap3_signs_of_life_beside_data),
	        TEST(ap3_noise_does_not_put_off_the_end),
	        TEST(ap3_noise_does_not_put_off_close),
	        TEST(ap3_who_sends_without_numbers_asks_too),
	        TEST(ap3_nothing_is_owed_after_the_end),
	        TEST(ap3_accept_is_repeated),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
