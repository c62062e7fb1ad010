/* heddle pipe: a byte stream between two programs, on one machine or two, through a circular
 * queue over an aperture (APERTURE columns 14 and 15). */
#include <argp.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <heddle/aperture.h>
#include <heddle/cqueue.h>

#include "cli/command.h"
#include "cli/target.h"

#define PIPE_QUEUE   (1u << 20)
#define PIPE_PIECE   65536u
#define PIPE_WAIT_MS 30000 /* for a connection, and for its end */

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
	_Atomic bool in_ended; /* nothing comes any more */
	_Atomic int error;
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
	struct hdl_aperture_attr attr = {.length = hdl_cqueue_length(PIPE_QUEUE),
	                                 .port = ends->port};
	if (error == 0)
		error = hdl_aperture_open(ends->adapter, &attr, &ends->aperture);
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
	if (error == 0)
		error = hdl_cqueue_open(ends->aperture, PIPE_QUEUE, ends->events, &ends->queue);
	return error == 0 ? EXIT_SUCCESS : pipe_fail("connecting", error);
}

/* Standard input to the queue. */
static void *pipe_out(void *context)
{
	struct pipe_ends *ends = context;
	static unsigned char data[PIPE_PIECE];
	ssize_t got;
	int64_t wrote = 0;
	while (wrote >= 0 && (got = read(STDIN_FILENO, data, sizeof(data))) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			break;
		for (ssize_t at = 0; at < got && wrote >= 0; at += wrote > 0 ? wrote : 0) {
			wrote = hdl_cqueue_write(ends->queue, data + at, (uint64_t)(got - at), -1);
			if (wrote == -HDL_EINTR)
				wrote = 0;
		}
	}
	int error = wrote < 0 ? (int)wrote : hdl_cqueue_end(ends->queue, PIPE_WAIT_MS);
	if (error != 0 && !atomic_load(&ends->in_ended))
		atomic_store(&ends->error, error);
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
	atomic_store(&ends->in_ended, true);
	return got == 0 ? EXIT_SUCCESS : pipe_fail("the connection ended early", (int)got);
}

static int pipe_run(struct pipe_ends *ends)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, pipe_out, ends) != 0) {
		perror("heddle pipe: pthread_create");
		return EXIT_FAILURE;
	}
	int status = pipe_in(ends);
	/* Somebody at a terminal need not end the input: the other side has nothing to say any
	 * more. */
	if (status != EXIT_SUCCESS || isatty(STDIN_FILENO))
		_exit(status);
	pthread_join(thread, NULL);
	int error = atomic_load(&ends->error);
	return error == 0 ? EXIT_SUCCESS : pipe_fail("sending", error);
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
