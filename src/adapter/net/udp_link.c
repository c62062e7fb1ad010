/* The adapter's side of its UDP wires: which ones the user wants, the sockets that the agent hands
 * out, and which thread polls them when. Like a lane, a socket wakes the adapter's thread once
 * after it was armed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/net/udp.h"
#include "base/log.h"
#include "port/bell.h"
#include "transport/ib/ib.h"

int udp_choose(struct hdl_adapter *adapter)
{
	const char *address = secure_getenv("HEDDLE_ADDR");
	adapter->wire_wanted = AGENT_WIRE_NONE;
	if (address != NULL && address[0] != '\0') {
		adapter->wire_count = udp_addresses_parse(address, adapter->wire_addresses);
		if (adapter->wire_count == 0) {
			log_error(
			        "HEDDLE_ADDR: '%s' is not a host address; give an address of this "
			        "machine, such as 192.0.2.1, 2001:db8::1 or fe80::1%%eth0, or "
			        "two separated by a comma (\"ip address\" lists them)",
			        address);
			return -HDL_EINVAL;
		}
		adapter->wire_wanted = AGENT_WIRE_ADDRESS;
	} else if (settings_local_off()) {
		adapter->wire_wanted = AGENT_WIRE_LOOPBACK;
	}
	return 0;
}

void udp_ask(const struct hdl_adapter *adapter, struct agent_msg *hello)
{
	/* From a new agent we request the old address, no matter how it was chosen. */
	hello->u.hello.wire = adapter->udp != NULL ? AGENT_WIRE_ADDRESS : adapter->wire_wanted;
	hello->u.hello.wire_count = adapter->wire_count;
	memcpy(hello->u.hello.wires, adapter->wire_addresses, sizeof(adapter->wire_addresses));
}

static void udp_link_take(void *context, const struct path *came, bool congested,
                          const struct ib_packet *packet)
{
	struct hdl_adapter *adapter = context;
	ib_take(&adapter->engine, came, congested, packet);
}

/* Takes over @sock. NULL: an error that has already been logged. */
static struct udp_wire *new_wire(struct hdl_adapter *adapter, const struct udp_address *address,
                                 int sock, uint32_t mtu)
{
	struct udp_wire *wire = malloc(sizeof(*wire));
	int result = wire != NULL ? udp_wire_begin(wire, address, sock, mtu) : -ENOMEM;
	if (result != 0) {
		char text[UDP_ADDRESS_TEXT];
		udp_address_print(address, text);
		log_error("cannot send packets from %s: %s; is \"ulimit -n\" high enough?", text,
		          strerror(-result));
		if (wire == NULL)
			close(sock);
		free(wire);
		return NULL;
	}
	wire->slot_shift = adapter->qp_bits;
	wire->slot = adapter->slot;
	wire->take = udp_link_take;
	wire->take_context = adapter;
	wire->bad = &adapter->engine.counters[ENGINE_BAD_PACKETS];
	return wire;
}

/* With the drive lock. */
static int begin(struct hdl_adapter *adapter, const struct agent_msg *welcome, const int *socks)
{
	struct udp_wire **end = &adapter->udp;
	int result = 0;
	for (uint32_t i = 0; i < adapter->wire_count; i++) {
		if (result != 0) {
			close(socks[i]);
			continue;
		}
		*end = new_wire(adapter, &adapter->wire_addresses[i], socks[i],
		                welcome->u.welcome.wire_mtu);
		if (*end == NULL)
			result = -HDL_EIO;
		else
			end = &(*end)->next;
	}
	if (result != 0) {
		udp_close(adapter);
		return result;
	}
	struct udp_wire *first = adapter->udp;
	memcpy(adapter->engine.wire_gid.raw, first->address.gid, 16);
	adapter->engine.carrier = udp_ports_carrier(first);
	adapter->wire_only = settings_local_off();
	/* Members on this machine are reached without the wire, unless the same-host path is off.
	 * The loopback interface reaches no other machine. */
	udp_wire_loop(first, adapter->wire_only);
	adapter->engine.groups_on_wire =
	        !adapter->wire_only && !udp_address_is_loopback(&first->address);
	return 0;
}

/* Set whether packets to @wire, which has this @number, wake the thread. */
static int udp_link_watch(struct hdl_adapter *adapter, struct udp_wire *wire, uint64_t number,
                          bool arm)
{
	struct epoll_event interest = {.events = arm ? EPOLLIN | EPOLLONESHOT : EPOLLONESHOT,
	                               .data.u64 = EPOLL_WIRE + number};
	int how = wire->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	if (epoll_ctl(adapter->epoll, how, wire->sock, &interest) != 0)
		return -HDL_EIO;
	wire->watched = true;
	wire->armed = arm;
	return 0;
}

static void unwatch(struct hdl_adapter *adapter, struct udp_wire *wire)
{
	if (wire->watched)
		epoll_ctl(adapter->epoll, EPOLL_CTL_DEL, wire->sock, NULL);
	wire->watched = wire->armed = false;
}

/* An application thread that waits for packets (adapter_wait()) still holds the old sockets. As
 * long as it waits, the kernel keeps them open even if their descriptors are closed, and the port
 * would stay in use. Wake the thread so that it gets the new sockets. With the drive lock. */
static void wake_waiter(const struct hdl_adapter *adapter)
{
	if (adapter->bell_taken)
		bell_ring(adapter->rope);
}

/* A new agent handed out @socks: replace the sockets of our wires. Other programs of the node may
 * have asked the agent for more addresses in the meantime. */
static int replace(struct hdl_adapter *adapter, const struct agent_msg *welcome, const int *socks)
{
	uint32_t used = 0, count = welcome->u.welcome.wire_count;
	int result = 0;
	for (struct udp_wire *at = adapter->udp; at != NULL; at = at->next) {
		uint32_t i = 0;
		while (i < count && !udp_address_equal(&welcome->u.welcome.wires[i], &at->address))
			i++;
		unwatch(adapter, at);
		udp_wire_replace(at, i < count ? socks[i] : -1);
		used |= i < count ? 1u << i : 0;
		result = i < count ? result : -HDL_EIO;
	}
	for (uint32_t i = 0; i < count; i++)
		if (!(used >> i & 1))
			close(socks[i]);
	return result;
}

int udp_attach(struct hdl_adapter *adapter, const struct agent_msg *welcome, const int *socks)
{
	uint64_t number = 0;
	int result;
	if (welcome->u.welcome.wire_count == 0)
		return 0;
	adapter_lock(adapter);
	if (adapter->udp == NULL) {
		adapter->wire_count = welcome->u.welcome.wire_count;
		memcpy(adapter->wire_addresses, welcome->u.welcome.wires,
		       sizeof(adapter->wire_addresses));
		result = begin(adapter, welcome, socks);
	} else {
		result = replace(adapter, welcome, socks);
	}
	for (struct udp_wire *at = adapter->udp; at != NULL && result == 0; at = at->next)
		result = udp_link_watch(adapter, at, number++, true);
	wake_waiter(adapter);
	adapter_unlock(adapter);
	return result;
}

void udp_detach(struct hdl_adapter *adapter)
{
	if (adapter->udp == NULL)
		return;
	adapter_lock(adapter);
	for (struct udp_wire *at = adapter->udp; at != NULL; at = at->next) {
		unwatch(adapter, at);
		udp_wire_replace(at, -1);
	}
	wake_waiter(adapter);
	adapter_unlock(adapter);
}

void udp_arm(struct hdl_adapter *adapter, bool arm)
{
	uint64_t number = 0;
	for (struct udp_wire *at = adapter->udp; at != NULL; at = at->next, number++)
		if (at->armed != arm && at->sock >= 0)
			udp_link_watch(adapter, at, number, arm);
}

void udp_unwatch(struct hdl_adapter *adapter)
{
	for (struct udp_wire *at = adapter->udp; at != NULL; at = at->next)
		if (!at->armed)
			unwatch(adapter, at);
}

void udp_woke(struct hdl_adapter *adapter, uint64_t number)
{
	adapter_lock(adapter);
	struct udp_wire *at = adapter->udp;
	while (at != NULL && number-- > 0)
		at = at->next;
	if (at != NULL)
		at->armed = false;
	adapter_unlock(adapter);
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
		log_warn("cannot join a multicast group on the network: %s; only its members on "
		         "this "
		         "machine are reached",
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

void udp_descriptors(const struct hdl_adapter *adapter, int socks[UDP_MAX_ADDRESSES])
{
	const struct udp_wire *at = adapter->udp;
	for (unsigned i = 0; i < UDP_MAX_ADDRESSES; i++, at = at != NULL ? at->next : NULL)
		socks[i] = at != NULL ? at->sock : -1;
}

uint32_t udp_gids(const struct hdl_adapter *adapter)
{
	uint32_t bits = 0;
	for (const struct udp_wire *at = adapter->udp; at != NULL; at = at->next)
		for (uint32_t i = 0; i < adapter->gid_count; i++)
			if (memcmp(adapter->gids[i].raw, at->address.gid, 16) == 0)
				bits |= 1u << i;
	return bits;
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

void udp_close(struct hdl_adapter *adapter)
{
	if (adapter->udp == NULL)
		return;
	adapter->engine.carrier = NULL;
	adapter->engine.groups_on_wire = false;
	while (adapter->udp != NULL) {
		struct udp_wire *wire = adapter->udp;
		adapter->udp = wire->next;
		udp_wire_end(wire);
		free(wire);
	}
}
