/* Virtual interfaces (include/heddle/vi.h): a queue pair, the handles of its descriptors
 * (transport/descriptor.h), and how two of them find each other.
 *
 * Setting up goes through the node agents, as messages of communication management (wire/ib_cm.h):
 * between processes of one agent the agent passes them on; to other machines they are management
 * datagrams. The two ends exchange the same messages either way.
 *
 *   hdl_vi_connect()   REQ  -->                hdl_vi_accept()
 *                      <--  REP                both ends are ready to receive before the other
 *                      RTU  -->                end sends
 *   hdl_vi_disconnect() DREQ -->  <-- DREP
 *   hdl_vi_resolve()   SIDR_REQ --> <-- SIDR_REP     hdl_vi_listen() with a VI
 *
 * A name becomes a port of the space VI_SPACE: the first free one of VI_PROBES, from its hash on.
 * The request has the name itself, so that a listener whose name has the same port refuses it, and
 * the requester tries the next. That a name has one listener per node is decided by the agent, too:
 * the listener also holds the port of VI_NAMES that is for this name alone, where nobody calls. */
#ifndef ADAPTER_VI_H
#define ADAPTER_VI_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <heddle/vi.h>

#include "transport/descriptor.h"
#include "wire/ib_cm.h"

#define MAGIC_VI          (0x48444c56u ^ magic_generation)
#define MAGIC_VI_LISTENER (0x48444c4cu ^ magic_generation)

#define VI_SPACE  0x01fdu /* an IP service of the protocol 253, which is for use such as this */
#define VI_NAMES  0x01feu /* and of the protocol 254 */
#define VI_PROBES 8u
#define VI_ID_BIT (1u << 21) /* in the numbers of connections of ours */

/* The other end, as messages reach it. */
struct vi_far {
	bool on_wire;
	uint64_t guid; /* its process, on this machine */
	uint32_t slot;
	struct hdl_gid gid; /* where its packets come from */
	struct hdl_gid own; /* over the network: our address */
	uint32_t id;        /* its number of the connection */
	uint32_t qpn;
	uint32_t psn;   /* that we begin with */
	uint8_t mac[6]; /* where cells go */
	uint16_t mtu;
};

/* A request that waits for hdl_vi_accept(). */
struct vi_request {
	struct vi_far from;
	uint64_t transaction;
	uint8_t transport; /* enum ib_cm_transport */
	bool cells;
};

struct hdl_vi_listener {
	uint32_t magic;
	struct hdl_adapter *adapter;
	struct hdl_vi_listener *next;
	struct hdl_vi *vi; /* that hdl_vi_resolve() finds; NULL: it is for connections */
	char name[HDL_VI_MAX_NAME];
	uint8_t name_bytes;
	uint16_t port;
	struct hdl_gid name_key; /* of VI_NAMES */
	uint32_t count;          /* of requests, oldest first */
	struct vi_request requests[HDL_VI_BACKLOG];
};

/* What became of a request of ours. */
enum vi_answer {
	VI_UNANSWERED,
	VI_ACCEPTED,
	VI_NOT_THERE, /* nobody has that port, or has it under another name */
	VI_REFUSED,
	VI_UNREACHABLE
};

struct hdl_vi {
	uint32_t magic;
	struct hdl_vi *next; /* of the adapter's, under vis.lock */
	struct hdl_pd *pd;
	struct hdl_qp *qp;
	struct hdl_vi_attr attr;
	struct hdl_channel *channels[2]; /* of the queues without a completion queue of the user; */
	struct hdl_cq *cqs[2];           /* by enum hdl_vi_queue */
	struct descriptors descriptors;
	pthread_mutex_t post_locks[2];
	_Atomic uint32_t taken[2]; /* descriptors, by hdl_vi_done() */

	/* Under vis.lock. */
	uint32_t state; /* enum hdl_vi_state */
	uint32_t users; /* listeners that answer for it */
	uint32_t id;    /* our number of the connection; 0: none */
	uint64_t transaction;
	bool asking;    /* waits for the answer to a REQ or SIDR_REQ, */
	bool offering;  /* or for the RTU to its REP */
	uint8_t answer; /* enum vi_answer */
	uint32_t rq_psn;
	struct vi_far far;
	struct descriptor_peer found; /* by hdl_vi_resolve() */

	/* Without connection: peers is written with vis.lock and the drive lock. */
	struct descriptor_peer *peers;
	struct hdl_ah **ahs; /* under post_locks[HDL_VI_SEND_QUEUE]; NULL: not needed yet */
	uint32_t qkey;
	struct hdl_mr *headers; /* descriptors.headers */
};

/* The virtual interfaces of an adapter. Lock order: post_locks, then vis.lock, then the drive
 * lock. */
struct vis {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* something that a thread may wait for has happened */
	struct hdl_vi *list;
	struct hdl_vi_listener *listeners;
	uint32_t next_id;
};

/* --- vi.c --- */
void vis_init(struct vis *vis);
void vis_end(struct vis *vis);
/* The connection ends: flush the descriptors. */
void vi_fail(struct hdl_vi *vi);
/* After that, or when it is new: be idle. Returns 0 or an error. */
int vi_reset(struct hdl_vi *vi);

/* --- message.c --- */
#define VI_HELLO_BYTES    72u                  /* which name a request is for */
#define VI_SELF_BYTES     (8u + 4u + 4u + 16u) /* guid, qpn, qkey, gid: who asks or answers */
#define VI_REJ_NAME       1u                   /* in the information of a REJ: another name */
#define VI_HELLO_CELLS    1u                   /* a hello of a VI that speaks cells */
#define VI_HELLO_DATAGRAM 2u                   /* a hello for a VI without connection */
#define VI_READ_DEPTH     16u
#define VI_RNR_RETRY      6u

/* Send @message to @to, or as @msg says. Returns 0 or an error. */
int vi_send(struct hdl_adapter *adapter, const struct vi_far *to, struct hdl_cm_msg *msg,
            const struct ib_cm_message *message);
void vi_tell(struct hdl_adapter *adapter, const struct vi_far *to,
             const struct ib_cm_message *message);
/* Refuse a request; @own: our number of the connection, if there is one by now. */
void vi_reject(struct hdl_adapter *adapter, const struct vi_far *to, uint32_t own,
               uint64_t transaction, enum ib_cm_reason reason, uint8_t info);
/* A DREQ or DREP about the connection of @vi. */
struct ib_cm_message vi_farewell(const struct hdl_vi *vi, enum ib_cm_kind kind);
/* Tell the peer that a connection ends. With vis.lock. */
void vi_part(struct hdl_vi *vi);
/* Over the network, the node agent tells the peer if this process ends without doing so. */
void vi_leave_notice(struct hdl_vi *vi);
/* The @probe-th port that a name may have. */
uint16_t vi_name_port(const char *name, size_t bytes, uint32_t probe);
/* The "address" by which the agent tells a name from all others. */
struct hdl_gid vi_name_key(const char *name, size_t bytes);
/* 0: it is no name. */
size_t vi_name_length(const char *name);
void vi_hello_encode(uint8_t *out, const char *name, size_t bytes, uint8_t channel);
/* Is it a hello to @listener? */
bool vi_hello_names(const uint8_t *in, const struct hdl_vi_listener *listener);
void vi_self_encode(uint8_t *out, uint64_t guid, uint32_t qpn, uint32_t qkey,
                    const struct hdl_gid *gid);
/* @from: where it came from, if from a network; else NULL, and it says so itself. */
struct descriptor_peer vi_self_decode(const struct hdl_adapter *adapter, const uint8_t *in,
                                      const struct hdl_gid *from);
/* @vi, without connection, may send to @peer from now on. With vis.lock. False: it knows too many.
 */
bool vi_know(struct hdl_vi *vi, const struct descriptor_peer *peer);

/* --- hear.c --- */
/* Does a peer that speaks cells, or does not, reach @vi? It does not matter where lanes lead from
 * one to the other. */
bool vi_same_wire(const struct hdl_vi *vi, bool cells, const struct vi_far *from);
/* Forget the request number @at. With vis.lock. */
void vi_drop_request(struct hdl_vi_listener *listener, uint32_t at);
/* A message of communication management arrived. False: it is not about virtual interfaces. Called
 * by the adapter's thread without a lock. */
bool vi_hear(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg);

#endif
