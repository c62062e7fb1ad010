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
/* @event came to @port, whose queue is @queue; NULL: it has none. @bits (enum oob_bit) say what is
 * to be known beside its form: that the application sleeps, that nobody can be woken. With the
 * drive lock. */
void oob_note(struct hdl_adapter *adapter, uint16_t port, const struct hdl_eventq *queue,
              const struct hdl_port_event *event, uint32_t bits);
/* The adapter has failed: an asynchronous event of @type. With the drive lock. */
void oob_failed(struct hdl_adapter *adapter, uint16_t type);
/* What the agent told, as calls return it. */
struct hdl_oob_status oob_status(const struct agent_oob *told);
void oob_end(struct hdl_adapter *adapter);
/* In a child of fork(): it has no mapping of the block. */
void oob_forget(struct hdl_adapter *adapter);

#endif
