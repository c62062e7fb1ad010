/* The gate to the one client of a process. Every public call enters through it, and so has the
 * lock; a call that waits drops the lock meanwhile and is counted, because IBC_Finish() waits for
 * it. */
#ifndef IBC_GATE_H
#define IBC_GATE_H

#include "base/lock.h"
#include "ibc/client.h"

extern struct gate {
	struct lock lock;
	struct client *client; /* NULL: IBC_Init() was not called */
	unsigned users;        /* threads within a call that drops the lock */
	unsigned waiters;      /* of these, the ones that sleep until .news changes */
	_Atomic uint32_t news; /* changes when a thread that waits should look again */
	bool finishing;        /* IBC_Finish() waits for .users */
	bool sleeping;         /* one thread sleeps on the bell */
} gate;

/* The client, with the lock; NULL, without it. */
struct client *client_enter(void);
void client_exit(struct client *client);

/* receive.c */
/* Let every thread that sleeps look again. */
void client_wake(const struct client *client);
/* The moment when a wait ends; UINT64_MAX: never. False: the time is not valid. */
bool client_end_of_wait(const struct timespec *timeout, uint64_t *end_ns);
/* Wait until one of the handles has a packet. With the lock, which is dropped meanwhile. Returns
 * IBC_RECVDONE, IBC_TIMEDOUT or IBC_BADPARAM. */
int client_await(struct client *client, const IBC_HANDLE *list, unsigned count, uint64_t end_ns);

/* descriptor.c */
/* Make the descriptor readable while there are packets, and only then. */
void client_settle_descriptor(struct client *client);

#endif
