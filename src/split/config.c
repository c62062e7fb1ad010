/* Configuration: requests of this side, one at a time, and replies to those of the peer. On
 * unacknowledged channels either may be lost, so a request is repeated; each can be executed
 * twice. */
#include <assert.h>
#include <string.h>

#include "split/internal.h"
#include "wire/be.h"

static bool config_waits(uint32_t head, uint32_t tail)
{
	return head != tail;
}

static bool config_put(struct split_request *request, const struct push_cfg *cfg)
{
	request->bytes = (uint32_t)push_cfg_put(cfg, request->data, sizeof(request->data));
	return request->bytes > 0;
}

bool split_configure(struct split *split, const struct push_cfg *cfg, uint64_t token)
{
	if (split->request_tail - split->request_head == SPLIT_MAX_REQUESTS ||
	    split->state == SPLIT_FAILED)
		return false;
	struct split_request *request = &split->requests[split->request_tail % SPLIT_MAX_REQUESTS];
	*request = (struct split_request){.token = token};
	if (!config_put(request, cfg))
		return false;
	split->request_tail++;
	return true;
}

void config_request(struct split *split, const struct push_message *message)
{
	struct push_cfg cfg;
	if (split->reply_tail - split->reply_head == SPLIT_MAX_REQUESTS) {
		split_judge(split, SPLIT_TOO_MANY);
		return;
	}
	enum push_cfg_status status = push_cfg_decode(&cfg, message->data, message->data_bytes);
	/* 0 gets, without a value; 1 sets one. */
	if (status == PUSH_CFG_OK && (cfg.code > 1 || (cfg.code == 1) != cfg.has_value))
		status = PUSH_CFG_MALFORMED;
	struct push_cfg answer = {.item = cfg.item, .code = (uint16_t)status};
	if (status == PUSH_CFG_OK)
		split->user->configure(split->user_context, &cfg, &answer);
	/* A value that the user above does not have. */
	if (cfg.code == 0 && answer.code == PUSH_CFG_OK && !answer.has_value)
		answer.code = PUSH_CFG_UNKNOWN;
	struct split_request *reply = &split->replies[split->reply_tail % SPLIT_MAX_REQUESTS];
	*reply = (struct split_request){.context = message->context, .is_reply = true};
	bool fits = config_put(reply, &answer);
	assert(fits); /* the user's own answer */
	split->reply_tail++;
}

/* The request at the head has its answer, or gets none. */
static void config_finish(struct split *split, const struct push_cfg *answer)
{
	uint64_t token = split->requests[split->request_head % SPLIT_MAX_REQUESTS].token;
	split->request_head++;
	split->user->configured(split->user_context, token, answer);
}

void config_reply(struct split *split, const struct push_message *message)
{
	const struct split_request *request =
	        &split->requests[split->request_head % SPLIT_MAX_REQUESTS];
	struct push_cfg answer;
	if (!config_waits(split->request_head, split->request_tail) || request->tries == 0 ||
	    request->context != message->context) {
		/* In send mode, the second answer to a request that was repeated. */
		if (split->config.mode != SPLIT_SEND)
			split_judge(split, SPLIT_BAD_REPLY);
		return;
	}
	enum push_cfg_status status = push_cfg_decode(&answer, message->data, message->data_bytes);
	if (status == PUSH_CFG_MALFORMED) {
		split_judge(split, SPLIT_BAD_MESSAGE);
		return;
	}
	if (answer.item != be16_load(request->data)) {
		split_judge(split, SPLIT_BAD_REPLY);
		return;
	}
	/* An item that the peer does not know is repeated without a value; so is one that we do not
	 * know ourselves, whatever the peer says of it. A value that is missing is no success. */
	if (status == PUSH_CFG_UNKNOWN)
		answer.code = PUSH_CFG_UNKNOWN;
	else if (be16_load(request->data + 2) == 0 && answer.code == PUSH_CFG_OK &&
	         !answer.has_value)
		answer.code = PUSH_CFG_MALFORMED;
	config_finish(split, &answer);
}

static bool config_say(struct split *split, struct split_request *request)
{
	uint32_t buffer;
	struct push_message message = {.function = request->is_reply ? PUSH_CFG_REPLY
	                                                             : PUSH_CFG_REQUEST,
	                               .context = request->context,
	                               .data = request->data,
	                               .data_bytes = request->bytes};
	uint8_t *out = split_message_begin(split, &buffer);
	return out != NULL &&
	       split_message_send(split, buffer, push_put(&message, out, PUSH_MAX_BYTES),
	                          ID_MESSAGE);
}

void config_pump(struct split *split)
{
	while (config_waits(split->reply_head, split->reply_tail)) {
		if (!config_say(split, &split->replies[split->reply_head % SPLIT_MAX_REQUESTS]))
			return;
		split->reply_head++;
	}
	while (config_waits(split->request_head, split->request_tail)) {
		struct split_request *request =
		        &split->requests[split->request_head % SPLIT_MAX_REQUESTS];
		bool again = split->config.mode == SPLIT_SEND;
		if (request->tries > 0 && split->now_ns < request->deadline_ns)
			return;
		if (request->tries > (again ? SPLIT_MAX_TRIES - 1 : 0)) {
			config_finish(split, NULL);
			continue;
		}
		if (request->tries == 0)
			request->context = split->next_context++;
		if (!config_say(split, request))
			return;
		request->tries++;
		request->deadline_ns = split->now_ns + (again ? SPLIT_RETRY_NS : SPLIT_REPLY_NS);
	}
}

uint64_t config_deadline(const struct split *split)
{
	const struct split_request *request =
	        &split->requests[split->request_head % SPLIT_MAX_REQUESTS];
	bool waits = config_waits(split->request_head, split->request_tail);
	return waits && request->tries > 0 ? request->deadline_ns : UINT64_MAX;
}
