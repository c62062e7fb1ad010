/* The control blocks of apertures (heddle/control.h), and what an application sets by them or by
 * calls: destinations, and less memory than all. See aperture.h.
 *
 *      memory file     | struct hdl_aperture_fixed, one per row |
 *                         ^ read-only view          ^ alias
 *      handed out --------'                          '---- struct ap_node: the adapter writes here
 *
 *      private memory  | struct hdl_aperture_user, one per row |
 *                         ^ handed out, and loaded by struct ap_node
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/aperture/cluster.h"
#include "base/log.h"
#include "base/mac.h"
#include "base/memfile.h"

/* --- pages --- */

static void *control_map(struct apertures *apertures, enum aperture_block which, int fd, int rights)
{
	size_t bytes = apertures->block_bytes[which];
	void *block = mmap(NULL, bytes, rights, MAP_SHARED, fd, 0);
	apertures->blocks[which] = block != MAP_FAILED ? block : NULL;
	if (block != MAP_FAILED) /* what a child of fork() stored would be stored in its parent */
		madvise(block, bytes, MADV_DONTFORK);
	return apertures->blocks[which];
}

static void control_unmap(struct apertures *apertures, enum aperture_block which)
{
	if (apertures->blocks[which] != NULL)
		munmap(apertures->blocks[which], apertures->block_bytes[which]);
	apertures->blocks[which] = NULL;
}

/* The rows, twice. False: that is not possible here. */
static bool control_map_rows(struct apertures *apertures, size_t bytes)
{
	int fd = memfile_make("heddle-apertures", bytes);
	if (fd < 0)
		return false;
	apertures->block_bytes[APERTURE_ROWS] = apertures->block_bytes[APERTURE_VIEW] = bytes;
	bool mapped = control_map(apertures, APERTURE_ROWS, fd, PROT_READ | PROT_WRITE) != NULL &&
	              control_map(apertures, APERTURE_VIEW, fd, PROT_READ) != NULL;
	close(fd);
	if (!mapped) {
		control_unmap(apertures, APERTURE_ROWS);
		control_unmap(apertures, APERTURE_VIEW);
	}
	return mapped;
}

bool apertures_make_control(struct apertures *apertures, uint32_t count)
{
	size_t bytes = count * sizeof(struct hdl_aperture_fixed);
	void *users =
	        aperture_block(apertures, APERTURE_USERS, count * sizeof(struct hdl_aperture_user));
	if (users == NULL)
		return false;
	madvise(users, apertures->block_bytes[APERTURE_USERS], MADV_DONTFORK);
	if (control_map_rows(apertures, bytes)) {
		apertures->view = apertures->blocks[APERTURE_VIEW];
		return true;
	}
	log_debug("the rows of apertures are not protected from the application: no memory file");
	apertures->view = aperture_block(apertures, APERTURE_ROWS, bytes);
	return apertures->view != NULL;
}

int hdl_aperture_control(struct hdl_aperture *aperture, struct hdl_aperture_user **user,
                         const struct hdl_aperture_fixed **fixed)
{
	if (!is_aperture(aperture))
		return -HDL_EINVAL;
	const struct apertures *apertures = aperture->adapter->apertures;
	bool trusted = apertures->trust >= HDL_TRUST_USER;
	if (fixed != NULL)
		*fixed = &apertures->view[aperture->conn.row];
	if (user != NULL) {
		*user = trusted ? aperture->conn.user : NULL;
		if (trusted)
			aperture_watch_control(aperture);
	}
	return user == NULL || trusted ? 0 : -HDL_EACCES;
}

/* --- destinations --- */

const struct udp_address *aperture_frames(const struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < adapter->net.address_count; i++)
		if (adapter->net.addresses[i].frames)
			return &adapter->net.addresses[i];
	return NULL;
}

int hdl_aperture_own(const struct hdl_aperture *aperture, struct hdl_aperture_target *target)
{
	if (!is_aperture(aperture) || target == NULL || aperture->length == 0)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	const struct ap_conn *conn = &aperture->conn;
	if (adapter->apertures->trust < HDL_TRUST_USER)
		return -HDL_EACCES;
	adapter_lock(adapter);
	*target = (struct hdl_aperture_target){.host = adapter->engine.gid,
	                                       .lid = conn->node->lid,
	                                       .index = conn->own.index,
	                                       .nonce = incoming_nonce(conn->user),
	                                       .sequence = conn->in->expected,
	                                       .bits = conn->own.bits,
	                                       .checks = conn->own.checks,
	                                       .nonce_step = conn->own.nonce_step,
	                                       .nonce_every = conn->own.nonce_every,
	                                       .first = conn->own.first,
	                                       .length = conn->own.length};
	const struct udp_address *frames = aperture_frames(adapter);
	if (frames != NULL)
		(void)mac_from_gid(frames->gid, target->link);
	adapter_unlock(adapter);
	return 0;
}

/* A path to the process that has the slot of @index at @host. */
static bool aperture_path_to(struct apertures *apertures, const struct hdl_gid *host,
                             uint32_t index, struct ap_path *path)
{
	struct hdl_adapter *adapter = apertures->adapter;
	uint32_t qpn = adapter->agent.on_node ? ci_slot(index) << adapter->objects.qp_bits : 0;
	uint32_t link = adapter_find_link(adapter, host, qpn);
	if (link != LINK_NONE && adapter->peers.links[link].up) {
		*path = apertures_lane_path(adapter, link);
		return true;
	}
	return apertures_udp_path(apertures, host, path);
}

/* Point the outgoing side at @target, which nobody changes meanwhile. Returns 0 or an error. */
static int aperture_point_at(struct hdl_aperture *aperture,
                             const struct hdl_aperture_target *target)
{
	struct hdl_adapter *adapter = aperture->adapter;
	struct apertures *apertures = adapter->apertures;
	struct hdl_gid host = target->host;
	struct ap_path path;
	if (apertures->trust < HDL_TRUST_USER)
		return -HDL_EACCES;
	if (aperture->is_ip) {
		memcpy(aperture->ip_peer.gid, target->host.raw, 16);
		aperture->ip_port = (uint16_t)target->index;
		return 0;
	}
	uint16_t address = agent_lid_of(host.raw);
	if (address != 0 && adapter->cluster != NULL)
		(void)cluster_find(adapter->cluster, address, host.raw);
	if (!mac_is_clear(target->link) && aperture_frames(adapter) != NULL)
		mac_to_gid(target->link, host.raw);
	if (aperture->entry != NULL && target->bits != aperture->entry->bits)
		return -HDL_EINVAL;
	if (!aperture_path_to(apertures, &host, target->index, &path))
		return -HDL_EHOSTUNREACH;
	if (path.managed)
		return -HDL_EACCES; /* it has connections that its agent holds, and no others */
	path.by_cluster = address != 0;
	if (path.by_cluster)
		path.cluster = address;
	else if (!path.cluster_known)
		path.cluster = target->lid;
	const struct ci_offer offer = {.index = target->index,
	                               .nonce = target->nonce,
	                               .sequence = target->sequence,
	                               .bits = target->bits,
	                               .checks = target->checks,
	                               .nonce_every = target->nonce_every,
	                               .nonce_step = target->nonce_step,
	                               .first = (uint32_t)target->first,
	                               .length = (uint32_t)target->length};
	ap_point(&aperture->conn, &offer, &path);
	aperture_map_opened(aperture);
	return 0;
}

int hdl_aperture_point(struct hdl_aperture *aperture, const struct hdl_aperture_target *target)
{
	if (!is_aperture(aperture) || target == NULL)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	if (adapter->apertures->trust < HDL_TRUST_USER)
		return -HDL_EACCES;
	adapter_lock(adapter);
	aperture_follow(aperture);
	(void)aperture_collect(aperture);
	apertures_run(adapter->apertures); /* what was stored goes to the former peer */
	int result = aperture_point_at(aperture, target);
	apertures_run(adapter->apertures);
	adapter_unlock(adapter);
	return result;
}

void aperture_redirect(struct hdl_aperture *aperture)
{
	struct ap_conn *conn = &aperture->conn;
	if (!aperture_is_redirected(aperture))
		return;
	uint32_t generation = __atomic_load_n(&conn->user->generation, __ATOMIC_ACQUIRE);
	/* What is judged is what is used, whatever the application stores meanwhile. */
	struct hdl_aperture_target target = conn->user->target;
	atomic_signal_fence(memory_order_seq_cst);
	conn->node->now_ns = clock_read(&aperture->adapter->clock);
	int result = aperture_point_at(aperture, &target);
	if (result != 0) {
		/* Not to the former peer: what follows was not meant for it. */
		ap_close(conn, true);
		ap_report(conn, CI_SENDER,
		          result == -HDL_EHOSTUNREACH ? HDL_REASON_CARRIER
		          : result == -HDL_EINVAL     ? HDL_REASON_SIZE
		                                      : HDL_REASON_ACCESS);
	}
	__atomic_store_n(&conn->in->generation, generation, __ATOMIC_RELEASE);
}

void apertures_send(struct apertures *apertures)
{
	/* Redirecting one connection makes no other one active. */
	for (struct ap_conn *conn = apertures->node.active; conn != NULL;
	     conn = conn->active_next) {
		struct hdl_aperture *aperture = aperture_of(conn);
		if (__builtin_expect(ap_is_redirected(conn), 0))
			aperture_redirect(aperture);
		if (__builtin_expect(aperture->placed_again, 0))
			aperture->placed_again = !aperture->placed(aperture->placed_context);
	}
	(void)ap_run(&apertures->node);
}

int hdl_aperture_narrow(struct hdl_aperture *aperture, uint64_t offset, uint64_t length)
{
	if (!is_aperture(aperture) || offset > aperture->length ||
	    length > aperture->length - offset || length == 0)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	const struct tpt_region region = {.type = TPT_APERTURE,
	                                  .access = aperture->access,
	                                  .iova = offset,
	                                  .host = (uint64_t)(uintptr_t)aperture->memory + offset,
	                                  .length = length};
	adapter_lock(adapter);
	/* Peers that map the pages would not notice. */
	int result = aperture->published ? -HDL_ENOTSUP
	                                 : tpt_replace_run(&adapter->tpt, aperture->key, &region);
	if (result == 0) {
		aperture->conn.own.first = (uint32_t)offset;
		aperture->conn.own.length = (uint32_t)length;
		aperture->conn.in->first = offset;
		aperture->conn.in->granted = length;
		adapter_quiesce(adapter);
	}
	adapter_unlock(adapter);
	return result;
}
