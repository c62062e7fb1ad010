/* The many-to-one set: order, membership at most once, and no push lost between threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "base/mpsc.h"

static void oldest_first_and_at_most_once(void **state)
{
	(void)state;
	struct mpsc q;
	struct mpsc_node nodes[3];
	mpsc_init(&q);
	assert_true(mpsc_empty(&q));
	assert_null(mpsc_take(&q));
	for (int i = 0; i < 3; i++) {
		mpsc_node_init(&nodes[i]);
		assert_true(mpsc_push(&q, &nodes[i]));
		assert_false(mpsc_push(&q, &nodes[i]));
	}
	assert_false(mpsc_empty(&q));
	struct mpsc_node *node = mpsc_take(&q);
	assert_true(mpsc_empty(&q));
	for (int i = 0; i < 3; i++) {
		assert_ptr_equal(node, &nodes[i]);
		node = node->next;
	}
	assert_null(node);
	assert_false(mpsc_push(&q, &nodes[1])); /* taken, but not done with */
	mpsc_done(&nodes[1]);
	assert_true(mpsc_push(&q, &nodes[1]));
	assert_ptr_equal(mpsc_take(&q), &nodes[1]);
}

#define PRODUCERS 3
#define ROUNDS    20000

struct work {
	struct mpsc_node node;
	_Alignas(64) _Atomic unsigned raised; /* relaxed: the set alone orders it */
	_Atomic unsigned seen;                /* by the consumer, for the producer to wait on */
	unsigned plain; /* by the producer, while the node is not in the set */
};

static struct mpsc set;
static struct work works[PRODUCERS];

/* Waits, at first without leaving the processor: the two sides must meet within nanoseconds. */
static void relax(unsigned *spins)
{
	if (++*spins > 2000)
		sched_yield();
}

/* The node stands for a number that its producer raises before each push: two or three times in a
 * row, so that the later pushes meet the consumer at its mpsc_done(), and then no more until the
 * last number was seen. A push that is missed leaves both waiting for ever. */
static void *raise_and_wait(void *context)
{
	struct work *work = context;
	unsigned last = 0;
	for (unsigned i = 0; i < ROUNDS; i++) {
		for (unsigned times = 2 + i % 2; times > 0; times--) {
			atomic_store_explicit(&work->raised, ++last, memory_order_relaxed);
			mpsc_push(&set, &work->node);
			for (volatile unsigned pause = i % 128; pause > 0; pause--)
				;
		}
		unsigned spins = 0;
		while (atomic_load_explicit(&work->seen, memory_order_relaxed) != last)
			relax(&spins);
	}
	return NULL;
}

static void start_threads(pthread_t *threads, int count, void *(*body)(void *))
{
	mpsc_init(&set);
	for (int p = 0; p < count; p++) {
		works[p] = (struct work){0};
		mpsc_node_init(&works[p].node);
		assert_int_equal(pthread_create(&threads[p], NULL, body, &works[p]), 0);
	}
}

static void no_push_is_missed_between_threads(void **state)
{
	(void)state;
	pthread_t thread;
	unsigned spins = 0;
	const unsigned final = ROUNDS / 2 * (2 + 3);
	start_threads(&thread, 1, raise_and_wait);
	for (bool finished = false; !finished;) {
		struct mpsc_node *node = mpsc_take(&set);
		if (node == NULL)
			relax(&spins);
		else
			spins = 0;
		while (node != NULL) {
			struct mpsc_node *next = node->next;
			struct work *work = (struct work *)node;
			mpsc_done(node);
			unsigned now = atomic_load_explicit(&work->raised, memory_order_relaxed);
			unsigned seen = atomic_load_explicit(&work->seen, memory_order_relaxed);
			assert_true(now >= seen);
			finished = now == final;
			atomic_store_explicit(&work->seen, now, memory_order_relaxed);
			node = next;
		}
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* next is plain memory: the thread sanitizer checks that its writers and reader are ordered by the
 * set. Here the same holds for what the node carries. */
static void *hand_over(void *context)
{
	struct work *work = context;
	for (unsigned i = 1; i <= ROUNDS; i++) {
		while (atomic_load_explicit(&work->raised, memory_order_acquire) != 0)
			sched_yield();
		work->plain = i;
		atomic_store_explicit(&work->raised, 1, memory_order_relaxed);
		if (!mpsc_push(&set, &work->node))
			return context;
	}
	return NULL;
}

static void a_push_hands_over_plain_memory(void **state)
{
	(void)state;
	pthread_t threads[PRODUCERS];
	unsigned expected[PRODUCERS] = {0};
	start_threads(threads, PRODUCERS, hand_over);
	for (unsigned taken = 0; taken < PRODUCERS * ROUNDS;) {
		struct mpsc_node *node = mpsc_take(&set);
		if (node == NULL)
			sched_yield();
		while (node != NULL) {
			struct mpsc_node *next = node->next;
			struct work *work = (struct work *)node;
			mpsc_done(node);
			assert_int_equal(work->plain, ++expected[work - works]);
			atomic_store_explicit(&work->raised, 0, memory_order_release);
			taken++;
			node = next;
		}
	}
	for (int p = 0; p < PRODUCERS; p++) {
		void *refused = NULL;
		assert_int_equal(pthread_join(threads[p], &refused), 0);
		assert_null(refused);
	}
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(oldest_first_and_at_most_once),
	        cmocka_unit_test(no_push_is_missed_between_threads),
	        cmocka_unit_test(a_push_hands_over_plain_memory),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
