/* Two adapters on a network of cells, on virtual time. The network loses, doubles, reorders and
 * damages as many of a thousand cells as the test says, by a seed. */
#ifndef UNIT_TRANSPORT_CELLS_RIG_H
#define UNIT_TRANSPORT_CELLS_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "base/prng.h"
#include "cable/cable.h"
#include "wire/cell.h"

#define RIG_BYTES   (3u << 20)
#define RIG_EDGE    4096u /* before and behind the memory: nobody may write there */
#define RIG_CELLS   65536u
#define RIG_GUARD   0xa5
#define RIG_LIMIT   (60ull * 1000000000u) /* virtual time that a wait takes at most */
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

struct rig_cell {
	size_t bytes;
	uint8_t data[CABLE_PATH_BYTES + CELL_MAX_BYTES];
};

struct rig_side {
	struct rig *rig;
	struct cable cable;
	struct hdl_adapter *adapter;
	struct hdl_gid gid;
	uint8_t mac[CELL_MAC_BYTES];
	struct hdl_pd *pd;
	struct hdl_cq *scq, *rcq;
	struct hdl_mr *mr;
	uint8_t *block, *mem;
};

struct rig {
	uint64_t now_ns;
	struct rig_side side[2];
	struct prng prng;
	uint32_t loss, twice, swap, damage; /* of a thousand */
	bool cut;                           /* nothing arrives */
	/* Called with each cell that is sent; may be NULL. */
	void (*seen)(struct rig *rig, const struct cell *cell);
	void *context;
	struct hdl_qp *qps[128];
	struct hdl_ah *ahs[8];
	uint32_t head, tail;
	struct rig_cell queue[RIG_CELLS];
};

int rig_setup(void **state);
int rig_teardown(void **state);
#define RIGGED(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

/* A queue pair of side @which: @type, datagrams @acknowledged or not. Datagrams are in RTS. */
struct hdl_qp *rig_qp(struct rig *rig, int which, uint32_t type, bool acknowledged);
void rig_drop(struct rig *rig, struct hdl_qp *qp);
/* Two connected ones. */
void rig_pair(struct rig *rig, uint32_t type, struct hdl_qp *qp[2]);
void rig_recv(struct rig *rig, int which, struct hdl_qp *qp, uint64_t wr_id, uint32_t offset,
              uint32_t length);
/* Post @opcode with @length bytes from @offset of side @which on; RDMA: at @remote of the other. */
int rig_post(struct rig *rig, int which, struct hdl_qp *qp, uint32_t opcode, uint32_t offset,
             uint32_t length, uint32_t remote);
int rig_datagram(struct rig *rig, int which, struct hdl_qp *qp, struct hdl_ah *ah, uint32_t qpn,
                 uint32_t offset, uint32_t length);
struct hdl_ah *rig_ah(struct rig *rig, int which);
/* Let things happen until @cq has a completion. False: there is none. */
bool rig_wait(struct rig *rig, struct hdl_cq *cq, struct hdl_wc *wc);
void rig_expect(struct rig *rig, struct hdl_cq *cq, uint32_t status);
/* Let @ns pass. */
void rig_pass(struct rig *rig, uint64_t ns);
/* Give @cell, made by hand, with @data to side @which. */
void rig_forge(struct rig *rig, int which, const struct cell *cell, const uint8_t *data,
               uint32_t bytes);
uint64_t rig_count(struct rig *rig, int which, const char *counter);
void rig_fill(struct rig *rig, int which, uint32_t offset, uint32_t bytes, uint32_t seed);
bool rig_holds(struct rig *rig, int which, uint32_t offset, uint32_t bytes, uint32_t seed);

#endif
