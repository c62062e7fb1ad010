/* The node agent. It gives names to processes and introduces them to each other; it is never in the
 * data path, and connections outlive it. What it does is divided into services (service.h); this
 * header holds what they share.
 *
 * One agent serves one user and holds all the nodes of that user on this machine: a node is a name
 * (HEDDLE_NODE) with a GUID, GIDs and up to AGENT_MAX_SLOTS processes. One thread, one epoll loop,
 * no locks. */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/service.h"
#include "base/prng.h"
#include "port/agentmsg.h"
#include "port/rundir.h"
#include "port/udp.h"

#define AGENT_MAX_NODES 256u
#define AGENT_MAX_LINKS 65536u

#define AGENT_MAX_PORTS  65536u /* per node */
#define AGENT_MAX_GROUPS 4096u

/* Messages that wait for room in the socket of one process. A process that leaves more unread has
 * stopped reading. */
#define AGENT_MAX_QUEUED 16384u

/* How long a connection request from the wire waits for a listener before it is refused. On
 * InfiniBand the client first resolves an address and a route, and programs rely on the time that
 * this takes: the client connects while the server is about to listen (perftest -R). */
#define AGENT_EARLY_NS 1000000000u

/* After an agent was killed, its processes greet the next one and keep the slots that are part of
 * their queue pair numbers. New processes wait this long, so that none gets a slot in use. */
#define AGENT_GRACE_NS 100000000u

/* Those processes close their sockets before they greet. A process that wants a port which one of
 * them still holds waits this long, and tries again at this interval. */
#define AGENT_WIRE_GRACE_NS 3000000000u
#define AGENT_WIRE_RETRY_NS 10000000u

/* A port that a process holds, in a list of its node. */
struct port_entry {
	struct port_entry *next;
	struct client *client;
	uint8_t gid[16]; /* zero: all addresses */
	uint16_t space, port;
	uint32_t options; /* enum agent_cm_option */
};

/* How many datagrams from the network a node accepts per second: from all addresses, and from one
 * address (together with others that have the same hash); and how many requests it refuses per
 * second. They may all come at once. More are dropped, as a network would. A datagram costs a
 * program some microseconds, so a flood takes only part of its time; peers send again. */
#define AGENT_HEARD_PER_S   32768u
#define AGENT_SOURCE_PER_S  8192u
#define AGENT_SOURCES       256u
#define AGENT_REFUSED_PER_S 1024u
/* For how many requests a node remembers the process, for a REJ that does not name it. */
#define AGENT_ASKED 1024u
/* How many peers without an answer a node remembers (stripe.c). */
#define AGENT_SILENT 16u

struct wire;
struct ci_wire;   /* aperture.c */
struct sctp_wire; /* sctp.c */
struct vs_member; /* what a process has to do with a virtual switch (vswitch.c) */
struct limits;    /* how much each address may still send (management.c) */

struct node_entry {
	char name[AGENT_NAME_MAX];
	uint64_t guid; /* the node also owns the 255 that follow: one per device */
	uint16_t lid;  /* the first of 2 to the lmc */
	uint8_t lmc;
	uint32_t gid_count;
	uint8_t gids[AGENT_MAX_GIDS][16];
	struct client *slots[AGENT_MAX_SLOTS];
	uint32_t clients;
	struct port_entry *ports;
	uint32_t port_count;
	uint16_t port_rover;
	/* One per address; if the first is NULL, no process has asked for any (wire.h). */
	struct wire *wires[UDP_MAX_ADDRESSES];
	struct ci_wire *ci_wires[UDP_MAX_ADDRESSES]; /* sockets of apertures, likewise */
	uint64_t answers_ns; /* until when it speaks for processes that have gone (aperture.c) */
	struct sctp_wire *sctp_wires[UDP_MAX_ADDRESSES]; /* of SCTP, likewise */
	uint32_t sctp_rover;                             /* the next block of its ports */
	struct notice *notices; /* repeated until they are answered (management.c) */
	struct early *early;    /* requests that wait for a listener */
	uint32_t notice_count, early_count;
	struct limits *limits; /* NULL: no datagram has arrived yet */
	/* Questions to other nodes (stripe.c), and who answered none lately. */
	struct stripe_ask *stripe_asks;
	uint32_t stripe_count;
	struct {
		uint8_t gid[16];
		uint64_t until_ns;
	} silent[AGENT_SILENT];
	uint8_t taken[16]; /* the node's loopback address if another user holds it; else zero */
	uint32_t taken_by; /* that user */
};

/* A descriptor in the agent's epoll set: the first member of what it belongs to, and the data of
 * the epoll event. (NULL: the listener.) */
struct agent_source {
	/* A service's descriptor is readable. NULL: the socket or pidfd of a client. */
	void (*ready)(struct agent_source *source);
};

struct managed; /* managed.h */
struct remote;  /* remote.c */

/* How far a process is trusted, as far as apertures are concerned (aperture.c). */
enum client_trust { CLIENT_UNKNOWN, CLIENT_TRUSTED, CLIENT_UNTRUSTED };

struct client {
	struct agent_source source;
	int sock;
	int pidfd; /* a child of the process may keep its socket open; -1: none */
	pid_t pid;
	bool greeted;
	bool waiting;       /* new, and has to wait for the processes of a former agent (open_ns) */
	bool awaiting_wire; /* wants a wire whose port one of those still holds */
	int32_t wish;       /* the slot that a former agent gave it; -1: none */
	uint32_t lid;       /* the LID that a former agent gave the node; 0: none */
	int32_t lmc;        /* the node is to have 2 to the lmc LIDs; -1: as many as it has */
	uint32_t wire;      /* the wire that it wants: enum agent_wire */
	uint32_t wire_count;
	struct udp_address wire_addresses[UDP_MAX_ADDRESSES];
	bool cells;   /* it has sockets for cells, too */
	bool stripes; /* its connections use two paths where the peer's do (stripe.c) */
	char node_name[AGENT_NAME_MAX];
	struct agent *agent;
	struct queued *queue; /* messages that wait for room in its socket (outbox.c) */
	struct queued **queue_end;
	uint32_t queue_count;
	bool lent;              /* a message with descriptors was sent, and may lie unread */
	bool jammed;            /* the kernel passes no descriptors at the moment */
	int buffer_bytes;       /* of the socket, while it has a smaller one; else 0 */
	uint64_t again_ns;      /* when to try to send again; 0: an event will tell */
	uint64_t again_wait_ns; /* how long that was */
	bool connects;          /* connects on this machine: is told of deaths */
	bool dead;              /* to be freed at the end of this turn */
	bool left;              /* dead, and the services have been told */
	struct notice *notices; /* to be sent when it has gone (management.c) */
	uint32_t notice_count;
	struct node_entry *node;
	uint32_t slot;
	int tables, bell;
	struct agent_sizes sizes;
	struct vs_member *vs;    /* NULL: it is not attached to a virtual switch */
	uint8_t trust;           /* enum client_trust */
	uint64_t refused;        /* out-of-band packets of apertures that it may not send */
	struct managed *managed; /* what the agent holds for it; NULL: nothing (control.c) */
	struct remote *remote;   /* its way to other machines, if it is not trusted */
	char program[AGENT_NAME_MAX];
	struct client *next;
};

/* Two processes that were introduced to each other. */
struct peer_link {
	uint32_t id;
	struct client *ends[2];
	struct peer_link *next;
};

/* What a process has to do with a multicast group. */
struct group_part {
	struct group_part *next;
	struct client *client;
	bool joined, sends;
};

struct group_entry {
	struct group_entry *next;
	struct group_part *parts;
	uint8_t gid[16];
};

struct agent {
	struct services services;
	int epoll, listener;
	int spare;           /* a descriptor to close when the agent has run out of them */
	uint64_t network[2]; /* the network namespace of the agent (udp_network()) */
	bool leaving;        /* the only client needs an agent in another network namespace */
	struct prng prng;
	uint64_t again_ns; /* when the first outbox is to be tried again; 0: none */
	bool jammed;       /* and the reason has been logged */
	uint64_t open_ns;  /* from then on new processes get a slot (clock_now_ns()); 0: they do */
	uint64_t wire_ns;  /* until then processes of a former agent may hold a port; 0: there was
	                     none */
	struct client *clients;
	uint32_t client_count;
	struct peer_link *links;
	uint32_t link_count, next_link;
	struct group_entry *groups;
	uint32_t group_count;
	struct node_entry *nodes[AGENT_MAX_NODES];
	uint32_t node_count;
	struct vs_node *vs_nodes;
	uint32_t vs_node_count;
	bool vs_open;        /* newcomers may take part in virtual switches */
	uint64_t vs_wait_ns; /* until then, members of the former agent may be missing */
	char vs_key_path[RUNDIR_MAX + 16];
	char untrusted_path[RUNDIR_MAX + 16]; /* programs that are not trusted (aperture.c) */
	uint32_t rover; /* the next slot to give out, on any node: slots are reused late */
	char directory[RUNDIR_MAX];
	/* The file that keeps it for the next agent, to which our processes may come back late. */
	char rover_path[RUNDIR_MAX + 16];
};

/* names.c: the node called @name, made if need be, with 2 to the @lmc LIDs from @wish on if they
 * are free (0: any); NULL: there are too many nodes. */
struct node_entry *node_of(struct agent *agent, const char *name, uint32_t wish, unsigned lmc);
struct node_entry *node_by_gid(struct agent *agent, const uint8_t gid[16]);
/* Make the list of @node's addresses; called again when its wires change. */
void node_list_addresses(struct node_entry *node);
/* The address of the node in 127.0.0.0/8. */
void node_loopback(const struct node_entry *node, uint8_t gid[16]);
/* New processes get the slots after those that a former agent of @directory gave, if it was
 * killed. */
void rover_begin(struct agent *agent, const char *directory);
/* Give @node, which has no process yet, other LIDs, and the addresses that follow from them. */
void node_take_next_lids(const struct agent *agent, struct node_entry *node);
/* Give @client a slot: slot @wish, or any if that is negative. False: it is taken, or none is
 * left. */
bool node_enter(struct agent *agent, struct node_entry *node, struct client *client, int32_t wish);
void node_leave(struct agent *agent, struct client *client);
/* Forget @node if it has no process and no notice left to repeat. */
void node_tidy(struct agent *agent, struct node_entry *node);

/* cm.c: the process that holds a port of @node for messages to @gid, an address of @family (enum
 * agent_cm_option); NULL: none. */
struct client *cm_holder(const struct node_entry *node, uint16_t space, const uint8_t gid[16],
                         uint16_t port, uint32_t family);

/* management.c: forget the disconnect notices of processes that have gone from @node, and the
 * requests that wait for a listener there. */
void management_silence(struct node_entry *node);
/* A process listens on a port of @node: pass it the requests that came too early. */
void management_listen(struct node_entry *node);

/* outbox.c */
/* Send @msg to @client, now or when there is room in its socket. -EPIPE and the like: the client
 * has gone; -ENOBUFS: it leaves too many messages unread; -EMFILE, -ENOMEM: nothing is left to keep
 * the message, which has been logged. */
int outbox_send(struct client *client, struct agent_msg *msg, const int *fds, int fd_count);
/* There is room in its socket. */
void outbox_flush(struct client *client);
void outbox_clear(struct client *client);

/* The services, in the order of agent_services[]. */
extern const struct agent_service outbox_service;    /* outbox.c */
extern const struct agent_service names_service;     /* greet.c */
extern const struct agent_service group_service;     /* group.c */
extern const struct agent_service cm_service;        /* cm.c */
extern const struct agent_service wire_service;      /* management.c */
extern const struct agent_service introduce_service; /* introduce.c */
extern const struct agent_service vswitch_service;   /* vswitch.c */
extern const struct agent_service oob_service;       /* oob.c */
extern const struct agent_service aperture_service;  /* aperture.c */

extern const struct agent_service sctp_service;   /* sctp.c */
extern const struct agent_service stripe_service; /* stripe.c */

/* sctp.c: close the sockets of @node's SCTP. */
void sctp_wires_close(struct node_entry *node);

/* aperture.c: close the sockets of @node's apertures. */
void ci_wires_close(struct node_entry *node);
/* Is the program of @client one that the user does not trust? Decided once. */
bool ci_is_untrusted(const struct agent *agent, struct client *client);

/* control.c: the messages of programs that are not trusted, and of their peers. */
void control_arm(struct agent *agent, struct client *client, struct agent_request *request);
void control_disarm(struct agent *agent, struct client *client, struct agent_request *request);
void control_pass(struct agent *agent, struct client *client, struct agent_request *request);
void control_leave(struct client *client);
/* The agent of @directory begins: where the list of programs is that are not trusted. */
void ci_begin_trust(struct agent *agent, const char *directory);

/* vswitch.c: the agent of @directory begins, and ends. */
void vswitch_begin(struct agent *agent, const char *directory);
void vswitch_end(const struct agent *agent);
/* A message that waited is now in the socket of @client, which may look there only when the board
 * of its switch changes. */
void vswitch_told(const struct client *client);

/* serve.c */
extern const struct agent_service *const agent_services[];
extern const unsigned agent_service_count;
/* Send @msg to @client. A client that does not read its messages counts as gone. */
void tell(struct client *client, struct agent_msg *msg, const int *fds, int fd_count);
/* Tell @client why it is refused, and disconnect it. */
void client_refuse(struct client *client, int error, const char *why);
/* A process connects. */
void agent_accept(struct agent *agent);
/* @client sent a message, or hung up. */
void agent_hear(struct agent *agent, struct client *client);
/* Free the clients that have gone, after every service has been told. */
void agent_sweep(struct agent *agent);

#endif
