/* Programs that are not trusted (AP6): which of their out-of-band packets the agent passes on. The
 * program is process 5 of node 1, with entry 7; the other is process 9 of node 2, with entry 3. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <string.h>

#include "agent/managed.h"

#define OWN_NONCE   0x1111222233334444ull
#define OWN_FIRST   0x1000u
#define PEER_NONCE  0x5555666677778888ull
#define PORT        4660u
#define SLOT        5u
#define OWN_INDEX   (SLOT << CI_ROW_BITS | 7u)
#define PEER_INDEX  (9u << CI_ROW_BITS | 3u)
#define OFFER_FIRST 77u

static const struct managed_end peer = {.guid = 2, .slot = 9}, third = {.guid = 2, .slot = 10};
static const struct managed_end host = {.remote = true, .host = {[10] = 0xff, 0xff, 10, 0, 0, 2}},
                                other_host = {.remote = true,
                                              .host = {[10] = 0xff, 0xff, 10, 0, 0, 3}};
static struct managed book;

static int empty_book(void **state)
{
	(void)state;
	memset(&book, 0, sizeof(book));
	book.self = (struct managed_end){.guid = 1, .slot = SLOT};
	return 0;
}

static uint8_t body[CI_OFFER_BYTES];

static struct ci_packet offer_packet(uint8_t kind, uint32_t index, uint64_t nonce,
                                     const struct ci_offer *offer)
{
	ci_set_offer(offer, body);
	return (struct ci_packet){.kind = kind,
	                          .index = index,
	                          .nonce = nonce,
	                          .bytes = CI_OFFER_BYTES,
	                          .data = body};
}

static struct ci_packet note_packet(uint8_t kind, uint32_t index, uint64_t nonce,
                                    struct ci_note note)
{
	struct ci_packet packet = {.kind = kind, .index = index, .nonce = nonce, .data = body};
	packet.bytes = ci_set_note(kind, &note, body);
	return packet;
}

static const struct ci_offer own_offer = {.index = OWN_INDEX,
                                          .nonce = OWN_NONCE,
                                          .sequence = OWN_FIRST,
                                          .bits = 12,
                                          .length = 4096,
                                          .port = PORT};
static const struct ci_offer peer_offer = {.index = PEER_INDEX,
                                           .nonce = PEER_NONCE,
                                           .sequence = OFFER_FIRST,
                                           .bits = 12,
                                           .length = 4096,
                                           .port = PORT};

static enum managed_verdict connect_as(struct ci_offer offer, const struct managed_end *to)
{
	struct ci_packet packet = offer_packet(CI_CONNECT, ci_index(0, PORT), 0, &offer);
	return managed_sends(&book, to, &packet);
}

static enum managed_verdict accept_from(struct ci_offer offer, const struct managed_end *from)
{
	struct ci_packet packet = offer_packet(CI_ACCEPT, OWN_INDEX, OWN_NONCE, &offer);
	return managed_gets(&book, from, &packet);
}

static void open_by_connect(void)
{
	assert_true(managed_arm(&book, 7, OWN_NONCE, OWN_FIRST));
	assert_int_equal(connect_as(own_offer, &peer), MANAGED_PASS);
	assert_int_equal(accept_from(peer_offer, &peer), MANAGED_PASS);
}

static void ap6_only_the_agents_numbers_connect(void **state)
{
	(void)state;
	struct ci_offer offer = own_offer;
	assert_int_equal(connect_as(offer, &peer), MANAGED_NO_ENTRY); /* never armed */
	assert_true(managed_arm(&book, 7, OWN_NONCE, OWN_FIRST));
	offer.nonce++;
	assert_int_equal(connect_as(offer, &peer), MANAGED_NUMBERS);
	offer = own_offer;
	offer.sequence++;
	assert_int_equal(connect_as(offer, &peer), MANAGED_NUMBERS);
	offer = own_offer;
	offer.index = ci_index(SLOT + 1, 7); /* that of another process */
	assert_int_equal(connect_as(offer, &peer), MANAGED_NO_ENTRY);
	offer = own_offer;
	offer.port++; /* not the one that the packet goes to */
	assert_int_equal(connect_as(offer, &peer), MANAGED_KIND);
	assert_int_equal(connect_as(own_offer, &peer), MANAGED_PASS);
	assert_int_equal(connect_as(own_offer, &peer), MANAGED_PASS);  /* repeated */
	assert_int_equal(connect_as(own_offer, &third), MANAGED_PEER); /* to another: new numbers */
	assert_true(managed_arm(&book, 7, OWN_NONCE + 1, OWN_FIRST));
	assert_int_equal(connect_as(own_offer, &peer), MANAGED_NUMBERS); /* the old ones are over */
	managed_disarm(&book, 7);
	assert_int_equal(connect_as(own_offer, &peer), MANAGED_NO_ENTRY);
}

static void ap6_who_was_asked_answers(void **state)
{
	(void)state;
	struct ci_offer offer = peer_offer;
	assert_true(managed_arm(&book, 7, OWN_NONCE, OWN_FIRST));
	assert_int_equal(accept_from(offer, &peer), MANAGED_PEER); /* nothing was asked */
	assert_int_equal(connect_as(own_offer, &peer), MANAGED_PASS);
	assert_int_equal(accept_from(offer, &third), MANAGED_PEER);
	offer.index = ci_index(third.slot, 3);
	assert_int_equal(accept_from(offer, &peer), MANAGED_POSES);
	assert_int_equal(accept_from(peer_offer, &peer), MANAGED_PASS);
	assert_int_equal(accept_from(peer_offer, &peer), MANAGED_PASS); /* doubled */
	offer = peer_offer;
	offer.nonce++;
	assert_int_equal(accept_from(offer, &peer), MANAGED_PEER); /* the first one counts */
}

static void ap6_only_calls_are_accepted(void **state)
{
	(void)state;
	struct ci_packet packet = offer_packet(CI_ACCEPT, PEER_INDEX, PEER_NONCE, &own_offer);
	assert_true(managed_arm(&book, 7, OWN_NONCE, OWN_FIRST));
	assert_int_equal(managed_sends(&book, &peer, &packet), MANAGED_UNASKED);
	struct ci_packet reject =
	        note_packet(CI_REJECT, PEER_INDEX, PEER_NONCE, (struct ci_note){.reason = 6});
	assert_int_equal(managed_sends(&book, &peer, &reject), MANAGED_UNASKED);
	/* It comes from the process whose slot it names, or not at all. */
	packet = offer_packet(CI_CONNECT, ci_index(0, PORT), 0, &peer_offer);
	assert_int_equal(managed_gets(&book, &third, &packet), MANAGED_POSES);
	assert_int_equal(managed_gets(&book, &peer, &packet), MANAGED_PASS);
	packet = offer_packet(CI_ACCEPT, PEER_INDEX, PEER_NONCE, &own_offer);
	assert_int_equal(managed_sends(&book, &third, &packet), MANAGED_UNASKED);
	assert_int_equal(managed_sends(&book, &peer, &packet), MANAGED_PASS);
	assert_int_equal(managed_sends(&book, &peer, &packet), MANAGED_PASS); /* repeated */
	/* One set of numbers for one connection. */
	struct ci_offer again = peer_offer;
	again.nonce++;
	packet = offer_packet(CI_CONNECT, ci_index(0, PORT), 0, &again);
	assert_int_equal(managed_gets(&book, &peer, &packet), MANAGED_PASS);
	packet = offer_packet(CI_ACCEPT, PEER_INDEX, again.nonce, &own_offer);
	assert_int_equal(managed_sends(&book, &peer, &packet), MANAGED_PEER);
}

static void ap6_notes_stay_between_the_two(void **state)
{
	(void)state;
	static const uint8_t kinds[] = {CI_CLOSE, CI_ALIVE, CI_ALIVEACK, CI_ERROR};
	open_by_connect();
	for (unsigned i = 0; i < sizeof(kinds); i++) {
		struct ci_note note = {.index = kinds[i] == CI_ALIVE ? OWN_INDEX : 0};
		struct ci_packet packet = note_packet(kinds[i], PEER_INDEX, PEER_NONCE, note);
		assert_int_equal(managed_sends(&book, &peer, &packet), MANAGED_PASS);
		assert_int_equal(managed_sends(&book, &third, &packet), MANAGED_PEER);
		packet.nonce++;
		assert_int_equal(managed_sends(&book, &peer, &packet), MANAGED_PEER);
		packet.nonce = PEER_NONCE;
		packet.index++;
		assert_int_equal(managed_sends(&book, &peer, &packet), MANAGED_PEER);
		packet = note_packet(kinds[i], OWN_INDEX, OWN_NONCE, note);
		assert_int_equal(managed_gets(&book, &peer, &packet), MANAGED_PASS);
		assert_int_equal(managed_gets(&book, &third, &packet), MANAGED_PEER);
		packet.nonce++;
		assert_int_equal(managed_gets(&book, &peer, &packet), MANAGED_NUMBERS);
	}
}

static void ap6_nobody_poses_as_an_element(void **state)
{
	(void)state;
	open_by_connect();
	for (uint16_t element = 0; element < CI_ELEMENT_COUNT; element++) {
		bool end = element == CI_RECEIVER || element == CI_SENDER;
		struct ci_note note = {.reason = 8, .element = element};
		struct ci_packet packet = note_packet(CI_ERROR, PEER_INDEX, PEER_NONCE, note);
		assert_int_equal(managed_sends(&book, &peer, &packet),
		                 end ? MANAGED_PASS : MANAGED_POSES);
		packet = note_packet(CI_ERROR, OWN_INDEX, OWN_NONCE, note);
		assert_int_equal(managed_gets(&book, &peer, &packet),
		                 end ? MANAGED_PASS : MANAGED_POSES);
	}
	struct ci_packet packet = note_packet(CI_ALIVE, PEER_INDEX, PEER_NONCE,
	                                      (struct ci_note){.index = OWN_INDEX + 1});
	assert_int_equal(managed_sends(&book, &peer, &packet), MANAGED_POSES);
}

static void ap6_status_is_a_question_and_an_answer(void **state)
{
	(void)state;
	uint8_t words[CI_STATUSACK_BYTES];
	struct ci_status status = {.index = OWN_INDEX, .nonce = OWN_NONCE, .token = 1};
	struct ci_packet ask = {.kind = CI_STATUS,
	                        .index = ci_index(0, PORT),
	                        .bytes = ci_set_status(CI_STATUS, &status, words),
	                        .data = words};
	assert_int_equal(managed_sends(&book, &peer, &ask), MANAGED_NO_ENTRY);
	assert_true(managed_arm(&book, 7, OWN_NONCE, OWN_FIRST));
	assert_int_equal(managed_sends(&book, &peer, &ask), MANAGED_PASS);
	struct ci_packet reply = {.kind = CI_STATUSACK, .index = OWN_INDEX, .nonce = OWN_NONCE};
	assert_int_equal(managed_gets(&book, &third, &reply), MANAGED_PEER);
	assert_int_equal(managed_gets(&book, &peer, &reply), MANAGED_PASS);
	/* And the other way. */
	reply = (struct ci_packet){.kind = CI_STATUSACK, .index = PEER_INDEX, .nonce = PEER_NONCE};
	assert_int_equal(managed_sends(&book, &peer, &reply), MANAGED_UNASKED);
	status = (struct ci_status){.index = PEER_INDEX, .nonce = PEER_NONCE, .token = 1};
	ci_set_status(CI_STATUS, &status, words);
	assert_int_equal(managed_gets(&book, &third, &ask), MANAGED_POSES);
	assert_int_equal(managed_gets(&book, &peer, &ask), MANAGED_PASS);
	assert_int_equal(managed_sends(&book, &peer, &reply), MANAGED_PASS);
}

static void ap6_no_data_passes(void **state)
{
	(void)state;
	open_by_connect();
	for (uint8_t kind = CI_DATA; kind <= CI_RESPONSE; kind++) {
		struct ci_packet packet = {
		        .kind = kind, .index = PEER_INDEX, .nonce = PEER_NONCE, .data = body};
		assert_int_equal(managed_sends(&book, &peer, &packet), MANAGED_KIND);
		packet.index = OWN_INDEX;
		packet.nonce = OWN_NONCE;
		assert_int_equal(managed_gets(&book, &peer, &packet), MANAGED_KIND);
	}
}

/* Another machine is an address: which of its processes answers is its own affair. */
static void ap6_a_host_answers_for_its_processes(void **state)
{
	(void)state;
	struct ci_offer offer = peer_offer;
	assert_true(managed_arm(&book, 7, OWN_NONCE, OWN_FIRST));
	assert_int_equal(connect_as(own_offer, &host), MANAGED_PASS);
	assert_null(book.changed);
	assert_int_equal(accept_from(offer, &other_host), MANAGED_PEER);
	assert_int_equal(accept_from(offer, &peer), MANAGED_PEER);
	offer.index = ci_index(1000, 3);
	offer.nonce_every = 16;
	offer.nonce_step = 1;
	assert_int_equal(accept_from(offer, &host), MANAGED_PASS);
	/* Its forwarder is told. */
	assert_non_null(book.changed);
	assert_int_equal(book.changed->state, MANAGED_OPEN);
	assert_int_equal(book.changed->peer_index, offer.index);
	assert_true(book.changed->peer.remote && book.changed->peer_rolls);
	struct ci_packet close =
	        note_packet(CI_CLOSE, offer.index, PEER_NONCE, (struct ci_note){.reason = 7});
	assert_int_equal(managed_sends(&book, &host, &close), MANAGED_PASS);
	assert_int_equal(managed_sends(&book, &other_host, &close), MANAGED_PEER);
	assert_null(book.changed);
	assert_true(managed_arm(&book, 7, OWN_NONCE + 1, OWN_FIRST));
	assert_int_equal(book.changed->state, MANAGED_ARMED);
	managed_disarm(&book, 7);
	assert_int_equal(book.changed->state, MANAGED_FREE);
}

static void ap6_a_host_calls(void **state)
{
	(void)state;
	struct ci_offer offer = peer_offer;
	offer.index = ci_index(1000, 3);
	struct ci_packet packet = offer_packet(CI_CONNECT, ci_index(0, PORT), 0, &offer);
	assert_true(managed_arm(&book, 7, OWN_NONCE, OWN_FIRST));
	assert_int_equal(managed_gets(&book, &host, &packet), MANAGED_PASS);
	packet = offer_packet(CI_ACCEPT, offer.index, PEER_NONCE, &own_offer);
	assert_int_equal(managed_sends(&book, &other_host, &packet), MANAGED_UNASKED);
	assert_int_equal(managed_sends(&book, &host, &packet), MANAGED_PASS);
	assert_int_equal(book.changed->peer_index, offer.index);
	assert_memory_equal(book.changed->peer.host, host.host, 16);
}

/* The agent there says that the process has gone. It repeats the nonce of ALIVE, which is the
 * peer's. */
static void ap6_the_agent_of_a_host_says_who_has_gone(void **state)
{
	(void)state;
	assert_true(managed_arm(&book, 7, OWN_NONCE, OWN_FIRST));
	assert_int_equal(connect_as(own_offer, &host), MANAGED_PASS);
	struct ci_note note = {.reason = 8, .element = CI_AGENT};
	struct ci_packet gone = note_packet(CI_ERROR, OWN_INDEX, PEER_NONCE, note);
	assert_int_equal(managed_gets(&book, &host, &gone), MANAGED_NUMBERS); /* not open yet */
	assert_int_equal(accept_from(peer_offer, &host), MANAGED_PASS);
	gone = note_packet(CI_ERROR, OWN_INDEX, PEER_NONCE, note);
	assert_int_equal(managed_gets(&book, &other_host, &gone), MANAGED_NUMBERS);
	assert_int_equal(managed_gets(&book, &peer, &gone), MANAGED_NUMBERS);
	assert_int_equal(managed_gets(&book, &host, &gone), MANAGED_PASS);
	gone.nonce++;
	assert_int_equal(managed_gets(&book, &host, &gone), MANAGED_NUMBERS);
}

static void limits_of_entries_and_calls(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < AGENT_CI_ENTRIES; i++)
		assert_true(managed_arm(&book, 100 + i, i, i));
	assert_false(managed_arm(&book, 7, OWN_NONCE, OWN_FIRST));
	assert_true(managed_arm(&book, 100, 1, 1)); /* one that is there gets new numbers */
	managed_disarm(&book, 600);
	assert_true(managed_arm(&book, 7, OWN_NONCE, OWN_FIRST));
	/* The oldest call is forgotten; when it is repeated it is there again. */
	struct ci_offer offer = peer_offer;
	for (uint32_t i = 0; i <= MANAGED_CALLS; i++) {
		offer.nonce = PEER_NONCE + i;
		struct ci_packet call = offer_packet(CI_CONNECT, ci_index(0, PORT), 0, &offer);
		assert_int_equal(managed_gets(&book, &peer, &call), MANAGED_PASS);
	}
	struct ci_packet accept = offer_packet(CI_ACCEPT, PEER_INDEX, PEER_NONCE, &own_offer);
	assert_int_equal(managed_sends(&book, &peer, &accept), MANAGED_UNASKED);
	struct ci_packet call = offer_packet(CI_CONNECT, ci_index(0, PORT), 0, &peer_offer);
	assert_int_equal(managed_gets(&book, &peer, &call), MANAGED_PASS);
	accept = offer_packet(CI_ACCEPT, PEER_INDEX, PEER_NONCE, &own_offer);
	assert_int_equal(managed_sends(&book, &peer, &accept), MANAGED_PASS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(ap6_only_the_agents_numbers_connect, empty_book),
	        cmocka_unit_test_setup(ap6_who_was_asked_answers, empty_book),
	        cmocka_unit_test_setup(ap6_only_calls_are_accepted, empty_book),
	        cmocka_unit_test_setup(ap6_notes_stay_between_the_two, empty_book),
	        cmocka_unit_test_setup(ap6_nobody_poses_as_an_element, empty_book),
	        cmocka_unit_test_setup(ap6_status_is_a_question_and_an_answer, empty_book),
	        cmocka_unit_test_setup(ap6_no_data_passes, empty_book),
	        cmocka_unit_test_setup(ap6_a_host_answers_for_its_processes, empty_book),
	        cmocka_unit_test_setup(ap6_a_host_calls, empty_book),
	        cmocka_unit_test_setup(ap6_the_agent_of_a_host_says_who_has_gone, empty_book),
	        cmocka_unit_test_setup(limits_of_entries_and_calls, empty_book),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
