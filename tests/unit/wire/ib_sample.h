/* Packets to test with, and packets in words. */
#ifndef TESTS_IB_SAMPLE_H
#define TESTS_IB_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"
#include "wire/roce.h"

#define IB_SAMPLE_TEXT_BYTES 4096u

/* The next opcode after @opcode that means something, or -1 after the last; start with -1. */
int ib_sample_next_opcode(int opcode);

/* A packet whose every field, reserved ones excepted, has a random value that fits. LRH and GRH are
 * filled in too. The payload stays the caller's; an opcode without payload gets none. */
void ib_sample_packet(struct ib_packet *packet, struct prng *prng, uint8_t opcode,
                      const uint8_t *payload, size_t payload_bytes);
void ib_sample_path(struct roce_path *path, struct prng *prng, bool ipv4);

/* "name=value" for every field of every header from the BTH on (and LRH, GRH where packet->headers
 * has them), separated by spaces, named as tshark names them: numbers as 0x..., bytes and GIDs as
 * hex digits. */
void ib_sample_text(char *text, const struct ib_packet *packet);

/* Bytes from hex digits; returns how many. */
size_t ib_sample_hex(uint8_t *out, size_t capacity, const char *hex);

#endif
