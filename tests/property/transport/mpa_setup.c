/* Two ends with random wishes agree over a stream that is cut into random pieces: both come to the
 * result that a model computes from the two wishes alone, and the private data of each reaches the
 * other. Some streams break on the way: then neither end believes in a connection that the other
 * cannot have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cable/stream.h"
#include "transport/iwarp/mpa_setup.h"

#define ROUNDS   3000u
#define DEADLINE 1000u

static struct mpa_offer random_offer(struct prng *prng)
{
	return (struct mpa_offer){.markers = prng_chance(prng, 300),
	                          .crc = prng_chance(prng, 500),
	                          .max_ird = (uint16_t)prng_below(prng, 20),
	                          .max_ord = (uint16_t)prng_below(prng, 20),
	                          .rtr = (uint8_t)prng_below(prng, MPA_RTR_ALL + 1)};
}

static uint16_t smaller(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

/* What the initiator must see after asking @wish from a responder that offers @offer. */
static struct mpa_agreement model(const struct mpa_wish *wish, const struct mpa_offer *offer)
{
	bool enhanced = wish->revision == 2;
	struct mpa_agreement a = {.crc = wish->offer.crc || offer->crc,
	                          .send_markers = offer->markers,
	                          .receive_markers = wish->offer.markers,
	                          .enhanced = enhanced,
	                          .peer_to_peer = enhanced && wish->peer_to_peer,
	                          .ird = wish->offer.max_ird,
	                          .ord = wish->offer.max_ord};
	if (a.peer_to_peer)
		a.rtr = wish->offer.rtr & offer->rtr;
	if (enhanced) {
		a.ird = smaller(a.ird, offer->max_ord);
		a.ord = smaller(a.ord, offer->max_ird);
	}
	return a;
}

static void assert_agreement(const struct mpa_agreement *a, const struct mpa_agreement *b)
{
	assert_int_equal(a->crc, b->crc);
	assert_int_equal(a->send_markers, b->send_markers);
	assert_int_equal(a->receive_markers, b->receive_markers);
	assert_int_equal(a->enhanced, b->enhanced);
	assert_int_equal(a->peer_to_peer, b->peer_to_peer);
	assert_int_equal(a->rtr, b->rtr);
	assert_int_equal(a->ird, b->ird);
	assert_int_equal(a->ord, b->ord);
}

static void one_setup(uint64_t seed)
{
	struct prng prng;
	struct stream_cable cable;
	struct mpa_setup asks, answers;
	uint8_t ask_data[MPA_MAX_PRIVATE_BYTES], answer_data[MPA_MAX_PRIVATE_BYTES];
	prng_seed(&prng, seed);
	struct mpa_wish wish = {.offer = random_offer(&prng),
	                        .revision = (uint8_t)(1 + prng_below(&prng, 2)),
	                        .peer_to_peer = prng_chance(&prng, 500)};
	struct mpa_offer offer = random_offer(&prng);
	size_t most = MPA_MAX_PRIVATE_BYTES - (wish.revision == 2 ? MPA_ENHANCED_BYTES : 0);
	size_t ask_bytes = prng_chance(&prng, 100) ? most : prng_below(&prng, most + 1);
	size_t answer_bytes = prng_chance(&prng, 100) ? most : prng_below(&prng, most + 1);
	prng_fill(&prng, ask_data, sizeof(ask_data));
	prng_fill(&prng, answer_data, sizeof(answer_data));
	bool rejects = prng_chance(&prng, 150), cut = prng_chance(&prng, 200);

	assert_true(mpa_setup_request(&asks, &wish, ask_data, ask_bytes, DEADLINE));
	mpa_setup_await(&answers, DEADLINE);
	stream_cable_init(&cable, &prng, &mpa_setup_stream, &asks, &mpa_setup_stream, &answers);
	if (cut)
		cable.lines[prng_below(&prng, 2)].cut_at = prng_below(&prng, 540);
	stream_cable_run(&cable, 32);
	if (answers.state == MPA_SETUP_ASKED) {
		assert_int_equal(answers.peer.private_bytes, ask_bytes);
		assert_memory_equal(answers.peer.private_data, ask_data, ask_bytes);
		if (rejects)
			assert_true(
			        mpa_setup_reject(&answers, answer_data, answer_bytes, DEADLINE));
		else
			assert_true(mpa_setup_accept(&answers, &offer, answer_data, answer_bytes,
			                             DEADLINE));
		stream_cable_run(&cable, 32);
	}
	assert_true(mpa_setup_over(&answers) || !cut);
	if (cut && (asks.state == MPA_SETUP_FAILED || answers.state == MPA_SETUP_FAILED)) {
		/* The responder may believe in a connection whose Reply got lost: it hears of it
		 * from the stream. The initiator never believes more than the responder. */
		assert_int_equal(asks.state, MPA_SETUP_FAILED);
		assert_int_equal(asks.why, MPA_SETUP_BROKEN);
		return;
	}
	struct mpa_agreement expected = model(&wish, &offer);
	bool no_rtr = expected.peer_to_peer && expected.rtr == 0;
	assert_int_equal(asks.peer.private_bytes, answer_bytes);
	assert_memory_equal(asks.peer.private_data, answer_data, answer_bytes);
	assert_int_equal(asks.deadline_ns, 0);
	assert_int_equal(answers.deadline_ns, 0);
	if (rejects || no_rtr) {
		assert_int_equal(asks.state, MPA_SETUP_REJECTED);
		assert_int_equal(answers.state, MPA_SETUP_REJECTED);
		return;
	}
	assert_int_equal(asks.state, MPA_SETUP_AGREED);
	assert_int_equal(answers.state, MPA_SETUP_AGREED);
	assert_agreement(&asks.agreement, &expected);
	bool receive_markers = expected.receive_markers;
	expected.receive_markers = expected.send_markers;
	expected.send_markers = receive_markers;
	uint16_t ird = expected.ird;
	expected.ird = wish.revision == 2 ? expected.ord : offer.max_ird;
	expected.ord = wish.revision == 2 ? ird : offer.max_ord;
	assert_agreement(&answers.agreement, &expected);
}

static void rfc6581_both_ends_agree(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= ROUNDS; seed++)
		one_setup(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc6581_both_ends_agree),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
