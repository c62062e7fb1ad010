/* Network interfaces: which one has an address of a device. Programs find its name in the GID table
 * and below /sys. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "compat/compat.h"

static bool preload_interface_has_address(const struct ifaddrs *at, const union ibv_gid *gid)
{
	union ibv_gid own = {.raw = {[10] = 0xff, [11] = 0xff}}; /* IPv4: IBTA annex A17 */
	if (at->ifa_addr == NULL)
		return false;
	if (at->ifa_addr->sa_family == AF_INET)
		memcpy(own.raw + 12, &((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr, 4);
	else if (at->ifa_addr->sa_family == AF_INET6)
		memcpy(own.raw, &((struct sockaddr_in6 *)(void *)at->ifa_addr)->sin6_addr, 16);
	else
		return false;
	return memcmp(own.raw, gid->raw, sizeof(own.raw)) == 0;
}

/* Addresses that no interface has are Heddle's own: packets to them use the interface of the node's
 * first address, or the loopback interface. */
static const struct ifaddrs *preload_interface_find(const struct ifaddrs *list,
                                                    const union ibv_gid *gid,
                                                    const union ibv_gid *first)
{
	for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next)
		if (preload_interface_has_address(at, gid))
			return at;
	for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next)
		if (preload_interface_has_address(at, first))
			return at;
	for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next)
		if (at->ifa_flags & IFF_LOOPBACK)
			return at;
	return NULL;
}

bool compat_interface(const struct compat_device *device, unsigned index, char name[IF_NAMESIZE])
{
	union ibv_gid gid, first;
	struct ifaddrs *list;
	if (device == NULL || !device->has_interfaces || !compat_gid(device, index, &gid) ||
	    !compat_gid(device, 0, &first) || getifaddrs(&list) != 0)
		return false;
	const struct ifaddrs *at = preload_interface_find(list, &gid, &first);
	if (at != NULL)
		snprintf(name, IF_NAMESIZE, "%s", at->ifa_name);
	freeifaddrs(list);
	return at != NULL;
}
