/* Connection managers: how the messages of a connection reach the peer.
 *
 * cm/peer.c holds what all connections share: their states, and the events that the program gets.
 * It calls the manager of an identifier to send. The manager calls cm_take(), cm_take_request(),
 * cm_end_connection() and cm_unreachable() when it receives something or gives up.
 *
 * 	cm_local        cm/local.c        struct cm_message, which the node agent carries
 * 	                                  between the processes of one machine
 * 	cm_infiniband   cm/infiniband.c   InfiniBand's communication management
 * 	                                  (cm/ibcm.c) with peers across the wire
 * 	cm_mpa          cm/mpa.c          TCP connections with peers across the wire
 *
 * An identifier has a manager from the start: cm_local, until its address turns out to be across
 * the wire (cm_cross()). Then the manager of the device connects it (compat/devices.h). The
 * identifier of a request has the manager that received it. All functions are called with the lock
 * of cm/device.c held; those that return int return 0 or an error number. */
#ifndef COMPAT_CM_MANAGER_H
#define COMPAT_CM_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

struct cm_id;
struct cm_message;
struct ib_uverbs_qp_attr;

struct cm_manager {
	const char *name;     /* for logs */
	bool across;          /* its peers are across the wire */
	bool tells_addresses; /* a request carries the addresses that the program used */
	/* A reply establishes the connection, with the queue pair in RTS. Programs get an errno as
	 * the status of a rejection. */
	bool one_exchange;
	uint8_t ack_timeout; /* of its paths unless the program or a request says otherwise:
	                        4.096 us * 2^n */
	/* A request that finds no listener is repeated for this long, less and less often. 0: a
	 * fixed number of times at equal intervals. */
	uint64_t relisten_ns;

	/* Of the manager of the device: take the port of @id, which it holds from the agent, on the
	 * wire, too; release it; listen. EADDRINUSE: others have it. All NULL: its ports are the
	 * agent's alone. */
	int (*bind)(struct cm_id *id);
	void (*unbind)(struct cm_id *id);
	int (*listen)(struct cm_id *id);
	/* Send @message, a REQ or a SIDR_REQ. Called again to repeat it. */
	int (*request)(struct cm_id *id, struct cm_message *message);
	/* A REP, or a SIDR_REP that says yes. */
	int (*reply)(struct cm_id *id, struct cm_message *message);
	/* A REJ, or a SIDR_REP that says no. */
	int (*reject)(struct cm_id *id, struct cm_message *message);
	/* An RTU. */
	int (*confirm)(struct cm_id *id);
	/* A DREQ. */
	int (*disconnect)(struct cm_id *id);
	/* The DREP to the peer's DREQ, once the program knows. NULL: the manager answers DREQs
	 * itself. */
	int (*disconnected)(struct cm_id *id);
	/* The program saw data before the RTU came. NULL: no RTU gets lost. */
	void (*notify)(struct cm_id *id);
	/* The attributes with which librdmacm moves a queue pair to @state; fills those of its
	 * mask. NULL: InfiniBand's. */
	int (*init_qp_attr)(const struct cm_id *id, uint32_t state, struct ib_uverbs_qp_attr *attr);
	/* The identifier ends, or goes to another manager: tell the peer what it has to know, and
	 * free @id->end. */
	void (*part)(struct cm_id *id);

	/* When to call expire(), in time of CLOCK_MONOTONIC; 0: never. Both NULL: cm/wait.c repeats
	 * requests, replies and DREQs, and gives up. */
	uint64_t (*due_ns)(const struct cm_id *id);
	void (*expire)(struct cm_id *id);

	/* These are NULL where the agent tells peers that a process has gone.
	 * Leave a disconnect notice with an agent that has just started, to be sent when this
	 * process has gone. */
	void (*leave_notice)(const struct cm_id *id);
	/* The program exits: tell the peer. */
	int (*leave)(struct cm_id *id);
	/* In a child of fork(): the connection is the parent's. */
	void (*forget)(struct cm_id *id);
};

extern const struct cm_manager cm_local, cm_infiniband, cm_mpa;

#endif
