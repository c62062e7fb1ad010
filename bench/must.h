/* For calls without which a benchmark cannot go on. */
#ifndef BENCH_MUST_H
#define BENCH_MUST_H

#include <heddle/heddle.h>
#include <stdio.h>
#include <stdlib.h>

static inline void must(int result, const char *what)
{
	if (result == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hdl_strerror(result));
	exit(1);
}

#endif
