/* A peer that sends anything to a node with apertures in every state: packets with good checksums,
 * right and wrong nonces, numbers, ports and offsets. Nothing is asserted on its bytes, no byte
 * outside of the apertures changes, and no byte inside without the nonce. Input: records of 8 bytes
 * (what to do, with which end, numbers), which become frames. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "transport/aperture/ap.h"
#include "wire/be.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ENDS   3u
#define SIZE   1024u
#define MARGIN 64u
#define NONCE  0x1122334455667788ull

struct fuzz_end {
	struct ap_conn conn;
	struct ap_kept kept[HDL_APERTURE_KEPT];
	uint8_t memory[MARGIN + SIZE + MARGIN];
};

static struct {
	struct ap_node node;
	struct ap_port port;
	struct tpt tpt;
	struct hdl_aperture_fixed rows[8];
	struct hdl_aperture_user users[8];
	struct ap_conn *conns[8];
	uint64_t map[1];
	struct fuzz_end ends[ENDS];
	uint8_t out[2048];
	bool trusted; /* the frame in hand has a right nonce */
} w;
static uint8_t ring[ENDS][HDL_APERTURE_KEPT_BYTES];

static uint8_t *fuzz_reserve(void *context, const struct ap_path *path, size_t bytes)
{
	(void)context;
	(void)path;
	return bytes <= sizeof(w.out) ? w.out : NULL;
}
static void fuzz_commit(void *context, const struct ap_path *path, size_t bytes)
{
	(void)context;
	(void)path;
	assert(bytes > 0 && bytes <= sizeof(w.out));
}
static void fuzz_changed(void *context, struct ap_conn *conn)
{
	(void)context;
	assert(conn->state <= HDL_APERTURE_FAILED);
}
static enum ap_delivered fuzz_event(void *context, struct ap_port *port,
                                    const struct ap_event *event)
{
	(void)context;
	(void)port;
	assert(event->bytes <= CI_EVENT_BYTES);
	if (event->kind == CI_ALIVE || event->kind == CI_ALIVEACK || event->kind == CI_STATUS)
		assert(event->reason == HDL_REASON_NONE && event->bytes == 0);
	return event->offset % 3 == 0 ? AP_FULL : AP_PLACED;
}
static void fuzz_response(void *context, struct ap_conn *conn, uint32_t token, uint64_t offset,
                          const uint8_t *data, uint32_t bytes)
{
	(void)context;
	(void)conn;
	(void)token;
	(void)offset;
	(void)data;
	assert(bytes <= CI_MAX_DATA);
}
static void fuzz_status(void *context, struct ap_conn *conn, const struct ci_status *status)
{
	(void)context;
	(void)conn;
	(void)status;
}
static const struct ap_sink fuzz_sink = {.reserve = fuzz_reserve,
                                         .commit = fuzz_commit,
                                         .changed = fuzz_changed,
                                         .event = fuzz_event,
                                         .response = fuzz_response,
                                         .status = fuzz_status};

static enum move_result fuzz_copy(void *context, enum move_side side, const struct span *to,
                                  size_t to_count, const struct span *from, size_t from_count)
{
	(void)context;
	(void)side;
	assert(to_count == 1 && from_count == 1 && to->length == from->length);
	memcpy((void *)(uintptr_t)to->addr, (const void *)(uintptr_t)from->addr, to->length);
	return MOVE_OK;
}
static const struct own_memory fuzz_own = {.ops.copy = fuzz_copy};

static struct ap_path fuzz_path(uint8_t host)
{
	struct ap_path path = {.route = host, .frame_bytes = 600, .idle_ns = 1000000};
	path.host[0] = host;
	return path;
}

/* End 0 is open, end 1 connects, end 2 is offered. */
static void fuzz_begin(void *blocks[3])
{
	const struct tpt_config config = {8, 64};
	struct tpt_bytes bytes = tpt_bytes(&config);
	const size_t sizes[3] = {bytes.slots, bytes.arena, bytes.private_bytes};
	memset(&w, 0, sizeof(w));
	for (unsigned i = 0; i < 3; i++) {
		blocks[i] = aligned_alloc(64, (sizes[i] + 127) / 64 * 64);
		memset(blocks[i], 0, (sizes[i] + 127) / 64 * 64);
	}
	tpt_init(&w.tpt, &config, blocks[0], blocks[1], blocks[2], 1);
	ap_node_init(&w.node, w.rows, w.users, w.conns, w.map, 8, 0);
	w.node.tpt = &w.tpt;
	w.node.pd = 1;
	w.node.own = &fuzz_own;
	w.node.slot = 1;
	w.node.sink = &fuzz_sink;
	w.node.write_budget = 40;
	ap_port_open(&w.node, &w.port, 7);
	w.port.signals = HDL_SIGNAL_ALL;
	w.port.rule_count = 1;
	w.port.rules[0] = (struct hdl_port_rule){.max_count = 2, .action = HDL_RULE_ACCEPT};
	struct ap_path path = fuzz_path(1);
	for (unsigned i = 0; i < ENDS; i++) {
		struct fuzz_end *end = &w.ends[i];
		struct tpt_region region = {.type = TPT_APERTURE,
		                            .pd = 1,
		                            .access = HDL_ACCESS_REMOTE_READ |
		                                      HDL_ACCESS_REMOTE_WRITE,
		                            .host = (uint64_t)(uintptr_t)end->memory + MARGIN,
		                            .length = SIZE};
		end->conn.kept = end->kept;
		end->conn.bytes = ring[i];
		bool opened = ap_open(&w.node, &end->conn);
		assert(opened && tpt_insert_run(&w.tpt, &region, &end->conn.in->key) == 0);
		end->conn.port = &w.port;
		end->conn.in->bits = 10;
		end->conn.in->checks = HDL_CHECK_DEFAULT;
		end->conn.own = (struct ci_offer){
		        .bits = 10, .checks = HDL_CHECK_DEFAULT, .length = SIZE, .nonce_step = 3};
		end->conn.own.nonce_every = i;
		ap_arm(&end->conn, NONCE + i, 0xfffffffe);
	}
	ap_connect(&w.ends[0].conn, &path, 9);
	ap_begin(&w.ends[0].conn, &w.ends[1].conn.own, &path);
	ap_connect(&w.ends[1].conn, &path, 9);
	ap_offer(&w.port, &w.ends[2].conn);
}

/* One record becomes a frame: kind, flags and end, nonce, number, offset, length. */
static void fuzz_record(const uint8_t *in)
{
	static uint8_t body[CI_MAX_DATA];
	uint8_t frame[600];
	struct ci_writer writer;
	unsigned end = in[1] % ENDS;
	bool right = in[2] % 8 != 0;
	struct ap_path from = fuzz_path(in[2] % 16 == 9 ? 2 : 1);
	from.replays = in[2] >= 128;
	struct ci_offer offer = {.index = in[5],
	                         .nonce = in[6],
	                         .bits = in[7] % 40,
	                         .type = in[4] % 2,
	                         .checks = in[3] & 0x3f,
	                         .port = 7,
	                         .length = in[7] % 40 >= 10 && in[7] % 40 <= 30 ? 1024 : 0};
	const struct ap_conn *conn = &w.ends[end].conn;
	uint32_t number = conn->in->expected + (uint32_t)(in[3] % 5) - 1;
	struct ci_packet packet = {.kind = 1 + in[0] % (CI_KIND_COUNT - 1),
	                           .flags = in[1] / 16 & (CI_SEQUENCED | CI_ASK),
	                           .index = ci_index(1, w.ends[end].conn.row),
	                           .nonce = conn->user->nonce + nonce_at(&conn->roll, number),
	                           .offset = (uint32_t)in[4] * 5,
	                           .bytes = 1 + in[5],
	                           .data = body};
	if (packet.kind >= CI_CONNECT)
		packet.nonce = conn->user->nonce;
	if (!right)
		packet.nonce ^= 1u << in[3] % 32;
	packet.sequence = (packet.flags & CI_SEQUENCED) != 0 ? number : 0;
	memset(body, in[6] | 1, 64);
	ci_begin(&writer, frame, sizeof(frame));
	if (packet.kind == CI_CONNECT || packet.kind == CI_STATUS)
		packet.index = ci_index(0, 7);
	if (packet.kind == CI_CONNECT || packet.kind == CI_ACCEPT)
		ci_set_offer(&offer, body);
	static const uint32_t fixed[CI_KIND_COUNT] = {0, 0, 0, 8, 0, 36, 36, 4, 8, 8, 4, 8, 16, 28};
	if (fixed[packet.kind] != 0)
		packet.bytes = fixed[packet.kind];
	if (packet.kind == CI_EVENT)
		packet.bytes %= CI_EVENT_BYTES + 1;
	if (!ci_put(&writer, &packet))
		return;
	if (in[7] % 32 == 7 && writer.used > 0) /* damaged */
		frame[in[6] % writer.used] ^= 4;
	uint8_t before[ENDS][MARGIN + SIZE + MARGIN];
	for (unsigned i = 0; i < ENDS; i++)
		memcpy(before[i], w.ends[i].memory, sizeof(before[i]));
	bool was_stalled = !ap_may_take(&w.node);
	if (!was_stalled)
		ap_take(&w.node, frame, writer.used, &from);
	/* A wrong nonce, or another host: not a byte. */
	for (unsigned i = 0; i < ENDS && !was_stalled; i++)
		if (!right || from.route == 2 || i != end)
			assert(memcmp(before[i], w.ends[i].memory, sizeof(before[i])) == 0);
	ap_turn(&w.node);
	(void)ap_run(&w.node);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	void *blocks[3];
	static const uint8_t margin[MARGIN];
	fuzz_begin(blocks);
	for (size_t at = 0; at + 8 <= size && at < 8000; at += 8) {
		struct ap_conn *conn = &w.ends[data[at + 1] % ENDS].conn;
		if (data[at] == 255) { /* time passes */
			ap_tick(&w.node, w.node.now_ns + (uint64_t)data[at + 2] * 10000000u);
			(void)ap_run(&w.node);
		} else if (data[at] == 254 && conn->state == HDL_APERTURE_OPEN) {
			(void)ap_put(conn, CI_DATA, data[at + 2], data, 8);
		} else if (data[at] == 252 && conn->state == HDL_APERTURE_OPEN) {
			ap_ask_alive(conn);
			(void)ap_run(&w.node);
		} else if (data[at] == 253) {
			ap_close(conn, data[at + 2] % 2 != 0);
		} else {
			fuzz_record(data + at);
		}
		for (unsigned i = 0; i < ENDS; i++) {
			assert(memcmp(w.ends[i].memory, margin, MARGIN) == 0);
			assert(memcmp(w.ends[i].memory + MARGIN + SIZE, margin, MARGIN) == 0);
		}
	}
	for (unsigned i = 0; i < 3; i++)
		free(blocks[i]);
	return 0;
}
