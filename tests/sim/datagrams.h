/* The world of the 'datagrams' scenario, and what its checker (datagrams_check.c) remembers. */
#ifndef SIM_DATAGRAMS_H
#define SIM_DATAGRAMS_H

#include "scenario.h"

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "base/prng.h"
#include "cable/cable.h"

#define DG_HOSTS      4u
#define DG_QPS        3u
#define DG_REQUESTS   300u
#define DG_RECVS      8u
#define DG_RECV_BYTES 1024u
#define DG_BYTES      1500u /* of the longest message */
#define DG_PACKETS    4096u
#define DG_RAWS       60u /* raw datagrams */
#define DG_QKEY       0x4711u
#define DG_RECV_ID    (1ull << 32) /* of receives, in wr_id */

enum dg_kind {
	DG_SEND,
	DG_SEND_LONG, /* longer than any receive */
	DG_SEND_WRONG_KEY,
	DG_SEND_NOBODY, /* to a queue pair that is not there */
	DG_LAST_SEND = DG_SEND_NOBODY,
	DG_WRITE,
	DG_WRITE_NO_RIGHT,
	DG_READ,
	DG_ADD
};

/* Memory of a host: one region. By request, where it is not shared. */
struct dg_memory {
	uint64_t counter;
	uint8_t pattern[DG_BYTES];
	uint8_t recv[DG_QPS][DG_RECVS][DG_RECV_BYTES];
	uint8_t data[DG_REQUESTS][DG_BYTES + 4];
	uint8_t written[DG_REQUESTS][DG_BYTES];
	uint8_t raw_send[DG_RAWS][DG_RECV_BYTES];
	uint8_t raw_recv[DG_RAWS][DG_RECV_BYTES];
};

struct dg;
struct dg_host;

struct dg_recv {
	bool posted;
};

struct dg_qp {
	struct dg_host *host;
	uint32_t index;
	struct hdl_qp *qp;
	struct dg_recv recvs[DG_RECVS];
	uint32_t disturbed;        /* how often it was ended and begun anew */
	uint32_t posted[DG_HOSTS]; /* messages, by the host that they go to */
	/* What came to it: the last of each queue pair of each host. */
	uint32_t last[DG_HOSTS][DG_QPS];
};

struct dg_request {
	struct dg_qp *qp, *to;
	uint8_t kind; /* enum dg_kind */
	uint32_t length;
	uint32_t order;     /* of those of its queue pair through its context */
	uint32_t disturbed; /* qp->disturbed as it was posted */
	bool done;
	uint32_t status;
	uint32_t delivered;
};

struct dg_raw {
	struct dg_host *from, *to;
	uint32_t bytes, came;
	bool wanted; /* somebody is registered for it */
};

struct dg_context {
	struct hdl_eec *eec;
	bool failed;    /* a completion said so */
	uint32_t high;  /* PSN behind the highest that was sent */
	bool in_flight; /* nothing has acknowledged it yet */
};

struct dg_host {
	struct dg *world;
	uint32_t index;
	bool dead;
	struct cable cable;
	struct hdl_gid gid;
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_rdd *rdd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct dg_memory *mem;
	struct dg_qp qps[DG_QPS];
	struct dg_context eecs[DG_HOSTS];
	struct hdl_qp *raw;
	bool raw_posted[DG_RAWS];
	uint32_t added, maybe_added; /* to counter, as far as its peers know */
	bool seen[DG_REQUESTS];      /* values of counter that were returned */
};

struct dg {
	struct scenario_run *run;
	struct sim *sim;
	struct prng prng;
	uint32_t host_count, qp_count;
	bool faultless, loses, errors;
	bool damages; /* the network does, some packets */
	bool over;    /* what is sent from now on goes nowhere */
	uint8_t rnr_retry;
	uint32_t receive_permille, disturb_permille, busy_permille;
	uint32_t disturbances;
	struct dg_host hosts[DG_HOSTS];
	struct dg_request requests[DG_REQUESTS];
	uint32_t request_count, request_limit, answered;
	struct dg_raw raws[DG_RAWS];
	uint32_t raw_count;
};

uint32_t dg_draw(struct dg *w, uint32_t bound);
/* Byte @at of the message @id. */
uint8_t dg_byte(uint32_t id, uint32_t at);
void dg_ready_qp(struct dg *w, struct dg_qp *qp);

/* Take and judge completions. */
void dg_poll(struct dg *w, struct dg_host *host);
/* A packet is sent by @host, or came to it. */
void dg_check_sent(struct dg *w, struct dg_host *host, const uint8_t *payload, size_t bytes);
void dg_check_came(struct dg *w, struct dg_host *host, const struct path *came,
                   const uint8_t *payload, size_t bytes);
/* @host has died: nobody waits for its completions. */
void dg_bury(struct dg *w, struct dg_host *host);
void dg_check_end(struct dg *w);

/* Raw datagrams (datagrams_raw.c). */
void dg_raw_make(struct dg *w, struct dg_host *host);
void dg_raw_receive(struct dg *w, struct dg_host *host);
void dg_raw_send(struct dg *w, struct dg_host *host);
/* A packet came: was it a raw one? */
bool dg_raw_arrive(struct dg *w, struct dg_host *host, const uint8_t *data, size_t bytes);
void dg_raw_completion(struct dg *w, struct dg_host *host, const struct hdl_wc *wc);
void dg_raw_check_end(struct dg *w);

#endif
