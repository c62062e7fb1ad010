/* The port 'stream': queue pairs on byte streams in memory (iWARP), whose bytes arrive in random
 * pieces; and 'messages': the same on messages as SCTP has them, which are lost and overtake each
 * other. The adapters are joined by lanes like those of the loop ports, and a connection that is
 * ready to send moves to its stream. Time is virtual.
 *
 * What is different from InfiniBand is RFC 5040's: a send or write is over when its memory may be
 * reused, which says nothing about the peer. What the peer refuses comes as a Terminate. */
#include <pthread.h>
#include <stdlib.h>

#include "adapter/adapter.h"
#include "base/prng.h"
#include "cable/messages.h"
#include "cable/stream.h"
#include "transport/iwarp/iwarp.h"

#include "port_wire.h"

#define STREAM_CHUNKS  8u
#define STREAM_SEED    5044u
#define STREAM_QUIET   20u
#define STREAM_SEGMENT 1448u
#define STREAM_IRD     8u

struct stream_adapter {
	struct hdl_adapter *adapter; /* NULL: it was killed */
	struct iwarp_pool pool;
	struct iwarp_chunk chunks[STREAM_CHUNKS];
	uint8_t *memory;
	struct stream_adapter *next;
};

struct stream_pair {
	struct stream_adapter *of[2];
	struct iwarp iwarp[2];
	struct stream_cable cable;
	struct iwarp_window *windows; /* one each; NULL: a byte stream */
	struct message_cable messages;
	bool over; /* neither end listens any more */
	struct stream_pair *next;
};

struct stream_net {
	pthread_mutex_t turn; /* who carries, or makes a stream: one at a time */
	struct prng prng;
	struct stream_adapter *adapters;
	struct stream_pair *pairs;
};

static struct world *stream_world; /* adapters are killed without saying in which */

static uint64_t stream_now(void *context)
{
	return ((struct world *)context)->virtual_ns;
}

static struct stream_net *stream_net_of(struct world *w)
{
	stream_world = w;
	if (w->net == NULL) {
		struct stream_net *net = calloc(1, sizeof(*net));
		assert_non_null(net);
		prng_seed(&net->prng, STREAM_SEED);
		pthread_mutex_init(&net->turn, NULL);
		w->net = net;
	}
	return w->net;
}

int stream_open(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr)
{
	struct stream_net *net = stream_net_of(w);
	struct hdl_open_attr wanted = *attr;
	struct adapter_env env = {.clock = {stream_now, w}};
	wanted.no_thread = true;
	int result = adapter_open(&wanted, &env, out);
	if (result != 0)
		return result;
	struct stream_adapter *own = calloc(1, sizeof(*own));
	assert_non_null(own);
	own->memory = malloc(STREAM_CHUNKS * IWARP_CHUNK_BYTES);
	assert_non_null(own->memory);
	iwarp_pool_init(&own->pool, own->chunks, STREAM_CHUNKS, own->memory);
	own->adapter = *out;
	own->next = net->adapters;
	net->adapters = own;
	(*out)->engine.iwarp_pool = &own->pool;
	return 0;
}

int stream_join(struct world *w, struct hdl_adapter *a, struct hdl_adapter *b)
{
	(void)w;
	return hdl_join(a, b);
}

static void stream_wake(void *context, struct iwarp *iwarp)
{
	(void)context; /* every turn looks at every stream */
	(void)iwarp;
}

static size_t stream_take(void *context, const uint8_t *bytes, size_t length, bool *open)
{
	return iwarp_feed(context, bytes, length, open);
}

static struct stream_adapter *stream_adapter_of(struct stream_net *net,
                                                const struct hdl_adapter *adapter)
{
	struct stream_adapter *at = net->adapters;
	while (at->adapter != adapter)
		at = at->next;
	return at;
}

void stream_attach(struct world *w, struct hdl_qp *qa, struct hdl_qp *qb)
{
	struct stream_net *net = w->net;
	struct stream_pair *pair = calloc(1, sizeof(*pair));
	struct hdl_qp *qps[2] = {qa, qb};
	assert_non_null(pair);
	if (w->port->messages) {
		pair->windows = calloc(2, sizeof(*pair->windows));
		assert_non_null(pair->windows);
	}
	for (unsigned i = 0; i < 2; i++) {
		struct hdl_adapter *adapter = qps[i]->pd->adapter;
		const struct iwarp_terms terms = {
		        .window = pair->windows != NULL ? &pair->windows[i] : NULL,
		        .first_ssn = 1,
		        .crc = pair->windows == NULL,
		        .initiator = true,
		        .ird = STREAM_IRD,
		        .ord = STREAM_IRD,
		        .segment = STREAM_SEGMENT};
		pair->of[i] = stream_adapter_of(net, adapter);
		adapter_lock(adapter);
		iwarp_begin(&adapter->engine, &qps[i]->qp, &pair->iwarp[i], &terms,
		            &(struct iwarp_owner){stream_wake, pair});
		adapter_unlock(adapter);
	}
	stream_cable_init(&pair->cable, &net->prng, &iwarp_stream, &pair->iwarp[0], &iwarp_stream,
	                  &pair->iwarp[1]);
	message_cable_init(&pair->messages, &net->prng, &pair->iwarp[0], &pair->iwarp[1]);
	pair->cable.ends[0].feed = pair->cable.ends[1].feed = stream_take;
	pthread_mutex_lock(&net->turn);
	pair->next = net->pairs;
	net->pairs = pair;
	pthread_mutex_unlock(&net->turn);
}

static void stream_lock(const struct stream_pair *pair, bool lock)
{
	for (unsigned i = 0; i < 2; i++) {
		struct hdl_adapter *adapter = pair->of[i]->adapter;
		if (adapter == NULL || (i == 1 && pair->of[0] == pair->of[1]))
			continue;
		if (lock)
			adapter_lock(adapter);
		else
			adapter_unlock(adapter);
	}
}

/* Is something of what @from sent still on its way? */
static bool stream_pending(const struct stream_pair *pair, unsigned from)
{
	struct iwarp *own = (struct iwarp *)(uintptr_t)&pair->iwarp[from];
	struct stream_run run;
	unsigned on_line = pair->windows != NULL ? pair->messages.lines[from].count
	                                         : (unsigned)pair->cable.lines[from].count;
	return on_line > 0 || iwarp_stream.offer(own, &run, 1) > 0;
}

/* What the ends make of their stream: @from ends its direction, or breaks it. */
static unsigned stream_ends(struct stream_pair *pair, unsigned from)
{
	struct stream_end_point *to = &pair->cable.ends[1 - from];
	struct iwarp *own = &pair->iwarp[from];
	bool dead = pair->of[from]->adapter == NULL;
	enum iwarp_ending ending = dead ? IWARP_ABORT : iwarp_ending(own);
	if (to->ended || pair->of[1 - from]->adapter == NULL || ending == IWARP_GOES_ON)
		return 0;
	if (ending == IWARP_FIN && to->open && stream_pending(pair, from))
		return 0;
	to->ended = pair->messages.ended[1 - from] = true;
	iwarp_stream.ended(to->context, ending == IWARP_FIN ? STREAM_CLOSED : STREAM_BROKEN);
	return 1;
}

static unsigned stream_carry_pair(struct stream_pair *pair)
{
	unsigned did = 0;
	stream_lock(pair, true);
	bool alive = pair->of[0]->adapter != NULL && pair->of[1]->adapter != NULL;
	for (unsigned quiet = 0; alive && quiet < STREAM_QUIET;) {
		size_t moved = pair->windows != NULL ? message_cable_step(&pair->messages)
		                                     : stream_cable_step(&pair->cable);
		quiet = moved > 0 ? 0 : quiet + 1;
		did += moved > 0;
	}
	did += stream_ends(pair, 0) + stream_ends(pair, 1);
	stream_lock(pair, false);
	return did;
}

unsigned stream_carry(struct world *w)
{
	struct stream_net *net = w->net;
	unsigned did = 0;
	if (pthread_mutex_trylock(&net->turn) != 0)
		return 0;
	for (struct stream_pair *at = net->pairs; at != NULL; at = at->next)
		did += stream_carry_pair(at);
	pthread_mutex_unlock(&net->turn);
	return did;
}

void stream_kill(struct hdl_adapter *adapter)
{
	struct stream_net *net = stream_world->net;
	struct stream_adapter *own = stream_adapter_of(net, adapter);
	adapter_kill(adapter);
	own->adapter = NULL;
}

void stream_end(struct world *w)
{
	struct stream_net *net = w->net;
	while (net->pairs != NULL) {
		struct stream_pair *pair = net->pairs;
		net->pairs = pair->next;
		message_cable_free(&pair->messages);
		free(pair->windows);
		free(pair);
	}
	while (net->adapters != NULL) {
		struct stream_adapter *own = net->adapters;
		net->adapters = own->next;
		free(own->memory);
		free(own);
	}
	pthread_mutex_destroy(&net->turn);
	free(net);
}
