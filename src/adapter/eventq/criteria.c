/* The criteria of the agent's own queue, from any program of the user: no adapter is needed. */
#include <stdlib.h>
#include <string.h>

#include <heddle/eventq.h>

#include "adapter/agent/observe.h"
#include "adapter/eventq/oob.h"
#include "port/oob.h"

_Static_assert((int)HDL_OOB_BLOCKED == (int)OOB_BLOCKED && (int)HDL_OOB_ERRORS == (int)OOB_ERRORS &&
                       (int)HDL_OOB_FAILURES == (int)OOB_FAILURES &&
                       (int)HDL_OOB_NOBODY == (int)OOB_NOBODY && (int)HDL_OOB_ALL == (int)OOB_ALL,
               "the public names of the same bits");
_Static_assert((OOB_SIGNALS & (1u << HDL_PORT_CONNECT | HDL_SIGNAL_ALL)) ==
                       (1u << HDL_PORT_CONNECT | HDL_SIGNAL_ALL),
               "forms are types of events");

int hdl_oob_set(int pid, uint32_t criteria, uint32_t waking)
{
	const struct oob_criteria wanted = {criteria, waking};
	struct agent_msg msg = {.kind = AGENT_OOB_SET,
	                        .u.oob_set = {.pid = pid, .criteria = criteria, .waking = waking}};
	if (pid < 0 || !oob_is_possible(&wanted))
		return -HDL_EINVAL;
	return observe_ask(&msg, NULL, NULL);
}

struct oob_list {
	struct hdl_oob_process *list;
	size_t count;
};

static int oob_hear_process(void *context, const struct agent_msg *msg, const int *fds,
                            int fd_count)
{
	struct oob_list *found = context;
	const struct agent_oob_process *from = &msg->u.oob_process;
	(void)fds;
	if (msg->kind != AGENT_OOB_PROCESS || fd_count != 0)
		return -HDL_EIO;
	struct hdl_oob_process *more =
	        realloc(found->list, (found->count + 1) * sizeof(*found->list));
	if (more == NULL)
		return -HDL_ENOMEM;
	found->list = more;
	struct hdl_oob_process *process = &more[found->count++];
	*process = (struct hdl_oob_process){.pid = from->pid,
	                                    .slot = from->slot,
	                                    .trusted = from->trusted != 0,
	                                    .status = oob_status(&from->oob)};
	memcpy(process->node, from->node, sizeof(process->node) - 1);
	memcpy(process->program, from->program, sizeof(process->program) - 1);
	return 0;
}

int hdl_oob_observe(struct hdl_oob_process **list, size_t *count)
{
	struct agent_msg msg = {.kind = AGENT_OOB_OBSERVE};
	struct oob_list found = {0};
	if (list == NULL || count == NULL)
		return -HDL_EINVAL;
	int result = observe_ask(&msg, oob_hear_process, &found);
	if (result != 0) {
		hdl_oob_observe_free(found.list);
		found = (struct oob_list){0};
	}
	*list = found.list;
	*count = found.count;
	return result;
}

void hdl_oob_observe_free(struct hdl_oob_process *list)
{
	free(list);
}
