/* The files below /sys and /dev that exist in this process alone: one table. */
#include "compat/tree.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "compat/compat.h"

#define CLASS "/sys/class/infiniband"
#define OWN   CLASS "/" COMPAT_DEVICE_NAME
#define PORT  OWN "/ports/1"
#define CM    "/sys/class/misc/rdma_cm"
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
	union ibv_gid gid;
	compat_gid(index, &gid);
	print_groups(text, size, gid.raw, sizeof(gid.raw));
}

/* Entries that are not used have neither a type nor an interface. */
static bool is_used(unsigned index)
{
	union ibv_gid gid;
	return compat_gid(index, &gid);
}

#define FOLDER(where)                                   \
	{                                               \
		.path = (where), .kind = TREE_DIRECTORY \
	}
#define TEXT(where, content)                                             \
	{                                                                \
		.path = (where), .kind = TREE_FILE, .text = content "\n" \
	}
#define USED(where, content, n)                                                              \
	{                                                                                    \
		.path = (where), .kind = TREE_FILE, .text = content "\n", .exists = is_used, \
		.argument = (n)                                                              \
	}
#define GID(n)                                                                                 \
	MADE(PORT "/gids/" #n, print_gid, n), USED(PORT "/gid_attrs/types/" #n, "RoCE v2", n), \
	        USED(PORT "/gid_attrs/ndevs/" #n, "lo", n)
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
        FOLDER(PORT "/gid_attrs"),
        FOLDER(PORT "/gid_attrs/types"),
        FOLDER(PORT "/gid_attrs/ndevs"),
        GID(0),
        GID(1),
        GID(2),
        GID(3),
        GID(4),
        GID(5),
        GID(6),
        GID(7),
        GID(8),
        GID(9),
        GID(10),
        GID(11),
        GID(12),
        GID(13),
        GID(14),
        GID(15),
        FOLDER(VERBS),
        TEXT(VERBS "/abi_version", "6"),
        FOLDER(VERBS "/" COMPAT_UVERBS_NAME),
        TEXT(VERBS "/" COMPAT_UVERBS_NAME "/ibdev", COMPAT_DEVICE_NAME),
        TEXT(VERBS "/" COMPAT_UVERBS_NAME "/abi_version", "1"),
        TEXT(VERBS "/" COMPAT_UVERBS_NAME "/dev", "231:192"),
        FOLDER("/dev/infiniband"),
        {.path = "/dev/infiniband/" COMPAT_UVERBS_NAME, .kind = TREE_DEVICE},
        {.path = "/dev/infiniband/rdma_cm", .kind = TREE_DEVICE, .argument = TREE_CM},
        FOLDER(CM),
        TEXT(CM "/abi_version", "4"),
};
#define NODES (sizeof(nodes) / sizeof(nodes[0]))
_Static_assert(COMPAT_GIDS == 16, "a file for each GID");

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

static bool is_there(const struct tree_node *node)
{
	return node->exists == NULL || node->exists(node->argument);
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
	if (!is_below(straight, CLASS) && !is_below(straight, VERBS) && !is_below(straight, CM) &&
	    !is_below(straight, "/dev/infiniband"))
		return TREE_OTHERS;
	for (size_t i = 0; i < NODES; i++)
		if (strcmp(nodes[i].path, straight) == 0 && is_there(&nodes[i])) {
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
		if (is_there(&nodes[i]) && index-- == 0) {
			*name = path + length + 1;
			return &nodes[i];
		}
	}
	return NULL;
}
