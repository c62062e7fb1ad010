/* The headers of InfiniBand packets (IBTA volume 1, section 5.2 and chapters 7 to 9), one structure
 * each, fields in host byte order.
 *
 * Every bit on the wire has a field, including the reserved ones (resv...): encoding what was
 * decoded gives the same bytes. Senders set them to zero, receivers ignore them. The functions are
 * total: the caller has made sure that X_BYTES bytes are available, and any values decode.
 * ib_packet.c checks which values are valid. Encoding takes the low bits of a field that is wider
 * than on the wire. */
#ifndef WIRE_IB_HEADERS_H
#define WIRE_IB_HEADERS_H

#include <stdbool.h>
#include <stdint.h>

#define IB_LRH_BYTES       8u
#define IB_RWH_BYTES       4u
#define IB_GRH_BYTES       40u
#define IB_BTH_BYTES       12u
#define IB_RDETH_BYTES     4u
#define IB_DETH_BYTES      8u
#define IB_XRCETH_BYTES    4u
#define IB_RETH_BYTES      16u
#define IB_ATOMICETH_BYTES 28u
#define IB_AETH_BYTES      4u
#define IB_ATOMICACK_BYTES 8u
#define IB_IMMDT_BYTES     4u
#define IB_IETH_BYTES      4u
#define IB_CNP_BYTES       16u
#define IB_ICRC_BYTES      4u
#define IB_VCRC_BYTES      2u
#define IB_GID_BYTES       16u
#define IB_GRH_NEXT_HEADER 0x1bu /* an IBA transport follows (section 8.3) */
#define IB_PSN_MASK        0xffffffu
#define IB_QPN_MASK        0xffffffu

/* LRH link next header (section 7.7). */
enum ib_lnh { IB_LNH_RAW = 0, IB_LNH_IPV6 = 1, IB_LNH_LOCAL = 2, IB_LNH_GLOBAL = 3 };

/* Local route header (section 7.7). */
struct ib_lrh {
	uint8_t vl;      /* 4 bits */
	uint8_t version; /* 4 bits */
	uint8_t sl;      /* 4 bits */
	uint8_t resv2;   /* 2 bits */
	uint8_t lnh;     /* 2 bits, enum ib_lnh */
	uint8_t resv5;   /* 5 bits */
	uint16_t dlid;
	uint16_t length_words; /* 11 bits: 4-byte words from the LRH up to the VCRC */
	uint16_t slid;
};

/* Raw header (section 5.3): what follows an LRH with IB_LNH_RAW. */
struct ib_rwh {
	uint16_t resv16;
	uint16_t ethertype;
};

/* Global route header (section 8.3). */
struct ib_grh {
	uint8_t version; /* 4 bits, 6 */
	uint8_t traffic_class;
	uint32_t flow_label; /* 20 bits */
	uint16_t payload_bytes;
	uint8_t next_header;
	uint8_t hop_limit;
	uint8_t sgid[IB_GID_BYTES];
	uint8_t dgid[IB_GID_BYTES];
};

/* Base transport header (section 9.2). */
struct ib_bth {
	uint8_t opcode;
	bool solicited;
	bool migreq;
	uint8_t pad_bytes; /* 2 bits */
	uint8_t version;   /* 4 bits */
	uint16_t pkey;
	bool fecn;
	bool becn;
	/* Together with fecn and becn the byte resv8a, which the ICRC does not cover. */
	uint8_t resv6;
	uint32_t dest_qp; /* 24 bits */
	bool ack_request;
	uint8_t resv7;
	uint32_t psn; /* 24 bits */
};

/* Reliable datagram extended transport header (section 9.3). */
struct ib_rdeth {
	uint8_t resv8;
	uint32_t ee_context; /* 24 bits */
};

/* Datagram extended transport header (section 9.3). */
struct ib_deth {
	uint32_t qkey;
	uint8_t resv8;
	uint32_t src_qp; /* 24 bits */
};

/* XRC extended transport header (annex A14). */
struct ib_xrceth {
	uint8_t resv8;
	uint32_t srq; /* 24 bits */
};

/* RDMA extended transport header (section 9.3). */
struct ib_reth {
	uint64_t addr;
	uint32_t rkey;
	uint32_t length_bytes;
};

/* Atomic extended transport header (section 9.3). */
struct ib_atomiceth {
	uint64_t addr;
	uint32_t rkey;
	uint64_t swap_or_add;
	uint64_t compare;
};

/* Acknowledge extended transport header (section 9.3). */
struct ib_aeth {
	uint8_t syndrome;
	uint32_t msn; /* 24 bits */
};

/* Atomic acknowledge extended transport header (section 9.3): the original value. */
struct ib_atomicack {
	uint64_t original;
};

/* Immediate data (section 5.2): bytes of the application, not a number; stored as if big-endian. */
struct ib_immdt {
	uint32_t data;
};

/* Invalidate extended transport header (section 9.3). */
struct ib_ieth {
	uint32_t rkey;
};

/* Congestion notification packet (annex A17.9.3): the bytes behind its BTH. */
struct ib_cnp {
	uint8_t resv128[IB_CNP_BYTES];
};

/* The kinds of AETH syndrome (section 9.7.5): bits 6 and 5. Bit 7 is reserved: if it is set, so is
 * the kind. */
enum ib_aeth_kind { IB_AETH_ACK, IB_AETH_RNR_NAK, IB_AETH_RESERVED, IB_AETH_NAK };

/* NAK codes (section 9.7.5): bits 4 to 0 of a syndrome of kind IB_AETH_NAK. */
enum ib_nak_code {
	IB_NAK_PSN_SEQUENCE_ERROR = 0,
	IB_NAK_INVALID_REQUEST = 1,
	IB_NAK_REMOTE_ACCESS_ERROR = 2,
	IB_NAK_REMOTE_OPERATIONAL_ERROR = 3,
	IB_NAK_INVALID_RD_REQUEST = 4
};

#define IB_AETH_NO_CREDITS \
	31u /* an ACK that does not report credits (section 9.7.7, end-to-end flow control) */

static inline enum ib_aeth_kind ib_aeth_kind(uint8_t syndrome)
{
	return syndrome & 0x80 ? IB_AETH_RESERVED : (enum ib_aeth_kind)(syndrome >> 5 & 3);
}

/* The credit count, timer code or NAK code. */
static inline uint8_t ib_aeth_value(uint8_t syndrome)
{
	return syndrome & 0x1f;
}

static inline uint8_t ib_aeth_syndrome(enum ib_aeth_kind kind, uint8_t value)
{
	return (uint8_t)((unsigned)kind << 5 | (value & 0x1fu));
}

void ib_lrh_encode(const struct ib_lrh *h, uint8_t *out);
void ib_lrh_decode(struct ib_lrh *h, const uint8_t *in);
void ib_rwh_encode(const struct ib_rwh *h, uint8_t *out);
void ib_rwh_decode(struct ib_rwh *h, const uint8_t *in);
void ib_grh_encode(const struct ib_grh *h, uint8_t *out);
void ib_grh_decode(struct ib_grh *h, const uint8_t *in);
void ib_bth_encode(const struct ib_bth *h, uint8_t *out);
void ib_bth_decode(struct ib_bth *h, const uint8_t *in);
void ib_rdeth_encode(const struct ib_rdeth *h, uint8_t *out);
void ib_rdeth_decode(struct ib_rdeth *h, const uint8_t *in);
void ib_deth_encode(const struct ib_deth *h, uint8_t *out);
void ib_deth_decode(struct ib_deth *h, const uint8_t *in);
void ib_xrceth_encode(const struct ib_xrceth *h, uint8_t *out);
void ib_xrceth_decode(struct ib_xrceth *h, const uint8_t *in);
void ib_reth_encode(const struct ib_reth *h, uint8_t *out);
void ib_reth_decode(struct ib_reth *h, const uint8_t *in);
void ib_atomiceth_encode(const struct ib_atomiceth *h, uint8_t *out);
void ib_atomiceth_decode(struct ib_atomiceth *h, const uint8_t *in);
void ib_aeth_encode(const struct ib_aeth *h, uint8_t *out);
void ib_aeth_decode(struct ib_aeth *h, const uint8_t *in);
void ib_atomicack_encode(const struct ib_atomicack *h, uint8_t *out);
void ib_atomicack_decode(struct ib_atomicack *h, const uint8_t *in);
void ib_immdt_encode(const struct ib_immdt *h, uint8_t *out);
void ib_immdt_decode(struct ib_immdt *h, const uint8_t *in);
void ib_ieth_encode(const struct ib_ieth *h, uint8_t *out);
void ib_ieth_decode(struct ib_ieth *h, const uint8_t *in);
void ib_cnp_encode(const struct ib_cnp *h, uint8_t *out);
void ib_cnp_decode(struct ib_cnp *h, const uint8_t *in);

#endif
