/* The processes behind `heddle tap`: a unit, which connects hosts to a LAN, and a host, which has
 * an interface whose cable ends at a unit. Each is one thread: it waits for its adapter, its
 * interface and questions from the command. */
#ifndef TAP_TAP_H
#define TAP_TAP_H

#include <jansson.h>

#include <heddle/push.h>

#include "tap/ended.h"
#include "tap/lan.h"
#include "tap/macs.h"
#include "tap/rights.h"

#define TAP_MAX_CLIENTS   8u
#define TAP_MESSAGE_BYTES 196608u /* an answer with 64 hosts */
#define TAP_NAME_BYTES    HDL_PUSH_NAME_BYTES
#define TAP_BUDGET        64u           /* frames that are read in one turn */
#define TAP_TURNS         8u            /* turns with work between two looks at descriptors */
#define TAP_RETRY_NS      100000000ull  /* between attempts of a host to reach its unit */
#define TAP_PART_NS       2000000000ull /* for peers to answer at the end */
#define TAP_READY_NS      5000000000ull /* for a host to connect, before its command returns */
#define TAP_PATIENCE_NS   10000000ull   /* for a host that takes no frames, before others go on */
#define TAP_QUIET_NS \
	1000000000ull /* without a sign of life, until the other end is asked for one */
#define TAP_GROUPS_NS     1000000000ull /* between looks at the multicast groups of an interface */
#define TAP_AGAIN_NS      1000000000ull /* before a unit that refused an address is asked again */
#define TAP_MAX_DOUBLINGS 4u /* of half of it, for a host that is refused from the beginning */

struct tap_options {
	bool unit, foreground, has_mac, has_mtu, offloads, json;
	bool no_wait; /* a host: do not wait for the unit */
	bool cells;   /* packets between machines are cells */
	bool bridge;  /* a host: others may be behind its interface */
	struct rights rights;
	const char *name, *node, *lan;
	struct hdl_push_terms terms;
	uint8_t mac[LAN_MAC_BYTES];
	uint16_t mtu;
	pid_t netns;
	uint16_t service;
};

struct tap;

/* What a host and a unit do differently. */
struct tap_role {
	const struct hdl_push_ops *ops;
	bool (*begin)(struct tap *tap);
	/* Why frames cannot pass yet; NULL: they can. The member is NULL: so they can from the
	 * beginning. */
	const char *(*waits_for)(const struct tap *tap);
	/* Returns the number of things done. */
	int (*turn)(struct tap *tap);
	/* When turn() is to be called at the latest. */
	uint64_t (*deadline)(const struct tap *tap);
	/* Answer a question; NULL: tap_reply() follows later. */
	json_t *(*ask)(struct tap *tap, int client, const char *what, const json_t *question);
	void (*end)(struct tap *tap);
};

struct tap {
	const struct tap_options *options;
	const struct tap_role *role;
	void *state; /* of the role */
	struct hdl_adapter *adapter;
	struct hdl_push_port *port;
	int fds[HDL_PUSH_FDS];
	int epoll, control, clients[TAP_MAX_CLIENTS];
	char control_path[128];
	struct ended ended; /* connections */
	struct lan lan;
	bool lan_ready; /* there may be frames */
	int holder;     /* pidfd of a process in the namespace of the interface; -1 */
	ino_t space;
	uint64_t again_ns; /* when to look for the other end of the LAN */
	int ready;         /* who waits until frames can pass; -1: nobody, */
	uint64_t ready_ns; /* until then */
	char why[LAN_WHY_BYTES];
};

extern const struct tap_role tap_host, tap_unit;

/* Run until a signal or `heddle tap down'. @ready is a descriptor that is told when frames can
 * pass, or that they cannot yet, by one byte: 0 or TAP_NOT_YET; -1: none. Returns an exit status;
 * reasons are printed. */
int tap_run(const struct tap_options *options, int ready);
#define TAP_NOT_YET 75 /* the exit status of a host that goes on trying: EX_TEMPFAIL */

/* Print as JSON what was started, by which process, and whether frames can pass. */
void tap_print_started(const struct tap_options *options, pid_t pid, bool up);
/* Print @whole, which is freed. */
void tap_print_json(json_t *whole);

/* --- loop.c --- */

void tap_watch(struct tap *tap, int fd, uint32_t events);
void tap_stop(void);
/* A stream has got its other end. */
void tap_lan_changed(struct tap *tap);

/* --- control.c: questions from the command --- */

bool control_open(struct tap *tap);
void control_close(struct tap *tap);
/* @fd is readable. True: it was one of the control's. */
bool control_event(struct tap *tap, int fd);
void tap_reply(struct tap *tap, int client, json_t *answer);
/* Ask the process @name, and with @until_end wait until it has ended. Returns the answer;
 * NULL: @why was written. */
json_t *control_ask(const char *name, json_t *question, bool until_end, char *why);
/* The names of all that run; returns how many. */
size_t control_list(char names[][TAP_NAME_BYTES], size_t max);

/* What the channels of a connection are made of. */
const char *tap_way(const struct hdl_push *push);
/* Counters of a connection, as JSON. */
json_t *tap_counters(const struct hdl_push *push);
json_t *tap_lan_json(const struct lan *lan);
json_t *tap_mac_json(const uint8_t mac[LAN_MAC_BYTES]);
bool tap_parse_mac(const char *text, uint8_t mac[LAN_MAC_BYTES]);
json_t *tap_error(const char *text);

#endif
