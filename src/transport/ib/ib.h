/* The InfiniBand transports on a wire (IBTA volume 1 chapter 9), as their files share them:
 * reliable and unreliable connections, extended reliable connections, datagrams. Packets are sent
 * through engine.carriers (path.h) and received by ib_take().
 *
 *   ib/tx.c          requester: work requests to packets, in order, within window and credits
 *   ib/retry.c       requester: acknowledgements, read responses, NAKs, timeouts; retransmission
 *   ib/congestion.c  notices of congestion (transport/window.h has the window)
 *   ib/rx.c          checks and dispatches received packets; receives datagrams
 *   ib/request.c     responder: executes requests in the order of their PSNs, through op.h
 *   ib/guess.c       responder: how many wrong keys are checked
 *   ib/answer.c      responder: read responses, atomic results, ACK and NAK, in that order
 *   ib/path.c        which path packets take, and migration to another
 *   ib/stripe.c      two paths at the same time
 *   ib/rd.c          reliable datagrams: whose message is sent next on a context, and who receives
 *                    one
 *
 * A message of n packets has n PSNs; a read has as many as its responses. wqe.msn is the first of
 * them, so any PSN leads to the element and the offset in it, and going back to a PSN means moving
 * the cursor (qp.next, wqe.offset) to it. */
#ifndef TRANSPORT_IB_H
#define TRANSPORT_IB_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "queue/wqe.h"
#include "transport/engine.h"
#include "transport/ib/stripe.h"
#include "transport/path.h"
#include "transport/request.h"
#include "transport/sg.h"
#include "transport/transport.h"
#include "transport/window.h"
#include "wire/ib_packet.h"

#define IB_TX_BATCH 64u /* packets of one queue pair before the next one gets its turn */
#define IB_TX_MORE  64u /* packets beyond that, at most, to fill a batch that is sent together */
#define IB_READ_BITS \
	5u /* a read request asks for at most 2 to this responses; longer reads take several */
#define IB_ACK_EVERY \
	32u /* packets of a long message, at most, between two that request an acknowledgement */
#define IB_FROM_BYTES   512u /* minimum payload for copying and checksumming in one pass */
#define IB_ACK_PARTS    4u   /* acknowledgements requested per window */
#define IB_DEFAULT_PKEY 0xffffu
#define IB_WINDOW_MAX   WINDOW_MAX_PACKETS /* packets in flight */
#define IB_SPARE_BITS   8u                 /* of 32: a PSN has 24 */
#define IB_PSN_HALF     0x800000u          /* a PSN that is further ahead is behind */
#define IB_CNP_EVERY_NS 50000u   /* a sender is notified of congestion at most this often */
#define IB_CNP_LATE     64u      /* packets that a CNP may be behind what is acknowledged */
#define IB_MARK_AHEAD   64u      /* an ECN mark counts this close to the expected packet */
#define IB_KEYS_KNOWN   8u       /* valid keys that an unreliable connection remembers */
#define IB_WRONG_KEYS   64u      /* wrong keys that it checks in a burst */
#define IB_WRONG_KEY_NS 1000000u /* one more per this time */
#define IB_RESYNC_AHEAD (2u * IB_WINDOW_MAX) /* PSNs that a RESYNC may skip */
#define IB_BURST_MIN    64u   /* responses to one read between two pauses, at least */
#define IB_BURST_MAX    8192u /* from here on there are no pauses */
#define IB_PAUSE_MIN_NS 100000u
#define IB_PAUSE_MAX_NS 1000000000u

/* What a connection on the wire needs besides struct qp. */
struct ib {
	struct path path;
	struct path alternate; /* or, after a migration, the former path */
	bool has_alternate, has_former;
	/* A migration of the peer was refused, and the event has been raised. */
	bool refused;
	/* The current packet came along the alternate path, perhaps from a peer that has
	 * migrated there. */
	bool reply_alternate;
	/* Both paths are used at the same time (stripe.h); NULL: they are not. */
	struct stripe *stripe;
	/* Source port of the peer's packets along the path, not the alternate path. */
	uint16_t came_port;
	/* Whose message is being sent, and who receives the incoming one: the connection itself,
	 * or, for a context, the datagram queue pairs. */
	struct qp *from, *to;
	struct rd *rd; /* only of an end-to-end context (rd.h) */
	uint32_t mtu;  /* maximum payload of a packet in bytes */

	/* Requester. una <= cursor <= sent <= next */
	uint32_t next_psn;          /* of the next message without PSNs */
	uint32_t una_psn;           /* the oldest that is not acknowledged */
	uint32_t sent_psn;          /* one past the last that has ever been sent */
	uint32_t ssn;               /* number of the message at the cursor; the first is 1 */
	uint32_t limit;             /* the last message that the peer has a receive for */
	bool limited;               /* the peer reports credits at all */
	uint32_t since_ack_request; /* packets since an acknowledgement was last requested */
	struct window window;       /* congestion, and how long answers take */
	/* Later answers overtook the one for this PSN, which is therefore being sent again. */
	bool passed;
	uint32_t passed_psn;

	/* Responder. */
	uint32_t expected_psn;
	uint32_t msn; /* messages executed */
	/* enum ib_operation of the message that is being received, IB_SEND or IB_WRITE;
	 * IB_NOTHING. */
	uint8_t kind;
	uint32_t offset; /* how much of it has been received */
	uint64_t write_addr;
	struct hdl_key write_key;
	uint32_t write_length;
	/* Unreliable connections: nothing reports a wrong key, so guesses are free. After too many
	 * of them in a short time only keys that were valid before are checked. */
	struct hdl_key keys_known[IB_KEYS_KNOWN];
	uint32_t keys_next, wrong_left;
	uint64_t wrong_ns; /* when wrong_left was last refilled */
	/* Reads and atomics: a ring of the last ones, in qp.reads.entries. [reads_sent, reads_put)
	 * may have to be answered. */
	uint32_t reads_put, reads_sent;
	/* Where the last read ended. A read that continues there, with nothing in between, is the
	 * same message for a one-touch entry, which is touched when something else comes. */
	uint64_t read_end;
	struct hdl_key read_key;
	uint32_t read_psn; /* the PSN that follows it */
	bool touch_due;
	bool ack_due;
	bool ack_new; /* it became due in this turn, and is a plain ACK */
	uint8_t syndrome;
	uint32_t ack_psn;
	bool cnp_due;
	uint64_t cnp_ns; /* when the last one was sent */
	/* Responses to one long read, while some get lost (ib/answer.c). */
	struct {
		uint32_t limit; /* packets before a pause; 0: no pauses */
		uint32_t sent;  /* packets since the last pause */
		uint32_t psn;   /* of the read */
		uint64_t began_ns, pause_ns;
	} burst;
	bool pausing; /* a pause is why ib_answer() did not finish */

	/* Captures: one past the last PSN that was recorded. */
	struct {
		uint32_t request_in, answer_in, answer_out;
	} recorded;
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

/* Number of PSNs of @wqe. */
static inline uint32_t ib_span(const struct ib *ib, const struct wqe_send *wqe)
{
	return request_is_atomic(wqe) ? 1 : ib_packets(ib, wqe->length);
}

/* Number of requests, as the responder counts them, that @wqe becomes. */
static inline uint32_t ib_messages(const struct wqe_send *wqe)
{
	return wqe->opcode == HDL_OP_READ ? wqe->read.requests : 1;
}

/* The part of an opcode that says which transport @qp uses. */
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

/* A packet came along @came. @congested: its IP header had the CE mark. */
void ib_take(struct engine *engine, const struct path *came, bool congested,
             const struct ib_packet *packet);

/* Start a connection from the attributes of @qp: responder (RTR), requester (RTS). */
void ib_begin_responder(struct qp *qp);
void ib_begin_requester(struct qp *qp);

/* --- ib/path.c --- */
/* Switch to the alternate path. */
void ib_migrate(struct engine *engine, struct qp *qp);
/* Requests are no longer answered. True: we have switched to another path. */
bool ib_path_failed(struct engine *engine, struct qp *qp);
/* May a packet with this MigReq have come along @came? Anybody can forge the addresses of a packet,
 * so this alone migrates nothing. */
bool ib_path_take(struct qp *qp, const struct path *came, bool migreq);
/* The packet along @came has a PSN that only the peer knows: what it says about paths is believed
 * (IBTA section 17.2.8). */
void ib_path_follow(struct engine *engine, struct qp *qp, const struct path *came, bool migreq);
#define IB_ALTERNATE_PORT 0x2000u /* the bit in which the source ports of the two paths differ */
/* The paths by number. */
static inline const struct path *ib_way(const struct ib *ib, unsigned way)
{
	return way == 0 ? &ib->path : &ib->alternate;
}
/* The path for acknowledgements. */
static inline const struct path *ib_reply_path(const struct ib *ib)
{
	return ib->stripe == NULL ? ib_way(ib, ib->reply_alternate) : ib_way(ib, ib->stripe->reply);
}
/* The number of the path along which the current packet came. */
static inline uint8_t ib_came(const struct ib *ib)
{
	return ib->stripe == NULL ? 0 : ib->stripe->came;
}
static inline const struct path *ib_respond_path(const struct ib *ib,
                                                 const struct read_entry *entry)
{
	return ib->stripe == NULL ? ib_way(ib, ib->reply_alternate) : ib_way(ib, entry->way);
}
/* MigReq in the packets that @qp sends. */
static inline bool ib_migreq(const struct qp *qp)
{
	return qp->attr.path_mig_state == HDL_MIG_MIGRATED;
}

/* Begin the headers of a packet of @qp, without a payload: the BTH of @opcode, which names its
 * transport. */
static inline void ib_put_bth(const struct qp *qp, uint8_t opcode, uint32_t psn,
                              struct ib_packet *packet)
{
	packet->op = ib_opcode(opcode);
	assert(packet->op != NULL);
	packet->bth = (struct ib_bth){.opcode = opcode,
	                              .migreq = ib_migreq(qp),
	                              .pkey = IB_DEFAULT_PKEY,
	                              .dest_qp = qp->attr.dest_qpn,
	                              .psn = ib_psn(psn)};
	packet->payload_bytes = 0;
}

/* --- ib/tx.c --- */
/* Execute as much as possible. True if anything was done. */
bool ib_run(struct engine *engine, struct qp *qp);
/* Send a datagram along @wqe's own path. */
enum step ib_send_datagram(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
/* Resend only the packet @psn of @wqe, a send or write. False: there is no room. */
bool ib_resend(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t psn);
/* Send @wqe's datagram to its group on the wire, and nothing more. STEP_WAIT: it has been sent;
 * STEP_NEXT: it was refused, and @wqe is finished. */
enum step ib_send_to_group(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
/* Reserve a packet with payload_bytes of payload and write its headers. Returns where the payload
 * goes; NULL: no room. */
uint8_t *ib_begin_packet(struct engine *engine, const struct path *path,
                         const struct ib_packet *packet, uint8_t **start);
/* The payload is in one piece in @from: copy it while the packet is sealed, and send it. False: it
 * is too short for that, or something is unusual; nothing has happened. */
bool ib_end_packet_from(struct engine *engine, const struct path *path,
                        const struct ib_packet *packet, uint8_t *start, const uint8_t *payload,
                        const struct sg *from);
/* May a turn that has sent @count packets continue? */
static inline bool ib_goes_on(const struct engine *engine, unsigned count)
{
	if (count < IB_TX_BATCH)
		return true;
	const struct carrier *carrier = engine->carriers[engine->last_port];
	return count < IB_TX_BATCH + IB_TX_MORE && carrier != NULL && carrier->filling != NULL &&
	       carrier->filling(carrier->context);
}
/* Add the padding and send the packet. */
void ib_end_packet(struct engine *engine, const struct path *path, const struct ib_packet *packet,
                   uint8_t *start, uint8_t *payload);

/* --- ib/retry.c --- */
void ib_answered(struct engine *engine, struct qp *qp, const struct ib_packet *packet);
void ib_timeout(struct engine *engine, struct qp *qp);
/* Complete finished requests. */
void ib_reap(struct engine *engine, struct qp *qp);
uint64_t ib_timeout_ns(const struct qp *qp);

/* --- ib/request.c --- */
void ib_request(struct engine *engine, struct qp *qp, const struct ib_packet *packet);
/* Execute @packet, which is the next in order and takes *span PSNs. False: it was refused, or there
 * was no room. */
bool ib_run_request(struct engine *engine, struct qp *qp, const struct ib_packet *packet,
                    uint32_t *span);
/* An acknowledgement of everything up to @psn, or with @syndrome a NAK, is due. */
void ib_owe_ack(struct engine *engine, struct qp *qp, uint8_t syndrome, uint32_t psn);
/* Nothing continues where the last read ended: touch its entry, if that is due. */
void ib_touch(struct engine *engine, struct qp *qp);

/* The NAK @code about @psn is due. */
void ib_owe_nak(struct engine *engine, struct qp *qp, enum ib_nak_code code, uint32_t psn);

/* --- ib/guess.c --- */
void ib_guess_begin(struct ib *ib);
/* May @key, which a message names, be checked, or were too many wrong? ib_judged() reports the
 * result. */
bool ib_may_judge(struct engine *engine, struct qp *qp, struct hdl_key key);
void ib_judged(struct qp *qp, struct hdl_key key, bool right);

/* --- ib/answer.c --- */
/* May what is owed wait for the application's next call? Once, for an acknowledgement: the peer
 * waits for the application's own message, which may come first. */
bool ib_may_wait(struct qp *qp);
/* The application's own message is about to be sent to where a delayed ACK goes too: send both
 * together if possible. */
void ib_take_along(struct engine *engine, struct qp *qp);
/* Send what is owed. False: there was no room for all of it, or the rest has to wait (pausing). */
bool ib_answer(struct engine *engine, struct qp *qp);
/* Is @packet a copy of @entry, a read that is being answered, and came along the other path? It
 * only asks whether that path works, and is answered along it. */
bool ib_asks_for_echo(struct ib *ib, const struct ib_packet *packet,
                      const struct read_entry *entry);
/* @entry, a read, is requested again from byte @from on. */
void ib_burst_again(const struct engine *engine, struct ib *ib, const struct read_entry *entry,
                    uint32_t from);
/* The credits that @code of an AETH stands for (IBTA table 44), and the code for at most @count. */
uint32_t ib_credits(uint8_t code);
uint8_t ib_credit_code(uint32_t count);

/* --- ib/congestion.c --- */
/* Sign a CNP for the peer to prove that we have seen its packets; and does a received one prove
 * that the peer has seen ours? One that does not, from another implementation or from anybody,
 * changes little (docs/adr/0010). */
void ib_cnp_sign(const struct ib *ib, struct ib_cnp *cnp);
bool ib_cnp_proved(const struct ib *ib, const struct ib_cnp *cnp);

/* The limit that ib_tx_must_wait() applies: the number of packets that the other end can keep out
 * of order counts too. */
static inline uint32_t ib_limit(const struct ib *ib)
{
	uint32_t window = window_packets(&ib->window);
	return ib->stripe != NULL && ib->stripe->count < window ? ib->stripe->count : window;
}

/* --- ib.c --- */
extern const struct transport ib_transport;
bool ib_answer_may_wait(const struct engine *engine, struct qp *qp);
enum settled ib_settle(struct engine *engine, struct qp *qp);
void ib_leaving(struct engine *engine, struct qp *qp, enum hdl_qp_state state);
/* The entries of struct transport for everything that has a struct ib: connections, and the
 * contexts of reliable datagrams (rd.c). They differ in what they run. */
#define IB_TRANSPORT_ENTRIES                                                          \
	.posted = ib_take_along, .may_wait = ib_answer_may_wait, .answer = ib_settle, \
	.timeout = ib_timeout, .begin_responder = ib_begin_responder,                 \
	.begin_requester = ib_begin_requester, .leaving = ib_leaving

#endif
