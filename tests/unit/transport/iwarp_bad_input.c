/* Bad input by name: what a peer with an open iWARP connection may try, beyond the error tables of
 * iwarp_refusals.c. Message numbers of every queue in the past and across their wrap, headers of
 * every wrong length, tags that belong to others, damage to any octet of every kind of segment with
 * and without markers, Terminates of any shape. Whatever comes, the connection ends with the right
 * Terminate, which quotes what was wrong, and no memory changes that the peer was not granted. */
#include "iwarp_rig.h"

#include <stdlib.h>

static struct iw_rig rig;
static struct iw_segment got;
static uint8_t fpdu[MPA_MAX_FPDU_BYTES], shadow[IW_BYTES], data[4096];
#define SIDE (&rig.sides[0])

#define TARGET_AT     1024u /* of what the peer reads or writes */
#define RECEIVE_BYTES 100u  /* of a receive, which begins where the memory begins */

/* The four ways in which octets come: whole or one by one, placed directly or read ahead. */
#define WAYS 4u
static void open_way(unsigned way, const struct iwarp_terms *terms)
{
	iw_open(&rig, &(struct iw_options){.terms = *terms}, 1 + way);
	rig.by_feed = way & 1;
	memcpy(shadow, SIDE->mem, IW_BYTES);
}

static void put_way(unsigned way, const void *bytes, size_t count)
{
	iw_put_bytes(&rig, bytes, count, way & 2 ? 1 : 0);
}

static void put_segment(unsigned way, const struct rdmap_segment *s, uint32_t payload)
{
	put_way(way, fpdu, iw_fpdu(&rig, s, data, payload, fpdu));
}

static const struct iwarp_terms checked = {.crc = true, .ird = 4, .ord = 4};

/* The Terminate that has gone out says @error and quotes @segment as the table demands. */
static void expect_quote(enum rdmap_error error, const uint8_t *segment, size_t bytes)
{
	struct rdmap_terminate want;
	rdmap_terminate_make(error, segment, bytes, &want);
	do
		assert_true(iw_look(&rig, &got));
	while (got.s.opcode != RDMAP_TERMINATE);
	const struct rdmap_terminate *t = &got.s.u.terminate;
	assert_int_equal(rdmap_error_find(t->layer, t->etype, t->code), error);
	assert_int_equal(t->ddp_header_bytes, want.ddp_header_bytes);
	assert_int_equal(t->rdmap_header_bytes, want.rdmap_header_bytes);
	assert_int_equal(t->has_length, want.has_length);
	if (want.ddp_header != NULL) {
		assert_int_equal(t->segment_bytes, bytes);
		assert_memory_equal(t->ddp_header, segment, want.ddp_header_bytes);
	}
	if (want.rdmap_header != NULL)
		assert_memory_equal(t->rdmap_header, segment + want.ddp_header_bytes,
		                    want.rdmap_header_bytes);
	assert_int_equal(iw_state(SIDE), HDL_QPS_ERR);
	iw_expect_silence(&rig);
}

/* --- message numbers --- */

enum { Q_SEND, Q_READ, Q_RESULT, Q_COUNT };

static struct rdmap_segment numbered(unsigned queue, uint32_t msn)
{
	struct rdmap_segment s = {.opcode = RDMAP_SEND, .last = true, .msn = msn};
	if (queue == Q_READ) {
		s.opcode = RDMAP_READ_REQUEST;
		s.u.read = (struct rdmap_read_request){.sink_stag = 1,
		                                       .bytes = 8,
		                                       .source_stag = iw_key(SIDE).v,
		                                       .source_to = iw_address(SIDE, 0)};
	} else if (queue == Q_RESULT) {
		s.opcode = RDMAP_ATOMIC_RESPONSE;
	}
	return s;
}

/* Take what a good message needs and leaves: a receive, an answer, an open atomic. */
static void good_message(unsigned way, unsigned queue, uint32_t msn)
{
	struct rdmap_segment s = numbered(queue, msn);
	if (queue == Q_SEND)
		iw_recv(SIDE, 1, 0, RECEIVE_BYTES);
	if (queue == Q_RESULT) {
		struct hdl_sge list = iw_piece(SIDE, 64, 8);
		struct hdl_send_wr wr = {
		        .wr_id = 2, .opcode = HDL_OP_FETCH_ADD, .sg_list = &list, .num_sge = 1};
		iw_post(SIDE, wr);
		assert_true(iw_look(&rig, &got));
		s.u.atomic_response.id = got.s.u.atomic.id;
	}
	put_segment(way, &s, queue == Q_SEND ? 8 : 0);
	assert_true(SIDE->open);
	if (queue == Q_READ)
		assert_true(iw_look(&rig, &got));
	else
		iw_completion(queue == Q_SEND ? SIDE->rcq : SIDE->scq, queue == Q_SEND ? 1 : 2,
		              HDL_WC_SUCCESS);
}

static void set_expected(unsigned queue, uint32_t msn)
{
	struct iwarp *iwarp = &SIDE->iwarp;
	if (queue == Q_SEND)
		iwarp->expected_send = msn;
	else if (queue == Q_RESULT)
		iwarp->expected_result = msn;
	else
		iwarp->expected_read = iwarp->answered = msn;
	if (queue == Q_READ)
		read_queue_init(&SIDE->qp->qp.reads, SIDE->qp->qp.reads.entries, 4, msn);
}

/* After two good messages from @first on, @wrong is refused. */
static void rfc5041_5_message_numbers(void **state)
{
	static const struct {
		uint32_t first, wrong;
	} rows[] = {{1, 1},          {1, 2},
	            {1, 0},          {1, 4},
	            {1, UINT32_MAX}, {1, 0x80000003},
	            {UINT32_MAX, 0}, {UINT32_MAX, UINT32_MAX},
	            {UINT32_MAX, 2}, {0x7fffffff, 0x7fffffff}};
	(void)state;
	for (unsigned queue = 0; queue < Q_COUNT; queue++)
		for (size_t i = 0; i < IW_COUNT(rows); i++)
			for (unsigned way = 0; way < WAYS; way++) {
				uint8_t header[RDMAP_MAX_HEADER_BYTES];
				open_way(way, &checked);
				set_expected(queue, rows[i].first);
				good_message(way, queue, rows[i].first);
				good_message(way, queue, rows[i].first + 1);
				struct rdmap_segment s = numbered(queue, rows[i].wrong);
				size_t bytes = rdmap_encode(&s, header, sizeof(header));
				put_segment(way, &s, 0);
				assert_false(SIDE->open);
				iw_event(SIDE, HDL_EVENT_QP_REQUEST_ERR, HDL_DETAIL_OUT_OF_WINDOW);
				expect_quote(RDMAP_ERROR_DDP_MSN_RANGE, header, bytes);
				iw_close(&rig);
			}
}

/* --- headers of a wrong length --- */

static void rfc5040_4_headers_of_a_wrong_length(void **state)
{
	static const struct {
		enum rdmap_opcode opcode;
		size_t header;
	} rows[] = {{RDMAP_READ_REQUEST, RDMAP_READ_REQUEST_BYTES},
	            {RDMAP_ATOMIC_REQUEST, RDMAP_ATOMIC_REQUEST_BYTES},
	            {RDMAP_ATOMIC_RESPONSE, RDMAP_ATOMIC_RESPONSE_BYTES},
	            {RDMAP_IMMEDIATE, RDMAP_IMMEDIATE_BYTES},
	            {RDMAP_IMMEDIATE_SE, RDMAP_IMMEDIATE_BYTES}};
	(void)state;
	for (size_t i = 0; i < IW_COUNT(rows); i++)
		for (size_t bytes = 0; bytes <= rows[i].header + 3; bytes++)
			for (unsigned way = 0; way < WAYS; way++) {
				uint8_t ulpdu[RDMAP_MAX_HEADER_BYTES + 64] = {0};
				struct rdmap_segment s = {.opcode = rows[i].opcode, .msn = 1};
				if (bytes == rows[i].header)
					continue;
				open_way(way, &checked);
				iw_recv(SIDE, 1, 0, RECEIVE_BYTES);
				rdmap_encode(&s, ulpdu, sizeof(ulpdu));
				struct mpa_piece piece = {ulpdu, DDP_UNTAGGED_BYTES + bytes};
				put_way(way, fpdu,
				        mpa_fpdu_encode(&SIDE->sender, &piece, 1, fpdu,
				                        sizeof(fpdu)));
				assert_false(SIDE->open);
				expect_quote(bytes < rows[i].header
				                     ? RDMAP_ERROR_RDMAP_UNSPECIFIED
				                     : RDMAP_ERROR_DDP_MESSAGE_TOO_LONG,
				             ulpdu, piece.bytes);
				assert_memory_equal(SIDE->mem, shadow, IW_BYTES);
				iw_completion(SIDE->rcq, 1, HDL_WC_WR_FLUSH_ERR);
				iw_close(&rig);
			}
}

/* --- tags --- */

enum tag_of {
	TAG_OTHER_QP,     /* a window that another queue pair has bound */
	TAG_OTHER_DOMAIN, /* a region of another protection domain */
	TAG_STALE,        /* a region that is gone */
	TAG_INSTANCE,     /* the index is right, the instance is not */
	TAG_LOCAL,        /* a region that the peer was not granted */
	TAG_COUNT
};

struct tag {
	struct hdl_mw *mw;
	struct hdl_mr *mr;
	struct hdl_pd *pd;
	struct hdl_qp *qp; /* that has bound the window */
	struct hdl_key key;
};

/* A queue pair of the same domain, joined to its twin at the other end by lanes. */
static struct hdl_qp *other_qp(void)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = SIDE->scq,
	                                .recv_cq = SIDE->rcq,
	                                .cap = {4, 4, 1, 1, 0}};
	assert_int_equal(hdl_qp_create(SIDE->pd, &init, &qp), 0);
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                           .port_num = 1,
	                           .path_mtu = 1024,
	                           .dest_qpn = 77,
	                           .ah = {.dgid = rig.sides[1].adapter->engine.gid, .port_num = 1}};
	assert_int_equal(
	        hdl_qp_modify(qp, &attr,
	                      HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX | HDL_QP_ACCESS),
	        0);
	attr.state = HDL_QPS_RTR;
	assert_int_equal(hdl_qp_modify(qp, &attr,
	                               HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU |
	                                       HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                                       HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER),
	                 0);
	attr.state = HDL_QPS_RTS;
	assert_int_equal(hdl_qp_modify(qp, &attr,
	                               HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT |
	                                       HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
	                                       HDL_QP_MAX_RD_ATOMIC),
	                 0);
	return qp;
}

static void tag_make(struct tag *tag, enum tag_of of)
{
	const uint32_t remote = HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_READ |
	                        HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC;
	*tag = (struct tag){.key = iw_key(SIDE)};
	if (of == TAG_OTHER_QP) {
		tag->qp = other_qp();
		assert_int_equal(hdl_mw_alloc(SIDE->pd, HDL_MW_TYPE_2, &tag->mw), 0);
		tag->key = hdl_key_with_instance(hdl_mw_key(tag->mw), 5);
		struct hdl_send_wr wr = {
		        .wr_id = 9, .opcode = HDL_OP_BIND, .flags = HDL_SEND_SIGNALED};
		wr.bind.mw = tag->mw;
		wr.bind.key = tag->key;
		wr.bind.bind =
		        (struct hdl_bind){.mr = SIDE->mr,
		                          .addr = iw_address(SIDE, 0),
		                          .length = 4096,
		                          .access = remote & ~(uint32_t)HDL_ACCESS_LOCAL_WRITE};
		assert_int_equal(hdl_post_send(tag->qp, &wr, NULL), 0);
		iw_drive(&rig);
		iw_completion(SIDE->scq, 9, HDL_WC_SUCCESS);
	} else if (of == TAG_INSTANCE) {
		tag->key.v ^= 1;
	} else {
		struct hdl_pd *pd = SIDE->pd;
		if (of == TAG_OTHER_DOMAIN) {
			assert_int_equal(hdl_pd_create(SIDE->adapter, &tag->pd), 0);
			pd = tag->pd;
		}
		assert_int_equal(hdl_mr_register(pd, SIDE->mem, 4096,
		                                 of == TAG_LOCAL ? HDL_ACCESS_LOCAL_READ |
		                                                           HDL_ACCESS_LOCAL_WRITE
		                                                 : remote,
		                                 &tag->mr),
		                 0);
		tag->key = hdl_mr_key(tag->mr);
		if (of == TAG_STALE) {
			assert_int_equal(hdl_mr_deregister(tag->mr), 0);
			tag->mr = NULL;
		}
	}
}

static void tag_end(struct tag *tag)
{
	if (tag->mw != NULL)
		assert_int_equal(hdl_mw_free(tag->mw), 0);
	if (tag->qp != NULL)
		assert_int_equal(hdl_qp_destroy(tag->qp), 0);
	if (tag->mr != NULL)
		assert_int_equal(hdl_mr_deregister(tag->mr), 0);
	if (tag->pd != NULL)
		assert_int_equal(hdl_pd_destroy(tag->pd), 0);
}

static struct rdmap_segment tagged(unsigned what, struct hdl_key key)
{
	struct rdmap_segment s = {.opcode = RDMAP_WRITE,
	                          .last = true,
	                          .stag = key.v,
	                          .to = iw_address(SIDE, TARGET_AT)};
	if (what == 1) {
		s = (struct rdmap_segment){.opcode = RDMAP_READ_REQUEST, .msn = 1};
		s.u.read = (struct rdmap_read_request){
		        .bytes = 8, .source_stag = key.v, .source_to = iw_address(SIDE, TARGET_AT)};
	} else if (what == 2) {
		s = (struct rdmap_segment){.opcode = RDMAP_ATOMIC_REQUEST, .msn = 1};
		s.u.atomic = (struct rdmap_atomic_request){.operation = RDMAP_FETCH_ADD,
		                                           .stag = key.v,
		                                           .to = iw_address(SIDE, TARGET_AT)};
	}
	return s;
}

static void rfc5040_7_tags_of_others(void **state)
{
	static const struct {
		enum rdmap_error write, request;
		enum hdl_detail detail;
	} rows[TAG_COUNT] = {[TAG_OTHER_QP] = {RDMAP_ERROR_DDP_STAG_STREAM,
	                                       RDMAP_ERROR_RDMAP_STAG_STREAM, HDL_DETAIL_QP},
	                     [TAG_OTHER_DOMAIN] = {RDMAP_ERROR_DDP_STAG_STREAM,
	                                           RDMAP_ERROR_RDMAP_STAG_STREAM, HDL_DETAIL_PD},
	                     [TAG_STALE] = {RDMAP_ERROR_DDP_INVALID_STAG,
	                                    RDMAP_ERROR_RDMAP_INVALID_STAG, HDL_DETAIL_NOT_VALID},
	                     [TAG_INSTANCE] = {RDMAP_ERROR_DDP_INVALID_STAG,
	                                       RDMAP_ERROR_RDMAP_INVALID_STAG, HDL_DETAIL_INSTANCE},
	                     [TAG_LOCAL] = {RDMAP_ERROR_RDMAP_ACCESS, RDMAP_ERROR_RDMAP_ACCESS,
	                                    HDL_DETAIL_ACCESS}};
	(void)state;
	for (unsigned of = 0; of < TAG_COUNT; of++)
		for (unsigned what = 0; what < 3; what++)
			for (unsigned way = 0; way < WAYS; way++) {
				struct tag tag;
				uint8_t header[RDMAP_MAX_HEADER_BYTES];
				open_way(way, &checked);
				tag_make(&tag, (enum tag_of)of);
				struct rdmap_segment s = tagged(what, tag.key);
				uint32_t payload = what == 0 ? 16 : 0;
				size_t bytes = rdmap_encode(&s, header, sizeof(header)) + payload;
				put_segment(way, &s, payload);
				assert_false(SIDE->open);
				iw_event(SIDE, HDL_EVENT_QP_ACCESS_ERR, rows[of].detail);
				expect_quote(what == 0 ? rows[of].write : rows[of].request, header,
				             bytes);
				assert_memory_equal(SIDE->mem, shadow, IW_BYTES);
				tag_end(&tag);
				iw_close(&rig);
			}
}

/* --- damage --- */

enum damaged_kind {
	DAMAGED_SEND,
	DAMAGED_INVALIDATE,
	DAMAGED_WRITE,
	DAMAGED_READ_REQUEST,
	DAMAGED_ATOMIC,
	DAMAGED_RESPONSE,
	DAMAGED_IMMEDIATE,
	DAMAGED_TERMINATE,
	DAMAGED_COUNT
};

#define SINK_AT    8192u /* where a read of ours puts what it gets */
#define SINK_BYTES 40u

/* One segment of the kind, which would be accepted. */
static size_t damaged_fpdu(enum damaged_kind kind)
{
	struct rdmap_segment s = {.opcode = RDMAP_SEND, .last = true, .msn = 1};
	uint32_t payload = 0;
	switch (kind) {
	case DAMAGED_SEND:
		payload = SINK_BYTES;
		break;
	case DAMAGED_INVALIDATE:
		s.opcode = RDMAP_SEND_INVALIDATE;
		s.invalidate_stag = iw_key(SIDE).v;
		break;
	case DAMAGED_WRITE:
		s = tagged(0, iw_key(SIDE));
		payload = SINK_BYTES;
		break;
	case DAMAGED_READ_REQUEST:
		s = tagged(1, iw_key(SIDE));
		break;
	case DAMAGED_ATOMIC:
		s = tagged(2, iw_key(SIDE));
		s.u.atomic.data = 1;
		break;
	case DAMAGED_RESPONSE:
		iw_rdma(SIDE, 2, HDL_OP_READ, SINK_AT, SINK_BYTES, 0x1000,
		        (struct hdl_key){IW_PEER_KEY});
		assert_true(iw_look(&rig, &got));
		s = (struct rdmap_segment){.opcode = RDMAP_READ_RESPONSE,
		                           .last = true,
		                           .stag = got.s.u.read.sink_stag,
		                           .to = got.s.u.read.sink_to};
		payload = SINK_BYTES;
		break;
	case DAMAGED_IMMEDIATE:
		s.opcode = RDMAP_IMMEDIATE;
		break;
	default:
		s.opcode = RDMAP_TERMINATE;
	}
	return iw_fpdu(&rig, &s, data, payload, fpdu);
}

/* What the peer was granted, a receive or the sink of a read, may hold anything: with another
 * length or opcode a segment may go there. The rest is as it was, and nothing has taken effect. */
static void damaged_expect(enum damaged_kind kind)
{
	memcpy(shadow, SIDE->mem, RECEIVE_BYTES);
	if (kind == DAMAGED_RESPONSE)
		memcpy(shadow + SINK_AT, SIDE->mem + SINK_AT, SINK_BYTES);
	assert_memory_equal(SIDE->mem, shadow, IW_BYTES);
	iw_completion(SIDE->rcq, 1, HDL_WC_WR_FLUSH_ERR);
	if (kind == DAMAGED_RESPONSE)
		iw_completion(SIDE->scq, 2, HDL_WC_WR_FLUSH_ERR);
	iw_no_completion(SIDE->scq);
	do
		assert_true(iw_look(&rig, &got));
	while (got.s.opcode != RDMAP_TERMINATE);
	const struct rdmap_terminate *t = &got.s.u.terminate;
	enum rdmap_error error = rdmap_error_find(t->layer, t->etype, t->code);
	assert_true(error == RDMAP_ERROR_MPA_CRC ||
	            (rig.sides[0].iwarp.terms.markers_in && error == RDMAP_ERROR_MPA_MARKER));
	assert_null(t->ddp_header); /* nothing of it is to be believed */
	assert_int_equal(iw_state(SIDE), HDL_QPS_ERR);
}

static void rfc5044_8_any_octet_of_any_segment_damaged(void **state)
{
	static const uint8_t zeros[70000];
	(void)state;
	for (unsigned markers = 0; markers < 2; markers++)
		for (unsigned kind = 0; kind < DAMAGED_COUNT; kind++)
			for (size_t at = 0, bytes = 1; at < bytes; at++) {
				unsigned way = (unsigned)(at + kind) % WAYS;
				struct iwarp_terms terms = checked;
				terms.markers_in = markers;
				open_way(way, &terms);
				iw_recv(SIDE, 1, 0, RECEIVE_BYTES);
				bytes = damaged_fpdu((enum damaged_kind)kind);
				fpdu[at] ^= (uint8_t)(1u << (at + kind) % 8);
				put_way(way, fpdu, bytes);
				iw_put_bytes(&rig, zeros, sizeof(zeros), 0); /* if longer now */
				damaged_expect((enum damaged_kind)kind);
				iw_close(&rig);
			}
}

/* A marker that points elsewhere, under a CRC that is right. */
static void rfc5044_8_a_marker_that_is_wrong(void **state)
{
	(void)state;
	for (unsigned way = 0; way < WAYS; way++) {
		struct iwarp_terms terms = {.markers_in = true};
		open_way(way, &terms);
		iw_recv(SIDE, 1, 0, 2000);
		struct rdmap_segment s = {.opcode = RDMAP_SEND, .last = true, .msn = 1};
		size_t bytes = iw_fpdu(&rig, &s, data, 1000, fpdu);
		/* The first marker is at the very beginning, the next one 512 octets behind. */
		fpdu[512 + 3] ^= 4;
		put_way(way, fpdu, bytes);
		assert_false(SIDE->open);
		iw_expect_terminate(&rig, RDMAP_ERROR_MPA_MARKER);
		iw_completion(SIDE->rcq, 1, HDL_WC_WR_FLUSH_ERR);
		iw_close(&rig);
	}
}

/* --- Terminates --- */

/* Every combination of its flags, cut off anywhere, with what it quotes full of ones: the
 * connection ends, and the open read gets an end. A Terminate that is too short is refused as
 * others are. */
static void rfc5040_4_8_terminates_of_any_shape(void **state)
{
	(void)state;
	for (unsigned flags = 0; flags < 8; flags++)
		for (size_t bytes = 0; bytes < RDMAP_TERMINATE_MAX_BYTES + 4; bytes++) {
			unsigned way = (unsigned)(bytes + flags) % WAYS;
			uint8_t ulpdu[DDP_UNTAGGED_BYTES + RDMAP_TERMINATE_MAX_BYTES + 4];
			struct rdmap_segment s = {.opcode = RDMAP_TERMINATE, .msn = 1};
			open_way(way, &checked);
			iw_rdma(SIDE, 1, HDL_OP_READ, 0, 50, 0x1000, (struct hdl_key){IW_PEER_KEY});
			assert_true(iw_look(&rig, &got));
			memset(ulpdu, 0xff, sizeof(ulpdu));
			rdmap_encode(&s, ulpdu, sizeof(ulpdu));
			memset(ulpdu + DDP_UNTAGGED_BYTES, 0xff,
			       sizeof(ulpdu) - DDP_UNTAGGED_BYTES);
			ulpdu[DDP_UNTAGGED_BYTES + 2] = (uint8_t)(flags << 5);
			struct mpa_piece piece = {ulpdu, DDP_UNTAGGED_BYTES + bytes};
			put_way(way, fpdu,
			        mpa_fpdu_encode(&SIDE->sender, &piece, 1, fpdu, sizeof(fpdu)));
			assert_false(SIDE->open);
			assert_int_equal(iw_state(SIDE), HDL_QPS_ERR);
			assert_int_equal(iwarp_ending(&SIDE->iwarp), IWARP_FIN);
			iw_completion(SIDE->scq, 1, HDL_WC_WR_FLUSH_ERR);
			assert_memory_equal(SIDE->mem, shadow, IW_BYTES);
			iw_close(&rig);
		}
}

/* --- messages without end --- */

/* Segments without bytes keep a message open, but take nothing and lead nowhere. */
static void rfc5041_5_segments_without_bytes(void **state)
{
	(void)state;
	for (unsigned way = 0; way < WAYS; way++) {
		struct rdmap_segment s = {.opcode = RDMAP_SEND, .msn = 1};
		open_way(way, &checked);
		iw_recv(SIDE, 1, 0, RECEIVE_BYTES);
		for (unsigned i = 0; i < 1000; i++)
			put_segment(way, &s, 0);
		iw_no_completion(SIDE->rcq);
		s.last = true;
		put_segment(way, &s, 8);
		assert_int_equal(iw_completion(SIDE->rcq, 1, HDL_WC_SUCCESS).byte_len, 8);
		iw_close(&rig);
	}
}

/* A read of as much as can be said, of memory that is much shorter. */
static void rfc5040_7_a_read_of_everything(void **state)
{
	static const uint32_t lengths[] = {IW_BYTES + 1, 0x7fffffff, 0x80000000, UINT32_MAX};
	(void)state;
	for (size_t i = 0; i < IW_COUNT(lengths); i++) {
		struct rdmap_segment s;
		open_way(0, &checked);
		s = tagged(1, iw_key(SIDE));
		s.u.read.bytes = lengths[i];
		put_segment(0, &s, 0);
		iw_event(SIDE, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_BOUNDS);
		iw_expect_terminate(&rig, RDMAP_ERROR_RDMAP_BOUNDS);
		iw_close(&rig);
	}
}

int main(void)
{
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 11 + i / 256 + 1);
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc5041_5_message_numbers),
	        cmocka_unit_test(rfc5040_4_headers_of_a_wrong_length),
	        cmocka_unit_test(rfc5040_7_tags_of_others),
	        cmocka_unit_test(rfc5044_8_any_octet_of_any_segment_damaged),
	        cmocka_unit_test(rfc5044_8_a_marker_that_is_wrong),
	        cmocka_unit_test(rfc5040_4_8_terminates_of_any_shape),
	        cmocka_unit_test(rfc5041_5_segments_without_bytes),
	        cmocka_unit_test(rfc5040_7_a_read_of_everything),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
