/* An adapter: the engine (transport/engine.h) with memory, a clock, file descriptors and a thread
 * around it, and the objects of the public interface.
 *
 * One lock, drive.lock, decides which thread drives: its holder owns the engine, the inner state of
 * the queue pairs and the writing side of the protection table. A thread that polls only tries the
 * lock. A thread that posts waits until the holder has picked up the work, or takes the lock itself
 * (adapter_doorbell()). Control calls wait for the lock.
 *
 * Lock order: list_lock (fork.c), objects.group_lock, then agent.ask_lock and agent.lock or
 * registry_lock (peers.c), then the drive locks of two adapters by address, then anything inside
 * an engine. */
#ifndef ADAPTER_ADAPTER_H
#define ADAPTER_ADAPTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <heddle/heddle.h>

#include "adapter/agent/link.h"
#include "adapter/drive/drive.h"
#include "adapter/eventq/eventq.h"
#include "adapter/eventq/oob.h"
#include "adapter/net/net.h"
#include "adapter/objects/objects.h"
#include "adapter/reach/peers.h"
#include "adapter/vi/vi.h"
#include "base/clock.h"
#include "base/prng.h"
#include "memory/tpt.h"
#include "port/pcapng.h"
#include "transport/capture.h"
#include "transport/engine.h"

#define ADAPTER_DEFAULT_MR 65536u
#define ADAPTER_NODE_QP    16383u /* queue pair numbers per process; the default */
#define ADAPTER_ARENA_WORDS \
	(1ull << 27) /* 1 GiB of address space for translation tables, used as needed */
#define ADAPTER_ARENA_LEAST (1ull << 20)

/* What all share, then one structure per folder. Their headers say under which lock each part
 * is. */
struct apertures;
struct cluster;

struct hdl_adapter {
	uint32_t magic;
	struct hdl_adapter *next; /* list of open adapters (fork.c), under its lock */
	struct drive drive;
	struct engine engine; /* under the drive lock, as is what the comments do not except */
	struct tpt tpt;
	struct clock clock;
	struct prng prng;
	struct recorder *recorder; /* capture.c; NULL: nothing is recorded */
	void *blocks[3]; /* mapped memory, and its sizes; set when the adapter is opened */
	size_t block_bytes[3];

	/* Our names, most of which a node agent gives us. Only the thread that talks to an agent
	 * writes them. */
	char name[32];
	uint64_t guid;
	uint32_t slot;
	uint16_t lid; /* the first of 2^lmc LIDs; 0: none */
	uint16_t lmc;
	struct hdl_gid gids[AGENT_MAX_GIDS];
	uint32_t gid_count;

	struct objects objects;
	struct net net;
	struct agent_link agent;
	struct vis vis;
	struct peers peers;
	struct eventqs eventqs;
	struct oob oob;
	struct apertures *apertures; /* NULL: none was ever used */
	struct cluster *cluster;     /* HEDDLE_CLUSTER (aperture/cluster.h); NULL: not set */
};

/* --- adapter.c --- */
/* hdl_open() with settings that a program cannot choose: the clock and seed of the simulator, and
 * so on. */
struct adapter_env {
	struct clock clock;
	uint64_t seed;       /* of all random numbers; 0: from the operating system */
	bool by_target;      /* initiators cannot access the memory of peers: the target executes
	                        everything */
	bool by_value;       /* neither can targets: all data goes through the lanes */
	bool no_fast_path;   /* the general path handles everything (engine_fast()) */
	uint32_t turn_bytes; /* ENGINE_TURN_BYTES of its engine; 0: the default */
	const struct carrier *carrier; /* a wire over which all peers are reached; NULL: none */
	struct hdl_gid second_gid;     /* a second address on the wire; zero: none */
	bool cells;                    /* it carries cells */
};
int adapter_open(const struct hdl_open_attr *attr, const struct adapter_env *env,
                 struct hdl_adapter **out);
/* End @adapter as if its process had died: no object is destroyed properly, and peers see it
 * vanish. */
void adapter_kill(struct hdl_adapter *adapter);

/* Log that a peer was not ready, if that is due; once in the life of the process. Without a
 * lock. */
void adapter_say_not_ready(struct hdl_adapter *adapter);

/* --- capture.c --- */
/* Records what goes through an adapter (transport/capture.h, port/pcapng.h). Call with the drive
 * lock, or before the thread starts. */
struct recorder {
	struct capture capture;
	struct pcapng file, frames; /* two writers of one file; frames: since the first one */
	bool has_frames;
	char *path;
	char name[PCAPNG_NAME_BYTES], description[PCAPNG_NAME_BYTES];
};
/* Record to the file @path; NULL or "": do nothing. Returns 0; -HDL_ENOMEM; -HDL_EIO, and errno
 * says why. */
int recorder_open(struct hdl_adapter *adapter, const char *path);
void recorder_close(struct hdl_adapter *adapter);
/* In a child of fork(): the file belongs to the parent. */
void recorder_forget(struct hdl_adapter *adapter);
void recorder_write(struct hdl_adapter *adapter);
/* Write what is buffered: it may be a while until more is recorded. */
static inline void recorder_flush(struct hdl_adapter *adapter)
{
	if (__builtin_expect(adapter->recorder != NULL, 0))
		recorder_write(adapter);
}

/* --- strings.c --- */
/* The counters of hdl_counters(): those of the engine, then what the protection table refused, by
 * enum hdl_detail. */
#define COUNTER_COUNT ((size_t)ENGINE_COUNTER_COUNT + HDL_DETAIL_COUNT)
const char *counter_name(size_t counter);
/* "RC", "RTS"; "?": no such type or state. */
const char *qp_type_name(uint32_t type);
const char *qp_state_name(uint32_t state);

/* --- fork.c --- */
/* fork() takes list_lock in fork.c, then registry_lock, install_lock, tracer_lock, mem_lock and
 * descriptors_lock, in this order; port/agentstart.c takes its own after these. */
/* @adapter is open: a child of fork() must close its copy. */
void fork_enter(struct hdl_adapter *adapter);
/* Call @visit for every open adapter, while none is opened or closed. False: an adapter is being
 * opened or closed at this moment, and nothing was done. */
bool fork_each(void (*visit)(struct hdl_adapter *adapter, void *context), void *context);
/* @adapter is being closed. No fork happens until fork_left(). */
void fork_leave(struct hdl_adapter *adapter);
void fork_left(void);

/* --- what every call does --- */
/* The application is active: the thread only watches. */
static inline void adapter_touch(struct hdl_adapter *adapter)
{
	uint32_t activity = atomic_load_explicit(&adapter->drive.activity, memory_order_relaxed);
	atomic_store_explicit(&adapter->drive.activity, activity + 1, memory_order_relaxed);
	if (atomic_load_explicit(&adapter->drive.state, memory_order_relaxed) == THREAD_ARMED)
		thread_wake(adapter, THREAD_ARMED);
}

#endif
