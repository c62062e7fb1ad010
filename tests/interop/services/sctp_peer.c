/* A small RFC 5043 end on the SCTP sockets of a kernel, for the guest of sctp_kernel.py: speaks
 * just enough DDP and RDMAP to check what comes, and sends its own segments in orders of its
 * choice. It shares no code with Heddle. Usage: sctp-peer client ADDRESS PORT | server PORT */
#include <arpa/inet.h>
#include <linux/sctp.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEGMENT 16u
#define CONTROL 17u
#define MOST    1400u
#define STAG    0x12345678u
#define BYTES   10000u

#define CHECK(c)                                               \
	do {                                                   \
		if (!(c)) {                                    \
			printf("line %d: %s\n", __LINE__, #c); \
			exit(1);                               \
		}                                              \
	} while (0)

static int sock;
static uint16_t next_ssn;      /* of ours */
static uint32_t next_send = 1; /* MSNs of ours */

/* What has come, by its number: segments that are early wait here. */
static struct {
	uint8_t bytes[2048];
	size_t length;
	uint32_t ppid;
} came[65536];
static uint16_t expected;

static void put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v);
}

static void put64(uint8_t *p, uint64_t v)
{
	put32(p, (uint32_t)(v >> 32));
	put32(p + 4, (uint32_t)v);
}

static uint32_t get16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t get32(const uint8_t *p)
{
	return get16(p) << 16 | get16(p + 2);
}

static uint64_t get64(const uint8_t *p)
{
	return (uint64_t)get32(p) << 32 | get32(p + 4);
}

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 11 + i / 253);
}

/* --- SCTP --- */

static void shape(int fd)
{
	struct sctp_setadaptation code = {.ssb_adaptation_ind = 1};
	int on = 1;
	CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_ADAPTATION_LAYER, &code, sizeof(code)) == 0);
	CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_RECVRCVINFO, &on, sizeof(on)) == 0);
	CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_NODELAY, &on, sizeof(on)) == 0);
}

static void send_message(uint32_t ppid, const uint8_t *bytes, size_t length)
{
	union {
		struct cmsghdr header;
		uint8_t room[CMSG_SPACE(sizeof(struct sctp_sndinfo))];
	} control = {.header = {.cmsg_level = IPPROTO_SCTP,
	                        .cmsg_type = SCTP_SNDINFO,
	                        .cmsg_len = CMSG_LEN(sizeof(struct sctp_sndinfo))}};
	struct sctp_sndinfo info = {.snd_flags = SCTP_UNORDERED, .snd_ppid = htonl(ppid)};
	struct iovec part = {(void *)(uintptr_t)bytes, length};
	struct msghdr message = {.msg_iov = &part,
	                         .msg_iovlen = 1,
	                         .msg_control = &control,
	                         .msg_controllen = sizeof(control)};
	memcpy(CMSG_DATA(&control.header), &info, sizeof(info));
	CHECK(sendmsg(sock, &message, 0) == (ssize_t)length);
}

/* Take one message off the socket. False: the association has ended. */
static int take_message(void)
{
	uint8_t bytes[4096];
	union {
		struct cmsghdr header;
		uint8_t room[CMSG_SPACE(sizeof(struct sctp_rcvinfo))];
	} control;
	struct iovec part = {bytes, sizeof(bytes)};
	struct msghdr message = {.msg_iov = &part,
	                         .msg_iovlen = 1,
	                         .msg_control = &control,
	                         .msg_controllen = sizeof(control)};
	ssize_t got = recvmsg(sock, &message, 0);
	if (got <= 0)
		return 0;
	const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	struct sctp_rcvinfo info;
	CHECK(header != NULL && header->cmsg_type == SCTP_RCVINFO);
	memcpy(&info, CMSG_DATA(header), sizeof(info));
	CHECK(info.rcv_flags & SCTP_UNORDERED);
	CHECK((message.msg_flags & MSG_EOR) && got >= 2);
	uint16_t ssn = (uint16_t)get16(bytes);
	CHECK(came[ssn].length == 0);
	came[ssn].length = (size_t)got - 2;
	came[ssn].ppid = ntohl(info.rcv_ppid);
	memcpy(came[ssn].bytes, bytes + 2, (size_t)got - 2);
	return 1;
}

/* The next message in order. */
static const uint8_t *next_message(uint32_t ppid, size_t *length)
{
	while (came[expected].length == 0)
		CHECK(take_message());
	CHECK(came[expected].ppid == ppid);
	*length = came[expected].length;
	return came[expected++].bytes;
}

/* --- DDP --- */

struct out {
	uint8_t bytes[2048];
	size_t length;
};

/* Headers of a tagged (@write, or a read response) or untagged segment. Numbers are given in the
 * order of the calls, whenever it is sent. */
static struct out tagged(int response, int last, uint32_t stag, uint64_t to, size_t from,
                         size_t length)
{
	struct out o = {.length = 16 + length};
	put16(o.bytes, next_ssn++);
	o.bytes[2] = (uint8_t)(0x81 | (last ? 0x40 : 0));
	o.bytes[3] = response ? 0x42 : 0x40;
	put32(o.bytes + 4, stag);
	put64(o.bytes + 8, to);
	for (size_t i = 0; i < length; i++)
		o.bytes[16 + i] = pattern(from + i);
	return o;
}

static struct out untagged(uint8_t opcode, uint32_t queue, uint32_t msn, uint32_t mo, int last,
                           const void *payload, size_t length)
{
	struct out o = {.length = 20 + length};
	put16(o.bytes, next_ssn++);
	o.bytes[2] = (uint8_t)(0x01 | (last ? 0x40 : 0));
	o.bytes[3] = (uint8_t)(0x40 | opcode);
	put32(o.bytes + 8, queue);
	put32(o.bytes + 12, msn);
	put32(o.bytes + 16, mo);
	memcpy(o.bytes + 20, payload, length);
	return o;
}

/* Send them from the last to the first. */
static void send_backwards(struct out *list, size_t count)
{
	while (count-- > 0)
		send_message(SEGMENT, list[count].bytes, list[count].length);
}

static struct out send_text(const char *text)
{
	return untagged(3, 0, next_send++, 0, 1, text, strlen(text));
}

/* A whole Send, of which the segments may have come in any order. */
static size_t receive_send(uint8_t *to, uint32_t msn)
{
	size_t got = 0, length;
	for (;;) {
		const uint8_t *s = next_message(SEGMENT, &length);
		CHECK((s[0] & 0x80) == 0 && (s[1] & 15) == 3 && get32(s + 6) == 0);
		CHECK(get32(s + 10) == msn && get32(s + 14) == got);
		memcpy(to + got, s + 18, length - 18);
		got += length - 18;
		if (s[0] & 0x40)
			return got;
	}
}

/* --- roles --- */

static void client(const char *address, uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	int v6 = strchr(address, ':') != NULL;
	uint8_t control[14] = {0, 0, 0, 5, 0, 4, 0, 4, 'k', 'e', 'r', 'n', 'e', 'l'};
	static uint8_t text[20000];
	size_t length;
	sock = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, IPPROTO_SCTP);
	CHECK(sock >= 0);
	shape(sock);
	CHECK(v6 ? inet_pton(AF_INET6, address, &to6.sin6_addr) == 1
	         : inet_pton(AF_INET, address, &to.sin_addr) == 1);
	CHECK((v6 ? connect(sock, (struct sockaddr *)&to6, sizeof(to6))
	          : connect(sock, (struct sockaddr *)&to, sizeof(to))) == 0);
	send_message(CONTROL, control, sizeof(control));
	next_ssn = 1;
	const uint8_t *accept = next_message(CONTROL, &length);
	CHECK(get16(accept) == 6 && length >= 6);

	/* Where it lets us write. */
	CHECK(receive_send(text, 1) == 16);
	uint64_t addr = get64(text);
	uint32_t key = get32(text + 8);

	/* A write of several segments and a Send behind it, backwards. */
	struct out list[12];
	size_t count = 0;
	for (size_t at = 0; at < BYTES; at += MOST, count++)
		list[count] = tagged(0, at + MOST >= BYTES, key, addr + at, at,
		                     BYTES - at < MOST ? BYTES - at : MOST);
	list[count++] = send_text("written");
	send_backwards(list, count);

	/* Two reads of it, the second first. */
	for (unsigned i = 0; i < 2; i++) {
		uint8_t request[28];
		put32(request, 100 + i);
		put64(request + 4, 0);
		put32(request + 12, 3000);
		put32(request + 16, key);
		put64(request + 20, addr + i * 3000);
		list[i] = untagged(1, 1, 1 + i, 0, 1, request, 28);
	}
	send_backwards(list, 2);
	/* Their answers, and a long message of the other end, which may come before or between. */
	size_t answered[2] = {0, 0}, got = 0;
	for (int over = 0; !over || answered[1] < 3000;) {
		const uint8_t *s = next_message(SEGMENT, &length);
		if (s[0] & 0x80) {
			uint32_t i = get32(s + 2) - 100;
			CHECK((s[1] & 15) == 2 && i < 2 && get64(s + 6) == answered[i]);
			CHECK(i == 0 || answered[0] == 3000);
			for (size_t n = 14; n < length; n++)
				CHECK(s[n] == pattern(i * 3000 + answered[i]++));
			continue;
		}
		CHECK((s[1] & 15) == 3 && get32(s + 10) == 2 && get32(s + 14) == got && !over);
		for (size_t n = 18; n < length; n++)
			CHECK(s[n] == pattern(got++));
		over = (s[0] & 0x40) != 0;
	}
	CHECK(got == 12345);
	list[0] = send_text("good");
	send_backwards(list, 1);
	while (take_message()) /* until it ends the association */
		;
	printf("client is content\n");
}

static void server(uint16_t port)
{
	struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	static uint8_t memory[BYTES];
	uint8_t control[8] = {0, 0, 0, 6, 0, 4, 0, 4};
	struct out list[12];
	size_t length, written = 0;
	int listener = socket(AF_INET6, SOCK_STREAM, IPPROTO_SCTP), reads = 0;
	CHECK(listener >= 0);
	shape(listener);
	CHECK(bind(listener, (struct sockaddr *)&own, sizeof(own)) == 0 &&
	      listen(listener, 1) == 0);
	sock = accept(listener, NULL, NULL);
	CHECK(sock >= 0);
	shape(sock);
	const uint8_t *request = next_message(CONTROL, &length);
	CHECK(get16(request) == 5 && length == 6 + 6 && memcmp(request + 6, "heddle", 6) == 0);
	send_message(CONTROL, control, sizeof(control));
	next_ssn = 1;
	/* Writes to our memory, a read of it, and a Send that says that it is all. */
	for (;;) {
		const uint8_t *s = next_message(SEGMENT, &length);
		if (s[0] & 0x80) {
			uint64_t to = get64(s + 6);
			CHECK((s[1] & 15) == 0 && get32(s + 2) == STAG);
			CHECK(to <= BYTES && length - 14 <= BYTES - to && to == written);
			memcpy(memory + to, s + 14, length - 14);
			written += length - 14;
		} else if ((s[1] & 15) == 1) {
			CHECK(written == BYTES && get32(s + 10) == (uint32_t)++reads);
			uint32_t sink = get32(s + 18), bytes = get32(s + 30);
			uint64_t to = get64(s + 22), from = get64(s + 38);
			CHECK(get32(s + 34) == STAG && from <= BYTES && bytes <= BYTES - from);
			size_t count = 0;
			for (size_t at = 0; at < bytes; at += MOST, count++)
				list[count] = tagged(1, at + MOST >= bytes, sink, to + at,
				                     (size_t)from + at,
				                     bytes - at < MOST ? bytes - at : MOST);
			send_backwards(list, count);
		} else {
			CHECK((s[1] & 15) == 3 && length == 18 + 4 &&
			      memcmp(s + 18, "done", 4) == 0);
			break;
		}
	}
	for (size_t i = 0; i < BYTES; i++)
		CHECK(memory[i] == pattern(i));
	CHECK(reads == 1);
	list[0] = send_text("good");
	list[1] = send_text("bye");
	send_backwards(list, 2);
	while (take_message())
		;
	printf("server is content\n");
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "client") == 0)
		client(argv[2], (uint16_t)atoi(argv[3]));
	else if (argc == 3 && strcmp(argv[1], "server") == 0)
		server((uint16_t)atoi(argv[2]));
	else
		return 2;
	return 0;
}
