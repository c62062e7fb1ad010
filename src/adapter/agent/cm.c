/* Connection management messages and the ports of the node: what the node agent does for programs
 * that connect queue pairs. */
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/net/sctp_port.h"
#include "base/clock.h"
#include "base/log.h"
#include "port/unixsock.h"

/* An agent that is killed at the wrong moment loses the messages it has received. So a process that
 * ends waits this long until its disconnect notices have left the machine. That takes no longer
 * than scheduling the agent, or starting the next one. */
#define SENT_WAIT_NS 10000000000u
/* It then waits this long until they are answered, which a living peer does immediately: the agent
 * that receives the notices may serve the peer as well. */
#define ANSWERED_WAIT_NS 1000000000u

#define FIRST_TO_BEGIN \
	101 /* the lowest priority that is not the compiler's: such ones end last \
	                    */

_Static_assert(HDL_CM_BYTES == AGENT_CM_BYTES, "a message of the API fits one of the agent");

static bool cm_is_connected(const struct hdl_adapter *adapter)
{
	return adapter != NULL && adapter->agent.on_node && adapter->drive.has_thread;
}

int hdl_cm_receive(struct hdl_adapter *adapter,
                   void (*handler)(void *context, const struct hdl_cm_msg *msg), void *context)
{
	if (!cm_is_connected(adapter))
		return -HDL_ENOTSUP;
	pthread_mutex_lock(&adapter->agent.handler_lock);
	adapter->agent.cm_handler = handler;
	adapter->agent.cm_context = context;
	pthread_mutex_unlock(&adapter->agent.handler_lock);
	return 0;
}

_Static_assert((int)HDL_CM_IPV4 == (int)AGENT_CM_IPV4 && (int)HDL_CM_IPV6 == (int)AGENT_CM_IPV6 &&
                       (int)HDL_CM_ONLY == (int)AGENT_CM_ONLY &&
                       (int)HDL_CM_REUSE == (int)AGENT_CM_REUSE &&
                       (int)HDL_CM_DEAF == (int)AGENT_CM_DEAF,
               "the options are the same");

static void question(struct agent_msg *msg, uint32_t kind, uint16_t space,
                     const struct hdl_gid *gid, uint16_t port, uint32_t options)
{
	*msg = (struct agent_msg){.version = AGENT_VERSION,
	                          .kind = kind,
	                          .u.cm = {.space = space, .port = port, .options = options}};
	if (gid != NULL)
		memcpy(msg->u.cm.gid, gid->raw, sizeof(msg->u.cm.gid));
}

int hdl_node_find(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint16_t *lid)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || gid == NULL || lid == NULL)
		return -HDL_EINVAL;
	if (!cm_is_connected(adapter))
		return -HDL_ENOTSUP;
	struct agent_msg msg = {.kind = AGENT_FIND};
	memcpy(msg.u.introduce.gid, gid->raw, sizeof(msg.u.introduce.gid));
	int result = agent_ask(adapter, &msg, &msg.u.introduce.token);
	if (result == 0)
		*lid = (uint16_t)msg.u.known.lid;
	return result == 0 ? 0 : -HDL_EHOSTUNREACH;
}

int hdl_cm_bind(struct hdl_adapter *adapter, uint16_t space, const struct hdl_gid *gid,
                uint16_t *port, uint32_t options)
{
	if (!cm_is_connected(adapter))
		return -HDL_ENOTSUP;
	struct held_port *held = calloc(1, sizeof(*held));
	if (held == NULL)
		return -HDL_ENOMEM;
	struct agent_msg msg;
	question(&msg, AGENT_CM_BIND, space, gid, *port, options);
	int result = agent_ask(adapter, &msg, &msg.u.cm.token);
	if (result != 0) {
		free(held);
		return result == -HDL_EADDRINUSE || result == -HDL_ENOMEM ? result
		                                                          : -HDL_EHOSTUNREACH;
	}
	held->space = space;
	held->options = options;
	held->port = *port = msg.u.cm.port;
	memcpy(held->gid.raw, msg.u.cm.gid, sizeof(held->gid.raw));
	pthread_mutex_lock(&adapter->agent.lock);
	held->next = adapter->agent.ports;
	adapter->agent.ports = held;
	pthread_mutex_unlock(&adapter->agent.lock);
	log_info("bound to port %u", msg.u.cm.port);
	return 0;
}

/* The port that @msg is about, or the end of the list if we do not hold it. With the lock. */
static struct held_port **cm_find_port(struct hdl_adapter *adapter, const struct agent_msg *msg)
{
	struct held_port **at = &adapter->agent.ports;
	while (*at != NULL &&
	       ((*at)->space != msg->u.cm.space || (*at)->port != msg->u.cm.port ||
	        (((*at)->options ^ msg->u.cm.options) & ~(uint32_t)HDL_CM_DEAF) != 0 ||
	        memcmp((*at)->gid.raw, msg->u.cm.gid, sizeof(msg->u.cm.gid)) != 0))
		at = &(*at)->next;
	return at;
}

int hdl_cm_listen(struct hdl_adapter *adapter, uint16_t space, const struct hdl_gid *gid,
                  uint16_t port, uint32_t options)
{
	struct agent_msg msg;
	if (!cm_is_connected(adapter))
		return -HDL_EINVAL;
	question(&msg, AGENT_CM_LISTEN, space, gid, port, options);
	pthread_mutex_lock(&adapter->agent.lock);
	struct held_port *found = *cm_find_port(adapter, &msg);
	if (found != NULL)
		found->options &= ~(uint32_t)HDL_CM_DEAF; /* for the next agent */
	pthread_mutex_unlock(&adapter->agent.lock);
	if (found == NULL)
		return -HDL_EINVAL;
	agent_tell(adapter, &msg);
	log_info("listening on port %u", port);
	return 0;
}

int hdl_cm_unbind(struct hdl_adapter *adapter, uint16_t space, const struct hdl_gid *gid,
                  uint16_t port, uint32_t options)
{
	struct agent_msg msg;
	if (!cm_is_connected(adapter))
		return -HDL_EINVAL;
	question(&msg, AGENT_CM_UNBIND, space, gid, port, options);
	pthread_mutex_lock(&adapter->agent.lock);
	struct held_port **at = cm_find_port(adapter, &msg), *found = *at;
	if (found != NULL)
		*at = found->next;
	pthread_mutex_unlock(&adapter->agent.lock);
	if (found == NULL)
		return -HDL_EINVAL;
	free(found);
	agent_tell(adapter, &msg); /* without an agent there is nothing to release */
	return 0;
}

/* --- disconnect notices --- */

/* Send @msg, and keep it: only we can send it again to the next agent if this one dies. */
static int send_disconnect(struct hdl_adapter *adapter, struct agent_msg *msg)
{
	if (pthread_mutex_lock(&adapter->agent.lock) != 0)
		return -HDL_EHOSTUNREACH;
	struct pending_disconnect *notice = adapter->agent.disconnect_count < AGENT_MAX_NOTICES
	                                            ? calloc(1, sizeof(*notice))
	                                            : NULL;
	if (++adapter->agent.next_disconnect == 0)
		adapter->agent.next_disconnect = 1;
	msg->u.cm.token = notice != NULL ? adapter->agent.next_disconnect : 0;
	int result = agent_tell_locked(adapter, msg);
	if (notice != NULL && result != -HDL_EHOSTUNREACH) {
		notice->msg = *msg;
		notice->next = adapter->agent.disconnects;
		adapter->agent.disconnects = notice;
		adapter->agent.disconnect_count++;
		result = 0;
		notice = NULL;
	}
	pthread_mutex_unlock(&adapter->agent.lock);
	free(notice);
	return result == 0 ? 0 : -HDL_EHOSTUNREACH;
}

void cm_confirmed(struct hdl_adapter *adapter, const struct agent_msg *msg)
{
	pthread_mutex_lock(&adapter->agent.lock);
	struct pending_disconnect **at = &adapter->agent.disconnects;
	while (*at != NULL && (*at)->msg.u.cm.token != msg->u.cm.token)
		at = &(*at)->next;
	struct pending_disconnect *notice = *at;
	if (notice != NULL)
		notice->sent = true;
	if (notice != NULL && msg->kind == AGENT_CM_DONE) {
		*at = notice->next;
		adapter->agent.disconnect_count--;
		free(notice);
	}
	pthread_cond_broadcast(&adapter->agent.answered);
	pthread_mutex_unlock(&adapter->agent.lock);
}

static bool all_disconnects_sent(const struct hdl_adapter *adapter)
{
	const struct pending_disconnect *notice = adapter->agent.disconnects;
	while (notice != NULL && notice->sent)
		notice = notice->next;
	return notice == NULL;
}

void cm_settle(struct hdl_adapter *adapter)
{
	/* The lock is refused if the program ends while this very thread is talking to the
	 * agent. */
	if (!cm_is_connected(adapter) || pthread_mutex_lock(&adapter->agent.lock) != 0)
		return;
	uint64_t begin = clock_now_ns();
	while (adapter->agent.disconnects != NULL) {
		uint64_t end =
		        begin + (all_disconnects_sent(adapter) ? ANSWERED_WAIT_NS : SENT_WAIT_NS);
		if ((adapter->agent.sock < 0 && agent_find_another(adapter) != 0) ||
		    !clock_cond_wait(&adapter->agent.answered, &adapter->agent.lock, end))
			break;
	}
	pthread_mutex_unlock(&adapter->agent.lock);
}

static void settle_one(struct hdl_adapter *adapter, void *context)
{
	(void)context;
	cm_settle(adapter);
}

/* Programs exit without closing what they opened. Runs after everything that may send a message at
 * exit. */
__attribute__((destructor(FIRST_TO_BEGIN))) static void settle_all(void)
{
	(void)fork_each(settle_one, NULL);
}

int hdl_cm_send(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg)
{
	if (!cm_is_connected(adapter))
		return -HDL_ENOTSUP;
	if (msg->length > sizeof(msg->data))
		return -HDL_EINVAL;
	/* Not for messages to be sent after this process has ended: the agent sends those. */
	if ((msg->on_wire == HDL_CM_ON_WIRE || msg->on_wire == HDL_CM_LAST_WORD) &&
	    wire_is_foreign(&msg->gid))
		return -HDL_EACCES;
	struct agent_msg out;
	uint32_t options = msg->on_wire == HDL_CM_WHEN_GONE   ? AGENT_CM_WHEN_GONE
	                   : msg->on_wire == HDL_CM_LAST_WORD ? AGENT_CM_LAST
	                                                      : msg->options;
	question(&out, msg->on_wire ? AGENT_CM_MAD : AGENT_CM_SEND, msg->space, &msg->gid,
	         msg->port, options);
	memcpy(out.u.cm.own, msg->own.raw, sizeof(out.u.cm.own));
	out.u.cm.guid = msg->guid;
	out.u.cm.slot = msg->slot;
	out.u.cm.to_port = msg->to_port;
	out.u.cm.length = msg->length;
	memcpy(out.u.cm.data, msg->data, msg->length);
	return msg->on_wire == HDL_CM_LAST_WORD ? send_disconnect(adapter, &out)
	                                        : agent_tell(adapter, &out);
}

static void tell_handler(struct hdl_adapter *adapter, const struct hdl_cm_msg *msg)
{
	if (vi_hear(adapter, msg) || apertures_hear(adapter, msg))
		return;
	pthread_mutex_lock(&adapter->agent.handler_lock);
	void (*handler)(void *, const struct hdl_cm_msg *) = adapter->agent.cm_handler;
	void *context = adapter->agent.cm_context;
	pthread_mutex_unlock(&adapter->agent.handler_lock);
	if (handler != NULL)
		handler(context, msg);
}

void cm_mended(struct hdl_adapter *adapter)
{
	if (adapter->apertures != NULL)
		apertures_open_again(adapter->apertures);
	sctp_share_again(adapter);
	tell_handler(adapter, &(struct hdl_cm_msg){.kind = HDL_CM_AGENT});
}

void cm_died(struct hdl_adapter *adapter, uint64_t guid, uint32_t slot)
{
	tell_handler(adapter,
	             &(struct hdl_cm_msg){.kind = HDL_CM_GONE, .guid = guid, .slot = slot});
}

void cm_hear(struct hdl_adapter *adapter, const struct agent_msg *msg)
{
	struct hdl_cm_msg in = {.kind = msg->kind == AGENT_CM_SEND     ? HDL_CM_MESSAGE
	                                : msg->kind == AGENT_CM_RETURN ? HDL_CM_RETURNED
	                                : msg->kind == AGENT_CM_MAD    ? HDL_CM_MAD
	                                                               : HDL_CM_GONE,
	                        .error = -msg->u.cm.error,
	                        .guid = msg->u.cm.guid,
	                        .slot = msg->u.cm.slot,
	                        .space = msg->u.cm.space,
	                        .port = msg->u.cm.port,
	                        .to_port = msg->u.cm.to_port,
	                        .options = msg->u.cm.options,
	                        .length = msg->u.cm.length};
	if (msg->u.cm.length > sizeof(in.data))
		return;
	memcpy(in.gid.raw, msg->u.cm.gid, sizeof(in.gid.raw));
	memcpy(in.own.raw, msg->u.cm.own, sizeof(in.own.raw));
	memcpy(in.data, msg->u.cm.data, msg->u.cm.length);
	tell_handler(adapter, &in);
}

void cm_again(struct hdl_adapter *adapter)
{
	struct agent_msg msg;
	for (const struct held_port *at = adapter->agent.ports; at != NULL; at = at->next) {
		question(&msg, AGENT_CM_BIND, at->space, &at->gid, at->port, at->options);
		unixsock_send(adapter->agent.sock, &msg, sizeof(msg), NULL, 0);
	}
	for (struct pending_disconnect *at = adapter->agent.disconnects; at != NULL;
	     at = at->next) {
		at->sent = false;
		unixsock_send(adapter->agent.sock, &at->msg, sizeof(at->msg), NULL, 0);
	}
}

void cm_end(struct hdl_adapter *adapter)
{
	while (adapter->agent.ports != NULL) {
		struct held_port *held = adapter->agent.ports;
		adapter->agent.ports = held->next;
		free(held);
	}
	while (adapter->agent.disconnects != NULL) {
		struct pending_disconnect *notice = adapter->agent.disconnects;
		adapter->agent.disconnects = notice->next;
		free(notice);
	}
}
