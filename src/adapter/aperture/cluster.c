/* The table of cluster addresses; see cluster.h. */
#include "adapter/aperture/cluster.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/error.h>

#include "base/log.h"

struct cluster_host {
	uint8_t host[16];
	uint16_t address;
};

struct cluster {
	uint32_t count, room;
	struct cluster_host *hosts; /* by host */
	/* By address; 0: nobody has it, else its place in @hosts plus 1. */
	uint32_t by_address[UINT16_MAX + 1];
};

static int cluster_compare(const void *a, const void *b)
{
	return memcmp(((const struct cluster_host *)a)->host,
	              ((const struct cluster_host *)b)->host, 16);
}

/* An IPv4 address as ::ffff:a.b.c.d. */
static bool cluster_parse_host(const char *text, uint8_t host[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	memcpy(host, mapped, sizeof(mapped));
	return inet_pton(AF_INET, text, host + sizeof(mapped)) == 1 ||
	       inet_pton(AF_INET6, text, host) == 1;
}

/* Why a line is wrong; NULL: it is right, or says nothing. */
static const char *cluster_take_line(struct cluster *cluster, char *line)
{
	char *rest = NULL, *end = NULL;
	line[strcspn(line, "#")] = '\0';
	const char *number = strtok_r(line, " \t\r\n", &rest);
	const char *host = number != NULL ? strtok_r(NULL, " \t\r\n", &rest) : NULL;
	if (number == NULL)
		return NULL;
	unsigned long address = strtoul(number, &end, 0);
	if (number[0] < '0' || number[0] > '9' || *end != '\0' || address == 0 ||
	    address > UINT16_MAX)
		return "an address is a number from 1 to 65535";
	if (host == NULL || strtok_r(NULL, " \t\r\n", &rest) != NULL)
		return "a line is an address and a host";
	if (cluster->count == cluster->room) {
		uint32_t room = cluster->room != 0 ? 2 * cluster->room : 64;
		struct cluster_host *more =
		        realloc(cluster->hosts, room * sizeof(struct cluster_host));
		if (more == NULL)
			return "there is no memory for it";
		cluster->hosts = more;
		cluster->room = room;
	}
	struct cluster_host *last = &cluster->hosts[cluster->count];
	last->address = (uint16_t)address;
	if (!cluster_parse_host(host, last->host))
		return "a host is an IPv4 or IPv6 address";
	if (cluster->by_address[address] != 0)
		return "another host has that address";
	cluster->by_address[address] = ++cluster->count;
	return NULL;
}

/* Why the table is wrong; NULL: it is right. */
static const char *cluster_sort(struct cluster *cluster)
{
	if (cluster->count > 0)
		qsort(cluster->hosts, cluster->count, sizeof(*cluster->hosts), cluster_compare);
	for (uint32_t i = 0; i < cluster->count; i++) {
		cluster->by_address[cluster->hosts[i].address] = i + 1;
		if (i > 0 && cluster_compare(&cluster->hosts[i - 1], &cluster->hosts[i]) == 0)
			return "a host is in it twice";
	}
	return NULL;
}

void cluster_free(struct cluster *cluster)
{
	if (cluster != NULL)
		free(cluster->hosts);
	free(cluster);
}

int cluster_read(const char *path, struct cluster **out)
{
	char line[CLUSTER_LINE_BYTES];
	const char *wrong = NULL;
	unsigned number = 0;
	FILE *file = fopen(path, "re");
	if (file == NULL) {
		log_error("HEDDLE_CLUSTER: cannot read '%s': %m", path);
		return -HDL_EINVAL;
	}
	struct cluster *cluster = calloc(1, sizeof(*cluster));
	if (cluster == NULL) {
		fclose(file);
		return -HDL_ENOMEM;
	}
	while (wrong == NULL && fgets(line, sizeof(line), file) != NULL) {
		number++;
		wrong = strchr(line, '\n') == NULL && !feof(file)
		                ? "a line is too long"
		                : cluster_take_line(cluster, line);
	}
	fclose(file);
	if (wrong != NULL) {
		log_error("HEDDLE_CLUSTER: line %u of '%s': %s", number, path, wrong);
	} else if ((wrong = cluster_sort(cluster)) != NULL) {
		log_error("HEDDLE_CLUSTER: '%s': %s", path, wrong);
	}
	if (wrong != NULL) {
		cluster_free(cluster);
		return -HDL_EINVAL;
	}
	*out = cluster;
	return 0;
}

uint16_t cluster_of(const struct cluster *cluster, const uint8_t host[16])
{
	struct cluster_host key;
	memcpy(key.host, host, sizeof(key.host));
	const struct cluster_host *found =
	        cluster->count > 0 ? bsearch(&key, cluster->hosts, cluster->count,
	                                     sizeof(*cluster->hosts), cluster_compare)
	                           : NULL;
	return found != NULL ? found->address : 0;
}

bool cluster_find(const struct cluster *cluster, uint16_t address, uint8_t host[16])
{
	uint32_t place = cluster->by_address[address];
	if (place == 0)
		return false;
	memcpy(host, cluster->hosts[place - 1].host, 16);
	return true;
}
