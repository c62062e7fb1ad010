/* heddle pipe: a byte stream between two programs, on one machine or two, through a circular
 * queue over an aperture (APERTURE columns 14 and 15).
 *
 * The end of a queue says only that nothing follows. So each end has a word behind its queue, in
 * which the other says that it has written everything to its standard output: without that, an end
 * would report success for bytes that its peer lost when it died. */
#include <argp.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <heddle/aperture.h>
#include <heddle/cqueue.h>

#include "cli/command.h"
#include "cli/target.h"

#define PIPE_QUEUE   (1u << 20)
#define PIPE_PIECE   65536u
#define PIPE_WAIT_MS 30000 /* for a connection, and for its end */
#define PIPE_LOOK_MS 1000  /* the state is looked at, whether an event came or not */
#define PIPE_SPARE   64u   /* bytes behind the queue, for the word */

struct pipe_options {
	bool listens;
	struct target target; /* or only its port */
};

struct pipe_ends {
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	struct hdl_eventq *events;
	struct hdl_aperture *aperture;
	struct hdl_cqueue *queue;
	_Atomic uint32_t *taken; /* by the peer: it has written everything out */
	int stop;                /* readable: read no more of standard input; -1: no terminal */
	int error;               /* of the thread that sends */
};

static error_t pipe_parse(int key, char *arg, struct argp_state *state)
{
	struct pipe_options *options = state->input;
	switch (key) {
	case 'l':
		if (!target_port(arg, &options->target.port))
			argp_error(state, "--listen: '%s' is not a port from 1 to 65535", arg);
		options->listens = true;
		return 0;
	case ARGP_KEY_ARG:
		if (options->listens || options->target.node != NULL ||
		    !target_parse(arg, &options->target))
			argp_error(state, "'%s' is not NODE:PORT, with a port from 1 to 65535",
			           arg);
		return 0;
	case ARGP_KEY_END:
		if (!options->listens && options->target.node == NULL)
			argp_error(state, "name the other end, NODE:PORT, or --listen PORT");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int pipe_fail(const char *what, int error)
{
	fprintf(stderr, "heddle pipe: %s: %s\n", what, hdl_strerror(error));
	return EXIT_FAILURE;
}

static int pipe_open(struct pipe_ends *ends, const struct pipe_options *options)
{
	struct hdl_open_attr open = {.on_node = true};
	struct hdl_port_attr port = {.port = options->listens ? options->target.port : 0};
	int error = hdl_open(&open, &ends->adapter);
	if (error != 0)
		return pipe_fail("opening the adapter", error);
	error = hdl_port_open(ends->adapter, &port, &ends->port);
	if (error != 0)
		return pipe_fail(options->listens ? "--listen" : "opening a port", error);
	error = hdl_eventq_open(ends->port, NULL, &ends->events);
	uint64_t word = hdl_cqueue_length(PIPE_QUEUE);
	struct hdl_aperture_attr attr = {.length = word + PIPE_SPARE, .port = ends->port};
	if (error == 0)
		error = hdl_aperture_open(ends->adapter, &attr, &ends->aperture);
	if (error == 0)
		ends->taken = (void *)((char *)hdl_aperture_memory(ends->aperture, NULL) + word);
	return error == 0 ? EXIT_SUCCESS : pipe_fail("opening an aperture", error);
}

static int pipe_connect(struct pipe_ends *ends, const struct pipe_options *options)
{
	struct hdl_gid host;
	int error;
	if (options->listens) {
		error = hdl_aperture_accept(ends->aperture, ends->port, 0, NULL, -1);
	} else {
		if (!target_find("heddle pipe", options->target.node, &host))
			return EXIT_FAILURE;
		error = hdl_aperture_connect(ends->aperture, &host, options->target.port,
		                             PIPE_WAIT_MS);
	}
	if (error == -HDL_ECONNREFUSED) {
		fprintf(stderr, "heddle pipe: %s:%u refuses: %s\n",
		        options->listens ? "" : options->target.node, options->target.port,
		        hdl_aperture_reason_str(hdl_aperture_reason(ends->aperture)));
		return EXIT_FAILURE;
	}
	if (error == -HDL_EPERM && !options->listens) {
		fprintf(stderr, "heddle pipe: connecting to %s:%u: %s\n", options->target.node,
		        options->target.port,
		        hdl_aperture_reason_str(hdl_aperture_reason(ends->aperture)));
		return EXIT_FAILURE;
	}
	if (error == 0)
		error = hdl_cqueue_open(ends->aperture, PIPE_QUEUE, ends->events, &ends->queue);
	return error == 0 ? EXIT_SUCCESS : pipe_fail("connecting", error);
}

/* The connection has failed, or the peer has closed it before it had everything. */
static int pipe_broken(const struct pipe_ends *ends)
{
	fprintf(stderr, "heddle pipe: the connection ended early: %s\n",
	        hdl_aperture_reason_str(hdl_aperture_reason(ends->aperture)));
	return EXIT_FAILURE;
}

/* The next piece of standard input; 0: its end, or it is not wanted any more. */
static ssize_t pipe_input(const struct pipe_ends *ends, unsigned char *data, size_t max)
{
	struct pollfd either[] = {{.fd = STDIN_FILENO, .events = POLLIN},
	                          {.fd = ends->stop, .events = POLLIN}};
	ssize_t got;
	do {
		if (ends->stop >= 0 && poll(either, 2, -1) > 0 && either[1].revents != 0)
			return 0;
		got = read(STDIN_FILENO, data, max);
	} while (got < 0 && errno == EINTR);
	if (got < 0) {
		/* The other end must not take what came before for all of it: no end follows. */
		perror("heddle pipe: standard input");
		_exit(EXIT_FAILURE);
	}
	return got;
}

/* Standard input to the queue. */
static void *pipe_out(void *context)
{
	struct pipe_ends *ends = context;
	static unsigned char data[PIPE_PIECE];
	ssize_t got;
	int64_t wrote = 0;
	while (wrote >= 0 && (got = pipe_input(ends, data, sizeof(data))) != 0)
		for (ssize_t at = 0; at < got && wrote >= 0; at += wrote > 0 ? wrote : 0) {
			wrote = hdl_cqueue_write(ends->queue, data + at, (uint64_t)(got - at), -1);
			if (wrote == -HDL_EINTR)
				wrote = 0;
		}
	int error;
	do
		error = wrote < 0 ? (int)wrote : hdl_cqueue_end(ends->queue, -1);
	while (error == -HDL_EINTR);
	ends->error = error;
	return NULL;
}

static bool pipe_print(const unsigned char *data, int64_t bytes)
{
	while (bytes > 0) {
		ssize_t done = write(STDOUT_FILENO, data, (size_t)bytes);
		if (done < 0 && errno != EINTR)
			return false;
		data += done > 0 ? done : 0;
		bytes -= done > 0 ? done : 0;
	}
	return true;
}

/* The queue to standard output. */
static int pipe_in(struct pipe_ends *ends)
{
	static unsigned char data[PIPE_PIECE];
	int64_t got;
	do {
		got = hdl_cqueue_read(ends->queue, data, sizeof(data), -1);
		if (got > 0 && !pipe_print(data, got)) {
			perror("heddle pipe: standard output");
			return EXIT_FAILURE;
		}
	} while (got > 0 || got == -HDL_EINTR);
	if (got < 0)
		return got == -HDL_EPERM ? pipe_broken(ends) : pipe_fail("receiving", (int)got);
	int copy = dup(STDOUT_FILENO);
	if (copy >= 0 && close(copy) != 0) { /* some file systems report errors only here */
		perror("heddle pipe: standard output");
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}

/* We have written everything out: tell the peer, and wait until it says the same. */
static int pipe_agree(struct pipe_ends *ends)
{
	const uint32_t yes = 1;
	struct hdl_port_event events[8];
	int error;
	do
		error = hdl_aperture_store(ends->aperture, hdl_cqueue_length(PIPE_QUEUE), &yes,
		                           sizeof(yes), -1);
	while (error == -HDL_EINTR);
	do
		error = error != 0 ? error : hdl_aperture_event(ends->aperture, 0, NULL, 0, -1);
	while (error == -HDL_EINTR);
	for (;;) {
		/* Looked at first: the word of a peer that then closed is there. */
		bool open = hdl_aperture_state(ends->aperture) == HDL_APERTURE_OPEN;
		if (atomic_load(ends->taken) != 0)
			return EXIT_SUCCESS;
		if (!open)
			return pipe_broken(ends);
		if (hdl_eventq_wait(ends->events, PIPE_LOOK_MS) == 0)
			while (hdl_eventq_take(ends->events, events, 8) == 8)
				;
	}
}

static int pipe_run(struct pipe_ends *ends)
{
	pthread_t thread;
	ends->stop = isatty(STDIN_FILENO) ? eventfd(0, EFD_CLOEXEC) : -1;
	if (pthread_create(&thread, NULL, pipe_out, ends) != 0) {
		perror("heddle pipe: pthread_create");
		return EXIT_FAILURE;
	}
	int status = pipe_in(ends);
	if (status != EXIT_SUCCESS)
		_exit(status);
	/* Somebody at a terminal need not end the input: the other side has nothing to say any
	 * more. */
	if (ends->stop >= 0)
		eventfd_write(ends->stop, 1);
	pthread_join(thread, NULL);
	if (ends->error != 0)
		return ends->error == -HDL_EPERM ? pipe_broken(ends)
		                                 : pipe_fail("sending", ends->error);
	return pipe_agree(ends);
}

static void pipe_close(struct pipe_ends *ends)
{
	if (ends->queue != NULL)
		hdl_cqueue_close(ends->queue);
	if (ends->aperture != NULL) {
		hdl_aperture_close(ends->aperture, PIPE_WAIT_MS);
		hdl_aperture_free(ends->aperture);
	}
	if (ends->events != NULL)
		hdl_eventq_close(ends->events);
	if (ends->port != NULL)
		hdl_port_close(ends->port);
	if (ends->adapter != NULL)
		hdl_close(ends->adapter);
}

int pipe_command(int argc, char **argv)
{
	static const struct argp_option list[] = {
	        {"listen", 'l', "PORT", 0, "wait for the other end at this port of the node", 0},
	        {0}};
	static const struct argp argp = {
	        list,
	        pipe_parse,
	        "--listen PORT\nNODE:PORT",
	        "Carries standard input of each end to standard output of the other.",
	        NULL,
	        NULL,
	        NULL};
	struct pipe_options options = {0};
	struct pipe_ends ends = {0};
	if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0)
		return EXIT_WRONG_USAGE;
	int status = pipe_open(&ends, &options);
	if (status == EXIT_SUCCESS)
		status = pipe_connect(&ends, &options);
	if (status == EXIT_SUCCESS)
		status = pipe_run(&ends);
	pipe_close(&ends);
	return status;
}
