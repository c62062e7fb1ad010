/* An attacker with an open iWARP connection and tags of his own. The input is a row of records:
 * segments with plausible headers (so that the fuzzer gets past the first checks), raw octets, or
 * something that the application or the network does meanwhile. Whatever comes, in whatever pieces:
 * no crash, no byte outside of what the attacker was granted, everything that leaves is a stream of
 * good FPDUs with known messages in order, every request completes once, and no chunk is lost. The
 * same on messages in any order, as SCTP has them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "base/crc.h"
#include "transport/iwarp/iwarp.h"

#define RECORD_BYTES 12u
#define PART         4096u
#define GUARD        0xA5u
#define CHUNKS       3u
#define DEPTH        8u
#define LONGEST      3000u /* payload of a segment */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Parts of the memory, one behind the other. */
enum part {
	PART_BEFORE,
	PART_GRANTED, /* the attacker may read and write it, and use it for atomics */
	PART_OWN,     /* receives, and what reads of ours bring */
	PART_LOCAL,   /* registered without remote rights */
	PART_FOREIGN, /* of another domain, with every right */
	PART_WINDOW,  /* granted by a window that another queue pair has bound */
	PART_BEHIND,
	PART_COUNT
};

struct victim {
	uint64_t now_ns;
	struct hdl_adapter *adapter;
	struct hdl_pd *pd, *other_pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr[PART_COUNT];
	struct hdl_mw *mw;
	struct hdl_key window;
	struct hdl_qp *qp, *other_qp;
	uint8_t *memory;
	struct iwarp_pool pool;
	struct iwarp_chunk chunks[CHUNKS];
	uint8_t *chunk_memory;
	struct iwarp iwarp;
	struct iwarp_window early;
	uint16_t ssn, sent_ssn; /* messages: the next of the attacker, and of what leaves */
	struct iwarp_terms terms;
	bool open, told;
	struct mpa_sender sender;     /* of the attacker */
	struct mpa_receiver receiver; /* what leaves */
	uint32_t msn[RDMAP_QUEUE_COUNT];
	uint32_t sent_msn[RDMAP_QUEUE_COUNT]; /* of what leaves */
	bool terminated;                      /* the last message has left */
	uint32_t mo;
	uint64_t write_to;
	uint32_t sink_stag, sink_bytes, atomic_id; /* of the last request that left */
	uint32_t posted, completed;
};

static uint64_t victim_now(void *context)
{
	return ((struct victim *)context)->now_ns;
}

static void victim_wake(void *context, struct iwarp *iwarp)
{
	(void)context; /* every record looks */
	(void)iwarp;
}

static uint64_t part_address(const struct victim *v, enum part part, uint32_t offset)
{
	return (uint64_t)(uintptr_t)(v->memory + part * PART) + offset;
}

/* --- the victim --- */

static void qp_ready(struct victim *v, struct hdl_qp *qp)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_RESET,
	                           .port_num = 1,
	                           .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
	                                     HDL_ACCESS_REMOTE_ATOMIC,
	                           .path_mtu = 1024,
	                           .dest_qpn = hdl_qp_number(qp),
	                           .ah = {.dgid = v->adapter->engine.gid, .port_num = 1},
	                           .max_rd_atomic = 4,
	                           .max_dest_rd_atomic = 4,
	                           .retry_cnt = 7,
	                           .rnr_retry = 7};
	int bad = hdl_qp_modify(qp, &attr, HDL_QP_STATE);
	attr.state = HDL_QPS_INIT;
	bad |= hdl_qp_modify(qp, &attr,
	                     HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX | HDL_QP_ACCESS);
	attr.state = HDL_QPS_RTR;
	bad |= hdl_qp_modify(qp, &attr,
	                     HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                             HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC |
	                             HDL_QP_MIN_RNR_TIMER);
	attr.state = HDL_QPS_RTS;
	bad |= hdl_qp_modify(qp, &attr,
	                     HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                             HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC);
	if (bad != 0)
		abort();
}

static void victim_poll(struct victim *v)
{
	struct hdl_wc wc[8];
	struct hdl_event event;
	int count;
	hdl_progress(v->adapter);
	while ((count = hdl_cq_poll(v->cq, wc, 8)) > 0)
		v->completed += (uint32_t)count;
	while (hdl_event_get(v->adapter, &event, 0) == 0)
		;
}

/* A new connection, on terms that the input chooses. What was posted on the last one has
 * completed, or was forgotten with it. */
static void victim_connect(struct victim *v, uint8_t how)
{
	static const uint32_t segments[] = {256, 1448, 8948, 65483};
	struct hdl_qp_attr attr = {.state = HDL_QPS_ERR};
	hdl_qp_modify(v->qp, &attr, HDL_QP_STATE);
	victim_poll(v);
	assert(v->completed == v->posted);
	qp_ready(v, v->qp);
	adapter_lock(v->adapter);
	iwarp_out_drop(&v->iwarp);
	v->terms = (struct iwarp_terms){.crc = how & 1,
	                                .markers_in = how & 2,
	                                .markers_out = how & 4,
	                                .initiator = how & 8,
	                                .rtr = how & 8 ? how >> 4 & MPA_RTR_ALL : 0,
	                                .ird = 4,
	                                .ord = 4,
	                                .segment = segments[how >> 6]};
	if ((how & 7) == 6) /* markers without a CRC are not worth an input of their own */
		v->terms = (struct iwarp_terms){.window = &v->early,
		                                .first_ssn = (uint16_t)(0u - (how >> 4 & 3)),
		                                .ird = 4,
		                                .ord = 4,
		                                .segment = segments[how >> 6]};
	v->ssn = v->sent_ssn = v->terms.first_ssn;
	iwarp_begin(&v->adapter->engine, &v->qp->qp, &v->iwarp, &v->terms,
	            &(struct iwarp_owner){victim_wake, v});
	adapter_unlock(v->adapter);
	v->sender = (struct mpa_sender){.markers = v->terms.markers_in, .crc = v->terms.crc};
	mpa_stream_init(&v->receiver, v->terms.markers_out, v->terms.crc);
	v->open = true;
	v->told = v->terminated = false;
	for (unsigned i = 0; i < RDMAP_QUEUE_COUNT; i++)
		v->msn[i] = v->sent_msn[i] = 1;
	v->mo = 0;
	v->write_to = part_address(v, PART_GRANTED, 0);
	v->sink_stag = IWARP_READY_STAG;
	v->sink_bytes = 0;
}

static int victim_memory(struct victim *v)
{
	const uint32_t local = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE;
	const uint32_t remote =
	        HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC;
	const uint32_t rights[PART_COUNT] = {[PART_GRANTED] = local | remote,
	                                     [PART_OWN] = local,
	                                     [PART_LOCAL] = local,
	                                     [PART_FOREIGN] = local | remote,
	                                     [PART_WINDOW] = local | HDL_ACCESS_BIND};
	int bad = 0;
	for (unsigned i = PART_GRANTED; i < PART_BEHIND; i++)
		bad |= hdl_mr_register(i == PART_FOREIGN ? v->other_pd : v->pd,
		                       v->memory + i * PART, PART, rights[i], &v->mr[i]);
	bad |= hdl_mw_alloc(v->pd, HDL_MW_TYPE_2, &v->mw);
	v->window = hdl_key_with_instance(hdl_mw_key(v->mw), 1);
	struct hdl_send_wr wr = {.opcode = HDL_OP_BIND, .flags = HDL_SEND_SIGNALED};
	wr.bind.mw = v->mw;
	wr.bind.key = v->window;
	wr.bind.bind = (struct hdl_bind){.mr = v->mr[PART_WINDOW],
	                                 .addr = part_address(v, PART_WINDOW, 0),
	                                 .length = PART,
	                                 .access = remote};
	bad |= hdl_post_send(v->other_qp, &wr, NULL);
	v->posted++;
	return bad;
}

static void victim_open(struct victim *v)
{
	struct hdl_open_attr attr = {.max_mr = 64, .max_qp = 16, .no_thread = true};
	struct adapter_env env = {.clock = {victim_now, v}, .seed = 1};
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC, .cap = {DEPTH, DEPTH, 2, 2, 32}};
	memset(v, 0, sizeof(*v));
	v->now_ns = 1000;
	v->memory = aligned_alloc(4096, PART_COUNT * PART);
	v->chunk_memory = malloc(CHUNKS * IWARP_CHUNK_BYTES);
	if (!v->memory || !v->chunk_memory || adapter_open(&attr, &env, &v->adapter) != 0)
		abort();
	memset(v->memory, GUARD, PART_COUNT * PART);
	iwarp_pool_init(&v->pool, v->chunks, CHUNKS, v->chunk_memory);
	v->adapter->engine.iwarp_pool = &v->pool;
	int bad = hdl_pd_create(v->adapter, &v->pd) || hdl_pd_create(v->adapter, &v->other_pd) ||
	          hdl_cq_create(v->adapter, 64, NULL, NULL, &v->cq);
	init.send_cq = init.recv_cq = v->cq;
	bad = bad || hdl_qp_create(v->pd, &init, &v->qp) ||
	      hdl_qp_create(v->pd, &init, &v->other_qp);
	if (bad)
		abort();
	qp_ready(v, v->other_qp);
	if (victim_memory(v) != 0)
		abort();
	victim_poll(v);
}

static void victim_close(struct victim *v)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_ERR};
	unsigned chunks = 0;
	hdl_qp_modify(v->qp, &attr, HDL_QP_STATE);
	victim_poll(v);
	assert(v->completed == v->posted);
	for (unsigned part = 0; part < PART_COUNT; part++)
		for (unsigned i = 0; part != PART_GRANTED && part != PART_OWN && i < PART; i++)
			assert(v->memory[part * PART + i] == GUARD);
	int bad = hdl_mw_free(v->mw) || hdl_qp_destroy(v->qp) || hdl_qp_destroy(v->other_qp);
	adapter_lock(v->adapter);
	iwarp_out_drop(&v->iwarp);
	adapter_unlock(v->adapter);
	for (struct iwarp_chunk *at = v->pool.free; at != NULL; at = at->next)
		chunks++;
	assert(chunks == CHUNKS && v->pool.sending == 0);
	for (unsigned i = PART_GRANTED; i < PART_BEHIND; i++)
		bad |= hdl_mr_deregister(v->mr[i]);
	bad |= hdl_cq_destroy(v->cq) || hdl_pd_destroy(v->pd) || hdl_pd_destroy(v->other_pd) ||
	       hdl_close(v->adapter);
	assert(bad == 0);
	free(v->memory);
	free(v->chunk_memory);
}

/* --- what leaves --- */

/* A whole message header has left. */
static void look_at(struct victim *v, const uint8_t *head, size_t bytes)
{
	struct rdmap_segment s;
	enum rdmap_verdict verdict = rdmap_parse(head, bytes, &s);
	assert(verdict == RDMAP_OK && !v->terminated);
	const struct rdmap_operation *op = &rdmap_operations[s.opcode];
	if (!op->tagged) {
		assert(s.msn == v->sent_msn[op->queue]);
		v->sent_msn[op->queue] += s.last || !op->payload;
	}
	v->terminated = s.opcode == RDMAP_TERMINATE;
	if (s.opcode == RDMAP_READ_REQUEST) {
		v->sink_stag = s.u.read.sink_stag;
		v->sink_bytes = s.u.read.bytes;
	} else if (s.opcode == RDMAP_ATOMIC_REQUEST) {
		v->atomic_id = s.u.atomic.id;
	}
}

/* The same of messages. */
static void take_messages(struct victim *v, size_t bytes)
{
	const uint8_t *message;
	size_t length;
	adapter_lock(v->adapter);
	while (bytes > 0 && (length = iwarp_message_offer(&v->iwarp, &message)) > 0) {
		assert(length > DDP_SCTP_SSN_BYTES);
		assert((uint16_t)(message[0] << 8 | message[1]) == v->sent_ssn++);
		look_at(v, message + DDP_SCTP_SSN_BYTES, length - DDP_SCTP_SSN_BYTES);
		iwarp_message_taken(&v->iwarp);
		bytes -= length < bytes ? length : bytes;
	}
	adapter_unlock(v->adapter);
}

/* Take up to @bytes of what the victim offers. */
static void take(struct victim *v, size_t bytes)
{
	static uint8_t body[MPA_MAX_ULPDU_BYTES];
	struct mpa_receiver *r = &v->receiver;
	if (v->terms.window != NULL) {
		take_messages(v, bytes);
		return;
	}
	adapter_lock(v->adapter);
	while (bytes > 0) {
		uint8_t *to;
		size_t due = mpa_stream_due(r, &to), some = due < bytes ? due : bytes;
		uint8_t *at = to != NULL ? to : body;
		some = stream_drain(&iwarp_stream, &v->iwarp, at, some);
		if (some == 0)
			break;
		bytes -= some;
		enum mpa_stream_verdict verdict =
		        to != NULL ? mpa_stream_took(r, some)
		                   : mpa_stream_took_body(r, some,
		                                          crc32c(mpa_stream_sum(r), at, some));
		if (verdict == MPA_STREAM_HEAD) {
			size_t head = rdmap_head_bytes(r->head, r->head_bytes, r->ulpdu_bytes);
			mpa_stream_need(r, head > r->head_bytes ? head : r->head_bytes);
		} else if (verdict == MPA_STREAM_ULPDU) {
			if (r->ulpdu_bytes > 0)
				look_at(v, r->head, r->ulpdu_bytes);
		} else {
			assert(verdict == MPA_STREAM_MORE);
		}
	}
	adapter_unlock(v->adapter);
}

/* --- what comes --- */

/* One message. One that has to wait is not kept: the attacker lost it, and its number. */
static void put_message(struct victim *v, const uint8_t *bytes, size_t count)
{
	uint8_t *exact = malloc(count > 0 ? count : 1);
	if (exact == NULL)
		abort();
	memcpy(exact, bytes, count);
	adapter_lock(v->adapter);
	if (v->open && !v->told) {
		iwarp_message_resume(&v->iwarp);
		iwarp_message(&v->iwarp, exact, count, &v->open);
	}
	adapter_unlock(v->adapter);
	free(exact);
}

static void put(struct victim *v, const uint8_t *bytes, size_t count, uint8_t how)
{
	size_t piece = how & 1 ? 1u + (how >> 2) : count;
	if (v->terms.window != NULL) {
		put_message(v, bytes, count);
		return;
	}
	adapter_lock(v->adapter);
	while (count > 0 && v->open && !v->told) {
		size_t some = piece < count ? piece : count;
		uint8_t *exact = malloc(some);
		if (exact == NULL)
			abort();
		memcpy(exact, bytes, some);
		size_t fed = how & 2 ? iwarp_feed(&v->iwarp, exact, some, &v->open)
		                     : stream_feed(&iwarp_stream, &v->iwarp, exact, some, &v->open);
		free(exact);
		bytes += fed;
		count -= fed;
		if (fed < some) /* held back: the attacker cannot go on in the midst of an FPDU */
			break;
	}
	adapter_unlock(v->adapter);
	/* What was not taken is lost, and the stream no longer makes sense. */
	if (count > 0 && v->open && !v->told) {
		v->told = true;
		adapter_lock(v->adapter);
		iwarp_stream.ended(&v->iwarp, STREAM_BROKEN);
		adapter_unlock(v->adapter);
	}
}

static uint32_t tag_of(const struct victim *v, uint8_t code)
{
	switch (code & 15) {
	case 9:
		return hdl_mr_key(v->mr[PART_OWN]).v;
	case 10:
		return hdl_mr_key(v->mr[PART_LOCAL]).v;
	case 11:
		return hdl_mr_key(v->mr[PART_FOREIGN]).v;
	case 12:
		return v->window.v;
	case 13:
		return hdl_mr_key(v->mr[PART_GRANTED]).v ^ (1u << (code >> 4));
	default:
		return hdl_mr_key(v->mr[PART_GRANTED]).v;
	}
}

static uint64_t address_of(const struct victim *v, uint8_t code, uint8_t more)
{
	if (code == 0xff)
		return 0 - (uint64_t)more;
	if (code == 0xfe)
		return v->write_to;
	/* Around the parts, with their edges. */
	return part_address(v, (enum part)(code % PART_COUNT), 0) +
	       (code & 0x80 ? PART - more : more * 16u);
}

static uint32_t bytes_of(uint8_t code)
{
	static const uint32_t edges[] = {LONGEST, PART, PART + 1, UINT32_MAX};
	return code < 252 ? code * 11u : edges[code - 252];
}

static void put_segment(struct victim *v, const uint8_t *in)
{
	static uint8_t fpdu[MPA_MAX_FPDU_BYTES], payload[LONGEST];
	uint8_t header[RDMAP_MAX_HEADER_BYTES];
	struct rdmap_segment s = {.opcode = (enum rdmap_opcode)((in[0] & 15) % RDMAP_OPCODE_COUNT)};
	const struct rdmap_operation *op = &rdmap_operations[s.opcode];
	uint32_t bytes = op->payload ? bytes_of(in[6]) : 0;
	bytes = bytes < LONGEST ? bytes : LONGEST;
	s.last = in[1] & 1 || !op->payload;
	int32_t ahead = (int8_t)in[2], further = (int8_t)in[3];
	s.msn = v->msn[op->queue] + (uint32_t)ahead;
	s.mo = op->payload ? v->mo + (uint32_t)further : 0;
	s.stag = s.opcode == RDMAP_READ_RESPONSE ? v->sink_stag + (uint32_t)(in[4] >> 6)
	                                         : tag_of(v, in[4]);
	s.to = s.opcode == RDMAP_READ_RESPONSE ? in[5] & 0x80 ? in[5] : 0
	                                       : address_of(v, in[5], in[7]);
	s.invalidate_stag = tag_of(v, in[4]);
	s.u.immediate = in[7]; /* and the union's other members: */
	if (s.opcode == RDMAP_READ_REQUEST)
		s.u.read = (struct rdmap_read_request){.sink_stag = in[7],
		                                       .bytes = bytes_of(in[6]),
		                                       .source_stag = tag_of(v, in[4]),
		                                       .source_to = s.to};
	else if (s.opcode == RDMAP_ATOMIC_REQUEST)
		s.u.atomic = (struct rdmap_atomic_request){
		        .operation = (enum rdmap_atomic)(in[3] & 3),
		        .id = in[7],
		        .stag = tag_of(v, in[4]),
		        .to = s.to & ~(uint64_t)(in[3] & 0x80 ? 0 : 7),
		        .data = in[6],
		        .mask = 0 - (uint64_t)in[7],
		        .compare_mask = in[6]};
	else if (s.opcode == RDMAP_ATOMIC_RESPONSE)
		s.u.atomic_response.id = v->atomic_id + (uint32_t)(in[4] >> 6);
	else if (s.opcode == RDMAP_TERMINATE)
		rdmap_terminate_make((enum rdmap_error)(in[6] % RDMAP_ERROR_COUNT), in,
		                     RECORD_BYTES, &s.u.terminate);
	if (s.opcode == RDMAP_READ_RESPONSE && in[6] == 0) /* just what is due */
		bytes = v->sink_bytes < LONGEST ? v->sink_bytes : LONGEST;
	size_t header_bytes = rdmap_encode(&s, header, sizeof(header));
	if (header_bytes == 0)
		return;
	if (in[1] & 2)
		header[in[8] % header_bytes] ^= in[9];
	memset(payload, in[9] == GUARD ? 0 : in[9], bytes);
	struct mpa_piece pieces[] = {{header, header_bytes}, {payload, bytes}};
	size_t length;
	if (v->terms.window != NULL) { /* in order, a little early, or far off */
		uint16_t ssn = (uint16_t)(v->ssn + (in[11] < 0xf0 ? in[11] >> 5 : in[11] << 8));
		v->ssn = (uint16_t)(v->ssn + (in[11] < 0x20));
		fpdu[0] = (uint8_t)(ssn >> 8);
		fpdu[1] = (uint8_t)ssn;
		memcpy(fpdu + 2, header, header_bytes);
		memcpy(fpdu + 2 + header_bytes, payload, bytes);
		length = 2 + header_bytes + bytes;
	} else {
		length = mpa_fpdu_encode(&v->sender, pieces, 2, fpdu, sizeof(fpdu));
	}
	if (in[1] & 4)
		fpdu[(size_t)in[8] * length / 256] ^= in[9];
	if (in[1] & 8)
		length = (size_t)in[8] * length / 256;
	put(v, fpdu, length, in[10]);
	if (in[2] == 0 && s.last && !op->tagged)
		v->msn[op->queue]++;
	if (op->payload && !op->tagged)
		v->mo = s.last ? 0 : v->mo + bytes;
	if (s.opcode == RDMAP_WRITE)
		v->write_to = s.to + bytes;
}

/* --- what else happens --- */

static void post(struct victim *v, const uint8_t *in)
{
	static const uint8_t opcodes[] = {HDL_OP_SEND, HDL_OP_WRITE,     HDL_OP_READ,
	                                  HDL_OP_READ, HDL_OP_FETCH_ADD, HDL_OP_COMPARE_SWAP,
	                                  HDL_OP_SEND, HDL_OP_WRITE_IMM};
	struct hdl_sge list = {.addr = part_address(v, PART_OWN, in[5] * 8u),
	                       .length = bytes_of(in[6]) % (PART / 2),
	                       .key = hdl_mr_key(v->mr[PART_OWN])};
	if (in[2] & 1) {
		struct hdl_recv_wr wr = {.sg_list = &list, .num_sge = 1};
		v->posted += hdl_post_recv(v->qp, &wr, NULL) == 0;
		return;
	}
	struct hdl_send_wr wr = {.opcode = opcodes[in[3] & 7],
	                         .flags = HDL_SEND_SIGNALED | (in[3] & 8 ? HDL_SEND_FENCE : 0),
	                         .sg_list = &list,
	                         .num_sge = 1};
	if (wr.opcode == HDL_OP_FETCH_ADD || wr.opcode == HDL_OP_COMPARE_SWAP) {
		list.length = 8;
		wr.u.atomic.addr = 64;
	} else {
		wr.u.rdma.addr = 4096;
	}
	v->posted += hdl_post_send(v->qp, &wr, NULL) == 0;
}

static void act(struct victim *v, const uint8_t *in)
{
	switch (in[1] % 8) {
	case 0:
	case 1:
	case 2:
		post(v, in);
		break;
	case 3:
	case 4:
		take(v, in[2] & 1 ? in[3] : (size_t)in[3] * 300);
		break;
	case 5:
		v->now_ns += 1ull << (in[2] % 36);
		break;
	case 6:
		if (in[2] & 1) {
			victim_connect(v, in[3]);
			break;
		}
		adapter_lock(v->adapter);
		if (in[2] & 2)
			iwarp_close(&v->iwarp);
		else if (!v->told)
			iwarp_stream.ended(&v->iwarp, in[2] & 4 ? STREAM_CLOSED : STREAM_BROKEN);
		v->told = v->told || !(in[2] & 2);
		adapter_unlock(v->adapter);
		break;
	default: /* the grant is taken back, and given again under another key */
		if (hdl_mr_deregister(v->mr[PART_GRANTED]) != 0 ||
		    hdl_mr_register(v->pd, v->memory + PART_GRANTED * PART, PART,
		                    HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_READ |
		                            HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC,
		                    &v->mr[PART_GRANTED]) != 0)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct victim v;
	victim_open(&v);
	victim_connect(&v, size > 0 ? data[0] : 1);
	for (; size >= RECORD_BYTES; data += RECORD_BYTES, size -= RECORD_BYTES) {
		if (data[0] >= 0xf0)
			put(&v, data + 1, RECORD_BYTES - 1, data[0]);
		else if (data[0] & 0x80)
			act(&v, data);
		else
			put_segment(&v, data);
		victim_poll(&v);
	}
	take(&v, 1 << 20);
	victim_close(&v);
	return 0;
}
