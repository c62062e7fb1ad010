/* Captures. See pcapng.h. */
#include "port/pcapng.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/log.h"

#define BLOCK_SECTION    0x0a0d0d0au
#define BLOCK_INTERFACE  1u
#define BLOCK_STATISTICS 5u
#define BLOCK_PACKET     6u
#define BLOCK_RESERVE    0x80484c44u /* bit 31: for local use */
#define ORDER_MAGIC      0x1a2b3c4du
#define RESERVE_MAGIC    0x7265736fu /* the first word of its body: it is ours */
#define RESERVE_LEAST    16u         /* bytes of a block with the magic and nothing else */
#define OPT_END          0u
#define OPT_COMMENT      1u
#define SHB_APPLICATION  4u
#define IF_NAME          2u
#define IF_DESCRIPTION   3u
#define IF_TSRESOL       9u
#define EPB_FLAGS        2u
#define ISB_RECEIVED     4u
#define ISB_DROPPED      5u
#define HEADER_BYTES     1024u           /* of a block without a packet, at most */
#define PACKET_FIXED     (8u + 20u + 4u) /* frame of the block, and the fields before the bytes */
#define FLUSH_BYTES      (PCAPNG_BUFFER_BYTES / 4)
#define WINDOW_BYTES     (256u << 10)
#define CLOSE_TRIES      100u /* attempts to get the file from other writers, at the end */
#define CLOSE_LOOK_US    1000u

/* A block as it grows. All numbers are in the host's order: the section header says which that is.
 */
struct block {
	uint8_t *bytes;
	uint32_t used;
};

static void put32(struct block *block, uint32_t value)
{
	memcpy(block->bytes + block->used, &value, sizeof(value));
	block->used += (uint32_t)sizeof(value);
}

static void put16(struct block *block, uint16_t value)
{
	memcpy(block->bytes + block->used, &value, sizeof(value));
	block->used += (uint32_t)sizeof(value);
}

/* A time: the upper word comes first in either byte order. */
static void put_time(struct block *block, uint64_t value)
{
	put32(block, (uint32_t)(value >> 32));
	put32(block, (uint32_t)value);
}

static void put_bytes(struct block *block, const void *bytes, size_t count)
{
	if (count > 0)
		memcpy(block->bytes + block->used, bytes, count);
	block->used += (uint32_t)count;
	while (block->used % 4 != 0)
		block->bytes[block->used++] = 0;
}

static void put_option(struct block *block, uint16_t code, const void *bytes, size_t count)
{
	put16(block, code);
	put16(block, (uint16_t)count);
	put_bytes(block, bytes, count);
}

static void put_text(struct block *block, uint16_t code, const char *text, size_t most)
{
	put_option(block, code, text, strnlen(text, most));
}

static struct block block_begin(uint8_t *bytes, uint32_t type)
{
	struct block block = {.bytes = bytes};
	put32(&block, type);
	put32(&block, 0); /* its length: block_end() */
	return block;
}

static uint32_t block_end(struct block *block)
{
	uint32_t length = block->used + 4;
	put32(block, length);
	memcpy(block->bytes + 4, &length, sizeof(length));
	return length;
}

static uint32_t make_section(uint8_t *out)
{
	struct block block = block_begin(out, BLOCK_SECTION);
	put32(&block, ORDER_MAGIC);
	put16(&block, 1); /* version 1.0 */
	put16(&block, 0);
	put32(&block, UINT32_MAX); /* its length is not known */
	put32(&block, UINT32_MAX);
	put_text(&block, SHB_APPLICATION, "heddle " HEDDLE_VERSION, PCAPNG_NAME_BYTES);
	put32(&block, OPT_END);
	return block_end(&block);
}

struct interface_words {
	enum pcapng_link link;
	const char *name, *description;
};

static uint32_t make_interface(uint8_t *out, const struct interface_words *words)
{
	const uint8_t nanoseconds = 9;
	struct block block = block_begin(out, BLOCK_INTERFACE);
	put16(&block, (uint16_t)words->link);
	put16(&block, 0);
	put32(&block, 0); /* no limit on what is kept of a packet */
	put_text(&block, IF_NAME, words->name, PCAPNG_NAME_BYTES);
	put_text(&block, IF_DESCRIPTION, words->description, PCAPNG_NAME_BYTES);
	put_option(&block, IF_TSRESOL, &nanoseconds, 1);
	put32(&block, OPT_END);
	return block_end(&block);
}

static uint32_t make_reserve(uint8_t *out, uint32_t bytes)
{
	struct block block = block_begin(out, BLOCK_RESERVE);
	put32(&block, RESERVE_MAGIC);
	memset(out + block.used, 0, bytes - RESERVE_LEAST);
	block.used += bytes - RESERVE_LEAST;
	return block_end(&block);
}

static uint32_t make_statistics(const struct pcapng *to, uint64_t time_ns, uint8_t *out)
{
	uint64_t received = to->taken + to->dropped;
	struct block block = block_begin(out, BLOCK_STATISTICS);
	put32(&block, to->interface);
	put_time(&block, time_ns);
	put_option(&block, ISB_RECEIVED, &received, sizeof(received));
	put_option(&block, ISB_DROPPED, &to->dropped, sizeof(to->dropped));
	put32(&block, OPT_END);
	return block_end(&block);
}

/* --- the file --- */

/* Take or try (@command: F_OFD_SETLKW, F_OFD_SETLK) one of the locks. */
static int lock_byte(int fd, int command, short type, off_t which)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = which, .l_len = 1};
	while (fcntl(fd, command, &lock) != 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

struct block_head {
	uint32_t type, length, magic;
};

/* A part of the file, from @at on. One system call per block would be slow for many blocks. */
struct window {
	off_t at;
	ssize_t bytes;
	uint8_t data[WINDOW_BYTES];
};

/* The head of the block at @at. False: there is none. */
static bool read_head(int fd, struct window *window, off_t at, struct block_head *head)
{
	if (at < window->at || at + (off_t)sizeof(*head) > window->at + window->bytes) {
		window->at = at;
		window->bytes = pread(fd, window->data, sizeof(window->data), at);
		if (window->bytes < (ssize_t)sizeof(*head))
			return false;
	}
	memcpy(head, window->data + (at - window->at), sizeof(*head));
	return true;
}

/* What a file has in its last section. */
struct layout {
	bool empty; /* the file */
	uint32_t interfaces;
	off_t reserve_at;
	uint32_t reserve_bytes; /* 0: there is none, or interfaces follow it */
};

static void layout_take(struct layout *layout, const struct block_head *head, off_t at)
{
	switch (head->type) {
	case BLOCK_SECTION:
		*layout = (struct layout){0};
		return;
	case BLOCK_INTERFACE:
		/* What is behind the reserve has a number: nothing may get in before it. */
		layout->reserve_bytes = 0;
		layout->interfaces++;
		return;
	case BLOCK_RESERVE:
		if (head->magic == RESERVE_MAGIC && head->length >= RESERVE_LEAST &&
		    head->length <= PCAPNG_RESERVE_BYTES) {
			layout->reserve_at = at;
			layout->reserve_bytes = head->length;
		}
	}
}

/* The layout of a file of @size bytes. -EEXIST: not a capture that we can append to. */
static int layout_of(int fd, off_t size, struct window *window, struct layout *layout)
{
	struct block_head head;
	window->bytes = 0;
	*layout = (struct layout){.empty = size == 0};
	for (off_t at = 0; at < size; at += (off_t)head.length) {
		if (!read_head(fd, window, at, &head) || head.length < sizeof(head) ||
		    head.length % 4 != 0 || (off_t)head.length > size - at ||
		    (at == 0 && head.type != BLOCK_SECTION) ||
		    (head.type == BLOCK_SECTION && head.magic != ORDER_MAGIC))
			return -EEXIST;
		layout_take(layout, &head, at);
	}
	return 0;
}

static int read_layout(int fd, struct layout *layout)
{
	struct stat status;
	if (fstat(fd, &status) != 0)
		return -errno;
	struct window *window = malloc(sizeof(*window));
	int result = window == NULL ? -ENOMEM : layout_of(fd, status.st_size, window, layout);
	free(window);
	return result;
}

/* Open @path; *regular: it is a file. Packets are private, so a new file is readable only by its
 * user. */
static int open_path(const char *path, bool *regular)
{
	struct stat status;
	*regular = stat(path, &status) != 0 || S_ISREG(status.st_mode);
	int flags = *regular ? O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC
	                     : O_WRONLY | O_NONBLOCK | O_CLOEXEC;
	int fd = open(path, flags, 0600);
	return fd < 0 ? -errno : fd;
}

/* Can a capture be appended to @path? @anew: empty the file, unless a process uses it. */
static int pcapng_look_at(const char *path, bool anew)
{
	bool regular;
	struct layout layout;
	int fd = open_path(path, &regular);
	if (fd < 0)
		return fd;
	int result = regular ? lock_byte(fd, F_OFD_SETLKW, F_WRLCK, PCAPNG_LOCK_HEADER) : 0;
	if (regular && result == 0)
		result = read_layout(fd, &layout);
	if (anew && regular && result == 0 && !layout.empty &&
	    lock_byte(fd, F_OFD_SETLK, F_WRLCK, PCAPNG_LOCK_USED) == 0 && ftruncate(fd, 0) != 0)
		result = -errno;
	close(fd);
	return result;
}

int pcapng_prepare(const char *path)
{
	return pcapng_look_at(path, true);
}

int pcapng_check(const char *path)
{
	struct stat status;
	/* The reader of a pipe would take our close for the end of the capture. */
	if (stat(path, &status) == 0 && S_ISFIFO(status.st_mode))
		return access(path, W_OK) == 0 ? 0 : -errno;
	return pcapng_look_at(path, false);
}

/* write() that does not kill the program, neither when the pipe has no reader nor when the file
 * size limit is exceeded. */
static ssize_t write_quietly(int fd, const void *bytes, size_t count)
{
	static const int numbers[] = {SIGPIPE, SIGXFSZ};
	sigset_t signals, before, pending;
	sigemptyset(&signals);
	for (size_t i = 0; i < 2; i++)
		sigaddset(&signals, numbers[i]);
	sigpending(&pending);
	int cancel = cancel_forbid();
	pthread_sigmask(SIG_BLOCK, &signals, &before);
	ssize_t done = write(fd, bytes, count);
	int error = errno, number = error == EPIPE ? SIGPIPE : SIGXFSZ;
	if (done < 0 && (error == EPIPE || error == EFBIG) && !sigismember(&pending, number)) {
		sigset_t ours;
		sigemptyset(&ours);
		sigaddset(&ours, number);
		sigtimedwait(&ours, NULL, &(struct timespec){0});
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	cancel_restore(cancel);
	errno = error;
	return done;
}

/* The end of the last whole block within the first @most bytes. */
static size_t whole_blocks(const uint8_t *bytes, size_t most)
{
	size_t at = 0;
	struct block_head head;
	while (most - at >= sizeof(head)) {
		memcpy(&head, bytes + at, sizeof(head));
		if (head.length > most - at)
			break;
		at += head.length;
	}
	return at;
}

/* Append whole blocks to a file; an incomplete block is truncated again. No other process appends
 * in the meantime. Returns the number of bytes written; or -1 and errno, and nothing was
 * written. */
static ssize_t pcapng_append(int fd, const uint8_t *bytes, size_t count)
{
	ssize_t done = write_quietly(fd, bytes, count);
	if (done < 0 || (size_t)done == count)
		return done;
	size_t whole = whole_blocks(bytes, (size_t)done);
	off_t end = lseek(fd, 0, SEEK_CUR); /* of the file: behind what we wrote */
	if (end < 0 || ftruncate(fd, end - (done - (off_t)whole)) != 0)
		return -1;
	return (ssize_t)whole;
}

/* Write within a file. With O_APPEND a write always goes to the end, so O_APPEND is cleared for a
 * moment: no other process shares this open file description. */
static int write_at(int fd, const uint8_t *bytes, size_t count, off_t at)
{
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_APPEND) != 0)
		return -errno;
	int cancel = cancel_forbid();
	ssize_t done = pwrite(fd, bytes, count, at);
	int result = done == (ssize_t)count ? 0 : done < 0 ? -errno : -ENOSPC;
	cancel_restore(cancel);
	fcntl(fd, F_SETFL, flags);
	return result;
}

/* Append our headers, @count bytes that end with @statistics bytes of statistics. Returns 0; or an
 * error, and the file is as before. */
static int append_headers(struct pcapng *to, const uint8_t *bytes, uint32_t count,
                          uint32_t statistics)
{
	ssize_t done = pcapng_append(to->fd, bytes, count);
	int result = done == (ssize_t)count ? 0 : done < 0 ? -errno : -ENOSPC;
	off_t end = lseek(to->fd, 0, SEEK_CUR);
	if (done > 0 && result != 0)
		result = ftruncate(to->fd, end - done) == 0 ? result : -errno;
	to->statistics_at = end - (off_t)statistics;
	return result;
}

/* Write our interface and, for our statistics, what they are now. The locks are held. */
static int file_headers(struct pcapng *to, const struct interface_words *words)
{
	uint8_t statistics[HEADER_BYTES], *bytes = to->buffer; /* which is still empty */
	struct layout layout;
	int result = read_layout(to->fd, &layout);
	if (result != 0)
		return result;
	to->interface = layout.interfaces;
	uint32_t begin = layout.empty ? make_section(bytes) : 0;
	uint32_t used = begin + make_interface(bytes + begin, words);
	uint32_t last = make_statistics(to, 0, statistics);
	uint32_t reserve = layout.empty ? PCAPNG_RESERVE_BYTES : layout.reserve_bytes;
	bool fits = used - begin + last + RESERVE_LEAST <= reserve;
	if (fits)
		used += make_reserve(bytes + used, reserve - last - (used - begin));
	memcpy(bytes + used, statistics, last);
	used += last;
	if (layout.empty || !fits)
		return append_headers(to, bytes, used, last);
	to->statistics_at = layout.reserve_at + (off_t)(reserve - last);
	return write_at(to->fd, bytes, used, layout.reserve_at);
}

static int pipe_headers(struct pcapng *to, const struct interface_words *words)
{
	uint32_t used = make_section(to->buffer);
	used += make_interface(to->buffer + used, words);
	ssize_t done = write_quietly(to->fd, to->buffer, used);
	return done == (ssize_t)used ? 0 : done < 0 ? -errno : -ENOSPC;
}

static int write_headers(struct pcapng *to, const struct interface_words *words)
{
	if (!to->regular)
		return pipe_headers(to, words);
	int result = lock_byte(to->fd, F_OFD_SETLKW, F_WRLCK, PCAPNG_LOCK_HEADER);
	if (result == 0)
		result = lock_byte(to->fd, F_OFD_SETLKW, F_RDLCK, PCAPNG_LOCK_USED);
	if (result == 0)
		result = lock_byte(to->fd, F_OFD_SETLKW, F_WRLCK, PCAPNG_LOCK_WRITE);
	if (result == 0)
		result = file_headers(to, words);
	lock_byte(to->fd, F_OFD_SETLK, F_UNLCK, PCAPNG_LOCK_WRITE);
	lock_byte(to->fd, F_OFD_SETLK, F_UNLCK, PCAPNG_LOCK_HEADER);
	return result;
}

int pcapng_open(struct pcapng *to, const char *path, enum pcapng_link link, const char *name,
                const char *description)
{
	*to = (struct pcapng){.fd = -1};
	bool regular;
	int fd = open_path(path, &regular);
	if (fd < 0)
		return fd;
	to->fd = fd;
	to->regular = regular;
	to->buffer = malloc(PCAPNG_BUFFER_BYTES);
	const struct interface_words words = {
	        .link = link, .name = name, .description = description};
	int result = to->buffer == NULL ? -ENOMEM : write_headers(to, &words);
	if (result != 0)
		pcapng_forget(to);
	return result;
}

/* --- packets --- */

/* How many packets are in these whole blocks? */
static uint64_t count_packets(const uint8_t *bytes, size_t count)
{
	uint64_t packets = 0;
	struct block_head head;
	for (size_t at = 0; at < count; at += head.length) {
		memcpy(&head, bytes + at, sizeof(head));
		packets += head.type == BLOCK_PACKET;
	}
	return packets;
}

/* Drop the buffered blocks from @from on. */
static void leave_out(struct pcapng *to, size_t from)
{
	uint64_t lost = count_packets(to->buffer + from, to->used - from);
	to->taken -= lost;
	to->dropped += lost;
	to->used = 0;
	if (!to->warned)
		log_warn("packets are missing in the capture from here on: %m");
	to->warned = true;
}

/* Rewrite the statistics in their reserved place. */
static void write_statistics(struct pcapng *to, uint64_t time_ns)
{
	uint8_t bytes[HEADER_BYTES];
	uint32_t used = make_statistics(to, time_ns, bytes);
	(void)write_at(to->fd, bytes, used, to->statistics_at); /* nobody is left to be told */
	to->told = to->dropped;
}

/* Write to a file. Nothing is written while another process holds the lock, because that process
 * may be stopped. */
static void write_file(struct pcapng *to, uint64_t time_ns)
{
	if (lock_byte(to->fd, F_OFD_SETLK, F_WRLCK, PCAPNG_LOCK_WRITE) != 0)
		return;
	ssize_t done = pcapng_append(to->fd, to->buffer, to->used);
	if (done >= 0 && (size_t)done < to->used)
		errno = ENOSPC;
	if (done < 0 && errno != ENOSPC && errno != EDQUOT && errno != EFBIG && errno != EINTR)
		to->broken = true;
	if (done >= 0 && (size_t)done == to->used)
		to->used = 0;
	else if (done >= 0 || errno != EINTR)
		leave_out(to, done > 0 ? (size_t)done : 0);
	write_statistics(to, time_ns);
	lock_byte(to->fd, F_OFD_SETLK, F_UNLCK, PCAPNG_LOCK_WRITE);
}

static void write_out(struct pcapng *to, uint64_t time_ns)
{
	if (to->used == 0 || to->broken)
		return;
	if (to->regular) {
		write_file(to, time_ns);
		return;
	}
	ssize_t done = write_quietly(to->fd, to->buffer, to->used);
	if (done < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (done < 0) {
		log_warn("the capture ends here: %m");
		to->broken = true;
		to->used = 0;
		return;
	}
	to->used -= (size_t)done;
	if (to->used > 0)
		memmove(to->buffer, to->buffer + done, to->used);
}

void pcapng_put(struct pcapng *to, const struct pcapng_packet *packet)
{
	const size_t most = PACKET_FIXED + packet->captured + PCAPNG_COMMENT_BYTES + 32;
	if (most > PCAPNG_BUFFER_BYTES - to->used)
		write_out(to, packet->time_ns);
	if (to->broken || most > PCAPNG_BUFFER_BYTES - to->used) {
		to->dropped++;
		return;
	}
	struct block block = block_begin(to->buffer + to->used, BLOCK_PACKET);
	put32(&block, to->interface);
	put_time(&block, packet->time_ns);
	put32(&block, (uint32_t)packet->captured);
	put32(&block, (uint32_t)packet->length);
	put_bytes(&block, packet->bytes, packet->captured);
	const uint32_t direction = packet->direction;
	put_option(&block, EPB_FLAGS, &direction, sizeof(direction));
	if (packet->comment != NULL)
		put_text(&block, OPT_COMMENT, packet->comment, PCAPNG_COMMENT_BYTES);
	put32(&block, OPT_END);
	to->used += block_end(&block);
	to->taken++;
	if (to->used >= FLUSH_BYTES && to->regular)
		write_out(to, packet->time_ns);
}

void pcapng_flush(struct pcapng *to, uint64_t time_ns)
{
	write_out(to, time_ns);
	if (to->dropped == to->told)
		return;
	if (to->regular) {
		write_statistics(to, time_ns);
		return;
	}
	if (PCAPNG_BUFFER_BYTES - to->used < HEADER_BYTES)
		return;
	to->used += make_statistics(to, time_ns, to->buffer + to->used);
	to->told = to->dropped;
	write_out(to, time_ns);
}

void pcapng_close(struct pcapng *to, uint64_t time_ns)
{
	if (to->fd < 0)
		return;
	write_out(to, time_ns);
	/* Another process may be writing to the file at this moment. */
	for (unsigned tries = 0; tries < CLOSE_TRIES && to->regular && to->used > 0 && !to->broken;
	     tries++) {
		usleep(CLOSE_LOOK_US);
		write_out(to, time_ns);
	}
	if (to->regular) {
		if (to->used > 0) {
			errno = EBUSY;
			leave_out(to, 0);
		}
		write_statistics(to, time_ns);
	} else if (PCAPNG_BUFFER_BYTES - to->used >= HEADER_BYTES) {
		to->used += make_statistics(to, time_ns, to->buffer + to->used);
		write_out(to, time_ns);
	}
	pcapng_forget(to);
}

void pcapng_forget(struct pcapng *to)
{
	if (to->fd >= 0)
		close(to->fd);
	free(to->buffer);
	to->fd = -1;
	to->buffer = NULL;
	to->used = 0;
	to->broken = true;
}
