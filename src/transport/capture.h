/* Captures: what an adapter does, as the RoCEv2 packets that it is or would be on a wire.
 *
 * On a wire the packets are there (capture_wire()), and all of them are recorded, as they go out
 * and as they come in: where both ends record to one file each is there twice, with its direction.
 * On the same-host path there are frames in lanes, and copies that leave no trace at all; what the
 * same operation would be on a wire is made up of what is known here: packets numbered and cut by
 * the path MTU, with the queue pairs' numbers, GIDs as IP addresses and all checksums, requests
 * first and then what answers them.
 *
 * Who records what there: the requester records its requests when they are executed, and the
 * answers when they come; the responder records nothing, for of RDMA on its memory it does not
 * know. So a packet is recorded once, wherever both ends are captured to.
 *
 * Nothing is allocated here: the adapter brings a struct capture for the engine and a struct
 * capture_qp for each queue pair that sends; without them (NULL) nothing is recorded, at the price
 * of one branch. */
#ifndef TRANSPORT_CAPTURE_H
#define TRANSPORT_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "queue/wqe.h"
#include "transport/engine.h"
#include "transport/local/frame.h"
#include "transport/path.h"
#include "transport/qp.h"

#define CAPTURE_PACKET_BYTES (IB_MAX_MTU_BYTES + IB_MAX_HEADER_BYTES + 64u)

/* A packet, from its IP header on. */
struct capture_record {
	const uint8_t *bytes;
	size_t captured; /* of these, */
	size_t length; /* and of the packet: more, where memory that it was to be taken from is gone
	                */
	bool inbound;
	const char *operation; /* name of its opcode */
	uint32_t qpn;          /* our queue pair; 0: not known */
	bool has_wr_id;        /* it belongs to this work request of ours */
	uint64_t wr_id;
};

struct capture {
	void (*take)(void *context, const struct capture_record *record);
	void *context;
	struct qp *turn; /* whose requests go out */
	uint16_t ip_id;  /* of the last packet that was made up */
	uint8_t payload[IB_MAX_MTU_BYTES];
	uint8_t packet[CAPTURE_PACKET_BYTES];
};

/* Numbers of a message: its packets', and how manieth it is (the MSN of answers to it). */
struct capture_message {
	bool used;
	uint32_t msn; /* of the same-host path: how answers name it */
	uint32_t first_psn, last_psn;
	uint32_t count;
};

/* The requester's side of a queue pair. */
struct capture_qp {
	bool begun;
	uint32_t next_psn;
	uint32_t count;              /* of messages */
	struct capture_message open; /* one that has no number in the lane (yet) */
	uint32_t mask;
	struct capture_message sent[]; /* by msn; at least as many as the send queue holds */
};

static inline size_t capture_qp_bytes(uint32_t slots)
{
	return sizeof(struct capture_qp) + slots * sizeof(struct capture_message);
}

/* Out of line: engine->capture is there. */
void capture_put_request(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
void capture_put_direct(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
void capture_put_answer(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t end,
                        const struct frame_answer *answer);
void capture_put_refusal(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                         const struct frame_answer *answer);
void capture_put_wire(struct engine *engine, const struct path *path,
                      const struct ib_packet *packet, const uint8_t *payload, bool inbound);

/* Requester: @wqe goes out, to whoever is there; or once more. */
static inline void capture_request(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		capture_put_request(engine, qp, wqe);
}

/* Requester: @wqe was executed by ourselves and is over. */
static inline void capture_direct(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		capture_put_direct(engine, qp, wqe);
}

/* Requester: @answer, which tells of all messages up to @end, says of @wqe that it was executed.
 * What was read is in place. */
static inline void capture_answer(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                                  uint32_t end, const struct frame_answer *answer)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		capture_put_answer(engine, qp, wqe, end, answer);
}

/* Requester: @answer says no to @wqe. */
static inline void capture_refusal(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                                   const struct frame_answer *answer)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		capture_put_refusal(engine, qp, wqe, answer);
}

/* @packet goes along @path, with @payload, or came along it. */
static inline void capture_wire(struct engine *engine, const struct path *path,
                                const struct ib_packet *packet, const uint8_t *payload,
                                bool inbound)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		capture_put_wire(engine, path, packet, payload, inbound);
}

/* It is @qp's turn: requests that go out are of its next element. */
static inline void capture_turn(struct engine *engine, struct qp *qp)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		engine->capture->turn = qp;
}

/* The connection of @qp begins anew. */
void capture_restart(struct capture_qp *state);

#endif
