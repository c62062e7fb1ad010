/* Virtual interfaces (VI): queue pairs that take their work from descriptors in registered memory,
 * as in the Virtual Interface Architecture, version 1.0.
 *
 * A virtual interface is a queue pair and a memory handle is a key: regions, protection domains and
 * completion queues are those of heddle.h. A program writes a descriptor into registered memory and
 * rings the doorbell of a queue with the descriptor's address and handle. The descriptor is checked
 * and read once, so a later change of it has no effect. When the work is done, status and length
 * are written back into it.
 *
 *      0  control segment    what to do; status, length and immediate data when done
 *     32  address segment    of RDMA: where in the peer's memory; without a connection, every
 *                            descriptor has one: the destination, or who sent
 *     ..  data segments      the program's own buffers
 *
 * The comments have the form that heddle.h explains. */
#ifndef HEDDLE_VI_H
#define HEDDLE_VI_H

#include <heddle/heddle.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hdl_vi;
struct hdl_vi_listener;

/* The control field of a descriptor: one operation, and flags. */
enum hdl_vi_control_bits {
	HDL_VI_SENDRECV = 0x0,   /* a send, or in the receive queue a receive */
	HDL_VI_RDMA_WRITE = 0x1, /* write to memory of the peer */
	HDL_VI_RDMA_READ = 0x2,  /* read memory of the peer */
	HDL_VI_OP_MASK = 0x3,    /* the operation; its value 3 is reserved */
	HDL_VI_IMMEDIATE = 0x4,  /* the immediate data goes along, and consumes a receive */
	HDL_VI_FENCE = 0x8       /* not before every earlier RDMA read of the queue is done */
};

/* The status field of a descriptor. 0: not done. */
enum hdl_vi_status {
	HDL_VI_DONE = 0x1,
	HDL_VI_FORMAT_ERROR = 0x2,        /* the descriptor makes no sense to the queue pair */
	HDL_VI_PROTECTION_ERROR = 0x4,    /* a data segment was refused, or its memory is gone */
	HDL_VI_LENGTH_ERROR = 0x8,        /* the message was longer than the receive */
	HDL_VI_PARTIAL_ERROR = 0x10,      /* the sender gave the message up half way */
	HDL_VI_FLUSHED = 0x20,            /* not executed: the connection has ended */
	HDL_VI_TRANSPORT_ERROR = 0x40,    /* the peer did not answer */
	HDL_VI_RDMA_PROT_ERROR = 0x80,    /* the peer's protection table refused the access */
	HDL_VI_REMOTE_DESC_ERROR = 0x100, /* the peer had no receive, or a wrong one */
	HDL_VI_ERROR_MASK = 0x1fe,
	/* What the descriptor was: */
	HDL_VI_DONE_SEND = 0x00000,
	HDL_VI_DONE_RECEIVE = 0x10000,
	HDL_VI_DONE_RDMA_WRITE = 0x20000,
	HDL_VI_DONE_REMOTE_WRITE = 0x30000, /* a receive that took a write's immediate data */
	HDL_VI_DONE_RDMA_READ = 0x40000,
	HDL_VI_DONE_MASK = 0x70000,
	HDL_VI_DONE_IMMEDIATE = 0x80000 /* immediate holds what the peer sent */
};

struct hdl_vi_control {
	uint64_t next; /* not used; the program may keep anything in it */
	struct hdl_key next_handle;
	uint16_t segments; /* that follow: 0 to HDL_VI_MAX_SEGMENTS */
	uint16_t control;  /* enum hdl_vi_control_bits */
	uint32_t reserved; /* 0 */
	uint32_t immediate;
	uint32_t length; /* of a send or RDMA: the sum of its data segments; when done: how many
	                    bytes were moved */
	uint32_t status; /* enum hdl_vi_status; 0 when the doorbell rings */
};

/* Whom a descriptor of a VI without connection goes to, or came from. */
struct hdl_vi_destination {
	uint8_t mac[6];
	uint16_t reserved; /* 0 */
	uint32_t qpn;
	uint32_t reserved2; /* 0 */
};

union hdl_vi_segment {
	struct {
		uint64_t addr;
		struct hdl_key handle;
		uint32_t reserved; /* 0 */
	} remote;                  /* RDMA */
	struct hdl_vi_destination peer;
	struct {
		uint64_t addr;
		struct hdl_key handle;
		uint32_t length;
	} data;
};

#define HDL_VI_ALIGNMENT 64u /* of a descriptor */

/* A descriptor with room for one data segment and an address segment; others are longer. */
struct hdl_vi_descriptor {
	struct hdl_vi_control control;
	union hdl_vi_segment segment[2];
};

HDL_STATIC_ASSERT(sizeof(struct hdl_vi_control) == 32, "VI Architecture 1.0: control segment");
HDL_STATIC_ASSERT(offsetof(struct hdl_vi_control, control) == 14, "control field");
HDL_STATIC_ASSERT(offsetof(struct hdl_vi_control, status) == 28, "status field");
HDL_STATIC_ASSERT(sizeof(union hdl_vi_segment) == 16, "address and data segments");
HDL_STATIC_ASSERT(sizeof(struct hdl_vi_descriptor) == HDL_VI_ALIGNMENT, "the usual descriptor");

/* The attributes of a channel: the four combinations. */
enum hdl_vi_channel {
	/* A descriptor is done when the peer has answered; without this, when its data has left. */
	HDL_VI_ACKNOWLEDGED = 1 << 0,
	/* Every descriptor goes to one peer; without this, each names its destination, and carries
	 * at most HDL_VI_DATAGRAM bytes. */
	HDL_VI_CONNECTED = 1 << 1
};

enum hdl_vi_queue { HDL_VI_SEND_QUEUE, HDL_VI_RECEIVE_QUEUE };

enum hdl_vi_state {
	HDL_VI_IDLE,       /* receives can be posted */
	HDL_VI_CONNECTING, /* hdl_vi_connect() or hdl_vi_accept() is running */
	HDL_VI_READY,      /* connected; or without connection, and ready from the start */
	HDL_VI_ERROR       /* the connection has failed, or the peer has ended it */
};

struct hdl_vi_attr {
	uint32_t channel; /* enum hdl_vi_channel */
	uint32_t access;  /* HDL_ACCESS_REMOTE_READ, _WRITE: what the peer may do; 0: nothing */
	uint32_t max_send, max_receive; /* descriptors in each queue, at least 1 */
	uint32_t max_segments;          /* data segments per descriptor, 1 to HDL_MAX_SGE */
	uint32_t packets;               /* enum hdl_packets */
	/* Completion queues, which may serve many VIs; NULL: only hdl_vi_done() and hdl_vi_wait().
	 * In their completions, wr_id is the address of the descriptor and qpn is
	 * hdl_vi_number(). */
	struct hdl_cq *send_cq, *receive_cq;
};

/* hdl_vi_create - create a virtual interface
 *
 * The new VI is in the state HDL_VI_IDLE, or HDL_VI_READY without HDL_VI_CONNECTED. Receives can be
 * posted immediately. A VI that is acknowledged but not connected exists only on networks that
 * carry cells (heddle-push(7)).
 *
 * Owner: the caller owns *out and destroys it with hdl_vi_destroy(); @pd and the completion queues
 * cannot be destroyed before it.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL an attribute is out of range; -HDL_ENOTSUP no network carries this
 * channel; -HDL_ENOMEM; -HDL_EIO no file descriptor. */
HDL_API int hdl_vi_create(struct hdl_pd *pd, const struct hdl_vi_attr *attr, struct hdl_vi **out);

/* hdl_vi_destroy - destroy a virtual interface
 *
 * A connected peer is told. Descriptors that are still posted do not become done.
 *
 * Owner: @vi is freed; descriptors and buffers belong to the caller again.
 * Threads: any, but no other call on @vi may be running or follow.
 * Blocks: until a peer that is copying from or to its buffers at this moment has finished.
 * Returns: 0; -HDL_EINVAL; -HDL_EBUSY a listener answers for it. */
HDL_API int hdl_vi_destroy(struct hdl_vi *vi);

/* hdl_vi_number - get the queue pair number of a virtual interface
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the number, which is the qpn of its completions. */
HDL_API uint32_t hdl_vi_number(const struct hdl_vi *vi);

/* hdl_vi_query - query the state of a virtual interface
 *
 * Fills in *state, one of enum hdl_vi_state.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_vi_query(struct hdl_vi *vi, uint32_t *state);

/* hdl_vi_listen - wait for others under a name
 *
 * After the call, hdl_vi_connect() of other processes finds this one under @name, 1 to
 * HDL_VI_MAX_NAME characters, at any address of the node. A name has one listener per node, of
 * either kind, until hdl_vi_unlisten() or the end of its process. Up to HDL_VI_BACKLOG of them wait
 * for hdl_vi_accept(). With @vi, a VI without connection, hdl_vi_resolve() finds that VI, and
 * nobody can connect.
 *
 * Owner: the caller owns *out and ends it with hdl_vi_unlisten(). @vi may be NULL.
 * Threads: any.
 * Blocks: until the node agent has answered.
 * Returns: 0; -HDL_EADDRINUSE another listener of the node has the name, in this process or
 * another; -HDL_EINVAL; -HDL_ENOTSUP the adapter is not on a node or has no thread; -HDL_ENOMEM;
 * -HDL_EHOSTUNREACH the node agent does not answer. */
HDL_API int hdl_vi_listen(struct hdl_adapter *adapter, const char *name, struct hdl_vi *vi,
                          struct hdl_vi_listener **out);

/* hdl_vi_unlisten - give up a name
 *
 * Requests that wait are refused. This adapter may listen under the name again immediately; others
 * once the node agent has heard of it, which is before any later call of this adapter that waits
 * for the agent returns, such as hdl_node_find().
 *
 * Owner: @listener is freed.
 * Threads: any, but no other call on @listener may be running or follow.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_vi_unlisten(struct hdl_vi_listener *listener);

/* hdl_vi_accept - connect to whoever asks next
 *
 * Waits up to @timeout_ms (-1: forever) for a request of the kind of @vi, and connects @vi to it.
 * Requests of another kind are refused. Post receives before this call: the peer may send as soon
 * as it returns there.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: up to @timeout_ms.
 * Returns: 0; -HDL_ETIMEDOUT; -HDL_EPERM @vi is not in the state HDL_VI_IDLE; -HDL_EINVAL;
 * -HDL_EHOSTUNREACH the peer is not reached any more; -HDL_EACCES the kernel denies access to the
 * peer's memory. */
HDL_API int hdl_vi_accept(struct hdl_vi_listener *listener, struct hdl_vi *vi, int timeout_ms);

/* hdl_vi_connect - connect to a name
 *
 * Connects @vi to the VI that a process on the node @gid gives to hdl_vi_accept() under @name.
 * Waits up to @timeout_ms (-1: forever), also for a listener that is not there yet.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: up to @timeout_ms.
 * Returns: 0; -HDL_ETIMEDOUT; -HDL_ECONNREFUSED the listener refused: it has another kind of VI, or
 * too many wait; -HDL_EPERM @vi is not in the state HDL_VI_IDLE; -HDL_EINVAL; -HDL_ENOTSUP the
 * adapter is not on a node or has no thread; -HDL_EHOSTUNREACH there is no way to that node;
 * -HDL_EACCES the kernel denies access to the peer's memory. */
HDL_API int hdl_vi_connect(struct hdl_vi *vi, const struct hdl_gid *gid, const char *name,
                           int timeout_ms);

/* hdl_vi_disconnect - end the connection of a virtual interface
 *
 * Every descriptor that is still posted becomes done with HDL_VI_FLUSHED. The peer's VI goes to
 * HDL_VI_ERROR, and its descriptors are flushed too. @vi is then in the state HDL_VI_IDLE and can
 * be connected again. Also needed after HDL_VI_ERROR.
 *
 * Owner: flushed descriptors belong to the caller again once they have been taken.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EPERM @vi has no connection; -HDL_EINVAL. */
HDL_API int hdl_vi_disconnect(struct hdl_vi *vi);

/* hdl_vi_resolve - find a virtual interface without connection
 *
 * Asks the process on the node @gid that has given a VI to hdl_vi_listen() under @name. *to is what
 * a descriptor of @vi needs to send to it. That process learns of @vi as well, so that it can
 * answer. A VI knows up to HDL_VI_MAX_PEERS others.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: up to @timeout_ms (-1: forever), also for a listener that is not there yet.
 * Returns: 0; -HDL_ETIMEDOUT; -HDL_ECONNREFUSED the listener has no such VI; -HDL_EPERM @vi is a
 * connected one; -HDL_EINVAL; -HDL_ENOTSUP; -HDL_ENOMEM too many peers; -HDL_EHOSTUNREACH there is
 * no way to that node. */
HDL_API int hdl_vi_resolve(struct hdl_vi *vi, const struct hdl_gid *gid, const char *name,
                           int timeout_ms, struct hdl_vi_destination *to);

/* hdl_vi_post - ring the doorbell of a queue
 *
 * Takes the descriptor at @descriptor, which lies in memory of the handle @handle with local read
 * and write access, and posts it to @queue (enum hdl_vi_queue). The descriptor is read once, before
 * the call returns. An error leaves both the queue and the descriptor unchanged.
 *
 * Owner: the descriptor and its buffers belong to the adapter until status is not 0.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL the descriptor is malformed: alignment, reserved fields, status,
 * operation (also RDMA on a VI without connection, whose descriptors have no place for it), number
 * of segments, or a length that is not the sum of its segments; -HDL_EACCES the
 * handle is stale, or does not grant access to the descriptor; -HDL_EMSGSIZE more segments than
 * the VI has, or too long a message; -HDL_ENOSPC the queue is full; -HDL_EPERM not connected;
 * -HDL_ENOTSUP an operation that the channel does not have; -HDL_EHOSTUNREACH nobody was resolved
 * with this destination. */
HDL_API int hdl_vi_post(struct hdl_vi *vi, uint32_t queue, const void *descriptor,
                        struct hdl_key handle);

/* hdl_vi_done - take a descriptor that is done
 *
 * Drives the adapter, and takes the oldest descriptor of @queue if it is done: *descriptor is its
 * address. A place in the queue becomes free only when its descriptor is taken. Where the queue has
 * a completion queue (struct hdl_vi_attr), poll that instead.
 *
 * Owner: the descriptor and its buffers belong to the caller again.
 * Threads: any; each descriptor goes to one of them.
 * Blocks: no.
 * Returns: 0; -HDL_EAGAIN none is done; -HDL_EINVAL. */
HDL_API int hdl_vi_done(struct hdl_vi *vi, uint32_t queue, void **descriptor);

/* hdl_vi_wait - wait for a descriptor that is done
 *
 * As hdl_vi_done(), but waits up to @timeout_ms (-1: forever).
 *
 * Owner: the descriptor and its buffers belong to the caller again.
 * Threads: any; each descriptor goes to one of them.
 * Blocks: up to @timeout_ms.
 * Returns: 0; -HDL_EAGAIN none was done in time; -HDL_EINVAL. */
HDL_API int hdl_vi_wait(struct hdl_vi *vi, uint32_t queue, int timeout_ms, void **descriptor);

#ifdef __cplusplus
}
#endif
#endif
