/* Messages of communication management; see ib_cm.h. */
#include "wire/ib_cm.h"

#include "wire/be.h"

#include <assert.h>
#include <string.h>

/* One field of a message. Numbers start at a bit, counted, as in the specification, from the top of
 * byte 0 behind the header of the datagram. Fields that are copied as bytes have bits == 0. */
struct field {
	uint16_t member; /* where it is in struct ib_cm_message */
	uint16_t size;   /* and how long it is there */
	uint16_t bit;
	uint8_t bits;
};

#define NUMBER(member, byte, from_bit, width)                                                     \
	{                                                                                         \
		offsetof(struct ib_cm_message, u.member),                                         \
		        sizeof(((struct ib_cm_message *)0)->u.member), (byte)*8 + from_bit, width \
	}
#define BYTES(member, byte) NUMBER(member, byte, 0, 0)
#define IDS(message)        NUMBER(message.local_id, 0, 0, 32), NUMBER(message.remote_id, 4, 0, 32)

/* The two paths of a REQ (table 106). */
#define PATH(member, byte)                                                                     \
	NUMBER(member.local_lid, byte, 0, 16), NUMBER(member.remote_lid, byte + 2, 0, 16),     \
	        BYTES(member.local_gid, byte + 4), BYTES(member.remote_gid, byte + 20),        \
	        NUMBER(member.flow_label, byte + 36, 0, 20),                                   \
	        NUMBER(member.packet_rate, byte + 39, 2, 6),                                   \
	        NUMBER(member.traffic_class, byte + 40, 0, 8),                                 \
	        NUMBER(member.hop_limit, byte + 41, 0, 8), NUMBER(member.sl, byte + 42, 0, 4), \
	        NUMBER(member.subnet_local, byte + 42, 4, 1),                                  \
	        NUMBER(member.ack_timeout, byte + 43, 0, 5)

static const struct field req_fields[] = {
        NUMBER(req.local_id, 0, 0, 32),
        NUMBER(req.service_id, 8, 0, 64),
        NUMBER(req.ca_guid, 16, 0, 64),
        NUMBER(req.qkey, 28, 0, 32),
        NUMBER(req.qpn, 32, 0, 24),
        NUMBER(req.responder_resources, 35, 0, 8),
        NUMBER(req.local_eecn, 36, 0, 24),
        NUMBER(req.initiator_depth, 39, 0, 8),
        NUMBER(req.remote_eecn, 40, 0, 24),
        NUMBER(req.remote_response_timeout, 43, 0, 5),
        NUMBER(req.transport, 43, 5, 2),
        NUMBER(req.flow_control, 43, 7, 1),
        NUMBER(req.psn, 44, 0, 24),
        NUMBER(req.local_response_timeout, 47, 0, 5),
        NUMBER(req.retry_count, 47, 5, 3),
        NUMBER(req.pkey, 48, 0, 16),
        NUMBER(req.mtu, 50, 0, 4),
        NUMBER(req.rdc_exists, 50, 4, 1),
        NUMBER(req.rnr_retry_count, 50, 5, 3),
        NUMBER(req.max_retries, 51, 0, 4),
        NUMBER(req.srq, 51, 4, 1),
        NUMBER(req.extended_transport, 51, 5, 3),
        PATH(req.primary, 52),
        PATH(req.alternate, 96),
        NUMBER(req.sap_supported, 139, 5, 1),
        BYTES(req.private_data, 140),
};
static const struct field mra_fields[] = {
        IDS(mra),
        NUMBER(mra.about, 8, 0, 2),
        NUMBER(mra.service_timeout, 9, 0, 5),
        BYTES(mra.private_data, 10),
};
static const struct field rej_fields[] = {
        IDS(rej),
        NUMBER(rej.about, 8, 0, 2),
        NUMBER(rej.info_bytes, 9, 0, 7),
        NUMBER(rej.reason, 10, 0, 16),
        BYTES(rej.info, 12),
        BYTES(rej.private_data, 84),
};
static const struct field rep_fields[] = {
        IDS(rep),
        NUMBER(rep.qkey, 8, 0, 32),
        NUMBER(rep.qpn, 12, 0, 24),
        NUMBER(rep.eecn, 16, 0, 24),
        NUMBER(rep.psn, 20, 0, 24),
        NUMBER(rep.responder_resources, 24, 0, 8),
        NUMBER(rep.initiator_depth, 25, 0, 8),
        NUMBER(rep.target_ack_delay, 26, 0, 5),
        NUMBER(rep.failover, 26, 5, 2),
        NUMBER(rep.flow_control, 26, 7, 1),
        NUMBER(rep.rnr_retry_count, 27, 0, 3),
        NUMBER(rep.srq, 27, 3, 1),
        NUMBER(rep.ca_guid, 28, 0, 64),
        BYTES(rep.private_data, 36),
};
static const struct field rtu_fields[] = {
        IDS(rtu),
        BYTES(rtu.private_data, 8),
};
static const struct field dreq_fields[] = {
        IDS(dreq),
        NUMBER(dreq.remote_qpn, 8, 0, 24),
        BYTES(dreq.private_data, 12),
};
/* The path in a LAP has a slightly different layout from byte 56 on (table 115). */
static const struct field lap_fields[] = {
        IDS(lap),
        NUMBER(lap.remote_qpn, 12, 0, 24),
        NUMBER(lap.remote_response_timeout, 15, 0, 5),
        NUMBER(lap.alternate.local_lid, 20, 0, 16),
        NUMBER(lap.alternate.remote_lid, 22, 0, 16),
        BYTES(lap.alternate.local_gid, 24),
        BYTES(lap.alternate.remote_gid, 40),
        NUMBER(lap.alternate.flow_label, 56, 0, 20),
        NUMBER(lap.alternate.traffic_class, 59, 0, 8),
        NUMBER(lap.alternate.hop_limit, 60, 0, 8),
        NUMBER(lap.alternate.packet_rate, 61, 2, 6),
        NUMBER(lap.alternate.sl, 62, 0, 4),
        NUMBER(lap.alternate.subnet_local, 62, 4, 1),
        NUMBER(lap.alternate.ack_timeout, 63, 0, 5),
        BYTES(lap.private_data, 64),
};
static const struct field apr_fields[] = {
        IDS(apr),
        NUMBER(apr.info_bytes, 8, 0, 8),
        NUMBER(apr.status, 9, 0, 8),
        BYTES(apr.info, 12),
        BYTES(apr.private_data, 84),
};
static const struct field sidr_req_fields[] = {
        NUMBER(sidr_req.request_id, 0, 0, 32),
        NUMBER(sidr_req.pkey, 4, 0, 16),
        NUMBER(sidr_req.service_id, 8, 0, 64),
        BYTES(sidr_req.private_data, 16),
};
static const struct field sidr_rep_fields[] = {
        NUMBER(sidr_rep.request_id, 0, 0, 32),
        NUMBER(sidr_rep.status, 4, 0, 8),
        NUMBER(sidr_rep.info_bytes, 5, 0, 8),
        NUMBER(sidr_rep.qpn, 8, 0, 24),
        NUMBER(sidr_rep.service_id, 12, 0, 64),
        NUMBER(sidr_rep.qkey, 20, 0, 32),
        BYTES(sidr_rep.info, 24),
        BYTES(sidr_rep.private_data, 96),
};

#define MESSAGE(kind, table) [kind - IB_CM_REQ] = {table, sizeof(table) / sizeof(table[0])}
static const struct {
	const struct field *fields;
	size_t count;
} messages[IB_CM_KIND_END - IB_CM_REQ] = {
        MESSAGE(IB_CM_REQ, req_fields),           MESSAGE(IB_CM_MRA, mra_fields),
        MESSAGE(IB_CM_REJ, rej_fields),           MESSAGE(IB_CM_REP, rep_fields),
        MESSAGE(IB_CM_RTU, rtu_fields),           MESSAGE(IB_CM_DREQ, dreq_fields),
        MESSAGE(IB_CM_DREP, rtu_fields),          MESSAGE(IB_CM_SIDR_REQ, sidr_req_fields),
        MESSAGE(IB_CM_SIDR_REP, sidr_rep_fields), MESSAGE(IB_CM_LAP, lap_fields),
        MESSAGE(IB_CM_APR, apr_fields),
};

/* --- numbers in the structure and in the datagram --- */

static uint64_t member_load(const uint8_t *at, size_t size)
{
	uint16_t half;
	uint32_t word;
	uint64_t value;
	switch (size) {
	case 1:
		return *at;
	case 2:
		memcpy(&half, at, size);
		return half;
	case 4:
		memcpy(&word, at, size);
		return word;
	default:
		assert(size == sizeof(value));
		memcpy(&value, at, size);
		return value;
	}
}

static void member_store(uint8_t *at, size_t size, uint64_t value)
{
	uint16_t half = (uint16_t)value;
	uint32_t word = (uint32_t)value;
	switch (size) {
	case 1:
		*at = (uint8_t)value;
		break;
	case 2:
		memcpy(at, &half, size);
		break;
	case 4:
		memcpy(at, &word, size);
		break;
	default:
		assert(size == sizeof(value));
		memcpy(at, &value, size);
		break;
	}
}

/* Numbers in the datagram either fill whole bytes, share their last byte (the 20 bits of a flow
 * label), or are within one byte. */
static void bits_store(uint8_t *data, unsigned bit, unsigned bits, uint64_t value)
{
	for (unsigned i = 0; i < bits; i++) {
		unsigned at = bit + i;
		uint8_t mask = (uint8_t)(0x80u >> at % 8);
		if (value >> (bits - 1 - i) & 1)
			data[at / 8] |= mask;
	}
}

static uint64_t bits_load(const uint8_t *data, unsigned bit, unsigned bits)
{
	uint64_t value = 0;
	for (unsigned i = 0; i < bits; i++) {
		unsigned at = bit + i;
		value = value << 1 | ((unsigned)data[at / 8] >> (7 - at % 8) & 1u);
	}
	return value;
}

void ib_cm_encode(const struct ib_cm_message *message, uint8_t *out)
{
	assert(message->kind >= IB_CM_REQ && message->kind < IB_CM_KIND_END);
	struct mad_header header = {.base_version = MAD_BASE_VERSION,
	                            .management_class = MAD_CLASS_CM,
	                            .class_version = IB_CM_CLASS_VERSION,
	                            .method = MAD_METHOD_SEND,
	                            .transaction_id = message->transaction_id,
	                            .attribute_id = (uint16_t)message->kind};
	memset(out, 0, MAD_BYTES);
	mad_header_encode(&header, out);
	uint8_t *data = out + MAD_HEADER_BYTES;
	const struct field *field = messages[message->kind - IB_CM_REQ].fields;
	for (size_t n = messages[message->kind - IB_CM_REQ].count; n > 0; n--, field++) {
		const uint8_t *member = (const uint8_t *)message + field->member;
		if (field->bits == 0)
			memcpy(data + field->bit / 8, member, field->size);
		else
			bits_store(data, field->bit, field->bits, member_load(member, field->size));
	}
}

enum ib_cm_verdict ib_cm_decode(struct ib_cm_message *message, const uint8_t *in, size_t bytes)
{
	struct mad_header header;
	if (!mad_header_decode(&header, in, bytes))
		return IB_CM_NO_MAD;
	if (header.management_class != MAD_CLASS_CM ||
	    header.class_version != IB_CM_CLASS_VERSION || header.method != MAD_METHOD_SEND)
		return IB_CM_NO_CM;
	if (header.attribute_id < IB_CM_REQ || header.attribute_id >= IB_CM_KIND_END)
		return IB_CM_NO_MESSAGE;
	memset(message, 0, sizeof(*message));
	message->kind = (enum ib_cm_kind)header.attribute_id;
	message->transaction_id = header.transaction_id;
	const uint8_t *data = in + MAD_HEADER_BYTES;
	const struct field *field = messages[message->kind - IB_CM_REQ].fields;
	for (size_t n = messages[message->kind - IB_CM_REQ].count; n > 0; n--, field++) {
		uint8_t *member = (uint8_t *)message + field->member;
		if (field->bits == 0)
			memcpy(member, data + field->bit / 8, field->size);
		else
			member_store(member, field->size, bits_load(data, field->bit, field->bits));
	}
	return IB_CM_OK;
}

uint64_t ib_cm_time_ns(uint8_t exponent)
{
	return 4096ull << (exponent & 31);
}

bool ib_cm_addressee(const struct ib_cm_message *message, uint32_t *remote_id, uint64_t *service_id)
{
	switch (message->kind) {
	case IB_CM_REQ:
		*service_id = message->u.req.service_id;
		return false;
	case IB_CM_SIDR_REQ:
		*service_id = message->u.sidr_req.service_id;
		return false;
	case IB_CM_SIDR_REP:
		*remote_id = message->u.sidr_rep.request_id;
		return true;
	default: /* all others have it at the same place */
		*remote_id = message->u.rtu.remote_id;
		return true;
	}
}

bool ib_cm_refuse(const struct ib_cm_message *message, enum ib_cm_reason reason,
                  struct ib_cm_message *answer)
{
	*answer = (struct ib_cm_message){.kind = IB_CM_REJ,
	                                 .transaction_id = message->transaction_id};
	struct ib_cm_rej *rej = &answer->u.rej;
	struct ib_cm_sidr_rep *sidr = &answer->u.sidr_rep;
	switch (message->kind) {
	case IB_CM_REQ:
		rej->remote_id = message->u.req.local_id;
		rej->about = IB_CM_ABOUT_REQ;
		rej->reason = (uint16_t)reason;
		return true;
	case IB_CM_REP: /* 12.9.8.5: so that the peer does not wait for an RTU */
		rej->local_id = message->u.rep.remote_id;
		rej->remote_id = message->u.rep.local_id;
		rej->about = IB_CM_ABOUT_REP;
		rej->reason = IB_CM_INVALID_COMM_ID;
		return true;
	case IB_CM_DREQ:
		answer->kind = IB_CM_DREP;
		answer->u.drep.local_id = message->u.dreq.remote_id;
		answer->u.drep.remote_id = message->u.dreq.local_id;
		return true;
	case IB_CM_SIDR_REQ:
		answer->kind = IB_CM_SIDR_REP;
		sidr->request_id = message->u.sidr_req.request_id;
		sidr->service_id = message->u.sidr_req.service_id;
		sidr->status = reason == IB_CM_INVALID_SERVICE_ID ? IB_CM_SIDR_UNSUPPORTED
		                                                  : IB_CM_SIDR_REJECT;
		return true;
	default:
		return false;
	}
}

/* --- annex A11 --- */

#define SERVICE_PREFIX 0x01u

uint64_t ib_cm_service(uint16_t space, uint16_t port)
{
	return (uint64_t)space << 16 | port;
}

bool ib_cm_service_split(uint64_t service_id, uint16_t *space, uint16_t *port)
{
	if (service_id >> 24 != SERVICE_PREFIX)
		return false;
	*space = (uint16_t)(service_id >> 16);
	*port = (uint16_t)service_id;
	return true;
}

void ib_cm_ip_encode(const struct ib_cm_ip *ip, uint8_t *out)
{
	out[0] = ip->version;
	out[1] = (uint8_t)(ip->family << 4);
	be16_store(out + 2, ip->port);
	memcpy(out + 4, ip->src, sizeof(ip->src));
	memcpy(out + 20, ip->dst, sizeof(ip->dst));
}

bool ib_cm_ip_decode(struct ib_cm_ip *ip, const uint8_t *in)
{
	uint8_t family = in[1] >> 4;
	if (in[0] >> 4 != 0 || (family != 4 && family != 6))
		return false;
	*ip = (struct ib_cm_ip){.version = in[0], .family = family, .port = be16_load(in + 2)};
	memcpy(ip->src, in + 4, sizeof(ip->src));
	memcpy(ip->dst, in + 20, sizeof(ip->dst));
	return true;
}
