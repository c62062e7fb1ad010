/* `heddle perf`: the command. It starts the other side itself, or is one of two sides that were
 * started by hand. */
#include "cli/perf.h"

#include <argp.h>
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/target.h"

#define DEFAULT_ITERATIONS 20000u
#define MAX_ITERATIONS     100000000u
#define RATE_BYTES         (256u << 20) /* for one measurement of bandwidth, about */
#define MIN_REQUESTS       200u
#define MAX_REQUESTS       400000u
#define LATENCY_BYTES      8u
#define MAX_ALL            (8u << 20) /* the largest size with --all */

static const struct argp_option option_list[] = {
        {"operation", 'o', "NAME", 0,
         "Measure send, write, read or atomic (may be given several times; default: all)", 0},
        {"latency", 'L', NULL, 0, "Measure latency only", 0},
        {"bandwidth", 'B', NULL, 0, "Measure bandwidth and message rate only", 0},
        {"size", 's', "BYTES", 0,
         "Size of the requests (k, m: times 1024, 1048576; may be given several times)", 0},
        {"all", 'a', NULL, 0, "All powers of two from 2 bytes to 8 MiB", 0},
        {"iterations", 'n', "N", 0, "Measure N requests", 0},
        {"depth", 'q', "N", 0, "Keep up to N requests in flight (default: 64)", 0},
        {"connection", 'c', "TYPE", 0, "Kind of connection: RC, UC or UD (default: RC)", 0},
        {"events", 'e', NULL, 0, "Sleep until something completes, instead of polling", 0},
        {"mapped", 'm', NULL, 0, "Use memory that both processes map, from hdl_mem_alloc()", 0},
        {"json", 'j', NULL, 0, "Print one JSON object instead of tables", 0},
        {"server", 'S', NULL, 0, "Wait for clients, on the node of --node", 1},
        {"client", 'C', NULL, 0, "Measure with a server on NODE (default: the machine's own)", 1},
        {"port", 'p', "PORT", 0, "Port of the server (default: 18515)", 1},
        {"node", 'N', "NAME", 0, "Run on the node NAME", 1},
        {0},
};

/* A number from 1 to @max, with an optional suffix k or m; 0 if it is not one. */
static unsigned long perf_number(const char *text, unsigned long max)
{
	char *end;
	if (text[0] < '0' || text[0] > '9')
		return 0;
	unsigned long value = strtoul(text, &end, 10), unit = 1;
	if (*end == 'k' || *end == 'K')
		unit = 1024;
	else if (*end == 'm' || *end == 'M')
		unit = 1024ul * 1024;
	end += unit > 1;
	return *end || value > max / unit ? 0 : value * unit;
}

static void add_operation(struct perf_options *options, const char *text, struct argp_state *state)
{
	for (uint32_t op = 0; op < PERF_OPS; op++)
		if (strcmp(perf_op_name(op), text) == 0) {
			options->ops[op] = true;
			return;
		}
	argp_error(state, "there is no operation '%s'; there are send, write, read and atomic",
	           text);
}

static void add_size(struct perf_options *options, const char *text, struct argp_state *state)
{
	uint64_t size = perf_number(text, PERF_MAX_SIZE);
	if (size == 0)
		argp_error(state, "a size must be from 1 byte to 64 MiB, not '%s'", text);
	else if (options->size_count == PERF_MAX_SIZES)
		argp_error(state, "at most %u sizes", PERF_MAX_SIZES);
	else
		options->sizes[options->size_count++] = size;
}

static uint32_t connection(const char *text, struct argp_state *state)
{
	if (strcmp(text, "RC") == 0)
		return HDL_QP_RC;
	if (strcmp(text, "UC") == 0)
		return HDL_QP_UC;
	if (strcmp(text, "UD") == 0)
		return HDL_QP_UD;
	argp_error(state, "a connection must be RC, UC or UD, not '%s'", text);
	return HDL_QP_RC;
}

/* Check which options go together. */
static void perf_judge(struct perf_options *options, struct argp_state *state)
{
	bool any = false;
	for (uint32_t op = 0; op < PERF_OPS; op++) {
		bool possible = options->type == HDL_QP_RC || op == PERF_SEND ||
		                (options->type == HDL_QP_UC && op == PERF_WRITE);
		if (options->ops[op] && !possible)
			argp_error(state, "%s needs a reliable connection (-c RC)%s",
			           perf_op_name(op), op == PERF_WRITE ? ", or -c UC" : "");
		any = any || options->ops[op];
	}
	for (uint32_t op = 0; !any && op < PERF_OPS; op++)
		options->ops[op] = options->type == HDL_QP_RC || op == PERF_SEND ||
		                   (options->type == HDL_QP_UC && op == PERF_WRITE);
	for (uint32_t i = 0; i < options->size_count; i++)
		if (options->type == HDL_QP_UD && options->sizes[i] > HDL_UD_MTU)
			argp_error(state, "a datagram holds at most %u bytes",
			           (unsigned)HDL_UD_MTU);
	if (options->server && options->client != NULL)
		argp_error(state, "--server or --client, not both");
	if (options->client != NULL && !options->is_client)
		argp_error(state, "only --client takes a node, so '%s' is not expected",
		           options->client);
	if (!options->latency && !options->bandwidth)
		options->latency = options->bandwidth = true;
}

static error_t perf_parse(int key, char *text, struct argp_state *state)
{
	struct perf_options *options = state->input;
	switch (key) {
	case 'o':
		add_operation(options, text, state);
		return 0;
	case 'L':
		options->latency = true;
		return 0;
	case 'B':
		options->bandwidth = true;
		return 0;
	case 's':
		add_size(options, text, state);
		return 0;
	case 'a':
		options->size_count = 0;
		for (uint64_t size = 2; size <= MAX_ALL; size *= 2)
			options->sizes[options->size_count++] = size;
		return 0;
	case 'n':
		options->iterations = perf_number(text, MAX_ITERATIONS);
		if (options->iterations == 0)
			argp_error(state, "iterations must be from 1 to 100000000, not '%s'", text);
		return 0;
	case 'q':
		options->depth = (uint32_t)perf_number(text, PERF_MAX_DEPTH);
		if (options->depth == 0)
			argp_error(state, "a depth must be from 1 to %u, not '%s'", PERF_MAX_DEPTH,
			           text);
		return 0;
	case 'c':
		options->type = connection(text, state);
		return 0;
	case 'e':
		options->sleeps = true;
		return 0;
	case 'm':
		options->mapped = true;
		return 0;
	case 'j':
		options->json = true;
		return 0;
	case 'S':
		options->server = true;
		return 0;
	case 'C':
		options->client = options->client != NULL ? options->client : "";
		options->is_client = true;
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num > 0)
			return ARGP_ERR_UNKNOWN;
		options->client = text;
		return 0;
	case 'p':
		options->port = (uint16_t)perf_number(text, 65535);
		if (options->port == 0)
			argp_error(state, "a port must be from 1 to 65535, not '%s'", text);
		return 0;
	case 'N':
		options->node = text;
		return 0;
	case ARGP_KEY_END:
		perf_judge(options, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* --- what is measured --- */

static uint64_t count_of(const struct perf_options *options, enum perf_mode mode, uint64_t size)
{
	if (options->iterations != 0)
		return options->iterations;
	uint64_t count = RATE_BYTES / size;
	uint64_t most = mode == PERF_BANDWIDTH ? MAX_REQUESTS : DEFAULT_ITERATIONS;
	if (options->sleeps && count > DEFAULT_ITERATIONS)
		count = DEFAULT_ITERATIONS;
	return count < MIN_REQUESTS ? MIN_REQUESTS : count > most ? most : count;
}

static size_t add_plan(const struct perf_options *options, struct perf_plan *plans, size_t count,
                       uint32_t op, enum perf_mode mode, uint64_t size)
{
	if (options->type == HDL_QP_UD && size > HDL_UD_MTU)
		return count;
	uint64_t requests = count_of(options, mode, size);
	struct perf_plan plan = {.op = op,
	                         .mode = mode,
	                         .type = options->type,
	                         .depth = mode == PERF_LATENCY ? 1 : options->depth,
	                         .sleeps = options->sleeps,
	                         .mapped = options->mapped,
	                         .size_bytes = size,
	                         .count = requests,
	                         .warm_up = (requests / 10 + PERF_SLOTS) / PERF_SLOTS * PERF_SLOTS};
	assert(count < PERF_MAX_ROWS);
	plans[count++] = plan;
	return count;
}

static size_t make_plans(const struct perf_options *options, struct perf_plan *plans)
{
	static const uint64_t usual[] = {LATENCY_BYTES, 64u << 10, 1u << 20};
	size_t count = 0;
	for (uint32_t op = 0; op < PERF_OPS && options->latency; op++)
		for (uint32_t i = 0; options->ops[op] && (i == 0 || i < options->size_count); i++)
			if (op != PERF_ATOMIC || i == 0)
				count = add_plan(options, plans, count, op, PERF_LATENCY,
				                 op == PERF_ATOMIC          ? 8
				                 : options->size_count == 0 ? LATENCY_BYTES
				                                            : options->sizes[i]);
	uint32_t sizes = options->size_count == 0 ? 3 : options->size_count;
	const uint64_t *list = options->size_count == 0 ? usual : options->sizes;
	for (uint32_t op = 0; op < PERF_OPS && options->bandwidth; op++)
		for (uint32_t i = 0; options->ops[op] && i < sizes; i++)
			if (op != PERF_ATOMIC || i == 0)
				count = add_plan(options, plans, count, op, PERF_BANDWIDTH,
				                 op == PERF_ATOMIC ? 8 : list[i]);
	return count;
}

static void add_floors(struct perf_floor *floor, struct perf_row *rows, size_t count,
                       double cache_line_ns)
{
	for (size_t i = 0; i < count; i++) {
		size_t bytes = rows[i].plan.size_bytes;
		bool small = bytes <= 4096;
		double process_vm = floor_process_vm(floor, bytes), copy = floor_memcpy(bytes);
		if (rows[i].plan.mode == PERF_LATENCY)
			rows[i].floor_ns = rows[i].plan.op == PERF_READ && !rows[i].plan.mapped
			                           ? process_vm
			                   : small ? cache_line_ns
			                           : cache_line_ns + copy;
		rows[i].memcpy_bytes_per_s = copy > 0 ? (double)bytes * 1e9 / copy : 0;
		rows[i].process_vm_bytes_per_s =
		        process_vm > 0 ? (double)bytes * 1e9 / process_vm : 0;
	}
}

/* --- the other side --- */

/* Start a server of our own. Returns its port, or 0. */
static uint16_t start_server(const struct perf_options *options, pid_t *pid)
{
	int ends[2];
	uint16_t port = 0;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return 0;
	*pid = fork();
	if (*pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		close(ends[0]);
		_exit(perf_serve(options, true, ends[1]));
	}
	close(ends[1]);
	if (*pid < 0 || read(ends[0], &port, sizeof(port)) != sizeof(port))
		port = 0; /* it has printed why */
	close(ends[0]);
	return port;
}

static int measure_all(const struct perf_options *options, struct perf_side *side,
                       struct perf_floor *floor)
{
	static struct perf_plan plans[PERF_MAX_ROWS];
	static struct perf_row rows[PERF_MAX_ROWS];
	size_t count = make_plans(options, plans);
	if (!options->json)
		perf_report_begin(options);
	for (size_t i = 0; i < count; i++)
		if (!perf_measure(side, &plans[i], &rows[i], !options->json)) {
			fprintf(stderr, "heddle perf: %s\n", side->failed);
			return EXIT_FAILURE;
		}
	double cache_line_ns = floor_cache_line(floor);
	add_floors(floor, rows, count, cache_line_ns);
	if (options->json)
		return perf_report_json(options, rows, count, cache_line_ns) ? EXIT_SUCCESS
		                                                             : EXIT_FAILURE;
	perf_report_text(options, rows, count, cache_line_ns);
	return EXIT_SUCCESS;
}

static int run_client(const struct perf_options *options)
{
	static struct perf_side side;
	struct perf_floor floor = {.pid = -1};
	pid_t server = -1;
	uint16_t port = options->port;
	floor_open(
	        &floor); /* before the adapter is opened, so that the helper does not inherit it */
	if (options->client == NULL)
		port = start_server(options, &server);
	int status = EXIT_FAILURE;
	bool ok = port != 0 && side_open(&side, options->node);
	if (ok) {
		side.server = side.gid;
		side.server_port = port;
		if (options->client != NULL && !target_node(options->client, &side.server))
			ok = side_fail(
			        &side,
			        "no program is on that node (start `heddle perf --server --node "
			        "NAME' first)",
			        0);
	}
	if (ok)
		status = measure_all(options, &side, &floor);
	else if (side.failed[0] != '\0')
		fprintf(stderr, "heddle perf: %s\n", side.failed);
	side_close(&side);
	floor_close(&floor);
	if (server > 0) {
		if (status != EXIT_SUCCESS)
			kill(server, SIGTERM);
		int ended;
		waitpid(server, &ended, 0);
	}
	return status;
}

int perf_command(int argc, char **argv)
{
	static const struct argp argp = {
	        .options = option_list,
	        .parser = perf_parse,
	        .args_doc = "[--client NODE]",
	        .doc = "Latency, bandwidth and message rate between two processes, beside what the "
	               "machine can do at best.\vWithout --server or --client it starts the other "
	               "side itself.",
	};
	struct perf_options options = {.type = HDL_QP_RC, .depth = 64, .port = PERF_PORT};
	if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0)
		return EXIT_WRONG_USAGE;
	return options.server ? perf_serve(&options, false, -1) : run_client(&options);
}
