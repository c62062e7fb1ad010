/* /dev/infiniband/rdma_cm inside the process: what librdmacm writes to it is answered here, by the kernel's interface
 * <rdma/rdma_user_cm.h>.
 *
 * A channel is a descriptor of librdmacm's, an eventfd that is readable while there are events. An identifier belongs to a channel;
 * its peer is an identifier of some process on the node, and the two exchange the messages of the communication manager (IBTA
 * volume 1 chapter 12), carried by the node agent (hdl_cm_send(3)). One lock guards everything here; it is not held while the agent is
 * asked for a port, because the adapter's thread needs it to go on. */
#ifndef COMPAT_CM_H
#define COMPAT_CM_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/rdma_user_cm.h>

#include "compat/compat.h"

/* As rdma_cma.h numbers them for programs. */
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
	CM_TIMEWAIT_EXIT = 15
};

/* Room for private data in the messages (IBTA 12.6; of a request the addresses take 36 bytes, annex A11). Programs are told of
 * all of it, whatever was given, as on other devices. */
#define CM_REQ_ROOM      56u
#define CM_REP_ROOM      196u
#define CM_REJ_ROOM      148u
#define CM_SIDR_REQ_ROOM 180u
#define CM_SIDR_REP_ROOM 136u

/* Reasons of a rejection (IBTA 12.6.7.2). */
#define CM_REASON_NO_SERVICE 8u
#define CM_REASON_CONSUMER   28u

/* Of a service's resolution (IBTA 12.11.2). */
#define CM_SIDR_NO_SERVICE 1u
#define CM_SIDR_REJECTED   2u

#define CM_UDP_QKEY    0x01234567u
#define CM_MAX_BACKLOG 1024

enum cm_kind { CM_REQ, CM_MRA, CM_REP, CM_RTU, CM_REJ, CM_DREQ, CM_DREP, CM_SIDR_REQ, CM_SIDR_REP };

/* What travels, in the host's byte order: both ends are on this machine. */
struct cm_wire {
	uint32_t kind;
	uint32_t from, to; /* identifiers */
	uint32_t qpn, psn, qkey;
	uint32_t status; /* reason, or status of a SIDR_REP */
	uint8_t responder_resources, initiator_depth;
	uint8_t flow_control, retry_count, rnr_retry_count, srq;
	uint8_t private_length;
	uint8_t reserved;
	uint8_t sgid[16], dgid[16]; /* of the sender of a request */
	struct sockaddr_in6 src, dst;
	uint8_t private_data[RDMA_MAX_PRIVATE_DATA];
};
_Static_assert(sizeof(struct cm_wire) <= HDL_CM_BYTES, "a message holds it");

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

struct cm_id;

struct cm_event {
	struct cm_event *next;
	struct cm_id *owner; /* the listener of a request */
	struct cm_id *child; /* of a request */
	struct rdma_ucm_event_resp resp;
};

struct cm_channel {
	int fd;
	struct cm_event *first, **end;
};

struct cm_id {
	uint32_t handle; /* for librdmacm */
	uint32_t number; /* for peers: the handle and how often it was used */
	struct cm_channel *channel;
	uint64_t uid; /* librdmacm's; 0: it does not know us yet */
	uint16_t space;
	uint8_t qp_type;
	enum cm_state state;
	uint32_t events_reported;
	int backlog; /* requests that may still wait to be taken */

	struct sockaddr_in6 src, dst; /* or sockaddr_in, by family; family 0: none */
	struct hdl_gid sgid, dgid;
	bool has_device; /* sgid is one */
	bool has_path;
	bool holds_port, for_all;
	bool one_family; /* RDMA_OPTION_ID_AFONLY */

	uint64_t guid; /* of the peer */
	uint32_t slot, peer;
	uint32_t qpn, psn, qkey; /* the peer's */
	uint32_t own_psn;
	struct cm_wire
	        *request; /* what was asked, while there may be need to ask again (cmwait.c) */
	unsigned tries;
	bool waiting;
	unsigned lingers;    /* rounds until CM_TIMEWAIT_EXIT */
	uint8_t ack_timeout; /* RDMA_OPTION_ID_ACK_TIMEOUT; 0: not set */
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count;
};

/* --- cmdevice.c: the device, its descriptors and its events --- */
int compat_cm_open(int flags);
bool compat_cm_owns(int fd);
ssize_t compat_cm_write(int fd, const void *data, size_t bytes);
void compat_cm_close(int fd);
/* The parent's descriptors and identifiers are not a child's. */
void compat_cm_forget(void);

void cm_lock(void);
void cm_unlock(void);
struct cm_channel *cm_channel_of(int fd);
/* A new event for @id, of which librdmacm knows the uid; NULL: it does not, or there is no memory. Fill it in, then cm_push(). */
struct cm_event *cm_event_new(struct cm_id *id, enum cm_event_type type, int status);
void cm_push(struct cm_event *event);
void cm_raise(struct cm_id *id, enum cm_event_type type, int status);
/* Take the events of @id out of its channel and into @to; NULL: drop them. */
void cm_move_events(struct cm_id *id, struct cm_channel *to);

/* --- cmid.c: identifiers and the commands on them --- */
struct cm_id *cm_id_new(struct cm_channel *channel, uint16_t space, uint8_t qp_type);
struct cm_id *cm_id_of(uint32_t handle);
/* The next one at or after *at; NULL at the end. */
struct cm_id *cm_id_next(uint32_t *at);
void cm_id_end(struct cm_id *id);
/* One command, with the lock. 0 or an error. */
int cm_command(struct cm_channel *channel, const struct rdma_ucm_cmd_hdr *header, const void *body);

/* --- cmaddr.c: addresses, and what librdmacm asks about a route --- */
bool cm_is_any(const struct sockaddr_in6 *address);
in_port_t *cm_port_of(struct sockaddr_in6 *address);
/* The entry of our GID table for an address of this host. False: it is not one. */
bool cm_local_gid(const struct sockaddr_in6 *address, struct hdl_gid *gid);
/* Where @id->dst is, and from where: fills dgid, and src and sgid unless they are set. 0 or an error. */
int cm_route(struct cm_id *id);
void cm_query_route(const struct cm_id *id, struct rdma_ucm_query_route_resp *resp);
int cm_init_qp_attr(const struct cm_id *id, uint32_t state, struct ib_uverbs_qp_attr *attr);
void cm_ah_attr(const struct cm_id *id, struct ib_uverbs_ah_attr *attr);

/* --- cmpeer.c: messages --- */
void cm_heard(void *context, const struct hdl_cm_msg *msg);
int cm_request(struct cm_id *id, const struct rdma_ucm_conn_param *param);
int cm_accept(struct cm_id *id, const struct rdma_ucm_conn_param *param);
int cm_reject(struct cm_id *id, uint32_t reason, const void *data, uint8_t length);
int cm_disconnect(struct cm_id *id);
/* Send the request of @id once more. */
void cm_repeat(struct cm_id *id);
/* The identifier ends: its peer is told. */
void cm_part(struct cm_id *id);

/* --- cmwait.c --- */
/* Nobody took the request of @id. True: it will be repeated; false: it was often enough. */
bool cm_wait_more(struct cm_id *id);
/* The connection of @id has ended: tell the program when its name may be used again. */
void cm_linger(struct cm_id *id);
void cm_wait_forget(void);

#endif
