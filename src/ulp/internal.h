/* What the files of src/ulp share; see heddle/push.h. */
#ifndef ULP_INTERNAL_H
#define ULP_INTERNAL_H

#include <pthread.h>

#include <heddle/push.h>

#include "split/split.h"
#include "wire/ib_cm.h"

#define MAIL 64u /* messages that wait; more are dropped, and the connection times out */

enum push_stage {
	STAGE_CALLING,  /* the request was sent */
	STAGE_JOINING,  /* iWARP: the host has the answer, and connects the channels */
	STAGE_ANSWERED, /* the answer was; the host has not confirmed it */
	STAGE_OPEN,
	STAGE_CLOSING, /* pools are being flushed */
	STAGE_OVER     /* to be freed */
};

struct push_region {
	bool used, allocated;
	uint32_t index, elements;
	uint8_t *host;
	size_t bytes;
	struct hdl_mr *mr;
};

/* Operations on an iWARP channel that have not completed, in the order in which they were posted.
 * All before @fenced complete with the read that was posted there. */
#define ORDER_MAX 512u
struct push_order {
	uint32_t put, fenced, done;
	uint64_t ids[ORDER_MAX];
};

struct hdl_push {
	struct hdl_push *next;
	struct hdl_push_port *port;
	void *user;
	enum split_role role;
	enum push_stage stage;
	char name[HDL_PUSH_NAME_BYTES];
	char why[128];
	bool armed, broken;
	struct hdl_push_terms terms;
	uint64_t deadline_ns;

	/* The other end. */
	bool bye;     /* it has said that it ends */
	bool wire;    /* it is not of this agent: management datagrams lead there */
	bool cells;   /* packets to it are cells: what the host speaks */
	bool credits; /* it knows flow control of SendData */
	struct hdl_gid gid, own;
	uint64_t repeat_ns; /* when to send the last message again */
	uint64_t transaction;
	uint64_t guid;
	uint32_t slot;
	uint16_t service;
	uint32_t id, peer_id; /* of the connection */
	uint32_t qpn[2], psn[2], peer_qpn[2], peer_psn[2];
	uint16_t mtu;

	/* iWARP. */
	bool stream;       /* the channels are connections of their own */
	uint16_t tcp_port; /* where the unit waits for them */
	uint32_t joined;   /* channels that are established: bits */
	struct hdl_conn *conn[2];
	struct push_order order[2];

	struct hdl_cq *cq;
	struct hdl_qp *qp[2];
	uint8_t *memory; /* messages and slots, then the receives */
	size_t memory_bytes, receives_at;
	struct hdl_mr *mr;
	struct push_region regions[SPLIT_MAX_POOLS];
	uint32_t posted; /* receives for immediate data */
	struct split *split;
};

struct hdl_push_port {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_channel *channel;
	struct hdl_limits limits;
	const struct hdl_push_ops *ops;
	void *context;
	uint16_t service;
	struct hdl_push *links;
	uint32_t link_count;
	struct hdl_listener *listener; /* for iWARP channels; NULL: no host has asked for any */
	uint16_t tcp_port;
	bool hears_streams;         /* hdl_conn_notify() was called, */
	_Atomic bool streams_ready; /* and has been answered since */

	int bell;
	_Atomic bool rung;    /* set after the bell was written to */
	pthread_mutex_t lock; /* of what is below */
	struct hdl_cm_msg mail[MAIL];
	uint32_t head, tail;
};

/* --- channels.c: queue pairs as channels --- */

/* How many there are. */
static inline uint32_t channels_count(const struct hdl_push *push)
{
	return push->terms.one_channel ? 1 : 2;
}

/* Make queue pairs and memory for the terms of @push. Returns 0 or a negative error. */
int channels_make(struct hdl_push *push);
/* Connect them to those of the peer, and begin to speak. */
int channels_connect(struct hdl_push *push);
int channels_begin(struct hdl_push *push);
void channels_free(struct hdl_push *push);
/* Take completions. Returns how many. */
int channels_poll(struct hdl_push *push);
/* Ask for the end of operations that complete by a read behind them. */
void channels_fence(struct hdl_push *push);
void channels_config(const struct hdl_push *push, struct split_config *config);

/* --- pools.c: pools that the user chooses --- */

/* Can all pools of @terms be offered, and does one of them take any frame? */
/* Does a frame have room for more than its offload header? */
bool terms_leave_room(const struct hdl_push_terms *terms);
bool pools_possible(const struct hdl_push_terms *terms);
struct split_plan pools_plan(const struct hdl_push_pool *pool);

/* --- setup.c: how two ends agree; setup_wire.c: the same on a network --- */

#define SETUP_BYTES   92u
#define SETUP_VERSION 1u
#define SETUP_MAGIC   0x48445055u
#define CM_ID_BITS    22u /* below the slot of the process */

enum setup_kind {
	SETUP_REQUEST = 1,
	SETUP_ANSWER,
	SETUP_CONFIRM,
	SETUP_REFUSAL,
	SETUP_BYE,
	SETUP_CHANNEL
};

/* Send the @body of a message as a management datagram. */
int setup_wire_send(struct hdl_push *push, enum setup_kind kind, const uint8_t *body);
/* A refusal of the request in @msg. */
void setup_wire_refuse(struct hdl_push_port *port, const struct hdl_cm_msg *msg,
                       const uint8_t *body);
/* The body within the datagram @msg, NULL: there is none. *kind is what it is. */
const uint8_t *setup_wire_body(const struct hdl_cm_msg *msg, struct ib_cm_message *message,
                               enum setup_kind *kind);
void setup_wire_leave_notice(struct hdl_push *push, const uint8_t *body);
void setup_wire_answer_bye(struct hdl_push *push);

/* @text will be shown: whatever is not printable ASCII in it becomes '?', so that the other end can
 * neither control a terminal nor forge a line. */
void setup_clean(char *text);
int setup_call(struct hdl_push *push);
void setup_bye(struct hdl_push *push);
/* Time passes: what may have got lost is sent again. */
void setup_time(struct hdl_push *push, uint64_t now_ns);
/* Handle messages of other processes. Returns how many. */
int setup_run(struct hdl_push_port *port);
/* Called by threads of the adapter. */
void setup_heard(void *context, const struct hdl_cm_msg *msg);
void setup_ring(struct hdl_push_port *port);
/* All channels of an iWARP connection are established. */
void setup_joined(struct hdl_push *push);

/* --- streams.c: iWARP connections as channels --- */

/* Connect the channels to the unit, or, at the unit, be ready for them. */
int streams_connect(struct hdl_push *push);
/* Handle events of connections. Returns how many. */
int streams_run(struct hdl_push_port *port);
void streams_end(struct hdl_push *push);
void streams_shut(struct hdl_push_port *port);

/* --- push.c --- */

struct hdl_push *push_link_new(struct hdl_push_port *port, enum split_role role, const char *name,
                               const struct hdl_push_terms *terms);
void push_link_over(struct hdl_push *push, const char *why);

#endif
