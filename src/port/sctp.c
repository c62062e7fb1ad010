/* SCTP inside UDP, by usrsctp. See sctp.h. */
#include "port/sctp.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <usrsctp.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/prng.h"
#include "base/siphash.h"
#include "port/sctp_packet.h"

#define DATA_HEADER 16u
#define ALL_PORTS   0x10000u
#define CLASS_MASK  0xfcu /* of a traffic class; the rest is ECN, which is off */
#define OVERHEAD    (SCTP_HEADER_BYTES + DATA_HEADER + 20u)

/* The library is opened when it is first used: few programs use it, and it need not be there for
 * the others. */
#define SCTP_LIBRARY "libusrsctp.so.2"
#define SCTP_CALLS(X)                                         \
	X(usrsctp_accept)                                     \
	X(usrsctp_bind)                                       \
	X(usrsctp_close)                                      \
	X(usrsctp_connect)                                    \
	X(usrsctp_conninput)                                  \
	X(usrsctp_deregister_address)                         \
	X(usrsctp_enable_crc32c_offload)                      \
	X(usrsctp_getsockopt)                                 \
	X(usrsctp_handle_timers)                              \
	X(usrsctp_init_nothreads)                             \
	X(usrsctp_listen)                                     \
	X(usrsctp_recvv)                                      \
	X(usrsctp_register_address)                           \
	X(usrsctp_sendv)                                      \
	X(usrsctp_set_non_blocking)                           \
	X(usrsctp_set_upcall)                                 \
	X(usrsctp_setsockopt)                                 \
	X(usrsctp_shutdown)                                   \
	X(usrsctp_socket)                                     \
	X(usrsctp_sysctl_set_sctp_asconf_enable)              \
	X(usrsctp_sysctl_set_sctp_assoc_rtx_max_default)      \
	X(usrsctp_sysctl_set_sctp_auto_asconf)                \
	X(usrsctp_sysctl_set_sctp_ecn_enable)                 \
	X(usrsctp_sysctl_set_sctp_heartbeat_interval_default) \
	X(usrsctp_sysctl_set_sctp_init_rto_max_default)       \
	X(usrsctp_sysctl_set_sctp_init_rtx_max_default)       \
	X(usrsctp_sysctl_set_sctp_nrsack_enable)              \
	X(usrsctp_sysctl_set_sctp_path_rtx_max_default)       \
	X(usrsctp_sysctl_set_sctp_recvspace)                  \
	X(usrsctp_sysctl_set_sctp_rto_initial_default)        \
	X(usrsctp_sysctl_set_sctp_rto_max_default)            \
	X(usrsctp_sysctl_set_sctp_rto_min_default)            \
	X(usrsctp_sysctl_set_sctp_sendspace)

#define SCTP_POINTER(name) typeof(&name) name;
static struct {
	SCTP_CALLS(SCTP_POINTER)
} lib;
#undef SCTP_POINTER

/* Guards usrsctp and all paths. */
static pthread_mutex_t sctp_lock = PTHREAD_MUTEX_INITIALIZER;
static bool sctp_begun;
static uint64_t sctp_last_ns;
static uint32_t sctp_next_port;
#define PATH_ROWS 4096u
static struct sctp_path *sctp_paths[PATH_ROWS]; /* by name */
static uint64_t sctp_secret[2];                 /* of names: nobody else can tell where they are */
/* Whose packet is being handled, if it has no path: an answer goes back, and nothing is kept. */
static struct sctp_path sctp_passing;
static bool sctp_cookie_taken; /* the packet that is being handled was answered by COOKIE ACK */
static pid_t sctp_pid;         /* whose state it is: a child of fork() must not touch it */

/* --- packets --- */

/* Keep @packet for sctp_end_seen(). */
static void packet_record(struct sctp_end *end, const struct udp_address *peer, uint16_t port,
                          const uint8_t *packet, size_t bytes, uint8_t tos, bool inbound)
{
	struct sctp_seen *seen =
	        end->seen_count < SCTP_MAX_SEEN ? malloc(sizeof(*seen) + bytes) : NULL;
	if (seen == NULL) {
		end->unseen++;
		return;
	}
	*seen = (struct sctp_seen){
	        .peer = *peer, .port = port, .tos = tos, .inbound = inbound, .bytes = bytes};
	memcpy(seen->data, packet, bytes);
	*end->seen_end = seen;
	end->seen_end = &seen->next;
	end->seen_count++;
}

/* The path with this name; NULL: there is none any more. */
static struct sctp_path *path_named(uint64_t name)
{
	struct sctp_path *at = sctp_paths[name % PATH_ROWS];
	while (at != NULL && at->name != name)
		at = at->beside;
	return at == NULL && name == sctp_passing.name ? &sctp_passing : at;
}

/* usrsctp sends a packet. A packet that finds no room is lost; it will be sent again. */
static int packet_out(void *addr, void *buffer, size_t length, uint8_t tos, uint8_t set_df)
{
	struct sctp_path *path = path_named((uintptr_t)addr);
	const uint8_t *packet = buffer;
	int error;
	(void)set_df;
	if (path == NULL || path->end == NULL || path->end->fd < 0 ||
	    length < SCTP_HEADER_BYTES + SCTP_CHUNK_BYTES)
		return 0;
	sctp_cookie_taken |= packet[SCTP_HEADER_BYTES] == SCTP_CHUNK_COOKIE_ACK;
	sctp_packet_seal(buffer, length);
	struct udp_train train = {.to = path->peer,
	                          .port = path->port,
	                          .tos = tos & CLASS_MASK,
	                          .packets = 1,
	                          .packet_bytes = (uint32_t)length,
	                          .bytes = (uint32_t)length,
	                          .data = buffer};
	if (path->end->records)
		packet_record(path->end, &path->peer, path->port, buffer, length, train.tos, false);
	udp_send(path->end->fd, &train, 1, &error);
	return 0;
}

/* False: it is not installed, or is another one. */
static bool sctp_load(void)
{
	void *handle = dlopen(SCTP_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	bool all = handle != NULL;
#define SCTP_FIND(name)                                                         \
	lib.name = all ? (typeof(&name))(uintptr_t)dlsym(handle, #name) : NULL; \
	all = all && lib.name != NULL;
	SCTP_CALLS(SCTP_FIND)
#undef SCTP_FIND
	if (!all)
		log_error("RDMA over SCTP needs %s; install libusrsctp2", SCTP_LIBRARY);
	return all;
}

/* 0 or -errno. */
static int sctp_begin(void)
{
	if (sctp_begun)
		return 0;
	if (!sctp_load())
		return -EPROTONOSUPPORT;
	for (unsigned i = 0; i < 2; i++)
		sctp_secret[i] = prng_secret();
	sctp_begun = true;
	sctp_pid = getpid();
	sctp_next_port = (uint32_t)(clock_now_ns() >> 10); /* not the one of the last process */
	lib.usrsctp_init_nothreads(0, packet_out, NULL);
	lib.usrsctp_enable_crc32c_offload(); /* it is done here */
	lib.usrsctp_sysctl_set_sctp_ecn_enable(0);
	lib.usrsctp_sysctl_set_sctp_asconf_enable(0);
	lib.usrsctp_sysctl_set_sctp_auto_asconf(0);
	lib.usrsctp_sysctl_set_sctp_nrsack_enable(0);
	lib.usrsctp_sysctl_set_sctp_sendspace(SCTP_BUFFER_BYTES);
	lib.usrsctp_sysctl_set_sctp_recvspace(SCTP_BUFFER_BYTES);
	lib.usrsctp_sysctl_set_sctp_rto_min_default(100);
	lib.usrsctp_sysctl_set_sctp_rto_initial_default(SCTP_INIT_MS);
	lib.usrsctp_sysctl_set_sctp_init_rto_max_default(2000);
	lib.usrsctp_sysctl_set_sctp_init_rtx_max_default(SCTP_INIT_TRIES);
	/* A peer that is silent is lost after about eight seconds, if something is on its way, and
	 * else with the next heartbeats. */
	lib.usrsctp_sysctl_set_sctp_rto_max_default(2000);
	lib.usrsctp_sysctl_set_sctp_assoc_rtx_max_default(SCTP_TRIES);
	lib.usrsctp_sysctl_set_sctp_path_rtx_max_default(SCTP_TRIES);
	lib.usrsctp_sysctl_set_sctp_heartbeat_interval_default(SCTP_HEARTBEAT_MS);
	return 0;
}

/* --- paths --- */

/* Different for every pair of UDP ports, and the same whenever the two meet: a cookie has it. */
static uint64_t path_name(const struct sctp_end *end, const struct udp_address *peer, uint16_t port)
{
	struct {
		struct udp_address own, peer;
		uint16_t own_port, port;
	} both;
	memset(&both, 0, sizeof(both));
	both.own = end->own;
	both.peer = *peer;
	both.own_port = end->port;
	both.port = port;
	return siphash(sctp_secret, &both, sizeof(both)) | 1; /* not 0 */
}

static struct sctp_path *path_find(const struct sctp_end *end, const struct udp_address *peer,
                                   uint16_t port)
{
	struct sctp_path *path = path_named(path_name(end, peer, port));
	return path != &sctp_passing && path != NULL && path->end == end ? path : NULL;
}

static void *path_handle(const struct sctp_path *path)
{
	return (void *)(uintptr_t)path->name;
}

/* Take @path from its end. */
static void path_free(struct sctp_path *path)
{
	struct sctp_path **at = &path->end->paths, **row = &sctp_paths[path->name % PATH_ROWS];
	while (*at != path)
		at = &(*at)->next;
	*at = path->next;
	path->end->path_count--;
	while (*row != path)
		row = &(*row)->beside;
	*row = path->beside;
	lib.usrsctp_deregister_address(path_handle(path));
	free(path);
}

/* Which of two paths without sockets is given up for another one? */
static bool path_is_better_kept(const struct sctp_path *path, const struct sctp_path *other)
{
	if ((path->waiting > 0) != (other->waiting > 0))
		return path->waiting > 0;
	return path->heard_ns > other->heard_ns;
}

/* A path to @peer. NULL: no memory, or all are in use. */
static struct sctp_path *path_make(struct sctp_end *end, const struct udp_address *peer,
                                   uint16_t port)
{
	if (end->path_count == SCTP_MAX_PATHS) {
		struct sctp_path *idle = NULL;
		for (struct sctp_path *at = end->paths; at != NULL; at = at->next)
			if (at->users == 0 && (idle == NULL || path_is_better_kept(idle, at)))
				idle = at;
		if (idle == NULL)
			return NULL;
		path_free(idle);
	}
	struct sctp_path *path = calloc(1, sizeof(*path));
	if (path == NULL)
		return NULL;
	*path = (struct sctp_path){.end = end,
	                           .peer = *peer,
	                           .port = port,
	                           .name = path_name(end, peer, port),
	                           .next = end->paths};
	struct sctp_path **row = &sctp_paths[path->name % PATH_ROWS];
	path->beside = *row;
	*row = path;
	end->paths = path;
	end->path_count++;
	lib.usrsctp_register_address(path_handle(path));
	return path;
}

/* --- ends --- */

int sctp_end_adopt(struct sctp_end *end, const struct udp_address *address, int fd)
{
	char interface[IF_NAMESIZE];
	union udp_name name;
	socklen_t bytes = sizeof(name);
	struct udp_address own;
	unsigned mtu = 0;
	*end = (struct sctp_end){.fd = fd, .own = *address};
	pthread_mutex_lock(&sctp_lock);
	int result = sctp_begin();
	pthread_mutex_unlock(&sctp_lock);
	if (result == 0 && getsockname(fd, &name.any, &bytes) != 0)
		result = -errno;
	if (result == 0)
		result = udp_receiver_begin(&end->receiver);
	if (result != 0) {
		fd_close(fd);
		return result;
	}
	udp_address_of(&name, &own, &end->port);
	end->seen_end = &end->seen;
	udp_interface(address, interface, &mtu);
	if (mtu == 0)
		mtu = 1500;
	end->mtu = mtu - (udp_address_is_ipv4(address) ? 28u : 48u);
	if (end->mtu > SCTP_MAX_MTU)
		end->mtu = SCTP_MAX_MTU;
	owner_begin(&end->owner);
	return 0;
}

int sctp_end_open(struct sctp_end *end, const struct udp_address *address, uint16_t port)
{
	int fd = udp_open(address, port);
	return fd < 0 ? fd : sctp_end_adopt(end, address, fd);
}

void sctp_end_replace(struct sctp_end *end, int fd)
{
	pthread_mutex_lock(&sctp_lock);
	if (end->fd >= 0)
		fd_close(end->fd);
	end->fd = fd;
	pthread_mutex_unlock(&sctp_lock);
}

void sctp_end_mute(struct sctp_end *end)
{
	if (end->fd >= 0)
		fd_close(end->fd);
	end->fd = -1;
}

bool sctp_end_share(struct sctp_end *end)
{
	end->ports = calloc(ALL_PORTS / 64, sizeof(*end->ports));
	return end->ports != NULL;
}

void sctp_end_hold(struct sctp_end *end, uint16_t first, uint16_t count, bool ours)
{
	pthread_mutex_lock(&sctp_lock);
	for (uint32_t port = first; port < (uint32_t)first + count && port < ALL_PORTS; port++) {
		uint64_t bit = 1ull << port % 64;
		end->ports[port / 64] =
		        ours ? end->ports[port / 64] | bit : end->ports[port / 64] & ~bit;
	}
	pthread_mutex_unlock(&sctp_lock);
}

/* Is the SCTP port that @packet is for ours? */
static bool packet_is_ours(const struct sctp_end *end, const uint8_t *packet)
{
	uint32_t port = (uint32_t)packet[2] << 8 | packet[3];
	return end->ports == NULL || (end->ports[port / 64] >> port % 64 & 1) != 0;
}

void sctp_end_record(struct sctp_end *end)
{
	pthread_mutex_lock(&sctp_lock);
	end->records = true;
	pthread_mutex_unlock(&sctp_lock);
}

void sctp_end_seen(struct sctp_end *end,
                   void (*take)(void *context, const struct sctp_end *end,
                                const struct sctp_seen *seen),
                   void *context)
{
	pthread_mutex_lock(&sctp_lock);
	struct sctp_seen *seen = end->seen, *next;
	end->seen = NULL;
	end->seen_end = &end->seen;
	end->seen_count = 0;
	pthread_mutex_unlock(&sctp_lock);
	for (; seen != NULL; seen = next) {
		next = seen->next;
		if (take != NULL)
			take(context, end, seen);
		free(seen);
	}
}

void sctp_end_free(struct sctp_end *end)
{
	sctp_end_mute(end);
	owner_end(&end->owner);
	udp_receiver_end(&end->receiver);
	free(end->ports);
	end->ports = NULL;
	if (getpid() != sctp_pid)
		return;
	sctp_end_seen(end, NULL, NULL);
	pthread_mutex_lock(&sctp_lock);
	while (end->paths != NULL)
		path_free(end->paths);
	pthread_mutex_unlock(&sctp_lock);
}

static void path_begun(struct sctp_path *path, const uint8_t *packet, uint8_t tos)
{
	path->waiting++;
	path->begun[path->begun_count++ % SCTP_BEGUN] =
	        (struct sctp_begun){(uint16_t)(packet[0] << 8 | packet[1]), tos & CLASS_MASK};
}

/* One packet has come. False: it is dropped. A stranger can only begin: its INIT is answered and
 * forgotten. Its cookie gets a path, which stays if the cookie was ours. */
static bool packet_in(struct sctp_end *end, const struct udp_came *came, const uint8_t *packet,
                      size_t bytes, uint64_t now_ns)
{
	if (!owner_admits(&end->owner, &end->own, &came->from, came->from_port) ||
	    !sctp_packet_is_sound(packet, bytes) || !packet_is_ours(end, packet))
		return false;
	uint8_t chunk = packet[SCTP_HEADER_BYTES];
	struct sctp_path *path = path_find(end, &came->from, came->from_port), *fresh = NULL;
	if (path == NULL && chunk == SCTP_CHUNK_COOKIE_ECHO)
		path = fresh = path_make(end, &came->from, came->from_port);
	if (path == NULL && chunk == SCTP_CHUNK_INIT) {
		sctp_passing =
		        (struct sctp_path){.end = end,
		                           .peer = came->from,
		                           .port = came->from_port,
		                           .name = path_name(end, &came->from, came->from_port)};
		path = &sctp_passing;
	}
	if (path == NULL)
		return false;
	path->heard_ns = now_ns;
	if (end->records)
		packet_record(end, &came->from, came->from_port, packet, bytes, came->tos, true);
	sctp_cookie_taken = false;
	lib.usrsctp_conninput(path_handle(path), packet, bytes, 0);
	if (chunk == SCTP_CHUNK_COOKIE_ECHO && sctp_cookie_taken)
		path_begun(path, packet, came->tos);
	else if (fresh != NULL)
		path_free(fresh);
	sctp_passing = (struct sctp_path){.end = NULL};
	return true;
}

/* What one call has received: the kernel may have joined packets of one sender. Returns how
 * many. */
static unsigned packets_in(struct sctp_end *end, const struct udp_came *came, uint64_t now_ns)
{
	uint32_t at = 0;
	unsigned count = 0;
	do {
		uint32_t rest = came->bytes - at;
		uint32_t bytes = rest < came->packet_bytes ? rest : came->packet_bytes;
		end->refused += !packet_in(end, came, came->data + at, bytes, now_ns);
		count++;
		at += bytes;
	} while (at < came->bytes);
	return count;
}

unsigned sctp_end_receive(struct sctp_end *end, uint64_t now_ns)
{
	struct udp_came came[UDP_BATCH];
	unsigned count = 0;
	int got = 1;
	pthread_mutex_lock(&sctp_lock);
	while (end->fd >= 0 && got > 0 && count < SCTP_BATCH) {
		got = udp_receive(&end->receiver, end->fd, came);
		for (int i = 0; i < got; i++)
			count += packets_in(end, &came[i], now_ns);
	}
	pthread_mutex_unlock(&sctp_lock);
	return count;
}

void sctp_tick(uint64_t now_ns)
{
	pthread_mutex_lock(&sctp_lock);
	if (sctp_last_ns == 0)
		sctp_last_ns = now_ns;
	uint64_t passed = now_ns > sctp_last_ns ? (now_ns - sctp_last_ns) / 1000000 : 0;
	if (sctp_begun && passed > 0) {
		lib.usrsctp_handle_timers(passed < 1000 ? (uint32_t)passed : 1000);
		sctp_last_ns += passed * 1000000;
	}
	pthread_mutex_unlock(&sctp_lock);
}

/* --- sockets --- */

static void sock_upcall(struct socket *so, void *arg, int flags)
{
	struct sctp_sock *sock = arg;
	(void)so;
	(void)flags;
	atomic_store(&sock->news, true);
	if (sock->notify != NULL)
		sock->notify(sock->context);
}

static bool sock_set(struct socket *so, int option, const void *value, size_t bytes)
{
	return lib.usrsctp_setsockopt(so, IPPROTO_SCTP, option, value, (socklen_t)bytes) == 0;
}

/* What every socket of ours is. 0 or -errno. */
static int sock_shape(struct socket *so, uint32_t adaptation, uint32_t mtu)
{
	static const uint16_t events[] = {SCTP_ASSOC_CHANGE, SCTP_SHUTDOWN_EVENT,
	                                  SCTP_ADAPTATION_INDICATION};
	int on = 1;
	struct sctp_initmsg streams = {.sinit_num_ostreams = 1, .sinit_max_instreams = 1};
	struct sctp_setadaptation code = {.ssb_adaptation_ind = adaptation};
	struct sctp_paddrparams path = {.spp_address.ss_family = AF_CONN,
	                                .spp_pathmtu = mtu,
	                                .spp_flags = SPP_PMTUD_DISABLE};
	struct linger linger = {.l_onoff = 0};
	lib.usrsctp_set_non_blocking(so, 1);
	lib.usrsctp_setsockopt(so, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	bool good = sock_set(so, SCTP_NODELAY, &on, sizeof(on)) &&
	            sock_set(so, SCTP_DISABLE_FRAGMENTS, &on, sizeof(on)) &&
	            sock_set(so, SCTP_RECVRCVINFO, &on, sizeof(on)) &&
	            sock_set(so, SCTP_INITMSG, &streams, sizeof(streams)) &&
	            sock_set(so, SCTP_ADAPTATION_LAYER, &code, sizeof(code)) &&
	            sock_set(so, SCTP_PEER_ADDR_PARAMS, &path, sizeof(path));
	for (unsigned i = 0; good && i < sizeof(events) / sizeof(events[0]); i++) {
		struct sctp_event event = {
		        .se_assoc_id = SCTP_ALL_ASSOC, .se_type = events[i], .se_on = 1};
		good = sock_set(so, SCTP_EVENT, &event, sizeof(event));
	}
	return good ? 0 : -errno;
}

/* Bind to *port, or to a free one of the dynamic range. 0 or errno. */
static int sock_bind(struct socket *so, uint16_t *port)
{
	bool any = *port == 0;
	int error = EADDRINUSE;
	for (uint32_t tries = 0; error == EADDRINUSE && tries < (any ? UDP_SOURCE_PORTS : 1);
	     tries++) {
		if (any)
			*port = (uint16_t)(UDP_FIRST_SOURCE_PORT +
			                   sctp_next_port++ % UDP_SOURCE_PORTS);
		struct sockaddr_conn own = {.sconn_family = AF_CONN, .sconn_port = htons(*port)};
		error = lib.usrsctp_bind(so, (struct sockaddr *)&own, sizeof(own)) != 0 ? errno : 0;
	}
	return error;
}

/* A socket bound to @port, on every path. NULL: errno says why. */
static struct socket *sock_open(uint16_t *port, uint32_t adaptation, uint32_t mtu)
{
	struct socket *so =
	        lib.usrsctp_socket(AF_CONN, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	if (so == NULL)
		return NULL;
	int error = -sock_shape(so, adaptation, mtu);
	if (error == 0)
		error = sock_bind(so, port);
	if (error == 0)
		return so;
	lib.usrsctp_close(so);
	errno = error;
	return NULL;
}

static void sock_begin(struct sctp_sock *sock, struct socket *so, struct sctp_path *path,
                       uint32_t adaptation, void (*notify)(void *context), void *context)
{
	sock->so = so;
	sock->adaptation = adaptation;
	sock->path = path;
	sock->notify = notify;
	sock->context = context;
	atomic_init(&sock->news, true);
	if (path != NULL)
		path->users++;
	lib.usrsctp_set_upcall(so, sock_upcall, sock);
}

int sctp_listen(struct sctp_sock *sock, uint16_t *port, int backlog, uint32_t adaptation,
                uint32_t mtu, void (*notify)(void *context), void *context)
{
	*sock = (struct sctp_sock){.so = NULL};
	pthread_mutex_lock(&sctp_lock);
	struct socket *so = sock_open(port, adaptation, mtu);
	int result = so == NULL ? -errno : 0;
	if (result == 0 && lib.usrsctp_listen(so, backlog) != 0) {
		result = -errno;
		lib.usrsctp_close(so);
	}
	if (result == 0)
		sock_begin(sock, so, NULL, adaptation, notify, context);
	pthread_mutex_unlock(&sctp_lock);
	return result;
}

/* The last time counts: a cookie may come twice. */
static uint8_t class_of_begun(const struct sctp_path *path, uint16_t port)
{
	uint32_t known = path->begun_count < SCTP_BEGUN ? path->begun_count : SCTP_BEGUN;
	for (uint32_t i = 1; i <= known; i++) {
		const struct sctp_begun *begun = &path->begun[(path->begun_count - i) % SCTP_BEGUN];
		if (begun->port == port)
			return begun->traffic_class;
	}
	return 0;
}

int sctp_accept(struct sctp_sock *listener, struct sctp_sock *sock, uint16_t *peer_port)
{
	struct sockaddr_conn peer;
	struct socket *so;
	struct sctp_path *path = NULL;
	*sock = (struct sctp_sock){.so = NULL};
	pthread_mutex_lock(&sctp_lock);
	for (;;) {
		socklen_t bytes = sizeof(peer);
		so = lib.usrsctp_accept(listener->so, (struct sockaddr *)&peer, &bytes);
		path = so != NULL ? path_named((uintptr_t)peer.sconn_addr) : NULL;
		if (so == NULL || path != NULL)
			break;
		lib.usrsctp_close(so); /* others took the place of its path */
	}
	int result = so == NULL ? -errno : 0;
	if (result == 0) {
		lib.usrsctp_set_non_blocking(so, 1);
		*peer_port = ntohs(peer.sconn_port);
		path->waiting -= path->waiting > 0;
		sock_begin(sock, so, path, listener->adaptation, NULL, NULL);
		sock->peer_class = class_of_begun(path, *peer_port);
	}
	pthread_mutex_unlock(&sctp_lock);
	return result == -EWOULDBLOCK ? -EAGAIN : result;
}

void sctp_set_notify(struct sctp_sock *sock, void (*notify)(void *context), void *context)
{
	pthread_mutex_lock(&sctp_lock);
	sock->notify = notify;
	sock->context = context;
	if (sock->so != NULL)
		lib.usrsctp_set_upcall(sock->so, sock_upcall, sock);
	atomic_store(&sock->news, true);
	pthread_mutex_unlock(&sctp_lock);
}

int sctp_connect(struct sctp_sock *sock, struct sctp_end *end, const struct udp_address *peer,
                 uint16_t udp_port, uint16_t port, uint16_t *own_port, uint32_t adaptation,
                 void (*notify)(void *context), void *context)
{
	int result = 0;
	*sock = (struct sctp_sock){.so = NULL};
	pthread_mutex_lock(&sctp_lock);
	struct sctp_path *path = path_find(end, peer, udp_port);
	if (path == NULL)
		path = path_make(end, peer, udp_port);
	struct socket *so = path != NULL ? sock_open(own_port, adaptation, end->mtu) : NULL;
	if (so == NULL) {
		result = path == NULL ? -ENOMEM : -errno;
	} else {
		struct sockaddr_conn to = {.sconn_family = AF_CONN,
		                           .sconn_port = htons(port),
		                           .sconn_addr = path_handle(path)};
		sock_begin(sock, so, path, adaptation, notify, context);
		if (lib.usrsctp_connect(so, (struct sockaddr *)&to, sizeof(to)) != 0 &&
		    errno != EINPROGRESS)
			result = -errno;
	}
	pthread_mutex_unlock(&sctp_lock);
	if (result != 0 && sock->so != NULL)
		sctp_close(sock, true);
	return result;
}

bool sctp_set_class(struct sctp_sock *sock, uint8_t traffic_class)
{
	struct sctp_paddrparams path = {.spp_address.ss_family = AF_CONN,
	                                .spp_dscp = traffic_class & CLASS_MASK,
	                                .spp_flags = SPP_DSCP};
	pthread_mutex_lock(&sctp_lock);
	bool good = sock_set(sock->so, SCTP_PEER_ADDR_PARAMS, &path, sizeof(path));
	pthread_mutex_unlock(&sctp_lock);
	return good;
}

int sctp_send(struct sctp_sock *sock, uint32_t ppid, const void *message, size_t bytes)
{
	struct sctp_sndinfo info = {.snd_flags = SCTP_UNORDERED, .snd_ppid = htonl(ppid)};
	pthread_mutex_lock(&sctp_lock);
	ssize_t sent = lib.usrsctp_sendv(sock->so, message, bytes, NULL, 0, &info, sizeof(info),
	                                 SCTP_SENDV_SNDINFO, 0);
	int result = sent < 0 ? -errno : 0;
	pthread_mutex_unlock(&sctp_lock);
	return result == -EWOULDBLOCK || result == -ENOBUFS ? -EAGAIN : result;
}

/* Why @sock broke; usrsctp tells it once. */
static enum sctp_came sock_broken(struct sctp_sock *sock, int error)
{
	socklen_t bytes = sizeof(error);
	if (error == 0)
		lib.usrsctp_getsockopt(sock->so, SOL_SOCKET, SO_ERROR, &error, &bytes);
	if (sock->error == 0)
		sock->error = error != 0 ? -error : -ECONNRESET;
	return SCTP_CAME_BROKEN;
}

/* A message from usrsctp itself. */
static enum sctp_came sock_notification(struct sctp_sock *sock, const union sctp_notification *note,
                                        size_t bytes)
{
	if (bytes < sizeof(note->sn_header))
		return SCTP_CAME_NOTHING;
	switch (note->sn_header.sn_type) {
	case SCTP_ASSOC_CHANGE:
		/* What the peer announces follows at once; see sctp_receive(). */
		if (note->sn_assoc_change.sac_state == SCTP_COMM_UP)
			return SCTP_CAME_NOTHING;
		return note->sn_assoc_change.sac_state == SCTP_SHUTDOWN_COMP ? SCTP_CAME_CLOSED
		                                                             : sock_broken(sock, 0);
	case SCTP_ADAPTATION_INDICATION:
		if (note->sn_adaptation_event.sai_adaptation_ind != sock->adaptation)
			return sock_broken(sock, EPROTO);
		sock->up = true;
		return SCTP_CAME_UP;
	case SCTP_SHUTDOWN_EVENT:
		return SCTP_CAME_CLOSED;
	default:
		return SCTP_CAME_NOTHING;
	}
}

/* Is the association established, as far as usrsctp is concerned? */
static bool sock_is_open(const struct sctp_sock *sock)
{
	struct sctp_status status = {0};
	socklen_t bytes = sizeof(status);
	return lib.usrsctp_getsockopt(sock->so, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) == 0 &&
	       status.sstat_state == SCTP_ESTABLISHED;
}

bool sctp_is_settled(struct sctp_sock *sock)
{
	struct sctp_status status = {0};
	socklen_t bytes = sizeof(status);
	pthread_mutex_lock(&sctp_lock);
	bool known =
	        lib.usrsctp_getsockopt(sock->so, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) == 0;
	pthread_mutex_unlock(&sctp_lock);
	return !known || status.sstat_unackdata == 0;
}

enum sctp_came sctp_receive(struct sctp_sock *sock, void *to, size_t max, size_t *bytes,
                            uint32_t *ppid)
{
	enum sctp_came came = SCTP_CAME_NOTHING;
	bool more = true;
	pthread_mutex_lock(&sctp_lock);
	while (came == SCTP_CAME_NOTHING && more) {
		struct sctp_rcvinfo info = {0};
		socklen_t info_bytes = sizeof(info), from_bytes = 0;
		unsigned kind = 0;
		int flags = 0;
		ssize_t got = lib.usrsctp_recvv(sock->so, to, max, NULL, &from_bytes, &info,
		                                &info_bytes, &kind, &flags);
		more = got > 0;
		if (got < 0 && errno != EWOULDBLOCK && errno != EAGAIN)
			came = sock->up || errno != ENOTCONN ? sock_broken(sock, errno)
			                                     : SCTP_CAME_NOTHING;
		else if (got < 0 && !sock->up && sock_is_open(sock))
			came = sock_broken(sock, EPROTO); /* it has announced nothing */
		else if (got == 0)
			came = SCTP_CAME_CLOSED;
		else if (got > 0 && (flags & MSG_NOTIFICATION))
			came = sock_notification(sock, to, (size_t)got);
		else if (got > 0 && !sock->up)
			came = sock_broken(sock, EPROTO);
		else if (got > 0) {
			/* Part of a message that is longer than ours are. */
			came = flags & MSG_EOR ? SCTP_CAME_MESSAGE : sock_broken(sock, EMSGSIZE);
			*bytes = (size_t)got;
			*ppid = ntohl(info.rcv_ppid);
		}
	}
	pthread_mutex_unlock(&sctp_lock);
	return came;
}

bool sctp_is_broken(struct sctp_sock *sock)
{
	int error = 0;
	socklen_t bytes = sizeof(error);
	pthread_mutex_lock(&sctp_lock);
	lib.usrsctp_getsockopt(sock->so, SOL_SOCKET, SO_ERROR, &error, &bytes);
	if (error != 0)
		sock_broken(sock, error);
	pthread_mutex_unlock(&sctp_lock);
	return sock->error != 0;
}

uint32_t sctp_longest(const struct sctp_end *end)
{
	return end->mtu - OVERHEAD;
}

void sctp_finish(struct sctp_sock *sock)
{
	pthread_mutex_lock(&sctp_lock);
	lib.usrsctp_shutdown(sock->so, SHUT_WR);
	pthread_mutex_unlock(&sctp_lock);
}

void sctp_close(struct sctp_sock *sock, bool abort)
{
	if (sock->so == NULL)
		return;
	struct linger linger = {.l_onoff = 1, .l_linger = 0};
	if (getpid() != sctp_pid) {
		sock->so = NULL;
		return;
	}
	pthread_mutex_lock(&sctp_lock);
	lib.usrsctp_set_upcall(sock->so, NULL, NULL);
	if (abort)
		lib.usrsctp_setsockopt(sock->so, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	lib.usrsctp_close(sock->so);
	if (sock->path != NULL)
		sock->path->users--;
	pthread_mutex_unlock(&sctp_lock);
	sock->so = NULL;
}
