/* A hostile process of the same user: it scribbles over everything that it shares while a victim
 * works with it. Its protection table, its translation tables, the facts of its queue pairs, its
 * header, both lanes and both guards change at any moment, under the victim's hands. Only the
 * hostile one may come to harm: the victim neither crashes nor hangs nor touches a byte outside
 * what it was told to, and its connection to a decent peer goes on. Usage: hostile ROUNDS [SEED].
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/prng.h"
#include "end.h"
#include "memory/slot.h"
#include "port/lanes.h"
#include "transport/local/frame.h"

#define ROOM     (1u << 18)
#define ROUND_MS 60
#define LIMIT_MS 1000

/* --- the hostile one --- */

/* A word of what we share, near what the victim looks at. */
static uint64_t *target(const struct end *end, struct prng *prng, uint64_t what)
{
	const struct tables *tables = &end->adapter->peers.tables;
	unsigned char *lanes = NULL;
	for (uint32_t i = 0; i < end->adapter->engine.link_count; i++)
		if (end->adapter->peers.list[i].used && end->adapter->peers.list[i].adapter == NULL)
			lanes = end->adapter->peers.list[i].block;
	uint64_t index = tpt_index(&end->adapter->tpt.view, end->mine.key);
	uint32_t qp = end->mine.qpn & end->adapter->engine.qp_mask;
	switch (what) {
	case 0:
		return (uint64_t *)(void *)&tables->slots[index] + prng_below(prng, 8);
	case 1:
		return (uint64_t *)(void *)&tables->qps[qp] + prng_below(prng, 2);
	case 2:
		return tables->arena + prng_below(prng, 4096);
	case 3:
		return (uint64_t *)(void *)tables->header + prng_below(prng, 512);
	case 4: /* guards, and the beginning of the first lane */
		return lanes == NULL ? NULL : (uint64_t *)(void *)lanes + prng_below(prng, 512);
	default:
		return lanes == NULL
		               ? NULL
		               : (uint64_t *)(void *)lanes + prng_below(prng, lanes_bytes() / 8);
	}
}

/* Values that come near the truth do more harm than random ones: one bit, one byte, another word
 * nearby, an extreme. */
static uint64_t mutate(struct prng *prng, uint64_t word)
{
	static const uint64_t extremes[] = {0,          1,          UINT64_MAX,      1ull << 63,
	                                    UINT32_MAX, 1ull << 32, UINT64_MAX - 63, 4096};
	switch (prng_below(prng, 5)) {
	case 0:
		return word ^ 1ull << prng_below(prng, 64);
	case 1:
		return (word & ~(0xffull << 8)) | prng_next(prng) << (8 * prng_below(prng, 8));
	case 2:
		return extremes[prng_below(prng, sizeof(extremes) / sizeof(extremes[0]))];
	case 3:
		return word + prng_below(prng, 129) - 64;
	default:
		return prng_next(prng);
	}
}

static uint64_t extreme(struct prng *prng, uint64_t word)
{
	return prng_chance(prng, 500) ? word : mutate(prng, word);
}

/* An entry that is whole and lies: valid, the victim's to use, but with a table, a length or a page
 * size of our choice. */
static void forge_entry(const struct end *end, struct prng *prng, const struct tpt_entry *true_one)
{
	struct tpt_slot *slot = &end->adapter->peers.tables
	                                 .slots[tpt_index(&end->adapter->tpt.view, end->mine.key)];
	struct tpt_entry entry = *true_one;
	entry.seq = slot_get(slot).seq & ~1u;
	entry.order = (uint8_t)prng_below(prng, 5);
	entry.att =
	        prng_chance(prng, 300) ? prng_below(prng, 1ull << 28) : extreme(prng, entry.att);
	entry.att_skip = prng_chance(prng, 500) ? 0 : mutate(prng, entry.att_skip);
	entry.page_shift = (uint8_t)(prng_chance(prng, 800) ? 12 : prng_below(prng, 256));
	if (prng_chance(prng, 100))
		entry.length = mutate(prng, entry.length);
	if (prng_chance(prng, 100))
		entry.base = mutate(prng, entry.base);
	if (prng_chance(prng, 50))
		entry.access = (uint8_t)prng_next(prng);
	slot_put(slot, &entry);
}

/* Pages that we have, that nobody has, and words that are no pages. */
static void forge_pages(const struct end *end, struct prng *prng)
{
	for (int i = 0; i < 64; i++) {
		uint64_t page = (end->mine.addr & ~4095ull) + 4096 * prng_below(prng, 80);
		end->adapter->peers.tables.arena[prng_below(prng, 4096)] =
		        prng_chance(prng, 800) ? page : mutate(prng, page);
	}
}

static struct qp_public *own_facts(const struct end *end)
{
	return &end->adapter->peers.tables.qps[end->mine.qpn & end->adapter->engine.qp_mask];
}

/* A queue pair that is another one. */
static void forge_facts(const struct end *end, struct prng *prng, const struct qp_facts *true_ones)
{
	struct qp_public *pub = own_facts(end);
	struct qp_facts forged = *true_ones;
	if (prng_chance(prng, 300))
		forged.state = (uint8_t)prng_below(prng, 9);
	if (prng_chance(prng, 300))
		forged.access = (uint8_t)prng_next(prng);
	if (prng_chance(prng, 100))
		forged.pd = (uint32_t)prng_next(prng);
	if (prng_chance(prng, 100))
		forged.dest_qpn = (uint32_t)prng_next(prng);
	qp_publish(pub, &forged);
	if (prng_chance(prng, 900))
		qp_publish(pub, true_ones);
}

/* A frame, in the place where the victim expects the next, that nearly makes sense. */
static void forge_frame(const struct end *end, struct prng *prng)
{
	struct link *link = NULL;
	for (uint32_t i = 0; i < end->adapter->engine.link_count; i++)
		if (end->adapter->peers.links[i].up && end->adapter->peers.list[i].adapter == NULL)
			link = &end->adapter->peers.links[i];
	if (link == NULL)
		return;
	struct ring_slot *slot = (struct ring_slot *)(void *)link->tx.shared->slots +
	                         (link->tx.position & (link->tx.slot_count - 1));
	struct frame frame = {.kind = (uint8_t)prng_below(prng, FRAME_KIND_COUNT + 1),
	                      .flags = (uint8_t)prng_below(prng, 64),
	                      .num_sge = (uint8_t)prng_below(prng, 20),
	                      .to_qpn = end->peer.qpn,
	                      .from_qpn = end->mine.qpn,
	                      .msn = (uint32_t)prng_below(prng, 8),
	                      .length = (uint32_t)extreme(prng, prng_below(prng, 5000)),
	                      .imm = (uint32_t)prng_next(prng)};
	unsigned char *record = slot->record;
	for (size_t i = sizeof(frame); i < sizeof(slot->record); i++)
		record[i] = (unsigned char)prng_next(prng);
	memcpy(record, &frame, sizeof(frame));
	uint32_t bytes = (uint32_t)prng_below(prng, 6000);
	atomic_store(&slot->bytes, prng_chance(prng, 700) ? bytes : (uint32_t)prng_next(prng));
	atomic_store(&slot->stamp, RING_STAMP(link->tx.position >> link->tx.lap_shift));
	link->tx.position += (bytes + RING_HEADER_BYTES + RING_SLOT_BYTES - 1) / RING_SLOT_BYTES;
}

static void scratch(const struct end *end, struct prng *prng, uint64_t first, uint64_t count,
                    bool restore)
{
	uint64_t *word = target(end, prng, first + prng_below(prng, count));
	if (word == NULL)
		return;
	uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
	__atomic_store_n(word, mutate(prng, before), __ATOMIC_RELAXED);
	for (uint64_t pause = prng_below(prng, 200); pause > 0; pause--)
		__asm__ volatile("" ::: "memory");
	if (restore)
		__atomic_store_n(word, before, __ATOMIC_RELAXED);
}

/* Do harm in one manner or in all, so that some rounds leave the link alive for long. */
static void scribble(const struct end *end, uint64_t seed)
{
	struct prng prng;
	struct tpt_entry true_one;
	struct qp_facts facts;
	prng_seed(&prng, seed);
	uint64_t style = prng_below(&prng, 5);
	uint64_t first = prng_below(&prng, 6), count = prng_below(&prng, 6 - first) + 1;
	bool restore = prng_chance(&prng, 700);
	if (!tpt_read(&end->adapter->tpt.view, end->mine.key, &true_one) ||
	    !qp_read_facts(own_facts(end), &facts))
		return;
	for (;;) {
		switch (style < 4 ? style : prng_below(&prng, 4)) {
		case 0:
			scratch(end, &prng, first, count, restore);
			break;
		case 1:
			qp_publish(own_facts(end), &facts); /* ready, whatever happened to it */
			forge_entry(end, &prng, &true_one);
			if (prng_chance(&prng, 100))
				forge_pages(end, &prng);
			usleep((useconds_t)prng_below(&prng, 50));
			break;
		case 2:
			forge_facts(end, &prng, &facts);
			break;
		default:
			usleep((useconds_t)prng_below(&prng, 2000));
			forge_frame(end, &prng);
			break;
		}
	}
}

static void be_hostile(int fd)
{
	struct end end;
	uint64_t seed;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	end_open(&end, ROOM, 64);
	if (!end_meet(&end, fd, fd))
		_exit(0);
	end_connect(&end);
	/* Begin when the victim is ready: it would not connect to nonsense. */
	MUST(read(fd, &seed, sizeof(seed)) == sizeof(seed) ? 0 : -HDL_EIO);
	scribble(&end, seed);
}

/* --- the decent one --- */

static void be_decent(int fd)
{
	struct end end;
	struct hdl_wc wc;
	struct pollfd told = {.fd = fd, .events = POLLIN};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	end_open(&end, ROOM, 8);
	MUST(end_meet(&end, fd, fd) ? 0 : -HDL_EIO);
	end_connect(&end);
	while (poll(&told, 1, 0) == 0)
		if (end_wait(&end, &wc, 5) && wc.status == HDL_WC_SUCCESS)
			end_post_receive(&end);
	end_close(&end);
	_exit(0);
}

/* --- the victim --- */

static void fail(const char *what, uint64_t seed)
{
	fprintf(stderr, "%s (seed %#llx)\n", what, (unsigned long long)seed);
	exit(4);
}

/* The connection to the decent one still carries what it should. */
static void check_decent(struct end *decent, unsigned char pattern, uint64_t seed)
{
	memset(decent->room, pattern, 8192);
	if (end_do(decent, HDL_OP_WRITE, 8192) != HDL_WC_SUCCESS)
		fail("the decent peer: write", seed);
	memset(decent->room, 0, 8192);
	if (end_do(decent, HDL_OP_READ, 8192) != HDL_WC_SUCCESS || decent->room[0] != pattern ||
	    decent->room[8191] != pattern)
		fail("the decent peer: read", seed);
	if (end_do(decent, HDL_OP_SEND, 5000) != HDL_WC_SUCCESS)
		fail("the decent peer: send", seed);
}

static uint64_t done, failures;
static pid_t hostile_pid;

/* What was asked of the hostile one and what came of it. True: something failed. */
static bool take_completions(struct end *end)
{
	struct hdl_wc wc[16];
	bool failed = false;
	int count = hdl_cq_poll(end->cq, wc, 16);
	MUST(count);
	for (int i = 0; i < count; i++) {
		failed = failed || wc[i].status != HDL_WC_SUCCESS;
		done += wc[i].status == HDL_WC_SUCCESS;
		if (wc[i].status == HDL_WC_SUCCESS && wc[i].opcode >= HDL_WC_RECV)
			end_post_receive(end);
	}
	failures += failed;
	return failed;
}

/* Once more, though the link may be down by now. False: it is. */
static bool try_again(struct end *end)
{
	struct hdl_qp_attr reset = {.state = HDL_QPS_RESET};
	struct hdl_wc wc;
	MUST(hdl_qp_modify(end->qp, &reset, HDL_QP_STATE));
	while (hdl_cq_poll(end->cq, &wc, 1) > 0)
		;
	for (uint32_t i = 0; i < end->adapter->engine.link_count; i++)
		if (end->adapter->peers.links[i].up &&
		    end->adapter->peers.list[i].pid == hostile_pid) {
			return end_try_connect(end) == 0; /* it may be closed on us at once */
		}
	return false;
}

/* Anything, with the hostile one, until the time is over or the link is down. True: in the end it
 * failed. */
static bool work(struct end *end, struct prng *prng, double until, bool again)
{
	static const uint32_t opcodes[] = {HDL_OP_WRITE, HDL_OP_READ, HDL_OP_SEND, HDL_OP_FETCH_ADD,
	                                   HDL_OP_WRITE_IMM};
	struct hdl_mr *mr;
	bool rdma_only =
	        prng_chance(prng, 500); /* else most of the time goes by waiting for answers */
	while (now_ms() < until) {
		uint32_t length =
		        (uint32_t)prng_below(prng, prng_chance(prng, 300) ? ROOM : 256) + 1;
		end_try(end, opcodes[prng_below(prng, rdma_only ? 2 : 5)], length); /* or full */
		if (prng_chance(prng, 20)) {
			MUST(hdl_mr_register(end->pd, end->room, length, 0x1f, &mr));
			MUST(hdl_mr_deregister(mr));
		}
		if (take_completions(end) && (!again || !try_again(end)))
			return true;
	}
	return false;
}

/* Bytes around the memory that was registered. */
static void check_fences(const struct end *end, uint64_t seed)
{
	for (size_t i = 0; i < END_FENCE; i++)
		if (end->room[-1 - (ptrdiff_t)i] != END_CANARY ||
		    end->room[end->bytes + i] != END_CANARY)
			fail("bytes beside the registered memory were written", seed);
}

static void round_with_hostile(struct end *decent, struct prng *prng)
{
	struct end end;
	int pair[2];
	uint64_t seed = prng_next(prng);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 ? 0 : -HDL_EIO);
	hostile_pid = fork();
	if (hostile_pid == 0) {
		close(pair[0]);
		be_hostile(pair[1]);
	}
	close(pair[1]);
	end_open_on(&end, decent->adapter, ROOM, 64);
	MUST(end_meet(&end, pair[0], pair[0]) ? 0 : -HDL_EIO);
	end_connect(&end);
	MUST(write(pair[0], &seed, sizeof(seed)) == sizeof(seed) ? 0 : -HDL_EIO);
	bool failed = work(&end, prng, now_ms() + ROUND_MS, true);
	check_decent(decent, (unsigned char)seed, seed); /* while the other is still at it */
	kill(hostile_pid, SIGKILL);
	waitpid(hostile_pid, NULL, 0);
	close(pair[0]);
	if (!failed && !work(&end, prng, now_ms() + LIMIT_MS, false))
		fail("no error within a second after the hostile one was killed", seed);
	check_decent(decent, (unsigned char)~seed, seed);
	check_fences(&end, seed);
	end_close(&end);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 30, pair[2], status = 0;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	struct prng prng;
	struct end decent;
	prng_seed(&prng, seed);
	signal(SIGPIPE, SIG_IGN);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 ? 0 : -HDL_EIO);
	pid_t other = fork();
	if (other == 0) {
		close(pair[0]);
		be_decent(pair[1]);
	}
	close(pair[1]);
	end_open(&decent, ROOM, 8);
	MUST(end_meet(&decent, pair[0], pair[0]) ? 0 : -HDL_EIO);
	end_connect(&decent);
	pid_t agent = agent_pid();
	for (int i = 0; i < rounds; i++)
		round_with_hostile(&decent, &prng);
	if (agent == 0 || agent_pid() != agent)
		fail("the agent is not the one that it was", seed);
	MUST(write(pair[0], &seed, sizeof(seed)) == sizeof(seed) ? 0 : -HDL_EIO);
	waitpid(other, &status, 0);
	end_close(&decent);
	printf("%d rounds with a hostile peer: %llu requests done, %llu times failed\n", rounds,
	       (unsigned long long)done, (unsigned long long)failures);
	return status != 0;
}
