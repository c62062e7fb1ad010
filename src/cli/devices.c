/* heddle devices: the devices that a program would see. */
#include <argp.h>
#include <arpa/inet.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#include "cli/command.h"

/* As libibverbs.so.1 shows them: in the order of the rows of compat/devices.h, which also numbers
 * their GUIDs. */
static const struct device {
	const char *name, *link_layer;
	bool has_lid;     /* the port has LIDs */
	bool by_port_gid; /* its GID is that of the InfiniBand port, not the addresses */
} devices[] = {
        {.name = HDL_DEVICE_ETHERNET, .link_layer = "Ethernet"},
        {.name = HDL_DEVICE_INFINIBAND,
         .link_layer = "InfiniBand",
         .has_lid = true,
         .by_port_gid = true},
        {.name = HDL_DEVICE_IWARP, .link_layer = "Ethernet"},
};
#define DEVICES       (sizeof(devices) / sizeof(devices[0]))
#define MAX_ADDRESSES 8u /* of a node; each but the first has a device heddle1, heddle2, ... */
#define GUIDS_APART   16u

/* How many network addresses a program would ask for. */
static unsigned devices_addresses(void)
{
	const char *list = secure_getenv("HEDDLE_ADDR");
	unsigned count = list != NULL && list[0] != '\0';
	for (; list != NULL && *list != '\0'; list++)
		count += *list == ',';
	return count < MAX_ADDRESSES ? count : MAX_ADDRESSES;
}

struct options {
	const char *node;
	bool json;
};

bool device_exists(const char *name)
{
	for (size_t i = 0; i < DEVICES; i++)
		if (strcmp(devices[i].name, name) == 0)
			return true;
	unsigned addresses = devices_addresses();
	for (unsigned i = 1; i < addresses; i++)
		if (strncmp(name, "heddle", 6) == 0 && name[6] == (char)('0' + i) &&
		    name[7] == '\0')
			return true;
	fprintf(stderr, "heddle: there is no device '%s'; there are", name);
	for (size_t i = 0; i < DEVICES; i++)
		fprintf(stderr, "%s %s",
		        i == 0            ? ""
		        : i + 1 < DEVICES ? ","
		                          : " and",
		        devices[i].name);
	fputs(addresses > 1 ? ", and one for each further address\n" : "\n", stderr);
	return false;
}

static error_t devices_parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'j':
		options->json = true;
		return 0;
	case 'n':
		options->node = arg;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not expected: it takes no arguments", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static json_t *gids_of(struct hdl_adapter *adapter, const struct hdl_limits *limits,
                       const struct device *device)
{
	json_t *gids = json_array();
	for (uint32_t i = 0; i < limits->gid_count; i++) {
		struct hdl_gid gid;
		char text[INET6_ADDRSTRLEN];
		hdl_gid_query(adapter, i, &gid);
		if ((memcmp(&gid, &limits->ib_gid, sizeof(gid)) == 0) != device->by_port_gid)
			continue;
		inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
		json_array_append_new(gids, json_string(text));
	}
	return gids;
}

/* The devices that have one network address each. */
static void add_of_addresses(json_t *all, struct hdl_adapter *adapter,
                             const struct hdl_limits *limits)
{
	unsigned addresses = devices_addresses(), number = 0;
	for (uint32_t i = 0; i < limits->gid_count; i++) {
		struct hdl_gid gid;
		char text[INET6_ADDRSTRLEN], name[24], guid[20];
		if (!(limits->wire_gids >> i & 1) || number++ == 0)
			continue;
		if (number > addresses)
			break;
		hdl_gid_query(adapter, i, &gid);
		inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
		snprintf(name, sizeof(name), "heddle%u", number - 1);
		snprintf(guid, sizeof(guid), "%016llx",
		         (unsigned long long)limits->guid + GUIDS_APART * (number - 1));
		json_array_append_new(all, json_pack("{s:s,s:s,s:s,s:i,s:i,s:[s]}", "name", name,
		                                     "link_layer", "Ethernet", "guid", guid, "lid",
		                                     0, "lmc", 0, "gids", text));
	}
}

static json_t *devices_of(struct hdl_adapter *adapter)
{
	struct hdl_limits limits;
	json_t *all = json_array();
	hdl_adapter_query(adapter, &limits);
	for (size_t i = 0; i < DEVICES; i++) {
		const struct device *device = &devices[i];
		char guid[20];
		snprintf(guid, sizeof(guid), "%016llx", (unsigned long long)limits.guid + i);
		json_array_append_new(all,
		                      json_pack("{s:s,s:s,s:s,s:i,s:i,s:o}", "name", device->name,
		                                "link_layer", device->link_layer, "guid", guid,
		                                "lid", device->has_lid ? (int)limits.lid : 0, "lmc",
		                                device->has_lid ? (int)limits.lmc : 0, "gids",
		                                gids_of(adapter, &limits, device)));
	}
	add_of_addresses(all, adapter, &limits);
	return all;
}

static void print_devices(json_t *all)
{
	size_t i, j;
	json_t *device, *gid;
	json_array_foreach(all, i, device)
	{
		printf("%-10s  port 1 active, %s, GUID %s",
		       json_string_value(json_object_get(device, "name")),
		       json_string_value(json_object_get(device, "link_layer")),
		       json_string_value(json_object_get(device, "guid")));
		int lid = (int)json_integer_value(json_object_get(device, "lid"));
		int lmc = (int)json_integer_value(json_object_get(device, "lmc"));
		if (lmc != 0)
			printf(", LIDs %d to %d", lid, lid + (1 << lmc) - 1);
		else if (lid != 0)
			printf(", LID %d", lid);
		putchar('\n');
		json_array_foreach(json_object_get(device, "gids"), j, gid)
		        printf("  GID %2zu  %s\n", j, json_string_value(gid));
	}
}

int devices_command(int argc, char **argv)
{
	static const struct argp_option list[] = {
	        {"json", 'j', NULL, 0, "Write JSON", 0},
	        {"node", 'n', "NAME", 0, "Of the node NAME (default: the machine's own)", 0},
	        {0}};
	static const struct argp argp = {
	        list, devices_parse, NULL, "The devices that a program would see.",
	        NULL, NULL,          NULL};
	struct options options = {0};
	if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0)
		return EXIT_WRONG_USAGE;
	struct hdl_open_attr attr = {.on_node = true, .node = options.node};
	struct hdl_adapter *adapter;
	int result = hdl_open(&attr, &adapter);
	if (result != 0) {
		fprintf(stderr, "heddle: %s\n", hdl_strerror(result));
		return EXIT_FAILURE;
	}
	json_t *all = devices_of(adapter);
	if (options.json) {
		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
	} else {
		print_devices(all);
	}
	json_decref(all);
	hdl_close(adapter);
	return 0;
}
