/* ICRC over any bytes in every framing, in one piece and in two; and the hidden IPv4
 * identification: the one that was there is always found, and whatever is found explains the ICRC.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/crc.h"
#include "wire/be.h"
#include "wire/icrc.h"

#define MAX_BYTES 8192u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t icrc_ipv4(const uint8_t *bytes, size_t size)
{
	return icrc_transport(icrc_seed_ipv4(bytes), bytes + 28, size - 28);
}

static void solve(const uint8_t *data, size_t size)
{
	uint8_t bytes[MAX_BYTES];
	memcpy(bytes, data, size);
	uint16_t sent = be16_load(bytes + 4), id = 0;
	uint32_t received = icrc_ipv4(bytes, size);
	be16_store(bytes + 4, 0);
	uint32_t zero = icrc_ipv4(bytes, size);
	bool found = icrc_solve_ip_id(zero, received, size - 6, &id);
	assert(found && id == sent);
	/* Damaged by what the bytes themselves say. */
	uint32_t damaged = icrc_get(bytes + size - 4);
	if (icrc_solve_ip_id(zero, damaged, size - 6, &id)) {
		be16_store(bytes + 4, id);
		assert(icrc_ipv4(bytes, size) == damaged);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1 + 40 || size > MAX_BYTES)
		return 0;
	size_t split = 12 + data[0];
	data++;
	size--;
	solve(data, size);
	for (int framing = 0; framing < 3; framing++) {
		size_t before = (size_t[]){8, 40, 48}[framing];
		if (size < before + 12)
			continue;
		uint32_t seed = framing == 0   ? icrc_seed_lrh(data)
		                : framing == 1 ? icrc_seed_grh(data)
		                               : icrc_seed_ipv6(data);
		uint32_t whole = icrc_transport(seed, data + before, size - before);
		if (split <= size - before) {
			uint32_t part = icrc_transport(seed, data + before, split);
			assert(crc32_ieee(part, data + before + split, size - before - split) ==
			       whole);
		}
	}
	return 0;
}
