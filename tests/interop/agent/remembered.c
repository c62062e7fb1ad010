/* An address handle for a node that the agent has told of before is made without asking it again,
 * until that may have changed: a process of the node that we are connected to has ended, or the
 * agent has. Two nodes of one agent, a process each. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "end.h"

#define HANDLES 200
#define WAIT_MS 20000

static struct end here;
static char names[2][40];

#define ALONE "" /* it does not connect */

/* A process of the other node: tells its card, connects to ours unless it is ALONE, and stays. */
static void stay(int talk, const char *node, const char *address)
{
	struct end end;
	struct hdl_adapter *adapter;
	struct hdl_open_attr attr = {.on_node = true, .node = node};
	MUST(hdl_open(&attr, &adapter));
	end_open_on(&end, adapter, 4096, 16);
	if (end_meet(&end, talk, talk) && address == NULL)
		end_connect(&end);
	char done = 'c';
	must(write(talk, &done, 1) == 1 ? 0 : -HDL_EIO, "write");
	while (read(talk, &done, 1) > 0)
		;
	_exit(0);
}

static int make_ah(const struct hdl_gid *gid)
{
	struct hdl_ah *ah;
	struct hdl_ah_attr attr = {.dgid = *gid, .is_global = true, .hop_limit = 1, .port_num = 1};
	int result = hdl_ah_create(here.pd, &attr, &ah);
	if (result == 0)
		MUST(hdl_ah_destroy(ah));
	return result;
}

/* How often this thread waits while it makes HANDLES of them. A question is a wait. */
static long waits(const struct hdl_gid *gid)
{
	struct rusage before, after;
	getrusage(RUSAGE_THREAD, &before);
	for (int i = 0; i < HANDLES; i++)
		assert_int_equal(make_ah(gid), 0);
	getrusage(RUSAGE_THREAD, &after);
	return after.ru_nvcsw - before.ru_nvcsw;
}

static struct child start(const char *alone)
{
	struct child child = child_start(stay, names[1], alone);
	assert_true(end_meet(&here, child.talk, child.talk));
	char done;
	assert_int_equal(read(child.talk, &done, 1), 1);
	return child;
}

static void test_asked_once(void **state)
{
	(void)state;
	struct child child = start(ALONE);
	assert_int_equal(make_ah(&here.peer.gid), 0);
	assert_true(waits(&here.peer.gid) < HANDLES / 4);
	assert_true(waits(&here.mine.gid) < HANDLES / 4);
	child_kill(&child);
}

/* Does making a handle come to say that the node is not there? Deaths are heard of in their own
 * time. */
static bool unreachable(const struct hdl_gid *gid)
{
	double until = now_ms() + WAIT_MS;
	int result;
	while ((result = make_ah(gid)) == 0 && now_ms() < until)
		usleep(2000);
	return result == -HDL_EHOSTUNREACH;
}

static void reset(void)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_RESET};
	MUST(hdl_qp_modify(here.qp, &attr, HDL_QP_STATE));
}

static void test_a_node_that_has_gone(void **state)
{
	(void)state;
	struct child child = start(NULL);
	struct hdl_gid gid = here.peer.gid;
	end_connect(&here);
	assert_int_equal(make_ah(&gid), 0);
	child_kill(&child);
	assert_true(unreachable(&gid));
	reset();
	/* And is there again. */
	child = start(NULL);
	assert_memory_equal(&gid, &here.peer.gid, sizeof(gid));
	assert_int_equal(make_ah(&gid), 0);
	assert_true(waits(&gid) < HANDLES / 4);
	child_kill(&child);
}

static void test_an_agent_that_has_gone(void **state)
{
	(void)state;
	struct child child = start(ALONE);
	struct hdl_gid gid = here.peer.gid;
	assert_int_equal(make_ah(&gid), 0);
	/* Nobody is connected to it, and the agent that would know goes with it. */
	kill_agent();
	child_kill(&child);
	assert_true(unreachable(&gid));
	child = start(ALONE);
	assert_int_equal(make_ah(&gid), 0);
	child_kill(&child);
}

static int begin(void **state)
{
	struct hdl_adapter *adapter;
	(void)state;
	for (unsigned i = 0; i < 2; i++)
		snprintf(names[i], sizeof(names[i]), "remembered-%d-%u", (int)getpid(), i);
	struct hdl_open_attr attr = {.on_node = true, .node = names[0]};
	MUST(hdl_open(&attr, &adapter));
	end_open_on(&here, adapter, 4096, 16);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_asked_once),
	        cmocka_unit_test(test_a_node_that_has_gone),
	        cmocka_unit_test(test_an_agent_that_has_gone),
	};
	return cmocka_run_group_tests(tests, begin, NULL);
}
