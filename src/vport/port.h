/* A hardware port: one end of a link, and what carries its frames. */
#ifndef VPORT_PORT_H
#define VPORT_PORT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/link.h"
#include "fabric/topology.h"
#include "port/lanes.h"

struct vport;
struct port;

enum port_sent {
	PORT_SENT,
	PORT_FULL,    /* no room now */
	PORT_TOO_LONG /* for this link, at any time */
};

/* How a kind of link carries frames. */
struct port_kind {
	const char *name;
	/* Returns 0 or -errno; *why says what to do about it. */
	int (*open)(struct port *port, const char **why);
	void (*close)(struct port *port);
	/* Take what has come, with port_frame(). True: there was something. Called when a
	 * descriptor is readable, and all the time if there is an .arm. */
	bool (*hear)(struct port *port);
	/* @fd is readable, and carries no frames. NULL: all of them do. */
	void (*ready)(struct port *port, int fd);
	/* Send header and packet (or the header alone). */
	enum port_sent (*send)(struct port *port, const uint8_t header[LINK_HEADER_BYTES],
	                       const uint8_t *packet, size_t bytes);
	/* Called with every tick: connect again, and so on. May be NULL. */
	void (*tick)(struct port *port);
	/* Ask to be woken before sleeping. False: something has come. May be NULL. */
	bool (*arm)(struct port *port);
	void (*disarm)(struct port *port);
};

extern const struct port_kind port_udp, port_ethernet, port_memory;

struct port {
	struct vport *vport;
	unsigned number;
	struct vswitch_arrival arrival; /* the port of a NIC that its packets come through */
	const struct port_kind *kind;   /* NULL: no link is configured */
	const struct topology *topology;
	const struct topology_link *way;
	unsigned end; /* which end of it we are */
	struct link link;
	bool told_up; /* what the agent was told last */
	uint64_t in, in_bytes, out, out_bytes, dropped, bad_packets;
	int fd; /* to wait for; -1: none */

	/* Ethernet */
	int interface;
	uint8_t own_mac[6];

	/* Shared memory: end 0 listens, end 1 connects. */
	int listener, peer_bell;
	char path[128];
	void *block;
	struct lanes_end lanes;
};

/* vport.c: a frame has come to @port. */
void port_frame(struct port *port, uint8_t *frame, size_t bytes);
/* The bell of this process, to pass to the other end. */
int port_own_bell(const struct port *port);
/* Wait for @fd as well, or no more. */
void port_watch(struct port *port, int fd);
void port_unwatch(struct port *port, int fd);
const struct topology_end *port_own_end(const struct port *port);
const struct topology_end *port_other_end(const struct port *port);

#endif
