/* An event queue (APERTURE figures 8 and 13): fixed-size events in one pointer ring, and a second
 * one for data of variable size, counted in words of 8 bytes. An event "Var 10" says that 10
 * words of the second queue belong to it. The first of them is the size of the data in bytes.
 *
 *        events                                   words
 *   RDPTR1 -> | Err       |                 RDPTR2 -> | size = 70     |  \
 *             | Var 10    | ---------------------->   | 9 words       |   10 words
 *             | Data      |                           | size = 12     |  \
 *             | Var 3     | ---------------------->   | 2 words       |   3 words
 *   WRPTR1 -> |           |                 WRPTR2 -> |               |
 *
 * The read pointers move separately: events first, data whenever the application reads it. All of
 * it is one block of memory:
 *
 *   0      reader's control block of the events       (queue/pring.h)
 *   128    reader's control block of the words
 *   256    writer's control block of the events
 *   384    writer's control block of the words
 *   512    events, 64 bytes each
 *   ...    words, 8 bytes each
 *
 * When there is no room, the writer keeps the event back, or counts it; nothing is overwritten.
 * CONNECT and ERROR have room of their own: EVRING_OWN_ROOM places each that no other event
 * takes. */
#ifndef QUEUE_EVRING_H
#define QUEUE_EVRING_H

#include <heddle/port_event.h>

#include "queue/pring.h"

#define EVRING_OWN_ROOM   8u
#define EVRING_MIN_EVENTS 32u /* more than both own rooms */
#define EVRING_MAX_EVENTS (1u << 20)
#define EVRING_MIN_WORDS  16u
#define EVRING_MAX_WORDS  (1u << 24)
#define EVRING_WORD_BYTES 8u

struct evring_block {
	struct pring_reader_block events_reader, words_reader;
	struct pring_writer_block events_writer, words_writer;
	unsigned char memory[];
};
_Static_assert(sizeof(struct evring_block) == 512, "see the drawing");

/* Kinds of events with room of their own. */
enum evring_class {
	EVRING_CONNECT,
	EVRING_ERROR,
	EVRING_CLASSES,
	EVRING_ORDINARY = EVRING_CLASSES
};

struct evring_writer {
	struct evring_block *block;
	struct pring_writer events, words;
	/* Where the events are that took room of their own, and have not been read. */
	uint64_t own[EVRING_CLASSES][EVRING_OWN_ROOM];
	uint32_t owned[EVRING_CLASSES];
	uint64_t lost; /* events that were counted instead of placed, and not yet told */
};

struct evring_reader {
	struct evring_block *block;
	struct pring_reader events, words;
	uint64_t broken; /* data that was refused: its size contradicts its event */
};

enum evring_result {
	EVRING_PLACED,
	EVRING_INTERRUPT, /* placed, and the reader wants an interrupt */
	EVRING_FULL,      /* keep it back, or call evring_lose() */
	EVRING_TOO_LONG   /* it will never fit */
};

size_t evring_bytes(uint32_t events, uint32_t words);
/* Both counts are powers of two within the limits. @memory is zeroed, 64-byte aligned and
 * evring_bytes() long. */
void evring_writer_init(struct evring_writer *w, void *memory, uint32_t events, uint32_t words);
void evring_reader_init(struct evring_reader *r, void *memory, uint32_t events, uint32_t words);

/* The words that @bytes of data take, with their size. */
static inline uint64_t evring_words_of(uint64_t bytes)
{
	return 1 + bytes / EVRING_WORD_BYTES + (bytes % EVRING_WORD_BYTES != 0);
}

/* Place @event, with @bytes of @data behind it (@data NULL: none). */
enum evring_result evring_put(struct evring_writer *w, const struct hdl_port_event *event,
                              const void *data, uint64_t bytes);
/* Count an event that cannot be kept back. The next event that finds room is preceded by one of
 * type HDL_PORT_LOST. */
static inline void evring_lose(struct evring_writer *w)
{
	w->lost++;
}
/* Tell of lost events now, if there are any and there is room. */
enum evring_result evring_tell_lost(struct evring_writer *w);

/* Up to @max events, oldest first. The writer learns of it in batches, and always when the queue is
 * empty. */
int evring_take(struct evring_reader *r, struct hdl_port_event *events, int max);
/* Are there events that have not been taken? */
static inline bool evring_holds(struct evring_reader *r)
{
	return pring_has_filled(&r->events, 1);
}

enum evring_read {
	EVRING_READ,
	EVRING_GONE,   /* it was read before, or released with a later event */
	EVRING_SHORT,  /* @max is too small; *@bytes is the size. Nothing was read */
	EVRING_BROKEN, /* the writer's numbers contradict each other; the words were released */
	EVRING_NONE    /* the event has no data */
};
/* Copy the data of @event to @to and release its words, and those of earlier events. */
enum evring_read evring_read(struct evring_reader *r, const struct hdl_port_event *event, void *to,
                             uint64_t max, uint64_t *bytes);

/* The reader wants an interrupt. False: there are events already. */
bool evring_arm(struct evring_reader *r);
void evring_disarm(struct evring_reader *r);

#endif
