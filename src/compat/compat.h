/* libibverbs.so.1 on Heddle: what the files of this layer share.
 *
 * Every object that a program sees (struct ibv_qp and so on) is the first member of one of ours,
 * always in the newest and largest layout, because inline functions of <infiniband/verbs.h> reach
 * into it. Each of ours holds one object of heddle.h. The process has one adapter (device.c),
 * shared by all open contexts, so queue pairs of different contexts can reach each other. Heddle's
 * error codes are errno numbers; where the manual pages of libibverbs promise another one, the call
 * itself translates. */
#ifndef COMPAT_COMPAT_H
#define COMPAT_COMPAT_H

#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>

#include <heddle/heddle.h>

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
#pragma GCC visibility pop

/* The header turns these into inline functions for programs; the library has to define them. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define COMPAT_EXPORT __attribute__((visibility("default")))

#define COMPAT_PORT       1u
#define COMPAT_GIDS       16u /* entries of the GID table; the unused ones are zero */
#define COMPAT_PKEY       0xffffu
#define COMPAT_PORT_SPEED 1000u /* in 100 Mb/s */

/* From a pointer that programs see to the structure that contains it. */
#define COMPAT_OF(pointer, type, member) \
	((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* --- asynchronous events (event.c) --- */

enum target_kind { TARGET_CQ, TARGET_QP, TARGET_SRQ };

struct compat_context;

/* The subject of an asynchronous event, found by the object below it. */
struct target {
	struct target *next; /* in its bucket of the table */
	const void *below;   /* struct hdl_qp and so on */
	struct compat_context *context;
	enum target_kind kind;
	void *seen;     /* struct ibv_qp and so on */
	uint32_t taken; /* events that ibv_get_async_event() has returned; under the context's
	                  event_lock */
	_Atomic bool drained_ok; /* a queue pair that asked for IBV_EVENT_SQ_DRAINED */
};

struct pending_event {
	struct target *target; /* NULL: it is about the port or the device */
	struct ibv_async_event event;
};

/* --- objects --- */

enum object_kind {
	OBJECT_CONTEXT,
	OBJECT_PD,
	OBJECT_TD,
	OBJECT_MR,
	OBJECT_MW,
	OBJECT_CHANNEL,
	OBJECT_CQ,
	OBJECT_SRQ,
	OBJECT_XRCD,
	OBJECT_QP,
	OBJECT_AH
};

/* An object's entry in the table of live objects (live.c). */
struct live {
	struct live *next;
	const void *seen; /* struct ibv_qp and so on */
	enum object_kind kind;
};

struct cm_manager;

/* A device that programs see: a row of compat/devices.h. The files of this layer ask a device for
 * its properties, never which device it is. */
struct compat_device {
	struct ibv_device ibv;
	/* libmlx5 and others read a little past a struct ibv_device and must find zeroes. */
	uint64_t zeroes[64];
	uint8_t guid_offset;        /* which of the node's GUIDs it has */
	uint8_t address;            /* which network address is its only GID; 0: see has_gid */
	const char *node_type_name; /* as in /sys, with its number; so are the other names */
	uint8_t link_layer;         /* IBV_LINK_LAYER_* */
	const char *link_layer_name;
	uint8_t port_flags; /* for struct ibv_port_attr */
	uint32_t port_cap_flags;
	bool has_lid; /* its port has LIDs, and packets need no global route */
	enum ibv_gid_type gid_type;
	int sysfs_gid_type; /* the same as enum ibv_gid_type_sysfs, which is private */
	const char *gid_type_name;
	/* Is @gid, one of the node's, in its GID table? NULL: see address. */
	bool (*has_gid)(const struct hdl_gid *gid, const struct hdl_limits *limits);
	bool has_interfaces;  /* its GIDs are addresses of network interfaces */
	uint8_t private_room; /* bytes of private data in every message of rdma_cm; 0:
	                         InfiniBand's, which differ */
	/* A queue pair in SQD ends its connection, as rdma_disconnect() expects of iWARP. */
	bool sqd_closes;
	/* How rdma_cm connects peers across the wire (cm/manager.h); NULL: it reaches none. */
	const struct cm_manager *manager;
};

struct compat_context {
	struct verbs_context verbs; /* the program's struct ibv_context is its last member */
	struct live live;
	struct hdl_adapter *adapter;
	struct compat_context
	        *next_open; /* in the list of contexts that get events of the port; under
	                      hand_lock */
	pthread_mutex_t event_lock;
	uint32_t event_head, event_count;
	struct pending_event events[HDL_MAX_EVENTS];
};

struct compat_td {
	struct ibv_td ibv;
	struct live live;
	_Atomic uint32_t users; /* parent domains */
};

/* A protection domain, or a parent domain, which is an alias of one. */
struct compat_pd {
	struct ibv_pd ibv;
	struct live live;
	struct hdl_pd *hdl;
	struct compat_pd *of;   /* the domain that it is an alias of, or NULL */
	struct compat_td *td;   /* of a parent domain, or NULL */
	_Atomic uint32_t users; /* objects that were created with it */
};

struct compat_mr {
	struct ibv_mr ibv;
	struct live live;
	struct hdl_mr *hdl;
	uint32_t access; /* enum ibv_access_flags as the program passed them */
	bool is_null;    /* made by compat_alloc_null_mr() */
};

struct compat_mw {
	struct ibv_mw ibv;
	struct live live;
	struct hdl_mw *hdl;
};

struct compat_channel {
	struct ibv_comp_channel ibv;
	struct live live;
	struct hdl_channel *hdl;
};

struct compat_cq {
	struct ibv_cq_ex ibv;
	struct live live;
	struct ibv_pd *domain; /* a parent domain, or NULL */
	struct hdl_cq *hdl;
	struct target target;
	/* The completion that start_poll or next_poll took last; read_* look at it. Locked in
	 * between unless only one thread polls. */
	pthread_mutex_t poll_lock;
	bool single_threaded;
	struct hdl_wc current;
};

struct compat_srq {
	struct ibv_srq ibv;
	struct live live;
	struct hdl_srq *hdl;
	struct target target;
	struct ibv_xrcd *xrcd; /* or NULL */
};

struct builder; /* qp_ex.c */

struct compat_qp {
	struct ibv_qp_ex ibv;
	struct live live;
	struct hdl_qp *hdl;
	struct target target;
	struct ibv_qp_init_attr init;
	struct builder *builder; /* NULL: created without IBV_QP_INIT_ATTR_SEND_OPS_FLAGS */
	struct ibv_xrcd *xrcd;   /* of a target, which others may have opened as well; or NULL */
};

struct compat_ah {
	struct ibv_ah ibv;
	struct live live;
	struct hdl_ah *hdl;
};

static inline struct compat_context *compat_context(struct ibv_context *context)
{
	return COMPAT_OF(context, struct compat_context, verbs.context);
}

static inline struct compat_pd *compat_pd(struct ibv_pd *pd)
{
	return (struct compat_pd *)pd;
}

static inline struct compat_mr *compat_mr(struct ibv_mr *mr)
{
	return (struct compat_mr *)mr;
}

static inline struct compat_mw *compat_mw(struct ibv_mw *mw)
{
	return (struct compat_mw *)mw;
}

static inline struct compat_channel *compat_channel(struct ibv_comp_channel *channel)
{
	return (struct compat_channel *)channel;
}

static inline struct compat_cq *compat_cq(struct ibv_cq *cq)
{
	return (struct compat_cq *)(void *)cq;
}

static inline struct compat_srq *compat_srq(struct ibv_srq *srq)
{
	return (struct compat_srq *)srq;
}

static inline struct compat_qp *compat_qp(struct ibv_qp *qp)
{
	return (struct compat_qp *)(void *)qp;
}

static inline struct compat_ah *compat_ah(struct ibv_ah *ah)
{
	return (struct compat_ah *)ah;
}

static inline const struct compat_device *compat_device_of(const struct ibv_context *context)
{
	return (const struct compat_device *)(const void *)context->device;
}

/* For calls that return a pointer. */
static inline void *compat_fail(int error)
{
	errno = error;
	return NULL;
}

/* For calls that return an errno number: some programs look at the result, others at errno. */
static inline int compat_error(int error)
{
	if (error != 0)
		errno = error;
	return error;
}

/* --- live.c --- */
/* @seen is live from now on. Returns a number that no other object has, which the program sees as
 * its handle. */
uint32_t compat_live_add(struct live *live, enum object_kind kind, const void *seen);
/* Is @seen a live object of that kind? */
bool compat_live(enum object_kind kind, const void *seen);
/* The caller, and no other thread, is about to destroy @seen: it is no longer live. NULL: it was
 * not live; EINVAL. */
struct live *compat_live_take(enum object_kind kind, const void *seen);
/* After an attempt to destroy the object: unless @error is 0 it failed, and the object is live
 * again. Returns @error. */
int compat_live_end(struct live *live, int error);
enum fork_step { FORK_BEFORE, FORK_PARENT, FORK_CHILD };
void compat_live_fork(enum fork_step step);

/* --- device.c --- */
/* The adapter of this process, opened by the first caller. NULL and errno if it cannot be
 * opened. */
struct hdl_adapter *compat_adapter(void);
/* Did the parent of this process open @context? Then nothing is left below its objects: destroying
 * them frees what the program sees, as when it cleans up before it exits, and nothing else. */
bool compat_inherited(struct ibv_context *context);
/* The devices that the program sees, in order; NULL past the last. */
const struct compat_device *compat_device(unsigned index);
/* The device that a path below /sys belongs to. */
const struct compat_device *compat_device_named(const char *name);
/* In network byte order, as programs see it. */
__be64 compat_guid(const struct compat_device *device);
/* An entry of the GID table. False: there is none, and *gid is zero. */
bool compat_gid(const struct compat_device *device, unsigned index, union ibv_gid *gid);
/* From an entry of the device's GID table to the index for hdl_gid_query(), and back; UINT_MAX:
 * there is none. */
unsigned compat_gid_below(const struct compat_device *device, unsigned index);
unsigned compat_gid_above(const struct compat_device *device, unsigned below);

/* --- interface.c --- */
/* The network interface that has an entry of the GID table as its address. False: there is none, as
 * on InfiniBand. */
bool compat_interface(const struct compat_device *device, unsigned index, char name[IF_NAMESIZE]);

/* --- query.c --- */
int compat_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                      size_t length);
int compat_query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t length);

/* The largest MTU that fits into the packets of the port. */
enum ibv_mtu compat_active_mtu(struct hdl_adapter *adapter);

/* enum ibv_gid_type_sysfs of an entry of the GID table. 0, or -1 and errno. */
int compat_gid_type(const struct compat_device *device, uint8_t port, unsigned index, int *type);

/* --- memory.c --- */
/* enum ibv_access_flags to enum hdl_access; flags that only concern queue pairs and windows are
 * dropped. */
uint32_t compat_access(unsigned flags);
unsigned compat_access_back(uint32_t access);
/* Count an object that was created with @pd, or one that was destroyed. */
void compat_pd_use(struct ibv_pd *pd);
void compat_pd_leave(struct ibv_pd *pd);
/* Destroy @below, the object below a region, window or address handle of @context that was created
 * with @pd, after compat_live_take(). 0, and the caller frees what the program saw; or a positive
 * error, and the object is live again. A child that inherited them may have freed @pd before. */
int compat_end_in_pd(struct live *live, struct ibv_context *context, struct ibv_pd *pd,
                     int (*destroy)(void *below), void *below);
struct ibv_td *compat_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int compat_dealloc_td(struct ibv_td *td);
struct ibv_pd *compat_alloc_parent_domain(struct ibv_context *context,
                                          struct ibv_parent_domain_init_attr *attr);
struct ibv_mr *compat_alloc_null_mr(struct ibv_pd *pd);
struct ibv_mw *compat_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int compat_dealloc_mw(struct ibv_mw *mw);
int compat_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* --- cq.c, poll.c --- */
struct ibv_cq_ex *compat_create_cq_ex(struct ibv_context *context,
                                      struct ibv_cq_init_attr_ex *attr);
int compat_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int compat_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
/* Give @cq the calls that @wc_flags asks for. */
void compat_poll_calls(struct compat_cq *cq, uint64_t wc_flags);
/* May a wait that a signal interrupted go on, as read(2) would? */
bool compat_signals_restart(void);

/* --- srq.c --- */
struct ibv_srq *compat_create_srq_ex(struct ibv_context *context,
                                     struct ibv_srq_init_attr_ex *attr);
int compat_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* --- xrc.c --- */
struct ibv_xrcd *compat_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int compat_close_xrcd(struct ibv_xrcd *xrcd);
int compat_get_srq_num(struct ibv_srq *srq, uint32_t *number);
/* The domain below @xrcd, which cannot be closed until compat_xrcd_leave(). */
struct hdl_xrcd *compat_xrcd_use(struct ibv_xrcd *xrcd);
void compat_xrcd_leave(struct ibv_xrcd *xrcd);
/* Make the target @qp available to be opened by its number; 0 or a positive error. */
int compat_share_qp(struct hdl_qp *qp, struct hdl_xrcd *xrcd);
/* Add a user to the target with @number; NULL: there is none in @xrcd. */
struct hdl_qp *compat_shared_qp(uint32_t number, struct hdl_xrcd *xrcd);
/* Remove a user; the last one destroys the target. Returns as hdl_qp_destroy() does. */
int compat_unshare_qp(void *below);
/* Called in a forked child, which inherits none of these. */
void compat_xrc_forget(void);

/* --- qp.c, attr.c, qp_ex.c --- */
struct ibv_qp *compat_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *compat_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);
/* Log why a call is refused (HEDDLE_LOG=debug) and return @error. libheddle logs its own
 * refusals. */
int compat_refuse(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Translate; 0 or a positive error. */
int compat_ah_attr(const struct compat_device *device, const struct ibv_ah_attr *from,
                   struct hdl_ah_attr *to);
int compat_qp_attr(const struct compat_device *device, const struct ibv_qp_attr *from, int mask,
                   struct hdl_qp_attr *to, uint32_t *to_mask);
void compat_qp_attr_back(const struct compat_device *device, const struct hdl_qp_attr *from,
                         struct ibv_qp_attr *to);
/* The calls of struct ibv_qp_ex for the operations in @ops; 0 or a positive error. */
int compat_builder_create(struct compat_qp *qp, uint64_t ops);
void compat_builder_destroy(struct compat_qp *qp);

/* --- post.c --- */
int compat_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int compat_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* The positive error that ibv_post_send() returns when hdl_post_send() or the like returns
 * @result. */
int compat_post_error(int result);
/* Translate the bind of a window; 0 or a positive error. @to gets the whole key; it becomes the
 * window's when the request is posted. */
int compat_bind(struct hdl_send_wr *to, struct ibv_mw *mw, uint32_t rkey,
                const struct ibv_mw_bind_info *info);

/* --- event.c --- */
/* Start to deliver the events of @adapter; does nothing if they are delivered already. 0 or a
 * positive error. */
int compat_events_start(struct hdl_adapter *adapter);
/* Called in a forked child, which has neither the thread nor the adapter. */
void compat_events_forget(void);
int compat_events_open(struct compat_context *context);
void compat_events_close(struct compat_context *context);
void compat_target_add(struct target *target);
/* Destroy the object below @target with @destroy. When that returns 0, no event about it is queued
 * or unacknowledged. Returns what @destroy returns. */
int compat_target_end(struct target *target, int (*destroy)(void *below));

/* --- redirect.c --- */
/* Let the loaded modules find our files below /sys/class/infiniband and /dev/infiniband. */
void compat_redirect(void);
/* Read a file as the program would: ours, or the system's. -1 and errno, or the length. */
int compat_read_file(const char *path, char *buffer, size_t size);

/* --- wait.c --- */
/* Remember @fd, the descriptor of a channel of @adapter, when it is opened; forget it before it is
 * closed. */
void compat_wait_opened(struct hdl_adapter *adapter, int fd);
void compat_wait_closing(int fd);
/* The program closed @fd. */
void compat_wait_closed(int fd);
/* Called in a forked child, which has no channels. */
void compat_wait_forget(void);
/* These replace the calls of the C library. */
int compat_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int compat_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                 const sigset_t *sigmask);
int compat_poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t room);
int compat_ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                     const sigset_t *sigmask, size_t room);
int compat_select(int count, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout);
int compat_pselect(int count, fd_set *in, fd_set *out, fd_set *except,
                   const struct timespec *timeout, const sigset_t *sigmask);
int compat_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int compat_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms);
int compat_epoll_pwait(int epoll, struct epoll_event *events, int most, int timeout_ms,
                       const sigset_t *sigmask);
int compat_epoll_pwait2(int epoll, struct epoll_event *events, int most,
                        const struct timespec *timeout, const sigset_t *sigmask);

/* --- socket.c --- */
/* Replaces connect(2). */
int compat_connect(int fd, const struct sockaddr *address, socklen_t bytes);

/* --- names.c --- */
/* Replaces getaddrinfo(3). */
int compat_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **result);

#endif
