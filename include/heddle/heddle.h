/* Heddle: RDMA without the hardware.
 *
 * An adapter lives inside the process that opens it and owns all other objects: protection domains
 * (pd), registered memory (mr), windows (mw), completion queues (cq), shared receive queues (srq),
 * queue pairs (qp), address handles (ah). Control calls return 0 or a negative error code from
 * error.h. A data-path failure is reported as a completion with an error status.
 *
 * The comment above each call says, in this order: what the call does, who owns what afterwards
 * (Owner), which threads may call it (Threads), whether it can block (Blocks), and every return
 * value (Returns). The manual pages are generated from these comments.
 *
 * Calls that wait for events (hdl_channel_get(), hdl_event_get(), hdl_poll(), hdl_epoll_wait()) are
 * cancellation points (pthreads(7)); no other call is one. */
#ifndef HEDDLE_HEDDLE_H
#define HEDDLE_HEDDLE_H

#include <heddle/error.h>
#include <heddle/limits.h>
#include <heddle/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HDL_API __attribute__((visibility("default")))

/* The devices under which programs see the adapter of a node. All lead to the same queue pairs: as
 * a RoCE device, as an InfiniBand device, and as an iWARP device. */
#define HDL_DEVICE_ETHERNET   "heddle0"
#define HDL_DEVICE_INFINIBAND "heddle_ib0"
#define HDL_DEVICE_IWARP      "heddle_iw0"

/* How to open an adapter. Zero in every field selects the defaults. */
struct hdl_open_attr {
	const char *name;   /* appears in status output and logs; NULL: "heddle0" */
	struct hdl_gid gid; /* all zero: a generated one */
	uint32_t max_mr;    /* entries of the protection table; 0: 65536 */
	uint32_t max_qp;    /* 0: 16384 */
	bool on_node;       /* register with the node agent, so that other processes reach it */
	const char *node;   /* which node, when on_node; NULL: $HEDDLE_NODE, or the machine's own */
	bool cells;         /* networks carry cells, too: heddle-push(7) */
	/* Ethernet frames on this interface, when on_node; NULL: $HEDDLE_ETHER, or none */
	const char *ether;
	bool no_thread; /* nothing moves unless hdl_cq_poll() or hdl_progress() is called */
	/* pcapng file for its packets; NULL: $HEDDLE_CAPTURE, or none; "": none */
	const char *capture;
};

/* hdl_open - open an adapter
 *
 * Creates an adapter in this process. Unless @attr->no_thread is set, the adapter has a thread of
 * its own, which sleeps while the application polls or has nothing to do. @attr may be NULL. With
 * @attr->capture, everything that passes through the adapter is appended to that file as packets of
 * RoCEv2 or iWARP (see hdl_capture_prepare()). With @attr->cells, its queue pairs send cells over
 * networks unless they say otherwise (hdl_qp_init_attr.packets); both ends must do so. Cells have
 * sends, writes and reads on the types HDL_QP_RC and HDL_QP_UC, and datagrams of at most 256 bytes.
 * With @attr->ether, the node is also reached by Ethernet frames, which carry cells and apertures.
 *
 * Owner: the caller owns *out and closes it with hdl_close().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL a limit in @attr is above limits.h, the name of the node is too long, or
 * a setting in the environment (heddle(1)) is invalid; -HDL_ENOMEM; -HDL_EIO no thread or file
 * descriptor could be created, the address is not available, or the capture file cannot be written.
 * The reason is printed on standard error. */
HDL_API int hdl_open(const struct hdl_open_attr *attr, struct hdl_adapter **out);

/* hdl_capture_prepare - create an empty file for a new capture
 *
 * Adapters append to the file that they record to, so several adapters, in this process and in
 * others, can record to the same file. This call empties the file, unless an adapter is recording
 * to it now: then the file stays as it is. @path may also name a pipe that has a reader; a pipe
 * accepts one adapter.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_EIO the file cannot be created or written, and errno says why.
 * EEXIST: there is a file that is not a capture; it is left unchanged. */
HDL_API int hdl_capture_prepare(const char *path);

/* hdl_capture_check - check whether an adapter could record to this file
 *
 * Like hdl_capture_prepare(), but an existing file keeps its contents, and a pipe is not opened,
 * because its reader would see end of file.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: as hdl_capture_prepare(). */
HDL_API int hdl_capture_check(const char *path);

/* hdl_close - close an adapter
 *
 * Connected peers are notified: their queue pairs go to the error state.
 *
 * Owner: @adapter is freed.
 * Threads: any, but no other call on the adapter may be running or follow.
 * Blocks: until the adapter's thread has ended and peers have stopped accessing its memory; until
 * disconnect notices (HDL_CM_LAST_WORD) have left the machine, ten seconds at most, and until they
 * have been answered, one second at most.
 * Returns: 0; -HDL_EBUSY an object of the adapter still exists. */
HDL_API int hdl_close(struct hdl_adapter *adapter);

/* hdl_adapter_query - query the address and limits of an adapter
 *
 * Fills in *limits with the address and the limits of the adapter.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_adapter_query(struct hdl_adapter *adapter, struct hdl_limits *limits);

/* hdl_gid_query - query one address of an adapter
 *
 * An adapter on a node has the addresses of the node: a link-local address made from the GUID, the
 * address of the InfiniBand port (hdl_limits.ib_gid), the IPv4 address 127.72.0.0 plus the LID,
 * then the addresses of the host, unless the node has a name. On a node with a network address
 * (HEDDLE_ADDR), that address comes first; if it is an IPv6 address, the node has no IPv4
 * addresses. Further network addresses (eight in all) come third and so on. hdl_limits.wire_gids
 * says which addresses belong to the network. Each is an adapter of the node; unmodified programs
 * see it as a device with a GUID of its own (heddle(1), --addr). The sgid_index of a path selects
 * the source address of its packets.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL the adapter has no address with this index. */
HDL_API int hdl_gid_query(struct hdl_adapter *adapter, uint32_t index, struct hdl_gid *gid);

/* hdl_join - connect two adapters of one process
 *
 * Creates a pair of lanes between @a and @b, so that queue pairs of one adapter reach the other by
 * its GID. Every adapter is joined to itself from the start.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL they are already joined, or both have the same GID; -HDL_ENOMEM, also
 * when HDL_MAX_PEERS is reached. */
HDL_API int hdl_join(struct hdl_adapter *a, struct hdl_adapter *b);

/* hdl_progress - drive an adapter
 *
 * Does the pending work: posted requests, received messages, expired timers. An application that
 * polls completion queues or waits on channels never needs this call.
 *
 * Owner: nothing changes hands.
 * Threads: any; only one thread at a time does the work.
 * Blocks: no.
 * Returns: the number of things done, 0 when there was nothing to do. */
HDL_API int hdl_progress(struct hdl_adapter *adapter);

/* hdl_event_get - take an asynchronous event
 *
 * Waits up to @timeout_ms (0: not at all; -1: forever) for an event and dequeues it.
 *
 * Owner: nothing changes hands. Destroying an object removes its events from the queue, so an event
 * that is taken later never names a destroyed object.
 * Threads: any.
 * Blocks: up to @timeout_ms.
 * Returns: 0; -HDL_EAGAIN no event arrived in time; -HDL_EINVAL. */
HDL_API int hdl_event_get(struct hdl_adapter *adapter, struct hdl_event *event, int timeout_ms);

/* hdl_event_fd - the file descriptor of asynchronous events
 *
 * The descriptor is readable (poll, epoll) while an event is pending. Only hdl_event_get() may read
 * from it.
 *
 * Owner: the adapter owns the descriptor.
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
 * Fills in up to @max elements of @list. The names are stable and come in the order of the manual
 * page.
 *
 * Owner: the names are static.
 * Threads: any.
 * Blocks: no.
 * Returns: the number of counters, which may exceed @max. */
HDL_API size_t hdl_counters(struct hdl_adapter *adapter, struct hdl_counter *list, size_t max);

/* A queue pair as seen from another process: see hdl_observe(). */
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
	bool on_wire;         /* connected types: its packets go over a network */
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
	struct hdl_gid taken; /* the node's usual address, if another user has it; else all zero */
	uint32_t taken_by;    /* the uid of that user */
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

/* hdl_observe_free - free the result of hdl_observe()
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

/* hdl_strerror - describe an error code
 *
 * @error may be negative or positive.
 *
 * Owner: the string is static.
 * Threads: any.
 * Blocks: no.
 * Returns: what the error means and what to do about it; never NULL. */
HDL_API const char *hdl_strerror(int error);

/* hdl_wc_status_str - describe a completion status
 *
 * Owner: the string is static.
 * Threads: any.
 * Blocks: no.
 * Returns: the name and meaning of the status; never NULL. */
HDL_API const char *hdl_wc_status_str(uint32_t status);

/* hdl_detail_str - describe the check that refused an operation
 *
 * Explains hdl_wc.vendor_err and hdl_event.detail.
 *
 * Owner: the string is static.
 * Threads: any.
 * Blocks: no.
 * Returns: a description of the check; never NULL. */
HDL_API const char *hdl_detail_str(uint32_t detail);

/* hdl_event_str - describe an event type
 *
 * Owner: the string is static.
 * Threads: any.
 * Blocks: no.
 * Returns: a description of the event; never NULL. */
HDL_API const char *hdl_event_str(uint32_t type);

/* hdl_pd_create - create a protection domain
 *
 * A queue pair can use only the regions and windows of its own protection domain.
 *
 * Owner: the caller owns *out and destroys it with hdl_pd_destroy().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM. */
HDL_API int hdl_pd_create(struct hdl_adapter *adapter, struct hdl_pd **out);

/* hdl_pd_destroy - destroy a protection domain
 *
 * Owner: @pd is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EBUSY an object still belongs to the domain. */
HDL_API int hdl_pd_destroy(struct hdl_pd *pd);

/* hdl_mem_alloc - allocate memory that peers can map
 *
 * Allocates @length zeroed bytes, rounded up to whole pages, which are then registered like any
 * other memory. Processes on the same machine map this memory and read, write and update it without
 * a system call and without involving this process. The same holds for other memory that lies
 * within one shared mapping of a file in memory (memfd_create(), shm_open(), hugetlbfs), as long as
 * a descriptor or a path leads to the file. Any other memory works as well, at the cost of one
 * system call per copy. At most 64 such mappings per process are used this way. Each call takes one
 * descriptor and one mapping, so use it for buffers, not for small objects.
 *
 * Owner: the caller owns the memory and frees it with hdl_mem_free(). A child of fork() does not
 * get a copy: it shares the memory.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @length is 0 or above 1 TiB; -HDL_ENOMEM, also when the process has no
 * file descriptor left. */
HDL_API int hdl_mem_alloc(size_t length, void **out);

/* hdl_mem_free - free memory from hdl_mem_alloc()
 *
 * Deregister the memory first. As with munmap(), data that peers still write to it is lost, or the
 * write fails.
 *
 * Owner: the memory is unmapped.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @memory did not come from hdl_mem_alloc(). */
HDL_API int hdl_mem_free(void *memory);

/* hdl_mr_register - register memory
 *
 * Lets queue pairs of @pd access @length bytes at @addr with the rights @access. The range must be
 * mapped with those rights. Peers and work requests address the first byte by its virtual address,
 * or as 0 with HDL_ACCESS_ZERO_BASED. A region of zero bytes has a key like any other: zero-length
 * requests succeed with it, all others are out of bounds.
 *
 * With HDL_ACCESS_ONE_TOUCH the key, like that of a window bound so, is good for one message: the
 * first write, read or atomic of a peer to it, or the first read of the owner's into it, ends it
 * with its last byte (MEMMGT figure 18B), and neither peer nor owner can use it any more. It does
 * not matter into which packets or segments the message is divided. Sends from it and receives into
 * it do not count. Neither does a message of no bytes, which SAN would have count: it accesses
 * nothing, so its key is not looked at (IBTA C9-88, RFC 5041 section 5.1), and a peer without any
 * right could otherwise use the key up. Of two messages that come at the same time, one is refused,
 * perhaps after some of its bytes were placed. A message that comes later is refused with
 * HDL_DETAIL_TOUCHED, until the region or window is registered, bound or removed. The owner's event
 * says so, and on the same machine the peer's completion; RoCEv2 tells a peer no detail, and iWARP
 * has one code for this and HDL_DETAIL_NOT_VALID.
 *
 * What a key reaches is what is mapped at the address when the request is executed. A request that
 * finds no page there, or one without the right, fails with HDL_DETAIL_GONE and ends its queue
 * pair; the rest of the region stays usable, and so do the pages when they come back (mmap(),
 * mprotect()). The first time, HDL_EVENT_MEMORY_GONE names the key. Memory that peers of the same
 * machine map (hdl_mem_alloc(), shared mappings of memory files) is watched by the first adapter of
 * the process that registers it, where the kernel allows userfaultfd() (Linux 5.19; many containers
 * do not): munmap(), mremap() or another mapping in its place raise the event at once, and moments
 * later no peer has the pages any more. When mprotect() takes rights away and returns, they have
 * been taken from such peers as well; calls are seen that the program makes through the C library,
 * in modules that were loaded when such memory was last registered. From then on peers reach the
 * mapping through the kernel, more slowly, until it is registered again. What is not seen leaves
 * such peers with the pages that were registered, as hardware does, unless hdl_segment_update() is
 * called.
 *
 * Owner: the memory remains the caller's and should remain mapped; the caller owns *out and ends it
 * with hdl_mr_deregister().
 * Threads: any.
 * Blocks: no, but it touches every page.
 * Returns: 0; -HDL_EFAULT the range is not mapped, or not with those rights; -HDL_EINVAL remote
 * write or atomic access without local write, or a range that wraps around; -HDL_ENOMEM. */
HDL_API int hdl_mr_register(struct hdl_pd *pd, void *addr, size_t length, uint32_t access,
                            struct hdl_mr **out);

/* hdl_mr_register_pages - register scattered pages as one range
 *
 * Like hdl_mr_register(), for the pages listed in @reg, which become one contiguous range that
 * starts at @reg->iova.
 *
 * Owner: as hdl_mr_register(); the list is copied.
 * Threads: any.
 * Blocks: no, but touches every page.
 * Returns: 0; -HDL_EFAULT; -HDL_EINVAL the list, offset, page size and length are inconsistent;
 * -HDL_ENOMEM. */
HDL_API int hdl_mr_register_pages(struct hdl_pd *pd, const struct hdl_register *reg,
                                  struct hdl_mr **out);

/* hdl_mr_alloc - allocate a region for registration by work request
 *
 * The region is invalid until HDL_OP_REGISTER gives it pages. Later requests on the same queue pair
 * may use its key without waiting for a completion. What happens to them when the registration
 * fails is chosen with hdl_qp_init_attr.register_error: they are flushed, and the queue pair is in
 * SQD (hdl_qp_modify(3)) or in ERR.
 *
 * Owner: the caller owns *out and ends it with hdl_mr_deregister().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @max_pages is 0 or above limits.h; -HDL_ENOMEM. */
HDL_API int hdl_mr_alloc(struct hdl_pd *pd, uint32_t max_pages, struct hdl_mr **out);

/* hdl_mr_alloc_null - allocate a region without memory
 *
 * Work requests of @pd may use its key with any address: reads return zeroes, writes are discarded.
 * Peers cannot use the key. It serves for parts of a message that the program does not need.
 *
 * Owner: the caller owns *out and ends it with hdl_mr_deregister(). The region can be neither
 * shared nor reregistered.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM. */
HDL_API int hdl_mr_alloc_null(struct hdl_pd *pd, struct hdl_mr **out);

/* hdl_mr_share - register the memory of a region a second time
 *
 * The new region has its own key, rights and protection domain, and uses the translation table of
 * @mr (MEMMGT figure 14).
 *
 * Owner: the caller owns *out. @mr may be deregistered before or after *out.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL, also when @mr is registered by work request or has no memory;
 * -HDL_EACCES the memory was not registered with these rights; -HDL_ESTALE @mr is not valid;
 * -HDL_ENOMEM. */
HDL_API int hdl_mr_share(struct hdl_mr *mr, struct hdl_pd *pd, uint32_t access,
                         struct hdl_mr **out);

/* hdl_mr_reregister - change the memory, rights or protection domain of a region
 *
 * The region, made by hdl_mr_register(), keeps its key. After the call, no operation accesses the
 * former memory or uses the former rights, no matter which process started the operation.
 *
 * Owner: the adapter no longer uses the former memory; the new memory as with hdl_mr_register().
 * Threads: any.
 * Blocks: until operations that are copying at this moment have ended; it also touches every page.
 * Returns: 0; on error the region is unchanged: -HDL_EFAULT and -HDL_EINVAL as with
 * hdl_mr_register(); -HDL_EBUSY windows are bound to it; -HDL_ENOTSUP not made by
 * hdl_mr_register(); -HDL_ESTALE its memory has gone. */
HDL_API int hdl_mr_reregister(struct hdl_mr *mr, struct hdl_pd *pd, void *addr, size_t length,
                              uint32_t access);

/* hdl_mr_deregister - end a registration
 *
 * After the call, no operation accesses the memory, no matter which process started the operation.
 *
 * Owner: @mr is freed; the adapter no longer uses the memory.
 * Threads: any.
 * Blocks: until operations that are copying at this moment have ended.
 * Returns: 0; -HDL_EBUSY windows are bound to it. */
HDL_API int hdl_mr_deregister(struct hdl_mr *mr);

/* hdl_mr_key - get the current key of a region
 *
 * The key is used in local scatter/gather entries and, where the access rights allow, by peers.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the key. */
HDL_API struct hdl_key hdl_mr_key(const struct hdl_mr *mr);

/* hdl_mr_draw_key - draw a fresh key for a registration by work request
 *
 * For HDL_OP_REGISTER and HDL_OP_REGISTER_SEND. The instance of the key differs from the region's
 * current one and from those of the last 254 keys that were drawn, whether they were used or not,
 * so a key that a peer still has does not come back to life while 255 others are drawn. It becomes
 * the key of the region when the registration executes.
 *
 * An instance has eight bits. The 256 of them come in an order that is secret and different for
 * every region, and then again in the same order, because only so does each stay away as long as it
 * can. A peer that has seen few keys of the region has therefore little to guess the next one from;
 * one that has kept nearly all 256 knows it. So do not rely on the instance alone to keep such a
 * peer out between two registrations: invalidate the key, and let queue pairs that should not reach
 * the region be of another protection domain. The 24 bits above the instance are secret until the
 * peer is given a key: hdl_mr_alloc() draws them anew for another region.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the key; 0 if @mr is not from hdl_mr_alloc(). */
HDL_API struct hdl_key hdl_mr_draw_key(struct hdl_mr *mr);

/* hdl_segment_update - tell the adapter that the mapping of memory changes
 *
 * Every registration that overlaps the range becomes unusable (SegmentTableUpdate in SAN).
 * Operations on it fail with HDL_DETAIL_GONE until it is registered again, and
 * HDL_EVENT_MEMORY_GONE is raised. Call it before munmap(), mremap() or mapping over registered
 * memory. hdl_mr_register() says what is noticed without this call.
 *
 * Owner: the caller still owns the registrations and must deregister them.
 * Threads: any.
 * Blocks: until operations that are copying at this moment have ended.
 * Returns: the number of registrations affected; -HDL_EINVAL. */
HDL_API int hdl_segment_update(struct hdl_adapter *adapter, const void *addr, size_t length);

enum hdl_mw_type {
	HDL_MW_TYPE_1 =
	        1,    /* usable by every queue pair of the domain; every bind changes the key */
	HDL_MW_TYPE_2 /* for the queue pair that bound it; the binder picks the instance */
};

/* hdl_mw_alloc - allocate a memory window (AllocateRKey)
 *
 * A window is a key for a byte range of a region. It is bound and unbound without a system call and
 * without the node agent.
 *
 * Owner: the caller owns *out and frees it with hdl_mw_free().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM. */
HDL_API int hdl_mw_alloc(struct hdl_pd *pd, uint32_t type, struct hdl_mw **out);

/* hdl_mw_bind - bind a type 1 window (BindRKey)
 *
 * After the call, the key *key gives access to @bind->length bytes at @bind->addr, of any length
 * and alignment, with the rights @bind->access. The window's former key is stale. A null region
 * with zero length unbinds the window.
 *
 * Owner: the region of @bind cannot be deregistered while the window is bound.
 * Threads: any.
 * Blocks: until operations that are copying through the former binding have ended.
 * Returns: 0; -HDL_EINVAL the range is not within the region, the window is of type 2, or the
 * domains differ; -HDL_EACCES the region does not allow binding or lacks the rights; -HDL_ESTALE
 * the region is not valid. */
HDL_API int hdl_mw_bind(struct hdl_mw *mw, const struct hdl_bind *bind, struct hdl_key *key);

/* hdl_mw_unbind - unbind a window (UnbindRKey)
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until operations that are copying through it have ended.
 * Returns: 0, also when the window was not bound. */
HDL_API int hdl_mw_unbind(struct hdl_mw *mw);

/* hdl_mw_free - free a window (DeallocateRKey)
 *
 * Unbinds the window first if necessary.
 *
 * Owner: @mw is freed.
 * Threads: any.
 * Blocks: until operations that are copying through it have ended.
 * Returns: 0. */
HDL_API int hdl_mw_free(struct hdl_mw *mw);

/* hdl_mw_key - get the current key of a window
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the key. For a type 2 window, use it as the source of the index. */
HDL_API struct hdl_key hdl_mw_key(const struct hdl_mw *mw);

/* hdl_mw_draw_key - draw a fresh key for a window
 *
 * For HDL_OP_BIND. The same as hdl_mr_draw_key(), and the keys of hdl_mw_bind() count as drawn.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the key; 0 if @mw is not a window. */
HDL_API struct hdl_key hdl_mw_draw_key(struct hdl_mw *mw);

/* hdl_key_with_instance - combine the index of a key with another instance
 *
 * For HDL_OP_BIND and HDL_OP_REGISTER, where the caller may pick the instance, as the interface of
 * libibverbs does. One of 256 is soon used again, and then a key that a peer kept from that time
 * works again: prefer hdl_mr_draw_key() and hdl_mw_draw_key().
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

/* hdl_channel_create - create a completion channel
 *
 * The completion queues of a channel report events through one file descriptor.
 *
 * Owner: the caller owns *out and destroys it with hdl_channel_destroy().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM; -HDL_EIO no file descriptor. */
HDL_API int hdl_channel_create(struct hdl_adapter *adapter, struct hdl_channel **out);

/* hdl_channel_destroy - destroy a completion channel
 *
 * Owner: @channel is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EBUSY a completion queue uses it. */
HDL_API int hdl_channel_destroy(struct hdl_channel *channel);

/* hdl_channel_fd - the file descriptor of a channel
 *
 * The descriptor is readable (poll, epoll) while a completion event is pending. Only
 * hdl_channel_get() may read from it.
 *
 * Owner: the channel owns the descriptor.
 * Threads: any.
 * Blocks: no.
 * Returns: the descriptor. */
HDL_API int hdl_channel_fd(struct hdl_channel *channel);

/* hdl_channel_get - take a completion event
 *
 * Waits up to @timeout_ms (0: not at all; -1: forever) until an armed completion queue of the
 * channel has a completion. Arm the queue again, then poll it until it is empty.
 *
 * Owner: *context is the one given to hdl_cq_create(). The queue cannot be destroyed until
 * hdl_cq_ack() has acknowledged every event that was taken.
 * Threads: any.
 * Blocks: up to @timeout_ms.
 * Returns: 0; -HDL_EAGAIN no event arrived in time. */
HDL_API int hdl_channel_get(struct hdl_channel *channel, struct hdl_cq **cq, void **context,
                            int timeout_ms);

struct pollfd;
struct epoll_event;
struct timespec;

/* hdl_poll - wait for file descriptors as ppoll(2) does, and drive the adapter meanwhile
 *
 * For a thread that waits for channels of @adapter among other descriptors. Waiting for
 * hdl_channel_fd() in poll(2) or epoll_wait(2) is correct, but each message first wakes the
 * adapter's thread, which then wakes the caller. In this call the caller is woken directly and does
 * the adapter's work itself, as in hdl_channel_get(). Everything else is as in ppoll(2): @fds may
 * hold any descriptors, @timeout NULL means forever, and @sigmask, a sigset_t, may be NULL to keep
 * the current signal mask.
 *
 * Owner: the caller owns @fds.
 * Threads: any; of several threads that wait at the same time, one is woken directly and wakes the
 * others.
 * Blocks: until a descriptor is ready, @timeout has passed, or a signal handler has run.
 * Returns: the number of descriptors whose revents are not 0; 0 on timeout; -HDL_EINTR;
 * -HDL_EINVAL; -HDL_ENOMEM; -HDL_EFAULT. */
HDL_API int hdl_poll(struct hdl_adapter *adapter, struct pollfd *fds, uint32_t count,
                     const struct timespec *timeout, const void *sigmask);

/* hdl_epoll_wait - wait as epoll_pwait2(2) does, and drive the adapter meanwhile
 *
 * Like hdl_poll(), for an @epoll instance that contains channels of @adapter. Events behave as in
 * epoll(7), in each of its modes.
 *
 * Owner: the caller owns @events, which has room for @max.
 * Threads: any; each event goes to one of them.
 * Blocks: until there is an event, @timeout has passed, or a signal handler has run.
 * Returns: the number of events; 0 on timeout; -HDL_EINTR; or the error of epoll_pwait2(2),
 * negated. */
HDL_API int hdl_epoll_wait(struct hdl_adapter *adapter, int epoll, struct epoll_event *events,
                           int max, const struct timespec *timeout, const void *sigmask);

/* hdl_cq_create - create a completion queue
 *
 * The queue holds at least @depth completions, from any number of queue pairs.
 *
 * Owner: the caller owns *out and destroys it with hdl_cq_destroy(). @channel may be NULL.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @depth is 0 or above limits.h; -HDL_ENOMEM. */
HDL_API int hdl_cq_create(struct hdl_adapter *adapter, uint32_t depth, struct hdl_channel *channel,
                          void *context, struct hdl_cq **out);

/* hdl_cq_destroy - destroy a completion queue
 *
 * Owner: @cq is freed, with the completions in it.
 * Threads: any.
 * Blocks: until every event taken from its channel has been acknowledged.
 * Returns: 0; -HDL_EBUSY a queue pair uses it. */
HDL_API int hdl_cq_destroy(struct hdl_cq *cq);

/* hdl_cq_resize - change the depth of a completion queue
 *
 * The completions in the queue are kept, in order.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @depth is 0, above limits.h, or less than the number of completions in
 * the queue; -HDL_ENOMEM. */
HDL_API int hdl_cq_resize(struct hdl_cq *cq, uint32_t depth);

/* hdl_cq_discard - discard the completions of a queue pair
 *
 * For a caller that resets or destroys a queue pair and no longer wants its completions.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the number of completions discarded; -HDL_EINVAL. */
HDL_API int hdl_cq_discard(struct hdl_cq *cq, uint32_t qpn);

/* hdl_cq_poll - take completions
 *
 * Drives the adapter, then dequeues up to @max completions in the order in which they were
 * generated.
 *
 * Owner: the caller owns @wc.
 * Threads: any; each completion goes to one of them.
 * Blocks: no.
 * Returns: the number of completions taken, 0 when there are none; -HDL_EOVERFLOW the queue was
 * overrun, and the completions that were in it have been taken; -HDL_EINVAL. */
HDL_API int hdl_cq_poll(struct hdl_cq *cq, struct hdl_wc *wc, int max);

/* hdl_cq_arm - ask for one completion event
 *
 * The next completion (with @solicited_only: the next solicited or failed one) puts one event on
 * the channel. If the queue already holds such completions, and a completion was added or taken
 * since the last event, the event is raised immediately: a program may poll, arm and wait, and
 * misses nothing that arrived in between. No event is raised while an earlier event of the queue is
 * still pending; the queue then stays armed for the next completion. An event does not guarantee a
 * completion: another poll may have taken it by the time the event is taken.
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
 * Returns: 0; -HDL_EINVAL @count is more than the number of events taken. */
HDL_API int hdl_cq_ack(struct hdl_cq *cq, uint32_t count);

/* hdl_srq_create - create a shared receive queue
 *
 * Queue pairs that are created with it take their receive requests from it.
 *
 * Owner: the caller owns *out and ends it with hdl_srq_destroy(). @attr returns the limits that
 * are in force.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL above limits.h; -HDL_ENOMEM. */
HDL_API int hdl_srq_create(struct hdl_pd *pd, struct hdl_srq_attr *attr, void *context,
                           struct hdl_srq **out);

/* hdl_xrcd_open - open a domain of extended reliable connections
 *
 * A queue pair of type HDL_QP_XRC_TGT delivers each message to the shared receive queue of its
 * domain that the message names.
 *
 * Owner: the caller owns *out and closes it with hdl_xrcd_close().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM. */
HDL_API int hdl_xrcd_open(struct hdl_adapter *adapter, struct hdl_xrcd **out);

/* hdl_xrcd_close - close a domain of extended reliable connections
 *
 * Owner: @xrcd is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EBUSY a queue pair or a shared receive queue is in it; -HDL_EINVAL. */
HDL_API int hdl_xrcd_close(struct hdl_xrcd *xrcd);

/* hdl_srq_create_xrc - create a shared receive queue for extended reliable connections
 *
 * Messages that name this queue (hdl_srq_number()) and arrive through a queue pair of @xrcd take
 * receive requests from it and complete in @cq. They may access only the memory of @pd, by RDMA as
 * well. Queue pairs of other types cannot use this queue.
 *
 * Owner: the caller owns *out and ends it with hdl_srq_destroy(). @attr returns the limits that
 * are in force.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL above limits.h, or the objects belong to different adapters;
 * -HDL_ENOMEM. */
HDL_API int hdl_srq_create_xrc(struct hdl_pd *pd, struct hdl_xrcd *xrcd, struct hdl_cq *cq,
                               struct hdl_srq_attr *attr, void *context, struct hdl_srq **out);

/* hdl_srq_number - get the number of an XRC shared receive queue
 *
 * A 24-bit number that a peer puts into hdl_send_wr.remote_srq.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the number; 0 for a queue from hdl_srq_create(). */
HDL_API uint32_t hdl_srq_number(const struct hdl_srq *srq);

#define HDL_SRQ_KEEP_LIMIT UINT32_MAX

/* hdl_srq_modify - resize a shared receive queue or set its limit
 *
 * If @max_wr is 0, the size does not change. If @limit is HDL_SRQ_KEEP_LIMIT, the limit does not
 * change. Any other @limit arms HDL_EVENT_SRQ_LIMIT once: the event is raised when fewer than
 * @limit requests are left, immediately if there are already fewer. 0 disarms the event.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @max_wr is less than the number of requests in the queue or above
 * limits.h, or @limit exceeds the size; -HDL_ENOMEM. */
HDL_API int hdl_srq_modify(struct hdl_srq *srq, uint32_t max_wr, uint32_t limit);

/* hdl_srq_query - query the limits of a shared receive queue
 *
 * @attr->limit is 0 when the event has been raised or was never armed.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_srq_query(struct hdl_srq *srq, struct hdl_srq_attr *attr);

/* hdl_srq_destroy - destroy a shared receive queue
 *
 * Owner: @srq is freed; requests in it never complete.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EBUSY a queue pair uses it. */
HDL_API int hdl_srq_destroy(struct hdl_srq *srq);

/* hdl_srq_post - post receive requests to a shared receive queue
 *
 * Posts the requests of the list @wr until one is refused; *bad then points to that one.
 *
 * Owner: requests and lists are copied; the buffers belong to the adapter until the completion.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_ENOSPC the queue is full; -HDL_EMSGSIZE too many scatter/gather entries. */
HDL_API int hdl_srq_post(struct hdl_srq *srq, const struct hdl_recv_wr *wr,
                         const struct hdl_recv_wr **bad);

/* hdl_ah_create - create an address handle
 *
 * An address handle names the destination of datagrams. With is_global and the GID of a multicast
 * group, it stands for all members of the group, whatever queue pair number a request gives.
 * Members that join later are reached as soon as the node agent has announced them.
 *
 * Owner: the caller owns *out and destroys it with hdl_ah_destroy().
 * Threads: any.
 * Blocks: on a node, until the node agent has answered. The call does not block if the agent has
 * already described the destination's node, and since then neither the agent nor any process of
 * that node to which this adapter has a link has ended.
 * Returns: 0; -HDL_EHOSTUNREACH; -HDL_EINVAL; -HDL_ENOMEM, also when HDL_MAX_GROUPS is reached. */
HDL_API int hdl_ah_create(struct hdl_pd *pd, const struct hdl_ah_attr *attr, struct hdl_ah **out);

/* hdl_ah_destroy - destroy an address handle
 *
 * Owner: @ah is freed. Requests already posted with it are not affected.
 * Threads: any.
 * Blocks: no.
 * Returns: 0. */
HDL_API int hdl_ah_destroy(struct hdl_ah *ah);

/* hdl_qp_create - create a queue pair (OpenQP)
 *
 * The new queue pair is in the state HDL_QPS_RESET. @attr->cap returns the limits that are in
 * force: at least what was requested, and 0 for queues that the type does not have. For
 * HDL_QP_XRC_TGT, @pd is NULL, because each message uses the domain of the shared receive queue
 * that it names. HDL_QP_RD requires a reliable datagram domain, @attr->rdd. HDL_QP_RAW is supported
 * only on a network that carries raw datagrams (hdl_raw_attach()).
 *
 * Owner: the caller owns *out and destroys it with hdl_qp_destroy().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOTSUP; -HDL_ENOMEM. */
HDL_API int hdl_qp_create(struct hdl_pd *pd, struct hdl_qp_init_attr *attr, struct hdl_qp **out);

/* hdl_qp_modify - change the attributes and state of a queue pair
 *
 * Applies the attributes in @mask, all or none. The specification defines which transitions exist
 * and which attributes each one requires and allows; "States" in the manual page lists them.
 *
 * An alternate path (HDL_QP_ALT_PATH) that is armed by both ends (HDL_QP_PATH_MIG_STATE:
 * HDL_MIG_REARM) replaces the primary path when a request is still unanswered after all retries, or
 * immediately with HDL_MIG_MIGRATED. No message is lost. Each end gets HDL_EVENT_PATH_MIG and has
 * no alternate path until it is given a new one. Only connections over a network migrate.
 *
 * With HDL_QP_STRIPE and an alternate path, both given in the transition to RTR, a reliable
 * connection over a network uses both paths at the same time. The packets of each message, and the
 * parts of each read, alternate between the paths. When one path stops carrying packets, the other
 * one carries all of them until the first works again. Both ends must be Heddle and must request
 * striping with the same number: each end buffers that many packets of the path MTU to restore
 * their order. With HEDDLE_STRIPE=on (heddle(1), --stripe) a connection that is brought to RTR
 * without an alternate path gets one and uses both, if its other end agrees. An alternate path
 * cannot be changed while it is used so.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until node agents have answered, when a connection begins.
 * Returns: 0; -HDL_EPERM no such transition; -HDL_EINVAL an attribute is missing, not allowed or
 * out of range; -HDL_EHOSTUNREACH; -HDL_EACCES the kernel denies access to the peer's memory. */
HDL_API int hdl_qp_modify(struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask);

/* hdl_qp_query - query the attributes of a queue pair
 *
 * @init may be NULL.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_qp_query(struct hdl_qp *qp, struct hdl_qp_attr *attr,
                         struct hdl_qp_init_attr *init);

/* hdl_qp_number - get the number of a queue pair
 *
 * A 24-bit number that a peer puts into its attribute dest_qpn.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the number. */
HDL_API uint32_t hdl_qp_number(const struct hdl_qp *qp);

/* hdl_qp_untaken - count the completions of a queue pair that have not been polled
 *
 * Drives the adapter, then counts the completions of the queue pair @qpn in its completion queues.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the count; 0 when there is no such queue pair; -HDL_EINVAL. */
HDL_API int hdl_qp_untaken(struct hdl_adapter *adapter, uint32_t qpn);

/* hdl_qp_destroy - destroy a queue pair
 *
 * Completions that it has already generated remain in their queues. Requests still in the queue
 * pair generate none.
 *
 * Owner: @qp is freed; the buffers of its requests belong to the caller again.
 * Threads: any.
 * Blocks: until a peer that is copying from or to its buffers at this moment has finished.
 * Returns: 0; -HDL_EINVAL; -HDL_EBUSY it is still a member of a multicast group. */
HDL_API int hdl_qp_destroy(struct hdl_qp *qp);

/* hdl_qp_attach - join a multicast group
 *
 * After the call, @qp, an unreliable datagram queue pair, receives what is sent to the group @gid
 * (in ff00::/8, or 224.0.0.0/4 mapped into IPv6), as if the message were addressed to @qp alone:
 * each member consumes a receive of its own, its Q_Key must match, and the route header in the
 * buffer has @gid as its destination. A sender that is a member receives its own messages. Groups
 * span all nodes of the user. Attaching a queue pair that is already a member has no effect.
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
 * Returns: 0; -HDL_EINVAL @qp is not a member. */
HDL_API int hdl_qp_detach(struct hdl_qp *qp, const struct hdl_gid *gid);

/* hdl_rdd_open - open a reliable datagram domain
 *
 * Reliable datagrams (SAN) reach any queue pair of any node without one connection per pair: a node
 * with M queue pairs that talk to all those of N - 1 other nodes needs M queue pairs and N - 1
 * end-to-end contexts, where connections would need M x M x (N - 1) queue pairs. A message goes
 * from a queue pair of the type HDL_QP_RD through a context to a queue pair at the context's other
 * end. Queue pairs work only with contexts of their own domain.
 *
 * Owner: the caller owns *out and closes it with hdl_rdd_close().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM. */
HDL_API int hdl_rdd_open(struct hdl_adapter *adapter, struct hdl_rdd **out);

/* hdl_rdd_close - close a reliable datagram domain
 *
 * Owner: @rdd is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EBUSY a queue pair or a context is in it; -HDL_EINVAL. */
HDL_API int hdl_rdd_close(struct hdl_rdd *rdd);

/* hdl_eec_create - create an end-to-end context
 *
 * A context leads to one context of another adapter, and all queue pairs of the domain share it. It
 * holds what makes datagrams between the two reliable: sequence numbers, acknowledgements, timeout
 * and retries. One message at a time is in flight on a context. Queue pairs that wait for it take
 * turns, and the messages of each queue pair arrive in order. A message that finds no receive
 * delays those behind it for as long as the rnr_retry of the context allows. The new context is in
 * the state HDL_QPS_RESET.
 *
 * Owner: the caller owns *out and destroys it with hdl_eec_destroy().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM, also when no queue pair number is left. */
HDL_API int hdl_eec_create(struct hdl_rdd *rdd, struct hdl_eec **out);

/* hdl_eec_modify - change the attributes and state of an end-to-end context
 *
 * Applies the attributes in @mask (HDL_QP_*), all or none. RESET to INIT: PKEY_INDEX, PORT. INIT to
 * RTR: AV, PATH_MTU, DEST_QPN (the number of the context at the other end), RQ_PSN,
 * MAX_DEST_RD_ATOMIC (0 or 1). RTR to RTS: SQ_PSN, TIMEOUT, RETRY_CNT, RNR_RETRY, MAX_RD_ATOMIC (0
 * or 1). From any state to RESET or ERR: no other attributes; messages that wait for the context
 * fail.
 *
 * On one machine the packets go through shared memory, otherwise over the network; what happens is
 * the same.
 *
 * A message that cannot be delivered fails alone: its completion says why
 * (HDL_WC_REM_INV_RD_REQ_ERR: no such queue pair in the domain, or not its Q_Key;
 * HDL_WC_RNR_RETRY_EXC_ERR, HDL_WC_REM_INV_REQ_ERR, HDL_WC_REM_ACCESS_ERR, HDL_WC_REM_OP_ERR), and
 * both the context and the queue pair go on with the next one. When the other end no longer
 * answers, the message fails with HDL_WC_RETRY_EXC_ERR and the context fails with it: its state
 * becomes HDL_QPS_ERR, and messages for it complete with HDL_WC_INV_EEC_STATE_ERR until it has been
 * brought through RESET to RTS again.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until the node agent has introduced the peer, in the transition to RTR.
 * Returns: 0; -HDL_EPERM no such transition; -HDL_EINVAL an attribute is missing, not allowed or
 * out of range; -HDL_EHOSTUNREACH nothing leads there; -HDL_EACCES the agent refused the
 * introduction; -HDL_ENOMEM. */
HDL_API int hdl_eec_modify(struct hdl_eec *eec, const struct hdl_qp_attr *attr, uint32_t mask);

/* hdl_eec_query - query the attributes of an end-to-end context
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_eec_query(struct hdl_eec *eec, struct hdl_qp_attr *attr);

/* hdl_eec_number - get the number of an end-to-end context
 *
 * A 24-bit number that the other end puts into its attribute dest_qpn. hdl_wc.eecn holds it for
 * messages that arrive through this context.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the number. */
HDL_API uint32_t hdl_eec_number(const struct hdl_eec *eec);

/* hdl_eec_destroy - destroy an end-to-end context
 *
 * Messages in flight on it fail with HDL_WC_LOC_EEC_OP_ERR, those that wait for it with
 * HDL_WC_INV_EEC_STATE_ERR, and those whose turn comes later with HDL_WC_INV_EECN_ERR.
 *
 * Owner: @eec is freed.
 * Threads: any, but not while requests that name it are posted.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_eec_destroy(struct hdl_eec *eec);

/* hdl_raw_attach - start to receive raw datagrams of one protocol
 *
 * After the call, @qp, a raw datagram queue pair, receives every IPv6 datagram to the address @gid
 * whose IPv6 header contains @next_header (6: TCP, 17: UDP, ...), starting with that IPv6 header.
 * Each registered queue pair gets its own copy of a datagram. Datagrams that find no receive are
 * dropped; a datagram longer than the receive fails the queue pair. What @qp sends must be whole
 * IPv6 datagrams as well, of at most HDL_RAW_MTU bytes, with their true length in the header. Their
 * source address is not checked.
 *
 * Raw datagram queue pairs exist only on networks that carry raw datagrams. Simulated networks do;
 * UDP cannot.
 *
 * Owner: nothing changes hands; destroying @qp ends its registrations.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL a queue pair of another type; -HDL_ENOMEM HDL_MAX_RAW is reached. */
HDL_API int hdl_raw_attach(struct hdl_qp *qp, uint8_t next_header, const struct hdl_gid *gid);

/* hdl_raw_detach - stop receiving raw datagrams of one protocol
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL @qp is not registered for them. */
HDL_API int hdl_raw_detach(struct hdl_qp *qp, uint8_t next_header, const struct hdl_gid *gid);

/* hdl_post_send - post requests to the send queue
 *
 * Posts the requests of the list @wr until one is refused; *bad then points to that one. Requests
 * are executed in order. Each message of a queue pair of type HDL_QP_RD names its context,
 * destination and Q_Key (hdl_send_wr.rd), and starts when the one before it has ended.
 *
 * A request occupies the queue until its completion, or the completion of a later request, has been
 * polled. A program that posts unsignalled requests must therefore post a signalled one from time
 * to time.
 *
 * Owner: requests and lists are copied; the buffers belong to the adapter until the completion,
 * inline data is copied.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EPERM the state does not allow sends; -HDL_ENOSPC the queue is full;
 * -HDL_EMSGSIZE too many scatter/gather entries, too much inline data, or the message is too long
 * (for a datagram: longer than hdl_limits.mtu); -HDL_EINVAL an unknown opcode or flag, or a null
 * object; -HDL_ENOTSUP an opcode that this type of queue pair does not support; -HDL_ENOMEM no room
 * to store the page list. */
HDL_API int hdl_post_send(struct hdl_qp *qp, const struct hdl_send_wr *wr,
                          const struct hdl_send_wr **bad);

/* hdl_post_recv - post requests to the receive queue
 *
 * Posts the requests of the list @wr until one is refused; *bad then points to that one. A request
 * occupies the queue until its completion has been polled.
 *
 * Owner: requests and lists are copied; the buffers belong to the adapter until the completion.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EPERM the state is RESET; -HDL_ENOSPC the queue is full (always the case for a
 * queue pair without receives, XRC); -HDL_EMSGSIZE too many scatter/gather entries; -HDL_EINVAL the
 * queue pair uses a shared receive queue. */
HDL_API int hdl_post_recv(struct hdl_qp *qp, const struct hdl_recv_wr *wr,
                          const struct hdl_recv_wr **bad);

/* hdl_node_find - look up a node by its address
 *
 * Asks the node agent and returns the LID of the node in *lid.
 *
 * Owner: nothing changes hands.
 * Threads: any, but not inside the handler of hdl_cm_receive().
 * Blocks: until the node agent has answered.
 * Returns: 0; -HDL_EHOSTUNREACH there is none, or the node agent does not answer; -HDL_ENOTSUP the
 * adapter is not on a node or has no thread; -HDL_EINVAL. */
HDL_API int hdl_node_find(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint16_t *lid);

/* hdl_cm_receive - receive connection management messages
 *
 * After the call, @handler is called with each message for this process. The handler may call
 * hdl_cm_send(), but no other function of the adapter.
 *
 * Owner: the message is valid until @handler returns.
 * Threads: any; threads of the adapter call @handler, possibly two of them at the same time.
 * Blocks: no.
 * Returns: 0; -HDL_ENOTSUP the adapter is not on a node or has no thread. */
HDL_API int hdl_cm_receive(struct hdl_adapter *adapter,
                           void (*handler)(void *context, const struct hdl_cm_msg *msg),
                           void *context);

/* hdl_cm_bind - reserve a port of the node
 *
 * Each @space has its own port numbers. With an address, the port receives messages to that address
 * only; with NULL, to all addresses of the node. @options (enum hdl_cm_option) select the address
 * family and whether the port may be shared. If *port is 0, the agent chooses a free port. The
 * ports of a process are released when it ends.
 *
 * Owner: the adapter holds the port until hdl_cm_unbind().
 * Threads: any, but not inside the handler of hdl_cm_receive().
 * Blocks: until the node agent has answered.
 * Returns: 0; -HDL_EADDRINUSE; -HDL_ENOMEM; -HDL_ENOTSUP; -HDL_EHOSTUNREACH the node agent does
 * not answer. */
HDL_API int hdl_cm_bind(struct hdl_adapter *adapter, uint16_t space, const struct hdl_gid *gid,
                        uint16_t *port, uint32_t options);

/* hdl_cm_listen - listen on a port that was bound with HDL_CM_DEAF
 *
 * @gid and @options are those given to hdl_cm_bind(). A network request that found no listener a
 * moment ago is delivered now: the node agent keeps such requests for one second.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL this adapter does not hold the port. */
HDL_API int hdl_cm_listen(struct hdl_adapter *adapter, uint16_t space, const struct hdl_gid *gid,
                          uint16_t port, uint32_t options);

/* hdl_cm_unbind - release a port
 *
 * @gid and @options are those given to hdl_cm_bind().
 *
 * Owner: the port is free.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL this adapter does not hold the port. */
HDL_API int hdl_cm_unbind(struct hdl_adapter *adapter, uint16_t space, const struct hdl_gid *gid,
                          uint16_t port, uint32_t options);

/* hdl_cm_send - send a connection management message
 *
 * The node agent forwards the message. Messages to one process arrive in order; a message that
 * cannot be delivered comes back as HDL_CM_RETURNED. A management datagram (msg->on_wire) is sent
 * from the node's network address and may get lost. Incoming management datagrams are delivered as
 * HDL_CM_MAD: a request to the process that holds the port of its service, any other to the process
 * whose slot (struct hdl_limits) is in the high ten bits of the receiver's number in the datagram.
 * A DREQ may be left with the agent, which sends it when the process has ended (HDL_CM_WHEN_GONE)
 * or immediately (HDL_CM_LAST_WORD), and repeats it until it is answered. A disconnect notice sent
 * as HDL_CM_LAST_WORD survives an agent that is killed.
 *
 * Owner: @msg is copied.
 * Threads: any.
 * Blocks: while the node agent is busy.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOTSUP; -HDL_EHOSTUNREACH there is no node agent; -HDL_EACCES the
 * peer's address is on the loopback, and another user holds it. */
HDL_API int hdl_cm_send(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg);

/* hdl_listener_bind - reserve a TCP port for iWARP connections
 *
 * Binds a TCP socket to @port of the address @gid (IPv4 mapped into IPv6), or of every network
 * address of the node when @gid is NULL, of every IPv4 address when it is 0.0.0.0, and of every
 * IPv6 address when it is "::". If *port is 0, a free port is chosen. Only addresses of
 * the node can be used (heddle(1): HEDDLE_ADDR, HEDDLE_LOCAL), or the loopback if the adapter is on
 * no node. The port can then either listen (hdl_listener_listen()) or be the source port of one
 * connection (hdl_conn_connect()). @context is returned with every HDL_CONN_REQUEST.
 *
 * Owner: the caller owns *out and closes it with hdl_listener_close().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_EADDRINUSE; -HDL_EACCES this user may not use the port;
 * -HDL_EHOSTUNREACH @gid is not an address of the node, or the node has no network address;
 * -HDL_ENOMEM; -HDL_EIO out of file descriptors. */
HDL_API int hdl_listener_bind(struct hdl_adapter *adapter, const struct hdl_gid *gid,
                              uint16_t *port, void *context, struct hdl_listener **out);

/* hdl_listener_serve - say what the connections of a listener carry
 *
 * Without this call it is RDMA (HDL_CONN_RDMA_TCP). A listener for HDL_CONN_TCP reports
 * HDL_CONN_REQUEST as soon as a peer connects, without private data. A listener for
 * HDL_CONN_RDMA_SCTP listens on the SCTP port of the same number; hdl_listener_listen() then fails
 * with -HDL_EADDRINUSE if another process has UDP port 9899 of the address.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL also: there is no such service; -HDL_EPERM it listens already */
HDL_API int hdl_listener_serve(struct hdl_listener *listener, enum hdl_conn_service service);

/* hdl_listener_listen - wait for connections
 *
 * After the call, each peer that connects to the port and sends an MPA Request causes a
 * HDL_CONN_REQUEST (hdl_conn_event_get()). @backlog requests, at least one, may wait to be
 * accepted or rejected; further peers wait in the operating system. A peer that connects and sends
 * no valid Request within 10 seconds is disconnected. On the loopback, peers of other users are
 * disconnected immediately.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL it listens already; -HDL_EADDRINUSE another socket listens there;
 * -HDL_ENOTSUP for SCTP, libusrsctp2 is not installed; -HDL_EIO. */
HDL_API int hdl_listener_listen(struct hdl_listener *listener, int backlog);

/* hdl_listener_close - close a port
 *
 * Requests that have not been accepted or rejected are reset; hdl_conn_destroy() must still be
 * called for those whose event has been taken.
 *
 * Owner: @listener is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_listener_close(struct hdl_listener *listener);

/* hdl_conn_connect - connect a queue pair over TCP
 *
 * Opens a TCP connection from @listener, or from some port of @from, or (both NULL) of the node's
 * address of the same family, to @port of @to, negotiates iWARP on it (MPA, RFC 5044 and RFC 6581),
 * and moves @qp, a reliable connection in INIT, to RTS. The result arrives as an event
 * (hdl_conn_event_get()): HDL_CONN_ESTABLISHED, HDL_CONN_REJECTED or HDL_CONN_FAILED. The queue
 * pair uses the wire even if the peer is on the same machine. What iWARP lacks fails with
 * HDL_WC_LOC_QP_OP_ERR: sends with immediate data.
 *
 * iWARP does not encrypt. Whoever can read or change packets on the network can read and change
 * messages, and write to the memory that the peer was granted.
 *
 * Owner: the caller owns *out and destroys it with hdl_conn_destroy(); the socket of @listener, if
 * given, belongs to the connection. @param and its private data are copied.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL also: too much private data; -HDL_EPERM @qp is not in INIT, or has a
 * connection, if only one that is being set up; -HDL_ENOTSUP @qp is not of type HDL_QP_RC, or for
 * SCTP, libusrsctp2 is not installed; -HDL_EHOSTUNREACH @from is not an address of the node, or
 * there is no route; -HDL_EADDRINUSE; -HDL_ENOMEM; -HDL_EIO out of file descriptors. */
HDL_API int hdl_conn_connect(struct hdl_qp *qp, struct hdl_listener *listener,
                             const struct hdl_gid *from, const struct hdl_gid *to, uint16_t port,
                             const struct hdl_conn_param *param, void *context,
                             struct hdl_conn **out);

/* hdl_conn_adopt - turn a connected TCP socket into an iWARP connection
 *
 * Both programs have talked over the socket @fd and have agreed to continue with iWARP: the
 * @initiator sends the MPA Request, the other side answers it. @bytes of @data have already been
 * read from the socket and belong to MPA. An initiator continues as after hdl_conn_connect(). A
 * responder gets HDL_CONN_REQUEST, without a listener, and then calls hdl_conn_accept(); its @qp
 * may be NULL here, and @param is not used.
 *
 * Owner: the caller owns *out; the connection owns @fd, unless an error is returned. The descriptor
 * becomes non-blocking. @param and @data are copied.
 * Threads: any; nobody else may use @fd.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL also: @fd is not a connected TCP socket, or @bytes is above 65536;
 * -HDL_EPERM; -HDL_ENOTSUP; -HDL_ENOMEM; -HDL_EIO. */
HDL_API int hdl_conn_adopt(struct hdl_adapter *adapter, struct hdl_qp *qp, int fd, bool initiator,
                           const void *data, size_t bytes, const struct hdl_conn_param *param,
                           void *context, struct hdl_conn **out);

/* hdl_conn_accept - accept a request
 *
 * Answers the request of @conn, after HDL_CONN_REQUEST, and connects @qp, a reliable connection in
 * INIT. HDL_CONN_ESTABLISHED follows, or HDL_CONN_FAILED. @context replaces that of the connection.
 * Receives should be posted before: the peer may send immediately.
 *
 * Owner: nothing changes hands; @param and its private data are copied.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL also: too much private data; -HDL_EPERM @qp is not in INIT or has a
 * connection, or the peer has left, or it was answered before; -HDL_ENOTSUP @qp is not of type
 * HDL_QP_RC. */
HDL_API int hdl_conn_accept(struct hdl_conn *conn, struct hdl_qp *qp,
                            const struct hdl_conn_param *param, void *context);

/* hdl_conn_reject - reject a request
 *
 * The peer gets HDL_CONN_REJECTED with the private data.
 *
 * Owner: the caller still destroys @conn; @data is copied.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL also: too much private data; -HDL_EPERM the peer has left, or it was
 * answered before. */
HDL_API int hdl_conn_reject(struct hdl_conn *conn, const void *data, uint32_t bytes);

/* hdl_conn_disconnect - end a connection in order
 *
 * What has been posted to the send queue is executed, then this direction of the TCP connection is
 * closed and the queue pair is in SQD. Nothing more may be posted to it. HDL_CONN_CLOSED arrives
 * when the peer has closed its direction as well, or has not done so for 10 seconds; the queue pair
 * is in ERR then, and its receives are flushed. The same happens when the peer disconnects.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0, also if it has ended; -HDL_EINVAL; -HDL_EPERM it has not been established. */
HDL_API int hdl_conn_disconnect(struct hdl_conn *conn);

/* hdl_conn_destroy - destroy a connection
 *
 * A connection that has not ended is aborted: a queue pair that is connected goes to ERR, which
 * tells the peer with a Terminate. After hdl_conn_disconnect(), the orderly end continues in the
 * background. A pending event of @conn is dropped.
 *
 * Owner: @conn is freed. The queue pair remains.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_conn_destroy(struct hdl_conn *conn);

/* hdl_conn_event_get - take an event of a connection
 *
 * Waits up to @timeout_ms (0: not at all; -1: forever) for an event of any connection of the
 * adapter and dequeues it.
 *
 * Owner: the connection of a HDL_CONN_REQUEST belongs to the caller, who destroys it with
 * hdl_conn_destroy().
 * Threads: any.
 * Blocks: up to @timeout_ms.
 * Returns: 0; -HDL_EAGAIN no event arrived in time; -HDL_EINTR a signal arrived; -HDL_EINVAL. */
HDL_API int hdl_conn_event_get(struct hdl_adapter *adapter, struct hdl_conn_event *event,
                               int timeout_ms);

/* hdl_conn_event_fd - the file descriptor of the events of connections
 *
 * The descriptor is readable (poll, epoll) while an event is pending. Only hdl_conn_event_get() may
 * read from it.
 *
 * Owner: the adapter owns the descriptor.
 * Threads: any.
 * Blocks: no.
 * Returns: the descriptor; -HDL_EIO out of file descriptors; -HDL_EINVAL. */
HDL_API int hdl_conn_event_fd(struct hdl_adapter *adapter);

/* hdl_conn_notify - be called when a connection has an event
 *
 * After the call, the thread of the adapter calls @handler whenever hdl_conn_event_get() has
 * something new. The handler may call hdl_conn_event_get() without waiting, and any other call
 * about connections.
 *
 * Owner: nothing changes hands.
 * Threads: any; the thread of the adapter calls @handler.
 * Blocks: no.
 * Returns: 0; -HDL_ENOTSUP the adapter has no thread; -HDL_EINVAL. */
HDL_API int hdl_conn_notify(struct hdl_adapter *adapter, void (*handler)(void *context),
                            void *context);

/* hdl_qp_open_udp - plain UDP on a queue pair
 *
 * Gives @qp, an unreliable datagram queue pair in INIT, a UDP socket of its own, on *port (0: some
 * free one, which is returned) of @gid, an address of the node (IPv4 mapped into IPv6), and moves
 * it to RTS. Its peers are programs that use UDP sockets. A send names the peer's address by an
 * address handle with hdl_ah_attr.plain, and the peer's UDP port instead of a queue pair number;
 * the Q_Key is not used. A receive begins with HDL_GRH_BYTES, of which the last 32 are the
 * addresses of the sender and of the queue pair; hdl_wc.src_qpn is the sender's port. A datagram
 * has at most HDL_MAX_UDP bytes. One that finds no receive, or is longer than it, is dropped; so is
 * one that cannot be sent.
 *
 * Owner: the queue pair owns the socket, until it is RESET or destroyed.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_EPERM @qp is not in INIT; -HDL_ENOTSUP @qp is not of type
 * HDL_QP_UD; -HDL_EHOSTUNREACH @gid is not an address of the node; -HDL_EADDRINUSE; -HDL_EACCES;
 * -HDL_ENOMEM; -HDL_EIO out of file descriptors. */
HDL_API int hdl_qp_open_udp(struct hdl_qp *qp, const struct hdl_gid *gid, uint16_t *port);

/* hdl_qp_finish - end the connection of a queue pair in order
 *
 * The same as hdl_conn_disconnect() for the connection that @qp has.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_ENOTSUP @qp is not connected over a byte stream; -HDL_EINVAL. */
HDL_API int hdl_qp_finish(struct hdl_qp *qp);

/* hdl_qp_find - look up a queue pair by its number
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the queue pair; NULL: there is none. */
HDL_API struct hdl_qp *hdl_qp_find(struct hdl_adapter *adapter, uint32_t number);

#ifdef __cplusplus
}
#endif
#endif
