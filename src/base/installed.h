/* Finds the parts of an installation. Each part looks for the others next to itself (a build that
 * is not installed), then at their installed location relative to it (below DESTDIR, or after the
 * whole tree has been moved), then in the directories configured at build time. */
#ifndef BASE_INSTALLED_H
#define BASE_INSTALLED_H

#include <stdbool.h>
#include <stddef.h>

enum installed_part {
	INSTALLED_AGENT, /* heddled, in libexecdir */
	INSTALLED_COMPAT /* the libraries that replace the system's, in libdir */
};

/* Find @file, accessible as @mode says (access(2)), and store its path in @out. @beside is the full
 * path of the file that asks. NULL: it is unknown or cannot be trusted, and only the directory
 * configured at build time is searched. */
bool installed_find(enum installed_part part, const char *beside, const char *file, int mode,
                    char *out, size_t bytes);
/* As installed_find(), but @out is the directory. */
bool installed_find_directory(enum installed_part part, const char *beside, const char *file,
                              int mode, char *out, size_t bytes);

#endif
