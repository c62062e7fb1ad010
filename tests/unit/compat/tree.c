/* The files that exist in this process alone: whose a path is, what a file says, what a folder
 * holds. MISSION X1. */
#include "compat/preload/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEVICE "/sys/class/infiniband/heddle0"
#define OTHER  "/sys/class/infiniband/heddle_ib0"

static void whose_a_path_is(void **state)
{
	static const struct {
		const char *path;
		enum tree_owner owner;
		enum tree_kind kind;
	} rows[] = {
	        {"/sys/class/infiniband", TREE_OURS, TREE_DIRECTORY},
	        {"/sys/class/infiniband/", TREE_OURS, TREE_DIRECTORY},
	        {"//sys///class/./infiniband/../infiniband", TREE_OURS, TREE_DIRECTORY},
	        {"/../sys/class/infiniband", TREE_OURS, TREE_DIRECTORY},
	        {DEVICE "/ports/1/state", TREE_OURS, TREE_FILE},
	        {DEVICE "/ports/1/../1/state", TREE_OURS, TREE_FILE},
	        {"/dev/infiniband/uverbs0", TREE_OURS, TREE_DEVICE},
	        {"/dev/infiniband/rdma_cm", TREE_OURS, TREE_DEVICE},
	        {"/sys/class/misc/rdma_cm/abi_version", TREE_OURS, TREE_FILE},
	        {"/sys/class/misc", TREE_OTHERS, 0},
	        {"/sys/class/infiniband_verbs/uverbs0/ibdev", TREE_OURS, TREE_FILE},
	        {"/sys/class/infiniband/mlx5_0", TREE_MISSING, 0},
	        {DEVICE "/device/numa_node", TREE_MISSING, 0},
	        {"/dev/infiniband/uverbs1", TREE_OURS, TREE_DEVICE},
	        {"/dev/infiniband/uverbs2", TREE_OURS, TREE_DEVICE},
	        {"/dev/infiniband/uverbs3", TREE_MISSING, 0},
	        {OTHER "/ports/1/gid_attrs/ndevs/0", TREE_MISSING, 0},
	        {"/sys/class/infiniband_mad", TREE_OTHERS, 0},
	        {"/sys/class/infinibandage", TREE_OTHERS, 0},
	        {"/sys/class/infiniband/../net", TREE_OTHERS, 0},
	        {"/sys/class/infiniband/..", TREE_OTHERS, 0},
	        {"sys/class/infiniband", TREE_OTHERS, 0},
	        {"/", TREE_OTHERS, 0},
	        {"", TREE_OTHERS, 0},
	        {NULL, TREE_OTHERS, 0},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct tree_node *node = NULL;
		assert_int_equal(tree_find(rows[i].path, &node), rows[i].owner);
		assert_int_equal(node != NULL, rows[i].owner == TREE_OURS);
		if (node != NULL)
			assert_int_equal(node->kind, rows[i].kind);
	}
}

/* A path at the limit is looked at, one that is longer is the system's. */
static void long_paths(void **state)
{
	static char path[2 * TREE_PATH_BYTES];
	const struct tree_node *node;
	(void)state;
	memset(path, 'x', sizeof(path) - 1);
	memcpy(path, "/sys/class/infiniband/", 22);
	assert_int_equal(tree_find(path, &node), TREE_OTHERS);
	path[TREE_PATH_BYTES] = '\0';
	assert_int_equal(tree_find(path, &node), TREE_OTHERS);
	path[TREE_PATH_BYTES - 1] = '\0';
	assert_int_equal(tree_find(path, &node), TREE_MISSING);
}

static void what_files_say(void **state)
{
	static const struct {
		const char *path, *text;
	} rows[] = {
	        {DEVICE "/ports/1/state", "4: ACTIVE\n"},
	        {DEVICE "/ports/1/link_layer", "Ethernet\n"},
	        {DEVICE "/ports/1/gid_attrs/types/0", "RoCE v2\n"},
	        {DEVICE "/ports/1/gids/15", "0000:0000:0000:0000:0000:0000:0000:0000\n"},
	        {"/sys/class/infiniband_verbs/uverbs0/ibdev", "heddle0\n"},
	        {DEVICE "/ports/1/lid", "0x0\n"},
	        {OTHER "/ports/1/link_layer", "InfiniBand\n"},
	        {OTHER "/ports/1/sm_lid", "0x1\n"},
	        {OTHER "/ports/1/gid_attrs/types/0", "IB/RoCE v1\n"},
	        {"/sys/class/infiniband_verbs/uverbs1/ibdev", "heddle_ib0\n"},
	};
	char text[TREE_TEXT_BYTES], gid[TREE_TEXT_BYTES];
	const struct tree_node *node;
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(tree_find(rows[i].path, &node), TREE_OURS);
		assert_int_equal(tree_text(node, text, sizeof(text)), strlen(rows[i].text));
		assert_string_equal(text, rows[i].text);
	}
	assert_int_equal(tree_find(DEVICE "/node_guid", &node), TREE_OURS);
	assert_int_equal(tree_text(node, text, sizeof(text)), 20);
	assert_int_equal(tree_find(DEVICE "/ports/1/gids/0", &node), TREE_OURS);
	assert_int_equal(tree_text(node, gid, sizeof(gid)), 40);
	assert_memory_not_equal(gid, "0000:0000:0000:0000:0000:0000:0000:0000", 39);
}

/* Every node can be reached from one of the three roots by reading folders. */
static size_t count_below(const struct tree_node *folder)
{
	const char *name;
	size_t count = 1;
	for (size_t i = 0;; i++) {
		const struct tree_node *child = tree_child(folder, i, &name);
		if (child == NULL)
			return count;
		assert_null(strchr(name, '/'));
		count += child->kind == TREE_DIRECTORY ? count_below(child) : 1;
	}
}

static void folders_hold_everything(void **state)
{
	const struct tree_node *class, *verbs, *dev;
	const char *name;
	(void)state;
	assert_int_equal(tree_find("/sys/class/infiniband", &class), TREE_OURS);
	assert_int_equal(tree_find("/sys/class/infiniband_verbs", &verbs), TREE_OURS);
	assert_int_equal(tree_find("/dev/infiniband", &dev), TREE_OURS);
	assert_non_null(tree_child(class, 0, &name));
	assert_string_equal(name, "heddle0");
	assert_non_null(tree_child(class, 1, &name));
	assert_string_equal(name, "heddle_ib0");
	assert_non_null(tree_child(class, 2, &name));
	assert_string_equal(name, "heddle_iw0");
	assert_null(tree_child(class, 3, &name));
	/* A type and an interface for every address of heddle0 and heddle_iw0, a type for the one
	 * of heddle_ib0. */
	size_t count = count_below(class) + count_below(verbs) + count_below(dev);
	assert_true(count >= 140 + 2 * 4 && count <= 140 + 2 * 30 && count % 2 == 0);
}

/* HEDDLE_DEVICE shows one device alone. */
static void one_device_alone(void **state)
{
	const struct tree_node *node;
	const char *name;
	(void)state;
	setenv("HEDDLE_DEVICE", "heddle_ib0", 1);
	assert_int_equal(tree_find(DEVICE "/ports/1/state", &node), TREE_MISSING);
	assert_int_equal(tree_find("/dev/infiniband/uverbs0", &node), TREE_MISSING);
	assert_int_equal(tree_find(OTHER "/ports/1/state", &node), TREE_OURS);
	assert_int_equal(tree_find("/sys/class/infiniband", &node), TREE_OURS);
	assert_non_null(tree_child(node, 0, &name));
	assert_string_equal(name, "heddle_ib0");
	assert_null(tree_child(node, 1, &name));
	unsetenv("HEDDLE_DEVICE");
}

/* The network interface: of each address, and in a folder where what the program starts has these
 * files too. */
static void interface(void **state)
{
	const struct tree_node *node;
	const char *name;
	char text[TREE_TEXT_BYTES], path[TREE_PATH_BYTES];
	(void)state;
	assert_int_equal(tree_find(DEVICE "/ports/1/gid_attrs/ndevs/0", &node), TREE_OURS);
	tree_text(node, text, sizeof(text));
	assert_string_equal(text, "lo\n"); /* the node is on no wire */
	unsetenv("LD_PRELOAD");
	assert_int_equal(tree_find(DEVICE "/device/net", &node), TREE_MISSING);
	setenv("LD_PRELOAD", "/somewhere/libibverbs.so.1", 1);
	assert_int_equal(tree_find(DEVICE "/device/net/", &node), TREE_OURS);
	node = tree_child(node, 0, &name);
	assert_non_null(node);
	assert_string_equal(name, "lo");
	tree_path(node, path);
	assert_string_equal(path, DEVICE "/device/net/lo");
	assert_int_equal(tree_find(path, &node), TREE_OURS);
	assert_int_equal(tree_find(DEVICE "/device/net/l", &node), TREE_MISSING);
	assert_int_equal(tree_find(OTHER "/device/net", &node), TREE_MISSING);
	unsetenv("LD_PRELOAD");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(whose_a_path_is),  cmocka_unit_test(long_paths),
	        cmocka_unit_test(what_files_say),   cmocka_unit_test(folders_hold_everything),
	        cmocka_unit_test(one_device_alone), cmocka_unit_test(interface),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
