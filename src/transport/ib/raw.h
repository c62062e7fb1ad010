/* Raw datagrams (seed 003, "raw datagram service"; IBTA volume 1 section 9.8.4): whole IPv6
 * datagrams in and out, nothing added and nothing promised. A queue pair sends any; it receives
 * those of the next headers and addresses that it is registered for. They go through
 * engine.carrier's send_raw and come in by raw_take(). */
#ifndef TRANSPORT_RAW_H
#define TRANSPORT_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/engine.h"

/* A registration: datagrams with this next header to this address go to that queue pair, and to
 * every other that has the same. */
struct raw_entry {
	struct qp *qp;
	struct hdl_gid gid;
	uint8_t next_header;
};

/* 0; -HDL_ENOMEM. What is there already stays. */
int raw_attach(struct engine *engine, struct qp *qp, uint8_t next_header,
               const struct hdl_gid *gid);
/* False: there is no such registration. */
bool raw_detach(struct engine *engine, const struct qp *qp, uint8_t next_header,
                const struct hdl_gid *gid);
/* Everything that @qp is registered for ends. */
void raw_leave(struct engine *engine, const struct qp *qp);

extern const struct transport raw_transport;
/* The datagram @frame came; behind it there may be padding. */
void raw_take(struct engine *engine, const uint8_t *frame, size_t bytes);

#endif
