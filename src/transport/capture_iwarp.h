/* Captures of the same-host path as iWARP, for queue pairs of a device that speaks it: the messages
 * that the same operations would be on a TCP connection, reconstructed by the requester as in
 * capture.h. Each queue pair that sends has a connection of its own, from its first request on:
 * what it asks in one direction, the answers in the other. Nobody could number the octets of a
 * connection to which two processes add theirs.
 *
 * TCP repeats nothing that anyone would see, and acknowledgements say nothing about messages: a
 * message that is sent again in the lane is recorded once, and one that is refused for good is
 * answered with a Terminate, which ends the connection. */
#ifndef TRANSPORT_CAPTURE_IWARP_H
#define TRANSPORT_CAPTURE_IWARP_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/capture_stream.h"
#include "wire/rdmap_terminate.h"

/* Of a queue pair; initially zero. */
struct capture_iwarp {
	bool begun, over;
	uint16_t count;                          /* of connections so far */
	uint32_t send_msn, read_msn, result_msn; /* of the next message on queues 0, 1 and 3 */
	struct capture_stream stream;
};

/* @wqe of @qp, which has a struct capture_iwarp, is sent for the first time, on @path. Returns the
 * number under which its answers come. */
uint32_t capture_iwarp_request(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                               const struct roce_path *path);
/* The read @wqe with this @number is answered: its data is in place. */
void capture_iwarp_response(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                            uint32_t number);
/* The atomic @wqe is answered. */
void capture_iwarp_value(struct qp *qp, const struct wqe_send *wqe, uint32_t number,
                         uint64_t value);
/* @wqe is refused. */
void capture_iwarp_refusal(struct qp *qp, const struct wqe_send *wqe, uint32_t number,
                           enum rdmap_error error);
/* The connection ends, if there is one. */
void capture_iwarp_end(struct capture_iwarp *iwarp);

#endif
