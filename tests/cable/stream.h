/* A stream in memory, for tests: what one end offers arrives at the other, cut into pieces by a
 * PRNG. Each direction holds a bounded number of bytes on its way, and can be cut. */
#ifndef TESTS_CABLE_STREAM_H
#define TESTS_CABLE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/prng.h"
#include "transport/stream.h"

#define STREAM_CABLE_BYTES 4096u

struct stream_end_point {
	const struct stream_ops *ops;
	void *context;
	/* Takes data that was read ahead, instead of want() and arrived(); NULL: stream_feed(). */
	size_t (*feed)(void *context, const uint8_t *bytes, size_t length, bool *open);
	bool open;  /* it has not refused anything */
	bool ended; /* it has been told that nothing comes any more */
};

struct stream_cable {
	struct prng *prng;
	struct stream_end_point ends[2];
	struct {
		uint8_t bytes[STREAM_CABLE_BYTES];
		size_t count;
		uint64_t passed; /* bytes that have arrived so far */
		uint64_t cut_at; /* after so many bytes the line is broken; UINT64_MAX: never */
	} lines[2];              /* [i]: from end i to the other */
};

void stream_cable_init(struct stream_cable *cable, struct prng *prng,
                       const struct stream_ops *ops_a, void *a, const struct stream_ops *ops_b,
                       void *b);
/* Move a random amount of bytes each way. Returns how many have moved. */
size_t stream_cable_step(struct stream_cable *cable);
/* Step until @quiet steps in a row have moved nothing. */
void stream_cable_run(struct stream_cable *cable, unsigned quiet);

#endif
