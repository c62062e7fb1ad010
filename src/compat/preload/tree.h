/* The files that programs look for beside the verbs: below /sys/class/infiniband,
 * /sys/class/infiniband_verbs and /dev/infiniband. They exist in this process alone; redirect.c
 * leads the program's calls here. */
#ifndef COMPAT_TREE_H
#define COMPAT_TREE_H

#include <stdbool.h>
#include <stddef.h>

#define TREE_PATH_BYTES 512 /* longer paths are not ours */
#define TREE_TEXT_BYTES 256

enum tree_kind { TREE_DIRECTORY, TREE_FILE, TREE_DEVICE };

#define TREE_CM 1u /* argument of the device rdma_cm */

struct tree_node {
	const char *path;
	enum tree_kind kind;
	const char *text;   /* of a file; NULL: see write */
	const char *device; /* it goes with: not there unless the program sees that; NULL: always
	                       there */
	void (*write)(char *text, size_t size, const struct tree_node *node);
	bool (*exists)(const struct tree_node *node); /* NULL: always */
	unsigned argument;
	bool is_interface; /* the last part of its path stands for the name of the device's network
	                      interface */
};

/* Whose is @path? TREE_OURS and *node; TREE_MISSING below one of our folders, but not there;
 * TREE_OTHERS: the system's. Dots and double slashes are resolved first. */
enum tree_owner { TREE_OTHERS, TREE_MISSING, TREE_OURS };
enum tree_owner tree_find(const char *path, const struct tree_node **node);

/* The path of a node, with the name that it has on this machine. */
void tree_path(const struct tree_node *node, char out[TREE_PATH_BYTES]);

/* The content of a file; returns its length. Opens the adapter where its identity is asked for. */
size_t tree_text(const struct tree_node *node, char *text, size_t size);

/* The children of a folder: the @index-th, its name in *name until the next call of this thread;
 * NULL when there are no more. */
const struct tree_node *tree_child(const struct tree_node *folder, size_t index, const char **name);

#endif
