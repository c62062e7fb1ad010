/* Where the parts of an installation are. Each of them looks for the others beside itself (a build
 * that is not installed), then where they were installed relative to it (below DESTDIR, or after
 * the whole was moved), then where the build was told to install them. */
#ifndef BASE_INSTALLED_H
#define BASE_INSTALLED_H

#include <stdbool.h>
#include <stddef.h>

enum installed_part {
	INSTALLED_AGENT, /* heddled, in libexecdir */
	INSTALLED_COMPAT /* the libraries that stand in for the system's, in libdir */
};

/* Find @file, which can be accessed as @mode says (access(2)). @beside is the file that asks, by
 * its whole path; NULL: nobody knows, or it cannot be trusted, and then only the place that the
 * build was told of counts. Its path is in @out. */
bool installed_find(enum installed_part part, const char *beside, const char *file, int mode,
                    char *out, size_t bytes);
/* The same, and @out is the directory. */
bool installed_find_directory(enum installed_part part, const char *beside, const char *file,
                              int mode, char *out, size_t bytes);

#endif
