/* The InfiniBand transports on a wire (IBTA volume 1 chapter 9), between their files: reliable and
 * unreliable connections, the extended reliable ones, datagrams. Packets go out through
 * engine.carrier (path.h) and come in by ib_take().
 *
 *   ib/tx.c        requester: work requests to packets, in order, within window and credits
 *   ib/retry.c     requester: acknowledgements, read responses, NAKs, time; what is lost is sent
 *                  again
 *   ib/rx.c        what comes in is judged and handed on; datagrams are received
 *   ib/request.c   responder: requests executed in the order of their PSNs, through op.h
 *   ib/guess.c     responder: how many wrong keys are judged
 *   ib/path.c      which way packets go, and migration to another
 *   stripe.c       two ways at a time
 *   ib/answer.c    responder: read responses, atomic results, ACK and NAK, in that order
 *   rd.c           reliable datagrams: whose message has its turn on a context, and to whom one
 *                  goes that came
 *
 * A message of n packets has n PSNs, a read as many as its responses. wqe.msn is the first of
 * them, so that any PSN leads to the element and the offset in it, and going back to a PSN is
 * moving the cursor (qp.next, wqe.offset) to it. */
#ifndef TRANSPORT_IB_H
#define TRANSPORT_IB_H

#include <stdbool.h>
#include <stdint.h>

#include "queue/wqe.h"
#include "transport/engine.h"
#include "transport/ib/stripe.h"
#include "transport/path.h"
#include "transport/request.h"
#include "transport/sg.h"
#include "transport/transport.h"
#include "wire/ib_packet.h"

#define IB_TX_BATCH 64u /* packets of one queue pair before the next has its turn, */
#define IB_TX_MORE  64u /* and at most so many beyond that, to fill what travels together */
#define IB_READ_BITS \
	5u /* a read request asks for at most 2 to this responses; longer reads are several \
	      requests */
#define IB_ACK_EVERY \
	32u /* packets at most of a long message between two that ask for an acknowledgement, */
#define IB_FROM_BYTES         512u /* of payload: worth copying and checksumming in one pass */
#define IB_ACK_PARTS          4u   /* and so many in a window */
#define IB_DEFAULT_PKEY       0xffffu
#define IB_WINDOW_MAX         1024u /* packets in flight, */
#define IB_WINDOW_FIRST_BYTES 4096u /* to begin with */
#define IB_WINDOW_STEP_BYTES  1024u
#define IB_WINDOW_PARTS       16u        /* at least one packet in so many round trips */
#define IB_WINDOW_SHIFT       8u         /* the window is kept in 256ths of a packet */
#define IB_PSN_HALF           0x800000u  /* a PSN that is further ahead is behind */
#define IB_CNP_EVERY_NS       50000u     /* congestion is told to a sender this often */
#define IB_CNP_LATE           64u        /* packets that a CNP may be behind what is acknowledged */
#define IB_CNP_BARE_NS        100000000u /* a CNP that proves nothing counts this often at most, */
#define IB_CNP_BARE_TRIPS     64u        /* and not more often than once in so many round trips */
#define IB_MARK_AHEAD         64u      /* a mark counts on packets this near to the expected one */
#define IB_KEYS_KNOWN         8u       /* right keys that an unreliable connection remembers */
#define IB_WRONG_KEYS         64u      /* that it judges at once, */
#define IB_WRONG_KEY_NS       1000000u /* and one more in this time */
#define IB_RESYNC_AHEAD       (2u * IB_WINDOW_MAX) /* PSNs that a RESYNC may skip */
#define IB_PATIENCE_MIN_NS    1000000u             /* an answer is not missed sooner, */
#define IB_PATIENCE_FIRST_NS  4000000u /* and not before it is known how long one takes */
#define IB_BURST_MIN          64u      /* responses to one read between two pauses, at least, */
#define IB_BURST_MAX          8192u    /* and from so many on there are none */
#define IB_PAUSE_MIN_NS       100000u
#define IB_PAUSE_MAX_NS       1000000000u

/* What a connection on the wire needs besides struct qp. */
struct ib {
	struct path path;
	struct path alternate; /* or, after a migration, the former one */
	bool has_alternate, has_former;
	bool refused;          /* a migration of the peer's, and that was told */
	bool reply_alternate;  /* what is looked at came along the alternate path, from a peer that
	                          has moved there, perhaps */
	struct stripe *stripe; /* both are used at a time (stripe.h); NULL: not */
	uint16_t came_port; /* source port of the peer's packets along the path, not the alternate
	                       one */
	/* Whose message is sent, and who gets the one that comes: the connection itself; of a
	 * context the datagram queue pairs. */
	struct qp *from, *to;
	struct rd *rd; /* of an end-to-end context (rd.h) */
	uint32_t mtu;  /* bytes of payload that a packet carries at most */

	/* Requester. una <= where the cursor stands <= sent <= next */
	uint32_t next_psn;          /* of the next message that has none */
	uint32_t una_psn;           /* the oldest that is not acknowledged */
	uint32_t sent_psn;          /* behind the last that was ever sent */
	uint32_t ssn;               /* number of the message at the cursor; the first is 1 */
	uint32_t limit;             /* the last that the peer has a receive for, */
	bool limited;               /* if it says so at all */
	uint32_t since_ack_request; /* packets */
	/* Congestion (ib/congestion.c). */
	uint32_t window;      /* in 256ths of a packet */
	uint32_t threshold;   /* the same: below it the window doubles in a round trip */
	uint32_t recover_psn; /* a reduction counts once until this is acknowledged */
	bool recovering;
	bool probed; /* the answer to this PSN was missed; what the window was then: */
	uint32_t probed_psn, window_before, threshold_before;
	bool bare_seen; /* a CNP that proves nothing came, and counted then: */
	uint64_t bare_ns;
	/* How long answers take. */
	bool timing; /* that for this PSN is being timed, since: */
	uint8_t backoff;
	uint32_t timed_psn;
	uint64_t timed_ns;
	uint64_t rtt_ns, rtt_spread_ns; /* 0: not known */
	uint64_t waited_ns;             /* in vain, of the timeout */
	uint64_t
	        next_ns; /* with a window of less than a packet the next one goes not before this */
	/* Answers passed by the one for this PSN, and it is sent again because of that. */
	bool passed;
	uint32_t passed_psn;

	/* Responder. */
	uint32_t expected_psn;
	uint32_t msn;    /* messages executed */
	uint8_t kind;    /* enum ib_operation of the message that is being received, IB_SEND or
	                    IB_WRITE; IB_NOTHING */
	uint32_t offset; /* how much of it is there */
	uint64_t write_addr;
	struct hdl_key write_key;
	uint32_t write_length;
	/* Unreliable: nothing tells that a key was wrong, so guesses are free. Beyond some in a
	 * while keys that were not right before are not judged. */
	struct hdl_key keys_known[IB_KEYS_KNOWN];
	uint32_t keys_next, wrong_left;
	uint64_t wrong_ns; /* when wrong_left was last refilled */
	/* Reads and atomics: a ring of the last ones, in qp.reads.entries. [reads_sent, reads_put)
	 * may have to be answered. */
	uint32_t reads_put, reads_sent;
	/* Where the last read ended. One that goes on from there, with nothing in between, is the
	 * same message to a one-touch entry, which is touched when something else comes. */
	uint64_t read_end;
	struct hdl_key read_key;
	uint32_t read_psn; /* what follows it */
	bool touch_due;
	bool ack_due;
	bool ack_new; /* it became due in this turn, and is a plain one */
	uint8_t syndrome;
	uint32_t ack_psn;
	bool cnp_due;
	uint64_t cnp_ns; /* when the last one was sent */
	/* Responses to one long read, while some get lost (ib/answer.c). */
	struct {
		uint32_t limit; /* packets before a pause; 0: there are no pauses */
		uint32_t sent;  /* since the last one */
		uint32_t psn;   /* of the read */
		uint64_t began_ns, pause_ns;
	} burst;
	bool pausing; /* that is why ib_answer() did not finish */
};

#define IB_NOTHING 0xffu

/* How far PSN @a is ahead of @b; negative: behind (IBTA section 9.7.1). */
static inline int32_t ib_psn_distance(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t ib_psn(uint32_t psn)
{
	return psn & IB_PSN_MASK;
}

/* Packets that @length bytes take. */
static inline uint32_t ib_packets(const struct ib *ib, uint32_t length)
{
	return length == 0 ? 1 : (length - 1) / ib->mtu + 1;
}

/* PSNs of @wqe. */
static inline uint32_t ib_span(const struct ib *ib, const struct wqe_send *wqe)
{
	return request_is_atomic(wqe) ? 1 : ib_packets(ib, wqe->length);
}

/* Requests, as the responder counts them, that @wqe becomes. */
static inline uint32_t ib_messages(const struct wqe_send *wqe)
{
	return wqe->opcode == HDL_OP_READ ? wqe->read.requests : 1;
}

/* The part of an opcode that says which transport is @qp's. */
static inline uint8_t ib_transport_of(const struct qp *qp)
{
	switch (qp->type) {
	case HDL_QP_RC:
		return IB_RC;
	case HDL_QP_UC:
		return IB_UC;
	case QP_TYPE_EEC:
		return IB_RD;
	default:
		return IB_XRC;
	}
}

/* A packet came along @came. With CE in its IP header it is @congested. */
void ib_take(struct engine *engine, const struct path *came, bool congested,
             const struct ib_packet *packet);

/* The attributes of @qp are those of a connection that begins: responder (RTR), requester (RTS). */
void ib_begin_responder(struct qp *qp);
void ib_begin_requester(struct qp *qp);

/* --- ib/path.c --- */
/* Change over to the alternate path. */
void ib_migrate(struct engine *engine, struct qp *qp);
/* Requests are not answered any more. True: there is another path, on which to go on. */
bool ib_path_failed(struct engine *engine, struct qp *qp);
/* May a packet with this MigReq have come along @came? Anybody can write addresses into a packet:
 * nothing is moved by that. */
bool ib_path_take(struct qp *qp, const struct path *came, bool migreq);
/* The packet along @came has a PSN that only the peer knows: what it says about paths is believed
 * (IBTA section 17.2.8). */
void ib_path_follow(struct engine *engine, struct qp *qp, const struct path *came, bool migreq);
#define IB_ALTERNATE_PORT 0x2000u /* what the source ports of the two paths differ in */
/* The paths by number. */
static inline const struct path *ib_way(const struct ib *ib, unsigned way)
{
	return way == 0 ? &ib->path : &ib->alternate;
}
/* Where an acknowledgement goes, and where the answer to a read or atomic does. */
static inline const struct path *ib_reply_path(const struct ib *ib)
{
	return ib->stripe == NULL ? ib_way(ib, ib->reply_alternate) : ib_way(ib, ib->stripe->reply);
}
/* The number of the path along which the packet came that is looked at. */
static inline uint8_t ib_came(const struct ib *ib)
{
	return ib->stripe == NULL ? 0 : ib->stripe->came;
}
static inline const struct path *ib_respond_path(const struct ib *ib,
                                                 const struct read_entry *entry)
{
	return ib->stripe == NULL ? ib_way(ib, ib->reply_alternate) : ib_way(ib, entry->way);
}
/* MigReq of the packets that @qp sends. */
static inline bool ib_migreq(const struct qp *qp)
{
	return qp->attr.path_mig_state == HDL_MIG_MIGRATED;
}

/* --- ib/tx.c --- */
/* Execute what can be executed. True if anything was done. */
bool ib_run(struct engine *engine, struct qp *qp);
/* A datagram along @wqe's own path. */
enum step ib_send_datagram(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
/* Send the packet @psn of @wqe, a send or write, once more, and nothing else. False: there is no
 * room. */
bool ib_resend(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t psn);
/* @wqe's datagram to its group, on the wire, and nothing more. STEP_WAIT: it is on its way;
 * STEP_NEXT: refused, and over. */
enum step ib_send_to_group(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
/* Room for a packet with @payload_bytes of payload, whose headers are written: where the payload
 * goes. NULL: none. */
uint8_t *ib_begin_packet(struct engine *engine, const struct path *path,
                         const struct ib_packet *packet, uint8_t **start);
/* The payload is @length bytes of @from and lies in one piece: it is copied on its way, and the
 * packet is off. False: it is too short for that, or something is unusual; nothing has happened. */
bool ib_end_packet_from(struct engine *engine, const struct path *path,
                        const struct ib_packet *packet, uint8_t *start, const uint8_t *payload,
                        const struct sg *from);
/* A turn that has sent @count packets: may it go on? */
static inline bool ib_goes_on(const struct engine *engine, unsigned count)
{
	return count < IB_TX_BATCH ||
	       (count < IB_TX_BATCH + IB_TX_MORE && engine->carrier != NULL &&
	        engine->carrier->filling != NULL &&
	        engine->carrier->filling(engine->carrier->context));
}
/* Padding, and off it goes. */
void ib_end_packet(struct engine *engine, const struct path *path, const struct ib_packet *packet,
                   uint8_t *start, uint8_t *payload);

/* --- ib/retry.c --- */
void ib_answered(struct engine *engine, struct qp *qp, const struct ib_packet *packet);
void ib_timeout(struct engine *engine, struct qp *qp);
/* Complete what is over. */
void ib_reap(struct engine *engine, struct qp *qp);
uint64_t ib_timeout_ns(const struct qp *qp);

/* --- ib/request.c --- */
void ib_request(struct engine *engine, struct qp *qp, const struct ib_packet *packet);
/* Execute @packet, whose turn it is and which takes *span PSNs. False: it was refused, or there was
 * no room. */
bool ib_run_request(struct engine *engine, struct qp *qp, const struct ib_packet *packet,
                    uint32_t *span);
/* An acknowledgement of everything up to @psn, or with @syndrome a NAK, is due. */
void ib_owe_ack(struct engine *engine, struct qp *qp, uint8_t syndrome, uint32_t psn);
/* Nothing goes on from where the last read ended. */
void ib_touch(struct engine *engine, struct qp *qp);

/* The NAK @code about @psn is due. */
void ib_owe_nak(struct engine *engine, struct qp *qp, enum ib_nak_code code, uint32_t psn);

/* --- ib/guess.c --- */
void ib_guess_begin(struct ib *ib);
/* May @key, which a message names, be judged, or were too many wrong? And it was. */
bool ib_may_judge(struct engine *engine, struct qp *qp, struct hdl_key key);
void ib_judged(struct qp *qp, struct hdl_key key, bool right);

/* --- ib/answer.c --- */
/* May what is owed wait until the application calls the next time? Once, for an acknowledgement:
 * the application's own message, which may come first, is what the peer waits for. */
bool ib_may_wait(struct qp *qp);
/* The application's own message is about to leave, to where an acknowledgement that waits goes too:
 * as one train, if it can. */
void ib_take_along(struct engine *engine, struct qp *qp);
/* Send what is owed. False when there was no room for all of it, or when the rest has to wait
 * (pausing). */
bool ib_answer(struct engine *engine, struct qp *qp);
/* Is @packet a copy of @entry, a read that is being answered, and came the other way? It asks
 * whether that way works and no more: that is said along it. */
bool ib_asks_for_echo(struct ib *ib, const struct ib_packet *packet,
                      const struct read_entry *entry);
/* @entry, a read, is asked for again from byte @from on. */
void ib_burst_again(const struct engine *engine, struct ib *ib, const struct read_entry *entry,
                    uint32_t from);
/* The credits that code @code of an AETH stands for (IBTA table 44), and the code for at most
 * @count. */
uint32_t ib_credits(uint8_t code);
uint8_t ib_credit_code(uint32_t count);

/* --- ib/congestion.c --- */
void ib_window_begin(struct ib *ib);
/* @count packets were acknowledged. */
void ib_window_grow(struct ib *ib, uint32_t count);
/* Packets were lost, or marked on their way: fewer in flight. */
void ib_window_lost(struct ib *ib);
void ib_window_marked(struct ib *ib);
/* A CNP for the peer proves that we have seen its packets; and does this one prove that the peer
 * has seen ours? One that does not, of an adapter of another make or of anybody, changes little
 * (docs/adr/0010). */
void ib_cnp_sign(const struct ib *ib, struct ib_cnp *cnp);
bool ib_cnp_proved(const struct ib *ib, const struct ib_cnp *cnp);
void ib_window_hinted(struct ib *ib, uint64_t now_ns);
/* The answer to the oldest packet was missed: it is sent again, with a few after it. */
void ib_window_silent(struct ib *ib);
/* The packet @psn is about to be sent and asks for an answer; everything before una_psn was
 * answered. */
void ib_time_sent(struct ib *ib, uint32_t psn, uint64_t now_ns);
void ib_time_answered(struct ib *ib, uint64_t now_ns);
/* How long an answer is waited for; and that was in vain: has the timeout of @qp passed by now? */
uint64_t ib_patience_ns(const struct qp *qp);
bool ib_patience_over(struct qp *qp, uint64_t waited_ns);
/* In whole packets; at least one may be in flight. */
static inline uint32_t ib_window(const struct ib *ib)
{
	return ib->window >> IB_WINDOW_SHIFT != 0 ? ib->window >> IB_WINDOW_SHIFT : 1;
}
/* What must_wait() goes by: what is kept out of order at the other end is limited too. */
static inline uint32_t ib_limit(const struct ib *ib)
{
	uint32_t window = ib_window(ib);
	return ib->stripe != NULL && ib->stripe->count < window ? ib->stripe->count : window;
}
/* The packet after one that is sent now; and how long the next one has to wait. */
void ib_pace(struct ib *ib, uint64_t now_ns);
uint64_t ib_pace_wait_ns(const struct ib *ib, uint64_t now_ns);

/* --- ib.c --- */
extern const struct transport ib_transport;
/* Of the table, for contexts too (rd.c). */
bool ib_answer_may_wait(const struct engine *engine, struct qp *qp);
enum settled ib_settle(struct engine *engine, struct qp *qp);
void ib_leaving(struct engine *engine, struct qp *qp, enum hdl_qp_state state);

#endif
