/* One connected TCP socket as the carrier of a byte stream (transport/stream.h): moves bytes
 * between the socket and the places that the transport names.
 *
 * To receive, one call fills the transport's own runs first and a staging area behind them, which
 * all connections of an adapter share. What the staging area got is passed on at once, so nothing
 * stays in it between two calls. Behind a long run the staging area is short: it takes the trailer
 * and the next headers, and the next payload goes where it belongs with the next call. The same
 * behind a short run, if the transport says that what arrives is long. Otherwise the staging area
 * is long behind a short run: one call takes many short messages. Bytes that the transport does not
 * want yet are kept per connection; nothing is peeked at or read twice. */
#ifndef ADAPTER_TCP_FLOW_H
#define ADAPTER_TCP_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "transport/stream.h"

#define TCP_STAGING_BYTES 65536u
#define TCP_LONG_BYTES    4096u /* a transport that wants so many gets them without a copy, */
/* and this much behind them: a trailer, a short segment that begins the next message, and the
 * header of its next segment (iwarp_part()) */
#define TCP_BEHIND_BYTES 192u
#define TCP_TURN_BYTES   (1u << 20) /* moved in one direction before others get their turn */
#define TCP_TURN_CALLS   64u

enum tcp_flow_result {
	TCP_FLOW_IDLE,    /* everything is done for now: the socket is empty, nothing is offered */
	TCP_FLOW_MORE,    /* the turn is over, but not the work */
	TCP_FLOW_HELD,    /* in: the transport wants no more; out: the socket takes no more */
	TCP_FLOW_CLOSED,  /* in: the peer has closed its direction */
	TCP_FLOW_REFUSED, /* in: the transport says that the stream is invalid */
	TCP_FLOW_FAULT,   /* a run of the transport is not memory any more */
	TCP_FLOW_BROKEN   /* the connection; errno is in flow.error */
};

struct tcp_flow {
	int sock;
	int error;
	const struct stream_ops *ops;
	void *context;
	/* How the transport takes what was read ahead; NULL: stream_feed(). */
	size_t (*feed)(void *context, const uint8_t *bytes, size_t length, bool *open);
	/* Is what arrives made of long pieces, as far as the transport knows? NULL: it does not. */
	bool (*is_long)(const void *context);
	bool records;  /* each offer begins a TCP segment (iwarp_terms.aligned) */
	uint8_t *kept; /* received, but not wanted yet; allocated when needed */
	size_t kept_from, kept_bytes;
	/* Shown everything that was sent or received, before anyone uses it: the first @bytes of
	 * @parts. NULL: nobody. */
	void (*watch)(void *context, const struct iovec *parts, size_t bytes, bool inbound);
	void *watch_context;
	/* How many calls were made, and how many bytes went through the staging area. */
	uint64_t receives, sends, staged_bytes;
};

void tcp_flow_init(struct tcp_flow *flow, int sock, const struct stream_ops *ops, void *context);
/* From now on the bytes are for another transport: those that are kept, too. */
void tcp_flow_become(struct tcp_flow *flow, const struct stream_ops *ops, void *context,
                     size_t (*feed)(void *context, const uint8_t *bytes, size_t length, bool *open),
                     bool (*is_long)(const void *context));
/* @bytes at @data came before anything that is still in the socket. False: out of memory. */
bool tcp_flow_put_back(struct tcp_flow *flow, const uint8_t *data, size_t bytes);
/* Receive for one turn. @staging has TCP_STAGING_BYTES. *bytes: how many have been passed on. */
enum tcp_flow_result tcp_flow_in(struct tcp_flow *flow, uint8_t *staging, size_t *bytes);
/* Send for one turn. */
enum tcp_flow_result tcp_flow_out(struct tcp_flow *flow, size_t *bytes);
/* Free what is kept. The socket is the caller's. */
void tcp_flow_end(struct tcp_flow *flow);

#endif
