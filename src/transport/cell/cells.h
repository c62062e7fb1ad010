/* Cells on a network (SPLIT sections III and IV, figure 8; wire/cell.h has the format): the
 * channels of a virtual interface in their four combinations.
 *
 *                     connected                         not connected
 *   acknowledged      HDL_QP_RC: done when answered     HDL_QP_UD with qp.acknowledged
 *   not               HDL_QP_UC: done when sent         HDL_QP_UD: done when sent
 *
 *   cell/cells.c     the tables; received cells are checked and handed on
 *   cell/tx.c        requester: work requests to packets, packets to cells, within the window
 *   cell/retry.c     requester: answers, read responses, timeouts; what is lost is sent again
 *   cell/request.c   responder: cells in order, through op.h
 *   cell/answer.c    responder: read responses, then the answer
 *   cell/datagram.c  without connection: packets of one cell
 *
 * A packet is a message and has one packet sequence number (PSN); a read has one for each
 * CELLS_READ_BYTES, which one read request asks for. An answer names a place: the last packet that
 * is complete, and how many cells of the one behind it are there. So what is lost costs the cells
 * behind it, not the packet. wqe.msn is the PSN of a message, wqe.offset how much of it was sent,
 * and going back means to move both. */
#ifndef TRANSPORT_CELLS_H
#define TRANSPORT_CELLS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/engine.h"
#include "transport/path.h"
#include "transport/request.h"
#include "transport/transport.h"
#include "wire/cell.h"

#define CELLS_TX_BATCH     64u  /* cells of one queue pair before the next one gets its turn */
#define CELLS_WINDOW_MAX   256u /* cells in flight */
#define CELLS_WINDOW_FIRST 64u  /* at the beginning */
#define CELLS_ACK_EVERY    16u  /* cells of a long packet between two answers */
/* However many are lost: a window that ends before the next answer is due would wait for the
 * timeout each time. */
#define CELLS_WINDOW_MIN CELLS_ACK_EVERY
#define CELLS_READ_BYTES 4096u /* that one read request asks for */
#define CELLS_PSN_MASK   0xffffffu
#define CELLS_PSN_HALF   0x800000u
#define CELLS_SOURCES    64u /* acknowledged without connection: senders that are remembered */
#define CELLS_TIMEOUT    14u /* and how long an answer is waited for: 4.096 us x 2 to this, */
#define CELLS_RETRIES    7u  /* and how often the packet is sent again */

/* What an answer says, in the first byte of its data. The other three: a number of cells, or the
 * code of an RNR timer. */
enum cells_code {
	/* All packets up to the answer's PSN, and so many cells of the next one, are there. */
	CELLS_ACK,
	CELLS_AGAIN, /* the same; what follows is to be sent again */
	/* About the packet of the answer's PSN; all before it are there: */
	CELLS_NOT_READY, /* no receive: wait for the time given, then send it again */
	CELLS_INVALID,
	CELLS_ACCESS,
	CELLS_FAILED,
	CELLS_CODE_COUNT
};

/* Where a sender of acknowledged packets without connection stands. */
struct cells_source {
	uint8_t mac[CELL_MAC_BYTES];
	uint32_t qpn;
	uint32_t psn;  /* the last that was taken */
	uint32_t used; /* when: the larger, the later; 0: never */
};

/* What a queue pair on cells needs besides struct qp. The adapter's memory. */
struct cells {
	struct path path; /* to the peer; without connection, only our own side of it counts */

	/* Requester. */
	uint32_t next_psn;  /* of the next message without one */
	uint32_t una_psn;   /* the oldest packet that is not acknowledged, */
	uint32_t una_cell;  /* and how many cells of it are */
	uint32_t flight;    /* cells behind that which were sent, since going back */
	uint32_t sent_psn;  /* the packet, */
	uint32_t sent_cell; /* and the cell of it, that is next to be sent for the first time */
	bool asked_again;   /* went back for a read response; once until something arrives */
	uint32_t read_open; /* read requests among them */
	uint32_t window;    /* in cells */
	uint32_t grown;     /* cells acknowledged since the window last grew */
	/* The packet that is being cut, if cutting; that of the element cut_index. */
	bool cutting;
	uint32_t cut_index;
	struct cell_cutter cutter;
	/* The CRC of the packet crc_psn before each of its cells [crc_first, crc_end), as far as
	 * one may have to go back: by the number of the cell. */
	uint32_t crc_psn, crc_first, crc_end;
	uint32_t crcs[CELLS_WINDOW_MAX];
	struct cell_assembly response; /* the answer to the read request at una_psn */

	/* Responder. */
	uint32_t expected_psn;
	struct cell_assembly request;
	bool write_refused; /* unreliable: the rest of the packet is dropped */
	uint32_t since_ack; /* cells since an answer became due */
	/* Reads: a ring of the last ones, in qp.reads.entries. [reads_sent, reads_put) have to be
	 * answered; the first of them is being cut, if answering. */
	uint32_t reads_put, reads_sent;
	bool answering;
	struct cell_cutter answer_cutter;
	/* Where the last read ended. A read that continues there, with nothing in between, is the
	 * same message for a one-touch entry, which is touched when something else comes. */
	uint64_t read_end;
	struct hdl_key read_key;
	bool read_last; /* the last packet was a read */
	bool touch_due;
	bool answer_due;
	uint8_t answer_code; /* enum cells_code */
	uint32_t answer_psn, answer_value;
	/* Without connection: whom the answer goes to; and who has sent. */
	struct path answer_path;
	uint32_t answer_qpn;
	uint32_t source_clock;
	struct cells_source sources[CELLS_SOURCES];
};

extern const struct transport cells_transport;

/* How far PSN @a is ahead of @b; negative: behind. */
static inline int32_t cells_distance(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t cells_psn(uint32_t psn)
{
	return psn & CELLS_PSN_MASK;
}

/* Are its packets acknowledged? */
static inline bool cells_acknowledged(const struct qp *qp)
{
	return qp->type == HDL_QP_RC || qp->acknowledged;
}

/* Number of PSNs of @wqe. */
static inline uint32_t cells_span(const struct wqe_send *wqe)
{
	return wqe->opcode != HDL_OP_READ || wqe->length == 0
	               ? 1
	               : (wqe->length - 1) / CELLS_READ_BYTES + 1;
}

/* --- cells.c --- */
/* A cell of @bytes came along @came. */
void cells_take(struct engine *engine, const struct path *came, const uint8_t *in, size_t bytes);
/* Send the next cell of @cutter, with @data, along @path. False: no room. */
bool cells_put(struct engine *engine, const struct path *path, struct cell_cutter *cutter,
               const uint8_t *data);
/* A packet of @qp without operation and flags. */
struct cell cells_packet(const struct qp *qp, const struct path *path, uint32_t dest_qpn,
                         uint32_t psn);
void cells_drop(struct engine *engine);
/* Set the MAC addresses of @path from its addresses: those of its ports. A destination that was
 * given stays, unless the address of the other end contains one, as where cells travel in
 * frames. */
void cells_address(struct path *path);

/* --- tx.c --- */
void cells_begin_requester(struct qp *qp);
bool cells_run(struct engine *engine, struct qp *qp);
/* Cell @count of packet @psn is next to be sent. */
void cells_note_sent(struct cells *cells, uint32_t psn, uint32_t count);
/* How long an answer is waited for. */
uint64_t cells_wait_ns(const struct qp *qp);
/* Something was sent: an answer is waited for. */
void cells_await(struct engine *engine, struct qp *qp);

/* --- retry.c --- */
/* An answer or a cell of a read response came. */
void cells_answered(struct engine *engine, struct qp *qp, const struct cell *cell);
void cells_responded(struct engine *engine, struct qp *qp, const struct cell *cell);
void cells_timeout(struct engine *engine, struct qp *qp);
/* The code, and the number behind it, of an answer. */
enum cells_code cells_code(const struct cell *cell, uint32_t *value);
/* The status of a request that was answered with @code, which is none of the first two. */
enum hdl_wc_status cells_status(enum cells_code code);

/* --- request.c --- */
void cells_begin_responder(struct qp *qp);
void cells_request(struct engine *engine, struct qp *qp, const struct cell *cell);
/* The answer that is owed, about what has arrived in order. */
void cells_owe(struct engine *engine, struct qp *qp, enum cells_code code, uint32_t psn,
               uint32_t value);

/* The last read is over: touch its entry. */
void cells_touch(struct engine *engine, struct qp *qp);

/* --- answer.c --- */
bool cells_owes(const struct qp *qp);
enum settled cells_answer(struct engine *engine, struct qp *qp);

/* --- datagram.c: without connection --- */
enum step cells_send_datagram(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
void cells_take_datagram(struct engine *engine, struct qp *qp, const struct path *came,
                         const struct cell *cell);
void cells_datagram_timeout(struct engine *engine, struct qp *qp);

#endif
