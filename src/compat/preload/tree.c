/* The files below /sys and /dev that exist in this process only: one table. */
#include "compat/preload/tree.h"

#include <endian.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/compat.h"
#include "compat/devices.h"

#define CLASS "/sys/class/infiniband"
#define CM    "/sys/class/misc/rdma_cm"
#define VERBS "/sys/class/infiniband_verbs"

/* Bytes in groups of two, as the kernel prints GUIDs and GIDs. */
static void print_groups(char *text, size_t size, const uint8_t *bytes, size_t count)
{
	size_t at = 0;
	for (size_t i = 0; i + 1 < count && at < size; i += 2)
		at += (size_t)snprintf(text + at, size - at, "%02x%02x%c", bytes[i], bytes[i + 1],
		                       i + 2 < count ? ':' : '\n');
}

static void print_guid(char *text, size_t size, const struct tree_node *node)
{
	__be64 guid = compat_guid(compat_device_named(node->device));
	uint8_t bytes[sizeof(guid)];
	memcpy(bytes, &guid, sizeof(bytes));
	print_groups(text, size, bytes, sizeof(bytes));
}

static void print_gid(char *text, size_t size, const struct tree_node *node)
{
	union ibv_gid gid;
	compat_gid(compat_device_named(node->device), node->argument, &gid);
	print_groups(text, size, gid.raw, sizeof(gid.raw));
}

static struct hdl_limits own_limits(void)
{
	struct hdl_limits limits = {0};
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter != NULL)
		hdl_adapter_query(adapter, &limits);
	return limits;
}

/* The devices of a node are one system. */
static void print_system_guid(char *text, size_t size, const struct tree_node *node)
{
	__be64 guid = htobe64(own_limits().guid);
	uint8_t bytes[sizeof(guid)];
	(void)node;
	memcpy(bytes, &guid, sizeof(bytes));
	print_groups(text, size, bytes, sizeof(bytes));
}

static void print_node_type(char *text, size_t size, const struct tree_node *node)
{
	snprintf(text, size, "%s\n", compat_device_named(node->device)->node_type_name);
}

static void print_link_layer(char *text, size_t size, const struct tree_node *node)
{
	snprintf(text, size, "%s\n", compat_device_named(node->device)->link_layer_name);
}

static void print_gid_type(char *text, size_t size, const struct tree_node *node)
{
	snprintf(text, size, "%s\n", compat_device_named(node->device)->gid_type_name);
}

static void print_cap_mask(char *text, size_t size, const struct tree_node *node)
{
	snprintf(text, size, "0x%08x\n", compat_device_named(node->device)->port_cap_flags);
}

/* The limits with the LIDs of the node's device; zeroes if it has none. */
static struct hdl_limits lid_limits(const struct tree_node *node)
{
	bool has_lid = compat_device_named(node->device)->has_lid;
	return has_lid ? own_limits() : (struct hdl_limits){0};
}

static void print_lid(char *text, size_t size, const struct tree_node *node)
{
	struct hdl_limits limits = lid_limits(node);
	snprintf(text, size, "0x%x\n", node->argument != 0 ? limits.sm_lid : limits.lid);
}

static void print_interface(char *text, size_t size, const struct tree_node *node)
{
	char name[IF_NAMESIZE];
	if (compat_interface(compat_device_named(node->device), node->argument, name))
		snprintf(text, size, "%s\n", name);
}

/* A program that finds a folder of network interfaces may let ls(1) or a script list it. So the
 * folder exists only if the programs that it starts see these files as well. */
static bool is_shared(const struct tree_node *node)
{
	const char *loaded = secure_getenv("LD_PRELOAD");
	if (!compat_device_named(node->device)->has_interfaces)
		return false;
	return loaded != NULL && strstr(loaded, "libibverbs.so") != NULL;
}

static void print_lmc(char *text, size_t size, const struct tree_node *node)
{
	snprintf(text, size, "%u\n", lid_limits(node).lmc);
}

/* Unused entries have neither a type nor an interface. */
static bool is_used(const struct tree_node *node)
{
	union ibv_gid gid;
	return compat_gid(compat_device_named(node->device), node->argument, &gid);
}

static bool is_bound(const struct tree_node *node)
{
	return compat_device_named(node->device)->has_interfaces && is_used(node);
}

#define OF(of, where, ...)                                              \
	{                                                               \
		.device = (of), .path = CLASS "/" of where, __VA_ARGS__ \
	}
#define FOLDER(where)                                   \
	{                                               \
		.path = (where), .kind = TREE_DIRECTORY \
	}
#define TEXT(where, content)                                             \
	{                                                                \
		.path = (where), .kind = TREE_FILE, .text = content "\n" \
	}
#define OF_FOLDER(of, where)        OF(of, where, .kind = TREE_DIRECTORY)
#define OF_TEXT(of, where, content) OF(of, where, .kind = TREE_FILE, .text = content "\n")
#define OF_MADE(of, where, call, n) \
	OF(of, where, .kind = TREE_FILE, .write = (call), .argument = (n))
#define OF_USED(of, where, call, when, n) \
	OF(of, where, .kind = TREE_FILE, .write = (call), .exists = (when), .argument = (n))

#define GID(of, n)                                                                       \
	OF_MADE(of, "/ports/1/gids/" #n, print_gid, n),                                  \
	        OF_USED(of, "/ports/1/gid_attrs/types/" #n, print_gid_type, is_used, n), \
	        OF_USED(of, "/ports/1/gid_attrs/ndevs/" #n, print_interface, is_bound, n)
#define GIDS(of)                                                                            \
	GID(of, 0), GID(of, 1), GID(of, 2), GID(of, 3), GID(of, 4), GID(of, 5), GID(of, 6), \
	        GID(of, 7), GID(of, 8), GID(of, 9), GID(of, 10), GID(of, 11), GID(of, 12),  \
	        GID(of, 13), GID(of, 14), GID(of, 15)
#define OF_SHARED(of, where, ...) \
	OF(of, where, .kind = TREE_DIRECTORY, .exists = is_shared, __VA_ARGS__)

/* The files of one row of compat/devices.h. Every device has the same list; its content, and
 * whether a file exists, depends on the device. */
#define FILES_OF_ROW(of, uverbs, numbers, ...)                                                   \
	OF_FOLDER(of, ""), OF_MADE(of, "/node_guid", print_guid, 0),                             \
	        OF_MADE(of, "/sys_image_guid", print_system_guid, 0),                            \
	        OF_MADE(of, "/node_type", print_node_type, 0),                                   \
	        OF_TEXT(of, "/node_desc", "Heddle"), OF_TEXT(of, "/fw_ver", HEDDLE_VERSION),     \
	        OF_FOLDER(of, "/ports"), OF_FOLDER(of, "/ports/1"),                              \
	        OF_TEXT(of, "/ports/1/state", "4: ACTIVE"),                                      \
	        OF_TEXT(of, "/ports/1/phys_state", "5: LinkUp"),                                 \
	        OF_TEXT(of, "/ports/1/rate", "100 Gb/sec (4X EDR)"),                             \
	        OF_TEXT(of, "/ports/1/sm_sl", "0"),                                              \
	        OF_MADE(of, "/ports/1/link_layer", print_link_layer, 0),                         \
	        OF_MADE(of, "/ports/1/lid", print_lid, 0),                                       \
	        OF_MADE(of, "/ports/1/lid_mask_count", print_lmc, 0),                            \
	        OF_MADE(of, "/ports/1/sm_lid", print_lid, 1),                                    \
	        OF_MADE(of, "/ports/1/cap_mask", print_cap_mask, 0),                             \
	        OF_FOLDER(of, "/ports/1/pkeys"), OF_TEXT(of, "/ports/1/pkeys/0", "0xffff"),      \
	        OF_FOLDER(of, "/ports/1/gids"), OF_FOLDER(of, "/ports/1/gid_attrs"),             \
	        OF_FOLDER(of, "/ports/1/gid_attrs/types"),                                       \
	        OF_FOLDER(of, "/ports/1/gid_attrs/ndevs"), GIDS(of), OF_SHARED(of, "/device", ), \
	        OF_SHARED(of, "/device/net", ),                                                  \
	        OF_SHARED(of, "/device/net/*", .is_interface = true),                            \
	        {.device = (of), .path = VERBS "/" uverbs, .kind = TREE_DIRECTORY},              \
	        {.device = (of),                                                                 \
	         .path = VERBS "/" uverbs "/ibdev",                                              \
	         .kind = TREE_FILE,                                                              \
	         .text = of "\n"},                                                               \
	        {.device = (of),                                                                 \
	         .path = VERBS "/" uverbs "/abi_version",                                        \
	         .kind = TREE_FILE,                                                              \
	         .text = "1\n"},                                                                 \
	        {.device = (of),                                                                 \
	         .path = VERBS "/" uverbs "/dev",                                                \
	         .kind = TREE_FILE,                                                              \
	         .text = numbers "\n"},                                                          \
	        {.device = (of), .path = "/dev/infiniband/" uverbs, .kind = TREE_DEVICE},

static const struct tree_node nodes[] = {
        FOLDER(CLASS),
        FOLDER(VERBS),
        TEXT(VERBS "/abi_version", "6"),
        FOLDER("/dev/infiniband"),
        {.path = "/dev/infiniband/rdma_cm", .kind = TREE_DEVICE, .argument = TREE_CM},
        FOLDER(CM),
        TEXT(CM "/abi_version", "4"),
        COMPAT_DEVICE_ROWS(FILES_OF_ROW)};
#define NODES (sizeof(nodes) / sizeof(nodes[0]))
_Static_assert(COMPAT_GIDS == 16, "one file per GID");

/* @path without dots, double slashes and a trailing slash. False: not absolute, or too long. */
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
	if (node->device != NULL && compat_device_named(node->device) == NULL)
		return false;
	return node->exists == NULL || node->exists(node);
}

static bool is_below(const char *path, const char *folder)
{
	size_t length = strlen(folder);
	return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

void tree_path(const struct tree_node *node, char out[TREE_PATH_BYTES])
{
	char name[IF_NAMESIZE] = "*";
	snprintf(out, TREE_PATH_BYTES, "%s", node->path);
	if (node->is_interface && compat_interface(compat_device_named(node->device), 0, name))
		snprintf(strrchr(out, '*'), IF_NAMESIZE, "%s", name);
}

static bool is_at(const struct tree_node *node, const char *path)
{
	char whole[TREE_PATH_BYTES];
	if (!node->is_interface)
		return strcmp(node->path, path) == 0;
	if (strncmp(node->path, path, strlen(node->path) - 1) != 0)
		return false;
	tree_path(node, whole);
	return strcmp(whole, path) == 0;
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
		if (is_at(&nodes[i], straight) && is_there(&nodes[i])) {
			*node = &nodes[i];
			return TREE_OURS;
		}
	return TREE_MISSING;
}

size_t tree_text(const struct tree_node *node, char *text, size_t size)
{
	text[0] = '\0';
	if (node->write != NULL)
		node->write(text, size, node);
	else if (node->text != NULL)
		snprintf(text, size, "%s", node->text);
	return strlen(text);
}

const struct tree_node *tree_child(const struct tree_node *folder, size_t index, const char **name)
{
	static _Thread_local char whole[TREE_PATH_BYTES];
	size_t length = strlen(folder->path);
	for (size_t i = 0; i < NODES; i++) {
		const char *path = nodes[i].path;
		if (strncmp(path, folder->path, length) != 0 || path[length] != '/' ||
		    strchr(path + length + 1, '/') != NULL)
			continue;
		if (is_there(&nodes[i]) && index-- == 0) {
			tree_path(&nodes[i], whole);
			*name = whole + length + 1;
			return &nodes[i];
		}
	}
	return NULL;
}
