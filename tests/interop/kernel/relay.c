/* relay: the cable between a tap device of this network namespace and a guest whose network card
 * is a socket. It can lose RoCE packets, one in so many, and write what passes to a file for
 * tshark. Dropping here and not in the kernel's queues: a segmented send is single packets by now,
 * it takes no module, and the same seed loses the same packets of the same traffic.
 *
 *   relay TAP SOCKET MTU      SOCKET: an open descriptor that keeps packets apart
 *
 * Commands, one a line, on standard input; each is answered by one line, and the end of the input
 * ends it:
 *   loss N          lose one RoCE packet in N at random, 0: none         "ok" (but for the requests
 *                   to end a connection: they are repeated only by programs that wait for an
 *                   answer, and few do)
 *   drop KIND N     lose the next N messages of communication management of KIND (0x15: DREQ and so
 *                   on), and no others like that
 *                                                                        "LEFT", how many of the
 *                                                                        last such command were not
 *                                                                        lost
 *   capture FILE    write all that passes to FILE (pcap); -: stop        "ok", or "no: reason"
 *   counts          since the last time                                  "PACKETS PASSED, ROCE
 *                   AMONG THEM, LOST" */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_BYTES = 65536, BATCH = 64, ROCE_PORT = 4791, ETHERNET_BYTES = 14 };
enum { DREQ = 0x15, DREP = 0x16 };

struct relay {
	uint64_t state; /* of the numbers that choose what is lost */
	unsigned long one_in;
	unsigned long passed, roce, lost;
	unsigned long drop_kind, drops; /* messages of this kind that are still to be lost */
	FILE *capture;
};

/* One direction: a frame that was read and found no room waits here, and nothing is read meanwhile.
 */
struct way {
	int from, to;
	size_t waiting;
	uint8_t frame[FRAME_BYTES];
};

static uint64_t draw(struct relay *r)
{
	/* xorshift64*; good enough to choose packets by */
	r->state ^= r->state >> 12;
	r->state ^= r->state << 25;
	r->state ^= r->state >> 27;
	return r->state * 0x2545f4914f6cdd1dULL;
}

static unsigned be16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

/* An Ethernet frame with UDP to the port of RoCE in IPv4 or IPv6? */
static bool is_roce(const uint8_t *frame, size_t bytes)
{
	const uint8_t *ip = frame + ETHERNET_BYTES;
	size_t header;
	if (bytes < ETHERNET_BYTES + 20)
		return false;
	if (be16(frame + 12) == 0x0800 && ip[9] == IPPROTO_UDP)
		header = (size_t)(ip[0] & 15) * 4;
	else if (be16(frame + 12) == 0x86dd && ip[6] == IPPROTO_UDP)
		header = 40;
	else
		return false;
	return bytes >= ETHERNET_BYTES + header + 8 && be16(ip + header + 2) == ROCE_PORT;
}

/* The kind of a datagram to queue pair 1 with a MAD of the class for communication; 0: it is none.
 */
static unsigned cm_kind(const uint8_t *frame, size_t bytes)
{
	size_t at = ETHERNET_BYTES + (be16(frame + 12) == 0x0800 ? 20 : 40) + 8;
	const uint8_t *bth = frame + at, *mad = bth + 12 + 8;
	if (bytes < at + 12 + 8 + 24 || bth[0] != 0x64 || bth[7] != 1 || mad[1] != 7)
		return 0;
	return be16(mad + 16);
}

/* Is this RoCE packet one to lose? */
static bool is_lost(struct relay *r, const uint8_t *frame, size_t bytes)
{
	unsigned kind = cm_kind(frame, bytes);
	if (r->drops > 0 && kind == r->drop_kind) {
		r->drops--;
		return true;
	}
	return r->one_in != 0 && draw(r) % r->one_in == 0 && kind != DREQ && kind != DREP;
}

static void record(FILE *file, const uint8_t *frame, size_t bytes)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	uint32_t header[4] = {(uint32_t)now.tv_sec, (uint32_t)(now.tv_nsec / 1000), (uint32_t)bytes,
	                      (uint32_t)bytes};
	fwrite(header, sizeof(header), 1, file);
	fwrite(frame, bytes, 1, file);
}

/* Move up to a batch of frames. False: one of the ends is gone. */
static bool carry(struct relay *r, struct way *way)
{
	for (int i = 0; i < BATCH; i++) {
		if (way->waiting == 0) {
			ssize_t got = read(way->from, way->frame, sizeof(way->frame));
			if (got <= 0)
				return got < 0 && (errno == EAGAIN || errno == EINTR);
			way->waiting = (size_t)got;
			bool roce = is_roce(way->frame, way->waiting);
			r->roce += roce;
			if (roce && is_lost(r, way->frame, way->waiting)) {
				r->lost++;
				way->waiting = 0;
				continue;
			}
			if (r->capture != NULL)
				record(r->capture, way->frame, way->waiting);
		}
		if (write(way->to, way->frame, way->waiting) < 0) {
			if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)
				return true;
			if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
				return false;
			r->lost++; /* what the other end will not have: a card drops it, too */
		}
		way->waiting = 0;
		r->passed++;
	}
	return true;
}

static void start_capture(struct relay *r, const char *name)
{
	/* pcap 2.4, microseconds, whole packets, Ethernet */
	static const uint32_t header[6] = {0xa1b2c3d4, 2 | 4 << 16, 0, 0, FRAME_BYTES, 1};
	if (r->capture != NULL)
		fclose(r->capture);
	r->capture = strcmp(name, "-") == 0 ? NULL : fopen(name, "w");
	if (r->capture == NULL && strcmp(name, "-") != 0) {
		printf("no: %s: %s\n", name, strerror(errno));
		return;
	}
	if (r->capture != NULL)
		fwrite(header, sizeof(header), 1, r->capture);
	puts("ok");
}

static void obey(struct relay *r, char *line)
{
	line[strcspn(line, "\n")] = '\0';
	if (strncmp(line, "loss ", 5) == 0) {
		r->one_in = strtoul(line + 5, NULL, 10);
		puts("ok");
	} else if (strncmp(line, "drop ", 5) == 0) {
		char *rest;
		printf("%lu\n", r->drops);
		r->drop_kind = strtoul(line + 5, &rest, 0);
		r->drops = strtoul(rest, NULL, 10);
	} else if (strncmp(line, "capture ", 8) == 0) {
		start_capture(r, line + 8);
	} else if (strcmp(line, "counts") == 0) {
		printf("%lu %lu %lu\n", r->passed, r->roce, r->lost);
		r->passed = r->roce = r->lost = 0;
	} else {
		printf("no: %s?\n", line);
	}
	fflush(stdout);
}

static int open_tap(const char *name, int mtu)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (fd < 0 || any < 0 || ioctl(fd, TUNSETIFF, &request) < 0) {
		fprintf(stderr, "relay: no tap device: %s\n", strerror(errno));
		return -1;
	}
	request.ifr_mtu = mtu;
	if (ioctl(any, SIOCSIFMTU, &request) < 0)
		perror("relay: MTU");
	request.ifr_qlen = 10000; /* a queue that overflows is loss nobody asked for */
	(void)ioctl(any, SIOCSIFTXQLEN, &request); /* not in a namespace of an ordinary user's */
	close(any);
	return fd;
}

int main(int argc, char **argv)
{
	static struct way out, in;
	struct relay relay = {.state = 0x9e3779b97f4a7c15ULL};
	if (argc != 4) {
		fputs("usage: relay TAP SOCKET MTU\n", stderr);
		return 64;
	}
	int guest = atoi(argv[2]);
	int tap = open_tap(argv[1], atoi(argv[3]));
	if (tap < 0 || fcntl(guest, F_SETFL, O_NONBLOCK) < 0)
		return 1;
	out.from = in.to = tap;
	out.to = in.from = guest;
	puts("ok");
	fflush(stdout);
	for (;;) {
		/* A way whose frame waits wants room at its end, the other ones want frames. */
		struct pollfd fds[] = {
		        {0, POLLIN, 0},
		        {tap, (short)((out.waiting ? 0 : POLLIN) | (in.waiting ? POLLOUT : 0)), 0},
		        {guest, (short)((in.waiting ? 0 : POLLIN) | (out.waiting ? POLLOUT : 0)),
		         0},
		};
		if (poll(fds, 3, -1) < 0 && errno != EINTR)
			return 1;
		char line[4096];
		if (fds[0].revents != 0) {
			if (fgets(line, sizeof(line), stdin) == NULL)
				break;
			obey(&relay, line);
		}
		if (!carry(&relay, &out) || !carry(&relay, &in))
			break;
	}
	if (relay.capture != NULL)
		fclose(relay.capture);
	return 0;
}
