/* A link that goes down while its peer keeps the lane full: what was there before counts, what
 * comes after that is not waited for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "transport/engine.h"
#include "transport/local/local.h"
#include "transport/multicast.h"

#define SLOTS 64u

unsigned __real_local_receive(struct engine *engine, uint32_t index);
unsigned __wrap_local_receive(struct engine *engine, uint32_t index);

static struct ring_tx tx;
static unsigned calls, sent, heard;
static bool goes_on;

static void fill(void)
{
	void *record;
	while ((record = ring_reserve(&tx, 8)) != NULL) {
		memset(record, 0xff, 8); /* shorter than a frame: nothing but its number matters */
		ring_publish(&tx);
		sent++;
	}
}

/* Each time the lane is looked at, the peer has filled it again. */
unsigned __wrap_local_receive(struct engine *engine, uint32_t index)
{
	calls++;
	assert_true(calls < 10 * SLOTS); /* it would go on for ever */
	if (goes_on)
		fill();
	unsigned count = __real_local_receive(engine, index);
	heard += count;
	return count;
}

static void told(void *context, enum hdl_event_type type, enum hdl_detail detail, void *object,
                 struct hdl_key key)
{
	(void)detail;
	(void)object;
	(void)key;
	*(unsigned *)context += type == HDL_EVENT_PEER_GONE;
}

static void go_down(bool hostile)
{
	static struct group groups[HDL_MAX_GROUPS];
	static struct counter counters[ENGINE_COUNTER_COUNT];
	static struct qp *qps[1];
	struct link link = {.up = true};
	unsigned gone = 0;
	struct engine engine = {.links = &link,
	                        .link_count = 1,
	                        .groups = groups,
	                        .counters = counters,
	                        .qps = qps,
	                        .sink = {.event = told, .context = &gone}};
	void *memory = aligned_alloc(64, ring_bytes(SLOTS));
	assert_non_null(memory);
	ring_format(memory, SLOTS);
	ring_tx_attach(&tx, memory, SLOTS);
	ring_rx_attach(&link.rx, memory, SLOTS);
	calls = sent = heard = 0;
	goes_on = hostile;
	fill();
	unsigned before = sent;
	engine_link_down(&engine, 0);
	assert_false(link.up);
	assert_int_equal(gone, 1);
	assert_true(heard >= before);
	assert_true(heard <= SLOTS + ENGINE_RX_BATCH);
	free(memory);
}

static void what_was_sent_before_counts(void **state)
{
	(void)state;
	go_down(false);
}

static void whoever_goes_on_sending_is_not_waited_for(void **state)
{
	(void)state;
	go_down(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(what_was_sent_before_counts),
	        cmocka_unit_test(whoever_goes_on_sending_is_not_waited_for),
	};
	return cmocka_run_group_tests_name("link_down", tests, NULL, NULL);
}
