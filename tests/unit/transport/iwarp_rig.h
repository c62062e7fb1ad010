/* Two adapters without threads on virtual time, with a queue pair each on a byte stream. Either the
 * two streams are joined by a cable (tests/cable/stream.h), or the test is the peer of the first,
 * writes segments by hand and looks at those that come back one by one. */
#ifndef UNIT_TRANSPORT_IWARP_RIG_H
#define UNIT_TRANSPORT_IWARP_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "base/crc.h"
#include "base/prng.h"
#include "cable/messages.h"
#include "cable/stream.h"
#include "transport/iwarp/iwarp.h"

#define IW_BYTES    (256u << 10) /* of memory, at each end */
#define IW_CHUNKS   6u
#define IW_DEPTH    32u
#define IW_PEER_KEY 0x12345678u
#define IW_COUNT(l) (sizeof(l) / sizeof((l)[0]))

struct iw_side {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *scq, *rcq;
	struct hdl_srq *srq;
	struct hdl_qp *qp;
	uint8_t *mem;
	struct hdl_mr *mr; /* all of it, every right */
	struct iwarp iwarp;
	struct iwarp_window *window;
	struct iwarp_pool pool;
	struct iwarp_chunk chunks[IW_CHUNKS];
	uint8_t *chunk_memory;
	unsigned wakes;
	bool open; /* what arrived() or iwarp_feed() said last */
	/* Of the test as its peer. */
	struct mpa_sender sender;
	struct mpa_receiver receiver;
};

struct iw_rig {
	uint64_t now_ns;
	struct prng prng;
	struct iw_side sides[2]; /* [0] is what a test by hand looks at */
	struct stream_cable cable;
	struct message_cable messages;
	bool on_messages; /* instead of streams */
	uint16_t put_ssn; /* messages: of the next that iw_put() puts */
	bool by_feed;     /* what is put by hand goes through iwarp_feed() */
};

/* A segment that came out, with its payload. */
struct iw_segment {
	struct rdmap_segment s;
	uint8_t head[MPA_HEAD_MAX_BYTES];
	uint32_t bytes; /* of payload */
	uint8_t payload[MPA_MAX_ULPDU_BYTES];
};

struct iw_options {
	struct iwarp_terms terms; /* segment 0: 1448; ird, ord 0: 4 */
	bool messages;            /* instead of streams */
	bool no_access;
	bool no_reads; /* ird and ord really 0 */
	bool srq;
	bool register_on_send;
	uint32_t register_error;
};

void iw_open(struct iw_rig *rig, const struct iw_options *o, uint64_t seed);
void iw_close(struct iw_rig *rig);
/* The same options at both ends; the first initiates. */
void iw_begin(struct iw_rig *rig, const struct iw_options *o);

/* --- driving --- */
void iw_drive(struct iw_rig *rig);
/* Until nothing moves on the cable any more. */
void iw_settle(struct iw_rig *rig);
/* @ns pass for both; with @cable, bytes move meanwhile. */
void iw_pass(struct iw_rig *rig, uint64_t ns, bool cable);

/* --- by hand: the peer of sides[0] --- */
/* Put octets into the stream, in pieces of at most @piece (0: all at once). Returns how many were
 * taken. */
size_t iw_put_bytes(struct iw_rig *rig, const void *bytes, size_t length, size_t piece);
/* One FPDU. */
size_t iw_fpdu(struct iw_rig *rig, const struct rdmap_segment *s, const void *payload, size_t bytes,
               uint8_t *out);
void iw_put(struct iw_rig *rig, const struct rdmap_segment *s, const void *payload, size_t bytes);
/* The same on messages, with this number. False: it has to wait. */
bool iw_put_message(struct iw_rig *rig, uint16_t ssn, const struct rdmap_segment *s,
                    const void *payload, size_t bytes);
/* The next segment that was sent. False: none. */
bool iw_look(struct iw_rig *rig, struct iw_segment *segment);
/* It is there, a Terminate with this error. */
void iw_expect_terminate(struct iw_rig *rig, enum rdmap_error error);
void iw_expect_silence(struct iw_rig *rig);

/* --- requests --- */
struct hdl_sge iw_piece(const struct iw_side *side, size_t offset, uint32_t length);
uint64_t iw_address(const struct iw_side *side, size_t offset);
struct hdl_key iw_key(const struct iw_side *side);
void iw_recv(struct iw_side *side, uint64_t wr_id, size_t offset, uint32_t length);
void iw_post(struct iw_side *side, struct hdl_send_wr wr);
void iw_send(struct iw_side *side, uint64_t wr_id, size_t offset, uint32_t length);
void iw_rdma(struct iw_side *side, uint64_t wr_id, uint32_t opcode, size_t offset, uint32_t length,
             uint64_t addr, struct hdl_key key);
/* The next completion of @cq is this. */
struct hdl_wc iw_completion(struct hdl_cq *cq, uint64_t wr_id, uint32_t status);
void iw_no_completion(struct hdl_cq *cq);
void iw_event(struct iw_side *side, uint32_t type, uint32_t detail);
void iw_no_event(struct iw_side *side);
enum hdl_qp_state iw_state(const struct iw_side *side);

#endif
