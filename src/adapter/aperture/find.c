/* Which process of this machine has a port, and how it is reached: through a lane if it is here,
 * over UDP otherwise. The node agent forwards one question to the process that holds the port,
 * which answers with its name; the answer is remembered until the agent changes. */
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/aperture/cluster.h"

enum find_kind { FIND_WHO = 1, FIND_HERE };

struct find_message {
	uint32_t kind, token;
};

static bool find_answered(void *object)
{
	const struct apertures *apertures = object;
	return apertures->find_answered == apertures->find_token;
}

static struct aperture_found *find_known(struct apertures *apertures, const struct hdl_gid *host,
                                         uint16_t port)
{
	uint32_t number = atomic_load(&apertures->adapter->agent.number);
	for (unsigned i = 0; i < APERTURE_FOUND; i++) {
		struct aperture_found *found = &apertures->found[i];
		if (found->port == port && found->agent_number == number &&
		    memcmp(&found->gid, host, sizeof(*host)) == 0)
			return found;
	}
	return NULL;
}

static void find_send(struct hdl_adapter *adapter, const struct hdl_cm_msg *to,
                      const struct find_message *message)
{
	struct hdl_cm_msg msg = *to;
	msg.space = APERTURE_SPACE;
	msg.length = sizeof(*message);
	memcpy(msg.data, message, sizeof(*message));
	(void)hdl_cm_send(adapter, &msg);
}

bool apertures_hear(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg)
{
	struct apertures *apertures = adapter->apertures;
	struct find_message message;
	bool ours = (msg->kind == HDL_CM_MESSAGE || msg->kind == HDL_CM_RETURNED) &&
	            msg->space == APERTURE_SPACE;
	if (!ours || msg->length != sizeof(message) || apertures == NULL)
		return ours;
	memcpy(&message, msg->data, sizeof(message));
	if (msg->kind == HDL_CM_MESSAGE && message.kind == FIND_WHO) {
		struct hdl_cm_msg to = {.guid = msg->guid, .slot = msg->slot};
		struct find_message here = {.kind = FIND_HERE, .token = message.token};
		find_send(adapter, &to, &here);
		return true;
	}
	adapter_lock(adapter);
	if (message.token == apertures->find_token && apertures->find_answered != message.token) {
		apertures->find_result = msg->kind == HDL_CM_RETURNED ? msg->error : 0;
		if (apertures->find_result > 0)
			apertures->find_result = -apertures->find_result;
		apertures->find_answer.guid = msg->guid;
		apertures->find_answer.slot = msg->slot;
		apertures->find_answered = message.token;
	}
	adapter_unlock(adapter);
	return true;
}

/* Ask the agent. Returns 0 and *out; -HDL_ECONNREFUSED the node is here and nobody has the port;
 * -HDL_EHOSTUNREACH no node of this machine has the address. */
static int find_ask(struct apertures *apertures, const struct hdl_gid *host, uint16_t port,
                    struct aperture_found *out)
{
	struct hdl_adapter *adapter = apertures->adapter;
	struct hdl_cm_msg to = {.gid = *host, .port = port, .to_port = 1};
	uint32_t number = atomic_load(&adapter->agent.number);
	pthread_mutex_lock(&apertures->find_lock);
	adapter_lock(adapter);
	struct find_message who = {.kind = FIND_WHO, .token = ++apertures->find_token};
	apertures->find_answered = who.token - 1;
	adapter_unlock(adapter);
	find_send(adapter, &to, &who);
	int result = apertures_wait(adapter, find_answered, apertures,
	                            clock_now_ns() + APERTURE_FIND_NS);
	adapter_lock(adapter);
	if (result == 0)
		result = apertures->find_result;
	else if (result == -HDL_EAGAIN)
		result = -HDL_ETIMEDOUT;
	*out = apertures->find_answer;
	out->gid = *host;
	out->port = port;
	out->agent_number = number;
	if (result == 0)
		apertures->found[apertures->found_next++ % APERTURE_FOUND] = *out;
	adapter_unlock(adapter);
	pthread_mutex_unlock(&apertures->find_lock);
	return result;
}

/* The link to the process that has the port. */
static int find_link(struct apertures *apertures, const struct aperture_found *found,
                     struct ap_path *path)
{
	struct hdl_adapter *adapter = apertures->adapter;
	uint32_t qpn = found->slot << adapter->objects.qp_bits;
	for (unsigned again = 0; again < 2; again++) {
		adapter_lock(adapter);
		uint32_t link = found->guid == adapter->guid && found->slot == adapter->slot
		                        ? adapter_find_link(adapter, &adapter->engine.gid, qpn)
		                        : peers_by_process(adapter, found->guid, found->slot);
		if (link != LINK_NONE && adapter->peers.links[link].up)
			*path = apertures_lane_path(adapter, link);
		else
			link = LINK_NONE;
		adapter_unlock(adapter);
		if (link != LINK_NONE)
			return 0;
		int result = again == 0 ? agent_reach(adapter, &found->gid, qpn) : 0;
		if (result != 0)
			return result;
	}
	return -HDL_EHOSTUNREACH;
}

/* Is @host 127.0.0.1 or ::1, which names our own node where it names no other? Not if its user gave
 * our node an address in 127.0.0.0/8: then 127.0.0.1 may be that of another. */
static bool find_is_us(struct hdl_adapter *adapter, const struct hdl_gid *host, struct hdl_gid *own)
{
	static const struct hdl_gid loopbacks[] = {
	        {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}}, {{[15] = 1}}};
	if (memcmp(host, &loopbacks[0], sizeof(*host)) != 0 &&
	    memcmp(host, &loopbacks[1], sizeof(*host)) != 0)
		return false;
	adapter_lock(adapter);
	const struct udp_address *wire = adapter->net.addresses;
	bool is_us =
	        adapter->net.address_count > 0 &&
	        (wire->frames || !udp_address_is_loopback(wire) || agent_lid_at(wire->gid) != 0);
	*own = adapter->gids[0];
	adapter_unlock(adapter);
	return is_us;
}

static int find_host(struct hdl_adapter *adapter, const struct hdl_gid *host, uint16_t port,
                     struct ap_path *path)
{
	struct apertures *apertures = adapter->apertures;
	struct aperture_found found;
	if (!adapter->agent.on_node) { /* adapters of one process that were joined */
		adapter_lock(adapter);
		uint32_t link = adapter_find_link(adapter, host, 0);
		if (link != LINK_NONE)
			*path = apertures_lane_path(adapter, link);
		adapter_unlock(adapter);
		return link != LINK_NONE ? 0 : -HDL_EHOSTUNREACH;
	}
	bool lanes = !wire_only(adapter);
	adapter_lock(adapter);
	const struct aperture_found *known = find_known(apertures, host, port);
	bool is_known = known != NULL;
	if (is_known)
		found = *known;
	adapter_unlock(adapter);
	int result = !lanes     ? -HDL_EHOSTUNREACH
	             : is_known ? 0
	                        : find_ask(apertures, host, port, &found);
	if (result == 0)
		result = find_link(apertures, &found, path);
	if (result != -HDL_EHOSTUNREACH)
		return result;
	struct hdl_gid own;
	if (find_is_us(adapter, host, &own))
		return find_host(adapter, &own, port, path);
	adapter_lock(adapter);
	bool lost = apertures->trust == HDL_TRUST_NONE && apertures->forward.sock < 0;
	adapter_unlock(adapter);
	if (lost) /* the forwarder was killed, or could not be started */
		(void)apertures_open_udp(apertures);
	adapter_lock(adapter);
	bool reached = apertures_udp_path(apertures, host, path);
	adapter_unlock(adapter);
	return reached ? 0 : -HDL_EHOSTUNREACH;
}

/* --- cluster addresses --- */

void apertures_mark_cluster(const struct apertures *apertures, struct ap_path *path)
{
	const struct cluster *cluster = apertures->adapter->cluster;
	if (__builtin_expect(cluster == NULL, 1))
		return;
	path->cluster = cluster_of(cluster, path->host);
	path->cluster_known = true;
}

int apertures_find(struct hdl_adapter *adapter, const struct hdl_gid *host, uint16_t port,
                   struct ap_path *path)
{
	uint16_t address = agent_lid_of(host->raw);
	struct hdl_gid listed;
	if (address == 0)
		return find_host(adapter, host, port, path);
	bool is_listed =
	        adapter->cluster != NULL && cluster_find(adapter->cluster, address, listed.raw);
	uint16_t lid;
	if (!is_listed && adapter->agent.on_node && hdl_node_find(adapter, host, &lid) != 0)
		return -HDL_EHOSTUNREACH; /* a LID that no node of this machine has */
	if (!is_listed)
		agent_locate(adapter, host);
	int result = find_host(adapter, is_listed ? &listed : host, port, path);
	if (result != 0)
		return result;
	path->cluster = address;
	path->by_cluster = true;
	return 0;
}

int hdl_aperture_cluster(struct hdl_adapter *adapter, uint16_t address, struct hdl_gid *gid)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || gid == NULL)
		return -HDL_EINVAL;
	const struct apertures *apertures = address == 0 ? apertures_begin(adapter) : NULL;
	if (address == 0 && apertures == NULL)
		return -HDL_ENOMEM;
	if (address == 0)
		address = apertures->node.lid;
	if (address == 0)
		return -HDL_ENOTSUP;
	agent_lid_address(address, gid->raw);
	return 0;
}
