/* A peer with an open connection to the messaging layer: any messages and immediate data, in any
 * order with frames of our own and completions. The first byte chooses mode, model and owners; then
 * records: what (1), bytes (1), data. Nothing outside of the pools is touched, the layer never
 * asserts, and it says why when it gives up. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cable/splitnet.h"
#include "wire/be.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct splitnet net;

static void take_any(struct splitnet_end *end, const uint8_t *frame, uint32_t bytes)
{
	/* Every byte can be read. */
	uint8_t sum = 0;
	for (uint32_t i = 0; i < bytes; i++)
		sum ^= frame[i];
	end->expected += sum & 1;
}

/* Complete the oldest operation of @end. */
static void complete(struct splitnet_end *end)
{
	for (uint32_t i = 0; i < net.event_count; i++) {
		struct splitnet_event event = net.events[i];
		memmove(&net.events[i], &net.events[i + 1],
		        (net.event_count - i - 1) * sizeof(event));
		net.event_count--;
		end->in_flight[event.op.channel]--;
		split_done(&end->split, event.id, true);
		return;
	}
}

static void act(struct splitnet_end *end, uint8_t what, const uint8_t *data, uint8_t bytes)
{
	static uint8_t message[PUSH_MAX_BYTES];
	uint32_t receive = 0;
	switch (what % 7) {
	case 0:
		memcpy(message, data, bytes);
		split_received(&end->split, SPLIT_CONTROL, message, bytes, 0);
		break;
	case 1:
		while (receive < SPLIT_RECEIVES && end->receive_busy[SPLIT_DATA][receive])
			receive++;
		if (receive == SPLIT_RECEIVES)
			break;
		memcpy(end->receives[SPLIT_DATA][receive], data, bytes);
		end->receive_busy[SPLIT_DATA][receive] =
		        split_received(&end->split, SPLIT_DATA, end->receives[SPLIT_DATA][receive],
		                       bytes, receive);
		break;
	case 2:
		if (bytes >= 4)
			split_indicated(&end->split, be32_load(data));
		break;
	case 3:
		complete(end);
		break;
	case 4:
		splitnet_send(end, 1u + bytes);
		break;
	case 5:
		end->blocked = !end->blocked;
		break;
	default:
		net.now_ns += (uint64_t)bytes * 10000000;
		split_pump(&end->split, net.now_ns);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	struct split_config config[2];
	for (unsigned i = 0; i < 2; i++) {
		config[i] = splitnet_config(i, data[0] & 1 ? SPLIT_SEND : SPLIT_RDMA,
		                            (enum split_model)((data[0] >> 1 & 3) % 3), data[0] & 8,
		                            data[0] & 16, 512);
		config[i].by_message = data[0] & 32;
	}
	splitnet_open(&net, 1, config);
	struct splitnet_end *end = &net.end[data[0] >> 7];
	end->check = take_any;
	splitnet_pump(&net);
	net.event_count = 0;
	memset(end->split.message_busy, 0, sizeof(end->split.message_busy));
	memset(end->in_flight, 0, sizeof(end->in_flight));
	for (size_t at = 1; at + 2 <= size && end->split.state != SPLIT_FAILED;) {
		uint8_t bytes = data[at + 1];
		if (bytes > size - at - 2)
			break;
		act(end, data[at], data + at + 2, bytes);
		at += 2u + bytes;
	}
	assert(end->split.state != SPLIT_FAILED || end->split.verdict != SPLIT_OK);
	splitnet_close(&net);
	return 0;
}
