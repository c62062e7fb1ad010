/* The worlds of the 'adapters' and 'wire' scenarios: up to eight adapters in one thread on virtual
 * time, what they are made to do, and what the checker knows of it. In the one they are joined by
 * lanes, in the other they reach each other by packets through a network that is not kind to them.
 * In those of 'streams' each connection runs on a byte stream (iWARP), in those of 'messages' on
 * messages in any order (iWARP on SCTP).
 *
 *   host      an adapter with its domains, completion queues and shared receive queues; a dead one
 *             makes room for a new one
 *   root      a block of memory with a shadow that says what every byte of it must be
 *   opening   a region or window: a key that opens a range of a root
 *   wqp       a queue pair; two of them and their successive connections (epochs) are a conn
 *   request   a posted work request; its claims say which ranges it may read or change while it is
 *             in flight
 *
 * The rule that makes every byte predictable: no request is posted that may change a range on
 * which another one that is in flight has a claim. So at any time a byte is what the shadow says,
 * or what the one request that claims it brings. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "scenario.h"

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "base/prng.h"
#include "cable/cable.h"

#define WORLD_MAX_HOSTS    12u /* alive and dead */
#define WORLD_MAX_PDS      2u
#define WORLD_MAX_CQS      3u
#define WORLD_MAX_SRQS     2u
#define WORLD_MAX_QPS      96u
#define WORLD_MAX_CONNS    48u
#define WORLD_MAX_ROOTS    128u
#define WORLD_MAX_OPENINGS 1024u
#define WORLD_MAX_REQUESTS 4000u
#define WORLD_MAX_KEYS     4096u
#define WORLD_MAX_PIECES   4u
#define WORLD_MAX_PAGES    32u
#define WORLD_MAX_EPOCHS   16u
#define WORLD_MAX_WORDS    16u   /* atomic words of a root */
#define WORLD_CQ_DEPTH     8192u /* more than all that can be posted */
#define WORLD_PAGE         4096u
#define WORLD_LOAD_NS      2000000u /* the workload starts nothing new after this */
#define WORLD_SETTLE_NS    1000000000u
#define WORLD_LARGE        1200000u /* bytes of the largest message: more than one copy moves */
#define WORLD_UD_MAX       512u     /* bytes of a datagram that is meant to arrive */
#define WORLD_QKEY         0x1234u
#define WORLD_PACKETS      512u       /* that the network holds at a time */
#define WORLD_PSN_STEP     (1u << 20) /* from one connection of a queue pair to its next */

enum world_network {
	WORLD_LANES,
	WORLD_WIRE,
	WORLD_STRIPED, /* reliable connections have two paths */
	WORLD_STREAMS, /* reliable connections are byte streams */
	WORLD_MESSAGES /* or streams of messages that arrive in any order */
};

/* What goes wrong in a world, besides delays. Each seed picks some. */
enum world_fault {
	FAULT_KILL = 1 << 0,       /* adapters die, and perhaps come back as new ones */
	FAULT_OVERRUN = 1 << 1,    /* completion queues that are too small */
	FAULT_DEREGISTER = 1 << 2, /* regions and windows go away under requests in flight */
	FAULT_UNMAP = 1 << 3,      /* registered memory is unmapped */
	FAULT_STATE = 1 << 4,      /* queue pairs are moved to ERR and RESET and connected again */
	FAULT_DESTROY = 1 << 5,    /* queue pairs are destroyed */
	FAULT_LATE = 1 << 6,       /* one side is ready long after the other */
	FAULT_BAD = 1 << 7,        /* requests that must be refused by the checks */
	FAULT_SHORT = 1 << 8,      /* receives that are too small */
	FAULT_RETRY = 1 << 9,      /* few retries, short timeouts, long stalls */
	FAULT_ALL = (1 << 10) - 1,
	FAULT_PARTITION = 1 << 10, /* of the wire: a host is cut off from the others for a while */
	/* Of streams: */
	FAULT_CUT = 1 << 11,    /* they break, at once or after some byte */
	FAULT_DAMAGE = 1 << 12, /* a bit changes on the way, unseen by TCP */
	FAULT_CLOSE = 1 << 13,  /* one end closes in order */
	FAULT_STREAMS = FAULT_CUT | FAULT_DAMAGE | FAULT_CLOSE
};

/* What comes before its turn, or breaks the rules, in worlds of messages. */
enum message_case {
	MESSAGE_EARLY_SEND,
	MESSAGE_EARLY_WRITE,
	MESSAGE_EARLY_LAST,     /* the last segment of a write */
	MESSAGE_EARLY_TOUCH,    /* the same, to memory that is touched once: table D */
	MESSAGE_EARLY_REQUEST,  /* a Read Request, for the read resource queue */
	MESSAGE_EARLY_RESPONSE, /* of a read */
	MESSAGE_EARLY_ATOMIC,
	MESSAGE_TWICE,   /* a number that came before */
	MESSAGE_FAR_OFF, /* a number that nobody waits for */
	MESSAGE_CASES
};

/* How often things happened, over many worlds. */
struct world_tally {
	uint64_t statuses[HDL_WC_STATUS_COUNT];
	uint64_t done[HDL_QP_XRC_TGT]
	             [HDL_OP_COUNT]; /* successes by type of queue pair and opcode */
	uint64_t received[HDL_QP_XRC_TGT];
	uint64_t events[HDL_EVENT_TYPE_COUNT];
	uint64_t faults[32]; /* by bit of enum world_fault */
	uint64_t messages[MESSAGE_CASES];
};

struct world;
struct request;
struct opening;

/* One range of a root that a request reads or changes. */
struct claim {
	struct claim *next; /* of the same root */
	struct request *request;
	struct opening *via;
	struct root *root; /* NULL: released */
	uint32_t at, bytes;
	uint32_t data_at; /* where its bytes are in request->data */
	bool write;
	bool settled;    /* the opening went away: nothing changes any more */
	bool was_placed; /* settled: everything was in place then */
};

struct root {
	struct host *host;
	uint8_t *memory, *shadow;
	uint32_t bytes;  /* of both; the root proper is a part of it, the rest are guards */
	uint32_t length; /* logical */
	uint32_t first;  /* in the first page, or in the block if there is no list */
	uint32_t page_count;
	uint32_t pages[WORLD_MAX_PAGES]; /* which page of the block comes when; none: contiguous */
	bool gone;                       /* unmapped */
	bool atomic;                     /* words for atomics, judged by world_atomics.c */
	struct claim *claims;
};

enum opening_kind { OPENING_RUN, OPENING_PAGES, OPENING_SHARED, OPENING_FAST, OPENING_WINDOW };
enum opening_state {
	OPENING_EMPTY,  /* allocated, opens nothing */
	OPENING_POSTED, /* a bind or registration is posted */
	OPENING_VALID,
	OPENING_CLOSING, /* an invalidation is posted */
	OPENING_DEAD
};

struct opening {
	struct host *host;
	struct root *root;
	enum opening_kind kind;
	enum opening_state state;
	uint32_t at, length; /* in the root */
	uint64_t base;       /* the address of its first byte as requests name it */
	uint32_t access;
	uint32_t pd;
	struct hdl_key key;
	struct hdl_mr *mr;
	struct hdl_mw *mw;
	uint32_t mw_type;
	struct opening *parent; /* window: its region */
	struct wqp *only;       /* type 2: the queue pair that bound it */
	uint32_t windows;       /* region: windows that are or may be bound to it */
	uint32_t generation;    /* how often its key became stale */
	bool touched;           /* one-touch: a request was aimed at it */
	bool gone;
};

/* Why a queue pair may fail. */
enum world_reason {
	REASON_BAD = 1 << 0,
	REASON_STATE = 1 << 1,
	REASON_PEER = 1 << 2,
	REASON_MEMORY = 1 << 3,
	REASON_SHORT = 1 << 4,
	REASON_RETRY = 1 << 5,
	REASON_OVERRUN = 1 << 6
};

/* Requests of one queue, in the order they were posted. */
struct line {
	struct line *next; /* of the world, to be freed */
	uint32_t *ids;
	uint32_t head, count, capacity;
	uint32_t confirmed; /* on a stream: those before it have been executed by the peer */
	bool failed;        /* a request failed: what follows is flushed */
	bool refused;       /* in such a way that nothing behind it was executed */
	bool closed;        /* the queue was reset or destroyed: what is left never completes */
	bool lossy;         /* its completions may be lost to an overrun */
};

/* What one side of a connection sent during an epoch, and how much of it the other side has seen
 * received. */
struct stream {
	uint32_t *ids;
	uint32_t count, capacity, taken;
	bool lossy; /* the receiver died, or its completion queue was overrun */
	bool gaps;  /* the sender goes on after a message that it could not send */
};

struct conn {
	struct wqp *side[2];
	uint32_t epoch;
	bool dead;
	bool pending; /* the second side is not ready yet */
	uint32_t psn[2];
	uint16_t mtu;
	struct stream streams[WORLD_MAX_EPOCHS][2];
	struct byte_stream *bytes; /* of this epoch; NULL: it has none */
	bool damaged[WORLD_MAX_EPOCHS];
};

struct wqp {
	struct host *host;
	struct hdl_qp *qp; /* NULL: destroyed */
	uint32_t number, pd, type;
	struct conn *conn; /* all but UD */
	uint32_t side;
	struct wcq *send_cq, *recv_cq;
	struct wsrq *srq;
	struct hdl_qp_cap cap;
	uint32_t max_message;
	uint32_t rd_atomic, timeout, retry_cnt, rnr_retry;
	bool signal_all, registers, windows_only, drains;
	bool streamed; /* on a byte stream: that it is sent does not say that it has arrived */
	bool clean;    /* at the end: nothing went wrong, so everything has arrived */
	uint32_t access;
	uint32_t reasons;
	uint32_t last_epoch;       /* when it was destroyed */
	bool ready;                /* we brought it to RTS */
	struct request *last_read; /* that may still be in flight */
	struct line *sends, *receives;
	struct stream datagrams[WORLD_MAX_HOSTS]; /* UD: by the host they go to */
};

static inline bool wqp_reliable(const struct wqp *qp)
{
	return qp->type == HDL_QP_RC || qp->type >= HDL_QP_XRC_INI;
}

struct wcq {
	struct hdl_cq *cq;
	uint32_t depth;
	bool small;
	bool overrun;
};

struct wsrq {
	uint32_t number; /* XRC; known to peers, and outlives it */
	struct hdl_srq *srq;
	uint32_t pd, max_wr, max_sge;
	uint32_t held; /* posted and not seen completed */
	uint32_t reasons;
	struct wcq *cq; /* XRC */
};

struct host {
	uint32_t index;
	struct hdl_adapter *adapter; /* NULL: dead or not born */
	bool born;
	struct hdl_gid gid;
	struct hdl_pd *pds[WORLD_MAX_PDS];
	struct wcq cqs[WORLD_MAX_CQS];
	uint32_t cq_count;
	struct wsrq srqs[WORLD_MAX_SRQS];
	uint32_t srq_count;
	struct hdl_xrcd *xrcd; /* of the wire, as is its shared receive queue, for which all targets
	                          of the host receive */
	struct wsrq xrc_srq;
	struct hdl_ah *ahs[WORLD_MAX_PDS][WORLD_MAX_HOSTS];
	uint64_t stall_after_ns; /* not stalled again before */
	struct world *world;     /* of the wire */
	struct cable *cable;
	struct stream_host *streams; /* what its byte streams share */
};

enum request_state { REQUEST_PENDING, REQUEST_DONE, REQUEST_FAILED, REQUEST_VANISHED };

struct request {
	uint32_t id;
	struct wqp *qp; /* NULL: of a shared receive queue */
	struct wsrq *srq;
	struct host *host;
	uint32_t qpn;
	bool receive, signaled;
	enum request_state state;
	uint32_t opcode, flags, imm, length;
	uint32_t number_of_pieces;
	struct hdl_sge pieces[WORLD_MAX_PIECES];
	struct claim claims[WORLD_MAX_PIECES + 1];
	uint32_t claim_count;
	uint32_t generations[WORLD_MAX_PIECES + 1]; /* of the claims' openings when it was posted */
	uint8_t *data; /* what travels; NULL: not known before (receives, atomics) */
	struct line *line;
	struct stream *stream; /* a message that consumes a receive: where it is */
	uint32_t epoch;
	bool unexecuted; /* flushed behind one that was refused */
	bool taken;      /* a receive completion brought it */
	bool skipped;    /* a later message was received first: it must not succeed */
	bool must_fail, bad_local, bad_remote;
	bool partly; /* bad_remote, but the last claim is of what may be placed all the same */
	struct host *bad_host;  /* whose table has to refuse */
	struct hdl_key bad_key; /* which key */
	uint32_t key_mark;      /* world.keys when it was posted */
	struct opening *object; /* bind, register, invalidate: of what */
	struct opening object_after;
	struct hdl_key invalidates;
	struct opening *invalidated;
	struct hdl_ah *ah;
	uint32_t to_qpn;
	uint64_t posted_ns, delay_ns;
	/* atomics */
	struct root *words;
	uint32_t word;
	bool add;
	uint64_t compare_add, swap, old;
};

struct world {
	struct scenario_run *run;
	struct sim *sim;
	struct prng prng;
	uint32_t faults;
	bool large;                      /* messages of more pages than a copy takes at a time */
	bool by_target, by_value, mixed; /* mixed: each adapter its own mode */
	/* The wire: */
	bool wire, striped;
	bool ipv4;
	bool loses; /* so much that a request may run out of retries */
	uint32_t busy_permille, marked_permille;
	struct sim_link link;
	uint32_t partitions;
	uint64_t arrivals;
	/* Byte streams: */
	bool streams, messages; /* messages are streams, too */
	uint32_t line_messages, message_delay_ns, message_loss;
	struct byte_stream *byte_streams;
	uint32_t byte_stream_count;
	uint32_t line_bytes, piece_bytes; /* on their way in one direction, and of one call */
	uint64_t pause_ns;                /* between calls */
	uint32_t load_weight[4];
	uint32_t host_limit, host_count;
	struct host hosts[WORLD_MAX_HOSTS];
	struct root roots[WORLD_MAX_ROOTS];
	uint32_t root_count;
	struct opening openings[WORLD_MAX_OPENINGS];
	uint32_t opening_count;
	struct wqp qps[WORLD_MAX_QPS];
	uint32_t qp_count;
	struct conn conns[WORLD_MAX_CONNS];
	uint32_t conn_count;
	struct line *lines;
	uint32_t request_count, request_limit;
	uint32_t pending; /* requests that may still complete */
	bool settling;
	struct world_tally tally;
	struct {
		const struct host *host;
		struct hdl_key key;
	} keys[WORLD_MAX_KEYS]; /* that came to open something, in order */
	uint32_t key_count;
	struct request requests[WORLD_MAX_REQUESTS];
};

/* Play the world of run->seed. Adds what happened to @tally, if not NULL. */
void world_play(struct scenario_run *run, enum world_network network, struct world_tally *tally);

/* The run is over for the checker: says why, with the time. */
void world_fail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line of the trace, if there is one. */
void world_say(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t world_now(const struct world *w);
uint32_t world_draw(struct world *w, uint64_t bound);
bool world_chance(struct world *w, uint32_t permille);
static inline bool world_has(const struct world *w, uint32_t fault)
{
	return (w->faults & fault) != 0;
}

/* --- world_memory.c: roots, shadows, claims --- */
struct root *root_make(struct world *w, struct host *host, bool atomic);
void root_out(const struct root *root, const uint8_t *block, uint32_t at, void *out,
              uint32_t bytes);
void root_in(struct root *root, uint8_t *block, uint32_t at, const void *in, uint32_t bytes);
/* May a request read the range, or with @write change it? */
bool root_is_free(const struct root *root, uint32_t at, uint32_t bytes, bool write);
/* A random range of @bytes of @opening that a request may read, or with @write change. False: none
 * was found. */
bool root_pick(struct world *w, const struct opening *opening, uint32_t bytes, bool write,
               uint32_t *at);
struct claim *claim_add(struct request *r, struct opening *via, uint32_t at, uint32_t bytes,
                        uint32_t data_at, bool write);
void claim_release(struct claim *claim);
/* Does the memory hold what the request brings? */
bool claim_is_placed(const struct claim *claim);
/* What is there is either the shadow's or the request's: the memory becomes the shadow, the claim
 * ends. */
void claim_settle(struct world *w, struct claim *claim);
/* The memory is what the shadow says. */
bool claim_is_untouched(const struct claim *claim);
/* Nothing may go through @opening any more. */
void opening_settle(struct world *w, struct opening *opening);
void root_settle(struct world *w, struct root *root);
/* Every byte of every root. */
void world_sweep(struct world *w);
void root_unmap(struct world *w, struct root *root);
void world_free_roots(struct world *w);

/* --- world_openings.c: regions and windows --- */
struct opening *opening_new(struct world *w, struct host *host);
/* @pd may be WORLD_MAX_PDS: any, and with any rights. */
bool opening_register(struct world *w, struct host *host, struct root *root, uint32_t pd);
void opening_share(struct world *w, struct host *host);
void opening_make_window(struct world *w, struct host *host);
void opening_make_fast(struct world *w, struct host *host);
/* Bind a type 1 window by call, or bind it anew, or unbind it. */
void opening_bind_call(struct world *w, struct host *host);
void opening_deregister(struct world *w, struct opening *opening);
void opening_close(struct world *w, struct opening *opening);
/* Those that have something in flight through @opening, which is about to go, may fail. */
void opening_disturb(struct world *w, const struct opening *opening);
/* A random opening of @host that fits, or NULL. Zero: any. */
struct opening *opening_pick(struct world *w, const struct host *host, uint32_t pd, uint32_t access,
                             bool local, const struct wqp *target);
struct opening *opening_pick_stale(struct world *w, const struct host *host);
/* The key of @opening opens something from now on. */
void opening_log_key(struct world *w, const struct opening *opening);
/* Has the key that @r must not be able to use become one that opens something since? Instances have
 * 8 bits. */
bool opening_key_came_back(const struct world *w, const struct request *r);
uint64_t opening_address(const struct opening *opening, uint32_t at);
/* For a bind or registration: what @opening will be. False: nothing to bind. */
bool opening_plan_bind(struct world *w, struct opening *window, struct wqp *qp,
                       struct opening *after, struct hdl_bind *bind);
bool opening_plan_register(struct world *w, struct opening *region, struct opening *after,
                           struct hdl_register *reg, uint64_t *pages);

/* --- world_wire.c: the network of packets --- */
void wire_draw(struct world *w);
/* The carrier of a host that is about to be opened, and its address. */
const struct carrier *wire_attach(struct world *w, struct host *host, struct hdl_open_attr *attr);
void wire_partition(struct world *w, struct host *host);
/* The host with this @index stops, and goes on: all of it. 0: it does. */
int wire_stall(struct world *w, uint32_t index, uint64_t until_ns);
void wire_wake(struct world *w, uint32_t index);
void wire_kill(struct world *w, uint32_t index);
/* Give an end of @conn, whose attributes for RTR are @attr, its second path. What to add to the
 * mask. */
uint32_t wire_stripe(const struct world *w, const struct conn *conn, struct hdl_qp_attr *attr);
/* From now on nothing is cut, and mostly nothing lost. */
void wire_heal(struct world *w);

/* --- world_streams.c: byte streams, on which connections run iWARP --- */
void streams_draw(struct world *w);
/* @host has been opened; is about to be closed, which returns false if memory of its streams is
 * missing; has died. */
void streams_host_opened(struct world *w, struct host *host);
bool streams_host_closing(struct world *w, struct host *host);
void streams_host_died(struct world *w, const struct host *host);
/* Both ends of @conn are in INIT: connect them. */
void world_streams_connect(struct world *w, struct conn *conn);
/* An end of @conn has been reset or destroyed. */
void streams_left(struct world *w, const struct wqp *qp);
/* Something goes wrong with a stream of @host. */
void streams_fault(struct world *w, const struct host *host);
/* No more faults: streams that can only be waited for end. */
void streams_heal(struct world *w);
/* Has @conn no stream, or one that has come to its end while it was set up? */
bool streams_down(const struct conn *conn);
/* Is anything of a working stream on its way? */
bool streams_busy(struct world *w);
/* What the ends of @conn are at, into the trace. */
void streams_say(struct world *w, const struct conn *conn);
void streams_free(struct world *w);

/* --- world_objects.c: adapters, queue pairs, connections --- */
bool host_open(struct world *w);
void host_forget(struct world *w, struct host *host);
void host_kill(struct world *w, struct host *host);
struct wqp *wqp_make(struct world *w, struct host *host, uint32_t type);
void wqp_destroy(struct world *w, struct wqp *qp);
/* One of those that @host has; NULL: none. */
struct wqp *wqp_pick(struct world *w, const struct host *host);
/* The queues of @qp are emptied without completions (RESET, destroy). */
void wqp_forget_requests(struct world *w, struct wqp *qp);
void wqp_disturb(struct wqp *qp, uint32_t reasons);
bool wqp_to(struct world *w, struct wqp *qp, uint32_t state);
uint32_t wqp_state(const struct wqp *qp);
void conn_make(struct world *w, struct host *a, struct host *b, uint32_t type);
/* RESET on both sides, then a new epoch; with FAULT_LATE one side may be ready later. */
void conn_connect(struct world *w, struct conn *conn);
void datagram_ready(struct world *w, struct wqp *qp);
/* An end of a connection, in INIT or RTR, becomes ready to send. */
void conn_side_ready(struct world *w, struct wqp *qp);
bool world_objects_end(struct world *w);

/* --- world_load.c, world_send.c: the workload --- */
void load_step(struct world *w, struct host *host);
struct request *request_new(struct world *w, struct wqp *qp, struct host *host);
/* Undo request_new() and everything done to it: it was not posted. */
void request_drop(struct world *w, struct request *r);
bool request_pieces(struct world *w, struct request *r, uint32_t pd, uint32_t bytes,
                    uint32_t max_pieces, bool write, struct opening *first);
void load_send(struct world *w, struct wqp *qp);
/* False: there was no memory for it. */
bool load_receive(struct world *w, struct wqp *qp, uint32_t bytes);
bool load_receive_shared(struct world *w, struct host *host, struct wsrq *srq, uint32_t bytes);
/* A post that the interface must refuse. */
void load_refused(struct world *w, struct wqp *qp);
struct line *line_new(struct world *w);
void line_add(struct line *line, uint32_t id);
void stream_add(struct stream *stream, uint32_t id);

/* --- world_fault.c --- */
void fault_step(struct world *w, struct host *host);
void fault_repair(struct world *w, struct host *host);

/* --- world_check.c, world_receive.c: the checker --- */
void check_poll(struct world *w, struct host *host, uint32_t max);
/* Until there is nothing more to take. */
void check_drain(struct world *w, struct host *host, struct wcq *cq);
void check_events(struct world *w, struct host *host);
void check_received(struct world *w, struct request *r, const struct hdl_wc *wc);
/* The queue pair that @wc is of; NULL: none that could use @r. */
struct wqp *check_qp_of(struct world *w, const struct request *r, const struct hdl_wc *wc);
/* A request that completed silently, or with success. */
void check_done(struct world *w, struct request *r);
void check_vanished(struct world *w, struct request *r);
/* On a stream: the peer has come to @r, so what was posted before it has been executed. */
void check_confirmed(struct world *w, struct request *r);
void check_at_end(struct world *w);

/* --- world_atomics.c --- */
void atomics_aim(struct world *w, struct request *r, struct root *words);
void atomics_check(struct world *w);

#endif
