/* Event queues of ports (APERTURE columns 13 to 15; figures 8, 9 and 13). Each port has a queue
 * in the application's memory. A running application takes events from it with no system call. An
 * application that sleeps sets the IRQ bit of the queue first, and the deliverer wakes it.
 *
 *      the deliverer: adapter          the application
 *      +---------------------+         +-----------------------------------------------+
 *      | WRPTR  RDPTR' IRQ'  |         | RDPTR  WRPTR' IRQ   events of 64 bytes        |
 *      |                     |  --->   |                     Err | Var 10 | Data | ... |
 *      | WRPTR  RDPTR'       |         | RDPTR  WRPTR'       words of 8 bytes          |
 *      +---------------------+         |                     size = 70, 9 words | ...  |
 *                                      +-----------------------------------------------+
 *      written by the deliverer: WRPTR, WRPTR', events, words; it clears IRQ'
 *      written by the application: RDPTR, RDPTR', IRQ, IRQ'
 *
 * When a queue is full, events are kept back: their senders repeat them. Events that cannot be
 * repeated are counted, and an event of type HDL_PORT_LOST says how many there were. Nothing is
 * overwritten. HDL_PORT_CONNECT and HDL_PORT_ERROR have eight places each of their own.
 *
 * Many queues can belong to one set. A wait for the set costs the same whether it has one queue
 * or ten thousand, because the deliverer names the queues that have events.
 *
 * The comments above the calls have the order of heddle.h. */
#ifndef HEDDLE_EVENTQ_H
#define HEDDLE_EVENTQ_H

#include <heddle/heddle.h>
#include <heddle/port_event.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HDL_EVENTQ_MIN_EVENTS     32u
#define HDL_EVENTQ_MAX_EVENTS     1048576u
#define HDL_EVENTQ_DEFAULT_EVENTS 64u
#define HDL_EVENTQ_MIN_WORDS      16u
#define HDL_EVENTQ_MAX_WORDS      16777216u
#define HDL_EVENTQ_DEFAULT_WORDS  256u

struct hdl_port;
struct hdl_eventq;
struct hdl_eventset;

/* How to open a queue. Zero in every field selects the defaults. */
struct hdl_eventq_attr {
	uint32_t events;          /* places for events; the next power of two is taken */
	uint32_t words;           /* of 8 bytes, for data of variable size; likewise */
	struct hdl_eventset *set; /* that it belongs to; NULL: none */
	void *context;            /* see hdl_eventq_context() */
};

/* hdl_eventq_open - open the event queue of a port
 *
 * From now on what comes to @port is delivered to the queue. A port has one queue at most.
 *
 * Owner: the caller owns *out and frees it with hdl_eventq_close(), before the port and the set.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL a size is out of range; -HDL_EBUSY the port has a queue; -HDL_ENOMEM. */
HDL_API int hdl_eventq_open(struct hdl_port *port, const struct hdl_eventq_attr *attr,
                            struct hdl_eventq **out);

/* hdl_eventq_close - close an event queue
 *
 * Events in it are dropped. What comes to the port from now on finds no queue.
 *
 * Owner: @queue is freed.
 * Threads: any, but no other call on the queue may be running or follow.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_eventq_close(struct hdl_eventq *queue);

/* hdl_eventq_context - what hdl_eventq_attr.context was
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the pointer. */
HDL_API void *hdl_eventq_context(const struct hdl_eventq *queue);

/* hdl_eventq_take - take events
 *
 * Copies up to @max events to @events, oldest first. If there are none it drives the adapter once
 * and looks again. It makes no system call, unless the adapter's thread has to be woken. A queue
 * of a set that was emptied (fewer than @max were taken) is reported again by hdl_eventset_wait()
 * when the next event comes.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: the number of events; -HDL_EINVAL. */
HDL_API int hdl_eventq_take(struct hdl_eventq *queue, struct hdl_port_event *events, int max);

/* hdl_eventq_read - read the data of variable size behind an event
 *
 * Copies the data of @event, which was taken from this queue, to @to, and frees its words and
 * those of earlier events. Data need not be read; later data frees it.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0 and *bytes; -HDL_EMSGSIZE @max is too small and nothing was read, but *bytes is the
 * size;
 * -HDL_ESTALE it has been freed; -HDL_EINVAL the event has no data; -HDL_EIO the data contradicts
 * the event, and has been freed. */
HDL_API int hdl_eventq_read(struct hdl_eventq *queue, const struct hdl_port_event *event, void *to,
                            size_t max, size_t *bytes);

/* hdl_eventq_wait - wait until a queue has events
 *
 * For a queue without a set of the caller's. One that has a set waits with hdl_eventset_wait().
 * The IRQ bit is set while a thread waits, and only then: events that a program takes without
 * waiting interrupt nobody, and the node agent gets no message that the application sleeps. With
 * several threads that wait for one queue, one may return 0 after another has taken the event.
 *
 * Owner: nothing changes hands.
 * Threads: any; a cancellation point.
 * Blocks: up to @timeout_ms (0: not at all; -1: forever).
 * Returns: 0 there are events, or may be; -HDL_EAGAIN none came in time; -HDL_EINTR; -HDL_EBUSY it
 * belongs to a set; -HDL_EIO no file descriptor; -HDL_ENOMEM; -HDL_EINVAL. */
HDL_API int hdl_eventq_wait(struct hdl_eventq *queue, int timeout_ms);

/* hdl_eventq_fd - a file descriptor that tells of events
 *
 * For a queue without a set of the caller's. The descriptor is readable (poll, epoll) while the
 * queue has events; hdl_eventq_take() has to empty the queue, and clears it. Only Heddle may read
 * from it. The program may sleep on it at any time, so from now on the IRQ bit is set whenever the
 * queue is empty, as it is for queues of a set.
 *
 * Owner: the queue owns the descriptor.
 * Threads: any.
 * Blocks: no.
 * Returns: the descriptor; -HDL_EBUSY it belongs to a set; -HDL_EIO; -HDL_ENOMEM; -HDL_EINVAL. */
HDL_API int hdl_eventq_fd(struct hdl_eventq *queue);

/* What a queue is like at the moment. */
struct hdl_eventq_status {
	uint64_t delivered; /* events, since it was opened */
	uint64_t taken;
	uint64_t words;      /* in use */
	uint64_t lost;       /* events that found no room and could not be kept back */
	uint64_t kept;       /* deliveries that found no room; their senders try again */
	uint64_t wild;       /* pointers and sizes that made no sense and were ignored */
	uint32_t blocked;    /* 1: the IRQ bit is set: somebody sleeps, or will */
	uint32_t interrupts; /* wake-ups, since it was opened */
};

/* hdl_eventq_query - the status of a queue
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL. */
HDL_API int hdl_eventq_query(struct hdl_eventq *queue, struct hdl_eventq_status *status);

/* hdl_eventset_create - create a set of event queues
 *
 * Owner: the caller owns *out and frees it with hdl_eventset_destroy(), after its queues.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_ENOMEM; -HDL_EIO no file descriptor. */
HDL_API int hdl_eventset_create(struct hdl_adapter *adapter, struct hdl_eventset **out);

/* hdl_eventset_destroy - free a set
 *
 * Owner: @set is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; -HDL_EINVAL; -HDL_EBUSY a queue belongs to it. */
HDL_API int hdl_eventset_destroy(struct hdl_eventset *set);

/* hdl_eventset_wait - wait for the queues that have events
 *
 * Stores up to @max queues of the set that have got events since they were empty. Each is reported
 * once: take its events until hdl_eventq_take() returns fewer than it could.
 *
 * Owner: nothing changes hands.
 * Threads: any; a cancellation point.
 * Blocks: up to @timeout_ms (0: not at all; -1: forever).
 * Returns: the number of queues; -HDL_EAGAIN none in time; -HDL_EINTR; -HDL_EINVAL. */
HDL_API int hdl_eventset_wait(struct hdl_eventset *set, struct hdl_eventq **queues, int max,
                              int timeout_ms);

/* hdl_eventset_fd - the file descriptor of a set
 *
 * The descriptor is readable (poll, epoll) while hdl_eventset_wait() would find a queue.
 *
 * Owner: the set owns the descriptor.
 * Threads: any.
 * Blocks: no.
 * Returns: the descriptor; -HDL_EINVAL. */
HDL_API int hdl_eventset_fd(struct hdl_eventset *set);

/* What an event is to the node agent, by bits: its form is 1 << enum hdl_port_event_type, and
 * these. One that has a bit of the criteria gets a message on the agent's own queue. */
enum hdl_oob_bit {
	HDL_OOB_BLOCKED = 1 << 16,  /* the application sleeps */
	HDL_OOB_ERRORS = 1 << 17,   /* it tells of an error */
	HDL_OOB_FAILURES = 1 << 18, /* a failure of the adapter, which concerns no port */
	HDL_OOB_NOBODY = 1 << 19,   /* nobody can be woken: the port has no queue, or no room */
	HDL_OOB_ALL = 0xfffff       /* all of these, and all forms */
};

/* What the node agent knows of the ports of a process, from its own queue. */
struct hdl_oob_status {
	uint64_t messages; /* [OOB-DATA:PORT], since the agent and the process met */
	uint64_t blocked;  /* of these: the application slept */
	uint64_t errors;   /* of these: events that tell of an error */
	uint64_t failures; /* of these: failures of the adapter */
	uint64_t nobody;   /* of these: there was nobody to wake, no queue or no room in it */
	uint64_t lost;     /* messages that found no room */
	uint64_t wakes;    /* how often the agent was woken by messages of any process */
	uint64_t refused;  /* out-of-band packets of ours that the agent did not pass on */
	uint32_t waiting;  /* events in the queue of last_port, when the agent looked into it */
	uint32_t criteria; /* enum hdl_oob_bit: which events get a message (hdl_oob_set()) */
	uint32_t waking;   /* and which of these wake the agent */
	uint32_t last_port;
	/* Of the last event that told of an error: */
	uint32_t error_port;
	uint32_t error_index; /* of the aperture */
	int32_t error_status; /* a negative error of error.h; 0: there was none */
	/* The oldest of the events in waiting, as the agent read it out of the queue: of struct
	 * hdl_port_event. first_type 0: none waited. */
	uint16_t first_type;
	uint32_t first_index;
	uint64_t first_value;
};

/* hdl_oob_query - what the node agent knows of our ports
 *
 * The agent reads its queue, and answers. With each message, it looks into the queue of the port
 * that the message names: how many events wait there, and what the oldest of them is.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until the node agent answers.
 * Returns: 0; -HDL_EINVAL; -HDL_EHOSTUNREACH the adapter is not on a node, or has no agent;
 * -HDL_ETIMEDOUT. */
HDL_API int hdl_oob_query(struct hdl_adapter *adapter, struct hdl_oob_status *status);

/* hdl_oob_set - set the criteria of the node agent's own queue
 *
 * Chooses which events of ports get a message (@criteria), and which of these wake the agent
 * (@waking), for process @pid; with @pid 0 for all processes, also those that come later. Both are
 * bits of enum hdl_oob_bit and of forms. They replace the former ones, and are in force when the
 * call returns. At ports of programs that are not trusted (heddle-ci(7)) the forms from CONNECT to
 * STATUS count in any case. The next agent begins with HEDDLE_CRITERIA again (heddled(8)).
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until the agent has answered, two seconds at most. No agent is started.
 * Returns: 0; -HDL_EINVAL a bit is unknown, or wakes the agent without being a criterion;
 * -HDL_EACCES the calling program is not trusted; -HDL_ESTALE no process @pid has a port with an
 * event queue; -HDL_EHOSTUNREACH no agent runs; -HDL_EIO. */
HDL_API int hdl_oob_set(int pid, uint32_t criteria, uint32_t waking);

/* A process with ports that have event queues, as the node agent sees it. */
struct hdl_oob_process {
	char node[64]; /* empty: the machine's own */
	char program[64];
	int pid;
	uint32_t slot;
	bool trusted;
	struct hdl_oob_status status;
};

/* hdl_oob_observe - what the node agent knows of the ports of every process
 *
 * The first element has pid 0, and the criteria of processes that come later. The others are one
 * per adapter that has opened event queues. Does not start an agent.
 *
 * Owner: the caller owns *list and frees it with hdl_oob_observe_free().
 * Threads: any.
 * Blocks: until the agent has answered, two seconds at most.
 * Returns: 0; -HDL_EHOSTUNREACH no agent runs; -HDL_EINVAL; -HDL_ENOMEM; -HDL_EIO. */
HDL_API int hdl_oob_observe(struct hdl_oob_process **list, size_t *count);

/* hdl_oob_observe_free - free the result of hdl_oob_observe()
 *
 * Owner: @list is freed.
 * Threads: any.
 * Blocks: no.
 * Returns: nothing. */
HDL_API void hdl_oob_observe_free(struct hdl_oob_process *list);

#ifdef __cplusplus
}
#endif

#endif
