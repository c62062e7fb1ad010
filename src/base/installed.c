/* Finds the parts of an installation. The directories come from the build (meson.build). */
#include "base/installed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLACES 5u

/* For each part: next to the asking file; relative to the directory of the command, of the library
 * and of the drop-in; and the absolute path. */
static const char *const places[][PLACES] = {
        [INSTALLED_AGENT] = {".", INSTALLED_AGENT_FROM_BIN, INSTALLED_AGENT_FROM_LIB,
                             INSTALLED_AGENT_FROM_COMPAT, INSTALLED_AGENT_DIR},
        [INSTALLED_COMPAT] = {".", INSTALLED_COMPAT_FROM_BIN, INSTALLED_COMPAT_FROM_LIB, ".",
                              INSTALLED_COMPAT_DIR},
};

bool installed_find_directory(enum installed_part part, const char *beside, const char *file,
                              int mode, char *out, size_t bytes)
{
	const char *slash = beside != NULL ? strrchr(beside, '/') : NULL;
	for (unsigned i = 0; i < PLACES; i++) {
		const char *place = places[part][i];
		int length;
		if (place[0] == '/')
			length = snprintf(out, bytes, "%s", place);
		else if (slash != NULL)
			length = snprintf(out, bytes, "%.*s/%s", (int)(slash - beside), beside,
			                  place);
		else
			continue;
		size_t used = (size_t)length, room = bytes - used;
		if (length < 0 || used >= bytes)
			continue;
		/* Append the file name to test it, and cut it off again. */
		int more = snprintf(out + used, room, "/%s", file);
		bool found = more > 0 && (size_t)more < room && access(out, mode) == 0;
		out[used] = '\0';
		if (found)
			return true;
	}
	return false;
}

bool installed_find(enum installed_part part, const char *beside, const char *file, int mode,
                    char *out, size_t bytes)
{
	if (!installed_find_directory(part, beside, file, mode, out, bytes))
		return false;
	size_t used = strlen(out);
	snprintf(out + used, bytes - used, "/%s", file); /* fitted before */
	return true;
}
