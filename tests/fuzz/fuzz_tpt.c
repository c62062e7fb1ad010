/* A peer's protection table, read by us: entries, arena and the request are all the fuzzer's.
 * Whatever they say, nothing outside the two arrays is read, and what is granted stays within what
 * was asked.
 *
 * Input: 4 entries of 64 bytes, then the request (addr, length, skip, bytes: 8 each; key, pd, qpn:
 * 4 each; side, access, windows_only: 1 each; 1 unused), then the words of the arena. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory/tpt.h"

#define SLOTS         4u
#define REQUEST_BYTES 48u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void judge(const struct tpt_view *view, const uint8_t *from)
{
	uint64_t wide[4];
	uint32_t narrow[3];
	memcpy(wide, from, sizeof wide);
	memcpy(narrow, from + sizeof wide, sizeof narrow);
	const uint8_t *rest = from + sizeof wide + sizeof narrow;
	const struct tpt_request req = {.key = {narrow[0]},
	                                .side = rest[0],
	                                .windows_only = rest[2] & 1,
	                                .access = rest[1],
	                                .pd = narrow[1],
	                                .qpn = narrow[2],
	                                .addr = wide[0],
	                                .length = wide[1]};
	struct tpt_grant grant;
	if (tpt_check(view, &req, &grant) != HDL_DETAIL_NONE)
		return;
	must(grant.index < SLOTS && grant.length == req.length);
	must(grant.offset <= grant.entry.length &&
	     grant.length <= grant.entry.length - grant.offset);
	struct span runs[8];
	uint64_t covered, sum = 0;
	size_t count = tpt_spans(view, &grant, wide[2], wide[3], runs, 8, &covered);
	must(count <= 8);
	for (size_t i = 0; i < count; i++) {
		must(runs[i].length != 0 && runs[i].length <= UINT64_MAX - runs[i].addr);
		sum += runs[i].length;
	}
	must(sum == covered && covered <= wide[3] &&
	     (count == 0 || covered <= req.length - wide[2]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	size_t fixed = SLOTS * sizeof(struct tpt_slot) + REQUEST_BYTES;
	if (bytes < fixed)
		return 0;
	struct tpt_slot slots[SLOTS];
	memcpy(slots, data, sizeof slots);
	/* A writer that never ends is waited for; the wait itself is tested elsewhere. */
	for (uint32_t i = 0; i < SLOTS; i++)
		atomic_fetch_and(&slots[i].words[0], ~(uint64_t)1);
	/* So that keys find it: without tags and secrets a name is the index, which every second
	 * entry bears. */
	for (uint32_t i = 0; i < SLOTS; i += 2)
		slots[i].words[7] = (slots[i].words[7] & ~0xffff0000ull) | (uint64_t)i << 16;
	size_t words = (bytes - fixed) / sizeof(uint64_t);
	uint64_t *arena = malloc(words * sizeof *arena + 1);
	if (arena == NULL)
		return 0;
	memcpy(arena, data + fixed, words * sizeof *arena);
	const struct tpt_view view = {
	        .slots = slots, .arena = arena, .capacity = SLOTS, .arena_words = words, .mul = 1};
	judge(&view, data + sizeof slots);
	free(arena);
	return 0;
}
