/* Addresses of Ethernet interfaces: translated there and back, found by name. What needs the
 * privilege is in tests/interop/wire/apertures.py. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mac.h"
#include "port/ether.h"

static const uint8_t mac[6] = {0x02, 1, 2, 3, 4, 5};

static struct udp_address address(void)
{
	struct udp_address made = {.scope = 7, .frames = true};
	mac_to_gid(mac, made.gid);
	return made;
}

static void ether_services(void **state)
{
	(void)state;
	static const uint16_t rows[][2] = {
	        {4791, ETHER_ROCE}, {4793, ETHER_CELLS}, {18490, ETHER_CI}, {0, 0}};
	for (unsigned i = 0; rows[i][0] != 0; i++) {
		assert_int_equal(ether_type(rows[i][0]), rows[i][1]);
		assert_int_equal(ether_port(rows[i][1]), rows[i][0]);
	}
	assert_int_equal(ether_type(80), 0);
	assert_int_equal(ether_port(0x0800), 0);
}

static void ether_names(void **state)
{
	(void)state;
	struct udp_address from = address(), back;
	union udp_name name;
	uint16_t port = 0;
	assert_int_equal(udp_name_of(&from, 18490, &name), sizeof(struct sockaddr_ll));
	assert_int_equal(name.ll.sll_family, AF_PACKET);
	assert_int_equal(name.ll.sll_ifindex, 7);
	assert_int_equal(ntohs(name.ll.sll_protocol), ETHER_CI);
	assert_memory_equal(name.ll.sll_addr, mac, sizeof(mac));
	udp_address_of(&name, &back, &port);
	assert_true(udp_address_equal(&from, &back));
	assert_int_equal(port, 18490);
	/* The same GID without frames is another address. */
	back.frames = false;
	assert_false(udp_address_equal(&from, &back));
	assert_int_equal(udp_name_of(&back, 18490, &name), sizeof(struct sockaddr_in6));
}

static void ether_interfaces(void **state)
{
	(void)state;
	struct udp_address found, gone = address();
	char name[IF_NAMESIZE];
	unsigned mtu;
	assert_int_equal(ether_find("lo", &found), -ENOTSUP);
	assert_int_equal(ether_find("no-such", &found), -ENODEV);
	assert_int_equal(ether_find("a-name-that-is-too-long", &found), -ENODEV);
	gone.scope = 0x7fffffff;
	assert_int_equal(udp_interface(&gone, name, &mtu), -EADDRNOTAVAIL);
	gone.scope = if_nametoindex("lo"); /* not its address */
	assert_int_equal(udp_interface(&gone, name, &mtu), -EADDRNOTAVAIL);
}

/* The filter asks for no tag and for our address, and goes on behind. */
static void ether_filters(void **state)
{
	(void)state;
	struct udp_address own = address();
	struct sock_filter filter[ETHER_FILTER];
	ether_filter(&own, filter);
	assert_int_equal(filter[7].k, 0x02010203);
	assert_int_equal(filter[10].k, 0x0405);
	for (unsigned i = 1; i < ETHER_FILTER; i += 3) {
		assert_int_equal(filter[i].jt, 1);
		assert_int_equal(filter[i].jf, 0);
		assert_int_equal(filter[i + 1].k, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ether_services),
	        cmocka_unit_test(ether_names),
	        cmocka_unit_test(ether_interfaces),
	        cmocka_unit_test(ether_filters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
