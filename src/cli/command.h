/* A command of heddle: `heddle NAME ...`. argv[0] is "heddle NAME"; the result is the exit status. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#define EXIT_WRONG_USAGE 64

int perf_command(int argc, char **argv);

#endif
