/* Other clients for the tests of IBC: each is a process of its own, since a process is one
 * client. */
#ifndef INTEROP_IBC_PEER_H
#define INTEROP_IBC_PEER_H

#include <heddle/ibc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define MUST(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

struct peer {
	pid_t pid;
	int channel; /* to its standard function */
	unsigned apid;
};

/* Fork a process that registers as @requested, reports its APID and calls @run; it ends when @run
 * returns. It dies with its parent. */
struct peer peer_start(unsigned requested, void (*run)(int channel));
/* End it with @signal (0: it ends by itself) and wait for that. Returns its status. */
int peer_end(struct peer *peer, int signal);

/* One byte there, one byte back. */
void peer_say(int channel, char byte);
char peer_hear(int channel);

/* Functions for peer_start(). */
void peer_echo(int channel);   /* answers every request with its own payload, until it is told to
                                  end */
void peer_silent(int channel); /* never calls the library again, until it is told to end */

/* The key of the administrator, from the agent's directory; exported as HEDDLE_IBC_KEY. */
void peer_take_key(void);
/* The process number of the agent. */
pid_t peer_agent(void);

/* A target on this node. */
struct IBC_Target peer_target(unsigned apid);

extern const struct timespec peer_now, peer_soon; /* 0, 5 s */

#endif
