/* Formats into a buffer on the stack and writes once; log.h describes the format of a line. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEVEL_UNKNOWN (-1)

static _Atomic int threshold = LEVEL_UNKNOWN;

/* Sets *unknown if the value is not a level; the default is then used. */
static int level_from_environment(const char *wanted, bool *unknown)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	for (int i = 0; wanted != NULL && i < 4; i++)
		if (strcmp(wanted, names[i]) == 0)
			return i;
	*unknown = wanted != NULL && wanted[0] != '\0';
	return LOG_LEVEL_WARN;
}

bool log_enabled(enum log_level level)
{
	int most = atomic_load_explicit(&threshold, memory_order_relaxed);
	if (most == LEVEL_UNKNOWN) {
		const char *wanted = secure_getenv("HEDDLE_LOG");
		bool unknown = false;
		int found = level_from_environment(wanted, &unknown);
		/* Two threads may get here at the same time. They find the same level, and only the
		 * first reports an unknown value. */
		if (atomic_compare_exchange_strong(&threshold, &most, found) && unknown)
			log_warn("HEDDLE_LOG: '%s' means nothing; it can be 'error', 'warn', "
			         "'info' or 'debug', and is taken for 'warn'",
			         wanted);
		most = found;
	}
	return (int)level <= most;
}

static void write_line(enum log_level level, const char *format, va_list arguments)
{
	static const char prefix[] = "heddle: ";
	const size_t prefix_bytes = sizeof(prefix) - 1;
	char line[LOG_LINE_BYTES];
	if (!log_enabled(level))
		return;
	int saved = errno;
	memcpy(line, prefix, prefix_bytes);
	/* vsnprintf() writes a terminating zero, which the newline replaces. */
	size_t room = sizeof(line) - prefix_bytes;
	int wanted = vsnprintf(line + prefix_bytes, room, format, arguments);
	size_t text = wanted < 0 ? 0 : (size_t)wanted < room ? (size_t)wanted : room - 1;
	for (char *at = line + prefix_bytes; at < line + prefix_bytes + text; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	line[prefix_bytes + text] = '\n';
	/* Not write(): the thread may hold a lock (base/cancel.h). */
	long written = syscall(SYS_write, STDERR_FILENO, line, prefix_bytes + text + 1);
	(void)written; /* there is nowhere to report a failure */
	errno = saved;
}

void log_error(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	write_line(LOG_LEVEL_ERROR, format, arguments);
	va_end(arguments);
}

void log_warn(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	write_line(LOG_LEVEL_WARN, format, arguments);
	va_end(arguments);
}

void log_info(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	write_line(LOG_LEVEL_INFO, format, arguments);
	va_end(arguments);
}

void log_debug(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	write_line(LOG_LEVEL_DEBUG, format, arguments);
	va_end(arguments);
}
