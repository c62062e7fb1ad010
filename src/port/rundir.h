/* Where the agent of a user is found: a directory that nobody else can enter, with a socket and a
 * lock in it.
 *
 *   $HEDDLE_DIR, else $XDG_RUNTIME_DIR/heddle, else the first of these that is there and ours, else
 *   the first that can be made: /tmp/heddle-UID, /dev/shm/heddle-UID, /var/tmp/heddle-UID,
 *   /run/user/UID/heddle
 *
 * The directory must belong to the user and be closed to others; anything else is refused, so that
 * no one can put a socket of theirs in our way. Where everybody may make directories, one of
 * somebody else's by our name is passed over. */
#ifndef PORT_RUNDIR_H
#define PORT_RUNDIR_H

#include <stddef.h>

#define RUNDIR_MAX 96 /* fits a socket address with a file name behind it */

/* Find or make the directory. 0; -ENAMETOOLONG; -EACCES: somebody else's; -EPERM: open to others;
 * other errors of mkdir. @passed, RUNDIR_MAX bytes or NULL, is the first place that had to be
 * passed over because another user has it, or "". */
int rundir_open(char path[RUNDIR_MAX], char *passed);
/* What the user can do about an error of rundir_open(), or of a file in the directory. */
const char *rundir_advice(int error);
/* A file in it. */
void rundir_file(const char *directory, const char *name, char *out, size_t bytes);

#endif
