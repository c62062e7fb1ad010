/* The control block of an aperture (APERTURE columns 9, 16 and 17): what a trusted application sets
 * by plain stores, without a call, and what it can only read. The nonce and the fields of
 * struct hdl_aperture_fixed down to its link address are those that the adapter checks packets by,
 * not copies of them.
 *
 *   struct hdl_aperture_user, on pages that the application may write
 *
 *      field         who stores                       who loads it, and when
 *      nonce         the application at any time,     the adapter, once for each packet that comes
 *                    the adapter at a set-up          in, and at a set-up
 *      sequence      the same                         the adapter, at a set-up
 *      target        the application                  the adapter, when generation has changed
 *      generation    the application, after target    the adapter, before it sends
 *
 *   struct hdl_aperture_fixed, on pages that the application can only read
 *
 *      all fields    the adapter                      the adapter, for each packet; the application
 *
 * A set-up is hdl_aperture_connect(), hdl_aperture_accept() or hdl_port_offer(). A field is stored
 * and loaded by one instruction (__atomic_store_n(), __atomic_load_n()); between two loads any of
 * them may change. */
#ifndef HEDDLE_CONTROL_H
#define HEDDLE_CONTROL_H

#include <heddle/aperture.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hdl_aperture_user {
	/* Packets to our entry need this nonce, if HDL_CHECK_NONCE is checked. A store counts from
	 * the next packet on: one with the former nonce is refused and counted (bad_nonce). A
	 * connected peer gets no answers from then on, and its connection fails after some seconds,
	 * unless the former nonce is stored again. A nonce that rolls begins with this one. While
	 * it is 0, no packet gets in. */
	uint64_t nonce;
	/* The number of the first packet of the next connection. */
	uint32_t sequence;
	/* Another value than fixed->generation: the outgoing side is to lead to @target. */
	uint32_t generation;
	struct hdl_aperture_target target;
	uint8_t reserved[40];
};

HDL_STATIC_ASSERT(sizeof(struct hdl_aperture_user) == 128, "two cache lines");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_user, nonce) == 0, "the layout is fixed");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_user, sequence) == 8, "the layout is fixed");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_user, generation) == 12, "the layout is fixed");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_user, target) == 16, "the layout is fixed");
HDL_STATIC_ASSERT(sizeof(struct hdl_aperture_target) == 72, "the layout is fixed");

struct hdl_aperture_fixed {
	/* Packets that come in are checked by these. */
	uint32_t index;    /* in-index; 0: the aperture is gone */
	uint8_t type;      /* enum hdl_aperture_type */
	uint8_t bits;      /* of the size; 0: no memory is offered */
	uint8_t checks;    /* enum hdl_aperture_check_bit */
	uint8_t connected; /* HDL_CHECK_VALID */
	uint32_t expected; /* the next number */
	/* Of the entry in the protection table, which has base, extent and rights; of no use to
	 * peers. */
	struct hdl_key key;
	struct hdl_gid source, mask; /* HDL_CHECK_SOURCE */
	uint8_t link[6];             /* HDL_CHECK_LINK */
	/* What the aperture does at the moment. */
	uint8_t state;       /* enum hdl_aperture_state */
	uint8_t access;      /* HDL_ACCESS_REMOTE_READ, _WRITE */
	uint32_t next;       /* the number of the next packet that goes out */
	uint32_t generation; /* the last one of struct hdl_aperture_user that took effect */
	/* What the entry behind @key says, when the aperture is opened and when it is narrowed. */
	uint64_t base;           /* address of the memory; 0: none is offered */
	uint64_t length;         /* of the memory */
	uint64_t first, granted; /* what peers may access of it: from @first on, @granted bytes */
	/* Our own address. No packet carries it: peers see what the carrier says. */
	struct hdl_gid host;
	uint16_t cluster; /* our own cluster address, which CONNECT and ACCEPT say; 0: none */
	uint16_t source_cluster; /* HDL_CHECK_CLUSTER: the sender's, ... */
	uint16_t cluster_mask;   /* ... and which of its bits count */
	uint8_t reserved[10];
};

HDL_STATIC_ASSERT(sizeof(struct hdl_aperture_fixed) == 128, "two cache lines");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_fixed, checks) == 6, "the layout is fixed");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_fixed, expected) == 8, "the layout is fixed");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_fixed, key) == 12, "the layout is fixed");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_fixed, source) == 16, "the layout is fixed");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_fixed, link) == 48, "the layout is fixed");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_fixed, next) == 56, "the layout is fixed");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_fixed, base) == 64, "packets need what is before");
HDL_STATIC_ASSERT(offsetof(struct hdl_aperture_fixed, host) == 96, "the layout is fixed");

/* hdl_aperture_control - the control block of an aperture
 *
 * *user is the part that the application may write, *fixed the part that it can only read: a store
 * there raises SIGSEGV and changes nothing. Either argument may be NULL. An application that is
 * not trusted gets *fixed and no *user.
 *
 * A nonce and a first number that are stored before hdl_aperture_connect(), hdl_aperture_accept()
 * or hdl_port_offer() are what CONNECT or ACCEPT offers. A set-up uses them up: it replaces a
 * number that is 0, or is still that of the previous set-up, with a random one. Afterwards *user
 * shows the numbers in use. Choose a nonce that nobody can guess, and another one each time: a
 * CONNECT with the nonce of an earlier one is rejected as a late copy.
 *
 * A nonce that is stored while packets come in counts from the next packet on, without a call. It
 * does not take back pages that a program of this machine has mapped; hdl_aperture_close() does.
 *
 * To lead the outgoing side elsewhere, store to user->target, then another value to
 * user->generation (__ATOMIC_RELEASE). This is hdl_aperture_point() without the call, except that
 * bytes that wait to be sent to the former peer are dropped: flush first if it needs them. It takes
 * effect before any more data is sent: immediately in hdl_aperture_store(), hdl_aperture_event(),
 * hdl_aperture_read(), hdl_aperture_flush() and hdl_aperture_check(); for a mapped range also
 * without a call, within HDL_APERTURE_LAG_NS as long as the process runs. Then fixed->generation
 * has that value, and user->target may be stored to again. Until then, stores to the mapped range
 * reach the former peer or nobody. If no carrier leads to the target, or the size is not that of
 * the mapping, the aperture leads nowhere and is CLOSED: the port gets HDL_PORT_ERROR,
 * hdl_aperture_check() returns -HDL_EIO, and hdl_aperture_reason() tells why.
 *
 * Where the system has no memory files (memfd_create(2)), nothing keeps stores away from *fixed.
 *
 * Owner: both parts belong to the aperture and are gone after hdl_aperture_free(). A child of
 * fork() has neither.
 * Threads: any. Threads that store to *user must agree among themselves.
 * Blocks: no.
 * Returns: 0; -HDL_EACCES the application is not trusted (*user is NULL, *fixed is set);
 * -HDL_EINVAL. */
HDL_API int hdl_aperture_control(struct hdl_aperture *aperture, struct hdl_aperture_user **user,
                                 const struct hdl_aperture_fixed **fixed);

#ifdef __cplusplus
}
#endif

#endif
