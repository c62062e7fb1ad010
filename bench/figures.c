/* What the benchmarks share; see figures.h. */
#include "figures.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

bool figures_two_processors(size_t processors[2])
{
	cpu_set_t set;
	int found = 0;
	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return false;
	for (size_t i = 0; i < CPU_SETSIZE && found < 2; i++)
		if (CPU_ISSET(i, &set))
			processors[found++] = i;
	return found == 2;
}

void figures_pin(size_t processor)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		fprintf(stderr, "cannot pin to processor %zu\n", processor);
}

long figures_resident_kib(void)
{
	char line[256];
	long kib = 0;
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "Pss: %ld", &kib) == 1)
			break;
	if (file != NULL)
		fclose(file);
	return kib;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

void figures_sort(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), compare);
}

void figures_report(const char *what, double *values, size_t count, const char *unit)
{
	figures_sort(values, count);
	printf("%s\t%.3f\t%.3f\t%.3f\t%s\n", what, values[count / 2], values[0], values[count - 1],
	       unit);
	fflush(stdout);
}
