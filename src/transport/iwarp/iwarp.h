/* iWARP: RDMAP (RFC 5040, 7306) over DDP (RFC 5041), one connection per queue pair, on either of
 *
 *   a byte stream (TCP): MPA (RFC 5044, 6581), from the first octet after the MPA Reply on
 *   messages that keep their limits but not their order (SCTP, RFC 5043): segments.c
 *
 * or nothing of that: plain TCP, whose bytes fill receives (plain.c).
 *
 * Whoever set the connection up owns it, a socket or a test. It drives a stream through
 * iwarp_stream (stream.h), with the struct iwarp as context, and messages through the functions of
 * segments.c:
 *
 *   posted work --> tx.c ----+                            iwarp_stream.offer(), taken()
 *   read requests -> answer.c +--> out.c: whole FPDUs ---> owner ---> TCP
 *   errors -------> end.c ---+    in chunks
 *                                                         iwarp_stream.want(), arrived(), ended(),
 *   memory, completions <--- request.c <--- rx.c <-------- iwarp_feed() <--- owner <--- TCP
 *                                      <--- segments.c <-- iwarp_message() <-- owner <-- SCTP
 *
 * The owner calls all of it on the thread that drives the engine. It is told by iwarp_owner.wake()
 * that offer(), want() or iwarp_ending() may have something new. */
#ifndef TRANSPORT_IWARP_H
#define TRANSPORT_IWARP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "queue/wqe.h"
#include "transport/engine.h"
#include "transport/request.h"
#include "transport/sg.h"
#include "transport/stream.h"
#include "transport/transport.h"
#include "wire/ddp_sctp.h"
#include "wire/mpa_fpdu.h"
#include "wire/mpa_stream.h"
#include "wire/rdmap.h"
#include "wire/rdmap_terminate.h"

/* A message for which no receive is posted waits this long for one; the peer is held back
 * meanwhile. Then the connection is terminated. */
#define IWARP_RECEIVE_WAIT_NS 5000000000ull
/* How often a connection that waits looks whether there is a receive, at first and at most. */
#define IWARP_RECEIVE_LOOK_NS     20000u
#define IWARP_RECEIVE_LOOK_MAX_NS 1000000u
#define IWARP_PLAIN_LOOK_MAX_NS   20000000u /* plain TCP, which may wait for ever */
/* An FPDU of which a part is in a shared chunk must go on arriving at least this often. */
#define IWARP_STALL_NS     10000000000ull
#define IWARP_CHUNK_BYTES  (MPA_MAX_FPDU_BYTES + 64u)
#define IWARP_OWN_BYTES    1536u /* of a connection, for FPDUs while shared chunks are used up */
#define IWARP_CUTS         32u   /* TCP segments that are begun before the stream takes them */
#define IWARP_OUT_CHUNKS   4u    /* shared chunks that one connection may fill at a time */
#define IWARP_MARKED_BYTES 4096u /* payload of an FPDU with markers, at most */
/* Payload of an FPDU that is at least so long is sent from the memory of the request, if it is in
 * at most so many runs; and so much of it may wait to be sent. */
#define IWARP_LEND_BYTES 4096u
#define IWARP_LEND_RUNS  8u
#define IWARP_LENT_MOST  (256u << 10)
/* A message that is at least so long begins with a short segment: see iwarp_part(). */
#define IWARP_LONG_BYTES   16384u
#define IWARP_FIRST_BYTES  128u
#define IWARP_LAST_BYTES   160u  /* the FPDU of the longest Terminate, with a marker */
#define IWARP_MIN_SEGMENT  256u  /* the shortest TCP segment that is reckoned with */
#define IWARP_ATOMIC_TRIES 1000u /* of a masked atomic against others on the same word */
#define IWARP_WASTE_BYTES  512u
#define IWARP_READY_STAG   1u /* sink of the read that shows that an initiator is ready: its MSN */
/* Segments that may arrive while one before them is missing. Senders have fewer on their way:
 * usrsctp and FreeBSD at most 512 chunks, Linux what its send buffer holds. */
#define IWARP_EARLY 1024u
/* Messages behind the oldest that may take receives out of a shared queue before their turn. */
#define IWARP_BEHIND 31u

struct iwarp_window;

/* What MPA, or the session control of SCTP, negotiated. */
struct iwarp_terms {
	/* Messages instead of a byte stream: memory of the owner for as long as the struct iwarp,
	 * of any content; no CRC, no markers, no rtr. NULL: MPA. */
	struct iwarp_window *window;
	uint16_t first_ssn; /* of the first segment, either way */
	bool plain;         /* a byte stream without MPA: plain.c; no window, no CRC, no rtr */
	bool crc;
	bool markers_out, markers_in;
	bool initiator;
	/* enum mpa_rtr: the one message that the initiator sends to show that it is ready to
	 * receive; 0: none. */
	uint8_t rtr;
	uint16_t ird;     /* reads and atomics of the peer that we answer at a time */
	uint16_t ord;     /* ours that may be open */
	uint32_t segment; /* octets of an FPDU that fit one TCP segment (EMSS), or of a message */
	/* No FPDU may be divided between TCP segments (align.c). What offer() hands out is then to
	 * be sent as a record of its own. No markers. */
	bool aligned;
};

/* A piece of memory for octets on their way: FPDUs to be sent, or one that is being received and
 * may not be placed before its CRC is known. */
struct iwarp_chunk {
	struct iwarp_chunk *next;
	uint8_t *bytes;
	uint32_t capacity;
	uint32_t begin, end; /* of what is to be sent */
	/* Memory of requests that is to be sent between these octets: struct iwarp_loan, from the
	 * end of the chunk downwards. */
	uint32_t loans, repaid; /* how many; how many of them have been sent */
	uint32_t part;          /* octets of the next one that have been sent */
};

/* A run of memory of a request that is sent from where it is. Header and trailer of its FPDU, and
 * all of its runs, are in one chunk. */
struct iwarp_loan {
	struct span run;
	uint32_t at;                  /* octets of the chunk before it */
	uint32_t fpdu_from, fpdu_end; /* octets of the chunk that are of its FPDU */
	uint32_t index;               /* of the request in the send queue */
};

/* Chunks that the connections of one engine share; engine.iwarp_pool. One of them is never used for
 * sending: if two ends filled all of theirs with what the other does not read, because it has none
 * left to receive into, both would wait for ever. A quarter of the others is for urgent connections
 * alone, and another quarter for all but bulk: peers of a lower class that do not read cannot hold
 * up those of a higher one. */
struct iwarp_pool {
	struct iwarp_chunk *free;
	size_t count;          /* of all chunks */
	size_t sending;        /* of those that are filled with what is to be sent */
	struct iwarp *waiting; /* connections that want one to receive into */
};
/* @chunks and @memory, @count times IWARP_CHUNK_BYTES, belong to the caller. */
void iwarp_pool_init(struct iwarp_pool *pool, struct iwarp_chunk *chunks, size_t count,
                     uint8_t *memory);

/* What becomes of the stream. */
enum iwarp_ending {
	IWARP_GOES_ON,
	IWARP_FIN, /* nothing more will be offered: end our direction once it is sent, then close */
	IWARP_ABORT /* reset it now */
};

struct iwarp;

struct iwarp_owner {
	/* offer(), want() or iwarp_ending() may have something new for this connection, or its
	 * queue pair is RESET and the owner may free it. May be called from within any function
	 * here, and must not call back. */
	void (*wake)(void *context, struct iwarp *iwarp);
	void *context;
};

/* Where the body of the FPDU that is arriving goes. */
enum iwarp_place {
	IWARP_PLACE_WASTE,   /* nowhere: refused, or more than the message needs */
	IWARP_PLACE_RECEIVE, /* into a receive */
	IWARP_PLACE_WRITE,   /* to where an RDMA Write says */
	IWARP_PLACE_READ,    /* into the pieces of our oldest open read */
	IWARP_PLACE_HOLD     /* into a chunk: an RDMA Write that is placed once its CRC is known */
};

/* Which memory refused the body of a segment. */
enum iwarp_refused {
	IWARP_REFUSED_NONE,
	IWARP_REFUSED_TOO_LONG, /* the receive is too short */
	IWARP_REFUSED_RECEIVE,  /* a piece of the receive */
	IWARP_REFUSED_RANGE,    /* the range that the peer named */
	IWARP_REFUSED_READ      /* a piece of our own read */
};

enum iwarp_early_state {
	IWARP_EARLY_NONE,
	IWARP_EARLY_PLACED, /* its body is in place, or refused, or it has none */
	IWARP_EARLY_STASHED /* its body is in the stash, because there was no receive for it */
};

/* A segment that waits for its turn. */
struct iwarp_early {
	uint8_t state;   /* enum iwarp_early_state */
	uint8_t fault;   /* as in struct iwarp */
	uint8_t refused; /* as in struct iwarp */
	uint16_t ulpdu_bytes;
	uint32_t stash_at;
	struct sg_result result;
	uint8_t head[RDMAP_MAX_HEADER_BYTES];
};

/* What a connection on messages has more. Numbers of segments: DDP-SSN is their lower half. */
struct iwarp_window {
	uint32_t expected; /* the next to take effect: all before it have come */
	uint32_t next_out;
	uint32_t early_count;
	struct iwarp_chunk *stash; /* a shared one */
	uint32_t stash_used, stash_count;
	bool held_back;         /* the last that came could not be taken, */
	bool next_waits;        /* and was the next */
	struct iwarp_early now; /* that is arriving, or could not be taken */
	struct iwarp_early early[IWARP_EARLY];
	/* Receives of a shared queue: struct wqe_recv of HDL_MAX_SGE pieces each. */
	_Alignas(8) uint8_t behind[IWARP_BEHIND * (sizeof(struct wqe_recv) +
	                                           HDL_MAX_SGE * sizeof(struct hdl_sge))];
};

/* One queue pair on a stream; the memory of the owner. All of it is private to transport/iwarp. */
struct iwarp {
	struct engine *engine;
	struct qp *qp;                  /* NULL: it has been reset */
	const struct transport *before; /* the transport that the queue pair had */
	struct iwarp_terms terms;
	struct iwarp_owner owner;
	uint8_t ending; /* enum iwarp_ending */
	bool may_send;  /* a responder stays silent until it has heard the initiator */
	bool closing;   /* by iwarp_close(): what was posted goes out, then FIN */
	bool deaf;      /* what comes is not looked at any more */
	bool ended;     /* nothing comes any more */
	bool end_due;   /* plain: and the program has not been told */

	/* Out. */
	struct mpa_sender sender;    /* its position: octets that have become FPDUs */
	uint64_t taken;              /* octets that the stream has taken */
	struct iwarp_chunk *out;     /* to be sent, oldest first */
	struct iwarp_chunk *out_end; /* the last one */
	uint32_t out_chunks;         /* how many of these are shared ones */
	bool own_used;               /* own is among them, */
	bool last_used;              /* and last */
	bool cut;                    /* the stream ends within an FPDU: it can only be reset */
	uint32_t lent; /* octets of requests that are to be sent from where they are */
	uint32_t max_ulpdu;
	/* aligned: positions, of which 32 bits are kept */
	uint32_t line; /* where a TCP segment, or the first of several full ones, begins */
	uint32_t cuts[IWARP_CUTS];               /* where others begin that have not been taken, */
	uint32_t cut_begin, cut_end;             /* these of them */
	uint32_t send_msn, read_msn, result_msn; /* of the next message on queues 0, 1 and 3 */

	/* Requester. */
	uint32_t tell;   /* requests before this one have been taken by the stream */
	uint32_t oldest; /* where to look for the oldest open read or atomic */
	bool ready_read; /* the read that shows that we are ready is open */

	/* In. */
	struct mpa_receiver in;
	struct iwarp_window *window;  /* NULL: a byte stream */
	const uint8_t *head;          /* headers of the segment that is arriving, */
	uint16_t ulpdu_bytes;         /* of so many octets */
	uint32_t number;              /* window: which it is */
	struct rdmap_segment segment; /* that is arriving, once its head is there */
	uint8_t place;                /* enum iwarp_place */
	bool segment_known;
	bool needs_receive; /* the segment does, and there was none when it was looked for */
	uint32_t wants;     /* the receive that is waited for: so many ahead of the next */
	bool whole;         /* all of it is there, in memory of the owner */
	/* What is wrong with the segment; it counts once the CRC is known. */
	uint8_t fault;   /* enum rdmap_error; RDMAP_ERROR_COUNT: none */
	uint8_t refused; /* enum iwarp_refused: which memory refused it, with result */
	struct sg_result result;
	struct iwarp_chunk *hold;
	struct iwarp *hold_next; /* waits for a chunk */
	bool hold_waits;
	uint32_t expected_send, expected_read, expected_result; /* MSN on queues 0, 1 and 3 */
	bool receive_open;       /* a message on queue 0 has begun, */
	uint8_t receive_opcode;  /* of this kind, */
	uint32_t receive_offset; /* and so much of it has come */
	/* The RDMA Write that is arriving: what its next segment must say to be placed before its
	 * CRC is known. */
	bool write_open;
	bool write_touches; /* and octets of it have come to the memory of write_stag */
	uint32_t write_stag;
	uint64_t write_to;
	uint32_t write_bytes; /* octets of it so far, or of the last one: for immediate data */
	uint32_t answered;    /* MSN of the oldest request of the peer that is not answered */

	/* Times on engine.now_ns; 0: not set. */
	uint64_t delay_at, receive_at, look_at, stall_at;
	uint64_t look_ns;
	uint64_t delay_ns; /* of a DELAY that begins with the next tick */
	bool delay_begins;

	struct iwarp_chunk own_chunk, last_chunk;
	_Alignas(8) uint8_t own[IWARP_OWN_BYTES];
	uint8_t last[IWARP_LAST_BYTES];
	uint8_t waste[IWARP_WASTE_BYTES];
};

extern const struct transport iwarp_transport;
/* The context is the struct iwarp. arrived() returns false when the connection has been terminated:
 * what offer() has goes out, what comes is discarded. */
extern const struct stream_ops iwarp_stream;

/* From now on @qp, in INIT, RTR or RTS, runs on the stream that @owner has set up with @terms.
 * @iwarp, of any content, is its state until the queue pair is RESET, which ends the stream. */
void iwarp_begin(struct engine *engine, struct qp *qp, struct iwarp *iwarp,
                 const struct iwarp_terms *terms, const struct iwarp_owner *owner);
/* A responder may send, although nothing has come from the initiator: the Reply has reached it. */
void iwarp_may_send(struct iwarp *iwarp);
/* Close in order: everything that was posted is executed, then comes SQD and FIN. */
void iwarp_close(struct iwarp *iwarp);
enum iwarp_ending iwarp_ending(const struct iwarp *iwarp);
/* The queue pair; NULL: it has been reset. */
static inline struct qp *iwarp_qp(const struct iwarp *iwarp)
{
	return iwarp->qp;
}
/* Has iwarp_close() been called? */
static inline bool iwarp_is_closing(const struct iwarp *iwarp)
{
	return iwarp->closing;
}
/* Does what comes no longer count? The owner then discards it until the peer ends its direction. */
static inline bool iwarp_is_deaf(const struct iwarp *iwarp)
{
	return iwarp->deaf || iwarp->qp == NULL;
}
/* As stream_feed() on iwarp_stream, for data that was read ahead; survives memory that is gone, and
 * places whole FPDUs only once their CRC has proved right. */
size_t iwarp_feed(struct iwarp *iwarp, const uint8_t *bytes, size_t length, bool *open);
/* Has the FPDU that is arriving, or that arrived last, at least @bytes, or is it the short
 * beginning of a long message? */
static inline bool iwarp_in_long(const struct iwarp *iwarp, uint32_t bytes)
{
	return iwarp->in.ulpdu_bytes >= bytes || !iwarp->segment.last;
}
/* Memory of the runs that want() handed out last is gone (EFAULT). Call want() again. */
void iwarp_gone(struct iwarp *iwarp);
/* The same of the runs that offer() handed out: the request fails, the stream is to be reset. */
void iwarp_source_gone(struct iwarp *iwarp);
/* Timers: a DELAY of @ns begins; the times below have changed. */
void iwarp_delay(struct iwarp *iwarp, uint64_t ns);
void iwarp_set_timer(struct iwarp *iwarp);

/* --- align.c: FPDUs that fall on TCP segments --- */
/* May another FPDU be put? */
bool iwarp_align_room(const struct iwarp *iwarp);
/* An FPDU with a ULPDU of @ulpdu_bytes is put now. */
void iwarp_align_put(struct iwarp *iwarp, size_t ulpdu_bytes);
/* How many of @runs are to be offered, of which the last may become shorter. */
size_t iwarp_align_offer(const struct iwarp *iwarp, struct stream_run *runs, size_t count);
void iwarp_align_taken(struct iwarp *iwarp);

/* --- out.c: FPDUs and messages to be sent --- */
#define IWARP_MESSAGE_PREFIX (2u + DDP_SCTP_SSN_BYTES) /* before a segment: length, DDP-SSN */
/* Room for FPDUs. How many octets of payload behind @header_bytes the next may have, up to @wanted;
 * 0: none, or if @wanted is 0, not even the header. */
bool iwarp_out_room(struct iwarp *iwarp, size_t header_bytes, uint32_t wanted, uint32_t *payload);
/* Fills @to with @bytes from @offset on, and continues *sum, their CRC-32C. False: refused. */
typedef bool (*iwarp_fill)(void *context, uint32_t offset, uint8_t *to, uint32_t bytes,
                           uint32_t *sum);
/* Build the FPDU of @segment with @bytes of payload, for which there is room. False: @fill refused,
 * and there is none. */
bool iwarp_out_put(struct iwarp *iwarp, const struct rdmap_segment *segment, uint32_t offset,
                   uint32_t bytes, iwarp_fill fill, void *context);
/* How long the next segment of a message should be that has @left octets from @offset on. A long
 * message begins with a short segment: the receiver copies that, and may then place the others
 * before their CRC is known (rx.c). With the header behind it, it fits into what the receiver reads
 * with the message before. */
uint32_t iwarp_part(const struct iwarp *iwarp, uint32_t offset, uint32_t left);
/* May payload be sent from the memory of a request, and not from a copy? */
bool iwarp_out_lends(const struct iwarp *iwarp);
/* Room for an FPDU whose payload is in @runs runs. */
bool iwarp_out_lend_room(struct iwarp *iwarp, size_t header_bytes, size_t runs);
/* Build the FPDU of @segment, for which there is room, around the payload of request @index. False:
 * some of the memory is gone, and there is none. */
bool iwarp_out_lend(struct iwarp *iwarp, const struct rdmap_segment *segment,
                    const struct span *runs, size_t count, uint32_t index);
/* Requests are about to be flushed, and their memory may be reused: nothing that is lent is sent
 * any more, nor what is behind it. An FPDU that has been sent in part is completed from a copy. If
 * that is impossible, nothing is left, and iwarp.cut is set. */
void iwarp_out_recall(struct iwarp *iwarp);
/* Continue *sum over @run, memory of this process. False: it is gone. */
bool iwarp_out_sum(const struct iwarp *iwarp, const struct span *run, uint32_t *sum);
/* *index: of the first request whose memory is lent and gone. False: none. */
bool iwarp_out_gone(const struct iwarp *iwarp, uint32_t *index);
/* Put @bytes as they are. */
bool iwarp_out_plain(struct iwarp *iwarp, uint32_t offset, uint32_t bytes, iwarp_fill fill,
                     void *context);
/* The FPDU without a ULPDU (RFC 6581). False: no room. */
bool iwarp_out_empty(struct iwarp *iwarp);
/* The Terminate, for which there is always room, once. */
void iwarp_out_last(struct iwarp *iwarp, const struct rdmap_terminate *terminate);
/* Nothing of what is to be sent will be. */
void iwarp_out_drop(struct iwarp *iwarp);
struct iwarp_chunk *iwarp_chunk_take(struct iwarp *iwarp);
void iwarp_chunk_give(struct iwarp *iwarp, struct iwarp_chunk *chunk);
size_t iwarp_offer(void *context, struct stream_run *runs, size_t max);
void iwarp_taken(void *context, size_t bytes);

/* Messages: the next to be sent, DDP-SSN and segment. Returns its length; 0: none at the moment.
 * iwarp_message_taken(): it has been sent, and its memory may be reused. */
size_t iwarp_message_offer(const struct iwarp *iwarp, const uint8_t **message);
void iwarp_message_taken(struct iwarp *iwarp);
/* The DDP-SSN of the message after the last one: for session control. */
uint16_t iwarp_message_ssn(const struct iwarp *iwarp);

/* --- segments.c: messages instead of a stream --- */
/* A message has come. False: it has to wait; keep it, and pass it again once wake() has been
 * called. *open as that of iwarp_feed(). */
bool iwarp_message(struct iwarp *iwarp, const uint8_t *message, size_t bytes, bool *open);
/* wake() has been called: segments that waited may take effect. False: the connection has been
 * terminated. */
bool iwarp_message_resume(struct iwarp *iwarp);
void iwarp_window_begin(struct iwarp *iwarp);
/* Nothing that waits will take effect. */
void iwarp_window_drop(struct iwarp *iwarp);
/* Have all segments that came taken effect? */
bool iwarp_window_between(const struct iwarp *iwarp);

/* --- plain.c: plain TCP --- */
size_t iwarp_plain_want(struct iwarp *iwarp, struct stream_run *runs, size_t max);
bool iwarp_plain_arrived(struct iwarp *iwarp, size_t bytes);
size_t iwarp_plain_feed(struct iwarp *iwarp, const uint8_t *bytes, size_t length, bool *open);
void iwarp_plain_gone(struct iwarp *iwarp);
void iwarp_plain_end(struct iwarp *iwarp);

/* --- tx.c: requester --- */
bool iwarp_run(struct engine *engine, struct qp *qp);
/* The stream has taken more: complete what it covers. */
void iwarp_sent(struct iwarp *iwarp);
/* The oldest open read or atomic; NULL: none. */
struct wqe_send *iwarp_oldest_read(struct iwarp *iwarp);
/* The open read whose sink tag, or atomic whose identifier, is @msn; NULL: none. */
struct wqe_send *iwarp_named_read(const struct iwarp *iwarp, uint32_t msn);
/* @wqe, the oldest, has been answered with success. */
void iwarp_read_done(struct iwarp *iwarp, struct wqe_send *wqe);
/* Everything posted has been executed and sent. */
bool iwarp_drained(const struct iwarp *iwarp);

/* --- rx.c: the stream into segments --- */
size_t iwarp_want(void *context, struct stream_run *runs, size_t max);
bool iwarp_arrived(void *context, size_t bytes);
void iwarp_ended(void *context, enum stream_end why);
/* The next segment begins. */
void iwarp_rx_reset(struct iwarp *iwarp);
/* Does the connection look at what comes? */
bool iwarp_listens(const struct iwarp *iwarp);
/* Is there a receive for the message that comes @ahead of the next? If not, hold back the peer, and
 * look again from time to time. */
bool iwarp_await_receive(struct iwarp *iwarp, uint32_t ahead);

/* --- request.c: what segments do --- */
/* The head of the segment has come: where does its body go, and what is wrong with it? */
void iwarp_judge(struct iwarp *iwarp);
/* The same for a segment on a transport that does not keep their order: where may its body go
 * before its turn? iwarp_judge() is called when that comes. */
void iwarp_judge_early(struct iwarp *iwarp);
/* Messages: table D for the RDMA Write that has come, with its body in place. */
void iwarp_touch(struct iwarp *iwarp);
/* *to: where the body belongs, from @offset of it on. False: refused. */
bool iwarp_place_list(struct iwarp *iwarp, uint32_t offset, struct hdl_sge *piece, struct sg *to);
/* The memory of place said no. */
void iwarp_place_refused(struct iwarp *iwarp, const struct sg_result *result);
/* Copy @count bytes of the body, from @offset of it on, to their place. False: refused. */
bool iwarp_place_bytes(struct iwarp *iwarp, uint32_t offset, const uint8_t *bytes, uint32_t count);
/* The segment is complete, its body is placed, and its CRC was right: it takes effect. */
void iwarp_deliver(struct iwarp *iwarp);

/* --- answer.c: answers to the peer's reads and atomics --- */
bool iwarp_owes(const struct qp *qp);
enum settled iwarp_answer(struct engine *engine, struct qp *qp);
/* The Read or Atomic Request that is the segment has come, perhaps before its turn: it gets an
 * entry of the read resource queue. False: the queue has none for its number. */
bool iwarp_reserve(struct iwarp *iwarp);
/* The turn of the request. */
void iwarp_asked(struct iwarp *iwarp);

/* --- end.c: how a connection ends --- */
/* Something is wrong with what the peer sent: raise the event unless a completion @told, send a
 * Terminate that quotes the segment that is arriving, fail. */
void iwarp_refuse(struct iwarp *iwarp, enum rdmap_error error, enum hdl_detail detail, bool told);
/* The same about another segment, which begins with the headers at @segment. */
void iwarp_refuse_segment(struct iwarp *iwarp, enum rdmap_error error, enum hdl_detail detail,
                          bool told, const uint8_t *segment, size_t segment_bytes);
/* The request @wqe, which is finished, failed: what was posted before it is flushed, it completes,
 * and the queue pair fails. */
void iwarp_request_failed(struct iwarp *iwarp, struct wqe_send *wqe);
/* The peer terminated the connection. */
void iwarp_terminated(struct iwarp *iwarp, const struct rdmap_terminate *terminate);
void iwarp_leaving(struct engine *engine, struct qp *qp, enum hdl_qp_state state);
void iwarp_left(struct engine *engine, struct qp *qp, enum hdl_qp_state state);
/* The error for a check of the peer's range: a tagged segment (DDP), or a request (RDMAP). */
enum rdmap_error iwarp_error_of(enum hdl_detail detail, bool tagged);
enum hdl_detail iwarp_detail_of(enum rdmap_error error);
/* Is the stream drained, or dead? Decide what becomes of it. */
void iwarp_decide(struct iwarp *iwarp);

static inline void iwarp_wake(struct iwarp *iwarp)
{
	iwarp->owner.wake(iwarp->owner.context, iwarp);
}

#endif
