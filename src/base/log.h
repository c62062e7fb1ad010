/* Log lines on stderr, never from the data path: a failure on the data path is a completion and a
 * counter.
 *
 * HEDDLE_LOG=error|warn|info|debug selects the least important level that is written. The default
 * is warn. The variable is read once, at the first line; an unknown value is then reported. A line
 * is one write(), so lines of several threads and processes do not mix. It begins with "heddle: ",
 * ends with a newline that the caller leaves out, and is cut at LOG_LINE_BYTES. Unprintable bytes
 * are written as '?', so that data from a peer can neither forge a line nor control a terminal.
 * errno is preserved. Callable from any thread; may block. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

#define LOG_LINE_BYTES 1024

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Would a line of this level be written? For lines that are expensive to format. */
bool log_enabled(enum log_level level);

#endif
