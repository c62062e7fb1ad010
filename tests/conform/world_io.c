/* What tests do with a world and expect from it: bytes, requests, completions, events. */
#include "conform.h"

/* --- memory --- */

void pattern(void *to, size_t length, uint32_t seed)
{
	unsigned char *at = to;
	uint32_t x = seed * 2654435761u + 12345;
	for (size_t i = 0; i < length; i++) {
		x = x * 1664525u + 1013904223u;
		at[i] = (unsigned char)(x >> 24);
	}
}

void fill(struct side *s, size_t offset, size_t length, uint32_t seed)
{
	assert_true(offset + length <= s->bytes);
	pattern(s->mem + offset, length, seed);
	memcpy(s->shadow + offset, s->mem + offset, length);
}

void expect_bytes(struct side *s, size_t offset, const void *from, size_t length)
{
	assert_true(offset + length <= s->bytes);
	memcpy(s->shadow + offset, from, length);
}

void expect_copy(struct side *to, size_t offset, const struct side *from, size_t from_offset,
                 size_t length)
{
	expect_bytes(to, offset, from->shadow + from_offset, length);
}

static void check_side(const struct side *s, const char *name)
{
	if (memcmp(s->mem, s->shadow, s->bytes) == 0)
		return;
	size_t first = 0, last = s->bytes - 1;
	while (s->mem[first] == s->shadow[first])
		first++;
	while (s->mem[last] == s->shadow[last])
		last--;
	fail_msg("side %s: bytes %zu to %zu are not what they must be (the first is 0x%02x, not "
	         "0x%02x)",
	         name, first, last, s->mem[first], s->shadow[first]);
}

void check_memory(struct world *w)
{
	check_side(&w->a, "a");
	check_side(&w->b, "b");
}

uint64_t address(const struct side *s, size_t offset)
{
	return (uint64_t)(uintptr_t)(s->mem + offset);
}

struct hdl_key arena_key(const struct side *s)
{
	return hdl_mr_key(s->mr);
}

struct hdl_sge piece(struct side *s, size_t offset, uint32_t length)
{
	return (struct hdl_sge){.addr = address(s, offset), .length = length, .key = arena_key(s)};
}

/* --- posting --- */

int try_recv(struct hdl_qp *qp, uint64_t wr_id, const struct hdl_sge *list, uint32_t count)
{
	const struct hdl_recv_wr *bad = NULL;
	struct hdl_recv_wr wr = {.wr_id = wr_id, .sg_list = list, .num_sge = count};
	int result = hdl_post_recv(qp, &wr, &bad);
	assert_ptr_equal(bad, result == 0 ? NULL : &wr);
	return result;
}

void post_recv(struct hdl_qp *qp, uint64_t wr_id, struct side *s, size_t offset, uint32_t length)
{
	struct hdl_sge one = piece(s, offset, length);
	assert_int_equal(try_recv(qp, wr_id, &one, length > 0 ? 1 : 0), 0);
}

void set_target(struct hdl_send_wr *wr, uint64_t addr, struct hdl_key key)
{
	if (wr->opcode == HDL_OP_COMPARE_SWAP || wr->opcode == HDL_OP_FETCH_ADD) {
		wr->u.atomic.addr = addr;
		wr->u.atomic.key = key;
	} else {
		wr->u.rdma.addr = addr;
		wr->u.rdma.key = key;
	}
}

/* Cells have neither atomics nor sends that invalidate. */
static bool is_lacking(const struct port *port, uint32_t opcode)
{
	return port->cells && (opcode == HDL_OP_COMPARE_SWAP || opcode == HDL_OP_FETCH_ADD ||
	                       opcode == HDL_OP_SEND_INVALIDATE);
}

bool lacks(const struct world *w, uint32_t opcode)
{
	return is_lacking(w->port, opcode);
}

int try_send(struct hdl_qp *qp, struct hdl_send_wr wr)
{
	const struct hdl_send_wr *bad = NULL;
	if (is_lacking(conform_port, wr.opcode))
		skip();
	int result = hdl_post_send(qp, &wr, &bad);
	assert_ptr_equal(bad, result == 0 ? NULL : &wr);
	return result;
}

void post_send(struct hdl_qp *qp, struct hdl_send_wr wr)
{
	assert_int_equal(try_send(qp, wr), 0);
}

void post_data(struct hdl_qp *qp, uint64_t wr_id, uint32_t opcode, struct side *s, size_t offset,
               uint32_t length)
{
	struct hdl_sge one = piece(s, offset, length);
	post_send(qp, (struct hdl_send_wr){.wr_id = wr_id,
	                                   .sg_list = &one,
	                                   .num_sge = length > 0 ? 1 : 0,
	                                   .opcode = opcode,
	                                   .flags = HDL_SEND_SIGNALED});
}

void post_rdma(struct hdl_qp *qp, uint64_t wr_id, uint32_t opcode, struct hdl_sge own,
               uint64_t addr, struct hdl_key key)
{
	post_send(qp, (struct hdl_send_wr){.wr_id = wr_id,
	                                   .sg_list = &own,
	                                   .num_sge = own.length > 0 ? 1 : 0,
	                                   .opcode = opcode,
	                                   .flags = HDL_SEND_SIGNALED,
	                                   .u.rdma = {.addr = addr, .key = key}});
}

void post_atomic(struct hdl_qp *qp, uint64_t wr_id, uint32_t opcode, struct hdl_sge own,
                 uint64_t addr, struct hdl_key key, uint64_t compare_add, uint64_t swap)
{
	post_send(qp, (struct hdl_send_wr){.wr_id = wr_id,
	                                   .sg_list = &own,
	                                   .num_sge = 1,
	                                   .opcode = opcode,
	                                   .flags = HDL_SEND_SIGNALED,
	                                   .u.atomic = {.addr = addr,
	                                                .key = key,
	                                                .compare_add = compare_add,
	                                                .swap = swap}});
}

/* --- completions --- */

void wait_wc(struct world *w, struct hdl_cq *cq, struct hdl_wc *wc)
{
	uint64_t start = world_now(w);
	int count;
	while ((count = hdl_cq_poll(cq, wc, 1)) == 0) {
		if (world_expired(w, start))
			fail_msg("no completion came");
		world_pump(w);
	}
	assert_int_equal(count, 1);
	/* RFC 5040 section 5.5: what the stream has taken is over, and placed a little later. */
	if (w->port->sockets)
		world_settle(w);
}

void expect_wc(struct world *w, struct hdl_cq *cq, const struct hdl_wc *want)
{
	struct hdl_wc wc;
	wait_wc(w, cq, &wc);
	if (wc.status != want->status || wc.wr_id != want->wr_id ||
	    wc.vendor_err != want->vendor_err)
		print_error("completion %llu: %s; %s\n", (unsigned long long)wc.wr_id,
		            hdl_wc_status_str(wc.status), hdl_detail_str(wc.vendor_err));
	assert_int_equal(wc.wr_id, want->wr_id);
	assert_int_equal(wc.status, want->status);
	assert_int_equal(wc.vendor_err, want->vendor_err);
	assert_int_equal(wc.qpn, want->qpn);
	if (want->status != HDL_WC_SUCCESS)
		return;
	assert_int_equal(wc.opcode, want->opcode);
	assert_int_equal(wc.byte_len, want->byte_len);
	assert_int_equal(wc.flags, want->flags);
	if (want->flags & (HDL_WC_WITH_IMM | HDL_WC_WITH_INVALIDATE))
		assert_int_equal(wc.imm, want->imm);
	assert_int_equal(wc.src_qpn, want->src_qpn);
	/* IP has no service level: for datagrams from sockets the field distinguishes UDP and IPv4
	 * (annex A17.4.5.1). */
	bool told = w->port->threaded && (want->flags & HDL_WC_GRH) != 0;
	assert_int_equal(wc.sl, !w->port->wire ? want->sl : told ? 8 | 2 : 0);
}

void expect_sent(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, uint64_t wr_id,
                 uint32_t opcode, uint32_t length)
{
	struct hdl_wc want = {.wr_id = wr_id,
	                      .opcode = (uint16_t)opcode,
	                      .byte_len = length,
	                      .qpn = hdl_qp_number(qp)};
	expect_wc(w, cq, &want);
}

void expect_received(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, struct hdl_qp *from,
                     uint64_t wr_id, uint32_t length)
{
	struct hdl_wc want = {.wr_id = wr_id,
	                      .opcode = HDL_WC_RECV,
	                      .byte_len = length,
	                      .qpn = hdl_qp_number(qp),
	                      .src_qpn = hdl_qp_number(from)};
	expect_wc(w, cq, &want);
}

void expect_failed(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, uint64_t wr_id,
                   uint32_t status, uint32_t detail)
{
	struct hdl_wc want = {.wr_id = wr_id,
	                      .status = (uint16_t)status,
	                      .vendor_err = detail,
	                      .qpn = hdl_qp_number(qp)};
	expect_wc(w, cq, &want);
}

/* A Terminate has a code for each of these groups of checks. */
static uint32_t told_by_terminate(uint32_t detail)
{
	switch (detail) {
	case HDL_DETAIL_NOT_VALID:
	case HDL_DETAIL_TYPE:
	case HDL_DETAIL_INSTANCE:
	case HDL_DETAIL_TOUCHED:
		return HDL_DETAIL_NOT_VALID;
	case HDL_DETAIL_PD:
	case HDL_DETAIL_QP:
		return HDL_DETAIL_PD;
	case HDL_DETAIL_BOUNDS:
	case HDL_DETAIL_ACCESS:
	case HDL_DETAIL_LIMIT:
		return detail;
	default:
		return HDL_DETAIL_NONE;
	}
}

uint32_t told(const struct world *w, uint32_t detail)
{
	if (w->port->stream)
		return told_by_terminate(detail);
	return w->port->wire ? HDL_DETAIL_NONE : detail;
}

void expect_refused(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, uint64_t wr_id,
                    uint32_t status, uint32_t detail)
{
	struct hdl_wc wc;
	wait_wc(w, cq, &wc);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.qpn, hdl_qp_number(qp));
	if (w->port->lossy && wc.status == HDL_WC_RETRY_EXC_ERR)
		return; /* the peer's last message was lost */
	/* RFC 5040 section 5.5: a send or write is over before the peer has looked at it. */
	if (w->port->stream && status == HDL_WC_REM_OP_ERR)
		detail = HDL_DETAIL_NONE;
	if (w->port->stream && status != HDL_WC_SUCCESS &&
	    (wc.opcode == HDL_WC_SEND || wc.opcode == HDL_WC_WRITE)) {
		assert_true(wc.status == HDL_WC_SUCCESS || wc.status == HDL_WC_WR_FLUSH_ERR);
		expect_event(w, cq == w->b.scq ? &w->b : &w->a, HDL_EVENT_QP_FATAL, told(w, detail),
		             qp);
		return;
	}
	if (wc.status != status || wc.vendor_err != told(w, detail))
		print_error("completion %llu: %s; %s\n", (unsigned long long)wc.wr_id,
		            hdl_wc_status_str(wc.status), hdl_detail_str(wc.vendor_err));
	assert_int_equal(wc.status, status);
	assert_int_equal(wc.vendor_err, told(w, detail));
}

void expect_flushed(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, uint64_t wr_id)
{
	expect_failed(w, cq, qp, wr_id, HDL_WC_WR_FLUSH_ERR, HDL_DETAIL_NONE);
}

void expect_behind(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, uint64_t wr_id)
{
	struct hdl_wc wc;
	if (!w->port->stream) {
		expect_flushed(w, cq, qp, wr_id);
		return;
	}
	wait_wc(w, cq, &wc);
	assert_int_equal(wc.wr_id, wr_id);
	assert_true(wc.status == HDL_WC_SUCCESS || wc.status == HDL_WC_WR_FLUSH_ERR);
}

void expect_terminated(struct world *w, struct side *s, struct hdl_qp *qp)
{
	if (w->port->stream)
		expect_event(w, s, HDL_EVENT_QP_FATAL, HDL_DETAIL_NONE, qp);
}

void expect_nothing(struct world *w, struct hdl_cq *cq)
{
	struct hdl_wc wc = {0};
	world_settle(w);
	int count = hdl_cq_poll(cq, &wc, 1);
	if (count == 1)
		print_error("completion %llu: %s; %s\n", (unsigned long long)wc.wr_id,
		            hdl_wc_status_str(wc.status), hdl_detail_str(wc.vendor_err));
	assert_int_equal(count, 0);
}

/* --- events --- */

static void take_events(struct world *w, struct hdl_adapter *adapter)
{
	struct hdl_event event;
	while (adapter != NULL && hdl_event_get(adapter, &event, 0) == 0) {
		assert_true(w->seen_count < MAX_SEEN);
		w->seen[w->seen_count++] = (struct seen_event){adapter, event};
	}
}

static bool event_is(const struct hdl_event *event, const struct hdl_event *want)
{
	if (event->type != want->type || event->detail != want->detail)
		return false;
	switch (want->type) {
	case HDL_EVENT_PEER_GONE:
		return memcmp(&event->u.gid, &want->u.gid, sizeof(want->u.gid)) == 0;
	case HDL_EVENT_MEMORY_GONE:
		return event->u.key.v == want->u.key.v;
	default:
		return event->u.qp == want->u.qp;
	}
}

static void print_seen(const struct world *w)
{
	for (size_t i = 0; i < w->seen_count; i++)
		print_error("event at %s: %s; %s; %p\n",
		            w->seen[i].adapter == w->a.adapter ? "a" : "b",
		            hdl_event_str(w->seen[i].event.type),
		            hdl_detail_str(w->seen[i].event.detail), (void *)w->seen[i].event.u.qp);
}

/* Has @s seen @want? Then it is not seen again. */
static bool take_this(struct world *w, struct side *s, const struct hdl_event *want)
{
	take_events(w, s->adapter);
	for (size_t i = 0; i < w->seen_count; i++) {
		if (w->seen[i].adapter == s->adapter && event_is(&w->seen[i].event, want)) {
			w->seen[i] = w->seen[--w->seen_count];
			return true;
		}
	}
	return false;
}

static void expect_this(struct world *w, struct side *s, const struct hdl_event *want)
{
	uint64_t start = world_now(w);
	while (!take_this(w, s, want)) {
		if (world_expired(w, start)) {
			print_seen(w);
			fail_msg("no event: %s; %s; %p", hdl_event_str(want->type),
			         hdl_detail_str(want->detail), (void *)want->u.qp);
		}
		world_pump(w);
	}
}

void expect_event(struct world *w, struct side *s, uint32_t type, uint32_t detail,
                  const void *object)
{
	struct hdl_event want = {.type = type, .detail = detail};
	memcpy(&want.u.qp, &object, sizeof(object));
	expect_this(w, s, &want);
}

void expect_gone_event(struct world *w, struct side *s, struct hdl_key key)
{
	struct hdl_event want = {
	        .type = HDL_EVENT_MEMORY_GONE, .detail = HDL_DETAIL_GONE, .u.key = key};
	expect_this(w, s, &want);
}

void expect_peer_gone(struct world *w, struct side *s, const struct hdl_gid *gid)
{
	struct hdl_event want = {.type = HDL_EVENT_PEER_GONE, .u.gid = *gid};
	if (!w->port->wire)
		expect_this(w, s, &want);
}

void expect_lost_peer(struct world *w, struct side *s, const struct hdl_gid *gid, struct hdl_qp *qp)
{
	expect_peer_gone(w, s, gid);
	const struct hdl_event failed = {.type = HDL_EVENT_QP_FATAL, .u.qp = qp};
	if (w->port->sockets) { /* closed in order, or reset because something was not read */
		world_settle(w);
		take_this(w, s, &failed);
	} else if (w->port->stream) {
		expect_this(w, s, &failed);
	} else { /* that the peer has gone is no fault of the queue pair: see qp_state_of() */
		expect_no_event(w);
	}
}

void expect_no_event(struct world *w)
{
	world_settle(w);
	take_events(w, w->a.adapter);
	if (w->b.adapter != w->a.adapter)
		take_events(w, w->b.adapter);
	if (w->seen_count != 0) {
		print_seen(w);
		fail_msg("an event that nobody expected");
	}
}

/* --- counters --- */

uint64_t counter_of(struct side *s, const char *name)
{
	struct hdl_counter list[64];
	size_t count = hdl_counters(s->adapter, list, COUNT(list));
	assert_true(count <= COUNT(list));
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i].name, name) == 0)
			return list[i].value;
	fail_msg("no counter %s", name);
	return 0;
}

uint64_t counter_sum(struct world *w, const char *name)
{
	uint64_t sum = counter_of(&w->a, name);
	return w->port->one_adapter ? sum : sum + counter_of(&w->b, name);
}

/* --- datagrams --- */

void post_datagram(struct hdl_qp *qp, uint64_t wr_id, uint32_t opcode, struct hdl_sge one,
                   struct hdl_ah *ah, uint32_t qpn, uint32_t qkey)
{
	post_send(qp, (struct hdl_send_wr){.wr_id = wr_id,
	                                   .sg_list = &one,
	                                   .num_sge = 1,
	                                   .opcode = opcode,
	                                   .flags = HDL_SEND_SIGNALED,
	                                   .imm = 0x600d,
	                                   .u.ud = {.ah = ah, .qpn = qpn, .qkey = qkey}});
}

/* IBTA section 8.3, written down once more. On a wire it is the IP header: UDP comes next, and two
 * bits of the traffic class say that the network may mark it (RFC 3168). */
/* RFC 791, in the last 20 bytes of the space for the header. */
static void put_ipv4(uint8_t *ip, const struct hdl_ah_attr *to, const struct hdl_gid *from,
                     uint32_t payload)
{
	uint32_t sum = 0, total = 20 + payload;
	ip[0] = 0x45;
	ip[1] = (uint8_t)((to->traffic_class & ~3u) | 2);
	ip[2] = (uint8_t)(total >> 8);
	ip[3] = (uint8_t)total;
	ip[6] = 0x40; /* do not fragment */
	ip[8] = to->hop_limit;
	ip[9] = 17;
	memcpy(ip + 12, from->raw + 12, 4);
	memcpy(ip + 16, to->dgid.raw + 12, 4);
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)ip[i] << 8 | ip[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	ip[10] = (uint8_t)(sum >> 8);
	ip[11] = (uint8_t)sum;
}

void expect_grh(struct side *s, size_t offset, const struct hdl_ah_attr *to,
                const struct hdl_gid *from, uint32_t payload)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	uint8_t grh[HDL_GRH_BYTES] = {0};
	bool wire = s->world->port->wire;
	if (wire && memcmp(to->dgid.raw, mapped, sizeof(mapped)) == 0) {
		put_ipv4(grh + 20, to, from, payload + 8);
	} else if (to->is_global || wire) {
		uint32_t traffic_class = wire ? (to->traffic_class & ~3u) | 2 : to->traffic_class;
		payload += wire ? 8 : 0;
		grh[0] = (uint8_t)(0x60 | traffic_class >> 4);
		grh[1] = (uint8_t)(traffic_class << 4 | to->flow_label >> 16);
		grh[2] = (uint8_t)(to->flow_label >> 8);
		grh[3] = (uint8_t)to->flow_label;
		grh[4] = (uint8_t)(payload >> 8);
		grh[5] = (uint8_t)payload;
		grh[6] = wire ? 17 : 0x1b;
		grh[7] = to->hop_limit;
		memcpy(grh + 8, from->raw, 16);
		memcpy(grh + 24, to->dgid.raw, 16);
	}
	expect_bytes(s, offset, grh, sizeof(grh));
}
