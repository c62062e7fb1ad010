/* What a responder does, whatever path a request took: check the peer's range against the
 * protection table, and handle one-touch entries. */
#ifndef TRANSPORT_RESPOND_H
#define TRANSPORT_RESPOND_H

#include <stdint.h>

#include "memory/tpt.h"
#include "transport/engine.h"
#include "transport/sg.h"

/* The peer's range @piece as a list. */
struct sg respond_range(struct engine *engine, struct qp *qp, const struct hdl_sge *piece,
                        uint8_t access);
/* A lane or a packet network delivers in order: for table D of MEMMGT figure 18B each message is a
 * last segment that is just due. */
extern const struct tpt_segment respond_whole_message;
/* The same, checked as a whole, for @segment of the peer's stream. A one-touch entry that has been
 * touched before is invalidated here (table D row 3). */
enum hdl_detail respond_check(struct engine *engine, struct qp *qp, const struct hdl_sge *piece,
                              uint8_t access, const struct tpt_segment *segment, struct sg *range);
/* @segment uses the memory of @key: table D. */
enum tpt_action respond_touch(struct engine *engine, struct hdl_key key,
                              const struct tpt_segment *segment);
/* What came before @next_sn is complete: an entry that its last segment touched early is over. */
void respond_line_up(struct engine *engine, struct hdl_key key, uint32_t next_sn);
/* A request was refused with @detail, and the peer of a reliable connection is told: end the
 * connection. @told: a completion reports it, so no event is needed. @invalid: the request itself
 * is wrong, not what it wants to access. */
void respond_refused(struct engine *engine, struct qp *qp, bool invalid, enum hdl_detail detail,
                     bool told);
/* What refused a read or atomic for which there is no room in the read resource queue: there are
 * more than agreed. A queue pair that answers none at all does not allow the operation. */
static inline enum hdl_detail respond_no_room(const struct qp *qp)
{
	return qp->reads.depth > 0 ? HDL_DETAIL_LIMIT : HDL_DETAIL_NONE;
}
/* The first message of a connection came before we were ready to send: raise the event, once. */
void respond_established(struct engine *engine, struct qp *qp);

#endif
