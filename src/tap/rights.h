/* Which MAC addresses the user of a unit lets its hosts use: addresses that are for one host, for
 * none, how many a host may have, and how often it may change them. Pure. */
#ifndef TAP_RIGHTS_H
#define TAP_RIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#define RIGHTS_MAX_RULES   64u
#define RIGHTS_NAME_BYTES  32u
#define RIGHTS_MAX_MACS    16u           /* of one host */
#define RIGHTS_MAX_CHANGES 16u           /* that a host may make one after the other, */
#define RIGHTS_CHANGE_NS   4000000000ull /* and then one in this time */

struct rights_rule {
	char name[RIGHTS_NAME_BYTES]; /* of the host that the address is for; "": none may use it */
	uint8_t mac[6];
};

struct rights {
	uint32_t macs; /* of each host: more than 1 lets a bridge be behind a card */
	uint32_t count;
	struct rights_rule rules[RIGHTS_MAX_RULES];
};

/* Changes that a host has made lately. */
struct rights_changes {
	uint64_t until_ns; /* when the last of them is forgotten */
};

/* False: @name is too long, or there are too many rules. */
bool rights_add(struct rights *rights, const char *name, const uint8_t mac[6]);
/* May the host @name use @mac, as far as the rules say? A host that rules name may use what they
 * say, and nothing else. */
bool rights_allow(const struct rights *rights, const char *name, const uint8_t mac[6]);
/* May a host change its address once more? */
bool rights_may_change(const struct rights_changes *changes, uint64_t now_ns);
/* It has done so. */
void rights_changed(struct rights_changes *changes, uint64_t now_ns);

#endif
