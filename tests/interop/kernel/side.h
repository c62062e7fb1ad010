/* One side of a connection between two machines, in the words of libibverbs alone: the same program
 * runs on the kernel's driver and on Heddle. The sides meet over TCP, which also tells each when
 * the other is ready. Whatever goes wrong ends the program. */
#ifndef TESTS_INTEROP_KERNEL_SIDE_H
#define TESTS_INTEROP_KERNEL_SIDE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIDE_DEPTH 128
#define SIDE_QKEY  0x72720000u

/* What a side tells the other. Both machines have the same byte order: they share a processor. */
struct side_facts {
	union ibv_gid gid;
	uint64_t address; /* of the memory that the other may use */
	uint32_t rkey;
	uint32_t qpn, psn;
	uint32_t mtu; /* enum ibv_mtu */
};

struct side {
	const char *device; /* NULL: the first */
	const char *host;   /* NULL: this is the one that listens */
	const char *port;
	const char *by_cm; /* connect through rdma_cm, at this address of the one that listens */
	int gid_index;
	enum ibv_qp_type type;
	unsigned mtu_bytes;
	size_t bytes;    /* of memory */
	uint8_t timeout; /* as in struct ibv_qp_attr */
	bool gives_up;   /* when nobody answers; of the next connection */
	/* rdma_cm: with every message so many bytes of private data, instead of a short text. */
	size_t private_bytes;

	int talk; /* TCP */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah; /* datagrams: the other side */
	struct ibv_mr *mr;
	uint8_t *memory;
	struct side_facts mine, other;
};

_Noreturn void side_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Open the device, register memory, meet the other side and connect. */
void side_open(struct side *side);
/* Another queue pair on each side, connected to each other: the last ones were put out of use by an
 * error. */
void side_again(struct side *side);
void side_close(struct side *side);
/* side_cm.c: the same through rdma_cm. */
void side_cm_open(struct side *side);
void side_cm_connect(struct side *side);
void side_cm_part(struct side *side);
void side_cm_close(void);
/* The connection ends, without this side's doing. */
void side_cm_ended(void);
/* This side has another path to the other one from now on; the second time, it takes it. */
void side_prepare_path(struct side *side);
void side_change_path(struct side *side);

/* Exchange @bytes with the other side; a barrier, too. */
void side_swap(struct side *side, const void *mine, void *other, size_t bytes);
void side_meet(struct side *side);

/* Wait for the next completion, asleep. */
struct ibv_wc side_wait(struct side *side);
/* The same, which must be a success of @wr_id. */
struct ibv_wc side_done(struct side *side, uint64_t wr_id);
void side_send(struct side *side, struct ibv_send_wr *wr);
void side_recv(struct side *side, uint64_t wr_id, struct ibv_sge *list, int count);

#endif
