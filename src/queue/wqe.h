/* The content of a work queue element: a work request, copied and converted for the adapter. */
#ifndef QUEUE_WQE_H
#define QUEUE_WQE_H

#include <stddef.h>
#include <stdint.h>

#include <heddle/types.h>

enum wqe_state {
	WQE_READY, /* to be executed, for the first time or again */
	WQE_SENT,  /* the peer has it; an answer is expected */
	WQE_DONE,  /* finished; completes once everything before it has */
	WQE_TOLD,  /* has completed: msn is the number of its completion (reclaim.h) */
	WQE_SILENT /* finished without a completion */
};

/* Facts about a request that its flags do not express. */
enum wqe_mark {
	/* The first half is done: the data of WRITE_IMM is in place, the region of REGISTER_SEND
	 * is valid, the time of DELAY is running. */
	WQE_PREPARED = 1 << 0,
	/* An RDMA operation that the target executes (touch control, no direct access). */
	WQE_BY_TARGET = 1 << 1,
	WQE_LOOKED = 1 << 2,   /* an RDMA operation that has already found the target not ready */
	WQE_BY_VALUE = 1 << 3, /* a read whose data comes through the lane */
	WQE_PARTIAL = 1 << 4,  /* sent, except for the parts from offset on */
	/* Sent by a context itself: tells the peer to expect the PSN behind it. */
	WQE_RESYNC = 1 << 5,
	/* An RDMA operation of which we have copied everything before offset. */
	WQE_COPYING = 1 << 6
};

struct wqe_send {
	uint64_t wr_id;
	uint8_t opcode; /* enum hdl_opcode */
	uint8_t flags;  /* enum hdl_send_flags */
	uint8_t num_sge;
	uint8_t state; /* enum wqe_state */
	union {
		uint32_t imm; /* or the key to invalidate */
		struct {
			/* Requests sent for it so far; repeated ones count once. */
			uint32_t requests : 27;
			/* On the wire, each request ends at a multiple of 2 to this packets. */
			uint32_t bits : 5;
		} read;
	};
	uint32_t length;
	/* Message sequence number, assigned when first sent; on the wire the PSN of the first
	 * packet. */
	uint32_t msn;
	uint8_t status;     /* enum hdl_wc_status, once finished */
	uint8_t vendor_err; /* enum hdl_detail */
	uint8_t marks;      /* enum wqe_mark */
	uint8_t numbered;   /* msn has been assigned */
	uint32_t offset;    /* how much has been sent in parts, or how much of a read has come */
	union {
		/* REGISTER: where the page list ends in the queue pair's list store. */
		uint32_t list_end;
		/* READ on the wire: how much of it has come; offset is how much has been
		 * requested. */
		uint32_t got;
	};
	uint32_t remote_srq; /* XRC initiator only */
	union {
		struct {
			uint64_t addr;
			struct hdl_key key;
			/* READ on the wire: */
			uint32_t cut : 27;     /* requests before this packet end differently: */
			uint32_t cut_bits : 5; /* at a multiple of 2 to this packets */
		} rdma;
		struct {
			uint64_t addr;
			struct hdl_key key;
			uint64_t compare_add;
			uint64_t swap;
		} atomic;
		struct {
			uint64_t addr; /* as in atomic */
			struct hdl_key key;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t eecn;
			uint32_t qpn;
			uint32_t qkey;
		} rd;
		struct {
			uint32_t link;  /* which peer */
			uint32_t epoch; /* which of the peers that have had this number */
			uint32_t qpn;
			uint32_t qkey;
			uint32_t flow_label;
			uint8_t sl;
			uint8_t traffic_class;
			uint8_t hop_limit;
			uint8_t is_global;
			uint8_t dgid[16];
			uint8_t sgid_index; /* index into engine.gids */
			uint8_t src_path_bits;
			uint16_t dlid;   /* 0: by dgid */
			uint8_t dmac[6]; /* cells */
		} ud;
		struct {
			struct hdl_key window;
			struct hdl_key region;
			uint32_t access;
			uint32_t type; /* enum hdl_mw_type of the window */
			uint64_t addr;
			uint64_t length;
		} bind;
		struct {
			struct hdl_key key;
			uint32_t access;
			uint64_t iova;
			uint64_t length;
			uint64_t first_offset;
			const uint64_t *pages;
			uint32_t num_pages;
			uint8_t page_shift;
		} reg;
		struct {
			uint64_t ns;
		} delay;
	} u;
	/* followed by num_sge pieces or, with HDL_SEND_INLINE, the data */
};

_Static_assert(offsetof(struct wqe_send, u.rdma.key) == offsetof(struct wqe_send, u.atomic.key),
               "an atomic's address and key are read as those of any RDMA request");
_Static_assert(offsetof(struct wqe_send, u.rd.swap) == offsetof(struct wqe_send, u.atomic.swap),
               "a reliable datagram's are too");

struct wqe_recv {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t told_at; /* once completed: the number of its completion (reclaim.h) */
	struct hdl_sge sge[];
};

static inline struct hdl_sge *wqe_sge(struct wqe_send *wqe)
{
	return (struct hdl_sge *)(void *)(wqe + 1);
}

static inline unsigned char *wqe_inline(struct wqe_send *wqe)
{
	return (unsigned char *)(wqe + 1);
}

/* Fill the fields that every request has; the others depend on the operation. */
static inline void wqe_begin(struct wqe_send *wqe, const struct hdl_send_wr *wr, uint32_t length)
{
	wqe->wr_id = wr->wr_id;
	wqe->opcode = (uint8_t)wr->opcode;
	wqe->flags = (uint8_t)wr->flags;
	wqe->num_sge = (uint8_t)wr->num_sge;
	wqe->state = WQE_READY;
	wqe->imm = wr->imm;
	wqe->length = length;
	wqe->status = wqe->vendor_err = wqe->marks = wqe->numbered = 0;
	wqe->offset = 0;
}

/* Distance between elements for the given limits. */
static inline uint32_t wqe_send_stride(uint32_t max_sge, uint32_t max_inline)
{
	size_t tail = max_sge * sizeof(struct hdl_sge);
	if (tail < max_inline)
		tail = max_inline;
	return (uint32_t)((sizeof(struct wqe_send) + tail + 31) & ~(size_t)31);
}

/* How much inline data an element can hold with these limits, including what rounding up leaves. */
static inline uint32_t wqe_inline_room(uint32_t max_sge, uint32_t max_inline)
{
	return wqe_send_stride(max_sge, max_inline) - (uint32_t)sizeof(struct wqe_send);
}

static inline uint32_t wqe_recv_stride(uint32_t max_sge)
{
	return (uint32_t)(sizeof(struct wqe_recv) + max_sge * sizeof(struct hdl_sge));
}

#endif
