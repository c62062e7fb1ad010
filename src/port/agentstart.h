/* Starting the node agent, from whatever needs one and finds none. The program does not notice:
 * there is no SIGCHLD, and nothing for its own wait() to find. */
#ifndef PORT_AGENTSTART_H
#define PORT_AGENTSTART_H

#include <stdbool.h>

/* Start heddled and wait until it or another agent is listening. @own is a function of the library
 * or program that asks: heddled is looked for beside it. False: the reason has been logged. */
bool agentstart_run(const void *own);
/* Does an agent of this user listen on @sock? Otherwise the reason has been logged. (No other user
 * can enter the directory, unless its mode was changed.) */
bool agentstart_is_ours(int sock);

#endif
