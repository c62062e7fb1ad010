/* What `heddle vswitch` and `heddle ibc` share: the topology that is up, and a client of one of its
 * nodes that asks switches. */
#ifndef CLI_NETWORK_H
#define CLI_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <heddle/ibc.h>

#include "fabric/topology.h"
#include "fabric/topology_map.h"
#include "port/agentmsg.h"
#include "wire/ibc_config.h"

struct network {
	struct topology *topology; /* empty: there is no file */
	const char *name;          /* of the command, for messages */
	bool has_key;              /* the key that was given, for every switch */
	uint8_t key[IBC_KEY_BYTES];
	unsigned timeout_ms;
	int own;     /* the node of which we are a client, in the topology; -1: none yet */
	bool chosen; /* by us: the user has not named it */
	char node[AGENT_NAME_MAX]; /* its name */
};

/* Read the file @path whole into @network->topology. False: the reason has been printed. */
bool network_read(struct network *network, const char *path);
/* The copy of the file of the network that is up. */
bool network_read_current(struct network *network);
/* Keep a copy of the file @path as that of the network that is up, or remove it. */
bool network_keep(struct network *network, const char *path);
void network_forget(void);

/* Start without a topology. */
void network_begin(struct network *network, const char *name);
void network_end(struct network *network);

/* Who runs the ports of the node called @name, and what it has: false, if nobody does. */
struct network_member {
	pid_t pid;
	uint8_t states[VSWITCH_PORTS];
};
bool network_ports_of(const char *name, struct network_member *member);

/* Print that the node or switch @name, which the user has named, is not up. False: there is none of
 * that name. */
bool network_explain_absent(const struct network *network, const char *name);

/* Become a client of the node called @node (NULL: HEDDLE_NODE, or the first node of the topology
 * that is up). False: the reason has been printed. */
bool network_attach(struct network *network, const char *node);
/* Parse "1-3-2", or take the name of a node or switch to which the topology knows a way. */
bool network_route(struct network *network, const char *text, struct IBC_Route *route);
/* The key for the node with index @node of the topology; -1: the one that was given, or that of the
 * first node that has one. NULL: none. */
const uint8_t *network_key(const struct network *network, int node);

enum network_result {
	NETWORK_OK,
	NETWORK_NACK,
	NETWORK_SILENT, /* no answer in time */
	NETWORK_FAILED  /* could not be sent */
};
struct network_answer {
	enum network_result result;
	int reason;                      /* of NETWORK_NACK */
	bool needs_no_key;               /* an echo */
	bool by_application;             /* NETWORK_NACK: of an application, not of a switch */
	const char *why;                 /* of the others but NETWORK_OK */
	uint64_t round_ns;               /* from the request to the answer */
	struct ibc_config_answer config; /* not of an echo */
};
/* Send @command to the switch at the end of @route, and wait for its answer. */
void network_ask(struct network *network, const struct IBC_Route *route,
                 const struct ibc_config_command *command, unsigned tries,
                 struct network_answer *answer);
/* "no answer within 1000 ms", or the like. */
void network_explain(const struct network *network, const struct network_answer *answer, char *out,
                     size_t bytes);
/* Write @route as 1-3-2 to @out; "." is the route without ports. */
void network_print_route(const uint8_t *ports, unsigned hops, char *out, size_t bytes);

#define NETWORK_ROUTE_BYTES 256u

#endif
