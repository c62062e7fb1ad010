/* heddle run: start a program so that it finds Heddle where it looks for libibverbs. */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <heddle/heddle.h>

#include "base/installed.h"
#include "cli/command.h"

#define PATH_BYTES 4096
#define LIBRARY    "libibverbs.so.1"

struct options {
	const char *node;
	const char *device;
	char *addresses; /* separated by commas */
	const char *lmc;
	const char *capture;
	bool preload, stripe;
	char **program; /* with its arguments */
};

static error_t add_address(struct options *options, const char *address)
{
	char *all = NULL, *old = options->addresses;
	if (asprintf(&all, "%s%s%s", old != NULL ? old : "", old != NULL ? "," : "", address) < 0)
		return ENOMEM;
	free(old);
	options->addresses = all;
	return 0;
}

static error_t run_parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'n':
		options->node = arg;
		return 0;
	case 'd':
		options->device = arg;
		return 0;
	case 'a':
		return add_address(options, arg);
	case 'l':
		if (arg[0] < '0' || arg[0] > '7' || arg[1] != '\0')
			argp_error(state, "--lmc must be from 0 to 7, not '%s'", arg);
		options->lmc = arg;
		return 0;
	case 'c':
		options->capture = arg;
		return 0;
	case 'p':
		options->preload = true;
		return 0;
	case 's':
		options->stripe = true;
		return 0;
	case ARGP_KEY_ARG:
		/* Here the program begins: the rest are its arguments. */
		options->program = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which program?");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* The directory with the libraries that replace the system's: HEDDLE_COMPAT, or where they are
 * relative to this command. */
static bool find_compat(char *out, size_t bytes)
{
	const char *given = secure_getenv("HEDDLE_COMPAT");
	char self[PATH_BYTES], library[PATH_BYTES];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[length > 0 ? length : 0] = '\0';
	/* Without /proc: by the name with which we were started. */
	const char *name = (const char *)getauxval(AT_EXECFN);
	if (length <= 0 && name != NULL && realpath(name, self) == NULL)
		self[0] = '\0';
	if (given != NULL)
		return snprintf(out, bytes, "%s", given) < (int)bytes &&
		       snprintf(library, sizeof(library), "%s/" LIBRARY, given) <
		               (int)sizeof(library) &&
		       access(library, R_OK) == 0;
	return installed_find_directory(INSTALLED_COMPAT, self, LIBRARY, R_OK, out, bytes);
}

/* Put @directory in front of what @variable lists. */
static void prepend(const char *variable, const char *directory)
{
	const char *old = secure_getenv(variable);
	char *list = NULL;
	if (asprintf(&list, "%s%s%s", directory, old != NULL && old[0] != '\0' ? ":" : "",
	             old != NULL ? old : "") > 0)
		setenv(variable, list, 1);
	free(list);
}

/* Load it also into programs that do not ask for it. */
static void preload(const char *directory)
{
	char *library = NULL;
	if (asprintf(&library, "%s/" LIBRARY, directory) > 0)
		prepend("LD_PRELOAD", library);
	free(library);
}

static bool no_capture(const char *path)
{
	fprintf(stderr, "heddle: cannot capture to %s: %s\n", path,
	        errno == EEXIST ? "there is a file that is no capture" : strerror(errno));
	return false;
}

bool command_start_capture(const char *path)
{
	char *whole = NULL, *here = NULL;
	if (hdl_capture_prepare(path) != 0)
		return no_capture(path);
	if (path[0] != '/' && (here = getcwd(NULL, 0)) != NULL &&
	    asprintf(&whole, "%s/%s", here, path) > 0)
		path = whole;
	setenv("HEDDLE_CAPTURE", path, 1);
	free(whole);
	free(here);
	return true;
}

/* Without our option: check the user's own setting. */
static bool check_capture(void)
{
	const char *path = secure_getenv("HEDDLE_CAPTURE");
	return path == NULL || path[0] == '\0' || hdl_capture_check(path) == 0 || no_capture(path);
}

/* Can the program have what it will ask for? The node agent knows whether an address is ours and
 * free, so ask in the same way as the program will. The callee logs the reason. 0, or the exit
 * status. */
static int try_settings(void)
{
	static const char *const settings[] = {"HEDDLE_ADDR", "HEDDLE_CLUSTER", "HEDDLE_COPY",
	                                       "HEDDLE_FAST", "HEDDLE_LMC",     "HEDDLE_LOCAL",
	                                       "HEDDLE_MPA",  "HEDDLE_NODE",    "HEDDLE_STRIPE"};
	struct hdl_open_attr attr = {.on_node = true, .capture = ""};
	struct hdl_adapter *adapter;
	bool any = false;
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		const char *value = secure_getenv(settings[i]);
		any |= value != NULL && value[0] != '\0';
	}
	if (!any) /* nothing can be wrong, and the program may not need a device */
		return 0;
	int result = hdl_open(&attr, &adapter);
	if (result == 0)
		hdl_close(adapter);
	return result == 0 ? 0 : result == -HDL_EINVAL ? EXIT_WRONG_USAGE : EXIT_FAILURE;
}

/* execvp() also gives EACCES when it could not look into a directory of PATH. Is there a file
 * called @name in one of them? */
static bool is_in_path(const char *name)
{
	char path[PATH_BYTES];
	struct stat status;
	const char *list = secure_getenv("PATH");
	if (strchr(name, '/') != NULL || list == NULL)
		return true;
	for (const char *at = list;; at++) {
		size_t length = strcspn(at, ":");
		int bytes = snprintf(path, sizeof(path), "%.*s%s%s", (int)length, at,
		                     length > 0 ? "/" : "", name);
		if (bytes < (int)sizeof(path) && stat(path, &status) == 0 &&
		    S_ISREG(status.st_mode))
			return true;
		at += length;
		if (*at == '\0')
			return false;
	}
}

static bool has_two_addresses(void)
{
	const char *at = secure_getenv("HEDDLE_ADDR");
	unsigned counts[2] = {0, 0}; /* of IPv4, of IPv6 */
	while (at != NULL && *at != '\0') {
		size_t length = strcspn(at, ",");
		counts[memchr(at, ':', length) != NULL]++;
		at += length + (at[length] == ',');
	}
	if (counts[0] > 1 || counts[1] > 1)
		return true;
	fputs("heddle: --stripe needs two addresses of one kind, IPv4 or IPv6: give --addr "
	      "twice\n",
	      stderr);
	return false;
}

int run_command_of(int argc, char **argv)
{
	static const struct argp_option list[] = {
	        {"node", 'n', "NAME", 0,
	         "Put the program on the node NAME (default: the machine's own)", 0},
	        {"device", 'd', "DEVICE", 0, "Show it only this device", 0},
	        {"addr", 'a', "ADDRESS", 0,
	         "Put the node on ADDRESS, an address of this machine, where others can reach it; "
	         "given several times, on all",
	         0},
	        {"stripe", 's', NULL, 0,
	         "Let its connections use two of the node's addresses at the same time, where the "
	         "other end does, too",
	         0},
	        {"preload", 'p', NULL, 0,
	         "Load the library into every program, so that scripts and their tools also see "
	         "its files",
	         0},
	        {"lmc", 'l', "BITS", 0, "Give the node 2 to the BITS LIDs instead of one", 0},
	        {"capture", 'c', "FILE", 0, "Record its packets to FILE, as pcapng", 0},
	        {0}};
	static const struct argp argp = {list,
	                                 run_parse,
	                                 "[--] PROGRAM [ARGUMENT...]",
	                                 "Run an unmodified RDMA program on Heddle.",
	                                 NULL,
	                                 NULL,
	                                 NULL};
	struct options options = {0};
	char compat[PATH_BYTES];
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &options) != 0)
		return EXIT_WRONG_USAGE;
	if (!find_compat(compat, sizeof(compat))) {
		fputs("heddle: libibverbs.so.1 of Heddle was not found beside this command; build "
		      "or install "
		      "it, or set HEDDLE_COMPAT to its directory\n",
		      stderr);
		return EXIT_FAILURE;
	}
	prepend("LD_LIBRARY_PATH", compat);
	if (options.preload)
		preload(compat);
	if (options.node != NULL)
		setenv("HEDDLE_NODE", options.node, 1);
	if (options.addresses != NULL)
		setenv("HEDDLE_ADDR", options.addresses, 1);
	if (options.stripe)
		setenv("HEDDLE_STRIPE", "on", 1);
	if (options.stripe && !has_two_addresses())
		return EXIT_WRONG_USAGE;
	if (options.device != NULL && !device_exists(options.device))
		return EXIT_WRONG_USAGE;
	if (options.lmc != NULL)
		setenv("HEDDLE_LMC", options.lmc, 1);
	if (options.device != NULL)
		setenv("HEDDLE_DEVICE", options.device, 1);
	int status = try_settings();
	if (status != 0)
		return status;
	if (options.capture != NULL ? !command_start_capture(options.capture) : !check_capture())
		return EXIT_FAILURE;
	program_warn(options.program[0], compat, options.preload);
	execvp(options.program[0], options.program);
	int error = errno;
	if (error == EACCES && !is_in_path(options.program[0]))
		error = ENOENT;
	fprintf(stderr, "heddle: %s: %s\n", options.program[0], strerror(error));
	return error == ENOENT ? 127 : 126;
}
