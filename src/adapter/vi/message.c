/* The messages of virtual interfaces: what is in them, and how they are sent. See vi.h. */
#include <string.h>

#include "adapter/adapter.h"
#include "base/siphash.h"
#include "wire/be.h"

/* What the private data of REQ and SIDR_REQ begins with. The first four bits are not those of an IP
 * service (annex A11). */
#define HELLO_MAGIC 0x48564931u
#define HELLO_NAME  8u
_Static_assert(HELLO_NAME + HDL_VI_MAX_NAME == VI_HELLO_BYTES, "the name is the end of a hello");
_Static_assert(VI_HELLO_BYTES <= IB_CM_REQ_PRIVATE_BYTES, "a REQ holds a hello");
_Static_assert(VI_HELLO_BYTES + VI_SELF_BYTES <= IB_CM_SIDR_REQ_PRIVATE_BYTES,
               "and a SIDR_REQ also says who asks");

/* --- sending --- */

int vi_send(struct hdl_adapter *adapter, const struct vi_far *to, struct hdl_cm_msg *msg,
            const struct ib_cm_message *message)
{
	msg->space = VI_SPACE;
	msg->length = MAD_BYTES;
	if (to != NULL) {
		msg->gid = to->gid;
		msg->own = to->own;
		msg->guid = to->guid;
		msg->slot = to->slot;
		if (to->on_wire && msg->on_wire == 0)
			msg->on_wire = HDL_CM_ON_WIRE;
	}
	ib_cm_encode(message, msg->data);
	return hdl_cm_send(adapter, msg);
}

void vi_tell(struct hdl_adapter *adapter, const struct vi_far *to,
             const struct ib_cm_message *message)
{
	struct hdl_cm_msg msg = {0};
	vi_send(adapter, to, &msg, message);
}

void vi_reject(struct hdl_adapter *adapter, const struct vi_far *to, uint32_t own,
               uint64_t transaction, enum ib_cm_reason reason, uint8_t info)
{
	struct ib_cm_message rej = {.kind = IB_CM_REJ,
	                            .transaction_id = transaction,
	                            .u.rej = {.local_id = own,
	                                      .remote_id = to->id,
	                                      .about = IB_CM_ABOUT_REQ,
	                                      .info_bytes = 1,
	                                      .reason = (uint16_t)reason}};
	rej.u.rej.info[0] = info;
	vi_tell(adapter, to, &rej);
}

struct ib_cm_message vi_farewell(const struct hdl_vi *vi, enum ib_cm_kind kind)
{
	return (struct ib_cm_message){
	        .kind = kind,
	        .transaction_id = vi->transaction,
	        .u.dreq = {.local_id = vi->id,
	                   .remote_id = vi->far.id,
	                   .remote_qpn = kind == IB_CM_DREQ ? vi->far.qpn : 0}};
}

void vi_part(struct hdl_vi *vi)
{
	if (vi->id == 0)
		return;
	if (vi->state == HDL_VI_READY) {
		struct ib_cm_message dreq = vi_farewell(vi, IB_CM_DREQ);
		struct hdl_cm_msg msg = {.on_wire = vi->far.on_wire ? HDL_CM_LAST_WORD : 0};
		vi_send(vi->pd->adapter, &vi->far, &msg, &dreq);
	}
	vi->id = 0;
}

void vi_leave_notice(struct hdl_vi *vi)
{
	struct ib_cm_message dreq = vi_farewell(vi, IB_CM_DREQ);
	struct hdl_cm_msg msg = {.on_wire = HDL_CM_WHEN_GONE};
	if (vi->far.on_wire)
		vi_send(vi->pd->adapter, &vi->far, &msg, &dreq);
}

/* --- names --- */

uint16_t vi_name_port(const char *name, size_t bytes, uint32_t probe)
{
	uint32_t hash = 2166136261u;
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ (uint8_t)name[i]) * 16777619u;
	return (uint16_t)(1 + ((hash ^ hash >> 16) + probe) % 0xffff); /* 0 is no port */
}

struct hdl_gid vi_name_key(const char *name, size_t bytes)
{
	/* The same in every process of the node. No address: ff is multicast. */
	static const uint64_t keys[2][2] = {{VI_NAMES, 1}, {VI_NAMES, 2}};
	struct hdl_gid key;
	be64_store(key.raw, siphash(keys[0], name, bytes));
	be64_store(key.raw + 8, siphash(keys[1], name, bytes));
	key.raw[0] = 0xff;
	return key;
}

size_t vi_name_length(const char *name)
{
	size_t bytes = name != NULL ? strnlen(name, HDL_VI_MAX_NAME + 1) : 0;
	return bytes <= HDL_VI_MAX_NAME ? bytes : 0;
}

void vi_hello_encode(uint8_t *out, const char *name, size_t bytes, uint8_t channel)
{
	be32_store(out, HELLO_MAGIC);
	out[4] = channel;
	out[5] = (uint8_t)bytes;
	memcpy(out + HELLO_NAME, name, bytes);
}

bool vi_hello_names(const uint8_t *in, const struct hdl_vi_listener *listener)
{
	return be32_load(in) == HELLO_MAGIC && in[5] == listener->name_bytes &&
	       memcmp(in + HELLO_NAME, listener->name, listener->name_bytes) == 0;
}

void vi_self_encode(uint8_t *out, uint64_t guid, uint32_t qpn, uint32_t qkey,
                    const struct hdl_gid *gid)
{
	be64_store(out, guid);
	be32_store(out + 8, qpn);
	be32_store(out + 12, qkey);
	memcpy(out + 16, gid->raw, sizeof(gid->raw));
}

struct descriptor_peer vi_self_decode(const struct hdl_adapter *adapter, const uint8_t *in,
                                      const struct hdl_gid *from)
{
	struct descriptor_peer peer = {.qpn = be32_load(in + 8) & 0xffffff,
	                               .qkey = be32_load(in + 12)};
	memcpy(peer.gid.raw, from != NULL ? from->raw : in + 16, sizeof(peer.gid.raw));
	wire_mac(adapter, &peer.gid, peer.mac);
	return peer;
}

bool vi_know(struct hdl_vi *vi, const struct descriptor_peer *peer)
{
	uint32_t at = 0, count = vi->descriptors.peer_count;
	while (at < count && (vi->peers[at].qpn != peer->qpn ||
	                      memcmp(vi->peers[at].mac, peer->mac, sizeof(peer->mac)) != 0))
		at++;
	/* A peer that is known keeps its address: a handle may be in use. Its Q_Key may be new. */
	if (at == HDL_VI_MAX_PEERS)
		return false;
	adapter_lock(vi->pd->adapter);
	if (at == count) {
		vi->peers[at] = *peer;
		vi->descriptors.peer_count++;
	} else {
		vi->peers[at].qkey = peer->qkey;
	}
	adapter_unlock(vi->pd->adapter);
	return true;
}
