/* The handles of a client, and packets that wait for one (VSWITCH figure 5). */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ibc/client.h"

#define GENERATION_SHIFT 16u

/* How many records of one lane are taken before the next lane has its turn. */
#define TURN_RECORDS 16u

static unsigned handle_index(const struct client *client, const struct handle *handle)
{
	unsigned i = 0;
	while (client->handles[i] != handle)
		i++;
	return i;
}

/* --- the list of posted receives --- */

static void handle_post(struct client *client, struct handle *handle)
{
	handle->state = HANDLE_POSTED;
	handle->next = NULL;
	handle->previous = client->posted_last;
	*(client->posted_last != NULL ? &client->posted_last->next : &client->posted) = handle;
	client->posted_last = handle;
}

static void handle_unpost(struct client *client, struct handle *handle)
{
	*(handle->previous != NULL ? &handle->previous->next : &client->posted) = handle->next;
	*(handle->next != NULL ? &handle->next->previous : &client->posted_last) = handle->previous;
	handle->next = handle->previous = NULL;
}

/* --- opening and closing --- */

struct handle *client_open_handle(struct client *client, uint32_t length, int *result)
{
	unsigned i = 0;
	while (i < IBC_LIMIT_HANDLES && client->handles[i] != NULL &&
	       client->handles[i]->state != HANDLE_CLOSED)
		i++;
	*result = IBC_MAXHANDLE_USED;
	if (i == IBC_LIMIT_HANDLES)
		return NULL;
	struct handle *handle = client->handles[i];
	uint8_t *buffer = malloc(length > 0 ? length : 1);
	*result = IBC_MALLOC_FAILED;
	if (buffer != NULL && handle == NULL)
		handle = client->handles[i] = calloc(1, sizeof(*handle));
	if (handle == NULL || buffer == NULL) {
		free(buffer);
		return NULL;
	}
	/* A closed handle keeps its generation, so that its old numbers stay invalid. */
	uint16_t generation = handle->generation;
	*handle = (struct handle){.generation = generation, .length = length, .buffer = buffer};
	handle_post(client, handle);
	client->handle_count++;
	*result = IBC_SUCCESS;
	return handle;
}

IBC_HANDLE client_handle_number(const struct client *client, const struct handle *handle)
{
	return (IBC_HANDLE)((uint32_t)handle->generation << GENERATION_SHIFT |
	                    (handle_index(client, handle) + 1));
}

struct handle *client_find_handle(struct client *client, IBC_HANDLE number)
{
	uint32_t index = ((uint32_t)number & 0xffffu) - 1;
	struct handle *handle = index < IBC_LIMIT_HANDLES ? client->handles[index] : NULL;
	if (handle == NULL || handle->state == HANDLE_CLOSED ||
	    handle->generation != (uint32_t)number >> GENERATION_SHIFT)
		return NULL;
	return handle;
}

void client_close_handle(struct client *client, struct handle *handle)
{
	bool holds = handle->state == HANDLE_SIGNALLED;
	if (holds)
		client->signalled--;
	else
		handle_unpost(client, handle);
	handle->state = HANDLE_CLOSED;
	handle->generation = (handle->generation + 1) & 0x7fff; /* numbers are not negative */
	free(handle->buffer);
	handle->buffer = NULL;
	client->handle_count--;
	if (holds) { /* nobody will ever read it */
		client->counters.Discarded++;
		client_reject(client, &handle->came, IBC_REASON_NO_RECEIVE);
	}
}

/* --- arriving --- */

/* May @handle ever get @record? */
static bool handle_takes(const struct handle *handle, const struct record *record)
{
	if (handle->matches && !answer_is_wanted(&handle->wanted, record))
		return false;
	return record->packet.payload_bytes <= handle->length;
}

/* The handle for @record: one that waits for just this answer, or the first that takes it. */
static struct handle *handle_for(const struct client *client, const struct record *record)
{
	struct handle *found = NULL;
	for (struct handle *at = client->posted; at != NULL; at = at->next)
		if (handle_takes(at, record)) {
			if (at->matches)
				return at;
			if (found == NULL)
				found = at;
		}
	return found;
}

/* Could a handle that is open take it later? Without any handle, one may be opened. */
static bool has_hope(const struct client *client, const struct record *record)
{
	if (client->handle_count == 0)
		return true;
	for (unsigned i = 0; i < IBC_LIMIT_HANDLES && client->handles[i] != NULL; i++)
		if (client->handles[i]->state != HANDLE_CLOSED && !client->handles[i]->matches &&
		    handle_takes(client->handles[i], record))
			return true;
	return false;
}

static void describe_packet(const struct client *client, const struct record *record,
                            struct IBC_Info *info)
{
	const struct ibc_packet *packet = &record->packet;
	bool hardware = vswitch_is_hardware(record->inport);
	const struct vswitch_nic_port *nic =
	        hardware ? &client->member.board->vswitch.nic_ports[record->inport] : NULL;
	*info = (struct IBC_Info){.Type = (int)packet->type,
	                          .Reason = (int)packet->reason,
	                          .Source = packet->source_apid,
	                          .Destination = packet->dest_apid,
	                          .Client = record->outport,
	                          .Transaction = packet->transaction,
	                          .Length = packet->payload_bytes,
	                          .GUID = hardware ? nic->guid : 0,
	                          .Port = hardware ? nic->number : record->inport,
	                          .ByRoute = record->by_route,
	                          .Route = {.Reverse = packet->route.reverse,
	                                    .Pointer = packet->route.pointer,
	                                    .Hops = packet->route.hops}};
	memcpy(info->Route.Ports, packet->route.ports, packet->route.hops);
}

/* Figure 5: from non-signalled to signalled. */
static void handle_signal(struct client *client, struct handle *handle, const struct record *record)
{
	handle_unpost(client, handle);
	handle->state = HANDLE_SIGNALLED;
	client->signalled++;
	client->counters.Received++;
	describe_packet(client, record, &handle->info);
	handle->came = *record;
	handle->came.packet.payload = NULL;
	if (record->packet.payload_bytes > 0)
		memcpy(handle->buffer, record->packet.payload, record->packet.payload_bytes);
}

static bool client_keep(struct client *client, const struct record *record, unsigned from,
                        unsigned limit)
{
	if (client->kept_from[from] >= limit || !has_hope(client, record))
		return false;
	struct kept *kept = malloc(sizeof(*kept) + record->packet.payload_bytes);
	if (kept == NULL)
		return false;
	kept->next = NULL;
	kept->from = (uint8_t)from;
	kept->arrived_ns = clock_now_ns();
	kept->record = *record;
	kept->record.packet.payload = kept->payload;
	if (record->packet.payload_bytes > 0)
		memcpy(kept->payload, record->packet.payload, record->packet.payload_bytes);
	*(client->kept_last != NULL ? &client->kept_last->next : &client->kept) = kept;
	client->kept_last = kept;
	client->kept_count++;
	client->kept_from[from]++;
	return true;
}

/* @limit: how many packets of this sender are kept at most. */
static void accept_within(struct client *client, const struct record *record, unsigned from,
                          unsigned limit)
{
	struct handle *handle = handle_for(client, record);
	if (client->capture != NULL)
		client_capture(client, record, true);
	if (handle != NULL) {
		handle_signal(client, handle, record);
	} else if (!client_keep(client, record, from, limit)) {
		client->counters.Discarded++;
		client_reject(client, record, IBC_REASON_NO_RECEIVE);
	}
}

void client_accept(struct client *client, const struct record *record, unsigned from)
{
	accept_within(client, record, from, IBC_LIMIT_KEPT);
}

/* Give kept packets to handles that are free now, in order, and NACK those that are too old. */
static void client_settle(struct client *client)
{
	uint64_t now = clock_now_ns(), limit = IBC_LIMIT_KEPT_MS * UINT64_C(1000000);
	struct kept **at = &client->kept, *last = NULL;
	while (*at != NULL) {
		struct kept *kept = *at;
		struct handle *handle = handle_for(client, &kept->record);
		bool old = now - kept->arrived_ns > limit;
		if (handle == NULL && !old) {
			last = kept;
			at = &kept->next;
			continue;
		}
		*at = kept->next;
		if (client->kept_last == kept)
			client->kept_last = last; /* a NACK to ourselves is kept behind it */
		client->kept_count--;
		client->kept_from[kept->from]--;
		if (handle != NULL) {
			handle_signal(client, handle, &kept->record);
		} else {
			client->counters.Discarded++;
			client_reject(client, &kept->record, IBC_REASON_NO_RECEIVE);
		}
		free(kept);
	}
	client->kept_last = last;
}

void client_drop_kept(struct client *client)
{
	while (client->kept != NULL) {
		struct kept *kept = client->kept;
		client->kept = kept->next;
		free(kept);
	}
	client->kept_last = NULL;
	client->kept_count = 0;
}

uint64_t client_blocked(const struct client *client)
{
	uint64_t blocked = 0;
	if (client->posted == NULL)
		return UINT64_MAX;
	for (uint64_t left = client->member.known; left != 0 && client->kept != NULL;
	     left &= left - 1)
		if (client->kept_from[__builtin_ctzll(left)] >= IBC_LIMIT_KEPT)
			blocked |= left & -left;
	return blocked;
}

/* Take at most @count records from the lane from @from. What nobody can use yet stays there, and
 * its sender waits. If it is @leaving, the lane goes with it, so all of it is taken and kept. */
static void client_take(struct client *client, unsigned from, unsigned count, bool leaving)
{
	struct member *member = &client->member;
	struct record record;
	enum record_verdict verdict;
	for (unsigned i = 0; i < count && !ring_quiet(&member->peers[from].end.rx); i++) {
		if (!leaving &&
		    (client->posted == NULL || client->kept_from[from] >= IBC_LIMIT_KEPT))
			return;
		enum member_took took = member_take(member, from, client->copy, &record, &verdict);
		if (took == MEMBER_NOTHING)
			return;
		if (took == MEMBER_RECORD)
			accept_within(client, &record, from,
			              leaving ? IBC_LIMIT_KEPT + BOARD_LANE_SLOTS : IBC_LIMIT_KEPT);
		else if (verdict == RECORD_DAMAGED)
			client->counters.Damaged++;
		else
			client->counters.Forged++;
	}
}

static void client_lane_ends(struct member *member, unsigned from)
{
	client_take((struct client *)(void *)member, from, BOARD_LANE_SLOTS, true);
}

void client_reject_all(struct client *client)
{
	for (uint64_t left = client->member.known; left != 0; left &= left - 1)
		client_take(client, (unsigned)__builtin_ctzll(left), BOARD_LANE_SLOTS, true);
	for (unsigned i = 0; i < IBC_LIMIT_HANDLES && client->handles[i] != NULL; i++)
		if (client->handles[i]->state != HANDLE_CLOSED)
			client_close_handle(client, client->handles[i]);
	for (const struct kept *at = client->kept; at != NULL; at = at->next)
		client_reject(client, &at->record, IBC_REASON_NO_RECEIVE);
}

const struct member_owner client_owner = {.leaves = client_lane_ends};

bool client_drive(struct client *client)
{
	struct member *member = &client->member;
	unsigned signalled = client->signalled;
	member_look(member);
	if (client->kept != NULL)
		client_settle(client);
	for (uint64_t left = member->known; left != 0; left &= left - 1)
		client_take(client, (unsigned)__builtin_ctzll(left), TURN_RECORDS, false);
	return client->signalled != signalled;
}

void client_fetch(struct client *client, struct handle *handle, void *buffer, struct IBC_Info *info)
{
	if (buffer != NULL && handle->info.Length > 0)
		memcpy(buffer, handle->buffer, handle->info.Length);
	if (info != NULL)
		*info = handle->info;
	client->signalled--;
	handle_post(client, handle);
}
