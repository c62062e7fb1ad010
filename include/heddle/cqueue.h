/* Circular queues of bytes between two applications over an aperture (APERTURE columns 14 and
 * 15). Data and the write pointer go out, the read pointer comes back; what the peer's pointers
 * claim is judged before it is believed, and nothing is overrun.
 *
 * Both ends open an aperture of hdl_cqueue_length() bytes, connect them, and call
 * hdl_cqueue_open(). Each then has a queue in each direction. Where the peer is on the same
 * machine, its memory is mapped: writing is storing, and no system call is made while both ends
 * run.
 *
 * A call that may wait sleeps on the event queue of the queue's port. Many queues can share one
 * event stream instead: open them with event queues of one set (eventq.h), use timeout 0, and
 * call hdl_cqueue_arm() before waiting for the set.
 *
 * The comments above the calls have the order of heddle.h. */
#ifndef HEDDLE_CQUEUE_H
#define HEDDLE_CQUEUE_H

#include <heddle/eventq.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HDL_CQUEUE_MIN_BYTES 1024u
#define HDL_CQUEUE_MAX_BYTES (1u << 29)

struct hdl_aperture;
struct hdl_cqueue;

/* hdl_cqueue_length - how long an aperture for a queue has to be
 *
 * For a queue of at least @bytes; both ends choose the same.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the length; 0: @bytes is out of range. */
HDL_API uint64_t hdl_cqueue_length(uint64_t bytes);

/* hdl_cqueue_open - make queues of a connected aperture
 *
 * @bytes is what hdl_cqueue_length() was given. @events is the event queue of the port that
 * hdl_aperture_attr.port named. The queue takes events from it only while a call of the queue
 * waits, and only if it belongs to no set.
 *
 * Owner: the caller owns *out and frees it with hdl_cqueue_close(), before the aperture and the
 * event queue. The aperture's memory belongs to the queue.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL the aperture is shorter, or not of type DATA; -HDL_EPERM it is not OPEN;
 * -HDL_ENOMEM. */
HDL_API int hdl_cqueue_open(struct hdl_aperture *aperture, uint64_t bytes,
                            struct hdl_eventq *events, struct hdl_cqueue **out);

/* hdl_cqueue_close - free a queue
 *
 * Bytes that the peer has not read are its own to read. hdl_cqueue_end() tells it that none follow.
 *
 * Owner: @queue is freed.
 * Threads: any, but no other call on the queue may be running or follow.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_cqueue_close(struct hdl_cqueue *queue);

/* hdl_cqueue_write - write bytes
 *
 * Owner: nothing changes hands.
 * Threads: any; one thread at a time writes.
 * Blocks: up to @timeout_ms (0: not at all; -1: forever) until there is room for at least one byte,
 * which is as soon as the peer has read one.
 * Returns: how many of @bytes were written, which may be fewer; -HDL_EAGAIN none, the queue is
 * full;
 * -HDL_EPERM the connection has ended, or hdl_cqueue_end() was called; -HDL_EINTR; -HDL_EINVAL. */
HDL_API int64_t hdl_cqueue_write(struct hdl_cqueue *queue, const void *data, uint64_t bytes,
                                 int timeout_ms);

/* hdl_cqueue_end - write no more
 *
 * The peer reads what was written before, then the end.
 *
 * Owner: nothing changes hands.
 * Threads: as hdl_cqueue_write().
 * Blocks: up to @timeout_ms until the carrier takes it.
 * Returns: 0; -HDL_EAGAIN; -HDL_EPERM; -HDL_EINTR; -HDL_EINVAL. */
HDL_API int hdl_cqueue_end(struct hdl_cqueue *queue, int timeout_ms);

/* hdl_cqueue_read - read bytes
 *
 * Owner: nothing changes hands.
 * Threads: any; one thread at a time reads.
 * Blocks: up to @timeout_ms (0: not at all; -1: forever) until there is at least one byte.
 * Returns: how many bytes were read; 0 the peer has ended; -HDL_EAGAIN none came in time;
 * -HDL_EPERM the connection has ended without that; -HDL_EINTR; -HDL_EINVAL. */
HDL_API int64_t hdl_cqueue_read(struct hdl_cqueue *queue, void *to, uint64_t max, int timeout_ms);

/* hdl_cqueue_arm - ask for an event
 *
 * An event of type HDL_PORT_DATA comes to the queue's port when there is something to read, with
 * @data, or room to write, with @room. An event of an earlier call that waited may still be in the
 * event queue: if there is nothing after an event, arm again.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EAGAIN there is already, and no event comes; -HDL_EINVAL. */
HDL_API int hdl_cqueue_arm(struct hdl_cqueue *queue, bool data, bool room);

#ifdef __cplusplus
}
#endif

#endif
