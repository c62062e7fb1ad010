/* Multicast groups as an adapter knows them: which of its queue pairs are members, and which links
 * lead to members elsewhere. A datagram to a group is written once into the lane of each such link,
 * including the adapter's own if it has members itself. The adapter at the other end delivers a
 * copy to each of its members (IBTA section 10.5.2). A sender that is a member receives its own
 * datagrams. The adapter maintains the membership, which it learns from its peers or from the node
 * agent. */
#ifndef TRANSPORT_MULTICAST_H
#define TRANSPORT_MULTICAST_H

#include <stdbool.h>
#include <stdint.h>

#include <heddle/limits.h>
#include <heddle/types.h>

#include "transport/engine.h"

/* In a request's u.ud.link: numbers from here on are groups, not links. */
#define MULTICAST_LINK HDL_MAX_PEERS
/* How long a full lane may delay the group. After that its peer loses what does not fit. */
#define MULTICAST_WAIT_NS 1000000000u
/* The destination of datagrams to groups (IBTA section 9.6.1.1.3). */
#define MULTICAST_QPN 0xffffffu

struct group_link {
	uint32_t link;
	bool full;
	bool timed;        /* the time has been read since the lane was found full */
	uint64_t since_ns; /* that time; before, the last known time */
};

struct group {
	uint32_t users; /* our members and senders; 0: the slot is free */
	/* How many groups have had this slot: requests for an earlier one are dropped. */
	uint32_t epoch;
	struct hdl_gid gid;
	uint32_t member_count, link_count;
	struct qp *members[HDL_MAX_GROUP_MEMBERS];
	struct group_link links[HDL_MAX_GROUP_PEERS];
};

/* Is @gid that of a group? An IPv6 multicast address, or an IPv4 one mapped into IPv6. */
bool multicast_is(const struct hdl_gid *gid);
struct group *multicast_find(const struct engine *engine, const uint8_t gid[16]);
/* Add a user of the group; NULL: HDL_MAX_GROUPS are in use. */
struct group *multicast_open(struct engine *engine, const struct hdl_gid *gid);
void multicast_close(struct group *group);
/* Make @qp a member. False: there are already HDL_MAX_GROUP_MEMBERS. */
bool multicast_attach(struct group *group, struct qp *qp);
/* False: @qp is not a member. */
bool multicast_detach(struct group *group, const struct qp *qp);
bool multicast_has(const struct group *group, const struct qp *qp);
/* There are (@on) or no longer are members behind @link. False: HDL_MAX_GROUP_PEERS links already
 * have members. */
bool multicast_link(struct group *group, uint32_t link, bool on);
/* There are no longer members of any group behind @link. */
void multicast_link_down(struct engine *engine, uint32_t link);

#endif
