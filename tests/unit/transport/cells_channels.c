/* The channels of cells (PP2, PP3): the four combinations of acknowledged and connected, messages
 * of all sizes on networks that are good and bad, and what strangers send. */
#include "cells_rig.h"

#define MIB (1u << 20)

static const uint32_t sizes[] = {0, 1, 255, 256, 257, 512, 4096, 4097, MIB};

static void bad_network(struct rig *rig)
{
	rig->loss = rig->twice = rig->swap = 20;
	rig->damage = 10;
}

/* --- the truth table --- */

/* What a send of @length bytes does on a channel: how it is posted, how it completes on a network
 * that carries it and on one that does not, and whether it arrives on the first. */
static const struct {
	bool acknowledged, connected;
	uint32_t length;
	int posted;
	uint32_t completed, cut;
} table[] = {
        {true, true, 256, 0, HDL_WC_SUCCESS, HDL_WC_RETRY_EXC_ERR},
        {true, true, 257, 0, HDL_WC_SUCCESS, HDL_WC_RETRY_EXC_ERR},
        {false, true, 256, 0, HDL_WC_SUCCESS, HDL_WC_SUCCESS},
        {false, true, 257, 0, HDL_WC_SUCCESS, HDL_WC_SUCCESS},
        {true, false, 256, 0, HDL_WC_SUCCESS, HDL_WC_RETRY_EXC_ERR},
        {true, false, 257, -HDL_EMSGSIZE, 0, 0},
        {false, false, 256, 0, HDL_WC_SUCCESS, HDL_WC_SUCCESS},
        {false, false, 257, -HDL_EMSGSIZE, 0, 0},
};

static void pp3_four_channels(void **state)
{
	struct rig *rig = *state;
	for (size_t i = 0; i < 2 * COUNT(table); i++) {
		size_t row = i / 2;
		uint32_t length = table[row].length,
		         header = table[row].connected ? 0 : HDL_GRH_BYTES;
		struct hdl_qp *qp[2];
		struct hdl_ah *ah = NULL;
		struct hdl_wc wc;
		rig->cut = i % 2;
		if (table[row].connected)
			rig_pair(rig, table[row].acknowledged ? HDL_QP_RC : HDL_QP_UC, qp);
		for (int s = 0; s < 2 && !table[row].connected; s++)
			qp[s] = rig_qp(rig, s, HDL_QP_UD, table[row].acknowledged);
		if (!table[row].connected)
			ah = rig_ah(rig, 0);
		rig_recv(rig, 1, qp[1], 7, 8192, 1024);
		rig_fill(rig, 0, 0, length, (uint32_t)i);
		int result =
		        table[row].connected
		                ? rig_post(rig, 0, qp[0], HDL_OP_SEND, 0, length, 0)
		                : rig_datagram(rig, 0, qp[0], ah, hdl_qp_number(qp[1]), 0, length);
		assert_int_equal(result, table[row].posted);
		if (result == 0)
			rig_expect(rig, rig->side[0].scq,
			           rig->cut ? table[row].cut : table[row].completed);
		if (result == 0 && !rig->cut) {
			assert_true(rig_wait(rig, rig->side[1].rcq, &wc));
			assert_int_equal(wc.status, HDL_WC_SUCCESS);
			assert_int_equal(wc.byte_len, length + header);
			assert_int_equal(wc.src_qpn, hdl_qp_number(qp[0]));
			assert_true(rig_holds(rig, 1, 8192 + header, length, (uint32_t)i));
		}
		rig_drop(rig, qp[0]);
		rig_drop(rig, qp[1]);
		while (hdl_cq_poll(rig->side[1].rcq, &wc, 1) == 1)
			;
	}
}

/* Acknowledged means: not done before the answer is back. */
static void pp3_done_when_answered(void **state)
{
	struct rig *rig = *state;
	struct hdl_qp *reliable[2], *plain[2];
	struct hdl_wc wc;
	rig_pair(rig, HDL_QP_RC, reliable);
	rig_pair(rig, HDL_QP_UC, plain);
	rig_recv(rig, 1, reliable[1], 1, 0, 64);
	assert_int_equal(rig_post(rig, 0, plain[0], HDL_OP_SEND, 0, 8, 0), 0);
	assert_int_equal(hdl_cq_poll(rig->side[0].scq, &wc, 1), 1); /* the packet has left */
	assert_int_equal(rig_post(rig, 0, reliable[0], HDL_OP_SEND, 0, 8, 0), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(hdl_cq_poll(rig->side[0].scq, &wc, 1), 0);
	rig_expect(rig, rig->side[0].scq, HDL_WC_SUCCESS);
}

/* --- figure 8 --- */

struct sight {
	uint32_t cells, addresses, immediates, psn;
};

static void look(struct rig *rig, const struct cell *cell)
{
	struct sight *sight = rig->context;
	if (cell->operation != CELL_WRITE)
		return;
	assert_int_equal(cell->number, sight->cells);
	assert_int_equal(cell->data_bytes > CELL_DATA_BYTES, 0);
	sight->addresses += cell->address != 0;
	sight->immediates += (cell->flags & CELL_IMMEDIATE) != 0;
	sight->cells++;
}

static void pp2_write_of_figure_8(void **state)
{
	struct rig *rig = *state;
	struct hdl_qp *qp[2];
	rig_pair(rig, HDL_QP_RC, qp);
	for (size_t i = 0; i < 2 * COUNT(sizes); i++) {
		uint32_t length = sizes[i / 2];
		bool immediate = i % 2;
		struct sight sight = {0};
		struct hdl_wc wc;
		rig->seen = look;
		rig->context = &sight;
		if (immediate)
			rig_recv(rig, 1, qp[1], i, 0, 0);
		rig_fill(rig, 0, 0, length, (uint32_t)i);
		assert_int_equal(rig_post(rig, 0, qp[0],
		                          immediate ? HDL_OP_WRITE_IMM : HDL_OP_WRITE, 0, length,
		                          MIB),
		                 0);
		rig_expect(rig, rig->side[0].scq, HDL_WC_SUCCESS);
		assert_true(rig_holds(rig, 1, MIB, length, (uint32_t)i));
		assert_int_equal(sight.cells, cell_count(length));
		assert_int_equal(sight.addresses, 1); /* in the first cell only */
		assert_int_equal(sight.immediates, immediate);
		if (!immediate)
			continue;
		assert_true(rig_wait(rig, rig->side[1].rcq, &wc));
		assert_int_equal(wc.opcode, HDL_WC_RECV_WRITE_IMM);
		assert_int_equal(wc.imm, 0x07050100);
		assert_int_equal(wc.byte_len, length);
	}
}

/* --- all sizes, on a bad network --- */

static void every_size(struct rig *rig, uint32_t seed)
{
	struct hdl_qp *qp[2];
	struct hdl_wc wc;
	rig_pair(rig, HDL_QP_RC, qp);
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		uint32_t length = sizes[i];
		rig_fill(rig, 0, 0, length, seed + i);
		rig_recv(rig, 1, qp[1], i, MIB, MIB);
		assert_int_equal(rig_post(rig, 0, qp[0], HDL_OP_SEND_IMM, 0, length, 0), 0);
		assert_int_equal(rig_post(rig, 0, qp[0], HDL_OP_WRITE, 0, length, 0), 0);
		assert_int_equal(rig_post(rig, 0, qp[0], HDL_OP_READ, 2 * MIB, length, 0), 0);
		for (int part = 0; part < 3; part++)
			rig_expect(rig, rig->side[0].scq, HDL_WC_SUCCESS);
		assert_true(rig_wait(rig, rig->side[1].rcq, &wc));
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		assert_int_equal(wc.byte_len, length);
		assert_int_equal(wc.imm, 0x07050100);
		assert_true(rig_holds(rig, 1, MIB, length, seed + i));
		assert_true(rig_holds(rig, 1, 0, length, seed + i));
		assert_true(rig_holds(rig, 0, 2 * MIB, length, seed + i));
	}
	rig_drop(rig, qp[0]);
	rig_drop(rig, qp[1]);
}

static void pp2_every_size(void **state)
{
	every_size(*state, 1);
}

static void pp2_every_size_on_a_bad_network(void **state)
{
	struct rig *rig = *state;
	bad_network(rig);
	for (uint32_t seed = 0; seed < 6; seed++) {
		prng_seed(&rig->prng, seed);
		every_size(rig, 10 * seed);
	}
}

/* After losses, the smallest window is still large enough for the answers that keep it moving. */
static void pp2_small_windows_move(void **state)
{
	enum { CUT_TIMEOUTS = 6 }; /* each halves the window; with the eighth it would give up */
	struct rig *rig = *state;
	struct hdl_qp *qp[2];
	rig_pair(rig, HDL_QP_RC, qp);
	rig_fill(rig, 0, 0, MIB, 3);
	rig->cut = true;
	assert_int_equal(rig_post(rig, 0, qp[0], HDL_OP_WRITE, 0, MIB, 0), 0);
	for (int tries = 0; rig_count(rig, 0, "timeouts") < CUT_TIMEOUTS; tries++) {
		assert_true(tries < 1000);
		rig_pass(rig, 1000000);
	}
	rig->cut = false;
	rig_expect(rig, rig->side[0].scq, HDL_WC_SUCCESS);
	assert_true(rig_holds(rig, 1, 0, MIB, 3));
	assert_true(rig_count(rig, 0, "timeouts") <= CUT_TIMEOUTS + 1);
}

/* Of packets that are not acknowledged, those that arrive are whole and in order. */
static void pp3_unacknowledged_on_a_bad_network(void **state)
{
	enum { MESSAGES = 400 };
	struct rig *rig = *state;
	struct hdl_qp *qp[2];
	struct hdl_wc wc;
	uint32_t came = 0, last = 0;
	bad_network(rig);
	rig_pair(rig, HDL_QP_UC, qp);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		uint32_t length = 4 + i % 1500;
		rig_recv(rig, 1, qp[1], i, 2048 * (i % 256), 2048);
		rig_fill(rig, 0, 0, length, i);
		memcpy(rig->side[0].mem, &i, 4);
		assert_int_equal(rig_post(rig, 0, qp[0], HDL_OP_SEND, 0, length, 0), 0);
		rig_expect(rig, rig->side[0].scq, HDL_WC_SUCCESS);
		rig_pass(rig, 300000);
		while (hdl_cq_poll(rig->side[1].rcq, &wc, 1) == 1) {
			uint32_t number, at = 2048 * ((uint32_t)wc.wr_id % 256);
			assert_int_equal(wc.status, HDL_WC_SUCCESS);
			memcpy(&number, rig->side[1].mem + at, 4);
			assert_true(came == 0 || number > last);
			assert_int_equal(wc.byte_len, 4 + number % 1500);
			rig_fill(rig, 0, MIB, wc.byte_len, number);
			memcpy(rig->side[0].mem + MIB, &number, 4);
			assert_memory_equal(rig->side[0].mem + MIB, rig->side[1].mem + at,
			                    wc.byte_len);
			last = number;
			came++;
		}
	}
	assert_true(came > MESSAGES / 3 && came < MESSAGES); /* some do get lost */
}

/* Acknowledged without connection: once each, in order, from many senders. */
static void pp3_acknowledged_datagrams(void **state)
{
	enum { SENDERS = 70, MESSAGES = 20 }; /* more than are remembered */
	struct rig *rig = *state;
	struct hdl_qp *from[SENDERS], *to = rig_qp(rig, 1, HDL_QP_UD, true);
	struct hdl_ah *ah = rig_ah(rig, 0);
	uint32_t next[SENDERS] = {0};
	struct hdl_wc wc;
	for (uint32_t i = 0; i < SENDERS; i++)
		from[i] = rig_qp(rig, 0, HDL_QP_UD, true);
	bad_network(rig);
	for (uint32_t n = 0; n < MESSAGES; n++)
		for (uint32_t i = 0; i < SENDERS; i++) {
			uint32_t words[2] = {i, n};
			rig_recv(rig, 1, to, 0, 0, 64);
			memcpy(rig->side[0].mem, words, sizeof(words));
			assert_int_equal(rig_datagram(rig, 0, from[i], ah, hdl_qp_number(to), 0, 8),
			                 0);
			rig_expect(rig, rig->side[0].scq, HDL_WC_SUCCESS);
			assert_true(rig_wait(rig, rig->side[1].rcq, &wc));
			memcpy(words, rig->side[1].mem + HDL_GRH_BYTES, sizeof(words));
			assert_int_equal(words[0], i);
			assert_int_equal(words[1], next[i]++);
			assert_int_equal(hdl_cq_poll(rig->side[1].rcq, &wc, 1), 0);
		}
	/* Without a receive the sender is told to wait, and then that it was in vain. */
	assert_int_equal(rig_datagram(rig, 0, from[0], ah, hdl_qp_number(to), 0, 8), 0);
	rig->loss = rig->twice = rig->swap = rig->damage = 0;
	rig_expect(rig, rig->side[0].scq, HDL_WC_RNR_RETRY_EXC_ERR);
	assert_true(rig_count(rig, 1, "rnr_sent") > 0);
}

/* --- strangers --- */

static struct cell forged(struct rig *rig, int to, struct hdl_qp *qp[2], uint32_t psn)
{
	struct cell cell = {.operation = CELL_SEND,
	                    .flags = CELL_ACKNOWLEDGED,
	                    .dest_qp = hdl_qp_number(qp[to]),
	                    .source_qp = hdl_qp_number(qp[1 - to]),
	                    .psn = psn};
	memcpy(cell.to, rig->side[to].mac, sizeof(cell.to));
	memcpy(cell.from, rig->side[1 - to].mac, sizeof(cell.from));
	return cell;
}

static void pp2_cells_of_others(void **state)
{
	static const uint8_t data[300];
	struct rig *rig = *state;
	struct hdl_qp *qp[2];
	struct hdl_wc wc;
	rig_pair(rig, HDL_QP_RC, qp);
	rig_recv(rig, 1, qp[1], 1, 0, 4096);
	for (int i = 0; i < 6; i++) {
		struct cell cell = forged(rig, 1, qp, 0xfffff0);
		uint64_t before = rig_count(rig, 1, "dropped");
		cell.source_qp ^= i == 0;
		cell.from[5] ^= i == 1;
		cell.to[5] ^= i == 2;
		cell.dest_qp ^= i == 3 ? 0x400 : 0;
		cell.flags ^= i == 4 ? CELL_ACKNOWLEDGED : 0;
		cell.operation = i == 5 ? CELL_READ_RESPONSE : CELL_SEND;
		rig_forge(rig, 1, &cell, data, 8);
		assert_int_equal(rig_count(rig, 1, "dropped"), before + 1);
	}
	/* Packets and cells that are ahead or behind. */
	struct cell ahead = forged(rig, 1, qp, 0xfffff5), behind = forged(rig, 1, qp, 0xffffe0);
	rig_forge(rig, 1, &ahead, data, 300);
	rig_forge(rig, 1, &behind, data, 300);
	/* Answers to what was never sent, and of no known kind. */
	for (int i = 0; i < 3; i++) {
		uint64_t before = rig_count(rig, 0, "bad_packets");
		uint8_t answer[4] = {i == 2 ? 0x77 : (uint8_t)i, 0, 0, i == 0 ? 9 : 0};
		struct cell cell = forged(rig, 0, qp, i == 1 ? 0xfffff4 : 0xffffef);
		cell.operation = CELL_ANSWER;
		rig_forge(rig, 0, &cell, answer, 4);
		assert_int_equal(rig_count(rig, 0, "bad_packets"), before + 1);
	}
	assert_int_equal(hdl_cq_poll(rig->side[1].rcq, &wc, 1), 0);
	/* The connection goes on as if nothing had been. */
	rig_fill(rig, 0, 0, 700, 3);
	assert_int_equal(rig_post(rig, 0, qp[0], HDL_OP_SEND, 0, 700, 0), 0);
	rig_expect(rig, rig->side[0].scq, HDL_WC_SUCCESS);
	assert_true(rig_wait(rig, rig->side[1].rcq, &wc));
	assert_int_equal(wc.byte_len, 700);
	assert_true(rig_holds(rig, 1, 0, 700, 3));
	/* A queue pair that has failed takes no more. */
	const struct hdl_qp_attr failed = {.state = HDL_QPS_ERR};
	assert_int_equal(hdl_qp_modify(qp[1], &failed, HDL_QP_STATE), 0);
	for (int i = 0; i < 2; i++) {
		struct cell cell = forged(rig, 1, qp, 0xfffff3);
		uint64_t before = rig_count(rig, 1, "dropped");
		cell.operation = i == 0 ? CELL_SEND : CELL_READ_RESPONSE;
		rig_forge(rig, 1, &cell, data, 8);
		assert_int_equal(rig_count(rig, 1, "dropped"), before + 1);
	}
}

/* In an Ethernet frame, a cell has the addresses of the frame, and behind the last there may be
 * padding. */
static void pp2_cells_in_frames(void **state)
{
	struct rig *rig = *state;
	struct hdl_qp *qp[2];
	for (int s = 0; s < 2; s++)
		qp[s] = rig_qp(rig, s, HDL_QP_UD, false);
	struct cell good = forged(rig, 1, qp, 5);
	good.flags = 0;
	enum { RIGHT, PADDED, GARBAGE, FROM, TO, ANY, PADDED_DATAGRAM, CASES };
	for (int i = 0; i < CASES; i++) {
		static const uint8_t data[8];
		struct path came = {.kind = PATH_CELL};
		struct cell cell = good;
		struct cell_cutter cutter;
		struct hdl_wc wc;
		uint8_t raw[CELL_MAX_BYTES + 10] = {0};
		uint64_t dropped = rig_count(rig, 1, "dropped"),
		         bad = rig_count(rig, 1, "bad_packets");
		rig_recv(rig, 1, qp[1], 1, 0, 4096);
		memcpy(came.ip.sgid, rig->side[0].gid.raw, 16);
		memcpy(came.ip.dgid, rig->side[1].gid.raw, 16);
		memcpy(came.cell.to, cell.to, CELL_MAC_BYTES);
		memcpy(came.cell.from, cell.from, CELL_MAC_BYTES);
		came.cell.framed = i != PADDED_DATAGRAM;
		cell.from[5] ^= i == FROM;
		cell.to[5] ^= i == TO;
		if (i == ANY)
			memset(cell.to, 0xff, sizeof(cell.to));
		cell_cut(&cutter, &cell, sizeof(data));
		size_t bytes = cell_cut_next(&cutter, data, raw);
		raw[bytes + 9] = i == GARBAGE;
		bytes += i == PADDED || i == GARBAGE || i == PADDED_DATAGRAM ? 10 : 0;
		adapter_take(rig->side[1].adapter, &came, false, raw, bytes);
		bool is_true = i != FROM && i != TO && i != ANY;
		assert_int_equal(hdl_cq_poll(rig->side[1].rcq, &wc, 1), is_true);
		assert_int_equal(rig_count(rig, 1, "dropped") - dropped, !is_true);
		assert_int_equal(rig_count(rig, 1, "bad_packets") - bad,
		                 i == GARBAGE || i == PADDED_DATAGRAM);
	}
}

/* The peer itself is hostile: what it may not touch it does not touch, and it is told. */
static void pp2_writes_and_reads_astray(void **state)
{
	static uint8_t data[600];
	struct rig *rig = *state;
	uint64_t memory = (uint64_t)(uintptr_t)rig->side[1].mem;
	uint32_t key = hdl_mr_key(rig->side[1].mr).v;
	const struct {
		uint8_t operation;
		uint64_t address;
		uint32_t handle;
	} rows[] = {
	        {CELL_WRITE, memory + RIG_BYTES - 599, key}, /* its last cell is beyond */
	        {CELL_WRITE, memory - 1, key},
	        {CELL_WRITE, UINT64_MAX - 300, key}, /* wraps within the packet */
	        {CELL_WRITE, memory, key ^ 1},
	        {CELL_READ_REQUEST, memory + RIG_BYTES - 599, key},
	        {CELL_READ_REQUEST, UINT64_MAX - 300, key},
	        {CELL_READ_REQUEST, memory, key ^ 0x100},
	};
	memset(data, 0x11, sizeof(data));
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct hdl_qp *qp[2];
		struct hdl_qp_attr attr;
		rig_pair(rig, HDL_QP_RC, qp);
		struct cell cell = forged(rig, 1, qp, 0xfffff0);
		cell.operation = rows[i].operation;
		cell.address = rows[i].address;
		cell.handle = rows[i].handle;
		bool reads = cell.operation == CELL_READ_REQUEST;
		cell.read_bytes = reads ? 600 : 0;
		rig_forge(rig, 1, &cell, data, reads ? 0 : 600);
		assert_int_equal(hdl_qp_query(qp[1], &attr, NULL), 0);
		assert_int_equal(attr.state, HDL_QPS_ERR);
		rig_drop(rig, qp[0]);
		rig_drop(rig, qp[1]);
	}
}

/* Packets that lie about themselves. */
static void pp2_damaged_in_the_middle(void **state)
{
	struct rig *rig = *state;
	struct path came = {.kind = PATH_CELL};
	struct hdl_qp *qp[2];
	struct hdl_wc wc;
	uint8_t data[600] = {0}, raw[3][CELL_MAX_BYTES];
	size_t bytes[3];
	rig_pair(rig, HDL_QP_UC, qp);
	rig_recv(rig, 1, qp[1], 1, 0, 4096);
	memcpy(came.ip.sgid, rig->side[0].gid.raw, 16);
	memcpy(came.ip.dgid, rig->side[1].gid.raw, 16);
	for (uint32_t round = 0; round < 4; round++) {
		struct cell cell = forged(rig, 1, qp, 0xfffff0 + round);
		struct cell_cutter cutter;
		cell.flags = 0;
		cell_cut(&cutter, &cell, 600);
		for (int i = 0; i < 3; i++)
			bytes[i] = cell_cut_next(&cutter, data + 256 * i, raw[i]);
		/* A cell is missing; comes twice; is out of order; all are there. */
		static const int orders[4][4] = {
		        {0, 2, -1}, {0, 1, 1, 2}, {1, 0, 2, -1}, {0, 1, 2, -1}};
		for (int i = 0; i < 4 && orders[round][i] >= 0; i++)
			adapter_take(rig->side[1].adapter, &came, false, raw[orders[round][i]],
			             bytes[orders[round][i]]);
		int count = hdl_cq_poll(rig->side[1].rcq, &wc, 1);
		assert_int_equal(count, round == 3);
	}
	assert_int_equal(wc.byte_len, 600);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(pp3_four_channels),
	        RIGGED(pp3_done_when_answered),
	        RIGGED(pp2_write_of_figure_8),
	        RIGGED(pp2_every_size),
	        RIGGED(pp2_every_size_on_a_bad_network),
	        RIGGED(pp2_small_windows_move),
	        RIGGED(pp3_unacknowledged_on_a_bad_network),
	        RIGGED(pp3_acknowledged_datagrams),
	        RIGGED(pp2_cells_of_others),
	        RIGGED(pp2_cells_in_frames),
	        RIGGED(pp2_writes_and_reads_astray),
	        RIGGED(pp2_damaged_in_the_middle),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
