/* The adapter's side of the agent's own queue (port/oob.h). */
#ifndef ADAPTER_OOB_H
#define ADAPTER_OOB_H

#include <stdbool.h>
#include <stdint.h>

#include <heddle/eventq.h>

#include "base/ring.h"
#include "port/agentmsg.h"

struct hdl_eventq;

/* Under the drive lock. */
struct oob {
	struct oob_block *block; /* NULL: no agent has offered one */
	struct ring_tx lane;
	int bell; /* of the agent */
	uint64_t messages, wakes;
};

/* Ask the agent for a queue, unless there is one or no agent. Without a lock. */
void oob_attach(struct hdl_adapter *adapter);
/* There is a new agent. With agent.lock. */
void oob_again(struct hdl_adapter *adapter);
/* The agent offers a queue: @fds are its block and a bell, which are taken over. */
void oob_take(struct hdl_adapter *adapter, int *fds);
/* An event of @type was delivered to @queue, whose application sleeps, or not. With the drive
 * lock. */
void oob_note(struct hdl_adapter *adapter, const struct hdl_eventq *queue, uint16_t type,
              bool blocked);
/* An event of @type came to @port, and nobody can be woken: there is no queue, or no room. With the
 * drive lock. */
void oob_nobody(struct hdl_adapter *adapter, uint16_t port, uint16_t type);
/* The adapter has failed: an asynchronous event of @type. With the drive lock. */
void oob_failed(struct hdl_adapter *adapter, uint16_t type);
void oob_end(struct hdl_adapter *adapter);
/* In a child of fork(): it has no mapping of the block. */
void oob_forget(struct hdl_adapter *adapter);

#endif
