/* The messages of the split driver (SPLIT section IV.B). Both ends push: the owner of memory
 * advertises pools of buffers, and the other side writes into them and says which it has used. The
 * layouts of the flush messages are SPLIT's; the other tables are built from its prose and defined
 * in heddle-push(7). All numbers are big-endian. How many entries a list has follows from the
 * length of the message, as in SPLIT's table.
 *
 *    0  function (2)
 *    2  version (2), 1
 *    4  transaction context (8): a reply repeats that of its request
 *   12  by function:
 *
 *       BufferRecvPool          pools: index (4), elements (4), element size (4), handle (4),
 *                               address (8), context (8)
 *       BufferRecvPoolGet       packet size (4), packets (4)
 *       BufferRecvPoolUpdate    runs of elements that are free again: pool (4), first element (4),
 *                               elements (4)
 *       BufferPoolFlushRequest  pools: index (4)
 *       BufferPoolFlushReply    nothing
 *       SendData                size (4), data
 *       BufferRDMAIndicate      pool (4), element (4), size (4)
 *       CfgUtilRequest          size (4), data
 *       CfgUtilReply            size (4), data */
#ifndef WIRE_PUSH_H
#define WIRE_PUSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PUSH_VERSION      1u
#define PUSH_HEADER_BYTES 12u
#define PUSH_MAX_BYTES    4096u /* of a message: the frame that both sides post */
#define PUSH_POOL_BYTES   32u
#define PUSH_RUN_BYTES    12u
#define PUSH_MAX_POOLS    ((PUSH_MAX_BYTES - PUSH_HEADER_BYTES) / PUSH_POOL_BYTES)
#define PUSH_MAX_RUNS     ((PUSH_MAX_BYTES - PUSH_HEADER_BYTES) / PUSH_RUN_BYTES)
#define PUSH_MAX_FLUSHED  ((PUSH_MAX_BYTES - PUSH_HEADER_BYTES) / 4u)
#define PUSH_MAX_DATA     (PUSH_MAX_BYTES - PUSH_HEADER_BYTES - 4u)

enum push_function {
	PUSH_POOL = 1,
	PUSH_POOL_GET,
	PUSH_POOL_UPDATE,
	PUSH_FLUSH_REQUEST,
	PUSH_FLUSH_REPLY,
	PUSH_SEND_DATA,
	PUSH_INDICATE,
	PUSH_CFG_REQUEST,
	PUSH_CFG_REPLY,
	PUSH_FUNCTION_COUNT
};

/* Memory that its owner lets the other side write: @elements buffers of @element_bytes, one behind
 * the other. */
struct push_pool {
	uint32_t index;
	uint32_t elements;
	uint32_t element_bytes;
	uint32_t handle;
	uint64_t address;
	uint64_t context; /* what the pool is for; its meaning is the owner's */
};

/* A run of elements of one pool. */
struct push_run {
	uint32_t pool;
	uint32_t first;
	uint32_t elements;
};

/* Which element was written, and how much of it. */
struct push_indication {
	uint32_t pool;
	uint32_t element;
	uint32_t bytes;
};

struct push_message {
	enum push_function function;
	uint64_t context;
	/* Of POOL, POOL_UPDATE and FLUSH_REQUEST: the entries; when decoded, at @list within the
	 * message, for push_get_*(). */
	uint32_t count;
	const uint8_t *list;
	/* Of POOL_GET. */
	uint32_t packet_bytes, packets;
	/* Of INDICATE. */
	struct push_indication indication;
	/* Of SEND_DATA, CFG_REQUEST and CFG_REPLY; when decoded, within the message. */
	const uint8_t *data;
	uint32_t data_bytes;
};

enum push_verdict {
	PUSH_OK,
	PUSH_TOO_SHORT,
	PUSH_TOO_LONG,
	PUSH_WRONG_VERSION,
	PUSH_WRONG_FUNCTION,
	PUSH_WRONG_LENGTH, /* not that of the function, or not a whole number of entries, or none */
	PUSH_WRONG_POOL,   /* no elements, elements of no bytes, or memory that wraps around */
	PUSH_WRONG_RUN,    /* no elements, or more than 2^32 - 1 with those before */
	PUSH_VERDICT_COUNT
};

/* Check and decode the @bytes at @in, every entry of a list included. *message only changes on
 * PUSH_OK. */
enum push_verdict push_decode(struct push_message *message, const uint8_t *in, size_t bytes);
/* Entry @i, below message->count, of a message that was decoded. */
struct push_pool push_get_pool(const struct push_message *message, uint32_t i);
struct push_run push_get_run(const struct push_message *message, uint32_t i);
uint32_t push_get_flushed(const struct push_message *message, uint32_t i);

/* Write a message to @out, which has @capacity bytes. Each returns the length; 0: it does not fit,
 * or has an entry that push_decode() would refuse. */
size_t push_put_pools(uint64_t context, const struct push_pool *pools, uint32_t count, uint8_t *out,
                      size_t capacity);
size_t push_put_runs(uint64_t context, const struct push_run *runs, uint32_t count, uint8_t *out,
                     size_t capacity);
size_t push_put_flush(uint64_t context, const uint32_t *pools, uint32_t count, uint8_t *out,
                      size_t capacity);
/* @message is one without a list. */
size_t push_put(const struct push_message *message, uint8_t *out, size_t capacity);

/* Write what precedes the @data_bytes of a SendData to the PUSH_SEND_BYTES before the data. */
#define PUSH_SEND_BYTES (PUSH_HEADER_BYTES + 4u)
void push_put_send(uint64_t context, uint32_t data_bytes, uint8_t *out);

/* The immediate data of an RDMA write that says which element it wrote (SPLIT figure 7): 8 bits of
 * pool, 8 bits of element, 16 bits of size, where 0 stands for 65,536. False: it does not fit, and
 * BufferRDMAIndicate is to be sent. */
bool push_pack(const struct push_indication *indication, uint32_t *immediate);
struct push_indication push_unpack(uint32_t immediate);

/* The other form of SPLIT figure 7: where the data is, and how much of it. The address counts from
 * the start of the one pool that was offered for this form (PUSH_POOL_BY_ADDRESS), in units of 256
 * bytes: 16 bits, then 16 bits of size as above. False: it does not fit. */
#define PUSH_ADDRESS_UNIT 256u
bool push_pack_address(uint64_t offset, uint32_t bytes, uint32_t *immediate);
void push_unpack_address(uint32_t immediate, uint64_t *offset, uint32_t *bytes);

/* References to a pool in BufferRecvPoolUpdate and BufferPoolFlushRequest: each side numbers its
 * own pools, so a reference says whose pool it is. With the mark, that of the receiver of the
 * message; without, that of its sender. */
#define PUSH_YOURS      0x80000000u
#define PUSH_INDEX_MASK 0x7fffffffu
#define PUSH_MAX_INDEX  0x7ffffffeu
/* In BufferRecvPoolUpdate: not a pool, but the receives for SendData. The first element is the
 * number (24 bits) of the last SendData that was taken, the elements are how many more there is
 * room for behind it. */
#define PUSH_RECEIVES 0x7fffffffu

/* The context of a pool: flags (16), port (16), IPv4 address (32). Frames that are sent to that
 * port, or come from that address, go to the pool; 0 stands for any. */
enum push_pool_flag {
	PUSH_POOL_READABLE = 1,   /* not written by the other side, but read */
	PUSH_POOL_ON_REQUEST = 2, /* its elements are free only when an update says so */
	PUSH_POOL_BY_ADDRESS = 4  /* indicated by address and length */
};
#define PUSH_POOL_FLAGS 7u
static inline uint64_t push_pool_context(uint16_t flags, uint16_t port, uint32_t source)
{
	return (uint64_t)flags << 48 | (uint64_t)port << 32 | source;
}
static inline uint16_t push_pool_flags(uint64_t context)
{
	return (uint16_t)(context >> 48);
}

#endif
