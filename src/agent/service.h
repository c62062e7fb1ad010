/* The services that the agent offers, as a table. A service hears some kinds of messages, is told
 * when a process has gone, and may ask to be called at a time of its own. The event loop knows the
 * table and nothing of what the services do; a new service is a new file with one row.
 *
 *   a message   --> services_hear()  --> the one service that hears its kind
 *   a death     --> services_leave() --> every service, the last row first
 *   every turn  --> services_sweep() --> every service; the loop sleeps until the first is due
 *
 * Nothing that carries data is a service (docs/adr/0090-services-of-the-agent.md). */
#ifndef AGENT_SERVICE_H
#define AGENT_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/agentmsg.h"
#include "port/unixsock.h"

struct agent;
struct client;

#define SERVICES_NEVER UINT64_MAX /* no time at which a service has something to do */

/* A message from a process. Bytes of @msg that did not arrive are zero. The caller closes the
 * descriptors; a service that keeps one writes -1 in its place. */
struct agent_request {
	struct agent_msg msg;
	size_t bytes;
	int fds[UNIXSOCK_MAX_FDS];
	int fd_count;
};

/* One kind of message that a service hears. */
struct service_kind {
	enum agent_kind kind;
	size_t min_bytes;  /* AGENT_MSG_BYTES() of its part; shorter messages are refused */
	bool before_hello; /* also from a process that has no name yet */
	void (*hear)(struct agent *agent, struct client *client, struct agent_request *request);
};

#define SERVICE_KINDS(kinds) ((unsigned)(sizeof(kinds) / sizeof((kinds)[0])))

struct agent_service {
	const char *name;
	const struct service_kind *kinds;
	unsigned kind_count;
	/* @client has gone, with or without a name. May be NULL. */
	void (*leave)(struct agent *agent, struct client *client);
	/* Do what is due at @now_ns (clock_now_ns()), and return when the next call has to come at
	 * the latest, or SERVICES_NEVER. Calls also come earlier. May be NULL. */
	uint64_t (*sweep)(struct agent *agent, uint64_t now_ns);
};

struct services {
	const struct agent_service *const *rows;
	unsigned count;
	struct {
		const struct agent_service *service; /* NULL: no service hears this kind */
		const struct service_kind *kind;
	} by_kind[AGENT_KIND_COUNT];
};

/* Asserts that the rows make sense: that every kind exists and has one service only. @rows must
 * outlive @services. */
void services_begin(struct services *services, const struct agent_service *const *rows,
                    unsigned count);
/* Pass @request to the service that hears its kind. @named: @client has a name. False: no service
 * hears it, it is too short for its kind, or it needs a name; no service has seen it. */
bool services_hear(const struct services *services, struct agent *agent, struct client *client,
                   bool named, struct agent_request *request);
/* A service may rely on those in rows above its own: they still know @client. */
void services_leave(const struct services *services, struct agent *agent, struct client *client);
/* When the first service is due; SERVICES_NEVER: none is waiting for anything. */
uint64_t services_sweep(const struct services *services, struct agent *agent, uint64_t now_ns);

#endif
