#include "cli/target.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool target_port(const char *text, uint16_t *port)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '\0' || value == 0 || value > 65535)
		return false;
	*port = (uint16_t)value;
	return true;
}

bool target_parse(char *text, struct target *target)
{
	char *colon = strrchr(text, ':');
	if (colon == NULL || colon == text || !target_port(colon + 1, &target->port))
		return false;
	*colon = '\0';
	if (text[0] == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		text++;
	}
	target->node = text;
	return *text != '\0';
}

bool target_node(const char *name, struct hdl_gid *gid)
{
	struct hdl_process *list;
	size_t count;
	bool found = false;
	if (hdl_observe(&list, &count) != 0)
		return false;
	for (size_t i = 0; i < count && !found; i++) {
		found = strcmp(list[i].node, name) == 0;
		if (found)
			*gid = list[i].gid;
	}
	hdl_observe_free(list, count);
	return found;
}

bool target_find(const char *command, const char *name, struct hdl_gid *gid)
{
	struct addrinfo *found, hints = {.ai_socktype = SOCK_DGRAM};
	if (target_node(name, gid))
		return true;
	if (getaddrinfo(name, NULL, &hints, &found) != 0) {
		fprintf(stderr, "%s: there is no node or host '%s'; see heddle status\n", command,
		        name);
		return false;
	}
	*gid = (struct hdl_gid){{[10] = 0xff, [11] = 0xff}};
	if (found->ai_family == AF_INET6)
		memcpy(gid->raw, &((struct sockaddr_in6 *)(void *)found->ai_addr)->sin6_addr, 16);
	else
		memcpy(gid->raw + 12, &((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr, 4);
	freeaddrinfo(found);
	return true;
}
