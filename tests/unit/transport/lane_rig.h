/* One adapter that believes it has a peer in another process. The test plays that peer: it writes
 * frames into one lane by hand and looks at those that come out of the other one by one. Time is
 * virtual, and the adapter runs only inside calls of the test. */
#ifndef UNIT_TRANSPORT_LANE_RIG_H
#define UNIT_TRANSPORT_LANE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "transport/local/frame.h"

#define LANE_BYTES       (32u << 10) /* of memory, at each end */
#define LANE_RQ_PSN      100u        /* number of the first message that the adapter expects, */
#define LANE_SQ_PSN      500u        /* and of the first that it sends */
#define LANE_DEPTH       32u         /* of each work queue */
#define LANE_MAX_INLINE  64u
#define LANE_COUNT(list) (sizeof(list) / sizeof((list)[0]))

struct lane_rig {
	uint64_t now_ns;
	struct hdl_adapter *adapter;
	/* Joined to it, with a queue pair and memory that requests can be for, and never driven:
	 * its ends of the lanes are the test's. */
	struct hdl_adapter *peer;
	struct hdl_pd *pd, *peer_pd;
	struct hdl_cq *scq, *rcq, *peer_cq;
	struct hdl_qp *qp, *peer_qp; /* connected, reliable, ready to send */
	uint8_t *mem, *peer_mem;
	struct hdl_mr *mr, *peer_mr; /* all of it, every right */
	/* A burst that is being looked at. */
	uint32_t items_left;
	size_t item_at, burst_bytes;
	struct frame burst;
	uint8_t burst_body[FRAME_BURST_BYTES];
};

/* A frame that the adapter sent, or one message of a burst as if it had come alone. */
struct lane_message {
	struct frame frame;
	size_t bytes;
	uint8_t body[FRAME_MAX_BYTES];
};

void lane_open(struct lane_rig *rig, bool no_fast_path);
void lane_close(struct lane_rig *rig);

/* --- frames in --- */
/* The header of a frame for the queue pair. */
struct frame lane_frame(const struct lane_rig *rig, enum frame_kind kind, uint32_t msn);
/* Put @frame and @bytes of @body into the lane. The adapter takes them when it runs next. */
void lane_put(struct lane_rig *rig, const struct frame *frame, const void *body, size_t bytes);
void lane_put_send(struct lane_rig *rig, uint32_t msn, const void *data, uint32_t length);
void lane_put_answer(struct lane_rig *rig, uint32_t msn, uint32_t answer, uint32_t detail);

/* --- frames out --- */
/* The next frame that the adapter has sent. False: there is none. */
bool lane_look(struct lane_rig *rig, struct lane_message *message);

/* Until the adapter has nothing to do. */
void lane_run(struct lane_rig *rig);
void lane_pass(struct lane_rig *rig, uint64_t ns);

/* --- requests --- */
struct hdl_sge lane_piece(const struct lane_rig *rig, size_t offset, uint32_t length);
void lane_recv(struct lane_rig *rig, uint64_t wr_id, size_t offset, uint32_t length);
enum hdl_qp_state lane_state(const struct lane_rig *rig);

#endif
