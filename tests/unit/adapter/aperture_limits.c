/* The limits of apertures that are named in heddle/aperture.h, each reached through the public
 * calls: one more is refused, and after one is given back there is room again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <heddle/aperture.h>
#include <heddle/eventq.h>

#define PORT  77u
#define WAIT  20000
#define BYTES 8192u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* A million apertures in one process, which may have 65,530 mappings. */
static void ap1_a_million_apertures(void **state)
{
	(void)state;
	struct hdl_adapter *adapter;
	static struct hdl_aperture *all[HDL_MAX_APERTURES];
	struct hdl_aperture *more;
	if (SANITIZED)
		skip(); /* it takes several gigabytes there */
	assert_int_equal(hdl_open(NULL, &adapter), 0);
	for (uint32_t i = 0; i < HDL_MAX_APERTURES; i++)
		if (hdl_aperture_open(adapter, NULL, &all[i]) != 0)
			fail_msg("aperture %u of %u", i, HDL_MAX_APERTURES);
	assert_int_equal(hdl_aperture_open(adapter, NULL, &more), -HDL_ENOMEM);
	assert_int_equal(hdl_aperture_free(all[12345]), 0);
	assert_int_equal(hdl_aperture_open(adapter, NULL, &all[12345]), 0);
	for (uint32_t i = 0; i < HDL_MAX_APERTURES; i++)
		assert_int_equal(hdl_aperture_free(all[i]), 0);
	assert_int_equal(hdl_close(adapter), 0);
}

static uint32_t descriptors(void)
{
	uint32_t count = 0;
	DIR *dir = opendir("/proc/self/fd");
	assert_non_null(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

static uint32_t mappings(void)
{
	uint32_t count = 0;
	int byte;
	FILE *file = fopen("/proc/self/maps", "r");
	assert_non_null(file);
	while ((byte = getc(file)) != EOF)
		count += byte == '\n';
	fclose(file);
	return count;
}

#define RANGES 40000u
#define USED   200u /* of them */

/* Many ranges in one process, which may have 1,024 descriptors and 65,530 mappings: neighbours
 * share a mapping, and all of them one descriptor or a few. Some of them are connected, and what is
 * stored there arrives, by itself as well. */
static void ap2_tens_of_thousands_of_ranges(void **state)
{
	static struct hdl_aperture *all[RANGES], *ends[USED];
	static uint32_t *ranges[RANGES];
	struct hdl_adapter *adapters[2];
	struct hdl_port *port;
	struct hdl_port_attr attr = {.port = PORT};
	struct hdl_aperture_attr memory = {.length = 4096};
	struct hdl_limits limits;
	(void)state;
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (SANITIZED || uffd < 0)
		skip(); /* other trackers have fewer ranges */
	close(uffd);
	for (int i = 0; i < 2; i++)
		assert_int_equal(hdl_open(NULL, &adapters[i]), 0);
	assert_int_equal(hdl_join(adapters[0], adapters[1]), 0);
	assert_int_equal(hdl_adapter_query(adapters[1], &limits), 0);
	assert_int_equal(hdl_port_open(adapters[1], &attr, &port), 0);
	uint32_t fds = descriptors(), maps = mappings();
	for (uint32_t i = 0; i < RANGES; i++) {
		void *range;
		if (hdl_aperture_open(adapters[0], NULL, &all[i]) != 0 ||
		    hdl_aperture_map(all[i], 12, &range, NULL) != 0)
			fail_msg("range %u of %u", i, RANGES);
		ranges[i] = range;
	}
	assert_true(descriptors() - fds < 40);
	assert_true(mappings() - maps < 1000);
	for (uint32_t i = 0; i < RANGES; i++) {
		uint64_t offset;
		if (hdl_aperture_find(adapters[0], ranges[i] + 5, &offset) != all[i] ||
		    offset != 20)
			fail_msg("range %u is not found", i);
	}
	for (uint32_t i = 0; i < USED; i++) {
		struct hdl_aperture *from = all[i * (RANGES / USED)];
		assert_int_equal(hdl_aperture_open(adapters[1], &memory, &ends[i]), 0);
		assert_int_equal(hdl_aperture_connect(from, &limits.gid, PORT, 0), -HDL_EAGAIN);
		assert_int_equal(hdl_aperture_accept(ends[i], port, 0, NULL, WAIT), 0);
		assert_int_equal(hdl_aperture_wait(from, WAIT), 0);
	}
	for (uint32_t i = 0; i < USED; i++)
		ranges[i * (RANGES / USED)][i] = 1000 + i;
	assert_int_equal(hdl_aperture_flush(all[0], HDL_FLUSH_PLACED, WAIT), 0);
	for (uint32_t i = 0; i < USED; i++) {
		const volatile uint32_t *came = hdl_aperture_memory(ends[i], NULL);
		for (uint32_t k = 0; k < 1000000 && came[i] != 1000 + i; k++) {
			(void)hdl_progress(adapters[0]);
			(void)hdl_progress(adapters[1]);
		}
		assert_int_equal(came[i], 1000 + i);
		assert_int_equal(hdl_aperture_free(ends[i]), 0);
	}
	/* Memory that was used is clear for the next range. */
	assert_int_equal(hdl_aperture_free(all[0]), 0);
	assert_int_equal(hdl_aperture_open(adapters[0], NULL, &all[0]), 0);
	void *again;
	assert_int_equal(hdl_aperture_map(all[0], 12, &again, NULL), 0);
	assert_int_equal(*(const uint32_t *)again, 0);
	for (uint32_t i = 0; i < RANGES; i++)
		assert_int_equal(hdl_aperture_free(all[i]), 0);
	assert_true(descriptors() <= fds && mappings() < maps + 20);
	assert_int_equal(hdl_port_close(port), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(hdl_close(adapters[i]), 0);
}

static void ap3_ports(void **state)
{
	(void)state;
	struct hdl_adapter *adapter;
	static struct hdl_port *all[HDL_MAX_PORTS + 1];
	struct hdl_port_attr attr = {.port = 1};
	if (SANITIZED)
		skip();
	assert_int_equal(hdl_open(NULL, &adapter), 0);
	for (; attr.port <= HDL_MAX_PORTS; attr.port++)
		assert_int_equal(hdl_port_open(adapter, &attr, &all[attr.port - 1]), 0);
	assert_int_equal(hdl_port_open(adapter, &attr, &all[HDL_MAX_PORTS]), -HDL_ENOMEM);
	assert_int_equal(hdl_port_close(all[5]), 0);
	assert_int_equal(hdl_port_open(adapter, &attr, &all[5]), 0);
	for (uint32_t i = 0; i < HDL_MAX_PORTS; i++)
		assert_int_equal(hdl_port_close(all[i]), 0);
	assert_int_equal(hdl_close(adapter), 0);
}

static void ap3_offers_of_a_port(void **state)
{
	(void)state;
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	static struct hdl_aperture *all[HDL_MAX_PORT_OFFERS + 1];
	struct hdl_port_attr attr = {.port = PORT};
	assert_int_equal(hdl_open(NULL, &adapter), 0);
	assert_int_equal(hdl_port_open(adapter, &attr, &port), 0);
	for (uint32_t i = 0; i <= HDL_MAX_PORT_OFFERS; i++) {
		assert_int_equal(hdl_aperture_open(adapter, NULL, &all[i]), 0);
		assert_int_equal(hdl_port_offer(port, all[i], NULL),
		                 i < HDL_MAX_PORT_OFFERS ? 0 : -HDL_ENOSPC);
	}
	assert_int_equal(hdl_aperture_close(all[7], 0), 0);
	assert_int_equal(hdl_port_offer(port, all[HDL_MAX_PORT_OFFERS], NULL), 0);
	for (uint32_t i = 0; i <= HDL_MAX_PORT_OFFERS; i++)
		assert_int_equal(hdl_aperture_free(all[i]), 0);
	assert_int_equal(hdl_port_close(port), 0);
	assert_int_equal(hdl_close(adapter), 0);
}

/* Two adapters, and a connection between them. */
struct pair {
	struct hdl_adapter *adapters[2];
	struct hdl_port *port;
	struct hdl_eventq *queue;
	struct hdl_aperture *from, *to;
};

static int pair_open(void **state)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	struct hdl_port_attr attr = {.port = PORT};
	struct hdl_port_rule rule = {.action = HDL_RULE_ACCEPT};
	struct hdl_aperture_attr memory = {.length = BYTES};
	struct hdl_limits limits;
	/* A thread would do something in place of the test when that is held up. */
	const struct hdl_open_attr idle = {.no_thread = true};
	for (int i = 0; i < 2; i++)
		assert_int_equal(hdl_open(&idle, &pair->adapters[i]), 0);
	assert_int_equal(hdl_join(pair->adapters[0], pair->adapters[1]), 0);
	assert_int_equal(hdl_adapter_query(pair->adapters[1], &limits), 0);
	assert_int_equal(hdl_port_open(pair->adapters[1], &attr, &pair->port), 0);
	assert_int_equal(hdl_eventq_open(pair->port, NULL, &pair->queue), 0);
	assert_int_equal(hdl_port_rules(pair->port, &rule, 1), 0);
	memory.port = pair->port;
	assert_int_equal(hdl_aperture_open(pair->adapters[0], NULL, &pair->from), 0);
	assert_int_equal(hdl_aperture_open(pair->adapters[1], &memory, &pair->to), 0);
	assert_int_equal(hdl_port_offer(pair->port, pair->to, NULL), 0);
	int result = hdl_aperture_connect(pair->from, &limits.gid, PORT, 0);
	for (int i = 0; i < WAIT && result == -HDL_EAGAIN; i++) {
		(void)hdl_progress(pair->adapters[1]);
		result = hdl_aperture_wait(pair->from, 1);
	}
	assert_int_equal(result, 0);
	*state = pair;
	return 0;
}

static int pair_close(void **state)
{
	struct pair *pair = *state;
	assert_int_equal(hdl_eventq_close(pair->queue), 0);
	assert_int_equal(hdl_aperture_free(pair->from), 0);
	assert_int_equal(hdl_aperture_free(pair->to), 0);
	assert_int_equal(hdl_port_close(pair->port), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(hdl_close(pair->adapters[i]), 0);
	free(pair);
	return 0;
}

/* Store pieces of @bytes while the peer does nothing: how many are kept? Then all arrive. */
static uint32_t stores_kept(struct pair *pair, uint32_t bytes)
{
	static uint8_t data[BYTES];
	uint32_t count = 0;
	int result;
	memset(data, (int)bytes, sizeof(data));
	while ((result = hdl_aperture_store(pair->from, 0, data, bytes, 0)) == 0)
		count++;
	assert_int_equal(result, -HDL_EAGAIN);
	for (int i = 0; i < WAIT && hdl_aperture_check(pair->from) == -HDL_EAGAIN; i++)
		for (int side = 0; side < 2; side++)
			(void)hdl_progress(pair->adapters[side]);
	assert_int_equal(hdl_aperture_check(pair->from), 0);
	assert_memory_equal(hdl_aperture_memory(pair->to, NULL), data, bytes);
	return count;
}

static void ap4_packets_that_are_kept(void **state)
{
	assert_int_equal(stores_kept(*state, 4096), HDL_APERTURE_KEPT_BYTES / 4096);
	assert_int_equal(stores_kept(*state, 1), HDL_APERTURE_KEPT);
}

static void ap7_bytes_of_an_event(void **state)
{
	struct pair *pair = *state;
	struct hdl_port_event event;
	static const uint8_t data[HDL_APERTURE_EVENT_BYTES + 1] = {1, 2, 3};
	assert_int_equal(hdl_aperture_event(pair->from, 5, data, sizeof(data), WAIT), -HDL_EINVAL);
	assert_int_equal(hdl_aperture_event(pair->from, 5, data, sizeof(data) - 1, WAIT), 0);
	int taken = 0;
	for (int i = 0; i < WAIT && (taken != 1 || event.type != HDL_PORT_DATA); i++) {
		(void)hdl_progress(pair->adapters[0]);
		taken = hdl_eventq_take(pair->queue, &event, 1);
	}
	assert_int_equal(event.type, HDL_PORT_DATA);
	assert_int_equal(event.flags, HDL_APERTURE_EVENT_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ap1_a_million_apertures),
	        cmocka_unit_test(ap2_tens_of_thousands_of_ranges),
	        cmocka_unit_test(ap3_ports),
	        cmocka_unit_test(ap3_offers_of_a_port),
	        cmocka_unit_test_setup_teardown(ap4_packets_that_are_kept, pair_open, pair_close),
	        cmocka_unit_test_setup_teardown(ap7_bytes_of_an_event, pair_open, pair_close),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
