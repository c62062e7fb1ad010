/* One adapter that believes to be on a wire, on virtual time. The test is everybody else there: it
 * makes packets by hand, and looks at those that come back one by one. */
#ifndef UNIT_TRANSPORT_IB_RIG_H
#define UNIT_TRANSPORT_IB_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <heddle/heddle.h>

#include "cable/cable.h"
#include "wire/ib_packet.h"

#define RIG_BYTES      (64u << 10)
#define RIG_PACKETS    1024u
#define RIG_PEER_AT    0x1122334455667788ull /* memory of the peer's, by the key */
#define RIG_PEER_KEY   0x89abcdefu
#define RIG_TIMEOUT_NS (4096ull << 10) /* of its queue pairs, unless a test says otherwise */
#define RIG_PEER_QPN   0x00abcdu
#define RIG_RQ_PSN     100u /* the first PSN that the adapter expects, */
#define RIG_SQ_PSN     500u /* and the first that it sends, unless a test says otherwise */
#define RIG_RDMA_SEED  3u
#define COUNT(list)    (sizeof(list) / sizeof((list)[0]))

struct sent {
	struct path path;
	struct ib_packet packet;
	size_t bytes;
	uint8_t data[CABLE_PACKET_BYTES];
};

struct rig {
	uint64_t now_ns;
	bool full; /* the carrier takes nothing */
	struct cable cable;
	struct hdl_adapter *adapter;
	struct hdl_gid own, peer;
	struct hdl_pd *pd;
	struct hdl_cq *scq, *rcq;
	uint16_t came_port; /* of the packets that come; 0: any */
	struct hdl_qp *qp;  /* the last that was made; destroyed by rig_teardown() */
	uint8_t *mem;
	struct hdl_mr *mr; /* all of mem, every right */
	uint32_t sent_count, looked_at;
	struct sent sent[RIG_PACKETS];
};

/* Attributes of a queue pair; zero members are what most tests want. */
struct rig_options {
	uint32_t type; /* HDL_QP_RC */
	uint16_t mtu;  /* 256 */
	uint32_t rq_psn, sq_psn;
	bool psn_given;               /* rq_psn and sq_psn are what they say, 0 too */
	bool no_access;               /* peers may do nothing; else everything */
	uint8_t timeout;              /* 10: 4.2 ms */
	bool no_timeout;              /* 0 */
	uint8_t retry_cnt, rnr_retry; /* 7; as many as said where few is set */
	bool few;
	uint8_t min_rnr_timer; /* 1 */
	uint8_t max_rd_atomic; /* 4, both ways */
	struct hdl_srq *srq;
	struct hdl_xrcd *xrcd;
	bool stay_rtr; /* not brought to RTS */
};

#define RIG_QKEY 0x11223344u

int rig_setup(void **state);
int rig_teardown(void **state);
#define RIGGED(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

struct hdl_qp *rig_qp(struct rig *rig, const struct rig_options *o);
enum hdl_qp_state rig_state(struct rig *rig);

/* --- time --- */
void rig_run(struct rig *rig);
void rig_pass(struct rig *rig, uint64_t ns);
/* Until a packet is sent, @ns at most. Returns how long it took. */
uint64_t rig_await(struct rig *rig, uint64_t ns);

/* --- packets in --- */
/* A packet for the queue pair made last, whose BTH is filled in but for what is given. */
struct ib_packet rig_packet(struct rig *rig, uint8_t opcode, uint32_t psn);
/* The same with AckReq. */
struct ib_packet rig_request(struct rig *rig, uint8_t opcode, uint32_t psn);
/* With @bytes of the test's pattern @seed as payload. */
struct ib_packet rig_data(struct rig *rig, uint8_t opcode, uint32_t psn, uint32_t seed,
                          size_t bytes);
void rig_take(struct rig *rig, const struct ib_packet *packet);
/* @packet came from elsewhere. */
void rig_take_from(struct rig *rig, const struct ib_packet *packet, const struct hdl_gid *from);
/* A response to a request of the adapter's: syndrome @kind, @value. */
void rig_answer(struct rig *rig, uint32_t psn, enum ib_aeth_kind kind, uint8_t value, uint32_t msn);
/* A request with a RETH: @length bytes at @offset of the memory, @payload of them (of pattern
 * RIG_RDMA_SEED) in this packet. */
struct ib_packet rig_rdma(struct rig *rig, uint8_t opcode, uint32_t psn, size_t offset,
                          uint32_t length, size_t payload);
/* A whole write of 16 bytes. */
void rig_take_write(struct rig *rig, uint32_t psn, size_t offset);
void rig_take_send(struct rig *rig, uint8_t opcode, uint32_t psn, uint32_t seed, size_t bytes);
void rig_take_atomic(struct rig *rig, uint32_t psn, uint8_t opcode, size_t offset,
                     uint64_t swap_or_add, uint64_t compare);
/* A read response packet with @bytes of pattern @seed. */
void rig_read_response(struct rig *rig, uint8_t opcode, uint32_t psn, uint32_t seed, size_t at,
                       size_t bytes);

/* --- packets out --- */
/* The next packet that was sent and not looked at; NULL: none. Every one is well-formed, or the
 * test fails. */
const struct ib_packet *rig_look(struct rig *rig);
/* It is there, and has this opcode and PSN. */
const struct ib_packet *rig_expect(struct rig *rig, uint8_t opcode, uint32_t psn);
void rig_expect_answer(struct rig *rig, uint32_t psn, enum ib_aeth_kind kind, int value, int msn);
void rig_expect_none(struct rig *rig);
/* Acknowledgements are no matter. */
void rig_skip(struct rig *rig);

/* --- requests and completions --- */
uint64_t rig_address(const struct rig *rig, size_t offset);
void rig_recv(struct rig *rig, uint64_t wr_id, size_t offset, uint32_t length);
void rig_send(struct rig *rig, uint64_t wr_id, uint32_t opcode, size_t offset, uint32_t length);
void rig_post(struct rig *rig, struct hdl_send_wr wr, size_t offset, uint32_t length);
/* To or from RIG_PEER_AT. */
void rig_post_rdma(struct rig *rig, uint64_t wr_id, uint32_t opcode, size_t offset,
                   uint32_t length);
/* The next completion of @cq is this. */
struct hdl_wc rig_completion(struct rig *rig, struct hdl_cq *cq, uint64_t wr_id, uint32_t status);
void rig_no_completion(struct rig *rig, struct hdl_cq *cq);
void rig_expect_event(struct rig *rig, uint32_t type, uint32_t detail);
void rig_no_event(struct rig *rig);

/* Byte @at of pattern @seed. */
uint8_t rig_byte(uint32_t seed, size_t at);
/* @bytes at @offset of the memory are those from @at on of pattern @seed. */
bool rig_holds(const struct rig *rig, size_t offset, uint32_t seed, size_t at, size_t bytes);

#endif
