/* Looking at every process that uses Heddle, from outside: what the agent knows, and what each
 * process shares. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "port/rundir.h"
#include "port/unixsock.h"

#define ANSWER_MS 2000

/* What the protection table of a process holds. Only entries that were ever used are looked at: the
 * table is sparse, and reading a page of it that was never written costs no memory. */
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
		process->qps[process->qp_count++] =
		        (struct hdl_qp_info){.qpn = process->slot << tables->sizes.qp_bits | i,
		                             .type = facts.type,
		                             .state = facts.state,
		                             .dest_qpn = facts.dest_qpn,
		                             .access = facts.access,
		                             .link = facts.link};
	}
	return 0;
}

static int observe_look_at(struct hdl_process *process, const struct agent_msg *msg, int fd)
{
	struct tables tables;
	memcpy(process->node, msg->u.process.node, sizeof(process->node));
	memcpy(process->program, msg->u.process.program, sizeof(process->program));
	process->node[sizeof(process->node) - 1] = process->program[sizeof(process->program) - 1] =
	        '\0';
	memcpy(process->gid.raw, msg->u.process.gid, sizeof(process->gid.raw));
	memcpy(process->taken.raw, msg->u.process.taken, sizeof(process->taken.raw));
	process->taken_by = msg->u.process.taken_by;
	process->pid = msg->u.process.pid;
	process->slot = msg->u.process.slot;
	int result = tables_map(&tables, fd, &msg->u.process.sizes);
	if (result != 0)
		return result;
	process->counters = calloc(ENGINE_COUNTER_COUNT, sizeof(*process->counters));
	result = process->counters == NULL ? -HDL_ENOMEM : copy_qps(process, &tables);
	if (result == 0) {
		process->counter_count = ENGINE_COUNTER_COUNT;
		for (size_t i = 0; i < ENGINE_COUNTER_COUNT; i++)
			process->counters[i] = (struct hdl_counter){
			        counter_name(i), counter_read(&tables.header->counters[i])};
		count_entries(process, &tables);
	}
	tables_unmap(&tables);
	return result;
}

/* One message of the agent's answer. 1: there is more. */
static int take_answer(int sock, struct hdl_process **list, size_t *count)
{
	struct agent_msg msg;
	int fds[UNIXSOCK_MAX_FDS], fd_count, result = -HDL_EIO;
	struct pollfd readable = {.fd = sock, .events = POLLIN};
	if (poll(&readable, 1, ANSWER_MS) <= 0)
		return -HDL_EIO;
	ssize_t got = unixsock_receive(sock, &msg, sizeof(msg), fds, &fd_count);
	if (got == (ssize_t)sizeof(msg) && msg.kind == AGENT_END) {
		result = 0;
	} else if (got == (ssize_t)sizeof(msg) && msg.kind == AGENT_PROCESS && fd_count == 1) {
		struct hdl_process *more = realloc(*list, (*count + 1) * sizeof(**list));
		result = -HDL_ENOMEM;
		if (more != NULL) {
			*list = more;
			more[*count] = (struct hdl_process){0};
			result = observe_look_at(&more[(*count)++], &msg, fds[0]);
			result = result == 0 ? 1 : result;
		}
	}
	while (fd_count > 0)
		close(fds[--fd_count]);
	return result;
}

int hdl_observe(struct hdl_process **list, size_t *count)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	if (list == NULL || count == NULL)
		return -HDL_EINVAL;
	*list = NULL;
	*count = 0;
	if (rundir_open(directory, NULL) != 0)
		return -HDL_EIO;
	rundir_file(directory, AGENT_SOCKET, path, sizeof(path));
	int sock = unixsock_connect(path);
	if (sock < 0)
		return sock == -ENOENT || sock == -ECONNREFUSED ? -HDL_EHOSTUNREACH : -HDL_EIO;
	struct agent_msg ask = {.version = AGENT_VERSION, .kind = AGENT_OBSERVE};
	int result = unixsock_send(sock, &ask, sizeof(ask), NULL, 0) == 0 ? 1 : -HDL_EIO;
	while (result == 1)
		result = take_answer(sock, list, count);
	close(sock);
	if (result != 0) {
		hdl_observe_free(*list, *count);
		*list = NULL;
		*count = 0;
	}
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
