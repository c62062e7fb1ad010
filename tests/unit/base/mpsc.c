/* The many-to-one set: order, membership at most once, and no push lost between threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

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

/* Every node stands for a counter that its producer raises before each push. The consumer copies
 * the counter after mpsc_done(); if a push could be missed, the last value of some counter would
 * never be seen. */
#define PRODUCERS 3
#define NODES     4
#define RAISES    20000

struct work {
	struct mpsc_node node;
	_Atomic unsigned raised; /* relaxed: the set alone orders it */
	unsigned plain;          /* by the producer, while the node is not in the set */
	unsigned seen;           /* by the consumer */
};

static struct mpsc set;
static struct work works[PRODUCERS][NODES];

static void *produce(void *context)
{
	struct work *mine = context;
	for (unsigned i = 1; i <= RAISES; i++) {
		struct work *work = &mine[i % NODES];
		unsigned now = atomic_load_explicit(&work->raised, memory_order_relaxed) + 1;
		atomic_store_explicit(&work->raised, now, memory_order_relaxed);
		mpsc_push(&set, &work->node);
	}
	return NULL;
}

static void no_push_is_missed_between_threads(void **state)
{
	(void)state;
	pthread_t threads[PRODUCERS];
	mpsc_init(&set);
	for (int p = 0; p < PRODUCERS; p++)
		for (int n = 0; n < NODES; n++)
			mpsc_node_init(&works[p][n].node);
	for (int p = 0; p < PRODUCERS; p++)
		assert_int_equal(pthread_create(&threads[p], NULL, produce, works[p]), 0);
	for (unsigned finished = 0; finished < PRODUCERS * NODES;) {
		struct mpsc_node *node = mpsc_take(&set);
		if (node == NULL)
			sched_yield();
		while (node != NULL) {
			struct mpsc_node *next = node->next;
			struct work *work = (struct work *)node;
			mpsc_done(node);
			unsigned now = atomic_load_explicit(&work->raised, memory_order_relaxed);
			assert_true(now >= work->seen);
			if (now == RAISES / NODES && work->seen != now)
				finished++;
			work->seen = now;
			node = next;
		}
	}
	for (int p = 0; p < PRODUCERS; p++)
		assert_int_equal(pthread_join(threads[p], NULL), 0);
}

/* next is plain memory: the thread sanitizer checks that its writers and reader are ordered by the
 * set. Here the same holds for what the node carries. */
static void *hand_over(void *context)
{
	struct work *work = context;
	for (unsigned i = 1; i <= RAISES; i++) {
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
	mpsc_init(&set);
	for (int p = 0; p < PRODUCERS; p++) {
		works[p][0] = (struct work){0};
		mpsc_node_init(&works[p][0].node);
		assert_int_equal(pthread_create(&threads[p], NULL, hand_over, &works[p][0]), 0);
	}
	for (unsigned taken = 0; taken < PRODUCERS * RAISES;) {
		struct mpsc_node *node = mpsc_take(&set);
		if (node == NULL)
			sched_yield();
		while (node != NULL) {
			struct mpsc_node *next = node->next;
			struct work *work = (struct work *)node;
			mpsc_done(node);
			assert_int_equal(work->plain, ++work->seen);
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
