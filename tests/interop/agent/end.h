/* One end of a connection between two processes, for tests that do to processes what happens to
 * them: an adapter on the node, one queue pair, one block of memory. A call that fails ends the
 * process with status 3 and says which. */
#ifndef AGENT_END_H
#define AGENT_END_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <heddle/heddle.h>

#define END_RECEIVES 32
#define END_FENCE    4096 /* bytes before and behind the memory that nobody may write to, */
#define END_CANARY   0xa5 /* and what they hold */

/* What the one tells the other. */
struct card {
	struct hdl_gid gid;
	uint16_t lid;      /* it is reached by that; 0: by the GID */
	uint8_t path_bits; /* and comes from that one of its LIDs */
	uint32_t qpn;
	uint64_t addr;
	struct hdl_key key;
};

struct end {
	struct hdl_adapter *adapter;
	bool borrowed; /* the adapter is another end's */
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_channel *channel;
	struct hdl_qp *qp;
	struct hdl_mr *mr;
	unsigned char *room;
	size_t bytes;
	struct card mine, peer;
};

void must(int result, const char *what);
#define MUST(call) must(call, #call)

/* Open, with @bytes of registered memory and a send queue of @depth. */
void end_open(struct end *end, size_t bytes, uint32_t depth);
/* The same on an adapter that is there. */
void end_open_on(struct end *end, struct hdl_adapter *adapter, size_t bytes, uint32_t depth);
/* Tell our card on @out and hear the other's on @in. False: the other is not there. */
bool end_meet(struct end *end, int in, int out);
/* Connect to the queue pair on the card, and post END_RECEIVES receives of the whole memory. */
void end_connect(struct end *end);
/* The same; the first error of hdl_qp_modify(). */
int end_try_connect(struct end *end);
void end_post_receive(struct end *end);
/* A signalled request for @length bytes of our memory, from its beginning to the beginning of
 * theirs. What hdl_post_send() says. */
int end_try(struct end *end, uint32_t opcode, uint32_t length);
/* Poll until there is a completion, for @ms at most. False: there was none. */
bool end_wait(struct end *end, struct hdl_wc *wc, int ms);
/* One request and its completion: its status, or -1 when there is none within ten seconds. */
int end_do(struct end *end, uint32_t opcode, uint32_t length);
/* The same, which must be a success. */
void end_must(struct end *end, uint32_t opcode, uint32_t length);
void end_close(struct end *end);

/* A child and a socket to it. */
struct child {
	pid_t pid;
	int talk;
};

/* A process that lives as told, on @node and @address (NULL: none is asked for), and talks over
 * @talk. It must not return. */
struct child child_start(void (*live)(int talk, const char *node, const char *address),
                         const char *node, const char *address);
void child_kill(struct child *child);

double now_ms(void);
/* The process of the node agent; 0: there is none. */
pid_t agent_pid(void);
/* Kill the node agent, if there is one. */
void kill_agent(void);

/* What a process holds: its descriptors; and mappings of ours whose line in /proc has @what. */
int count_files(pid_t pid);
int count_mappings(const char *what);
/* With nobody there the agent holds nothing of anybody, or does so within a second; @more: it has
 * its own queue, with a bell of two descriptors. False: it still does, which is printed. */
bool agent_is_empty(int more);

#endif
