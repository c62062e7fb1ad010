/* Where the agent of a user is found: a directory that nobody else can enter, with a socket and a lock in it.
 *
 *   $HEDDLE_DIR, else $XDG_RUNTIME_DIR/heddle, else /tmp/heddle-UID
 *
 * The directory must belong to the user and be closed to others; anything else is refused, so that no one can put a socket of
 * theirs in our way. */
#ifndef PORT_RUNDIR_H
#define PORT_RUNDIR_H

#include <stddef.h>

#define RUNDIR_MAX 96 /* fits a socket address with a file name behind it */

/* Find or make the directory. 0; -ENAMETOOLONG; -EPERM: somebody else's, or open to others; other errors of mkdir. */
int rundir_open(char path[RUNDIR_MAX]);
/* What the user can do about an error of rundir_open(), or of a file in the directory. */
const char *rundir_advice(int error);
/* A file in it. */
void rundir_file(const char *directory, const char *name, char *out, size_t bytes);

#endif
