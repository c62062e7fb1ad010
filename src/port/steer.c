/* One UDP port for many processes. See steer.h. */
#include "port/steer.h"

#include <assert.h>
#include <errno.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "port/ether.h"

#define QPN_MASK 0xffffffu
const struct steer_by steer_by_bth = {4, QPN_MASK, STEER_SLOT_SHIFT, 0, false};
const struct steer_by steer_by_grh = {44, QPN_MASK, STEER_SLOT_SHIFT, 0, false};
const struct steer_by steer_by_cell = {16, QPN_MASK, STEER_SLOT_SHIFT, 0, false};
const struct steer_by steer_by_sctp = {0, 0xffffu, 0, 0, true};

/* The program: load the number, then a binary search over those that are in use.
 *
 *     A = slot of the destination, or another number
 *     if A >= middle goto upper half         (by a separate jump, because conditional jumps reach
 *                                            only 255 instructions)
 *     ...
 *     if A == slot return its value          (a few of these in a row)
 *     if first <= A <= last return its value (the same for a range)
 *     return that of all others
 *
 * UDP: one program for all sockets, whose values are their indices; 0 is the agent's. Frames: one
 * program per socket, which says whether a frame passes: to that of a process what is for its slot,
 * to the agent's what is for no process. */
#define IN_A_ROW         4u
#define MAX_INSTRUCTIONS 4096u /* the kernel's limit; 3 per slot are enough, and 5 per range */
_Static_assert(3u * STEER_MAX_SOCKETS + 6u + ETHER_FILTER <= MAX_INSTRUCTIONS,
               "the program is too long");
_Static_assert(5u * STEER_MAX_RANGES + 3u <= MAX_INSTRUCTIONS, "the program is too long");

struct entry {
	uint32_t first, last, value;
};

struct program {
	unsigned length;
	struct sock_filter at[MAX_INSTRUCTIONS];
};

static void emit(struct program *program, uint16_t code, uint8_t yes, uint8_t no, uint32_t k)
{
	assert(program->length < MAX_INSTRUCTIONS);
	program->at[program->length++] =
	        (struct sock_filter){.code = code, .jt = yes, .jf = no, .k = k};
}

/* Depth: the logarithm of STEER_MAX_SOCKETS. */
static void emit_search(struct program *program, const struct entry *list, unsigned count,
                        uint32_t others)
{
	if (count <= IN_A_ROW) {
		for (unsigned i = 0; i < count; i++) {
			if (list[i].first == list[i].last) {
				emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, list[i].first);
			} else {
				emit(program, BPF_JMP | BPF_JGE | BPF_K, 0, 2, list[i].first);
				emit(program, BPF_JMP | BPF_JGT | BPF_K, 1, 0, list[i].last);
			}
			emit(program, BPF_RET | BPF_K, 0, 0, list[i].value);
		}
		emit(program, BPF_RET | BPF_K, 0, 0, others);
		return;
	}
	emit(program, BPF_JMP | BPF_JGE | BPF_K, 0, 1, list[count / 2].first);
	unsigned jump = program->length;
	emit(program, BPF_JMP | BPF_JA, 0, 0, 0);
	emit_search(program, list, count / 2, others);
	program->at[jump].k = program->length - jump - 1;
	emit_search(program, list + count / 2, count - count / 2, others);
}

static int by_first(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	return x->first < y->first ? -1 : x->first > y->first;
}

/* What is for which socket, in order. Returns how many there are. */
static unsigned steer_list(const struct steer *steer, struct entry *list)
{
	unsigned used = 0;
	for (unsigned i = 0; steer->by.ranges && i < steer->range_count; i++)
		list[used++] = (struct entry){steer->ranges[i].first, steer->ranges[i].last,
		                              steer->ranges[i].index};
	for (unsigned i = 1; !steer->by.ranges && i < steer->count; i++)
		if (steer->at[i].slot != STEER_NOBODY)
			list[used++] = (struct entry){steer->at[i].slot, steer->at[i].slot,
			                              steer->address.frames ? 0 : i};
	qsort(list, used, sizeof(*list), by_first);
	return used;
}

static void emit_slot(struct program *program, const struct steer_by *by, bool frames)
{
	if (frames && by->below != 0) {
		emit(program, BPF_LD | BPF_B | BPF_ABS, 0, 0, 0);
		emit(program, BPF_JMP | BPF_JGE | BPF_K, 0, 1, by->below);
		emit(program, BPF_RET | BPF_K, 0, 0, 0);
	}
	emit(program, BPF_LD | BPF_W | BPF_ABS, 0, 0, by->offset);
	emit(program, BPF_ALU | BPF_AND | BPF_K, 0, 0, by->mask);
	emit(program, BPF_ALU | BPF_RSH | BPF_K, 0, 0, by->shift);
}

/* The filter of the socket for frames to @slot. */
static void steer_frames_to(const struct steer *steer, uint32_t slot, struct program *program)
{
	struct entry its = {slot, slot, ETHER_PASS};
	ether_filter(&steer->address, program->at);
	program->length = ETHER_FILTER;
	emit_slot(program, &steer->by, true);
	emit_search(program, &its, 1, 0);
}

/* Tell the kernel which socket has which slot. */
static int steer_attach(const struct steer *steer)
{
	bool frames = steer->address.frames;
	if (steer->count < 2 && !frames)
		return 0; /* there is only one socket */
	struct entry *list =
	        malloc((steer->by.ranges ? STEER_MAX_RANGES : steer->count) * sizeof(*list));
	struct program *program = malloc(sizeof(*program));
	int result = -ENOMEM;
	if (list != NULL && program != NULL) {
		unsigned used = steer_list(steer, list);
		program->length = frames ? ETHER_FILTER : 0;
		if (frames)
			ether_filter(&steer->address, program->at);
		emit_slot(program, &steer->by, frames);
		emit_search(program, list, used, frames ? ETHER_PASS : 0);
		struct sock_fprog filter = {.len = (unsigned short)program->length,
		                            .filter = program->at};
		result = setsockopt(steer->at[0].sock, SOL_SOCKET,
		                    frames ? SO_ATTACH_FILTER : SO_ATTACH_REUSEPORT_CBPF, &filter,
		                    sizeof(filter)) == 0
		                 ? 0
		                 : -errno;
	}
	free(program);
	free(list);
	return result;
}

static int steer_open_frames(struct steer *steer)
{
	struct sock_filter nothing[ETHER_FILTER + 1];
	ether_filter(&steer->address, nothing);
	nothing[ETHER_FILTER] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	int sock = ether_open(&steer->address, steer->port, nothing, ETHER_FILTER + 1);
	if (sock < 0)
		return sock;
	steer->count = 1;
	steer->at[0].sock = sock;
	int result = steer_attach(steer);
	if (result != 0)
		steer_close(steer);
	return result;
}

int steer_open(struct steer *steer, const struct udp_address *address, uint16_t port,
               const struct steer_by *by)
{
	int shared = 1;
	steer->address = *address;
	steer->by = *by;
	steer->port = port;
	steer->count = steer->range_count = 0;
	steer->at[0].slot = STEER_NOBODY;
	if (address->frames)
		return steer_open_frames(steer);
	/* Bind exclusively first, so that we do not join the sockets of another agent of this user
	 * by mistake; shared from then on. */
	int sock = udp_open(address, port);
	if (sock < 0)
		return sock;
	if (setsockopt(sock, SOL_SOCKET, SO_REUSEPORT, &shared, sizeof(shared)) != 0) {
		int error = errno;
		close(sock);
		return -error;
	}
	steer->count = 1;
	steer->at[0].sock = sock;
	return 0;
}

/* Frames: the kernel does not number the sockets. Each process has a new one, so that its filter
 * can be locked. */
static int steer_take_frames(struct steer *steer, unsigned index, uint32_t slot)
{
	struct program *program = malloc(sizeof(*program));
	if (program == NULL)
		return -ENOMEM;
	steer_frames_to(steer, slot, program);
	int sock = ether_open(&steer->address, steer->port, program->at, program->length);
	free(program);
	int result = sock < 0 ? sock : ether_lock_filter(sock);
	if (result != 0 && sock >= 0)
		close(sock);
	if (result != 0)
		return result;
	steer->at[index].sock = sock;
	if (index == steer->count)
		steer->count++;
	return 0;
}

/* Nobody has the socket any more. */
static void steer_drop(struct steer *steer, unsigned index)
{
	steer->at[index].slot = STEER_NOBODY;
	if (!steer->address.frames)
		return;
	close(steer->at[index].sock);
	steer->at[index].sock = -1;
}

int steer_take(struct steer *steer, uint32_t slot)
{
	unsigned index = 1;
	while (index < steer->count && steer->at[index].slot != STEER_NOBODY)
		index++;
	if (index == STEER_MAX_SOCKETS)
		return -ENOSPC;
	if (steer->address.frames) {
		int result = steer_take_frames(steer, index, slot);
		if (result != 0)
			return result;
	} else if (index == steer->count) {
		int sock = udp_open_shared(&steer->address, steer->port);
		if (sock < 0)
			return sock;
		steer->at[steer->count].sock = sock;
		steer->at[steer->count++].slot = STEER_NOBODY;
	}
	if (!steer->address.frames)
		udp_drain(steer->at[index].sock);
	steer->at[index].slot = slot;
	int result = steer_attach(steer);
	if (result == 0)
		return steer->at[index].sock;
	steer_drop(steer, index);
	return result;
}

/* The index of the socket of @slot; 0: it has none. */
static unsigned steer_index(const struct steer *steer, uint32_t slot)
{
	unsigned index = 1;
	while (index < steer->count && steer->at[index].slot != slot)
		index++;
	return index < steer->count ? index : 0;
}

int steer_of(const struct steer *steer, uint32_t slot)
{
	unsigned index = steer_index(steer, slot);
	return index != 0 ? steer->at[index].sock : -ENOENT;
}

int steer_add(struct steer *steer, uint32_t slot, uint32_t first, uint32_t last)
{
	unsigned index = steer_index(steer, slot);
	assert(steer->by.ranges && first <= last);
	if (index == 0)
		return -ENOENT;
	for (unsigned i = 0; i < steer->range_count; i++) {
		const struct steer_range *at = &steer->ranges[i];
		if (at->first == first && at->last == last && at->index == index)
			return 0;
		if (at->first <= last && first <= at->last)
			return -EADDRINUSE;
	}
	if (steer->range_count == STEER_MAX_RANGES)
		return -ENOSPC;
	steer->ranges[steer->range_count++] = (struct steer_range){first, last, index};
	int result = steer_attach(steer);
	steer->range_count -= result != 0;
	return result;
}

/* Forget range @i. */
static void steer_forget(struct steer *steer, unsigned i)
{
	steer->ranges[i] = steer->ranges[--steer->range_count];
}

void steer_remove(struct steer *steer, uint32_t slot, uint32_t first, uint32_t last)
{
	unsigned index = steer_index(steer, slot);
	for (unsigned i = 0; i < steer->range_count; i++)
		if (steer->ranges[i].index == index && steer->ranges[i].first == first &&
		    steer->ranges[i].last == last) {
			steer_forget(steer, i);
			steer_attach(steer);
			return;
		}
}

void steer_give(struct steer *steer, uint32_t slot)
{
	for (unsigned i = 1; i < steer->count; i++)
		if (steer->at[i].slot == slot) {
			for (unsigned n = steer->range_count; n-- > 0;)
				if (steer->ranges[n].index == i)
					steer_forget(steer, n);
			steer_drop(steer, i);
			steer_attach(steer);
			if (!steer->address.frames)
				udp_drain(steer->at[i].sock);
		}
}

void steer_close(struct steer *steer)
{
	while (steer->count > 0)
		if (steer->at[--steer->count].sock >= 0)
			close(steer->at[steer->count].sock);
}
