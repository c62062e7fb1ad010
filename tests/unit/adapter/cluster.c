/* The table of cluster addresses that HEDDLE_CLUSTER names (AP1, AP4): what it says, and what is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <heddle/error.h>

#include "adapter/aperture/cluster.h"

static char path[] = "/tmp/heddle-cluster-XXXXXX";

static int read_text(const char *text, struct cluster **out)
{
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	return cluster_read(path, out);
}

static const uint8_t four[16] = {[10] = 0xff, 0xff, 10, 0, 0, 2}, six[16] = {0xfd, [15] = 3},
                     other[16] = {[10] = 0xff, 0xff, 10, 0, 0, 3};

static void both_directions(void **state)
{
	struct cluster *cluster;
	uint8_t host[16];
	(void)state;
	assert_int_equal(read_text("# numbers\n\n 0x12\tfd00::3 # six\n65535 10.0.0.2", &cluster),
	                 0);
	assert_int_equal(cluster_of(cluster, four), 65535);
	assert_int_equal(cluster_of(cluster, six), 18);
	assert_int_equal(cluster_of(cluster, other), 0);
	assert_true(cluster_find(cluster, 65535, host));
	assert_memory_equal(host, four, 16);
	assert_true(cluster_find(cluster, 18, host));
	assert_memory_equal(host, six, 16);
	assert_false(cluster_find(cluster, 0, host));
	assert_false(cluster_find(cluster, 17, host));
	cluster_free(cluster);
	assert_int_equal(read_text("", &cluster), 0);
	assert_int_equal(cluster_of(cluster, four), 0);
	cluster_free(cluster);
	cluster_free(NULL);
}

/* Every number at once. */
static void all_numbers(void **state)
{
	struct cluster *cluster;
	uint8_t host[16] = {[10] = 0xff, 0xff, 10};
	char *text = malloc(65535 * 24), *at = text;
	(void)state;
	assert_non_null(text);
	for (unsigned i = 1; i <= 65535; i++)
		at += sprintf(at, "%u 10.1.%u.%u\n", i, i % 256, i / 256);
	assert_int_equal(read_text(text, &cluster), 0);
	for (unsigned i = 1; i <= 65535; i++) {
		host[13] = 1;
		host[14] = (uint8_t)i;
		host[15] = (uint8_t)(i / 256);
		uint8_t found[16];
		assert_int_equal(cluster_of(cluster, host), i);
		assert_true(cluster_find(cluster, (uint16_t)i, found));
		assert_memory_equal(found, host, 16);
	}
	cluster_free(cluster);
	free(text);
}

static void what_is_wrong_is_refused(void **state)
{
	static const char *const wrong[] = {
	        "0 10.0.0.2\n",
	        "65536 10.0.0.2\n",
	        "-1 10.0.0.2\n",
	        "1x 10.0.0.2\n",
	        "one 10.0.0.2\n",
	        "1\n",
	        "1 node\n",
	        "1 10.0.0.2 10.0.0.3\n",
	        "1 10.0.0.2\n1 10.0.0.3\n",
	        "1 10.0.0.2\n2 10.0.0.2\n",
	        "1 10.0.0.2\n2 ::ffff:10.0.0.2\n",
	};
	struct cluster *cluster = NULL;
	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (read_text(wrong[i], &cluster) != -HDL_EINVAL)
			fail_msg("taken: %s", wrong[i]);
	/* A line that is longer than a line can be is no two lines. */
	char line[2 * CLUSTER_LINE_BYTES + 2] = "1 10.0.0.2";
	memset(line + 10, ' ', sizeof(line) - 11);
	memcpy(line + CLUSTER_LINE_BYTES, "2 10.0.0.3\n", 12);
	assert_int_equal(read_text(line, &cluster), -HDL_EINVAL);
	assert_int_equal(cluster_read("/nowhere/at/all", &cluster), -HDL_EINVAL);
	assert_null(cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(both_directions),
	        cmocka_unit_test(all_numbers),
	        cmocka_unit_test(what_is_wrong_is_refused),
	};
	int fd = mkstemp(path);
	if (fd < 0)
		return 77;
	close(fd);
	int result = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return result;
}
