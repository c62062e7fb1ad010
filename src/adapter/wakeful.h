/* Whether the adapter's thread looks a little longer before it sleeps. See wakeful.c. */
#ifndef ADAPTER_WAKEFUL_H
#define ADAPTER_WAKEFUL_H

#include <stdbool.h>
#include <stdint.h>

#define WAKEFUL_NS     50000u    /* after the last packets */
#define WAKEFUL_ASK_NS 10000000u /* how often it is asked who else wants to run */

/* The thread's own. */
struct wakeful {
	uint64_t until_ns, asked_ns;
	bool alone; /* nobody waits for a processor, when it was last asked */
};

/* Packets came. */
void wakeful_begin(struct wakeful *wakeful, uint64_t now_ns);
/* There is nothing to do: look again? */
bool wakeful_stay(struct wakeful *wakeful, uint64_t now_ns);

#endif
