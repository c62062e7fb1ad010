/* The client of `heddle perf`: plans a measurement, lets the server prepare its end, and takes the
 * time. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/perf.h"

#define PROGRESS_NS 200000000u
#define STUCK_NS    10000000000u

uint64_t perf_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A progress line for a user who waits. */
struct progress {
	bool shown, wanted;
	uint64_t next_ns;
};

static void perf_client_show(struct progress *progress, const struct perf_plan *plan, uint64_t done)
{
	uint64_t now = progress->wanted ? perf_now_ns() : 0;
	if (!progress->wanted || now < progress->next_ns)
		return;
	progress->next_ns = now + PROGRESS_NS;
	progress->shown = true;
	fprintf(stderr, "\r%s %s, %llu bytes: %3llu %% \033[K", perf_op_name(plan->op),
	        plan->mode == PERF_LATENCY ? "latency" : "bandwidth",
	        (unsigned long long)plan->size_bytes,
	        (unsigned long long)(100 * done / (plan->count + plan->warm_up)));
}

/* Poll until @condition holds; false if the other side has failed or nothing happens for a long
 * time. */
#define AWAIT(side, condition)                                                      \
	do {                                                                        \
		uint64_t begin = 0;                                                 \
		for (uint32_t turn = 0; !(condition); turn++) {                     \
			if (!side_wait(side))                                       \
				return false;                                       \
			if (turn % 4096 == 4095 && !is_worth_waiting(side, &begin)) \
				return false;                                       \
		}                                                                   \
	} while (0)

static bool is_worth_waiting(struct perf_side *side, uint64_t *begin)
{
	struct perf_msg msg;
	uint64_t now = perf_now_ns();
	*begin = *begin == 0 ? now : *begin;
	if (talk_waiting(side)) /* it is only sent when it has failed or ended */
		return talk_receive(side, PERF_FAILED, &msg, 1) && false;
	return now - *begin < STUCK_NS ||
	       side_fail(side, "a request does not complete", -HDL_ETIMEDOUT);
}

/* One sample: half of a round trip, or the time until completion. */
static bool time_one(struct perf_side *side, uint64_t number, uint64_t *ns)
{
	const struct perf_plan *plan = &side->plan;
	uint64_t received = side->received, done = side->sent_done, start = perf_now_ns();
	bool written_back = plan->op == PERF_WRITE && !plan->sleeps;
	volatile uint8_t *answer = side_slot(side, 1) + plan->size_bytes - 1;
	uint8_t mark = (uint8_t)(number % 255 + 1);
	if (written_back)
		side_slot(side, 0)[plan->size_bytes - 1] = mark;
	if (!side_post(side))
		return false;
	if (written_back) {
		for (uint32_t turn = 1; *answer != mark; turn++) {
			uint64_t begin = start;
			if (turn % 1024 == 0 &&
			    (!side_poll(side) || !is_worth_waiting(side, &begin)))
				return false;
		}
	} else if (plan->op == PERF_SEND) {
		AWAIT(side, side->received != received);
	}
	if (!written_back && plan->op != PERF_SEND)
		AWAIT(side, side->sent_done != done);
	*ns = (perf_now_ns() - start) / (written_back || plan->op == PERF_SEND ? 2 : 1);
	AWAIT(side, side->sent_done != done); /* the send queue must not overflow */
	return true;
}

static bool run_latency(struct perf_side *side, struct perf_row *row, struct progress *progress)
{
	static struct histogram histogram;
	histogram_init(&histogram);
	for (uint64_t i = 0; i < side->plan.warm_up + side->plan.count; i++) {
		uint64_t ns;
		if (!time_one(side, i, &ns))
			return false;
		if (i >= side->plan.warm_up)
			histogram_record(&histogram, ns);
		if (i % 512 == 0)
			perf_client_show(progress, &side->plan, i);
	}
	row->min_ns = histogram_min(&histogram);
	row->p50_ns = histogram_percentile(&histogram, 50);
	row->p90_ns = histogram_percentile(&histogram, 90);
	row->p99_ns = histogram_percentile(&histogram, 99);
	row->p999_ns = histogram_percentile(&histogram, 99.9);
	row->max_ns = histogram_max(&histogram);
	row->mean_ns = histogram_mean(&histogram);
	return true;
}

/* @count requests, with up to depth of them in flight. */
static bool transfer(struct perf_side *side, uint64_t count, struct progress *progress)
{
	uint64_t end = side->posted + count;
	while (side->sent_done < end) {
		while (side->posted < end && side->posted - side->sent_done < side->plan.depth)
			if (!side_post(side))
				return false;
		uint64_t before = side->sent_done;
		AWAIT(side, side->sent_done != before);
		if (before / 512 != side->sent_done / 512)
			perf_client_show(progress, &side->plan, side->sent_done);
	}
	return true;
}

static bool run_bandwidth(struct perf_side *side, struct perf_row *row, struct progress *progress)
{
	if (!transfer(side, side->plan.warm_up, progress))
		return false;
	uint64_t start = perf_now_ns();
	if (!transfer(side, side->plan.count, progress))
		return false;
	double seconds = (double)(perf_now_ns() - start) / 1e9;
	row->messages_per_s = (double)side->plan.count / seconds;
	row->bytes_per_s = row->messages_per_s * (double)side->plan.size_bytes;
	return true;
}

static bool check_what_was_read(struct perf_side *side)
{
	for (size_t slot = 0; slot < side->slots; slot++)
		for (size_t i = 0; i < side->plan.size_bytes; i++)
			if (side_slot(side, slot)[i] != (uint8_t)(i ^ i >> 8 ^ slot ^ 0x5a))
				return side_fail(side, "the data that was read is wrong", 0);
	return true;
}

static bool measure(struct perf_side *side, const struct perf_plan *plan, struct perf_row *row,
                    struct progress *progress)
{
	if (!side_begin(side, plan))
		return false;
	bool reads = plan->op == PERF_READ && plan->mode == PERF_BANDWIDTH;
	for (size_t slot = 0; slot < side->slots && !reads && plan->mode == PERF_BANDWIDTH; slot++)
		for (size_t i = 0; i < plan->size_bytes; i++)
			side_slot(side, slot)[i] = (uint8_t)(i ^ i >> 8 ^ slot ^ 0x5a);
	struct perf_msg msg = {.kind = PERF_PLAN,
	                       .qpn = hdl_qp_number(side->qp),
	                       .gid = side->gid,
	                       .addr = (uintptr_t)side->memory,
	                       .key = hdl_mr_key(side->mr),
	                       .plan = *plan};
	if (talk_knows(side) ? !talk_send(side, &msg)
	                     : !talk_send_to(side, &msg, &side->server, side->server_port))
		return false;
	if (!talk_receive(side, PERF_READY, &side->peer, PERF_WAIT_S) || !side_connect(side))
		return false;
	msg.kind = PERF_GO;
	if (!talk_send(side, &msg))
		return false;
	if (plan->mode == PERF_LATENCY ? !run_latency(side, row, progress)
	                               : !run_bandwidth(side, row, progress))
		return false;
	msg.kind = PERF_DONE;
	if (!talk_send(side, &msg) || !talk_receive(side, PERF_RESULT, &msg, PERF_WAIT_S))
		return false;
	if (!msg.good)
		return side_fail(side, "the data that arrived is not the data that was sent", 0);
	return !reads || check_what_was_read(side);
}

bool perf_measure(struct perf_side *side, const struct perf_plan *plan, struct perf_row *row,
                  bool wanted)
{
	struct progress progress = {.wanted = wanted && isatty(STDERR_FILENO),
	                            .next_ns = perf_now_ns() + PROGRESS_NS};
	*row = (struct perf_row){.plan = *plan};
	bool ok = measure(side, plan, row, &progress);
	if (progress.shown)
		fputs("\r\033[K", stderr);
	side_end(side);
	return ok;
}
