/* Terminate and the errors of all layers: RFC 5040 section 4.8, the IANA registry of RFC 6580, RFC
 * 6581. */
#include "wire/rdmap_terminate.h"
#include "iwarp_octets.h"

/* The registry: layer/type/code. */
static const uint8_t registry[][3] = {
        {0, 0, 0x00}, {0, 1, 0x00}, {0, 1, 0x01}, {0, 1, 0x02}, {0, 1, 0x03}, {0, 1, 0x04},
        {0, 1, 0x09}, {0, 1, 0xff}, {0, 2, 0x05}, {0, 2, 0x06}, {0, 2, 0x07}, {0, 2, 0x08},
        {0, 2, 0x09}, {0, 2, 0xff}, {1, 0, 0x00}, {1, 1, 0x00}, {1, 1, 0x01}, {1, 1, 0x02},
        {1, 1, 0x03}, {1, 1, 0x04}, {1, 2, 0x01}, {1, 2, 0x02}, {1, 2, 0x03}, {1, 2, 0x04},
        {1, 2, 0x05}, {1, 2, 0x06}, {2, 0, 0x01}, {2, 0, 0x02}, {2, 0, 0x03}, {2, 0, 0x04},
        {2, 0, 0x05}, {2, 0, 0x06}, {2, 0, 0x07},
};

static void rfc6580_the_table_is_the_registry(void **state)
{
	(void)state;
	assert_int_equal(RDMAP_ERROR_COUNT, ARRAY_COUNT(registry));
	for (size_t i = 0; i < ARRAY_COUNT(registry); i++)
		assert_int_equal(rdmap_error_find(registry[i][0], registry[i][1], registry[i][2]),
		                 i);
	assert_int_equal(rdmap_error_find(0, 0, 0x77), RDMAP_ERROR_RDMAP_CATASTROPHIC);
	assert_int_equal(rdmap_error_find(0, 1, 0x05), RDMAP_ERROR_COUNT);
	assert_int_equal(rdmap_error_find(3, 0, 0), RDMAP_ERROR_COUNT);
	assert_int_equal(rdmap_error_find(2, 1, 1), RDMAP_ERROR_COUNT);
}

static void rfc5040_7_each_verdict_has_its_code(void **state)
{
	static const struct {
		enum rdmap_verdict verdict;
		uint8_t layer, etype, code;
	} segment[] = {
	        {RDMAP_DDP_SHORT, 1, 0, 0x00},
	        {RDMAP_DDP_VERSION_TAGGED, 1, 1, 0x04},
	        {RDMAP_DDP_VERSION_UNTAGGED, 1, 2, 0x06},
	        {RDMAP_DDP_TO_WRAP, 1, 1, 0x03},
	        {RDMAP_DDP_TOO_LONG, 1, 2, 0x05},
	        {RDMAP_BAD_QUEUE, 1, 2, 0x01},
	        {RDMAP_BAD_VERSION, 0, 2, 0x05},
	        {RDMAP_BAD_OPCODE, 0, 2, 0x06},
	        {RDMAP_BAD_OFFSET, 1, 2, 0x04},
	        {RDMAP_SHORT, 0, 2, 0xff},
	        {RDMAP_TOO_LONG, 1, 2, 0x05},
	        {RDMAP_READ_WRAP, 0, 1, 0x04},
	        {RDMAP_BAD_ATOMIC, 0, 2, 0x06},
	};
	(void)state;
	assert_int_equal(ARRAY_COUNT(segment), RDMAP_VERDICT_COUNT - 1);
	for (size_t i = 0; i < ARRAY_COUNT(segment); i++)
		assert_int_equal(
		        rdmap_error_of_segment(segment[i].verdict),
		        rdmap_error_find(segment[i].layer, segment[i].etype, segment[i].code));
	assert_int_equal(rdmap_error_of_stream(MPA_STREAM_BAD_CRC), rdmap_error_find(2, 0, 2));
	assert_int_equal(rdmap_error_of_stream(MPA_STREAM_BAD_MARKER), rdmap_error_find(2, 0, 3));
	assert_int_equal(rdmap_error_of_stream(MPA_STREAM_TOO_LONG), rdmap_error_find(2, 0, 3));
	assert_int_equal(rdmap_error_of_connect(MPA_CONNECT_BAD_KEY), rdmap_error_find(2, 0, 4));
	assert_int_equal(rdmap_error_of_connect(MPA_CONNECT_NOT_ENHANCED),
	                 rdmap_error_find(2, 0, 4));
	assert_int_equal(rdmap_error_of_connect(MPA_CONNECT_IRD_SHORT), rdmap_error_find(2, 0, 6));
	assert_int_equal(rdmap_error_of_connect(MPA_CONNECT_NO_RTR), rdmap_error_find(2, 0, 7));
	assert_int_equal(rdmap_error_of_connect(MPA_CONNECT_NO_PEER_TO_PEER),
	                 rdmap_error_find(2, 0, 7));
}

static const char *const segments[] = {
        "4141 00000000 00000001 00000009 00000000 00000001 0000000000000002 00000003 00000004 "
        "0000000000000005",
        "414a 00000000 00000001 00000002 00000000 00000002 00000011 00000022 0000000000000033 "
        "0000000000000044 0000000000000055 0000000000000066 0000000000000077",
        "c140 00001234 0000000000002000 68686868",
        "4143 00000000 00000000 00000001 00000000 0001",
};

static void assert_same(const struct rdmap_terminate *a, const struct rdmap_terminate *b)
{
	assert_int_equal(a->layer, b->layer);
	assert_int_equal(a->etype, b->etype);
	assert_int_equal(a->code, b->code);
	assert_int_equal(a->has_length, b->has_length);
	assert_int_equal(a->segment_bytes, b->segment_bytes);
	assert_int_equal(a->ddp_header_bytes, b->ddp_header_bytes);
	assert_int_equal(a->rdmap_header_bytes, b->rdmap_header_bytes);
	if (a->ddp_header_bytes > 0)
		assert_memory_equal(a->ddp_header, b->ddp_header, a->ddp_header_bytes);
	if (a->rdmap_header_bytes > 0)
		assert_memory_equal(a->rdmap_header, b->rdmap_header, a->rdmap_header_bytes);
}

static void rfc5040_4_8_every_error_about_every_segment(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(segments); i++) {
		uint8_t segment[128];
		size_t bytes = octets(segments[i], segment);
		size_t attachable = i == 0 ? 28 : i == 1 ? 52 : 0;
		for (unsigned e = 0; e < RDMAP_ERROR_COUNT; e++) {
			struct rdmap_terminate t;
			rdmap_terminate_make((enum rdmap_error)e, segment, bytes, &t);
			bool attached = rdmap_errors[e].attach != RDMAP_ATTACH_NONE;
			assert_int_equal(t.has_length, attached);
			assert_int_equal(t.segment_bytes, attached ? bytes : 0);
			assert_int_equal(t.ddp_header_bytes,
			                 attached ? ddp_header_bytes(i == 2) : 0);
			assert_int_equal(t.rdmap_header_bytes,
			                 rdmap_errors[e].attach == RDMAP_ATTACH_RDMAP ? attachable
			                                                              : 0);
			uint8_t out[RDMAP_TERMINATE_MAX_BYTES];
			size_t out_bytes = rdmap_terminate_encode(&t, out, sizeof(out));
			assert_int_equal(out_bytes, 4 + (attached ? 2u : 0u) + t.ddp_header_bytes +
			                                    t.rdmap_header_bytes);
			assert_int_equal(rdmap_terminate_encode(&t, out, out_bytes - 1), 0);
			struct rdmap_terminate got;
			uint8_t *in = exact_copy(out, out_bytes);
			assert_true(rdmap_terminate_decode(in, out_bytes, &got));
			assert_same(&got, &t);
			free(in);
		}
	}
}

static const struct {
	const char *clause;
	const char *hex;
	struct rdmap_terminate t; /* the headers by length alone */
} layouts[] = {
        {"CRC error: nothing attached", "2002 0000", {.layer = 2, .code = 2}},
        {"M, D",
         "1201 c000 0014 4143 00000000 00000007 00000001 00000000",
         {.layer = 1,
          .etype = 2,
          .code = 1,
          .has_length = true,
          .segment_bytes = 20,
          .ddp_header_bytes = 18}},
        {"M, D, R of a Read Request",
         "0101 e000 002e 4141 00000000 00000001 00000009 00000000 00000001 "
         "0000000000000002 00000003 00000004 0000000000000005",
         {.etype = 1,
          .code = 1,
          .has_length = true,
          .segment_bytes = 46,
          .ddp_header_bytes = 18,
          .rdmap_header_bytes = 28}},
        {"M alone",
         "1100 8000 0014",
         {.layer = 1, .etype = 1, .has_length = true, .segment_bytes = 20}},
        {"D alone: the length is there but not valid",
         "1100 4000 0014 c140 00001234 0000000000002000",
         {.layer = 1, .etype = 1, .ddp_header_bytes = 14}},
        {"R without D",
         "1100 a000 0014 00",
         {.layer = 1, .etype = 1, .has_length = true, .segment_bytes = 20}},
        /* What Linux 6.1 siw sent when given a bad CRC, a bad queue, a bad STag to write and one to
           read. */
        {"siw: CRC error", "0202 0000", {.layer = 2, .code = 2}},
        {"siw: invalid queue",
         "2101 0300 0010 4143 00000000 00000007 00000001 00000000",
         {.layer = 1,
          .etype = 2,
          .code = 1,
          .has_length = true,
          .segment_bytes = 16,
          .ddp_header_bytes = 18}},
        {"siw: invalid STag, DDP",
         "1100 0300 0010 c140 00007777 0000000000000010",
         {.layer = 1, .etype = 1, .has_length = true, .segment_bytes = 16, .ddp_header_bytes = 14}},
        {"siw: invalid STag, RDMAP",
         "1000 0700 0000 4141 00000000 00000001 00000003 00000000 00000001 "
         "0000000000000002 00000003 00005555 0000000000000006",
         {.etype = 1, .has_length = true, .ddp_header_bytes = 18, .rdmap_header_bytes = 28}},
};

static void rfc5040_4_8_layout(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(layouts); i++) {
		print_message("%s\n", layouts[i].clause);
		uint8_t wire[128];
		size_t bytes = octets(layouts[i].hex, wire);
		struct rdmap_terminate t;
		assert_true(rdmap_terminate_decode(wire, bytes, &t));
		struct rdmap_terminate want = layouts[i].t;
		want.ddp_header = want.ddp_header_bytes ? wire + 6 : NULL;
		want.rdmap_header = want.rdmap_header_bytes ? wire + 24 : NULL;
		assert_same(&t, &want);
		assert_ptr_equal(t.ddp_header, want.ddp_header);
		assert_ptr_equal(t.rdmap_header, want.rdmap_header);
		uint8_t out[RDMAP_TERMINATE_MAX_BYTES];
		size_t body_bytes = want.ddp_header_bytes + want.rdmap_header_bytes;
		assert_int_equal(rdmap_terminate_encode(&want, out, sizeof(out)),
		                 body_bytes + (want.has_length || body_bytes > 0 ? 6u : 4u));
		for (size_t cut = 0; cut < bytes; cut++) {
			uint8_t *in = exact_copy(wire, cut);
			assert_int_equal(rdmap_terminate_decode(in, cut, &t), cut >= 4);
			if (cut >= 4) {
				assert_int_equal(t.layer, want.layer);
				assert_int_equal(t.code, want.code);
				assert_int_equal(t.ddp_header_bytes,
				                 cut >= 6 + want.ddp_header_bytes
				                         ? want.ddp_header_bytes
				                         : 0);
			}
			free(in);
		}
	}
}

static void rfc5040_4_8_nothing_of_a_segment_that_is_none(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(segments); i++) {
		uint8_t segment[128];
		size_t bytes = octets(segments[i], segment);
		size_t ddp_bytes = ddp_header_bytes(i == 2);
		for (size_t cut = 0; cut <= bytes; cut++) {
			uint8_t *in = exact_copy(segment, cut);
			struct rdmap_terminate t;
			rdmap_terminate_make(RDMAP_ERROR_RDMAP_UNSPECIFIED, in, cut, &t);
			assert_int_equal(t.ddp_header != NULL, cut >= ddp_bytes);
			assert_int_equal(t.rdmap_header != NULL, i < 2 && cut == bytes);
			free(in);
		}
	}
	struct rdmap_terminate t;
	rdmap_terminate_make(RDMAP_ERROR_DDP_BOUNDS, NULL, 0, &t);
	assert_null(t.ddp_header);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc6580_the_table_is_the_registry),
	        cmocka_unit_test(rfc5040_7_each_verdict_has_its_code),
	        cmocka_unit_test(rfc5040_4_8_every_error_about_every_segment),
	        cmocka_unit_test(rfc5040_4_8_layout),
	        cmocka_unit_test(rfc5040_4_8_nothing_of_a_segment_that_is_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
