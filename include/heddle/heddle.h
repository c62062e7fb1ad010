/* Heddle: RDMA without the hardware.
 *
 * An adapter lives inside the process that opens it. Objects hang below it: protection domains
 * (pd), registered memory (mr), windows (mw), completion queues (cq), shared receive queues (srq),
 * queue pairs (qp), address handles (ah). Control calls return 0 or a negative error of error.h; a
 * data-path failure is a completion with a status.
 *
 * Every call below says, in this order: what it does; Owner: who owns what afterwards; Threads:
 * from which threads;
 * Blocks: whether it may; Returns: every return. The manual pages are made from these comments. */
#ifndef HEDDLE_HEDDLE_H
#define HEDDLE_HEDDLE_H

#include <heddle/error.h>
#include <heddle/limits.h>
#include <heddle/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HDL_API __attribute__((visibility("default")))

/* What programs see of an adapter on a node: the same queue pairs by the names of RoCE, and by
 * those of InfiniBand. */
#define HDL_DEVICE_ETHERNET   "heddle0"
#define HDL_DEVICE_INFINIBAND "heddle_ib0"

/* How to open an adapter. Zeroes are good defaults. */
struct hdl_open_attr {
	const char *name;   /* shown in status and logs; NULL: "heddle0" */
	struct hdl_gid gid; /* all zero: one is made up */
	uint32_t max_mr;    /* entries of the protection table; 0: 65536 */
	uint32_t max_qp;    /* 0: 16384 */
	bool on_node; /* other processes of this user can reach it: the node agent makes it known */
	const char *node; /* which node, when on_node; NULL: $HEDDLE_NODE, or the machine's own */
	bool no_thread;   /* nothing moves unless hdl_cq_poll() or hdl_progress() is called */
	const char *
	        capture; /* pcapng file for its packets; NULL: $HEDDLE_CAPTURE, or none; "": none */
};

/* hdl_open - open an adapter
 *
 * Makes an adapter in this process. Unless @attr->no_thread is set it has a thread that sleeps
 * while the application polls or has nothing to do. @attr may be NULL. With @attr->capture
 * everything that goes through the adapter is added to that file as RoCEv2 packets (see
 * hdl_capture_prepare()).
 *
 * Owner: the caller owns *out and ends it with hdl_close().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL a limit in @attr is above limits.h, the name of the node is too long, or
 * a setting in the environment (heddle(1)) makes no sense; -HDL_ENOMEM; -HDL_EIO no thread or file
 * descriptor, an address that cannot be had, or the capture cannot be written to. What keeps it
 * from being opened is said on standard error. */
HDL_API int hdl_open(const struct hdl_open_attr *attr, struct hdl_adapter **out);

/* hdl_capture_prepare - make a file for a new capture
 *
 * Adapters add to the file that they record to, so that several, in this process and in others,
 * may record to one. This makes an empty one of it, unless some adapter is recording to it now:
 * then it stays as it is. A pipe that somebody reads from may be named as well; it takes one
 * adapter.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_EIO it cannot be made or written to, and errno says why; EEXIST:
 * there is a file that is no capture, which is left alone. */
HDL_API int hdl_capture_prepare(const char *path);

/* hdl_capture_check - could an adapter record to this file?
 *
 * As hdl_capture_prepare(), but what is there stays, and a pipe is not opened: its reader would
 * see it end.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: as hdl_capture_prepare(). */
HDL_API int hdl_capture_check(const char *path);

/* hdl_close - close an adapter
 *
 * Peers that are joined to it learn of its end: their queue pairs go to the error state.
 *
 * Owner: @adapter is freed.
 * Threads: any, but no other call on the adapter may run or follow.
 * Blocks: until its thread has ended and peers have stopped touching its memory; until what was
 * sent as HDL_CM_LAST_WORD has left the machine, ten seconds at most, and a second at most until
 * it is answered.
 * Returns: 0; -HDL_EBUSY an object of the adapter still exists. */
HDL_API int hdl_close(struct hdl_adapter *adapter);

/* hdl_adapter_query - what an adapter is and what it can hold
 *
 * Fills *limits with the address of the adapter and its limits.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_adapter_query(struct hdl_adapter *adapter, struct hdl_limits *limits);

/* hdl_gid_query - an address of an adapter
 *
 * An adapter on a node has the addresses of the node: a link-local one made from the GUID, that of
 * the InfiniBand port (hdl_limits.ib_gid), 127.72.0.0 plus the LID as an IPv4 address, then those
 * of the host, unless the node has a name. A node on a wire (HEDDLE_ADDR) has that address first;
 * where it is an IPv6 one, it has no others of IPv4. A second one of the wire comes third.
 * hdl_limits.wire_gids says which they are: sgid_index of a path names the one that its packets
 * leave from.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL there are fewer addresses. */
HDL_API int hdl_gid_query(struct hdl_adapter *adapter, uint32_t index, struct hdl_gid *gid);

/* hdl_join - join two adapters of one process
 *
 * Lays a pair of lanes between @a and @b, so that queue pairs of the one reach the other by its
 * GID. An adapter is joined to itself from the start.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL joined already, or both have the same GID; -HDL_ENOMEM, also when
 * HDL_MAX_PEERS is reached. */
HDL_API int hdl_join(struct hdl_adapter *a, struct hdl_adapter *b);

/* hdl_progress - drive an adapter
 *
 * Does the work that is waiting: requests that were posted, messages that came, timers that ran
 * out. An application that polls completion queues or waits on channels never needs it.
 *
 * Owner: nothing changes hands.
 * Threads: any; one at a time does the work.
 * Blocks: no.
 * Returns: the number of things done, 0 when there was nothing to do. */
HDL_API int hdl_progress(struct hdl_adapter *adapter);

/* hdl_event_get - take an asynchronous event
 *
 * Waits up to @timeout_ms (0: not at all; -1: for ever) for an event and takes it.
 *
 * Owner: nothing changes hands; objects named by the event may have been destroyed since, which
 * destroying them prevents: events of a destroyed object are removed.
 * Threads: any.
 * Blocks: up to @timeout_ms.
 * Returns: 0; -HDL_EAGAIN none came in time; -HDL_EINVAL. */
HDL_API int hdl_event_get(struct hdl_adapter *adapter, struct hdl_event *event, int timeout_ms);

/* hdl_event_fd - the file descriptor of asynchronous events
 *
 * Readable (poll, epoll) while an event waits. Only hdl_event_get() may read it.
 *
 * Owner: the adapter keeps it.
 * Threads: any.
 * Blocks: no.
 * Returns: the descriptor. */
HDL_API int hdl_event_fd(struct hdl_adapter *adapter);

/* A counter: see hdl_counters(). */
struct hdl_counter {
	const char *name;
	uint64_t value;
};

/* hdl_counters - read the adapter's counters
 *
 * Fills up to @max elements of @list. The names never change and are in the order of the manual
 * page.
 *
 * Owner: the names are static.
 * Threads: any.
 * Blocks: no.
 * Returns: how many counters there are, which may be more than @max. */
HDL_API size_t hdl_counters(struct hdl_adapter *adapter, struct hdl_counter *list, size_t max);

/* A queue pair as others see it: see hdl_observe(). */
struct hdl_qp_info {
	uint32_t qpn;
	uint32_t type;     /* enum hdl_qp_type */
	uint32_t state;    /* enum hdl_qp_state */
	uint32_t dest_qpn; /* connected types: the peer */
	uint32_t access;   /* enum hdl_access: what peers may do through it */
	uint32_t link;     /* connected types: the same number at both ends; 0: none */
	/* The last request that failed by itself, since the queue pair was last in RESET: */
	uint32_t status; /* enum hdl_wc_status; HDL_WC_SUCCESS: none did */
	uint32_t detail; /* enum hdl_detail, its vendor_err */
	/* And the last event that told of a failure: */
	bool has_event;
	uint32_t event; /* enum hdl_event_type */
	uint32_t event_detail;
	/* HDL_UNSEEN where the memory of the process cannot be read: */
	uint32_t outstanding; /* requests that were posted and have not completed */
	uint32_t receives;    /* receives that wait, those of a shared receive queue included */
	bool shared;          /* they are of a shared receive queue */
};
#define HDL_UNSEEN UINT32_MAX

/* A process that is known to the node agent: see hdl_observe(). */
struct hdl_process {
	char node[64]; /* empty: the machine's own */
	char program[64];
	struct hdl_gid gid; /* the first address of the node */
	int pid;
	uint32_t slot;    /* the high bits of its queue pair numbers */
	uint32_t regions; /* valid entries of its protection table that are regions, */
	uint32_t windows; /* and windows */
	uint64_t region_bytes;
	size_t qp_count;
	struct hdl_qp_info *qps;
	size_t counter_count;
	struct hdl_counter *counters;
	struct hdl_gid
	        taken;     /* the node's usual address, if another user holds it; else all zero */
	uint32_t taken_by; /* who */
};

/* hdl_observe - look at every process that uses Heddle
 *
 * Asks the node agent of this user who is there, and reads what each shares with its peers. How
 * full the queues are, and what was refused, is read from the memory of the process; where the
 * system does not allow that, fields are HDL_UNSEEN and the counters of refusals are left out. Does
 * not start an agent, and disturbs nobody.
 *
 * Owner: the caller owns *list and ends it with hdl_observe_free().
 * Threads: any.
 * Blocks: until the agent has answered, a few milliseconds; two seconds at most.
 * Returns: 0; -HDL_EHOSTUNREACH no agent runs; -HDL_EINVAL; -HDL_ENOMEM; -HDL_EIO. */
HDL_API int hdl_observe(struct hdl_process **list, size_t *count);

/* hdl_observe_free - forget what hdl_observe() found
 *
 * Owner: @list is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: nothing. */
HDL_API void hdl_observe_free(struct hdl_process *list, size_t count);

/* What a code is one of: see hdl_codes(). */
enum hdl_codes_kind {
	HDL_CODES_ERROR,    /* enum hdl_error */
	HDL_CODES_STATUS,   /* enum hdl_wc_status */
	HDL_CODES_DETAIL,   /* enum hdl_detail, the vendor_err of a completion */
	HDL_CODES_EVENT,    /* enum hdl_event_type */
	HDL_CODES_COUNTER,  /* the place in the list of hdl_counters() */
	HDL_CODES_QP_TYPE,  /* enum hdl_qp_type */
	HDL_CODES_QP_STATE, /* enum hdl_qp_state */
	HDL_CODES_QP_ATTR,  /* enum hdl_qp_attr_mask */
	HDL_CODES_KIND_COUNT
};

/* A code, with its words: see hdl_codes(). */
struct hdl_code {
	const char *name;
	uint32_t value;
	const char *text;     /* what it means */
	const char *advice;   /* what to do about it; NULL: nothing is to be said */
	const char *alias;    /* what libibverbs calls it; NULL: it does not know it */
	uint32_t alias_value; /* its number there, of statuses, events and states */
};

/* hdl_codes - list the codes of a kind, with what they mean and what to do about them
 *
 * @kind is one of enum hdl_codes_kind; @count is set to the length of the list. The texts are those
 * of hdl_strerror(), hdl_wc_status_str(), hdl_detail_str() and hdl_event_str().
 *
 * Owner: the list is static.
 * Threads: any.
 * Blocks: no.
 * Returns: the list; NULL, with *count 0, where there is no such kind. */
HDL_API const struct hdl_code *hdl_codes(uint32_t kind, size_t *count);

/* hdl_strerror - an error in words
 *
 * @error may be negative or positive.
 *
 * Owner: the string is static.
 * Threads: any.
 * Blocks: no.
 * Returns: what the error means and what to do; never NULL. */
HDL_API const char *hdl_strerror(int error);

/* hdl_wc_status_str - a completion status in words
 *
 * Owner: the string is static.
 * Threads: any.
 * Blocks: no.
 * Returns: the name and meaning; never NULL. */
HDL_API const char *hdl_wc_status_str(uint32_t status);

/* hdl_detail_str - which check said no, in words
 *
 * Explains hdl_wc.vendor_err and hdl_event.detail.
 *
 * Owner: the string is static.
 * Threads: any.
 * Blocks: no.
 * Returns: the check; never NULL. */
HDL_API const char *hdl_detail_str(uint32_t detail);

/* hdl_event_str - an event type in words
 *
 * Owner: the string is static.
 * Threads: any.
 * Blocks: no.
 * Returns: the event; never NULL. */
HDL_API const char *hdl_event_str(uint32_t type);

/* hdl_pd_create - make a protection domain
 *
 * Queue pairs use the regions and windows of their own domain only.
 *
 * Owner: the caller owns *out and ends it with hdl_pd_destroy().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM. */
HDL_API int hdl_pd_create(struct hdl_adapter *adapter, struct hdl_pd **out);

/* hdl_pd_destroy - end a protection domain
 *
 * Owner: @pd is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EBUSY something still belongs to it. */
HDL_API int hdl_pd_destroy(struct hdl_pd *pd);

/* hdl_mem_alloc - get memory that peers can map
 *
 * @length bytes of zeroes, in whole pages, to be registered like any other memory. Processes of
 * this machine map it and read, write and update it without a system call and without this
 * process. The same holds for other memory that lies in one shared mapping of a file in memory
 * (memfd_create(), shm_open(), hugetlbfs), as long as a descriptor or a path leads to the file;
 * all else is as good and takes a system call for each copy. Up to 64 such mappings of a process
 * are used this way. Each call costs a descriptor and a mapping: it is for buffers, not for small
 * objects.
 *
 * Owner: the caller owns the memory and ends it with hdl_mem_free(). A child of fork() does not
 * get a copy: it has the same memory.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @length is 0 or above 1 TiB; -HDL_ENOMEM, also when the process has no
 * descriptor left. */
HDL_API int hdl_mem_alloc(size_t length, void **out);

/* hdl_mem_free - give memory of hdl_mem_alloc() back
 *
 * Deregister it first: as with munmap(), what peers still write to it is lost or fails.
 *
 * Owner: the memory is unmapped.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL not the address of such memory. */
HDL_API int hdl_mem_free(void *memory);

/* hdl_mr_register - register memory
 *
 * Lets queue pairs of @pd use @length bytes at @addr with @access. The range must be mapped with
 * those rights. Peers and work requests name the first byte by its address, or by 0 with
 * HDL_ACCESS_ZERO_BASED. A region of no bytes has a key like any other; requests of no bytes
 * succeed with it, all others are out of its bounds.
 *
 * Owner: the memory stays the caller's and must stay mapped; the caller owns *out and ends it with
 * hdl_mr_deregister().
 * Threads: any.
 * Blocks: no, but touches every page.
 * Returns: 0; -HDL_EFAULT not mapped, or without the rights; -HDL_EINVAL remote write or atomic
 * without local write, or a range that wraps; -HDL_ENOMEM. */
HDL_API int hdl_mr_register(struct hdl_pd *pd, void *addr, size_t length, uint32_t access,
                            struct hdl_mr **out);

/* hdl_mr_register_pages - register scattered pages as one range
 *
 * Like hdl_mr_register() for the pages of @reg, which become one range from @reg->iova on.
 *
 * Owner: as hdl_mr_register(); the list is copied.
 * Threads: any.
 * Blocks: no, but touches every page.
 * Returns: 0; -HDL_EFAULT; -HDL_EINVAL the list, offset, page size and length do not fit;
 * -HDL_ENOMEM. */
HDL_API int hdl_mr_register_pages(struct hdl_pd *pd, const struct hdl_register *reg,
                                  struct hdl_mr **out);

/* hdl_mr_alloc - make a region for registration by work request
 *
 * The region is not valid until HDL_OP_REGISTER gives it pages; requests behind that one on the
 * same queue pair may use its key at once.
 *
 * Owner: the caller owns *out and ends it with hdl_mr_deregister().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @max_pages is 0 or above limits.h; -HDL_ENOMEM. */
HDL_API int hdl_mr_alloc(struct hdl_pd *pd, uint32_t max_pages, struct hdl_mr **out);

/* hdl_mr_alloc_null - make a region of no memory
 *
 * Work requests of @pd may name any address with its key: what they read there is zeroes, what
 * they write there is dropped. Peers cannot use it. For parts of a message that nobody wants, or
 * that do not matter.
 *
 * Owner: the caller owns *out and ends it with hdl_mr_deregister(). It can be neither shared nor
 * registered again.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM. */
HDL_API int hdl_mr_alloc_null(struct hdl_pd *pd, struct hdl_mr **out);

/* hdl_mr_share - register the memory of a region once more
 *
 * The new region has a key, rights and a domain of its own and uses the translation table of @mr
 * (seed 004 figure 14).
 *
 * Owner: the caller owns *out. @mr may be deregistered before or after it.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL, also when @mr is registered by work request or has no memory;
 * -HDL_EACCES the memory was not registered with the rights; -HDL_ESTALE @mr is not valid;
 * -HDL_ENOMEM. */
HDL_API int hdl_mr_share(struct hdl_mr *mr, struct hdl_pd *pd, uint32_t access,
                         struct hdl_mr **out);

/* hdl_mr_reregister - give a region other memory, rights or another domain
 *
 * The region of hdl_mr_register() keeps its key. Afterwards no operation touches the memory that
 * was behind it, or does so with the old rights, whoever started it.
 *
 * Owner: the former memory is the caller's alone; the new as hdl_mr_register().
 * Threads: any.
 * Blocks: until operations that are copying at this moment have ended; touches every page.
 * Returns: 0, else the region is as it was: -HDL_EFAULT and -HDL_EINVAL as hdl_mr_register();
 * -HDL_EBUSY windows are bound to it; -HDL_ENOTSUP not made by hdl_mr_register(); -HDL_ESTALE its
 * memory has gone. */
HDL_API int hdl_mr_reregister(struct hdl_mr *mr, struct hdl_pd *pd, void *addr, size_t length,
                              uint32_t access);

/* hdl_mr_deregister - end a registration
 *
 * Afterwards no operation touches the memory, whoever started it.
 *
 * Owner: @mr is freed; the memory is the caller's alone.
 * Threads: any.
 * Blocks: until operations that are copying at this moment have ended.
 * Returns: 0; -HDL_EBUSY windows are bound to it. */
HDL_API int hdl_mr_deregister(struct hdl_mr *mr);

/* hdl_mr_key - the current key of a region
 *
 * For local pieces and, where the rights allow, for peers.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the key. */
HDL_API struct hdl_key hdl_mr_key(const struct hdl_mr *mr);

/* hdl_segment_update - tell the adapter that memory is no longer what it was
 *
 * The SegmentTableUpdate of seed 003: every registration that overlaps the range becomes unusable.
 * Operations on it fail with HDL_DETAIL_GONE and an HDL_EVENT_MEMORY_GONE is raised. Call it
 * before munmap(), mremap() or a mapping over registered memory; memory that vanished without it
 * is noticed when an operation faults, or when the addresses are registered again.
 *
 * Owner: registrations stay the caller's, to be deregistered.
 * Threads: any.
 * Blocks: until operations that are copying at this moment have ended.
 * Returns: the number of registrations affected; -HDL_EINVAL. */
HDL_API int hdl_segment_update(struct hdl_adapter *adapter, const void *addr, size_t length);

enum hdl_mw_type {
	HDL_MW_TYPE_1 =
	        1,    /* usable by every queue pair of the domain; every bind changes the key */
	HDL_MW_TYPE_2 /* for the queue pair that bound it; the binder picks the instance */
};

/* hdl_mw_alloc - make a window (AllocateRKey)
 *
 * A window is a key for a byte range of a region, bound and unbound without the agent and without
 * a system call.
 *
 * Owner: the caller owns *out and ends it with hdl_mw_free().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM. */
HDL_API int hdl_mw_alloc(struct hdl_pd *pd, uint32_t type, struct hdl_mw **out);

/* hdl_mw_bind - bind a type 1 window (BindRKey)
 *
 * From now on the key *key opens @bind->length bytes at @bind->addr, any length, any alignment,
 * with @bind->access; the window's former key is stale. A null region and zero length unbind.
 *
 * Owner: the region of @bind cannot be deregistered while the window is bound.
 * Threads: any.
 * Blocks: until operations that are copying through the former binding have ended.
 * Returns: 0; -HDL_EINVAL the range is not in the region, a type 2 window, another domain;
 * -HDL_EACCES the region does not allow binding or lacks the rights; -HDL_ESTALE the region is not
 * valid. */
HDL_API int hdl_mw_bind(struct hdl_mw *mw, const struct hdl_bind *bind, struct hdl_key *key);

/* hdl_mw_unbind - unbind a window (UnbindRKey)
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until operations that are copying through it have ended.
 * Returns: 0, also when it was not bound. */
HDL_API int hdl_mw_unbind(struct hdl_mw *mw);

/* hdl_mw_free - end a window (DeallocateRKey)
 *
 * Unbinds it first if need be.
 *
 * Owner: @mw is freed.
 * Threads: any.
 * Blocks: until operations that are copying through it have ended.
 * Returns: 0. */
HDL_API int hdl_mw_free(struct hdl_mw *mw);

/* hdl_mw_key - the current key of a window
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the key; for a type 2 window the one to take the index from. */
HDL_API struct hdl_key hdl_mw_key(const struct hdl_mw *mw);

/* hdl_key_with_instance - the same index with another instance
 *
 * For HDL_OP_BIND and HDL_OP_REGISTER, where the caller picks the instance.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the key. */
static inline struct hdl_key hdl_key_with_instance(struct hdl_key key, uint8_t instance)
{
	struct hdl_key result = {(key.v & ~0xffu) | instance};
	return result;
}

/* hdl_channel_create - make a completion channel
 *
 * Completion queues report to it through one file descriptor.
 *
 * Owner: the caller owns *out and ends it with hdl_channel_destroy().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM; -HDL_EIO no file descriptor. */
HDL_API int hdl_channel_create(struct hdl_adapter *adapter, struct hdl_channel **out);

/* hdl_channel_destroy - end a completion channel
 *
 * Owner: @channel is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EBUSY a completion queue uses it. */
HDL_API int hdl_channel_destroy(struct hdl_channel *channel);

/* hdl_channel_fd - the file descriptor of a channel
 *
 * Readable (poll, epoll) while a completion event waits. Only hdl_channel_get() may read it.
 *
 * Owner: the channel keeps it.
 * Threads: any.
 * Blocks: no.
 * Returns: the descriptor. */
HDL_API int hdl_channel_fd(struct hdl_channel *channel);

/* hdl_channel_get - take a completion event
 *
 * Waits up to @timeout_ms (0: not at all; -1: for ever) until an armed completion queue of the
 * channel has a completion. Arm the queue again, then poll it until it is empty.
 *
 * Owner: *context is the one of hdl_cq_create(). The queue cannot be destroyed before hdl_cq_ack()
 * has returned as many events as were taken.
 * Threads: any.
 * Blocks: up to @timeout_ms.
 * Returns: 0; -HDL_EAGAIN none came in time. */
HDL_API int hdl_channel_get(struct hdl_channel *channel, struct hdl_cq **cq, void **context,
                            int timeout_ms);

struct pollfd;
struct epoll_event;
struct timespec;

/* hdl_poll - wait for file descriptors as ppoll(2) does, and drive the adapter meanwhile
 *
 * For a thread that waits for channels of @adapter among other descriptors. To wait for
 * hdl_channel_fd() in poll(2) or epoll_wait(2) is correct, but each message wakes the adapter's
 * thread first and the caller after it. In this call the caller is woken at once and does the
 * adapter's work itself, as in hdl_channel_get(). Everything else is as with ppoll(2): @fds may
 * hold any descriptors, and @timeout NULL means for ever, @sigmask, which is a sigset_t, NULL the
 * mask that is in force.
 *
 * Owner: the caller owns @fds.
 * Threads: any; of several that wait at once one is woken at once, the others by it.
 * Blocks: until a descriptor has something, for @timeout, or until a signal handler has run.
 * Returns: the number of descriptors whose revents are not 0; 0 time is up; -HDL_EINTR;
 * -HDL_EINVAL; -HDL_ENOMEM; -HDL_EFAULT. */
HDL_API int hdl_poll(struct hdl_adapter *adapter, struct pollfd *fds, uint32_t count,
                     const struct timespec *timeout, const void *sigmask);

/* hdl_epoll_wait - wait as epoll_pwait2(2) does, and drive the adapter meanwhile
 *
 * What hdl_poll() is for poll(2), for an @epoll that contains channels of @adapter. Events are
 * those of epoll(7) in each of its modes.
 *
 * Owner: the caller owns @events, room for @max.
 * Threads: any; an event goes to one of them.
 * Blocks: until there is an event, for @timeout, or until a signal handler has run.
 * Returns: the number of events; 0 time is up; -HDL_EINTR; or the error of epoll_pwait2(2),
 * negated. */
HDL_API int hdl_epoll_wait(struct hdl_adapter *adapter, int epoll, struct epoll_event *events,
                           int max, const struct timespec *timeout, const void *sigmask);

/* hdl_cq_create - make a completion queue
 *
 * Holds at least @depth completions of any number of queue pairs.
 *
 * Owner: the caller owns *out and ends it with hdl_cq_destroy(). @channel may be NULL.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @depth is 0 or above limits.h; -HDL_ENOMEM. */
HDL_API int hdl_cq_create(struct hdl_adapter *adapter, uint32_t depth, struct hdl_channel *channel,
                          void *context, struct hdl_cq **out);

/* hdl_cq_destroy - end a completion queue
 *
 * Owner: @cq is freed with the completions in it.
 * Threads: any.
 * Blocks: until every event taken from its channel has been acknowledged.
 * Returns: 0; -HDL_EBUSY a queue pair uses it. */
HDL_API int hdl_cq_destroy(struct hdl_cq *cq);

/* hdl_cq_resize - change the depth of a completion queue
 *
 * Completions in it stay, in order.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @depth is 0, above limits.h, or less than what is in it; -HDL_ENOMEM. */
HDL_API int hdl_cq_resize(struct hdl_cq *cq, uint32_t depth);

/* hdl_cq_discard - drop the completions of a queue pair
 *
 * For who resets or destroys a queue pair and wants to hear no more of it.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: how many there were; -HDL_EINVAL. */
HDL_API int hdl_cq_discard(struct hdl_cq *cq, uint32_t qpn);

/* hdl_cq_poll - take completions
 *
 * Drives the adapter, then takes up to @max completions in the order in which they were made.
 *
 * Owner: the caller owns @wc.
 * Threads: any; a completion goes to one of them.
 * Blocks: no.
 * Returns: the number taken, 0 when there was none; -HDL_EOVERFLOW the queue was overrun and what
 * was in it has been taken; -HDL_EINVAL. */
HDL_API int hdl_cq_poll(struct hdl_cq *cq, struct hdl_wc *wc, int max);

/* hdl_cq_arm - ask for one completion event
 *
 * The next completion (with @solicited_only: the next solicited or failed one) puts one event on
 * the channel. If the queue holds such completions already and something has come or was taken
 * since its last event, the event comes at once: a program may poll, arm and wait, and misses
 * nothing that came in between. It is not raised while an earlier one of the queue waits to be
 * taken; the queue is armed for what comes next then. An event does not promise a completion: it
 * may have been polled by the time the event is taken.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL the queue has no channel. */
HDL_API int hdl_cq_arm(struct hdl_cq *cq, bool solicited_only);

/* hdl_cq_ack - acknowledge completion events
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL more than were taken. */
HDL_API int hdl_cq_ack(struct hdl_cq *cq, uint32_t count);

/* hdl_srq_create - make a shared receive queue
 *
 * Queue pairs made with it take their receive requests from it.
 *
 * Owner: the caller owns *out and ends it with hdl_srq_destroy(). @attr returns the limits that
 * are in force.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL above limits.h; -HDL_ENOMEM. */
HDL_API int hdl_srq_create(struct hdl_pd *pd, struct hdl_srq_attr *attr, void *context,
                           struct hdl_srq **out);

/* hdl_xrcd_open - make a domain of extended reliable connections
 *
 * Queue pairs of the type HDL_QP_XRC_TGT deliver to the shared receive queues of their domain,
 * whichever of them a message names.
 *
 * Owner: the caller owns *out and ends it with hdl_xrcd_close().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM. */
HDL_API int hdl_xrcd_open(struct hdl_adapter *adapter, struct hdl_xrcd **out);

/* hdl_xrcd_close - end a domain of extended reliable connections
 *
 * Owner: @xrcd is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EBUSY a queue pair or a shared receive queue is in it; -HDL_EINVAL. */
HDL_API int hdl_xrcd_close(struct hdl_xrcd *xrcd);

/* hdl_srq_create_xrc - make a shared receive queue for extended reliable connections
 *
 * Messages that name it (hdl_srq_number()) and come through a queue pair of @xrcd take receive
 * requests from it and complete in @cq; the memory that they may touch, by RDMA too, is that of
 * @pd. Queue pairs of other types cannot be made with it.
 *
 * Owner: the caller owns *out and ends it with hdl_srq_destroy(). @attr returns the limits that
 * are in force.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL above limits.h, or not of one adapter; -HDL_ENOMEM. */
HDL_API int hdl_srq_create_xrc(struct hdl_pd *pd, struct hdl_xrcd *xrcd, struct hdl_cq *cq,
                               struct hdl_srq_attr *attr, void *context, struct hdl_srq **out);

/* hdl_srq_number - the number of an XRC shared receive queue
 *
 * 24 bits, what a peer puts into hdl_send_wr.remote_srq.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the number; 0 for a queue from hdl_srq_create(). */
HDL_API uint32_t hdl_srq_number(const struct hdl_srq *srq);

#define HDL_SRQ_KEEP_LIMIT UINT32_MAX

/* hdl_srq_modify - resize a shared receive queue or set its limit
 *
 * @max_wr of 0 keeps the size, @limit of HDL_SRQ_KEEP_LIMIT the limit. Another one arms
 * HDL_EVENT_SRQ_LIMIT once: it comes when fewer than @limit requests are left, and so at once if
 * there are fewer now. 0 disarms it.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL smaller than what is in it, above limits.h, or a limit above the size;
 * -HDL_ENOMEM. */
HDL_API int hdl_srq_modify(struct hdl_srq *srq, uint32_t max_wr, uint32_t limit);

/* hdl_srq_query - the limits of a shared receive queue
 *
 * @attr->limit is 0 when the event was raised or never asked for.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_srq_query(struct hdl_srq *srq, struct hdl_srq_attr *attr);

/* hdl_srq_destroy - end a shared receive queue
 *
 * Owner: @srq is freed; requests in it never complete.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EBUSY a queue pair uses it. */
HDL_API int hdl_srq_destroy(struct hdl_srq *srq);

/* hdl_srq_post - post receive requests to a shared receive queue
 *
 * Posts the list @wr until one is refused; *bad is then that one.
 *
 * Owner: requests and lists are copied; the buffers belong to the adapter until the completion.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_ENOSPC full; -HDL_EMSGSIZE too many pieces. */
HDL_API int hdl_srq_post(struct hdl_srq *srq, const struct hdl_recv_wr *wr,
                         const struct hdl_recv_wr **bad);

/* hdl_ah_create - make an address handle
 *
 * Names the destination of datagrams. With is_global and the GID of a multicast group it stands
 * for all members of the group, whichever queue pair number a request gives; those that join later
 * are found as soon as the node agent has told of them.
 *
 * Owner: the caller owns *out and ends it with hdl_ah_destroy().
 * Threads: any.
 * Blocks: on a node, until the node agent has answered; not where it has told of the destination's
 * node before, and neither it nor a process of that node that this adapter had met has ended
 * since.
 * Returns: 0; -HDL_EHOSTUNREACH; -HDL_EINVAL; -HDL_ENOMEM, also when HDL_MAX_GROUPS is reached. */
HDL_API int hdl_ah_create(struct hdl_pd *pd, const struct hdl_ah_attr *attr, struct hdl_ah **out);

/* hdl_ah_destroy - end an address handle
 *
 * Owner: @ah is freed. Requests that were posted with it are not affected.
 * Threads: any.
 * Blocks: no.
 * Returns: 0. */
HDL_API int hdl_ah_destroy(struct hdl_ah *ah);

/* hdl_qp_create - make a queue pair (OpenQP)
 *
 * It is in the state HDL_QPS_RESET. @attr->cap returns the limits that are in force, at least what
 * was asked for; none of queues that the type does not have. For HDL_QP_XRC_TGT @pd is NULL: it
 * has that of the shared receive queue that a message names. HDL_QP_RD needs a domain, @attr->rdd;
 * HDL_QP_RAW a network that carries raw datagrams (hdl_raw_attach()), or it is not supported.
 *
 * Owner: the caller owns *out and ends it with hdl_qp_destroy().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOTSUP; -HDL_ENOMEM. */
HDL_API int hdl_qp_create(struct hdl_pd *pd, struct hdl_qp_init_attr *attr, struct hdl_qp **out);

/* hdl_qp_modify - change attributes and state of a queue pair
 *
 * Applies the attributes in @mask, all or none, following the table of the specification: which
 * transitions exist and which attributes each needs and allows (man hdl_qp_modify lists it).
 *
 * An alternate path (HDL_QP_ALT_PATH) that is armed by both ends (HDL_QP_PATH_MIG_STATE:
 * HDL_MIG_REARM) takes the place of the path when requests are not answered after all retries, or
 * at once with HDL_MIG_MIGRATED. Nothing is lost by that; each end gets HDL_EVENT_PATH_MIG, and
 * has no alternate path until it is given another one. Only connections on a network migrate.
 *
 * With HDL_QP_STRIPE and an alternate path, both given on the way to RTR, a reliable connection on
 * a network uses both paths at a time: the packets of each message go out over them in turn, and
 * when one of them stops carrying packets the other one carries all, until it is found to work
 * again; so do the parts of a read. Both ends must ask for it, with the same number, and both must
 * be Heddle; each keeps so many packets of the path MTU in memory, to put them in order.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EPERM no such transition; -HDL_EINVAL an attribute is missing, not allowed or
 * out of range; -HDL_EHOSTUNREACH; -HDL_EACCES the kernel forbids to reach the peer's memory. */
HDL_API int hdl_qp_modify(struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask);

/* hdl_qp_query - the attributes of a queue pair
 *
 * @init may be NULL.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_qp_query(struct hdl_qp *qp, struct hdl_qp_attr *attr,
                         struct hdl_qp_init_attr *init);

/* hdl_qp_number - the number of a queue pair
 *
 * 24 bits, what a peer puts into its attribute dest_qpn.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the number. */
HDL_API uint32_t hdl_qp_number(const struct hdl_qp *qp);

/* hdl_qp_untaken - the completions of a queue pair that were not polled
 *
 * Drives the adapter, then counts those of the queue pair @qpn in its completion queues.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: how many there are; 0 when there is no such queue pair; -HDL_EINVAL. */
HDL_API int hdl_qp_untaken(struct hdl_adapter *adapter, uint32_t qpn);

/* hdl_qp_destroy - end a queue pair
 *
 * Completions that it made before stay in their queues; work in it makes none.
 *
 * Owner: @qp is freed; buffers of its requests are the caller's again.
 * Threads: any.
 * Blocks: until a peer that is copying from or to its buffers at this moment has ended.
 * Returns: 0; -HDL_EINVAL; -HDL_EBUSY it is still a member of a multicast group. */
HDL_API int hdl_qp_destroy(struct hdl_qp *qp);

/* hdl_qp_attach - become a member of a multicast group
 *
 * From now on @qp, an unreliable datagram queue pair, receives what is sent to the group @gid (in
 * ff00::/8, or 224.0.0.0/4 mapped into IPv6), as if it were sent to it alone: each member uses up
 * a receive of its own, its Q_Key must fit, and the route header in the buffer has @gid as
 * destination. The sender receives its own messages if it is a member. Groups span all nodes of
 * the user. Again for a member does nothing.
 *
 * Owner: @qp cannot be destroyed before hdl_qp_detach().
 * Threads: any, but not inside the handler of hdl_cm_receive().
 * Blocks: on a node, until the node agent has answered.
 * Returns: 0; -HDL_EINVAL not a multicast address, or a queue pair of another type; -HDL_ENOMEM
 * HDL_MAX_GROUPS or HDL_MAX_GROUP_MEMBERS is reached; -HDL_EHOSTUNREACH the node agent does not
 * answer. */
HDL_API int hdl_qp_attach(struct hdl_qp *qp, const struct hdl_gid *gid);

/* hdl_qp_detach - leave a multicast group
 *
 * Owner: nothing changes hands.
 * Threads: any, but not inside the handler of hdl_cm_receive().
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL it is not a member. */
HDL_API int hdl_qp_detach(struct hdl_qp *qp, const struct hdl_gid *gid);

/* hdl_rdd_open - make a reliable datagram domain
 *
 * Reliable datagrams (seed 003) reach any queue pair of any node without a connection each: a node
 * with M queue pairs that talk to all those of N - 1 other nodes has M queue pairs and N - 1 end-
 * to-end contexts, where connections would take M x M x (N - 1) queue pairs. A message goes from a
 * queue pair of the type HDL_QP_RD through a context to a queue pair at the context's other end.
 * Queue pairs and contexts of one domain work together, with those of another they do not.
 *
 * Owner: the caller owns *out and ends it with hdl_rdd_close().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM. */
HDL_API int hdl_rdd_open(struct hdl_adapter *adapter, struct hdl_rdd **out);

/* hdl_rdd_close - end a reliable datagram domain
 *
 * Owner: @rdd is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EBUSY a queue pair or a context is in it; -HDL_EINVAL. */
HDL_API int hdl_rdd_close(struct hdl_rdd *rdd);

/* hdl_eec_create - make an end-to-end context
 *
 * It leads to one context of another adapter, and all queue pairs of the domain share it. It has
 * what makes datagrams reliable between the two: sequence numbers, acknowledgements, timeout,
 * retries. One message at a time is under way in it; queue pairs that wait for it have their turns
 * one after the other, and the messages of each arrive in order. One that finds no receive holds
 * up those behind it for as long as rnr_retry of the context allows. It is in the state
 * HDL_QPS_RESET.
 *
 * Owner: the caller owns *out and ends it with hdl_eec_destroy().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM, also where no number for a queue pair or context is left.
 */
HDL_API int hdl_eec_create(struct hdl_rdd *rdd, struct hdl_eec **out);

/* hdl_eec_modify - change attributes and state of an end-to-end context
 *
 * Applies the attributes in @mask (HDL_QP_*), all or none. RESET to INIT: PKEY_INDEX, PORT. INIT
 * to RTR: AV, PATH_MTU, DEST_QPN (the number of the context at the other end), RQ_PSN,
 * MAX_DEST_RD_ATOMIC (0 or 1). RTR to RTS: SQ_PSN, TIMEOUT, RETRY_CNT, RNR_RETRY, MAX_RD_ATOMIC (0
 * or 1). From anywhere to RESET or ERR: nothing else; messages that wait for the context fail.
 *
 * The other end is reached by packets on the network only: on one machine with HEDDLE_LOCAL=off.
 *
 * A message that cannot be delivered fails alone: its completion says why
 * (HDL_WC_REM_INV_RD_REQ_ERR: no such queue pair in the domain, or not its Q_Key;
 * HDL_WC_RNR_RETRY_EXC_ERR, HDL_WC_REM_INV_REQ_ERR, HDL_WC_REM_ACCESS_ERR, HDL_WC_REM_OP_ERR), and
 * both the context and the queue pair go on with the next one. Where the other end does not answer
 * any more the message fails with HDL_WC_RETRY_EXC_ERR and the context with it: its state is
 * HDL_QPS_ERR then, and messages for it end with HDL_WC_INV_EEC_STATE_ERR until it was brought
 * through RESET to RTS again.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EPERM no such transition; -HDL_EINVAL an attribute is missing, not allowed or
 * out of range; -HDL_EHOSTUNREACH no network leads there; -HDL_ENOMEM. */
HDL_API int hdl_eec_modify(struct hdl_eec *eec, const struct hdl_qp_attr *attr, uint32_t mask);

/* hdl_eec_query - the attributes of an end-to-end context
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_eec_query(struct hdl_eec *eec, struct hdl_qp_attr *attr);

/* hdl_eec_number - the number of an end-to-end context
 *
 * 24 bits, what the other end puts into its attribute dest_qpn, and what hdl_wc.eecn says of
 * messages that came through it.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the number. */
HDL_API uint32_t hdl_eec_number(const struct hdl_eec *eec);

/* hdl_eec_destroy - end an end-to-end context
 *
 * Messages under way in it fail with HDL_WC_LOC_EEC_OP_ERR, those that wait for it with
 * HDL_WC_INV_EEC_STATE_ERR, those whose turn comes later with HDL_WC_INV_EECN_ERR.
 *
 * Owner: @eec is freed.
 * Threads: any, but not while requests that name it are posted.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_eec_destroy(struct hdl_eec *eec);

/* hdl_raw_attach - receive raw datagrams of a kind
 *
 * From now on @qp, a raw datagram queue pair, receives every IPv6 datagram to the address @gid
 * whose IPv6 header says @next_header (6: TCP, 17: UDP, ...), from that header on. Each queue pair
 * that is registered for a datagram gets one of its own. Without a receive, datagrams are dropped;
 * longer ones than the receive fail the queue pair. What @qp sends are whole IPv6 datagrams of at
 * most HDL_RAW_MTU bytes too, whose header has their true length; whom they say to come from is
 * not judged.
 *
 * Such queue pairs can be made where the network carries raw datagrams: simulated ones do. UDP has
 * no place for them.
 *
 * Owner: nothing changes hands; destroying @qp ends its registrations.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL a queue pair of another type; -HDL_ENOMEM HDL_MAX_RAW is reached. */
HDL_API int hdl_raw_attach(struct hdl_qp *qp, uint8_t next_header, const struct hdl_gid *gid);

/* hdl_raw_detach - receive raw datagrams of a kind no longer
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL it is not registered for them. */
HDL_API int hdl_raw_detach(struct hdl_qp *qp, uint8_t next_header, const struct hdl_gid *gid);

/* hdl_post_send - post requests to the send queue
 *
 * Posts the list @wr until one is refused; *bad is then that one. They are executed in order. Each
 * message of a queue pair of the type HDL_QP_RD names its context, destination and Q_Key
 * (hdl_send_wr.rd); it begins when the one before it has ended.
 *
 * A request takes room in the queue until its completion, or that of a later one, was taken: of
 * those that are not signalled one must be now and then.
 *
 * Owner: requests and lists are copied; the buffers belong to the adapter until the completion,
 * inline data is copied.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EPERM not in a state that takes requests; -HDL_ENOSPC full; -HDL_EMSGSIZE too
 * many pieces, too much inline data or too long, which a datagram is beyond hdl_limits.mtu;
 * -HDL_EINVAL an opcode or flag that is not known, or a null object; -HDL_ENOTSUP an opcode that
 * the type of queue pair does not offer; -HDL_ENOMEM no room to keep the page list. */
HDL_API int hdl_post_send(struct hdl_qp *qp, const struct hdl_send_wr *wr,
                          const struct hdl_send_wr **bad);

/* hdl_post_recv - post requests to the receive queue
 *
 * Posts the list @wr until one is refused; *bad is then that one. A request takes room in the
 * queue until its completion was taken.
 *
 * Owner: requests and lists are copied; the buffers belong to the adapter until the completion.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EPERM in the state RESET; -HDL_ENOSPC full, which a queue pair without receives
 * (XRC) always is; -HDL_EMSGSIZE too many pieces; -HDL_EINVAL the queue pair has a shared receive
 * queue. */
HDL_API int hdl_post_recv(struct hdl_qp *qp, const struct hdl_recv_wr *wr,
                          const struct hdl_recv_wr **bad);

/* hdl_node_find - is there a node with this address?
 *
 * Asks the node agent, and tells the LID of the node.
 *
 * Owner: nothing changes hands.
 * Threads: any, but not inside the handler of hdl_cm_receive().
 * Blocks: until the node agent has answered.
 * Returns: 0; -HDL_EHOSTUNREACH there is none, or the node agent does not answer; -HDL_ENOTSUP the
 * adapter is not on a node or has no thread; -HDL_EINVAL. */
HDL_API int hdl_node_find(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint16_t *lid);

/* hdl_cm_receive - hear messages about connections
 *
 * From now on @handler is called with each message for this process. It may call hdl_cm_send() and
 * no other call of the adapter.
 *
 * Owner: the message is valid until @handler returns.
 * Threads: any; @handler is called by threads of the adapter, and may be called by two at once.
 * Blocks: no.
 * Returns: 0; -HDL_ENOTSUP the adapter is not on a node or has no thread. */
HDL_API int hdl_cm_receive(struct hdl_adapter *adapter,
                           void (*handler)(void *context, const struct hdl_cm_msg *msg),
                           void *context);

/* hdl_cm_bind - take a port of the node
 *
 * Each @space has ports of its own. With an address the port is taken for messages to that address
 * alone, with NULL for all addresses of the node; @options (enum hdl_cm_option) say for which
 * family, and whether it may be shared. *port 0 lets the agent choose one that is free. The ports
 * of a process are free again when it ends.
 *
 * Owner: the adapter holds the port until hdl_cm_unbind().
 * Threads: any, but not inside the handler of hdl_cm_receive().
 * Blocks: until the node agent has answered.
 * Returns: 0; -HDL_EADDRINUSE; -HDL_ENOMEM; -HDL_ENOTSUP; -HDL_EHOSTUNREACH the node agent does
 * not answer. */
HDL_API int hdl_cm_bind(struct hdl_adapter *adapter, uint16_t space, const struct hdl_gid *gid,
                        uint16_t *port, uint32_t options);

/* hdl_cm_listen - listen at a port that was taken with HDL_CM_DEAF
 *
 * @gid and @options as they were given to hdl_cm_bind(). A request over the wire that found nobody
 * a moment ago is heard now: the node agent keeps it for a second.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL the port is not ours. */
HDL_API int hdl_cm_listen(struct hdl_adapter *adapter, uint16_t space, const struct hdl_gid *gid,
                          uint16_t port, uint32_t options);

/* hdl_cm_unbind - give a port back
 *
 * @gid and @options as they were given to hdl_cm_bind().
 *
 * Owner: the port is free.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL the port is not ours. */
HDL_API int hdl_cm_unbind(struct hdl_adapter *adapter, uint16_t space, const struct hdl_gid *gid,
                          uint16_t port, uint32_t options);

/* hdl_cm_send - send a message about a connection
 *
 * The node agent passes it on. One that cannot be delivered comes back as HDL_CM_RETURNED;
 * messages to one process arrive in order. A management datagram (msg->on_wire) is sent from the
 * node's wire and may get lost; those that come there are heard as HDL_CM_MAD, a request by
 * whoever holds the port of its service, the others by the process whose slot (struct hdl_limits)
 * is in the high ten bits of our number in them. A DREQ may be left with the agent, which sends it
 * when the process has gone (HDL_CM_WHEN_GONE) or at once (HDL_CM_LAST_WORD), and repeats it until
 * it is answered. What is sent as HDL_CM_LAST_WORD is not lost with an agent that is killed.
 *
 * Owner: @msg is copied.
 * Threads: any.
 * Blocks: while the node agent has much to do.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOTSUP; -HDL_EHOSTUNREACH there is no node agent; -HDL_EACCES
 * another user holds the address of the peer, which is on the loopback. */
HDL_API int hdl_cm_send(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg);

#ifdef __cplusplus
}
#endif
#endif
