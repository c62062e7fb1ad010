/* The agent's own queue (port/oob.h): messages of processes about their ports. The deliverer in the
 * process wakes the application itself, so most messages wake nobody: the agent reads them when
 * it is awake, or asked. What its criteria say should wake it (errors, failures, nobody else to
 * wake; at ports of a program that is not trusted, signals) rings its bell, if its IRQ bit is set.
 *
 * HEDDLE_CRITERIA in the agent's environment sets the criteria: words of blocked, errors, failures,
 * nobody, the forms connect, accept, reject, close, alive, aliveack, error, status, data and var,
 * and all, with commas between them; words that begin with ! wake the agent as well. */
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
	struct agent_oob told; /* what it has told so far */
};

/* There is one agent per process, and one thread. */
static struct {
	struct agent_source source; /* first */
	int bell[2];
	struct oob_part *parts;
	uint32_t criteria, wakes;
} oob = {.bell = {-1, -1}};

static const struct {
	const char *word;
	uint32_t bits;
} oob_words[] = {
        {"blocked", OOB_BLOCKED}, {"errors", OOB_ERRORS}, {"failures", OOB_FAILURES},
        {"all", OOB_ALL},         {"connect", 1u << 1},   {"accept", 1u << 2},
        {"reject", 1u << 3},      {"close", 1u << 4},     {"alive", 1u << 5},
        {"aliveack", 1u << 6},    {"error", 1u << 7},     {"status", 1u << 8},
        {"data", 1u << 9},        {"var", 1u << 10},      {"nobody", OOB_NOBODY},
};

bool oob_criteria(const char *words, uint32_t *criteria, uint32_t *wakes)
{
	*criteria = *wakes = 0;
	while (*words != '\0') {
		bool wake = *words == '!', known = false;
		words += wake;
		size_t length = strcspn(words, ",");
		for (size_t i = 0; i < sizeof(oob_words) / sizeof(oob_words[0]); i++)
			if (strlen(oob_words[i].word) == length &&
			    strncmp(oob_words[i].word, words, length) == 0) {
				*criteria |= oob_words[i].bits;
				*wakes |= wake ? oob_words[i].bits : 0;
				known = true;
			}
		if (!known)
			return false;
		words += length;
		words += *words == ',';
	}
	return true;
}

/* How many events wait in the queue that @message names: the agent looks into it. The addresses are
 * the process's own, and whatever they lead to is only counted. */
static uint32_t oob_look(const struct oob_part *part, const struct oob_message *message)
{
	uint64_t pointers[2] = {0};
	struct iovec here = {pointers, sizeof(pointers)};
	struct iovec there[2] = {{(void *)(uintptr_t)message->wrptr_addr, 8},
	                         {(void *)(uintptr_t)message->rdptr_addr, 8}};
	if (message->wrptr_addr == 0 ||
	    process_vm_readv(part->client->pid, &here, 1, there, 2, 0) != (ssize_t)sizeof(pointers))
		return 0;
	uint64_t waiting = pointers[0] - pointers[1];
	return waiting <= UINT32_MAX ? (uint32_t)waiting : 0;
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
	told->waiting = oob_look(part, message);
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

/* The bell and the criteria, with the first process. */
static bool oob_begin(struct agent *agent)
{
	const char *words = secure_getenv("HEDDLE_CRITERIA");
	struct epoll_event interest = {.events = EPOLLIN, .data.ptr = &oob.source};
	if (oob.bell[0] >= 0)
		return true;
	oob.criteria = OOB_CRITERIA;
	oob.wakes = OOB_WAKES;
	if (words != NULL && !oob_criteria(words, &oob.criteria, &oob.wakes)) {
		log_error("HEDDLE_CRITERIA=%s: unknown word; see heddled(8)", words);
		oob.criteria = OOB_CRITERIA;
		oob.wakes = OOB_WAKES;
	}
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
static int oob_make(struct oob_part *part, uint32_t signals)
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
	atomic_store(&part->block->criteria, oob.criteria | signals);
	atomic_store(&part->block->wakes, oob.wakes | signals);
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
	uint32_t signals = ci_is_untrusted(agent, client) ? OOB_SIGNALS : 0;
	int fds[2] = {part != NULL ? oob_make(part, signals) : -1, bell_lend(oob.bell[1])};
	if (fds[0] >= 0 && fds[1] >= 0) {
		part->client = client;
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

static void oob_query(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)agent;
	struct oob_part *part = oob_of(client);
	struct agent_msg msg = {.kind = AGENT_OOB_STATUS};
	if (part != NULL) {
		oob_turn(part);
		part->told.lost = atomic_load(&part->block->lost);
		part->told.criteria = atomic_load(&part->block->criteria);
		msg.u.oob = part->told;
	}
	msg.u.oob.refused = client->refused;
	msg.u.oob.token = request->msg.u.oob.token;
	tell(client, &msg, NULL, 0);
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
};

const struct agent_service oob_service = {.name = "ports",
                                          .kinds = oob_kinds,
                                          .kind_count = SERVICE_KINDS(oob_kinds),
                                          .leave = oob_leave};
