/* MPA Request and Reply frames: RFC 5044 section 7.1 and RFC 6581 section 9. */
#include "wire/mpa_connect.h"
#include "iwarp_octets.h"

#define REQ "4d504120494420526571204672616d65"
#define REP "4d504120494420526570204672616d65"

/* Frames that Linux 6.1 siw sent or accepted, and the one of iw_cxgb4 that is described in an issue
 * of softiwarp. */
static const struct {
	const char *what;
	const char *hex;
	struct mpa_connect c;
} known[] = {
        {"siw: its request",
         REQ "10020004 00010001",
         {.frame = MPA_REQUEST, .revision = 2, .enhanced = true, .ird = 1, .ord = 1}},
        {"siw: accepted request",
         REQ "50020004 8004c005",
         {.frame = MPA_REQUEST,
          .revision = 2,
          .crc = true,
          .enhanced = true,
          .peer_to_peer = true,
          .rtr = MPA_RTR_WRITE | MPA_RTR_READ,
          .ird = 4,
          .ord = 5}},
        {"siw: its reply",
         REP "50020004 80058004",
         {.frame = MPA_REPLY,
          .revision = 2,
          .crc = true,
          .enhanced = true,
          .peer_to_peer = true,
          .rtr = MPA_RTR_WRITE,
          .ird = 5,
          .ord = 4}},
        {"siw: revision 1", REP "40010000", {.frame = MPA_REPLY, .revision = 1, .crc = true}},
        {"cxgb4: read RTR",
         REQ "50020004 80204001",
         {.frame = MPA_REQUEST,
          .revision = 2,
          .crc = true,
          .enhanced = true,
          .peer_to_peer = true,
          .rtr = MPA_RTR_READ,
          .ird = 32,
          .ord = 1}},
        {"markers, reject, private data",
         REP "a0010003 616263",
         {.frame = MPA_REPLY,
          .revision = 1,
          .markers = true,
          .reject = true,
          .private_data = (const uint8_t *)"abc",
          .private_bytes = 3}},
        {"send RTR, depths left to the application",
         REQ "10020006 7fff3fff 7879",
         {.frame = MPA_REQUEST,
          .revision = 2,
          .enhanced = true,
          .rtr = MPA_RTR_SEND,
          .ird = 0x3fff,
          .ord = 0x3fff,
          .private_data = (const uint8_t *)"xy",
          .private_bytes = 2}},
};

static void assert_same(const struct mpa_connect *a, const struct mpa_connect *b)
{
	assert_int_equal(a->frame, b->frame);
	assert_int_equal(a->revision, b->revision);
	assert_int_equal(a->markers, b->markers);
	assert_int_equal(a->crc, b->crc);
	assert_int_equal(a->reject, b->reject);
	assert_int_equal(a->enhanced, b->enhanced);
	assert_int_equal(a->peer_to_peer, b->peer_to_peer);
	assert_int_equal(a->rtr, b->rtr);
	assert_int_equal(a->ird, b->ird);
	assert_int_equal(a->ord, b->ord);
	assert_int_equal(a->private_bytes, b->private_bytes);
	if (a->private_bytes > 0)
		assert_memory_equal(a->private_data, b->private_data, a->private_bytes);
}

static void known_frames_both_ways(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
		print_message("%s\n", known[i].what);
		uint8_t wire[64];
		uint8_t out[64];
		size_t bytes = octets(known[i].hex, wire);
		assert_int_equal(mpa_connect_encode(&known[i].c, out, sizeof(out)), bytes);
		assert_memory_equal(out, wire, bytes);
		assert_int_equal(mpa_connect_encode(&known[i].c, out, bytes - 1), 0);
		struct mpa_connect c;
		size_t used = 0;
		assert_int_equal(mpa_connect_decode(known[i].c.frame, wire, bytes, &c, &used),
		                 MPA_CONNECT_OK);
		assert_int_equal(used, bytes);
		assert_same(&c, &known[i].c);
	}
}

static void rfc5044_7_1_every_truncation_waits(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
		uint8_t wire[64];
		size_t bytes = octets(known[i].hex, wire);
		for (size_t cut = 0; cut < bytes; cut++) {
			uint8_t *in = exact_copy(wire, cut);
			struct mpa_connect c;
			size_t used;
			assert_int_equal(mpa_connect_decode(known[i].c.frame, in, cut, &c, &used),
			                 MPA_CONNECT_MORE);
			free(in);
		}
	}
}

static void rfc5044_7_1_verdicts(void **state)
{
	static const struct {
		const char *clause;
		enum mpa_frame due;
		const char *hex;
		enum mpa_connect_verdict verdict;
	} rows[] = {
	        {"key: the first octet is enough", MPA_REQUEST, "47", MPA_CONNECT_BAD_KEY},
	        {"key: the last octet counts", MPA_REQUEST, "4d504120494420526571204672616d64",
	         MPA_CONNECT_BAD_KEY},
	        {"key: two initiators", MPA_REPLY, REQ, MPA_CONNECT_CROSSED},
	        {"key: two responders", MPA_REQUEST, REP, MPA_CONNECT_CROSSED},
	        {"key: the other one, so far", MPA_REPLY, "4d50412049442052657120",
	         MPA_CONNECT_MORE},
	        {"Rev: 0", MPA_REQUEST, REQ "40000000", MPA_CONNECT_BAD_REVISION},
	        {"Rev: 3", MPA_REQUEST, REQ "4003", MPA_CONNECT_BAD_REVISION},
	        {"Rev: 3 in a reply", MPA_REPLY, REP "40030000", MPA_CONNECT_BAD_REVISION},
	        {"PD_Length: 512 is waited for", MPA_REQUEST, REQ "40010200", MPA_CONNECT_MORE},
	        {"PD_Length: 513", MPA_REQUEST, REQ "40010201", MPA_CONNECT_PRIVATE_TOO_LONG},
	        {"PD_Length: 65535", MPA_REPLY, REP "4001ffff", MPA_CONNECT_PRIVATE_TOO_LONG},
	        {"octets after a request", MPA_REQUEST, REQ "40010000 00", MPA_CONNECT_TRAILING},
	        {"octets after private data", MPA_REQUEST, REQ "40010001 0000",
	         MPA_CONNECT_TRAILING},
	        {"octets after a reply are the next thing", MPA_REPLY, REP "40010000 0002",
	         MPA_CONNECT_OK},
	        {"res: not looked at (siw)", MPA_REQUEST, REQ "4f010000", MPA_CONNECT_OK},
	        {"R in a request: not looked at", MPA_REQUEST, REQ "60010000", MPA_CONNECT_OK},
	        {"RFC 6581: S without room for IRD and ORD", MPA_REQUEST, REQ "50020003 000000",
	         MPA_CONNECT_ENHANCED_SHORT},
	        {"RFC 6581: S in revision 1 is reserved", MPA_REQUEST, REQ "50010000",
	         MPA_CONNECT_OK},
	        {"RFC 6581: revision 2 without S", MPA_REQUEST, REQ "40020000", MPA_CONNECT_OK},
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		print_message("%s\n", rows[i].clause);
		uint8_t wire[64];
		size_t bytes = octets(rows[i].hex, wire);
		uint8_t *in = exact_copy(wire, bytes);
		struct mpa_connect c = {0};
		size_t used = 0;
		assert_int_equal(mpa_connect_decode(rows[i].due, in, bytes, &c, &used),
		                 rows[i].verdict);
		if (rows[i].verdict == MPA_CONNECT_OK) {
			assert_int_equal(used, 20);
			assert_false(c.reject);
			assert_false(c.enhanced);
		}
		free(in);
	}
}

static void rfc5044_7_1_limits_of_the_sender(void **state)
{
	static const uint8_t data[MPA_MAX_PRIVATE_BYTES + 1];
	static const struct {
		const char *clause;
		struct mpa_connect c;
		size_t bytes;
	} rows[] = {
	        {"512 octets of private data", {.revision = 1, .private_bytes = 512}, 532},
	        {"513 octets", {.revision = 1, .private_bytes = 513}, 0},
	        {"508 beside IRD and ORD",
	         {.revision = 2, .enhanced = true, .private_bytes = 508},
	         532},
	        {"509 beside IRD and ORD",
	         {.revision = 2, .enhanced = true, .private_bytes = 509},
	         0},
	        {"revision 0", {.revision = 0}, 0},
	        {"revision 3", {.revision = 3}, 0},
	        {"S in revision 1", {.revision = 1, .enhanced = true}, 0},
	        {"IRD of 15 bits", {.revision = 2, .enhanced = true, .ird = 0x4000}, 0},
	        {"ORD of 15 bits", {.revision = 2, .enhanced = true, .ord = 0x4000}, 0},
	        {"R in a request", {.revision = 1, .reject = true}, 0},
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		print_message("%s\n", rows[i].clause);
		struct mpa_connect c = rows[i].c;
		c.private_data = data;
		uint8_t out[MPA_CONNECT_MAX_BYTES];
		assert_int_equal(mpa_connect_encode(&c, out, sizeof(out)), rows[i].bytes);
	}
}

static void rfc5044_7_1_markers_and_crc_as_agreed(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 16; bits++) {
		struct mpa_connect request = {
		        .frame = MPA_REQUEST, .revision = 1, .markers = bits & 1, .crc = bits & 2};
		struct mpa_offer offer = {
		        .markers = bits & 4, .crc = bits & 8, .max_ird = 3, .max_ord = 4};
		struct mpa_connect reply;
		struct mpa_agreement at_responder;
		struct mpa_agreement at_initiator;
		assert_int_equal(mpa_connect_answer(&request, &offer, &reply, &at_responder),
		                 MPA_CONNECT_OK);
		assert_int_equal(mpa_connect_judge(&request, &reply, &at_initiator),
		                 MPA_CONNECT_OK);
		assert_int_equal(at_responder.crc, (bits & 10) != 0);
		assert_int_equal(at_initiator.crc, (bits & 10) != 0);
		/* Who sets M gets markers, and only he. */
		assert_int_equal(at_responder.send_markers, (bits & 1) != 0);
		assert_int_equal(at_initiator.receive_markers, (bits & 1) != 0);
		assert_int_equal(at_responder.receive_markers, (bits & 4) != 0);
		assert_int_equal(at_initiator.send_markers, (bits & 4) != 0);
		assert_int_equal(at_responder.ird, 3);
		assert_int_equal(at_responder.ord, 4);
	}
}

static void rfc6581_9_answers(void **state)
{
	static const struct {
		const char *clause;
		uint16_t ird, ord, max_ird, max_ord; /* asked, offered */
		uint16_t reply_ird, reply_ord, here_ird, here_ord;
	} rows[] = {
	        {"enough of all", 4, 5, 16, 16, 5, 4, 5, 4},
	        {"the responder has less", 20, 30, 16, 8, 16, 8, 16, 8},
	        {"none wanted", 0, 0, 16, 16, 0, 0, 0, 0},
	        {"left to the application", 0x3fff, 0x3fff, 16, 8, 0x3fff, 0x3fff, 16, 8},
	        {"one left to the application", 0x3fff, 5, 16, 8, 5, 0x3fff, 5, 8},
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		print_message("%s\n", rows[i].clause);
		struct mpa_connect request = {.frame = MPA_REQUEST,
		                              .revision = 2,
		                              .enhanced = true,
		                              .ird = rows[i].ird,
		                              .ord = rows[i].ord};
		struct mpa_offer offer = {
		        .max_ird = rows[i].max_ird, .max_ord = rows[i].max_ord, .rtr = MPA_RTR_ALL};
		struct mpa_connect reply;
		struct mpa_agreement here;
		assert_int_equal(mpa_connect_answer(&request, &offer, &reply, &here),
		                 MPA_CONNECT_OK);
		assert_int_equal(reply.revision, 2);
		assert_true(reply.enhanced);
		assert_false(reply.peer_to_peer);
		assert_int_equal(reply.ird, rows[i].reply_ird);
		assert_int_equal(reply.ord, rows[i].reply_ord);
		assert_int_equal(here.ird, rows[i].here_ird);
		assert_int_equal(here.ord, rows[i].here_ord);
		struct mpa_agreement there;
		assert_int_equal(mpa_connect_judge(&request, &reply, &there), MPA_CONNECT_OK);
		if (rows[i].ird != 0x3fff && rows[i].ord != 0x3fff) {
			assert_int_equal(there.ird, here.ord);
			assert_int_equal(there.ord, here.ird);
		}
	}
}

static void rfc6581_9_2_ready_to_receive(void **state)
{
	(void)state;
	for (uint8_t asked = 0; asked <= MPA_RTR_ALL; asked++) {
		for (uint8_t offered = 0; offered <= MPA_RTR_ALL; offered++) {
			struct mpa_connect request = {.frame = MPA_REQUEST,
			                              .revision = 2,
			                              .enhanced = true,
			                              .peer_to_peer = true,
			                              .rtr = asked};
			struct mpa_offer offer = {.rtr = offered};
			struct mpa_connect reply;
			struct mpa_agreement here;
			struct mpa_agreement there;
			enum mpa_connect_verdict verdict =
			        mpa_connect_answer(&request, &offer, &reply, &here);
			assert_true(reply.peer_to_peer); /* A is answered with A */
			assert_int_equal(verdict,
			                 asked & offered ? MPA_CONNECT_OK : MPA_CONNECT_NO_RTR);
			assert_int_equal(reply.reject, (asked & offered) == 0);
			if (verdict == MPA_CONNECT_OK) {
				assert_int_equal(mpa_connect_judge(&request, &reply, &there),
				                 MPA_CONNECT_OK);
				assert_true(there.peer_to_peer && here.peer_to_peer);
				assert_int_equal(there.rtr, asked & offered);
				assert_int_equal(here.rtr, asked & offered);
			}
		}
	}
}

static const struct mpa_connect plain = {.frame = MPA_REQUEST, .revision = 1};
static const struct mpa_connect second = {.frame = MPA_REQUEST, .revision = 2};
static const struct mpa_connect enhanced = {
        .frame = MPA_REQUEST, .revision = 2, .enhanced = true, .ird = 4, .ord = 6};
static const struct mpa_connect peers = {.frame = MPA_REQUEST,
                                         .revision = 2,
                                         .enhanced = true,
                                         .peer_to_peer = true,
                                         .rtr = MPA_RTR_WRITE,
                                         .ird = 4,
                                         .ord = 6};
static const struct {
	const char *clause;
	const struct mpa_connect *request;
	struct mpa_connect reply;
	enum mpa_connect_verdict verdict;
	uint16_t ird, ord;
} judgements[] = {
        {"rejected", &plain, {.revision = 1, .reject = true}, MPA_CONNECT_REJECTED, 0, 0},
        {"a reply above its request", &plain, {.revision = 2}, MPA_CONNECT_BAD_REVISION, 0, 0},
        {"S where none was asked for",
         &second,
         {.revision = 2, .enhanced = true},
         MPA_CONNECT_UNASKED,
         0,
         0},
        {"no S where it was asked for", &enhanced, {.revision = 2}, MPA_CONNECT_NOT_ENHANCED, 0, 0},
        {"revision 1 where 2 was asked for",
         &enhanced,
         {.revision = 1},
         MPA_CONNECT_NOT_ENHANCED,
         0,
         0},
        {"ORD that fits",
         &enhanced,
         {.revision = 2, .enhanced = true, .ird = 6, .ord = 4},
         MPA_CONNECT_OK,
         4,
         6},
        {"ORD above our IRD",
         &enhanced,
         {.revision = 2, .enhanced = true, .ird = 6, .ord = 5},
         MPA_CONNECT_IRD_SHORT,
         0,
         0},
        {"IRD below our ORD: we send fewer",
         &enhanced,
         {.revision = 2, .enhanced = true, .ird = 2, .ord = 1},
         MPA_CONNECT_OK,
         1,
         2},
        {"ORD left to the application",
         &enhanced,
         {.revision = 2, .enhanced = true, .ird = 2, .ord = 0x3fff},
         MPA_CONNECT_OK,
         4,
         2},
        {"A where none was asked for",
         &enhanced,
         {.revision = 2, .enhanced = true, .peer_to_peer = true},
         MPA_CONNECT_UNASKED,
         0,
         0},
        {"no A where it was asked for",
         &peers,
         {.revision = 2, .enhanced = true, .rtr = MPA_RTR_WRITE},
         MPA_CONNECT_NO_PEER_TO_PEER,
         0,
         0},
        {"another RTR",
         &peers,
         {.revision = 2, .enhanced = true, .peer_to_peer = true, .rtr = MPA_RTR_READ},
         MPA_CONNECT_NO_RTR,
         0,
         0},
        {"our RTR",
         &peers,
         {.revision = 2, .enhanced = true, .peer_to_peer = true, .rtr = MPA_RTR_WRITE, .ird = 1},
         MPA_CONNECT_OK,
         0,
         1},
};

static void rfc6581_9_judgements(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(judgements); i++) {
		print_message("%s\n", judgements[i].clause);
		struct mpa_connect reply = judgements[i].reply;
		reply.frame = MPA_REPLY;
		struct mpa_agreement agreement;
		assert_int_equal(mpa_connect_judge(judgements[i].request, &reply, &agreement),
		                 judgements[i].verdict);
		if (judgements[i].verdict == MPA_CONNECT_OK) {
			assert_int_equal(agreement.ird, judgements[i].ird);
			assert_int_equal(agreement.ord, judgements[i].ord);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(known_frames_both_ways),
	        cmocka_unit_test(rfc5044_7_1_every_truncation_waits),
	        cmocka_unit_test(rfc5044_7_1_verdicts),
	        cmocka_unit_test(rfc5044_7_1_limits_of_the_sender),
	        cmocka_unit_test(rfc5044_7_1_markers_and_crc_as_agreed),
	        cmocka_unit_test(rfc6581_9_answers),
	        cmocka_unit_test(rfc6581_9_2_ready_to_receive),
	        cmocka_unit_test(rfc6581_9_judgements),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
