/* Captures of byte streams; see capture_stream.h. */
#include "transport/capture_stream.h"

#include <string.h>

#include "transport/sg.h"
#include "wire/be.h"
#include "wire/ip_headers.h"
#include "wire/rdmap.h"
#include "wire/roce.h"

#define STREAM_HOPS   64u
#define STREAM_WINDOW 65535u

_Static_assert(CAPTURE_STREAM_HEADERS == IPV6_BYTES + TCP_BYTES, "the longest headers");

/* What has been collected. */
static uint8_t *octets_of(struct capture_direction *d)
{
	return d->room + CAPTURE_STREAM_HEADERS;
}

/* --- segments --- */

/* The IP and TCP headers of a segment with @bytes of payload, directly before @payload. Returns
 * their length. */
static size_t segment_headers(struct capture_stream *stream, const struct capture_direction *d,
                              const struct capture_direction *back, uint8_t flags, uint8_t *payload,
                              size_t bytes)
{
	uint8_t *tcp = payload - TCP_BYTES;
	size_t length = TCP_BYTES + bytes;
	struct tcp_header h = {.src_port = d->from.port,
	                       .dst_port = back->from.port,
	                       .seq = d->next,
	                       .ack = flags & TCP_ACK ? back->next : 0,
	                       .flags = flags,
	                       .window = STREAM_WINDOW};
	tcp_encode(&h, tcp);
	if (roce_gid_is_ipv4(d->from.gid)) {
		const struct ipv4_header ip = {.tos = d->traffic_class,
		                               .total_bytes = (uint16_t)(IPV4_BYTES + length),
		                               .id = ++stream->ip_id,
		                               .dont_fragment = true,
		                               .ttl = STREAM_HOPS,
		                               .protocol = IP_PROTO_TCP,
		                               .src = be32_load(d->from.gid + 12),
		                               .dst = be32_load(back->from.gid + 12)};
		be16_store(tcp + 16, tcp_checksum_ipv4(&ip, tcp, length));
		ipv4_encode(&ip, tcp - IPV4_BYTES);
		return IPV4_BYTES + TCP_BYTES;
	}
	struct ipv6_header ip = {.traffic_class = d->traffic_class,
	                         .payload_bytes = (uint16_t)length,
	                         .next_header = IP_PROTO_TCP,
	                         .hop_limit = STREAM_HOPS};
	memcpy(ip.src, d->from.gid, sizeof(ip.src));
	memcpy(ip.dst, back->from.gid, sizeof(ip.dst));
	be16_store(tcp + 16, tcp_checksum_ipv6(&ip, tcp, length));
	ipv6_encode(&ip, tcp - IPV6_BYTES);
	return IPV6_BYTES + TCP_BYTES;
}

/* Record one segment of direction @which, with @bytes at @payload, in front of which there is room
 * for headers. What was there is kept. */
static void segment_put(struct capture_stream *stream, unsigned which, uint8_t flags,
                        uint8_t *payload, size_t bytes, const char *operation)
{
	struct capture_direction *d = &stream->directions[which];
	struct capture *capture = stream->engine->capture;
	uint8_t before[CAPTURE_STREAM_HEADERS];
	if (capture == NULL) /* the program is about to end */
		return;
	memcpy(before, payload - sizeof(before), sizeof(before));
	size_t headers =
	        segment_headers(stream, d, &stream->directions[1 - which], flags, payload, bytes);
	bool named = stream->has_wr_id && bytes > 0;
	const struct capture_record record = {.bytes = payload - headers,
	                                      .captured = headers + bytes,
	                                      .length = headers + bytes,
	                                      .inbound = which == 1,
	                                      .operation = operation,
	                                      .qpn = named ? stream->qpn : 0,
	                                      .has_wr_id = named,
	                                      .wr_id = stream->wr_id};
	capture->take(capture->context, &record);
	memcpy(payload - sizeof(before), before, sizeof(before));
	d->next += (uint32_t)bytes + ((flags & (TCP_SYN | TCP_FIN)) != 0);
}

/* Record what has been collected. */
static void octets_put(struct capture_stream *stream, unsigned which, const char *operation)
{
	struct capture_direction *d = &stream->directions[which];
	for (uint32_t at = 0; at < d->have;) {
		uint32_t left = d->have - at;
		uint32_t some = left < CAPTURE_STREAM_SEGMENT ? left : CAPTURE_STREAM_SEGMENT;
		segment_put(stream, which, TCP_ACK | TCP_PSH, octets_of(d) + at, some, operation);
		at += some;
	}
	d->have = 0;
}

static void bare_put(struct capture_stream *stream, unsigned which, uint8_t flags)
{
	segment_put(stream, which, flags, octets_of(&stream->directions[which]), 0, "TCP");
}

void capture_stream_begin(struct capture_stream *stream, struct engine *engine,
                          const struct capture_end *own, const struct capture_end *peer,
                          bool initiated, uint8_t traffic_class)
{
	stream->engine = engine;
	stream->ip_id = 0;
	stream->has_wr_id = false;
	stream->qpn = 0;
	for (unsigned i = 0; i < 2; i++) {
		struct capture_direction *d = &stream->directions[i];
		d->from = i == 0 ? *own : *peer;
		d->traffic_class = traffic_class;
		d->next = d->have = 0;
		d->over = d->framed = d->raw = d->markers = false;
		mpa_stream_init(&d->fpdu, false, false);
	}
	unsigned client = initiated ? 0 : 1;
	bare_put(stream, client, TCP_SYN);
	bare_put(stream, 1 - client, TCP_SYN | TCP_ACK);
	bare_put(stream, client, TCP_ACK);
}

void capture_stream_class(struct capture_stream *stream, uint8_t traffic_class)
{
	stream->directions[0].traffic_class = traffic_class;
}

/* --- frames and FPDUs --- */

/* The MPA frame so far. How many octets of it are due; 0: it is complete, or none. */
static size_t frame_due(struct capture_stream *stream, unsigned which)
{
	struct capture_direction *d = &stream->directions[which];
	struct mpa_connect frame;
	size_t used;
	if (d->have == 0)
		return MPA_CONNECT_HEADER_BYTES;
	enum mpa_connect_verdict verdict =
	        mpa_connect_decode(MPA_REQUEST, octets_of(d), d->have, &frame, &used);
	if (verdict == MPA_CONNECT_CROSSED)
		verdict = mpa_connect_decode(MPA_REPLY, octets_of(d), d->have, &frame, &used);
	if (verdict == MPA_CONNECT_MORE)
		return (d->have < MPA_CONNECT_HEADER_BYTES ? MPA_CONNECT_HEADER_BYTES
		                                           : mpa_connect_bytes(octets_of(d))) -
		       d->have;
	d->framed = verdict == MPA_CONNECT_OK;
	d->raw = !d->framed;
	octets_put(stream, which,
	           d->raw                       ? "TCP"
	           : frame.frame == MPA_REQUEST ? "MPA Request"
	                                        : "MPA Reply");
	if (d->framed) { /* who sends M wants markers in what it receives */
		stream->directions[1 - which].markers = frame.markers;
		if (stream->directions[1 - which].framed)
			for (unsigned i = 0; i < 2; i++)
				mpa_stream_init(&stream->directions[i].fpdu,
				                stream->directions[i].markers, false);
	}
	return 0;
}

/* @bytes behind those that have been collected are the next of an FPDU. */
static void fpdu_took(struct capture_stream *stream, unsigned which, uint8_t *to, size_t bytes)
{
	struct capture_direction *d = &stream->directions[which];
	enum mpa_stream_verdict verdict;
	if (to != NULL) {
		memcpy(to, octets_of(d) + d->have, bytes);
		verdict = mpa_stream_took(&d->fpdu, bytes);
	} else {
		verdict = mpa_stream_took_body(&d->fpdu, bytes, 0);
	}
	d->have += (uint32_t)bytes;
	if (verdict == MPA_STREAM_HEAD) {
		mpa_stream_need(&d->fpdu, d->fpdu.head_bytes);
	} else if (verdict == MPA_STREAM_ULPDU) {
		unsigned opcode = d->fpdu.head[1] & 0x0f;
		bool known = d->fpdu.ulpdu_bytes > 0 && opcode < RDMAP_OPCODE_COUNT;
		octets_put(stream, which, known ? rdmap_operations[opcode].name : "MPA");
	} else if (verdict != MPA_STREAM_MORE) {
		d->raw = true;
	}
}

/* Copy up to @count octets from @bytes behind what has been collected. */
static void octets_copy(struct capture_stream *stream, struct capture_direction *d,
                        const uint8_t *bytes, size_t count)
{
	struct hdl_sge source, target;
	struct sg from = sg_plain(&source, bytes, (uint32_t)count);
	struct sg to = sg_plain(&target, octets_of(d) + d->have, (uint32_t)count);
	if (sg_move(&stream->engine->own.ops, MOVE_BOTH_OWN, &to, &from, count).detail !=
	    HDL_DETAIL_NONE)
		memset(octets_of(d) + d->have, 0, count);
}

/* Take as many of @count octets as belong together. */
static size_t octets_take(struct capture_stream *stream, unsigned which, const uint8_t *bytes,
                          size_t count)
{
	struct capture_direction *d = &stream->directions[which];
	uint8_t *to = NULL;
	size_t due = d->raw       ? CAPTURE_STREAM_SEGMENT - d->have
	             : !d->framed ? frame_due(stream, which)
	                          : mpa_stream_due(&d->fpdu, &to);
	size_t some = due < count ? due : count;
	if (some > (size_t)MPA_MAX_FPDU_BYTES - d->have)
		some = (size_t)MPA_MAX_FPDU_BYTES - d->have;
	octets_copy(stream, d, bytes, some);
	if (!d->raw && d->framed) {
		fpdu_took(stream, which, to, some);
		return some;
	}
	d->have += (uint32_t)some;
	if (d->raw)
		octets_put(stream, which, "TCP");
	else
		frame_due(stream, which);
	return some;
}

void capture_stream_put(struct capture_stream *stream, bool inbound, const void *bytes,
                        size_t count)
{
	const uint8_t *at = bytes;
	while (count > 0) {
		size_t some = octets_take(stream, inbound, at, count);
		at += some;
		count -= some;
	}
}

void capture_stream_end(struct capture_stream *stream, bool inbound, bool broken)
{
	struct capture_direction *d = &stream->directions[inbound];
	if (d->over || (broken && stream->directions[!inbound].over))
		return;
	d->over = true;
	octets_put(stream, inbound, "TCP"); /* the beginning of something */
	bare_put(stream, inbound, broken ? TCP_RST | TCP_ACK : TCP_FIN | TCP_ACK);
}
