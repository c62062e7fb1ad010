/* Connection set-up of iWARP on SCTP: session control (RFC 5043, RFC 6581), one row per
 * message, and both ends together. */
#include "transport/iwarp/mpa_setup.h"

#include "iwarp_octets.h"

#include "wire/ddp_sctp.h"

#define DEADLINE 5000u

static const struct mpa_wish plain = {
        .session = true, .offer = {.crc = true, .max_ird = 4, .max_ord = 5}, .revision = 1};
static const struct mpa_wish enhanced = {
        .session = true, .offer = {.crc = true, .max_ird = 4, .max_ord = 5}, .revision = 2};

struct row {
	const char *what;
	const struct mpa_wish *wish; /* NULL: responder */
	const char *hex;
	enum mpa_setup_state state;
	enum mpa_connect_verdict verdict;
};

static const struct row rows[] = {
        {"Initiate", NULL, "0000 0001", MPA_SETUP_ASKED, 0},
        {"Initiate with private data", NULL, "0000 0001 616263", MPA_SETUP_ASKED, 0},
        {"Enhanced Initiate", NULL, "0000 0005 0004 0005 61", MPA_SETUP_ASKED, 0},
        {"an Accept", NULL, "0000 0002", MPA_SETUP_FAILED, MPA_CONNECT_CROSSED},
        {"a Terminate", NULL, "0000 0004", MPA_SETUP_FAILED, MPA_CONNECT_BAD_KEY},
        {"function 0", NULL, "0000 0000", MPA_SETUP_FAILED, MPA_CONNECT_BAD_KEY},
        {"function 8", NULL, "0000 0008", MPA_SETUP_FAILED, MPA_CONNECT_BAD_KEY},
        {"nothing", NULL, "", MPA_SETUP_FAILED, MPA_CONNECT_BAD_KEY},
        {"three octets", NULL, "0000 00", MPA_SETUP_FAILED, MPA_CONNECT_BAD_KEY},
        {"Enhanced without depths", NULL, "0000 0005 0004 00", MPA_SETUP_FAILED,
         MPA_CONNECT_ENHANCED_SHORT},
        {"a number that is not the first", NULL, "0001 0001", MPA_SETUP_FAILED,
         MPA_CONNECT_TRAILING},

        {"Accept", &plain, "0000 0002", MPA_SETUP_AGREED, 0},
        {"Accept with private data", &plain, "0000 0002 78", MPA_SETUP_AGREED, 0},
        {"Reject", &plain, "0000 0003", MPA_SETUP_REJECTED, 0},
        {"Enhanced Accept", &enhanced, "0000 0006 0005 0004", MPA_SETUP_AGREED, 0},
        {"Enhanced Reject", &enhanced, "0000 0007", MPA_SETUP_REJECTED, 0},
        {"Enhanced Reject with private data", &enhanced, "0000 0007 616263", MPA_SETUP_REJECTED, 0},
        {"a Terminate, because the program cannot be asked", &plain, "0000 0004",
         MPA_SETUP_REJECTED, 0},
        {"a Terminate with private data", &plain, "0000 0004 61", MPA_SETUP_FAILED,
         MPA_CONNECT_BAD_KEY},
        {"a Terminate with another number", &plain, "0001 0004", MPA_SETUP_FAILED,
         MPA_CONNECT_BAD_KEY},
        {"Accept to an Enhanced Initiate", &enhanced, "0000 0002", MPA_SETUP_FAILED,
         MPA_CONNECT_NOT_ENHANCED},
        {"Enhanced Accept to an Initiate", &plain, "0000 0006 0005 0004", MPA_SETUP_FAILED,
         MPA_CONNECT_BAD_REVISION},
        {"more reads than we answer", &enhanced, "0000 0006 0005 0005", MPA_SETUP_FAILED,
         MPA_CONNECT_IRD_SHORT},
        {"an Initiate that crosses ours", &plain, "0000 0001", MPA_SETUP_FAILED,
         MPA_CONNECT_CROSSED},
};

static size_t take_message(struct mpa_setup *setup, uint8_t *to)
{
	return stream_drain(&mpa_setup_stream, setup, to, MPA_CONNECT_MAX_BYTES);
}

static void rfc5043_what_a_peer_may_send(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *r = &rows[i];
		struct mpa_setup setup;
		uint8_t message[MPA_CONNECT_MAX_BYTES], out[MPA_CONNECT_MAX_BYTES];
		size_t bytes = octets(r->hex, message);
		print_message("%s\n", r->what);
		if (r->wish != NULL) {
			assert_true(mpa_setup_request(&setup, r->wish, NULL, 0, DEADLINE));
			assert_true(take_message(&setup, out) > 0);
		} else {
			mpa_setup_await(&setup, DEADLINE);
			setup.session = true;
		}
		bool good = mpa_setup_message(&setup, message, bytes);
		assert_int_equal(good, r->state != MPA_SETUP_FAILED);
		assert_int_equal(setup.state, r->state);
		if (r->state == MPA_SETUP_FAILED)
			assert_int_equal(setup.verdict, r->verdict);
	}
}

/* The octets of an exchange, and what is agreed: depths crosswise, never CRC or markers. */
static void rfc5043_both_ends(void **state)
{
	(void)state;
	for (unsigned revision = 1; revision <= 2; revision++) {
		struct mpa_setup a, b;
		uint8_t wire[MPA_CONNECT_MAX_BYTES], want[16];
		struct mpa_wish wish = revision == 1 ? plain : enhanced;
		const struct mpa_offer offer = {
		        .crc = true, .markers = true, .max_ird = 3, .max_ord = 9};
		assert_true(mpa_setup_request(&a, &wish, (const uint8_t *)"hi", 2, DEADLINE));
		mpa_setup_await(&b, DEADLINE);
		b.session = true;
		size_t bytes = take_message(&a, wire);
		size_t known =
		        octets(revision == 1 ? "0000 0001 6869" : "0000 0005 0004 0005 6869", want);
		assert_int_equal(bytes, known);
		assert_memory_equal(wire, want, known);
		assert_true(mpa_setup_message(&b, wire, bytes));
		assert_int_equal(b.peer.private_bytes, 2);
		assert_memory_equal(b.peer.private_data, "hi", 2);
		assert_true(mpa_setup_accept(&b, &offer, (const uint8_t *)"ok", 2, DEADLINE));
		bytes = take_message(&b, wire);
		assert_int_equal(b.state, MPA_SETUP_AGREED);
		assert_true(mpa_setup_message(&a, wire, bytes));
		assert_int_equal(a.state, MPA_SETUP_AGREED);
		assert_memory_equal(a.peer.private_data, "ok", 2);
		for (unsigned i = 0; i < 2; i++) {
			const struct mpa_agreement *got = i == 0 ? &a.agreement : &b.agreement;
			assert_false(got->crc || got->send_markers || got->receive_markers);
		}
		if (revision == 2) {
			assert_int_equal(a.agreement.ord, 3);
			assert_int_equal(b.agreement.ird, 3);
			assert_int_equal(a.agreement.ird, 4);
			assert_int_equal(b.agreement.ord, 4);
		}
		/* Nothing else may come. */
		assert_false(mpa_setup_message(&b, wire, bytes));
	}
}

static void rfc5043_private_data_is_bounded(void **state)
{
	(void)state;
	static const uint8_t data[MPA_MAX_PRIVATE_BYTES + 1];
	struct mpa_setup setup;
	uint8_t message[DDP_SCTP_CONTROL_MAX_BYTES + 100] = {0, 0, 0, DDP_SCTP_INITIATE};
	assert_true(mpa_setup_request(&setup, &plain, data, 512, DEADLINE));
	assert_false(mpa_setup_request(&setup, &plain, data, 513, DEADLINE));
	assert_true(mpa_setup_request(&setup, &enhanced, data, 508, DEADLINE));
	assert_false(mpa_setup_request(&setup, &enhanced, data, 509, DEADLINE));
	for (size_t bytes = 510; bytes <= 613; bytes++) {
		mpa_setup_await(&setup, DEADLINE);
		setup.session = true;
		bool good = mpa_setup_message(&setup, message, bytes);
		assert_int_equal(good, bytes <= DDP_SCTP_CONTROL_MAX_BYTES);
		if (!good)
			assert_int_equal(setup.verdict, MPA_CONNECT_PRIVATE_TOO_LONG);
	}
}

static void rfc5043_the_end_of_a_session(void **state)
{
	(void)state;
	uint8_t out[DDP_SCTP_CONTROL_BYTES], want[4];
	assert_int_equal(ddp_sctp_terminate_encode(0x1234, out), octets("1234 0004", want));
	assert_memory_equal(out, want, 4);
	uint16_t ssn;
	assert_true(ddp_sctp_is_terminate(out, 4, &ssn));
	assert_int_equal(ssn, 0x1234);
	assert_false(ddp_sctp_is_terminate(out, 3, &ssn));
	uint8_t longer[5] = {0x12, 0x34, 0, 4, 0}; /* "MUST NOT be included" */
	assert_false(ddp_sctp_is_terminate(longer, 5, &ssn));
	longer[3] = 5;
	assert_false(ddp_sctp_is_terminate(longer, 4, &ssn));
}

/* RFC 6581 section 9: IRD and ORD are in Initiate and Accept; all of a Reject is the program's. */
static void rfc6581_a_reject_has_no_depths(void **state)
{
	(void)state;
	for (unsigned revision = 1; revision <= 2; revision++) {
		struct mpa_setup a, b;
		uint8_t wire[MPA_CONNECT_MAX_BYTES], want[16];
		assert_true(mpa_setup_request(&a, revision == 1 ? &plain : &enhanced, NULL, 0,
		                              DEADLINE));
		mpa_setup_await(&b, DEADLINE);
		b.session = true;
		assert_true(mpa_setup_message(&b, wire, take_message(&a, wire)));
		assert_true(mpa_setup_reject(&b, (const uint8_t *)"no", 2, DEADLINE));
		size_t bytes = take_message(&b, wire);
		size_t known = octets(revision == 1 ? "0000 0003 6e6f" : "0000 0007 6e6f", want);
		assert_int_equal(bytes, known);
		assert_memory_equal(wire, want, known);
		assert_true(mpa_setup_message(&a, wire, bytes));
		assert_int_equal(a.state, MPA_SETUP_REJECTED);
		assert_int_equal(a.peer.private_bytes, 2);
		assert_memory_equal(a.peer.private_data, "no", 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc5043_what_a_peer_may_send),
	        cmocka_unit_test(rfc5043_both_ends),
	        cmocka_unit_test(rfc5043_private_data_is_bounded),
	        cmocka_unit_test(rfc5043_the_end_of_a_session),
	        cmocka_unit_test(rfc6581_a_reject_has_no_depths),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
