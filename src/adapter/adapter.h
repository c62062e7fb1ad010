/* An adapter: the engine (transport/engine.h) with memory, a clock, file descriptors and a thread
 * around it, and the objects of the public interface.
 *
 * One lock, drive_lock, decides who drives: its holder owns the engine, the queue pairs' inner
 * state and the protection table's writing side. Polling only tries it. Who posts waits until the
 * holder has taken the work along, or takes the lock itself (adapter_doorbell()). Control calls
 * wait for it. Order: registry_lock (peers.c), then the drive_locks of two adapters by address,
 * then anything inside an engine. */
#ifndef ADAPTER_ADAPTER_H
#define ADAPTER_ADAPTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <heddle/heddle.h>

#include "adapter/drive/busy_poll.h"
#include "adapter/reach/tables.h"
#include "base/bitmap.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/prng.h"
#include "memory/tpt.h"
#include "port/pcapng.h"
#include "queue/cq.h"
#include "transport/capture.h"
#include "transport/engine.h"
#include "transport/ib/ib.h"
#include "transport/ib/rd.h"
#include "transport/multicast.h"
#include "transport/qp.h"

#include "port/udp.h"

#define ADAPTER_TICK_EVERY 64u /* drives between two looks at the clock */
#define ADAPTER_WATCH_NS \
	1000000u /* how long the application may stop polling before the thread takes over */
#define ADAPTER_STUCK_NS    50000u  /* how long a full lane is left alone, by the thread */
#define ADAPTER_AWAKE_TURNS 1024u   /* of the thread in a row: packets come one after the other */
#define ADAPTER_SLICE_NS    100000u /* the least that Linux grants */
#define ADAPTER_PATIENCE_NS 10000u  /* how long an answer waits for what the application may say */
#define ADAPTER_STUCK_MS    1       /* and by an application that waits */
/* What woke the thread: data of its epoll. */
#define EPOLL_BELL   1ull
#define EPOLL_AGENT  2ull
#define EPOLL_NUDGE  3ull
#define EPOLL_GROUPS 4ull
#define EPOLL_WIRE   5ull    /* and more: the number of the wire */
#define EPOLL_PEER   1000ull /* and more: the number of the link */

#define ADAPTER_MAX_ALIASES 256u
#define ADAPTER_DEFAULT_MR  65536u
#define ADAPTER_NODE_QP     16383u /* the numbers that one process has; the default */
#define ADAPTER_ARENA_WORDS \
	(1ull << 27) /* 1 GiB of address space for translation tables, used as needed */
#define ADAPTER_ARENA_LEAST (1ull << 20)
#define ADAPTER_LIST_PAGES \
	(2u * HDL_MAX_REGISTER_PAGES) /* page lists of posted registrations, a queue pair */

/* What the object at an address is; anything else is not ours. Nor is what a child of fork()
 * inherited: the generation is another one there (fork.c). */
extern uint32_t magic_generation;
#define MAGIC_ADAPTER (0x48444c41u ^ magic_generation)
#define MAGIC_PD      (0x48444c50u ^ magic_generation)
#define MAGIC_MR      (0x48444c4du ^ magic_generation)
#define MAGIC_MW      (0x48444c57u ^ magic_generation)
#define MAGIC_CQ      (0x48444c43u ^ magic_generation)
#define MAGIC_CHANNEL (0x48444c48u ^ magic_generation)
#define MAGIC_SRQ     (0x48444c53u ^ magic_generation)
#define MAGIC_QP      (0x48444c51u ^ magic_generation)
#define MAGIC_AH      (0x48444c4eu ^ magic_generation)
#define MAGIC_RDD     (0x48444c52u ^ magic_generation)
#define MAGIC_EEC     (0x48444c45u ^ magic_generation)
#define MAGIC_XRCD    (0x48444c58u ^ magic_generation)

/* The far side of a link, as far as the operating system is concerned. */
struct peer {
	struct hdl_adapter *adapter; /* in this process; or NULL, and then: */
	pid_t pid;            /* in our PID namespace; 0: it has none there, or none that we know */
	int pidfd;            /* readable when the process has ended; -1: none */
	int bell;             /* wakes its thread (port/bell.h) */
	struct tables tables; /* what it lets us read */
	struct reach *reach;  /* and map */
	uint64_t node_guid;
	uint32_t slot;

	bool used;
	bool traces;             /* it was allowed to reach our memory (tracer.c) */
	uint32_t link;           /* the number of this link over there, in this process */
	struct tpt_guard *guard; /* theirs, on our table: we wait for it before memory is reused */
	uint64_t stuck;          /* where in its guard it was given up on; 0: nowhere */
	void *block;             /* the lanes */
};

/* What the agent calls us, and an address that stands for a node. */
struct alias {
	struct hdl_gid gid;
	uint64_t node_guid;
	uint16_t lid; /* the node's first; 0: that was not said */
	/* Which agent said it, by number, and whether a process of the node has ended since: else
	 * it need not be asked again. */
	uint32_t agent_number;
	bool doubtful;
};

/* A last word of ours (cm.c): it is lost with an agent that is killed, and said again to the next.
 */
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

/* The processes with members in a group that we send to, as the agent told us. A link to each is
 * sought. */
struct group_peers {
	uint32_t senders; /* address handles of ours */
	uint32_t count;
	struct {
		uint64_t guid;
		uint32_t slot;
	} list[HDL_MAX_GROUP_PEERS];
};

struct event_queue {
	struct lock lock;
	int fd;
	uint32_t head, tail; /* free-running */
	uint64_t lost;
	struct hdl_event ring[HDL_MAX_EVENTS];
};

struct hdl_adapter {
	uint32_t magic;
	struct hdl_adapter *next; /* of those that are open (fork.c) */
	char name[32];
	uint64_t guid;
	struct lock drive_lock;
	_Atomic uint32_t drives; /* by the application, written by the holder */
	struct clock clock;
	struct engine engine;
	struct tpt tpt;
	struct prng prng;
	struct link links[HDL_MAX_PEERS];
	struct peer peers[HDL_MAX_PEERS];
	uint32_t max_qp, max_mr;
	struct bitmap qp_map, pd_map;
	uint64_t qp_key[2]; /* the order in which numbers are given (qp.c); 0: not drawn yet */
	uint32_t qp_turn, pd_rover, qp_bits;
	void *blocks[3]; /* mapped memory, and how much */
	size_t block_bytes[3];
	struct tables tables;
	struct segments segments;
	uint64_t probe;           /* peers read it to see whether they reach our memory */
	_Atomic uint32_t objects; /* domains, completion queues and channels: what must be gone
	                             before hdl_close() */
	_Atomic uint32_t cqs, ahs, srqs;
	struct event_queue events;
	/* The first queue pair that failed because its peer was not ready, to be said
	 * (adapter_say_not_ready()). */
	_Atomic uint32_t not_ready_qpn; /* 0: none, or it was said */
	uint32_t not_ready_retries;
	bool not_ready_noted; /* with the drive lock */

	struct recorder *recorder; /* capture.c; NULL: nothing is recorded */

	/* The thread, and how it is woken (drive.c). */
	bool has_thread;
	bool by_target, by_value; /* struct adapter_env */
	bool wire_only;           /* no same-host path */
	bool barrier; /* barrier_everyone() reaches us: who sends to us needs no fence */
	pthread_t thread;
	struct busy_poll busy_poll;
	_Atomic bool quitting;
	_Atomic bool asleep; /* it sleeps until something rings: who leaves it something to do wakes
	                        it, */
	_Atomic bool
	        drowsy; /* and the next caller sends it to watch, unless packets wake it anyway */
	int bell;       /* peers ring it (port/bell.h), */
	int rope;       /* and this process does by this */
	int nudge;      /* eventfd: our own calls wake the thread with it */
	int epoll;      /* everything that wakes the thread */
	/* With the drive lock. */
	bool lanes_armed;     /* every lane was, and the bell has not been seen to ring since */
	bool lanes_fenced;    /* producers pay for the barrier (base/ring.h) */
	bool bell_watched;    /* the thread's epoll has the bell */
	bool bell_taken;      /* an application's thread waits for it instead, */
	pthread_t bell_owner; /* this one */
	uint64_t wakes_ns;    /* when the thread that sleeps wakes at the latest */
	struct udp_wire *udp; /* the wires by UDP, one an address (udp.h); NULL: none */
	_Atomic uint32_t activity;  /* changes while the application posts or polls */
	_Atomic uint32_t armed_cqs; /* completion queues that wait to raise an event */
	_Atomic uint32_t readable;  /* channels whose descriptor is */
	_Atomic uint32_t waiters;   /* threads that wait while another one has the bell */

	/* The node agent (agent/link.c). */
	bool on_node;
	int agent;    /* socket; -1: none */
	bool mending; /* the thread that looks for the next agent was started */
	pthread_t mender;
	char node_name[AGENT_NAME_MAX];
	enum agent_wire wire_wanted;
	uint32_t wire_count; /* addresses that were asked for, then those that it is on */
	struct udp_address wire_addresses[UDP_MAX_ADDRESSES];
	uint32_t slot;
	uint16_t lid; /* the first of 2 to the lmc; 0: none */
	uint16_t lmc;
	int32_t lmc_wanted; /* HEDDLE_LMC; -1: it does not matter */
	struct hdl_gid gids[AGENT_MAX_GIDS];
	uint32_t gid_count;
	struct alias aliases[ADAPTER_MAX_ALIASES];
	uint32_t alias_count;
	_Atomic uint32_t
	        agent_number;     /* of the agents that we have had, one that has ended included */
	pthread_mutex_t ask_lock; /* one question at a time; taken before agent_lock */
	pthread_mutex_t agent_lock; /* of what follows */
	pthread_cond_t agent_answer;
	uint32_t next_token, answered_token;
	int answer;
	uint64_t answer_guid;   /* of the node that was asked for; 0: there is none */
	uint32_t answer_number; /* a port or a LID */
	struct held_port *ports;
	struct pending_disconnect
	        *disconnects; /* the last that we said about connections, until they are answered */
	uint32_t disconnect_count, next_disconnect;
	pthread_mutex_t
	        group_lock; /* one change of membership at a time; taken before all others */
	struct group_peers *
	        group_peers; /* HDL_MAX_GROUPS of them, beside engine.groups; with the drive lock */
	pthread_mutex_t handler_lock; /* of these two alone: held for nothing that takes time */
	void (*cm_handler)(void *context, const struct hdl_cm_msg *msg);
	void *cm_context;
};

struct hdl_pd {
	uint32_t magic;
	uint32_t number;
	struct hdl_adapter *adapter;
	_Atomic uint32_t users;
};

struct hdl_mr {
	uint32_t magic;
	struct hdl_key key; /* for the index; the instance may have moved on */
	struct hdl_pd *pd;
	uint32_t probed;            /* rights that the memory was seen to have */
	struct segment_ref segment; /* that it lies in */
	uint32_t max_pages;         /* of a region for HDL_OP_REGISTER, else 0 */
};

struct hdl_mw {
	uint32_t magic;
	uint32_t type;
	struct hdl_key key;
	struct hdl_pd *pd;
};

struct hdl_channel {
	uint32_t magic;
	int fd;
	struct hdl_adapter *adapter;
	struct lock lock;
	struct hdl_cq *first, **end; /* queues with an event that was not taken */
	bool signalled;              /* fd is readable */
	uint32_t takers;             /* threads in hdl_channel_get(), which see for themselves */
	_Atomic uint32_t users;
};

struct hdl_cq {
	struct cq cq; /* first: the engine knows it by this */
	uint32_t magic;
	struct hdl_adapter *adapter;
	struct hdl_channel *channel;
	void *context;
	_Atomic uint32_t users;
	/* under channel->lock */
	struct hdl_cq *next;
	bool queued;
	uint32_t raised; /* events raised and not taken */
	uint32_t taken;  /* events taken and not acknowledged */
};

struct hdl_srq {
	struct srq srq; /* first */
	uint32_t magic;
	struct hdl_pd *pd;
	struct hdl_xrcd *xrcd; /* XRC: its domain, and where its completions go */
	struct hdl_cq *cq;
	void *context;
	_Atomic uint32_t users;
};

/* An XRC domain. Target queue pairs have no protection domain of their own; this one stands in
 * where one is needed, and its number is the domain's. */
struct hdl_xrcd {
	uint32_t magic;
	struct hdl_pd *pd;
	_Atomic uint32_t users;
};

/* A reliable datagram domain. Its number is that of a protection domain that nothing else is in. */
struct hdl_rdd {
	uint32_t magic;
	struct hdl_pd *pd;
	_Atomic uint32_t users;
};

/* An end-to-end context (transport/ib/rd.h). */
struct hdl_eec {
	struct qp qp; /* first */
	uint32_t magic;
	struct hdl_rdd *rdd;
	struct ib ib;
	struct rd rd;
};

/* Where datagrams to one process behind an address go. */
struct ah_route {
	uint32_t slot; /* of the process; UINT32_MAX: not used */
	uint32_t link, epoch;
};

#define AH_ROUTES 8u

struct hdl_ah {
	uint32_t magic;
	struct hdl_pd *pd;
	struct hdl_ah_attr attr;
	struct hdl_gid to; /* the address: adapter_address() */
	struct lock lock;
	struct group *group; /* of a multicast address; NULL: see routes */
	bool on_wire;
	bool grouped; /* to a multicast address there */
	uint32_t next;
	struct ah_route routes[AH_ROUTES]; /* the latest found */
};

struct hdl_qp {
	struct qp qp; /* first */
	uint32_t magic;
	struct hdl_pd *pd;
	struct hdl_qp_init_attr init;
	uint32_t groups; /* that it is a member of; under group_lock */
};

/* --- adapter.c --- */
/* hdl_open() with what a program has no business choosing: the simulator's clock and seed. */
struct adapter_env {
	struct clock clock;
	uint64_t seed;       /* of everything drawn at random; 0: from the operating system */
	bool by_target;      /* initiators do not reach the memory of peers: the target executes
	                        everything */
	bool by_value;       /* nor do targets: all data goes through the lanes */
	uint32_t turn_bytes; /* ENGINE_TURN_BYTES of its engine; 0: as ever */
	const struct carrier *carrier; /* a wire: everybody is reached over it; NULL: none */
	struct hdl_gid second_gid;     /* one more address on the wire; zero: none */
};
int adapter_open(const struct hdl_open_attr *attr, const struct adapter_env *env,
                 struct hdl_adapter **out);
/* End @adapter as if its process had died: nothing of it is destroyed in order, peers see it
 * vanish. */
void adapter_kill(struct hdl_adapter *adapter);

/* --- capture.c --- */
/* What goes through an adapter is recorded (transport/capture.h, port/pcapng.h). With the drive
 * lock, or before there is a thread. */
struct recorder {
	struct capture capture;
	struct pcapng file;
};
/* Record to the file @path; NULL or "": do not. 0; -HDL_ENOMEM; -HDL_EIO, and errno says why. */
int recorder_open(struct hdl_adapter *adapter, const char *path);
void recorder_close(struct hdl_adapter *adapter);
/* In a child: the file is its parent's. */
void recorder_forget(struct hdl_adapter *adapter);
void recorder_write(struct hdl_adapter *adapter);
/* Write what waits: nothing may be recorded for a while. */
static inline void recorder_flush(struct hdl_adapter *adapter)
{
	if (__builtin_expect(adapter->recorder != NULL, 0))
		recorder_write(adapter);
}

/* --- strings.c --- */
/* The counters of hdl_counters(): those of the engine, then what the protection table refused, by
 * enum hdl_detail. */
#define COUNTER_COUNT ((size_t)ENGINE_COUNTER_COUNT + HDL_DETAIL_COUNT)
const char *counter_name(size_t counter);
/* "RC", "RTS"; "?": no such type or state. */
const char *qp_type_name(uint32_t type);
const char *qp_state_name(uint32_t state);

/* --- why.c --- */
/* Lines of HEDDLE_LOG=debug. From control calls, and where something failed; never from the data
 * path. */
/* Say why a call is refused, and give @error back. */
int why_not(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* hdl_qp_modify() gave @error. */
void why_not_modified(const struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask,
                      int error);
/* @what was refused because nobody is reached at the address of @attr (-HDL_EHOSTUNREACH), or the
 * wrong one (-HDL_EACCES). */
void why_unreachable(const char *what, const struct hdl_ah_attr *attr, int error);
/* It took @qp to ERR. */
void why_ended(const struct hdl_qp *qp);
/* The engine's sink for failures of queue pairs. */
void why_failed(void *context, const struct qp *qp, struct qp_fault fault);
/* An event that is not of a queue pair. */
void why_event(const struct hdl_event *event);

/* --- fork.c --- */
/* Order: list_lock in fork.c, then these: which adapters know each other (peers.c), signal handlers
 * (fault.c), starting the agent (agent/link.c). fork() takes them all. */
extern pthread_mutex_t registry_lock, install_lock, start_lock;
/* @adapter is open: a child lets go of it. */
void fork_enter(struct hdl_adapter *adapter);
/* Call @visit with every adapter that is open, while none is opened or closed. Nothing, when that
 * goes on just now. */
void fork_each(void (*visit)(struct hdl_adapter *adapter));
/* @adapter is being closed. No fork happens until fork_left(). */
void fork_leave(struct hdl_adapter *adapter);
void fork_left(void);

/* --- wire.c --- */
/* Is everybody reached over the wire, those of this machine too? */
bool wire_only(const struct hdl_adapter *adapter);
/* Is @gid, as far as we know? With the drive lock. */
bool wire_reaches(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* Is @gid an address of the loopback at which another user stands in for a node? Then the log says
 * so. */
bool wire_is_foreign(const struct hdl_gid *gid);
/* Where packets for @gid go: to ourselves where it is any address of our node; a LID of another of
 * this agent's nodes has an address in the loopback network. With the drive lock. */
struct hdl_gid wire_address(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* Which of our addresses packets to @to come from when the program chose @index. */
uint8_t wire_source(const struct hdl_adapter *adapter, uint8_t index, const struct hdl_gid *to);
struct path wire_path(const struct hdl_adapter *adapter, const struct hdl_ah_attr *ah, uint32_t qpn,
                      uint32_t dest_qpn);
/* @qp is connected over the wire from now on, or its path changes. With the drive lock. 0 or an
 * error. */
int wire_connect(struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask);
/* The alternate path and what is to become of it, as @mask has them. With the drive lock. */
void wire_alternate(struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask);
void wire_disconnect(struct hdl_qp *qp);
/* A packet came: a UDP payload, with its ICRC. Takes the drive lock. */
void adapter_take(struct hdl_adapter *adapter, const struct path *came, bool congested,
                  const uint8_t *payload, size_t bytes);

/* --- raw.c --- */
/* A raw datagram came. Takes the drive lock. */
void adapter_take_raw(struct hdl_adapter *adapter, const uint8_t *frame, size_t bytes);

/* --- peers.c --- */
/* The address that @attr leads to: the GID, or the LID written as one. */
struct hdl_gid adapter_address(const struct hdl_ah_attr *attr);
/* The link to queue pair @qpn at the adapter with @gid; LINK_NONE. With the drive lock. */
uint32_t adapter_find_link(const struct hdl_adapter *adapter, const struct hdl_gid *gid,
                           uint32_t qpn);
/* Is @gid a node's, although there may be no link to the process in question? With the drive lock.
 */
bool adapter_knows_node(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* The same, and nothing has happened since the agent said so that could change its mind. */
bool adapter_sure_of_node(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* If @gid stands for a LID: the first one of the same node, as far as we were told; else 0. With
 * the drive lock. */
uint16_t adapter_first_lid(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* Agent @number said that @gid stands for the node @guid (0: for none), whose first LID is @lid (0:
 * that was not said). With the drive lock. */
void adapter_learn(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint64_t guid,
                   uint16_t lid, uint32_t number);
/* Is it one of our own node's? */
bool adapter_is_own_node(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* The link to the process @guid, @slot; LINK_NONE. With the drive lock. */
uint32_t peers_by_process(const struct hdl_adapter *adapter, uint64_t guid, uint32_t slot);
/* The link-local address that the agent makes of a node's GUID. */
struct hdl_gid peers_link_local(uint64_t guid);
/* Adapters of this process that are joined to @adapter hear whether it has members in the group
 * @gid. */
void peers_tell_group(struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* The group @gid of @adapter learns which of them have. */
void peers_ask_group(struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* Wait until nobody is inside our protection table. With the drive lock. */
void adapter_quiesce(struct hdl_adapter *adapter);
/* Join @adapter to itself. */
int peers_join_self(struct hdl_adapter *adapter);
/* A process that the agent introduced: takes over @fds (tables, lanes, bell) and @pidfd (-1: none).
 * By the adapter's thread, no lock is held; may wait a moment for the other. 0 or an error. */
int peers_attach(struct hdl_adapter *adapter, const struct agent_msg *msg, int fds[3], int pidfd);
/* The link with that id, or LINK_NONE. */
uint32_t peers_by_id(const struct hdl_adapter *adapter, uint32_t id);
/* The far side of link @index is gone. With the drive lock. */
void peers_drop(struct hdl_adapter *adapter, uint32_t index);
/* The process behind the link has ended. */
void peers_died(struct hdl_adapter *adapter, uint32_t index);
/* Leave all of them. No lock is held. */
void peers_leave(struct hdl_adapter *adapter);
/* Wake the far side. */
void peers_ring(struct hdl_adapter *adapter, uint32_t index);

/* --- tracer.c --- */
/* Let process @pid reach our memory, one time more. True: the kernel has to be told such things. */
bool tracer_allow(pid_t pid);
/* One time less. */
void tracer_forbid(void);
/* In a child of fork(). */
void tracer_in_child(void);
extern pthread_mutex_t tracer_lock;

/* --- agent/link.c --- */
/* Become known to the node agent, starting it if need be. 0 or an error. */
int agent_join(struct hdl_adapter *adapter, const char *node);
/* The agent has something to say. By the adapter's thread. */
void agent_listen(struct hdl_adapter *adapter);
/* See to it that there is a link to queue pair @qpn at @gid. No lock is held; may wait for the
 * agent. 0; -HDL_EHOSTUNREACH. */
int agent_reach(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint32_t qpn);
/* See to it that we know whose LID @gid is, if it is one. No lock is held; may wait for the agent.
 */
void agent_locate(struct hdl_adapter *adapter, const struct hdl_gid *gid);
void agent_leave(struct hdl_adapter *adapter);
/* Send @msg, a question with a token of its own, and wait for the answer, from the next agent if
 * need be. No lock is held; the answer's guid and port are in *msg afterwards, where it has such.
 */
int agent_ask(struct hdl_adapter *adapter, struct agent_msg *msg, uint32_t *token);
/* Send without an answer. */
int agent_tell(struct hdl_adapter *adapter, struct agent_msg *msg);
/* The same with agent_lock. -HDL_EHOSTUNREACH: there is no agent; -HDL_EAGAIN: the one that there
 * was has ended. */
int agent_tell_locked(struct hdl_adapter *adapter, struct agent_msg *msg);
/* There was an agent, and now there is none: find or start the next. With agent_lock. 0 or an
 * error. */
int agent_find_another(struct hdl_adapter *adapter);

/* --- settings.c --- */
/* Judge and take what the user asks for in the environment. @node: which one; NULL: the one that is
 * named there. 0, or an error, which was said. */
int settings_take(struct hdl_adapter *adapter, const char *node);
/* Shall programs of this machine be reached over the wire? */
bool settings_local_off(void);
/* Shall we act as if the kernel did not let us reach the memory of others? */
bool settings_copy_by_lane(void);

/* --- net/udp_link.c --- */
/* What does the user want (HEDDLE_ADDR, HEDDLE_LOCAL)? 0, or an error, which was said. */
int udp_choose(struct hdl_adapter *adapter);
/* Say so in a greeting. */
void udp_ask(const struct hdl_adapter *adapter, struct agent_msg *hello);
/* @socks, one an address, came with the welcome, and are taken over. 0 or an error. */
int udp_attach(struct hdl_adapter *adapter, const struct agent_msg *welcome, const int *socks);
/* Let go of them, before an agent that is new is greeted: it needs the port for itself. */
void udp_detach(struct hdl_adapter *adapter);
/* Shall the next packet wake the thread? With the drive lock. */
void udp_arm(struct hdl_adapter *adapter, bool arm);
/* Packets are looked for: those that are not to wake the thread shall not look for it either, each
 * of them. With the drive lock. */
void udp_unwatch(struct hdl_adapter *adapter);
/* The wire with this @number has woken it, which it does once. No lock is held. */
void udp_woke(struct hdl_adapter *adapter, uint64_t number);
/* Be a member of the group @gid on the wire as well, or no more. No lock is held. */
void udp_join(struct hdl_adapter *adapter, const struct hdl_gid *gid);
void udp_leave(struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* Something came to a group: always to the thread, which looks at once. */
void udp_hear_groups(struct hdl_adapter *adapter);
/* The sockets; -1: none. */
void udp_descriptors(const struct hdl_adapter *adapter, int socks[UDP_MAX_ADDRESSES]);
/* The most payload of a packet. */
uint16_t udp_mtu(const struct hdl_adapter *adapter);
/* Which of our addresses, by bits, are those of wires. */
uint32_t udp_gids(const struct hdl_adapter *adapter);
/* enum hdl_wire. */
uint16_t udp_reach(const struct hdl_adapter *adapter);
/* The end of it. */
void udp_close(struct hdl_adapter *adapter);

/* --- cm.c --- */
/* The agent sent a message about connections. By the adapter's thread, no lock is held. */
void cm_hear(struct hdl_adapter *adapter, const struct agent_msg *msg);
/* The agent sent CM_SAID or CM_DONE. */
void cm_confirmed(struct hdl_adapter *adapter, const struct agent_msg *msg);
/* We are about to leave: wait until our last words have left the machine, and a moment for their
 * answers. */
void cm_settle(struct hdl_adapter *adapter);
/* Tell an agent that is new which ports are ours, and our last words. With agent_lock. */
void cm_again(struct hdl_adapter *adapter);
/* There is another agent: what only the user knows is for the user to tell it. Without agent_lock.
 */
void cm_mended(struct hdl_adapter *adapter);
/* The process @slot of the node @guid has ended. */
void cm_died(struct hdl_adapter *adapter, uint64_t guid, uint32_t slot);
void cm_end(struct hdl_adapter *adapter);

/* --- group.c --- */
int groups_init(struct hdl_adapter *adapter);
void groups_end(struct hdl_adapter *adapter);
/* An address handle for the group @gid comes, or goes. No lock is held; may wait for the agent. 0
 * or an error. */
int group_send_begin(struct hdl_adapter *adapter, const struct hdl_gid *gid, struct group **out);
void group_send_end(struct hdl_adapter *adapter, struct group *group);
/* The agent told us of a member. By the adapter's thread, no lock is held. */
void group_hear(struct hdl_adapter *adapter, const struct agent_msg *msg);
/* There is a link to a process that we may have been waiting for. With the drive lock. */
void group_met(struct hdl_adapter *adapter, uint32_t link);
/* Tell an agent that is new which groups we are in and send to. With agent_lock. */
void groups_again(struct hdl_adapter *adapter);

/* --- cq.c --- */
/* See to it that datagrams through @ah to queue pair @qpn have a route. No lock is held; may wait
 * for the agent. */
void ah_prepare(struct hdl_ah *ah, uint32_t qpn);
/* The route to queue pair @qpn; link LINK_NONE when there is none. */
struct ah_route ah_find(struct hdl_ah *ah, uint32_t qpn);

/* --- qp.c --- */
/* A number for a queue pair or an XRC shared receive queue, unlike the one that its place (number &
 * engine.qp_mask) had before. With the drive lock. */
int adapter_take_number(struct hdl_adapter *adapter, uint32_t *number);
void adapter_free_number(struct hdl_adapter *adapter, uint32_t number);
/* Attributes of queue pairs, and of contexts: are those in @mask in range; take them over; room for
 * the read resources of a responder, 0 or an error. */
bool qp_values_fit(const struct hdl_qp_attr *attr, uint32_t mask);
void qp_take_values(struct hdl_qp_attr *to, const struct hdl_qp_attr *from, uint32_t mask);
int qp_make_reads(struct qp *qp, uint32_t depth);

/* --- drive.c --- */
/* Drive if nobody else does. Returns how much was done. */
unsigned adapter_drive(struct hdl_adapter *adapter);
/* As adapter_drive(), for a thread of the application that is going to call again. */
void adapter_poll(struct hdl_adapter *adapter);
/* The same for one that polls @cq, which was empty. Returns how many of up to @max completions are
 * at @wc already; most often nothing else was done then. */
int adapter_poll_cq(struct hdl_adapter *adapter, struct cq *cq, struct hdl_wc *wc, int max);
/* Take what has come, execute what was posted, send what is owed. With the drive lock. */
void adapter_catch_up(struct hdl_adapter *adapter);
/* @qp has work: see that it is done. */
void adapter_doorbell(struct hdl_adapter *adapter, struct qp *qp);
/* Do requests from @wr on at once, as long as they are short and nothing is in their way. Returns
 * what is left to post. */
const struct hdl_send_wr *adapter_express(struct hdl_adapter *adapter, struct qp *qp,
                                          const struct hdl_send_wr *wr);
/* Take the post_lock of @qp's send queue, with nobody else in adapter_express() for it: that one
 * has the drive lock alone. */
void adapter_lock_sends(struct hdl_adapter *adapter, struct qp *qp);
void adapter_lock(struct hdl_adapter *adapter);
void adapter_unlock(struct hdl_adapter *adapter);
/* Wake the adapter's thread. */
void adapter_nudge(struct hdl_adapter *adapter);
/* Shall the thread hear the bell? With the drive lock. */
void adapter_watch_bell(struct hdl_adapter *adapter, bool watch);
/* Is there something that the next turn may be able to finish? A lane was full, or the network's
 * card. With the drive lock. */
bool adapter_is_stuck(const struct hdl_adapter *adapter);
/* The application is at work: the thread only watches. */
static inline void adapter_touch(struct hdl_adapter *adapter)
{
	uint32_t activity = atomic_load_explicit(&adapter->activity, memory_order_relaxed);
	atomic_store_explicit(&adapter->activity, activity + 1, memory_order_relaxed);
	if (atomic_load_explicit(&adapter->drowsy, memory_order_relaxed) &&
	    atomic_exchange_explicit(&adapter->drowsy, false, memory_order_relaxed)) {
		atomic_store_explicit(&adapter->asleep, false, memory_order_relaxed);
		adapter_nudge(adapter);
	}
}
/* Ask every peer to wake our thread with its next frame. With the drive lock. */
void adapter_arm(struct hdl_adapter *adapter);
int adapter_start_thread(struct hdl_adapter *adapter);
void adapter_stop_thread(struct hdl_adapter *adapter);

/* Write the line about a peer that was not ready, if one is due, once in the life of the process.
 * Without a lock. */
void adapter_say_not_ready(struct hdl_adapter *adapter);

/* --- wait.c --- */
/* Wait in a thread of the application until @fd is readable, until there may be something to drive,
 * or until clock_now_ns() is @until_ns (UINT64_MAX: never). 1: @fd is readable; 0: it is not; or a
 * negative error: a signal came. */
int adapter_wait(struct hdl_adapter *adapter, int fd, uint64_t until_ns);

/* --- event.c --- */
int events_init(struct event_queue *events);
void events_end(struct event_queue *events);
void events_push(struct event_queue *events, const struct hdl_event *event);
/* Forget the events of an object that is being destroyed. */
void events_purge(struct event_queue *events, const void *object);
/* The engine's sink for events. */
void adapter_event(void *context, enum hdl_event_type type, enum hdl_detail detail, void *object,
                   struct hdl_key key);
/* The engine's sink for completion events. */
void adapter_cq_event(void *context, struct cq *cq);

/* @cq was armed while it holds completions: raise its event now, unless one of it is still to be
 * taken. With the drive lock. */
void channel_raise_held(struct hdl_cq *cq);
/* Drop the events of @cq that were not taken. False: some were taken and not acknowledged; try
 * again. */
bool channel_forget(struct hdl_channel *channel, struct hdl_cq *cq);

/* --- fault.c --- */
/* Install the handler that lets copies survive memory that has gone, if it is not the one in place.
 * 0 or -HDL_EIO. */
int fault_install(void);
/* This process's memory; and the same as a peer's, where both adapters are in this process:
 * @by_target: only the peer's adapter may use it. */
struct own_memory fault_own_memory(void);
struct peer_memory fault_peer_memory(bool by_target);
/* peer_memory.copy_short() where the peer's memory is mapped in this process. */
bool fault_copy_peer(void *context, enum move_side side, uint64_t own, uint64_t addr, size_t bytes);
/* The memory of the process of @reach; @by_target: its own adapter is to do everything. */
struct peer_memory process_memory(struct reach *reach, bool by_target);
/* 0 when @length bytes at @addr are mapped with the rights; -HDL_EFAULT. Touches every page. */
int fault_probe(uint64_t addr, uint64_t length, bool write);

#endif
