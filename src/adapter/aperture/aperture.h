/* Apertures of an adapter: the connections of transport/aperture, with memory, carriers and calls
 * around them.
 *
 *   node.c    the node: begins with the first port or aperture; sends and receives on lanes; time
 *   udp.c     the same on UDP sockets, one per address, from the node agent
 *   turn.c    frames that come in, and how much of them a turn writes
 *   find.c    which process has a port, and how it is reached
 *   port.c    hdl_port_*()
 *   calls.c   hdl_aperture_open(), _connect(), _accept(), _close() and their kin
 *   control.c hdl_aperture_control(), its pages, and destinations: hdl_aperture_point(), stores
 *   data.c    hdl_aperture_store(), _event(), _read(), _flush(), _check(), _alive()
 *   kept.c    the memory of packets that may have to be sent again
 *   map.c     hdl_aperture_map() and what trackers need
 *   same.c    the same pages, between processes of one machine
 *   observe.c the tables of other processes, as a spectator sees them
 *   managed.c out-of-band packets of programs that are not trusted, through the node agent
 *   forward.c their frames to and from other machines, through a forwarder of the agent's
 *
 * Everything is under the drive lock, unless a comment says otherwise. Calls that wait drive the
 * adapter meanwhile, or sleep until something may have come. */
#ifndef ADAPTER_APERTURE_H
#define ADAPTER_APERTURE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <heddle/aperture.h>

#include "adapter/net/port.h"
#include "adapter/reach/segment.h"
#include "port/agentmsg.h"
#include "port/forward.h"
#include "port/udp.h"
#include "transport/aperture/ap.h"

#define APERTURE_LOOK_NS       1000000u       /* between looks of events behind the peer's memory */
#define APERTURE_SPACE         AGENT_CI_SPACE /* of ports, at the node agent */
#define APERTURE_LANE_BYTES    (4096u + CI_EXTRA_BYTES)
#define APERTURE_LANE_IDLE     1000000000ull /* between two ALIVEs; a lane reports deaths */
#define APERTURE_UDP_IDLE      400000000ull
#define APERTURE_ROUTE_UDP     0x10000u     /* routes from here on are sockets, below links */
#define APERTURE_ROUTE_FORWARD 0x20000u     /* from here on: through the forwarder */
#define APERTURE_WAIT_NS       1000000ull   /* a waiting call looks again after this */
#define APERTURE_ALIVE_NS      200000000ull /* ALIVE that is not answered is repeated after this */
#define APERTURE_FOUND         64u          /* ports of other processes whose place is remembered */
#define APERTURE_FIND_NS       2000000000ull
#define APERTURE_HELD_BYTES    (4u << 20) /* of frames that wait for the next turn */
#define APERTURE_PART_BITS     36u        /* the outgoing table: address space of one size */
/* The addresses of the table begin somewhere from here on, at a multiple of 1 GiB. */
#define APERTURE_ORIGIN_LEAST (16ull << 40)
#define APERTURE_ORIGINS      (48u << 10)

/* Frames that the system did not take, of one socket, until apertures_udp_unsent(); of those beyond
 * it, only their next repetition is noticed. */
#define APERTURE_UNSENT       16u
#define APERTURE_UNSENT_BYTES (CI_HEADER_BYTES + CI_OFFER_BYTES)

struct hdl_adapter;
struct hdl_cm_msg;
struct track;

struct hdl_port {
	uint32_t magic;
	struct hdl_adapter *adapter;
	void *context;
	struct ap_port port;
	uint32_t users; /* apertures that name it */
	bool bound;     /* at the node agent */
};

struct hdl_aperture {
	uint32_t magic;
	struct hdl_adapter *adapter;
	void *context;
	struct ap_conn conn;
	struct hdl_port *port;
	struct hdl_port *new_port;
	uint8_t *memory;
	uint64_t length;
	uint32_t access;
	bool own_memory;
	bool is_ip;
	struct hdl_key key;
	/* A read that waits. */
	uint32_t read_token;
	uint64_t read_offset;
	uint32_t read_bytes, read_got;
	uint8_t *read_to;
	pthread_mutex_t read_lock; /* one read at a time */
	struct hdl_port_status status;
	uint32_t status_token;       /* that was answered */
	uint64_t errors_seen;        /* by hdl_aperture_check() */
	uint64_t refused_seen;       /* by the read that waits */
	struct kept_slab *kept_slab; /* kept.c */
	/* Called when data has been placed; may be NULL. False: it wants to be called again when
	 * there is room for what it stores. */
	bool (*placed)(void *context);
	void *placed_context;
	bool placed_again;
	uint64_t looked_ns; /* when an event last looked behind the peer's memory */
	/* same.c: what peers of this machine map, and what we map of one */
	struct segment_ref segment;
	bool published; /* since the pages were fresh */
	void *shared;
	uint64_t shared_bytes;
	/* map.c */
	struct track *track;
	uint64_t map_bytes; /* of the range, as hdl_aperture_map() was first asked for it */
	struct outgoing *entry;
	bool reserved;      /* the addresses of @entry are the range's */
	uint64_t expire_ns; /* when fetched pages are old */
	/* In apertures->mapped; and in the list of those to look at: first pushed, then taken. */
	struct hdl_aperture *mapped_next, **mapped_at;
	_Atomic bool stirred;
	struct hdl_aperture *stirred_next;
	bool controlled; /* the application may store a destination at any time */
	/* udp.c: HDL_APERTURE_IP */
	int ip_sock;
	struct udp_address ip_peer;
	uint16_t ip_port;
	struct hdl_aperture *ip_next;
};

/* The memory of the tables. */
enum aperture_block {
	APERTURE_ROWS,
	APERTURE_USERS,
	APERTURE_VIEW, /* the rows again; NULL: they are not protected */
	APERTURE_CONNS,
	APERTURE_MAP,
	APERTURE_OUT,
	APERTURE_BLOCKS
};

/* Where a port of another process is. */
struct aperture_found {
	struct hdl_gid gid;
	uint16_t port;
	uint64_t guid;
	uint32_t slot;
	uint32_t agent_number;
};

struct turn_frame;

struct apertures {
	struct net_port port; /* must be first; no descriptor: it has the timers */
	struct hdl_adapter *adapter;
	struct ap_node node;
	struct outgoing_table out;
	struct hdl_aperture *mapped, *ips;
	/* Mapped ranges that have something to collect or to expire, or may have: pushed by fault
	 * handlers, which take no lock, then looked at every COLLECT_NS until they are calm. */
	struct hdl_aperture *_Atomic pushed;
	struct hdl_aperture *stirred;
	uint64_t collect_ns; /* when that is next */
	bool out_tried;      /* @out is there, unless its block is NULL: there was no room */
	uint32_t elsewhere;  /* mapped ranges that are not at the addresses of @out */
	void *blocks[APERTURE_BLOCKS];
	size_t block_bytes[APERTURE_BLOCKS];
	/* The rows of @node as the application sees them: it cannot write here. */
	const struct hdl_aperture_fixed *view;
	struct kept_slab *kept_slabs; /* kept.c: those with a free room */
	uint32_t kept_rooms;          /* of the last one */
	uint32_t port_count, count;
	uint32_t next_token;
	uint8_t stage[CI_MAX_FRAME];
	/* turn.c: frames that came while a write is stalled */
	struct turn_frame *held, **held_end;
	size_t held_bytes;
	struct aperture_found found[APERTURE_FOUND];
	uint32_t found_next;
	/* udp.c */
	struct aperture_udp {
		struct apertures *apertures;
		int sock;  /* -1: none */
		int error; /* perhaps of an earlier frame, which came back; 0: none */
		bool told; /* that the interface has gone */
		struct udp_address address;
		struct udp_receiver receiver;
		struct net_port port;
		uint32_t unsent_count;
		struct aperture_unsent {
			int error;
			uint8_t host[16];
			size_t bytes; /* of its beginning */
			uint8_t frame[APERTURE_UNSENT_BYTES];
		} unsent[APERTURE_UNSENT];
	} udp[UDP_MAX_ADDRESSES];
	uint32_t udp_count;
	uint32_t udp_mtu;
	/* forward.c: instead of these */
	struct aperture_forward {
		struct apertures *apertures; /* NULL: there was none yet */
		int sock;                    /* -1: none */
		struct net_port port;
		struct forward_header header; /* of the record that came */
		uint8_t frame[CI_MAX_FRAME];
	} forward;
	uint32_t trust; /* enum hdl_aperture_trust */
	/* Peers see nonces, and could compute the next ones of a generator like adapter.prng. */
	struct prng_pool secrets;
	/* find.c: the question that waits, under find_lock; its answer, under the drive lock. */
	pthread_mutex_t find_lock;
	uint32_t find_token, find_answered;
	int find_result;
	struct aperture_found find_answer;
};

/* --- node.c --- */
/* Memory that is zero and costs nothing until it is used; NULL: none. */
void *aperture_block(struct apertures *apertures, enum aperture_block which, size_t bytes);
/* The node, which begins if need be; NULL: no memory. Called without a lock. */
struct apertures *apertures_begin(struct hdl_adapter *adapter);
void apertures_end(struct hdl_adapter *adapter);
/* A frame came on link @link. */
void apertures_lane(struct hdl_adapter *adapter, uint32_t link, const uint8_t *frame, size_t bytes);
/* A frame came along @from; it does not change any more. */
void apertures_take(struct apertures *apertures, const uint8_t *frame, size_t bytes,
                    const struct ap_path *from);
/* --- turn.c --- */
/* The same, but it has been captured, or is not to be. */
void apertures_take_in(struct apertures *apertures, const uint8_t *frame, size_t bytes,
                       const struct ap_path *from);
/* Is a write stalled? Then nothing more is taken in this turn. */
static inline bool apertures_are_stalled(const struct apertures *apertures)
{
	return !ap_may_take(&apertures->node) || apertures->held != NULL;
}
/* A turn begins: go on with what is stalled. Returns how much there was. */
unsigned apertures_turn(struct apertures *apertures);
void apertures_drop_held(struct apertures *apertures);

/* --- node.c --- */
/* Link @link has gone. */
void apertures_link_down(struct hdl_adapter *adapter, uint32_t link);
/* Send what waits, and set the timer. */
void apertures_run(struct apertures *apertures);
/* The path on link @link. */
struct ap_path apertures_lane_path(const struct hdl_adapter *adapter, uint32_t link);
/* Wait until @done(@object) or until @until_ns. Called without a lock. Returns 0; -HDL_EAGAIN the
 * time is over; -HDL_EINTR. */
int apertures_wait(struct hdl_adapter *adapter, bool (*done)(void *object), void *object,
                   uint64_t until_ns);
/* When a call with @timeout_ms has to return. */
uint64_t apertures_until(int timeout_ms);
static inline struct hdl_aperture *aperture_of(struct ap_conn *conn)
{
	return conn->owner;
}
/* Does the outgoing side lead anywhere? */
static inline bool aperture_can_send(const struct hdl_aperture *aperture)
{
	return aperture->conn.state == HDL_APERTURE_OPEN || aperture->conn.pointed;
}
bool is_aperture(const struct hdl_aperture *aperture);
bool is_port(const struct hdl_port *port);
struct hdl_adapter *port_adapter(const struct hdl_port *port);
const char *aperture_counter_name(size_t counter);
uint64_t aperture_counter(const struct apertures *apertures, size_t counter);

/* --- observe.c --- */
/* Let other processes of the user find the tables. */
void apertures_show(const struct apertures *apertures);

/* --- managed.c --- */
/* The numbers of the next connection: those that the agent drew, for a program that it does not
 * trust; else ours to draw. */
struct aperture_numbers {
	bool given;
	uint64_t nonce;
	uint32_t sequence;
};
/* Called without a lock; waits for the agent if we are not trusted. Returns 0 or an error. */
int aperture_ask_numbers(const struct hdl_aperture *aperture, struct aperture_numbers *numbers);
/* The entry @row is no more. Called without a lock. */
void aperture_forget_numbers(struct hdl_adapter *adapter, uint32_t row);
void apertures_control_send(struct apertures *apertures, const struct ap_path *path,
                            const uint8_t *frame, size_t bytes);
/* The agent passes out-of-band packets on. Called without a lock. */
void apertures_control(struct hdl_adapter *adapter, const struct agent_msg *msg);
/* The agent has ended, with what it held. Called without a lock. */
void apertures_agent_gone(struct hdl_adapter *adapter);

/* --- forward.c --- */
/* The agent answered, with the channel to a forwarder. */
void apertures_forward_opened(struct apertures *apertures, int sock);
/* The path to @host through the forwarder. False: there is none. */
bool apertures_forward_path(const struct apertures *apertures, const struct hdl_gid *host,
                            struct ap_path *path);
/* The path between our address @which and @host. */
struct ap_path apertures_forward_path_of(const struct apertures *apertures, uint32_t which,
                                         const uint8_t host[16]);
void apertures_forward_send(const struct apertures *apertures, const struct ap_path *path,
                            const uint8_t *frame, size_t bytes);
void apertures_forward_end(struct apertures *apertures);

/* --- find.c --- */
/* The cluster address of the host @gid of a network, if there is a table; path->cluster. */
void apertures_mark_cluster(const struct apertures *apertures, struct ap_path *path);
/* How port @port of @host is reached. Called without a lock; may wait for the agent. */
int apertures_find(struct hdl_adapter *adapter, const struct hdl_gid *host, uint16_t port,
                   struct ap_path *path);
/* A message of APERTURE_SPACE came from the agent. True: it was ours. Called without a lock. */
bool apertures_hear(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg);

/* --- udp.c --- */
/* Ask the agent for sockets, if the node is on a network. Called without a lock. Returns 0 or an
 * error. */
int apertures_open_udp(struct apertures *apertures);
/* The same when there is another agent. */
void apertures_open_again(struct apertures *apertures);
/* The agent has gone. The next one can have the port when every process has closed its sockets; it
 * hands out new ones, and what is lost in between is repeated. */
void apertures_udp_drop(struct apertures *apertures);
/* The agent answered, with @fds. Called without a lock. */
void apertures_udp_opened(struct hdl_adapter *adapter, const struct agent_msg *msg, int *fds,
                          int fd_count);
/* A frame to a port came to the agent's socket. Called without a lock. */
void apertures_udp_frame(struct hdl_adapter *adapter, const struct agent_msg *msg);
/* The path to @host over UDP. False: there is none. */
bool apertures_udp_path(const struct apertures *apertures, const struct hdl_gid *host,
                        struct ap_path *path);
void apertures_udp_send(struct apertures *apertures, const struct ap_path *path,
                        const uint8_t *frame, size_t bytes);
/* Connections learn which of their frames were not sent. True: some have ended because of it, and
 * tell their peers. */
bool apertures_udp_unsent(struct apertures *apertures);
void apertures_udp_end(struct apertures *apertures);
/* Stores of an IP aperture. Returns 0 or an error. */
int apertures_ip_send(struct hdl_aperture *aperture, const void *data, size_t length);
void apertures_ip_close(struct hdl_aperture *aperture);
/* Datagrams for IP apertures. Returns how many. */
unsigned apertures_ip_receive(struct apertures *apertures);

/* --- control.c --- */
/* Make the control blocks of @count apertures. False: no memory. */
bool apertures_make_control(struct apertures *apertures, uint32_t count);
/* If the application has stored another destination, the outgoing side leads there from now on. The
 * former peer is told in the next run. */
void aperture_redirect(struct hdl_aperture *aperture);
static inline bool aperture_is_redirected(const struct hdl_aperture *aperture)
{
	return __builtin_expect(ap_is_redirected(&aperture->conn), 0);
}
/* The same in a call, before it decides anything: with the run. */
static inline void aperture_follow(struct hdl_aperture *aperture)
{
	if (!aperture_is_redirected(aperture))
		return;
	aperture_redirect(aperture);
	apertures_run(aperture->conn.node->context);
}
/* Redirect connections that have something to send, then send it. */
void apertures_send(struct apertures *apertures);
/* The address of the node in frames; NULL: there is none. */
const struct udp_address *aperture_frames(const struct hdl_adapter *adapter);

/* --- kept.c --- */
/* Give @aperture room for what may have to be sent again. False: there is no memory. */
bool aperture_take_kept(struct apertures *apertures, struct hdl_aperture *aperture);
void aperture_give_kept(struct apertures *apertures, struct hdl_aperture *aperture);

/* --- data.c --- */
/* Queue @length bytes for @offset. 0; -HDL_EAGAIN no room. */
int aperture_put(struct hdl_aperture *aperture, uint64_t offset, const void *data, uint64_t length);

/* --- same.c --- */
/* Let peers of this machine map the memory, if the state allows it; and do not any more. */
void aperture_publish(struct hdl_aperture *aperture);
void aperture_conceal(struct hdl_aperture *aperture);
/* Give the memory fresh pages, if a peer may have mapped it. Only in calls of the owner, who does
 * not store to it meanwhile. Returns 0 or an error. */
int aperture_revoke(struct hdl_aperture *aperture);
/* What was stored to the range behind the memory of a peer of this machine went nowhere: report it,
 * once, and clear it. */
void aperture_look_behind(struct hdl_aperture *aperture);
/* Map the peer's memory itself, of @bytes; NULL: that is not possible. */
void *aperture_map_same(struct hdl_aperture *aperture, uint64_t bytes);
/* The same for all of it, unless the aperture is mapped otherwise. Called without a lock. */
void *aperture_share(struct hdl_aperture *aperture);

/* --- map.c --- */
/* Take an outgoing entry of 2^@bits bytes for a range, and reserve its addresses if they are
 * free. */
void aperture_take_entry(struct hdl_aperture *aperture, uint8_t bits);
/* Give it back: there is no range. */
void aperture_give_entry(struct hdl_aperture *aperture);
/* Where the range of the entry is to be; NULL: anywhere. */
void *aperture_room(const struct hdl_aperture *aperture);
/* There is a range: look after it from now on. Called without a lock. */
void aperture_enter_mapped(struct hdl_aperture *aperture);
/* The application may store another destination for the range from now on. */
void aperture_watch_control(struct hdl_aperture *aperture);
/* Put what was stored to the mapped range. 0; -HDL_EAGAIN some is left. */
int aperture_collect(struct hdl_aperture *aperture);
/* Collect what is due. Returns when to call again. */
uint64_t apertures_collect_due(struct apertures *apertures, uint64_t now_ns);
/* The connection is open, or the outgoing side points elsewhere: the range stands for the memory
 * there. */
void aperture_map_opened(struct hdl_aperture *aperture);
/* The connection has ended, or leads elsewhere. */
void aperture_map_lost(struct hdl_aperture *aperture);
/* There is no range any more. The connection has ended, so that nothing is fetched. Called without
 * a lock. */
void aperture_unmap(struct hdl_aperture *aperture);

#endif
