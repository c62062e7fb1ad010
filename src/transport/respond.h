/* What a responder does, whatever path a request took: check the peer's range against the
 * protection table, and handle one-touch entries. */
#ifndef TRANSPORT_RESPOND_H
#define TRANSPORT_RESPOND_H

#include <stdint.h>

#include "transport/engine.h"
#include "transport/sg.h"

/* The peer's range @piece as a list. */
struct sg respond_range(struct engine *engine, struct qp *qp, const struct hdl_sge *piece,
                        uint8_t access);
/* The same, checked as a whole. A one-touch entry that has been touched before is invalidated here
 * (MEMMGT figure 18B, table D row 3). */
enum hdl_detail respond_check(struct engine *engine, struct qp *qp, const struct hdl_sge *piece,
                              uint8_t access, struct sg *range);
/* A message has used the memory of @key to its end. */
void respond_touch(struct engine *engine, struct hdl_key key);
/* The first message of a connection came before we were ready to send: raise the event, once. */
void respond_established(struct engine *engine, struct qp *qp);

#endif
