/* A module of a program, for imports.c: it calls one function of the C library in the two ways that
 * compilers know, through the procedure linkage table and through a pointer of its own. */
#include <sys/types.h>

#pragma GCC visibility push(default)
pid_t by_table(void);
pid_t by_pointer(void);
gid_t another(void);
#pragma GCC visibility pop

pid_t getppid(void);
pid_t getpgrp(void) __attribute__((noplt));
gid_t getegid(void);

pid_t by_table(void)
{
	return getppid();
}

pid_t by_pointer(void)
{
	return getpgrp();
}

gid_t another(void)
{
	return getegid();
}
