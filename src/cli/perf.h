/* `heddle perf`: what goes between two processes, and how fast. The client decides what is measured
 * and takes the time; the server prepares what it is told to and answers. They find each other and
 * talk about it through messages of the node agent (hdl_cm_send()), which have nothing to do with
 * what is measured. */
#ifndef CLI_PERF_H
#define CLI_PERF_H

#include <heddle/heddle.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"

#define PERF_SPACE      0x6870u /* of ports: "hp" */
#define PERF_PORT       18515u  /* where a server waits unless it is told otherwise */
#define PERF_MAX_SIZE   (64u << 20)
#define PERF_MAX_DEPTH  1024u
#define PERF_INLINE     64u /* messages up to this length are posted inline */
#define PERF_GRH        40u /* bytes before a datagram */
#define PERF_SLOTS      8u  /* buffers that the requests of a bandwidth measurement go round */
#define PERF_MAX_ROWS   128u
#define PERF_MAX_SIZES  27u
#define PERF_PATIENCE_S 10 /* for the other side to say something */
#define PERF_IDLE \
	1024u /* looks in vain after which the one that is waited for may need our processor */

enum perf_op { PERF_SEND, PERF_WRITE, PERF_READ, PERF_ATOMIC, PERF_OPS };
enum perf_mode { PERF_LATENCY, PERF_BANDWIDTH };

/* One measurement. */
struct perf_plan {
	uint32_t op, mode;
	uint32_t type; /* enum hdl_qp_type */
	uint32_t depth;
	uint32_t sleeps; /* completions are waited for in the operating system */
	uint32_t mapped; /* the memory is such that the other side can map it */
	uint64_t size_bytes, count, warm_up;
};

/* What the one tells the other. */
enum perf_kind { PERF_PLAN, PERF_READY, PERF_GO, PERF_DONE, PERF_RESULT, PERF_FAILED };
struct perf_msg {
	uint32_t kind;
	uint32_t qpn;
	struct hdl_gid gid;
	uint64_t addr;
	struct hdl_key key;
	uint32_t good; /* RESULT: what arrived is what was sent */
	struct perf_plan plan;
	char why[128]; /* FAILED */
};

/* Messages that have come. Filled by the adapter's thread. */
#define PERF_MAIL 8u
struct perf_mailbox {
	pthread_mutex_t lock;
	pthread_cond_t news;
	struct perf_msg list[PERF_MAIL];
	uint32_t head, tail;
	_Atomic uint32_t waiting; /* tail - head, for a look without the lock */
	uint64_t guid;            /* the other process, once it is known */
	uint32_t slot;
	bool gone; /* it has ended, or was never there */
	int error;
};

struct perf_side {
	struct hdl_adapter *adapter;
	struct hdl_gid gid;
	struct perf_mailbox mail;
	struct hdl_gid server; /* where the client finds it at first */
	uint16_t server_port;
	/* Of the measurement: */
	struct perf_plan plan;
	struct perf_msg peer;
	struct hdl_pd *pd;
	struct hdl_channel *channel;
	struct hdl_cq *cq;
	struct hdl_qp *qp;
	struct hdl_mr *mr;
	struct hdl_ah *ah;
	uint8_t *memory;
	size_t memory_bytes, slot_bytes, slots;
	uint64_t posted, sent_done, received;
	unsigned idle;    /* polls in a row that found nothing */
	char failed[160]; /* what went wrong first; empty: nothing */
};

/* One line of the result. */
struct perf_row {
	struct perf_plan plan;
	uint64_t min_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns;
	double mean_ns;
	double floor_ns; /* 0: none */
	double bytes_per_s, messages_per_s;
	double memcpy_bytes_per_s, process_vm_bytes_per_s;
};

struct perf_options {
	bool ops[PERF_OPS];
	bool latency, bandwidth;
	uint64_t sizes[PERF_MAX_SIZES];
	uint32_t size_count; /* 0: the usual ones */
	uint32_t type, depth;
	uint64_t iterations; /* 0: as many as it takes */
	bool sleeps, mapped, json, server, is_client;
	const char *client; /* the node of the server, or NULL: we start one */
	const char *node;   /* where we are ourselves */
	uint16_t port;
};

/* --- perf_side.c: an end of the measurement --- */
/* On false, side->failed says why. */
bool side_open(struct perf_side *side, const char *node);
void side_close(struct perf_side *side);
/* Make the queues and the memory for @plan. side_end() is due even when it fails. */
bool side_begin(struct perf_side *side, const struct perf_plan *plan);
/* Connect to the queue pair of side->peer. */
bool side_connect(struct perf_side *side);
void side_end(struct perf_side *side);
bool side_fail(struct perf_side *side, const char *what, int error);
/* Post request number side->posted. */
bool side_post(struct perf_side *side);
/* Take what has completed, post receives again. */
bool side_poll(struct perf_side *side);
/* The same; waits for something when the plan says so. */
bool side_wait(struct perf_side *side);
/* Memory of slot @n; of the answer in a ping-pong of writes the landing place is slot 1. */
uint8_t *side_slot(const struct perf_side *side, uint64_t n);
const char *perf_op_name(uint32_t op);

/* --- perf_talk.c: messages about the measurement --- */
bool talk_start(struct perf_side *side);
/* Is the other side known by now; has it ended, or was it never there? */
bool talk_knows(struct perf_side *side);
bool talk_ended(struct perf_side *side);
/* To the other process, or first of all to the port at @gid. */
bool talk_send(struct perf_side *side, struct perf_msg *msg);
bool talk_send_to(struct perf_side *side, struct perf_msg *msg, const struct hdl_gid *gid,
                  uint16_t port);
/* The next message, which must be of @kind. Waits @seconds at most (0: for ever). */
bool talk_hear(struct perf_side *side, uint32_t kind, struct perf_msg *msg, unsigned seconds);
static inline bool talk_waiting(struct perf_side *side)
{
	return atomic_load_explicit(&side->mail.waiting, memory_order_relaxed) != 0;
}

/* --- perf_server.c --- */
/* Answer one client after the other; with @once, only one. Tells @port on @port_fd unless that is
 * -1. An exit status. */
int perf_serve(const struct perf_options *options, bool once, int port_fd);

/* --- perf_client.c --- */
/* Measure one plan into @row. On false side->failed says why. */
bool perf_measure(struct perf_side *side, const struct perf_plan *plan, struct perf_row *row,
                  bool progress);

/* --- perf_floor.c: what the machine can do at best --- */
struct perf_floor {
	int pid; /* the helper */
	void *shared;
};
bool floor_open(struct perf_floor *floor);
void floor_close(struct perf_floor *floor);
/* A cache line from one process to the other, in nanoseconds. */
double floor_cache_line(struct perf_floor *floor);
/* process_vm_writev() of @bytes to the other process, in nanoseconds; 0 when it is not allowed. */
double floor_process_vm(struct perf_floor *floor, size_t bytes);
double floor_memcpy(size_t bytes);

/* --- perf_report.c --- */
void perf_report_text(const struct perf_options *options, const struct perf_row *rows, size_t count,
                      double cache_line_ns);
bool perf_report_json(const struct perf_options *options, const struct perf_row *rows, size_t count,
                      double cache_line_ns);

uint64_t perf_now_ns(void);

#endif
