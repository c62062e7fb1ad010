/* The files that programs look for beside the verbs: below /sys/class/infiniband,
 * /sys/class/infiniband_verbs and /dev/infiniband. They exist in this process only; redirect.c
 * directs the program's calls here. */
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
	const char *text; /* the content of a file; NULL: see write */
	const char
	        *device; /* the device that it belongs to: it exists only if the program sees that;
	                   NULL: always */
	void (*write)(char *text, size_t size, const struct tree_node *node);
	bool (*exists)(const struct tree_node *node); /* NULL: always */
	unsigned argument;
	bool is_interface; /* the last part of its path stands for the name of the device's network
	                      interface */
};

/* Whose path is @path? TREE_OURS, and *node; TREE_MISSING: below one of our folders, but it does
 * not exist; TREE_OTHERS: the system's. Dots and double slashes are resolved first. */
enum tree_owner { TREE_OTHERS, TREE_MISSING, TREE_OURS };
enum tree_owner tree_find(const char *path, const struct tree_node **node);

/* The path of a node, with its name on this machine. */
void tree_path(const struct tree_node *node, char out[TREE_PATH_BYTES]);

/* The content of a file; returns its length. Opens the adapter if the content depends on its
 * identity. */
size_t tree_text(const struct tree_node *node, char *text, size_t size);

/* Child @index of a folder, its name in *name until the next call of this thread; NULL: there are
 * no more. */
const struct tree_node *tree_child(const struct tree_node *folder, size_t index, const char **name);

#endif
