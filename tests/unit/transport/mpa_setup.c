/* Connection set-up of iWARP: RFC 5044 section 7.1 and RFC 6581, one row per behaviour. Every row
 * is fed in one piece, byte by byte, and cut in two at every place: the result is the same. */
#include "transport/iwarp/mpa_setup.h"

#include "iwarp_octets.h"

#define REQ      "4d504120494420526571204672616d65"
#define REP      "4d504120494420526570204672616d65"
#define DEADLINE 5000u

/* The initiator's Request in these tests: revision 2 with IRD 4 and ORD 5. */
static const struct mpa_wish plain = {.offer = {.crc = true, .max_ird = 4, .max_ord = 5},
                                      .revision = 2};
static const struct mpa_wish peers = {
        .offer = {.crc = true, .max_ird = 4, .max_ord = 5, .rtr = MPA_RTR_WRITE | MPA_RTR_READ},
        .revision = 2,
        .peer_to_peer = true};
static const struct mpa_wish old = {.offer = {.crc = true, .max_ird = 4, .max_ord = 5},
                                    .revision = 1};

struct row {
	const char *what;
	const struct mpa_wish *wish; /* NULL: responder */
	const char *hex;
	enum mpa_setup_state state;
	enum mpa_connect_verdict verdict;
};

static const struct row rows[] = {
        /* What a responder hears. */
        {"nothing", NULL, "", MPA_SETUP_REQUEST_DUE, 0},
        {"half a key", NULL, "4d504120494420", MPA_SETUP_REQUEST_DUE, 0},
        {"a request of revision 1", NULL, REQ "40010000", MPA_SETUP_ASKED, 0},
        {"of revision 2 with private data", NULL, REQ "50020007 80048005 616263", MPA_SETUP_ASKED,
         0},
        {"a reserved bit that siw sets", NULL, REQ "48010000", MPA_SETUP_ASKED, 0},
        {"PD_Length 512 without data", NULL, REQ "40010200", MPA_SETUP_REQUEST_DUE, 0},
        {"wrong from byte 1", NULL, "47", MPA_SETUP_FAILED, MPA_CONNECT_BAD_KEY},
        {"wrong in byte 2", NULL, "4d51", MPA_SETUP_FAILED, MPA_CONNECT_BAD_KEY},
        {"wrong in byte 12", NULL, "4d5041204944205265712047", MPA_SETUP_FAILED,
         MPA_CONNECT_BAD_KEY},
        {"wrong in byte 16", NULL, "4d504120494420526571204672616d66", MPA_SETUP_FAILED,
         MPA_CONNECT_BAD_KEY},
        {"HTTP", NULL, "474554202f20485454502f312e310d0a0d0a", MPA_SETUP_FAILED,
         MPA_CONNECT_BAD_KEY},
        {"a reply", NULL, REP "40010000", MPA_SETUP_FAILED, MPA_CONNECT_CROSSED},
        {"revision 0", NULL, REQ "40000000", MPA_SETUP_FAILED, MPA_CONNECT_BAD_REVISION},
        {"revision 3", NULL, REQ "40030000", MPA_SETUP_FAILED, MPA_CONNECT_BAD_REVISION},
        {"513 bytes of private data", NULL, REQ "40010201", MPA_SETUP_FAILED,
         MPA_CONNECT_PRIVATE_TOO_LONG},
        {"S without IRD", NULL, REQ "50020003 000000", MPA_SETUP_FAILED,
         MPA_CONNECT_ENHANCED_SHORT},
        {"data behind the request", NULL, REQ "40010000 00", MPA_SETUP_FAILED,
         MPA_CONNECT_TRAILING},

        /* What an initiator hears. */
        {"nothing yet", &plain, "", MPA_SETUP_REPLY_DUE, 0},
        {"accepted", &plain, REP "50020004 00050004", MPA_SETUP_AGREED, 0},
        {"an FPDU behind it", &plain, REP "50020004 00050004 001a", MPA_SETUP_AGREED, 0},
        {"accepted by revision 1", &old, REP "40010000", MPA_SETUP_AGREED, 0},
        {"peer to peer, a write", &peers, REP "50020004 80058004", MPA_SETUP_AGREED, 0},
        {"rejected", &plain, REP "70020006 00000000 6e6f", MPA_SETUP_REJECTED, 0},
        {"rejected by revision 1", &old, REP "60010002 6e6f", MPA_SETUP_REJECTED, 0},
        {"a request: both are initiators", &plain, REQ "40010000", MPA_SETUP_FAILED,
         MPA_CONNECT_CROSSED},
        {"no MPA", &plain, "535348", MPA_SETUP_FAILED, MPA_CONNECT_BAD_KEY},
        {"a reply of revision 0", &plain, REP "40000000", MPA_SETUP_FAILED,
         MPA_CONNECT_BAD_REVISION},
        {"of a higher revision", &old, REP "50020004 00050004", MPA_SETUP_FAILED,
         MPA_CONNECT_BAD_REVISION},
        {"of revision 1", &plain, REP "40010000", MPA_SETUP_FAILED, MPA_CONNECT_NOT_ENHANCED},
        {"513 bytes", &plain, REP "40020201", MPA_SETUP_FAILED, MPA_CONNECT_PRIVATE_TOO_LONG},
        {"more reads than we answer", &plain, REP "50020004 00050005", MPA_SETUP_FAILED,
         MPA_CONNECT_IRD_SHORT},
        {"peer to peer, unasked", &plain, REP "50020004 80058004", MPA_SETUP_FAILED,
         MPA_CONNECT_UNASKED},
        {"peer to peer, refused", &peers, REP "50020004 00050004", MPA_SETUP_FAILED,
         MPA_CONNECT_NO_PEER_TO_PEER},
        {"peer to peer, by a send only", &peers, REP "50020004 c0050004", MPA_SETUP_FAILED,
         MPA_CONNECT_NO_RTR},
};

static void begin(struct mpa_setup *setup, const struct mpa_wish *wish)
{
	uint8_t out[MPA_CONNECT_MAX_BYTES];
	if (wish == NULL) {
		mpa_setup_await(setup, DEADLINE);
		return;
	}
	assert_true(mpa_setup_request(setup, wish, NULL, 0, DEADLINE));
	assert_int_equal(stream_drain(&mpa_setup_stream, setup, out, sizeof(out)),
	                 wish->revision == 2 ? 24 : 20);
	assert_int_equal(stream_drain(&mpa_setup_stream, setup, out, sizeof(out)), 0);
}

/* @bytes in pieces of @first and then @rest at a time. */
static void feed(struct mpa_setup *setup, const uint8_t *bytes, size_t count, size_t first,
                 size_t rest)
{
	bool open = true;
	for (size_t at = 0; at < count && open;) {
		size_t piece = at == 0 ? first : rest;
		size_t part = piece < count - at ? piece : count - at;
		uint8_t *copy = exact_copy(bytes + at, part);
		size_t used = stream_feed(&mpa_setup_stream, setup, copy, part, &open);
		free(copy);
		at += used;
		if (used < part)
			break;
	}
}

static void expect_row(const struct row *row, const struct mpa_setup *setup)
{
	if (setup->state != row->state || (row->verdict != 0 && setup->verdict != row->verdict))
		fail_msg("%s: state %d, verdict %d", row->what, setup->state, setup->verdict);
	assert_int_equal(setup->why, row->state == MPA_SETUP_FAILED ? MPA_SETUP_BAD_FRAME
	                                                            : MPA_SETUP_NO_REASON);
	assert_true(strlen(mpa_setup_text(setup)) > 0);
	bool waits = row->state == MPA_SETUP_REQUEST_DUE || row->state == MPA_SETUP_REPLY_DUE;
	assert_int_equal(setup->deadline_ns, waits ? DEADLINE : 0);
}

static void rfc5044_7_1_what_a_peer_may_send(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		uint8_t bytes[64];
		size_t count = octets(rows[i].hex, bytes);
		struct mpa_setup setup;
		for (size_t first = 1; first <= count + 1; first++) {
			begin(&setup, rows[i].wish);
			feed(&setup, bytes, count, first, count);
			expect_row(&rows[i], &setup);
		}
		begin(&setup, rows[i].wish);
		feed(&setup, bytes, count, 1, 1);
		expect_row(&rows[i], &setup);
	}
}

/* Nobody waits for the rest of a key that is wrong: each of its bytes counts when it comes. */
static void rfc5044_7_1_a_key_that_is_wrong_in_any_byte(void **state)
{
	(void)state;
	for (unsigned responder = 0; responder < 2; responder++)
		for (size_t wrong = 0; wrong < MPA_KEY_BYTES; wrong++) {
			uint8_t key[64];
			struct mpa_setup setup;
			octets(responder ? REQ : REP, key);
			key[wrong] ^= 0x80;
			begin(&setup, responder ? NULL : &plain);
			feed(&setup, key, wrong, 1, 1);
			assert_false(mpa_setup_over(&setup));
			feed(&setup, key + wrong, 1, 1, 1);
			assert_int_equal(setup.state, MPA_SETUP_FAILED);
			assert_int_equal(setup.verdict, MPA_CONNECT_BAD_KEY);
		}
}

static void what_follows_a_reply_stays_in_the_stream(void **state)
{
	struct mpa_setup setup;
	uint8_t bytes[64];
	size_t count = octets(REP "50020004 00050004 001a0001", bytes);
	bool open;
	(void)state;
	begin(&setup, &plain);
	assert_int_equal(stream_feed(&mpa_setup_stream, &setup, bytes, count, &open), count - 4);
	assert_true(open);
	assert_int_equal(setup.agreement.ird, 4);
	assert_int_equal(setup.agreement.ord, 5);
	assert_true(setup.agreement.crc);
}

static void ready(struct mpa_setup *setup, const char *request)
{
	uint8_t bytes[64];
	size_t count = octets(request, bytes);
	mpa_setup_await(setup, DEADLINE);
	feed(setup, bytes, count, count, 1);
	assert_int_equal(setup->state, MPA_SETUP_ASKED);
}

static void expect_reply(struct mpa_setup *setup, const char *hex, enum mpa_setup_state end)
{
	uint8_t expected[64], out[MPA_CONNECT_MAX_BYTES];
	size_t count = octets(hex, expected);
	assert_int_equal(setup->state, MPA_SETUP_REPLYING);
	assert_int_equal(setup->deadline_ns, DEADLINE);
	/* Not over before its last byte is taken. */
	assert_int_equal(stream_drain(&mpa_setup_stream, setup, out, count - 1), count - 1);
	assert_int_equal(setup->state, MPA_SETUP_REPLYING);
	assert_int_equal(stream_drain(&mpa_setup_stream, setup, out + count - 1, 2), 1);
	assert_memory_equal(out, expected, count);
	assert_int_equal(setup->state, end);
}

static void a_responder_answers(void **state)
{
	const struct mpa_offer offer = {
	        .crc = true, .max_ird = 8, .max_ord = 2, .rtr = MPA_RTR_SEND};
	const struct mpa_offer no_crc = {.max_ird = 8, .max_ord = 2, .rtr = MPA_RTR_ALL};
	static const uint8_t no[] = {'n', 'o'};
	struct mpa_setup setup;
	(void)state;
	ready(&setup, REQ "10020004 00040005");
	assert_true(mpa_setup_accept(&setup, &offer, NULL, 0, DEADLINE));
	expect_reply(&setup, REP "50020004 00050002", MPA_SETUP_AGREED);
	assert_int_equal(setup.agreement.ird, 5);
	assert_int_equal(setup.agreement.ord, 2);
	/* The initiator asks for CRCs, so they are used. */
	ready(&setup, REQ "40010000");
	assert_true(mpa_setup_accept(&setup, &no_crc, no, 2, DEADLINE));
	expect_reply(&setup, REP "40010002 6e6f", MPA_SETUP_AGREED);
	assert_true(setup.agreement.crc);
	/* Nobody does. */
	ready(&setup, REQ "00010000");
	assert_true(mpa_setup_accept(&setup, &no_crc, NULL, 0, DEADLINE));
	expect_reply(&setup, REP "00010000", MPA_SETUP_AGREED);
	assert_false(setup.agreement.crc);
	/* A write is the only RTR that the initiator knows, and the responder knows a send. */
	ready(&setup, REQ "50020004 80048005");
	assert_true(mpa_setup_accept(&setup, &offer, NULL, 0, DEADLINE));
	assert_int_equal(setup.verdict, MPA_CONNECT_NO_RTR);
	expect_reply(&setup, REP "70020004 80050002", MPA_SETUP_REJECTED);
	ready(&setup, REQ "40010000");
	assert_true(mpa_setup_reject(&setup, no, 2, DEADLINE));
	expect_reply(&setup, REP "60010002 6e6f", MPA_SETUP_REJECTED);
}

static void private_data_is_bounded(void **state)
{
	static const uint8_t data[MPA_MAX_PRIVATE_BYTES + 1];
	const struct mpa_offer offer = {.crc = true};
	struct mpa_setup setup;
	(void)state;
	assert_true(mpa_setup_request(&setup, &old, data, 512, DEADLINE));
	assert_false(mpa_setup_request(&setup, &old, data, 513, DEADLINE));
	assert_true(mpa_setup_request(&setup, &plain, data, 508, DEADLINE));
	assert_false(mpa_setup_request(&setup, &plain, data, 509, DEADLINE));
	ready(&setup, REQ "50020004 00040005");
	assert_false(mpa_setup_accept(&setup, &offer, data, 509, DEADLINE));
	assert_int_equal(setup.state, MPA_SETUP_ASKED);
	assert_false(mpa_setup_reject(&setup, data, 509, DEADLINE));
	assert_int_equal(setup.state, MPA_SETUP_ASKED);
	assert_true(mpa_setup_accept(&setup, &offer, data, 508, DEADLINE));
}

static void silence_ends_at_the_deadline(void **state)
{
	const struct mpa_offer offer = {.crc = true};
	struct mpa_setup setup;
	struct stream_run runs[1];
	(void)state;
	for (unsigned responder = 0; responder < 2; responder++) {
		begin(&setup, responder ? NULL : &plain);
		mpa_setup_expire(&setup, DEADLINE - 1);
		assert_false(mpa_setup_over(&setup));
		mpa_setup_expire(&setup, DEADLINE);
		assert_int_equal(setup.state, MPA_SETUP_FAILED);
		assert_int_equal(setup.why, MPA_SETUP_TIMEOUT);
		assert_int_equal(mpa_setup_stream.want(&setup, runs, 1), 0);
	}
	/* The program may take its time, the peer that does not take the Reply may not. */
	ready(&setup, REQ "40010000");
	mpa_setup_expire(&setup, UINT64_MAX);
	assert_int_equal(setup.state, MPA_SETUP_ASKED);
	assert_true(mpa_setup_accept(&setup, &offer, NULL, 0, DEADLINE));
	mpa_setup_expire(&setup, DEADLINE);
	assert_int_equal(setup.why, MPA_SETUP_TIMEOUT);
	assert_int_equal(mpa_setup_stream.offer(&setup, runs, 1), 0);
}

static void the_end_of_the_stream(void **state)
{
	static const struct {
		enum stream_end end;
		enum mpa_setup_why why;
	} ends[] = {{STREAM_CLOSED, MPA_SETUP_CLOSED}, {STREAM_BROKEN, MPA_SETUP_BROKEN}};
	struct mpa_setup setup;
	uint8_t bytes[64];
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(ends); i++) {
		begin(&setup, &plain);
		mpa_setup_stream.ended(&setup, ends[i].end);
		assert_int_equal(setup.state, MPA_SETUP_FAILED);
		assert_int_equal(setup.why, ends[i].why);
		ready(&setup, REQ "40010000"); /* the initiator has given up */
		mpa_setup_stream.ended(&setup, ends[i].end);
		assert_int_equal(setup.why, ends[i].why);
		/* What was agreed stays agreed: the engine deals with the end. */
		begin(&setup, &plain);
		feed(&setup, bytes, octets(REP "50020004 00050004", bytes), 64, 1);
		mpa_setup_stream.ended(&setup, ends[i].end);
		assert_int_equal(setup.state, MPA_SETUP_AGREED);
	}
}

static void a_reply_before_the_request_is_sent(void **state)
{
	struct mpa_setup setup;
	uint8_t bytes[64];
	(void)state;
	assert_true(mpa_setup_request(&setup, &plain, NULL, 0, DEADLINE));
	feed(&setup, bytes, octets(REP "50020004 00050004", bytes), 64, 1);
	assert_int_equal(setup.state, MPA_SETUP_FAILED);
	assert_int_equal(setup.verdict, MPA_CONNECT_UNASKED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc5044_7_1_what_a_peer_may_send),
	        cmocka_unit_test(rfc5044_7_1_a_key_that_is_wrong_in_any_byte),
	        cmocka_unit_test(what_follows_a_reply_stays_in_the_stream),
	        cmocka_unit_test(a_responder_answers),
	        cmocka_unit_test(private_data_is_bounded),
	        cmocka_unit_test(silence_ends_at_the_deadline),
	        cmocka_unit_test(the_end_of_the_stream),
	        cmocka_unit_test(a_reply_before_the_request_is_sent),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
