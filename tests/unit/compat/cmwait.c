/* For how long a server that says that nobody listens is asked again (compat/cm/wait.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compat/cm/cm.h"
#include "compat/cm/manager.h"

#define MS 1000000ull

/* How long it takes until the program is told, when each request is refused at once; the clock is
 * that of the identifier. */
static uint64_t asked_for(bool across, unsigned *requests)
{
	struct cm_message request = {0};
	struct cm_id id = {.manager = across ? &cm_infiniband : &cm_local, .sent = &request};
	uint64_t passed = 0;
	cm_lock(); /* the thread that would ask has to wait, and then finds no identifier */
	for (*requests = 1;; ++*requests) {
		uint64_t now = cm_now_ns();
		id.asked_ns = now - passed;
		if (!cm_wait_more(&id))
			break;
		assert_int_equal(id.wait, CM_WAIT_LISTENER);
		passed += id.wait_ns - now;
		assert_true(*requests < 1000);
	}
	cm_wait_end(&id);
	cm_unlock();
	return passed;
}

static void asks_again(void **state)
{
	(void)state;
	unsigned requests;
	/* The agent of this machine: a program that is about to listen does so at once. */
	uint64_t took = asked_for(false, &requests);
	assert_in_range(took, 150 * MS, 900 * MS);
	/* Linux refuses at once, and a program there may first wait half a second until a lost
	 * packet was repeated. */
	took = asked_for(true, &requests);
	assert_true(took >= 900 * MS);
	assert_true(requests <= 30);
}

static void is_told_when_it_was_late(void **state)
{
	(void)state;
	struct cm_message request = {0};
	/* One of ours kept the request for a second before it said no. */
	struct cm_id id = {
	        .manager = &cm_infiniband, .sent = &request, .asked_ns = cm_now_ns() - 1001 * MS};
	cm_lock();
	assert_false(cm_wait_more(&id));
	cm_unlock();
}

/* Over TCP, too, a program hears of the end of TIMEWAIT: tgtd frees its connections then. */
static void timewait_ends_on_iwarp(void **state)
{
	(void)state;
	const struct cm_manager *managers[] = {&cm_local, &cm_mpa};
	for (size_t i = 0; i < 2; i++) {
		struct cm_id id = {.manager = managers[i], .state = CM_ENDED};
		cm_lock();
		cm_wait_timewait(&id);
		assert_int_equal(id.wait, CM_WAIT_TIMEWAIT);
		cm_wait_end(&id);
		cm_unlock();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(asks_again),
	        cmocka_unit_test(is_told_when_it_was_late),
	        cmocka_unit_test(timewait_ends_on_iwarp),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
