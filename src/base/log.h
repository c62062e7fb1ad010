/* Lines for people, to stderr, from outside the data path only: a data-path failure is a completion
 * and a counter.
 *
 * HEDDLE_LOG=error|warn|info|debug says from which level on lines are written (default warn; read
 * once, at the first line; another word is complained of then). A line is one write(), so lines of
 * several threads and processes do not mix; it begins with "heddle: ", ends with the newline that
 * the caller leaves out, and is cut at LOG_LINE_BYTES. Bytes that are not printable come out as
 * '?', so that what a peer sent can neither forge a line nor steer a terminal. errno is kept. From
 * any thread; may block. */
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

/* Would a line of this level be written? For lines that are costly to put together. */
bool log_enabled(enum log_level level);

#endif
