/* iWARP connections as channels. The unit waits on a TCP port, which its answer names (setup.c). A
 * host connects once per channel, and says in the private data of MPA which channel of which
 * connection this is:
 *
 *    0  "HDPU"
 *    4  version (2), 1
 *    6  kind (1), SETUP_CHANNEL
 *    7  channel (1)
 *    8  the unit's number for the connection (4)
 *   12  the unit's first sequence numbers of both channels (4 each)
 *
 * iWARP needs no sequence numbers: here they show that this is the host that was answered. All
 * numbers are big-endian. */
#include <stdatomic.h>

#include "ulp/internal.h"
#include "wire/be.h"

#define CHANNEL_BYTES 20u
#define BACKLOG       (2 * (int)HDL_PUSH_MAX_LINKS)
#define STREAM_READS  16u /* the reads of one end at a time */
#define BOTH          3u  /* channels */

/* Called by the adapter's thread. */
static void streams_heard(void *context)
{
	struct hdl_push_port *port = context;
	atomic_store(&port->streams_ready, true);
	setup_ring(port);
}

static int streams_hear(struct hdl_push_port *port)
{
	int error = port->hears_streams ? 0 : hdl_conn_notify(port->adapter, streams_heard, port);
	port->hears_streams |= error == 0;
	return error;
}

/* The unit: one TCP port for all hosts, from when the first one asks. */
static int streams_listen(struct hdl_push_port *port)
{
	if (port->listener != NULL)
		return 0;
	port->tcp_port = 0;
	int error = hdl_listener_bind(port->adapter, NULL, &port->tcp_port, NULL, &port->listener);
	if (error == 0)
		error = hdl_listener_listen(port->listener, BACKLOG);
	if (error != 0 && port->listener != NULL) {
		hdl_listener_close(port->listener);
		port->listener = NULL;
	}
	return error;
}

int streams_connect(struct hdl_push *push)
{
	uint8_t hello[CHANNEL_BYTES] = {0};
	struct hdl_conn_param param = {.ird = STREAM_READS,
	                               .ord = STREAM_READS,
	                               .private_bytes = CHANNEL_BYTES,
	                               .private_data = hello};
	int error = streams_hear(push->port);
	if (error == 0 && push->role == SPLIT_UNIT) {
		error = streams_listen(push->port);
		push->tcp_port = push->port->tcp_port;
		return error;
	}
	be32_store(hello, SETUP_MAGIC);
	be16_store(hello + 4, SETUP_VERSION);
	hello[6] = SETUP_CHANNEL;
	be32_store(hello + 8, push->peer_id);
	for (unsigned i = 0; i < 2; i++)
		be32_store(hello + 12 + 4 * i, push->peer_psn[i]);
	for (uint8_t i = 0; i < 2 && error == 0; i++) {
		hello[7] = i;
		error = hdl_conn_connect(push->qp[i], NULL, NULL, &push->gid, push->tcp_port,
		                         &param, push, &push->conn[i]);
	}
	return error;
}

/* The connection that asks to be channel *channel of which link? NULL: of none that waits for it.
 */
static struct hdl_push *streams_find(struct hdl_push_port *port, const struct hdl_conn_event *event,
                                     uint32_t *channel)
{
	const uint8_t *hello = event->private_data;
	if (event->private_bytes != CHANNEL_BYTES || be32_load(hello) != SETUP_MAGIC ||
	    be16_load(hello + 4) != SETUP_VERSION || hello[6] != SETUP_CHANNEL || hello[7] > 1)
		return NULL;
	*channel = hello[7];
	for (struct hdl_push *push = port->links; push != NULL; push = push->next)
		if (push->stream && push->role == SPLIT_UNIT && push->stage == STAGE_ANSWERED &&
		    push->id == be32_load(hello + 8) && push->conn[*channel] == NULL &&
		    push->psn[0] == be32_load(hello + 12) && push->psn[1] == be32_load(hello + 16))
			return push;
	return NULL;
}

static void streams_requested(struct hdl_push_port *port, const struct hdl_conn_event *event)
{
	struct hdl_conn_param param = {.ird = STREAM_READS, .ord = STREAM_READS};
	uint32_t channel;
	struct hdl_push *push = streams_find(port, event, &channel);
	/* At most what the host has offered. */
	param.ird = event->ird < param.ird ? event->ird : param.ird;
	param.ord = event->ord < param.ord ? event->ord : param.ord;
	if (push != NULL && hdl_conn_accept(event->conn, push->qp[channel], &param, push) == 0) {
		push->conn[channel] = event->conn;
		return;
	}
	hdl_conn_reject(event->conn, NULL, 0);
	hdl_conn_destroy(event->conn);
}

static void streams_event(struct hdl_push_port *port, const struct hdl_conn_event *event)
{
	struct hdl_push *push = event->context;
	if (event->type == HDL_CONN_REQUEST) {
		streams_requested(port, event);
		return;
	}
	if (event->type != HDL_CONN_ESTABLISHED) {
		push_link_over(push,
		               event->type == HDL_CONN_CLOSED
		                       ? "the other end has closed the connection, or has gone"
		                       : "the channels could not be connected");
		return;
	}
	push->joined |= event->conn == push->conn[0] ? 1u : 2u;
	if (push->joined == BOTH && (push->stage == STAGE_JOINING || push->stage == STAGE_ANSWERED))
		setup_joined(push);
}

int streams_run(struct hdl_push_port *port)
{
	struct hdl_conn_event event;
	int done = 0;
	if (!port->hears_streams || !atomic_exchange(&port->streams_ready, false))
		return 0;
	for (; hdl_conn_event_get(port->adapter, &event, 0) == 0; done++)
		streams_event(port, &event);
	return done;
}

void streams_end(struct hdl_push *push)
{
	for (unsigned i = 0; i < 2; i++)
		if (push->conn[i] != NULL)
			hdl_conn_destroy(push->conn[i]);
}

void streams_shut(struct hdl_push_port *port)
{
	if (port->hears_streams)
		hdl_conn_notify(port->adapter, NULL, NULL);
	if (port->listener != NULL)
		hdl_listener_close(port->listener);
}
