/* hdl_aperture_alive() between two processes (AP7; APERTURE column 13): a peer that runs answers,
 * whatever its application does; one that is stopped does not, and answers again when it goes on;
 * one that was killed has gone. The peer's port asked for events of ALIVE and STATUS, and gets
 * them. Through lanes, or over UDP (HEDDLE_LOCAL=off). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/aperture.h>
#include <heddle/eventq.h>

#include "interop/agent/end.h"

#define WAIT 20000 /* ms */

#define CHECK(condition) check(condition, #condition, __LINE__)
static void check(bool holds, const char *what, int line)
{
	if (holds)
		return;
	fprintf(stderr, "line %d: not so: %s\n", line, what);
	exit(1);
}

/* What the peer tells: first where it is, then what events it has seen. */
struct place {
	struct hdl_gid gid;
	uint16_t port;
};
struct seen {
	uint32_t types[HDL_PORT_EVENT_TYPES];
};

static struct hdl_adapter *open_adapter(struct hdl_gid *gid)
{
	struct hdl_open_attr open = {.on_node = true};
	struct hdl_adapter *adapter;
	struct hdl_limits limits;
	MUST(hdl_open(&open, &adapter));
	MUST(hdl_adapter_query(adapter, &limits));
	*gid = limits.gid;
	return adapter;
}

/* The application makes no call of the library after it has connected, but for its events. */
_Noreturn static void peer(int in, int out)
{
	struct place place;
	struct hdl_adapter *adapter = open_adapter(&place.gid);
	struct hdl_port_attr attr = {.signals = HDL_SIGNAL_ALIVE | HDL_SIGNAL_STATUS};
	struct hdl_port_rule rule = {.action = HDL_RULE_ACCEPT};
	struct hdl_port *port;
	struct hdl_eventq *queue;
	struct hdl_aperture *aperture;
	struct seen seen = {0};
	struct hdl_port_event events[64];
	char go;
	MUST(hdl_port_open(adapter, &attr, &port));
	MUST(hdl_eventq_open(port, NULL, &queue));
	struct hdl_aperture_attr with = {.length = 4096, .port = port};
	MUST(hdl_aperture_open(adapter, &with, &aperture));
	MUST(hdl_port_rules(port, &rule, 1));
	MUST(hdl_port_offer(port, aperture, NULL));
	place.port = hdl_port_number(port);
	CHECK(write(out, &place, sizeof(place)) == (ssize_t)sizeof(place));
	while (read(in, &go, 1) == 1) {
		int count = hdl_eventq_take(queue, events, 64);
		for (int i = 0; i < count; i++)
			seen.types[events[i].type]++;
		CHECK(write(out, &seen, sizeof(seen)) == (ssize_t)sizeof(seen));
	}
	_exit(0);
}

int main(void)
{
	int to[2], from[2], status;
	struct place place;
	struct seen seen;
	struct hdl_gid own;
	struct hdl_port_status asked;
	struct hdl_aperture *aperture;
	CHECK(pipe(to) == 0 && pipe(from) == 0);
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to[1]);
		close(from[0]);
		peer(to[0], from[1]);
	}
	CHECK(read(from[0], &place, sizeof(place)) == (ssize_t)sizeof(place));
	struct hdl_adapter *adapter = open_adapter(&own);
	MUST(hdl_aperture_open(adapter, NULL, &aperture));
	CHECK(hdl_aperture_alive(aperture, WAIT) == -HDL_EPERM);
	MUST(hdl_aperture_connect(aperture, &place.gid, place.port, WAIT));
	MUST(hdl_aperture_alive(aperture, WAIT));
	MUST(hdl_port_status(adapter, &place.gid, place.port, &asked, WAIT));
	CHECK(write(to[1], "?", 1) == 1);
	CHECK(read(from[0], &seen, sizeof(seen)) == (ssize_t)sizeof(seen));
	CHECK(seen.types[HDL_PORT_ALIVE] >= 1 && seen.types[HDL_PORT_STATUS] >= 1);
	CHECK(seen.types[HDL_PORT_ACCEPT] == 1 && seen.types[HDL_PORT_ALIVEACK] == 0);

	CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child);
	double began = now_ms();
	CHECK(hdl_aperture_alive(aperture, 300) == -HDL_ETIMEDOUT);
	printf("stopped: known after %.0f ms\n", now_ms() - began);
	CHECK(now_ms() - began >= 300 && hdl_aperture_state(aperture) == HDL_APERTURE_OPEN);
	CHECK(kill(child, SIGCONT) == 0);
	MUST(hdl_aperture_alive(aperture, WAIT));

	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
	began = now_ms();
	int result = hdl_aperture_alive(aperture, WAIT);
	printf("killed: %s after %.0f ms\n", hdl_aperture_reason_str(hdl_aperture_reason(aperture)),
	       now_ms() - began);
	CHECK(result == -HDL_EPERM && hdl_aperture_reason(aperture) == HDL_REASON_GONE);
	MUST(hdl_aperture_free(aperture));
	MUST(hdl_close(adapter));
	return 0;
}
