/* Files in memory that processes share. Their size is final: nobody who maps one can be made to
 * fall off its end. */
#ifndef BASE_MEMFILE_H
#define BASE_MEMFILE_H

#include <stdbool.h>
#include <stdint.h>

/* Make one of @bytes zeros. The descriptor; -1 and errno. */
int memfile_make(const char *name, uint64_t bytes);

/* From now on what is mapped writable stays so, and nothing else can write to it: a descriptor can
 * be given to readers. False: the kernel (before Linux 5.1) cannot, and nothing has changed. */
bool memfile_close_to_writers(int fd);

/* Nothing of the above changes any more; once, before others get it. False and errno. */
bool memfile_seal(int fd);

/* Was @fd, which somebody gave us, made so, of @bytes and of ordinary pages? Then every byte of it
 * can be read, now and later. */
bool memfile_is_sealed(int fd, uint64_t bytes);

#endif
