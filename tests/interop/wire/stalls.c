/* A writer and a receiver with a budget (AP4, APERTURE column 18): each write stalls at some byte
 * and goes on behind it, in the next turn. Everything arrives in its place, an event comes behind
 * what was stored before it, reads see what was written before them, and the receiver's other
 * aperture gets its data, too. Two processes, on lanes and over UDP (HEDDLE_LOCAL=off). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/aperture.h>
#include <heddle/eventq.h>

#define BYTES  (128u << 10)
#define BUDGET 300u
#define WAIT   60000 /* ms */
#define ENDS   2

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

struct offer {
	struct hdl_gid gid;
	uint16_t port;
};

static uint8_t value(int end, uint32_t at)
{
	return (uint8_t)(at * 31 + at / 251 + (uint32_t)end * 77 + 1);
}

static uint64_t counted(struct hdl_adapter *adapter, enum hdl_aperture_counter counter)
{
	struct hdl_counter list[HDL_APERTURE_COUNTER_COUNT];
	(void)hdl_aperture_counters(adapter, list, HDL_APERTURE_COUNTER_COUNT);
	return list[counter].value;
}

static int write_all(int in, int out)
{
	struct hdl_open_attr open = {.on_node = true};
	struct hdl_adapter *adapter;
	struct hdl_aperture *ends[ENDS];
	struct offer offer;
	static uint8_t data[BYTES], back[BYTES];
	char go;
	CHECK(read(in, &offer, sizeof(offer)) == sizeof(offer));
	MUST(hdl_open(&open, &adapter));
	for (int end = 0; end < ENDS; end++) {
		MUST(hdl_aperture_open(adapter, NULL, &ends[end]));
		MUST(hdl_aperture_connect(ends[end], &offer.gid, offer.port, WAIT));
	}
	for (uint32_t at = 0; at < BYTES; at += 16384)
		for (int end = 0; end < ENDS; end++) {
			for (uint32_t i = at; i < at + 16384; i++)
				data[i] = value(end, i);
			MUST(hdl_aperture_store(ends[end], at, data + at, 16384, WAIT));
		}
	for (int end = 0; end < ENDS; end++)
		MUST(hdl_aperture_event(ends[end], (uint64_t)end, "done", 4, WAIT));
	for (int end = 0; end < ENDS; end++) {
		MUST(hdl_aperture_read(ends[end], 0, back, BYTES, WAIT));
		for (uint32_t i = 0; i < BYTES; i++)
			CHECK(back[i] == value(end, i));
		MUST(hdl_aperture_flush(ends[end], HDL_FLUSH_PLACED, WAIT));
		MUST(hdl_aperture_check(ends[end]));
	}
	CHECK(write(out, "r", 1) == 1 && read(in, &go, 1) == 1);
	for (int end = 0; end < ENDS; end++)
		MUST(hdl_aperture_free(ends[end]));
	MUST(hdl_close(adapter));
	return 0;
}

static void receive_all(int out, int in)
{
	struct hdl_open_attr open = {.on_node = true};
	struct hdl_adapter *adapter;
	struct hdl_limits limits;
	struct hdl_port *port;
	struct hdl_eventq *queue;
	struct hdl_aperture *ends[ENDS];
	struct hdl_port_event event;
	struct offer offer = {0};
	char done;
	MUST(hdl_open(&open, &adapter));
	MUST(hdl_adapter_query(adapter, &limits));
	MUST(hdl_port_open(adapter, NULL, &port));
	MUST(hdl_eventq_open(port, NULL, &queue));
	MUST(hdl_aperture_budget(adapter, BUDGET));
	struct hdl_aperture_attr attr = {.length = BYTES, .port = port};
	offer.gid = limits.gid;
	offer.port = hdl_port_number(port);
	CHECK(write(out, &offer, sizeof(offer)) == sizeof(offer));
	for (int end = 0; end < ENDS; end++) {
		MUST(hdl_aperture_open(adapter, &attr, &ends[end]));
		MUST(hdl_aperture_accept(ends[end], port, 0, NULL, WAIT));
	}
	for (int got = 0; got < ENDS;) {
		MUST(hdl_eventq_wait(queue, WAIT));
		while (hdl_eventq_take(queue, &event, 1) == 1) {
			if (event.type != HDL_PORT_DATA)
				continue;
			const uint8_t *memory = hdl_aperture_memory(ends[event.offset], NULL);
			for (uint32_t i = 0; i < BYTES; i++)
				CHECK(memory[i] == value((int)event.offset, i));
			got++;
		}
	}
	/* In every BUDGET bytes there was one, and each went on as a write of its own. */
	CHECK(counted(adapter, HDL_APERTURE_COUNTER_STALLS) >= ENDS * BYTES / BUDGET / 2);
	CHECK(counted(adapter, HDL_APERTURE_COUNTER_WRITES) >= ENDS * BYTES / BUDGET);
	CHECK(read(in, &done, 1) == 1 && write(out, "e", 1) == 1);
	for (int end = 0; end < ENDS; end++)
		MUST(hdl_aperture_free(ends[end]));
	MUST(hdl_eventq_close(queue));
	MUST(hdl_port_close(port));
	MUST(hdl_close(adapter));
}

int main(void)
{
	int there[2], back[2], status;
	CHECK(pipe(there) == 0 && pipe(back) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(there[1]);
		close(back[0]);
		_exit(write_all(there[0], back[1]));
	}
	close(there[0]);
	close(back[1]);
	receive_all(there[1], back[0]);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
