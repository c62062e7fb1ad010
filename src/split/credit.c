/* Flow control of SendData. The receiver has SPLIT_RECEIVES receives for frames. Each frame has a
 * number, and the receiver says up to which it has taken them, by BufferRecvPoolUpdate for the pool
 * PUSH_RECEIVES: the sender may send that many more. Numbers, not counts, so that a frame or an
 * update that was lost (send mode) makes no difference as soon as a later one arrives. If nothing
 * arrives, a sender that has a frame asks by BufferRecvPoolGet, which says what it has sent:
 * whatever of that is not there by then counts as lost. */
#include "split/internal.h"

#define NUMBER_MASK 0xffffffu /* numbers wrap around */

/* How far @a is ahead of @b, which may be negative. */
static int32_t credit_ahead(uint32_t a, uint32_t b)
{
	uint32_t distance = (a - b) & NUMBER_MASK;
	return distance > NUMBER_MASK / 2 ? (int32_t)distance - (int32_t)NUMBER_MASK - 1
	                                  : (int32_t)distance;
}

void credit_begin(struct split *split)
{
	split->sent_limit = SPLIT_RECEIVES;
}

bool credit_room(struct split *split)
{
	uint32_t used = split->sent_number + queue_length(&split->queued);
	if (!split->config.credits || credit_ahead(split->sent_limit, used) > 0)
		return true;
	if (!split->no_credit)
		split->probe_ns = split->now_ns + SPLIT_PROBE_NS;
	split->no_credit = true;
	return false;
}

uint64_t credit_number(const struct split *split)
{
	return split->config.credits ? (split->sent_number + 1) & NUMBER_MASK : split->next_context;
}

void credit_sent(struct split *split)
{
	if (split->config.credits)
		split->sent_number = (split->sent_number + 1) & NUMBER_MASK;
	else
		split->next_context++;
}

/* The receiver has taken all up to run->first, and has room for run->elements from there. */
void credit_update(struct split *split, const struct push_run *run)
{
	int32_t outstanding = credit_ahead(split->sent_number, run->first);
	if (run->first > NUMBER_MASK || run->elements > SPLIT_RECEIVES || outstanding < 0 ||
	    outstanding > (int32_t)SPLIT_RECEIVES) {
		split_judge(split, SPLIT_NOT_USED);
		return;
	}
	uint32_t limit = (run->first + run->elements) & NUMBER_MASK;
	if (credit_ahead(limit, split->sent_limit) <= 0)
		return; /* an older one */
	split->sent_limit = limit;
	split->no_credit = false;
}

void credit_taken(struct split *split, uint32_t number)
{
	if (credit_ahead(number, split->taken_number) > 0)
		split->taken_number = number & NUMBER_MASK;
}

/* The sender has sent everything up to @number, and waits. */
void credit_asked(struct split *split, uint64_t number)
{
	bool all_here = split->frames_head == split->frames_tail;
	if (split->config.mode == SPLIT_SEND && all_here && number <= NUMBER_MASK)
		credit_taken(split, (uint32_t)number);
	split->tell_taken = true;
}

static void credit_tell(struct split *split)
{
	struct push_run run = {PUSH_RECEIVES, split->taken_number, SPLIT_RECEIVES};
	uint32_t buffer;
	uint8_t *out = split_message_begin(split, &buffer);
	if (out == NULL ||
	    !split_message_send(split, buffer,
	                        push_put_runs(split->next_context, &run, 1, out, PUSH_MAX_BYTES),
	                        ID_MESSAGE))
		return;
	split->next_context++;
	split->told_number = split->taken_number;
	split->tell_taken = false;
}

static void credit_probe(struct split *split)
{
	struct push_message message = {.function = PUSH_POOL_GET,
	                               .context = split->sent_number,
	                               .packet_bytes = split->config.frame_bytes,
	                               .packets = SPLIT_RECEIVES};
	uint32_t buffer;
	uint8_t *out = split_message_begin(split, &buffer);
	if (out != NULL &&
	    split_message_send(split, buffer, push_put(&message, out, PUSH_MAX_BYTES), ID_MESSAGE))
		split->probe_ns = split->now_ns + SPLIT_PROBE_NS;
}

/* A quarter of the receives makes an update worth while. */
void credit_pump(struct split *split)
{
	int32_t news = credit_ahead(split->taken_number, split->told_number);
	if (!split->config.credits)
		return;
	if (credit_deadline(split) <= split->now_ns)
		credit_probe(split);
	if (split->tell_taken || news >= (int32_t)SPLIT_RECEIVES / 4)
		credit_tell(split);
}

/* What is lost can only be found out by asking; on acknowledged channels nothing is. */
uint64_t credit_deadline(const struct split *split)
{
	bool asks =
	        split->no_credit && split->config.mode == SPLIT_SEND && split->state == SPLIT_OPEN;
	return asks ? split->probe_ns : UINT64_MAX;
}
