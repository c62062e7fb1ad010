/* What arrives on a port (APERTURE columns 13 to 15): fixed-size events. Data only; the calls are
 * in eventq.h and aperture.h. */
#ifndef HEDDLE_PORT_EVENT_H
#define HEDDLE_PORT_EVENT_H

#include <stdint.h>

#include <heddle/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds of events: signalling messages, errors, data delivery. */
enum hdl_port_event_type {
	/* A peer offers an aperture: its index; value is the id for hdl_aperture_accept() and
	 * hdl_port_reject(). hdl_port_waiting() tells its type and its length. */
	HDL_PORT_CONNECT = 1,
	HDL_PORT_ACCEPT,   /* a peer accepted; index is its aperture */
	HDL_PORT_REJECT,   /* a peer refused; status is its reason */
	HDL_PORT_CLOSE,    /* the connection index has ended */
	HDL_PORT_ALIVE,    /* a peer asks whether we live; the adapter has answered */
	HDL_PORT_ALIVEACK, /* a peer answered an ALIVE of ours, and so is alive */
	HDL_PORT_ERROR,    /* status; from a receiver, an agent, a carrier or the sender */
	HDL_PORT_STATUS,   /* source asked for the status of the port, and got it */
	HDL_PORT_DATA,     /* data delivery: value and offset, as a peer stored them */
	HDL_PORT_VAR,      /* data of variable size: words of them wait in the second queue */
	HDL_PORT_LOST,     /* value events found no room and were counted instead */
	HDL_PORT_EVENT_TYPES
};

/* Who found the error of an HDL_PORT_ERROR. */
enum hdl_element {
	HDL_ELEMENT_RECEIVER, /* the peer, when it took a packet of ours */
	HDL_ELEMENT_AGENT,    /* a node agent, or it has gone itself */
	HDL_ELEMENT_CARRIER,  /* a link, an interface or the network in between, at either end */
	HDL_ELEMENT_SENDER    /* an end that gave up the connection, the peer or this one */
};

/* ALIVE comes every second or more often, and the adapter answers it and STATUS by itself. A port
 * gets events of these only if it asks for them (struct hdl_port_attr). */
enum hdl_port_signal {
	HDL_SIGNAL_ALIVE = 1 << HDL_PORT_ALIVE,
	HDL_SIGNAL_ALIVEACK = 1 << HDL_PORT_ALIVEACK,
	HDL_SIGNAL_STATUS = 1 << HDL_PORT_STATUS,
	HDL_SIGNAL_ALL = HDL_SIGNAL_ALIVE | HDL_SIGNAL_ALIVEACK | HDL_SIGNAL_STATUS
};

/* One event. A reader copies it out of the queue once, and looks at nothing but the copy. */
struct hdl_port_event {
	uint16_t type; /* enum hdl_port_event_type */
	/* DATA: bytes of data. ERROR, REJECT, CLOSE: enum hdl_aperture_reason; it tells what
	 * status does not, such as whether an access was outside or without the right. */
	uint16_t flags;
	uint32_t words; /* in the second queue, the size word included ("Var 10"); 0: none */
	uint32_t port;  /* that it came to */
	uint32_t index; /* of the aperture or connection */
	uint64_t value; /* ERROR: enum hdl_element */
	uint64_t offset;
	uint64_t var_at;       /* where its words begin: WRPTR of the second queue before them */
	struct hdl_gid source; /* taken from the link, never from the packet */
	uint32_t source_port;
	int32_t status; /* ERROR, REJECT: a negative error of error.h */
};
HDL_STATIC_ASSERT(sizeof(struct hdl_port_event) == 64, "an event is one cache line");

#ifdef __cplusplus
}
#endif

#endif
