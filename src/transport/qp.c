/* What peers may know of a queue pair. */
#include "transport/qp.h"

#define FACTS_SPINS 1000

void qp_publish(struct qp_public *pub, const struct qp_facts *facts)
{
	uint64_t old = atomic_load_explicit(&pub->words[0], memory_order_relaxed);
	uint64_t version = (old >> 48) + 1;
	/* First a state in which no peer uses the queue pair, then the other words, then the real
	 * state. */
	atomic_store_explicit(&pub->words[0], version << 48, memory_order_seq_cst);
	atomic_store_explicit(&pub->words[1],
	                      (uint64_t)facts->windows_only << 63 |
	                              (uint64_t)(facts->link & 0x7fffffffu) << 32 | facts->pd,
	                      memory_order_release);
	atomic_store_explicit(&pub->words[2], (uint64_t)facts->on_wire << 32 | facts->rq_psn,
	                      memory_order_release);
	uint64_t word = (version + 1) << 48 | (uint64_t)facts->dest_qpn << 24 |
	                (uint64_t)facts->type << 16 | (uint64_t)facts->state << 8 | facts->access;
	atomic_store_explicit(&pub->words[0], word, memory_order_seq_cst);
}

void qp_publish_fault(struct qp_public *pub, struct qp_fault fault)
{
	uint64_t word = (uint64_t)fault.event_detail << 24 | (uint64_t)fault.event << 16 |
	                (uint64_t)fault.detail << 8 | fault.status;
	atomic_store_explicit(&pub->fault, word, memory_order_relaxed);
}

struct qp_fault qp_read_fault(const struct qp_public *pub)
{
	uint64_t word = atomic_load_explicit(&pub->fault, memory_order_relaxed);
	return (struct qp_fault){.status = (uint8_t)word,
	                         .detail = (uint8_t)(word >> 8),
	                         .event = (uint8_t)(word >> 16),
	                         .event_detail = (uint8_t)(word >> 24)};
}

bool qp_read_facts(const struct qp_public *pub, struct qp_facts *facts)
{
	for (int i = 0; i < FACTS_SPINS; i++) {
		uint64_t first = atomic_load_explicit(&pub->words[0], memory_order_acquire);
		uint64_t second = atomic_load_explicit(&pub->words[1], memory_order_acquire);
		uint64_t third = atomic_load_explicit(&pub->words[2], memory_order_acquire);
		if (atomic_load_explicit(&pub->words[0], memory_order_acquire) != first)
			continue;
		*facts = (struct qp_facts){.access = (uint8_t)first,
		                           .state = (uint8_t)(first >> 8),
		                           .type = (uint8_t)(first >> 16),
		                           .dest_qpn = (uint32_t)(first >> 24) & 0xffffffu,
		                           .pd = (uint32_t)second,
		                           .link = (uint32_t)(second >> 32) & 0x7fffffffu,
		                           .windows_only = second >> 63 != 0,
		                           .on_wire = (third >> 32 & 1) != 0,
		                           .rq_psn = (uint32_t)third,
		                           .word = first};
		return true;
	}
	return false;
}
