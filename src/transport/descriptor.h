/* Descriptors of virtual interfaces (include/heddle/vi.h): work in registered memory. A descriptor
 * is checked through the protection table and read once when its doorbell rings. What it says is
 * judged on that copy. When it is done, its status is written back, again through the protection
 * table: the program may have revoked the handle meanwhile.
 *
 * A queue pair of a virtual interface has a struct descriptors; op_complete() then calls
 * descriptor_completed(). The thread that drives the engine calls all of it, except
 * descriptor_judge(), which any thread may. */
#ifndef TRANSPORT_DESCRIPTOR_H
#define TRANSPORT_DESCRIPTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <heddle/vi.h>

#include "queue/cq.h"
#include "transport/engine.h"

/* The handles of the descriptors in one queue, in the order of the queue. Posters write the element
 * at @posted before they post, the driver reads the one at @done. */
struct descriptor_ring {
	struct hdl_key *handles;
	uint32_t mask;
	uint32_t posted;
	_Atomic uint32_t done; /* written by the driver, before it writes back */
};

/* A peer of a virtual interface without connection. */
struct descriptor_peer {
	uint8_t mac[6];
	uint32_t qpn;
	uint32_t qkey;
	struct hdl_gid gid; /* whose datagrams are its own */
};

struct descriptors {
	struct descriptor_ring send, receive;
	bool addressed; /* no connection: the first segment of each is an address segment */
	/* Without connection: the route header of each receive, HDL_GRH_BYTES each, by its place in
	 * @receive; and whom we know. */
	uint8_t *headers;
	const struct descriptor_peer *peers;
	uint32_t peer_count;
};

/* A descriptor as it was read. */
struct descriptor {
	struct hdl_vi_control control;
	union hdl_vi_segment segments[HDL_VI_MAX_SEGMENTS];
};

/* A descriptor as a work request. */
struct descriptor_work {
	struct hdl_send_wr send; /* or only its list, for a receive */
	struct hdl_sge pieces[HDL_MAX_SGE];
	struct hdl_vi_destination to; /* without connection */
};

/* Copy the descriptor at @addr, which @handle of @qp's protection domain must grant for reading and
 * writing. HDL_DETAIL_LIMIT: it has too many segments; HDL_DETAIL_MISALIGNED. */
enum hdl_detail descriptor_read(struct engine *engine, const struct qp *qp, uint64_t addr,
                                struct hdl_key handle, struct descriptor *out);

/* What the descriptor @in of the send or @receive queue asks for. Returns 0 or -HDL_EINVAL. */
int descriptor_judge(const struct descriptor *in, bool addressed, bool receive,
                     struct descriptor_work *out);

/* The status of a descriptor that ended as @wc says. */
uint32_t descriptor_status(const struct hdl_wc *wc);

/* The oldest descriptor of a queue of @qp has ended as @wc says: write it back. Without connection,
 * *wc is changed to the length without route header. Returns the check that refused; then @qp must
 * fail, because nobody who polls the descriptor would learn of its end. */
enum hdl_detail descriptor_completed(struct engine *engine, struct qp *qp, struct hdl_wc *wc);

#endif
