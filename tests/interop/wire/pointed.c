/* A mapped range is pointed at another peer (AP3, AP6, AP9; APERTURE column 13): no agent, no new
 * mapping, and plain stores and loads through the old pointer reach the new one. On one host the
 * range is the pages themselves; over UDP (HEDDLE_LOCAL=off) it is tracked pages. A target whose
 * nonce is old gets nothing. By calls, then by stores to control blocks (heddle/control.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/control.h>

#define BYTES 8192u
#define BITS  13u
#define WAIT  20000 /* ms */

#define CHECK(condition) check(condition, #condition, __LINE__)
static void check(bool holds, const char *what, int line)
{
	if (holds)
		return;
	fprintf(stderr, "line %d: %s\n", line, what);
	_exit(1);
}
#define MUST(call) must((call), #call, __LINE__)
static void must(int result, const char *what, int line)
{
	if (result == 0)
		return;
	fprintf(stderr, "line %d: %s: %s\n", line, what, hdl_strerror(-result));
	_exit(1);
}

/* What the owner tells the other one. */
struct offer {
	struct hdl_gid gid;
	uint16_t port;
	struct hdl_aperture_target targets[2];
};

static void tell(int fd, const void *data, size_t bytes)
{
	CHECK(write(fd, data, bytes) == (ssize_t)bytes);
}

static void hear(int fd, void *data, size_t bytes)
{
	CHECK(read(fd, data, bytes) == (ssize_t)bytes);
}

/* No call of the library: only memory. */
static bool appears(const volatile unsigned char *byte, unsigned char value)
{
	for (int i = 0; i < WAIT && *byte != value; i++)
		usleep(1000);
	return *byte == value;
}

static struct hdl_aperture *open_to_all(struct hdl_adapter *adapter)
{
	/* Not all of the range: its last page leads nowhere. */
	struct hdl_aperture_attr attr = {.length = 5000,
	                                 .checks = HDL_CHECK_NONCE | HDL_CHECK_EXTENT};
	struct hdl_aperture *aperture;
	MUST(hdl_aperture_open(adapter, &attr, &aperture));
	return aperture;
}

/* What is behind the only mapped range of this process. */
static uint32_t own_range(void)
{
	struct hdl_aperture_process *list;
	size_t count;
	uint32_t range = HDL_RANGE_NONE;
	MUST(hdl_aperture_observe(&list, &count));
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; list[i].pid == getpid() && j < list[i].count; j++)
			if (list[i].apertures[j].range != HDL_RANGE_NONE)
				range = list[i].apertures[j].range;
	hdl_aperture_observe_free(list, count);
	return range;
}

/* Point @aperture at @target, by a call or by stores. */
static void aim(struct hdl_aperture *aperture, const struct hdl_aperture_target *target,
                bool by_stores)
{
	struct hdl_aperture_user *user;
	const struct hdl_aperture_fixed *fixed;
	if (!by_stores) {
		MUST(hdl_aperture_point(aperture, target));
		return;
	}
	MUST(hdl_aperture_control(aperture, &user, &fixed));
	uint32_t generation = fixed->generation + 1;
	user->target = *target;
	__atomic_store_n(&user->generation, generation, __ATOMIC_RELEASE);
	/* No call: the adapter looks by itself. */
	for (int i = 0; i < WAIT * 10; i++) {
		if (__atomic_load_n(&fixed->generation, __ATOMIC_ACQUIRE) == generation)
			return;
		usleep(100);
	}
	CHECK(fixed->generation == generation);
}

static int point_about(int in, int out, bool lanes, bool by_stores)
{
	const uint32_t expected = lanes ? HDL_RANGE_SAME : HDL_RANGE_TRACKED;
	struct hdl_open_attr open = {.on_node = true};
	struct hdl_adapter *adapter;
	struct hdl_aperture_target own;
	struct offer offer;
	uint64_t length;
	void *map;
	char go;
	MUST(hdl_open(&open, &adapter));
	struct hdl_aperture *aperture = open_to_all(adapter);
	hear(in, &offer, sizeof(offer));
	MUST(hdl_aperture_connect(aperture, &offer.gid, offer.port, WAIT));
	MUST(hdl_aperture_map(aperture, BITS, &map, &length));
	volatile unsigned char *range = map;
	CHECK(own_range() == expected);
	range[1] = 1;
	if (!lanes)
		MUST(hdl_aperture_flush(aperture, HDL_FLUSH_PLACED, WAIT));
	MUST(hdl_aperture_own(aperture, &own));
	tell(out, &own, sizeof(own));
	hear(in, &go, 1); /* the others point at us */

	aim(aperture, &offer.targets[0], by_stores);
	CHECK(own_range() == expected);
	CHECK(range[100] == 'x');
	range[1] = 2;
	hear(in, &go, 1); /* it is there */
	aim(aperture, &offer.targets[1], by_stores);
	CHECK(range[100] == 'y');
	range[1] = 3;
	hear(in, &go, 1);
	aim(aperture, &offer.targets[0], by_stores);
	CHECK(range[1] == 2);
	range[2] = 4;
	hear(in, &go, 1);
	/* The owner has given its aperture another nonce: what we know is stale. */
	aim(aperture, &offer.targets[0], by_stores);
	CHECK(own_range() == HDL_RANGE_TRACKED);
	range[3] = 5;
	MUST(hdl_aperture_flush(aperture, HDL_FLUSH_SENT, WAIT));
	aim(aperture, &offer.targets[1], by_stores);
	range[3] = 6; /* in order, behind the other on the same way */
	hear(in, &go, 1);
	MUST(hdl_aperture_close(aperture, 0));
	range[4] = 7; /* nowhere */
	tell(out, "c", 1);
	hear(in, &go, 1);
	MUST(hdl_aperture_free(aperture));
	MUST(hdl_close(adapter));
	return 0;
}

static void own_targets(int there, int back, bool by_stores)
{
	struct hdl_open_attr open = {.on_node = true};
	struct hdl_adapter *adapter;
	struct hdl_limits limits;
	struct hdl_port *port;
	struct hdl_aperture *first, *b[2];
	struct hdl_aperture_attr attr = {.length = BYTES};
	struct hdl_aperture_target theirs;
	struct offer offer = {0};
	volatile unsigned char *memory[2], *before;
	char said;
	MUST(hdl_open(&open, &adapter));
	MUST(hdl_adapter_query(adapter, &limits));
	MUST(hdl_port_open(adapter, NULL, &port));
	MUST(hdl_aperture_open(adapter, &attr, &first));
	for (int i = 0; i < 2; i++) {
		b[i] = open_to_all(adapter);
		memory[i] = hdl_aperture_memory(b[i], NULL);
		memory[i][100] = (unsigned char)('x' + i);
		MUST(hdl_aperture_own(b[i], &offer.targets[i]));
	}
	before = hdl_aperture_memory(first, NULL);
	offer.gid = limits.gid;
	offer.port = hdl_port_number(port);
	tell(there, &offer, sizeof(offer));
	MUST(hdl_aperture_accept(first, port, 0, NULL, WAIT));
	hear(back, &theirs, sizeof(theirs));
	CHECK(appears(&before[1], 1));
	for (int i = 0; i < 2; i++)
		MUST(hdl_aperture_point(b[i], &theirs)); /* not mapped: by a call */
	tell(there, "p", 1);
	CHECK(appears(&memory[0][1], 2));
	for (int i = 0; i < WAIT && hdl_aperture_state(first) == HDL_APERTURE_OPEN; i++)
		usleep(1000);
	CHECK(hdl_aperture_reason(first) == HDL_REASON_CLOSED);
	tell(there, "1", 1);
	CHECK(appears(&memory[1][1], 3));
	CHECK(memory[0][1] == 2 && before[1] == 1);
	tell(there, "2", 1);
	CHECK(appears(&memory[0][2], 4));
	CHECK(memory[1][2] == 0 && before[2] == 0);
	/* Another nonce, and other pages. */
	if (by_stores) {
		struct hdl_aperture_user *user;
		MUST(hdl_aperture_control(b[0], &user, NULL));
		__atomic_store_n(&user->nonce, offer.targets[0].nonce + 1, __ATOMIC_RELAXED);
	} else {
		MUST(hdl_port_offer(port, b[0], NULL));
	}
	MUST(hdl_aperture_close(b[0], 0));
	tell(there, "n", 1);
	CHECK(appears(&memory[1][3], 6));
	CHECK(memory[0][3] == 0);
	tell(there, "s", 1);
	hear(back, &said, 1);
	CHECK(memory[0][4] == 0 && memory[1][4] == 0 && before[4] == 0);
	tell(there, "e", 1);
	for (int i = 0; i < 2; i++)
		MUST(hdl_aperture_free(b[i]));
	MUST(hdl_aperture_free(first));
	MUST(hdl_port_close(port));
	MUST(hdl_close(adapter));
}

static void run(bool lanes, bool by_stores)
{
	int there[2], back[2], status;
	CHECK(pipe(there) == 0 && pipe(back) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(there[1]);
		close(back[0]);
		_exit(point_about(there[0], back[1], lanes, by_stores));
	}
	close(there[0]);
	close(back[1]);
	own_targets(there[1], back[0], by_stores);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(there[1]);
	close(back[0]);
}

int main(void)
{
	const char *local = getenv("HEDDLE_LOCAL");
	bool lanes = local == NULL || strcmp(local, "off") != 0;
	run(lanes, false);
	run(lanes, true);
	return 0;
}
