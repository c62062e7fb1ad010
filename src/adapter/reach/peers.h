/* The peers of an adapter: links to other adapters, what we share with them, and how memory is
 * reached. */
#ifndef ADAPTER_PEERS_H
#define ADAPTER_PEERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <heddle/heddle.h>

#include "adapter/reach/segment.h"
#include "adapter/reach/tables.h"
#include "adapter/reach/unmapped.h"
#include "port/agentmsg.h"
#include "transport/copy.h"
#include "transport/engine.h"
#include "transport/local/frame.h"
#include "transport/path.h"

#define ADAPTER_MAX_ALIASES 256u

/* The far side of a link, as the operating system sees it. */
struct peer {
	struct hdl_adapter *adapter; /* the adapter, if in this process; if NULL: */
	pid_t pid;                   /* in our PID namespace; 0: none, or not known */
	int pidfd;                   /* readable when the process has ended; -1: none */
	int bell;                    /* wakes its thread (port/bell.h) */
	struct tables tables;        /* the tables that it shares read-only */
	struct reach *reach;         /* and the memory that it lets us map */
	uint64_t node_guid;
	uint32_t slot;

	bool used;
	bool managed;            /* out-of-band packets of apertures go through the agent */
	bool traces;             /* it is allowed to access our memory (tracer.c) */
	uint32_t link;           /* the number of this link at the other adapter, if in this
	                            process */
	struct tpt_guard *guard; /* the peer's guard on our table: we wait for it before memory is
	                            reused */
	uint64_t stuck;          /* the guard value at which we gave up waiting; 0: never */
	void *block;             /* the lanes */
};

/* An address that stands for a node, as the agent told us. */
struct alias {
	struct hdl_gid gid;
	uint64_t node_guid;
	uint16_t lid; /* the node's first LID; 0: not known */
	/* The number of the agent that told us, and whether a process of the node has ended since
	 * then. If neither has changed, the agent need not be asked again. */
	uint32_t agent_number;
	bool doubtful;
};

/* The carrier of packets in lanes (packets.c), and the packet that it has reserved. */
struct lane_packets {
	struct carrier carrier;
	uint8_t *record; /* in the lane; NULL: in scratch, it goes to nobody */
	size_t bytes;
	uint8_t scratch[FRAME_MAX_PACKET];
};

/* Under the drive lock, unless a comment says otherwise. */
struct peers {
	struct link links[HDL_MAX_PEERS]; /* engine.links */
	struct peer list[HDL_MAX_PEERS];  /* the far side of each */
	struct alias aliases[ADAPTER_MAX_ALIASES];
	uint32_t alias_count;
	struct segments segments; /* memory of ours that peers map */
	struct unmapped unmapped; /* and who notices that the program unmaps it */
	struct lane_packets packets;

	/* Set when the adapter is opened. */
	struct tables tables; /* ours, which peers map read-only; its parts have their own rules */
	uint64_t probe;       /* peers read it to test whether they can access our memory */
	bool by_target, by_value; /* struct adapter_env */
};

/* --- packets.c --- */
void packets_begin(struct hdl_adapter *adapter);
/* The path through the lane to the context @number, or to nobody. With the drive lock. */
struct path packets_path(const struct hdl_adapter *adapter, const struct hdl_ah_attr *ah,
                         uint32_t number);
/* A frame with a packet came on link @index. With the drive lock. */
void packets_take(struct hdl_adapter *adapter, uint32_t index, const uint8_t *body, size_t bytes);

/* --- peers.c --- */
/* Protects which adapters of this process know each other. Taken before any drive lock. */
extern pthread_mutex_t registry_lock;
/* The destination address of @attr: the GID, or the LID written as a GID. */
struct hdl_gid adapter_address(const struct hdl_ah_attr *attr);
/* The link to queue pair @qpn at the adapter with @gid, or LINK_NONE. With the drive lock. */
uint32_t adapter_find_link(const struct hdl_adapter *adapter, const struct hdl_gid *gid,
                           uint32_t qpn);
/* Is @gid the address of a node? There may still be no link to the process in question. With the
 * drive lock. */
bool adapter_knows_node(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* The same, and nothing has happened since the agent told us that could change its answer. */
bool adapter_sure_of_node(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* If @gid stands for a LID: the first LID of the same node, as far as we know; else 0. With the
 * drive lock. */
uint16_t adapter_first_lid(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* Agent @number told us that @gid stands for the node @guid (0: for none), whose first LID is @lid
 * (0: not known). With the drive lock. */
void adapter_learn(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint64_t guid,
                   uint16_t lid, uint32_t number);
/* Is @gid an address of our own node? */
bool adapter_is_own_node(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* The link to the process @guid, @slot, or LINK_NONE. With the drive lock. */
uint32_t peers_by_process(const struct hdl_adapter *adapter, uint64_t guid, uint32_t slot);
/* The link-local address that the agent derives from the GUID of a node. */
struct hdl_gid peers_link_local(uint64_t guid);
/* Tell the adapters of this process that are joined to @adapter whether it has members in the group
 * @gid. */
void peers_tell_group(struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* Find out which of those adapters have members in the group @gid. */
void peers_ask_group(struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* Wait until no peer is inside our protection table. With the drive lock. */
void adapter_quiesce(struct hdl_adapter *adapter);
/* Join @adapter to itself. */
int peers_join_self(struct hdl_adapter *adapter);
/* Attach a process that the agent introduced. Takes over @fds (tables, lanes, bell) and @pidfd (-1:
 * none). Called by the adapter's thread without a lock; may wait a moment for the other process.
 * Returns 0 or an error. */
int peers_attach(struct hdl_adapter *adapter, const struct agent_msg *msg, int fds[3], int pidfd);
/* The link with the id @id, or LINK_NONE. */
uint32_t peers_by_id(const struct hdl_adapter *adapter, uint32_t id);
/* The far side of link @index is gone. With the drive lock. */
void peers_drop(struct hdl_adapter *adapter, uint32_t index);
/* The node @guid (0: any node) may have no process left: ask the agent before its addresses are
 * used again. With the drive lock. */
void peers_doubt(struct hdl_adapter *adapter, uint64_t guid);
/* The process behind the link has ended. */
void peers_died(struct hdl_adapter *adapter, uint32_t index);
/* Take down all links. Called without a lock. */
void peers_leave(struct hdl_adapter *adapter);
/* Wake the far side. */
void peers_ring(struct hdl_adapter *adapter, uint32_t index);

/* --- tracer.c --- */
/* Let process @pid access our memory; counts. True: the kernel requires this. */
bool tracer_allow(pid_t pid);
/* Undo one tracer_allow(). */
void tracer_forbid(void);
/* In a child of fork(). */
void tracer_in_child(void);
extern pthread_mutex_t tracer_lock;

/* --- fault.c --- */
extern pthread_mutex_t install_lock; /* protects signal handlers */
/* Install the signal handler that lets copies survive unmapped memory, unless it is already in
 * place. Returns 0 or -HDL_EIO. */
int fault_install(void);
/* The memory of this process; and the same memory as that of a peer, when both adapters are in this
 * process. @by_target: only the peer's adapter may access it. */
struct own_memory fault_own_memory(void);
struct peer_memory fault_peer_memory(bool by_target);
/* peer_memory.copy_short() for peer memory that is mapped in this process. */
bool fault_copy_peer(void *context, enum move_side side, uint64_t own, uint64_t addr, size_t bytes);
/* The memory of the process of @reach; @by_target: only its own adapter may access it. */
struct peer_memory process_memory(struct reach *reach, bool by_target);
/* Returns 0 if @length bytes at @addr are mapped with the rights, else -HDL_EFAULT. Touches every
 * page. */
int fault_probe(uint64_t addr, uint64_t length, bool write);

#endif
