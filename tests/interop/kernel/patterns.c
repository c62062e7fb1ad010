/* patterns: every operation between two machines, the bytes compared. The same program runs at
 * both ends; first the one that called is active and the other one passive, then the other way
 * round, then both at once.
 *
 *   patterns [-t rc|uc|ud] [-d DEVICE] [-g INDEX] [-p PORT] [-b BYTES] [-u NS] [-l] [-m]
 *            [-R ADDRESS] [HOST]
 *
 * -l: packets get lost, and of an error nothing may be known but that the other side does not
 * answer any more. -m: this side has an alternate path, and changes over to it. -R: connect through
 * rdma_cm, at this address of the server, and keep to what iWARP has and siw knows: no immediate
 * data, no atomics, no windows, one piece per read. A write says nothing about the peer there, and
 * what the peer refuses ends the connection.
 *
 * Memory: the first half is where the active side's data lie or arrive, the second half is what
 * the other one may use. Around each place there are guards, which must stay as they are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "side.h"

enum { GUARD = 64, SLOTS = 64, SLOT_BYTES = 20000 };
enum { FILL = 0xe5 };

static size_t biggest = 8u << 20;
static bool lossy, migrates;
static unsigned long checks, compared;

/* --- Patterns --- */

static uint64_t scramble(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static void draw(uint8_t *at, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = scramble(seed << 24 ^ i);
		memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

static void expect_bytes(const uint8_t *at, size_t bytes, uint64_t seed, const char *what)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = scramble(seed << 24 ^ i);
		if (memcmp(at + i, &word, bytes - i < 8 ? bytes - i : 8) != 0)
			side_fail("%s: %zu bytes differ from offset %zu on", what, bytes, i);
	}
	compared += bytes;
}

/* Nothing tells of an unreliable write that it has arrived. */
static void await_bytes(const uint8_t *at, size_t bytes)
{
	const volatile uint8_t *last = at + bytes - 1;
	for (int i = 0; bytes > 0 && *last == FILL && i < 500; i++)
		usleep(10000);
	usleep(10000); /* a pattern may have this byte, too, and it may be the first of a word that
	                  arrives */
}

static void blank(uint8_t *at, size_t bytes)
{
	memset(at - GUARD, FILL, bytes + 2 * GUARD);
}

static void expect_guards(const uint8_t *at, size_t bytes, const char *what)
{
	for (size_t i = 1; i <= GUARD; i++)
		if (at[-(ptrdiff_t)i] != FILL || at[bytes + i - 1] != FILL)
			side_fail("%s: %zu bytes, and something beside them was written", what,
			          bytes);
}

/* --- One request at a time --- */

enum how { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, LATE, HOWS };
static const char *const how_name[HOWS] = {"send",  "send with immediate data",
                                           "write", "write with immediate data",
                                           "read",  "send before the receive"};
static const enum ibv_wr_opcode how_opcode[HOWS] = {IBV_WR_SEND,       IBV_WR_SEND_WITH_IMM,
                                                    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                                    IBV_WR_RDMA_READ,  IBV_WR_SEND};

static uint8_t *own(struct side *side, unsigned number)
{
	return side->memory + GUARD + number % 7;
}

static uint8_t *shared(struct side *side, unsigned number)
{
	return side->memory + side->bytes / 2 + GUARD + number % 5;
}

/* Up to three pieces, so that they do not end where packets do. */
static int pieces(const struct side *side, uint8_t *at, size_t bytes, struct ibv_sge *list)
{
	size_t cut[3] = {bytes / 3, bytes > 9 ? 7 : 0, 0};
	int count = 0;
	cut[2] = bytes - cut[0] - cut[1];
	for (int i = 0; i < 3; i++)
		if (cut[i] > 0) {
			list[count++] =
			        (struct ibv_sge){(uintptr_t)at, (uint32_t)cut[i], side->mr->lkey};
			at += cut[i];
		}
	return count;
}

static bool receives(enum how how)
{
	return how == SEND || how == SEND_IMM || how == WRITE_IMM || how == LATE;
}

/* Datagrams: the other side is named with each, and what arrives begins with 40 bytes of GRH. */
static size_t grh_bytes(const struct side *side)
{
	return side->type == IBV_QPT_UD ? 40 : 0;
}

static void active(struct side *side, enum how how, size_t bytes, unsigned number)
{
	struct ibv_sge list[3];
	uint8_t *at = own(side, number);
	blank(at, bytes);
	if (how != READ)
		draw(at, bytes, number);
	int count = pieces(side, at, bytes, list);
	if (side->by_cm != NULL && how == READ && bytes > 0) { /* siw takes no list */
		list[0] = (struct ibv_sge){(uintptr_t)at, (uint32_t)bytes, side->mr->lkey};
		count = 1;
	}
	struct ibv_send_wr wr = {
	        .wr_id = number,
	        .sg_list = list,
	        .num_sge = count,
	        .opcode = how_opcode[how],
	        .send_flags = IBV_SEND_SIGNALED,
	        .imm_data = number * 0x01010101u,
	};
	if (side->type == IBV_QPT_UD) {
		wr.wr.ud.ah = side->ah;
		wr.wr.ud.remote_qpn = side->other.qpn;
		wr.wr.ud.remote_qkey = SIDE_QKEY;
	} else {
		wr.wr.rdma.remote_addr =
		        side->other.address + (uint64_t)(shared(side, number) - side->memory);
		wr.wr.rdma.rkey = side->other.rkey;
	}
	side_meet(side);
	side_send(side, &wr);
	side_done(side, number);
	side_meet(side);
	if (how == READ)
		expect_bytes(at, bytes, number, how_name[how]);
	expect_guards(at, bytes, how_name[how]);
}

static void passive(struct side *side, enum how how, size_t bytes, unsigned number)
{
	struct ibv_sge list[3];
	const size_t grh = grh_bytes(side);
	uint8_t *at = shared(side, number);
	blank(at, bytes + grh);
	if (how == READ)
		draw(at, bytes, number);
	int count = pieces(side, at, bytes + grh, list);
	if (count == 0 && side->by_cm != NULL) { /* siw takes no receive without a piece */
		list[0] = (struct ibv_sge){(uintptr_t)at, 1, side->mr->lkey};
		count = 1;
	}
	if (receives(how) && how != LATE)
		side_recv(side, number, list, how == WRITE_IMM ? 0 : count);
	side_meet(side);
	if (how == LATE) {
		usleep(20000); /* the message is there first, most often, and is told to wait */
		side_recv(side, number, list, count);
	}
	if (receives(how)) {
		struct ibv_wc wc = side_done(side, number);
		const bool immediate = how == SEND_IMM || how == WRITE_IMM;
		if (wc.opcode != (how == WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) ||
		    wc.byte_len != bytes + grh || wc.qp_num != side->qp->qp_num)
			side_fail("%s of %zu bytes: opcode %d, %u bytes", how_name[how], bytes,
			          wc.opcode, wc.byte_len);
		if (((wc.wc_flags & IBV_WC_WITH_IMM) != 0) != immediate ||
		    (immediate && wc.imm_data != number * 0x01010101u))
			side_fail("%s: the immediate data are %#x", how_name[how], wc.imm_data);
		if (grh != 0 && (wc.src_qp != side->other.qpn || (wc.wc_flags & IBV_WC_GRH) == 0))
			side_fail("datagram from %#x, flags %#x", wc.src_qp, wc.wc_flags);
	}
	side_meet(side);
	if ((side->type == IBV_QPT_UC || side->by_cm != NULL) && how == WRITE)
		await_bytes(at, bytes);
	expect_bytes(at + grh, bytes, number, how_name[how]);
	expect_guards(at, bytes + grh, how_name[how]);
}

static void one(struct side *side, bool turn, enum how how, size_t bytes)
{
	static unsigned number = 1;
	(turn ? active : passive)(side, how, bytes, number++);
	checks++;
}

static void sizes(struct side *side, bool turn, enum how how)
{
	const size_t mtu = side->mtu_bytes;
	const size_t list[] = {0,
	                       1,
	                       3,
	                       4,
	                       5,
	                       64,
	                       mtu - 1,
	                       mtu,
	                       mtu + 1,
	                       2 * mtu - 1,
	                       2 * mtu,
	                       2 * mtu + 1,
	                       4095,
	                       4096,
	                       4097,
	                       65536 - 1,
	                       65536,
	                       65536 + 1,
	                       (1u << 20) + 3,
	                       8u << 20};
	const size_t limit = side->type == IBV_QPT_UD ? mtu : biggest;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (list[i] <= limit && (how != LATE || list[i] <= 4097))
			one(side, turn, how, list[i]);
}

/* --- Atomic operations --- */

static void atomic(struct side *side, bool turn, enum ibv_wr_opcode opcode, uint64_t before,
                   uint64_t compare, uint64_t swap)
{
	const bool cas = opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	uint64_t *word = (uint64_t *)(void *)(side->memory + (turn ? 0 : side->bytes / 2) + 128);
	*word = turn ? 0 : before;
	side_meet(side);
	if (turn) {
		struct ibv_sge list = {(uintptr_t)word, 8, side->mr->lkey};
		struct ibv_send_wr wr = {.wr_id = 7,
		                         .sg_list = &list,
		                         .num_sge = 1,
		                         .opcode = opcode,
		                         .send_flags = IBV_SEND_SIGNALED};
		wr.wr.atomic.remote_addr = side->other.address + side->bytes / 2 + 128;
		wr.wr.atomic.rkey = side->other.rkey;
		wr.wr.atomic.compare_add = compare;
		wr.wr.atomic.swap = swap;
		side_send(side, &wr);
		side_done(side, 7);
		if (*word != before)
			side_fail("an atomic operation returned %#lx, not %#lx",
			          (unsigned long)*word, (unsigned long)before);
	}
	side_meet(side);
	const uint64_t after = !cas ? before + compare : before == compare ? swap : before;
	if (!turn && *word != after)
		side_fail("an atomic operation left %#lx, not %#lx", (unsigned long)*word,
		          (unsigned long)after);
	checks++;
}

static void atomics(struct side *side, bool turn)
{
	const uint64_t big = 0xfedcba9876543210ULL;
	atomic(side, turn, IBV_WR_ATOMIC_FETCH_AND_ADD, big, 0x0123456789abcdefULL, 0);
	atomic(side, turn, IBV_WR_ATOMIC_FETCH_AND_ADD, UINT64_MAX, 1, 0);
	atomic(side, turn, IBV_WR_ATOMIC_CMP_AND_SWP, big, big, 0x1122334455667788ULL);
	atomic(side, turn, IBV_WR_ATOMIC_CMP_AND_SWP, big, big + 1, 1);
}

/* --- Windows and invalidation --- */

/* The passive side binds a window, the active one writes through it and then has it invalidated by
 * a send. Returns its key. */
static uint32_t window(struct side *side, bool turn, struct ibv_mw **mw)
{
	uint32_t mine = 0, key;
	uint8_t *at = side->memory + side->bytes / 2 + 4096;
	struct ibv_sge list = {(uintptr_t)at, 256, side->mr->lkey};
	if (!turn) {
		*mw = ibv_alloc_mw(side->pd, IBV_MW_TYPE_2);
		if (*mw == NULL)
			side_fail("no window");
		mine = ibv_inc_rkey((*mw)->rkey);
		struct ibv_send_wr bind = {
		        .wr_id = 20, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
		bind.bind_mw.mw = *mw;
		bind.bind_mw.rkey = mine;
		bind.bind_mw.bind_info = (struct ibv_mw_bind_info){side->mr, (uintptr_t)at, 256,
		                                                   IBV_ACCESS_REMOTE_WRITE};
		side_send(side, &bind);
		side_done(side, 20);
		side_recv(side, 21, &list, 1);
		blank(at, 0);
	}
	side_swap(side, &mine, &key, sizeof(key));
	if (turn) {
		uint8_t *from = own(side, 0);
		draw(from, 200, 99);
		list = (struct ibv_sge){(uintptr_t)from, 200, side->mr->lkey};
		struct ibv_send_wr wr = {.wr_id = 22,
		                         .sg_list = &list,
		                         .num_sge = 1,
		                         .opcode = IBV_WR_RDMA_WRITE,
		                         .send_flags = IBV_SEND_SIGNALED};
		wr.wr.rdma.remote_addr = side->other.address + side->bytes / 2 + 4096;
		wr.wr.rdma.rkey = key;
		side_send(side, &wr);
		side_done(side, 22);
		struct ibv_send_wr last = {.wr_id = 23,
		                           .opcode = IBV_WR_SEND_WITH_INV,
		                           .send_flags = IBV_SEND_SIGNALED,
		                           .invalidate_rkey = key};
		side_send(side, &last);
		side_done(side, 23);
	} else {
		struct ibv_wc wc = side_done(side, 21);
		/* rdma_rxe of Linux 6.1 gives the kernel's number of this flag, which is that of
		 * IBV_WC_IP_CSUM_OK here. */
		if ((wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK)) == 0 ||
		    wc.invalidated_rkey != mine || wc.byte_len != 0)
			side_fail("send with invalidation: flags %#x, key %#x, not %#x",
			          wc.wc_flags, wc.invalidated_rkey, mine);
		expect_bytes(at, 200, 99, "write through a window");
	}
	checks += 2;
	return key;
}

/* --- Errors, each of which ends the connection --- */

static void expect_error(struct side *side, struct ibv_send_wr *wr, enum ibv_wc_status status,
                         enum ibv_wc_status or_else, const char *what)
{
	if (wr != NULL)
		side_send(side, wr);
	struct ibv_wc wc = side_wait(side);
	if (lossy && wr != NULL && wc.status == IBV_WC_RETRY_EXC_ERR)
		return;
	if (wc.status != status && wc.status != or_else)
		side_fail("%s: %s, not %s", what, ibv_wc_status_str(wc.status),
		          ibv_wc_status_str(status));
}

static void errors(struct side *side, bool turn)
{
	struct ibv_sge list = {(uintptr_t)own(side, 0), 100, side->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &list, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw *mw = NULL;

	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.rkey = window(side, turn, &mw);
	side->gives_up = true;
	side_again(side);
	wr.wr.rdma.remote_addr = side->other.address + side->bytes / 2 + 4096;
	if (turn)
		expect_error(side, &wr, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR,
		             "a write with a key that was invalidated");
	side_again(side);
	if (mw != NULL && ibv_dealloc_mw(mw) != 0)
		side_fail("the window stays");

	wr.wr.rdma.rkey = side->other.rkey;
	wr.wr.rdma.remote_addr = side->other.address + side->bytes - 50;
	if (turn)
		expect_error(side, &wr, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR,
		             "a write beyond the end");
	side_again(side);
	wr.opcode = IBV_WR_RDMA_READ;
	wr.wr.rdma.rkey = side->other.rkey;
	if (turn)
		expect_error(side, &wr, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR,
		             "a read beyond the end");
	side_again(side);

	wr.opcode = IBV_WR_SEND;
	struct ibv_sge small = {(uintptr_t)shared(side, 0), 50, side->mr->lkey};
	if (!turn)
		side_recv(side, 30, &small, 1);
	side_meet(side);
	/* rdma_rxe takes it for a fault of its own: remote operational error. */
	expect_error(side, turn ? &wr : NULL, turn ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_LOC_LEN_ERR,
	             turn ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_QP_OP_ERR,
	             "a send that is longer than the receive");
	side->gives_up = false;
	side_again(side);
	checks += 4;
}

static bool is_siw(const struct side *side)
{
	return strncmp(ibv_get_device_name(side->context->device), "siw", 3) == 0;
}

/* iWARP: the peer refuses a request by its Terminate. A read fails; a write is over before that,
 * and what comes behind it is not received. */
static void stream_errors(struct side *side, bool turn)
{
	for (int write = 0; write < 2; write++) {
		struct ibv_sge list = {(uintptr_t)own(side, 0), 100, side->mr->lkey};
		struct ibv_sge in = {(uintptr_t)shared(side, 0), 100, side->mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &list,
		                         .num_sge = 1,
		                         .send_flags = IBV_SEND_SIGNALED,
		                         .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ};
		wr.wr.rdma.rkey = side->other.rkey ^ 1;
		wr.wr.rdma.remote_addr = side->other.address + side->bytes / 2;
		blank(shared(side, 0), 100);
		if (!turn)
			side_recv(side, 40, &in, 1);
		side_meet(side);
		if (turn)
			side_send(side, &wr);
		if (turn && !write && side_wait(side).status == IBV_WC_SUCCESS)
			side_fail("a read with a wrong key succeeds");
		if (turn && write) { /* over when it is sent; what follows must not be received */
			side_wait(side);
			wr.opcode = IBV_WR_SEND;
			struct ibv_send_wr *bad; /* siw forgets it if the end comes just then */
			if (ibv_post_send(side->qp, &wr, &bad) == 0 && !is_siw(side))
				side_wait(side);
		}
		side_meet(side);
		if (!turn) { /* siw flushes its receives when it is disconnected, and not before */
			struct ibv_wc wc;
			usleep(50000);
			while (ibv_poll_cq(side->cq, 1, &wc) > 0)
				if (wc.status == IBV_WC_SUCCESS)
					side_fail("a receive completes behind a wrong key");
			expect_guards(shared(side, 0) + 50, 0, "a wrong key");
		}
		side_again(side);
		checks++;
	}
}

/* --- Both at once --- */

/* Many requests of all kinds under way in both directions. Slot i of the other side is written by
 * request i; reads bring back what the request before wrote. */
static void crowd(struct side *side, unsigned round)
{
	const enum how order[4] = {SEND, WRITE, READ, side->by_cm != NULL ? SEND : WRITE_IMM};
	const size_t half = side->bytes / 2;
	const bool caller = side->host != NULL;
	unsigned got = 0, sent = 0, expected = 0;
	for (unsigned i = 0; i < SLOTS; i++) {
		uint8_t *in = side->memory + half + GUARD + i * SLOT_BYTES;
		struct ibv_sge list = {(uintptr_t)in, SLOT_BYTES - 2 * GUARD, side->mr->lkey};
		memset(in - GUARD, FILL, SLOT_BYTES);
		if (receives(order[i % 4])) {
			side_recv(side, 1000 + i, &list, order[i % 4] == SEND);
			expected++;
		}
	}
	side_meet(side);
	for (unsigned i = 0; i < SLOTS; i++) {
		const enum how how = order[i % 4];
		const unsigned slot = how == READ ? i - 1 : i;
		const size_t bytes = scramble(round * SLOTS + slot) % (SLOT_BYTES - 2 * GUARD);
		uint8_t *out = side->memory + GUARD + i * SLOT_BYTES;
		struct ibv_sge list = {(uintptr_t)out, (uint32_t)bytes, side->mr->lkey};
		memset(out - GUARD, FILL, SLOT_BYTES);
		if (how != READ)
			draw(out, bytes, round * 1000 + i + (caller ? 500 : 0));
		struct ibv_send_wr wr = {.wr_id = i,
		                         .sg_list = &list,
		                         .num_sge = bytes > 0,
		                         .opcode = how_opcode[how],
		                         .send_flags = IBV_SEND_SIGNALED,
		                         .imm_data = i};
		wr.wr.rdma.remote_addr = side->other.address + half + GUARD + slot * SLOT_BYTES;
		wr.wr.rdma.rkey = side->other.rkey;
		side_send(side, &wr);
	}
	unsigned next = 0; /* receive that is due */
	while (sent < SLOTS || got < expected) {
		struct ibv_wc wc = side_wait(side);
		if (wc.status != IBV_WC_SUCCESS)
			side_fail("request %lu of many: %s", (unsigned long)wc.wr_id,
			          ibv_wc_status_str(wc.status));
		if (wc.wr_id < 1000) {
			/* siw lets a send overtake a read that was posted before it. */
			if (wc.wr_id != sent++ && side->by_cm == NULL)
				side_fail("request %lu completed in place of %u",
				          (unsigned long)wc.wr_id, sent - 1);
			continue;
		}
		while (!receives(order[next % 4]))
			next++;
		if (wc.wr_id != 1000 + next ||
		    (order[next % 4] == WRITE_IMM && wc.imm_data != next))
			side_fail("receive %lu completed in place of %u", (unsigned long)wc.wr_id,
			          1000 + next);
		next++;
		got++;
	}
	side_meet(side);
	for (unsigned i = 0; i < SLOTS; i++) {
		const bool read = order[i % 4] == READ;
		const size_t bytes =
		        scramble(round * SLOTS + (read ? i - 1 : i)) % (SLOT_BYTES - 2 * GUARD);
		const uint8_t *at = side->memory + (read ? 0 : half) + GUARD + i * SLOT_BYTES;
		const bool from_caller = read ? caller : !caller;
		expect_bytes(at, bytes, round * 1000 + (read ? i - 1 : i) + (from_caller ? 500 : 0),
		             "one of many");
		expect_guards(at, bytes, "one of many");
		checks++;
	}
	side_meet(side);
}

static void everything(struct side *side)
{
	for (int turn = 0; turn < 2; turn++) {
		const bool mine = (side->host != NULL) == (turn == 0);
		if (migrates)
			side_prepare_path(side);
		sizes(side, mine, SEND);
		if (side->by_cm != NULL) {
			sizes(side, mine, WRITE);
			sizes(side, mine, READ);
			stream_errors(side, mine);
			continue;
		}
		if (migrates)
			side_change_path(side);
		sizes(side, mine, SEND_IMM);
		if (side->type == IBV_QPT_UD)
			continue;
		sizes(side, mine, WRITE);
		sizes(side, mine, WRITE_IMM);
		if (side->type == IBV_QPT_UC)
			continue;
		sizes(side, mine, READ);
		sizes(side, mine, LATE);
		atomics(side, mine);
		errors(side, mine);
	}
	for (unsigned round = 0; side->type == IBV_QPT_RC && round < 4; round++)
		crowd(side, round);
}

int main(int argc, char **argv)
{
	struct side side = {.port = "17272", .type = IBV_QPT_RC, .timeout = 16};
	for (int option; (option = getopt(argc, argv, "t:d:g:p:b:u:lmR:")) != -1;)
		switch (option) {
		case 't':
			side.type = strcmp(optarg, "ud") == 0   ? IBV_QPT_UD
			            : strcmp(optarg, "uc") == 0 ? IBV_QPT_UC
			                                        : IBV_QPT_RC;
			break;
		case 'd':
			side.device = optarg;
			break;
		case 'g':
			side.gid_index = atoi(optarg);
			break;
		case 'p':
			side.port = optarg;
			break;
		case 'u':
			side.timeout = (uint8_t)atoi(optarg);
			break;
		case 'R':
			side.by_cm = optarg;
			break;
		case 'm':
			migrates = true;
			break;
		case 'l':
			lossy = true;
			break;
		case 'b':
			biggest = strtoul(optarg, NULL, 0);
			break;
		default:
			return 64;
		}
	side.host = argv[optind];
	const size_t crowded = SLOTS * SLOT_BYTES;
	side.bytes = 2 * ((biggest > crowded ? biggest : crowded) + 8192);
	side_open(&side);
	everything(&side);
	side_close(&side);
	printf("ok: %lu operations, %lu bytes compared\n", checks, compared);
	return 0;
}
