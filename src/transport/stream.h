/* A byte stream as a transport sees it, the counterpart of the carrier of packets (path.h). TCP,
 * one stream of SCTP, the simulator and the tests each provide a carrier; iWARP and iSCSI run on
 * it. Neither side copies for the other: to send, the transport hands over runs of its memory; to
 * receive, it says where the next bytes belong before they are read.
 *
 *   transport                                    carrier
 *   offer(): runs of memory, in order    -->     writes what the socket takes
 *   taken(n): these may be reused        <--
 *   want(): where the next bytes belong  <--     about to read
 *   arrived(n): they are there           <--     has read
 *   ended(why)                           <--     nothing comes any more
 *
 * The carrier decides how a stream is divided into calls: a transport must come to the same result
 * however its bytes arrive. No function may call back into the carrier. The thread that drives the
 * engine calls all of them. */
#ifndef TRANSPORT_STREAM_H
#define TRANSPORT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STREAM_MAX_RUNS 64u /* in one offer() or want() */

struct stream_run {
	uint8_t *bytes;
	size_t length; /* never 0 */
};

enum stream_end {
	STREAM_OPEN,
	STREAM_CLOSED, /* the peer has sent everything and said so */
	STREAM_BROKEN  /* reset, timed out, or broken by the network */
};

struct stream_ops {
	/* The next bytes to send: up to @max runs, in order. Returns how many; 0: nothing at the
	 * moment. If called again without taken() in between, it offers the same bytes, and perhaps
	 * more. */
	size_t (*offer)(void *context, struct stream_run *runs, size_t max);
	/* The first @bytes of what was offered last have been sent; their memory may be reused. */
	void (*taken)(void *context, size_t bytes);
	/* Where the next bytes belong: up to @max runs, in order. Returns how many; 0: none are
	 * wanted at the moment, which holds back the peer. Nothing may touch the runs until
	 * arrived(), or until want() is called again. */
	size_t (*want)(void *context, struct stream_run *runs, size_t max);
	/* The first @bytes of these runs have been filled. False: the stream is invalid and is to
	 * be closed after what offer() still has. */
	bool (*arrived)(void *context, size_t bytes);
	/* No more bytes will come. What is offered may still be sent after STREAM_CLOSED. */
	void (*ended)(void *context, enum stream_end why);
};

/* Pass @length bytes at @bytes to @ops as if they had just been read: for data that was read ahead
 * into a buffer. Returns how many were wanted; fewer than @length only if want() returns 0 or
 * arrived() returns false. *open is what arrived() returned last. */
size_t stream_feed(const struct stream_ops *ops, void *context, const uint8_t *bytes, size_t length,
                   bool *open);
/* Copy up to @capacity of the bytes that @ops offers to @out, and take them. Returns how many. */
size_t stream_drain(const struct stream_ops *ops, void *context, uint8_t *out, size_t capacity);

#endif
