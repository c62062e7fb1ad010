/* No system call for a store, a byte in a circular queue, an event, a set-up or a tear-down between
 * two running programs of one machine that have been introduced (AP3, AP7 to AP9): from some moment
 * on, a filter (seccomp) makes every system call of the thread a signal, whose handler counts it
 * and lets it fail. What remains is waking the adapter's own thread after this one has not run for
 * a while, which is per millisecond, not per event. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/aperture.h>
#include <heddle/cqueue.h>

#include "end.h"
#include "forbid.h"

#define QUEUE     4096u
#define TRIPS     20000u
#define SETUPS    1000u
#define PER_CALL  200u /* trips for each system call, at least, */
#define PER_MS    1u   /* besides this many for each millisecond: others run, too */
#define WAIT      20000
#define MAX_SPINS 2000000000u

/* Nobody can print any more: the parent does. */
static struct report {
	uint64_t trip_calls, setup_calls;
	double trip_ms, setup_ms;
	int last;
} * reports;

struct side {
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	struct hdl_eventq *events;
	struct hdl_aperture *aperture;
	struct hdl_cqueue *queue;
	/* For set-ups, again and again: memory of the application, which nobody maps and which need
	 * not be taken from peers with other pages. */
	struct hdl_port *setup_port;
	struct hdl_aperture *setup;
	unsigned char memory[4096];
};

static void side_open(struct side *side)
{
	struct hdl_open_attr open = {.on_node = true};
	MUST(hdl_open(&open, &side->adapter));
	MUST(hdl_port_open(side->adapter, NULL, &side->port));
	MUST(hdl_eventq_open(side->port, NULL, &side->events));
	struct hdl_aperture_attr attr = {.length = hdl_cqueue_length(QUEUE), .port = side->port};
	MUST(hdl_aperture_open(side->adapter, &attr, &side->aperture));
	struct hdl_aperture_attr own = {.memory = side->memory, .length = sizeof(side->memory)};
	struct hdl_port_rule rule = {.action = HDL_RULE_ACCEPT};
	MUST(hdl_port_open(side->adapter, NULL, &side->setup_port));
	MUST(hdl_port_rules(side->setup_port, &rule, 1));
	MUST(hdl_aperture_open(side->adapter, &own, &side->setup));
}

/* One record there and one back, and every tenth time an event. */
static bool trip(struct side *side, uint64_t number, bool first)
{
	struct hdl_port_event event;
	uint64_t got = 0;
	if (first && hdl_cqueue_write(side->queue, &number, 8, 0) != 8)
		return false;
	for (uint32_t i = 0; hdl_cqueue_read(side->queue, &got, 8, 0) != 8; i++)
		if (i > MAX_SPINS)
			return false;
	if (got != number || (!first && hdl_cqueue_write(side->queue, &number, 8, 0) != 8))
		return false;
	if (number % 10 != 0)
		return true;
	if (first)
		return hdl_aperture_event(side->aperture, 0, &number, 8, 0) == 0;
	do
		while (hdl_eventq_take(side->events, &event, 1) != 1)
			;
	while (event.type != HDL_PORT_DATA);
	return true;
}

/* Where the one finds the other. */
struct place {
	struct hdl_gid gid;
	uint16_t port, setup_port;
};

static bool setup_ends(struct side *side)
{
	for (uint32_t i = 0; i < MAX_SPINS; i++) {
		(void)hdl_progress(side->adapter);
		if (hdl_aperture_state(side->setup) == HDL_APERTURE_CLOSED)
			return true;
	}
	return false;
}

/* Connect, store, close; the other end is offered again each time. */
static bool set_up(struct side *side, const struct place *other, bool first)
{
	side->memory[7] = 0;
	if (!first)
		/* It may have been open between two looks. */
		return hdl_port_offer(side->setup_port, side->setup, NULL) == 0 &&
		       setup_ends(side) && side->memory[7] == 'x';
	int result = -HDL_ECONNREFUSED;
	for (uint32_t i = 0; i < MAX_SPINS && result == -HDL_ECONNREFUSED; i++) {
		/* Refused: it is not offered yet. */
		result = hdl_aperture_connect(side->setup, &other->gid, other->setup_port, 0);
		while (result == -HDL_EAGAIN)
			result = hdl_aperture_wait(side->setup, 0);
	}
	return result == 0 && hdl_aperture_store(side->setup, 7, "x", 1, 0) == 0 &&
	       hdl_aperture_flush(side->setup, HDL_FLUSH_SENT, 0) == 0 &&
	       hdl_aperture_close(side->setup, 0) == 0;
}

static int run(struct side *side, const struct place *other, bool first)
{
	struct report *report = &reports[first];
	MUST(hdl_cqueue_open(side->aperture, QUEUE, side->events, &side->queue));
	for (uint64_t i = 1; i <= 100; i++) /* what happens once has happened then */
		if (!trip(side, i, first))
			return 3;
	for (uint32_t i = 0; i < 3; i++)
		if (!set_up(side, other, first))
			return 6;
	forbid_calls();
	double begin = now_ms();
	for (uint64_t i = 101; i <= TRIPS; i++)
		if (!trip(side, i, first))
			return 4;
	report->trip_calls = calls;
	report->trip_ms = now_ms() - begin;
	begin = now_ms();
	for (uint32_t i = 0; i < SETUPS; i++)
		if (!set_up(side, other, first))
			return 7;
	report->setup_calls = calls - report->trip_calls;
	report->setup_ms = now_ms() - begin;
	report->last = last_call;
	return (double)report->trip_calls <= TRIPS / PER_CALL + PER_MS * report->trip_ms &&
	                       (double)report->setup_calls <=
	                               SETUPS / PER_CALL + PER_MS * report->setup_ms
	               ? 0
	               : 5;
}

static int server(int out)
{
	struct side side = {0};
	struct hdl_limits limits;
	struct place card = {0};
	side_open(&side);
	MUST(hdl_adapter_query(side.adapter, &limits));
	card.gid = limits.gid;
	card.port = hdl_port_number(side.port);
	card.setup_port = hdl_port_number(side.setup_port);
	if (write(out, &card, sizeof(card)) != (ssize_t)sizeof(card))
		return 1;
	MUST(hdl_aperture_accept(side.aperture, side.port, 0, NULL, WAIT));
	return run(&side, NULL, false);
}

static int client(int in)
{
	struct side side = {0};
	struct place card;
	side_open(&side);
	if (read(in, &card, sizeof(card)) != (ssize_t)sizeof(card))
		return 1;
	MUST(hdl_aperture_connect(side.aperture, &card.gid, card.port, WAIT));
	return run(&side, &card, true);
}

int main(void)
{
	int ends[2], result = 0;
	reports = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pipe(ends) != 0 || reports == MAP_FAILED)
		return 1;
	for (int i = 0; i < 2; i++)
		if (fork() == 0)
			_exit(i == 0 ? server(ends[1]) : client(ends[0]));
	for (int i = 0; i < 2; i++) {
		int status;
		wait(&status);
		if (status != 0)
			result = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	}
	for (int i = 0; i < 2; i++)
		printf("%u trips: %llu system calls in %.0f ms; %u set-ups: %llu in %.0f ms; the "
		       "last "
		       "was %d\n",
		       TRIPS, (unsigned long long)reports[i].trip_calls, reports[i].trip_ms, SETUPS,
		       (unsigned long long)reports[i].setup_calls, reports[i].setup_ms,
		       reports[i].last);
	return result;
}
