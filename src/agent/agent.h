/* The node agent: who is here, what they are called, who knows whom. It hands out names and introduces processes to each
 * other; it is never in the data path, and when it dies what it arranged goes on working.
 *
 * One agent serves one user and holds all the nodes of that user on this machine: a node is a name (HEDDLE_NODE) with a
 * GUID, GIDs and up to AGENT_MAX_SLOTS processes. One thread, one epoll loop, no locks. */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/prng.h"
#include "port/agentmsg.h"

#define AGENT_MAX_NODES 256u
#define AGENT_MAX_LINKS 65536u

#define AGENT_MAX_PORTS 65536u /* of a node */

/* After an agent was killed its processes come back with the slots that are in the numbers of their queue pairs. For so long
 * newcomers wait, lest one is given a slot that is in use. */
#define AGENT_GRACE_NS 100000000u

/* A port that a process holds, in a list of its node. */
struct port_entry {
	struct port_entry *next;
	struct client *client;
	uint8_t gid[16]; /* zero: all addresses */
	uint16_t space, port;
};

struct node_entry {
	char name[AGENT_NAME_MAX];
	uint64_t guid;
	uint32_t gid_count;
	uint8_t gids[AGENT_MAX_GIDS][16];
	struct client *slots[AGENT_MAX_SLOTS];
	uint32_t clients;
	struct port_entry *ports;
	uint32_t port_count;
	uint16_t port_rover;
	uint32_t rover; /* numbers are reused as late as possible */
};

struct client {
	int sock;
	int pidfd; /* a child of the process may keep its socket open; -1: none */
	pid_t pid;
	bool greeted;
	bool waiting; /* greets for the first time, while those of a former agent have the right of way */
	int32_t wish; /* the slot that a former agent gave; -1 */
	char node_name[AGENT_NAME_MAX];
	bool connects; /* has to do with connections: hears of deaths */
	bool dead;     /* to be freed at the end of this turn */
	struct node_entry *node;
	uint32_t slot;
	int tables, bell;
	struct agent_sizes sizes;
	char program[AGENT_NAME_MAX];
	struct client *next;
};

/* Two processes that were introduced. */
struct bond {
	uint32_t id;
	struct client *ends[2];
	struct bond *next;
};

struct agent {
	int epoll, listener;
	int spare; /* a descriptor to give up when there are no others */
	struct prng prng;
	uint64_t open_ns; /* newcomers get a slot from then on (clock_now_ns()); 0: they do */
	struct client *clients;
	uint32_t client_count;
	struct bond *bonds;
	uint32_t bond_count, next_bond;
	struct node_entry *nodes[AGENT_MAX_NODES];
	uint32_t node_count;
};

/* names.c: the node called @name, made if need be; NULL when there are too many. */
struct node_entry *node_of(struct agent *agent, const char *name);
struct node_entry *node_by_gid(struct agent *agent, const uint8_t gid[16]);
/* Give @client a slot, the one it wishes if that is free. False: none left. */
bool node_enter(struct node_entry *node, struct client *client, int32_t wish);
void node_leave(struct agent *agent, struct client *client);

/* cm.c: messages about connections. @msg is of the kind in the name. */
void cm_bind(struct client *client, struct agent_msg *msg);
void cm_unbind(struct client *client, const struct agent_msg *msg);
void cm_send(struct agent *agent, struct client *client, struct agent_msg *msg);
/* @client leaves: its ports are free, and the others hear of it. Before node_leave(). */
void cm_leave(struct agent *agent, struct client *client);

/* serve.c */
/* Tell @client. One that does not read what we say is as good as gone. */
void tell(struct client *client, struct agent_msg *msg, const int *fds, int fd_count);
/* Someone connects. */
void agent_accept(struct agent *agent);
/* @client sent something, or hung up. */
void agent_hear(struct agent *agent, struct client *client);
/* The time is up: newcomers get their slots. */
void agent_admit_waiting(struct agent *agent);
/* Free those that are gone. */
void agent_sweep(struct agent *agent);

#endif
