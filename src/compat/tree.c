/* The files below /sys and /dev that exist in this process alone: one table. */
#include "compat/tree.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "compat/compat.h"

#define CLASS "/sys/class/infiniband"
#define OWN   CLASS "/" COMPAT_DEVICE_NAME
#define PORT  OWN "/ports/1"
#define VERBS "/sys/class/infiniband_verbs"

static struct hdl_limits identity(void)
{
	struct hdl_limits limits = {0};
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter != NULL)
		hdl_adapter_query(adapter, &limits);
	return limits;
}

/* Bytes in groups of two, as the kernel prints GUIDs and GIDs. */
static void print_groups(char *text, size_t size, const uint8_t *bytes, size_t count)
{
	size_t at = 0;
	for (size_t i = 0; i + 1 < count && at < size; i += 2)
		at += (size_t)snprintf(text + at, size - at, "%02x%02x%c", bytes[i], bytes[i + 1],
		                       i + 2 < count ? ':' : '\n');
}

static void print_guid(char *text, size_t size, unsigned argument)
{
	struct hdl_limits limits = identity();
	uint8_t bytes[sizeof(limits.guid)];
	(void)argument;
	memcpy(bytes, &limits.guid, sizeof(bytes));
	print_groups(text, size, bytes, sizeof(bytes));
}

static void print_gid(char *text, size_t size, unsigned index)
{
	struct hdl_limits limits = {0};
	if (compat_gid_index_fits(index))
		limits = identity();
	print_groups(text, size, limits.gid.raw, sizeof(limits.gid.raw));
}

#define FOLDER(where)                                   \
	{                                               \
		.path = (where), .kind = TREE_DIRECTORY \
	}
#define TEXT(where, content)                                             \
	{                                                                \
		.path = (where), .kind = TREE_FILE, .text = content "\n" \
	}
#define MADE(where, call, n)                                                         \
	{                                                                            \
		.path = (where), .kind = TREE_FILE, .write = (call), .argument = (n) \
	}

static const struct tree_node nodes[] = {
        FOLDER(CLASS),
        FOLDER(OWN),
        MADE(OWN "/node_guid", print_guid, 0),
        MADE(OWN "/sys_image_guid", print_guid, 0),
        TEXT(OWN "/node_type", "1: CA"),
        TEXT(OWN "/node_desc", "Heddle"),
        TEXT(OWN "/fw_ver", HEDDLE_VERSION),
        FOLDER(OWN "/ports"),
        FOLDER(PORT),
        TEXT(PORT "/state", "4: ACTIVE"),
        TEXT(PORT "/phys_state", "5: LinkUp"),
        TEXT(PORT "/link_layer", "Ethernet"),
        TEXT(PORT "/rate", "100 Gb/sec (4X EDR)"),
        TEXT(PORT "/lid", "0x0"),
        TEXT(PORT "/lid_mask_count", "0"),
        TEXT(PORT "/sm_lid", "0x0"),
        TEXT(PORT "/sm_sl", "0"),
        TEXT(PORT "/cap_mask", "0x04010000"),
        FOLDER(PORT "/pkeys"),
        TEXT(PORT "/pkeys/0", "0xffff"),
        FOLDER(PORT "/gids"),
        MADE(PORT "/gids/0", print_gid, 0),
        MADE(PORT "/gids/1", print_gid, 1),
        MADE(PORT "/gids/2", print_gid, 2),
        MADE(PORT "/gids/3", print_gid, 3),
        MADE(PORT "/gids/4", print_gid, 4),
        MADE(PORT "/gids/5", print_gid, 5),
        MADE(PORT "/gids/6", print_gid, 6),
        MADE(PORT "/gids/7", print_gid, 7),
        FOLDER(PORT "/gid_attrs"),
        FOLDER(PORT "/gid_attrs/types"),
        TEXT(PORT "/gid_attrs/types/0", "RoCE v2"),
        TEXT(PORT "/gid_attrs/types/1", "RoCE v2"),
        FOLDER(PORT "/gid_attrs/ndevs"),
        TEXT(PORT "/gid_attrs/ndevs/0", "lo"),
        TEXT(PORT "/gid_attrs/ndevs/1", "lo"),
        FOLDER(VERBS),
        TEXT(VERBS "/abi_version", "6"),
        FOLDER(VERBS "/" COMPAT_UVERBS_NAME),
        TEXT(VERBS "/" COMPAT_UVERBS_NAME "/ibdev", COMPAT_DEVICE_NAME),
        TEXT(VERBS "/" COMPAT_UVERBS_NAME "/abi_version", "1"),
        TEXT(VERBS "/" COMPAT_UVERBS_NAME "/dev", "231:192"),
        FOLDER("/dev/infiniband"),
        {.path = "/dev/infiniband/" COMPAT_UVERBS_NAME, .kind = TREE_DEVICE},
};
#define NODES (sizeof(nodes) / sizeof(nodes[0]))
_Static_assert(COMPAT_GIDS == 8 && COMPAT_GIDS_USED == 2, "a file for each GID");

/* @path without dots, double slashes and a slash at its end. False: not absolute, or too long. */
static bool straighten(const char *path, char *out)
{
	size_t length = 0;
	if (path[0] != '/')
		return false;
	while (*path != '\0') {
		const char *end = strchrnul(path + 1, '/');
		size_t part = (size_t)(end - path);
		if (part == 3 && memcmp(path, "/..", 3) == 0) {
			while (length > 0 && out[--length] != '/')
				;
		} else if (part > 1 && !(part == 2 && path[1] == '.')) {
			if (length + part >= TREE_PATH_BYTES)
				return false;
			memcpy(out + length, path, part);
			length += part;
		}
		path = end;
	}
	out[length] = '\0';
	return true;
}

static bool is_below(const char *path, const char *folder)
{
	size_t length = strlen(folder);
	return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

enum tree_owner tree_find(const char *path, const struct tree_node **node)
{
	char straight[TREE_PATH_BYTES];
	if (path == NULL || !straighten(path, straight))
		return TREE_OTHERS;
	if (!is_below(straight, CLASS) && !is_below(straight, VERBS) &&
	    !is_below(straight, "/dev/infiniband"))
		return TREE_OTHERS;
	for (size_t i = 0; i < NODES; i++)
		if (strcmp(nodes[i].path, straight) == 0) {
			*node = &nodes[i];
			return TREE_OURS;
		}
	return TREE_MISSING;
}

size_t tree_text(const struct tree_node *node, char *text, size_t size)
{
	text[0] = '\0';
	if (node->write != NULL)
		node->write(text, size, node->argument);
	else if (node->text != NULL)
		snprintf(text, size, "%s", node->text);
	return strlen(text);
}

const struct tree_node *tree_child(const struct tree_node *folder, size_t index, const char **name)
{
	size_t length = strlen(folder->path);
	for (size_t i = 0; i < NODES; i++) {
		const char *path = nodes[i].path;
		if (strncmp(path, folder->path, length) != 0 || path[length] != '/' ||
		    strchr(path + length + 1, '/') != NULL)
			continue;
		if (index-- == 0) {
			*name = path + length + 1;
			return &nodes[i];
		}
	}
	return NULL;
}
