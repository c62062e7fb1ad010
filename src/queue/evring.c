#include "queue/evring.h"

#include <string.h>

static struct hdl_port_event *evring_event_at(struct evring_block *block, uint64_t units,
                                              uint64_t at)
{
	return (struct hdl_port_event *)(void *)block->memory + (at & (units - 1));
}

static unsigned char *evring_words_at(struct evring_block *block, uint64_t events)
{
	return block->memory + events * sizeof(struct hdl_port_event);
}

size_t evring_bytes(uint32_t events, uint32_t words)
{
	return sizeof(struct evring_block) + (size_t)events * sizeof(struct hdl_port_event) +
	       (size_t)words * EVRING_WORD_BYTES;
}

void evring_writer_init(struct evring_writer *w, void *memory, uint32_t events, uint32_t words)
{
	assert(events >= EVRING_MIN_EVENTS && events <= EVRING_MAX_EVENTS);
	assert(words >= EVRING_MIN_WORDS && words <= EVRING_MAX_WORDS);
	*w = (struct evring_writer){.block = memory};
	pring_writer_init(&w->events, &w->block->events_writer, events);
	pring_writer_init(&w->words, &w->block->words_writer, words);
}

void evring_reader_init(struct evring_reader *r, void *memory, uint32_t events, uint32_t words)
{
	*r = (struct evring_reader){.block = memory};
	pring_reader_init(&r->events, &r->block->events_reader, events);
	pring_reader_init(&r->words, &r->block->words_reader, words);
}

/* --- the writer --- */

static enum evring_class evring_class_of(const struct hdl_port_event *event)
{
	if (event->type == HDL_PORT_CONNECT)
		return EVRING_CONNECT;
	return event->type == HDL_PORT_ERROR ? EVRING_ERROR : EVRING_ORDINARY;
}

/* Forget the places of @class that have been read. */
static void evring_settle(struct evring_writer *w, enum evring_class class)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < w->owned[class]; i++)
		if (w->own[class][i] >= w->events.rdptr)
			w->own[class][kept++] = w->own[class][i];
	w->owned[class] = kept;
}

/* May an event of @class take a place? Events without room of their own leave what the classes have
 * not used. */
static bool evring_may_place(struct evring_writer *w, enum evring_class class)
{
	uint64_t room = pring_look_room(&w->events), kept = 0;
	for (enum evring_class i = 0; i < EVRING_CLASSES; i++) {
		evring_settle(w, i);
		kept += EVRING_OWN_ROOM - w->owned[i];
	}
	if (class != EVRING_ORDINARY && w->owned[class] < EVRING_OWN_ROOM) {
		assert(room >= kept);
		w->own[class][w->owned[class]++] = w->events.wrptr;
		return true;
	}
	return room > kept;
}

/* Copy @bytes to the words from @at on, around the end. */
static void evring_copy_in(struct evring_writer *w, uint64_t at, const void *from, uint64_t bytes)
{
	uint64_t size = w->words.units * EVRING_WORD_BYTES;
	uint64_t start = (at * EVRING_WORD_BYTES) & (size - 1);
	uint64_t first = bytes < size - start ? bytes : size - start;
	unsigned char *words = evring_words_at(w->block, w->events.units);
	memcpy(words + start, from, first);
	memcpy(words, (const unsigned char *)from + first, bytes - first);
}

static enum evring_result evring_publish(struct evring_writer *w)
{
	pring_tell_written(&w->events, &w->block->events_reader);
	return pring_take_irq(&w->events) ? EVRING_INTERRUPT : EVRING_PLACED;
}

static void evring_write_event(struct evring_writer *w, const struct hdl_port_event *event)
{
	*evring_event_at(w->block, w->events.units, w->events.wrptr) = *event;
	w->events.wrptr++;
}

enum evring_result evring_tell_lost(struct evring_writer *w)
{
	struct hdl_port_event event = {.type = HDL_PORT_LOST, .value = w->lost};
	if (w->lost == 0)
		return EVRING_PLACED;
	if (!evring_may_place(w, EVRING_ORDINARY))
		return EVRING_FULL;
	w->lost = 0;
	evring_write_event(w, &event);
	return evring_publish(w);
}

enum evring_result evring_put(struct evring_writer *w, const struct hdl_port_event *event,
                              const void *data, uint64_t bytes)
{
	struct hdl_port_event placed = *event;
	uint64_t words = 0;
	if (data != NULL) {
		/* Divided first: the caller may have got @bytes from a peer. */
		if (bytes / EVRING_WORD_BYTES >= w->words.units)
			return EVRING_TOO_LONG;
		words = evring_words_of(bytes);
		if (words > w->words.units)
			return EVRING_TOO_LONG;
		if (!pring_has_room(&w->words, words))
			return EVRING_FULL;
	}
	bool told = w->lost > 0 && evring_tell_lost(w) == EVRING_INTERRUPT;
	if (!evring_may_place(w, evring_class_of(event)))
		return EVRING_FULL;
	placed.words = (uint32_t)words;
	placed.var_at = w->words.wrptr;
	if (words > 0) {
		evring_copy_in(w, w->words.wrptr, &bytes, sizeof(bytes));
		evring_copy_in(w, w->words.wrptr + 1, data, bytes);
		w->words.wrptr += words;
		pring_tell_written(&w->words, &w->block->words_reader);
	}
	evring_write_event(w, &placed);
	enum evring_result result = evring_publish(w);
	return told ? EVRING_INTERRUPT : result;
}

/* --- the reader --- */

int evring_take(struct evring_reader *r, struct hdl_port_event *events, int max)
{
	int taken = 0;
	while (taken < max && pring_has_filled(&r->events, 1)) {
		events[taken++] = *evring_event_at(r->block, r->events.units, r->events.rdptr);
		r->events.rdptr++;
	}
	uint64_t owed = r->events.rdptr - r->events.published;
	if (owed > 0 &&
	    (taken < max || owed >= r->events.units / 4 || r->events.rdptr == r->events.wrptr))
		pring_tell_read(&r->events, &r->block->events_writer);
	return taken;
}

static void evring_copy_out(struct evring_reader *r, uint64_t at, void *to, uint64_t bytes)
{
	uint64_t size = r->words.units * EVRING_WORD_BYTES;
	uint64_t start = (at * EVRING_WORD_BYTES) & (size - 1);
	uint64_t first = bytes < size - start ? bytes : size - start;
	const unsigned char *words = evring_words_at(r->block, r->events.units);
	if (bytes == 0)
		return; /* @to may be NULL */
	memcpy(to, words + start, first);
	memcpy((unsigned char *)to + first, words, bytes - first);
}

static void evring_release(struct evring_reader *r, uint64_t to)
{
	r->words.rdptr = to;
	pring_tell_read(&r->words, &r->block->words_writer);
}

enum evring_read evring_read(struct evring_reader *r, const struct hdl_port_event *event, void *to,
                             uint64_t max, uint64_t *bytes)
{
	uint64_t size;
	if (event->words == 0)
		return EVRING_NONE;
	uint64_t filled = pring_look_filled(&r->words);
	uint64_t skipped = event->var_at - r->words.rdptr;
	if (skipped > filled || event->words > filled - skipped) {
		if (event->var_at < r->words.rdptr)
			return EVRING_GONE;
		r->broken++;
		return EVRING_BROKEN;
	}
	evring_copy_out(r, event->var_at, &size, sizeof(size));
	if (size > (uint64_t)(event->words - 1) * EVRING_WORD_BYTES) {
		r->broken++;
		evring_release(r, event->var_at + event->words);
		return EVRING_BROKEN;
	}
	*bytes = size;
	if (size > max)
		return EVRING_SHORT;
	evring_copy_out(r, event->var_at + 1, to, size);
	evring_release(r, event->var_at + event->words);
	return EVRING_READ;
}

bool evring_arm(struct evring_reader *r)
{
	pring_arm(&r->events, &r->block->events_writer);
	if (pring_look_filled(&r->events) == 0)
		return true;
	evring_disarm(r);
	return false;
}

void evring_disarm(struct evring_reader *r)
{
	pring_disarm(&r->events, &r->block->events_writer);
}
