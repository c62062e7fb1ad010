/* The node agent's own queue (APERTURE figure 9): what one process tells the agent about its
 * ports. The adapter of a process delivers events to the queues of its ports. Where an event
 * meets the agent's criteria, it also puts a message [OOB-DATA:PORT] on this queue. There is one
 * per process, so that a process cannot spoil it for others. The agent makes the block, and maps
 * it:
 *
 *   0      criteria (u32)       agent: which events get a message, enum oob_bit
 *   4      wakes (u32)          agent: which of these wake the agent, if its IRQ bit is set;
 *                               it may change both at any time
 *   64     lost (u64)           process: messages that found no room
 *   128    lane from the process to the agent (base/ring.h); its armed word is the agent's IRQ bit
 *
 * Both sides judge what they find from a copy: the process is not trusted by the agent, and an
 * agent of another version is none. */
#ifndef PORT_OOB_H
#define PORT_OOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/ring.h"

#define OOB_SLOTS 256u /* of the lane: as many messages, less one */

/* What an event is, by bits: its form is 1 << type (port_event.h), and these. */
enum oob_bit {
	OOB_FORMS = 0xffff,
	OOB_BLOCKED = 1 << 16,  /* the application sleeps */
	OOB_ERRORS = 1 << 17,   /* it tells of an error */
	OOB_FAILURES = 1 << 18, /* a failure of the adapter, which concerns no port */
	OOB_NOBODY = 1 << 19,   /* nobody can be woken: the port has no queue, or no room in it */
	OOB_ALL = 0xfffff
};
/* The defaults; and what counts as well at ports of programs that are not trusted: the forms of
 * signals, CONNECT to STATUS. */
#define OOB_CRITERIA ((uint32_t)(OOB_BLOCKED | OOB_ERRORS | OOB_FAILURES | OOB_NOBODY))
#define OOB_WAKES    ((uint32_t)(OOB_ERRORS | OOB_FAILURES | OOB_NOBODY))
#define OOB_SIGNALS  0x1feu

/* Which events get a message, and which of these wake the agent. */
struct oob_criteria {
	uint32_t events, wakes; /* enum oob_bit; nothing wakes that is not among events */
};
static inline bool oob_is_possible(const struct oob_criteria *criteria)
{
	return (criteria->events & ~(uint32_t)OOB_ALL) == 0 &&
	       (criteria->wakes & ~criteria->events) == 0;
}

/* Criteria are spelled as words with commas between them; one that begins with ! wakes the agent as
 * well. Beside those in the table there are "all" and "none". */
struct oob_word {
	const char *word;
	uint32_t bits;
};
#define OOB_WORDS 14u
#define OOB_TEXT  192u /* room for all words */
extern const struct oob_word oob_words[OOB_WORDS];
/* Returns NULL; or the word that is unknown, which ends at a comma or with @text. */
const char *oob_parse(const char *text, struct oob_criteria *criteria);
void oob_print(const struct oob_criteria *criteria, char text[OOB_TEXT]);
/* All the words that there are. */
void oob_list(char text[OOB_TEXT]);

struct oob_message {
	uint32_t bits; /* enum oob_bit: why it was sent */
	uint16_t port; /* FAILURES: 0 */
	uint16_t type; /* of the event; FAILURES: enum hdl_event_type */
	/* Of the event: what the error is, and which aperture it concerns. */
	int32_t status;
	uint32_t index;
	/* Where the agent finds the port's queue in the process, if it wants to look into it: its
	 * pointers, and its events, a power of two; 0: nowhere. */
	uint64_t wrptr_addr, rdptr_addr, events_addr;
	uint32_t events;
	uint32_t reserved;
};
_Static_assert(sizeof(struct oob_message) == 48, "both sides are of one build");

/* How an event in the queue of a port begins (port_event.h, which this layer may not include; the
 * adapter compares them). */
#define OOB_EVENT_BYTES 64u
struct oob_event {
	uint16_t type, flags;
	uint32_t words, port, index;
	uint64_t value;
};

struct oob_block {
	_Alignas(64) _Atomic uint32_t criteria;
	_Atomic uint32_t wakes;
	_Alignas(64) _Atomic uint64_t lost;
	_Alignas(64) unsigned char lane[];
};
_Static_assert(sizeof(struct oob_block) == 128, "see the drawing");

static inline size_t oob_bytes(void)
{
	return sizeof(struct oob_block) + ring_bytes(OOB_SLOTS);
}

#endif
