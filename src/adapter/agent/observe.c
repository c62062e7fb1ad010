/* Observe every process that uses Heddle from outside: what the agent knows, and what each process
 * shares. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/agent/observe.h"
#include "base/log.h"
#include "port/rundir.h"
#include "port/unixsock.h"

#define ANSWER_MS 2000

/* Count the entries of the protection table of a process. The table is sparse, and reading a page
 * of it that was never written costs no memory. */
static void count_entries(struct hdl_process *process, const struct tables *tables)
{
	struct tpt_view view = {.slots = tables->slots,
	                        .capacity = tables->sizes.table_entries + 1};
	for (uint32_t i = 1; i < view.capacity; i++) {
		struct tpt_entry entry;
		if (!tpt_read_slot(&view, i, &entry) || (entry.flags & TPT_VALID) == 0)
			continue;
		if (entry.type == TPT_REGION) {
			process->regions++;
			process->region_bytes += entry.length;
		} else if (entry.type == TPT_WINDOW) {
			process->windows++;
		}
	}
}

bool observe_read(int pid, const struct tables_header *header, void *to, size_t bytes,
                  uint64_t from)
{
	uint64_t probe = 0;
	struct iovec here[] = {{&probe, sizeof(probe)}, {to, bytes}};
	struct iovec there[] = {{(void *)(uintptr_t)header->probe_addr, sizeof(probe)},
	                        {(void *)(uintptr_t)from, bytes}};
	return pid > 0 &&
	       process_vm_readv(pid, here, 2, there, 2, 0) == (ssize_t)(sizeof(probe) + bytes) &&
	       probe == header->probe_value;
}

/* How many elements the queue at @address holds. */
static uint32_t look_at_queue(const struct hdl_process *process, const struct tables_header *header,
                              uint64_t address)
{
	struct wq queue;
	if (address == 0)
		return 0; /* there is none */
	if (header->wq_layout != TABLES_WQ_LAYOUT ||
	    !observe_read(process->pid, header, &queue, sizeof(queue), address))
		return HDL_UNSEEN;
	/* Both ends move while they are read. */
	uint32_t held = wq_held(&queue);
	return held <= HDL_MAX_QP_WR ? held : HDL_UNSEEN;
}

/* How full the queues of a queue pair are. It may be gone, and its memory something else, by the
 * time that we look: then its facts, of which the first word was @word, have changed. */
static void look_at_queues(const struct hdl_process *process, const struct tables *tables,
                           const struct qp_public *pub, uint64_t word, struct hdl_qp_info *info)
{
	uint64_t sq = atomic_load_explicit(&pub->sq_addr, memory_order_relaxed);
	uint64_t rq = atomic_load_explicit(&pub->rq_addr, memory_order_relaxed);
	info->shared = (rq & QP_RQ_SHARED) != 0;
	info->outstanding = look_at_queue(process, tables->header, sq);
	info->receives = look_at_queue(process, tables->header, rq & ~(uint64_t)QP_RQ_SHARED);
	if (atomic_load_explicit(&pub->words[0], memory_order_acquire) >> 48 != word >> 48)
		info->outstanding = info->receives = HDL_UNSEEN;
}

/* What the protection table of a process refused; without it the counters end with the engine's. */
static size_t copy_counters(struct hdl_process *process, const struct tables *tables)
{
	uint64_t refusals[HDL_DETAIL_COUNT];
	bool seen = tables->header->wq_layout == TABLES_WQ_LAYOUT &&
	            observe_read(process->pid, tables->header, refusals, sizeof(refusals),
	                         tables->header->refusals_addr);
	size_t count = seen ? COUNTER_COUNT : ENGINE_COUNTER_COUNT;
	for (size_t i = 0; i < count; i++)
		process->counters[i] = (struct hdl_counter){
		        counter_name(i), i < ENGINE_COUNTER_COUNT
		                                 ? counter_read(&tables->header->counters[i])
		                                 : refusals[i - ENGINE_COUNTER_COUNT]};
	return count;
}

static struct hdl_qp_info describe(const struct hdl_process *process, const struct tables *tables,
                                   uint32_t index, const struct qp_facts *facts)
{
	const struct qp_public *pub = &tables->qps[index];
	struct qp_fault fault = qp_read_fault(pub);
	struct hdl_qp_info info = {.qpn = process->slot << tables->sizes.qp_bits | index,
	                           .type = facts->type,
	                           .state = facts->state,
	                           .dest_qpn = facts->dest_qpn,
	                           .access = facts->access,
	                           .link = facts->link,
	                           .on_wire = facts->on_wire,
	                           .status = fault.status,
	                           .detail = fault.detail,
	                           .has_event = fault.event != 0,
	                           .event = fault.event != 0 ? fault.event - 1u : 0,
	                           .event_detail = fault.event_detail};
	look_at_queues(process, tables, pub, facts->word, &info);
	return info;
}

static int copy_qps(struct hdl_process *process, const struct tables *tables)
{
	uint32_t count = 1u << tables->sizes.qp_bits;
	process->qps = calloc(count, sizeof(*process->qps));
	if (process->qps == NULL)
		return -HDL_ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		struct qp_facts facts;
		if (!qp_read_facts(&tables->qps[i], &facts) || facts.type == 0 ||
		    facts.type == QP_TYPE_SRQ)
			continue;
		process->qps[process->qp_count++] = describe(process, tables, i, &facts);
	}
	return 0;
}

struct observed {
	struct hdl_process *list;
	size_t count;
};

static int observe_look_at(void *context, const struct agent_msg *msg, const struct tables *tables)
{
	struct observed *observed = context;
	struct hdl_process *more =
	        realloc(observed->list, (observed->count + 1) * sizeof(*observed->list));
	if (more == NULL)
		return -HDL_ENOMEM;
	observed->list = more;
	struct hdl_process *process = &more[observed->count++];
	*process = (struct hdl_process){0};
	memcpy(process->node, msg->u.process.node, sizeof(process->node));
	memcpy(process->program, msg->u.process.program, sizeof(process->program));
	process->node[sizeof(process->node) - 1] = process->program[sizeof(process->program) - 1] =
	        '\0';
	memcpy(process->gid.raw, msg->u.process.gid, sizeof(process->gid.raw));
	memcpy(process->taken.raw, msg->u.process.taken, sizeof(process->taken.raw));
	process->taken_by = msg->u.process.taken_by;
	process->pid = msg->u.process.pid;
	process->slot = msg->u.process.slot;
	process->counters = calloc(COUNTER_COUNT, sizeof(*process->counters));
	int result = process->counters == NULL ? -HDL_ENOMEM : copy_qps(process, tables);
	if (result == 0) {
		process->counter_count = copy_counters(process, tables);
		count_entries(process, tables);
	}
	return result;
}

/* Why the agent refuses, as a call returns it; anything else is an I/O error, which is logged. */
static int observe_refused(const char *directory, struct agent_refused *refused)
{
	int error = refused->error;
	if (error == EACCES || error == EINVAL || error == ESTALE)
		return -error;
	refused->why[sizeof(refused->why) - 1] = '\0';
	log_error("the node agent of %s refused us: %s", directory, refused->why);
	return -HDL_EIO;
}

/* An agent of another version may refuse with a message of another length. */
static bool observe_is_refusal(const struct agent_msg *msg, ssize_t got)
{
	return got >= (ssize_t)(offsetof(struct agent_msg, u) + sizeof(msg->u.refused)) &&
	       msg->kind == AGENT_REFUSED;
}

/* Receive one message of the agent's answer. Returns 1 if there are more. */
static int observe_take(int sock, const char *directory, observe_hear *hear, void *context)
{
	struct agent_msg msg;
	int fds[UNIXSOCK_MAX_FDS], fd_count, result = -HDL_EIO;
	struct pollfd readable = {.fd = sock, .events = POLLIN};
	if (poll(&readable, 1, ANSWER_MS) <= 0) {
		log_error("the node agent of %s does not answer", directory);
		return -HDL_EIO;
	}
	ssize_t got = unixsock_receive(sock, &msg, sizeof(msg), fds, &fd_count);
	bool ours = got == (ssize_t)sizeof(msg) && msg.version == AGENT_VERSION;
	if (observe_is_refusal(&msg, got)) {
		result = observe_refused(directory, &msg.u.refused);
	} else if (ours && msg.kind == AGENT_END) {
		result = 0;
	} else if (ours && hear != NULL) {
		result = hear(context, &msg, fds, fd_count);
		result = result == 0 ? 1 : result;
	} else if (got <= 0) {
		log_error("the node agent of %s hung up; try again", directory);
	} else {
		log_error("the node agent of %s is of another version of Heddle; use the commands "
		          "of that version, end its programs, or set HEDDLE_DIR to another "
		          "directory",
		          directory);
	}
	while (fd_count > 0)
		close(fds[--fd_count]);
	return result;
}

int observe_ask(struct agent_msg *ask, observe_hear *hear, void *context)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	int result = rundir_open(directory, NULL);
	if (result != 0) {
		log_error("%s: %s; %s", directory, strerror(-result), rundir_advice(result));
		return -HDL_EIO;
	}
	rundir_file(directory, AGENT_SOCKET, path, sizeof(path));
	int sock = unixsock_connect(path);
	if (sock == -ENOENT || sock == -ECONNREFUSED)
		return -HDL_EHOSTUNREACH;
	if (sock < 0) {
		log_error("%s: %s", path, strerror(-sock));
		return -HDL_EIO;
	}
	ask->version = AGENT_VERSION;
	/* If it has gone meanwhile, its answer is missing: that is noticed below. */
	(void)unixsock_send(sock, ask, sizeof(*ask), NULL, 0);
	do
		result = observe_take(sock, directory, hear, context);
	while (result == 1);
	close(sock);
	return result;
}

struct looking {
	observe_look *look;
	void *context;
};

static int observe_process(void *context, const struct agent_msg *msg, const int *fds, int fd_count)
{
	const struct looking *looking = context;
	struct tables tables;
	if (msg->kind != AGENT_PROCESS || fd_count != 1)
		return -HDL_EIO;
	int result = tables_map(&tables, fds[0], &msg->u.process.sizes);
	if (result != 0)
		return result;
	result = looking->look(looking->context, msg, &tables);
	tables_unmap(&tables);
	return result;
}

int observe_each(observe_look *look, void *context)
{
	struct agent_msg ask = {.kind = AGENT_OBSERVE};
	struct looking looking = {look, context};
	return observe_ask(&ask, observe_process, &looking);
}

int hdl_observe(struct hdl_process **list, size_t *count)
{
	struct observed observed = {0};
	if (list == NULL || count == NULL)
		return -HDL_EINVAL;
	int result = observe_each(observe_look_at, &observed);
	if (result != 0) {
		hdl_observe_free(observed.list, observed.count);
		observed = (struct observed){0};
	}
	*list = observed.list;
	*count = observed.count;
	return result;
}

void hdl_observe_free(struct hdl_process *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free(list[i].qps);
		free(list[i].counters);
	}
	free(list);
}
