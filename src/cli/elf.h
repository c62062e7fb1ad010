/* The facts of an ELF file that decide whether the program in it will find Heddle's libibverbs: a
 * reader of headers, program headers and the dynamic section that trusts nothing in the file. It
 * reads through a function, so that it runs over a file and over a fuzzer's bytes alike. */
#ifndef CLI_ELF_H
#define CLI_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_MAX_SEGMENTS 128u  /* program headers that are looked at; ours have about 15 */
#define ELF_MAX_DYNAMIC  1024u /* entries of the dynamic section */
#define ELF_PATH_BYTES   4096u /* of a search path, with its end */

struct elf_source {
	/* Copy @bytes from @offset on to @to. True: all of them were there. */
	bool (*read)(void *context, void *to, size_t bytes, uint64_t offset);
	void *context;
};

struct elf_facts {
	bool is_64;
	bool same_machine; /* for this processor and byte order; else what follows is not known */
	uint16_t machine;  /* EM_*, as far as the byte order is known */
	bool is_static;    /* no dynamic loader has a part in it */
	char rpath[ELF_PATH_BYTES]; /* DT_RPATH where it counts; "": none */
};

enum elf_verdict {
	ELF_OK,
	ELF_NOT_ELF,
	ELF_MALFORMED /* it begins like one, and then says what cannot be */
};

enum elf_verdict elf_read(const struct elf_source *source, struct elf_facts *facts);

/* "AArch64"; NULL: not one that has a name here. */
const char *elf_machine_name(uint16_t machine);

#endif
