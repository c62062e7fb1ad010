/* Hostile pointers in an event queue and a circular queue: the input is a row of steps, some
 * honest, some a write of any value to any word of the shared blocks. Nobody may touch a byte
 * outside the blocks (the sanitizers look), the private pointers keep their invariants, and a
 * writer never writes more than it has been given room for. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "queue/cring.h"
#include "queue/evring.h"

#define EVENTS 32u
#define WORDS  16u
#define BYTES  1024u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at;
	size_t left;
};

static uint8_t next(struct input *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->at++;
}

static uint64_t next_word(struct input *in)
{
	uint8_t kind = next(in);
	if (kind < 128)
		return kind;
	if (kind == 128)
		return UINT64_MAX - next(in);
	uint64_t value = 0;
	for (int i = 0; i < 8; i++)
		value = value << 8 | next(in);
	return value;
}

static void scribble(struct input *in, void *memory, size_t bytes)
{
	size_t word = (next(in) | (size_t)next(in) << 8) % (bytes / 8);
	uint64_t value = next_word(in);
	memcpy((unsigned char *)memory + word * 8, &value, sizeof(value));
}

static void check_writer(const struct pring_writer *w)
{
	assert(w->wrptr - w->rdptr <= w->units);
}

static void check_reader(const struct pring_reader *r)
{
	assert(r->wrptr - r->rdptr <= r->units);
}

static void events_step(struct input *in, struct evring_writer *w, struct evring_reader *r,
                        struct hdl_port_event *last)
{
	unsigned char data[256] = {0};
	uint64_t bytes = 0;
	struct hdl_port_event event = {.type = (uint16_t)(next(in) % HDL_PORT_EVENT_TYPES)};
	switch (next(in) % 6) {
	case 0:
		evring_put(w, &event, NULL, 0);
		break;
	case 1:
		evring_put(w, &event, data, next(in));
		break;
	case 2:
		evring_take(r, last, 1);
		break;
	case 3:
		if (evring_read(r, last, data, next(in), &bytes) == EVRING_READ)
			assert(bytes <= 255);
		break;
	case 4:
		evring_lose(w);
		evring_tell_lost(w);
		break;
	default:
		if (!evring_arm(r))
			evring_disarm(r);
	}
	check_writer(&w->events);
	check_writer(&w->words);
	check_reader(&r->events);
	check_reader(&r->words);
}

static void bytes_step(struct input *in, struct cring *ring)
{
	unsigned char data[255] = {0};
	uint8_t bytes = next(in);
	uint64_t before = ring->out.wrptr;
	switch (next(in) % 4) {
	case 0:
		assert(cring_write(ring, data, bytes) <= bytes);
		assert(ring->out.wrptr - before <= bytes);
		break;
	case 1:
		cring_publish(ring);
		break;
	case 2:
		assert(cring_read(ring, data, bytes) <= bytes);
		break;
	default:
		cring_release(ring, bytes & 1);
		cring_arm_room(ring);
		cring_arm_data(ring);
	}
	check_writer(&ring->out);
	check_reader(&ring->in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	size_t queue_bytes = evring_bytes(EVENTS, WORDS), ring_bytes = cring_block_bytes(BYTES);
	void *queue = aligned_alloc(64, queue_bytes), *block[2];
	struct evring_writer w;
	struct evring_reader r;
	struct cring ring[2];
	struct hdl_port_event last = {0};
	for (int i = 0; i < 2; i++)
		block[i] = aligned_alloc(64, ring_bytes);
	if (queue == NULL || block[0] == NULL || block[1] == NULL)
		abort();
	memset(queue, 0, queue_bytes);
	memset(block[0], 0, ring_bytes);
	memset(block[1], 0, ring_bytes);
	evring_writer_init(&w, queue, EVENTS, WORDS);
	evring_reader_init(&r, queue, EVENTS, WORDS);
	for (int i = 0; i < 2; i++)
		cring_init(&ring[i], block[i], BYTES, BYTES, block[!i], NULL);
	while (in.left > 0) {
		switch (next(&in) % 6) {
		case 0:
			scribble(&in, queue, queue_bytes);
			break;
		case 1:
			scribble(&in, block[in.left % 2], ring_bytes);
			break;
		case 2:
		case 3:
			events_step(&in, &w, &r, &last);
			break;
		default:
			bytes_step(&in, &ring[in.left % 2]);
		}
	}
	free(queue);
	free(block[0]);
	free(block[1]);
	return 0;
}
