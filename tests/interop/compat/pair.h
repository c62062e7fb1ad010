/* Two queue pairs in one process, through libibverbs as any program uses it: compiled against the
 * stock headers, linked with the stock library, run on ours. */
#ifndef TESTS_COMPAT_PAIR_H
#define TESTS_COMPAT_PAIR_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <infiniband/verbs.h>

#define PAIR_BYTES 65536
#define PAIR_DEPTH 64
#define PAIR_QKEY  0x1234u

/* A call that returns a pointer fails, and says so. */
#define FAILS(call, error)                      \
	do {                                    \
		errno = 0;                      \
		assert_null(call);              \
		assert_int_equal(errno, error); \
	} while (0)

/* Calls that return a number of errno set errno, too. */
#define REFUSED(call, error)                    \
	do {                                    \
		errno = 0;                      \
		assert_int_equal(call, error);  \
		assert_int_equal(errno, error); \
	} while (0)

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *bytes;
	union ibv_gid gid;
};

struct pair {
	struct side a, b;
};

/* How to make the queue pairs. Zeroes: RC, struct ibv_qp and struct ibv_cq. */
struct pair_how {
	enum ibv_qp_type type;
	uint64_t send_ops; /* not 0: struct ibv_qp_ex with these operations */
	bool cq_ex;
	struct ibv_srq *(*srq)(struct ibv_pd *pd); /* for side b */
};

/* Both sides ready to send, connected to each other. Each has a context of its own. */
struct pair *pair_open(const struct pair_how *how);
void pair_close(struct pair *pair);

/* Take @side's queue pair through INIT and RTR to RTS towards @peer. */
void pair_connect(struct side *side, const struct side *peer);
void pair_reset(struct side *side);

struct ibv_sge pair_sge(const struct side *side, size_t offset, size_t length);
void pair_recv(struct side *side, uint64_t wr_id, size_t offset, size_t length);
void pair_send(struct side *side, struct ibv_send_wr *wr);
/* Wait for one completion. Fails the test after 20 seconds. */
struct ibv_wc pair_wait(struct side *side);
/* The same, which must be a success. */
struct ibv_wc pair_done(struct side *side);

#endif
