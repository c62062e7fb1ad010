/* Messages in memory, for tests: what one iWARP connection on messages offers arrives at the other
 * as SCTP delivers unordered messages: whole, once, in any order. A message that is lost comes
 * again later, when many others have overtaken it. */
#ifndef TESTS_CABLE_MESSAGES_H
#define TESTS_CABLE_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"
#include "transport/iwarp/iwarp.h"

#define MESSAGE_CABLE_SLOTS 300u

struct message_cable {
	struct prng *prng;
	struct iwarp *ends[2];
	bool ended[2];         /* this end has been told that nothing comes any more */
	bool in_order;         /* nothing is lost, nothing overtakes */
	unsigned loss_percent; /* 0: nothing is lost, but any message may overtake any other */
	struct {
		struct {
			uint8_t *
			        bytes; /* exactly as long as it is: sanitizers see what passes it */
			size_t length;
			unsigned delay;       /* messages that overtake it, at least */
		} slots[MESSAGE_CABLE_SLOTS]; /* oldest first */
		unsigned count;
		uint64_t passed, early; /* messages that arrived; those with an older one missing */
	} lines[2];                     /* [i]: from end i to the other */
};

void message_cable_init(struct message_cable *cable, struct prng *prng, struct iwarp *a,
                        struct iwarp *b);
/* Move some messages each way. Returns how many. */
size_t message_cable_step(struct message_cable *cable);
/* Free what is on its way. */
void message_cable_free(struct message_cable *cable);

#endif
