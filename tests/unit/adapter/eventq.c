/* Event queues of ports in an application (AP7): taking, waiting, descriptors, sets of ten thousand
 * queues, full queues. The test is the deliverer, under the drive lock, as packets would be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/adapter.h"

#define SOON_MS 20000

static struct hdl_adapter *adapter;

static int setup(void **state)
{
	(void)state;
	struct hdl_open_attr attr = {.max_mr = 64, .max_qp = 16};
	struct adapter_env env = {.clock = clock_real()};
	return adapter_open(&attr, &env, &adapter);
}

static int teardown(void **state)
{
	(void)state;
	return hdl_close(adapter);
}

static enum eventq_result deliver(uint16_t port, uint16_t type, uint64_t value)
{
	struct hdl_port_event event = {.type = type, .value = value};
	adapter_lock(adapter);
	enum eventq_result result = eventq_deliver(adapter, port, &event, NULL, 0);
	adapter_unlock(adapter);
	return result;
}

static enum eventq_result deliver_var(uint16_t port, const void *data, uint64_t bytes)
{
	struct hdl_port_event event = {.type = HDL_PORT_VAR};
	adapter_lock(adapter);
	enum eventq_result result = eventq_deliver(adapter, port, &event, data, bytes);
	adapter_unlock(adapter);
	return result;
}

static struct hdl_eventq *open_queue(uint16_t port, const struct hdl_eventq_attr *attr)
{
	struct hdl_eventq *queue;
	assert_int_equal(eventq_open(adapter, port, attr, &queue), 0);
	return queue;
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	return poll(&poll_fd, 1, timeout_ms) > 0;
}

static void ap7_events_and_data(void **state)
{
	(void)state;
	struct hdl_port_event events[8];
	char data[16];
	size_t bytes;
	assert_int_equal(deliver(7, HDL_PORT_DATA, 1), EVENTQ_NO_PORT);
	struct hdl_eventq *queue = open_queue(7, &(struct hdl_eventq_attr){.context = data});
	struct hdl_eventq *second;
	assert_int_equal(eventq_open(adapter, 7, NULL, &second), -HDL_EBUSY);
	assert_ptr_equal(hdl_eventq_context(queue), data);
	assert_int_equal(hdl_eventq_take(queue, events, 8), 0);
	assert_int_equal(deliver(7, HDL_PORT_ERROR, 5), EVENTQ_PLACED);
	assert_int_equal(deliver_var(7, "twelve bytes", 12), EVENTQ_PLACED);
	assert_int_equal(hdl_eventq_take(queue, events, 8), 2);
	assert_int_equal(events[0].type, HDL_PORT_ERROR);
	assert_int_equal(events[0].port, 7);
	assert_int_equal(events[1].words, 3);
	assert_int_equal(hdl_eventq_read(queue, &events[0], data, sizeof(data), &bytes),
	                 -HDL_EINVAL);
	assert_int_equal(hdl_eventq_read(queue, &events[1], data, 11, &bytes), -HDL_EMSGSIZE);
	assert_int_equal(bytes, 12);
	assert_int_equal(hdl_eventq_read(queue, &events[1], data, sizeof(data), &bytes), 0);
	assert_memory_equal(data, "twelve bytes", 12);
	assert_int_equal(hdl_eventq_read(queue, &events[1], data, sizeof(data), &bytes),
	                 -HDL_ESTALE);
	assert_int_equal(hdl_close(adapter), -HDL_EBUSY);
	assert_int_equal(hdl_eventq_close(queue), 0);
	assert_int_equal(deliver(7, HDL_PORT_DATA, 1), EVENTQ_NO_PORT);
}

static void ap7_full_is_kept_back_or_counted(void **state)
{
	(void)state;
	struct hdl_eventq *queue = open_queue(7, &(struct hdl_eventq_attr){.events = 32});
	struct hdl_eventq_status status;
	struct hdl_port_event events[64];
	uint32_t placed = 0, waiting;
	bool blocked;
	while (deliver(7, HDL_PORT_DATA, placed) == EVENTQ_PLACED)
		placed++;
	assert_int_equal(placed, 32 - 2 * EVRING_OWN_ROOM);
	assert_int_equal(deliver(7, HDL_PORT_CONNECT, 100), EVENTQ_PLACED);
	assert_int_equal(deliver(7, HDL_PORT_ERROR, 101), EVENTQ_PLACED);
	adapter_lock(adapter);
	eventq_lose(adapter, 7);
	eventq_lose(adapter, 7);
	eventq_lose(adapter, 8); /* no queue there */
	assert_true(eventq_look(adapter, 7, &waiting, &blocked));
	assert_false(eventq_look(adapter, 8, &waiting, &blocked));
	adapter_unlock(adapter);
	assert_int_equal(waiting, placed + 2);
	assert_false(blocked);
	assert_int_equal(hdl_eventq_query(queue, &status), 0);
	assert_int_equal(status.lost, 2);
	assert_int_equal(status.kept, 1);
	assert_int_equal(hdl_eventq_take(queue, events, 64), placed + 2);
	assert_int_equal(deliver(7, HDL_PORT_DATA, 1), EVENTQ_PLACED);
	assert_int_equal(hdl_eventq_take(queue, events, 64), 2);
	assert_int_equal(events[0].type, HDL_PORT_LOST);
	assert_int_equal(events[0].value, 2);
	char large[HDL_EVENTQ_DEFAULT_WORDS * 8];
	assert_int_equal(deliver_var(7, large, sizeof(large)), EVENTQ_TOO_LONG);
	hdl_eventq_close(queue);
}

static void sizes_and_arguments(void **state)
{
	(void)state;
	struct hdl_eventq *queue;
	struct hdl_port_event event;
	struct hdl_eventq_attr large = {.events = HDL_EVENTQ_MAX_EVENTS + 1},
	                       wordy = {.words = HDL_EVENTQ_MAX_WORDS + 1};
	assert_int_equal(eventq_open(adapter, 1, &large, &queue), -HDL_EINVAL);
	assert_int_equal(eventq_open(adapter, 1, &wordy, &queue), -HDL_EINVAL);
	assert_int_equal(hdl_eventq_take(NULL, &event, 1), -HDL_EINVAL);
	assert_int_equal(hdl_eventq_wait(NULL, 0), -HDL_EINVAL);
	queue = open_queue(1, &(struct hdl_eventq_attr){.events = HDL_EVENTQ_MAX_EVENTS});
	assert_int_equal(hdl_eventq_take(queue, &event, 0), -HDL_EINVAL);
	hdl_eventq_close(queue);
}

static void the_descriptor_tells_of_events(void **state)
{
	(void)state;
	struct hdl_eventq *queue = open_queue(9, NULL);
	struct hdl_port_event events[8];
	assert_int_equal(deliver(9, HDL_PORT_DATA, 1), EVENTQ_PLACED);
	int fd = hdl_eventq_fd(queue); /* it tells of what is there */
	assert_true(fd >= 0);
	assert_true(readable(fd, 0));
	assert_int_equal(hdl_eventq_wait(queue, 0), 0);
	assert_int_equal(hdl_eventq_take(queue, events, 8), 1);
	assert_false(readable(fd, 0));
	assert_int_equal(hdl_eventq_wait(queue, 0), -HDL_EAGAIN);
	assert_int_equal(hdl_eventq_wait(queue, 10), -HDL_EAGAIN);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(deliver(9, HDL_PORT_DATA, i), EVENTQ_PLACED);
	assert_true(readable(fd, 0));
	assert_int_equal(hdl_eventq_take(queue, events, 2), 2);
	assert_true(readable(fd, 0)); /* one is left */
	assert_int_equal(hdl_eventq_take(queue, events, 8), 1);
	assert_false(readable(fd, 0));
	struct hdl_eventq_status status;
	hdl_eventq_query(queue, &status);
	assert_int_equal(status.blocked, 1);
	assert_int_equal(status.interrupts, 2); /* one per arming, not one per event */
	hdl_eventq_close(queue);
}

static struct hdl_eventq_status query(struct hdl_eventq *queue)
{
	struct hdl_eventq_status status;
	assert_int_equal(hdl_eventq_query(queue, &status), 0);
	return status;
}

static void *wait_thread(void *context)
{
	return (void *)(intptr_t)hdl_eventq_wait(context, SOON_MS);
}

/* The IRQ bit says that a thread sleeps, or will: not that one has slept. */
static void ap7_after_a_wait_nobody_is_blocked(void **state)
{
	(void)state;
	struct hdl_eventq *queue = open_queue(9, NULL);
	struct hdl_port_event event;
	pthread_t thread;
	assert_int_equal(hdl_eventq_wait(queue, 5), -HDL_EAGAIN);
	assert_int_equal(query(queue).blocked, 0);
	assert_int_equal(hdl_eventq_wait(queue, 0), -HDL_EAGAIN);
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(deliver(9, HDL_PORT_DATA, i), EVENTQ_PLACED);
		assert_int_equal(hdl_eventq_take(queue, &event, 1), 1);
		assert_int_equal(hdl_eventq_take(queue, &event, 1), 0);
	}
	assert_int_equal(query(queue).interrupts, 0);
	assert_int_equal(query(queue).blocked, 0);
	/* A wait with a result ends as well. */
	assert_int_equal(deliver(9, HDL_PORT_DATA, 5), EVENTQ_PLACED);
	assert_int_equal(hdl_eventq_wait(queue, SOON_MS), 0);
	assert_int_equal(hdl_eventq_wait(queue, SOON_MS), 0); /* it has not been taken */
	assert_int_equal(hdl_eventq_take(queue, &event, 1), 1);
	assert_int_equal(hdl_eventq_wait(queue, 0), -HDL_EAGAIN);
	/* Even if the last one was taken by a call that did not look for more. */
	assert_int_equal(pthread_create(&thread, NULL, wait_thread, queue), 0);
	while (query(queue).blocked == 0)
		sched_yield();
	assert_int_equal(deliver(9, HDL_PORT_DATA, 6), EVENTQ_PLACED);
	pthread_join(thread, NULL);
	assert_int_equal(hdl_eventq_take(queue, &event, 1), 1);
	assert_int_equal(hdl_eventq_wait(queue, 5), -HDL_EAGAIN);
	assert_int_equal(query(queue).blocked, 0);
	/* Whoever has the descriptor may sleep at any time. */
	int fd = hdl_eventq_fd(queue);
	assert_int_equal(query(queue).blocked, 1);
	assert_int_equal(hdl_eventq_wait(queue, 0), -HDL_EAGAIN);
	assert_int_equal(query(queue).blocked, 1);
	assert_int_equal(deliver(9, HDL_PORT_DATA, 6), EVENTQ_PLACED);
	assert_true(readable(fd, 0));
	hdl_eventq_close(queue);
}

/* One thread gives up, another takes the events of a third: whoever sleeps is still woken. */
static void ap7_threads_that_wait_for_one_queue(void **state)
{
	(void)state;
	struct hdl_eventq *queue = open_queue(9, NULL);
	struct hdl_port_event event;
	pthread_t thread;
	void *result;
	assert_int_equal(pthread_create(&thread, NULL, wait_thread, queue), 0);
	while (query(queue).blocked == 0)
		sched_yield();
	assert_int_equal(hdl_eventq_wait(queue, 1), -HDL_EAGAIN);
	assert_int_equal(query(queue).blocked, 1);
	/* Woken perhaps, or perhaps the event was gone before it looked. */
	assert_int_equal(deliver(9, HDL_PORT_DATA, 1), EVENTQ_PLACED);
	while (hdl_eventq_take(queue, &event, 1) == 1)
		;
	assert_int_equal(deliver(9, HDL_PORT_DATA, 2), EVENTQ_PLACED);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 0);
	assert_int_equal(hdl_eventq_take(queue, &event, 1), 1);
	assert_int_equal(query(queue).blocked, 0);
	hdl_eventq_close(queue);
}

#define ROUNDS 2000u

struct pusher {
	uint16_t first, count;
	uint64_t rounds;
};

static void *push_thread(void *context)
{
	struct pusher *p = context;
	for (uint64_t i = 0; i < p->rounds; i++) {
		uint16_t port = (uint16_t)(p->first + i % p->count);
		while (deliver(port, HDL_PORT_DATA, i) == EVENTQ_FULL)
			sched_yield();
		if (i % 7 == 0)
			usleep(50);
	}
	return NULL;
}

static void ap7_a_waiting_thread_misses_nothing(void **state)
{
	(void)state;
	struct hdl_eventq *queue = open_queue(9, NULL);
	struct pusher p = {9, 1, ROUNDS};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, push_thread, &p), 0);
	for (uint64_t next = 0; next < ROUNDS;) {
		struct hdl_port_event events[5];
		assert_int_equal(hdl_eventq_wait(queue, SOON_MS), 0);
		int got = hdl_eventq_take(queue, events, 5);
		for (int i = 0; i < got; i++)
			assert_int_equal(events[i].value, next++);
	}
	pthread_join(thread, NULL);
	hdl_eventq_close(queue);
}

/* What a program may do with a queue in any thread, while another one takes its events. */
struct bystander {
	struct hdl_eventq *queue;
	bool wants_fd;
	atomic_bool over;
	atomic_uint wrong; /* answers */
};

static void *stand_by(void *context)
{
	struct bystander *by = context;
	while (!atomic_load_explicit(&by->over, memory_order_relaxed)) {
		struct hdl_eventq_status status;
		int result = hdl_eventq_wait(by->queue, 1);
		by->wrong += result != 0 && result != -HDL_EAGAIN;
		by->wrong += by->wants_fd && hdl_eventq_fd(by->queue) < 0;
		by->wrong += eventq_in_set(by->queue);
		by->wrong += hdl_eventq_query(by->queue, &status) != 0 || status.wild != 0;
	}
	return NULL;
}

static void *push_data_thread(void *context)
{
	const struct pusher *p = context;
	for (uint64_t i = 0; i < p->rounds; i++)
		while (deliver_var(p->first, &i, sizeof(i)) == EVENTQ_FULL)
			sched_yield();
	return NULL;
}

/* The thread sanitizer watches what this does without a lock. */
static void any_thread_may_use_a_queue(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 10; round++) {
		struct pusher p = {9, 1, 200};
		struct bystander by = {.queue = open_queue(9, NULL), .wants_fd = round % 2 == 1};
		pthread_t threads[3];
		assert_int_equal(pthread_create(&threads[0], NULL, push_data_thread, &p), 0);
		for (unsigned i = 1; i < 3; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, stand_by, &by), 0);
		/* It does not wait: that takes the lock, which would hide who does not. */
		for (uint64_t next = 0; next < p.rounds;) {
			struct hdl_port_event events[8];
			int taken = hdl_eventq_take(by.queue, events, 8);
			for (int i = 0; i < taken; i++) {
				uint64_t value = UINT64_MAX;
				size_t bytes;
				assert_int_equal(hdl_eventq_read(by.queue, &events[i], &value,
				                                 sizeof(value), &bytes),
				                 0);
				assert_int_equal(value, next++);
			}
			if (taken == 0)
				sched_yield();
		}
		atomic_store(&by.over, true);
		for (unsigned i = 0; i < 3; i++)
			pthread_join(threads[i], NULL);
		assert_int_equal(by.wrong, 0);
		assert_int_equal(hdl_eventq_close(by.queue), 0);
	}
}

#define MANY 10000u

/* Forget which pages of this process have been accessed; and how many have been, since then. */
static bool forget_accesses(void)
{
	FILE *file = fopen("/proc/self/clear_refs", "we");
	if (file == NULL)
		return false;
	bool written = fputs("1", file) >= 0;
	return fclose(file) == 0 && written;
}

static unsigned long accessed_pages(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	char line[256];
	unsigned long kilobytes = 0;
	assert_non_null(file);
	while (fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "Referenced: %lu", &kilobytes) == 1)
			break;
	fclose(file);
	return kilobytes / 4;
}

/* An event and the wait for it touch as many pages in a set of ten thousand queues as in one of
 * ten: each queue has pages of its own. */
static void ap8_the_work_of_a_wait_does_not_grow(void **state)
{
	enum { FEW = 10, ALL = 10000, TURNS = 20 };
	static struct hdl_eventq *queues[ALL];
	struct hdl_eventset *set;
	struct hdl_eventq *ready[4];
	struct hdl_port_event events[4];
	unsigned long pages[2] = {0};
	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip(); /* its own pages are accessed as well */
#endif
	if (!forget_accesses())
		skip(); /* the kernel does not tell */
	assert_int_equal(hdl_eventset_create(adapter, &set), 0);
	for (uint32_t i = 0; i < ALL; i++) {
		struct hdl_eventq_attr attr = {
		        .events = 32, .words = 16, .set = set, .context = (void *)(uintptr_t)i};
		queues[i] = open_queue((uint16_t)(i + 1), &attr);
		if (i + 1 != FEW && i + 1 != ALL)
			continue;
		for (uint32_t turn = 0; turn < TURNS; turn++) {
			uint32_t which = turn * 7919 % (i + 1);
			assert_true(forget_accesses());
			deliver((uint16_t)(which + 1), HDL_PORT_DATA, turn);
			assert_int_equal(hdl_eventset_wait(set, ready, 4, SOON_MS), 1);
			assert_int_equal((uintptr_t)hdl_eventq_context(ready[0]), which);
			assert_int_equal(hdl_eventq_take(ready[0], events, 4), 1);
			assert_int_equal(hdl_eventset_wait(set, ready, 4, 0), -HDL_EAGAIN);
			pages[i + 1 == ALL] += accessed_pages();
		}
	}
	fprintf(stderr, "pages in %d turns: %lu among %d, %lu among %d\n", TURNS, pages[0], FEW,
	        pages[1], ALL);
	/* Other threads, and tests of this kind, touch a few as well. */
	assert_true(pages[1] < pages[0] + TURNS * 200);
	for (uint32_t i = 0; i < ALL; i++)
		assert_int_equal(hdl_eventq_close(queues[i]), 0);
	assert_int_equal(hdl_eventset_destroy(set), 0);
}

/* A wait names the queues that have events, and touches no other. */
static void ap7_ten_thousand_ports_in_one_set(void **state)
{
	(void)state;
	static struct hdl_eventq *queues[MANY];
	struct hdl_eventset *set;
	struct hdl_eventq *ready[16];
	struct hdl_port_event events[4];
	assert_int_equal(hdl_eventset_create(adapter, &set), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		struct hdl_eventq_attr attr = {
		        .events = 32, .words = 16, .set = set, .context = (void *)(uintptr_t)i};
		queues[i] = open_queue((uint16_t)(i + 1), &attr);
	}
	assert_int_equal(hdl_eventset_destroy(set), -HDL_EBUSY);
	assert_int_equal(hdl_eventq_wait(queues[0], 0), -HDL_EBUSY);
	assert_int_equal(hdl_eventset_wait(set, ready, 16, 0), -HDL_EAGAIN);
	for (uint32_t i = 0; i < 100; i++) {
		uint32_t which = i * 97 % MANY;
		assert_false(readable(hdl_eventset_fd(set), 0));
		deliver((uint16_t)(which + 1), HDL_PORT_DATA, i);
		deliver((uint16_t)(which + 1), HDL_PORT_DATA, i);
		assert_true(readable(hdl_eventset_fd(set), 0));
		assert_int_equal(hdl_eventset_wait(set, ready, 16, SOON_MS), 1);
		assert_int_equal((uintptr_t)hdl_eventq_context(ready[0]), which);
		assert_int_equal(hdl_eventq_take(ready[0], events, 4), 2);
	}
	/* More queues than asked for: the rest comes with the next call. */
	for (uint16_t port = 1; port <= 20; port++)
		deliver(port, HDL_PORT_DATA, 0);
	assert_int_equal(hdl_eventset_wait(set, ready, 16, 0), 16);
	assert_int_equal(hdl_eventset_wait(set, ready, 16, 0), 4);
	/* They were not emptied: they are not reported again before they are. */
	deliver(1, HDL_PORT_DATA, 0);
	assert_int_equal(hdl_eventset_wait(set, ready, 16, 0), -HDL_EAGAIN);
	assert_int_equal(hdl_eventq_take(queues[0], events, 4), 2);
	deliver(1, HDL_PORT_DATA, 0);
	assert_int_equal(hdl_eventset_wait(set, ready, 16, 0), 1);
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(hdl_eventq_close(queues[i]), 0);
	assert_int_equal(hdl_eventset_destroy(set), 0);
}

static void a_set_misses_nothing(void **state)
{
	(void)state;
	enum { QUEUES = 50 };
	struct hdl_eventset *set;
	struct hdl_eventq *queues[QUEUES], *ready[4];
	uint64_t next[QUEUES];
	struct pusher p[2] = {{1, QUEUES / 2, 3000}, {1 + QUEUES / 2, QUEUES / 2, 3000}};
	pthread_t threads[2];
	assert_int_equal(hdl_eventset_create(adapter, &set), 0);
	for (uint32_t i = 0; i < QUEUES; i++) {
		struct hdl_eventq_attr attr = {
		        .events = 32, .set = set, .context = (void *)(uintptr_t)i};
		queues[i] = open_queue((uint16_t)(i + 1), &attr);
		next[i] = i % (QUEUES / 2);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, push_thread, &p[i]), 0);
	for (uint32_t got = 0; got < 6000;) {
		int count = hdl_eventset_wait(set, ready, 4, SOON_MS);
		assert_true(count > 0);
		for (int i = 0; i < count; i++) {
			uintptr_t which = (uintptr_t)hdl_eventq_context(ready[i]);
			struct hdl_port_event events[3];
			int taken;
			do {
				taken = hdl_eventq_take(ready[i], events, 3);
				for (int k = 0; k < taken; k++) {
					assert_int_equal(events[k].value, next[which]);
					next[which] += QUEUES / 2;
				}
				got += (uint32_t)taken;
			} while (taken == 3);
		}
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (uint32_t i = 0; i < QUEUES; i++)
		hdl_eventq_close(queues[i]);
	hdl_eventset_destroy(set);
}

struct set_waiter {
	struct hdl_eventset *set;
	atomic_uint turns;
	atomic_bool over;
};

static void *wait_for_set(void *context)
{
	struct set_waiter *waiter = context;
	struct hdl_eventq *ready[4];
	while (!atomic_load_explicit(&waiter->over, memory_order_relaxed))
		if (hdl_eventset_wait(waiter->set, ready, 4, 1) > 0)
			atomic_fetch_add_explicit(&waiter->turns, 1, memory_order_relaxed);
	return NULL;
}

/* Queues come and go, with events, while another thread waits for their set. */
static void queues_leave_a_set_that_is_waited_for(void **state)
{
	(void)state;
	struct set_waiter waiter = {.set = NULL};
	struct hdl_eventq_attr attr = {.events = 32};
	pthread_t thread;
	assert_int_equal(hdl_eventset_create(adapter, &waiter.set), 0);
	attr.set = waiter.set;
	assert_int_equal(pthread_create(&thread, NULL, wait_for_set, &waiter), 0);
	for (uint32_t i = 0; i < 200; i++) {
		struct hdl_eventq *queue = open_queue(9, &attr);
		assert_int_equal(deliver(9, HDL_PORT_DATA, i), EVENTQ_PLACED);
		while (i % 2 == 0 &&
		       atomic_load_explicit(&waiter.turns, memory_order_relaxed) <= i / 2)
			sched_yield();
		assert_int_equal(hdl_eventq_close(queue), 0);
	}
	atomic_store(&waiter.over, true);
	pthread_join(thread, NULL);
	assert_int_equal(hdl_eventset_wait(waiter.set, &(struct hdl_eventq *){NULL}, 1, 0),
	                 -HDL_EAGAIN);
	assert_int_equal(hdl_eventset_destroy(waiter.set), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ap7_events_and_data),
	        cmocka_unit_test(ap7_full_is_kept_back_or_counted),
	        cmocka_unit_test(sizes_and_arguments),
	        cmocka_unit_test(the_descriptor_tells_of_events),
	        cmocka_unit_test(ap7_after_a_wait_nobody_is_blocked),
	        cmocka_unit_test(ap7_threads_that_wait_for_one_queue),
	        cmocka_unit_test(ap7_a_waiting_thread_misses_nothing),
	        cmocka_unit_test(ap7_ten_thousand_ports_in_one_set),
	        cmocka_unit_test(ap8_the_work_of_a_wait_does_not_grow),
	        cmocka_unit_test(a_set_misses_nothing),
	        cmocka_unit_test(any_thread_may_use_a_queue),
	        cmocka_unit_test(queues_leave_a_set_that_is_waited_for),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
