/* The thread of a host or unit: waits, and gives every part its turn. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tap/tap.h"

#define EVENTS 16

static volatile sig_atomic_t stopping;

void tap_stop(void)
{
	stopping = 1;
}

static void tap_on_signal(int number)
{
	(void)number;
	stopping = 1;
}

void tap_watch(struct tap *tap, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.fd = fd};
	epoll_ctl(tap->epoll, EPOLL_CTL_ADD, fd, &event);
}

void tap_lan_changed(struct tap *tap)
{
	/* An edge tells of new frames; lan_ready stays until there are none. */
	if (tap->lan.fd >= 0)
		tap_watch(tap, tap->lan.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
	tap->lan_ready = tap->lan.fd >= 0;
	tap->lan.peers += tap->lan.fd >= 0;
}

/* Somebody must be in the namespace of the interface, or nobody will ever use it. Our descriptors
 * keep it alive, so that the kernel does not remove the interface. */
static void tap_hold(struct tap *tap, pid_t first)
{
	if (tap->holder >= 0)
		close(tap->holder);
	tap->holder = netns_hold(tap->space, first);
	if (tap->holder >= 0) {
		tap_watch(tap, tap->holder, EPOLLIN);
		return;
	}
	log_info("tap %s: nobody is in the namespace any more", tap->options->name);
	stopping = 1;
}

static void tap_event(struct tap *tap, int fd)
{
	if (fd == tap->lan.fd) {
		tap->lan_ready = true;
	} else if (fd == tap->lan.watch) {
		lan_news(&tap->lan);
		tap->lan_ready = tap->lan.fd >= 0;
	} else if (fd == tap->holder) {
		tap_hold(tap, 0);
	} else if (fd == tap->lan.listening) {
		int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (client >= 0 && tap->lan.fd >= 0) {
			close(client); /* one at a time */
		} else if (client >= 0) {
			tap->lan.fd = client;
			tap_lan_changed(tap);
		}
	} else {
		control_event(tap, fd);
	}
}

/* Is there nobody at the other end of the LAN, and is it up to us to find somebody? */
static bool tap_seeks(const struct tap *tap)
{
	return tap->lan.fd < 0 && tap->lan.listening < 0 && tap->lan.kind->again != NULL;
}

/* What the LAN does on its own. */
static void tap_tend(struct tap *tap)
{
	if (tap->lan.gone && !stopping) {
		log_info("tap %s: its interface was removed", tap->options->name);
		stopping = 1;
	}
	uint64_t now = tap_seeks(tap) ? clock_now_ns() : 0;
	if (now != 0 && now >= tap->again_ns) {
		tap->again_ns = now + TAP_RETRY_NS;
		if (tap->lan.kind->again(&tap->lan))
			tap_lan_changed(tap);
	}
}

static void tap_wait(struct tap *tap, bool busy)
{
	struct epoll_event events[EVENTS];
	uint64_t end = hdl_push_deadline(tap->port), own = tap->role->deadline(tap);
	uint64_t now = clock_now_ns();
	end = own < end ? own : end;
	if (tap_seeks(tap))
		end = tap->again_ns < end ? tap->again_ns : end;
	if (tap->ready >= 0 && tap->ready_ns < end)
		end = tap->ready_ns;
	uint64_t left = busy || end <= now ? 0 : end - now;
	struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000),
	                           .tv_nsec = (long)(left % 1000000000)};
	if (!busy && end == UINT64_MAX)
		timeout.tv_sec = 1;
	int count = hdl_epoll_wait(tap->adapter, tap->epoll, events, EVENTS, &timeout, NULL);
	for (int i = 0; i < count; i++)
		tap_event(tap, events[i].data.fd);
}

static bool tap_open_adapter(struct tap *tap)
{
	struct hdl_open_attr attr = {
	        .name = tap->options->name, .on_node = true, .cells = tap->options->cells};
	int error = hdl_open(&attr, &tap->adapter);
	if (error != 0) {
		snprintf(tap->why, sizeof(tap->why), "the adapter: %s", hdl_strerror(error));
		return false;
	}
	error = hdl_push_open(tap->adapter, tap->options->unit ? tap->options->service : 0,
	                      tap->role->ops, tap, tap->fds, &tap->port);
	if (error != 0) {
		snprintf(tap->why, sizeof(tap->why), "%s",
		         error == -HDL_EADDRINUSE
		                 ? "there is a unit on this node already; HEDDLE_NODE=NAME puts "
		                   "this "
		                   "one on a node of its own, --service on another number"
		                 : hdl_strerror(error));
		return false;
	}
	for (unsigned i = 0; i < HDL_PUSH_FDS; i++)
		tap_watch(tap, tap->fds[i], EPOLLIN);
	return true;
}

static bool tap_begin(struct tap *tap)
{
	struct lan *lan = &tap->lan;
	const struct tap_options *options = tap->options;
	tap->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!control_open(tap))
		return false;
	if (!lan_parse(lan, options->lan)) {
		snprintf(tap->why, sizeof(tap->why), "%s", lan->why);
		return false;
	}
	lan->netns = options->netns;
	lan->mtu = options->mtu;
	lan->has_mac = options->has_mac;
	memcpy(lan->mac, options->mac, sizeof(lan->mac));
	/* The interface first: it enters namespaces while there is only one thread. */
	if (!lan_open(lan)) {
		snprintf(tap->why, sizeof(tap->why), "%s", lan->why);
		return false;
	}
	if (lan->listening >= 0)
		tap_watch(tap, lan->listening, EPOLLIN);
	if (lan->watch >= 0)
		tap_watch(tap, lan->watch, EPOLLIN);
	tap_lan_changed(tap);
	if (options->netns != 0) {
		tap->space = netns_of(options->netns);
		tap_hold(tap, options->netns);
	}
	return tap_open_adapter(tap) && tap->role->begin(tap);
}

static void tap_end(struct tap *tap)
{
	tap->role->end(tap);
	if (tap->port != NULL)
		hdl_push_shut(tap->port);
	if (tap->adapter != NULL)
		hdl_close(tap->adapter);
	if (tap->port != NULL)
		hdl_push_free(tap->port);
	lan_close(&tap->lan);
	control_close(tap);
	ended_free(&tap->ended);
	if (tap->holder >= 0)
		close(tap->holder);
	close(tap->epoll);
}

/* Give back what was offered, and get back what we have offered. */
static void tap_part(struct tap *tap)
{
	uint64_t end = clock_now_ns() + TAP_PART_NS;
	while (hdl_push_close_all(tap->port) > 0 && clock_now_ns() < end) {
		bool busy = hdl_push_run(tap->port) > 0;
		tap_wait(tap, busy);
	}
}

/* Once frames can pass, or it has taken too long: say so to whoever has started us, and let go of
 * what the caller of the command waits for. */
static void tap_tell_ready(struct tap *tap)
{
	if (tap->ready < 0)
		return;
	const char *why = tap->role->waits_for != NULL ? tap->role->waits_for(tap) : NULL;
	const char status = why != NULL && !tap->options->no_wait ? TAP_NOT_YET : 0;
	if (why != NULL && clock_now_ns() < tap->ready_ns)
		return;
	if (status != 0)
		fprintf(stderr, "heddle tap: %s is not connected yet: %s; it goes on trying\n",
		        tap->options->name, why);
	if (tap->lan.listening >= 0 && tap->lan.fd < 0)
		fprintf(stderr,
		        "heddle tap: %s waits at %s: nobody is there yet, and no frames pass\n",
		        tap->options->name, tap->lan.where);
	fflush(stderr);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	if (write(tap->ready, &status, 1) != 1)
		stopping = 1; /* nobody waits for us any more */
	close(tap->ready);
	tap->ready = -1;
}

int tap_run(const struct tap_options *options, int ready)
{
	static struct tap tap;
	struct sigaction stop = {.sa_handler = tap_on_signal};
	tap = (struct tap){.options = options,
	                   .role = options->unit ? &tap_unit : &tap_host,
	                   .control = -1,
	                   .holder = -1,
	                   .ready = ready,
	                   .ready_ns = options->no_wait ? 0 : clock_now_ns() + TAP_READY_NS,
	                   .lan = {.fd = -1, .listening = -1, .watch = -1, .groups = -1}};
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	signal(SIGPIPE, SIG_IGN);
	bool good = tap_begin(&tap);
	if (!good)
		fprintf(stderr, "heddle tap: %s\n", tap.why);
	else if (ready < 0 && options->json)
		tap_print_started(options, getpid(), options->unit);
	bool busy = true;
	unsigned turns = 0;
	while (good && !stopping) {
		uint64_t written = tap.lan.tx_frames;
		tap_tell_ready(&tap);
		int done = hdl_push_run(tap.port);
		tap_tend(&tap);
		/* Frames that were written may have been answered already. */
		tap.lan_ready |= tap.lan.tx_frames != written && tap.lan.fd >= 0;
		int moved = tap.role->turn(&tap);
		if (moved > 0)
			hdl_push_run(tap.port);
		busy = done > 0 || moved > 0;
		/* While there is work, other descriptors are looked at from time to time. */
		turns = busy ? turns + 1 : 0;
		if (turns % TAP_TURNS == 0)
			tap_wait(&tap, busy);
	}
	if (good && tap.ready >= 0)
		fprintf(stderr, "heddle tap: %s was ended before it was connected\n",
		        options->name);
	if (good)
		tap_part(&tap);
	/* A regular end: the interface goes with us. After a kill it stays, for the next one. */
	if (good && tap.lan.kind->forget != NULL)
		tap.lan.kind->forget(&tap.lan);
	tap_end(&tap);
	return good ? 0 : 1;
}
