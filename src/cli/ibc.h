/* The verbs of heddle ibc. */
#ifndef CLI_IBC_H
#define CLI_IBC_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/network.h"

struct ibc_verb;

struct ibc_options {
	const struct ibc_verb *verb;
	const char *node, *file, *svg, *conf;
	bool json, has_key;
	uint8_t key[IBC_KEY_BYTES];
	unsigned count, size, timeout_ms;
	int given;
	const char *operands[2];
};

/* Each returns the exit status. */
int ibc_verb_discover(struct ibc_options *options, struct network *network);
int ibc_verb_route(struct ibc_options *options, struct network *network);

#endif
