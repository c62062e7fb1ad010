/* Multicast groups as an adapter knows them: which of its queue pairs are members, and which links
 * lead to members elsewhere. A datagram to a group goes once into the lane of each such link, its
 * own included when it has members itself; the adapter at the other end gives a copy to each of its
 * members (IBTA section 10.5.2). The sender is a member like any other: it hears itself. Who is
 * where is told by the adapter, which knows from its peers or from the node agent. */
#ifndef TRANSPORT_MULTICAST_H
#define TRANSPORT_MULTICAST_H

#include <stdbool.h>
#include <stdint.h>

#include <heddle/limits.h>
#include <heddle/types.h>

#include "transport/engine.h"

/* In a request's u.ud.link: numbers from here on are groups, not links. */
#define MULTICAST_LINK HDL_MAX_PEERS
/* For how long a full lane holds up the group; after that its peer misses what does not fit. */
#define MULTICAST_PATIENCE_NS 1000000000u
/* What datagrams to groups are addressed to (IBTA section 9.6.1.1.3). */
#define MULTICAST_QPN 0xffffffu

struct group_link {
	uint32_t link;
	bool full;
	bool timed;        /* the time has been looked at since it was found full, */
	uint64_t since_ns; /* and this is what it was; before that, what was last known */
};

struct group {
	uint32_t users; /* members and senders of ours; 0: the place is free */
	uint32_t epoch; /* how often this place was given to a group: requests for a former one
	                   vanish */
	struct hdl_gid gid;
	uint32_t member_count, link_count;
	struct qp *members[HDL_MAX_GROUP_MEMBERS];
	struct group_link links[HDL_MAX_GROUP_PEERS];
};

/* Is @gid one of a group? An IPv6 multicast address, or an IPv4 one mapped into IPv6. */
bool multicast_is(const struct hdl_gid *gid);
struct group *multicast_find(const struct engine *engine, const uint8_t gid[16]);
/* One more user of the group; NULL: HDL_MAX_GROUPS are in use. */
struct group *multicast_open(struct engine *engine, const struct hdl_gid *gid);
void multicast_close(struct group *group);
/* @qp becomes a member. False: HDL_MAX_GROUP_MEMBERS are. */
bool multicast_attach(struct group *group, struct qp *qp);
/* False: it is not one. */
bool multicast_detach(struct group *group, const struct qp *qp);
bool multicast_has(const struct group *group, const struct qp *qp);
/* There are members behind @link, or no more. False: HDL_MAX_GROUP_PEERS links have. */
bool multicast_link(struct group *group, uint32_t link, bool on);
/* Nobody is behind @link any more. */
void multicast_link_down(struct engine *engine, uint32_t link);

#endif
