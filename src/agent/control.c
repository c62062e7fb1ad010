/* The apertures service, for programs that are not trusted: it draws the numbers of their entries,
 * and passes their out-of-band packets on, in both directions, if these agree with what it holds
 * (managed.h). Set-up only: data never comes here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/managed.h"
#include "agent/remote.h"
#include "base/log.h"

static struct managed_end control_end(const struct client *client)
{
	return (struct managed_end){.guid = client->node->guid, .slot = client->slot};
}

struct managed *control_book(struct client *client)
{
	if (client->managed == NULL)
		client->managed = calloc(1, sizeof(*client->managed));
	if (client->managed != NULL)
		client->managed->self = control_end(client);
	return client->managed;
}

static struct client *control_find(const struct agent *agent, uint64_t guid, uint32_t slot)
{
	for (uint32_t i = 0; i < agent->node_count && slot < AGENT_MAX_SLOTS; i++)
		if (agent->nodes[i]->guid == guid)
			return agent->nodes[i]->slots[slot];
	return NULL;
}

void control_arm(struct agent *agent, struct client *client, struct agent_request *request)
{
	struct agent_msg *msg = &request->msg;
	struct managed *book = ci_is_untrusted(agent, client) ? control_book(client) : NULL;
	/* The program sees many of these, and must not be able to compute the next. */
	uint64_t nonce = prng_secret();
	uint32_t sequence = (uint32_t)prng_secret();
	msg->u.cm.error = book == NULL                                          ? EPERM
	                  : !managed_arm(book, msg->u.cm.slot, nonce, sequence) ? ENOSPC
	                                                                        : 0;
	remote_sync(client);
	msg->kind = AGENT_CI_ARMED;
	msg->u.cm.guid = msg->u.cm.error == 0 ? nonce : 0;
	msg->u.cm.slot = msg->u.cm.error == 0 ? sequence : 0;
	tell(client, msg, NULL, 0);
}

void control_disarm(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)agent;
	if (client->managed != NULL)
		managed_disarm(client->managed, request->msg.u.cm.slot);
	remote_sync(client);
}

/* May @packet go from @from to @to, of which one at least is not trusted? *late: it may not, but no
 * more than that: what it is for has ended. */
static enum managed_verdict control_judge(struct agent *agent, struct client *from,
                                          struct client *to, const struct ci_packet *packet,
                                          bool *late)
{
	static const uint8_t any[16];
	const struct managed_end sender = control_end(from), receiver = control_end(to);
	struct managed *book = ci_is_untrusted(agent, from) ? control_book(from) : NULL;
	enum managed_verdict verdict = MANAGED_PASS;
	bool to_port = packet->kind == CI_CONNECT || packet->kind == CI_STATUS;
	/* A destination is the holder of a port, or the peer of an entry. */
	if (to_port &&
	    cm_holder(to->node, AGENT_CI_SPACE, any, (uint16_t)ci_row(packet->index), 0) != to)
		return MANAGED_PEER;
	if (book != NULL)
		verdict = managed_sends(book, &receiver, packet);
	remote_sync(from);
	if (verdict != MANAGED_PASS)
		return verdict;
	book = ci_is_untrusted(agent, to) ? control_book(to) : NULL;
	if (book != NULL)
		verdict = managed_gets(book, &sender, packet);
	remote_sync(to);
	*late = verdict == MANAGED_NO_ENTRY || verdict == MANAGED_NUMBERS;
	return verdict;
}

void control_pass(struct agent *agent, struct client *client, struct agent_request *request)
{
	const struct agent_cm *cm = &request->msg.u.cm;
	if (cm->options != 0) { /* to another machine */
		remote_pass(agent, client, cm);
		return;
	}
	struct client *to = control_find(agent, cm->guid, cm->slot);
	struct agent_msg out = {.kind = AGENT_CI_CONTROL};
	struct ci_reader reader;
	struct ci_packet packet;
	enum ci_verdict more;
	if (to == NULL || to->dead || cm->length > sizeof(cm->data) ||
	    (!ci_is_untrusted(agent, client) && !ci_is_untrusted(agent, to)))
		return; /* the link to one that has gone is down already */
	ci_open(&reader, cm->data, cm->length);
	while ((more = ci_next(&reader, &packet)) == CI_OK) {
		bool late = false;
		enum managed_verdict verdict = control_judge(agent, client, to, &packet, &late);
		if (verdict == MANAGED_PASS)
			continue;
		if (late)
			return;
		client->refused++;
		log_info("%s (%d): a packet of kind %u to %s %s: dropped", client->program,
		         (int)client->pid, packet.kind, to->program, managed_verdict_str(verdict));
		return; /* all of the frame: it is passed on as it is, or not at all */
	}
	if (more != CI_END) {
		client->refused++;
		return;
	}
	out.u.cm.guid = client->node->guid; /* the source: who sent it, not what it says */
	out.u.cm.slot = client->slot;
	out.u.cm.length = cm->length;
	memcpy(out.u.cm.data, cm->data, cm->length);
	(void)outbox_send(to, &out, NULL, 0); /* what finds no room is repeated */
}

void control_leave(struct client *client)
{
	remote_leave(client);
	free(client->managed);
	client->managed = NULL;
}
