/* The rig with a context of reliable datagrams, and three queue pairs that use it. */
#ifndef UNIT_TRANSPORT_IB_RD_RIG_H
#define UNIT_TRANSPORT_IB_RD_RIG_H

#include "ib_rig.h"

#define RD_PEER_EEC 0x00eec5u
#define RD_QKEY     0x00000077u
#define RD_OTHERS   2u

struct rd_rig {
	struct hdl_rdd *rdd;
	struct hdl_eec *eec;            /* whom the functions below speak for */
	struct hdl_qp *more[RD_OTHERS]; /* beside rig.qp */
};

extern struct rd_rig rd;

int rd_setup(void **state);
int rd_teardown(void **state);
#define RD_RIGGED(f) cmocka_unit_test_setup_teardown(f, rd_setup, rd_teardown)

/* Another queue pair, ready to send. @srq may be NULL. */
struct hdl_qp *rd_qp(struct rig *rig, struct hdl_rdd *rdd, struct hdl_srq *srq);
/* The context, from RESET to RTS. */
void rd_ready(struct rig *rig, uint8_t retries);
enum hdl_qp_state rd_state(void);

/* A packet of the peer's for @qp, with AckReq. */
struct ib_packet rd_packet(const struct hdl_qp *qp, uint8_t opcode, uint32_t psn);
/* The next that was sent is this, and names the peer's context. */
const struct ib_packet *rd_expect(struct rig *rig, uint8_t opcode, uint32_t psn);

#endif
