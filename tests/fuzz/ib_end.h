/* The victim of the packet fuzzers: an adapter on a wire whose other end is the fuzzer. It has a
 * queue pair of every type, memory in the midst of more memory that nobody may touch, and a carrier
 * that counts what leaves. */
#ifndef FUZZ_IB_END_H
#define FUZZ_IB_END_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "cable/cable.h"

#define END_REGION 8192u
#define END_EDGE   4096u
#define END_GUARD  0xA5u
#define END_MTU    256u
#define END_QKEY   0x11u
#define END_PSN    0xfffff0u /* soon to wrap around */
#define END_PEER   0x000777u

enum { END_RC, END_UC, END_UD, END_INI, END_TGT, END_RD, END_QPS };

struct end {
	uint64_t now_ns;
	struct cable cable;
	struct hdl_adapter *adapter;
	struct hdl_gid own, peer;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_mw *mw; /* a one-touch window on a part of it */
	struct hdl_key window;
	struct hdl_xrcd *xrcd;
	struct hdl_srq *srq;
	struct hdl_rdd *rdd;
	struct hdl_eec *eec; /* of END_RD */
	struct hdl_qp *qp[END_QPS];
	uint8_t *block, *memory;
	uint64_t packets_out;
	uint32_t last_psn[END_QPS]; /* of what it sent */
	bool full;
	bool striped;    /* a reliable connection has two paths from the next end_connect() on; */
	bool second_way; /* what comes came along the second of them */
	uint32_t posted, completed;
};

void end_open(struct end *end);
/* Bring queue pair @which to RTS, from wherever it is. */
void end_connect(struct end *end, int which);
void end_receive(struct end *end, int which, uint32_t offset, uint32_t bytes);
/* Give @packet, with a BTH that leads to queue pair @which, to the adapter. */
void end_take(struct end *end, int which, struct ib_packet *packet, bool from_elsewhere,
              bool damaged);
void end_run(struct end *end, uint64_t ns);
uint64_t end_address(const struct end *end, uint32_t offset);
/* Nothing outside the memory has changed, every object goes, and nothing is left. */
void end_close(struct end *end);

#endif
