/* Connections between apertures (APERTURE columns 11 to 13, 16 to 18). Packets come in with
 * ap_take(), go out through struct ap_sink; time, memory and random numbers are the caller's.
 *
 *   ap/conn.c   states: CONNECT, ACCEPT, REJECT, CLOSE
 *   ap/time.c   what time does to them; ALIVE
 *   ap/error.c  ERROR, giving up, carriers that fail
 *   ap/port.c   ports: rules, CONNECTs that wait, apertures made in advance, STATUS
 *   ap/tx.c     what was stored becomes numbered packets, several to a frame, repeated until
 *               acknowledged
 *   ap/rx.c     packets that come in: checked, joined, written; events, reads
 *
 * One ap_node per adapter, one ap_conn per end of a connection:
 *
 *   CLOSED --ap_connect()--> CONNECTING --ACCEPT--> OPEN --ap_close()--> CLOSING --CLOSE--> CLOSED
 *     |                         '--REJECT, time--> CLOSED  '--CLOSE--> CLOSED
 *     '--ap_accept(), a rule--> OPEN                       '--silence, link down--> FAILED
 *
 * Lost, doubled, late and crossing packets are harmless: CONNECT and CLOSE are repeated until they
 * are answered; a repeated CONNECT is recognized by the nonce that it offers, and answered like the
 * first; an answer that nobody waits for changes nothing. A packet of an earlier connection has its
 * nonce, and is dropped.
 *
 * Numbers: data, events, reads and responses count. The receiver accepts the expected number only.
 * A gap draws one ERROR with the expected number, and the sender goes back to it; so does a packet
 * that was damaged on its way, if its header is whole. ALIVEACK carries the number, too: it answers
 * every packet with CI_ASK, and ALIVE, whose own number it repeats. Where the other end checks no
 * numbers, packets have none and are forgotten when they are sent.
 *
 * Trust: where one end is not trusted, the path is managed. Its out-of-band packets travel through
 * the node agent, which knows the numbers of the untrusted end and passes on what agrees with them;
 * on the lane they are dropped. Data, and what acknowledges it, stays on the lane. */
#ifndef TRANSPORT_AP_H
#define TRANSPORT_AP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <heddle/aperture.h>

#include "base/bitmap.h"
#include "base/siphash.h"
#include "base/timer.h"
#include "memory/incoming.h"
#include "memory/outgoing.h"
#include "memory/tpt.h"
#include "transport/copy.h"
#include "transport/window.h"
#include "wire/ci.h"

#define AP_CONNECT_FIRST_NS 100000000ull  /* until CONNECT is repeated; doubles ... */
#define AP_CONNECT_MOST_NS  1000000000ull /* ... up to this */
#define AP_CONNECT_NS       8000000000ull /* then it is given up */
#define AP_WAITING_NS       3000000000ull /* a CONNECT that is not repeated this long is gone */
#define AP_TIMEOUT_NS       400000000ull  /* after which an answer is missing for certain */
#define AP_SILENT_NS        5000000000ull /* without a sign of life: the peer has gone */
#define AP_CLOSE_NS         100000000ull  /* until CLOSE is repeated */
#define AP_CLOSE_TRIES      10u
#define AP_ASK_PARTS        4u /* an acknowledgement is asked for so often in a window */
#define AP_HASH             1024u
#define AP_TICKETS          4096u /* kinds of tickets, see struct ap_node */
#define AP_TICKET_TRIES     16u   /* with other tickets; then CONNECT is given up */
#define AP_MAX_PUT          (HDL_APERTURE_KEPT_BYTES / 2)
#define AP_AGENT_BYTES      256u /* of a frame that travels through the agent */

/* What the timer of a connection waits for. As long as that is the same thing, the timer runs on:
 * whatever else the peer says meanwhile does not put it off. */
enum ap_timer {
	AP_TIMER_NONE,
	AP_TIMER_CONNECT, /* an answer to CONNECT */
	AP_TIMER_PACE,    /* the next packet is allowed */
	AP_TIMER_DATA,    /* an acknowledgement of the oldest packet */
	AP_TIMER_CLOSE,   /* an answer to CLOSE */
	AP_TIMER_IDLE     /* a sign of life */
};

/* Where packets of one peer go, and come from. @host is what the carrier says, in one spelling. */
struct ap_path {
	uint32_t route; /* the carrier's: which link, which socket */
	uint32_t epoch; /* of the link: another process may have its number now */
	uint32_t frame_bytes;
	bool has_link;
	bool managed;  /* an end is not trusted: out-of-band packets travel through the agent */
	bool by_agent; /* of a frame on a managed path: it came, or goes, that way */
	bool replays;  /* a network: frames may come late, twice, or again from somebody else */
	/* The cluster address of the host; 0: none is known. */
	uint16_t cluster;
	bool cluster_known; /* by the carrier: what the host says of itself does not count */
	bool by_cluster;    /* that is how the host was named */
	uint8_t link[INCOMING_LINK_BYTES];
	uint8_t host[16];
	uint64_t idle_ns; /* between two ALIVEs of a connection that has nothing to send */
};

/* What a port's queue gets. */
struct ap_event {
	uint8_t kind;    /* enum ci_kind; CI_EVENT: data delivery */
	uint8_t element; /* of CI_ERROR: enum ci_element */
	uint16_t reason;
	uint32_t index;  /* our own entry */
	uint64_t offset; /* of CI_EVENT */
	uint64_t id;     /* of CI_CONNECT: the one that waits */
	uint32_t bytes;
	uint8_t data[CI_EVENT_BYTES];
	uint8_t source[16];
	struct ap_conn *conn; /* NULL: none */
};
enum ap_delivered { AP_PLACED, AP_FULL, AP_NO_QUEUE };

struct ap_node;
struct ap_conn;
struct ap_port;

/* The callbacks must not call back. */
struct ap_sink {
	/* Room for a frame of at most @bytes on @path; NULL: none at the moment. */
	uint8_t *(*reserve)(void *context, const struct ap_path *path, size_t bytes);
	/* What was reserved last is now a frame of @bytes. */
	void (*commit)(void *context, const struct ap_path *path, size_t bytes);
	/* @conn has another state. */
	void (*changed)(void *context, struct ap_conn *conn);
	/* AP_FULL: it is kept back, which holds for CI_EVENT only; others are lost. */
	enum ap_delivered (*event)(void *context, struct ap_port *port,
	                           const struct ap_event *event);
	/* Data that was asked for with @token has come. */
	void (*response)(void *context, struct ap_conn *conn, uint32_t token, uint64_t offset,
	                 const uint8_t *data, uint32_t bytes);
	/* Data was written to the memory of @conn. NULL: nobody wants to know. */
	void (*placed)(void *context, struct ap_conn *conn);
	/* How many events wait in the queue of @port, and whether its application sleeps. NULL: no
	 * port has a queue. */
	void (*look)(void *context, const struct ap_port *port, uint32_t *events,
	             uint32_t *blocked);
	/* The reply to a STATUS. */
	void (*status)(void *context, struct ap_conn *conn, const struct ci_status *status);
};

/* A CONNECT that waits for the application. */
struct ap_waiting {
	struct ap_waiting *next;
	uint64_t id;
	uint64_t heard_ns;
	struct ci_offer offer;
	struct ap_path from;
	uint8_t rule; /* 1 plus the number of the rule; 0: none matched */
};

struct ap_port {
	struct ap_port *hash_next;
	uint16_t number;
	uint32_t rule_count;
	struct hdl_port_rule rules[HDL_MAX_PORT_RULES];
	uint32_t by_rule[HDL_MAX_PORT_RULES + 1]; /* connections */
	struct ap_waiting *waiting, *free_waiting;
	uint32_t waiting_count;
	uint32_t waiting_most; /* set by ap_port_open(), and perhaps less by the owner */
	uint64_t next_id;
	struct ap_conn *offers, **offers_end;
	uint32_t offer_count;
	uint32_t open, rejected;
	uint32_t signals; /* enum hdl_port_signal: packets that are events here */
	void *owner;
	struct ap_waiting room[HDL_MAX_PORT_WAITING];
};

/* Does @from, where a packet came from, lead to the peer of @path? */
static inline bool ap_same_path(const struct ap_path *path, const struct ap_path *from)
{
	return path->route == from->route && path->epoch == from->epoch;
}

_Static_assert(CI_REASON_SEQUENCE == HDL_REASON_SEQUENCE && CI_REASON_DAMAGED == HDL_REASON_DAMAGED,
               "see ci_is_out_of_band()");
_Static_assert(CI_REASON_TICKET == HDL_REASON_TICKET, "of a REJECT that is no end");

/* Is it open, as far as this end knows? */
static inline bool ap_is_connected(uint8_t state)
{
	return state == HDL_APERTURE_OPEN || state == HDL_APERTURE_CLOSING;
}

/* A packet that may have to be sent again. */
struct ap_kept {
	uint32_t offset;
	uint32_t at, end; /* of its bytes, free-running */
	uint16_t bytes;
	uint8_t kind;
};

struct ap_conn {
	struct ap_node *node;
	uint8_t state; /* enum hdl_aperture_state */
	uint8_t reason;
	uint8_t element;  /* enum ci_element: who found it, if it is an error */
	bool pointed;     /* by hand: there is no connection, but packets may be sent */
	bool accepting;   /* this end accepted */
	bool asks_status; /* STATUS was sent, and neither STATUSACK nor REJECT came */
	bool is_active;   /* in node->active */
	bool ack_due;     /* ALIVEACK, for data */
	bool alive_due;   /* ALIVEACK, for ALIVE */
	uint8_t gap_due;  /* ERROR with the expected number: its reason */
	bool gap_told;    /* and it was sent; nothing was accepted since */
	bool unsent;      /* the carrier did not take a frame; nothing was heard since */
	bool held;        /* a packet was kept back: a gap is no loss */
	bool awaiting;    /* an answer is due, since heard_ns */
	bool own_source;  /* the owner chose source and mask of conn->in; else: the peer's */
	bool own_link;    /* the same for its link address */
	bool own_cluster; /* and for its cluster address */
	uint32_t row;     /* in node->rows */
	struct hdl_aperture_fixed *in;  /* what the application can only read ... */
	struct hdl_aperture_user *user; /* ... and what it may write: heddle/control.h */
	struct nonce roll;              /* of the nonce of @user */
	struct outgoing *out, plain;    /* plain: one without a base */
	struct ci_offer own;            /* as CONNECT and ACCEPT say it */
	struct ci_offer peer;
	struct ap_path path;
	uint16_t to_port; /* the port that CONNECT names, or ACCEPT gave */
	uint64_t ticket;  /* of CONNECT; 0: none yet */
	uint32_t tickets; /* that it got */
	/* Where its events go; the port it is offered to; the one it was accepted by, with a rule.
	 * */
	struct ap_port *port, *offered_to, *accepted_by, *new_port;
	struct ap_conn *offer_next, *active_next, *hash_next;
	uint8_t rule;

	/* Sending. una <= cursor <= next; sent is one past the last that was ever sent. */
	uint32_t una, cursor, sent, next;
	uint32_t since_ask;
	struct window window;
	/* The memory of the owner; NULL: nothing can be sent. Positions are free-running. */
	struct ap_kept *kept; /* HDL_APERTURE_KEPT */
	uint8_t *bytes;       /* HDL_APERTURE_KEPT_BYTES */
	uint32_t head, tail;
	uint64_t errors;  /* that were reported, other than what is repaired */
	uint64_t refused; /* of these: accesses that the peer did not allow, or could not make */

	/* Time. */
	struct timer_node timer;
	uint64_t timer_ns;    /* for how long it was started */
	uint64_t timer_since; /* and since what: of the same thing, this differs */
	uint8_t timer_of;     /* enum ap_timer */
	/* AP_TIMER_DATA: since when for this oldest packet; AP_TIMEOUT_NS at most, for which what
	 * is sent may put it off. */
	uint64_t timer_first_ns;
	uint64_t heard_ns; /* the last sign of life */
	uint64_t stuck_ns; /* since when the carrier has had no room; 0: it has */
	uint64_t began_ns; /* of the state */
	uint32_t tries;
	/* Numbers of ALIVEs: the last that was sent, that was answered, that we have to answer. */
	uint32_t asks, lives, alive_number;
	void *owner;
};

struct ap_node {
	struct tpt *tpt;
	uint32_t pd; /* of the entries of apertures */
	const struct own_memory *own;
	struct hdl_aperture_fixed *rows;
	struct hdl_aperture_user *users; /* by row, and so are ... */
	struct ap_conn **conns;
	struct bitmap row_map;
	uint32_t row_count, next_row;
	uint32_t slot; /* of our process */
	/* Our cluster address; 0: none. It is the first of 2^lid_bits, which are all ours. */
	uint16_t lid, lid_bits;
	uint64_t now_ns;
	struct timer_wheel wheel;
	struct ap_conn *active, **active_end;
	struct ap_conn *by_nonce[AP_HASH]; /* accepted connections, by the peer's nonce */
	struct ap_port *ports[AP_HASH];
	/* CONNECT from a network is accepted once, though copies of it may come at any time: it
	 * needs a ticket, which the first REJECT gives. The ticket is a digest of who offers what
	 * and of the count of its kind, which grows when one of that kind has been used; so it is
	 * used once. Nothing has to be remembered of tickets that are handed out, nor for how long.
	 * Another offer of the same kind, which also becomes invalid, gets a new ticket.
	 * @secret: two random numbers; the owner sets them. */
	uint64_t secret[2];
	struct {
		uint64_t taker; /* digest of the offer that used the last one */
		uint32_t count;
	} tickets[AP_TICKETS];
	const struct ap_sink *sink;
	void *context;
	uint64_t counters[HDL_APERTURE_COUNTER_COUNT];

	/* The frame that is being filled. */
	struct ci_writer writer;
	struct ap_path writer_path;
	uint32_t writer_slot;
	bool writing;

	/* What is being received: one burst, and the rest of its frame. */
	uint32_t write_budget; /* bytes that may be written in a turn; 0: any number */
	uint32_t write_left;
	bool stalled;
	struct ci_burst burst;
	struct ap_conn *burst_conn;
	struct ci_reader reader;
	struct ap_path from;
	uint8_t held[CI_MAX_FRAME];
};

/* @rows, @users and @conns have @row_count elements, @map BITMAP_WORDS(@row_count); all are zero.
 * The application may write @users at any time. */
void ap_node_init(struct ap_node *node, struct hdl_aperture_fixed *rows,
                  struct hdl_aperture_user *users, struct ap_conn **conns, uint64_t *map,
                  uint32_t row_count, uint64_t now_ns);
static inline void ap_count(struct ap_node *node, enum hdl_aperture_counter counter, uint64_t by)
{
	node->counters[counter] += by;
}

/* --- conn.c --- */
/* Give @conn, which is zero but for owner, kept and bytes, a row. False: there is none. The caller
 * sets type, bits, checks and key of conn->in, and conn->own but for index, nonce and sequence. */
bool ap_open(struct ap_node *node, struct ap_conn *conn);
/* New numbers for the next connection; both random, unless the application chose them. */
void ap_arm(struct ap_conn *conn, uint64_t nonce, uint32_t sequence);
void ap_free(struct ap_conn *conn);
void ap_connect(struct ap_conn *conn, const struct ap_path *path, uint16_t port);
/* Send nothing more than what is under way, then CLOSE; @abrupt: at once, and without waiting for
 * an answer. */
void ap_close(struct ap_conn *conn, bool abrupt);
/* Set the state, and tell. */
void ap_enter(struct ap_conn *conn, uint8_t state, uint8_t reason, uint8_t kind);
static inline void ap_set_state(struct ap_conn *conn, uint8_t state)
{
	conn->state = conn->in->state = state;
}
/* An event of @kind for the port of @conn; 0: none. */
void ap_tell(struct ap_conn *conn, uint8_t kind, uint8_t reason);
/* The outgoing side leads nowhere any more. */
void ap_unpoint(struct ap_conn *conn);
/* Become OPEN towards the end that @offer describes, at @path. */
void ap_begin(struct ap_conn *conn, const struct ci_offer *offer, const struct ap_path *path);
/* Point the outgoing side at @offer, without a connection; one that exists ends. */
void ap_point(struct ap_conn *conn, const struct ci_offer *offer, const struct ap_path *path);
/* The path that CONNECT, ACCEPT or STATUS came by, with the cluster address of its sender: it is in
 * the offset, which they have no other use for. Ends that know of none say 0. */
static inline struct ap_path ap_path_said(const struct ap_path *from,
                                          const struct ci_packet *packet)
{
	struct ap_path path = *from;
	if (!path.cluster_known && !path.managed)
		path.cluster = (uint16_t)packet->offset;
	return path;
}
/* Has the application stored another destination, which has not taken effect? */
static inline bool ap_is_redirected(const struct ap_conn *conn)
{
	return __atomic_load_n(&conn->user->generation, __ATOMIC_ACQUIRE) != conn->in->generation;
}
/* Use @out, an entry of the outgoing table, from now on; NULL: none. */
void ap_use(struct ap_conn *conn, struct outgoing *out);
void ap_hear_control(struct ap_conn *conn, const struct ci_packet *packet,
                     const struct ap_path *from);
/* An accepted connection whose peer offered this; NULL: none. */
struct ap_conn *ap_by_offer(struct ap_node *node, const struct ci_offer *offer,
                            const struct ap_path *from);
void ap_send_connect(struct ap_conn *conn);
/* @ask: it is a request, which is repeated until it is answered; answers are not answered. */
void ap_send_close(struct ap_conn *conn, bool ask);

/* --- time.c --- */
/* Run what is due at @now_ns; and when it has to be called next. */
unsigned ap_tick(struct ap_node *node, uint64_t now_ns);
uint64_t ap_next_tick(const struct ap_node *node);
/* Start or move the timer of @conn for what it waits for. */
void ap_set_timer(struct ap_conn *conn);
/* Send ALIVE on @conn, which is connected. If the peer has owed an answer for AP_SILENT_NS, the
 * connection fails instead: frequent questions do not keep it alive. */
void ap_ask_alive(struct ap_conn *conn);

/* --- error.c --- */
/* @conn ends because of @reason, which @element (enum ci_element) found. */
void ap_fail(struct ap_conn *conn, uint8_t element, uint8_t reason);
/* The same, and the peer is told once: it may live, and would wait for AP_SILENT_NS. */
void ap_give_up(struct ap_conn *conn, uint8_t element, uint8_t reason);
/* The process at the other end of the link @route has gone: its connections fail, and its CONNECTs
 * that wait are dropped. */
void ap_route_down(struct ap_node *node, uint32_t route);
/* The carrier of @route cannot transmit any more: its connections fail. False: there were none. */
bool ap_carrier_down(struct ap_node *node, uint32_t route);
/* An error that does not end @conn: tell the owner and the port. */
void ap_report(struct ap_conn *conn, uint8_t element, uint8_t reason);
/* The carrier of @route did not take a frame to @host, and may take it again later. Connections
 * stay as they are; their owners get an event, once until the peer is heard. With @frame, the
 * beginning of the frame, this concerns the connection that sent it, else all to that host. */
void ap_unsent(struct ap_node *node, uint32_t route, const uint8_t host[16], const uint8_t *frame,
               size_t bytes);
/* The agent has gone, and with it what it held of ends that are not trusted: connections on
 * managed paths fail. */
void ap_managed_down(struct ap_node *node);
/* A frame of ours came back from @host, or from a router on the way there; its beginning proves it.
 * @gone: nobody takes it, and the connections that send such frames have failed; else the way is
 * interrupted, and they repeat it. True: there is such a connection. */
bool ap_returned(struct ap_node *node, const uint8_t host[16], const uint8_t *frame, size_t bytes,
                 bool gone);
void ap_hear_error(struct ap_conn *conn, const struct ci_packet *packet);

/* --- port.c --- */
void ap_port_open(struct ap_node *node, struct ap_port *port, uint16_t number);
void ap_port_close(struct ap_node *node, struct ap_port *port);
struct ap_port *ap_port_find(const struct ap_node *node, uint16_t number);
void ap_offer(struct ap_port *port, struct ap_conn *conn);
void ap_withdraw(struct ap_conn *conn);
struct ap_waiting *ap_waiting_find(struct ap_port *port, uint64_t id);
/* Accept @waiting, which is free afterwards. False: the types differ; it was rejected. */
bool ap_accept(struct ap_port *port, struct ap_waiting *waiting, struct ap_conn *conn);
void ap_reject(struct ap_node *node, struct ap_port *port, struct ap_waiting *waiting,
               uint8_t reason);
/* Drop the CONNECTs that came on @route, which has gone: to accept one would open a connection that
 * nobody ends. */
void ap_ports_forget(struct ap_node *node, uint32_t route);
void ap_hear_port(struct ap_node *node, const struct ci_packet *packet, const struct ap_path *from);
/* Ask port @number for its status; the reply goes to @conn. */
void ap_ask_status(struct ap_conn *conn, const struct ap_path *path, uint16_t number,
                   uint32_t token);
/* @conn, accepted by a port, has ended. */
void ap_port_left(struct ap_conn *conn);
/* Send ACCEPT for @conn. */
void ap_send_accept(struct ap_conn *conn);

/* --- tx.c --- */
/* Send a packet that is not numbered, in a frame with others. False: no room. */
bool ap_send(struct ap_node *node, const struct ap_path *path, const struct ci_packet *packet);
bool ap_send_note(struct ap_conn *conn, uint8_t kind, const struct ci_note *note);
/* Queue @bytes for @offset: as CI_DATA in as many packets as needed, else one. False: no room;
 * nothing has changed. */
bool ap_put(struct ap_conn *conn, uint8_t kind, uint64_t offset, const void *data, uint32_t bytes);
/* Bytes of one CI_DATA packet. */
uint32_t ap_piece(const struct ap_conn *conn);
void ap_activate(struct ap_conn *conn);
/* Start again with the numbers of conn->out. */
void ap_restart(struct ap_conn *conn);
/* Everything before @number has arrived; @again: and nothing after it: go back. */
void ap_acked(struct ap_conn *conn, uint32_t number, bool again);
/* Nothing was answered for long. */
void ap_sent_timeout(struct ap_conn *conn);
static inline bool ap_all_acked(const struct ap_conn *conn)
{
	return conn->una == conn->next;
}
/* Is something unanswered? */
static inline bool ap_unanswered(const struct ap_conn *conn)
{
	return conn->out->sequenced && conn->una != conn->sent;
}
/* Does the outgoing side lead to the end that CONNECT or ACCEPT named? */
static inline bool ap_knows_peer(const struct ap_conn *conn)
{
	return conn->peer.index != 0 && conn->out->index == conn->peer.index;
}
/* Send what waits. Returns how much was done. */
unsigned ap_run(struct ap_node *node);
/* Is there something for ap_run() to do? */
static inline bool ap_waits(const struct ap_node *node)
{
	return node->active != NULL || node->writing || node->stalled;
}

/* --- rx.c --- */
/* May ap_take() be called? Not while a write is stalled. */
static inline bool ap_may_take(const struct ap_node *node)
{
	return !node->stalled;
}
/* A frame has come. */
void ap_take(struct ap_node *node, const uint8_t *frame, size_t bytes, const struct ap_path *from);
/* A turn begins: write_budget bytes may be written again, and a stalled write goes on. */
void ap_turn(struct ap_node *node);
/* @conn is no longer connected: what is left of its burst is dropped. */
void ap_drop_burst(struct ap_conn *conn);

#endif
