/* A command of heddle: `heddle NAME ...`. argv[0] is "heddle NAME"; the result is the exit status.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdbool.h>

#define EXIT_WRONG_USAGE 64

int perf_command(int argc, char **argv);
int run_command_of(int argc, char **argv);
int status_command(int argc, char **argv);
int explain_command(int argc, char **argv);
int devices_command(int argc, char **argv);
int vswitch_command(int argc, char **argv);
int ibc_command(int argc, char **argv);
int tap_command(int argc, char **argv);
int aperture_command(int argc, char **argv);
int pipe_command(int argc, char **argv);

/* Warn if the program @name, which is about to run, will not find Heddle: it is linked statically,
 * has another word size or processor, gains rights that its user does not have, or looks for
 * libibverbs elsewhere before it looks in @compat. @preload: the library is preloaded, so it is
 * found first. */
void program_warn(const char *name, const char *compat, bool preload);

/* Create the capture file @path for programs that are about to start, and tell them its absolute
 * path. False: the reason has been printed. */
bool command_start_capture(const char *path);

/* Is there a device called @name? If not, print that, and a list of the devices. */
bool device_exists(const char *name);

#endif
