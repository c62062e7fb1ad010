/* Nodes and their names: GUIDs, GIDs, slots. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"

static void add_gid(struct node_entry *node, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < node->gid_count; i++)
		if (memcmp(node->gids[i], gid, 16) == 0)
			return;
	if (node->gid_count < AGENT_MAX_GIDS)
		memcpy(node->gids[node->gid_count++], gid, 16);
}

/* The host's addresses: IPv6 as they are, IPv4 mapped into IPv6 (as RoCEv2 writes them). */
static void add_host_addresses(struct node_entry *node)
{
	struct ifaddrs *list;
	if (getifaddrs(&list) != 0)
		return;
	for (struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
		if (at->ifa_addr == NULL || (at->ifa_flags & IFF_UP) == 0)
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

/* The GUID of a node: a locally administered EUI-64 made of the machine, the user and the node's name. Always the same, so
 * that an agent that takes over from one that was killed knows the node by its old addresses. */
static uint64_t guid_of(const char *name)
{
	char text[128] = "";
	FILE *machine = fopen("/etc/machine-id", "re");
	if (machine == NULL || fgets(text, sizeof(text), machine) == NULL)
		gethostname(text, sizeof(text) - 1);
	if (machine != NULL)
		fclose(machine);
	uint64_t hash = fold(fold(0xcbf29ce484222325ull, text), name);
	snprintf(text, sizeof(text), "%u", (unsigned)geteuid());
	hash = fold(hash, text);
	return (hash & ~(1ull << 56)) | 1ull << 57;
}

struct node_entry *node_of(struct agent *agent, const char *name)
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
	node->guid = guid_of(name);
	node->rover = (uint32_t)prng_below(
	        &agent->prng, AGENT_MAX_SLOTS); /* not what a former agent gave out last */
	uint8_t gid[16] = {0xfe, 0x80};
	for (int i = 0; i < 8; i++)
		gid[8 + i] = (uint8_t)(node->guid >> (56 - 8 * i));
	gid[8] ^= 2; /* RFC 4291 appendix A: the universal bit is inverted in an address */
	add_gid(node, gid);
	if (name[0] == '\0')
		add_host_addresses(node);
	agent->nodes[agent->node_count++] = node;
	return node;
}

struct node_entry *node_by_gid(struct agent *agent, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < agent->node_count; i++)
		for (uint32_t j = 0; j < agent->nodes[i]->gid_count; j++)
			if (memcmp(agent->nodes[i]->gids[j], gid, 16) == 0)
				return agent->nodes[i];
	return NULL;
}

bool node_enter(struct node_entry *node, struct client *client, int32_t wish)
{
	uint32_t slot = AGENT_MAX_SLOTS;
	if (wish >= 0) {
		if ((uint32_t)wish < AGENT_MAX_SLOTS && node->slots[wish] == NULL)
			slot = (uint32_t)wish;
	} else {
		/* Slot 0 is never given: queue pair numbers 0 and 1 belong to management. */
		for (uint32_t i = 0; i < AGENT_MAX_SLOTS && slot == AGENT_MAX_SLOTS; i++) {
			uint32_t at = (node->rover + i) % AGENT_MAX_SLOTS;
			if (at != 0 && node->slots[at] == NULL)
				slot = at;
		}
	}
	if (slot == AGENT_MAX_SLOTS)
		return false;
	node->rover = slot + 1;
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
	node->slots[client->slot] = NULL;
	client->node = NULL;
	if (--node->clients > 0)
		return;
	for (uint32_t i = 0; i < agent->node_count; i++)
		if (agent->nodes[i] == node)
			agent->nodes[i] = agent->nodes[--agent->node_count];
	free(node);
}
