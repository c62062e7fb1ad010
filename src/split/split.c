/* One end of a service connection: what arrives goes to the part that it concerns, and split_pump()
 * sends what the parts have to say. Nothing is queued as bytes: what is to be sent follows from the
 * state, so a channel without room delays it and loses nothing. */
#include "split/split.h"

#include <assert.h>
#include <string.h>

#include "split/internal.h"

const char *const split_counter_names[SPLIT_COUNTER_COUNT] = {
        [SPLIT_TX_FRAMES] = "tx_frames",
        [SPLIT_TX_BYTES] = "tx_bytes",
        [SPLIT_RX_FRAMES] = "rx_frames",
        [SPLIT_RX_BYTES] = "rx_bytes",
        [SPLIT_TX_MESSAGES] = "tx_messages",
        [SPLIT_TX_MESSAGE_BYTES] = "tx_message_bytes",
        [SPLIT_RX_MESSAGES] = "rx_messages",
        [SPLIT_RX_MESSAGE_BYTES] = "rx_message_bytes",
        [SPLIT_TX_WRITES] = "tx_writes",
        [SPLIT_TX_SENDS] = "tx_sends",
        [SPLIT_TX_SHOWN] = "tx_shown",
        [SPLIT_TX_ASKED] = "tx_asked",
        [SPLIT_RX_READS] = "rx_reads",
        [SPLIT_INDICATED] = "tx_indications",
        [SPLIT_STARVED] = "starved",
        [SPLIT_FLUSH_TIMEOUTS] = "flush_timeouts",
        [SPLIT_RX_TOO_LONG] = "rx_too_long",
        [SPLIT_VERDICTS + SPLIT_OK] = "refused",
        [SPLIT_VERDICTS + SPLIT_BAD_MESSAGE] = "refused_message",
        [SPLIT_VERDICTS + SPLIT_BAD_CHANNEL] = "refused_channel",
        [SPLIT_VERDICTS + SPLIT_POOL_LIMIT] = "refused_pool_limit",
        [SPLIT_VERDICTS + SPLIT_POOL_TWICE] = "refused_pool_twice",
        [SPLIT_VERDICTS + SPLIT_POOL_OVERLAP] = "refused_pool_overlap",
        [SPLIT_VERDICTS + SPLIT_POOL_KIND] = "refused_pool_kind",
        [SPLIT_VERDICTS + SPLIT_NO_POOL] = "refused_no_pool",
        [SPLIT_VERDICTS + SPLIT_NO_ELEMENT] = "refused_no_element",
        [SPLIT_VERDICTS + SPLIT_NOT_OFFERED] = "refused_not_offered",
        [SPLIT_VERDICTS + SPLIT_BAD_SIZE] = "refused_size",
        [SPLIT_VERDICTS + SPLIT_NOT_USED] = "refused_not_used",
        [SPLIT_VERDICTS + SPLIT_BAD_REPLY] = "refused_reply",
        [SPLIT_VERDICTS + SPLIT_TOO_MANY] = "refused_too_many",
        [SPLIT_VERDICTS + SPLIT_BAD_IMMEDIATE] = "refused_immediate",
        [SPLIT_VERDICTS + SPLIT_CHANNEL_ERROR] = "channel_errors",
};

const char *split_verdict_text(enum split_verdict verdict)
{
	static const char *const texts[SPLIT_VERDICT_COUNT] = {
	        [SPLIT_OK] = "nothing was wrong",
	        [SPLIT_BAD_MESSAGE] = "a malformed message, or one of another version",
	        [SPLIT_BAD_CHANNEL] = "a message that does not belong on its channel",
	        [SPLIT_POOL_LIMIT] = "more pools or elements than there may be",
	        [SPLIT_POOL_TWICE] = "a pool whose index is in use",
	        [SPLIT_POOL_OVERLAP] = "pools that share memory",
	        [SPLIT_POOL_KIND] = "a kind of pool that was not agreed on",
	        [SPLIT_NO_POOL] = "a pool that does not exist",
	        [SPLIT_NO_ELEMENT] = "an element that does not exist",
	        [SPLIT_NOT_OFFERED] = "an element that was not offered, or was indicated twice",
	        [SPLIT_BAD_SIZE] = "a size of zero, or above that of the element",
	        [SPLIT_NOT_USED] = "an update of an element that was not used",
	        [SPLIT_BAD_REPLY] = "a reply to nothing",
	        [SPLIT_TOO_MANY] = "too many requests at a time",
	        [SPLIT_BAD_IMMEDIATE] = "immediate data that makes no sense",
	        [SPLIT_CHANNEL_ERROR] = "the channel failed",
	};
	return verdict < SPLIT_VERDICT_COUNT ? texts[verdict] : "?";
}

static enum split_way split_way(const struct split_config *config, bool to_unit, bool owned)
{
	if (config->mode == SPLIT_SEND)
		return WAY_SEND;
	if (config->model == SPLIT_PUSH_PULL && !to_unit)
		return WAY_SHOW;
	if (!owned)
		return WAY_SEND;
	return config->model == SPLIT_PULL_PULL ? WAY_ASK : WAY_WRITE;
}

enum split_way split_way_out(const struct split *split)
{
	const struct split_config *config = &split->config;
	return split_way(config, config->role == SPLIT_HOST, config->peer_owns_pools);
}

enum split_way split_way_in(const struct split *split)
{
	const struct split_config *config = &split->config;
	return split_way(config, config->role == SPLIT_UNIT, config->own_pools);
}

void split_judge(struct split *split, enum split_verdict verdict)
{
	split->counters[SPLIT_VERDICTS]++;
	split->counters[SPLIT_VERDICTS + verdict]++;
	if (split->config.mode == SPLIT_SEND && verdict != SPLIT_CHANNEL_ERROR)
		return;
	if (split->state != SPLIT_FAILED)
		split->verdict = verdict;
	split->state = SPLIT_FAILED;
}

static uint32_t split_slot_bytes(const struct split_config *config)
{
	return (PUSH_SEND_BYTES + config->frame_bytes + 63u) & ~63u;
}

size_t split_memory_bytes(const struct split_config *config)
{
	bool to_unit = config->role == SPLIT_HOST;
	bool sends = split_way(config, to_unit, config->peer_owns_pools) == WAY_SEND;
	bool receives = split_way(config, !to_unit, config->own_pools) == WAY_SEND;
	if (config->mode >= SPLIT_MODE_COUNT || config->model >= SPLIT_MODEL_COUNT ||
	    config->slots == 0 || config->slots > SPLIT_MAX_SLOTS || config->frame_bytes == 0 ||
	    config->frame_bytes > SPLIT_MAX_ELEMENT_BYTES - 4096 ||
	    config->plan_count > SPLIT_MAX_PLANS || config->max_pools > SPLIT_MAX_POOLS ||
	    ((sends || receives) && config->frame_bytes > PUSH_MAX_DATA) ||
	    (config->one_channel && !(sends && receives && config->credits)))
		return 0;
	return SPLIT_MESSAGES * PUSH_MAX_BYTES + PUSH_SEND_BYTES +
	       (size_t)config->slots * split_slot_bytes(config);
}

bool split_init(struct split *split, const struct split_config *config,
                const struct split_channel *channel, void *binding, const struct split_user *user,
                void *user_context, uint8_t *memory, uint64_t now_ns)
{
	assert(split_memory_bytes(config) > 0);
	memset(split, 0, sizeof(*split));
	split->config = *config;
	split->channel = channel;
	split->binding = binding;
	split->user = user;
	split->user_context = user_context;
	split->memory = memory;
	split->now_ns = now_ns;
	split->slot_bytes = split_slot_bytes(config);
	split->slots_free = config->slots;
	split->slot_taken = SPLIT_MAX_SLOTS;
	credit_begin(split);
	if (own_begin(split))
		return true;
	own_withdraw_all(split);
	return false;
}

/* --- messages --- */

uint8_t *split_message_begin(struct split *split, uint32_t *buffer)
{
	for (uint32_t i = 0; i < SPLIT_MESSAGES; i++) {
		if (!split->message_busy[i]) {
			*buffer = i;
			return split->memory + (size_t)i * PUSH_MAX_BYTES;
		}
	}
	return NULL;
}

bool split_message_send(struct split *split, uint32_t buffer, size_t bytes, enum split_id what)
{
	assert(bytes > 0);
	struct split_op op = {.kind = SPLIT_OP_SEND,
	                      .channel = SPLIT_CONTROL,
	                      .local = split->memory + (size_t)buffer * PUSH_MAX_BYTES,
	                      .bytes = (uint32_t)bytes};
	if (!split->channel->post(split->binding, &op, split_id(what, buffer)))
		return false;
	split->message_busy[buffer] = 1;
	split->counters[SPLIT_TX_MESSAGES]++;
	split->counters[SPLIT_TX_MESSAGE_BYTES] += bytes;
	return true;
}

/* Does this message belong on this channel? Data has one of its own (SPLIT figures 6 and 7), if
 * there is one. */
static bool split_belongs(const struct split *split, enum split_channel_number channel,
                          enum push_function function)
{
	bool credits = function == PUSH_POOL_UPDATE || function == PUSH_POOL_GET;
	if (function == PUSH_SEND_DATA)
		return split_way_in(split) == WAY_SEND &&
		       (channel == SPLIT_CONTROL) == split->config.one_channel;
	if (channel == SPLIT_DATA)
		return false;
	return split->config.mode != SPLIT_SEND || function == PUSH_CFG_REQUEST ||
	       function == PUSH_CFG_REPLY || (credits && split->config.credits);
}

static bool split_data(struct split *split, const struct push_message *message, uint32_t receive)
{
	if (message->data_bytes == 0) {
		split_judge(split, SPLIT_BAD_SIZE);
		return false;
	}
	if (split->frames_tail - split->frames_head >= SPLIT_RECEIVES) {
		split_judge(split, SPLIT_TOO_MANY); /* the binding has as many receives */
		return false;
	}
	*frames_push(split) = (struct split_frame){.pool = SPLIT_MAX_POOLS,
	                                           .element = (uint16_t)receive,
	                                           .ready = true,
	                                           .bytes = message->data_bytes,
	                                           .number = (uint32_t)message->context,
	                                           .data = message->data};
	return true;
}

static void split_control(struct split *split, const struct push_message *message)
{
	switch (message->function) {
	case PUSH_POOL:
		theirs_offered(split, message);
		break;
	case PUSH_POOL_GET:
		if (split->config.credits && split_way_in(split) == WAY_SEND)
			credit_asked(split, message->context);
		else
			own_get(split, message->packet_bytes, message->packets);
		break;
	case PUSH_POOL_UPDATE:
		for (uint32_t i = 0; i < message->count && split->state != SPLIT_FAILED; i++) {
			struct push_run run = push_get_run(message, i);
			if (run.pool == PUSH_RECEIVES && split->config.credits &&
			    split_way_out(split) == WAY_SEND)
				credit_update(split, &run);
			else if ((run.pool & PUSH_YOURS) != 0)
				own_update(split, &run);
			else
				theirs_update(split, &run);
		}
		break;
	case PUSH_FLUSH_REQUEST:
		theirs_flush(split, message);
		break;
	case PUSH_FLUSH_REPLY:
		if (split->flush_sent && split->flush_context == message->context)
			own_flushed(split);
		else
			split_judge(split, SPLIT_BAD_REPLY);
		break;
	case PUSH_INDICATE:
		if (split_way_in(split) == WAY_SHOW)
			theirs_told(split, &message->indication);
		else
			own_indicated(split, &message->indication);
		break;
	case PUSH_CFG_REQUEST:
		config_request(split, message);
		break;
	case PUSH_CFG_REPLY:
		config_reply(split, message);
		break;
	default:
		split_judge(split, SPLIT_BAD_CHANNEL);
	}
}

bool split_received(struct split *split, enum split_channel_number channel, const uint8_t *bytes,
                    size_t length, uint32_t receive)
{
	struct push_message message;
	if (split->state == SPLIT_FAILED)
		return false;
	if (push_decode(&message, bytes, length) != PUSH_OK) {
		split_judge(split, SPLIT_BAD_MESSAGE);
		return false;
	}
	if (!split_belongs(split, channel, message.function)) {
		split_judge(split, SPLIT_BAD_CHANNEL);
		return false;
	}
	if (message.function == PUSH_SEND_DATA)
		return split_data(split, &message, receive);
	split->counters[SPLIT_RX_MESSAGES]++;
	split->counters[SPLIT_RX_MESSAGE_BYTES] += length;
	split_control(split, &message);
	return false;
}

void split_indicated(struct split *split, uint32_t immediate)
{
	if (split->state == SPLIT_FAILED)
		return;
	enum split_way way = split_way_in(split);
	if (way != WAY_WRITE && way != WAY_ASK)
		split_judge(split, SPLIT_BAD_IMMEDIATE);
	else
		own_immediate(split, immediate);
}

void split_done(struct split *split, uint64_t id, bool good)
{
	enum split_id what = (enum split_id)(id >> 32);
	uint32_t which = (uint32_t)id;
	if (!good)
		split_judge(split, SPLIT_CHANNEL_ERROR);
	if (split->state == SPLIT_FAILED)
		return;
	if (what == ID_MESSAGE || what == ID_INDICATION) {
		split->message_busy[which] = 0;
		if (what == ID_INDICATION)
			frames_indication_done(split);
	} else if (what == ID_READ) {
		frames_read_done(split, which);
	} else {
		frames_done(split, what, which);
	}
}

/* --- time --- */

/* The peer has not replied in time: its writes are refused from now on, by the table that checks
 * every access. */
static void split_flush_time(struct split *split)
{
	if (!split->flush_sent || split->now_ns < split->flush_deadline_ns)
		return;
	for (uint32_t i = 0; i < split->mine.open_count; i++) {
		const struct split_pool *pool = &split->mine.pools[split->mine.open[i]];
		split->counters[SPLIT_FLUSH_TIMEOUTS] +=
		        pool->state == SPLIT_POOL_FLUSHING && pool->sent;
	}
	own_flushed(split);
}

void split_pump(struct split *split, uint64_t now_ns)
{
	split->now_ns = now_ns;
	if (split->state == SPLIT_FAILED)
		return;
	split_deliver(split);
	split_flush_time(split);
	if (split_way_in(split) == WAY_SHOW)
		theirs_read(split);
	own_pump(split);
	credit_pump(split);
	frames_pump(split);
	theirs_pump(split);
	config_pump(split);
	own_end_flushed(split);
	if (split->state == SPLIT_CLOSING && split->mine.open_count == 0)
		split->state = SPLIT_CLOSED;
}

uint64_t split_deadline(const struct split *split)
{
	uint64_t first = config_deadline(split), probe = credit_deadline(split);
	first = probe < first ? probe : first;
	return split->flush_sent && split->flush_deadline_ns < first ? split->flush_deadline_ns
	                                                             : first;
}

void split_close(struct split *split)
{
	if (split->state != SPLIT_OPEN)
		return;
	split->state = SPLIT_CLOSING;
	for (uint32_t i = 0; i < split->mine.open_count; i++)
		split_flush(split, split->mine.pools[split->mine.open[i]].at.index);
}

void split_end(struct split *split)
{
	own_withdraw_all(split);
	if (split->state != SPLIT_FAILED)
		split->state = SPLIT_CLOSED;
}
