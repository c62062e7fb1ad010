/* Nodes and their names: GUIDs, LIDs, GIDs, slots. */
#include <assert.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/wire.h"

static void add_gid(struct node_entry *node, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < node->gid_count; i++)
		if (memcmp(node->gids[i], gid, 16) == 0)
			return;
	if (node->gid_count < AGENT_MAX_GIDS)
		memcpy(node->gids[node->gid_count++], gid, 16);
}

/* Add the addresses of the host, without those of interfaces that have one of the flags @without:
 * IPv6 as they are, IPv4 mapped into IPv6 (as RoCEv2 writes them). */
static void add_host_addresses(struct node_entry *node, unsigned without)
{
	struct ifaddrs *list;
	if (getifaddrs(&list) != 0)
		return;
	for (struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
		if (at->ifa_addr == NULL || (at->ifa_flags & IFF_UP) == 0 ||
		    (at->ifa_flags & without) != 0)
			continue;
		uint8_t gid[16] = {[10] = 0xff, [11] = 0xff};
		if (at->ifa_addr->sa_family == AF_INET) {
			memcpy(gid + 12, &((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr,
			       4);
			add_gid(node, gid);
		} else if (at->ifa_addr->sa_family == AF_INET6) {
			memcpy(gid, &((struct sockaddr_in6 *)(void *)at->ifa_addr)->sin6_addr, 16);
			add_gid(node, gid);
		}
	}
	freeifaddrs(list);
}

/* Fold a string into a hash (FNV-1a). */
static uint64_t fold(uint64_t hash, const char *text)
{
	for (; *text != '\0'; text++)
		hash = (hash ^ (uint8_t)*text) * 0x100000001b3ull;
	return (hash ^ 0xff) * 0x100000001b3ull;
}

/* A hash of the machine, the user and the node's name, which is always the same. */
static uint64_t names_hash_of(const char *name)
{
	char text[128] = "";
	FILE *machine = fopen("/etc/machine-id", "re");
	if (machine == NULL || fgets(text, sizeof(text), machine) == NULL)
		gethostname(text, sizeof(text) - 1);
	if (machine != NULL)
		fclose(machine);
	uint64_t hash = fold(fold(0xcbf29ce484222325ull, text), name);
	snprintf(text, sizeof(text), "%u", (unsigned)geteuid());
	return fold(hash, text);
}

/* The GUID of a node: a locally administered EUI-64 made of that @hash and the agent's directory.
 * An agent that takes over from one that was killed knows the node by its old addresses, and the
 * nodes of two agents differ. The last byte is zero: it numbers the adapters of the node
 * (docs/adr/0223). */
static uint64_t names_guid_of(const struct agent *agent, uint64_t hash)
{
	return (fold(hash, agent->directory) & ~(1ull << 56) & ~0xffull) | 1ull << 57;
}

/* May a node have the @count LIDs from @lid on? They differ in the low bits only (IBTA
 * section 4.1.3). */
static bool lids_are_free(const struct agent *agent, uint32_t lid, uint32_t count)
{
	for (uint32_t i = 0; i < agent->node_count; i++) {
		const struct node_entry *node = agent->nodes[i];
		if (lid < node->lid + (1u << node->lmc) && node->lid < lid + count)
			return false;
	}
	return lid % count == 0 && lid >= AGENT_FIRST_LID && lid + count - 1 <= AGENT_LAST_LID;
}

/* The first @count free LIDs from @lid on. There are far fewer nodes than LIDs. */
static uint16_t lids_from(const struct agent *agent, uint32_t lid, uint32_t count)
{
	lid -= lid % count;
	while (!lids_are_free(agent, lid, count))
		lid = lid + count > AGENT_LAST_LID ? 0 : lid + count;
	return (uint16_t)lid;
}

/* The LIDs of a node follow from its @hash, so that they are the same next time, unless another
 * node has them. */
static uint16_t lids_for(const struct agent *agent, uint64_t hash, uint32_t wish, uint32_t count)
{
	if (lids_are_free(agent, wish, count))
		return (uint16_t)wish;
	return lids_from(agent,
	                 AGENT_FIRST_LID +
	                         (uint32_t)((hash >> 8) % (AGENT_LAST_LID - AGENT_FIRST_LID + 1)),
	                 count);
}
_Static_assert(AGENT_MAX_NODES < AGENT_LAST_LID >> AGENT_MAX_LMC,
               "not even if each node has a LID in another of the largest blocks");

/* fe80:: and @guid; of an EUI-64 in an address the universal bit is inverted (RFC 4291 appendix A),
 * of a GUID in a GID it is not (IBTA section 4.1.1). */
static void add_link_local(struct node_entry *node, uint64_t guid, uint8_t inverted)
{
	uint8_t gid[16] = {0xfe, 0x80};
	for (int i = 0; i < 8; i++)
		gid[8 + i] = (uint8_t)(guid >> (56 - 8 * i));
	gid[8] ^= inverted;
	add_gid(node, gid);
}

/* The address by which other nodes reach it in IPv4: all of 127.0.0.0/8 is this machine, so each
 * node has an address of its own in it. */
void node_loopback(const struct node_entry *node, uint8_t gid[16])
{
	static const uint8_t prefix[14] = {
	        [10] = 0xff, [11] = 0xff, [12] = 127, [13] = AGENT_LOOPBACK};
	memcpy(gid, prefix, sizeof(prefix));
	gid[14] = (uint8_t)(node->lid >> 8);
	gid[15] = (uint8_t)node->lid;
}

/* The address of the first wire comes first: programs that do not choose take it. Only addresses of
 * wires work on the wire. If the first is an IPv6 address, no IPv4 address is listed, because some
 * programs would prefer it. */
void node_list_addresses(struct node_entry *node)
{
	uint8_t loopback[16];
	const struct udp_address *wire =
	        node->wires[0] != NULL ? wire_address(node->wires[0]) : NULL;
	node->gid_count = 0;
	if (wire != NULL)
		add_gid(node, wire->gid);
	else
		add_link_local(node, node->guid, 2);
	add_link_local(node, node->guid + 1, 0); /* AGENT_IB_GID */
	for (unsigned i = 1; i < wires_count(node); i++)
		add_gid(node, wire_address(node->wires[i])->gid);
	add_link_local(node, node->guid, 2);
	if (wire != NULL && !udp_address_is_ipv4(wire))
		return;
	/* Addresses of the loopback interface stand for the first one on a wire: packets to them
	 * would reach nobody, or another agent. */
	node_loopback(node, loopback);
	if (wire == NULL || !udp_address_is_loopback(wire))
		add_gid(node, loopback);
	if (node->name[0] == '\0')
		add_host_addresses(node, wire != NULL ? IFF_LOOPBACK : 0);
}

struct node_entry *node_of(struct agent *agent, const char *name, uint32_t wish, unsigned lmc)
{
	for (uint32_t i = 0; i < agent->node_count; i++)
		if (strcmp(agent->nodes[i]->name, name) == 0)
			return agent->nodes[i];
	if (agent->node_count == AGENT_MAX_NODES)
		return NULL;
	struct node_entry *node = calloc(1, sizeof(*node));
	if (node == NULL)
		return NULL;
	strncpy(node->name, name, sizeof(node->name) - 1);
	uint64_t hash = names_hash_of(name);
	node->guid = names_guid_of(agent, hash);
	node->lmc = (uint8_t)lmc;
	node->lid = lids_for(agent, hash, wish, 1u << lmc);
	node_list_addresses(node);
	agent->nodes[agent->node_count++] = node;
	return node;
}

void node_take_next_lids(const struct agent *agent, struct node_entry *node)
{
	assert(node->clients == 0);
	uint32_t count = 1u << node->lmc;
	node->lid = lids_from(agent, node->lid + count, count); /* not its own: those are taken */
	node_list_addresses(node);
}

struct node_entry *node_by_gid(struct agent *agent, const uint8_t gid[16])
{
	uint16_t lid = agent_lid_of(gid);
	for (uint32_t i = 0; i < agent->node_count; i++)
		if (lid != 0 &&
		    lid >> agent->nodes[i]->lmc == agent->nodes[i]->lid >> agent->nodes[i]->lmc)
			return agent->nodes[i];
	/* A node that was given an address has it, although the machine's own node lists all
	 * addresses of the machine. */
	for (uint32_t i = 0; i < agent->node_count; i++)
		for (unsigned j = 0; j < wires_count(agent->nodes[i]); j++)
			if (memcmp(wire_address(agent->nodes[i]->wires[j])->gid, gid, 16) == 0)
				return agent->nodes[i];
	for (uint32_t i = 0; i < agent->node_count; i++)
		for (uint32_t j = 0; j < agent->nodes[i]->gid_count; j++)
			if (memcmp(agent->nodes[i]->gids[j], gid, 16) == 0)
				return agent->nodes[i];
	return NULL;
}

void rover_begin(struct agent *agent, const char *directory)
{
	char text[16] = "";
	/* However it is spelled: nodes keep their GUIDs. */
	char *whole = realpath(directory, NULL);
	snprintf(agent->directory, sizeof(agent->directory), "%s",
	         whole != NULL ? whole : directory);
	free(whole);
	rundir_file(directory, AGENT_ROVER, agent->rover_path, sizeof(agent->rover_path));
	int file = open(agent->rover_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t length = file >= 0 ? read(file, text, sizeof(text) - 1) : 0;
	if (file >= 0)
		close(file);
	unsigned long kept = length > 0 ? strtoul(text, NULL, 10) : AGENT_MAX_SLOTS;
	agent->rover = kept < AGENT_MAX_SLOTS ? (uint32_t)kept
	                                      : (uint32_t)prng_below(&agent->prng, AGENT_MAX_SLOTS);
}

/* If it cannot be written, it is left to chance whether a new process of the next agent gets the
 * slot of one that comes back late. */
static void keep_rover(const struct agent *agent)
{
	int file = open(agent->rover_path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (file < 0)
		return;
	dprintf(file, "%4u\n", (unsigned)agent->rover);
	close(file);
}

bool node_enter(struct agent *agent, struct node_entry *node, struct client *client, int32_t wish)
{
	uint32_t slot = AGENT_MAX_SLOTS;
	if (wish >= 0) {
		if ((uint32_t)wish < AGENT_MAX_SLOTS - 1 && node->slots[wish] == NULL)
			slot = (uint32_t)wish;
	} else {
		/* The first and the last are never given: queue pair numbers 0 and 1 belong to
		 * management, the highest to groups. */
		for (uint32_t i = 0; i < AGENT_MAX_SLOTS && slot == AGENT_MAX_SLOTS; i++) {
			uint32_t at = (agent->rover + i) % AGENT_MAX_SLOTS;
			if (at != 0 && at != AGENT_MAX_SLOTS - 1 && node->slots[at] == NULL)
				slot = at;
		}
	}
	if (slot == AGENT_MAX_SLOTS)
		return false;
	if (wish < 0) { /* the slots next to one that came back may belong to others that will */
		agent->rover = (slot + 1) % AGENT_MAX_SLOTS;
		keep_rover(agent);
	}
	node->slots[slot] = client;
	node->clients++;
	client->node = node;
	client->slot = slot;
	return true;
}

void node_leave(struct agent *agent, struct client *client)
{
	struct node_entry *node = client->node;
	if (node == NULL)
		return;
	wires_leave(node, client->slot);
	node->slots[client->slot] = NULL;
	client->node = NULL;
	node->clients--;
	node_tidy(agent, node);
}

void node_tidy(struct agent *agent, struct node_entry *node)
{
	if (node->clients > 0 || node->notices != NULL || node->answers_ns != 0)
		return;
	for (uint32_t i = 0; i < agent->node_count; i++)
		if (agent->nodes[i] == node)
			agent->nodes[i] = agent->nodes[--agent->node_count];
	management_silence(node);
	wires_close(node);
	free(node);
}
