/* Which out-of-band packets of a program that is not trusted pass. See managed.h. */
#include "agent/managed.h"

#include <stddef.h>
#include <string.h>

static struct managed_entry *managed_find(struct managed *book, uint32_t row)
{
	for (uint32_t i = 0; i < book->top; i++)
		if (book->entries[i].state != MANAGED_FREE && book->entries[i].row == row)
			return &book->entries[i];
	return NULL;
}

bool managed_arm(struct managed *book, uint32_t row, uint64_t nonce, uint32_t sequence)
{
	struct managed_entry *entry = managed_find(book, row);
	for (uint32_t i = 0; i < book->top && entry == NULL; i++)
		if (book->entries[i].state == MANAGED_FREE)
			entry = &book->entries[i];
	if (entry == NULL && book->top < AGENT_CI_ENTRIES)
		entry = &book->entries[book->top++];
	if (entry == NULL)
		return false;
	*entry = (struct managed_entry){.state = MANAGED_ARMED,
	                                .row = row,
	                                .nonce = nonce,
	                                .sequence = sequence,
	                                .forwarded = entry->forwarded};
	book->changed = entry;
	return true;
}

void managed_disarm(struct managed *book, uint32_t row)
{
	struct managed_entry *entry = managed_find(book, row);
	book->changed = entry;
	if (entry != NULL)
		entry->state = MANAGED_FREE;
}

static bool managed_same(const struct managed_end *a, const struct managed_end *b)
{
	return a->guid == b->guid && a->slot == b->slot && a->remote == b->remote &&
	       memcmp(a->host, b->host, sizeof(a->host)) == 0;
}

/* Does @index belong to @end? The slots of another machine are for that machine to check. */
static bool managed_owns(const struct managed_end *end, uint32_t index)
{
	return end->remote || ci_slot(index) == end->slot;
}

/* The entry of @index; NULL: the program has no such entry. */
static struct managed_entry *managed_by_index(struct managed *book, uint32_t index)
{
	return ci_slot(index) == book->self.slot ? managed_find(book, ci_row(index)) : NULL;
}

/* --- calls --- */

static struct managed_call *managed_find_call(struct managed *book, const struct managed_end *from,
                                              uint32_t index, uint64_t nonce)
{
	for (uint32_t i = 0; i < MANAGED_CALLS; i++) {
		struct managed_call *call = &book->calls[i];
		if (call->kind != 0 && call->index == index && call->nonce == nonce &&
		    managed_same(&call->from, from))
			return call;
	}
	return NULL;
}

/* The oldest is forgotten. One that still waits is repeated by its sender, and comes back. */
static void managed_remember(struct managed *book, const struct managed_call *call)
{
	if (managed_find_call(book, &call->from, call->index, call->nonce) == NULL)
		book->calls[book->next_call++ % MANAGED_CALLS] = *call;
}

/* ACCEPT passes: @entry is connected to the end that @peer offered. */
static void managed_open(struct managed *book, struct managed_entry *entry,
                         const struct managed_call *peer)
{
	entry->state = MANAGED_OPEN;
	entry->peer = peer->from;
	entry->peer_index = peer->index;
	entry->peer_nonce = peer->nonce;
	entry->peer_rolls = peer->rolls;
	book->changed = entry;
}

/* --- what it sends --- */

static enum managed_verdict managed_check_numbers(const struct managed_entry *entry, uint64_t nonce)
{
	if (entry == NULL)
		return MANAGED_NO_ENTRY;
	return entry->nonce == nonce ? MANAGED_PASS : MANAGED_NUMBERS;
}

/* CONNECT or STATUS: from now on @to may answer. */
static enum managed_verdict managed_call_out(struct managed_entry *entry,
                                             const struct managed_end *to)
{
	if (entry->state != MANAGED_ARMED)
		return managed_same(&entry->peer, to) ? MANAGED_PASS : MANAGED_PEER;
	entry->state = MANAGED_CALLING;
	entry->peer = *to;
	return MANAGED_PASS;
}

static enum managed_verdict managed_sends_connect(struct managed *book,
                                                  const struct managed_end *to,
                                                  const struct ci_packet *packet)
{
	struct ci_offer offer;
	if (ci_get_offer(packet, &offer) != CI_OK || packet->index != ci_index(0, offer.port))
		return MANAGED_KIND;
	struct managed_entry *entry = managed_by_index(book, offer.index);
	enum managed_verdict verdict = managed_check_numbers(entry, offer.nonce);
	if (verdict == MANAGED_PASS && entry->sequence != offer.sequence)
		verdict = MANAGED_NUMBERS;
	return verdict == MANAGED_PASS ? managed_call_out(entry, to) : verdict;
}

static enum managed_verdict managed_sends_accept(struct managed *book, const struct managed_end *to,
                                                 const struct ci_packet *packet)
{
	struct ci_offer offer;
	if (ci_get_offer(packet, &offer) != CI_OK)
		return MANAGED_KIND;
	const struct managed_call *call = managed_find_call(book, to, packet->index, packet->nonce);
	struct managed_entry *entry = managed_by_index(book, offer.index);
	enum managed_verdict verdict = managed_check_numbers(entry, offer.nonce);
	if (verdict != MANAGED_PASS)
		return verdict;
	if (entry->sequence != offer.sequence)
		return MANAGED_NUMBERS;
	if (call == NULL || call->kind != CI_CONNECT)
		return MANAGED_UNASKED;
	if (entry->state != MANAGED_ARMED &&
	    (entry->state != MANAGED_OPEN || !managed_same(&entry->peer, to) ||
	     entry->peer_index != call->index || entry->peer_nonce != call->nonce))
		return MANAGED_PEER; /* one set of numbers is for one connection */
	managed_open(book, entry, call);
	return MANAGED_PASS;
}

/* CLOSE, ALIVE, ALIVEACK and ERROR go to the peer of an open entry. */
static enum managed_verdict managed_sends_note(struct managed *book, const struct managed_end *to,
                                               const struct ci_packet *packet)
{
	struct ci_note note = ci_get_note(packet);
	if (packet->kind == CI_ERROR && note.element != CI_RECEIVER && note.element != CI_SENDER)
		return MANAGED_POSES;
	for (uint32_t i = 0; i < book->top; i++) {
		const struct managed_entry *entry = &book->entries[i];
		if (entry->state != MANAGED_OPEN || entry->peer_index != packet->index ||
		    entry->peer_nonce != packet->nonce || !managed_same(&entry->peer, to))
			continue;
		bool own = packet->kind != CI_ALIVE ||
		           note.index == ci_index(book->self.slot, entry->row);
		return own ? MANAGED_PASS : MANAGED_POSES;
	}
	return MANAGED_PEER;
}

enum managed_verdict managed_sends(struct managed *book, const struct managed_end *to,
                                   const struct ci_packet *packet)
{
	const struct managed_call *call;
	struct ci_status status;
	struct managed_entry *entry;
	enum managed_verdict verdict;
	book->changed = NULL;
	switch (packet->kind) {
	case CI_CONNECT:
		return managed_sends_connect(book, to, packet);
	case CI_ACCEPT:
		return managed_sends_accept(book, to, packet);
	case CI_REJECT:
	case CI_STATUSACK:
		call = managed_find_call(book, to, packet->index, packet->nonce);
		return call != NULL && (packet->kind == CI_REJECT || call->kind == CI_STATUS)
		               ? MANAGED_PASS
		               : MANAGED_UNASKED;
	case CI_STATUS:
		status = ci_get_status(packet);
		entry = managed_by_index(book, status.index);
		verdict = managed_check_numbers(entry, status.nonce);
		return verdict == MANAGED_PASS ? managed_call_out(entry, to) : verdict;
	case CI_CLOSE:
	case CI_ALIVE:
	case CI_ALIVEACK:
	case CI_ERROR:
		return managed_sends_note(book, to, packet);
	default:
		return MANAGED_KIND;
	}
}

/* --- what it gets --- */

static enum managed_verdict managed_gets_accept(struct managed *book, struct managed_entry *entry,
                                                const struct managed_end *from,
                                                const struct ci_packet *packet)
{
	struct ci_offer offer;
	if (ci_get_offer(packet, &offer) != CI_OK)
		return MANAGED_KIND;
	if (!managed_owns(from, offer.index))
		return MANAGED_POSES;
	if (entry->state == MANAGED_OPEN)
		return entry->peer_index == offer.index && entry->peer_nonce == offer.nonce
		               ? MANAGED_PASS /* once more */
		               : MANAGED_PEER;
	if (entry->state != MANAGED_CALLING)
		return MANAGED_UNASKED;
	const struct managed_call peer = {.kind = CI_ACCEPT,
	                                  .index = offer.index,
	                                  .nonce = offer.nonce,
	                                  .rolls = offer.nonce_every != 0,
	                                  .from = *from};
	managed_open(book, entry, &peer);
	return MANAGED_PASS;
}

/* The agent of another machine says that the peer has gone. It does not know our nonce, but repeats
 * that of the ALIVE that it answers. */
static bool managed_is_death_notice(const struct managed_entry *entry,
                                    const struct managed_end *from, const struct ci_packet *packet)
{
	return from->remote && packet->kind == CI_ERROR &&
	       ci_get_note(packet).element == CI_AGENT && entry != NULL &&
	       entry->state == MANAGED_OPEN && entry->peer_nonce == packet->nonce &&
	       managed_same(&entry->peer, from);
}

/* What is addressed to an entry. */
static enum managed_verdict managed_gets_answer(struct managed *book,
                                                const struct managed_end *from,
                                                const struct ci_packet *packet)
{
	struct managed_entry *entry = managed_by_index(book, packet->index);
	enum managed_verdict verdict = managed_check_numbers(entry, packet->nonce);
	if (managed_is_death_notice(entry, from, packet))
		return MANAGED_PASS;
	if (verdict != MANAGED_PASS)
		return verdict;
	if (entry->state == MANAGED_ARMED || !managed_same(&entry->peer, from))
		return MANAGED_PEER;
	if (packet->kind == CI_ACCEPT)
		return managed_gets_accept(book, entry, from, packet);
	/* The agent of another machine speaks for the processes there. */
	uint16_t element = packet->kind == CI_ERROR && !from->remote ? ci_get_note(packet).element
	                                                             : CI_RECEIVER;
	return element == CI_RECEIVER || element == CI_SENDER ? MANAGED_PASS : MANAGED_POSES;
}

enum managed_verdict managed_gets(struct managed *book, const struct managed_end *from,
                                  const struct ci_packet *packet)
{
	struct ci_offer offer;
	struct ci_status status;
	struct managed_call call;
	book->changed = NULL;
	switch (packet->kind) {
	case CI_CONNECT:
		if (ci_get_offer(packet, &offer) != CI_OK ||
		    packet->index != ci_index(0, offer.port))
			return MANAGED_KIND;
		if (!managed_owns(from, offer.index))
			return MANAGED_POSES;
		call = (struct managed_call){.kind = CI_CONNECT,
		                             .index = offer.index,
		                             .nonce = offer.nonce,
		                             .rolls = offer.nonce_every != 0,
		                             .from = *from};
		managed_remember(book, &call);
		return MANAGED_PASS;
	case CI_STATUS:
		status = ci_get_status(packet);
		if (!managed_owns(from, status.index))
			return MANAGED_POSES;
		call = (struct managed_call){.kind = CI_STATUS,
		                             .index = status.index,
		                             .nonce = status.nonce,
		                             .from = *from};
		managed_remember(book, &call);
		return MANAGED_PASS;
	case CI_ACCEPT:
	case CI_REJECT:
	case CI_CLOSE:
	case CI_ALIVE:
	case CI_ALIVEACK:
	case CI_ERROR:
	case CI_STATUSACK:
		return managed_gets_answer(book, from, packet);
	default:
		return MANAGED_KIND;
	}
}

const char *managed_verdict_str(enum managed_verdict verdict)
{
	static const char *const texts[MANAGED_VERDICT_COUNT] = {
	        [MANAGED_PASS] = "passes",
	        [MANAGED_KIND] = "is not an out-of-band packet",
	        [MANAGED_NO_ENTRY] = "names an entry that does not exist",
	        [MANAGED_NUMBERS] = "has numbers that are not the agent's",
	        [MANAGED_PEER] = "belongs to no connection between the two",
	        [MANAGED_UNASKED] = "answers nothing",
	        [MANAGED_POSES] = "poses as another",
	};
	return texts[verdict];
}
