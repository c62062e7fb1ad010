/* The incoming aperture table (APERTURE figure 11): which packets may touch our memory.
 *
 *   row (22 bits of a packet's index), struct hdl_aperture_fixed: the application can only read it
 *     valid, type, size, checks     set when the aperture is opened
 *     sequence number               new for each connection; it counts accepted packets
 *     source address and mask       network address of the only hosts that may use it
 *     source link address
 *     key ------------------------> entry of the protection table (tpt.h, TPT_APERTURE): base and
 *                                   extent, narrowed or not
 *   beside it, struct hdl_aperture_user: the application may write it
 *     nonce                         new for each connection
 *   of the connection
 *     roll                          what numbers have added to the nonce (nonce.h)
 *
 * Both structures, and who stores what, are in heddle/control.h. Own addresses are those of the
 * adapter, not of a row. incoming_judge() makes the checks of APERTURE column 18, each of which a
 * row may leave out. First comes who sends: a packet with a wrong nonce or source gets no answer,
 * so its number must not matter. */
#ifndef MEMORY_INCOMING_H
#define MEMORY_INCOMING_H

#include <stdbool.h>
#include <stdint.h>

#include <heddle/control.h>

#include "memory/nonce.h"
#include "memory/tpt.h"

#define INCOMING_LINK_BYTES 6u

enum incoming_verdict {
	INCOMING_OK,
	INCOMING_NO_ENTRY,  /* no such row, or nobody has it */
	INCOMING_NOT_VALID, /* it is not connected */
	INCOMING_NONCE,
	INCOMING_LINK,
	INCOMING_SOURCE,
	INCOMING_DUPLICATE,  /* of a packet that was accepted: harmless */
	INCOMING_GAP,        /* an earlier packet is missing */
	INCOMING_UNNUMBERED, /* it has no number, or has one that is not wanted */
	INCOMING_EXTENT,
	INCOMING_ACCESS,
	INCOMING_MEMORY, /* the memory behind it is gone */
	INCOMING_VERDICT_COUNT
};

/* What the carrier knows about the sender of a packet. */
struct incoming_source {
	uint8_t host[16];
	uint8_t link[INCOMING_LINK_BYTES];
	bool has_link;    /* the carrier knows it; otherwise HDL_CHECK_LINK fails */
	uint16_t cluster; /* 0: none is known */
};

struct incoming_request {
	uint64_t nonce;
	uint32_t sequence;
	bool sequenced;
	/* Out of band: no number, and the nonce of the connection; what it may do while there is
	 * none is for the connection to say. */
	bool control;
	struct incoming_source source;
};

/* The nonce that the application may store at any time: one load gives all of it. */
static inline uint64_t incoming_nonce(const struct hdl_aperture_user *user)
{
	return __atomic_load_n(&user->nonce, __ATOMIC_RELAXED);
}
/* Show the application the numbers that are in use from now on. */
static inline void incoming_show(struct hdl_aperture_user *user, uint64_t nonce, uint32_t sequence)
{
	__atomic_store_n(&user->sequence, sequence, __ATOMIC_RELAXED);
	__atomic_store_n(&user->nonce, nonce, __ATOMIC_RELAXED);
}

/* Everything but the extent. @row may be NULL. Pure, except that @user may change meanwhile: its
 * nonce is loaded once. */
enum incoming_verdict incoming_judge(const struct hdl_aperture_fixed *row,
                                     const struct hdl_aperture_user *user, const struct nonce *roll,
                                     const struct incoming_request *req);
/* A packet with a number was accepted. */
void incoming_accept(struct hdl_aperture_fixed *row, struct nonce *roll);

/* May the packet access @length bytes at @offset? On INCOMING_OK *grant says where, and *length how
 * many of them: with HDL_CHECK_EXTENT all, else up to the end of the aperture, at which offsets
 * wrap. The caller is inside a guard of the table's owner, or the owner. */
enum incoming_verdict incoming_extent(const struct tpt_view *view,
                                      const struct hdl_aperture_fixed *row, uint32_t pd,
                                      uint8_t access, uint64_t offset, uint64_t *length,
                                      struct tpt_grant *grant);

/* Does @host match @source under @mask? */
bool incoming_matches(const uint8_t host[16], const uint8_t source[16], const uint8_t mask[16]);

#endif
