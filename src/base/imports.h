/* Import tables: which function a loaded module reaches by a name. */
#ifndef BASE_IMPORTS_H
#define BASE_IMPORTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Calls of @name shall reach @call. */
struct import {
	const char *name;
	void (*call)(void);
};

struct imports {
	const struct import *list; /* sorted by name */
	size_t count;
	_Atomic uint64_t loaded; /* how many modules had been loaded when this was done last */
};

/* Redirect the calls of every module that is loaded now, except ours and the C library. May be
 * called from any thread, and again after more modules have been loaded; if none has, it costs
 * little. What is redirected stays so: our module must not be unloaded. */
void imports_patch(struct imports *imports);

#endif
