/* The streams of the 'streams' and 'messages' worlds, for the files that move what is on them. */
#ifndef SIM_WORLD_STREAMS_H
#define SIM_WORLD_STREAMS_H

#include "world.h"

#include "transport/iwarp/iwarp.h"
#include "transport/iwarp/mpa_setup.h"

#define STREAM_CHUNKS 6u

struct stream_host {
	struct iwarp_pool pool;
	struct iwarp_chunk chunks[STREAM_CHUNKS];
	uint32_t count;
	uint8_t *memory;
};

enum end_phase {
	END_SETUP,
	END_RUNS,
	END_CLOSED /* it takes nothing and offers nothing */
};

/* A message on its way. */
struct line_message {
	uint8_t *bytes; /* exactly as long as it is: sanitizers see what passes it */
	size_t length;
	uint32_t ppid;
	uint32_t number;
	uint64_t ready_ns; /* it does not arrive before */
};

struct byte_end {
	struct byte_stream *stream;
	struct host *host;
	struct wqp *qp;
	enum end_phase phase;
	bool open;           /* what comes is wanted */
	bool told;           /* it has been told that nothing more comes */
	bool scheduled;      /* it will have a turn */
	uint64_t awaited_ns; /* and one then, for a message; 0: none */
	uint64_t stalled_ns;
	struct mpa_setup setup;
	struct iwarp iwarp;
	struct iwarp_window *window; /* of 'messages' */
	struct {
		uint8_t *bytes;                /* of 'streams' */
		struct line_message *messages; /* of 'messages', oldest first */
		uint32_t next;                 /* number of the next message */
		size_t count;                  /* of either */
		uint64_t passed, cut_at;
		bool fin, reset; /* behind what is on its way */
		bool damage;     /* the next bytes are damaged */
		uint32_t wrong;  /* a number that comes twice or is far off, and 1 more; 0: none */
		bool wrong_due;  /* the next time it comes, the connection must end */
	} line;                  /* from this end to the other */
};

struct byte_stream {
	struct byte_stream *next;
	struct world *world;
	struct conn *conn;
	uint32_t index, epoch;
	struct byte_end ends[2];
};

static inline struct byte_end *other_end(struct byte_end *end)
{
	return &end->stream->ends[end == &end->stream->ends[0]];
}

/* --- world_streams.c --- */
bool end_lives(const struct byte_end *end);
/* Give @end a turn, soon or at that time. */
void end_soon(struct byte_end *end);
void end_await(struct byte_end *end, uint64_t at_ns);
/* The line of @end has been used up to its cut. */
void stream_was_cut(struct byte_end *end);

/* --- world_messages.c: lines of messages --- */
void messages_draw(struct world *w);
void messages_begin(struct byte_end *end);
void messages_end(struct byte_end *end);
/* Send, and take what comes. Returns how many messages moved. */
size_t messages_send(struct byte_end *end);
size_t messages_receive(struct byte_end *end);
/* Only @keep of those on their way, any of them, are left. */
void messages_cut(struct byte_end *end, size_t keep);

#endif
