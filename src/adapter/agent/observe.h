/* Observing every process that uses Heddle from outside: the agent tells who is there, and what a
 * process does not share is read from its memory, which the system allows among processes of one
 * user. Readers trust nothing that they read. */
#ifndef ADAPTER_OBSERVE_H
#define ADAPTER_OBSERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapter/reach/tables.h"
#include "port/agentmsg.h"

/* One message of the agent's answer; the descriptors stay the caller's. Not 0: an error that ends
 * the whole. */
typedef int observe_hear(void *context, const struct agent_msg *msg, const int *fds, int fd_count);

/* Ask the agent of this user, which does not have to know us; no agent is started. Calls @hear for
 * every message up to AGENT_END; NULL: nothing else is expected. Returns 0; -HDL_EHOSTUNREACH no
 * agent runs; -HDL_EACCES, -HDL_EINVAL, -HDL_ESTALE it refuses; -HDL_EIO; what @hear returned. */
int observe_ask(struct agent_msg *ask, observe_hear *hear, void *context);

/* Look at one process: @msg (AGENT_PROCESS) has its names, @tables are mapped during the call. Not
 * 0: an error that ends the whole. */
typedef int observe_look(void *context, const struct agent_msg *msg, const struct tables *tables);

/* Call @look for every process that the agent knows. Returns 0; -HDL_EHOSTUNREACH no agent runs;
 * -HDL_EIO; what @look returned. */
int observe_each(observe_look *look, void *context);

/* Copy @bytes at @from of the memory of process @pid, and of nobody else who has its number by now:
 * the probe tells (struct tables_header). */
bool observe_read(int pid, const struct tables_header *header, void *to, size_t bytes,
                  uint64_t from);

#endif
