/* A peer across the wire made by hand. */
#include "cmpeer.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "end.h"
#include "wire/ib_opcode.h"
#include "wire/roce.h"

bool cm_peer_open(struct cm_peer *peer, const char *address)
{
	*peer = (struct cm_peer){0};
	if (!udp_address_parse(address, &peer->address))
		return false;
	peer->sock = udp_open(&peer->address, UDP_ROCE_PORT);
	return peer->sock >= 0 && udp_receiver_begin(&peer->receiver) == 0;
}

void cm_peer_close(struct cm_peer *peer)
{
	udp_receiver_end(&peer->receiver);
	close(peer->sock);
}

void cm_peer_say(struct cm_peer *peer, const struct ib_cm_message *message,
                 const struct udp_address *to)
{
	struct roce_path path = {.src_port = UDP_ROCE_PORT, .dont_fragment = true};
	struct ib_packet packet = {
	        .bth = {.opcode = IB_UD + IB_OP_SEND_ONLY, .pkey = 0xffff, .dest_qp = MAD_GSI_QPN},
	        .deth = {.qkey = MAD_GSI_QKEY, .src_qp = MAD_GSI_QPN},
	        .payload_bytes = MAD_BYTES};
	uint8_t mad[MAD_BYTES], data[512];
	int error;
	ib_cm_encode(message, mad);
	packet.payload = mad;
	memcpy(path.sgid, peer->address.gid, 16);
	memcpy(path.dgid, to->gid, 16);
	size_t bytes = roce_udp_encode(&path, &packet, data, sizeof(data));
	assert_int_not_equal(bytes, 0);
	struct udp_train train = {.to = *to,
	                          .packets = 1,
	                          .packet_bytes = (uint32_t)bytes,
	                          .bytes = (uint32_t)bytes,
	                          .data = data};
	assert_int_equal(udp_send(peer->sock, &train, 1, &error), 1);
}

static void decode(const struct cm_peer *peer, const struct udp_came *came,
                   struct ib_cm_message *message)
{
	struct ib_packet packet;
	struct roce_path path = {.src_port = came->from_port,
	                         .dont_fragment = true,
	                         .traffic_class = came->tos,
	                         .hop_limit = came->hop_limit};
	memcpy(path.sgid, came->from.gid, 16);
	memcpy(path.dgid, peer->address.gid, 16);
	assert_int_equal(roce_udp_decode(&path, &packet, came->data, came->packet_bytes), IB_OK);
	assert_int_equal(packet.bth.dest_qp, MAD_GSI_QPN);
	assert_int_equal(ib_cm_decode(message, packet.payload, packet.payload_bytes), IB_CM_OK);
}

bool cm_peer_hear(struct cm_peer *peer, struct ib_cm_message *message, struct udp_address *from,
                  double ms)
{
	double until = now_ms() + ms;
	while (peer->next == peer->count) {
		struct pollfd readable = {.fd = peer->sock, .events = POLLIN};
		double left = until - now_ms();
		if (left <= 0 || poll(&readable, 1, (int)left + 1) < 0)
			return false;
		peer->next = 0;
		peer->count = udp_receive(&peer->receiver, peer->sock, peer->came);
		assert_true(peer->count >= 0);
	}
	const struct udp_came *came = &peer->came[peer->next++];
	*from = came->from;
	decode(peer, came, message);
	return true;
}
