/* The format of a lane between two adapters of one machine: the same-host path. A frame is a header
 * of 32 bytes, then a body that depends on its kind. Everything is in host byte order; nothing here
 * leaves the machine. The reader copies the header (and the fixed part of the body) once and checks
 * only that copy, because the writer may change the lane at any time. */
#ifndef TRANSPORT_FRAME_H
#define TRANSPORT_FRAME_H

#include <stdint.h>

#include <heddle/limits.h>
#include <heddle/types.h>

enum frame_kind {
	FRAME_SEND = 1, /* body: the data, or with FRAME_BY_REFERENCE the sender's pieces */
	FRAME_NOTICE,   /* a write with immediate data whose data is already in place; no body */
	FRAME_WRITE,    /* body: frame_target, then as for FRAME_SEND; the target places the data */
	FRAME_READ,     /* body: frame_target, then the initiator's pieces, which the target fills;
	               without pieces it sends FRAME_DATA */
	FRAME_ATOMIC,   /* body: frame_atomic */
	FRAME_ANSWER,   /* body: frame_answer; acknowledges everything up to msn */
	FRAME_DATAGRAM, /* body: frame_datagram, then the data */
	FRAME_DATA,     /* body: data for the read with number msn; the last such frame is also its
	               answer */
	FRAME_CLOSE,    /* the sender's queue pair failed: imm is an hdl_event_type, length an
	                hdl_detail; FRAME_IMM: its request also needed a receive */
	FRAME_BURST,    /* body: num_sge messages of kind FRAME_SEND, numbered from msn on, each a
	                frame_item and its data */
	FRAME_CI,       /* body: CI packets (wire/ci.h) */
	FRAME_PACKET,   /* body: an InfiniBand packet without its ICRC (reliable datagrams) */
	FRAME_KIND_COUNT
};

enum frame_flags {
	FRAME_SOLICITED = 1 << 0,
	FRAME_IMM = 1 << 1,
	FRAME_INVALIDATE = 1 << 2,
	FRAME_BY_REFERENCE = 1 << 3, /* the body refers to memory of the sender by its keys */
	FRAME_UNRELIABLE =
	        1 << 4, /* from a UC queue pair: never refused, and answered only to free what it
	                 refers to */
	FRAME_ADD = 1 << 5,  /* atomic: fetch-and-add, not compare-and-swap */
	FRAME_ACKS = 1 << 6, /* also an ANSWER_ACK for everything up to message ack of the other
	                 direction */
	FRAME_MORE = 1 << 7  /* a part of the message, starting at offset; more parts follow */
};

struct frame {
	uint8_t kind;
	uint8_t flags;
	uint8_t num_sge;
	uint8_t reserved;
	uint32_t to_qpn;
	uint32_t from_qpn;
	uint32_t msn;
	uint32_t length; /* of the message */
	uint32_t imm;    /* or the key to invalidate */
	uint32_t ack; /* from an XRC initiator, which owes no answers: the shared receive queue that
	                it addresses */
	uint32_t offset; /* where the body's data belongs in the message */
};
_Static_assert(sizeof(struct frame) == 32, "see the comment at the top");

struct frame_target {
	uint64_t addr;
	struct hdl_key key;
	uint32_t reserved;
};

struct frame_atomic {
	uint64_t addr;
	uint64_t compare_add;
	uint64_t swap;
	struct hdl_key key;
	uint32_t reserved;
};

/* How the responder answers. */
enum answer {
	ANSWER_ACK,
	ANSWER_VALUE,    /* an ACK, with the result of the atomic with number msn */
	ANSWER_RNR,      /* there was no receive: wait, then repeat from msn on; detail is the timer
	               code */
	ANSWER_SEQUENCE, /* a later msn than the expected one arrived: repeat from msn on */
	ANSWER_INVALID,  /* NAK: invalid request */
	ANSWER_ACCESS,   /* NAK: remote access error */
	ANSWER_OPERATION, /* NAK: remote operational error */
	ANSWER_OWN_LIST,  /* the requester's own pieces failed a check or no longer exist */
	ANSWER_COUNT
};

struct frame_answer {
	uint32_t answer; /* enum answer */
	uint32_t detail; /* enum hdl_detail, or the RNR timer code */
	uint64_t value;  /* the value that an atomic found */
};

struct frame_item {
	uint16_t length; /* of the data that follows, padded to a multiple of 8 */
	uint8_t flags;   /* FRAME_SOLICITED, FRAME_IMM */
	uint8_t reserved;
	uint32_t imm;
};
_Static_assert(sizeof(struct frame_item) == 8, "the data that follows is aligned");

struct frame_datagram {
	uint32_t qkey;
	uint32_t flow_label;
	uint8_t sl;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t is_global;
	uint8_t sgid[16];
	uint8_t dgid[16];
	uint16_t slid;
	uint16_t dlid; /* 0: use dgid */
};

/* Data up to this length travels in the lane. Longer messages are pulled by the receiver or, if it
 * cannot access the sender's memory, travel in parts. */
#define FRAME_MAX_DATA  4096u
#define FRAME_MAX_PART  16384u
#define FRAME_MAX_BYTES (sizeof(struct frame) + sizeof(struct frame_target) + FRAME_MAX_PART)
/* An InfiniBand packet: the largest payload, and room for every header. */
#define FRAME_MAX_PACKET (4096u + 128u)
/* Messages up to this length that are posted together share frames of up to this many bytes. */
#define FRAME_BURST_ITEM  128u
#define FRAME_BURST_BYTES 1024u
_Static_assert(FRAME_MAX_DATA >= HDL_UD_MTU, "datagrams always travel in the lane");
_Static_assert(FRAME_MAX_DATA >= HDL_MAX_SGE * sizeof(struct hdl_sge), "so do lists of pieces");

#endif
