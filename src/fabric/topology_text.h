/* The words of a topology file and what they stand for. */
#ifndef FABRIC_TOPOLOGY_TEXT_H
#define FABRIC_TOPOLOGY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/topology.h"

#define TOPOLOGY_MAX_WORDS 32u

struct topology_word {
	const char *text; /* not terminated */
	size_t length;
};

struct topology_words {
	unsigned count, read;
	struct topology_word list[TOPOLOGY_MAX_WORDS];
};

enum topology_split {
	TOPOLOGY_SPLIT_OK,
	TOPOLOGY_SPLIT_MANY, /* more than TOPOLOGY_MAX_WORDS */
	TOPOLOGY_SPLIT_BYTE, /* a byte that is no printable ASCII character */
};

/* Split the line at *at into words, up to a comment; *at moves to the next line. */
enum topology_split topology_split(struct topology_words *words, const char **at, const char *end);

bool topology_is_name(const struct topology_word *word);
/* Decimal, or hexadecimal with 0x; at most @most. */
bool topology_to_number(const struct topology_word *word, uint64_t most, uint64_t *number);
bool topology_to_key(const struct topology_word *word, uint8_t key[IBC_KEY_BYTES]);
/* An IPv4 address and port, or an IPv6 address in brackets and a port. The address is one host's:
 * neither unspecified nor multicast nor 255.255.255.255. */
bool topology_to_address(const struct topology_word *word, struct topology_address *address);
/* NAME or NAME/MAC. */
bool topology_to_interface(const struct topology_word *word, struct topology_end *end);

#endif
