/* The stripe service: may a connection use two paths? A process that wants to (HEDDLE_STRIPE) asks
 * before it connects a queue pair; the agent asks the peer's agent, which knows whether that
 * process wants to as well and which addresses its node has. The question is a SIDR_REQ for a
 * service of Heddle's own (IBTA volume 1, 12.11). Every other implementation, and a Heddle that
 * does not know it, refuses it in the way of the specification: then the connection has one path.
 * The same is assumed of one that does not answer (docs/adr/0227).
 *
 *   private data  version, count, window (16 bits), queue pair number (32 bits)
 *   of SIDR_REP   and count addresses of the node, of 16 bytes */
#include <stdlib.h>
#include <string.h>

#include "agent/wire.h"
#include "base/clock.h"
#include "wire/be.h"
#include "wire/ib_cm.h"

#define STRIPE_SERVICE   0x0202484400000001u /* locally administered */
#define STRIPE_VERSION   1u
#define STRIPE_HEAD      8u
#define STRIPE_TRIES     8u
#define STRIPE_REPEAT_NS 50000000u
#define STRIPE_SILENT_NS 10000000000u /* one that did not answer is not asked again */
#define STRIPE_MAX_ASKS  1024u
_Static_assert(STRIPE_HEAD + UDP_MAX_ADDRESSES * 16u <= IB_CM_SIDR_REP_PRIVATE_BYTES,
               "the addresses of a node fit");
_Static_assert(UDP_MAX_ADDRESSES * 16u <= AGENT_CM_BYTES, "likewise");

/* A question that has not been answered. */
struct stripe_ask {
	struct stripe_ask *next;
	struct client *client;
	uint32_t token;
	uint32_t request_id;
	uint64_t transaction_id;
	uint8_t own[16], gid[16];
	uint32_t qpn;
	unsigned tries; /* left */
	uint64_t due_ns;
};

/* --- the asking end --- */

static void stripe_send(const struct stripe_ask *ask)
{
	uint8_t mad[MAD_BYTES];
	struct ib_cm_message request = {.kind = IB_CM_SIDR_REQ,
	                                .transaction_id = ask->transaction_id,
	                                .u.sidr_req = {.request_id = ask->request_id,
	                                               .pkey = 0xffff,
	                                               .service_id = STRIPE_SERVICE}};
	uint8_t *data = request.u.sidr_req.private_data;
	data[0] = STRIPE_VERSION;
	be16_store(data + 2, AGENT_STRIPE_WINDOW);
	be32_store(data + 4, ask->qpn);
	ib_cm_encode(&request, mad);
	management_datagram(ask->client->node, ask->own, ask->gid, mad);
}

/* Tell the process what was found out, and forget the question. */
static void stripe_tell(struct client *client, uint32_t token, unsigned count, const uint8_t *gids)
{
	struct agent_msg msg = {.kind = AGENT_STRIPED, .u.cm = {.token = token, .length = count}};
	if (count > 0)
		memcpy(msg.u.cm.data, gids, (size_t)count * 16);
	tell(client, &msg, NULL, 0);
}

static void stripe_drop(struct node_entry *node, struct stripe_ask **at)
{
	struct stripe_ask *ask = *at;
	*at = ask->next;
	node->stripe_count--;
	free(ask);
}

static bool is_silent(const struct node_entry *node, const uint8_t gid[16], uint64_t now)
{
	for (unsigned i = 0; i < AGENT_SILENT; i++)
		if (node->silent[i].until_ns > now && memcmp(node->silent[i].gid, gid, 16) == 0)
			return true;
	return false;
}

static void note_silent(struct node_entry *node, const uint8_t gid[16], uint64_t now)
{
	unsigned oldest = 0;
	if (is_silent(node, gid, now))
		return;
	for (unsigned i = 1; i < AGENT_SILENT; i++)
		if (node->silent[i].until_ns < node->silent[oldest].until_ns)
			oldest = i;
	memcpy(node->silent[oldest].gid, gid, 16);
	node->silent[oldest].until_ns = now + STRIPE_SILENT_NS;
}

static void stripe_hear(struct agent *agent, struct client *client, struct agent_request *request)
{
	const struct agent_cm *cm = &request->msg.u.cm;
	struct node_entry *node = client->node;
	(void)agent;
	uint64_t now = clock_now_ns();
	struct stripe_ask *ask = NULL;
	if (node->wires[0] != NULL && node->stripe_count < STRIPE_MAX_ASKS &&
	    !is_silent(node, cm->gid, now))
		ask = calloc(1, sizeof(*ask));
	if (ask == NULL) {
		stripe_tell(client, cm->token, 0, NULL);
		return;
	}
	ask->client = client;
	ask->token = cm->token;
	ask->qpn = cm->slot;
	memcpy(ask->own, cm->own, 16);
	memcpy(ask->gid, cm->gid, 16);
	ask->transaction_id = prng_secret();
	/* Of slot 0, which no process has. */
	ask->request_id = (uint32_t)prng_secret() & ((1u << AGENT_CM_ID_BITS) - 1);
	ask->tries = STRIPE_TRIES - 1;
	ask->due_ns = now + STRIPE_REPEAT_NS;
	ask->next = node->stripe_asks;
	node->stripe_asks = ask;
	node->stripe_count++;
	stripe_send(ask);
}

/* How many addresses the answer @rep names; 0: it says no. */
static unsigned stripe_read(const struct stripe_ask *ask, const struct ib_cm_sidr_rep *rep)
{
	const uint8_t *data = rep->private_data;
	if (rep->status != IB_CM_SIDR_OK || data[0] != STRIPE_VERSION ||
	    data[1] > UDP_MAX_ADDRESSES || be16_load(data + 2) != AGENT_STRIPE_WINDOW ||
	    be32_load(data + 4) != ask->qpn)
		return 0;
	return data[1];
}

bool stripe_answered(struct node_entry *node, const uint8_t gid[16],
                     const struct ib_cm_message *message)
{
	if (message->kind != IB_CM_SIDR_REP)
		return false;
	const struct ib_cm_sidr_rep *rep = &message->u.sidr_rep;
	for (struct stripe_ask **at = &node->stripe_asks; *at != NULL; at = &(*at)->next) {
		struct stripe_ask *ask = *at;
		if (ask->transaction_id != message->transaction_id ||
		    ask->request_id != rep->request_id || memcmp(ask->gid, gid, 16) != 0)
			continue;
		stripe_tell(ask->client, ask->token, stripe_read(ask, rep),
		            rep->private_data + STRIPE_HEAD);
		stripe_drop(node, at);
		return true;
	}
	return false;
}

/* Repeat the questions of @node that are due, and give up those that were asked often enough. */
static uint64_t stripe_repeat(struct node_entry *node, uint64_t now)
{
	uint64_t first = SERVICES_NEVER;
	for (struct stripe_ask **at = &node->stripe_asks; *at != NULL;) {
		struct stripe_ask *ask = *at;
		if (ask->due_ns <= now && ask->tries == 0) {
			note_silent(node, ask->gid, now);
			stripe_tell(ask->client, ask->token, 0, NULL);
			stripe_drop(node, at);
			continue;
		}
		if (ask->due_ns <= now) {
			ask->tries--;
			ask->due_ns = now + STRIPE_REPEAT_NS;
			stripe_send(ask);
		}
		first = ask->due_ns < first ? ask->due_ns : first;
		at = &ask->next;
	}
	return first;
}

static uint64_t stripe_sweep(struct agent *agent, uint64_t now)
{
	uint64_t first = SERVICES_NEVER;
	for (uint32_t i = 0; i < agent->node_count; i++) {
		uint64_t due = stripe_repeat(agent->nodes[i], now);
		first = due < first ? due : first;
	}
	return first;
}

static void stripe_leave(struct agent *agent, struct client *client)
{
	struct node_entry *node = client->node;
	(void)agent;
	if (node == NULL)
		return;
	for (struct stripe_ask **at = &node->stripe_asks; *at != NULL;)
		if ((*at)->client == client)
			stripe_drop(node, at);
		else
			at = &(*at)->next;
}

/* --- the end that is asked --- */

bool stripe_asked(struct node_entry *node, const uint8_t own[16], const uint8_t gid[16],
                  const struct ib_cm_message *message)
{
	if (message->kind != IB_CM_SIDR_REQ || message->u.sidr_req.service_id != STRIPE_SERVICE)
		return false;
	const uint8_t *data = message->u.sidr_req.private_data;
	uint32_t qpn = be32_load(data + 4);
	const struct client *client =
	        qpn >> 24 == 0 ? node->slots[qpn >> (24 - AGENT_SLOT_BITS)] : NULL;
	if (data[0] != STRIPE_VERSION || be16_load(data + 2) != AGENT_STRIPE_WINDOW ||
	    client == NULL || !client->stripes)
		return false;
	struct ib_cm_message answer = {.kind = IB_CM_SIDR_REP,
	                               .transaction_id = message->transaction_id,
	                               .u.sidr_rep = {.request_id = message->u.sidr_req.request_id,
	                                              .status = IB_CM_SIDR_OK,
	                                              .qpn = qpn,
	                                              .service_id = STRIPE_SERVICE}};
	uint8_t *out = answer.u.sidr_rep.private_data, mad[MAD_BYTES];
	unsigned count = 0;
	for (unsigned i = 0; i < wires_count(node); i++)
		if (!wire_address(node->wires[i])->frames)
			memcpy(out + STRIPE_HEAD + 16 * (size_t)count++,
			       wire_address(node->wires[i])->gid, 16);
	out[0] = STRIPE_VERSION;
	out[1] = (uint8_t)count;
	be16_store(out + 2, AGENT_STRIPE_WINDOW);
	be32_store(out + 4, qpn);
	ib_cm_encode(&answer, mad);
	management_datagram(node, own, gid, mad);
	return true;
}

static const struct service_kind stripe_kinds[] = {
        {AGENT_STRIPE, AGENT_MSG_BYTES(cm), false, stripe_hear},
};
const struct agent_service stripe_service = {.name = "stripe",
                                             .kinds = stripe_kinds,
                                             .kind_count = SERVICE_KINDS(stripe_kinds),
                                             .leave = stripe_leave,
                                             .sweep = stripe_sweep};
