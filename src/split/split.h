/* The messaging layer of the split driver (SPLIT section IV): what a host and an I/O unit say to
 * each other so that frames pass between them. It is sans-I/O, and knows queue pairs, cells and
 * sockets only through struct split_channel, the channel interface of SPLIT figure 5. Above it is
 * the OS interface of a host or the LAN interface of a unit (struct split_user).
 *
 * One struct split is one end of one service connection with two channels: 0 for control, 1 for
 * data. How a frame travels depends on the mode and the model (PP7), which both ends agree on
 * before they begin:
 *
 *   mode, model        direction   how                                          one-way trips
 *   send               both        SendData on channel 1                              1
 *   RDMA, push-push    both        written into an element of the receiver's pool     1
 *   RDMA, push-pull    to unit     as push-push                                       1
 *                      to host     host is told where it is, and reads it             3
 *   RDMA, pull-pull    both        receiver is asked for an element, grants one,      3
 *                                  and it is written there
 *
 * Where the receiver owns no pools (split_config.own_pools), what would be written is sent by
 * SendData.
 *
 * An element of a pool belongs to the writer from when it was offered until it was written, and to
 * the owner from then on until an update. Only the owner can know when it has read an element, so
 * the owner sends BufferRecvPoolUpdate (ADR 0180).
 *
 * A peer that breaks the rules gets a verdict: the connection fails (RDMA mode), or the message is
 * dropped (send mode), and a counter says why. Nothing that a peer sends reaches memory outside of
 * what was offered. */
#ifndef SPLIT_SPLIT_H
#define SPLIT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/push.h"
#include "wire/push_cfg.h"

#define SPLIT_MAX_POOLS         512u  /* of one side; more than immediate data can name */
#define SPLIT_MAX_ELEMENTS      4096u /* of all pools of one side */
#define SPLIT_MAX_ELEMENT_BYTES (1u << 24)
#define SPLIT_MAX_SLOTS         256u /* frames that wait to be sent or are in flight */
#define SPLIT_MAX_PLANS         8u   /* pools that one side offers at first */
#define SPLIT_MESSAGES          16u  /* control messages in flight from one side */
#define SPLIT_RECEIVES          64u  /* receives that each side posts for messages, per channel */
#define SPLIT_MAX_REQUESTS      8u   /* configuration requests that wait, each way */
#define SPLIT_MAX_TRIES         10u  /* of a configuration request on an unacknowledged channel */
#define SPLIT_RETRY_NS          200000000ull
#define SPLIT_REPLY_NS          2000000000ull /* how long to wait for replies */
#define SPLIT_FLUSH_NS          1000000000ull
#define SPLIT_PROBE_NS          20000000ull /* until a sender without credit asks for some */

enum split_role { SPLIT_HOST, SPLIT_UNIT };
enum split_mode { SPLIT_RDMA, SPLIT_SEND, SPLIT_MODE_COUNT };
enum split_model { SPLIT_PUSH_PUSH, SPLIT_PUSH_PULL, SPLIT_PULL_PULL, SPLIT_MODEL_COUNT };
enum split_channel_number { SPLIT_CONTROL, SPLIT_DATA };

/* A pool to offer. */
struct split_plan {
	uint32_t elements, element_bytes;
	uint16_t port;   /* what to steer there; 0: anything */
	uint32_t source; /* IPv4 */
	bool by_address;
};

struct split_config {
	enum split_role role;
	enum split_mode mode;
	enum split_model model;
	bool own_pools;       /* frames to this side are written into pools that it owns, */
	bool peer_owns_pools; /* and the same for the other side */
	bool by_message;  /* indicate by BufferRDMAIndicate even where immediate data would do */
	bool credits;     /* SendData has flow control: both ends know it */
	bool one_channel; /* SendData goes on the control channel: there is no other */
	uint32_t header_bytes; /* of the offload header in front of each frame */
	uint32_t frame_bytes;  /* the longest frame, with its offload header */
	uint32_t slots;
	struct split_plan plans[SPLIT_MAX_PLANS];
	uint32_t plan_count;
	uint32_t max_pools; /* BufferRecvPoolGet is answered by new pools up to here */
};

/* Registered memory, which the binding provides. */
struct split_memory {
	uint8_t *host;
	uint64_t address;
	uint32_t handle;
};

enum split_op_kind { SPLIT_OP_SEND, SPLIT_OP_WRITE, SPLIT_OP_READ };

struct split_op {
	enum split_op_kind kind;
	enum split_channel_number channel;
	uint8_t *local; /* in the memory of split_init(), or of a pool */
	uint32_t bytes;
	uint64_t address; /* WRITE and READ: at the peer */
	uint32_t handle;
	bool has_immediate; /* WRITE */
	uint32_t immediate;
};

/* The channel interface. No call of it may call the layer back. */
struct split_channel {
	/* Start an operation; split_done(@id) follows. Operations of a channel are executed in
	 * order, and complete in order. False: there is no room; split_pump() is called later. */
	bool (*post)(void *binding, const struct split_op *op, uint64_t id);
	/* Register memory for pool @index: @elements of @element_bytes, which the peer may write,
	 * or read if @readable. memory->host is NULL: allocate it. For a pool that is written, post
	 * that many receives on the data channel first. False: it cannot be had. */
	bool (*offer)(void *binding, uint32_t index, uint32_t elements, uint32_t element_bytes,
	              bool readable, struct split_memory *memory);
	/* End what offer() began: afterwards nobody reaches the memory. */
	void (*withdraw)(void *binding, uint32_t index);
	/* The receive with this number, which split_received() kept, may be posted again. */
	void (*release)(void *binding, uint32_t receive);
};

/* What is above. No call of it may call the layer back. */
struct split_user {
	/* A frame; it is the layer's again when the call returns. False: not now; it and those
	 * behind it wait until split_deliver(). */
	bool (*deliver)(void *user, const uint8_t *frame, uint32_t bytes);
	/* The peer asks; fill in @reply, whose item is that of @request, code PUSH_CFG_OK. */
	void (*configure)(void *user, const struct push_cfg *request, struct push_cfg *reply);
	/* An answer; NULL: there was none in time. */
	void (*configured)(void *user, uint64_t token, const struct push_cfg *reply);
};

enum split_state { SPLIT_OPEN, SPLIT_CLOSING, SPLIT_CLOSED, SPLIT_FAILED };

/* What was wrong with something that the peer sent. */
enum split_verdict {
	SPLIT_OK,
	SPLIT_BAD_MESSAGE,   /* push_decode() refused it */
	SPLIT_BAD_CHANNEL,   /* a message that does not belong on this channel, or in this mode */
	SPLIT_POOL_LIMIT,    /* more pools or elements than this layer keeps, or too large */
	SPLIT_POOL_TWICE,    /* a pool with that index is open */
	SPLIT_POOL_OVERLAP,  /* its memory is part of another pool */
	SPLIT_POOL_KIND,     /* not of a kind that the model has */
	SPLIT_NO_POOL,       /* no such pool */
	SPLIT_NO_ELEMENT,    /* no such element */
	SPLIT_NOT_OFFERED,   /* written, though it was not the writer's: never offered, or twice */
	SPLIT_BAD_SIZE,      /* empty, or longer than the element */
	SPLIT_NOT_USED,      /* an update of an element that was not written */
	SPLIT_BAD_REPLY,     /* a reply to nothing */
	SPLIT_TOO_MANY,      /* more requests at a time than there may be */
	SPLIT_BAD_IMMEDIATE, /* an indication in a mode without, or an address between elements */
	SPLIT_CHANNEL_ERROR, /* an operation failed */
	SPLIT_VERDICT_COUNT
};

enum split_counter {
	SPLIT_TX_FRAMES,
	SPLIT_TX_BYTES,
	SPLIT_RX_FRAMES,
	SPLIT_RX_BYTES,
	SPLIT_TX_MESSAGES, /* control messages, */
	SPLIT_TX_MESSAGE_BYTES,
	SPLIT_RX_MESSAGES,
	SPLIT_RX_MESSAGE_BYTES,
	SPLIT_TX_WRITES, /* frames by RDMA write, */
	SPLIT_TX_SENDS,  /* SendData, */
	SPLIT_TX_SHOWN,  /* or for the peer to read */
	SPLIT_TX_ASKED,  /* elements that the peer was asked for (pull-pull) */
	SPLIT_RX_READS,
	SPLIT_INDICATED,      /* frames that were indicated by BufferRDMAIndicate */
	SPLIT_STARVED,        /* BufferRecvPoolGet was sent because no element was free */
	SPLIT_FLUSH_TIMEOUTS, /* pools that were withdrawn without a reply */
	SPLIT_RX_TOO_LONG,    /* frames above frame_bytes, dropped */
	SPLIT_VERDICTS,       /* the first of SPLIT_VERDICT_COUNT counters */
	SPLIT_COUNTER_COUNT = SPLIT_VERDICTS + SPLIT_VERDICT_COUNT
};
extern const char *const split_counter_names[SPLIT_COUNTER_COUNT];
const char *split_verdict_text(enum split_verdict verdict);

enum split_pool_state {
	SPLIT_POOL_NONE,
	SPLIT_POOL_NEW, /* own: not announced yet */
	SPLIT_POOL_OPEN,
	SPLIT_POOL_FLUSHING, /* own: waits for the reply; peer's: for operations in flight */
	SPLIT_POOL_ENDING    /* own: the peer has stopped; frames in it wait to be delivered */
};

/* A pool of either side. The states of its elements, and a ring of those that are free, begin at
 * @first in the tables of struct split_side. */
struct split_pool {
	struct push_pool at;
	enum split_pool_state state;
	uint16_t flags; /* enum push_pool_flag */
	bool local;     /* own: never offered, filled by reads */
	bool source;    /* own: the slots, for the peer to read */
	bool returning; /* peer's: this side wants it flushed */
	bool sent;      /* the request to flush it was sent */
	uint8_t *host;  /* own */
	uint32_t first;
	uint32_t free, ring_head; /* elements in the ring */
	uint32_t updates;         /* elements that an update is to be sent for */
	uint32_t busy; /* peer's: operations in flight, or elements to be read; own: elements that
	                  hold frames, or that are being filled */
};

struct split_side {
	struct split_pool pools[SPLIT_MAX_POOLS];
	uint16_t open[SPLIT_MAX_POOLS]; /* places in pools, in order of arrival */
	uint32_t open_count;
	uint8_t element[SPLIT_MAX_ELEMENTS]; /* enum split_element */
	uint16_t ring[SPLIT_MAX_ELEMENTS];
};

struct split_slot {
	uint8_t state;
	uint16_t pool; /* place in theirs.pools */
	uint32_t element, bytes;
};

/* A queue of numbers below SPLIT_MAX_ELEMENTS. */
struct split_queue {
	uint32_t head, tail;
	uint16_t entry[SPLIT_MAX_ELEMENTS];
};

/* A frame that arrived. */
struct split_frame {
	uint16_t pool;                    /* place in mine.pools; SPLIT_MAX_POOLS: a receive */
	uint16_t element;                 /* or the receive's number */
	uint16_t from_pool, from_element; /* it was read from there: place in theirs.pools */
	bool ready;
	uint32_t bytes;
	uint32_t number; /* of a SendData */
	const uint8_t *data;
};
#define SPLIT_MAX_FRAMES (SPLIT_MAX_ELEMENTS + SPLIT_RECEIVES)

struct split_request {
	uint64_t token, context, deadline_ns;
	uint32_t tries;
	bool is_reply;
	uint32_t bytes;
	uint8_t data[PUSH_CFG_HEADER_BYTES + 4 + PUSH_CFG_MAX_MULTICAST * PUSH_MAC_BYTES];
};

struct split {
	struct split_config config;
	const struct split_channel *channel;
	void *binding;
	const struct split_user *user;
	void *user_context;
	enum split_state state;
	enum split_verdict verdict; /* why it failed */
	uint64_t now_ns, next_context;
	struct split_side mine, theirs;

	/* Registered: SPLIT_MESSAGES of PUSH_MAX_BYTES, then the slots. */
	uint8_t *memory;
	uint32_t slot_bytes;
	uint8_t message_busy[SPLIT_MESSAGES];

	/* Frames to be sent. */
	struct split_slot slots[SPLIT_MAX_SLOTS];
	uint32_t slots_free, slot_taken, next_slot;
	struct split_queue queued, asked, written;
	uint32_t asks;     /* pull-pull: slots of asked that BufferRecvPoolGet was sent for */
	uint32_t messages; /* indications by message that have not completed, with their writes */
	bool starving, get_sent;

	/* SendData: the last number that was sent, and the last that may be; the last that was
	 * taken, and the last that the peer was told of. */
	uint32_t sent_number, sent_limit, taken_number, told_number;
	bool no_credit, tell_taken; /* a frame waits for room; the peer has asked */
	uint64_t probe_ns;          /* when to ask the peer */

	/* Frames that arrived, and what they wait for. */
	struct split_frame frames[SPLIT_MAX_FRAMES];
	uint32_t frames_head, frames_tail, frames_issued;
	bool delivering;                  /* the one at the head */
	uint32_t wanted[SPLIT_MAX_SLOTS]; /* pull-pull: sizes that the peer asked elements for */
	uint32_t wanted_head, wanted_tail;
	bool urgent; /* send updates now, not when there are many */
	uint32_t get_bytes, get_packets;

	/* Requests and replies. */
	bool flush_sent, reply_owed;
	uint64_t flush_context, flush_deadline_ns, reply_context;
	struct split_request requests[SPLIT_MAX_REQUESTS], replies[SPLIT_MAX_REQUESTS];
	uint32_t request_head, request_tail, reply_head, reply_tail;

	uint64_t counters[SPLIT_COUNTER_COUNT];
};

/* Bytes of memory that split_init() needs for @config; 0: the configuration is not possible. */
size_t split_memory_bytes(const struct split_config *config);
/* Begin, on channels that are connected. @memory has split_memory_bytes() bytes, which the binding
 * has registered. False: a pool cannot be had; those that could have been withdrawn. */
bool split_init(struct split *split, const struct split_config *config,
                const struct split_channel *channel, void *binding, const struct split_user *user,
                void *user_context, uint8_t *memory, uint64_t now_ns);

/* --- what the binding reports. It calls split_pump() after one or more of these. --- */

/* A message arrived on a channel, in the binding's receive @receive. True: the layer keeps it until
 * release(). Receives of the two channels are reported in the order in which they completed. */
bool split_received(struct split *split, enum split_channel_number channel, const uint8_t *message,
                    size_t bytes, uint32_t receive);
/* A write with immediate data arrived on the data channel; its receive has been posted again. */
void split_indicated(struct split *split, uint32_t immediate);
void split_done(struct split *split, uint64_t id, bool good);
/* Send what is to be sent, as far as there is room, and give up what took too long. */
void split_pump(struct split *split, uint64_t now_ns);
/* When split_pump() is to be called at the latest; UINT64_MAX: not by time. */
uint64_t split_deadline(const struct split *split);

/* --- what the user calls --- */

/* Where to put the next frame, of config.frame_bytes at most. NULL: leave frames where they are
 * until split_pump() has been called again. Split_send() or split_untake() must follow. */
uint8_t *split_take(struct split *split);
void split_untake(struct split *split);
/* Send the frame that is in the slot from split_take(). */
void split_send(struct split *split, uint32_t bytes);
/* The user has room again. */
void split_deliver(struct split *split);
/* Within deliver(): where the frame is. False: it came as a message, or none is being delivered. */
bool split_delivering(const struct split *split, struct push_indication *at);
/* False: SPLIT_MAX_REQUESTS wait. */
bool split_configure(struct split *split, const struct push_cfg *request, uint64_t token);
/* Offer one more pool of this kind; false: not possible. */
bool split_offer(struct split *split, const struct split_plan *plan);
/* Does the peer write frames for this side into pools? */
bool split_receives_in_pools(const struct split *split);
/* How many elements of @pool, which is one of @side, its writer may write. */
uint32_t split_pool_free(const struct split_side *side, const struct split_pool *pool, bool own);
/* Withdraw own pool @index, after the peer has stopped writing. False: no such pool. */
bool split_flush(struct split *split, uint32_t index);
/* The other way round: tell the peer that its pool @index is not needed any more. */
bool split_return(struct split *split, uint32_t index);
/* Flush all own pools. The state becomes SPLIT_CLOSED when that is done, after SPLIT_FLUSH_NS at
 * most. */
void split_close(struct split *split);
/* The channels have ended: withdraw all that was offered. */
void split_end(struct split *split);

#endif
