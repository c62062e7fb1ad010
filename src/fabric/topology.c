/* The topology file: see topology.h. A line is a statement; a statement is a list of words. Each
 * function reads the words of one kind and says what it expected when there is something else. */
#include "fabric/topology.h"

#include <assert.h>
#include <string.h>

#include "fabric/topology_text.h"

/* The state of the parser. */
struct reader {
	struct topology *topology;
	struct topology_error *error;
	const char *at, *end; /* the rest of the file */
	struct topology_words words;
	bool has_key; /* the key for nodes without one of their own */
	uint8_t key[IBC_KEY_BYTES];
	bool own_key;    /* the last node has had its own key statement */
	uint64_t guid;   /* of the last NIC of the last node; 0: there is none */
	bool has_access; /* it has had its own apids statement */
	uint32_t line;
};

static const struct topology_word no_word = {.text = "", .length = 0};

static bool refuse(struct reader *reader, const struct topology_word *found, const char *expected)
{
	reader->error->line = reader->line;
	reader->error->expected = expected;
	size_t used = 0;
	for (size_t i = 0; i < found->length && used + 1 < TOPOLOGY_FOUND_BYTES; i++) {
		char c = found->text[i];
		reader->error->found[used++] = c > 0x20 && c < 0x7f ? c : '?';
	}
	reader->error->found[used] = '\0';
	return false;
}

/* The word after those that have been read; an empty one at the end of the line. */
static const struct topology_word *peek_word(const struct reader *reader)
{
	const struct topology_words *words = &reader->words;
	return words->read < words->count ? &words->list[words->read] : &no_word;
}

static const struct topology_word *next_word(struct reader *reader)
{
	const struct topology_word *word = peek_word(reader);
	if (reader->words.read < reader->words.count)
		reader->words.read++;
	return word;
}

static bool word_is(const struct topology_word *word, const char *text)
{
	return word->length == strlen(text) && memcmp(word->text, text, word->length) == 0;
}

static bool read_end(struct reader *reader)
{
	const struct topology_word *word = peek_word(reader);
	return word->length == 0 || refuse(reader, word, "the end of the line");
}

static bool read_keyword(struct reader *reader, const char *keyword, const char *expected)
{
	const struct topology_word *word = next_word(reader);
	return word_is(word, keyword) || refuse(reader, word, expected);
}

static int find_named(const struct topology *topology, const char *name, size_t length)
{
	for (uint32_t i = 0; i < topology->node_count; i++)
		if (strlen(topology->nodes[i].name) == length &&
		    memcmp(topology->nodes[i].name, name, length) == 0)
			return (int)i;
	return -1;
}

int topology_find(const struct topology *topology, const char *name)
{
	return find_named(topology, name, strlen(name));
}

static bool read_name(struct reader *reader, char name[TOPOLOGY_NAME_BYTES])
{
	const struct topology_word *word = next_word(reader);
	if (!topology_is_name(word))
		return refuse(reader, word,
		              "a name of 1 to 63 letters, digits, '.', '_' and '-' that starts "
		              "with a letter");
	if (find_named(reader->topology, word->text, word->length) >= 0)
		return refuse(reader, word, "a name that no node or switch above has");
	memcpy(name, word->text, word->length);
	name[word->length] = '\0';
	return true;
}

static bool read_id(struct reader *reader, uint64_t *id)
{
	static const char keyword[] = "'id' and the identifier";
	if (!read_keyword(reader, "id", keyword))
		return false;
	const struct topology_word *word = next_word(reader);
	if (!topology_to_number(word, UINT64_MAX, id) || *id == 0)
		return refuse(reader, word, "an identifier: a number from 1 on, of 64 bits");
	for (uint32_t i = 0; i < reader->topology->node_count; i++)
		if (reader->topology->nodes[i].id == *id)
			return refuse(reader, word,
			              "an identifier that no node or switch above has");
	return true;
}

/* One number from @least to @most, or a range such as 1-4: the first and the last. */
static bool read_range(struct reader *reader, unsigned least, unsigned most, const char *expected,
                       unsigned *first, unsigned *last)
{
	const struct topology_word *word = next_word(reader);
	struct topology_word low = *word, high = *word;
	const char *dash = memchr(word->text, '-', word->length);
	uint64_t from, to;
	if (dash != NULL) {
		low.length = (size_t)(dash - word->text);
		high.text = dash + 1;
		high.length = word->length - low.length - 1;
	}
	if (!topology_to_number(&low, most, &from) || !topology_to_number(&high, most, &to) ||
	    from < least || from > to)
		return refuse(reader, word, expected);
	*first = (unsigned)from;
	*last = (unsigned)to;
	return true;
}

/* The list of ports of @node that ends the line: ports of the NIC @guid. @numbered: port p is the
 * NIC's port p; else they count from 0 in the order of the list. */
static bool read_ports(struct reader *reader, struct topology_node *node, uint64_t guid,
                       bool numbered)
{
	if (!read_keyword(reader, "ports", "'ports' and the list of ports"))
		return false;
	unsigned number = 0;
	do {
		const struct topology_word *word = peek_word(reader);
		unsigned first, last;
		if (!read_range(reader, 0, VSWITCH_HARDWARE_PORTS - 1,
		                "a port from 0 to 15, or a range of them such as 1-4", &first,
		                &last))
			return false;
		for (unsigned port = first; port <= last; port++, number++) {
			if (node->ports >> port & 1)
				return refuse(reader, word, "ports that are not in use yet");
			node->ports = (uint16_t)(node->ports | 1u << port);
			node->nic_ports[port] = (struct vswitch_nic_port){
			        .guid = guid, .number = (uint8_t)(numbered ? port : number)};
		}
	} while (peek_word(reader)->length > 0);
	return true;
}

static bool read_node(struct reader *reader, bool plain)
{
	struct topology *topology = reader->topology;
	if (topology->node_count == TOPOLOGY_MAX_NODES)
		return refuse(reader, &no_word, "at most 512 nodes and switches");
	struct topology_node *node = &topology->nodes[topology->node_count];
	memset(node, 0, sizeof(*node));
	node->plain = plain;
	node->line = reader->line;
	if (!read_name(reader, node->name) || !read_id(reader, &node->id))
		return false;
	if (plain && !read_ports(reader, node, node->id, true))
		return false;
	node->has_key = reader->has_key;
	memcpy(node->key, reader->key, sizeof(node->key));
	reader->own_key = false;
	reader->guid = 0;
	topology->node_count++;
	return read_end(reader);
}

static bool guid_is_taken(const struct topology *topology, uint64_t guid)
{
	for (uint32_t i = 0; i < topology->node_count; i++)
		for (unsigned port = 0; port < VSWITCH_HARDWARE_PORTS; port++)
			if (!topology->nodes[i].plain && topology->nodes[i].ports >> port & 1 &&
			    topology->nodes[i].nic_ports[port].guid == guid)
				return true;
	return false;
}

static bool read_nic(struct reader *reader, const struct topology_word *keyword)
{
	struct topology *topology = reader->topology;
	struct topology_node *node =
	        topology->node_count > 0 ? &topology->nodes[topology->node_count - 1] : NULL;
	if (node == NULL || node->plain)
		return refuse(reader, keyword, "a node above its NICs; a switch has none");
	if (!read_keyword(reader, "guid", "'guid' and the NIC's GUID"))
		return false;
	const struct topology_word *word = next_word(reader);
	uint64_t guid;
	if (!topology_to_number(word, UINT64_MAX, &guid) || guid == 0)
		return refuse(reader, word, "a GUID: a number from 1 on, of 64 bits");
	if (guid_is_taken(topology, guid))
		return refuse(reader, word, "a GUID that no NIC above has");
	reader->guid = guid;
	reader->has_access = false;
	return read_ports(reader, node, guid, false);
}

/* The NIC above is for the applications with these APIDs. The switch itself always uses it. */
static bool read_apids(struct reader *reader, const struct topology_word *keyword)
{
	if (reader->guid == 0)
		return refuse(reader, keyword, "a NIC above its APIDs");
	if (reader->has_access)
		return refuse(reader, keyword, "one list of APIDs per NIC");
	uint64_t allowed = 1ull << VSWITCH_APID_CONFIG;
	do {
		unsigned first, last;
		if (!read_range(reader, VSWITCH_HARDWARE_PORTS, VSWITCH_PORTS - 1,
		                "an APID from 16 to 63, or a range of them such as 40-49", &first,
		                &last))
			return false;
		for (unsigned apid = first; apid <= last; apid++)
			allowed |= 1ull << apid;
	} while (peek_word(reader)->length > 0);
	struct topology_node *node = &reader->topology->nodes[reader->topology->node_count - 1];
	for (unsigned port = 0; port < VSWITCH_HARDWARE_PORTS; port++)
		if (node->ports >> port & 1 && node->nic_ports[port].guid == reader->guid)
			node->nic_ports[port].denied = VSWITCH_APIDS & ~allowed;
	reader->has_access = true;
	return true;
}

static bool read_key(struct reader *reader, const struct topology_word *keyword)
{
	struct topology *topology = reader->topology;
	const struct topology_word *word = next_word(reader);
	uint8_t key[IBC_KEY_BYTES];
	if (!topology_to_key(word, key))
		return refuse(reader, word, "a key: 32 hexadecimal digits");
	if (topology->node_count == 0) {
		if (reader->has_key)
			return refuse(reader, keyword, "one key for all nodes and switches");
		reader->has_key = true;
		memcpy(reader->key, key, sizeof(key));
		return read_end(reader);
	}
	struct topology_node *node = &topology->nodes[topology->node_count - 1];
	if (reader->own_key)
		return refuse(reader, keyword, "one key per node or switch");
	reader->own_key = true;
	node->has_key = true;
	memcpy(node->key, key, sizeof(key));
	return read_end(reader);
}

int topology_link_at(const struct topology *topology, uint32_t node, uint8_t port, unsigned *end)
{
	for (uint32_t i = 0; i < topology->link_count; i++)
		for (unsigned side = 0; side < 2; side++) {
			const struct topology_end *at = &topology->links[i].ends[side];
			if (at->node == node && at->port == port) {
				*end = side;
				return (int)i;
			}
		}
	return -1;
}

/* NODE:PORT. The first end of the link is there if @side is 1. */
static bool read_end_port(struct reader *reader, struct topology_link *link, unsigned side)
{
	const struct topology_word *word = next_word(reader);
	const char *colon = memchr(word->text, ':', word->length);
	if (colon == NULL)
		return refuse(reader, word, "NAME:PORT, an end of the link");
	struct topology_word name = {.text = word->text, .length = (size_t)(colon - word->text)};
	struct topology_word port = {.text = colon + 1, .length = word->length - name.length - 1};
	int node = find_named(reader->topology, name.text, name.length);
	if (node < 0)
		return refuse(reader, &name, "the name of a node or switch above");
	uint64_t number;
	if (!topology_to_number(&port, VSWITCH_HARDWARE_PORTS - 1, &number) ||
	    !(reader->topology->nodes[node].ports >> number & 1))
		return refuse(reader, word, "a hardware port of that node or switch");
	unsigned end;
	if (topology_link_at(reader->topology, (uint32_t)node, (uint8_t)number, &end) >= 0 ||
	    (side == 1 && link->ends[0].node == node && link->ends[0].port == number))
		return refuse(reader, word, "a port that has no link yet");
	link->ends[side].node = (uint16_t)node;
	link->ends[side].port = (uint8_t)number;
	return true;
}

static bool same_address(const struct topology_address *a, const struct topology_address *b)
{
	return a->ipv6 == b->ipv6 && a->port == b->port &&
	       memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* Each end of a UDP link has a socket of its own. */
static bool address_is_taken(const struct topology *topology,
                             const struct topology_address *address)
{
	for (uint32_t i = 0; i < topology->link_count; i++)
		for (unsigned side = 0; side < 2; side++)
			if (topology->links[i].kind == TOPOLOGY_LINK_UDP &&
			    same_address(&topology->links[i].ends[side].address, address))
				return true;
	return false;
}

static bool read_udp(struct reader *reader, struct topology_link *link)
{
	for (unsigned side = 0; side < 2; side++) {
		const struct topology_word *word = next_word(reader);
		struct topology_address *address = &link->ends[side].address;
		if (!topology_to_address(word, address))
			return refuse(reader, word,
			              "the address of each end, such as 192.0.2.1:7000 or "
			              "[2001:db8::1]:7000");
		if (address_is_taken(reader->topology, address) ||
		    (side == 1 && same_address(&link->ends[0].address, address)))
			return refuse(reader, word, "an address and port that no other end has");
	}
	if (link->ends[0].address.ipv6 != link->ends[1].address.ipv6)
		return refuse(reader, &no_word, "two IPv4 addresses or two IPv6 addresses");
	return true;
}

static bool read_ethernet(struct reader *reader, struct topology_link *link)
{
	for (unsigned side = 0; side < 2; side++) {
		const struct topology_word *word = next_word(reader);
		if (!topology_to_interface(word, &link->ends[side]))
			return refuse(reader, word,
			              "the interface of each end, such as eth0 or "
			              "eth0/02:00:00:00:00:01");
	}
	return true;
}

static bool read_link(struct reader *reader)
{
	struct topology *topology = reader->topology;
	if (topology->link_count == TOPOLOGY_MAX_LINKS)
		return refuse(reader, &no_word, "at most 4096 links");
	struct topology_link *link = &topology->links[topology->link_count];
	memset(link, 0, sizeof(*link));
	link->line = reader->line;
	if (!read_end_port(reader, link, 0) || !read_end_port(reader, link, 1))
		return false;
	const struct topology_word *kind = next_word(reader);
	if (word_is(kind, "shm")) {
		link->kind = TOPOLOGY_LINK_MEMORY;
	} else if (word_is(kind, "udp")) {
		link->kind = TOPOLOGY_LINK_UDP;
		if (!read_udp(reader, link))
			return false;
	} else if (word_is(kind, "ethernet")) {
		link->kind = TOPOLOGY_LINK_ETHERNET;
		if (!read_ethernet(reader, link))
			return false;
	} else {
		return refuse(reader, kind, "the kind of the link: shm, udp or ethernet");
	}
	topology->link_count++;
	return read_end(reader);
}

static bool read_statement(struct reader *reader)
{
	const struct topology_word *word = next_word(reader);
	if (word_is(word, "node"))
		return read_node(reader, false);
	if (word_is(word, "switch"))
		return read_node(reader, true);
	if (word_is(word, "nic"))
		return read_nic(reader, word);
	if (word_is(word, "apids"))
		return read_apids(reader, word);
	if (word_is(word, "key"))
		return read_key(reader, word);
	if (word_is(word, "link"))
		return read_link(reader);
	return refuse(reader, word, "a statement: node, nic, apids, key, switch or link");
}

static bool read_line(struct reader *reader)
{
	static const struct topology_word byte = {.text = "\1", .length = 1};
	reader->line++;
	switch (topology_split(&reader->words, &reader->at, reader->end)) {
	case TOPOLOGY_SPLIT_OK:
		return reader->words.count == 0 || read_statement(reader);
	case TOPOLOGY_SPLIT_MANY:
		return refuse(reader, &no_word, "at most 32 words in a line");
	case TOPOLOGY_SPLIT_BYTE:
		break;
	}
	return refuse(reader, &byte, "text in ASCII; other characters in comments only");
}

bool topology_parse(struct topology *topology, const char *text, size_t bytes,
                    struct topology_error *error)
{
	struct reader reader = {
	        .topology = topology, .error = error, .at = text, .end = text + bytes};
	topology->node_count = topology->link_count = 0;
	if (bytes > TOPOLOGY_MAX_FILE_BYTES)
		return refuse(&reader, &no_word, "a file of at most 2 MiB");
	while (reader.at < reader.end)
		if (!read_line(&reader)) {
			topology->node_count = topology->link_count = 0;
			return false;
		}
	if (reader.line == 0)
		reader.line = 1;
	if (topology->node_count == 0)
		return refuse(&reader, &no_word, "at least one node or switch");
	return true;
}

void topology_vswitch(const struct topology *topology, uint32_t node, struct vswitch *vswitch)
{
	assert(node < topology->node_count);
	const struct topology_node *from = &topology->nodes[node];
	vswitch_init(vswitch, from->id, from->plain);
	for (uint8_t port = 0; port < VSWITCH_HARDWARE_PORTS; port++)
		if (from->ports >> port & 1) {
			bool placed =
			        vswitch_set_nic_port(vswitch, port, from->nic_ports[port].guid,
			                             from->nic_ports[port].number);
			assert(placed); /* pairs with read_ports() */
			(void)placed;
			vswitch->nic_ports[port].denied = from->nic_ports[port].denied;
		}
}
