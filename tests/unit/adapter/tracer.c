/* Who may reach into this process: one peer by name, everybody only with several of them, nobody
 * when the last has gone. The kernel is stood in for, since not every one has Yama. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/prctl.h>

#include "adapter/adapter.h"

int __wrap_prctl(int option, unsigned long whom, unsigned long b, unsigned long c, unsigned long d);

static unsigned long allowed;
static int answer;

int __wrap_prctl(int option, unsigned long whom, unsigned long b, unsigned long c, unsigned long d)
{
	assert_int_equal(option, PR_SET_PTRACER);
	assert_int_equal(b | c | d, 0);
	allowed = whom;
	return answer;
}

static void one_peer_is_named(void **state)
{
	(void)state;
	assert_true(tracer_allow(100));
	assert_int_equal(allowed, 100);
	assert_true(tracer_allow(100)); /* another adapter of it */
	assert_int_equal(allowed, 100);
	tracer_forbid();
	assert_int_equal(allowed, 100);
	tracer_forbid();
	assert_int_equal(allowed, 0);
}

static void several_are_everybody_until_they_have_gone(void **state)
{
	(void)state;
	tracer_allow(100);
	tracer_allow(200);
	assert_true(allowed == (unsigned long)PR_SET_PTRACER_ANY);
	tracer_allow(100);
	assert_true(allowed == (unsigned long)PR_SET_PTRACER_ANY);
	tracer_forbid();
	tracer_forbid();
	tracer_forbid();
	assert_int_equal(allowed, 0);
	tracer_allow(300);
	assert_int_equal(allowed, 300);
	tracer_forbid();
}

static void a_kernel_without_such_rules(void **state)
{
	(void)state;
	answer = -1;
	assert_false(tracer_allow(100));
	tracer_forbid();
	answer = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(one_peer_is_named),
	        cmocka_unit_test(several_are_everybody_until_they_have_gone),
	        cmocka_unit_test(a_kernel_without_such_rules),
	};
	return cmocka_run_group_tests_name("tracer", tests, NULL, NULL);
}
