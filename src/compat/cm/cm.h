/* /dev/infiniband/rdma_cm inside the process: it answers what librdmacm writes, with the kernel's
 * interface <rdma/rdma_user_cm.h>.
 *
 * A channel is one of librdmacm's descriptors, an eventfd that is readable while there are events.
 * An identifier belongs to a channel. Its peer is an identifier of some process, and the two
 * exchange the messages of the communication manager (IBTA volume 1 chapter 12). The identifier's
 * connection manager (cm/manager.h) puts them into its format, and the node agent carries them
 * (hdl_cm_send(3)). One lock guards everything here. A thread does not hold it while it asks the
 * agent for a port, because the adapter's thread may need it before the answer can arrive. */
#ifndef COMPAT_CM_H
#define COMPAT_CM_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/rdma_user_cm.h>

#include "compat/cm/index.h"
#include "compat/cm/manager.h"
#include "compat/compat.h"

/* The numbers that rdma_cma.h gives them. */
enum cm_event_type {
	CM_ADDR_RESOLVED,
	CM_ADDR_ERROR,
	CM_ROUTE_RESOLVED,
	CM_ROUTE_ERROR,
	CM_CONNECT_REQUEST,
	CM_CONNECT_RESPONSE,
	CM_CONNECT_ERROR,
	CM_UNREACHABLE,
	CM_REJECTED,
	CM_ESTABLISHED,
	CM_DISCONNECTED,
	CM_DEVICE_REMOVAL,
	CM_MULTICAST_JOIN,
	CM_MULTICAST_ERROR,
	CM_ADDR_CHANGE,
	CM_TIMEWAIT_EXIT
};

/* Room for private data in the messages (IBTA 12.6; in a request the addresses take 36 bytes, annex
 * A11). Programs always get the whole room, however much the peer filled, as on other devices. */
#define CM_REQ_ROOM      56u
#define CM_REP_ROOM      196u
#define CM_REJ_ROOM      148u
#define CM_SIDR_REQ_ROOM 180u
#define CM_SIDR_REP_ROOM 136u

/* Reasons of a rejection (IBTA 12.6.7.2). RESOURCES: too many requests wait at the listener; the
 * program gets CONSUMER for it, as elsewhere. */
#define CM_REASON_RESOURCES  3u
#define CM_REASON_TIMEOUT    4u
#define CM_REASON_NO_SERVICE 8u
#define CM_REASON_CONSUMER   28u

/* Statuses of a service ID resolution (IBTA 12.11.2). */
#define CM_SIDR_NO_SERVICE 1u
#define CM_SIDR_REJECTED   2u

#define CM_NODES         0x7f480000u /* 127.72.0.0/16: the nodes of a machine, hdl_gid_query(3) */
#define CM_UDP_QKEY      0x01234567u
#define CM_MAX_BACKLOG   1024
#define CM_MAX_MULTICAST 1024u  /* groups that identifiers have joined */
#define CM_MAX_IDS       65536u /* as many as librdmacm can number */
/* Numbers by which peers name connections; the bits above tell the process (hdl_cm_send(3)). */
#define CM_NUMBER_BITS 22u

enum cm_kind { CM_REQ, CM_MRA, CM_REP, CM_RTU, CM_REJ, CM_DREQ, CM_DREP, CM_SIDR_REQ, CM_SIDR_REP };

/* A message between identifiers, in the host's byte order: both are on this machine. */
struct cm_message {
	uint16_t kind;
	uint8_t tos; /* of a request: the traffic class of the path */
	uint8_t reserved;
	uint32_t from, to; /* identifiers */
	uint32_t qpn, psn, qkey;
	uint32_t status; /* reason of a REJ, or status of a SIDR_REP */
	uint8_t responder_resources, initiator_depth;
	uint8_t flow_control, retry_count, rnr_retry_count, srq;
	uint8_t private_length;
	uint8_t is_ib;
	uint16_t slid;              /* of the sender of a request, on InfiniBand */
	uint16_t attempt;           /* counts the sender's requests */
	uint8_t sgid[16], dgid[16]; /* of the sender of a request */
	struct sockaddr_in6 src, dst;
	uint8_t private_data[RDMA_MAX_PRIVATE_DATA];
};
_Static_assert(sizeof(struct cm_message) <= HDL_CM_BYTES, "it fits into one message of the agent");

enum cm_state {
	CM_IDLE,
	CM_LISTENING,
	CM_REQ_SENT,
	CM_REQ_RECEIVED,
	CM_REP_SENT,
	CM_REP_RECEIVED,
	CM_CONNECTED,
	CM_DREQ_SENT,
	CM_ENDED /* disconnected or rejected */
};

/* What an identifier waits for (cm/wait.c). */
enum cm_wait {
	CM_WAIT_NONE,
	CM_WAIT_LISTENER,
	CM_WAIT_ANSWER,
	CM_WAIT_NODE,
	CM_WAIT_TIMEWAIT,
	CM_WAIT_MANAGER /* a timer of its connection manager */
};

struct cm_id;

struct cm_event {
	struct cm_event *next;
	struct cm_id *owner; /* the listener if it is about a request */
	struct cm_id *child; /* the identifier that the request made */
	struct cm_mc *mc;    /* if it is about a group */
	int untaken;         /* completions that were left when it was last delayed */
	struct rdma_ucm_event_resp resp;
};

struct cm_channel {
	int fd;
	struct cm_event *first, **end;
};

/* A group that an identifier has joined. */
struct cm_mc {
	uint32_t handle;
	struct cm_id *id;
	uint64_t uid; /* librdmacm's number */
	uint32_t events_reported;
};

struct cm_id {
	uint32_t handle; /* for librdmacm */
	uint32_t number; /* for peers: random, not 0 */
	struct cm_index_link links[CM_INDICES];
	struct cm_channel *channel;
	uint64_t uid; /* librdmacm's; 0: not known yet */
	uint16_t space;
	uint8_t qp_type;
	bool is_ib; /* its addresses are AF_IB */
	enum cm_state state;
	uint32_t events_reported;
	int backlog; /* how many more requests may wait to be accepted */

	struct sockaddr_in6 src, dst; /* or sockaddr_in, by family; family 0: none */
	struct hdl_gid sgid, dgid;
	uint16_t dlid;   /* InfiniBand: the peer's LID; 0: use its GID */
	bool has_device; /* sgid is valid */
	bool has_path;
	bool may_cross;    /* the peer is across the wire unless it is on a node of the agent */
	uint16_t node_lid; /* of the agent's other node that has the peer's address; 0: none */
	const struct cm_manager *manager;
	void *end;                  /* the manager's state of the connection, or NULL */
	uint8_t mtu;                /* of the path, enum ibv_mtu; 0: that of the port */
	struct hdl_listener *bound; /* the port on the wire, or NULL */
	bool holds_port, for_all;
	struct hdl_gid port_gid; /* whose messages the port gets, unless for_all */
	uint32_t port_options;   /* enum hdl_cm_option for the port that it holds */

	uint64_t guid; /* of the peer */
	uint32_t slot, peer;
	uint32_t qpn, psn, qkey; /* the peer's */
	uint32_t own_qpn;        /* 0: not known */
	uint32_t own_psn; /* of the first packet that we expect: each side chooses what the other
	                    starts with (IBTA 12.7.31) */
	struct cm_message *sent; /* the last request or answer, while it may have to be sent again
	                 (cm/wait.c) */
	uint16_t attempt;        /* of our request, or of the peer's */
	unsigned tries;
	uint64_t asked_ns; /* when the program asked for it */
	enum cm_wait wait;
	uint64_t wait_ns, give_up_ns; /* when to wake up; when to give up on a node or an answer */
	uint32_t queued;              /* its place in the heap of cm/wait.c; 0: none */
	uint32_t shown; /* of a listener: the number of the child in the last event that the program
	                  got */
	bool owes_drep; /* the peer disconnects, and the program does not know yet (cm_told()) */
	bool collects; /* of a listener: the program accepts more than one request before it answers
	                  the first */
	bool reuse, afonly; /* RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY */
	uint8_t tos; /* the traffic class of its path: RDMA_OPTION_ID_TOS, or that of a request */
	uint8_t ack_timeout; /* RDMA_OPTION_ID_ACK_TIMEOUT, or from a request across the wire; 0:
	                        not set */
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count;
};

/* --- cm/device.c: the device, its descriptors and its events --- */
int compat_cm_open(int flags);
bool compat_cm_owns(int fd);
ssize_t compat_cm_write(int fd, const void *data, size_t bytes);
void compat_cm_close(int fd);
/* Called in a forked child: the descriptors and identifiers are the parent's. */
void compat_cm_forget(void);

void cm_lock(void);
void cm_unlock(void);
/* Wait until that time of CLOCK_MONOTONIC, or cm_lock_wake(). Called with the lock, which is
 * released meanwhile. */
void cm_lock_wait(uint64_t until_ns);
void cm_lock_wake(void);
struct cm_channel *cm_channel_of(int fd);
/* A new event for @id. NULL: librdmacm has not told its uid yet, or there is no memory. Fill it in,
 * then call cm_push(). */
struct cm_event *cm_event_new(struct cm_id *id, enum cm_event_type type, int status);
void cm_push(struct cm_event *event);
void cm_raise(struct cm_id *id, enum cm_event_type type, int status);
/* Take the events of @id out of its channel and into @to; NULL: drop them. */
void cm_move_events(struct cm_id *id, struct cm_channel *to);
/* Drop the events of @mc. */
void cm_forget_multicast(const struct cm_mc *mc);

/* --- cm/id.c: identifiers and the commands on them --- */
struct cm_id *cm_id_new(struct cm_channel *channel, uint16_t space, uint8_t qp_type);
struct cm_id *cm_id_of(uint32_t handle);
/* By the number that peers use. */
struct cm_id *cm_id_numbered(uint32_t number);
/* The key of a request for CM_BY_PEER, if the peer is a process of this machine. */
uint64_t cm_process_key(uint64_t guid, uint32_t slot, uint32_t number);
/* The next one at or after *at; NULL at the end. */
struct cm_id *cm_id_next(uint32_t *at);
void cm_id_end(struct cm_id *id);
/* @manager connects @id from now on, which has no connection yet. */
void cm_use(struct cm_id *id, const struct cm_manager *manager);
/* Look for the node that @id's address belongs to. Called with the lock, which is released
 * meanwhile: @id may be gone afterwards. */
void cm_seek(struct cm_id *id, bool last_time);
/* Execute a command. Called with the lock. 0 or an error. */
int cm_command(struct cm_channel *channel, const struct rdma_ucm_cmd_hdr *header, const void *body);

/* --- cm/addr.c: addresses, and what librdmacm asks about a route --- */
bool cm_is_any(const struct sockaddr_in6 *address);
in_port_t *cm_port_of(struct sockaddr_in6 *address);
/* The entry of our GID table for an address of this host. False: it is no address of this host. */
bool cm_local_gid(const struct sockaddr_in6 *address, struct hdl_gid *gid);
/* An address of the host that would stand for our node, but may be one that the user has given to
 * another node: *exact. */
bool cm_addr_may_be_of_another(const struct sockaddr_in6 *address, struct hdl_gid *exact);
/* Our LID if connections use LIDs; 0: they use GIDs. */
uint16_t cm_own_lid(void);
/* The address of our node on this machine, within CM_NODES, in the host's byte order; 0: it has
 * none. */
in_addr_t cm_node_address(void);
/* Where peers are reached over the wire, 127.0.0.1 is of no use to them: replace it by the address
 * that it stands for. Programs, libfabric among them, tell their peers which address they are bound
 * to. */
void cm_show_node(struct sockaddr_in6 *address);
/* May a request from @sender name @address as its source? 127.0.0.1 and the like are addresses of
 * our own node alone. */
bool cm_may_be_from(const struct sockaddr_in6 *address, const struct hdl_gid *sender);
/* The address of the node with this LID, for nodes whose wires no other machine reaches. */
void cm_lid_address(uint16_t lid, struct hdl_gid *gid);
/* The family of an address as an option of ports. */
uint32_t cm_family_of(const struct sockaddr_in6 *address);
/* Find where @id->dst is and how to reach it: fills in dgid, and src and sgid unless they are set.
 * *elsewhere: on another node, if that exists. 0 or an error. */
int cm_route(struct cm_id *id, bool *elsewhere);
/* The peer of @id is across the wire: the device's own manager connects it. */
void cm_cross(struct cm_id *id);
/* The manager of peers across the wire, or NULL. */
const struct cm_manager *cm_wire_manager(void);
/* The room for private data on our device, if that is not InfiniBand's @room. */
unsigned cm_room(unsigned room);
/* Are queue pairs to be in error when their connection has ended? */
bool cm_ends_qps(void);
/* How long an acknowledgement may take on the path of @id, 4.096 us * 2^n. */
uint8_t cm_ack_timeout(const struct cm_id *id);
void cm_query_route(const struct cm_id *id, struct rdma_ucm_query_route_resp *resp);
int cm_init_qp_attr(const struct cm_id *id, uint32_t state, struct ib_uverbs_qp_attr *attr);
void cm_ah_attr(const struct cm_id *id, struct ib_uverbs_ah_attr *attr);

/* --- cm/ib.c: addresses of InfiniBand, and the commands that know them --- */
struct cm_path_resp { /* struct rdma_ucm_query_path_resp with one path */
	uint32_t num_paths, reserved;
	struct ib_path_rec_data path;
};
/* An address of any family, of @size bytes; *space is not 0 if it is AF_IB. 0 or an error. */
int cm_address_in(const void *from, size_t size, struct sockaddr_in6 *to, uint16_t *space);
void cm_query_addr(const struct cm_id *id, bool as_gids, struct rdma_ucm_query_addr_resp *resp);
void cm_query_path(const struct cm_id *id, struct cm_path_resp *resp);

/* --- cm/multicast.c: groups --- */
bool cm_is_multicast(const struct sockaddr_in6 *address);
/* The GID of the multicast group that @address names on our device. */
void cm_multicast_gid(const struct sockaddr_in6 *address, struct hdl_gid *gid);
/* 0 or an error. */
int cm_join(struct cm_id *id, const struct sockaddr_in6 *address, bool is_gid, uint64_t uid,
            uint32_t *handle);
int cm_leave(uint32_t handle, uint32_t *events_reported);
/* Called when @id ends. */
void cm_leave_all(const struct cm_id *id);

/* --- cm/peer.c: what all connections share --- */
/* Called for each message from the agent. */
void cm_receive(void *context, const struct hdl_cm_msg *msg);
int cm_request(struct cm_id *id, const struct rdma_ucm_conn_param *param);
int cm_accept(struct cm_id *id, const struct rdma_ucm_conn_param *param);
int cm_reject(struct cm_id *id, uint32_t reason, const void *data, uint8_t length);
int cm_disconnect(struct cm_id *id);
/* Send the request of @id once more. */
void cm_repeat(struct cm_id *id);
/* There was no answer to what @id sent: send it again; give up. */
void cm_send_again(struct cm_id *id);
void cm_expire(struct cm_id *id);
/* The identifier ends: tell its peer. */
void cm_part(struct cm_id *id);
/* The program learned, or acted on it, that the peer of @id disconnects. Only now is the peer
 * answered, so that it does not learn of the end before the program does; but at the latest when it
 * repeats itself. */
void cm_told(struct cm_id *id);
/* The program exits: tell the peers that no agent tells. */
void cm_part_all(void);
/* Called in a forked child: the connections are the parent's. */
void cm_forget_all(void);
/* For managers: a message from the peer of @id. */
void cm_take(struct cm_id *id, const struct cm_message *message);
/* A request arrived for @manager. Returns the new identifier; or NULL, and whether there is a
 * listener. */
struct cm_id *cm_take_request(const struct cm_manager *manager, const struct hdl_cm_msg *msg,
                              const struct cm_message *message, bool *listening);
/* The peer is gone, or it disconnects. */
void cm_end_connection(struct cm_id *id);
/* Nobody answers. */
void cm_unreachable(struct cm_id *id);

/* --- cm/local.c: peers on this machine --- */
void cm_local_receive(const struct hdl_cm_msg *msg);

/* --- cm/infiniband.c: peers across the wire --- */
void cm_infiniband_receive(const struct hdl_cm_msg *msg);

/* --- cm/wait.c --- */
/* The request of @id was refused for want of a listener. True: it will be repeated; false: it has
 * been repeated often enough. */
bool cm_wait_more(struct cm_id *id);
/* Wait from now on: for an answer or a node, until it is time to give up; for the end of
 * TIMEWAIT. */
void cm_wait_answer(struct cm_id *id);
void cm_wait_timewait(struct cm_id *id);
void cm_wait_node(struct cm_id *id);
/* Wait for the next timer of its manager, if it has one. */
void cm_wait_manager(struct cm_id *id);
/* How long to wait for an answer. */
uint32_t cm_answer_ms(void);
uint64_t cm_now_ns(void);
void cm_give_up_in(struct cm_id *id, uint32_t timeout_ms);
/* @id waits for nothing any longer. */
void cm_wait_end(struct cm_id *id);
/* Called in a forked child: nothing waits. */
void cm_wait_forget(void);

#endif
