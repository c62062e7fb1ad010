/* The split driver (SPLIT): one half of a network driver on a host, the other half on an I/O unit,
 * and frames that each pushes into memory that the other has offered.
 *
 * A port belongs to an adapter on a node. It listens as a unit, connects as a host, or both. Each
 * connection has two queue pairs, one for control and one for data, or one for both. heddle-push(7)
 * defines what travels on them, `heddle tap` (heddle-tap(1)) is a program made of these calls.
 *
 * A port and its connections are used by one thread at a time. Nothing blocks: the caller waits for
 * the descriptors of the port, preferably in hdl_epoll_wait(), and calls hdl_push_run(), which
 * calls back. A callback may use other connections, but not the one that it is called for, except
 * to close it. */
#ifndef HEDDLE_PUSH_H
#define HEDDLE_PUSH_H

#include <heddle/heddle.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HDL_PUSH_MAX_LINKS         64u /* connections of one port: hosts of a unit */
#define HDL_PUSH_NAME_BYTES        32u
#define HDL_PUSH_SPACE             0x01feu /* IP services (IBTA A11), protocol 254 of RFC 3692 */
#define HDL_PUSH_SERVICE           4u      /* the usual one */
#define HDL_PUSH_FDS               2u
#define HDL_PUSH_CONNECT_NS        3000000000ull /* how long a connection may take to be made */
#define HDL_PUSH_REPEAT_NS         250000000ull  /* between its messages, on a network */
#define HDL_PUSH_MAX_RECEIVE       2048u         /* elements of all pools of one end */
#define HDL_PUSH_MAX_POOLS         8u            /* that one end offers at first */
#define HDL_PUSH_MAX_ELEMENT_BYTES (1u << 24)

struct hdl_push_port;
struct hdl_push;

enum hdl_push_mode {
	HDL_PUSH_RDMA, /* two acknowledged channels; frames are written into pools */
	/* Two unacknowledged channels; frames are messages, and those that the network loses are
	 * lost. They are not sent before the other end has room for them. */
	HDL_PUSH_SEND
};

enum hdl_push_model {
	HDL_PUSH_PUSH_PUSH, /* both sides write */
	HDL_PUSH_PUSH_PULL, /* the host writes, and reads what it is told about */
	HDL_PUSH_PULL_PULL  /* the receiver names an element before it is written */
};

/* A pool of buffers for frames, which its owner offers to the other end. */
struct hdl_push_pool {
	uint32_t elements;      /* of all pools of one end: HDL_PUSH_MAX_RECEIVE */
	uint32_t element_bytes; /* up to HDL_PUSH_MAX_ELEMENT_BYTES */
	/* What the pool is for: frames from this IPv4 address, to this TCP or UDP port. They go
	 * there as long as an element is free and large enough; 0: any. */
	uint32_t source;
	uint16_t port;
	/* Frames are indicated by the place of the element in the pool, in units of 256 bytes, and
	 * their length, not by pool, element and length. It has to be the only pool. */
	bool by_address;
};

/* What both ends agree on: the host proposes, the unit may lower frame_bytes and header_bytes. Each
 * end says for itself which pools it offers. */
struct hdl_push_terms {
	uint8_t mode;    /* enum hdl_push_mode */
	uint8_t model;   /* enum hdl_push_model */
	bool host_owns;  /* pools for the frames that the host receives; else messages, */
	bool unit_owns;  /* and the same for the unit */
	bool by_message; /* indicate by BufferRDMAIndicate, not by immediate data */
	/* Frames are messages on the control channel, and there is no other one. Neither end owns
	 * pools; not with iwarp, nor with HDL_PUSH_PUSH_PULL unless in HDL_PUSH_SEND. */
	bool one_channel;
	bool iwarp;            /* channels over networks are iWARP connections; not HDL_PUSH_SEND */
	uint16_t header_bytes; /* of the offload header before each frame; less than frame_bytes */
	uint32_t frame_bytes;  /* the longest frame with it */
	/* The pools of this end, numbered from 0; none: pools for short and for long frames. One of
	 * them has to take any frame. More may be offered when the other end asks for them. */
	uint32_t pool_count;
	struct hdl_push_pool pools[HDL_PUSH_MAX_POOLS];
};

/* A pool as it is now. */
struct hdl_push_pool_state {
	struct hdl_push_pool pool;
	uint32_t index; /* as messages and immediate data name it */
	uint32_t free;  /* elements that its writer may write */
	bool flushing;  /* its owner, or its writer, wants it to go */
	bool readable;  /* it is not written by the other end, but read (push-pull) */
};

/* Which element holds a frame. */
struct hdl_push_indication {
	uint32_t pool, element, bytes;
};

/* What the channels of a connection are made of. */
enum hdl_push_way {
	HDL_PUSH_LANES, /* both ends are on one machine */
	HDL_PUSH_ROCEV2,
	HDL_PUSH_CELLS, /* both adapters were opened with hdl_open_attr.cells */
	HDL_PUSH_IWARP,
	HDL_PUSH_WAY_COUNT
};

/* Items of configuration. */
enum hdl_push_cfg_item {
	HDL_PUSH_CFG_INIT = 1,   /* mac, mtu, offloads, version */
	HDL_PUSH_CFG_MAC,        /* mac */
	HDL_PUSH_CFG_MTU,        /* mtu */
	HDL_PUSH_CFG_LINK,       /* up */
	HDL_PUSH_CFG_FILTER,     /* filter, multicast */
	HDL_PUSH_CFG_OFFLOADS,   /* offloads */
	HDL_PUSH_CFG_STATISTICS, /* statistics; can only be read */
	HDL_PUSH_CFG_MORE_MAC    /* mac: one more address, beside the first; can only be set */
};

enum hdl_push_cfg_status {
	HDL_PUSH_CFG_OK,
	HDL_PUSH_CFG_UNKNOWN, /* no such item */
	HDL_PUSH_CFG_MALFORMED,
	HDL_PUSH_CFG_REFUSED, /* a value that is out of range, or that somebody else has */
	HDL_PUSH_CFG_READ_ONLY
};

enum hdl_push_offload {
	HDL_PUSH_OFFLOAD_HEADER = 1,   /* each frame begins with a virtio_net_hdr of 10 bytes */
	HDL_PUSH_OFFLOAD_CHECKSUM = 2, /* its checksum may be left to the receiver */
	HDL_PUSH_OFFLOAD_TSO4 = 4,     /* it may be a TCP segment of up to 64 KiB */
	HDL_PUSH_OFFLOAD_TSO6 = 8,
	HDL_PUSH_OFFLOAD_ECN = 16,
	HDL_PUSH_OFFLOAD_ALL = 31
};

enum hdl_push_filter { HDL_PUSH_FILTER_PROMISCUOUS = 1, HDL_PUSH_FILTER_ALL_MULTICAST = 2 };

/* What a unit counts about a host. */
enum hdl_push_statistic {
	HDL_PUSH_STAT_RX_FRAMES, /* from the host */
	HDL_PUSH_STAT_RX_BYTES,
	HDL_PUSH_STAT_TX_FRAMES, /* to the host */
	HDL_PUSH_STAT_TX_BYTES,
	HDL_PUSH_STAT_TX_DROPPED, /* the host had no room for too long */
	HDL_PUSH_STAT_FORGED,     /* source addresses that are not the host's */
	HDL_PUSH_STAT_COUNT
};

#define HDL_PUSH_CFG_MAX_MULTICAST 64u
#define HDL_PUSH_MAC_BYTES         6u
#define HDL_PUSH_MIN_MTU           68u
#define HDL_PUSH_MAX_MTU           9000u

/* A request, or the reply to one. */
struct hdl_push_cfg {
	uint16_t item;  /* enum hdl_push_cfg_item */
	uint16_t code;  /* a request: 0 to get, 1 to set; a reply: enum hdl_push_cfg_status */
	bool has_value; /* the fields of the item are valid */
	uint8_t mac[HDL_PUSH_MAC_BYTES];
	uint16_t mtu;
	uint16_t version;
	uint32_t offloads;
	bool up;
	uint32_t filter;
	uint32_t multicast_count;
	uint8_t multicast[HDL_PUSH_CFG_MAX_MULTICAST][HDL_PUSH_MAC_BYTES];
	uint64_t statistics[HDL_PUSH_STAT_COUNT];
};

struct hdl_push_ops {
	/* A host wants to connect: NULL accepts, a sentence refuses, of which the host gets the
	 * first HDL_PUSH_NAME_BYTES. @name is in printable characters. @terms are its own, without
	 * pools: fill in those of the unit. Not used by hosts. */
	const char *(*accept)(void *context, const char *name, struct hdl_push_terms *terms);
	/* The connection carries frames from now on. */
	void (*opened)(void *context, struct hdl_push *push);
	/* It has ended, or could not be made; @push is freed when the call returns. @why is one
	 * line. In what the other end has said, each byte that is not printable ASCII is a '?', so
	 * that @why can be shown on a terminal. */
	void (*closed)(void *context, struct hdl_push *push, const char *why);
	/* A frame, which belongs to the caller again when this returns. False: not now; it and
	 * those behind it wait until hdl_push_deliver(). */
	bool (*deliver)(void *context, struct hdl_push *push, const uint8_t *frame, uint32_t bytes);
	/* The other end asks. @reply has the item and HDL_PUSH_CFG_OK: fill in the rest. Items that
	 * do not exist and sets without a value are answered before; a get for which this does not
	 * set has_value is answered with HDL_PUSH_CFG_UNKNOWN. */
	void (*configure)(void *context, struct hdl_push *push, const struct hdl_push_cfg *request,
	                  struct hdl_push_cfg *reply);
	/* An answer to hdl_push_configure(); NULL: there was none in time. If reply->code is
	 * HDL_PUSH_CFG_OK, an answer to a get has its value. */
	void (*configured)(void *context, struct hdl_push *push, uint64_t token,
	                   const struct hdl_push_cfg *reply);
};

/* hdl_push_open - open a port of the split driver
 *
 * Opens a port on @adapter, which must be on a node. With a @service other than 0, the port listens
 * for hosts under that number. @fds gets the descriptors to wait for. The port takes the connection
 * management messages of the adapter (hdl_cm_receive()).
 *
 * Owner: the caller owns *out, also after an error other than -HDL_ENOMEM, and ends it with
 * hdl_push_shut() and hdl_push_free(). @ops must stay. The port owns the descriptors.
 * Threads: any.
 * Blocks: until the node agent has answered.
 * Returns: 0; -HDL_EADDRINUSE another process of the node listens there; -HDL_ENOMEM *out is NULL;
 * -HDL_EIO no descriptor; -HDL_ENOTSUP the adapter is not on a node or has no thread;
 * -HDL_EHOSTUNREACH the node agent does not answer; -HDL_EINVAL. */
HDL_API int hdl_push_open(struct hdl_adapter *adapter, uint16_t service,
                          const struct hdl_push_ops *ops, void *context, int fds[HDL_PUSH_FDS],
                          struct hdl_push_port **out);

/* hdl_push_shut - end all connections of a port
 *
 * Ends them immediately, without calling closed(). Messages for the port may still arrive until the
 * adapter is closed.
 *
 * Owner: the connections are freed. The port is freed by hdl_push_free().
 * Threads: the one that uses the port.
 * Blocks: until peers that are copying at this moment have finished.
 * Returns: nothing. */
HDL_API void hdl_push_shut(struct hdl_push_port *port);

/* hdl_push_free - free a port
 *
 * To be called after hdl_push_shut(), and after the adapter has been closed.
 *
 * Owner: @port is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: nothing. */
HDL_API void hdl_push_free(struct hdl_push_port *port);

/* hdl_push_connect - connect to a unit
 *
 * Begins a connection to the unit that listens at @gid under @service. The unit shows @name. Then
 * opened() or closed() is called.
 *
 * Owner: the port owns *out until closed() returns.
 * Threads: the one that uses the port.
 * Blocks: until the node agent has answered.
 * Returns: 0; -HDL_ENOMEM, also when HDL_PUSH_MAX_LINKS is reached; -HDL_EINVAL the terms or pools
 * are not possible; -HDL_EIO out of file descriptors; errors of hdl_cm_send(). */
HDL_API int hdl_push_connect(struct hdl_push_port *port, const struct hdl_gid *gid,
                             uint16_t service, const char *name, const struct hdl_push_terms *terms,
                             struct hdl_push **out);

/* hdl_push_run - do the work of a port
 *
 * Does what there is to do, and calls back. Wait for the descriptors only after it has returned 0:
 * not before is the caller woken by what arrives.
 *
 * Owner: nothing changes hands.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: the number of things done. */
HDL_API int hdl_push_run(struct hdl_push_port *port);

/* hdl_push_deadline - when to call hdl_push_run() at the latest
 *
 * In nanoseconds of CLOCK_MONOTONIC, even if no descriptor is ready by then.
 *
 * Owner: nothing changes hands.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: the time; UINT64_MAX: never. */
HDL_API uint64_t hdl_push_deadline(const struct hdl_push_port *port);

/* hdl_push_take - get room for a frame
 *
 * Put a frame of up to frame_bytes there, then call hdl_push_send() or hdl_push_untake() before the
 * next call for this connection. A frame that was sent is not dropped: without an element at the
 * other end there is no room, and the frame should stay where it is.
 *
 * Owner: the room belongs to the caller until hdl_push_send() or hdl_push_untake().
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: the room; NULL: there is none until hdl_push_run() has done something. */
HDL_API uint8_t *hdl_push_take(struct hdl_push *push);

/* hdl_push_untake - give back the room from hdl_push_take()
 *
 * Owner: the room belongs to the connection again.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: nothing. */
HDL_API void hdl_push_untake(struct hdl_push *push);

/* hdl_push_send - send the frame that is in the room from hdl_push_take()
 *
 * It leaves in the next hdl_push_run().
 *
 * Owner: the room belongs to the connection again.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: nothing. */
HDL_API void hdl_push_send(struct hdl_push *push, uint32_t bytes);

/* hdl_push_deliver - go on after deliver() has returned false
 *
 * Owner: nothing changes hands.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: nothing. */
HDL_API void hdl_push_deliver(struct hdl_push *push);

/* hdl_push_configure - ask the other end
 *
 * Sends @request. configured() is called with the answer and @token.
 *
 * Owner: @request is copied.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: true; false: the connection is not open, or too many requests wait. */
HDL_API bool hdl_push_configure(struct hdl_push *push, const struct hdl_push_cfg *request,
                                uint64_t token);

/* hdl_push_close - end a connection
 *
 * Flushes the pools first. closed() follows, after two seconds at most.
 *
 * Owner: nothing changes hands before closed().
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: nothing. */
HDL_API void hdl_push_close(struct hdl_push *push);

/* hdl_push_close_all - end all connections of a port
 *
 * Like hdl_push_close() for each of them. Call it and hdl_push_run() until it returns 0.
 *
 * Owner: nothing changes hands before closed().
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: how many connections are left. */
HDL_API uint32_t hdl_push_close_all(struct hdl_push_port *port);

/* hdl_push_break - end a connection immediately
 *
 * closed() follows in the next hdl_push_run(), with the reason @why.
 *
 * Owner: nothing changes hands before closed().
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: nothing. */
HDL_API void hdl_push_break(struct hdl_push *push, const char *why);

/* hdl_push_offer - offer one more pool
 *
 * The other end may write into it as soon as it has heard of it.
 *
 * Owner: @pool is copied; the memory is the connection's.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL there cannot be such a pool, this end receives frames in another way, or
 * the connection is not open; -HDL_ENOMEM, also when there are too many pools or elements. */
HDL_API int hdl_push_offer(struct hdl_push *push, const struct hdl_push_pool *pool);

/* hdl_push_flush - withdraw a pool of this end
 *
 * Asks the other end to stop writing into pool @index. When it has, and the frames that are there
 * have been delivered, the pool is freed, and hdl_push_pools() does not show it any more. If the
 * other end does not answer within a second, its writes are refused from then on.
 *
 * Owner: nothing changes hands.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL there is no such pool, it is being withdrawn, or the connection is not
 * open. */
HDL_API int hdl_push_flush(struct hdl_push *push, uint32_t index);

/* hdl_push_return - give back a pool of the other end
 *
 * This end does not write into pool @index of the other end any more, which may free it.
 *
 * Owner: nothing changes hands.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL there is no such pool, it is being given back, or the connection is not
 * open. */
HDL_API int hdl_push_return(struct hdl_push *push, uint32_t index);

/* hdl_push_pools - list the pools of one end
 *
 * With @own, the pools of this end, else those of the other one as far as this end knows them.
 *
 * Owner: @list is the caller's, with room for @max.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: how many there are, which may be more than @max. */
HDL_API size_t hdl_push_pools(const struct hdl_push *push, bool own,
                              struct hdl_push_pool_state *list, size_t max);

/* hdl_push_indicated - which element holds the frame that is being delivered
 *
 * To be called by deliver().
 *
 * Owner: nothing changes hands.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: true; false: the frame came as a message, or none is being delivered. */
HDL_API bool hdl_push_indicated(const struct hdl_push *push, struct hdl_push_indication *at);

/* hdl_push_agreed - the terms of a connection
 *
 * Owner: the terms belong to the connection.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: the terms. */
HDL_API const struct hdl_push_terms *hdl_push_agreed(const struct hdl_push *push);

/* hdl_push_way - what the channels of a connection are made of
 *
 * Owner: nothing changes hands.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: enum hdl_push_way; of no use before opened(). */
HDL_API uint32_t hdl_push_way(const struct hdl_push *push);

/* hdl_push_name - the name that the host has given
 *
 * Owner: the string belongs to the connection.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: the name, in printable characters. */
HDL_API const char *hdl_push_name(const struct hdl_push *push);

/* hdl_push_user - the caller's pointer for a connection
 *
 * The caller may set it; it is NULL at first.
 *
 * Owner: the pointer belongs to the caller.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: where the pointer is stored. */
HDL_API void **hdl_push_user(struct hdl_push *push);

/* hdl_push_counters - read the counters of a connection
 *
 * *names and *values get the lists. The names are stable. closed() can read them for the last time:
 * one of those that begin with "refused_" says which rule the other end has broken.
 *
 * Owner: the names are static; the values belong to the connection.
 * Threads: the one that uses the port.
 * Blocks: no.
 * Returns: how many there are; 0: the connection was never open. */
HDL_API size_t hdl_push_counters(const struct hdl_push *push, const char *const **names,
                                 const uint64_t **values);

#ifdef __cplusplus
}
#endif
#endif
