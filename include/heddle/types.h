/* The vocabulary of Heddle: keys, rights, work requests, completions, queue pair attributes. Data
 * only; the calls are in heddle.h. Every layer above base uses these types, so the data path
 * translates nothing. */
#ifndef HEDDLE_TYPES_H
#define HEDDLE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define HDL_STATIC_ASSERT static_assert
extern "C" {
#else
#define HDL_STATIC_ASSERT _Static_assert
#endif

/* A key: index into the protection table (high 24 bits) and instance (low 8 bits). STag, LKey,
 * RKey, memory handle and task tag are other names for it. It is a struct so that the compiler can
 * tell a key from a number. */
struct hdl_key {
	uint32_t v;
};

/* The address of a port: an IPv6 address, or an IPv4 address mapped into one. */
struct hdl_gid {
	uint8_t raw[16];
};

/* What may be done with a region or window (MEMMGT figure 13, "access control"). Rights are granted
 * one by one: REMOTE_WRITE and REMOTE_ATOMIC on a region need LOCAL_WRITE as well. */
enum hdl_access {
	HDL_ACCESS_LOCAL_READ = 1 << 0,    /* requests of the owner may send from it */
	HDL_ACCESS_LOCAL_WRITE = 1 << 1,   /* its own receives and reads may be placed there */
	HDL_ACCESS_REMOTE_READ = 1 << 2,   /* peers may read it */
	HDL_ACCESS_REMOTE_WRITE = 1 << 3,  /* peers may write to it */
	HDL_ACCESS_REMOTE_ATOMIC = 1 << 4, /* peers may change it by atomics */
	HDL_ACCESS_BIND = 1 << 5,          /* windows may be bound to the region */
	HDL_ACCESS_ONE_TOUCH = 1 << 6,     /* invalid after the first message to or from it */
	HDL_ACCESS_ZERO_BASED = 1 << 7 /* addresses count from 0, not from the virtual address */
};
#define HDL_ACCESS_ALL 0xffu

/* One entry of a scatter/gather list. */
struct hdl_sge {
	uint64_t addr;
	uint32_t length;
	struct hdl_key key;
};
HDL_STATIC_ASSERT(sizeof(struct hdl_sge) == 16, "a scatter/gather entry is 16 bytes");

enum hdl_qp_type {
	HDL_QP_RC = 1,  /* reliable connection */
	HDL_QP_UC,      /* unreliable connection */
	HDL_QP_UD,      /* unreliable datagram */
	HDL_QP_XRC_INI, /* extended reliable connection: sends only, to shared receive queues of its
	                   choice */
	HDL_QP_XRC_TGT, /* its other end, which has no queues of its own */
	HDL_QP_RD, /* reliable datagram: each message goes through an end-to-end context (struct
	              hdl_eec) */
	HDL_QP_RAW /* raw datagram: whole IPv6 datagrams; where a network carries such */
};

enum hdl_qp_state {
	HDL_QPS_RESET, /* new: nothing can be posted */
	HDL_QPS_INIT,  /* receives can be posted */
	HDL_QPS_RTR,   /* ready to receive */
	HDL_QPS_RTS,   /* ready to send */
	HDL_QPS_SQD,   /* send queue drained */
	HDL_QPS_SQE,   /* send queue error */
	HDL_QPS_ERR    /* failed, or ended: all work is flushed */
};

/* Operations, flags, statuses and the structures around them have the numbers and the layout of
 * libibverbs, so that requests and completions of its programs need no translation. */
enum hdl_opcode {
	HDL_OP_WRITE,        /* write to memory of the peer */
	HDL_OP_WRITE_IMM,    /* the same, and complete a receive of the peer with 4 bytes of data */
	HDL_OP_SEND,         /* send into a receive of the peer */
	HDL_OP_SEND_IMM,     /* the same, with 4 bytes of data in its completion */
	HDL_OP_READ,         /* read memory of the peer */
	HDL_OP_COMPARE_SWAP, /* replace 8 bytes of the peer's memory if they are as expected */
	HDL_OP_FETCH_ADD,    /* add to 8 bytes of the peer's memory and fetch what they were */
	HDL_OP_INVALIDATE, /* unbind a window, or invalidate a region registered by HDL_OP_REGISTER
	                    */
	HDL_OP_BIND,       /* bind a window to a range of a region */
	HDL_OP_SEND_INVALIDATE, /* send, and invalidate a key of the peer's */
	/* these libibverbs does not have */
	HDL_OP_REGISTER,      /* give a region from hdl_mr_alloc() its pages */
	HDL_OP_REGISTER_SEND, /* HDL_OP_REGISTER, then HDL_OP_SEND, in one request */
	HDL_OP_DELAY,         /* hold back the requests behind this one */
	HDL_OP_COUNT
};

enum hdl_send_flags {
	HDL_SEND_FENCE = 1 << 0,     /* not before every earlier read and atomic has completed */
	HDL_SEND_SIGNALED = 1 << 1,  /* a completion on success, too; a failure always has one */
	HDL_SEND_SOLICITED = 1 << 2, /* wakes a peer that waits for solicited completions only */
	HDL_SEND_INLINE =
	        1 << 3 /* the data is copied by hdl_post_send(); keys in the list are ignored */
};

struct hdl_mr;
struct hdl_mw;
struct hdl_ah;
struct hdl_qp;
struct hdl_cq;
struct hdl_srq;
struct hdl_xrcd;
struct hdl_rdd;
struct hdl_eec;
struct hdl_pd;
struct hdl_adapter;
struct hdl_channel;
struct hdl_conn;
struct hdl_listener;

/* What to bind: HDL_OP_BIND and hdl_mw_bind(). */
struct hdl_bind {
	struct hdl_mr *mr;
	uint64_t addr;
	uint64_t length;
	uint32_t access; /* enum hdl_access: REMOTE_*, ONE_TOUCH, ZERO_BASED */
};

/* What to register: HDL_OP_REGISTER. The region covers @length bytes that start at @first_offset in
 * the first of @num_pages pages of 2^@page_shift bytes. @pages belongs to the caller and is copied
 * when the request is posted. */
struct hdl_register {
	const uint64_t *pages;
	uint32_t num_pages;
	uint8_t page_shift; /* 12 (4 KiB) to 28 (256 MiB) */
	uint64_t first_offset;
	uint64_t length;
	uint64_t iova;   /* the address that peers and work requests use for the first byte */
	uint32_t access; /* enum hdl_access */
};

/* A request for a send queue. Requests form a list through @next. */
struct hdl_send_wr {
	uint64_t wr_id;
	struct hdl_send_wr *next;
	const struct hdl_sge *sg_list;
	uint32_t num_sge;
	uint32_t opcode; /* enum hdl_opcode */
	uint32_t flags;  /* enum hdl_send_flags */
	union {
		uint32_t imm; /* *_IMM: delivered unchanged in the peer's completion */
		struct hdl_key
		        invalidate_key; /* SEND_INVALIDATE: the peer's; INVALIDATE: a local one */
	};
	union {
		struct {
			uint64_t addr;
			struct hdl_key key;
		} rdma;
		struct {
			uint64_t addr;
			uint64_t compare_add;
			uint64_t swap;
			struct hdl_key key;
		} atomic;
		struct {
			struct hdl_ah *ah;
			uint32_t qpn;
			uint32_t qkey;
		} ud;
		struct {
			uint64_t ns;
		} delay;
	} u;
	uint32_t remote_srq; /* HDL_QP_XRC_INI: hdl_srq_number() of the peer's shared receive queue
	                      */
	union {
		struct {
			struct hdl_mw *mw;
			struct hdl_key key; /* a type 2 window's new key: same index, instance of
			                       your choice */
			struct hdl_bind bind;
		} bind;
		struct {
			struct hdl_mr *mr;
			struct hdl_key
			        key; /* the region's new key: same index, instance of your choice */
			struct hdl_register reg;
		} reg;
		struct {
			struct hdl_eec *eec; /* HDL_QP_RD: the context to send through, */
			uint32_t qpn;        /* the queue pair at its other end, */
			uint32_t qkey;       /* and the Q_Key of that queue pair */
		} rd;
	};
};

struct hdl_recv_wr {
	uint64_t wr_id;
	struct hdl_recv_wr *next;
	const struct hdl_sge *sg_list;
	uint32_t num_sge;
};

/* How a request ended. The first group is the sender's own doing, the second is the answer of the
 * peer. */
enum hdl_wc_status {
	HDL_WC_SUCCESS,
	HDL_WC_LOC_LEN_ERR =
	        1, /* receive: the buffer was too small; send: longer than the transport allows */
	HDL_WC_LOC_QP_OP_ERR = 2,  /* the request does not fit the queue pair */
	HDL_WC_LOC_EEC_OP_ERR = 3, /* the end-to-end context failed */
	HDL_WC_LOC_PROT_ERR = 4,   /* a local piece failed a check of figure 15; see vendor_err */
	HDL_WC_WR_FLUSH_ERR = 5,   /* not executed: the queue pair is in an error state */
	HDL_WC_MEM_MGT_ERR =
	        6, /* a bind, registration or invalidation was refused; see vendor_err */
	HDL_WC_BAD_RESP_ERR = 7,   /* the answer made no sense */
	HDL_WC_LOC_ACCESS_ERR = 8, /* memory that was registered has gone; receive: the write that
	                              brought immediate data was refused */
	HDL_WC_REM_INV_REQ_ERR = 9,
	HDL_WC_REM_ACCESS_ERR = 10,
	HDL_WC_REM_OP_ERR = 11,
	HDL_WC_RETRY_EXC_ERR = 12,
	HDL_WC_RNR_RETRY_EXC_ERR = 13,
	HDL_WC_REM_INV_RD_REQ_ERR =
	        15, /* a reliable datagram found no queue pair of its domain, or not its Q_Key */
	HDL_WC_REM_ABORT_ERR = 16, /* receive: the sender gave the message up half way */
	HDL_WC_INV_EECN_ERR = 17,  /* there is no such end-to-end context any more */
	HDL_WC_INV_EEC_STATE_ERR =
	        18, /* it is not ready to send, or failed before the message's turn */
	HDL_WC_FATAL_ERR = 19,
	HDL_WC_STATUS_COUNT
};

enum hdl_wc_opcode {
	HDL_WC_SEND,          /* a send of any kind */
	HDL_WC_WRITE,         /* a write, with immediate data or without */
	HDL_WC_READ,          /* a read */
	HDL_WC_COMPARE_SWAP,  /* a compare-and-swap */
	HDL_WC_FETCH_ADD,     /* a fetch-and-add */
	HDL_WC_BIND,          /* a window was bound */
	HDL_WC_INVALIDATE,    /* a key was invalidated */
	HDL_WC_REGISTER,      /* a region was registered by its request */
	HDL_WC_DELAY,         /* a delay ran out */
	HDL_WC_RECV = 128,    /* a receive that took a send */
	HDL_WC_RECV_WRITE_IMM /* a receive that took the immediate data of a write */
};

enum hdl_wc_flags {
	HDL_WC_GRH = 1 << 0,      /* the first 40 bytes of the buffer are a global route header */
	HDL_WC_WITH_IMM = 1 << 1, /* imm holds the immediate data */
	HDL_WC_WITH_INVALIDATE = 1 << 3 /* invalidated_key was invalidated by the peer's message */
};

/* A completion. On error, only wr_id, status, vendor_err and qpn are valid. */
struct hdl_wc {
	uint64_t wr_id;
	uint32_t status; /* enum hdl_wc_status */
	uint32_t opcode; /* enum hdl_wc_opcode */
	union {
		uint32_t vendor_err; /* enum hdl_detail: the check that failed */
		uint32_t eecn; /* successful receives of HDL_QP_RD: the context that the message
		                  arrived through */
	};
	uint32_t byte_len;
	uint32_t imm; /* or the invalidated key, depending on flags */
	uint32_t qpn;
	uint32_t src_qpn;
	uint32_t flags; /* enum hdl_wc_flags */
	uint16_t pkey_index;
	uint16_t slid; /* datagrams: LID of the sender's node; 0: it has none */
	uint8_t sl;
	uint8_t dlid_path_bits; /* datagrams on the same host: the local LID they were sent to,
	                           counted from the first */
	uint16_t reserved;
};
HDL_STATIC_ASSERT(sizeof(struct hdl_wc) == 48, "a completion is 48 bytes");

/* The check that refused an operation: every check (a) to (g) of MEMMGT figure 15 and (a) to (f) of
 * figure 18 has its own code. Reported in hdl_wc.vendor_err and hdl_event.detail, counted in
 * hdl_counters(). */
enum hdl_detail {
	HDL_DETAIL_NONE,
	HDL_DETAIL_NOT_VALID, /* (a) no such entry, or not valid */
	HDL_DETAIL_TYPE, /* (b) a window for local access, a region where only windows may be used
	                  */
	HDL_DETAIL_PD,   /* (c) the entry belongs to another protection domain */
	HDL_DETAIL_QP,   /* (c) the window is bound for another queue pair */
	HDL_DETAIL_INSTANCE, /* (d) a stale or guessed instance */
	HDL_DETAIL_BOUNDS,   /* (e) outside the range */
	HDL_DETAIL_ACCESS,   /* (f) the right is not granted */
	HDL_DETAIL_BIND,     /* (g) the region does not allow windows */
	/* Table D: a second message to a one-touch entry. Once the entry is registered or bound
	 * again this is _INSTANCE, and _NOT_VALID once it is removed. */
	HDL_DETAIL_TOUCHED,
	HDL_DETAIL_OUT_OF_WINDOW, /* a segment or request whose number may not come now (table D) */
	HDL_DETAIL_GONE,          /* the memory behind the entry was unmapped */
	HDL_DETAIL_MISALIGNED,    /* an atomic on an address that is not a multiple of 8 */
	HDL_DETAIL_BUSY,          /* windows are still bound to the region */
	HDL_DETAIL_PAGES,         /* a page list that does not fit the region */
	HDL_DETAIL_LIMIT,         /* a limit of the adapter, or of the queue pair */
	HDL_DETAIL_ALREADY,       /* the entry is registered or bound already */
	HDL_DETAIL_COUNT
};

/* Limits, chosen when a queue pair is created and returned unchanged, except for max_inline: it
 * becomes the room of one send queue element, which is at least what was requested. */
struct hdl_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline;
};

/* What a failed registration on the send queue does (MEMMGT figure 11). */
enum hdl_register_error {
	HDL_REGISTER_ERROR_DRAIN,    /* option 1: the send queue drains, what is behind is flushed,
	                                also what is posted later; modify SQD to RTS to go on */
	HDL_REGISTER_ERROR_TERMINATE /* option 2: the queue pair goes to the error state and the
	                                peer is told */
};

/* What a queue pair of type HDL_QP_RC, HDL_QP_UC or HDL_QP_UD sends over networks. Both ends must
 * have the same. It makes no difference between programs of one machine. */
enum hdl_packets {
	HDL_PACKETS_DEFAULT, /* cells, if the adapter was opened with cells; else RoCEv2 */
	HDL_PACKETS_ROCEV2,  /* InfiniBand packets in UDP datagrams */
	HDL_PACKETS_CELLS    /* the adapter was opened with cells */
};

struct hdl_qp_init_attr {
	uint32_t type;          /* enum hdl_qp_type */
	struct hdl_cq *send_cq; /* unused for HDL_QP_XRC_TGT */
	struct hdl_cq *recv_cq; /* unused for HDL_QP_XRC_INI and HDL_QP_XRC_TGT */
	struct hdl_srq *srq;    /* or NULL */
	struct hdl_xrcd *xrcd;  /* HDL_QP_XRC_TGT: its domain */
	struct hdl_rdd *rdd;    /* HDL_QP_RD: its domain */
	void *context;
	struct hdl_qp_cap cap;
	bool signal_all;          /* every send request completes, even without HDL_SEND_SIGNALED */
	bool register_on_send;    /* HDL_OP_REGISTER and HDL_OP_REGISTER_SEND are enabled */
	bool remote_windows_only; /* figure 18 check (b): peers may use windows, not regions */
	bool acknowledged;        /* HDL_QP_UD by cells: a send completes when the receiver has
	                             answered */
	uint32_t register_error;  /* enum hdl_register_error */
	uint32_t packets;         /* enum hdl_packets */
	bool iwarp;               /* HDL_QP_RC: what it does on one machine is captured as iWARP */
};

/* The destination of a packet: dgid; or, without a GRH, dlid if that is not 0. dlid is any of the
 * LIDs of its node. */
struct hdl_ah_attr {
	struct hdl_gid dgid;
	uint16_t dlid;
	uint8_t src_path_bits; /* the local LID to send from: less than 2^hdl_limits.lmc */
	uint8_t sgid_index;    /* the source address in a GRH: an index of hdl_gid_query() */
	uint8_t sl;
	uint8_t hop_limit;
	uint8_t traffic_class; /* of IP packets; also chooses the class of service (heddle(7)) */
	uint8_t port_num;
	bool is_global; /* a GRH is sent */
	bool plain;     /* for plain UDP (hdl_qp_open_udp()): only dgid counts */
	uint32_t flow_label;
	/* Cells: the MAC address of the destination; all zero: of whichever port is at dgid. */
	uint8_t dmac[6];
};

enum hdl_qp_attr_mask {
	HDL_QP_STATE = 1 << 0,          /* state: the one to go to */
	HDL_QP_ACCESS = 1 << 1,         /* access: what peers may do through it */
	HDL_QP_PORT = 1 << 2,           /* port_num: 1 */
	HDL_QP_QKEY = 1 << 3,           /* qkey: what datagrams must carry */
	HDL_QP_AV = 1 << 4,             /* ah: where the peer is */
	HDL_QP_PATH_MTU = 1 << 5,       /* path_mtu: payload of a packet */
	HDL_QP_TIMEOUT = 1 << 6,        /* timeout: how long to wait for an answer */
	HDL_QP_RETRY_CNT = 1 << 7,      /* retry_cnt: how often to send again without one */
	HDL_QP_RNR_RETRY = 1 << 8,      /* rnr_retry: how often when the peer has no receive */
	HDL_QP_RQ_PSN = 1 << 9,         /* rq_psn: the peer's first sequence number */
	HDL_QP_MAX_RD_ATOMIC = 1 << 10, /* max_rd_atomic: reads and atomics in flight */
	HDL_QP_MIN_RNR_TIMER = 1 << 11, /* min_rnr_timer: how long a peer waits for a receive */
	HDL_QP_SQ_PSN = 1 << 12,        /* sq_psn: our first sequence number */
	HDL_QP_MAX_DEST_RD_ATOMIC = 1 << 13, /* max_dest_rd_atomic: the same, of the peer */
	HDL_QP_DEST_QPN = 1 << 14,           /* dest_qpn: the peer's queue pair */
	HDL_QP_PKEY_INDEX = 1 << 15,         /* pkey_index: 0 */
	HDL_QP_CUR_STATE = 1 << 16,          /* cur_state: the call fails in another one */
	HDL_QP_ALT_PATH = 1 << 17,           /* alt_ah, alt_pkey_index, alt_port_num, alt_timeout */
	HDL_QP_PATH_MIG_STATE = 1 << 18,     /* path_mig_state */
	HDL_QP_STRIPE = 1 << 19,             /* stripe */
	HDL_QP_ATTR_ALL = (1 << 20) - 1
};

/* What a connection on a network does with its alternate path when the other one fails (IBTA
 * section 17.2.8). */
enum hdl_mig_state {
	HDL_MIG_MIGRATED, /* nothing: it has none, or uses it already */
	HDL_MIG_REARM,    /* it waits for the peer to be ready for it */
	HDL_MIG_ARMED /* either end changes over when its requests are not answered any more, and
	                 the other follows; query only */
};

struct hdl_qp_attr {
	uint32_t state;     /* enum hdl_qp_state */
	uint32_t cur_state; /* what the caller believes the state to be */
	uint32_t access;    /* enum hdl_access: REMOTE_* that peers have through this queue pair */
	uint32_t qkey;
	uint32_t dest_qpn;
	uint32_t rq_psn; /* 24 bits */
	uint32_t sq_psn;
	struct hdl_ah_attr ah;
	/* Bytes: 256, 512, 1024, 2048 or 4096; on networks hdl_limits.mtu at most. */
	uint16_t path_mtu;
	uint16_t pkey_index;
	uint8_t port_num;
	uint8_t timeout;       /* 4.096 us x 2^timeout; 0 waits forever */
	uint8_t retry_cnt;     /* 0 to 7 */
	uint8_t rnr_retry;     /* 0 to 6; 7 retries forever */
	uint8_t min_rnr_timer; /* code of the RNR timer table, 0 to 31 */
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	bool draining;          /* query only: SQD, but requests are still in flight */
	uint8_t path_mig_state; /* enum hdl_mig_state */
	uint8_t alt_port_num;
	uint8_t alt_timeout; /* replaces timeout when the alternate path is in use */
	uint16_t alt_pkey_index;
	struct hdl_ah_attr alt_ah; /* the alternate path */
	uint16_t stripe; /* use both paths at the same time, with this many packets in flight: a
	                    power of two, 16 to HDL_MAX_STRIPE; 0: off */
};

struct hdl_srq_attr {
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t limit; /* raise an event when fewer requests than this are left; 0: never */
};

/* Something happened that no completion tells. */
enum hdl_event_type {
	HDL_EVENT_CQ_OVERRUN, /* @cq lost completions; its queue pairs are in error */
	HDL_EVENT_QP_FATAL,   /* @qp went to the error state without a request of its own failing */
	HDL_EVENT_QP_REQUEST_ERR, /* @qp: the peer's request was malformed */
	HDL_EVENT_QP_ACCESS_ERR,  /* @qp: the peer's request failed a check; see detail */
	HDL_EVENT_COMM_EST,       /* @qp: the first message arrived before RTS */
	HDL_EVENT_SQ_DRAINED,     /* @qp: nothing is in flight any more */
	HDL_EVENT_QP_LAST_WQE,    /* @qp: takes no more from its shared receive queue */
	HDL_EVENT_SRQ_LIMIT,      /* @srq fell below its limit */
	HDL_EVENT_SRQ_ERR,        /* @srq: a request in it could not be used */
	HDL_EVENT_MEMORY_GONE,    /* memory behind @key was unmapped while registered */
	HDL_EVENT_PEER_GONE,      /* the adapter at @gid is no longer there */
	HDL_EVENT_AGENT_CHANGED,  /* another node agent took over; what this adapter holds was made
	                             known to it */
	HDL_EVENT_PATH_MIG,       /* @qp uses its alternate path now */
	HDL_EVENT_PATH_MIG_ERR, /* @qp: the peer changed to a path that is not the alternate one */
	HDL_EVENT_LOST,         /* the event queue overflowed; @count events were dropped */
	HDL_EVENT_TYPE_COUNT
};

struct hdl_event {
	uint32_t type;   /* enum hdl_event_type */
	uint32_t detail; /* enum hdl_detail */
	union {
		struct hdl_qp *qp;
		struct hdl_cq *cq;
		struct hdl_srq *srq;
		struct hdl_key key;
		struct hdl_gid gid;
		uint64_t count;
	} u;
};

/* Which peers are reached over the network. */
enum hdl_wire {
	HDL_WIRE_NONE,   /* nobody: none is open */
	HDL_WIRE_OTHERS, /* who is on no node of this agent */
	HDL_WIRE_ALL     /* everybody (HEDDLE_LOCAL=off) */
};

/* The addresses and limits of an adapter: hdl_adapter_query(). */
struct hdl_limits {
	struct hdl_gid gid; /* the first of gid_count: hdl_gid_query() */
	uint32_t gid_count;
	uint64_t guid; /* of the node and its first adapter: the same for all who are on the node */
	struct hdl_gid ib_gid; /* on a node: the GID of the InfiniBand port, */
	uint16_t lid;          /* its LID, and the LID of the subnet manager; 0: none */
	uint16_t sm_lid;
	uint16_t lmc;  /* the port has 2^lmc LIDs, of which lid is the first (HEDDLE_LMC) */
	uint16_t slot; /* the number of this process on the node */
	uint16_t wire; /* enum hdl_wire: the peers that are reached over the network, */
	uint16_t mtu;  /* and the payload bytes per packet: 256, 512, 1024, 2048 or 4096 */
	/* Bit i: packets leave from hdl_gid_query(i); the first of them is gid. */
	uint32_t wire_gids;
	bool cells; /* networks carry cells: hdl_open_attr.cells */
	uint32_t max_qp;
	uint32_t max_qp_wr;
	uint32_t max_sge;
	uint32_t max_inline;
	uint32_t max_cq;
	uint32_t max_cqe;
	uint32_t max_srq;
	uint32_t max_srq_wr;
	uint32_t max_pd;
	uint32_t max_mr; /* regions and windows together */
	uint32_t max_ah;
	uint32_t max_groups;        /* multicast groups that it has members in or sends to, */
	uint32_t max_group_members; /* and queue pairs of the adapter per group */
	uint32_t max_rd_atomic;
	uint32_t max_peers;
	uint64_t max_message;
	uint64_t max_mr_length;
	uint32_t max_register_pages; /* in one HDL_OP_REGISTER */
};

#define HDL_CM_BYTES 448 /* of a message */

enum hdl_cm_kind {
	HDL_CM_MESSAGE,  /* somebody sent it */
	HDL_CM_RETURNED, /* we sent it, and error says why it did not arrive */
	HDL_CM_GONE,     /* the process guid, slot has ended */
	HDL_CM_MAD,  /* a management datagram came over the wire, from gid; a request for space and
	                port, by options */
	HDL_CM_AGENT /* another node agent took over: what was left with the one before
	                (HDL_CM_WHEN_GONE) is forgotten */
};

/* Which messages a port receives: those to one address family, and to the other as well unless
 * HDL_CM_ONLY is given. HDL_CM_REUSE: other holders that also give HDL_CM_REUSE may share the port;
 * each message reaches one of them. HDL_CM_DEAF: the port has no listener until hdl_cm_listen(). */
enum hdl_cm_option {
	HDL_CM_IPV4 = 1 << 0,  /* for calls to an IPv4 address */
	HDL_CM_IPV6 = 1 << 1,  /* for calls to an IPv6 address */
	HDL_CM_ONLY = 1 << 2,  /* and not for those of the other family */
	HDL_CM_REUSE = 1 << 3, /* others who say so may hold the port too */
	HDL_CM_DEAF = 1 << 6   /* held, but nobody listens yet */
};

/* How a message is sent over the network. */
enum hdl_cm_wire {
	HDL_CM_ON_WIRE = 1, /* now */
	/* When the process has ended, for whatever reason: a DREQ (IBTA 12.6.10). The agent keeps
	 * one DREQ per connection, for up to 4096 connections, until the process itself sends a
	 * DREP or REJ for the connection or receives a DREP. Once sent, the DREQ is repeated every
	 * second until it is answered, 15 times at most. */
	HDL_CM_WHEN_GONE,
	/* A disconnect notice, the last message of the process about a connection, which it does
	 * not repeat itself: a REJ, or a DREQ, which the agent repeats in the same way. If the
	 * process has sent the same DREQ before, the agent does not send it immediately. If the
	 * agent is killed, the next agent gets the notice. A process that closes the adapter or
	 * exits waits until the notice has left the machine. */
	HDL_CM_LAST_WORD
};

/* A message between two connection managers. To a port: to_port, gid (of the node), space and port;
 * otherwise to the process guid, slot. In a received message, guid and slot identify the sender.
 * The two ends agree on the meaning of data. Over the network: a management datagram of 256 bytes
 * to queue pair 1 at the address gid, from (received: to) the local address own. In a datagram that
 * belongs to a connection, the high ten bits of the receiver's number for the connection are the
 * slot of the receiver's process. */
struct hdl_cm_msg {
	uint32_t kind; /* enum hdl_cm_kind; when received */
	int32_t error;
	struct hdl_gid gid;
	struct hdl_gid own; /* over the network; all zero when sent: whichever reaches the peer */
	uint64_t guid;
	uint32_t slot;
	uint16_t space, port;
	uint32_t to_port; /* 1: to the process that holds the port */
	uint32_t on_wire; /* enum hdl_cm_wire; 0: on this machine */
	uint32_t options; /* to a port: HDL_CM_IPV4 or HDL_CM_IPV6, the family of the destination
	                     address; 0: either */
	uint32_t length;
	uint8_t data[HDL_CM_BYTES];
};

/* --- connections over byte streams: hdl_conn_connect() --- */

#define HDL_CONN_PRIVATE 512 /* bytes of private data, four less unless HDL_CONN_REVISION_1 */

/* What an end of a connection asks for beyond the defaults: CRC, no markers, MPA revision 2. */
enum hdl_conn_flag {
	HDL_CONN_NO_CRC = 1 << 0,     /* ask for no CRC; there is one if the peer asks for it */
	HDL_CONN_MARKERS = 1 << 1,    /* ask for markers in what the peer sends */
	HDL_CONN_REVISION_1 = 1 << 2, /* initiator: speak MPA revision 1, without IRD and ORD */
	/* Initiator: do not ask for a peer-to-peer connection. The responder then waits for the
	 * first message, or for a moment, before it sends. */
	HDL_CONN_CLIENT_SERVER = 1 << 3
};

/* What a connection carries. Both ends name the same. */
enum hdl_conn_service {
	HDL_CONN_RDMA_TCP, /* iWARP on TCP: MPA, DDP, RDMAP */
	/* Plain TCP: the peer may be any program that uses a TCP socket. A send is bytes out. What
	 * arrives fills the oldest receive, which completes with the bytes that have come, at least
	 * one; a receive that completes with none is the end of what the peer sends. Other
	 * operations fail with HDL_WC_LOC_QP_OP_ERR. */
	HDL_CONN_TCP,
	/* RDMA on SCTP (RFC 5043) inside UDP port 9899 (RFC 6951): segments are placed in the order
	 * in which they arrive. Of the flags only HDL_CONN_REVISION_1 counts, which leaves IRD and
	 * ORD to the programs. Of the traffic class, the two lowest bits are not used. */
	HDL_CONN_RDMA_SCTP,
	HDL_CONN_SERVICE_COUNT
};

/* How a queue pair is connected. Zero in every field selects the defaults. */
struct hdl_conn_param {
	uint32_t flags; /* enum hdl_conn_flag */
	uint16_t ird;   /* reads and atomics of the peer that are answered at a time */
	uint16_t ord;   /* reads and atomics of ours that may be open */
	/* Of the IP packets that we send; also chooses the class of service (heddle(7)). A
	 * responder that gives 0 answers in the class of the initiator; 1 is the normal one. */
	uint8_t traffic_class;
	/* enum hdl_conn_service, of an initiator; a responder has that of its listener. */
	uint8_t service;
	uint8_t reserved[2];
	uint32_t private_bytes;
	const void *private_data;
};

enum hdl_conn_event_type {
	HDL_CONN_REQUEST,     /* a peer wants to connect: accept or reject @conn */
	HDL_CONN_ESTABLISHED, /* the queue pair is in RTS */
	HDL_CONN_REJECTED,    /* the peer's program, or its MPA, said no */
	HDL_CONN_FAILED,      /* it was not established; @error says why */
	HDL_CONN_CLOSED       /* it has ended, by either side; @error: not in order */
};

struct hdl_conn_event {
	uint32_t type; /* enum hdl_conn_event_type */
	/* 0 or a negative error: -HDL_ECONNREFUSED nobody listens there; -HDL_ETIMEDOUT the peer
	 * did not answer; -HDL_EPERM the queue pair was not in INIT; -HDL_EIO the connection broke,
	 * or the peer does not speak MPA, or DDP on SCTP. */
	int32_t error;
	struct hdl_conn *conn;
	struct hdl_listener *listener; /* of HDL_CONN_REQUEST */
	void *context;                 /* of the connection; of HDL_CONN_REQUEST: the listener's */
	struct hdl_gid own, peer;      /* addresses; IPv4 mapped into IPv6 */
	uint16_t own_port, peer_port;
	/* HDL_CONN_REQUEST: what the peer offers, to be answered with at most as much, ird with its
	 * ORD; 0xffff: it did not say. HDL_CONN_ESTABLISHED: what is in force. */
	uint16_t ird, ord;
	uint32_t private_bytes;
	uint8_t private_data[HDL_CONN_PRIVATE];
};

#ifdef __cplusplus
}
#endif
#endif
