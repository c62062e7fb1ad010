/* The split driver on queue pairs (SPLIT section IV): connections between hosts and I/O units that
 * carry frames. A port belongs to an adapter; it listens as a unit, or connects as a host, or both.
 * Each connection is two queue pairs, control and data, with the messaging layer of src/split on
 * them. Frames are pushed into memory that the other end has offered.
 *
 * A port and its connections are used by one thread at a time. Nothing blocks: the caller waits for
 * the descriptors of the port (hdl_epoll_wait() drives the adapter meanwhile) and calls
 * hdl_push_run(), which calls back. */
#ifndef ULP_PUSH_H
#define ULP_PUSH_H

#include <heddle/heddle.h>

#include "wire/push_cfg.h"

#define HDL_PUSH_MAX_LINKS   64u /* connections of one port: hosts of a unit */
#define HDL_PUSH_NAME_BYTES  32u
#define HDL_PUSH_SPACE       0x01feu /* IP services (IBTA A11), protocol 254 of RFC 3692 */
#define HDL_PUSH_SERVICE     4u      /* the usual one */
#define HDL_PUSH_FDS         2u
#define HDL_PUSH_CONNECT_NS  3000000000ull /* how long a connection may take to be made */
#define HDL_PUSH_REPEAT_NS   250000000ull  /* between its messages, on a network */
#define HDL_PUSH_MAX_RECEIVE 2048u         /* elements of all pools of one end */

struct hdl_push_port;
struct hdl_push;

enum hdl_push_mode { HDL_PUSH_RDMA, HDL_PUSH_SEND };
enum hdl_push_model { HDL_PUSH_PUSH_PUSH, HDL_PUSH_PUSH_PULL, HDL_PUSH_PULL_PULL };

/* What both ends agree on: the host proposes, the unit may lower frame_bytes and header_bytes. */
struct hdl_push_terms {
	uint8_t mode, model;
	bool host_owns, unit_owns; /* pools for the frames that this end receives */
	bool by_message;           /* indicate by BufferRDMAIndicate only */
	uint16_t header_bytes;     /* of the offload header before each frame, */
	uint32_t frame_bytes;      /* and the longest frame with it */
};

struct hdl_push_ops {
	/* A host wants to connect: NULL accepts, a sentence refuses. */
	const char *(*accept)(void *context, const char *name, struct hdl_push_terms *terms);
	/* The connection carries frames from now on. */
	void (*opened)(void *context, struct hdl_push *push);
	/* It has ended, or could not be made; @push is freed when the call returns. */
	void (*closed)(void *context, struct hdl_push *push, const char *why);
	/* As in struct split_user. */
	bool (*deliver)(void *context, struct hdl_push *push, const uint8_t *frame, uint32_t bytes);
	void (*configure)(void *context, struct hdl_push *push, const struct push_cfg *request,
	                  struct push_cfg *reply);
	void (*configured)(void *context, struct hdl_push *push, uint64_t token,
	                   const struct push_cfg *reply);
};

/* Open a port on @adapter, which is on a node. @service: listen under this number; 0: do not. *fds
 * gets the descriptors to wait for. Returns 0; -HDL_EADDRINUSE; -HDL_ENOMEM; -HDL_EIO; errors of
 * hdl_cm_receive() and hdl_cm_bind(). */
int hdl_push_open(struct hdl_adapter *adapter, uint16_t service, const struct hdl_push_ops *ops,
                  void *context, int fds[HDL_PUSH_FDS], struct hdl_push_port **out);
/* End all connections, without telling ops->closed. Messages may still arrive: call
 * hdl_push_free() when the adapter has been closed. */
void hdl_push_shut(struct hdl_push_port *port);
void hdl_push_free(struct hdl_push_port *port);

/* Begin a connection to the unit that listens at @gid. ops->opened or ops->closed follows. @name is
 * what the unit shows. Returns 0; -HDL_ENOMEM; -HDL_EINVAL the terms are not possible. */
int hdl_push_connect(struct hdl_push_port *port, const struct hdl_gid *gid, uint16_t service,
                     const char *name, const struct hdl_push_terms *terms, struct hdl_push **out);

/* Do what there is to do, and call back. Returns the number of things done. Wait for the
 * descriptors only after it has returned 0: not before is the caller woken by what arrives. */
int hdl_push_run(struct hdl_push_port *port);
/* When to call hdl_push_run() even if no descriptor is ready, on the clock of clock_now_ns();
 * UINT64_MAX: never. */
uint64_t hdl_push_deadline(const struct hdl_push_port *port);

/* Where to put the next frame; NULL: leave it where it is. hdl_push_send() or hdl_push_untake()
 * must follow. */
uint8_t *hdl_push_take(struct hdl_push *push);
void hdl_push_untake(struct hdl_push *push);
void hdl_push_send(struct hdl_push *push, uint32_t bytes);
/* The receiver of frames has room again. */
void hdl_push_deliver(struct hdl_push *push);
/* Ask the other end; ops->configured follows. False: too many requests wait. */
bool hdl_push_configure(struct hdl_push *push, const struct push_cfg *request, uint64_t token);
/* Flush the pools, then end. ops->closed follows. */
void hdl_push_close(struct hdl_push *push);
/* The same for all connections. Returns how many are left. */
uint32_t hdl_push_close_all(struct hdl_push_port *port);
/* End now, with a reason for ops->closed, which follows in hdl_push_run(). */
void hdl_push_break(struct hdl_push *push, const char *why);

const struct hdl_push_terms *hdl_push_agreed(const struct hdl_push *push);
const char *hdl_push_name(const struct hdl_push *push);
bool hdl_push_is_unit(const struct hdl_push *push);
/* The caller's pointer for a connection, NULL at first. */
void **hdl_push_user(struct hdl_push *push);
/* The counters of the messaging layer; returns how many. */
size_t hdl_push_counters(const struct hdl_push *push, const char *const **names,
                         const uint64_t **values);

#endif
