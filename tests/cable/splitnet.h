/* Two ends of the messaging layer on channels that live in virtual time: operations arrive after a
 * delay, in order on each channel, and complete after another. What a peer may touch is checked as
 * an adapter would check it. */
#ifndef CABLE_SPLITNET_H
#define CABLE_SPLITNET_H

#include "base/prng.h"
#include "split/split.h"

#define SPLITNET_EVENTS 8192u
#define SPLITNET_FRAMES 65536u

struct splitnet_region {
	bool used, readable, allocated;
	uint32_t index, handle;
	uint8_t *host;
	size_t bytes;
};

struct splitnet_end {
	struct splitnet *net;
	struct splitnet_end *peer;
	const char *name;
	struct split split;
	uint8_t *memory;
	size_t memory_bytes;
	struct splitnet_region regions[SPLIT_MAX_POOLS];
	uint32_t next_handle;
	uint8_t receives[2][2 * SPLIT_RECEIVES][PUSH_MAX_BYTES];
	bool receive_busy[2][2 * SPLIT_RECEIVES];
	uint32_t indications; /* receives that are posted for immediate data */
	uint32_t in_flight[2];
	uint64_t last_arrival_ns[2];
	uint64_t last_context[2]; /* of what arrived at the peer, and one more */
	bool dead;
	/* What the user saw. */
	bool blocked;       /* it takes no frames */
	bool knows_nothing; /* of configuration */
	uint32_t block_permille;
	uint64_t delivered, delivered_bytes;
	uint64_t last_frame_ns;
	uint64_t configured, unanswered;
	struct push_cfg last_answer;
	/* Frames that are under way to this end, in order. */
	uint64_t expected;
	/* Called for each frame; NULL: compare it with what was sent. */
	void (*check)(struct splitnet_end *end, const uint8_t *frame, uint32_t bytes);
	/* Called instead, if it is there. False: not now. */
	bool (*take)(struct splitnet_end *end, const uint8_t *frame, uint32_t bytes);
	void *world;
	uint64_t sent;
};

struct splitnet_event {
	uint64_t at_ns, sequence;
	struct splitnet_end *from;
	bool completion, good;
	struct split_op op;
	uint64_t id;
};

struct splitnet {
	struct splitnet_end end[2]; /* SPLIT_HOST, SPLIT_UNIT */
	struct prng prng;
	uint64_t now_ns, sequence;
	uint64_t delay_ns[2]; /* of each channel, one way */
	uint64_t jitter_ns;
	uint32_t loss_permille; /* of sends, in send mode */
	uint32_t depth;         /* operations in flight per channel and direction */
	struct splitnet_event events[SPLITNET_EVENTS];
	uint32_t event_count;
	uint64_t not_ready; /* writes that found no receive */
	uint64_t refused;   /* accesses outside of what was offered */
	uint64_t lost;
	uint64_t overrun; /* sends that found no receive */
};

/* A configuration for both ends: frames of @frame_bytes, two pools at each end that owns some. */
struct split_config splitnet_config(enum split_role role, enum split_mode mode,
                                    enum split_model model, bool host_owns, bool unit_owns,
                                    uint32_t frame_bytes);
/* @config[0] for the host, [1] for the unit. */
void splitnet_open(struct splitnet *net, uint64_t seed, const struct split_config config[2]);
void splitnet_close(struct splitnet *net);
/* Run until nothing is under way, or @until_ns. */
void splitnet_run(struct splitnet *net, uint64_t until_ns);
/* Execute the next event alone; false: there is none. */
bool splitnet_step(struct splitnet *net);
void splitnet_pump(struct splitnet *net);
/* Send a frame that carries its number; false: there is no room. */
bool splitnet_send(struct splitnet_end *end, uint32_t bytes);

#endif
