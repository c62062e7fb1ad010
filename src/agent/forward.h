/* The forwarder: how a program that is not trusted reaches other machines. Such a program gets no
 * UDP socket, because nobody could restrict what it sends from there. A process of the agent's, one
 * for each such program, has the sockets of the program's slot instead:
 *
 *      the program              the forwarder                            another machine
 *      data, ALIVEACK     -->   is there a connection to this     -->    UDP, Ethernet frames
 *        (port/forward.h)       host, index and nonce?
 *                         <--   <--------------------------------------  data, ALIVEACK
 *                               out-of-band packets --.      <---------  ACCEPT, CLOSE, ALIVE ...
 *                                                     v
 *      CI_CONTROL         <-->  the agent: its book (managed.h)   -->    CONNECT, ACCEPT, CLOSE ...
 *
 * So the agent's own event loop carries no data, and a connection exists only if the agent passed
 * its CONNECT and ACCEPT: it tells the forwarder about each one, before the program hears of it.
 *
 * The forwarder ends with its program and with its agent. If it is killed, the connections of the
 * program to other machines fail, and the next one that the program makes starts another.
 *
 * forward.c is what may pass, without I/O; forwarder.c the process; remote.c the agent's side. */
#ifndef AGENT_FORWARD_H
#define AGENT_FORWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/agentmsg.h"
#include "port/forward.h"
#include "port/udp.h"
#include "wire/ci.h"

/* --- what may pass: forward.c --- */

/* The other end of a connection. */
struct forward_entry {
	uint32_t place; /* in the agent's book */
	uint32_t index;
	uint64_t nonce;
	bool open;
	bool rolls; /* only the receiver can tell which nonce is right */
	uint8_t host[16];
};

struct forward_table {
	uint32_t count;
	struct forward_entry entries[AGENT_CI_ENTRIES];
};

/* What is in a place has changed. */
void forward_set(struct forward_table *table, const struct forward_entry *entry);
/* May the program send this frame to @host? All of its packets are for connections with that host,
 * and none is out of band. */
bool forward_may_send(const struct forward_table *table, const uint8_t host[16],
                      const uint8_t *frame, size_t bytes);
/* Divide a frame that came: the packets for the program are packed at @out, of CI_MAX_FRAME bytes;
 * each of the others is handed to @control, as a frame of its own. Returns the bytes at @out. */
size_t forward_divide(const uint8_t *frame, size_t bytes, uint8_t *out,
                      void (*control)(void *context, const uint8_t *frame, size_t bytes),
                      void *context);

/* --- between the agent and the forwarder --- */

/* The descriptors that a forwarder begins with. */
enum forward_fd { FORWARD_AGENT = 3, FORWARD_PROGRAM, FORWARD_SOCKETS };

enum forward_kind {
	FORWARD_BEGIN = 1, /* from the agent, first: the addresses of the sockets */
	FORWARD_ENTRY,     /* from the agent */
	FORWARD_CAME,      /* to the agent: an out-of-band packet from @host */
	FORWARD_RETURNED   /* to the agent: a frame to @host came back, or was not sent */
};
struct forward_msg {
	uint32_t kind; /* enum forward_kind */
	uint32_t length;
	uint8_t host[16];
	uint32_t which; /* of the sockets */
	int32_t error;  /* RETURNED: why */
	struct forward_entry entry;
	uint32_t count;
	struct udp_address addresses[UDP_MAX_ADDRESSES];
	uint8_t data[AGENT_CM_BYTES];
};

/* --- the process: forwarder.c --- */

/* Forward until the program or the agent has gone. Returns the exit code. */
int forwarder_run(void);

#endif
