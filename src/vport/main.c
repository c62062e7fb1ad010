/* heddle-vport: runs the hardware ports of one node of a topology file, or one of its plain
 * switches. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vport/vport.h"

struct options {
	const char *node, *file;
	bool foreground;
};

static volatile int stopping;

static void vport_on_stop(int number)
{
	(void)number;
	stopping = 1;
}

static error_t vport_parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'n':
		options->node = arg;
		return 0;
	case 'f':
		options->foreground = true;
		return 0;
	case ARGP_KEY_ARG:
		if (options->file != NULL)
			argp_usage(state);
		options->file = arg;
		return 0;
	case ARGP_KEY_END:
		if (options->file == NULL || options->node == NULL)
			argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Read the file whole. The text, or NULL after a message. */
static char *read_whole(const char *path, size_t *bytes)
{
	FILE *file = fopen(path, "re");
	char *text = file != NULL ? malloc(TOPOLOGY_MAX_FILE_BYTES + 1) : NULL;
	if (text != NULL)
		*bytes = fread(text, 1, TOPOLOGY_MAX_FILE_BYTES + 1, file);
	if (text == NULL || ferror(file) != 0) { /* a directory can be opened */
		fprintf(stderr, "heddle-vport: %s: %s\n", path, strerror(errno));
		free(text);
		text = NULL;
	}
	if (file != NULL)
		fclose(file);
	return text;
}

/* Become a daemon. Returns in the child, with the descriptor by which it tells the parent that it
 * is ready; the parent waits for that. -1: after a message. */
static int into_background(void)
{
	int ready[2];
	char byte;
	pid_t pid = pipe2(ready, O_CLOEXEC) == 0 ? fork() : -1;
	if (pid < 0)
		fprintf(stderr, "heddle-vport: %s; end some programs, then try again\n",
		        strerror(errno));
	if (pid > 0) {
		close(ready[1]);
		_exit(read(ready[0], &byte, 1) == 1 ? 0 : 1); /* the child has reported why not */
	}
	if (pid == 0) {
		close(ready[0]);
		setsid();
	}
	return pid == 0 ? ready[1] : -1;
}

static void tell_ready(int ready)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	if (write(ready, "", 1) != 1)
		stopping = 1; /* nobody waits for us any more */
	close(ready);
}

static int run(const struct topology *topology, uint32_t node, bool foreground)
{
	static struct vport vport;
	struct sigaction stop = {.sa_handler = vport_on_stop};
	int ready = foreground ? -1 : into_background();
	if (!foreground && ready < 0)
		return 1;
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	signal(SIGPIPE, SIG_IGN);
	bool good = vport_begin(&vport, topology, node);
	if (good && !foreground)
		tell_ready(ready);
	if (good)
		vport_run(&vport, &stopping);
	vport_end(&vport);
	return good ? 0 : 1;
}

int main(int argc, char **argv)
{
	static const struct argp_option list[] = {
	        {"node", 'n', "NAME", 0, "The node or switch of FILE to run", 0},
	        {"foreground", 'f', NULL, 0, "Stay in the foreground", 0},
	        {0}};
	static const struct argp argp = {list,
	                                 vport_parse,
	                                 "FILE",
	                                 "Run the hardware ports of a virtual switch, or a plain "
	                                 "switch.",
	                                 NULL,
	                                 NULL,
	                                 NULL};
	static struct topology topology;
	struct options options = {0};
	struct topology_error error;
	char message[TOPOLOGY_MESSAGE_BYTES];
	size_t bytes = 0;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	char *text = read_whole(options.file, &bytes);
	if (text == NULL)
		return 1;
	bool good = topology_parse(&topology, text, bytes, &error);
	free(text);
	if (!good) {
		topology_explain(&error, options.file, message);
		fprintf(stderr, "heddle-vport: %s\n", message);
		return 1;
	}
	int node = topology_find(&topology, options.node);
	if (node < 0) {
		fprintf(stderr, "heddle-vport: %s has no node or switch '%s'\n", options.file,
		        options.node);
		return 1;
	}
	return run(&topology, (uint32_t)node, options.foreground);
}
