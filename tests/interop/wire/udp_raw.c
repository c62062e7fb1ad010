/* What the carrier puts on a network, byte for byte, and what it makes of packets with headers that
 * no socket of ours would write (MISSION X2, DESIGN section 4). The network is a TUN interface in a
 * namespace of the test's own: this program reads and writes whole IP datagrams there and judges
 * them with the codec for captures, which takes the IP header as it is. Skipped (exit status 77)
 * where there are no such namespaces. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter/net/udp.h"
#include "wire/roce.h"

#define WAIT_MS 10000
#define MTU     5000

static int tun;
static struct udp_address here[2], there[2]; /* of IPv4, of IPv6 */
static const char *const names[2] = {"IPv4", "IPv6"};

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t done = write(fd, text, strlen(text));
		(void)done; /* read-only in some containers */
		close(fd);
	}
}

static bool set_up_ipv4(int control, struct ifreq *request)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	inet_pton(AF_INET, "10.72.0.1", &address.sin_addr);
	memcpy(&request->ifr_addr, &address, sizeof(address));
	if (ioctl(control, SIOCSIFADDR, request) != 0)
		return false;
	inet_pton(AF_INET, "255.255.255.0", &address.sin_addr);
	memcpy(&request->ifr_netmask, &address, sizeof(address));
	return ioctl(control, SIOCSIFNETMASK, request) == 0;
}

static bool set_up_ipv6(int index)
{
	/* struct in6_ifreq of <linux/ipv6.h>, which cannot be had together with <netinet/in.h>. */
	struct {
		struct in6_addr ifr6_addr;
		uint32_t ifr6_prefixlen;
		int ifr6_ifindex;
	} request = {.ifr6_prefixlen = 64, .ifr6_ifindex = index};
	int control = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	/* Whether somebody has the address already is not to be asked: it could not be used
	 * meanwhile. */
	write_file("/proc/sys/net/ipv6/conf/all/accept_dad", "0");
	write_file("/proc/sys/net/ipv6/conf/heddle/accept_dad", "0");
	inet_pton(AF_INET6, "fd72::1", &request.ifr6_addr);
	bool done = control >= 0 && ioctl(control, SIOCSIFADDR, &request) == 0;
	if (control >= 0)
		close(control);
	struct udp_address address;
	udp_address_parse("fd72::1", &address);
	for (int tries = 0; done && tries < WAIT_MS / 10; tries++) {
		int sock = udp_open(&address, 0);
		if (sock >= 0) {
			close(sock);
			return true;
		}
		poll(NULL, 0,
		     10); /* it is asked all the same, and nothing tells when that is over */
	}
	return false;
}

/* A network of our own with an interface whose other end is this program. */
static bool set_up(void)
{
	struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI, .ifr_name = "heddle"};
	if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
		return false;
	tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (tun < 0 || control < 0 || ioctl(tun, TUNSETIFF, &request) != 0 ||
	    ioctl(control, SIOCGIFINDEX, &request) != 0)
		return false;
	int index = request.ifr_ifindex;
	if (!set_up_ipv4(control, &request))
		return false;
	request.ifr_mtu = MTU;
	if (ioctl(control, SIOCSIFMTU, &request) != 0 ||
	    ioctl(control, SIOCGIFFLAGS, &request) != 0)
		return false;
	request.ifr_flags |= IFF_UP | IFF_RUNNING;
	bool up = ioctl(control, SIOCSIFFLAGS, &request) == 0;
	close(control);
	udp_address_parse("10.72.0.1", &here[0]);
	udp_address_parse("10.72.0.2", &there[0]);
	udp_address_parse("fd72::1", &here[1]);
	udp_address_parse("fd72::2", &there[1]);
	return up && set_up_ipv6(index);
}

/* The next RoCEv2 datagram on the network; others (IPv6 has much to say) are passed over. */
static enum ib_verdict next(struct roce_path *path, struct ib_packet *packet)
{
	static uint8_t datagram[65536];
	struct pollfd readable = {.fd = tun, .events = POLLIN};
	for (int i = 0; i < 1000; i++) {
		if (poll(&readable, 1, WAIT_MS) <= 0)
			break;
		ssize_t got = read(tun, datagram, sizeof(datagram));
		enum ib_verdict verdict =
		        roce_decode(path, packet, datagram, got > 0 ? (size_t)got : 0);
		if (verdict != IB_BAD_NEXT_HEADER)
			return verdict;
	}
	fail_msg("nothing came");
	return IB_TRUNCATED;
}

static void fill(struct ib_packet *packet, const uint8_t *payload, size_t bytes, uint32_t psn)
{
	*packet = (struct ib_packet){.payload = payload, .payload_bytes = bytes};
	packet->bth.opcode = 0x04; /* RC SEND only */
	packet->bth.dest_qp = 0x4321;
	packet->bth.psn = psn;
	packet->bth.pkey = 0xffff;
}

static void put(struct udp_wire *wire, const struct path *path, uint32_t psn, size_t bytes)
{
	uint8_t data[4096];
	struct ib_packet packet;
	memset(data, (int)psn, sizeof(data));
	fill(&packet, data, bytes, psn);
	size_t need = IB_BTH_BYTES + bytes + ib_pad_bytes(bytes);
	uint8_t *room = wire->carrier.reserve(wire->carrier.context, path, need);
	assert_non_null(room);
	assert_int_equal(ib_transport_encode(&packet, room, need), need);
	wire->carrier.commit(wire->carrier.context, path, need);
}

/* Every packet of every train: the IP header that the host wrote is the one that the ICRC covers.
 */
static void sent(int family)
{
	static struct udp_wire wire;
	static const size_t sizes[] = {4096, 1024, 4096, 4096, 4096, 4096, 4096, 4096, 4096,
	                               4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096,
	                               4096, 100,  7,    0,    0,    512,  512,  3};
	enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
	struct path path = {.ip = {.src_port = 0xd00d, .traffic_class = 0x20}};
	memcpy(path.ip.dgid, there[family].gid, 16);
	assert_int_equal(udp_wire_begin(&wire, &here[family], -1, 4096), 0);
	for (unsigned i = 0; i < COUNT; i++)
		put(&wire, &path, i, sizes[i]);
	wire.carrier.flush(wire.carrier.context);
	unsigned highest_id = 0;
	for (unsigned i = 0; i < COUNT; i++) {
		struct roce_path seen;
		struct ib_packet packet;
		enum ib_verdict verdict = next(&seen, &packet);
		if (verdict != IB_OK)
			fail_msg("%s, packet %u: %s", names[family], i, ib_verdict_str(verdict));
		assert_int_equal(packet.bth.psn, i);
		assert_int_equal(packet.payload_bytes, sizes[i]);
		assert_memory_equal(seen.sgid, here[family].gid, 16);
		assert_memory_equal(seen.dgid, there[family].gid, 16);
		assert_int_equal(seen.traffic_class, 0x20 | UDP_ECT);
		assert_int_equal(seen.hop_limit, UDP_HOP_LIMIT);
		assert_true(seen.src_port >= 0xc000);
		assert_true(family != 0 || seen.dont_fragment);
		if (family == 0 && seen.ip_id > highest_id)
			highest_id = seen.ip_id;
	}
	/* Else the trains were none, and this has shown little. */
	assert_true(family != 0 || highest_id == 14);
	udp_wire_end(&wire);
}

static void test_sent_ipv4(void **state)
{
	(void)state;
	sent(0);
}

static void test_sent_ipv6(void **state)
{
	(void)state;
	sent(1);
}

/* --- and the other way --- */

static struct {
	unsigned count;
	struct path path;
	bool congested;
	uint32_t psn;
} last;

static void take(void *context, const struct path *came, bool congested,
                 const struct ib_packet *packet)
{
	(void)context;
	last.count++;
	last.path = *came;
	last.congested = congested;
	last.psn = packet->bth.psn;
}

static bool arrives(struct udp_wire *wire, const struct roce_path *path, uint32_t psn, int damage)
{
	uint8_t datagram[512], payload[64] = {1, 2, 3};
	struct ib_packet packet;
	fill(&packet, payload, sizeof(payload), psn);
	size_t bytes = roce_encode(path, &packet, datagram, sizeof(datagram));
	assert_true(bytes > 0);
	if (damage > 0)
		datagram[bytes - (size_t)damage] ^= 0x10;
	unsigned before = last.count;
	assert_int_equal(write(tun, datagram, bytes), bytes);
	struct pollfd readable = {.fd = wire->sock, .events = POLLIN};
	assert_true(poll(&readable, 1, WAIT_MS) > 0);
	udp_wire_receive(wire);
	return last.count == before + 1;
}

static void came(int family)
{
	static struct udp_wire wire;
	static const uint16_t ids[] = {0, 1, 0x1234, 0xffff, 17, 0x8000};
	int sock = udp_open(&here[family], UDP_ROCE_PORT);
	assert_true(sock >= 0);
	assert_int_equal(udp_wire_begin(&wire, &here[family], sock, 4096), 0);
	wire.take = take;
	struct roce_path path = {.src_port = 49999, .dont_fragment = true, .hop_limit = 9};
	memcpy(path.sgid, there[family].gid, 16);
	memcpy(path.dgid, here[family].gid, 16);
	/* As rdma_rxe sends over IPv4: any identification, no UDP checksum. */
	path.udp_checksum = family == 1;
	for (unsigned i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		path.ip_id = ids[i];
		path.traffic_class = (uint8_t)(i % 4);
		assert_true(arrives(&wire, &path, i, 0));
		assert_int_equal(last.psn, i);
		assert_int_equal(last.path.ip.ip_id, family == 0 ? ids[i] : 0);
		assert_int_equal(last.path.ip.src_port, 49999);
		assert_int_equal(last.path.ip.hop_limit, 9);
		assert_int_equal(last.path.ip.traffic_class, i % 4);
		assert_int_equal(last.congested, i % 4 == UDP_CE);
		assert_memory_equal(last.path.ip.sgid, there[family].gid, 16);
		assert_memory_equal(last.path.ip.dgid, here[family].gid, 16);
	}
	path.udp_checksum = false;
	for (int damage = 1; damage < 70 && family == 0; damage++)
		assert_false(arrives(&wire, &path, 0, damage));
	udp_wire_end(&wire);
}

static void test_came_ipv4(void **state)
{
	(void)state;
	came(0);
}

static void test_came_ipv6(void **state)
{
	(void)state;
	came(1);
}

/* Datagrams to groups leave by the interface of the address and come in from there; one's own do
 * not come back. */
static void group(int family, const char *name)
{
	static struct udp_wire wire;
	struct path path = {.kind = PATH_ROCE};
	struct roce_path seen;
	struct ib_packet packet;
	assert_int_equal(inet_pton(AF_INET6, name, path.ip.dgid), 1);
	assert_int_equal(udp_wire_begin(&wire, &here[family], -1, 4096), 0);
	int sock = udp_wire_join(&wire, path.ip.dgid);
	assert_true(sock >= 0);
	wire.take = take;
	put(&wire, &path, 1, 64);
	wire.carrier.flush(wire.carrier.context);
	assert_int_equal(next(&seen, &packet), IB_OK);
	assert_memory_equal(seen.sgid, here[family].gid, 16);
	assert_memory_equal(seen.dgid, path.ip.dgid, 16);
	assert_int_equal(seen.hop_limit, UDP_HOP_LIMIT);
	unsigned before = last.count;
	assert_int_equal(udp_wire_receive_groups(&wire), 0);
	uint8_t datagram[512];
	fill(&packet, (const uint8_t *)"group", 5, 9);
	packet.bth.dest_qp = 0xffffff;
	struct roce_path from = {.dont_fragment = true,
	                         .src_port = 50000,
	                         .ip_id = 77,
	                         .hop_limit = 5,
	                         .udp_checksum = true};
	memcpy(from.sgid, there[family].gid, 16);
	memcpy(from.dgid, path.ip.dgid, 16);
	size_t bytes = roce_encode(&from, &packet, datagram, sizeof(datagram));
	assert_int_equal(write(tun, datagram, bytes), bytes);
	struct pollfd readable = {.fd = sock, .events = POLLIN};
	assert_true(poll(&readable, 1, WAIT_MS) > 0);
	assert_int_equal(udp_wire_receive_groups(&wire), 1);
	assert_int_equal(last.count, before + 1);
	assert_int_equal(last.psn, 9);
	assert_memory_equal(last.path.ip.dgid, path.ip.dgid, 16);
	assert_memory_equal(last.path.ip.sgid, there[family].gid, 16);
	udp_wire_end(&wire);
}

static void test_group_ipv4(void **state)
{
	(void)state;
	group(0, "::ffff:224.77.0.1");
}

static void test_group_ipv6(void **state)
{
	(void)state;
	group(1, "ff0e::77");
}

/* Packets that are longer than the interface takes are refused one by one, and trains go on
 * working. */
static void test_too_long(void **state)
{
	(void)state;
	static struct udp_wire wire;
	struct path path = {.kind = PATH_ROCE};
	memcpy(path.ip.dgid, there[0].gid, 16);
	struct ifreq request = {.ifr_name = "heddle", .ifr_mtu = 2000};
	int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(ioctl(control, SIOCSIFMTU, &request), 0);
	close(control);
	assert_int_equal(udp_wire_begin(&wire, &here[0], -1, 4096), 0);
	for (unsigned i = 0; i < 3; i++)
		put(&wire, &path, i, 4096);
	wire.carrier.flush(wire.carrier.context);
	assert_int_equal(wire.counts.refused, 3);
	assert_true(wire.trains_work);
	put(&wire, &path, 3, 1024);
	wire.carrier.flush(wire.carrier.context);
	struct roce_path seen;
	struct ib_packet packet;
	assert_int_equal(next(&seen, &packet), IB_OK);
	assert_int_equal(packet.bth.psn, 3);
	udp_wire_end(&wire);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_sent_ipv4),  cmocka_unit_test(test_sent_ipv6),
	        cmocka_unit_test(test_came_ipv4),  cmocka_unit_test(test_came_ipv6),
	        cmocka_unit_test(test_group_ipv4), cmocka_unit_test(test_group_ipv6),
	        cmocka_unit_test(test_too_long),
	};
	if (!set_up()) {
		printf("skipped: no network namespace with a TUN interface: %s\n", strerror(errno));
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
