/* Queue pair 1 of a node (IBTA volume 1, 13.5.1): management datagrams come to the agent, because it owns the socket, and are passed
 * on. It keeps no state of connections: the number that the receiver gave a connection tells its process, a request goes to
 * whoever holds the port of the service, and what is for nobody is refused. Of a connection it knows no more than a process leaves
 * with it: what to tell the peer when the process has gone. */
#include <stdlib.h>
#include <string.h>

#include "agent/wire.h"
#include "port/unixsock.h"
#include "wire/ib_cm.h"
#include "wire/ib_opcode.h"

static void send_datagram(struct node_entry *node, const uint8_t from[16], const uint8_t to[16],
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
	wire_send(node, &path, &packet); /* one that cannot be sent is lost, as on the network */
}

/* --- last words --- */

struct word {
	uint32_t number; /* the process's own for the connection */
	uint8_t own[16], gid[16], mad[MAD_BYTES];
	struct word *next;
};

static void forget(struct client *client, uint32_t number)
{
	for (struct word **at = &client->words; *at != NULL; at = &(*at)->next) {
		struct word *word = *at;
		if (word->number != number)
			continue;
		*at = word->next;
		free(word);
		client->word_count--;
		return;
	}
}

/* Without memory, or beyond the limit, it is as if the process had left none. */
static void keep(struct client *client, const struct agent_msg *msg, uint32_t number)
{
	forget(client, number);
	struct word *word = client->word_count < AGENT_MAX_WORDS ? malloc(sizeof(*word)) : NULL;
	if (word == NULL)
		return;
	*word = (struct word){.number = number, .next = client->words};
	memcpy(word->own, msg->u.cm.own, sizeof(word->own));
	memcpy(word->gid, msg->u.cm.gid, sizeof(word->gid));
	memcpy(word->mad, msg->u.cm.data, sizeof(word->mad));
	client->words = word;
	client->word_count++;
}

void management_leave(struct client *client)
{
	while (client->words != NULL) {
		struct word *word = client->words;
		if (client->node != NULL && client->node->wires[0] != NULL)
			send_datagram(client->node, word->own, word->gid, word->mad);
		forget(client, word->number);
	}
}

/* --- passing on --- */

void management_send(struct client *client, const struct agent_msg *msg)
{
	struct ib_cm_message message;
	if (client->node->wires[0] == NULL || msg->u.cm.length != MAD_BYTES)
		return;
	bool known = ib_cm_decode(&message, msg->u.cm.data, MAD_BYTES) == IB_CM_OK;
	client->connects = true;
	if (msg->u.cm.options & AGENT_CM_WHEN_GONE) {
		if (known && message.kind == IB_CM_DREQ)
			keep(client, msg, message.u.dreq.local_id);
		return;
	}
	if (known && message.kind == IB_CM_DREQ)
		forget(client, message.u.dreq.local_id);
	else if (known && message.kind == IB_CM_DREP)
		forget(client, message.u.drep.local_id);
	else if (known && message.kind == IB_CM_REJ)
		forget(client, message.u.rej.local_id);
	send_datagram(client->node, msg->u.cm.own, msg->u.cm.gid, msg->u.cm.data);
}

static void pass_on(struct client *client, const struct agent_msg *msg)
{
	/* Others can make it fall behind: then it is lost, as on the network. */
	if (!client->dead)
		unixsock_send(client->sock, msg, sizeof(*msg), NULL, 0);
}

/* Which address of @node was called? The request says so (annex A11), unless it is nonsense: then @own, to which it came. */
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
static struct client *addressee(const struct node_entry *node, const struct ib_cm_message *message,
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

/* Who gives up a request that was not answered does not know our number (12.6.7.2, reason 4): whoever has it knows. */
static bool is_for_all(const struct ib_cm_message *message)
{
	return message->kind == IB_CM_REJ && message->u.rej.remote_id == 0;
}

void wire_management(struct agent *agent, struct node_entry *node, const struct roce_path *came,
                     const struct ib_packet *packet)
{
	struct ib_cm_message message, answer;
	(void)agent;
	if (packet->bth.opcode != (IB_UD + IB_OP_SEND_ONLY) || packet->deth.qkey != MAD_GSI_QKEY ||
	    packet->deth.src_qp != MAD_GSI_QPN ||
	    ib_cm_decode(&message, packet->payload, packet->payload_bytes) != IB_CM_OK)
		return;
	struct agent_msg msg = {
	        .version = AGENT_VERSION, .kind = AGENT_CM_MAD, .u.cm = {.length = MAD_BYTES}};
	memcpy(msg.u.cm.gid, came->sgid, sizeof(msg.u.cm.gid));
	memcpy(msg.u.cm.own, came->dgid, sizeof(msg.u.cm.own));
	memcpy(msg.u.cm.data, packet->payload, MAD_BYTES);
	if (is_for_all(&message)) {
		for (uint32_t slot = 0; slot < AGENT_MAX_SLOTS; slot++)
			if (node->slots[slot] != NULL && node->slots[slot]->connects)
				pass_on(node->slots[slot], &msg);
		return;
	}
	struct client *client = addressee(node, &message, &msg);
	if (client != NULL) {
		pass_on(client, &msg);
	} else if (ib_cm_refuse(&message, IB_CM_INVALID_SERVICE_ID, &answer)) {
		uint8_t mad[MAD_BYTES];
		ib_cm_encode(&answer, mad);
		send_datagram(node, came->dgid, came->sgid, mad);
	}
}
