/* Raw datagrams (SAN, "raw datagram service"; IBTA volume 1 section 9.8.4): whole IPv6 datagrams
 * are sent and received, with nothing added and nothing guaranteed. A queue pair may send any
 * datagram. It receives those with the next headers and addresses that it is registered for. They
 * are sent through the carrier that has send_raw, and received by raw_take(). */
#ifndef TRANSPORT_RAW_H
#define TRANSPORT_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/engine.h"

/* A registration: datagrams with this next header to this address go to the queue pair, and to
 * every other one registered for the same. */
struct raw_entry {
	struct qp *qp;
	struct hdl_gid gid;
	uint8_t next_header;
};

/* 0; -HDL_ENOMEM. An existing registration is kept. */
int raw_attach(struct engine *engine, struct qp *qp, uint8_t next_header,
               const struct hdl_gid *gid);
/* False: there is no such registration. */
bool raw_detach(struct engine *engine, const struct qp *qp, uint8_t next_header,
                const struct hdl_gid *gid);
/* End all registrations of @qp. */
void raw_leave(struct engine *engine, const struct qp *qp);

/* What sends them; NULL: no network of ours carries any. */
const struct carrier *raw_carrier(const struct engine *engine);

extern const struct transport raw_transport;
/* The datagram @frame came; padding may follow it. */
void raw_take(struct engine *engine, const uint8_t *frame, size_t bytes);

#endif
