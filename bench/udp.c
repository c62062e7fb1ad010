/* The floors of RoCEv2 over UDP, on the loopback between two processes: bare sockets with GSO and
 * GRO, and the carrier above them, which adds room for headers, the ICRC and one copy at each end.
 * Latency is half of a round trip of 64 bytes, with both ends spinning. Bandwidth is the payload
 * that arrives in packets of 4096 bytes; the receiver grants a window, because a socket does not
 * report packets that it dropped. A round that still loses packets is repeated. CPU is the
 * processor time of both ends, which both spin.
 *
 *   bench-udp [ROUNDS [WORD]]     only rows whose names contain WORD */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/net/udp.h"
#include "base/clock.h"
#include "figures.h"

#define ROUNDS       9 /* by default */
#define MAX_ROUNDS   99
#define TRIPS        10000u
#define SMALL        64u
#define PAYLOAD      4096u
#define PACKET       (IB_BTH_BYTES + IB_RETH_BYTES + PAYLOAD)
#define TOTAL        (96u << 20) /* bytes per round */
#define WINDOW       (1u << 21)
#define BUFFER       (1u << 20) /* memory of the application, sent again and again */
#define CREDIT_EVERY (1u << 16)
#define GIVE_UP_NS   2000000000u

/* One end: packets out, packets in. */
struct end {
	bool carrier;
	struct udp_address own, peer;
	int in, out; /* for sockets without the carrier */
	struct udp_receiver receiver;
	struct udp_wire wire;
	uint64_t packets, bytes; /* received */
	uint64_t credit;         /* the last number received in a small packet */
};

static int rounds;
static const char *word;
static uint8_t source[BUFFER + UDP_MAX_TRAIN_BYTES], sink[BUFFER];

static void took(struct end *end, const uint8_t *data, size_t bytes)
{
	end->packets++;
	end->bytes += bytes;
	if (bytes <= SMALL)
		memcpy(&end->credit, data, sizeof(end->credit));
}

static void take(void *context, const struct path *came, bool congested,
                 const struct ib_packet *packet)
{
	struct end *end = context;
	(void)came, (void)congested;
	if (packet->payload_bytes == PAYLOAD)
		memcpy(sink + end->bytes % sizeof(sink), packet->payload, PAYLOAD);
	took(end, packet->payload, packet->payload_bytes);
}

static bool begin(struct end *end, bool carrier, uint8_t own, uint8_t peer)
{
	uint16_t port;
	*end = (struct end){.carrier = carrier};
	end->own.gid[10] = end->own.gid[11] = 0xff;
	end->own.gid[12] = 127;
	end->own.gid[13] = 74;
	end->peer = end->own;
	end->own.gid[15] = own;
	end->peer.gid[15] = peer;
	end->in = udp_open(&end->own, UDP_ROCE_PORT);
	if (end->in < 0)
		return false;
	if (carrier) {
		if (udp_wire_begin(&end->wire, &end->own, end->in, PAYLOAD) != 0)
			return false;
		end->wire.take = take;
		end->wire.take_context = end;
		return true;
	}
	end->out = udp_open_sender(&end->own, &port);
	return end->out >= 0 && udp_receiver_begin(&end->receiver) == 0;
}

static void look(struct end *end)
{
	struct udp_came came[UDP_BATCH];
	if (end->carrier) {
		udp_wire_receive(&end->wire);
		return;
	}
	int count = udp_receive(&end->receiver, end->in, came);
	for (int i = 0; i < count; i++)
		for (uint32_t at = 0; at < came[i].bytes; at += came[i].packet_bytes)
			took(end, came[i].data + at,
			     came[i].packet_bytes == PACKET ? PAYLOAD : came[i].packet_bytes);
}

static void put(struct end *end, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct ib_packet packet = {.payload = payload, .payload_bytes = bytes};
	size_t need = IB_BTH_BYTES + IB_RETH_BYTES + bytes;
	uint8_t *room;
	packet.bth.opcode = 0x0a; /* RC RDMA WRITE only */
	packet.bth.dest_qp = 2;
	while ((room = end->wire.carrier.reserve(&end->wire, path, need)) == NULL)
		end->wire.carrier.flush(&end->wire);
	ib_transport_encode(&packet, room, need);
	end->wire.carrier.commit(&end->wire, path, need);
}

/* Send @count packets of @bytes each. */
static void send_packets(struct end *end, const void *payload, uint32_t bytes, unsigned count)
{
	int error;
	if (end->carrier) {
		struct path path = {.ip.src_port = 0xc000};
		memcpy(path.ip.dgid, end->peer.gid, 16);
		for (unsigned i = 0; i < count; i++)
			put(end, &path, (const uint8_t *)payload + (size_t)i * bytes, bytes);
		end->wire.carrier.flush(&end->wire);
		return;
	}
	uint32_t each = bytes == PAYLOAD ? PACKET : bytes;
	struct udp_train train = {.to = end->peer,
	                          .tos = UDP_ECT,
	                          .packets = (uint16_t)count,
	                          .packet_bytes = each,
	                          .bytes = each * count,
	                          .data = payload};
	udp_send(end->out, &train, 1, &error);
}

/* The other process: answers small packets with small ones, and reports from time to time how much
 * it has received. */
static void answer(struct end *end)
{
	uint8_t small[2 * SMALL] = {0};
	uint64_t told = 0, packets = 0;
	for (;;) {
		look(end);
		if (end->packets == packets)
			continue;
		unsigned count = end->packets - packets == 2 ? 2 : 1;
		packets = end->packets;
		bool ping = end->bytes == (uint64_t)end->packets * SMALL;
		if (!ping && end->bytes - told < CREDIT_EVERY)
			continue;
		told = end->bytes;
		memcpy(small, &told, sizeof(told));
		send_packets(end, small, SMALL, ping ? count : 1);
	}
}

static double latency_of(struct end *end, unsigned count)
{
	uint8_t small[2 * SMALL] = {0};
	uint64_t start = clock_now_ns();
	for (unsigned i = 0; i < TRIPS; i++) {
		uint64_t before = end->packets;
		send_packets(end, small, SMALL, count);
		while (end->packets == before)
			look(end);
	}
	return (double)(clock_now_ns() - start) / TRIPS / 2000;
}

static double latency(struct end *end)
{
	return latency_of(end, 1);
}

/* A message travels together with the acknowledgement of the one before. */
static double latency_of_two(struct end *end)
{
	return latency_of(end, 2);
}

/* GB/s with trains of alternately @count and @other packets; 0: packets were lost. */
static double bandwidth_of(struct end *end, unsigned count, unsigned other)
{
	uint64_t base = end->credit, sent = 0, begin_ns = clock_now_ns(), heard_ns = begin_ns;
	while (end->credit - base < TOTAL) {
		if (sent - (end->credit - base) + count * PAYLOAD <= WINDOW) {
			send_packets(end, source + sent % BUFFER, PAYLOAD, count);
			sent += count * PAYLOAD;
			unsigned next = other;
			other = count;
			count = next;
			continue;
		}
		uint64_t before = end->packets, now;
		look(end);
		if (end->packets != before)
			heard_ns = clock_now_ns();
		else if ((now = clock_now_ns()) > heard_ns && now - heard_ns > GIVE_UP_NS)
			return 0;
	}
	return (double)TOTAL / (double)(clock_now_ns() - begin_ns);
}

/* As many packets as fit into a train. */
static double bandwidth(struct end *end)
{
	unsigned most = UDP_MAX_TRAIN_BYTES / (PACKET + IB_ICRC_BYTES);
	return bandwidth_of(end, most, most);
}

/* Writes of 64 KiB: the first packet of a message is longer than the others, so no train contains
 * more than it and one other. */
static double bandwidth_of_writes(struct end *end)
{
	return bandwidth_of(end, 2, 14);
}

static double seconds(const struct rusage *usage)
{
	return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
	       (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

static void measure(bool carrier, double (*what)(struct end *), const char *name, const char *unit)
{
	static struct end end;
	double values[MAX_ROUNDS], cpu[MAX_ROUNDS];
	if (strstr(name, word) == NULL)
		return;
	for (int r = 0; r < rounds; r++) {
		int ready[2];
		char byte = 0;
		if (pipe(ready) != 0)
			exit(1);
		pid_t parent = getpid(), child = fork();
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			figures_pin(1);
			if (getppid() == parent && begin(&end, carrier, 2, 1) &&
			    write(ready[1], &byte, 1) == 1)
				answer(&end);
			_exit(1);
		}
		close(ready[1]);
		if (child < 0 || !begin(&end, carrier, 1, 2) || read(ready[0], &byte, 1) != 1) {
			printf("%s: the port is in use\n", name);
			exit(1);
		}
		close(ready[0]);
		struct rusage before, after, its;
		getrusage(RUSAGE_SELF, &before);
		values[r] = what(&end);
		getrusage(RUSAGE_SELF, &after);
		kill(child, SIGKILL);
		wait4(child, NULL, 0, &its);
		cpu[r] = (seconds(&after) - seconds(&before) + seconds(&its)) * (1u << 30) / TOTAL;
		if (carrier) {
			udp_wire_end(&end.wire);
		} else {
			close(end.in);
			close(end.out);
			udp_receiver_end(&end.receiver);
		}
	}
	figures_report(name, values, (size_t)rounds, unit);
	if (what == bandwidth)
		figures_report(carrier ? "carrier, CPU" : "UDP with GSO and GRO, CPU", cpu,
		               (size_t)rounds, "s/GiB");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;
	word = argc > 2 ? argv[2] : "";
	if (rounds < 1 || rounds > MAX_ROUNDS)
		return 1;
	figures_pin(0);
	memset(source, 1, sizeof(source));
	measure(false, latency, "UDP, 64 bytes, one way", "us");
	measure(false, latency_of_two, "UDP, two packets of 64 bytes, one way", "us");
	measure(true, latency, "carrier, 64 bytes, one way", "us");
	measure(false, bandwidth, "UDP with GSO and GRO, 4096-byte packets", "GB/s");
	measure(false, bandwidth_of_writes, "UDP in the trains of 64 KiB writes", "GB/s");
	measure(true, bandwidth, "carrier, 4096-byte packets", "GB/s");
	return 0;
}
