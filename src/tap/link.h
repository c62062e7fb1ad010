/* News of an interface, from the kernel: a netlink socket in the namespace of the interface. */
#ifndef TAP_LINK_H
#define TAP_LINK_H

#include <stdbool.h>
#include <stdint.h>

#define LINK_MAC_BYTES 6u
#define LINK_MAX_NAME  16u

/* What is known about an interface. */
struct link_state {
	bool there;
	bool up;      /* it is switched on, */
	bool carrier; /* and has a cable */
	bool promiscuous, all_multicast;
	uint32_t index, mtu;
	uint8_t mac[LINK_MAC_BYTES];
};

/* Open the socket, in the namespace of the interface. Returns the descriptor; -1: errno. */
int link_open(void);
/* Ask about the interface @name; link_read() gets the answer. */
void link_ask(int fd, const char *name);
/* Read what there is about the interface @name. Returns whether something has changed. */
bool link_read(int fd, const char *name, struct link_state *state);
/* Change the MTU. Returns whether the question could be sent: link_read() tells whether it was
 * done. */
bool link_set_mtu(int fd, uint32_t index, uint32_t mtu);

/* Open the list of multicast groups, in the namespace. Returns the descriptor; -1: errno. */
int link_open_groups(void);
/* Read the groups of the interface @index into @groups, up to @max. Returns how many there are;
 * -1: unknown. */
int link_read_groups(int fd, uint32_t index, uint8_t (*groups)[LINK_MAC_BYTES], uint32_t max);

#endif
