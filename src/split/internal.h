/* What the files of the messaging layer share; see split.h. */
#ifndef SPLIT_INTERNAL_H
#define SPLIT_INTERNAL_H

#include "split/split.h"

/* Whose an element is. Own elements: OFFERED ones are the peer's to write. The peer's: FREE ones
 * are ours to write; those of a readable pool are ours from when we were told of them. */
enum split_element {
	ELEMENT_IDLE,    /* own: waits for a request, or for a read; peer's: not ours */
	ELEMENT_FREE,    /* peer's: may be written */
	ELEMENT_USED,    /* peer's: was written, or is to be read */
	ELEMENT_OFFERED, /* own: may be written by the peer, or of the slots: shown to it */
	ELEMENT_HELD,    /* own: holds a frame, or is being filled by a read */
	ELEMENT_FREED    /* an update is to be sent */
};

enum split_slot_state {
	SLOT_FREE,
	SLOT_TAKEN,
	SLOT_QUEUED,  /* pull-pull: an element may have been asked for */
	SLOT_FLYING,  /* the operation is in flight */
	SLOT_WRITTEN, /* the write has completed; BufferRDMAIndicate is to be sent */
	SLOT_SHOWN    /* push-pull: the peer reads it */
};

/* How frames leave this side, and how they come. */
enum split_way { WAY_SEND, WAY_WRITE, WAY_ASK, WAY_SHOW };
enum split_way split_way_out(const struct split *split);
enum split_way split_way_in(const struct split *split);

/* What an operation was: the high half of its id. The low half: a message buffer, a slot, or the
 * number of a frame. */
enum split_id { ID_MESSAGE = 1, ID_INDICATION, ID_SEND, ID_WRITE, ID_WRITE_SILENT, ID_READ };

static inline uint64_t split_id(enum split_id what, uint32_t which)
{
	return (uint64_t)what << 32 | which;
}

/* The peer broke a rule. */
void split_judge(struct split *split, enum split_verdict verdict);

static inline uint32_t queue_length(const struct split_queue *queue)
{
	return queue->tail - queue->head;
}
void queue_push(struct split_queue *queue, uint32_t number);
uint32_t queue_peek(const struct split_queue *queue);
uint32_t queue_pop(struct split_queue *queue);

/* A buffer for a message; NULL: all are in flight. */
uint8_t *split_message_begin(struct split *split, uint32_t *buffer);
/* Send what was put there, @bytes long. False: no room; the buffer is free again. */
bool split_message_send(struct split *split, uint32_t buffer, size_t bytes, enum split_id what);

/* --- pool.c: tables of pools and elements --- */

struct split_pool *pool_find(struct split_side *side, uint32_t index);
/* A place and elements for a new pool; NULL: there are none. All elements get @state, and are put
 * into the ring if it is ELEMENT_FREE or ELEMENT_IDLE. */
struct split_pool *pool_add(struct split_side *side, const struct push_pool *at,
                            enum split_element state);
void pool_remove(struct split_side *side, struct split_pool *pool);
static inline uint8_t *pool_element(struct split_side *side, struct split_pool *pool, uint32_t i)
{
	return &side->element[pool->first + i];
}
void pool_put_free(struct split_side *side, struct split_pool *pool, uint32_t element);
uint32_t pool_take_free(struct split_side *side, struct split_pool *pool);
/* Runs of elements that wait for an update, as BufferRecvPoolUpdate names them with @mark; at most
 * @max. Each becomes @next. Returns how many runs. */
uint32_t pool_updates(struct split_side *side, struct split_pool *pool, uint32_t mark,
                      enum split_element next, struct push_run *runs, uint32_t max);

/* --- own.c: pools that this side owns --- */

bool own_begin(struct split *split);
void own_indicated(struct split *split, const struct push_indication *indication);
void own_immediate(struct split *split, uint32_t immediate);
void own_get(struct split *split, uint32_t packet_bytes, uint32_t packets);
/* The peer has read slots that were shown to it. */
void own_update(struct split *split, const struct push_run *run);
void own_release(struct split *split, struct split_pool *pool, uint32_t element);
void own_returned(struct split *split, uint32_t index);
void own_flushed(struct split *split);
void own_end_flushed(struct split *split);
void own_pump(struct split *split);
void own_withdraw_all(struct split *split);

/* --- theirs.c: pools of the peer --- */

void theirs_offered(struct split *split, const struct push_message *message);
void theirs_update(struct split *split, const struct push_run *run);
void theirs_told(struct split *split, const struct push_indication *indication);
void theirs_flush(struct split *split, const struct push_message *message);
/* Where a frame of @bytes goes; false: there is no element for it now. */
bool theirs_pick(struct split *split, const uint8_t *frame, uint32_t bytes, uint16_t *place,
                 uint32_t *element);
void theirs_unpick(struct split *split, uint16_t place, uint32_t element);
/* Free elements that take any frame. */
uint32_t theirs_room(const struct split *split);
/* Start reads of what we were told about. */
void theirs_read(struct split *split);
void theirs_pump(struct split *split);

/* --- frames.c: frames out and in --- */

void frames_pump(struct split *split);
void frames_done(struct split *split, enum split_id what, uint32_t which);
void frames_indication_done(struct split *split);
void frames_read_done(struct split *split, uint32_t number);
/* The peer has read slot @slot. */
void frames_slot_free(struct split *split, uint32_t slot);
struct split_frame *frames_push(struct split *split);

/* --- credit.c: flow control of SendData --- */

void credit_begin(struct split *split);
/* May one more frame be taken? */
bool credit_room(struct split *split);
/* The transaction context of the next SendData, and that it was sent. */
uint64_t credit_number(const struct split *split);
void credit_sent(struct split *split);
void credit_update(struct split *split, const struct push_run *run);
void credit_taken(struct split *split, uint32_t number);
void credit_asked(struct split *split, uint64_t number);
void credit_pump(struct split *split);
uint64_t credit_deadline(const struct split *split);

/* --- config.c: requests and replies --- */

void config_request(struct split *split, const struct push_message *message);
void config_reply(struct split *split, const struct push_message *message);
void config_pump(struct split *split);
uint64_t config_deadline(const struct split *split);

#endif
