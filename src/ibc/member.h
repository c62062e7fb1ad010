/* A member of a node's virtual switch: its side of the agent, its view of the board, and its lanes
 * to the other members. Both a client of IBC and the process that runs the hardware ports are
 * members; what they do with records is their own business. Nothing here is locked: one thread at a
 * time uses a member. */
#ifndef IBC_MEMBER_H
#define IBC_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/board.h"
#include "port/agentmsg.h"
#include "port/lanes.h"

struct member_peer {
	void *block; /* NULL: there is no such peer */
	struct lanes_end end;
	struct record_writer writer; /* as of the last look at the board */
	int bell;
	bool slow; /* it left its lane full; the owner sets and clears it */
};

struct member;

/* What a member does with the records that it gets. */
struct member_owner {
	/* @from has left: take what is still in its lane, which is dropped afterwards. */
	void (*leaves)(struct member *member, unsigned from);
	/* A new agent has been asked for what we have: tell it of our ports. May be NULL. */
	void (*returns)(struct member *member);
};

struct member {
	const struct member_owner *owner;
	/* What it asked for, for the next agent. */
	char node[AGENT_NAME_MAX];
	uint8_t key[AGENT_VS_KEY_BYTES];
	uint32_t flags; /* AGENT_VS_PORTS, AGENT_VS_PLAIN */
	uint64_t node_id;

	int agent;      /* -1: there is none at the moment */
	int bell, rope; /* the end to wait on, the end that rings it */
	bool barrier;
	const struct board *board; /* NULL: not attached */
	uint32_t number;
	uint64_t apids; /* by bits */
	uint64_t known; /* peers, by bits */
	uint64_t gone;  /* those that the agent calls gone, until we let go of them */
	uint64_t asked; /* those for whose lanes the agent was asked, and has not answered */
	struct member_peer peers[BOARD_MEMBERS];

	uint32_t seen;     /* the generation of the board when we last read what the agent said */
	unsigned calls;    /* of member_look() */
	uint64_t look_ns;  /* when to look at the agent's socket, whatever the board says */
	uint64_t alone_ns; /* when the agent went */
	uint64_t agents;   /* how often the agent was replaced */
	bool armed;        /* between member_arm() and member_disarm() */
	bool lost;         /* the agent refused what we had: nobody can reach us */
	bool returning;    /* asked the next agent for what we have */
	int answer;        /* to ATTACH: the APID, -errno, or MEMBER_NO_ANSWER */
};

#define MEMBER_NO_ANSWER INT32_MIN

/* @node: NULL for HEDDLE_NODE. False: the name is too long, or there are no descriptors left; the
 * reason has been logged. */
bool member_begin(struct member *member, const struct member_owner *owner, const char *node,
                  const uint8_t key[AGENT_VS_KEY_BYTES]);
/* Attach to the virtual switch, or ask for one more APID. @flags: enum agent_vs_flag. Returns the
 * APID or -errno; -ECONNREFUSED: there is no agent, and the reason has been logged. */
int member_attach(struct member *member, unsigned apid, uint32_t flags);
/* Leave the switch, and release everything; also in a child of fork(). */
void member_end(struct member *member);

/* Read what the agent says. Attaches to another agent if ours has gone. */
void member_hear(struct member *member);
void member_look_slowly(struct member *member);
/* The same if the board has changed, or now and then. Costs nothing otherwise. */
static inline void member_look(struct member *member)
{
	if (atomic_load_explicit(&member->board->generation, memory_order_acquire) !=
	            member->seen ||
	    ++member->calls % 1024 == 0)
		member_look_slowly(member);
}

/* Tell the agent the state of a hardware port. */
void member_set_port(struct member *member, unsigned port, const struct vswitch_nic_port *nic_port,
                     enum vswitch_port_state state);

/* Write @record into the lane to member @to, which is made the first time. False: there is no room,
 * no such member, or no agent to make the lane. */
bool member_put(struct member *member, unsigned to, const struct record *record);
/* There is no agent at the moment, or the next one has not heard of all of us. */
static inline bool member_is_alone(const struct member *member)
{
	return member->agent < 0 || member->returning;
}
/* The agent was asked for lanes to @to, and has not answered yet. */
static inline bool member_waits_for(const struct member *member, unsigned to)
{
	return to < BOARD_MEMBERS && (member->asked >> to & 1) != 0;
}
/* Have the agent make lanes to @to, unless there are some. False: there is no such member, no agent
 * at the moment, or it has not answered; it is waited for only the first time, and shortly. */
bool member_reach(struct member *member, unsigned to);
/* There is a lane to @to, which has a reader that may make room. */
static inline bool member_has(const struct member *member, unsigned to)
{
	return to < BOARD_MEMBERS && member->peers[to].block != NULL;
}

enum member_took { MEMBER_NOTHING, MEMBER_RECORD, MEMBER_REFUSED };
/* Take the next record from the lane from @from. @copy has RECORD_MAX_BYTES, and the payload points
 * into it. MEMBER_REFUSED: there was one, and *verdict says what was wrong. */
enum member_took member_take(struct member *member, unsigned from, uint8_t *copy,
                             struct record *record, enum record_verdict *verdict);

/* Ask to be woken by the bell. False: a record is there already, in a lane that is not in @ignored
 * (by bits). */
bool member_arm(struct member *member, uint64_t ignored);
void member_disarm(struct member *member);

#endif
