/* The conformance suite: behaviours written once in terms of heddle.h, run over every port. A port
 * says how two sides are created and how they meet; a world is the two sides, each with a domain,
 * completion queues and a registered arena. Every test starts with a fresh world and ends by
 * destroying it in order, so that a leaked reference is a failure.
 *
 * Every byte of the arenas is accounted for: a shadow of each holds what it must contain, and
 * check_memory() compares all of it, so that a byte written next to its target is found, whichever
 * test wrote it. */
#ifndef CONFORM_H
#define CONFORM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <heddle/heddle.h>

#define ARENA_BYTES     (64u << 10)
#define BIG_ARENA_BYTES (9u << 20)
#define PAGE            4096u
#define MAX_OBJECTS     80u
#define MAX_SEEN        256u

#define REMOTE_ALL  (HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)
#define LOCAL_BOTH  (HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE)
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

struct world;

struct side {
	struct world *world;
	struct hdl_adapter *adapter;
	struct hdl_gid gid;
	struct hdl_pd *pd;
	struct hdl_cq *scq, *rcq; /* for sends and for receives */
	unsigned char *mem;       /* page-aligned, registered as @mr with every right */
	unsigned char *shadow;    /* what it must hold */
	size_t bytes;
	struct hdl_mr *mr;
};

/* How two sides are created. Everything except these functions is the public interface. */
struct port {
	const char *name;
	bool one_adapter; /* both sides are the same adapter */
	bool one_address; /* all adapters have the address of the node */
	bool in_turns;    /* the thread that posts a long RDMA request executes it, part by part */
	bool mapped;      /* arenas are memory that peers map: hdl_mem_alloc() */
	bool threaded;    /* the adapters have threads and real time; otherwise virtual time and
	                  hdl_progress() */
	/* A peer is known by its packets alone: the sender of a refused request gets a NAK code but
	 * does not learn which check failed, the death of a peer shows as silence, and parts of a
	 * message that were placed before a later packet was refused stay there. */
	bool wire;
	/* Connections are byte streams (iWARP, RFC 5040 section 5): a send or write is over when
	 * its memory may be reused, which says nothing about the peer. What the peer refuses comes
	 * as a Terminate, which gives a read or atomic its status; anything else is over by then,
	 * and an event reports it. Only reliable connections exist, and their ends end together.
	 */
	bool stream;
	/* Packets are cells: sends, writes and reads on connections of the types RC and UC. */
	bool cells;
	/* The streams are sockets of the kernel: it takes what is sent at once, and closes them in
	 * order for a process that dies. */
	bool sockets;
	bool messages; /* the same on messages that overtake each other (RFC 5043) */
	bool lossy;    /* packets are lost: times are not exact, and unreliable messages may not
	               arrive */
	int (*open)(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr);
	int (*join)(struct world *w, struct hdl_adapter *a, struct hdl_adapter *b);
	/* The two are connected and ready to send. NULL: nothing is left to do. */
	void (*attach)(struct world *w, struct hdl_qp *a, struct hdl_qp *b);
	void (*kill)(struct hdl_adapter *adapter); /* as if its process had died */
	/* If the world itself carries packets, else NULL: deliver those that are due and return
	 * their number; clean up. */
	unsigned (*carry)(struct world *w);
	void (*end)(struct world *w);
	/* Are packets in flight? NULL: there are no packets. */
	bool (*is_busy)(struct world *w);
};
extern const struct port *conform_port;
extern const struct port ports[];
extern const size_t port_count;

struct seen_event {
	struct hdl_adapter *adapter;
	struct hdl_event event;
};

struct world {
	const struct port *port;
	struct side a, b;
	_Atomic uint64_t virtual_ns; /* the threads that drive read it */
	void *net;                   /* the port's, if it carries packets */
	int64_t missing;             /* packets over UDP that have not arrived, */
	uint64_t missing_ns;         /* and since when there are that many */
	/* Created by the helpers below, destroyed by world_teardown() in this order. */
	struct hdl_qp *qps[MAX_OBJECTS];
	struct hdl_ah *ahs[MAX_OBJECTS];
	struct hdl_srq *srqs[MAX_OBJECTS];
	struct hdl_xrcd *xrcds[MAX_OBJECTS];
	struct hdl_mw *mws[MAX_OBJECTS];
	struct hdl_mr *mrs[MAX_OBJECTS];
	struct hdl_cq *cqs[MAX_OBJECTS];
	struct hdl_channel *channels[MAX_OBJECTS];
	struct hdl_pd *pds[MAX_OBJECTS];
	struct seen_event seen[MAX_SEEN]; /* taken from the adapters and not yet expected */
	size_t seen_count;
};

/* A theme: one file. */
struct theme {
	const struct CMUnitTest *tests;
	size_t count;
};
#define BEHAVIOUR(f)      cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
#define BIG_BEHAVIOUR(f)  cmocka_unit_test_setup_teardown(f, world_setup_big, world_teardown)
#define THEME(name, list) const struct theme name = {list, COUNT(list)}
extern const struct theme send_theme, rdma_theme, datagram_theme, retry_theme, error_theme,
        window_theme, register_theme, gone_theme, state_theme, cq_theme, channel_theme, srq_theme,
        xrc_theme, limit_theme, death_theme, bad_call_theme, stress_theme, multicast_theme,
        reliable_theme, turns_theme;

/* Is every fast path off (HEDDLE_FAST=off)? Adapters on a node read that themselves. */
bool conform_general(void);

int world_setup(void **state);
int world_setup_big(void **state);
int world_teardown(void **state);

/* Does the port lack @opcode? A test goes on without it; one that posts it is skipped. */
bool lacks(const struct world *w, uint32_t opcode);
/* Skip a test with threads where packets get lost on virtual time: it is not known when a timeout
 * is due. */
void skip_lossy(const struct world *w);

/* --- time and waiting --- */

uint64_t world_now(struct world *w);
/* Run everything once: adapters, and packets between them. Returns how much was done. */
unsigned world_turn(struct world *w);
/* Let the adapters run; if time is virtual and nothing is left to do, let a little of it pass. */
void world_pump(struct world *w);
/* Run until nothing more can happen without the passing of time. */
void world_settle(struct world *w);
/* Let at least @ns pass. */
void world_pass(struct world *w, uint64_t ns);
/* Has a wait that began at @start taken too long? */
bool world_expired(struct world *w, uint64_t start);

/* --- objects --- */

struct qp_options {
	uint32_t type;            /* 0: HDL_QP_RC */
	struct hdl_qp_cap cap;    /* zero members: 16 requests, 4 pieces, 64 inline bytes */
	struct hdl_cq *scq, *rcq; /* NULL: the side's */
	struct hdl_srq *srq;
	struct hdl_xrcd *xrcd;
	struct hdl_rdd *rdd;
	struct hdl_pd *pd; /* NULL: the side's */
	bool signal_all, register_on_send, windows_only;
	uint32_t register_error;
	uint32_t access; /* rights of the queue pair for peers; 0: all */
	bool no_access;  /* none at all */
	uint32_t qkey;
	uint32_t psn_ahead; /* how far the first message is ahead of the number that the peer
	                      expects */
	uint8_t timeout,
	        retry_cnt;  /* 0: 268 ms (1 ms if packets are lost), seven times: a busy machine is
	                      no reason to fail */
	bool wait_for_ever; /* timeout 0 */
	bool no_retry;      /* retry_cnt 0 */
	uint8_t rnr_retry;  /* 0: seven, for ever */
	bool no_rnr_retry;  /* rnr_retry 0 */
	uint8_t min_rnr_timer; /* 0: code 1, 10 us */
	uint8_t max_rd_atomic; /* 0: 4 */
	bool no_rd_atomic, no_dest_rd_atomic;
};

struct hdl_qp *make_qp(struct side *s, const struct qp_options *o);
void drop_qp(struct world *w, struct hdl_qp *qp);
void qp_to_init(struct hdl_qp *qp, const struct qp_options *o);
void qp_to_rtr(struct hdl_qp *qp, const struct qp_options *o, const struct hdl_gid *gid,
               uint32_t dest);
void qp_to_rts(struct hdl_qp *qp, const struct qp_options *o);
void qp_go(struct hdl_qp *qp, enum hdl_qp_state state);
enum hdl_qp_state qp_state_of(struct hdl_qp *qp);
/* A connected pair in RTS (for datagrams: two queue pairs in RTS). @o may be NULL. */
void make_pair(struct world *w, const struct qp_options *o, struct hdl_qp **qa, struct hdl_qp **qb);
void connect_pair(struct world *w, const struct qp_options *o, struct hdl_qp *qa,
                  struct hdl_qp *qb);

struct hdl_pd *make_pd(struct side *s);
struct hdl_cq *make_cq(struct side *s, uint32_t depth, struct hdl_channel *channel, void *context);
struct hdl_channel *make_channel(struct side *s);
struct hdl_srq *make_srq(struct side *s, uint32_t max_wr, uint32_t max_sge, uint32_t limit);
struct hdl_xrcd *make_xrcd(struct side *s);
struct hdl_mr *make_mr(struct side *s, size_t offset, size_t length, uint32_t access);
struct hdl_mr *make_empty_mr(struct side *s, uint32_t max_pages);
struct hdl_mw *make_mw(struct side *s, uint32_t type);
struct hdl_ah *make_ah(struct side *s, const struct hdl_ah_attr *attr);
/* Let the world destroy objects that the test has created itself; and the other way round. */
void keep_mr(struct world *w, struct hdl_mr *mr);
void keep_srq(struct world *w, struct hdl_srq *srq);
void forget_object(struct world *w, const void *object);

/* --- memory --- */

/* Bytes that depend on their position and @seed. */
void pattern(void *to, size_t length, uint32_t seed);
/* The same at @offset of the arena, as if the application wrote them. */
void fill(struct side *s, size_t offset, size_t length, uint32_t seed);
/* From now on the @length bytes at @offset must be those of @from. */
void expect_bytes(struct side *s, size_t offset, const void *from, size_t length);
void expect_copy(struct side *to, size_t offset, const struct side *from, size_t from_offset,
                 size_t length);
void check_memory(struct world *w);
struct hdl_sge piece(struct side *s, size_t offset, uint32_t length);
uint64_t address(const struct side *s, size_t offset);
/* The key of the arena's own region, for peers. */
struct hdl_key arena_key(const struct side *s);

/* --- posting and completing --- */

int try_recv(struct hdl_qp *qp, uint64_t wr_id, const struct hdl_sge *list, uint32_t count);
void post_recv(struct hdl_qp *qp, uint64_t wr_id, struct side *s, size_t offset, uint32_t length);
/* The target of @wr, whose opcode is set: RDMA requests and atomics have it in different fields. */
void set_target(struct hdl_send_wr *wr, uint64_t addr, struct hdl_key key);
int try_send(struct hdl_qp *qp, struct hdl_send_wr wr);
void post_send(struct hdl_qp *qp, struct hdl_send_wr wr);
/* Signalled requests with one piece (none if @length is 0). */
void post_data(struct hdl_qp *qp, uint64_t wr_id, uint32_t opcode, struct side *s, size_t offset,
               uint32_t length);
void post_rdma(struct hdl_qp *qp, uint64_t wr_id, uint32_t opcode, struct hdl_sge own,
               uint64_t addr, struct hdl_key key);
void post_atomic(struct hdl_qp *qp, uint64_t wr_id, uint32_t opcode, struct hdl_sge own,
                 uint64_t addr, struct hdl_key key, uint64_t compare_add, uint64_t swap);

void wait_wc(struct world *w, struct hdl_cq *cq, struct hdl_wc *wc);
/* The next completion is exactly this one; if it failed, only the meaningful fields are
 * compared. */
void expect_wc(struct world *w, struct hdl_cq *cq, const struct hdl_wc *want);
void expect_sent(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, uint64_t wr_id,
                 uint32_t opcode, uint32_t length);
void expect_received(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, struct hdl_qp *from,
                     uint64_t wr_id, uint32_t length);
void expect_failed(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, uint64_t wr_id,
                   uint32_t status, uint32_t detail);
/* The detail that a sender gets for @detail, the check that failed at the peer. */
uint32_t told(const struct world *w, uint32_t detail);
/* The peer refused the request with @status; the failed check is compared if the port reports
 * it. */
void expect_refused(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, uint64_t wr_id,
                    uint32_t status, uint32_t detail);
void expect_flushed(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, uint64_t wr_id);
/* A send or write behind a request that the peer refused: flushed, or on a stream already over. */
void expect_behind(struct world *w, struct hdl_cq *cq, struct hdl_qp *qp, uint64_t wr_id);
/* The peer of @qp failed on its own account. On a stream it says so. */
void expect_terminated(struct world *w, struct side *s, struct hdl_qp *qp);
void expect_nothing(struct world *w, struct hdl_cq *cq);

/* --- datagrams --- */

/* A signalled request with one piece; its immediate data, if it has any, is 0x600d. */
void post_datagram(struct hdl_qp *qp, uint64_t wr_id, uint32_t opcode, struct hdl_sge one,
                   struct hdl_ah *ah, uint32_t qpn, uint32_t qkey);
/* A route header of a message of @payload bytes is expected at @offset; zeroes if @to has none. */
void expect_grh(struct side *s, size_t offset, const struct hdl_ah_attr *to,
                const struct hdl_gid *from, uint32_t payload);

/* --- events --- */

/* An event of @type about @object (a queue pair, completion queue or shared receive queue) with
 * @detail arrives. */
void expect_event(struct world *w, struct side *s, uint32_t type, uint32_t detail,
                  const void *object);
void expect_gone_event(struct world *w, struct side *s, struct hdl_key key);
/* The adapter at @gid is gone, and with it the peer of @qp. On a wire this is not reported. */
void expect_peer_gone(struct world *w, struct side *s, const struct hdl_gid *gid);
void expect_lost_peer(struct world *w, struct side *s, const struct hdl_gid *gid,
                      struct hdl_qp *qp);
/* No event came except those that were expected. */
void expect_no_event(struct world *w);
uint64_t counter_of(struct side *s, const char *name);
/* The sum of both adapters' counters: which of them checks depends on the port. */
uint64_t counter_sum(struct world *w, const char *name);

#endif
