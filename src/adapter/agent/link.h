/* The adapter's side of the node agent: the connection to it, requests and their answers,
 * connection management through it. */
#ifndef ADAPTER_AGENT_LINK_H
#define ADAPTER_AGENT_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <heddle/heddle.h>

#include "base/lock.h"
#include "port/agentmsg.h"

struct adapter_env;

/* A disconnect notice that we have sent (cm.c). An agent that is killed loses it, so it is sent
 * again to the next agent. */
struct pending_disconnect {
	struct pending_disconnect *next;
	bool sent; /* it has left the machine */
	struct agent_msg msg;
};

/* A port that we hold (cm.c). */
struct held_port {
	struct held_port *next;
	struct hdl_gid gid;
	uint16_t space, port;
	uint32_t options;
};

/* Lock order: ask_lock, then lock. */
struct agent_link {
	/* Set when the adapter is opened. */
	bool on_node;
	char node_name[AGENT_NAME_MAX];
	int32_t lmc_wanted; /* HEDDLE_LMC; -1: any */

	/* The adapter's thread, which hears that the agent has ended; and closing. */
	bool mending; /* the thread that reconnects to an agent was started, and not joined */
	pthread_t mender;

	/* Any thread, without a lock. */
	_Atomic uint32_t number; /* counts the agents so far; also changes when one ends */

	pthread_mutex_t ask_lock; /* one request at a time */

	pthread_mutex_t lock; /* protects what follows, up to the next lock */
	int sock; /* -1: none. The adapter's thread, which alone closes it, reads it without the
	             lock */
	struct lock closing; /* is taken to close sock, and to send with the drive lock. The last
	                        of all locks */
	pthread_cond_t answered;
	uint32_t next_token, answered_token;
	int answer;
	uint64_t answer_guid;   /* of the node in the request; 0: there is none */
	uint32_t answer_number; /* a port, a LID, or how many of these there are: */
	uint8_t answer_gids[UDP_MAX_ADDRESSES][16];
	struct agent_oob answer_oob;
	bool mender_runs, mend_again; /* that thread; another agent ended meanwhile */
	bool leaving;                 /* nobody hears answers any more */
	struct held_port *ports;
	struct pending_disconnect *disconnects; /* disconnect notices, until they are answered */
	uint32_t disconnect_count, next_disconnect;

	pthread_mutex_t handler_lock; /* protects only these two fields; never held for long */
	void (*cm_handler)(void *context, const struct hdl_cm_msg *msg);
	void *cm_context;
};

/* --- link.c --- */
/* Register with the node agent, and start it if necessary. Returns 0 or an error. */
int agent_join(struct hdl_adapter *adapter, const char *node);
/* A new agent gets a port only after every process has closed the sockets of the former one. So a
 * process that asks for a socket tries several times. */
#define AGENT_SOCKET_TRIES    300u
#define AGENT_SOCKET_RETRY_NS 10000000

/* Receive a message from the agent. Called by the adapter's thread. */
void agent_listen(struct hdl_adapter *adapter);
/* Make sure that there is a link to queue pair @qpn at @gid. Called without a lock; may wait for
 * the agent. Returns 0; -HDL_EHOSTUNREACH. */
int agent_reach(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint32_t qpn);
/* If @gid stands for a LID, or is a link-local address and no network of ours has such, make sure
 * that we know its node. Called without a lock; may wait for the agent. */
void agent_locate(struct hdl_adapter *adapter, const struct hdl_gid *gid);
void agent_leave(struct hdl_adapter *adapter);
/* Send the request @msg with a new token and wait for the answer, from the next agent if this one
 * ends. Called without a lock. Afterwards *msg holds the guid and port of the answer, if it has
 * them. */
int agent_ask(struct hdl_adapter *adapter, struct agent_msg *msg, uint32_t *token);
/* Send without an answer. */
int agent_tell(struct hdl_adapter *adapter, struct agent_msg *msg);
/* The same with agent.lock. -HDL_EHOSTUNREACH: there is no agent; -HDL_EAGAIN: the agent has
 * ended. */
int agent_tell_locked(struct hdl_adapter *adapter, struct agent_msg *msg);
/* Send without an answer and without waiting, with the drive lock. False: there is no agent, or it
 * does not read; the message is lost. */
bool agent_tell_now(struct hdl_adapter *adapter, struct agent_msg *msg);
/* The agent has ended: find or start the next one. With agent.lock. Returns 0 or an error. */
int agent_find_another(struct hdl_adapter *adapter);

/* --- settings.c --- */
/* Validate and apply the settings in the environment. @node: the node; NULL: the one that the
 * environment names. Returns 0, or an error that has already been logged. */
int settings_take(struct hdl_adapter *adapter, const char *node);
/* Read HEDDLE_FAST, on a node or not. False: the value is not valid, which has been logged. */
bool settings_fast_path(struct adapter_env *env);
/* Should programs on this machine be reached over the wire? */
bool settings_local_off(void);
/* Should we act as if the kernel did not let us access the memory of other processes? */
bool settings_copy_by_lane(void);

/* --- cm.c --- */
/* The agent sent a connection management message. Called by the adapter's thread without a lock. */
void cm_hear(struct hdl_adapter *adapter, const struct agent_msg *msg);
/* The agent sent CM_SAID or CM_DONE. */
void cm_confirmed(struct hdl_adapter *adapter, const struct agent_msg *msg);
/* The adapter is about to close: wait until our disconnect notices have left the machine, and a
 * moment for their answers. */
void cm_settle(struct hdl_adapter *adapter);
/* Tell a new agent which ports we hold, and send our pending disconnect notices. With
 * agent.lock. */
void cm_again(struct hdl_adapter *adapter);
/* There is a new agent: the handler of the user must tell it what only the user knows. Without
 * agent.lock. */
void cm_mended(struct hdl_adapter *adapter);
/* The process @slot of the node @guid has ended. */
void cm_died(struct hdl_adapter *adapter, uint64_t guid, uint32_t slot);
void cm_end(struct hdl_adapter *adapter);

#endif
