/* The facts about an ELF file that decide whether the program in it will find Heddle's libibverbs:
 * a reader of the ELF header, program headers and dynamic section that trusts nothing in the file.
 * It reads through a function, so that it works on a file and on a fuzzer's bytes alike. */
#ifndef CLI_ELF_H
#define CLI_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_MAX_SEGMENTS 128u  /* program headers that we look at; usual programs have about 15 */
#define ELF_MAX_DYNAMIC  1024u /* entries of the dynamic section */
#define ELF_PATH_BYTES   4096u /* of a search path, including the NUL */

struct elf_source {
	/* Copy @bytes from @offset to @to. True: all of them exist. */
	bool (*read)(void *context, void *to, size_t bytes, uint64_t offset);
	void *context;
};

struct elf_facts {
	bool is_64;
	bool same_machine; /* for this processor and byte order; otherwise the fields below are not
	                      set */
	uint16_t machine;  /* EM_*, if the byte order is known */
	bool is_static;    /* it is not started through a dynamic loader */
	char rpath[ELF_PATH_BYTES]; /* DT_RPATH if the loader uses it; "": none */
};

enum elf_verdict {
	ELF_OK,
	ELF_NOT_ELF,
	ELF_MALFORMED /* it begins like an ELF file, but is malformed */
};

enum elf_verdict elf_read(const struct elf_source *source, struct elf_facts *facts);

/* "AArch64"; NULL: no name is known. */
const char *elf_machine_name(uint16_t machine);

#endif
