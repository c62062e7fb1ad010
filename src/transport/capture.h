/* Captures: what an adapter does, recorded as RoCEv2 packets, real or reconstructed.
 *
 * On a wire there are packets (capture_wire()), and all of them are recorded as they are sent and
 * received. If both ends record to one file, each packet is there twice, with its direction. On the
 * same-host path there are only frames in lanes, and copies that leave no trace. There the packets
 * that the same operation would produce on a wire are reconstructed: numbered and split by the path
 * MTU, with the queue pair numbers, GIDs as IP addresses and all checksums, requests first and then
 * their answers.
 *
 * On the same-host path the requester records its requests when they are executed, and the answers
 * when they come. The responder records nothing, because it does not know of RDMA on its memory. So
 * each packet is recorded once, whichever file each end records to. Queue pairs of a device that
 * speaks iWARP are recorded as that (capture_iwarp.h).
 *
 * Nothing is allocated here: the adapter provides a struct capture for the engine and a struct
 * capture_qp for each queue pair that sends. Without them (NULL) nothing is recorded, which costs
 * one branch. */
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

#define CAPTURE_HOPS         64u /* where the number is not known */
#define CAPTURE_PACKET_BYTES (IB_MAX_MTU_BYTES + IB_MAX_HEADER_BYTES + 64u)

/* A packet, starting with its IP header; or an Ethernet frame. */
struct capture_record {
	const uint8_t *bytes;
	size_t captured; /* length of @bytes */
	size_t length; /* length of the packet: larger if memory with part of its payload is gone */
	bool inbound;
	bool ethernet;
	const char *operation; /* name of its opcode */
	uint32_t qpn;          /* our queue pair; 0: not known */
	bool has_wr_id;        /* it belongs to work request @wr_id of ours */
	uint64_t wr_id;
	bool again; /* it, or one with a later PSN, was recorded before */
};

struct capture {
	void (*take)(void *context, const struct capture_record *record);
	void *context;
	struct qp *turn;      /* the queue pair whose requests are being sent */
	struct qp *answering; /* whose answers */
	uint16_t ip_id;       /* of the last packet that was reconstructed */
	uint8_t payload[IB_MAX_MTU_BYTES];
	uint8_t packet[CAPTURE_PACKET_BYTES];
};

/* The numbers of a message: those of its packets, and its count (the MSN in answers to it). */
struct capture_message {
	bool used;
	uint32_t msn; /* on the same-host path: how answers name it */
	uint32_t first_psn, last_psn;
	uint32_t count;
	bool recorded;
	uint32_t number; /* as iWARP: its answers come under this number */
};

struct capture_iwarp;

/* The requester's side of a queue pair. */
struct capture_qp {
	struct capture_iwarp *iwarp; /* recorded as iWARP (capture_iwarp.h); NULL: as RoCEv2 */
	bool begun;
	uint32_t next_psn;
	uint32_t count;              /* of messages */
	struct capture_message open; /* the one that has no number in the lane (yet) */
	uint32_t mask;
	struct capture_message sent[]; /* by msn; at least as many as the send queue holds */
};

static inline size_t capture_qp_bytes(uint32_t slots)
{
	return sizeof(struct capture_qp) + slots * sizeof(struct capture_message);
}

/* Out of line: engine->capture is not NULL. */
void capture_put_request(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
void capture_put_direct(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
void capture_put_answer(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t end,
                        const struct frame_answer *answer);
void capture_put_refusal(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                         const struct frame_answer *answer);
void capture_put_wire(struct engine *engine, const struct path *path,
                      const struct ib_packet *packet, const uint8_t *payload, bool inbound);

/* Requester: @wqe is sent, or sent again. */
static inline void capture_request(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		capture_put_request(engine, qp, wqe);
}

/* Requester: we have executed @wqe ourselves, and it is finished. */
static inline void capture_direct(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		capture_put_direct(engine, qp, wqe);
}

/* Requester: @answer, which covers all messages up to @end, says that @wqe was executed. The data
 * of a read is in place. */
static inline void capture_answer(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                                  uint32_t end, const struct frame_answer *answer)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		capture_put_answer(engine, qp, wqe, end, answer);
}

/* Requester: @answer refuses @wqe. */
static inline void capture_refusal(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                                   const struct frame_answer *answer)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		capture_put_refusal(engine, qp, wqe, answer);
}

/* @packet with @payload is sent along @path, or came along it. */
static inline void capture_wire(struct engine *engine, const struct path *path,
                                const struct ib_packet *packet, const uint8_t *payload,
                                bool inbound)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		capture_put_wire(engine, path, packet, payload, inbound);
}

/* @bytes of @data are sent along @path to UDP port @port, or came along it; @what names them. On a
 * lane this is the datagram that they would be on a wire, and both ends record it, as there. */
void capture_put_datagram(struct engine *engine, const struct roce_path *path, uint16_t port,
                          const uint8_t *data, size_t bytes, bool inbound, const char *what);

/* A frame of @bytes behind its header, with Ethertype @type, is sent from @from to @to, or came. */
void capture_put_frame(struct engine *engine, const uint8_t to[6], const uint8_t from[6],
                       uint16_t type, const uint8_t *data, size_t bytes, bool inbound,
                       const char *what);

/* A cell of @bytes is sent along @path, or came along it. It is a datagram of its own here, however
 * many travelled together. */
void capture_put_cell(struct engine *engine, const struct path *path, const uint8_t *cell,
                      size_t bytes, bool inbound);
static inline void capture_cell(struct engine *engine, const struct path *path, const uint8_t *cell,
                                size_t bytes, bool inbound)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		capture_put_cell(engine, path, cell, bytes, inbound);
}

/* One end of a connection, or of a datagram. */
struct capture_end {
	uint8_t gid[16]; /* its address; one of IPv4 is mapped */
	uint16_t port;
};

/* A UDP datagram. */
struct capture_datagram {
	struct capture_end from, to;
	uint8_t tos, hops; /* hops 0: the usual number */
	bool inbound;
	const char *operation;
	const uint8_t *data;
	size_t bytes;
};

/* Record @datagram, with headers made in @room of @room_bytes. engine->capture is not NULL. One
 * that does not fit is not recorded. */
void capture_datagram(struct engine *engine, const struct capture_datagram *datagram, uint8_t *room,
                      size_t room_bytes);

/* It is @qp's turn: requests that are sent belong to its next element. */
static inline void capture_turn(struct engine *engine, struct qp *qp)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		engine->capture->turn = qp;
}

/* Responder: answers that are sent are @qp's. */
static inline void capture_answering(struct engine *engine, struct qp *qp)
{
	if (__builtin_expect(engine->capture != NULL, 0))
		engine->capture->answering = qp;
}

/* The connection of @qp restarts. */
void capture_restart(struct capture_qp *state);

#endif
