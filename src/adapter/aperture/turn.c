/* Frames that come in, turn by turn. With a budget (hdl_aperture_budget()), one turn of the adapter
 * writes so many bytes into apertures and no more: a write beyond that stalls, and the rest of its
 * frame with it. Frames that come meanwhile are held, in order, until the next turn; sockets are
 * not read. What is held is not acknowledged, so that senders wait. See aperture.h. */
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"

struct turn_frame {
	struct turn_frame *next;
	struct ap_path from;
	size_t bytes;
	uint8_t frame[];
};

/* What a held frame costs, however short it is. */
static size_t turn_cost(size_t bytes)
{
	return sizeof(struct turn_frame) + bytes;
}

/* Keep the frame for later. One for which there is no room gets lost, as on a network. */
static void turn_hold(struct apertures *apertures, const uint8_t *frame, size_t bytes,
                      const struct ap_path *from)
{
	if (bytes == 0 || apertures->held_bytes + turn_cost(bytes) > APERTURE_HELD_BYTES)
		return;
	struct turn_frame *held = malloc(turn_cost(bytes));
	if (held == NULL)
		return;
	held->next = NULL;
	held->from = *from;
	held->bytes = bytes;
	memcpy(held->frame, frame, bytes);
	apertures->held_bytes += turn_cost(bytes);
	*apertures->held_end = held;
	apertures->held_end = &held->next;
}

void apertures_take_in(struct apertures *apertures, const uint8_t *frame, size_t bytes,
                       const struct ap_path *from)
{
	if (__builtin_expect(apertures_are_stalled(apertures), 0))
		turn_hold(apertures, frame, bytes, from);
	else
		ap_take(&apertures->node, frame, bytes, from);
	if (apertures->node.stalled || apertures->node.write_budget != 0)
		apertures->port.skip = 0; /* the next drive begins a turn */
}

unsigned apertures_turn(struct apertures *apertures)
{
	unsigned count = apertures_are_stalled(apertures);
	ap_turn(&apertures->node);
	struct turn_frame *frame;
	while ((frame = apertures->held) != NULL && ap_may_take(&apertures->node)) {
		apertures->held = frame->next;
		if (apertures->held == NULL)
			apertures->held_end = &apertures->held;
		apertures->held_bytes -= turn_cost(frame->bytes);
		ap_take(&apertures->node, frame->frame, frame->bytes, &frame->from);
		free(frame);
	}
	return count;
}

void apertures_drop_held(struct apertures *apertures)
{
	for (struct turn_frame *frame; (frame = apertures->held) != NULL; free(frame))
		apertures->held = frame->next;
	apertures->held_end = &apertures->held;
	apertures->held_bytes = 0;
}

int hdl_aperture_budget(struct hdl_adapter *adapter, uint32_t bytes)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return -HDL_EINVAL;
	struct apertures *apertures = apertures_begin(adapter);
	if (apertures == NULL)
		return -HDL_ENOMEM;
	adapter_lock(adapter);
	apertures->node.write_budget = apertures->node.write_left = bytes;
	adapter_unlock(adapter);
	return 0;
}
