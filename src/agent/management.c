/* Queue pair 1 of a node (IBTA volume 1, 13.5.1): management datagrams come to the agent, because
 * it owns the socket, and are passed on. It keeps no state of connections: the number that the
 * receiver gave a connection tells its process, a request goes to whoever holds the port of the
 * service, and what is for nobody is refused. Of a connection it knows no more than a process
 * leaves with it: what to tell the peer when the process has gone, or says no more about it. That
 * is repeated until it is answered (12.9.7), and a node stays that long after its last process. */
#include <stdlib.h>
#include <string.h>

#include "agent/wire.h"
#include "base/clock.h"
#include "base/prng.h"
#include "port/unixsock.h"
#include "wire/ib_cm.h"
#include "wire/ib_opcode.h"

static void management_send_datagram(struct node_entry *node, const uint8_t from[16],
                                     const uint8_t to[16], const uint8_t *mad)
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
	wire_send(node, &path, &packet); /* one that cannot be sent is lost, as on the network */
}

/* --- what strangers may do --- */

/* So many a second, and as many at once. */
struct allowance {
	uint32_t left;
	uint64_t second_ns; /* when it began */
};

struct crowd {
	uint64_t secret; /* so that nobody can choose to share a place with somebody else */
	struct allowance heard, refused, sources[AGENT_SOURCES];
	struct {
		uint8_t gid[16];
		uint32_t number; /* the asker's; 0: none */
		uint32_t slot;
	} asked[AGENT_ASKED]; /* who was passed which request, by its hash: a later one may take its
	                         place */
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

static struct crowd *crowd_of(struct node_entry *node)
{
	if (node->crowd == NULL && (node->crowd = calloc(1, sizeof(*node->crowd))) != NULL)
		node->crowd->secret = prng_secret();
	return node->crowd;
}

static uint32_t management_place_of(const struct crowd *crowd, const uint8_t gid[16],
                                    uint32_t number)
{
	uint64_t halves[2], hash = crowd->secret ^ number;
	memcpy(halves, gid, sizeof(halves));
	for (unsigned i = 0; i < 2; i++) {
		hash = (hash ^ halves[i] ^ hash >> 29) * 0xbf58476d1ce4e5b9u;
		hash = (hash ^ hash >> 32) * 0x94d049bb133111ebu + crowd->secret;
	}
	return (uint32_t)(hash >> 32);
}

/* Is a datagram from @gid to be looked at? Without memory, it is not. */
static bool may_be_heard(struct node_entry *node, const uint8_t gid[16], uint64_t now)
{
	struct crowd *crowd = crowd_of(node);
	return crowd != NULL &&
	       spend(&crowd->sources[management_place_of(crowd, gid, 0) % AGENT_SOURCES],
	             AGENT_SOURCE_PER_S, now) &&
	       spend(&crowd->heard, AGENT_HEARD_PER_S, now);
}

static void remember_asker(struct node_entry *node, const uint8_t gid[16], uint32_t number,
                           uint32_t slot)
{
	struct crowd *crowd = crowd_of(node);
	if (crowd == NULL)
		return;
	uint32_t place = management_place_of(crowd, gid, number) % AGENT_ASKED;
	memcpy(crowd->asked[place].gid, gid, 16);
	crowd->asked[place].number = number;
	crowd->asked[place].slot = slot;
}

/* The process that was passed the request @number of @gid; NULL: that is not known any more. */
static struct client *asked_of(struct node_entry *node, const uint8_t gid[16], uint32_t number)
{
	const struct crowd *crowd = crowd_of(node);
	if (crowd == NULL || number == 0)
		return NULL;
	uint32_t place = management_place_of(crowd, gid, number) % AGENT_ASKED;
	if (crowd->asked[place].number != number || memcmp(crowd->asked[place].gid, gid, 16) != 0)
		return NULL;
	return node->slots[crowd->asked[place].slot];
}

/* --- last words --- */

/* A DREQ: in the list of its process until that says no more, then in that of the node until it is
 * answered. */
struct word {
	uint32_t number; /* the process's own for the connection */
	uint32_t slot;   /* of the process, if it lives, */
	uint32_t token;  /* that wants to hear by this when it is over; 0: it does not */
	bool said;       /* by the process itself, which repeats it as long as it lives */
	uint8_t own[16], gid[16], mad[MAD_BYTES];
	unsigned tries;  /* that are left, */
	uint64_t due_ns; /* and when the next one is due: in the node's list */
	struct word *next;
};

static struct word **management_find(struct word **list, uint32_t number)
{
	while (*list != NULL && (*list)->number != number)
		list = &(*list)->next;
	return list;
}

/* Out of the list of @client; NULL: there is none. */
static struct word *management_take(struct client *client, uint32_t number)
{
	struct word **at = management_find(&client->words, number), *word = *at;
	if (word == NULL)
		return NULL;
	*at = word->next;
	client->word_count--;
	return word;
}

static void management_forget(struct client *client, uint32_t number)
{
	free(management_take(client, number));
}

static struct word *make_word(const struct agent_msg *msg, uint32_t number)
{
	struct word *word = calloc(1, sizeof(*word));
	if (word == NULL)
		return NULL;
	word->number = number;
	memcpy(word->own, msg->u.cm.own, sizeof(word->own));
	memcpy(word->gid, msg->u.cm.gid, sizeof(word->gid));
	memcpy(word->mad, msg->u.cm.data, sizeof(word->mad));
	return word;
}

/* Without memory, or beyond the limit, it is as if the process had left none. Those that it has
 * said itself make room: their peers were told, and are most likely gone. */
static void management_keep(struct client *client, const struct agent_msg *msg, uint32_t number)
{
	management_forget(client, number);
	for (struct word *at = client->words; at != NULL && client->word_count >= AGENT_MAX_WORDS;
	     at = at->next)
		if (at->said) {
			management_forget(client, at->number);
			break;
		}
	struct word *word = client->word_count < AGENT_MAX_WORDS ? make_word(msg, number) : NULL;
	if (word == NULL)
		return;
	word->next = client->words;
	client->words = word;
	client->word_count++;
}

/* From now on it is the node's. False: one too many, it is said once. */
static bool management_hand_over(struct node_entry *node, struct word *word)
{
	if (!word->said)
		management_send_datagram(node, word->own, word->gid, word->mad);
	if (node->word_count >= AGENT_MAX_WORDS) {
		free(word);
		return false;
	}
	word->tries = IB_CM_MAX_RETRIES;
	word->due_ns = clock_now_ns() + ib_cm_time_ns(IB_CM_RESPONSE_TIMEOUT);
	word->next = node->words;
	node->words = word;
	node->word_count++;
	return true;
}

/* @client has gone: send the notices that it left, and repeat them until they are answered. */
static void management_leave(struct agent *agent, struct client *client)
{
	(void)agent;
	struct word *word = client->node != NULL ? client->node->words : NULL;
	for (; word != NULL; word = word->next)
		if (word->slot == client->slot)
			word->token = 0;
	while ((word = client->words) != NULL) {
		client->words = word->next;
		client->word_count--;
		if (client->node != NULL && client->node->wires[0] != NULL)
			management_hand_over(client->node, word);
		else
			free(word);
	}
}

/* What became of the datagram that @client sent with @token. */
static void confirm(struct client *client, uint32_t token, enum agent_kind kind)
{
	struct agent_msg msg = {.kind = kind, .u.cm = {.token = token}};
	if (token != 0 && client != NULL)
		tell(client, &msg, NULL, 0);
}

static void management_drop(struct node_entry *node, struct word **at)
{
	struct word *word = *at;
	*at = word->next;
	node->word_count--;
	confirm(node->slots[word->slot], word->token, AGENT_CM_DONE);
	free(word);
}

/* What is due, and when the next one is; UINT64_MAX: nothing is left to be said. */
static uint64_t repeat(struct node_entry *node, uint64_t now)
{
	uint64_t first = UINT64_MAX;
	for (struct word **at = &node->words; *at != NULL;) {
		struct word *word = *at;
		if (word->due_ns <= now && word->tries == 0) {
			management_drop(node, at);
			continue;
		}
		if (word->due_ns <= now) {
			word->tries--;
			word->due_ns = now + ib_cm_time_ns(IB_CM_RESPONSE_TIMEOUT);
			management_send_datagram(node, word->own, word->gid, word->mad);
		}
		first = word->due_ns < first ? word->due_ns : first;
		at = &word->next;
	}
	return first;
}

/* A DREP from @gid: is it the answer to what only we repeat? Then it is for nobody else. */
static bool management_answered(struct node_entry *node, const uint8_t gid[16],
                                const struct ib_cm_message *drep)
{
	struct ib_cm_message dreq;
	for (struct word **at = &node->words; *at != NULL; at = &(*at)->next)
		if ((*at)->number == drep->u.drep.remote_id &&
		    memcmp((*at)->gid, gid, sizeof((*at)->gid)) == 0 &&
		    ib_cm_decode(&dreq, (*at)->mad, MAD_BYTES) == IB_CM_OK &&
		    dreq.transaction_id == drep->transaction_id) {
			management_drop(node, at);
			return true;
		}
	return false;
}

/* --- passing on --- */

/* @client says the DREQ in @msg. Is it ours to repeat now? */
static bool say_goodbye(struct client *client, const struct agent_msg *msg, uint32_t number)
{
	struct word *word = *management_find(&client->words, number);
	if ((msg->u.cm.options & AGENT_CM_LAST) == 0) {
		if (word != NULL)
			word->said = true;
		management_send_datagram(client->node, msg->u.cm.own, msg->u.cm.gid,
		                         msg->u.cm.data);
		return false;
	}
	word = management_take(client, number);
	if (word == NULL)
		word = make_word(msg, number);
	if (word == NULL) {
		management_send_datagram(client->node, msg->u.cm.own, msg->u.cm.gid,
		                         msg->u.cm.data);
		return false;
	}
	word->slot = client->slot;
	word->token = msg->u.cm.token;
	return management_hand_over(client->node, word);
}

/* Do with @msg what it says. Is it ours to repeat now? */
static bool pass_out(struct client *client, const struct agent_msg *msg)
{
	struct ib_cm_message message;
	if (client->node->wires[0] == NULL || msg->u.cm.length != MAD_BYTES)
		return false;
	bool known = ib_cm_decode(&message, msg->u.cm.data, MAD_BYTES) == IB_CM_OK;
	client->connects = true;
	if (msg->u.cm.options & AGENT_CM_WHEN_GONE) {
		if (known && message.kind == IB_CM_DREQ)
			management_keep(client, msg, message.u.dreq.local_id);
		return false;
	}
	if (known && message.kind == IB_CM_DREQ)
		return say_goodbye(client, msg, message.u.dreq.local_id);
	if (known && message.kind == IB_CM_DREP)
		management_forget(client, message.u.drep.local_id);
	else if (known && message.kind == IB_CM_REJ)
		management_forget(client, message.u.rej.local_id);
	management_send_datagram(client->node, msg->u.cm.own, msg->u.cm.gid, msg->u.cm.data);
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
	/* Others can make it fall behind: then it is lost, as on the network. */
	if (!client->dead)
		unixsock_send(client->sock, msg, sizeof(*msg), NULL, 0);
}

/* Which address of @node was called? The request says so (annex A11), unless it is nonsense: then
 * @own, to which it came. */
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

/* Who gives up a request that was not answered does not know our number (12.6.7.2, reason 4): it is
 * for the process that was passed the request. If that is forgotten, the process hears it when it
 * answers. */
static bool names_nobody(const struct ib_cm_message *message)
{
	return message->kind == IB_CM_REJ && message->u.rej.remote_id == 0;
}

/* A request, from @msg's sender: pass it on to @client. */
static void pass_request(struct client *client, const struct ib_cm_message *message,
                         const struct agent_msg *msg)
{
	if (message->kind == IB_CM_REQ)
		remember_asker(client->node, msg->u.cm.gid, message->u.req.local_id, client->slot);
	pass_on(client, msg);
}

/* --- requests that are early --- */

struct early {
	struct early *next;
	uint64_t due_ns;
	struct ib_cm_message message;
	struct agent_msg msg; /* for who will be there */
};

static void management_refuse(struct node_entry *node, const uint8_t own[16], const uint8_t gid[16],
                              const struct ib_cm_message *message)
{
	struct ib_cm_message answer;
	uint8_t mad[MAD_BYTES];
	struct crowd *crowd = crowd_of(node);
	if (crowd == NULL || !ib_cm_refuse(message, IB_CM_INVALID_SERVICE_ID, &answer) ||
	    !spend(&crowd->refused, AGENT_REFUSED_PER_S, clock_now_ns()))
		return;
	ib_cm_encode(&answer, mad);
	management_send_datagram(node, own, gid, mad);
}

/* Keep a request that nobody listens for. False: it is none, or there are too many. One that is
 * repeated is kept once. */
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
	*at = early; /* the last: first come, first heard */
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

/* When the next one is due; UINT64_MAX: none is left. */
static uint64_t refuse_early(struct node_entry *node, uint64_t now)
{
	while (node->early != NULL && node->early->due_ns <= now) {
		management_refuse(node, node->early->msg.u.cm.own, node->early->msg.u.cm.gid,
		                  &node->early->message);
		drop_early(node, &node->early);
	}
	return node->early != NULL ? node->early->due_ns : UINT64_MAX;
}

/* --- all of it --- */

void management_silence(struct node_entry *node)
{
	while (node->words != NULL)
		management_drop(node, &node->words);
	while (node->early != NULL)
		drop_early(node, &node->early);
	free(node->crowd);
	node->crowd = NULL;
}

/* Repeat and refuse what is due, and forget the nodes that are no longer needed. */
static uint64_t management_sweep(struct agent *agent, uint64_t now)
{
	uint64_t first = SERVICES_NEVER;
	for (uint32_t i = agent->node_count; i-- > 0;) { /* backwards: one may be taken out */
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
