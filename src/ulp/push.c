/* Ports and connections of the split driver; see heddle/push.h. */
#include <heddle/push.h>

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/prng.h"
#include "ulp/internal.h"

int hdl_push_open(struct hdl_adapter *adapter, uint16_t service, const struct hdl_push_ops *ops,
                  void *context, int fds[HDL_PUSH_FDS], struct hdl_push_port **out)
{
	struct hdl_push_port *port = calloc(1, sizeof(*port));
	*out = port;
	if (port == NULL)
		return -HDL_ENOMEM;
	port->adapter = adapter;
	port->ops = ops;
	port->context = context;
	pthread_mutex_init(&port->lock, NULL);
	port->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int error = port->bell < 0 ? -HDL_EIO : hdl_adapter_query(adapter, &port->limits);
	if (error == 0)
		error = hdl_pd_create(adapter, &port->pd);
	if (error == 0)
		error = hdl_channel_create(adapter, &port->channel);
	if (error == 0)
		error = hdl_cm_receive(adapter, setup_heard, port);
	if (error == 0 && service != 0) {
		port->service = service;
		error = hdl_cm_bind(adapter, HDL_PUSH_SPACE, NULL, &port->service, 0);
		if (error != 0)
			port->service = 0;
	}
	if (error != 0) {
		hdl_push_shut(port);
		return error;
	}
	fds[0] = hdl_channel_fd(port->channel);
	fds[1] = port->bell;
	return 0;
}

struct hdl_push *push_link_new(struct hdl_push_port *port, enum split_role role, const char *name,
                               const struct hdl_push_terms *terms)
{
	struct hdl_push *push =
	        port->link_count < HDL_PUSH_MAX_LINKS ? calloc(1, sizeof(*push)) : NULL;
	if (push == NULL)
		return NULL;
	push->port = port;
	push->role = role;
	push->terms = *terms;
	push->deadline_ns = UINT64_MAX;
	push->credits = true; /* as far as we know */
	push->mtu = port->limits.mtu != 0 ? port->limits.mtu : 4096;
	snprintf(push->name, sizeof(push->name), "%.*s", (int)HDL_PUSH_NAME_BYTES - 1, name);
	setup_clean(push->name);
	/* Datagrams find the process by the high bits of the number. */
	do
		push->id = (uint32_t)port->limits.slot << CM_ID_BITS |
		           ((uint32_t)prng_secret() & ((1u << CM_ID_BITS) - 1));
	while (push->id == 0);
	push->transaction = prng_secret();
	for (unsigned i = 0; i < 2; i++)
		push->psn[i] = (uint32_t)prng_secret() & 0xffffffu;
	push->next = port->links;
	port->links = push;
	port->link_count++;
	return push;
}

void push_link_over(struct hdl_push *push, const char *why)
{
	if (push->stage == STAGE_OVER)
		return;
	snprintf(push->why, sizeof(push->why), "%s", why);
	push->stage = STAGE_OVER;
}

/* Free a connection that is over. */
static void push_link_free(struct hdl_push_port *port, struct hdl_push **at, bool tell)
{
	struct hdl_push *push = *at;
	*at = push->next;
	port->link_count--;
	setup_bye(push);
	if (tell)
		port->ops->closed(port->context, push, push->why);
	channels_free(push);
	free(push);
}

void hdl_push_shut(struct hdl_push_port *port)
{
	while (port->links != NULL)
		push_link_free(port, &port->links, false);
	if (port->service != 0)
		hdl_cm_unbind(port->adapter, HDL_PUSH_SPACE, NULL, port->service, 0);
	streams_shut(port);
	if (port->channel != NULL)
		hdl_channel_destroy(port->channel);
	if (port->pd != NULL)
		hdl_pd_destroy(port->pd);
	hdl_cm_receive(port->adapter, NULL, NULL);
}

void hdl_push_free(struct hdl_push_port *port)
{
	if (port->bell >= 0)
		close(port->bell);
	free(port);
}

int hdl_push_connect(struct hdl_push_port *port, const struct hdl_gid *gid, uint16_t service,
                     const char *name, const struct hdl_push_terms *terms, struct hdl_push **out)
{
	struct hdl_push *push = push_link_new(port, SPLIT_HOST, name, terms);
	if (push == NULL)
		return -HDL_ENOMEM;
	push->gid = *gid;
	push->service = service;
	push->cells = port->limits.cells;
	int error = channels_make(push);
	if (error == 0)
		error = setup_call(push);
	if (error != 0) {
		assert(port->links == push);
		push_link_free(port, &port->links, false);
		return error;
	}
	*out = push;
	return 0;
}

static bool push_link_runs(const struct hdl_push *push)
{
	return push->stage == STAGE_OPEN || push->stage == STAGE_CLOSING;
}

/* One turn of one connection. */
static int push_link_run(struct hdl_push *push)
{
	uint64_t now = clock_now_ns();
	int done = 0;
	if (now >= push->deadline_ns)
		push_link_over(push, "the other end does not answer");
	setup_time(push, now);
	if (!push_link_runs(push))
		return 0;
	done = channels_poll(push);
	if (push->stage == STAGE_OVER)
		return done;
	split_pump(push->split, now);
	channels_fence(push);
	if (push->split->state == SPLIT_FAILED)
		push_link_over(push, split_verdict_text(push->split->verdict));
	else if (push->split->state == SPLIT_CLOSED)
		push_link_over(push, "closed");
	else if (push->broken)
		push_link_over(push, "the connection has failed");
	return done;
}

int hdl_push_run(struct hdl_push_port *port)
{
	struct hdl_cq *cq;
	void *context;
	int done = setup_run(port) + streams_run(port);
	/* An event of a queue that is not armed cannot have come. */
	uint32_t armed = 0;
	for (struct hdl_push *push = port->links; push != NULL; push = push->next) {
		armed += push->armed;
		/* What the caller has left goes first: it takes acknowledgements along, which
		 * would otherwise leave by themselves in the calls below. */
		if (push_link_runs(push))
			split_pump(push->split, push->split->now_ns);
	}
	for (; armed > 0 && hdl_channel_get(port->channel, &cq, &context, 0) == 0; armed--) {
		hdl_cq_ack(cq, 1);
		((struct hdl_push *)context)->armed = false;
	}
	for (struct hdl_push *push = port->links; push != NULL; push = push->next)
		done += push_link_run(push);
	/* Only who is about to sleep needs a wake-up. */
	for (struct hdl_push *push = port->links; push != NULL && done == 0; push = push->next) {
		if (push->stage == STAGE_OVER || push->armed || push->cq == NULL)
			continue;
		push->armed = hdl_cq_arm(push->cq, false) == 0;
	}
	for (struct hdl_push **at = &port->links; *at != NULL;) {
		if ((*at)->stage == STAGE_OVER)
			push_link_free(port, at, true);
		else
			at = &(*at)->next;
	}
	return done;
}

uint64_t hdl_push_deadline(const struct hdl_push_port *port)
{
	uint64_t first = UINT64_MAX;
	for (const struct hdl_push *push = port->links; push != NULL; push = push->next) {
		uint64_t at = push->deadline_ns;
		bool repeats = push->wire &&
		               (push->stage == STAGE_CALLING || push->stage == STAGE_ANSWERED);
		at = repeats && push->repeat_ns < at ? push->repeat_ns : at;
		if (push->stage == STAGE_OVER)
			return 0;
		if (push_link_runs(push) && split_deadline(push->split) < at)
			at = split_deadline(push->split);
		first = at < first ? at : first;
	}
	return first;
}

uint8_t *hdl_push_take(struct hdl_push *push)
{
	return push->stage == STAGE_OPEN ? split_take(push->split) : NULL;
}

void hdl_push_untake(struct hdl_push *push)
{
	split_untake(push->split);
}

void hdl_push_send(struct hdl_push *push, uint32_t bytes)
{
	split_send(push->split, bytes);
}

void hdl_push_deliver(struct hdl_push *push)
{
	if (push->stage == STAGE_OPEN)
		split_deliver(push->split);
}

bool hdl_push_configure(struct hdl_push *push, const struct hdl_push_cfg *request, uint64_t token)
{
	return push->stage == STAGE_OPEN &&
	       split_configure(push->split, (const struct push_cfg *)request, token);
}

void hdl_push_close(struct hdl_push *push)
{
	if (push->stage == STAGE_OPEN) {
		push->stage = STAGE_CLOSING;
		push->deadline_ns = clock_now_ns() + 2 * SPLIT_FLUSH_NS;
		split_close(push->split);
	} else if (push->stage != STAGE_CLOSING && push->stage != STAGE_OVER) {
		push_link_over(push, "closed");
	}
}

uint32_t hdl_push_close_all(struct hdl_push_port *port)
{
	for (struct hdl_push *push = port->links; push != NULL; push = push->next)
		hdl_push_close(push);
	return port->link_count;
}

void hdl_push_break(struct hdl_push *push, const char *why)
{
	push_link_over(push, why);
}

const struct hdl_push_terms *hdl_push_agreed(const struct hdl_push *push)
{
	return &push->terms;
}

uint32_t hdl_push_way(const struct hdl_push *push)
{
	const struct hdl_limits *limits = &push->port->limits;
	if (push->stream)
		return HDL_PUSH_IWARP;
	if (!push->wire && limits->wire != HDL_WIRE_ALL)
		return HDL_PUSH_LANES;
	return push->cells ? HDL_PUSH_CELLS : HDL_PUSH_ROCEV2;
}

const char *hdl_push_name(const struct hdl_push *push)
{
	return push->name;
}

void **hdl_push_user(struct hdl_push *push)
{
	return &push->user;
}

size_t hdl_push_counters(const struct hdl_push *push, const char *const **names,
                         const uint64_t **values)
{
	bool began = push->split != NULL && push->split->channel != NULL;
	*names = split_counter_names;
	*values = began ? push->split->counters : NULL;
	return began ? SPLIT_COUNTER_COUNT : 0;
}
