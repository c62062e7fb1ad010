/* Shared memory files. Their size is fixed, so a process that maps one cannot be made to fault
 * beyond its end. */
#ifndef BASE_MEMFILE_H
#define BASE_MEMFILE_H

#include <stdbool.h>
#include <stdint.h>

/* Create a file of @bytes zeros. Returns the descriptor, or -1 with errno set. */
int memfile_make(const char *name, uint64_t bytes);

/* Existing writable mappings stay writable, but from now on nobody can create another or write to
 * the file: the descriptor can be given to readers. False: the kernel (before Linux 5.1) does not
 * support this, and nothing has changed. */
bool memfile_close_to_writers(int fd);

/* Forbid any further change of the seals. Call once, before others get the descriptor. False with
 * errno set. */
bool memfile_seal(int fd);

/* Was @fd, received from another process, created this way, with @bytes and ordinary pages? Then
 * every byte of it can be read, now and later. */
bool memfile_is_sealed(int fd, uint64_t bytes);

#endif
