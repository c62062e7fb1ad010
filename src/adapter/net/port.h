/* A port: one way from this adapter to a network, such as the UDP sockets of one address. An
 * adapter has a list of ports (struct net). Whatever drives the adapter, waits for it or closes it
 * goes through this interface and does not know what a port is made of.
 *
 * A port shows one descriptor at a time, which is readable when something has arrived. A port of
 * many sockets shows an epoll of its own, so its sockets may come and go. Descriptors that must
 * wake the adapter's thread whoever drives (members of groups, listening sockets) are registered
 * with port_keep_awake() instead.
 *
 *      every drive           port_look()       receive(), but rarely while nothing comes
 *      a thorough drive      port_receive()    receive()
 *      the thread sleeps     ports_arm()       the next arrival wakes it, once: port_woke()
 *      a program waits       port.fd           beside the bell (drive/wait.c)
 *      time passes           port_tick()       tick(), when due_ns has come
 *
 * A port that transmits packets has a carrier (transport/path.h) with the same number in the
 * engine. A function pointer may be NULL if its comment says so. Everything happens with the drive
 * lock, unless a comment says otherwise. */
#ifndef ADAPTER_PORT_H
#define ADAPTER_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include <heddle/types.h>

#include "transport/engine.h"

struct hdl_adapter;
struct net_port;

/* While nothing arrives, not every drive looks: each look is a system call. */
#define PORT_EAGER_LOOKS 1024u /* after this many empty looks: one look per ... */
#define PORT_SKIP        32u   /* drives, */
#define PORT_LAZY_LOOKS  8192u /* and after this many: one look per ... */
#define PORT_LONG_SKIP   256u

struct net_port_ops {
	const char *name; /* in words, for messages */
	/* Take what has arrived, at most one batch, after sending what blocked() reports. Returns
	 * the number of packets, or of what else an arrival is on this network. */
	unsigned (*receive)(struct net_port *port);
	/* Is there something to send that there was no room for? NULL: never. */
	bool (*blocked)(const struct net_port *port);
	/* A descriptor of port_keep_awake() is readable. Returns as receive(). NULL: there are
	 * none. */
	unsigned (*hear)(struct net_port *port);
	/* due_ns has come; set it anew. Returns how much was done. NULL: it is never set. */
	unsigned (*tick)(struct net_port *port, uint64_t now_ns);
	/* Receive packets to the multicast group @gid, or no longer. 0 or -errno. NULL: this
	 * network has no groups. */
	int (*join)(struct net_port *port, const uint8_t gid[16]);
	void (*leave)(struct net_port *port, const uint8_t gid[16]);
	/* Close all descriptors and free the port. Also called in a child of fork(): nothing may be
	 * sent. */
	void (*end)(struct net_port *port);
};

struct net_port {
	const struct net_port_ops *ops;
	struct hdl_adapter *adapter;
	uint8_t number;       /* in net.ports and engine.carriers */
	struct hdl_gid gid;   /* its address, one of ours */
	uint32_t mtu;         /* the largest payload of a packet in bytes; 0: it carries none */
	bool cells;           /* its packets are cells */
	bool frames;          /* its packets are Ethernet frames */
	int fd;               /* -1: none at the moment. Changes only by port_show() */
	bool watched;         /* fd is in the thread's epoll, */
	bool armed;           /* and wakes the thread */
	bool woke;            /* fd was readable; receive() clears it */
	uint64_t due_ns;      /* when to call tick(); UINT64_MAX: never */
	uint64_t received;    /* what receive() and hear() have returned so far */
	unsigned empty_looks; /* in a row that found nothing */
	unsigned skip;        /* drives left that do not look */
};

/* Receive at most one batch. Returns what receive() does. */
static inline unsigned port_receive(struct net_port *port)
{
	unsigned count = port->ops->receive(port);
	port->received += count;
	port->empty_looks = count > 0 ? 0 : port->empty_looks + 1;
	if (port->empty_looks > PORT_EAGER_LOOKS)
		port->skip = port->empty_looks > PORT_LAZY_LOOKS ? PORT_LONG_SKIP : PORT_SKIP;
	return count;
}
/* Receive, unless nothing has come for a while. */
static inline unsigned port_look(struct net_port *port)
{
	if (port->skip > 0) {
		port->skip--;
		return 0;
	}
	return port_receive(port);
}
static inline bool port_blocked(const struct net_port *port)
{
	return port->ops->blocked != NULL && port->ops->blocked(port);
}
static inline unsigned port_tick(struct net_port *port, uint64_t now_ns)
{
	return now_ns >= port->due_ns ? port->ops->tick(port, now_ns) : 0;
}

/* A thread saw that the port's descriptor is readable. */
static inline void port_is_ready(struct net_port *port)
{
	port->skip = 0;
	port->woke = true;
}

/* Prepare a port that shows @fd; the port is not in any list yet. */
void port_init(struct net_port *port, const struct net_port_ops *ops, int fd);
/* Show @fd from now on (-1: none), which wakes the thread. The port closes the former descriptor
 * after that, not before. A thread that waits for the former one is woken. Returns 0 or -errno. */
int port_show(struct net_port *port, int fd);
/* Let @fd wake the thread whenever it is readable, whoever drives: hear() is called. Closing @fd
 * ends it. Returns 0 or -errno. */
int port_keep_awake(struct net_port *port, int fd);

/* --- the ports of an adapter --- */
/* Add @port to the list. @carrier: what transmits its packets; NULL, or without reserve(): it
 * carries none. The port is the adapter's from now on. Returns 0; -ENOSPC, there are
 * ENGINE_MAX_PORTS already, or another -errno: nothing has happened. */
int ports_add(struct hdl_adapter *adapter, struct net_port *port, const struct carrier *carrier);
/* End all ports. */
void ports_end(struct hdl_adapter *adapter);
/* Set whether the next arrival wakes the thread. */
void ports_arm(struct hdl_adapter *adapter, bool arm);
/* Ports are being polled. Remove descriptors that do not wake the thread from its epoll, so that
 * arrivals do not cost an epoll lookup each. */
void ports_unwatch(struct hdl_adapter *adapter);
/* The descriptor of port @number has woken the thread, which it does once; or a descriptor that
 * always does is readable. Called without a lock. */
void port_woke(struct hdl_adapter *adapter, uint64_t number);
void port_heard(struct hdl_adapter *adapter, uint64_t number);

#endif
