/* DDP and RDMAP headers: RFC 5041 section 4, RFC 5040 section 4, RFC 7306 sections 5 and 6. */
#include "wire/rdmap.h"
#include "base/prng.h"
#include "iwarp_octets.h"
#include "wire/be.h"
#include "wire/rdmap_terminate.h"

/* RFC 5040 figure 4 and RFC 7306 figure 2, written down once more: opcode, T, queue, header,
 * payload. */
static const struct {
	int opcode;
	bool tagged;
	uint32_t queue;
	size_t header_bytes;
	bool payload;
} figure[] = {
        {0x0, true, 0, 0, true},   {0x1, false, 1, 28, false}, {0x2, true, 0, 0, true},
        {0x3, false, 0, 0, true},  {0x4, false, 0, 0, true},   {0x5, false, 0, 0, true},
        {0x6, false, 0, 0, true},  {0x7, false, 2, 4, false},  {0x8, false, 0, 8, false},
        {0x9, false, 0, 8, false}, {0xa, false, 1, 52, false}, {0xb, false, 3, 12, false},
};

/* Each message as the figures of the RFCs lay it out; the first five are what Linux 6.1 siw sent or
 * took. */
static const struct {
	const char *what;
	const char *hex;
	struct rdmap_segment s;
	size_t payload_bytes;
} known[] = {
        {"Read Request from siw",
         "4141 00000000 00000001 00000001 00000000 5ac26400 000000552aab8000 00000064 00001234 "
         "0000000000001000",
         {.opcode = RDMAP_READ_REQUEST,
          .last = true,
          .msn = 1,
          .u.read = {0x5ac26400, 0x552aab8000, 100, 0x1234, 0x1000}},
         0},
        {"Write from siw",
         "c140 00001234 0000000000002000 68686868",
         {.opcode = RDMAP_WRITE, .last = true, .stag = 0x1234, .to = 0x2000},
         4},
        {"Read Response taken by siw",
         "c142 5ac26400 000000552aab8000 6868",
         {.opcode = RDMAP_READ_RESPONSE, .last = true, .stag = 0x5ac26400, .to = 0x552aab8000},
         2},
        {"Send from siw",
         "4143 00000000 00000000 00000001 00000000 00000000000000000000000000000000",
         {.opcode = RDMAP_SEND, .last = true, .msn = 1},
         16},
        {"zero-length Write taken by siw",
         "c140 00000001 0000000000000000",
         {.opcode = RDMAP_WRITE, .last = true, .stag = 1},
         0},
        {"Send, not the last segment",
         "0143 00000000 00000000 00000007 00000400 01",
         {.opcode = RDMAP_SEND, .msn = 7, .mo = 1024},
         1},
        {"Send with Invalidate",
         "4144 8badf00d 00000000 00000002 00000000",
         {.opcode = RDMAP_SEND_INVALIDATE, .last = true, .msn = 2, .invalidate_stag = 0x8badf00d},
         0},
        {"Send with Solicited Event",
         "4145 00000000 00000000 00000003 00000000",
         {.opcode = RDMAP_SEND_SE, .last = true, .msn = 3},
         0},
        {"Send with SE and Invalidate",
         "4146 8badf00d 00000000 00000004 00000000",
         {.opcode = RDMAP_SEND_SE_INVALIDATE,
          .last = true,
          .msn = 4,
          .invalidate_stag = 0x8badf00d},
         0},
        {"Terminate",
         "4147 00000000 00000002 00000001 00000000 2002 0000",
         {.opcode = RDMAP_TERMINATE,
          .last = true,
          .msn = 1,
          .u.terminate = {.layer = 2, .code = 2}},
         0},
        {"Immediate Data",
         "4148 00000000 00000000 00000005 00000000 0011223344556677",
         {.opcode = RDMAP_IMMEDIATE, .last = true, .msn = 5, .u.immediate = 0x0011223344556677},
         0},
        {"Immediate Data with SE",
         "4149 00000000 00000000 00000006 00000000 ffffffffffffffff",
         {.opcode = RDMAP_IMMEDIATE_SE, .last = true, .msn = 6, .u.immediate = UINT64_MAX},
         0},
        {"Atomic Request: FetchAdd",
         "414a 00000000 00000001 00000002 00000000 00000000 00000011 00000022 0000000000000033 "
         "0000000000000044 0000000000000055 0000000000000000 0000000000000000",
         {.opcode = RDMAP_ATOMIC_REQUEST,
          .last = true,
          .msn = 2,
          .u.atomic = {RDMAP_FETCH_ADD, 0x11, 0x22, 0x33, 0x44, 0x55, 0, 0}},
         0},
        {"Atomic Request: Swap",
         "414a 00000000 00000001 00000003 00000000 00000001 00000011 00000022 0000000000000033 "
         "0000000000000044 0000000000000055 0000000000000000 0000000000000000",
         {.opcode = RDMAP_ATOMIC_REQUEST,
          .last = true,
          .msn = 3,
          .u.atomic = {RDMAP_SWAP, 0x11, 0x22, 0x33, 0x44, 0x55, 0, 0}},
         0},
        {"Atomic Request: CmpSwap",
         "414a 00000000 00000001 00000004 00000000 00000002 00000011 00000022 0000000000000033 "
         "0000000000000044 0000000000000055 0000000000000066 0000000000000077",
         {.opcode = RDMAP_ATOMIC_REQUEST,
          .last = true,
          .msn = 4,
          .u.atomic = {RDMAP_COMPARE_SWAP, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77}},
         0},
        {"Atomic Response",
         "414b 00000000 00000003 00000001 00000000 00000011 0000000000000099",
         {.opcode = RDMAP_ATOMIC_RESPONSE,
          .last = true,
          .msn = 1,
          .u.atomic_response = {0x11, 0x99}},
         0},
};

static void assert_same_body(const struct rdmap_segment *a, const struct rdmap_segment *b)
{
	switch (a->opcode) {
	case RDMAP_READ_REQUEST:
		assert_int_equal(a->u.read.sink_stag, b->u.read.sink_stag);
		assert_int_equal(a->u.read.sink_to, b->u.read.sink_to);
		assert_int_equal(a->u.read.bytes, b->u.read.bytes);
		assert_int_equal(a->u.read.source_stag, b->u.read.source_stag);
		assert_int_equal(a->u.read.source_to, b->u.read.source_to);
		break;
	case RDMAP_IMMEDIATE:
	case RDMAP_IMMEDIATE_SE:
		assert_int_equal(a->u.immediate, b->u.immediate);
		break;
	case RDMAP_ATOMIC_REQUEST:
		assert_int_equal(a->u.atomic.operation, b->u.atomic.operation);
		assert_int_equal(a->u.atomic.id, b->u.atomic.id);
		assert_int_equal(a->u.atomic.stag, b->u.atomic.stag);
		assert_int_equal(a->u.atomic.to, b->u.atomic.to);
		assert_int_equal(a->u.atomic.data, b->u.atomic.data);
		assert_int_equal(a->u.atomic.mask, b->u.atomic.mask);
		assert_int_equal(a->u.atomic.compare, b->u.atomic.compare);
		assert_int_equal(a->u.atomic.compare_mask, b->u.atomic.compare_mask);
		break;
	case RDMAP_ATOMIC_RESPONSE:
		assert_int_equal(a->u.atomic_response.id, b->u.atomic_response.id);
		assert_int_equal(a->u.atomic_response.original, b->u.atomic_response.original);
		break;
	case RDMAP_TERMINATE:
		assert_int_equal(a->u.terminate.layer, b->u.terminate.layer);
		assert_int_equal(a->u.terminate.etype, b->u.terminate.etype);
		assert_int_equal(a->u.terminate.code, b->u.terminate.code);
		break;
	default:
		break;
	}
}

static void assert_same(const struct rdmap_segment *a, const struct rdmap_segment *b)
{
	assert_int_equal(a->opcode, b->opcode);
	assert_int_equal(a->last, b->last);
	assert_int_equal(a->stag, b->stag);
	assert_int_equal(a->to, b->to);
	assert_int_equal(a->msn, b->msn);
	assert_int_equal(a->mo, b->mo);
	assert_int_equal(a->invalidate_stag, b->invalidate_stag);
	assert_same_body(a, b);
}

static void rfc5040_figure_4_and_rfc7306_figure_2(void **state)
{
	(void)state;
	assert_int_equal(RDMAP_OPCODE_COUNT, ARRAY_COUNT(figure));
	for (size_t i = 0; i < ARRAY_COUNT(figure); i++) {
		const struct rdmap_operation *op = &rdmap_operations[figure[i].opcode];
		assert_non_null(op->name);
		assert_int_equal(op->tagged, figure[i].tagged);
		assert_int_equal(op->queue, figure[i].queue);
		assert_int_equal(op->header_bytes, figure[i].header_bytes);
		assert_int_equal(op->payload, figure[i].payload);
	}
}

static void known_segments_both_ways(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
		print_message("%s\n", known[i].what);
		uint8_t wire[128];
		uint8_t out[RDMAP_MAX_HEADER_BYTES];
		size_t bytes = octets(known[i].hex, wire);
		size_t header_bytes = bytes - known[i].payload_bytes;
		assert_int_equal(rdmap_encode(&known[i].s, out, sizeof(out)), header_bytes);
		assert_memory_equal(out, wire, header_bytes);
		for (size_t room = 0; room < header_bytes; room++)
			assert_int_equal(rdmap_encode(&known[i].s, out, room), 0);
		struct rdmap_segment s;
		assert_int_equal(rdmap_parse(wire, bytes, &s), RDMAP_OK);
		assert_same(&s, &known[i].s);
		assert_int_equal(s.payload_bytes, known[i].payload_bytes);
		if (s.payload_bytes > 0)
			assert_ptr_equal(s.payload, wire + header_bytes);
	}
}

static void rfc5040_every_truncation(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
		uint8_t wire[128];
		size_t bytes = octets(known[i].hex, wire);
		size_t ddp_bytes = ddp_header_bytes(rdmap_operations[known[i].s.opcode].tagged);
		size_t header_bytes = bytes - known[i].payload_bytes;
		for (size_t cut = 0; cut < header_bytes; cut++) {
			uint8_t *in = exact_copy(wire, cut);
			struct rdmap_segment s;
			assert_int_equal(rdmap_parse(in, cut, &s),
			                 cut < ddp_bytes ? RDMAP_DDP_SHORT : RDMAP_SHORT);
			free(in);
		}
	}
}

/* T, every queue, every RDMAP version and every opcode against each other. */
static void rfc5040_4_1_which_opcode_belongs_where(void **state)
{
	(void)state;
	for (unsigned opcode = 0; opcode < 16; opcode++) {
		for (unsigned version = 0; version < 4; version++) {
			for (uint32_t where = 0; where <= 6; where++) {
				bool tagged = where == 6;
				uint32_t queue = where == 5 ? UINT32_MAX : where;
				struct ddp_header h = {.tagged = tagged,
				                       .last = true,
				                       .ulp_control =
				                               (uint8_t)(version << 6 | opcode),
				                       .qn = queue};
				uint8_t wire[128] = {0};
				size_t bytes = ddp_encode(&h, wire, sizeof(wire));
				enum rdmap_verdict want = RDMAP_OK;
				if (!tagged && queue > 3)
					want = RDMAP_BAD_QUEUE;
				else if (version != 1)
					want = RDMAP_BAD_VERSION;
				else if (opcode >= ARRAY_COUNT(figure) ||
				         figure[opcode].tagged != tagged ||
				         (!tagged && figure[opcode].queue != queue))
					want = RDMAP_BAD_OPCODE;
				else
					bytes += figure[opcode].header_bytes;
				struct rdmap_segment s;
				assert_int_equal(rdmap_parse(wire, bytes, &s), want);
			}
		}
	}
}

static const struct {
	const char *clause;
	const char *hex;
	enum rdmap_verdict verdict;
} verdicts[] = {
        {"nothing", "", RDMAP_DDP_SHORT},
        {"RFC 5041 4.1: DV 0, tagged", "c040", RDMAP_DDP_VERSION_TAGGED},
        {"RFC 5041 4.1: DV 2, tagged", "c240 00000001 0000000000000000", RDMAP_DDP_VERSION_TAGGED},
        {"RFC 5041 4.1: DV 3, untagged", "43", RDMAP_DDP_VERSION_UNTAGGED},
        {"RFC 5041 4.1: reserved bits not looked at", "fd40 00000001 0000000000000000", RDMAP_OK},
        {"RFC 5040 4.1: reserved bits not looked at", "c170 00000001 0000000000000000", RDMAP_OK},
        {"RFC 5040 4.3: reserved word not looked at", "4143 deadbeef 00000000 00000001 00000000",
         RDMAP_OK},
        {"RFC 5041 7: the last octet of all", "c140 00000001 ffffffffffffffff aa", RDMAP_OK},
        {"RFC 5041 7: TO wraps", "c140 00000001 ffffffffffffffff aabb", RDMAP_DDP_TO_WRAP},
        {"RFC 5041 7: TO of nothing", "c140 00000001 ffffffffffffffff", RDMAP_OK},
        {"RFC 5041 5.2: the longest message", "4143 00000000 00000000 00000001 fffffffe aa",
         RDMAP_OK},
        {"RFC 5041 5.2: longer", "4143 00000000 00000000 00000001 ffffffff aa", RDMAP_DDP_TOO_LONG},
        {"RFC 5040 4.4: Read Request at an offset",
         "4141 00000000 00000001 00000001 00000004 00000000 0000000000000000 00000000 "
         "00000000 0000000000000000",
         RDMAP_BAD_OFFSET},
        {"RFC 5040 4.4: Read Request and more",
         "4141 00000000 00000001 00000001 00000000 00000000 0000000000000000 00000000 "
         "00000000 0000000000000000 00",
         RDMAP_TOO_LONG},
        {"RFC 5040 4.4: Read Request goes on",
         "0141 00000000 00000001 00000001 00000000 00000000 0000000000000000 00000000 "
         "00000000 0000000000000000",
         RDMAP_TOO_LONG},
        {"RFC 5040 7: Read Request up to the last octet",
         "4141 00000000 00000001 00000001 00000000 00000000 0000000000000000 00000010 "
         "00000000 fffffffffffffff0",
         RDMAP_OK},
        {"RFC 5040 7: Read Request wraps",
         "4141 00000000 00000001 00000001 00000000 00000000 0000000000000000 00000011 "
         "00000000 fffffffffffffff0",
         RDMAP_READ_WRAP},
        {"RFC 5040 7: Read Request of nothing",
         "4141 00000000 00000001 00000001 00000000 00000000 0000000000000000 00000000 "
         "00000000 ffffffffffffffff",
         RDMAP_OK},
        {"RFC 7306 6: Immediate Data is 8 octets",
         "4148 00000000 00000000 00000001 00000000 0000000000000000 00", RDMAP_TOO_LONG},
        {"RFC 7306 5: no atomic operation 3",
         "414a 00000000 00000001 00000001 00000000 00000003 00000000 00000000 "
         "0000000000000000 0000000000000000 0000000000000000 0000000000000000 "
         "0000000000000000",
         RDMAP_BAD_ATOMIC},
        {"RFC 7306 5: 28 reserved bits not looked at",
         "414a 00000000 00000001 00000001 00000000 fffffff0 00000000 00000000 "
         "0000000000000000 0000000000000000 0000000000000000 0000000000000000 "
         "0000000000000000",
         RDMAP_OK},
        {"RFC 7306 5: Atomic Response and more",
         "414b 00000000 00000003 00000001 00000000 00000000 0000000000000000 00", RDMAP_TOO_LONG},
};

static void rfc5041_and_rfc5040_7_verdicts(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(verdicts); i++) {
		print_message("%s\n", verdicts[i].clause);
		uint8_t wire[128];
		size_t bytes = octets(verdicts[i].hex, wire);
		uint8_t *in = exact_copy(wire, bytes);
		struct rdmap_segment s;
		assert_int_equal(rdmap_parse(in, bytes, &s), verdicts[i].verdict);
		free(in);
	}
}

static struct rdmap_segment random_segment(struct prng *prng)
{
	struct rdmap_segment s = {.opcode =
	                                  (enum rdmap_opcode)prng_below(prng, RDMAP_OPCODE_COUNT)};
	const struct rdmap_operation *op = &rdmap_operations[s.opcode];
	s.last = !op->payload || prng_chance(prng, 500);
	if (op->tagged) {
		s.stag = (uint32_t)prng_next(prng);
		s.to = prng_next(prng) >> 1;
	} else {
		s.msn = (uint32_t)prng_next(prng);
		s.mo = op->payload ? (uint32_t)prng_next(prng) >> 1 : 0;
	}
	if (op->invalidates)
		s.invalidate_stag = (uint32_t)prng_next(prng);
	if (s.opcode == RDMAP_TERMINATE) {
		const struct rdmap_error_entry *e =
		        &rdmap_errors[prng_below(prng, RDMAP_ERROR_COUNT)];
		s.u.terminate = (struct rdmap_terminate){
		        .layer = e->layer, .etype = e->etype, .code = e->code};
	} else {
		prng_fill(prng, &s.u, sizeof(s.u));
	}
	if (s.opcode == RDMAP_READ_REQUEST)
		s.u.read.source_to >>= 1;
	if (s.opcode == RDMAP_ATOMIC_REQUEST) {
		s.u.atomic.operation = (enum rdmap_atomic)prng_below(prng, RDMAP_ATOMIC_COUNT);
		if (s.u.atomic.operation != RDMAP_COMPARE_SWAP)
			s.u.atomic.compare = s.u.atomic.compare_mask = 0;
	}
	return s;
}

static void random_segments_both_ways(void **state)
{
	struct prng prng;
	(void)state;
	prng_seed(&prng, 3);
	for (int i = 0; i < 20000; i++) {
		struct rdmap_segment s = random_segment(&prng);
		size_t payload_bytes =
		        rdmap_operations[s.opcode].payload ? prng_below(&prng, 64) : 0;
		uint8_t wire[RDMAP_MAX_HEADER_BYTES + 64] = {0};
		size_t header_bytes = rdmap_encode(&s, wire, RDMAP_MAX_HEADER_BYTES);
		assert_true(header_bytes > 0);
		uint8_t *in = exact_copy(wire, header_bytes + payload_bytes);
		struct rdmap_segment got;
		assert_int_equal(rdmap_parse(in, header_bytes + payload_bytes, &got), RDMAP_OK);
		assert_same(&got, &s);
		assert_int_equal(got.payload_bytes, payload_bytes);
		free(in);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc5040_figure_4_and_rfc7306_figure_2),
	        cmocka_unit_test(known_segments_both_ways),
	        cmocka_unit_test(rfc5040_every_truncation),
	        cmocka_unit_test(rfc5040_4_1_which_opcode_belongs_where),
	        cmocka_unit_test(rfc5041_and_rfc5040_7_verdicts),
	        cmocka_unit_test(random_segments_both_ways),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
