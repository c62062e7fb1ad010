/* Captures of byte streams: what one iWARP connection sends and receives, as TCP segments. A socket
 * does not show the segments of the network, so they are reconstructed as RFC 5044 wants them: one
 * segment for each MPA frame or FPDU, numbered from the beginning of the stream, with a handshake
 * before them. If both ends record to one file, the numbers agree, and each segment is there twice,
 * with its direction.
 *
 * The octets tell where frames and FPDUs begin and end and whether there are markers. A stream in
 * which they are not to be found is recorded as it comes.
 *
 * Nothing is allocated here: the adapter provides a struct capture_stream for each connection. */
#ifndef TRANSPORT_CAPTURE_STREAM_H
#define TRANSPORT_CAPTURE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/capture.h"
#include "wire/mpa_connect.h"
#include "wire/mpa_fpdu.h"
#include "wire/mpa_stream.h"

#define CAPTURE_STREAM_HEADERS 60u    /* of IPv6 and TCP */
#define CAPTURE_STREAM_SEGMENT 65483u /* octets, at most: TCP_MAX_SEGMENT of port/tcp.h */

struct capture_direction {
	struct capture_end from;
	uint8_t traffic_class;
	uint32_t next; /* sequence number */
	bool over;     /* FIN or RST has been recorded */
	bool framed;   /* its MPA frame is complete: FPDUs follow */
	bool raw;      /* it makes no sense */
	bool markers;
	uint32_t have; /* octets of the frame or FPDU that have come */
	struct mpa_receiver fpdu;
	uint8_t room[CAPTURE_STREAM_HEADERS +
	             MPA_MAX_FPDU_BYTES]; /* for headers, then the octets */
};

struct capture_stream {
	struct engine *engine;
	uint16_t ip_id;
	/* The request of ours that the next segments belong to, if that is known. */
	bool has_wr_id;
	uint64_t wr_id;
	uint32_t qpn;
	struct capture_direction directions[2]; /* [0] is what we send */
};

/* A connection between @own and @peer begins, which we @initiated. Its initiator begins it in
 * @traffic_class, in which the other end answers unless it chooses another one. engine->capture is
 * not NULL. */
void capture_stream_begin(struct capture_stream *stream, struct engine *engine,
                          const struct capture_end *own, const struct capture_end *peer,
                          bool initiated, uint8_t traffic_class);
/* We send in @traffic_class from now on. */
void capture_stream_class(struct capture_stream *stream, uint8_t traffic_class);
/* @bytes were sent, or received. The memory need not be there any more; then zeros are recorded. */
void capture_stream_put(struct capture_stream *stream, bool inbound, const void *bytes,
                        size_t count);
/* One direction has ended in order; or (@broken) all of it has been reset. */
void capture_stream_end(struct capture_stream *stream, bool inbound, bool broken);

#endif
