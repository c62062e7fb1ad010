/* Frames on a Unix stream socket, as QEMU's -netdev stream and passt speak: a length of 4 bytes,
 * big-endian, before each. Whoever is there is connected to; if nobody is, we listen. Frames have
 * no offload header. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tap/lan.h"
#include "wire/be.h"
#include <heddle/push.h>

#define STREAM_BYTES (1u << 20)

struct lan_stream {
	uint32_t in_head, in_tail, out_head, out_tail;
	uint8_t in[STREAM_BYTES], out[STREAM_BYTES];
};

static void stream_hang_up(struct lan *lan)
{
	close(lan->fd);
	lan->fd = -1;
	lan->want_write = false;
	memset(lan->stream, 0, offsetof(struct lan_stream, in));
}

static bool stream_connect(int fd, const struct lan *lan)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	memcpy(address.sun_path, lan->where, strlen(lan->where));
	return connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

/* Whoever we were connected to has ended. */
static bool stream_again(struct lan *lan)
{
	int fd = lan->listening < 0 ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)
	                            : -1;
	if (fd < 0)
		return false;
	if (stream_connect(fd, lan))
		lan->fd = fd;
	else
		close(fd);
	return lan->fd >= 0;
}

static bool stream_open(struct lan *lan)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	memcpy(address.sun_path, lan->where, strlen(lan->where));
	lan->stream = malloc(sizeof(*lan->stream));
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || lan->stream == NULL) {
		snprintf(lan->why, sizeof(lan->why), "%s", strerror(errno));
		return false;
	}
	memset(lan->stream, 0, offsetof(struct lan_stream, in));
	if (stream_connect(fd, lan)) {
		lan->fd = fd;
		return true;
	}
	if (errno == ECONNREFUSED)
		unlink(lan->where); /* left by somebody who has ended */
	if ((errno == ENOENT || errno == ECONNREFUSED) &&
	    bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 1) == 0) {
		lan->listening = fd;
		return true;
	}
	snprintf(lan->why, sizeof(lan->why),
	         "%.80s: %s; it must be a Unix stream socket, or a path that can be made one",
	         lan->where, strerror(errno));
	close(fd);
	return false;
}

static void stream_close(struct lan *lan)
{
	if (lan->fd >= 0)
		close(lan->fd);
	if (lan->listening >= 0) {
		close(lan->listening);
		unlink(lan->where);
	}
	lan->fd = lan->listening = -1;
	free(lan->stream);
	lan->stream = NULL;
}

static void stream_flush(struct lan *lan)
{
	struct lan_stream *stream = lan->stream;
	while (stream->out_head < stream->out_tail) {
		ssize_t sent = send(lan->fd, stream->out + stream->out_head,
		                    stream->out_tail - stream->out_head, MSG_NOSIGNAL);
		if (sent < 0)
			break;
		stream->out_head += (uint32_t)sent;
	}
	if (stream->out_head == stream->out_tail)
		stream->out_head = stream->out_tail = 0;
	lan->want_write = stream->out_tail != 0;
}

static ssize_t stream_read(struct lan *lan, uint8_t *frame, size_t capacity)
{
	struct lan_stream *stream = lan->stream;
	if (lan->want_write)
		stream_flush(lan);
	for (;;) {
		uint32_t have = stream->in_tail - stream->in_head;
		uint8_t *at = stream->in + stream->in_head;
		uint32_t length = have >= 4 ? be32_load(at) : 0;
		if (have >= 4 && length > STREAM_BYTES - 4) {
			stream_hang_up(lan); /* not what we speak */
			return 0;
		}
		if (have >= 4 && have - 4 >= length) {
			stream->in_head += 4 + length;
			if (length < 14 || length + LAN_HEADER_BYTES > capacity) {
				lan->dropped++;
				continue;
			}
			memset(frame, 0, LAN_HEADER_BYTES);
			memcpy(frame + LAN_HEADER_BYTES, at + 4, length);
			return (ssize_t)(LAN_HEADER_BYTES + length);
		}
		memmove(stream->in, at, have);
		stream->in_head = 0;
		stream->in_tail = have;
		ssize_t got = recv(lan->fd, stream->in + have, STREAM_BYTES - have, 0);
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			stream_hang_up(lan);
		if (got <= 0)
			return 0;
		stream->in_tail += (uint32_t)got;
	}
}

static bool stream_write(struct lan *lan, const uint8_t *frame, size_t bytes)
{
	struct lan_stream *stream = lan->stream;
	uint32_t length = (uint32_t)(bytes - LAN_HEADER_BYTES);
	if (lan_needs_offload(frame)) {
		lan->dropped++; /* was sent before the offloads were taken back */
		return true;
	}
	if (stream->out_tail + 4 + length > STREAM_BYTES) {
		stream_flush(lan);
		if (stream->out_tail + 4 + length > STREAM_BYTES)
			return false;
	}
	be32_store(stream->out + stream->out_tail, length);
	memcpy(stream->out + stream->out_tail + 4, frame + LAN_HEADER_BYTES, length);
	stream->out_tail += 4 + length;
	stream_flush(lan);
	return true;
}

const struct lan_kind lan_unix = {.name = "unix",
                                  .offloads = HDL_PUSH_OFFLOAD_HEADER,
                                  .open = stream_open,
                                  .close = stream_close,
                                  .read = stream_read,
                                  .write = stream_write,
                                  .again = stream_again};
