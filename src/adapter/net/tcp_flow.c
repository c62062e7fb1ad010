/* Bytes between a TCP socket and a transport; see tcp_flow.h. */
#include "adapter/net/tcp_flow.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "port/tcp.h"

_Static_assert(STREAM_MAX_RUNS + 1 <= TCP_MAX_PARTS, "all runs and the staging area");

void tcp_flow_init(struct tcp_flow *flow, int sock, const struct stream_ops *ops, void *context)
{
	*flow = (struct tcp_flow){.sock = sock, .ops = ops, .context = context};
}

void tcp_flow_become(struct tcp_flow *flow, const struct stream_ops *ops, void *context,
                     size_t (*feed)(void *context, const uint8_t *bytes, size_t length, bool *open),
                     bool (*is_long)(const void *context))
{
	flow->ops = ops;
	flow->context = context;
	flow->feed = feed;
	flow->is_long = is_long;
}

static size_t flow_feed(struct tcp_flow *flow, const uint8_t *bytes, size_t length, bool *open)
{
	if (flow->feed != NULL)
		return flow->feed(flow->context, bytes, length, open);
	return stream_feed(flow->ops, flow->context, bytes, length, open);
}

void tcp_flow_end(struct tcp_flow *flow)
{
	free(flow->kept);
	flow->kept = NULL;
	flow->kept_bytes = 0;
}

bool tcp_flow_put_back(struct tcp_flow *flow, const uint8_t *data, size_t bytes)
{
	if (bytes == 0)
		return true;
	assert(flow->kept_bytes == 0 && bytes <= TCP_STAGING_BYTES);
	uint8_t *kept = realloc(flow->kept, bytes);
	if (kept == NULL)
		return false;
	memcpy(kept, data, bytes);
	flow->kept = kept;
	flow->kept_from = 0;
	flow->kept_bytes = bytes;
	return true;
}

/* Pass on what was kept. True: nothing of it is left. */
static bool flow_pass_kept(struct tcp_flow *flow, size_t *bytes, bool *open)
{
	size_t fed = flow_feed(flow, flow->kept + flow->kept_from, flow->kept_bytes, open);
	flow->kept_from += fed;
	flow->kept_bytes -= fed;
	*bytes += fed;
	if (flow->kept_bytes > 0)
		return false;
	tcp_flow_end(flow); /* connections that were held once do not pay for it for ever */
	return *open;
}

static enum tcp_flow_result flow_failed(struct tcp_flow *flow, ssize_t error)
{
	flow->error = (int)-error;
	return error == -EFAULT ? TCP_FLOW_FAULT : TCP_FLOW_BROKEN;
}

/* @got bytes are in the @wanted bytes of the transport, and what did not fit in @staging. */
static enum tcp_flow_result flow_pass(struct tcp_flow *flow, size_t got, size_t wanted,
                                      const uint8_t *staging, size_t *bytes)
{
	size_t direct = got < wanted ? got : wanted, behind = got - direct;
	bool open = flow->ops->arrived(flow->context, direct);
	*bytes += direct;
	if (open && behind > 0) {
		size_t fed = flow_feed(flow, staging, behind, &open);
		flow->staged_bytes += fed;
		*bytes += fed;
		if (open && fed < behind) {
			if (tcp_flow_put_back(flow, staging + fed, behind - fed))
				return TCP_FLOW_HELD;
			return flow_failed(flow, -ENOMEM);
		}
	}
	return open ? TCP_FLOW_MORE : TCP_FLOW_REFUSED;
}

enum tcp_flow_result tcp_flow_in(struct tcp_flow *flow, uint8_t *staging, size_t *bytes)
{
	struct stream_run runs[STREAM_MAX_RUNS];
	struct iovec parts[STREAM_MAX_RUNS + 1];
	bool open = true;
	*bytes = 0;
	if (flow->kept_bytes > 0 && !flow_pass_kept(flow, bytes, &open))
		return open ? TCP_FLOW_HELD : TCP_FLOW_REFUSED;
	for (unsigned calls = 0; calls < TCP_TURN_CALLS && *bytes < TCP_TURN_BYTES; calls++) {
		size_t count = flow->ops->want(flow->context, runs, STREAM_MAX_RUNS), wanted = 0;
		if (count == 0)
			return TCP_FLOW_HELD;
		for (size_t i = 0; i < count; i++) {
			parts[i] = (struct iovec){runs[i].bytes, runs[i].length};
			wanted += runs[i].length;
		}
		bool is_long = wanted >= TCP_LONG_BYTES ||
		               (flow->is_long != NULL && flow->is_long(flow->context));
		size_t behind = is_long ? TCP_BEHIND_BYTES : TCP_STAGING_BYTES;
		parts[count] = (struct iovec){staging, behind};
		ssize_t got = tcp_receive(flow->sock, parts, (unsigned)count + 1);
		flow->receives++;
		if (got == 0)
			return TCP_FLOW_CLOSED;
		if (got == -EAGAIN)
			return TCP_FLOW_IDLE;
		if (got < 0)
			return flow_failed(flow, got);
		if (flow->watch != NULL)
			flow->watch(flow->watch_context, parts, (size_t)got, true);
		enum tcp_flow_result result = flow_pass(flow, (size_t)got, wanted, staging, bytes);
		if (result != TCP_FLOW_MORE)
			return result;
		/* The socket had less than there was room for: it is empty. */
		if ((size_t)got < wanted + behind)
			return TCP_FLOW_IDLE;
	}
	return TCP_FLOW_MORE;
}

enum tcp_flow_result tcp_flow_out(struct tcp_flow *flow, size_t *bytes)
{
	struct stream_run runs[STREAM_MAX_RUNS];
	struct iovec parts[STREAM_MAX_RUNS];
	bool more = false; /* the last call said that another would follow */
	*bytes = 0;
	for (unsigned calls = 0; calls < TCP_TURN_CALLS && *bytes < TCP_TURN_BYTES; calls++) {
		size_t count = flow->ops->offer(flow->context, runs, STREAM_MAX_RUNS), all = 0;
		if (count == 0) {
			if (more)
				tcp_push(flow->sock);
			return TCP_FLOW_IDLE;
		}
		for (size_t i = 0; i < count; i++) {
			parts[i] = (struct iovec){runs[i].bytes, runs[i].length};
			all += runs[i].length;
		}
		/* A full list is probably not all: the last segment may wait for the next call. */
		more = count == STREAM_MAX_RUNS;
		ssize_t sent = tcp_send(flow->sock, parts, (unsigned)count,
		                        more            ? TCP_MORE
		                        : flow->records ? TCP_RECORD
		                                        : TCP_AS_IT_IS);
		flow->sends++;
		if (sent == -EAGAIN)
			return TCP_FLOW_HELD;
		if (sent < 0)
			return flow_failed(flow, sent);
		if (flow->watch != NULL)
			flow->watch(flow->watch_context, parts, (size_t)sent, false);
		flow->ops->taken(flow->context, (size_t)sent);
		*bytes += (size_t)sent;
		if ((size_t)sent < all)
			return TCP_FLOW_HELD;
	}
	return TCP_FLOW_MORE;
}
