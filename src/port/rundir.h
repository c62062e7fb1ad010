/* The directory of a user's agent, which no other user can enter, with a socket and a lock file in
 * it.
 *
 *   $HEDDLE_DIR, else $XDG_RUNTIME_DIR/heddle, else the first of these that is there and ours, else
 *   the first that can be made: /tmp/heddle-UID, /dev/shm/heddle-UID, /var/tmp/heddle-UID,
 *   /run/user/UID/heddle
 *
 * UID is the user's number; in a user namespace that gives the user another one, it is that outside
 * and that inside, as in /tmp/heddle-1000-0. Otherwise anybody could make the directory that root,
 * say, would use.
 *
 * The directory must belong to the user and be inaccessible to others; anything else is refused, so
 * that no other user can plant a socket there. Where all users can create directories, a directory
 * with our name that belongs to another user is skipped. */
#ifndef PORT_RUNDIR_H
#define PORT_RUNDIR_H

#include <stddef.h>

#define RUNDIR_MAX 96 /* fits a socket address together with a file name */

/* Find or create the directory. Returns 0; -ENAMETOOLONG; -EINVAL: HEDDLE_DIR is not an
 * absolute path; -EACCES: it belongs to another user; -EPERM: accessible to others, or not to
 * ourselves; other errors of mkdir. @passed, RUNDIR_MAX bytes or NULL, is the
 * first directory that was skipped because it belongs to another user, or "". */
int rundir_open(char path[RUNDIR_MAX], char *passed);
/* What the user can do about an error of rundir_open(), or of a file in the directory. */
const char *rundir_advice(int error);
/* The path of a file in the directory. */
void rundir_file(const char *directory, const char *name, char *out, size_t bytes);

#endif
