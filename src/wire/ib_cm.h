/* The messages of communication management (IBTA volume 1, 12.6 and 12.11), one per management
 * datagram, and what IP services add to their requests (annex A11).
 *
 * 	REQ --> <-- REP, RTU -->      a connection is made          DREQ --> <-- DREP   and ended
 * 	        <-- MRA               it takes longer      LAP  --> <-- APR    gets another path
 * 	        <-- REJ               no                   SIDR_REQ --> <-- SIDR_REP   who serves?
 *
 * A table in ib_cm.c lists where each field is. Private data always fills its room; the
 * applications agree on how much of it is meaningful. Reserved bits are sent as zero and ignored.
 */
#ifndef WIRE_IB_CM_H
#define WIRE_IB_CM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/ib_headers.h"
#include "wire/mad.h"

#define IB_CM_CLASS_VERSION 2u

/* How fast we answer and want to be answered, 4.096 us * 2^n: about one second; and the largest
 * retry count that a request can name. */
#define IB_CM_RESPONSE_TIMEOUT 18u
#define IB_CM_MAX_RETRIES      15u

/* 4.096 us * 2^exponent (12.7). */
uint64_t ib_cm_time_ns(uint8_t exponent);

/* Attribute identifiers, table 105. */
enum ib_cm_kind {
	IB_CM_REQ = 0x10,
	IB_CM_MRA,
	IB_CM_REJ,
	IB_CM_REP,
	IB_CM_RTU,
	IB_CM_DREQ,
	IB_CM_DREP,
	IB_CM_SIDR_REQ,
	IB_CM_SIDR_REP,
	IB_CM_LAP,
	IB_CM_APR,
	IB_CM_KIND_END
};

#define IB_CM_REQ_PRIVATE_BYTES      92u
#define IB_CM_MRA_PRIVATE_BYTES      222u
#define IB_CM_REJ_PRIVATE_BYTES      148u
#define IB_CM_REP_PRIVATE_BYTES      196u
#define IB_CM_RTU_PRIVATE_BYTES      224u
#define IB_CM_DREQ_PRIVATE_BYTES     220u
#define IB_CM_DREP_PRIVATE_BYTES     224u
#define IB_CM_LAP_PRIVATE_BYTES      168u
#define IB_CM_APR_PRIVATE_BYTES      148u
#define IB_CM_SIDR_REQ_PRIVATE_BYTES 216u
#define IB_CM_SIDR_REP_PRIVATE_BYTES 136u
#define IB_CM_INFO_BYTES             72u

/* The message that an MRA or a REJ refers to. */
enum ib_cm_about { IB_CM_ABOUT_REQ, IB_CM_ABOUT_REP, IB_CM_ABOUT_OTHER };

/* Reasons of a REJ (table 109), as far as they are used. */
enum ib_cm_reason {
	IB_CM_NO_QP = 1,
	IB_CM_NO_RESOURCES = 3,
	IB_CM_TIMEOUT = 4,
	IB_CM_UNSUPPORTED = 5,
	IB_CM_INVALID_COMM_ID = 6,
	IB_CM_INVALID_SERVICE_ID = 8,
	IB_CM_INVALID_TRANSPORT = 9,
	IB_CM_STALE_CONNECTION = 10,
	IB_CM_INVALID_PATH = 13,
	IB_CM_CONSUMER = 28
};

/* Status of a SIDR_REP (12.11.2). */
enum ib_cm_sidr_status {
	IB_CM_SIDR_OK,
	IB_CM_SIDR_UNSUPPORTED,
	IB_CM_SIDR_REJECT,
	IB_CM_SIDR_NO_QP,
	IB_CM_SIDR_REDIRECT,
	IB_CM_SIDR_VERSION
};

enum ib_cm_transport { IB_CM_RC, IB_CM_UC, IB_CM_RD, IB_CM_EXTENDED };

/* A path between two ports, as the sender of the message sees it. */
struct ib_cm_path {
	uint16_t local_lid, remote_lid;
	uint8_t local_gid[IB_GID_BYTES], remote_gid[IB_GID_BYTES];
	uint32_t flow_label;
	uint8_t packet_rate;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t sl;
	uint8_t subnet_local;
	uint8_t ack_timeout; /* 4.096 us * 2^n */
};

struct ib_cm_req {
	uint32_t local_id;
	uint64_t service_id;
	uint64_t ca_guid;
	uint32_t qkey, qpn;
	uint8_t responder_resources;
	uint32_t local_eecn;
	uint8_t initiator_depth;
	uint32_t remote_eecn;
	uint8_t remote_response_timeout; /* how fast the receiver should answer, 4.096 us * 2^n */
	uint8_t transport;               /* enum ib_cm_transport */
	uint8_t flow_control;
	uint32_t psn; /* first PSN that the receiver of the message is to send; in a REP too */
	uint8_t local_response_timeout; /* how fast the sender will answer */
	uint8_t retry_count;
	uint16_t pkey;
	uint8_t mtu; /* 1: 256 ... 5: 4096 */
	uint8_t rdc_exists;
	uint8_t rnr_retry_count;
	uint8_t max_retries;
	uint8_t srq;
	uint8_t extended_transport; /* 1: XRC */
	struct ib_cm_path primary, alternate;
	uint8_t sap_supported;
	uint8_t private_data[IB_CM_REQ_PRIVATE_BYTES];
};

struct ib_cm_mra {
	uint32_t local_id, remote_id;
	uint8_t about;           /* enum ib_cm_about */
	uint8_t service_timeout; /* 4.096 us * 2^n */
	uint8_t private_data[IB_CM_MRA_PRIVATE_BYTES];
};

struct ib_cm_rej {
	uint32_t local_id, remote_id; /* local_id 0: the sender of the REJ has none */
	uint8_t about;                /* enum ib_cm_about */
	uint8_t info_bytes;
	uint16_t reason;
	uint8_t info[IB_CM_INFO_BYTES];
	uint8_t private_data[IB_CM_REJ_PRIVATE_BYTES];
};

struct ib_cm_rep {
	uint32_t local_id, remote_id;
	uint32_t qkey, qpn, eecn, psn;
	uint8_t responder_resources, initiator_depth;
	uint8_t target_ack_delay;
	uint8_t failover;
	uint8_t flow_control;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint64_t ca_guid;
	uint8_t private_data[IB_CM_REP_PRIVATE_BYTES];
};

struct ib_cm_rtu { /* DREP too */
	uint32_t local_id, remote_id;
	uint8_t private_data[IB_CM_RTU_PRIVATE_BYTES];
};

struct ib_cm_dreq {
	uint32_t local_id, remote_id;
	uint32_t remote_qpn;
	uint8_t private_data[IB_CM_DREQ_PRIVATE_BYTES];
};

struct ib_cm_lap {
	uint32_t local_id, remote_id;
	uint32_t remote_qpn;
	uint8_t remote_response_timeout;
	struct ib_cm_path alternate;
	uint8_t private_data[IB_CM_LAP_PRIVATE_BYTES];
};

struct ib_cm_apr {
	uint32_t local_id, remote_id;
	uint8_t info_bytes;
	uint8_t status;
	uint8_t info[IB_CM_INFO_BYTES];
	uint8_t private_data[IB_CM_APR_PRIVATE_BYTES];
};

struct ib_cm_sidr_req {
	uint32_t request_id;
	uint16_t pkey;
	uint64_t service_id;
	uint8_t private_data[IB_CM_SIDR_REQ_PRIVATE_BYTES];
};

struct ib_cm_sidr_rep {
	uint32_t request_id;
	uint8_t status; /* enum ib_cm_sidr_status */
	uint8_t info_bytes;
	uint32_t qpn;
	uint64_t service_id;
	uint32_t qkey;
	uint8_t info[IB_CM_INFO_BYTES];
	uint8_t private_data[IB_CM_SIDR_REP_PRIVATE_BYTES];
};

struct ib_cm_message {
	enum ib_cm_kind kind;
	uint64_t transaction_id;
	union {
		struct ib_cm_req req;
		struct ib_cm_mra mra;
		struct ib_cm_rej rej;
		struct ib_cm_rep rep;
		struct ib_cm_rtu rtu;
		struct ib_cm_dreq dreq;
		struct ib_cm_rtu drep;
		struct ib_cm_lap lap;
		struct ib_cm_apr apr;
		struct ib_cm_sidr_req sidr_req;
		struct ib_cm_sidr_rep sidr_rep;
	} u;
};

enum ib_cm_verdict {
	IB_CM_OK,
	IB_CM_NO_MAD,    /* not 256 bytes, or another base version */
	IB_CM_NO_CM,     /* another class, version or method */
	IB_CM_NO_MESSAGE /* an unknown attribute */
};

/* Encode @message into MAD_BYTES. Values that are too large for their field lose their high bits.
 */
void ib_cm_encode(const struct ib_cm_message *message, uint8_t *out);
enum ib_cm_verdict ib_cm_decode(struct ib_cm_message *message, const uint8_t *in, size_t bytes);

/* The addressee of a message that carries @remote_id: MRA, REJ, REP, RTU, DREQ, DREP, LAP, APR,
 * SIDR_REP. False for REQ and SIDR_REQ, which go to the server of *service_id. */
bool ib_cm_addressee(const struct ib_cm_message *message, uint32_t *remote_id,
                     uint64_t *service_id);

/* The answer to @message from a node that does not know the connection that it refers to, or does
 * not offer the service that it asks for; @reason applies to requests. False: there is no answer.
 */
bool ib_cm_refuse(const struct ib_cm_message *message, enum ib_cm_reason reason,
                  struct ib_cm_message *answer);

/* Service ids of IP services (annex A11.2). @space is RDMA_PS_TCP (0x106) and so on: a prefix, and
 * the protocol below it. */
uint64_t ib_cm_service(uint16_t space, uint16_t port);
/* False: not an IP service. */
bool ib_cm_service_split(uint64_t service_id, uint16_t *space, uint16_t *port);

/* What precedes the private data in requests of IP services (annex A11.3). IPv4 addresses are in
 * the last four bytes. */
#define IB_CM_IP_BYTES 36u

struct ib_cm_ip {
	uint8_t version; /* major and minor; 0 */
	uint8_t family;  /* 4, 6 */
	uint16_t port;   /* of the sender */
	uint8_t src[16], dst[16];
};

void ib_cm_ip_encode(const struct ib_cm_ip *ip, uint8_t *out);
/* False: another major version, or neither IPv4 nor IPv6. */
bool ib_cm_ip_decode(struct ib_cm_ip *ip, const uint8_t *in);

#endif
