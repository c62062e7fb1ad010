/* The agent's own queue (port/oob.h): messages of processes about their ports. The deliverer in the
 * process wakes the application itself, so most messages wake nobody: the agent reads them when
 * it is awake, or asked. What its criteria say should wake it (errors, failures, nobody else to
 * wake; at ports of a program that is not trusted, signals) rings its bell, if its IRQ bit is set.
 *
 * HEDDLE_CRITERIA in the agent's environment sets the criteria (claim 9 of APERTURE), and a trusted
 * program may change them while the agent runs: for all processes, or for one. They are in force as
 * soon as the agent has written them to the blocks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/log.h"
#include "base/memfile.h"
#include "port/bell.h"
#include "port/oob.h"

#define OOB_BATCH 256u /* messages of one process in a turn */

/* The queue of one process. */
struct oob_part {
	struct oob_part *next;
	struct client *client;
	struct oob_block *block;
	struct ring_rx lane;
	struct agent_oob told;        /* what it has told so far */
	struct oob_criteria criteria; /* as in its block, where the process could change them */
	uint32_t signals;             /* what counts in any case */
	bool own;                     /* the criteria were set for this process alone */
};

/* There is one agent per process, and one thread. */
static struct {
	struct agent_source source; /* first */
	int bell[2];
	struct oob_part *parts;
	bool begun;
	struct oob_criteria criteria; /* of processes that come later */
} oob = {.bell = {-1, -1}};

static bool oob_read(const struct oob_part *part, uint64_t address, void *to, size_t bytes)
{
	struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)address, bytes};
	return process_vm_readv(part->client->pid, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

/* Look into the queue that @message names: how many events wait, and what the oldest of them is.
 * The addresses are the process's own, and whatever they lead to is only counted and repeated. */
static void oob_look(struct oob_part *part, const struct oob_message *message)
{
	struct agent_oob *told = &part->told;
	struct oob_event first;
	uint64_t wrptr, rdptr;
	told->waiting = told->first_type = told->first_index = 0;
	told->first_value = 0;
	if (message->wrptr_addr == 0 ||
	    !oob_read(part, message->wrptr_addr, &wrptr, sizeof(wrptr)) ||
	    !oob_read(part, message->rdptr_addr, &rdptr, sizeof(rdptr)) ||
	    wrptr - rdptr > UINT32_MAX)
		return;
	told->waiting = (uint32_t)(wrptr - rdptr);
	uint64_t at = message->events != 0 ? rdptr % message->events : 0;
	if (told->waiting == 0 || message->events == 0 ||
	    !oob_read(part, message->events_addr + at * OOB_EVENT_BYTES, &first, sizeof(first)))
		return;
	told->first_type = first.type;
	told->first_index = first.index;
	told->first_value = first.value;
}

/* @status is what the process says: a negative error of heddle/error.h, or nonsense. */
static const char *oob_error_text(int32_t status)
{
	return status < 0 && status > -4096 ? strerror(-status) : "unknown";
}

static void oob_hear(struct oob_part *part, const struct oob_message *message)
{
	struct agent_oob *told = &part->told;
	told->messages++;
	told->blocked += (message->bits & OOB_BLOCKED) != 0;
	told->errors += (message->bits & OOB_ERRORS) != 0;
	told->failures += (message->bits & OOB_FAILURES) != 0;
	told->nobody += (message->bits & OOB_NOBODY) != 0;
	told->last_port = message->port;
	oob_look(part, message);
	if ((message->bits & OOB_ERRORS) != 0) {
		told->error_port = message->port;
		told->error_status = message->status;
		told->error_index = message->index;
	}
	if ((message->bits & OOB_FAILURES) != 0)
		log_info("%s (%d): its adapter reports failure %u", part->client->program,
		         (int)part->client->pid, message->type);
	else if ((message->bits & OOB_ERRORS) != 0)
		log_info("%s (%d): an error at port %u, aperture 0x%08x: %s", part->client->program,
		         (int)part->client->pid, message->port, message->index,
		         oob_error_text(message->status));
}

/* Read what a process has told; bounded, since it may write all the time. */
static void oob_drain(struct oob_part *part)
{
	for (uint32_t i = 0; i < OOB_BATCH; i++) {
		struct oob_message message;
		size_t bytes;
		const void *record = ring_peek(&part->lane, &bytes);
		if (record == NULL)
			return;
		if (bytes == sizeof(message)) {
			memcpy(&message, record, sizeof(message));
			oob_hear(part, &message);
		}
		ring_release(&part->lane);
	}
}

/* Read, set the IRQ bit, and read what came in between. */
static void oob_turn(struct oob_part *part)
{
	oob_drain(part);
	ring_arm(&part->lane);
	oob_drain(part);
}

static void oob_rang(struct agent_source *source)
{
	(void)source;
	bell_hear(oob.bell[0]);
	for (struct oob_part *at = oob.parts; at != NULL; at = at->next) {
		at->told.wakes++;
		oob_turn(at);
	}
}

/* --- criteria --- */

/* What the environment says. Whoever needs the criteria first has to call this. */
static void oob_begin_criteria(void)
{
	const char *words = secure_getenv("HEDDLE_CRITERIA");
	char list[OOB_TEXT];
	if (oob.begun)
		return;
	oob.begun = true;
	oob.criteria = (struct oob_criteria){OOB_CRITERIA, OOB_WAKES};
	struct oob_criteria asked;
	const char *bad = words != NULL ? oob_parse(words, &asked) : NULL;
	if (words != NULL && bad == NULL)
		oob.criteria = asked;
	if (bad != NULL) {
		oob_list(list);
		log_error("HEDDLE_CRITERIA: unknown word \"%.*s\", so the defaults hold; words are "
		          "%s",
		          (int)strcspn(bad, ","), bad, list);
	}
}

/* From now on @criteria hold for @part, beside what counts at its ports in any case. */
static void oob_apply(struct oob_part *part, const struct oob_criteria *criteria)
{
	part->criteria.events = criteria->events | part->signals;
	part->criteria.wakes = criteria->wakes | part->signals;
	atomic_store(&part->block->criteria, part->criteria.events);
	atomic_store(&part->block->wakes, part->criteria.wakes);
}

/* Another adapter of a process that has criteria of its own gets these. */
static const struct oob_criteria *oob_criteria_for(pid_t pid, bool *own)
{
	for (const struct oob_part *at = oob.parts; at != NULL; at = at->next)
		if (at->own && at->client->pid == pid) {
			*own = true;
			return &at->criteria;
		}
	*own = false;
	return &oob.criteria;
}

static void oob_set(struct agent *agent, struct client *client, struct agent_request *request)
{
	const struct agent_oob_set *set = &request->msg.u.oob_set;
	const struct oob_criteria criteria = {set->criteria, set->waking};
	char text[OOB_TEXT];
	bool found = set->pid == 0;
	oob_begin_criteria();
	if (ci_is_untrusted(agent, client)) {
		client_refuse(client, EACCES, "the program is not trusted");
		return;
	}
	if (!oob_is_possible(&criteria) || set->pid < 0) {
		client_refuse(client, EINVAL, "there are no such criteria");
		return;
	}
	for (struct oob_part *at = oob.parts; at != NULL; at = at->next) {
		if (set->pid != 0 && at->client->pid != set->pid)
			continue;
		at->own = set->pid != 0;
		oob_apply(at, &criteria);
		found = true;
	}
	if (!found) {
		client_refuse(client, ESTALE, "the process has no ports with event queues");
		return;
	}
	if (set->pid == 0)
		oob.criteria = criteria;
	oob_print(&criteria, text);
	if (set->pid == 0)
		log_info("process %d set the criteria of all: %s", (int)client->pid, text);
	else
		log_info("process %d set the criteria of process %d: %s", (int)client->pid,
		         (int)set->pid, text);
	struct agent_msg end = {.kind = AGENT_END};
	tell(client, &end, NULL, 0);
}

/* --- processes --- */

/* The bell, with the first process. */
static bool oob_begin(struct agent *agent)
{
	struct epoll_event interest = {.events = EPOLLIN, .data.ptr = &oob.source};
	oob_begin_criteria();
	if (oob.bell[0] >= 0)
		return true;
	oob.source.ready = oob_rang;
	if (!bell_make(oob.bell))
		return false;
	return epoll_ctl(agent->epoll, EPOLL_CTL_ADD, oob.bell[0], &interest) == 0;
}

static struct oob_part *oob_of(const struct client *client)
{
	struct oob_part *at = oob.parts;
	while (at != NULL && at->client != client)
		at = at->next;
	return at;
}

/* A new block for @part. Returns its descriptor, which the caller closes, or -1. */
static int oob_make(struct oob_part *part)
{
	int fd = memfile_make("heddle-oob", oob_bytes());
	void *block = MAP_FAILED;
	if (fd >= 0 && memfile_seal(fd))
		block = mmap(NULL, oob_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (block == MAP_FAILED) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	part->block = block;
	oob_apply(part, oob_criteria_for(part->client->pid, &part->own));
	ring_format(part->block->lane, OOB_SLOTS);
	ring_rx_attach(&part->lane, part->block->lane, OOB_SLOTS);
	ring_arm(&part->lane);
	return fd;
}

static void oob_attach(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)request;
	struct agent_msg msg = {.kind = AGENT_OOB_ATTACHED};
	if (oob_of(client) != NULL || !oob_begin(agent))
		return;
	struct oob_part *part = calloc(1, sizeof(*part));
	if (part != NULL) {
		part->client = client;
		part->signals = ci_is_untrusted(agent, client) ? OOB_SIGNALS : 0;
	}
	int fds[2] = {part != NULL ? oob_make(part) : -1, bell_lend(oob.bell[1])};
	if (fds[0] >= 0 && fds[1] >= 0) {
		part->next = oob.parts;
		oob.parts = part;
		tell(client, &msg, fds, 2);
	} else {
		free(part);
	}
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Read what the process has told, and say what is known of it. */
static struct agent_oob oob_status(struct oob_part *part)
{
	oob_turn(part);
	part->told.lost = atomic_load(&part->block->lost);
	part->told.criteria = part->criteria.events;
	part->told.waking = part->criteria.wakes;
	part->told.refused = part->client->refused;
	return part->told;
}

static void oob_query(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)agent;
	struct oob_part *part = oob_of(client);
	struct agent_msg msg = {.kind = AGENT_OOB_STATUS, .u.oob.refused = client->refused};
	if (part != NULL)
		msg.u.oob = oob_status(part);
	msg.u.oob.token = request->msg.u.oob.token;
	tell(client, &msg, NULL, 0);
}

static void oob_observe(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)request;
	oob_begin_criteria();
	struct agent_msg later = {.kind = AGENT_OOB_PROCESS,
	                          .u.oob_process.oob = {.criteria = oob.criteria.events,
	                                                .waking = oob.criteria.wakes}};
	tell(client, &later, NULL, 0);
	for (struct oob_part *at = oob.parts; at != NULL; at = at->next) {
		struct client *of = at->client;
		struct agent_msg msg = {.kind = AGENT_OOB_PROCESS,
		                        .u.oob_process = {.pid = of->pid,
		                                          .slot = of->slot,
		                                          .trusted = !ci_is_untrusted(agent, of),
		                                          .oob = oob_status(at)}};
		memcpy(msg.u.oob_process.node, of->node_name, AGENT_NAME_MAX);
		memcpy(msg.u.oob_process.program, of->program, AGENT_NAME_MAX);
		tell(client, &msg, NULL, 0);
	}
	struct agent_msg end = {.kind = AGENT_END};
	tell(client, &end, NULL, 0);
}

static void oob_leave(struct agent *agent, struct client *client)
{
	(void)agent;
	struct oob_part **at = &oob.parts;
	while (*at != NULL && (*at)->client != client)
		at = &(*at)->next;
	struct oob_part *part = *at;
	if (part == NULL)
		return;
	*at = part->next;
	munmap(part->block, oob_bytes());
	free(part);
}

static const struct service_kind oob_kinds[] = {
        {AGENT_OOB_ATTACH, AGENT_MSG_HEADER_BYTES, false, oob_attach},
        {AGENT_OOB_QUERY, AGENT_MSG_BYTES(oob), false, oob_query},
        {AGENT_OOB_OBSERVE, AGENT_MSG_HEADER_BYTES, true, oob_observe},
        {AGENT_OOB_SET, AGENT_MSG_BYTES(oob_set), true, oob_set},
};

const struct agent_service oob_service = {.name = "ports",
                                          .kinds = oob_kinds,
                                          .kind_count = SERVICE_KINDS(oob_kinds),
                                          .leave = oob_leave};
