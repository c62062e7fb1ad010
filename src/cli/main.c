/* The heddle command: calls the command that the first word names, with the rest of the
 * arguments. */
#include "cli/command.h"
#include "cli/words.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct command {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
};

static int version_command(int argc, char **argv);
static int help_command(int argc, char **argv);

/* Each has its section in docs/man/heddle.1. */
static const struct command commands[] = {
        {"run", "run an unmodified RDMA program", run_command_of},
        {"devices", "list the devices that a program would see", devices_command},
        {"status", "list the programs that use Heddle, and their queue pairs", status_command},
        {"explain", "tell what a code means, and what to do about it", explain_command},
        {"perf", "measure latency, bandwidth and message rate between two processes", perf_command},
        {"vswitch", "start, end and show a network of virtual switches", vswitch_command},
        {"ibc", "ping, trace and discover a network of virtual switches", ibc_command},
        {"tap", "an Ethernet interface whose cable ends at another machine", tap_command},
        {"pipe", "carry bytes between two programs, on one machine or two", pipe_command},
        {"aperture", "show the apertures and ports of programs", aperture_command},
        {"version", "print the version", version_command},
        {"help", "list the commands, or the options of one", help_command},
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

const char *argp_program_version = "heddle " HEDDLE_VERSION;

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	}
	return NULL;
}

static void print_commands(FILE *out)
{
	fputs("RDMA without the hardware.\n\nUsage: heddle COMMAND [OPTION...]\n\n", out);
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fputs("\n`heddle help COMMAND' lists its options; see also heddle(1) and heddle(7).\n",
	      out);
}

static int version_command(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	puts(argp_program_version);
	return 0;
}

static int run_command(const struct command *command, int argc, char **argv)
{
	char name[64];
	snprintf(name, sizeof(name), "heddle %s", command->name);
	argv[0] = name; /* argp prints it as the program's name */
	return command->run(argc, argv);
}

static const char *command_word(size_t index)
{
	return commands[index].name;
}

static int unknown_command(const char *name)
{
	fprintf(stderr, "heddle: there is no command '%s'; `heddle help' lists them\n", name);
	word_suggest(name, command_word, COMMAND_COUNT);
	return EXIT_WRONG_USAGE;
}

static int help_command(int argc, char **argv)
{
	if (argc < 2) {
		print_commands(stdout);
		return 0;
	}
	const struct command *command = find_command(argv[1]);
	if (!command)
		return unknown_command(argv[1]);
	if (command->run == version_command || command->run == help_command) {
		printf("Usage: heddle %s%s\n%s\n", command->name,
		       command->run == help_command ? " [COMMAND]" : "", command->summary);
		return 0;
	}
	char help[] = "--help";
	char *arguments[] = {NULL, help, NULL};
	return run_command(command, 2, arguments);
}

/* What was printed and could not be written, to a full disk for example, is an error. argp ends the
 * program itself, so this is where every way out comes by. */
static void end_output(void)
{
	bool failed = ferror(stdout) != 0;
	errno = 0;
	if (fflush(stdout) == 0 && !failed)
		return;
	fprintf(stderr, "heddle: standard output: %s\n",
	        errno != 0 ? strerror(errno) : "something could not be written");
	_exit(EXIT_FAILURE);
}

int main(int argc, char **argv)
{
	argp_err_exit_status = EXIT_WRONG_USAGE;
	atexit(end_output);
	if (argc < 2) {
		print_commands(stderr);
		return EXIT_WRONG_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0 ||
	    strcmp(argv[1], "-h") == 0) {
		print_commands(stdout);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
		return version_command(argc, argv);
	const struct command *command = find_command(argv[1]);
	return command ? run_command(command, argc - 1, argv + 1) : unknown_command(argv[1]);
}
