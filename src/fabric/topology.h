/* The topology file: which nodes and plain switches there are, what NICs and keys they have, and
 * which links join their ports. heddle-vswitch.conf(5) describes the format. It is parsed from
 * memory into a structure of fixed size; a file with an error gives no topology at all.
 *
 *   key 00112233445566778899aabbccddeeff     for every node below that has no other
 *   node n102 id 102                         a node: applications and NICs
 *       nic guid 1 ports 0 1                 its port 0 is port 0 of the node's switch, 1 is 1
 *       key ffeeddccbbaa99887766554433221100
 *   switch s106 id 106 ports 1-4             a plain switch
 *   link n102:1 s106:2 shm
 *   link s106:3 s108:1 udp 192.0.2.1:7000 192.0.2.2:7000
 *   link s108:2 n104:1 ethernet veth0 veth1/02:00:00:00:00:01 */
#ifndef FABRIC_TOPOLOGY_H
#define FABRIC_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/vswitch.h"
#include "wire/ibc.h"

#define TOPOLOGY_MAX_FILE_BYTES  (2u << 20)
#define TOPOLOGY_MAX_NODES       512u /* plain switches included */
#define TOPOLOGY_MAX_LINKS       (TOPOLOGY_MAX_NODES * VSWITCH_HARDWARE_PORTS / 2u)
#define TOPOLOGY_NAME_BYTES      64u /* with the final 0 */
#define TOPOLOGY_INTERFACE_BYTES 16u /* with the final 0, as in Linux */
#define TOPOLOGY_FOUND_BYTES     48u
#define TOPOLOGY_MESSAGE_BYTES   320u

struct topology_node {
	char name[TOPOLOGY_NAME_BYTES];
	uint64_t id; /* unique, not 0 */
	bool plain;  /* a switch without applications */
	bool has_key;
	uint8_t key[IBC_KEY_BYTES]; /* without one, nobody may configure the switch */
	uint16_t ports;             /* which hardware ports there are, by bits */
	/* Of each of them: the NIC and its port. A plain switch is one NIC, whose GUID is the id
	 * and whose ports have the same numbers. */
	struct vswitch_nic_port nic_ports[VSWITCH_HARDWARE_PORTS];
	uint32_t line;
};

enum topology_link_kind {
	TOPOLOGY_LINK_MEMORY,   /* shared memory: both ends are on one machine */
	TOPOLOGY_LINK_UDP,      /* .address of each end is its own; it hears the other one only */
	TOPOLOGY_LINK_ETHERNET, /* .interface of each end is its own */
	TOPOLOGY_LINK_KIND_COUNT
};

struct topology_address {
	bool ipv6;
	uint8_t bytes[16]; /* IPv4: the first four */
	uint16_t port;     /* in host byte order, not 0 */
};

struct topology_end {
	uint16_t node; /* index in topology.nodes */
	uint8_t port;
	bool has_mac;
	uint8_t mac
	        [6]; /* of the interface: the other end hears frames from it only. Without: any */
	struct topology_address address;
	char interface[TOPOLOGY_INTERFACE_BYTES];
};

struct topology_link {
	enum topology_link_kind kind;
	struct topology_end ends[2];
	uint32_t line;
};

struct topology {
	uint32_t node_count, link_count;
	struct topology_node nodes[TOPOLOGY_MAX_NODES];
	struct topology_link links[TOPOLOGY_MAX_LINKS];
};

/* What is wrong with a file: in @line, where something else was @expected than was @found. */
struct topology_error {
	uint32_t line;
	const char *expected;
	char found[TOPOLOGY_FOUND_BYTES]; /* printable; "": the end of the line or file */
};

/* Parse the @bytes of @text. False: *error tells what is wrong, and *topology is empty. */
bool topology_parse(struct topology *topology, const char *text, size_t bytes,
                    struct topology_error *error);
/* "FILE:LINE: expected WHAT, found 'THAT'", cut if it is longer. */
void topology_explain(const struct topology_error *error, const char *file,
                      char message[TOPOLOGY_MESSAGE_BYTES]);
/* Write the file of @topology to @out. Returns its length without the final 0; 0: it is longer than
 * @capacity - 1. Parsing it gives the same topology, but for the lines. */
size_t topology_print(const struct topology *topology, char *out, size_t capacity);
/* The APIDs that are not in @denied, as the file has them: "16-30 40". */
#define TOPOLOGY_APIDS_BYTES 160u
void topology_print_apids(uint64_t denied, char out[TOPOLOGY_APIDS_BYTES]);

/* The index of the node called @name, or -1. */
int topology_find(const struct topology *topology, const char *name);
/* The link of @port of the node with index @node, or -1; *end is which end of it that is. */
int topology_link_at(const struct topology *topology, uint32_t node, uint8_t port, unsigned *end);
/* Initialise @vswitch as the node with index @node. Every hardware port is down, and there are no
 * applications. */
void topology_vswitch(const struct topology *topology, uint32_t node, struct vswitch *vswitch);

#endif
