/* `heddle perf`: measures data transfer between two processes. The client decides what to measure
 * and takes the time; the server prepares its end and answers. They find each other and coordinate
 * through messages of the node agent (hdl_cm_send()), which are no part of what is measured. */
#ifndef CLI_PERF_H
#define CLI_PERF_H

#include <heddle/heddle.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"

#define PERF_SPACE     0x6870u /* the port space: "hp" */
#define PERF_PORT      18515u  /* where a server listens by default */
#define PERF_MAX_SIZE  (64u << 20)
#define PERF_MAX_DEPTH 1024u
#define PERF_INLINE    64u /* messages up to this length are posted inline */
#define PERF_GRH       40u /* bytes in front of a datagram */
#define PERF_SLOTS     8u  /* buffers that a bandwidth measurement cycles through */

#define PERF_MAX_SIZES 27u
#define PERF_WAIT_S    10 /* how long to wait for a message from the other side */
/* Empty polls after which the other side may need our processor. */
#define PERF_IDLE 1024u

enum perf_op { PERF_SEND, PERF_WRITE, PERF_READ, PERF_ATOMIC, PERF_OPS };
/* Latency and bandwidth of every operation with every size; atomics have one size. */
#define PERF_MAX_ROWS (2u * ((PERF_OPS - 1u) * PERF_MAX_SIZES + 1u))
enum perf_mode { PERF_LATENCY, PERF_BANDWIDTH };

/* One measurement, as the client sends it to the server. */
struct perf_plan {
	uint32_t op, mode;
	uint32_t type; /* enum hdl_qp_type */
	uint32_t depth;
	uint32_t sleeps; /* wait for completions in the operating system */
	uint32_t mapped; /* use memory that the other side can map */
	uint64_t size_bytes, count, warm_up;
};

/* A message between the two sides. */
enum perf_kind { PERF_PLAN, PERF_READY, PERF_GO, PERF_DONE, PERF_RESULT, PERF_FAILED };
struct perf_msg {
	uint32_t kind;
	uint32_t qpn;
	struct hdl_gid gid;
	uint64_t addr;
	struct hdl_key key;
	uint32_t good; /* RESULT: the data arrived as it was sent */
	struct perf_plan plan;
	char why[128]; /* FAILED */
};

/* Messages that have arrived. Filled by the adapter's thread. */
#define PERF_MAIL 8u
struct perf_mailbox {
	pthread_mutex_t lock;
	pthread_cond_t news;
	struct perf_msg list[PERF_MAIL];
	uint32_t head, tail;
	_Atomic uint32_t waiting; /* tail - head, to check without the lock */
	uint64_t guid;            /* the other process, once it is known */
	uint32_t slot;
	bool gone; /* it has ended, or never existed */
	int error;
};

struct perf_side {
	struct hdl_adapter *adapter;
	struct hdl_gid gid;
	struct perf_mailbox mail;
	struct hdl_gid server; /* where the client finds the server */
	uint16_t server_port;
	/* For the current measurement: */
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
	unsigned idle;    /* consecutive empty polls */
	char failed[160]; /* the first thing that went wrong; empty: nothing */
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
	uint32_t size_count; /* 0: the default sizes */
	uint32_t type, depth;
	uint64_t iterations; /* 0: choose */
	bool sleeps, mapped, json, server, is_client;
	const char *client; /* the server's node; NULL: start a server */
	const char *node;   /* our own node */
	uint16_t port;
};

/* --- perf_side.c: an end of the measurement --- */
/* These return false on failure, with the reason in side->failed. */
bool side_open(struct perf_side *side, const char *node);
void side_close(struct perf_side *side);
/* Create the queues and the memory for @plan. Call side_end() even if it fails. */
bool side_begin(struct perf_side *side, const struct perf_plan *plan);
/* Connect to the queue pair of side->peer. */
bool side_connect(struct perf_side *side);
void side_end(struct perf_side *side);
bool side_fail(struct perf_side *side, const char *what, int error);
/* Post request number side->posted. */
bool side_post(struct perf_side *side);
/* Poll for completions and post receives again. */
bool side_poll(struct perf_side *side);
/* The same, but wait for something if the plan says so. */
bool side_wait(struct perf_side *side);
/* The memory of slot @n. In a ping-pong of writes, data arrives in slot 1. */
uint8_t *side_slot(const struct perf_side *side, uint64_t n);
const char *perf_op_name(uint32_t op);

/* --- perf_talk.c: messages about the measurement --- */
bool talk_start(struct perf_side *side);
/* Is the other side known by now? Has it ended, or did it never exist? */
bool talk_knows(struct perf_side *side);
bool talk_ended(struct perf_side *side);
/* Send to the other process, or, for the first message, to the port at @gid. */
bool talk_send(struct perf_side *side, struct perf_msg *msg);
bool talk_send_to(struct perf_side *side, struct perf_msg *msg, const struct hdl_gid *gid,
                  uint16_t port);
/* The next message, which must be of @kind. Waits up to @seconds (0: for ever). */
bool talk_receive(struct perf_side *side, uint32_t kind, struct perf_msg *msg, unsigned seconds);
static inline bool talk_waiting(struct perf_side *side)
{
	return atomic_load_explicit(&side->mail.waiting, memory_order_relaxed) != 0;
}

/* --- perf_server.c --- */
/* Serve one client after the other; with @once, only one. Writes the port to @port_fd unless that
 * is -1. Returns an exit status. */
int perf_serve(const struct perf_options *options, bool once, int port_fd);

/* --- perf_client.c --- */
/* Measure @plan; the result goes to @row. False: side->failed says why. */
bool perf_measure(struct perf_side *side, const struct perf_plan *plan, struct perf_row *row,
                  bool progress);

/* --- perf_floor.c: what the machine can do at best --- */
struct perf_floor {
	int pid; /* the helper */
	void *shared;
};
bool floor_open(struct perf_floor *floor);
void floor_close(struct perf_floor *floor);
/* The time for a cache line to get from one process to the other, in nanoseconds. */
double floor_cache_line(struct perf_floor *floor);
/* The time of a process_vm_writev() of @bytes to the other process, in nanoseconds; 0 if it is not
 * allowed. */
double floor_process_vm(struct perf_floor *floor, size_t bytes);
double floor_memcpy(size_t bytes);

/* --- perf_report.c --- */
/* What is about to be measured. It may take long. */
void perf_report_begin(const struct perf_options *options);
void perf_report_text(const struct perf_options *options, const struct perf_row *rows, size_t count,
                      double cache_line_ns);
bool perf_report_json(const struct perf_options *options, const struct perf_row *rows, size_t count,
                      double cache_line_ns);

uint64_t perf_now_ns(void);

#endif
