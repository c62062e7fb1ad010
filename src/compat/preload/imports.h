/* Import tables: which function a loaded module reaches by a name. */
#ifndef COMPAT_IMPORTS_H
#define COMPAT_IMPORTS_H

#include <stddef.h>

/* Calls of @name shall reach @call. */
struct import {
	const char *name;
	void (*call)(void);
};

/* Redirect the calls of every module that is loaded now, except ours and the C library, to
 * @imports, which are sorted by name. Modules that were redirected before are left as they are. May
 * be called from any thread, and again after more modules have been loaded. */
void imports_patch(const struct import *imports, size_t count);

#endif
