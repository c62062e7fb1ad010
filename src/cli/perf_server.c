/* The server of `heddle perf`: prepares what the client plans, answers, and checks that the bytes
 * that arrived are those that were sent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/perf.h"

#define LOOK_EVERY 64u /* polls between two checks of the mailbox */

/* Answer every message with one. */
static bool echo_sends(struct perf_side *side)
{
	bool echo = side->plan.mode == PERF_LATENCY;
	uint64_t echoed = 0;
	for (uint32_t turn = 0;; turn++) {
		if (!side_wait(side))
			return false;
		for (; echo && echoed < side->received; echoed++)
			if (!side_post(side))
				return false;
		if ((turn % LOOK_EVERY == 0 || side->plan.sleeps) && talk_waiting(side))
			return true;
	}
}

/* When the last byte of the buffer that the client writes changes, write the same byte back. */
static bool echo_writes(struct perf_side *side)
{
	volatile uint8_t *last = side_slot(side, 1) + side->plan.size_bytes - 1;
	uint8_t seen = 0;
	for (uint32_t turn = 0;; turn++) {
		uint8_t now = *last;
		if (now != seen) {
			seen = now;
			side_slot(side, 0)[side->plan.size_bytes - 1] = now;
			if (!side_post(side) || !side_poll(side))
				return false;
		} else if (turn % LOOK_EVERY == 0) {
			if (!side_poll(side))
				return false;
			if (talk_waiting(side))
				return true;
		}
	}
}

/* Follow the plan until the client sends a message. */
static bool perf_server_answer(struct perf_side *side)
{
	const struct perf_plan *plan = &side->plan;
	if (plan->op == PERF_SEND)
		return echo_sends(side);
	if (plan->op == PERF_WRITE && plan->mode == PERF_LATENCY && !plan->sleeps)
		return echo_writes(side);
	/* Our adapter executes atomics, and polling makes it do so sooner. The other operations
	 * need nothing from us. */
	while (plan->op == PERF_ATOMIC && !plan->sleeps && !talk_waiting(side))
		if (!side_poll(side))
			return false;
	return true;
}

/* Is the memory filled with the pattern that the client sends or reads in a bandwidth
 * measurement? */
static bool is_pattern(const struct perf_side *side)
{
	size_t skip = side->plan.type == HDL_QP_UD ? PERF_GRH : 0;
	for (size_t slot = 0; slot < side->slots; slot++)
		for (size_t i = 0; i < side->plan.size_bytes; i++)
			if (side_slot(side, slot)[skip + i] != (uint8_t)(i ^ i >> 8 ^ slot ^ 0x5a))
				return false;
	return true;
}

static void fill_pattern(struct perf_side *side)
{
	for (size_t slot = 0; slot < side->slots; slot++)
		for (size_t i = 0; i < side->plan.size_bytes; i++)
			side_slot(side, slot)[i] = (uint8_t)(i ^ i >> 8 ^ slot ^ 0x5a);
}

static bool one_plan(struct perf_side *side, const struct perf_msg *asked)
{
	struct perf_msg msg = {.kind = PERF_READY};
	bool arrives = asked->plan.mode == PERF_BANDWIDTH && asked->plan.op <= PERF_WRITE;
	side->peer = *asked;
	if (!side_begin(side, &asked->plan) || !side_connect(side))
		return false;
	if (asked->plan.mode == PERF_BANDWIDTH && asked->plan.op == PERF_READ)
		fill_pattern(side);
	msg.qpn = hdl_qp_number(side->qp);
	msg.gid = side->gid;
	msg.addr = (uintptr_t)side->memory;
	msg.key = hdl_mr_key(side->mr);
	if (!talk_send(side, &msg) || !talk_receive(side, PERF_GO, &msg, PERF_WAIT_S) ||
	    !perf_server_answer(side) || !talk_receive(side, PERF_DONE, &msg, 0))
		return false;
	/* Unreliable messages may be lost, and then the rest arrives in other buffers. */
	bool checked = arrives && asked->plan.type == HDL_QP_RC;
	while (checked && side->plan.op == PERF_SEND &&
	       side->received < asked->plan.count + asked->plan.warm_up)
		if (!side_poll(side))
			return false;
	msg = (struct perf_msg){.kind = PERF_RESULT, .good = !checked || is_pattern(side)};
	return talk_send(side, &msg);
}

/* The plan comes from a client: check it. */
static bool is_sound(const struct perf_plan *plan)
{
	return plan->op < PERF_OPS && plan->mode <= PERF_BANDWIDTH && plan->size_bytes > 0 &&
	       plan->size_bytes <= PERF_MAX_SIZE && plan->depth > 0 &&
	       plan->depth <= PERF_MAX_DEPTH && plan->type >= HDL_QP_RC && plan->type <= HDL_QP_UD;
}

/* Serve one client. False: it failed, and side->failed says how. */
static bool one_client(struct perf_side *side)
{
	struct perf_msg msg;
	for (;;) {
		if (!talk_receive(side, PERF_PLAN, &msg, 0)) {
			bool left = talk_ended(side);
			if (left)
				side->failed[0] = '\0';
			return left;
		}
		if (!is_sound(&msg.plan))
			return side_fail(side, "the client's plan is not valid", -HDL_EINVAL);
		bool ok = one_plan(side, &msg);
		side_end(side);
		if (!ok)
			return false;
	}
}

/* Open the adapter and take the port. */
static bool perf_server_open(struct perf_side *side, const struct perf_options *options,
                             uint16_t *port)
{
	if (!side_open(side, options->node))
		return false;
	int error = hdl_cm_bind(side->adapter, PERF_SPACE, NULL, port, 0);
	if (error == -HDL_EADDRINUSE)
		return side_fail(
		        side, "another server has the port; choose another one with --port", error);
	return error == 0 || side_fail(side, "hdl_cm_bind", error);
}

/* Tell the user and the client what went wrong. */
static void report_failure(struct perf_side *side, bool once)
{
	struct perf_msg msg = {.kind = PERF_FAILED};
	snprintf(msg.why, sizeof(msg.why), "server: %.100s", side->failed);
	fprintf(stderr, "heddle perf: %s%s\n", once ? "server: " : "", side->failed);
	if (talk_knows(side))
		talk_send(side, &msg);
}

/* Ready for the next client. */
static void forget_client(struct perf_side *side)
{
	side->failed[0] = '\0';
	pthread_mutex_lock(&side->mail.lock);
	side->mail.guid = 0;
	side->mail.head = side->mail.tail;
	side->mail.gone = false;
	atomic_store(&side->mail.waiting, 0);
	pthread_mutex_unlock(&side->mail.lock);
}

int perf_serve(const struct perf_options *options, bool once, int port_fd)
{
	static struct perf_side side;
	uint16_t port = once ? 0 : options->port;
	bool ok = perf_server_open(&side, options, &port);
	if (ok && port_fd >= 0)
		ok = write(port_fd, &port, sizeof(port)) == sizeof(port) ||
		     side_fail(&side, "the pipe", -HDL_EIO);
	if (!ok) {
		report_failure(&side, once);
		side_close(&side);
		return EXIT_FAILURE;
	}
	if (!once)
		fprintf(stderr, "Waiting for clients on port %u%s%s; interrupt to end.\n", port,
		        options->node != NULL ? " of node " : "",
		        options->node != NULL ? options->node : "");
	do {
		ok = one_client(&side);
		if (!ok)
			report_failure(&side, once);
		forget_client(&side);
	} while (!once);
	side_close(&side);
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
