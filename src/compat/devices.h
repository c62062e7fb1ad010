/* The devices that programs see: one row per device.
 *
 * 	ROW(name, uverbs name, numbers of the device file, node type, transport type,
 * 	    the other fields of struct compat_device)
 *
 * verbs/device.c makes the table of devices from the rows and defines what they refer to.
 * preload/tree.c makes each device's files. Programs that do not choose take the first row. The few
 * columns that `heddle devices` prints are repeated in cli/devices.c, which cannot include this. */
#ifndef COMPAT_DEVICES_H
#define COMPAT_DEVICES_H

/* An adapter for network address @n of the node, counted from 0, beside heddle0, which has all of
 * them (docs/adr/0223). */
#define COMPAT_ADDRESS_ROW(ROW, n, uverbs, numbers)                                               \
	ROW("heddle" #n, uverbs, numbers, IBV_NODE_CA, IBV_TRANSPORT_IB,                          \
	    .node_type_name = "1: CA", .link_layer = IBV_LINK_LAYER_ETHERNET,                     \
	    .link_layer_name = "Ethernet", .gid_type = IBV_GID_TYPE_ROCE_V2, .sysfs_gid_type = 1, \
	    .gid_type_name = "RoCE v2", .has_interfaces = true, .manager = &cm_infiniband,        \
	    .port_flags = IBV_QPF_GRH_REQUIRED,                                                   \
	    .port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS, .address = (n),           \
	    .guid_offset = 16 * (n))

#define COMPAT_DEVICE_ROWS(ROW)                                                                   \
	ROW(HDL_DEVICE_ETHERNET, "uverbs0", "231:192", IBV_NODE_CA, IBV_TRANSPORT_IB,             \
	    .node_type_name = "1: CA", .link_layer = IBV_LINK_LAYER_ETHERNET,                     \
	    .link_layer_name = "Ethernet", .gid_type = IBV_GID_TYPE_ROCE_V2, .sysfs_gid_type = 1, \
	    .gid_type_name = "RoCE v2", .has_gid = is_address_gid, .has_interfaces = true,        \
	    .manager = &cm_infiniband, .port_flags = IBV_QPF_GRH_REQUIRED,                        \
	    .port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS)                           \
	ROW(HDL_DEVICE_INFINIBAND, "uverbs1", "231:193", IBV_NODE_CA, IBV_TRANSPORT_IB,           \
	    .node_type_name = "1: CA", .link_layer = IBV_LINK_LAYER_INFINIBAND,                   \
	    .link_layer_name = "InfiniBand", .gid_type = IBV_GID_TYPE_IB, .sysfs_gid_type = 0,    \
	    .gid_type_name = "IB/RoCE v1", .has_gid = is_port_gid, .has_lid = true,               \
	    .port_cap_flags = IBV_PORT_CM_SUP, .guid_offset = 1)                                  \
	ROW(HDL_DEVICE_IWARP, "uverbs2", "231:194", IBV_NODE_RNIC, IBV_TRANSPORT_IWARP,           \
	    .node_type_name = "4: RNIC", .link_layer = IBV_LINK_LAYER_ETHERNET,                   \
	    .link_layer_name = "Ethernet", .gid_type = IBV_GID_TYPE_IB, .sysfs_gid_type = 0,      \
	    .gid_type_name = "IB/RoCE v1", .has_gid = is_address_gid, .has_interfaces = true,     \
	    .manager = &cm_mpa, .private_room = 255, .sqd_closes = true,                          \
	    .port_cap_flags = IBV_PORT_CM_SUP, .guid_offset = 2)                                  \
	COMPAT_ADDRESS_ROW(ROW, 1, "uverbs3", "231:195")                                          \
	COMPAT_ADDRESS_ROW(ROW, 2, "uverbs4", "231:196")                                          \
	COMPAT_ADDRESS_ROW(ROW, 3, "uverbs5", "231:197")                                          \
	COMPAT_ADDRESS_ROW(ROW, 4, "uverbs6", "231:198")                                          \
	COMPAT_ADDRESS_ROW(ROW, 5, "uverbs7", "231:199")                                          \
	COMPAT_ADDRESS_ROW(ROW, 6, "uverbs8", "231:200")                                          \
	COMPAT_ADDRESS_ROW(ROW, 7, "uverbs9", "231:201")
#define COMPAT_MAX_ADDRESSES 8 /* heddle0 has the first */

#endif
