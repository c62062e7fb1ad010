/* Facts about an ELF file. Offsets and counts come from the file. So every read has a fixed size or
 * one that was compared with a limit, no two numbers of the file are added without a check for
 * overflow, and loops are bounded by the limits of elf.h. */
#include "cli/elf.h"

#include <assert.h>
#include <elf.h>
#include <string.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define OWN_DATA ELFDATA2LSB
#else
#define OWN_DATA ELFDATA2MSB
#endif
#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#elif defined(__riscv)
#define OWN_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define OWN_MACHINE EM_PPC64
#elif defined(__s390x__)
#define OWN_MACHINE EM_S390
#else
#define OWN_MACHINE EM_NONE
#endif

const char *elf_machine_name(uint16_t machine)
{
	switch (machine) {
	case EM_X86_64:
		return "x86-64";
	case EM_386:
		return "i386";
	case EM_AARCH64:
		return "AArch64";
	case EM_ARM:
		return "ARM";
	case EM_RISCV:
		return "RISC-V";
	case EM_PPC64:
		return "PowerPC 64";
	case EM_S390:
		return "s390";
	default:
		return NULL;
	}
}

/* What we need from the dynamic section; addresses, 0: not present. */
struct dynamic {
	uint64_t strings, strings_bytes;
	uint64_t rpath, runpath; /* offsets in the string table */
	bool has_rpath, has_runpath, has_name;
};

static bool elf_get(const struct elf_source *source, void *to, size_t bytes, uint64_t offset)
{
	return offset <= INT64_MAX - bytes && source->read(source->context, to, bytes, offset);
}

static bool read_segment(const struct elf_source *source, const Elf64_Ehdr *header, uint32_t index,
                         Elf64_Phdr *segment)
{
	uint64_t place = (uint64_t)index * sizeof(*segment);
	return header->e_phoff <= INT64_MAX - place &&
	       elf_get(source, segment, sizeof(*segment), header->e_phoff + place);
}

/* The file offset of the byte at @address of the program. */
static bool file_offset(const struct elf_source *source, const Elf64_Ehdr *header, uint64_t address,
                        uint64_t *offset)
{
	Elf64_Phdr segment;
	for (uint32_t i = 0; i < header->e_phnum; i++) {
		if (!read_segment(source, header, i, &segment))
			return false;
		if (segment.p_type != PT_LOAD || address < segment.p_vaddr ||
		    address - segment.p_vaddr >= segment.p_filesz ||
		    segment.p_offset > INT64_MAX - (address - segment.p_vaddr))
			continue;
		*offset = segment.p_offset + (address - segment.p_vaddr);
		return true;
	}
	return false;
}

static bool read_dynamic(const struct elf_source *source, const Elf64_Phdr *segment,
                         struct dynamic *out)
{
	uint64_t count = segment->p_filesz / sizeof(Elf64_Dyn);
	*out = (struct dynamic){0};
	for (uint64_t i = 0; i < count && i < ELF_MAX_DYNAMIC; i++) {
		Elf64_Dyn entry;
		uint64_t place = i * sizeof(entry);
		if (segment->p_offset > INT64_MAX - place ||
		    !elf_get(source, &entry, sizeof(entry), segment->p_offset + place))
			return false;
		switch (entry.d_tag) {
		case DT_NULL:
			return true;
		case DT_STRTAB:
			out->strings = entry.d_un.d_ptr;
			break;
		case DT_STRSZ:
			out->strings_bytes = entry.d_un.d_val;
			break;
		case DT_RPATH:
			out->rpath = entry.d_un.d_val;
			out->has_rpath = true;
			break;
		case DT_RUNPATH:
			out->has_runpath = true;
			break;
		case DT_SONAME:
			out->has_name = true;
			break;
		default:
			break;
		}
	}
	return true;
}

/* The string at @index of the string table: as much as fits, with a NUL. */
static bool read_string(const struct elf_source *source, const Elf64_Ehdr *header,
                        const struct dynamic *dynamic, uint64_t index, char *out, size_t room)
{
	uint64_t table;
	if (index >= dynamic->strings_bytes ||
	    !file_offset(source, header, dynamic->strings, &table) || index > INT64_MAX - table)
		return false;
	assert(room > 0);
	uint64_t left = dynamic->strings_bytes - index;
	size_t bytes = left < room - 1 ? (size_t)left : room - 1;
	memset(out, 0, room);
	if (!elf_get(source, out, bytes, table + index))
		return false;
	return memchr(out, '\0', bytes) != NULL; /* a path without an end is none */
}

static enum elf_verdict read_program(const struct elf_source *source, const Elf64_Ehdr *header,
                                     struct elf_facts *facts)
{
	bool interpreter = false;
	struct dynamic dynamic = {0};
	if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum > ELF_MAX_SEGMENTS)
		return ELF_MALFORMED;
	for (uint32_t i = 0; i < header->e_phnum; i++) {
		Elf64_Phdr segment;
		if (!read_segment(source, header, i, &segment))
			return ELF_MALFORMED;
		interpreter |= segment.p_type == PT_INTERP;
		if (segment.p_type == PT_DYNAMIC && !read_dynamic(source, &segment, &dynamic))
			return ELF_MALFORMED;
	}
	/* The loader itself, and libraries that can be run, have a name but no interpreter. */
	facts->is_static = !interpreter && !dynamic.has_name;
	/* If there is a DT_RUNPATH, the loader ignores DT_RPATH. */
	if (dynamic.has_rpath && !dynamic.has_runpath &&
	    !read_string(source, header, &dynamic, dynamic.rpath, facts->rpath,
	                 sizeof(facts->rpath))) {
		facts->rpath[0] = '\0';
		return ELF_MALFORMED;
	}
	return ELF_OK;
}

enum elf_verdict elf_read(const struct elf_source *source, struct elf_facts *facts)
{
	unsigned char ident[EI_NIDENT];
	Elf64_Half kind_and_machine[2]; /* at the same offset for both word sizes */
	Elf64_Ehdr header;
	memset(facts, 0, sizeof(*facts));
	if (!elf_get(source, ident, sizeof(ident), 0) || memcmp(ident, ELFMAG, SELFMAG) != 0)
		return ELF_NOT_ELF;
	if (!elf_get(source, kind_and_machine, sizeof(kind_and_machine), sizeof(ident)))
		return ELF_MALFORMED;
	facts->machine = ident[EI_DATA] == OWN_DATA
	                         ? kind_and_machine[1]
	                         : (uint16_t)__builtin_bswap16(kind_and_machine[1]);
	facts->is_64 = ident[EI_CLASS] == ELFCLASS64;
	facts->same_machine = facts->is_64 && ident[EI_DATA] == OWN_DATA &&
	                      (facts->machine == OWN_MACHINE || OWN_MACHINE == EM_NONE);
	if (!facts->same_machine)
		return ELF_OK;
	if (!elf_get(source, &header, sizeof(header), 0))
		return ELF_MALFORMED;
	return read_program(source, &header, facts);
}
