/* Every operation, on every type of queue pair that has it, between two adapters of this process
 * that record to one file. For each a line says what the capture must show:
 *
 * 	WR-ID TYPE OPERATION LENGTH MTU ANSWER VALUE
 *
 * The bytes of a message are those of operations.py's pattern() for its WR-ID. ANSWER: ack, none,
 * an RNR NAK before the ack (rnr), a NAK (access, invalid), or gone: memory that went away. VALUE:
 * immediate data, the key that is invalidated, or what an atomic found.
 *
 * 	operations FILE         over the same-host path
 * 	operations FILE wire    over a wire: what one sends is handed to the other, packet by packet
 * 	operations FILE loss    over a wire that loses packets, reliable connections alone
 * 	operations FILE iwarp   over the same-host path, reliable connections alone, as iWARP
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"

#define ARENA_BYTES  (64u << 10)
#define TARGET_BYTES 16384u /* where the peer's half of the arena begins */
#define QKEY         0x1234u
#define FIRST_PSN    0xfffff0u /* so that numbers wrap */
#define ACCESS                                                                     \
	(HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_READ | \
	 HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC | HDL_ACCESS_BIND)
#define REMOTE (HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)

#define CABLE_PACKETS 256u
#define LOST_EVERY    7u /* of the packets of a cable that loses some */

/* Packets on their way. */
struct cable {
	uint32_t head, tail;
	uint32_t taken;
	struct {
		struct path path;
		size_t bytes;
		uint8_t packet[CAPTURE_PACKET_BYTES];
	} slots[CABLE_PACKETS];
};

struct end {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	unsigned char *memory;
	struct hdl_gid gid;
	struct hdl_qp *qp;
	struct cable cable; /* that it sends on */
};

static struct end a, b;
static uint64_t next_id = 1;
static bool wired, lossy, iwarp;
static const char *const type_names[] = {
        [HDL_QP_RC] = "RC", [HDL_QP_UC] = "UC", [HDL_QP_UD] = "UD", [HDL_QP_XRC_INI] = "XRC"};
static const char *const opcode_names[] = {
        [HDL_OP_WRITE] = "write",         [HDL_OP_WRITE_IMM] = "write-imm",
        [HDL_OP_SEND] = "send",           [HDL_OP_SEND_IMM] = "send-imm",
        [HDL_OP_READ] = "read",           [HDL_OP_COMPARE_SWAP] = "compare-swap",
        [HDL_OP_FETCH_ADD] = "fetch-add", [HDL_OP_SEND_INVALIDATE] = "send-inv"};

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hdl_strerror(result));
	exit(1);
}

static uint8_t *cable_reserve(void *context, const struct path *path, size_t bytes)
{
	struct cable *cable = context;
	(void)path;
	return cable->tail - cable->head == CABLE_PACKETS || bytes > CAPTURE_PACKET_BYTES
	               ? NULL
	               : cable->slots[cable->tail % CABLE_PACKETS].packet;
}

static void cable_commit(void *context, const struct path *path, size_t bytes)
{
	struct cable *cable = context;
	uint32_t slot = cable->tail++ % CABLE_PACKETS;
	roce_udp_seal(&path->ip, cable->slots[slot].packet, bytes);
	cable->slots[slot].path = *path;
	cable->slots[slot].bytes = bytes + IB_ICRC_BYTES;
}

static void cable_flush(void *context)
{
	(void)context;
}

/* What @from sent comes to @to. */
static void deliver(struct end *from, struct end *to)
{
	struct cable *cable = &from->cable;
	for (; cable->head != cable->tail; cable->head++) {
		uint32_t slot = cable->head % CABLE_PACKETS;
		if (lossy && ++cable->taken % LOST_EVERY == 0)
			continue;
		adapter_take(to->adapter, &cable->slots[slot].path, false,
		             cable->slots[slot].packet, cable->slots[slot].bytes);
	}
}

/* On a wire nobody else drives. */
static void pump(void)
{
	if (!wired)
		return;
	must(hdl_progress(a.adapter), "hdl_progress");
	deliver(&a, &b);
	must(hdl_progress(b.adapter), "hdl_progress");
	deliver(&b, &a);
}

static void end_open(struct end *end, const char *file)
{
	struct hdl_open_attr attr = {.capture = file, .no_thread = wired};
	struct hdl_limits limits;
	static struct carrier carriers[2];
	struct carrier *carrier = &carriers[end == &b];
	*carrier = (struct carrier){.reserve = cable_reserve,
	                            .commit = cable_commit,
	                            .flush = cable_flush,
	                            .context = &end->cable};
	struct adapter_env env = {.clock = clock_real(), .carrier = wired ? carrier : NULL};
	must(adapter_open(&attr, &env, &end->adapter), "adapter_open");
	must(hdl_adapter_query(end->adapter, &limits), "hdl_adapter_query");
	end->gid = limits.gid;
	must(hdl_pd_create(end->adapter, &end->pd), "hdl_pd_create");
	must(hdl_cq_create(end->adapter, 64, NULL, NULL, &end->cq), "hdl_cq_create");
	end->memory = aligned_alloc(4096, ARENA_BYTES);
	memset(end->memory, 0, ARENA_BYTES);
	must(hdl_mr_register(end->pd, end->memory, ARENA_BYTES, ACCESS, &end->mr), "register");
}

static struct hdl_qp *new_qp(struct end *end, uint32_t type, struct hdl_xrcd *xrcd)
{
	struct hdl_qp_init_attr init = {.type = type,
	                                .send_cq = end->cq,
	                                .recv_cq = end->cq,
	                                .xrcd = xrcd,
	                                .iwarp = iwarp,
	                                .cap = {16, 16, 4, 4, 64}};
	struct hdl_qp *qp;
	must(hdl_qp_create(type == HDL_QP_XRC_TGT ? NULL : end->pd, &init, &qp), "hdl_qp_create");
	return qp;
}

/* The attributes that each step asks for, by type. */
static uint32_t wanted(uint32_t type, uint32_t state)
{
	bool ud = type == HDL_QP_UD, uc = type == HDL_QP_UC, target = type == HDL_QP_XRC_TGT;
	uint32_t mask = HDL_QP_STATE;
	if (state == HDL_QPS_INIT)
		return mask | HDL_QP_PKEY_INDEX | HDL_QP_PORT | (ud ? HDL_QP_QKEY : HDL_QP_ACCESS);
	if (state == HDL_QPS_RTR && ud)
		return mask;
	if (state == HDL_QPS_RTR)
		return mask | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
		       (uc || type == HDL_QP_XRC_INI
		                ? 0
		                : HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER);
	if (ud || uc)
		return mask | HDL_QP_SQ_PSN;
	return mask | HDL_QP_TIMEOUT | HDL_QP_SQ_PSN |
	       (target ? 0 : HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC);
}

static void ready(struct hdl_qp *qp, uint32_t type, const struct hdl_gid *to, struct hdl_qp *peer,
                  uint16_t mtu)
{
	struct hdl_qp_attr attr = {.port_num = 1,
	                           .access = REMOTE,
	                           .qkey = QKEY,
	                           .ah = {.dgid = *to, .is_global = true, .port_num = 1},
	                           .dest_qpn = hdl_qp_number(peer),
	                           .rq_psn = FIRST_PSN,
	                           .sq_psn = FIRST_PSN,
	                           .path_mtu = mtu,
	                           .retry_cnt = 7,
	                           .rnr_retry = 7,
	                           .timeout = lossy ? 12 : 20,
	                           .min_rnr_timer = 20,
	                           .max_rd_atomic = 4,
	                           .max_dest_rd_atomic = 4};
	for (attr.state = HDL_QPS_INIT; attr.state <= HDL_QPS_RTS; attr.state++)
		must(hdl_qp_modify(qp, &attr, wanted(type, attr.state)), "hdl_qp_modify");
}

static void join_ends(uint32_t type, uint16_t mtu, struct hdl_xrcd *xrcd)
{
	a.qp = new_qp(&a, type, NULL);
	b.qp = new_qp(&b, xrcd != NULL ? HDL_QP_XRC_TGT : type, xrcd);
	ready(b.qp, xrcd != NULL ? HDL_QP_XRC_TGT : type, &a.gid, a.qp, mtu);
	ready(a.qp, type, &b.gid, b.qp, mtu);
}

static void part_ends(void)
{
	struct hdl_wc wc;
	pump();
	must(hdl_qp_destroy(a.qp), "hdl_qp_destroy");
	must(hdl_qp_destroy(b.qp), "hdl_qp_destroy");
	while (hdl_cq_poll(a.cq, &wc, 1) + hdl_cq_poll(b.cq, &wc, 1) > 0)
		;
}

static struct hdl_wc wait_for(struct end *end)
{
	struct hdl_wc wc = {0};
	int count;
	for (long turns = 0; (count = hdl_cq_poll(end->cq, &wc, 1)) == 0; turns++) {
		pump();
		if (turns == 500000000) {
			fputs("nothing completes\n", stderr);
			exit(1);
		}
	}
	must(count, "hdl_cq_poll");
	return wc;
}

static void fill(unsigned char *to, uint32_t length, uint64_t id)
{
	for (uint32_t i = 0; i < length; i++)
		to[i] = (unsigned char)(id * 31 + i * 7 + i / 256);
}

static void receive_one(struct hdl_srq *srq)
{
	struct hdl_sge into = {(uintptr_t)b.memory, TARGET_BYTES, hdl_mr_key(b.mr)};
	struct hdl_recv_wr wr = {.wr_id = 99, .sg_list = &into, .num_sge = 1};
	must(srq != NULL ? hdl_srq_post(srq, &wr, NULL) : hdl_post_recv(b.qp, &wr, NULL),
	     "receive");
}

static bool takes_receive(uint32_t opcode)
{
	return opcode != HDL_OP_WRITE && opcode != HDL_OP_READ && opcode != HDL_OP_COMPARE_SWAP &&
	       opcode != HDL_OP_FETCH_ADD;
}

struct request {
	uint32_t type, opcode, length, flags;
	uint16_t mtu;
	struct hdl_ah *ah;
	struct hdl_srq *srq;
	struct hdl_mw *window;
	bool late; /* the receive is posted after the first RNR NAK */
	bool bad_key;
};

/* What the message carries besides its bytes. */
static uint64_t set_value(struct hdl_send_wr *wr, const struct request *r)
{
	switch (r->opcode) {
	case HDL_OP_SEND_IMM:
	case HDL_OP_WRITE_IMM:
		wr->imm = htonl(0x11000000u + (uint32_t)next_id);
		return ntohl(wr->imm);
	case HDL_OP_SEND_INVALIDATE:
		wr->invalidate_key = hdl_mw_key(r->window);
		return wr->invalidate_key.v;
	default:
		return 0;
	}
}

static struct hdl_send_wr new_request(const struct request *r, struct hdl_sge pieces[2])
{
	bool atomic = r->opcode == HDL_OP_COMPARE_SWAP || r->opcode == HDL_OP_FETCH_ADD;
	struct hdl_send_wr wr = {.wr_id = next_id,
	                         .sg_list = pieces,
	                         .num_sge = r->length == 0             ? 0
	                                    : r->length == 1 || atomic ? 1
	                                                               : 2,
	                         .opcode = r->opcode,
	                         .flags = HDL_SEND_SIGNALED | r->flags};
	uint32_t first = wr.num_sge == 2 ? r->length / 3 : r->length;
	pieces[0] = (struct hdl_sge){(uintptr_t)a.memory, first, hdl_mr_key(a.mr)};
	pieces[1] =
	        (struct hdl_sge){(uintptr_t)a.memory + first, r->length - first, hdl_mr_key(a.mr)};
	uint64_t target = (uintptr_t)b.memory + TARGET_BYTES;
	struct hdl_key key = hdl_mr_key(b.mr);
	if (r->bad_key)
		key.v ^= 1;
	if (r->type == HDL_QP_UD) {
		wr.u.ud.ah = r->ah;
		wr.u.ud.qpn = hdl_qp_number(b.qp);
		wr.u.ud.qkey = QKEY;
	} else if (atomic) {
		wr.u.atomic.addr = target;
		wr.u.atomic.key = key;
		wr.u.atomic.compare_add = 5;
		wr.u.atomic.swap = 77;
	} else {
		wr.u.rdma.addr = target;
		wr.u.rdma.key = key;
	}
	if (r->srq != NULL)
		wr.remote_srq = hdl_srq_number(r->srq);
	return wr;
}

/* How many RNR NAKs our target has sent. */
static uint64_t refusals(void)
{
	struct hdl_counter counters[128];
	size_t count = hdl_counters(b.adapter, counters, 128);
	for (size_t i = 0; i < count && i < 128; i++)
		if (strcmp(counters[i].name, "rnr_sent") == 0)
			return counters[i].value;
	return 0;
}

static void run(const struct request *r)
{
	struct hdl_sge pieces[2];
	struct hdl_send_wr wr = new_request(r, pieces);
	bool atomic = r->opcode == HDL_OP_COMPARE_SWAP || r->opcode == HDL_OP_FETCH_ADD;
	bool reliable = r->type == HDL_QP_RC || r->type == HDL_QP_XRC_INI;
	uint64_t value = set_value(&wr, r);
	memset(a.memory, 0, TARGET_BYTES);
	if (r->opcode == HDL_OP_READ || atomic)
		fill(b.memory + TARGET_BYTES, r->length, next_id);
	else
		fill(a.memory, r->length, next_id);
	if (atomic)
		memcpy(&value, b.memory + TARGET_BYTES, sizeof(value));
	if (takes_receive(r->opcode) && !r->late)
		receive_one(r->srq);
	uint64_t before = refusals();
	must(hdl_post_send(a.qp, &wr, NULL), "hdl_post_send");
	if (r->late) {
		while (refusals() == before) {
			must(hdl_progress(a.adapter), "hdl_progress");
			pump();
		}
		receive_one(r->srq);
	}
	struct hdl_wc wc = wait_for(&a);
	uint32_t good = r->bad_key ? HDL_WC_REM_ACCESS_ERR : HDL_WC_SUCCESS;
	if (wc.status != good || wc.wr_id != next_id) {
		fprintf(stderr, "request %llu: %s\n", (unsigned long long)next_id,
		        hdl_wc_status_str(wc.status));
		exit(1);
	}
	if (takes_receive(r->opcode) && wait_for(&b).status != HDL_WC_SUCCESS)
		exit(1);
	printf("%llu %s %s %u %u %s %llu\n", (unsigned long long)next_id, type_names[r->type],
	       opcode_names[r->opcode], r->length, r->mtu,
	       r->late      ? "rnr"
	       : r->bad_key ? "access"
	       : reliable   ? "ack"
	                    : "none",
	       (unsigned long long)value);
	next_id++;
}

static void invalidate(uint16_t mtu)
{
	struct hdl_mw *window;
	struct hdl_bind bind = {b.mr, (uintptr_t)b.memory, 64, HDL_ACCESS_REMOTE_WRITE};
	must(hdl_mw_alloc(b.pd, HDL_MW_TYPE_2, &window), "hdl_mw_alloc");
	struct hdl_send_wr wr = {.opcode = HDL_OP_BIND,
	                         .flags = HDL_SEND_SIGNALED,
	                         .bind = {.mw = window, .key = hdl_mw_key(window), .bind = bind}};
	must(hdl_post_send(b.qp, &wr, NULL), "bind");
	if (wait_for(&b).status != HDL_WC_SUCCESS)
		exit(1);
	run(&(struct request){.type = HDL_QP_RC,
	                      .opcode = HDL_OP_SEND_INVALIDATE,
	                      .length = 600,
	                      .mtu = mtu,
	                      .window = window});
	must(hdl_mw_free(window), "hdl_mw_free");
}

static void connected(uint32_t type, uint16_t mtu, struct hdl_xrcd *xrcd, struct hdl_srq *srq)
{
	static const uint32_t lengths[] = {0, 1, 255, 256, 257, 1023, 9000};
	static const uint32_t opcodes[] = {HDL_OP_SEND, HDL_OP_SEND_IMM, HDL_OP_WRITE,
	                                   HDL_OP_WRITE_IMM, HDL_OP_READ};
	struct request r = {.type = type, .mtu = mtu, .srq = srq};
	join_ends(type, mtu, xrcd);
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		r.opcode = opcodes[i];
		for (size_t j = 0; j < sizeof(lengths) / sizeof(lengths[0]); j++) {
			r.length = lengths[j];
			r.flags = r.opcode != HDL_OP_READ && r.length == 1 ? HDL_SEND_INLINE : 0;
			if (type != HDL_QP_UC || r.opcode != HDL_OP_READ)
				run(&r);
		}
	}
	r.flags = 0;
	r.length = 8;
	for (r.opcode = HDL_OP_COMPARE_SWAP; r.opcode <= HDL_OP_FETCH_ADD && type != HDL_QP_UC;
	     r.opcode++)
		run(&r);
	if (type == HDL_QP_RC) {
		invalidate(mtu);
		run(&(struct request){.type = type,
		                      .opcode = HDL_OP_SEND,
		                      .length = 300,
		                      .mtu = mtu,
		                      .late = true});
		/* A refusal is not repeated: its loss would be another error. */
		run(&(struct request){.type = type,
		                      .opcode = HDL_OP_WRITE,
		                      .length = 300,
		                      .mtu = mtu,
		                      .bad_key = !lossy});
	}
	part_ends();
}

static void datagrams(void)
{
	static const uint32_t lengths[] = {0, 1, 1000, 4000};
	struct hdl_ah_attr attr = {.dgid = b.gid,
	                           .is_global = true,
	                           .port_num = 1,
	                           .hop_limit = 9,
	                           .traffic_class = 4,
	                           .flow_label = 0x12345};
	struct request r = {.type = HDL_QP_UD, .mtu = 4096};
	must(hdl_ah_create(a.pd, &attr, &r.ah), "hdl_ah_create");
	join_ends(HDL_QP_UD, 4096, NULL);
	for (r.opcode = HDL_OP_SEND; r.opcode <= HDL_OP_SEND_IMM; r.opcode++)
		for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			r.length = lengths[i];
			run(&r);
		}
	part_ends();
	must(hdl_ah_destroy(r.ah), "hdl_ah_destroy");
}

/* A message that is sent by reference, from memory that the program has unmapped. */
static void gone(void)
{
	const uint32_t length = 3 * 4096;
	unsigned char *memory =
	        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct hdl_mr *mr;
	must(hdl_mr_register(a.pd, memory, length, HDL_ACCESS_LOCAL_READ, &mr), "register");
	join_ends(HDL_QP_RC, 1024, NULL);
	receive_one(NULL);
	fill(memory, length, next_id);
	mmap(memory + 4096, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	struct hdl_sge piece = {(uintptr_t)memory, length, hdl_mr_key(mr)};
	struct hdl_send_wr wr = {.wr_id = next_id,
	                         .sg_list = &piece,
	                         .num_sge = 1,
	                         .opcode = HDL_OP_SEND,
	                         .flags = HDL_SEND_SIGNALED};
	must(hdl_post_send(a.qp, &wr, NULL), "hdl_post_send");
	struct hdl_wc wc = wait_for(&a);
	if (wc.status != HDL_WC_LOC_ACCESS_ERR) {
		fprintf(stderr, "gone: %s\n", hdl_wc_status_str(wc.status));
		exit(1);
	}
	printf("%llu RC send %u 1024 gone 0\n", (unsigned long long)next_id++, length);
	part_ends();
	hdl_mr_deregister(mr);
}

int main(int argc, char **argv)
{
	/* Nothing is closed: what was recorded last is written at the end all the same. */
	static struct hdl_xrcd *xrcd;
	static struct hdl_srq *srq;
	struct hdl_srq_attr attr = {.max_wr = 16, .max_sge = 4};
	lossy = argc == 3 && strcmp(argv[2], "loss") == 0;
	wired = lossy || (argc == 3 && strcmp(argv[2], "wire") == 0);
	iwarp = argc == 3 && strcmp(argv[2], "iwarp") == 0;
	if (argc != 2 && !wired && !iwarp)
		return 64;
	end_open(&a, argv[1]);
	end_open(&b, argv[1]);
	if (!wired)
		must(hdl_join(a.adapter, b.adapter), "hdl_join");
	connected(HDL_QP_RC, 256, NULL, NULL);
	connected(HDL_QP_RC, 4096, NULL, NULL);
	if (iwarp)
		return 0;
	if (!lossy) { /* nobody would send what is lost again */
		connected(HDL_QP_UC, 256, NULL, NULL);
		datagrams();
	}
	must(hdl_xrcd_open(b.adapter, &xrcd), "hdl_xrcd_open");
	must(hdl_srq_create_xrc(b.pd, xrcd, b.cq, &attr, NULL, &srq), "hdl_srq_create_xrc");
	connected(HDL_QP_XRC_INI, 1024, xrcd, srq);
	if (!wired)
		gone();
	return 0;
}
