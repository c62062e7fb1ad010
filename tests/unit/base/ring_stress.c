/* The lane between two threads: every byte arrives, in order, through wraps, full rings and sleeps.
 * Under the thread sanitizer this is also the proof that the stamp and the head order the plain
 * bytes of the records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/prng.h"
#include "base/ring.h"

#define SLOTS   32u
#define RECORDS 100000

static _Alignas(64) unsigned char memory[sizeof(struct ring_shared) + SLOTS * RING_SLOT_BYTES];

static size_t next_length(struct prng *prng)
{
	return 1 + prng_below(prng, prng_chance(prng, 100) ? ring_max_record(SLOTS) : 100);
}

static void *produce(void *context)
{
	(void)context;
	struct ring_tx tx;
	struct prng prng;
	ring_tx_attach(&tx, memory, SLOTS);
	prng_seed(&prng, 1);
	for (int i = 0; i < RECORDS; i++) {
		size_t bytes = next_length(&prng);
		void *to;
		while ((to = ring_reserve(&tx, bytes)) == NULL)
			sched_yield();
		prng_fill(&prng, to, bytes);
		ring_publish(&tx);
	}
	return NULL;
}

static void every_byte_arrives_in_order(void **state)
{
	(void)state;
	pthread_t thread;
	struct ring_rx rx;
	struct prng prng;
	static unsigned char expected[SLOTS * RING_SLOT_BYTES];
	ring_format(memory, SLOTS);
	ring_rx_attach(&rx, memory, SLOTS);
	prng_seed(&prng, 1);
	assert_int_equal(pthread_create(&thread, NULL, produce, NULL), 0);
	for (int i = 0; i < RECORDS; i++) {
		const void *from;
		size_t bytes = 0;
		while ((from = ring_peek(&rx, &bytes)) == NULL && !rx.broken)
			sched_yield();
		assert_false(rx.broken);
		assert_int_equal(bytes, next_length(&prng));
		prng_fill(&prng, expected, bytes);
		assert_memory_equal(from, expected, bytes);
		ring_release(&rx);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* A consumer that arms, looks once more and sleeps; a producer that wakes it when it took the mark,
 * and sends the next record only when the last was taken, that is, about when the consumer arms. A
 * wake-up that is lost hangs here. */
#define SLEEPS 20000

static _Atomic unsigned taken;

static pthread_mutex_t bell_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static int bells;

static void *produce_and_ring(void *context)
{
	(void)context;
	struct ring_tx tx;
	ring_tx_attach(&tx, memory, SLOTS);
	for (unsigned i = 0; i < SLEEPS; i++) {
		unsigned *to;
		while ((to = ring_reserve(&tx, sizeof(*to))) == NULL)
			sched_yield();
		*to = i;
		ring_publish(&tx);
		if (ring_take_armed(&tx)) {
			pthread_mutex_lock(&bell_lock);
			bells++;
			pthread_cond_signal(&bell);
			pthread_mutex_unlock(&bell_lock);
		}
		for (int spins = 0; atomic_load_explicit(&taken, memory_order_relaxed) <= i;
		     spins++)
			if (spins > 1000)
				sched_yield();
	}
	return NULL;
}

static void sleep_until_rung(void)
{
	pthread_mutex_lock(&bell_lock);
	while (bells == 0)
		pthread_cond_wait(&bell, &bell_lock);
	bells = 0;
	pthread_mutex_unlock(&bell_lock);
}

static void no_wakeup_is_lost(void **state)
{
	(void)state;
	pthread_t thread;
	struct ring_rx rx;
	ring_format(memory, SLOTS);
	ring_rx_attach(&rx, memory, SLOTS);
	assert_int_equal(pthread_create(&thread, NULL, produce_and_ring, NULL), 0);
	for (unsigned i = 0; i < SLEEPS; i++) {
		const unsigned *from;
		size_t bytes = 0;
		while ((from = ring_peek(&rx, &bytes)) == NULL) {
			assert_false(rx.broken);
			ring_arm(&rx);
			if ((from = ring_peek(&rx, &bytes)) != NULL) {
				ring_disarm(&rx);
				break;
			}
			sleep_until_rung();
		}
		assert_int_equal(*from, i);
		ring_release(&rx);
		atomic_store_explicit(&taken, i + 1, memory_order_relaxed);
		/* Arm now before, now after and now just as the next record comes. */
		for (volatile unsigned pause = i % 512; pause > 0; pause--)
			;
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(every_byte_arrives_in_order),
	        cmocka_unit_test(no_wakeup_is_lost),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
