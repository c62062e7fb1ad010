/* The ports of an adapter: their list, and how they wake its thread. See port.h. Like a lane, a
 * port wakes the thread once after it was armed. */
#include "adapter/net/port.h"

#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>

#include "adapter/adapter.h"
#include "port/bell.h"

void port_init(struct net_port *port, const struct net_port_ops *ops, int fd)
{
	*port = (struct net_port){.ops = ops, .fd = fd, .due_ns = UINT64_MAX};
}

/* --- waking threads --- */

/* An application thread that waits for packets (adapter_wait()) has the descriptors that the ports
 * showed when it began. As long as it waits, the kernel keeps a socket open even if its descriptor
 * is closed, and its UDP or TCP port stays in use. Let the thread wait for the new ones. */
static void wake_waiter(const struct hdl_adapter *adapter)
{
	if (adapter->drive.bell_holder == BELL_WAITER)
		bell_ring(adapter->drive.rope);
}

/* Set whether arrivals at @port wake the thread. Returns 0 or -errno. */
static int port_watch(struct net_port *port, bool arm)
{
	struct epoll_event interest = {.events = arm ? EPOLLIN | EPOLLONESHOT : EPOLLONESHOT,
	                               .data.u64 = EPOLL_PORT + port->number};
	int how = port->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	assert(port->fd >= 0);
	if (epoll_ctl(port->adapter->drive.epoll, how, port->fd, &interest) != 0)
		return -errno;
	port->watched = true;
	port->armed = arm;
	return 0;
}

static void port_unwatch(struct net_port *port)
{
	if (port->watched)
		epoll_ctl(port->adapter->drive.epoll, EPOLL_CTL_DEL, port->fd, NULL);
	port->watched = port->armed = false;
}

int port_show(struct net_port *port, int fd)
{
	port_unwatch(port);
	port->fd = fd;
	wake_waiter(port->adapter);
	return fd >= 0 ? port_watch(port, true) : 0;
}

int port_keep_awake(struct net_port *port, int fd)
{
	struct epoll_event interest = {.events = EPOLLIN, .data.u64 = EPOLL_HEAR + port->number};
	assert(port->ops->hear != NULL);
	return epoll_ctl(port->adapter->drive.epoll, EPOLL_CTL_ADD, fd, &interest) == 0 ? 0
	                                                                                : -errno;
}

void ports_arm(struct hdl_adapter *adapter, bool arm)
{
	for (uint32_t i = 0; i < adapter->net.port_count; i++) {
		struct net_port *port = adapter->net.ports[i];
		if (port->armed != arm && port->fd >= 0)
			port_watch(port, arm);
	}
}

void ports_unwatch(struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < adapter->net.port_count; i++)
		if (!adapter->net.ports[i]->armed)
			port_unwatch(adapter->net.ports[i]);
}

void port_woke(struct hdl_adapter *adapter, uint64_t number)
{
	adapter_lock(adapter);
	if (number < adapter->net.port_count) {
		adapter->net.ports[number]->armed = false;
		port_is_ready(adapter->net.ports[number]);
	}
	adapter_unlock(adapter);
}

void port_heard(struct hdl_adapter *adapter, uint64_t number)
{
	adapter_lock(adapter);
	if (number < adapter->net.port_count) {
		struct net_port *port = adapter->net.ports[number];
		port->received += port->ops->hear(port);
	}
	adapter_unlock(adapter);
}

/* --- the list --- */

int ports_add(struct hdl_adapter *adapter, struct net_port *port, const struct carrier *carrier)
{
	struct net *net = &adapter->net;
	/* A network of the environment (adapter_env.carrier) is the only one of its adapter. */
	assert(adapter->engine.carrier_count == net->port_count);
	assert((carrier != NULL && carrier->reserve != NULL) == (port->mtu > 0));
	if (net->port_count == ENGINE_MAX_PORTS)
		return -ENOSPC;
	port->adapter = adapter;
	port->number = (uint8_t)net->port_count;
	int result = port->fd >= 0 ? port_watch(port, true) : 0;
	if (result != 0)
		return result;
	net->ports[net->port_count++] = port;
	adapter->engine.carriers[adapter->engine.carrier_count++] = carrier;
	wake_waiter(adapter);
	return 0;
}

void ports_end(struct hdl_adapter *adapter)
{
	struct net *net = &adapter->net;
	while (net->port_count > 0) {
		struct net_port *port = net->ports[--net->port_count];
		adapter->engine.carriers[--adapter->engine.carrier_count] = NULL;
		port->ops->end(port);
	}
}
