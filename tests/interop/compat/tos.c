/* RDMA_OPTION_ID_TOS through stock librdmacm: the type of service that the active side sets is in
 * its path, in both queue pairs, in the address of a datagram's peer and, over UDP, in the IP
 * header of every packet of the connection, in both directions. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <rdma/rdma_cma.h>

#define TOS       0xb8u /* expedited forwarding (RFC 3246) */
#define ECN_BITS  3u
#define ROCE_PORT 4791u
#define WAIT_MS   10000
#define ROUNDS    16

static struct rdma_event_channel *here, *there;
static int raw = -1; /* sees the packets of the host; -1: there are none */
static char dir[] = "/tmp/heddle-tos-XXXXXX", *own_dir; /* of an agent of its own; NULL: none */

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel,
                                        enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
	assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	assert_int_equal(event->event, type);
	return event;
}

static void expect_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	assert_int_equal(rdma_ack_cm_event(next_event(channel, type)), 0);
}

static struct rdma_cm_id *listen_at(enum rdma_port_space space)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_cm_id *id;
	assert_int_equal(rdma_create_id(there, &id, NULL, space), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(id, 1), 0);
	return id;
}

static struct rdma_cm_id *route_to(struct rdma_cm_id *listener, enum rdma_port_space space)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = rdma_get_src_port(listener),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	uint8_t tos = TOS;
	struct rdma_cm_id *id;
	assert_int_equal(rdma_create_id(here, &id, NULL, space), 0);
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 2), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), 0);
	expect_event(here, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	expect_event(here, RDMA_CM_EVENT_ROUTE_RESOLVED);
	assert_int_equal(id->route.num_paths, 1);
	assert_int_equal(id->route.path_rec->traffic_class, TOS);
	return id;
}

static void make_qp(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
	        .qp_type = type,
	        .sq_sig_all = 1,
	        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
}

static uint8_t class_of(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	assert_int_equal(ibv_query_qp(id->qp, &attr, IBV_QP_AV, &init), 0);
	return attr.ah_attr.grh.traffic_class;
}

static void await(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;
	for (long i = 0; (count = ibv_poll_cq(cq, 1, &wc)) == 0; i++)
		assert_true(i < 2000000000l);
	assert_int_equal(count, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* Writes: each is a packet there and an acknowledgement back. */
static void write_some(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
	static uint8_t source[64], target[64];
	struct ibv_mr *read = ibv_reg_mr(from->pd, source, sizeof(source), 0);
	struct ibv_mr *written = ibv_reg_mr(to->pd, target, sizeof(target),
	                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_true(read != NULL && written != NULL);
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_sge piece = {(uintptr_t)source, sizeof(source), read->lkey};
		struct ibv_send_wr *bad, wr = {.sg_list = &piece,
		                               .num_sge = 1,
		                               .opcode = IBV_WR_RDMA_WRITE,
		                               .wr.rdma = {(uintptr_t)target, written->rkey}};
		assert_int_equal(ibv_post_send(from->qp, &wr, &bad), 0);
		await(from->send_cq);
	}
	ibv_dereg_mr(read);
	ibv_dereg_mr(written);
}

/* The RoCE packets that a raw socket has seen, all from this connection's process: how many had the
 * class, and how many had none. Packets of connection management have none. */
static unsigned seen(unsigned *others)
{
	uint8_t packet[8192];
	unsigned count = 0;
	ssize_t bytes;
	while ((bytes = recv(raw, packet, sizeof(packet), MSG_DONTWAIT)) > 0) {
		struct iphdr ip;
		struct udphdr udp;
		memcpy(&ip, packet, sizeof(ip));
		if ((size_t)bytes < sizeof(ip) + sizeof(udp) + 12u)
			continue;
		memcpy(&udp, packet + sizeof(ip), sizeof(udp));
		uint8_t opcode = packet[sizeof(ip) + sizeof(udp)];
		if (ntohs(udp.uh_dport) != ROCE_PORT || opcode >> 5 != 0) /* reliable connections */
			continue;
		if ((ip.tos & ~ECN_BITS) == TOS)
			count++;
		else
			(*others)++;
	}
	return count;
}

static void connections_have_it(void **state)
{
	struct rdma_cm_id *listener = listen_at(RDMA_PS_TCP);
	struct rdma_cm_id *active = route_to(listener, RDMA_PS_TCP), *passive;
	struct rdma_conn_param param = {.retry_count = 7};
	(void)state;
	if (raw >= 0) { /* what came before does not count */
		unsigned others;
		(void)seen(&others);
	}
	make_qp(active, IBV_QPT_RC);
	assert_int_equal(rdma_connect(active, &param), 0);
	struct rdma_cm_event *event = next_event(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive = event->id;
	rdma_ack_cm_event(event);
	make_qp(passive, IBV_QPT_RC);
	assert_int_equal(rdma_accept(passive, &param), 0);
	expect_event(here, RDMA_CM_EVENT_ESTABLISHED);
	expect_event(there, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(class_of(active), TOS);
	assert_int_equal(class_of(passive), TOS);
	write_some(active, passive);
	if (raw >= 0) {
		unsigned others = 0;
		assert_true(seen(&others) >= 2 * ROUNDS);
		assert_int_equal(others, 0);
	}
	rdma_destroy_qp(active);
	rdma_destroy_qp(passive);
	rdma_destroy_id(active);
	rdma_destroy_id(passive);
	rdma_destroy_id(listener);
}

static void addresses_of_datagrams_have_it(void **state)
{
	struct rdma_cm_id *listener = listen_at(RDMA_PS_UDP);
	struct rdma_cm_id *active = route_to(listener, RDMA_PS_UDP);
	struct rdma_conn_param param = {.retry_count = 7};
	(void)state;
	make_qp(active, IBV_QPT_UD);
	assert_int_equal(rdma_connect(active, &param), 0);
	struct rdma_cm_event *event = next_event(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *passive = event->id;
	rdma_ack_cm_event(event);
	make_qp(passive, IBV_QPT_UD);
	param.qp_num = passive->qp->qp_num;
	assert_int_equal(rdma_accept(passive, &param), 0);
	event = next_event(here, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(event->param.ud.ah_attr.grh.traffic_class, TOS);
	rdma_ack_cm_event(event);
	rdma_destroy_qp(active);
	rdma_destroy_qp(passive);
	rdma_destroy_id(active);
	rdma_destroy_id(passive);
	rdma_destroy_id(listener);
}

/* --- setup --- */

static bool put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return done;
}

/* An ordinary user may look at the packets of a network of his own alone, which needs an agent of
 * its own, too. */
static bool own_network(void)
{
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	char map[64];
	snprintf(map, sizeof(map), "%u %u 1\n", geteuid(), geteuid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 || !put_text("/proc/self/uid_map", map))
		return false;
	int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool up = control >= 0 && ioctl(control, SIOCSIFFLAGS, &lo) == 0;
	if (control >= 0)
		close(control);
	own_dir = up ? mkdtemp(dir) : NULL;
	return own_dir != NULL && setenv("HEDDLE_DIR", own_dir, 1) == 0;
}

/* The agent ends by itself when nobody has talked to it for a while. */
static void drop_own_dir(void)
{
	DIR *entries = own_dir != NULL ? opendir(own_dir) : NULL;
	for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;)
		unlinkat(dirfd(entries), entry->d_name, 0);
	if (entries != NULL)
		closedir(entries);
	if (own_dir != NULL)
		rmdir(own_dir);
}

static bool open_raw(void)
{
	raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
	if (raw < 0 && own_network())
		raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
	return raw >= 0;
}

static int open_channels(void **state)
{
	(void)state;
	here = rdma_create_event_channel();
	there = rdma_create_event_channel();
	return here != NULL && there != NULL ? 0 : -1;
}

static int close_channels(void **state)
{
	(void)state;
	if (here != NULL)
		rdma_destroy_event_channel(here);
	if (there != NULL)
		rdma_destroy_event_channel(there);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(connections_have_it),
	        cmocka_unit_test(addresses_of_datagrams_have_it),
	};
	const char *local = getenv("HEDDLE_LOCAL");
	if (local != NULL && strcmp(local, "off") == 0 && !open_raw()) {
		printf("skipped: looking at packets takes raw sockets, or a user namespace in "
		       "which they are allowed\n");
		return 77;
	}
	int devices = 0;
	struct ibv_context **list = rdma_get_devices(&devices);
	if (list != NULL)
		rdma_free_devices(list);
	if (devices == 0) {
		fprintf(stderr, "there is no RDMA device: start this program with `heddle run'\n");
		return 1;
	}
	int failed = cmocka_run_group_tests(tests, open_channels, close_channels);
	drop_own_dir();
	return failed;
}
