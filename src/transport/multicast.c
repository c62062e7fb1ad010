/* Multicast groups; see multicast.h. */
#include "transport/multicast.h"

#include <string.h>

bool multicast_is(const struct hdl_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	return gid->raw[0] == 0xff ||
	       (memcmp(gid->raw, mapped, sizeof(mapped)) == 0 && (gid->raw[12] & 0xf0) == 0xe0);
}

struct group *multicast_find(const struct engine *engine, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < HDL_MAX_GROUPS; i++)
		if (engine->groups[i].users > 0 && memcmp(engine->groups[i].gid.raw, gid, 16) == 0)
			return &engine->groups[i];
	return NULL;
}

struct group *multicast_open(struct engine *engine, const struct hdl_gid *gid)
{
	struct group *group = multicast_find(engine, gid->raw);
	for (uint32_t i = 0; i < HDL_MAX_GROUPS && group == NULL; i++) {
		if (engine->groups[i].users > 0)
			continue;
		group = &engine->groups[i];
		group->epoch++;
		group->gid = *gid;
		group->member_count = group->link_count = 0;
	}
	if (group != NULL)
		group->users++;
	return group;
}

void multicast_close(struct group *group)
{
	group->users--;
}

bool multicast_has(const struct group *group, const struct qp *qp)
{
	for (uint32_t i = 0; i < group->member_count; i++)
		if (group->members[i] == qp)
			return true;
	return false;
}

bool multicast_attach(struct group *group, struct qp *qp)
{
	if (group->member_count == HDL_MAX_GROUP_MEMBERS)
		return false;
	group->members[group->member_count++] = qp;
	return true;
}

bool multicast_detach(struct group *group, const struct qp *qp)
{
	for (uint32_t i = 0; i < group->member_count; i++)
		if (group->members[i] == qp) {
			group->members[i] = group->members[--group->member_count];
			return true;
		}
	return false;
}

bool multicast_link(struct group *group, uint32_t link, bool on)
{
	uint32_t at = 0;
	while (at < group->link_count && group->links[at].link != link)
		at++;
	if (at < group->link_count) {
		if (!on)
			group->links[at] = group->links[--group->link_count];
		return true;
	}
	if (on && group->link_count == HDL_MAX_GROUP_PEERS)
		return false;
	if (on)
		group->links[group->link_count++] = (struct group_link){.link = link};
	return true;
}

void multicast_link_down(struct engine *engine, uint32_t link)
{
	for (uint32_t i = 0; i < HDL_MAX_GROUPS; i++)
		if (engine->groups[i].users > 0)
			multicast_link(&engine->groups[i], link, false);
}
