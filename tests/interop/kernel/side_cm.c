/* A side that connects through rdma_cm: on iWARP there is no other way. The TCP port of the
 * connections is PORT + 1000 of the server's address. The first attempt is rejected, and private
 * data must arrive with every request, rejection and reply. */
#include "side.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CM_LIMIT_MS   60000
#define REQUEST_TEXT  "may I? this is private data of forty bytes"
#define REJECT_TEXT   "not yet"
#define ACCEPT_TEXT   "you may; this is private as well"
#define PORT_DISTANCE 1000
#define MOST_BYTES    255 /* that rdma_cm can count */

struct side_cm {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *id;
	bool ended; /* the other side, or an error, has ended the connection */
};

/* Private data. */
struct words {
	uint8_t bytes[MOST_BYTES];
	uint8_t length;
};

static struct side_cm cm;

static struct rdma_cm_event *cm_event(enum rdma_cm_event_type type)
{
	struct pollfd fd = {cm.channel->fd, POLLIN, 0};
	struct rdma_cm_event *event;
	if (poll(&fd, 1, CM_LIMIT_MS) != 1 || rdma_get_cm_event(cm.channel, &event) != 0)
		side_fail("no event instead of %s", rdma_event_str(type));
	if (event->event != type)
		side_fail("%s (%d) instead of %s", rdma_event_str(event->event), event->status,
		          rdma_event_str(type));
	return event;
}

static void cm_take(enum rdma_cm_event_type type)
{
	rdma_ack_cm_event(cm_event(type));
}

/* @text, or as many bytes as @side is to send. */
static struct words words_of(const struct side *side, const char *text)
{
	struct words words = {.length = (uint8_t)strlen(text)};
	memcpy(words.bytes, text, words.length);
	for (size_t i = 0; i < side->private_bytes; i++)
		words.bytes[i] = (uint8_t)((unsigned char)text[0] + i);
	if (side->private_bytes > 0)
		words.length = (uint8_t)side->private_bytes;
	return words;
}

static void cm_expect_text(const struct side *side, const struct rdma_cm_event *event,
                           const char *text)
{
	const struct rdma_conn_param *param = &event->param.conn;
	const struct words words = words_of(side, text);
	if (param->private_data_len != words.length ||
	    memcmp(param->private_data, words.bytes, words.length) != 0)
		side_fail("%u bytes of private data instead of the %u of '%s'",
		          param->private_data_len, words.length, text);
}

static struct addrinfo *cm_address(const struct side *side)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
	                         .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *where = NULL;
	char port[16];
	snprintf(port, sizeof(port), "%d", atoi(side->port) + PORT_DISTANCE);
	if (getaddrinfo(side->by_cm, port, &hints, &where) != 0)
		side_fail("%s?", side->by_cm);
	return where;
}

/* An identifier of the caller that knows its device. */
static void cm_resolve(const struct side *side)
{
	struct addrinfo *where = cm_address(side);
	if (rdma_create_id(cm.channel, &cm.id, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_resolve_addr(cm.id, NULL, where->ai_addr, CM_LIMIT_MS) != 0)
		side_fail("resolve: %s", strerror(errno));
	cm_take(RDMA_CM_EVENT_ADDR_RESOLVED);
	freeaddrinfo(where);
}

void side_cm_open(struct side *side)
{
	cm.channel = rdma_create_event_channel();
	if (cm.channel == NULL)
		side_fail("rdma_cm: %s", strerror(errno));
	if (side->host == NULL) {
		struct addrinfo *where = cm_address(side);
		if (rdma_create_id(cm.channel, &cm.listener, NULL, RDMA_PS_TCP) != 0 ||
		    rdma_bind_addr(cm.listener, where->ai_addr) != 0 ||
		    rdma_listen(cm.listener, 4) != 0)
			side_fail("listen: %s", strerror(errno));
		freeaddrinfo(where);
		side->context = cm.listener->verbs;
	} else {
		cm_resolve(side);
		side->context = cm.id->verbs;
	}
	if (side->context == NULL)
		side_fail("%s is not an address of a device", side->by_cm);
	side->mtu_bytes = 1024;
}

static void cm_make_qp(struct side *side)
{
	struct ibv_qp_init_attr how = {
	        .send_cq = side->cq,
	        .recv_cq = side->cq,
	        .qp_type = IBV_QPT_RC,
	        .cap = {SIDE_DEPTH, SIDE_DEPTH, 4, 4, 0},
	};
	if (rdma_create_qp(cm.id, side->pd, &how) != 0)
		side_fail("no queue pair: %s", strerror(errno));
	side->qp = cm.id->qp;
}

static struct rdma_conn_param cm_param(const struct words *words)
{
	return (struct rdma_conn_param){.private_data = words->bytes,
	                                .private_data_len = words->length,
	                                .responder_resources = 4,
	                                .initiator_depth = 4};
}

static void cm_call(struct side *side, bool rejected)
{
	const struct words words = words_of(side, REQUEST_TEXT);
	struct rdma_conn_param param = cm_param(&words);
	if (cm.id == NULL)
		cm_resolve(side);
	if (rdma_resolve_route(cm.id, CM_LIMIT_MS) != 0)
		side_fail("route: %s", strerror(errno));
	cm_take(RDMA_CM_EVENT_ROUTE_RESOLVED);
	cm_make_qp(side);
	if (rdma_connect(cm.id, &param) != 0)
		side_fail("connect: %s", strerror(errno));
	struct rdma_cm_event *event =
	        cm_event(rejected ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_ESTABLISHED);
	cm_expect_text(side, event, rejected ? REJECT_TEXT : ACCEPT_TEXT);
	rdma_ack_cm_event(event);
	if (rejected) {
		rdma_destroy_qp(cm.id);
		rdma_destroy_id(cm.id);
		cm.id = NULL;
	}
}

static void cm_answer(struct side *side, bool reject)
{
	const struct words words = words_of(side, reject ? REJECT_TEXT : ACCEPT_TEXT);
	struct rdma_conn_param param = cm_param(&words);
	struct rdma_cm_event *event = cm_event(RDMA_CM_EVENT_CONNECT_REQUEST);
	cm_expect_text(side, event, REQUEST_TEXT);
	cm.id = event->id;
	rdma_ack_cm_event(event);
	if (reject) {
		if (rdma_reject(cm.id, words.bytes, words.length) != 0)
			side_fail("reject: %s", strerror(errno));
		rdma_destroy_id(cm.id);
		cm.id = NULL;
		return;
	}
	cm_make_qp(side);
	if (rdma_accept(cm.id, &param) != 0)
		side_fail("accept: %s", strerror(errno));
	cm_take(RDMA_CM_EVENT_ESTABLISHED);
}

void side_cm_connect(struct side *side)
{
	static bool rejected;
	for (bool reject = !rejected;; reject = false) {
		side_meet(side);
		if (side->host != NULL)
			cm_call(side, reject);
		else
			cm_answer(side, reject);
		if (!reject)
			break;
	}
	rejected = true;
	side->mine.qpn = side->qp->qp_num;
	side_swap(side, &side->mine, &side->other, sizeof(side->mine));
}

void side_cm_ended(void)
{
	cm_take(RDMA_CM_EVENT_DISCONNECTED);
	cm.ended = true;
}

void side_cm_part(struct side *side)
{
	side_meet(side);
	if (!cm.ended) {
		rdma_disconnect(cm.id); /* a Terminate may have been faster */
		cm_take(RDMA_CM_EVENT_DISCONNECTED);
	}
	cm.ended = false;
	rdma_destroy_qp(cm.id);
	rdma_destroy_id(cm.id);
	cm.id = NULL;
	side->qp = NULL;
}

void side_cm_close(void)
{
	if (cm.listener != NULL)
		rdma_destroy_id(cm.listener);
	rdma_destroy_event_channel(cm.channel);
}
