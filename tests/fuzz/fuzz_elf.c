/* Any bytes as a program: the reader of ELF files asks a bounded number of times for a bounded
 * number of bytes, and gives facts that make sense. */
#include <stdlib.h>
#include <string.h>

#include "cli/elf.h"

/* Segments, then for each of them the dynamic section, then segments again for the strings. */
#define MOST_READS (4 + ELF_MAX_SEGMENTS * (ELF_MAX_DYNAMIC + 2))

struct bytes {
	const uint8_t *data;
	size_t count;
	unsigned reads;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static bool read_bytes(void *context, void *to, size_t bytes, uint64_t offset)
{
	struct bytes *from = context;
	if (++from->reads > MOST_READS || bytes > ELF_PATH_BYTES)
		abort();
	if (offset > from->count || bytes > from->count - offset)
		return false;
	memcpy(to, from->data + offset, bytes);
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct bytes from = {data, bytes, 0};
	struct elf_source source = {read_bytes, &from};
	struct elf_facts facts;
	memset(&facts, 0xa5, sizeof(facts));
	enum elf_verdict verdict = elf_read(&source, &facts);
	if (memchr(facts.rpath, '\0', sizeof(facts.rpath)) == NULL)
		abort();
	if (verdict != ELF_OK && facts.rpath[0] != '\0')
		abort();
	if (verdict == ELF_NOT_ELF && bytes >= 16 && memcmp(data, "\177ELF", 4) == 0)
		abort();
	if (!facts.same_machine && (facts.is_static || facts.rpath[0] != '\0'))
		abort();
	if (facts.same_machine && !facts.is_64)
		abort();
	return 0;
}
