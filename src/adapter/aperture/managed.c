/* Out-of-band packets through the node agent, where one of the two ends is not trusted; and the
 * numbers that the agent draws for the entries of a program that is not. See aperture.h and
 * transport/aperture/ap.h. */
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"

int aperture_ask_numbers(const struct hdl_aperture *aperture, struct aperture_numbers *numbers)
{
	struct hdl_adapter *adapter = aperture->adapter;
	*numbers = (struct aperture_numbers){.given = false};
	if (adapter->apertures->trust != HDL_TRUST_NONE)
		return 0;
	struct agent_msg msg = {.kind = AGENT_CI_ARM, .u.cm = {.slot = aperture->conn.row}};
	int result = agent_ask(adapter, &msg, &msg.u.cm.token);
	if (result != 0)
		return result == -HDL_EAGAIN ? -HDL_EHOSTUNREACH : result;
	*numbers = (struct aperture_numbers){
	        .given = true, .nonce = msg.u.cm.guid, .sequence = msg.u.cm.slot};
	return 0;
}

void aperture_forget_numbers(struct hdl_adapter *adapter, uint32_t row)
{
	struct agent_msg msg = {.kind = AGENT_CI_DISARM, .u.cm = {.slot = row}};
	if (adapter->apertures->trust == HDL_TRUST_NONE)
		(void)agent_tell(adapter, &msg);
}

void apertures_control_send(struct apertures *apertures, const struct ap_path *path,
                            const uint8_t *frame, size_t bytes)
{
	struct hdl_adapter *adapter = apertures->adapter;
	struct agent_msg msg = {.kind = AGENT_CI_CONTROL, .u.cm.length = (uint32_t)bytes};
	if (bytes > sizeof(msg.u.cm.data))
		return;
	if (path->route >= APERTURE_ROUTE_FORWARD) {
		msg.u.cm.options = 1;
		msg.u.cm.slot = path->route - APERTURE_ROUTE_FORWARD;
		memcpy(msg.u.cm.gid, path->host, sizeof(msg.u.cm.gid));
	} else {
		msg.u.cm.guid = adapter->peers.list[path->route].node_guid;
		msg.u.cm.slot = adapter->peers.list[path->route].slot;
	}
	memcpy(msg.u.cm.data, frame, bytes);
	(void)agent_tell_now(adapter, &msg); /* what gets lost is repeated */
}

void apertures_control(struct hdl_adapter *adapter, const struct agent_msg *msg)
{
	adapter_lock(adapter);
	struct apertures *apertures = adapter->apertures;
	bool remote = msg->u.cm.options != 0;
	uint32_t link =
	        remote ? LINK_NONE : peers_by_process(adapter, msg->u.cm.guid, msg->u.cm.slot);
	if (apertures != NULL && (remote || link != LINK_NONE) &&
	    msg->u.cm.length <= sizeof(msg->u.cm.data)) {
		struct ap_path from =
		        remote ? apertures_forward_path_of(apertures, msg->u.cm.slot, msg->u.cm.gid)
		               : apertures_lane_path(adapter, link);
		from.by_agent = true;
		apertures->node.now_ns = clock_read(&adapter->clock);
		apertures_take_in(apertures, msg->u.cm.data, msg->u.cm.length, &from);
		apertures_run(apertures);
	}
	adapter_unlock(adapter);
}

void apertures_agent_gone(struct hdl_adapter *adapter)
{
	adapter_lock(adapter);
	if (adapter->apertures != NULL) {
		adapter->apertures->node.now_ns = clock_read(&adapter->clock);
		ap_managed_down(&adapter->apertures->node);
		apertures_udp_drop(adapter->apertures);
	}
	adapter_unlock(adapter);
}
