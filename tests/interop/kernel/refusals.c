/* refusals: what iWARP does not have, what one end does not know, and what the other refuses, as
 * programs see it at both ends. The same program runs at both: first the one that called is active
 * and the other one passive, then the other way round.
 *
 *   refusals -R ADDRESS [-p PORT] [-P BYTES] CASE [HOST]
 *
 * CASE is a name of the table below. -P: so many bytes of private data with every message of
 * rdma_cm.
 *
 * siw knows no atomics, no immediate data and no windows, and its reads have one piece. Heddle has
 * all of these; what it sends of them ends the connection, by siw's Terminate. Both refuse tags
 * that they did not give out, ranges beyond them, accesses that were not granted, and messages that
 * are longer than their receive. Nothing may be changed by what was refused, and the program at
 * each end must hear of the end of the connection. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "side.h"

enum { GUARD = 64, FILL = 0xe5, BYTES = 100, LIST = 3, AT = 4096 };
enum { RECEIVE = 40, REQUEST = 41 };
enum { EVENT_MS = 2000 };

static bool siw, other_siw; /* which end is Linux's driver */

/* --- what both cases need --- */

static uint8_t *own(const struct side *side)
{
	return side->memory + AT;
}

static uint8_t *shared(const struct side *side)
{
	return side->memory + side->bytes / 2 + AT;
}

static uint64_t theirs(const struct side *side)
{
	return side->other.address + side->bytes / 2 + AT;
}

static struct ibv_sge piece(const struct side *side, uint8_t *at, uint32_t bytes)
{
	return (struct ibv_sge){(uintptr_t)at, bytes, side->mr->lkey};
}

static void fill(uint8_t *at, size_t bytes, bool pattern)
{
	memset(at - GUARD, FILL, bytes + 2 * GUARD);
	for (size_t i = 0; pattern && i < bytes; i++)
		at[i] = (uint8_t)(i * 7 + 1);
}

static void expect_pattern(const uint8_t *at, size_t bytes, const char *what)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != (uint8_t)(i * 7 + 1))
			side_fail("%s: byte %zu differs", what, i);
	for (size_t i = 1; i <= GUARD; i++)
		if (at[-(ptrdiff_t)i] != FILL || at[bytes + i - 1] != FILL)
			side_fail("%s: something beside it was written", what);
}

static void expect_untouched(const uint8_t *at, size_t bytes, const char *what)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != FILL)
			side_fail("%s: byte %zu was written", what, i);
}

/* The events of the device since the last time, and whether @type is among them, for which it waits
 * unless it is 0. */
static bool heard(const struct side *side, enum ibv_event_type type)
{
	struct pollfd fd = {side->context->async_fd, POLLIN, 0};
	struct ibv_async_event event;
	bool found = false;
	while (poll(&fd, 1, type != 0 && !found ? EVENT_MS : 0) == 1 &&
	       ibv_get_async_event(side->context, &event) == 0) {
		printf("  event: %s\n", ibv_event_type_str(event.event_type));
		found |= event.event_type == type;
		ibv_ack_async_event(&event);
	}
	return found;
}

/* The connection ends by itself. Heddle's program hears @type, unless it is 0. */
static void expect_end(const struct side *side, enum ibv_event_type type, const char *what)
{
	side_cm_ended();
	printf("  disconnected\n");
	if (siw)
		type = 0;
	if (!heard(side, type) && type != 0)
		side_fail("%s: no event says %s", what, ibv_event_type_str(type));
}

static struct ibv_send_wr request(const struct side *side, enum ibv_wr_opcode opcode,
                                  struct ibv_sge *list, int count)
{
	struct ibv_send_wr wr = {.wr_id = REQUEST,
	                         .sg_list = list,
	                         .num_sge = count,
	                         .opcode = opcode,
	                         .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.rkey = side->other.rkey;
	wr.wr.rdma.remote_addr = theirs(side);
	return wr;
}

/* Post what this end does not know: 0 or an error, which is printed. */
static int try_post(const struct side *side, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(side->qp, wr, &bad);
	if (error != 0)
		printf("  ibv_post_send: %s\n", strerror(abs(error)));
	return error;
}

/* A send that must arrive: the connection is all right. */
static void still_connected(struct side *side, bool turn)
{
	struct ibv_sge list = piece(side, turn ? own(side) : shared(side), BYTES);
	fill(turn ? own(side) : shared(side), BYTES, turn);
	if (!turn)
		side_recv(side, RECEIVE, &list, 1);
	side_meet(side);
	if (turn) {
		struct ibv_send_wr wr = request(side, IBV_WR_SEND, &list, 1);
		side_send(side, &wr);
	}
	side_done(side, turn ? REQUEST : RECEIVE);
	if (!turn)
		expect_pattern(shared(side), BYTES, "a send afterwards");
	side_meet(side);
}

static void show(const struct ibv_wc *wc)
{
	printf("  completion: %s\n", ibv_wc_status_str(wc->status));
}

/* --- what siw does not know --- */

/* Active: @wr, which siw's library refuses and Heddle sends. Passive: a receive is there, and no
 * bytes of it may be taken for received. */
static void unknown(struct side *side, bool turn, struct ibv_send_wr *wr, bool fails,
                    const char *what)
{
	struct ibv_sge in = piece(side, shared(side), BYTES);
	if (!turn)
		side_recv(side, RECEIVE, &in, 1);
	side_meet(side);
	if (turn && siw) {
		if (try_post(side, wr) == 0)
			side_fail("%s: siw takes it", what);
		return;
	}
	if (!turn && other_siw)
		return;
	if (turn) {
		side_send(side, wr);
		struct ibv_wc wc = side_wait(side);
		show(&wc);
		if (fails && wc.status == IBV_WC_SUCCESS)
			side_fail("%s succeeds", what);
	}
	expect_end(side, turn ? IBV_EVENT_QP_FATAL : 0, what);
	struct ibv_wc wc;
	while (!turn && ibv_poll_cq(side->cq, 1, &wc) > 0) {
		show(&wc);
		if (wc.status == IBV_WC_SUCCESS)
			side_fail("%s: a receive completes", what);
	}
}

static void atomics(struct side *side, bool turn)
{
	struct ibv_sge list = piece(side, own(side), 8);
	struct ibv_send_wr wr = request(side, IBV_WR_ATOMIC_FETCH_AND_ADD, &list, 1);
	wr.wr.atomic.remote_addr = theirs(side);
	wr.wr.atomic.rkey = side->other.rkey;
	wr.wr.atomic.compare_add = 1;
	fill(own(side), 8, false);
	fill(shared(side), 8, false);
	unknown(side, turn, &wr, true, "an atomic");
	expect_untouched(turn ? own(side) : shared(side), 8, "an atomic");
}

static void immediate(struct side *side, bool turn)
{
	struct ibv_sge list = piece(side, own(side), BYTES);
	struct ibv_send_wr wr = request(side, IBV_WR_RDMA_WRITE_WITH_IMM, &list, 1);
	wr.imm_data = 7;
	unknown(side, turn, &wr, false, "a write with immediate data");
}

/* RFC 7306 has none of it: nothing is sent, and Heddle's queue pair fails. */
static void send_immediate(struct side *side, bool turn)
{
	struct ibv_sge list = piece(side, own(side), BYTES);
	struct ibv_send_wr wr = request(side, IBV_WR_SEND_WITH_IMM, &list, 1);
	wr.imm_data = 7;
	struct ibv_sge in = piece(side, shared(side), BYTES);
	if (!turn)
		side_recv(side, RECEIVE, &in, 1);
	side_meet(side);
	if (turn && siw) {
		if (try_post(side, &wr) == 0)
			side_fail("siw takes a send with immediate data");
	} else if (turn) {
		side_send(side, &wr);
		struct ibv_wc wc = side_wait(side);
		show(&wc);
		if (wc.status != IBV_WC_LOC_QP_OP_ERR)
			side_fail("a send with immediate data: %s", ibv_wc_status_str(wc.status));
		expect_end(side, 0, "a send with immediate data");
	} else if (!other_siw) {
		expect_end(side, 0, "a send with immediate data");
	}
}

/* A window of Heddle's is used by siw, and invalidated by its send; siw has none. */
static void windows(struct side *side, bool turn)
{
	struct ibv_mw *mw = NULL;
	uint32_t mine = 0, key = 0;
	struct ibv_sge list = piece(side, turn ? own(side) : shared(side), BYTES);
	fill(turn ? own(side) : shared(side), BYTES, turn);
	if (!turn) {
		mw = ibv_alloc_mw(side->pd, IBV_MW_TYPE_2);
		if (mw == NULL)
			printf("  ibv_alloc_mw: %s\n", strerror(errno));
		if ((mw == NULL) != siw)
			side_fail("windows: %s", mw == NULL ? "none" : "siw has some");
	}
	if (mw != NULL) {
		mine = ibv_inc_rkey(mw->rkey);
		struct ibv_send_wr bind = {
		        .wr_id = 20, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
		bind.bind_mw.mw = mw;
		bind.bind_mw.rkey = mine;
		bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
		        side->mr, (uintptr_t)shared(side), BYTES, IBV_ACCESS_REMOTE_WRITE};
		side_send(side, &bind);
		side_done(side, 20);
		struct ibv_sge in = piece(side, own(side), BYTES);
		side_recv(side, RECEIVE, &in, 1);
	}
	side_swap(side, &mine, &key, sizeof(key));
	if (turn && key != 0) {
		struct ibv_send_wr wr = request(side, IBV_WR_RDMA_WRITE, &list, 1);
		wr.wr.rdma.rkey = key;
		side_send(side, &wr);
		side_done(side, REQUEST);
		/* siw wants a piece of at least one byte. */
		list.length = 1;
		wr = request(side, IBV_WR_SEND_WITH_INV, &list, 1);
		wr.invalidate_rkey = key;
		wr.wr.rdma.rkey = key; /* which is what siw's library takes */
		side_send(side, &wr);
		side_done(side, REQUEST);
	}
	if (mw != NULL) {
		struct ibv_wc wc = side_done(side, RECEIVE);
		if ((wc.wc_flags & IBV_WC_WITH_INV) == 0 || wc.invalidated_rkey != mine)
			side_fail("flags %#x, key %#x invalidated, not %#x", wc.wc_flags,
			          wc.invalidated_rkey, mine);
		expect_pattern(shared(side), BYTES, "a write through a window");
		printf("  written through a window, which was invalidated\n");
		if (ibv_dealloc_mw(mw) != 0)
			side_fail("the window stays");
	}
	side_meet(side);
}

/* A read whose data goes to three places. siw fills the first alone, and says that all is well. */
static void lists(struct side *side, bool turn)
{
	struct ibv_sge list[LIST];
	fill(turn ? own(side) : shared(side), BYTES * LIST, !turn);
	for (uint32_t i = 0; i < LIST; i++)
		list[i] = piece(side, own(side) + i * (size_t)BYTES, BYTES);
	side_meet(side);
	if (turn) {
		struct ibv_send_wr wr = request(side, IBV_WR_RDMA_READ, list, LIST);
		side_send(side, &wr);
		struct ibv_wc wc = side_done(side, REQUEST);
		show(&wc);
	}
	if (turn && siw) {
		expect_untouched(own(side) + BYTES, BYTES * (LIST - 1), "a read with a list");
		printf("  the first piece alone was read\n");
	} else if (turn) {
		expect_pattern(own(side), BYTES * LIST, "a read with a list");
		printf("  all pieces were read\n");
	}
	side_meet(side);
}

/* --- what both refuse --- */

/* One request that the passive side refuses, at @address with @key. */
static void refused(struct side *side, bool turn, enum ibv_wr_opcode opcode, uint64_t address,
                    uint32_t key, const char *what)
{
	struct ibv_sge list = piece(side, own(side), BYTES);
	struct ibv_send_wr wr = request(side, opcode, &list, 1);
	const bool read = opcode == IBV_WR_RDMA_READ;
	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = key;
	fill(own(side), BYTES, !read);
	fill(shared(side), BYTES, false);
	printf(" %s, %s\n", what, turn ? "active" : "passive");
	side_meet(side);
	if (turn) {
		side_send(side, &wr);
		struct ibv_wc wc = side_wait(side);
		show(&wc);
		/* A write is over when it is sent. */
		if (read && wc.status == IBV_WC_SUCCESS)
			side_fail("%s succeeds", what);
		if (read && !siw && wc.status != IBV_WC_REM_ACCESS_ERR)
			side_fail("%s: %s", what, ibv_wc_status_str(wc.status));
	}
	/* Who refused it hears of the check; whose write it was, of the end. */
	expect_end(side, !turn ? IBV_EVENT_QP_ACCESS_ERR : read ? 0 : IBV_EVENT_QP_FATAL, what);
	if (!turn)
		expect_untouched(shared(side), BYTES, what);
	else if (read)
		expect_untouched(own(side), BYTES, what);
	side_again(side);
}

static void tags(struct side *side, bool turn)
{
	const uint64_t end = side->other.address + side->bytes - BYTES / 2;
	const uint32_t key = side->other.rkey;
	refused(side, turn, IBV_WR_RDMA_READ, theirs(side), key ^ 1, "a read with a wrong tag");
	refused(side, turn, IBV_WR_RDMA_WRITE, theirs(side), key ^ 1, "a write with a wrong tag");
	refused(side, turn, IBV_WR_RDMA_READ, theirs(side), 0x7fffff00, "a read with no tag");
	refused(side, turn, IBV_WR_RDMA_WRITE, theirs(side), 0x7fffff00, "a write with no tag");
	refused(side, turn, IBV_WR_RDMA_READ, end, key, "a read beyond the end");
	refused(side, turn, IBV_WR_RDMA_WRITE, end, key, "a write beyond the end");
	refused(side, turn, IBV_WR_RDMA_READ, side->other.address - 1, key,
	        "a read before the begin");
	refused(side, turn, IBV_WR_RDMA_WRITE, UINT64_MAX - BYTES / 2, key,
	        "a write across the end of the address space");
}

/* siw (6.1) does not look whether a region may be read. */
static void read_all_the_same(struct side *side, bool turn, uint32_t key)
{
	struct ibv_sge list = piece(side, own(side), BYTES);
	fill(turn ? own(side) : shared(side), BYTES, !turn);
	side_meet(side);
	if (turn) {
		struct ibv_send_wr wr = request(side, IBV_WR_RDMA_READ, &list, 1);
		wr.wr.rdma.rkey = key;
		side_send(side, &wr);
		side_done(side, REQUEST);
		expect_pattern(own(side), BYTES, "a read that siw lets pass");
		printf(" siw answers a read that was not granted\n");
	}
	side_meet(side);
}

/* A region for one of the two only. */
static void access_rights(struct side *side, bool turn)
{
	for (int read = 0; read < 2; read++) {
		uint32_t mine = 0, key = 0;
		struct ibv_mr *mr = NULL;
		unsigned access = IBV_ACCESS_LOCAL_WRITE;
		access |= read ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
		if (!turn) {
			mr = ibv_reg_mr(side->pd, shared(side), BYTES, access);
			if (mr == NULL)
				side_fail("no region");
			mine = mr->rkey;
		}
		side_swap(side, &mine, &key, sizeof(key));
		if (read && (turn ? other_siw : siw))
			read_all_the_same(side, turn, key);
		else
			refused(side, turn, read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
			        theirs(side), key,
			        read ? "a read that was not granted"
			             : "a write that was not granted");
		if (mr != NULL && ibv_dereg_mr(mr) != 0)
			side_fail("the region stays");
	}
}

/* A message that is longer than its receive. */
static void too_long(struct side *side, bool turn)
{
	struct ibv_sge out = piece(side, own(side), BYTES);
	struct ibv_sge in = piece(side, shared(side), BYTES / 2);
	fill(own(side), BYTES, true);
	fill(shared(side), BYTES / 2, false);
	if (!turn)
		side_recv(side, RECEIVE, &in, 1);
	side_meet(side);
	if (turn) {
		struct ibv_send_wr wr = request(side, IBV_WR_SEND, &out, 1);
		side_send(side, &wr);
		struct ibv_wc wc = side_wait(side);
		show(&wc);
	} else {
		struct ibv_wc wc = side_wait(side);
		show(&wc);
		if (wc.status == IBV_WC_SUCCESS || (!siw && wc.status != IBV_WC_LOC_LEN_ERR))
			side_fail("a message that is too long: %s", ibv_wc_status_str(wc.status));
	}
	expect_end(side, turn ? IBV_EVENT_QP_FATAL : 0, "a message that is too long");
	if (!turn)
		expect_untouched(shared(side) + BYTES / 2, GUARD, "a message that is too long");
	side_again(side);
}

/* A message before its receive: siw ends the connection, Heddle waits for the receive. */
static void no_receive(struct side *side, bool turn)
{
	struct ibv_sge list = piece(side, turn ? own(side) : shared(side), BYTES);
	fill(turn ? own(side) : shared(side), BYTES, turn);
	side_meet(side);
	if (turn) {
		struct ibv_send_wr wr = request(side, IBV_WR_SEND, &list, 1);
		side_send(side, &wr);
		side_done(side, REQUEST);
	}
	if (turn ? other_siw : siw) {
		expect_end(side, turn ? IBV_EVENT_QP_FATAL : 0, "a message without a receive");
		side_again(side);
		return;
	}
	if (!turn) {
		usleep(200000); /* it is there */
		side_recv(side, RECEIVE, &list, 1);
		side_done(side, RECEIVE);
		expect_pattern(shared(side), BYTES, "a message before its receive");
		printf("  received after all\n");
	}
	side_meet(side);
}

/* More private data than the connection itself needs: nothing to do but to meet. */
static void private_data(struct side *side, bool turn)
{
	still_connected(side, turn);
}

static const struct {
	const char *name;
	void (*run)(struct side *side, bool turn);
	bool again; /* the connection has ended if Heddle was active; make another */
} cases[] = {
        {"atomics", atomics, true},
        {"immediate", immediate, true},
        {"send-immediate", send_immediate, true},
        {"windows", windows, false},
        {"lists", lists, false},
        {"tags", tags, false},
        {"access", access_rights, false},
        {"too-long", too_long, false},
        {"no-receive", no_receive, false},
        {"private", private_data, false},
};

static void run_case(struct side *side, const char *name)
{
	size_t i = 0;
	while (i < sizeof(cases) / sizeof(cases[0]) && strcmp(cases[i].name, name) != 0)
		i++;
	if (i == sizeof(cases) / sizeof(cases[0]))
		side_fail("%s?", name);
	for (int turn = 0; turn < 2; turn++) {
		const bool mine = (side->host != NULL) == (turn == 0);
		printf("%s, %s %s\n", name, ibv_get_device_name(side->context->device),
		       mine ? "active" : "passive");
		cases[i].run(side, mine);
		if (cases[i].again)
			side_again(side);
		still_connected(side, mine);
	}
}

int main(int argc, char **argv)
{
	struct side side = {.port = "17272", .type = IBV_QPT_RC, .timeout = 16, .bytes = 1u << 16};
	for (int option; (option = getopt(argc, argv, "p:P:R:")) != -1;)
		switch (option) {
		case 'p':
			side.port = optarg;
			break;
		case 'P':
			side.private_bytes = strtoul(optarg, NULL, 0);
			break;
		case 'R':
			side.by_cm = optarg;
			break;
		default:
			return 64;
		}
	if (side.by_cm == NULL || optind == argc)
		return 64;
	side.host = argv[optind + 1];
	setlinebuf(stdout);
	side_open(&side);
	siw = strncmp(ibv_get_device_name(side.context->device), "siw", 3) == 0;
	side_swap(&side, &siw, &other_siw, sizeof(siw));
	run_case(&side, argv[optind]);
	side_close(&side);
	printf("ok\n");
	return 0;
}
