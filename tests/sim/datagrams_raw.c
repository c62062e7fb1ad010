/* Raw datagrams in the 'datagrams' scenario: each host has a queue pair for one next header and its
 * own address, and sends to all. On the links they are InfiniBand's raw IPv6 packets (LRH,
 * datagram, VCRC). They may be lost, doubled and late, as the network likes; never wrong, nor for
 * somebody else; and without faults each comes once. */
#include "wire/ip_headers.h" /* before the host's: some of its names are macros there */

#include "datagrams.h"

#include <string.h>

#include "wire/be.h"

#define NEXT_HEADER 253u /* for experiments (RFC 3692) */
#define FRAME_MOST  600u

static bool send_raw(void *context, const uint8_t *frame, size_t bytes)
{
	struct dg_host *from = ((struct cable *)context)->context;
	struct dg *w = from->world;
	uint8_t padded[FRAME_MOST + 4] = {0}, data[FRAME_MOST + 64];
	struct ib_packet packet = {.lrh = {.lnh = IB_LNH_IPV6, .slid = 1, .dlid = 2},
	                           .payload = padded,
	                           .payload_bytes = (bytes + 3) & ~(size_t)3};
	if (w->over)
		return true;
	if (sim_in_flight(w->sim) + 8 >= DG_PACKETS)
		return false;
	memcpy(padded, frame, bytes);
	size_t all = ib_link_encode(&packet, data, sizeof(data));
	for (uint32_t i = 0; i < w->host_count; i++)
		if (memcmp(w->hosts[i].gid.raw, frame + 24, 16) == 0)
			sim_send(w->sim, from->index, i, data, all);
	return true;
}

bool dg_raw_arrive(struct dg *w, struct dg_host *host, const uint8_t *data, size_t bytes)
{
	struct ib_packet packet;
	(void)w;
	if (bytes == 0 || data[0] != 0) /* virtual lane 0: no address begins like this */
		return false;
	if (ib_link_decode(&packet, data, bytes) == IB_OK && packet.lrh.lnh == IB_LNH_IPV6)
		adapter_take_raw(host->adapter, packet.payload, packet.payload_bytes);
	return true;
}

void dg_raw_receive(struct dg *w, struct dg_host *host)
{
	for (uint32_t i = 0; i < DG_RAWS; i++) {
		struct hdl_sge piece = {(uintptr_t)host->mem->raw_recv[i], FRAME_MOST,
		                        hdl_mr_key(host->mr)};
		struct hdl_recv_wr wr = {.wr_id = DG_RECV_ID | i, .sg_list = &piece, .num_sge = 1};
		if (host->raw_posted[i])
			continue;
		host->raw_posted[i] = true;
		if (hdl_post_recv(host->raw, &wr, NULL) != 0)
			scenario_fail(w->run, "a receive for raw datagrams was refused");
	}
}

void dg_raw_make(struct dg *w, struct dg_host *host)
{
	struct hdl_qp_init_attr init = {.type = HDL_QP_RAW,
	                                .send_cq = host->cq,
	                                .recv_cq = host->cq,
	                                .cap = {16, DG_RAWS, 1, 1, 0}};
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT, .port_num = 1};
	host->cable.carrier.send_raw = send_raw;
	int bad = hdl_qp_create(host->pd, &init, &host->raw);
	bad |= hdl_qp_modify(host->raw, &attr, HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT);
	attr.state = HDL_QPS_RTR;
	bad |= hdl_qp_modify(host->raw, &attr, HDL_QP_STATE);
	attr.state = HDL_QPS_RTS;
	bad |= hdl_qp_modify(host->raw, &attr, HDL_QP_STATE);
	bad |= hdl_raw_attach(host->raw, NEXT_HEADER, &host->gid);
	if (bad != 0)
		scenario_fail(w->run, "raw queue pair: %d", bad);
	dg_raw_receive(w, host);
}

/* Number and receiver are in the datagram; some are for a header that nobody has registered for. */
void dg_raw_send(struct dg *w, struct dg_host *host)
{
	uint32_t to = dg_draw(w, w->host_count), slot = w->raw_count;
	if (slot == DG_RAWS)
		return;
	struct dg_raw *raw = &w->raws[slot];
	uint8_t *frame = host->mem->raw_send[slot];
	uint32_t bytes = IPV6_BYTES + 8 + dg_draw(w, FRAME_MOST - IPV6_BYTES - 8);
	struct ipv6_header header = {.payload_bytes = (uint16_t)(bytes - IPV6_BYTES),
	                             .next_header = dg_draw(w, 4) == 0 ? 254 : NEXT_HEADER,
	                             .hop_limit = 8};
	memcpy(header.src, host->gid.raw, 16);
	memcpy(header.dst, w->hosts[to].gid.raw, 16);
	ipv6_encode(&header, frame);
	for (uint32_t i = IPV6_BYTES; i < bytes; i++)
		frame[i] = dg_byte(slot, i);
	be32_store(frame + IPV6_BYTES, slot);
	*raw = (struct dg_raw){.from = host,
	                       .to = &w->hosts[to],
	                       .bytes = bytes,
	                       .wanted = header.next_header == NEXT_HEADER};
	struct hdl_sge piece = {(uintptr_t)frame, bytes, hdl_mr_key(host->mr)};
	struct hdl_send_wr wr = {
	        .wr_id = slot, .opcode = HDL_OP_SEND, .sg_list = &piece, .num_sge = 1};
	if (hdl_post_send(host->raw, &wr, NULL) == 0)
		w->raw_count++;
}

void dg_raw_completion(struct dg *w, struct dg_host *host, const struct hdl_wc *wc)
{
	uint32_t at = (uint32_t)wc->wr_id;
	if ((wc->wr_id & DG_RECV_ID) == 0 || at >= DG_RAWS || wc->status != HDL_WC_SUCCESS) {
		scenario_fail(w->run, "a raw datagram: %s", hdl_wc_status_str(wc->status));
		return;
	}
	const uint8_t *frame = host->mem->raw_recv[at];
	uint32_t slot = be32_load(frame + IPV6_BYTES);
	host->raw_posted[at] = false;
	if (w->damages) /* a CRC of 16 bits overlooks some */
		return;
	struct dg_raw *raw = &w->raws[slot < DG_RAWS ? slot : 0];
	if (slot >= w->raw_count || raw->to != host || !raw->wanted || wc->byte_len != raw->bytes ||
	    memcmp(frame, raw->from->mem->raw_send[slot], raw->bytes) != 0)
		scenario_fail(w->run, "a raw datagram that nobody sent to host %u", host->index);
	raw->came++;
}

void dg_raw_check_end(struct dg *w)
{
	for (uint32_t i = 0; i < w->raw_count && w->faultless; i++)
		if (w->raws[i].came != w->raws[i].wanted)
			scenario_fail(w->run, "raw datagram %u came %u times", i, w->raws[i].came);
}
