/* Links: between adapters of one process (hdl_join), and between processes that the node agent
 * introduced to each other. */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memfile.h"
#include "port/bell.h"
#include "port/lanes.h"
#include "port/pidfd.h"

#define LOCAL_ID         AGENT_LINK_IDS /* ids of links within a process start here */
#define QUIESCE_LIMIT_NS 2000000000u    /* how long a peer may stay inside its guard */

/* How long a new peer may take until it lets us access its memory, and how often we check. */
#define READY_TRIES   50u
#define READY_LOOK_US 1000u

/* Protects which adapters of this process know each other (joining and closing). */
pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t last_local_id;

/* --- finding --- */

static bool same_gid(const struct hdl_gid *a, const struct hdl_gid *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static uint32_t slot_of_qpn(const struct hdl_adapter *adapter, uint32_t qpn)
{
	return (qpn & 0xffffffu) >> adapter->objects.qp_bits;
}

struct hdl_gid adapter_address(const struct hdl_ah_attr *attr)
{
	struct hdl_gid gid = attr->dgid;
	if (!attr->is_global && attr->dlid != 0)
		agent_lid_address(attr->dlid, gid.raw);
	return gid;
}

/* The node that @gid stands for, as far as we know. */
static const uint64_t *peers_guid_of(const struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	uint16_t lid = agent_lid_of(gid->raw);
	if (lid != 0 && lid >> adapter->lmc == adapter->lid >> adapter->lmc)
		return &adapter->guid;
	/* What the agent said comes first: one of our own addresses may have been given to another
	 * node since we were told of it. */
	for (uint32_t i = 0; i < adapter->peers.alias_count; i++)
		if (same_gid(&adapter->peers.aliases[i].gid, gid))
			return &adapter->peers.aliases[i].node_guid;
	for (uint32_t i = 0; i < adapter->gid_count; i++)
		if (same_gid(&adapter->gids[i], gid))
			return &adapter->guid;
	return NULL;
}

void adapter_learn(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint64_t guid,
                   uint16_t lid, uint32_t number)
{
	uint32_t at = 0;
	while (at < adapter->peers.alias_count && !same_gid(&adapter->peers.aliases[at].gid, gid))
		at++;
	bool listed = at < adapter->peers.alias_count;
	if (guid == 0) {
		if (listed)
			adapter->peers.aliases[at] =
			        adapter->peers.aliases[--adapter->peers.alias_count];
		return;
	}
	const uint64_t *known = peers_guid_of(adapter, gid);
	if (!listed && ((known != NULL && *known == guid) || at == ADAPTER_MAX_ALIASES))
		return; /* our own address needs no alias */
	struct alias *alias = &adapter->peers.aliases[at];
	if (listed && lid == 0 && alias->node_guid == guid)
		lid = alias->lid;
	*alias = (struct alias){.gid = *gid, .node_guid = guid, .lid = lid, .agent_number = number};
	adapter->peers.alias_count += !listed;
}

uint16_t adapter_first_lid(const struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	for (uint32_t i = 0; i < adapter->peers.alias_count; i++)
		if (adapter->peers.aliases[i].lid != 0 &&
		    same_gid(&adapter->peers.aliases[i].gid, gid))
			return adapter->peers.aliases[i].lid;
	return agent_lid_of(gid->raw);
}

bool adapter_is_own_node(const struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	const uint64_t *guid = peers_guid_of(adapter, gid);
	return guid != NULL && *guid == adapter->guid;
}

bool adapter_knows_node(const struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	return adapter->agent.on_node && peers_guid_of(adapter, gid) != NULL;
}

bool adapter_sure_of_node(const struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	if (!adapter_knows_node(adapter, gid))
		return false;
	if (adapter_is_own_node(adapter, gid))
		return true;
	for (uint32_t i = 0; i < adapter->peers.alias_count; i++)
		if (same_gid(&adapter->peers.aliases[i].gid, gid))
			return !adapter->peers.aliases[i].doubtful &&
			       adapter->peers.aliases[i].agent_number ==
			               atomic_load(&adapter->agent.number);
	return false;
}

uint32_t adapter_find_link(const struct hdl_adapter *adapter, const struct hdl_gid *gid,
                           uint32_t qpn)
{
	const uint64_t *guid = peers_guid_of(adapter, gid);
	uint32_t slot = slot_of_qpn(adapter, qpn);
	for (uint32_t i = 0; i < adapter->engine.link_count; i++) {
		const struct peer *peer = &adapter->peers.list[i];
		if (!adapter->peers.links[i].up)
			continue;
		if (peer->adapter != NULL && same_gid(&adapter->peers.links[i].gid, gid) &&
		    (!adapter->agent.on_node || i != 0))
			return i;
		/* On a node, one address stands for many processes; the queue pair number selects
		 * the process. */
		if (adapter->agent.on_node && guid != NULL && peer->node_guid == *guid &&
		    peer->slot == slot)
			return i;
	}
	return LINK_NONE;
}

uint32_t peers_by_id(const struct hdl_adapter *adapter, uint32_t id)
{
	for (uint32_t i = 0; i < adapter->engine.link_count; i++)
		if (adapter->peers.links[i].up && adapter->peers.links[i].id == id)
			return i;
	return LINK_NONE;
}

uint32_t peers_by_process(const struct hdl_adapter *adapter, uint64_t guid, uint32_t slot)
{
	for (uint32_t i = 0; i < adapter->engine.link_count; i++)
		if (adapter->peers.links[i].up && adapter->peers.list[i].node_guid == guid &&
		    adapter->peers.list[i].slot == slot)
			return i;
	return LINK_NONE;
}

/* The index of a new link: a free one, or one more. */
static uint32_t new_link(struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < adapter->engine.link_count; i++)
		if (!adapter->peers.links[i].up && !adapter->peers.list[i].used)
			return i;
	return adapter->engine.link_count < HDL_MAX_PEERS ? adapter->engine.link_count : LINK_NONE;
}

static bool is_alive(const struct peer *peer)
{
	if (peer->adapter != NULL)
		return true;
	if (peer->pidfd >= 0)
		return !pidfd_ended(peer->pidfd);
	/* If the process has no number here, the agent reports its death. */
	return peer->pid == 0 || kill(peer->pid, 0) == 0 || errno != ESRCH;
}

/* Should we keep waiting until @peer has left its guard at @seen? A peer that was stopped there, or
 * that never leaves it, must not block us forever. */
static bool worth_waiting(struct peer *peer, uint64_t seen, uint64_t *begin)
{
	if (!is_alive(peer)) {
		peer->stuck = seen; /* later calls do not wait for this link again */
		return false;
	}
	uint64_t now = clock_now_ns();
	*begin = *begin == 0 ? now : *begin;
	if (peer->adapter != NULL || now - *begin < QUIESCE_LIMIT_NS)
		return true;
	peer->stuck = seen;
	log_warn("process %d stopped in the middle of an access to our memory; no longer waiting "
	         "for it",
	         (int)peer->pid);
	return false;
}

void adapter_quiesce(struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < adapter->engine.link_count; i++) {
		uint64_t seen = 0;
		struct peer *peer = &adapter->peers.list[i];
		if (!adapter->peers.links[i].up || peer->guard == NULL)
			continue;
		/* A peer that died inside its guard never leaves it, and accesses nothing any
		 * more. */
		uint64_t begin = 0;
		for (unsigned spins = 0; !tpt_left(peer->guard, &seen); spins++) {
			if (seen == peer->stuck ||
			    (spins % 64 == 63 && !worth_waiting(peer, seen, &begin)))
				break;
			lock_relax(spins);
		}
	}
}

void peers_ring(struct hdl_adapter *adapter, uint32_t index)
{
	const struct peer *peer = &adapter->peers.list[index];
	bell_ring(peer->adapter != NULL ? peer->adapter->drive.rope : peer->bell);
}

/* Install a link. */
static void put_link(struct hdl_adapter *adapter, uint32_t index, const struct link *link,
                     const struct peer *peer)
{
	uint32_t epoch = adapter->peers.links[index].epoch + 1;
	adapter->peers.list[index] = *peer;
	adapter->peers.list[index].used = true;
	adapter->peers.links[index] = *link;
	adapter->peers.links[index].up = true;
	adapter->peers.links[index].epoch = epoch;
	adapter->peers.links[index].dirty_next = LINK_NONE;
	adapter->drive.lanes_armed = adapter->drive.lanes_fenced =
	        false; /* the new lane is neither */
	if (index == adapter->engine.link_count)
		adapter->engine.link_count++;
}

/* --- within one process --- */

static void reach_peers_attach(struct hdl_adapter *adapter, uint32_t index,
                               struct hdl_adapter *other, uint32_t other_index,
                               const struct lanes_end *end, void *block)
{
	struct peer peer = {.adapter = other,
	                    .pidfd = -1,
	                    .link = other_index,
	                    .guard = end->peer_guard,
	                    .block = block,
	                    .node_guid = other->guid,
	                    .slot = other->slot};
	struct link link = {.tx = end->tx,
	                    .rx = end->rx,
	                    .peer_table = other->tpt.view,
	                    .peer_qps = other->engine.qps_public,
	                    .peer_qp_mask = other->engine.qp_mask,
	                    .id = LOCAL_ID | last_local_id,
	                    .guard = end->own_guard,
	                    .memory = fault_peer_memory(adapter->peers.by_target),
	                    .peer_reach = end->peer_reach,
	                    .gid = other->engine.gid};
	atomic_store_explicit(end->own_reach,
	                      adapter->peers.by_value ? LANES_REACH_NO : LANES_REACH_YES,
	                      memory_order_relaxed);
	link.tx.unfenced = adapter->drive.barrier && other->drive.barrier;
	put_link(adapter, index, &link, &peer);
}

/* What @to sends to groups with members in @from also goes to @from, through @link. With both drive
 * locks. */
static void share_groups(struct hdl_adapter *from, struct hdl_adapter *to, uint32_t link)
{
	for (uint32_t i = 0; i < HDL_MAX_GROUPS; i++) {
		struct group *group = &to->engine.groups[i];
		const struct group *theirs =
		        group->users > 0 ? multicast_find(&from->engine, group->gid.raw) : NULL;
		if (theirs != NULL && theirs->member_count > 0)
			multicast_link(group, link, true);
	}
}

static bool has_members(struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	adapter_lock(adapter);
	const struct group *group = multicast_find(&adapter->engine, gid->raw);
	bool result = group != NULL && group->member_count > 0;
	adapter_unlock(adapter);
	return result;
}

static void set_link(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint32_t link, bool on)
{
	adapter_lock(adapter);
	struct group *group = multicast_find(&adapter->engine, gid->raw);
	if (group != NULL)
		multicast_link(group, link, on);
	adapter_unlock(adapter);
}

void peers_tell_group(struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	bool on = has_members(adapter, gid);
	pthread_mutex_lock(&registry_lock);
	for (uint32_t i = 0; i < adapter->engine.link_count; i++) {
		const struct peer *peer = &adapter->peers.list[i];
		if (peer->adapter != NULL)
			set_link(peer->adapter, gid, peer->link, on);
	}
	pthread_mutex_unlock(&registry_lock);
}

void peers_ask_group(struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	pthread_mutex_lock(&registry_lock);
	for (uint32_t i = 0; i < adapter->engine.link_count; i++) {
		struct peer *peer = &adapter->peers.list[i];
		if (peer->adapter != NULL && has_members(peer->adapter, gid))
			set_link(adapter, gid, i, true);
	}
	pthread_mutex_unlock(&registry_lock);
}

/* Create lanes between @a and @b, which may be the same adapter. With registry_lock and both drive
 * locks. */
static int peers_join(struct hdl_adapter *a, struct hdl_adapter *b)
{
	uint32_t at_a = new_link(a), at_b = a == b ? at_a : new_link(b);
	if (at_a == LINK_NONE || at_b == LINK_NONE)
		return -HDL_ENOMEM;
	void *block = aligned_alloc(64, lanes_bytes());
	if (block == NULL)
		return -HDL_ENOMEM;
	lanes_format(block);
	struct lanes_end end_a, end_b;
	lanes_attach(&end_a, block, 0);
	lanes_attach(&end_b, block, 1);
	last_local_id = (last_local_id + 1) % LOCAL_ID;
	if (a == b) {
		/* One lane with both ends in this adapter: what we send to ourselves, we receive
		 * from the same lane. */
		end_a.rx = end_b.rx;
		end_a.peer_guard = NULL; /* only the driving thread accesses its own table */
		end_a.peer_reach = end_a.own_reach;
	} else {
		reach_peers_attach(b, at_b, a, at_a, &end_b, block);
	}
	reach_peers_attach(a, at_a, b, at_b, &end_a, block);
	if (a != b) {
		share_groups(a, b, at_b);
		share_groups(b, a, at_a);
	}
	return 0;
}

int peers_join_self(struct hdl_adapter *adapter)
{
	pthread_mutex_lock(&registry_lock);
	int result = peers_join(adapter, adapter);
	pthread_mutex_unlock(&registry_lock);
	return result;
}

int hdl_join(struct hdl_adapter *a, struct hdl_adapter *b)
{
	if (a == NULL || b == NULL || a == b || a->magic != MAGIC_ADAPTER ||
	    b->magic != MAGIC_ADAPTER || a->agent.on_node || b->agent.on_node)
		return -HDL_EINVAL;
	int result;
	pthread_mutex_lock(&registry_lock);
	adapter_lock(a < b ? a : b);
	adapter_lock(a < b ? b : a);
	if (adapter_find_link(a, &b->engine.gid, 0) != LINK_NONE ||
	    adapter_find_link(b, &a->engine.gid, 0) != LINK_NONE)
		result = -HDL_EINVAL;
	else
		result = peers_join(a, b);
	adapter_unlock(a);
	adapter_unlock(b);
	pthread_mutex_unlock(&registry_lock);
	/* A thread that sleeps has not armed the new lane. */
	adapter_nudge(a);
	adapter_nudge(b);
	return result;
}

/* --- between processes --- */

/* Can we access the memory of @pid? The peer publishes the address and value of a word in its
 * memory, and the value differs between processes. If we read that value, @pid is not some other
 * process that has this number in our PID namespace. */
static bool can_reach(pid_t pid, const struct tables_header *header)
{
	if (pid == 0) {
		errno = ESRCH;
		return false;
	}
	if (settings_copy_by_lane()) {
		errno = EPERM;
		return false;
	}
	uint64_t value = 0;
	struct iovec here = {&value, sizeof(value)};
	struct iovec there = {(void *)(uintptr_t)header->probe_addr, sizeof(value)};
	return process_vm_readv(pid, &here, 1, &there, 1, 0) == sizeof(value) &&
	       value == header->probe_value;
}

/* Map the lanes that the agent created, or NULL. */
static void *map_lanes(int fd)
{
	if (!memfile_is_sealed(fd, lanes_bytes()))
		return NULL;
	void *block = mmap(NULL, lanes_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return block == MAP_FAILED ? NULL : block;
}

static void unmap_peer(struct hdl_adapter *adapter, struct peer *peer)
{
	if (peer->pidfd >= 0) {
		epoll_ctl(adapter->drive.epoll, EPOLL_CTL_DEL, peer->pidfd, NULL);
		fd_close(peer->pidfd);
	}
	if (peer->bell >= 0)
		fd_close(peer->bell);
	if (peer->traces)
		tracer_forbid();
	reach_end(peer->reach);
	tables_unmap(&peer->tables);
	if (peer->block != NULL)
		munmap(peer->block, lanes_bytes());
	*peer = (struct peer){.pidfd = -1};
}

/* RFC 4291 appendix A. */
struct hdl_gid peers_link_local(uint64_t guid)
{
	struct hdl_gid gid = {{0xfe, 0x80}};
	for (int i = 0; i < 8; i++)
		gid.raw[8 + i] = (uint8_t)(guid >> (56 - 8 * i));
	gid.raw[8] ^= 2;
	return gid;
}

/* Let @peer access our memory, and find out whether we can access its memory. We need its number in
 * our PID namespace; the number that the agent reports is valid in the agent's PID namespace. If
 * there is nothing better, that number is tried, and used if it proves to be right. */
static bool find_process(struct peer *peer, const struct lanes_end *end, pid_t told)
{
	peer->pid = peer->pidfd >= 0 ? pidfd_number(peer->pidfd) : told;
	bool restricted = peer->pid != 0 && tracer_allow(peer->pid);
	peer->traces = peer->pid != 0;
	atomic_store_explicit(end->own_reach, LANES_REACH_TRIES, memory_order_release);
	bool reaches = can_reach(peer->pid, peer->tables.header);
	/* The peer may not have allowed us yet. */
	for (unsigned tries = 0; tries < READY_TRIES && !reaches && restricted && errno == EPERM &&
	                         !settings_copy_by_lane();
	     tries++) {
		bool ready = atomic_load_explicit(end->peer_reach, memory_order_acquire) !=
		             LANES_REACH_UNKNOWN;
		if (!ready)
			usleep(READY_LOOK_US);
		reaches = can_reach(peer->pid, peer->tables.header);
		if (ready)
			break;
	}
	if (!reaches)
		log_info("process %d: cannot access its memory (%s); data goes through shared "
		         "memory in two copies",
		         (int)peer->pid,
		         peer->pid == 0 ? "it is in another PID namespace" : strerror(errno));
	atomic_store_explicit(end->own_reach, reaches ? LANES_REACH_YES : LANES_REACH_NO,
	                      memory_order_relaxed);
	if (!reaches && peer->pidfd < 0)
		peer->pid = 0;
	return reaches;
}

/* Take over what came with @msg. Returns 0 or an error; @peer owns what was taken in either
 * case. */
static int take_peer(struct peer *peer, const struct agent_msg *msg, int fds[3],
                     struct lanes_end *end)
{
	int result = tables_map(&peer->tables, fds[0], &msg->u.peer.sizes);
	if (result == 0 &&
	    (peer->bell < 0 || msg->u.peer.side > 1 || (peer->block = map_lanes(fds[1])) == NULL))
		result = -HDL_EINVAL;
	close(fds[0]);
	close(fds[1]);
	if (result != 0)
		return result;
	lanes_attach(end, peer->block, (int)msg->u.peer.side);
	peer->guard = end->peer_guard;
	if (peer->pidfd >= 0 && pidfd_ended(peer->pidfd))
		return -HDL_EHOSTUNREACH;
	bool reaches = find_process(peer, end, msg->u.peer.pid);
	peer->reach = reach_make(peer->pid, peer->pidfd, peer->tables.segments, reaches);
	if (peer->reach == NULL)
		return -HDL_ENOMEM;
	reach_prefer(peer->reach, (pid_t)atomic_load_explicit(&peer->tables.header->thread,
	                                                      memory_order_relaxed));
	return 0;
}

int peers_attach(struct hdl_adapter *adapter, const struct agent_msg *msg, int fds[3], int pidfd)
{
	struct peer peer = {
	        .bell = bell_take(fds[2]), .slot = msg->u.peer.slot, .pidfd = fd_aside(pidfd)};
	struct lanes_end end;
	memcpy(&peer.node_guid, msg->u.peer.node_guid, 8);
	peer.managed = msg->u.peer.managed != 0;
	int result = take_peer(&peer, msg, fds, &end);
	adapter_lock(adapter);
	uint32_t index = new_link(adapter);
	if (result == 0 && index == LINK_NONE)
		result = -HDL_ENOMEM;
	if (result != 0) {
		adapter_unlock(adapter);
		unmap_peer(adapter, &peer);
		return result;
	}
	const struct tables *tables = &peer.tables;
	struct link link = {
	        .tx = end.tx,
	        .rx = end.rx,
	        .peer_table = {.slots = tables->slots,
	                       .arena = tables->arena,
	                       .capacity = tables->sizes.table_entries + 1,
	                       .arena_words = tables->sizes.arena_words,
	                       .mul = (uint32_t)tables->header->key_mul,
	                       .tag_bits = tpt_tag_bits(tables->sizes.table_entries + 1)},
	        .peer_qps = tables->qps,
	        .peer_qp_mask = (1u << tables->sizes.qp_bits) - 1,
	        .id = msg->u.peer.link_id,
	        .guard = end.own_guard,
	        .memory = process_memory(peer.reach, adapter->peers.by_target),
	        .peer_reach = end.peer_reach,
	        .gid = peers_link_local(peer.node_guid),
	};
	link.tx.unfenced = adapter->drive.barrier && tables->header->barrier == 1;
	struct epoll_event interest = {.events = EPOLLIN, .data.u64 = EPOLL_PEER + index};
	if (peer.pidfd >= 0)
		epoll_ctl(adapter->drive.epoll, EPOLL_CTL_ADD, peer.pidfd, &interest);
	put_link(adapter, index, &link, &peer);
	adapter_arm(adapter);
	group_met(adapter, index);
	adapter_unlock(adapter);
	return 0;
}

void peers_doubt(struct hdl_adapter *adapter, uint64_t guid)
{
	for (uint32_t i = 0; i < adapter->peers.alias_count; i++)
		if (guid == 0 || adapter->peers.aliases[i].node_guid == guid)
			adapter->peers.aliases[i].doubtful = true;
}

void peers_drop(struct hdl_adapter *adapter, uint32_t index)
{
	struct peer *peer = &adapter->peers.list[index];
	if (!peer->used || peer->adapter != NULL)
		return;
	/* It may have been the last process of its node. */
	peers_doubt(adapter, peer->node_guid);
	engine_link_down(&adapter->engine, index);
	unmap_peer(adapter, peer);
}

void peers_died(struct hdl_adapter *adapter, uint32_t index)
{
	adapter_lock(adapter);
	const struct peer *peer = &adapter->peers.list[index];
	uint64_t guid = peer->node_guid;
	uint32_t slot = peer->slot;
	bool known = peer->used && peer->adapter == NULL;
	peers_drop(adapter, index);
	adapter_unlock(adapter);
	/* An agent in the same container may have died with it, so it cannot tell us. */
	if (known)
		cm_died(adapter, guid, slot);
}

/* --- leaving --- */

void peers_leave(struct hdl_adapter *adapter)
{
	pthread_mutex_lock(&registry_lock);
	for (uint32_t i = 0; i < adapter->engine.link_count; i++) {
		struct peer *peer = &adapter->peers.list[i];
		if (!peer->used)
			continue;
		if (peer->adapter == NULL) {
			adapter_lock(adapter);
			adapter_quiesce(adapter);
			peers_drop(adapter, i);
			adapter_unlock(adapter);
			continue;
		}
		struct hdl_adapter *other = peer->adapter;
		if (other != adapter) {
			adapter_lock(other);
			engine_link_down(&other->engine, peer->link);
			other->peers.list[peer->link] = (struct peer){.pidfd = -1};
			adapter_unlock(other);
		}
		free(peer->block);
		*peer = (struct peer){.pidfd = -1};
	}
	pthread_mutex_unlock(&registry_lock);
}
