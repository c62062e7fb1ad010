/* Names of nodes where programs look up hosts: `rping -c -a NODE` connects to the node NODE of this
 * machine, as `heddle perf --client NODE` does. A node comes before a host of the same name, and
 * getaddrinfo() of the C library answers for its address, so that the result is as ever. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>

#include "compat/cm/cm.h"
#include "compat/compat.h"

static bool preload_names_is_ipv4(const struct hdl_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	return memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
}

static bool is_address(const char *name)
{
	struct in6_addr any;
	return strchr(name, ':') != NULL || inet_pton(AF_INET, name, &any) == 1;
}

/* The first address of the node @name, which a program of this machine is on. */
static bool find_node(const char *name, struct hdl_gid *gid)
{
	struct hdl_process *list;
	size_t count, at = 0;
	if (hdl_observe(&list, &count) != 0)
		return false;
	while (at < count && strcmp(list[at].node, name) != 0)
		at++;
	bool found = at < count;
	if (found)
		*gid = list[at].gid;
	hdl_observe_free(list, count);
	return found;
}

/* A node that is on no network has a link-local address, which programs cannot use without an
 * interface: take that in 127.72.0.0/16. */
static bool make_usable(struct hdl_gid *gid)
{
	uint16_t lid;
	if (gid->raw[0] != 0xfe || (gid->raw[1] & 0xc0) != 0x80)
		return true;
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter == NULL || hdl_node_find(adapter, gid, &lid) != 0)
		return false;
	cm_lid_address(lid, gid);
	return true;
}

int compat_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **result)
{
	struct hdl_gid gid;
	char address[INET6_ADDRSTRLEN];
	int before = errno;
	bool numeric = hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0;
	if (name == NULL || name[0] == '\0' || numeric || is_address(name) ||
	    !find_node(name, &gid) || !make_usable(&gid)) {
		errno = before;
		return getaddrinfo(name, service, hints, result);
	}
	if (preload_names_is_ipv4(&gid))
		inet_ntop(AF_INET, gid.raw + 12, address, sizeof(address));
	else
		inet_ntop(AF_INET6, gid.raw, address, sizeof(address));
	errno = before;
	int error = getaddrinfo(address, service, hints, result);
	/* The node has no address of that family; a host may. */
	return error == EAI_ADDRFAMILY || error == EAI_NONAME
	               ? getaddrinfo(name, service, hints, result)
	               : error;
}
