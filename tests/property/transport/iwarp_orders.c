/* RFC 5043, X4: any legal order of the same segments has the same result. A random program of
 * sends, writes, reads, immediate data and atomics, both ways, runs on messages that come in order,
 * and then on messages that are lost and overtake each other: the same completions in the same
 * order at both ends, the same memory. In some programs one end ends with a request that the other
 * refuses: what was received before it, and how the rest ends, does not depend on the order. */
#include "unit/transport/iwarp_rig.h"

#include <stdlib.h>

#define SEEDS     120u
#define ORDERS    3u
#define OPS       40u /* of each end */
#define RECEIVES  IW_DEPTH
#define SLOT      6000u /* bytes of an operation, so that none overlap */
#define SEEN_MAX  256u
#define DONE_MARK 0xfeedu

/* Where things are in the memory of an end: what it sends from, receives, targets, answers. */
#define FROM(i)    ((size_t)(i)*37)
#define RECEIVE(i) (8192 + (size_t)(i)*1000)
#define TARGET(i)  (50000 + (size_t)((i) % 16) * SLOT)
#define ANSWER(i)  (150000 + (size_t)((i) % 16) * SLOT)

struct seen {
	struct hdl_wc wc[2][2][SEEN_MAX]; /* [end][send, receive] */
	unsigned count[2][2];
	uint8_t memory[2][IW_BYTES];
};

struct op {
	uint32_t opcode;
	uint32_t length;
	bool bad;
};

static struct iw_rig rig;
static struct seen plain, other;
static struct op ops[2][OPS];
static unsigned op_count[2];

/* A program: at most as many messages that need a receive as there are receives. */
static void choose(struct prng *prng, bool fails)
{
	static const uint32_t opcodes[] = {HDL_OP_SEND,     HDL_OP_SEND,  HDL_OP_WRITE,
	                                   HDL_OP_READ,     HDL_OP_WRITE, HDL_OP_WRITE_IMM,
	                                   HDL_OP_FETCH_ADD};
	for (unsigned end = 0; end < 2; end++) {
		unsigned needs = 0, large = 0;
		op_count[end] = 0;
		for (unsigned i = 0; i < OPS && needs < RECEIVES - 1 && i < IW_DEPTH; i++) {
			struct op *op = &ops[end][op_count[end]++];
			op->opcode = opcodes[prng_below(prng, IW_COUNT(opcodes))];
			bool takes = op->opcode == HDL_OP_SEND || op->opcode == HDL_OP_WRITE_IMM;
			/* Each target and answer is used once. */
			if (op->opcode != HDL_OP_SEND && ++large > 15)
				op->opcode = HDL_OP_SEND, takes = true;
			op->length =
			        (uint32_t)prng_below(prng, op->opcode == HDL_OP_SEND ? 1000 : SLOT);
			if (op->opcode == HDL_OP_FETCH_ADD)
				op->length = 8;
			op->bad = false;
			needs += takes;
		}
		if (fails && end == 0)
			ops[0][op_count[0] - 1] = (struct op){HDL_OP_WRITE, 5000, true};
	}
}

static void post_all(unsigned end)
{
	struct iw_side *own = &rig.sides[end], *peer = &rig.sides[1 - end];
	unsigned large = 0;
	for (unsigned i = 0; i < op_count[end]; i++) {
		const struct op *op = &ops[end][i];
		bool send = op->opcode == HDL_OP_SEND;
		bool answered = op->opcode == HDL_OP_READ || op->opcode == HDL_OP_FETCH_ADD;
		unsigned slot = send ? 0 : large++;
		struct hdl_sge list = iw_piece(own, answered ? ANSWER(slot) : FROM(i), op->length);
		struct hdl_send_wr wr = {.wr_id = i,
		                         .opcode = op->opcode,
		                         .sg_list = &list,
		                         .num_sge = op->length > 0,
		                         .imm = DONE_MARK + i};
		uint64_t addr = op->opcode == HDL_OP_READ ? iw_address(peer, FROM(i))
		                                          : iw_address(peer, TARGET(slot));
		struct hdl_key key = iw_key(peer);
		key.v ^= op->bad;
		if (op->opcode == HDL_OP_FETCH_ADD) {
			wr.u.atomic.addr = (addr + 7) & ~(uint64_t)7;
			wr.u.atomic.key = key;
			wr.u.atomic.compare_add = i;
		} else if (!send) {
			wr.u.rdma.addr = addr;
			wr.u.rdma.key = key;
		}
		iw_post(own, wr);
	}
}

static void look(struct seen *seen)
{
	for (unsigned end = 0; end < 2; end++) {
		struct iw_side *side = &rig.sides[end];
		for (unsigned i = 0; i < 2; i++) {
			struct hdl_cq *cq = i == 0 ? side->scq : side->rcq;
			while (hdl_cq_poll(cq, &seen->wc[end][i][seen->count[end][i]], 1) == 1) {
				seen->count[end][i]++;
				assert_true(seen->count[end][i] < SEEN_MAX);
			}
		}
		memcpy(seen->memory[end], side->mem, IW_BYTES);
	}
}

static void run(struct seen *seen, uint64_t seed, bool in_order, bool srq)
{
	const struct iw_options o = {
	        .messages = true,
	        .srq = srq,
	        .terms = {.first_ssn = (uint16_t)(65500 + seed % 50), .segment = 300}};
	memset(seen, 0, sizeof(*seen));
	iw_open(&rig, &o, seed);
	rig.messages.in_order = in_order;
	rig.messages.loss_percent = (unsigned)(seed % 30);
	for (unsigned end = 0; end < 2; end++)
		for (unsigned i = 0; i < RECEIVES; i++)
			iw_recv(&rig.sides[end], i, RECEIVE(i), 1000);
	post_all(0);
	post_all(1);
	iw_settle(&rig);
	look(seen);
	if (!in_order) /* or the test would show nothing */
		assert_true(rig.messages.lines[0].early + rig.messages.lines[1].early > 0);
	iw_close(&rig);
}

/* What does not depend on the time: not the queue pair's numbers, nor how long a flushed request
 * would have been. */
static void compare(const struct hdl_wc *a, const struct hdl_wc *b)
{
	assert_int_equal(a->wr_id, b->wr_id);
	assert_int_equal(a->status, b->status);
	if (a->status != HDL_WC_SUCCESS)
		return;
	assert_int_equal(a->opcode, b->opcode);
	assert_int_equal(a->byte_len, b->byte_len);
	assert_int_equal(a->flags, b->flags);
	if (a->flags & HDL_WC_WITH_IMM)
		assert_int_equal(a->imm, b->imm);
}

static void x4_every_order_has_the_same_result(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct prng prng;
		prng_seed(&prng, seed);
		bool fails = seed % 4 == 0, srq = seed % 3 == 0;
		choose(&prng, fails);
		run(&plain, seed, true, srq);
		for (unsigned order = 0; order < ORDERS; order++) {
			print_message("seed %lu, order %u%s%s\n", (unsigned long)seed, order,
			              fails ? ", fails" : "", srq ? ", srq" : "");
			run(&other, seed + 1000 * (order + 1), false, srq);
			/* The end that is refused has sent all, whenever it hears of it. */
			for (unsigned end = fails; end < 2; end++)
				for (unsigned i = fails; i < 2; i++) {
					assert_int_equal(plain.count[end][i], other.count[end][i]);
					for (unsigned n = 0; n < plain.count[end][i]; n++)
						compare(&plain.wc[end][i][n], &other.wc[end][i][n]);
				}
			for (unsigned end = 0; end < 2 && !fails; end++)
				assert_memory_equal(plain.memory[end], other.memory[end], IW_BYTES);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(x4_every_order_has_the_same_result),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
