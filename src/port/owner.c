/* Which user owns a UDP socket. See owner.h. */
#include "port/owner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/fd.h"
#include "base/log.h"

#define ANSWER_BYTES    4096u
#define ANSWER_MS       100
#define MAX_TABLE_LINES 65536u /* of /proc/net/udp: as many sockets have one address */

void owner_begin(struct owner *owner)
{
	*owner = (struct owner){.uid = geteuid(), .diag = -1};
	owner->sources = calloc(OWNER_SOURCES, sizeof(*owner->sources));
}

void owner_end(struct owner *owner)
{
	if (owner->diag >= 0)
		fd_close(owner->diag);
	free(owner->sources);
	owner->sources = owner->last = NULL;
	owner->diag = -1;
}

static enum owner_is owner_judge(const struct owner *owner, uid_t uid)
{
	return uid == owner->uid || uid == 0 ? OWNER_OURS : OWNER_OTHER;
}

/* Which socket a question is about: the one on @address, and for TCP the one that is connected to
 * @peer. */
struct owner_question {
	const struct udp_address *address, *peer; /* @peer: NULL: UDP */
	uint16_t port, peer_port;
};

/* --- socket diagnosis --- */

static void put_address(uint32_t to[4], const struct udp_address *address)
{
	bool ipv4 = udp_address_is_ipv4(address);
	memcpy(to, ipv4 ? address->gid + 12 : address->gid, ipv4 ? 4 : 16);
}

static bool open_diag(struct owner *owner)
{
	if (owner->diag < 0 && !owner->no_diag) {
		struct timeval limit = {.tv_usec = ANSWER_MS * 1000};
		owner->diag =
		        fd_aside(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
		if (owner->diag >= 0)
			setsockopt(owner->diag, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		owner->no_diag = owner->diag < 0;
	}
	return owner->diag >= 0;
}

/* For UDP, the kernel looks up the socket that a packet to "destination" would reach, so that is
 * where the question puts it; for TCP, the one whose own end is the "source". */
static bool send_question(int diag, const struct owner_question *about, uint32_t sequence)
{
	bool tcp = about->peer != NULL;
	struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 question;
	} message = {
	        .header = {.nlmsg_len = sizeof(message),
	                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
	                   .nlmsg_flags = NLM_F_REQUEST,
	                   .nlmsg_seq = sequence},
	        .question = {.sdiag_family =
	                             udp_address_is_ipv4(about->address) ? AF_INET : AF_INET6,
	                     .sdiag_protocol = tcp ? IPPROTO_TCP : IPPROTO_UDP,
	                     .idiag_states = UINT32_MAX,
	                     .id = {.idiag_dport = htons(tcp ? about->peer_port : about->port),
	                            .idiag_sport = htons(tcp ? about->port : 0),
	                            .idiag_if = about->address->scope,
	                            .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
	put_address(message.question.id.idiag_dst, tcp ? about->peer : about->address);
	if (tcp)
		put_address(message.question.id.idiag_src, about->address);
	return send(diag, &message, sizeof(message), 0) == (ssize_t)sizeof(message);
}

/* OWNER_UNTOLD: the kernel does not support the query (no udp_diag, a filter). */
static enum owner_is ask_diag(struct owner *owner, const struct owner_question *about, uid_t *uid)
{
	static atomic_uint sequences;
	union {
		struct nlmsghdr header;
		uint8_t room[ANSWER_BYTES];
	} answer;
	uint32_t sequence = atomic_fetch_add(&sequences, 1) + 1;
	if (!open_diag(owner) || !send_question(owner->diag, about, sequence))
		return OWNER_UNTOLD;
	for (unsigned tries = 0; tries < 8; tries++) { /* an answer to an earlier one may be late */
		ssize_t got = recv(owner->diag, &answer, sizeof(answer), 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < (ssize_t)sizeof(answer.header))
			return OWNER_UNTOLD;
		if (answer.header.nlmsg_seq != sequence)
			continue;
		if (answer.header.nlmsg_type == NLMSG_ERROR) {
			const struct nlmsgerr *error = NLMSG_DATA(&answer.header);
			if (got < (ssize_t)NLMSG_LENGTH(sizeof(*error)))
				return OWNER_UNTOLD;
			return error->error == -ENOENT ? OWNER_NOBODY : OWNER_UNTOLD;
		}
		const struct inet_diag_msg *told = NLMSG_DATA(&answer.header);
		if (answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
		    got < (ssize_t)NLMSG_LENGTH(sizeof(*told)))
			return OWNER_UNTOLD;
		*uid = told->idiag_uid;
		return owner_judge(owner, *uid);
	}
	return OWNER_UNTOLD;
}

/* --- /proc --- */

/* /proc/net/udp prints addresses as words in host byte order. */
static void address_text(const struct udp_address *address, uint16_t port, char text[48])
{
	uint32_t words[4];
	put_address(words, address);
	if (udp_address_is_ipv4(address))
		snprintf(text, 48, "%08" PRIX32 ":%04X", words[0], port);
	else
		snprintf(text, 48, "%08" PRIX32 "%08" PRIX32 "%08" PRIX32 "%08" PRIX32 ":%04X",
		         words[0], words[1], words[2], words[3], port);
}

static enum owner_is ask_proc(const struct owner *owner, const struct owner_question *about,
                              uid_t *uid)
{
	static const char *const tables[2][2] = {{"/proc/net/udp6", "/proc/net/udp"},
	                                         {"/proc/net/tcp6", "/proc/net/tcp"}};
	char line[512], wanted[48], other[48] = "", own[48], its_peer[48];
	unsigned long its;
	enum owner_is found = OWNER_NOBODY;
	FILE *table = fopen(tables[about->peer != NULL][udp_address_is_ipv4(about->address)], "re");
	if (table == NULL)
		return OWNER_UNTOLD;
	address_text(about->address, about->port, wanted);
	if (about->peer != NULL)
		address_text(about->peer, about->peer_port, other);
	for (unsigned lines = 0; lines < MAX_TABLE_LINES && found == OWNER_NOBODY &&
	                         fgets(line, sizeof(line), table) != NULL;
	     lines++)
		if (sscanf(line, " %*d: %47s %47s %*s %*s %*s %*s %lu", own, its_peer, &its) == 3 &&
		    strcmp(own, wanted) == 0 &&
		    (other[0] == '\0' || strcmp(its_peer, other) == 0)) {
			*uid = (uid_t)its;
			found = owner_judge(owner, *uid);
		}
	fclose(table);
	return found;
}

static enum owner_is owner_ask_all(struct owner *owner, const struct owner_question *about,
                                   uid_t *uid)
{
	enum owner_is is = ask_diag(owner, about, uid);
	if (is != OWNER_UNTOLD)
		return is;
	/* Do not ask again: the kernel module is not loaded, or a filter forbids it. */
	owner->no_diag = true;
	if (owner->diag >= 0)
		fd_close(owner->diag);
	owner->diag = -1;
	return ask_proc(owner, about, uid);
}

enum owner_is owner_ask(struct owner *owner, const struct udp_address *address, uint16_t port,
                        uid_t *uid)
{
	int cancel = cancel_forbid();
	const struct owner_question about = {.address = address, .port = port};
	enum owner_is is = owner_ask_all(owner, &about, uid);
	cancel_restore(cancel);
	return is;
}

enum owner_is owner_of(const struct udp_address *address, uint16_t port, uid_t *uid)
{
	struct owner owner = {.uid = geteuid(), .diag = -1};
	enum owner_is is = owner_ask(&owner, address, port, uid);
	owner_end(&owner);
	return is;
}

enum owner_is owner_ask_tcp(struct owner *owner, const struct udp_address *own, uint16_t own_port,
                            const struct udp_address *peer, uint16_t peer_port, uid_t *uid)
{
	int cancel = cancel_forbid();
	const struct owner_question about = {
	        .address = peer, .peer = own, .port = peer_port, .peer_port = own_port};
	enum owner_is is = owner_ask_all(owner, &about, uid);
	cancel_restore(cancel);
	return is;
}

/* --- packets --- */

/* Cheap, and accurate to a few milliseconds. */
static uint64_t now_coarse_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct owner_source *owner_place_of(struct owner *owner, const struct udp_address *from,
                                           uint16_t port)
{
	uint32_t words[4], hash = port;
	memcpy(words, from->gid, sizeof(words));
	for (unsigned i = 0; i < 4; i++)
		hash = (hash ^ words[i]) * 0x9e3779b1u;
	return &owner->sources[(hash >> 16 ^ hash) % OWNER_SOURCES];
}

static bool is_of(const struct owner_source *source, const struct udp_address *from, uint16_t port)
{
	return source->port == port && udp_address_equal(&source->address, from);
}

static void say_untold(void)
{
	static atomic_bool said;
	if (!atomic_exchange(&said, true))
		log_warn("the kernel does not tell whose sockets are on the loopback "
		         "(NETLINK_SOCK_DIAG and /proc/net/udp are missing): packets of other "
		         "users cannot be told from ours there");
}

static void say_refused(const struct udp_address *from, uint16_t port, uid_t uid)
{
	static atomic_bool said;
	char text[UDP_ADDRESS_TEXT];
	if (atomic_exchange(&said, true))
		return;
	udp_address_print(from, text);
	log_warn("packets from %s port %u are dropped: user %u holds the port; others like "
	         "it will not be logged",
	         text, port, (unsigned)uid);
}

/* Take one from *@left, which is filled up once per second. */
static bool owner_take_one(struct owner *owner, uint32_t *left, uint64_t now)
{
	if (now - owner->asks_ns >= 1000000000u) {
		owner->asks_ns = now;
		owner->asks = OWNER_ASKS_PER_S;
		owner->gone = OWNER_GONE_PER_S;
	}
	if (*left == 0)
		return false;
	--*left;
	return true;
}

static void owner_look_up(struct owner *owner, struct owner_source *source,
                          const struct udp_address *from, uint16_t port, uint64_t now)
{
	uid_t uid = 0;
	uint64_t ours_ns = is_of(source, from, port) ? source->ours_ns : 0;
	enum owner_is is = owner_ask(owner, from, port, &uid);
	*source = (struct owner_source){
	        .address = *from,
	        .port = port,
	        .is = (uint8_t)is,
	        .until_ns = now + (is == OWNER_NOBODY ? OWNER_MISSING_NS : OWNER_FRESH_NS),
	        .ours_ns = is == OWNER_OURS ? now : ours_ns};
	if (is == OWNER_OTHER) {
		source->ours_ns = 0;
		say_refused(from, port, uid);
	} else if (is == OWNER_UNTOLD) {
		say_untold();
	}
}

static bool port_owner_admits(struct owner *owner, const struct owner_source *source, uint64_t now)
{
	if (source->is == OWNER_NOBODY)
		return (source->ours_ns != 0 && now - source->ours_ns < OWNER_LEFT_NS) ||
		       owner_take_one(owner, &owner->gone, now);
	return source->is != OWNER_OTHER;
}

bool owner_proves(struct owner *owner, const struct udp_address *from, uint16_t port)
{
	struct owner_source once = {0}, *source = owner->last;
	uint64_t now = now_coarse_ns();
	bool known = true, admitted;
	if (source == NULL || !is_of(source, from, port))
		source = owner->sources != NULL ? owner_place_of(owner, from, port) : &once;
	if (now >= source->until_ns || !is_of(source, from, port)) {
		known = owner_take_one(owner, &owner->asks, now);
		if (known)
			owner_look_up(owner, source, from, port, now);
	}
	admitted = known && port_owner_admits(owner, source, now);
	owner->last = known && source != &once ? source : NULL;
	owner->refused += !admitted;
	return admitted;
}
