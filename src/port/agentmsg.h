/* What a process and the node agent say to each other. Messages are structures of fixed size in the host's byte order over a
 * SOCK_SEQPACKET Unix socket; the first field is the version, so that two builds that differ refuse each other in
 * words. Descriptors travel with the messages that name them.
 *
 *   process                                   agent
 *   HELLO  {node, sizes} + tables, bell  -->
 *                                        <--  WELCOME {slot, guid, gids}  or  REFUSED {why}
 *   INTRODUCE {gid, slot, token}         -->
 *                                        <--  PEER {token, side, link id, sizes, pid} + tables, lanes, bell    to both
 *                                        <--  NO_PEER {token}, KNOWN {token, link id}                          to the asker
 *                                        <--  GONE {link id}                                 when a peer's socket closes
 *   CM_BIND {token, space, gid, port}    -->
 *                                        <--  CM_BOUND {token, port, error}
 *   CM_UNBIND {space, gid, port}         -->
 *   CM_SEND {to whom, data}              -->
 *                                        <--  CM_SEND {from whom, data}                                        to the addressee
 *                                        <--  CM_RETURN {error, data}                  to the sender when there is none
 *                                        <--  CM_GONE {guid, slot}            to all who ever sent or bound, when one ends
 *   OBSERVE                              -->  (instead of HELLO)
 *                                        <--  PROCESS {...} + tables, one a process; then END */
#ifndef PORT_AGENTMSG_H
#define PORT_AGENTMSG_H

#include <stdint.h>

#define AGENT_VERSION   4u
#define AGENT_SOCKET    "agent.sock"
#define AGENT_LOCK      "agent.lock"
#define AGENT_MAX_GIDS  16u
#define AGENT_NAME_MAX  64u
#define AGENT_CM_BYTES  448u
#define AGENT_SLOT_BITS 10u /* processes of a node; the high bits of a queue pair number */
#define AGENT_MAX_SLOTS (1u << AGENT_SLOT_BITS)
#define AGENT_LINK_IDS  (1u << 30) /* numbers of links are below this */

enum agent_kind {
	AGENT_HELLO = 1,
	AGENT_WELCOME,
	AGENT_REFUSED,
	AGENT_INTRODUCE,
	AGENT_PEER,
	AGENT_NO_PEER,
	AGENT_KNOWN,
	AGENT_GONE,
	AGENT_OBSERVE,
	AGENT_PROCESS,
	AGENT_END,
	AGENT_CM_BIND,
	AGENT_CM_BOUND,
	AGENT_CM_UNBIND,
	AGENT_CM_SEND,
	AGENT_CM_RETURN,
	AGENT_CM_GONE,
	AGENT_KIND_COUNT
};

/* The sizes of a process's shared tables: enough to find everything in the block. */
struct agent_sizes {
	uint32_t table_entries;
	uint32_t qp_bits;
	uint64_t arena_words;
	uint64_t block_bytes;
};

struct agent_msg {
	uint32_t version;
	uint32_t kind; /* enum agent_kind */
	union {
		struct {
			char node[AGENT_NAME_MAX];
			char program[AGENT_NAME_MAX];
			struct agent_sizes sizes;
			int32_t slot; /* -1, or the one that a former agent gave */
			uint32_t reserved;
		} hello;
		struct {
			uint32_t slot;
			uint32_t gid_count;
			uint64_t guid;
			uint8_t gids[AGENT_MAX_GIDS][16];
		} welcome;
		struct {
			int32_t error;
			char why[128];
		} refused;
		struct {
			uint8_t gid[16];
			uint32_t slot;
			uint32_t token;
		} introduce;
		struct {
			uint32_t token; /* 0: somebody else asked */
			uint32_t side;
			uint32_t link_id;
			uint32_t slot;
			int32_t pid;
			uint32_t reserved;
			uint8_t node_guid[8];
			struct agent_sizes sizes;
		} peer;
		struct {
			uint32_t token;
			uint32_t link_id;   /* KNOWN only */
			uint64_t node_guid; /* NO_PEER: 0 when the address is nobody's */
		} known;
		struct {
			uint32_t link_id;
		} gone;
		struct {
			char node[AGENT_NAME_MAX];
			char program[AGENT_NAME_MAX];
			uint8_t gid[16]; /* the first of the node's */
			int32_t pid;
			uint32_t slot;
			struct agent_sizes sizes;
		} process;
		struct {
			uint32_t token; /* BIND, BOUND; 0: no answer is wanted */
			int32_t error;
			uint8_t gid
			        [16]; /* SEND to a port: of the node; BIND: all zero for all addresses */
			uint64_t guid; /* SEND: the other process; CM_GONE: who is gone */
			uint32_t slot;
			uint16_t space, port;
			uint32_t to_port;
			uint32_t length;
			uint8_t data[AGENT_CM_BYTES];
		} cm;
	} u;
};

#endif
