/* The objects of the public interface, and what an adapter counts and numbers them with. */
#ifndef ADAPTER_OBJECTS_H
#define ADAPTER_OBJECTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <heddle/heddle.h>

#include "adapter/drive/ready.h"
#include "adapter/reach/segment.h"
#include "base/bitmap.h"
#include "base/lock.h"
#include "port/agentmsg.h"
#include "queue/cq.h"
#include "transport/ib/ib.h"
#include "transport/ib/rd.h"
#include "transport/multicast.h"
#include "transport/qp.h"

#define ADAPTER_LIST_PAGES \
	(2u * HDL_MAX_REGISTER_PAGES) /* page lists of posted registrations, per queue pair */

/* The type of the object at an address. Any other value means that it is not an object of ours.
 * Objects that a child of fork() inherited do not match either, because the child has another
 * generation (fork.c). */
extern uint32_t magic_generation;
#define MAGIC_ADAPTER  (0x48444c41u ^ magic_generation)
#define MAGIC_PD       (0x48444c50u ^ magic_generation)
#define MAGIC_MR       (0x48444c4du ^ magic_generation)
#define MAGIC_MW       (0x48444c57u ^ magic_generation)
#define MAGIC_CQ       (0x48444c43u ^ magic_generation)
#define MAGIC_CHANNEL  (0x48444c48u ^ magic_generation)
#define MAGIC_SRQ      (0x48444c53u ^ magic_generation)
#define MAGIC_QP       (0x48444c51u ^ magic_generation)
#define MAGIC_AH       (0x48444c4eu ^ magic_generation)
#define MAGIC_RDD      (0x48444c52u ^ magic_generation)
#define MAGIC_EEC      (0x48444c45u ^ magic_generation)
#define MAGIC_CONN     (0x48444c49u ^ magic_generation)
#define MAGIC_LISTENER (0x48444c4cu ^ magic_generation)
#define MAGIC_XRCD     (0x48444c58u ^ magic_generation)
#define MAGIC_EVENTQ   (0x48444c56u ^ magic_generation)
#define MAGIC_EVENTSET (0x48444c54u ^ magic_generation)
#define MAGIC_PORT     (0x48444c5au ^ magic_generation)
#define MAGIC_APERTURE (0x48444c59u ^ magic_generation)
#define MAGIC_CQUEUE   (0x48444c55u ^ magic_generation)

struct hdl_pd {
	uint32_t magic;
	uint32_t number;
	struct hdl_adapter *adapter;
	_Atomic uint32_t users;
};

struct hdl_mr {
	uint32_t magic;
	struct hdl_key key; /* only the index counts; the instance may have changed */
	struct hdl_pd *pd;
	uint32_t probed;            /* access rights that the memory was found to have */
	struct segment_ref segment; /* the segment that contains it */
	uint32_t max_pages;         /* for a region for HDL_OP_REGISTER, else 0 */
	struct hdl_key drawn;       /* the last by hdl_mr_draw_key(); 0: none */
};

struct hdl_mw {
	uint32_t magic;
	uint32_t type;
	struct hdl_key key;
	struct hdl_key drawn; /* the last by hdl_mw_draw_key() or hdl_mw_bind(); 0: none */
	struct hdl_pd *pd;
};

struct hdl_channel {
	uint32_t magic;
	struct hdl_adapter *adapter;
	struct ready_list ready; /* queues with a pending event */
	_Atomic uint32_t users;
};

struct hdl_cq {
	struct cq cq; /* must be first: the engine casts from it */
	uint32_t magic;
	struct hdl_adapter *adapter;
	struct hdl_channel *channel;
	void *context;
	_Atomic uint32_t users;
	/* Under the lock of channel->ready. */
	struct ready_node node;
	uint32_t raised; /* events raised and not taken */
	uint32_t taken;  /* events taken and not acknowledged */
};

struct hdl_srq {
	struct srq srq; /* must be first */
	uint32_t magic;
	struct hdl_pd *pd;
	struct hdl_xrcd *xrcd; /* XRC: its domain and its completion queue */
	struct hdl_cq *cq;
	void *context;
	_Atomic uint32_t users;
	_Atomic bool full; /* as in struct hdl_qp */
};

/* An XRC domain. Target queue pairs have no protection domain of their own. This one is used where
 * one is needed, and its number is the number of the XRC domain. */
struct hdl_xrcd {
	uint32_t magic;
	struct hdl_pd *pd;
	_Atomic uint32_t users;
};

/* A reliable datagram domain. Its number is that of a protection domain with no other members. */
struct hdl_rdd {
	uint32_t magic;
	struct hdl_pd *pd;
	_Atomic uint32_t users;
};

/* An end-to-end context (transport/ib/rd.h). */
struct hdl_eec {
	struct qp qp; /* must be first */
	uint32_t magic;
	struct hdl_rdd *rdd;
	struct ib ib;
	struct rd rd;
};

/* The route of datagrams to one process behind an address. */
struct ah_route {
	uint32_t slot; /* of the process; UINT32_MAX: unused */
	uint32_t link, epoch;
};

#define AH_ROUTES 8u

struct hdl_ah {
	uint32_t magic;
	struct hdl_pd *pd;
	struct hdl_ah_attr attr;
	struct hdl_gid to; /* the address: adapter_address() */
	struct lock lock;
	struct group *group; /* for a multicast address; NULL: see routes */
	bool on_wire;
	bool grouped; /* to a multicast address on the wire */
	uint32_t next;
	struct ah_route routes[AH_ROUTES]; /* the most recent ones */
};

struct hdl_qp {
	struct qp qp; /* must be first */
	uint32_t magic;
	struct hdl_pd *pd;
	struct hdl_qp_init_attr init;
	uint32_t groups;          /* number of groups it is a member of; under group_lock */
	struct hdl_conn *joining; /* which is being set up to carry it; under the drive lock */
	_Atomic bool full_send, full_recv; /* that the queue was full has been logged */
};

/* The processes with members in a group that we send to, as the agent told us. We try to get a link
 * to each of them. */
struct group_peers {
	uint32_t senders; /* address handles of ours */
	uint32_t count;
	struct {
		uint64_t guid;
		uint32_t slot;
	} list[HDL_MAX_GROUP_PEERS];
};

struct objects {
	/* Set when the adapter is opened. */
	uint32_t max_qp, max_mr;
	uint32_t qp_bits; /* of a number; on a node the bits above them identify the process */

	/* Under the drive lock: numbers of queue pairs and of domains. */
	struct bitmap qp_map, pd_map;
	uint64_t qp_key[2]; /* determines the order of queue pair numbers (qp.c); 0: not drawn
	                       yet */
	uint32_t qp_turn, pd_rover;

	/* Any thread, without a lock. */
	_Atomic uint32_t count; /* domains, completion queues and channels, which must be destroyed
	                           before hdl_close() */
	_Atomic uint32_t cqs, ahs, srqs;

	/* Multicast groups. group_lock: one membership change at a time. */
	pthread_mutex_t group_lock;
	struct group_peers *group_peers; /* HDL_MAX_GROUPS of them, parallel to engine.groups; under
	                                    the drive lock */

	/* The first queue pair that failed because its peer was not ready, to be logged
	 * (adapter_say_not_ready()). Noted under the drive lock. */
	_Atomic uint32_t not_ready_qpn; /* 0: none, or already logged */
	uint32_t not_ready_retries;
	bool not_ready_alone; /* the message failed, and not the queue pair: a reliable datagram */
	bool not_ready_noted;
};

/* --- why.c --- */
/* Lines of HEDDLE_LOG=debug. From control calls, and where something failed; never from the data
 * path. */
/* Say why a call is refused, and give @error back. */
int why_not(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* hdl_qp_modify() gave @error. */
/* Packets of @path_mtu bytes are more than the @most that the network carries. */
void why_too_large(const char *what, uint32_t path_mtu, uint32_t most);
void why_not_modified(const struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask,
                      int error);
/* @what was refused because nobody is reached at the address of @attr (-HDL_EHOSTUNREACH), or the
 * wrong one (-HDL_EACCES). */
void why_unreachable(const struct hdl_adapter *adapter, const char *what,
                     const struct hdl_ah_attr *attr, int error);
/* It took @qp to ERR. */
void why_ended(const struct hdl_qp *qp);
/* The engine's sink for failures of queue pairs. */
void why_failed(void *context, const struct qp *qp, struct qp_fault fault);
/* An event that is not of a queue pair. */
void why_event(const struct hdl_event *event);

/* --- why_post.c --- */
/* @wr was refused with @error: a mistake of the program, or a full queue, which is logged once. */
void why_not_posted(struct hdl_qp *qp, const struct hdl_send_wr *wr, int error);
void why_not_received(struct hdl_qp *qp, const struct hdl_recv_wr *wr, int error);
void why_not_shared(struct hdl_srq *srq, const struct hdl_recv_wr *wr, int error);

/* --- raw.c --- */
/* A raw datagram arrived. Takes the drive lock. */
void adapter_take_raw(struct hdl_adapter *adapter, const uint8_t *frame, size_t bytes);

/* --- group.c --- */
int groups_init(struct hdl_adapter *adapter);
void groups_end(struct hdl_adapter *adapter);
/* An address handle for the group @gid is created or destroyed. Called without a lock; may wait for
 * the agent. Returns 0 or an error. */
int group_send_begin(struct hdl_adapter *adapter, const struct hdl_gid *gid, struct group **out);
void group_send_end(struct hdl_adapter *adapter, struct group *group);
/* The agent told us of a member. Called by the adapter's thread without a lock. */
void group_hear(struct hdl_adapter *adapter, const struct agent_msg *msg);
/* There is a new link to a process that we may have been waiting for. With the drive lock. */
void group_met(struct hdl_adapter *adapter, uint32_t link);
/* Tell a new agent which groups we are members of and send to. With agent.lock. */
void groups_again(struct hdl_adapter *adapter);

/* --- cq.c --- */
/* Make sure that datagrams through @ah to queue pair @qpn have a route. Called without a lock; may
 * wait for the agent. */
void ah_prepare(struct hdl_ah *ah, uint32_t qpn);
/* The route to queue pair @qpn; its link is LINK_NONE if there is none. */
struct ah_route ah_find(struct hdl_ah *ah, uint32_t qpn);

/* --- qp.c --- */
/* Allocate a number for a queue pair or an XRC shared receive queue. It differs from the previous
 * number in the same slot (number & engine.qp_mask). With the drive lock. */
int adapter_take_number(struct hdl_adapter *adapter, uint32_t *number);
void adapter_free_number(struct hdl_adapter *adapter, uint32_t number);
/* Attributes of queue pairs and contexts: check that those in @mask are in range; copy them;
 * allocate the read resources of a responder, 0 or an error. */
bool qp_values_fit(const struct hdl_qp_attr *attr, uint32_t mask);
void qp_take_values(struct hdl_qp_attr *to, const struct hdl_qp_attr *from, uint32_t mask);
int qp_make_reads(struct qp *qp, uint32_t depth);
/* Move @qp, in INIT, to RTS on the stream of @iwarp with @terms. With the drive lock. Returns 0;
 * -HDL_EPERM another state, or it has a stream; -HDL_ENOMEM. */
struct iwarp;
struct iwarp_terms;
struct iwarp_owner;
int qp_begin_stream(struct hdl_adapter *adapter, struct qp *qp, struct iwarp *iwarp,
                    const struct iwarp_terms *terms, const struct iwarp_owner *owner);
/* Move @qp, an unreliable datagram queue pair in INIT, to RTS on @service. With the drive lock. */
struct udp_service;
void qp_begin_udp(struct hdl_qp *qp, struct udp_service *service);

#endif
