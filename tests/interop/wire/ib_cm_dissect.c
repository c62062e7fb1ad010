/* Prints a message of communication management of every kind for ib_dissect.py, which has tshark
 * take them apart: see ib_dissect.c. tshark 4.0 knows the fields of REQ, REJ, REP, RTU, DREQ and
 * DREP; of the others the header of the datagram. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ib_sample.h"
#include "wire/be.h"
#include "wire/ib_cm.h"

static uint8_t mad[MAD_BYTES];

static void field(const char *name, uint64_t value)
{
	printf(" infiniband.%s=0x%" PRIx64, name, value);
}

static void bytes(const char *name, const uint8_t *data, size_t count)
{
	printf(" infiniband.%s=", name);
	for (size_t i = 0; i < count; i++)
		printf("%02x", data[i]);
}

/* Without flow label and rate, which tshark 4.0 looks for in three of their four bytes, and without
 * the GIDs that it shows as IPv4 addresses where the packet is one of IPv4. */
static void path(const char *prefix, const struct ib_cm_path *p, bool gids)
{
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {{"locallid", p->local_lid},
	            {"remotelid", p->remote_lid},
	            {"tfcclass", p->traffic_class},
	            {"hoplim", p->hop_limit},
	            {"sl", p->sl},
	            {"subnetlocal", p->subnet_local},
	            {"localacktout", p->ack_timeout}};
	char name[64];
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		snprintf(name, sizeof(name), "cm.req.%s_%s", prefix, rows[i].name);
		field(name, rows[i].value);
	}
	if (!gids)
		return;
	snprintf(name, sizeof(name), "cm.req.%s_localgid", prefix);
	bytes(name, p->local_gid, IB_GID_BYTES);
	snprintf(name, sizeof(name), "cm.req.%s_remotegid", prefix);
	bytes(name, p->remote_gid, IB_GID_BYTES);
}

static void req_fields(const struct ib_cm_req *req, bool ipv4)
{
	field("cm.req", req->local_id);
	field("cm.req.serviceid.protocol", (uint8_t)(req->service_id >> 16));
	field("cm.req.serviceid.dport", (uint16_t)req->service_id);
	field("cm.req.localcaguid", req->ca_guid);
	field("cm.req.localqkey", req->qkey);
	field("cm.req.localqpn", req->qpn);
	field("cm.req.responderres", req->responder_resources);
	field("cm.req.localeecn", req->local_eecn);
	field("cm.req.initdepth", req->initiator_depth);
	field("cm.req.remoteeecn", req->remote_eecn);
	field("cm.req.remoteresptout", req->remote_response_timeout);
	field("cm.req.transpsvctype", req->transport);
	field("cm.req.e2eflowctrl", req->flow_control);
	field("cm.req.startpsn", req->psn);
	field("cm.req.localresptout", req->local_response_timeout);
	field("cm.req.retrcount", req->retry_count);
	field("cm.req.pkey", req->pkey);
	field("cm.req.pppmtu", req->mtu);
	field("cm.req.rdcexist", req->rdc_exists);
	field("cm.req.rnrretrcount", req->rnr_retry_count);
	field("cm.req.maxcmretr", req->max_retries);
	field("cm.req.srq", req->srq);
	field("cm.req.ext_transport", req->extended_transport);
	path("prim", &req->primary, !ipv4);
	path("alt", &req->alternate, true);
	field("cm.req.ip_cm.ipv", req->private_data[1] >> 4);
	field("cm.req.ip_cm.sport", 0xabcd);
	bytes("cm.req.ip_cm.sip6", req->private_data + 4, 16);
	bytes("cm.req.ip_cm.dip6", req->private_data + 20, 16);
	bytes("cm.req.ip_cm.private", req->private_data + IB_CM_IP_BYTES,
	      IB_CM_REQ_PRIVATE_BYTES - IB_CM_IP_BYTES);
}

static void fields(const struct ib_cm_message *m, bool ipv4)
{
	field("mad.attributeid", m->kind);
	field("mad.mgmtclass", MAD_CLASS_CM);
	field("mad.transactionid", m->transaction_id);
	switch (m->kind) {
	case IB_CM_REQ:
		req_fields(&m->u.req, ipv4);
		break;
	case IB_CM_REJ:
		field("cm.rej.localcommid", m->u.rej.local_id);
		field("cm.rej.remotecommid", m->u.rej.remote_id);
		field("cm.rej.msgrej", m->u.rej.about);
		field("cm.rej.rejinfolen", m->u.rej.info_bytes);
		field("cm.rej.reason", m->u.rej.reason);
		bytes("cm.rej.ari", m->u.rej.info, IB_CM_INFO_BYTES);
		bytes("cm.rej.private", m->u.rej.private_data, IB_CM_REJ_PRIVATE_BYTES);
		break;
	case IB_CM_REP:
		field("cm.rep", m->u.rep.local_id);
		field("cm.rep.remotecommid", m->u.rep.remote_id);
		field("cm.rep.localqkey", m->u.rep.qkey);
		field("cm.rep.localqpn", m->u.rep.qpn);
		field("cm.rep.localeecn", m->u.rep.eecn);
		field("cm.rep.startpsn", m->u.rep.psn);
		field("cm.rep.respres", m->u.rep.responder_resources);
		field("cm.rep.initdepth", m->u.rep.initiator_depth);
		field("cm.rep.tgtackdelay", m->u.rep.target_ack_delay);
		field("cm.rep.failoveracc", m->u.rep.failover);
		field("cm.rep.e2eflowctrl", m->u.rep.flow_control);
		field("cm.rep.rnrretrcount", m->u.rep.rnr_retry_count);
		field("cm.rep.srq", m->u.rep.srq);
		field("cm.rep.localcaguid", m->u.rep.ca_guid);
		bytes("cm.rep.private", m->u.rep.private_data, IB_CM_REP_PRIVATE_BYTES);
		break;
	case IB_CM_RTU:
	case IB_CM_DREP:
		field(m->kind == IB_CM_RTU ? "cm.rtu.localcommid" : "cm.drsp.localcommid",
		      m->u.rtu.local_id);
		field(m->kind == IB_CM_RTU ? "cm.rtu.remotecommid" : "cm.drsp.remotecommid",
		      m->u.rtu.remote_id);
		break;
	case IB_CM_DREQ:
		field("cm.dreq.localcommid", m->u.dreq.local_id);
		field("cm.dreq.remotecommid", m->u.dreq.remote_id);
		field("cm.req.remoteqpneecn", m->u.dreq.remote_qpn);
		break;
	default:
		break;
	}
}

/* Every field of a message of this kind, reserved bits excepted, random. */
static void sample(struct ib_cm_message *message, struct prng *prng, enum ib_cm_kind kind)
{
	*message = (struct ib_cm_message){.kind = kind};
	ib_cm_encode(message, mad);
	prng_fill(prng, mad + 8, 8);
	prng_fill(prng, mad + MAD_HEADER_BYTES, MAD_BYTES - MAD_HEADER_BYTES);
	ib_cm_decode(message, mad, sizeof(mad));
	if (kind == IB_CM_REQ) {
		struct ib_cm_ip ip = {.family = 6, .port = 0xabcd};
		prng_fill(prng, ip.src, sizeof(ip.src));
		prng_fill(prng, ip.dst, sizeof(ip.dst));
		message->u.req.service_id = ib_cm_service(0x106, 7174);
		ib_cm_ip_encode(&ip, message->u.req.private_data);
	}
	ib_cm_encode(message, mad);
}

int main(void)
{
	struct prng prng;
	prng_seed(&prng, 12);
	for (int kind = IB_CM_REQ; kind < IB_CM_KIND_END; kind++) {
		for (int ipv4 = 0; ipv4 < 2; ipv4++) {
			struct ib_cm_message message;
			uint8_t out[512];
			struct roce_path along;
			sample(&message, &prng, (enum ib_cm_kind)kind);
			struct ib_packet packet = {
			        .bth = {.opcode = 0x64, /* UD SEND_ONLY */
			                .pkey = 0xffff,
			                .dest_qp = MAD_GSI_QPN},
			        .deth = {.qkey = MAD_GSI_QKEY, .src_qp = MAD_GSI_QPN},
			        .payload = mad,
			        .payload_bytes = sizeof(mad)};
			ib_sample_path(&along, &prng, ipv4);
			along.src_port |= 0xc000;
			along.udp_checksum = !ipv4;
			size_t n = roce_encode(&along, &packet, out, sizeof(out));
			printf("%s\t", ipv4 ? "ipv4" : "ipv6");
			for (size_t i = 0; i < n; i++)
				printf("%02x", out[i]);
			printf("\tinfiniband.bth.opcode=0x64");
			field("invariant.crc", be32_load(out + n - IB_ICRC_BYTES));
			fields(&message, ipv4);
			printf("\n");
		}
	}
	return 0;
}
