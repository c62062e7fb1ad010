/* Import tables: which function a loaded module calls by a name. */
#ifndef COMPAT_IMPORTS_H
#define COMPAT_IMPORTS_H

#include <stddef.h>

/* Calls of @name are to reach @call. */
struct import {
	const char *name;
	void (*call)(void);
};

/* Let every module that is loaded now, but our own and the C library, call @imports, which are in
 * the order of their names, in place of what the linker found. Modules that were done before are
 * left as they are. From any thread; may be called again when more modules have come. */
void imports_patch(const struct import *imports, size_t count);

#endif
