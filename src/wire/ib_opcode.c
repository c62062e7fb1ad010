/* The table of opcodes. RC, UC, RD and XRC use the same numbers for the same operations and differ
 * in the headers that all their requests or responses carry, so the rows are built from those two
 * sets. */
#include "wire/ib_opcode.h"

#include "wire/ib_headers.h"

#define BYTES_OF(set, header) ((set)&IB_HAS_##header ? IB_##header##_BYTES : 0u)
#define BYTES(set)                                                               \
	(BYTES_OF(set, RDETH) + BYTES_OF(set, DETH) + BYTES_OF(set, XRCETH) +    \
	 BYTES_OF(set, RETH) + BYTES_OF(set, ATOMICETH) + BYTES_OF(set, AETH) +  \
	 BYTES_OF(set, ATOMICACK) + BYTES_OF(set, IMMDT) + BYTES_OF(set, IETH) + \
	 BYTES_OF(set, CNP))

#define ROW(t, code, title, op, who, which, set, carries) \
	[IB_##t + (code)] = {.name = #t " " title,        \
	                     .headers = (set),            \
	                     .header_bytes = BYTES(set),  \
	                     .transport = IB_##t,         \
	                     .operation = IB_##op,        \
	                     .role = IB_##who,            \
	                     .part = IB_##which,          \
	                     .payload = (carries)}

/* @h: the headers of every request of the transport. */
#define SENDS_AND_WRITES(t, h)                                                                    \
	ROW(t, IB_OP_SEND_FIRST, "Send First", SEND, REQUEST, FIRST, h, true),                    \
	        ROW(t, IB_OP_SEND_MIDDLE, "Send Middle", SEND, REQUEST, MIDDLE, h, true),         \
	        ROW(t, IB_OP_SEND_LAST, "Send Last", SEND, REQUEST, LAST, h, true),               \
	        ROW(t, IB_OP_SEND_LAST_IMM, "Send Last Immediate", SEND, REQUEST, LAST,           \
	            (h) | IB_HAS_IMMDT, true),                                                    \
	        SEND_ONLIES(t, h),                                                                \
	        ROW(t, IB_OP_WRITE_FIRST, "RDMA Write First", WRITE, REQUEST, FIRST,              \
	            (h) | IB_HAS_RETH, true),                                                     \
	        ROW(t, IB_OP_WRITE_MIDDLE, "RDMA Write Middle", WRITE, REQUEST, MIDDLE, h, true), \
	        ROW(t, IB_OP_WRITE_LAST, "RDMA Write Last", WRITE, REQUEST, LAST, h, true),       \
	        ROW(t, IB_OP_WRITE_LAST_IMM, "RDMA Write Last Immediate", WRITE, REQUEST, LAST,   \
	            (h) | IB_HAS_IMMDT, true),                                                    \
	        ROW(t, IB_OP_WRITE_ONLY, "RDMA Write Only", WRITE, REQUEST, ONLY,                 \
	            (h) | IB_HAS_RETH, true),                                                     \
	        ROW(t, IB_OP_WRITE_ONLY_IMM, "RDMA Write Only Immediate", WRITE, REQUEST, ONLY,   \
	            (h) | IB_HAS_RETH | IB_HAS_IMMDT, true)

#define SEND_ONLIES(t, h)                                                               \
	ROW(t, IB_OP_SEND_ONLY, "Send Only", SEND, REQUEST, ONLY, h, true),             \
	        ROW(t, IB_OP_SEND_ONLY_IMM, "Send Only Immediate", SEND, REQUEST, ONLY, \
	            (h) | IB_HAS_IMMDT, true)

/* @h as above; @r: the headers of every response. */
#define READS_AND_ATOMICS(t, h, r)                                                               \
	ROW(t, IB_OP_READ_REQUEST, "RDMA Read Request", READ_REQUEST, REQUEST, ONLY,             \
	    (h) | IB_HAS_RETH, false),                                                           \
	        ROW(t, IB_OP_READ_RESPONSE_FIRST, "RDMA Read Response First", READ_RESPONSE,     \
	            RESPONSE, FIRST, (r) | IB_HAS_AETH, true),                                   \
	        ROW(t, IB_OP_READ_RESPONSE_MIDDLE, "RDMA Read Response Middle", READ_RESPONSE,   \
	            RESPONSE, MIDDLE, r, true),                                                  \
	        ROW(t, IB_OP_READ_RESPONSE_LAST, "RDMA Read Response Last", READ_RESPONSE,       \
	            RESPONSE, LAST, (r) | IB_HAS_AETH, true),                                    \
	        ROW(t, IB_OP_READ_RESPONSE_ONLY, "RDMA Read Response Only", READ_RESPONSE,       \
	            RESPONSE, ONLY, (r) | IB_HAS_AETH, true),                                    \
	        ROW(t, IB_OP_ACK, "Acknowledge", ACK, RESPONSE, ONLY, (r) | IB_HAS_AETH, false), \
	        ROW(t, IB_OP_ATOMIC_ACK, "Atomic Acknowledge", ATOMIC_ACK, RESPONSE, ONLY,       \
	            (r) | IB_HAS_AETH | IB_HAS_ATOMICACK, false),                                \
	        ROW(t, IB_OP_COMPARE_SWAP, "Compare and Swap", COMPARE_SWAP, REQUEST, ONLY,      \
	            (h) | IB_HAS_ATOMICETH, false),                                              \
	        ROW(t, IB_OP_FETCH_ADD, "Fetch and Add", FETCH_ADD, REQUEST, ONLY,               \
	            (h) | IB_HAS_ATOMICETH, false)

#define SENDS_WITH_INVALIDATE(t, h)                                                      \
	ROW(t, IB_OP_SEND_LAST_INV, "Send Last Invalidate", SEND, REQUEST, LAST,         \
	    (h) | IB_HAS_IETH, true),                                                    \
	        ROW(t, IB_OP_SEND_ONLY_INV, "Send Only Invalidate", SEND, REQUEST, ONLY, \
	            (h) | IB_HAS_IETH, true)

#define RD_REQUEST (IB_HAS_RDETH | IB_HAS_DETH)

static const struct ib_opcode rows[256] = {
        SENDS_AND_WRITES(RC, 0u),
        READS_AND_ATOMICS(RC, 0u, 0u),
        SENDS_WITH_INVALIDATE(RC, 0u),

        SENDS_AND_WRITES(UC, 0u),

        SENDS_AND_WRITES(RD, RD_REQUEST),
        READS_AND_ATOMICS(RD, RD_REQUEST, IB_HAS_RDETH),
        ROW(RD, IB_OP_RESYNC, "Resync", RESYNC, REQUEST, ONLY, RD_REQUEST, false),

        SEND_ONLIES(UD, IB_HAS_DETH),

        ROW(CONGESTION, IB_OPCODE_CNP - IB_CONGESTION, "Notification", CNP, NOTICE, ONLY,
            IB_HAS_CNP, false),

        SENDS_AND_WRITES(XRC, IB_HAS_XRCETH),
        READS_AND_ATOMICS(XRC, IB_HAS_XRCETH, 0u),
        SENDS_WITH_INVALIDATE(XRC, IB_HAS_XRCETH),
};

_Static_assert(IB_BTH_BYTES + BYTES(RD_REQUEST | IB_HAS_ATOMICETH) <= IB_MAX_HEADER_BYTES,
               "the longest row fits");

const struct ib_opcode *ib_opcode(uint8_t opcode)
{
	return rows[opcode].name ? &rows[opcode] : NULL;
}

bool ib_payload_fits(const struct ib_opcode *op, size_t payload_bytes, size_t mtu_bytes)
{
	if (!op->payload)
		return payload_bytes == 0;
	switch ((enum ib_part)op->part) {
	case IB_FIRST:
	case IB_MIDDLE:
		return payload_bytes == mtu_bytes;
	case IB_LAST:
		return payload_bytes > 0 && payload_bytes <= mtu_bytes;
	case IB_ONLY:
		return payload_bytes <= mtu_bytes;
	}
	return false;
}
