/* Two processes of one machine and an aperture between them, mapped as the same pages (AP9): plain
 * stores appear in both directions without any call, closing revokes for real though the peer keeps
 * its mapping, and the next connection has other pages. A peer that dies takes nothing along. A
 * peer that closes first keeps the pages until the owner, who hears of it first, acts. Where the
 * next peer does not share its pages, the same range is tracked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <heddle/aperture.h>
#include <heddle/eventq.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "end.h"

#define BYTES 8192u
#define BITS  13u
#define WAIT  20000 /* ms */

struct side {
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	struct hdl_aperture *aperture;
	volatile unsigned char *memory, *map;
};

static void side_open(struct side *side, bool with_port)
{
	struct hdl_open_attr open = {.on_node = true};
	struct hdl_aperture_attr attr = {.length = BYTES};
	MUST(hdl_open(&open, &side->adapter));
	if (with_port)
		MUST(hdl_port_open(side->adapter, NULL, &side->port));
	MUST(hdl_aperture_open(side->adapter, &attr, &side->aperture));
	side->memory = hdl_aperture_memory(side->aperture, NULL);
}

static void side_map(struct side *side)
{
	void *map;
	uint64_t length;
	MUST(hdl_aperture_map(side->aperture, BITS, &map, &length));
	side->map = map;
}

static void side_close(struct side *side)
{
	MUST(hdl_aperture_free(side->aperture));
	if (side->port != NULL)
		MUST(hdl_port_close(side->port));
	MUST(hdl_close(side->adapter));
}

/* No call of the library: only memory. */
static bool appears(volatile unsigned char *byte, unsigned char value)
{
	for (int i = 0; i < WAIT && *byte != value; i++)
		usleep(1000);
	return *byte == value;
}

static void tell(int fd, const void *data, size_t bytes)
{
	if (write(fd, data, bytes) != (ssize_t)bytes)
		_exit(9);
}

static void hear(int fd, void *data, size_t bytes)
{
	if (read(fd, data, bytes) != (ssize_t)bytes)
		_exit(8);
}

/* The peer: connects, stores, and keeps a second mapping of the pages. Ends with 0 if all is
 * well. */
static void peer(int in, int out)
{
	struct {
		struct hdl_gid gid;
		uint16_t port;
	} owner;
	struct side side = {0};
	char go;
	hear(in, &owner, sizeof(owner));
	side_open(&side, false);
	MUST(hdl_aperture_connect(side.aperture, &owner.gid, owner.port, WAIT));
	side_map(&side);
	if (side.aperture->shared == NULL)
		_exit(2); /* tracked, not the same pages */
	side.map[1] = 11;
	if (!appears(&side.memory[2], 22))
		_exit(3);
	unsigned char *kept = mremap((void *)(uintptr_t)side.map, 0, BYTES, MREMAP_MAYMOVE);
	if (kept == MAP_FAILED || kept[1] != 11)
		_exit(4);
	tell(out, "k", 1);
	hear(in, &go, 1); /* the owner has closed */
	memset(kept, 'h', BYTES);
	for (int i = 0; i < WAIT && hdl_aperture_state(side.aperture) == HDL_APERTURE_OPEN; i++)
		usleep(1000);
	side.map[5] = 55; /* no signal, and it leads nowhere */
	tell(out, "w", 1);
	hear(in, &go, 1);
	/* Again: the pages are others. */
	MUST(hdl_aperture_close(side.aperture, 0));
	MUST(hdl_aperture_connect(side.aperture, &owner.gid, owner.port, WAIT));
	memset(kept, 'H', BYTES);
	side.map[6] = 66;
	if (!appears(&side.memory[4], 44))
		_exit(6);
	tell(out, "a", 1);
	hear(in, &go, 1);
	raise(SIGKILL);
}

static void ap9_the_same_pages_and_no_longer(void **state)
{
	(void)state;
	int there[2], back[2], status;
	struct side side = {0};
	struct hdl_limits limits;
	char said;
	struct {
		struct hdl_gid gid;
		uint16_t port;
	} own = {0};
	assert_int_equal(pipe(there) | pipe(back), 0);
	pid_t child = fork();
	if (child == 0) {
		close(there[1]);
		close(back[0]);
		peer(there[0], back[1]);
		_exit(7);
	}
	close(there[0]);
	close(back[1]);
	side_open(&side, true);
	MUST(hdl_adapter_query(side.adapter, &limits));
	own.gid = limits.gid;
	own.port = hdl_port_number(side.port);
	tell(there[1], &own, sizeof(own));
	MUST(hdl_aperture_accept(side.aperture, side.port, 0, NULL, WAIT));
	side_map(&side);
	assert_non_null(side.aperture->shared);
	side.map[2] = 22;
	assert_true(appears(&side.memory[1], 11));
	hear(back[0], &said, 1);
	side.memory[100] = 1;
	MUST(hdl_aperture_close(side.aperture, 0));
	unsigned char before[BYTES];
	memcpy(before, (const void *)(uintptr_t)side.memory, BYTES);
	assert_int_equal(before[1], 11);
	assert_int_equal(before[100], 1);
	tell(there[1], "c", 1);
	hear(back[0], &said, 1); /* it has written all it could */
	assert_memory_equal((const void *)(uintptr_t)side.memory, before, BYTES);
	tell(there[1], "c", 1);
	MUST(hdl_aperture_accept(side.aperture, side.port, 0, NULL, WAIT));
	side.map[4] = 44; /* the same range leads to the new pages */
	hear(back[0], &said, 1);
	assert_true(appears(&side.memory[6], 66));
	before[6] = 66;
	assert_memory_equal((const void *)(uintptr_t)side.memory, before, BYTES);
	tell(there[1], "c", 1); /* it kills itself */
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	for (int i = 0; i < WAIT && hdl_aperture_state(side.aperture) == HDL_APERTURE_OPEN; i++)
		usleep(1000);
	assert_int_equal(hdl_aperture_state(side.aperture), HDL_APERTURE_FAILED);
	side.map[3] = 33; /* a dead peer: stores go nowhere */
	assert_int_equal(side.memory[100], 1);
	side_close(&side);
	close(there[1]);
	close(back[0]);
}

/* Where the moving peer finds the owner. */
struct place {
	struct hdl_gid gid;
	uint16_t port;
};

/* Connects, maps the same pages, and then connects to memory that nobody can map. */
static void moving_peer(int in, int out)
{
	struct place owner;
	struct side side = {0};
	char go;
	hear(in, &owner, sizeof(owner));
	side_open(&side, false);
	MUST(hdl_aperture_connect(side.aperture, &owner.gid, owner.port, WAIT));
	side_map(&side);
	if (side.aperture->shared == NULL)
		_exit(2);
	volatile unsigned char *before = side.map;
	side.map[7] = 1;
	MUST(hdl_aperture_close(side.aperture, 0));
	tell(out, "m", 1);
	hear(in, &go, 1);
	MUST(hdl_aperture_connect(side.aperture, &owner.gid, owner.port, WAIT));
	if (side.map[8] != 88)
		_exit(3);
	side.map[7] = 77; /* arrives without any call */
	side_map(&side);
	if (side.map != before || side.aperture->shared != NULL)
		_exit(4);
	hear(in, &go, 1);
	side_close(&side);
	_exit(0);
}

static void ap9_a_range_stays_when_its_peer_is_elsewhere(void **state)
{
	(void)state;
	static unsigned char memory[BYTES]; /* the application's: not shared */
	struct hdl_aperture_attr attr = {.memory = memory, .length = BYTES};
	int there[2], back[2], status;
	struct side side = {0};
	struct hdl_aperture *other;
	struct hdl_limits limits;
	struct place own = {0};
	char said;
	assert_int_equal(pipe(there) | pipe(back), 0);
	pid_t child = fork();
	if (child == 0)
		moving_peer(there[0], back[1]);
	side_open(&side, true);
	MUST(hdl_adapter_query(side.adapter, &limits));
	own.gid = limits.gid;
	own.port = hdl_port_number(side.port);
	tell(there[1], &own, sizeof(own));
	MUST(hdl_aperture_accept(side.aperture, side.port, 0, NULL, WAIT));
	hear(back[0], &said, 1);
	assert_int_equal(side.memory[7], 1);
	memory[8] = 88;
	MUST(hdl_aperture_open(side.adapter, &attr, &other));
	tell(there[1], "c", 1);
	MUST(hdl_aperture_accept(other, side.port, 0, NULL, WAIT));
	bool came = appears(&memory[7], 77);
	tell(there[1], "c", 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(came);
	assert_int_equal(side.memory[7], 1);
	MUST(hdl_aperture_free(other));
	side_close(&side);
	for (int i = 0; i < 2; i++) {
		close(there[i]);
		close(back[i]);
	}
}

static uint16_t next_event(struct hdl_eventq *queue)
{
	struct hdl_port_event event;
	MUST(hdl_eventq_wait(queue, WAIT));
	assert_int_equal(hdl_eventq_take(queue, &event, 1), 1);
	return event.type;
}

/* A range that is longer than the peer's memory: what is stored behind that is reported. */
static void ap9_a_store_behind_the_peers_memory(void **state)
{
	(void)state;
	const struct hdl_port_rule rule = {.action = HDL_RULE_ACCEPT};
	struct hdl_adapter *adapters[2];
	struct hdl_limits limits;
	struct hdl_port *port, *own;
	struct hdl_eventq *queue;
	struct hdl_aperture *ends[2];
	struct hdl_port_event event;
	void *range;
	for (int i = 0; i < 2; i++)
		MUST(hdl_open(&(struct hdl_open_attr){.on_node = true}, &adapters[i]));
	MUST(hdl_adapter_query(adapters[0], &limits));
	MUST(hdl_port_open(adapters[0], NULL, &port));
	MUST(hdl_port_open(adapters[1], NULL, &own));
	MUST(hdl_eventq_open(own, NULL, &queue));
	MUST(hdl_port_rules(port, &rule, 1));
	MUST(hdl_aperture_open(adapters[0], &(struct hdl_aperture_attr){.length = 4096}, &ends[0]));
	MUST(hdl_aperture_open(adapters[1], &(struct hdl_aperture_attr){.port = own}, &ends[1]));
	MUST(hdl_port_offer(port, ends[0], NULL));
	MUST(hdl_aperture_connect(ends[1], &limits.gid, hdl_port_number(port), WAIT));
	MUST(hdl_aperture_map(ends[1], 24, &range, NULL));
	volatile uint8_t *bytes = range;
	volatile uint8_t *memory = hdl_aperture_memory(ends[0], NULL);
	bytes[4095] = 1;
	MUST(hdl_aperture_flush(ends[1], HDL_FLUSH_PLACED, WAIT));
	assert_int_equal(memory[4095], 1); /* the same pages */
	MUST(hdl_aperture_check(ends[1]));
	for (unsigned round = 0; round < 2; round++) {
		bytes[round == 0 ? 4096 : (1u << 24) - 1] = 1;
		if (round == 0)
			MUST(hdl_aperture_flush(ends[1], HDL_FLUSH_PLACED, WAIT));
		assert_int_equal(hdl_aperture_check(ends[1]), -HDL_EIO);
		assert_int_equal(hdl_aperture_reason(ends[1]), HDL_REASON_EXTENT);
		assert_int_equal(bytes[round == 0 ? 4096 : (1u << 24) - 1], 0);
		MUST(hdl_aperture_check(ends[1]));
		do
			MUST(hdl_eventq_wait(queue, WAIT));
		while (hdl_eventq_take(queue, &event, 1) != 1 || event.type != HDL_PORT_ERROR);
		assert_int_equal(event.flags, HDL_REASON_EXTENT);
	}
	assert_int_equal(hdl_aperture_state(ends[1]), HDL_APERTURE_OPEN);
	for (int i = 0; i < 2; i++)
		MUST(hdl_aperture_free(ends[i]));
	MUST(hdl_eventq_close(queue));
	MUST(hdl_port_close(own));
	MUST(hdl_port_close(port));
	for (int i = 0; i < 2; i++)
		MUST(hdl_close(adapters[i]));
}

/* A peer that keeps the pages after its CLOSE: the owner hears of the CLOSE first, and then takes
 * the pages away by closing, or by handing the aperture to the next peer. */
static void ap9_a_peer_that_keeps_its_mapping(void **state)
{
	(void)state;
	const struct hdl_port_rule rule = {.action = HDL_RULE_ACCEPT};
	struct hdl_adapter *adapters[2];
	struct hdl_limits limits;
	struct hdl_port *port;
	struct hdl_eventq *queue;
	struct hdl_aperture *ends[2];
	void *range;
	for (int i = 0; i < 2; i++)
		MUST(hdl_open(&(struct hdl_open_attr){.on_node = true}, &adapters[i]));
	MUST(hdl_adapter_query(adapters[0], &limits));
	MUST(hdl_port_open(adapters[0], NULL, &port));
	MUST(hdl_eventq_open(port, NULL, &queue));
	MUST(hdl_port_rules(port, &rule, 1));
	MUST(hdl_aperture_open(
	        adapters[0], &(struct hdl_aperture_attr){.length = 4096, .port = port}, &ends[0]));
	for (int by_close = 0; by_close < 2; by_close++) {
		MUST(hdl_aperture_open(adapters[1], &(struct hdl_aperture_attr){.length = 4096},
		                       &ends[1]));
		volatile uint8_t *memory = hdl_aperture_memory(ends[0], NULL);
		MUST(hdl_port_offer(port, ends[0], NULL));
		MUST(hdl_aperture_connect(ends[1], &limits.gid, hdl_port_number(port), WAIT));
		assert_int_equal(next_event(queue), HDL_PORT_ACCEPT);
		MUST(hdl_aperture_map(ends[1], 12, &range, NULL));
		/* The same pages once more, which the adapter does not know of. */
		volatile uint8_t *kept = mremap(range, 0, 4096, MREMAP_MAYMOVE);
		assert_ptr_not_equal(kept, MAP_FAILED);
		kept[0] = 1;
		assert_int_equal(memory[0], 1);
		memory[1] = 7;
		MUST(hdl_aperture_close(ends[1], WAIT));
		assert_int_equal(next_event(queue), HDL_PORT_CLOSE);
		assert_int_equal(hdl_aperture_state(ends[0]), HDL_APERTURE_CLOSED);
		if (by_close != 0) {
			MUST(hdl_aperture_close(ends[0], 0));
		} else {
			MUST(hdl_port_offer(port, ends[0], NULL));
			MUST(hdl_aperture_close(ends[0], 0)); /* withdraws the offer */
		}
		kept[0] = 2;
		assert_int_equal(memory[0], 1);
		memory[1] = 8;
		assert_int_equal(kept[1], 7);
		munmap((void *)(uintptr_t)kept, 4096);
		MUST(hdl_aperture_free(ends[1]));
	}
	MUST(hdl_aperture_free(ends[0]));
	MUST(hdl_eventq_close(queue));
	MUST(hdl_port_close(port));
	for (int i = 0; i < 2; i++)
		MUST(hdl_close(adapters[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ap9_the_same_pages_and_no_longer),
	        cmocka_unit_test(ap9_a_range_stays_when_its_peer_is_elsewhere),
	        cmocka_unit_test(ap9_a_store_behind_the_peers_memory),
	        cmocka_unit_test(ap9_a_peer_that_keeps_its_mapping),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
