/* Apertures: memory of another application, on this machine or another one, reached by load and
 * store (the words are those of US 9,112,752, cited as APERTURE).
 *
 *      application A                                              application B
 *      mapped range --> outgoing entry -- CI packets --> incoming entry --> memory of B
 *      memory of A <-- incoming entry <-- CI packets -- outgoing entry <-- mapped range
 *
 * A struct hdl_aperture is one end of such a connection. It has an incoming side, memory of ours
 * that the peer may access, and an outgoing side, the memory that the peer offers to us. Ends find
 * each other through ports: a port is a 16-bit number of a node and has an event queue (eventq.h).
 *
 *      CLOSED --hdl_aperture_connect()--> CONNECTING --ACCEPT--> OPEN --CLOSE--> CLOSED
 *         |                                    '------REJECT, time------------------^
 *         '------hdl_aperture_accept(), hdl_port_offer() and a CONNECT--> OPEN
 *
 * The memory is non-coherent (APERTURE column 14). What holds everywhere, whatever the carrier:
 *
 *   - A store reaches the peer without any call within HDL_APERTURE_LAG_NS, as long as the process
 *     runs.
 *   - Stores are write-combining. There is no order between them but at ordering points:
 *     hdl_aperture_flush(), hdl_aperture_event(), hdl_aperture_close().
 *   - Storing a value that is there already may send nothing. hdl_aperture_store() always sends.
 *   - A load is as fresh as the last hdl_aperture_refresh(), or HDL_APERTURE_AGE_NS.
 *   - System calls get EFAULT on pages that are tracked; hdl_aperture_prepare() opens them.
 *   - After the peer has gone, loads return the last known bytes or zeroes and stores go nowhere.
 *     hdl_aperture_check() and an event say so. There is never a signal.
 *   - A child of fork() has no mapping.
 *   - A peer of this machine that closed or died may keep pages that it mapped, until the owner
 *     closes, too: hdl_aperture_close() has the details.
 *
 * Numbers that guard something are unpredictable: the nonce of an aperture is 64 random bits, new
 * for every connection. A trusted application may set its own, and other parts of the control block
 * (control.h).
 *
 * The comments above the calls have the order of heddle.h. */
#ifndef HEDDLE_APERTURE_H
#define HEDDLE_APERTURE_H

#include <heddle/heddle.h>
#include <heddle/port_event.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes are powers of two, so that the low bits of an address are the offset (APERTURE column 18,
 * step 3). */
#define HDL_APERTURE_MIN_BITS 10u /* 1 KiB */
#define HDL_APERTURE_MAX_BITS 30u /* 1 GiB */
/* Limits of one adapter. */
#define HDL_MAX_APERTURES        1048576u
#define HDL_MAX_PORTS            16384u
#define HDL_MAX_PORT_WAITING     128u  /* CONNECTs that wait for a port's application */
#define HDL_MAX_PORT_OFFERS      1024u /* apertures handed to one port in advance */
#define HDL_MAX_PORT_RULES       64u
#define HDL_APERTURE_KEPT_BYTES  (1u << 20) /* kept for repetition, of one aperture */
#define HDL_APERTURE_KEPT        1024u      /* packets kept for repetition, of one aperture */
#define HDL_APERTURE_EVENT_BYTES 16u        /* of data in a fixed-size event */
#define HDL_APERTURE_LAG_NS      10000000ull
#define HDL_APERTURE_AGE_NS      100000000ull

struct hdl_port;
struct hdl_aperture;

/* What a store to the aperture becomes. Both ends of a connection have the same type. */
enum hdl_aperture_type {
	HDL_APERTURE_DATA,  /* bytes in the memory of the peer */
	HDL_APERTURE_EVENT, /* a fixed-size event in the queue of the peer's port */
	/* A UDP datagram to a program that need not know Heddle. One that arrives goes to the
	 * variable queue of the port. There is no connection: see hdl_aperture_open_ip(). */
	HDL_APERTURE_IP
};

/* The checks of an incoming packet, in this order (APERTURE column 18). Each may be left out. */
enum hdl_aperture_check_bit {
	HDL_CHECK_VALID = 1 << 0,    /* the aperture is connected; without: it is open */
	HDL_CHECK_SEQUENCE = 1 << 1, /* nothing is missing, doubled or out of order; without: fire
	                                and forget */
	HDL_CHECK_NONCE = 1 << 2,
	HDL_CHECK_LINK = 1 << 3,   /* the link (Ethernet) address of the sender, as the kernel saw
	                              it; only where a carrier knows it: Ethernet frames */
	HDL_CHECK_SOURCE = 1 << 4, /* the network address of the sender, under a mask */
	HDL_CHECK_EXTENT = 1 << 5, /* without: offsets wrap at the size of the aperture */
	/* The cluster address of the sender, under a mask; checked with its network address. The
	 * peer is not told of this check. */
	HDL_CHECK_CLUSTER = 1 << 6,
	HDL_CHECK_DEFAULT = HDL_CHECK_VALID | HDL_CHECK_SEQUENCE | HDL_CHECK_NONCE |
	                    HDL_CHECK_SOURCE | HDL_CHECK_EXTENT
};

/* Who may set what (APERTURE column 16). The node agent gives the level, by the user's policy
 * (heddle-ci(7)); a program cannot raise its own. */
enum hdl_aperture_trust {
	/* Out-of-band packets pass the agent, which holds the entries and draws their numbers. Data
	 * for other machines passes a forwarder, a process of the agent's that has the sockets. */
	HDL_TRUST_NONE,
	/* The application sets nonce, destination and first number (control.h); base and source are
	 * set for it. */
	HDL_TRUST_USER
};

/* What CONNECT, ACCEPT and the out-of-band data say: the incoming side of an aperture, as the other
 * end needs it. A trusted application may hand it on by other means: hdl_aperture_point(). */
struct hdl_aperture_target {
	struct hdl_gid host; /* IPv4 (mapped), IPv6, or a LID (100::LID) */
	uint8_t link[6];     /* its address on the Ethernet that we share; zero: @host says it */
	uint16_t lid;        /* cluster address, which packets to it then have; 0: unknown */
	uint32_t index;      /* in-index */
	uint64_t nonce;
	uint32_t sequence;    /* the next number that it expects */
	uint8_t bits;         /* of the size */
	uint8_t checks;       /* enum hdl_aperture_check_bit: whether it wants numbers */
	uint16_t nonce_step;  /* rolling nonce: plus step ... */
	uint32_t nonce_every; /* ... after every so many packets; 0: it does not roll */
	uint64_t first;       /* narrowing: the first byte ... */
	uint64_t length;      /* ... and how many */
};

/* How to open an aperture. Zero in every field selects the defaults. */
struct hdl_aperture_attr {
	/* What the peer may access. With memory NULL the adapter provides zeroed memory, which
	 * programs of this machine can map; that of the caller stays the caller's. */
	void *memory;
	uint64_t length;      /* bytes; the size is the next power of two; 0: nothing is offered */
	uint32_t type;        /* enum hdl_aperture_type: DATA or EVENT */
	uint32_t access;      /* HDL_ACCESS_REMOTE_READ, _WRITE; 0: both */
	uint32_t checks;      /* enum hdl_aperture_check_bit; 0: HDL_CHECK_DEFAULT */
	uint32_t nonce_every; /* rolling nonce (needs HDL_CHECK_SEQUENCE): after so many packets */
	uint32_t nonce_step;  /* it grows by this; 0: 1, up to 65535 */
	/* HDL_CHECK_SOURCE: an address and the mask of the bits that count. All zero: the peer of
	 * the connection, and nobody else. */
	struct hdl_gid source, source_mask;
	uint8_t link[6]; /* HDL_CHECK_LINK; zero: that of the peer of the connection */
	/* HDL_CHECK_CLUSTER: the same for cluster addresses (hdl_aperture_cluster()). */
	uint16_t cluster, cluster_mask;
	/* Where its events go; NULL: nowhere. For EVENT apertures it is necessary. */
	struct hdl_port *port;
	void *context; /* the application's, see hdl_aperture_context() */
};

enum hdl_aperture_state {
	HDL_APERTURE_CLOSED,
	HDL_APERTURE_OFFERED,    /* handed to a port; waits for a CONNECT */
	HDL_APERTURE_CONNECTING, /* CONNECT sent */
	HDL_APERTURE_OPEN,
	HDL_APERTURE_CLOSING, /* CLOSE sent; repeats what the peer lacks */
	HDL_APERTURE_FAILED   /* the peer has gone, or broke the protocol */
};

/* Why a connection was refused or failed. REJECT, ERROR and events carry these numbers. */
enum hdl_aperture_reason {
	HDL_REASON_NONE,
	HDL_REASON_NO_PORT,  /* nobody holds the port */
	HDL_REASON_RULE,     /* a rule of the port refuses it */
	HDL_REASON_BUSY,     /* too many CONNECTs wait, or nothing is offered */
	HDL_REASON_SIZE,     /* it offers too much or too little */
	HDL_REASON_TYPE,     /* the ends want different types */
	HDL_REASON_DECLINED, /* the application said no */
	HDL_REASON_CLOSED,   /* the peer closed */
	HDL_REASON_GONE,     /* the peer has ended */
	HDL_REASON_SILENT,   /* the peer does not answer */
	HDL_REASON_SEQUENCE, /* a packet was lost; it is sent again, and this is no failure */
	HDL_REASON_EXTENT,   /* an access outside the aperture */
	HDL_REASON_ACCESS,   /* an access that the aperture does not grant */
	HDL_REASON_MEMORY,   /* the memory behind the aperture is gone */
	HDL_REASON_PROTOCOL, /* a packet that makes no sense here */
	HDL_REASON_CARRIER,  /* the carrier cannot transmit, or cannot make a check */
	HDL_REASON_DAMAGED,  /* a packet was damaged on its way; with numbers it is sent again */
	HDL_REASON_TICKET,   /* CONNECT has to be sent again with a ticket; the adapter does it */
	HDL_REASON_COUNT
};

/* --- ports --- */

enum hdl_rule_action {
	HDL_RULE_REJECT,
	HDL_RULE_ASK,   /* the application decides: hdl_aperture_accept(), hdl_port_reject() */
	HDL_RULE_ACCEPT /* an aperture of hdl_port_offer() accepts */
};

/* What happens to a CONNECT from a source that matches. The first rule that matches decides. */
struct hdl_port_rule {
	struct hdl_gid source, mask; /* mask zero: everybody */
	uint64_t max_length;         /* bytes: the peer may not offer more; 0: any length */
	uint32_t max_count;          /* connections by this rule at a time; 0: any number */
	uint32_t action;             /* enum hdl_rule_action */
};

struct hdl_port_attr {
	uint16_t port;    /* 0: any free one */
	uint32_t waiting; /* CONNECTs that may wait, others are refused; 0: HDL_MAX_PORT_WAITING */
	void *context;    /* see hdl_port_context() */
	/* enum hdl_port_signal: of these packets, too, the port gets events. Like all events that
	 * cannot be kept back, those that find the queue full are counted; none takes a place of
	 * HDL_PORT_CONNECT or HDL_PORT_ERROR. */
	uint32_t signals;
};

/* hdl_port_open - create a port
 *
 * Binds a port number of the node to this process. CONNECTs to it wait for hdl_aperture_accept()
 * until rules say otherwise. Its event queue is opened by hdl_eventq_open() (eventq.h).
 *
 * Owner: the caller owns *out and closes it with hdl_port_close().
 * Threads: any.
 * Blocks: until the node agent answers.
 * Returns: 0; -HDL_EINVAL; -HDL_EADDRINUSE; -HDL_ENOMEM also when HDL_MAX_PORTS is reached;
 * -HDL_EHOSTUNREACH the adapter is not on a node. */
HDL_API int hdl_port_open(struct hdl_adapter *adapter, const struct hdl_port_attr *attr,
                          struct hdl_port **out);

/* hdl_port_close - remove a port
 *
 * CONNECTs that wait are rejected. Apertures that name the port stay connected, without events.
 *
 * Owner: @port is freed.
 * Threads: any, but no other call on the port may be running or follow.
 * Blocks: until the node agent answers.
 * Returns: 0; -HDL_EINVAL; -HDL_EBUSY an aperture is offered to it, or has it as its port or as the
 * @new_port of its last connection. */
HDL_API int hdl_port_close(struct hdl_port *port);

/* hdl_port_number - the number of a port
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the number, from 1 to 65535. */
HDL_API uint16_t hdl_port_number(const struct hdl_port *port);

/* hdl_port_context - what hdl_port_attr.context was
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the pointer. */
HDL_API void *hdl_port_context(const struct hdl_port *port);

/* hdl_port_rules - set the rules of a port
 *
 * Replaces all rules by @count new ones; connections that exist stay. A CONNECT that no rule
 * matches waits for the application (HDL_RULE_ASK).
 *
 * Owner: @rules is copied.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL an action is unknown, or @count exceeds HDL_MAX_PORT_RULES. */
HDL_API int hdl_port_rules(struct hdl_port *port, const struct hdl_port_rule *rules,
                           uint32_t count);

/* hdl_port_offer - hand a port an aperture made in advance
 *
 * The next CONNECT that a rule with HDL_RULE_ACCEPT matches is accepted with @aperture, without
 * any action of the application: an event tells of it. @new_port, if not NULL, is the port that
 * ACCEPT names, for everything that follows: the events of @aperture come to it instead of
 * hdl_aperture_attr.port until the aperture is connected, accepted or offered again, and the other
 * end learns its number from hdl_aperture_peer().
 *
 * Owner: @aperture stays the caller's; hdl_aperture_close() withdraws the offer.
 * Threads: any.
 * Blocks: no; until the node agent answers, if the application is not trusted.
 * Returns: 0; -HDL_EINVAL; -HDL_EBUSY it is offered or connected; -HDL_ENOSPC
 * HDL_MAX_PORT_OFFERS is reached. */
HDL_API int hdl_port_offer(struct hdl_port *port, struct hdl_aperture *aperture,
                           struct hdl_port *new_port);

/* A CONNECT that waits, or the status of a port: see below. */
struct hdl_connect {
	struct hdl_gid source; /* taken from the carrier, not from the packet */
	uint64_t id;           /* names it in hdl_aperture_accept() and hdl_port_reject() */
	uint64_t length;       /* what it offers */
	uint32_t type;         /* enum hdl_aperture_type */
	uint32_t index;        /* its in-index */
};

/* hdl_port_waiting - look at the first CONNECT that waits
 *
 * Waits up to @timeout_ms (0: not at all; -1: forever) until a CONNECT waits for the application.
 * It keeps waiting until it is accepted, rejected or given up by its sender.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: up to @timeout_ms.
 * Returns: 0; -HDL_EAGAIN none came in time; -HDL_EINVAL; -HDL_EINTR. */
HDL_API int hdl_port_waiting(struct hdl_port *port, struct hdl_connect *connect, int timeout_ms);

/* hdl_port_reject - refuse a CONNECT that waits
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @reason is unknown; -HDL_ESTALE no such CONNECT waits. */
HDL_API int hdl_port_reject(struct hdl_port *port, uint64_t id, uint32_t reason);

/* The answer to STATUS. */
struct hdl_port_status {
	uint32_t waiting;  /* CONNECTs that wait */
	uint32_t offers;   /* apertures that wait for a CONNECT */
	uint32_t open;     /* connections through the port */
	uint32_t rejected; /* CONNECTs, since it was opened */
	uint32_t events;   /* in the port's queue */
	uint32_t blocked;  /* 1: a thread waits for it */
};

/* hdl_port_status - ask for the status of a port
 *
 * Sends STATUS to port @number of @host and waits for the reply. A port answers those whose CONNECT
 * it would not reject by rule.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: up to @timeout_ms, and until the node agent has found the host.
 * Returns: 0; -HDL_ETIMEDOUT; -HDL_ECONNREFUSED nobody holds the port; -HDL_EHOSTUNREACH;
 * -HDL_EINVAL. */
HDL_API int hdl_port_status(struct hdl_adapter *adapter, const struct hdl_gid *host,
                            uint16_t number, struct hdl_port_status *status, int timeout_ms);

/* --- apertures --- */

/* hdl_aperture_open - create an aperture
 *
 * Creates an aperture in state CLOSED and, with @attr->length, the incoming entry for it. Nothing
 * can reach the memory before the aperture is connected, unless HDL_CHECK_VALID is left out.
 *
 * Owner: the caller owns *out and frees it with hdl_aperture_free(). The memory must stay mapped
 * until then.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL a contradiction in @attr: a length above 2^HDL_APERTURE_MAX_BITS, a
 * rolling nonce without sequence check; -HDL_ENOTSUP no carrier of the adapter can make a check
 * that was asked for (HDL_CHECK_LINK without HEDDLE_ETHER); -HDL_EFAULT the memory is not mapped;
 * -HDL_ENOMEM also when HDL_MAX_APERTURES is reached. */
HDL_API int hdl_aperture_open(struct hdl_adapter *adapter, const struct hdl_aperture_attr *attr,
                              struct hdl_aperture **out);

/* hdl_aperture_free - remove an aperture
 *
 * Like hdl_aperture_close() without waiting for the peer, then everything of the aperture is gone:
 * the mapping, the incoming entry and the memory that the adapter provided. The next user of the
 * index gets zeroed pages and another nonce.
 *
 * Owner: @aperture is freed.
 * Threads: any, but no other call on the aperture may be running or follow.
 * Blocks: until peers have stopped accessing the memory.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_aperture_free(struct hdl_aperture *aperture);

/* hdl_aperture_memory - the memory that an aperture offers
 *
 * Owner: nothing changes hands. *length, if not NULL, is set to the length.
 * Threads: any.
 * Blocks: no.
 * Returns: the first byte; NULL: it offers none. */
HDL_API void *hdl_aperture_memory(const struct hdl_aperture *aperture, uint64_t *length);

/* hdl_aperture_context - what hdl_aperture_attr.context was
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the pointer. */
HDL_API void *hdl_aperture_context(const struct hdl_aperture *aperture);

/* hdl_aperture_connect - connect an aperture to a port
 *
 * Sends CONNECT to port @port of @host, with our in-index, nonce and first number, until ACCEPT or
 * REJECT comes. With @timeout_ms 0 the call returns at once with -HDL_EAGAIN; hdl_aperture_wait()
 * or an event tells the result. 127.0.0.1 and ::1 are our own node where no node has that address,
 * unless HEDDLE_ADDR is one of 127.0.0.0/8 or ::1.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: up to @timeout_ms (-1: as long as CONNECT is repeated, some seconds), and until the node
 * agent has found the host. Among programs of one machine that know each other, no system call is
 * made.
 * Returns: 0 it is OPEN; -HDL_EAGAIN; -HDL_EBUSY it is not CLOSED; -HDL_ECONNREFUSED REJECT came,
 * and hdl_aperture_reason() tells why; -HDL_EHOSTUNREACH; -HDL_ENOTSUP @host is reached by a
 * carrier that cannot make a check that the aperture wants; -HDL_ETIMEDOUT it is CLOSED again;
 * -HDL_ENOSPC the application is not trusted, and its agent holds no more entries for it;
 * -HDL_EINVAL; -HDL_EINTR. */
HDL_API int hdl_aperture_connect(struct hdl_aperture *aperture, const struct hdl_gid *host,
                                 uint16_t port, int timeout_ms);

/* hdl_aperture_cluster - the address of a host by its cluster address
 *
 * A cluster address has 16 bits (APERTURE figure 10, note 2). *gid becomes the form of @address
 * that hdl_aperture_connect(), hdl_port_status() and hdl_aperture_target.host take, 100::ADDRESS;
 * with @address 0, of the adapter itself.
 *
 * The cluster address of an adapter is the first LID of its node, which is unique among the nodes
 * of this machine and finds them. Machines do not agree on LIDs. For several machines the
 * environment variable HEDDLE_CLUSTER names a table, the same file everywhere: lines of a number
 * from 1 to 65535 and the network address that has it. An adapter that has one of these addresses
 * has its number in place of a LID, and the numbers of the table find their hosts before LIDs do.
 *
 * CONNECT and ACCEPT say the cluster address of their sender, and all packets to an entry have the
 * one of its end; a packet for another one is dropped and counted (wrong_cluster). What another
 * machine says of itself is believed if there is no table; with one, its address decides. A
 * program that is not trusted is not believed. HDL_CHECK_CLUSTER compares it. Ends that know of no
 * cluster addresses have 0, which every mask but 0 refuses.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no; until the node agent answers, if no call of this header was made before.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOTSUP @address is 0 and the adapter has none: it is not on a
 * node; -HDL_ENOMEM. */
HDL_API int hdl_aperture_cluster(struct hdl_adapter *adapter, uint16_t address,
                                 struct hdl_gid *gid);

/* hdl_aperture_accept - accept a CONNECT
 *
 * Accepts the CONNECT @id that waits at @port, or the first one to come with @id 0. ACCEPT names
 * @new_port, or @port if that is NULL; see hdl_port_offer().
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: with @id 0 up to @timeout_ms (0: not at all; -1: forever).
 * Returns: 0 @aperture is OPEN; -HDL_EAGAIN none came in time; -HDL_ESTALE no CONNECT @id waits;
 * -HDL_EBUSY it is not CLOSED; -HDL_EINVAL, also for the wrong type: the CONNECT is rejected;
 * -HDL_EINTR. */
HDL_API int hdl_aperture_accept(struct hdl_aperture *aperture, struct hdl_port *port, uint64_t id,
                                struct hdl_port *new_port, int timeout_ms);

/* hdl_aperture_wait - wait for the end of a set-up
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: up to @timeout_ms (-1: forever) while the state is OFFERED, CONNECTING or CLOSING.
 * Returns: 0 it is OPEN; -HDL_EAGAIN not yet; -HDL_ECONNREFUSED, -HDL_ETIMEDOUT as
 * hdl_aperture_connect(); -HDL_EPERM it is CLOSED or FAILED; -HDL_EINTR. */
HDL_API int hdl_aperture_wait(struct hdl_aperture *aperture, int timeout_ms);

/* hdl_aperture_close - end a connection
 *
 * Sends what has been stored (an ordering point), then CLOSE. The incoming entry is invalid from
 * now on: not a byte of the memory changes after the call, whatever the peer keeps. The aperture
 * may be connected again, with a new nonce.
 *
 * When the peer closes or dies instead, the state changes, the port's event (HDL_PORT_CLOSE, or
 * HDL_PORT_ERROR) comes before anything else, and packets of the peer change nothing from then on.
 * But one of this machine may have mapped the pages themselves (hdl_aperture_map()), and its
 * program may keep them, against the protocol. The pages are not exchanged beneath the owner, which
 * may be storing to them at that very moment and would lose what it stores. Its own next call does
 * that: this one, for an aperture that is CLOSED or FAILED, too; hdl_aperture_connect(),
 * hdl_aperture_accept() and hdl_port_offer() before the next peer; hdl_aperture_free(). What such a
 * peer stores until then is seen, after that it is not. The call takes the bytes along that are in
 * the memory; no thread may store to it meanwhile.
 *
 * Owner: nothing changes hands. The mapped range stays and leads nowhere.
 * Threads: any.
 * Blocks: up to @timeout_ms for the peer to have everything (0: not at all), and until peers have
 * stopped accessing the memory.
 * Returns: 0; -HDL_ETIMEDOUT closed, but the peer may lack some of the stores; -HDL_EINVAL. */
HDL_API int hdl_aperture_close(struct hdl_aperture *aperture, int timeout_ms);

/* hdl_aperture_state - the state of an aperture
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: an enum hdl_aperture_state. */
HDL_API uint32_t hdl_aperture_state(const struct hdl_aperture *aperture);

/* hdl_aperture_reason - why the last connection was refused, ended or failed
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: an enum hdl_aperture_reason. */
HDL_API uint32_t hdl_aperture_reason(const struct hdl_aperture *aperture);

/* hdl_aperture_reason_str - a reason in words
 *
 * Owner: the text is static.
 * Threads: any.
 * Blocks: no.
 * Returns: the text, also for unknown values. */
HDL_API const char *hdl_aperture_reason_str(uint32_t reason);

/* hdl_aperture_own - the incoming side of an aperture, for another end
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL it offers nothing; -HDL_EACCES the application is not trusted. */
HDL_API int hdl_aperture_own(const struct hdl_aperture *aperture,
                             struct hdl_aperture_target *target);

/* The other end of an aperture, as CONNECT or ACCEPT told it. */
struct hdl_aperture_peer {
	struct hdl_gid host; /* taken from the carrier */
	uint64_t first;      /* what it grants: the first byte ... */
	uint64_t length;     /* ... and how many; 0: nothing */
	uint32_t index;      /* its in-index; of HDL_APERTURE_IP its UDP port */
	uint32_t type;       /* enum hdl_aperture_type */
	uint16_t port;       /* that ACCEPT named, for everything that follows; 0: none did */
	uint8_t bits;        /* of the size */
	uint16_t cluster;    /* its cluster address; 0: it has none, or is not believed */
};

/* hdl_aperture_peer - the other end of an aperture
 *
 * What the peer grants limits stores, reads and the mapped range.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EPERM it is not OPEN, nor pointed anywhere; -HDL_EINVAL. */
HDL_API int hdl_aperture_peer(const struct hdl_aperture *aperture, struct hdl_aperture_peer *peer);

/* hdl_aperture_point - point the outgoing side at another peer
 *
 * Sets destination, nonce and number of the outgoing entry (APERTURE column 13, step 6): no agent,
 * no new mapping. The mapped range stays where it is, and stands for the memory of the target from
 * now on: the pages themselves, if the target is on this machine and open to everybody who has the
 * nonce, tracked pages otherwise. Stores of before have been sent to the former peer; one that has
 * to have them needs a flush first. A connection that exists ends, and its peer is told.
 *
 * There is no connection to the target: nothing is acknowledged, and @target->checks without
 * HDL_CHECK_VALID, HDL_CHECK_SEQUENCE and HDL_CHECK_SOURCE is the only kind that is of use. Answers
 * to reads and loads go where the outgoing side of the target leads: if it is pointed at us and our
 * side is as open, they come; else a load of an unknown page returns zeroes after 0.4 s.
 *
 * Owner: @target is copied.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EACCES the application is not trusted; -HDL_EHOSTUNREACH no carrier leads to
 * @target->host yet (a connection to it makes one); -HDL_EINVAL the size is not that of the
 * mapping. */
HDL_API int hdl_aperture_point(struct hdl_aperture *aperture,
                               const struct hdl_aperture_target *target);

/* hdl_aperture_narrow - narrow what an aperture offers
 *
 * From now on peers may access only @length bytes from @offset on, at any alignment (APERTURE
 * column 17). Both are relative to the memory of hdl_aperture_open(); offsets of packets stay what
 * they were.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until peers have stopped accessing the memory.
 * Returns: 0; -HDL_EINVAL it exceeds the memory; -HDL_ENOTSUP peers of this machine may have mapped
 * the pages themselves: narrow an aperture before it is connected. */
HDL_API int hdl_aperture_narrow(struct hdl_aperture *aperture, uint64_t offset, uint64_t length);

/* hdl_aperture_trust - the level of trust that this process has
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until the node agent has answered, if no call of this header was made before.
 * Returns: an enum hdl_aperture_trust. */
HDL_API uint32_t hdl_aperture_trust(const struct hdl_adapter *adapter);

/* --- load and store --- */

/* hdl_aperture_map - map the memory of the peer
 *
 * Where the kernel allows it, the range is the peer's memory itself (same machine) or tracked pages
 * (elsewhere). Stores to it reach the peer, loads see its memory, with the semantics at the top of
 * this file. It can be mapped before the connection exists, with the size in @bits. The range stays
 * the same for as long as the aperture exists, whether its next peer is on this machine or not.
 * Mapping it again returns it, and its length, whatever @bits says then.
 *
 * How fresh it is: the peer's memory itself has no lag. Tracked pages show what the peer had at
 * most HDL_APERTURE_AGE_NS ago, or at the last hdl_aperture_refresh(); what is stored to them
 * arrives within HDL_APERTURE_LAG_NS, or at the next ordering point, without order among the
 * stores. System calls get EFAULT on them before hdl_aperture_prepare(). A load of a page that is
 * not known waits for it, two seconds at most, and then sees zeroes.
 *
 * An adapter can have 2^20 ranges, as many as apertures. What limits tracked ranges of a process is
 * the number of its mappings, 65,530 (vm.max_map_count in proc_sys_vm(5)). Ranges of one size that
 * are mapped one after the other share a mapping, and all of them a few descriptors; a range
 * between others that have been freed, and one that is the peer's memory itself, is a mapping of
 * its own. Where userfaultfd(2) is not allowed, a process has 1,024 tracked ranges.
 *
 * The range may be longer than what the peer grants (hdl_aperture_peer()). What is stored behind
 * that goes nowhere, and an ERROR with the reason EXTENT tells of it: when the packets come to the
 * peer, or, where the range is the peer's memory itself, at the next ordering point or
 * hdl_aperture_check(), by pages of 4,096 bytes.
 *
 * Of an aperture of type EVENT, the range is memory of this process. Each aligned word of 8 bytes
 * in it that has changed becomes an event when stores are collected, after HDL_APERTURE_LAG_NS at
 * most or at an ordering point: with the word's offset, and its 8 bytes as the value. So 32 bytes
 * are four events, in the order of their offsets, and so are more; several stores to one word
 * between two collections are one event, with the last value; and a store of what is there already
 * is none. hdl_aperture_store() raises an event for each call instead.
 *
 * An aperture of hdl_aperture_open_ip() cannot be mapped (APERTURE figure 12 does map one): a
 * datagram begins and ends somewhere, and nothing in stores tells where.
 *
 * Owner: the range belongs to the aperture.
 * Threads: any.
 * Blocks: no.
 * Returns: 0 and *out, *length; -HDL_EINVAL; -HDL_ENOTSUP it is of type IP; -HDL_ENOMEM no memory,
 * mapping or tracked range is left; -HDL_EIO no tracker works here. */
HDL_API int hdl_aperture_map(struct hdl_aperture *aperture, uint8_t bits, void **out,
                             uint64_t *length);

/* hdl_aperture_find - which aperture an address of a mapped range belongs to
 *
 * The lookup of APERTURE figures 4 and 5, in a table with a small associative one before it.
 * *offset is the offset in the peer's memory.
 *
 * What was stored to tracked pages is looked up in the same way when it is sent, each run of
 * bytes, and so is each page that a load fetches: lookup_hits and lookup_misses count them, too.
 * Where the range is the peer's memory itself, the processor alone translates, with its page tables
 * and the TLB before these.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the aperture; NULL: none. */
HDL_API struct hdl_aperture *hdl_aperture_find(struct hdl_adapter *adapter, const void *address,
                                               uint64_t *offset);

/* hdl_aperture_store - store bytes, whatever was there
 *
 * Sends @length bytes to @offset of the peer's memory, in order with other calls of this kind and
 * behind what a flush before it sent. The bytes leave at once or with the next ones.
 *
 * Owner: @data may be reused when the call returns.
 * Threads: any.
 * Blocks: while HDL_APERTURE_KEPT_BYTES are under way, up to @timeout_ms (0: not at all; -1:
 * forever).
 * Returns: 0; -HDL_EAGAIN no room, nothing was stored; -HDL_EPERM it is not OPEN, nor pointed
 * anywhere; -HDL_EINVAL it exceeds the aperture or the room for repetition; -HDL_EINTR. */
HDL_API int hdl_aperture_store(struct hdl_aperture *aperture, uint64_t offset, const void *data,
                               size_t length, int timeout_ms);

/* hdl_aperture_event - raise an event at the peer, behind all stores
 *
 * The port of the peer's end gets a data event with @offset and the bytes at @data. An ordering
 * point: when the peer takes the event, everything stored and flushed before is in place.
 *
 * Owner: @data may be reused when the call returns.
 * Threads: any.
 * Blocks: as hdl_aperture_store().
 * Returns: as hdl_aperture_store(); -HDL_EINVAL also for more than HDL_APERTURE_EVENT_BYTES. */
HDL_API int hdl_aperture_event(struct hdl_aperture *aperture, uint64_t offset, const void *data,
                               size_t length, int timeout_ms);

/* hdl_aperture_read - read the peer's memory
 *
 * Reads @length bytes from @offset of the peer's memory with read requests (APERTURE column 16),
 * behind the stores before. hdl_aperture_refresh() uses the same.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: up to @timeout_ms (-1: until the connection fails).
 * Returns: 0; -HDL_EACCES the peer grants no reading, or not there; -HDL_EPERM it is not OPEN,
 * nor pointed anywhere; -HDL_ETIMEDOUT; -HDL_EINVAL; -HDL_EINTR. */
HDL_API int hdl_aperture_read(struct hdl_aperture *aperture, uint64_t offset, void *data,
                              size_t length, int timeout_ms);

enum hdl_flush_level {
	HDL_FLUSH_SENT,  /* it has left this process */
	HDL_FLUSH_PLACED /* it is in the peer's memory (needs HDL_CHECK_SEQUENCE there) */
};

/* hdl_aperture_flush - send what has been stored
 *
 * An ordering point: what is stored before is in place before what is stored after.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: up to @timeout_ms (-1: until the connection fails) until @level is reached.
 * Returns: 0; -HDL_ETIMEDOUT; -HDL_EPERM the connection is not open any more; -HDL_ENOTSUP nothing
 * acknowledges this aperture; -HDL_EINVAL; -HDL_EINTR. */
HDL_API int hdl_aperture_flush(struct hdl_aperture *aperture, uint32_t level, int timeout_ms);

/* hdl_aperture_refresh - make loads see the present memory of the peer
 *
 * Bytes of the mapped range that we stored and have not sent yet stay as they are.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: up to @timeout_ms.
 * Returns: as hdl_aperture_read(). */
HDL_API int hdl_aperture_refresh(struct hdl_aperture *aperture, uint64_t offset, size_t length,
                                 int timeout_ms);

/* hdl_aperture_prepare - open mapped pages for system calls
 *
 * After it, read(2) into and write(2) from these bytes of the mapped range work until the next
 * flush, because the kernel does not meet protected pages. @write: they are going to be written.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until absent pages have been fetched, up to @timeout_ms (-1: until they have, or their
 * peer does not answer; then they are zero).
 * Returns: 0; -HDL_ETIMEDOUT some pages are not open yet, and are still being fetched; -HDL_EINVAL
 * the range has no such bytes. */
HDL_API int hdl_aperture_prepare(struct hdl_aperture *aperture, uint64_t offset, size_t length,
                                 bool write, int timeout_ms);

/* hdl_aperture_check - has everything since the last check arrived?
 *
 * Does not wait: a positive answer covers what a flush has sent. (SISCI: SCICheckSequence.) Errors
 * are those of the peer, of its agent, and of the carrier, at either end: an access that was
 * refused, a packet that was damaged and has no number, a frame that the system did not send.
 * Packets with numbers are repeated after the last two.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0 everything is in place; -HDL_EAGAIN some is under way; -HDL_EPERM the connection ended
 * and some may be lost; -HDL_EIO an error was reported since the last check, and
 * hdl_aperture_reason() tells which. */
HDL_API int hdl_aperture_check(struct hdl_aperture *aperture);

/* hdl_aperture_budget - limit what one turn writes
 *
 * From now on the adapter writes at most @bytes into the apertures of this process in one turn,
 * that is before it looks at its queue pairs, timers and other peers again; 0, the default: as much
 * as has come. So a peer that writes all the time takes a bounded part of the thread that drives
 * the adapter, and a program that polls gets it back.
 *
 * A write that exceeds what is left of the turn stalls (HDL_APERTURE_COUNTER_STALLS), and goes on
 * behind the bytes that are in place, as a new one, in the next turn (APERTURE column 18). What
 * follows waits: nothing behind a stalled write is acknowledged, accepted or answered before it,
 * whoever sent it. Frames that come meanwhile are held, 4 MiB of them; more get lost and, if they
 * have numbers, are repeated.
 *
 * Memory itself does not stall: a page that is absent (swapped out, or a userfaultfd(2) of the
 * program's own) is waited for in the middle of a turn.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no; until the node agent answers, if no call of this header was made before.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM. */
HDL_API int hdl_aperture_budget(struct hdl_adapter *adapter, uint32_t bytes);

/* hdl_aperture_alive - ask the peer whether it is alive
 *
 * Sends ALIVE (APERTURE column 13) and waits for ALIVEACK. ALIVE is repeated meanwhile, as packets
 * may get lost. The adapter of the peer answers, so the peer may be busy; one that is stopped, or
 * cannot be reached, does not answer. With @timeout_ms 0 the call returns as soon as ALIVE is on
 * its way; a port with HDL_SIGNAL_ALIVEACK gets an event when the answer comes.
 *
 * Connections that have nothing to send ask by themselves, and fail after five seconds without an
 * answer: this call is for programs that want to know earlier.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: up to @timeout_ms (0: not at all; -1: until the connection fails).
 * Returns: 0 the answer came or, with @timeout_ms 0, ALIVE was sent; -HDL_ETIMEDOUT no answer in
 * time, or the connection failed because there was none; -HDL_EPERM the aperture is not OPEN, or
 * its connection has ended meanwhile; -HDL_EINVAL; -HDL_EINTR. */
HDL_API int hdl_aperture_alive(struct hdl_aperture *aperture, int timeout_ms);

/* --- IP --- */

/* hdl_aperture_open_ip - an aperture whose stores become UDP datagrams
 *
 * hdl_aperture_store() at offset 0 (others are refused) sends its bytes as one datagram from UDP
 * port @own (0: any) of the node's address to @peer, UDP port @port; hdl_aperture_point() with the
 * address in host and the UDP port in index sends to another. A datagram that arrives from a source
 * that @attr->source and @attr->source_mask match goes to the variable queue of @attr->port. Any
 * program can be the peer.
 *
 * Owner: the caller owns *out and frees it with hdl_aperture_free().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_EADDRINUSE; -HDL_ENOTSUP the node has no network address
 * (HEDDLE_ADDR); -HDL_EACCES the application is not trusted; -HDL_ENOMEM. */
HDL_API int hdl_aperture_open_ip(struct hdl_adapter *adapter, const struct hdl_aperture_attr *attr,
                                 uint16_t own, const struct hdl_gid *peer, uint16_t port,
                                 struct hdl_aperture **out);

/* --- figures --- */

/* Counters of apertures, by adapter: hdl_aperture_counters(). */
#define HDL_APERTURE_COUNTERS(X)                                            \
	X(FRAMES_IN, "frames_in")                                           \
	X(FRAMES_OUT, "frames_out")                                         \
	X(PACKETS_IN, "packets_in")                                         \
	X(PACKETS_OUT, "packets_out")                                       \
	X(BYTES_IN, "bytes_in")                                             \
	X(BYTES_OUT, "bytes_out")                                           \
	X(WRITES, "writes") /* fewer than packets where they were joined */ \
	X(EVENTS_IN, "events_in")                                           \
	X(READS_SERVED, "reads_served")                                     \
	X(REPEATED, "repeated")                                             \
	X(DUPLICATES, "duplicates")                                         \
	X(STALLS, "stalls") /* writes that resumed, and events kept back */ \
	X(BAD_FRAMES, "bad_frames")                                         \
	X(BAD_CHECKSUM, "bad_checksum")                                     \
	X(BAD_CRC, "bad_crc")                                               \
	X(WRONG_CLUSTER, "wrong_cluster")                                   \
	X(NO_ENTRY, "no_entry")                                             \
	X(NOT_VALID, "not_valid")                                           \
	X(BAD_SEQUENCE, "bad_sequence")                                     \
	X(BAD_NONCE, "bad_nonce")                                           \
	X(BAD_LINK, "bad_link")                                             \
	X(BAD_SOURCE, "bad_source")                                         \
	X(BAD_EXTENT, "bad_extent")                                         \
	X(BAD_ACCESS, "bad_access")                                         \
	X(WRONG_WAY, "wrong_way") /* not through the agent, as it had to */ \
	X(CONNECTS, "connects")                                             \
	X(ACCEPTS, "accepts")                                               \
	X(REJECTS, "rejects")                                               \
	X(CLOSES, "closes")                                                 \
	X(ERRORS_IN, "errors_in")                                           \
	X(ERRORS_OUT, "errors_out")                                         \
	X(FAILED, "failed")                                                 \
	X(LOOKUP_HITS, "lookup_hits")                                       \
	X(LOOKUP_MISSES, "lookup_misses")
#define HDL_APERTURE_COUNTER_ENUM(name, text) HDL_APERTURE_COUNTER_##name,
enum hdl_aperture_counter {
	HDL_APERTURE_COUNTERS(HDL_APERTURE_COUNTER_ENUM) HDL_APERTURE_COUNTER_COUNT
};
#undef HDL_APERTURE_COUNTER_ENUM

/* hdl_aperture_counters - read the counters of an adapter's apertures
 *
 * Fills in up to @max elements of @list, in the order of enum hdl_aperture_counter.
 *
 * Owner: the names are static.
 * Threads: any.
 * Blocks: no.
 * Returns: the number of counters, which may exceed @max. */
HDL_API size_t hdl_aperture_counters(struct hdl_adapter *adapter, struct hdl_counter *list,
                                     size_t max);

/* --- apertures of other processes --- */

/* How packets of an aperture travel. */
enum hdl_aperture_carrier {
	HDL_CARRIER_NONE, /* it leads nowhere */
	HDL_CARRIER_LANE, /* shared memory, to a process of this machine */
	HDL_CARRIER_UDP,
	HDL_CARRIER_IP,      /* UDP datagrams of HDL_APERTURE_IP */
	HDL_CARRIER_FORWARD, /* UDP, through a forwarder: the program is not trusted */
	HDL_CARRIER_COUNT
};

/* What is behind a mapped range. */
enum hdl_aperture_range {
	HDL_RANGE_NONE, /* it is not mapped */
	HDL_RANGE_SAME, /* the pages of the peer */
	HDL_RANGE_TRACKED,
	HDL_RANGE_COUNT
};

/* An aperture as seen from another process: its rows of the incoming and of the outgoing table,
 * without the nonces. See hdl_aperture_observe(). */
struct hdl_aperture_info {
	uint32_t state;   /* enum hdl_aperture_state */
	uint32_t reason;  /* enum hdl_aperture_reason */
	uint32_t type;    /* enum hdl_aperture_type */
	uint32_t carrier; /* enum hdl_aperture_carrier */
	uint16_t port;    /* where its events go; 0: nowhere */
	/* Incoming. */
	uint32_t index;
	uint8_t bits;         /* of the size; 0: no memory is offered */
	bool connected;       /* HDL_CHECK_VALID */
	uint32_t access;      /* HDL_ACCESS_REMOTE_READ, _WRITE */
	uint32_t checks;      /* enum hdl_aperture_check_bit */
	uint32_t expected;    /* the next number */
	uint32_t nonce_every; /* rolling nonce; 0: it does not roll */
	uint64_t first, length;
	struct hdl_gid source, mask;
	uint16_t source_cluster, cluster_mask; /* HDL_CHECK_CLUSTER */
	/* Outgoing. */
	bool pointed; /* by hdl_aperture_point() or a store */
	bool sequenced;
	uint8_t out_bits;      /* 0: it leads nowhere */
	uint32_t out_index;    /* in-index at the peer; with HDL_APERTURE_IP a UDP port */
	uint32_t sequence;     /* of the next packet */
	uint32_t acknowledged; /* everything before this number has arrived */
	struct hdl_gid host;
	uint16_t cluster;               /* cluster address in the packets; 0: none */
	bool by_cluster;                /* it was connected by that address */
	uint64_t out_first, out_length; /* what the peer grants */
	uint32_t range;                 /* enum hdl_aperture_range */
	uint64_t address;               /* of the mapped range; 0: none */
};

/* A port as seen from another process. */
struct hdl_port_info {
	uint16_t number;
	uint32_t rules;
	uint32_t waiting, offers, open, rejected; /* as in struct hdl_port_status */
};

/* A process that has apertures or ports. */
struct hdl_aperture_process {
	char node[64]; /* empty: the machine's own */
	char program[64];
	struct hdl_gid gid; /* the first address of the node */
	int pid;
	uint32_t slot;    /* the high bits of its indices */
	uint16_t cluster; /* its cluster address; 0: none */
	bool seen;        /* false: the system does not let us read it, and what follows is empty */
	uint32_t trust;   /* enum hdl_aperture_trust */
	size_t count;
	struct hdl_aperture_info *apertures; /* by index */
	size_t port_count;
	struct hdl_port_info *ports; /* by number */
	struct hdl_counter counters[HDL_APERTURE_COUNTER_COUNT];
};

/* hdl_aperture_observe - look at the apertures of every process
 *
 * Asks the node agent of this user who is there, and reads the tables out of the memory of each
 * process, as hdl_observe() does. Does not start an agent, and disturbs nobody. Rows are read one
 * after the other, not all at the same moment.
 *
 * Owner: the caller owns *list and ends it with hdl_aperture_observe_free().
 * Threads: any.
 * Blocks: until the agent has answered, two seconds at most; a million apertures take seconds more.
 * Returns: 0; -HDL_EHOSTUNREACH no agent runs; -HDL_EINVAL; -HDL_ENOMEM; -HDL_EIO. */
HDL_API int hdl_aperture_observe(struct hdl_aperture_process **list, size_t *count);

/* hdl_aperture_observe_free - free the result of hdl_aperture_observe()
 *
 * Owner: @list is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: nothing. */
HDL_API void hdl_aperture_observe_free(struct hdl_aperture_process *list, size_t count);

#ifdef __cplusplus
}
#endif

#endif
