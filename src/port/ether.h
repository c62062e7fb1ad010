/* Ethernet frames by packet sockets: what a UDP port is to an address, an Ethertype is to an
 * interface. Whoever uses the sockets of udp.h gets frames instead of datagrams where an address
 * says so (udp_address.frames): such an address is the link-local GID of the interface's MAC
 * address, and its scope is the interface.
 *
 *     service             UDP port   Ethertype
 *     RoCE, management    4791       0x8915, with a GRH (RoCE version 1)
 *     cells               4793       0x88b6  } for experiments on one's own network
 *     CI packets          18490      0x88b5  } (IEEE 802)
 *
 * The links of virtual switches (vport/ethernet.c) have 0x88b5, too. Their frames begin with 'H', a
 * CI packet with its kind, which is smaller.
 *
 * Sockets are SOCK_DGRAM: the kernel writes the header of each frame that is sent, so no process
 * can send from an address that is not the interface's, and says who sent a frame that has come.
 * Filters in the kernel leave only what was sent to the MAC address of the interface, without a
 * VLAN tag. What is behind the last packet of a frame is padding, and zero. */
#ifndef PORT_ETHER_H
#define PORT_ETHER_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>

#include "port/udp.h"

#define ETHER_ROCE  0x8915u
#define ETHER_CI    0x88b5u
#define ETHER_CELLS 0x88b6u

/* The Ethertype of the service at UDP port @port, and the other way round; 0: none. */
uint16_t ether_type(uint16_t port);
uint16_t ether_port(uint16_t type);

/* The address for frames on the interface @name. Returns 0; -ENODEV there is none; -ENOTSUP it is
 * not Ethernet; other errors. */
int ether_find(const char *name, struct udp_address *out);

/* The interface of @address, as udp_interface(): -EADDRNOTAVAIL if there is none any more, or if it
 * has another MAC address now. */
int ether_interface(const struct udp_address *address, char name[IF_NAMESIZE], unsigned *mtu);

/* The beginning of a filter: let only pass what is sent to @address. @out has room for
 * ETHER_FILTER. A frame that passes is judged by what is behind, where offset 0 is the first byte
 * after the Ethernet header. */
#define ETHER_FILTER 12u
void ether_filter(const struct udp_address *address, struct sock_filter out[ETHER_FILTER]);
#define ETHER_PASS 0x40000u /* what a filter returns for a frame that may pass */

/* Open a socket for frames of the service at UDP port @port. Nothing gets past @filter, from the
 * beginning. Returns the descriptor, non-blocking and close-on-exec; -EPERM without CAP_NET_RAW;
 * other errors. */
int ether_open(const struct udp_address *address, uint16_t port, const struct sock_filter *filter,
               unsigned count);
/* Nobody who has the socket can replace it any more. 0 or -errno. */
int ether_lock_filter(int sock);

/* An address as packet sockets take it. */
socklen_t ether_name_of(const struct udp_address *address, uint16_t port, union udp_name *name);
void ether_address_of(const union udp_name *name, struct udp_address *address, uint16_t *port);

#endif
