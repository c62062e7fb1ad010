/* The adapter's side of a wire by UDP: which one the user wants, the socket that the agent hands out, and who looks at it
 * when. The socket wakes the adapter's thread under the same circumstances as a lane does: once, after it was armed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/udp.h"
#include "base/log.h"
#include "transport/ib.h"

static bool local_is_off(void)
{
	const char *local = getenv("HEDDLE_LOCAL");
	return local != NULL && strcmp(local, "off") == 0;
}

int udp_choose(struct hdl_adapter *adapter)
{
	const char *address = getenv("HEDDLE_ADDR");
	adapter->wire_wanted = AGENT_WIRE_NONE;
	if (address != NULL && address[0] != '\0') {
		if (!udp_address_parse(address, &adapter->wire_address)) {
			log_error("HEDDLE_ADDR: '%s' is no address of a host; give one of this "
			          "machine's, such as 192.0.2.1, 2001:db8::1 or fe80::1%%eth0 "
			          "(\"ip address\" lists them)",
			          address);
			return -HDL_EINVAL;
		}
		adapter->wire_wanted = AGENT_WIRE_ADDRESS;
	} else if (local_is_off()) {
		adapter->wire_wanted = AGENT_WIRE_LOOPBACK;
	}
	return 0;
}

void udp_ask(const struct hdl_adapter *adapter, struct agent_msg *hello)
{
	/* Of an agent that is new we want the old address, whatever it was made of. */
	hello->u.hello.wire = adapter->udp != NULL ? AGENT_WIRE_ADDRESS : adapter->wire_wanted;
	hello->u.hello.wire_scope = adapter->wire_address.scope;
	memcpy(hello->u.hello.wire_gid, adapter->wire_address.gid, 16);
}

static void take(void *context, const struct path *came, bool congested,
                 const struct ib_packet *packet)
{
	struct hdl_adapter *adapter = context;
	ib_take(&adapter->node, came, congested, packet);
}

static int begin(struct hdl_adapter *adapter, const struct agent_msg *welcome, int sock)
{
	struct udp_wire *wire = malloc(sizeof(*wire));
	if (wire == NULL) {
		close(sock);
		return -HDL_ENOMEM;
	}
	int result =
	        udp_wire_begin(wire, &adapter->wire_address, sock, welcome->u.welcome.wire_mtu);
	if (result != 0) {
		char text[UDP_ADDRESS_TEXT];
		udp_address_print(&adapter->wire_address, text);
		log_error("no packets can be sent from %s: %s; is \"ulimit -n\" high enough?", text,
		          strerror(-result));
		free(wire);
		return -HDL_EIO;
	}
	wire->slot_shift = adapter->qp_bits;
	wire->slot = adapter->slot;
	wire->take = take;
	wire->take_context = adapter;
	wire->bad = &adapter->node.counters[NODE_BAD_PACKETS];
	adapter->udp = wire;
	memcpy(adapter->node.wire_gid.raw, adapter->wire_address.gid, 16);
	adapter->node.carrier = &wire->carrier;
	adapter->wire_only = local_is_off();
	/* Members of this machine are reached without it, unless nobody is; and the loopback leads to no others. */
	udp_wire_loop(wire, adapter->wire_only);
	adapter->node.groups_on_wire =
	        !adapter->wire_only && !udp_address_is_loopback(&wire->address);
	return 0;
}

int udp_attach(struct hdl_adapter *adapter, const struct agent_msg *welcome, int sock)
{
	if (sock < 0)
		return 0;
	adapter->wire_address.scope = welcome->u.welcome.wire_scope;
	memcpy(adapter->wire_address.gid, welcome->u.welcome.wire_gid, 16);
	adapter_lock(adapter);
	int result = 0;
	if (adapter->udp == NULL)
		result = begin(adapter, welcome, sock);
	else
		udp_wire_replace(adapter->udp, sock);
	struct epoll_event interest = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = EPOLL_WIRE};
	adapter->wire_armed = result == 0;
	if (result == 0 && epoll_ctl(adapter->epoll, EPOLL_CTL_ADD, sock, &interest) != 0)
		result = -HDL_EIO;
	adapter_unlock(adapter);
	return result;
}

void udp_detach(struct hdl_adapter *adapter)
{
	if (adapter->udp == NULL)
		return;
	adapter_lock(adapter);
	if (adapter->udp->sock >= 0)
		epoll_ctl(adapter->epoll, EPOLL_CTL_DEL, adapter->udp->sock, NULL);
	udp_wire_replace(adapter->udp, -1);
	adapter_unlock(adapter);
}

void udp_arm(struct hdl_adapter *adapter, bool arm)
{
	struct epoll_event interest = {.events = arm ? EPOLLIN | EPOLLONESHOT : EPOLLONESHOT,
	                               .data.u64 = EPOLL_WIRE};
	if (adapter->udp == NULL || adapter->wire_armed == arm || adapter->udp->sock < 0)
		return;
	adapter->wire_armed =
	        epoll_ctl(adapter->epoll, EPOLL_CTL_MOD, adapter->udp->sock, &interest) == 0 ? arm
	                                                                                     : !arm;
}

void udp_join(struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	struct epoll_event interest = {.events = EPOLLIN, .data.u64 = EPOLL_GROUPS};
	adapter_lock(adapter);
	int sock = adapter->udp != NULL ? udp_wire_join(adapter->udp, gid->raw) : 0;
	if (sock > 0)
		epoll_ctl(adapter->epoll, EPOLL_CTL_ADD, sock, &interest);
	adapter_unlock(adapter);
	if (sock < 0)
		log_warn("a group cannot be joined on the wire: %s; its members of this machine "
		         "are reached",
		         strerror(-sock));
}

void udp_leave(struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	adapter_lock(adapter);
	if (adapter->udp != NULL)
		udp_wire_leave(adapter->udp, gid->raw);
	adapter_unlock(adapter);
}

void udp_hear_groups(struct hdl_adapter *adapter)
{
	adapter_lock(adapter);
	if (adapter->udp != NULL)
		udp_wire_receive_groups(adapter->udp);
	adapter_unlock(adapter);
}

int udp_descriptor(const struct hdl_adapter *adapter)
{
	return adapter->udp != NULL ? adapter->udp->sock : -1;
}

uint16_t udp_mtu(const struct hdl_adapter *adapter)
{
	return (uint16_t)(adapter->udp != NULL ? adapter->udp->mtu : IB_MAX_MTU_BYTES);
}

uint16_t udp_reach(const struct hdl_adapter *adapter)
{
	if (adapter->udp == NULL)
		return HDL_WIRE_NONE;
	return adapter->wire_only ? HDL_WIRE_ALL : HDL_WIRE_OTHERS;
}

void udp_let_go(struct hdl_adapter *adapter)
{
	if (adapter->udp == NULL)
		return;
	adapter->node.carrier = NULL;
	adapter->node.groups_on_wire = false;
	adapter->node.carrier = NULL;
	adapter->node.groups_on_wire = false;
	udp_wire_end(adapter->udp);
	free(adapter->udp);
	adapter->udp = NULL;
}
