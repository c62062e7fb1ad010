/* The wire service: queue pair 1 of a node (IBTA volume 1, 13.5.1). Management datagrams arrive at
 * the agent, because it owns the socket, and it passes them on. It keeps no state of connections:
 * the number that the receiver gave a connection tells the process, a request goes to the process
 * that holds the port of the service, and a request for no process is refused. All that it knows of
 * a connection is the disconnect notice (a DREQ) that a process leaves with it, for when the
 * process has gone or hands the connection over. The agent repeats the notice until it is answered
 * (12.9.7), and a node lives that long after its last process. */
#include <stdlib.h>
#include <string.h>

#include "agent/wire.h"
#include "base/clock.h"
#include "base/prng.h"
#include "port/unixsock.h"
#include "wire/ib_cm.h"
#include "wire/ib_opcode.h"

void management_datagram(struct node_entry *node, const uint8_t from[16], const uint8_t to[16],
                         const uint8_t *mad)
{
	struct roce_path path = {0};
	struct ib_packet packet = {.bth = {.opcode = IB_UD + IB_OP_SEND_ONLY,
	                                   .migreq = true,
	                                   .pkey = 0xffff,
	                                   .dest_qp = MAD_GSI_QPN},
	                           .deth = {.qkey = MAD_GSI_QKEY, .src_qp = MAD_GSI_QPN},
	                           .payload = mad,
	                           .payload_bytes = MAD_BYTES};
	memcpy(path.sgid, from, sizeof(path.sgid));
	memcpy(path.dgid, to, sizeof(path.dgid));
	wire_send(node, &path, &packet);
}

/* --- limits for peers on the network --- */

/* A number of events per second, which may all come at once. */
struct allowance {
	uint32_t left;
	uint64_t second_ns; /* when it began */
};

struct limits {
	uint64_t secret; /* so that no peer can choose to have the same hash as another */
	struct allowance heard, refused, sources[AGENT_SOURCES];
	struct {
		uint8_t gid[16];
		uint32_t number; /* the peer's, for the connection; 0: none */
		uint32_t slot;
	} asked[AGENT_ASKED]; /* which process got which request, by its hash; a later one may
	                         take its place */
};

static bool spend(struct allowance *allowance, uint32_t per_second, uint64_t now)
{
	if (now - allowance->second_ns >= 1000000000u) {
		allowance->second_ns = now;
		allowance->left = per_second;
	}
	if (allowance->left == 0)
		return false;
	allowance->left--;
	return true;
}

static struct limits *limits_of(struct node_entry *node)
{
	if (node->limits == NULL && (node->limits = calloc(1, sizeof(*node->limits))) != NULL)
		node->limits->secret = prng_secret();
	return node->limits;
}

static uint32_t management_place_of(const struct limits *limits, const uint8_t gid[16],
                                    uint32_t number)
{
	uint64_t halves[2], hash = limits->secret ^ number;
	memcpy(halves, gid, sizeof(halves));
	for (unsigned i = 0; i < 2; i++) {
		hash = (hash ^ halves[i] ^ hash >> 29) * 0xbf58476d1ce4e5b9u;
		hash = (hash ^ hash >> 32) * 0x94d049bb133111ebu + limits->secret;
	}
	return (uint32_t)(hash >> 32);
}

/* Is a datagram from @gid within the limits? Without memory for them, it is not. */
static bool may_be_heard(struct node_entry *node, const uint8_t gid[16], uint64_t now)
{
	struct limits *limits = limits_of(node);
	return limits != NULL &&
	       spend(&limits->sources[management_place_of(limits, gid, 0) % AGENT_SOURCES],
	             AGENT_SOURCE_PER_S, now) &&
	       spend(&limits->heard, AGENT_HEARD_PER_S, now);
}

static void remember_asker(struct node_entry *node, const uint8_t gid[16], uint32_t number,
                           uint32_t slot)
{
	struct limits *limits = limits_of(node);
	if (limits == NULL)
		return;
	uint32_t place = management_place_of(limits, gid, number) % AGENT_ASKED;
	memcpy(limits->asked[place].gid, gid, 16);
	limits->asked[place].number = number;
	limits->asked[place].slot = slot;
}

/* The process that got the request @number of @gid; NULL: it is no longer known. */
static struct client *asked_of(struct node_entry *node, const uint8_t gid[16], uint32_t number)
{
	const struct limits *limits = limits_of(node);
	if (limits == NULL || number == 0)
		return NULL;
	uint32_t place = management_place_of(limits, gid, number) % AGENT_ASKED;
	if (limits->asked[place].number != number || memcmp(limits->asked[place].gid, gid, 16) != 0)
		return NULL;
	return node->slots[limits->asked[place].slot];
}

/* --- disconnect notices --- */

/* A DREQ: in the list of its process until that has gone or hands it over, then in that of the node
 * until it is answered. */
struct notice {
	uint32_t number; /* of the connection, given by the process */
	uint32_t slot;   /* of the process, if it lives */
	uint32_t token;  /* for CM_DONE to the process; 0: it wants none */
	bool sent;       /* by the process itself, which repeats it as long as it lives */
	uint8_t own[16], gid[16], mad[MAD_BYTES];
	unsigned tries;  /* in the node's list: how many are left, */
	uint64_t due_ns; /* and when the next one is due */
	struct notice *next;
};

static struct notice **management_find(struct notice **list, uint32_t number)
{
	while (*list != NULL && (*list)->number != number)
		list = &(*list)->next;
	return list;
}

/* Take a notice out of the list of @client; NULL: there is none. */
static struct notice *management_take(struct client *client, uint32_t number)
{
	struct notice **at = management_find(&client->notices, number), *notice = *at;
	if (notice == NULL)
		return NULL;
	*at = notice->next;
	client->notice_count--;
	return notice;
}

static void management_forget(struct client *client, uint32_t number)
{
	free(management_take(client, number));
}

static struct notice *make_notice(const struct agent_msg *msg, uint32_t number)
{
	struct notice *notice = calloc(1, sizeof(*notice));
	if (notice == NULL)
		return NULL;
	notice->number = number;
	memcpy(notice->own, msg->u.cm.own, sizeof(notice->own));
	memcpy(notice->gid, msg->u.cm.gid, sizeof(notice->gid));
	memcpy(notice->mad, msg->u.cm.data, sizeof(notice->mad));
	return notice;
}

/* Without memory, or beyond the limit, it is as if the process had left none. Notices that the
 * process has sent itself make room: their peers were told, and have most likely gone. */
static void management_keep(struct client *client, const struct agent_msg *msg, uint32_t number)
{
	management_forget(client, number);
	for (struct notice *at = client->notices;
	     at != NULL && client->notice_count >= AGENT_MAX_NOTICES; at = at->next)
		if (at->sent) {
			management_forget(client, at->number);
			break;
		}
	struct notice *notice =
	        client->notice_count < AGENT_MAX_NOTICES ? make_notice(msg, number) : NULL;
	if (notice == NULL)
		return;
	notice->next = client->notices;
	client->notices = notice;
	client->notice_count++;
}

/* Give the notice to the node. False: the node has too many; it has been sent once. */
static bool management_hand_over(struct node_entry *node, struct notice *notice)
{
	if (!notice->sent)
		management_datagram(node, notice->own, notice->gid, notice->mad);
	if (node->notice_count >= AGENT_MAX_NOTICES) {
		free(notice);
		return false;
	}
	notice->tries = IB_CM_MAX_RETRIES;
	notice->due_ns = clock_now_ns() + ib_cm_time_ns(IB_CM_RESPONSE_TIMEOUT);
	notice->next = node->notices;
	node->notices = notice;
	node->notice_count++;
	return true;
}

/* @client has gone: send the notices that it left, and repeat them until they are answered. */
static void management_leave(struct agent *agent, struct client *client)
{
	(void)agent;
	struct notice *notice = client->node != NULL ? client->node->notices : NULL;
	for (; notice != NULL; notice = notice->next)
		if (notice->slot == client->slot)
			notice->token = 0;
	while ((notice = client->notices) != NULL) {
		client->notices = notice->next;
		client->notice_count--;
		if (client->node != NULL && client->node->wires[0] != NULL)
			management_hand_over(client->node, notice);
		else
			free(notice);
	}
}

/* Tell @client what became of the datagram that it sent with @token. */
static void confirm(struct client *client, uint32_t token, enum agent_kind kind)
{
	struct agent_msg msg = {.kind = kind, .u.cm = {.token = token}};
	if (token != 0 && client != NULL)
		tell(client, &msg, NULL, 0);
}

static void management_drop(struct node_entry *node, struct notice **at)
{
	struct notice *notice = *at;
	*at = notice->next;
	node->notice_count--;
	confirm(node->slots[notice->slot], notice->token, AGENT_CM_DONE);
	free(notice);
}

/* Repeat the notices that are due. When the next one is; SERVICES_NEVER: none is left. */
static uint64_t repeat(struct node_entry *node, uint64_t now)
{
	uint64_t first = SERVICES_NEVER;
	for (struct notice **at = &node->notices; *at != NULL;) {
		struct notice *notice = *at;
		if (notice->due_ns <= now && notice->tries == 0) {
			management_drop(node, at);
			continue;
		}
		if (notice->due_ns <= now) {
			notice->tries--;
			notice->due_ns = now + ib_cm_time_ns(IB_CM_RESPONSE_TIMEOUT);
			management_datagram(node, notice->own, notice->gid, notice->mad);
		}
		first = notice->due_ns < first ? notice->due_ns : first;
		at = &notice->next;
	}
	return first;
}

/* A DREP from @gid: does it answer a notice that only the agent repeats? Then no process needs
 * it. */
static bool management_answered(struct node_entry *node, const uint8_t gid[16],
                                const struct ib_cm_message *drep)
{
	struct ib_cm_message dreq;
	for (struct notice **at = &node->notices; *at != NULL; at = &(*at)->next)
		if ((*at)->number == drep->u.drep.remote_id &&
		    memcmp((*at)->gid, gid, sizeof((*at)->gid)) == 0 &&
		    ib_cm_decode(&dreq, (*at)->mad, MAD_BYTES) == IB_CM_OK &&
		    dreq.transaction_id == drep->transaction_id) {
			management_drop(node, at);
			return true;
		}
	return false;
}

/* --- passing datagrams on --- */

/* @client sends the DREQ in @msg. Does the agent repeat it from now on? */
static bool management_send_dreq(struct client *client, const struct agent_msg *msg,
                                 uint32_t number)
{
	struct notice *notice = *management_find(&client->notices, number);
	if ((msg->u.cm.options & AGENT_CM_LAST) == 0) {
		if (notice != NULL)
			notice->sent = true;
		management_datagram(client->node, msg->u.cm.own, msg->u.cm.gid, msg->u.cm.data);
		return false;
	}
	notice = management_take(client, number);
	if (notice == NULL)
		notice = make_notice(msg, number);
	if (notice == NULL) {
		management_datagram(client->node, msg->u.cm.own, msg->u.cm.gid, msg->u.cm.data);
		return false;
	}
	notice->slot = client->slot;
	notice->token = msg->u.cm.token;
	return management_hand_over(client->node, notice);
}

/* Send or keep @msg, as its options say. Does the agent repeat it from now on? */
static bool pass_out(struct client *client, const struct agent_msg *msg)
{
	struct ib_cm_message message;
	if (client->node->wires[0] == NULL || msg->u.cm.length != MAD_BYTES)
		return false;
	bool known = ib_cm_decode(&message, msg->u.cm.data, MAD_BYTES) == IB_CM_OK;
	if (msg->u.cm.options & AGENT_CM_WHEN_GONE) {
		if (known && message.kind == IB_CM_DREQ)
			management_keep(client, msg, message.u.dreq.local_id);
		return false;
	}
	if (known && message.kind == IB_CM_DREQ)
		return management_send_dreq(client, msg, message.u.dreq.local_id);
	if (known && message.kind == IB_CM_DREP)
		management_forget(client, message.u.drep.local_id);
	else if (known && message.kind == IB_CM_REJ)
		management_forget(client, message.u.rej.local_id);
	management_datagram(client->node, msg->u.cm.own, msg->u.cm.gid, msg->u.cm.data);
	return false;
}

/* Send the datagram in @request, and tell @client so if it wants to know. */
static void management_send(struct agent *agent, struct client *client,
                            struct agent_request *request)
{
	(void)agent;
	const struct agent_msg *msg = &request->msg;
	confirm(client, msg->u.cm.token, pass_out(client, msg) ? AGENT_CM_SAID : AGENT_CM_DONE);
}

static void pass_on(struct client *client, const struct agent_msg *msg)
{
	/* Peers can make it fall behind. Then the datagram is lost, as on the network. */
	if (!client->dead)
		unixsock_send(client->sock, msg, sizeof(*msg), NULL, 0);
}

/* The address of @node that the request names (annex A11), or, if it names none, @own, at which it
 * arrived. */
static const uint8_t *called(const struct node_entry *node, const uint8_t own[16],
                             const struct ib_cm_message *message, uint32_t *family)
{
	struct ib_cm_ip ip;
	*family = roce_gid_is_ipv4(own) ? AGENT_CM_IPV4 : AGENT_CM_IPV6;
	if (!ib_cm_ip_decode(&ip, message->kind == IB_CM_REQ ? message->u.req.private_data
	                                                     : message->u.sidr_req.private_data))
		return own;
	*family = ip.family == 4 ? AGENT_CM_IPV4 : AGENT_CM_IPV6;
	if (ip.family == 4)
		ip.dst[10] = ip.dst[11] = 0xff;
	for (uint32_t i = 0; i < node->gid_count; i++)
		if (memcmp(node->gids[i], ip.dst, 16) == 0)
			return node->gids[i];
	return own;
}

/* The process that @message is for; NULL: there is none. */
static struct client *management_addressee(const struct node_entry *node,
                                           const struct ib_cm_message *message,
                                           struct agent_msg *msg)
{
	uint32_t id;
	uint64_t service;
	if (ib_cm_addressee(message, &id, &service))
		return node->slots[id >> AGENT_CM_ID_BITS];
	if (!ib_cm_service_split(service, &msg->u.cm.space, &msg->u.cm.port))
		return NULL;
	const uint8_t *gid = called(node, msg->u.cm.own, message, &msg->u.cm.options);
	return cm_holder(node, msg->u.cm.space, gid, msg->u.cm.port, msg->u.cm.options);
}

/* A peer that gives up a request without an answer does not know our number (12.6.7.2, reason 4):
 * the REJ is for the process that got the request. If that is no longer known, the process learns
 * it when it answers. */
static bool names_nobody(const struct ib_cm_message *message)
{
	return message->kind == IB_CM_REJ && message->u.rej.remote_id == 0;
}

/* Pass a request on to @client. */
static void pass_request(struct client *client, const struct ib_cm_message *message,
                         const struct agent_msg *msg)
{
	if (message->kind == IB_CM_REQ)
		remember_asker(client->node, msg->u.cm.gid, message->u.req.local_id, client->slot);
	pass_on(client, msg);
}

/* --- requests that arrive before a process listens --- */

struct early {
	struct early *next;
	uint64_t due_ns;
	struct ib_cm_message message;
	struct agent_msg msg; /* for the process that will listen */
};

static void management_refuse(struct node_entry *node, const uint8_t own[16], const uint8_t gid[16],
                              const struct ib_cm_message *message)
{
	struct ib_cm_message answer;
	uint8_t mad[MAD_BYTES];
	struct limits *limits = limits_of(node);
	if (limits == NULL || !ib_cm_refuse(message, IB_CM_INVALID_SERVICE_ID, &answer) ||
	    !spend(&limits->refused, AGENT_REFUSED_PER_S, clock_now_ns()))
		return;
	ib_cm_encode(&answer, mad);
	management_datagram(node, own, gid, mad);
}

/* Keep a request for a port where no process listens. False: it is no request, or there are too
 * many. One that is repeated is kept once. */
static bool keep_early(struct node_entry *node, const struct ib_cm_message *message,
                       const struct agent_msg *msg)
{
	if ((message->kind != IB_CM_REQ && message->kind != IB_CM_SIDR_REQ) || msg->u.cm.port == 0)
		return false;
	struct early **at = &node->early;
	for (; *at != NULL; at = &(*at)->next)
		if (memcmp((*at)->msg.u.cm.data, msg->u.cm.data, MAD_BYTES) == 0 &&
		    memcmp((*at)->msg.u.cm.gid, msg->u.cm.gid, 16) == 0)
			return true;
	struct early *early = node->early_count < AGENT_MAX_EARLY ? malloc(sizeof(*early)) : NULL;
	if (early == NULL)
		return false;
	*early = (struct early){
	        .due_ns = clock_now_ns() + AGENT_EARLY_NS, .message = *message, .msg = *msg};
	*at = early; /* at the end: first come, first served */
	node->early_count++;
	return true;
}

static void drop_early(struct node_entry *node, struct early **at)
{
	struct early *early = *at;
	*at = early->next;
	node->early_count--;
	free(early);
}

void management_listen(struct node_entry *node)
{
	for (struct early **at = &node->early; *at != NULL;) {
		struct client *client = management_addressee(node, &(*at)->message, &(*at)->msg);
		if (client == NULL) {
			at = &(*at)->next;
			continue;
		}
		pass_request(client, &(*at)->message, &(*at)->msg);
		drop_early(node, at);
	}
}

/* Refuse the requests that have waited long enough. When the next one is due; SERVICES_NEVER: none
 * is left. */
static uint64_t refuse_early(struct node_entry *node, uint64_t now)
{
	while (node->early != NULL && node->early->due_ns <= now) {
		management_refuse(node, node->early->msg.u.cm.own, node->early->msg.u.cm.gid,
		                  &node->early->message);
		drop_early(node, &node->early);
	}
	return node->early != NULL ? node->early->due_ns : SERVICES_NEVER;
}

/* --- the service --- */

void management_silence(struct node_entry *node)
{
	while (node->notices != NULL)
		management_drop(node, &node->notices);
	while (node->early != NULL)
		drop_early(node, &node->early);
	free(node->limits);
	node->limits = NULL;
	node->answers_ns = 0;
}

/* Repeat and refuse what is due, and forget the nodes that are no longer needed. */
static uint64_t management_sweep(struct agent *agent, uint64_t now)
{
	uint64_t first = SERVICES_NEVER;
	for (uint32_t i = agent->node_count; i-- > 0;) { /* backwards: node_tidy() may remove one */
		struct node_entry *node = agent->nodes[i];
		uint64_t due = repeat(node, now), early = refuse_early(node, now);
		due = early < due ? early : due;
		first = due < first ? due : first;
		node_tidy(agent, node);
	}
	return first;
}

void wire_management(struct node_entry *node, const struct roce_path *came,
                     const struct ib_packet *packet)
{
	struct ib_cm_message message;
	if (packet->bth.opcode != (IB_UD + IB_OP_SEND_ONLY) || packet->deth.qkey != MAD_GSI_QKEY ||
	    packet->deth.src_qp != MAD_GSI_QPN || !may_be_heard(node, came->sgid, clock_now_ns()) ||
	    ib_cm_decode(&message, packet->payload, packet->payload_bytes) != IB_CM_OK)
		return;
	struct agent_msg msg = {
	        .version = AGENT_VERSION, .kind = AGENT_CM_MAD, .u.cm = {.length = MAD_BYTES}};
	memcpy(msg.u.cm.gid, came->sgid, sizeof(msg.u.cm.gid));
	memcpy(msg.u.cm.own, came->dgid, sizeof(msg.u.cm.own));
	memcpy(msg.u.cm.data, packet->payload, MAD_BYTES);
	if (names_nobody(&message)) {
		struct client *asked = asked_of(node, came->sgid, message.u.rej.local_id);
		if (asked != NULL)
			pass_on(asked, &msg);
		return;
	}
	if (message.kind == IB_CM_DREP && management_answered(node, came->sgid, &message))
		return;
	if (stripe_asked(node, came->dgid, came->sgid, &message) ||
	    stripe_answered(node, came->sgid, &message))
		return;
	struct client *client = management_addressee(node, &message, &msg);
	if (client != NULL) {
		if (message.kind == IB_CM_DREP)
			management_forget(client, message.u.drep.remote_id);
		pass_request(client, &message, &msg);
	} else if (!keep_early(node, &message, &msg)) {
		management_refuse(node, came->dgid, came->sgid, &message);
	}
}

static const struct service_kind management_kinds[] = {
        {AGENT_CM_MAD, AGENT_MSG_BYTES(cm), false, management_send},
};
const struct agent_service wire_service = {.name = "wire",
                                           .kinds = management_kinds,
                                           .kind_count = SERVICE_KINDS(management_kinds),
                                           .leave = management_leave,
                                           .sweep = management_sweep};
