/* How to write a call that is not offered: it takes any arguments and returns EOPNOTSUPP in the way
 * of its kind. */
#ifndef COMPAT_STUBS_H
#define COMPAT_STUBS_H

#include "compat/compat.h"

#define STUB(name, type, ...)          \
	COMPAT_EXPORT type name(void); \
	type name(void)                \
	{                              \
		__VA_ARGS__;           \
	}

#define NOTHING    (void)0
#define NO_POINTER return compat_fail(EOPNOTSUPP)
#define NO_NUMBER           \
	errno = EOPNOTSUPP; \
	return -1
#define NO_ERRNO return EOPNOTSUPP

#endif
