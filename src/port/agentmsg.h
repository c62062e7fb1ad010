/* The messages between a process and the node agent. Messages are structures of fixed size in host
 * byte order over a SOCK_SEQPACKET Unix socket. The first field is the version, so that two
 * different builds refuse each other with a clear message. Descriptors travel with the messages
 * that mention them.
 *
 *   process                              agent
 *   HELLO {node, sizes, wire}            -->  + tables, bell
 *     WELCOME {slot, lid, guid, gids, wire}  <--  + sockets; or REFUSED {why}
 *   INTRODUCE {gid, slot, token}         -->
 *     PEER {token, side, link id, sizes}   <--  to both; + tables, lanes, bell, and a pidfd if any
 *     NO_PEER {token}, KNOWN {token, link id}  <--  to the process that asked
 *   PART {link id}                       -->  it cannot be used: the other side hears GONE
 *     GONE {link id}                       <--  the socket of a peer was closed
 *   FIND {gid, token}                    -->
 *     KNOWN {token, guid, lid}, NO_PEER {token}  <--
 *   CM_BIND {token, space, gid, port}    -->
 *     CM_BOUND {token, port, error}        <--
 *   CM_LISTEN {space, gid, port}         -->  from now on messages to it are heard
 *   CM_UNBIND {space, gid, port}         -->
 *   CM_SEND {to whom, data}              -->
 *     CM_SEND {from whom, data}            <--  to the addressee
 *     CM_RETURN {error, data}              <--  to the sender, when there is none
 *     CM_GONE {guid, slot}                 <--  one ended: to all that ever sent or bound
 *   CM_MAD {gid, own, data, token}       -->  a management datagram for the node's network
 *     CM_SAID {token}                      <--  it was sent; the agent repeats it until answered
 *     CM_DONE {token}                      <--  it was answered, or given up
 *     CM_MAD {gid, own, data}              <--  one that came, to the process that it is for
 *   STRIPE {token, gid, own, slot: queue pair}  -->  would its process use two paths?
 *     STRIPED {token, length: count, data: addresses}  <--  of its node; none: no
 *   GROUP_JOIN {token, gid}              -->  we have members in the group; GROUP_LEAVE {gid}
 *   GROUP_SEND {token, gid}              -->  we send to it; GROUP_FORGET {gid}
 *     GROUP_MEMBER {gid, guid, slot, joined}  <--  to all that send, one per process
 *     GROUP_DONE {token, error}            <--  to the process that asked, at last
 *   OBSERVE                              -->  instead of HELLO
 *     PROCESS {...}                        <--  + tables, one per process; then END
 *   CI_OPEN {token}                      -->  the process uses apertures
 *     CI_OPENED {token, trust}             <--  + one socket per address of the node; or, if it is
 *                                               not trusted, the channel to its forwarder
 *     CI_FRAME {gid, own, data}            <--  CI packets to a port that the process holds
 *   CI_ARM {token, slot: row}            -->  from a program that is not trusted
 *     CI_ARMED {token, error, guid: nonce, slot: first number}  <--
 *   CI_DISARM {slot: row}                -->  the entry is no more
 *   CI_CONTROL {guid, slot, data}        -->  out-of-band packets, where an end is not trusted
 *     CI_CONTROL {guid, slot, data}        <--  to the other end, with the name of this one
 *   CI_CONTROL {gid, slot: which address of ours, data, options: 1}
 *                                        -->  likewise, to and from another machine
 *   CI_RETURNED {gid, data, options: why} -->  a frame came back that is none of ours; the agent
 *     CI_FRAME {gid, data, options: why}   <--  passes it to all processes of the node
 *   SCTP_OPEN {token}                    -->  the process uses SCTP
 *     SCTP_OPENED {token, addresses}       <--  + one socket per address of the node
 *   SCTP_BIND {token, gid, port, count}  -->  packets to these SCTP ports are for the process
 *     SCTP_BOUND {token, port, error}      <--
 *   SCTP_UNBIND {gid, port, count}       -->
 *   VS_ATTACH {node, APID, key}          -->  + bell, the first time; needs no HELLO
 *     VS_ATTACHED {error, APID, member}    <--  + board (fabric/board.h)
 *   VS_MEET {member}                     -->  the first time that we send to it
 *     VS_PEER {member, side}               <--  to both; + lanes, bell
 *     VS_GONE {member, APIDs}              <--  it left, to all that met it; or there is no such
 *                                               member, to the one that asked
 *   VS_GONE {member}                     -->  its lanes cannot be used: the other end hears VS_GONE
 *   VS_PORT {port, NIC, state}           -->  from the process that runs the hardware ports
 *   OOB_ATTACH                           -->  we have ports with event queues (port/oob.h)
 *     OOB_ATTACHED                         <--  + block, bell
 *   OOB_QUERY {token}                    -->
 *     OOB_STATUS {token, ...}              <--  what the agent knows of our ports
 *   OOB_OBSERVE                          -->  instead of HELLO
 *     OOB_PROCESS {pid, ...}               <--  pid 0: those to come; one per process; then END
 *   OOB_SET {pid, criteria}              -->  instead of HELLO
 *     END                                  <--  they are in force; or REFUSED {why}
 *   VS_OBSERVE                           -->  instead of VS_ATTACH
 *     VS_MEMBER {node, ...}                <--  + board, one per member; then END */
#ifndef PORT_AGENTMSG_H
#define PORT_AGENTMSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "port/udp.h"

#define AGENT_VERSION  29u
#define AGENT_SOCKET   "agent.sock"
#define AGENT_LOCK     "agent.lock"
#define AGENT_ROVER    "agent.next"
#define AGENT_VS_KEY   "vswitch.key"
#define AGENT_MAX_GIDS 16u
#define AGENT_IB_GID   1u /* which of a node's addresses is that of its InfiniBand port */
#define AGENT_NAME_MAX 64u
#define AGENT_CM_BYTES 448u
/* Disconnect notices that the agent keeps for one process, and that it repeats for one node. */
#define AGENT_MAX_NOTICES 4096u
#define AGENT_MAX_EARLY   64u /* requests of one node that wait for a listener */
#define AGENT_SLOT_BITS   10u /* processes of a node; the high bits of a queue pair number */
#define AGENT_MAX_SLOTS   (1u << AGENT_SLOT_BITS)
/* The low bits of a connection's number; the slot is above them. */
#define AGENT_CM_ID_BITS (32u - AGENT_SLOT_BITS)
#define AGENT_LINK_IDS   (1u << 30) /* numbers of links are below this */

/* LIDs (IBTA section 4.1.1: unicast up to 0xbfff). The first is the agent's own, as the manager of
 * the subnet. */
#define AGENT_MAX_LMC   7u
#define AGENT_SM_LID    1u
#define AGENT_FIRST_LID 2u
#define AGENT_LAST_LID  0xbfffu

#define AGENT_CI_SPACE   0x0a70u /* ports of apertures are those of this space */
#define AGENT_CI_ENTRIES 1024u   /* apertures of a process that is not trusted */

#define AGENT_STRIPE_WINDOW 256u /* packets in flight on a connection by two paths */

#define AGENT_SCTP_BLOCK 64u /* SCTP ports that a process may take at a time */

#define AGENT_LOOPBACK 72u /* the node with LID L is 127.72.(L / 256).(L % 256) */

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
	AGENT_CM_LISTEN,
	AGENT_CM_UNBIND,
	AGENT_CM_SEND,
	AGENT_CM_RETURN,
	AGENT_CM_GONE,
	AGENT_CM_MAD,
	AGENT_CM_SAID,
	AGENT_CM_DONE,
	AGENT_GROUP_JOIN,
	AGENT_GROUP_LEAVE,
	AGENT_GROUP_SEND,
	AGENT_GROUP_FORGET,
	AGENT_GROUP_MEMBER,
	AGENT_GROUP_DONE,
	AGENT_FIND,
	AGENT_PART,
	AGENT_VS_ATTACH,
	AGENT_VS_ATTACHED,
	AGENT_VS_MEET,
	AGENT_VS_PEER,
	AGENT_VS_GONE,
	AGENT_VS_PORT,
	AGENT_VS_OBSERVE,
	AGENT_VS_MEMBER,
	AGENT_OOB_ATTACH,
	AGENT_OOB_ATTACHED,
	AGENT_OOB_QUERY,
	AGENT_OOB_STATUS,
	AGENT_OOB_OBSERVE,
	AGENT_OOB_PROCESS,
	AGENT_OOB_SET,
	AGENT_CI_OPEN,
	AGENT_CI_OPENED,
	AGENT_CI_FRAME,
	AGENT_CI_ARM,
	AGENT_CI_ARMED,
	AGENT_CI_DISARM,
	AGENT_CI_CONTROL,
	AGENT_CI_RETURNED,
	AGENT_SCTP_OPEN,
	AGENT_SCTP_OPENED,
	AGENT_SCTP_BIND,
	AGENT_SCTP_BOUND,
	AGENT_SCTP_UNBIND,
	AGENT_STRIPE,
	AGENT_STRIPED,
	AGENT_KIND_COUNT
};

/* The wire that a process requests: none, one that no other machine can reach, or one on an address
 * that the user named. */
enum agent_wire { AGENT_WIRE_NONE, AGENT_WIRE_LOOPBACK, AGENT_WIRE_ADDRESS };

/* Which messages a port receives: those to one address family, and to the other as well unless ONLY
 * is given. */
enum agent_cm_option {
	AGENT_CM_IPV4 = 1 << 0,
	AGENT_CM_IPV6 = 1 << 1,
	AGENT_CM_ONLY = 1 << 2,
	AGENT_CM_REUSE = 1 << 3,     /* other holders that also give REUSE may share it */
	AGENT_CM_WHEN_GONE = 1 << 4, /* MAD: to be sent when the process has ended */
	AGENT_CM_LAST = 1 << 5,      /* MAD: if it is a DREQ, the agent is to repeat it */
	AGENT_CM_DEAF = 1 << 6       /* of a port: it has no listener before LISTEN */
};

/* The sizes of the shared tables of a process: enough to find everything in the block. */
struct agent_sizes {
	uint32_t table_entries;
	uint32_t qp_bits;
	uint64_t arena_words;
	uint64_t block_bytes;
};

/* The parts of a message, by the service that owns them (agent/service.h). */

/* Names: HELLO, WELCOME, REFUSED, PROCESS. (OBSERVE and END have no part.) */
struct agent_hello {
	char node[AGENT_NAME_MAX];
	char program[AGENT_NAME_MAX];
	struct agent_sizes sizes;
	int32_t slot;        /* -1, or the one that a former agent gave */
	uint32_t lid;        /* 0, or the one that a former agent gave the node */
	int32_t lmc;         /* the node is to have 2 to the lmc LIDs; -1: as many as it has */
	uint64_t network[2]; /* the network namespace of the process (udp_network()) */
	uint32_t wire;       /* enum agent_wire */
	uint32_t wire_count; /* AGENT_WIRE_ADDRESS: the number of addresses */
	struct udp_address wires[UDP_MAX_ADDRESSES];
	uint32_t cells;   /* 1: sockets for cells, too */
	uint32_t stripes; /* 1: its connections are to use two paths (HEDDLE_STRIPE) */
};

struct agent_welcome {
	uint32_t slot;
	uint32_t gid_count;
	uint32_t lid; /* the first of 2 to the lmc */
	uint32_t lmc;
	uint32_t wire_mtu; /* of packets' payload; 0: no wire, and no descriptor */
	uint64_t guid;
	uint32_t wire_count; /* of addresses; agent_wire_socks() come along */
	struct udp_address wires[UDP_MAX_ADDRESSES];
	uint8_t gids[AGENT_MAX_GIDS][16];
	uint8_t taken[16]; /* the node's own address on the loopback, if another user holds it; else
	                      zero */
	uint32_t taken_by; /* that user */
};

/* How many sockets come with WELCOME, in this order: for each wire, one for RoCEv2, unless it is
 * for frames; and with @cells, one for those. */
#define AGENT_MAX_WIRE_SOCKS (2u * UDP_MAX_ADDRESSES)
static inline unsigned agent_wire_socks(const struct agent_welcome *welcome, bool cells)
{
	unsigned count = 0;
	for (uint32_t i = 0; i < welcome->wire_count && i < UDP_MAX_ADDRESSES; i++)
		count += (welcome->wires[i].frames ? 0u : 1u) + (cells ? 1u : 0u);
	return count;
}

struct agent_refused {
	int32_t error;
	char why[128];
};

struct agent_process {
	char node[AGENT_NAME_MAX];
	char program[AGENT_NAME_MAX];
	uint8_t gid[16];   /* the first of the node's */
	uint8_t taken[16]; /* as in WELCOME */
	uint32_t taken_by;
	int32_t pid;
	uint32_t slot;
	struct agent_sizes sizes;
};

/* Introductions: INTRODUCE and FIND; PEER; KNOWN and NO_PEER; PART and GONE. */
struct agent_introduce {
	uint8_t gid[16];
	uint32_t slot;
	uint32_t token;
};

struct agent_peer {
	uint32_t token; /* 0: somebody else asked */
	uint32_t side;
	uint32_t link_id;
	uint32_t slot;
	int32_t pid;      /* in the agent's PID namespace, which may be another one */
	uint32_t managed; /* one of the two is not trusted: CI_CONTROL */
	uint8_t node_guid[8];
	struct agent_sizes sizes;
};

struct agent_known {
	uint32_t token;
	uint32_t link_id; /* KNOWN, as the answer to INTRODUCE */
	uint32_t lid;     /* KNOWN, as the answer to FIND: the node's first */
	uint32_t reserved;
	uint64_t node_guid; /* NO_PEER: 0 when no node has the address */
};

struct agent_gone {
	uint32_t link_id;
};

/* Connections: all kinds that begin with CM_. The wire service uses it too: MAD, SAID, DONE; and
 * that of apertures: all kinds that begin with CI_. */
struct agent_cm {
	uint32_t token; /* BIND, BOUND; MAD, SAID, DONE; 0: no answer is wanted */
	int32_t error;
	uint8_t gid[16]; /* SEND to a port: of the node; MAD: of the peer; BIND: zero for all
	                    addresses */
	uint8_t own[16]; /* MAD: the process's own address; zero in one to send: any that reaches
	                    the peer */
	uint64_t guid;   /* SEND: the other process; CM_GONE: the process that has gone */
	uint32_t slot;
	uint16_t space, port;
	uint32_t to_port;
	uint32_t options; /* enum agent_cm_option: of a port, or of the address that is called */
	uint32_t length;
	uint8_t data[AGENT_CM_BYTES];
};

/* Multicast groups: all kinds that begin with GROUP_. */
struct agent_group {
	uint32_t token; /* JOIN, SEND, DONE; 0: no answer is wanted */
	int32_t error;  /* DONE */
	uint8_t gid[16];
	uint64_t guid;   /* MEMBER: the node and */
	uint32_t slot;   /* the slot of the process, */
	uint32_t joined; /* and whether it has members */
};

/* Virtual switches: all kinds that begin with VS_. */
#define AGENT_VS_ANY       0xffu /* any general APID */
#define AGENT_VS_KEY_BYTES 16u

enum agent_vs_flag {
	AGENT_VS_WISH = 1 << 0,    /* ATTACH: if the APID is taken, another one will do */
	AGENT_VS_PORTS = 1 << 1,   /* it runs the hardware ports; no APID */
	AGENT_VS_AGAIN = 1 << 2,   /* ATTACH: a former agent gave it what it has */
	AGENT_VS_BARRIER = 1 << 3, /* barrier_everyone() reaches it */
	AGENT_VS_PLAIN = 1 << 4    /* ATTACH with PORTS: the switch has no applications */
};

struct agent_vs_attach {
	char node[AGENT_NAME_MAX];
	char program[AGENT_NAME_MAX];
	uint32_t apid;
	uint32_t flags;                  /* enum agent_vs_flag */
	uint8_t key[AGENT_VS_KEY_BYTES]; /* zeroes: none */
	uint64_t node_id;                /* PORTS: the identifier of the node */
	/* AGAIN: the number, board and APIDs that it has, the members to which it has lanes, and
	 * those that the board shows, by bits. */
	uint32_t member;
	uint32_t reserved;
	uint64_t board, apids, known, there;
};

struct agent_vs_attached {
	int32_t error;
	uint32_t apid;
	uint32_t member;
	uint32_t reserved;
};

struct agent_vs_peer {
	uint32_t member;
	uint32_t side;
	uint32_t flags; /* BARRIER, PORTS */
	uint32_t reserved;
	uint64_t apids; /* what it holds so far, by bits */
};

struct agent_vs_gone {
	uint32_t member;
	uint32_t reserved;
	uint64_t apids; /* from the agent: what it held last, by bits */
};

struct agent_vs_port {
	uint32_t port;
	uint32_t state; /* enum vswitch_port_state */
	uint64_t guid;
	uint32_t number;
	uint32_t reserved;
	uint64_t denied; /* APIDs without access, by bits */
};

struct agent_vs_member {
	char node[AGENT_NAME_MAX];
	char program[AGENT_NAME_MAX];
	int32_t pid;
	uint32_t member;
	uint32_t flags; /* PORTS */
	uint32_t reserved;
	uint64_t apids;
};

/* Ports: OOB_QUERY and OOB_STATUS; OOB_PROCESS; OOB_SET. (The others have no part.) */
struct agent_oob {
	uint32_t token;
	uint32_t last_port;
	uint64_t messages, blocked, errors, failures, lost, wakes, refused, nobody;
	uint32_t waiting;    /* events in the queue of the last port, as the agent saw them, */
	uint32_t first_type; /* and the oldest of them: struct hdl_port_event */
	uint32_t first_index;
	uint64_t first_value;
	uint32_t criteria, waking;        /* enum oob_bit */
	uint32_t error_port, error_index; /* of the last error */
	int32_t error_status;
};

struct agent_oob_process {
	char node[AGENT_NAME_MAX];
	char program[AGENT_NAME_MAX];
	int32_t pid; /* 0: criteria are those of processes that come later */
	uint32_t slot;
	uint32_t trusted;
	uint32_t reserved;
	struct agent_oob oob;
};

struct agent_oob_set {
	int32_t pid; /* 0: all processes, also those that come later */
	uint32_t criteria, waking;
	uint32_t reserved;
};

/* SCTP: all kinds that begin with SCTP_. */
struct agent_sctp {
	uint32_t token;  /* OPEN, OPENED, BIND, BOUND */
	int32_t error;   /* OPENED, BOUND */
	uint8_t gid[16]; /* BIND, UNBIND: an address of the node; zero: all of them */
	uint16_t port;   /* the first; BIND: 0 for any */
	uint16_t count;  /* 1 to AGENT_SCTP_BLOCK */
	uint32_t
	        wire_count; /* OPENED: the number of sockets that come along, and their addresses */
	struct udp_address wires[UDP_MAX_ADDRESSES];
};

struct agent_msg {
	uint32_t version;
	uint32_t kind; /* enum agent_kind */
	union {
		struct agent_hello hello;
		struct agent_welcome welcome;
		struct agent_refused refused;
		struct agent_process process;
		struct agent_introduce introduce;
		struct agent_peer peer;
		struct agent_known known;
		struct agent_gone gone;
		struct agent_cm cm;
		struct agent_group group;
		struct agent_vs_attach vs_attach;
		struct agent_vs_attached vs_attached;
		struct agent_vs_peer vs_peer;
		struct agent_vs_gone vs_gone;
		struct agent_vs_port vs_port;
		struct agent_vs_member vs_member;
		struct agent_oob oob;
		struct agent_oob_process oob_process;
		struct agent_oob_set oob_set;
		struct agent_sctp sctp;
	} u;
};
/* Both sides send whole structures: one of another size is another AGENT_VERSION. */
_Static_assert(sizeof(struct agent_msg) == 528, "wire format");

/* The bytes of a message without a part, and with the part @part (a member of u). */
#define AGENT_MSG_HEADER_BYTES offsetof(struct agent_msg, u)
#define AGENT_MSG_BYTES(part)  (AGENT_MSG_HEADER_BYTES + sizeof(((struct agent_msg *)0)->u.part))

/* A LID where an address is asked for: in 100::/64 (RFC 6666), which is no host's. */
static inline void agent_lid_address(uint16_t lid, uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[0] = 1;
	gid[14] = (uint8_t)(lid >> 8);
	gid[15] = (uint8_t)lid;
}

/* The LID that @gid stands for; 0: it is an address like any other. */
static inline uint16_t agent_lid_of(const uint8_t gid[16])
{
	static const uint8_t prefix[14] = {1};
	if (memcmp(gid, prefix, sizeof(prefix)) != 0)
		return 0;
	return (uint16_t)(gid[14] << 8 | gid[15]);
}

/* The LID of the node whose address on the loopback @gid is; 0: it is none of these. */
static inline uint16_t agent_lid_at(const uint8_t gid[16])
{
	static const uint8_t prefix[14] = {
	        [10] = 0xff, [11] = 0xff, [12] = 127, [13] = AGENT_LOOPBACK};
	if (memcmp(gid, prefix, sizeof(prefix)) != 0)
		return 0;
	return (uint16_t)(gid[14] << 8 | gid[15]);
}

#endif
