/* Import tables of loaded modules, changed in place.
 *
 * A module calls a function of another one through a pointer of its own, which the dynamic linker
 * has filled in, or will at the first call. The relocations in the module's dynamic section tell
 * which pointer belongs to which function. Pointers that the linker has made read-only (RELRO) are
 * made writable for the one store. */
#include "base/imports.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define RELOC_CALL R_X86_64_JUMP_SLOT
#define RELOC_DATA R_X86_64_GLOB_DAT
#elif defined(__aarch64__)
#define RELOC_CALL R_AARCH64_JUMP_SLOT
#define RELOC_DATA R_AARCH64_GLOB_DAT
#else
#error "relocations of this processor are not known"
#endif

struct module {
	uintptr_t base;
	uintptr_t relro, relro_end;
	const ElfW(Sym) * symbols;
	const char *strings;
};

static const struct import *imports_find(const struct imports *imports, const char *name)
{
	size_t low = 0, high = imports->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = strcmp(name, imports->list[middle].name);
		if (order == 0)
			return &imports->list[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

static void set_pointer(const struct module *module, uintptr_t where, void (*call)(void))
{
	void (**pointer)(void) = (void (**)(void))where;
	if (__atomic_load_n(pointer, __ATOMIC_RELAXED) == call)
		return;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	bool guarded = where >= module->relro && where < module->relro_end;
	void *start = (void *)(where & ~(page - 1));
	if (guarded && mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
		return;
	__atomic_store_n(pointer, call, __ATOMIC_RELEASE);
	if (guarded)
		mprotect(start, page, PROT_READ);
}

static void patch_relocations(const struct module *module, const ElfW(Rela) * list, size_t bytes,
                              const struct imports *imports)
{
	for (size_t i = 0; i < bytes / sizeof(*list); i++) {
		uint32_t type = ELF64_R_TYPE(list[i].r_info);
		if ((type != RELOC_CALL && type != RELOC_DATA) || list[i].r_addend != 0)
			continue;
		const ElfW(Sym) *symbol = &module->symbols[ELF64_R_SYM(list[i].r_info)];
		const struct import *import =
		        imports_find(imports, module->strings + symbol->st_name);
		/* What the module defines itself is not an import. */
		if (import != NULL && symbol->st_shndx == SHN_UNDEF)
			set_pointer(module, module->base + list[i].r_offset, import->call);
	}
}

/* The linker has turned the addresses in the dynamic section into pointers, except in modules that
 * the kernel maps. */
static uintptr_t imports_address_of(const struct module *module, ElfW(Addr) address)
{
	return address < module->base ? module->base + address : address;
}

static void patch_module(struct module *module, const ElfW(Dyn) * dynamic,
                         const struct imports *imports)
{
	const ElfW(Rela) *calls = NULL, *others = NULL;
	size_t calls_bytes = 0, others_bytes = 0;
	bool with_addends = true;
	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		switch (dynamic->d_tag) {
		case DT_SYMTAB:
			module->symbols =
			        (const ElfW(Sym) *)imports_address_of(module, dynamic->d_un.d_ptr);
			break;
		case DT_STRTAB:
			module->strings =
			        (const char *)imports_address_of(module, dynamic->d_un.d_ptr);
			break;
		case DT_JMPREL:
			calls = (const ElfW(Rela) *)imports_address_of(module, dynamic->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			calls_bytes = dynamic->d_un.d_val;
			break;
		case DT_PLTREL:
			with_addends = dynamic->d_un.d_val == DT_RELA;
			break;
		case DT_RELA:
			others =
			        (const ElfW(Rela) *)imports_address_of(module, dynamic->d_un.d_ptr);
			break;
		case DT_RELASZ:
			others_bytes = dynamic->d_un.d_val;
			break;
		default:
			break;
		}
	}
	if (module->symbols == NULL || module->strings == NULL || !with_addends)
		return;
	if (calls != NULL)
		patch_relocations(module, calls, calls_bytes, imports);
	if (others != NULL)
		patch_relocations(module, others, others_bytes, imports);
}

/* The C library must still find the system's files for its own use, and so must we. */
static bool is_exempt(const struct dl_phdr_info *info)
{
	const char *name = strrchr(info->dlpi_name, '/');
	name = name != NULL ? name + 1 : info->dlpi_name;
	if (strncmp(name, "libc.so", 7) == 0 || strncmp(name, "ld-linux", 8) == 0 ||
	    strncmp(name, "linux-vdso", 10) == 0 || strncmp(name, "libasan", 7) == 0 ||
	    strncmp(name, "libtsan", 7) == 0 || strncmp(name, "libubsan", 8) == 0)
		return true;
	uintptr_t here = (uintptr_t)&is_exempt;
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + part->p_vaddr;
		if (part->p_type == PT_LOAD && here >= start && here - start < part->p_memsz)
			return true;
	}
	return false;
}

/* --- which modules there are --- */

struct found {
	char *name;
	uintptr_t base;
	const ElfW(Phdr) * parts;
	size_t part_count;
};

struct found_list {
	struct found *list;
	size_t count, room;
	bool whole;
};

/* A module is on this list before the linker has relocated it, and what is stored into it then is
 * lost, or protects pages that the linker still writes to. So here nothing is touched. */
static int collect(struct dl_phdr_info *info, size_t size, void *context)
{
	struct found_list *found = context;
	(void)size;
	if (is_exempt(info))
		return 0;
	if (found->count == found->room) {
		size_t room = found->room != 0 ? 2 * found->room : 64;
		struct found *list = realloc(found->list, room * sizeof(*list));
		if (list == NULL) {
			found->whole = false;
			return 1;
		}
		found->list = list;
		found->room = room;
	}
	char *name = strdup(info->dlpi_name);
	if (name == NULL) {
		found->whole = false;
		return 1;
	}
	found->list[found->count++] =
	        (struct found){name, info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum};
	return 0;
}

/* Its module is loaded, and stays so meanwhile. */
static void patch_found(const struct found *found, const struct imports *imports)
{
	struct module module = {.base = found->base};
	const ElfW(Dyn) *dynamic = NULL;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	for (size_t i = 0; i < found->part_count; i++) {
		const ElfW(Phdr) *part = &found->parts[i];
		uintptr_t start = found->base + part->p_vaddr;
		if (part->p_type == PT_DYNAMIC) {
			dynamic = (const ElfW(Dyn) *)start;
		} else if (part->p_type == PT_GNU_RELRO) {
			/* The linker protects whole pages: if the last one also holds writable
			 * data, it stays writable. */
			module.relro = start & ~(page - 1);
			module.relro_end = (start + part->p_memsz) & ~(page - 1);
		}
	}
	if (dynamic != NULL)
		patch_module(&module, dynamic, imports);
}

/* To ask for a module by its name waits until the linker is done with it, and keeps it loaded. One
 * that has gone since is no loss. */
static void pin_and_patch(const struct found *found, const struct imports *imports)
{
	void *handle = dlopen(found->name[0] != '\0' ? found->name : NULL, RTLD_LAZY | RTLD_NOLOAD);
	struct link_map *map = NULL;
	if (handle == NULL)
		return;
	if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_addr == found->base)
		patch_found(found, imports);
	dlclose(handle);
}

/* Only the count of the first module is looked at: all tell the same. */
static int count_modules(struct dl_phdr_info *info, size_t size, void *context)
{
	(void)size;
	*(uint64_t *)context = info->dlpi_adds;
	return 1;
}

/* --- one at a time: pages are made writable, and read-only again --- */

static pthread_mutex_t patch_lock = PTHREAD_MUTEX_INITIALIZER;

static void imports_in_child(void)
{
	pthread_mutex_init(&patch_lock, NULL); /* who held it does not exist here */
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, imports_in_child);
}

void imports_patch(struct imports *imports)
{
	uint64_t loaded = 0;
	struct found_list found = {.whole = true};
	dl_iterate_phdr(count_modules, &loaded);
	if (loaded == atomic_load_explicit(&imports->loaded, memory_order_acquire))
		return;
	dl_iterate_phdr(collect, &found);
	pthread_mutex_lock(&patch_lock);
	for (size_t i = 0; i < found.count; i++) {
		pin_and_patch(&found.list[i], imports);
		free(found.list[i].name);
	}
	pthread_mutex_unlock(&patch_lock);
	free(found.list);
	if (found.whole)
		atomic_store_explicit(&imports->loaded, loaded, memory_order_release);
}
